//! The journal: a file that lists what the receiver has finished, so that the same command resumes there.
//!
//! It is an append-only file in the destination folder. Each record carries its length and a checksum (CRC-32), so a torn
//! tail, for example after a power cut, is recognized and cut off. What the journal says about a block is checked against
//! the block itself before it is used.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::time::{SystemTime, UNIX_EPOCH};

use nix::fcntl::FallocateFlags;
use serde::{Deserialize, Serialize};

use crate::protocol::digest::{Digest, Key};
use crate::protocol::file::{Extent, Meta};
use crate::protocol::name::Name;

/// First bytes of the file, with the version of the format. After them come the transfer's number, the key of the digests,
/// the number of the process that holds the journal, and the boot (`boot_id`) in which it took it.
const MAGIC: &[u8; 16] = b"fullpipe-jrnl-06";
/// Offset of the transfer's number ([`crate::protocol::message::Target::transfer`]), bytes.
const TRANSFER: u64 = MAGIC.len() as u64;
/// Offset of the digests' key, bytes.
const KEY: u64 = TRANSFER + 8;
/// Offset of the holder's number, bytes.
const HOLDER: u64 = KEY + Key::LEN as u64;
/// Bytes of a boot's identifier (`random(4)`, boot_id).
const BOOT: usize = 36;
/// Bytes before the first record.
const HEAD: u64 = HOLDER + 8 + BOOT as u64;
/// Most bytes of a record's content.
const MAX_RECORD_BYTES: usize = 1 << 16;
/// Bytes of the disk that are reserved for records at a time.
const RESERVED_BYTES: u64 = 1 << 16;

/// One record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Record {
    /// A block of a large file is in its partial file.
    Block {
        /// [`crate::protocol::file::FileItem::key`].
        file: u64,
        /// The block's bytes in the file.
        extent: Extent,
        /// Digest of the bytes and of their place ([`Key::block`]); `None` for a hole.
        digest: Option<Digest>,
    },
    /// A file has its final name.
    Done {
        /// [`crate::protocol::file::FileItem::key`].
        file: u64,
        /// Whether the file is on disk, not only in memory.
        synced: bool,
    },
    /// A partial file was made.
    Begun {
        /// Final name of the file at the destination.
        name: Name,
        /// Number in the partial file's own name.
        partial: u64,
    },
    /// A folder was made. Its permissions and times are set when all is in it.
    Folder {
        /// Name of the folder.
        name: Name,
        /// Inode of the folder that had the name then. No other folder gets these permissions.
        inode: u64,
        /// Permissions, owner and times.
        meta: Meta,
    },
    /// The machine was restarted, perhaps by a crash: files that had their final names before, and were not synced, may lack
    /// content.
    Rebooted,
    /// The first record: when the journal was made.
    Started {
        /// Seconds and nanoseconds since 1970, by this machine's clock.
        at: (i64, u32),
    },
    /// A hard link is to be made when all files have their names.
    HardLink {
        /// The sender's name of the link.
        name: Name,
        /// The sender's name of the file that it links to.
        to: Name,
        /// Size of the file, in bytes.
        size: u64,
        /// The file's mtime ([`Meta::mtime`]).
        mtime: (i64, u32),
        /// The file's owner at the source.
        uid: u32,
    },
    /// A file that the destination has is being written to (`--inplace`). Until it is whole, it has a second name, that of a
    /// partial file.
    BegunInPlace {
        /// Final name of the file at the destination.
        name: Name,
        /// Number in the partial file's own name.
        partial: u64,
        /// Inode of the file.
        inode: u64,
    },
}

/// A block of a partial file and its digest, which is `None` for a hole.
pub type Block = (Extent, Option<Digest>);

/// The files that have their final names, in 8 bytes each, since there may be tens of millions.
#[derive(Debug, Default)]
pub struct Done(Vec<u64>);

impl Done {
    /// The lowest bit of an entry. The other bits are those of [`crate::protocol::file::FileItem::key`]; this one says
    /// whether the file is on disk.
    const ON_DISK: u64 = 1;

    fn add(&mut self, file: u64, on_disk: bool) {
        self.0.push(file & !Done::ON_DISK | u64::from(on_disk));
    }

