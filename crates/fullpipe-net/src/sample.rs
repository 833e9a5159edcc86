//! Samples a run's streams: what their transport tells, at fixed times.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use fullpipe_path::record::lines::SampleFields;

use crate::side::Side;
use crate::sys;
use crate::tcp_info::TcpInfo;
use crate::traffic::Traffic;

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
}

impl Sample {
    /// Appends the packed form: time, bytes, stream, side, length of TCP_INFO, TCP_INFO; numbers in little endian.
    pub fn pack(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.t_ns.to_le_bytes());
        to.extend_from_slice(&self.bytes.to_le_bytes());
        to.extend_from_slice(&self.stream.to_le_bytes());
        to.push(u8::from(self.end == Side::Receiver));
        to.extend_from_slice(&(self.info.bytes().len() as u16).to_le_bytes());
        to.extend_from_slice(self.info.bytes());
    }

    /// The sample without its time, for a record's line.
    pub fn fields(&self) -> SampleFields<&TcpInfo> {
        let end = match self.end {
            Side::Sender => "sender",
            Side::Receiver => "receiver",
        };
        SampleFields { end, stream: self.stream, bytes: self.bytes, transport: &self.info }
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
        let len = usize::from(u16::from_le_bytes(take(from)?));
        let (info, rest) = from.split_at_checked(len)?;
        *from = rest;
        Some(Sample { t_ns, end, stream, bytes, info: TcpInfo::from_bytes(info) })
    }
}

/// Collects the samples of one side during a run.
pub(crate) struct Sampler {
    end: Side,
    zero_ns: u64,
    interval_ns: u64,
    /// The samples so far. The lock is held only to append to them.
    samples: Mutex<Vec<Sample>>,
    /// Bytes of all streams at the last sample. A total that does not grow is a stall.
    pub(crate) total: AtomicU64,
}

impl Sampler {
    pub(crate) fn new(end: Side, zero_ns: u64, interval_ns: u64) -> Self {
        Sampler { end, zero_ns, interval_ns, samples: Mutex::default(), total: AtomicU64::new(0) }
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
            let Ok((info, bytes)) = traffic.observe(i, self.end) else { continue };
            total += bytes;
            let t_ns = now_ns.saturating_sub(self.zero_ns);
            new.push(Sample { t_ns, end: self.end, stream: i as u16, bytes, info });
        }
        self.total.store(total, Ordering::Relaxed);
        if let Ok(mut samples) = self.samples.lock() {
            samples.append(&mut new);
        }
    }

    pub(crate) fn into_samples(self) -> Vec<Sample> {
        self.samples.into_inner().unwrap_or_default()
    }
}
