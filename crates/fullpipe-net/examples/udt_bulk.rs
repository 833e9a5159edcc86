//! Sends or receives bytes over UDT, to be measured and to be tried against libudt: `bench/udt.py`, `bench/libudt.cpp`.
//!
//!     udt_bulk listen|call ADDRESS send|receive BYTES STREAMS check|drop [BUFFER_BYTES [BITS_PER_S]]
//!
//! BYTES are those of each stream. The receiving end prints bytes and seconds from its first to its last byte.

use std::error::Error;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use fullpipe_net::stream::udt::{UdtAcceptor, UdtConnector};
use fullpipe_net::stream::{Acceptor, Connector, DataStream, Expected};
use fullpipe_net::{local_end, sys};
use fullpipe_path::{Buffer, Rate, Size, Transport};

/// Bytes after which the data repeats; no multiple of any packet.
const PERIOD: usize = 1_000_003;
/// Bytes of one write or read.
const BLOCK: usize = 256 << 10;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [role, address, direction, bytes, streams, check, rest @ ..] = &args[..] else {
        return Err(
            "udt_bulk listen|call ADDRESS send|receive BYTES STREAMS check|drop [BUFFER_BYTES [BITS_PER_S]]".into()
        );
    };
    let address: SocketAddr = address.parse()?;
    let (bytes, streams): (u64, u16) = (bytes.parse()?, streams.parse()?);
    let buffer = rest.first().map_or(Ok(Buffer::Auto), |text| text.parse().map(|n| Buffer::Bytes(Size(n))))?;
    let pacing = rest.get(1).map(|text| text.parse().map(Rate)).transpose()?;
    let transport = Transport { cc: "udt".into(), streams, buffer, pacing, dscp: None, mss: None };
    let open = match role.as_str() {
        "listen" => listen(address, &transport)?,
        _ => {
            let connector = UdtConnector::new(address, &local_end::ANY, &transport);
            let connect = |_| connector.connect(Duration::from_secs(10));
            (0..streams).map(connect).collect::<Result<_, _>>()?
        }
    };
    let (sends, checks) = (direction == "send", check == "check");
    let data: Vec<u8> = pattern(PERIOD + BLOCK);
    let moved = std::thread::scope(|scope| {
        let threads: Vec<_> = open
            .into_iter()
            .map(|stream| {
                scope.spawn(|| if sends { send(stream, &data, bytes) } else { receive(stream, &data, bytes, checks) })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().map_err(|_| "a thread panicked")?)
            .collect::<Result<Vec<_>, String>>()
    })?;
    if !sends {
        let (first, last) =
            moved.iter().fold((None, None), |(first, last): (Option<Instant>, Option<Instant>), (a, b)| {
                (Some(first.map_or(*a, |first| first.min(*a))), Some(last.map_or(*b, |last| last.max(*b))))
            });
        let seconds = first.zip(last).map_or(0.0, |(first, last)| (last - first).as_secs_f64());
        println!("{} {seconds}", bytes * u64::from(streams));
    }
    Ok(())
}

fn listen(address: SocketAddr, transport: &Transport) -> Result<Vec<Box<dyn DataStream>>, Box<dyn Error>> {
    let expected = Expected::<0> { ports: (address.port(), address.port()), peer: None, check: Box::new(|_| Some(0)) };
    let mut acceptor = UdtAcceptor::new(address, transport, expected)?;
    let mut open = Vec::new();
    while open.len() < usize::from(transport.streams) {
        sys::wait_readable([acceptor.as_fd()], 1_000_000_000)?;
        open.extend(acceptor.accepted()?.into_iter().map(|(_, stream)| stream));
    }
    Ok(open)
}

/// xorshift64, the same as in `bench/libudt.cpp`.
fn pattern(bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let period = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    });
    let period: Vec<u8> = period.take(PERIOD).collect();
    period.iter().copied().cycle().take(bytes).collect()
}

type Moved = Result<(Instant, Instant), String>;

fn send(mut stream: Box<dyn DataStream>, data: &[u8], bytes: u64) -> Moved {
    let (begun, mut sent) = (Instant::now(), 0u64);
    while sent < bytes {
        let at = (sent % PERIOD as u64) as usize;
        let n = (bytes - sent).min(BLOCK as u64) as usize;
        sent += stream.write(&data[at..at + n]).map_err(|error| format!("after {sent} bytes: {error}"))? as u64;
    }
    stream.finish().map_err(|error| format!("finishing: {error}"))?;
    Ok((begun, Instant::now()))
}

fn receive(mut stream: Box<dyn DataStream>, data: &[u8], bytes: u64, checks: bool) -> Moved {
    let (mut first, mut got, mut block) = (None, 0u64, vec![0; BLOCK]);
    while got < bytes {
        let left = (bytes - got).min(1 << 30) as usize;
        let n = match checks {
            true => stream.read(&mut block[..left.min(BLOCK)]),
            false => stream.discard(left, first.is_some()),
        }
        .map_err(|error| format!("after {got} bytes: {error}"))?;
        if n == 0 {
            return Err(format!("the stream ended after {got} bytes"));
        }
        first.get_or_insert_with(Instant::now);
        let at = (got % PERIOD as u64) as usize;
        if checks && block[..n] != data[at..at + n] {
            return Err(format!("wrong bytes between {got} and {}", got + n as u64));
        }
        got += n as u64;
    }
    let last = Instant::now();
    // The other end's shutdown, so that it knows that all has come.
    match stream.read(&mut block) {
        Ok(0) => Ok((first.unwrap_or(last), last)),
        Ok(_) => Err("more bytes than were announced".into()),
        Err(error) => Err(format!("at the end: {error}")),
    }
}
