//! The folder whose storage is measured, and the files in it that measurements use.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use fullpipe_path::record::storage::FileSystemInfo;
use fullpipe_path::{Classified, DirectIo, ExitClass};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use nix::unistd::UnlinkatFlags;
use rand::RngExt;

use super::host_load::{self, Device};
use crate::error::why;
use crate::fs::large_file::TargetFile;
use crate::fs::{at, direct_io, mounted, sparse};

/// Bytes that a measurement leaves free in a file system, and the same as a fraction of the file system: the smaller counts.
/// Many file systems get slow, and programs fail, when nothing is left.
const RESERVE_BYTES: u64 = 2_000_000_000;
const RESERVE_FRACTION: f64 = 0.05;

/// Why storage cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// There is no such folder.
    #[error("{}: {why}; give a folder that exists, as in disk:/scratch", .folder.display())]
    NoFolder {
        /// What was given.
        folder: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// This user cannot write to the folder.
    #[error("cannot write to {}: {why}; choose a folder that you may write to", .folder.display())]
    Denied {
        /// The folder.
        folder: PathBuf,
        /// The reason.
        why: String,
    },
    /// The file system would become too full.
    #[error(
        "{}: the measurement writes a file of {}, {} are free, and {} of them must stay free; give a smaller --size, or \
         choose another folder",
        .folder.display(), gb(*.size), gb(*.free), gb(*.reserve)
    )]
    Full {
        /// The folder.
        folder: PathBuf,
        /// Bytes of the file.
        size: u64,
        /// Bytes that are free.
        free: u64,
        /// Bytes that must stay free.
        reserve: u64,
    },
    /// The file system does not support direct I/O.
    #[error("{}: its file system ({kind}) has no direct I/O; give --direct off", .folder.display())]
    NoDirect {
        /// The folder.
        folder: PathBuf,
        /// Type of the file system.
        kind: String,
    },
    /// Reading, writing or another call failed.
    #[error("cannot {what} in {}: {}", .folder.display(), why(.source))]
    Io {
        /// What was tried.
        what: &'static str,
        /// The folder.
        folder: PathBuf,
        /// The error.
        source: io::Error,
    },
}

impl Classified for StorageError {
    fn class(&self) -> ExitClass {
        match self {
            StorageError::NoFolder { .. } => ExitClass::Usage,
            StorageError::Denied { .. } | StorageError::NoDirect { .. } => ExitClass::Missing,
            StorageError::Full { .. } => ExitClass::Record,
            StorageError::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull => ExitClass::Record,
            StorageError::Io { .. } => ExitClass::Failed,
        }
    }
}

fn gb(bytes: u64) -> String {
    format!("{:.3} GB", bytes as f64 / 1e9)
}

/// Bytes that are free in a file system in memory, of which `memory` bytes are available. One without a limit, as ramfs, has a
/// size of 0.
fn free_in_memory(total: u64, free: u64, memory: u64) -> u64 {
    if total == 0 { memory } else { free.min(memory) }
}

/// Bytes that must stay free. A file system without a limit has what is free.
fn reserve(total: u64, free: u64) -> u64 {
    let size = if total == 0 { free } else { total };
    RESERVE_BYTES.min((size as f64 * RESERVE_FRACTION) as u64)
}

/// A folder whose storage is measured.
pub struct StorageFolder {
    path: PathBuf,
    fd: OwnedFd,
    device: Option<Device>,
    /// Type of the file system.
    kind: String,
    in_memory: bool,
}

impl StorageFolder {
    /// Opens a folder, and checks that this user can write to it.
    ///
    /// # Errors
    /// There is no such folder, or this user cannot write to it.
    pub fn open(path: &Path) -> Result<StorageFolder, StorageError> {
        let failed = |e: io::Error| match e.kind() {
            io::ErrorKind::PermissionDenied => StorageError::Denied { folder: path.to_owned(), why: why(&e) },
            _ => StorageError::NoFolder { folder: path.to_owned(), why: why(&e) },
        };
        let path = path.canonicalize().map_err(failed)?;
        let how = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let fd = nix::fcntl::open(&path, how, Mode::empty()).map_err(|e| failed(e.into()))?;
        let opened = File::from(fd);
        let device = opened.metadata().ok().and_then(|meta| Device::of(&meta));
        let in_memory = sparse::in_memory(&opened);
        let kind = mounted::file_system_type(&opened).unwrap_or_else(|| "unknown".into());
        let folder = StorageFolder { path, fd: opened.into(), device, kind, in_memory };
        folder.nameless()?;
        Ok(folder)
    }

    /// The folder as an absolute path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether its files are in memory, where nothing has to be written or dropped.
    pub fn is_in_memory(&self) -> bool {
        self.in_memory
    }

    pub(super) fn device(&self) -> Option<&Device> {
        self.device.as_ref()
    }

