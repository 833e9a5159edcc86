//! How a transfer is sent: what was asked for, else what the profile says of such a path, as far as both
//! hosts allow it.

use std::path::PathBuf;

use fullpipe_path::{Buffer, ExitClass, LabPath, Probability, Rate, Size, Time, Transport, TransportError, Workload};
use fullpipe_profile::{Profile, ProfileError, Query, Selection, select};
use fullpipe_transfer::client::Between;
use fullpipe_transfer::protocol::hello::Limits;
use fullpipe_transfer::protocol::sizing::SizingMode;

use crate::Result;
use crate::failure::Failure;
use crate::select::{describe, text_of};

/// Command line.
#[derive(clap::Args, Clone)]
#[group(skip)]
pub struct Args {
    /// Congestion control; chosen from the profile if not given
    #[arg(long, value_name = "NAME")]
    cc: Option<String>,
    /// Parallel streams, 1 to 64; chosen from the profile if not given
    #[arg(long, short = 'n')]
    streams: Option<u16>,
    /// Socket buffer of each stream, 'auto' for the kernel's autotuning, or 'sobas': window and pacing follow
    /// the path while the transfer runs; chosen if not given
    #[arg(long, value_name = "SIZE|auto|sobas")]
    buffer: Option<Sizing>,
    /// With --buffer sobas: the paper's law, or which means may be used
    #[arg(long, hide = true, value_name = "all|both|window|pacing|paper", default_value = "all", value_parser = law)]
    sobas: SizingMode,
    /// No faster than this, all streams together; TCP spaces its packets
    #[arg(long, value_name = "RATE", visible_alias = "bwlimit")]
    pacing: Option<Rate>,
    /// The profile to choose from; the one that comes with the program by default
    #[arg(long, value_name = "FILE")]
    pub profile: Option<PathBuf>,
    /// Capacity of the path, if it is known
    #[arg(long)]
    rate: Option<Rate>,
    /// Random loss of the path, if it is known
    #[arg(long, value_name = "PROBABILITY")]
    loss: Option<Probability>,
    /// Queue of the path's bottleneck, if it and the capacity are known
    #[arg(long, value_name = "SIZE", requires = "rate")]
    queue: Option<Size>,
}

/// What decides on the buffers.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Sizing {
    Fixed(Buffer),
    Sobas,
}

impl std::str::FromStr for Sizing {
    type Err = TransportError;
    fn from_str(text: &str) -> std::result::Result<Sizing, TransportError> {
        if text == "sobas" { Ok(Sizing::Sobas) } else { text.parse().map(Sizing::Fixed) }
    }
}

impl std::fmt::Display for Sizing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Sizing::Fixed(buffer) => buffer.fmt(f),
            Sizing::Sobas => f.write_str("sobas"),
        }
    }
}

const LAWS: [SizingMode; 5] =
    [SizingMode::All, SizingMode::Both, SizingMode::Window, SizingMode::Pacing, SizingMode::Paper];

/// A law as the command line and records name it.
pub fn name(law: SizingMode) -> &'static str {
    match law {
        SizingMode::All => "all",
        SizingMode::Both => "both",
        SizingMode::Window => "window",
        SizingMode::Pacing => "pacing",
        SizingMode::Paper => "paper",
    }
}

fn law(text: &str) -> std::result::Result<SizingMode, String> {
    let found = LAWS.into_iter().find(|law| name(*law) == text);
    found.ok_or_else(|| "give all, both, window, pacing or paper".into())
}

/// What was chosen, and why.
pub struct Chosen {
    /// How to send.
    pub transport: Transport,
    /// What to expect, bit/s, where the profile tells.
    pub expected_bps: Option<f64>,
    /// What the profile's runs carried, start-up included, of which that is the mean.
    pub over: Workload,
    /// Reasons, for a person.
    pub why: Vec<String>,
    /// What would be better, and what a kernel lacks for it.
    pub lacking: Option<String>,
}

/// Rates this near are the same to a mover; of those, fewer streams end together. Over 10 GB in the testbed
/// one stream of CUBIC is 0.4 points of the capacity better than eight at 11.8 ms, two of Hybla 0.6 better
/// than four at 91.6 ms.
const EQUAL: f64 = 0.005;
/// More loss than any profile knows is taken for this.
const MOST_LOSS: f64 = 0.01;
/// Larger packets than Ethernet's largest are no different.
const JUMBO: u32 = 9000;
/// Below this round-trip time a path is a local network: no window is ever the limit.
const LOCAL_S: f64 = 0.5e-3;

