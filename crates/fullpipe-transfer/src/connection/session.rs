//! The control connection of a running transfer. It also ends the transfer: the first error of any thread counts, is sent
//! to the other end, and shuts every connection down.

use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use fullpipe_net::stream::StreamHandle;
use fullpipe_path::{Classified, text};

use crate::error::{self, TransferError};
use crate::protocol::frame;
use crate::protocol::message::Message;
use crate::threads::{lock, thread};

/// What the thread that reads the control connection does, for errors.
const WAITING: &str = "waiting for its next message";
/// How long the other end's reason may take to arrive after a stream has broken.
const REASON_WAIT: Duration = Duration::from_secs(1);

enum State {
    Running,
    Finished,
    Failed(Option<TransferError>),
}

/// A function that takes messages about window and pacing.
type SizingHandler = Box<dyn Fn(Message) + Send>;

/// A transfer's connections, as all of its threads see them.
pub struct Session {
    /// The other end's name in errors.
    pub peer: String,
    /// Guards the outgoing half of the control connection. Held while a message is sent.
    out: Mutex<Box<dyn Write + Send>>,
    /// Guards whether and how the transfer has ended. Held while the other end is told of an error.
    state: Mutex<State>,
    /// Wakes threads that wait for a change of `state` or `deaf`.
    changed: Condvar,
    /// Guards the connections that are closed when the transfer fails, so that no thread goes on waiting for them.
    connections: Mutex<Vec<Arc<dyn StreamHandle>>>,
    /// Guards the functions that wake threads which wait for something else when the transfer fails.
    alarms: Mutex<Vec<Box<dyn Fn() + Send>>>,
    /// Guards the function that takes the messages about window and pacing; the handler takes those about files.
    on_sizing: Mutex<Option<SizingHandler>>,
    /// Guards the descriptor from which the peer's messages come.
    line: Mutex<Option<OwnedFd>>,
    /// Counts whatever moves, bytes and files alike. If it stands still for too long, the transfer has stalled.
    moved: AtomicU64,
    over: AtomicBool,
    /// Whether the control connection is read until the peer closes it, also after the last message.
    lingers: AtomicBool,
    /// Whether no thread reads the control connection any more.
    deaf: AtomicBool,
}

/// Reads and discards messages until the connection ends.
fn drain(input: &mut (dyn Read + Send)) {
    while frame::receive::<Message>(input).is_ok() {}
}

/// The beginning of a text. Once it has 64 bytes, writing to it fails.
struct Start(String);

impl std::fmt::Write for Start {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.push_str(text);
        if self.0.len() < 64 { Ok(()) } else { Err(std::fmt::Error) }
    }
}

/// What an end does with the messages that it receives.
pub(crate) trait Handler: Send + Sync {
    /// Handles a message; returns whether it was the last one.
    fn handle(&self, message: Message) -> Result<bool, TransferError>;
    /// Whether everything is done already, so that a connection that breaks now does no harm.
    fn is_done(&self) -> bool;
    /// Notes that the connection broke after everything was done, before the last message came.
    fn unanswered(&self) {}
}

impl Session {
    /// Makes a session with the peer called `peer`, whose messages are written to `out`.
    pub fn new(peer: String, out: Box<dyn Write + Send>) -> Arc<Session> {
        Arc::new(Session {
            peer,
            out: Mutex::new(out),
            state: Mutex::new(State::Running),
            changed: Condvar::new(),
            connections: Mutex::default(),
            alarms: Mutex::default(),
            on_sizing: Mutex::default(),
            line: Mutex::default(),
            moved: AtomicU64::new(0),
            over: AtomicBool::new(false),
            lingers: AtomicBool::new(false),
            deaf: AtomicBool::new(false),
        })
    }

    /// Sets the descriptor from which the peer's messages come, for [`Session::is_gone`] and [`Session::address`].
    pub(crate) fn heard_on(&self, line: Option<OwnedFd>) {
        *lock(&self.line) = line;
    }

    /// The peer's address; `None` if the control connection is not TCP.
    pub(crate) fn address(&self) -> Option<IpAddr> {
        let line = lock(&self.line);
        let peer = socket2::SockRef::from(line.as_ref()?).peer_addr().ok()?;
        peer.as_socket().map(|peer| peer.ip())
    }

    /// Whether the peer has closed its connection. Messages that it sent before stay unread.
    pub(crate) fn is_gone(&self) -> bool {
        use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
        let line = lock(&self.line);
        let Some(line) = &*line else { return false };
        // POLLRDHUP alone, which nix has no name for: it reports only the connection's end (poll(2)).
        let mut fds = [PollFd::new(line.as_fd(), PollFlags::from_bits_retain(libc::POLLRDHUP))];
        poll(&mut fds, PollTimeout::ZERO).is_ok_and(|n| n > 0)
    }

    /// Adds a connection that is closed when the transfer fails.
    pub fn cut_with(&self, connection: Arc<dyn StreamHandle>) {
        lock(&self.connections).push(connection);
        if self.is_over() {
            self.cut();
        }
    }

