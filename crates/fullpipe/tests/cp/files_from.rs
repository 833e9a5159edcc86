//! `--files-from`: only what a list names, below one source.

use std::fs::{self, File};
use std::os::unix::fs::symlink;

use crate::disks::Small;
use crate::host::{Done, Host};
use crate::large::{LARGE, MIB, SLOW, both_ways, some_blocks};
use crate::tree::{bytes, date, leftovers, mode, only, same, write};

fn tree(host: &Host) {
    for name in ["a", "b", "#c", "sub/d", "sub/deep/e", "sub/deep/er/f", "other/g"] {
        write(host.file("tree").join(name), name);
    }
    write(host.file("outside"), "not part of the source");
}

/// Copies what a list names into the folder `to`.
fn copy(host: &Host, push: bool, words: &str, list: &str, to: &str) -> Done {
    let file = host.file(&format!("{to}.list"));
    write(&file, list);
    let mut cp = host.copy(push, words, "tree", to);
    cp.arg("--files-from").arg(file).run()
}

#[test]
fn only_what_the_list_names_is_copied() {
    both_ways(|push| {
        let host = Host::start();
        tree(&host);
        mode(host.file("tree/sub/deep"), 0o750);
        date(host.file("tree/sub/deep"), 1_000_000_000, 5);
        // Twice, with slashes and dots that mean nothing, with ends of lines as on Windows, and with comments.
        let list = "a\na\n\n; x\n# y\n./#c\r\n/sub//deep/./e\nsub/deep/e";
        let done = copy(&host, push, "--json", list, "to");
        assert_eq!((done.code(), done.number("files")), (0, 3), "{}", done.err);
        only(&host.file("to"), &["#c", "a", "sub"]);
        only(&host.file("to/sub"), &["deep"]);
        only(&host.file("to/sub/deep"), &["e"]);
        // The folders on the way are as those of the source.
        let meta = fs::metadata(host.file("to/sub/deep")).unwrap();
        assert_eq!(meta.modified().unwrap(), fs::metadata(host.file("tree/sub/deep")).unwrap().modified().unwrap());
        assert_eq!(std::os::unix::fs::PermissionsExt::mode(&meta.permissions()) & 0o777, 0o750);
        // An empty list copies nothing, and is no mistake.
        let done = copy(&host, push, "--json", "# nothing\n", "empty");
        assert_eq!((done.code(), done.number("files")), (0, 0), "{}", done.err);
        only(&host.file("empty"), &[]);
    });
}

/// As with rsync: what is named is copied, and with -x what is found below it stays on its file system.
#[test]
fn a_listed_name_may_be_on_another_file_system() {
    both_ways(|push| {
        let host = Host::start();
        tree(&host);
        let Some(other) = Small::mount(host.file("tree/other"), "size=1m") else { return };
        write(host.file("tree/other/deep/g"), "g");
        let Some(third) = Small::mount(host.file("tree/other/deep/third"), "size=1m") else { return };
        write(host.file("tree/other/deep/third/h"), "h");
        let named = copy(&host, push, "-x", "other/deep/g\n", "named");
        let below = copy(&host, push, "-rx", "other/deep\nsub\n", "below");
        let all = copy(&host, push, "-rx", ".\n", "all");
        third.unmount();
        other.unmount();
        assert_eq!((named.code(), below.code(), all.code()), (0, 0, 0), "{} {} {}", named.err, below.err, all.err);
        same(&host.file("tree/a"), &host.file("all/a"));
        only(&host.file("named/other/deep"), &["g"]);
        only(&host.file("below/other/deep"), &["g", "third"]);
        only(&host.file("below/other/deep/third"), &[]);
        only(&host.file("below/sub"), &["d", "deep"]);
        only(&host.file("all/other"), &[]);
    });
}

