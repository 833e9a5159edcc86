//! `fullpipe cp`: copies files to, from or between other hosts, and goes on after a lost connection.

mod args;
mod bottleneck;
mod endpoint;
mod explain;
mod filters;
mod foreign_flags;
mod lab;
mod loss_advice;
mod names;
mod progress;
mod record;
mod report;
mod standard;
mod transport;
mod via;

use std::cell::{Cell, RefCell};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fullpipe_path::{Classified, ExitClass, Protocol};
use fullpipe_transfer::TransferError;
use fullpipe_transfer::client::{self, Between, Finished, Order, Sending, Way, third_party};
use fullpipe_transfer::connection::endpoint::{Endpoint, Via};
use fullpipe_transfer::protocol::message::Options;
use fullpipe_transfer::protocol::name::printable;
use fullpipe_transfer::resolve::limited;
use fullpipe_transfer::sizes::BLOCKS;
use fullpipe_transfer::source::name_list::NameList;
use rand::RngExt;

use crate::failure::{Failure, Result};
use crate::{output, ports, rlimit, run_record};
pub use args::Args;
use endpoint::Place;
pub use foreign_flags::wrong as wrong_flag;
use progress::Watch;
pub use report::print_failed;
use transport::{Chosen, TransportArgs};

/// Longest pause before an attempt, as a power of two seconds.
const MAX_PAUSE_LOG2_S: u32 = 5;
/// How often a pause looks for Ctrl-C.
const INTERRUPT_POLL: Duration = Duration::from_millis(100);

/// Copies. With `--json`, the last line tells how the copy ended, also when it failed.
pub fn run(args: Args) -> Result {
    let json = args.json;
    copy(args).inspect_err(|failure| {
        if json && !failure.is_said() {
            print_failed(&failure.to_string(), failure.code());
        }
    })
}

/// Checks the command line, then copies to the testbed, looks (`--dry-run`), or copies to a real host.
fn copy(args: Args) -> Result {
    if args.identity.is_some() {
        let words: Vec<String> = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into()).collect();
        foreign_flags::misread(&words).map_or(Ok(()), |why| Err(Failure::usage(why)))?;
    }
    rlimit::raise_open_files();
    ports::data_ports(args.data_ports.as_deref())?;
    let options = options(&args)?;
    args.how.check()?;
    if args.how.is_udt() && args.via == via::Wanted::Reverse {
        let why = "--transport udt connects to the far host alone; leave out --via reverse, or copy over TCP";
        return Err(Failure::usage(why));
    }
    if args.how.is_udt() && args.via == via::Wanted::Ssh {
        let why =
            "--transport udt needs UDP to the far host, and ssh carries none; leave out --via ssh, or copy over TCP";
        return Err(Failure::usage(why));
    }
    run_record::check_sample(args.sample, "--sample")?;
    let Some((to, from)) = args.paths.split_last().filter(|(_, from)| !from.is_empty()) else {
        return Err(Failure::usage("give what to copy, and where to: SRC... DST"));
    };
    let from: Vec<Place> = from.iter().map(|path| endpoint::parse(path)).collect::<Result<_>>()?;
    let to = endpoint::parse(to)?;
    if let Place::Lab(path, folder) = &to {
        if from.contains(&Place::Standard) {
            return Err(Failure::usage("standard input cannot be copied into the testbed; copy a file"));
        }
        return lab::run(&args, &from, path, folder);
    }
    let (mut endpoint, mut way) = match standard::order(&args, &from, &to)? {
        Some(order) => order,
        None => endpoint::order(&args, &from, &to)?,
    };
    let list = args.filters.list()?;
    if let (Some(list), Way::Push(_, target) | Way::Pull(_, target)) = (&list, &mut way) {
        target.transfer = limited(target.transfer, list);
    }
    let mut how = args.how.clone();
    if matches!(way, Way::ThirdParty(..)) && args.via == via::Wanted::Reverse {
        let why = "--via reverse has an effect only on copies to or from this host; between two other hosts, each tries to \
                   connect to the other";
        return Err(Failure::usage(why));
    }
    let (choice, note) = via::Choice::new(args.via, &mut how, &mut endpoint, &way);
    if args.dry_run {
        return explain::dry_run((&args, &how), &mut endpoint, (choice, note), (&way, list.as_ref()), options);
    }
    if let Some(record) = &args.record {
        run_record::check_target(record)?;
    }
    if let Some(path) = &args.log_file {
        let file = std::fs::File::options().append(true).create(true).open(path);
        output::log_to(file.map_err(|e| TransferError::of_file(format!("--log-file {}", path.display()), &e))?);
        output::log(format_args!("fullpipe {}: {}", env!("CARGO_PKG_VERSION"), command_line(std::env::args_os())));
    }
    let began = Instant::now();
    let (endpoint, how) = (RefCell::new(endpoint), RefCell::new(how));
    let copy = Copy {
        args: &args,
        how,
        endpoint,
        way: &way,
        list,
        options,
        is_reversed: Cell::default(),
        chosen: RefCell::default(),
        is_settled: Cell::default(),
    };
    let watch = Watch::new(&args, &way);
    if let Some(note) = note {
        watch.say(&note);
    }
    let finished = copy.attempts(&watch, choice, &crate::interrupt::flag());
    let took = began.elapsed();
    // Waits until the names of -v have been read, which is no part of the copy.
    watch.finish();
    let finished = finished?;
    if let Some(((chosen, between), losses)) = copy.chosen.take().zip(finished.losses)
        && let Some(advice) = loss_advice::advice(&copy.how.borrow(), &chosen, &between, &losses)
    {
        watch.say(&advice);
    }
    let recorded = copy.record(&watch, &finished, took);
    let moved = report::Moved {
        earlier: watch.earlier(),
        found: watch.found(),
        spared: watch.spared(),
        spent: watch.spent(),
        took,
    };
    report::report(&args, &finished, &moved, recorded)
}

