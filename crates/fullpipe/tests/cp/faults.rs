//! Ends that are killed or hang, partial files that others touch, commands that run twice: never a wrong file under its
//! final name, and the same command goes on where it was.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::host::{Host, Running, far, ignores, journalled, until};
use crate::large::{LARGE, MIB, SLOW, both_ways, repeat, slow, some_blocks};
use crate::tree::{bytes, date, leftovers, only, same, same_content, same_inside, write};

fn goes_on(host: &Host, push: bool) {
    assert!(!host.file("to/large").exists());
    let done = repeat(host, push, "").ok();
    let sent = done.number("bytes");
    assert!(sent > 0 && sent < (LARGE - 2 * MIB) as u64, "{sent} bytes were sent again");
    only(&host.file("to"), &["large"]);
    same(&host.file("large"), &host.file("to/large"));
}

#[test]
fn a_killed_client_goes_on() {
    both_ways(|push| {
        let host = Host::start();
        slow(&host, push).kill();
        goes_on(&host, push);
    });
}

/// However little was seen to move before.
#[test]
fn a_far_end_that_ends_at_once_is_called_again() {
    let host = Host::start();
    write(host.file("large"), bytes(LARGE, 7));
    fs::create_dir(host.file("to")).unwrap();
    let (once, to) = (host.file("once"), host.file("to"));
    // It ends as soon as it has begun to write, the first time only.
    let text = format!(
        "if mkdir {} 2>/dev/null; then\n\
         (until ls {}/.fullpipe.*.partial >/dev/null 2>&1; do sleep 0.01; done; kill -9 $$) &\nfi\nexec {} \"$@\"",
        once.display(),
        to.display(),
        env!("CARGO_BIN_EXE_fullpipe"),
    );
    let ends = host.script("ends", &text);
    let done = host.cp().far_program(&ends).words("--bwlimit 50mbit").arg(host.file("large")).arg(far(&to)).ok();
    assert!(once.exists() && done.err.contains("connecting again"), "{}", done.err);
    same(&host.file("large"), &host.file("to/large"));
}

/// What was still in a socket when the far end was lost has not come.
#[test]
fn bytes_of_a_lost_connection_count_as_far_as_they_came() {
    let host = Host::start();
    let size = 5 * MIB as u64;
    write(host.file("large"), bytes(size as usize, 7));
    let once = host.file("once");
    let text = format!(
        "if mkdir {} 2>/dev/null; then (sleep 3; kill -9 $$) & fi\nexec {} \"$@\"",
        once.display(),
        env!("CARGO_BIN_EXE_fullpipe"),
    );
    let ends = host.script("ends", &text);
    let mut cp = host.cp();
    cp.far_program(&ends).words("--json --bwlimit 8mbit").arg(host.file("large")).arg(host.far("to"));
    let done = cp.ok();
    let (bytes, spared) = (done.number("bytes"), done.number("spared_bytes"));
    // Some blocks were not whole, and up to a second's bytes were told of after the last progress.
    assert!(spared > 0 && bytes < size + MIB as u64 && bytes + 2 * MIB as u64 > size, "{bytes} {spared}: {}", done.out);
    same(&host.file("large"), &host.file("to"));
}

/// Once it has been called again as often as `--retries` says.
#[test]
fn a_far_end_that_always_ends_is_left() {
    let host = Host::start();
    write(host.file("large"), bytes(LARGE, 7));
    let calls = host.file("calls");
    for retries in [0, 2] {
        let to = host.file(&format!("to-{retries}"));
        fs::create_dir(&to).unwrap();
        // The first one ends in the middle, the others at once.
        let text = format!(
            "echo >>{calls}\nif [ $(wc -l <{calls}) -gt 1 ]; then kill -9 $$; fi\n\
             (until [ $(cat {to}/.fullpipe.*.journal 2>/dev/null | wc -c) -gt 500 ]; do sleep 0.01; done; kill -9 $$) &\n\
             exec {program} \"$@\"",
            calls = calls.display(),
            to = to.display(),
            program = env!("CARGO_BIN_EXE_fullpipe"),
        );
        let ends = host.script("ends", &text);
        let _ = fs::remove_file(&calls);
        let mut cp = host.cp();
        cp.far_program(&ends).words(&format!("--bwlimit 50mbit --block 1MiB --retries {retries}"));
        let done = cp.arg(host.file("large")).arg(far(&to)).run();
        assert_ne!(done.code(), 0, "{}", done.err);
        assert!(done.err.ends_with("; the same command goes on where it was\n"), "{}", done.err);
        let said = done.err.matches("connecting again").count();
        assert_eq!((said, fs::read_to_string(&calls).unwrap().len()), (retries, retries + 1), "{}", done.err);
        host.cp().arg(host.file("large")).arg(far(&to)).ok();
        same(&host.file("large"), &to.join("large"));
    }
}

