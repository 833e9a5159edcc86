//! Lays out new large files over the storage targets of a Lustre file system, where their folder does not prescribe it.
//!
//! A layout is set as liblustreapi's `llapi_layout_file_open` sets it: the file is made without one, and gets it as the
//! extended attribute `lustre.lov` before its first byte. No Lustre can run where fullpipe is tested, so its part is played
//! by a stand-in that checks what it is given.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use fullpipe_path::Stripes;
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use nix::sys::statfs::{FsType, fstatfs};
use xattr::FileExt;

use crate::fs::{ownership, publish};

/// Type of the file system, `f_type` of statfs(2) (`LUSTRE_SUPER_MAGIC`, Lustre's `lustre_user.h`).
const MAGIC: FsType = FsType(0x0BD0_0BD0);
/// The layout as an extended attribute (`XATTR_LUSTRE_LOV`, Lustre's `lustre_user.h`).
const ATTRIBUTE: &str = "lustre.lov";
/// First bytes of a layout of one component and no pool (`LOV_USER_MAGIC_V1`).
const PLAIN: u32 = 0x0BD1_0BD0;
/// Bytes of a `lov_user_md_v1`, and where its stripe count is.
const LAYOUT_BYTES: usize = 32;
const COUNT_AT: usize = 28;
/// Stripes one after another (`LOV_PATTERN_RAID0`).
const RAID0: u32 = 1;
/// The metadata server chooses the first target (`LOV_OFFSET_DEFAULT`).
const ANY_TARGET: u16 = 0xffff;

/// Bytes of a file for each stripe: a file of twice this size is the smallest that gets several.
const BYTES_PER_STRIPE: u64 = 512 << 20;
/// Largest number of stripes without `--stripe`. For one client and large files Lustre's wiki gives 4 to 8.
const MAX_STRIPES: u64 = 8;
/// Size of a stripe without `--stripe`, in bytes: what a client writes with one request by default.
const STRIPE_BYTES: u32 = 4 << 20;

