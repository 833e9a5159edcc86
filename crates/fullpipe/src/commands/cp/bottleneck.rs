//! Decides what limits a copy, and says what would help. Pure functions.

use std::fmt;

use fullpipe_transfer::protocol::message::Times;

/// Fewest seconds of a copy after which people are told what limited it: in a shorter one, starting and ending count too much.
const MIN_TOLD_S: u32 = 3;

/// Smallest fraction of the rate of `--bwlimit` at which a copy that waits for the network counts as limited by it. The limit is of
/// packets, with their headers; the rate of a copy is of its data.
const MIN_OF_LIMIT: f64 = 0.85;

/// What limits a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bottleneck {
    /// Both ends wait for the network.
    Network,
    /// Both ends wait for the network, which may have no more than the rate of `--bwlimit`.
    Limit,
    /// Hashing, at one end.
    Cpu,
    /// Reading at the source.
    DiskRead,
    /// Writing at the destination.
    DiskWrite,
    /// The program that writes to standard input.
    Input,
    /// The program that reads standard output.
    Output,
}

/// Standard input or output, as one side of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standard {
    Input,
    Output,
}

impl fmt::Display for Bottleneck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Bottleneck::Network => "network",
            Bottleneck::Limit => "--bwlimit",
            Bottleneck::Cpu => "cpu",
            Bottleneck::DiskRead => "disk read",
            Bottleneck::DiskWrite => "disk write",
            Bottleneck::Input => "standard input",
            Bottleneck::Output => "standard output",
        })
    }
}

impl Bottleneck {
    /// Names the bottleneck: the work of the end that waits least for the network, or the network. `limited` says whether the copy
    /// was as fast as `--bwlimit` let it be ([`reaches`]).
    pub fn of(sender: &Times, receiver: &Times, limited: bool) -> Bottleneck {
        let busy = |t: &Times| (t.disk + t.hash) as f64 / ((t.disk + t.hash + t.net).max(1)) as f64;
        let (most, disk) = if busy(sender) >= busy(receiver) {
            (sender, Bottleneck::DiskRead)
        } else {
            (receiver, Bottleneck::DiskWrite)
        };
        if busy(most) < 0.5 {
            if limited { Bottleneck::Limit } else { Bottleneck::Network }
        } else if most.hash > most.disk {
            Bottleneck::Cpu
        } else {
            disk
        }
    }

    /// Its name for programs.
    pub fn key(self) -> String {
        if self == Bottleneck::Limit { "bwlimit".into() } else { self.to_string() }
    }

    /// Names standard input or output where it is the disk that was found.
    fn with(self, standard: Option<Standard>) -> Bottleneck {
        match (self, standard) {
            (Bottleneck::DiskRead, Some(Standard::Input)) => Bottleneck::Input,
            (Bottleneck::DiskWrite, Some(Standard::Output)) => Bottleneck::Output,
            _ => self,
        }
    }

    /// Whether something at one end, which its user may change, limited the copy: not the path, nor a limit that was typed.
    pub fn is_of_a_host(self) -> bool {
        matches!(self, Bottleneck::Cpu | Bottleneck::DiskRead | Bottleneck::DiskWrite)
    }

    /// What would make the copy faster, as a sentence.
    pub fn help(self) -> &'static str {
        match self {
            Bottleneck::Network => {
                "the network limited the copy; 'fullpipe select HOST --explain' ranks other ways to send, and 'fullpipe doctor \
                 HOST' checks the settings of both hosts"
            }
            Bottleneck::Limit => {
                "--bwlimit (or --pacing, its other name) limited the copy; leave it out, or give a higher rate"
            }
            Bottleneck::Cpu => {
                "a processor that hashes the data limited the copy; more --streams use more processors, if there are any"
            }
            Bottleneck::DiskRead => {
                "reading the source limited the copy; 'fullpipe measure disk:FOLDER --read --threads 1-16 --direct on,off' on \
                 that host shows whether other --streams or --direct are faster"
            }
            Bottleneck::DiskWrite => {
                "writing the destination limited the copy; 'fullpipe measure disk:FOLDER --write --threads 1-16 --direct \
                 on,off' on that host shows whether other --streams or --direct are faster"
            }
            Bottleneck::Input => "the program that writes to standard input limited the copy",
            Bottleneck::Output => "the program that reads standard output limited the copy",
        }
    }
}

/// Whether a rate of data is the one that `--bwlimit` allows, as far as headers let it be. Both are in bit/s.
pub fn reaches(rate: f64, limit: Option<f64>) -> bool {
    limit.is_some_and(|limit| rate >= MIN_OF_LIMIT * limit)
}

/// The busy times of both ends over a whole copy. They are summed because a call that waits for minutes, as of a disk that
/// stalls, counts only in the second in which it returns.
#[derive(Debug, Clone, Default)]
pub struct Spent {
    sender: Times,
    receiver: Times,
    /// Number of seconds that were added.
    seconds: u32,
    /// Number of these seconds in which the rate reached `--bwlimit`.
    limited_seconds: u32,
    /// The sum of the rates in these seconds, bit/s.
    rates_bps: f64,
    /// The rate of `--bwlimit`, bit/s.
    limit_bps: Option<f64>,
    /// What is no disk at one end.
    standard: Option<Standard>,
}

impl Spent {
    /// Of a copy that has spent nothing yet. `limit_bps` is the rate of `--bwlimit`, bit/s.
    pub fn new(limit_bps: Option<f64>, standard: Option<Standard>) -> Spent {
        Spent { limit_bps, standard, ..Spent::default() }
    }

