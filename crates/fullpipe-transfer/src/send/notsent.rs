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
/// The same near the end, when it decides how long the others wait for the slowest.
const LAST_SHARE: f64 = 0.02;

/// What may wait in the sockets of a sending end.
pub(crate) struct NotsentLimit {
    /// What was last set on each, bytes; none where the kernel has refused.
    set: Vec<Option<u32>>,
}

impl NotsentLimit {
    /// Of streams that nothing has been written to.
    pub fn new(sockets: &[TcpStream]) -> NotsentLimit {
        NotsentLimit { set: sockets.iter().map(|socket| set(socket, FIRST)).collect() }
    }

    /// To be called often, with the same streams and what they say, and the bytes that none of them has taken yet, if
    /// that is all that is to come.
    pub fn adjust(&mut self, sockets: &[TcpStream], infos: &[Option<TcpInfo>], rest: Option<u64>) {
        let rate = |info: &Option<TcpInfo>| info.as_ref().and_then(|info| info.get("delivery_rate")).unwrap_or(0);
        // Less than a second is to come: until the end the slowest has sent what now waits in its socket.
        let near_end =
            sockets.len() > 1 && rest.is_some_and(|rest| rest < infos.iter().map(rate).fold(0, u64::saturating_add));
        for ((socket, info), now) in sockets.iter().zip(infos).zip(&mut self.set) {
            let wanted = wanted(rate(info), near_end);
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
fn wanted(rate: u64, near_end: bool) -> u32 {
    let worth = |share| ((rate as f64 * share) as u32).clamp(LEAST, UNSENT);
    match rate {
        0 => FIRST,
        // To the byte: all are to end at the same time.
        _ if near_end => worth(LAST_SHARE),
        // In steps, so that not every look is a call.
        _ => worth(SHARE).next_power_of_two(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_follows_the_rate() {
        for (mbit, mib) in [(0.0, 4.0), (3.0, 0.25), (100.0, 4.0), (1_000.0, 32.0), (100_000.0, 32.0)] {
            assert_eq!(f64::from(wanted((mbit * 125e3) as u64, false)) / 1048576.0, mib, "{mbit}");
        }
        for (mbit, bytes) in [(0.0, FIRST), (3.0, LEAST), (1_000.0, 2_500_000), (4_000.0, 10_000_000), (1e5, UNSENT)] {
            assert_eq!(wanted((mbit * 125e3) as u64, true), bytes, "{mbit}");
        }
    }
}
