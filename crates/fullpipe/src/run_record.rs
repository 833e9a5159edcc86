//! The record of a run, a measurement's or a copy's: its name, its place, its lines (`docs/reference/record.md`).

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path as FilePath, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use fullpipe_net::Measured;
use fullpipe_path::record::{self, Copied, Header};
use fullpipe_path::{ExitClass, Path, Run, Time};
use serde_json::{Value, json};

use crate::failure::{Failure, Result};

/// Shortest time between samples, ns: more samples would be a load that changes what they measure.
const MIN_SAMPLE: Time = Time(10_000_000);

/// What the controller of window and pacing (SOBAS) did during a run.
pub struct SobasTrace {
    /// Name of the law that it followed.
    pub law: &'static str,
    /// Its decisions, each with its time on the run's clock, ns.
    pub decisions: Vec<(u64, Value)>,
}

/// Refuses a time between samples, given by this flag, that is too short.
///
/// # Errors
/// The time is below [`MIN_SAMPLE`].
pub fn check_sample(sample: Time, flag: &str) -> Result {
    if sample < MIN_SAMPLE {
        return Err(Failure::usage(format!("{flag} {sample} is too short; give at least {MIN_SAMPLE}")));
    }
    Ok(())
}

/// Says whether `to` names one file, not a folder of records.
pub fn is_file(to: &FilePath) -> bool {
    to.extension().is_some_and(|e| e == "ndjson")
}

/// Ends of names that people give to files, not to folders.
const FILE_EXTENSIONS: [&str; 5] = ["csv", "gz", "json", "jsonl", "txt"];

/// Checks that a record can be written to `to`. Called before the run, so that a typo does not lose hours of work.
///
/// # Errors
/// The folder cannot be made or written to, or its name is that of a file.
pub fn check_target(to: &FilePath) -> Result {
    if !to.is_dir() && to.extension().is_some_and(|e| FILE_EXTENSIONS.iter().any(|known| e == *known)) {
        let why = format!("{}: a record's name ends in .ndjson; give FILE.ndjson, or a folder", to.display());
        return Err(Failure::usage(why));
    }
    let folder = if is_file(to) { to.parent().filter(|p| !p.as_os_str().is_empty()) } else { Some(to) };
    Ok(record::check_folder(folder.unwrap_or(FilePath::new(".")))?)
}

/// The file of the record named `id`: `to` itself if it is a file, else `ID.ndjson` in the folder `to`.
pub fn file(to: &FilePath, id: &str) -> PathBuf {
    if is_file(to) { to.to_owned() } else { to.join(format!("{id}.ndjson")) }
}

/// Writes a record to `to`, a file or a folder, and returns its file. The record's id becomes the name of its file. In a
/// folder, a run on a real path never takes the place of another: its name gets a number then. In the testbed, a record of
/// the same name is of the same run. `beside` is what the name has after the run's own: what was measured besides.
///
/// # Errors
/// The file cannot be written, or the text is no record.
pub fn keep(to: &FilePath, run: &Run, beside: &str, text: &str) -> Result<PathBuf> {
    let id = run.id() + beside;
    if matches!(run.path, Path::Lab(_)) {
        return keep_same(to, &id, text);
    }
    keep_new(to, &id, text)
}

/// Writes a record named `id` to `to`, a file or a folder, and returns its file. It takes the place of one of the same name,
/// which in the testbed is of the same run.
///
/// # Errors
/// As for [`keep`].
pub fn keep_same(to: &FilePath, id: &str, text: &str) -> Result<PathBuf> {
    let file = file(to, id);
    record::write_atomically(&file, named(text, &stem(&file))?.as_bytes())?;
    Ok(file)
}

/// Writes a record named `id` to `to`, a file or a folder, and returns its file. In a folder it never takes the place of
/// another: its name gets a number then.
///
/// # Errors
/// As for [`keep`].
pub fn keep_new(to: &FilePath, id: &str, text: &str) -> Result<PathBuf> {
    if is_file(to) {
        record::write_atomically(to, named(text, &stem(to))?.as_bytes())?;
        return Ok(to.to_owned());
    }
    let names = std::iter::once(id.to_owned()).chain((2u64..).map(|number| format!("{id}-{number}")));
    for file in names.map(|name| file(to, &name)) {
        if record::write_new(&file, named(text, &stem(&file))?.as_bytes())? {
            return Ok(file);
        }
    }
    Err(Failure::new(ExitClass::Record, format!("{}: it has no name left for a record", to.display())))
}

/// The name of a record's file, which is the record's id.
fn stem(file: &FilePath) -> String {
    file.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// The record with another id.
pub fn named(text: &str, id: &str) -> Result<String> {
    let damaged =
        |why: &dyn std::fmt::Display| Failure::new(ExitClass::Record, format!("cannot name the record: {why}"));
    let (first, rest) = text.split_once('\n').ok_or_else(|| damaged(&"it has no lines"))?;
    let mut header: Value = serde_json::from_str(first).map_err(|e| damaged(&e))?;
    header["id"] = json!(id);
    Ok(format!("{header}\n{rest}"))
}

/// The name of a record. A run's own name does not tell a controller from none, nor a copy without encryption from one
/// with it; here they get a suffix.
pub fn id(run: &Run, sobas: Option<&SobasTrace>, copy: Option<&Copied>) -> String {
    let law = sobas.map_or_else(String::new, |s| format!("-sobas-{}", s.law));
    let plain = copy.filter(|copy| !copy.encrypted).map_or("", |_| "-plain");
    run.id() + &law + plain
}

/// Writes a record as NDJSON: header, samples and decisions in the order of their times, result.
///
/// # Errors
/// `to` cannot be written.
pub fn render(
    run: &Run,
    measured: &Measured,
    sobas: Option<&SobasTrace>,
    copy: Option<Copied>,
    to: &mut impl Write,
) -> Result {
    let header = header(run, measured, sobas, copy);
    let samples = measured.samples.iter().map(|sample| (sample.t_ns, sample.fields()));
    let decisions = sobas.map_or(&[][..], |sobas| &sobas.decisions);
    record::lines::write(to, &header, samples, decisions, &measured.outcome)
        .map_err(|e| Failure::new(ExitClass::Record, format!("cannot write the record: {e}")))
}

/// Adds this host's name and boot to the facts of a record that depend on the host.
pub fn add_host(real: &mut BTreeMap<String, Value>) {
    if let Ok(boot) = std::fs::read_to_string("/proc/sys/kernel/random/boot_id") {
        real.insert("boot".into(), json!(boot.trim()));
    }
    if let Ok(host) = nix::unistd::gethostname() {
        real.insert("host".into(), json!(host.to_string_lossy()));
    }
}

fn header(run: &Run, measured: &Measured, sobas: Option<&SobasTrace>, copy: Option<Copied>) -> Header {
    let mut real: BTreeMap<String, Value> = BTreeMap::new();
    let ended = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    real.insert("ended_unix_s".into(), json!(ended.as_secs()));
    real.insert("zero_ns".into(), json!(measured.zero_ns));
    add_host(&mut real);
    Header {
        kind: "run".into(),
        version: record::VERSION,
        id: id(run, sobas, copy.as_ref()),
        program: env!("CARGO_PKG_VERSION").into(),
        run: run.clone(),
        rtt_s: measured.rtt_s,
        sender: measured.sender.clone(),
        receiver: measured.receiver.clone(),
        sobas: sobas.map(|s| s.law.to_owned()),
        copy,
        real,
    }
}
