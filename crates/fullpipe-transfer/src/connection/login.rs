//! Spares ssh the waiting that TCP adds to a login.
//!
//! Until it has logged in, OpenSSH lets TCP hold back a small message until the one before it is acknowledged (Nagle's algorithm, RFC
//! 896), and Linux acknowledges late, after 40 ms, in the hope of data to go along (RFC 1122, section 4.2.3.2). The messages of a
//! login wait so for each other once or twice: a login takes one and a half round trips longer, and 0.1 s, even on a short path.

use std::os::fd::{AsFd, OwnedFd};
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fullpipe_net::child;
use fullpipe_net::tcp_info::TcpInfo;
use socket2::SockRef;

use crate::threads::{lock, thread};

/// Time between two looks, well below the time of a late acknowledgement.
const PAUSE: Duration = Duration::from_millis(2);
/// Longest time for which a login is looked after: a person may be typing a password.
const LONGEST: Duration = Duration::from_secs(30);
/// State of a socket whose connection has failed or ended (include/net/tcp_states.h, TCP_CLOSE).
const CLOSED: u64 = 7;

/// A login that is looked after, until this is told or dropped.
pub(super) struct Login(Arc<AtomicBool>);

impl Login {
    /// Looks after the login of an ssh that has been started. Where its sockets cannot be had, the login takes its own time.
    pub(super) fn of(ssh: &Arc<Mutex<Child>>) -> Login {
        let over = Arc::new(AtomicBool::new(false));
        let (ssh, ended, begun) = (ssh.clone(), over.clone(), Instant::now());
        // A login without this is only slower.
        let _ = thread("login", move || {
            let mut sockets = Vec::new();
            while !ended.load(Ordering::Relaxed) && begun.elapsed() < LONGEST && hasten(&ssh, &mut sockets) {
                std::thread::sleep(PAUSE);
            }
        });
        Login(over)
    }

    /// Leaves the login alone from here on: it is over.
    pub(super) fn end(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Drop for Login {
    fn drop(&mut self) {
        self.end();
    }
}

/// Has small messages and acknowledgements go at once over ssh's sockets. Returns whether ssh still runs.
fn hasten(ssh: &Mutex<Child>, sockets: &mut Vec<OwnedFd>) -> bool {
    let mut ssh = lock(ssh);
    if !matches!(ssh.try_wait(), Ok(None)) {
        return false;
    }
    // ssh tries another address of the host after one that does not answer.
    let is_closed =
        |socket: &OwnedFd| TcpInfo::read(socket.as_fd()).is_ok_and(|info| info.get("state") == Some(CLOSED));
    if sockets.iter().all(is_closed) {
        *sockets = child::tcp_sockets(&ssh);
        sockets.iter().for_each(|socket| drop(SockRef::from(socket).set_tcp_nodelay(true)));
    }
    // It holds until data go both ways again (tcp(7), TCP_QUICKACK).
    sockets.iter().for_each(|socket| drop(SockRef::from(socket).set_tcp_quickack(true)));
    true
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::{Ipv4Addr, TcpListener};
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_connection_is_hastened_and_ends_with_ssh() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        // A shell in the place of ssh.
        let script = format!("exec 3<>/dev/tcp/127.0.0.1/{port}; read -r; exec sleep 0");
        let mut ssh = Command::new("bash").args(["-c", &script]).stdin(Stdio::piped()).spawn().unwrap();
        let input = ssh.stdin.take();
        let ssh = Arc::new(Mutex::new(ssh));
        let _login = Login::of(&ssh);
        let (mut far, _) = listener.accept().unwrap();
        far.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let until = Instant::now() + Duration::from_secs(10);
        let hastened = || child::tcp_sockets(&lock(&ssh)).iter().any(|it| SockRef::from(it).tcp_nodelay().unwrap());
        while !hastened() {
            assert!(Instant::now() < until);
            std::thread::sleep(PAUSE);
        }
        drop(input);
        // A descriptor that stayed here would keep it open.
        assert_eq!(far.read(&mut [0]).unwrap(), 0);
    }
}
