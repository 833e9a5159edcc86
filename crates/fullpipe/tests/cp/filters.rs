//! What is left out: patterns in order, sizes, other file systems.

use std::fs;

use crate::disks::Small;
use crate::host::Host;
use crate::large::both_ways;
use crate::tree::{bytes, only, write};

fn tree(host: &Host) {
    for name in ["a.h5", "a.txt", "sub/b.h5", "sub/b.tmp", "sub/deep/c.h5", "raw/keep", "raw/x", "raw/deep/y"] {
        write(host.file("tree").join(name), name);
    }
}

/// The order in which rsync reads them: of all patterns the first that matches decides.
#[test]
fn the_first_pattern_that_matches_decides() {
    both_ways(|push| {
        let host = Host::start();
        tree(&host);
        let copy = |words: &[&str], to: &str| {
            let mut cp = host.copy(push, "-r", "tree/.", to);
            cp.args(words).ok();
        };
        copy(&["--include", "*/", "--include", "*.h5", "--exclude", "*"], "h5/");
        only(&host.file("h5"), &["a.h5", "raw", "sub"]);
        only(&host.file("h5/sub"), &["b.h5", "deep"]);
        only(&host.file("h5/raw/deep"), &[]);
        copy(&["--exclude", "*", "--include", "*.h5"], "none/");
        only(&host.file("none"), &[]);
        // From a file, in its place among the others.
        write(host.file("patterns"), "# comment\n*.tmp\n\n/raw/*\n");
        let patterns = host.file("patterns");
        copy(&["--include", "/raw/keep", "--exclude-from", patterns.to_str().unwrap()], "from/");
        only(&host.file("from"), &["a.h5", "a.txt", "raw", "sub"]);
        only(&host.file("from/raw"), &["keep"]);
        only(&host.file("from/sub"), &["b.h5", "deep"]);
        // Two stars match slashes, also beside other characters, as in rsync.
        copy(&["--exclude", "sub/**.h5"], "stars/");
        only(&host.file("stars/sub"), &["b.tmp", "deep"]);
        only(&host.file("stars/sub/deep"), &[]);
        // A slash at the end matches folders only.
        write(host.file("tree/deep"), "a file");
        copy(&["--exclude", "deep/"], "files/");
        only(&host.file("files/sub"), &["b.h5", "b.tmp"]);
        assert_eq!(fs::read(host.file("files/deep")).unwrap(), b"a file");
    });
}

/// What is left out is not deleted either, whatever leaves it out.
#[test]
fn what_is_left_out_is_not_deleted() {
    both_ways(|push| {
        let host = Host::start();
        tree(&host);
        for name in ["stale.h5", "mine.txt", "sub/mine.tmp"] {
            write(host.file("to").join(name), "1");
        }
        let mut cp = host.copy(push, "-r --delete", "tree/.", "to");
        cp.args(&["--include", "*/", "--include", "*.h5", "--exclude", "*"]).ok();
        only(&host.file("to"), &["a.h5", "mine.txt", "raw", "sub"]);
        only(&host.file("to/sub"), &["b.h5", "deep", "mine.tmp"]);
        // A file that is too large is at the source all the same.
        write(host.file("tree/large"), bytes(5000, 1));
        write(host.file("to/large"), "an older one");
        host.copy(push, "-r --delete --max-size 1KB", "tree/.", "to").ok();
        assert_eq!(fs::read(host.file("to/large")).unwrap(), b"an older one");
        assert!(!host.file("to/mine.txt").exists());
    });
}

#[test]
fn sizes() {
    both_ways(|push| {
        let host = Host::start();
        for (name, size) in [("none", 0), ("small", 999), ("medium", 1000), ("large", 1001)] {
            write(host.file("tree").join(name), bytes(size, 1));
        }
        let done = host.copy(push, "-r --max-size 1000B --json", "tree/.", "most/").ok();
        assert_eq!((done.number("files"), done.number("left_total")), (3, 0));
        only(&host.file("most"), &["medium", "none", "small"]);
        host.copy(push, "-r --min-size 1000B", "tree/.", "least/").ok();
        only(&host.file("least"), &["large", "medium"]);
        host.copy(push, "-r --min-size 1KB --max-size 1KB", "tree/.", "both/").ok();
        only(&host.file("both"), &["medium"]);
        let planned = host.copy(push, "-r --max-size 999B --dry-run", "tree/.", "dry/").ok();
        assert!(planned.out.contains("would copy  2 files, 999 B"), "{}", planned.out);
    });
}

#[test]
fn one_file_system() {
    let host = Host::start();
    tree(&host);
    let at = host.file("tree/mount");
    let Some(mount) = Small::mount(at.clone(), "size=1m") else { return };
    write(at.join("other"), "1");
    write(host.file("to/mount/mine"), "1");
    let done = [host.copy(true, "-rx --delete", "tree/.", "to").run(), host.copy(false, "-r", "tree/.", "all/").run()];
    mount.unmount();
    assert!(done.iter().all(|done| done.code() == 0), "{done:?}");
    only(&host.file("to/mount"), &["mine"]);
    only(&host.file("all/mount"), &["other"]);
}

#[test]
fn what_no_pattern_can_be() {
    let host = Host::start();
    tree(&host);
    let copy = |words: &[&str], why: &str| {
        let mut cp = host.copy(true, "-r", "tree", "to");
        cp.args(words).fails_at_once(2, why);
    };
    copy(&["--exclude-from", "/nowhere"], "--exclude-from /nowhere: No such file");
    copy(&["--include", "["], "--include '[': ");
}