/// The command line as it was typed. The command of `--ssh` is left out, since a password may stand in it.
fn command_line(words: impl Iterator<Item = OsString>) -> String {
    let mut is_secret = false;
    let mut shown = Vec::new();
    for word in words {
        let word = printable(word.as_bytes());
        let begins = word.starts_with("--ssh=");
        shown.push(match std::mem::replace(&mut is_secret, word == "--ssh") {
            true => "...".to_owned(),
            false if begins => "--ssh=...".to_owned(),
            false => word,
        });
    }
    shown.join(" ")
}

/// Turns the flags into the options of the protocol.
fn options(args: &Args) -> Result<Options> {
    let Some(block) = u32::try_from(args.block.0).ok().filter(|bytes| BLOCKS.contains(bytes)) else {
        let why = format!("--block {} is out of range; give 64KiB to 64MiB", args.block);
        return Err(Failure::usage(why));
    };
    if args.stall.0 == 0 {
        return Err(Failure::usage("--stall 0s would end every copy; give a longer time, such as 60s"));
    }
    Ok(Options {
        recursive: args.recursive,
        dereference: args.dereference,
        // What the receiver has may be the only copy.
        fsync: args.fsync || args.remove_source_files,
        special: args.preserve,
        verify: args.verify,
        xattrs: args.xattrs,
        acls: args.acls,
        hard_links: args.hard_links,
        remove_sources: args.remove_source_files,
        encrypt: !args.no_encrypt,
        direct: args.direct,
        block,
        update: args.updates(),
        replace_newer: args.quick_check,
        checksum: args.checksum,
        sample_ns: if args.record.is_some() { args.sample.0 } else { 0 },
        stall_ns: args.stall.0,
        inplace: args.inplace,
        growing: args.allow_growing,
        dense: args.no_sparse,
        stripes: args.stripe,
    })
}

/// A copy to or from a real host.
struct Copy<'a> {
    args: &'a Args,
    /// The flags that say how to send, and whether UDP gets through.
    how: RefCell<TransportArgs>,
    /// The far end, and how it is reached.
    endpoint: RefCell<Endpoint>,
    way: &'a Way,
    /// The names below the source to which the copy is limited, if it is.
    list: Option<Arc<NameList>>,
    options: Options,
    /// Whether an attempt has found that only the far end can connect to here, not the other way round.
    is_reversed: Cell<bool>,
    /// How the last attempt sent, and over which path.
    chosen: RefCell<Option<(Chosen, Between)>>,
    /// Whether the last attempt came so far that both ends knew how to send.
    is_settled: Cell<bool>,
}

