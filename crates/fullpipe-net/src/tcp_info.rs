//! `struct tcp_info` under the kernel's own names (include/uapi/linux/tcp.h).
//!
//! The structure is kept as raw bytes, so that a host with a newer kernel can send its samples to a host with an older
//! program. Fields are looked up by offset when a record is written. Fields that the kernel does not have are left out, as
//! is a pacing limit that is not set.

use std::os::fd::BorrowedFd;

use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::sys;

/// Width of a field: bytes, or some bits of a byte that it shares.
#[derive(Clone, Copy)]
enum Width {
    Bytes(usize),
    Bits { shift: u8, mask: u8 },
}
use Width::{Bits, Bytes};

const FIELDS: &[(&str, usize, Width)] = &[
    ("state", 0, Bytes(1)),
    ("ca_state", 1, Bytes(1)),
    ("retransmits", 2, Bytes(1)),
    ("probes", 3, Bytes(1)),
    ("backoff", 4, Bytes(1)),
    ("options", 5, Bytes(1)),
    ("snd_wscale", 6, Bits { shift: 0, mask: 15 }),
    ("rcv_wscale", 6, Bits { shift: 4, mask: 15 }),
    ("delivery_rate_app_limited", 7, Bits { shift: 0, mask: 1 }),
    ("rto", 8, Bytes(4)),
    ("ato", 12, Bytes(4)),
    ("snd_mss", 16, Bytes(4)),
    ("rcv_mss", 20, Bytes(4)),
    ("unacked", 24, Bytes(4)),
    ("sacked", 28, Bytes(4)),
    ("lost", 32, Bytes(4)),
    ("retrans", 36, Bytes(4)),
    ("last_data_sent", 44, Bytes(4)),
    ("last_data_recv", 52, Bytes(4)),
    ("last_ack_recv", 56, Bytes(4)),
    ("pmtu", 60, Bytes(4)),
    ("rcv_ssthresh", 64, Bytes(4)),
    ("rtt", 68, Bytes(4)),
    ("rttvar", 72, Bytes(4)),
    ("snd_ssthresh", 76, Bytes(4)),
    ("snd_cwnd", 80, Bytes(4)),
    ("advmss", 84, Bytes(4)),
    ("reordering", 88, Bytes(4)),
    ("rcv_rtt", 92, Bytes(4)),
    ("rcv_space", 96, Bytes(4)),
    ("total_retrans", 100, Bytes(4)),
    ("pacing_rate", 104, Bytes(8)),
    ("max_pacing_rate", 112, Bytes(8)),
    ("bytes_acked", 120, Bytes(8)),
    ("bytes_received", 128, Bytes(8)),
    ("segs_out", 136, Bytes(4)),
    ("segs_in", 140, Bytes(4)),
    ("notsent_bytes", 144, Bytes(4)),
    ("min_rtt", 148, Bytes(4)),
    ("data_segs_in", 152, Bytes(4)),
    ("data_segs_out", 156, Bytes(4)),
    ("delivery_rate", 160, Bytes(8)),
    ("busy_time", 168, Bytes(8)),
    ("rwnd_limited", 176, Bytes(8)),
    ("sndbuf_limited", 184, Bytes(8)),
    ("delivered", 192, Bytes(4)),
    ("delivered_ce", 196, Bytes(4)),
    ("bytes_sent", 200, Bytes(8)),
    ("bytes_retrans", 208, Bytes(8)),
    ("dsack_dups", 216, Bytes(4)),
    ("reord_seen", 220, Bytes(4)),
    ("rcv_ooopack", 224, Bytes(4)),
    ("snd_wnd", 228, Bytes(4)),
    ("rcv_wnd", 232, Bytes(4)),
    ("rehash", 236, Bytes(4)),
    ("total_rto", 240, Bytes(2)),
    ("total_rto_recoveries", 242, Bytes(2)),
    ("total_rto_time", 244, Bytes(4)),
];

/// TCP_INFO of a socket at one time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TcpInfo(Box<[u8]>);

impl TcpInfo {
    /// Reads TCP_INFO of a socket.
    ///
    /// # Errors
    /// The descriptor is not a TCP socket.
    pub fn read(fd: BorrowedFd<'_>) -> std::io::Result<TcpInfo> {
        let mut buffer = [0; sys::TCP_INFO_MAX];
        let len = sys::tcp_info(fd, &mut buffer)?;
        Ok(TcpInfo(buffer[..len.min(buffer.len())].into()))
    }

    /// Takes the bytes that another host has read. Bytes beyond the largest known structure are dropped.
    pub fn from_bytes(bytes: &[u8]) -> TcpInfo {
        TcpInfo(bytes[..bytes.len().min(sys::TCP_INFO_MAX)].into())
    }

    /// Returns the structure's bytes as the kernel gave them.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns a field by the kernel's name without `tcpi_`, or `None` if the kernel does not have it. Units are the kernel's
    /// (include/uapi/linux/tcp.h): most times in us, rates in bytes per second, `snd_cwnd` in segments.
    pub fn get(&self, name: &str) -> Option<u64> {
        FIELDS.iter().find(|field| field.0 == name).and_then(|&(_, at, width)| self.at(at, width))
    }

    fn at(&self, at: usize, width: Width) -> Option<u64> {
        match width {
            Bits { shift, mask } => self.0.get(at).map(|byte| u64::from((byte >> shift) & mask)),
            Bytes(n) => {
                let mut wide = [0; 8];
                wide[..n].copy_from_slice(self.0.get(at..at + n)?);
                Some(u64::from_le_bytes(wide))
            }
        }
    }
}

/// The fields that this kernel has, under its own names.
impl Serialize for TcpInfo {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut map = s.serialize_map(None)?;
        for &(name, at, width) in FIELDS {
            if let Some(value) = self.at(at, width).filter(|&value| value != u64::MAX) {
                map.serialize_entry(name, &value)?;
            }
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn a_real_connection_has_the_fields() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let info = TcpInfo::read(stream.as_fd()).unwrap();
        assert_eq!(info.get("state"), Some(1), "TCP_ESTABLISHED");
        assert!(info.get("snd_cwnd").unwrap() >= 2);
        assert!(info.get("snd_mss").unwrap() >= 500);
        assert_eq!(info.get("no_such_field"), None);
        let short = TcpInfo::from_bytes(&info.bytes()[..104]);
        assert!(short.get("total_retrans").is_some());
        assert_eq!(short.get("pacing_rate"), None);
    }

    #[test]
    fn offsets_are_in_order_and_aligned() {
        for pair in FIELDS.windows(2) {
            assert!(pair[0].1 <= pair[1].1, "{} before {}", pair[0].0, pair[1].0);
        }
        for &(name, at, width) in FIELDS {
            if let Bytes(n) = width {
                assert_eq!(at % n, 0, "{name}");
            }
        }
    }
}
