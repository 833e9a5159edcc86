//! Reads files back from storage once they have their names, and compares them with what the sender read (`--verify`).
//!
//! The receiver does this without the sender: it knows the digest that the sender computed for every block. Small files
//! get a digest when they are written. Two threads read while the transfer goes on. A file counts as done, also in the
//! journal, only after it was verified. A file that differs loses its name, and the command fails.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::fcntl::PosixFadviseAdvice;

use super::journal::Block;
use crate::connection::session::Session;
use crate::error::why;
use crate::fs::direct_io::{self, Aligned};
use crate::protocol::digest::{Digest, Key, Mac};
use crate::protocol::file::{Extent, FileItem};
use crate::protocol::message::Verified;
use crate::protocol::name::Name;
use crate::sizes::ALIGN;
use crate::threads::lock;

/// Threads that read back. One reads while the other computes digests.
pub(super) const READERS: usize = 2;
/// Bytes that one call reads.
pub(super) const PIECE: usize = 1 << 20;
/// Most files that wait to be verified. A thread that adds another one waits.
const MAX_WAITING: usize = 4096;
/// Most blocks of all files that wait; each takes 56 bytes.
const MAX_BLOCKS: usize = 1 << 16;
/// How often a waiting thread checks whether the session is over.
const SESSION_CHECK: Duration = Duration::from_millis(100);

/// The content that a file must have.
pub(super) enum Expected {
    /// Content with this digest, as one block.
    Whole(Digest),
    /// These blocks, each with its digest; a hole has none.
    Blocks(Vec<Block>),
}

/// A file that has its name and is to be verified.
pub(super) struct Check {
    pub(super) item: FileItem,
    /// The file's size, bytes.
    pub(super) size: u64,
    /// The file's name at the destination.
    pub(super) name: Name,
    pub(super) expected: Expected,
}

impl Check {
    fn blocks(&self) -> usize {
        match &self.expected {
            Expected::Whole(_) => 1,
            Expected::Blocks(blocks) => blocks.len(),
        }
    }
}

/// The result of reading a file back.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// The file is what the sender read.
    Same,
    /// The file has another size or mtime: a program has changed or replaced it since.
    Changed,
    /// Some blocks are not what the sender read, or cannot be read: how many, of how many, the offset of the first, and
    /// the first error of a read.
    Differs { blocks: usize, of: usize, first: u64, error: Option<String> },
}

/// The queue of files to verify, and the result so far.
#[derive(Default)]
struct State {
    waiting: VecDeque<Check>,
    /// Number of blocks of the files that wait.
    blocks: usize,
    /// Number of threads that are verifying a file, and the time since when there has been one.
    active: usize,
    active_since: Option<Instant>,
    /// The time since when nothing but verification is left to do.
    alone_since: Option<Instant>,
    told: Verified,
    closed: bool,
}

/// The files that wait to be verified, shared by the threads that add and those that read.
#[derive(Default)]
pub(super) struct Verifier {
    /// Guards the queue and the result. It is held alone.
    state: Mutex<State>,
    /// Wakes threads that wait for a file, or for room.
    changed: Condvar,
    /// Guards the good blocks that earlier attempts left, by [`FileItem::key`]. It is held alone.
    kept: Mutex<HashMap<u64, Vec<Block>>>,
}

impl Verifier {
    /// Keeps a good block of an earlier attempt, for when its file is verified.
    pub(super) fn keep(&self, file: u64, block: Block) {
        lock(&self.kept).entry(file).or_default().push(block);
    }

    /// The good blocks of a file that earlier attempts left, which this forgets.
    pub(super) fn kept(&self, file: u64) -> Vec<Block> {
        lock(&self.kept).remove(&file).unwrap_or_default()
    }

