//! What is in files, and what they are besides: sizes around every boundary, holes, times, links.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, symlink};

use crate::disks::Small;
use crate::host::Host;
use crate::large::both_ways;
use crate::tree::{bytes, date, leftovers, mode, only, same, same_content, same_inside, write};

const MIB: usize = 1 << 20;

/// Over a slow path a block takes seconds.
#[test]
fn progress_is_of_what_has_come() {
    let host = Host::start();
    write(host.file("data"), bytes(6 * MIB, 3));
    for (from, to) in [(host.file("data").into(), host.far("push")), (host.far("data"), host.file("pull").into())] {
        let done = host.cp().words("--json -n 1 --pacing 8mbit").arg(from).arg(to).ok();
        let said = done.json();
        let so_far: Vec<u64> =
            said.iter().filter(|line| line["kind"] == "progress").map(|l| l["bytes"].as_u64().unwrap()).collect();
        // The first of four blocks takes one and a half seconds.
        let first = so_far[0];
        assert!(0 < first && first < 6 * MIB as u64 && so_far.is_sorted(), "{so_far:?}");
    }
}

#[test]
fn sizes_around_every_boundary() {
    sizes(&Host::start());
}

#[test]
fn sizes_around_every_boundary_in_memory() {
    sizes(&Host::in_memory());
}

fn sizes(host: &Host) {
    let tree = host.file("tree");
    let edges = [4096, 256 << 10, MIB, 2 * MIB, 8 * MIB].into_iter().flat_map(|edge| [edge - 1, edge, edge + 1]);
    for size in edges.chain([0, 1, 511, 3 * MIB + 12_345, 17 * MIB + 7]) {
        write(tree.join(size.to_string()), bytes(size, size as u64));
    }
    host.cp().arg("-r").arg(&tree).arg(host.far("push")).ok();
    same(&tree, &host.file("push"));
    host.cp().arg("-r").arg("--no-encrypt").arg(&tree).arg(host.far("plain")).ok();
    same(&tree, &host.file("plain"));
    host.cp().arg("-r").arg(host.far("tree")).arg(host.file("pull")).ok();
    same(&tree, &host.file("pull"));
    // Other blocks, other streams, direct I/O, to disk.
    let other = "-r --no-encrypt --block 64KiB --streams 7 --direct on --fsync";
    host.cp().words(other).arg(host.far("tree")).arg(host.file("other")).ok();
    same(&tree, &host.file("other"));
    let one = "-r --block 64MiB -n 1 --direct off";
    host.cp().words(one).arg(&tree).arg(host.far("one")).ok();
    same(&tree, &host.file("one"));
    // No block begins or ends where a huge page does.
    let odd = "-r --block 3003KiB -n 2";
    host.cp().words(odd).arg(&tree).arg(host.far("odd")).ok();
    same(&tree, &host.file("odd"));
    for copy in ["push", "plain", "pull", "other", "one", "odd"] {
        assert!(leftovers(&host.file(copy)).is_empty());
    }
    only(&host.file(""), &["odd", "one", "other", "plain", "pull", "push", "tree"]);
}

