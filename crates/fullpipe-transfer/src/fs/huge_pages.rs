//! Files in memory, received straight into their pages (`tmpfs(5)`).
//!
//! Most of what such a destination costs is small pages: each is found, locked, filled from a buffer and marked, 512 times
//! for 2 MiB. A huge page is one, and is to be had whatever the mount's options say (`madvise(2)`, MADV_COLLAPSE, from
//! Linux 6.1 on); and what comes from the network needs no buffer on its way there. A file takes little more than half as
//! long.

mod guard;

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::ptr;

use libc::{
    MAP_ANONYMOUS, MAP_FIXED, MAP_NORESERVE, MAP_PRIVATE, MAP_SHARED, PROT_NONE, PROT_READ, PROT_WRITE, c_int, c_void,
};

use crate::fs::sparse;
use crate::limits::HUGE_PAGE;
use guard::Guard;

/// Times that one cannot be had before no more are asked for: pages may be in use by others for a moment.
pub const TRIES: u32 = 8;
/// `MADV_COLLAPSE`, which not every C library knows.
const COLLAPSE: c_int = 25;

/// Whether a file is to be written so: in memory, ours, and nobody else may write to it.
pub fn wanted(file: &File, size: u64) -> bool {
    let is_ours = |meta: std::fs::Metadata| meta.mode() & 0o022 == 0 && meta.uid() == nix::unistd::geteuid().as_raw();
    size >= HUGE_PAGE as u64 && sparse::in_memory(file) && file.metadata().is_ok_and(is_ours)
}

/// Addresses at which a page of a file is seen.
pub struct Window {
    /// What has been reserved.
    all: *mut c_void,
    /// Where in it a huge page can be.
    at: *mut c_void,
    /// The kernel may have given it to somebody else.
    lost: bool,
    guard: Guard,
}

const RESERVED: usize = 2 * HUGE_PAGE;

fn checked(address: *mut c_void) -> io::Result<*mut c_void> {
    if address == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(address) }
}

impl Window {
    /// Reserves addresses, and no memory.
    ///
    /// # Errors
    /// There are none left.
    pub fn new() -> io::Result<Window> {
        let how = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
        // SAFETY: wherever the kernel likes, so nothing else is there.
        let all = checked(unsafe { libc::mmap(ptr::null_mut(), RESERVED, PROT_NONE, how, -1, 0) })?;
        let at = all.wrapping_byte_add(all.cast::<u8>().align_offset(HUGE_PAGE));
        at.expose_provenance();
        match Guard::new(at) {
            Some(guard) => Ok(Window { all, at, lost: false, guard }),
            None => {
                // SAFETY: what has just been reserved.
                unsafe { libc::munmap(all, RESERVED) };
                Err(io::ErrorKind::QuotaExceeded.into())
            }
        }
    }

    /// Whether nothing can be seen through it any more.
    pub fn lost(&self) -> bool {
        self.lost
    }