#[test]
fn who_writes_and_was_killed_in_a_huge_page_goes_on() {
    let host = Host::in_memory();
    write(host.file("large"), bytes(LARGE, 7));
    fs::create_dir(host.file("to")).unwrap();
    // Of what lies there already some is good.
    for round in 1..4 {
        let before = journalled(&host.file("to")).max(200);
        let running = repeat(&host, false, "--pacing 150mbit --block 4MiB").start();
        until("blocks in the journal", || journalled(&host.file("to")) > before + 50);
        std::thread::sleep(Duration::from_millis(37 * round));
        running.kill();
    }
    goes_on(&host, false);
}

#[test]
fn what_is_cut_short_while_it_is_written_is_said_and_mended() {
    both_ways(|push| {
        let host = Host::in_memory();
        let running = slow(&host, push);
        let mut there = fs::read_dir(host.file("to")).unwrap().map(|entry| entry.unwrap().path());
        let partial = there.find(|path| path.extension().is_some_and(|end| end == "partial")).unwrap();
        fs::File::options().write(true).open(partial).unwrap().set_len(1).unwrap();
        let done = running.wait();
        assert_eq!(done.code(), 1, "push {push}: {} {}", done.err, done.out);
        let why = "something else has changed its size while it was written";
        assert!(done.out.contains(why), "push {push}: {}", done.out);
        assert!(!host.file("to/large").exists());
        repeat(&host, push, "").ok();
        only(&host.file("to"), &["large"]);
        same(&host.file("large"), &host.file("to/large"));
    });
}

#[test]
fn an_interrupted_client_goes_on() {
    // A terminal that is closed sends SIGHUP; nohup, under which tests may run, has it ignored.
    for signal in [Signal::SIGINT, Signal::SIGHUP] {
        let host = Host::start();
        let running = slow(&host, true);
        running.signal(signal);
        if signal == Signal::SIGHUP && ignores("self", signal) {
            running.signal(Signal::SIGINT);
        }
        let done = running.wait();
        assert!(done.err.contains("interrupted; the same command goes on where it was"), "{}", done.err);
        assert_eq!(done.code(), 130);
        goes_on(&host, true);
    }
}

/// A block of the usual size would take half a minute here.
#[test]
fn a_slow_copy_that_is_interrupted_keeps_what_has_come() {
    both_ways(|push| {
        let host = Host::start();
        write(host.file("large"), bytes(16 * MIB, 7));
        for number in 0..40 {
            write(host.file(&format!("small/{number}")), bytes(300_000, number));
        }
        for (from, how) in [("large", ""), ("small", "-r")] {
            let words = format!("--json --bwlimit 4mbit {how}");
            let running = host.copy(push, &words, from, "to/").start();
            std::thread::sleep(Duration::from_secs(8));
            running.signal(Signal::SIGTERM);
            running.wait();
            // Of 4 MB, what was on its way is lost, and what waited in the sockets.
            let done = host.copy(push, &format!("--json {how}"), from, "to/").ok();
            assert!(done.number("spared_bytes") > 1_500_000, "push {push} {from}: {}", done.out);
            same(&host.file(from), &host.file("to").join(from));
        }
    });
}

