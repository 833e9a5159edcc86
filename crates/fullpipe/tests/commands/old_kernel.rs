//! Copies on a kernel that lacks the newer system calls, as old distributions do, and containers whose filter of system calls
//! does not know them.

use std::path::Path;
use std::process::Command;

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

use crate::common::{Server, error, fullpipe_args};

/// System calls that Linux 4.18 does not have, and that fullpipe makes.
const NEWER: [i64; 5] = [
    libc::SYS_close_range,
    libc::SYS_landlock_create_ruleset,
    libc::SYS_landlock_add_rule,
    libc::SYS_landlock_restrict_self,
    libc::SYS_openat2,
];

/// Those that the C library makes, and that no filter refuses with EPERM, as no program would run.
const NEWER_OF_LIBC: [i64; 3] = [libc::SYS_clone3, libc::SYS_faccessat2, libc::SYS_pidfd_open];

/// Takes newer system calls from this thread and from what it starts: they fail with `errno`.
fn on_old_kernel(errno: i32) {
    let of_libc = NEWER_OF_LIBC.into_iter().filter(|_| errno == libc::ENOSYS);
    let calls = NEWER.into_iter().chain(of_libc).map(|call| (call, Vec::new())).collect();
    let (allow, refuse) = (SeccompAction::Allow, SeccompAction::Errno(errno as u32));
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let program: BpfProgram = SeccompFilter::new(calls, allow, refuse, arch).unwrap().try_into().unwrap();
    seccompiler::apply_filter(&program).unwrap();
}

/// A tree of files, folders and links. Returns its folder.
fn tree(at: &Path) {
    for name in ["a/b/c", "empty"] {
        std::fs::create_dir_all(at.join(name)).unwrap();
    }
    for (name, size) in [("a/small", 10), ("a/b/c/large", 3_000_000), ("top", 70_000)] {
        std::fs::write(at.join(name), vec![7; size]).unwrap();
    }
    std::os::unix::fs::symlink("b/c", at.join("a/link")).unwrap();
    std::os::unix::fs::symlink("/etc", at.join("out")).unwrap();
}

fn copies(errno: i32) {
    on_old_kernel(errno);
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    tree(&dir.path().join("from"));
    std::fs::create_dir(at("root")).unwrap();
    let token = at("token");
    let server = Server::start(&format!("--root {} --token-file {token}", at("root")));
    let far = |name: &str| format!("fullpipe://{}/{name}", server.address);
    let cp = |words: &[&str]| {
        let done = fullpipe_args(&[&["cp", "-r", "--quiet", "--token-file", &token], words].concat());
        assert_eq!(error(&done), (0, String::new()), "{words:?}");
    };
    cp(&[&at("from"), &far("")]);
    cp(&["--delete", &at("from"), &far("")]);
    cp(&[&far("from"), &at("back")]);
    let equal = Command::new("diff").args(["-r", "--no-dereference", &at("from"), &at("back")]).output().unwrap();
    assert!(equal.status.success(), "{}", String::from_utf8_lossy(&equal.stdout));
    // Names still do not lead out of the server's folder.
    std::os::unix::fs::symlink("/etc", at("root/etc")).unwrap();
    for name in ["etc/hostname", "../token"] {
        let out = fullpipe_args(&["cp", "--quiet", "--token-file", &token, &far(name), &at("stolen")]);
        assert!(error(&out).0 != 0 && !Path::new(&at("stolen")).exists(), "{name}");
    }
}

#[test]
fn a_kernel_without_the_newer_calls_copies_all_the_same() {
    for errno in [libc::ENOSYS, libc::EPERM] {
        std::thread::spawn(move || copies(errno)).join().unwrap();
    }
}
