//! The sending end of a session: its state, the walk through the sources, and the receiver's messages.
//!
//! # Locks
//!
//! [`Sender::state`] guards the schedule and all counts; [`OutgoingFile`] has small locks of its own. No thread holds two
//! of them at a time, and none while it reads a file or sends a message.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use fullpipe_net::Observed;
use fullpipe_net::side::Side;

use crate::connection::session::{Handler, Session};
use crate::connection::stream::Stream;
use crate::error::{TransferError, unreadable};
use crate::fs::large_file::SourceFile;
use crate::fs::metadata::{self, Attributes};
use crate::fs::{content_hash, sparse};
use crate::protocol::chunk::{self};
use crate::protocol::digest::Key;
use crate::protocol::file::{Extent, FileItem};
use crate::protocol::message::{Message, Options, Removed, Summary, Terms, Want};
use crate::protocol::name::{Name, printable};
use crate::protocol::not_kept::NotKept;
use crate::protocol::skipped::{Skipped, SkippedEntry};
use crate::send::input::TOTALS_INTERVAL;
use crate::send::local_streams::{LocalStreams, Seen};
use crate::send::outgoing::{Outgoing, OutgoingFile};
use crate::send::portion::Portion;
use crate::send::schedule::{self, Plan};
use crate::send::turns::Turns;
use crate::sizes::{MAX_HEADER_BYTES, MAX_OFFERED_FILES, SMALL, block_size};
use crate::source::hard_links::{HardLinks, Known};
use crate::source::listing;
use crate::source::removal::Changed;
use crate::source::tree::WalkOptions;
use crate::source::walk::{self, FileLocation, Found};
use crate::telemetry::counters::Counters;
use crate::telemetry::losses::Segments;
use crate::telemetry::trace::{Trace, Traces};
use crate::threads::{lock, thread};

/// Most files that wait to be sent. With more, the walk waits.
const MAX_WAITING_FILES: usize = 16 << 10;
/// Most large files that are being sent at once.
const MAX_LARGE_FILES: usize = 32;
/// Most offers that wait for an answer.
const MAX_UNANSWERED_OFFERS: usize = 16;

/// What is to be sent, and how far each end is.
pub(super) struct State {
    /// The order of work.
    pub(super) plan: Plan<Arc<OutgoingFile>>,
    /// How much of it a stream takes at once.
    pub(super) portion: Portion,
    /// Offers that the receiver has not answered, oldest first.
    pub(super) offers: VecDeque<Vec<Arc<OutgoingFile>>>,
    /// Answered offers whose files are not in the plan yet.
    pub(super) answers: VecDeque<(Vec<Arc<OutgoingFile>>, Vec<Want>)>,
    /// Number of answers whose files are being put in the plan.
    pub(super) planning: usize,
    /// Whether the walk through the sources is over.
    pub(super) walked: bool,
    /// Whether the receiver has asked for the names in the sources' folders.
    listed: bool,
    /// Large files that the receiver has not finished, by number.
    pub(super) under_way: HashMap<u64, Arc<OutgoingFile>>,
    /// What this end could not read.
    pub(super) skipped: Skipped,
    /// What this end could not send of files that it sends.
    pub(super) not_kept: NotKept,
    /// Number of streams that have not ended.
    pub(super) streams: usize,
    /// Number of streams that may take work: the first ones.
    pub(super) sending: u16,
    /// When those begin that were allowed to last.
    pub(super) turns: Turns,
    /// The receiver's last `moved` counter ([`Message::Progress`]).
    pub(super) moved_there: u64,
    /// Number of threads that wait for a change of this state.
    pub(super) waiters: usize,
    /// Number of streams that may not take work yet.
    pub(super) parked: usize,
    /// The receiver's result, once everything is done.
    pub(super) summary: Option<Summary>,
}

/// What was removed of the sources so far.
#[derive(Default)]
pub(super) struct Removals {
    pub(super) removed: Removed,
    /// What the receiver has, and what is removed only when everything is done.
    pub(super) late: HashMap<Name, u64>,
    pub(super) changed: Changed,
    /// Whether the receiver's journal is in the source's folder, so that what was copied are the copies, too. `None`: not looked.
    pub(super) is_destination: Option<bool>,
}

