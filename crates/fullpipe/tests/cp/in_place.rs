//! `--inplace`: what is copied is written into the files that are there, whole or not at all wrong.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

use crate::disks::Small;
use crate::host::{Host, journalled, until};
use crate::large::{LARGE, MIB, SLOW, both_ways, repeat, slow, some_blocks};
use crate::tree::{bytes, date, leftovers, mode, only, same, same_content, write};

fn inode(host: &Host, name: &str) -> u64 {
    host.file(name).metadata().unwrap().ino()
}

#[test]
fn the_content_goes_into_the_file_itself() {
    both_ways(|push| {
        let host = Host::start();
        for (name, len, old) in
            [("large", 5 * MIB + 3, 9 * MIB), ("larger", 5 * MIB, MIB), ("small", 300, 9000), ("empty", 0, 7)]
        {
            write(host.file(&format!("from/{name}")), bytes(len, 1));
            write(host.file(&format!("to/from/{name}")), bytes(old, 2));
            fs::hard_link(host.file(&format!("to/from/{name}")), host.file(&format!("to/{name}"))).unwrap();
        }
        write(host.file("from/new"), bytes(5 * MIB, 3));
        mode(host.file("from/large"), 0o600);
        // Holes, where there are data.
        let sparse = File::create(host.file("from/sparse")).unwrap();
        sparse.set_len(20 * MIB as u64).unwrap();
        sparse.write_all_at(&[7; 4096], 10 * MIB as u64).unwrap();
        write(host.file("to/from/sparse"), bytes(20 * MIB, 4));
        let names = ["large", "larger", "small", "empty", "sparse"];
        let before: Vec<_> = names.iter().map(|name| inode(&host, &format!("to/from/{name}"))).collect();
        host.copy(push, "-r --inplace --verify", "from", "to/").ok();
        same(&host.file("from"), &host.file("to/from"));
        for (name, before) in names.iter().zip(before) {
            assert_eq!(inode(&host, &format!("to/from/{name}")), before, "{name}");
            if *name != "sparse" {
                same_content(&host.file(&format!("from/{name}")), &host.file(&format!("to/{name}")));
            }
        }
        assert!(leftovers(&host.file("to")).is_empty());
    });
}

#[test]
fn a_killed_copy_goes_on_in_the_same_file() {
    both_ways(|push| {
        let host = Host::start();
        write(host.file("to/large"), bytes(LARGE + MIB, 5));
        let before = inode(&host, "to/large");
        write(host.file("large"), bytes(LARGE, 7));
        let running = repeat(&host, push, &format!("--inplace {SLOW}")).start();
        some_blocks(&host.file("to"));
        running.kill();
        // What has come is seen under the file's own name.
        assert_eq!((inode(&host, "to/large"), host.file("to/large").metadata().unwrap().len()), (before, LARGE as u64));
        let done = repeat(&host, push, "--inplace").ok();
        let sent = done.number("bytes");
        assert!(sent > 0 && sent < (LARGE - 2 * MIB) as u64, "{sent} bytes were sent again");
        only(&host.file("to"), &["large"]);
        same(&host.file("large"), &host.file("to/large"));
        assert_eq!(inode(&host, "to/large"), before);
    });
}

/// A copy of a folder into an older one, in place, that was killed in the middle of its large file.
fn killed_in_a_folder(host: &Host, push: bool) {
    write(host.file("from/large"), bytes(LARGE, 7));
    write(host.file("to/large"), bytes(LARGE, 5));
    let running = host.copy(push, &format!("-r --inplace {SLOW}"), "from/.", "to/").start();
    some_blocks(&host.file("to"));
    running.kill();
}

/// What a killed copy has left is newer than its source, and may have its size.
#[test]
fn a_killed_copy_goes_on_with_update() {
    both_ways(|push| {
        for how in ["-u", "-u --verify", "-u --inplace"] {
            let host = Host::start();
            write(host.file("to/large"), bytes(LARGE, 5));
            fs::hard_link(host.file("to/large"), host.file("other")).unwrap();
            write(host.file("large"), bytes(LARGE, 7));
            let before = inode(&host, "to/large");
            let running = repeat(&host, push, &format!("--inplace {SLOW}")).start();
            some_blocks(&host.file("to"));
            running.kill();
            let sent = repeat(&host, push, how).ok().number("bytes");
            assert!(sent > 0 && sent < (LARGE - MIB) as u64, "{sent} bytes were sent");
            only(&host.file("to"), &["large"]);
            same(&host.file("large"), &host.file("to/large"));
            // Its other names showed a part, too.
            assert_eq!(inode(&host, "to/large"), before);
            same_content(&host.file("large"), &host.file("other"));
        }
    });
}

