//! Builds the guest's file system: the host's files, read-only; `/tmp`, `/run`, `/proc`, `/sys` and `/dev` of the guest's
//! own; and one output folder that it shares with the host.

use std::fs;
use std::path::Path;

use nix::mount::{MsFlags, mount};

use super::step::{Doing, Fallible};
use super::sysctl;
use crate::job::{ADDRESS_A, ADDRESS_B, EXPORT, OUT_FOLDER, OWN_FOLDER, TOP};

/// Folder in which programs of the guest find this program as `fullpipe`, whatever the host calls it.
pub(super) const BIN: &str = "/.fullpipe/bin";
/// Top-level folders that are the guest's own.
const FOLDERS: [&str; 10] = ["proc", "sys", "dev", "tmp", "run", "space", "disk", "mount", "host", ".fullpipe"];

fn attach(kind: &str, at: &str, options: &str) -> Fallible<()> {
    fs::create_dir_all(at).doing(|| format!("making {at}"))?;
    mount(Some(kind), at, Some(kind), MsFlags::empty(), Some(options)).doing(|| format!("mounting {kind} on {at}"))
}

fn bind(from: &Path, to: &Path) -> Fallible<()> {
    let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
    mount(Some(from), to, None::<&str>, flags, None::<&str>).doing(|| format!("binding {}", from.display()))
}

/// Builds the root folder from the host's top-level folders, and enters it.
pub(super) fn enter(folder: &Path) -> Fallible<()> {
    // The host's root is mounted read-only, so the new root needs a folder that every system has. /sys hides nothing that
    // is needed: the program itself may be anywhere else.
    let root = Path::new("/sys");
    let within = |name: &str| root.join(name).display().to_string();
    attach("tmpfs", "/sys", "mode=755")?;
    for entry in fs::read_dir("/").doing(|| "listing /".into())?.flatten() {
        let name = entry.file_name();
        let target = root.join(&name);
        let Ok(kind) = entry.file_type() else { continue };
        if name.to_str().is_some_and(|name| FOLDERS.contains(&name)) {
            continue;
        }
        if kind.is_symlink() {
            let to = fs::read_link(entry.path()).doing(|| format!("reading link {}", entry.path().display()))?;
            std::os::unix::fs::symlink(to, &target).doing(|| format!("linking {}", target.display()))?;
        } else if kind.is_dir() {
            fs::create_dir(&target).doing(|| format!("making {}", target.display()))?;
            bind(&entry.path(), &target)?;
        }
    }
    for name in FOLDERS.into_iter().chain([&OUT_FOLDER[1..], &BIN[1..], &TOP[1..], &EXPORT[1..]]) {
        let target = root.join(name);
        fs::create_dir(&target).doing(|| format!("making {}", target.display()))?;
    }
    let out = folder.join("out");
    mount(Some("none"), &root.join(&OUT_FOLDER[1..]), Some("hostfs"), MsFlags::empty(), Some(&out))
        .doing(|| format!("mounting the output folder {}", out.display()))?;
    // The host's /tmp and /run are seen below /host: a user's script may be there.
    for name in ["tmp", "run"] {
        let seen = root.join("host").join(name);
        fs::create_dir_all(&seen).doing(|| format!("making {}", seen.display()))?;
        bind(&Path::new("/").join(name), &seen)?;
    }
    attach("proc", &within("proc"), "")?;
    attach("sysfs", &within("sys"), "")?;
    attach("devtmpfs", &within("dev"), "")?;
    attach("tmpfs", &within("dev/shm"), "mode=1777")?;
    attach("tmpfs", &within("tmp"), "mode=1777")?;
    attach("tmpfs", &within("run"), "mode=755")?;
    let me = root.join(&BIN[1..]).join("fullpipe");
    fs::write(&me, b"").doing(|| "making a place for the program".into())?;
    let exe = fs::read_link(within("proc/self/exe")).doing(|| "finding the program".into())?;
    bind(&exe, &me)?;
    hosts_file(root)?;
    std::env::set_current_dir(root).doing(|| "entering the root".into())?;
    mount(Some("."), "/", None::<&str>, MsFlags::MS_MOVE, None::<&str>).doing(|| "moving the root".into())?;
    nix::unistd::chroot(".").doing(|| "entering the root".into())?;
    std::env::set_current_dir("/").doing(|| "entering the root".into())?;
    for (file, value) in [
        ("net/core/netdev_max_backlog", "100000000"),
        // Virtual time stands still while a process can run. A sender that poll(2) calls writable, and that send(2) then
        // refuses for lack of TCP memory, would spin for ever.
        ("net/ipv4/tcp_mem", "100000000 100000000 100000000"),
        ("net/ipv4/udp_mem", "100000000 100000000 100000000"),
        // A guest without memory has no result. The panic's text tells the host why.
        ("vm/panic_on_oom", "2"),
        ("vm/overcommit_memory", "1"),
    ] {
        sysctl::set(file, value)?;
    }
    Ok(())
}

/// Mounts a folder of the host under the same name in the guest, over whatever is there. The host's `/` is mounted at [`TOP`]
/// instead, because the guest's own root stands on it.
pub(super) fn show(folder: &Path, write: bool) -> Fallible<()> {
    let at = if folder == Path::new("/") { Path::new(TOP) } else { folder };
    if at.starts_with(OWN_FOLDER) && at != Path::new(TOP) {
        return Err(format!("{} belongs to the guest; choose another folder", folder.display()));
    }
    // The folder is missing below the guest's own /tmp. Below the host's folders it is there, and could not be made.
    fs::create_dir_all(at).doing(|| format!("making a place for {}", folder.display()))?;
    let flags = if write { MsFlags::empty() } else { MsFlags::MS_RDONLY };
    mount(Some("none"), at, Some("hostfs"), flags, Some(folder))
        .doing(|| format!("mounting the host's {}", folder.display()))
}

/// Makes the names `a` and `b` resolve, without a name service.
fn hosts_file(root: &Path) -> Fallible<()> {
    let file = root.join("run/hosts");
    let text = format!("127.0.0.1 localhost\n{ADDRESS_A} a\n{ADDRESS_B} b\n");
    fs::write(&file, text).doing(|| "writing the hosts file".into())?;
    let target = root.join("etc/hosts");
    if target.exists() { bind(&file, &target) } else { Ok(()) }
}
