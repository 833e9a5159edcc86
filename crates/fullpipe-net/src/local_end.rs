//! This host's end of a connection, where a user has chosen it (`--bind`).

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use socket2::Socket;

use crate::error::NetError;

/// Longest name of a network interface (IFNAMSIZ without the closing zero).
const MAX_NAME_BYTES: usize = 15;

/// The address and the network interface that connections from this host use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LocalEnd {
    /// Source address; `None` lets the route decide.
    pub address: Option<IpAddr>,
    /// Network interface; `None` lets the route decide.
    pub device: Option<String>,
}

/// The end that the kernel chooses.
pub static ANY: LocalEnd = LocalEnd { address: None, device: None };

/// The reason why a text names no local end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is no address of this host: give ADDRESS, ADDRESS%DEVICE or %DEVICE, such as 192.0.2.7, fe80::1%eth0 or %eth0"
)]
pub struct LocalEndError(String);

impl FromStr for LocalEnd {
    type Err = LocalEndError;
    fn from_str(text: &str) -> Result<Self, LocalEndError> {
        let bad = || LocalEndError(text.to_owned());
        let (address, device) = match text.split_once('%') {
            Some((address, device)) => (address, Some(device)),
            None => (text, None),
        };
        let is_name = |name: &str| (1..=MAX_NAME_BYTES).contains(&name.len()) && !name.contains(['/', '%']);
        if device.is_some_and(|name| !is_name(name)) {
            return Err(bad());
        }
        let bare = address.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(address);
        let address = match (bare, device) {
            ("", Some(_)) => None,
            _ => Some(bare.parse().map_err(|_| bad())?),
        };
        Ok(LocalEnd { address, device: device.map(str::to_owned) })
    }
}

impl fmt::Display for LocalEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(address) = self.address {
            address.fmt(f)?;
        }
        self.device.as_ref().map_or(Ok(()), |device| write!(f, "%{device}"))
    }
}

impl LocalEnd {
    /// Whether connections from here can reach an address: both are of one family.
    pub fn reaches(&self, to: &SocketAddr) -> bool {
        self.address.is_none_or(|address| address.is_ipv4() == to.is_ipv4())
    }

    /// Binds a socket that will connect to `to`.
    ///
    /// # Errors
    /// This host does not have the address or the interface, or does not let this user choose it.
    pub fn bind(&self, socket: &Socket, to: SocketAddr) -> Result<(), NetError> {
        let refused = |source| NetError::Bind { end: self.to_string(), source };
        if let Some(device) = &self.device {
            socket.bind_device(Some(device.as_bytes())).map_err(refused)?;
        }
        let Some(address) = self.address else { return Ok(()) };
        let mut local = SocketAddr::new(address, 0);
        // An address of a link alone needs its interface.
        if let (SocketAddr::V6(local), Some(device)) = (&mut local, &self.device) {
            local.set_scope_id(nix::net::if_::if_nametoindex(device.as_str()).map_err(|e| refused(e.into()))?);
        } else if let (SocketAddr::V6(local), SocketAddr::V6(to)) = (&mut local, to) {
            local.set_scope_id(to.scope_id());
        }
        socket.bind(&local.into()).map_err(refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_devices_are_told_apart() {
        for (text, address, device) in [
            ("192.0.2.7", Some("192.0.2.7"), None),
            ("192.0.2.7%eth0", Some("192.0.2.7"), Some("eth0")),
            ("[fe80::1]", Some("fe80::1"), None),
            ("fe80::1%eth0.7", Some("fe80::1"), Some("eth0.7")),
            ("%eth0", None, Some("eth0")),
        ] {
            let end: LocalEnd = text.parse().unwrap();
            assert_eq!(end.address, address.map(|text| text.parse().unwrap()), "{text}");
            assert_eq!(end.device.as_deref(), device, "{text}");
            assert_eq!(end.to_string().parse::<LocalEnd>(), Ok(end), "{text}");
        }
        for text in ["", "%", "eth0", "192.0.2.7%", "192.0.2.7:80", "::1%a/b", "::1%0123456789abcdef", "a%b"] {
            assert!(text.parse::<LocalEnd>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_family_reaches_its_own() {
        let end: LocalEnd = "127.0.0.2".parse().unwrap();
        assert!(end.reaches(&"127.0.0.1:1".parse().unwrap()) && !end.reaches(&"[::1]:1".parse().unwrap()));
        assert!(ANY.reaches(&"[::1]:1".parse().unwrap()));
    }
}
