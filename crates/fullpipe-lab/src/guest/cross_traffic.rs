//! Makes cross traffic: from node x over the bottleneck to end b.

use std::io::{self, IoSlice};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};

use fullpipe_net::sys;
use fullpipe_path::{Cross, LabPath, Rate, Size};
use nix::sys::socket::{MsgFlags, MultiHeaders, SockaddrIn, sendmmsg, setsockopt, sockopt};

use super::step::{Doing, Fallible};
use super::topology::Net;
use crate::job::ADDRESS_B;

/// Port of the cross traffic's sink: that of the discard protocol (RFC 863).
const PORT: u16 = 9;
/// Packets that one call gives to the kernel. fq sends each at its own time.
const BATCH: usize = 32;

/// Buffer of a receiver, in windows. The kernel doubles it for its bookkeeping, and segments that are merged badly take several
/// times their payload.
const BUFFER_PER_WINDOW: u64 = 4;
/// Reads of a receiver after which its window is set again.
const FIRST_READS: usize = 32;
/// Least buffer of a receiver, bytes.
const MIN_BUFFER: usize = 128 << 10;

/// Starts the path's cross traffic, which lasts until the guest ends.
pub(super) fn start(path: &LabPath, net: &Net) -> Fallible<()> {
    let (Some(cross), Some(x)) = (path.cross, &net.x) else { return Ok(()) };
    let to = SocketAddr::from((ADDRESS_B, PORT));
    match cross {
        Cross::Udp(rate) => {
            let payload = path.mtu as usize - 28;
            net.b.run(move |_| keep(UdpSocket::bind(to).doing(|| "opening the cross traffic's sink".into())?))?;
            x.run(move |_| {
                let socket = UdpSocket::bind("0.0.0.0:0").doing(|| "opening the cross traffic's source".into())?;
                socket.connect(to).doing(|| "connecting the cross traffic".into())?;
                // fq counts Ethernet frames, as the rate does.
                pace(&socket, rate).doing(|| "pacing the cross traffic".into())?;
                background("udp", move || constant_rate(&socket, payload))
            })
        }
        Cross::Tcp { flows, window } => {
            net.b.run(move |_| {
                let listener = TcpListener::bind(to).doing(|| "opening the cross traffic's sink".into())?;
                let limited = fix_buffer(&listener, window).and_then(|()| clamp(&listener, window));
                limited.doing(|| "limiting the cross traffic's window".into())?;
                background("sink", move || {
                    loop {
                        let (stream, _) = listener.accept()?;
                        std::thread::spawn(move || discard(&stream, window));
                    }
                })
            })?;
            x.run(move |_| {
                for _ in 0..flows {
                    background("tcp", move || {
                        let stream = TcpStream::connect(to)?;
                        let source = sys::random_memory_file(1 << 20)?;
                        loop {
                            sys::send_from(stream.as_fd(), source.as_fd(), 0, 1 << 20)?;
                        }
                    })?;
                }
                Ok(())
            })
        }
    }
}

/// Starts a thread at the calling node. If its work fails, the guest's console shows why.
fn background(name: &str, work: impl FnOnce() -> io::Result<()> + Send + 'static) -> Fallible<()> {
    let named = format!("cross-{name}");
    std::thread::Builder::new()
        .name(named)
        .spawn(move || {
            if let Err(error) = work() {
                println!("fullpipe: cross traffic ended: {error}");
            }
        })
        .map(drop)
        .doing(|| "starting cross traffic".into())
}

/// Keeps a socket open as long as the guest runs. The kernel drops the packets that arrive there and are not read.
fn keep(socket: UdpSocket) -> Fallible<()> {
    std::mem::forget(socket);
    Ok(())
}

fn pace(socket: &UdpSocket, rate: Rate) -> io::Result<()> {
    setsockopt(socket, sockopt::SndBuf, &(4 << 20)).map_err(io::Error::from)?;
    sys::set_max_pacing_rate(socket.as_fd(), rate.0 / 8)
}

/// Gives a listener's connections a buffer of their own. The kernel tunes no buffer that is set, and so leaves the clamp of its
/// window alone (`tcp_rcv_space_adjust`).
fn fix_buffer(listener: &TcpListener, window: Size) -> io::Result<()> {
    let room = usize::try_from(window.0.saturating_mul(BUFFER_PER_WINDOW)).unwrap_or(usize::MAX);
    let room = room.clamp(MIN_BUFFER, i32::MAX as usize / 2);
    setsockopt(listener, sockopt::RcvBufForce, &room).map_err(io::Error::from)
}

fn clamp(socket: &impl AsFd, window: Size) -> io::Result<()> {
    let bytes = i32::try_from(window.0).unwrap_or(i32::MAX);
    sys::set_int_option(socket.as_fd(), libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP, bytes)
}

/// Takes in what comes, with a fixed window. The first segments move the clamp to all that the buffer holds
/// (`tcp_measure_rcv_mss`), so it is set again after them.
fn discard(stream: &TcpStream, window: Size) -> io::Result<()> {
    for _ in 0..FIRST_READS {
        sys::discard(stream.as_fd(), 1 << 16, false)?;
        clamp(stream, window)?;
    }
    while sys::discard(stream.as_fd(), 1 << 30, true)? > 0 {}
    Ok(())
}

fn constant_rate(socket: &UdpSocket, payload: usize) -> io::Result<()> {
    let data = vec![0x55; payload];
    let batch: Vec<[IoSlice<'_>; 1]> = (0..BATCH).map(|_| [IoSlice::new(&data)]).collect();
    let nobody = vec![None::<SockaddrIn>; BATCH];
    let mut headers = MultiHeaders::preallocate(BATCH, None);
    loop {
        sendmmsg(socket.as_raw_fd(), &mut headers, &batch, &nobody, [], MsgFlags::empty()).map_err(io::Error::from)?;
    }
}
