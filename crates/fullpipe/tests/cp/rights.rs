//! Rights over files and folders: modes, owners, access control lists, extended attributes.

use std::fs::{self};
use std::os::unix::fs::{MetadataExt, symlink};

use crate::host::Host;
use crate::large::{LARGE, SLOW, both_ways, some_blocks};
use crate::tree::{bytes, date, mode, only, same_content, write};

const MIB: usize = 1 << 20;

#[test]
fn read_only_folders_without_roots_rights() {
    let host = Host::start();
    if !nix::unistd::geteuid().is_root() {
        // Root sees what is closed to the far end's user; both would be one user here.
        return;
    }
    let tree = host.file("tree");
    write(tree.join("closed/deeper/file"), "1");
    write(tree.join("closed/large"), bytes(3 * MIB, 1));
    mode(tree.join("closed/deeper/file"), 0o444);
    mode(tree.join("closed/deeper"), 0o555);
    mode(tree.join("closed"), 0o555);
    fs::create_dir(host.file("to")).unwrap();
    mode(host.file("to"), 0o777);
    let program = host.unprivileged();
    host.cp().far_program(&program).arg("-r").arg(&tree).arg(host.far("to/")).ok();
    same_content(&tree.join("closed/large"), &host.file("to/tree/closed/large"));
    for (name, bits) in [("closed", 0o555), ("closed/deeper", 0o555), ("closed/deeper/file", 0o444)] {
        assert_eq!(fs::metadata(host.file("to/tree").join(name)).unwrap().mode() & 0o7777, bits, "{name}");
    }
    // Once more, over what is now closed: what need not be written is no error.
    host.cp().far_program(&program).arg("-ru").arg(&tree).arg(host.far("to/")).ok();
    // And what has to be written goes in, however often.
    for round in 0..3 {
        write(tree.join("closed/deeper/file"), bytes(round, 1));
        write(tree.join(format!("closed/new{round}/below/file")), bytes(round, 1));
        host.cp().far_program(&program).arg("-r").arg(&tree).arg(host.far("to/")).ok();
        assert_eq!(fs::metadata(host.file("to/tree/closed/deeper")).unwrap().mode() & 0o7777, 0o555);
    }
    // Nor is a folder left open because something else could not be copied.
    write(tree.join("other/file"), "1");
    write(host.file("to/tree/other"), "a file");
    write(tree.join("closed/deeper/file"), bytes(4, 1));
    let bits = || fs::metadata(host.file("to/tree/closed/deeper")).unwrap().mode() & 0o7777;
    host.cp()
        .far_program(&program)
        .arg("-r")
        .arg(&tree)
        .arg(host.far("to/"))
        .fails(1, "not copied: tree/other/file: a file");
    assert_eq!(bits(), 0o555);
    fs::remove_file(host.file("to/tree/other")).unwrap();
    write(tree.join("closed/deeper/file"), bytes(5, 1));
    write(tree.join("closed/new3/below/file"), "1");
    host.cp().far_program(&program).arg("-r").arg(&tree).arg(host.far("to/")).ok();
    assert_eq!(bits(), 0o555);
    for name in ["other/file", "closed/new3/below/file"] {
        same_content(&tree.join(name), &host.file("to/tree").join(name));
    }
    same_content(&tree.join("closed/deeper/file"), &host.file("to/tree/closed/deeper/file"));
    same_content(&tree.join("closed/new2/below/file"), &host.file("to/tree/closed/new2/below/file"));
    for dir in ["tree", "to/tree"] {
        mode(host.file(dir).join("closed"), 0o755);
        mode(host.file(dir).join("closed/deeper"), 0o755);
    }
}

