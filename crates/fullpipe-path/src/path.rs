//! What lies between two hosts: a real one, or one emulated by the testbed.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::cross::Cross;
use crate::host::Host;
use crate::lab_disk::LabDisk;
use crate::lab_host::LabHost;
use crate::lab_mount::LabMount;
use crate::path_error::PathError;
use crate::transport::{Protocol, Transport};
use crate::units::{Probability, Rate, Size, Time};

/// Length of an Ethernet header, bytes. Linux's queues count it as part of a packet.
pub const ETHERNET_HEADER: u64 = 14;
/// Largest queue, bytes: the kernel's tbf counts in 32 bits (`struct tc_tbf_qopt`, include/uapi/linux/pkt_sched.h).
const MAX_QUEUE: u64 = u32::MAX as u64;

/// Length of an IPv4 header without options, bytes.
const IPV4_HEADER: u64 = 20;

/// A path between two hosts.
#[derive(Debug, Clone, PartialEq)]
pub enum Path {
    /// A real host that runs `fullpipe serve`.
    Host(Host),
    /// A connection emulated in the testbed.
    Lab(Box<LabPath>),
}

impl FromStr for Path {
    type Err = PathError;
    fn from_str(text: &str) -> Result<Self, PathError> {
        match text.strip_prefix("lab:") {
            Some(rest) => rest.parse().map(|lab| Path::Lab(Box::new(lab))),
            None if text.contains('=') => Err(PathError::Unmarked(text.to_owned())),
            None => text.parse().map(Path::Host),
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Path::Host(host) => host.fmt(f),
            Path::Lab(lab) => lab.fmt(f),
        }
    }
}

impl Serialize for Path {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Path::Host(host) => s.collect_str(host),
            Path::Lab(lab) => lab.serialize(s),
        }
    }
}

impl<'de> Deserialize<'de> for Path {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either {
            Text(String),
            Table(serde_json::Value),
        }
        match Either::deserialize(d)? {
            Either::Text(text) => text.parse().map_err(serde::de::Error::custom),
            Either::Table(value) => {
                LabPath::deserialize(value).map(|lab| Path::Lab(Box::new(lab))).map_err(serde::de::Error::custom)
            }
        }
    }
}

/// A kind of physical connection: its rate, and what its framing adds to each packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Modality {
    /// 10 Gigabit Ethernet: 10 Gb/s, and 24 bytes a frame besides its header (preamble and start
    /// delimiter 8, checksum 4, gap 12; IEEE 802.3).
    #[serde(rename = "10gige")]
    TenGigE,
    /// SONET OC-192 as in HPDC'17 section 2: 9.6 Gb/s, Ethernet frames in generic framing
    /// (header 8, Ethernet checksum 4; ITU-T G.7041).
    Oc192,
}

impl Modality {
    /// Line rate, bit/s.
    pub fn rate(self) -> Rate {
        match self {
            Modality::TenGigE => Rate(10_000_000_000),
            Modality::Oc192 => Rate(9_600_000_000),
        }
    }
    /// Bytes on the line for each packet beyond the Ethernet header and the payload.
    pub fn overhead(self) -> u64 {
        match self {
            Modality::TenGigE => 24,
            Modality::Oc192 => 12,
        }
    }
    fn name(self) -> &'static str {
        match self {
            Modality::TenGigE => "10gige",
            Modality::Oc192 => "oc192",
        }
    }
    /// Returns the modality of this name, if there is one.
    pub fn named(name: &str) -> Option<Modality> {
        [Modality::TenGigE, Modality::Oc192].into_iter().find(|modality| modality.name() == name)
    }
}

