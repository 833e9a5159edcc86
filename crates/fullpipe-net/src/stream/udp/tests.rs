use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fullpipe_path::transport::UDP;
use fullpipe_path::{Buffer, Rate, Transport};
use nix::sys::eventfd::EventFd;

use super::size::datagram_bytes;
use super::*;
use crate::error::NetError;
use crate::stream::{Acceptor, DataStream, Expected};
use crate::{local_end, socket, sys};

const TOKEN: [u8; 18] = [7; 18];

fn preamble(stream: u8) -> [u8; 20] {
    let mut bytes = [0; 20];
    bytes[..18].copy_from_slice(&TOKEN);
    bytes[18] = stream;
    bytes
}

fn transport(streams: u16) -> Transport {
    let (pacing, mss) = (Some(Rate(80_000_000)), Some(1_000));
    Transport { cc: UDP.into(), streams, buffer: Buffer::Auto, pacing, dscp: None, mss }
}

fn acceptor(address: &str) -> UdpAcceptor<20> {
    let check = |preamble: &[u8; 20]| (preamble[..18] == TOKEN).then_some(u16::from(preamble[18]));
    let expected = Expected { ports: (0, 0), peer: None, check: Box::new(check) };
    UdpAcceptor::new(address.parse().unwrap(), &transport(2), false, expected).unwrap()
}

type Streams = Vec<Box<dyn DataStream>>;

/// Connects so many streams; returns those of the sender and those of the receiver, by their numbers.
fn connected(address: &str, n: u8) -> (Streams, Streams) {
    let mut acceptor = acceptor(address);
    let to = acceptor.address().unwrap();
    let (taken, preambles) = (EventFd::new().unwrap(), (0..n).map(preamble).collect::<Vec<_>>());
    std::thread::scope(|scope| {
        let taking = scope.spawn(|| {
            let mut streams = Vec::new();
            while streams.len() < usize::from(n) {
                assert!(sys::wait_readable([acceptor.as_fd()], 10_000_000_000).unwrap()[0], "{}", streams.len());
                streams.extend(acceptor.accepted().unwrap());
            }
            taken.write(1).unwrap();
            streams.sort_by_key(|(number, _)| *number);
            streams.into_iter().map(|(_, stream)| stream).collect()
        });
        let transport = transport(u16::from(n));
        let called = (preambles.as_slice(), true);
        let sending =
            connect(to, &local_end::ANY, &transport, called, taken.as_fd(), (Duration::from_secs(10), Duration::ZERO));
        (sending.unwrap(), taking.join().unwrap())
    })
}

/// Receives until the stream's end; returns the bytes.
fn drain(stream: &mut dyn DataStream) -> u64 {
    let mut bytes = 0;
    loop {
        match stream.discard(1 << 30, true).unwrap() {
            0 => return bytes,
            n => bytes += n as u64,
        }
    }
}

#[test]
fn all_that_is_written_is_counted_at_both_ends() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let (sending, receiving) = connected(address, 2);
        let handles: Vec<_> = sending.iter().map(|stream| stream.handle()).collect();
        std::thread::scope(|scope| {
            for (mut stream, bytes) in sending.into_iter().zip([100_500_u64, 20_000]) {
                scope.spawn(move || stream.write_all(&vec![0; bytes as usize]).and_then(|()| stream.flush()));
            }
            for ((mut stream, handle), bytes) in receiving.into_iter().zip(&handles).zip([100_500_u64, 20_000]) {
                assert_eq!(drain(&mut *stream), bytes, "{address}");
                let counts = stream.handle().observe().unwrap().udp.unwrap();
                let datagrams = bytes.div_ceil(1_000);
                assert_eq!((counts.datagrams, counts.datagrams_received), (datagrams, datagrams), "{address}");
                assert_eq!((counts.datagrams_lost, counts.datagrams_duplicate), (0, 0), "{address}");
                assert_eq!(handle.observe().unwrap().udp.unwrap().datagrams, datagrams);
                handle.close();
            }
        });
        assert_eq!(handles[0].settings().segment_bytes, Some(1_000));
    }
}

#[test]
fn a_sender_learns_what_has_arrived() {
    let (mut sending, mut receiving) = connected("127.0.0.1:0", 1);
    let (mut sending, mut receiving) = (sending.remove(0), receiving.remove(0));
    let (handle, received) = (sending.handle(), receiving.handle());
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| while sending.write(&[0; 10_000]).is_ok() {});
        scope.spawn(|| while receiving.discard(1 << 30, true).is_ok() {});
        let deadline = Instant::now() + Duration::from_secs(20);
        while handle.observe().unwrap().acked_bytes.unwrap() < 100_000 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        is_over.store(true, Ordering::Relaxed);
        handle.close();
        received.close();
    });
    let seen = handle.observe().unwrap();
    assert!(seen.acked_bytes.unwrap() >= 100_000 && seen.udp.unwrap().datagrams_received >= 100, "{seen:?}");
}