    /// Adds the busy times of a second, with the rate of data in it, bit/s. Returns what limits the copy now. A slow one may bring in
    /// one second what it lacked in another, so the mean rate counts as well.
    pub fn add(&mut self, sender: &Times, receiver: &Times, rate_bps: f64) -> Bottleneck {
        self.add_rest(sender, receiver);
        let limited = reaches(rate_bps, self.limit_bps);
        self.seconds += 1;
        self.limited_seconds += u32::from(limited);
        self.rates_bps += rate_bps;
        Bottleneck::of(sender, receiver, limited || self.mean_reaches()).with(self.standard)
    }

    fn mean_reaches(&self) -> bool {
        reaches(self.rates_bps / f64::from(self.seconds.max(1)), self.limit_bps)
    }

    /// Adds the busy times of less than a second, at the end. A call of minutes may return there, as of `fsync(2)`.
    pub fn add_rest(&mut self, sender: &Times, receiver: &Times) {
        for (sum, times) in [(&mut self.sender, sender), (&mut self.receiver, receiver)] {
            sum.disk = sum.disk.saturating_add(times.disk);
            sum.hash = sum.hash.saturating_add(times.hash);
            sum.net = sum.net.saturating_add(times.net);
        }
    }

    /// What limited the copy; `None` if it took less than a second. `--bwlimit` did if most seconds reached it, or their mean: while a
    /// copy starts, or where a host stalls, some do not.
    pub fn bottleneck(&self) -> Option<Bottleneck> {
        let limited = self.limited_seconds > self.seconds / 2 || self.mean_reaches();
        (self.seconds > 0).then(|| Bottleneck::of(&self.sender, &self.receiver, limited).with(self.standard))
    }

    /// What limited the copy, if it took long enough to tell people.
    pub fn told(&self) -> Option<Bottleneck> {
        self.bottleneck().filter(|_| self.seconds >= MIN_TOLD_S)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_holds_it_back() {
        let t = |disk, hash, net| Times { disk, hash, net };
        assert_eq!(Bottleneck::of(&t(1, 1, 98), &t(1, 1, 98), false), Bottleneck::Network);
        assert_eq!(Bottleneck::of(&t(90, 5, 5), &t(1, 1, 98), false), Bottleneck::DiskRead);
        assert_eq!(Bottleneck::of(&t(1, 1, 98), &t(90, 5, 5), false), Bottleneck::DiskWrite);
        assert_eq!(Bottleneck::of(&t(1, 1, 98), &t(10, 80, 10), false), Bottleneck::Cpu);
    }

    #[test]
    fn a_limit_counts_where_most_seconds_reach_it() {
        let waiting = Times { disk: 0, hash: 1, net: 99 };
        let after = |limit_bps, rates: &[f64]| {
            let mut spent = Spent::new(limit_bps, None);
            for rate in rates {
                spent.add(&waiting, &waiting, *rate);
            }
            spent.bottleneck()
        };
        assert_eq!(after(Some(1e8), &[5e7, 9.4e7, 9.4e7, 9.4e7, 9.4e7]), Some(Bottleneck::Limit));
        assert_eq!(
            after(Some(1e8), &[5e7, 6e7, 9.4e7, 6e7]),
            Some(Bottleneck::Network),
            "the path is slower than that"
        );
        assert_eq!(after(Some(1e8), &[9.4e7, 0.0, 9.4e7]), Some(Bottleneck::Limit), "a host stalled");
        assert_eq!(after(None, &[9.4e7; 3]), Some(Bottleneck::Network));
        assert_eq!(after(Some(1e6), &[0.0, 2e6, 0.0, 1.9e6]), Some(Bottleneck::Limit), "few large blocks");
        let mut spent = Spent::new(Some(1e8), None);
        let busy = Times { disk: 90, hash: 1, net: 9 };
        assert_eq!(spent.add(&busy, &waiting, 9.5e7), Bottleneck::DiskRead);
        assert_eq!(Bottleneck::Limit.key(), "bwlimit");
    }

    #[test]
    fn standard_input_and_output_are_no_disks() {
        let (busy, waiting) = (Times { disk: 90, hash: 1, net: 9 }, Times { disk: 0, hash: 1, net: 99 });
        let mut into = Spent::new(None, Some(Standard::Input));
        assert_eq!(into.add(&busy, &waiting, 1e6), Bottleneck::Input);
        assert_eq!(Spent::new(None, Some(Standard::Input)).add(&waiting, &busy, 1e6), Bottleneck::DiskWrite);
        let mut out = Spent::new(None, Some(Standard::Output));
        out.add(&waiting, &busy, 1e6);
        assert_eq!(out.bottleneck(), Some(Bottleneck::Output));
    }

    #[test]
    fn a_stalled_disk_counts_when_it_goes_on_and_short_copies_tell_nothing() {
        let mut spent = Spent::default();
        assert_eq!(spent.bottleneck(), None);
        let (waiting, nothing) = (Times { disk: 0, hash: 1, net: 99 }, Times::default());
        spent.add(&waiting, &nothing, 1e9);
        assert_eq!((spent.bottleneck(), spent.told()), (Some(Bottleneck::Network), None));
        spent.add(&waiting, &nothing, 1e9);
        spent.add(&waiting, &Times { disk: 900, hash: 1, net: 9 }, 1e9);
        assert_eq!(spent.told(), Some(Bottleneck::DiskWrite));
        let mut flushed = Spent::default();
        flushed.add_rest(&waiting, &nothing);
        assert_eq!(flushed.bottleneck(), None);
        flushed.add(&waiting, &nothing, 1e9);
        flushed.add_rest(&nothing, &Times { disk: 900, hash: 1, net: 9 });
        assert_eq!(flushed.bottleneck(), Some(Bottleneck::DiskWrite));
    }
}
