//! The testbed: Linux in virtual time, with an emulated path between two ends.
//!
//! A guest is user-mode Linux, started as an ordinary process with `time-travel=inf-cpu`. Its clock moves only when it has
//! nothing left to do, so a path of any rate is exact, whatever else the machine does.
//!
//! The host side finds or builds the guest's kernel ([`kernel`]), describes the work as a [`job`], boots the guest ([`boot`])
//! and collects the results. The guest side ([`guest`]) is this same program as the guest's first process. Both sides share
//! only [`job`].

mod affinity;
pub mod boot;
mod error;
pub mod guest;
pub mod interrupt;
pub mod job;
pub mod kernel;
mod lab;
pub mod scenario;

pub use error::LabError;
pub use job::{DISK, MOUNT, RECORD, SERVER_ADDRESS, TOP};
pub use lab::{Commands, Lab, LabCopied, LabCopy, LabMeasured, LabPrinted, records};