/// As with rsync: content comes with -r only.
#[test]
fn a_listed_folder_is_copied_without_its_content_unless_r_is_given() {
    both_ways(|push| {
        let host = Host::start();
        tree(&host);
        let done = copy(&host, push, "--json", "sub/deep/\nsub/deep/e\n.\n", "flat");
        assert_eq!((done.code(), done.number("files")), (0, 1), "{}", done.err);
        only(&host.file("flat"), &["sub"]);
        only(&host.file("flat/sub/deep"), &["e"]);
        let done = copy(&host, push, "-r --json", "sub/deep\nsub/deep/e\n", "deep");
        assert_eq!((done.code(), done.number("files")), (0, 2), "{}", done.err);
        only(&host.file("deep"), &["sub"]);
        only(&host.file("deep/sub"), &["deep"]);
        same(&host.file("tree/sub/deep"), &host.file("deep/sub/deep"));
        // The source itself.
        assert_eq!(copy(&host, push, "-r", "b\n.\n", "all").code(), 0);
        only(&host.file("all"), &["#c", "a", "b", "other", "sub"]);
        // Patterns apply to what is listed and to what is in it, not to the folders on the way.
        let done = copy(&host, push, "-r --exclude er/ --exclude a --exclude sub", "a\nb\nsub/deep\n", "some");
        assert_eq!(done.code(), 0, "{}", done.err);
        only(&host.file("some"), &["b", "sub"]);
        only(&host.file("some/sub/deep"), &["e"]);
    });
}

#[test]
fn names_that_are_missing_are_told_and_the_rest_is_copied() {
    both_ways(|push| {
        let host = Host::start();
        tree(&host);
        let done = copy(&host, push, "", "a\nnone\nnot/there\na/below a file\n", "to");
        assert_eq!(done.code(), 1, "{}", done.err);
        for name in ["none", "not/there", "a/below a file"] {
            assert!(done.err.lines().any(|line| line.contains(name)), "{name}: {}", done.err);
        }
        only(&host.file("to"), &["a"]);
        assert!(leftovers(&host.file("to")).is_empty());
        // So with a dry run, which counts what there is.
        let done = copy(&host, push, "--dry-run --json", "a\nsub/d\nnone\n", "dry");
        let last = done.json().pop().unwrap();
        assert_eq!((done.code(), &last["files"], &last["left_total"]), (1, &2.into(), &1.into()), "{last}");
        assert!(!host.file("dry").exists());
        // With -v, it names them.
        let done = copy(&host, push, "--dry-run -v", "a\nsub/d\nnone\n", "dry");
        let lines: Vec<&str> = done.out.lines().collect();
        assert_eq!(lines[..2], ["would create  a", "would create  sub/d"], "{}", done.out);
        assert!(lines[2].starts_with("would copy  2 files"), "{}", done.out);
    });
}

/// As with rsync, `..` ends at the source. Unlike with rsync, links on the way are followed only with -L.
#[test]
fn no_name_leads_out_of_the_source() {
    both_ways(|push| {
        let host = Host::start();
        tree(&host);
        symlink("..", host.file("tree/up")).unwrap();
        symlink("sub", host.file("tree/link")).unwrap();
        let done = copy(&host, push, "", "../outside\nup/outside\n/etc/passwd\nsub/../../b\nlink/d\n", "to");
        assert_eq!(done.code(), 1, "{}", done.err);
        only(&host.file("to"), &["b"]);
        assert!(done.err.contains("up is a symbolic link, which only -L follows"), "{}", done.err);
        // A link that is listed is copied as a link, and with -L it is followed.
        assert_eq!(copy(&host, push, "", "link\n", "links").code(), 0);
        assert_eq!(fs::read_link(host.file("links/link")).unwrap().to_str(), Some("sub"));
        let done = copy(&host, push, "-L", "link/d\n", "followed");
        assert_eq!(done.code(), 0, "{}", done.err);
        same(&host.file("tree/sub/d"), &host.file("followed/link/d"));
    });
}

