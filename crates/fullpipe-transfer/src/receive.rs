//! The receiving end: takes what comes on the streams, checks it, writes it, and gives files their names
//! when they are whole.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use nix::fcntl::{FallocateFlags, Flock, FlockArg, OFlag};

use fullpipe_net::Seen;
use fullpipe_net::sample::End;

use crate::direct::{self, Aligned};
use crate::error::{Left, TransferError, local, system};
use crate::files::{self, Root};
use crate::item::{Extent, FileItem, Meta, Name, printable};
use crate::journal::{Journal, Past, Record, Version};
use crate::proto::{self, Chunk, Message, Options, PACK_FILES, Summary, Trailer, Want};
use crate::secure::Stream;
use crate::send::{Counters, NAMED, SMALL, block_size, thread, timed, why};
use crate::session::{Handler, Session, lock};
use crate::trace::{Told, Trace};

/// Bytes that pass through the processor's cache at a time: received, hashed, written.
const PIECE: usize = 256 << 10;
/// Large files under way at once; a sender has fewer.
const MOST_LARGE: usize = 256;

/// Where to write, found and locked before anything is sent. One that is not used leaves nothing behind.
pub struct Destination(Option<Parts>);

struct Parts {
    root: Root,
    /// The name of the one thing that comes, if another than at its source.
    rename: Option<Vec<u8>>,
    journal: Journal,
    journal_name: PathBuf,
    past: Past,
    transfer: u64,
    lock: Flock<File>,
}

impl Destination {
    /// Takes a folder; `rename` is what the top of what comes is called there.
    ///
    /// # Errors
    /// It cannot be written to, or another transfer of the same kind does.
    pub fn open(root: Root, rename: Option<Vec<u8>>, transfer: u64, shown: &str) -> Result<Destination, TransferError> {
        let journal_name = PathBuf::from(format!(".fullpipe.{transfer:016x}.journal"));
        let how = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_NOFOLLOW;
        let file = root.open_at(&journal_name, how, 0o600).map(File::from);
        let file = file.map_err(local(format!("cannot write to {shown}")))?;
        let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock);
        let lock = lock.map_err(|_| TransferError::Busy(shown.to_owned()))?;
        // The one that held it has finished and removed it: this is nobody's any more.
        if lock.metadata().is_ok_and(|file| file.nlink() == 0) {
            return Err(TransferError::Busy(shown.to_owned()));
        }
        let kept = lock.try_clone().map_err(local("opening the journal"))?;
        let (journal, past) = Journal::open(kept).map_err(local("reading the journal"))?;
        Ok(Destination(Some(Parts { root, rename, journal, journal_name, past, transfer, lock })))
    }

    /// Whether an earlier attempt has left something.
    pub fn has_past(&self) -> bool {
        self.0.as_ref().is_some_and(|parts| !parts.past.is_empty())
    }
}

impl Drop for Destination {
    fn drop(&mut self) {
        if let Some(parts) = self.0.take().filter(|parts| parts.journal.is_empty()) {
            let _ = files::remove(parts.root.as_fd(), &parts.journal_name);
        }
    }
}

/// A folder of small files.
struct Folder {
    name: Option<Name>,
    fd: OwnedFd,
    /// Its files get its group (`inode(7)`, S_ISGID).
    gives_group: bool,
}

/// A large file that is being written.
struct Large {
    item: FileItem,
    name: Name,
    key: u64,
    folder: OwnedFd,
    partial: PathBuf,
    file: File,
    /// The same, past the cache.
    direct: Option<File>,
    state: Mutex<LargeState>,
}

/// A block that has been received and verified, and waits to be written.
struct Filled {
    id: u64,
    large: Arc<Large>,
    extent: Extent,
    data: Aligned,
    digest: [u8; 32],
}

#[derive(Default)]
struct LargeState {
    /// Bytes written and verified, holes included.
    covered: u64,
    /// The sender's last word on it.
    ended: Option<Option<String>>,
    /// A block was not what its digest says. If the source has changed meanwhile, that is why: pages of the
    /// cache that are sent without a copy change on their way. The sender's last word tells.
    damaged: bool,
    over: bool,
}

/// A large file as the streams find it: open, or given up, which what is still on its way must find too.
type Slot = Option<Arc<Large>>;

