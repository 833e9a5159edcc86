//! Transports (how to send) and workloads (what to send).

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use serde::ser::SerializeStruct;
use serde::{Deserialize, Serialize, Serializer};

use crate::dscp::Dscp;
use crate::exit::{Classified, ExitClass};
use crate::units::{Rate, Size, Time, UnitError, serde_as_text};

/// Most parallel streams of a copy, and of UDT: a stream over UDT takes 12 MB at each end, and a server's process has 4 GB.
pub const MAX_STREAMS: u16 = 64;

/// Most parallel streams of a measurement over TCP or plain UDP.
pub const MAX_MEASURED_STREAMS: u16 = 256;

/// Slowest pacing rate. Below it, a packet takes longer than any timeout; the kernel takes a rate of zero for no limit.
pub const MIN_PACING: Rate = Rate(64_000);
/// Slowest pacing rate of each stream over UDT: fourteen packets of 9,000 bytes per second. UDT begins with whole packets, and at
/// a slower rate a stream would have no more than these for seconds.
pub const MIN_UDT_PACING: Rate = Rate(1_000_000);
/// Smallest buffer of a stream over UDT: 16 packets (draft-gg-udt-03, section 6.3) of up to 9,000 bytes.
pub const MIN_UDT_BUFFER: Size = Size(144_000);

/// Sizes of segments that the kernel takes, bytes (`TCP_MIN_MSS`, `MAX_TCP_WINDOW` in include/net/tcp.h).
pub const MSS_RANGE: RangeInclusive<u16> = 88..=32_767;

/// Congestion controls that Linux has. The testbed's kernels have all of them: the thirteen of the wide-area pool, and those
/// for data centres and background traffic. Real hosts may have others.
pub const LINUX_CONGESTION_CONTROLS: [&str; 17] = [
    "bbr",
    "bic",
    "cdg",
    "cubic",
    "dctcp",
    "highspeed",
    "htcp",
    "hybla",
    "illinois",
    "lp",
    "nv",
    "reno",
    "scalable",
    "vegas",
    "veno",
    "westwood",
    "yeah",
];

/// Sizes of the payload of a datagram over plain UDP, bytes: room for fullpipe's own header, and the most that UDP over IPv4
/// carries.
pub const DATAGRAM_RANGE: RangeInclusive<u16> = 16..=65_507;

/// Name of UDT in the place of a congestion control. UDT brings its own, so a transport needs no further word for it.
pub const UDT: &str = "udt";

/// Name of plain UDP in the place of a congestion control, which it lacks.
pub const UDP: &str = "udp";

/// How large the buffers of streams over UDT are without a given size.
struct UdtAuto {
    /// Largest buffers of all streams together, bytes: twice what 10 Gb/s over 366 ms hold, so that a lost packet can come again.
    most_bytes: u64,
    /// Windows of all streams together at first, bytes: 10 Gb/s over 50 ms.
    first_bytes: u64,
    /// Time for which the first windows hold what is sent at a given rate, seconds: the longest RTT.
    first_s: f64,
    /// Least of both for one stream, bytes.
    least_stream_bytes: u64,
}

const UDT_AUTO: UdtAuto =
    UdtAuto { most_bytes: 1_000_000_000, first_bytes: 64 << 20, first_s: 0.4, least_stream_bytes: 4 << 20 };

/// The protocol that carries a transport's streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Protocol {
    /// TCP, with the congestion control that the transport names.
    #[default]
    Tcp,
    /// UDT over UDP: its own congestion control or, with a pacing rate, that rate.
    Udt,
    /// Plain UDP at a given rate. It loses what the path loses, so it serves measurements only.
    Udp,
}

impl Protocol {
    /// The protocol of a transport, by the name in the place of its congestion control.
    pub fn of(cc: &str) -> Protocol {
        match cc {
            UDT => Protocol::Udt,
            UDP => Protocol::Udp,
            _ => Protocol::Tcp,
        }
    }
}

