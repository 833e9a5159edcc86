//! Chooses how a copy is sent: as the command line asks, else as the profile advises for the path, within what both hosts'
//! kernels allow.

mod flags;
mod remedy;

use fullpipe_net::stream::udt::UDP_BUFFER;
use fullpipe_path::transport::{MAX_STREAMS, UDT};
use fullpipe_path::{Buffer, Probability, Protocol, Rate, Size, Time, Transport, Workload};
use fullpipe_profile::{Profile, ProfileError, Query, Selection, select};
use fullpipe_transfer::client::Between;
use fullpipe_transfer::connection::endpoint::Via;
use fullpipe_transfer::protocol::hello::Limits;
use fullpipe_transfer::protocol::sizing::SizingMode;

use crate::commands::select::outside;
use crate::failure::Result;
use crate::format;
use crate::shipped_profile::{describe, text_of};
use crate::windows;
use flags::Sizing;
pub use flags::{HEADING, TransportArgs, law_name};

/// A transport, and the reasons for it.
pub struct Chosen {
    /// The transport to send with.
    pub transport: Transport,
    /// The law by which SOBAS sets window and pacing during the copy; `None` if they stay as they are.
    pub sizing: Option<SizingMode>,
    /// Rate that the profile expects, bit/s; none if flags override the profile, or if it has no value for the path.
    pub expected_bps: Option<f64>,
    /// What the profile's runs sent. `expected_bps` is the mean over all of that, start-up included.
    pub over: Workload,
    /// Capacity of the path, bit/s, if the flags or the profile say it.
    pub capacity_bps: Option<f64>,
    /// Probability of random loss, if a flag says it.
    pub loss: Option<f64>,
    /// Reasons for the choice, one sentence each.
    pub why: Vec<String>,
    /// A better transport and what a kernel lacks for it, as a sentence.
    pub lacking: Option<String>,
}

/// Rates within this fraction are equal for a copy; among equals, fewer streams end closer together. Over 10 GB in the
/// testbed, one CUBIC stream is 0.4 points of the capacity better than eight at 11.8 ms, and two Hybla streams are 0.6
/// points better than four at 91.6 ms.
const EQUAL: f64 = 0.005;
/// Least ratio of UDT's rate to TCP's from which on UDT is chosen: it takes more of the processors, and TCP adjusts itself to
/// the path during the copy.
const MIN_UDT_GAIN: f64 = 1.1;
/// Time for which the receiver's UDP socket has to hold what arrives, seconds: its thread may wait so long for a processor.
const UDP_BUFFER_S: f64 = 2e-3;
/// Least and largest buffer of a stream over UDT that is chosen, bytes.
const MIN_UDT_BUFFER_BYTES: u64 = 4 << 20;
const MAX_UDT_BUFFER_BYTES: u64 = 1_000_000_000;
/// Loss that is looked up instead of a higher one, which no profile has.
const MAX_PROFILED_LOSS: f64 = 0.01;
/// Capacity of a path that no flag names, as profiles assume it, too.
const ASSUMED_RATE: Rate = Rate(10_000_000_000);
/// Packet size, bytes, that is looked up instead of a larger one: larger packets behave the same.
const JUMBO: u32 = 9000;
/// Below this round-trip time, seconds, a path is a local network: no window is ever the limit.
const LOCAL_S: f64 = 0.5e-3;
/// Most streams of a copy, from round-trip times on, seconds: on short paths few fill the path, and many would have windows
/// of less than a few segments each.
const MOST_STREAMS: [(f64, u16); 3] = [(LOCAL_S, 16), (5e-3, 32), (10e-3, MAX_STREAMS)];
/// Most streams on which a copy begins. One is left spare, which tells the far end that it may change their number: on a slow path
/// most are too many.
const MOST_AT_FIRST: u16 = MAX_STREAMS - 1;
/// Hybla's window grows by 2^(RTT / 25 ms) in each round trip of slow start (tcp_hybla.c): fourfold from here on, seconds.
const HYBLA_FAST_S: f64 = 50e-3;
/// Smaller copies open no spare streams, bytes: they are over before the path has been measured.
const SPARE_FROM_BYTES: u64 = 4 << 20;
/// Most streams of a copy in a local network. All but the first few send only where a disk gives more to more of them.
const MOST_LOCAL_STREAMS: u16 = 16;
/// Smaller copies there open no spare streams, bytes: they are over before a disk shows what it gives.
const LOCAL_SPARE_FROM_BYTES: u64 = 256 << 20;
/// Under a lower limit nothing is adjusted: the packet trains that measure the path alone would take seconds of it.
const LEAST_ADJUSTED: Rate = Rate(20_000_000);
/// Streams where the profile offers no transport that these kernels can use.
const FALLBACK_STREAMS: u16 = 4;