    /// Adds a file, and waits for room first.
    pub(super) fn add(&self, check: Check, session: &Session) {
        let mut state = lock(&self.state);
        let full = |state: &State| {
            !state.waiting.is_empty() && (state.waiting.len() >= MAX_WAITING || state.blocks >= MAX_BLOCKS)
        };
        while full(&state) && !session.is_over() {
            state = self.changed.wait_timeout(state, SESSION_CHECK).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.blocks += check.blocks();
        state.waiting.push_back(check);
        self.changed.notify_all();
    }

    /// The next file to verify, or `None` once no more will come.
    pub(super) fn next(&self, session: &Session) -> Option<Check> {
        let mut state = lock(&self.state);
        loop {
            if session.is_over() {
                return None;
            }
            if let Some(check) = state.waiting.pop_front() {
                state.blocks -= check.blocks();
                if state.active == 0 {
                    state.active_since = Some(Instant::now());
                }
                state.active += 1;
                self.changed.notify_all();
                return Some(check);
            }
            if state.closed {
                return None;
            }
            state = self.changed.wait_timeout(state, SESSION_CHECK).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Ends the work on a file from [`Verifier::next`].
    pub(super) fn finished(&self) {
        let mut state = lock(&self.state);
        state.active -= 1;
        if state.active == 0
            && let Some(since) = state.active_since.take()
        {
            state.told.busy_ns += since.elapsed().as_nanos() as u64;
        }
    }

    /// Counts a file that is what the sender read.
    pub(super) fn verified(&self, bytes: u64) {
        let told = &mut lock(&self.state).told;
        told.files += 1;
        told.bytes += bytes;
    }

    /// Whether no file waits or is being read. Ask this only when all else is done: the time from the first such question
    /// is how much longer the transfer took because of the verification.
    pub(super) fn is_idle(&self) -> bool {
        let mut state = lock(&self.state);
        let idle = state.waiting.is_empty() && state.active == 0;
        if !idle {
            state.alone_since.get_or_insert_with(Instant::now);
        }
        idle
    }

    /// Lets the reading threads end, and returns the result.
    pub(super) fn close(&self) -> Verified {
        let mut state = lock(&self.state);
        state.closed = true;
        if let Some(since) = state.alone_since.take() {
            state.told.after_ns = since.elapsed().as_nanos() as u64;
        }
        self.changed.notify_all();
        state.told
    }
}

/// A file that is read from its storage, not from the page cache.
struct Stored<'a> {
    file: &'a File,
    /// The same file opened with `O_DIRECT`; `None` once the file system has refused that.
    direct: Option<File>,
}

impl Stored<'_> {
    /// Prepares a file. Before a direct read, the kernel writes dirty pages of the file (`open(2)`, O_DIRECT).
    fn new(file: &File) -> io::Result<Stored<'_>> {
        let direct = direct_io::again(file, false);
        if direct.is_none() {
            drop_cache(file)?;
        }
        Ok(Stored { file, direct })
    }