/// What a folder forbids its owner counts for whoever copies from it, not for the copy, however often.
#[test]
fn folders_that_their_owner_may_not_list_or_enter() {
    let host = Host::start();
    if !nix::unistd::geteuid().is_root() {
        // Root sees what is closed to the far end's user; both would be one user here.
        return;
    }
    let tree = host.file("tree");
    let closed = [("list", 0o311), ("none", 0o000), ("none/deeper", 0o000), ("others", 0o077), ("write", 0o333)];
    for (name, _) in closed {
        write(tree.join(name).join("small"), "1");
        write(tree.join(name).join("large"), bytes(3 * MIB, 1));
    }
    let close = |top: &str| closed.iter().rev().for_each(|(name, bits)| mode(host.file(top).join(name), *bits));
    let modes = |top: &str| {
        let mode = |(name, _): &(&str, u32)| fs::metadata(host.file(top).join(name)).unwrap().mode() & 0o7777;
        closed.iter().map(mode).collect::<Vec<_>>()
    };
    close("tree");
    fs::create_dir(host.file("to")).unwrap();
    mode(host.file("to"), 0o777);
    let copy = |how: &str| {
        let mut cp = host.cp();
        cp.far_program(&host.unprivileged()).words(how).arg("-r").arg(&tree).arg(host.far("to/"));
        cp
    };
    for (how, round) in [("", 1), ("--json -u", 2), ("", 3), ("--fsync", 4)] {
        let done = copy(how).ok();
        assert_eq!(modes("to/tree"), closed.map(|(_, bits)| bits), "{how}");
        if round == 2 {
            assert_eq!((done.number("skipped"), done.number("bytes")), (10, 0), "{}", done.out);
        }
        if round == 3 {
            write(tree.join("none/deeper/small"), "changed");
            close("tree");
        }
    }
    assert_eq!(fs::read(host.file("to/tree/none/deeper/small")).unwrap(), b"changed");
    // One file that cannot be copied opens no folder, and what is copied later goes in.
    nix::unistd::mkfifo(&tree.join("others/fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    fs::create_dir(host.file("to/tree/others/new")).unwrap();
    write(tree.join("others/new"), "a file where a folder stands");
    copy("").fails(1, "tree/others/new: a folder stands where the file should be");
    assert_eq!(modes("to/tree"), closed.map(|(_, bits)| bits));
    fs::remove_dir(host.file("to/tree/others/new")).unwrap();
    copy("--json").fails(1, "it is a FIFO");
    assert_eq!(modes("to/tree"), closed.map(|(_, bits)| bits));
    same_content(&tree.join("others/new"), &host.file("to/tree/others/new"));
}

/// One unreadable file gives nobody more rights to folders than their sources have, for root's copies neither.
#[test]
fn modes_are_never_wider_than_asked_for() {
    both_ways(|push| {
        let host = Host::start();
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        let tree = host.file("tree");
        write(tree.join("others/below/file"), "1");
        write(tree.join("large"), bytes(LARGE, 1));
        fs::create_dir(tree.join("looks-like-a-file")).unwrap();
        mode(tree.join("others/below"), 0o050);
        mode(tree.join("others"), 0o077);
        std::os::unix::fs::chown(tree.join("others"), Some(1234), Some(5678)).unwrap();
        write(host.file("to/tree/looks-like-a-file"), "in the way");
        let mut cp = host.cp();
        cp.words(SLOW).arg("-r");
        if push {
            cp.arg(&tree).arg(host.far("to/"))
        } else {
            cp.arg(host.far("tree")).arg(host.file("to/"))
        };
        let over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            let watch = scope.spawn(|| {
                while !over.load(std::sync::atomic::Ordering::SeqCst) {
                    if let Ok(now) = fs::metadata(host.file("to/tree/others")) {
                        // Its owner's alone at first, and then as asked for.
                        let bits = now.mode() & 0o7777;
                        assert!(bits & !0o077 == 0 || bits & !0o700 == 0, "{bits:o}");
                    }
                }
            });
            cp.fails(1, "a file stands where a folder is needed");
            over.store(true, std::sync::atomic::Ordering::SeqCst);
            watch.join().unwrap();
        });
        for (name, bits) in [("others", 0o077), ("others/below", 0o050)] {
            assert_eq!(fs::metadata(host.file("to/tree").join(name)).unwrap().mode() & 0o7777, bits, "{name}");
        }
    });
}

/// Root that may not give files away, as on an NFS server with root_squash: said once, and no error.
#[test]
fn owners_that_cannot_be_set_are_told_once() {
    let host = Host::start();
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let program =
        host.script("squashed", &format!("exec setpriv --bounding-set -chown {} \"$@\"", crate::host::FULLPIPE));
    for (name, len) in [("tree/a", 10), ("tree/folder/b", 10), ("tree/large", 3 * MIB), ("tree/ours", 1)] {
        write(host.file(name), bytes(len, 1));
    }
    symlink("a", host.file("tree/link")).unwrap();
    for name in ["a", "folder", "folder/b", "large", "link"] {
        std::os::unix::fs::lchown(host.file("tree").join(name), Some(1234), Some(5678)).unwrap();
    }
    let copy = |how: &str| {
        let mut cp = host.cp();
        cp.far_program(&program).words(how).arg("-r").arg(host.file("tree")).arg(host.far("to"));
        cp
    };
    let done = copy("").ok();
    let lines: Vec<&str> = done.err.lines().filter(|line| line.starts_with("not kept: ")).collect();
    assert!(lines.len() == 1 && lines[0].contains("owner of 5 files or folders, the first tree/"), "{}", done.err);
    assert!(lines[0].ends_with("operation not permitted"), "{}", done.err);
    let told = copy("--json").ok().json().pop().unwrap();
    assert_eq!((&told["not_kept"][0]["what"], &told["not_kept"][0]["files"]), (&"owner".into(), &5.into()), "{told}");
    assert_eq!(fs::metadata(host.file("to/large")).unwrap().uid(), 0);
    assert!(!copy("-q").ok().err.contains("not kept"));
}

