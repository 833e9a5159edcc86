//! Another user of the receiving host, who may write to the destination. These tests need root, to be both users.

use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use fullpipe_transfer::protocol::file::{Extent, FileItem, Meta};
use fullpipe_transfer::protocol::name::Name;
use fullpipe_transfer::receive::journal::{Journal, Record};

use crate::host::{Host, journalled, until};

/// The other user.
const OTHER: u32 = 12345;
const MIB: usize = 1 << 20;

fn is_root() -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        eprintln!("not tested: it takes root to be two users");
    }
    root
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// A destination that everybody may write to, and a folder in it that is root's alone.
fn shared(host: &Host, bits: u32) -> PathBuf {
    let proj = host.file("proj");
    fs::create_dir_all(proj.join("private")).unwrap();
    fs::write(proj.join("private/key"), "secret").unwrap();
    mode(&proj.join("private"), 0o700);
    mode(&proj, bits);
    proj
}

fn untouched(private: &Path) {
    let now = fs::metadata(private).unwrap();
    assert_eq!((now.uid(), now.mode() & 0o7777), (0, 0o700), "{}", private.display());
    assert_eq!(fs::read(private.join("key")).unwrap(), b"secret");
    assert_eq!(fs::read_dir(private).unwrap().count(), 1);
}

/// Names of a kind of the transfer's own files in a folder.
fn scratch(folder: &Path, kind: &str) -> Vec<PathBuf> {
    let ours = |path: &PathBuf| {
        let name = path.file_name().unwrap().as_bytes();
        name.starts_with(b".fullpipe.") && name.ends_with(kind.as_bytes())
    };
    fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path()).filter(ours).collect()
}

/// Begins a copy into a folder and kills it; gives its journal.
fn interrupted(host: &Host, proj: &Path) -> PathBuf {
    fs::create_dir_all(host.file("data")).unwrap();
    let bytes: Vec<u8> = (0..96 * MIB).map(|i| (i * 31 + i / 251) as u8).collect();
    fs::write(host.file("data/large"), bytes).unwrap();
    // A last file that is not there for long keeps the copy from ending.
    let running =
        host.cp().words("-r --block 64KiB -n 2 --pacing 200mbit").arg(host.file("data")).arg(host.far("proj/")).start();
    until("blocks are written", || journalled(proj) > 2000);
    running.kill();
    // The far end gives it up.
    until("the far end ends", || {
        let journals = scratch(proj, "journal");
        let free = |path: &PathBuf| {
            nix::fcntl::Flock::lock(File::open(path).unwrap(), nix::fcntl::FlockArg::LockExclusiveNonblock).is_ok()
        };
        !journals.is_empty() && journals.iter().all(free)
    });
    scratch(proj, "journal").remove(0)
}

/// The number in a scratch file's name.
fn number(path: &Path) -> u64 {
    let name = path.file_name().unwrap().to_str().unwrap();
    u64::from_str_radix(&name[10..26], 16).unwrap()
}

/// Puts a journal of the other user's in place of one, with these records.
fn plant(journal: &Path, records: &[Record]) {
    let transfer = number(journal);
    let planted = journal.with_extension("planted");
    let file = File::options().read(true).write(true).create_new(true).open(&planted).unwrap();
    let (mut own, _) = Journal::open(file, transfer, 1).unwrap();
    for record in records {
        own.add(record).unwrap();
    }
    own.flush().unwrap();
    mode(&planted, 0o600);
    chown(&planted, Some(OTHER), Some(OTHER)).unwrap();
    fs::rename(&planted, journal).unwrap();
}

fn name(text: &str) -> Name {
    Name::try_from(text.as_bytes().to_vec()).unwrap()
}

