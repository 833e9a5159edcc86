//! Datagrams that make the receiver's loss list as long as the window allows.

use fullpipe_udt::loss_report::LossReport;
use fullpipe_udt::packet::{DataHeader, HEADER_BYTES, NAK};
use fullpipe_udt::{Config, Connection, Transmit};

use crate::sim::{Link, MS, Pair};

/// A connection, and data packets for it of one byte each, in the order in which they arrive.
pub struct Gaps {
    connection: Connection,
    now_ns: u64,
    packets: Vec<[u8; HEADER_BYTES + 1]>,
}

impl Gaps {
    /// Every second packet of a window of `2 * gaps` packets, then those between, from the middle outwards.
    pub fn new(gaps: u32) -> Gaps {
        let odd = (0..gaps).map(|i| 2 * i + 1);
        let between = (0..gaps).map(|i| if i % 2 == 0 { gaps + i } else { gaps - 1 - i });
        Gaps::of(2 * gaps, odd.chain(between))
    }

    /// As many packets without a gap.
    #[allow(dead_code)]
    pub fn none(packets: u32) -> Gaps {
        Gaps::of(packets, 0..packets)
    }

    fn of(window: u32, order: impl Iterator<Item = u32>) -> Gaps {
        let bytes = u64::from(window) * 1456;
        let big = Config { receive_buffer_bytes: bytes as _, send_buffer_bytes: bytes as _, ..Config::default() };
        let link = || Link::new(None, MS, 0.0, 1);
        let mut pair = Pair::connect(big.clone(), big, link(), link(), 2);
        let mut first = 0;
        pair.a.connection.write(pair.now_ns, &[0; 1456]);
        while let Some(transmit) = pair.a.connection.poll_transmit(pair.now_ns, 65_000) {
            if let Transmit::Data(run) = transmit {
                first = u32::from_be_bytes(*run.bytes.first_chunk().unwrap());
            }
        }
        let socket_id = pair.b.connection.local_id();
        let packet = |offset: u32| {
            let mut packet = [0; HEADER_BYTES + 1];
            let seq = first.wrapping_add(offset) & 0x7fff_ffff;
            DataHeader { seq, message: 1, timestamp_us: 0, socket_id }.write(packet.first_chunk_mut().unwrap());
            packet
        };
        Gaps { connection: pair.b.connection, now_ns: pair.now_ns, packets: order.map(packet).collect() }
    }

    /// Handles all packets; timers expire all the time.
    pub fn handle_all(&mut self) {
        for thousand in self.packets.chunks(1000) {
            for packet in thousand {
                self.connection.handle_datagrams(self.now_ns, packet, packet.len());
            }
            self.now_ns += 10 * MS;
            self.connection.handle_timeout(self.now_ns);
            while self.connection.poll_transmit(self.now_ns, 65_000).is_some() {}
        }
    }

    /// Handles the first packets, and returns the number of ranges that NAKs report after this time, in nanoseconds.
    #[allow(dead_code)]
    pub fn reported(&mut self, packets: usize, after_ns: u64) -> usize {
        for packet in self.packets.drain(..packets) {
            self.connection.handle_datagrams(self.now_ns, &packet, packet.len());
        }
        self.now_ns += after_ns;
        self.connection.handle_timeout(self.now_ns);
        let mut ranges = 0;
        while let Some(transmit) = self.connection.poll_transmit(self.now_ns, 65_000) {
            let Transmit::Control(bytes) = transmit else { continue };
            if u16::from_be_bytes([bytes[0] & 0x7f, bytes[1]]) == NAK {
                ranges += LossReport::new(&bytes[HEADER_BYTES..]).map_or(0, |report| report.ranges().count());
            }
        }
        ranges
    }

    /// Bytes that have arrived.
    pub fn received_bytes(&self) -> u64 {
        self.connection.snapshot(self.now_ns).received_bytes
    }
}