/// A drop box: a folder in which everybody may put files, and nobody but its owner sees which there are.
#[test]
fn a_folder_that_can_be_written_to_but_not_read() {
    let host = Host::start();
    if !nix::unistd::geteuid().is_root() {
        // Root sees what is closed to the far end's user; both would be one user here.
        return;
    }
    let program = host.unprivileged();
    fs::create_dir(host.file("drop")).unwrap();
    write(host.file("tree/sub/small"), "1");
    write(host.file("tree/large"), bytes(LARGE, 1));
    write(host.file("small"), "2");
    fs::create_dir(host.file("drop/shared")).unwrap();
    for name in ["drop", "drop/shared"] {
        mode(host.file(name), 0o1733);
    }
    let copy = |how: &str, from: &str, to: &str| {
        let mut cp = host.cp();
        cp.far_program(&program).words(how).arg("-r").arg(host.file(from)).arg(host.far(to));
        cp
    };
    copy("", "small", "drop/").ok();
    copy("--fsync", "small", "drop/other").ok();
    copy("-u", "small", "drop/").ok();
    same_content(&host.file("small"), &host.file("drop/small"));
    same_content(&host.file("small"), &host.file("drop/other"));
    // One that was interrupted goes on, by the name of its journal.
    let running = copy(SLOW, "tree", "drop/").start();
    some_blocks(&host.file("drop"));
    running.kill();
    let done = copy("--json", "tree", "drop/").ok();
    assert!(done.number("bytes") < LARGE as u64, "{}", done.out);
    same_content(&host.file("tree/large"), &host.file("drop/tree/large"));
    // One that is met on the way.
    write(host.file("shared/new"), "3");
    copy("--fsync", "shared", "drop/").ok();
    same_content(&host.file("shared/new"), &host.file("drop/shared/new"));
    for name in ["drop", "drop/shared"] {
        assert_eq!(fs::metadata(host.file(name)).unwrap().mode() & 0o7777, 0o1733, "{name}");
    }
    only(&host.file("drop"), &["other", "shared", "small", "tree"]);
}

/// A file of each kind in a tree, and a folder that anybody may copy into.
fn small_and_large(bits: u32) -> Host {
    let host = Host::start();
    write(host.file("tree/small"), "1");
    write(host.file("tree/large"), bytes(3 * MIB, 1));
    fs::create_dir(host.file("to")).unwrap();
    mode(host.file("to"), 0o777);
    for name in ["small", "large"] {
        mode(host.file("tree").join(name), bits);
    }
    host
}

#[test]
fn an_access_list_of_the_folder_takes_nothing_from_a_file() {
    let host = small_and_large(0o644);
    // default:user::rw-,group::---,other::--- (acl(5), linux/posix_acl_xattr.h)
    let entry = |tag: u16, perm: u16| [&tag.to_le_bytes()[..], &perm.to_le_bytes(), &u32::MAX.to_le_bytes()].concat();
    let list = [&2u32.to_le_bytes()[..], &entry(1, 6), &entry(4, 0), &entry(32, 0)].concat();
    if xattr::set(host.file("to"), "system.posix_acl_default", &list).is_err() {
        return;
    }
    host.cp().arg("-r").arg(host.file("tree/.")).arg(host.far("to/")).ok();
    for name in ["small", "large"] {
        assert_eq!(fs::metadata(host.file("to").join(name)).unwrap().mode() & 0o7777, 0o644, "{name}");
    }
}

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

/// An access control list in which a named user may read and write, the file's group only read (`setfacl -m u:1000:rw` on a
/// file of mode 0640). Its mode is 0660, as the group bits are the mask then.
pub fn access_list() -> Vec<u8> {
    access_list_of(6)
}