impl TransportArgs {
    /// The transport over UDT with the largest buffers, if the data go over that or the profile may choose it.
    ///
    /// # Errors
    /// The profile cannot be read.
    pub fn largest_udt(&self, rtt_s: f64) -> Result<Option<Transport>> {
        if !self.may_choose_udt() {
            return Ok(self.udt());
        }
        let (text, name) = text_of(self.profile.as_deref())?;
        let profile = Profile::parse(&text, name)?;
        let has_udt = profile.listed.iter().any(|entry| entry.protocol() == Some(Protocol::Udt));
        let buffer = udt_buffer(Size(u64::MAX), ASSUMED_RATE.0 as f64, rtt_s, 1);
        Ok(has_udt.then(|| Transport { cc: UDT.into(), streams: 1, buffer, pacing: None, dscp: self.dscp, mss: None }))
    }

    /// The law by which window and pacing follow the path during the copy, unless a flag pins them, or the path is so short
    /// that neither limits it.
    fn sizing(&self, between: &Between) -> Option<SizingMode> {
        // The sockets of a sender before a relay show the path to the relay alone.
        let sees_path = between.rtt_s >= LOCAL_S && !between.relayed;
        let is_slow = self.pacing.is_some_and(|rate| rate < LEAST_ADJUSTED);
        let law = match self.buffer {
            _ if between.via == Via::Ssh => None,
            Some(Sizing::Sobas) => Some(self.sobas.unwrap_or(SizingMode::All)),
            Some(Sizing::Fixed(_)) => None,
            None => (!self.steady && !is_slow && sees_path).then_some(SizingMode::All),
        };
        // A congestion control that is asked for stays.
        law.map(|law| if law == SizingMode::All && self.cc.is_some() { SizingMode::Restart } else { law })
    }

    /// Rate that the path is assumed to have until it is measured, bit/s: as typed, or else as the profile says.
    pub fn assumed_bps(&self, chosen: &Chosen) -> u64 {
        let path =
            self.rate.map_or_else(|| chosen.capacity_bps.map_or(ASSUMED_RATE.0, |bps| bps as u64), |rate| rate.0);
        self.pacing.map_or(path, |limit| limit.0.min(path))
    }

    /// Number of streams to open besides the chosen ones, for a copy of so many bytes if that is known. They send once the
    /// path has been measured, or in a local network the disks, if they are of use then.
    pub fn spare(&self, chosen: &Chosen, between: &Between, bytes: Option<u64>) -> u16 {
        let rtt_s = between.rtt_s;
        if rtt_s < LOCAL_S && chosen.sizing.is_none() {
            let small = bytes.is_some_and(|bytes| bytes < LOCAL_SPARE_FROM_BYTES);
            let is_pinned = self.streams.is_some() || self.steady || self.buffer.is_some() || self.pacing.is_some();
            let is_tcp = between.via != Via::Ssh && chosen.transport.protocol() == Protocol::Tcp;
            let most = if small || is_pinned || !is_tcp { 0 } else { MOST_LOCAL_STREAMS };
            return most.saturating_sub(chosen.transport.streams);
        }
        let small = bytes.is_some_and(|bytes| bytes < SPARE_FROM_BYTES);
        // Hybla fills a long path by itself within three round trips.
        let fast = chosen.transport.cc == "hybla" && rtt_s >= HYBLA_FAST_S;
        if self.streams.is_some() || chosen.sizing.is_none() || small || fast {
            return 0;
        }
        let (_, most) = MOST_STREAMS.into_iter().rfind(|(from_s, _)| rtt_s >= *from_s).unwrap_or_default();
        most.saturating_sub(chosen.transport.streams)
    }

