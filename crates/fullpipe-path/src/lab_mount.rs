//! The file system of end b that end a mounts over an emulated path. The testbed mounts it in its guest (`nfs.rs` there), and
//! programs of end a see it as `/mount`.

use std::fmt;
use std::str::FromStr;

use crate::path_error::PathError;
use crate::storage::binary;
use crate::units::{Size, serde_as_text};

/// The keys of a mount, as errors list them.
const KEYS: &str = "vers, nconnect, rsize, wsize, read_ahead, slots, sync, size";
/// Versions of NFS that the guest's server and client have.
const VERSIONS: [&str; 3] = ["4.0", "4.1", "4.2"];
/// Most bytes of one request (`NFSSVC_MAXBLKSIZE` of the server).
const MOST_REQUEST: u64 = 1 << 20;
/// Unit of the sizes of requests and of the read-ahead, bytes.
const PAGE: u64 = 4096;
/// Least and most bytes of the served file system.
const SIZES: std::ops::RangeInclusive<u64> = 64_000_000..=1 << 40;

/// A mount by NFS.
///
/// Its text is `nfs`, and what differs from the default: `nfs+nconnect:4+read_ahead:64MiB`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabMount {
    /// Version of NFS: `4.0`, `4.1` or `4.2`.
    pub vers: String,
    /// Number of TCP connections.
    pub nconnect: u16,
    /// Most bytes of a request that reads.
    pub rsize: Size,
    /// Most bytes of a request that writes.
    pub wsize: Size,
    /// Most bytes that the kernel reads ahead of a program.
    pub read_ahead: Size,
    /// Most requests under way that the client asks the server for; the server may grant fewer. Version 4.0 has none.
    pub slots: u16,
    /// Whether each write waits until the server has it.
    pub sync: bool,
    /// Size of the file system that end b serves from memory, if it has no disk.
    pub size: Size,
}

impl Default for LabMount {
    fn default() -> LabMount {
        LabMount {
            vers: "4.2".into(),
            nconnect: 1,
            rsize: Size(MOST_REQUEST),
            wsize: Size(MOST_REQUEST),
            read_ahead: Size(128 << 10),
            slots: 64,
            sync: false,
            size: Size(2_000_000_000),
        }
    }
}

impl LabMount {
    fn set(&mut self, key: &str, value: &str) -> Result<(), PathError> {
        let bad = |why: String| PathError::Value { key: "mount", why: format!("{key}: {why}") };
        let within = |range: std::ops::RangeInclusive<u16>| {
            let number = value.parse().ok().filter(|number| range.contains(number));
            number.ok_or_else(|| bad(format!("'{value}' is not a number from {} to {}", range.start(), range.end())))
        };
        let size = || value.parse::<Size>().map_err(|e| bad(e.to_string()));
        let pages = |most: u64, text: &str| {
            let size = size()?;
            if !size.0.is_multiple_of(PAGE) || !(PAGE..=most).contains(&size.0) {
                return Err(bad(format!("{value} is not a multiple of 4KiB from 4KiB to {text}")));
            }
            Ok(size)
        };
        match key {
            "vers" => {
                if !VERSIONS.contains(&value) {
                    return Err(bad(format!("'{value}' is none of {}", VERSIONS.join(", "))));
                }
                self.vers = value.to_owned();
            }
            "nconnect" => self.nconnect = within(1..=16)?,
            "rsize" => self.rsize = pages(MOST_REQUEST, "1MiB")?,
            "wsize" => self.wsize = pages(MOST_REQUEST, "1MiB")?,
            "read_ahead" => self.read_ahead = pages(1 << 30, "1GiB")?,
            "slots" => self.slots = within(1..=1024)?,
            "sync" => {
                self.sync = match value {
                    "yes" => true,
                    "no" => false,
                    _ => return Err(bad(format!("'{value}' is neither yes nor no"))),
                };
            }
            "size" => {
                self.size = size()?;
                if !SIZES.contains(&self.size.0) {
                    let (least, most) = (Size(*SIZES.start()), Size(*SIZES.end()));
                    return Err(bad(format!("{} is outside {least} to {most}", self.size)));
                }
            }
            _ => {
                let why = format!("'{key}' is not one of its keys: {KEYS}");
                return Err(PathError::Value { key: "mount", why });
            }
        }
        Ok(())
    }
}

