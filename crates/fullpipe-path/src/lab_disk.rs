//! The disks at the two ends of an emulated path. The testbed makes them in its guest (`disks.rs` there), with a file system on
//! them that programs of the end see as `/disk`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::path_error::PathError;
use crate::units::{Size, Time, serde_as_text};

/// The keys of a disk, as errors list them.
const KEYS: &str = "latency, depth, devices, stripe, fs, size, keep";
/// The disk's driver counts its rate in these units, bytes per second.
const RATE_STEP: u64 = 1 << 20;
/// Least rate of one device, bytes per second. At this rate, the steps may change the rate by 1.3%.
const LEAST_RATE: u64 = 40_000_000;
/// Largest rate of a disk, bytes per second.
const LARGEST_RATE: u64 = 100_000_000_000;
/// Most devices of a disk.
const MOST_DEVICES: u8 = 16;
/// Smallest disk with either file system.
const LEAST_SIZE: Size = Size(512_000_000);
/// Largest disk: the largest size that can be written.
const LARGEST_SIZE: Size = Size(1_000_000_000_000_000);

/// The file system of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileSystem {
    /// XFS.
    Xfs,
    /// ext4.
    Ext4,
}

impl FileSystem {
    /// The name of its type.
    pub fn name(self) -> &'static str {
        match self {
            FileSystem::Xfs => "xfs",
            FileSystem::Ext4 => "ext4",
        }
    }
}

/// A disk at an end of an emulated path.
///
/// Its text is its rate, and what differs from the default: `1.2GB/s`, `500MB/s+latency:5ms+depth:1`,
/// `6GB/s+devices:4+stripe:1MiB+size:200GB+keep:no`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabDisk {
    /// Rate of all devices together, bytes per second, the same for reading and writing.
    pub rate: Size,
    /// Time that a device takes for a request, besides its rate.
    pub latency: Time,
    /// Requests that a device works on at once.
    pub depth: u32,
    /// Number of devices, over which the data are striped.
    pub devices: u8,
    /// Bytes that lie on one device before the next follows.
    pub stripe: Size,
    /// The file system.
    pub fs: FileSystem,
    /// Size of the disk.
    pub size: Size,
    /// Whether the content of files is kept, in the guest's memory. Else files have a size and a time, and what is read from them
    /// means nothing.
    pub keep: bool,
}

impl LabDisk {
    fn new(rate: Size) -> LabDisk {
        LabDisk {
            rate,
            latency: Time(100_000),
            depth: 64,
            devices: 1,
            stripe: Size(1 << 20),
            fs: FileSystem::Xfs,
            size: Size(2_000_000_000),
            keep: true,
        }
    }

    /// Rate of one device in the driver's units of 1 MiB/s.
    #[must_use]
    pub fn device_mib_per_s(&self) -> u64 {
        let devices = u64::from(self.devices);
        (self.rate.0 + devices * RATE_STEP / 2) / (devices * RATE_STEP)
    }

    /// Memory that the disk may take in the guest, bytes.
    #[must_use]
    pub fn memory(&self) -> u64 {
        // What lies in memory is the file system's own data, if files are not kept.
        if self.keep { self.size.0 } else { self.own_data() }
    }

    /// Bytes for the file system's own data, where they lie apart from the files' content.
    #[must_use]
    pub fn own_data(&self) -> u64 {
        (self.size.0 / 500).max(LEAST_SIZE.0)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), PathError> {
        let bad = |why: String| PathError::Value { key: "disk", why };
        let within = |range: std::ops::RangeInclusive<u32>, what: &str| {
            let number = value.parse().ok().filter(|number| range.contains(number));
            number
                .ok_or_else(|| bad(format!("{key}: '{value}' is not {what} from {} to {}", range.start(), range.end())))
        };
        match key {
            "latency" => {
                self.latency = value.parse().map_err(|e| bad(format!("{key}: {e}")))?;
                if self.latency > Time(10_000_000_000) {
                    return Err(bad(format!("latency: {} is over 10s", self.latency)));
                }
            }
            "depth" => self.depth = within(1..=1024, "a number of requests")?,
            "devices" => self.devices = within(1..=u32::from(MOST_DEVICES), "a number of devices")? as u8,
            "stripe" => {
                self.stripe = value.parse().map_err(|e| bad(format!("{key}: {e}")))?;
                let bytes = self.stripe.0;
                if !bytes.is_power_of_two() || !(4096..=1 << 30).contains(&bytes) {
                    return Err(bad(format!("stripe: {value} is not a power of two from 4KiB to 1GiB")));
                }
            }
            "fs" => {
                self.fs = match value {
                    "xfs" => FileSystem::Xfs,
                    "ext4" => FileSystem::Ext4,
                    _ => return Err(bad(format!("fs: '{value}' is neither xfs nor ext4"))),
                };
            }
            "size" => self.size = value.parse().map_err(|e| bad(format!("{key}: {e}")))?,
            "keep" => {
                self.keep = match value {
                    "yes" => true,
                    "no" => false,
                    _ => return Err(bad(format!("keep: '{value}' is neither yes nor no"))),
                };
            }
            _ => return Err(bad(format!("'{key}' is not one of its keys: {KEYS}"))),
        }
        Ok(())
    }