/// The sending end of a session. Threads share it: the walk, one for each stream and one that reads ahead for it, one that
/// plans answers to offers, and the session's own, which hands it messages.
pub struct Sender {
    pub(super) session: Arc<Session>,
    pub(super) options: Options,
    /// Whether files are offered before they are sent, because the receiver may have some already.
    pub(super) offer: bool,
    /// Number in the name of the receiver's journal ([`Terms::journal`]).
    pub(super) journal: Option<u64>,
    /// Key of the blocks' digests ([`Terms::key`]).
    pub(super) key: Key,
    /// Key of the tags of this attempt's chunks.
    pub(super) tags: Key,
    /// Most bytes of a block.
    pub(super) block: u64,
    /// What is sent.
    pub(super) from: Outgoing,
    /// This sender, for threads that start later.
    this: Weak<Sender>,
    /// Guards the schedule and the counts.
    pub(super) state: Mutex<State>,
    /// Wakes threads that wait for a change of `state`.
    pub(super) changed: Condvar,
    /// Wakes streams that may not take work yet. They would be woken for each block otherwise.
    pub(super) released: Condvar,
    /// Round-trip time of the path, if a law adjusts the streams; zero otherwise.
    pub(super) rtt: Duration,
    /// Guards the number of streams that disks or losses call for; `None` where something else decides that.
    local_streams: Option<Mutex<LocalStreams>>,
    /// The time that the decisions on it count from.
    begun: Instant,
    /// Guards what was removed of the sources. It is held while a source is removed.
    pub(super) removals: Mutex<Removals>,
    /// Both ends' samples of TCP_INFO, if samples were asked for. It has locks of its own.
    pub(super) traces: Traces,
    /// Counters for displays.
    pub counters: Arc<Counters>,
}