impl FromStr for Protocol {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "tcp" => Ok(Protocol::Tcp),
            UDT => Ok(Protocol::Udt),
            UDP => Ok(Protocol::Udp),
            "auto" => Err("only a copy chooses its transport by itself (fullpipe cp); choose tcp, udt or udp".into()),
            _ => Err(format!("'{text}' is no transport; choose tcp, udt or udp")),
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Protocol::Tcp => "tcp",
            Protocol::Udt => UDT,
            Protocol::Udp => UDP,
        })
    }
}

/// The reason why a transport or workload is not valid.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum TransportError {
    /// The number of streams is out of range.
    #[error("{streams} streams: give from 1 to {most}{over}", over = if *is_udt { " over UDT" } else { "" })]
    Streams {
        /// The number that was asked for.
        streams: u16,
        /// The largest number.
        most: u16,
        /// Whether another protocol allows more.
        is_udt: bool,
    },
    /// No kernel can have a congestion control of this name.
    #[error("'{0}' is not the name of a congestion control")]
    Name(String),
    /// The testbed does not have the congestion control.
    #[error("congestion control '{name}' is not in the testbed's kernel; it has {known}")]
    NotInLab {
        /// Name as the user typed it.
        name: String,
        /// The testbed's congestion controls.
        known: String,
    },
    /// The pacing rate is too slow.
    #[error("pacing at {0}: give at least {MIN_PACING}")]
    Pacing(Rate),
    /// The pacing rate is too slow for so many streams over UDT.
    #[error(
        "pacing at {rate} over UDT, which sends whole packets: give at least {MIN_UDT_PACING} for each stream, so {least} for {streams}",
        least = Rate(MIN_UDT_PACING.0 * u64::from(*streams))
    )]
    UdtPacing {
        /// The rate that was asked for, of all streams.
        rate: Rate,
        /// The number of streams.
        streams: u16,
    },
    /// UDT has a larger window anyway.
    #[error("a buffer of {0} over UDT, whose window is never less than 16 packets: give at least {MIN_UDT_BUFFER}")]
    UdtBuffer(Size),
    /// The kernel cannot set this size of segments.
    #[error("segments of {0} bytes: give from {least} to {most}", least = MSS_RANGE.start(), most = MSS_RANGE.end())]
    Mss(u16),
    /// UDT has no segments of TCP.
    #[error("the size of segments (mss) is for TCP; packets of UDT are as large as the route's MTU: leave it out")]
    MssOfUdt,
    /// Plain UDP needs a rate.
    #[error("UDP has no congestion control, so it needs a rate: give --pacing RATE, such as --pacing 100mbit")]
    UdpRate,
    /// Plain UDP cannot carry a copy.
    #[error("plain UDP loses data, so a copy cannot use it; copies go over TCP or UDT")]
    Lossy,
    /// A datagram of this size cannot be sent.
    #[error("datagrams of {0} bytes: give from {least} to {most}", least = DATAGRAM_RANGE.start(), most = DATAGRAM_RANGE.end())]
    Datagram(u16),
    /// Plain UDP has no window.
    #[error(
        "--buffer is for TCP and UDT: datagrams have no window, and UDP's socket buffers are as large as the kernel lets them be"
    )]
    BufferOfUdp,
    /// A quantity does not parse.
    #[error(transparent)]
    Unit(#[from] UnitError),
    /// The kernel cannot set a buffer of this size.
    #[error("a buffer of {0} cannot be set: give from 4KB to 1.073GB, or auto")]
    Buffer(Size),
    /// The workload moves nothing.
    #[error("a workload of {0} moves nothing: give a size of at least one byte per stream, or a duration")]
    Empty(String),
}

impl Classified for TransportError {
    fn class(&self) -> ExitClass {
        ExitClass::Usage
    }
}

/// Socket buffer (B in the papers), the same on both hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Buffer {
    /// The kernel's autotuning decides (`tcp_rmem`, `tcp_wmem`).
    Auto,
    /// This size is set by `SO_SNDBUF` and `SO_RCVBUF` before connecting. The kernel doubles it to have room for bookkeeping
    /// (`socket(7)`).
    Bytes(Size),
}

