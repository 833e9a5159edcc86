//! Runs a job's programs, samples the bottleneck's queue meanwhile, and makes the report.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use fullpipe_net::sys;
use fullpipe_path::lab_host::User;
use nix::mount::{MsFlags, mount};
use nix::sys::signal::{SigSet, Signal, kill, killpg};
use nix::sys::signalfd::SignalFd;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::seed::Draws;
use super::step::{Doing, Fallible};
use super::topology::Net;
use super::{cross_traffic, host_noise, root, topology};
use crate::job::{self, Ended, Job, OUT_FOLDER, Program, ProgramReport, QueueSample, Report, file};

/// Virtual time between asking a program to end and killing it, ns.
const GRACE_NS: u64 = 5_000_000_000;

struct Running {
    /// The program's process, which leads the group of the processes that it starts.
    pid: Option<Pid>,
    report: Option<ProgramReport>,
    start_ns: u64,
    /// Time at which the program is killed, ns; set when it has been asked to end.
    kill_ns: Option<u64>,
}

/// The state of a running scenario.
struct Stage<'a> {
    job: &'a Job,
    net: &'a Net,
    running: Vec<Running>,
    by_pid: HashMap<Pid, usize>,
    queue: Vec<QueueSample>,
    queue_back: Vec<QueueSample>,
    progress: File,
    noise: Vec<(job::End, host_noise::Noise)>,
    /// Number of the path's changes that have been made.
    changed: usize,
}

/// Makes a descriptor that is readable when a child has ended. Call it before any other thread starts: a thread that does not
/// block the signal would take it, and nothing would happen.
pub(super) fn children() -> Fallible<SignalFd> {
    let mut set = SigSet::empty();
    set.add(Signal::SIGCHLD);
    set.thread_block().doing(|| "blocking SIGCHLD".into())?;
    SignalFd::new(&set).doing(|| "opening a signalfd".into())
}

/// Runs a job from the start of the scenario's time to its end.
pub(super) fn run(job: &Job, net: &Net, children: &SignalFd) -> Fallible<Report> {
    let zero_ns = job.zero_ns();
    if let Some(space) = job.space {
        let options = format!("size={},mode=1777", space.0);
        for end in [&net.a, &net.b] {
            let options = options.clone();
            end.run(move |_| {
                mount(Some("tmpfs"), "/space", Some("tmpfs"), MsFlags::empty(), Some(options.as_str()))
                    .doing(|| "mounting /space".into())
            })?;
        }
    }
    if [&job.path.host_a, &job.path.host_b].iter().any(|host| host.user == User::User) {
        // Its programs write records there.
        let everyone = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(OUT_FOLDER, everyone).doing(|| format!("opening {OUT_FOLDER} to users"))?;
    }
    for folder in job.folders.clone() {
        let end = if folder.end == job::End::A { &net.a } else { &net.b };
        end.run(move |_| root::show(&folder.path, folder.write))?;
    }
    let progress =
        File::create(Path::new(OUT_FOLDER).join(file::PROGRESS)).doing(|| "making the progress file".into())?;
    let running = job
        .programs
        .iter()
        .map(|p| Running { pid: None, report: None, start_ns: zero_ns + p.start.0, kill_ns: None })
        .collect();
    let noise = job.path.host_noise.map_or_else(Vec::new, |mean| {
        [job::End::A, job::End::B]
            .map(|end| (end, host_noise::Noise::new(Draws::Pauses(end).seed(job.seed), mean.0, zero_ns)))
            .into()
    });
    let mut stage = Stage {
        job,
        net,
        running,
        by_pid: HashMap::new(),
        queue: Vec::new(),
        queue_back: Vec::new(),
        progress,
        noise,
        changed: 0,
    };
    sys::exact_timers();
    sys::sleep_until(zero_ns);
    cross_traffic::start(&job.path, net)?;
    let mut next_sample = zero_ns;
    let end_ns = loop {
        let now = sys::now_ns();
        stage.reap(now);
        if now >= next_sample {
            stage.sample(now)?;
            next_sample += job.sample.0.max(1);
        }
        let over = job.until.is_some_and(|until| now >= zero_ns + until.0);
        if over || stage.done() {
            break now;
        }
        stage.act(now)?;
        let next = stage.next_event().into_iter().chain([next_sample]).min().unwrap_or(next_sample);
        let until = job.until.map_or(u64::MAX, |until| zero_ns + until.0);
        wait_for_child(children, next.min(until).saturating_sub(now))?;
    };
    stage.sample(end_ns)?;
    let forward = net.r.run(|n| n.queue("r1"))?.0;
    let back = net.r.run(|n| n.queue("r0"))?.0;
    let (impaired, impaired_back) = match &net.d {
        Some(d) => (d.run(|n| n.queue("d1"))?.0, d.run(|n| n.queue("d0"))?.0),
        None => Default::default(),
    };
    if job.linger.0 > 0 {
        sys::sleep_until(end_ns + job.linger.0);
    }
    stage.end(children)?;
    Ok(Report {
        error: None,
        is_input: false,
        programs: stage.running.into_iter().filter_map(|r| r.report).collect(),
        forward,
        back,
        impaired,
        impaired_back,
        deepest: deepest(&stage.queue),
        queue: stage.queue,
        deepest_back: deepest(&stage.queue_back),
        queue_back: stage.queue_back,
        seconds: (end_ns - zero_ns) as f64 / 1e9,
    })
}

