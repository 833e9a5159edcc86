//! Carries a plan out, inside a guest: at end a, with a hand in every host of the path.

mod check;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use nix::mount::{MsFlags, mount, umount};
use nix::sys::signal::{Signal, kill};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime, clock_settime};
use nix::unistd::Pid;

use crate::adversary;
use crate::disk::{self, Disk};
use crate::host::Host;
use crate::plan::{Adversary, Fault, Kind, Node, Plan, Trouble};
use crate::relay::Relay;
use crate::tree::{self, Seen, Tree};

/// Virtual time after which a command that has not ended hangs.
const HANG: Duration = Duration::from_secs(20 * 60);
/// Virtual time after which a copy that has not succeeded never will.
const NEVER: Duration = Duration::from_secs(2 * 3600);
/// Port of control connections, and those of the streams behind it.
const PORTS: std::ops::Range<u16> = 7412..7440;
/// Address of end b.
const B: [u8; 4] = [10, 0, 2, 1];
/// What is copied, at the host that has it.
const SOURCE: &str = "/space/source";
/// Where it goes.
const TARGET: &str = "/space/target";

/// Something due at an instant.
#[derive(Debug, Clone, PartialEq)]
enum Due {
    Fault(Fault),
    StartServer,
    Continue {
        server: bool,
    },
    MendLink,
    Release,
    EmptyDisk,
    /// The adversary of this place in the plan.
    Adversary(usize),
    /// The source's owner puts the folder of this place in the tree back.
    PutBack(usize),
}

impl Due {
    /// Whether it ends a fault, and so happens in any case.
    fn mends(&self) -> bool {
        !matches!(self, Due::Fault(_) | Due::Adversary(_))
    }
}

/// How a command ended.
#[derive(Debug)]
struct Ended {
    which: usize,
    status: std::process::ExitStatus,
}

struct Stage {
    plan: Plan,
    program: PathBuf,
    began: Instant,
    a: Host,
    b: Host,
    d: Host,
    relay: Option<Relay>,
    server: Option<Child>,
    servers: usize,
    /// Commands that run, by number.
    clients: BTreeMap<usize, Pid>,
    started: usize,
    /// Those that were killed, and by which signal.
    killed: BTreeMap<usize, i32>,
    ends: (mpsc::Sender<Ended>, mpsc::Receiver<Ended>),
    agenda: Vec<(Instant, Due)>,
    /// What each source file was at any time.
    versions: BTreeMap<Vec<u8>, Vec<Seen>>,
    /// What the destination had before.
    old: Tree,
    /// What has gone wrong, and may still be felt: it must explain how commands end.
    seen: BTreeSet<&'static str>,
    full: bool,
    /// The disks of the source and of the destination.
    disks: Option<[Disk; 2]>,
    /// Disks that stand still.
    stalls: Vec<std::thread::JoinHandle<()>>,
    /// Source files with a block that cannot be read.
    spoiled: BTreeSet<usize>,
    /// When each command started.
    since: BTreeMap<usize, Instant>,
    /// When a source file was last changed.
    changed: BTreeMap<Vec<u8>, Instant>,
    /// The last that copied everything.
    succeeded: Option<usize>,
}

/// Runs the plan of a seed with this fullpipe.
pub fn main(seed: u64, program: &str) -> ExitCode {
    // A failure of any thread is one of the whole.
    std::panic::set_hook(Box::new(|info| {
        for server in 1..100 {
            let said = errors("server", server);
            if !said.is_empty() {
                println!("server {server}: {said}");
            }
        }
        println!("{info}");
        std::process::exit(1);
    }));
    let mut stage = Stage::new(Plan::new(seed), program.into());
    stage.run();
    ExitCode::SUCCESS
}

