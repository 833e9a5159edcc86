//! The sending half of a connection (section 6.1).

use std::ops::Range;

use crate::arrival::PAIR_INTERVAL;
use crate::config::{Config, payload_bytes};
use crate::congestion::{CongestionControl, Path};
use crate::control::Ack;
use crate::loss_report::LossReport;
use crate::pacer::Pacer;
use crate::packet::{DataHeader, HEADER_BYTES};
use crate::perfmon::Counters;
use crate::rtt::Rtt;
use crate::send_buffer::SendBuffer;
use crate::sender_loss_list::SenderLossList;
use crate::seq::{expand, wire};
use crate::stamp::Stamp;

/// Smallest flow window, packets: libudt's receiver never grants less, which keeps a full buffer from stopping a sender for ever.
const MIN_FLOW_WINDOW: u64 = 2;
/// Fewest losses in a row that count as the end of a burst that a queue did not hold. Random losses come one by one.
const BURST_LOSS: u64 = 3;
/// Most time in queues at which such losses count, in bursts. A queue that fills slowly shows in the RTT before it overflows.
const BURST_QUEUEING: u64 = 2;
/// How long a packet that is not full waits for more data, nanoseconds.
const PARTIAL_DELAY_NS: u64 = 1_000_000;

/// Data packets to be sent as one buffer: all of one length, but the last, which may be shorter.
#[derive(Debug)]
pub struct Segments<'a> {
    /// The packets with their headers, one behind the other.
    pub bytes: &'a [u8],
    /// Bytes of each packet but the last: the value for `UDP_SEGMENT`.
    pub segment_bytes: usize,
    /// How many packets there are.
    pub packets: usize,
    /// How long the first packet waits in a kernel that spaces them (`SO_TXTIME`), nanoseconds from now on.
    pub wait_ns: u64,
    /// Time from one packet to the next there, nanoseconds.
    pub period_ns: f64,
}

/// The sending half of a connection.
#[derive(Debug)]
pub(crate) struct Sender {
    buffer: SendBuffer,
    losses: SenderLossList,
    pacer: Pacer,
    control: Box<dyn CongestionControl>,
    /// Index of the first packet of this direction.
    start: u64,
    /// All packets below this index have been acknowledged, by a light or a full ACK.
    acked: u64,
    /// Bytes of payload that have been acknowledged.
    acked_bytes: u64,
    flow_window: u64,
    max_window: u64,
    mss: u16,
    capacity_pps: f64,
    arrival_pps: f64,
    /// When the packet that is not full leaves in any case.
    partial_due_ns: Option<u64>,
}

impl Sender {
    pub fn new(now_ns: u64, config: &Config, mss: u16, first: u64, flow_window: u64, rtt: &Rtt, seed: u64) -> Sender {
        let flow_window = flow_window.max(MIN_FLOW_WINDOW);
        Sender {
            buffer: SendBuffer::new(first, config.send_packets(mss), payload_bytes(mss)),
            losses: SenderLossList::default(),
            pacer: Pacer::new(now_ns, rtt.burst_ns(), config.max_burst_packets),
            control: config.control.start(now_ns, first, mss, seed),
            start: first,
            acked: first,
            acked_bytes: 0,
            // The draft begins with 16; libudt with the window of the handshake, as its slow start has its own 16.
            flow_window,
            max_window: flow_window,
            mss,
            capacity_pps: 0.0,
            arrival_pps: 0.0,
            partial_due_ns: None,
        }
    }

    pub fn write(&mut self, now_ns: u64, data: &[u8]) -> usize {
        let written = self.buffer.write(data);
        match self.buffer.has_partial() {
            true if written > 0 => self.partial_due_ns = Some(now_ns.saturating_add(PARTIAL_DELAY_NS)),
            true => {}
            false => self.partial_due_ns = None,
        }
        written
    }

    /// Lets a packet that is not full leave without waiting for more data.
    pub fn flush(&mut self) {
        if self.partial_due_ns.is_some() {
            self.partial_due_ns = Some(0);
        }
    }

    pub fn buffer(&self) -> &SendBuffer {
        &self.buffer
    }

    pub fn control_mut(&mut self) -> &mut dyn CongestionControl {
        &mut *self.control
    }

    pub fn control(&self) -> &dyn CongestionControl {
        &*self.control
    }

    pub fn flow_window(&self) -> u64 {
        self.flow_window
    }

