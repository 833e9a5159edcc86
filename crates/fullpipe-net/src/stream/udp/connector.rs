//! Calls the streams of plain UDP, all at once, until the server has taken them.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use fullpipe_path::Transport;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use super::datagram::{self, COOKIE_BYTES, Datagram};
use super::size::datagram_bytes;
use super::udp_stream::{Terms, UdpStream};
use crate::error::{NetError, system};
use crate::local_end::LocalEnd;
use crate::stream::DataStream;
use crate::stream::datagrams::{Datagrams, RECEIVE_BYTES};
use crate::{socket, sys};

/// Time after which a call without an answer is repeated, ns.
const REPEAT_NS: u64 = 200_000_000;
/// Time between the first calls of two streams, at most, ns. Calls are as long as the datagrams that follow, and a short queue on the
/// path does not hold those of many streams at once.
const MAX_CALL_INTERVAL_NS: u64 = 1_000_000;
/// Number by which the control connection is known among the sockets.
const CONTROL: u64 = u64::MAX;

/// A stream that is being called.
struct Call<const N: usize> {
    datagrams: Datagrams,
    preamble: [u8; N],
    tag: u16,
    cookie: Option<[u8; COOKIE_BYTES]>,
}

impl<const N: usize> Call<N> {
    fn new(to: SocketAddr, from: &LocalEnd, transport: &Transport, preamble: [u8; N]) -> Result<Call<N>, NetError> {
        let any = match to {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let datagrams = match from {
            LocalEnd { address: None, device: None } => {
                Datagrams::bind((any, 0).into()).map_err(system("opening a UDP socket"))?
            }
            from => Datagrams::bind_from(from, to)?,
        };
        if let Some(dscp) = transport.dscp {
            socket::set_dscp(datagrams.as_fd(), dscp).map_err(system("setting the DSCP"))?;
        }
        datagrams
            .connect(to)
            .map_err(|source| NetError::Connect { host: format!("{to} (a data stream over UDP)"), source })?;
        Ok(Call { datagrams, preamble, tag: datagram::tag(&preamble), cookie: None })
    }

    fn call(&self, datagram_bytes: usize) -> io::Result<()> {
        let call = datagram::call(&self.preamble, self.cookie.as_ref(), datagram_bytes);
        self.datagrams.send(&call, call.len()).map(drop)
    }

    /// Handles what has arrived; returns whether it is a cookie that the server has not been shown yet.
    fn hear(&mut self, into: &mut [u8]) -> io::Result<bool> {
        let mut is_new = false;
        for (arrived, message) in self.datagrams.receive(into)?.zip(into.chunks(RECEIVE_BYTES)) {
            for bytes in message[..arrived.bytes].chunks(arrived.segment_bytes.max(1)) {
                if let Some(Datagram::Cookie(cookie)) = datagram::parse(bytes, self.tag) {
                    is_new |= self.cookie.replace(cookie) != Some(cookie);
                }
            }
        }
        Ok(is_new)
    }
}

/// Calls the streams with these preambles, and returns them when the control connection has something to read: the server says
/// there that it has taken them, or why not. `sends` tells whether this host will send data. The server must answer a stream within
/// the first time, and has the second one to take all, which are many for a busy machine.
///
/// # Errors
/// Nothing comes on the control connection in time, or this host refuses a socket.
pub fn connect<const N: usize>(
    to: SocketAddr,
    from: &LocalEnd,
    transport: &Transport,
    (preambles, sends): (&[[u8; N]], bool),
    control: BorrowedFd<'_>,
    (first_answer, all): (Duration, Duration),
) -> Result<Vec<Box<dyn DataStream>>, NetError> {
    let calling = || system("calling a data stream over UDP");
    let size = datagram_bytes(transport, to)?;
    let mut calls: Vec<Call<N>> =
        preambles.iter().map(|preamble| Call::new(to, from, transport, *preamble)).collect::<Result<_, _>>()?;
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(|e| calling()(e.into()))?;
    let watched = calls.iter().map(|call| call.datagrams.as_fd()).zip(0..).chain([(control, CONTROL)]);
    for (fd, number) in watched {
        epoll.add(fd, EpollEvent::new(EpollFlags::EPOLLIN, number)).map_err(|e| calling()(e.into()))?;
    }
    let begun = sys::now_ns();
    let mut within = first_answer;
    // The calls are made in turn.
    let (mut made, mut next_ns) = (0, begun);
    let interval_ns = REPEAT_NS / calls.len().max(1) as u64;
    let mut arriving = vec![0; RECEIVE_BYTES];
    let mut events = [EpollEvent::empty(); 16];
    'calling: loop {
        let now = sys::now_ns();
        let deadline = begun.saturating_add(within.as_nanos() as u64);
        if now >= deadline {
            return Err(NetError::NoUdp { to, within });
        }
        if now >= next_ns
            && let Some(call) = calls.get(made % calls.len().max(1))
        {
            call.call(size).map_err(calling())?;
            made += 1;
            let is_repeat = made >= calls.len();
            next_ns = now + if is_repeat { interval_ns } else { interval_ns.min(MAX_CALL_INTERVAL_NS) };
            continue;
        }
        let wait_ms = next_ns.min(deadline).saturating_sub(now).div_ceil(1_000_000);
        let timeout = EpollTimeout::try_from(wait_ms).unwrap_or(EpollTimeout::MAX);
        let ready = match epoll.wait(&mut events, timeout) {
            Ok(ready) => ready,
            Err(nix::errno::Errno::EINTR) => 0,
            Err(error) => return Err(calling()(error.into())),
        };
        for event in &events[..ready] {
            if event.data() == CONTROL {
                break 'calling;
            }
            let Some(call) = calls.get_mut(event.data() as usize) else { continue };
            if call.hear(&mut arriving).map_err(calling())? {
                within = all.max(first_answer);
                call.call(size).map_err(calling())?;
            }
        }
    }
    calls
        .into_iter()
        .map(|call| {
            let terms = Terms::new(transport, size, call.tag, sends);
            let stream = UdpStream::new(call.datagrams, terms).map_err(calling())?;
            Ok(Box::new(stream) as Box<dyn DataStream>)
        })
        .collect()
}