impl Stage {
    fn new(plan: Plan, program: PathBuf) -> Stage {
        println!("{}", plan.told());
        Stage {
            relay: plan.relay.then(|| Relay::start(PORTS, B, plan.seed)),
            plan,
            program,
            began: Instant::now(),
            a: Host::enter("a"),
            b: Host::enter("b"),
            d: Host::enter("d"),
            server: None,
            servers: 0,
            clients: BTreeMap::new(),
            started: 0,
            killed: BTreeMap::new(),
            ends: mpsc::channel(),
            agenda: Vec::new(),
            versions: BTreeMap::new(),
            old: Tree::new(),
            seen: BTreeSet::new(),
            full: false,
            disks: None,
            stalls: Vec::new(),
            spoiled: BTreeSet::new(),
            since: BTreeMap::new(),
            changed: BTreeMap::new(),
            succeeded: None,
        }
    }

    fn source(&self) -> &Host {
        if self.plan.push { &self.a } else { &self.b }
    }

    fn target(&self) -> &Host {
        if self.plan.push { &self.b } else { &self.a }
    }

    fn say(&self, text: impl std::fmt::Display) {
        println!("{:10.4} {text}", self.began.elapsed().as_secs_f64());
    }

    fn run(&mut self) {
        self.prepare();
        for faults in self.plan.rounds.clone() {
            let now = Instant::now();
            self.agenda.extend(faults.into_iter().map(|(at, fault)| (now + at, Due::Fault(fault))));
            for (i, (_, every)) in self.plan.adversaries.clone().into_iter().enumerate() {
                self.later(every, Due::Adversary(i));
            }
            self.start_client();
            self.until_clients_end();
            self.agenda.retain(|(_, due)| due.mends());
        }
        self.say("from here on only what is broken is mended");
        self.mend();
        // When the last is mended; and an end that has not noticed may wait for its --stall.
        let last = self.agenda.iter().map(|(at, _)| *at).max().unwrap_or_else(Instant::now);
        let quiet = last + self.plan.stall;
        while !self.complete() {
            assert!(self.began.elapsed() < NEVER, "the copy never succeeds");
            self.sleep(Duration::from_secs(3));
            if Instant::now() > quiet {
                self.seen.retain(|kind| *kind == "weather");
            }
        }
        self.tidy();
        self.source().run(adversary::check);
        self.target().run(adversary::check);
        self.say("done");
    }

