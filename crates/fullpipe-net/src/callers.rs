//! Decides which callers of a data port are kept until they have shown the session's token, and which are dropped.
//!
//! A state machine; it knows no socket and no clock. Anyone may call a data port and send nothing. A caller that has not
//! shown the token is kept for a bounded time in a bounded crowd. When the crowd is full, one of its members is dropped, and
//! never the session. Admission control of a server uses the same [`Crowd`].

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};

/// The addresses that one subscriber usually has: an IPv4 address, or the /64 of an IPv6 address (RFC 6177, section 2). An
/// IPv4-mapped IPv6 address counts as the IPv4 address in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Network(IpAddr);

impl From<IpAddr> for Network {
    fn from(address: IpAddr) -> Network {
        match address.to_canonical() {
            IpAddr::V6(v6) => Network(Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64).into()),
            v4 => Network(v4),
        }
    }
}

/// Members of a crowd, by their networks. Each member has a number, and later members have larger numbers.
#[derive(Debug, Default)]
pub struct Crowd {
    networks: BTreeMap<Network, BTreeSet<u64>>,
    len: usize,
}

impl Crowd {
    /// Returns the number of members.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no members.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of members from a network.
    #[must_use]
    pub fn members_from(&self, network: Network) -> usize {
        self.networks.get(&network).map_or(0, BTreeSet::len)
    }

    /// Adds a member.
    pub fn insert(&mut self, member: u64, network: Network) {
        if self.networks.entry(network).or_default().insert(member) {
            self.len += 1;
        }
    }

    /// Removes a member if it is in the crowd.
    pub fn remove(&mut self, member: u64, network: Network) {
        let Some(members) = self.networks.get_mut(&network) else { return };
        if members.remove(&member) {
            self.len -= 1;
        }
        if members.is_empty() {
            self.networks.remove(&network);
        }
    }

    /// Returns the oldest member from a network.
    #[must_use]
    pub fn oldest_from(&self, network: Network) -> Option<u64> {
        self.networks.get(&network).and_then(|members| members.first().copied())
    }

    /// Returns the member to drop when the crowd is too large: the oldest one from the network with the most members; among
    /// equally crowded networks, the oldest of all. Members from networks that are `spared` are chosen only if there are no others.
    #[must_use]
    pub fn victim(&self, spared: impl Fn(&Network) -> bool) -> Option<u64> {
        let worst = self.networks.iter().max_by_key(|(network, members)| {
            (!spared(network), members.len(), std::cmp::Reverse(members.first().copied()))
        });
        worst.and_then(|(_, members)| members.first().copied())
    }
}

/// Limits for the callers of one port that have not shown the token.
#[derive(Debug, Clone, Copy)]
pub struct CallerLimits {
    /// Most callers that are kept at once.
    pub callers: usize,
    /// Time within which a caller must have sent its whole preamble, ns.
    pub deadline_ns: u64,
}

/// The state of a caller after it has sent something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Its preamble is not complete yet.
    Incomplete,
    /// It has shown the token; it is the stream of this number.
    Stream(u16),
    /// Its preamble is wrong, and it is to be dropped.
    Stranger,
}

#[derive(Debug)]
struct Caller<const N: usize> {
    network: Network,
    deadline_ns: u64,
    preamble: [u8; N],
    len: usize,
}

/// Callers of a data port that have not shown the session's token yet. The preamble has `N` bytes.
#[derive(Debug)]
pub struct Callers<const N: usize> {
    limits: CallerLimits,
    /// Network of the session's control connection. Callers from there are dropped last.
    peer: Option<Network>,
    waiting: BTreeMap<u64, Caller<N>>,
    crowd: Crowd,
    last: u64,
}

impl<const N: usize> Callers<N> {
    /// Makes the state without callers. `peer` is the address of the session's control connection, where it is known.
    #[must_use]
    pub fn new(limits: CallerLimits, peer: Option<IpAddr>) -> Callers<N> {
        let peer = peer.map(Network::from);
        Callers { limits, peer, waiting: BTreeMap::new(), crowd: Crowd::default(), last: 0 }
    }

    /// Takes a caller in. Returns its number, and the caller that is to be dropped to make room, which may be itself.
    pub fn enter(&mut self, from: IpAddr, now_ns: u64) -> (u64, Option<u64>) {
        self.last += 1;
        let (number, network) = (self.last, Network::from(from));
        let deadline_ns = now_ns.saturating_add(self.limits.deadline_ns);
        self.waiting.insert(number, Caller { network, deadline_ns, preamble: [0; N], len: 0 });
        self.crowd.insert(number, network);
        let full = self.waiting.len() > self.limits.callers;
        (number, if full { self.drop_for_room() } else { None })
    }

    /// Chooses a caller to drop, and forgets it. Returns `None` if there are no callers.
    pub fn drop_for_room(&mut self) -> Option<u64> {
        let victim = self.crowd.victim(|network| Some(*network) == self.peer)?;
        self.forget(victim);
        Some(victim)
    }

    /// Returns how many bytes of its preamble a caller has not sent yet; 0 if there is no such caller.
    #[must_use]
    pub fn lacks(&self, number: u64) -> usize {
        self.waiting.get(&number).map_or(0, |caller| N - caller.len)
    }