    pub fn capacity_pps(&self) -> f64 {
        self.capacity_pps
    }

    pub fn acked_bytes(&self) -> u64 {
        self.acked_bytes
    }

    /// Packets that have been sent and not acknowledged.
    pub fn in_flight(&self) -> u64 {
        self.buffer.next() - self.acked
    }

    fn path(&self, rtt: &Rtt) -> Path {
        Path {
            rtt_ns: rtt.smoothed_ns(),
            mss: self.mss,
            capacity_pps: self.capacity_pps,
            arrival_pps: self.arrival_pps,
            largest_sent: self.buffer.next().saturating_sub(1),
            max_window: self.max_window,
        }
    }

    /// New packets that may be sent: there is data, and the windows are open (section 6.1, step 4a).
    fn sendable(&self, now_ns: u64) -> u64 {
        let window = self.flow_window.min(self.control.window_packets() as u64);
        let ready = match self.partial_due_ns {
            Some(due) if now_ns < due => self.buffer.full_unsent(),
            _ => self.buffer.unsent(),
        };
        window.saturating_sub(self.in_flight()).min(ready)
    }

    /// When the next packets may be sent; `None` while there is nothing to send, or no window.
    pub fn next_send_ns(&self, now_ns: u64) -> Option<u64> {
        if self.parts_pair() && self.sendable(now_ns) > 0 {
            return Some(now_ns);
        }
        let paced = self.pacer.next_ns(self.control.sending_period_ns());
        if !self.losses.is_empty() || self.sendable(now_ns) > 0 {
            return Some(paced);
        }
        let due = self.partial_due_ns.filter(|_| self.sendable(u64::MAX) > 0)?;
        Some(paced.max(due))
    }