/// A dedicated connection that the testbed emulates.
///
/// Its text is `rtt=45.6ms,rate=10gbit,queue=16MB`; a TOML table has the same keys. Keys that are not given get defaults. Text
/// and records leave out impairments that are zero.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LabPath {
    /// Round-trip time of an empty path, half in each direction.
    pub rtt: Time,
    /// Rate of the bottleneck, the same in both directions.
    pub rate: Rate,
    /// Bytes that the bottleneck's drop-tail queue holds, in each direction. One BDP by default.
    pub queue: Size,
    /// Largest IP packet.
    pub mtu: u32,
    /// Probability that a packet of the forward direction is lost, each on its own, after the
    /// bottleneck.
    #[serde(skip_serializing_if = "Probability::is_zero")]
    pub loss: Probability,
    /// Probability that a packet of the direction back is lost.
    #[serde(skip_serializing_if = "Probability::is_zero")]
    pub loss_back: Probability,
    /// Largest deviation of the forward delay from its mean. It varies uniformly, and packets keep their order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter: Option<Time>,
    /// Probability that a forward packet overtakes those of the last millisecond.
    #[serde(skip_serializing_if = "Probability::is_zero")]
    pub reorder: Probability,
    /// Probability that a forward packet arrives twice.
    #[serde(skip_serializing_if = "Probability::is_zero")]
    pub duplicate: Probability,
    /// Probability that one bit of a forward packet's headers is flipped.
    #[serde(skip_serializing_if = "Probability::is_zero")]
    pub corrupt: Probability,
    /// Physical layer. It sets the framing overhead, and the rate if none is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modality: Option<Modality>,
    /// Version of the guest's kernel, `6.12` or `6.1`; the newest built by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// Cross traffic in the forward direction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cross: Option<Cross>,
    /// Mean length of the pauses of each host, which come once a second on average; no pauses by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_noise: Option<Time>,
    /// The host at end a.
    #[serde(skip_serializing_if = "LabHost::is_default")]
    pub host_a: LabHost,
    /// The host at end b.
    #[serde(skip_serializing_if = "LabHost::is_default")]
    pub host_b: LabHost,
    /// The disk at end a, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_a: Option<LabDisk>,
    /// The disk at end b, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_b: Option<LabDisk>,
    /// The file system of end b that end a mounts over the path, if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mount: Option<LabMount>,
}

/// The keys of a path as read from text or a table.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    rtt: Option<Time>,
    rate: Option<Rate>,
    queue: Option<Size>,
    mtu: Option<u32>,
    loss: Option<Probability>,
    loss_back: Option<Probability>,
    jitter: Option<Time>,
    reorder: Option<Probability>,
    duplicate: Option<Probability>,
    corrupt: Option<Probability>,
    modality: Option<Modality>,
    kernel: Option<String>,
    #[serde(default, deserialize_with = "read_cross")]
    cross: Option<Cross>,
    host_noise: Option<Time>,
    /// The host at both ends, where no key of an end says otherwise.
    host: Option<LabHost>,
    host_a: Option<LabHost>,
    host_b: Option<LabHost>,
    /// The disk at both ends, where no key of an end says otherwise.
    disk: Option<LabDisk>,
    disk_a: Option<LabDisk>,
    disk_b: Option<LabDisk>,
    mount: Option<LabMount>,
}

/// Reads cross traffic from a table.
fn read_cross<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Cross>, D::Error> {
    let text: Option<String> = Deserialize::deserialize(from)?;
    text.map_or(Ok(None), |text| cross_or_none(&text).map_err(serde::de::Error::custom))
}

fn cross_or_none(text: &str) -> Result<Option<Cross>, PathError> {
    if text == "none" { Ok(None) } else { text.parse().map(Some) }
}

/// The keys of a path, as errors list them.
pub const KEYS: &str = "rtt, rate, queue, mtu, loss, loss_back, jitter, reorder, duplicate, corrupt, modality, \
                        kernel, cross, host_noise, host, host_a, host_b, disk, disk_a, disk_b, mount";

impl LabPath {
    /// Makes a path without impairments: a drop-tail queue of one BDP, packets of 9000 bytes.
    ///
    /// # Errors
    /// A value is impossible, for example a rate of zero.
    pub fn new(rtt: Time, rate: Rate) -> Result<Self, PathError> {
        LabPath::try_from(Keys { rtt: Some(rtt), rate: Some(rate), ..Keys::default() })
    }

    /// Reads the same keys from a TOML table.
    ///
    /// # Errors
    /// A key is unknown, or a value does not parse or is impossible.
    pub fn from_toml(text: &str) -> Result<Self, PathError> {
        toml::from_str::<Keys>(text).map_err(|e| PathError::Table(e.to_string()))?.try_into()
    }

