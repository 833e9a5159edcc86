//! Disks that are full: the same command goes on once there is room.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::host::{Host, far};
use crate::large::{MIB, both_ways, repeat};
use crate::sshfs::Sshfs;
use crate::tree::{bytes, leftovers, only, same, same_content, write};

/// A small file system.
pub struct Small(PathBuf);

impl Small {
    /// In memory.
    pub fn mount(at: PathBuf, size: &str) -> Option<Small> {
        Small::with(at, Command::new("mount").args(["-t", "tmpfs", "-o", size, "fullpipe-test"]))
    }

    /// On a disk of so many bytes, which is a file.
    pub fn disk(at: PathBuf, image: &Path, size: usize) -> Option<Small> {
        File::create(image).unwrap().set_len(size as u64).unwrap();
        let made = Command::new("mkfs.ext4").args(["-q", "-F", "-m", "0", "-O", "^has_journal"]).arg(image).status();
        if !made.is_ok_and(|made| made.success()) {
            eprintln!("not tested: there is no mkfs.ext4");
            return None;
        }
        Small::with(at, Command::new("mount").args(["-o", "loop"]).arg(image))
    }

    /// Lays one folder over another, on which nothing is written.
    pub fn overlay(at: PathBuf, lower: &Path, upper: &Path) -> Option<Small> {
        let (files, work) = (upper.join("files"), upper.join("work"));
        fs::create_dir_all(&files).unwrap();
        fs::create_dir_all(&work).unwrap();
        let show = |path: &Path| path.display().to_string();
        let layers = format!("lowerdir={},upperdir={},workdir={}", show(lower), show(&files), show(&work));
        Small::with(at, Command::new("mount").args(["-t", "overlay", "overlay", "-o", &layers]))
    }

    fn with(at: PathBuf, mount: &mut Command) -> Option<Small> {
        fs::create_dir_all(&at).unwrap();
        let mounted = nix::unistd::geteuid().is_root() && mount.arg(&at).status().unwrap().success();
        if !mounted {
            eprintln!("not tested: no small file system can be mounted here");
        }
        mounted.then_some(Small(at))
    }

    pub fn unmount(self) {
        let done = Command::new("umount").arg(&self.0).status().unwrap();
        assert!(done.success());
        std::mem::forget(self);
    }

