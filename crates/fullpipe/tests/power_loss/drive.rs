//! Carries a scenario out, inside a guest.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::check::{self, Found, Known};
use crate::device::Device;
use crate::host::Host;
use crate::image::{self, Image};
use crate::machine::{DISK, Machine};
use crate::scenario::{Loss, Moment, Scenario};
use crate::tree::{self, Tree};

/// Port of the server.
const PORT: u16 = 7412;
/// What is copied, at the sending machine.
const SOURCE: &str = "/space/source";
/// The destination folder, below the receiving machine's file system.
const TARGET: &str = "target";
/// Virtual time after which a command that has not ended hangs.
const HANG: Duration = Duration::from_secs(20 * 60);

/// How a command ended, seen from the device.
struct Ended {
    at: Instant,
    /// Requests that the device had completed by then.
    requests: usize,
}

/// Another program on the receiving machine; it ends when this is dropped.
struct Neighbour {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

struct Stage {
    scenario: Scenario,
    program: PathBuf,
    began: Instant,
    near: Host,
    far: Host,
    machine: Machine,
    known: Known,
    commands: usize,
    /// A copy without --fsync had finished before power was lost: files of it that lack content are whole to `--update`.
    trusted: bool,
    /// Those files, when the last command had succeeded.
    lacking: BTreeSet<Vec<u8>>,
}

/// Runs the scenario of a seed with this fullpipe.
pub fn main(seed: u64, program: &str) -> ExitCode {
    // A failure of any thread is one of the whole.
    std::panic::set_hook(Box::new(|info| {
        println!("{info}");
        std::process::exit(1);
    }));
    image::check();
    let scenario = Scenario::new(seed);
    println!("{}", scenario.told());
    let (mut stage, image) = Stage::new(scenario, program.into());
    stage.run(image);
    ExitCode::SUCCESS
}

impl Stage {
    /// Makes what is copied, and what is at the destination before.
    fn new(scenario: Scenario, program: PathBuf) -> (Stage, Image) {
        let (near, far) = (Host::enter("a"), Host::enter("b"));
        let (sender, receiver) = if scenario.push { (near.clone(), far.clone()) } else { (far.clone(), near.clone()) };
        if let Some(time) = scenario.write_back {
            let hundredths = (time.as_secs_f64() * 100.0).ceil().to_string();
            for file in ["vm/dirty_writeback_centisecs", "vm/dirty_expire_centisecs"] {
                fs::write(format!("/proc/sys/{file}"), &hundredths).unwrap();
            }
        }
        let mut machine = Machine::new(receiver, scenario.file_system, scenario.speed);
        let (nodes, seed) = (scenario.tree.clone(), scenario.seed);
        let (source, contents) = sender.run(move || {
            let top = Path::new(SOURCE);
            tree::make(top, &nodes, seed);
            let tree = tree::look(top);
            let contents = check::contents(top, &tree);
            (tree, contents)
        });
        let empty = machine.format();
        let device = machine.boot(empty);
        let nodes = scenario.old.clone();
        let old = machine.host.run(move || {
            let top = Path::new(DISK).join(TARGET);
            fs::create_dir(&top).unwrap();
            if nodes.is_empty() {
                return Tree::new();
            }
            // Other bytes than the source's.
            tree::make(&top.join("source"), &nodes, !seed);
            tree::look(&top.join("source"))
        });
        let image = machine.halt(device).now;
        let present = old.keys().cloned().collect();
        let known = Known { source, contents, old, present, may_lack: !scenario.fsync };
        let began = Instant::now();
        let stage = Stage {
            scenario,
            program,
            began,
            near,
            far,
            machine,
            known,
            commands: 0,
            trusted: false,
            lacking: BTreeSet::new(),
        };
        (stage, image)
    }

    fn say(&self, text: impl std::fmt::Display) {
        println!("{:10.4} {text}", self.began.elapsed().as_secs_f64());
    }

