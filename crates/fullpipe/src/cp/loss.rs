//! What a transfer has found out of its path's loss, and what that would change the next time.

use fullpipe_path::Probability;
use fullpipe_transfer::Losses;
use fullpipe_transfer::client::Between;

use super::transport::{self, Chosen};
use crate::words;

/// Fewer lost segments tell no share, and fewer instants not whether they were lost one by one.
const ENOUGH: u64 = 10;
const LOOKS: u16 = 8;
/// Round trips, and seconds, over which they are counted at least: of less, start-up is too large a part.
const RTTS: f64 = 50.0;
const SECONDS: f64 = 2.0;
/// Where packets wait for longer than this, seconds and part of the round-trip time, a queue overflows now and then; and
/// where losses come in bursts like these: then they are what TCP or others make of the path, not the path's own.
const WAIT_S: f64 = 1e-3;
const WAIT_RTTS: f64 = 0.02;
const BURSTS: f64 = 3.0;
/// TCP is what holds a transfer back if this part of its streams (not all: they do not end together) has more to send than
/// TCP lets go, and waits for windows no longer than that part of the time.
const HELD: f64 = 0.5;
const WINDOW: f64 = 0.2;
/// Another transport is worth a word if so many times as much is expected of it as there was.
const WORTH: f64 = 1.5;

/// Share of the segments that the network has lost, where so many have gone that it can be told.
pub fn share(losses: &Losses, rtt_s: f64) -> Option<f64> {
    let sent = &losses.later;
    let long = sent.ns as f64 * 1e-9 >= SECONDS.max(RTTS * rtt_s) && losses.looks >= LOOKS;
    (long && (sent.lost() == 0 || sent.lost() >= ENOUGH)).then(|| sent.loss())
}

/// Whether it is losses that held the transfer back, and the path itself that lost.
fn by_itself(losses: &Losses, rtt_s: f64) -> bool {
    let waits = losses.queue_ns as f64 * 1e-9 > WAIT_S + WAIT_RTTS * rtt_s;
    let window = losses.later.window_ns as f64 / (losses.later.ns as f64 * f64::from(losses.streams)).max(1.0);
    losses.held >= HELD && window <= WINDOW && !waits && losses.bursts <= BURSTS
}

/// What to do the next time, if losses have held a transfer back and the profile knows what bears them better.
pub fn advice(how: &transport::Args, chosen: &Chosen, between: &Between, losses: &Losses) -> Option<String> {
    // Who has said how to send has been obeyed.
    chosen.expected_bps?;
    let loss = share(losses, between.rtt_s).filter(|loss| *loss > 0.0 && by_itself(losses, between.rtt_s))?;
    // Counted from a few, it is not known better than this.
    let loss: Probability = format!("{loss:.1e}").parse().ok()?;
    let other = how.with_loss(loss).choose(between).ok()?;
    let bps = losses.later.bps();
    let better = other.transport != chosen.transport && other.expected_bps? >= WORTH * bps;
    better.then(|| {
        format!(
            "{loss} of the packets were lost on the way, which left {} in the second half; --loss {loss} would have taken {}",
            words::rate(bps),
            other.transport
        )
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use fullpipe_transfer::Sent;
    use fullpipe_transfer::protocol::hello::Limits;

    use super::*;

    #[derive(Parser)]
    struct Words {
        #[command(flatten)]
        how: transport::Args,
    }

    /// Ten seconds of 8 streams at 50 Mb/s that lose one packet in a thousand.
    fn losses() -> Losses {
        let bytes = 62_500_000;
        let later = Sent { segments: bytes / 1448, again: 43, bytes, ns: 10_000_000_000, ..Sent::default() };
        Losses { all: later, later, streams: 8, looks: 30, queue_ns: 500_000, held: 1.0, bursts: 1.0 }
    }

    /// How 45.6 ms and packets of 1,500 bytes are sent over by hosts that have what most have.
    fn chosen(words: &[&str]) -> (transport::Args, Chosen, Between) {
        let how = Words::parse_from(["cp"].iter().chain(words)).how;
        let ccs = ["reno", "cubic", "bbr"].map(str::to_owned).to_vec();
        let limits = Limits { ccs, send: 1 << 30, receive: 1 << 30, tuned_send: 1 << 30, tuned_receive: 1 << 30 };
        let between = Between { rtt_s: 0.0456, mtu: Some(1500), sender: limits.clone(), receiver: limits };
        let chosen = how.choose(&between).map_err(|e| e.to_string()).unwrap();
        (how, chosen, between)
    }

    /// What is said of losses after such a transfer.
    fn said(words: &[&str], losses: &Losses) -> Option<String> {
        let (how, chosen, between) = chosen(words);
        assert!(!words.is_empty() || chosen.transport.cc == "cubic", "{}", chosen.transport);
        advice(&how, &chosen, &between, losses)
    }

    #[test]
    fn what_the_profile_lacks_of_a_path_does_not_take_its_loss_away() {
        for (words, lacks) in [
            (&["--rate", "1gbit", "--queue", "1MB", "--loss", "1e-3"][..], "queue=1MB"),
            (&["--rate", "100mbit", "--loss", "1e-3"], "rate=100mbit"),
            (&["--rate", "1gbit", "--loss", "0.2"], "loss=0.2"),
        ] {
            let (_, chosen, _) = chosen(words);
            assert_eq!(chosen.transport.cc, "bbr", "{words:?}: {:?}", chosen.why);
            assert!(chosen.why[0].contains(lacks), "{words:?}: {:?}", chosen.why);
        }
    }

    #[test]
    fn what_bears_losses_is_named() {
        let said = said(&[], &losses()).unwrap();
        assert!(
            said.starts_with("0.001 of the packets") && said.contains("--loss 0.001 would have taken bbr"),
            "{said}"
        );
    }

    #[test]
    fn nothing_where_losses_are_not_the_reason_or_not_the_paths() {
        let well = losses();
        let sent = |later: Sent| Losses { later, ..well };
        for (why, losses) in [
            ("a slow disk", Losses { held: 0.2, ..well }),
            ("a full window", sent(Sent { window_ns: 40_000_000_000, ..well.later })),
            ("a queue", Losses { queue_ns: 30_000_000, ..well }),
            ("bursts", Losses { bursts: 20.0, ..well }),
            ("none", sent(Sent { again: 0, ..well.later })),
            ("too few", sent(Sent { again: 9, ..well.later })),
            ("too short", Losses { looks: 3, ..well }),
            ("fast enough", sent(Sent { bytes: 9_000_000_000, segments: 6_000_000, again: 6_000, ..well.later })),
        ] {
            assert_eq!(said(&[], &losses), None, "{why}");
        }
        for words in [&["--cc", "cubic"][..], &["--loss", "0.001"]] {
            assert_eq!(said(words, &well), None, "{words:?}");
        }
    }
}
