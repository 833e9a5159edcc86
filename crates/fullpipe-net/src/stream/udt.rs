//! Streams over UDT: the shell around `fullpipe_udt`. Each stream has a UDP socket and a driver thread of its own.

mod acceptor;
mod config;
mod connector;
mod data_stream;
mod driver;

pub use acceptor::UdtAcceptor;
pub use connector::UdtConnector;

pub use super::datagrams::{UDP_BUFFER, udp_buffer};

#[cfg(test)]
mod tests {
    use std::io;
    use std::net::{SocketAddr, UdpSocket};
    use std::os::fd::AsFd;
    use std::time::Duration;

    use fullpipe_path::{Buffer, Size, Transport};

    use super::*;
    use crate::stream::{Acceptor, Connector, DataStream, Expected};
    use crate::{local_end, sys};

    fn transport() -> Transport {
        Transport {
            cc: "udt".into(),
            streams: 2,
            buffer: Buffer::Bytes(Size(4_000_000)),
            pacing: None,
            dscp: None,
            mss: None,
        }
    }

    fn acceptor() -> UdtAcceptor<2> {
        acceptor_for(&transport())
    }

    fn acceptor_for(transport: &Transport) -> UdtAcceptor<2> {
        let check = |preamble: &[u8; 2]| (preamble[0] == 7).then_some(u16::from(preamble[1]));
        let expected = Expected { ports: (0, 0), peer: None, check: Box::new(check) };
        UdtAcceptor::new(([127, 0, 0, 1], 0).into(), transport, expected).unwrap()
    }

    /// Calls with a preamble; returns the stream.
    fn call(to: SocketAddr, preamble: [u8; 2]) -> Box<dyn DataStream> {
        let mut stream = UdtConnector::new(to, &local_end::ANY, &transport()).connect(Duration::from_secs(5)).unwrap();
        stream.write_all(&preamble).unwrap();
        stream.flush().unwrap();
        stream
    }

    /// Takes streams until so many have come.
    fn take(acceptor: &mut UdtAcceptor<2>, n: usize) -> Vec<(u16, Box<dyn DataStream>)> {
        let mut streams = Vec::new();
        while streams.len() < n {
            assert!(sys::wait_readable([acceptor.as_fd()], 10_000_000_000).unwrap()[0], "{} of {n}", streams.len());
            streams.extend(acceptor.accepted().unwrap());
        }
        streams
    }

