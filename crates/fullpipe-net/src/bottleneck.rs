//! Names what held a run back, from the sender's samples. A pure function.

use fullpipe_path::record::Bottleneck;

/// What is known about a run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Evidence {
    /// Payload bit/s.
    pub(crate) goodput: f64,
    /// The most payload that the path can carry, where known.
    pub(crate) capacity: Option<f64>,
    /// Pacing rate asked for, bit/s.
    pub(crate) pacing: Option<f64>,
    /// Microseconds that the streams had something in flight, summed (`busy_time`).
    pub(crate) busy: u64,
    /// Of these, held back by the receive window (`rwnd_limited`).
    pub(crate) rwnd: u64,
    /// Of these, by the send buffer (`sndbuf_limited`).
    pub(crate) sndbuf: u64,
    /// Share of samples in which the kernel had nothing left to send though both windows had room. The
    /// kernel's own count misses it where the application refills the buffer at once.
    pub(crate) starved: f64,
    /// Largest share of one processor that a thread of either end could have used up, 0 to 1.
    pub(crate) cpu: f64,
    /// Share of samples whose smoothed RTT stood clearly above the least, so that a queue stood.
    pub(crate) queued: f64,
}

/// The first of these that holds: the pacing rate reached, or the path's capacity where it is known
/// (95%); the receive window for most of the busy time; nothing to send in most samples, for want of
/// processor (90%) or else of send buffer; a standing queue in most samples, where the capacity is not
/// known; a processor used up; else the congestion window.
pub(crate) fn name(e: &Evidence) -> Bottleneck {
    let most = |part: u64| e.busy > 0 && part * 2 > e.busy;
    let reached = |rate: Option<f64>| rate.is_some_and(|rate| e.goodput >= 0.95 * rate);
    if reached(e.pacing) {
        Bottleneck::Pacing
    } else if reached(e.capacity) {
        Bottleneck::Path
    } else if most(e.rwnd) {
        Bottleneck::Rwnd
    } else if most(e.sndbuf) || e.starved > 0.5 {
        if e.cpu > 0.9 { Bottleneck::Cpu } else { Bottleneck::Sndbuf }
    } else if e.capacity.is_none() && e.queued > 0.5 {
        Bottleneck::Path
    } else if e.cpu > 0.9 {
        Bottleneck::Cpu
    } else {
        Bottleneck::Cwnd
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_its_sign() {
        let base = Evidence { goodput: 5e9, busy: 1000, ..Evidence::default() };
        assert_eq!(name(&base), Bottleneck::Cwnd);
        assert_eq!(name(&Evidence { rwnd: 900, ..base.clone() }), Bottleneck::Rwnd);
        assert_eq!(name(&Evidence { sndbuf: 900, ..base.clone() }), Bottleneck::Sndbuf);
        assert_eq!(name(&Evidence { starved: 0.9, ..base.clone() }), Bottleneck::Sndbuf);
        assert_eq!(name(&Evidence { starved: 0.9, cpu: 0.95, ..base.clone() }), Bottleneck::Cpu);
        assert_eq!(name(&Evidence { capacity: Some(5.1e9), ..base.clone() }), Bottleneck::Path);
        assert_eq!(name(&Evidence { queued: 0.8, ..base.clone() }), Bottleneck::Path);
        assert_eq!(name(&Evidence { queued: 0.8, capacity: Some(9e9), ..base.clone() }), Bottleneck::Cwnd);
        assert_eq!(name(&Evidence { pacing: Some(5e9), ..base.clone() }), Bottleneck::Pacing);
        assert_eq!(name(&Evidence { cpu: 0.97, ..base }), Bottleneck::Cpu);
    }
}
