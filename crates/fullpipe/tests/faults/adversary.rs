//! What those do who work against a copy, each on the host where they are.

use std::fs::{self, File, Permissions};
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, mkfifo};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// Another user.
const OTHER: u32 = 12345;
/// A file and a folder of root's that are nobody else's business.
pub const SECRET: &str = "/space/secret";
/// Where the link waits that takes a folder's place.
const LINK: &str = "/space/link";
/// Calls of a stranger at a time.
const CALLS: u16 = 3;

/// Makes what nobody may touch or take along.
pub fn prepare() {
    fs::create_dir(SECRET).unwrap();
    fs::set_permissions(SECRET, Permissions::from_mode(0o700)).unwrap();
    fs::write(victim(), "victim").unwrap();
}

fn victim() -> PathBuf {
    Path::new(SECRET).join("victim")
}

/// Checks that nobody has touched it.
pub fn check() {
    assert_eq!(fs::read(victim()).unwrap(), b"victim");
    assert_eq!(fs::read_dir(SECRET).unwrap().count(), 1, "something was copied to where a link led");
    assert_eq!(fs::metadata(SECRET).unwrap().permissions().mode() & 0o7777, 0o700);
}

/// The transfer's own files below a folder.
fn scratch(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_name().as_bytes().starts_with(b".fullpipe.") {
            found.push(path);
        } else if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            scratch(&path, found);
        }
    }
}

fn remove(path: &Path) {
    // Its transfer may have been faster.
    let _ = fs::remove_file(path).or_else(|_| fs::remove_dir_all(path));
}

/// Puts something of another user's in place of some of the transfer's own files.
pub fn plant(target: &Path, number: u64) {
    let rng = &mut Pcg64::seed_from_u64(number);
    let mut found = Vec::new();
    scratch(target, &mut found);
    found.sort();
    for path in found {
        if rng.random_bool(0.5) {
            continue;
        }
        remove(&path);
        match rng.random_range(0..5) {
            0 => {
                // On a full disk the file is there, and shorter.
                let _ = fs::write(&path, vec![7; rng.random_range(0..100_000)]);
                drop(chown(&path, Some(OTHER), Some(OTHER)));
            }
            // On a disk this takes a while, in which the transfer may have made its own.
            1 => drop(symlink(victim(), &path)),
            2 => drop(mkfifo(&path, Mode::S_IRWXU)),
            3 => drop(fs::create_dir(&path)),
            // Gone, and nothing in its place.
            _ => {}
        }
    }
}

/// Removes links that have come of folders and, with `own`, all of the transfer's own files and what stands under their names.
pub fn tidy(target: &Path, folders: &[PathBuf], own: bool) {
    let mut found = Vec::new();
    if own {
        scratch(target, &mut found);
    }
    found.iter().for_each(|path| remove(path));
    for folder in folders.iter().filter(|folder| folder.is_symlink()) {
        remove(folder);
    }
}

/// Exchanges a folder for a link to where nobody else may look, or back.
pub fn exchange(folder: &Path) {
    if !Path::new(LINK).is_symlink() && !Path::new(LINK).exists() {
        symlink(SECRET, LINK).unwrap();
    }
    // It may have been removed meanwhile.
    let _ = renameat2(AT_FDCWD, folder, AT_FDCWD, LINK, RenameFlags::RENAME_EXCHANGE);
}

/// Calls ports of a host, says nothing or nonsense, and goes after a while.
pub fn call(ports: std::ops::Range<u16>, host: [u8; 4], number: u64) {
    std::thread::spawn(move || {
        let rng = &mut Pcg64::seed_from_u64(number);
        let mut lines = Vec::new();
        for _ in 0..CALLS {
            let to = SocketAddr::from((
                host,
                if rng.random_bool(0.3) { ports.start } else { rng.random_range(ports.clone()) },
            ));
            let Ok(mut line) = TcpStream::connect_timeout(&to, Duration::from_millis(500)) else { continue };
            let nonsense: Vec<u8> = (0..rng.random_range(0..200)).map(|_| rng.random()).collect();
            // Whoever is called may have hung up.
            let _ = line.write_all(&nonsense);
            lines.push(line);
        }
        std::thread::sleep(Duration::from_millis(rng.random_range(1..500)));
    });
}

/// Ends the processes that serve the clients of a server.
pub fn crash(server: Pid, number: u64) {
    let signal = if number.is_multiple_of(2) { Signal::SIGABRT } else { Signal::SIGKILL };
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        let status = fs::read_to_string(entry.path().join("status")).unwrap_or_default();
        if status.lines().any(|line| line == format!("PPid:\t{server}")) {
            // It may have ended just now.
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }
}

/// Whether the link waits, and so no folder is away.
pub fn link_waits() -> bool {
    Path::new(LINK).is_symlink() || File::open(LINK).is_err()
}