#[test]
fn what_files_are_besides_their_content() {
    let host = Host::start();
    let tree = host.file("tree");
    let root = nix::unistd::geteuid().is_root();
    for (name, bits) in [("a", 0o644), ("b", 0o755), ("c", 0o444), ("d", 0o600), ("e", 0o4755), ("f", 0o2755)] {
        for (name, len) in [(name.to_owned(), 10), (format!("{name}-large"), MIB + 10)] {
            write(tree.join(&name), bytes(len, 1));
            if root {
                std::os::unix::fs::chown(tree.join(&name), Some(1234), Some(5678)).unwrap();
            }
            mode(tree.join(&name), bits);
            date(tree.join(&name), 1_000_000_000, 123_456_789);
        }
    }
    write(tree.join("old"), "");
    date(tree.join("old"), 0, 1);
    fs::create_dir(tree.join("empty")).unwrap();
    for (link, target) in [("in", "a"), ("dangling", "no/such"), ("out", "/etc/passwd"), ("folder", "empty")] {
        symlink(target, tree.join(link)).unwrap();
        nix::sys::stat::utimensat(
            nix::fcntl::AT_FDCWD,
            &tree.join(link),
            &nix::sys::time::TimeSpec::new(1, 2),
            &nix::sys::time::TimeSpec::new(900_000_000, 987_654_321),
            nix::sys::stat::UtimensatFlags::NoFollowSymlink,
        )
        .unwrap();
        if root {
            std::os::unix::fs::lchown(tree.join(link), Some(12), Some(34)).unwrap();
        }
    }
    write(tree.join("closed/deeper/file"), "1");
    mode(tree.join("closed/deeper/file"), 0o400);
    mode(tree.join("closed/deeper"), 0o555);
    mode(tree.join("closed"), 0o500);
    mode(tree.join("empty"), 0o1777);
    for folder in ["closed/deeper", "closed", "empty", ""] {
        date(tree.join(folder), 800_000_000, 999_999_999);
    }
    host.cp().arg("-rp").arg(&tree).arg(host.far("push")).ok();
    same(&tree, &host.file("push"));
    host.cp().arg("-rp").arg(host.far("tree")).arg(host.file("pull")).ok();
    same(&tree, &host.file("pull"));
    // Over what is there.
    host.cp().arg("-rp").arg(tree.join(".")).arg(host.far("push")).ok();
    date(host.file("push"), 800_000_000, 999_999_999);
    same(&tree, &host.file("push"));
    for dir in ["tree", "push", "pull"] {
        mode(host.file(dir).join("closed"), 0o755);
        mode(host.file(dir).join("closed/deeper"), 0o755);
    }
}

#[test]
fn the_content_of_a_folder_however_it_is_called() {
    let host = Host::start();
    let tree = host.file("tree");
    write(tree.join("a"), "1");
    write(tree.join("b/c"), "2");
    for (number, content) in [".", "./", "b/..", "b/../", "./."].iter().enumerate() {
        let (push, pull) = (format!("push{number}"), host.file(&format!("pull{number}")));
        host.cp().within(&tree).arg("-r").arg(content).arg(host.far(&push)).ok();
        host.cp().arg("-r").arg(host.far(&format!("tree/{content}"))).arg(&pull).ok();
        for to in [host.file(&push), pull] {
            only(&to, &["a", "b"]);
            same_content(&tree.join("a"), &to.join("a"));
            same_content(&tree.join("b/c"), &to.join("b/c"));
        }
    }
}