    fn run(&mut self, mut image: Image) {
        let mut promised = false;
        let mut before = self.scenario.before;
        for loss in self.scenario.losses.clone() {
            let device = self.machine.boot(image);
            self.look_after_boot(promised);
            if let Some(part) = before.take() {
                self.known.may_lack = true;
                self.copy_without_fsync(self.scenario.usual().mul_f64(part));
            }
            let begin = (Instant::now(), device.completed());
            let end = self.copy(&device, self.scenario.update);
            if let Moment::After(time) = loss.moment {
                std::thread::sleep(time);
            }
            let requests = self.requests(&device, loss, begin, &end);
            promised = self.scenario.fsync && requests >= end.requests;
            let all = device.completed();
            image = self.machine.halt(device).after_loss(requests, loss.kept, loss.seed);
            self.say(format_args!(
                "power is lost after request {requests} of {all}; {} to {} were the command's",
                begin.1, end.requests
            ));
        }
        let device = self.machine.boot(image);
        self.look_after_boot(promised);
        self.copy(&device, self.scenario.update);
        if self.trusted {
            // Without --update all is copied anew.
            self.trusted = false;
            self.copy(&device, false);
        }
        self.machine.halt(device);
        self.say("done");
    }

    /// After how many requests power is lost.
    fn requests(&mut self, device: &Device, loss: Loss, begin: (Instant, usize), end: &Ended) -> usize {
        let part = |part: f64| begin.0 + (end.at - begin.0).mul_f64(part);
        let requests = match loss.moment {
            Moment::Request(fraction) => begin.1 + ((end.requests - begin.1) as f64 * fraction) as usize,
            Moment::Time(fraction) => device.completed_at(part(fraction)),
            Moment::After(time) => device.completed_at(end.at + time),
        };
        // The receiving end is done before the command has ended: it removes its journal when it knows that the other
        // end knows.
        let finished = end.at.checked_sub(3 * self.scenario.rtt + Duration::from_millis(50)).unwrap_or(begin.0);
        let finished = device.completed_at(finished);
        if self.scenario.renamed {
            // The same command then makes a second copy, within the first.
            return requests.min(finished);
        }
        self.trusted |= self.scenario.update && !self.scenario.fsync && requests >= finished;
        requests
    }

    /// The name of the copy in the destination folder.
    fn copy_name(&self) -> &'static str {
        if self.scenario.renamed { "new" } else { "source" }
    }

    fn look(&self) -> Tree {
        self.machine.host.run(|| tree::look(&Path::new(DISK).join(TARGET)))
    }

    /// Fails if something is under the destination's names that may never be.
    fn check(&self, target: &Tree) -> Found {
        let copy = self.copy_name();
        let path = |name: &[u8]| tree::at(&Path::new(DISK).join(TARGET).join(copy), name);
        let bytes = |name: &[u8]| {
            let path = path(name);
            self.machine.host.run(move || fs::read(path).unwrap())
        };
        let is_unfinished = |name: &[u8]| {
            let path = path(name);
            self.scenario.inplace && self.machine.host.run(move || tree::is_unfinished(&path))
        };
        self.known.check(target, copy.as_bytes(), bytes, is_unfinished)
    }

    /// `promised`: the command had succeeded with --fsync before power was lost.
    fn look_after_boot(&mut self, promised: bool) {
        let target = self.look();
        let found = self.check(&target);
        let copy = self.copy_name().as_bytes();
        if promised {
            assert!(found.unfinished.is_empty(), "they were whole: {:?}", found.unfinished);
            self.known.check_whole(&target, copy, &self.lacking);
            self.known.may_lack = self.trusted;
        }
        let names = target.keys().filter(|name| !check::is_scratch(name));
        self.known.present = names.filter_map(|name| check::inside(name, copy)).map(<[u8]>::to_vec).collect();
        let (lacking, unfinished, scratch) = (found.lacking.len(), found.unfinished.len(), found.scratch.len());
        let (there, all) = (self.known.present.len(), self.known.source.len());
        self.say(format_args!("{there} of {all} names are there, {lacking} lack content, {unfinished} are unfinished; {scratch} scratch files"));
    }

    /// Runs the command, which must succeed and leave all as it should be.
    fn copy(&mut self, device: &Device, update: bool) -> Ended {
        let server = self.serve();
        let neighbour = self.neighbour();
        let (_, done) = self.start(self.scenario.fsync, update);
        let status = done.recv_timeout(HANG).unwrap_or_else(|_| panic!("command {} hangs", self.commands));
        let ended = Ended { at: Instant::now(), requests: device.completed() };
        self.say(format_args!("command {}: {status}; {}", self.commands, errors("client", self.commands)));
        assert!(status.success(), "nothing that happened explains it");
        // Its last word takes half a round trip.
        std::thread::sleep(self.scenario.rtt + Duration::from_millis(100));
        stop(server, self.commands);
        drop(neighbour);
        let target = self.look();
        let found = self.check(&target);
        assert!(found.scratch.is_empty(), "it left {:?} behind", found.scratch);
        self.lacking = if self.trusted { found.lacking } else { BTreeSet::new() };
        self.known.check_whole(&target, self.copy_name().as_bytes(), &self.lacking);
        ended
    }