    /// The trees, the server.
    fn prepare(&mut self) {
        let (nodes, seed) = (self.plan.tree.clone(), self.plan.seed);
        if self.plan.disks {
            let (from, to) = if self.plan.push { ('a', 'b') } else { ('b', 'a') };
            self.disks = Some([Disk::make(self.source(), from), Disk::make(self.target(), to)]);
        }
        self.source().run(move || tree::make(Path::new(SOURCE), &nodes, seed));
        self.source().run(adversary::prepare);
        self.target().run(adversary::prepare);
        self.note_versions();
        let before: u64 = self.plan.old.iter().map(Node::bytes).sum();
        let room = self.plan.room.map(|part| before + (self.plan.bytes() as f64 * part) as u64);
        self.full = room.is_some();
        if self.full {
            self.seen.insert("full");
        }
        let on_disk = self.disks.is_some();
        self.target().run(move || {
            fs::create_dir(TARGET).unwrap();
            if on_disk {
                return;
            }
            let options = format!("size={},mode=755", room.unwrap_or(400 << 20).max(64 << 10));
            mount(Some("tmpfs"), TARGET, Some("tmpfs"), MsFlags::empty(), Some(options.as_str())).unwrap();
        });
        if !self.plan.old.is_empty() {
            let nodes = self.plan.old.clone();
            self.old = self.target().run(move || {
                let top = Path::new(TARGET).join("source");
                // Other bytes than the source's.
                tree::make(&top, &nodes, !seed);
                tree::look(&top)
            });
        }
        if let Some(i) = self.plan.unreadable {
            self.seen.insert("unreadable");
            let file = self.node_path(i);
            // A regular file, says the kernel, and then refuses to read it.
            self.source().run(move || {
                let bad = "/sys/class/net/lo/phys_switch_id";
                mount(Some(bad), &file, None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
            });
        }
        self.link(self.plan.path);
        if self.plan.path != Trouble::default() {
            self.seen.insert("weather");
        }
        self.start_server();
    }

    fn node_path(&self, i: usize) -> PathBuf {
        use std::os::unix::ffi::OsStrExt;
        Path::new(SOURCE).join(std::ffi::OsStr::from_bytes(&self.plan.tree[i].name))
    }

    /// Sets what the path does to packets.
    fn link(&self, trouble: Trouble) {
        let percent = |p: f64| format!("{}%", p * 100.0);
        let words = |loss: f64, more: &Trouble| {
            let mut words: Vec<String> = vec!["loss".into(), percent(loss)];
            // What overtakes needs something to overtake.
            if more.reorder > 0.0 {
                words.extend(["delay".into(), "1ms".into(), "reorder".into(), percent(more.reorder)]);
            }
            // None too: what `change` is not told of corruption stays as it was.
            for (name, p) in [("duplicate", more.duplicate), ("corrupt", more.corrupt)] {
                words.extend([name.into(), percent(p)]);
            }
            words
        };
        let both = [("d1", words(trouble.loss, &trouble)), ("d0", words(trouble.loss_back, &Trouble::default()))];
        self.d.run(move || {
            for (link, words) in both {
                let change = ["qdisc", "change", "dev", link, "root", "netem", "limit", "1000000"];
                assert!(Command::new("tc").args(change).args(words).status().unwrap().success());
            }
        });
    }

    fn start_server(&mut self) {
        self.servers += 1;
        let mut command = Command::new(&self.program);
        command.args([
            "serve",
            "--root",
            "/space",
            "--bind",
            "0.0.0.0",
            "--quiet",
            "--guest",
            "--allow-special",
            "--data-ports",
        ]);
        command.arg(format!("{}-{}", PORTS.start + 1, PORTS.end - 1));
        if self.plan.tls {
            command.args(["--allow-plain", "--token-file", "/tmp/token"]);
        } else {
            command.arg("--insecure");
        }
        let errors = File::create(format!("/.fullpipe/out/server.{}.err", self.servers)).unwrap();
        // With the processes that serve its clients it is one group.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors).process_group(0);
        self.server = Some(self.b.run(move || command.spawn().unwrap()));
        // Nothing takes a program any virtual time but waiting.
        self.sleep(Duration::from_millis(20));
        if self.plan.tls {
            let token = self.b.run(|| fs::read("/tmp/token").unwrap());
            self.a.run(move || fs::write("/tmp/token", token).unwrap());
        }
    }

    fn server_pid(&self) -> Option<Pid> {
        self.server.as_ref().map(|child| Pid::from_raw(child.id() as i32))
    }

    /// The server and the processes that serve its clients, as kill(2) takes them.
    fn server_group(&self) -> Option<Pid> {
        self.server_pid().map(|pid| Pid::from_raw(-pid.as_raw()))
    }

    fn check_server(&mut self) {
        if let Some(server) = &mut self.server {
            let ended = server.try_wait().unwrap();
            assert!(ended.is_none(), "the server has ended by itself: {ended:?}; {}", errors("server", self.servers));
        }
    }

    fn start_client(&mut self) {
        self.check_server();
        let which = self.started;
        self.started += 1;
        let host = if self.relay.is_some() { "127.0.0.1" } else { "b" };
        let far = |path: &str| format!("fullpipe://{host}:{}{}", PORTS.start, path.strip_prefix("/space").unwrap());
        let plan = &self.plan;
        let mut command = Command::new(&self.program);
        command.args(["cp", "-rp", "-n", &plan.streams.to_string(), "--block", &format!("{}KiB", plan.block_kib)]);
        command.args(["--stall", &format!("{}ms", plan.stall.as_millis())]).args(&plan.flags);
        if plan.tls {
            command.args(["--token-file", "/tmp/token"]);
        } else {
            command.arg("--insecure");
        }
        if plan.plain {
            command.arg("--no-encrypt");
        }
        if plan.udt {
            // Both ends share the guest's memory.
            command.args(["--transport", "udt", "--buffer", "8MB"]);
        }
        if plan.seed.is_multiple_of(3) {
            command.arg("--verify");
        }
        if plan.push {
            command.args([SOURCE, &far(TARGET)]);
        } else {
            command.args([&far(SOURCE), TARGET]);
        }
        let output = |kind| File::create(format!("/.fullpipe/out/client.{which}.{kind}")).unwrap();
        command.stdin(Stdio::null()).stdout(output("out")).stderr(output("err"));
        let (told, pid) = mpsc::channel();
        let done = self.ends.0.clone();
        let a = self.a.clone();
        std::thread::spawn(move || {
            let mut child = a.run(move || command.spawn().unwrap());
            told.send(Pid::from_raw(child.id() as i32)).unwrap();
            let status = child.wait().unwrap();
            // Nobody listens when all is over.
            let _ = done.send(Ended { which, status });
        });
        self.clients.insert(which, pid.recv().unwrap());
        self.since.insert(which, Instant::now());
        self.say(format_args!("command {which} starts"));
    }

    /// Lets time pass, and what is due in it happen.
    fn sleep(&mut self, time: Duration) {
        let until = Instant::now() + time;
        while Instant::now() < until {
            self.step(until);
        }
    }

    fn until_clients_end(&mut self) {
        let since = Instant::now();
        while !self.clients.is_empty() {
            if since.elapsed() > HANG {
                let stacks: Vec<String> =
                    self.clients.values().chain(&self.server_pid()).map(|pid| stacks(*pid)).collect();
                panic!("commands {:?} hang:\n{}", self.clients, stacks.join("\n"));
            }
            self.step(since + HANG + Duration::from_secs(1));
        }
    }

    /// Waits for the next thing, at most until an instant, and deals with it.
    fn step(&mut self, until: Instant) {
        let next = self.agenda.iter().map(|(at, _)| *at).min().unwrap_or(until).min(until);
        match self.ends.1.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Ok(ended) => self.ended(&ended),
            Err(_) => {
                let now = Instant::now();
                self.agenda.sort_by_key(|(at, _)| *at);
                while self.agenda.first().is_some_and(|(at, _)| *at <= now) {
                    let (_, due) = self.agenda.remove(0);
                    self.happen(due);
                }
            }
        }
    }

