//! The listener's cookie (section 5.1): it proves that a caller receives what is sent to its address, before the listener keeps
//! anything about it.

use std::net::{IpAddr, SocketAddr};

/// Time for which the listener hands out the same cookie, nanoseconds; the one before is taken as well (libudt).
const PERIOD_NS: u64 = 60_000_000_000;

/// Makes and checks cookies with a secret. libudt has none: its cookies are MD5 sums of the address and the minute, which
/// anybody can compute.
#[derive(Debug)]
pub(crate) struct Cookies {
    key: [u8; 32],
}

impl Cookies {
    pub fn new(secret: [u8; 32]) -> Cookies {
        Cookies { key: blake3::derive_key("fullpipe-udt cookie", &secret) }
    }

    /// The cookie of an address now. It is never 0, which stands for no cookie.
    pub fn cookie(&self, now_ns: u64, address: &SocketAddr) -> u32 {
        self.of_period(now_ns / PERIOD_NS, address)
    }

    /// Whether a cookie was handed out to this address within the last two periods.
    pub fn is_valid(&self, now_ns: u64, address: &SocketAddr, cookie: u32) -> bool {
        let period = now_ns / PERIOD_NS;
        cookie == self.of_period(period, address) || cookie == self.of_period(period.wrapping_sub(1), address)
    }

    fn of_period(&self, period: u64, address: &SocketAddr) -> u32 {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        match address.ip() {
            IpAddr::V4(ip) => hasher.update(&ip.octets()),
            IpAddr::V6(ip) => hasher.update(&ip.octets()),
        };
        hasher.update(&address.port().to_be_bytes());
        hasher.update(&period.to_be_bytes());
        let hash = hasher.finalize();
        let word = hash.as_bytes().first_chunk().map_or(1, |bytes| u32::from_be_bytes(*bytes));
        word.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_of_one_address_and_lasts_between_one_and_two_minutes() {
        let cookies = Cookies::new([7; 32]);
        let (a, b): (SocketAddr, SocketAddr) = ("10.0.0.1:5".parse().unwrap(), "10.0.0.1:6".parse().unwrap());
        let cookie = cookies.cookie(30_000_000_000, &a);
        assert!(cookies.is_valid(31_000_000_000, &a, cookie));
        assert!(cookies.is_valid(119_000_000_000, &a, cookie));
        assert!(!cookies.is_valid(121_000_000_000, &a, cookie));
        assert!(!cookies.is_valid(31_000_000_000, &b, cookie));
        assert!(!Cookies::new([8; 32]).is_valid(31_000_000_000, &a, cookie));
        assert!(!cookies.is_valid(0, &a, 0));
    }
}
