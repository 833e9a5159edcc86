//! Permissions, owners, times and extended attributes of files and folders.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::OnceLock;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag};
use nix::sys::stat::{FchmodatFlags, FileStat, Mode, SFlag};
use nix::sys::time::TimeSpec;
use nix::unistd::{Gid, Uid};
use xattr::FileExt;

use crate::error::why;
use crate::fs::at::{self, open_part};
use crate::fs::mounted;
use crate::protocol::file::{FileItem, Meta};
use crate::protocol::message::Options;

/// Extracts permissions, owner and times from `fstat(2)`. Extended attributes stay empty.
pub fn meta(stat: &FileStat) -> Meta {
    Meta {
        mode: stat.st_mode & 0o7777,
        uid: stat.st_uid,
        gid: stat.st_gid,
        mtime: (stat.st_mtime, stat.st_mtime_nsec as u32),
        xattrs: Vec::new(),
    }
}

/// Whether an open file has this size in bytes, and this mtime (seconds and nanoseconds) within its file system's
/// resolution.
///
/// # Errors
/// Those of the file system.
pub fn unchanged(file: &File, size: u64, mtime: (i64, u32)) -> io::Result<bool> {
    let now = file.metadata()?;
    Ok(now.len() == size && is_time(self::mtime(&now), mtime))
}

/// Whether `kept` is `mtime` after rounding down to some file system's resolution. NTFS and SMB store times in units of
/// 100 ns, some NFS servers in us, exFAT in 10 ms, ext4 with small inodes in seconds, FAT in 2 s.
pub fn is_time(kept: (i64, u32), mtime: (i64, u32)) -> bool {
    let (seconds, ns) = mtime;
    let cut = |grain: u32| (seconds, ns - ns % grain);
    [1, 100, 1_000, 10_000_000, 1_000_000_000].into_iter().any(|grain| kept == cut(grain)) || kept == (seconds & !1, 0)
}

/// Whether a source file is unchanged since the walk found it. It compares the ctime too, which no user can set. If files may be
/// `growing`, it is enough that it has not become shorter, nor lost its name.
///
/// # Errors
/// Those of the file system.
pub fn at_rest(file: &File, item: &FileItem, growing: bool) -> io::Result<bool> {
    let now = file.metadata()?;
    if growing && now.nlink() > 0 {
        return Ok(now.len() >= item.size);
    }
    Ok((now.len(), mtime(&now), ctime(&now)) == (item.size, item.meta.mtime, item.changed))
}

/// A file's mtime as Unix time: seconds, and nanoseconds within the second.
pub fn mtime(of: &std::fs::Metadata) -> (i64, u32) {
    (of.mtime(), of.mtime_nsec() as u32)
}

/// A file's ctime as Unix time: seconds, and nanoseconds within the second.
pub fn ctime(of: &std::fs::Metadata) -> (i64, u32) {
    (of.ctime(), of.ctime_nsec() as u32)
}

/// Maximum total size of a file's extended attributes, in bytes.
const MAX_XATTR_BYTES: usize = 1 << 20;

/// The extended attribute that holds a file's access control list (`acl(5)`), in the format of `linux/posix_acl_xattr.h`.
const ACCESS_LIST: &[u8] = b"system.posix_acl_access";
/// The extended attribute that holds the access control list of new files in a folder.
const DEFAULT_LIST: &[u8] = b"system.posix_acl_default";

/// Kinds of extended attributes that are copied. Attributes that describe the system or grant privileges never are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Attributes {
    /// The user's own (`user.*`).
    pub user: bool,
    /// Access control lists.
    pub access_lists: bool,
}

impl Attributes {
    /// The kinds that the options of a transfer ask for.
    pub fn of(options: &Options) -> Attributes {
        Attributes { user: options.xattrs, access_lists: options.acls }
    }

    fn has(self, name: &[u8]) -> bool {
        self.user && name.starts_with(b"user.") || self.access_lists && is_access_list(name)
    }

    /// Whether no attribute is copied.
    pub fn is_none(self) -> bool {
        self == Attributes::default()
    }
}

fn is_access_list(name: &[u8]) -> bool {
    name == ACCESS_LIST || name == DEFAULT_LIST
}

/// The permissions of a file without its access control list. With a list, the mode's group bits are the list's mask, the most
/// that named users and groups may do; the file's own group may do less. `mode` is what `stat(2)` says.
pub fn mode_without_list(file: &File, mode: u32) -> u32 {
    if mode & 0o070 == 0 {
        return mode;
    }
    let list = file.get_xattr(std::ffi::OsStr::from_bytes(ACCESS_LIST)).ok().flatten();
    match list.and_then(|list| group_permissions(&list)) {
        Some(group) => without_list(mode, group),
        None => mode,
    }
}