/// As timeout(1) does: it signals the program, and then its process group.
#[test]
fn a_signal_that_comes_twice_interrupts_once() {
    let host = Host::start();
    let running = slow(&host, true);
    running.signal(Signal::SIGTERM);
    std::thread::sleep(Duration::from_millis(20));
    running.signal(Signal::SIGTERM);
    let done = running.wait();
    assert!(done.err.contains("interrupted; the same command goes on where it was"), "{}", done.err);
    assert_eq!(done.code(), 130);
    goes_on(&host, true);
}

#[test]
fn a_killed_far_end_is_started_again() {
    both_ways(|push| {
        let host = Host::start();
        let (program, ids) = host.known_by_id();
        write(host.file("large"), bytes(LARGE, 7));
        fs::create_dir(host.file("to")).unwrap();
        let running = repeat(&host, push, SLOW).far_program(&program).start();
        some_blocks(&host.file("to"));
        let id = fs::read_to_string(&ids).unwrap().trim().parse().unwrap();
        kill(Pid::from_raw(id), Signal::SIGKILL).unwrap();
        let done = running.wait();
        assert_eq!(done.code(), 0, "push {push}: {} {}", done.err, done.out);
        let notes: Vec<_> = done.json().into_iter().filter(|line| line["kind"] == "note").collect();
        assert_eq!(notes.len(), 1, "push {push}: {}", done.out);
        assert_eq!(fs::read_to_string(&ids).unwrap().lines().count(), 2);
        assert!(done.number("spared_bytes") > 0, "push {push}: {}", done.out);
        only(&host.file("to"), &["large"]);
        same(&host.file("large"), &host.file("to/large"));
    });
}

#[test]
fn a_tree_under_another_name_goes_on_under_it() {
    let host = Host::start();
    let tree = host.file("tree");
    write(tree.join("first"), "1");
    write(tree.join("large"), bytes(LARGE, 7));
    let again = |how: &str| {
        let mut cp = host.cp();
        cp.words(how).arg("--json").arg("-r").arg(&tree).arg(host.far("to/new"));
        cp
    };
    fs::create_dir(host.file("to")).unwrap();
    let running = again(SLOW).start();
    some_blocks(&host.file("to"));
    running.kill();
    assert!(host.file("to/new").is_dir());
    let sent = again("").ok().number("bytes");
    assert!(sent < (LARGE - 2 * MIB) as u64, "{sent} bytes were sent again");
    only(&host.file("to"), &["new"]);
    same(&tree, &host.file("to/new"));
    // What is finished is a folder like any other.
    again("").ok();
    same(&tree, &host.file("to/new/tree"));
}

#[test]
fn a_tree_of_which_nothing_could_be_read_keeps_its_other_name() {
    let host = Host::start();
    let (tree, to) = (host.file("tree"), host.file("to"));
    write(tree.join("a"), "1");
    fs::set_permissions(tree.join("a"), fs::Permissions::from_mode(0o000)).unwrap();
    fs::create_dir(&to).unwrap();
    let program = host.unprivileged();
    let again = || {
        let mut cp = host.cp();
        cp.far_program(&program).arg("-r").arg(far(&tree)).arg(to.join("new"));
        cp
    };
    again().fails(1, "permission denied");
    assert!(to.join("new").is_dir());
    // An attempt that does not come so far changes nothing.
    fs::rename(&tree, host.file("away")).unwrap();
    again().fails(2, "no such file");
    fs::rename(host.file("away"), &tree).unwrap();
    fs::set_permissions(tree.join("a"), fs::Permissions::from_mode(0o644)).unwrap();
    again().ok();
    only(&to, &["new"]);
    same(&tree, &to.join("new"));
}