    /// Chooses a transport for a path and its two ends.
    ///
    /// # Errors
    /// The profile cannot be read, or the flags ask for a transport that does not exist.
    pub fn choose(&self, between: &Between) -> Result<Chosen> {
        if let Some(transport) = self.udt() {
            transport.validate_for_copy()?;
            let rate = if self.pacing.is_some() { "keeps to the rate of --pacing" } else { "finds the rate itself" };
            let mut why = vec![format!("over UDT, as the command line asks: it {rate}")];
            why.extend(lacks_udp_buffer(between, UDP_BUFFER));
            return Ok(unexpected(transport, why));
        }
        let mut chosen = match between.via {
            Via::Ssh => through_ssh(between.rtt_s, &between.sender, self.streams.is_none()),
            _ if between.rtt_s < LOCAL_S => local(between.rtt_s, &between.sender, self.streams.is_none()),
            _ => self.best_of_profile(between)?,
        };
        if self.profile.is_some() && between.via != Via::Ssh && between.rtt_s < LOCAL_S {
            chosen.why.push(format!("--profile has no effect below {} ms", LOCAL_S * 1e3));
        }
        chosen.transport.dscp = self.dscp.filter(|_| between.via != Via::Ssh);
        if chosen.transport.protocol() == Protocol::Udt {
            return Ok(chosen);
        }
        chosen.sizing = self.sizing(between);
        if between.relayed {
            let ms = between.rtt_s * 1e3;
            chosen.why.push(format!("a relay ends TCP's connections on the way (a whole round trip takes {ms:.1} ms)"));
        }
        self.apply_flags(&mut chosen, between);
        if self.dscp.is_some() && between.via == Via::Ssh {
            chosen
                .why
                .push("--dscp has no effect: the data go over ssh, which marks its packets itself (IPQoS)".into());
        }
        chosen.transport.validate_for_copy()?;
        Ok(chosen)
    }

    /// Chooses the best transport of the profile that both ends can use, over TCP or UDT.
    fn best_of_profile(&self, between: &Between) -> Result<Chosen> {
        let Ranked { tcp, udt, why } = self.rank(between)?;
        let chosen = self.best_over_tcp(tcp, why, between);
        Ok(match udt.filter(|_| self.may_choose_udt()) {
            Some(udt) => self.or_over_udt(chosen, &udt, between),
            None => chosen,
        })
    }

    /// Replaces the choice over TCP by the best one over UDT, if that is clearly faster. If something is in its way, says what.
    fn or_over_udt(&self, tcp: Chosen, udt: &Selection, between: &Between) -> Chosen {
        let tcp_bps = tcp.expected_bps.unwrap_or(0.0);
        // A given rate is kept whatever is lost, which a profile cannot decide for a path that others may use.
        let Some(best) = udt.ranking.iter().find(|choice| choice.transport.pacing.is_none()) else { return tcp };
        let bps = best.expected.mean_bps.min(self.rate.map_or(f64::INFINITY, |rate| rate.0 as f64));
        if bps < MIN_UDT_GAIN * tcp_bps {
            return tcp;
        }
        let streams = best.transport.streams;
        let capacity_bps = udt.capacity_bps.unwrap_or(bps);
        let buffer = match best.transport.buffer {
            Buffer::Auto => Buffer::Auto,
            Buffer::Bytes(most) => udt_buffer(most, capacity_bps, between.rtt_s, streams),
        };
        let transport = Transport { buffer, ..best.transport.clone() };
        let gain = format!("{} expected, and {} over TCP", format::rate(bps), format::rate(tcp_bps));
        let obstacle = if between.relayed {
            Some("a relay ends TCP's connections on the way, and carries no UDP".to_owned())
        } else if self.udp_is_closed {
            Some("a copy over UDP failed before; --transport udt tries it".to_owned())
        } else {
            let needed = Size((bps / 8.0 * UDP_BUFFER_S) as u64).min(UDP_BUFFER);
            lacks_udp_buffer(between, needed)
                .or_else(|| fullpipe_net::socket::check_memory(&transport).err().map(|error| error.to_string()))
        };
        if let Some(obstacle) = obstacle {
            let lacking = format!("best would be {transport} ({gain}), but {obstacle}");
            return Chosen { why: [tcp.why, vec![lacking.clone()]].concat(), lacking: Some(lacking), ..tcp };
        }
        let (rtt_ms, path) = (between.rtt_s * 1e3, &udt.conditions);
        let mut why =
            vec![format!("over UDT, best in the profile for a round trip of {rtt_ms:.3} ms ({path}): {gain}")];
        why.extend(outside(&best.expected, rtt_ms));
        why.extend(udt.notes.clone());
        Chosen {
            expected_bps: Some(bps),
            over: udt.workload,
            capacity_bps: udt.capacity_bps,
            loss: self.loss.map(Probability::get),
            ..unexpected(transport, why)
        }
    }

