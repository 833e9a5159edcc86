//! The receiving half of a connection (section 6.2).

use std::ops::Range;

use crate::ack_window::AckWindow;
use crate::arrival::Arrivals;
use crate::clock::SYN_NS;
use crate::config::{Config, payload_bytes};
use crate::control::{Ack, Rates};
use crate::perfmon::Counters;
use crate::receive_buffer::ReceiveBuffer;
use crate::receive_window::ReceiveWindow;
use crate::receiver_loss_list::ReceiverLossList;
use crate::rtt::Rtt;
use crate::seq::{expand, wire};

/// Packets after which a light ACK leaves (libudt).
const LIGHT_ACK_PACKETS: u64 = 64;
/// Smallest window that an ACK grants, packets (libudt): a sender that waits for room goes on asking.
const MIN_AVAILABLE_PACKETS: u64 = 2;
/// Ranges that one NAK holds at most: two words each, in the smallest packet that two ends may agree on.
const MAX_NAK_RANGES: usize = 180;

/// An ACK that is to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AckKind {
    Light(u32),
    Full(Ack),
}

/// The receiving half of a connection.
#[derive(Debug)]
pub(crate) struct Receiver {
    buffer: ReceiveBuffer,
    window: ReceiveWindow,
    /// Index from which packets are refused; the window may end before.
    refused_from: u64,
    losses: ReceiverLossList,
    arrivals: Arrivals,
    acks: AckWindow,
    /// Largest index that has arrived (LRSN).
    largest: u64,
    received_bytes: u64,
    /// All packets below this index were acknowledged by the last full ACK.
    last_ack: u64,
    last_ack_ns: u64,
    /// All packets below this index are known by the sender to have been acknowledged.
    last_ack2: u64,
    /// Index behind the last packet that the last ACK granted room for.
    granted: u64,
    /// Packets since the last ACK of any kind.
    packets_since_ack: u64,
    ack_due: bool,
    light_ack_due: bool,
    next_ack_ns: u64,
    next_nak_ns: u64,
    /// Ranges to be reported; it keeps its memory.
    report: Vec<Range<u64>>,
    /// What arrived in the batch that is being handled: its first and last packet, and how many.
    batch: Option<(u64, u64, u32)>,
}

impl Receiver {
    pub fn new(now_ns: u64, config: &Config, mss: u16, first: u64) -> Receiver {
        let (most, payload) = (config.receive_packets(mss), payload_bytes(mss));
        let window = ReceiveWindow::new(now_ns, config.first_window_packets(mss), most, payload);
        Receiver {
            granted: first + window.packets(),
            buffer: ReceiveBuffer::new(first, most, payload),
            window,
            refused_from: u64::MAX,
            losses: ReceiverLossList::default(),
            arrivals: Arrivals::default(),
            acks: AckWindow::default(),
            largest: first - 1,
            received_bytes: 0,
            last_ack: first,
            last_ack_ns: now_ns.saturating_sub(SYN_NS),
            last_ack2: first,
            packets_since_ack: 0,
            ack_due: false,
            light_ack_due: false,
            next_ack_ns: now_ns.saturating_add(SYN_NS),
            next_nak_ns: now_ns.saturating_add(SYN_NS),
            report: Vec::new(),
            batch: None,
        }
    }

    /// All packets below this index have arrived (section 6.2, step 1 of "ACK Event Processing").
    fn contiguous(&self) -> u64 {
        self.losses.first().unwrap_or(self.largest + 1)
    }

    /// Index behind the last packet of the window.
    fn limit(&self) -> u64 {
        self.buffer.first() + self.window.packets()
    }

    /// Packets that the window has room for behind those that have arrived in order.
    fn available(&self) -> u64 {
        self.limit().saturating_sub(self.contiguous())
    }

    pub fn available_bytes(&self) -> u64 {
        self.available() * self.buffer.payload_bytes() as u64
    }

    /// Payload bytes that have arrived, in order or not.
    pub fn received_bytes(&self) -> u64 {
        self.received_bytes
    }

    /// Whether packets are missing before the last one that has arrived.
    pub fn has_gaps(&self) -> bool {
        self.losses.packets() > 0
    }

    /// Refuses packets from this index on; see [`crate::Connection::limit_packets`].
    pub fn refuse_from(&mut self, index: u64) {
        self.refused_from = index;
    }

    /// A data packet has arrived (section 6.2, steps 5 to 8).
    pub fn on_data(&mut self, seq: u32, payload: &[u8], counters: &mut Counters) {
        if payload.len() > self.buffer.payload_bytes() {
            return;
        }
        counters.pkt_recv += 1;
        let index = expand(seq, self.largest);
        self.batch = Some(self.batch.map_or((index, index, 1), |(first, _, n)| (first, index, n + 1)));
        self.packets_since_ack += 1;
        if index > self.largest {
            // A packet beyond the window was never allowed, or the window is closed, or it comes too early; it is not there, so
            // nothing is missing before it.
            if index >= self.limit().min(self.refused_from) {
                return;
            }
            counters.pkt_rcv_loss += index - self.largest - 1;
            self.losses.push(self.largest + 1..index);
            self.largest = index;
        } else if !self.losses.remove(index) {
            return;
        }
        self.received_bytes += payload.len() as u64;
        self.buffer.store(index, payload);
        // A packet that is not full usually ends a message: its sender may wait for the ACK (libudt).
        self.ack_due |= payload.len() < self.buffer.payload_bytes();
    }

    /// The datagrams that arrived at one instant have been handled. Returns whether losses are to be reported at once.
    pub fn end_batch(&mut self, arrived_ns: u64) -> bool {
        if let Some((first, last, packets)) = self.batch.take() {
            self.arrivals.arrived(arrived_ns, first, last, packets);
        }
        self.light_ack_due |= self.packets_since_ack >= LIGHT_ACK_PACKETS;
        self.losses.has_unreported()
    }

