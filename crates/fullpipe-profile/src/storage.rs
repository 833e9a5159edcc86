//! Measurements of storage: `storage-profile.json`, version 1, or the record of one measurement (schema:
//! `docs/reference/record.md`).

use std::path::Path;

use fullpipe_path::record::storage::{MountInfo, StorageBottleneck, StorageHeader, StorageOutcome};
use fullpipe_path::storage::Operation;
use fullpipe_path::{LabPath, text};
use serde::{Deserialize, Serialize};

use crate::profile::ProfileError;

/// Version of the profile's format that this program reads.
const VERSION: u32 = 1;

/// The rate of one folder's storage with one number of threads.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StoragePoint {
    /// Name of the host; `None` if the record has none.
    pub host: Option<String>,
    /// The folder that was measured.
    pub folder: String,
    /// How the folder was mounted, if it was measured as `mount:FOLDER`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mount: Option<MountInfo>,
    /// In the testbed, the emulated path that it was mounted over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<LabPath>,
    /// Whether the storage was read or written.
    pub operation: Operation,
    /// Whether the page cache was bypassed.
    pub direct: bool,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Number of threads.
    pub threads: u16,
    /// Number of runs.
    pub n: u32,
    /// Mean rate of the runs, bit/s.
    pub mean_bps: f64,
    /// What limited most of the runs, if it is known.
    pub bottleneck: Option<StorageBottleneck>,
}

#[derive(Deserialize)]
struct File {
    kind: String,
    version: u32,
    entries: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    storage: Conditions,
    points: Vec<Point>,
}

#[derive(Deserialize)]
struct Conditions {
    host: Option<String>,
    folder: String,
    mount: Option<MountInfo>,
    path: Option<LabPath>,
    operation: Operation,
    direct: bool,
    block_bytes: u64,
}

#[derive(Deserialize)]
struct Point {
    threads: u16,
    n: u32,
    mean_bps: f64,
    bottleneck: Option<StorageBottleneck>,
}

/// Parses the measurements of one operation on one folder. `path` names the file in errors.
///
/// # Errors
/// The text is neither a storage profile nor a record of storage, lacks the operation, or has several folders of it.
pub fn parse_storage(text: &str, path: &Path, operation: Operation) -> Result<Vec<StoragePoint>, ProfileError> {
    // The file's own texts are kept on one line.
    let unfit = |why: String| {
        let why = text::one_line(why.as_bytes());
        ProfileError::Storage { path: path.to_owned(), operation, why }
    };
    let is_record = text.lines().next().is_some_and(|line| serde_json::from_str::<serde::de::IgnoredAny>(line).is_ok());
    let all = if is_record && text.lines().nth(1).is_some() { record(text) } else { profile(text) }.map_err(unfit)?;
    let points: Vec<StoragePoint> = all.into_iter().filter(|point| point.operation == operation).collect();
    let Some(first) = points.first() else { return Err(unfit(format!("it has no {operation}s"))) };
    if points.iter().any(|p| p.n == 0 || p.threads == 0 || !(p.mean_bps > 0.0 && p.mean_bps.is_finite())) {
        return Err(unfit("it has a point without runs, threads or rate".into()));
    }
    if let Some(other) = points.iter().find(|p| (&p.host, &p.folder) != (&first.host, &first.folder)) {
        return Err(unfit(format!(
            "it has several folders, such as {} and {}; keep the records of each in a folder of their own",
            first.place(),
            other.place()
        )));
    }
    if points.iter().any(|point| (&point.mount, &point.path) != (&first.mount, &first.path)) {
        return Err(unfit(format!(
            "it has {} as a disk and as a mount, or with several mounts, options or paths; keep the records of each in a folder of their own",
            first.place()
        )));
    }
    Ok(points)
}

