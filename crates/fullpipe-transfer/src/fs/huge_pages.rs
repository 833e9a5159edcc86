//! Receives files in memory (`tmpfs(5)`) straight into huge pages.
//!
//! Most of the time of writing to such a destination goes to small pages: the kernel finds, locks, fills and marks each of
//! them, 512 times for 2 MiB. A huge page takes these steps once. The kernel makes one on request, whatever the mount's
//! options are (`madvise(2)`, MADV_COLLAPSE, from Linux 6.1 on). And data from the network then need no buffer on the way. A
//! file takes little more than half as long.

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
use crate::sizes::HUGE_PAGE;
use guard::Guard;

/// Number of failures after which no more huge pages are asked for. A single failure may be due to a page that another
/// process uses for a moment.
pub const TRIES: u32 = 8;
/// `MADV_COLLAPSE`, which not every C library knows.
const COLLAPSE: c_int = 25;

/// Whether a file of this size is to be written through huge pages: it is in memory, it belongs to this user, and no other
/// user may write to it.
pub fn wanted(file: &File, size: u64) -> bool {
    let is_ours = |meta: std::fs::Metadata| meta.mode() & 0o022 == 0 && meta.uid() == nix::unistd::geteuid().as_raw();
    size >= HUGE_PAGE as u64 && sparse::in_memory(file) && file.metadata().is_ok_and(is_ours)
}

/// A range of addresses into which one huge page of a file at a time is mapped.
pub struct Window {
    /// Start of the reserved addresses.
    all: *mut c_void,
    /// Address in them that is aligned for a huge page.
    at: *mut c_void,
    /// Whether a mapping failed. The kernel may have given the addresses to another mapping then.
    lost: bool,
    guard: Guard,
}

/// Bytes of addresses to reserve, so that an aligned huge page fits anywhere.
const RESERVED: usize = 2 * HUGE_PAGE;

fn checked(address: *mut c_void) -> io::Result<*mut c_void> {
    if address == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(address) }
}

impl Window {
    /// Reserves the addresses, without memory.
    ///
    /// # Errors
    /// No addresses or no guard is left.
    pub fn new() -> io::Result<Window> {
        let how = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
        // SAFETY: the kernel chooses the address, so no other mapping is there.
        let all = checked(unsafe { libc::mmap(ptr::null_mut(), RESERVED, PROT_NONE, how, -1, 0) })?;
        let at = all.wrapping_byte_add(all.cast::<u8>().align_offset(HUGE_PAGE));
        at.expose_provenance();
        match Guard::new(at) {
            Some(guard) => Ok(Window { all, at, lost: false, guard }),
            None => {
                // SAFETY: these addresses were reserved just now, and nothing refers to them.
                unsafe { libc::munmap(all, RESERVED) };
                Err(io::ErrorKind::QuotaExceeded.into())
            }
        }
    }

    /// Whether the window can no longer be used.
    pub fn lost(&self) -> bool {
        self.lost
    }

    /// Makes a huge page of a file's `HUGE_PAGE` bytes at `offset`, a multiple of that size, and maps it. The caller must
    /// write all of them, since their old content may be lost.
    ///
    /// # Errors
    /// The kernel has no huge pages, or none or no memory is left. The file can still be written in other ways.
    pub fn show<'a>(&'a mut self, file: &'a File, offset: u64) -> io::Result<Page<'a>> {
        // The kernel makes a huge page only where there is a small one. This write makes it, and fails if memory is full.
        file.write_all_at(&[0], offset)?;
        if file.metadata()?.len() < offset + HUGE_PAGE as u64 {
            return Err(short());
        }
        self.map(PROT_READ | PROT_WRITE, MAP_SHARED, file.as_raw_fd(), offset)?;
        self.guard.gone();
        let page = Page(self);
        // SAFETY: the addresses are this window's, and the file is mapped there.
        match unsafe { libc::madvise(page.0.at, HUGE_PAGE, COLLAPSE) } {
            0 => Ok(page),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Replaces the window's mapping.
    fn map(&mut self, access: i32, how: i32, fd: i32, offset: u64) -> io::Result<()> {
        if self.lost {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        // Offsets have 32 bits on some systems.
        let offset = libc::off_t::try_from(offset).map_err(|_| io::ErrorKind::FileTooLarge)?;
        // SAFETY: the addresses are this window's.
        let there = unsafe { libc::mmap(self.at, HUGE_PAGE, access, how | MAP_FIXED, fd, offset) };
        // A failed mmap may have removed the old mapping all the same.
        self.lost = there == libc::MAP_FAILED;
        checked(there).map(drop)
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        if !self.lost {
            // SAFETY: `new` reserved these addresses, and no page is mapped there any more.
            unsafe { libc::munmap(self.all, RESERVED) };
        }
    }
}

/// A huge page of a file that is mapped. It is unmapped when this is dropped.
pub struct Page<'a>(&'a mut Window);

impl Page<'_> {
    /// Returns the page's bytes, and the guard. If a system call fails with EFAULT, the file was cut short, and
    /// `Guard::put` puts empty memory in the page's place.
    pub fn bytes(&mut self) -> (&mut [u8], &Guard) {
        // SAFETY: the page is mapped to read and write until this is dropped. Another process of this user can change the
        // bytes at any time, as it could change the file. That is harmless: they are only hashed, and any bytes have a hash.
        (unsafe { std::slice::from_raw_parts_mut(self.0.at.cast(), HUGE_PAGE) }, &self.0.guard)
    }

    /// Ends the writing of this page.
    ///
    /// # Errors
    /// Another process has cut the file short meanwhile, so the written bytes are lost.
    pub fn end(self) -> io::Result<()> {
        if self.0.guard.gone() { Err(short()) } else { Ok(()) }
    }
}

/// Makes the error for a file that another process has cut short.
pub fn short() -> io::Error {
    io::Error::other("something else has changed its size while it was written")
}

impl Drop for Page<'_> {
    fn drop(&mut self) {
        // If this fails, the window counts as lost and is not used again.
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

    /// The same; `None` if this kernel makes no huge pages of files, which is tried without a window.
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

    /// Number of mappings of a file in this process.
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
            // All of the page has memory now; otherwise a later write to it could find the memory full.
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
        // The kernel may have merged it with a neighbouring mapping.
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
        // The file is one byte short of a page. What is written to a mapping beyond the file's end would be lost silently.
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
        // Only a privileged user may give files away.
        if fchown(&file, Some(1), None).is_ok() {
            assert!(!wanted(&file, HUGE_PAGE as u64));
        }
    }
}
