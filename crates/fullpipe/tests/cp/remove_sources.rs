//! `--remove-source-files`: what the destination has, complete and on disk, goes at the source, and nothing else.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use crate::host::Host;
use crate::large::{LARGE, SLOW, both_ways, some_blocks};
use crate::sshfs::Sshfs;
use crate::tree::{bytes, date, leftovers, only, same, write};

/// A tree with a file of every size, a link, and a file of two names; and a copy of it to compare with.
fn trees(host: &Host) {
    for name in ["tree", "before"] {
        let at = |file: &str| host.file(name).join(file);
        write(at("large"), bytes(3 << 20, 1));
        write(at("sub/small"), "small");
        write(at("sub/none"), "");
        write(at("first"), "two names");
        fs::hard_link(at("first"), at("sub/second")).unwrap();
        symlink("../first", at("sub/link")).unwrap();
        fs::create_dir(at("empty")).unwrap();
    }
    for file in ["large", "sub/small", "sub/none", "first"] {
        for name in ["tree", "before"] {
            date(host.file(name).join(file), 1_500_000_000, 7);
        }
    }
}

/// What was in the tree is at the destination.
fn same_as_before(host: &Host) {
    for file in ["large", "first", "sub/small", "sub/none", "sub/second"] {
        same(&host.file("before").join(file), &host.file("to").join(file));
    }
    assert_eq!(fs::read_link(host.file("to/sub/link")).unwrap().to_str(), Some("../first"));
}

#[test]
fn what_was_copied_is_removed_and_folders_stay() {
    both_ways(|push| {
        for words in ["", "--verify"] {
            let host = Host::start();
            trees(&host);
            let planned = host.copy(push, "-r --remove-source-files --dry-run", "tree/.", "to/").ok();
            assert!(planned.out.contains("removes     these files at the source"), "{}", planned.out);
            assert!(host.file("tree/large").exists());
            let words = format!("-r --remove-source-files --json {words}");
            let done = host.copy(push, &words, "tree/.", "to/").ok();
            assert_eq!(done.number("removed_sources"), 6, "{}", done.out);
            only(&host.file("tree"), &["empty", "sub"]);
            only(&host.file("tree/sub"), &[]);
            same_as_before(&host);
            assert!(leftovers(&host.file("to")).is_empty());
            // Once more there is nothing to do.
            assert_eq!(host.copy(push, &words, "tree/.", "to/").ok().number("removed_sources"), 0);
            assert!(host.file("to/large").exists());
        }
    });
}

/// Those that the user names: files, and by a pattern.
#[test]
fn sources_that_are_files_are_removed() {
    both_ways(|push| {
        let host = Host::start();
        write(host.file("a"), "a");
        write(host.file("b"), bytes(3 << 20, 2));
        symlink("b", host.file("link")).unwrap();
        let done = host.copy(push, "--remove-source-files", "a", "to").ok();
        assert!(done.err.contains("1 file, 1 removed at the source, 1 B"), "{}", done.err);
        assert!(!host.file("a").exists() && fs::read(host.file("to")).unwrap() == b"a");
        // A link that is named stands for what it points to, and neither may go.
        let done = host.copy(push, "--remove-source-files --json", "link", "copy").run();
        assert_eq!((done.code(), done.number("removed_sources")), (1, 0), "{}", done.err);
        assert!(done.err.contains("not removed: link: it is a symbolic link"), "{}", done.err);
        assert!(host.file("link").exists() && host.file("copy").exists());
        assert!(done.err.contains("1 source file was copied and not removed"), "{}", done.err);
    });
}