/// A mode whose group bits are the mask of an access control list, reduced to the permissions of the file's own group.
fn without_list(mode: u32, group: u32) -> u32 {
    mode & (!0o070 | group << 3)
}

/// The permissions of the file's own group in an access control list.
fn group_permissions(list: &[u8]) -> Option<u32> {
    const VERSION: u32 = 2;
    const GROUP_OBJ: u16 = 4;
    let (version, entries) = list.split_at_checked(4)?;
    let number = |bytes: &[u8]| u16::from_le_bytes([bytes[0], bytes[1]]);
    let mut entries = entries.chunks_exact(8).map(|entry| (number(entry), number(&entry[2..])));
    let group = entries.find(|(tag, _)| *tag == GROUP_OBJ).map(|(_, permissions)| u32::from(permissions) & 0o7);
    group.filter(|_| version == VERSION.to_le_bytes())
}

/// Name and value of an extended attribute.
pub type Attribute = (Vec<u8>, Vec<u8>);

/// Reads the names and values of a file's extended attributes of these kinds. The list is empty if the file system has none. Calls
/// `refused` with the name of each attribute for which a message has no room.
pub fn xattrs(file: &File, kinds: Attributes, refused: &mut dyn FnMut(&[u8], &str)) -> Vec<Attribute> {
    let Ok(names) = file.list_xattr() else { return Vec::new() };
    let mut sum = 0;
    let mut list = Vec::new();
    for name in names.filter(|name| kinds.has(name.as_bytes())) {
        let Ok(Some(value)) = file.get_xattr(&name) else { continue };
        let bytes = name.len() + value.len();
        if sum + bytes > MAX_XATTR_BYTES {
            refused(name.as_bytes(), "the file's extended attributes take more than 1 MiB");
            continue;
        }
        sum += bytes;
        list.push((name.as_bytes().to_vec(), value));
    }
    list
}

/// What could not be set of a file or folder that is whole otherwise.
#[derive(Debug, Default)]
pub struct Unset {
    /// Why the owner could not be set.
    pub owner: Option<io::Error>,
    /// Whether setuid, setgid or sticky bits that were to be kept could not be set.
    pub special: bool,
    /// Whether there are extended attributes that the file system does not support.
    pub attributes: bool,
    /// Whether there is an access control list that the file system does not support.
    pub access_lists: bool,
    /// The permissions of the file's own group in the access control list that could not be set.
    pub group: Option<u32>,
    /// Names of single extended attributes that could not be set, and why.
    pub refused: Vec<(Vec<u8>, String)>,
}

impl Unset {
    /// The permissions that a source's mode stands for if its access control list could not be set ([`mode_without_list`]).
    pub fn mode(&self, mode: u32) -> u32 {
        self.group.map_or(mode, |group| without_list(mode, group))
    }
}

/// Sets the extended attributes of these kinds of an open file or folder. Those that the file system does not take are added
/// to `unset`. If lists are copied and the source has none, this removes the one that a new file inherits from its folder.
///
/// # Errors
/// The file system is full, or fails.
pub fn set_xattrs(file: &File, meta: &Meta, kinds: Attributes, unset: &mut Unset) -> io::Result<()> {
    if kinds.access_lists {
        let has = |list: &[u8]| meta.xattrs.iter().any(|(name, _)| name == list);
        for list in [ACCESS_LIST, DEFAULT_LIST].into_iter().filter(|list| !has(list)) {
            // Fails if there is none, if it is not a folder, or if the file system has no lists.
            let _ = file.remove_xattr(std::ffi::OsStr::from_bytes(list));
        }
    }
    // Lists last: they may take the owner's right to write, without which no other attribute can be set.
    let all = || meta.xattrs.iter().filter(|(name, _)| kinds.has(name));
    let lists_last =
        all().filter(|(name, _)| !is_access_list(name)).chain(all().filter(|(name, _)| is_access_list(name)));
    for (name, value) in lists_last {
        let Err(e) = file.set_xattr(std::ffi::OsStr::from_bytes(name), value) else { continue };
        if name == ACCESS_LIST {
            unset.group = group_permissions(value);
        }
        let why = match e.raw_os_error() {
            Some(libc::EOPNOTSUPP) => {
                let lost = if is_access_list(name) { &mut unset.access_lists } else { &mut unset.attributes };
                *lost = true;
                continue;
            }
            // ext4 and btrfs say so too of an attribute that is too large for them.
            Some(libc::ENOSPC) if has_room(file, value.len()) => TOO_LARGE.to_owned(),
            Some(libc::E2BIG | libc::ERANGE) => TOO_LARGE.to_owned(),
            // EBADF: a folder that is open without access, since this user may not list it.
            Some(libc::EBADF) => why(&Errno::EACCES.into()),
            Some(libc::EPERM | libc::EACCES | libc::EINVAL | libc::ENAMETOOLONG) => why(&e),
            _ => return Err(e),
        };
        unset.refused.push((name.clone(), why));
    }
    Ok(())
}