    /// Chooses the best transport over TCP that both kernels can use.
    fn best_over_tcp(&self, selection: Selection, mut why: Vec<String>, between: &Between) -> Chosen {
        let (sender, receiver) = (&between.sender, &between.receiver);
        let usable = |t: &Transport| is_for_copy(t) && has(sender, &t.cc) && fits(t.buffer, sender, receiver);
        let mut ranked = std::iter::once(&selection.choice).chain(&selection.ranking);
        let best = ranked.find(|choice| is_for_copy(&choice.transport));
        let lacking = best.filter(|best| !usable(&best.transport)).map(|best| {
            let lacks = if has(sender, &best.transport.cc) {
                remedy::larger_buffers(bytes(best.transport.buffer), sender, receiver)
            } else {
                remedy::missing_cc(&best.transport.cc, &sender.ccs)
            };
            format!("best would be {}, but {lacks}", best.transport)
        });
        why.extend(lacking.clone());
        let over_more_streams = || {
            let granted = windows::granted(sender, receiver)?;
            let there = selection.ranking.iter().filter(|c| is_for_copy(&c.transport) && has(sender, &c.transport.cc));
            let held = there.map(|choice| {
                let bps = choice.expected.mean_bps.min(self.limit_bps().unwrap_or(f64::INFINITY));
                windows::held((&choice.transport, bps), granted, between.rtt_s, MOST_AT_FIRST)
            });
            windows::preferred(&held.collect::<Vec<_>>()).cloned()
        };
        let granted = lacking.as_ref().and_then(|_| over_more_streams());
        let found = match lacking {
            None => best,
            Some(_) => selection.ranking.iter().find(|choice| usable(&choice.transport)),
        };
        let granted = granted.filter(|(_, bps)| found.is_none_or(|choice| choice.expected.mean_bps < *bps));
        let (transport, bps) = match (granted, found) {
            (Some((transport, bps)), _) => {
                if self.streams.is_none() {
                    why.push(format!(
                        "{} streams, since the kernels let each have about {} in flight",
                        transport.streams,
                        format::bytes(windows::granted(sender, receiver).map_or(0.0, |(_, bytes)| bytes))
                    ));
                }
                (transport, bps)
            }
            (None, Some(choice)) => {
                let (rtt_ms, path) = (between.rtt_s * 1e3, &selection.conditions);
                why.push(format!("best in the profile for a round trip of {rtt_ms:.3} ms ({path})"));
                why.extend(outside(&choice.expected, rtt_ms));
                (choice.transport.clone(), choice.expected.mean_bps)
            }
            (None, None) => {
                why.push("no transport of the profile can be used here, so the kernel's autotuning is".into());
                let cc = usual_cc(sender);
                let transport = Transport {
                    cc,
                    streams: FALLBACK_STREAMS,
                    buffer: Buffer::Auto,
                    pacing: None,
                    dscp: None,
                    mss: None,
                };
                return Chosen { lacking, ..unexpected(transport, why) };
            }
        };
        why.extend(selection.notes);
        Chosen {
            transport,
            sizing: None,
            // A profile measured on faster paths may expect more than this path carries.
            expected_bps: Some(self.rate.map_or(f64::INFINITY, |r| r.0 as f64).min(bps)),
            over: selection.workload,
            capacity_bps: selection.capacity_bps,
            loss: self.loss.map(Probability::get),
            why,
            lacking,
        }
    }

