//! What the controller moves: the receiver's window, the sender's pacing rate, and its slow start.

use std::net::TcpStream;
use std::os::fd::AsFd;

use fullpipe_net::sys;

use super::BBR;

/// The receiver's windows, set by `TCP_WINDOW_CLAMP`. Where the kernel tunes the buffer itself it moves the
/// clamp with it (`tcp_rcv_space_adjust`), so it is looked at now and then.
#[derive(Default)]
pub(super) struct Windows {
    set: Option<i32>,
}

impl Windows {
    /// Limits all of them together to so many bytes; none: the buffers are the limit.
    pub fn set(&mut self, sockets: &[TcpStream], total: Option<u64>) {
        self.set = total.map(|total| i32::try_from(total / sockets.len().max(1) as u64).unwrap_or(i32::MAX));
        for socket in sockets {
            clamp(socket, self.set.unwrap_or(i32::MAX));
        }
    }

    /// Sets them again where the kernel has moved them.
    pub fn keep(&self, sockets: &[TcpStream]) {
        let Some(each) = self.set else { return };
        for socket in sockets {
            let now = sys::int_option(socket.as_fd(), libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP);
            if now.is_ok_and(|now| now > each) {
                clamp(socket, each);
            }
        }
    }
}

fn clamp(socket: &TcpStream, bytes: i32) {
    // A connection that is over needs none.
    let _ = sys::set_int_option(socket.as_fd(), libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP, bytes.max(1));
}

/// Paces streams at so many bits of payload per second, all together. TCP's own pacing and, from Linux 4.20
/// on, the fq qdisc space segments by their payload (`tcp_update_skb_after_send`).
pub(super) fn pace(sockets: &[TcpStream], bps: Option<u64>) {
    // ~0 is the kernel's "none".
    let each = bps.map_or(u64::MAX, |bps| (bps / 8 / sockets.len().max(1) as u64).max(1));
    for socket in sockets {
        let _ = sys::set_max_pacing_rate(socket.as_fd(), each);
    }
}

/// Lets a stream's slow start begin once more, from the window that it has. Linux has no call for that, but BBR forgets
/// the threshold where slow start ends when it takes a connection over (`bbr_init` in `tcp_bbr.c`), and hands the
/// connection back as it is. Where BBR is not to be had, or is what the stream uses, nothing changes.
pub(super) fn slow_start(socket: &TcpStream) {
    let socket = socket2::SockRef::from(socket);
    let Ok(name) = socket.tcp_congestion() else { return };
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    if name != BBR.as_bytes() && socket.set_tcp_congestion(BBR.as_bytes()).is_ok() {
        // It was in use, so it is there.
        let _ = socket.set_tcp_congestion(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_is_read() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let all = [TcpStream::connect(listener.local_addr().unwrap()).unwrap()];
        let read = || sys::int_option(all[0].as_fd(), libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP).unwrap();
        let mut windows = Windows::default();
        windows.set(&all, Some(20_000));
        assert_eq!(read(), 20_000);
        windows.set(&all, None);
        assert_eq!(read(), i32::MAX);
        pace(&all, Some(8_000_000));
        assert_eq!(sys::max_pacing_rate(all[0].as_fd()).unwrap(), 1_000_000);
        pace(&all, None);
        assert_eq!(sys::max_pacing_rate(all[0].as_fd()).unwrap(), u64::MAX);
    }
}
