//! `-` as source or destination: what comes from standard input, and what goes to standard output.

use std::fs::{self, File};
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::thread::JoinHandle;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::host::{Host, Running, until};
use crate::large::MIB;
use crate::tree::{bytes, leftovers, only, write};

/// The reading end of a pipe that bytes are written to, in steps that suit neither blocks nor pages.
fn producer(bytes: Vec<u8>) -> PipeReader {
    let (from, mut to) = io::pipe().unwrap();
    std::thread::spawn(move || {
        // Whoever reads may have gone.
        let _ = bytes.chunks(70_001).try_for_each(|part| to.write_all(part));
    });
    from
}

/// The writing end of a pipe, and what comes out of it.
fn consumer() -> (PipeWriter, JoinHandle<Vec<u8>>) {
    let (mut from, to) = io::pipe().unwrap();
    let all = std::thread::spawn(move || {
        let mut all = Vec::new();
        from.read_to_end(&mut all).unwrap();
        all
    });
    (to, all)
}

fn same_bytes(a: &[u8], b: &[u8], what: &str) {
    assert_eq!(a.len(), b.len(), "{what}");
    assert!(blake3::hash(a) == blake3::hash(b), "{what}: other bytes");
}

/// What may not be read is nobody's damage.
#[test]
fn a_file_that_may_not_be_read_is_named() {
    let host = Host::start();
    for (name, len) in [("small", 5), ("large", 2 * MIB)] {
        write(host.file(name), bytes(len, 1));
        fs::set_permissions(host.file(name), fs::Permissions::from_mode(0o000)).unwrap();
        let program = host.unprivileged();
        let (to, all) = consumer();
        let mut cp = host.cp();
        cp.far_program(&program).arg(host.far(name)).arg("-").stdout(to).fails(1, "permission denied");
        assert!(all.join().unwrap().is_empty(), "{name}");
    }
}

#[test]
fn any_size_from_a_pipe_and_to_one() {
    for host in [Host::start(), Host::in_memory()] {
        fs::create_dir(host.file("to")).unwrap();
        for (how, sizes) in [("", &[0, 1, MIB, MIB + 1, 40 * MIB + 7][..]), ("-n 5 --block 64KiB", &[3 * MIB])] {
            for size in sizes {
                let content = bytes(*size, *size as u64);
                let what = format!("{how} {size}");
                let mut push = host.cp();
                push.words("--json -").words(how).arg(host.far("to/x")).stdin(producer(content.clone()));
                assert_eq!(push.ok().number("bytes"), *size as u64, "{what}");
                same_bytes(&fs::read(host.file("to/x")).unwrap(), &content, &what);
                only(&host.file("to"), &["x"]);
                let (to, all) = consumer();
                host.cp().words(how).arg(host.far("to/x")).arg("-").stdout(to).ok();
                same_bytes(&all.join().unwrap(), &content, &what);
            }
        }
    }
}

#[test]
fn holes_are_zeros_in_a_pipe() {
    let host = Host::start();
    write(host.file("sparse"), bytes(5000, 1));
    File::options().write(true).open(host.file("sparse")).unwrap().set_len(20 << 20).unwrap();
    let (to, all) = consumer();
    host.cp().arg(host.far("sparse")).arg("-").stdout(to).ok();
    same_bytes(&all.join().unwrap(), &fs::read(host.file("sparse")).unwrap(), "sparse");
}

