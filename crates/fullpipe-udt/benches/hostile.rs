//! What the worst datagrams of a hostile peer cost the receiver, beside ordinary ones: medians of five runs, and their ratio.
//! Fails if one of them costs 20 us or more, or ten times as much as an ordinary one.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code)]
#[path = "../tests/protocol/sim/mod.rs"]
mod sim;

use std::time::Instant;

use sim::gaps::Gaps;

const GAPS: u32 = 100_000;
/// Most that a datagram may cost, nanoseconds.
const MAX_NS: f64 = 20_000.0;
/// Most that a datagram may cost, as a multiple of an ordinary one.
const MAX_RATIO: f64 = 10.0;

/// Median time that a datagram takes, nanoseconds.
fn cost_ns(setup: impl Fn() -> Gaps) -> f64 {
    let mut all = [0.0; 5];
    for one in &mut all {
        let mut gaps = setup();
        let begun = Instant::now();
        gaps.handle_all();
        *one = begun.elapsed().as_nanos() as f64 / f64::from(2 * GAPS);
        assert_eq!(gaps.received_bytes(), u64::from(2 * GAPS));
    }
    all.sort_by(f64::total_cmp);
    all[2]
}

fn main() {
    let (ordinary, worst) = (cost_ns(|| Gaps::none(2 * GAPS)), cost_ns(|| Gaps::new(GAPS)));
    println!("ordinary datagrams {ordinary:.0} ns each, {GAPS} gaps {worst:.0} ns each: {:.2} times", worst / ordinary);
    assert!(worst < MAX_NS, "a datagram may cost {MAX_NS} ns");
    assert!(worst < MAX_RATIO * ordinary, "a datagram may cost {MAX_RATIO} times an ordinary one");
}
