//! Joins what limits a copy: reading at the source, the network, writing at the destination. The slowest of the three sets the
//! copy's rate.

use fullpipe_path::record::storage::StorageBottleneck;
use fullpipe_path::transport::MAX_STREAMS;
use serde::Serialize;

use crate::storage::StoragePoint;

/// A network that carries at least this fraction of its capacity is full.
const FULL: f64 = 0.9;

/// One of the three stages of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Reading at the source.
    Source,
    /// The network.
    Network,
    /// Writing at the destination.
    Destination,
}

/// What could make the slowest stage faster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Remedy {
    /// More threads: no more than these were measured.
    MoreThreads,
    /// Faster storage: more threads were measured and were no faster, or a copy cannot have more.
    FasterStorage,
    /// Less work for a processor of the host, or a faster one.
    Processor,
    /// None is known: the page cache was measured, not the storage.
    MeasureAgain,
    /// More capacity: the network is full.
    MoreCapacity,
    /// Another way of sending, or less loss: the network is not full.
    OtherTransport,
}

/// The best measured way to read or write a folder.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StorageChoice {
    /// The chosen measurement.
    #[serde(flatten)]
    pub point: StoragePoint,
    /// Most threads that were measured with the same blocks, past the page cache or through it as in `point`.
    pub most_threads: u16,
}

/// The rate of a network, bit/s.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Network {
    /// Expected rate of the chosen transport.
    pub rate_bps: f64,
    /// Its number of streams.
    pub streams: u16,
    /// Whether a copy keeps that number, as each stream of UDT takes memory of its own for its buffers.
    pub streams_stay: bool,
    /// Capacity, if it is known.
    pub capacity_bps: Option<f64>,
}

/// What a copy is limited by, and how to run it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Joint {
    /// Rate to expect of the copy, bit/s: the least of the three.
    pub rate_bps: f64,
    /// The stage with that rate.
    pub limit: Stage,
    /// What could make that stage faster.
    pub remedy: Remedy,
    /// Rate of the network, bit/s.
    pub network_bps: f64,
    /// How to read, if the source's storage was measured.
    pub source: Option<StorageChoice>,
    /// How to write, if the destination's storage was measured.
    pub destination: Option<StorageChoice>,
    /// Streams of the copy: the most of what the network and each storage need, as each stream has a thread at both ends; over UDT
    /// those of the network.
    pub streams: u16,
    /// Bytes of a block, of the slower storage.
    pub block_bytes: Option<u64>,
    /// Whether to bypass the page cache, of the slower storage.
    pub direct: Option<bool>,
}

/// Chooses the best measurement of a folder: of those within the fraction `within` of the highest rate, the one with the fewest
/// threads, then the highest rate. Measurements of the page cache count only if there are no others. `None` for no points.
fn best(points: &[StoragePoint], within: f64) -> Option<StorageChoice> {
    let is_cached = |point: &StoragePoint| point.bottleneck == Some(StorageBottleneck::PageCache);
    let all_cached = points.iter().all(is_cached);
    let points: Vec<&StoragePoint> = points.iter().filter(|point| all_cached || !is_cached(point)).collect();
    let highest = points.iter().map(|point| point.mean_bps).reduce(f64::max)?;
    let enough = points.iter().filter(|point| point.mean_bps >= highest * (1.0 - within));
    let point = enough.min_by(|a, b| a.threads.cmp(&b.threads).then(b.mean_bps.total_cmp(&a.mean_bps)))?;
    let alike = points.iter().filter(|p| (p.direct, p.block_bytes) == (point.direct, point.block_bytes));
    let most_threads = alike.map(|point| point.threads).max().unwrap_or(point.threads);
    Some(StorageChoice { point: (*point).clone(), most_threads })
}

fn storage_remedy(choice: &StorageChoice) -> Remedy {
    match choice.point.bottleneck {
        Some(StorageBottleneck::PageCache) => Remedy::MeasureAgain,
        Some(StorageBottleneck::Cpu) => Remedy::Processor,
        _ if choice.point.threads < choice.most_threads || choice.point.threads >= MAX_STREAMS => Remedy::FasterStorage,
        _ => Remedy::MoreThreads,
    }
}

/// Joins the rates of the three stages of a copy. Storage that was not measured limits nothing. `within` is the fraction of a
/// storage's highest rate below which fewer threads are preferred.
pub fn join(source: &[StoragePoint], network: Network, destination: &[StoragePoint], within: f64) -> Joint {
    let (source, destination) = (best(source, within), best(destination, within));
    let rate = |choice: &Option<StorageChoice>| choice.as_ref().map_or(f64::INFINITY, |c| c.point.mean_bps);
    let (read, write) = (rate(&source), rate(&destination));
    let rate_bps = network.rate_bps.min(read).min(write);
    let is_full = network.capacity_bps.is_some_and(|capacity| network.rate_bps >= FULL * capacity);
    let (limit, remedy) = match (&source, &destination) {
        // Where two are equally slow, the network comes first: storage is not to be bought for it.
        _ if network.rate_bps <= rate_bps => {
            (Stage::Network, if is_full { Remedy::MoreCapacity } else { Remedy::OtherTransport })
        }
        (Some(choice), _) if read <= rate_bps => (Stage::Source, storage_remedy(choice)),
        (_, Some(choice)) => (Stage::Destination, storage_remedy(choice)),
        // Without measured storage the network is the slowest.
        _ => (Stage::Network, Remedy::OtherTransport),
    };
    let slower = if read < write { &source } else { &destination }.as_ref().map(|choice| &choice.point);
    let threads = |choice: &Option<StorageChoice>| choice.as_ref().map_or(0, |c| c.point.threads);
    let most = network.streams.max(threads(&source)).max(threads(&destination)).min(MAX_STREAMS);
    let streams = if network.streams_stay { network.streams } else { most };
    Joint {
        rate_bps,
        limit,
        remedy,
        network_bps: network.rate_bps,
        streams,
        block_bytes: slower.map(|point| point.block_bytes),
        direct: slower.map(|point| point.direct),
        source,
        destination,
    }
}

