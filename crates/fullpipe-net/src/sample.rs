//! Samples a run's streams: what their transport tells, at fixed times.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fullpipe_path::record::lines::SampleFields;
use fullpipe_path::record::udp::UdpCounts;
pub use fullpipe_udt::Snapshot;
use fullpipe_udt::{Counters, PerfMon};
use serde::Serialize;

use crate::error::NetError;
use crate::side::Side;
use crate::sys;
use crate::tcp_info::TcpInfo;
use crate::traffic::Traffic;

/// Most samples of one side of a run. They stay in memory until the run is over, about half a kilobyte each.
pub(crate) const MAX_SAMPLES: u64 = 2_000_000;
/// Bit of a packed length that marks UDT's statistics.
const UDT_BIT: u16 = 1 << 15;
/// Bit of a packed length that marks the counts of plain UDP.
const UDP_BIT: u16 = 1 << 14;

/// The state of one stream at one time.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Time on the run's clock, ns.
    pub t_ns: u64,
    /// The side that took the sample.
    pub end: Side,
    /// Number of the stream, from 0.
    pub stream: u16,
    /// Bytes that the receiving application has read, or that were acknowledged to the sender.
    pub bytes: u64,
    /// The kernel's view; empty for a transport other than TCP.
    pub info: TcpInfo,
    /// UDT's view since the stream's last sample; `None` for another transport.
    pub udt: Option<PerfMon>,
    /// The counts of plain UDP since the run's start; `None` for another transport.
    pub udp: Option<UdpCounts>,
}

/// The fields of a sample that its transport gives, under the transport's own names.
#[derive(Serialize)]
pub struct TransportFields<'a> {
    #[serde(flatten)]
    tcp: &'a TcpInfo,
    #[serde(flatten)]
    udt: Option<&'a PerfMon>,
    #[serde(flatten)]
    udp: Option<&'a UdpCounts>,
}

impl Sample {
    /// Appends the packed form: time, bytes, stream, side, length of TCP_INFO, TCP_INFO; numbers in
    /// little endian. A length with one of its two highest bits set is that of UDT's statistics, or of the counts of plain UDP,
    /// as JSON, in the place of TCP_INFO.
    pub fn pack(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.t_ns.to_le_bytes());
        to.extend_from_slice(&self.bytes.to_le_bytes());
        to.extend_from_slice(&self.stream.to_le_bytes());
        to.push(u8::from(self.end == Side::Receiver));
        // A few hundred bytes of numbers, which cannot fail to be written.
        let udt = self.udt.as_ref().and_then(|udt| Some((serde_json::to_vec(udt).ok()?, UDT_BIT)));
        let other = udt.or_else(|| self.udp.as_ref().and_then(|udp| Some((serde_json::to_vec(udp).ok()?, UDP_BIT))));
        let (bytes, mark) = other.as_ref().map_or((self.info.bytes(), 0), |(json, mark)| (&json[..], *mark));
        to.extend_from_slice(&(bytes.len() as u16 | mark).to_le_bytes());
        to.extend_from_slice(bytes);
    }

    /// The sample without its time, for a record's line.
    pub fn fields(&self) -> SampleFields<TransportFields<'_>> {
        let end = match self.end {
            Side::Sender => "sender",
            Side::Receiver => "receiver",
        };
        SampleFields {
            end,
            stream: self.stream,
            bytes: self.bytes,
            transport: TransportFields { tcp: &self.info, udt: self.udt.as_ref(), udp: self.udp.as_ref() },
        }
    }

    /// Reads the packed form and advances `from`; returns `None` if it is damaged.
    pub fn unpack(from: &mut &[u8]) -> Option<Sample> {
        fn take<const N: usize>(from: &mut &[u8]) -> Option<[u8; N]> {
            let (head, rest) = from.split_first_chunk()?;
            *from = rest;
            Some(*head)
        }
        let t_ns = u64::from_le_bytes(take(from)?);
        let bytes = u64::from_le_bytes(take(from)?);
        let stream = u16::from_le_bytes(take(from)?);
        let end = if take::<1>(from)? == [0] { Side::Sender } else { Side::Receiver };
        let len = u16::from_le_bytes(take(from)?);
        let (content, rest) = from.split_at_checked(usize::from(len & !(UDT_BIT | UDP_BIT)))?;
        *from = rest;
        let (mut info, mut udt, mut udp) = (&[][..], None, None);
        match len & (UDT_BIT | UDP_BIT) {
            0 => info = content,
            UDT_BIT => udt = Some(serde_json::from_slice(content).ok()?),
            UDP_BIT => udp = Some(serde_json::from_slice(content).ok()?),
            _ => return None,
        }
        Some(Sample { t_ns, end, stream, bytes, info: TcpInfo::from_bytes(info), udt, udp })
    }
}

/// What UDT counted on a stream between two samples. Without an earlier one, all counts, and the interval begins at `zero_ns`.
pub fn udt_between(before: Option<Snapshot>, now: Snapshot, zero_ns: u64) -> PerfMon {
    let opened = Snapshot { at_ns: zero_ns.min(now.at_ns), counters: Counters::default(), ..now };
    PerfMon::between(&before.unwrap_or(opened), &now)
}

/// Collects the samples of one side during a run.
pub(crate) struct Sampler {
    end: Side,
    zero_ns: u64,
    interval_ns: u64,
    /// The samples so far. The lock is held only to append to them.
    samples: Mutex<Vec<Sample>>,
    /// UDT's view of each stream at its last sample. The lock is held only to exchange one.
    udt: Mutex<Vec<Option<Snapshot>>>,
    /// Bytes of all streams at the last sample. A total that does not grow is a stall.
    pub(crate) total: AtomicU64,
    /// Whether there was no room for further samples.
    is_full: AtomicBool,
}

