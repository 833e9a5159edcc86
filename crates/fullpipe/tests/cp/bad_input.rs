//! What cannot be copied, or cannot be reached: one clear error for the thing, the rest goes on where that
//! makes sense, an exit code that tells.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

use fullpipe_transfer::protocol::frame;
use fullpipe_transfer::protocol::hello::{Hello, Limits, MAGIC, PROTOCOL, READY};
use fullpipe_transfer::protocol::message::Message;

use crate::host::{Cp, FULLPIPE, Host, far};
use crate::tree::{bytes, leftovers, only, same, same_content, write};

#[test]
fn words_that_make_no_copy() {
    for (words, part) in [
        ("a b", "source and destination are both on this host"),
        ("one:a fullpipe://two/b", "a copy between two other hosts goes over ssh at both"),
        ("fullpipe://one/a two:b", "a copy between two other hosts goes over ssh at both"),
        ("one:a b two:c/", "b is on this host, other sources are not"),
        ("one:a two:b three:c/", "the sources are on different hosts"),
        ("one:a two:b --record r", "--record needs an end of the copy on this host"),
        ("one:a two:b --transport udt", "--transport udt needs an end of the copy on this host"),
        ("one:a two:b --remove-source-files", "--remove-source-files needs an end of the copy on this host"),
        ("one:a two:b --files-from list", "--files-from needs an end of the copy on this host"),
        ("one:a two:b c", "the sources are on different hosts"),
        ("one:a b c", "copy from one host at a time"),
        ("a :b", "the name of a host is missing before the colon"),
        ("a far:b --block 1KiB", "give 64KiB to 64MiB"),
        ("a far:b --stall 0s", "--stall 0s would end every copy"),
        ("a far:b --sobas paper", "--sobas has an effect only with --buffer sobas"),
        ("a far:b --buffer auto --sobas all", "--sobas has an effect only with --buffer sobas"),
        ("a fulpipe://far/b", "write a server as fullpipe://HOST:PORT/PATH"),
        ("a far:b --direct maybe", "give auto, on or off"),
        ("a -- -oProxyCommand=x:b", "is not a host"),
        ("no-such-file far:b", "no-such-file: no such file or directory"),
        ("no-such-folder/file far:b", "no-such-folder/file"),
        ("/etc/passwd/file far:b", "/etc/passwd/file"),
        ("a lab:rtt=1ms:/b", "rate: is missing"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path().join("a"), "1");
        let done = Cp::new().ssh("false").words(words).within(dir.path()).run();
        assert!(done.err.contains(part), "{words}: {}", done.err);
        assert_eq!(done.code(), 2, "{words}: {}", done.err);
        only(dir.path(), &["a"]);
    }
}

/// Who comes from rsync is told what to use instead.
#[test]
fn flags_of_other_programs() {
    let host = Host::start();
    write(host.file("a"), "1");
    let wrong = |words: &str, part: &str| {
        host.copy(true, words, "a", "to").fails_at_once(2, part);
        let mut cp = host.copy(true, &format!("--json {words}"), "a", "to");
        let last = cp.fails(2, part).json().pop().unwrap();
        assert!(last["kind"] == "failed" && last["error"].as_str().unwrap().contains(part), "{last}");
    };
    wrong("-rz", "'fullpipe cp' has no -z: nothing is compressed; compress before the copy");
    wrong("--partial", "has no --partial: leave it out: an interrupted copy always resumes");
    wrong("--backup-dir=x", "has no --backup-dir: no older files are kept");
    wrong("--bwlimit 20M", "'20M' for '--bwlimit <RATE>'");
    wrong("-avh", "-h is help here: write -avh without h");
    wrong("-l 8000", "has no -l: leave rsync's out: links are always kept; for scp's, use --bwlimit");
    wrong("-o User=x", "for scp's, use --ssh");
    wrong("-3", "'fullpipe cp' has no -3: use --via ssh");
    wrong("-6", "'fullpipe cp' has no -6: use --ssh \"ssh -4\" or --ssh \"ssh -6\"");
    wrong("--ignore-existing", "has no --ignore-existing: nothing here is like it");
    wrong("--size-only", "has no --size-only: use --quick-check");
    wrong("-rvi", "-i is ssh's key here: write -rv without i, and -v to name what is copied");
    wrong("-avP", "-P is ssh's port here, and '");
    wrong("-avn", "-n is the number of streams here, and '");
    host.copy(true, "-rvi none", "a", "to").fails_at_once(2, "-i is ssh's key here");
    assert!(!host.file("to").exists());
    host.copy(true, "-rP 1x", "a", "to").fails_at_once(2, "-P is ssh's port here, and '1x' is none: leave P out");
    host.copy(true, &format!("-rv -i {}", host.key().display()), "a", "key").ok();
    // Help is help, and the guess at a mistyped flag is the command line's.
    let help = host.copy(true, "-h", "a", "to").ok();
    assert!(help.out.contains("Usage: fullpipe cp"), "{}", help.out);
    host.copy(true, "--recursiv", "a", "to").fails(2, "'--recursive'");
}

