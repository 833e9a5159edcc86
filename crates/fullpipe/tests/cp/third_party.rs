//! Copies between two other hosts, each with an sshd of its own.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use fullpipe_transfer::protocol::frame;
use fullpipe_transfer::protocol::message::{Message, Task};
use nix::sys::signal::Signal;

use crate::host::{Cp, Done, FULLPIPE, Host, in_mount_namespace, until};
use crate::large::{MIB, some_blocks};
use crate::tree::{bytes, leftovers, same, write};

/// Two hosts, which ssh calls `alpha` and `beta`.
struct Pair {
    alpha: Host,
    beta: Host,
    ssh: String,
}

impl Pair {
    fn start() -> Pair {
        let (alpha, beta) = (Host::start(), Host::start());
        let user = String::from_utf8(Command::new("id").arg("-un").output().unwrap().stdout).unwrap();
        let mut text = String::new();
        for (name, host) in [("alpha", &alpha), ("beta", &beta)] {
            let (port, key) = (host.port, host.key());
            text += &format!("Host {name}\n HostName 127.0.0.1\n Port {port}\n IdentityFile {}\n", key.display());
        }
        text += &format!(
            "Host refusing\n HostName 127.0.0.1\n Port 1\n\
             Host *\n User {user}\n IdentitiesOnly yes\n IdentityAgent none\n StrictHostKeyChecking no\n\
             UserKnownHostsFile /dev/null\n GlobalKnownHostsFile /dev/null\n BatchMode yes\n LogLevel ERROR\n"
        );
        let config = alpha.home().join("pair_config");
        fs::write(&config, text).unwrap();
        Pair { ssh: format!("ssh -F {}", config.display()), alpha, beta }
    }

    /// `fullpipe cp` with what both hosts run.
    fn cp(&self) -> Cp {
        let mut cp = self.alpha.cp();
        cp.ssh(&self.ssh);
        cp
    }

    /// A copy from a file of alpha to one of beta, with `--json` and such words.
    fn copy(&self, words: &str, from: &str, to: &str) -> Cp {
        let mut cp = self.cp();
        cp.arg("--json").words(words).arg(self.from(from)).arg(self.to(to));
        cp
    }

    fn from(&self, name: &str) -> String {
        format!("alpha:{}", self.alpha.file(name).display())
    }

    fn to(&self, name: &str) -> String {
        format!("beta:{}", self.beta.file(name).display())
    }

    /// An ssh in whose configuration some hosts have names that nobody can resolve.
    fn ssh_without(&self, names: &[&str]) -> String {
        let unknown = names.join("|");
        let text = format!(
            "g=; for a; do [ \"$a\" = -G ] && g=y; done\n\
             [ -n \"$g\" ] && case \"$a\" in {unknown}) echo hostname node7.cluster.invalid; exit;; esac\n\
             exec {} \"$@\"",
            self.ssh
        );
        self.alpha.script("unresolved", &text).to_str().unwrap().to_owned()
    }

    /// Makes a tree at alpha.
    fn tree(&self) -> PathBuf {
        let tree = self.alpha.file("tree");
        write(tree.join("large"), bytes(20 * MIB, 1));
        write(tree.join("empty"), "");
        (0..50).for_each(|i| write(tree.join(format!("small/{i}")), bytes(i * 100, i as u64)));
        tree
    }
}