    fn later(&mut self, after: Duration, due: Due) {
        self.agenda.push((Instant::now() + after, due));
    }

    fn happen(&mut self, due: Due) {
        self.say(format_args!("{due:?}"));
        let signal = |pid: Option<Pid>, signal| {
            if let Some(pid) = pid {
                // It may have ended just now.
                let _ = kill(pid, signal);
            }
        };
        let client = self.clients.iter().next().map(|(which, pid)| (*which, *pid));
        let fault = match due {
            Due::StartServer => return self.start_server(),
            Due::Continue { server: true } => return signal(self.server_group(), Signal::SIGCONT),
            Due::Continue { server: false } => {
                return self.clients.values().for_each(|pid| signal(Some(*pid), Signal::SIGCONT));
            }
            Due::MendLink => return self.link(self.plan.path),
            Due::EmptyDisk => return disk::empty(self.target()),
            Due::Release => return self.relay.iter().for_each(|relay| relay.hold(false)),
            Due::Adversary(i) => return self.adversary(i),
            Due::PutBack(i) => {
                let folder = self.node_path(i);
                self.source().run(move || adversary::exchange(&folder));
                return self.note_versions();
            }
            Due::Fault(fault) => fault,
        };
        match fault {
            Fault::KillClient => {
                if let Some((which, pid)) = client {
                    self.killed.insert(which, 9);
                    signal(Some(pid), Signal::SIGKILL);
                }
            }
            Fault::Interrupt => {
                self.seen.insert("interrupt");
                signal(client.map(|(_, pid)| pid), Signal::SIGINT);
            }
            Fault::KillServer(down) => {
                self.seen.insert("server");
                signal(self.server_group(), Signal::SIGKILL);
                if let Some(mut server) = self.server.take() {
                    server.wait().unwrap();
                    self.check_target();
                    self.later(down, Due::StartServer);
                }
            }
            Fault::PauseClient(time) => {
                self.seen.insert("pause");
                signal(client.map(|(_, pid)| pid), Signal::SIGSTOP);
                self.later(time, Due::Continue { server: false });
            }
            Fault::PauseServer(time) => {
                self.seen.insert("pause");
                signal(self.server_group(), Signal::SIGSTOP);
                self.later(time, Due::Continue { server: true });
            }
            Fault::Clock(seconds) => {
                let now = clock_gettime(ClockId::CLOCK_REALTIME).unwrap();
                let then = TimeSpec::new(now.tv_sec() + seconds, now.tv_nsec());
                clock_settime(ClockId::CLOCK_REALTIME, then).unwrap();
            }
            Fault::Twice => {
                self.seen.insert("twice");
                self.start_client();
            }
            Fault::Link(trouble, time) => {
                self.seen.insert("link");
                self.link(trouble);
                if let Some(time) = time {
                    self.later(time, Due::MendLink);
                }
            }
            // One that lies below another file system's cannot be changed.
            Fault::Change(i, _) if self.plan.unreadable == Some(i) || self.spoiled.contains(&i) => {}
            Fault::Change(i, how) => {
                self.seen.insert("change");
                let (node, number) =
                    (self.plan.tree[i].clone(), self.plan.seed ^ self.began.elapsed().as_nanos() as u64);
                self.source().run(move || tree::change(Path::new(SOURCE), &node, how, number));
                self.note_versions();
            }
            Fault::Flip { control, back } => {
                self.seen.insert("flip");
                self.relay.iter().for_each(|relay| relay.flip(control, back));
            }
            Fault::Hold(time) => {
                self.seen.insert("hold");
                self.relay.iter().for_each(|relay| relay.hold(true));
                self.later(time, Due::Release);
            }
            Fault::StallDisk { source, time } => {
                self.seen.insert("stall");
                let disk = self.disks.as_ref().map(|[from, to]| if source { from } else { to });
                self.stalls.extend(disk.map(|disk| disk.stall(time)));
            }
            Fault::SpoilFile(i) => {
                let file = self.node_path(i);
                if let Some([from, _]) = &self.disks
                    && self.spoiled.is_empty()
                    && from.spoil(self.source(), &file)
                {
                    self.spoiled.insert(i);
                    self.seen.insert("unreadable");
                }
            }
            Fault::FillDisk(time) => {
                self.seen.insert("full");
                disk::fill(self.target());
                if let Some(time) = time {
                    self.later(time, Due::EmptyDisk);
                }
            }
            Fault::Reset => {
                self.seen.insert("reset");
                self.relay.iter().for_each(Relay::reset);
            }
        }
    }