/// What is asked of a file system.
pub(crate) trait FileSystem {
    /// Whether a folder is on Lustre.
    fn is_lustre(&self, folder: BorrowedFd<'_>) -> bool;
    /// The layout that a folder gives new files; `None` if it gives none. Servers answer with the layout of the whole file
    /// system then, or with nothing.
    fn layout(&self, folder: BorrowedFd<'_>) -> io::Result<Option<Vec<u8>>>;
    /// Lays out a file that was made without a layout.
    fn lay_out(&self, file: &File, layout: &[u8]) -> io::Result<()>;
}

/// The file system that a folder is on.
pub(crate) struct Mounted;

impl FileSystem for Mounted {
    fn is_lustre(&self, folder: BorrowedFd<'_>) -> bool {
        fstatfs(folder).is_ok_and(|fs| fs.filesystem_type() == MAGIC)
    }

    fn layout(&self, folder: BorrowedFd<'_>) -> io::Result<Option<Vec<u8>>> {
        let how = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        File::from(nix::fcntl::openat(folder, ".", how, Mode::empty())?).get_xattr(ATTRIBUTE)
    }

    fn lay_out(&self, file: &File, layout: &[u8]) -> io::Result<()> {
        file.set_xattr(ATTRIBUTE, layout)?;
        // Some versions report no error (Lustre's `llite/xattr.c`), and a file without a layout cannot be written to.
        file.get_xattr(ATTRIBUTE)?.map(drop).ok_or_else(|| io::Error::other("the file has no layout afterwards"))
    }
}

/// What is known of a new file before its first byte.
pub(crate) struct Wanted {
    /// The layout that the user asked for.
    pub asked: Option<Stripes>,
    /// Size of the file, in bytes. `None`: not known.
    pub size: Option<u64>,
    /// Number of streams that may write to it at once.
    pub streams: usize,
}

impl Wanted {
    /// Decides how the file is laid out, given the layout that its folder has. `None` leaves it to the file system.
    fn decide(&self, folder: Option<&[u8]>) -> Option<Stripes> {
        if self.asked.is_some() || folder.is_some_and(prescribes) {
            return self.asked;
        }
        let count = self.count();
        (count >= 2).then_some(Stripes { count, size: STRIPE_BYTES })
    }

    /// Number of stripes that suits the file.
    fn count(&self) -> u16 {
        let of_size = self.size.unwrap_or(0) / BYTES_PER_STRIPE;
        of_size.min(self.streams as u64).min(MAX_STRIPES) as u16
    }

    /// Whether the file may get a layout at all, which spares most files a question to their file system.
    fn may_be_striped(&self) -> bool {
        self.asked.is_some() || self.count() >= 2
    }
}

/// Whether a folder's layout says more than that a file has one stripe, which is what Lustre does by itself. Layouts of
/// several components, with a pool, or of a kind that is not known here, do.
fn prescribes(layout: &[u8]) -> bool {
    let number = |at: usize| layout.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_ne_bytes);
    let count = layout.get(COUNT_AT..COUNT_AT + 2).and_then(|bytes| bytes.try_into().ok()).map(u16::from_ne_bytes);
    number(0) != Some(PLAIN) || count.is_none_or(|count| count > 1)
}

/// A layout as the kernel takes it (`struct lov_user_md_v1`, Lustre's `lustre_user.h`), in the host's byte order.
fn layout(stripes: Stripes) -> [u8; LAYOUT_BYTES] {
    let mut bytes = [0; LAYOUT_BYTES];
    bytes[..4].copy_from_slice(&PLAIN.to_ne_bytes());
    bytes[4..8].copy_from_slice(&RAID0.to_ne_bytes());
    // The object's id, 16 bytes, is not read.
    bytes[24..28].copy_from_slice(&stripes.size.to_ne_bytes());
    bytes[COUNT_AT..30].copy_from_slice(&stripes.count.to_ne_bytes());
    bytes[30..].copy_from_slice(&ANY_TARGET.to_ne_bytes());
    bytes
}

/// Creates a new file with mode 600, as [`ownership::create`] does, laid out as [`Wanted::decide`] says. With it comes why the
/// layout that the user asked for could not be had.
///
/// # Errors
/// Those of the file system; `EEXIST` if the name is taken.
pub(crate) fn create(
    system: &impl FileSystem,
    folder: impl AsFd,
    name: &Path,
    wanted: &Wanted,
) -> io::Result<(File, Option<String>)> {
    let plainly = |why: Option<String>| Ok((ownership::create(&folder, name)?, why.filter(|_| wanted.asked.is_some())));
    if !wanted.may_be_striped() {
        return plainly(None);
    }
    if !system.is_lustre(folder.as_fd()) {
        return plainly(Some("the destination is not on Lustre".to_owned()));
    }
    let of_folder = if wanted.asked.is_some() { Ok(None) } else { system.layout(folder.as_fd()) };
    // A layout that cannot be read may prescribe anything.
    let Ok(of_folder) = of_folder else { return plainly(None) };
    let Some(stripes) = wanted.decide(of_folder.as_deref()) else { return plainly(None) };
    // Both flags together are O_LOV_DELAY_CREATE (Lustre's `lustre_user.h`). Of a regular file neither means anything else.
    let how = ownership::CREATE | OFlag::O_NOCTTY | OFlag::O_ASYNC;
    let file = File::from(nix::fcntl::openat(&folder, name, how, ownership::MODE)?);
    match system.lay_out(&file, &layout(stripes)) {
        Ok(()) => Ok((file, None)),
        Err(e) => {
            publish::remove(&folder, name)?;
            plainly(Some(e.to_string()))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::os::unix::fs::MetadataExt;

    use super::*;

    const GB: u64 = 1_000_000_000;

    fn of(size: u64, streams: usize) -> Wanted {
        Wanted { asked: None, size: Some(size), streams }
    }

    /// A plain layout in the bytes of a little-endian host, written out by hand.
    fn plain(count: u8) -> Vec<u8> {
        let mut bytes = vec![0xd0, 0x0b, 0xd1, 0x0b, 1, 0, 0, 0];
        bytes.extend([0; 16]);
        bytes.extend([0, 0, 0x40, 0, count, 0, 0xff, 0xff]);
        bytes
    }

    #[test]
    fn the_number_of_stripes_follows_size_and_streams() {
        for (size, streams, count) in [
            (0, 8, None),
            (GB, 8, None),
            (2 * GB, 8, Some(3)),
            (2 * GB, 2, Some(2)),
            (2 * GB, 1, None),
            (100 * GB, 4, Some(4)),
            (100 * GB, 64, Some(8)),
            (u64::MAX, 64, Some(8)),
        ] {
            let stripes = of(size, streams).decide(None);
            assert_eq!(stripes, count.map(|count| Stripes { count, size: 4 << 20 }), "{size} {streams}");
        }
        assert_eq!(Wanted { asked: None, size: None, streams: 8 }.decide(None), None);
    }

    #[test]
    fn a_layout_that_the_folder_prescribes_is_kept_unless_the_user_asks() {
        let pool = [&[0xd0, 0x0b, 0xd3, 0x0b], &plain(1)[4..], &[b'p'; 16]].concat();
        let composite = [&[0xd0, 0x0b, 0xd6, 0x0b], &plain(0)[4..]].concat();
        for kept in [plain(2), plain(8), pool, composite, vec![], vec![1], plain(1)[..10].to_vec()] {
            assert_eq!(of(100 * GB, 8).decide(Some(&kept)), None, "{kept:x?}");
            let asked = Some(Stripes { count: 1, size: 0 });
            assert_eq!(Wanted { asked, ..of(GB, 8) }.decide(Some(&kept)), asked);
        }
        for none in [plain(0), plain(1)] {
            assert!(of(100 * GB, 8).decide(Some(&none)).is_some());
        }
    }

    /// Plays Lustre, and keeps what it is given.
    struct StandIn {
        folder: Option<Vec<u8>>,
        refuses: bool,
        given: RefCell<Vec<Vec<u8>>>,
    }

    impl FileSystem for StandIn {
        fn is_lustre(&self, _: BorrowedFd<'_>) -> bool {
            true
        }
        fn layout(&self, _: BorrowedFd<'_>) -> io::Result<Option<Vec<u8>>> {
            Ok(self.folder.clone())
        }
        fn lay_out(&self, file: &File, layout: &[u8]) -> io::Result<()> {
            // Before the first byte, of a file that was made without a layout.
            let flags = OFlag::from_bits_retain(nix::fcntl::fcntl(file, nix::fcntl::FcntlArg::F_GETFL)?);
            assert!(file.metadata()?.len() == 0 && flags.contains(OFlag::O_ASYNC));
            self.given.borrow_mut().push(layout.to_vec());
            if self.refuses { Err(io::Error::from_raw_os_error(libc::EINVAL)) } else { Ok(()) }
        }
    }

    /// Makes a file, and returns why it could not be laid out as asked.
    fn made(system: &impl FileSystem, wanted: &Wanted) -> Option<String> {
        let dir = tempfile::tempdir().unwrap();
        let (file, why) = create(system, File::open(dir.path()).unwrap(), Path::new("new"), wanted).unwrap();
        let (made, at) = (file.metadata().unwrap(), dir.path().join("new").metadata().unwrap());
        assert_eq!((made.ino(), made.mode() & 0o7777), (at.ino(), 0o600));
        why
    }

    #[test]
    fn a_file_is_laid_out_before_its_first_byte() {
        let system = StandIn { folder: Some(plain(1)), refuses: false, given: RefCell::default() };
        assert_eq!(made(&system, &of(4 * GB, 7)), None);
        let asked = Some("16".parse().unwrap());
        assert_eq!(made(&system, &Wanted { asked, ..of(1, 1) }), None);
        assert_eq!(made(&system, &of(GB, 7)), None);
        let mut sixteen = plain(16);
        sixteen[26] = 0;
        assert_eq!(*system.given.borrow(), [plain(7), sixteen]);
    }

    #[test]
    fn a_file_that_cannot_be_laid_out_is_made_all_the_same() {
        let system = StandIn { folder: None, refuses: true, given: RefCell::default() };
        assert_eq!(made(&system, &of(4 * GB, 7)), None);
        let asked = Some("16".parse().unwrap());
        let why = made(&system, &Wanted { asked, ..of(1, 1) });
        assert!(why.is_some_and(|why| why.starts_with("Invalid argument")));
        assert_eq!(system.given.borrow().len(), 2);
    }

    #[test]
    fn only_who_asked_is_told_that_there_is_no_lustre() {
        assert_eq!(made(&Mounted, &of(4 * GB, 7)), None);
        let asked = Some("16".parse().unwrap());
        assert_eq!(made(&Mounted, &Wanted { asked, ..of(1, 1) }).as_deref(), Some("the destination is not on Lustre"));
    }
}