impl Args {
    /// As words of a command line.
    pub fn passed_on(&self) -> Vec<(&'static str, String)> {
        let mut words = Vec::new();
        let mut add = |flag, value: Option<String>| words.extend(value.map(|value| (flag, value)));
        add("--cc", self.cc.clone());
        add("--streams", self.streams.map(|n| n.to_string()));
        add("--buffer", self.buffer.map(|b| b.to_string()));
        add("--pacing", self.pacing.map(|p| p.to_string()));
        add("--sobas", self.sobas().map(|law| name(law).to_owned()));
        add("--profile", self.profile.as_ref().map(|file| file.display().to_string()));
        add("--rate", self.rate.map(|rate| rate.to_string()));
        add("--loss", self.loss.map(|loss| loss.to_string()));
        add("--queue", self.queue.map(|queue| queue.to_string()));
        words
    }

    /// The same for an emulated path, whose description says what it is.
    pub fn over(&self, path: &LabPath) -> Args {
        Args {
            rate: self.rate.or(Some(path.rate)),
            loss: self.loss.or(Some(path.loss)),
            queue: self.queue.or(Some(path.queue)),
            ..self.clone()
        }
    }

    /// The same, over a path of this loss.
    pub fn with_loss(&self, loss: Probability) -> Args {
        Args { loss: Some(loss), ..self.clone() }
    }

    /// Finds out what is wrong before anyone is called.
    pub fn check(&self) -> Result {
        if self.profile.is_some() {
            let (text, name) = text_of(self.profile.as_deref())?;
            Profile::parse(&text, name)?.entries(|_| true)?;
        }
        if self.buffer == Some(Sizing::Sobas) && self.pacing.is_some() {
            let why = "--buffer sobas decides on the pacing itself; give it or --pacing, not both";
            return Err(Failure::new(ExitClass::Usage, why));
        }
        Ok(())
    }

    /// The law that sizes buffers, if one is to.
    pub fn sobas(&self) -> Option<SizingMode> {
        (self.buffer == Some(Sizing::Sobas)).then_some(self.sobas)
    }

    /// What the profile says of a path, its best first; and what is to be said of it.
    fn rank(&self, between: &Between) -> Result<(Selection, Vec<String>)> {
        let mut why = Vec::new();
        let (text, name) = text_of(self.profile.as_deref())?;
        let profile = Profile::parse(&text, name)?;
        let rtt = Time((between.rtt_s * 1e9) as u64);
        let mut query = Query { within: EQUAL, mtu: between.mtu.map(|mtu| mtu.min(JUMBO)), ..Query::from(rtt) };
        describe(&mut query, self.rate, self.loss, self.queue)?;
        let plain = Query { within: EQUAL, ..Query::from(rtt) };
        // A rough choice is better than none: nobody asked for one of a path like this. Each turn asks for less.
        loop {
            let asked = match select(&profile, &query) {
                Err(ProfileError::NothingFits { asked, .. }) if query != plain => asked,
                selection => return Ok((selection?, why)),
            };
            let instead = match asked.split('=').next() {
                Some("queue") if query.queue.take().is_some() => "any queue",
                Some("rate") if query.rate.take().is_some() => "any capacity",
                Some("loss") if query.loss > Some(MOST_LOSS) => {
                    query.loss = Some(MOST_LOSS);
                    "less loss"
                }
                _ => {
                    query = plain.clone();
                    "the round-trip time alone"
                }
            };
            why.push(format!("the profile has nothing for {asked}: chosen for {instead}"));
        }
    }

