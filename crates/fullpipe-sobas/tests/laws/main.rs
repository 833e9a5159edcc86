//! Both laws of buffer sizing, against simulated paths and whatever may be observed.

mod adaptive;
mod decisions;
mod hostile;
mod paper;
mod sim;