    /// Returns the bandwidth-delay product, bytes.
    pub fn bdp(&self) -> u64 {
        bdp(self.rate, self.rtt)
    }

    /// Returns the bytes that a packet of `ip_bytes` takes on the line.
    pub fn line_bytes(&self, ip_bytes: u64) -> u64 {
        line_bytes(ip_bytes, self.modality)
    }

    /// Whether an end has a disk.
    pub fn has_disk(&self) -> bool {
        self.disk_a.is_some() || self.disk_b.is_some()
    }

    /// Returns the keys that this path has besides its rate, RTT, queue, packet size, forward loss, framing and mount: impairments,
    /// other traffic, hosts, the kernel and disks.
    pub fn further_keys(&self) -> Vec<&'static str> {
        let keys = [
            ("loss_back", !self.loss_back.is_zero()),
            ("jitter", self.jitter.is_some()),
            ("reorder", !self.reorder.is_zero()),
            ("duplicate", !self.duplicate.is_zero()),
            ("corrupt", !self.corrupt.is_zero()),
            ("kernel", self.kernel.is_some()),
            ("cross", self.cross.is_some()),
            ("host_noise", self.host_noise.is_some()),
            ("host_a", !self.host_a.is_default()),
            ("host_b", !self.host_b.is_default()),
            ("disk_a", self.disk_a.is_some()),
            ("disk_b", self.disk_b.is_some()),
        ];
        keys.into_iter().filter_map(|(key, has)| has.then_some(key)).collect()
    }

    /// Returns the largest rate of payload that a transport can carry, bit/s, as [`payload_rate`] does.
    pub fn capacity(&self, transport: &Transport) -> f64 {
        payload_rate(self.rate.0 as f64, self.mtu, self.modality, transport)
    }

    /// Returns this path if there can be one like it.
    pub(crate) fn checked(self) -> Result<Self, PathError> {
        let value = |key, why: String| Err(PathError::Value { key, why });
        let LabPath { rtt, rate, queue, mtu, .. } = self;
        if rtt.0 > 5_000_000_000 {
            return value("rtt", format!("{rtt} is over 5s, beyond any path on Earth or the Moon"));
        }
        if rate.0 < 8_000 || rate.0 > 1_000_000_000_000 {
            return value("rate", format!("{rate} is outside 8kbit to 1tbit"));
        }
        if mtu != 1500 && mtu != 9000 {
            return value("mtu", format!("{mtu} is neither 1500 nor 9000"));
        }
        let packet = u64::from(mtu) + ETHERNET_HEADER;
        if queue.0 < packet {
            return value(
                "queue",
                format!("{queue} is smaller than one packet ({packet} B with mtu={mtu}); give at least {packet}B"),
            );
        }
        if queue.0 > MAX_QUEUE {
            return value("queue", format!("{queue} is over the {} that the kernel's tbf can count", Size(MAX_QUEUE)));
        }
        if let Some(jitter) = self.jitter
            && jitter.0 * 2 > rtt.0
        {
            return value("jitter", format!("{jitter} is over half the RTT ({rtt})"));
        }
        if let Some(Cross::Udp(cross)) = self.cross {
            // At less, fq spaces packets by a second all the same (net/sched/sch_fq.c).
            let least = Rate(8 * packet);
            if cross < least || cross.0 > 4 * rate.0 {
                return value("cross", format!("udp:{cross} is outside {least} to four times the rate ({rate})"));
            }
        }
        if let Some(kernel) = &self.kernel
            && (kernel.is_empty() || !kernel.chars().all(|c| c.is_ascii_alphanumeric() || ".-_".contains(c)))
        {
            return value("kernel", format!("'{kernel}' is not a version; write for example kernel=6.12"));
        }
        Ok(self)
    }

    /// Whether the path has impairments in the forward direction.
    pub fn impaired_forward(&self) -> bool {
        !(self.loss.is_zero() && self.reorder.is_zero() && self.duplicate.is_zero() && self.corrupt.is_zero())
            || self.jitter.is_some()
    }

    /// Whether the path has impairments in any direction.
    pub fn impaired(&self) -> bool {
        self.impaired_forward() || !self.loss_back.is_zero()
    }
}