    /// Ranks the profile's transports for a path. If the profile has nothing for such a path, gives up one property of
    /// the path after the other, with a sentence for each: a rough choice is better than none.
    fn rank(&self, between: &Between) -> Result<Ranked> {
        let mut why = Vec::new();
        let (text, name) = text_of(self.profile.as_deref())?;
        let profile = Profile::parse(&text, name)?;
        let rtt = Time((between.rtt_s * 1e9) as u64);
        let plain = Query { within: EQUAL, protocol: Some(Protocol::Tcp), ..Query::from(rtt) };
        let mut query = Query { mtu: between.mtu.map(|mtu| mtu.min(JUMBO)), ..plain.clone() };
        describe(&mut query, self.rate, self.loss, self.queue)?;
        if self.queue.is_none() && self.sizing(between).is_some() {
            // Pacing keeps the queue short, so what matters is what a transport does where none overflows.
            let rate = self.rate.unwrap_or(ASSUMED_RATE);
            query.queue = Some(((rate.0 as f64 * between.rtt_s / 8.0) as u64, 1.0));
        }
        loop {
            let asked = match select(&profile, &query) {
                Err(ProfileError::NothingFits { asked, .. }) if query != plain => asked,
                tcp => {
                    let tcp = tcp?;
                    let udt = select(&profile, &Query { protocol: Some(Protocol::Udt), ..query }).ok();
                    let is_near = |udt: &Selection| udt.choice.expected.is_as_near_as(&tcp.choice.expected);
                    let is_alike = |udt: &Selection| {
                        udt.conditions == tcp.conditions && udt.workload == tcp.workload && is_near(udt)
                    };
                    return Ok(Ranked { udt: udt.filter(is_alike), tcp, why });
                }
            };
            let instead = match asked.split('=').next() {
                Some("queue") if query.queue.take().is_some() => "any queue",
                Some("rate") if query.rate.take().is_some() => "any capacity",
                Some("loss") if query.loss > Some(MAX_PROFILED_LOSS) => {
                    query.loss = Some(MAX_PROFILED_LOSS);
                    "less loss"
                }
                _ => {
                    query = plain.clone();
                    "the round-trip time alone"
                }
            };
            why.push(format!("the profile has nothing for {asked}, so this was chosen for {instead}"));
        }
    }

    /// Replaces what the flags say otherwise.
    fn apply_flags(&self, chosen: &mut Chosen, between: &Between) {
        let (sender, receiver) = (&between.sender, &between.receiver);
        let (transport, why, sizing) = (&mut chosen.transport, &mut chosen.why, chosen.sizing);
        if let Some(cc) = &self.cc {
            transport.cc.clone_from(cc);
        }
        transport.streams = self.streams.unwrap_or(transport.streams);
        transport.buffer = match self.buffer {
            Some(Sizing::Fixed(buffer)) if fits(buffer, sender, receiver) => buffer,
            Some(Sizing::Fixed(buffer)) => {
                let granted = Buffer::Bytes(Size(sender.send.min(receiver.receive)));
                let fix = remedy::larger_buffers(bytes(buffer), sender, receiver);
                // A socket that asks is tuned no more.
                let tuned = windows::granted(sender, receiver).filter(|(buffer, _)| *buffer == Buffer::Auto);
                let than = tuned.map_or(String::new(), |(_, most)| {
                    format!(", less than the {} of a stream that asks for nothing, so none asks", format::bytes(most))
                });
                why.push(format!("the kernels grant {granted} of the {buffer} asked for{than}: {fix}"));
                tuned.map_or(granted, |(auto, _)| auto)
            }
            // The window is limited by less while the copy runs.
            _ if sizing.is_some() => windows::granted(sender, receiver).map_or(Buffer::Auto, |(buffer, _)| buffer),
            _ => transport.buffer,
        };
        if let Some(law) = sizing {
            why.push("window and pacing follow the path during the copy, within that buffer".into());
            if matches!(law, SizingMode::All | SizingMode::Restart) && !has(sender, "bbr") {
                why.push(
                    "the sender's kernel has no BBR for this user, so slow start will not restart after losses".into(),
                );
            }
        }
        transport.pacing = self.pacing.or(transport.pacing);
        if self.overrides_profile() {
            (chosen.expected_bps, chosen.lacking) = (None, None);
            why.push("as the command line asks".into());
        }
    }
}

/// The transports of a profile for a path.
struct Ranked {
    /// Those over TCP.
    tcp: Selection,
    /// Those over UDT, if they were measured on the same kind of path, with the same workload, and as near to the round-trip time.
    udt: Option<Selection>,
    /// How the path that they were measured on differs from the one that was asked for.
    why: Vec<String>,
}

/// What the receiver's kernel lacks for UDT; `None` if its sockets can hold `needed`.
fn lacks_udp_buffer(between: &Between, needed: Size) -> Option<String> {
    let granted = Size(between.receiver.udp_receive);
    (granted < needed).then(|| {
        format!(
            "the receiver's kernel lets a UDP socket hold only {granted}, which a burst can fill; as root there: sysctl -w \
             net.core.rmem_max={}",
            UDP_BUFFER.0
        )
    })
}

