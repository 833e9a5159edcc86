//! The verbs of the command line. Each has a file, and a folder beside it if it is large; `pages` has the two that print
//! manual pages and completions. No verb imports another; what several need is beside this folder.

pub mod bench;
pub mod config;
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