#[test]
fn what_is_no_file_is_not_replaced_by_one() {
    let host = Host::start();
    fs::create_dir(host.file("to")).unwrap();
    nix::unistd::mkfifo(&host.file("to/a"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    for size in [3, 3 * MIB] {
        write(host.file("a"), bytes(size, 1));
        let done = host.cp().arg(host.file("a")).arg(host.far("to/")).run();
        assert_eq!(done.code(), 1, "{}", done.err);
        assert!(done.err.contains("a device, FIFO or socket stands there"), "{}", done.err);
        assert!(fs::symlink_metadata(host.file("to/a")).unwrap().file_type().is_fifo());
    }
}

#[test]
fn holes_stay_holes() {
    let host = Host::start();
    let sparse = host.file("tree/sparse");
    write(&sparse, "");
    let file = File::options().write(true).open(&sparse).unwrap();
    file.set_len(200 << 20).unwrap();
    // Data at the start of a block, across two of them, unaligned, and before the end.
    for at in [0, (8 << 20) - 100, (50 << 20) + 4097, (200 << 20) - 5000] {
        file.write_all_at(&bytes(5000, at), at).unwrap();
    }
    write(host.file("tree/only-a-hole"), "");
    File::options().write(true).open(host.file("tree/only-a-hole")).unwrap().set_len(100 << 20).unwrap();
    let used = |path: std::path::PathBuf| fs::metadata(path).unwrap().blocks() * 512;
    assert!(used(sparse.clone()) < 1 << 20, "these files' own file system has no holes");
    let pushed = host.cp().arg("--json").arg("-r").arg(host.file("tree")).arg(host.far("push")).ok();
    assert!(pushed.number("bytes") < 1 << 20, "{}", pushed.out);
    host.cp().arg("-r").arg(host.far("tree")).arg(host.file("pull")).ok();
    for copy in ["push", "pull"] {
        same(&host.file("tree"), &host.file(copy));
        for name in ["sparse", "only-a-hole"] {
            let used = used(host.file(copy).join(name));
            assert!(used < 1 << 20, "{copy}/{name} has {used} bytes");
        }
    }
    // On request, files have all of their blocks.
    write(host.file("tree/small"), vec![0; 10_000]);
    for push in [true, false] {
        let to = if push { "dense-push" } else { "dense-pull" };
        host.copy(push, "-r --no-sparse", "tree/.", to).ok();
        same_inside(&host.file("tree"), &host.file(to));
        for (name, len) in [("sparse", 200 << 20), ("only-a-hole", 100 << 20), ("small", 10_000)] {
            let used = used(host.file(to).join(name));
            assert!(used >= len, "{to}/{name} has {used} bytes");
        }
    }
    // Over a file that has data where the hole is.
    write(host.file("full"), bytes(100 << 20, 3));
    host.cp().arg(host.file("tree/only-a-hole")).arg(host.far("full")).ok();
    same_content(&host.file("tree/only-a-hole"), &host.file("full"));
}

/// As rsync: with -H a file with several names is one at the destination, too.
#[test]
fn hard_links_on_request() {
    both_ways(|push| {
        let host = Host::start();
        let tree = host.file("tree");
        for (name, len) in [("a/small", 100), ("a/large", 3 * MIB), ("a/alone", 10)] {
            write(tree.join(name), bytes(len, 1));
        }
        fs::create_dir(tree.join("b")).unwrap();
        for (from, to) in [("a/small", "b/small"), ("a/large", "b/large"), ("a/large", "c")] {
            fs::hard_link(tree.join(from), tree.join(to)).unwrap();
        }
        let inodes = |top: &str| {
            let inode = |name: &str| fs::metadata(host.file(top).join(name)).unwrap().ino();
            let (small, large) = (["a/small", "b/small"].map(inode), ["a/large", "b/large", "c"].map(inode));
            (small[0] == small[1], large[0] == large[1] && large[1] == large[2])
        };
        let copy = |how: &str, to: &str| host.copy(push, &format!("-r {how}"), "tree/.", to);
        // Without, it is told once.
        let done = copy("", "without/").ok();
        let lines: Vec<&str> = done.err.lines().filter(|line| line.starts_with("not kept: ")).collect();
        assert!(lines.len() == 1 && lines[0].starts_with("not kept: hard links of 3 files"), "{}", done.err);
        assert!(lines[0].ends_with("each becomes a file of its own; -H keeps them, 6.292 MB more"), "{}", done.err);
        assert_eq!(inodes("without"), (false, false));
        same_inside(&tree, &host.file("without"));
        // With it, the content is sent once; over what is there, too, and again.
        let planned = copy("-H --json --dry-run", "with/").ok().json().pop().unwrap();
        assert_eq!((&planned["files"], &planned["bytes"]), (&6.into(), &(3 * MIB + 110).into()));
        for (how, to, bytes) in
            [("-H", "with/", 3 * MIB + 110), ("-H", "without/", 3 * MIB + 110), ("-Hu --fsync", "with/", 0)]
        {
            let done = copy(how, to).arg("--json").ok();
            assert_eq!((done.number("bytes"), done.number("files")), (bytes as u64, 6), "{how} {to}");
            assert_eq!(inodes(to), (true, true), "{how} {to}");
            same_inside(&tree, &host.file(to));
            assert!(leftovers(&host.file(to)).is_empty());
        }
        // A link that cannot be made is skipped, and made once it can.
        fs::remove_dir_all(host.file("with/a")).unwrap();
        write(host.file("with/a"), "in the way");
        copy("-H", "with/").fails(1, "not copied: a/large: a file stands where a folder is needed");
        fs::remove_file(host.file("with/a")).unwrap();
        copy("-H", "with/").ok();
        assert_eq!(inodes("with"), (true, true));
    });
}

#[test]
fn links_are_followed_on_request() {
    let host = Host::start();
    let tree = host.file("tree");
    write(tree.join("sub/file"), "content");
    write(host.file("outside/inner"), "outside");
    symlink("sub/file", tree.join("link")).unwrap();
    symlink("../outside", tree.join("folder")).unwrap();
    symlink("..", tree.join("sub/loop")).unwrap();
    symlink("self", tree.join("self")).unwrap();
    symlink("nowhere", tree.join("dangling")).unwrap();
    let done =
        host.cp().arg("-rL").arg(&tree).arg(host.far("to")).fails(1, "not copied: tree/sub/loop: a symbolic link");
    assert!(
        done.err.contains("not copied: tree/self: ") && done.err.contains("not copied: tree/dangling: "),
        "{}",
        done.err
    );
    assert_eq!(done.err.matches("not copied: ").count(), 3, "{}", done.err);
    assert_eq!(fs::read(host.file("to/link")).unwrap(), b"content");
    assert_eq!(fs::read(host.file("to/folder/inner")).unwrap(), b"outside");
    assert!(!fs::symlink_metadata(host.file("to/link")).unwrap().is_symlink());
    // A source that is a link is followed without -L; below it they are links.
    symlink("tree", host.file("top")).unwrap();
    host.cp().arg("-r").arg(host.far("top")).arg(host.file("back")).ok();
    assert!(fs::symlink_metadata(host.file("back/self")).unwrap().is_symlink());
    same(&tree, &host.file("back"));
}

#[test]
fn many_small_files() {
    let host = Host::start();
    for i in 0..2000 {
        write(host.file("tree").join(format!("{}/{i}", i % 37)), bytes(i % 300, i as u64));
    }
    let done = host.cp().words("--json -r").arg(host.file("tree")).arg(host.far("to")).ok();
    assert_eq!((done.number("files"), done.number("left_total")), (2000, 0));
    same(&host.file("tree"), &host.file("to"));
    assert!(leftovers(&host.file("to")).is_empty());
    // Once more with --update: nothing is sent.
    let done = host.cp().words("--json -r --update").arg(host.file("tree/.")).arg(host.far("to")).ok();
    assert_eq!((done.number("files"), done.number("skipped"), done.number("bytes")), (2000, 2000, 0));
    // Only what differs: in size, in time; not what only its content tells apart.
    write(host.file("tree/0/0"), "longer than before");
    date(host.file("tree/1/1"), 4_000_000_000, 5);
    // What is newer there stays.
    write(host.file("to/3/3"), "worked on");
    date(host.file("to/3/3"), 4_000_000_000, 0);
    write(host.file("tree/2/2"), "ab");
    date(host.file("tree/2/2"), 6, 6);
    date(host.file("to/2/2"), 6, 6);
    let done = host.cp().words("--json -r --update").arg(host.far("tree/.")).arg(host.file("to")).ok();
    assert_eq!((done.number("files"), done.number("skipped")), (2000, 1998));
    assert_eq!(fs::read(host.file("to/2/2")).unwrap(), bytes(2, 2));
    assert_eq!(fs::read(host.file("to/3/3")).unwrap(), b"worked on");
    host.cp().words("-q -r").arg(host.file("tree/.")).arg(host.far("to")).ok();
    same_inside(&host.file("tree"), &host.file("to"));
}

#[test]
fn many_large_files_at_once() {
    let host = Host::start();
    for i in 0..80 {
        write(host.file("tree").join(i.to_string()), bytes(MIB + 1 + i * 10, i as u64));
    }
    host.cp().arg("-r").arg(host.file("tree")).arg(host.far("push")).ok();
    same(&host.file("tree"), &host.file("push"));
    host.cp().words("-r --no-encrypt -n 3").arg(host.far("tree")).arg(host.file("pull")).ok();
    same(&host.file("tree"), &host.file("pull"));
}

/// The log has what was copied and how it ended, whatever else is printed.
#[test]
fn what_the_log_says() {
    both_ways(|push| {
        let host = Host::start();
        write(host.file("tree/a\nb"), "1");
        write(host.file("to/stale"), "1");
        let log = host.file("log");
        let mut cp = host.copy(push, "-rq --delete", "tree/.", "to");
        cp.arg("--log-file").arg(&log).ok();
        let text = fs::read_to_string(&log).unwrap();
        let lines: Vec<&str> = text.lines().map(|line| line.split_once("Z ").unwrap().1).collect();
        let first = lines[0].strip_prefix(concat!("fullpipe ", env!("CARGO_PKG_VERSION"), ": ")).unwrap();
        assert!(first.contains(" cp --ssh ... ") && first.contains(" -rq --delete "), "{text}");
        let named = if push { "sent: $'a\\nb'" } else { "copied: $'a\\nb'" };
        assert_eq!(lines[1..3], [named, "deleted: stale"], "{text}");
        // A copy that is so small has no rate.
        assert!(lines.len() == 4 && lines[3].starts_with("1 file, 1 deleted, 1 B in "), "{text}");
        assert!(!lines[3].contains("b/s"), "{text}");
        let mut failed = host.copy(push, "-q", "missing", "to/");
        failed.arg("--log-file").arg(&log).run();
        let text = fs::read_to_string(&log).unwrap();
        assert!(text.lines().count() == 6 && text.contains("Z error: "), "{text}");
    });
}

/// Of many files that are not copied, standard error has the first. A log that is not whole is a failure.
#[test]
fn the_log_is_whole() {
    both_ways(|push| {
        let host = Host::start();
        fs::create_dir(host.file("tree")).unwrap();
        for number in 0..50 {
            nix::unistd::mkfifo(&host.file("tree").join(number.to_string()), nix::sys::stat::Mode::S_IRWXU).unwrap();
        }
        let log = host.file("log");
        let mut cp = host.copy(push, "-rq", "tree", "to");
        cp.arg("--log-file").arg(&log);
        let done = cp.run();
        let named = |text: &str| text.matches("not copied: ").count();
        assert_eq!((done.code(), named(&done.err), named(&fs::read_to_string(&log).unwrap())), (1, 20, 50));
        let Some(_full) = Small::mount(host.file("small"), "size=8k") else { return };
        for number in 0..500 {
            write(host.file("many").join(number.to_string()), "1");
        }
        let mut cp = host.copy(push, "-r", "many", "to");
        cp.arg("--log-file").arg(host.file("small/log")).fails(5, "lines of the log are missing");
        assert!(host.file("to/many/499").exists());
    });
}

/// What a flag has asked for is not explained by something else.
#[test]
fn explain_names_the_flags_that_decide() {
    let host = Host::start();
    write(host.file("large"), bytes(48 * MIB, 1));
    let copy = |words: &str| {
        let done = host.copy(true, &format!("--explain {words}"), "large", "to").ok();
        done.out + &done.err
    };
    let limited = copy("-n 8 --bwlimit 100mbit");
    assert!(limited.contains("; limited by --bwlimit)"), "{limited}");
    assert!(limited.contains("faster      --bwlimit (or --pacing, its other name) limited the copy;"), "{limited}");
    assert!(limited.contains(" × 8") && !limited.contains(" streams: at ") && !limited.contains("select"), "{limited}");
    let through_ssh = copy("-n 3 --via ssh");
    assert!(!through_ssh.contains("ssh connections unless -n says otherwise"), "{through_ssh}");
    assert!(copy("").contains(" streams: at "));
}

#[test]
fn what_json_says() {
    let host = Host::start();
    write(host.file("a\nb"), bytes(12 * MIB, 1));
    let done = host.cp().words("--json --pacing 30mbit").arg(host.file("a\nb")).arg(host.far("to")).ok();
    let lines = done.json();
    let kinds: Vec<_> = lines.iter().map(|line| line["kind"].as_str().unwrap()).collect();
    assert_eq!((kinds.first(), kinds.last()), (Some(&"transport"), Some(&"done")), "{kinds:?}");
    let progress = lines.iter().find(|line| line["kind"] == "progress").unwrap();
    assert_eq!(progress["found_bytes"], 12 * MIB);
    assert_eq!((done.number("files"), done.number("bytes")), (1, 12 * MIB as u64));
    assert_eq!((&lines[lines.len() - 1]["exit_code"], &lines[lines.len() - 1]["error"]), (&0.into(), &().into()));
    assert_eq!(lines[lines.len() - 1]["bottleneck"], "bwlimit");
    assert_eq!(done.err, "");
    // Words go to standard error, none with --quiet; that nothing is encrypted is always one of them.
    let done = host.cp().arg("--no-encrypt").arg(host.file("a\nb")).arg(host.far("to2")).ok();
    assert!(done.out.is_empty() && done.err.contains("not encrypted"), "{done:?}");
    let done = host.cp().arg("-q").arg(host.file("a\nb")).arg(host.far("to2")).ok();
    assert_eq!((done.out.as_str(), done.err.as_str()), ("", ""));
}

/// What standard error says last, a program reads in the last line of standard output.
#[test]
fn how_a_copy_ended_is_in_the_last_line_of_json() {
    both_ways(|push| {
        let host = Host::start();
        write(host.file("tree/a"), "1");
        for stale in ["1", "2"] {
            write(host.file("to").join(stale), "stale");
        }
        let done = host.copy(push, "-r --delete --max-delete 1 --json", "tree/.", "to").run();
        let last = done.json().pop().unwrap();
        assert_eq!((done.code(), &last["exit_code"], &last["deleted"]), (1, &1.into(), &1.into()), "{last}");
        let error = last["error"].as_str().unwrap();
        assert!(error == "1 file or folder was not deleted" && done.err.contains(error), "{last}: {}", done.err);
        assert_eq!((&last["not_deleted"], &last["bottleneck"]), (&serde_json::json!([]), &().into()), "{last}");
    });
}

#[test]
fn stripes_where_there_is_no_lustre_are_told_once() {
    let host = Host::start();
    for name in ["tree/one", "tree/two"] {
        write(host.file(name), bytes(2 * MIB, 7));
    }
    write(host.file("tree/small"), "x");
    let copy = |flags: &str| {
        let mut cp = host.cp();
        cp.words(flags).arg("-r").arg(host.file("tree/.")).arg(host.far("to"));
        cp.run()
    };
    let done = copy("--stripe 4,1MiB");
    assert_eq!(done.code(), 0, "{}", done.err);
    let lines: Vec<&str> = done.err.lines().filter(|line| line.starts_with("not kept: ")).collect();
    let begins = lines.len() == 1 && lines[0].starts_with("not kept: stripes of 2 files or folders, the first ");
    assert!(begins && lines[0].ends_with(": the destination is not on Lustre"), "{}", done.err);
    same(&host.file("tree/one"), &host.file("to/one"));
    assert!(!copy("").err.contains("not kept"));
    for (flag, why) in
        [("--stripe 0", "1 to 2000"), ("--stripe 4,100KB", "multiple of 64KiB"), ("--stripe 4,", "stripe")]
    {
        let done = copy(flag);
        assert!(done.code() == 2 && done.err.contains(why), "{flag}: {}", done.err);
    }
}
