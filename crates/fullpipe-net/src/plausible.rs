//! Refuses what the other host reports of a run if it cannot be so. A pure function.
//!
//! A result is made of numbers of both ends. The other host may lie or be broken, and what it reports must not become a rate that
//! the bytes and the time of this host do not allow.

use fullpipe_path::record::udp::UdpCounts;
use fullpipe_path::{Protocol, Workload};

use crate::sample::Sample;
use crate::side::Side;
use crate::wire::{Report, Request};

/// Rate that no host has, bit/s: more is nonsense.
const MAX_BPS: f64 = 1e14;
/// Header of a datagram or a segment over IPv4, at least, bytes.
const MIN_HEADER_BYTES: u64 = 28;
/// Largest packet of IP, bytes.
const MAX_PACKET_BYTES: u32 = 65_535;
/// Time by which the clocks of both ends may differ at first, besides a round trip, ns.
const CLOCK_NS: u64 = 1_000_000_000;
/// Part of a run's time by which one clock may be faster than the other: that of a virtual machine stands still now and then.
const CLOCK_DRIFT: f64 = 0.01;

/// What this host knows of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Known<'a> {
    pub(crate) request: &'a Request,
    /// The side of the other host.
    pub(crate) peer: Side,
    /// Most bytes that this host can have sent on each stream; empty if it received.
    pub(crate) most_sent: &'a [u64],
    /// Payload of a datagram that this host sends, bytes.
    pub(crate) datagram_bytes: u32,
    /// Time from the start of the run's clock until the report came, ns.
    pub(crate) elapsed_ns: u64,
    pub(crate) rtt_ns: u64,
    /// Whether this host's user ended the run before its time or size.
    pub(crate) interrupted: bool,
}

impl Known<'_> {
    /// The latest time on the run's clock that the other host can know, ns.
    fn latest_ns(&self) -> u64 {
        let drift_ns = (self.elapsed_ns as f64 * CLOCK_DRIFT) as u64;
        self.elapsed_ns.saturating_add(drift_ns).saturating_add(self.rtt_ns).saturating_add(CLOCK_NS)
    }

    /// Most bytes that any stream can have carried.
    fn most_bytes(&self) -> u64 {
        (MAX_BPS / 8.0 * self.latest_ns() as f64 / 1e9) as u64
    }

    /// Most bytes that stream `i` can have carried: those that this host sent, or else that any host could.
    fn most_of(&self, i: usize) -> u64 {
        let share = self.request.workload.share(i as u16, self.request.transport.streams);
        let most = self.most_sent.get(i).copied().unwrap_or_else(|| self.most_bytes());
        most.min(share.unwrap_or(u64::MAX))
    }

    /// Most packets that stream `i` can have carried.
    fn most_packets(&self, i: usize) -> u64 {
        let any = self.most_bytes() / MIN_HEADER_BYTES;
        let is_udp = self.request.transport.protocol() == Protocol::Udp;
        match self.most_sent.get(i) {
            Some(most) if is_udp => (most / u64::from(self.datagram_bytes.max(1))).saturating_add(1).min(any),
            _ => any,
        }
    }

    fn counts(&self, i: usize, counts: &UdpCounts) -> Result<(), String> {
        let most = self.most_packets(i);
        let known = counts.datagrams_received.checked_add(counts.datagrams_lost);
        let all = [counts.datagrams, counts.datagrams_out_of_order];
        if known.is_none_or(|known| known > most) || all.into_iter().any(|n| n > most) {
            return Err(format!("stream {i} has more datagrams than the {most} that can have been sent"));
        }
        if counts.datagrams_duplicate > self.most_bytes() / MIN_HEADER_BYTES {
            return Err(format!("stream {i} has {} duplicates", counts.datagrams_duplicate));
        }
        if counts.jitter_ns > self.latest_ns() {
            return Err(format!("stream {i} has a jitter that is longer than the run"));
        }
        Ok(())
    }

    fn bytes(&self, i: usize, bytes: u64) -> Result<(), String> {
        let most = self.most_of(i);
        if bytes > most {
            return Err(format!("{bytes} bytes on stream {i}, which can have carried {most}"));
        }
        Ok(())
    }
}

