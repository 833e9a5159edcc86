//! Blocks past the page cache (`open(2)`, O_DIRECT): where a disk is faster than copying twice.
//! What direct I/O cannot do, the last bytes of a file or an odd offset, goes the usual way.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::mpsc;

use nix::errno::Errno;
use nix::fcntl::OFlag;

use crate::fs::sparse;
use crate::limits::ALIGN;
use crate::protocol::message::Direct;

/// Files from this size on are worth it; smaller ones are soon read again, from the cache.
const WORTH: u64 = 32 << 20;

/// Most bytes that are read or written at once. From 256 KiB to 4 MiB are as fast; less is less memory.
const PIECE: u64 = 1 << 20;

/// Memory as direct I/O wants it.
pub struct Aligned {
    raw: Vec<u8>,
    start: usize,
    len: usize,
}

impl Aligned {
    /// So many bytes, all zero.
    pub fn new(len: usize) -> Aligned {
        let align = ALIGN as usize;
        let raw = vec![0; len.next_multiple_of(align) + align];
        let start = raw.as_ptr().align_offset(align).min(align);
        Aligned { raw, start, len }
    }

    /// The first `len` of them.
    pub fn first(&mut self, len: usize) -> &mut [u8] {
        &mut self.raw[self.start..self.start + len.min(self.len)]
    }
}

/// From a thread that reads pieces of blocks, or receives them, to one that takes them while the next comes: no block
/// is waited for as a whole.
pub struct Pipe<T> {
    /// To the one that takes them.
    pub to: mpsc::SyncSender<T>,
    free: mpsc::Receiver<Aligned>,
    /// Bytes of a piece; the last one of a block may have fewer.
    pub piece: usize,
}

impl<T> Pipe<T> {
    /// For blocks of at most so many bytes. Gives the other thread's ends as well: where pieces come from, and where
    /// their memory goes back to. There is memory for two pieces: one comes while the other goes.
    pub fn new(block: u64) -> (Pipe<T>, mpsc::Receiver<T>, mpsc::Sender<Aligned>) {
        let (to, from) = mpsc::sync_channel(0);
        let (back, free) = mpsc::channel();
        let piece = block.next_multiple_of(ALIGN).clamp(ALIGN, PIECE) as usize;
        (Pipe { to, free, piece }, from, back)
    }

    /// Memory for a piece.
    pub fn memory(&self) -> Aligned {
        self.free.try_recv().unwrap_or_else(|_| Aligned::new(self.piece))
    }
}

/// Whether a file is to be moved past the cache.
pub fn wanted(how: Direct, file: &File, size: u64) -> bool {
    match how {
        Direct::Off => false,
        Direct::On => !sparse::in_memory(file),
        Direct::Auto => size >= WORTH && !sparse::in_memory(file),
    }
}

/// The same file again, past the cache; none where its file system cannot.
pub fn again(file: &File, write: bool) -> Option<File> {
    let how = if write { OFlag::O_WRONLY } else { OFlag::O_RDONLY };
    let name = format!("/proc/self/fd/{}", file.as_raw_fd());
    let fd = nix::fcntl::open(name.as_str(), how | OFlag::O_CLOEXEC | OFlag::O_DIRECT, nix::sys::stat::Mode::empty());
    fd.ok().map(File::from)
}

/// What a file system says to direct I/O that it does not like.
fn refused(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::EINVAL as i32)
}

/// Reads `len` bytes at `offset`: past the cache through `direct` where that goes, else through `file`.
///
/// # Errors
/// The file system's; `UnexpectedEof` where the file has become shorter.
pub fn read(file: &File, direct: Option<&File>, to: &mut Aligned, len: usize, offset: u64) -> io::Result<()> {
    let mut done = 0;
    if let Some(direct) = direct.filter(|_| offset.is_multiple_of(ALIGN)) {
        while done < len {
            // A whole number of sectors is asked for; the end of the file cuts it short.
            let most = (len - done).next_multiple_of(ALIGN as usize);
            let from = to.start + done;
            match direct.read_at(&mut to.raw[from..from + most], offset + done as u64) {
                Ok(0) => break,
                // Only the last part of a file is not a whole number of sectors.
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

/// Writes `len` bytes at `offset`: past the cache through `direct` where that goes, else through `file`.
///
/// # Errors
/// The file system's.
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
    fn any_length_at_any_offset() {
        // On a disk where there is one: target/ of the workspace.
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