/// Why an extended attribute is refused by a file system that has room.
const TOO_LARGE: &str = "it is too large for the destination's file system";

/// Whether a file system has room for an extended attribute of this many bytes.
fn has_room(file: &File, bytes: usize) -> bool {
    // More than the attribute's own size: the file system stores it in whole blocks and keeps some for itself.
    const MARGIN_BYTES: u64 = 1 << 20;
    nix::sys::statvfs::fstatvfs(file)
        .is_ok_and(|fs| fs.blocks_available().saturating_mul(fs.fragment_size()) > bytes as u64 + MARGIN_BYTES)
}

/// The user and privileges of this process, which do not change while it runs.
struct Me {
    uid: u32,
    gid: u32,
}

fn me() -> &'static Me {
    static ME: OnceLock<Me> = OnceLock::new();
    ME.get_or_init(|| Me { uid: nix::unistd::geteuid().as_raw(), gid: nix::unistd::getegid().as_raw() })
}

/// The mode with which a new file is created: the source's permissions, without access for group and others if the source
/// has another owner. The owner may also read and write if there are extended attributes to set, because these can be set
/// on a writable file only.
pub fn first_mode(meta: &Meta) -> u32 {
    let mode = if meta.uid == me().uid { meta.mode & 0o777 } else { meta.mode & 0o700 };
    if meta.xattrs.is_empty() { mode } else { mode | 0o600 }
}

/// The source of a copied file's or folder's setuid, setgid and sticky bits (`chmod(2)`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Special {
    /// The bits of the source, for `--preserve`.
    Source,
    /// No bits, for a file without `--preserve`, as in scp and rsync.
    None,
    /// The bits that the copy already has, for a folder without `--preserve`, as in rsync. A new folder inherits the setgid
    /// bit of its parent, so that files in a group's folder keep the group.
    Own,
}

impl Special {
    /// The choice for a file.
    pub fn of_file(preserve: bool) -> Special {
        if preserve { Special::Source } else { Special::None }
    }

    /// The new mode of a copy whose mode is `now`: the source's permissions with the special bits that this choice gives.
    pub fn mode(self, meta: &Meta, now: u32) -> u32 {
        let special = match self {
            Special::Source => meta.mode,
            Special::None => 0,
            Special::Own => now,
        };
        meta.mode & 0o777 | special & 0o7000
    }
}

/// Sets an open file's owner (if this user may), permissions, times and extended attributes to those of its source.
/// `fresh` means that this process made the file, in a folder without the setgid bit. `now` is the file's current mode, if
/// the caller knows it.
///
/// # Errors
/// Those of the file system. Failing to set the owner or an extended attribute is not an error; the result names it.
pub fn dress(
    file: &File,
    meta: &Meta,
    (special, kinds): (Special, Attributes),
    fresh: bool,
    now: Option<u32>,
) -> io::Result<Unset> {
    let mut unset = Unset::default();
    let mine = fresh && (meta.uid, meta.gid) == (me().uid, me().gid);
    let mine = mine
        || owner(meta, || fchown(file, meta)).unwrap_or_else(|e| {
            unset.owner = Some(e);
            false
        });
    set_xattrs(file, meta, kinds, &mut unset)?;
    // An access control list among the extended attributes changes the permissions.
    let now = match now.filter(|_| meta.xattrs.is_empty() && !kinds.access_lists) {
        Some(now) => now,
        None => permissions(file)?,
    };
    let wanted = unset.mode(special.mode(meta, now));
    let mut mode = wanted;
    if special == Special::Source && !mine {
        // The file has another owner than its source, so it must not get setuid or setgid rights.
        mode &= 0o1777;
    } else if special == Special::Source && wanted & 0o2000 != 0 && nix::sys::stat::fstat(file)?.st_gid != meta.gid {
        // It would give the rights of another group than the source's.
        mode &= !0o2000;
    }
    if now != mode {
        nix::sys::stat::fchmod(file, Mode::from_bits_truncate(mode))?;
    }
    if special == Special::Source && wanted & 0o7000 != 0 {
        // The kernel takes the setgid bit without an error if this user is not in the group (chmod(2)).
        unset.special = permissions(file)? & 0o7000 != wanted & 0o7000;
    }
    let (last, changed) = (TimeSpec::UTIME_OMIT, TimeSpec::new(meta.mtime.0, i64::from(meta.mtime.1)));
    nix::sys::stat::futimens(file, &last, &changed)?;
    Ok(unset)
}