/// As with `ssh host 'cat > x'`: the owner, permissions and times of a new file, also in the place of another one.
#[test]
fn what_comes_from_a_pipe_is_a_new_file() {
    let host = Host::start();
    let programs = [Path::new(crate::host::FULLPIPE).to_owned(), host.unprivileged()];
    fs::create_dir(host.file("to")).unwrap();
    fs::set_permissions(host.file("to"), fs::Permissions::from_mode(0o777)).unwrap();
    for (i, program) in programs.iter().enumerate() {
        let name = format!("to/{i}");
        for round in 0..2 {
            let content = bytes(100 + round, 1);
            let wrapper = host.script("masked", &format!("umask 027; exec {} \"$@\"", program.display()));
            host.cp().far_program(&wrapper).arg("-").arg(host.far(&name)).stdin(producer(content.clone())).ok();
            let file = fs::metadata(host.file(&name)).unwrap();
            assert_eq!(fs::read(host.file(&name)).unwrap(), content);
            assert_eq!(file.mode() & 0o7777, 0o640, "{i} {round}");
            let ours = nix::unistd::geteuid().as_raw();
            assert_eq!(file.uid(), if i == 1 && ours == 0 { 65_534 } else { ours }, "{i} {round}");
            assert!(file.modified().unwrap().elapsed().unwrap() < Duration::from_secs(60));
        }
    }
    // Through a link, as with -T.
    std::os::unix::fs::symlink("0", host.file("to/link")).unwrap();
    host.cp().arg("-").arg(host.far("to/link")).stdin(producer(b"by a link".to_vec())).ok();
    assert_eq!(fs::read(host.file("to/0")).unwrap(), b"by a link");
    only(&host.file("to"), &["0", "1", "link"]);
    // Read back from storage.
    let content = bytes(3 * MIB, 5);
    let done = host.cp().words("--json --verify --fsync -").arg(host.far("to/1")).stdin(producer(content.clone())).ok();
    let verified = &done.json().pop().unwrap()["verified"];
    assert_eq!((&verified["files"], &verified["bytes"]), (&1.into(), &(3 * MIB).into()));
    same_bytes(&fs::read(host.file("to/1")).unwrap(), &content, "verified");
}

/// A copy from a pipe that is still open: some of it has arrived, and more may come.
fn half(host: &Host, how: &str) -> (Running, PipeWriter) {
    let (from, mut to) = io::pipe().unwrap();
    fs::create_dir_all(host.file("to")).unwrap();
    let running = host.cp().words(how).arg("-").arg(host.far("to/x")).stdin(from).start();
    to.write_all(&bytes(5 * MIB, 3)).unwrap();
    let is_partial = |name: &Path| name.extension().is_some_and(|end| end == "partial");
    let has_bytes = |name: &Path| fs::metadata(host.file("to").join(name)).is_ok_and(|file| file.len() > 0);
    let arrived = || leftovers(&host.file("to")).iter().any(|name| is_partial(name) && has_bytes(name));
    until("some of it", arrived);
    (running, to)
}

#[test]
fn nothing_is_left_of_a_pipe_that_was_interrupted() {
    let host = Host::start();
    let (running, _to) = half(&host, "");
    running.signal(Signal::SIGINT);
    let done = running.wait();
    assert_eq!(done.code(), 130, "{}", done.err);
    assert!(
        done.err.ends_with("error: interrupted; nothing of what came from standard input was kept\n"),
        "{}",
        done.err
    );
    until("the far end's end", || leftovers(&host.file("to")).is_empty());
    only(&host.file("to"), &[]);
    // What was there stays.
    write(host.file("to/x"), "before");
    let (running, to) = half(&host, "");
    running.kill();
    drop(to);
    until("the far end's end", || leftovers(&host.file("to")).is_empty());
    assert_eq!(fs::read(host.file("to/x")).unwrap(), b"before");
}

/// The end of a pipe is the end of the file only if all of it has arrived: a lost far end is no reason to begin anew.
#[test]
fn a_pipe_is_not_sent_twice() {
    let host = Host::start();
    let (known, ids) = host.known_by_id();
    let (from, mut to) = io::pipe().unwrap();
    fs::create_dir(host.file("to")).unwrap();
    let running = host.cp().far_program(&known).arg("-").arg(host.far("to/x")).stdin(from).start();
    to.write_all(&bytes(5 * MIB, 3)).unwrap();
    until("some of it", || !leftovers(&host.file("to")).is_empty());
    let id: i32 = fs::read_to_string(ids).unwrap().trim().parse().unwrap();
    kill(Pid::from_raw(id), Signal::SIGKILL).unwrap();
    let done = running.wait();
    assert_eq!(done.code(), 4, "{}", done.err);
    assert!(!done.err.contains("connecting again"), "{}", done.err);
    assert!(done.err.contains("; nothing of what came from standard input was kept"), "{}", done.err);
    assert!(!host.file("to/x").exists());
    // The same command later removes what a killed far end could not.
    host.cp().arg("-").arg(host.far("to/x")).stdin(producer(b"whole".to_vec())).ok();
    assert_eq!(fs::read(host.file("to/x")).unwrap(), b"whole");
    only(&host.file("to"), &["x"]);
}

