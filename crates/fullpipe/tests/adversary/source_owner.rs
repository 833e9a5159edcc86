//! The owner of a source tree, who exchanges folders in it while somebody else copies it.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};

use crate::common::Server;
use crate::host::{Cp, Host};

const SECRET: &[u8] = b"what only root may read";
/// Copies of each way: over ssh and from or to a server, both directions.
const COPIES: usize = 75;

/// Exchanges two names until it is dropped.
struct Exchange(Arc<AtomicBool>, Option<std::thread::JoinHandle<()>>);

impl Exchange {
    fn start(one: &Path, other: &Path) -> Exchange {
        let stop = Arc::<AtomicBool>::default();
        let (stopped, one, other) = (stop.clone(), one.to_owned(), other.to_owned());
        let exchange = move || {
            while !stopped.load(Ordering::Relaxed) {
                renameat2(AT_FDCWD, &one, AT_FDCWD, &other, RenameFlags::RENAME_EXCHANGE).unwrap();
                std::thread::sleep(std::time::Duration::from_micros(300));
            }
        };
        Exchange(stop, Some(std::thread::spawn(exchange)))
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        self.1.take().unwrap().join().unwrap();
    }
}

/// Whether a regular file below a folder has the secret.
fn has_secret(folder: &Path) -> bool {
    fs::read_dir(folder).into_iter().flatten().flatten().any(|entry| {
        let kind = entry.file_type().unwrap();
        let file = || fs::read(entry.path()).unwrap().starts_with(SECRET);
        if kind.is_dir() { has_secret(&entry.path()) } else { kind.is_file() && file() }
    })
}

/// In `host`'s files: a source that is exchanged all the time, small and large files in it. What links lead to is beside it.
fn exchanged(host: &Host) -> Exchange {
    let at = |name: &str| host.file(name);
    for folder in ["data/a/deep", "secret/deep"] {
        fs::create_dir_all(at(folder)).unwrap();
    }
    for name in ["small", "deep/small"] {
        fs::write(at("data/a").join(name), "public").unwrap();
        fs::write(at("secret").join(name), SECRET).unwrap();
    }
    for name in ["large", "deep/large"] {
        fs::write(at("data/a").join(name), vec![b'p'; 1_200_000]).unwrap();
        let secret = [SECRET, &vec![b's'; 1_200_000 - SECRET.len()]].concat();
        fs::write(at("secret").join(name), secret).unwrap();
    }
    std::os::unix::fs::symlink("../secret", at("data/b")).unwrap();
    Exchange::start(&at("data/a"), &at("data/b"))
}

/// Copies again and again; what comes of each does not matter, but that nothing comes along.
fn copy_often(host: &Host, mut copy: impl FnMut(&str) -> Cp) {
    let taken = (0..COPIES).filter(|_| {
        let done = copy("to").run();
        assert!([0, 1].contains(&done.code()), "{}", done.err);
        let taken = has_secret(&host.file("to"));
        let _ = fs::remove_dir_all(host.file("to"));
        taken
    });
    assert_eq!(taken.count(), 0, "copies of {COPIES} took what a link led to");
}

#[test]
fn links_that_take_a_folders_place_are_not_followed_over_ssh() {
    let host = Host::in_memory();
    let _exchange = exchanged(&host);
    for push in [true, false] {
        copy_often(&host, |to| {
            let mut cp = host.cp();
            let ends =
                if push { [host.file("data").into(), host.far(to)] } else { [host.far("data"), host.file(to).into()] };
            cp.words("-r -q").arg(&ends[0]).arg(&ends[1]);
            cp
        });
    }
}

#[test]
fn links_that_take_a_folders_place_are_not_followed_by_a_server() {
    let host = Host::in_memory();
    let _exchange = exchanged(&host);
    let server = Server::start(&format!("--root {} --insecure", host.file("").display()));
    let far = |name: &str| std::ffi::OsString::from(format!("fullpipe://{}/{name}", server.address));
    for push in [true, false] {
        copy_often(&host, |to| {
            let mut cp = Cp::new();
            let ends = if push { [host.file("data").into(), far(to)] } else { [far("data"), host.file(to).into()] };
            cp.words("--insecure --no-encrypt -r -q").arg(&ends[0]).arg(&ends[1]);
            cp
        });
    }
}

#[test]
fn a_servers_folder_stays_the_same_whatever_takes_its_name() {
    let host = Host::in_memory();
    fs::create_dir(host.file("root")).unwrap();
    fs::write(host.file("file"), "x").unwrap();
    let server = Server::start(&format!("--root {} --insecure", host.file("root").display()));
    fs::rename(host.file("root"), host.file("real")).unwrap();
    fs::create_dir(host.file("private")).unwrap();
    std::os::unix::fs::symlink("private", host.file("root")).unwrap();
    let url = format!("fullpipe://{}/", server.address);
    Cp::new().words("--insecure").arg(host.file("file")).arg(url).ok();
    assert!(host.file("real/file").exists() && !host.file("private/file").exists());
}

/// A link that one copy brings must not lead the next one: its text is the source owner's. The second copy finds a folder
/// where the link was, with a file for what the link leads to.
#[test]
fn a_link_that_a_copy_brought_leads_no_later_copy() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    for (push, flags) in [(true, "-r"), (false, "-r"), (true, "-r -u"), (false, "-r --verify")] {
        let host = Host::in_memory();
        let at = |name: &str| host.file(name);
        fs::create_dir_all(at("home/.ssh")).unwrap();
        fs::write(at("home/.ssh/keys"), "good").unwrap();
        for folder in ["home", "home/.ssh"] {
            fs::set_permissions(at(folder), fs::Permissions::from_mode(0o700)).unwrap();
        }
        fs::create_dir(at("tree")).unwrap();
        fs::write(at("tree/file"), "1").unwrap();
        symlink("../.ssh", at("tree/cfg")).unwrap();
        symlink("..", at("tree/up")).unwrap();
        let copy = || {
            let mut cp = host.cp();
            let ends = if push {
                [host.file("tree").into(), host.far("home/")]
            } else {
                [host.far("tree"), host.file("home/").into()]
            };
            cp.words(flags).arg(&ends[0]).arg(&ends[1]);
            cp.run()
        };
        assert_eq!(copy().code(), 0);
        for (name, file) in [("tree/cfg", "keys"), ("tree/up", "rc")] {
            fs::remove_file(at(name)).unwrap();
            fs::create_dir(at(name)).unwrap();
            fs::set_permissions(at(name), fs::Permissions::from_mode(0o777)).unwrap();
            fs::write(at(name).join(file), "EVIL").unwrap();
        }
        let done = copy();
        assert!(done.code() == 1 && done.err.contains("a symbolic link stands at the destination"), "{}", done.err);
        assert_eq!(fs::read(at("home/.ssh/keys")).unwrap(), b"good");
        assert!(!at("home/rc").exists());
        for folder in ["home", "home/.ssh"] {
            assert_eq!(fs::metadata(at(folder)).unwrap().mode() & 0o777, 0o700, "{folder}");
        }
        assert_eq!(fs::read(at("home/tree/file")).unwrap(), b"1");
    }
}
