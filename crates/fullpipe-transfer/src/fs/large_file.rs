//! Reads and writes the blocks of one large file: past the page cache, through it, or through huge pages of a file in memory.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU32, Ordering};

use fullpipe_path::DirectIo;
use nix::errno::Errno;
use nix::fcntl::FallocateFlags;

use crate::fs::direct_io::{self, Aligned};
use crate::fs::huge_pages::{self, Page, Window};
use crate::fs::sparse;
use crate::protocol::file::FileItem;
use crate::sizes::HUGE_PAGE;

/// A large file that is read.
pub struct SourceFile {
    file: File,
    /// The same file opened with `O_DIRECT`; `None` where the page cache is used.
    direct: Option<File>,
}

impl SourceFile {
    /// Decides how a file of `size` bytes is read.
    pub fn new(file: File, how: DirectIo, size: u64) -> SourceFile {
        let direct = if direct_io::wanted(how, &file, size) { direct_io::again(&file, false) } else { None };
        SourceFile { file, direct }
    }

    /// The open file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Whether it is read past the page cache.
    pub fn is_direct(&self) -> bool {
        self.direct.is_some()
    }

    /// Reads `len` bytes at `offset` past the page cache, as far as direct I/O allows.
    ///
    /// # Errors
    /// Those of the file system; `UnexpectedEof` if the file has become shorter.
    pub fn read_direct(&self, to: &mut Aligned, len: usize, offset: u64) -> io::Result<()> {
        direct_io::read(&self.file, self.direct.as_ref(), to, len, offset)
    }

    /// Reads bytes at `offset` through the page cache.
    ///
    /// # Errors
    /// Those of the file system; `UnexpectedEof` if the file has become shorter.
    pub fn read_cached(&self, to: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(to, offset)
    }
}

/// A large file that is written.
pub struct TargetFile {
    file: File,
    /// The same file opened with `O_DIRECT`; `None` where the page cache is used.
    direct: Option<File>,
    /// How often a huge page may still be refused before no more are asked for. Zero if the file is not in memory.
    huge: AtomicU32,
}

impl TargetFile {
    /// Decides how a file of `size` bytes is written ([`FileItem::UNKNOWN_SIZE`] if that is not known).
    pub fn new(file: File, how: DirectIo, size: u64) -> TargetFile {
        let direct = if direct_io::wanted(how, &file, size) { direct_io::again(&file, true) } else { None };
        // A page behind the end of a file cannot be written to, so the end must be known.
        let has_pages = size != FileItem::UNKNOWN_SIZE && huge_pages::wanted(&file, size);
        let huge = AtomicU32::new(if has_pages { huge_pages::TRIES } else { 0 });
        TargetFile { file, direct, huge }
    }

    /// The open file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Whether it is written past the page cache.
    pub fn is_direct(&self) -> bool {
        self.direct.is_some()
    }

    /// Writes `len` bytes at `offset` past the page cache, as far as direct I/O allows.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn write_direct(&self, from: &mut Aligned, len: usize, offset: u64) -> io::Result<()> {
        direct_io::write(&self.file, self.direct.as_ref(), from, len, offset)
    }

    /// Writes bytes at `offset` through the page cache.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn write_cached(&self, from: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(from, offset)
    }

    /// Counts a huge page that the kernel refused. Where the kernel has none, it says so each time; other reasons pass.
    fn no_page(&self, error: &io::Error) {
        let left = |tries: u32| match error.raw_os_error() {
            Some(libc::EINVAL) => Some(0),
            _ => tries.checked_sub(1),
        };
        let _ = self.huge.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left);
    }
}

/// Reserves room for all of a file, so that a full disk shows before the data come. Not every file system can do that; in
/// memory nothing is reserved unless the file is to be `dense`, since that would cost as much as writing it.
///
/// # Errors
/// The disk is full. The failed call may have taken all room that there was.
pub fn reserve(file: &File, size: u64, dense: bool) -> io::Result<()> {
    if sparse::in_memory(file) && !dense {
        return Ok(());
    }
    match nix::fcntl::fallocate(file, FallocateFlags::FALLOC_FL_KEEP_SIZE, 0, size as i64) {
        Err(Errno::ENOSPC) => Err(Errno::ENOSPC.into()),
        _ => Ok(()),
    }
}

/// The addresses at which one thread writes huge pages, reserved when the first is written.
#[derive(Default)]
pub struct HugePages(Option<Window>);

impl HugePages {
    /// The huge page of a file at `at`, if the next `rest` bytes fill it and the file has one there.
    pub fn page<'a>(&'a mut self, file: &'a TargetFile, at: u64, rest: u64) -> Option<Page<'a>> {
        let page = HUGE_PAGE as u64;
        if rest < page || !at.is_multiple_of(page) || file.huge.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let window = match &mut self.0 {
            Some(window) => window,
            none => none.insert(Window::new().ok()?),
        };
        if window.lost() {
            return None;
        }
        window.show(&file.file, at).inspect_err(|e| file.no_page(e)).ok()
    }
}
