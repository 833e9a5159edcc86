//! Owners and permissions that a copy sets: `--chown`, `--no-owner`, `--chmod`.

use std::fs;
use std::os::unix::fs::{MetadataExt, lchown, symlink};
use std::process::Command;

use crate::host::Host;
use crate::large::{LARGE, MIB, SLOW, both_ways, some_blocks};
use crate::sshfs::Sshfs;
use crate::tree::{bytes, mode, only, same_content, write};

/// A small and a large file, a folder, and a link.
fn tree(host: &Host) {
    write(host.file("tree/small"), "1");
    write(host.file("tree/sub/large"), bytes(3 << 20, 1));
    symlink("small", host.file("tree/link")).unwrap();
    for (name, bits) in [("small", 0o4640), ("sub/large", 0o755), ("sub", 0o700)] {
        mode(host.file("tree").join(name), bits);
    }
}

const NAMES: [&str; 4] = ["small", "sub", "sub/large", "link"];

fn owners(host: &Host, top: &str) -> Vec<(u32, u32)> {
    let of =
        |name: &&str| fs::symlink_metadata(host.file(top).join(name)).map(|file| (file.uid(), file.gid())).unwrap();
    NAMES.iter().map(of).collect()
}

fn modes(host: &Host, top: &str) -> [u32; 3] {
    ["small", "sub", "sub/large"].map(|name| fs::metadata(host.file(top).join(name)).unwrap().mode() & 0o7777)
}

#[test]
fn permissions_as_chmod_sets_them() {
    both_ways(|push| {
        let host = Host::start();
        tree(&host);
        for (i, (rules, small, sub, large)) in
            [("D750,F600", 0o600, 0o750, 0o600), ("go=rX", 0o644, 0o755, 0o755), ("g+w,o-rwx", 0o660, 0o720, 0o770)]
                .iter()
                .enumerate()
        {
            let to = format!("to{i}/");
            host.copy(push, &format!("-r --chmod {rules}"), "tree/.", &to).ok();
            assert_eq!(modes(&host, &to), [*small, *sub, *large], "{rules}");
            // What is there already gets them, too.
            host.copy(push, "-ru --chmod F640", "tree/.", &to).ok();
            assert_eq!(modes(&host, &to), [0o640, 0o700, 0o640], "{rules}");
        }
        host.copy(push, "-r --chmod u+q", "tree/.", "to").fails_at_once(2, "--chmod: 'u+q' is no rule");
    });
}

#[test]
fn owners_as_chown_sets_them() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: only root can give files to other users");
        return;
    }
    both_ways(|push| {
        let host = Host::start();
        tree(&host);
        for name in NAMES {
            lchown(host.file("tree").join(name), Some(1234), Some(2345)).unwrap();
        }
        mode(host.file("tree/small"), 0o4640);
        let nobody = nix::unistd::User::from_name("nobody").unwrap().unwrap();
        for (i, (chown, owner)) in [
            ("--chown 12:34", (12, 34)),
            ("--chown 12", (12, 2345)),
            ("--chown :34", (1234, 34)),
            ("--chown nobody", (nobody.uid.as_raw(), 2345)),
            ("--no-owner", (0, 0)),
            ("--no-owner --chown 12", (12, 0)),
        ]
        .iter()
        .enumerate()
        {
            let to = format!("to{i}/");
            host.copy(push, &format!("-r {chown}"), "tree/.", &to).ok();
            assert_eq!(owners(&host, &to), [*owner; 4], "{chown}");
        }
        // What belongs to root now has none of the rights of its source.
        host.copy(push, "-rp --no-owner", "tree/.", "none/").ok();
        assert_eq!(modes(&host, "none")[0], 0o640);
        host.copy(push, "-rp --chown 12", "tree/.", "given/").ok();
        assert_eq!(modes(&host, "given")[0], 0o4640);
        host.copy(push, "-r --chown no-such-user", "tree/.", "bad/").fails_at_once(2, "no user no-such-user");
        host.copy(push, "-r --chown :", "tree/.", "bad/").fails_at_once(2, "give USER, USER:GROUP or :GROUP");
        assert!(!host.file("bad").exists());
    });
}

#[test]
fn only_root_gives_files_away() {
    let host = Host::start();
    tree(&host);
    fs::create_dir(host.file("to")).unwrap();
    mode(host.file("to"), 0o777);
    let mut cp = host.copy(true, "-r --chown 12:34", "tree/.", "to");
    cp.far_program(&host.unprivileged()).fails_at_once(2, "only root may set owners");
    let mut cp = host.copy(true, "-r --no-owner --chmod F600", "tree/.", "to");
    cp.far_program(&host.unprivileged()).ok();
    assert_eq!(modes(&host, "to"), [0o600, 0o700, 0o600]);
}

/// So the mode of a partial file tells nothing about who may have written to it.
#[test]
fn a_copy_goes_on_where_every_file_shows_the_same_mode() {
    let Some(mount) = Sshfs::mount(&["-o", "umask=000"]) else { return };
    let host = Host::start();
    write(host.file("large"), bytes(LARGE, 7));
    let copy = |how: &str| {
        let mut cp = host.cp();
        cp.words(&format!("--json {how}")).arg(host.file("large")).arg(format!("far:{}/", mount.at().display()));
        cp
    };
    let running = copy(SLOW).start();
    some_blocks(&mount.far());
    running.kill();
    let sent = copy("").ok().number("bytes");
    assert!(sent > 0 && sent < (LARGE - MIB) as u64, "{sent} bytes were sent");
    same_content(&host.file("large"), &mount.far().join("large"));
    only(&mount.far(), &["large"]);
}

/// SFTP sets times of what a link names, which may be nothing, or a file that is no part of the copy.
#[test]
fn links_on_sshfs_leave_what_they_name_alone() {
    let Some(mount) = Sshfs::mount(&[]) else { return };
    let host = Host::start();
    fs::create_dir(host.file("tree")).unwrap();
    write(mount.far().join("there"), "1");
    let modified = || fs::metadata(mount.far().join("there")).unwrap().modified().unwrap();
    let before = modified();
    for (link, target) in [("live", "there"), ("dangling", "no/such")] {
        symlink(target, host.file("tree").join(link)).unwrap();
        let old = ["--no-dereference", "--date=2001-01-01"];
        assert!(Command::new("touch").args(old).arg(host.file("tree").join(link)).status().unwrap().success());
    }
    let to = format!("far:{}", mount.at().display());
    for _ in 0..2 {
        let done = host.cp().words("-rT").arg(host.file("tree")).arg(&to).ok();
        assert!(!done.err.contains("not copied"), "{}", done.err);
        let target = |link: &str| fs::read_link(mount.far().join(link)).unwrap();
        assert_eq!((target("live"), target("dangling")), ("there".into(), "no/such".into()));
        assert_eq!(modified(), before);
    }
}
