//! Counts what a server has done since its start, for Prometheus. No count tells a name or an address.

use std::sync::atomic::{AtomicI64, AtomicU64};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use fullpipe_path::Direction;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use super::channel::{Copied, Failed};
use super::http::Page;

/// Media type of the page.
const MEDIA: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What a client is served with.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// Files are copied.
    Copy,
    /// A path is measured.
    Measurement,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Copy => "copy",
            Kind::Measurement => "measurement",
        }
    }
}

/// Which way data goes, seen from the server.
#[derive(Debug, Clone, Copy)]
pub enum Way {
    /// From the client to the server.
    Received,
    /// From the server to the client.
    Sent,
}

impl Way {
    /// The server's way for a client's direction.
    pub fn of(direction: Direction) -> Way {
        match direction {
            Direction::Send => Way::Received,
            Direction::Receive => Way::Sent,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Way::Received => "received",
            Way::Sent => "sent",
        }
    }
}

/// Most that one copy adds to a count: the other end tells some of them, and is not to make a count wrap.
const MOST: u64 = 1 << 56;

/// Reasons for which a client is not served: a limit on clients, and all others (no valid token, another version, gone).
const BUSY: &str = "busy";
const OTHER: &str = "other";

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByKind {
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByWay {
    direction: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Ended {
    kind: &'static str,
    direction: &'static str,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Unserved {
    reason: &'static str,
}

/// The counts. Clones share them.
#[derive(Clone)]
pub struct Metrics {
    start: SystemTime,
    connections: Counter,
    unserved: Family<Unserved, Counter>,
    clients: Family<ByKind, Gauge<i64, AtomicI64>>,
    ended: Family<Ended, Counter>,
    seconds: Family<Ended, Counter<f64, AtomicU64>>,
    files: Family<ByWay, Counter>,
    bytes: Family<ByWay, Counter>,
    skipped: Family<ByWay, Counter>,
    segments: Family<ByWay, Counter>,
    again: Family<ByWay, Counter>,
}

/// A client that is served now. It counts as present until this is dropped.
pub struct Present {
    metrics: Metrics,
    kind: Kind,
    way: Way,
    begin: Instant,
}

impl Present {
    /// Counts the client as served: with what was copied, or without success.
    pub fn ends(self, done: Result<Option<&Copied>, &Failed>) {
        let skipped = |copied: &Copied| copied.skipped.total.saturating_add(copied.summary.skipped.total);
        let outcome = match done {
            Err(_) => "failed",
            Ok(Some(copied)) if skipped(copied) > 0 => "incomplete",
            Ok(_) => "complete",
        };
        let (metrics, by) = (&self.metrics, ByWay { direction: self.way.name() });
        let ended = Ended { kind: self.kind.name(), direction: self.way.name(), outcome };
        metrics.ended.get_or_create(&ended).inc();
        metrics.seconds.get_or_create(&ended).inc_by(self.begin.elapsed().as_secs_f64());
        if let Ok(Some(copied)) = done {
            let add = |counts: &Family<ByWay, Counter>, count: u64| counts.get_or_create(&by).inc_by(count.min(MOST));
            add(&metrics.files, copied.summary.files.saturating_sub(copied.summary.present));
            add(&metrics.bytes, copied.summary.bytes);
            add(&metrics.skipped, skipped(copied));
            let sent = copied.sent.unwrap_or_default();
            add(&metrics.segments, sent.segments);
            add(&metrics.again, sent.again);
        }
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        self.metrics.clients.get_or_create(&ByKind { kind: self.kind.name() }).dec();
    }
}

impl Metrics {
    /// Counts from zero, and from now on.
    pub fn new() -> Metrics {
        let unserved: Family<Unserved, Counter> = Family::default();
        // From zero on, so that the first of either shows as an increase.
        for reason in [BUSY, OTHER] {
            let _ = unserved.get_or_create(&Unserved { reason });
        }
        Metrics {
            start: SystemTime::now(),
            connections: Counter::default(),
            unserved,
            clients: Family::default(),
            ended: Family::default(),
            seconds: Family::default(),
            files: Family::default(),
            bytes: Family::default(),
            skipped: Family::default(),
            segments: Family::default(),
            again: Family::default(),
        }
    }

    /// Counts a client that begins to be served.
    pub fn begins(&self, kind: Kind, way: Way) -> Present {
        self.clients.get_or_create(&ByKind { kind: kind.name() }).inc();
        Present { metrics: self.clone(), kind, way, begin: Instant::now() }
    }

    /// Counts a client that found all places taken.
    pub fn busy(&self) {
        self.unserved.get_or_create(&Unserved { reason: BUSY }).inc();
    }

    /// Counts a client that was not served for another reason.
    pub fn unserved(&self) {
        self.unserved.get_or_create(&Unserved { reason: OTHER }).inc();
    }

    /// Counts a connection that has ended.
    pub fn disconnects(&self) {
        self.connections.inc();
    }

    /// The page that Prometheus reads (OpenMetrics 1.0).
    pub fn page(&self) -> Option<Page> {
        let mut all = Registry::with_prefix("fullpipe");
        all.register("build", "The program", Info::new([("version", env!("CARGO_PKG_VERSION"))]));
        let start: Gauge<f64, AtomicU64> = Gauge::default();
        start.set(self.start.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64()));
        all.register_with_unit("start_time", "When the server was started, since 1970", Unit::Seconds, start);
        all.register("connections", "Connections that have ended, refused ones included", self.connections.clone());
        all.register("unserved_clients", "Clients that were not served, by reason", self.unserved.clone());
        all.register("present_clients", "Clients that are being served", self.clients.clone());
        all.register("served_clients", "Copies and measurements that have ended", self.ended.clone());
        all.register_with_unit("serving", "Time that those took", Unit::Seconds, self.seconds.clone());
        all.register("copied_files", "Files of ended copies that were not there before", self.files.clone());
        all.register_with_unit("copied", "Content of files that ended copies moved", Unit::Bytes, self.bytes.clone());
        all.register("skipped_files", "Files that ended copies had to leave out", self.skipped.clone());
        all.register("segments", "TCP segments or UDT packets with data of ended copies", self.segments.clone());
        all.register("retransmitted_segments", "Those of them that were sent again", self.again.clone());
        let mut text = String::new();
        encode(&mut text, &all).ok()?;
        Some(Page { media: MEDIA, text })
    }
}
