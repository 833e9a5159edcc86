//! Samples TCP_INFO, or UDT's statistics, of all streams over time, for the record. These are the samples that `measure` takes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fullpipe_net::sample::{self, Sample, Snapshot};
use fullpipe_net::side::Side;
use fullpipe_net::stream::StreamHandle;
use fullpipe_net::tcp_info::TcpInfo;
use fullpipe_net::wire::{Received, Report};
use fullpipe_net::{Observed, host_info, sys};

use crate::connection::session::Session;
use crate::connection::stream::{self, Stream};
use crate::error::TransferError;
use crate::protocol::message::Message;
use crate::threads::{lock, thread};

/// Most samples that are kept. Beyond that, every second instant is dropped and the interval doubles.
const MAX_SAMPLES: usize = 1 << 17;
/// Bytes of samples after which a message is closed.
const BATCH_BYTES: usize = 1 << 20;

/// The samples of one end.
pub struct Trace {
    end: Side,
    zero_ns: u64,
    cpu_s: f64,
    streams: Vec<Arc<dyn StreamHandle>>,
    kept: Mutex<Kept>,
    arrivals: Vec<Arrival>,
}

struct Kept {
    /// The samples, and UDT's counts since the stream was opened, of which a sample gets what the one before has not.
    samples: Vec<(Sample, Option<Snapshot>)>,
    interval_ns: u64,
}

impl Kept {
    /// Drops every second instant, and doubles the interval. Instants at which a stream could not be observed have fewer samples.
    fn thin(&mut self) {
        let (mut instant, mut number) = (None, 0u64);
        self.samples.retain(|(sample, _)| {
            number += u64::from(instant.replace(sample.t_ns) != Some(sample.t_ns));
            number % 2 == 1
        });
        self.interval_ns *= 2;
    }
}

#[derive(Default)]
struct Arrival {
    bytes: AtomicU64,
    first_ns: AtomicU64,
    last_ns: AtomicU64,
}

impl Trace {
    /// Starts a thread that samples until the session is over. Returns `None` if no samples were asked for.
    fn start(
        session: &Arc<Session>,
        streams: &[Stream],
        end: Side,
        interval_ns: u64,
    ) -> Result<Option<Arc<Trace>>, TransferError> {
        if interval_ns == 0 || streams.is_empty() {
            return Ok(None);
        }
        let trace = Arc::new(Trace {
            end,
            zero_ns: sys::now_ns(),
            cpu_s: sys::cpu_seconds(),
            arrivals: streams.iter().map(|_| Arrival::default()).collect(),
            streams: stream::handles(streams),
            kept: Mutex::new(Kept { samples: Vec::new(), interval_ns: interval_ns.max(10_000_000) }),
        });
        let (sampling, session) = (trace.clone(), session.clone());
        thread("samples", move || {
            while !session.is_over() {
                let interval = lock(&sampling.kept).interval_ns;
                let past = sys::now_ns().saturating_sub(sampling.zero_ns);
                session.sleep(Duration::from_nanos(interval - past % interval));
                sampling.tick();
            }
        })?;
        Ok(Some(trace))
    }

    /// Takes one sample of every stream.
    fn tick(&self) {
        let t_ns = sys::now_ns().saturating_sub(self.zero_ns);
        let mut kept = lock(&self.kept);
        for (i, stream) in self.streams.iter().enumerate() {
            // A stream that was reset cannot be observed any more.
            let Ok(seen) = stream.observe() else { continue };
            let bytes = match self.end {
                Side::Sender => seen.acked_bytes,
                Side::Receiver => seen.received_bytes.map(|all| all.saturating_sub(stream.unread_bytes().unwrap_or(0))),
            };
            let bytes = bytes.unwrap_or(0);
            let info = seen.tcp_info.unwrap_or_else(|| TcpInfo::from_bytes(&[]));
            kept.samples
                .push((Sample { t_ns, end: self.end, stream: i as u16, bytes, info, udt: None, udp: None }, seen.udt));
        }
        if kept.samples.len() > MAX_SAMPLES {
            kept.thin();
        }
    }

