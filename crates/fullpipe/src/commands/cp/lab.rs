//! A copy in the testbed: this program runs at both ends of an emulated path, with real files of this host.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use fullpipe_lab::{Commands, DISK, Lab, LabCopied, LabCopy, RECORD, SERVER_ADDRESS, TOP};
use fullpipe_path::lab_host::User;
use fullpipe_path::{ExitClass, LabPath, Time};

use super::args::Args;
use super::endpoint::Place;
use crate::failure::{Failure, Result};
use crate::output::{self, errln};
use crate::{progress, run_record};

/// Copies, and prints what the sending fullpipe in the guest prints.
pub fn run(args: &Args, from: &[Place], path: &LabPath, to: &[u8]) -> Result {
    if [&path.host_a, &path.host_b].iter().any(|host| host.user == User::User) {
        let why = "an ordinary user of the testbed (user:user) may not write to this host's folders; leave it out, or copy \
                   between programs of a scenario ('fullpipe lab run'), in the guest's memory";
        return Err(Failure::usage(why));
    }
    if path.disk_a.is_some() {
        let why = "the sources of a copy into the testbed are files of this host, which no disk_a slows down; leave it out, or \
                   copy between programs of a scenario ('fullpipe lab run')";
        return Err(Failure::usage(why));
    }
    if path.mount.is_some() {
        let why = "a copy brings files over the path by itself, not through a mount; leave mount out, or copy to /mount in a \
                   program of a scenario ('fullpipe lab run')";
        return Err(Failure::usage(why));
    }
    if args.remove_source_files {
        let why = "--remove-source-files is not possible into the testbed (lab:), which may not write to the sources' folders";
        return Err(Failure::usage(why));
    }
    if args.log_file.is_some() {
        let why = "--log-file is not possible into the testbed (lab:), which may not write to this host's files; take --json, or \
                   keep what it prints";
        return Err(Failure::usage(why));
    }
    if args.filters.has_list() {
        return Err(Failure::usage("--files-from is not possible into the testbed (lab:); copy the whole folder"));
    }
    super::endpoint::fits(args, &Place::Lab(Box::new(path.clone()), to.to_vec()))?;
    let mut words: Vec<String> = ["fullpipe", "cp", "--insecure"].map(str::to_owned).to_vec();
    let mut sources = Vec::new();
    let mut keep = |whole: &Path| {
        let folder = if whole.is_dir() { whole } else { whole.parent().unwrap_or(Path::new("/")) };
        if !sources.iter().any(|kept| kept == folder) {
            sources.push(folder.to_owned());
        }
    };
    let mut how = args.how.clone();
    if let Some(profile) = &mut how.profile {
        *profile = whole(profile.as_os_str().as_bytes())?;
        keep(profile);
    }
    // The guest gets this command line, but for paths and for flags that only this process acts on.
    words.extend(args.passed_on(&how)?);
    if let Some(to) = &args.record {
        run_record::check_target(to)?;
        words.extend(["--record", RECORD, "--guest"].map(str::to_owned));
        words.push(path.to_string());
        words.extend(["--sample".to_owned(), args.sample.to_string(), "--seed".to_owned(), args.seed.to_string()]);
    }
    words.push("--".into());
    for place in from {
        let Place::Local(source) = place else {
            return Err(Failure::usage("sources of a copy into the testbed must be on this host"));
        };
        let whole = absolute(source)?;
        keep(&whole);
        let root = Path::new("/");
        words.push(match text(&whole, source)? {
            _ if whole == root => format!("{TOP}/."),
            path if !whole.is_dir() && whole.parent() == Some(root) => format!("{TOP}{path}"),
            path => path,
        });
    }
    let (folder, wanted) = match &path.disk_b {
        Some(_) => (None, on_disk(to)?),
        None => {
            let (folder, wanted) = target(to)?;
            (Some(folder), wanted)
        }
    };
    words.push(format!("fullpipe://{SERVER_ADDRESS}{}", text(&wanted, to)?));
    let lab = Lab::open(path.kernel.as_deref())?.with_memory(args.memory);
    let bar = progress::bar(0, "in the testbed", args.quiet || args.json);
    let commands = Commands { server: server(folder.as_deref()), client: words };
    let udt = args.how.largest_udt(path.rtt.seconds())?;
    let copy = LabCopy { path, seed: args.seed, commands, sources, target: folder, udt };
    let copied = lab.copy(&copy, Time(3_600_000_000_000 * 24).duration(), &|seconds, bytes| {
        bar.set_message(format!(
            "{seconds:.1} s of virtual time, {:.2} GB through the bottleneck",
            bytes as f64 * 1e-9
        ));
    })?;
    bar.finish_and_clear();
    if let (Some(to), Some(text)) = (&args.record, &copied.record) {
        super::record::write_text(to, text)?;
    }
    show(args, &copied)
}

