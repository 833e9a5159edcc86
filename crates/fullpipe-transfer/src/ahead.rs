//! How much waits in each stream's socket: as much as keeps TCP busy while the stream's thread does something else, and no
//! more. What waits there can go over no other stream, however much faster that is.

use std::net::TcpStream;

use fullpipe_net::socket::{self, UNSENT};
use fullpipe_net::tcp_info::TcpInfo;

/// At least, bytes.
const LEAST: u32 = 256 << 10;
/// Until the rate is known: slow start doubles it several times between two looks.
const FIRST: u32 = 4 << 20;
/// So many times a second's worth.
const SHARE: f64 = 0.25;

/// What may wait in the sockets of a sending end.
pub(crate) struct Ahead {
    /// What was last set on each, bytes; none where the kernel has refused.
    set: Vec<Option<u32>>,
}

impl Ahead {
    /// Of streams that nothing has been written to.
    pub fn new(sockets: &[TcpStream]) -> Ahead {
        Ahead { set: sockets.iter().map(|socket| set(socket, FIRST)).collect() }
    }

    /// To be called often, with the same streams and what they say.
    pub fn adjust(&mut self, sockets: &[TcpStream], infos: &[Option<TcpInfo>]) {
        for ((socket, info), now) in sockets.iter().zip(infos).zip(&mut self.set) {
            let wanted = wanted(info.as_ref().and_then(|info| info.get("delivery_rate")).unwrap_or(0));
            if now.is_some_and(|now| now != wanted) {
                *now = set(socket, wanted);
            }
        }
    }
}

fn set(socket: &TcpStream, bytes: u32) -> Option<u32> {
    socket::set_unsent(socket, bytes).ok().map(|()| bytes)
}

/// At a rate, bytes per second; 0 where it is not known.
fn wanted(rate: u64) -> u32 {
    match rate {
        0 => FIRST,
        // In steps, so that not every look is a call.
        rate => ((rate as f64 * SHARE) as u32).clamp(LEAST, UNSENT).next_power_of_two(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_follows_the_rate() {
        for (mbit, mib) in [(0.0, 4.0), (3.0, 0.25), (100.0, 4.0), (1_000.0, 32.0), (100_000.0, 32.0)] {
            assert_eq!(f64::from(wanted((mbit * 125e3) as u64)) / 1048576.0, mib, "{mbit}");
        }
    }
}
