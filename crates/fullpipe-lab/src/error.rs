//! Errors of the testbed.

use std::io;
use std::path::PathBuf;

use fullpipe_path::record::RecordError;
use fullpipe_path::{Classified, ExitClass, Size};

/// The reason why the testbed failed.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// This machine is not x86-64.
    #[error(
        "the testbed runs on x86-64 only: user-mode Linux does not exist for {0}; 'measure HOST' and 'serve' work here"
    )]
    Architecture(&'static str),
    /// No guest kernel has been built, or none of the version.
    #[error("no guest kernel{} is built{}; run 'fullpipe lab kernel{}' once (some minutes; 6.1 or later)",
            .wanted.as_ref().map(|w| format!(" {w}")).unwrap_or_default(),
            if .built.is_empty() { String::new() } else { format!(" (there is {})", .built.join(", ")) },
            .wanted.as_ref().map(|w| format!(" --version {w}")).unwrap_or_default())]
    NoKernel {
        /// Version that the user asked for.
        wanted: Option<String>,
        /// Versions that have been built.
        built: Vec<String>,
    },
    /// Another user can have written the kernel.
    #[error("the guest kernel {} {why}, and it would run as you; delete {} and run 'fullpipe lab kernel', or if you trust it, make it yours (chown, chmod go-w)",
            .path.display(), .folder.display())]
    UntrustedKernel {
        /// File or folder of the kernel.
        path: PathBuf,
        /// Who owns it or can write to it.
        why: String,
        /// Folder of the kernel.
        folder: PathBuf,
    },
    /// The kernel is too old for the testbed's patches.
    #[error("kernel {wanted} is too old for the testbed; use 6.1 or later")]
    TooOld {
        /// Version that the user asked for.
        wanted: String,
    },
    /// No kernel source was found.
    #[error("no kernel source{} (6.1 or later) found in /usr/src; as root: apt-get install {package}, or name a tarball with --source",
            .wanted.as_ref().map(|w| format!(" of version {w}")).unwrap_or_default())]
    NoSource {
        /// Version that the user asked for.
        wanted: Option<String>,
        /// Package of the distribution that has the source.
        package: String,
    },
    /// The kernel source has another version than the user asked for.
    #[error("the kernel source {} has version {built}, not {wanted}; name a tarball of {wanted} with --source, or use the kernel that is built now (kernel={built})",
            .tarball.display())]
    OtherVersion {
        /// Version that the user asked for.
        wanted: String,
        /// The source.
        tarball: PathBuf,
        /// Version that was built.
        built: String,
    },
    /// A tool that the kernel's build needs is missing.
    #[error("the kernel's build needs '{tool}'; as root: apt-get install build-essential flex bison bc xz-utils patch")]
    NoTool {
        /// Name of the tool.
        tool: &'static str,
    },
    /// A tool that makes the disks of paths is missing.
    #[error("a disk needs {tool} on this host; as root: apt-get install {package}")]
    NoDiskTool {
        /// Name of the tool.
        tool: &'static str,
        /// Package that has it.
        package: &'static str,
    },
    /// The kernel's build failed.
    #[error("building the guest kernel failed while {doing}: {why}")]
    Build {
        /// Step of the build that failed.
        doing: &'static str,
        /// Last lines of the step's output.
        why: String,
    },
    /// A file or process of the host.
    #[error("{what}: {source}")]
    Host {
        /// The step that failed.
        what: String,
        /// The system's error.
        source: io::Error,
    },
    /// The host has too little memory for the guest.
    #[error("the guest needs up to {needed} MB of memory, and {} has {free} MB; free some, or choose fewer streams, smaller buffers, or a smaller rate, RTT or queue", .place.display())]
    NoMemory {
        /// Memory that the guest may need, MB.
        needed: u64,
        /// Free memory of the host, MB.
        free: u64,
        /// Folder that holds guests' memory.
        place: PathBuf,
    },
    /// The guest cannot boot with so little memory.
    #[error("a guest cannot boot with {given}; give it at least {least}")]
    TooLittleMemory {
        /// Memory that the user gave.
        given: Size,
        /// Least memory of a guest.
        least: Size,
    },
    /// The guest's kernel panicked.
    #[error("the guest's kernel panicked: {why}")]
    Panic {
        /// Line with the panic on its console.
        why: String,
    },
    /// The guest ran out of memory.
    #[error("the guest ran out of its {memory} MB of memory; give it more with --memory")]
    OutOfMemory {
        /// Memory of the guest, MB.
        memory: u64,
    },
    /// The guest took longer than `--limit` allows.
    #[error("the guest did not finish within {seconds} s of real time{at}; raise --limit, or measure less")]
    Limit {
        /// The limit, s of real time.
        seconds: f64,
        /// How far the guest came, or empty.
        at: String,
    },
    /// The guest ended without a report.
    #[error("the guest ended without a result ({status}){}", .console.is_empty().then(String::new).unwrap_or_else(|| format!("; it printed: {}", .console)))]
    Vanished {
        /// Exit status of the guest's process.
        status: String,
        /// Last lines on the guest's console.
        console: String,
    },
    /// The guest could not do its job.
    #[error("in the guest, {0}")]
    Guest(String),
    /// The guest's kernel lacks a setting that the job asks for, or does not take its value.
    #[error("in the guest, {0}; change that, or choose another kernel (kernel=)")]
    Setting(String),
    /// A program in the guest failed.
    #[error("in the guest, '{program}' on end {end} {how}{}", .output.is_empty().then(String::new).unwrap_or_else(|| format!(": {}", .output)))]
    Program {
        /// Command of the program.
        program: String,
        /// End on which the program ran.
        end: &'static str,
        /// How the program ended.
        how: String,
        /// Last lines of its standard error.
        output: String,
        /// Class of the failure: fullpipe's own if the program was fullpipe.
        class: ExitClass,
    },
    /// A measurement in the guest failed.
    #[error("in the testbed, {why}")]
    Run {
        /// The reason that fullpipe gave there.
        why: String,
        /// Class of the failure there.
        class: ExitClass,
    },
    /// A file is not a scenario.
    #[error("scenario {}: {why}", .file.display())]
    Scenario {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The record cannot be written.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The user interrupted the program.
    #[error("interrupted")]
    Interrupted,
}

impl Classified for LabError {
    fn class(&self) -> ExitClass {
        match self {
            LabError::Architecture(_)
            | LabError::NoKernel { .. }
            | LabError::UntrustedKernel { .. }
            | LabError::NoSource { .. }
            | LabError::OtherVersion { .. }
            | LabError::NoTool { .. }
            | LabError::NoDiskTool { .. }
            | LabError::NoMemory { .. }
            | LabError::Host { .. } => ExitClass::Missing,
            LabError::Scenario { .. }
            | LabError::Setting(_)
            | LabError::TooOld { .. }
            | LabError::TooLittleMemory { .. } => ExitClass::Usage,
            LabError::Record(_) => ExitClass::Record,
            // There is no other host that could be at fault.
            LabError::Run { class: ExitClass::Peer, .. } => ExitClass::Lab,
            LabError::Program { class, .. } | LabError::Run { class, .. } => *class,
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