#[test]
fn what_was_begun_where_a_file_stands_now_is_gone() {
    let host = Host::start();
    write(host.file("tree/d/large"), bytes(LARGE, 7));
    fs::create_dir(host.file("to")).unwrap();
    let again = |how: &str| {
        let mut cp = host.cp();
        cp.words(how).arg("-r").arg(host.file("tree/.")).arg(host.far("to/"));
        cp
    };
    let running = again(SLOW).start();
    some_blocks(&host.file("to"));
    running.kill();
    for side in ["tree/d", "to/d"] {
        fs::remove_dir_all(host.file(side)).unwrap();
    }
    write(host.file("tree/d"), "a file");
    again("").ok();
    only(&host.file("to"), &["d"]);
    same_inside(&host.file("tree"), &host.file("to"));
}

#[test]
fn two_that_only_their_content_tells_apart_are_not_mixed() {
    let host = Host::start();
    for (name, seed) in [("one", 1), ("two", 2)] {
        write(host.file(name).join("same"), bytes(LARGE, seed));
        date(host.file(name).join("same"), 800_000_000, 0);
    }
    fs::create_dir(host.file("to")).unwrap();
    let again = |how: &str| {
        let mut cp = host.cp();
        cp.words(how).arg("-r").arg(host.file("one/.")).arg(host.file("two/.")).arg(host.far("to/"));
        cp
    };
    let running = again(SLOW).start();
    some_blocks(&host.file("to"));
    running.kill();
    again("").fails(1, "not copied: same: an earlier source has an entry with the same name");
    same(&host.file("one/same"), &host.file("to/same"));
    only(&host.file("to"), &["same"]);
}

#[test]
fn a_tree_goes_on_too() {
    let host = Host::start();
    let tree = host.file("tree");
    for i in 0..300 {
        write(tree.join(format!("{}/{i}", i % 10)), bytes(5_000, i as u64));
    }
    for i in 0..16 {
        write(tree.join(format!("large/{i}")), bytes(5 * MIB, i as u64));
    }
    fs::create_dir(host.file("to")).unwrap();
    let again = |how: &str| {
        let mut cp = host.cp();
        cp.words(how).arg("--json").arg("-r").arg(&tree).arg(host.far("to"));
        cp
    };
    // Partial files have names that are no numbers.
    let large = || {
        let entries = fs::read_dir(host.file("to/tree/large")).into_iter().flatten().flatten();
        entries.filter(|e| e.file_name().to_str().is_some_and(|name| name.parse::<u32>().is_ok())).count()
    };
    // The small files take about 7,000 bytes of the journal, in steps; all 11,000.
    for (much, whole) in [(3000, 0), (6000, 0), (9000, 5)] {
        let running = again(SLOW).start();
        let before = journalled(&host.file("to"));
        until("a longer journal", || journalled(&host.file("to")) > before.max(much) && large() >= whole);
        running.kill();
    }
    let done = again("").ok();
    assert!(done.number("skipped") > 0 && done.number("bytes") < 60 * MIB as u64, "{}", done.out);
    assert_eq!(done.number("files"), 316);
    same(&tree, &host.file("to/tree"));
    assert!(leftovers(&host.file("to")).is_empty());
}

#[test]
fn a_source_that_is_another_by_then_is_not_mixed_in() {
    // Even if it was given its size and time.
    both_ways(|push| {
        let host = Host::start();
        write(host.file("large"), bytes(LARGE, 7));
        date(host.file("large"), 800_000_000, 0);
        fs::create_dir_all(host.file("to")).unwrap();
        let running = repeat(&host, push, SLOW).start();
        some_blocks(&host.file("to"));
        running.kill();
        write(host.file("other"), bytes(LARGE, 8));
        date(host.file("other"), 800_000_000, 0);
        fs::rename(host.file("other"), host.file("large")).unwrap();
        let sent = repeat(&host, push, "").ok().number("bytes");
        assert_eq!(sent, LARGE as u64);
        same(&host.file("large"), &host.file("to/large"));
        only(&host.file("to"), &["large"]);
    });
}

#[test]
fn relative_and_absolute_names_go_on_alike() {
    both_ways(|push| {
        let host = Host::start();
        slow(&host, push).kill();
        let (local, far) = if push { ("large", host.far("to/")) } else { ("to", host.far("large")) };
        let words = if push { [local.into(), far] } else { [far, local.into()] };
        let mut cp = host.cp();
        let done = words.iter().fold(cp.arg("--json"), |cp, word| cp.arg(word)).within(&host.file("")).ok();
        assert!(done.number("bytes") < (LARGE - 2 * MIB) as u64, "push {push}: {}", done.out);
        only(&host.file("to"), &["large"]);
        same(&host.file("large"), &host.file("to/large"));
    });
}