    /// Adds a function that is called when the transfer fails.
    pub(crate) fn alarm(&self, alarm: impl Fn() + Send + 'static) {
        lock(&self.alarms).push(Box::new(alarm));
    }

    /// Sets the function that takes the messages about window and pacing.
    pub(crate) fn on_sizing(&self, take: impl Fn(Message) + Send + 'static) {
        *lock(&self.on_sizing) = Some(Box::new(take));
    }

    /// Sends bytes that are no message, before the other end speaks this protocol.
    pub(crate) fn send_raw(&self, bytes: &[u8]) -> Result<(), TransferError> {
        let mut out = lock(&self.out);
        out.write_all(bytes).and_then(|()| out.flush()).map_err(|e| self.lost("sending the program", e))
    }

    fn cut(&self) {
        lock(&self.connections).iter().for_each(|connection| connection.close());
        for alarm in lock(&self.alarms).iter() {
            alarm();
        }
    }

    /// Sends a message.
    ///
    /// # Errors
    /// Those of the connection.
    pub fn send(&self, message: &Message) -> Result<(), TransferError> {
        frame::send(&mut **lock(&self.out), message).map_err(|e| self.lost("sending a message", e))
    }

    /// Sends several messages in one write, so that a peer that refuses one of them has received all.
    ///
    /// # Errors
    /// Those of the connection.
    pub(crate) fn send_all(&self, messages: &[Message]) -> Result<(), TransferError> {
        let frames = messages.iter().map(frame::pack).collect::<io::Result<Vec<_>>>();
        let mut out = lock(&self.out);
        let sent = frames.and_then(|frames| out.write_all(&frames.concat()).and_then(|()| out.flush()));
        sent.map_err(|e| self.lost("sending a message", e))
    }

