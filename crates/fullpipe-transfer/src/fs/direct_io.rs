//! Reads and writes blocks without the page cache (`open(2)`, O_DIRECT), for disks that are faster than an extra copy.
//!
//! Direct I/O cannot handle the last bytes of a file or unaligned offsets. These go through the page cache.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::mpsc;

use fullpipe_path::DirectIo;
use nix::errno::Errno;
use nix::fcntl::OFlag;

use crate::fs::sparse;
use crate::sizes::ALIGN;

/// Minimum size of a file for direct I/O under [`DirectIo::Auto`], in bytes. Smaller files are likely to be read again soon,
/// and the page cache makes that faster.
const MIN_DIRECT_FILE_BYTES: u64 = 32 << 20;

/// Maximum size of one read or write, in bytes. Sizes from 256 KiB to 4 MiB are equally fast.
const MAX_PIECE_BYTES: u64 = 1 << 20;

/// A buffer aligned for direct I/O.
pub struct Aligned {
    raw: Vec<u8>,
    start: usize,
    len: usize,
}

impl Aligned {
    /// Makes a buffer of `len` zero bytes.
    pub fn new(len: usize) -> Aligned {
        let align = ALIGN as usize;
        let raw = vec![0; len.next_multiple_of(align) + align];
        let start = raw.as_ptr().align_offset(align).min(align);
        Aligned { raw, start, len }
    }

    /// Returns the first `len` bytes of the buffer, or the whole buffer if it is shorter.
    pub fn first(&mut self, len: usize) -> &mut [u8] {
        &mut self.raw[self.start..self.start + len.min(self.len)]
    }
}

/// Bytes of one read or write for blocks of at most `block` bytes.
pub fn piece_bytes(block: u64) -> usize {
    block.next_multiple_of(ALIGN).clamp(ALIGN, MAX_PIECE_BYTES) as usize
}

/// Passes pieces of blocks from a thread that reads or receives them to a thread that consumes them. The second thread
/// works on one piece while the next arrives, so neither waits for a whole block.
pub struct Pipe<T> {
    /// Sends pieces to the consuming thread.
    pub to: mpsc::SyncSender<T>,
    /// Returns used buffers from the consuming thread.
    free: mpsc::Receiver<Aligned>,
    /// Size of a piece, in bytes. A block's last piece may be smaller.
    pub piece: usize,
}

impl<T> Pipe<T> {
    /// Makes a pipe for blocks of at most `block` bytes. Also returns the consuming thread's two ends: one receives pieces,
    /// the other gives their buffers back. At most two buffers are in use: one is filled while the other is consumed.
    pub fn new(block: u64) -> (Pipe<T>, mpsc::Receiver<T>, mpsc::Sender<Aligned>) {
        let (to, from) = mpsc::sync_channel(0);
        let (back, free) = mpsc::channel();
        (Pipe { to, free, piece: piece_bytes(block) }, from, back)
    }

    /// Returns a buffer for one piece: a used one, or a new one if none is free.
    pub fn memory(&self) -> Aligned {
        self.free.try_recv().unwrap_or_else(|_| Aligned::new(self.piece))
    }
}

/// Whether to use direct I/O for a file of `size` bytes. Files in memory (`tmpfs(5)`) never use it.
pub fn wanted(how: DirectIo, file: &File, size: u64) -> bool {
    match how {
        DirectIo::Off => false,
        DirectIo::On => !sparse::in_memory(file),
        DirectIo::Auto => size >= MIN_DIRECT_FILE_BYTES && !sparse::in_memory(file),
    }
}

/// Opens a file a second time, for direct I/O: for writing if `write` is set, else for reading. Returns `None` if its file
/// system does not support direct I/O.
pub fn again(file: &File, write: bool) -> Option<File> {
    let how = if write { OFlag::O_WRONLY } else { OFlag::O_RDONLY };
    let name = format!("/proc/self/fd/{}", file.as_raw_fd());
    let fd = nix::fcntl::open(name.as_str(), how | OFlag::O_CLOEXEC | OFlag::O_DIRECT, nix::sys::stat::Mode::empty());
    fd.ok().map(File::from)
}

/// Whether a file system rejected a direct read or write, for instance because of its alignment.
fn refused(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::EINVAL as i32)
}

/// Whether the first block of a file can be written and read past the page cache. Some file systems open files for that, and
/// then refuse each call; [`read`] and [`fn@write`] use the page cache instead, and do not tell.
///
/// # Errors
/// Those of the file system, but for a refusal.
pub fn works(file: &File) -> io::Result<bool> {
    works_at(file, 0)
}

