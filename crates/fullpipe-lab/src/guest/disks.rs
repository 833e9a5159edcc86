//! Makes the disks of the ends: devices of the kernel's `null_blk`, whose rate and latency are exact in virtual time, with a file
//! system on them.
//!
//! `null_blk` lets pass what its rate allows in each tick of 20 ms, and completes a request after its latency
//! (drivers/block/null_blk/main.c). Several devices are striped by the device mapper. If the content of files is not kept, XFS
//! has its own data on one device, which is in memory, and the files on another (its realtime device), which keeps nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use fullpipe_net::sys;
use fullpipe_path::lab_disk::{FileSystem, LabDisk};
use nix::mount::{MsFlags, mount};

use super::step::{Doing, Fallible};
use super::topology::Net;
use crate::job::{DISK, DMSETUP, Job, MKFS_EXT4, MKFS_XFS, TOOL_FOLDERS};

/// Where the kernel is told of devices.
const CONFIGFS: &str = "/sys/kernel/config";

/// Bytes of a sector in the kernel's interfaces.
const SECTOR: u64 = 512;
/// Largest request of a device, bytes. A request has up to 128 parts (`BLK_MAX_SEGMENTS`), which in the worst case are pages of
/// 4 KiB. So a larger limit would make the size of requests depend on where a program's memory lies.
const MAX_REQUEST_BYTES: u64 = 512 << 10;

/// What a device is to be.
struct Device {
    name: String,
    bytes: u64,
    /// Whether it keeps what is written to it, in memory.
    keeps: bool,
    latency_ns: u64,
    depth: u32,
    /// Rate, MiB/s; 0 for no limit.
    mib_per_s: u64,
}

impl Device {
    /// Makes the device. Returns its node.
    fn make(&self) -> Fallible<PathBuf> {
        let folder = Path::new(CONFIGFS).join("nullb").join(&self.name);
        fs::create_dir(&folder).doing(|| format!("making the device {}", self.name))?;
        let set = |key: &str, value: u64| {
            fs::write(folder.join(key), value.to_string())
                .doing(|| format!("setting {key} of {} to {value}", self.name))
        };
        set("size", self.bytes.div_ceil(1 << 20))?;
        set("blocksize", 4096)?;
        set("memory_backed", self.keeps.into())?;
        // Requests are completed by a timer.
        set("irqmode", 2)?;
        set("completion_nsec", self.latency_ns.max(1))?;
        set("hw_queue_depth", self.depth.into())?;
        set("max_sectors", MAX_REQUEST_BYTES / SECTOR)?;
        set("mbps", self.mib_per_s)?;
        set("power", 1)?;
        // Older kernels number the nodes.
        let index = fs::read_to_string(folder.join("index")).doing(|| format!("finding the device {}", self.name))?;
        let names = [format!("/dev/{}", self.name), format!("/dev/nullb{}", index.trim())];
        names
            .into_iter()
            .map(PathBuf::from)
            .find(|node| node.exists())
            .ok_or_else(|| format!("no node of {}", self.name))
    }
}

/// Runs a program of the host.
fn tool((program, _): (&str, &str), arguments: &[&str]) -> Fallible<String> {
    let done = Command::new(program).args(arguments).env("PATH", TOOL_FOLDERS).output();
    let done = done.doing(|| format!("starting {program}"))?;
    if done.status.success() {
        return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&done.stderr).trim().replace('\n', "; ");
    Err(format!("{program} failed ({}): {said}", done.status))
}

/// Stripes devices of `bytes` each, a multiple of the stripe. Returns the node of the whole.
fn striped(name: &str, nodes: &[PathBuf], bytes: u64, stripe: u64) -> Fallible<PathBuf> {
    let count = nodes.len();
    let parts: String = nodes.iter().map(|node| format!(" {} 0", node.display())).collect();
    let table = format!("0 {} striped {count} {}{parts}", bytes / SECTOR * count as u64, stripe / SECTOR);
    tool(DMSETUP, &["create", name, "--noudevsync", "--table", &table])?;
    let minor = tool(DMSETUP, &["info", "--columns", "--noheadings", "-o", "minor", name])?;
    Ok(PathBuf::from(format!("/dev/dm-{}", minor.trim())))
}

