//! The guest side: this program as the first process of user-mode Linux.

mod cross_traffic;
mod disks;
mod host_limits;
mod host_noise;
mod netlink;
mod nfs;
mod node;
mod programs;
mod queues;
mod root;
mod seed;
mod step;
mod sysctl;
mod topology;

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use nix::sys::reboot::{RebootMode, reboot};
use nix::sys::signalfd::SignalFd;

use step::{Doing, Fallible};

use crate::job::{GUEST_VARIABLE, JOB_FILE, Job, OUT_FOLDER, Report, file};

pub use netlink::{InstalledQdisc, installed_qdiscs};

/// Whether this process is the first one of a guest.
pub fn is_guest() -> bool {
    std::process::id() == 1 && std::env::var_os(GUEST_VARIABLE).is_some()
}

/// Does the guest's job, writes the report, and powers the guest off.
pub fn init() -> ExitCode {
    let report = match work() {
        Ok(report) => report,
        Err((error, is_input)) => Report {
            error: Some(error),
            is_input,
            programs: Vec::new(),
            forward: Default::default(),
            back: Default::default(),
            impaired: Default::default(),
            impaired_back: Default::default(),
            deepest: 0,
            queue: Vec::new(),
            deepest_back: 0,
            queue_back: Vec::new(),
            seconds: 0.0,
        },
    };
    let written = serde_json::to_vec(&report)
        .map_err(std::io::Error::other)
        .and_then(|json| fs::write(Path::new(OUT_FOLDER).join(file::REPORT), json));
    if let Err(error) = written {
        // The console is the only other way to the host.
        println!("fullpipe: cannot write the report: {error}; {:?}", report.error);
    }
    // This ends user-mode Linux with status 0.
    let _ = reboot(RebootMode::RB_POWER_OFF);
    ExitCode::FAILURE
}

/// Does the guest's job. An error comes with whether the job is wrong, which asks for what this kernel does not have.
fn work() -> Result<Report, (String, bool)> {
    let not_input = |error| (error, false);
    let (job, children) = enter().map_err(not_input)?;
    let net = topology::build(&job).map_err(not_input)?;
    topology::set_hosts(&net, &job).map_err(|error| (error, true))?;
    disks::make(&job, &net)
        .and_then(|()| nfs::mount_at_a(&job, &net))
        .and_then(|()| programs::run(&job, &net, &children))
        .map_err(not_input)
}

/// Reads the job, and enters the guest's root.
fn enter() -> Fallible<(Job, SignalFd)> {
    // Still the host's /proc: its self is the kernel's own process.
    let folder = fs::read_link("/proc/self/cwd").doing(|| "finding the guest's folder".into())?;
    let job = fs::read(folder.join(JOB_FILE)).doing(|| "reading the job".into())?;
    let job: Job = serde_json::from_slice(&job).doing(|| "parsing the job".into())?;
    root::enter(&folder)?;
    Ok((job, programs::children()?))
}
