//! A dry run compares what is at the source with what is at the destination, and changes neither.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::host::{Done, Host, in_mount_namespace};
use crate::large::{MIB, both_ways};
use crate::tree::{bytes, leftovers, same, write};

fn set_time(path: &Path, seconds: u64) {
    File::options().write(true).open(path).unwrap().set_modified(at(seconds)).unwrap();
}

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

/// A tree, and a destination that has some of it: the same, older, newer, of another size, of another kind, and nothing.
fn trees(host: &Host) {
    for (name, there, times) in [
        ("same", Some("same"), (1000, 1000)),
        ("sub/older", Some("wiser"), (1000, 900)),
        ("newer", Some("a newer one"), (1000, 1100)),
        ("newer2", Some("newer2"), (1000, 1100)),
        ("content", Some("content"), (1000, 900)),
        ("new", None, (1000, 0)),
    ] {
        let from = host.file("tree").join(name);
        write(&from, name.rsplit('/').next().unwrap());
        set_time(&from, times.0);
        if let Some(there) = there {
            let to = host.file("to").join(name);
            write(&to, there);
            set_time(&to, times.1);
        }
    }
    for (name, target) in [("tree/link", "same"), ("to/link", "same"), ("tree/turned", "new"), ("to/turned", "same")] {
        symlink(target, host.file(name)).unwrap();
    }
    // A link stands where a file comes, and leads nowhere.
    write(host.file("tree/dangling"), "dangling");
    symlink("nowhere", host.file("to/dangling")).unwrap();
}

/// What `--json` says would become of each file.
fn changes(done: &Done) -> BTreeMap<String, String> {
    let of = |line: &serde_json::Value| match line["kind"].as_str()? {
        "file" => Some((line["name"].as_str()?.to_owned(), line["change"].as_str()?.to_owned())),
        "kept" => Some((line["name"].as_str()?.to_owned(), "kept".to_owned())),
        _ => None,
    };
    done.json().iter().filter_map(of).collect()
}

fn expected(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, change)| ((*name).to_owned(), (*change).to_owned())).collect()
}

#[test]
fn a_dry_run_tells_what_is_there() {
    both_ways(|push| {
        let host = Host::start();
        trees(&host);
        let all = [
            ("same", "replaced"),
            ("sub/older", "replaced"),
            ("newer", "replaced"),
            ("newer2", "replaced"),
            ("content", "replaced"),
            ("new", "new"),
            ("link", "replaced"),
            ("turned", "replaced"),
            ("dangling", "replaced"),
        ];
        let update = [
            ("sub/older", "replaced"),
            ("newer", "kept"),
            ("content", "replaced"),
            ("new", "new"),
            ("turned", "replaced"),
            ("dangling", "replaced"),
        ];
        let checksum = [
            ("sub/older", "replaced"),
            ("newer", "replaced"),
            ("new", "new"),
            ("turned", "replaced"),
            ("dangling", "replaced"),
        ];
        let quick = all.iter().copied().filter(|(name, _)| !matches!(*name, "same" | "link")).collect::<Vec<_>>();
        for (flag, pairs, (files, present, newer)) in [
            ("", &all[..], (7, 0, 0)),
            ("-u", &update, (4, 2, 1)),
            ("--quick-check", &quick, (6, 1, 0)),
            ("-c", &checksum, (4, 3, 0)),
        ] {
            let done = host.copy(push, &format!("-r {flag} --dry-run --json -v"), "tree/.", "to").ok();
            assert_eq!(changes(&done), expected(pairs), "{flag} {push}");
            let last = done.json().pop().unwrap();
            let numbers = ["files", "present", "newer", "new"].map(|key| last[key].as_u64().unwrap());
            assert_eq!(numbers, [files, present, newer, 1], "{flag} {push}: {last}");
            assert_eq!(last["replaced"], files - 1, "{last}");
        }
        assert!(leftovers(&host.file("to")).is_empty() && !host.file("to/new").exists());
        assert_eq!(fs::read(host.file("to/sub/older")).unwrap(), b"wiser");

        // What it announces is what a copy does.
        let planned = host.copy(push, "-ru --dry-run", "tree/.", "to").ok();
        let says = "would copy  4 files, 23 B, 3 of them in place of others there; 2 files are there already; 1 file is newer there\n";
        assert!(planned.out.starts_with(says), "{}", planned.out);
        assert!(!planned.err.contains("kept:"), "{}", planned.err);
        let planned = host.copy(push, "-ru --dry-run -v", "tree/.", "to").ok();
        assert!(planned.err.contains("kept: newer is newer at the destination"), "{}", planned.err);
        let inode = || fs::symlink_metadata(host.file("to/link")).unwrap().ino();
        let before = inode();
        let done = host.copy(push, "-ru --json -v", "tree/.", "to").ok();
        assert!(!done.out.contains("\"link\"") && done.out.contains("\"turned\"") && inode() == before, "{}", done.out);
        assert_eq!((done.number("bytes"), done.number("skipped"), done.number("newer")), (23, 3, 1), "{}", done.out);
        let planned = host.copy(push, "-ru --dry-run -v", "tree/.", "to").ok();
        let says = "would copy  0 files, 0 B; 6 files are there already; 1 file is newer there\n";
        assert!(planned.out.starts_with(says), "{}", planned.out);

        // After a quick check, the destination is as the source.
        let done = host.copy(push, "-r --quick-check --json", "tree/.", "to").ok();
        assert_eq!((done.number("files"), done.number("skipped"), done.number("newer")), (7, 5, 0), "{}", done.out);
        same(&host.file("tree/newer"), &host.file("to/newer"));
        let done = host.copy(push, "-r --quick-check --json", "tree/.", "to").ok();
        assert_eq!((done.number("skipped"), done.number("bytes")), (7, 0), "{}", done.out);
    });
}