/// Interrupted twice; in between, what is whole stays.
#[test]
fn update_goes_with_it() {
    both_ways(|push| {
        let host = Host::start();
        killed_in_a_folder(&host, push);
        for (name, len) in [("small", 3000), ("middle", 2 * MIB)] {
            write(host.file(&format!("from/{name}")), bytes(len, 8));
            write(host.file(&format!("to/{name}")), bytes(len, 9));
        }
        let before = inode(&host, "to/large");
        let running = host.copy(push, &format!("-ru --inplace {SLOW}"), "from/.", "to/").start();
        some_blocks(&host.file("to"));
        running.kill();
        let done = host.copy(push, "-ru --inplace --json", "from/.", "to/").ok();
        assert_eq!(done.number("skipped"), 2, "files that are newer there stay");
        only(&host.file("to"), &["large", "middle", "small"]);
        same_content(&host.file("from/large"), &host.file("to/large"));
        assert_eq!(inode(&host, "to/large"), before);
        for (name, len) in [("small", 3000), ("middle", 2 * MIB)] {
            assert_eq!(fs::read(host.file(&format!("to/{name}"))).unwrap(), bytes(len, 9));
        }
        // An older file is written to in place.
        let before = inode(&host, "to/small");
        date(host.file("to/small"), 1_000_000_000, 0);
        assert_eq!(host.copy(push, "-ru --inplace --json", "from/.", "to/").ok().number("bytes"), 3000);
        same_content(&host.file("from/small"), &host.file("to/small"));
        assert_eq!(inode(&host, "to/small"), before);
    });
}

#[test]
fn another_command_with_update_copies_an_unfinished_file() {
    both_ways(|push| {
        let host = Host::start();
        killed_in_a_folder(&host, push);
        host.copy(push, "-u", "from/large", "to/").ok();
        same(&host.file("from/large"), &host.file("to/large"));
        // The first command has nothing left to do.
        host.copy(push, "-ru", "from/.", "to/").ok();
        only(&host.file("to"), &["large"]);
        same(&host.file("from/large"), &host.file("to/large"));
    });
}

/// The journal is lost, and so is a second copy.
#[test]
fn an_unfinished_file_stays_one_until_it_is_whole() {
    let host = Host::start();
    killed_in_a_folder(&host, true);
    let journal = leftovers(&host.file("to")).into_iter().find(|path| path.extension().is_some_and(|e| e == "journal"));
    fs::remove_file(host.file("to").join(journal.unwrap())).unwrap();
    let running = host.copy(true, &format!("-r {SLOW}"), "from/.", "to/").start();
    some_blocks(&host.file("to"));
    running.kill();
    host.copy(true, "-ru", "from/.", "to/").ok();
    only(&host.file("to"), &["large"]);
    same(&host.file("from/large"), &host.file("to/large"));
}

#[test]
fn an_unfinished_small_file_is_copied_with_update() {
    let host = Host::start();
    write(host.file("from/small"), bytes(3000, 1));
    write(host.file("from/same"), bytes(3000, 1));
    write(host.file("to/small"), bytes(1000, 1));
    fs::hard_link(host.file("to/small"), host.file("to/.fullpipe.0000000000000007.partial")).unwrap();
    write(host.file("to/same"), bytes(1000, 1));
    fs::hard_link(host.file("to/same"), host.file("to/other")).unwrap();
    let done = host.copy(true, "-ru --json", "from/.", "to/").ok();
    assert_eq!((done.number("skipped"), done.number("bytes")), (1, 3000), "a file that is newer there stays");
    same_content(&host.file("from/small"), &host.file("to/small"));
}

