//! Computes the rate of a run without its beginning. A pure function.

use std::time::Duration;

use fullpipe_path::record::AfterOmitted;
use fullpipe_path::record::udp::{UdpCounts, UdpOutcome};

use crate::rate::{self, Arrivals, Limit};
use crate::sample::Sample;

/// The whole run, and where its second part begins.
#[derive(Debug, Clone, Copy)]
pub(crate) struct After<'a> {
    /// Time on the run's clock until which the run is left out, ns.
    pub(crate) from_ns: u64,
    /// Time of the run's end, ns.
    pub(crate) end_ns: u64,
    /// Bytes of the whole run.
    pub(crate) bytes: u64,
    /// Retransmissions of the whole run.
    pub(crate) retransmits: u64,
    /// Round-trip time of the path, ns.
    pub(crate) rtt_ns: u64,
    /// The datagrams, over plain UDP.
    pub(crate) udp: Option<AllDatagrams<'a>>,
}

/// The datagrams of a whole run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AllDatagrams<'a> {
    /// What the receiver has counted on each stream.
    pub(crate) counts: &'a [UdpCounts],
    /// Datagrams that the sender has sent on all.
    pub(crate) sent: u64,
    /// Payload of each, bytes.
    pub(crate) datagram_bytes: u32,
}

impl AllDatagrams<'_> {
    /// What became of those that are later than these samples of the receiver. Those that were on their way then are among them.
    fn after(&self, receiver: &[Sample]) -> UdpOutcome {
        let before = |stream: usize| {
            let sample = receiver.iter().find(|sample| usize::from(sample.stream) == stream);
            sample.and_then(|sample| sample.udp).unwrap_or_default()
        };
        let known = receiver.iter().filter_map(|sample| Some(sample.udp?.datagrams)).fold(0, u64::saturating_add);
        let later: Vec<UdpCounts> =
            self.counts.iter().enumerate().map(|(i, counts)| counts.since(&before(i))).collect();
        UdpOutcome::of(self.datagram_bytes, self.sent.saturating_sub(known), &later)
    }
}

/// The rate after `omit`, by the samples of sender and receiver: the part begins with the receiver's first sample that is not
/// left out.
pub(crate) fn after(whole: &After<'_>, omit: Duration, samples: [&[Sample]; 2], limits: &[Limit]) -> AfterOmitted {
    let [sender, receiver] = samples;
    // Samples of all streams that were taken at one time.
    let first = |samples: &[Sample]| {
        let at = samples.iter().position(|sample| sample.t_ns >= whole.from_ns && sample.t_ns < whole.end_ns)?;
        let t_ns = samples[at].t_ns;
        let of_time = samples[at..].iter().take_while(|sample| sample.t_ns == t_ns).cloned();
        Some((t_ns, of_time.collect::<Vec<_>>()))
    };
    let omit_s = omit.as_secs_f64();
    let Some((begin_ns, begin)) = first(receiver) else {
        let no_rate = Some("nothing is left of the run; send for longer, or omit less".to_owned());
        return AfterOmitted { omit_s, goodput_bps: None, no_rate, bytes: 0, seconds: 0.0, retransmits: 0, udp: None };
    };
    let before = begin.iter().fold(0, |sum: u64, sample| sum.saturating_add(sample.bytes));
    let resent = first(sender).map_or(0, |(_, at)| {
        at.iter().filter_map(|sample| sample.info.get("total_retrans")).fold(0, u64::saturating_add)
    });
    let resent_udt =
        sender.iter().filter(|sample| sample.t_ns < begin_ns).filter_map(|sample| Some(sample.udt?.pkt_retrans));
    let resent = resent_udt.fold(resent, u64::saturating_add);
    let (bytes, interval_ns) = (whole.bytes.saturating_sub(before), whole.end_ns - begin_ns);
    let arrived = Arrivals { bytes, early_bytes: 0, interval_ns, rtt_ns: whole.rtt_ns, datagrams: None };
    let rate = rate::rate(&arrived, limits);
    AfterOmitted {
        omit_s,
        goodput_bps: rate.as_ref().ok().copied(),
        no_rate: rate.err(),
        bytes,
        seconds: interval_ns as f64 / 1e9,
        retransmits: whole.retransmits.saturating_sub(resent),
        udp: whole.udp.map(|udp| udp.after(&begin)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::side::Side;
    use crate::tcp_info::TcpInfo;

    const SECOND: u64 = 1_000_000_000;

    fn sample(t_ns: u64, stream: u16, bytes: u64) -> Sample {
        Sample { t_ns, end: Side::Receiver, stream, bytes, info: TcpInfo::from_bytes(&[]), udt: None, udp: None }
    }

    /// Two streams that ramp up for 2 s and then carry 100 MB/s each.
    #[test]
    fn the_beginning_is_left_out() {
        let samples: Vec<Sample> = (1..=5)
            .flat_map(|s| {
                (0..2).map(move |i| {
                    sample(s * SECOND, i, if s <= 2 { s * 1_000_000 } else { (s - 2) * 100_000_000 + 2_000_000 })
                })
            })
            .collect();
        let whole = After {
            from_ns: SECOND + 1,
            end_ns: 5 * SECOND,
            bytes: 604_000_000,
            retransmits: 3,
            rtt_ns: SECOND,
            udp: None,
        };
        let later = after(&whole, Duration::from_secs(1), [&[], &samples], &[]);
        assert_eq!((later.bytes, later.seconds, later.goodput_bps, later.omit_s), (600_000_000, 3.0, Some(1.6e9), 1.0));
        assert_eq!(later.retransmits, 3);
    }

    #[test]
    fn a_run_that_ends_before_has_no_second_rate() {
        let whole = After { from_ns: 6 * SECOND, end_ns: 5 * SECOND, bytes: 1, retransmits: 0, rtt_ns: 1, udp: None };
        let later =
            after(&whole, Duration::from_secs(6), [&[], &[sample(SECOND, 0, 1), sample(7 * SECOND, 0, 1)]], &[]);
        assert_eq!((later.goodput_bps, later.bytes), (None, 0));
        assert!(later.no_rate.unwrap().contains("omit less"));
    }
}
