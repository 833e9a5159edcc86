//! Decides what limits a copy, and says what would help. Pure functions.

use std::fmt;

use fullpipe_transfer::protocol::message::Times;

/// Fewest seconds of a copy after which people are told what limited it: in a shorter one, starting and ending count too much.
const MIN_TOLD_S: u32 = 3;

/// What limits a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bottleneck {
    /// Both ends wait for the network.
    Network,
    /// Hashing, at one end.
    Cpu,
    /// Reading at the source.
    DiskRead,
    /// Writing at the destination.
    DiskWrite,
}

impl fmt::Display for Bottleneck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Bottleneck::Network => "network",
            Bottleneck::Cpu => "cpu",
            Bottleneck::DiskRead => "disk read",
            Bottleneck::DiskWrite => "disk write",
        })
    }
}

impl Bottleneck {
    /// Names the bottleneck: the work of the end that waits least for the network, or the network.
    pub fn of(sender: &Times, receiver: &Times) -> Bottleneck {
        let busy = |t: &Times| (t.disk + t.hash) as f64 / ((t.disk + t.hash + t.net).max(1)) as f64;
        let (most, disk) = if busy(sender) >= busy(receiver) {
            (sender, Bottleneck::DiskRead)
        } else {
            (receiver, Bottleneck::DiskWrite)
        };
        if busy(most) < 0.5 {
            Bottleneck::Network
        } else if most.hash > most.disk {
            Bottleneck::Cpu
        } else {
            disk
        }
    }

    /// What would make the copy faster, as a sentence.
    pub fn help(self) -> &'static str {
        match self {
            Bottleneck::Network => {
                "the network limited the copy; 'fullpipe select HOST --explain' ranks other ways to send, and 'fullpipe doctor \
                 HOST' checks the settings of both hosts"
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
        }
    }
}

/// The busy times of both ends over a whole copy. They are summed because a call that waits for minutes, as of a disk that
/// stalls, counts only in the second in which it returns.
#[derive(Debug, Clone, Default)]
pub struct Spent {
    sender: Times,
    receiver: Times,
    /// Number of seconds that were added.
    seconds: u32,
}

impl Spent {
    /// Adds the busy times of a second.
    pub fn add(&mut self, sender: &Times, receiver: &Times) {
        self.add_rest(sender, receiver);
        self.seconds += 1;
    }

    /// Adds the busy times of less than a second, at the end. A call of minutes may return there, as of `fsync(2)`.
    pub fn add_rest(&mut self, sender: &Times, receiver: &Times) {
        for (sum, times) in [(&mut self.sender, sender), (&mut self.receiver, receiver)] {
            sum.disk = sum.disk.saturating_add(times.disk);
            sum.hash = sum.hash.saturating_add(times.hash);
            sum.net = sum.net.saturating_add(times.net);
        }
    }

    /// What limited the copy; `None` if it took less than a second.
    pub fn bottleneck(&self) -> Option<Bottleneck> {
        (self.seconds > 0).then(|| Bottleneck::of(&self.sender, &self.receiver))
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
        assert_eq!(Bottleneck::of(&t(1, 1, 98), &t(1, 1, 98)), Bottleneck::Network);
        assert_eq!(Bottleneck::of(&t(90, 5, 5), &t(1, 1, 98)), Bottleneck::DiskRead);
        assert_eq!(Bottleneck::of(&t(1, 1, 98), &t(90, 5, 5)), Bottleneck::DiskWrite);
        assert_eq!(Bottleneck::of(&t(1, 1, 98), &t(10, 80, 10)), Bottleneck::Cpu);
    }

    #[test]
    fn a_stalled_disk_counts_when_it_goes_on_and_short_copies_tell_nothing() {
        let mut spent = Spent::default();
        assert_eq!(spent.bottleneck(), None);
        let (waiting, nothing) = (Times { disk: 0, hash: 1, net: 99 }, Times::default());
        spent.add(&waiting, &nothing);
        assert_eq!((spent.bottleneck(), spent.told()), (Some(Bottleneck::Network), None));
        spent.add(&waiting, &nothing);
        spent.add(&waiting, &Times { disk: 900, hash: 1, net: 9 });
        assert_eq!(spent.told(), Some(Bottleneck::DiskWrite));
        let mut flushed = Spent::default();
        flushed.add_rest(&waiting, &nothing);
        assert_eq!(flushed.bottleneck(), None);
        flushed.add(&waiting, &nothing);
        flushed.add_rest(&nothing, &Times { disk: 900, hash: 1, net: 9 });
        assert_eq!(flushed.bottleneck(), Some(Bottleneck::DiskWrite));
    }
}