/// Gives a file the permissions that a new file of this process gets (`umask(2)`).
///
/// # Errors
/// Those of the file system.
pub fn dress_as_new(file: &File) -> io::Result<()> {
    // Only a change of the mask would tell the mask, and other threads would see that.
    let status = std::fs::read_to_string("/proc/self/status")?;
    let mask = status.lines().find_map(|line| u32::from_str_radix(line.strip_prefix("Umask:")?.trim(), 8).ok());
    let mode = 0o666 & !mask.unwrap_or(0o077);
    Ok(nix::sys::stat::fchmod(file, Mode::from_bits_truncate(mode))?)
}

/// Reads the permission bits of a file.
///
/// # Errors
/// Those of the file system.
pub fn permissions(file: &File) -> io::Result<u32> {
    Ok(nix::sys::stat::fstat(file)?.st_mode & 0o7777)
}

/// Gives something the owner and group of its source with `chown`, if this user is root. Returns whether it has the source's
/// owner.
///
/// # Errors
/// Root may not set the owner: it lacks the capability (`CAP_CHOWN`), or the file system maps owners (`root_squash`).
fn owner(meta: &Meta, chown: impl FnOnce() -> nix::Result<()>) -> io::Result<bool> {
    if me().uid != 0 {
        return Ok(me().uid == meta.uid);
    }
    Ok(chown().map(|()| true)?)
}

/// Sets the owner and group of an open file or folder.
fn fchown(file: &File, meta: &Meta) -> nix::Result<()> {
    match nix::unistd::fchown(file, Some(Uid::from_raw(meta.uid)), Some(Gid::from_raw(meta.gid))) {
        Err(e) => {
            let now = nix::sys::stat::fstat(file)?;
            if (now.st_uid, now.st_gid) == (meta.uid, meta.gid) { Ok(()) } else { Err(e) }
        }
        done => done,
    }
}

/// Sets the owner and times of a symbolic link that this process has just made, unless the file system would set those of the
/// link's target. Linux allows nothing else to be set on a link. It works on the open link, so a file that takes the link's name
/// meanwhile is not affected.
///
/// # Errors
/// Those of the file system; `PermissionDenied` if the name is no longer a link.
pub fn dress_link(folder: impl AsFd, name: &Path, meta: &Meta) -> io::Result<Unset> {
    let link = open_part(folder, name, OFlag::O_PATH)?;
    let stat = nix::sys::stat::fstat(&link)?;
    if at::kind(&stat) != SFlag::S_IFLNK {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "something else took its name meanwhile"));
    }
    if mounted::follows_links(&link) {
        let is_lost = me().uid == 0 && (stat.st_uid, stat.st_gid) != (meta.uid, meta.gid);
        let why = io::Error::new(io::ErrorKind::Unsupported, "the file system follows links");
        return Ok(Unset { owner: is_lost.then_some(why), ..Unset::default() });
    }
    let (uid, gid) = (Uid::from_raw(meta.uid), Gid::from_raw(meta.gid));
    let chown = || match nix::unistd::fchownat(&link, "", Some(uid), Some(gid), AtFlags::AT_EMPTY_PATH) {
        Err(_) if (stat.st_uid, stat.st_gid) == (meta.uid, meta.gid) => Ok(()),
        done => done,
    };
    let unset = Unset { owner: owner(meta, chown).err(), ..Unset::default() };
    let times = [TimeSpec::UTIME_OMIT, TimeSpec::new(meta.mtime.0, i64::from(meta.mtime.1))].map(|time| *time.as_ref());
    // SAFETY: the descriptor is open, the path a string that ends in zero, the times an array of two (utimensat(2)).
    let set = unsafe { libc::utimensat(link.as_raw_fd(), c"".as_ptr(), times.as_ptr(), libc::AT_EMPTY_PATH) };
    match Errno::result(set) {
        // Kernels before 5.8 cannot set the times of an open link (EINVAL), and some programs behind FUSE none of links. The times
        // of a link matter little.
        Ok(_) | Err(Errno::EINVAL | Errno::ENOENT | Errno::ENOSYS | Errno::EOPNOTSUPP) => Ok(unset),
        Err(e) => Err(e.into()),
    }
}