#[test]
fn a_planted_journal_changes_no_folder() {
    if !is_root() {
        return;
    }
    let host = Host::in_memory();
    let proj = shared(&host, 0o777);
    let journal = interrupted(&host, &proj);
    let inode = fs::metadata(proj.join("private")).unwrap().ino();
    let meta = Meta { mode: 0o777, uid: OTHER, gid: OTHER, mtime: (1, 0), xattrs: vec![] };
    plant(&journal, &[Record::Folder { name: name("private"), inode, meta }]);
    let done =
        host.cp().words("-r --block 64KiB -n 2 --pacing 200mbit").arg(host.file("data")).arg(host.far("proj/")).ok();
    untouched(&proj.join("private"));
    assert!(done.err.contains(&format!("belongs to another user (uid {OTHER})")), "{}", done.err);
    assert_eq!(fs::read(proj.join("data/large")).unwrap(), fs::read(host.file("data/large")).unwrap());
    assert_eq!(fs::metadata(&journal).unwrap().uid(), OTHER, "it is theirs to remove");
    fs::remove_file(&journal).unwrap();
    assert!(scratch(&proj, "journal").is_empty());
}

#[test]
fn planted_bytes_get_no_final_name() {
    if !is_root() {
        return;
    }
    let host = Host::in_memory();
    let proj = shared(&host, 0o777);
    let journal = interrupted(&host, &proj);
    let source = fs::metadata(host.file("data/large")).unwrap();
    let meta = Meta {
        mode: source.mode() & 0o7777,
        uid: source.uid(),
        gid: source.gid(),
        mtime: (source.mtime(), source.mtime_nsec() as u32),
        xattrs: vec![],
    };
    let changed = (source.ctime(), source.ctime_nsec() as u32);
    let item = FileItem { name: name("data/large"), size: source.len(), sparse: false, changed, content: None, meta };
    // All of it a hole, which no digest contradicts: the file would be zeros.
    let extent = Extent { offset: 0, len: source.len() };
    plant(&journal, &[Record::Block { file: item.key(), extent, digest: None }]);
    let partial = scratch(&proj.join("data"), "partial").remove(0);
    fs::remove_file(&partial).unwrap();
    File::create(&partial).unwrap().set_len(source.len()).unwrap();
    chown(&partial, Some(OTHER), Some(OTHER)).unwrap();
    host.cp().words("-r --block 64KiB -n 2 --pacing 200mbit").arg(host.file("data")).arg(host.far("proj/")).ok();
    let now = fs::metadata(proj.join("data/large")).unwrap();
    assert_eq!(now.uid(), 0);
    assert!(fs::read(proj.join("data/large")).unwrap() == fs::read(host.file("data/large")).unwrap());
}

/// Even with a journal that is believed: the other user has exchanged the partial file alone.
#[test]
fn a_partial_file_that_others_may_write_to_is_begun_anew() {
    if !is_root() {
        return;
    }
    for how in ["other", "mode", "link"] {
        let host = Host::in_memory();
        let proj = shared(&host, 0o777);
        interrupted(&host, &proj);
        let partial = scratch(&proj.join("data"), "partial").remove(0);
        match how {
            "other" => chown(&partial, Some(OTHER), Some(OTHER)).unwrap(),
            "mode" => mode(&partial, 0o666),
            _ => fs::hard_link(&partial, proj.join("kept")).unwrap(),
        }
        // It may be written to until the very end, by who has it open.
        let theirs = File::options().write(true).open(&partial).unwrap();
        let done = host.cp().words("-r --json --block 64KiB -n 2").arg(host.file("data")).arg(host.far("proj/")).ok();
        theirs.write_all_at(b"theirs", 0).unwrap();
        assert!(fs::read(proj.join("data/large")).unwrap() == fs::read(host.file("data/large")).unwrap(), "{how}");
        assert_eq!(done.number("spared_bytes"), 0, "{how}: {}", done.out);
    }
}

