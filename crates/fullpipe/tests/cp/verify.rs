//! `--verify`: what lies in storage under a file's name is what the sender read.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::disks::Small;
use crate::host::Host;
use crate::large::{MIB, both_ways, repeat};
use crate::tree::{bytes, leftovers, same, write};

/// What the storage damages, wherever it lies.
const MARK: &[u8] = b"storage that damages what is written to it";

/// Storage at fault: flips a bit of each [`MARK`] that reaches the device, until it is stopped.
fn damage(image: &Path, stop: &AtomicBool) {
    let file = File::options().read(true).write(true).open(image).unwrap();
    let size = file.metadata().unwrap().len();
    let mut window = vec![0; MIB + MARK.len()];
    while !stop.load(Ordering::SeqCst) {
        let mut at = 0;
        while at < size {
            let n = file.read_at(&mut window, at).unwrap();
            let found = window[..n].windows(MARK.len()).step_by(512).position(|bytes| bytes == MARK);
            if let Some(found) = found {
                file.write_all_at(&[MARK[0] ^ 1], at + 512 * found as u64).unwrap();
            }
            at += MIB as u64;
        }
    }
}

/// Content as it lies in storage, past the cache.
fn stored(path: &Path) -> Vec<u8> {
    let file = File::open(path).unwrap();
    file.sync_all().unwrap();
    nix::fcntl::posix_fadvise(&file, 0, 0, nix::fcntl::PosixFadviseAdvice::POSIX_FADV_DONTNEED).unwrap();
    fs::read(path).unwrap()
}

#[test]
fn a_file_that_storage_damages_loses_its_name_and_is_mended() {
    both_ways(|push| {
        let host = Host::start();
        let (at, image) = (host.file("to"), host.file("image"));
        let Some(_disk) = Small::disk(at.clone(), &image, 64 * MIB) else { return };
        let mut content = bytes(24 * MIB, 7);
        // At the beginning of a sector, and early: the storage has damaged it before the file has its name.
        content[512 * 100..][..MARK.len()].copy_from_slice(MARK);
        write(host.file("large"), &content);
        let how = "--pacing 150mbit --block 1MiB --direct on";
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| damage(&image, &stop));
            // Nobody notices without --verify.
            let blind = repeat(&host, push, how).run();
            let damaged = stored(&at.join("large")) != content;
            fs::remove_file(at.join("large")).unwrap();
            let failed = repeat(&host, push, &format!("{how} --verify")).run();
            stop.store(true, Ordering::SeqCst);
            assert!(blind.code() == 0 && damaged, "the storage is well: {}", blind.err);
            assert_eq!(failed.code(), 1, "{}", failed.err);
            let why = "large: read back from storage, it is not what was sent: 1 of ";
            assert!(failed.err.contains(why) && failed.err.contains("the first at byte 0;"), "{}", failed.err);
            assert_eq!(failed.json().last().unwrap()["verified"]["files"], 0, "{}", failed.out);
            assert!(!at.join("large").exists(), "it has its name");
            let partial = leftovers(&at).into_iter().find(|path| path.extension().is_some_and(|e| e == "partial"));
            assert_eq!(fs::metadata(at.join(partial.unwrap())).unwrap().mode() & 0o7777, 0o600);
        });
        let done = repeat(&host, push, &format!("{how} --verify")).ok();
        let again = done.number("bytes");
        assert!(again <= 2 * MIB as u64, "{again} bytes were sent again, and one block differed");
        assert!(stored(&at.join("large")) == content);
        same(&host.file("large"), &at.join("large"));
        assert!(leftovers(&at).is_empty());
    });
}

/// A damaged file that root gave to its owner is removed: the owner may have it open, and write to it at any time.
#[test]
fn a_damaged_file_of_another_user_is_not_continued() {
    let host = Host::start();
    let (at, image) = (host.file("to"), host.file("image"));
    let Some(_disk) = Small::disk(at.clone(), &image, 64 * MIB) else { return };
    let mut content = bytes(24 * MIB, 7);
    content[512 * 100..][..MARK.len()].copy_from_slice(MARK);
    write(host.file("large"), &content);
    std::os::unix::fs::chown(host.file("large"), Some(12345), Some(12345)).unwrap();
    let how = "--pacing 150mbit --block 1MiB --direct on --verify";
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| damage(&image, &stop));
        let failed = repeat(&host, true, how).run();
        stop.store(true, Ordering::SeqCst);
        assert_eq!(failed.code(), 1, "{}", failed.err);
        assert!(failed.err.contains("read back from storage, it is not what was sent"), "{}", failed.err);
    });
    assert!(!at.join("large").exists());
    assert!(leftovers(&at).iter().all(|path| path.extension().is_none_or(|e| e != "partial")));
    let done = repeat(&host, true, how).ok();
    assert_eq!(done.number("spared_bytes"), 0, "{}", done.out);
    same(&host.file("large"), &at.join("large"));
}

/// Many files of any size, holes too, with all that changes how they are written; and how long it took is said.
#[test]
fn what_is_well_is_verified_and_told() {
    both_ways(|push| {
        let host = Host::start();
        let tree = host.file("tree");
        for i in 0..300 {
            write(tree.join(format!("small/{i}")), bytes(i * 97, i as u64));
        }
        write(tree.join("odd"), bytes(5 * MIB + 77, 1));
        write(tree.join("holes"), "");
        let holes = File::options().write(true).open(tree.join("holes")).unwrap();
        holes.set_len(20 * MIB as u64).unwrap();
        holes.write_all_at(&bytes(MIB, 3), 7 * MIB as u64).unwrap();
        fs::set_permissions(tree.join("odd"), std::os::unix::fs::PermissionsExt::from_mode(0o444)).unwrap();
        for (i, how) in ["", "--fsync", "--direct on", "--direct off --no-encrypt", "--update"].iter().enumerate() {
            let to = format!("copy{i}");
            let mut cp = host.cp();
            cp.words("-r --json --verify").words(how);
            let done = if push {
                cp.arg(&tree).arg(host.far(&to)).ok()
            } else {
                cp.arg(host.far("tree")).arg(host.file(&to)).ok()
            };
            let verified = done.json().last().unwrap()["verified"].clone();
            assert_eq!(verified["files"], 302, "{how}: {verified}");
            let seconds = |key: &str| verified[key].as_f64().unwrap();
            assert!(seconds("seconds") > 0.0 && seconds("after_s") >= 0.0, "{verified}");
            same(&tree, &host.file(&to));
            assert!(leftovers(&host.file(&to)).is_empty());
        }
        let told = host.cp().arg("--verify").arg(tree.join("odd")).arg(host.far("told")).ok();
        assert!(told.err.contains("1 file, 5.243 MB verified in "), "{}", told.err);
    });
}

#[test]
fn what_an_earlier_attempt_brought_is_read_back_too() {
    let host = Host::start();
    write(host.file("large"), bytes(24 * MIB, 7));
    fs::create_dir(host.file("to")).unwrap();
    let running = repeat(&host, true, "--verify --pacing 150mbit --block 1MiB").start();
    crate::large::some_blocks(&host.file("to"));
    running.kill();
    let done = repeat(&host, true, "--verify").ok();
    assert_eq!(done.json().last().unwrap()["verified"]["bytes"], 24 * MIB as u64, "{}", done.out);
    assert!(done.number("bytes") < 24 * MIB as u64, "nothing was kept");
    same(&host.file("large"), &host.file("to/large"));
}