/// The receiving end of a session.
pub struct Receiver {
    session: Arc<Session>,
    options: Options,
    root: Root,
    rename: Option<Vec<u8>>,
    transfer: u64,
    journal: Mutex<Journal>,
    journal_name: PathBuf,
    past: Past,
    /// Blocks of earlier attempts that are what they were, by [`Version::key`].
    kept: Mutex<HashMap<u64, u64>>,
    large: Mutex<HashMap<u64, Slot>>,
    /// The sender's last words on files of which no block has come yet: the control connection is faster.
    early: Mutex<HashMap<u64, Option<String>>>,
    end: Mutex<EndState>,
    summary: Mutex<Summary>,
    offers: Mutex<Option<mpsc::Sender<Vec<FileItem>>>>,
    lock: Mutex<Option<Flock<File>>>,
    /// Threads that write.
    running: AtomicUsize,
    all_done: AtomicBool,
    /// The file system makes files without a name, as far as is known.
    nameless: AtomicBool,
    trace: Option<Arc<Trace>>,
    told: Mutex<Told>,
    /// For displays.
    pub counters: Arc<Counters>,
}

struct EndState {
    streams: usize,
    all_sent: bool,
    left: Vec<Left>,
    left_total: u64,
}

impl Receiver {
    /// Starts the threads of a receiving end, one per stream.
    ///
    /// # Errors
    /// Threads cannot be started.
    pub fn start(
        session: Arc<Session>,
        options: Options,
        mut to: Destination,
        streams: Vec<Stream>,
        counters: Arc<Counters>,
    ) -> Result<Arc<Receiver>, TransferError> {
        let Some(to) = to.0.take() else {
            return Err(TransferError::Usage("the destination is in use already".into()));
        };
        let (offers, offered) = mpsc::channel();
        let n = streams.len();
        let trace = Trace::start(&session, &streams, End::Receiver, options.sample_ns)?;
        let receiver = Arc::new(Receiver {
            all_done: AtomicBool::new(false),
            nameless: AtomicBool::new(true),
            trace,
            told: Mutex::default(),
            session,
            options,
            root: to.root,
            rename: to.rename,
            transfer: to.transfer,
            journal: Mutex::new(to.journal),
            journal_name: to.journal_name,
            past: to.past,
            kept: Mutex::default(),
            large: Mutex::default(),
            early: Mutex::default(),
            end: Mutex::new(EndState { streams: n, all_sent: false, left: Vec::new(), left_total: 0 }),
            summary: Mutex::default(),
            offers: Mutex::new(Some(offers)),
            lock: Mutex::new(Some(to.lock)),
            running: AtomicUsize::new(n + 1),
            counters,
        });
        let most = block_size(&options, n).max(SMALL);
        for (i, stream) in streams.into_iter().enumerate() {
            let receiver = receiver.clone();
            thread("stream", move || {
                let result = receiver.stream(i, stream, most).and_then(|()| receiver.part_over(true));
                receiver.check(result);
                receiver.running.fetch_sub(1, Ordering::SeqCst);
            })?;
        }
        let answering = receiver.clone();
        thread("offers", move || {
            for offer in offered {
                let wants = offer.into_iter().map(|item| answering.want(&item)).collect::<Result<Vec<_>, _>>();
                let result = wants.and_then(|wants| answering.session.send(&Message::Want(wants)));
                answering.check(result);
            }
            answering.running.fetch_sub(1, Ordering::SeqCst);
        })?;
        Ok(receiver)
    }

    /// What this end has seen, and what the other has told, where samples were wanted.
    pub(crate) fn trace(&self) -> (Option<Arc<Trace>>, Option<Seen>) {
        (self.trace.clone(), lock(&self.told).seen())
    }

    /// How it went, and what the sender could not read.
    pub fn summary(&self) -> (Summary, Vec<Left>, u64) {
        let mut end = lock(&self.end);
        (std::mem::take(&mut lock(&self.summary)), std::mem::take(&mut end.left), end.left_total)
    }

