//! Files and folders below a root, reached only through descriptors.
//!
//! A receiver never leaves its root: every name is resolved by `openat2` with `RESOLVE_BENEATH`, so that
//! neither `..` nor a symbolic link, made just now by somebody else perhaps, leads out of it.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt as _, MetadataExt};
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, FallocateFlags, OFlag, OpenHow, ResolveFlag};
use nix::sys::stat::{FileStat, Mode, SFlag};
use nix::sys::time::TimeSpec;
use nix::unistd::{Gid, Uid, UnlinkatFlags};
use xattr::FileExt;

use crate::fs::symlinks;
use crate::protocol::file::{Extent, FileItem, Meta, Name};

/// A folder below which everything happens.
#[derive(Debug)]
pub struct Root {
    fd: OwnedFd,
    within: Within,
}

/// How far a name below a [`Root`] may lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Within {
    /// Anywhere that its user may go, through symbolic links and `..`.
    Anywhere,
    /// Through symbolic links, but not out of the folder.
    Beneath,
    /// Through symbolic links whose owner could lead names astray in any case, but not out of the folder: links of this user,
    /// of root, and of whoever owns the folder that the link is in (as the kernel's `fs.protected_symlinks`, everywhere).
    BeneathOwnLinks,
    /// Through folders alone, not out of the folder. Whoever owns a tree may exchange a folder in it for a symbolic link
    /// at any instant; such a name is not found then (`ELOOP`).
    BeneathWithoutLinks,
}

impl Within {
    fn resolve(self) -> Option<ResolveFlag> {
        let beneath = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS;
        match self {
            Within::Anywhere => None,
            Within::Beneath => Some(beneath),
            // A path without links needs no more; for one with links see [`symlinks`].
            Within::BeneathOwnLinks | Within::BeneathWithoutLinks => Some(beneath | ResolveFlag::RESOLVE_NO_SYMLINKS),
        }
    }
}

fn flags(extra: OFlag) -> OFlag {
    // openat2 refuses flags that mean nothing together.
    let usual = if extra.contains(OFlag::O_PATH) { OFlag::empty() } else { OFlag::O_NOCTTY };
    extra | usual | OFlag::O_CLOEXEC
}

/// Times that a path is looked up while others rename what it leads through.
const UNSURE: u32 = 1000;

impl Root {
    /// Opens a folder by its path, following symbolic links.
    ///
    /// # Errors
    /// The file system's.
    pub fn open(path: &Path, within: Within) -> io::Result<Root> {
        let fd = nix::fcntl::open(path, flags(OFlag::O_PATH | OFlag::O_DIRECTORY), Mode::empty())?;
        Ok(Root { fd, within })
    }

    /// Makes a root of a folder below this one, with the same rule for names in it; where that is none, names lead no
    /// further than [`Within::Beneath`].
    ///
    /// # Errors
    /// The file system's.
    pub fn below(&self, path: &Path) -> io::Result<Root> {
        let fd = self.open_at(path, OFlag::O_PATH | OFlag::O_DIRECTORY, 0)?;
        let within = if self.within == Within::Anywhere { Within::Beneath } else { self.within };
        Ok(Root { fd, within })
    }