    fn only_on_disk(&mut self) {
        self.settle();
        self.0.retain(|file| file & Done::ON_DISK != 0);
    }

    /// Sorts the entries; call it after the last one. If a file has several records, the last one counts.
    fn settle(&mut self) {
        self.0.sort_by_key(|file| file & !Done::ON_DISK);
        self.0.dedup_by(|later, before| {
            let same = *later & !Done::ON_DISK == *before & !Done::ON_DISK;
            if same {
                *before = *later;
            }
            same
        });
        self.0.shrink_to_fit();
    }

    /// Whether a file is on disk; `None` if it does not have its name.
    pub fn get(&self, file: u64) -> Option<bool> {
        let at = self.0.partition_point(|one| *one < file & !Done::ON_DISK);
        self.0.get(at).filter(|one| **one & !Done::ON_DISK == file & !Done::ON_DISK).map(|one| one & Done::ON_DISK != 0)
    }
}

/// What earlier attempts have finished.
#[derive(Debug, Default)]
pub struct ResumeState {
    /// Files that have their names.
    pub done: Done,
    /// Whether the machine was restarted since the journal was made. Files that got their names in between, other than those
    /// in `done`, may lack content.
    pub rebooted: bool,
    /// When the journal was made: seconds and nanoseconds since 1970, by this machine's clock.
    pub started: (i64, u32),
    /// Blocks of partial files, by [`crate::protocol::file::FileItem::key`].
    pub blocks: HashMap<u64, Vec<Block>>,
    /// Whether partial files were made.
    pub begun: bool,
    /// Files that were written to in place, by [`Name::key`] of the final name at the destination and inode: the numbers in the
    /// names of their partial files.
    pub in_place: HashMap<(u64, u64), Vec<u64>>,
}

impl ResumeState {
    pub(super) fn take(&mut self, record: Record) {
        match record {
            Record::Block { file, extent, digest } => {
                if extent.end().is_some() {
                    self.blocks.entry(file).or_default().push((extent, digest));
                }
            }
            Record::Done { file, synced } => {
                self.blocks.remove(&file);
                self.done.add(file, synced);
            }
            Record::Begun { .. } => self.begun = true,
            Record::BegunInPlace { name, inode, partial } => {
                self.begun = true;
                self.in_place.entry((name.key(), inode)).or_default().push(partial);
            }
            Record::Rebooted => {
                self.rebooted = true;
                self.done.only_on_disk();
            }
            Record::Started { at } => self.started = at,
            Record::Folder { .. } | Record::HardLink { .. } => {}
        }
    }

    /// Whether there is nothing to resume from.
    pub fn is_empty(&self) -> bool {
        self.done.0.is_empty() && self.blocks.is_empty() && !self.rebooted
    }
}

/// The identifier of this boot; zeros if the kernel does not tell it.
fn boot() -> [u8; BOOT] {
    let mut name = [0; BOOT];
    let text = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    name.iter_mut().zip(text).for_each(|(to, from)| *to = from);
    name
}

/// Appends a record to a buffer: length, checksum, content. A record over its limit leaves the buffer as it was.
fn pack(record: &Record, to: &mut Vec<u8>) -> io::Result<()> {
    let at = to.len();
    to.extend_from_slice(&[0; 8]);
    let packed = postcard::to_io(record, &mut *to).map(drop).map_err(io::Error::other);
    let (head, content) = to[at..].split_at_mut(8);
    if packed.is_err() || content.len() > MAX_RECORD_BYTES {
        to.truncate(at);
        return packed.and(Err(io::Error::other("a journal record over its limit")));
    }
    head[..4].copy_from_slice(&(content.len() as u32).to_le_bytes());
    head[4..].copy_from_slice(&crc32fast::hash(content).to_le_bytes());
    Ok(())
}

/// Reads records until the first that is damaged or incomplete. Returns the length of the good part, bytes.
///
/// # Errors
/// The file cannot be read.
pub fn replay(from: &mut impl Read, each: impl FnMut(Record)) -> io::Result<u64> {
    let mut magic = [0; 16];
    match from.read_exact(&mut magic) {
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
        other => other?,
    }
    if &magic != MAGIC {
        return Ok(0);
    }
    match from.read_exact(&mut [0; HEAD as usize - MAGIC.len()]) {
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
        other => other?,
    }
    records(from, HEAD, each)
}