    /// When the ACK timer or the NAK timer expires.
    pub fn next_timeout_ns(&self) -> u64 {
        let ack = if self.has_news() { self.next_ack_ns } else { u64::MAX };
        if self.has_gaps() { ack.min(self.next_nak_ns) } else { ack }
    }

    /// Whether the sender is not known to know what has arrived.
    fn has_news(&self) -> bool {
        self.contiguous() != self.last_ack2
    }

    /// Lets the timers expire. Returns whether a NAK may be due.
    pub fn on_timer(&mut self, now_ns: u64, rtt: &Rtt) -> bool {
        if now_ns >= self.next_ack_ns {
            self.next_ack_ns = now_ns.saturating_add(SYN_NS);
            self.ack_due |= self.has_news();
        }
        if !self.has_gaps() || now_ns < self.next_nak_ns {
            return false;
        }
        // libudt 4.11 sends no NAK again, and waits for the sender's EXP timer.
        self.next_nak_ns = now_ns.saturating_add(rtt.timeout_ns().max(SYN_NS));
        true
    }

    /// The ACK to be sent now, if one is (section 6.2, "ACK Event Processing").
    pub fn take_ack(&mut self, now_ns: u64, rtt: &Rtt, counters: &mut Counters) -> Option<AckKind> {
        let light = std::mem::take(&mut self.light_ack_due);
        if std::mem::take(&mut self.ack_due)
            && let Some(ack) = self.full_ack(now_ns, rtt)
        {
            counters.pkt_sent_ack += 1;
            self.packets_since_ack = 0;
            return Some(AckKind::Full(ack));
        }
        if !light {
            return None;
        }
        self.packets_since_ack = 0;
        (self.contiguous() != self.last_ack2).then(|| AckKind::Light(wire(self.contiguous())))
    }

    fn full_ack(&mut self, now_ns: u64, rtt: &Rtt) -> Option<Ack> {
        let acked = self.contiguous();
        let since_last = now_ns.saturating_sub(self.last_ack_ns);
        let window_opened = self.window_opened();
        // Step 2: nothing new since an ACK2, or since an ACK that the sender may not have answered yet.
        if !window_opened && (acked == self.last_ack2 || acked == self.last_ack && since_last < rtt.timeout_ns()) {
            return None;
        }
        // Step 3: only one ACK per SYN carries the rates.
        let with_rates = since_last >= SYN_NS;
        let rates = with_rates
            .then(|| Rates { arrival_pps: self.arrivals.arrival_pps(), capacity_pps: self.arrivals.capacity_pps() });
        if with_rates {
            self.last_ack_ns = now_ns;
        }
        self.last_ack = acked;
        let available = self.available().max(MIN_AVAILABLE_PACKETS);
        self.granted = acked + available;
        Some(Ack {
            ack_seq: self.acks.sent(now_ns, acked),
            data_seq: wire(acked),
            rtt_us: (rtt.smoothed_ns() / 1000) as u32,
            rtt_variance_us: (rtt.variance_ns() / 1000) as u32,
            available_packets: available.min(i32::MAX as u64) as u32,
            rates,
        })
    }

    /// Whether the reader has made much more room, or the window has grown much more, than the sender knows of. libudt sends no such
    /// ACK, and its sender then waits for its EXP timer.
    fn window_opened(&self) -> bool {
        let new = self.limit().saturating_sub(self.granted);
        let left = self.granted.saturating_sub(self.largest + 1);
        new >= self.window.packets() / 4 || left <= MIN_AVAILABLE_PACKETS && new >= 8
    }

    /// Ranges to be reported in a NAK now: the new ones, or with `again` all that are due.
    pub fn take_report(&mut self, now_ns: u64, rtt: &Rtt, again: bool, max_words: usize) -> &[Range<u64>] {
        let max_ranges = MAX_NAK_RANGES.min(max_words / 2);
        if again {
            // The time that the losses themselves take to be sent again at the present rate (libudt).
            let sending_ns = match self.arrivals.arrival_pps() {
                0 => 0,
                pps => self.losses.packets().saturating_mul(1_000_000_000) / u64::from(pps),
            };
            let interval_ns = rtt.timeout_ns().max(SYN_NS).saturating_add(sending_ns);
            self.losses.due(now_ns, interval_ns, max_ranges, &mut self.report);
        } else {
            self.losses.unreported(now_ns, max_ranges, &mut self.report);
        }
        &self.report
    }

    /// An ACK2 (section 6.2, "On ACK2 packet received"); returns the RTT that it gives.
    pub fn on_ack2(&mut self, now_ns: u64, ack_seq: u32) -> Option<u64> {
        let (acked, rtt_ns) = self.acks.acknowledged(now_ns, ack_seq)?;
        self.last_ack2 = self.last_ack2.max(acked);
        Some(rtt_ns)
    }

    /// The next bytes to read.
    pub fn readable(&mut self) -> &[u8] {
        let end = self.contiguous();
        self.buffer.readable(end)
    }

    /// Whether there are bytes to read.
    pub fn is_readable(&self) -> bool {
        self.buffer.first() < self.contiguous()
    }

    /// Counts bytes as read. Returns whether an ACK is due because the sender waits for room.
    pub fn consume(&mut self, now_ns: u64, bytes: usize, rtt: &Rtt) -> bool {
        let read = self.buffer.consume(bytes, self.contiguous());
        self.window.read(now_ns, read, rtt.smoothed_ns());
        let opened = self.window_opened();
        self.ack_due |= opened;
        opened
    }
}