    /// Makes the transfer's error from an error of a connection, or of the data that came over it.
    pub fn lost(&self, doing: &'static str, source: io::Error) -> TransferError {
        let peer = self.peer.clone();
        match source.kind() {
            io::ErrorKind::UnexpectedEof => {
                let source = io::Error::new(source.kind(), "it closed the connection");
                TransferError::Lost { peer, doing, source }
            }
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                let source = io::Error::new(io::ErrorKind::TimedOut, error::LATE);
                TransferError::Lost { peer, doing, source }
            }
            io::ErrorKind::InvalidData => TransferError::Damaged { peer, what: text::from_peer(&source.to_string()) },
            _ => TransferError::Lost { peer, doing, source },
        }
    }

    /// Returns the peer's message, unless it is the reason why the peer gives up.
    ///
    /// # Errors
    /// The peer has refused or failed, for the reason in the message.
    pub(crate) fn heard(&self, message: Message) -> Result<Message, TransferError> {
        let peer = || self.peer.clone();
        // The reason goes to a terminal, or into a log.
        let line = |why: String| text::from_peer(&why);
        match message {
            Message::Refused { why, retry, class } => {
                Err(TransferError::Refused { peer: peer(), why: line(why), retry, class: error::class(class) })
            }
            Message::TcpOnly => Err(TransferError::TcpOnly(peer())),
            Message::PortsTaken { first, last } => Err(TransferError::PortsTaken { peer: peer(), first, last }),
            Message::Failed { why, retry, class } => {
                Err(TransferError::Remote { peer: peer(), why: line(why), retry, class: error::class(class) })
            }
            message => Ok(message),
        }
    }

    /// Makes the error for a message that this end did not expect now.
    pub(crate) fn unexpected(&self, message: &Message) -> TransferError {
        // Only the message's name is shown, since its content may be long.
        let mut name = Start(String::new());
        let _ = write!(name, "{message:?}");
        let name = name.0.split(['(', '{', ' ']).next().unwrap_or_default().to_owned();
        TransferError::Stranger { peer: self.peer.clone(), why: format!("out of turn: {name}") }
    }

    /// Ends the transfer with an error, unless it has ended before.
    pub fn fail(&self, error: TransferError) {
        // An end that gives up closes its streams and sends its reason, which may arrive a little later.
        if matches!(&error, TransferError::Lost { doing, .. } if *doing != WAITING) {
            self.sleep(REASON_WAIT);
        }
        {
            let mut state = lock(&self.state);
            if !matches!(*state, State::Running) {
                return;
            }
            self.send_reason(&error);
            *state = State::Failed(Some(error));
            self.over.store(true, Ordering::SeqCst);
        }
        self.changed.notify_all();
        self.cut();
    }

    /// Tells the peer why this end gives up, unless the transfer has ended before.
    pub(crate) fn tell(&self, error: &TransferError) {
        if matches!(*lock(&self.state), State::Running) {
            self.send_reason(error);
        }
    }

    fn send_reason(&self, error: &TransferError) {
        // The peer knows what it told this end itself.
        if matches!(error, TransferError::Remote { .. } | TransferError::Refused { .. }) {
            return;
        }
        // A thread that is stuck in a broken connection may hold the lock; then the peer could not be told anyway.
        if let Ok(mut out) = self.out.try_lock() {
            let (why, retry, class) = (error.to_string(), error.may_retry(), error.class() as u8);
            let _ = frame::send(&mut **out, &Message::Failed { why, retry, class });
        }
    }

    /// Ends the transfer as a success, unless it has ended before.
    pub(crate) fn finish(&self) {
        let mut state = lock(&self.state);
        if matches!(*state, State::Running) {
            *state = State::Finished;
            self.over.store(true, Ordering::SeqCst);
            self.changed.notify_all();
        }
    }

    /// Whether the transfer has ended, successfully or not.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// Makes this end read on after the last message until the peer closes the connection, for [`Session::hang_up`].
    pub(crate) fn linger(&self) {
        self.lingers.store(true, Ordering::SeqCst);
    }

    /// Waits until the peer has closed the connection, but no longer than `most`.
    pub(crate) fn hang_up(&self, most: Duration) {
        let until = Instant::now() + most;
        let mut state = lock(&self.state);
        while !self.deaf.load(Ordering::SeqCst) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Sleeps for `time`, or until the transfer ends if that is earlier.
    pub(crate) fn sleep(&self, time: Duration) {
        let until = Instant::now() + time;
        let mut state = lock(&self.state);
        while matches!(*state, State::Running) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Counts bytes or files that have moved.
    pub fn moved(&self, n: u64) {
        self.moved.fetch_add(n, Ordering::Relaxed);
    }

    /// How much has moved so far. Bytes and files count alike, so only changes of the number have a meaning.
    pub(crate) fn has_moved(&self) -> u64 {
        self.moved.load(Ordering::Relaxed)
    }

    /// Reads messages until the last one and hands them to `handler`. A thread of its own does so, because nothing can
    /// interrupt its waiting for a pipe.
    pub(crate) fn listen(
        self: &Arc<Self>,
        mut input: Box<dyn Read + Send>,
        handler: Arc<dyn Handler>,
    ) -> Result<(), TransferError> {
        let session = self.clone();
        let mut listen = move || {
            loop {
                let heard = frame::receive(&mut *input).map_err(|e| session.lost(WAITING, e));
                let taken = match heard.and_then(|message| session.heard(message)) {
                    Ok(
                        message @ (Message::Pace { .. }
                        | Message::SlowStart
                        | Message::BearLosses
                        | Message::SenderStats(_)
                        | Message::Sized(_)),
                    ) => {
                        if let Some(take) = &*lock(&session.on_sizing) {
                            take(message);
                        }
                        Ok(false)
                    }
                    Ok(message) => {
                        // It concerns both: pacing is shared among the streams that send, and the handler lets more of them send.
                        if let (Message::Streams { .. }, Some(take)) = (&message, &*lock(&session.on_sizing)) {
                            take(message.clone());
                        }
                        handler.handle(message)
                    }
                    Err(error) => Err(error),
                };
                match taken {
                    Ok(false) => {}
                    Ok(true) => {
                        return if session.lingers.load(Ordering::SeqCst) {
                            drain(&mut *input)
                        };
                    }
                    // What is out of turn is never taken for a connection that ended.
                    Err(error) if handler.is_done() && !matches!(error, TransferError::Stranger { .. }) => {
                        handler.unanswered();
                        return session.finish();
                    }
                    Err(error) => return session.fail(error),
                }
            }
        };
        let session = self.clone();
        let all = move || {
            listen();
            let _state = lock(&session.state);
            session.deaf.store(true, Ordering::SeqCst);
            session.changed.notify_all();
        };
        thread("control", all)
    }

    /// Waits for the end of the transfer, which `handler` handles, and calls `tick` several times a second. Fails the transfer if nothing
    /// moves for `stall`.
    ///
    /// # Errors
    /// The error that ended the transfer.
    pub(crate) fn watch(
        &self,
        stall: Duration,
        handler: &dyn Handler,
        tick: &mut dyn FnMut(),
    ) -> Result<(), TransferError> {
        const TICK: Duration = Duration::from_millis(200);
        let mut last = (self.has_moved(), Instant::now());
        loop {
            let mut state = lock(&self.state);
            if matches!(*state, State::Running) {
                state = self.changed.wait_timeout(state, TICK).unwrap_or_else(PoisonError::into_inner).0;
            }
            match &mut *state {
                State::Running => {}
                State::Finished => return Ok(()),
                State::Failed(error) => {
                    let error = error.take().unwrap_or(TransferError::Interrupted);
                    drop(state);
                    // The caller's counters must include all that has moved: they decide whether it tries again.
                    tick();
                    return Err(error);
                }
            }
            drop(state);
            tick();
            let moved = self.has_moved();
            if moved != last.0 {
                last = (moved, Instant::now());
            } else if last.1.elapsed() > stall && handler.is_done() {
                // Only the last message has not come: as where the connection breaks then, all is well.
                handler.unanswered();
                self.finish();
                self.cut();
            } else if last.1.elapsed() > stall {
                self.fail(TransferError::Stalled { seconds: last.1.elapsed().as_secs_f64() });
            }
        }
    }
}