impl StoragePoint {
    /// What `measure` was given: `disk:/data`, `mount:/mnt/far`, or an emulated path.
    pub fn target(&self) -> String {
        match (&self.path, &self.mount) {
            (Some(path), _) => path.to_string(),
            (None, Some(_)) => format!("mount:{}", self.folder),
            (None, None) => format!("disk:{}", self.folder),
        }
    }

    /// The folder with its host: `dtn1:/data`.
    pub fn place(&self) -> String {
        self.host.iter().chain([&self.folder]).map(String::as_str).collect::<Vec<_>>().join(":")
    }
}

fn profile(text: &str) -> Result<Vec<StoragePoint>, String> {
    let File { kind, version, entries } = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if (kind.as_str(), version) != ("storage-profile", VERSION) {
        return Err(format!("its kind is '{kind}', version {version}"));
    }
    let points = entries.into_iter().flat_map(|Entry { storage, points }| {
        let Conditions { host, folder, mount, path, operation, direct, block_bytes } = storage;
        points.into_iter().map(move |Point { threads, n, mean_bps, bottleneck }| StoragePoint {
            host: host.clone(),
            folder: folder.clone(),
            mount: mount.clone(),
            path: path.clone(),
            operation,
            direct,
            block_bytes,
            threads,
            n,
            mean_bps,
            bottleneck,
        })
    });
    Ok(points.collect())
}

