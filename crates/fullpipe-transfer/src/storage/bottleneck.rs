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

/// Bytes of a read that came from storage, as the kernel counted them; `None` if it does not count those of this file system, as
/// for FUSE. It then counts only what else the program needed meanwhile, so less than half of what was not in the page cache.
pub(super) fn counted(bytes: u64, counted: u64, cached: Option<u64>) -> Option<u64> {
    (counted >= bytes.saturating_sub(cached.unwrap_or(0)) / 2).then_some(counted)
}

/// Fraction of the bytes of a read that came from storage: those that the kernel counted, or those that were not in the page
/// cache before, if it does not count. `None` if the page cache cannot be seen either.
pub(super) fn from_storage(bytes: u64, counted: Option<u64>, cached: Option<u64>) -> Option<f64> {
    let from = counted.or_else(|| Some(bytes.saturating_sub(cached?)))?;
    Some(from as f64 / bytes as f64)
}

/// Names the bottleneck: the first of these that holds, or `None`.
///
/// 1. Less than half of the bytes of a read came from storage: the page cache.
/// 2. A thread used more than 90% of a processor.
/// 3. The device had a request for 90% of the time.
/// 4. All processors were used by more than 95%, by whatever program.
/// 5. The device's load is known: it was idle, so there were too few requests.
pub(super) fn name(e: &Evidence) -> Option<StorageBottleneck> {
    if e.from_storage.is_some_and(|part| part < 0.5) {
        Some(StorageBottleneck::PageCache)
    } else if e.busiest_thread > 0.9 {
        Some(StorageBottleneck::Cpu)
    } else if e.device.is_some_and(|busy| busy >= 0.9) {
        Some(StorageBottleneck::Device)
    } else if e.processors.is_some_and(|used| used > 0.95) {
        Some(StorageBottleneck::Cpu)
    } else {
        e.device.map(|_| StorageBottleneck::Requests)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_does_not_count_was_not_cached() {
        for (kernel, cached, is_counted, fraction) in [
            (1000, Some(0), true, Some(1.0)),
            (300, Some(700), true, Some(0.3)),
            (0, Some(1000), true, Some(0.0)),
            (4, Some(0), false, Some(1.0)),
            (4, Some(750), false, Some(0.25)),
            (4, None, false, None),
            (1000, None, true, Some(1.0)),
        ] {
            let by_kernel = counted(1000, kernel, cached);
            assert_eq!((by_kernel, from_storage(1000, by_kernel, cached)), (is_counted.then_some(kernel), fraction));
        }
    }

    #[test]
    fn each_has_its_sign() {
        let base = Evidence { from_storage: Some(1.0), busiest_thread: 0.1, ..Evidence::default() };
        assert_eq!(name(&base), None);
        let disk = Evidence { device: Some(0.97), processors: Some(0.2), ..base };
        assert_eq!(name(&disk), Some(StorageBottleneck::Device));
        assert_eq!(name(&Evidence { device: Some(0.6), ..disk }), Some(StorageBottleneck::Requests));
        // Other programs may have all processors while this one waits for the device.
        let others = Evidence { processors: Some(0.99), ..disk };
        assert_eq!(name(&others), Some(StorageBottleneck::Device));
        assert_eq!(name(&Evidence { device: Some(0.6), ..others }), Some(StorageBottleneck::Cpu));
        assert_eq!(name(&Evidence { device: None, ..others }), Some(StorageBottleneck::Cpu));
        assert_eq!(name(&Evidence { busiest_thread: 0.95, ..disk }), Some(StorageBottleneck::Cpu));
        let cached = Evidence { from_storage: Some(0.1), busiest_thread: 0.95, ..disk };
        assert_eq!(name(&cached), Some(StorageBottleneck::PageCache));
    }
}