#[test]
fn a_far_end_that_hangs_is_not_waited_for_long() {
    let host = Host::start();
    let (program, ids) = host.known_by_id();
    write(host.file("large"), bytes(LARGE, 7));
    fs::create_dir(host.file("to")).unwrap();
    // The first works, and is stopped; those that follow say that they are there, and nothing more.
    let text = format!(
        "[ -e {0} ] && printf '\\0fullpipe far end\\0' && exec sleep 60\nexec {1} \"$@\"",
        ids.display(),
        program.display()
    );
    let once = host.script("once", &text);
    let running = repeat(&host, true, &format!("{SLOW} --stall 3s")).far_program(&once).start();
    some_blocks(&host.file("to"));
    let id = fs::read_to_string(&ids).unwrap().trim().parse().unwrap();
    kill(Pid::from_raw(id), Signal::SIGSTOP).unwrap();
    let began = Instant::now();
    let done = running.wait();
    kill(Pid::from_raw(id), Signal::SIGKILL).unwrap();
    assert!(began.elapsed() < Duration::from_secs(40), "{:?}", began.elapsed());
    assert_eq!(done.code(), 4, "{}", done.err);
    assert!(done.err.contains("far has not answered for 3s"), "{}", done.err);
    goes_on(&host, true);
}

#[test]
fn a_destination_that_an_earlier_far_end_still_holds_is_waited_for() {
    let host = Host::start();
    let (program, ids) = host.known_by_id();
    write(host.file("large"), bytes(LARGE, 7));
    fs::create_dir(host.file("to")).unwrap();
    // The first is stopped. The second finds its lock. With the third, the first ends.
    let text = format!(
        "[ \"$(cat {0} | wc -l)\" = 2 ] && kill -9 $(head -n 1 {0})\nexec {1} \"$@\"",
        ids.display(),
        program.display()
    );
    let third = host.script("third", &text);
    let ssh_ids = host.file("ssh_ids");
    let text = format!("echo $$ >> {}\nexec {} \"$@\"", ssh_ids.display(), host.ssh);
    let known = host.script("known_ssh", &text);
    let running = repeat(&host, true, SLOW).ssh(known.to_str().unwrap()).far_program(&third).start();
    some_blocks(&host.file("to"));
    let id = fs::read_to_string(&ids).unwrap().trim().parse().unwrap();
    kill(Pid::from_raw(id), Signal::SIGSTOP).unwrap();
    // The first of its ssh was asked for the configuration. The second attempt waits 20 s for the lock.
    let ssh = fs::read_to_string(&ssh_ids).unwrap().lines().nth(1).unwrap().parse().unwrap();
    kill(Pid::from_raw(ssh), Signal::SIGKILL).unwrap();
    let done = running.wait();
    if done.code() != 0 {
        kill(Pid::from_raw(id), Signal::SIGKILL).unwrap();
    }
    assert_eq!(done.code(), 0, "{} {}", done.err, done.out);
    assert!(done.out.contains("another fullpipe is writing to "), "{}", done.out);
    same(&host.file("large"), &host.file("to/large"));
}

#[test]
fn a_script_around_ssh_is_not_waited_for_either() {
    let host = Host::start();
    write(host.file("a"), "1");
    // What it starts goes on when it is ended, and holds the line.
    let wrapper = host.script("wrapper", &format!("setsid sleep 50 &\n{} \"$@\"\nexit $?", host.ssh));
    let stuck = host.script("stuck", "exec sleep 50");
    let began = Instant::now();
    let mut cp = host.cp();
    cp.ssh(wrapper.to_str().unwrap()).far_program(&stuck).words("--stall 2s").arg(host.file("a")).arg(host.far("b"));
    let running = cp.start();
    std::thread::sleep(Duration::from_secs(2));
    running.signal(Signal::SIGTERM);
    let done = running.wait();
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    assert_eq!(done.code(), 130, "{}", done.err);
    // It works all the same.
    host.cp().ssh(wrapper.to_str().unwrap()).arg(host.file("a")).arg(host.far("b")).ok();
    same(&host.file("a"), &host.file("b"));
}