/// What the acceptor answers to a datagram; `None` if it does not.
fn answer(acceptor: &mut UdpAcceptor<20>, from: &UdpSocket, datagram: &[u8]) -> Option<Vec<u8>> {
    from.send(datagram).unwrap();
    assert!(sys::wait_readable([acceptor.as_fd()], 10_000_000_000).unwrap()[0]);
    assert!(acceptor.accepted().unwrap().is_empty(), "no stream is taken without its cookie");
    let mut into = [0; 2_000];
    // On loopback an answer has arrived when the call that sent it returns.
    from.recv(&mut into).ok().map(|n| into[..n].to_vec())
}

#[test]
fn strangers_get_nothing_and_callers_less_than_they_send() {
    let mut acceptor = acceptor("127.0.0.1:0");
    let to: SocketAddr = acceptor.address().unwrap();
    let caller = |address: &str| {
        let socket = UdpSocket::bind(address).unwrap();
        socket.connect(to).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket
    };
    let [ours, other] = ["127.0.0.1:0", "127.0.0.2:0"].map(caller);
    let wrong = datagram::call(&[9; 20], None, 1_000);
    let report = datagram::report(datagram::tag(&preamble(0)), 0, 1, &Default::default());
    for stranger in [&wrong[..], &report, &[0; 1_400], b"x"] {
        assert_eq!(answer(&mut acceptor, &ours, stranger), None);
    }
    let call = datagram::call(&preamble(0), None, 16);
    let answered = answer(&mut acceptor, &ours, &call).unwrap();
    assert!(answered.len() < call.len(), "{} for {}", answered.len(), call.len());
    let tag = datagram::tag(&preamble(0));
    let Some(datagram::Datagram::Cookie(cookie)) = datagram::parse(&answered, tag) else { panic!("{answered:?}") };
    // It is the cookie of the address to which it was sent, and of the stream.
    let shown = |stream: u8| datagram::call(&preamble(stream), Some(&cookie), 16);
    let again = answer(&mut acceptor, &other, &shown(0)).unwrap();
    assert_ne!(again, answered);
    assert!(answer(&mut acceptor, &ours, &shown(1)).is_some());
    ours.send(&shown(0)).unwrap();
    assert!(sys::wait_readable([acceptor.as_fd()], 10_000_000_000).unwrap()[0]);
    assert_eq!(acceptor.accepted().unwrap().len(), 1);
}

#[test]
fn nobody_there_is_an_error_that_says_so() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let (to, control, preambles) = (silent.local_addr().unwrap(), EventFd::new().unwrap(), [preamble(0)]);
    let transport = transport(1);
    let called = connect(
        to,
        &local_end::ANY,
        &transport,
        (&preambles, true),
        control.as_fd(),
        (Duration::from_millis(300), Duration::from_secs(60)),
    );
    let error = called.err().unwrap().to_string();
    assert!(error.starts_with(&format!("no answer over UDP from {to} within 0.3 s")), "{error}");
}

#[test]
fn a_datagram_that_is_larger_than_a_packet_is_refused() {
    let to = "127.0.0.1:9".parse().unwrap();
    let sized = |mss| datagram_bytes(&Transport { mss, ..transport(1) }, to);
    let most = socket::path_mtu(to).unwrap().saturating_sub(28).min(65_507);
    assert_eq!(sized(Some(most as u16)).unwrap(), most as usize);
    assert!(most == 65_507 || matches!(sized(Some(65_507)), Err(NetError::Datagram { asked: 65_507, .. })));
    assert_eq!(sized(None).unwrap(), 9_000.min(most as usize + 28) - 28);
}

/// A receiver that says nothing may be gone, so nothing more is sent to where it was.
#[test]
fn a_sender_pauses_without_reports() {
    let (mut sending, receiving) = connected("127.0.0.1:0", 1);
    let mut sending = sending.remove(0);
    let handle = sending.handle();
    let sent = || handle.observe().unwrap().udp.unwrap().datagrams;
    std::thread::scope(|scope| {
        let sender = scope.spawn(move || -> io::Result<()> {
            loop {
                sending.write_all(&[0; 10_000])?;
            }
        });
        // It stops to count, at whatever time.
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut before = (0, Instant::now());
        while before.1.elapsed() < Duration::from_secs(1) && Instant::now() < deadline {
            if sent() != before.0 {
                before = (sent(), Instant::now());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        // 5 s at 10,000 datagrams a second.
        assert!((1..=60_000).contains(&before.0) && Instant::now() < deadline, "{before:?}");
        handle.close();
        assert_eq!(sender.join().unwrap().unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    });
    drop(receiving);
}