impl Copy<'_> {
    /// Copies, and connects again after a lost connection as long as attempts move something.
    fn attempts(&self, watch: &Watch, mut choice: via::Choice, interrupted: &AtomicBool) -> Result<Finished> {
        let is_interrupted = || interrupted.load(Ordering::SeqCst);
        let mut idle = 0;
        let mut is_first = true;
        // The end of the last attempt that moved something, if it stalled. It explains why later attempts get nowhere.
        let mut stalled = None;
        let mut has_begun = false;
        loop {
            watch.connecting();
            let before = watch.moved();
            let ended = self.attempt(watch, interrupted);
            if self.is_reversed.take() {
                choice.keep_reverse(&mut self.how.borrow_mut(), &mut self.endpoint.borrow_mut());
            }
            let error = match ended {
                Ok(finished) => {
                    choice.remember(&self.endpoint.borrow(), &finished.transport);
                    return Ok(finished);
                }
                Err(error) => error,
            };
            if !is_interrupted()
                && !self.way.happens_once()
                && self.is_over_udt(&error)
                && let Some(note) = choice.leave_udp(&error, &mut self.how.borrow_mut(), watch.moved() > 0)
            {
                watch.say(&note);
                continue;
            }
            // Where TCP got through before, the network or the host may be down. The next attempt shows whether ssh gets through.
            if (watch.moved() == 0 || idle > 0)
                && !is_interrupted()
                && let Some(note) = choice.fall_back(&error, &mut self.endpoint.borrow_mut(), watch.moved() > 0)
            {
                watch.say(&note);
                continue;
            }
            idle = if is_first || watch.moved() > before { 0 } else { idle + 1 };
            is_first = false;
            // A far end that had agreed to the copy may have begun it before anything was seen to move.
            let is_lost = matches!(error, TransferError::Lost { .. }) && error.no_data_path().is_none();
            has_begun |= watch.moved() > 0 || self.is_settled.get() && is_lost;
            // A host that never answered is a mistake in the command; a busy server (Refused) is not. Ctrl-C ends ssh
            // too, and the lost connection that follows is no reason to try again.
            let is_refused = matches!(error, TransferError::Refused { .. } | TransferError::PortsTaken { .. });
            let worth_trying = has_begun || is_refused;
            let worth_trying = worth_trying && !self.way.happens_once();
            // The far end of an earlier attempt may still hold the lock: it ends once its disk has written.
            let may_retry = error.may_retry() || has_begun && error.is_locked();
            if !is_interrupted() && (!may_retry || idle >= self.args.retries || !worth_trying) {
                // A far end that is reached and does not answer is stuck as before. Where it is not reached, that is the error.
                let is_reached = error.no_data_path().is_none()
                    && !matches!(error, TransferError::Unreachable(_) | TransferError::NoUdp { .. });
                let explains = error.is_locked() || is_reached;
                let error = if may_retry && explains { stalled.unwrap_or(error) } else { error };
                return Err(self.failed(error, may_retry && has_begun));
            }
            if !is_interrupted() {
                watch.say(&format!("{error}; connecting again"));
                // --stall bounds the pause too: a user who wants to know soon does not want to wait in between.
                let pause = Duration::from_secs(1 << idle.min(MAX_PAUSE_LOG2_S)).min(self.args.stall.duration());
                // Pauses vary: what cuts connections off at regular times would otherwise always meet the same moment.
                let pause = pause.mul_f64(rand::rng().random_range(0.5..1.0));
                let until = Instant::now() + pause;
                while !is_interrupted() && Instant::now() < until {
                    std::thread::sleep(INTERRUPT_POLL);
                }
            }
            if is_interrupted() {
                return Err(self.failed(TransferError::Interrupted, false));
            }
            // Its threads may have read or written something more meanwhile.
            if self.way.happens_once() {
                return Err(self.failed(error, false));
            }
            if watch.moved() > before {
                stalled = Some(error).filter(|error| error.class() == ExitClass::Failed);
            }
        }
    }

    /// Whether the last attempt, which has failed, was to send over UDT. A server may have refused it before that was settled,
    /// for a reason that has nothing to do with UDT unless another attempt may succeed.
    fn is_over_udt(&self, error: &TransferError) -> bool {
        let is_udt = |(chosen, _): &(Chosen, _)| chosen.transport.protocol() == Protocol::Udt;
        self.chosen.borrow().as_ref().is_some_and(is_udt)
            && (self.is_settled.get() || error.may_retry() || matches!(error, TransferError::TcpOnly(_)))
    }

    /// The failure of the copy after its last attempt; `resumes` if the same command goes on where it was and the error does not say
    /// so. A copy of what comes once cannot go on.
    fn failed(&self, error: TransferError, resumes: bool) -> Failure {
        let kept = match self.way {
            // It was refused before anything came.
            Way::PullOutput(..) if matches!(error, TransferError::Usage(_) | TransferError::Refused { .. }) => {
                return error.into();
            }
            Way::PushInput(input, _) if input.is_all_read() => {
                "standard input has ended, and the destination may have all of it under its name: look there"
            }
            Way::PushInput(..) => "nothing of what came from standard input was kept",
            Way::PullOutput(..) => "standard output has got only a part of the file, if any",
            _ if !resumes => return error.into(),
            Way::Push(..) | Way::Pull(..) | Way::ThirdParty(..) => "the same command goes on where it was",
        };
        let class = error.class();
        let what =
            if matches!(error, TransferError::Interrupted) { "interrupted".to_owned() } else { error.to_string() };
        Failure::new(class, format!("{what}; {kept}"))
    }

    /// Connects once and copies what is missing.
    fn attempt(&self, watch: &Watch, interrupted: &AtomicBool) -> std::result::Result<Finished, TransferError> {
        let args = self.args;
        self.chosen.take();
        self.is_settled.set(false);
        let choose = |between: &Between| {
            let how = self.how.borrow();
            let chosen = how.choose(between).map_err(|e| TransferError::Usage(e.to_string()))?;
            let spare = how.spare(&chosen, between, explain::known_bytes(self.way));
            let (transport, sizing, assumed_bps) = (chosen.transport.clone(), chosen.sizing, how.assumed_bps(&chosen));
            let sending = Sending { transport, sizing, assumed_bps, spare };
            self.chosen.replace(Some((chosen, between.clone())));
            Ok(sending)
        };
        let tell = || {
            self.is_settled.set(true);
            let chosen = self.chosen.borrow();
            let Some((chosen, between)) = chosen.as_ref() else { return };
            watch.chosen(chosen, between.rtt_s, explain::is_encrypted(args, between));
            if args.explain && !args.json && watch.moved() == 0 {
                explain::print(args, chosen, between, self.options, explain::known_bytes(self.way), true);
            }
        };
        let reversed = |error: &TransferError| {
            self.is_reversed.set(true);
            watch.say(&via::reversed(error));
        };
        let mut show = |counters: &_| watch.show(counters);
        let mut order = Order {
            endpoint: &self.endpoint.borrow(),
            way: self.way.clone(),
            list: self.list.clone(),
            options: self.options,
            choose: &choose,
            chosen: &tell,
            reversed: &reversed,
            say: &|what| watch.say(what),
            names: args.verbose || args.log_file.is_some() || args.json && args.updates(),
            show: &mut show,
            interrupted,
        };
        match self.way {
            Way::ThirdParty(..) => third_party::run(&mut order),
            _ => client::run(&mut order),
        }
    }

    /// Writes the record, if `--record` wants one. A copy that moved nothing has no rate, and a profile made of such
    /// records would claim that the path has none.
    fn record(&self, watch: &Watch, finished: &Finished, took: Duration) -> Result {
        let Some(to) = &self.args.record else { return Ok(()) };
        if self.endpoint.borrow().via() == Via::Ssh {
            watch.say("no record was written: the data went through ssh, so no kernel here has seen the path; --via tcp shows it");
            return Ok(());
        }
        if finished.summary.bytes == 0 && watch.earlier() == 0 {
            watch.say(&format!("everything was there already, so no record was written to {}", to.display()));
            return Ok(());
        }
        record::write(
            self.args,
            to,
            &self.endpoint.borrow(),
            self.way,
            finished,
            took,
            (&watch.noted(), &watch.spent()),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_of_ssh_is_not_logged() {
        let shown = |words: &str| command_line(words.split(' ').map(OsString::from));
        assert_eq!(shown("cp -r --ssh secret a b:"), "cp -r --ssh ... a b:");
        assert_eq!(shown("cp --ssh=secret a b:"), "cp --ssh=... a b:");
    }
}