/// A disk that can be mounted.
struct Formatted {
    node: PathBuf,
    kind: &'static str,
    options: String,
}

fn format(end: &str, disk: &LabDisk) -> Fallible<Formatted> {
    let devices = u64::from(disk.devices);
    let bytes = disk.size.0.div_ceil(devices * disk.stripe.0) * disk.stripe.0;
    let device = |i: u64| Device {
        name: format!("disk_{end}{i}"),
        bytes,
        keeps: disk.keep,
        latency_ns: disk.latency.0,
        depth: disk.depth,
        mib_per_s: disk.device_mib_per_s(),
    };
    let nodes = (0..devices).map(|i| device(i).make()).collect::<Fallible<Vec<PathBuf>>>()?;
    let node = match &nodes[..] {
        [one] => one.clone(),
        several => striped(&format!("disk_{end}"), several, bytes, disk.stripe.0)?,
    };
    let text = |path: &Path| path.display().to_string();
    let stripes = format!("su={},sw={devices}", disk.stripe.0);
    match (disk.fs, disk.keep) {
        (FileSystem::Xfs, true) => {
            let mut flags = vec!["-q", "-K", "-f"];
            if devices > 1 {
                flags.extend(["-d", &stripes]);
            }
            let node_text = text(&node);
            tool(MKFS_XFS, &[&flags[..], &[&node_text]].concat())?;
            Ok(Formatted { node, kind: "xfs", options: String::new() })
        }
        (FileSystem::Xfs, false) => {
            let own = Device {
                name: format!("disk_{end}_own"),
                bytes: disk.own_data(),
                keeps: true,
                latency_ns: disk.latency.0,
                depth: disk.depth,
                mib_per_s: 0,
            };
            let own = own.make()?;
            let files = format!("rtdev={},extsize=1m", text(&node));
            tool(MKFS_XFS, &["-q", "-K", "-f", "-d", "rtinherit=1", "-r", &files, &text(&own)])?;
            Ok(Formatted { node: own, kind: "xfs", options: format!("rtdev={}", text(&node)) })
        }
        (FileSystem::Ext4, _) => {
            let now = "nodiscard,lazy_itable_init=0,lazy_journal_init=0";
            let node_text = text(&node);
            tool(MKFS_EXT4, &["-q", "-F", "-m", "0", "-E", now, &node_text])?;
            Ok(Formatted { node, kind: "ext4", options: String::new() })
        }
    }
}

/// Makes the disks of a path's ends, and mounts each at its end, before the scenario's time begins.
pub(super) fn make(job: &Job, net: &Net) -> Fallible<()> {
    let ends = [("a", &job.path.disk_a, &net.a), ("b", &job.path.disk_b, &net.b)];
    if ends.iter().all(|(_, disk, _)| disk.is_none()) {
        return Ok(());
    }
    mount(Some("configfs"), CONFIGFS, Some("configfs"), MsFlags::empty(), None::<&str>)
        .doing(|| format!("mounting {CONFIGFS}"))?;
    for (end, disk, node) in ends {
        let Some(disk) = disk else { continue };
        let made = format(end, disk).doing(|| format!("making the disk of end {end}"))?;
        node.run(move |_| {
            let Formatted { node, kind, options } = made;
            mount(Some(&node), DISK, Some(kind), MsFlags::empty(), Some(options.as_str()))
                .doing(|| format!("mounting {DISK}"))?;
            // Programs of any user write there, as in /tmp.
            fs::set_permissions(DISK, std::os::unix::fs::PermissionsExt::from_mode(0o1777))
                .doing(|| format!("opening {DISK} to users"))
        })?;
    }
    let ready_ns = sys::now_ns();
    if ready_ns > job.zero_ns() {
        return Err(format!("the disks took {:.0} s to format; give faster or smaller ones", ready_ns as f64 / 1e9));
    }
    Ok(())
}