    /// Lets an adversary do what they do, and do it again later.
    fn adversary(&mut self, i: usize) {
        self.seen.insert("adversary");
        let (adversary, every) = self.plan.adversaries[i];
        let number = self.plan.seed ^ self.began.elapsed().as_nanos() as u64;
        match adversary {
            Adversary::LocalUser => self.target().run(move || adversary::plant(Path::new(TARGET), number)),
            Adversary::SourceOwner(i) => {
                // One folder is away at a time, and what cannot be read cannot be moved.
                let waits = self.source().run(adversary::link_waits);
                if waits && self.plan.unreadable.is_none() {
                    let folder = self.node_path(i);
                    self.source().run(move || adversary::exchange(&folder));
                    self.note_versions();
                    self.later(every.min(Duration::from_millis(5)), Due::PutBack(i));
                }
            }
            Adversary::Stranger => self.a.run(move || adversary::call(PORTS, B, number)),
            Adversary::Crasher => {
                if let Some(server) = self.server_pid() {
                    self.b.run(move || adversary::crash(server, number));
                }
            }
        }
        if !self.clients.is_empty() {
            // Rarer the longer it lasts: a minute of standing still is no time for 60,000 acts.
            self.later(every.max(self.began.elapsed() / 1000), Due::Adversary(i));
        }
    }