#[test]
fn a_list_from_standard_input_with_zeros_between_its_names() {
    both_ways(|push| {
        let host = Host::start();
        tree(&host);
        write(host.file("tree/line\nbreak"), "1");
        write(host.file("zeros"), "#c\0line\nbreak\0sub/d\0");
        let stdin = || File::open(host.file("zeros")).unwrap();
        host.copy(push, "--from0 --files-from -", "tree", "to").stdin(stdin()).ok();
        only(&host.file("to"), &["#c", "line\nbreak", "sub"]);
        host.copy(push, "--files-from -", "tree", "no").stdin(stdin()).fails_at_once(2, "add --from0");
        // The same for patterns.
        write(host.file("patterns"), "line*\0sub\0");
        let mut cp = host.copy(push, "-r -0", "tree/.", "rest/");
        cp.arg("--exclude-from").arg(host.file("patterns")).ok();
        only(&host.file("rest"), &["#c", "a", "b", "other"]);
    });
}

/// As where several run side by side, each with a part of the names.
#[test]
fn copies_with_different_lists_do_not_disturb_each_other() {
    both_ways(|push| {
        let host = Host::start();
        write(host.file("tree/large"), bytes(LARGE, 7));
        write(host.file("tree/b"), "b");
        fs::create_dir(host.file("to")).unwrap();
        write(host.file("first"), "large\n");
        let first = |words: &str| {
            let mut cp = host.copy(push, words, "tree", "to");
            cp.arg("--files-from").arg(host.file("first"));
            cp
        };
        let running = first(SLOW).start();
        some_blocks(&host.file("to"));
        // Beside the first, and after its end.
        assert_eq!(copy(&host, push, "", "b\n", "to").code(), 0);
        running.kill();
        let done = copy(&host, push, "", "b\n# again\n", "to");
        assert_eq!(done.code(), 0, "{}", done.err);
        // A far end that receives may still be there.
        assert!(push || done.err.contains("1 unfinished copy of another command"), "{}", done.err);
        // The first goes on where it was.
        let done = first("--json").ok();
        assert!(done.number("bytes") < (LARGE - 2 * MIB) as u64, "{}", done.out);
        only(&host.file("to"), &["b", "large"]);
        same(&host.file("tree/large"), &host.file("to/large"));
    });
}

#[test]
fn very_many_names() {
    both_ways(|push| {
        let host = Host::start();
        tree(&host);
        // More than fits one message; most are not there.
        let mut list: String = (0..200_000).map(|n| format!("other/missing-{n:06}\n")).collect();
        list.push_str("other/g\n");
        let done = copy(&host, push, "--json", &list, "to");
        assert_eq!(done.code(), 1, "{}", done.err);
        let last = done.json().pop().unwrap();
        assert_eq!((&last["files"], &last["left_total"]), (&1.into(), &200_000.into()));
        only(&host.file("to/other"), &["g"]);
    });
}

#[test]
fn what_makes_no_sense_with_a_list_is_refused() {
    let host = Host::start();
    tree(&host);
    write(host.file("list"), "a\n");
    let list = host.file("list");
    let mut cp = host.cp();
    cp.arg("--files-from").arg(&list).arg(host.file("tree")).arg(host.file("outside")).arg(host.far("to/"));
    cp.fails_at_once(2, "--files-from lists names below one source");
    let mut cp = host.copy(true, "-r --delete", "tree", "to");
    cp.arg("--files-from").arg(&list).fails(2, "--delete");
    host.copy(true, "-0", "tree", "to").fails(2, "--files-from <FILE>");
    host.copy(true, "--files-from /none", "tree", "to").fails_at_once(2, "--files-from /none: No such file");
    let mut cp = host.copy(true, "--exclude-from - --files-from -", "tree", "to");
    cp.fails_at_once(2, "standard input can be read once");
    let mut cp = host.copy(true, "", "outside", "to");
    cp.arg("--files-from")
        .arg(&list)
        .fails_at_once(2, "outside is not a folder; --files-from lists names below a folder");
    let mut cp = host.cp();
    cp.arg("--files-from").arg(&list).arg("-").arg(host.far("to"));
    cp.fails_at_once(2, "--files-from");
    let mut cp = host.cp();
    cp.arg("--files-from").arg(&list).arg(host.file("tree")).arg("lab:rtt=1ms,rate=1gbit:/tmp/");
    cp.without_flags().fails_at_once(2, "--files-from is not possible into the testbed");
}
