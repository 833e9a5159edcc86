//! The control connection of a running transfer, and its end: the first error wins, cuts every connection
//! and tells the other end.

use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use fullpipe_path::{Classified, text};

use crate::error::{self, TransferError};
use crate::protocol::frame;
use crate::protocol::message::Message;
use crate::threads::{lock, thread};

/// What the control connection was doing when it broke.
const WAITING: &str = "waiting for its word";
/// How long a reason may take to arrive after the streams have broken.
const LAST_WORD: Duration = Duration::from_secs(1);

enum State {
    Running,
    Finished,
    Failed(Option<TransferError>),
}

/// Takes messages.
type SizingHandler = Box<dyn Fn(Message) + Send>;

/// A transfer's connections, as all of its threads see them.
pub struct Session {
    /// Whom to name in errors.
    pub peer: String,
    out: Mutex<Box<dyn Write + Send>>,
    state: Mutex<State>,
    changed: Condvar,
    /// Shut down when the transfer fails, so that nobody goes on waiting.
    sockets: Mutex<Vec<TcpStream>>,
    /// Whatever else wakes somebody.
    alarms: Mutex<Vec<Box<dyn Fn() + Send>>>,
    /// Whoever takes the messages that are about sizing, not about files.
    on_sizing: Mutex<Option<SizingHandler>>,
    /// What the peer is heard on.
    line: Mutex<Option<OwnedFd>>,
    /// Grows whenever anything moves.
    moved: AtomicU64,
    over: AtomicBool,
    /// After the last word its connection is listened to until it ends.
    lingers: AtomicBool,
    /// Nobody listens to it any more.
    deaf: AtomicBool,
}

/// Reads until there is no more.
fn drain(input: &mut (dyn Read + Send)) {
    while frame::receive::<Message>(input).is_ok() {}
}

/// The beginning of a text.
struct Start(String);

impl std::fmt::Write for Start {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.push_str(text);
        if self.0.len() < 64 { Ok(()) } else { Err(std::fmt::Error) }
    }
}

/// What an end does with the messages that it gets.
pub(crate) trait Handler: Send + Sync {
    /// Takes a message; says whether it was the last.
    fn handle(&self, message: Message) -> Result<bool, TransferError>;
    /// Whether all is done already, so that a connection that breaks now does no harm.
    fn is_done(&self) -> bool;
    /// It broke then.
    fn unanswered(&self) {}
}

impl Session {
    /// A session whose words go to `out`.
    pub fn new(peer: String, out: Box<dyn Write + Send>) -> Arc<Session> {
        Arc::new(Session {
            peer,
            out: Mutex::new(out),
            state: Mutex::new(State::Running),
            changed: Condvar::new(),
            sockets: Mutex::default(),
            alarms: Mutex::default(),
            on_sizing: Mutex::default(),
            line: Mutex::default(),
            moved: AtomicU64::new(0),
            over: AtomicBool::new(false),
            lingers: AtomicBool::new(false),
            deaf: AtomicBool::new(false),
        })
    }

    /// Tells what the peer is heard on, for [`Session::is_gone`].
    pub(crate) fn heard_on(&self, line: Option<OwnedFd>) {
        *lock(&self.line) = line;
    }

    /// The address that the peer is heard from, where the line is a TCP connection.
    pub(crate) fn address(&self) -> Option<IpAddr> {
        let line = lock(&self.line);
        let peer = socket2::SockRef::from(line.as_ref()?).peer_addr().ok()?;
        peer.as_socket().map(|peer| peer.ip())
    }

    /// Whether the peer has closed its connection, without reading what it may have said before.
    pub(crate) fn is_gone(&self) -> bool {
        use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
        let line = lock(&self.line);
        let Some(line) = &*line else { return false };
        // Nothing is asked for but its end, which nix has no name for (poll(2), POLLRDHUP).
        let mut fds = [PollFd::new(line.as_fd(), PollFlags::from_bits_retain(libc::POLLRDHUP))];
        poll(&mut fds, PollTimeout::ZERO).is_ok_and(|n| n > 0)
    }

    /// Shuts this down too when the transfer fails.
    pub fn cut_with(&self, socket: TcpStream) {
        lock(&self.sockets).push(socket);
        if self.is_over() {
            self.cut();
        }
    }

    /// Calls this when the transfer fails.
    pub(crate) fn alarm(&self, alarm: impl Fn() + Send + 'static) {
        lock(&self.alarms).push(Box::new(alarm));
    }

    /// Gives messages that are about sizing to this.
    pub(crate) fn on_sizing(&self, take: impl Fn(Message) + Send + 'static) {
        *lock(&self.on_sizing) = Some(Box::new(take));
    }

    fn cut(&self) {
        for socket in lock(&self.sockets).iter() {
            // One that is closed already needs no shutting down.
            let _ = socket.shutdown(Shutdown::Both);
        }
        for alarm in lock(&self.alarms).iter() {
            alarm();
        }
    }

