//! `--delete`: what the source does not have goes, once everything has arrived, and nothing else ever.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use crate::disks::Small;
use crate::host::Host;
use crate::large::both_ways;
use crate::tree::{leftovers, mode, only, same, same_inside, write};

/// A source, and a destination that has more.
fn trees(host: &Host) {
    for name in ["a", "sub/b", "sub/deep/c"] {
        write(host.file("tree").join(name), name);
        write(host.file("to").join(name), "before");
    }
    for name in ["x", "sub/x", "sub/deep/x", "old/1", "old/deep/2", "sub/old/deeper/3"] {
        write(host.file("to").join(name), "extraneous");
    }
    fs::create_dir_all(host.file("to/empty/folder")).unwrap();
    write(host.file("outside/precious"), "stays");
    symlink("../outside", host.file("to/link")).unwrap();
    symlink("/nowhere", host.file("to/sub/dangling")).unwrap();
}

#[test]
fn what_the_source_does_not_have_is_deleted() {
    both_ways(|push| {
        let host = Host::start();
        trees(&host);
        // Neither a copy without it nor a dry run deletes anything.
        let names = |done: &crate::host::Done| {
            let mut names: Vec<String> = done
                .json()
                .iter()
                .filter(|line| line["kind"] == "deleted")
                .map(|line| line["name"].to_string())
                .collect();
            names.sort();
            names
        };
        let planned = host.copy(push, "-r --delete --dry-run --json", "tree/.", "to").ok();
        assert!(host.file("to/old/deep/2").exists() && fs::read(host.file("to/a")).unwrap() == b"before");
        assert!(leftovers(&host.file("to")).is_empty());
        host.copy(push, "-r", "tree/.", "to").ok();
        assert!(host.file("to/old/deep/2").exists());
        let done = host.copy(push, "-r --delete --json -v", "tree/.", "to").ok();
        // x, sub/x, sub/deep/x, three folders of old with two files, sub/old with three, two of empty, two links.
        assert_eq!(done.number("deleted"), 14, "{}", done.out);
        assert_eq!(names(&planned), names(&done));
        assert_eq!(planned.json().pop().unwrap()["deleted"], 14);
        same_inside(&host.file("tree"), &host.file("to"));
        assert_eq!(fs::read(host.file("outside/precious")).unwrap(), b"stays");
        // Once more there is nothing to do.
        assert_eq!(host.copy(push, "-ru --delete --json", "tree/.", "to").ok().number("deleted"), 0);
        assert!(leftovers(&host.file("to")).is_empty());
    });
}

/// As with rsync, only in folders that are copied: beside them everything stays.
#[test]
fn beside_what_is_copied_everything_stays() {
    both_ways(|push| {
        let host = Host::start();
        trees(&host);
        write(host.file("two/tree/stale"), "1");
        write(host.file("two/beside"), "1");
        write(host.file("file"), "1");
        let mut cp = host.cp();
        cp.words("-r --delete --json");
        if push {
            cp.arg(host.file("tree")).arg(host.file("file")).arg(host.far("two/"));
        } else {
            cp.arg(host.far("tree")).arg(host.far("file")).arg(host.file("two/"));
        }
        assert_eq!(cp.ok().number("deleted"), 1);
        only(&host.file("two"), &["beside", "file", "tree"]);
        same(&host.file("tree"), &host.file("two/tree"));
        // Under another name, too.
        write(host.file("named/stale"), "1");
        let done = host.copy(push, "-rT --delete", "tree", "named").ok();
        assert!(done.err.contains(", 1 deleted"), "{}", done.err);
        same(&host.file("tree"), &host.file("named"));
    });
}

#[test]
fn what_is_excluded_is_not_deleted() {
    both_ways(|push| {
        let host = Host::start();
        trees(&host);
        write(host.file("to/old/kept.tmp"), "1");
        write(host.file("to/raw/deep/1"), "1");
        write(host.file("tree/raw/deep/2"), "1");
        host.copy(push, "-r --delete --exclude *.tmp --exclude /raw", "tree/.", "to").ok();
        only(&host.file("to"), &["a", "old", "raw", "sub"]);
        only(&host.file("to/old"), &["kept.tmp"]);
        only(&host.file("to/raw/deep"), &["1"]);
        // The source's name may stand first.
        write(host.file("in/tree/raw/1"), "1");
        write(host.file("in/tree/x"), "1");
        host.copy(push, "-r --delete --exclude tree/raw", "tree", "in/").ok();
        only(&host.file("in/tree"), &["a", "raw", "sub"]);
        only(&host.file("in/tree/raw"), &["1"]);
    });
}

