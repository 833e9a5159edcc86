//! Decides what limited a measurement of storage. A pure function.

use fullpipe_path::record::storage::StorageBottleneck;

/// What was counted during a measurement.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Evidence {
    /// Fraction of the bytes of a read that came from storage; `None` for a write, and for files in memory.
    pub(super) from_storage: Option<f64>,
    /// Fraction of one processor that the busiest thread used.
    pub(super) busiest_thread: f64,
    /// Fraction of all processors that any program used.
    pub(super) processors: Option<f64>,
    /// Fraction of the time in which the device had a request.
    pub(super) device: Option<f64>,
}

/// Names the bottleneck: the first of these that holds, or `None`.
///
/// 1. Less than half of the bytes of a read came from storage: the page cache.
/// 2. A thread used more than 90% of a processor, or all processors were used by more than 95%.
/// 3. The device had a request for 90% of the time.
/// 4. The device's load is known: it was idle, so there were too few requests.
pub(super) fn name(e: &Evidence) -> Option<StorageBottleneck> {
    if e.from_storage.is_some_and(|part| part < 0.5) {
        Some(StorageBottleneck::PageCache)
    } else if e.busiest_thread > 0.9 || e.processors.is_some_and(|used| used > 0.95) {
        Some(StorageBottleneck::Cpu)
    } else {
        e.device.map(|busy| if busy >= 0.9 { StorageBottleneck::Device } else { StorageBottleneck::Requests })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_its_sign() {
        let base = Evidence { from_storage: Some(1.0), busiest_thread: 0.1, ..Evidence::default() };
        assert_eq!(name(&base), None);
        let disk = Evidence { device: Some(0.97), processors: Some(0.2), ..base };
        assert_eq!(name(&disk), Some(StorageBottleneck::Device));
        assert_eq!(name(&Evidence { device: Some(0.6), ..disk }), Some(StorageBottleneck::Requests));
        assert_eq!(name(&Evidence { processors: Some(0.99), ..disk }), Some(StorageBottleneck::Cpu));
        assert_eq!(name(&Evidence { busiest_thread: 0.95, ..disk }), Some(StorageBottleneck::Cpu));
        let cached = Evidence { from_storage: Some(0.1), busiest_thread: 0.95, ..disk };
        assert_eq!(name(&cached), Some(StorageBottleneck::PageCache));
    }
}