impl Sender {
    /// Starts the threads of a sending end. Of the streams, the given number send from the start; where a law adjusts them,
    /// `rtt` is the path's round-trip time; otherwise the others follow if disks or losses call for them. The session ends with the
    /// receiver's last message.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn start(
        session: Arc<Session>,
        options: Options,
        from: Outgoing,
        (streams, sending): (Vec<Stream>, u16),
        rtt: Option<Duration>,
        terms: Terms,
        counters: Arc<Counters>,
    ) -> Result<Arc<Sender>, TransferError> {
        let n = streams.len();
        let block = block_size(options.block, n);
        let state = State {
            plan: Plan::new(block, n as u16, chunk::PACK_FILES),
            portion: Portion::new(),
            offers: VecDeque::new(),
            answers: VecDeque::new(),
            planning: 0,
            walked: false,
            listed: false,
            under_way: HashMap::new(),
            skipped: Skipped::default(),
            not_kept: NotKept::default(),
            streams: n,
            sending,
            turns: Turns::new(sending, Instant::now()),
            moved_there: 0,
            waiters: 0,
            parked: 0,
            summary: None,
        };
        let traces = Traces::start(&session, &streams, Side::Sender, options.sample_ns)?;
        let is_trees = matches!(from, Outgoing::Trees(_));
        let sender = Arc::new_cyclic(|this| Sender {
            this: this.clone(),
            from,
            traces,
            session: session.clone(),
            options,
            offer: is_trees && (terms.offer || options.keeps_same()),
            key: terms.key,
            tags: terms.tags,
            journal: terms.journal,
            block,
            state: Mutex::new(state),
            rtt: rtt.unwrap_or_default(),
            local_streams: (rtt.is_none() && is_trees).then(|| Mutex::new(LocalStreams::new(sending, n as u16))),
            begun: Instant::now(),
            removals: Mutex::default(),
            changed: Condvar::new(),
            released: Condvar::new(),
            counters,
        });
        let waker = Arc::downgrade(&sender);
        session.alarm(move || {
            if let Some(sender) = waker.upgrade() {
                sender.wake(&lock(&sender.state));
                sender.released.notify_all();
            }
        });
        for (i, stream) in streams.into_iter().enumerate() {
            let sender = sender.clone();
            thread("stream", move || {
                let result = sender.stream(i as u16, stream);
                sender.check(result);
            })?;
        }
        if sender.offer {
            let planner = sender.clone();
            thread("plan", move || {
                let result = planner.plan_answers();
                planner.check(result);
            })?;
        }
        if is_trees {
            let walker = sender.clone();
            thread("walk", move || {
                let result = walker.walk();
                walker.check(result);
            })?;
        }
        Ok(sender)
    }

    /// The receiver's result, once the session has ended well, and what this end skipped.
    pub fn summary(&self) -> (Summary, Skipped) {
        let mut state = lock(&self.state);
        let summary = state.summary.take().unwrap_or_default();
        (summary, std::mem::take(&mut state.skipped))
    }

    /// Bytes that no stream has taken yet; `None` as long as the walk or small files add to them.
    pub(crate) fn rest(&self) -> Option<u64> {
        lock(&self.state).plan.rest()
    }

    /// Takes in what the streams have sent so far.
    pub(crate) fn has_sent(&self, segments: Segments) {
        if let Some(streams) = &self.local_streams {
            lock(streams).segments = segments;
        }
    }

    /// Lets as many streams send as the disks of both ends and losses call for.
    fn choose_streams(&self) {
        let Some(streams) = &self.local_streams else { return };
        let seen = Seen {
            at_ns: self.begun.elapsed().as_nanos() as u64,
            bytes: self.counters.come_bytes.load(Ordering::Relaxed),
            sender: self.counters.times(),
            receiver: *lock(&self.counters.other),
        };
        if let Some(sending) = lock(streams).see(seen) {
            lock(&self.state).sending = sending;
            self.released.notify_all();
        }
    }

    /// This end's samples and the receiver's, if samples were asked for.
    pub(crate) fn trace(&self) -> (Option<Arc<Trace>>, Option<Observed>) {
        self.traces.both()
    }

    pub(super) fn check(&self, result: Result<(), TransferError>) {
        if let Err(error) = result {
            self.session.fail(error);
        }
    }

    /// Skips a file that cannot be sent.
    pub(super) fn skip_entry(&self, entry: SkippedEntry) {
        lock(&self.state).skipped.add(entry);
    }

    /// Skips a file that cannot be read.
    pub(super) fn skip(&self, name: &[u8], why: impl std::fmt::Display) {
        self.skip_entry(SkippedEntry::new(name, why));
    }

    /// Reads the part of a file's metadata that takes an open file: extended attributes, of which those that cannot be sent
    /// are counted, or else the mode that the file has without its access control list.
    pub(super) fn describe(&self, file: &File, item: &mut FileItem) {
        let kinds = Attributes::of(&self.options);
        if !kinds.access_lists {
            item.meta.mode = metadata::mode_without_list(file, item.meta.mode);
        }
        if !kinds.is_none() && item.meta.xattrs.is_empty() {
            item.meta.xattrs = metadata::xattrs(file, kinds, &mut |attribute, why| {
                let why = format!("extended attribute {}: {why}", printable(attribute));
                lock(&self.state).not_kept.refuse(item.name.bytes(), why);
            });
        }
    }

    /// Counts a file that becomes one of its own, although it is a hard link to another.
    fn not_linked(&self, item: &FileItem) {
        let mut state = lock(&self.state);
        state.not_kept.hard_links.add(item.name.bytes(), "each becomes a file of its own; -H keeps them");
        state.not_kept.hard_link_bytes = state.not_kept.hard_link_bytes.saturating_add(item.size);
    }

    /// Hashes the content of a file that the receiver compares; `None` if it cannot be read, which is reported when it is to
    /// be sent. Tells the receiver once a second that this end is at work.
    fn content(&self, at: &FileLocation) -> Result<Option<[u8; 32]>, TransferError> {
        let (mut told, mut telling) = (Instant::now(), Ok(()));
        let hash = at.read().and_then(|file| {
            content_hash::of(&file, &mut |bytes| {
                self.session.moved(bytes);
                if told.elapsed() >= TOTALS_INTERVAL && telling.is_ok() {
                    told = Instant::now();
                    telling = self.tell_totals();
                }
            })
        });
        telling.map(|()| hash.ok())
    }

    /// Walks the sources, and plans or offers what it finds.
    fn walk(&self) -> Result<(), TransferError> {
        let mut next_id = 1;
        let mut batch = Vec::new();
        let sight = WalkOptions::from(&self.options);
        let mut links = HardLinks::new(self.options.hard_links);
        for place in self.from.trees() {
            walk::walk(place, sight, &mut |found| {
                if self.session.is_over() {
                    return Err(TransferError::Interrupted);
                }
                self.session.moved(1);
                match found {
                    Found::File { mut item, at, inode } => {
                        match links.find(inode, &item.name) {
                            Known::No => {}
                            Known::Counted => self.not_linked(&item),
                            Known::Under(to) => {
                                self.counters.found_files.fetch_add(1, Ordering::Relaxed);
                                self.counters.named(&item.name);
                                return self.session.send(&Message::HardLink { item, to });
                            }
                        }
                        // A file that cannot be opened is reported when it is to be sent. The attributes of small files are
                        // read with their content, unless the receiver compares them first.
                        if (item.size > SMALL || self.offer)
                            && let Ok(file) = at.read()
                        {
                            self.describe(&file, &mut item);
                        }
                        if self.options.checksum {
                            item.content = self.content(&at)?;
                        }
                        self.counters.found_bytes.fetch_add(item.size, Ordering::Relaxed);
                        let files = self.counters.found_files.fetch_add(1, Ordering::Relaxed);
                        if files % 4096 == 4095 {
                            self.tell_totals()?;
                        }
                        let source = OutgoingFile {
                            id: next_id,
                            item,
                            at,
                            rest: AtomicU64::new(0),
                            sent: AtomicU64::new(0),
                            open: Mutex::default(),
                            bad: Mutex::default(),
                            unwanted: AtomicBool::new(false),
                        };
                        next_id += 1;
                        self.found(Arc::new(source), &mut batch)
                    }
                    Found::Folder { name, meta, .. } => self.session.send(&Message::Folder { name, meta }),
                    Found::Link { name, target, changed, meta } => {
                        if !self.options.keeps_same() {
                            self.counters.named(&name);
                        }
                        self.session.send(&Message::Link { name, target, changed, meta })
                    }
                    Found::Omitted(_) => Ok(()),
                    Found::Skipped(entry) => {
                        self.skip_entry(entry);
                        Ok(())
                    }
                    Found::Attribute(name, why) => {
                        lock(&self.state).not_kept.refuse(&name, why);
                        Ok(())
                    }
                }
            })?;
        }
        self.make_offer(&mut batch)?;
        self.counters.found_all.store(1, Ordering::Relaxed);
        self.tell_totals()?;
        self.walked(&mut lock(&self.state));
        Ok(())
    }

    /// Notes that nothing more will be found.
    pub(super) fn walked(&self, state: &mut State) {
        state.walked = true;
        self.settle(state);
    }

    /// Plans a file that was found, or adds it to the next offer.
    fn found(&self, source: Arc<OutgoingFile>, batch: &mut Vec<Arc<OutgoingFile>>) -> Result<(), TransferError> {
        if !self.offer {
            self.wait_until(|state| state.plan.waiting() < MAX_WAITING_FILES);
            return self.plan(source, &[]);
        }
        batch.push(source);
        let weight: usize = batch.iter().map(|source| source.item.weight()).sum();
        if batch.len() >= MAX_OFFERED_FILES || weight > MAX_HEADER_BYTES { self.make_offer(batch) } else { Ok(()) }
    }

    /// Offers a batch of files, and waits for room first.
    fn make_offer(&self, batch: &mut Vec<Arc<OutgoingFile>>) -> Result<(), TransferError> {
        let room = |state: &State| {
            state.offers.len() + state.answers.len() < MAX_UNANSWERED_OFFERS && state.plan.waiting() < MAX_WAITING_FILES
        };
        if batch.is_empty() || !self.wait_until(room) {
            return Ok(());
        }
        let items = batch.iter().map(|source| source.item.clone()).collect();
        lock(&self.state).offers.push_back(std::mem::take(batch));
        self.session.send(&Message::Offer(items))
    }

    /// Plans what the receiver asks for in its answers to offers.
    fn plan_answers(&self) -> Result<(), TransferError> {
        loop {
            let due = |state: &State| !state.answers.is_empty() || (state.walked && state.offers.is_empty());
            if !self.wait_until(due) {
                return Ok(());
            }
            let answer = {
                let mut state = lock(&self.state);
                state.planning = 1;
                state.answers.pop_front()
            };
            let over = answer.is_none();
            for (source, want) in answer.into_iter().flat_map(|(offered, wants)| offered.into_iter().zip(wants)) {
                match want {
                    Want::Nothing => {}
                    Want::Newer => self.counters.kept(&source.item.name),
                    Want::All => self.plan(source, &[])?,
                    Want::But(have) => self.plan(source, &have)?,
                }
            }
            let mut state = lock(&self.state);
            state.planning = 0;
            self.settle(&mut state);
            if over {
                return Ok(());
            }
        }
    }

    /// Tells the receiver the names in all folders of the sources.
    fn list(&self) -> Result<(), TransferError> {
        let unreadable = listing::list(self.from.trees(), WalkOptions::from(&self.options), &mut |part| {
            self.session.moved(1);
            self.session.send(&Message::Listing(part))
        })?;
        lock(&self.state).skipped.merge(unreadable.clone());
        self.session.send(&Message::Listed(unreadable))
    }

    /// Tells the receiver how much the walk has found so far.
    pub(super) fn tell_totals(&self) -> Result<(), TransferError> {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        self.session.send(&Message::Totals {
            bytes: read(&self.counters.found_bytes),
            files: read(&self.counters.found_files),
            all: read(&self.counters.found_all) > 0,
        })
    }

    /// Call this after every change of the state. It completes the plan if nothing more will be added, and wakes threads.
    fn settle(&self, state: &mut State) {
        if state.walked && state.offers.is_empty() && state.answers.is_empty() && state.planning == 0 {
            state.plan.complete();
        }
        self.wake(state);
    }

    /// Wakes threads that wait for a change, if there are any: a system call for every small file would show.
    pub(super) fn wake(&self, state: &State) {
        if state.waiters > 0 {
            self.changed.notify_all();
        }
        if state.parked > 0 && state.plan.rest() == Some(0) {
            self.released.notify_all();
        }
    }

    /// Waits for a change of the state.
    pub(super) fn wait<'a>(&self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        state.waiters += 1;
        let mut state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        state.waiters -= 1;
        state
    }

    /// Waits until a condition holds. Returns false if the session is over first.
    fn wait_until(&self, mut is: impl FnMut(&State) -> bool) -> bool {
        let mut state = lock(&self.state);
        loop {
            if self.session.is_over() {
                return false;
            }
            if is(&state) {
                return true;
            }
            state = self.wait(state);
        }
    }

    /// Puts a file in the plan. The receiver has the extents `have` already.
    fn plan(&self, source: Arc<OutgoingFile>, have: &[Extent]) -> Result<(), TransferError> {
        self.counters.named(&source.item.name);
        if source.item.size <= SMALL {
            let mut state = lock(&self.state);
            let size = source.item.size;
            state.plan.add_small(source, size);
            self.settle(&mut state);
            return Ok(());
        }
        if !self.wait_until(|state| state.under_way.len() < MAX_LARGE_FILES) {
            return Ok(());
        }
        let extents = source.at.read().and_then(|file| {
            let list = sparse::extents(&file, source.item.size)?;
            let open = SourceFile::new(file, self.options.direct, source.item.size);
            *lock(&source.open) = Some(Arc::new(open));
            Ok(list)
        });
        let extents = match extents {
            Ok(list) => schedule::without(&list, have),
            Err(e) => {
                self.skip(source.item.name.bytes(), unreadable(&e));
                return Ok(());
            }
        };
        let rest: u64 = extents.iter().map(|(extent, _)| extent.len).sum();
        source.rest.store(rest, Ordering::SeqCst);
        {
            let mut state = lock(&self.state);
            state.under_way.insert(source.id, source.clone());
            state.plan.add_large(source.clone(), extents);
            self.settle(&mut state);
        }
        if rest == 0 { self.end(&source) } else { Ok(()) }
    }
}