/// An unfinished copy of another command may go on later.
#[test]
fn files_of_other_copies_stay() {
    let host = Host::start();
    trees(&host);
    let partial = ".fullpipe.0123456789abcdef.partial";
    write(host.file("to/old").join(partial), "1");
    write(host.file("to/sub").join(partial), "1");
    host.copy(true, "-r --delete", "tree/.", "to").ok();
    only(&host.file("to/old"), &[partial]);
    assert_eq!(leftovers(&host.file("to")).len(), 2);
}

#[test]
fn nothing_is_deleted_if_anything_is_missing() {
    both_ways(|push| {
        let host = Host::start();
        trees(&host);
        // It cannot be written, as a folder of this name stands there; and something cannot be read.
        fs::create_dir(host.file("to/wrong")).unwrap();
        write(host.file("tree/wrong"), "1");
        let done = host.copy(push, "-r --delete", "tree/.", "to").fails(1, "a folder stands where the file should be");
        assert!(done.err.contains("was not copied, and so nothing was deleted"), "{}", done.err);
        assert!(host.file("to/x").exists() && host.file("to/old/deep/2").exists());
        fs::remove_file(host.file("tree/wrong")).unwrap();
        symlink("nowhere", host.file("tree/dangling")).unwrap();
        host.copy(push, "-rL --delete", "tree/.", "to").fails(1, "so nothing was deleted");
        assert!(host.file("to/x").exists());
        let planned = host.copy(push, "-rL --delete --dry-run", "tree/.", "to").fails(1, "would not be copied");
        assert!(planned.out.contains("deletes     nothing"), "{}", planned.out);
        // What is never copied is at the source all the same.
        fs::remove_file(host.file("tree/dangling")).unwrap();
        nix::unistd::mkfifo(&host.file("tree/x"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        host.copy(push, "-r --delete", "tree/.", "to").fails(1, "it is a FIFO");
        assert!(host.file("to/x").exists() && !host.file("to/old").exists());
    });
}

#[test]
fn no_more_than_the_limit() {
    both_ways(|push| {
        let host = Host::start();
        trees(&host);
        let planned = host.copy(push, "-r --delete --max-delete 3 --dry-run", "tree/.", "to").ok();
        assert!(planned.out.contains("deletes     3 files and folders, and leaves "), "{}", planned.out);
        let done =
            host.copy(push, "-r --delete --max-delete 3", "tree/.", "to").fails(1, "files or folders were not deleted");
        assert!(done.err.contains(", 3 deleted") && done.err.contains("--max-delete is reached"), "{}", done.err);
        let left = host.copy(push, "-r --delete --json", "tree/.", "to").ok().number("deleted");
        assert_eq!(left, 11);
        same_inside(&host.file("tree"), &host.file("to"));
        write(host.file("to/x"), "1");
        host.copy(push, "-r --delete --max-delete 0", "tree/.", "to").fails(1, "1 file or folder was not deleted");
        assert!(host.file("to/x").exists());
    });
}

/// A user without rights deletes what is in folders of its own, also if they are closed; what it may not delete is told.
#[test]
fn what_may_not_be_deleted_is_told() {
    let host = Host::start();
    trees(&host);
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: only root can make files of another user");
        return;
    }
    let nobody = |path: &std::path::Path| std::os::unix::fs::lchown(path, Some(65_534), Some(65_534)).unwrap();
    for name in ["", "a", "sub", "sub/b", "sub/deep", "sub/deep/c", "x", "old", "old/1", "old/deep", "old/deep/2"] {
        nobody(&host.file("to").join(name));
    }
    mode(host.file("to/old/deep"), 0o500);
    for name in ["empty", "link", "sub/old", "sub/x", "sub/dangling", "sub/deep/x"] {
        let path = host.file("to").join(name);
        if path.is_dir() && !path.is_symlink() {
            fs::remove_dir_all(path).unwrap()
        } else {
            fs::remove_file(path).unwrap()
        }
    }
    write(host.file("to/theirs/1"), "1");
    mode(host.file("to/theirs"), 0o755);
    let mut cp = host.copy(true, "-r --delete", "tree/.", "to");
    cp.far_program(&host.unprivileged());
    let done = cp.fails(1, "not deleted: theirs/1: permission denied");
    assert!(!host.file("to/old").exists() && !host.file("to/x").exists(), "{}", done.err);
    assert_eq!(fs::read(host.file("to/theirs/1")).unwrap(), b"1");
    assert_eq!(fs::metadata(host.file("to/theirs")).unwrap().permissions().mode() & 0o777, 0o755);
}

/// Another file system below the destination is not a part of it.
#[test]
fn a_mount_stays() {
    let host = Host::start();
    trees(&host);
    let at = host.file("to/old/mount");
    let Some(mount) = Small::mount(at.clone(), "size=1m") else { return };
    write(at.join("precious"), "1");
    let done = host.copy(true, "-r --delete", "tree/.", "to").run();
    let stays = at.join("precious").exists();
    mount.unmount();
    assert!(stays && done.code() == 1, "{}", done.err);
    assert!(done.err.contains("not deleted: old/mount: another file system is mounted there"), "{}", done.err);
}

/// Also if the source has a folder of that name, as where its own disk is not mounted. The destination itself may be mounted.
#[test]
fn a_mount_for_which_the_source_has_a_folder_stays() {
    both_ways(|push| {
        let host = Host::start();
        write(host.file("from/sub/mount/deeper/new"), "1");
        fs::create_dir_all(host.file("to/from/sub/mount")).unwrap();
        let (whole, at) = (host.file("to/from"), host.file("to/from/sub/mount"));
        let Some(whole_mount) = Small::mount(whole.clone(), "size=1m") else { return };
        fs::create_dir_all(&at).unwrap();
        let mount = Small::mount(at.clone(), "size=1m").unwrap();
        for file in [whole.join("sub/stale"), at.join("precious"), at.join("deeper/precious")] {
            write(file, "1");
        }
        let mut dry = host.copy(push, "-r --delete --dry-run -v", "from", "to/");
        let planned = dry.run();
        let done = host.copy(push, "-r --delete", "from", "to/").run();
        let stays = at.join("precious").exists() && at.join("deeper/precious").exists();
        let (came, gone) = (at.join("deeper/new").exists(), !whole.join("sub/stale").exists());
        mount.unmount();
        whole_mount.unmount();
        assert!(stays && came && gone && done.code() == 1, "{stays} {came} {gone} {}", done.err);
        for name in ["from/sub/mount", "from/sub/mount/deeper"] {
            let line = format!("not deleted: {name}: another file system is mounted there");
            assert!(done.err.contains(&line), "{}", done.err);
        }
        assert!(!planned.out.contains("precious"), "{}", planned.out);
    });
}

#[test]
fn what_cannot_be_deleted_from() {
    let host = Host::start();
    trees(&host);
    let to = host.far("to");
    host.cp().arg("--delete").arg(host.file("tree")).arg(&to).fails(2, "--recursive");
    host.cp().words("-r --max-delete 3").arg(host.file("tree")).arg(&to).fails(2, "--delete");
    let two = [host.file("tree/."), host.file("outside")];
    host.cp().words("-r --delete").args(&two).arg(&to).fails_at_once(2, "--delete makes a folder like one source");
}

/// Each of them lacks what the others have.
#[test]
fn several_sources_for_one_folder_delete_nothing() {
    let host = Host::start();
    for name in ["p1/a", "p2/b", "q/p1/c", "to/x", "to/p1/x"] {
        write(host.file(name), name);
    }
    let mut contents = host.cp();
    contents.words("-r --delete").arg(host.far("p*/.")).arg(host.file("to"));
    contents.fails(2, "several sources go to the same folder");
    for name in ["a", "b", "x", "p1/x"] {
        assert!(host.file("to").join(name).exists(), "{name}");
    }
    for words in ["-r --delete", "-r --delete --dry-run"] {
        let mut same_names = host.cp();
        same_names.words(words).arg(host.file("p1")).arg(host.file("q/p1")).arg(host.far("to/"));
        same_names.fails_at_once(2, "two sources are called p1");
    }
    only(&host.file("to/p1"), &["x"]);
}
