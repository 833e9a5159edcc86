//! Reads what the kernel counts of processors, devices and this process while storage is measured.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Instant;

/// A block device, or a partition of one.
pub(super) struct Device {
    name: String,
    /// Its counters (Documentation/block/stat.rst in the kernel's sources).
    stat: PathBuf,
}

impl Device {
    /// The device of a file; `None` if its file system has none of its own.
    pub(super) fn of(meta: &Metadata) -> Option<Device> {
        let folder = PathBuf::from(format!(
            "/sys/dev/block/{}:{}",
            nix::sys::stat::major(meta.dev()),
            nix::sys::stat::minor(meta.dev())
        ));
        let name = folder.canonicalize().ok()?.file_name()?.to_string_lossy().into_owned();
        Some(Device { name, stat: folder.join("stat") })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Time in which the device has had at least one request since the machine started, ms (`io_ticks`).
    fn busy_ms(&self) -> Option<u64> {
        std::fs::read_to_string(&self.stat).ok()?.split_whitespace().nth(9)?.parse().ok()
    }
}

/// Time that all processors have been used, and all time, since the machine started; in ticks.
fn processor_ticks() -> Option<(u64, u64)> {
    let text = std::fs::read_to_string("/proc/stat").ok()?;
    let fields: Vec<u64> =
        text.lines().next()?.split_whitespace().skip(1).take(8).filter_map(|n| n.parse().ok()).collect();
    // user, nice, system, idle, iowait, irq, softirq, steal
    let [_, _, _, idle, iowait, ..] = fields[..] else { return None };
    let all: u64 = fields.iter().sum();
    Some((all - idle - iowait, all))
}

/// Bytes that this process has caused to be read from storage (`proc_pid_io(5)`, `read_bytes`).
fn storage_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/io").ok()?;
    text.lines().find_map(|line| line.strip_prefix("read_bytes:")?.trim().parse().ok())
}

/// Bytes of memory that can be had without taking it from another program (`proc_meminfo(5)`, `MemAvailable`).
pub(super) fn free_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse().ok().map(|kib: u64| kib * 1024)
}

/// The counters at one time.
pub(super) struct HostLoad {
    at: Instant,
    processors: Option<(u64, u64)>,
    device_ms: Option<u64>,
    storage_bytes: Option<u64>,
}

/// What the counters say of the time between two readings.
pub(super) struct HostLoadSince {
    /// Fraction of all processors that was used.
    pub(super) processors: Option<f64>,
    /// Fraction of the time in which the device had a request.
    pub(super) device: Option<f64>,
    /// Bytes that this process caused to be read from storage.
    pub(super) storage_bytes: Option<u64>,
}

impl HostLoad {
    pub(super) fn now(device: Option<&Device>) -> HostLoad {
        HostLoad {
            at: Instant::now(),
            processors: processor_ticks(),
            device_ms: device.and_then(Device::busy_ms),
            storage_bytes: storage_bytes(),
        }
    }

    /// What has happened since this reading.
    pub(super) fn since(&self, device: Option<&Device>) -> HostLoadSince {
        let now = HostLoad::now(device);
        let both = |before: Option<u64>, after: Option<u64>| Some(after?.saturating_sub(before?));
        let ms = (now.at - self.at).as_secs_f64() * 1e3;
        let used = both(self.processors.map(|p| p.0), now.processors.map(|p| p.0));
        let all = both(self.processors.map(|p| p.1), now.processors.map(|p| p.1)).filter(|ticks| *ticks > 0);
        HostLoadSince {
            processors: used.zip(all).map(|(used, all)| used as f64 / all as f64),
            device: both(self.device_ms, now.device_ms).map(|busy| (busy as f64 / ms).min(1.0)),
            storage_bytes: both(self.storage_bytes, now.storage_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_read() {
        assert!(free_memory().is_some_and(|bytes| bytes > 1 << 20));
        let (used, all) = processor_ticks().unwrap();
        assert!(used > 0 && used <= all);
        assert!(storage_bytes().is_some());
        assert!(Device::of(&std::fs::metadata("/proc").unwrap()).is_none());
        let before = HostLoad::now(None);
        let since = before.since(None);
        assert!(since.device.is_none() && since.storage_bytes == Some(0));
    }
}
