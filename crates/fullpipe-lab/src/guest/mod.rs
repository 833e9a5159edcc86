//! The guest side: this program as the first process of user-mode Linux.

mod cross_traffic;
mod host_noise;
mod netlink;
mod node;
mod programs;
mod root;
mod sysctl;
mod topology;

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use nix::sys::reboot::{RebootMode, reboot};

use crate::job::{Job, Report, file};

pub use netlink::{InstalledQdisc, installed_qdiscs};

/// The guest's own folder, by a name that hosts hardly have: theirs is not seen, and nothing is copied there.
const OWN: &str = "/.fullpipe";
/// Where the host's output folder is seen.
const OUT: &str = "/.fullpipe/out";
/// Set by the kernel from its own command line.
pub const MARK: &str = "FULLPIPE_GUEST";

/// Whether this process is a guest's first.
pub fn is_guest() -> bool {
    std::process::id() == 1 && std::env::var_os(MARK).is_some()
}

/// A step that failed, in words; in the guest every error goes to the host as text.
type Fallible<T> = Result<T, String>;

/// Adds what was being done to an error.
trait Doing<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Fallible<T>;
}

impl<T, E: std::fmt::Display> Doing<T> for Result<T, E> {
    fn doing(self, what: impl FnOnce() -> String) -> Fallible<T> {
        self.map_err(|error| format!("{}: {error}", what()))
    }
}

/// Does the job and powers the guest off. Never returns to a shell: there is none.
pub fn init() -> ExitCode {
    let report = match work() {
        Ok(report) => report,
        Err(error) => Report {
            error: Some(error),
            programs: Vec::new(),
            forward: Default::default(),
            back: Default::default(),
            impaired: Default::default(),
            impaired_back: Default::default(),
            deepest: 0,
            queue: Vec::new(),
            seconds: 0.0,
        },
    };
    let written = serde_json::to_vec(&report)
        .map_err(std::io::Error::other)
        .and_then(|json| fs::write(Path::new(OUT).join(file::REPORT), json));
    if let Err(error) = written {
        // The console is all that is left.
        println!("fullpipe: cannot write the report: {error}; {:?}", report.error);
    }
    // Ends user-mode Linux with status 0.
    let _ = reboot(RebootMode::RB_POWER_OFF);
    ExitCode::FAILURE
}

fn work() -> Fallible<Report> {
    // This is still the host's /proc, seen by the kernel's own process.
    let folder = fs::read_link("/proc/self/cwd").doing(|| "finding the guest's folder".into())?;
    let job = fs::read(folder.join("job.json")).doing(|| "reading the job".into())?;
    let job: Job = serde_json::from_slice(&job).doing(|| "parsing the job".into())?;
    root::enter(&folder)?;
    let children = programs::children()?;
    let net = topology::build(&job)?;
    programs::run(&job, &net, &children)
}
