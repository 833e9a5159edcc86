//! A client that finds a flaw in the server: the process that serves it is killed, or crashes.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::common::Server;
use crate::host::{Cp, Host, Running, journalled, until};

const MIB: usize = 1 << 20;
const CLIENTS: usize = 8;

/// Processes that serve the clients of a server.
fn children(server: u32) -> Vec<i32> {
    let children = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let status = fs::read_to_string(entry.path().join("status")).ok()?;
        status.lines().any(|line| line == format!("PPid:\t{server}")).then_some(pid)
    });
    children.collect()
}

/// Eight copies into folders of their own, paced so that all are under way at once; and their server.
fn eight(host: &Host) -> (Server, Vec<Running>) {
    let bytes: Vec<u8> = (0..64 * MIB).map(|i| (i * 31 + i / 251) as u8).collect();
    fs::write(host.file("large"), bytes).unwrap();
    fs::create_dir(host.file("root")).unwrap();
    let server = Server::start(&format!("--root {} --insecure", host.file("root").display()));
    let copies = (0..CLIENTS).map(|i| {
        let folder = host.file("root").join(i.to_string());
        fs::create_dir(&folder).unwrap();
        let url = format!("fullpipe://{}/{i}/", server.address);
        let mut cp = Cp::new();
        let running = cp
            .words("--insecure --no-encrypt --block 64KiB -n 1 --pacing 100mbit")
            .arg(host.file("large"))
            .arg(url)
            .start();
        until("a copy is under way", || journalled(&folder) > 500);
        running
    });
    let copies = copies.collect();
    assert_eq!(children(server.id()).len(), CLIENTS);
    (server, copies)
}

fn is_whole(host: &Host, i: usize) -> bool {
    fs::read(host.file("root").join(i.to_string()).join("large")).unwrap() == fs::read(host.file("large")).unwrap()
}

#[test]
fn a_flaw_that_one_client_finds_is_that_clients_alone() {
    for signal in [Signal::SIGKILL, Signal::SIGSEGV, Signal::SIGABRT] {
        let host = Host::in_memory();
        let (mut server, mut copies) = eight(&host);
        // So that it does not come again, its client does not live on either.
        let victims = children(server.id());
        let last = copies.pop().unwrap();
        let newest = *victims.iter().max_by_key(|pid| started(**pid)).unwrap();
        // Rust takes one SIGSEGV for an overflow of its stack, and dies of the next.
        until("it is dead", || kill(Pid::from_raw(newest), signal).is_err());
        last.kill();
        for (i, copy) in copies.into_iter().enumerate() {
            let done = copy.wait();
            assert_eq!(done.code(), 0, "{signal}: {}", done.err);
            assert!(is_whole(&host, i), "{signal}: {i}");
        }
        assert!(server.alive());
        let log = server.log(CLIENTS);
        let told = log.iter().filter_map(|line| line["error"].as_str());
        let told = told.filter(|error| error.contains(&format!("its process was ended by {signal}")));
        assert_eq!(told.count(), 1, "{signal}: {log:?}");
        // The next one is served; and nobody is left.
        let url = format!("fullpipe://{}/7/", server.address);
        Cp::new().words("--insecure").arg(host.file("large")).arg(url).ok();
        until("no process is left", || children(server.id()).is_empty());
    }
}

/// The client comes again by itself, and goes on where it was.
#[test]
fn a_copy_whose_process_is_killed_goes_on() {
    let host = Host::in_memory();
    let (server, copies) = eight(&host);
    for pid in children(server.id()) {
        kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    }
    for (i, copy) in copies.into_iter().enumerate() {
        assert_eq!(copy.wait().code(), 0);
        assert!(is_whole(&host, i));
    }
}

