//! Copies to and from a host on which no fullpipe of this version is installed.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::host::{FULLPIPE, Host, in_mount_namespace};
use crate::tree::{bytes, mode, same, write};

/// Where the program is kept in a home.
const KEPT: &str = "home/.cache/fullpipe/bin";

/// The names in a folder of the host.
fn names(host: &Host, folder: &str) -> Vec<String> {
    let entries = fs::read_dir(host.home().join(folder)).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Puts a shell script into the first folder of the logins' PATH.
fn install(host: &Host, name: &str, text: &str) {
    let script = host.script(name, text);
    fs::rename(script, host.home().join("bin").join(name)).unwrap();
}

/// Gives a file to a user who has no part in the copy.
fn nobody(path: &Path) {
    std::os::unix::fs::chown(path, Some(65534), None).unwrap();
}

/// Copies a file there with these words, and returns what was said.
fn copied(host: &Host, words: &str) -> String {
    write(host.file("a"), bytes(3 << 20, 1));
    let done = host.bare_cp().words(words).arg(host.file("a")).arg(host.far("b")).ok();
    same(&host.file("a"), &host.file("b"));
    fs::remove_file(host.file("b")).unwrap();
    done.err
}

#[test]
fn nothing_is_installed() {
    let host = Host::start();
    let said = copied(&host, "");
    assert_eq!(said.matches("far has no fullpipe of this version; sending this one").count(), 1, "{said}");
    let kept = names(&host, KEPT);
    assert!(kept.len() == 1 && kept[0].starts_with(concat!("fullpipe-", env!("CARGO_PKG_VERSION"), "-")), "{kept:?}");
    let program = host.home().join(KEPT).join(&kept[0]);
    assert_eq!(fs::metadata(&program).unwrap().mode() & 0o7777, 0o700);
    assert_eq!(fs::metadata(program.parent().unwrap()).unwrap().mode() & 0o7777, 0o700);
    assert!(fs::read(&program).unwrap() == fs::read(FULLPIPE).unwrap());
    // The next copies find it, on whatever way the data go.
    for words in ["", "--via ssh", "--no-deploy"] {
        assert!(!copied(&host, words).contains("sending"), "{words}");
    }
    assert_eq!(names(&host, KEPT), kept);
}

#[test]
fn nothing_is_installed_and_only_ssh_gets_through() {
    let host = Host::start();
    let said = copied(&host, "--via ssh");
    assert!(said.contains("sending this one"), "{said}");
    write(host.file("a"), bytes(3 << 20, 1));
    fs::remove_dir_all(host.home().join("home/.cache")).unwrap();
    let inner = format!("inner:{}", host.file("a").display());
    let done = host.bare_cp().arg(inner).arg(host.file("c")).ok();
    assert!(done.err.contains("copying through ssh") && done.err.contains("sending this one"), "{}", done.err);
    same(&host.file("a"), &host.file("c"));
}

#[test]
fn relative_names_are_the_logins() {
    let host = Host::start();
    write(host.file("login/a"), "1");
    let text = format!(
        "for a; do shift; set -- \"$@\" \"$a\"; [ \"$a\" = -- ] && set -- \"$@\" 'cd {}/login &&'; done\nexec {} \"$@\"",
        host.file("").display(),
        host.ssh
    );
    let ssh = host.script("elsewhere", &text);
    for _ in 0..2 {
        host.bare_cp().ssh(ssh.to_str().unwrap()).arg("far:a").arg(host.file("b")).ok();
        same(&host.file("login/a"), &host.file("b"));
    }
}

#[test]
fn nothing_is_sent_where_that_is_not_wanted() {
    let host = Host::start();
    write(host.file("a"), "1");
    for words in ["--no-deploy", "--dry-run", "--no-deploy --via ssh"] {
        let mut cp = host.bare_cp();
        cp.words(words).arg(host.file("a")).arg(host.far("b")).fails_at_once(4, "far has no fullpipe of this version");
    }
    assert_eq!((names(&host, "home"), names(&host, "run")), (vec![], vec![]));
    assert!(!host.file("b").exists());
}

#[test]
fn another_version_is_passed_over() {
    let host = Host::start();
    install(&host, "fullpipe", "echo \"error: unexpected argument '$2' found\" >&2; exit 2");
    assert!(copied(&host, "").contains("sending this one"));
    assert!(!copied(&host, "").contains("sending this one"));
    // One of the same protocol is used, and nothing is sent.
    fs::remove_dir_all(host.home().join("home/.cache")).unwrap();
    install(&host, "fullpipe", &format!("exec {FULLPIPE} \"$@\""));
    assert!(!copied(&host, "").contains("sending this one"));
    assert_eq!(names(&host, "home"), [""; 0]);
}

#[test]
fn another_machine_takes_a_program_of_its_own() {
    let host = Host::start();
    write(host.file("a"), "1");
    install(&host, "uname", "case $1 in -s) echo Linux;; *) echo riscv128;; esac");
    let mut cp = host.bare_cp();
    cp.arg(host.file("a")).arg(host.far("b"));
    cp.fails_at_once(4, "runs Linux on riscv128").err.contains("--far-binary").then_some(()).unwrap();
    assert_eq!((names(&host, "home"), names(&host, "run")), (vec![], vec![]));
    fs::remove_file(host.home().join("bin/uname")).unwrap();
    let fails = |file: PathBuf, code: i32, part: &str| {
        let mut cp = host.bare_cp();
        cp.arg("--far-binary").arg(file).arg(host.file("a")).arg(host.far("b")).fails_at_once(code, part);
    };
    fails(host.file("a"), 2, "is no program for Linux");
    fails(host.file("none"), 2, "there is no such file");
    // A program that cannot run there, and one that can.
    let head = fs::read(FULLPIPE).unwrap()[..4096].to_vec();
    write(host.file("broken"), &head);
    let sent = |file: PathBuf, part: &str| {
        let mut cp = host.bare_cp();
        cp.arg("--far-binary").arg(file).arg(host.file("a")).arg(host.far("b")).fails(4, part);
    };
    sent(host.file("broken"), "the program that was sent cannot run there");
    sent("/bin/true".into(), "the program that was sent is not this version of fullpipe; check --far-binary");
    assert_eq!(names(&host, KEPT), [""; 0]);
    write(host.file("other"), [fs::read(FULLPIPE).unwrap(), b"another build".to_vec()].concat());
    host.bare_cp().arg("--far-binary").arg(host.file("other")).arg(host.file("a")).arg(host.far("b")).ok();
    assert_eq!(names(&host, KEPT).len(), 1);
}

#[test]
fn a_program_that_did_not_arrive_whole_is_not_kept() {
    let host = Host::start();
    write(host.file("a"), "1");
    // Some of it is missing, or some of it is another.
    for head in ["exec /usr/bin/head -c 1000", "/usr/bin/head \"$@\" | tr a b"] {
        install(&host, "head", head);
        let mut cp = host.bare_cp();
        cp.arg(host.file("a")).arg(host.far("b")).fails(4, "did not arrive whole");
        assert_eq!(names(&host, KEPT), [""; 0]);
    }
}

#[test]
fn the_newest_three_are_kept() {
    let host = Host::start();
    copied(&host, "");
    let [new] = &names(&host, KEPT)[..] else { panic!("{:?}", names(&host, KEPT)) };
    fs::remove_file(host.home().join(KEPT).join(new)).unwrap();
    for i in 0..5 {
        let old = host.home().join(KEPT).join(format!("fullpipe-{i}"));
        write(&old, "");
        let then = SystemTime::now() - Duration::from_secs(1000 - i);
        fs::File::options().write(true).open(&old).unwrap().set_modified(then).unwrap();
    }
    write(host.home().join(KEPT).join("precious"), "");
    copied(&host, "");
    let mut kept = vec![new.clone(), "fullpipe-3".to_owned(), "fullpipe-4".to_owned(), "precious".to_owned()];
    kept.sort();
    assert_eq!(names(&host, KEPT), kept);
}

/// Such as a loss of power leaves.
#[test]
fn an_empty_program_is_sent_again() {
    let host = Host::start();
    copied(&host, "");
    let [name] = &names(&host, KEPT)[..] else { panic!("{:?}", names(&host, KEPT)) };
    fs::write(host.home().join(KEPT).join(name), "").unwrap();
    assert!(copied(&host, "").contains("sending this one"));
    assert!(!copied(&host, "").contains("sending"));
}

/// A fullpipe that takes any command, and does nothing.
#[test]
fn a_program_that_says_nothing_is_no_fullpipe() {
    let host = Host::start();
    install(&host, "fullpipe", "exit 0");
    assert!(copied(&host, "").contains("sending this one"));
}

/// As a folder made below one with the setgid bit is.
#[test]
fn a_folder_with_its_parents_group_is_this_users() {
    let host = Host::start();
    fs::create_dir_all(host.home().join("home/.cache")).unwrap();
    mode(host.home().join("home/.cache"), 0o2755);
    copied(&host, "");
    assert_eq!(names(&host, KEPT).len(), 1);
    assert_eq!(fs::metadata(host.home().join(KEPT)).unwrap().mode() & 0o7777, 0o2700);
}

#[test]
fn what_others_may_have_planted_is_not_run() {
    let host = Host::start();
    copied(&host, "");
    let [name] = &names(&host, KEPT)[..] else { panic!("{:?}", names(&host, KEPT)) };
    let (folder, program, run) = (host.home().join(KEPT), host.home().join(KEPT).join(name), host.home().join("ran"));
    let plant = || {
        let _ = fs::remove_dir_all(host.home().join("run/fullpipe"));
        let _ = fs::remove_file(&folder).or_else(|_| fs::remove_dir_all(&folder));
        fs::create_dir(&folder).unwrap();
        mode(&folder, 0o700);
        write(&program, format!("#!/bin/sh\ntouch {}\nexec {FULLPIPE} \"$@\"\n", run.display()));
        mode(&program, 0o700);
    };
    // It is run where nobody else can have written it.
    plant();
    copied(&host, "");
    assert!(run.exists());
    fs::remove_file(&run).unwrap();
    let plants: [(&str, &dyn Fn()); 7] = [
        ("a file that the group may write to", &|| mode(&program, 0o720)),
        ("a folder that others may enter", &|| mode(&folder, 0o755)),
        ("a folder that others may write to", &|| mode(&folder, 0o777)),
        ("a folder behind a link", &|| {
            let elsewhere = host.home().join("elsewhere");
            fs::rename(&folder, &elsewhere).unwrap();
            std::os::unix::fs::symlink(&elsewhere, &folder).unwrap();
        }),
        ("a program behind a link", &|| {
            let elsewhere = host.home().join("program");
            fs::rename(&program, &elsewhere).unwrap();
            std::os::unix::fs::symlink(&elsewhere, &program).unwrap();
        }),
        ("another user's file", &|| nobody(&program)),
        ("another user's folder", &|| nobody(&folder)),
    ];
    // Only root can give files away.
    let tried = if nix::unistd::geteuid().is_root() { plants.len() } else { plants.len() - 2 };
    for (what, change) in &plants[..tried] {
        plant();
        change();
        assert!(copied(&host, "").contains("sending this one"), "{what}");
        assert!(!run.exists(), "{what} was run");
    }
}

#[test]
fn a_home_in_which_no_program_runs_or_fits() {
    use nix::mount::{MsFlags, mount};
    let none = None::<&str>;
    in_mount_namespace(|| {
        for (flags, size) in [(MsFlags::MS_NOEXEC, none), (MsFlags::empty(), Some("size=64k"))] {
            let host = Host::start();
            let home = host.home().join("home");
            mount(Some("none"), &home, Some("tmpfs"), flags, size).unwrap();
            assert!(copied(&host, "").contains("sending this one"));
            assert_eq!((names(&host, KEPT), names(&host, "run/fullpipe").len()), (vec![], 1));
            assert!(!copied(&host, "").contains("sending this one"));
            nix::mount::umount(&home).unwrap();
        }
        // Nor in the runtime folder: then below /tmp, where the folder is this test's own.
        let host = Host::start();
        let last = Path::new("/tmp/fullpipe-0");
        let is_new = fs::create_dir(last).is_ok();
        mount(Some("none"), last, Some("tmpfs"), MsFlags::empty(), Some("mode=700")).unwrap();
        for folder in ["home", "run"] {
            mount(Some("none"), &host.home().join(folder), Some("tmpfs"), MsFlags::MS_NOEXEC, none).unwrap();
        }
        assert!(copied(&host, "").contains("sending this one"));
        assert_eq!((names(&host, KEPT), names(&host, "run/fullpipe")), (vec![], vec![]));
        assert_eq!(fs::read_dir(last).unwrap().count(), 1);
        assert!(!copied(&host, "").contains("sending this one"));
        for folder in [host.home().join("home"), host.home().join("run"), last.to_owned()] {
            nix::mount::umount(&folder).unwrap();
        }
        if is_new {
            let _ = fs::remove_dir(last);
        }
    });
}