/// What stands under the transfer's own names, whatever it is, is neither written to nor waited for.
#[test]
fn what_stands_under_its_names_does_no_harm() {
    if !is_root() {
        return;
    }
    let host = Host::in_memory();
    let proj = shared(&host, 0o777);
    let journal = interrupted(&host, &proj);
    let victim = host.file("victim");
    let request = proj.join(format!(".fullpipe.{:016x}.next", number(&journal)));
    type Plant = fn(&Path, &Path);
    let kinds: [(&str, Plant); 4] = [
        ("link", |victim, at| symlink(victim, at).unwrap()),
        ("hard link", |victim, at| fs::hard_link(victim, at).unwrap()),
        ("fifo", |_, at| nix::unistd::mkfifo(at, nix::sys::stat::Mode::S_IRWXU).unwrap()),
        ("folder", |_, at| fs::create_dir(at).unwrap()),
    ];
    for (kind, plant) in kinds {
        fs::write(&victim, "victim").unwrap();
        for at in [&journal, &request] {
            let _ = fs::remove_file(at).or_else(|_| fs::remove_dir(at));
            plant(&victim, at);
        }
        let _ = fs::remove_dir_all(proj.join("data"));
        host.cp().words("-r -q").arg(host.file("data")).arg(host.far("proj/")).ok();
        assert!(fs::read(proj.join("data/large")).unwrap() == fs::read(host.file("data/large")).unwrap(), "{kind}");
        assert_eq!(fs::read(&victim).unwrap(), b"victim", "{kind}");
    }
}

/// In a sticky folder nobody can remove what another has put there.
#[test]
fn taken_names_in_a_sticky_folder_keep_nobody_from_copying() {
    if !is_root() {
        return;
    }
    let host = Host::in_memory();
    let proj = shared(&host, 0o1777);
    fs::create_dir(host.file("in")).unwrap();
    fs::write(host.file("in/large"), vec![7; 3 * MIB]).unwrap();
    fs::write(host.file("in/small"), "small").unwrap();
    symlink("small", host.file("in/link")).unwrap();
    mode(host.file("").as_path(), 0o755);
    let nobody = host.unprivileged();
    let copy = |to: &str| {
        let mut cp = host.cp();
        cp.far_program(&nobody).words("-r --no-encrypt").arg(host.file("in/.")).arg(host.far(to));
        cp
    };
    // Which names they are, the other user finds out by copying the same.
    copy("proj/").ok();
    for entry in fs::read_dir(&proj).unwrap().flatten().filter(|entry| entry.file_name() != "private") {
        fs::remove_file(entry.path()).unwrap();
    }
    let transfer = fullpipe_transfer::resolve::transfer(
        "far",
        &[host.file("in/.").as_os_str().as_bytes().to_vec()],
        host.file("proj/").as_os_str().as_bytes(),
        false,
        false,
    );
    let mut taken = vec![format!(".fullpipe.{transfer:016x}.journal")];
    for file in ["large", "small", "link"] {
        taken.push(format!(".fullpipe.{:016x}.partial", name(file).key() ^ transfer));
        // An older one of the copier's own, which has to give way.
        fs::write(proj.join(file), "old").unwrap();
        chown(proj.join(file), Some(65534), Some(65534)).unwrap();
    }
    for name in &taken {
        fs::write(proj.join(name), "theirs").unwrap();
        chown(proj.join(name), Some(OTHER), Some(OTHER)).unwrap();
    }
    let done = copy("proj/").run();
    assert_eq!(done.code(), 0, "{}", done.err);
    for file in ["large", "small"] {
        assert!(fs::read(proj.join(file)).unwrap() == fs::read(host.file("in").join(file)).unwrap(), "{file}");
    }
    assert_eq!(fs::read_link(proj.join("link")).unwrap(), Path::new("small"));
    for name in &taken {
        assert_eq!(fs::read(proj.join(name)).unwrap(), b"theirs", "{name}");
    }
    let ours = |path: &&PathBuf| !taken.contains(&path.file_name().unwrap().to_str().unwrap().to_owned());
    let left: Vec<_> = [scratch(&proj, "journal"), scratch(&proj, "partial")].concat();
    assert_eq!(left.iter().filter(ours).count(), 0, "{left:?}");
}

