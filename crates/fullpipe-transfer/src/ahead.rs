//! How much waits in each stream's socket: as much as keeps TCP busy while the stream's thread does something else, and no
//! more. What waits there can go over no other stream, however much faster that is.

use std::net::TcpStream;

use fullpipe_net::socket;

use crate::secure::Stream;
use crate::sobas::read;

/// At least, bytes.
const LEAST: u64 = 256 << 10;
/// Until the rate is known: slow start doubles it several times between two looks.
const FIRST: u64 = 4 << 20;
/// At most: at 100 Gb/s it lasts over two milliseconds.
const MOST: u64 = 32 << 20;
/// So many times a second's worth.
const SHARE: f64 = 0.25;

/// What may wait in the sockets of a sending end.
pub(crate) struct Ahead {
    sockets: Vec<(TcpStream, u64)>,
}

impl Ahead {
    /// Of streams that nothing has been written to.
    pub fn new(streams: &[Stream]) -> Ahead {
        let ahead = |stream: &Stream| {
            let socket = stream.socket().try_clone().ok()?;
            socket::set_unsent(&socket, FIRST as u32).ok()?;
            Some((socket, FIRST))
        };
        Ahead { sockets: streams.iter().filter_map(ahead).collect() }
    }

    /// To be called often.
    pub fn adjust(&mut self) {
        for (socket, now) in &mut self.sockets {
            let rate = read(socket).and_then(|info| info.get("delivery_rate")).unwrap_or(0);
            let wanted = wanted(rate);
            // If the kernel refuses it, it stays as it is.
            if wanted != *now && socket::set_unsent(socket, wanted as u32).is_ok() {
                *now = wanted;
            }
        }
    }
}

/// At a rate, bytes per second; 0 where it is not known.
fn wanted(rate: u64) -> u64 {
    match rate {
        0 => FIRST,
        // In steps, so that not every look is a call.
        rate => ((rate as f64 * SHARE) as u64).clamp(LEAST, MOST).next_power_of_two(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_follows_the_rate() {
        for (mbit, mib) in [(0.0, 4.0), (3.0, 0.25), (100.0, 4.0), (1_000.0, 32.0), (100_000.0, 32.0)] {
            assert_eq!(wanted((mbit * 125e3) as u64) as f64 / 1048576.0, mib, "{mbit}");
        }
    }
}
