//! A connection that has been set up: datagrams and time go in, datagrams, timeouts and bytes come out.

use crate::clock::Clock;
use crate::config::Config;
use crate::congestion::CongestionControl;
use crate::control::Control;
use crate::control_queue::{ControlQueue, Open};
use crate::exp_timer::{ExpTimer, Expired};
use crate::handshake::{Handshake, Kind};
use crate::packet::{self, ControlHeader, Packet};
use crate::perfmon::{Counters, Instant, Snapshot};
use crate::receiver::Receiver;
use crate::rtt::Rtt;
use crate::sender::{Segments, Sender};
use crate::seq::first_index;
use crate::stamp::Stamp;

/// Time for which an end that has closed still answers, nanoseconds: as many EXP intervals of the other end as this holds may
/// lose their keep-alive.
const LINGER_NS: u64 = 2_000_000_000;
/// RTT and variance that a receiver sends before it has measured them, microseconds: 10 SYN and half of it (as in libudt).
const UNMEASURED_RTT_US: (u32, u32) = (100_000, 50_000);

/// Why a connection has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// This end has closed, and everything that it sent was acknowledged.
    Finished,
    /// The other end has closed, and everything that it sent has arrived.
    ByPeer,
    /// The other end has closed while packets were missing, or before it acknowledged what was sent to it.
    Incomplete,
    /// Nothing came from the other end for too long.
    PeerLost,
    /// This end has closed without waiting for acknowledgements.
    Aborted,
}

/// Where a connection is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Data flows.
    Open,
    /// This end writes no more, and closes when all is acknowledged.
    Finishing,
    /// This end has sent its shutdown, and sends it again to a peer that has not heard it.
    Lingering { until_ns: u64, end: End },
    /// The connection has ended.
    Ended(End),
}

/// What two ends agreed on in the handshake.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Agreed {
    pub mss: u16,
    /// The other end's window, packets.
    pub flow_window: u32,
    pub send_isn: u32,
    pub receive_isn: u32,
    pub local_id: u32,
    pub peer_id: u32,
    /// How a handshake that comes again is answered; a caller's is not.
    pub answer: Option<Handshake>,
    pub rtt_ns: Option<u64>,
}