    /// Lets the next attempt have the destination, in this process perhaps. To be called when the session
    /// is over; keeps it if a thread does not come to its end, since that may still write.
    pub(crate) fn release(&self) {
        lock(&self.offers).take();
        let deadline = Instant::now() + Duration::from_secs(5);
        while self.running.load(Ordering::SeqCst) > 0 {
            if Instant::now() > deadline {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        // After a success there is no journal any more; after a failure this is what it knows too little.
        let _ = lock(&self.journal).flush();
        if lock(&self.journal).is_empty() && !self.all_done.load(Ordering::SeqCst) {
            // Nothing to go on from: nothing is left.
            for large in lock(&self.large).values().flatten() {
                let _ = files::remove(&large.folder, &large.partial);
            }
            let _ = files::remove(self.root.as_fd(), &self.journal_name);
        }
        lock(&self.lock).take();
    }

    /// Tells the sender, and the journal, how far it is.
    pub fn tell_progress(&self) {
        let bytes = self.counters.done_bytes.load(Ordering::Relaxed);
        let files = self.counters.done_files.load(Ordering::Relaxed);
        if !self.session.is_over() {
            self.check(self.session.send(&Message::Progress { bytes, files, times: self.counters.times() }));
            self.check(lock(&self.journal).flush().map_err(local("writing the journal")));
        }
    }

    fn check(&self, result: Result<(), TransferError>) {
        if let Err(error) = result {
            self.session.fail(error);
        }
    }

    /// One thing is not written. A full disk concerns all the others too.
    fn leave(&self, name: &[u8], error: &io::Error) -> Result<(), TransferError> {
        if matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT)) {
            return Err(TransferError::Full { what: printable(name) });
        }
        let text = match error.raw_os_error() {
            Some(libc::EXDEV) => "a symbolic link at the destination leads out of it".to_owned(),
            Some(libc::ENOTDIR) => "a file stands where a folder is needed".to_owned(),
            Some(libc::EISDIR) => "a folder stands where the file should be".to_owned(),
            _ => format!("cannot be written: {}", why(error)),
        };
        let mut summary = lock(&self.summary);
        summary.left_total += 1;
        if summary.left.len() < NAMED {
            summary.left.push(Left { name: name.to_vec(), why: text });
        }
        Ok(())
    }

    fn named(&self, name: &Name) -> io::Result<Name> {
        match &self.rename {
            None => Ok(name.clone()),
            Some(first) => name.with_first(first).map_err(|_| nix::errno::Errno::ENAMETOOLONG.into()),
        }
    }

    /// What a file is called until it is whole: in its own folder, so that a rename is all that is left.
    fn partial(&self, name: &Name) -> PathBuf {
        PathBuf::from(format!(".fullpipe.{:016x}.partial", name.key() ^ self.transfer))
    }

    // Streams

    /// One stream, with a thread that writes what goes past the cache.
    fn stream(&self, i: usize, stream: Stream, most: u64) -> Result<(), TransferError> {
        let (full, filled) = mpsc::sync_channel::<Filled>(0);
        let (give_back, free) = mpsc::channel();
        std::thread::scope(|scope| {
            let write = move || {
                for block in filled {
                    let result = self.write_behind(block, &give_back);
                    self.check(result);
                }
            };
            let started =
                std::thread::Builder::new().name("write".into()).stack_size(256 << 10).spawn_scoped(scope, write);
            started.map_err(system("starting a thread"))?;
            self.take(i, stream, most, full, &free)
        })
    }

    /// Writes a block past the cache, and counts it.
    fn write_behind(&self, block: Filled, give_back: &mpsc::Sender<Aligned>) -> Result<(), TransferError> {
        let Filled { id, large, extent, mut data, digest } = block;
        let len = extent.len as usize;
        let written = timed(&self.counters.disk_ns, || {
            direct::write(&large.file, large.direct.as_ref(), &mut data, len, extent.offset)
        });
        let _ = give_back.send(data);
        match written {
            Ok(()) => self.covered(id, Some(large), extent, Some(digest)),
            Err(e) => self.give_up(id, &large, &e),
        }
    }

    /// A large file cannot be written; what still comes of it is dropped.
    fn give_up(&self, id: u64, large: &Large, error: &io::Error) -> Result<(), TransferError> {
        self.leave(large.item.name.bytes(), error)?;
        lock(&self.large).insert(id, None);
        Ok(())
    }