/// Returns the bytes that a packet of `ip_bytes` takes on a line.
fn line_bytes(ip_bytes: u64, modality: Option<Modality>) -> u64 {
    ip_bytes + ETHERNET_HEADER + modality.map_or(0, Modality::overhead)
}

/// Returns the largest rate of payload that a transport can carry over a line of `rate_bps`, bit/s. Packets are as large as the
/// MTU or the transport's `mss` lets them be, and have 20 bytes of IPv4 header. TCP adds 20 bytes of header and 12 of timestamps
/// (RFC 7323); UDP adds 8 bytes of header, and UDT 16 more.
pub fn payload_rate(rate_bps: f64, mtu: u32, modality: Option<Modality>, transport: &Transport) -> f64 {
    let most = u64::from(mtu).saturating_sub(IPV4_HEADER);
    let mss = transport.mss.map_or(most, u64::from);
    // Bytes after IPv4's header, and how many of them are no payload.
    let (bytes, headers) = match transport.protocol() {
        Protocol::Tcp => (most.min(mss + 20), 32),
        Protocol::Udt => (most, 24),
        Protocol::Udp => (most.min(mss + 8), 8),
    };
    rate_bps * bytes.saturating_sub(headers) as f64 / line_bytes(IPV4_HEADER + bytes, modality) as f64
}

fn bdp(rate: Rate, rtt: Time) -> u64 {
    (u128::from(rate.0) * u128::from(rtt.0) / 8_000_000_000) as u64
}

impl TryFrom<Keys> for LabPath {
    type Error = PathError;
    fn try_from(keys: Keys) -> Result<Self, PathError> {
        let missing = |key, why: &str| PathError::Value { key, why: format!("is missing; {why}") };
        let rtt = keys.rtt.ok_or_else(|| missing("rtt", "write for example lab:rtt=45.6ms,rate=10gbit"))?;
        let rate = keys.rate.or(keys.modality.map(Modality::rate));
        let rate = rate.ok_or_else(|| missing("rate", "write rate=10gbit or modality=10gige"))?;
        let mtu = keys.mtu.unwrap_or(9000);
        let path = LabPath {
            rtt,
            rate,
            // On very short paths one BDP is less than a packet; a queue must hold at least one. On long fast ones it is more than
            // a queue can hold.
            queue: keys
                .queue
                .unwrap_or_else(|| Size(bdp(rate, rtt).clamp(u64::from(mtu) + ETHERNET_HEADER, MAX_QUEUE))),
            mtu,
            loss: keys.loss.unwrap_or_default(),
            loss_back: keys.loss_back.unwrap_or_default(),
            jitter: keys.jitter.filter(|j| j.0 > 0),
            reorder: keys.reorder.unwrap_or_default(),
            duplicate: keys.duplicate.unwrap_or_default(),
            corrupt: keys.corrupt.unwrap_or_default(),
            modality: keys.modality,
            kernel: keys.kernel,
            cross: keys.cross,
            host_noise: keys.host_noise.filter(|n| n.0 > 0),
            host_a: keys.host_a.or_else(|| keys.host.clone()).unwrap_or_default(),
            host_b: keys.host_b.or(keys.host).unwrap_or_default(),
            disk_a: keys.disk_a.or_else(|| keys.disk.clone()),
            disk_b: keys.disk_b.or(keys.disk),
            mount: keys.mount,
        };
        path.checked()
    }
}

impl<'de> Deserialize<'de> for LabPath {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Keys::deserialize(d)?.try_into().map_err(serde::de::Error::custom)
    }
}