impl FromStr for Buffer {
    type Err = TransportError;
    fn from_str(text: &str) -> Result<Self, TransportError> {
        if text.eq_ignore_ascii_case("auto") {
            return Ok(Buffer::Auto);
        }
        let size: Size = text.parse()?;
        // The kernel takes at most INT_MAX / 2, and less than a page makes no sense.
        if size.0 < 4_000 || size.0 > (i32::MAX / 2) as u64 {
            return Err(TransportError::Buffer(size));
        }
        Ok(Buffer::Bytes(size))
    }
}

impl fmt::Display for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Buffer::Auto => f.write_str("auto"),
            Buffer::Bytes(size) => size.fmt(f),
        }
    }
}

serde_as_text!(Buffer);

/// How to send: congestion control (V in the papers), parallel streams (n), socket buffer (B), and an optional pacing rate.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Transport {
    /// Congestion control, under the kernel's name; [`UDT`] stands for UDT with its own.
    pub cc: String,
    /// Number of parallel streams.
    pub streams: u16,
    /// Socket buffer of each stream.
    pub buffer: Buffer,
    /// Pacing rate of all streams together; `None` for no limit.
    #[serde(default)]
    pub pacing: Option<Rate>,
    /// Class of service of every packet, from both hosts; `None` for the kernel's default.
    #[serde(default)]
    pub dscp: Option<Dscp>,
    /// Largest segment of either host over TCP (`TCP_MAXSEG`), bytes with TCP's options; over plain UDP, the payload of each
    /// datagram, bytes. `None` for what the path's MTU allows.
    #[serde(default)]
    pub mss: Option<u16>,
}

impl Serialize for Transport {
    /// Leaves out what is rare and not set, where fields have names. Where they are told by their place, none may be missing.
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let all = !s.is_human_readable();
        let (dscp, mss) = (all || self.dscp.is_some(), all || self.mss.is_some());
        let mut fields = s.serialize_struct("Transport", 4 + usize::from(dscp) + usize::from(mss))?;
        fields.serialize_field("cc", &self.cc)?;
        fields.serialize_field("streams", &self.streams)?;
        fields.serialize_field("buffer", &self.buffer)?;
        fields.serialize_field("pacing", &self.pacing)?;
        if dscp {
            fields.serialize_field("dscp", &self.dscp)?;
        }
        if mss {
            fields.serialize_field("mss", &self.mss)?;
        }
        fields.end()
    }
}

impl Transport {
    /// The protocol that carries the streams.
    pub fn protocol(&self) -> Protocol {
        Protocol::of(&self.cc)
    }