    /// The same folder with another rule for names below it.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn again(&self, within: Within) -> io::Result<Root> {
        Ok(Root { fd: self.fd.try_clone()?, within })
    }

    /// Makes a root of an open folder.
    pub fn from_fd(fd: OwnedFd, within: Within) -> Root {
        Root { fd, within }
    }

    /// Opens something below.
    ///
    /// # Errors
    /// The file system's; `EXDEV` where it leads out.
    pub fn open_at(&self, path: &Path, how_flags: OFlag, mode: u32) -> io::Result<OwnedFd> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let mode = Mode::from_bits_truncate(mode);
        if let Some(resolve) = self.within.resolve() {
            let how = OpenHow::new().flags(flags(how_flags)).mode(mode).resolve(resolve);
            // The kernel gives up where a rename elsewhere makes it unsure (openat2(2), EAGAIN).
            for _ in 1..UNSURE {
                match nix::fcntl::openat2(&self.fd, path, how) {
                    Err(Errno::EAGAIN) => {}
                    Err(Errno::ELOOP) if self.within == Within::BeneathOwnLinks => {
                        return symlinks::open(&self.fd, path, flags(how_flags), mode);
                    }
                    other => return Ok(other?),
                }
            }
            return Ok(nix::fcntl::openat2(&self.fd, path, how)?);
        }
        Ok(nix::fcntl::openat(&self.fd, path, flags(how_flags), mode)?)
    }

    /// Opens a file to read. A FIFO does not make it wait.
    ///
    /// # Errors
    /// The file system's.
    pub fn read(&self, path: &Path) -> io::Result<File> {
        let open = |how| self.open_at(path, OFlag::O_RDONLY | how, 0).map(File::from);
        match open(OFlag::O_NONBLOCK) {
            // Who holds a lease on it (Samba, say) is asked to let go, which may take a while (fcntl(2), F_SETLEASE).
            Err(e) if e.kind() == io::ErrorKind::WouldBlock && open(OFlag::O_PATH)?.metadata()?.is_file() => {
                open(OFlag::empty())
            }
            other => other,
        }
    }

    /// The folder of a name, made where it is missing: for its owner alone, until what comes says otherwise. A folder
    /// below this one in which it has to be made is opened up to its owner ([`open_up`]).
    ///
    /// # Errors
    /// The file system's; `ENOTDIR` where a file stands in its way.
    pub fn folder(&self, name: Option<&Name>) -> io::Result<OwnedFd> {
        self.make(name, Mode::S_IRWXU, true)
    }

    /// The same with another mode, of which the process's mask takes away; nothing is opened up.
    ///
    /// # Errors
    /// As with [`Root::folder`].
    pub fn folder_for(&self, name: Option<&Name>, mode: Mode) -> io::Result<OwnedFd> {
        self.make(name, mode, false)
    }

    /// Opens a folder, making what is missing of it. `ours`: those below this one may be opened up to their owner, as an
    /// earlier copy may have closed them.
    fn make(&self, name: Option<&Name>, mode: Mode, ours: bool) -> io::Result<OwnedFd> {
        let how = OFlag::O_RDONLY | OFlag::O_DIRECTORY;
        let mut missing: Vec<Name> = Vec::new();
        let mut at = name.cloned();
        // No recursion: names come from the network, and may be two thousand components deep.
        let mut folder = loop {
            match self.open_at(at.as_ref().map_or_else(|| Path::new("."), Name::path), how, 0) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => {
                    let Some(name) = at else { return Err(e) };
                    at = name.parent();
                    missing.push(name);
                }
                other => break other?,
            }
        };
        while let Some(name) = missing.pop() {
            let mkdir = || nix::sys::stat::mkdirat(&folder, part(name.last()), mode);
            let mut made = mkdir();
            if made == Err(Errno::EACCES) && ours && name.parent().is_some() {
                open_up(&folder)?;
                made = mkdir();
            }
            match made {
                // Another stream was faster.
                Ok(()) | Err(Errno::EEXIST) => folder = self.open_at(name.path(), how, 0)?,
                Err(e) => return Err(e.into()),
            }
        }
        Ok(folder)
    }
}

impl Root {
    /// Whether its file system, which counts them, has room for no more files.
    pub fn has_no_inodes(&self) -> bool {
        nix::sys::statvfs::fstatvfs(&self.fd).is_ok_and(|stat| stat.files() > 0 && stat.files_available() == 0)
    }
}