/// Sets a folder's owner, permissions and times to those of its source, and the special bits only with `preserve`. With
/// `sync`, an open file of the same file system, it also writes these and the names in the folder to disk
/// ([`sync_folder`]). A folder of another user keeps its own if this user may not set them: somebody shared it for others
/// to write in, and it was there before the copy.
///
/// # Errors
/// Those of the file system.
pub fn dress_folder(folder: OwnedFd, meta: &Meta, preserve: bool, sync: Option<&File>) -> io::Result<Unset> {
    let folder = File::from(folder);
    let special = if preserve { Special::Source } else { Special::Own };
    // Its extended attributes were set when it was made.
    let unset = match dress(&folder, meta, (special, Attributes::default()), false, None) {
        // EBADF: the folder is open without access, since this user may not list it.
        Err(e)
            if matches!(e.raw_os_error(), Some(libc::EPERM | libc::EBADF)) && folder.metadata()?.uid() != me().uid =>
        {
            let lacking = meta.mode & !folder.metadata()?.mode() & 0o7000;
            Unset { special: preserve && lacking != 0, ..Unset::default() }
        }
        dressed => dressed?,
    };
    if let Some(file) = sync {
        sync_folder(&folder, file)?;
    }
    Ok(unset)
}

/// Writes an open folder to disk: the names in it, its permissions and its times. If the file system does not support
/// that (`fsync(2)`, EINVAL), it does nothing. A folder that is open without the right to read it cannot be written by
/// itself; then all of its file system is, by way of `file`, which is any open file there.
///
/// # Errors
/// Those of the file system.
pub fn sync_folder(folder: impl AsFd, file: impl AsFd) -> io::Result<()> {
    match nix::unistd::fsync(folder) {
        Err(Errno::EBADF) => Ok(nix::unistd::syncfs(file)?),
        Err(Errno::EINVAL | Errno::ENOSYS | Errno::EOPNOTSUPP) => Ok(()),
        other => Ok(other?),
    }
}

/// Gives a folder's owner permission to read, write and enter it, if this user is the owner. Group and others lose meanwhile
/// what the owner did not have, either. It does nothing for root, who needs no permission. The folder may be open without
/// access to its content (O_PATH).
///
/// # Errors
/// Those of the file system.
pub fn open_up(folder: &OwnedFd) -> io::Result<()> {
    let stat = nix::sys::stat::fstat(folder)?;
    let is_open = stat.st_mode & libc::S_IRWXU == libc::S_IRWXU;
    if me().uid == 0 || stat.st_uid != me().uid || is_open {
        return Ok(());
    }
    // Through /proc, because fchmod(2) takes no descriptor without access.
    let itself = format!("/proc/self/fd/{}", folder.as_raw_fd());
    let mode = Mode::from_bits_truncate(opened_up(stat.st_mode));
    Ok(nix::sys::stat::fchmodat(nix::fcntl::AT_FDCWD, &*itself, mode, FchmodatFlags::FollowSymlink)?)
}

/// The permissions of a folder to which its owner gets access.
fn opened_up(mode: u32) -> u32 {
    let owner = mode >> 6 & 0o7;
    mode & (0o7000 | (owner * 0o11)) | 0o700
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_may_do_what_its_entry_of_the_list_says() {
        let entry = |tag: u16, perm: u16| [&tag.to_le_bytes()[..], &perm.to_le_bytes(), &[0xff; 4]].concat();
        let list = |version: u32, entries: &[Vec<u8>]| [&version.to_le_bytes()[..], &entries.concat()].concat();
        let entries = [entry(1, 6), entry(2, 7), entry(4, 4), entry(16, 7), entry(32, 0)];
        assert_eq!(group_permissions(&list(2, &entries)), Some(4));
        for other in [list(1, &entries), list(2, &entries[..2]), Vec::new(), vec![2, 0]] {
            assert_eq!(group_permissions(&other), None, "{other:?}");
        }
    }

    #[test]
    fn a_folder_that_is_opened_up_gives_others_no_more_than_its_owner_had() {
        for (closed, open) in [(0o555, 0o755), (0o311, 0o711), (0o077, 0o700), (0o000, 0o700), (0o2570, 0o2750)] {
            assert_eq!(opened_up(closed), open, "{closed:o}");
        }
    }

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
}
