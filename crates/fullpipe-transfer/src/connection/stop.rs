//! Ends connections that are being opened, and the processes that open them.

use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::threads::lock;

/// The sockets and processes of connections that are being opened. [`Stop::cut`] ends them, and then threads that wait for
/// an answer get an error.
#[derive(Default)]
pub(crate) struct Stop {
    /// Guards the list of sockets. Held while they are shut down.
    pub(super) sockets: Mutex<Vec<TcpStream>>,
    /// Guards the list of this process's ends of the children's input and output. Held while they are shut down.
    pub(super) ends: Mutex<Vec<UnixStream>>,
    /// Guards the list of children. A child's own lock may be taken while it is held.
    pub(super) children: Mutex<Vec<Arc<Mutex<Child>>>>,
    pub(super) awaited: Awaited,
    is_cut: AtomicBool,
}

/// The time since which the far end has been silent, in a lock that guards only it. `None` while ssh may still be waiting
/// for the user's input.
pub(super) type Awaited = Arc<Mutex<Option<Instant>>>;

impl Stop {
    /// Returns how long the far end has been silent.
    pub(crate) fn awaited(&self) -> Duration {
        lock(&self.awaited).map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Does this end's own work, while the far end may be silent.
    pub(crate) fn work<R>(&self, work: impl FnOnce() -> R) -> R {
        *lock(&self.awaited) = None;
        let done = work();
        *lock(&self.awaited) = Some(Instant::now());
        done
    }

    /// Whether the connections have been ended, so that no more are to be opened.
    pub(super) fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::SeqCst)
    }

    /// Ends all connections that are being opened.
    pub(crate) fn cut(&self) {
        self.is_cut.store(true, Ordering::SeqCst);
        for socket in lock(&self.sockets).iter() {
            let _ = socket.shutdown(Shutdown::Both);
        }
        for child in lock(&self.children).iter() {
            end(&mut lock(child));
        }
        // A process that the child has started may live on and hold the other end of the socket: a script around ssh leaves
        // ssh behind.
        for end in lock(&self.ends).iter() {
            let _ = end.shutdown(Shutdown::Both);
        }
    }
}

/// Kills a child, and its process group if it has its own.
pub(super) fn end(child: &mut Child) {
    use nix::sys::signal::{Signal, kill, killpg};
    let Ok(None) = child.try_wait() else { return };
    let id = nix::unistd::Pid::from_raw(child.id().cast_signed());
    let _ =
        if nix::unistd::getpgid(Some(id)) == Ok(id) { killpg(id, Signal::SIGKILL) } else { kill(id, Signal::SIGKILL) };
}