/// Prints what a copy in the testbed printed, and returns how it ended.
fn show(args: &Args, copied: &LabCopied) -> Result {
    output::out(format_args!("{}", copied.stdout));
    let (said, error) = match copied.stderr.rsplit_once("error: ") {
        Some((said, error)) if copied.code != 0 => (said, Some(error.trim())),
        _ => (copied.stderr.as_str(), None),
    };
    for line in said.lines() {
        errln!("{line}");
    }
    if !args.quiet && !args.json && copied.code == 0 {
        errln!(
            "in the testbed: {:.3} s of virtual time, {} packets dropped by the bottleneck's queue",
            copied.report.seconds,
            copied.report.forward.drops
        );
    }
    match copied.code {
        0 => Ok(()),
        code => {
            let class = ExitClass::from_code(code).unwrap_or(ExitClass::Lab);
            let failure = Failure::new(class, error.unwrap_or("the copy in the testbed failed"));
            // The guest has told a program already, if it came as far as its last line.
            let last = copied.stdout.lines().last().and_then(|line| serde_json::from_str(line).ok());
            let said = last.is_some_and(|line: serde_json::Value| line["kind"] == "failed" || line["kind"] == "done");
            Err(if said { failure.said() } else { failure })
        }
    }
}

/// The command line of the server at the far end, which may write everything that the guest lets it write.
fn server(target: Option<&Path>) -> Vec<String> {
    let root = if target == Some(Path::new("/")) { TOP } else { "/" };
    let words = ["fullpipe", "serve", "--guest", "--quiet", "--bind", SERVER_ADDRESS, "--root", root];
    words.into_iter().chain(["--insecure", "--allow-special"]).map(str::to_owned).collect()
}

/// The absolute form of a path. A relative one starts at the current folder.
fn whole(path: &[u8]) -> Result<PathBuf> {
    let path = OsStr::from_bytes(path);
    if Path::new(path).is_absolute() {
        return Ok(path.into());
    }
    let current = std::env::current_dir();
    let current = current.map_err(|e| {
        Failure::new(ExitClass::Missing, format!("cannot find the current folder: {e}; go to another one"))
    })?;
    Ok(current.join(path))
}

/// The absolute path of a source, which must exist.
fn absolute(source: &[u8]) -> Result<PathBuf> {
    let path = whole(source)?;
    let shown = || fullpipe_transfer::protocol::name::printable(source);
    std::fs::metadata(&path).map_err(|e| Failure::usage(format!("cannot read {}: {e}", shown())))?;
    Ok(path)
}

/// A path as text for the guest's command line.
fn text(path: &Path, source: &[u8]) -> Result<String> {
    path.to_str().map(str::to_owned).ok_or_else(|| {
        let shown = fullpipe_transfer::protocol::name::printable(source);
        Failure::usage(format!("{shown}: the testbed takes only names in UTF-8; copy the folder that holds it"))
    })
}

/// The path on the emulated disk of the far end.
fn on_disk(to: &[u8]) -> Result<PathBuf> {
    let path = PathBuf::from(OsStr::from_bytes(to));
    if path.starts_with(DISK) && path.components().all(|part| part != std::path::Component::ParentDir) {
        return Ok(path);
    }
    let shown = fullpipe_transfer::protocol::name::printable(to);
    Err(Failure::usage(format!("{shown} is not on the disk that disk_b makes at the far end; copy to {DISK}/")))
}

/// The existing folder of this host that the far end writes to, and the path to create in it. Both are without links,
/// since the guest sees the folder itself but not the links that lead to it.
fn target(to: &[u8]) -> Result<(PathBuf, PathBuf)> {
    let whole = whole(to)?;
    let found = |folder: &Path| std::fs::canonicalize(folder).ok().filter(|folder| folder.is_dir());
    let known = if whole.is_dir() {
        found(&whole).map(|folder| (folder.clone(), folder))
    } else {
        let (folder, name) = (whole.parent().and_then(found), whole.file_name());
        folder.zip(name).map(|(folder, name)| (folder.clone(), folder.join(name)))
    };
    let (folder, mut wanted) = known.ok_or_else(|| {
        let shown = fullpipe_transfer::protocol::name::printable(to);
        Failure::usage(format!(
            "{shown}: its folder does not exist on this host; make it first, the far end writes there"
        ))
    })?;
    if to.ends_with(b"/") {
        wanted.push("");
    }
    Ok((folder, wanted))
}