    /// Reads `len` bytes at `offset` into the start of `to`. `to` is aligned, and more than `len` bytes of it may change.
    fn read(&mut self, to: &mut [u8], len: usize, offset: u64) -> io::Result<()> {
        let mut done = 0;
        while done < len {
            let at = offset + done as u64;
            let read = match &self.direct {
                Some(direct) if at.is_multiple_of(ALIGN) => {
                    let end = done + (len - done).next_multiple_of(ALIGN as usize);
                    direct.read_at(&mut to[done..end], at)
                }
                Some(_) => Err(nix::errno::Errno::EINVAL.into()),
                None => self.file.read_at(&mut to[done..len], at),
            };
            match read {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => done = (done + n).min(len),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.raw_os_error() == Some(libc::EINVAL) && self.direct.is_some() => {
                    self.direct = None;
                    drop_cache(self.file)?;
                }
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

/// Writes a file to its storage and drops it from the page cache (`posix_fadvise(2)`, POSIX_FADV_DONTNEED).
fn drop_cache(file: &File) -> io::Result<()> {
    file.sync_data()?;
    Ok(nix::fcntl::posix_fadvise(file.as_fd(), 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?)
}

/// Reads a file from its storage and compares it with what is expected. `item` is the file's [`FileItem::key`] and size;
/// `read` is called with the number of bytes after every read.
pub(super) fn read_back(
    file: &File,
    item: (u64, u64),
    expected: &Expected,
    key: &Key,
    memory: &mut Aligned,
    read: &dyn Fn(u64),
) -> io::Result<Found> {
    let mut stored = Stored::new(file)?;
    let (id, size) = item;
    let whole;
    let blocks = match expected {
        Expected::Blocks(blocks) => blocks.as_slice(),
        Expected::Whole(digest) => {
            whole = [(Extent { offset: 0, len: size }, Some(*digest))];
            &whole
        }
    };
    let (mut differing, mut first, mut error) = (0, None, None);
    for (extent, digest) in blocks {
        match is_block(&mut stored, *extent, *digest, key.block(id, *extent), memory, read) {
            Ok(true) => continue,
            Ok(false) => {}
            Err(e) => drop(error.get_or_insert_with(|| why(&e))),
        }
        differing += 1;
        first = Some(first.map_or(extent.offset, |first: u64| first.min(extent.offset)));
    }
    Ok(match first {
        None => Found::Same,
        Some(first) => Found::Differs { blocks: differing, of: blocks.len(), first, error },
    })
}

/// The digest of a small file, which is one block.
pub(super) fn small_digest(key: &Key, file: u64, content: &[u8]) -> Digest {
    let mut mac = key.block(file, Extent { offset: 0, len: content.len() as u64 });
    mac.update(content);
    mac.finish()
}

/// Whether a block in storage has this digest. Without a digest it is a hole, and must be all zeros.
fn is_block(
    stored: &mut Stored<'_>,
    extent: Extent,
    digest: Option<Digest>,
    mut mac: Mac,
    memory: &mut Aligned,
    read: &dyn Fn(u64),
) -> io::Result<bool> {
    let mut zero = true;
    let (mut at, mut rest) = (extent.offset, extent.len);
    while rest > 0 {
        let len = (PIECE as u64).min(rest) as usize;
        stored.read(memory.first(PIECE), len, at)?;
        let piece = &*memory.first(len);
        if digest.is_some() {
            mac.update(piece);
        } else {
            zero &= piece.iter().all(|byte| *byte == 0);
        }
        read(len as u64);
        at += len as u64;
        rest -= len as u64;
    }
    Ok(digest.map_or(zero, |digest| mac.finish() == digest))
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use super::*;

    /// A [`FileItem::key`].
    const FILE: u64 = 9;

    /// A file system on a loop device, whose backing file can be changed behind its cache.
    struct Disk {
        dir: tempfile::TempDir,
    }

    impl Disk {
        fn new() -> Option<Disk> {
            let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
            let (image, at) = (dir.path().join("image"), dir.path().join("at"));
            File::create(&image).unwrap().set_len(64 << 20).unwrap();
            std::fs::create_dir(&at).unwrap();
            let run = |command: &mut Command| command.status().is_ok_and(|status| status.success());
            let made = nix::unistd::geteuid().is_root()
                && run(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image))
                && run(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&at));
            if !made {
                eprintln!("not tested: no file system can be mounted on a loop device here");
            }
            made.then_some(Disk { dir })
        }

        fn at(&self) -> std::path::PathBuf {
            self.dir.path().join("at")
        }

        /// Flips a bit of these bytes where they lie on the device.
        fn corrupt(&self, bytes: &[u8]) {
            let path = self.dir.path().join("image");
            let image = std::fs::read(&path).unwrap();
            let at = image.windows(bytes.len()).position(|window| window == bytes).unwrap();
            let file = File::options().write(true).open(&path).unwrap();
            file.write_all_at(&[bytes[0] ^ 1], at as u64).unwrap();
        }
    }

    impl Drop for Disk {
        fn drop(&mut self) {
            let _ = Command::new("umount").arg("-l").arg(self.at()).status();
        }
    }

    fn found(path: &Path, expected: &Expected, key: &Key) -> Found {
        let file = File::open(path).unwrap();
        let size = file.metadata().unwrap().len();
        read_back(&file, (FILE, size), expected, key, &mut Aligned::new(PIECE), &|_| {}).unwrap()
    }

    #[test]
    fn storage_that_changes_a_bit_is_found_behind_the_cache() {
        let Some(disk) = Disk::new() else { return };
        let key = Key([7; Key::LEN]);
        let mut content: Vec<u8> = (0..(3 << 20) + 77u32).map(|i| (i * 31 + i / 251) as u8).collect();
        let mark = *b"a mark that is nowhere else";
        content[(2 << 20) + 5..][..mark.len()].copy_from_slice(&mark);
        let path = disk.at().join("file");
        std::fs::write(&path, &content).unwrap();
        let blocks: Vec<Block> = (0u64..)
            .zip(content.chunks(1 << 20))
            .map(|(i, chunk)| {
                let extent = Extent { offset: i << 20, len: chunk.len() as u64 };
                let mut mac = key.block(FILE, extent);
                mac.update(chunk);
                (extent, Some(mac.finish()))
            })
            .collect();
        let checks = [Expected::Whole(small_digest(&key, FILE, &content)), Expected::Blocks(blocks)];
        for expected in &checks {
            assert_eq!(found(&path, expected, &key), Found::Same);
        }
        File::open(&path).unwrap().sync_all().unwrap();
        // All of it is in the cache.
        assert!(std::fs::read(&path).unwrap() == content);
        disk.corrupt(&mark);
        assert!(std::fs::read(&path).unwrap() == content, "the cache does not know");
        let differs = |of, first| Found::Differs { blocks: 1, of, first, error: None };
        assert_eq!(found(&path, &checks[0], &key), differs(1, 0));
        assert_eq!(found(&path, &checks[1], &key), differs(4, 2 << 20));
    }

    #[test]
    fn a_hole_must_be_zeros() {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = dir.path().join("file");
        let file = File::create(&path).unwrap();
        file.set_len(2 << 20).unwrap();
        let hole = |offset| (Extent { offset, len: 1 << 20 }, None);
        let expected = Expected::Blocks(vec![hole(1 << 20), hole(0)]);
        let key = Key([7; Key::LEN]);
        assert_eq!(found(&path, &expected, &key), Found::Same);
        file.write_all_at(b"x", 5).unwrap();
        assert_eq!(found(&path, &expected, &key), Found::Differs { blocks: 1, of: 2, first: 0, error: None });
    }
}