    #[test]
    fn bytes_go_both_ways_and_end() {
        let mut acceptor = acceptor();
        let at = acceptor.address().unwrap();
        let data: Vec<u8> = (0..3_000_000u32).map(|i| (i ^ (i >> 9)) as u8).collect();
        let caller = std::thread::spawn({
            let data = data.clone();
            move || {
                let mut stream = call(at, [7, 1]);
                stream.write_all(&data).unwrap();
                let mut back = [0; 5];
                stream.read_exact(&mut back).unwrap();
                stream.finish().unwrap();
                back
            }
        });
        let (number, mut stream) = take(&mut acceptor, 1).remove(0);
        assert_eq!(number, 1);
        let mut first = vec![0; 1_000_000];
        stream.read_exact(&mut first).unwrap();
        assert!(first == data[..1_000_000]);
        let mut left = 2_000_000;
        while left > 0 {
            left -= stream.discard(left, true).unwrap();
        }
        stream.write_all(b"bytes").unwrap();
        stream.flush().unwrap();
        let seen = stream.handle().observe().unwrap();
        assert_eq!((seen.received_bytes, seen.tcp_info.is_none()), (Some(3_000_002), true));
        assert!(seen.udt.unwrap().counters.pkt_recv > 1);
        assert_eq!(&caller.join().unwrap(), b"bytes");
        assert_eq!(stream.read(&mut first).unwrap(), 0);
        assert_eq!(stream.write(b"x").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    /// Only bytes that have arrived later count for a rate.
    #[test]
    fn what_has_arrived_counts_before_it_is_read() {
        let mut acceptor = acceptor();
        let at = acceptor.address().unwrap();
        let calling = std::thread::spawn(move || {
            let mut stream = call(at, [7, 0]);
            stream.write_all(&[5; 100_000]).unwrap();
            stream.flush().unwrap();
            stream
        });
        let (_, mut stream) = take(&mut acceptor, 1).remove(0);
        let _sender = calling.join().unwrap();
        let handle = stream.handle();
        let counts = || (handle.observe().unwrap().received_bytes, handle.unread_bytes());
        let begun = std::time::Instant::now();
        while counts() != (Some(100_002), Some(100_000)) {
            assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", counts());
            std::thread::sleep(Duration::from_millis(1));
        }
        stream.read_exact(&mut [0; 40_000]).unwrap();
        assert_eq!(counts(), (Some(100_002), Some(60_000)));
    }

    #[test]
    fn a_rate_that_is_lifted_is_no_setting_any_more() {
        let rate = fullpipe_path::Rate(80_000_000);
        let given = Transport { streams: 1, pacing: Some(rate), ..transport() };
        for (transport, has_rate) in [(given, true), (transport(), false)] {
            let acceptor = acceptor_for(&transport);
            let at = acceptor.address().unwrap();
            std::thread::scope(|scope| {
                let taking = scope.spawn(|| {
                    let mut acceptor = acceptor;
                    take(&mut acceptor, 1)
                });
                let mut stream =
                    UdtConnector::new(at, &local_end::ANY, &transport).connect(Duration::from_secs(5)).unwrap();
                stream.write_all(&[7, 0]).unwrap();
                stream.flush().unwrap();
                let handle = stream.handle();
                let pacing = || handle.settings().pacing_bytes_per_s;
                assert_eq!(pacing(), has_rate.then_some(10_000_000));
                assert_eq!(handle.set_pacing(None).is_ok(), has_rate);
                assert_eq!(pacing(), None);
                assert_eq!(handle.set_pacing(Some(1_000_000)).is_ok(), has_rate);
                // The headers count.
                assert_eq!(pacing().is_some_and(|rate| (1_000_001..1_100_000).contains(&rate)), has_rate);
                drop(taking.join().unwrap());
            });
        }
    }

    #[test]
    fn callers_without_the_token_are_dropped() {
        let mut acceptor = acceptor();
        let at = acceptor.address().unwrap();
        let calls = std::thread::spawn(move || {
            let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
            stranger.send_to(&[0x80; 64], at).unwrap();
            let mut wrong = call(at, [8, 0]);
            let right = call(at, [7, 0]);
            (wrong.read(&mut [0]), right)
        });
        let taken = take(&mut acceptor, 1);
        assert_eq!(taken[0].0, 0);
        // It may not have looked at the wrong one yet.
        drop(acceptor);
        let (wrong, _right) = calls.join().unwrap();
        assert!(matches!(wrong, Ok(0)) || wrong.is_err());
    }

    #[test]
    fn a_stream_that_is_closed_lets_its_reader_go() {
        let mut acceptor = acceptor();
        let at = acceptor.address().unwrap();
        let calling = std::thread::spawn(move || call(at, [7, 0]));
        let (_, mut stream) = take(&mut acceptor, 1).remove(0);
        let handle = stream.handle();
        let reading = std::thread::spawn(move || stream.read(&mut [0]).map_err(|error| error.kind()));
        std::thread::sleep(Duration::from_millis(50));
        handle.close();
        assert_eq!(reading.join().unwrap(), Err(io::ErrorKind::BrokenPipe));
        // The other end learns of it at once.
        let mut other = calling.join().unwrap();
        assert_eq!(other.read(&mut [0]).unwrap(), 0);
    }

    #[test]
    fn the_largest_packet_is_known_whatever_its_header() {
        for local in ["127.0.0.1:0", "[::1]:0"] {
            let check = |preamble: &[u8; 2]| Some(u16::from(preamble[1]));
            let expected = Expected { ports: (0, 0), peer: None, check: Box::new(check) };
            let mut acceptor = UdtAcceptor::new(local.parse().unwrap(), &transport(), expected).unwrap();
            let at = acceptor.address().unwrap();
            let calling = std::thread::spawn(move || call(at, [7, 0]));
            let taken = take(&mut acceptor, 1).remove(0).1;
            for stream in [taken, calling.join().unwrap()] {
                assert_eq!(stream.handle().settings().packet_bytes, Some(9000), "{local}");
            }
        }
    }

    #[test]
    fn nobody_there_is_an_error_that_says_so() {
        let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (at, transport) = (silent.local_addr().unwrap(), transport());
        let begun = std::time::Instant::now();
        let error =
            UdtConnector::new(at, &local_end::ANY, &transport).connect(Duration::from_millis(600)).err().unwrap();
        let why = format!("no answer over UDP from {at} within 0.6 s, though TCP passes; let UDP through");
        assert!(error.to_string().starts_with(&why), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(5));
    }

    /// A link of 200 Mb/s whose queue takes all that the socket's buffer has room for, in a network namespace of its own. It needs
    /// root; without it, it says so and does nothing.
    #[test]
    fn a_sender_that_waits_for_its_kernel_can_be_observed() {
        if !nix::unistd::geteuid().is_root() {
            return eprintln!("skipped: it needs root");
        }
        let run = || {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
            for words in ["ip link set lo up", "tc qdisc add dev lo root tbf rate 200mbit burst 100kb limit 64mb"] {
                let mut words = words.split_whitespace();
                assert!(std::process::Command::new(words.next().unwrap()).args(words).status().unwrap().success());
            }
            let buffer = Buffer::Bytes(Size(80_000_000));
            let transport = Transport { buffer, pacing: Some(fullpipe_path::Rate(4_000_000_000)), ..transport() };
            let mut acceptor = acceptor_for(&transport);
            let at = acceptor.address().unwrap();
            let calling = std::thread::spawn(move || {
                let mut sending =
                    UdtConnector::new(at, &local_end::ANY, &transport).connect(Duration::from_secs(5)).unwrap();
                sending.write_all(&[7, 0]).unwrap();
                sending.flush().unwrap();
                sending
            });
            let mut receiving = take(&mut acceptor, 1).remove(0).1;
            let mut sending = calling.join().unwrap();
            let data: Vec<u8> = (0..60_000_000_u32).map(|i| (i % 251) as u8).collect();
            let handle = sending.handle();
            let sender = std::thread::spawn({
                let data = data.clone();
                move || sending.write_all(&data).and_then(|()| sending.finish())
            });
            let receiver = std::thread::spawn(move || {
                let mut all = Vec::new();
                receiving.read_to_end(&mut all).map(|_| all)
            });
            let mut longest = Duration::ZERO;
            while !sender.is_finished() {
                let begun = std::time::Instant::now();
                handle.observe().unwrap();
                longest = longest.max(begun.elapsed());
                std::thread::sleep(Duration::from_millis(5));
            }
            sender.join().unwrap().unwrap();
            assert!(receiver.join().unwrap().unwrap() == data);
            // What waited for room was not lost.
            assert_eq!(handle.observe().unwrap().udt.unwrap().counters.pkt_recv_nak, 0);
            // A thread that waits is woken when half of the kernel's 32 MB have gone, after 0.6 s.
            assert!(longest < Duration::from_millis(400), "{longest:?}");
        };
        std::thread::scope(|scope| scope.spawn(run).join()).unwrap();
    }
}