/// When a process began, as far as the owner of its folder in /proc tells.
fn started(pid: i32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let behind = stat.rsplit(')').next().unwrap_or_default();
    behind.split_whitespace().nth(19).and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Root's server gives its clients' processes the capabilities over files and the network's, and no others.
#[test]
fn the_process_of_a_client_has_few_capabilities() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("not tested: it takes root to have capabilities");
        return;
    }
    let host = Host::in_memory();
    fs::create_dir(host.file("root")).unwrap();
    let token = host.file("token");
    let flags = format!("--root {} --token-file {} --allow-special", host.file("root").display(), token.display());
    let server = Server::start(&flags);
    let line = std::net::TcpStream::connect(&server.address).unwrap();
    std::io::Write::write_all(&mut &line, &[0x16]).unwrap();
    // CHOWN, DAC_OVERRIDE, FOWNER, FSETID and NET_ADMIN (linux/capability.h).
    const FEW: u64 = 0b1_1011 | 1 << 12;
    let set = |pid: &str, name: &str| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t"));
        line.and_then(|text| u64::from_str_radix(text, 16).ok())
    };
    // Root in a container may lack some of these itself.
    let few = set("self", "CapPrm").map(|own| own & FEW);
    assert!(few.is_some_and(|few| few != 0) && few != set("self", "CapPrm"));
    until("its process has few capabilities", || {
        children(server.id()).first().is_some_and(|pid| {
            let pid = pid.to_string();
            set(&pid, "CapEff") == few && set(&pid, "CapPrm") == few
        })
    });
    // They are enough: for owners and all bits, and for a folder that another user has closed.
    let closed = host.file("root/closed");
    fs::create_dir(&closed).unwrap();
    std::os::unix::fs::chown(&closed, Some(12345), Some(12345)).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o500)).unwrap();
    fs::create_dir(host.file("tree")).unwrap();
    for (name, mode) in [("small", 0o4755), ("large", 0o2711)] {
        let file = host.file("tree").join(name);
        fs::write(&file, vec![7; if name == "small" { 10 } else { 3 * MIB }]).unwrap();
        std::os::unix::fs::chown(&file, Some(12345), Some(23456)).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
    }
    let url = format!("fullpipe://{}/closed/", server.address);
    let mut cp = Cp::new();
    cp.words("-r -p --token-file").arg(&token).arg(host.file("tree")).arg(url).ok();
    for (name, mode) in [("small", 0o4755), ("large", 0o2711)] {
        let meta = fs::metadata(closed.join("tree").join(name)).unwrap();
        assert_eq!((meta.uid(), meta.gid(), meta.mode() & 0o7777), (12345, 23456, mode), "{name}");
    }
}

/// `systemctl kill -s HUP` sends the signal to all processes of a service.
#[test]
fn a_hangup_signal_to_all_processes_ends_no_transfer() {
    let host = Host::in_memory();
    let (mut server, copies) = eight(&host);
    let before = children(server.id());
    for pid in before.iter().copied().chain([server.id() as i32]) {
        kill(Pid::from_raw(pid), Signal::SIGHUP).unwrap();
    }
    std::thread::sleep(std::time::Duration::from_millis(200));
    // A client that came again would have another process.
    assert_eq!(children(server.id()), before);
    let log = server.log(0);
    assert!(!log.iter().any(|line| line["error"].is_string()), "{log:?}");
    for (i, copy) in copies.into_iter().enumerate() {
        assert_eq!(copy.wait().code(), 0);
        assert!(is_whole(&host, i));
    }
    assert!(server.alive());
}

/// The process may open nothing but the server's folder, even where its user may: it is confined by the kernel.
#[test]
fn the_process_of_a_client_is_confined() {
    let host = Host::in_memory();
    fs::create_dir(host.file("root")).unwrap();
    fs::write(host.file("outside"), "x").unwrap();
    let server = Server::start(&format!("--root {} --insecure", host.file("root").display()));
    let line = std::net::TcpStream::connect(&server.address).unwrap();
    std::io::Write::write_all(&mut &line, b"T").unwrap();
    until("its process is there", || !children(server.id()).is_empty());
    let pid = children(server.id())[0];
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    until("it is limited", || {
        let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
        limits.lines().any(|line| line.starts_with("Max data size") && line.contains("4294967296"))
    });
    assert!(!limits.is_empty());
    assert_eq!(fs::read_to_string(format!("/proc/{pid}/comm")).unwrap(), "fullpipe\n");
    // Its environment has nothing of the server's.
    assert!(fs::read(format!("/proc/{pid}/environ")).unwrap().is_empty());
    assert_eq!(fs::metadata(Path::new(&format!("/proc/{pid}"))).unwrap().uid(), nix::unistd::geteuid().as_raw());
}