impl AsFd for Root {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// One component of a name as the file system takes it.
pub fn part(bytes: &[u8]) -> &Path {
    Path::new(std::ffi::OsStr::from_bytes(bytes))
}

/// Looks at something in a folder without following it.
///
/// # Errors
/// The file system's.
pub fn look(folder: impl AsFd, name: &Path) -> io::Result<FileStat> {
    Ok(nix::sys::stat::fstatat(folder, name, AtFlags::AT_SYMLINK_NOFOLLOW)?)
}

/// Opens something in a folder without following it.
///
/// # Errors
/// The file system's; `ELOOP` or `ENOTDIR` where a symbolic link has the name.
pub fn open_part(folder: impl AsFd, name: &Path, how: OFlag) -> io::Result<OwnedFd> {
    Ok(nix::fcntl::openat(folder, name, flags(how | OFlag::O_NOFOLLOW), Mode::empty())?)
}

/// What a look tells.
pub fn meta(stat: &FileStat) -> Meta {
    Meta {
        mode: stat.st_mode & 0o7777,
        uid: stat.st_uid,
        gid: stat.st_gid,
        mtime: (stat.st_mtime, stat.st_mtime_nsec as u32),
        xattrs: Vec::new(),
    }
}

/// Whether an open file has this size, and this time of its last change as far as its file system can tell times.
///
/// # Errors
/// The file system's.
pub fn unchanged(file: &File, size: u64, mtime: (i64, u32)) -> io::Result<bool> {
    let now = file.metadata()?;
    Ok(now.len() == size && is_time(self::mtime(&now), mtime))
}

/// Whether a time is what some file system makes of another: NTFS and SMB keep tenths of microseconds, some NFS servers
/// microseconds, exFAT hundredths of seconds, ext4 with small inodes seconds, FAT even ones.
fn is_time(kept: (i64, u32), mtime: (i64, u32)) -> bool {
    let (seconds, ns) = mtime;
    let cut = |grain: u32| (seconds, ns - ns % grain);
    [1, 100, 1_000, 10_000_000, 1_000_000_000].into_iter().any(|grain| kept == cut(grain)) || kept == (seconds & !1, 0)
}

/// Whether a source is still what it was when it was found: the same, and by the time of its inode's last change too,
/// which nobody can set back.
///
/// # Errors
/// The file system's.
pub fn at_rest(file: &File, item: &FileItem) -> io::Result<bool> {
    let now = file.metadata()?;
    let changed = (now.ctime(), now.ctime_nsec() as u32);
    Ok((now.len(), mtime(&now), changed) == (item.size, item.meta.mtime, item.changed))
}

/// When a file's content was last changed: seconds and nanoseconds since 1970.
pub fn mtime(of: &std::fs::Metadata) -> (i64, u32) {
    (of.mtime(), of.mtime_nsec() as u32)
}

/// Most bytes of a file's extended attributes.
const XATTRS: usize = 1 << 20;

/// Whether an extended attribute is the file's; the others describe its system, or give rights.
fn is_its_own(name: &[u8]) -> bool {
    name.starts_with(b"user.")
}

/// Extended attributes of a file; none where the file system has none.
///
/// # Errors
/// They are too large to be sent.
pub fn xattrs(file: &File) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let Ok(names) = file.list_xattr() else { return Ok(Vec::new()) };
    let mut sum = 0;
    let mut list = Vec::new();
    for name in names.filter(|name| is_its_own(name.as_bytes())) {
        let Ok(Some(value)) = file.get_xattr(&name) else { continue };
        sum += name.len() + value.len();
        if sum > XATTRS {
            return Err(io::Error::other("its extended attributes take more than 1 MiB"));
        }
        list.push((name.as_bytes().to_vec(), value));
    }
    Ok(list)
}

/// Gives an open file or folder its extended attributes.
///
/// # Errors
/// The file system's.
pub fn set_xattrs(file: &File, meta: &Meta) -> io::Result<()> {
    let mut own = meta.xattrs.iter().filter(|(name, _)| is_its_own(name));
    own.try_for_each(|(name, value)| file.set_xattr(std::ffi::OsStr::from_bytes(name), value))
}

/// Who this process is, which does not change.
struct Me {
    uid: u32,
    gid: u32,
}

fn me() -> &'static Me {
    static ME: OnceLock<Me> = OnceLock::new();
    ME.get_or_init(|| Me { uid: nix::unistd::geteuid().as_raw(), gid: nix::unistd::getegid().as_raw() })
}

/// What a new file has from its making: nobody but its owner may read it before it is whole, unless
/// everybody may then. Extended attributes are only its to take as long as it may be written to.
pub fn first_mode(meta: &Meta) -> u32 {
    let mode = if meta.uid == me().uid { meta.mode & 0o777 } else { meta.mode & 0o700 };
    if meta.xattrs.is_empty() { mode } else { mode | 0o600 }
}

/// Where the setuid, setgid and sticky bits of a copied file or folder come from (`chmod(2)`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Special {
    /// From the source: what `--preserve` asks for.
    Source,
    /// It has none: a file without `--preserve`, as with scp and rsync.
    None,
    /// It keeps those that it has: a folder without `--preserve`, as with rsync. A folder inherits the setgid bit of the
    /// folder that it is made in, so that a group's files stay the group's.
    Own,
}

impl Special {
    /// For a file.
    pub fn of_file(preserve: bool) -> Special {
        if preserve { Special::Source } else { Special::None }
    }

