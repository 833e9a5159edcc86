//! How much a receiver lets the other end send: a window that grows with what the reader takes per round trip.
//!
//! A fixed window (libudt's) that fills a long, fast path is far too large for a slow reader, whose data would fill it all. So the
//! window may begin smaller. It grows to several times what is read in a round trip, as Linux sizes TCP's buffers
//! (`tcp_rcv_space_adjust`): memory follows what path and reader carry, and a peer that wants more held must first have had as much
//! read.

/// Times what is read in a round trip that the window has: two round trips for a lost packet that comes again, and as much again, so
/// that the window grows faster than a slow start, which doubles what is sent in a round trip.
const GROWTH: u64 = 4;

/// The window of a receiver.
#[derive(Debug)]
pub struct ReceiveWindow {
    /// Packets that the window has now.
    packets: u64,
    /// Packets that it may have.
    most: u64,
    /// Bytes of payload of a full packet.
    payload_bytes: u64,
    /// When the round trip began whose bytes are counted.
    began_ns: u64,
    /// Bytes that were read since then.
    read_bytes: u64,
}

impl ReceiveWindow {
    /// A window of `first` packets that may grow to `most`.
    pub fn new(now_ns: u64, first: usize, most: usize, payload_bytes: usize) -> ReceiveWindow {
        let most = most as u64;
        let packets = most.min(first as u64);
        ReceiveWindow { packets, most, payload_bytes: payload_bytes as u64, began_ns: now_ns, read_bytes: 0 }
    }

    /// Packets that the window has now.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// Counts bytes that were read, not packets: a peer that sends packets of a byte each gets no room for full ones.
    pub fn read(&mut self, now_ns: u64, bytes: usize, rtt_ns: u64) {
        if now_ns.saturating_sub(self.began_ns) >= rtt_ns {
            self.began_ns = now_ns;
            self.read_bytes = 0;
        }
        self.read_bytes = self.read_bytes.saturating_add(bytes as u64);
        let wanted = self.read_bytes.saturating_mul(GROWTH) / self.payload_bytes;
        self.packets = self.packets.max(wanted.min(self.most));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn the_window_follows_what_is_read_in_a_round_trip() {
        let mut window = ReceiveWindow::new(0, 100, 1_000, 10);
        // 50 packets in each round trip of 20 ms, for long: twice the first window.
        for ms in 0..1000 {
            window.read(ms * MS, 25, 20 * MS);
        }
        assert_eq!(window.packets(), 200);
        // A hundredfold rate: all that there may be, and no more.
        for ms in 1000..1100 {
            window.read(ms * MS, 2_500, 20 * MS);
        }
        assert_eq!(window.packets(), 1_000);
    }

    #[test]
    fn a_window_without_growth_stays() {
        let mut window = ReceiveWindow::new(0, usize::MAX, 1_000, 10);
        assert_eq!(window.packets(), 1_000);
        window.read(MS, usize::MAX, MS);
        assert_eq!(window.packets(), 1_000);
    }
}