fn works_at(file: &File, offset: u64) -> io::Result<bool> {
    let (Some(writing), Some(reading)) = (again(file, true), again(file, false)) else { return Ok(false) };
    let mut block = Aligned::new(ALIGN as usize);
    let accepted = |done: io::Result<usize>| match done {
        Ok(bytes) => Ok(bytes == ALIGN as usize),
        Err(e) if refused(&e) => Ok(false),
        Err(e) => Err(e),
    };
    let bytes = block.first(ALIGN as usize);
    Ok(accepted(writing.write_at(bytes, offset))? && accepted(reading.read_at(bytes, offset))?)
}

/// Reads `len` bytes at `offset`: through `direct` as far as direct I/O allows, the rest through `file`.
///
/// # Errors
/// Those of the file system; `UnexpectedEof` if the file has become shorter.
pub fn read(file: &File, direct: Option<&File>, to: &mut Aligned, len: usize, offset: u64) -> io::Result<()> {
    let mut done = 0;
    if let Some(direct) = direct.filter(|_| offset.is_multiple_of(ALIGN)) {
        while done < len {
            // Direct I/O needs a multiple of the sector size. At the end of the file the read returns less.
            let most = (len - done).next_multiple_of(ALIGN as usize);
            let from = to.start + done;
            match direct.read_at(&mut to.raw[from..from + most], offset + done as u64) {
                Ok(0) => break,
                // Only a read at the end of the file returns a partial sector.
                Ok(n) if !n.is_multiple_of(ALIGN as usize) => {
                    done = (done + n).min(len);
                    break;
                }
                Ok(n) => done = (done + n).min(len),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if refused(&e) => break,
                Err(e) => return Err(e),
            }
        }
    }
    file.read_exact_at(&mut to.first(len)[done..], offset + done as u64)
}

/// Writes `len` bytes at `offset`: through `direct` as far as direct I/O allows, the rest through `file`.
///
/// # Errors
/// Those of the file system.
pub fn write(file: &File, direct: Option<&File>, from: &mut Aligned, len: usize, offset: u64) -> io::Result<()> {
    let mut done = 0;
    let whole = len / ALIGN as usize * ALIGN as usize;
    if let Some(direct) = direct.filter(|_| offset.is_multiple_of(ALIGN)) {
        while done < whole {
            match direct.write_at(&from.first(whole)[done..], offset + done as u64) {
                Ok(n) if n > 0 && n.is_multiple_of(ALIGN as usize) => done += n,
                Ok(n) => {
                    done += n;
                    break;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if refused(&e) => break,
                Err(e) => return Err(e),
            }
        }
    }
    file.write_all_at(&from.first(len)[done..], offset + done as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_opens_for_direct_io_may_refuse_it() {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let file = File::options().read(true).write(true).create_new(true).open(dir.path().join("f")).unwrap();
        if again(&file, true).is_none() {
            eprintln!("not tested: {} has no direct I/O", dir.path().display());
            return;
        }
        assert!(works(&file).unwrap());
        assert_eq!(file.metadata().unwrap().len(), ALIGN);
        // No file system takes a negative offset (EINVAL).
        assert!(!works_at(&file, 1 << 63).unwrap());
    }

    #[test]
    fn any_length_at_any_offset() {
        // Uses the crate's folder, which is more likely than /tmp to be on a disk.
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let file = File::options().read(true).write(true).create_new(true).open(dir.path().join("f")).unwrap();
        let (reading, writing) = (again(&file, false), again(&file, true));
        for (offset, len) in [(0, 1 << 20), (1 << 20, 100), (4096, 4097), (77, 9000), (8192, 4096)] {
            let mut data = Aligned::new(len);
            data.first(len).iter_mut().enumerate().for_each(|(i, b)| *b = (i * 7 + len) as u8);
            write(&file, writing.as_ref(), &mut data, len, offset).unwrap();
            let mut back = Aligned::new(len);
            read(&file, reading.as_ref(), &mut back, len, offset).unwrap();
            assert!(data.first(len) == back.first(len), "{offset} {len}");
            let mut plain = vec![0; len];
            file.read_exact_at(&mut plain, offset).unwrap();
            assert!(data.first(len) == plain, "{offset} {len}");
        }
        let mut over = Aligned::new(4096);
        let end = file.metadata().unwrap().len() / 4096 * 4096;
        assert!(read(&file, reading.as_ref(), &mut over, 4096, end + 4096).is_err());
    }
}