#[test]
fn sources_that_are_not_there() {
    let host = Host::start();
    write(host.file("a"), "1");
    fs::create_dir(host.file("folder")).unwrap();
    let missing = "no such file or directory";
    host.cp().arg(host.file("missing")).arg(host.far("to")).fails_at_once(2, missing);
    host.cp().arg(host.file("a")).arg(host.file("missing")).arg(host.far("to/")).fails_at_once(2, missing);
    for name in ["missing", "missing/a", "a/b"] {
        let done = host.cp().arg(host.far(name)).arg(host.file("to")).fails_at_once(2, "far refused: ");
        assert!(done.err.contains(host.file(name).to_str().unwrap()), "{}", done.err);
    }
    host.cp().arg(host.file("folder")).arg(host.far("to")).fails_at_once(2, "folder is a folder; copy it with -r");
    host.cp()
        .arg(host.file("folder"))
        .arg(host.file("a"))
        .arg(host.far("to/"))
        .fails(1, "it is a folder; copy it with -r");
    fs::remove_dir_all(host.file("to")).unwrap();
    host.cp().arg(host.far("*")).arg(host.file("to")).fails_at_once(2, "patterns are expanded at the far end only");
    host.cp().arg(host.far("folder")).arg(host.file("to")).fails(1, "it is a folder; copy it with -r");
    assert!(!host.file("to").is_dir() || fs::read_dir(host.file("to")).unwrap().count() == 0);
}

#[test]
fn a_file_that_says_it_is_empty_and_is_not() {
    let host = Host::start();
    host.cp().arg("/proc/self/status").arg(host.far("status")).fails(1, "reports a size of 0 bytes");
    // One of sysfs says that it has a page, and has a line. Another time would copy no more.
    let size = "/sys/kernel/mm/transparent_hugepage/enabled";
    if fs::metadata(size).is_ok() {
        for _ in 0..2 {
            let done =
                host.cp().arg(size).arg(host.far("size")).fails(1, "not copied: enabled: its size is not its content");
            assert!(!done.err.contains("run the same command again"), "{}", done.err);
        }
    }
    write(host.file("empty"), "");
    host.cp().arg(host.file("empty")).arg(host.far("there")).ok();
    only(&host.file(""), &["empty", "there"]);
}