/// Each stream's buffers over UDT for a path: as large as `most`, but no larger than twice what such a path holds.
fn udt_buffer(most: Size, capacity_bps: f64, rtt_s: f64, streams: u16) -> Buffer {
    let path = 2.0 * capacity_bps * rtt_s / 8.0 / f64::from(streams.max(1));
    Buffer::Bytes(Size((path as u64).clamp(MIN_UDT_BUFFER_BYTES, MAX_UDT_BUFFER_BYTES).min(most.0)))
}

/// Whether a copy can have so many streams: a profile may have measurements of more.
fn is_for_copy(transport: &Transport) -> bool {
    transport.streams <= MAX_STREAMS
}

/// The transport for a local network, where processors limit the rate, not windows. `explains_streams` says whether the number of
/// streams is its own, and not that of a flag.
fn local(rtt_s: f64, sender: &Limits, explains_streams: bool) -> Chosen {
    let (streams, rtt_ms) = (local_streams(), rtt_s * 1e3);
    let number = format!("{streams} streams: at {rtt_ms:.3} ms, processors or disks limit the rate, not windows");
    let mut why: Vec<String> = explains_streams.then_some(number).into_iter().collect();
    if !has(sender, "cubic") {
        why.push(format!(
            "the sender's kernel does not allow this user cubic; as root there: {}",
            remedy::cubic(&sender.ccs)
        ));
    }
    let transport =
        Transport { cc: usual_cc(sender), streams, buffer: Buffer::Auto, pacing: None, dscp: None, mss: None };
    unexpected(transport, why)
}

/// Most bytes that an ssh connection has in flight, by its own window (`CHAN_SES_WINDOW_DEFAULT`, OpenSSH's channels.h).
const SSH_WINDOW: f64 = 2e6;
/// Most ssh connections that are opened unless a flag asks for more: as many as may log in at the same time.
const MAX_SSH: u16 = 8;
/// Buffers of the sockets between fullpipe and ssh, bytes. What waits there is no use to other streams.
const SSH_BUFFER: u64 = 1_000_000;

/// The transport through ssh, whose own window limits each connection. `explains_streams` is as for [`local`].
fn through_ssh(rtt_s: f64, sender: &Limits, explains_streams: bool) -> Chosen {
    let streams = windows::streams_for(ASSUMED_RATE.0 as f64, rtt_s, SSH_WINDOW).clamp(local_streams(), MAX_SSH);
    let number = format!("{streams} ssh connections unless -n says otherwise, since ssh lets each have 2 MB in flight");
    let why = explains_streams.then_some(number).into_iter().collect();
    let buffer = Buffer::Bytes(Size(SSH_BUFFER.min(sender.send)));
    unexpected(Transport { cc: usual_cc(sender), streams, buffer, pacing: None, dscp: None, mss: None }, why)
}

/// A transport of which no profile tells the rate.
fn unexpected(transport: Transport, why: Vec<String>) -> Chosen {
    let over = Workload::Size(Size(0));
    Chosen { transport, sizing: None, expected_bps: None, over, capacity_bps: None, loss: None, why, lacking: None }
}

/// Streams in a local network: one for each of this host's processors, but 2 to 4. All streams write to one file, which
/// its file system lets in one at a time, so that more than four gain nothing.
fn local_streams() -> u16 {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    processors.clamp(2, 4) as u16
}

/// Whether the sender's kernel has a congestion control and lets this user set it.
fn has(sender: &Limits, cc: &str) -> bool {
    sender.ccs.iter().any(|name| name == cc)
}

/// The congestion control where the profile decides nothing: CUBIC, else the first that the kernel has.
fn usual_cc(sender: &Limits) -> String {
    if has(sender, "cubic") { "cubic" } else { sender.ccs.first().map_or("reno", String::as_str) }.to_owned()
}

fn bytes(buffer: Buffer) -> u64 {
    match buffer {
        Buffer::Auto => 0,
        Buffer::Bytes(Size(bytes)) => bytes,
    }
}

/// Whether both kernels grant such a buffer.
fn fits(buffer: Buffer, sender: &Limits, receiver: &Limits) -> bool {
    bytes(buffer) <= sender.send.min(receiver.receive)
}

#[cfg(test)]
mod tests;
