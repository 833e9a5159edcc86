//! What a copy has measured of its path's random loss, and which transport would have borne it better.

use fullpipe_path::Probability;
use fullpipe_transfer::Losses;
use fullpipe_transfer::client::Between;

use super::transport::{Chosen, TransportArgs};
use crate::format;

/// Fewest lost segments from which a loss rate is estimated.
const MIN_LOST_SEGMENTS: u64 = 10;
/// Fewest observations from which it can be told whether segments were lost one by one or in bursts.
const MIN_OBSERVATIONS: u16 = 8;
/// Shortest observed time, in round trips and in seconds: in less, start-up is too large a part.
const MIN_RTTS: f64 = 50.0;
const MIN_SECONDS: f64 = 2.0;
/// Longest wait of packets in a queue, seconds plus a fraction of the round trip, at which losses still count as random. If
/// packets wait longer, a queue overflows now and then.
const MAX_WAIT_S: f64 = 1e-3;
const MAX_WAIT_RTTS: f64 = 0.02;
/// Largest variance-to-mean ratio of the losses between two observations at which they still count as random: 1 if each
/// segment is lost by itself, more if queues overflow.
const MAX_BURSTINESS: f64 = 3.0;
/// Smallest fraction of the streams that must have had more to send than TCP let go, so that losses count as what limited
/// the copy. It is below 1, as streams do not end together.
const MIN_HELD: f64 = 0.5;
/// Largest fraction of the time that streams may have waited for a window, for the same.
const MAX_WINDOW_LIMITED: f64 = 0.2;
/// Smallest expected gain, as a ratio of rates, at which another transport is worth a line.
const MIN_GAIN: f64 = 1.5;

/// Fraction of the segments that the network lost; none if the copy was too short to tell.
pub fn share(losses: &Losses, rtt_s: f64) -> Option<f64> {
    let sent = &losses.later;
    let long = sent.ns as f64 * 1e-9 >= MIN_SECONDS.max(MIN_RTTS * rtt_s) && losses.looks >= MIN_OBSERVATIONS;
    (long && (sent.lost() == 0 || sent.lost() >= MIN_LOST_SEGMENTS)).then(|| sent.loss())
}

/// Whether random losses, which the path itself makes, limited the copy.
fn limited_by_random_loss(losses: &Losses, rtt_s: f64) -> bool {
    let waits = losses.queue_ns as f64 * 1e-9 > MAX_WAIT_S + MAX_WAIT_RTTS * rtt_s;
    let window = losses.later.window_ns as f64 / (losses.later.ns as f64 * f64::from(losses.streams)).max(1.0);
    losses.held >= MIN_HELD && window <= MAX_WINDOW_LIMITED && !waits && losses.bursts <= MAX_BURSTINESS
}

/// Advice for the next copy, if random losses limited this one and the profile has a transport that bears them better.
pub fn advice(how: &TransportArgs, chosen: &Chosen, between: &Between, losses: &Losses) -> Option<String> {
    // Without an expected rate, the user chose the transport.
    chosen.expected_bps?;
    let loss =
        share(losses, between.rtt_s).filter(|loss| *loss > 0.0 && limited_by_random_loss(losses, between.rtt_s))?;
    // A count of few segments gives no more than two digits.
    let loss: Probability = format!("{loss:.1e}").parse().ok()?;
    let other = how.with_loss(loss).choose(between).ok()?;
    let bps = losses.later.bps();
    let better = other.transport != chosen.transport && other.expected_bps? >= MIN_GAIN * bps;
    better.then(|| {
        format!(
            "the path lost {loss} of the packets, which left {} in the second half; with --loss {loss}, fullpipe chooses {}",
            format::rate(bps),
            other.transport
        )
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use fullpipe_transfer::Sent;
    use fullpipe_transfer::connection::endpoint::Via;
    use fullpipe_transfer::protocol::hello::Limits;

    use super::*;

    #[derive(Parser)]
    struct Words {
        #[command(flatten)]
        how: TransportArgs,
    }

    /// Ten seconds of 8 streams at 50 Mb/s that lose one packet in a thousand.
    fn losses() -> Losses {
        let bytes = 62_500_000;
        let later = Sent { segments: bytes / 1448, again: 43, bytes, ns: 10_000_000_000, ..Sent::default() };
        Losses { all: later, later, streams: 8, looks: 30, queue_ns: 500_000, held: 1.0, bursts: 1.0 }
    }

    /// The choice for 45.6 ms and packets of 1,500 bytes between hosts with usual kernels.
    fn chosen(words: &[&str]) -> (TransportArgs, Chosen, Between) {
        let how = Words::parse_from(["cp"].iter().chain(words)).how;
        let ccs = ["reno", "cubic", "bbr"].map(str::to_owned).to_vec();
        let limits = Limits {
            ccs,
            send: 1 << 30,
            receive: 1 << 30,
            tuned_send: 1 << 30,
            tuned_receive: 1 << 30,
            ..Limits::default()
        };
        let between = Between {
            rtt_s: 0.0456,
            via: Via::Tcp,
            relayed: false,
            mtu: Some(1500),
            sender: limits.clone(),
            receiver: limits,
        };
        let chosen = how.choose(&between).map_err(|e| e.to_string()).unwrap();
        (how, chosen, between)
    }

    /// The advice after such a copy.
    fn said(words: &[&str], losses: &Losses) -> Option<String> {
        let (how, chosen, between) = chosen(words);
        assert!(!words.is_empty() || chosen.transport.cc != "bbr", "{}", chosen.transport);
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
            said.starts_with("the path lost 0.001 of") && said.contains("with --loss 0.001, fullpipe chooses bbr"),
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