    /// Says something.
    ///
    /// # Errors
    /// The connection's.
    pub fn send(&self, message: &Message) -> Result<(), TransferError> {
        frame::send(&mut **lock(&self.out), message).map_err(|e| self.lost("talking", e))
    }

    /// Says several things at once: whoever refuses one of them has all.
    ///
    /// # Errors
    /// The connection's.
    pub(crate) fn send_all(&self, messages: &[Message]) -> Result<(), TransferError> {
        let frames = messages.iter().map(frame::pack).collect::<io::Result<Vec<_>>>();
        let mut out = lock(&self.out);
        let sent = frames.and_then(|frames| out.write_all(&frames.concat()).and_then(|()| out.flush()));
        sent.map_err(|e| self.lost("talking", e))
    }

    /// An error of the connection, or of what came over it.
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

    /// What the other end says, if it does not say why it gives up.
    ///
    /// # Errors
    /// That.
    pub(crate) fn heard(&self, message: Message) -> Result<Message, TransferError> {
        let peer = || self.peer.clone();
        // It goes to a terminal, or into a log.
        let line = |why: String| text::from_peer(&why);
        match message {
            Message::Refused { why, retry, class } => {
                Err(TransferError::Refused { peer: peer(), why: line(why), retry, class: error::class(class) })
            }
            Message::Failed { why, retry, class } => {
                Err(TransferError::Remote { peer: peer(), why: line(why), retry, class: error::class(class) })
            }
            message => Ok(message),
        }
    }

    /// Something that this end did not expect now.
    pub(crate) fn unexpected(&self, message: &Message) -> TransferError {
        // The rest may be long.
        let mut name = Start(String::new());
        let _ = write!(name, "{message:?}");
        let name = name.0.split(['(', '{', ' ']).next().unwrap_or_default().to_owned();
        TransferError::Stranger { peer: self.peer.clone(), why: format!("out of turn: {name}") }
    }

    /// Ends the transfer with an error, unless it has ended before.
    pub fn fail(&self, error: TransferError) {
        // An end that gives up closes its streams and says why: its word may be just behind.
        if matches!(&error, TransferError::Lost { doing, .. } if *doing != WAITING) {
            self.sleep(LAST_WORD);
        }
        {
            let mut state = lock(&self.state);
            if !matches!(*state, State::Running) {
                return;
            }
            self.say(&error);
            *state = State::Failed(Some(error));
            self.over.store(true, Ordering::SeqCst);
        }
        self.changed.notify_all();
        self.cut();
    }

    /// Tells the other end why this one gives up, unless the transfer has ended before.
    pub(crate) fn tell(&self, error: &TransferError) {
        if matches!(*lock(&self.state), State::Running) {
            self.say(error);
        }
    }

    fn say(&self, error: &TransferError) {
        // Whoever told us knows already.
        if matches!(error, TransferError::Remote { .. } | TransferError::Refused { .. }) {
            return;
        }
        // Where the connection is what broke, nobody hears it.
        if let Ok(mut out) = self.out.try_lock() {
            let (why, retry, class) = (error.to_string(), error.may_retry(), error.class() as u8);
            let _ = frame::send(&mut **out, &Message::Failed { why, retry, class });
        }
    }

    /// Ends it well.
    pub(crate) fn finish(&self) {
        let mut state = lock(&self.state);
        if matches!(*state, State::Running) {
            *state = State::Finished;
            self.over.store(true, Ordering::SeqCst);
            self.changed.notify_all();
        }
    }

    /// Whether it has ended, well or not.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// After its end, [`Session::hang_up`] is going to wait for the other end's.
    pub(crate) fn linger(&self) {
        self.lingers.store(true, Ordering::SeqCst);
    }

    /// Waits until the other end has closed the connection, but no longer than this.
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

    /// Sleeps, but not beyond the session's end.
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

    /// Bytes or files have moved.
    pub fn moved(&self, n: u64) {
        self.moved.fetch_add(n, Ordering::Relaxed);
    }

    /// How much has moved, in no unit.
    pub(crate) fn has_moved(&self) -> u64 {
        self.moved.load(Ordering::Relaxed)
    }

    /// Reads messages until the last, in a thread of its own, since nothing can end its waiting for a pipe.
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
                    Ok(message) => handler.handle(message),
                    Err(error) => Err(error),
                };
                match taken {
                    Ok(false) => {}
                    Ok(true) => {
                        return if session.lingers.load(Ordering::SeqCst) {
                            drain(&mut *input)
                        };
                    }
                    Err(_) if handler.is_done() => {
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

    /// Waits for the end. `tick` is called now and then.
    ///
    /// # Errors
    /// The transfer's.
    pub fn watch(&self, stall: Duration, tick: &mut dyn FnMut()) -> Result<(), TransferError> {
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
                    // What has moved since the last time decides whether it is worth another attempt.
                    tick();
                    return Err(error);
                }
            }
            drop(state);
            tick();
            let moved = self.has_moved();
            if moved != last.0 {
                last = (moved, Instant::now());
            } else if last.1.elapsed() > stall {
                self.fail(TransferError::Stalled { seconds: last.1.elapsed().as_secs_f64() });
            }
        }
    }
}