    /// The mode that something gets that has the mode `now`: permissions from its source, special bits as this says.
    pub fn mode(self, meta: &Meta, now: u32) -> u32 {
        let special = match self {
            Special::Source => meta.mode,
            Special::None => 0,
            Special::Own => now,
        };
        meta.mode & 0o777 | special & 0o7000
    }
}

/// Gives an open file what it had at its source: owner where this user may, permissions, extended
/// attributes, times. `fresh`: made by this process, in a folder that gives its files no group; `now`: the permissions
/// that it has, where they are known.
///
/// # Errors
/// The file system's; an owner that may not be set is none.
pub fn dress(file: &File, meta: &Meta, special: Special, fresh: bool, now: Option<u32>) -> io::Result<()> {
    let mine = fresh && (meta.uid, meta.gid) == (me().uid, me().gid);
    let mine = mine || owner(file, meta);
    set_xattrs(file, meta)?;
    // An access list among the attributes brings its own.
    let now = match now.filter(|_| meta.xattrs.is_empty()) {
        Some(now) => now,
        None => permissions(file)?,
    };
    let mut mode = special.mode(meta, now);
    if special == Special::Source && !mine {
        // Another owner's rights are not ours to give.
        mode &= 0o1777;
    }
    if now != mode {
        nix::sys::stat::fchmod(file, Mode::from_bits_truncate(mode))?;
    }
    let (last, changed) = (TimeSpec::UTIME_OMIT, TimeSpec::new(meta.mtime.0, i64::from(meta.mtime.1)));
    nix::sys::stat::futimens(file, &last, &changed)?;
    Ok(())
}

/// The permissions of a file.
///
/// # Errors
/// The file system's.
pub fn permissions(file: &File) -> io::Result<u32> {
    Ok(nix::sys::stat::fstat(file)?.st_mode & 0o7777)
}

/// Whether the file now belongs to its owner.
fn owner(file: &File, meta: &Meta) -> bool {
    if me().uid != 0 {
        return me().uid == meta.uid;
    }
    nix::unistd::fchown(file, Some(Uid::from_raw(meta.uid)), Some(Gid::from_raw(meta.gid))).is_ok()
}

