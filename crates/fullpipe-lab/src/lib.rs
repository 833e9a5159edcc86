//! The testbed: Linux in virtual time, with an emulated path between two ends.
//!
//! A guest is user-mode Linux, started as an ordinary process with `time-travel=inf-cpu`: its clock
//! moves only when it has nothing left to do, so a path of any rate is exact whatever the machine
//! does meanwhile. The host side finds or builds the guest's kernel ([`kernel`]), describes the work
//! as a [`job`], boots ([`boot`]) and collects. The guest side ([`guest`]) is this same program,
//! running as the guest's first process.

mod affinity;
pub mod boot;
mod error;
pub mod guest;
pub mod job;
pub mod kernel;
mod lab;
mod record;
pub mod scenario;

pub use error::LabError;
pub use lab::{Commands, Lab, LabCopied, LabCopy, LabMeasured, RECORD, SERVER_ADDRESS, TOP};