#[test]
fn a_dry_run_names_what_would_be_new_or_replaced() {
    both_ways(|push| {
        let host = Host::start();
        trees(&host);
        let done = host.copy(push, "-ru --dry-run -v --delete", "tree/.", "to").ok();
        for line in ["would create  new\n", "would replace  sub/older\n", "would replace  turned\n"] {
            assert!(done.out.contains(line), "{line}: {}", done.out);
        }
        // To another name, and to none.
        let done = host.copy(push, "--dry-run -v", "tree/same", "to/new name").ok();
        assert!(done.out.starts_with("would create  same\nwould copy  1 file, 4 B\n"), "{}", done.out);
        let done = host.copy(push, "--dry-run -v", "tree/same", "to/content").ok();
        assert!(
            done.out.starts_with("would replace  same\nwould copy  1 file, 4 B, in place of the one there\n"),
            "{}",
            done.out
        );
        let wrong = host.copy(push, "--dry-run", "tree/same", "none/at/all").run();
        assert!(wrong.code() == 2 && wrong.err.contains("its folder does not exist"), "{wrong:?}");
        assert!(!host.file("none").exists());
    });
}

/// Enough that names and contents come in several parts.
#[test]
fn a_dry_run_compares_many_files_and_large_ones() {
    both_ways(|push| {
        let host = Host::start();
        for i in 0..3000 {
            write(host.file("tree").join(format!("{i:0200}")), if i % 3 == 0 { "one" } else { "two" });
        }
        write(host.file("tree/large"), bytes(8 * MIB, 1));
        host.copy(push, "-r", "tree/.", "to").ok();
        same(&host.file("tree/large"), &host.file("to/large"));
        write(host.file("tree/large"), bytes(8 * MIB, 2));
        for i in 0..3000 {
            let path = host.file("tree").join(format!("{i:0200}"));
            set_time(&path, 2_000_000_000);
            if i % 1000 == 0 {
                write(path, "six");
            }
        }
        let done = host.copy(push, "-rc --dry-run --json -v", "tree/.", "to").ok();
        let last = done.json().pop().unwrap();
        assert_eq!((&last["files"], &last["present"]), (&4.into(), &2997.into()), "{last}");
        assert_eq!((&last["bytes"], changes(&done).len()), (&(8 * MIB as u64 + 9).into(), 4), "{last}");
    });
}