    /// Chooses for a path and its ends.
    pub fn choose(&self, between: &Between) -> Result<Chosen> {
        let (rtt_s, sender, receiver) = (between.rtt_s, &between.sender, &between.receiver);
        let mut why = Vec::new();
        let mut lacking = None;
        let (mut expected_bps, mut over) = (None, Workload::Size(Size(0)));
        let has = |cc: &str| sender.ccs.iter().any(|name| name == cc);
        let usual =
            || if has("cubic") { "cubic" } else { sender.ccs.first().map_or("reno", String::as_str) }.to_owned();
        let mut transport = if rtt_s < LOCAL_S {
            let streams = busy();
            why.push(format!("at {:.3} ms no window is the limit, processors are: {streams} streams", rtt_s * 1e3));
            if !has("cubic") {
                why.push("the sender's kernel does not allow this user cubic".into());
            }
            Transport { cc: usual(), streams, buffer: Buffer::Auto, pacing: None }
        } else {
            let (selection, rough) = self.rank(between)?;
            why.extend(rough);
            let best = &selection.choice;
            // What this kernel lacks cannot be used, however good it is.
            let usable = |t: &Transport| has(&t.cc) && fits(t.buffer, sender, receiver);
            let chosen = if usable(&best.transport) {
                Some(best)
            } else {
                let lacks = if has(&best.transport.cc) {
                    format!(
                        "its buffers; as root on both ends: sysctl -w net.core.wmem_max={0} net.core.rmem_max={0}",
                        bytes(best.transport.buffer)
                    )
                } else {
                    format!("{0}; as root: modprobe tcp_{0}", best.transport.cc)
                };
                let told = format!("best would be {}, but a kernel lacks {lacks}", best.transport);
                why.push(told.clone());
                lacking = Some(told);
                selection.ranking.iter().find(|c| usable(&c.transport))
            };
            match chosen {
                Some(chosen) => {
                    // A profile that knows no such path may expect more than it carries.
                    expected_bps = Some(self.rate.map_or(f64::INFINITY, |r| r.0 as f64).min(chosen.expected.mean_bps));
                    why.push(format!("the profile's for {:.3} ms ({})", rtt_s * 1e3, selection.conditions));
                    why.extend(selection.notes);
                    over = selection.workload;
                    chosen.transport.clone()
                }
                None => {
                    why.push("nothing in the profile can be used here: the kernel's own autotuning".into());
                    Transport { cc: usual(), streams: 4, buffer: Buffer::Auto, pacing: None }
                }
            }
        };
        if let Some(cc) = &self.cc {
            transport.cc.clone_from(cc);
        }
        if self.sobas().is_some() && rtt_s >= LOCAL_S {
            // One fills the path; of several, those that have nothing left leave their share unused.
            transport.streams = 1;
        }
        transport.streams = self.streams.unwrap_or(transport.streams);
        transport.buffer = match self.buffer {
            Some(Sizing::Fixed(buffer)) if fits(buffer, sender, receiver) => buffer,
            Some(Sizing::Fixed(buffer)) => {
                let given = Buffer::Bytes(Size(sender.send.min(receiver.receive)));
                why.push(format!(
                    "of the {buffer} the kernels give {given}; as root on both ends: sysctl -w net.core.wmem_max={0} \
                     net.core.rmem_max={0}",
                    bytes(buffer)
                ));
                given
            }
            Some(Sizing::Sobas) => largest(sender, receiver),
            None => transport.buffer,
        };
        if self.sobas().is_some() {
            why.push("window and pacing will follow the path (--buffer sobas), up to that buffer".into());
            if self.sobas == SizingMode::All && !has("bbr") {
                why.push("the sender's kernel has no BBR: slow start will not begin again after losses".into());
            }
        }
        transport.pacing = self.pacing.or(transport.pacing);
        if self.cc.is_some() || self.streams.is_some() || self.buffer.is_some() || self.pacing.is_some() {
            (expected_bps, lacking) = (None, None);
            why.push("as asked for on the command line".into());
        }
        transport.validate()?;
        Ok(Chosen { transport, expected_bps, over, why, lacking })
    }
}

/// Streams where processors are the limit, as many as this host has, but two at least: they all write to one file, which
/// its file system lets in one at a time. More than four gain nothing.
fn busy() -> u16 {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    processors.clamp(2, 4) as u16
}

fn bytes(buffer: Buffer) -> u64 {
    match buffer {
        Buffer::Auto => 0,
        Buffer::Bytes(Size(bytes)) => bytes,
    }
}

/// The largest buffer that both kernels give; their own tuning where that goes further.
fn largest(sender: &Limits, receiver: &Limits) -> Buffer {
    /// What a socket may ask for (`Buffer`), bytes.
    const MOST: u64 = 1 << 30;
    // The kernel books twice what is asked for, as tcp_rmem and tcp_wmem count.
    let asked = sender.send.min(receiver.receive).min(MOST - 1);
    let tuned = sender.tuned_send.min(receiver.tuned_receive) / 2;
    if asked >= tuned.max(4_000) { Buffer::Bytes(Size(asked)) } else { Buffer::Auto }
}

/// Whether both kernels give such a buffer.
fn fits(buffer: Buffer, sender: &Limits, receiver: &Limits) -> bool {
    bytes(buffer) <= sender.send.min(receiver.receive)
}