    fn grow(&self, size: &str) {
        let grown = Command::new("mount").args(["-o", &format!("remount,{size}")]).arg(&self.0).status().unwrap();
        assert!(grown.success());
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// A disk whose end has gone (EIO): the rest of a file stays, and once it can be read again no more than that is sent.
#[test]
fn a_disk_that_cannot_be_read() {
    both_ways(|push| {
        for how in ["--direct off -n 2", "--direct on -n 2 --block 1MiB"] {
            let host = Host::start();
            let (at, image) = (host.file("disk"), host.file("image"));
            let Some(disk) = Small::disk(at.clone(), &image, 80 * MIB) else { return };
            write(at.join("large"), bytes(40 * MIB, 7));
            disk.unmount();
            let whole = fs::read(&image).unwrap();
            // The file system's own cache is empty now.
            let _disk = Small::with(at.clone(), Command::new("mount").args(["-o", "loop"]).arg(&image)).unwrap();
            let length =
                |bytes: usize| File::options().write(true).open(&image).unwrap().set_len(bytes as u64).unwrap();
            length(30 * MIB);
            symlink(at.join("large"), host.file("large")).unwrap();
            let failed = repeat(&host, push, how).fails(1, "large: cannot be read at the source: i/o error");
            assert!(!host.file("to/large").exists());
            let had = failed.number("bytes");
            assert!(had > 5 * MIB as u64, "{}", failed.out);
            let again = repeat(&host, push, how).fails(1, "large: cannot be read at the source: i/o error");
            assert!(again.number("bytes") < 8 * MIB as u64, "{}", again.out);
            length(whole.len());
            File::options()
                .write(true)
                .open(&image)
                .unwrap()
                .write_all_at(&whole[30 * MIB..], 30 * MIB as u64)
                .unwrap();
            let done = repeat(&host, push, how).ok();
            assert!(done.number("bytes") < 35 * MIB as u64, "{} bytes were sent again", done.number("bytes"));
            same(&at.join("large"), &host.file("to/large"));
            only(&host.file("to"), &["large"]);
        }
    });
}

#[test]
fn a_full_disk() {
    both_ways(|push| {
        let host = Host::start();
        let Some(small) = Small::mount(host.file("to"), "size=20m") else { return };
        write(host.file("large"), bytes(30 * MIB, 7));
        repeat(&host, push, "").fails(5, "no space left at the destination (");
        assert!(!host.file("to/large").exists());
        small.grow("size=40m");
        let done = repeat(&host, push, "").ok();
        assert!(done.number("bytes") < 25 * MIB as u64, "{} bytes were sent again", done.number("bytes"));
        same(&host.file("large"), &host.file("to/large"));
        only(&host.file("to"), &["large"]);
        // Small files meet it too; none of them is there in part.
        for i in 0..60 {
            write(host.file("tree").join(i.to_string()), bytes(300 << 10, i as u64));
        }
        let tree = |host: &Host| {
            let mut cp = host.cp();
            cp.arg("-r").arg("--json").arg(host.file("tree")).arg(host.far("to"));
            cp
        };
        tree(&host).fails(5, "no space left at the destination (");
        for entry in fs::read_dir(host.file("to/tree")).unwrap() {
            let entry = entry.unwrap();
            if !entry.file_name().to_string_lossy().starts_with(".fullpipe.") {
                assert_eq!(entry.metadata().unwrap().len(), 300 << 10, "{:?}", entry.path());
            }
        }
        small.grow("size=60m");
        let done = tree(&host).ok();
        assert!(done.number("skipped") > 10, "{}", done.out);
        same(&host.file("tree"), &host.file("to/tree"));
        assert!(leftovers(&host.file("to")).is_empty());
    });
}

/// What a copy beside the file has left does not take the room that one in its place needs.
#[test]
fn a_full_disk_with_room_for_a_copy_in_place() {
    both_ways(|push| {
        let host = Host::start();
        let Some(_small) = Small::mount(host.file("to"), "size=45m") else { return };
        write(host.file("from/large"), bytes(40 * MIB, 7));
        write(host.file("to/large"), bytes(30 * MIB, 5));
        let inode = fs::metadata(host.file("to/large")).unwrap().ino();
        host.copy(push, "-r", "from/.", "to/").fails(5, "no space left at the destination (");
        // That of another command has to be dealt with first.
        let other = "; an unfinished copy of another command takes room there (.fullpipe.*): finish or remove it";
        host.copy(push, "", "from/large", "to/").fails(5, other);
        host.copy(push, "--inplace", "from/large", "to/").fails(5, other);
        host.copy(push, "-r --inplace", "from/.", "to/").ok();
        only(&host.file("to"), &["large"]);
        same(&host.file("from/large"), &host.file("to/large"));
        assert_eq!(fs::metadata(host.file("to/large")).unwrap().ino(), inode);
    });
}

#[test]
fn a_disk_that_is_full_before_anything_has_come() {
    both_ways(|push| {
        let host = Host::start();
        let Some(small) = Small::mount(host.file("to"), "size=4m") else { return };
        write(host.file("tree/large"), bytes(30 * MIB, 7));
        let again = || {
            let mut cp = host.cp();
            let (from, to) = (host.file("tree"), host.file("to/new"));
            let ends = if push { (from.into(), far(&to)) } else { (far(&from), to.into()) };
            cp.arg("-r").arg(ends.0).arg(ends.1);
            cp
        };
        again().fails(5, "no space left at the destination (");
        assert!(host.file("to/new").is_dir());
        small.grow("size=40m");
        // The folder is its own, and not one to copy into.
        again().ok();
        only(&host.file("to"), &["new"]);
        same(&host.file("tree"), &host.file("to/new"));
    });
}

#[test]
fn a_disk_without_inodes() {
    both_ways(|push| {
        let host = Host::start();
        let Some(small) = Small::mount(host.file("to"), "size=20m,nr_inodes=30") else { return };
        for i in 0..60 {
            write(host.file("large").join(i.to_string()), bytes(10, i as u64));
        }
        repeat(&host, push, "-r").fails(5, "no inodes left (df -i) at the destination (");
        small.grow("nr_inodes=100");
        repeat(&host, push, "-r").ok();
        same(&host.file("large"), &host.file("to/large"));
    });
}

#[test]
fn a_full_disk_past_the_cache() {
    both_ways(|push| {
        let host = Host::start();
        let Some(_disk) = Small::disk(host.file("to"), &host.file("image"), 64 * MIB) else { return };
        // Nobody can tell beforehand what a file with a hole will take.
        write(host.file("large"), bytes(30 * MIB, 7));
        File::options().write(true).open(host.file("large")).unwrap().set_len(80 << 20).unwrap();
        write(host.file("to/other"), bytes(40 * MIB, 8));
        let how = "--direct on --block 4MiB -n 2";
        // The file's own blocks meet it, not the journal.
        repeat(&host, push, how).fails(5, "no space left at the destination (large)");
        assert!(!host.file("to/large").exists());
        fs::remove_file(host.file("to/other")).unwrap();
        let done = repeat(&host, push, how).ok();
        assert!(done.number("bytes") < 25 * MIB as u64, "{} bytes were sent again", done.number("bytes"));
        same(&host.file("large"), &host.file("to/large"));
        only(&host.file("to"), &["large", "lost+found"]);
    });
}

/// A file whose extended attribute the destination's file system does not take is copied without it.
#[test]
fn an_attribute_that_is_too_large_is_named_and_its_file_copied() {
    both_ways(|push| {
        let host = Host::start();
        let Some(_memory) = Small::mount(host.file("memory"), "size=40m") else { return };
        let Some(_disk) = Small::disk(host.file("to"), &host.file("image"), 64 * MIB) else { return };
        let tree = host.file("memory/tree");
        for (name, len) in [("small", 10), ("large", 3 * MIB), ("other", 10), ("folder/below", 1)] {
            write(tree.join(name), bytes(len, 1));
        }
        for name in ["small", "large", "folder"] {
            xattr::set(tree.join(name), "user.short", b"value").unwrap();
            xattr::set(tree.join(name), "user.long", &[b'0'; 20_000]).unwrap();
        }
        let copy = |how: &str, to: &str| host.copy(push, how, "memory/tree", to);
        let done = copy("-r --xattrs --json", "to/a").fails(1, "3 files or folders were copied without all of the");
        for name in ["small", "large", "folder"] {
            let line = format!(
                "not kept: tree/{name}: extended attribute user.long: it is too large for the destination's file system\n"
            );
            assert!(done.err.contains(&line), "{}", done.err);
            let value = |attribute: &str| xattr::get(host.file("to/a").join(name), attribute).unwrap();
            assert_eq!((value("user.short").as_deref(), value("user.long")), (Some(&b"value"[..]), None), "{name}");
        }
        assert_eq!((done.number("files"), done.number("left_total")), (4, 0), "{}", done.out);
        same(&tree, &host.file("to/a"));
        assert!(leftovers(&host.file("to")).is_empty());
        copy("-r", "to/b").ok();
    });
}

/// A file system without access control lists gives the group no more than the list did.
#[test]
fn a_destination_without_access_lists_is_told_once() {
    let host = Host::start();
    let to = host.file("to");
    let Some(_disk) = Small::with(to, Command::new("mount").args(["-t", "ramfs", "fullpipe-test"])) else { return };
    for (name, len) in [("small", 10), ("large", 3 * MIB), ("folder/below", 1)] {
        write(host.file("tree").join(name), bytes(len, 1));
    }
    for name in ["small", "large", "folder"] {
        let path = host.file("tree").join(name);
        if xattr::set(path, "system.posix_acl_access", &crate::rights::access_list()).is_err() {
            return;
        }
    }
    let mut cp = host.cp();
    let done = cp.words("-r --acls").arg(host.file("tree")).arg(host.far("to/"));
    let done = done.fails(1, "3 files or folders were copied without all of the attributes");
    let lines: Vec<&str> = done.err.lines().filter(|line| line.starts_with("not kept: ")).collect();
    assert!(lines.len() == 1 && lines[0].contains("access control lists of 3 files or folders"), "{}", done.err);
    for name in ["small", "large", "folder"] {
        let mode = fs::metadata(host.file("to/tree").join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o640, "{name}");
    }
}

/// A file system without extended attributes keeps the files, and that is told once.
#[test]
fn a_destination_without_attributes_is_told_once() {
    both_ways(|push| {
        let host = Host::start();
        let (from, to) = (host.file("tree"), host.file("to"));
        let Some(_disk) = Small::with(to, Command::new("mount").args(["-t", "ramfs", "fullpipe-test"])) else { return };
        for (name, len) in [("a", 10), ("b", 10), ("large", 3 * MIB), ("folder/below", 1)] {
            write(from.join(name), bytes(len, 1));
            if xattr::set(from.join(name), "user.test", b"value").is_err() {
                return;
            }
        }
        let done = host
            .copy(push, "-r --xattrs --json -n 1", "tree", "to/")
            .fails(1, "4 files or folders were copied without all of the attributes");
        let lines: Vec<&str> = done.err.lines().filter(|line| line.starts_with("not kept: ")).collect();
        assert!(lines.len() == 1 && lines[0].contains("extended attributes of 4 files or folders"), "{}", done.err);
        assert!(lines[0].ends_with("the destination's file system has none"), "{}", done.err);
        same(&from, &host.file("to/tree"));
        assert!(leftovers(&host.file("to")).is_empty());
    });
}

/// sshfs takes what is written, and says later that its server has no room.
#[test]
fn a_disk_that_is_full_behind_a_network_file_system_is_no_success() {
    let Some(mount) = Sshfs::mount(&[]) else { return };
    let Some(_small) = Small::mount(mount.far().join("small"), "size=1m") else { return };
    let host = Host::start();
    for (name, len) in [("small", 600_000), ("second", 600_000), ("large", 3 * MIB)] {
        write(host.file("from").join(name), bytes(len, 1));
    }
    let to = format!("far:{}", mount.at().join("small").display());
    for names in [&["small", "second"][..], &["large"]] {
        let mut cp = host.cp();
        cp.words("--no-sparse --retries 0");
        for name in names {
            cp.arg(host.file("from").join(name));
        }
        let done = cp.arg(format!("{to}/")).run();
        // SFTP has no number for a full disk.
        assert_eq!(done.code(), 1, "{names:?}: {} {}", done.out, done.err);
        assert!(done.err.contains("not copied: "), "{names:?}: {}", done.err);
        // Which of two that go at once finds the disk full is open.
        let (whole, lacking): (Vec<&str>, Vec<&str>) =
            names.iter().partition(|name| mount.far().join("small").join(name).exists());
        assert!(!lacking.is_empty(), "{names:?}: {}", done.err);
        for name in lacking {
            assert!(done.err.contains(&format!("not copied: {name}")), "{name}: {}", done.err);
        }
        for name in whole {
            same_content(&mount.far().join("small").join(name), &host.file("from").join(name));
        }
    }
}