/// Gives a symbolic link that this process has just made its owner and time; nothing else of one can be set. It is held open
/// meanwhile: another file that takes its name gets neither.
///
/// # Errors
/// The file system's; `PermissionDenied` where the name is no link any more.
pub fn dress_link(folder: impl AsFd, name: &Path, meta: &Meta) -> io::Result<()> {
    let link = open_part(folder, name, OFlag::O_PATH)?;
    let stat = nix::sys::stat::fstat(&link)?;
    if SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT != SFlag::S_IFLNK {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "something else took its name meanwhile"));
    }
    if me().uid == 0 {
        let (uid, gid) = (Uid::from_raw(meta.uid), Gid::from_raw(meta.gid));
        // In a user namespace root may still not give files away.
        let _ = nix::unistd::fchownat(&link, "", Some(uid), Some(gid), AtFlags::AT_EMPTY_PATH);
    }
    let times = [TimeSpec::UTIME_OMIT, TimeSpec::new(meta.mtime.0, i64::from(meta.mtime.1))].map(|time| *time.as_ref());
    // SAFETY: the descriptor is open, the path a string that ends in zero, the times an array of two (utimensat(2)).
    let set = unsafe { libc::utimensat(link.as_raw_fd(), c"".as_ptr(), times.as_ptr(), libc::AT_EMPTY_PATH) };
    match Errno::result(set) {
        // Kernels before 5.8 set the times of a name only; a link's time is worth nothing to anybody else.
        Ok(_) | Err(Errno::EINVAL) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

/// Gives a folder its owner, permissions and times; the special bits of its source only with `preserve`. With `sync` they are
/// written to disk, and so are the names in it.
///
/// # Errors
/// The file system's.
pub fn dress_folder(folder: OwnedFd, meta: &Meta, preserve: bool, sync: bool) -> io::Result<()> {
    let folder = File::from(folder);
    dress(&folder, meta, if preserve { Special::Source } else { Special::Own }, false, None)?;
    if sync { sync_folder(&folder) } else { Ok(()) }
}

/// Writes the names in an open folder to disk, with its permissions and times. Some file systems cannot (`fsync(2)`,
/// EINVAL); they write them when they like.
///
/// # Errors
/// The file system's.
pub fn sync_folder(folder: impl AsFd) -> io::Result<()> {
    match nix::unistd::fsync(folder) {
        Err(Errno::EINVAL | Errno::ENOSYS | Errno::EOPNOTSUPP) => Ok(()),
        other => Ok(other?),
    }
}

/// Lets the owner of a folder read, write and enter it, if that is this user and not root, who may in any case.
///
/// # Errors
/// The file system's.
pub fn open_up(folder: &OwnedFd) -> io::Result<()> {
    let stat = nix::sys::stat::fstat(folder)?;
    let is_open = stat.st_mode & libc::S_IRWXU == libc::S_IRWXU;
    if me().uid == 0 || stat.st_uid != me().uid || is_open {
        return Ok(());
    }
    Ok(nix::sys::stat::fchmod(folder, Mode::from_bits_truncate(stat.st_mode & 0o7777) | Mode::S_IRWXU)?)
}

/// Makes a file that has no name yet, if the file system can (`open(2)`, O_TMPFILE).
pub fn nameless(folder: impl AsFd, mode: u32) -> Option<File> {
    let how = flags(OFlag::O_WRONLY | OFlag::O_TMPFILE);
    nix::fcntl::openat(folder, ".", how, Mode::from_bits_truncate(mode)).ok().map(File::from)
}

/// Whether a descriptor may be linked by itself, as far as is known.
static ITSELF: AtomicBool = AtomicBool::new(true);

/// Gives a nameless file a name.
///
/// # Errors
/// The file system's; `EEXIST` where the name is taken.
pub fn link(file: &File, folder: impl AsFd, name: &Path) -> io::Result<()> {
    // Root may name a descriptor itself, and from Linux 6.10 on whoever has opened it (linkat(2), AT_EMPTY_PATH): of
    // all that a small file takes at both ends that is 6% less than by way of /proc, which serves where it may not.
    if ITSELF.load(Ordering::Relaxed) {
        match nix::unistd::linkat(file, "", &folder, name, AtFlags::AT_EMPTY_PATH) {
            Err(Errno::ENOENT) => ITSELF.store(false, Ordering::Relaxed),
            other => return Ok(other?),
        }
    }
    let itself = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(nix::unistd::linkat(nix::fcntl::AT_FDCWD, itself.as_str(), &folder, name, AtFlags::AT_SYMLINK_FOLLOW)?)
}

/// Looks whether a file may take a name. A device, FIFO or socket that has it stays: what it stands for is no file's
/// content. So does a folder.
///
/// # Errors
/// Such a thing is there, or the name is longer than the file system has them.
pub fn may_take(folder: impl AsFd, name: &Path) -> io::Result<()> {
    let stat = match look(folder, name) {
        Ok(stat) => stat,
        // Nor will it be given one of this length.
        Err(e) if e.kind() == io::ErrorKind::InvalidFilename => return Err(e),
        Err(_) => return Ok(()),
    };
    match SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits()) {
        SFlag::S_IFREG | SFlag::S_IFLNK => Ok(()),
        SFlag::S_IFDIR => Err(Errno::EISDIR.into()),
        _ => Err(io::Error::new(io::ErrorKind::AlreadyExists, "a device, FIFO or socket stands there")),
    }
}

/// Renames a file to its final name.
///
/// # Errors
/// The file system's; or as with [`may_take`].
pub fn rename(folder: impl AsFd, from: &Path, to: &Path) -> io::Result<()> {
    may_take(&folder, to)?;
    Ok(nix::fcntl::renameat(&folder, from, &folder, to)?)
}