/// What stands in the way is told as by a copy, and then nothing would be deleted.
#[test]
fn a_dry_run_tells_what_would_not_be_copied() {
    both_ways(|push| {
        let host = Host::start();
        for name in ["folder", "in/file", "fifo", "fine"] {
            write(host.file("tree").join(name), "1");
        }
        fs::create_dir_all(host.file("to/folder")).unwrap();
        write(host.file("to/in"), "1");
        write(host.file("to/stale"), "1");
        nix::unistd::mkfifo(&host.file("to/fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let left = |words: &str| {
            let done = host.copy(push, words, "tree/.", "to").run();
            let last = done.json().pop().unwrap();
            let mut names: Vec<String> =
                last["left"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect();
            names.sort();
            (done, last, names)
        };
        let (planned, last, names) = left("-r --delete --dry-run --json -v");
        assert_eq!((planned.code(), &last["files"], &last["new"]), (1, &1.into(), &1.into()), "{last}");
        assert_eq!((&last["deleted"], names.join(" ").as_str()), (&().into(), "fifo folder in/file"), "{last}");
        assert!(!planned.out.contains("stale"), "{}", planned.out);
        let (done, last, _) = left("-r --delete --json");
        assert_eq!((done.code(), &last["files"], &last["deleted"]), (1, &1.into(), &().into()), "{last}");
        assert!(host.file("to/stale").exists());
    });
}

/// A file that an interrupted `--inplace` has written to may have its source's size, and is newer.
#[test]
fn a_dry_run_knows_unfinished_files() {
    let host = Host::start();
    for name in ["tree/a", "to/a"] {
        write(host.file(name), "a");
        set_time(&host.file(name), 1000);
    }
    fs::hard_link(host.file("to/a"), host.file("to/.fullpipe.0123456789abcdef.partial")).unwrap();
    let done = host.copy(true, "-ru --dry-run -v", "tree/.", "to").ok();
    assert!(done.out.starts_with("would replace  a\n"), "{}", done.out);
}

#[test]
fn a_dry_run_tells_of_a_read_only_file_system() {
    use nix::mount::{MsFlags, mount};
    let none = None::<&str>;
    in_mount_namespace(|| {
        let host = Host::start();
        write(host.file("a"), "1");
        fs::create_dir(host.file("to")).unwrap();
        mount(Some("none"), &host.file("to"), Some("tmpfs"), MsFlags::MS_RDONLY, none).unwrap();
        for words in ["--dry-run", ""] {
            host.copy(true, words, "a", "to/").fails(5, "cannot write to");
            host.copy(true, words, "a", "to/b").fails(5, "cannot write to the folder of");
        }
        nix::mount::umount(&host.file("to")).unwrap();
    });
}

#[test]
fn a_dry_run_tells_of_folders_without_permission() {
    if nix::unistd::geteuid().is_root() {
        return eprintln!("skipped: root may write everywhere");
    }
    let host = Host::start();
    write(host.file("a"), "1");
    fs::create_dir(host.file("closed")).unwrap();
    fs::set_permissions(host.file("closed"), fs::Permissions::from_mode(0o555)).unwrap();
    for push in [true, false] {
        for words in ["--dry-run", ""] {
            host.copy(push, words, "a", "closed/").fails(5, "cannot write to");
            host.copy(push, words, "a", "closed/new/").fails(5, "cannot make folder");
            host.copy(push, words, "a", "closed/new/deeper/").fails(5, "cannot make folder");
        }
        assert!(host.copy(push, "--dry-run", "a", "open/new/").ok().out.contains("would copy  1 file"));
    }
    fs::set_permissions(host.file("closed"), fs::Permissions::from_mode(0o755)).unwrap();
}
