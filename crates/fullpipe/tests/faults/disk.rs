//! Disks whose faults can be chosen: ext4 on a device of the kernel's device mapper, which stands still, or has a block that
//! cannot be read, or is full.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::mount::{MsFlags, mount, umount};
use nix::sys::statvfs::statvfs;

use crate::host::Host;

/// What the path is told of the disks of both ends.
pub const WORDS: &str = "disk=200MB/s+size:512MB+fs:ext4";
/// Where an end sees the disk that the path gives it.
const GIVEN: &str = "/disk";
/// Where it is instead: all that the driver makes is below.
const DISK: &str = "/space";
/// What takes the room of a full disk.
const FILLER: &str = "/space/filler";
/// Bytes of a block of the file system, and of a sector.
const BLOCK: u64 = 4096;
const SECTOR: u64 = 512;

/// The disk of one end.
#[derive(Clone)]
pub struct Disk {
    /// Name of the mapped device.
    name: String,
    /// Node of the device below it.
    below: String,
    sectors: u64,
}

/// Runs a program; returns what it printed.
fn tool(arguments: &[&str], input: &str) -> String {
    use std::io::Write;
    let mut command = Command::new(arguments[0]);
    command.args(&arguments[1..]).env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let done = child.wait_with_output().unwrap();
    assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

impl Disk {
    /// Makes the disk of an end anew.
    pub fn make(host: &Host, end: char) -> Disk {
        let below = format!("/dev/disk_{end}0");
        host.run(move || {
            umount(GIVEN).unwrap();
            let sectors = tool(&["blockdev", "--getsz", &below], "").trim().parse().unwrap();
            let disk = Disk { name: format!("fault_{end}"), below, sectors };
            tool(&["dmsetup", "create", &disk.name, "--noudevsync"], &disk.table(None));
            let minor = tool(&["dmsetup", "info", "--columns", "--noheadings", "-o", "minor", &disk.name], "");
            let node = format!("/dev/dm-{}", minor.trim());
            let now = "nodiscard,lazy_itable_init=0,lazy_journal_init=0";
            tool(&["mkfs.ext4", "-q", "-F", "-m", "0", "-E", now, &node], "");
            mount(Some(node.as_str()), DISK, Some("ext4"), MsFlags::empty(), None::<&str>).unwrap();
            fs::set_permissions(DISK, fs::Permissions::from_mode(0o755)).unwrap();
            disk
        })
    }

    /// The device mapper's table: the whole device, but for a block that is bad.
    fn table(&self, bad: Option<u64>) -> String {
        let Disk { below, sectors, .. } = self;
        let part = |from: u64, to: u64| format!("{from} {} linear {below} {from}\n", to - from);
        match bad.map(|block| block * BLOCK / SECTOR) {
            None => part(0, *sectors),
            Some(at) => {
                let after = at + BLOCK / SECTOR;
                part(0, at) + &format!("{at} {} error\n", after - at) + &part(after, *sectors)
            }
        }
    }

    fn set(&self, bad: Option<u64>) {
        tool(&["dmsetup", "load", &self.name], &self.table(bad));
        self.suspend();
        self.resume();
    }

    fn suspend(&self) {
        tool(&["dmsetup", "suspend", "--nolockfs", "--noudevsync", &self.name], "");
    }

    fn resume(&self) {
        tool(&["dmsetup", "resume", "--noudevsync", &self.name], "");
    }

    /// Lets the device stand still for so long, whatever this program waits for meanwhile.
    pub fn stall(&self, time: Duration) -> std::thread::JoinHandle<()> {
        let disk = self.clone();
        std::thread::spawn(move || {
            disk.suspend();
            std::thread::sleep(time);
            disk.resume();
        })
    }

    /// Makes the first block of a file unreadable. Says whether it has one.
    pub fn spoil(&self, host: &Host, file: &Path) -> bool {
        let file = file.to_owned();
        let found = host.run(move || {
            // An adversary may have moved it away.
            fs::File::open(&file).ok()?.sync_all().unwrap();
            let text = file.to_str()?;
            // ext: logical: physical: length: ...
            let extents = tool(&["filefrag", "-v", &format!("-b{BLOCK}"), text], "");
            let first = extents.lines().find(|line| line.trim_start().starts_with("0:"))?;
            let mut fields = first.split(':').skip(1);
            let (logical, physical) = (fields.next()?, fields.next()?);
            let at = |range: &str| range.split("..").next()?.trim().parse::<u64>().ok();
            (at(logical)? == 0).then_some(())?;
            let block = at(physical)?;
            // What is in memory would be read from there.
            tool(&["dd", &format!("if={text}"), "iflag=nocache", "count=0", "status=none"], "");
            Some(block)
        });
        if let Some(block) = found {
            self.set(Some(block));
        }
        found.is_some()
    }

    /// Makes every block readable again.
    pub fn mend(&self) {
        self.set(None);
    }
}

/// Takes all the room of a disk.
pub fn fill(host: &Host) {
    host.run(|| {
        let free = statvfs(DISK).map(|room| room.blocks_available() * room.fragment_size()).unwrap();
        // What a copy takes meanwhile is not there any more.
        let _ =
            Command::new("fallocate").args(["-l", &free.saturating_sub(64 << 10).max(1).to_string(), FILLER]).status();
    });
}

/// Gives it back.
pub fn empty(host: &Host) {
    host.run(|| {
        let _ = fs::remove_file(FILLER);
    });
}
