//! Files in memory, received straight into their pages (`tmpfs(5)`).
//!
//! Most of what such a destination costs is small pages: each is found, locked, filled from a buffer and marked, 512 times
//! for 2 MiB. A huge page is one, and is to be had whatever the mount's options say (`madvise(2)`, MADV_COLLAPSE, from
//! Linux 6.1 on); and what comes from the network needs no buffer on its way there. A file takes little more than half as
//! long.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::ptr;

use libc::{
    MAP_ANONYMOUS, MAP_FIXED, MAP_NORESERVE, MAP_PRIVATE, MAP_SHARED, PROT_NONE, PROT_READ, PROT_WRITE, c_void,
};

use crate::files;

/// Bytes of a huge page: x86-64, and Arm with small pages of 4 KiB. Where it is another number, there are none. One at a
/// time is as fast as several, and the processor's cache holds it.
pub const PAGE: usize = 2 << 20;

/// Whether a file is to be written so: in memory, and nobody but its owner can make it shorter meanwhile, which would end
/// this process (SIGBUS); the owner can end it anyway.
pub fn wanted(file: &File, size: u64) -> bool {
    let is_safe = || file.metadata().is_ok_and(|meta| meta.mode() & 0o022 == 0);
    size >= PAGE as u64 && files::in_memory(file) && is_safe()
}

/// Addresses at which a page of a file is seen.
pub struct Window {
    /// What has been reserved.
    all: *mut c_void,
    /// Where in it a huge page can be.
    at: *mut c_void,
    /// The kernel may have given it to somebody else.
    lost: bool,
}

// SAFETY: the addresses are this window's alone.
unsafe impl Send for Window {}

const RESERVED: usize = 2 * PAGE;

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
        let at = all.wrapping_byte_add(all.cast::<u8>().align_offset(PAGE));
        Ok(Window { all, at, lost: false })
    }

    /// Makes one huge page of a file's [`PAGE`] bytes at `offset`, a multiple of it, for all of them to be written. What
    /// they were may be lost.
    ///
    /// # Errors
    /// There are no huge pages here, or none left, or no room. The file can be written as ever.
    pub fn show<'a>(&'a mut self, file: &'a File, offset: u64) -> io::Result<Page<'a>> {
        // The kernel makes no huge page where there is no small one, and says here if there is no room.
        file.write_all_at(&[0], offset)?;
        self.map(PROT_READ | PROT_WRITE, MAP_SHARED, file.as_raw_fd(), offset)?;
        let page = Page(self);
        // SAFETY: advice on addresses that show the file.
        match unsafe { libc::madvise(page.0.at, PAGE, libc::MADV_COLLAPSE) } {
            0 => Ok(page),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Replaces what is there.
    fn map(&mut self, access: i32, how: i32, fd: i32, offset: u64) -> io::Result<()> {
        if self.lost {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        // SAFETY: the addresses are this window's.
        let there = unsafe { libc::mmap(self.at, PAGE, access, how | MAP_FIXED, fd, offset as libc::off_t) };
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
    /// Its bytes.
    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: mapped to read and write until this is dropped. Who else may write to the file can change them at any
        // time, as they could on their way there: they are hashed, and any bytes have a hash.
        unsafe { std::slice::from_raw_parts_mut(self.0.at.cast(), PAGE) }
    }
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

    /// A file in memory, where there is such a file system.
    fn file(pages: usize) -> Option<File> {
        let file = tempfile::tempfile_in("/dev/shm").ok().filter(files::in_memory)?;
        file.set_len((pages * PAGE) as u64).unwrap();
        Some(file)
    }

    #[test]
    fn a_page_is_the_files() {
        let Some(file) = file(3) else { return };
        file.write_all_at(&[7; PAGE], PAGE as u64).unwrap();
        let mut window = Window::new().unwrap();
        for at in [2, 1] {
            // Kernels without: nothing is lost, and nothing is seen.
            let Ok(mut page) = window.show(&file, (at * PAGE) as u64) else { continue };
            page.bytes().iter_mut().enumerate().for_each(|(i, byte)| *byte = (i + at) as u8);
            drop(page);
            let mut back = vec![0; PAGE];
            file.read_exact_at(&mut back, (at * PAGE) as u64).unwrap();
            assert!(back.iter().enumerate().all(|(i, byte)| *byte == (i + at) as u8));
        }
        let mut first = vec![1; PAGE];
        file.read_exact_at(&mut first, 0).unwrap();
        assert!(first.iter().all(|byte| *byte == 0), "a page that was not shown");
    }

    #[test]
    fn what_others_may_shorten_is_not_seen() {
        use std::os::unix::fs::PermissionsExt;
        let Some(file) = file(1) else { return };
        assert!(wanted(&file, PAGE as u64) && !wanted(&file, PAGE as u64 - 1));
        file.set_permissions(std::fs::Permissions::from_mode(0o620)).unwrap();
        assert!(!wanted(&file, PAGE as u64));
    }
}