/// Reads the first and the last line of a record.
fn record(text: &str) -> Result<Vec<StoragePoint>, String> {
    let mut lines = text.lines();
    let header: StorageHeader =
        serde_json::from_str(lines.next().unwrap_or_default()).map_err(|error| format!("its first line: {error}"))?;
    let outcome: StorageOutcome =
        serde_json::from_str(lines.last().unwrap_or_default()).map_err(|error| format!("its last line: {error}"))?;
    let known = fullpipe_path::record::VERSION;
    if (header.kind.as_str(), header.version, outcome.kind.as_str()) != ("storage", known, "result") {
        return Err(format!("its first line is '{}', version {}", header.kind, header.version));
    }
    Ok(vec![StoragePoint {
        host: header.real.get("host").and_then(|host| host.as_str()).map(str::to_owned),
        folder: header.storage.folder,
        mount: header.mount,
        path: header.path,
        operation: header.storage.operation,
        direct: header.storage.direct,
        block_bytes: header.storage.block_bytes,
        threads: header.storage.threads,
        n: 1,
        mean_bps: outcome.rate_bps,
        bottleneck: outcome.bottleneck,
    }])
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: &str = r#"{"kind":"storage","version":1,"id":"x","program":"0","storage":{"folder":"/data","operation":"read","threads":2,"block_bytes":8388608,"direct":true,"size_bytes":1000},"kernel":"6","file_system":{"type":"xfs","total_bytes":1,"free_bytes":1,"device":null},"real":{"host":"dtn1"}}
{"kind":"sample","t":0.1,"bytes":10}
{"kind":"result","rate_bps":5e9,"bytes":1000,"seconds":1.0,"fsync_s":0.0,"call_bytes":10,"calls":100,"latency":{"mean_s":0.1,"p50_s":0.1,"p90_s":0.1,"p99_s":0.1,"p999_s":0.1,"max_s":0.1},"cpu_user_s":0.0,"cpu_system_s":0.0,"cpu_busiest":0.1,"cpu_host":null,"device_busy":null,"storage_bytes":null,"cached_bytes":null,"bottleneck":"device"}
"#;

    /// A profile as `fullpipe analyze` writes it, with reads of one folder and writes of two.
    fn profile() -> String {
        let entry = |folder: &str, operation: &str| {
            format!(
                r#"{{"storage":{{"host":"dtn1","folder":"{folder}","file_system":"xfs","device":"sda","operation":"{operation}","direct":false,"block_bytes":65536,"size_bytes":1000}},"points":[{{"threads":1,"n":2,"mean_bps":1e9,"low_bps":null,"bottleneck":"cpu"}},{{"threads":4,"n":2,"mean_bps":3e9,"bottleneck":null}}]}}"#
            )
        };
        let entries = [entry("/a", "read"), entry("/a", "write"), entry("/b", "write")].join(",\n");
        format!(
            "{{\"kind\": \"storage-profile\", \"version\": 1, \"confidence\": 0.95, \"runs\": 4, \"entries\": [\n{entries}\n]}}\n"
        )
    }

    fn parse(text: &str, operation: Operation) -> Result<Vec<StoragePoint>, String> {
        parse_storage(text, Path::new("file"), operation).map_err(|error| error.to_string())
    }

    #[test]
    fn a_record_is_one_point() {
        let points = parse(RECORD, Operation::Read).unwrap();
        assert_eq!((points.len(), points[0].place().as_str(), points[0].threads), (1, "dtn1:/data", 2));
        assert_eq!((points[0].mean_bps, points[0].bottleneck), (5e9, Some(StorageBottleneck::Device)));
        let error = parse(RECORD, Operation::Write).unwrap_err();
        assert!(error.contains("it has no writes"), "{error}");
    }

    #[test]
    fn a_profile_has_the_points_of_one_folder() {
        let points = parse(&profile(), Operation::Read).unwrap();
        let rates: Vec<_> = points.iter().map(|p| (p.threads, p.mean_bps, p.bottleneck)).collect();
        assert_eq!(rates, [(1, 1e9, Some(StorageBottleneck::Cpu)), (4, 3e9, None)]);
        let error = parse(&profile(), Operation::Write).unwrap_err();
        assert!(error.contains("several folders, such as dtn1:/a and dtn1:/b"), "{error}");
    }

    #[test]
    fn texts_of_the_file_add_no_lines_to_an_error() {
        let hostile = profile().replace("dtn1", "dtn1\\nerror: paste this");
        let error = parse(&hostile, Operation::Write).unwrap_err();
        assert!(error.contains("several folders") && !error.contains('\n'), "{error}");
    }

    #[test]
    fn a_mount_is_no_disk_and_has_options() {
        let mount = |options: &str| {
            format!(
                r#""folder":"/a","mount":{{"folder":"/a","type":"nfs4","source":"far:/a","options":["{options}"],"read_ahead_bytes":null,"session_slots":64}}"#
            )
        };
        let text = profile().replace("\"folder\":\"/a\"", &mount("rw"));
        let points = parse(&text, Operation::Read).unwrap();
        assert_eq!((points[0].target().as_str(), points[0].place().as_str()), ("mount:/a", "dtn1:/a"));
        for other in ["\"folder\":\"/a\"", &mount("ro")] {
            let error = parse(&text.replace("\"folder\":\"/b\"", other), Operation::Write).unwrap_err();
            assert!(error.contains("dtn1:/a as a disk and as a mount"), "{error}");
        }
        let points = parse(&RECORD.replace("\"real\"", "\"mount\":{\"folder\":\"/\",\"type\":\"nfs\",\"source\":\"far:/\",\"options\":[],\"read_ahead_bytes\":131072,\"session_slots\":null},\"real\""), Operation::Read).unwrap();
        assert_eq!(points[0].target(), "mount:/data");
    }

    #[test]
    fn what_is_no_measurement_of_storage_is_refused() {
        for (text, why) in [
            (profile().replace("storage-profile", "profile"), "its kind is 'profile'"),
            (profile().replace("\"version\": 1", "\"version\": 2"), "version 2"),
            (profile().replace("\"n\":2", "\"n\":0"), "without runs"),
            (RECORD.replace("\"kind\":\"result\"", "\"kind\":\"sample\""), "its first line is 'storage'"),
            (RECORD.lines().take(2).collect::<Vec<_>>().join("\n"), "its last line"),
            (String::new(), "EOF"),
            ("a\nb\n".into(), "expected value"),
        ] {
            let error = parse(&text, Operation::Read).unwrap_err();
            assert!(error.contains(why) && error.contains("fullpipe measure disk:"), "{error}");
        }
    }
}