    fn take(
        &self,
        i: usize,
        mut stream: Stream,
        most: u64,
        full: mpsc::SyncSender<Filled>,
        free: &mpsc::Receiver<Aligned>,
    ) -> Result<(), TransferError> {
        let mut buffer = vec![0; PIECE];
        let mut pack = Vec::new();
        // Many small files lie in the same folder.
        let mut last: Option<Folder> = None;
        loop {
            let lost = |e| self.session.lost("receiving", e);
            let chunk: Chunk = timed(&self.counters.net_ns, || proto::receive(&mut stream)).map_err(lost)?;
            let len = chunk.data_len().filter(|len| *len <= most);
            let fine = match &chunk {
                Chunk::Pack(files) => files.len() <= PACK_FILES && files.iter().all(|file| file.size <= SMALL),
                Chunk::Block { file, extent, .. } => extent.end().is_some_and(|end| end <= file.size),
                Chunk::End => true,
            };
            let (Some(len), true) = (len, fine) else {
                return Err(lost(io::Error::new(io::ErrorKind::InvalidData, "a chunk over its limits")));
            };
            let hole = matches!(chunk, Chunk::Block { hole: true, .. });
            let arrived = if hole { 0 } else { len };
            match chunk {
                Chunk::End => return Ok(()),
                Chunk::Block { id, file, extent, hole } => {
                    let slot = self.slot(id, &file)?;
                    if hole {
                        self.covered(id, slot, extent, None)?;
                    } else if let Some(large) = slot.clone().filter(|large| large.direct.is_some()) {
                        let data = free.try_recv().ok().filter(|data| data.len() >= len as usize);
                        let data = data.unwrap_or_else(|| Aligned::new(most as usize));
                        let filled = self.fill(&mut stream, id, large, extent, data)?;
                        // The other thread ends only with this one.
                        filled.map(|filled| full.send(filled));
                    } else {
                        self.block(&mut stream, &mut buffer, id, slot, extent)?;
                    }
                }
                Chunk::Pack(files) => {
                    pack.resize(len as usize, 0);
                    timed(&self.counters.net_ns, || stream.read_exact(&mut pack)).map_err(lost)?;
                    let trailer = self.trailer(&mut stream)?;
                    let digest = timed(&self.counters.hash_ns, || blake3::hash(&pack));
                    self.verify(trailer, digest, "a pack of files")?;
                    self.session.moved(len);
                    let mut rest = pack.as_slice();
                    for item in &files {
                        let (content, behind) = rest.split_at(item.size as usize);
                        rest = behind;
                        timed(&self.counters.disk_ns, || self.small(item, content, &mut last))?;
                    }
                    lock(&self.summary).bytes += len;
                    self.counters.wire_bytes.fetch_add(len, Ordering::Relaxed);
                }
            }
            if let Some(trace) = &self.trace {
                trace.arrived(i, arrived);
            }
        }
    }

    fn trailer(&self, stream: &mut Stream) -> Result<Trailer, TransferError> {
        let mut bytes = [0; Trailer::LEN];
        timed(&self.counters.net_ns, || stream.read_exact(&mut bytes))
            .map_err(|e| self.session.lost("receiving", e))?;
        Trailer::unpack(&bytes).ok_or_else(|| self.damaged("a trailer"))
    }

    fn damaged(&self, what: &str) -> TransferError {
        TransferError::Damaged { peer: self.session.peer.clone(), what: what.to_owned() }
    }

    fn verify(&self, trailer: Trailer, digest: blake3::Hash, what: &str) -> Result<(), TransferError> {
        if trailer.good && digest != blake3::Hash::from_bytes(trailer.digest) {
            Err(self.damaged(what))
        } else {
            Ok(())
        }
    }

    // Small files

    fn small(&self, item: &FileItem, content: &[u8], last: &mut Option<Folder>) -> Result<(), TransferError> {
        match self.write_small(item, content, last) {
            Ok(()) => self.done(item),
            Err(e) => self.leave(item.name.bytes(), &e),
        }
    }

    fn write_small(&self, item: &FileItem, content: &[u8], last: &mut Option<Folder>) -> io::Result<()> {
        let name = self.named(&item.name)?;
        let parent = name.parent();
        let folder = match last.take().filter(|folder| folder.name == parent) {
            Some(known) => known,
            None => {
                let fd = self.root.folder(parent.as_ref())?;
                let gives_group = nix::sys::stat::fstat(&fd)?.st_mode & libc::S_ISGID != 0;
                Folder { name: parent, fd, gives_group }
            }
        };
        let written = self.write_whole(item, content, &folder, &name);
        *last = Some(folder);
        written
    }

    /// Writes a small file: without a name until it is whole where the file system can, since a name less is
    /// half the work for its folder.
    fn write_whole(&self, item: &FileItem, content: &[u8], folder: &Folder, name: &Name) -> io::Result<()> {
        let partial = self.partial(name);
        if self.nameless.load(Ordering::Relaxed) {
            match files::nameless(&folder.fd, files::first_mode(&item.meta)) {
                Some(file) => {
                    file.write_all_at(content, 0)?;
                    files::dress(&file, &item.meta, !folder.gives_group)?;
                    if self.options.fsync {
                        file.sync_all()?;
                    }
                    files::link(&file, &folder.fd, files::part(name.last()), &partial)?;
                    return if self.options.fsync { Ok(nix::unistd::fsync(&folder.fd)?) } else { Ok(()) };
                }
                None => self.nameless.store(false, Ordering::Relaxed),
            }
        }
        let file = create(&folder.fd, &partial, true)?;
        let written = file.write_all_at(content, 0);
        let written = written.and_then(|()| self.name(&file, &folder.fd, &partial, name, &item.meta));
        if written.is_err() {
            let _ = files::remove(&folder.fd, &partial);
        }
        written
    }

