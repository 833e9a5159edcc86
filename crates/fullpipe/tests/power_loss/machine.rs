//! The receiving machine's storage: a file system on a device that can lose power, and the boot of which the kernel
//! tells programs.

use std::fs;
use std::path::Path;
use std::process::Command;

use nix::mount::{MsFlags, mount, umount};

use crate::device::{Device, Off, Speed};
use crate::host::Host;
use crate::image::Image;
use crate::scenario::FileSystem;

/// Where the file system is mounted on the receiving machine.
pub const DISK: &str = "/run/disk";
/// Block devices that the kernel has for this. Each boot takes the next, so that no cache of one before serves it.
const DEVICES: usize = 16;
/// What tells programs which boot this is (`random(4)`).
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The receiving machine.
pub struct Machine {
    pub host: Host,
    file_system: FileSystem,
    speed: Speed,
    boots: usize,
}

impl Machine {
    /// A machine that has not been started. Its programs run at `host`.
    pub fn new(host: Host, file_system: FileSystem, speed: Speed) -> Machine {
        host.run(|| fs::create_dir_all(DISK).unwrap());
        Machine { host, file_system, speed, boots: 0 }
    }

    fn attach(&mut self, image: Image) -> Device {
        self.boots += 1;
        Device::attach(self.boots % DEVICES, image, self.speed)
    }

    /// Makes an empty file system.
    pub fn format(&mut self) -> Image {
        let device = self.attach(Image::default());
        let words: &[&str] = match self.file_system {
            FileSystem::Xfs => &["mkfs.xfs", "-q", "-f", "-K"],
            FileSystem::Ext4 => &["mkfs.ext4", "-q", "-F", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"],
        };
        let made = Command::new(words[0]).args(&words[1..]).arg(&device.path).output().unwrap();
        let said = String::from_utf8_lossy(&made.stderr);
        assert!(made.status.success(), "{words:?}: {}", said.lines().next().unwrap_or_default());
        device.detach().now
    }

    /// Boots with this on the device: the file system is mounted, and recovers from its log.
    pub fn boot(&mut self, image: Image) -> Device {
        let device = self.attach(image);
        let (path, boots) = (device.path.clone(), self.boots);
        let kind = match self.file_system {
            FileSystem::Xfs => "xfs",
            FileSystem::Ext4 => "ext4",
        };
        self.host.run(move || {
            mount(Some(&path), DISK, Some(kind), MsFlags::empty(), None::<&str>)
                .unwrap_or_else(|error| panic!("mounting {kind} after a boot: {error}"));
            // All that a boot changes for a program, but for the memory that is lost.
            let id = format!("/run/boot_id.{boots}");
            fs::write(&id, format!("{boots:08x}-0000-4000-8000-000000000000\n")).unwrap();
            mount(Some(Path::new(&id)), BOOT_ID, None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
        });
        device
    }

    /// Switches off. What that still writes is on the device too, behind all other requests.
    pub fn halt(&self, device: Device) -> Off {
        self.host.run(|| umount(DISK).unwrap_or_else(|error| panic!("unmounting: {error}")));
        device.detach()
    }
}
