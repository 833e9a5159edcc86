//! The verbs of the command line, one file each. No verb imports another; what several need is beside this folder.

pub mod cp;
pub mod doctor;
pub mod external;
pub mod far;
pub mod lab;
pub mod measure;
pub mod pages;
pub mod select;
pub mod serve;
pub mod token;