    /// Checks the values of a transport.
    ///
    /// # Errors
    /// The number of streams is out of range, the pacing rate too slow, the buffer too small for UDT, or the congestion control's name
    /// impossible.
    pub fn validate(&self) -> Result<(), TransportError> {
        let is_udt = self.protocol() == Protocol::Udt;
        self.check_streams(if is_udt { MAX_STREAMS } else { MAX_MEASURED_STREAMS }, is_udt)?;
        // TCP_CA_NAME_MAX is 16, the closing zero included (include/net/tcp.h).
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '_' | '-');
        if self.cc.is_empty() || self.cc.len() > 15 || !self.cc.chars().all(plain) {
            return Err(TransportError::Name(self.cc.clone()));
        }
        if self.protocol() == Protocol::Udp {
            return self.validate_udp();
        }
        if let (true, Buffer::Bytes(size)) = (is_udt, self.buffer)
            && size < MIN_UDT_BUFFER
        {
            return Err(TransportError::UdtBuffer(size));
        }
        match (self.pacing, self.mss) {
            (Some(rate), _) if rate < MIN_PACING => Err(TransportError::Pacing(rate)),
            (Some(rate), _) if is_udt && rate.0 < MIN_UDT_PACING.0 * u64::from(self.streams) => {
                Err(TransportError::UdtPacing { rate, streams: self.streams })
            }
            (_, Some(_)) if is_udt => Err(TransportError::MssOfUdt),
            (_, Some(mss)) if !MSS_RANGE.contains(&mss) => Err(TransportError::Mss(mss)),
            _ => Ok(()),
        }
    }

    fn check_streams(&self, most: u16, is_udt: bool) -> Result<(), TransportError> {
        let streams = self.streams;
        if (1..=most).contains(&streams) { Ok(()) } else { Err(TransportError::Streams { streams, most, is_udt }) }
    }

    /// Checks the values of a transport that is to carry a copy.
    ///
    /// # Errors
    /// As for [`Transport::validate`], with fewer streams; or it loses data.
    pub fn validate_for_copy(&self) -> Result<(), TransportError> {
        self.check_streams(MAX_STREAMS, false)?;
        self.validate()?;
        if self.protocol() == Protocol::Udp { Err(TransportError::Lossy) } else { Ok(()) }
    }

    /// Checks the values that plain UDP takes.
    fn validate_udp(&self) -> Result<(), TransportError> {
        match (self.pacing, self.mss) {
            (None, _) => Err(TransportError::UdpRate),
            (Some(rate), _) if rate < MIN_PACING => Err(TransportError::Pacing(rate)),
            (_, Some(bytes)) if !DATAGRAM_RANGE.contains(&bytes) => Err(TransportError::Datagram(bytes)),
            _ if self.buffer != Buffer::Auto => Err(TransportError::BufferOfUdp),
            _ => Ok(()),
        }
    }

    /// Checks that the testbed's kernel has the congestion control.
    ///
    /// # Errors
    /// The testbed does not have it.
    pub fn validate_for_lab(&self) -> Result<(), TransportError> {
        self.validate()?;
        if self.protocol() != Protocol::Tcp || LINUX_CONGESTION_CONTROLS.contains(&self.cc.as_str()) {
            return Ok(());
        }
        Err(TransportError::NotInLab { name: self.cc.clone(), known: LINUX_CONGESTION_CONTROLS.join(", ") })
    }

    /// Largest size of each buffer of a stream over UDT, bytes. They are in this program's memory, not in the kernel's.
    pub fn udt_buffer_bytes(&self) -> u64 {
        match self.buffer {
            Buffer::Auto => self.udt_share(UDT_AUTO.most_bytes),
            Buffer::Bytes(size) => size.0,
        }
    }

    /// Window that a receiver of a stream over UDT grants at first, bytes. Without a given size of the buffer it grows with what
    /// arrives and is read.
    pub fn udt_first_window_bytes(&self) -> u64 {
        match self.buffer {
            Buffer::Auto => {
                // Nothing but the window holds a given rate back, so it begins with what that rate fills.
                let of_rate = self.pacing.map_or(0.0, |rate| rate.0 as f64 / 8.0 * UDT_AUTO.first_s) as u64;
                self.udt_share(UDT_AUTO.first_bytes.max(of_rate).min(UDT_AUTO.most_bytes))
            }
            Buffer::Bytes(size) => size.0,
        }
    }

    /// One stream's share of so many bytes of buffers.
    fn udt_share(&self, bytes: u64) -> u64 {
        (bytes / u64::from(self.streams.max(1))).max(UDT_AUTO.least_stream_bytes)
    }

    /// The flag of `fullpipe measure` that chooses the protocol and congestion control: `--cc cubic`, or `--transport udt`.
    pub fn flag(&self) -> String {
        match self.protocol() {
            Protocol::Tcp => format!("--cc {}", self.cc),
            protocol @ (Protocol::Udt | Protocol::Udp) => format!("--transport {protocol}"),
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_udp = self.protocol() == Protocol::Udp;
        write!(f, "{} × {}", self.cc, self.streams)?;
        if !is_udp {
            write!(f, ", buffer {}", self.buffer)?;
        }
        self.pacing.map_or(Ok(()), |rate| write!(f, ", paced at {rate}"))?;
        self.dscp.map_or(Ok(()), |dscp| write!(f, ", DSCP {dscp}"))?;
        match self.mss {
            Some(bytes) if is_udp => write!(f, ", datagrams of {bytes} bytes"),
            Some(mss) => write!(f, ", MSS {mss}"),
            None => Ok(()),
        }
    }
}