/// The same with other rights of the owner.
fn access_list_of(owner: u16) -> Vec<u8> {
    let entry =
        |tag: u16, perm: u16, id: u32| [&tag.to_le_bytes()[..], &perm.to_le_bytes(), &id.to_le_bytes()].concat();
    let none = u32::MAX;
    let entries = [(1, owner, none), (2, 6, 1000), (4, 4, none), (16, 6, none), (32, 0, none)];
    [2u32.to_le_bytes().to_vec(), entries.map(|(tag, perm, id)| entry(tag, perm, id)).concat()].concat()
}

#[test]
fn access_lists_on_request_and_never_more_rights_without() {
    both_ways(|push| {
        let host = Host::start();
        let tree = host.file("tree");
        for (name, len) in [("small", 10), ("large", 3 * MIB), ("plain", 10), ("folder/below", 1)] {
            write(tree.join(name), bytes(len, 1));
            mode(tree.join(name), 0o640);
        }
        // Its owner may enter the folder.
        let listed = [("small", 6), ("large", 6), ("folder", 7)];
        for (name, owner) in listed {
            if xattr::set(tree.join(name), ACCESS, &access_list_of(owner)).is_err() {
                return;
            }
        }
        xattr::set(tree.join("folder"), DEFAULT, &access_list()).unwrap();
        let list = |to: &str, name: &str, which: &str| xattr::get(host.file(to).join(name), which).unwrap();
        let bits = |to: &str, name: &str| fs::metadata(host.file(to).join(name)).unwrap().mode() & 0o777;
        assert_eq!((bits("tree", "small"), bits("tree", "plain")), (0o660, 0o640));
        let copy = |how: &str, to: &str| host.copy(push, &format!("-r {how}"), "tree/.", to);
        for how in ["", "-u", "--checksum"] {
            copy(how, "without/").ok();
            for (name, owner) in listed {
                let mode = u32::from(owner) << 6 | 0o40;
                assert_eq!((bits("without", name), list("without", name, ACCESS)), (mode, None), "{how} {name}");
            }
        }
        // New files inherit a list here, unless the source's list is copied.
        fs::create_dir(host.file("with")).unwrap();
        xattr::set(host.file("with"), DEFAULT, &access_list()).unwrap();
        for how in ["--acls", "-Au", "-Ac"] {
            copy(how, "with/").ok();
            for (name, owner) in listed {
                let (mode, expected) = (u32::from(owner) << 6 | 0o60, Some(access_list_of(owner)));
                assert_eq!((bits("with", name), list("with", name, ACCESS)), (mode, expected), "{name}");
            }
            assert_eq!(list("with", "folder", DEFAULT), Some(access_list()));
            for name in ["plain", "folder/below"] {
                assert_eq!((bits("with", name), list("with", name, ACCESS)), (0o640, None), "{name}");
            }
        }
    });
}

#[test]
fn attributes_of_a_file_that_nobody_may_write_to() {
    let host = small_and_large(0o444);
    for name in ["small", "large"] {
        if xattr::set(host.file("tree").join(name), "user.fullpipe.test", b"value").is_err() {
            return;
        }
    }
    host.cp()
        .far_program(&host.unprivileged())
        .arg("-r")
        .arg("--xattrs")
        .arg(host.file("tree/."))
        .arg(host.far("to/"))
        .ok();
    for name in ["small", "large"] {
        let value = xattr::get(host.file("to").join(name), "user.fullpipe.test").unwrap();
        assert_eq!(value.as_deref(), Some(&b"value"[..]), "{name}");
        assert_eq!(fs::metadata(host.file("to").join(name)).unwrap().mode() & 0o7777, 0o444, "{name}");
    }
}

#[test]
fn another_owners_rights_are_not_given() {
    let host = Host::start();
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    write(host.file("tool"), "#!/bin/sh\n");
    mode(host.file("tool"), 0o6755);
    fs::create_dir(host.file("to")).unwrap();
    mode(host.file("to"), 0o777);
    // A folder of a group, of which the receiver is not the owner either.
    fs::create_dir(host.file("shared")).unwrap();
    mode(host.file("shared"), 0o2755);
    let mut cp = host.cp();
    cp.far_program(&host.unprivileged()).words("-rp").arg(host.file("tool")).arg(host.file("shared"));
    let done = cp.arg(host.far("to/")).ok();
    assert_eq!(fs::metadata(host.file("to/tool")).unwrap().mode() & 0o7777, 0o755);
    assert_eq!(fs::metadata(host.file("to/shared")).unwrap().mode() & 0o7777, 0o755);
    // That is told, once for all.
    let told = "not kept: setuid, setgid or sticky bits of 2 files or folders, the first tool: only root";
    assert!(done.err.contains(told), "{}", done.err);
}