    /// Gives a whole file what it had at its source, and its name.
    fn name(&self, file: &File, folder: &OwnedFd, partial: &PathBuf, name: &Name, meta: &Meta) -> io::Result<()> {
        files::dress(file, meta, false)?;
        if self.options.fsync {
            file.sync_all()?;
        }
        nix::fcntl::renameat(folder, partial, folder, files::part(name.last()))?;
        if self.options.fsync {
            nix::unistd::fsync(folder)?;
        }
        Ok(())
    }

    /// A file is under its name.
    fn done(&self, item: &FileItem) -> Result<(), TransferError> {
        let version = Version { name: &item.name, size: item.size, mtime: item.meta.mtime };
        lock(&self.journal).add(&Record::Done { file: version.key() }).map_err(local("writing the journal"))?;
        lock(&self.summary).files += 1;
        self.counters.done_files.fetch_add(1, Ordering::Relaxed);
        if item.size <= SMALL {
            self.counters.done_bytes.fetch_add(item.size, Ordering::Relaxed);
        }
        Ok(())
    }

    // Large files

    fn slot(&self, id: u64, item: &FileItem) -> Result<Slot, TransferError> {
        let mut large = lock(&self.large);
        if let Some(slot) = large.get(&id) {
            return Ok(slot.clone());
        }
        if large.values().filter(|slot| slot.is_some()).count() > MOST_LARGE {
            return Err(self.damaged("more files at once than there should be"));
        }
        let ended = lock(&self.early).remove(&id);
        // Of a file that is given up already, what still comes is let pass; the sender knows.
        let given_up = matches!(ended, Some(Some(_)));
        let opened =
            if given_up { None } else { Some(timed(&self.counters.disk_ns, || self.open_apart(item, &large))) };
        let slot = match opened {
            None => None,
            Some(Ok(opened)) => {
                lock(&opened.state).ended = ended;
                Some(Arc::new(opened))
            }
            Some(Err(e)) => {
                self.leave(item.name.bytes(), &e)?;
                if ended.is_some() {
                    self.session.send(&Message::FileDone { id })?;
                }
                None
            }
        };
        large.insert(id, slot.clone());
        Ok(slot)
    }