/// If its source is gone, or changes on the way, nothing mends it. It is named as long as it is there.
#[test]
fn an_unfinished_file_that_is_not_copied_is_named() {
    both_ways(|push| {
        let host = Host::start();
        killed_in_a_folder(&host, push);
        write(host.file("from/more"), "more");
        fs::remove_file(host.file("from/large")).unwrap();
        for how in ["-r", "-ru", "-r --inplace --fsync"] {
            host.copy(push, how, "from/.", "to/")
                .fails(1, "large: an interrupted copy with --inplace has left it partly old");
            assert_eq!(leftovers(&host.file("to")).len(), 2);
        }
        host.copy(push, "-r --delete", "from/.", "to/").ok();
        only(&host.file("to"), &["more"]);
    });
}

/// A first attempt without the flag has begun another file, under the same number.
#[test]
fn an_unfinished_file_is_named_whatever_was_begun_before() {
    let host = Host::start();
    write(host.file("from/large"), bytes(LARGE, 7));
    write(host.file("to/large"), bytes(LARGE, 5));
    let mut known = 0;
    for how in ["", "--inplace"] {
        let running = host.copy(true, &format!("-r {how} {SLOW}"), "from/.", "to/").start();
        until("more blocks in the journal", || journalled(&host.file("to")) > known + 800);
        running.kill();
        known = journalled(&host.file("to"));
    }
    write(host.file("from/more"), "more");
    fs::remove_file(host.file("from/large")).unwrap();
    host.copy(true, "-r", "from/.", "to/").fails(1, "large: an interrupted copy with --inplace has left it partly old");
    assert_eq!(leftovers(&host.file("to")).len(), 2);
}

#[test]
fn a_source_that_changes_leaves_an_unfinished_file() {
    let host = Host::start();
    write(host.file("from/large"), bytes(LARGE, 7));
    write(host.file("to/large"), bytes(LARGE, 5));
    let running = host.copy(true, &format!("-r --inplace {SLOW}"), "from/.", "to/").start();
    some_blocks(&host.file("to"));
    let source = File::options().append(true).open(host.file("from/large")).unwrap();
    source.set_len(LARGE as u64 - 1).unwrap();
    assert_eq!(running.wait().code(), 1);
    host.copy(true, "-ru", "from/.", "to/").ok();
    only(&host.file("to"), &["large"]);
    same(&host.file("from/large"), &host.file("to/large"));
}

/// What an attempt without the flag has begun does not confuse one with it.
#[test]
fn a_copy_that_was_begun_beside_the_file_ends_right() {
    let host = Host::start();
    write(host.file("to/large"), bytes(MIB, 5));
    slow(&host, true).kill();
    repeat(&host, true, "--inplace").ok();
    only(&host.file("to"), &["large"]);
    same(&host.file("large"), &host.file("to/large"));
}

#[test]
fn names_of_one_file_get_their_own_content() {
    both_ways(|push| {
        let host = Host::start();
        for (len, name) in [(5 * MIB, "large"), (300, "small")] {
            write(host.file(&format!("from/{name}-1")), bytes(len, 1));
            write(host.file(&format!("from/{name}-2")), bytes(len, 2));
            write(host.file(&format!("to/from/{name}-1")), bytes(len, 3));
            fs::hard_link(host.file(&format!("to/from/{name}-1")), host.file(&format!("to/from/{name}-2"))).unwrap();
        }
        host.copy(push, "-r --inplace", "from", "to/").ok();
        same(&host.file("from"), &host.file("to/from"));
    });
}

/// Emptied, it could not be copied.
#[test]
fn the_source_itself_is_not_emptied() {
    let host = Host::start();
    for (name, len) in [("large", 5 * MIB), ("small", 300)] {
        write(host.file(&format!("from/{name}")), bytes(len, 1));
        let mut cp = host.cp();
        cp.words("--inplace").arg(host.file(&format!("from/{name}"))).arg(host.far("from/"));
        cp.ok();
        assert_eq!(fs::read(host.file(&format!("from/{name}"))).unwrap(), bytes(len, 1));
    }
    assert!(leftovers(&host.file("from")).is_empty());
}