    fn check(self) -> Result<LabDisk, PathError> {
        let bad = |why: String| Err(PathError::Value { key: "disk", why });
        let least = Size(LEAST_RATE * u64::from(self.devices));
        if self.rate < least || self.rate.0 > LARGEST_RATE {
            let all = if self.devices > 1 { format!(" on {} devices", self.devices) } else { String::new() };
            return bad(format!("{}/s{all} is outside {least}/s to {}/s", self.rate, Size(LARGEST_RATE)));
        }
        if self.size < LEAST_SIZE || self.size > LARGEST_SIZE {
            return bad(format!("size: {} is outside {LEAST_SIZE} to {LARGEST_SIZE}", self.size));
        }
        if self.devices > 1 && self.stripe.0 * u64::from(self.devices) > self.size.0 {
            return bad(format!(
                "stripe: {} devices of {} are more than the disk of {}",
                self.devices, self.stripe, self.size
            ));
        }
        if !self.keep && self.fs != FileSystem::Xfs {
            return bad("keep:no needs fs:xfs, which alone keeps its own data apart".into());
        }
        Ok(self)
    }
}

impl FromStr for LabDisk {
    type Err = PathError;
    fn from_str(text: &str) -> Result<LabDisk, PathError> {
        let bad = |why| PathError::Value { key: "disk", why };
        let mut parts = text.split('+');
        let rate = parts.next().unwrap_or_default();
        let wrong = || bad(format!("'{rate}' is not a rate of bytes; write for example 1.2GB/s"));
        let rate: Size = rate.strip_suffix("/s").ok_or_else(wrong)?.parse().map_err(|_| wrong())?;
        let mut disk = LabDisk::new(rate);
        for part in parts {
            let pair = part.split_once(':');
            let (key, value) = pair.ok_or_else(|| bad(format!("'{part}' should be KEY:VALUE, as in depth:1")))?;
            disk.set(key, value)?;
        }
        disk.check()
    }
}

impl fmt::Display for LabDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let usual = LabDisk::new(self.rate);
        write!(f, "{}/s", self.rate)?;
        if self.latency != usual.latency {
            write!(f, "+latency:{}", self.latency)?;
        }
        if self.depth != usual.depth {
            write!(f, "+depth:{}", self.depth)?;
        }
        if self.devices != usual.devices {
            write!(f, "+devices:{}", self.devices)?;
        }
        if self.stripe != usual.stripe {
            write!(f, "+stripe:{}", self.stripe)?;
        }
        if self.fs != usual.fs {
            write!(f, "+fs:{}", self.fs.name())?;
        }
        if self.size != usual.size {
            write!(f, "+size:{}", self.size)?;
        }
        if self.keep != usual.keep {
            f.write_str("+keep:no")?;
        }
        Ok(())
    }
}

serde_as_text!(LabDisk);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_the_rate_and_what_differs() {
        let text = "6GB/s+latency:5ms+depth:1+devices:4+stripe:256KiB+size:200GB+keep:no";
        let disk: LabDisk = text.parse().unwrap();
        assert_eq!(disk.to_string().parse::<LabDisk>().unwrap(), disk);
        assert_eq!((disk.devices, disk.depth, disk.keep, disk.fs), (4, 1, false, FileSystem::Xfs));
        assert_eq!(disk.latency, Time(5_000_000));
        // 6 GB/s is 5722.05 MiB/s.
        assert_eq!((disk.device_mib_per_s(), disk.memory()), (1431, 512_000_000));
        let usual: LabDisk = "500MB/s+fs:ext4".parse().unwrap();
        assert_eq!(usual.to_string(), "500MB/s+fs:ext4");
        assert_eq!((usual.device_mib_per_s(), usual.memory()), (477, 2_000_000_000));
        let json = serde_json::to_string(&usual).unwrap();
        assert_eq!(serde_json::from_str::<LabDisk>(&json).unwrap(), usual);
    }

    #[test]
    fn wrong_disks_name_the_thing() {
        for (text, part) in [
            ("fast", "'fast' is not a rate of bytes; write for example 1.2GB/s"),
            ("10gbit/s", "'10gbit/s' is not a rate of bytes"),
            ("1GB/s+depth", "'depth' should be KEY:VALUE"),
            ("1GB/s+speed:3", "'speed' is not one of its keys: latency"),
            ("1GB/s+depth:0", "depth: '0' is not a number of requests from 1 to 1024"),
            ("1GB/s+devices:17", "devices: '17' is not a number of devices from 1 to 16"),
            ("1GB/s+stripe:3MiB", "is not a power of two"),
            ("1GB/s+devices:4+stripe:1GiB", "stripe: 4 devices of 1.073741824GB are more than the disk of 2GB"),
            ("1GB/s+latency:1", "latency: '1' is not a time"),
            ("1GB/s+latency:1h", "is over 10s"),
            ("1GB/s+fs:zfs", "'zfs' is neither xfs nor ext4"),
            ("1GB/s+size:1MB", "size: 1MB is outside 512MB"),
            ("1GB/s+keep:maybe", "neither yes nor no"),
            ("1GB/s+fs:ext4+keep:no", "keep:no needs fs:xfs"),
            ("1MB/s", "1MB/s is outside 40MB/s to 100GB/s"),
            ("100MB/s+devices:4", "100MB/s on 4 devices is outside 160MB/s"),
        ] {
            let error = text.parse::<LabDisk>().unwrap_err().to_string();
            assert!(error.contains(part) && error.starts_with("path disk: "), "{error}");
        }
    }
}