/// As [`replay`], from the beginning of a record on. `good` is its offset.
fn records(from: &mut impl Read, mut good: u64, mut each: impl FnMut(Record)) -> io::Result<u64> {
    let mut content = Vec::new();
    loop {
        let mut head = [0; 8];
        match from.read_exact(&mut head) {
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(good),
            other => other?,
        }
        let len = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let sum = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
        if len > MAX_RECORD_BYTES {
            return Ok(good);
        }
        content.resize(len, 0);
        match from.read_exact(&mut content) {
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(good),
            other => other?,
        }
        if crc32fast::hash(&content) != sum {
            return Ok(good);
        }
        let Ok(record) = postcard::from_bytes(&content) else { return Ok(good) };
        each(record);
        good += 8 + len as u64;
    }
}

/// The journal of a running transfer.
pub struct Journal {
    file: File,
    key: Key,
    buffer: Vec<u8>,
    /// Whether a file has its name, or the machine was restarted: then another attempt needs the journal.
    useful: bool,
    /// Files that have blocks but no name yet.
    unnamed: HashSet<u64>,
    /// Offset of the first record of this attempt, bytes.
    start: u64,
    /// Offset of the next record, bytes.
    end: u64,
    /// Up to which offset the disk has room for it, bytes.
    reserved: u64,
}

impl Journal {
    /// Opens a journal for a process ([`crate::protocol::message::Target::process`]). The caller has locked the file and
    /// found that only this user can have written it. Good records are replayed, and the rest is cut off.
    ///
    /// # Errors
    /// The file system's.
    pub fn open(mut file: File, transfer: u64, process: u64) -> io::Result<(Journal, ResumeState)> {
        let mut resume = ResumeState::default();
        file.seek(SeekFrom::Start(0))?;
        let mut good = replay(&mut io::BufReader::new(&mut file), |record| resume.take(record))?;
        let mut of = [0; 8];
        if good != 0 && (file.read_exact_at(&mut of, TRANSFER).is_err() || u64::from_le_bytes(of) != transfer) {
            // The journal of another transfer, which somebody has renamed: its records say nothing about this one.
            (good, resume) = (0, ResumeState::default());
        }
        if good == 0 {
            file.set_len(0)?;
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let mut head =
                [&MAGIC[..], &transfer.to_le_bytes(), &Key::random().0, &process.to_le_bytes(), &boot()].concat();
            pack(&Record::Started { at: (now.as_secs() as i64, now.subsec_nanos()) }, &mut head)?;
            file.write_all_at(&head, 0)?;
            good = head.len() as u64;
        }
        let mut key = [0; Key::LEN];
        file.read_exact_at(&mut key, KEY)?;
        file.set_len(good)?;
        file.seek(SeekFrom::Start(good))?;
        let (mut before, now) = ([0; BOOT], boot());
        if file.read_exact_at(&mut before, HOLDER + 8).is_ok() && before != now {
            // Written before the new boot's identifier, since the old one alone shows that there was a restart.
            let mut reboot = Vec::new();
            pack(&Record::Rebooted, &mut reboot)?;
            file.write_all(&reboot)?;
            good += reboot.len() as u64;
            resume.take(Record::Rebooted);
        }
        file.write_all_at(&[&process.to_le_bytes()[..], &now].concat(), HOLDER)?;
        resume.done.settle();
        let useful = !resume.done.0.is_empty() || resume.rebooted;
        let unnamed = resume.blocks.keys().copied().collect();
        let key = Key(key);
        let journal =
            Journal { file, key, buffer: Vec::new(), useful, unnamed, start: good, end: good, reserved: good };
        Ok((journal, resume))
    }