#[test]
fn whoever_fills_or_empties_a_pipe_may_take_any_time() {
    let host = Host::start();
    let (running, mut to) = half(&host, "--stall 1s");
    std::thread::sleep(Duration::from_secs(3));
    to.write_all(b"more").unwrap();
    drop(to);
    assert_eq!(running.wait().code(), 0);
    let content = [bytes(5 * MIB, 3), b"more".to_vec()].concat();
    same_bytes(&fs::read(host.file("to/x")).unwrap(), &content, "after a pause");
    let (mut from, to) = io::pipe().unwrap();
    let running = host.cp().words("--stall 1s").arg(host.far("to/x")).arg("-").stdout(to).start();
    let mut all = vec![0; 100];
    from.read_exact(&mut all).unwrap();
    std::thread::sleep(Duration::from_secs(3));
    from.read_to_end(&mut all).unwrap();
    assert_eq!(running.wait().code(), 0);
    same_bytes(&all, &content, "after a pause");
}

#[test]
fn a_reader_that_goes_away_is_no_success() {
    let host = Host::start();
    write(host.file("large"), bytes(40 * MIB, 3));
    let (mut from, to) = io::pipe().unwrap();
    let running = host.cp().arg(host.far("large")).arg("-").stdout(to).start();
    from.read_exact(&mut [0; 100]).unwrap();
    drop(from);
    let done = running.wait();
    assert_eq!(done.code(), 5, "{}", done.err);
    let why = "error: cannot write to standard output: broken pipe; standard output has got only a part of the file, if any\n";
    assert!(done.err.ends_with(why), "{}", done.err);
}

/// Bytes that were written cannot be taken back: the exit code tells that they are wrong.
#[test]
fn a_file_that_changes_on_its_way_to_a_pipe_is_no_success() {
    let host = Host::start();
    for (size, cut) in [(20 * MIB, true), (20 * MIB, false)] {
        write(host.file("large"), bytes(size, 3));
        let (mut from, to) = io::pipe().unwrap();
        let running = host.cp().arg(host.far("large")).arg("-").stdout(to).start();
        from.read_exact(&mut [0; 100]).unwrap();
        let file = File::options().write(true).open(host.file("large")).unwrap();
        if cut {
            file.set_len(100).unwrap()
        } else {
            file.set_len((size + 1) as u64).unwrap()
        };
        drop(file);
        let rest = std::thread::spawn(move || from.read_to_end(&mut Vec::new()).unwrap());
        let done = running.wait();
        rest.join().unwrap();
        assert_eq!(done.code(), 1, "{cut}: {}", done.err);
        assert!(done.err.contains("not copied: large: it "), "{cut}: {}", done.err);
    }
}

/// The runtime would put /dev/null in their place.
#[test]
fn what_is_closed_is_no_file() {
    for (words, code, why) in [
        ("cp - far:/b <&-", 2, "standard input is closed"),
        ("cp far:/a - >&-", 5, "standard output is closed"),
        ("cp -r --files-from - far:/a here <&-", 2, "Bad file descriptor"),
        ("select --rtt 1ms --rate 1gbit >&-", 5, "cannot write to standard output"),
        ("cp - far:/b </", 2, "standard input is a folder"),
    ] {
        let line = format!("exec {} {words}", env!("CARGO_BIN_EXE_fullpipe"));
        let done = std::process::Command::new("sh").args(["-c", &line]).output().unwrap();
        let told = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.code() == Some(code) && told.contains(why), "{words}: {told}");
    }
}