/// A link of another user's in the destination leads nowhere; root's and the copier's own do.
#[test]
fn links_of_others_at_the_destination_are_not_followed() {
    if !is_root() {
        return;
    }
    let host = Host::in_memory();
    let proj = shared(&host, 0o777);
    for folder in ["data", "data/deep"] {
        fs::create_dir(host.file(folder)).unwrap();
        fs::write(host.file(folder).join("file"), "x").unwrap();
        mode(&host.file(folder), 0o777);
        chown(host.file(folder), Some(OTHER), Some(OTHER)).unwrap();
    }
    for (target, link) in [("private", "data"), ("../private", "data/deep")] {
        symlink(target, proj.join(link)).unwrap();
        std::os::unix::fs::lchown(proj.join(link), Some(OTHER), Some(OTHER)).unwrap();
        let done = host.cp().words("-r").arg(host.file("data")).arg(host.far("proj/")).run();
        assert_eq!(done.code(), 1, "{}", done.err);
        assert!(done.err.contains("a symbolic link stands at the destination"), "{}", done.err);
        untouched(&proj.join("private"));
        fs::remove_file(proj.join(link)).unwrap();
        host.cp().words("-r").arg(host.file("data")).arg(host.far("proj/")).ok();
        fs::remove_dir_all(proj.join("data/deep")).unwrap();
    }
}

/// Nor is it written through where its name is the destination's.
#[test]
fn a_link_of_another_user_that_is_named_as_destination_is_refused() {
    if !is_root() {
        return;
    }
    let host = Host::in_memory();
    let proj = shared(&host, 0o1777);
    fs::write(host.file("file"), "x").unwrap();
    fs::write(proj.join("private/precious"), "keep").unwrap();
    symlink("private/precious", proj.join("mine")).unwrap();
    for (target, link) in [("private/precious", "direct"), ("mine", "twice")] {
        symlink(target, proj.join(link)).unwrap();
        std::os::unix::fs::lchown(proj.join(link), Some(OTHER), Some(OTHER)).unwrap();
        let done = host.cp().arg(host.file("file")).arg(host.far(&format!("proj/{link}"))).run();
        assert_eq!(done.code(), 2, "{}", done.err);
        assert!(done.err.contains(&format!("belongs to another user (uid {OTHER})")), "{}", done.err);
        assert!(fs::symlink_metadata(proj.join(link)).unwrap().is_symlink());
    }
    assert_eq!(fs::read(proj.join("private/precious")).unwrap(), b"keep");
    host.cp().arg(host.file("file")).arg(host.far("proj/mine")).ok();
    assert_eq!(fs::read(proj.join("private/precious")).unwrap(), b"x");
}

/// A client of a server names the destination, so links in that name count only if they are the server's user's or root's, or
/// lead to what is the link's owner's.
#[test]
fn links_of_others_in_a_destinations_name_lead_a_servers_client_only_to_what_is_theirs() {
    if !is_root() {
        return;
    }
    let host = Host::in_memory();
    let proj = shared(&host, 0o755);
    fs::write(host.file("file"), "x").unwrap();
    fs::create_dir(proj.join("own")).unwrap();
    chown(proj.join("own"), Some(OTHER), Some(OTHER)).unwrap();
    for (target, link) in [("private", "to-private"), ("own", "to-own")] {
        symlink(target, proj.join(link)).unwrap();
        std::os::unix::fs::lchown(proj.join(link), Some(OTHER), Some(OTHER)).unwrap();
    }
    let server = crate::common::Server::start(&format!("--root {} --insecure", proj.display()));
    let copy = |to: &str| {
        let url = format!("fullpipe://{}/{to}/", server.address);
        crate::host::Cp::new().words("--insecure").arg(host.file("file")).arg(url).run()
    };
    let done = copy("to-private");
    assert!(done.code() != 0 && done.err.contains(&format!("belongs to another user (uid {OTHER})")), "{}", done.err);
    untouched(&proj.join("private"));
    assert_eq!(copy("to-own").code(), 0);
    assert_eq!(fs::read(proj.join("own/file")).unwrap(), b"x");
}

