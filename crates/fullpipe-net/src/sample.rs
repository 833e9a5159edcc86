//! Samples: TCP_INFO of every stream at fixed instants.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::side::Side;
use crate::sys;
use crate::tcp_info::TcpInfo;
use crate::traffic::Streams;

/// One stream at one instant.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Nanoseconds on the run's clock.
    pub t_ns: u64,
    /// At which end.
    pub end: Side,
    /// Which stream, from 0.
    pub stream: u16,
    /// Bytes that the application has read, or at the sending end that were acknowledged.
    pub bytes: u64,
    /// The kernel's view.
    pub info: TcpInfo,
}

impl Sample {
    /// Appends the packed form: t, bytes, stream, end, length, TCP_INFO.
    pub fn pack(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.t_ns.to_le_bytes());
        to.extend_from_slice(&self.bytes.to_le_bytes());
        to.extend_from_slice(&self.stream.to_le_bytes());
        to.push(u8::from(self.end == Side::Receiver));
        to.extend_from_slice(&(self.info.bytes().len() as u16).to_le_bytes());
        to.extend_from_slice(self.info.bytes());
    }

    /// Reads the packed form, none if it is damaged.
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

/// A record's line.
impl Serialize for Sample {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut map = s.serialize_map(None)?;
        map.serialize_entry("kind", "sample")?;
        map.serialize_entry("t", &(self.t_ns as f64 / 1e9))?;
        map.serialize_entry("end", if self.end == Side::Sender { "sender" } else { "receiver" })?;
        map.serialize_entry("stream", &self.stream)?;
        map.serialize_entry("bytes", &self.bytes)?;
        self.info.serialize_fields(&mut map)?;
        map.end()
    }
}

/// Collects samples of one end while a run goes on.
pub(crate) struct Sampler {
    end: Side,
    zero_ns: u64,
    interval_ns: u64,
    samples: Mutex<Vec<Sample>>,
    /// Sum over the streams at the last tick; tells a stall.
    pub(crate) total: AtomicU64,
}

impl Sampler {
    pub(crate) fn new(end: Side, zero_ns: u64, interval_ns: u64) -> Self {
        Sampler { end, zero_ns, interval_ns, samples: Mutex::default(), total: AtomicU64::new(0) }
    }

    /// Samples at every multiple of the interval until the streams are stopped.
    pub(crate) fn run(&self, streams: &Streams) {
        let mut next = self.zero_ns + self.interval_ns;
        while !streams.stopped_before(next) {
            self.tick(streams, sys::now_ns());
            next += self.interval_ns;
            // A tick that came late is not made up for: two samples at one instant say nothing.
            let now = sys::now_ns();
            if next <= now {
                next = self.zero_ns + ((now - self.zero_ns) / self.interval_ns + 1) * self.interval_ns;
            }
        }
    }

    /// One sample of every stream.
    pub(crate) fn tick(&self, streams: &Streams, now_ns: u64) {
        let mut total = 0;
        let mut new = Vec::with_capacity(streams.len());
        for i in 0..streams.len() {
            // A stream whose peer reset it has no more to tell.
            let Ok((info, bytes)) = streams.observe(i, self.end) else { continue };
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