#[test]
fn a_partial_file_that_was_about_to_take_its_name_goes_on() {
    let host = Host::start();
    let program = host.unprivileged();
    write(host.file("large"), bytes(LARGE, 7));
    fs::create_dir(host.file("to")).unwrap();
    fs::set_permissions(host.file("to"), fs::Permissions::from_mode(0o777)).unwrap();
    let running = repeat(&host, true, SLOW).far_program(&program).start();
    some_blocks(&host.file("to"));
    running.kill();
    until("the far end lets go", || repeat(&host, true, "--dry-run").far_program(&program).run().code() == 0);
    let partial = leftovers(&host.file("to")).into_iter().find(|name| name.extension().is_some_and(|e| e == "partial"));
    fs::set_permissions(host.file("to").join(partial.unwrap()), fs::Permissions::from_mode(0o444)).unwrap();
    let done = repeat(&host, true, "").far_program(&program).ok();
    assert!(done.number("bytes") < (LARGE - 2 * MIB) as u64);
    same_content(&host.file("large"), &host.file("to/large"));
}

#[test]
fn copies_of_other_commands_that_lie_unfinished_are_told_of() {
    let host = Host::start();
    slow(&host, false).kill();
    write(host.file("a"), "1");
    let other = host.cp().arg(host.far("a")).arg(host.file("to/")).ok();
    assert!(
        other.err.contains("1 unfinished copy of another command in the destination folder (.fullpipe.*.journal"),
        "{}",
        other.err
    );
    // One that goes on is none.
    repeat(&host, false, "").ok();
    fs::remove_file(host.file("to/large")).unwrap();
    let running = slow(&host, false);
    let other = host.cp().arg("--json").arg(host.far("a")).arg(host.file("to/")).ok();
    assert_eq!(other.number("unfinished_others"), 0);
    running.kill();
}

#[test]
fn a_folder_that_is_gone_by_the_next_attempt_is_none() {
    let host = Host::start();
    write(host.file("tree/dd/b/f"), "1");
    write(host.file("tree/x"), "2");
    write(host.file("to/tree/x/folder"), "in its way");
    let again = || {
        let mut cp = host.cp();
        cp.arg("-r").arg(host.file("tree")).arg(host.far("to/"));
        cp
    };
    again().fails(1, "tree/x: a folder stands where the file should be");
    fs::rename(host.file("tree/dd/b"), host.file("tree/dd/c")).unwrap();
    fs::remove_dir_all(host.file("to/tree/dd/b")).unwrap();
    fs::remove_dir_all(host.file("to/tree/x")).unwrap();
    again().ok();
    same(&host.file("tree"), &host.file("to/tree"));
    only(&host.file("to"), &["tree"]);
}

#[test]
fn a_folder_whose_times_cannot_be_set_is_all_that_is_left_to_do() {
    let host = Host::start();
    write(host.file("tree/large"), bytes(LARGE, 7));
    fs::create_dir(host.file("tree/sub")).unwrap();
    fs::create_dir(host.file("to")).unwrap();
    let copy = |how: &str| {
        let mut cp = host.cp();
        cp.words(how).arg("--json").arg("-r").arg(host.file("tree")).arg(host.far("to/"));
        cp
    };
    let running = copy(SLOW).start();
    some_blocks(&host.file("to"));
    // Somebody puts a link in its place before all is there.
    fs::remove_dir(host.file("to/tree/sub")).unwrap();
    std::os::unix::fs::symlink("/", host.file("to/tree/sub")).unwrap();
    let done = running.wait();
    assert!(done.code() == 1 && done.err.contains("not copied: tree/sub: a symbolic link"), "{}", done.err);
    fs::remove_file(host.file("to/tree/sub")).unwrap();
    let done = copy("").ok();
    assert_eq!((done.number("skipped"), done.number("bytes")), (1, 0), "{}", done.out);
    same(&host.file("tree"), &host.file("to/tree"));
    only(&host.file("to"), &["tree"]);
}