    /// The packets to send now, at most `max_bytes` with headers: lost ones first (section 6.1, step 1).
    pub fn segments(
        &mut self,
        now_ns: u64,
        max_bytes: usize,
        stamp: Stamp,
        counters: &mut Counters,
    ) -> Option<Segments<'_>> {
        let period_ns = self.control.sending_period_ns();
        let allowance = self.pacer.allowance(now_ns, period_ns);
        let pair = self.parts_pair() && self.sendable(now_ns) > 0;
        let run = match self.losses.first() {
            // Nothing comes between the packets of a pair.
            _ if pair => self.new_run(now_ns, allowance.max(1), max_bytes)?,
            _ if allowance == 0 => return None,
            Some(lost) => {
                let run = self.buffer.run(lost.start..lost.end.min(lost.start + allowance), max_bytes);
                self.losses.remove_below(run.end);
                counters.pkt_retrans += run.end - run.start;
                run
            }
            None => self.new_run(now_ns, allowance, max_bytes)?,
        };
        let packets = run.end - run.start;
        let wait_ns = self.pacer.leave(now_ns, packets, pair, period_ns);
        self.pacer.sent(packets, period_ns);
        counters.pkt_sent += packets;
        let start = self.start;
        let header = |index: u64, to: &mut [u8; HEADER_BYTES]| {
            // Message numbers begin with 1 and follow one another (libudt).
            let message = ((index - start) % ((1 << 29) - 1)) as u32 + 1;
            DataHeader { seq: wire(index), message, timestamp_us: stamp.timestamp_us, socket_id: stamp.socket_id }
                .write(to);
        };
        let segment_bytes = payload_bytes(self.mss) + HEADER_BYTES;
        let bytes = self.buffer.packets(run, header);
        Some(Segments { bytes, segment_bytes, packets: packets as usize, wait_ns, period_ns })
    }

    /// Whether the next new packet is the second one of a packet pair, which follows the first without waiting (section 6.1,
    /// step 5). It counts for the pace here; in libudt it does not.
    fn parts_pair(&self) -> bool {
        let next = self.buffer.next();
        next > self.start && (next - 1).is_multiple_of(PAIR_INTERVAL)
    }

    fn new_run(&mut self, now_ns: u64, allowance: u64, max_bytes: usize) -> Option<Range<u64>> {
        let sendable = self.sendable(now_ns);
        if sendable == 0 {
            return None;
        }
        let next = self.buffer.next();
        let run = self.buffer.run(next..next + sendable.min(allowance), max_bytes);
        self.buffer.sent_up_to(run.end);
        if self.buffer.unsent() == 0 {
            self.partial_due_ns = None;
        }
        Some(run)
    }

    /// Takes the number that an ACK acknowledges. Returns how many packets are newly acknowledged, `None` if the number is none
    /// that could be.
    fn acknowledge(&mut self, data_seq: u32) -> Option<u64> {
        let acked = expand(data_seq, self.acked);
        if acked > self.buffer.next() || acked < self.start {
            return None;
        }
        let new = acked.saturating_sub(self.acked);
        if new > 0 {
            self.acked = acked;
            self.acked_bytes += self.buffer.acknowledge(acked);
            self.losses.remove_below(acked);
        }
        Some(new)
    }

    /// A light ACK (section 6.2, "On ACK packet received", steps 1 and 6). libudt frees its buffer at full ACKs alone.
    pub fn on_light_ack(&mut self, data_seq: u32) {
        let new = self.acknowledge(data_seq).unwrap_or(0);
        // The receiver's buffer ends where it ended (libudt).
        self.flow_window = self.flow_window.saturating_sub(new).max(MIN_FLOW_WINDOW);
    }

    /// A full ACK (section 6.2, "On ACK packet received"). The RTT has been updated.
    pub fn on_ack(&mut self, now_ns: u64, ack: &Ack, rtt: &Rtt) {
        let before = self.acked;
        if self.acknowledge(ack.data_seq).is_none() {
            return;
        }
        self.pacer.set_burst_ns(rtt.burst_ns());
        if expand(ack.data_seq, self.acked) == self.acked {
            self.flow_window = u64::from(ack.available_packets).max(MIN_FLOW_WINDOW);
            self.max_window = self.max_window.max(self.flow_window);
        }
        if let Some(rates) = ack.rates {
            smooth(&mut self.arrival_pps, rates.arrival_pps);
            smooth(&mut self.capacity_pps, rates.capacity_pps);
        }
        // An ACK that repeats another says only what the window is (libudt). Light ACKs may have said this number before.
        if self.acked > before || ack.rates.is_some() {
            let path = self.path(rtt);
            self.control.on_ack(now_ns, self.acked, &path);
        }
    }

    /// A NAK (section 6.2, "On NAK packet received"). Packets that were never sent, or have been acknowledged, are passed over.
    pub fn on_nak(&mut self, now_ns: u64, report: &LossReport<'_>, rtt: &Rtt, counters: &mut Counters) {
        let next = self.buffer.next();
        let (mut first_lost, mut in_a_row) = (None, 0);
        for (first, last) in report.ranges() {
            let (first, last) = (expand(first, next), expand(last, next));
            if first > last || last >= next {
                break;
            }
            let range = first.max(self.acked)..last + 1;
            if range.is_empty() {
                continue;
            }
            first_lost.get_or_insert(first);
            in_a_row = in_a_row.max(range.end - range.start);
            counters.pkt_snd_loss += self.losses.insert(range);
        }
        // Either end may let an answer wait for as long as it gathers.
        let unseen_ns = BURST_QUEUEING * rtt.burst_ns() + 2 * rtt.gathering_ns();
        if in_a_row >= BURST_LOSS && rtt.queueing_ns() <= unseen_ns {
            self.pacer.shorten(now_ns, rtt.smoothed_ns());
        }
        if let Some(first_lost) = first_lost {
            let path = self.path(rtt);
            self.control.on_loss(now_ns, first_lost, &path);
        }
    }

    /// The EXP timer: all packets that have not been acknowledged are lost (section 6.2), unless the loss list has some already
    /// (libudt). Returns whether there were any.
    pub fn on_timeout(&mut self, now_ns: u64, rtt: &Rtt, counters: &mut Counters) -> bool {
        if self.in_flight() == 0 {
            return false;
        }
        if self.losses.is_empty() {
            counters.pkt_snd_loss += self.losses.insert(self.acked..self.buffer.next());
        }
        let path = self.path(rtt);
        self.control.on_timeout(now_ns, &path);
        true
    }
}

/// Takes a value of an ACK: A = (7 A + a) / 8 (section 6.2, "On ACK packet received", steps 7 and 8). Zero is none. The first one
/// counts whole; libudt starts from 16 packets per second, and from 1 for the capacity.
fn smooth(value: &mut f64, sample: u32) {
    let sample = f64::from(sample);
    if sample > 0.0 {
        *value = if *value > 0.0 { (*value * 7.0 + sample) / 8.0 } else { sample };
    }
}