impl FromStr for LabPath {
    type Err = PathError;
    fn from_str(text: &str) -> Result<Self, PathError> {
        let mut keys = Keys::default();
        let mut seen: Vec<&str> = Vec::new();
        for part in text.split(',').filter(|p| !p.trim().is_empty()) {
            let pair = || PathError::Pair { part: part.trim().to_owned() };
            let (key, value) = part.split_once('=').ok_or_else(pair)?;
            let (key, value) = (key.trim(), value.trim());
            if seen.contains(&key) {
                return Err(PathError::Twice { key: key.to_owned() });
            }
            seen.push(key);
            let unit = |source| PathError::Unit { key: key.to_owned(), source };
            match key {
                "rtt" => keys.rtt = Some(value.parse().map_err(unit)?),
                "rate" => keys.rate = Some(value.parse().map_err(unit)?),
                "queue" => keys.queue = Some(value.parse().map_err(unit)?),
                "mtu" => {
                    keys.mtu = Some(value.parse().map_err(|_| PathError::Value {
                        key: "mtu",
                        why: format!("'{value}' is neither 1500 nor 9000"),
                    })?);
                }
                "loss" => keys.loss = Some(value.parse().map_err(unit)?),
                "loss_back" => keys.loss_back = Some(value.parse().map_err(unit)?),
                "jitter" => keys.jitter = Some(value.parse().map_err(unit)?),
                "reorder" => keys.reorder = Some(value.parse().map_err(unit)?),
                "duplicate" => keys.duplicate = Some(value.parse().map_err(unit)?),
                "corrupt" => keys.corrupt = Some(value.parse().map_err(unit)?),
                "modality" => {
                    keys.modality = Some(match value {
                        "10gige" => Modality::TenGigE,
                        "oc192" => Modality::Oc192,
                        _ => {
                            return Err(PathError::Value {
                                key: "modality",
                                why: format!("'{value}' is neither 10gige nor oc192"),
                            });
                        }
                    });
                }
                "kernel" => keys.kernel = Some(value.to_owned()),
                "cross" => keys.cross = cross_or_none(value)?,
                "host_noise" => keys.host_noise = Some(value.parse().map_err(unit)?),
                "host" => keys.host = Some(value.parse()?),
                "host_a" => keys.host_a = Some(value.parse()?),
                "host_b" => keys.host_b = Some(value.parse()?),
                "disk" => keys.disk = Some(value.parse()?),
                "disk_a" => keys.disk_a = Some(value.parse()?),
                "disk_b" => keys.disk_b = Some(value.parse()?),
                "mount" => keys.mount = Some(value.parse()?),
                _ => {
                    return Err(PathError::Key { key: key.to_owned(), known: KEYS });
                }
            }
        }
        keys.try_into()
    }
}

