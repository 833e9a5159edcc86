//! Latency under load: small questions to the server on a connection of their own, before and beside the data of a run.
//!
//! A question is 20 bytes, and its answer comes at once. So its time is that of a round trip of the path, with whatever waits in
//! queues on the way, and, if one of its packets is lost, with the time until TCP sends that again.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fullpipe_path::record::{Latency, Probed};

use crate::error::{NetError, system};
use crate::session::Control;
use crate::sys;
use crate::wire::Message;

/// Time for which the path is probed before data move.
const IDLE: Duration = Duration::from_secs(1);
/// Fewest probes of the idle path.
const MIN_IDLE_PROBES: usize = 10;

/// The answer to a question.
#[derive(Debug, Clone, Copy)]
struct Probe {
    /// When the question was asked, ns of this host's `CLOCK_MONOTONIC`.
    asked_ns: u64,
    rtt_ns: u64,
}

/// Probes a path from a thread of its own.
pub(crate) struct Prober {
    every: Duration,
    idle: Vec<Probe>,
    end: Sender<()>,
    thread: JoinHandle<Vec<Probe>>,
}

impl Prober {
    /// Probes the idle path at intervals, and then starts to probe beside what follows.
    ///
    /// # Errors
    /// The server does not answer, or there is no thread.
    pub(crate) fn start(mut control: Control, every: Duration) -> Result<Prober, NetError> {
        let (mut idle, begun) = (Vec::new(), Instant::now());
        while begun.elapsed() < IDLE || idle.len() < MIN_IDLE_PROBES {
            idle.push(ask(&mut control)?);
            std::thread::sleep(every.saturating_sub(Duration::from_nanos(idle.last().map_or(0, |probe| probe.rtt_ns))));
        }
        let (end, ended) = mpsc::channel();
        let loaded = move || {
            let mut probes = Vec::new();
            let mut next = Instant::now();
            // A path on which an answer is late is asked again as soon as it has come.
            while ended.recv_timeout(next.saturating_duration_since(Instant::now())) == Err(RecvTimeoutError::Timeout) {
                let Ok(probe) = ask(&mut control) else { break };
                probes.push(probe);
                next = (next + every).max(Instant::now());
            }
            probes
        };
        let thread = std::thread::Builder::new().name("probe".into()).spawn(loaded);
        Ok(Prober { every, idle, end, thread: thread.map_err(system("starting a thread for probes"))? })
    }

    /// Stops, and tells of the probes that were asked from `from_ns` to `to_ns`, while data moved.
    pub(crate) fn finish(self, from_ns: u64, to_ns: u64) -> Probed {
        // If the thread has ended already, the server is gone, and the run has failed, too.
        let _ = self.end.send(());
        let loaded = self.thread.join().unwrap_or_default();
        let loaded = loaded.into_iter().filter(|probe| (from_ns..=to_ns).contains(&probe.asked_ns)).collect();
        let rtts_s = |probes: Vec<Probe>| probes.iter().map(|probe| probe.rtt_ns as f64 / 1e9).collect();
        Probed::new(self.every.as_secs_f64(), Latency::of(rtts_s(self.idle)), Latency::of(rtts_s(loaded)))
    }
}

/// Asks the server for the time, and returns how long that took.
fn ask(control: &mut Control) -> Result<Probe, NetError> {
    let asked_ns = sys::now_ns();
    control.send(&Message::Clock { ns: 0 }, "probing")?;
    match control.receive("probing")? {
        Message::Clock { .. } => Ok(Probe { asked_ns, rtt_ns: sys::now_ns() - asked_ns }),
        other => Err(control.unexpected(&other)),
    }
}
