//! What is known of a measurement of storage when it is printed.

use std::path::PathBuf;

use fullpipe_path::LabPath;
use fullpipe_path::record::storage::{FileSystemInfo, MountInfo, StorageOutcome};
use fullpipe_path::storage::StorageRun;

/// The folder that is measured, and what is there.
pub struct Place {
    /// The folder.
    pub folder: String,
    /// Its file system, before the runs.
    pub file_system: FileSystemInfo,
    /// Whether its files are in memory.
    pub in_memory: bool,
    /// The mount of a folder that was given as one.
    pub mount: Option<MountInfo>,
    /// In the testbed, the path that it is mounted over, and the seed.
    pub path: Option<(LabPath, u64)>,
}

impl Place {
    /// The name of a run's record.
    pub fn id(&self, run: &StorageRun) -> String {
        match (&self.path, &self.mount) {
            (Some((path, seed)), _) => format!("mount-rtt{}-{}", path.rtt, run.id_with(path, *seed)),
            (None, Some(_)) => format!("mount-{}", run.id()),
            (None, None) => run.id(),
        }
    }
}

/// A run and its result.
pub struct Done {
    /// What was measured.
    pub run: StorageRun,
    /// The result.
    pub outcome: StorageOutcome,
    /// The file of its record.
    pub record: Option<PathBuf>,
}