#[test]
fn what_contradicts_it_is_refused() {
    let host = Host::start();
    write(host.file("x"), "x");
    let mut cp = host.cp();
    cp.words("--inplace -").arg(host.far("y")).fails(2, "--inplace");
    // A link that is named is written through, as always.
    std::os::unix::fs::symlink("x", host.file("link")).unwrap();
    write(host.file("source"), "new");
    let before = inode(&host, "x");
    host.copy(true, "-T --inplace", "source", "link").ok();
    assert_eq!(fs::read_link(host.file("link")).unwrap().to_str(), Some("x"));
    assert_eq!((fs::read_to_string(host.file("x")).unwrap().as_str(), inode(&host, "x")), ("new", before));
}

/// Runs a test where a file system has neither hard links nor files without a name.
fn without_hard_links(test: impl FnOnce() + Send) {
    let nameless = libc::O_TMPFILE as u64;
    let flags = SeccompCondition::new(2, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(nameless), nameless).unwrap();
    let calls = [(libc::SYS_linkat, Vec::new()), (libc::SYS_openat, vec![SeccompRule::new(vec![flags]).unwrap()])];
    let (allow, refuse) = (SeccompAction::Allow, SeccompAction::Errno(libc::EPERM as u32));
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let program: BpfProgram =
        SeccompFilter::new(calls.into_iter().collect(), allow, refuse, arch).unwrap().try_into().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            seccompiler::apply_filter(&program).unwrap();
            test();
        });
    });
}

/// Nothing would tell that it is not whole, and `-u` of a later command would keep it.
#[test]
fn a_file_that_cannot_be_marked_is_not_written_to() {
    without_hard_links(|| {
        let host = Host::start();
        write(host.file("from/small"), bytes(3000, 1));
        write(host.file("to/small"), bytes(9000, 2));
        let before = inode(&host, "to/small");
        host.copy(false, "-r --inplace", "from/.", "to/").ok();
        same_content(&host.file("from/small"), &host.file("to/small"));
        assert_ne!(inode(&host, "to/small"), before);
        write(host.file("from/large"), bytes(5 * MIB, 1));
        write(host.file("to/large"), bytes(MIB, 2));
        mode(host.file("to/large"), 0o664);
        host.copy(false, "-r --inplace", "from/.", "to/").fails(1, "--inplace needs a hard link beside it");
        assert_eq!(fs::read(host.file("to/large")).unwrap(), bytes(MIB, 2));
        assert_eq!(host.file("to/large").metadata().unwrap().mode() & 0o7777, 0o664);
    });
}

#[test]
fn the_file_of_another_user_stays_as_it_is() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let host = Host::start();
    for (name, len) in [("large", 5 * MIB), ("small", 300)] {
        write(host.file(name), bytes(len, 1));
        write(host.file(&format!("to/{name}")), "old");
        mode(host.file(&format!("to/{name}")), 0o666);
        mode(host.file("to"), 0o777);
        let mut cp = host.cp();
        cp.far_program(&host.unprivileged()).words("--inplace").arg(host.file(name)).arg(host.far("to/"));
        cp.fails(1, "it belongs to another user, so --inplace cannot set its permissions and times");
        assert_eq!(fs::read_to_string(host.file(&format!("to/{name}"))).unwrap(), "old");
    }
    assert!(leftovers(&host.file("to")).is_empty());
}

/// On an overlay of two file systems the second name of a file of the lower one has another inode number.
#[test]
fn another_file_takes_its_place_where_two_names_look_like_two_files() {
    both_ways(|push| {
        let host = Host::start();
        for (name, len) in [("large", 5 * MIB), ("small", 300)] {
            write(host.file("from").join(name), bytes(len, 1));
            write(host.file("lower").join(name), bytes(len, 2));
        }
        let Some(upper) = Small::mount(host.file("upper"), "size=30m") else { return };
        let Some(both) = Small::overlay(host.file("to"), &host.file("lower"), &host.file("upper")) else { return };
        let done = host.copy(push, "-r --inplace", "from/.", "to").run();
        let (is_same, left) = (
            ["large", "small"].map(|name| {
                fs::read(host.file("to").join(name)).unwrap() == fs::read(host.file("from").join(name)).unwrap()
            }),
            leftovers(&host.file("to")),
        );
        both.unmount();
        upper.unmount();
        assert!(done.code() == 0 && is_same == [true, true], "{is_same:?} {}", done.err);
        assert!(left.is_empty(), "{left:?}");
    });
}