    /// Adds bytes to a caller's preamble, at most as many as [`Callers::lacks`] returns. `check` returns the stream's number
    /// for a right preamble. A caller whose preamble is complete is forgotten.
    pub fn heard(&mut self, number: u64, bytes: &[u8], check: &dyn Fn(&[u8; N]) -> Option<u16>) -> Verdict {
        let Some(caller) = self.waiting.get_mut(&number) else { return Verdict::Stranger };
        let Some(room) = caller.preamble.get_mut(caller.len..caller.len + bytes.len()) else {
            self.forget(number);
            return Verdict::Stranger;
        };
        room.copy_from_slice(bytes);
        caller.len += bytes.len();
        if caller.len < N {
            return Verdict::Incomplete;
        }
        let verdict = check(&caller.preamble).map_or(Verdict::Stranger, Verdict::Stream);
        self.forget(number);
        verdict
    }

    /// Forgets a caller.
    pub fn forget(&mut self, number: u64) {
        if let Some(caller) = self.waiting.remove(&number) {
            self.crowd.remove(number, caller.network);
        }
    }

    /// Forgets the callers whose time is over, and returns their numbers.
    pub fn late(&mut self, now_ns: u64) -> Vec<u64> {
        // Numbers and deadlines grow together.
        let late = self.waiting.iter().take_while(|(_, caller)| caller.deadline_ns <= now_ns);
        let late: Vec<u64> = late.map(|(number, _)| *number).collect();
        late.iter().for_each(|number| self.forget(*number));
        late
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: CallerLimits = CallerLimits { callers: 4, deadline_ns: 100 };

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// The first byte is the stream's number, the second the token.
    fn check(preamble: &[u8; 2]) -> Option<u16> {
        (preamble[1] == 7).then_some(u16::from(preamble[0]))
    }

    #[test]
    fn one_subscriber_is_one_network() {
        let network = |text| Network::from(address(text));
        assert_eq!(network("2001:db8::1"), network("2001:db8::ffff:1:2:3"));
        assert_ne!(network("2001:db8::1"), network("2001:db8:0:1::1"));
        assert_eq!(network("::ffff:192.0.2.1"), network("192.0.2.1"));
        assert_ne!(network("::ffff:192.0.2.1"), network("::ffff:192.0.2.2"));
    }

    #[test]
    fn a_preamble_may_come_in_parts() {
        let mut callers = Callers::<2>::new(LIMITS, None);
        let (one, _) = callers.enter(address("192.0.2.1"), 0);
        assert_eq!(callers.heard(one, &[3], &check), Verdict::Incomplete);
        assert_eq!(callers.lacks(one), 1);
        assert_eq!(callers.heard(one, &[7], &check), Verdict::Stream(3));
        let (wrong, _) = callers.enter(address("192.0.2.1"), 0);
        assert_eq!(callers.heard(wrong, &[3, 8], &check), Verdict::Stranger);
        let (long, _) = callers.enter(address("192.0.2.1"), 0);
        assert_eq!(callers.heard(long, &[3, 7, 7], &check), Verdict::Stranger);
        assert_eq!(callers.heard(long, &[3, 7], &check), Verdict::Stranger, "forgotten");
        assert!(callers.crowd.is_empty());
    }

    #[test]
    fn who_says_nothing_has_little_time() {
        let mut callers = Callers::<2>::new(LIMITS, None);
        let (first, _) = callers.enter(address("192.0.2.1"), 0);
        let (second, _) = callers.enter(address("192.0.2.1"), 50);
        assert!(callers.late(99).is_empty());
        assert_eq!(callers.late(100), [first]);
        assert_eq!(callers.late(1000), [second]);
    }

    #[test]
    fn the_oldest_of_the_most_crowded_network_makes_room() {
        let (peer, stranger, other) = (address("192.0.2.1"), address("2001:db8::1"), address("198.51.100.1"));
        let mut callers = Callers::<2>::new(LIMITS, Some(peer));
        let (ours, _) = callers.enter(peer, 0);
        let (first, _) = callers.enter(stranger, 0);
        let (second, _) = callers.enter(address("2001:db8::2"), 0);
        let (_, none) = callers.enter(other, 0);
        assert_eq!(none, None);
        assert_eq!(callers.enter(peer, 0).1, Some(first));
        assert_eq!(callers.enter(peer, 0).1, Some(second), "the peer's are more, and spared all the same");
        assert!(callers.enter(peer, 0).1.is_some_and(|it| it != ours), "the last stranger");
        assert_eq!(callers.enter(peer, 0).1, Some(ours), "there is nobody else");
        let (new, dropped) = callers.enter(stranger, 0);
        assert_eq!(dropped, Some(new), "a stranger is not kept in place of the peer's");
    }

    /// A stranger that calls from the client's own address 1,000 times a second, and a preamble that was lost once.
    #[test]
    fn a_flood_drops_nobody_whose_preamble_comes_soon() {
        let limits = CallerLimits { callers: 2048, deadline_ns: 5_000_000_000 };
        let peer = address("192.0.2.1");
        let mut callers = Callers::<2>::new(limits, Some(peer));
        for i in 0..10_000 {
            callers.enter(peer, i * 1_000_000);
        }
        let (ours, _) = callers.enter(peer, 10_000_000_000);
        for i in 0..1500 {
            assert_ne!(callers.enter(peer, 10_000_000_000 + i * 1_000_000).1, Some(ours));
        }
        assert_eq!(callers.heard(ours, &[0, 7], &check), Verdict::Stream(0));
        assert!(callers.waiting.len() <= 2048);
    }
}