#[cfg(test)]
mod tests {
    use fullpipe_path::storage::Operation;

    use super::*;

    fn point(threads: u16, gbps: f64, bottleneck: Option<StorageBottleneck>) -> StoragePoint {
        StoragePoint {
            host: None,
            folder: "/data".into(),
            mount: None,
            path: None,
            operation: Operation::Read,
            direct: true,
            block_bytes: 8 << 20,
            threads,
            n: 3,
            mean_bps: gbps * 1e9,
            bottleneck,
        }
    }

    const NETWORK: Network = Network { rate_bps: 8.9e9, streams: 2, streams_stay: false, capacity_bps: Some(9e9) };

    #[test]
    fn the_page_cache_is_no_storage() {
        let cached = point(1, 60.0, Some(StorageBottleneck::PageCache));
        let joint = join(&[cached.clone(), point(4, 4.0, None)], NETWORK, &[], 0.01);
        assert_eq!((joint.rate_bps, joint.limit), (4.0e9, Stage::Source));
        assert_eq!(join(&[cached], NETWORK, &[], 0.01).limit, Stage::Network);
    }

    #[test]
    fn the_slowest_stage_sets_the_rate() {
        let (slow, fast) = ([point(1, 4.0, None)], [point(4, 9.1, None)]);
        let to = join(&fast, NETWORK, &slow, 0.01);
        assert_eq!((to.rate_bps, to.limit, to.network_bps), (4.0e9, Stage::Destination, 8.9e9));
        assert_eq!(join(&slow, NETWORK, &fast, 0.01).limit, Stage::Source);
        let full = join(&fast, NETWORK, &fast, 0.01);
        assert_eq!((full.rate_bps, full.limit, full.remedy), (8.9e9, Stage::Network, Remedy::MoreCapacity));
        let lossy = Network { rate_bps: 2e9, ..NETWORK };
        assert_eq!(join(&fast, lossy, &fast, 0.01).remedy, Remedy::OtherTransport);
        assert_eq!(join(&[], NETWORK, &[], 0.01).limit, Stage::Network);
        assert_eq!(join(&[], NETWORK, &slow, 0.01).limit, Stage::Destination);
    }

    #[test]
    fn fewer_threads_are_preferred_among_equals() {
        let points = [point(1, 3.0, None), point(2, 5.0, None), point(4, 5.02, None), point(8, 4.0, None)];
        let joint = join(&points, NETWORK, &[], 0.01);
        let source = joint.source.unwrap();
        assert_eq!((source.point.threads, source.most_threads, joint.rate_bps), (2, 8, 5.0e9));
        assert_eq!(join(&points, NETWORK, &[], 0.001).source.unwrap().point.threads, 4);
    }

    #[test]
    fn the_remedy_follows_the_bottleneck_and_what_was_measured() {
        let remedy = |points: &[StoragePoint]| join(points, NETWORK, &[], 0.01).remedy;
        assert_eq!(remedy(&[point(1, 3.0, None), point(2, 5.0, None)]), Remedy::MoreThreads);
        assert_eq!(remedy(&[point(1, 5.0, None), point(2, 5.0, None)]), Remedy::FasterStorage);
        assert_eq!(remedy(&[point(MAX_STREAMS, 5.0, None)]), Remedy::FasterStorage, "no copy has more threads");
        assert_eq!(remedy(&[point(1, 5.0, Some(StorageBottleneck::Device))]), Remedy::MoreThreads);
        assert_eq!(remedy(&[point(1, 5.0, Some(StorageBottleneck::Cpu))]), Remedy::Processor);
        assert_eq!(remedy(&[point(1, 5.0, Some(StorageBottleneck::PageCache))]), Remedy::MeasureAgain);
    }

    #[test]
    fn a_copy_has_the_streams_of_all_and_the_blocks_of_the_slower_storage() {
        let buffered = StoragePoint { direct: false, block_bytes: 1 << 20, ..point(1, 4.0, None) };
        let joint = join(&[point(6, 9.1, None)], NETWORK, std::slice::from_ref(&buffered), 0.01);
        assert_eq!((joint.streams, joint.block_bytes, joint.direct), (6, Some(1 << 20), Some(false)));
        let joint = join(&[point(1, 3.9, None)], NETWORK, &[buffered], 0.01);
        assert_eq!((joint.streams, joint.block_bytes, joint.direct), (2, Some(8 << 20), Some(true)));
    }
}