impl Handler for Sender {
    fn handle(&self, message: Message) -> Result<bool, TransferError> {
        match message {
            Message::Want(wants) => {
                let offered = lock(&self.state).offers.front().cloned();
                let Some(offered) = offered.filter(|offered| offered.len() == wants.len()) else {
                    let why = "an answer to no question".to_owned();
                    return Err(TransferError::Stranger { peer: self.session.peer.clone(), why });
                };
                // The files are planned by another thread: planning may wait for room, which further messages make.
                let mut state = lock(&self.state);
                state.offers.pop_front();
                state.answers.push_back((offered, wants));
                self.wake(&state);
            }
            Message::Streams { sending } => {
                let mut state = lock(&self.state);
                if sending > state.sending {
                    state.turns = Turns::of_more(state.sending, sending, Instant::now());
                }
                // One that is to cease ends its block first.
                state.sending = sending.max(1);
                self.released.notify_all();
            }
            Message::FileDone { id } => {
                let mut state = lock(&self.state);
                state.under_way.remove(&id);
                self.wake(&state);
                self.session.moved(1);
            }
            Message::Unwanted { id } => {
                self.from.input().iter().for_each(|input| input.give_up());
                if let Some(source) = lock(&self.state).under_way.get(&id) {
                    source.unwanted.store(true, Ordering::Relaxed);
                }
            }
            Message::Progress { bytes, files, come, partial, moved, times } => {
                self.counters.come_bytes.store(come, Ordering::Relaxed);
                self.counters.partial_bytes.store(partial, Ordering::Relaxed);
                self.counters.done_bytes.store(bytes, Ordering::Relaxed);
                self.counters.done_files.store(files, Ordering::Relaxed);
                *lock(&self.counters.other) = times;
                self.choose_streams();
                let mut state = lock(&self.state);
                let sending = state.sending;
                state.portion.see(self.begun.elapsed(), come, sending);
                let before = std::mem::replace(&mut state.moved_there, moved);
                drop(state);
                self.session.moved(u64::from(before != moved));
            }
            Message::List if !std::mem::replace(&mut lock(&self.state).listed, true) => {
                // Another thread, as this one must go on with the receiver's messages.
                let this = self.this.upgrade();
                thread("list", move || {
                    if let Some(sender) = this {
                        sender.check(sender.list());
                    }
                })?;
            }
            Message::Deleted(names) if lock(&self.state).listed => {
                names.into_iter().for_each(|name| self.counters.deleted(name))
            }
            Message::Linked(name) if self.options.keeps_same() => self.counters.named(&name),
            Message::Complete(complete) if self.options.remove_sources => self.remove_complete(complete),
            Message::AllDone(summary) => {
                if lock(&self.state).streams == 0 {
                    self.remove_late();
                }
                let mut state = lock(&self.state);
                if state.streams > 0 {
                    return Err(self.session.unexpected(&Message::AllDone(summary)));
                }
                state.summary = Some(summary);
                drop(state);
                self.session.finish();
                return Ok(true);
            }
            Message::Report { end, samples, .. } => self.traces.take(&end, &samples),
            other => return Err(self.session.unexpected(&other)),
        }
        Ok(false)
    }

    fn is_done(&self) -> bool {
        lock(&self.state).summary.is_some()
    }
}