/// Most bytes that a sample saw in a queue.
fn deepest(samples: &[QueueSample]) -> u32 {
    samples.iter().map(|sample| sample.backlog_bytes).max().unwrap_or(0)
}

/// Waits until a child has ended, or for `timeout_ns`.
fn wait_for_child(children: &SignalFd, timeout_ns: u64) -> Fallible<()> {
    let ready = sys::wait_readable([children.as_fd()], timeout_ns).doing(|| "waiting".into())?;
    if ready[0] {
        // One signal may stand for several children; the caller reaps them all.
        children.read_signal().doing(|| "reading a signal".into())?;
    }
    Ok(())
}

impl Stage<'_> {
    /// Whether every program that the scenario waits for has ended.
    fn done(&self) -> bool {
        self.job.programs.iter().zip(&self.running).all(|(p, r)| !p.waited() || r.report.is_some())
    }

    /// Returns the time at which a program is to start, stop or be killed, or host noise or the path changes, ns.
    fn next_event(&self) -> Option<u64> {
        let programs = self.job.programs.iter().zip(&self.running).filter(|(_, r)| r.report.is_none());
        let due = programs.filter_map(|(p, r)| match (r.pid, r.kill_ns) {
            (None, _) => Some(r.start_ns),
            (Some(_), Some(kill)) => Some(kill),
            (Some(_), None) => p.stop.map(|stop| self.job.zero_ns() + stop.0),
        });
        let change = self.job.changes.get(self.changed).map(|(at, _)| self.job.zero_ns() + at.0);
        due.chain(self.noise.iter().map(|(_, noise)| noise.next_ns())).chain(change).min()
    }

    /// Makes the path's changes that are due, starts, stops and kills the programs that are, and applies host noise.
    fn act(&mut self, now: u64) -> Fallible<()> {
        while let Some((at, path)) = self.job.changes.get(self.changed)
            && now >= self.job.zero_ns() + at.0
        {
            self.changed += 1;
            // Random numbers of their own: with the same seed, the same packets would be lost again.
            topology::set_queues(self.net, path, Draws::Change(self.changed).seed(self.job.seed))?;
        }
        for i in 0..self.running.len() {
            if self.running[i].report.is_some() {
                continue;
            }
            let stop = self.job.programs[i].stop.map(|stop| self.job.zero_ns() + stop.0);
            match (self.running[i].pid, self.running[i].kill_ns) {
                (None, _) if now >= self.running[i].start_ns => self.start(i, now)?,
                (Some(pid), Some(at)) if now >= at => drop(killpg(pid, Signal::SIGKILL)),
                (Some(pid), None) if stop.is_some_and(|stop| now >= stop) => {
                    self.running[i].kill_ns = Some(now + GRACE_NS);
                    // A program that has ended already is reaped in the next round.
                    let _ = killpg(pid, Signal::SIGTERM);
                }
                _ => {}
            }
        }
        for (end, noise) in &mut self.noise {
            while noise.next_ns() <= now {
                let signal = if noise.step() { Signal::SIGSTOP } else { Signal::SIGCONT };
                for (program, running) in self.job.programs.iter().zip(&self.running) {
                    if let (true, Some(pid), None) = (program.end == *end, running.pid, &running.report) {
                        // A server may have handed its client to another process.
                        let _ = killpg(pid, signal);
                    }
                }
            }
        }
        Ok(())
    }

    fn start(&mut self, i: usize, now: u64) -> Fallible<()> {
        let program = self.job.programs[i].clone();
        let (end, host) = match program.end {
            job::End::A => (&self.net.a, &self.job.path.host_a),
            job::End::B => (&self.net.b, &self.job.path.host_b),
        };
        let user = host.user;
        let spawned = end.run(move |_| spawn(i, &program, user));
        match spawned {
            Ok(pid) => {
                let end = self.job.programs[i].end;
                if self.noise.iter().any(|(of, noise)| *of == end && noise.is_paused()) {
                    let _ = killpg(pid, Signal::SIGSTOP);
                }
                self.running[i].pid = Some(pid);
                self.by_pid.insert(pid, i);
            }
            Err(why) => self.finish(i, Ended::NotStarted(why), now),
        }
        Ok(())
    }

    fn finish(&mut self, i: usize, ended: Ended, now: u64) {
        let seconds = |ns: u64| ns.saturating_sub(self.job.zero_ns()) as f64 / 1e9;
        let running = &mut self.running[i];
        running.report = Some(ProgramReport {
            ended,
            start_s: seconds(running.start_ns),
            end_s: seconds(now),
            stopped: running.kill_ns.is_some(),
        });
    }

    /// Reaps every child that has ended. The first process also has to reap orphans.
    fn reap(&mut self, now: u64) {
        while let Ok(status) = waitpid(Pid::from_raw(-1), Some(WaitPidFlag::WNOHANG)) {
            let (pid, ended) = match status {
                WaitStatus::Exited(pid, code) => (pid, Ended::Exit(code)),
                WaitStatus::Signaled(pid, signal, _) => (pid, Ended::Signal(signal as i32)),
                WaitStatus::StillAlive => return,
                _ => continue,
            };
            if let Some(i) = self.by_pid.remove(&pid) {
                self.finish(i, ended, now);
            }
        }
    }

    fn sample(&mut self, now: u64) -> Fallible<()> {
        let mut most = 0;
        for (link, samples) in [("r1", &mut self.queue), ("r0", &mut self.queue_back)] {
            let (totals, backlog_bytes) = self.net.r.run(move |n| n.queue(link))?;
            samples.push(QueueSample { ns: now, bytes: totals.bytes, backlog_bytes, drops: totals.drops });
            most = totals.bytes.max(most);
        }
        let line = format!("{:>20} {:>20}\n", now.saturating_sub(self.job.zero_ns()), most);
        let written = self.progress.seek(SeekFrom::Start(0)).and_then(|_| self.progress.write_all(line.as_bytes()));
        written.doing(|| "writing progress".into())
    }

    /// Asks the programs that still run to end, and kills those that do not.
    fn end(&mut self, children: &SignalFd) -> Fallible<()> {
        let asked = sys::now_ns();
        for running in self.running.iter_mut().filter(|r| r.report.is_none()) {
            running.kill_ns = Some(asked + GRACE_NS);
            if let Some(pid) = running.pid {
                // Programs that host noise has stopped must continue, or they cannot end.
                let _ = killpg(pid, Signal::SIGCONT);
                let _ = kill(pid, Signal::SIGTERM);
            }
        }
        self.noise.clear();
        for i in 0..self.running.len() {
            if self.running[i].pid.is_none() && self.running[i].report.is_none() {
                self.finish(i, Ended::NotStarted("the scenario was over before its start".into()), asked);
            }
        }
        while !self.by_pid.is_empty() {
            let now = sys::now_ns();
            self.reap(now);
            self.act(now)?;
            if !self.by_pid.is_empty() {
                wait_for_child(children, GRACE_NS)?;
            }
        }
        Ok(())
    }
}

/// Number of the ordinary user who runs an end's programs, and of his group: `nobody`.
const NOBODY: u32 = 65_534;

fn spawn(i: usize, program: &Program, user: User) -> Fallible<Pid> {
    let name = program.run.first().ok_or("an empty command")?;
    let output = |name: String| File::create(Path::new(OUT_FOLDER).join(name)).doing(|| "making an output file".into());
    let mut command = Command::new(name);
    if user == User::User {
        // Without the groups of root, which `setgroups` drops because a user is set.
        command.uid(NOBODY).gid(NOBODY);
    }
    let child = command
        .args(&program.run[1..])
        .env_clear()
        .env("PATH", format!("{}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", root::BIN))
        .env("HOME", "/tmp")
        .env("LANG", "C.UTF-8")
        .envs(&program.env)
        .stdin(Stdio::null())
        .stdout(output(file::stdout(i))?)
        .stderr(output(file::stderr(i))?)
        .process_group(0)
        .spawn()
        .map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => format!("there is no program '{name}' on this machine"),
            _ => error.to_string(),
        })?;
    Ok(Pid::from_raw(child.id() as i32))
}