#[test]
fn what_is_finished_is_brought_to_disk_where_that_is_new() {
    for how in ["", "--fsync"] {
        let host = Host::start();
        let tree = host.file("tree");
        for i in 0..50 {
            write(tree.join(i.to_string()), "small");
        }
        write(tree.join("large"), bytes(LARGE, 7));
        fs::create_dir(host.file("to")).unwrap();
        let again = |how: &str| {
            let mut cp = host.cp();
            // Fetched: who is killed is who writes, and writes no more.
            cp.words(how).words("--json -r").arg(host.far("tree")).arg(host.file("to/"));
            cp
        };
        let running = again(SLOW).start();
        some_blocks(&host.file("to"));
        running.kill();
        let before = journalled(&host.file("to"));
        let running = again(&format!("{SLOW} {how}")).start();
        // All of the small files, and then some blocks.
        until("more in the journal", || journalled(&host.file("to")) > before + 1200);
        running.kill();
        // As if the machine had crashed: the journal was written under another boot_id.
        let journal = leftovers(&host.file("to")).into_iter().find(|n| n.extension().is_some_and(|e| e == "journal"));
        let journal = File::options().write(true).open(host.file("to").join(journal.unwrap())).unwrap();
        journal.write_all_at(&[b'x'; 36], 40).unwrap();
        let there = again("").ok().number("skipped");
        assert_eq!(there, if how.is_empty() { 0 } else { 50 }, "{how}");
        same(&tree, &host.file("to/tree"));
    }
}

#[test]
fn a_damaged_partial_file_is_not_believed() {
    let host = Host::start();
    slow(&host, true).kill();
    let partial = leftovers(&host.file("to")).into_iter().find(|name| name.extension().is_some_and(|e| e == "partial"));
    let partial = File::options().write(true).open(host.file("to").join(partial.unwrap())).unwrap();
    for at in (0..LARGE).step_by(64 << 10) {
        partial.write_all_at(b"damage", at as u64).unwrap();
    }
    let done = repeat(&host, true, "").ok();
    assert_eq!(done.number("bytes"), LARGE as u64);
    same(&host.file("large"), &host.file("to/large"));
}

#[test]
fn the_same_command_twice_at_once() {
    both_ways(|push| {
        let host = Host::start();
        write(host.file("large"), bytes(LARGE, 7));
        fs::create_dir(host.file("to")).unwrap();
        let first = repeat(&host, push, "--pacing 40mbit --block 1MiB").start();
        some_blocks(&host.file("to"));
        repeat(&host, push, "").fails(5, "another fullpipe is writing to ");
        // Whatever becomes of the first, the second has harmed nothing.
        first.kill();
        goes_on(&host, push);
    });
}

#[test]
fn two_that_start_at_the_same_moment() {
    let host = Host::start();
    write(host.file("large"), bytes(LARGE, 7));
    fs::create_dir(host.file("to")).unwrap();
    // The second waits for a moment: the first is soon over.
    let both = [repeat(&host, true, "").start(), repeat(&host, true, "").start()].map(Running::wait);
    for done in both {
        assert!(done.code() == 0 || done.err.contains("another fullpipe is writing to "), "{}", done.err);
    }
    same(&host.file("large"), &host.file("to/large"));
    only(&host.file("to"), &["large"]);
}

#[test]
fn output_that_nobody_reads_ends_no_transfer() {
    let host = Host::start();
    write(host.file("large"), bytes(24 * MIB, 7));
    fs::create_dir(host.file("to")).unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let done = repeat(&host, true, "--pacing 80mbit").stdout(writer).run();
    assert_eq!((done.code(), done.err.as_str()), (0, ""));
    same(&host.file("large"), &host.file("to/large"));
}
