//! What iperf3's JSON has of datagrams, in the place of what it has of TCP.

use fullpipe_path::record::udp::{UdpCounts, UdpOutcome};
use serde_json::{Value, json};

use super::{Parsed, Tick, add, carried, rate, time_s};

/// What one stream, or all, sent and lost.
#[derive(Clone, Copy)]
struct Loss {
    jitter_s: f64,
    lost: u64,
    packets: u64,
}

impl Loss {
    fn add_to(self, fields: &mut Value) {
        let percent = 100.0 * self.lost as f64 / self.packets.max(1) as f64;
        let (jitter_ms, packets) = ((1e3 * self.jitter_s).into(), self.packets.into());
        let (lost, percent) = (self.lost.into(), percent.into());
        let all = [("jitter_ms", jitter_ms), ("lost_packets", lost), ("packets", packets), ("lost_percent", percent)];
        add(fields, all.map(|(name, value): (_, Value)| (name, Some(value))));
    }
}

impl From<&UdpOutcome> for Loss {
    fn from(udp: &UdpOutcome) -> Loss {
        Loss { jitter_s: udp.jitter_s, lost: udp.lost, packets: udp.received.saturating_add(udp.lost) }
    }
}

fn counts(tick: &Tick, stream: u16) -> UdpCounts {
    tick.get(&stream).and_then(|sample| sample.udp).unwrap_or_default()
}

impl Parsed {
    fn sent_bytes(&self, datagrams: u64) -> u64 {
        datagrams.saturating_mul(u64::from(self.header.sender.mss))
    }

    /// What the client's side sent or received between two ticks.
    pub(super) fn udp_interval(
        &self,
        before: &Tick,
        tick: &Tick,
        (start_s, end_s): (f64, f64),
        omitted: bool,
    ) -> Value {
        let mut bytes_of_all = 0;
        let mut all: Vec<UdpCounts> = Vec::new();
        let describe = |bytes: u64, counts: &[UdpCounts], socket: Option<u16>| {
            let outcome =
                UdpOutcome::of(0, counts.iter().map(|counts| counts.datagrams).fold(0, u64::saturating_add), counts);
            let mut fields = carried(start_s, end_s, bytes, rate(bytes, end_s - start_s));
            add(&mut fields, [("socket", socket.map(Value::from))]);
            if self.sends {
                add(&mut fields, [("packets", Some(outcome.sent.into()))]);
            } else {
                Loss::from(&outcome).add_to(&mut fields);
            }
            add(&mut fields, [("omitted", Some(omitted.into())), ("sender", Some(self.sends.into()))]);
            fields
        };
        let mut streams = Vec::new();
        for (stream, sample) in tick {
            let since = counts(tick, *stream).since(&counts(before, *stream));
            let arrived = sample.bytes.saturating_sub(before.get(stream).map_or(0, |base| base.bytes));
            let bytes = if self.sends { self.sent_bytes(since.datagrams) } else { arrived };
            streams.push(describe(bytes, &[since], Some(*stream)));
            bytes_of_all = bytes.saturating_add(bytes_of_all);
            all.push(since);
        }
        json!({ "streams": streams, "sum": describe(bytes_of_all, &all, None) })
    }

    /// What became of a stream's datagrams, without those of the time that is omitted.
    fn stream_outcome(&self, stream: u16, whole: &UdpOutcome, ends: [&(Tick, Tick); 2]) -> UdpOutcome {
        if self.omit_s() == 0.0 {
            return *whole;
        }
        let [sent, received] = ends.map(|(base, last)| counts(last, stream).since(&counts(base, stream)));
        UdpOutcome::of(whole.datagram_bytes, sent.datagrams, &[received])
    }

    pub(super) fn udp_end(&self) -> Value {
        let outcome = &self.outcome;
        let (sent, received) = (self.counted(&self.sender), self.counted(&self.receiver));
        let sent_s = time_s(&sent.1) - time_s(&sent.0);
        let (received_s, received_bytes, received_bps) = self.received();
        let udp = outcome.after_omitted.as_ref().map_or(outcome.udp, |later| later.udp).unwrap_or_default();
        let as_sent = |datagrams: u64| {
            let bytes = self.sent_bytes(datagrams);
            carried(0.0, sent_s, bytes, rate(bytes, sent_s))
        };
        let is_sender = |sender: bool| [("sender", Some(Value::from(sender)))];
        let mut sent_of_all = 0_u64;
        let streams = (0..).zip(&outcome.streams).map(|(i, stream)| {
            let of_stream = self.stream_outcome(i, &stream.udp.unwrap_or_default(), [&sent, &received]);
            sent_of_all = sent_of_all.saturating_add(of_stream.sent);
            let mut fields = as_sent(of_stream.sent);
            Loss::from(&of_stream).add_to(&mut fields);
            add(&mut fields, [("socket", Some(i.into())), ("out_of_order", Some(of_stream.out_of_order.into()))]);
            add(&mut fields, is_sender(self.sends));
            json!({ "udp": fields })
        });
        let streams: Vec<Value> = streams.collect();
        let (mut sum, mut sum_sent) = (as_sent(sent_of_all), as_sent(sent_of_all));
        Loss::from(&udp).add_to(&mut sum);
        add(&mut sum, is_sender(self.sends));
        Loss { jitter_s: 0.0, lost: 0, packets: sent_of_all }.add_to(&mut sum_sent);
        add(&mut sum_sent, is_sender(true));
        let mut sum_received = carried(0.0, received_s, received_bytes, received_bps);
        Loss::from(&udp).add_to(&mut sum_received);
        add(&mut sum_received, is_sender(false));
        let mut end = json!({ "streams": streams, "sum": sum, "sum_sent": sum_sent, "sum_received": sum_received });
        add(&mut end, [("cpu_utilization_percent", self.cpu())]);
        end
    }
}