/// The notes of a copy with `--json`.
fn notes(done: &Done) -> Vec<String> {
    let notes = done.json().into_iter().filter(|line| line["kind"] == "note");
    notes.map(|line| line["note"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn data_go_straight_from_host_to_host() {
    let pair = Pair::start();
    let tree = pair.tree();
    for (words, to) in [("", "a"), ("--via tcp -n 3", "b"), ("--no-encrypt", "c"), ("--steady --verify -H", "d")] {
        let done = pair.copy("-rT", "tree", to).words(words).ok();
        same(&tree, &pair.beta.file(to));
        assert_eq!(notes(&done), [""; 0]);
        assert_eq!((done.number("files"), done.number("bytes") >= 20 * MIB as u64), (52, true), "{}", done.out);
        assert_eq!(done.json().pop().unwrap()["encrypted"], words != "--no-encrypt");
    }
    assert!(leftovers(&pair.alpha.file("")).is_empty() && leftovers(&pair.beta.file("")).is_empty());
    // As people see it.
    let mut cp = pair.cp();
    let done = cp.arg("-rv").arg(pair.from("tree")).arg(pair.to("in/")).ok();
    assert!(done.out.lines().any(|line| line == "tree/small/7") && done.err.contains("52 files, "), "{done:?}");
    assert!(!done.err.contains("through"), "{}", done.err);
}

#[test]
fn the_destination_connects_if_the_source_cannot() {
    let pair = Pair::start();
    pair.tree();
    let ssh = pair.ssh_without(&["beta"]);
    let done = pair.copy("-rT", "tree", "a").ssh(&ssh).ok();
    same(&pair.alpha.file("tree"), &pair.beta.file("a"));
    assert_eq!(notes(&done), [""; 0]);
}

#[test]
fn data_go_through_here_if_no_host_reaches_the_other() {
    let pair = Pair::start();
    pair.tree();
    let ssh = pair.ssh_without(&["alpha", "beta"]);
    let mut cp = pair.copy("--via tcp", "tree/large", "x");
    let done = cp.ssh(&ssh).fails(4, "alpha and beta cannot connect to each other for the data");
    assert!(done.err.contains("from alpha to ") && done.err.contains("from beta to "), "{}", done.err);
    let done = pair.copy("-rT", "tree", "a").ssh(&ssh).ok();
    same(&pair.alpha.file("tree"), &pair.beta.file("a"));
    let said = notes(&done);
    assert!(said.len() == 1 && said[0].contains("copying through this host"), "{said:?}");
    // The second time it is known, and for this pair only.
    let said = notes(&pair.copy("-rT", "tree", "b").ssh(&ssh).ok());
    assert!(said.len() == 1 && said[0].contains("could not connect to each other before"), "{said:?}");
    let mut back = pair.cp();
    back.ssh(&ssh).arg("--json").arg(pair.to("a/large")).arg(pair.from("back"));
    let said = notes(&back.ok());
    assert!(said.len() == 1 && said[0].contains("cannot connect to each other"), "{said:?}");
    // As asked for, which is not worth a word.
    let done = pair.copy("-rT --via ssh -n 3", "tree", "c").ok();
    same(&pair.alpha.file("tree"), &pair.beta.file("c"));
    assert_eq!(notes(&done), [""; 0]);
    assert_eq!(done.json().pop().unwrap()["transport"]["streams"], 3);
}

#[test]
fn a_port_that_a_firewall_drops() {
    let dropped = "21000-21015";
    let drop = format!("chain in {{ type filter hook input priority 0; tcp dport {dropped} drop; }};");
    crate::firewall::behind(&format!("table inet test {{ {drop} }}"), || {
        let pair = &Pair::start();
        pair.tree();
        let done = pair.copy("-rT --data-ports 21000-21015", "tree", "a").ok();
        same(&pair.alpha.file("tree"), &pair.beta.file("a"));
        let said = notes(&done);
        assert!(said.len() == 1 && said[0].contains("no answer") && said[0].contains("through this host"), "{said:?}");
    });
}

/// Machines on the way take every connection for their own, and close it.
#[test]
fn ports_at_which_somebody_else_answers() {
    let to_another = "ip daddr 127.0.0.2 tcp dport 1024-65535 redirect to :1023";
    let nat = format!("chain out {{ type nat hook output priority -100; {to_another}; }};");
    crate::firewall::behind(&format!("table ip test {{ {nat} }}"), || {
        let pair = &Pair::start();
        pair.tree();
        let listener = TcpListener::bind("127.0.0.1:1023").unwrap();
        std::thread::spawn(move || listener.incoming().for_each(drop));
        let text =
            format!("for a; do [ \"$a\" = -G ] && echo hostname 127.0.0.2 && exit; done\nexec {} \"$@\"", pair.ssh);
        let ssh = pair.alpha.script("elsewhere", &text);
        let done = pair.copy("-rT", "tree", "a").ssh(ssh.to_str().unwrap()).ok();
        let said = notes(&done);
        assert!(said.len() == 1 && said[0].contains("copying through this host"), "{said:?}");
        same(&pair.alpha.file("tree"), &pair.beta.file("a"));
    });
}

#[test]
fn one_host_on_both_sides() {
    let pair = Pair::start();
    let tree = pair.tree();
    let here = |name: &str| format!("alpha:{}", pair.alpha.file(name).display());
    // A single port is enough, also for the one that is asked first.
    pair.cp().words("-rT --via tcp --data-ports 21900-21900").arg(here("tree")).arg(here("a")).ok();
    same(&tree, &pair.alpha.file("a"));
    // A folder is not copied into itself.
    for to in ["tree/zz/", "tree"] {
        let mut cp = pair.cp();
        cp.arg("-r").arg(here("tree")).arg(here(to)).fails_at_once(2, "which would be copied into itself; choose");
    }
    pair.cp().words("-r --exclude zz").arg(here("tree")).arg(here("tree/zz/")).ok();
    fs::remove_dir_all(pair.alpha.file("tree/zz")).unwrap();
    // Whatever its name means elsewhere.
    let ssh = pair.ssh_without(&["alpha"]);
    pair.cp().ssh(&ssh).words("-rT --via tcp").arg(here("tree")).arg(here("b")).ok();
    same(&tree, &pair.alpha.file("b"));
}

#[test]
fn several_sources_and_patterns_of_one_host() {
    let pair = Pair::start();
    pair.tree();
    let mut cp = pair.cp();
    cp.arg("-r").args(&[pair.from("tree/small/1?"), pair.from("tree/large"), pair.to("in/")]).ok();
    let names = fs::read_dir(pair.beta.file("in")).unwrap().count();
    assert_eq!(names, 11);
}

#[test]
fn a_dry_run_counts_and_compares() {
    let pair = Pair::start();
    pair.tree();
    let done = pair.copy("-r --dry-run", "tree", "in/").ok();
    let said = done.json().pop().unwrap();
    assert_eq!((&said["kind"], &said["files"], &said["rtt_s"]), (&"dry_run".into(), &52.into(), &().into()));
    assert_eq!((&said["transport"], &said["why"]), (&().into(), &serde_json::json!([])));
    assert!(!pair.beta.file("in").exists());
    pair.copy("-r", "tree", "in/").ok();
    for name in ["old", "small/old"] {
        write(pair.beta.file("in/tree").join(name), "x");
    }
    write(pair.alpha.file("tree/small/10"), "changed");
    write(pair.alpha.file("tree/added"), "added");
    let said = pair.copy("-ru --dry-run", "tree", "in/").ok().json().pop().unwrap();
    let numbers = ["files", "new", "replaced", "present"].map(|key| said[key].as_u64().unwrap());
    assert_eq!(numbers, [2, 1, 1, 51], "{said}");
    let mut cp = pair.cp();
    let done = cp.words("-r --dry-run --delete").arg(pair.from("tree")).arg(pair.to("in/")).ok();
    assert!(
        done.out.contains("would delete  tree/small/old") && done.out.contains("2 files and folders"),
        "{}",
        done.out
    );
    assert!(done.out.contains("measured the path between the two hosts"), "{}", done.out);
    let done = pair.copy("-ruv --delete", "tree", "in/").ok();
    same(&pair.alpha.file("tree"), &pair.beta.file("in/tree"));
    assert_eq!((done.number("deleted"), done.number("skipped")), (2, 51), "{}", done.out);
    let deleted = done.json().iter().filter(|line| line["kind"] == "deleted").count();
    assert_eq!(deleted, 2, "{}", done.out);
}

/// Waits until processes have ended.
fn gone(ids: &str) {
    let alive = |id: &&str| Path::new("/proc").join(id).exists();
    until("the far ends end", || ids.lines().filter(alive).count() == 0);
}

#[test]
fn an_interrupted_copy_ends_at_both_hosts_and_goes_on() {
    for via in ["tcp", "ssh"] {
        let pair = Pair::start();
        write(pair.alpha.file("large"), bytes(60 * MIB, 7));
        fs::create_dir(pair.beta.file("to")).unwrap();
        let (program, ids) = pair.alpha.known_by_id();
        let copy = |words: &str| {
            let mut cp = pair.copy(&format!("--via {via}"), "large", "to/");
            cp.words(words);
            cp
        };
        for signal in [Signal::SIGINT, Signal::SIGKILL] {
            let running = copy("--pacing 80mbit --block 1MiB").far_program(&program).start();
            some_blocks(&pair.beta.file("to"));
            running.signal(signal);
            let done = running.wait();
            if signal == Signal::SIGINT {
                assert_eq!((done.code(), done.err.lines().count()), (130, 1), "{}", done.err);
            }
            let ids = fs::read_to_string(&ids).unwrap();
            assert!(ids.lines().count() >= 2, "{ids}");
            gone(&ids);
        }
        let done = copy("").ok();
        assert!(done.number("bytes") < 58 * MIB as u64, "{}", done.out);
        same(&pair.alpha.file("large"), &pair.beta.file("to/large"));
        assert!(leftovers(&pair.beta.file("")).is_empty());
    }
}

#[test]
fn a_lost_connection_is_made_again() {
    let pair = Pair::start();
    write(pair.alpha.file("large"), bytes(30 * MIB, 7));
    fs::create_dir(pair.beta.file("to")).unwrap();
    let (program, ids) = pair.alpha.known_by_id();
    let running = pair.copy("--pacing 80mbit --block 1MiB", "large", "to/").far_program(&program).start();
    some_blocks(&pair.beta.file("to"));
    // The source's, which was started first.
    let id = fs::read_to_string(&ids).unwrap().lines().next().unwrap().parse().unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(id), Signal::SIGKILL).unwrap();
    let done = running.wait();
    assert_eq!(done.code(), 0, "{}", done.err);
    let said = notes(&done);
    assert!(said.len() == 1 && said[0].contains("alpha") && said[0].ends_with("connecting again"), "{said:?}");
    same(&pair.alpha.file("large"), &pair.beta.file("to/large"));
}

#[test]
fn an_error_names_its_host() {
    let pair = Pair::start();
    write(pair.alpha.file("a"), "1");
    let fails = |from: &str, to: &str, code: i32, part: &str| {
        pair.cp().args(&[from, to]).fails_at_once(code, part);
    };
    fails(&pair.from("none"), &pair.to("x"), 2, "alpha refused: ");
    fails(&pair.from("a"), &pair.to("none/x"), 2, "beta refused: ");
    fails(&pair.from("a"), "beta:/proc/fullpipe/", 5, "beta refused: ");
    fails("refusing:a", &pair.to("x"), 4, "ssh refusing: ");
    fails(&pair.from("a"), "refusing:a", 4, "ssh refusing: ");
    // A file that cannot be copied.
    nix::unistd::mkfifo(&pair.alpha.file("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let done = pair.copy("", "fifo", "in/").run();
    assert!(done.code() == 1 && done.err.contains("not copied: fifo"), "{}", done.err);
    // With the files of a full disk.
    in_mount_namespace(|| {
        use nix::mount::{MsFlags, mount};
        let pair = Pair::start();
        write(pair.alpha.file("large"), bytes(3 * MIB, 1));
        fs::create_dir(pair.beta.file("full")).unwrap();
        mount(Some("none"), &pair.beta.file("full"), Some("tmpfs"), MsFlags::empty(), Some("size=1m")).unwrap();
        for via in ["--via tcp", "--via ssh"] {
            let mut cp = pair.cp();
            cp.words(via).arg(pair.from("large")).arg(pair.to("full/"));
            cp.fails(5, "the transfer failed at beta: no space left");
        }
        nix::mount::umount(&pair.beta.file("full")).unwrap();
    });
}

#[test]
fn a_host_without_fullpipe_gets_it() {
    let pair = Pair::start();
    pair.tree();
    let copy = |words: &str, to: &str| {
        let mut cp = pair.alpha.bare_cp();
        cp.ssh(&pair.ssh).arg("--json").words(words).arg("-rT").arg(pair.from("tree")).arg(pair.to(to));
        cp
    };
    let said = notes(&copy("", "a").ok());
    assert!(
        said.len() == 2 && said[0].contains("alpha has no fullpipe") && said[1].contains("beta has no fullpipe"),
        "{said:?}"
    );
    same(&pair.alpha.file("tree"), &pair.beta.file("a"));
    assert_eq!(notes(&copy("--no-deploy --via ssh", "b").ok()), [""; 0]);
    same(&pair.alpha.file("tree"), &pair.beta.file("b"));
}

#[test]
fn each_host_has_its_configuration() {
    let pair = Pair::start();
    write(pair.alpha.file("a"), "1");
    let folder = pair.alpha.home().join(".config/fullpipe");
    fs::create_dir_all(&folder).unwrap();
    let text = format!(
        "[host.alpha]\nfar-program = \"{FULLPIPE}\"\ndata-ports = \"1-1\"\nssh = \"{0}\"\n\
         [host.beta]\nfar-program = \"{FULLPIPE}\"\nssh = \"{0}\"\nvia = \"tcp\"\n",
        pair.ssh
    );
    fs::write(folder.join("config.toml"), text).unwrap();
    pair.cp().without_flags().args(&[pair.from("a"), pair.to("b")]).ok();
    same(&pair.alpha.file("a"), &pair.beta.file("b"));
    // That a host connects to this one says nothing of the two; typed, it is refused.
    let text = fs::read_to_string(folder.join("config.toml")).unwrap().replace("via = \"tcp\"", "via = \"reverse\"");
    fs::write(folder.join("config.toml"), text).unwrap();
    pair.cp().without_flags().args(&[pair.from("a"), pair.to("c")]).ok();
    same(&pair.alpha.file("a"), &pair.beta.file("c"));
    let refused = pair.cp().without_flags().args(&["--via", "reverse", &pair.from("a"), &pair.to("d")]).run();
    assert!(refused.code() == 2 && refused.err.contains("--via reverse has an effect only"), "{}", refused.err);
}

/// What a host says is shown without its escape sequences, also by the name of a file.
#[test]
fn nothing_that_a_host_says_reaches_the_terminal_as_it_is() {
    let pair = Pair::start();
    write(pair.alpha.file("in/a\x1b]0;x\x07b"), "1");
    let done = pair.cp().arg("-rv").arg(pair.from("in")).arg(pair.to("x/")).ok();
    assert!(done.out.contains(r"in/$'a\x1b]0;x\x07b'") || done.out.contains(r"$'in/a\x1b]0;x\x07b'"), "{}", done.out);
    let text = "printf 'oh \\033]0;x\\007 no\\n' >&2; exit 1";
    let hostile = pair.alpha.script("hostile", text);
    let done = pair.cp().far_program(&hostile).arg(pair.from("in")).arg(pair.to("x/")).arg("-r").run();
    assert!(done.code() == 4 && done.err.contains(r"alpha: oh \x1b]0;x\x07 no"), "{}", done.err);
}

/// Passes bytes on until they end. `std::io::copy` would hold a pipe's lock meanwhile (splice(2)).
fn pass(from: &mut impl Read, to: &mut impl Write) {
    let mut buffer = [0; 4096];
    while let Ok(n @ 1..) = from.read(&mut buffer) {
        if to.write_all(&buffer[..n]).is_err() {
            return;
        }
    }
}

/// A source that sends other files than it was asked for: a client of the user's own, between the copy and a real far end.
#[test]
fn the_destination_takes_no_other_names_than_were_asked_for() {
    let pair = Pair::start();
    write(pair.alpha.file("a"), "1");
    write(pair.alpha.file(".bashrc"), "evil");
    let evil = pair.alpha.file(".bashrc");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let text = format!(
        "case \"$*\" in *-G*) echo hostname 127.0.0.1; exit;; *alpha*) ;; *) exec {} \"$@\";; esac\n\
         exec bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port}; cat <&3 & exec cat >&3'",
        pair.ssh
    );
    let ssh = pair.alpha.script("between", &text);
    let between = std::thread::spawn(move || {
        let (client, _) = listener.accept().unwrap();
        let mut far = Command::new(FULLPIPE).arg("far").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (mut input, mut output) = (far.stdin.take().unwrap(), far.stdout.take().unwrap());
        let mut back = client.try_clone().unwrap();
        let answers = std::thread::spawn(move || {
            pass(&mut output, &mut back);
            let _ = back.shutdown(std::net::Shutdown::Both);
        });
        let mut from = client;
        loop {
            let mut message: Message = frame::receive(&mut from).unwrap();
            let mut changed = false;
            if let Message::Setup(setup) = &mut message
                && let Task::Pull(sources) = &mut setup.task
            {
                sources.paths = vec![evil.to_str().unwrap().into()];
                changed = true;
            }
            frame::send(&mut input, &message).unwrap();
            if changed {
                break;
            }
        }
        pass(&mut from, &mut input);
        drop(input);
        answers.join().unwrap();
        far.wait().unwrap();
    });
    let mut cp = pair.cp();
    let done = cp.ssh(ssh.to_str().unwrap()).arg(pair.from("a")).arg(pair.to("in/")).run();
    assert_eq!(done.code(), 1, "{}", done.err);
    assert!(done.err.contains("not copied: .bashrc") && done.err.contains("was not asked for"), "{}", done.err);
    assert!(!pair.beta.file("in/.bashrc").exists());
    between.join().unwrap();
}
