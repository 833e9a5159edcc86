//! Mounts a file system of end b at end a, over the path, with the kernel's own NFS server and client.
//!
//! The server needs no program of its own: it asks `rpc.mountd(8)` only for what its caches lack, and these are filled here with
//! the domain of end a's address, the export for that domain, and the path of the export's file handle
//! (Documentation/filesystems/nfs/rpc-cache.rst in the kernel's sources).

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use fullpipe_net::sys;
use fullpipe_path::lab_mount::LabMount;
use nix::mount::{MsFlags, mount};

use super::step::{Doing, Fallible};
use super::topology::Net;
use crate::job::{ADDRESS_A, ADDRESS_B, DISK, EXPORT, Job, MOUNT};

/// Where the kernel is told of the server.
const NFSD: &str = "/proc/fs/nfsd";
/// Port of an NFS server (RFC 7530, section 3.1).
const PORT: u16 = 2049;
/// Threads of the server. Each works on one request at a time, so that they limit no client.
const THREADS: u32 = 256;
/// Most bytes of a request that the server takes. Its default depends on the guest's memory.
const MOST_REQUEST_BYTES: u32 = 1 << 20;
/// Time in which clients of a server's last life may come back, s: the least that the kernel takes.
const GRACE_S: u32 = 10;
/// Flags of the export: any port, no check of subtrees, a number as its identity (`NFSEXP_*` in
/// include/uapi/linux/nfsd/export.h). What a client commits is on the disk before the reply.
const EXPORT_FLAGS: u32 = 0x2 | 0x400 | 0x2000;
/// A time, in s since 1970, that never comes: entries of the caches hold until then.
const NEVER: u32 = i32::MAX as u32;

fn write(file: &str, text: &str) -> Fallible<()> {
    fs::write(file, text).doing(|| format!("writing '{}' to {file}", text.trim_end()))
}

/// Serves the file system of end b.
fn serve(given: &LabMount, has_disk: bool) -> Fallible<()> {
    let size = format!("size={},mode=1777", given.size.0);
    let mounted = if has_disk {
        mount(Some(DISK), EXPORT, None::<&str>, MsFlags::MS_BIND, None::<&str>)
    } else {
        mount(Some("tmpfs"), EXPORT, Some("tmpfs"), MsFlags::empty(), Some(size.as_str()))
    };
    mounted.doing(|| format!("mounting {EXPORT}"))?;
    mount(Some("nfsd"), NFSD, Some("nfsd"), MsFlags::empty(), None::<&str>).doing(|| format!("mounting {NFSD}"))?;
    for (file, text) in [
        ("nfsv4gracetime", GRACE_S.to_string()),
        ("nfsv4leasetime", GRACE_S.to_string()),
        ("versions", "-2 -3 +4 +4.0 +4.1 +4.2".into()),
        ("max_block_size", MOST_REQUEST_BYTES.to_string()),
    ] {
        write(&format!("{NFSD}/{file}"), &format!("{text}\n"))?;
    }
    for (cache, entry) in [
        ("auth.unix.ip", format!("nfsd {ADDRESS_A} {NEVER} far")),
        ("nfsd.export", format!("far {EXPORT} {NEVER} {EXPORT_FLAGS} 65534 65534 0")),
        ("nfsd.fh", format!("far 1 \\x00000000 {NEVER} {EXPORT}")),
    ] {
        // Of this thread: the process itself is in no end's namespace.
        write(&format!("/proc/thread-self/net/rpc/{cache}/channel"), &format!("{entry}\n"))?;
    }
    write(&format!("{NFSD}/portlist"), &format!("tcp {PORT}\n"))?;
    write(&format!("{NFSD}/threads"), &format!("{THREADS}\n"))
}

/// Mounts what end b serves at end a, and waits until it can be written to.
fn attach(given: &LabMount) -> Fallible<()> {
    write("/sys/module/nfs/parameters/max_session_slots", &format!("{}\n", given.slots))?;
    let LabMount { vers, nconnect, rsize, wsize, .. } = given;
    let mut options = format!(
        "vers={vers},proto=tcp,nconnect={nconnect},rsize={},wsize={},addr={ADDRESS_B},clientaddr={ADDRESS_A}",
        rsize.0, wsize.0
    );
    let mut flags = MsFlags::empty();
    if given.sync {
        options.push_str(",sync");
        flags |= MsFlags::MS_SYNCHRONOUS;
    }
    let source = format!("{ADDRESS_B}:/");
    mount(Some(source.as_str()), MOUNT, Some("nfs4"), flags, Some(options.as_str()))
        .doing(|| format!("mounting {source} with {options}"))?;
    let device = fs::metadata(MOUNT).doing(|| format!("reading {MOUNT}"))?.dev();
    let (major, minor) = (nix::sys::stat::major(device), nix::sys::stat::minor(device));
    write(&format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb"), &format!("{}\n", given.read_ahead.0 >> 10))?;
    // The first file waits until the server's time of grace is over.
    let first = format!("{MOUNT}/.first");
    fs::write(&first, "").and_then(|()| fs::remove_file(&first)).doing(|| format!("writing to {MOUNT}"))?;
    fs::set_permissions(MOUNT, fs::Permissions::from_mode(0o1777)).doing(|| format!("opening {MOUNT} to users"))
}

/// Serves and mounts what the path's key `mount` says, before the scenario's time begins.
pub(super) fn mount_at_a(job: &Job, net: &Net) -> Fallible<()> {
    let Some(given) = job.path.mount.clone() else { return Ok(()) };
    let (served, has_disk) = (given.clone(), job.path.disk_b.is_some());
    net.b.run(move |_| serve(&served, has_disk)).doing(|| "serving the mount at end b".into())?;
    net.a.run(move |_| attach(&given)).doing(|| "mounting at end a".into())?;
    let ready_ns = sys::now_ns();
    if ready_ns > job.zero_ns() {
        return Err(format!("mounting took until {:.0} s; give a path with fewer losses", ready_ns as f64 / 1e9));
    }
    Ok(())
}