/// A datagram, or several of one length, to be sent to the other end.
#[derive(Debug)]
pub enum Transmit<'a> {
    /// One control packet.
    Control(&'a [u8]),
    /// Data packets.
    Data(Segments<'a>),
}

/// A connection.
#[derive(Debug)]
pub struct Connection {
    clock: Clock,
    /// Instant from which time stamps count.
    start_ns: u64,
    agreed: Agreed,
    state: State,
    sender: Sender,
    receiver: Receiver,
    rtt: Rtt,
    exp: ExpTimer,
    pending: ControlQueue,
    counters: Counters,
}

impl Connection {
    pub(crate) fn new(now_ns: u64, config: &Config, agreed: Agreed, seed: u64) -> Connection {
        let (send, receive) = (first_index(agreed.send_isn), first_index(agreed.receive_isn));
        let rtt = Rtt::new(agreed.rtt_ns);
        Connection {
            clock: Clock::new(now_ns),
            start_ns: now_ns,
            state: State::Open,
            sender: Sender::new(now_ns, config, agreed.mss, send, u64::from(agreed.flow_window), &rtt, seed),
            receiver: Receiver::new(now_ns, config, agreed.mss, receive),
            rtt,
            exp: ExpTimer::new(now_ns, config.peer_timeout_ns),
            pending: ControlQueue::default(),
            counters: Counters::default(),
            agreed,
        }
    }

    /// Handles what has arrived at one instant from the other end's address: one datagram or several of `segment_bytes` each, the
    /// last of which may be shorter (`UDP_GRO`). Packets for other sockets cost a comparison.
    pub fn handle_datagrams(&mut self, now_ns: u64, bytes: &[u8], segment_bytes: usize) {
        let at_ns = self.clock.at(now_ns);
        self.handle_datagrams_of(now_ns, at_ns, bytes, segment_bytes);
    }

    /// Handles datagrams as [`Connection::handle_datagrams`] does, which arrived at `arrived_ns` of any clock that is always the
    /// same one. The rate of arrival and the capacity of the path follow from that clock.
    pub fn handle_datagrams_of(&mut self, now_ns: u64, arrived_ns: u64, bytes: &[u8], segment_bytes: usize) {
        let now_ns = self.clock.at(now_ns);
        if matches!(self.state, State::Ended(_)) {
            return;
        }
        for datagram in bytes.chunks(segment_bytes.max(1)) {
            match packet::parse(datagram) {
                Some(Packet::Data(header, payload)) if header.socket_id == self.agreed.local_id => {
                    self.exp.heard(now_ns, self.sender.in_flight() == 0);
                    match self.state {
                        State::Lingering { .. } => self.pending.shutdown = true,
                        _ => self.receiver.on_data(header.seq, payload, &mut self.counters),
                    }
                }
                Some(Packet::Control(header, body)) => self.on_control(now_ns, &header, body),
                _ => {}
            }
        }
        self.pending.nak_new |= self.receiver.end_batch(arrived_ns);
    }

    fn on_control(&mut self, now_ns: u64, header: &ControlHeader, body: &[u8]) {
        let Some(control) = Control::parse(header, body) else { return };
        if let Control::Handshake(handshake) = control {
            // A request that comes again has no socket in its header (section 5.1).
            if header.socket_id == 0 || header.socket_id == self.agreed.local_id {
                self.on_handshake(&handshake);
            }
            return;
        }
        if header.socket_id != self.agreed.local_id {
            return;
        }
        let answers = matches!(control, Control::Ack(_) | Control::LightAck(_) | Control::Nak(_));
        self.exp.heard(now_ns, answers || self.sender.in_flight() == 0);
        if let Control::Shutdown = control {
            return self.on_shutdown();
        }
        if let State::Lingering { .. } = self.state {
            // Whatever the other end says, it has not heard the shutdown.
            self.pending.shutdown = true;
            return;
        }
        match control {
            Control::Ack(ack) => {
                self.pending.push_ack2(ack.ack_seq);
                self.counters.pkt_recv_ack += 1;
                // libudt, too, smooths what the receiver has smoothed. A receiver that has measured nothing says so with the
                // values that it began with.
                if (ack.rtt_us, ack.rtt_variance_us) != UNMEASURED_RTT_US {
                    self.rtt.sample(u64::from(ack.rtt_us) * 1000);
                }
                self.sender.on_ack(now_ns, &ack, &self.rtt);
            }
            Control::LightAck(data_seq) => self.sender.on_light_ack(data_seq),
            Control::Nak(report) => {
                self.counters.pkt_recv_nak += 1;
                self.sender.on_nak(now_ns, &report, &self.rtt, &mut self.counters);
            }
            Control::Ack2(ack_seq) => {
                if let Some(rtt_ns) = self.receiver.on_ack2(now_ns, ack_seq) {
                    self.rtt.sample(rtt_ns);
                }
            }
            Control::Handshake(_) | Control::Shutdown | Control::KeepAlive | Control::Ignored => {}
        }
        self.close_if_finished();
    }

    /// Answers the other end's handshake, which needs one more packet (section 5.2).
    pub(crate) fn answer_handshake(&mut self) {
        self.pending.handshake = true;
    }

    /// The other end's handshake has come again: it has not heard the answer (section 5.1), unless it needs none (5.2).
    fn on_handshake(&mut self, handshake: &Handshake) {
        let same = handshake.socket_id == self.agreed.peer_id && handshake.isn == self.agreed.receive_isn;
        if same && handshake.kind != Kind::Agreement && self.agreed.answer.is_some() {
            self.pending.handshake = true;
        }
    }

    /// Section 5.3. The other end closes when all that it sent is acknowledged, so gaps mean that it gave up.
    fn on_shutdown(&mut self) {
        self.state = match self.state {
            State::Lingering { end, .. } => State::Ended(end),
            _ if self.receiver.has_gaps() || !self.sender.buffer().is_empty() => State::Ended(End::Incomplete),
            _ => State::Ended(End::ByPeer),
        };
    }

    fn close_if_finished(&mut self) {
        if self.state == State::Finishing && self.sender.buffer().is_empty() {
            self.shut_down(End::Finished);
        }
    }

    fn shut_down(&mut self, end: End) {
        self.pending.shutdown = true;
        self.state = State::Lingering { until_ns: self.clock.now_ns().saturating_add(LINGER_NS), end };
    }

    /// When [`Connection::handle_timeout`] or [`Connection::poll_transmit`] has something to do, unless a datagram arrives or
    /// data is written before. `None`: never.
    pub fn next_timeout(&self) -> Option<u64> {
        let at_ns = match self.state {
            State::Ended(_) => return None,
            State::Lingering { until_ns, .. } => until_ns,
            State::Open | State::Finishing => {
                let timers = self.exp.next_ns(&self.rtt).min(self.receiver.next_timeout_ns());
                self.sender.next_send_ns(self.clock.now_ns()).map_or(timers, |send| send.min(timers))
            }
        };
        Some(self.clock.caller_ns(at_ns))
    }

    /// Time for which an end may gather what arrives before it handles it, nanoseconds.
    pub fn gathering_ns(&self) -> u64 {
        self.rtt.gathering_ns()
    }

    /// Lets the timers expire whose time has come (section 6.2, step 1 of the receiver).
    pub fn handle_timeout(&mut self, now_ns: u64) {
        let now_ns = self.clock.at(now_ns);
        match self.state {
            State::Ended(_) => {}
            State::Lingering { until_ns, end } => {
                if now_ns >= until_ns {
                    self.state = State::Ended(end);
                }
            }
            State::Open | State::Finishing => {
                self.pending.nak_again |= self.receiver.on_timer(now_ns, &self.rtt);
                match self.exp.expire(now_ns, &self.rtt) {
                    Expired::No => {}
                    Expired::Once => {
                        self.pending.keep_alive |= !self.sender.on_timeout(now_ns, &self.rtt, &mut self.counters);
                    }
                    Expired::PeerLost => self.state = State::Ended(End::PeerLost),
                }
            }
        }
    }

    /// The next packets to send now, at most `max_bytes` of data packets with their headers. `None`: nothing until
    /// [`Connection::next_timeout`].
    pub fn poll_transmit(&mut self, now_ns: u64, max_bytes: usize) -> Option<Transmit<'_>> {
        let now_ns = self.clock.at(now_ns);
        let stamp = Stamp { timestamp_us: self.timestamp_us(), socket_id: self.agreed.peer_id };
        if self.pending.write_first(stamp, self.agreed.answer.as_ref()) {
            return Some(Transmit::Control(self.pending.bytes()));
        }
        if !matches!(self.state, State::Open | State::Finishing) {
            return None;
        }
        let open =
            Open { receiver: &mut self.receiver, rtt: &self.rtt, counters: &mut self.counters, mss: self.agreed.mss };
        if self.pending.write_next(now_ns, stamp, open) {
            return Some(Transmit::Control(self.pending.bytes()));
        }
        self.sender.segments(now_ns, max_bytes, stamp, &mut self.counters).map(Transmit::Data)
    }

    fn timestamp_us(&self) -> u32 {
        (self.clock.now_ns().saturating_sub(self.start_ns) / 1000) as u32
    }

    /// Copies as much of `data` as the send buffer has room for; returns how much. Nothing is taken once this end has closed.
    pub fn write(&mut self, now_ns: u64, data: &[u8]) -> usize {
        let now_ns = self.clock.at(now_ns);
        match self.state {
            State::Open => {
                let is_first = self.sender.buffer().is_empty();
                let written = self.sender.write(now_ns, data);
                if is_first && written > 0 {
                    self.exp.data_begins(now_ns);
                }
                written
            }
            _ => 0,
        }
    }

    /// Lets data that does not fill a packet leave now. Otherwise it waits a millisecond for more.
    pub fn flush(&mut self) {
        self.sender.flush();
    }

    /// Bytes that [`Connection::write`] takes now.
    pub fn room_bytes(&self) -> u64 {
        match self.state {
            State::Open => self.sender.buffer().room_bytes(),
            _ => 0,
        }
    }

    /// The next bytes that have arrived in order; empty if there are none.
    pub fn readable(&mut self) -> &[u8] {
        self.receiver.readable()
    }

    /// Whether bytes have arrived that have not been read.
    pub fn is_readable(&self) -> bool {
        self.receiver.is_readable()
    }

    /// Counts bytes as read, at most all that have arrived in order. Returns whether the other end waits for the room that this
    /// makes: [`Connection::poll_transmit`] then has an ACK.
    pub fn consume(&mut self, bytes: usize) -> bool {
        self.receiver.consume(self.clock.now_ns(), bytes, &self.rtt)
    }

    /// Takes only so many packets of the other end, counted from its first, or all with `None`. An end that does not know yet
    /// who the other one is spares its buffer's memory so. A packet that is refused has to be sent again.
    pub fn limit_packets(&mut self, packets: Option<u64>) {
        let first = first_index(self.agreed.receive_isn);
        self.receiver.refuse_from(packets.map_or(u64::MAX, |packets| first.saturating_add(packets)));
    }

    /// Ends this direction: what has been written is sent and acknowledged, then the connection is shut down. UDT has no half
    /// closed connections, so what the other end still sends is lost from then on.
    pub fn finish(&mut self, now_ns: u64) {
        self.clock.at(now_ns);
        if self.state == State::Open {
            self.state = State::Finishing;
            self.sender.flush();
            self.close_if_finished();
        }
    }

    /// Shuts the connection down without waiting for acknowledgements.
    pub fn abort(&mut self, now_ns: u64) {
        self.clock.at(now_ns);
        if matches!(self.state, State::Open | State::Finishing) {
            self.shut_down(End::Aborted);
        }
    }

    /// Ends the connection at once. The other end is told so only once, and this end does not answer it any more.
    pub fn reset(&mut self, now_ns: u64) {
        self.clock.at(now_ns);
        if !matches!(self.state, State::Ended(_)) {
            self.pending.shutdown = true;
            self.state = State::Ended(End::Aborted);
        }
    }

    /// Why the connection has ended, or is about to: this end only answers the other one for a while. `None`: data flows.
    pub fn ended(&self) -> Option<End> {
        match self.state {
            State::Open | State::Finishing => None,
            State::Lingering { end, .. } | State::Ended(end) => Some(end),
        }
    }

    /// Whether the connection needs no more datagrams and no more time.
    pub fn is_over(&self) -> bool {
        matches!(self.state, State::Ended(_)) && !self.pending.shutdown
    }

    /// The congestion control, to change a fixed rate.
    pub fn congestion_control(&mut self) -> &mut dyn CongestionControl {
        self.sender.control_mut()
    }

    /// The socket of this end, which the other end's packets name.
    pub fn local_id(&self) -> u32 {
        self.agreed.local_id
    }

    /// The socket of the other end.
    pub fn peer_id(&self) -> u32 {
        self.agreed.peer_id
    }

    /// The packet size that both ends agreed on, bytes with the IP and UDP headers.
    pub fn mss(&self) -> u16 {
        self.agreed.mss
    }

    /// The connection at this instant.
    pub fn snapshot(&self, now_ns: u64) -> Snapshot {
        let payload = crate::config::payload_bytes(self.agreed.mss);
        let sender = &self.sender;
        Snapshot {
            at_ns: now_ns,
            counters: self.counters,
            acked_bytes: sender.acked_bytes(),
            received_bytes: self.receiver.received_bytes(),
            payload_bytes: payload as u32,
            instant: Instant {
                us_pkt_snd_period: sender.control().sending_period_ns() / 1e3,
                pkt_flow_window: sender.flow_window(),
                pkt_congestion_window: sender.control().window_packets() as u64,
                pkt_flight_size: sender.in_flight(),
                ms_rtt: self.rtt.smoothed_ns() as f64 / 1e6,
                mbps_bandwidth: sender.capacity_pps() * payload as f64 * 8.0 / 1e6,
                byte_avail_snd_buf: sender.buffer().room_bytes(),
                byte_avail_rcv_buf: self.receiver.available_bytes(),
            },
        }
    }
}