/// What to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Workload {
    /// This many bytes over all streams together, shared equally.
    Size(Size),
    /// As many bytes as arrive in this time, counted from the first byte's arrival, or until the user ends the run ([`UNLIMITED`]).
    Duration(#[serde(serialize_with = "write_duration", deserialize_with = "read_duration")] Time),
}

/// The duration of a run that only its user ends.
pub const UNLIMITED: Time = Time(u64::MAX);

/// The text of [`UNLIMITED`].
const UNLIMITED_TEXT: &str = "unlimited";

/// Reads a duration, or `unlimited`.
///
/// # Errors
/// The text is neither.
pub fn duration(text: &str) -> Result<Time, UnitError> {
    if text == UNLIMITED_TEXT { Ok(UNLIMITED) } else { text.parse() }
}

fn write_duration<S: Serializer>(time: &Time, s: S) -> Result<S::Ok, S::Error> {
    if *time == UNLIMITED { s.serialize_str(UNLIMITED_TEXT) } else { time.serialize(s) }
}

fn read_duration<'de, D: serde::Deserializer<'de>>(d: D) -> Result<Time, D::Error> {
    let text = String::deserialize(d)?;
    duration(&text).map_err(serde::de::Error::custom)
}

impl Workload {
    /// Checks that the workload moves something.
    ///
    /// # Errors
    /// The size is less than one byte per stream, or the time is zero.
    pub fn validate(&self, streams: u16) -> Result<(), TransportError> {
        match self {
            Workload::Size(size) if size.0 < u64::from(streams) => Err(TransportError::Empty(size.to_string())),
            Workload::Duration(time) if time.0 == 0 => Err(TransportError::Empty(time.to_string())),
            _ => Ok(()),
        }
    }