    /// What would stay broken for good is mended; what is mended by itself is waited for.
    fn mend(&mut self) {
        if !self.plan.adversaries.is_empty() {
            while self.agenda.iter().any(|(_, due)| matches!(due, Due::PutBack(_))) {
                self.sleep(Duration::from_millis(10));
            }
            let below = |node: &Node| Path::new(TARGET).join("source").join(OsStr::from_bytes(&node.name));
            let folders = self.plan.tree.iter().filter(|node| node.kind == Kind::Folder).map(below).collect::<Vec<_>>();
            // Nobody has put anything under the names of a copy's own files if it is in place: they say what is unfinished.
            let own = !self.plan.inplace;
            self.target().run(move || adversary::tidy(Path::new(TARGET), &folders, own));
        }
        if !self.agenda.iter().any(|(_, due)| *due == Due::MendLink) {
            self.link(self.plan.path);
        }
        if let Some(i) = self.plan.unreadable {
            let file = self.node_path(i);
            self.source().run(move || umount(&file).unwrap());
            self.seen.remove("unreadable");
        }
        for stall in self.stalls.drain(..) {
            stall.join().unwrap();
        }
        if let Some([from, _]) = &self.disks {
            from.mend();
            disk::empty(self.target());
            self.spoiled.clear();
            self.seen.remove("unreadable");
            self.seen.remove("full");
        }
        if self.full {
            self.target().run(|| {
                mount(None::<&str>, TARGET, None::<&str>, MsFlags::MS_REMOUNT, Some("size=400m")).unwrap();
            });
            self.seen.remove("full");
        }
        if self.plan.inplace {
            self.remove_unfinished();
        }
    }

    /// Removes unfinished files of the destination whose source is gone, as the command says when it names them.
    fn remove_unfinished(&self) {
        let (source, names) = (self.source().run(|| tree::look(Path::new(SOURCE))), self.old.keys());
        let gone: Vec<PathBuf> = names
            .chain(self.versions.keys())
            .filter(|name| !source.contains_key(*name))
            .map(|name| tree::at(&Path::new(TARGET).join("source"), name))
            .collect();
        self.target().run(move || {
            for path in gone.iter().filter(|path| tree::is_unfinished(path)) {
                fs::remove_file(path).unwrap();
            }
        });
    }

    /// Runs the command once more; says whether that was all.
    fn complete(&mut self) -> bool {
        self.start_client();
        let which = self.started - 1;
        self.until_clients_end();
        self.succeeded == Some(which)
    }
}

/// What a program said on standard error.
fn errors(kind: &str, number: usize) -> String {
    let text = fs::read(format!("/.fullpipe/out/{kind}.{number}.err")).unwrap_or_default();
    String::from_utf8_lossy(&text).trim().replace('\n', " | ")
}

/// Where the threads of a process wait.
fn stacks(pid: Pid) -> String {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten().map(|entry| {
        let read = |name: &str| fs::read_to_string(entry.path().join(name)).unwrap_or_default().trim().to_owned();
        format!("{pid}: {} in {} ({})", read("comm"), read("wchan"), read("syscall"))
    });
    tasks.collect::<Vec<_>>().join("\n")
}
