//! Limits the rate of requests: of all clients together, and of each client. A state machine; it knows no socket and no clock.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Instant;

use fullpipe_net::callers::Network;

/// Requests per second, and at once, of all clients together. A selection takes about 20 ms of a processor.
pub const PER_SECOND: f64 = 20.0;
/// Requests per second, and at once, from one IPv4 address or IPv6 /64.
pub const PER_SECOND_FROM_ONE: f64 = 10.0;

/// Which limit a request exceeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exceeded {
    /// That of its client's address.
    One,
    /// That of all clients together.
    All,
}

/// The requests that may still come: a token bucket (RFC 2697 calls its sizes rate and burst).
#[derive(Debug, Clone, Copy)]
struct Bucket {
    /// When the last request was admitted.
    since: Instant,
    /// How many requests could still come then.
    left: f64,
}

impl Bucket {
    /// Returns how many requests may come now.
    fn left(self, now: Instant, per_second: f64) -> f64 {
        (self.left + now.saturating_duration_since(self.since).as_secs_f64() * per_second).min(per_second)
    }
}

/// The limits, and what has come.
#[derive(Debug)]
pub struct RateLimits {
    all: Bucket,
    /// The buckets that are not full. An entry stands for an admitted request, and is dropped once its bucket has filled up,
    /// after at most a second. So the limit of all clients together bounds their number.
    by_network: BTreeMap<Network, Bucket>,
}

impl RateLimits {
    /// Nothing has come yet.
    pub fn new(now: Instant) -> RateLimits {
        RateLimits { all: Bucket { since: now, left: PER_SECOND }, by_network: BTreeMap::new() }
    }

    /// Counts a request if it may come.
    ///
    /// # Errors
    /// It exceeds a limit, and is not counted. A second later, one more may come.
    pub fn admit(&mut self, from: IpAddr, now: Instant) -> Result<(), Exceeded> {
        self.by_network.retain(|_, bucket| bucket.left(now, PER_SECOND_FROM_ONE) < PER_SECOND_FROM_ONE);
        let network = Network::from(from);
        let of_one =
            self.by_network.get(&network).map_or(PER_SECOND_FROM_ONE, |one| one.left(now, PER_SECOND_FROM_ONE));
        let of_all = self.all.left(now, PER_SECOND);
        if of_one < 1.0 {
            return Err(Exceeded::One);
        }
        if of_all < 1.0 {
            return Err(Exceeded::All);
        }
        self.by_network.insert(network, Bucket { since: now, left: of_one - 1.0 });
        self.all = Bucket { since: now, left: of_all - 1.0 };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};
    use std::time::Duration;

    use super::*;

    fn admitted(limits: &mut RateLimits, from: IpAddr, now: Instant) -> usize {
        (0..100).filter(|_| limits.admit(from, now).is_ok()).count()
    }

    #[test]
    fn one_client_leaves_room_for_another() {
        let now = Instant::now();
        let mut limits = RateLimits::new(now);
        let [one, other, third] = [1, 2, 3].map(|last| IpAddr::from([192, 0, 2, last]));
        assert_eq!(admitted(&mut limits, one, now), PER_SECOND_FROM_ONE as usize);
        assert_eq!(limits.admit(one, now), Err(Exceeded::One));
        assert_eq!(admitted(&mut limits, other, now), PER_SECOND_FROM_ONE as usize);
        assert_eq!(limits.admit(third, now), Err(Exceeded::All));
        // What is refused costs nothing: each has its rate again.
        let later = now + Duration::from_millis(200);
        assert_eq!(admitted(&mut limits, one, later), 2);
        assert_eq!(admitted(&mut limits, other, later), 2);
        assert_eq!(limits.admit(third, later), Err(Exceeded::All));
    }

    #[test]
    fn a_subscriber_is_one_client_whatever_its_addresses() {
        let now = Instant::now();
        let mut limits = RateLimits::new(now);
        let from = |last| IpAddr::from(Ipv6Addr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, last]));
        assert_eq!(
            (0..100).filter(|last| limits.admit(from(*last), now).is_ok()).count(),
            PER_SECOND_FROM_ONE as usize
        );
        let mapped = |last| IpAddr::from(Ipv4Addr::new(192, 0, 2, last).to_ipv6_mapped());
        assert!(limits.admit(mapped(1), now).is_ok());
        assert_eq!(admitted(&mut limits, IpAddr::from([192, 0, 2, 1]), now), PER_SECOND_FROM_ONE as usize - 1);
    }

    /// A million addresses ask, for a hundred seconds.
    #[test]
    fn memory_is_bounded_whoever_asks() {
        let begin = Instant::now();
        let mut limits = RateLimits::new(begin);
        let (mut most, mut served) = (0, 0);
        for i in 0..1_000_000u32 {
            let from = IpAddr::from(Ipv4Addr::from_bits(i));
            served += usize::from(limits.admit(from, begin + Duration::from_micros(100) * i).is_ok());
            most = most.max(limits.by_network.len());
        }
        assert!((2_000..=2_020).contains(&served), "{served}");
        assert!(most <= 2 * PER_SECOND as usize, "{most}");
    }
}