/// As scp and rsync: setuid, setgid and sticky bits come along with -p alone; without it a folder keeps its own.
#[test]
fn special_bits_are_kept_only_on_request() {
    both_ways(|push| {
        let host = Host::start();
        let modes = |top: &str| {
            let mode = |name: &str| fs::metadata(host.file(top).join(name)).unwrap().mode() & 0o7777;
            ["small", "large", "sticky", "group", "group/new"].map(mode)
        };
        for (name, len) in [("small", 10), ("large", 3 * MIB)] {
            write(host.file("tree").join(name), bytes(len, 1));
            mode(host.file("tree").join(name), 0o6755);
        }
        for (name, bits) in [("sticky", 0o1777), ("group", 0o755), ("group/new", 0o755)] {
            fs::create_dir(host.file("tree").join(name)).unwrap();
            mode(host.file("tree").join(name), bits);
        }
        // Of the group whose folder it is copied into; new folders in it inherit that.
        fs::create_dir_all(host.file("to/tree/group")).unwrap();
        mode(host.file("to/tree/group"), 0o2775);
        let copy = |how: &str, to: &str| {
            let mut cp = host.cp();
            cp.words(how);
            if push {
                cp.arg(host.file("tree")).arg(host.far(to));
            } else {
                cp.arg(host.far("tree")).arg(host.file(to));
            }
            cp.ok();
        };
        copy("-r", "to/");
        assert_eq!(modes("to/tree"), [0o755, 0o755, 0o777, 0o2755, 0o2755], "without -p, push: {push}");
        copy("-r -p", "kept");
        assert_eq!(modes("kept"), [0o6755, 0o6755, 0o1777, 0o755, 0o755], "with -p, push: {push}");
        // What is there already keeps its permissions in step, and takes no special bits without -p.
        copy("-r --update", "to/");
        assert_eq!(modes("to/tree"), [0o755, 0o755, 0o777, 0o2755, 0o2755]);
        copy("-r --update --preserve", "to/");
        assert_eq!(modes("to/tree"), [0o6755, 0o6755, 0o1777, 0o755, 0o755]);
    });
}

#[test]
fn extended_attributes_on_request() {
    let host = Host::start();
    let tree = host.file("tree");
    write(tree.join("small"), "1");
    write(tree.join("large"), bytes(3 * MIB, 1));
    fs::create_dir(tree.join("folder")).unwrap();
    for name in ["small", "large", "folder"] {
        if let Err(e) = xattr::set(tree.join(name), "user.fullpipe.test", b"a\0value") {
            eprintln!("not tested: {} has no extended attributes ({e})", tree.display());
            return;
        }
    }
    let value = |path: std::path::PathBuf| xattr::get(path, "user.fullpipe.test").unwrap();
    host.cp().arg("-r").arg("--xattrs").arg(&tree).arg(host.far("push")).ok();
    host.cp().arg("-r").arg("--xattrs").arg(host.far("tree")).arg(host.file("pull")).ok();
    host.cp().arg("-r").arg(&tree).arg(host.far("without")).ok();
    for name in ["small", "large", "folder"] {
        assert_eq!(value(host.file("push").join(name)).as_deref(), Some(&b"a\0value"[..]), "{name}");
        assert_eq!(value(host.file("pull").join(name)).as_deref(), Some(&b"a\0value"[..]), "{name}");
        assert_eq!(value(host.file("without").join(name)), None, "{name}");
    }
}

/// With --update, what is newer stays, also where this user may not read it. It says enough that the name is there.
#[test]
fn a_newer_file_that_may_not_be_read_stays() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let host = Host::start();
    fs::create_dir(host.file("to")).unwrap();
    mode(host.file("to"), 0o777);
    for (name, date_s) in [("newer", 1_600_000_000), ("same", 1_500_000_000), ("older", 1_400_000_000)] {
        write(host.file(name), "1234");
        date(host.file(name), 1_500_000_000, 0);
        let there = host.file("to").join(name);
        write(&there, if name == "same" { "abcd" } else { "other" });
        date(&there, date_s, 0);
        mode(there, 0o600);
    }
    for how in ["--dry-run", ""] {
        let mut cp = host.cp();
        cp.far_program(&host.unprivileged()).words(&format!("-u {how}"));
        for name in ["newer", "same", "older"] {
            cp.arg(host.file(name));
        }
        cp.arg(host.far("to/")).ok();
    }
    let content = |name: &str| fs::read_to_string(host.file("to").join(name)).unwrap();
    assert_eq!(["newer", "same", "older"].map(content), ["other", "abcd", "1234"]);
}