/// Removes a file, and is content if it is not there.
///
/// # Errors
/// The file system's.
pub fn remove(folder: impl AsFd, name: &Path) -> io::Result<()> {
    match nix::unistd::unlinkat(folder, name, UnlinkatFlags::NoRemoveDir) {
        Ok(()) | Err(Errno::ENOENT) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

/// Data and holes of a file (`lseek(2)`, SEEK_DATA); all data where the file system does not tell.
///
/// # Errors
/// The file system's.
pub fn extents(file: &File, size: u64) -> io::Result<Vec<(Extent, bool)>> {
    let whole = vec![(Extent { offset: 0, len: size }, false)];
    if file.metadata()?.blocks().saturating_mul(512) >= size {
        return Ok(whole);
    }
    let seek = |from: u64, what: libc::c_int| -> io::Result<Option<u64>> {
        // SAFETY: takes a valid descriptor and plain integers.
        let at = unsafe { libc::lseek(file.as_raw_fd(), from as libc::off_t, what) };
        match u64::try_from(at) {
            Ok(at) => Ok(Some(at)),
            Err(_) => match io::Error::last_os_error() {
                e if e.raw_os_error() == Some(libc::ENXIO) => Ok(None),
                e => Err(e),
            },
        }
    };
    let mut list = Vec::new();
    let mut at = 0;
    while at < size {
        let data = match seek(at, libc::SEEK_DATA) {
            Ok(data) => data.unwrap_or(size).min(size),
            Err(_) if list.is_empty() => return Ok(whole),
            Err(e) => return Err(e),
        };
        if data > at {
            list.push((Extent { offset: at, len: data - at }, true));
        }
        if data < size {
            let end = seek(data, libc::SEEK_HOLE)?.unwrap_or(size).min(size);
            list.push((Extent { offset: data, len: end.saturating_sub(data) }, false));
            at = end;
        } else {
            at = size;
        }
    }
    Ok(list)
}

/// Makes bytes of a file zeros, a hole where the file system has holes.
///
/// # Errors
/// The file system's.
pub fn clear(file: &File, extent: Extent) -> io::Result<()> {
    let how = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    match nix::fcntl::fallocate(file, how, extent.offset as i64, extent.len as i64) {
        Err(Errno::EOPNOTSUPP) => {}
        done => return Ok(done?),
    }
    let zeros = [0; 64 << 10];
    let (mut at, mut rest) = (extent.offset, extent.len);
    while rest > 0 {
        let piece = &zeros[..zeros.len().min(rest as usize)];
        file.write_all_at(piece, at)?;
        at += piece.len() as u64;
        rest -= piece.len() as u64;
    }
    Ok(())
}

/// File systems in memory, on which direct I/O has nothing to bypass (`statfs(2)`).
pub fn in_memory(file: &File) -> bool {
    const TMPFS: i64 = 0x0102_1994;
    const RAMFS: i64 = 0x8584_58f6;
    nix::sys::statfs::fstatfs(file).is_ok_and(|s| matches!(s.filesystem_type().0, TMPFS | RAMFS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_what_file_systems_keep_of_them() {
        let at = (1_700_000_001, 123_456_789);
        for kept in [at, (at.0, 123_456_700), (at.0, 123_456_000), (at.0, 120_000_000), (at.0, 0), (at.0 - 1, 0)] {
            assert!(is_time(kept, at), "{kept:?}");
        }
        for other in [(at.0, 123_456_788), (at.0, 100_000_000), (at.0 + 1, 0), (at.0 - 2, 0), (at.0 - 1, at.1)] {
            assert!(!is_time(other, at), "{other:?}");
        }
        assert!(!is_time((at.0 - 1, 0), (at.0 - 2, 1)));
    }

    #[test]
    fn nothing_leads_out_of_a_root() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("secret"), "x").unwrap();
        std::fs::create_dir(dir.path().join("root")).unwrap();
        std::os::unix::fs::symlink("..", dir.path().join("root/up")).unwrap();
        std::os::unix::fs::symlink("/etc", dir.path().join("root/etc")).unwrap();
        std::os::unix::fs::symlink("in", dir.path().join("root/fine")).unwrap();
        std::fs::create_dir(dir.path().join("root/in")).unwrap();
        let root = Root::open(&dir.path().join("root"), Within::Beneath).unwrap();
        for bad in ["../secret", "up/secret", "etc/passwd", "/etc/passwd", "in/../../secret"] {
            assert!(root.read(Path::new(bad)).is_err(), "{bad}");
        }
        let name = |text: &str| Name::try_from(text.as_bytes().to_vec()).unwrap();
        assert!(root.folder(Some(&name("up/new"))).is_err());
        assert!(root.folder(Some(&name("fine/new/deep"))).is_ok());
        assert!(dir.path().join("root/in/new/deep").is_dir());
    }

    #[test]
    fn data_and_holes() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(100 << 20).unwrap();
        file.write_all_at(&[1; 4096], 50 << 20).unwrap();
        let list = extents(&file, 100 << 20).unwrap();
        assert_eq!(list.iter().map(|(e, _)| e.len).sum::<u64>(), 100 << 20);
        assert!(list.iter().any(|(e, hole)| !hole && e.offset <= 50 << 20 && e.offset + e.len > 50 << 20));
        let data: u64 = list.iter().filter(|(_, hole)| !hole).map(|(e, _)| e.len).sum();
        assert!(data < 10 << 20, "{data}");
    }
}