#[test]
fn what_was_not_copied_stays() {
    both_ways(|push| {
        let host = Host::start();
        trees(&host);
        // A folder stands where a file should be, and there is something that cannot be copied.
        fs::create_dir_all(host.file("to/sub/small/folder")).unwrap();
        nix::unistd::mkfifo(&host.file("tree/fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let words = "-r --remove-source-files --json --exclude large";
        let done = host.copy(push, words, "tree/.", "to/").run();
        assert_eq!((done.code(), done.number("removed_sources")), (1, 4), "{}", done.err);
        only(&host.file("tree"), &["empty", "fifo", "large", "sub"]);
        only(&host.file("tree/sub"), &["small"]);
        // With the cause removed, the same command does the rest.
        fs::remove_dir_all(host.file("to/sub/small")).unwrap();
        fs::remove_file(host.file("tree/fifo")).unwrap();
        let done = host.copy(push, words, "tree/.", "to/").ok();
        assert_eq!(done.number("removed_sources"), 1, "{}", done.out);
        only(&host.file("tree/sub"), &[]);
        same(&host.file("before/sub/small"), &host.file("to/sub/small"));
    });
}

/// Whoever reads a source need not be allowed to remove it.
#[test]
fn what_may_not_be_removed_stays_and_is_named() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("not tried: only root makes files of others");
        return;
    }
    let host = Host::start();
    for name in ["tree/a", "tree/sub/b"] {
        write(host.file(name), "1");
    }
    // In one folder the far end may remove what belongs to others, in the other one not.
    fs::set_permissions(host.file("tree"), fs::Permissions::from_mode(0o777)).unwrap();
    let mut cp = host.cp();
    cp.far_program(&host.unprivileged()).words("-r --remove-source-files --json");
    let done = cp.arg(host.far("tree/.")).arg(host.file("to/")).run();
    assert_eq!((done.code(), done.number("removed_sources")), (1, 1), "{}", done.err);
    assert!(done.err.contains("not removed: sub/b: ") && done.err.contains("permission denied"), "{}", done.err);
    assert!(done.err.contains("1 source file was copied and not removed"), "{}", done.err);
    only(&host.file("tree"), &["sub"]);
    same(&host.file("tree/sub/b"), &host.file("to/sub/b"));
    assert_eq!(fs::read(host.file("to/a")).unwrap(), b"1");
}

/// As after a copy that was killed between a file's name and its removal.
#[test]
fn what_is_there_already_is_removed_and_what_is_newer_there_keeps_its_source() {
    both_ways(|push| {
        let host = Host::start();
        trees(&host);
        host.copy(push, "-r", "tree/.", "to/").ok();
        for name in ["sub/small", "first"] {
            write(host.file("to").join(name), if name == "first" { "newer    " } else { "newer, and longer" });
        }
        let done = host.copy(push, "-ru --remove-source-files --json", "tree/.", "to/").ok();
        assert_eq!((done.number("bytes"), done.number("removed_sources")), (0, 4), "{}", done.out);
        only(&host.file("tree"), &["empty", "first", "sub"]);
        only(&host.file("tree/sub"), &["small"]);
    });
}

#[test]
fn a_killed_copy_has_removed_only_what_is_there_and_goes_on() {
    both_ways(|push| {
        let host = Host::start();
        trees(&host);
        write(host.file("tree/z"), bytes(LARGE, 7));
        fs::create_dir_all(host.file("to")).unwrap();
        let words = format!("-r --remove-source-files --json {SLOW}");
        let running = host.copy(push, &words, "tree/.", "to/").start();
        some_blocks(&host.file("to"));
        running.kill();
        assert!(host.file("tree/z").exists());
        for file in ["large", "first", "sub/small", "sub/none", "sub/second"] {
            assert!(host.file("tree").join(file).exists() || host.file("to").join(file).exists(), "{file}");
        }
        host.copy(push, "-r --remove-source-files --json", "tree/.", "to/").ok();
        only(&host.file("tree"), &["empty", "sub"]);
        only(&host.file("tree/sub"), &[]);
        assert_eq!(fs::read(host.file("to/z")).unwrap(), bytes(LARGE, 7));
        fs::remove_file(host.file("to/z")).unwrap();
        same_as_before(&host);
    });
}

/// Both ends may see one file system. What is there is the source, and not a copy of it.
#[test]
fn a_copy_onto_itself_removes_nothing() {
    both_ways(|push| {
        for words in ["", "-u", "-c"] {
            let host = Host::start();
            trees(&host);
            let done = host.copy(push, &format!("-r --remove-source-files --json {words}"), "tree/.", "tree/").run();
            assert_eq!(done.number("removed_sources"), 0, "{words}: {} {}", done.out, done.err);
            for file in ["large", "first", "sub/small", "sub/none", "sub/second"] {
                same(&host.file("before").join(file), &host.file("tree").join(file));
            }
            assert_eq!(fs::read_link(host.file("tree/sub/link")).unwrap().to_str(), Some("../first"));
        }
    });
}