impl Sampler {
    pub(crate) fn new(end: Side, zero_ns: u64, interval_ns: u64) -> Self {
        Sampler {
            end,
            zero_ns,
            interval_ns,
            samples: Mutex::default(),
            udt: Mutex::default(),
            total: AtomicU64::new(0),
            is_full: AtomicBool::new(false),
        }
    }

    /// Takes samples at every multiple of the interval until the run is over.
    pub(crate) fn run(&self, traffic: &Traffic) {
        let mut next = self.zero_ns + self.interval_ns;
        while !traffic.stopped_before(next) {
            self.tick(traffic, sys::now_ns());
            next += self.interval_ns;
            // Skip the times that have passed: two samples at one time show nothing.
            let now = sys::now_ns();
            if next <= now {
                next = self.zero_ns + ((now - self.zero_ns) / self.interval_ns + 1) * self.interval_ns;
            }
        }
    }

    /// Takes one sample of every stream.
    pub(crate) fn tick(&self, traffic: &Traffic, now_ns: u64) {
        let mut total = 0;
        let mut new = Vec::with_capacity(traffic.len());
        for i in 0..traffic.len() {
            // A stream that was reset has no state any more.
            let Ok((seen, bytes)) = traffic.observe(i, self.end) else { continue };
            total += bytes;
            let t_ns = now_ns.saturating_sub(self.zero_ns);
            let udt = seen.udt.and_then(|udt| self.since_last(i, udt));
            let info = seen.tcp_info.unwrap_or_else(|| TcpInfo::from_bytes(&[]));
            new.push(Sample { t_ns, end: self.end, stream: i as u16, bytes, info, udt, udp: seen.udp });
        }
        self.total.store(total, Ordering::Relaxed);
        self.keep(new, MAX_SAMPLES);
    }

    /// Keeps samples of one time, if there are at most `most` then.
    fn keep(&self, mut new: Vec<Sample>, most: u64) {
        let Ok(mut samples) = self.samples.lock() else { return };
        if (samples.len() + new.len()) as u64 > most {
            self.is_full.store(true, Ordering::Relaxed);
        } else {
            samples.append(&mut new);
        }
    }

    /// Checks that there was room for all samples.
    ///
    /// # Errors
    /// There was not.
    pub(crate) fn check_room(&self) -> Result<(), NetError> {
        match self.is_full.load(Ordering::Relaxed) {
            true => Err(NetError::TooManySamples { count: None, most: MAX_SAMPLES }),
            false => Ok(()),
        }
    }

    /// What UDT counted on a stream since its last sample, or since the stream was opened.
    fn since_last(&self, stream: usize, now: Snapshot) -> Option<PerfMon> {
        let mut all = self.udt.lock().ok()?;
        if all.len() <= stream {
            all.resize(stream + 1, None);
        }
        let before = all[stream].replace(now);
        Some(udt_between(before, now, self.zero_ns))
    }

    /// The samples from number `from` on.
    pub(crate) fn since(&self, from: usize) -> Vec<Sample> {
        self.samples.lock().map(|samples| samples.get(from..).unwrap_or_default().to_vec()).unwrap_or_default()
    }

    pub(crate) fn into_samples(self) -> Vec<Sample> {
        self.samples.into_inner().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_keeps_no_more_samples_than_there_is_room_for() {
        let sampler = Sampler::new(Side::Sender, 0, 10_000_000);
        let info = TcpInfo::from_bytes(&[]);
        let one = Sample { t_ns: 0, end: Side::Sender, stream: 0, bytes: 0, info, udt: None, udp: None };
        let two = || vec![one.clone(), Sample { stream: 1, ..one.clone() }];
        (0..3).for_each(|_| sampler.keep(two(), 5));
        let why = sampler.check_room().unwrap_err().to_string();
        assert!(why.contains("2000000 samples") && why.contains("--sample"), "{why}");
        assert_eq!(sampler.into_samples().len(), 4);
    }

    #[test]
    fn samples_come_back_as_they_were_packed() {
        let tcp = Sample {
            t_ns: 5,
            end: Side::Receiver,
            stream: 3,
            bytes: 7,
            info: TcpInfo::from_bytes(&[1, 2, 3]),
            udt: None,
            udp: None,
        };
        let perfmon = PerfMon { pkt_retrans: 9, mbps_send_rate: 1.5, ..PerfMon::default() };
        let udt = Sample { info: TcpInfo::from_bytes(&[]), udt: Some(perfmon), ..tcp.clone() };
        let mut packed = Vec::new();
        tcp.pack(&mut packed);
        udt.pack(&mut packed);
        let counts = UdpCounts { datagrams: 9, jitter_ns: 7, ..UdpCounts::default() };
        let udp = Sample { info: TcpInfo::from_bytes(&[]), udp: Some(counts), ..tcp.clone() };
        udp.pack(&mut packed);
        let mut from = &packed[..];
        assert_eq!(Sample::unpack(&mut from), Some(tcp));
        assert_eq!(Sample::unpack(&mut from), Some(udt.clone()));
        assert_eq!(Sample::unpack(&mut from), Some(udp.clone()));
        assert!(from.is_empty() && Sample::unpack(&mut &packed[..packed.len() - 1]).is_some());
        // A record's line has UDT's names, and none of TCP's.
        let line = serde_json::to_value(udp.fields()).unwrap();
        assert_eq!((&line["datagrams"], &line["jitter_ns"], line.get("rtt")), (&9.into(), &7.into(), None));
        let line = serde_json::to_value(udt.fields()).unwrap();
        assert_eq!((&line["pktRetrans"], &line["mbpsSendRate"], line.get("rtt")), (&9.into(), &1.5.into(), None));
    }
}