impl FromStr for LabMount {
    type Err = PathError;
    fn from_str(text: &str) -> Result<LabMount, PathError> {
        let bad = |why| PathError::Value { key: "mount", why };
        let mut parts = text.split('+');
        let kind = parts.next().unwrap_or_default();
        if kind != "nfs" {
            return Err(bad(format!("'{kind}' is not nfs, which alone the testbed mounts")));
        }
        let mut mount = LabMount::default();
        let mut has_slots = false;
        for part in parts {
            let pair = part.split_once(':');
            let (key, value) = pair.ok_or_else(|| bad(format!("'{part}' should be KEY:VALUE, as in nconnect:4")))?;
            mount.set(key, value)?;
            has_slots |= key == "slots";
        }
        if has_slots && mount.vers == "4.0" {
            return Err(bad(
                "slots: NFS 4.0 has no sessions, so it has no slots; leave slots out, or give vers:4.1".into()
            ));
        }
        Ok(mount)
    }
}

impl fmt::Display for LabMount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let usual = LabMount::default();
        f.write_str("nfs")?;
        if self.vers != usual.vers {
            write!(f, "+vers:{}", self.vers)?;
        }
        if self.nconnect != usual.nconnect {
            write!(f, "+nconnect:{}", self.nconnect)?;
        }
        if self.rsize != usual.rsize {
            write!(f, "+rsize:{}", binary(self.rsize.0))?;
        }
        if self.wsize != usual.wsize {
            write!(f, "+wsize:{}", binary(self.wsize.0))?;
        }
        if self.read_ahead != usual.read_ahead {
            write!(f, "+read_ahead:{}", binary(self.read_ahead.0))?;
        }
        if self.slots != usual.slots {
            write!(f, "+slots:{}", self.slots)?;
        }
        if self.sync {
            f.write_str("+sync:yes")?;
        }
        if self.size != usual.size {
            write!(f, "+size:{}", self.size)?;
        }
        Ok(())
    }
}

serde_as_text!(LabMount);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_what_differs() {
        assert_eq!(LabMount::default().to_string(), "nfs");
        let text = "nfs+vers:4.1+nconnect:4+rsize:64KiB+wsize:128KiB+read_ahead:64MiB+slots:1024+sync:yes+size:5GB";
        let mount: LabMount = text.parse().unwrap();
        assert_eq!(mount.to_string(), text);
        assert_eq!((mount.vers.as_str(), mount.nconnect, mount.slots, mount.sync), ("4.1", 4, 1024, true));
        assert_eq!((mount.rsize, mount.read_ahead, mount.size), (Size(65536), Size(64 << 20), Size(5_000_000_000)));
        let json = serde_json::to_string(&mount).unwrap();
        assert_eq!(serde_json::from_str::<LabMount>(&json).unwrap(), mount);
        assert_eq!("nfs+vers:4.2+slots:64".parse::<LabMount>().unwrap(), LabMount::default());
    }

    #[test]
    fn wrong_mounts_name_the_thing() {
        for (text, part) in [
            ("lustre", "'lustre' is not nfs, which alone the testbed mounts"),
            ("nfs+nconnect", "'nconnect' should be KEY:VALUE"),
            ("nfs+nconnect:17", "nconnect: '17' is not a number from 1 to 16"),
            ("nfs+vers:3", "vers: '3' is none of 4.0, 4.1, 4.2"),
            ("nfs+rsize:1000", "rsize: '1000'"),
            ("nfs+wsize:2MiB", "wsize: 2MiB is not a multiple of 4KiB from 4KiB to 1MiB"),
            ("nfs+read_ahead:1KiB", "read_ahead: 1KiB is not a multiple of 4KiB"),
            ("nfs+slots:0", "slots: '0' is not a number from 1 to 1024"),
            ("nfs+vers:4.0+slots:8", "slots: NFS 4.0 has no sessions"),
            ("nfs+slots:64+vers:4.0", "leave slots out, or give vers:4.1"),
            ("nfs+sync:on", "sync: 'on' is neither yes nor no"),
            ("nfs+size:1MB", "size: 1MB is outside"),
            ("nfs+async:yes", "'async' is not one of its keys: vers, nconnect"),
        ] {
            let error = text.parse::<LabMount>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