    /// Adds a record. `Block`, `Begun` and `BegunInPlace` records are written at once, to room that was reserved before, so
    /// that a file which fills the disk can be resumed. Others are written with [`Journal::flush`]: if those are lost, their
    /// work is only done again.
    ///
    /// # Errors
    /// The file system's.
    pub fn add(&mut self, record: &Record) -> io::Result<()> {
        pack(record, &mut self.buffer)?;
        match record {
            Record::Block { file, .. } => drop(self.unnamed.insert(*file)),
            Record::Done { file, .. } => {
                self.unnamed.remove(file);
                self.useful = true;
            }
            _ => {}
        }
        if matches!(record, Record::Block { .. } | Record::Begun { .. } | Record::BegunInPlace { .. }) {
            self.reserve();
            self.flush()
        } else if self.buffer.len() > MAX_RECORD_BYTES {
            self.flush()
        } else {
            Ok(())
        }
    }

    /// Reserves room for the records that wait and for later ones, on file systems that can. If there is none, the write
    /// tells.
    fn reserve(&mut self) {
        let waiting = self.buffer.len() as u64;
        if self.end + waiting > self.reserved {
            let room = waiting + RESERVED_BYTES;
            let how = FallocateFlags::FALLOC_FL_KEEP_SIZE;
            let _ = nix::fcntl::fallocate(&self.file, how, self.end as i64, room as i64);
            self.reserved = self.end + room;
        }
    }

    /// The key of the digests in it.
    pub fn key(&self) -> Key {
        self.key
    }

    /// The number of the transfer whose journal a file is; `None` if it is no journal of this version.
    pub fn transfer(file: &File) -> Option<u64> {
        let mut head = [0; MAGIC.len() + 8];
        file.read_exact_at(&mut head, 0).ok()?;
        let number = head.strip_prefix(&MAGIC[..])?;
        Some(u64::from_le_bytes(number.try_into().ok()?))
    }

    /// The number of the process that holds a journal, if it can be read.
    pub fn holder(file: &File) -> Option<u64> {
        let mut process = [0; 8];
        file.read_exact_at(&mut process, HOLDER).ok()?;
        Some(u64::from_le_bytes(process))
    }

    /// Forgets the blocks of a file, whose partial file is gone.
    pub fn forget(&mut self, file: u64) {
        self.unnamed.remove(&file);
    }

    /// Whether it holds nothing that another attempt could resume from.
    pub fn is_empty(&self) -> bool {
        !self.useful && self.unnamed.is_empty()
    }

    /// Writes the records that wait.
    ///
    /// # Errors
    /// The file system's.
    pub fn flush(&mut self) -> io::Result<()> {
        if let Err(e) = self.file.write_all(&self.buffer) {
            // What was written of them would hide all records behind it. They stay in memory, and are written over it.
            self.file.seek(io::SeekFrom::Start(self.end))?;
            if self.file.set_len(self.end).is_ok() {
                self.reserved = self.end;
            }
            return Err(e);
        }
        self.end += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Returns a reader of the records written so far. More records may be added meanwhile.
    ///
    /// # Errors
    /// The file system's.
    pub fn reader(&mut self) -> io::Result<RecordReader> {
        self.flush()?;
        Ok(RecordReader { file: self.file.try_clone()?, at: 0, start: self.start })
    }
}

/// Reads a journal's records while more are added ([`Journal::reader`]).
pub struct RecordReader {
    file: File,
    at: u64,
    start: u64,
}

impl RecordReader {
    /// Reads all records, in the order in which they were added.
    ///
    /// # Errors
    /// The file system's.
    pub fn all(mut self, each: impl FnMut(Record)) -> io::Result<()> {
        replay(&mut io::BufReader::new(&mut self), each).map(drop)
    }

    /// Reads the records of this attempt.
    ///
    /// # Errors
    /// The file system's.
    pub fn of_this_attempt(mut self, each: impl FnMut(Record)) -> io::Result<()> {
        self.at = self.start;
        records(&mut io::BufReader::new(&mut self), 0, each).map(drop)
    }

    /// Reads the records of earlier attempts.
    ///
    /// # Errors
    /// The file system's.
    pub fn of_earlier_attempts(mut self, each: impl FnMut(Record)) -> io::Result<()> {
        self.at = HEAD;
        let length = self.start - HEAD;
        records(&mut io::BufReader::new(&mut self).take(length), 0, each).map(drop)
    }
}

impl Read for RecordReader {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let n = self.file.read_at(to, self.at)?;
        self.at += n as u64;
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::protocol::digest;