/// A folder that takes another's name while a copy runs does not get the permissions that were meant for the other.
#[test]
fn a_folder_that_is_exchanged_meanwhile_keeps_its_owner() {
    if !is_root() {
        return;
    }
    let host = Host::in_memory();
    let proj = shared(&host, 0o777);
    fs::create_dir_all(host.file("data/open")).unwrap();
    let bytes: Vec<u8> = (0..64 * MIB).map(|i| (i * 31 + i / 251) as u8).collect();
    fs::write(host.file("data/large"), bytes).unwrap();
    mode(&host.file("data/open"), 0o777);
    chown(host.file("data/open"), Some(OTHER), Some(OTHER)).unwrap();
    let running =
        host.cp().words("-r --block 64KiB -n 2 --pacing 200mbit").arg(host.file("data")).arg(host.far("proj/")).start();
    until("it has begun", || journalled(&proj) > 500 && proj.join("data/open").exists());
    running.signal(nix::sys::signal::Signal::SIGSTOP);
    fs::rename(proj.join("data/open"), proj.join("aside")).unwrap();
    fs::rename(proj.join("private"), proj.join("data/open")).unwrap();
    running.signal(nix::sys::signal::Signal::SIGCONT);
    let done = running.wait();
    assert_eq!(done.code(), 1, "{}", done.err);
    assert!(done.err.contains("another folder took its place"), "{}", done.err);
    untouched(&proj.join("data/open"));
}

/// A file that the source's owner put at the destination, with content of its own but the size and time of the source,
/// gets no right from `--update --preserve` that its owner could not give it.
#[test]
fn update_gives_another_users_file_no_group_and_no_special_bits() {
    if !is_root() {
        return;
    }
    const GROUP: u32 = 54321;
    let host = Host::in_memory();
    let proj = shared(&host, 0o1777);
    fs::create_dir(host.file("data")).unwrap();
    fs::write(host.file("data/program"), "true").unwrap();
    chown(host.file("data/program"), Some(OTHER), Some(GROUP)).unwrap();
    mode(&host.file("data/program"), 0o6755);
    let source = fs::metadata(host.file("data/program")).unwrap();
    fs::create_dir(proj.join("data")).unwrap();
    let planted = proj.join("data/program");
    fs::write(&planted, "evil").unwrap();
    File::options().write(true).open(&planted).unwrap().set_modified(source.modified().unwrap()).unwrap();
    chown(&planted, Some(OTHER), Some(OTHER)).unwrap();
    mode(&planted, 0o700);
    host.cp().words("-r --update --preserve").arg(host.file("data")).arg(host.far("proj/")).ok();
    let now = fs::metadata(&planted).unwrap();
    assert_eq!((now.uid(), now.gid(), now.mode() & 0o7777), (OTHER, OTHER, 0o755));
}

/// The proof of the issue itself, with the format that journals had then: it is no journal any more, whoever owns it.
#[test]
fn a_journal_of_an_older_format_is_not_read() {
    if !is_root() {
        return;
    }
    let host = Host::in_memory();
    let proj = shared(&host, 0o777);
    let journal = interrupted(&host, &proj);
    let planted = Command::new("python3").args(["-c", PLANT]).arg(&journal).output().unwrap();
    assert!(planted.status.success(), "{}", String::from_utf8_lossy(&planted.stderr));
    host.cp().words("-r").arg(host.file("data")).arg(host.far("proj/")).ok();
    untouched(&proj.join("private"));
}

const PLANT: &str = r"
import os, struct, sys, zlib
path = sys.argv[1]
r = lambda c: struct.pack('<II', len(c), zlib.crc32(c)) + c
boot = open('/proc/sys/kernel/random/boot_id', 'rb').read(36)
b = b'fullpipe-jrnl-05' + b'K' * 16 + bytes(8) + boot + r(b'\5\2\0') + r(b'\1\1\0')
b += r(b'\3\7private\xff\3\xb9\x60\xb9\x60\2\0\0')
open(path, 'wb').write(b)
";