/// The same through sshfs, which shows the time of a change of the content as that of any change, and whole seconds.
#[test]
fn a_copy_onto_itself_through_another_file_system_removes_nothing() {
    let Some(mount) = Sshfs::mount(&[]) else { return };
    let host = Host::start();
    let files = ["large", "sub/small"];
    for words in ["", "-u", "-c"] {
        for (file, len) in files.iter().zip([3 << 20, 30]) {
            write(mount.far().join("tree").join(file), bytes(len, 1));
            date(mount.far().join("tree").join(file), 1_500_000_000, 0);
        }
        let (near, far) = (mount.at(), format!("far:{}", mount.far().display()));
        for (from, to) in [
            (near.join("tree/."), format!("{far}/tree/")),
            (near.join("tree"), format!("{far}/")),
            (near.join("tree/large"), format!("{far}/tree/")),
        ] {
            let mut cp = host.cp();
            let done = cp.words(&format!("-r --remove-source-files --json {words}")).arg(&from).arg(&to).run();
            assert_eq!(done.number("removed_sources"), 0, "{words} {}: {} {}", from.display(), done.out, done.err);
            for file in files {
                assert!(mount.far().join("tree").join(file).exists(), "{words} {}: {}", from.display(), done.err);
            }
        }
    }
}

/// Of two that bring one name, the second would take the place of the first once that is gone.
#[test]
fn several_sources_are_refused() {
    both_ways(|push| {
        let host = Host::start();
        trees(&host);
        let source = if push {
            vec![host.file("tree").into_os_string(), host.file("before").into_os_string()]
        } else {
            vec![host.far("tree"), host.far("before")]
        };
        let mut cp = host.cp();
        cp.words("-r --remove-source-files");
        for one in source {
            cp.arg(one);
        }
        cp.arg(if push { host.far("to/") } else { host.file("to/").into_os_string() });
        cp.fails(2, "--remove-source-files takes one source");
        assert!(host.file("tree/large").exists() && host.file("before/large").exists());
    });
}

/// What was there before is not read back, so its source stays.
#[test]
fn with_verify_only_what_was_read_back_is_removed() {
    both_ways(|push| {
        let host = Host::start();
        trees(&host);
        host.copy(push, "-r --exclude large", "tree/.", "to/").ok();
        let done = host.copy(push, "-ru --verify --remove-source-files --json", "tree/.", "to/").ok();
        // Links are made anew.
        assert_eq!(done.number("removed_sources"), 2, "{}", done.out);
        only(&host.file("tree"), &["empty", "first", "sub"]);
    });
}

#[test]
fn what_makes_no_sense_is_refused() {
    let host = Host::start();
    trees(&host);
    for flag in ["--hard-links", "--xattrs", "--acls"] {
        host.copy(true, &format!("-r --remove-source-files {flag}"), "tree", "to").fails(2, flag);
    }
    host.copy(true, "-r --remove-source-files --delete", "tree", "to").fails(2, "--delete");
    host.copy(true, "-rL --remove-source-files", "tree", "to").fails(2, "--dereference");
    let mut cp = host.cp();
    cp.words("--remove-source-files -").arg(host.far("to"));
    cp.fails_at_once(2, "--remove-source-files is not possible here");
    let mut cp = host.cp();
    cp.words("--remove-source-files").arg(host.far("tree/first")).arg("-");
    cp.fails_at_once(2, "--remove-source-files is not possible here");
    let mut cp = host.cp();
    cp.words("--remove-source-files").arg(host.file("tree/first")).arg("lab:rtt=1ms,rate=1gbit:/tmp/");
    cp.without_flags().fails_at_once(2, "--remove-source-files is not possible into the testbed");
    only(&host.file("tree/sub"), &["link", "none", "second", "small"]);
}