    fn block(file: u64, offset: u64) -> Record {
        Record::Block { file, extent: Extent { offset, len: 10 }, digest: Some([offset as u8; digest::LEN]) }
    }

    fn done(file: u64) -> Record {
        Record::Done { file, synced: false }
    }

    fn written(records: &[Record]) -> (tempfile::NamedTempFile, u64) {
        let file = tempfile::NamedTempFile::new().unwrap();
        let (mut journal, resume) = Journal::open(file.reopen().unwrap(), 3, 7).unwrap();
        assert!(resume.is_empty());
        for record in records {
            journal.add(record).unwrap();
        }
        journal.flush().unwrap();
        let len = file.as_file().metadata().unwrap().len();
        (file, len)
    }

    fn reopen(file: &tempfile::NamedTempFile) -> (Journal, ResumeState) {
        Journal::open(File::options().read(true).write(true).open(file.path()).unwrap(), 3, 7).unwrap()
    }

    /// A file that may not grow is written up to its end, and then no further.
    #[test]
    fn what_was_written_in_part_hides_nothing() {
        use nix::fcntl::{FcntlArg, SealFlag, fcntl};
        use nix::sys::memfd::{MFdFlags, memfd_create};
        let file = File::from(memfd_create("journal", MFdFlags::MFD_ALLOW_SEALING).unwrap());
        let (mut journal, _) = Journal::open(file.try_clone().unwrap(), 3, 7).unwrap();
        journal.add(&done(1)).unwrap();
        journal.flush().unwrap();
        let good = file.metadata().unwrap().len();
        file.set_len(4096).unwrap();
        fcntl(&file, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_GROW)).unwrap();
        (0..1000).for_each(|number| journal.add(&done(number)).unwrap());
        assert!(journal.flush().is_err());
        assert_eq!(file.metadata().unwrap().len(), good, "nothing of it is left");
        assert!(!journal.buffer.is_empty(), "they are kept");
    }

    #[test]
    fn what_was_finished_comes_back() {
        let name = Name::try_from(b"d".to_vec()).unwrap();
        let meta = Meta { mode: 0o755, uid: 0, gid: 0, mtime: (1, 0), xattrs: vec![] };
        let folder = Record::Folder { name: name.clone(), inode: 9, meta: meta.clone() };
        let (file, _) = written(&[block(1, 0), folder, block(2, 0), block(1, 10), done(2)]);
        let (mut journal, resume) = reopen(&file);
        assert_eq!(resume.blocks[&1].len(), 2);
        assert!(resume.done.get(2).is_some() && !resume.blocks.contains_key(&2));
        fn folders(read: impl FnOnce(&mut dyn FnMut(Record)) -> io::Result<()>) -> Vec<(Name, Meta)> {
            let mut found = Vec::new();
            let take = &mut |record| {
                if let Record::Folder { name, meta, .. } = record {
                    found.push((name, meta))
                }
            };
            read(take).unwrap();
            found
        }
        assert!(folders(|take| journal.reader().unwrap().of_this_attempt(take)).is_empty());
        journal.add(&Record::Folder { name: name.clone(), inode: 9, meta: meta.clone() }).unwrap();
        assert_eq!(folders(|take| journal.reader().unwrap().of_this_attempt(take)).len(), 1);
        assert_eq!(folders(|take| journal.reader().unwrap().of_earlier_attempts(take)).len(), 1);
        assert_eq!(folders(|take| journal.reader().unwrap().all(take)), vec![(name, meta); 2]);
    }

    #[test]
    fn the_journal_of_another_transfer_says_nothing() {
        let (file, _) = written(&[block(1, 0), done(2)]);
        let other = || File::options().read(true).write(true).open(file.path()).unwrap();
        let (_, resume) = Journal::open(other(), 4, 7).unwrap();
        assert!(resume.is_empty());
        // It has become the journal of this transfer.
        assert!(reopen(&file).1.is_empty());
    }

