//! A copy in the testbed: this program at both ends of an emulated path, real files of this host.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use fullpipe_lab::{Lab, LabCopy, RECORD, TOP};
use fullpipe_path::{ExitClass, LabPath, Time};

use super::endpoint::Place;
use crate::failure::Failure;
use crate::output::{self, errln};
use crate::{Result, progress};

/// Copies, and prints what the near end in the guest prints.
pub fn run(args: &super::Args, from: &[Place], path: &LabPath, to: &[u8]) -> Result {
    super::endpoint::fits(args, &Place::Lab(Box::new(path.clone()), to.to_vec()))?;
    let mut words: Vec<String> = ["fullpipe", "cp", "--insecure"].map(str::to_owned).to_vec();
    let mut sources = Vec::new();
    let mut keep = |whole: &Path| {
        let folder = if whole.is_dir() { whole } else { whole.parent().unwrap_or(Path::new("/")) };
        if !sources.iter().any(|kept| kept == folder) {
            sources.push(folder.to_owned());
        }
    };
    let mut how = args.how.over(path);
    if let Some(profile) = &mut how.profile {
        *profile = current()?.join(&*profile);
        keep(profile);
    }
    // Its own words, but for those that name places and those that are for this end.
    words.extend(args.passed_on(&how));
    if let Some(to) = &args.record {
        super::record::check(to)?;
        words.extend(["--record", RECORD, "--guest"].map(str::to_owned));
        words.push(path.to_string());
        words.extend(["--sample".to_owned(), args.sample.to_string(), "--seed".to_owned(), args.seed.to_string()]);
    }
    words.push("--".into());
    for place in from {
        let Place::Local(source) = place else {
            return Err(Failure::new(ExitClass::Usage, "what goes into the testbed must be on this host"));
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
    let (folder, wanted) = target(to)?;
    words.push(format!("fullpipe://10.0.2.1{}", text(&wanted, to)?));
    let lab = Lab::open(path.kernel.as_deref())?.with_memory(args.memory);
    let bar = progress::bar(0, "in the testbed", args.quiet || args.json);
    let copy = LabCopy { path, seed: args.seed, words, sources, target: folder };
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
            "in the testbed: {:.3} s of virtual time, {} packets dropped at the bottleneck's queue",
            copied.report.seconds,
            copied.report.forward.drops
        );
    }
    match copied.code {
        0 => Ok(()),
        code => {
            let class = ExitClass::from_code(code).unwrap_or(ExitClass::Lab);
            let failure = Failure::new(class, error.unwrap_or("the copy in the testbed failed"));
            // In the guest's own lines, if it came so far.
            let last = copied.stdout.lines().last().and_then(|line| serde_json::from_str(line).ok());
            let said = last.is_some_and(|line: serde_json::Value| line["kind"] == "failed" || line["kind"] == "done");
            Err(if said { failure.said() } else { failure })
        }
    }
}

fn current() -> Result<PathBuf> {
    std::env::current_dir().map_err(|e| Failure::new(ExitClass::Missing, format!("finding the current folder: {e}")))
}

fn absolute(source: &[u8]) -> Result<PathBuf> {
    let path = current()?.join(OsStr::from_bytes(source));
    let shown = || fullpipe_transfer::protocol::name::printable(source);
    std::fs::metadata(&path).map_err(|e| Failure::new(ExitClass::Usage, format!("{}: {e}", shown())))?;
    Ok(path)
}

fn text(path: &Path, source: &[u8]) -> Result<String> {
    path.to_str().map(str::to_owned).ok_or_else(|| {
        let shown = fullpipe_transfer::protocol::name::printable(source);
        Failure::new(ExitClass::Usage, format!("{shown}: the testbed's command line takes only UTF-8; name its folder"))
    })
}

/// The folder of this host that the far end writes to, which must be there, and what is to be made in it. Without links:
/// the guest shows the folder itself, and not what leads there.
fn target(to: &[u8]) -> Result<(PathBuf, PathBuf)> {
    let whole = current()?.join(OsStr::from_bytes(to));
    let found = |folder: &Path| std::fs::canonicalize(folder).ok().filter(|folder| folder.is_dir());
    let known = if whole.is_dir() {
        found(&whole).map(|folder| (folder.clone(), folder))
    } else {
        let (folder, name) = (whole.parent().and_then(found), whole.file_name());
        folder.zip(name).map(|(folder, name)| (folder.clone(), folder.join(name)))
    };
    let (folder, mut wanted) = known.ok_or_else(|| {
        let shown = fullpipe_transfer::protocol::name::printable(to);
        Failure::new(
            ExitClass::Usage,
            format!("{shown}: its folder does not exist on this host, where the far end writes"),
        )
    })?;
    if to.ends_with(b"/") {
        wanted.push("");
    }
    Ok((folder, wanted))
}
