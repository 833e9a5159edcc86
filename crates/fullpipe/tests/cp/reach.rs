//! How data get to a host of which only ssh's port can be reached.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::firewall::behind;
use crate::host::{Cp, Done, Host, Running, until};
use crate::large::{LARGE, MIB, SLOW, both_ways, some_blocks};
use crate::tree::{bytes, leftovers, same, write};

/// Ports that a firewall drops.
const DROPPED: &str = "21000-21015";

/// Copies a tree to the host and back; whatever is said of a copy over ssh is in the results.
fn there_and_back(host: &Host, name: &str, words: &str) -> [Done; 2] {
    write(host.file("tree/large"), bytes(20 * MIB, 1));
    write(host.file("tree/empty"), "");
    for i in 0..50 {
        write(host.file(&format!("tree/small/{i}")), bytes(i * 100, i as u64));
    }
    let far = |path: &str| format!("{name}:{}", host.file(path).display());
    let copy = |from: &std::ffi::OsStr, to: &std::ffi::OsStr| {
        let mut cp = host.cp();
        cp.words("-r -T --json").words(words).arg(from).arg(to).ok()
    };
    let there = copy(host.file("tree").as_os_str(), far("there").as_ref());
    same(&host.file("tree"), &host.file("there"));
    let back = copy(far("there").as_ref(), host.file("back").as_os_str());
    same(&host.file("tree"), &host.file("back"));
    assert!(leftovers(&host.file("")).is_empty());
    [there, back]
}