    #[test]
    fn a_record_over_its_limit_leaves_those_that_wait() {
        let (file, _) = written(&[]);
        let mut journal = reopen(&file).0;
        journal.add(&done(2)).unwrap();
        let name = Name::try_from(b"d".to_vec()).unwrap();
        let xattrs = vec![(b"user.x".to_vec(), vec![0; MAX_RECORD_BYTES])];
        let meta = Meta { mode: 0o755, uid: 0, gid: 0, mtime: (1, 0), xattrs };
        assert!(journal.add(&Record::Folder { name, inode: 9, meta }).is_err());
        journal.add(&done(6)).unwrap();
        journal.flush().unwrap();
        let resume = reopen(&file).1;
        assert!(resume.done.get(2).is_some() && resume.done.get(6).is_some());
    }

    #[test]
    fn what_was_said_last_of_a_file_holds() {
        let on_disk = |file| Record::Done { file, synced: true };
        let (file, _) = written(&[on_disk(2), done(2), on_disk(4), done(6), on_disk(6)]);
        let resume = reopen(&file).1;
        assert_eq!([2, 4, 6, 8].map(|file| resume.done.get(file)), [Some(false), Some(true), Some(true), None]);
        file.as_file().write_all_at(&[b'x'; BOOT], HOLDER + 8).unwrap();
        let resume = reopen(&file).1;
        assert_eq!([2, 4, 6].map(|file| resume.done.get(file)), [None, Some(true), Some(true)]);
    }

    #[test]
    fn the_key_stays_as_long_as_the_journal_does() {
        let (file, _) = written(&[block(1, 0)]);
        let key = reopen(&file).0.key();
        assert_eq!(reopen(&file).0.key(), key);
        assert_eq!(Journal::transfer(file.as_file()), Some(3));
        file.as_file().set_len(HEAD - 1).unwrap();
        assert_ne!(reopen(&file).0.key(), key, "of another");
    }

    #[test]
    fn another_start_of_the_machine_is_not_forgotten() {
        let (file, _) = written(&[done(2), Record::Done { file: 4, synced: true }]);
        file.as_file().write_all_at(&[b'x'; BOOT], HOLDER + 8).unwrap();
        // An attempt that comes to nothing.
        drop(reopen(&file));
        let (mut journal, resume) = reopen(&file);
        assert!(resume.rebooted && !resume.is_empty() && !journal.is_empty());
        assert!(resume.started > (1_500_000_000, 0));
        assert!(resume.done.get(2).is_none() && resume.done.get(4).is_some(), "on disk");
        journal.add(&done(6)).unwrap();
        journal.flush().unwrap();
        let (_, resume) = reopen(&file);
        assert!(resume.rebooted && resume.done.get(6).is_some() && resume.done.get(2).is_none());
        assert!(!reopen(&written(&[done(2)]).0).1.rebooted, "one that is begun");
    }

    #[test]
    fn a_torn_tail_is_cut_off_wherever_it_tears() {
        let (file, len) = written(&[block(1, 0), block(1, 10), block(1, 20)]);
        let whole = std::fs::read(file.path()).unwrap();
        for cut in 0..len as usize {
            std::fs::write(file.path(), &whole[..cut]).unwrap();
            let (mut journal, resume) = reopen(&file);
            let blocks = resume.blocks.get(&1).map_or(0, Vec::len);
            assert!(blocks < 3, "{cut}");
            journal.add(&block(1, 20)).unwrap();
            drop(journal);
            assert_eq!(reopen(&file).1.blocks[&1].len(), blocks + 1, "goes on behind the good part");
        }
    }

    proptest! {
        #[test]
        fn damage_never_invents(at in 0usize..400, bit in 0u8..8) {
            let (file, len) = written(&[block(1, 0), block(1, 10), block(1, 20)]);
            let mut bytes = std::fs::read(file.path()).unwrap();
            bytes[at % len as usize] ^= 1 << bit;
            std::fs::write(file.path(), &bytes).unwrap();
            let (_, resume) = reopen(&file);
            for (extent, digest) in resume.blocks.values().flatten() {
                prop_assert_eq!(*digest, Some([extent.offset as u8; digest::LEN]));
            }
        }
    }
}
