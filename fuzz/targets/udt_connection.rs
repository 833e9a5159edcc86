//! A whole connection of UDT: two ends over a path that loses, delays and repeats datagrams, and forges some, as the input says.
//! While nothing is forged the transfer stays right to the last byte; whatever is forged, nothing panics or goes on for ever.
#![no_main]

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};

use fullpipe_fuzz::{mutant_of_bytes, replay};
use fullpipe_udt::{Caller, Config, Connection, Listener, Progress, RateControl, Request, Transmit};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| replay(data, mutant_of_bytes, run));

/// Steps that are played, at most.
const MOST: usize = 600;
/// Bytes that each end writes.
const BYTES: u64 = 20_000;

/// One end, and the datagrams on their way to it.
struct End {
    connection: Connection,
    arriving: VecDeque<Vec<u8>>,
    written: u64,
    read: u64,
}

fn byte(offset: u64) -> u8 {
    (offset * 31 + offset / 251) as u8
}

fn run(data: &[u8]) {
    let Some((&how, steps)) = data.split_first() else { return };
    let mut now: u64 = 1 << 50;
    let mut ends = connect(now, how);
    if how & 2 != 0 {
        // As for a caller that has not shown a token yet.
        ends[1].connection.limit_packets(Some(4));
    }
    let mut forged = false;
    let mut rest = steps;
    for _ in 0..MOST {
        let Some((&step, behind)) = rest.split_first() else { break };
        rest = behind;
        let (to, amount) = (usize::from(step & 1), u64::from(step >> 4));
        match step >> 1 & 7 {
            0 | 1 => deliver(&mut ends[to], now),
            2 => drop(ends[to].arriving.pop_front()),
            3 => {
                if let Some(datagram) = ends[to].arriving.front().cloned() {
                    ends[to].arriving.push_back(datagram);
                }
            }
            4 if !ends[to].arriving.is_empty() => ends[to].arriving.rotate_left(1),
            5 => now = now.saturating_add(1 << (13 + amount * 2)),
            6 => now = now.saturating_sub(1 << (13 + amount * 2)),
            _ => {
                // A datagram of the input's, with the right socket where there is room for one.
                let (len, behind) = rest.split_first().map_or((0, rest), |(len, behind)| (usize::from(*len), behind));
                let (bytes, behind) = behind.split_at(behind.len().min(len));
                rest = behind;
                let mut datagram = bytes.to_vec();
                if let Some(socket) = datagram.get_mut(12..16) {
                    socket.copy_from_slice(&ends[to].connection.local_id().to_be_bytes());
                    forged = true;
                }
                ends[to].connection.handle_datagrams(now, &datagram, datagram.len());
            }
        }
        work(&mut ends, now, forged);
    }
    if !forged {
        finish(ends, now);
    }
}

/// The path is a good one from now on: all that was written arrives.
fn finish(mut ends: [End; 2], mut now: u64) {
    for _ in 0..20_000 {
        if ends.iter().all(|end| end.read == BYTES || end.connection.ended().is_some()) {
            break;
        }
        while ends.iter().any(|end| !end.arriving.is_empty()) {
            ends.iter_mut().for_each(|end| deliver(end, now));
            work(&mut ends, now, false);
        }
        now = ends.iter().filter_map(|end| end.connection.next_timeout()).min().unwrap_or(now).max(now + 1);
        work(&mut ends, now, false);
    }
    let lost = ends.iter().any(|end| end.connection.ended().is_some());
    assert!(lost || ends.iter().all(|end| end.read == BYTES), "{} and {} of {BYTES}", ends[0].read, ends[1].read);
}

fn deliver(end: &mut End, now: u64) {
    if let Some(datagram) = end.arriving.pop_front() {
        end.connection.handle_datagrams(now, &datagram, datagram.len());
    }
}

/// Programs and timers of both ends.
fn work(ends: &mut [End; 2], now: u64, forged: bool) {
    for i in 0..2 {
        let end = &mut ends[i];
        end.connection.handle_timeout(now);
        let data: Vec<u8> = (end.written..BYTES.min(end.written + 3_000)).map(byte).collect();
        end.written += end.connection.write(now, &data) as u64;
        loop {
            let bytes = end.connection.readable();
            if bytes.is_empty() {
                break;
            }
            let n = bytes.len();
            assert!(forged || (end.read..).zip(bytes).all(|(offset, got)| *got == byte(offset)), "a wrong byte");
            end.read += n as u64;
            end.connection.consume(n);
            end.connection.limit_packets(None);
        }
        let mut out = Vec::new();
        while let Some(transmit) = end.connection.poll_transmit(now, 65_000) {
            match transmit {
                Transmit::Control(packet) => out.push(packet.to_vec()),
                Transmit::Data(run) => out.extend(run.bytes.chunks(run.segment_bytes).map(<[u8]>::to_vec)),
            }
            assert!(out.len() < 10_000, "an end sends without end");
        }
        ends[1 - i].arriving.extend(out);
        ends[1 - i].arriving.truncate(1_000);
    }
}

fn connect(now: u64, how: u8) -> [End; 2] {
    let control = if how & 1 == 0 { RateControl::Native } else { RateControl::Fixed(1e8) };
    let config = Config {
        mss: 300,
        send_buffer_bytes: 10_000,
        receive_buffer_bytes: 10_000,
        // The window may grow.
        first_window_bytes: 5_000,
        control,
        ..Config::default()
    };
    let address = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut listener = Listener::new(config.clone(), 1, [how; 32]);
    let mut caller = Caller::new(now, config, address(1), [how; 16]);
    let mut accepted = None;
    while let Some(request) = caller.poll_transmit(now) {
        let answer = match listener.handle_datagram(now, address(2), &request) {
            Request::Answer(answer) => answer,
            Request::Accepted(connection, answer) => {
                accepted = Some(*connection);
                answer
            }
            Request::Ignored => break,
        };
        if let (Progress::Connected(connection), Some(other)) = (caller.handle_datagram(now, &answer), accepted.take())
        {
            return [*connection, other].map(|connection| End {
                connection,
                arriving: VecDeque::new(),
                written: 0,
                read: 0,
            });
        }
    }
    panic!("two ends without a path between them cannot connect");
}
