//! Latency under load: small questions to the server on a connection of their own, before and beside the data of a run.
//!
//! A question is 20 bytes, and its answer comes at once. So its time is that of a round trip of the path, with whatever waits in
//! queues on the way, and, if one of its packets is lost, with the time until TCP sends that again.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fullpipe_path::record::{Latency, Probed};

use crate::error::{NetError, system};
use crate::session::{Control, Watcher};
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
    thread: JoinHandle<Probes>,
}

/// The probes beside the data, and the question that got no answer, with which they ended: when it was asked, and why it failed.
type Probes = (Vec<Probe>, Option<(u64, NetError)>);

impl Prober {
    /// Probes the idle path at intervals, and then starts to probe beside what follows.
    ///
    /// # Errors
    /// The server does not answer; the run was interrupted before it began; there is no thread.
    pub(crate) fn start(mut control: Control, every: Duration, watcher: &Watcher<'_>) -> Result<Prober, NetError> {
        let (mut idle, begun) = (Vec::new(), Instant::now());
        while begun.elapsed() < IDLE || idle.len() < MIN_IDLE_PROBES {
            if watcher.is_interrupted() {
                return Err(NetError::Interrupted);
            }
            idle.push(ask(&mut control)?);
            std::thread::sleep(every.saturating_sub(Duration::from_nanos(idle.last().map_or(0, |probe| probe.rtt_ns))));
        }
        let (end, ended) = mpsc::channel();
        let loaded = move || {
            let mut probes = Vec::new();
            let mut next = Instant::now();
            // A path on which an answer is late is asked again as soon as it has come.
            while ended.recv_timeout(next.saturating_duration_since(Instant::now())) == Err(RecvTimeoutError::Timeout) {
                let asked_ns = sys::now_ns();
                match ask(&mut control) {
                    Ok(probe) => probes.push(probe),
                    Err(error) => return (probes, Some((asked_ns, error))),
                }
                next = (next + every).max(Instant::now());
            }
            (probes, None)
        };
        let thread = std::thread::Builder::new().name("probe".into()).spawn(loaded);
        Ok(Prober { every, idle, end, thread: thread.map_err(system("starting a thread for probes"))? })
    }

    /// Stops, and tells of the probes that were asked from `from_ns` to `to_ns`, while data moved. If they ended before that, they
    /// say nothing of the whole run, and only the reason is told.
    pub(crate) fn finish(self, from_ns: u64, to_ns: u64) -> Probed {
        // The thread may have ended already.
        let _ = self.end.send(());
        let panicked =
            |_| (Vec::new(), Some((from_ns, NetError::Other("the thread of the probes has panicked".to_owned()))));
        let (loaded, failed) = self.thread.join().unwrap_or_else(panicked);
        let rtts_s = |probes: &[Probe]| probes.iter().map(|probe| probe.rtt_ns as f64 / 1e9).collect();
        let loaded: Vec<Probe> =
            loaded.into_iter().filter(|probe| (from_ns..=to_ns).contains(&probe.asked_ns)).collect();
        let (every_s, idle) = (self.every.as_secs_f64(), Latency::of(rtts_s(&self.idle)));
        match failed.filter(|(asked_ns, _)| *asked_ns <= to_ns) {
            Some((_, why)) => Probed { ended: Some(why.to_string()), ..Probed::new(every_s, idle, None) },
            None => Probed::new(every_s, idle, Latency::of(rtts_s(&loaded))),
        }
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

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::wire;

    /// A server that answers so many questions, and then hangs up once another one has come.
    fn probed(answers: usize, to_ns: u64) -> Probed {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let control =
            Control::new(TcpStream::connect(listener.local_addr().unwrap()).unwrap(), "server".into()).unwrap();
        let mut stream = listener.accept().unwrap().0;
        let serving = std::thread::spawn(move || {
            for _ in 0..answers {
                wire::receive_message(&mut stream).unwrap();
                wire::send(&mut stream, &Message::Clock { ns: 1 }).unwrap();
            }
            wire::receive_message(&mut stream).unwrap();
        });
        let prober = Prober::start(control, Duration::from_millis(10), &Watcher::default()).unwrap();
        serving.join().unwrap();
        prober.finish(0, to_ns)
    }

    #[test]
    fn probes_that_end_before_the_run_say_nothing_of_it() {
        // The idle path takes at most 100 probes.
        let early = probed(200, u64::MAX);
        assert!(early.idle.is_some() && early.loaded.is_none() && early.grade.is_none(), "{early:?}");
        assert!(early.ended.unwrap().contains("while probing"));
        // No data moved when they ended.
        let late = probed(200, 0);
        assert_eq!((late.ended, late.loaded), (None, None));
    }
}