    /// Runs the command without --fsync, and kills it after a while.
    fn copy_without_fsync(&mut self, time: Duration) {
        let server = self.serve();
        let (pid, done) = self.start(false, self.scenario.update);
        let status = done.recv_timeout(time).or_else(|_| {
            // It may have ended just now.
            let _ = kill(pid, Signal::SIGKILL);
            done.recv_timeout(HANG)
        });
        let status = status.unwrap();
        self.trusted = self.scenario.update && status.success();
        self.say(format_args!("command {} without --fsync: {status}", self.commands));
        stop(server, self.commands);
    }

    /// Starts the other program on the receiving machine, which has a file of its own written to disk now and then.
    fn neighbour(&self) -> Option<Neighbour> {
        let pause = self.scenario.neighbour?;
        let (stop, stopped) = mpsc::channel::<()>();
        let host = self.machine.host.clone();
        let work = move || {
            while stopped.recv_timeout(pause) == Err(mpsc::RecvTimeoutError::Timeout) {
                host.run(|| {
                    let mut file =
                        File::options().create(true).append(true).open(Path::new(DISK).join("neighbour")).unwrap();
                    file.write_all(b"another line\n").unwrap();
                    file.sync_all().unwrap();
                });
            }
        };
        Some(Neighbour { stop: Some(stop), thread: Some(std::thread::spawn(work)) })
    }

    /// Starts the server: at the receiving machine, or at the sending one.
    fn serve(&mut self) -> Child {
        self.commands += 1;
        let root = if self.scenario.push { DISK } else { "/space" };
        let mut command = Command::new(&self.program);
        command.args([
            "serve",
            "--root",
            root,
            "--bind",
            "0.0.0.0",
            "--quiet",
            "--guest",
            "--insecure",
            "--allow-special",
        ]);
        let errors = File::create(format!("/.fullpipe/out/server.{}.err", self.commands)).unwrap();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors);
        let server = self.far.run(move || command.spawn().unwrap());
        // Nothing takes a program any virtual time but waiting.
        std::thread::sleep(Duration::from_millis(20));
        server
    }

    /// Starts the command. Returns its process, and where its end is told.
    fn start(&self, fsync: bool, update: bool) -> (Pid, mpsc::Receiver<ExitStatus>) {
        let Scenario { push, renamed, streams, block_kib, flags, .. } = &self.scenario;
        let name = if *renamed { "/new" } else { "" };
        let mut command = Command::new(&self.program);
        command.args(["cp", "-rp", "--insecure", "-n", &streams.to_string(), "--block", &format!("{block_kib}KiB")]);
        command.args(flags);
        command.args(fsync.then_some("--fsync")).args(update.then_some("--update"));
        if *push {
            command.args([SOURCE, &format!("fullpipe://b:{PORT}/{TARGET}{name}")]);
        } else {
            command.args([&format!("fullpipe://b:{PORT}/source"), &format!("{DISK}/{TARGET}{name}")]);
        }
        let said = File::create(format!("/.fullpipe/out/client.{}.err", self.commands)).unwrap();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
        let mut child = self.near.run(move || command.spawn().unwrap());
        let pid = Pid::from_raw(child.id() as i32);
        let (done, status) = mpsc::channel();
        std::thread::spawn(move || {
            // Nobody listens when all is over.
            let _ = done.send(child.wait().unwrap());
        });
        (pid, status)
    }
}

/// Kills a server, which must not have ended by itself.
fn stop(mut server: Child, number: usize) {
    assert!(server.try_wait().unwrap().is_none(), "the server has ended: {}", errors("server", number));
    server.kill().unwrap();
    server.wait().unwrap();
}

/// What a program said on standard error.
fn errors(kind: &str, number: usize) -> String {
    let text = fs::read(format!("/.fullpipe/out/{kind}.{number}.err")).unwrap_or_default();
    String::from_utf8_lossy(&text).trim().replace('\n', " | ")
}