    /// Describes the file system as it is now.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn file_system(&self) -> Result<FileSystemInfo, StorageError> {
        let stat = nix::sys::statvfs::fstatvfs(&self.fd).map_err(|e| self.error("see what is free", e.into()))?;
        let bytes = |blocks: u64| blocks.saturating_mul(stat.fragment_size());
        let (total_bytes, mut free_bytes) = (bytes(stat.blocks()), bytes(stat.blocks_available()));
        if let (true, Some(memory)) = (self.in_memory, host_load::free_memory()) {
            free_bytes = free_in_memory(total_bytes, free_bytes, memory);
        }
        let device = self.device.as_ref().map(|device| device.name().to_owned());
        Ok(FileSystemInfo { kind: self.kind.clone(), total_bytes, free_bytes, device })
    }

    /// Checks that a file of `size` bytes leaves enough room for others. A file system that does not tell its size, as some of
    /// FUSE, passes.
    ///
    /// # Errors
    /// It does not.
    pub fn check_room(&self, size: u64) -> Result<(), StorageError> {
        let FileSystemInfo { total_bytes, free_bytes: free, .. } = self.file_system()?;
        if total_bytes == 0 && !self.in_memory {
            return Ok(());
        }
        let reserve = reserve(total_bytes, free);
        if size.saturating_add(reserve) > free {
            return Err(StorageError::Full { folder: self.path.clone(), size, free, reserve });
        }
        Ok(())
    }

    /// Whether a copy would write a file of `size` bytes past the page cache here.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn is_direct_by_default(&self, size: u64) -> Result<bool, StorageError> {
        self.is_direct(DirectIo::Auto, size)
    }

    /// Whether a file of `size` bytes is written and read past the page cache, which it tries with one block.
    fn is_direct(&self, how: DirectIo, size: u64) -> Result<bool, StorageError> {
        let target = TargetFile::new(self.nameless()?, how, size);
        let works = || direct_io::works(target.file()).map_err(|e| self.error("write and read past the page cache", e));
        Ok(target.is_direct() && works()?)
    }

    /// Creates an empty file that has no name, which nobody else can open (`open(2)`, O_TMPFILE). Where the file system has
    /// no such files, a new one loses its name at once.
    ///
    /// # Errors
    /// Those of the file system.
    pub(super) fn nameless(&self) -> Result<File, StorageError> {
        let how = OFlag::O_RDWR | OFlag::O_EXCL | OFlag::O_CLOEXEC;
        let mode = Mode::S_IRUSR | Mode::S_IWUSR;
        let created = match nix::fcntl::openat(&self.fd, ".", how | OFlag::O_TMPFILE, mode) {
            Err(Errno::EOPNOTSUPP | Errno::EISDIR | Errno::ENOENT) => {
                let name = format!(".fullpipe-measure-{:016x}", rand::rng().random::<u64>());
                let name = at::part(name.as_bytes());
                nix::fcntl::openat(&self.fd, name, how | OFlag::O_CREAT | OFlag::O_NOFOLLOW, mode)
                    .and_then(|file| nix::unistd::unlinkat(&self.fd, name, UnlinkatFlags::NoRemoveDir).map(|()| file))
            }
            created => created,
        };
        match created {
            Ok(fd) => Ok(File::from(fd)),
            Err(e @ (Errno::ENOSPC | Errno::EDQUOT | Errno::EMFILE | Errno::ENFILE)) => {
                Err(self.error("create a file", e.into()))
            }
            Err(e) => Err(StorageError::Denied { folder: self.path.clone(), why: why(&e.into()) }),
        }
    }

    /// Checks that files here can be read and written past the page cache.
    ///
    /// # Errors
    /// They cannot.
    pub fn check_direct(&self) -> Result<(), StorageError> {
        if self.is_direct(DirectIo::On, 0)? { Ok(()) } else { Err(self.no_direct()) }
    }

    pub(super) fn no_direct(&self) -> StorageError {
        StorageError::NoDirect { folder: self.path.clone(), kind: self.kind.clone() }
    }

    pub(super) fn error(&self, what: &'static str, source: io::Error) -> StorageError {
        StorageError::Io { what, folder: self.path.clone(), source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_in_memory_without_a_limit_has_the_free_memory() {
        // Total and free bytes, available memory, and what follows.
        for (total, free, memory, is_free, stays) in [
            (0, 0, 40_000_000_000, 40_000_000_000, 2_000_000_000),
            (0, 0, 1_000_000_000, 1_000_000_000, 50_000_000),
            (8_000_000_000, 6_000_000_000, 5_000_000_000, 5_000_000_000, 400_000_000),
            (8_000_000_000, 0, 5_000_000_000, 0, 400_000_000),
        ] {
            let found = free_in_memory(total, free, memory);
            assert_eq!((found, reserve(total, found)), (is_free, stays), "{total} {free} {memory}");
        }
    }
}
