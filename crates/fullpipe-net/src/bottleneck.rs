//! Decides what limited a run, from the sender's samples. A pure function.

use fullpipe_path::record::Bottleneck;

/// Loss above which a path counts as full of what does not yield to it, a fraction.
pub(crate) const FULL_PATH_LOSS: f64 = 0.02;

/// What the samples of a run show, summed over its streams.
#[derive(Debug, Clone, Default)]
pub(crate) struct Evidence {
    /// Rate of the payload, bit/s.
    pub(crate) goodput: f64,
    /// Largest rate of payload that the path can carry for this run, bit/s, if it is known.
    pub(crate) capacity: Option<f64>,
    /// Rate of payload at the pacing rate that was asked for, of all streams, bit/s.
    pub(crate) pacing: Option<f64>,
    /// Whether the streams have a congestion window. UDT at a given rate has none.
    pub(crate) has_cwnd: bool,
    /// Time in which the streams had data in flight: us (`busy_time`), or samples for a transport that does not count it.
    pub(crate) busy: u64,
    /// Part of `busy` in which the receive window limited the streams, in its unit (`rwnd_limited`).
    pub(crate) rwnd: u64,
    /// Part of `busy` in which the send buffer limited the streams, in its unit (`sndbuf_limited`).
    pub(crate) sndbuf: u64,
    /// Fraction of samples in which the kernel had nothing left to send though both windows had room. The kernel's own
    /// count (`sndbuf`) misses this if the application refills the buffer at once.
    pub(crate) starved: f64,
    /// Fraction of one processor that the busiest thread of either host can have used, 0 to 1.
    pub(crate) cpu: f64,
    /// Fraction of the data that was sent again.
    pub(crate) lost: f64,
    /// Whether most of that may have come from a receiver whose sockets had no room for what arrived.
    pub(crate) overrun: bool,
    /// Fraction of samples whose smoothed RTT was clearly above the minimum, which shows a standing queue.
    pub(crate) queued: f64,
}

/// Names the bottleneck of a run: the first of these that holds.
///
/// 1. The run reached 95% of the pacing rate, or of the path's capacity if that is known.
/// 2. The receiver's program emptied its sockets too late, and the path's capacity is not known: a processor.
/// 3. It kept to a given rate whatever was lost, and more was lost than a path loses that has room: a processor that was used by
///    more than 90%; else the path, if a queue stood in most samples and its capacity is not known; else the rate. A window that is
///    full then waits for what was lost.
/// 4. The receive window limited it for most of the busy time.
/// 5. The kernel had nothing to send for most of the time. A processor that was used by more than 90% explains it; else
///    it was the send buffer.
/// 6. A queue stood in most samples, and the path's capacity is not known: the path.
/// 7. A processor was used by more than 90%.
/// 8. The congestion window, or the given rate where there is none: losses or a late sender kept the run below it.
pub(crate) fn name(e: &Evidence) -> Bottleneck {
    let most = |part: u64| e.busy > 0 && part > e.busy / 2;
    let reached = |rate: Option<f64>| rate.is_some_and(|rate| e.goodput >= 0.95 * rate);
    if reached(e.pacing) {
        Bottleneck::Pacing
    } else if reached(e.capacity) {
        Bottleneck::Path
    } else if e.overrun {
        Bottleneck::Cpu
    } else if !e.has_cwnd && e.lost > FULL_PATH_LOSS {
        match e.capacity {
            _ if e.cpu > 0.9 => Bottleneck::Cpu,
            None if e.queued > 0.5 => Bottleneck::Path,
            _ => Bottleneck::Pacing,
        }
    } else if most(e.rwnd) {
        Bottleneck::Rwnd
    } else if most(e.sndbuf) || e.starved > 0.5 {
        if e.cpu > 0.9 { Bottleneck::Cpu } else { Bottleneck::Sndbuf }
    } else if e.capacity.is_none() && e.queued > 0.5 {
        Bottleneck::Path
    } else if e.cpu > 0.9 {
        Bottleneck::Cpu
    } else if e.has_cwnd {
        Bottleneck::Cwnd
    } else {
        Bottleneck::Pacing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_its_sign() {
        let base = Evidence { goodput: 5e9, busy: 1000, has_cwnd: true, ..Evidence::default() };
        assert_eq!(name(&base), Bottleneck::Cwnd);
        assert_eq!(name(&Evidence { rwnd: 900, ..base.clone() }), Bottleneck::Rwnd);
        assert_eq!(name(&Evidence { sndbuf: 900, ..base.clone() }), Bottleneck::Sndbuf);
        assert_eq!(name(&Evidence { starved: 0.9, ..base.clone() }), Bottleneck::Sndbuf);
        assert_eq!(name(&Evidence { starved: 0.9, cpu: 0.95, ..base.clone() }), Bottleneck::Cpu);
        assert_eq!(name(&Evidence { capacity: Some(5.1e9), ..base.clone() }), Bottleneck::Path);
        assert_eq!(name(&Evidence { queued: 0.8, ..base.clone() }), Bottleneck::Path);
        assert_eq!(name(&Evidence { queued: 0.8, overrun: true, ..base.clone() }), Bottleneck::Cpu);
        assert_eq!(name(&Evidence { queued: 0.8, capacity: Some(9e9), ..base.clone() }), Bottleneck::Cwnd);
        assert_eq!(name(&Evidence { pacing: Some(5e9), ..base.clone() }), Bottleneck::Pacing);
        let given = Evidence { pacing: Some(6e9), has_cwnd: false, ..base.clone() };
        assert_eq!(name(&given), Bottleneck::Pacing, "UDT at a rate that losses kept it below");
        assert_eq!(name(&Evidence { queued: 0.8, ..given.clone() }), Bottleneck::Path);
        assert_eq!(name(&Evidence { rwnd: 900, ..given.clone() }), Bottleneck::Rwnd);
        let flooded = Evidence { rwnd: 900, lost: 0.3, ..given };
        assert_eq!(
            name(&flooded),
            Bottleneck::Pacing,
            "UDT at a rate above the path's, whose window waits for what was lost"
        );
        assert_eq!(name(&Evidence { queued: 0.8, ..flooded.clone() }), Bottleneck::Path);
        assert_eq!(name(&Evidence { queued: 0.8, cpu: 0.95, ..flooded.clone() }), Bottleneck::Cpu);
        assert_eq!(name(&Evidence { has_cwnd: true, ..flooded }), Bottleneck::Rwnd);
        assert_eq!(name(&Evidence { cpu: 0.97, ..base }), Bottleneck::Cpu);
    }
}