    /// Two that are written at once under one name would be mixed.
    fn open_apart(&self, item: &FileItem, others: &HashMap<u64, Slot>) -> io::Result<Large> {
        if others.values().flatten().any(|other| other.item.name == item.name) {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "another source brings a file of this name"));
        }
        self.open(item)
    }

    fn open(&self, item: &FileItem) -> io::Result<Large> {
        let name = self.named(&item.name)?;
        let folder = self.root.folder(name.parent().as_ref())?;
        let partial = self.partial(&name);
        let key = Version { name: &item.name, size: item.size, mtime: item.meta.mtime }.key();
        let kept = lock(&self.kept).remove(&key);
        let file = create(&folder, &partial, kept.is_none())?;
        file.set_len(item.size)?;
        if kept.is_none() && !item.sparse && !files::in_memory(&file) {
            // A disk that is too small is found out now. Not every file system can promise room.
            let room = nix::fcntl::fallocate(&file, FallocateFlags::FALLOC_FL_KEEP_SIZE, 0, item.size as i64);
            if room == Err(nix::errno::Errno::ENOSPC) {
                return Err(nix::errno::Errno::ENOSPC.into());
            }
        }
        let state = Mutex::new(LargeState { covered: kept.unwrap_or(0), ..LargeState::default() });
        let past_cache = direct::wanted(self.options.direct, &file, item.size);
        let direct = if past_cache { direct::again(&file, true) } else { None };
        Ok(Large { item: item.clone(), name, key, folder, partial, file, direct, state })
    }

    /// Receives a whole block, to be written by the other thread; none where the sender could not read it.
    fn fill(
        &self,
        stream: &mut Stream,
        id: u64,
        large: Arc<Large>,
        extent: Extent,
        mut data: Aligned,
    ) -> Result<Option<Filled>, TransferError> {
        let mut hasher = blake3::Hasher::new();
        for piece in data.first(extent.len as usize).chunks_mut(PIECE) {
            let read = timed(&self.counters.net_ns, || stream.read_exact(piece));
            read.map_err(|e| self.session.lost("receiving", e))?;
            self.session.moved(piece.len() as u64);
            timed(&self.counters.hash_ns, || hasher.update(piece));
        }
        let trailer = self.trailer(stream)?;
        if !trailer.good {
            return Ok(None);
        }
        let digest = hasher.finalize();
        if digest != blake3::Hash::from_bytes(trailer.digest) {
            lock(&large.state).damaged = true;
            self.close(id, &large)?;
            return Ok(None);
        }
        lock(&self.summary).bytes += extent.len;
        self.counters.wire_bytes.fetch_add(extent.len, Ordering::Relaxed);
        Ok(Some(Filled { id, large, extent, data, digest: *digest.as_bytes() }))
    }

    fn block(
        &self,
        stream: &mut Stream,
        buffer: &mut [u8],
        id: u64,
        slot: Slot,
        extent: Extent,
    ) -> Result<(), TransferError> {
        let mut hasher = blake3::Hasher::new();
        let (mut at, mut rest) = (extent.offset, extent.len);
        let mut failed = None;
        while rest > 0 {
            let piece = &mut buffer[..PIECE.min(rest as usize)];
            let read = timed(&self.counters.net_ns, || stream.read_exact(piece));
            read.map_err(|e| self.session.lost("receiving", e))?;
            self.session.moved(piece.len() as u64);
            timed(&self.counters.hash_ns, || hasher.update(piece));
            if let (Some(large), None) = (&slot, &failed) {
                failed = timed(&self.counters.disk_ns, || large.file.write_all_at(piece, at)).err();
            }
            at += piece.len() as u64;
            rest -= piece.len() as u64;
        }
        let trailer = self.trailer(stream)?;
        let digest = hasher.finalize();
        if !trailer.good {
            // The sender gives the reason with its last word on the file.
            return Ok(());
        }
        if digest != blake3::Hash::from_bytes(trailer.digest) {
            let Some(large) = slot else { return Ok(()) };
            lock(&large.state).damaged = true;
            return self.close(id, &large);
        }
        lock(&self.summary).bytes += extent.len;
        self.counters.wire_bytes.fetch_add(extent.len, Ordering::Relaxed);
        if let (Some(large), Some(e)) = (&slot, failed) {
            return self.give_up(id, large, &e);
        }
        self.covered(id, slot, extent, Some(*digest.as_bytes()))
    }

    /// Bytes of a large file are in place.
    fn covered(&self, id: u64, slot: Slot, extent: Extent, digest: Option<[u8; 32]>) -> Result<(), TransferError> {
        let Some(large) = slot else { return Ok(()) };
        let record = Record::Block { file: large.key, extent, digest };
        lock(&self.journal).add(&record).map_err(local("writing the journal"))?;
        self.counters.done_bytes.fetch_add(extent.len, Ordering::Relaxed);
        self.session.moved(1);
        lock(&large.state).covered += extent.len;
        self.close(id, &large)
    }

    /// Gives a file its name, if that is all that is left to do.
    fn close(&self, id: u64, large: &Large) -> Result<(), TransferError> {
        let failed = {
            let mut state = lock(&large.state);
            let Some(ended) = &state.ended else { return Ok(()) };
            let failed = ended.clone();
            if state.damaged && failed.is_none() {
                return Err(self.damaged("a block"));
            }
            if state.over || (failed.is_none() && state.covered < large.item.size) {
                return Ok(());
            }
            state.over = true;
            failed
        };
        let result = timed(&self.counters.disk_ns, || match &failed {
            // Its content is of no use: the source is another by now.
            Some(_) => files::remove(&large.folder, &large.partial),
            None => self.name(&large.file, &large.folder, &large.partial, &large.name, &large.item.meta),
        });
        match (result, &failed) {
            (Ok(()), None) => self.done(&large.item)?,
            (Ok(()), Some(_)) => {}
            (Err(e), _) => self.leave(large.item.name.bytes(), &e)?,
        }
        if failed.is_some() {
            lock(&self.large).insert(id, None);
        } else {
            lock(&self.large).remove(&id);
        }
        self.session.send(&Message::FileDone { id })?;
        self.part_over(false)
    }

    fn file_end(&self, id: u64, failed: Option<String>) -> Result<(), TransferError> {
        // Held until it is clear that no block has come: a stream looks for this word under the same lock.
        let slots = lock(&self.large);
        match slots.get(&id).cloned() {
            Some(Some(large)) => {
                drop(slots);
                lock(&large.state).ended = Some(failed);
                self.close(id, &large)
            }
            Some(None) => {
                drop(slots);
                self.session.send(&Message::FileDone { id })?;
                self.part_over(false)
            }
            None => {
                let failed_at_once = failed.is_some();
                lock(&self.early).insert(id, failed);
                drop(slots);
                if failed_at_once { self.session.send(&Message::FileDone { id }) } else { Ok(()) }
            }
        }
    }

    // Earlier attempts

    fn want(&self, item: &FileItem) -> Result<Want, TransferError> {
        let key = Version { name: &item.name, size: item.size, mtime: item.meta.mtime }.key();
        let there = || -> io::Result<bool> {
            let name = self.named(&item.name)?;
            let file = self.root.open_at(name.path(), OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK, 0)?;
            files::unchanged(&File::from(file), item.size, item.meta.mtime)
        };
        if (self.options.update || self.past.done.contains(&key)) && there().unwrap_or(false) {
            let mut summary = lock(&self.summary);
            summary.files += 1;
            summary.skipped += 1;
            self.counters.done_files.fetch_add(1, Ordering::Relaxed);
            self.counters.done_bytes.fetch_add(item.size, Ordering::Relaxed);
            return Ok(Want::Nothing);
        }
        let Some(blocks) = self.past.blocks.get(&key).filter(|_| item.size > SMALL) else { return Ok(Want::All) };
        let have = self.intact(item, blocks).unwrap_or_default();
        let total: u64 = have.iter().map(|extent| extent.len).sum();
        if total == 0 || total > item.size {
            return Ok(Want::All);
        }
        self.counters.done_bytes.fetch_add(total, Ordering::Relaxed);
        lock(&self.kept).insert(key, total);
        if total < item.size {
            return Ok(Want::But(have));
        }
        // Only the name was missing.
        match self.open(item) {
            Ok(large) => match self.name(&large.file, &large.folder, &large.partial, &large.name, &item.meta) {
                Ok(()) => self.done(item)?,
                Err(e) => self.leave(item.name.bytes(), &e)?,
            },
            Err(e) => self.leave(item.name.bytes(), &e)?,
        }
        Ok(Want::Nothing)
    }

    /// Those blocks of a partial file that are what the journal says, in order, without overlaps.
    fn intact(&self, item: &FileItem, blocks: &[(Extent, Option<[u8; 32]>)]) -> io::Result<Vec<Extent>> {
        let name = self.named(&item.name)?;
        let folder = self.root.folder(name.parent().as_ref())?;
        let how = OFlag::O_RDONLY | OFlag::O_NOFOLLOW;
        let file = File::from(Root::from_fd(folder).open_at(&self.partial(&name), how, 0)?);
        let mut blocks = blocks.to_vec();
        blocks.sort_by_key(|(extent, _)| extent.offset);
        let mut good: Vec<Extent> = Vec::new();
        let mut buffer = vec![0; PIECE];
        for (extent, digest) in blocks {
            let behind = good.last().and_then(Extent::end).unwrap_or(0);
            if extent.offset < behind || extent.end().is_none_or(|end| end > item.size) || self.session.is_over() {
                continue;
            }
            if let Some(digest) = digest {
                let mut hasher = blake3::Hasher::new();
                let (mut at, mut rest) = (extent.offset, extent.len);
                while rest > 0 {
                    let piece = &mut buffer[..PIECE.min(rest as usize)];
                    if file.read_exact_at(piece, at).is_err() {
                        break;
                    }
                    hasher.update(piece);
                    at += piece.len() as u64;
                    rest -= piece.len() as u64;
                }
                self.session.moved(extent.len);
                if rest > 0 || hasher.finalize() != blake3::Hash::from_bytes(digest) {
                    continue;
                }
            }
            good.push(extent);
        }
        Ok(good)
    }

    // Folders, links and the end

    fn folder(&self, name: &Name, meta: Meta) -> Result<(), TransferError> {
        let made = self.named(name).and_then(|name| {
            let folder = File::from(self.root.folder(Some(&name))?);
            files::set_xattrs(&folder, &meta)
        });
        match made {
            Ok(()) => {
                // They may be longer than a record, and need not wait.
                let record = Record::Folder { name: name.clone(), meta: Meta { xattrs: Vec::new(), ..meta } };
                lock(&self.journal).add(&record).map_err(local("writing the journal"))
            }
            Err(e) => self.leave(name.bytes(), &e),
        }
    }

    fn link(&self, name: &Name, target: &[u8], meta: &Meta) -> Result<(), TransferError> {
        let make = || -> io::Result<()> {
            let name = self.named(name)?;
            let folder = self.root.folder(name.parent().as_ref())?;
            let partial = self.partial(&name);
            files::remove(&folder, &partial)?;
            nix::unistd::symlinkat(files::part(target), &folder, &partial)?;
            files::dress_link(&folder, &partial, meta)?;
            Ok(nix::fcntl::renameat(&folder, &partial, &folder, files::part(name.last()))?)
        };
        make().or_else(|e| self.leave(name.bytes(), &e))
    }

    /// A stream has ended, or a file, or the sender's list: perhaps it was the last.
    fn part_over(&self, stream: bool) -> Result<(), TransferError> {
        {
            let mut end = lock(&self.end);
            end.streams -= usize::from(stream);
            if end.streams > 0 || !end.all_sent || self.session.is_over() {
                return Ok(());
            }
        }
        {
            let large = lock(&self.large);
            if large.values().any(Option::is_some) {
                return Ok(());
            }
            let mut end = lock(&self.end);
            // Only one thread comes here twice over.
            if std::mem::replace(&mut end.all_sent, false) {
                drop(end);
            } else {
                return Ok(());
            }
        }
        self.dress_folders()?;
        let (summary, left_here) = {
            let summary = lock(&self.summary);
            (summary.clone(), summary.left_total)
        };
        // What is left may go better the next time, and then what is done need not be sent again.
        if left_here + lock(&self.end).left_total == 0 {
            files::remove(self.root.as_fd(), &self.journal_name).map_err(local("removing the journal"))?;
        } else {
            lock(&self.journal).flush().map_err(local("writing the journal"))?;
        }
        self.tell_progress();
        if let Some(trace) = &self.trace {
            trace.tell(&self.session)?;
        }
        self.all_done.store(true, Ordering::SeqCst);
        // If the sender is gone, it will ask again and be told that all is there.
        self.session.send(&Message::AllDone(summary))
    }

    fn dress_folders(&self) -> Result<(), TransferError> {
        let mut closed = Vec::new();
        let mut failed = Vec::new();
        let mut dress = |name: Name, meta: &Meta| {
            let done = self.named(&name).and_then(|name| {
                let how = OFlag::O_RDONLY | OFlag::O_DIRECTORY;
                files::dress_folder(self.root.open_at(name.path(), how, 0)?, meta)
            });
            if let Err(e) = done {
                failed.push((name, e));
            }
        };
        lock(&self.journal)
            .folders(|name, meta| {
                // One that its owner may not enter is closed when all below it is done.
                if meta.mode & 0o700 == 0o700 { dress(name, &meta) } else { closed.push((name, meta)) }
            })
            .map_err(local("reading the journal"))?;
        for (name, meta) in closed.into_iter().rev() {
            dress(name, &meta);
        }
        failed.into_iter().try_for_each(|(name, e)| self.leave(name.bytes(), &e))
    }
}

