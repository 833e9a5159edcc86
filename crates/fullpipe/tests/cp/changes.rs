//! Sources that change while they are read: named, and never a mixture under a final name.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::host::{Host, journalled, until};
use crate::large::{LARGE, MIB, SLOW, both_ways, repeat, slow, some_blocks};
use crate::tree::{bytes, only, same, same_inside, write};

/// Copies a file while it is changed in the middle of the copy.
fn changed(push: bool, change: impl Fn(&Path), part: &str) {
    let host = Host::start();
    let running = slow(&host, push);
    change(&host.file("large"));
    let done = running.wait();
    assert!(done.err.contains(&format!("not copied: large: {part}")), "push {push}: {done:?}");
    assert_eq!(done.code(), 1, "{}", done.err);
    // Of no use to another attempt: nothing of it stays.
    only(&host.file("to"), &[]);
    // At rest, it is copied.
    repeat(&host, push, "").ok();
    same(&host.file("large"), &host.file("to/large"));
    only(&host.file("to"), &["large"]);
}

#[test]
fn a_source_that_grows() {
    let append = |path: &Path| {
        let file = File::options().write(true).open(path).unwrap();
        file.write_all_at(b"more", LARGE as u64).unwrap();
    };
    changed(true, append, "it changed while it was read");
}

#[test]
fn a_source_that_may_grow() {
    both_ways(|push| {
        let host = Host::start();
        write(host.file("large"), bytes(LARGE, 7));
        fs::create_dir_all(host.file("to")).unwrap();
        let under_way = || {
            let running = repeat(&host, push, &format!("--allow-growing {SLOW}")).start();
            some_blocks(&host.file("to"));
            running
        };
        let running = under_way();
        let file = File::options().write(true).open(host.file("large")).unwrap();
        file.write_all_at(b"more", LARGE as u64).unwrap();
        let done = running.wait();
        assert_eq!(done.code(), 0, "push {push}: {done:?}");
        assert!(fs::read(host.file("to/large")).unwrap() == bytes(LARGE, 7));
        // The next copy brings the rest. What becomes shorter, or is replaced, is left out as ever.
        repeat(&host, push, "-u --allow-growing").ok();
        same(&host.file("large"), &host.file("to/large"));
        fs::remove_file(host.file("to/large")).unwrap();
        let running = under_way();
        fs::rename(host.file("large"), host.file("large.1")).unwrap();
        fs::remove_file(host.file("large.1")).unwrap();
        write(host.file("large"), "1");
        let done = running.wait();
        assert!(done.code() == 1 && done.err.contains("not copied: large: it was deleted"), "push {push}: {done:?}");
        only(&host.file("to"), &[]);
    });
}

#[test]
fn a_source_that_is_written_to() {
    let modify = |path: &Path| File::options().write(true).open(path).unwrap().write_all_at(b"other", 1000).unwrap();
    changed(false, modify, "it changed while it was read");
}

#[test]
fn a_source_that_is_written_to_and_given_its_time_back() {
    let modify = |path: &Path| {
        let file = File::options().write(true).open(path).unwrap();
        let time = file.metadata().unwrap().modified().unwrap();
        file.write_all_at(b"other", 1000).unwrap();
        file.set_modified(time).unwrap();
    };
    changed(true, modify, "it changed while it was read");
}

#[test]
fn a_source_that_shrinks() {
    let truncate = |path: &Path| File::options().write(true).open(path).unwrap().set_len(20 * MIB as u64).unwrap();
    both_ways(|push| {
        changed(push, truncate, "it became shorter while it was read");
    });
}

#[test]
fn many_sources_that_shrink_hang_nothing() {
    // Their last words may arrive before their first blocks.
    let host = Host::start();
    for i in 0..30 {
        write(host.file("tree").join(i.to_string()), bytes(2 * MIB, i));
    }
    let mut cp = host.cp();
    cp.words("-r --stall 20s -n 2 --pacing 150mbit --json").arg(host.file("tree")).arg(host.far("to"));
    let running = cp.start();
    until("the first blocks", || journalled(&host.file("")) > 200);
    for i in 0..30 {
        let file = File::options().write(true).open(host.file("tree").join(i.to_string())).unwrap();
        file.set_len(MIB as u64 + 5).unwrap();
    }
    let done = running.wait();
    assert!(done.code() == 1 && done.err.contains("it became shorter"), "{}", done.err);
    for entry in fs::read_dir(host.file("to")).unwrap() {
        let path = entry.unwrap().path();
        // Those that were read before are whole.
        let seed = path.file_name().unwrap().to_str().unwrap().parse().unwrap();
        assert!(fs::read(&path).unwrap() == bytes(2 * MIB, seed), "{}", path.display());
    }
    host.cp().arg("-r").arg(host.file("tree/.")).arg(host.far("to/")).ok();
    same_inside(&host.file("tree"), &host.file("to"));
}

#[test]
fn a_source_that_never_rests() {
    // Not encrypted, pages of the cache go out by themselves, and may change behind the digest's back.
    for how in ["--no-encrypt --direct off", "--no-encrypt --direct on", "--stall 60s"] {
        let host = Host::start();
        write(host.file("tree/busy"), bytes(40 * MIB, 1));
        write(host.file("tree/calm"), bytes(3 * MIB, 2));
        let over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let file = File::options().write(true).open(host.file("tree/busy")).unwrap();
                for i in (0u64..).take_while(|_| !over.load(std::sync::atomic::Ordering::SeqCst)) {
                    file.write_all_at(&i.to_le_bytes(), i.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (40 * MIB as u64 - 8))
                        .unwrap();
                    std::thread::sleep(std::time::Duration::from_micros(200));
                }
            });
            let done =
                host.cp().words(how).words("--pacing 300mbit -r").arg(host.file("tree")).arg(host.far("to")).run();
            over.store(true, std::sync::atomic::Ordering::SeqCst);
            assert!(done.err.contains("not copied: tree/busy: it changed while it was read"), "{how}: {}", done.err);
            assert_eq!(done.code(), 1, "{how}: {}", done.err);
        });
        only(&host.file("to"), &["calm"]);
        host.cp().words(how).arg("-r").arg(host.file("tree/.")).arg(host.far("to")).ok();
        same(&host.file("tree/busy"), &host.file("to/busy"));
        same(&host.file("tree/calm"), &host.file("to/calm"));
    }
}
