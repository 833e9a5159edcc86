//! What this host lacks for a transport, and the commands that get it.

use fullpipe_net::stream::udt::{UDP_BUFFER, udp_buffer};
use fullpipe_path::{Buffer, Protocol, Transport};
use fullpipe_profile::{Choice, Selection};

use crate::format;

/// What this host's kernel offers a program. Empty or `None` where it could not be read.
#[derive(Debug, Default)]
pub struct ThisHost {
    /// Congestion controls that the kernel has.
    available: Vec<String>,
    /// Congestion controls that this user may set.
    allowed: Vec<String>,
    /// Limits of the send and of the receive buffer, bytes, by the setting's name.
    buffers: Vec<(&'static str, u64)>,
    /// Bytes that a UDP socket may hold on arrival.
    udp_buffer: Option<u64>,
}

impl ThisHost {
    /// Reads it from /proc.
    pub fn read() -> ThisHost {
        let read = |name: &str| std::fs::read_to_string(format!("/proc/sys/net/{name}")).unwrap_or_default();
        let words = |name: &str| read(name).split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let available = words("ipv4/tcp_available_congestion_control");
        let is_root = nix::unistd::geteuid().is_root();
        let allowed = if is_root { available.clone() } else { words("ipv4/tcp_allowed_congestion_control") };
        let limit = |key, name: &str| Some((key, read(name).trim().parse().ok()?));
        let buffers = [limit("net.core.wmem_max", "core/wmem_max"), limit("net.core.rmem_max", "core/rmem_max")];
        ThisHost {
            available,
            allowed,
            buffers: buffers.into_iter().flatten().collect(),
            udp_buffer: Some(udp_buffer()),
        }
    }

    /// Says what this host lacks for the choice, a sentence each.
    pub fn lacks(&self, selection: &Selection) -> Vec<String> {
        self.lacks_for(&selection.choice.transport, &selection.ranking)
    }

    fn lacks_for(&self, transport: &Transport, ranking: &[Choice]) -> Vec<String> {
        match transport.protocol() {
            Protocol::Tcp => {
                self.lacks_cc(&transport.cc, ranking).into_iter().chain(self.lacks_buffer(transport.buffer)).collect()
            }
            // It brings its own congestion control, and its buffers are in the program's memory.
            Protocol::Udt | Protocol::Udp => self.lacks_udp_buffer().into_iter().collect(),
        }
    }

    fn lacks_udp_buffer(&self) -> Option<String> {
        let limit = self.udp_buffer?;
        (limit < UDP_BUFFER.0).then(|| {
            format!(
                "this host lets a UDP socket hold only {}, which a burst can fill; as root on the receiving host: sysctl \
                 -w net.core.rmem_max={}",
                format::bytes(limit as f64),
                UDP_BUFFER.0
            )
        })
    }

    fn lacks_cc(&self, cc: &str, ranking: &[Choice]) -> Option<String> {
        let has = |names: &[String], cc: &str| names.iter().any(|name| name == cc);
        if self.available.is_empty() || has(&self.allowed, cc) {
            return None;
        }
        let best = ranking.iter().find(|choice| has(&self.allowed, &choice.transport.cc));
        let best = best.map_or_else(String::new, |choice| {
            let rate = format::rate(choice.expected.mean_bps);
            format!(". The best of those that it has: {} ({rate})", choice.transport)
        });
        let allow = format!("sysctl -w net.ipv4.tcp_allowed_congestion_control=\"{} {cc}\"", self.allowed.join(" "));
        Some(if has(&self.available, cc) {
            format!("this host lets only root use {cc}; as root: {allow}{best}")
        } else {
            format!("this host lacks {cc}; as root: modprobe tcp_{cc}{best}")
        })
    }

    fn lacks_buffer(&self, buffer: Buffer) -> Option<String> {
        let Buffer::Bytes(size) = buffer else { return None };
        let short: Vec<&(&str, u64)> = self.buffers.iter().filter(|(_, limit)| *limit < size.0).collect();
        let least = short.iter().map(|(_, limit)| *limit).min()?;
        let set: Vec<String> = short.iter().map(|(key, _)| format!("{key}={}", size.0)).collect();
        Some(format!(
            "this host grants buffers of {} only; as root on both hosts: sysctl -w {}. Without it, cp uses autotuned \
             buffers and more streams",
            format::bytes(least as f64),
            set.join(" ")
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn what_is_lacking_is_named_with_its_remedy() {
        let host = ThisHost {
            available: names(&["reno", "cubic", "bbr"]),
            allowed: names(&["reno", "cubic"]),
            buffers: vec![("net.core.wmem_max", 212_992), ("net.core.rmem_max", 2_000_000_000)],
            udp_buffer: Some(UDP_BUFFER.0),
        };
        assert_eq!(host.lacks_cc("cubic", &[]), None);
        assert_eq!(host.lacks_cc("hybla", &[]).unwrap(), "this host lacks hybla; as root: modprobe tcp_hybla");
        let allow = "sysctl -w net.ipv4.tcp_allowed_congestion_control=\"reno cubic bbr\"";
        assert_eq!(host.lacks_cc("bbr", &[]).unwrap(), format!("this host lets only root use bbr; as root: {allow}"));
        let buffer = |text: &str| host.lacks_buffer(text.parse().unwrap());
        assert_eq!((buffer("auto"), buffer("200KB")), (None, None));
        let why = buffer("1GB").unwrap();
        assert!(why.contains("grants buffers of 213.0 KB only"), "{why}");
        assert!(why.contains("sysctl -w net.core.wmem_max=1000000000. Without"), "only what is short: {why}");
        // UDT asks the kernel for neither.
        let lacks = |host: &ThisHost, cc: &str| {
            host.lacks_for(
                &Transport {
                    cc: cc.into(),
                    streams: 1,
                    buffer: "1GB".parse().unwrap(),
                    pacing: None,
                    dscp: None,
                    mss: None,
                },
                &[],
            )
        };
        assert_eq!((lacks(&host, "hybla").len(), lacks(&host, "udt")), (2, vec![]));
        let stock = ThisHost { buffers: vec![("net.core.rmem_max", 212_992)], udp_buffer: Some(212_992), ..host };
        let [udp] = lacks(&stock, "udt").try_into().unwrap();
        assert!(udp.contains("hold only 213.0 KB") && udp.ends_with("sysctl -w net.core.rmem_max=16000000"), "{udp}");
        // What could not be read is not called lacking.
        assert_eq!(ThisHost::default().lacks_cc("hybla", &[]), None);
        assert_eq!(ThisHost::default().lacks_buffer("1GB".parse().unwrap()), None);
    }
}