/// Makes a file, new or as an earlier attempt has left it.
fn create(folder: impl AsFd, name: &PathBuf, new: bool) -> io::Result<File> {
    let how = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
    let mode = nix::sys::stat::Mode::S_IRUSR | nix::sys::stat::Mode::S_IWUSR;
    if !new {
        return Ok(File::from(nix::fcntl::openat(&folder, name, how, mode)?));
    }
    match nix::fcntl::openat(&folder, name, how | OFlag::O_EXCL, mode) {
        Err(nix::errno::Errno::EEXIST) => {
            files::remove(&folder, name)?;
            Ok(File::from(nix::fcntl::openat(&folder, name, how | OFlag::O_EXCL, mode)?))
        }
        other => Ok(File::from(other?)),
    }
}

impl Handler for Receiver {
    fn handle(&self, message: Message) -> Result<bool, TransferError> {
        match message {
            Message::Folder { name, meta } => self.folder(&name, meta)?,
            Message::Link { name, target, meta } => self.link(&name, &target, &meta)?,
            Message::FileEnd { id, failed } => self.file_end(id, failed)?,
            Message::Offer(items) => {
                if let Some(offers) = &*lock(&self.offers) {
                    // The other side of the channel lives as long as this.
                    let _ = offers.send(items);
                }
            }
            Message::Totals { bytes, files, all } => {
                self.counters.found_bytes.store(bytes, Ordering::Relaxed);
                self.counters.found_files.store(files, Ordering::Relaxed);
                self.counters.found_all.store(u64::from(all), Ordering::Relaxed);
            }
            Message::AllSent { left, left_total } => {
                {
                    let mut end = lock(&self.end);
                    end.all_sent = true;
                    (end.left, end.left_total) = (left, left_total);
                }
                lock(&self.offers).take();
                self.part_over(false)?;
            }
            Message::Report { end, samples, last } => {
                lock(&self.told).take(&end, &samples);
                if last && self.is_done() {
                    self.session.finish();
                    return Ok(true);
                }
            }
            other => return Err(self.session.unexpected(&other)),
        }
        self.session.moved(1);
        Ok(false)
    }

    fn is_done(&self) -> bool {
        self.all_done.load(Ordering::SeqCst)
    }
}
