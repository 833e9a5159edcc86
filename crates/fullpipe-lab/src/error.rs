//! What can go wrong with a guest, each told apart.

use std::io;
use std::path::PathBuf;

use fullpipe_path::record::RecordError;
use fullpipe_path::{Classified, ExitClass, Size};

/// Why the testbed did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// Another architecture.
    #[error(
        "the testbed runs on x86-64 only: user-mode Linux does not exist for {0}; 'measure HOST' and 'serve' work here"
    )]
    Architecture(&'static str),
    /// No kernel has been built.
    #[error("no guest kernel{} is built{}; run 'fullpipe lab kernel{}' once (some minutes; 6.1 or later)",
            .wanted.as_ref().map(|w| format!(" {w}")).unwrap_or_default(),
            if .built.is_empty() { String::new() } else { format!(" (there is {})", .built.join(", ")) },
            .wanted.as_ref().map(|w| format!(" --version {w}")).unwrap_or_default())]
    NoKernel {
        /// The version asked for.
        wanted: Option<String>,
        /// Those that are built.
        built: Vec<String>,
    },
    /// Older than what the testbed's patches fit.
    #[error("kernel {wanted} is older than the testbed takes; give 6.1 or later")]
    TooOld {
        /// The version asked for.
        wanted: String,
    },
    /// No kernel source.
    #[error("no kernel source{} (6.1 or later) found in /usr/src; as root: apt-get install {package}, or name a tarball with --source",
            .wanted.as_ref().map(|w| format!(" of version {w}")).unwrap_or_default())]
    NoSource {
        /// The version asked for.
        wanted: Option<String>,
        /// The package that has it.
        package: String,
    },
    /// A tool that the build needs.
    #[error("the kernel's build needs '{tool}'; as root: apt-get install build-essential flex bison bc xz-utils patch")]
    NoTool {
        /// Its name.
        tool: &'static str,
    },
    /// The kernel's build failed.
    #[error("building the guest kernel failed while {doing}: {why}")]
    Build {
        /// Step.
        doing: &'static str,
        /// The end of its output.
        why: String,
    },
    /// Something about files or processes on the host.
    #[error("{what}: {source}")]
    Host {
        /// What was tried.
        what: String,
        /// Why not.
        source: io::Error,
    },
    /// Too little room for the guest's memory.
    #[error("the guest needs up to {needed} MB of memory, and {} has {free} MB; free some, or choose a smaller rate, RTT or queue", .place.display())]
    NoMemory {
        /// Megabytes.
        needed: u64,
        /// Megabytes.
        free: u64,
        /// Where guests' memory lives.
        place: PathBuf,
    },
    /// Less memory than a guest can boot with.
    #[error("a guest cannot boot with {given}; give it at least {least}")]
    TooLittleMemory {
        /// Asked for.
        given: Size,
        /// The least.
        least: Size,
    },
    /// The guest's kernel panicked.
    #[error("the guest's kernel panicked: {why}")]
    Panic {
        /// What it printed.
        why: String,
    },
    /// The guest ran out of memory.
    #[error("the guest ran out of its {memory} MB of memory; give it more with --memory")]
    OutOfMemory {
        /// What it had.
        memory: u64,
    },
    /// The guest took too long.
    #[error("the guest did not finish within {seconds:.0} s of real time{at}; raise --limit, or measure less")]
    Limit {
        /// The limit.
        seconds: f64,
        /// How far it came.
        at: String,
    },
    /// The guest ended without a report.
    #[error("the guest ended without a result ({status}){}", .console.is_empty().then(String::new).unwrap_or_else(|| format!("; it printed: {}", .console)))]
    Vanished {
        /// Of its process.
        status: String,
        /// The end of what it printed.
        console: String,
    },
    /// The guest could not do its job.
    #[error("in the guest, {0}")]
    Guest(String),
    /// A program in the guest failed.
    #[error("in the guest, '{program}' on end {end} {how}{}", .output.is_empty().then(String::new).unwrap_or_else(|| format!(": {}", .output)))]
    Program {
        /// Its command.
        program: String,
        /// Where it ran.
        end: &'static str,
        /// How it ended.
        how: String,
        /// The end of what it printed.
        output: String,
        /// If it was fullpipe itself, the class of its failure.
        class: ExitClass,
    },
    /// A scenario that is none.
    #[error("scenario {}: {why}", .file.display())]
    Scenario {
        /// Its file.
        file: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The record.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// Interrupted from the keyboard.
    #[error("interrupted")]
    Interrupted,
}

impl Classified for LabError {
    fn class(&self) -> ExitClass {
        match self {
            LabError::Architecture(_)
            | LabError::NoKernel { .. }
            | LabError::NoSource { .. }
            | LabError::NoTool { .. }
            | LabError::NoMemory { .. }
            | LabError::Host { .. } => ExitClass::Missing,
            LabError::Scenario { .. } | LabError::TooOld { .. } | LabError::TooLittleMemory { .. } => ExitClass::Usage,
            LabError::Record(_) => ExitClass::Record,
            LabError::Program { class, .. } => *class,
            LabError::Build { .. }
            | LabError::Panic { .. }
            | LabError::OutOfMemory { .. }
            | LabError::Limit { .. }
            | LabError::Vanished { .. }
            | LabError::Guest(_) => ExitClass::Lab,
            LabError::Interrupted => ExitClass::Interrupted,
        }
    }
}

/// Shorthand for [`LabError::Host`].
pub(crate) fn host(what: impl Into<String>) -> impl FnOnce(io::Error) -> LabError {
    let what = what.into();
    move |source| LabError::Host { what, source }
}
