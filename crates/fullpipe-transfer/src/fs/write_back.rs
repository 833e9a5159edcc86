//! Errors of writing that come late: a file system over the network takes bytes into this host's cache, and learns only when it sends
//! them that the server's disk or the user's quota is full.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use nix::sys::statfs::{self, FsType};

/// How a file system tells that what it took cannot be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteBack {
    /// At once: room is set aside for what is in the cache.
    Never,
    /// When a descriptor is closed (`close(2)`), as FUSE, SMB and Lustre do.
    AtClose,
    /// When the file is synced. NFS sends all of it at close, too, so that this costs little; but an error that came before, as with
    /// the file's times, is not told again at close (fs/nfs/file.c, `nfs_file_flush`).
    AtSync,
}

/// Type of Ceph's file system, `f_type` of statfs(2) (include/linux/ceph/libceph.h).
const CEPH: FsType = FsType(0x00c3_6400);
/// Types of file systems that write to disks of this host, or to its memory (include/uapi/linux/magic.h; OpenZFS).
const LOCAL: [FsType; 8] = [
    statfs::EXT4_SUPER_MAGIC,
    statfs::XFS_SUPER_MAGIC,
    statfs::BTRFS_SUPER_MAGIC,
    statfs::TMPFS_MAGIC,
    statfs::OVERLAYFS_SUPER_MAGIC,
    // RAMFS, F2FS, ZFS.
    FsType(0x8584_58f6),
    FsType(0xf2f5_2010),
    FsType(0x2fc1_2fc1),
];

impl WriteBack {
    /// That of the file system that a folder is on.
    pub fn of(folder: impl AsFd) -> WriteBack {
        match statfs::fstatfs(folder).map(|fs| fs.filesystem_type()) {
            Ok(statfs::NFS_SUPER_MAGIC | CEPH) => WriteBack::AtSync,
            Ok(kind) if LOCAL.contains(&kind) => WriteBack::Never,
            _ => WriteBack::AtClose,
        }
    }

    /// Waits until what was written to a file has got where it can be refused.
    ///
    /// # Errors
    /// It was refused, as for lack of room.
    pub fn check(self, file: &File) -> io::Result<()> {
        match self {
            WriteBack::Never => Ok(()),
            WriteBack::AtSync => file.sync_data(),
            WriteBack::AtClose => Ok(nix::unistd::close(file.try_clone()?)?),
        }
    }
}