impl fmt::Display for LabPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lab:rtt={},rate={},queue={},mtu={}", self.rtt, self.rate, self.queue, self.mtu)?;
        for (key, p) in [
            ("loss", self.loss),
            ("loss_back", self.loss_back),
            ("reorder", self.reorder),
            ("duplicate", self.duplicate),
            ("corrupt", self.corrupt),
        ] {
            if !p.is_zero() {
                write!(f, ",{key}={p}")?;
            }
        }
        if let Some(jitter) = self.jitter {
            write!(f, ",jitter={jitter}")?;
        }
        if let Some(modality) = self.modality {
            write!(f, ",modality={}", modality.name())?;
        }
        if let Some(kernel) = &self.kernel {
            write!(f, ",kernel={kernel}")?;
        }
        if let Some(cross) = self.cross {
            write!(f, ",cross={cross}")?;
        }
        if let Some(noise) = self.host_noise {
            write!(f, ",host_noise={noise}")?;
        }
        match (&self.host_a, &self.host_b) {
            (a, b) if a == b && a.is_default() => {}
            (a, b) if a == b => write!(f, ",host={a}")?,
            (a, b) => write!(f, ",host_a={a},host_b={b}")?,
        }
        match (&self.disk_a, &self.disk_b) {
            (Some(a), Some(b)) if a == b => write!(f, ",disk={a}")?,
            (a, b) => {
                for (key, disk) in [("disk_a", a), ("disk_b", b)] {
                    if let Some(disk) = disk {
                        write!(f, ",{key}={disk}")?;
                    }
                }
            }
        }
        if let Some(mount) = &self.mount {
            write!(f, ",mount={mount}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::Buffer;

    fn lab(text: &str) -> Result<LabPath, PathError> {
        match text.parse()? {
            Path::Lab(lab) => Ok(*lab),
            Path::Host(_) => panic!("{text} is a host"),
        }
    }

    #[test]
    fn defaults() {
        let path = lab("lab:rtt=45.6ms,rate=10gbit").unwrap();
        assert_eq!(path.queue, Size(57_000_000));
        assert_eq!(path.mtu, 9000);
        let long = lab("lab:rtt=366ms,rate=100gbit").unwrap();
        assert_eq!(long.queue, Size(u64::from(u32::MAX)));
        assert_eq!(lab(&long.to_string()).unwrap(), long);
        assert_eq!(lab("lab:rtt=1ms,modality=oc192").unwrap().rate, Rate(9_600_000_000));
    }

    #[test]
    fn small_packets_carry_less() {
        let path = lab("lab:rtt=10ms,rate=1gbit,mtu=1500").unwrap();
        for (cc, mss, payload, line) in [
            ("cubic", None, 1_448.0, 1_514.0),
            ("cubic", Some(536), 524.0, 590.0),
            ("cubic", Some(9_000), 1_448.0, 1_514.0),
            ("udt", None, 1_456.0, 1_514.0),
            ("udp", None, 1_472.0, 1_514.0),
            ("udp", Some(100), 100.0, 142.0),
        ] {
            let transport =
                Transport { cc: cc.into(), streams: 1, buffer: Buffer::Auto, pacing: None, dscp: None, mss };
            let expected: f64 = 1e9 * payload / line;
            assert!((path.capacity(&transport) - expected).abs() < 1.0, "{cc} {mss:?}");
        }
    }

    #[test]
    fn text_table_and_json_agree() {
        let text = "lab:rtt=183ms,rate=10gbit,queue=64MB,mtu=1500,loss=1e-5,jitter=1ms,cross=tcp:4x64KB,host_a=stock,host_b=tuned+user:user,disk_b=1GB/s+depth:1,mount=nfs+nconnect:4";
        let path = lab(text).unwrap();
        assert_eq!(lab(&path.to_string()).unwrap(), path);
        let json = serde_json::to_string(&path).unwrap();
        assert_eq!(serde_json::from_str::<LabPath>(&json).unwrap(), path);
        let table = "rtt='183ms'\nrate='10gbit'\nqueue='64MB'\nmtu=1500\nloss=1e-5\njitter='1ms'\ncross='tcp:4x64KB'\n\
                     host_b={user='user'}\nhost='stock'\ndisk_b='1GB/s+depth:1'\nmount='nfs+nconnect:4'";
        assert_eq!(LabPath::from_toml(table).unwrap(), path);
        let without = LabPath::from_toml(&table.replace("tcp:4x64KB", "none")).unwrap();
        assert_eq!(without, LabPath { cross: None, ..path });
    }

    #[test]
    fn bad_paths_name_the_thing() {
        let says = |text: &str, part: &str| {
            let error = lab(text).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        };
        says("lab:rtt=45.6ms", "rate: is missing");
        says("lab:rate=10gbit", "rtt: is missing");
        says("lab:rtt=45.6,rate=10gbit", "its unit is missing");
        says("rtt=45.6ms,rate=10gbit", "did you mean lab:rtt=45.6ms,rate=10gbit?");
        says("lab:rtt=1ms,rate=10gbit,queue=8KB", "smaller than one packet");
        says("lab:rtt=1ms,rate=10gbit,speed=3", "unknown key 'speed'");
        says("lab:rtt=1ms,rate=0bit", "outside");
        says("lab:rtt", "KEY=VALUE");
        says("lab:rtt=1ms,rate=1gbit,loss=2", "out of range");
        says("lab:rtt=1ms,rate=1gbit,cross=quic:1", "cross traffic");
        says("lab:rtt=1ms,rate=1gbit,cross=udp:0bit", "outside 72.112kbit to four times the rate (1gbit)");
        says("lab:rtt=1ms,rate=1gbit,cross=udp:5gbit", "outside");
        says("lab:rtt=1ms,rate=1gbit,mtu=1400", "neither 1500 nor 9000");
    }
}