#[test]
fn a_slow_program_at_the_other_end_of_the_pipe_is_what_limits() {
    let host = Host::start();
    let (from, mut to) = io::pipe().unwrap();
    let slowly = std::thread::spawn(move || {
        for _ in 0..40 {
            to.write_all(&bytes(100_000, 1)).unwrap();
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    let done = host.cp().words("--json -").arg(host.far("slow")).stdin(from).ok();
    slowly.join().unwrap();
    assert_eq!(done.json().pop().unwrap()["bottleneck"], "standard input", "{}", done.out);
    let (mut from, to) = io::pipe().unwrap();
    let slowly = std::thread::spawn(move || {
        let mut part = vec![0; 100_000];
        while from.read(&mut part).unwrap() > 0 {
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    let done = host.cp().arg(host.far("slow")).arg("-").stdout(to).ok();
    slowly.join().unwrap();
    assert!(done.err.contains("; limited by standard output)"), "{}", done.err);
}

/// What waits for work leaves its share of the rate to the others.
#[test]
fn the_whole_limit_is_used() {
    let host = Host::start();
    write(host.file("a"), bytes(9 << 20, 1));
    let limits = |done: crate::host::Done| {
        let last = done.json().pop().unwrap();
        assert_eq!(last["bottleneck"], "bwlimit", "{}", done.out);
    };
    std::thread::scope(|scope| {
        for n in ["1", "4"] {
            let (host, limits) = (&host, &limits);
            scope.spawn(move || {
                let words = format!("--json -n {n} --bwlimit 20mbit");
                limits(host.copy(true, &words, "a", &format!("pushed{n}")).ok());
                limits(host.copy(false, &words, "a", &format!("pulled{n}")).ok());
                let stdin = File::open(host.file("a")).unwrap();
                limits(host.cp().words(&words).arg("-").arg(host.far(&format!("piped{n}"))).stdin(stdin).ok());
            });
        }
    });
}

#[test]
fn what_cannot_be_piped() {
    let host = Host::start();
    fs::create_dir(host.file("folder")).unwrap();
    write(host.file("a"), "1");
    let (folder, a, missing) = (host.far("folder"), host.far("a"), host.far("missing"));
    host.cp().arg(&missing).arg("-").fails_at_once(2, "no such file");
    host.cp().arg(&folder).arg("-").fails(1, "it is a folder");
    host.cp()
        .arg("-")
        .arg(&folder)
        .stdin(producer(vec![1]))
        .fails(2, "folder: it is a folder; give the name of the new file");
    assert!(leftovers(&host.file("folder")).is_empty() && leftovers(&host.file("")).is_empty());
    host.cp().arg("-T").arg(&a).arg(host.file("folder")).fails(1, "a folder stands where the file should be");
    assert!(leftovers(&host.file("")).is_empty());
    host.cp().arg("-").arg(host.far("folder/")).fails_at_once(2, "give the name of the new file");
    host.cp().arg("-").arg("far:").fails_at_once(2, "give the name of the new file");
    host.cp().arg("-").arg("-").fails_at_once(2, "must be a file of another host");
    host.cp().arg("-").arg(host.file("b")).fails_at_once(2, "must be a file of another host");
    host.cp().arg(&a).arg(&a).arg("-").fails_at_once(2, "give one source");
    host.cp().arg("-").arg(host.file("a")).arg(&folder).fails_at_once(2, "give one source");
    host.cp().arg("-").arg("lab:rtt=1ms,rate=1gbit:/tmp/").fails_at_once(2, "standard input cannot be copied");
    for flag in ["-r", "-u", "-c", "-H", "-p", "--exclude=x", "--xattrs", "--acls"] {
        host.cp().arg(flag).arg("-").arg(host.far("b")).fails_at_once(2, "is one file that comes once");
        host.cp().arg(flag).arg(&a).arg("-").fails_at_once(2, "is one file that comes once");
    }
    for flag in ["-v", "--explain"] {
        host.cp().arg(flag).arg(&a).arg("-").fails_at_once(2, "prints to standard output, where the file goes");
    }
    host.cp().arg("--dry-run").arg("-").arg(host.far("b")).fails_at_once(2, "leave out --dry-run");
    host.cp().arg("--quick-check").arg("-").arg(host.far("b")).fails_at_once(2, "leave out --quick-check");
    host.cp().arg("--quick-check").arg(&a).arg("-").fails_at_once(2, "leave out --quick-check");
    assert!(host.cp().arg("--dry-run").arg(&a).arg("-").ok().out.contains("would copy  1 file, 1 B"));
    // A file of this name can be copied.
    write(host.file("-"), "dash");
    host.cp().within(&host.file("")).arg("./-").arg(host.far("dash")).ok();
    assert_eq!(fs::read(host.file("dash")).unwrap(), b"dash");
}