    /// Returns the bytes that stream `i` of `n` carries; `None` for a duration.
    pub fn share(&self, i: u16, n: u16) -> Option<u64> {
        let Workload::Size(Size(total)) = self else { return None };
        let n = u64::from(n);
        Some(total / n + u64::from(u64::from(i) < total % n))
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Workload::Size(size) => size.fmt(f),
            Workload::Duration(UNLIMITED) => f.write_str(UNLIMITED_TEXT),
            Workload::Duration(time) => time.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up() {
        let work = Workload::Size(Size(1_000_000_007));
        assert_eq!((0..10).filter_map(|i| work.share(i, 10)).sum::<u64>(), 1_000_000_007);
    }

    #[test]
    fn a_duration_may_be_unlimited() {
        for (text, written) in [("unlimited", "unlimited"), ("10s", "10s")] {
            let work = Workload::Duration(duration(text).unwrap());
            let json = serde_json::json!({ "duration": written });
            assert_eq!((work.to_string(), serde_json::to_value(work).unwrap()), (written.to_owned(), json.clone()));
            assert_eq!(serde_json::from_value::<Workload>(json).unwrap(), work);
        }
        assert!(duration("forever").is_err());
    }

    #[test]
    fn streams_over_udt_share_the_buffer_that_nobody_chose() {
        let bytes = |streams, buffer, pacing| {
            let udt = Transport { cc: UDT.into(), streams, buffer, pacing, dscp: None, mss: None };
            (udt.udt_buffer_bytes() >> 20, udt.udt_first_window_bytes() >> 20)
        };
        let auto = |streams| bytes(streams, Buffer::Auto, None);
        assert_eq!([1, 2, 16, 64].map(auto), [(953, 64), (476, 32), (59, 4), (14, 4)]);
        assert_eq!(bytes(64, Buffer::Bytes(Size(1 << 30)), None), (1024, 1024));
        // A given rate begins with what it sends in 0.4 s, within the same bounds.
        let paced = |bps, streams| bytes(streams, Buffer::Auto, Some(Rate(bps)));
        assert_eq!(paced(10_000_000_000, 1), (953, 476));
        assert_eq!(paced(10_000_000_000, 4), (238, 119));
        assert_eq!((paced(1_000_000_000, 1), paced(100_000_000_000, 1)), ((953, 64), (953, 953)));
    }

    #[test]
    fn limits() {
        let mut t =
            Transport { cc: "cubic".into(), streams: 1, buffer: Buffer::Auto, pacing: None, dscp: None, mss: None };
        assert!(t.validate_for_lab().is_ok());
        for (cc, streams, valid, for_copy) in [
            ("cubic", 0, false, false),
            ("cubic", 64, true, true),
            ("cubic", 65, true, false),
            ("cubic", 256, true, false),
            ("cubic", 257, false, false),
            (UDT, 64, true, true),
            (UDT, 65, false, false),
        ] {
            let t = Transport { cc: cc.into(), streams, ..t.clone() };
            assert_eq!((t.validate().is_ok(), t.validate_for_copy().is_ok()), (valid, for_copy), "{t}");
        }
        t.streams = 65;
        assert_eq!(t.validate_for_copy().unwrap_err().to_string(), "65 streams: give from 1 to 64");
        t.streams = 1;
        t.cc = "cubicc".into();
        assert!(t.validate().is_ok());
        assert!(t.validate_for_lab().unwrap_err().to_string().contains("scalable"));
        t.cc = UDT.into();
        assert!(t.validate_for_lab().is_ok() && t.protocol() == Protocol::Udt);
        assert_eq!(t.protocol().to_string().parse(), Ok(Protocol::Udt));
        for (mss, valid) in [(87, false), (88, true), (32_767, true), (32_768, false)] {
            let t = Transport { cc: "cubic".into(), mss: Some(mss), ..t.clone() };
            assert_eq!(t.validate().is_ok(), valid, "{mss}");
        }
        assert_eq!(Transport { mss: Some(1_000), ..t.clone() }.validate(), Err(TransportError::MssOfUdt));
        let udp = Transport { cc: UDP.into(), pacing: Some(Rate(1_000_000)), ..t.clone() };
        assert!(udp.validate_for_lab().is_ok() && udp.protocol() == Protocol::Udp);
        assert_eq!(udp.validate_for_copy(), Err(TransportError::Lossy));
        assert_eq!(Transport { pacing: None, ..udp.clone() }.validate(), Err(TransportError::UdpRate));
        for (bytes, valid) in [(15, false), (16, true), (65_507, true), (65_508, false)] {
            assert_eq!(Transport { mss: Some(bytes), ..udp.clone() }.validate().is_ok(), valid, "{bytes}");
        }
        let slow = Transport { streams: 8, pacing: Some(Rate(7_999_999)), mss: None, ..t.clone() };
        let told = slow.validate().unwrap_err().to_string();
        assert!(told.ends_with("give at least 1mbit for each stream, so 8mbit for 8"), "{told}");
        assert!(Transport { pacing: Some(Rate(8_000_000)), ..slow }.validate().is_ok());
        let sized = Transport { mss: Some(1_200), ..udp.clone() };
        assert_eq!(sized.to_string(), "udp × 1, paced at 1mbit, datagrams of 1200 bytes");
        assert_eq!(Transport { buffer: "1MB".parse().unwrap(), ..udp }.validate(), Err(TransportError::BufferOfUdp));
        t.cc = "../x".into();
        assert!(t.validate().is_err());
        assert!("2GB".parse::<Buffer>().is_err());
        assert!("1GB".parse::<Buffer>().is_ok());
        assert!(Workload::Size(Size(3)).validate(4).is_err());
    }
}