/// Checks the report of the other host and its samples.
///
/// # Errors
/// They cannot be so. The text says why, for a person.
pub(crate) fn check(known: &Known<'_>, report: &Report, samples: &[Sample]) -> Result<(), String> {
    let streams = usize::from(known.request.transport.streams);
    let is_udp = known.request.transport.protocol() == Protocol::Udp;
    let due = if known.peer == Side::Receiver { streams } else { 0 };
    if report.received.len() != due {
        return Err(format!("{} streams received, where {due} can have", report.received.len()));
    }
    if report.end.mss > MAX_PACKET_BYTES || report.end.stream_mtus.len() > streams {
        return Err(format!("segments of {} bytes on {} streams", report.end.mss, report.end.stream_mtus.len()));
    }
    let latest_s = known.latest_ns() as f64 / 1e9;
    if !(0.0..=latest_s).contains(&report.seconds) || !(0.0..f64::INFINITY).contains(&report.cpu_s) {
        return Err(format!("{} s with {} s of a processor", report.seconds, report.cpu_s));
    }
    let mut total = 0_u64;
    for (i, received) in report.received.iter().enumerate() {
        known.bytes(i, received.bytes)?;
        total = total.checked_add(received.bytes).ok_or("more bytes than can be counted")?;
        if received.first_ns > received.last_ns || received.last_ns > known.latest_ns() {
            return Err(format!("stream {i} ended at a time that was not in the run"));
        }
        match &received.udp {
            Some(counts) if is_udp => known.counts(i, counts)?,
            None if !is_udp => {}
            _ => return Err(format!("stream {i} has the counts of another transport")),
        }
    }
    // Datagrams may be lost.
    if let Workload::Size(size) = known.request.workload
        && known.peer == Side::Receiver
        && total != size.0
        && !is_udp
        && !known.interrupted
    {
        return Err(format!("the run of {} bytes ended with {total}", size.0));
    }
    let mut resent = 0_u64;
    for sample in samples {
        let i = usize::from(sample.stream);
        if sample.end != known.peer || i >= streams || sample.t_ns > known.latest_ns() {
            return Err("a sample of another stream, side or time".into());
        }
        known.bytes(i, sample.bytes)?;
        if let Some(counts) = &sample.udp {
            known.counts(i, counts)?;
        }
        resent = resent.saturating_add(sample.udt.map_or(0, |udt| udt.pkt_retrans));
    }
    if resent > known.most_bytes() / MIN_HEADER_BYTES {
        return Err(format!("{resent} packets were sent again"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use fullpipe_path::record::EndInfo;
    use fullpipe_path::{Buffer, Direction, Size, Time, Transport};
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    use super::*;
    use crate::combine::{Circumstances, combine};
    use crate::session::Observed;
    use crate::tcp_info::TcpInfo;
    use crate::wire::Received;

    /// A number up to `most`, of any magnitude; now and then one that cannot be.
    fn number(rng: &mut Pcg64Mcg, most: u64, lies: bool) -> u64 {
        match rng.random_range(0..20) {
            0 if lies => u64::MAX,
            1 if lies => most.saturating_mul(2),
            2 if lies => rng.random(),
            _ => ((most as f64 + 1.0).powf(rng.random::<f64>()) as u64 - 1).min(most),
        }
    }

    /// What a side saw. `most` is what can have been carried on each stream, in bytes.
    fn observed(rng: &mut Pcg64Mcg, request: &Request, side: Side, most: u64, elapsed_ns: u64, lies: bool) -> Observed {
        let n = request.transport.streams;
        let is_udp = request.transport.protocol() == Protocol::Udp;
        let counts = |rng: &mut Pcg64Mcg| {
            let datagrams = number(rng, most / 1000, lies);
            let received = number(rng, datagrams, lies);
            UdpCounts {
                datagrams,
                datagrams_received: received,
                datagrams_lost: number(rng, datagrams.saturating_sub(received), lies),
                datagrams_out_of_order: number(rng, received.min(datagrams), lies),
                datagrams_duplicate: number(rng, 10, lies),
                jitter_ns: number(rng, elapsed_ns, lies),
            }
        };
        let received = |rng: &mut Pcg64Mcg| {
            let last_ns = number(rng, elapsed_ns, lies);
            let bytes = number(rng, most, lies);
            Received { bytes, first_ns: number(rng, last_ns, lies), last_ns, udp: is_udp.then(|| counts(rng)) }
        };
        let received = if side == Side::Receiver { (0..n).map(|_| received(rng)).collect() } else { Vec::new() };
        let sample = |rng: &mut Pcg64Mcg| Sample {
            t_ns: number(rng, elapsed_ns, lies),
            end: side,
            stream: rng.random_range(0..n),
            bytes: number(rng, most, lies),
            info: TcpInfo::from_bytes(&[]),
            udt: None,
            udp: is_udp.then(|| counts(rng)),
        };
        let samples = (0..rng.random_range(0..4)).map(|_| sample(rng)).collect();
        let end = EndInfo { mss: 1000, ..EndInfo::default() };
        let (seconds, early_bytes) = (elapsed_ns as f64 / 1e9, number(rng, most, lies));
        let most_sent = if side == Side::Sender && !lies { vec![most; usize::from(n)] } else { Vec::new() };
        Observed { report: Report { end, received, early_bytes, cpu_s: 0.1, seconds }, samples, most_sent }
    }

    /// A server that has a part only would be measured as if it had the whole.
    #[test]
    fn a_size_has_come_whole_unless_the_user_ended_the_run() {
        let judged = |cc: &str, bytes: u64, interrupted| {
            let (cc, buffer) = (cc.into(), Buffer::Auto);
            let transport = Transport { cc, streams: 2, buffer, pacing: None, dscp: None, mss: None };
            let (workload, sample) = (Workload::Size(Size(1_000_000)), Time(100_000_000));
            let request = Request { transport, workload, direction: Direction::Send, seed: 1, sample };
            let udp = (request.transport.protocol() == Protocol::Udp).then(UdpCounts::default);
            let one = |bytes| Received { bytes, first_ns: 0, last_ns: 1_000_000, udp };
            let (received, end) = (vec![one(500_000), one(bytes)], EndInfo::default());
            let report = Report { end, received, early_bytes: 0, cpu_s: 0.1, seconds: 1.0 };
            let known = Known {
                request: &request,
                peer: Side::Receiver,
                most_sent: &[1_000_000; 2],
                datagram_bytes: 1000,
                elapsed_ns: 1_000_000_000,
                rtt_ns: 1_000_000,
                interrupted,
            };
            check(&known, &report, &[])
        };
        assert_eq!(judged("cubic", 500_000, false), Ok(()));
        assert_eq!(judged("cubic", 400_000, true), Ok(()));
        assert_eq!(judged("udp", 400_000, false), Ok(()));
        let why = "the run of 1000000 bytes ended with 900000";
        assert_eq!(judged("cubic", 400_000, false), Err(why.into()));
        assert_eq!(judged("udt", 400_000, false), Err(why.into()));
    }

    /// Whatever the other host reports, a result is at most what this host sent, in a time that the run had.
    #[test]
    fn no_result_exceeds_what_bytes_and_wall_clock_allow() {
        let mut rng = Pcg64Mcg::seed_from_u64(38);
        let (mut believed, mut refused, mut rates) = (0, 0, 0);
        for _ in 0..50_000 {
            let rng = &mut rng;
            let streams = rng.random_range(1..4);
            let cc = ["cubic", "udt", "udp"][rng.random_range(0..3)].into();
            let transport = Transport { cc, streams, buffer: Buffer::Auto, pacing: None, dscp: None, mss: None };
            let elapsed_ns = number(rng, 100_000_000_000, false);
            let most = number(rng, 1_000_000_000_000, false);
            let workload = match rng.random() {
                true => Workload::Size(Size(most)),
                false => Workload::Duration(Time(number(rng, elapsed_ns, false))),
            };
            let direction = if rng.random() { Direction::Send } else { Direction::Receive };
            let request = Request { transport, workload, direction, seed: 1, sample: Time(100_000_000) };
            let (ours, peer) = match direction {
                Direction::Send => (Side::Sender, Side::Receiver),
                Direction::Receive => (Side::Receiver, Side::Sender),
            };
            let ours = observed(rng, &request, ours, most, elapsed_ns, false);
            let lies = rng.random();
            let theirs = observed(rng, &request, peer, most, elapsed_ns, lies);
            let rtt_ns = number(rng, 1_000_000_000, false);
            let known = Known {
                request: &request,
                peer,
                most_sent: &ours.most_sent,
                datagram_bytes: 1000,
                elapsed_ns,
                rtt_ns,
                interrupted: true,
            };
            if let Err(why) = check(&known, &theirs.report, &theirs.samples) {
                // Of what is honest, only shares of a size may be exceeded here: each stream was drawn up to the whole.
                assert!(lies || matches!(workload, Workload::Size(_)) && why.contains("can have carried"), "{why}");
                refused += 1;
                continue;
            }
            believed += 1;
            let latest_s = known.latest_ns() as f64 / 1e9;
            let wall_s = elapsed_ns as f64 / 1e9;
            let circumstances = Circumstances { rtt_ns, wall_s, ..Circumstances::default() };
            let (sender, receiver) = if peer == Side::Receiver { (ours, theirs) } else { (theirs, ours) };
            let most_in_all = if peer == Side::Receiver { most * u64::from(streams) } else { u64::MAX };
            let outcome = combine(&request, &circumstances, sender, receiver).outcome;
            assert!(outcome.bytes <= most_in_all, "{outcome:?}");
            // A duration is counted from the first arrival.
            assert!(outcome.seconds <= 2.0 * latest_s, "{outcome:?}");
            if let Some(bps) = outcome.goodput_bps {
                rates += 1;
                assert!(bps <= outcome.bytes as f64 * 8.0 / outcome.seconds * (1.0 + 1e-9), "{outcome:?}");
                assert!(outcome.seconds >= rtt_ns as f64 / 1e9 * (1.0 - 1e-9), "{outcome:?}");
            }
            if let (Some(udp), Side::Receiver) = (outcome.udp, peer) {
                let most = (most / 1000 + 1) * u64::from(streams);
                assert!(udp.received + udp.lost <= most, "{udp:?}");
            }
        }
        assert!(believed > 10_000 && refused > 10_000 && rates > 5_000, "{believed} {refused} {rates}");
    }
}