/// The notes of a copy with `--json`.
fn notes(done: &Done) -> Vec<String> {
    let notes = done.json().into_iter().filter(|line| line["kind"] == "note");
    notes.map(|line| line["note"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn data_go_through_ssh() {
    let host = Host::start();
    for (words, least, most) in [("--via ssh", 2, 8), ("--via ssh --no-encrypt -n 3 --buffer sobas", 3, 3)] {
        for done in there_and_back(&host, "far", words) {
            let streams = done.json().pop().unwrap()["transport"]["streams"].as_u64().unwrap();
            assert_eq!(notes(&done), [""; 0]);
            assert!((least..=most).contains(&streams), "{streams}");
        }
        ["there", "back"].iter().for_each(|name| fs::remove_dir_all(host.file(name)).unwrap());
    }
    // What was asked for is no finding to remember.
    assert!(!host.home().join(".local/state").exists());
}

/// A relay of connections to a port of this host, which holds up all bytes for so long in each direction. It ends with the test's
/// process.
fn slow_relay(to: u16, delay: Duration) -> u16 {
    let relay = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = relay.local_addr().unwrap().port();
    let pass = move |mut from: TcpStream, mut to: TcpStream| {
        let mut bytes = [0; 64 << 10];
        while let Ok(n @ 1..) = from.read(&mut bytes) {
            std::thread::sleep(delay);
            if to.write_all(&bytes[..n]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
    };
    std::thread::spawn(move || {
        for near in relay.incoming().map_while(Result::ok) {
            let far = TcpStream::connect(("127.0.0.1", to)).unwrap();
            let back = (far.try_clone().unwrap(), near.try_clone().unwrap());
            std::thread::spawn(move || pass(near, far));
            std::thread::spawn(move || pass(back.0, back.1));
        }
    });
    port
}

/// The round trip of ssh's own connection is known. It is none to the host if ssh's port is a forwarded one.
#[test]
fn the_round_trip_is_that_to_the_host() {
    let host = Host::start();
    write(host.file("a"), bytes(3 * MIB, 1));
    let relayed = format!("{} -p {}", host.ssh, slow_relay(host.port, Duration::from_millis(40)));
    for (ssh, range) in [(&host.ssh, 0.0..0.08), (&relayed, 0.08..1.0)] {
        for push in [true, false] {
            let to = format!("{}{push}", range.end);
            let done = host.copy(push, "--json", "a", &to).ssh(ssh).ok();
            assert_eq!(notes(&done), [""; 0]);
            let rtt_s = done.json().pop().unwrap()["rtt_s"].as_f64().unwrap();
            assert!(range.contains(&rtt_s), "{rtt_s} {range:?}");
            same(&host.file("a"), &host.file(&to));
        }
    }
}

/// It is no closed path, and no other way is tried.
#[test]
fn a_congestion_control_that_this_kernel_does_not_have() {
    let host = Host::start();
    write(host.file("a"), "1");
    for push in [true, false] {
        let mut cp = host.copy(push, "--cc nosuch", "a", "b");
        let done = cp.run();
        assert!(done.err.contains("has no congestion control 'nosuch'") && done.code() != 0, "{}", done.err);
        assert!(!done.err.contains("cannot connect") && done.err.lines().count() == 1, "{}", done.err);
    }
}

#[test]
fn a_jump_host_is_sshs_setting_or_a_flag() {
    let host = Host::start();
    write(host.file("a"), "1");
    host.cp().arg(host.file("a")).arg(format!("behind:{}", host.file("set").display())).ok();
    assert_eq!(fs::read(host.file("set")).unwrap(), b"1");
    let to = format!("walled:{}", host.file("b").display());
    host.cp().arg(host.file("a")).arg(&to).fails(4, "walled");
    host.cp().words("-J jump").arg(host.file("a")).arg(&to).ok();
    assert_eq!(fs::read(host.file("b")).unwrap(), b"1");
    host.cp().words("-J jump").arg(host.file("a")).arg("lab:rtt=1ms,rate=1gbit:/tmp/").fails_at_once(2, "--jump");
}

#[test]
fn an_ssh_that_says_nothing_is_named() {
    let host = Host::start();
    write(host.file("a"), "1");
    let ssh = host.script("silent", "exit 255");
    let mut cp = host.cp();
    cp.ssh(ssh.to_str().unwrap()).arg(host.file("a")).arg(host.far("b"));
    cp.fails(4, "ssh far: it ended without a message; to see all of it, run: ");
}

#[test]
fn a_key_that_is_missing_is_named() {
    let host = Host::start();
    write(host.file("a"), "1");
    let mut cp = host.cp();
    cp.words("-i no-such-key").arg(host.file("a")).arg(host.far("b"));
    cp.fails_at_once(2, "--identity no-such-key: there is no such file");
}

#[test]
fn a_jump_host_that_is_unknown_is_named() {
    let host = Host::start();
    write(host.file("a"), "1");
    let mut cp = host.cp();
    cp.words("-J nogate.invalid").arg(host.file("a")).arg(host.far("b"));
    cp.fails(2, "cannot resolve host 'nogate.invalid'");
}

#[test]
fn nothing_is_left_of_the_connections() {
    let host = Host::start();
    let (program, ids) = host.known_by_id();
    write(host.file("a"), bytes(20 * MIB, 1));
    let mut cp = host.cp();
    cp.far_program(&program).words("--via ssh -n 4").arg(host.file("a")).arg(host.far("b")).ok();
    let ids = fs::read_to_string(ids).unwrap();
    assert_eq!(ids.lines().count(), 5, "{ids}");
    let until = Instant::now() + Duration::from_secs(10);
    while ids.lines().any(|id| std::path::Path::new("/proc").join(id).exists()) {
        assert!(Instant::now() < until, "{ids}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn more_streams_than_may_log_in_at_once() {
    let host = Host::start();
    let [there, _] = there_and_back(&host, "far", "--via ssh -n 20");
    assert_eq!(there.json().pop().unwrap()["transport"]["streams"], 20);
}

#[test]
fn a_name_that_only_ssh_resolves() {
    let host = Host::start();
    // A copy that is only looked at finds the way, too.
    write(host.file("a"), "1");
    let looked = host.cp().words("--dry-run --explain").arg(host.file("a")).arg("inner:/tmp/fullpipe-never").ok();
    assert!(looked.out.contains("ssh connections"), "{}", looked.out);
    let [there, back] = there_and_back(&host, "inner", "");
    let [said] = &notes(&there)[..] else { panic!("{:?}", notes(&there)) };
    assert!(said.contains("node7.cluster.invalid") && said.contains("copying through ssh"), "{said}");
    // The second time it is known.
    let [said] = &notes(&back)[..] else { panic!("{:?}", notes(&back)) };
    assert!(said.contains("had no open data port before"), "{said}");
    let to = format!("inner:{}", host.file("x").display());
    let fails = |words: &str, part: &str| {
        host.cp().words(words).arg(host.file("tree/large")).arg(&to).fails(4, part);
    };
    fails("--via tcp", "cannot connect to node7.cluster.invalid for the data: its name is unknown here");
}

#[test]
fn a_port_that_a_firewall_drops() {
    let drop = format!("chain in {{ type filter hook input priority 0; tcp dport {DROPPED} drop; }};");
    behind(&format!("table inet test {{ {drop} }}"), || {
        let host = &Host::start();
        write(host.file("a"), bytes(3 * MIB, 1));
        let copy = |words: &str| {
            let mut cp = host.cp();
            cp.words("--data-ports").arg(DROPPED).words(words).arg(host.file("a")).arg(host.far("b"));
            cp
        };
        // What is wrong is named, and soon.
        let began = Instant::now();
        for words in ["--via tcp", "--via tcp --stall 5s", "--via tcp --stall 1s"] {
            copy(words).fails_at_once(4, "for the data: no answer within");
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
        let done = copy("--json --stall 5s").ok();
        let [said] = &notes(&done)[..] else { panic!("{:?}", notes(&done)) };
        assert!(said.contains("no answer within 3s") && said.contains("copying through ssh"), "{said}");
        same(&host.file("a"), &host.file("b"));
        // The second time it waits for nothing.
        let done = copy("--json").ok();
        let [said] = &notes(&done)[..] else { panic!("{:?}", notes(&done)) };
        assert!(said.contains("had no open data port before"), "{said}");
        // Other ports are open, as far as anybody knows.
        assert_eq!(notes(&host.cp().arg("--json").arg(host.file("a")).arg(host.far("c")).ok()), [""; 0]);
    });
}

#[test]
fn ports_that_a_firewall_closes_during_a_copy() {
    behind("table inet test { chain in { type filter hook input priority 0; }; }", || {
        let host = &Host::start();
        let running = slow_over(host, "--stall 1s");
        let rule = format!("add rule inet test in tcp dport {DROPPED} drop");
        assert!(Command::new("nft").args(rule.split_whitespace()).status().unwrap().success());
        let done = running.wait();
        assert_eq!(done.code(), 0, "{}", done.err);
        let said = notes(&done);
        assert!(said.last().unwrap().contains("no answer within") && said[1].contains("connecting again"), "{said:?}");
        assert!(said.last().unwrap().ends_with("copying through ssh"), "{said:?}");
        same(&host.file("large"), &host.file("to/large"));
        // They were open when the copy began, and may be open again.
        assert!(!host.home().join(".local/state").exists());
    });
}

/// A large file that is copied over the ports of these tests, in the middle.
fn slow_over(host: &Host, words: &str) -> Running {
    write(host.file("large"), bytes(LARGE, 7));
    fs::create_dir(host.file("to")).unwrap();
    let words = format!("--json {SLOW} --data-ports {DROPPED} {words}");
    let running = host.copy(true, &words, "large", "to/").start();
    some_blocks(&host.file("to"));
    running
}

#[test]
fn ports_that_are_all_in_use() {
    let host = Host::start();
    write(host.file("a"), bytes(3 * MIB, 1));
    let other = std::net::TcpListener::bind("[::]:0").unwrap();
    let port = other.local_addr().unwrap().port();
    let words = format!("--json --data-ports {port}-{port}");
    let busy = format!("its data ports {port} to {port} are all in use");
    both_ways(|push| {
        let to = if push { "there" } else { "back" };
        let done = host.copy(push, &words, "a", to).ok();
        let [said] = &notes(&done)[..] else { panic!("{:?}", notes(&done)) };
        assert!(said.contains(&busy) && said.ends_with("copying through ssh"), "{said}");
        same(&host.file("a"), &host.file(to));
    });
    assert!(!host.home().join(".local/state").exists());
    // Where TCP alone is wanted, the copy connects again as often as it is told to, although nothing has moved yet.
    for retries in [0, 1] {
        let done = host.copy(true, &format!("{words} --via tcp --retries {retries}"), "a", "never").run();
        assert_eq!((done.code(), notes(&done).len()), (4, retries), "{} {}", done.out, done.err);
    }
    // It begins when a port is free.
    let waiting = host.copy(true, &format!("{words} --via tcp"), "a", "later").start();
    std::thread::sleep(Duration::from_millis(1500));
    drop(other);
    let done = waiting.wait();
    assert_eq!(done.code(), 0, "{}", done.err);
    assert!(notes(&done).iter().any(|note| note.contains(&busy) && note.ends_with("connecting again")), "{}", done.out);
}

/// The rules of a firewall before the host of these tests, which drops what comes to its data ports.
const CLOSED: &str = "table inet test { chain in { type filter hook input priority 0; ip daddr 127.0.0.2 drop; }; }";

/// An ssh that has the host's data ports at another address than ssh's own.
fn ssh_elsewhere(host: &Host) -> String {
    let text = format!("[ \"$1\" = -G ] && echo hostname 127.0.0.2 && exit\nexec {} \"$@\"", host.ssh);
    host.script("elsewhere", &text).to_str().unwrap().to_owned()
}

#[test]
fn the_far_end_connects_where_a_firewall_drops_what_comes_there() {
    behind(CLOSED, || {
        let host = &Host::start();
        let ssh = ssh_elsewhere(host);
        write(host.file("tree/large"), bytes(20 * MIB, 1));
        for i in 0..50 {
            write(host.file(&format!("tree/small/{i}")), bytes(i * 100, i as u64));
        }
        let copy = |push: bool, words: &str, from: &str, to: &str| {
            let mut cp = host.copy(push, "-rT", from, to);
            cp.ssh(&ssh).words(words);
            cp
        };
        copy(true, "--via tcp", "tree", "x").fails_at_once(4, "for the data: no answer within");
        for (push, words) in
            [(true, ""), (false, "-n 3"), (true, "--no-encrypt --buffer sobas"), (false, "--data-ports 21000-21003")]
        {
            let done = copy(push, words, "tree", "to").words("--json --via reverse").ok();
            assert_eq!(notes(&done), [""; 0], "{words}");
            same(&host.file("tree"), &host.file("to"));
            fs::remove_dir_all(host.file("to")).unwrap();
        }
        // What was asked for is no finding to remember.
        assert!(!host.home().join(".local/state").exists());
        for push in [true, false] {
            let done = copy(push, "--json --stall 5s", "tree", "to").ok();
            let [said] = &notes(&done)[..] else { panic!("{:?}", notes(&done)) };
            let parts = ["127.0.0.2:", "no answer within 3s", "the far host connects to this one"];
            assert!(parts.iter().all(|part| said.contains(part)), "{said}");
            // The second time it is known.
            let done = copy(push, "--json", "tree/large", "again").ok();
            let [said] = &notes(&done)[..] else { panic!("{:?}", notes(&done)) };
            assert!(said.starts_with("copying over connections from far, as it had no open"), "{said}");
            same(&host.file("tree"), &host.file("to"));
            same(&host.file("tree/large"), &host.file("again"));
            assert!(leftovers(&host.file("")).is_empty());
            fs::remove_dir_all(host.file("to")).unwrap();
            fs::remove_file(host.file("again")).unwrap();
            fs::remove_file(host.home().join(".local/state/fullpipe/closed-ports.json")).unwrap();
        }
    });
}

#[test]
fn a_firewall_that_drops_both_ways_costs_the_time_of_one() {
    let dropped = "table inet test { chain in { type filter hook input priority 0; ip daddr 127.0.0.2 drop; \
                   tcp dport 21000-21015 drop; }; }";
    behind(dropped, || {
        let host = &Host::start();
        let ssh = ssh_elsewhere(host);
        write(host.file("a"), bytes(MIB, 1));
        let copy = |words: &str, to: &str| {
            let mut cp = host.copy(true, "--data-ports 21000-21015", "a", to);
            cp.ssh(&ssh).words(words);
            cp
        };
        let began = Instant::now();
        copy("--via tcp", "x").fails_at_once(4, "for the data: no answer within");
        copy("--via reverse", "x").fails_at_once(4, "far cannot connect to this host for the data (127.0.0.1:21");
        let one_after_the_other = began.elapsed();
        let began = Instant::now();
        let done = copy("--json --stall 5s", "b").ok();
        assert!(began.elapsed() < one_after_the_other, "{:?} {one_after_the_other:?}", began.elapsed());
        let [said] = &notes(&done)[..] else { panic!("{:?}", notes(&done)) };
        let parts = ["no answer within 3s", "nor can it connect to this host: 127.0.0.1:21", "; copying through ssh"];
        assert!(parts.iter().all(|part| said.contains(part)), "{said}");
        same(&host.file("a"), &host.file("b"));
        // The second time it waits for nothing.
        let [said] = &notes(&copy("--json", "c").ok())[..] else { panic!() };
        assert!(said.contains("had no open data port before"), "{said}");
    });
}

/// TCP ports of this network namespace that are listened to.
fn listening() -> Vec<u16> {
    let port = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_listening = fields.get(3) == Some(&"0A");
        u16::from_str_radix(fields.get(1)?.rsplit(':').next()?, 16).ok().filter(|_| is_listening)
    };
    let files = ["tcp", "tcp6"].map(|file| fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap());
    files.iter().flat_map(|text| text.lines().filter_map(port)).collect()
}

/// Nothing of the far end comes through; or the first connection does, and no stream.
#[test]
fn an_interruption_ends_the_wait_for_streams_from_the_far_end() {
    let none = "tcp dport 21000-21015 drop;";
    let one = "tcp dport 21000-21015 tcp flags & (syn | ack) == syn limit rate over 1/hour burst 1 packets drop;";
    for (rule, push) in [(none, true), (none, false), (one, true), (one, false)] {
        behind(&format!("table inet test {{ chain in {{ type filter hook input priority 0; {rule} }}; }}"), || {
            let host = &Host::start();
            let ssh = ssh_elsewhere(host);
            let (program, ids) = host.known_by_id();
            write(host.file("from/large"), bytes(5 * MIB, 1));
            fs::create_dir(host.file("to")).unwrap();
            let before = listening();
            let mut cp = host.copy(push, "-r --via reverse --data-ports 21000-21015", "from", "to/");
            let running = cp.ssh(&ssh).far_program(&program).start();
            until("this host waits", || listening().iter().any(|port| (21000..=21015).contains(port)));
            std::thread::sleep(Duration::from_millis(700));
            let began = Instant::now();
            running.signal(nix::sys::signal::Signal::SIGINT);
            let done = running.wait();
            assert!(
                began.elapsed() < Duration::from_secs(2),
                "{:?}; {rule} push {push}: {}",
                began.elapsed(),
                done.err
            );
            assert_eq!(done.code(), 130, "{rule} push {push}: {}", done.err);
            let is_gone = |id: &str| !std::path::Path::new("/proc").join(id).exists();
            until("the far end has ended", || fs::read_to_string(&ids).unwrap().lines().all(is_gone));
            assert_eq!(listening(), before);
            assert!(leftovers(&host.file("")).is_empty(), "{:?}", leftovers(&host.file("")));
            assert_eq!(fs::read_dir(host.file("to")).unwrap().count(), 0);
        });
    }
}

#[test]
fn the_other_way_round_is_for_tcp_and_this_host() {
    let host = Host::start();
    write(host.file("a"), "1");
    host.copy(true, "--via reverse --transport udt", "a", "b")
        .fails_at_once(2, "leave out --via reverse, or copy over TCP");
    let mut cp = host.cp();
    cp.words("--via reverse").arg(host.far("a")).arg("beta:b");
    cp.fails_at_once(2, "--via reverse has an effect only on copies to or from this host");
}

/// A machine on the way takes every connection for its own, and closes it when it does not know what is said.
#[test]
fn a_port_at_which_somebody_else_answers() {
    let to_another = "ip daddr 127.0.0.2 tcp dport 1024-65535 redirect to :1023";
    let nat = format!("chain out {{ type nat hook output priority -100; {to_another}; }};");
    behind(&format!("table ip test {{ {nat} }}"), || {
        let host = &Host::start();
        write(host.file("a"), bytes(MIB, 1));
        let listener = std::net::TcpListener::bind("127.0.0.1:1023").unwrap();
        std::thread::spawn(move || listener.incoming().for_each(drop));
        // The name of the host leads there, as far as this end knows; ssh knows better.
        let mut cp = host.cp();
        let done = cp.ssh(&ssh_elsewhere(host)).arg("--json").arg(host.file("a")).arg(host.far("b")).ok();
        let [said] = &notes(&done)[..] else { panic!("{:?}", notes(&done)) };
        assert!(said.contains("copying through ssh"), "{said}");
        same(&host.file("a"), &host.file("b"));
    });
}

#[test]
fn what_was_found_is_not_believed_if_others_may_have_written_it() {
    use std::os::unix::fs::PermissionsExt;
    let host = Host::start();
    there_and_back(&host, "inner", "");
    let memory = host.home().join(".local/state/fullpipe/closed-ports.json");
    assert_eq!(fs::metadata(&memory).unwrap().permissions().mode() & 0o777, 0o600);
    fs::set_permissions(&memory, fs::Permissions::from_mode(0o622)).unwrap();
    let to = format!("inner:{}", host.file("x").display());
    let done = host.cp().arg("--json").arg(host.file("tree/large")).arg(&to).ok();
    let said = notes(&done);
    assert!(said.len() == 2 && said[0].contains("can be written by"), "{said:?}");
    // It has been replaced by one's own.
    assert_eq!(fs::metadata(&memory).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(notes(&host.cp().arg("--json").arg(host.file("tree/large")).arg(&to).ok()).len(), 1);
}

/// A copy through ssh that a later command goes on with.
#[test]
fn a_copy_through_ssh_goes_on() {
    let host = Host::start();
    write(host.file("large"), bytes(60 * MIB, 7));
    fs::create_dir(host.file("to")).unwrap();
    let copy = |words: &str| {
        let mut cp: Cp = host.cp();
        cp.words("--via ssh --json").words(words).arg(host.file("large")).arg(host.far("to/"));
        cp
    };
    let running = copy("--pacing 80mbit --block 1MiB").start();
    some_blocks(&host.file("to"));
    running.kill();
    let done = copy("").ok();
    assert!(done.number("bytes") < 58 * MIB as u64, "{}", done.out);
    same(&host.file("large"), &host.file("to/large"));
}

#[test]
fn data_share_a_login_where_they_get_none_of_their_own() {
    let host = Host::start();
    // As after a password that was typed once.
    let text = format!(
        "case \"$*\" in *ControlPath=none*) echo 'Permission denied (password).' >&2; exit 255;; esac\n\
         exec {} -o ControlMaster=auto -o ControlPath={}/master \"$@\"",
        host.ssh,
        host.home().display()
    );
    let shared = host.script("shared", &text);
    write(host.file("a"), bytes(20 * MIB, 1));
    let mut cp = host.cp();
    cp.ssh(shared.to_str().unwrap()).words("--via ssh").arg(host.file("a")).arg(host.far("b")).ok();
    same(&host.file("a"), &host.file("b"));
}

#[test]
fn logins_that_ask_are_no_data_streams() {
    let host = Host::start();
    write(host.file("a"), "1");
    // The first login works, later ones do not.
    let tried = host.home().join("tried");
    let text = format!(
        "case \"$*\" in *BatchMode=yes*) echo >>{}; echo 'Permission denied (password).' >&2; exit 255;; esac\nexec {} \"$@\"",
        tried.display(),
        host.ssh
    );
    let once = host.script("once", &text);
    let mut cp = host.cp();
    cp.ssh(once.to_str().unwrap()).words("--via ssh -n 20").arg(host.file("a")).arg(host.far("b"));
    cp.fails_at_once(
        4,
        "cannot open an ssh connection to far for the data: Permission denied (password); each logs in",
    );
    // Those that were under way at once, and none after them.
    let tried = fs::read_to_string(tried).unwrap().lines().count();
    assert!((1..=8).contains(&tried), "{tried}");
}

#[test]
fn no_login_begins_after_an_interruption() {
    let host = Host::start();
    write(host.file("a"), "1");
    let tried = host.home().join("tried");
    let text = format!(
        "case \"$*\" in *BatchMode=yes*) echo >>{}; exec sleep 60;; esac\nexec {} \"$@\"",
        tried.display(),
        host.ssh
    );
    let slow = host.script("slow", &text);
    let mut cp = host.cp();
    cp.ssh(slow.to_str().unwrap()).words("--via ssh -n 20").arg(host.file("a")).arg(host.far("b"));
    let running = cp.start();
    let count = || fs::read_to_string(&tried).unwrap_or_default().lines().count();
    let until = Instant::now() + Duration::from_secs(20);
    while count() < 8 {
        assert!(Instant::now() < until, "{}", count());
        std::thread::sleep(Duration::from_millis(20));
    }
    let began = Instant::now();
    running.signal(nix::sys::signal::Signal::SIGINT);
    let done = running.wait();
    assert_eq!(done.code(), 130, "{}", done.err);
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert_eq!(count(), 8);
}

/// Its kernel would tell of the way to ssh, and of no other.
#[test]
fn a_copy_through_ssh_leaves_no_record() {
    let host = Host::start();
    write(host.file("a"), bytes(MIB, 1));
    let record = host.file("record.ndjson");
    let mut cp = host.cp();
    let done = cp.words("--via ssh --record").arg(&record).arg(host.file("a")).arg(host.far("b")).ok();
    assert!(done.err.contains("no record was written") && !record.exists(), "{}", done.err);
}