#[test]
fn destinations_that_cannot_be() {
    let host = Host::start();
    write(host.file("a"), "1");
    write(host.file("b"), "2");
    write(host.file("file"), "keep");
    write(host.file("tree/sub/c"), "3");
    let needed = "a file stands where a folder is needed";
    host.cp().arg(host.file("a")).arg(host.file("b")).arg(host.far("file")).fails_at_once(2, needed);
    host.cp().arg(host.file("a")).arg(host.far("file/")).fails_at_once(2, needed);
    host.cp().arg(host.far("a")).arg(host.file("file/")).fails_at_once(2, needed);
    host.cp().arg("-r").arg(host.file("tree/.")).arg(host.far("file")).fails_at_once(2, needed);
    host.cp().arg("-r").arg(host.file("tree")).arg(host.far("file")).fails(2, needed);
    let folder = "its folder does not exist";
    host.cp().arg(host.file("a")).arg(host.far("no/such/a")).fails_at_once(2, folder);
    host.cp().arg(host.far("a")).arg(host.file("no/such/a")).fails_at_once(2, folder);
    host.cp().arg(host.file("a")).arg(host.far("file/a")).fails_at_once(2, folder);
    assert_eq!(fs::read(host.file("file")).unwrap(), b"keep");
    assert!(leftovers(&host.file("")).is_empty());
    // Before anything has come; and nothing is left beside it.
    fs::create_dir(host.file("special")).unwrap();
    nix::unistd::mkfifo(&host.file("special/null"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let stands = "a device, FIFO or socket stands there";
    host.cp().arg(host.file("a")).arg(host.far("special/null")).fails_at_once(2, stands);
    host.cp().arg(host.far("a")).arg(host.file("special/null")).fails_at_once(2, stands);
    let long = format!("special/{}", "x".repeat(256));
    host.cp().arg(host.file("a")).arg(host.far(&long)).fails_at_once(2, "name too long");
    only(&host.file("special"), &["null"]);
    // In the middle of a tree: a folder where a file comes, and a file where a folder comes.
    write(host.file("to/tree/sub"), "a file");
    write(host.file("tree/other/x/y"), "4");
    fs::create_dir_all(host.file("to/tree/other/x/y")).unwrap();
    write(host.file("tree/fine"), "5");
    let done = host.cp().arg("-r").arg(host.file("tree")).arg(host.far("to")).fails(1, "not copied: tree/sub/c: ");
    assert!(done.err.contains("not copied: tree/other/x/y: a folder stands where the file should be"), "{}", done.err);
    assert_eq!(fs::read(host.file("to/tree/sub")).unwrap(), b"a file");
    assert_eq!(fs::read(host.file("to/tree/fine")).unwrap(), b"5");
    only(&host.file("to/tree/other/x"), &["y"]);
}

#[test]
fn many_large_files_that_cannot_be_written() {
    let host = Host::start();
    for i in 0..70 {
        write(host.file("tree/sub").join(i.to_string()), bytes((1 << 20) + 1 + i, 1));
    }
    write(host.file("tree/fine"), bytes(2 << 20, 2));
    write(host.file("to/tree/sub"), "a file");
    let done = host.cp().words("--json --stall 20s -r").arg(host.file("tree")).arg(host.far("to")).run();
    assert_eq!((done.code(), done.number("left_total")), (1, 71), "{}", done.err);
    same(&host.file("tree/fine"), &host.file("to/tree/fine"));
    // Once it is out of the way, the same command does the rest.
    fs::remove_file(host.file("to/tree/sub")).unwrap();
    let done = host.cp().words("--json --stall 20s -r").arg(host.file("tree")).arg(host.far("to")).ok();
    assert_eq!(done.number("skipped"), 1);
    same(&host.file("tree"), &host.file("to/tree"));
    assert!(leftovers(&host.file("to")).is_empty());
}

#[test]
fn files_of_transfers_own_stay_where_they_are() {
    let host = Host::start();
    let own = ".fullpipe.0123456789abcdef.journal";
    write(host.file("tree/a"), "1");
    write(host.file("tree").join(own), "2");
    host.cp().arg("-r").arg(host.file("tree")).arg(host.far("to/")).ok();
    only(&host.file("to/tree"), &["a"]);
    let done = host.cp().arg(host.file("tree").join(own)).arg(host.far("to/")).fails(1, "own files have such names");
    assert!(done.err.contains(own) && !done.err.contains("the same command"), "{}", done.err);
    assert!(leftovers(&host.file("to")).is_empty());
}

#[test]
fn what_is_no_file_is_named_and_the_rest_goes_on() {
    let host = Host::start();
    let tree = host.file("tree");
    write(tree.join("a"), "1");
    write(tree.join("z/large"), bytes(2 << 20, 1));
    nix::unistd::mkfifo(&tree.join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let _socket = UnixListener::bind(tree.join("socket")).unwrap();
    let device = nix::sys::stat::mknod(
        &tree.join("device"),
        nix::sys::stat::SFlag::S_IFCHR,
        nix::sys::stat::Mode::S_IRWXU,
        nix::sys::stat::makedev(1, 3),
    );
    let expected = 2 + u64::from(device.is_ok());
    for push in [true, false] {
        let to = if push { "push" } else { "pull" };
        let mut cp = host.cp();
        cp.arg("--json").arg("-r");
        if push {
            cp.arg(&tree).arg(host.far(to));
        } else {
            cp.arg(far(&tree)).arg(host.file(to));
        }
        let done = cp.fails(1, "not copied: tree/fifo: it is a FIFO");
        assert!(done.err.contains("not copied: tree/socket: it is a socket"), "{}", done.err);
        assert!(device.is_err() || done.err.contains("not copied: tree/device: it is a device"), "{}", done.err);
        assert_eq!((done.number("left_total"), done.number("files")), (expected, 2), "{}", done.out);
        same_content(&tree.join("a"), &host.file(to).join("a"));
        same_content(&tree.join("z/large"), &host.file(to).join("z/large"));
        // Another time would copy no more.
        assert!(leftovers(&host.file(to)).is_empty());
        assert!(!done.err.contains("the same command"), "{}", done.err);
    }
    // By itself.
    host.cp().arg(tree.join("fifo")).arg(host.far("x")).fails(1, "it is a FIFO");
    host.cp().arg(host.far("tree/socket")).arg(host.file("x")).fails(1, "it is a socket");
    assert!(!host.file("x").exists());
}

#[test]
fn what_may_not_be_read_or_written() {
    let host = Host::start();
    if !nix::unistd::geteuid().is_root() {
        // Root sees what is closed to the far end's user; both would be one user here.
        return;
    }
    let program = host.unprivileged();
    let tree = host.file("tree");
    for name in ["a", "secret", "z", "locked/file"] {
        write(tree.join(name), name);
    }
    write(tree.join("secret-large"), bytes(3 << 20, 1));
    let close = |name: &str| fs::set_permissions(tree.join(name), Permissions::from_mode(0o0)).unwrap();
    ["secret", "secret-large", "locked"].into_iter().for_each(close);
    let mut cp = host.cp();
    let done = cp.far_program(&program).arg("-r").arg(far(&tree)).arg(host.file("pull")).fails(1, "tree/secret: ");
    for name in ["secret", "secret-large", "locked"] {
        assert!(
            done.err.contains(&format!("not copied: tree/{name}: cannot be read at the source: permission denied")),
            "{}",
            done.err
        );
    }
    assert_eq!(done.err.matches("not copied: ").count(), 3, "{}", done.err);
    assert_eq!(fs::read(host.file("pull/z")).unwrap(), b"z");
    assert!(!host.file("pull/secret").exists() && !host.file("pull/secret-large").exists());
    // Where nothing at all has come, there is nothing to go on from.
    for name in ["secret", "secret-large"] {
        let mut cp = host.cp();
        cp.far_program(&program)
            .arg(far(&tree.join(name)))
            .arg(host.file("alone"))
            .fails(1, "cannot be read at the source: permission denied");
    }
    assert_eq!(leftovers(&host.file("")).len(), 1, "the journal of the tree: {:?}", leftovers(&host.file("")));
    fs::set_permissions(tree.join("locked"), Permissions::from_mode(0o755)).unwrap();
    // A folder in which nobody may write: before anything is sent.
    fs::create_dir(host.file("closed")).unwrap();
    fs::set_permissions(host.file("closed"), Permissions::from_mode(0o555)).unwrap();
    let mut cp = host.cp();
    cp.far_program(&program).arg(tree.join("a")).arg(host.far("closed/")).fails_at_once(5, "permission denied");
    let mut cp = host.cp();
    cp.far_program(&program).arg("--dry-run").arg(tree.join("a")).arg(host.far("closed/"));
    cp.fails_at_once(5, "permission denied");
    // Another's folder, open to all: it keeps its permissions and times, and that is no error.
    fs::create_dir_all(host.file("group/shared")).unwrap();
    for name in ["group", "group/shared"] {
        fs::set_permissions(host.file(name), Permissions::from_mode(0o777)).unwrap();
    }
    write(host.file("shared/a"), "1");
    // The first of two attempts does not get done.
    fs::create_dir(host.file("group/shared/a")).unwrap();
    let copy = |how: &str| {
        let mut cp = host.cp();
        cp.far_program(&program).words(how).arg("-r").arg(host.file("shared")).arg(host.far("group/"));
        cp
    };
    let done = copy("").fails(1, "not copied: shared/a: a folder stands where the file should be");
    assert_eq!(done.err.matches("not copied: ").count(), 1, "{}", done.err);
    fs::remove_dir(host.file("group/shared/a")).unwrap();
    for how in ["", "", "--fsync", "--update"] {
        let before = fs::metadata(host.file("group/shared")).unwrap();
        let done = copy(how).ok();
        assert!(!done.err.contains("not "), "{}", done.err);
        let now = fs::metadata(host.file("group/shared")).unwrap();
        assert_eq!((now.mode(), now.uid()), (before.mode(), before.uid()));
    }
    only(&host.file("group"), &["shared"]);
    same_content(&host.file("shared/a"), &host.file("group/shared/a"));
}

/// As projects share folders: the folder is another's, its group may write to it, and what is new in it is the group's.
#[test]
fn a_folder_that_a_group_shares() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("not tried: only root makes files of others");
        return;
    }
    let host = Host::start();
    let program = host.unprivileged();
    for name in ["project/a", "project/sub/b"] {
        write(host.file(name), "1");
    }
    // The far end is in the group of nobody.
    fs::create_dir_all(host.file("in/project")).unwrap();
    for name in ["in", "in/project"] {
        std::os::unix::fs::chown(host.file(name), Some(0), Some(65534)).unwrap();
        fs::set_permissions(host.file(name), Permissions::from_mode(0o2775)).unwrap();
    }
    let before = fs::metadata(host.file("in/project")).unwrap();
    for how in ["-r", "-ru"] {
        let mut cp = host.cp();
        let done = cp.far_program(&program).words(how).arg(host.file("project")).arg(host.far("in/")).ok();
        assert!(!done.err.contains("not "), "{}", done.err);
    }
    let now = fs::metadata(host.file("in/project")).unwrap();
    assert_eq!((now.mode(), now.uid(), now.gid()), (before.mode(), before.uid(), before.gid()));
    for name in ["a", "sub", "sub/b"] {
        let made = fs::metadata(host.file("in/project").join(name)).unwrap();
        assert_eq!((made.uid(), made.gid()), (65534, 65534), "{name}");
    }
    same_content(&host.file("project/sub/b"), &host.file("in/project/sub/b"));
}

#[test]
fn links_at_the_destination_lead_nowhere() {
    let host = Host::start();
    write(host.file("tree/sub/small"), "1");
    write(host.file("tree/sub/large"), bytes(2 << 20, 1));
    write(host.file("tree/file"), "2");
    write(host.file("elsewhere/precious"), "keep");
    fs::create_dir_all(host.file("to/tree")).unwrap();
    symlink(host.file("elsewhere"), host.file("to/tree/sub")).unwrap();
    symlink(host.file("elsewhere/precious"), host.file("to/tree/file")).unwrap();
    let out = "not copied: tree/sub/small: a symbolic link stands at the destination where the source has a folder";
    host.cp().arg("-r").arg(host.file("tree")).arg(host.far("to")).fails(1, out);
    host.cp().arg("-r").arg(host.far("tree")).arg(host.file("to")).fails(1, out);
    only(&host.file("elsewhere"), &["precious"]);
    assert_eq!(fs::read(host.file("elsewhere/precious")).unwrap(), b"keep");
    assert_eq!(fs::read(host.file("to/tree/file")).unwrap(), b"2");
    // The top itself, upwards, and one that the copy brings along.
    for target in [host.file("elsewhere"), "../elsewhere".into(), "..".into()] {
        let _ = fs::remove_file(host.file("to/top"));
        symlink(&target, host.file("to/top")).unwrap();
        write(host.file("top/x"), "3");
        host.cp().arg("-r").arg(host.file("top")).arg(host.far("to/")).fails(1, "a symbolic link stands");
        assert!(!host.file("elsewhere/x").exists() && !host.file("x").exists());
    }
    only(&host.file("elsewhere"), &["precious"]);
}

#[test]
fn a_buffer_that_no_kernel_gives_is_not_said_to_be_used() {
    let host = Host::start();
    write(host.file("a"), "1");
    let mut cp = host.cp();
    fs::set_permissions(host.file(""), Permissions::from_mode(0o777)).unwrap();
    let far = host.unprivileged();
    let out =
        cp.far_program(&far).words("--dry-run --explain --buffer 1GB").arg(host.file("a")).arg(host.far("b")).ok();
    let said = out.out + &out.err;
    // Over a longer round trip, as on a busy machine, the buffer that would be best is told, too.
    let used = said.lines().find(|line| line.starts_with("transport ")).unwrap();
    assert!(said.contains("of the 1GB asked for") && !used.contains("buffer 1GB"), "{said}");
}

#[test]
fn far_ends_that_cannot_be_reached() {
    let host = Host::start();
    write(host.file("a"), "1");
    let a = host.file("a");
    let fails = |set: &dyn Fn(&mut Cp) -> &mut Cp, to: &str, code: i32, part: &str| {
        let mut cp = host.cp();
        set(&mut cp);
        cp.arg(&a).arg(format!("{to}:/tmp/fullpipe-never")).fails_at_once(code, part);
    };
    fails(&|cp| cp.ssh("/nonexistent/ssh"), "far", 3, "cannot run /nonexistent/ssh");
    // As with the other verbs: a name that nobody knows is a wrong word.
    fails(&|cp| cp, "no-such-host.invalid", 2, "cannot resolve host 'no-such-host.invalid'");
    fails(&|cp| cp, "closed", 4, "Connection refused");
    fails(&|cp| cp, "unknown", 4, "Permission denied");
    // A far end without fullpipe, with an old one, with something else, with another version.
    fails(&|cp| cp.far_program(Path::new("/no/fullpipe")), "far", 4, "--far-program");
    let old = host.script("old", "echo \"error: unrecognized subcommand 'far'\" >&2; exit 2");
    fails(&|cp| cp.far_program(&old), "far", 4, "another version of fullpipe");
    let broken = host.script("broken", "echo 'error while loading shared libraries: libx.so' >&2; exit 1");
    fails(&|cp| cp.far_program(&broken), "far", 4, "loading shared libraries");
    let silent = host.script("silent", "exit 0");
    fails(&|cp| cp.far_program(&silent), "far", 4, "ended without a message (status 0)");
    let talks = host.script("talks", "exec yes");
    fails(&|cp| cp.far_program(&talks), "far", 4, "does not speak fullpipe's protocol");
    let hello = Hello { magic: MAGIC, protocol: PROTOCOL + 1, program: "9.9.9".into(), limits: Limits::default() };
    let words = [READY, &frame::pack(&Message::Hello(hello)).unwrap()].concat();
    fs::write(host.file("hello"), words).unwrap();
    let newer = host.script("newer", &format!("cat {}; sleep 1", host.file("hello").display()));
    let other = format!("far has fullpipe 9.9.9 (protocol {}), this is", PROTOCOL + 1);
    fails(&|cp| cp.far_program(&newer), "far", 4, &other);
    fs::write(host.file("garbage"), [READY, &bytes(5000, 1)].concat()).unwrap();
    let garbage = host.script("garbage", &format!("cat {}; sleep 1", host.file("garbage").display()));
    fails(&|cp| cp.far_program(&garbage), "far", 4, "not a frame of fullpipe's protocol");
    assert!(!Path::new("/tmp/fullpipe-never").exists());
}

#[test]
fn what_login_scripts_print_does_not_matter() {
    let host = Host::start();
    write(host.file("a"), bytes(2 << 20, 1));
    let text = format!("echo 'Welcome to this cluster!'; echo 'Quota: 93%' >&2; exec {FULLPIPE} \"$@\"");
    let chatty = host.script("chatty", &text);
    host.cp().far_program(&chatty).arg(host.file("a")).arg(host.far("b")).ok();
    same(&host.file("a"), &host.file("b"));
}