    /// Makes one huge page of a file's `HUGE_PAGE` bytes at `offset`, a multiple of it, for all of them to be written. What
    /// they were may be lost.
    ///
    /// # Errors
    /// There are no huge pages here, or none left, or no room. The file can be written as ever.
    pub fn show<'a>(&'a mut self, file: &'a File, offset: u64) -> io::Result<Page<'a>> {
        // The kernel makes no huge page where there is no small one, and says here if there is no room.
        file.write_all_at(&[0], offset)?;
        if file.metadata()?.len() < offset + HUGE_PAGE as u64 {
            return Err(short());
        }
        self.map(PROT_READ | PROT_WRITE, MAP_SHARED, file.as_raw_fd(), offset)?;
        self.guard.gone();
        let page = Page(self);
        // SAFETY: advice on addresses that show the file.
        match unsafe { libc::madvise(page.0.at, HUGE_PAGE, COLLAPSE) } {
            0 => Ok(page),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Replaces what is there.
    fn map(&mut self, access: i32, how: i32, fd: i32, offset: u64) -> io::Result<()> {
        if self.lost {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        // Where it is of 32 bits.
        let offset = libc::off_t::try_from(offset).map_err(|_| io::ErrorKind::FileTooLarge)?;
        // SAFETY: the addresses are this window's.
        let there = unsafe { libc::mmap(self.at, HUGE_PAGE, access, how | MAP_FIXED, fd, offset) };
        // What was there may be gone all the same.
        self.lost = there == libc::MAP_FAILED;
        checked(there).map(drop)
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        if !self.lost {
            // SAFETY: what `new` has reserved, and no page is seen there any more.
            unsafe { libc::munmap(self.all, RESERVED) };
        }
    }
}

/// A huge page of a file, as long as it is seen.
pub struct Page<'a>(&'a mut Window);

impl Page<'_> {
    /// Its bytes, and what puts others in their place where the kernel says that they are gone (EFAULT).
    pub fn bytes(&mut self) -> (&mut [u8], &Guard) {
        // SAFETY: mapped to read and write until this is dropped. Who else may write to the file can change them at any
        // time, as they could on their way there: they are hashed, and any bytes have a hash.
        (unsafe { std::slice::from_raw_parts_mut(self.0.at.cast(), HUGE_PAGE) }, &self.0.guard)
    }

    /// No more is written.
    ///
    /// # Errors
    /// Somebody has cut the file short meanwhile: what was written has gone with it.
    pub fn end(self) -> io::Result<()> {
        if self.0.guard.gone() { Err(short()) } else { Ok(()) }
    }
}

/// A file is not as long as it was made.
pub fn short() -> io::Error {
    io::Error::other("something else has changed its size while it was written")
}

impl Drop for Page<'_> {
    fn drop(&mut self) {
        // If it cannot be, the window is not used again.
        let _ = self.0.map(PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    /// An empty file in memory, where there is such a file system.
    fn file(pages: usize) -> Option<File> {
        let file = tempfile::tempfile_in("/dev/shm").ok().filter(sparse::in_memory)?;
        file.set_len((pages * HUGE_PAGE) as u64).unwrap();
        Some(file)
    }

    /// The same, where this kernel makes huge pages of files; asked without a window.
    fn with_huge_pages(pages: usize) -> Option<File> {
        let file = file(pages)?;
        file.write_all_at(&[0], 0).unwrap();
        let (access, how) = (PROT_READ | PROT_WRITE, MAP_SHARED);
        // SAFETY: new addresses, given back at once.
        let made = unsafe {
            let all =
                checked(libc::mmap(ptr::null_mut(), RESERVED, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)).unwrap();
            let at = all.byte_add(all.cast::<u8>().align_offset(HUGE_PAGE));
            checked(libc::mmap(at, HUGE_PAGE, access, how | MAP_FIXED, file.as_raw_fd(), 0)).unwrap();
            let made = libc::madvise(at, HUGE_PAGE, libc::MADV_COLLAPSE) == 0;
            libc::munmap(all, RESERVED);
            made
        };
        file.set_len(0).unwrap();
        file.set_len((pages * HUGE_PAGE) as u64).unwrap();
        made.then_some(file)
    }

    /// How often a file is mapped.
    fn seen(file: &File) -> usize {
        let inode = format!(" {} ", file.metadata().unwrap().ino());
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        maps.lines().filter(|line| line.contains(&inode)).count()
    }

    #[test]
    fn a_page_is_the_files() {
        let Some(file) = with_huge_pages(3) else { return };
        file.write_all_at(&[7; HUGE_PAGE], HUGE_PAGE as u64).unwrap();
        let mut window = Window::new().unwrap();
        for at in [2, 1] {
            let before = file.metadata().unwrap().blocks();
            let mut page = window.show(&file, (at * HUGE_PAGE) as u64).unwrap();
            // All of it is there, or there would be no room for some of it later.
            let grown = (file.metadata().unwrap().blocks() - before) as usize * 512;
            assert_eq!(grown, if at == 2 { HUGE_PAGE } else { 0 });
            assert_eq!(seen(&file), 1);
            page.bytes().0.iter_mut().enumerate().for_each(|(i, byte)| *byte = (i + at) as u8);
            page.end().unwrap();
            assert_eq!(seen(&file), 0);
            let mut back = vec![0; HUGE_PAGE];
            file.read_exact_at(&mut back, (at * HUGE_PAGE) as u64).unwrap();
            assert!(back.iter().enumerate().all(|(i, byte)| *byte == (i + at) as u8));
        }
        let mut first = vec![1; HUGE_PAGE];
        file.read_exact_at(&mut first, 0).unwrap();
        assert!(first.iter().all(|byte| *byte == 0), "a page that was not shown");
        let address = format!("{:x}-", window.all.addr());
        let reserved = || std::fs::read_to_string("/proc/self/maps").unwrap().contains(&address);
        let was = reserved();
        drop(window);
        // Neighbours may have been joined to it.
        assert!(!was || !reserved());
    }

    #[test]
    fn a_file_that_is_cut_short_ends_by_itself() {
        let Some(file) = with_huge_pages(2) else { return };
        let mut window = Window::new().unwrap();
        for by_kernel in [false, true] {
            file.set_len(2 * HUGE_PAGE as u64).unwrap();
            let mut page = window.show(&file, HUGE_PAGE as u64).unwrap();
            let (bytes, guard) = page.bytes();
            bytes[HUGE_PAGE - 1] = 1;
            file.set_len(0).unwrap();
            if by_kernel {
                let mut zeros = File::open("/dev/zero").unwrap();
                assert_eq!(zeros.read(&mut bytes[..9]).unwrap_err().raw_os_error(), Some(libc::EFAULT));
                assert!(guard.put());
                assert_eq!(zeros.read(&mut bytes[..9]).unwrap(), 9);
            } else {
                bytes.fill(2);
            }
            page.end().unwrap_err();
            assert_eq!(file.metadata().unwrap().len(), 0);
        }
        // One byte more would be all of it: what is written beyond the end is lost without a word.
        file.set_len(2 * HUGE_PAGE as u64 - 1).unwrap();
        assert!(window.show(&file, HUGE_PAGE as u64).is_err());
        file.set_len(2 * HUGE_PAGE as u64).unwrap();
        window.show(&file, HUGE_PAGE as u64).unwrap().end().unwrap();
    }

    #[test]
    fn what_is_not_ours_alone_is_not_seen() {
        use std::os::unix::fs::{PermissionsExt, fchown};
        let Some(file) = file(1) else { return };
        assert!(wanted(&file, HUGE_PAGE as u64) && !wanted(&file, HUGE_PAGE as u64 - 1));
        file.set_permissions(std::fs::Permissions::from_mode(0o620)).unwrap();
        assert!(!wanted(&file, HUGE_PAGE as u64));
        file.set_permissions(std::fs::Permissions::from_mode(0o600)).unwrap();
        // Only who may.
        if fchown(&file, Some(1), None).is_ok() {
            assert!(!wanted(&file, HUGE_PAGE as u64));
        }
    }
}