    /// Counts bytes that have arrived on a stream.
    pub(crate) fn arrived(&self, stream: usize, bytes: u64) {
        let now = sys::now_ns().saturating_sub(self.zero_ns);
        if let Some(arrival) = self.arrivals.get(stream) {
            let _ = arrival.first_ns.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
            arrival.last_ns.store(now, Ordering::Relaxed);
            arrival.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// This end's `CLOCK_MONOTONIC` when sampling began, nanoseconds.
    pub fn zero_ns(&self) -> u64 {
        self.zero_ns
    }

    /// Takes a last sample, and returns the report and all samples.
    pub(crate) fn seen(&self) -> Observed {
        self.tick();
        let read = |value: &AtomicU64| value.load(Ordering::Relaxed);
        let received = self.arrivals.iter().map(|a| Received {
            bytes: read(&a.bytes),
            first_ns: read(&a.first_ns),
            last_ns: read(&a.last_ns),
            udp: None,
        });
        let received = if self.end == Side::Receiver { received.collect() } else { Vec::new() };
        let streams: Vec<&dyn StreamHandle> = self.streams.iter().map(|stream| &**stream).collect();
        let end = host_info::describe(&streams);
        let report = Report {
            end,
            received,
            early_bytes: 0,
            cpu_s: sys::cpu_seconds() - self.cpu_s,
            seconds: sys::now_ns().saturating_sub(self.zero_ns) as f64 / 1e9,
        };
        let mut before = vec![None; self.streams.len()];
        let sample = |(sample, udt): &(Sample, Option<Snapshot>)| {
            let before = &mut before[usize::from(sample.stream)];
            let udt = udt.map(|now| sample::udt_between(before.replace(now), now, self.zero_ns));
            Sample { udt, ..sample.clone() }
        };
        Observed { report, samples: lock(&self.kept).samples.iter().map(sample).collect(), most_sent: Vec::new() }
    }

    /// Sends the report and all samples to the other end.
    pub(crate) fn tell(&self, session: &Session) -> Result<(), TransferError> {
        let seen = self.seen();
        let mut end = serde_json::to_string(&seen.report).unwrap_or_default();
        let mut samples = Vec::new();
        for sample in &seen.samples {
            sample.pack(&mut samples);
            if samples.len() > BATCH_BYTES {
                let (end, samples) = (std::mem::take(&mut end), std::mem::take(&mut samples));
                session.send(&Message::Report { end, samples, last: false })?;
            }
        }
        session.send(&Message::Report { end, samples, last: false })
    }
}

/// The other end's report and samples, which arrive in several messages.
#[derive(Default)]
struct PeerTrace {
    report: Option<Report>,
    samples: Vec<Sample>,
}

impl PeerTrace {
    /// Takes in one message. Damaged samples, and those over the limit, are dropped.
    fn take(&mut self, end: &str, samples: &[u8]) {
        if let Ok(mut report) = serde_json::from_str::<Report>(end) {
            report.end.make_printable();
            self.report = Some(report);
        }
        let mut rest = samples;
        while !rest.is_empty() && self.samples.len() < 2 * MAX_SAMPLES {
            let Some(sample) = Sample::unpack(&mut rest) else { return };
            self.samples.push(sample);
        }
    }

    /// The report and all samples, if the report has arrived.
    fn seen(&mut self) -> Option<Observed> {
        Some(Observed {
            report: self.report.take()?,
            samples: std::mem::take(&mut self.samples),
            most_sent: Vec::new(),
        })
    }
}

/// The samples of both ends, as one end has them.
pub(crate) struct Traces {
    /// This end's samples, if samples were asked for.
    pub(crate) own: Option<Arc<Trace>>,
    /// Guards the other end's samples, which arrive in several messages.
    peer: Mutex<PeerTrace>,
}

impl Traces {
    /// Starts to sample at this end ([`Trace::start`]).
    pub(crate) fn start(
        session: &Arc<Session>,
        streams: &[Stream],
        end: Side,
        interval_ns: u64,
    ) -> Result<Traces, TransferError> {
        Ok(Traces { own: Trace::start(session, streams, end, interval_ns)?, peer: Mutex::default() })
    }

    /// Takes in one message of the other end ([`PeerTrace::take`]).
    pub(crate) fn take(&self, end: &str, samples: &[u8]) {
        lock(&self.peer).take(end, samples);
    }

    /// This end's samples and the other end's, if samples were asked for.
    pub(crate) fn both(&self) -> (Option<Arc<Trace>>, Option<Observed>) {
        (self.own.clone(), lock(&self.peer).seen())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_second_instant_is_dropped_whole() {
        let sample = |t_ns: u64, stream: u16| {
            let info = TcpInfo::from_bytes(&[]);
            (Sample { t_ns, end: Side::Sender, stream, bytes: 0, info, udt: None, udp: None }, None)
        };
        // The second of three streams is reset after two instants.
        let streams = |t_ns: u64| (0..3).filter(move |stream| *stream != 1 || t_ns < 3);
        let samples = (1..9).flat_map(|t_ns| streams(t_ns).map(move |stream| sample(t_ns, stream))).collect();
        let mut kept = Kept { samples, interval_ns: 100 };
        kept.thin();
        let left: Vec<_> = kept.samples.iter().map(|(sample, _)| (sample.t_ns, sample.stream)).collect();
        assert_eq!(left, [(1, 0), (1, 1), (1, 2), (3, 0), (3, 2), (5, 0), (5, 2), (7, 0), (7, 2)]);
        assert_eq!(kept.interval_ns, 200);
    }
}
