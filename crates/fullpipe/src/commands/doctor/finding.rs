//! What is found out about one limit of a host, and what hosts are judged by.

use serde::Serialize;

use crate::format;

/// Where sysctl lines go to stay (`sysctl.d(5)`).
pub const SYSCTL_FILE: &str = "/etc/sysctl.d/90-fullpipe.conf";
/// Where modules are named that are to be loaded at boot (`modules-load.d(5)`).
pub const MODULES_FILE: &str = "/etc/modules-load.d/fullpipe.conf";
/// Where commands go that set up an interface as it appears (`udev(7)`).
pub const UDEV_FILE: &str = "/etc/udev/rules.d/90-fullpipe.rules";
/// Largest window of TCP, bytes: 16 bits, shifted by 14 at most (RFC 7323, 2.3).
pub const MAX_WINDOW: f64 = 65_535.0 * 16_384.0;
/// Links from here on are what the guidance for data transfer nodes is about, bit/s.
pub const FAST: f64 = 10e9;

/// What a host is judged by: what should go through, and how far.
#[derive(Debug, Clone, PartialEq)]
pub struct Yardstick {
    /// Round-trip time, seconds.
    pub rtt_s: f64,
    /// Rate that should be had, bit/s.
    pub rate_bps: f64,
    /// Someone asked for that rate, or for a path that leaves here: it is not only what the fastest link does.
    pub asked: bool,
    /// Congestion controls, the fastest first, with what each is expected to do there, bit/s.
    pub ranking: Vec<(String, f64)>,
}

impl Yardstick {
    /// Bandwidth-delay product, bytes.
    pub fn bdp(&self) -> f64 {
        self.rate_bps * self.rtt_s / 8.0
    }

    /// What one stream does with a window of so many bytes, bit/s: a window a round trip
    /// (Prasad, Jain and Dovrolis, 2003, section 2).
    pub fn through(&self, window: f64) -> f64 {
        window * 8.0 / self.rtt_s.max(1e-9)
    }

    /// Window that one stream needs, bytes: one BDP, and no more than TCP has.
    pub fn window(&self) -> f64 {
        self.bdp().min(MAX_WINDOW)
    }

    /// What to set buffers to, bytes: two BDP, as a receiver gives half to bookkeeping, in a round number. For
    /// 10 Gb/s over 100 ms, 256 MiB, as fasterdata.es.net has it; never less than its 64 MiB.
    pub fn target(&self, most: u64) -> u64 {
        let two = (2.0 * self.bdp()).min(most as f64) as u64;
        two.next_power_of_two().max(64 << 20).min(most)
    }

    /// `about 17.04 Mb/s of 10.00 Gb/s over 100 ms`
    pub fn says(&self, bps: f64) -> String {
        let (rtt, rate) = (format::ms(self.rtt_s * 1e3), format::rate(self.rate_bps));
        format!("about {} of {rate} over {rtt} ms", format::rate(bps))
    }
}

/// How a limit stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It takes rate away, or time, or processor.
    Costs,
    /// It could not be seen, or not what follows of it.
    Unknown,
    /// It is as it should be.
    Ok,
}

/// One limit, and what to do about it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// What it is of: a setting's name, an interface and a word.
    pub subject: String,
    /// How it stands.
    pub state: State,
    /// What was read.
    pub read: Option<String>,
    /// What it costs, why it is well, or why nothing is known.
    pub words: String,
    /// About what it leaves, bit/s, where that can be computed and is too little.
    pub leaves_bps: Option<f64>,
    /// A command that shows what could not be seen.
    pub see: Option<String>,
    /// Commands that mend it, now.
    pub fix: Vec<String>,
    /// Whether those need root.
    pub root: bool,
    /// What must be so before they are typed, as else they break more than they mend.
    pub only_if: Option<String>,
    /// How it stays mended.
    pub keep: Option<Keep>,
}

/// Lines that make a change last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Keep {
    /// The file they belong into.
    pub file: String,
    /// They.
    pub lines: Vec<String>,
}

impl Finding {
    pub fn new(state: State, subject: &str, read: impl ToString, words: impl Into<String>) -> Finding {
        Finding {
            subject: subject.into(),
            state,
            read: Some(read.to_string()),
            words: words.into(),
            leaves_bps: None,
            see: None,
            fix: Vec::new(),
            root: false,
            only_if: None,
            keep: None,
        }
    }

    pub fn ok(subject: &str, read: impl ToString, words: impl Into<String>) -> Finding {
        Finding::new(State::Ok, subject, read, words)
    }

    pub fn costs(subject: &str, read: impl ToString, words: impl Into<String>) -> Finding {
        Finding::new(State::Costs, subject, read, words)
    }

    /// Could not be seen; this command shows it.
    pub fn unseen(subject: &str, words: impl Into<String>, command: impl Into<String>) -> Finding {
        let mut finding = Finding::new(State::Unknown, subject, "", words);
        finding.read = None;
        finding.see = Some(command.into());
        finding
    }

    /// The other host did not tell how far it is.
    pub fn far_end(why: &str) -> Finding {
        let words = format!("could not measure the RTT, {why}; there");
        Finding::unseen("far end", words, "fullpipe serve")
    }

    pub fn unseen_sysctl(key: &str) -> Finding {
        let why = "could not see it: this kernel lacks it, or a container hides it; on the host itself";
        Finding::unseen(key, why, format!("sysctl {key}"))
    }

    /// What was read all the same.
    pub fn having_read(mut self, read: impl ToString) -> Finding {
        self.read = Some(read.to_string());
        self
    }

    pub fn leaves(mut self, bps: f64) -> Finding {
        self.leaves_bps = Some(bps);
        self
    }

    /// Mended as root by this command.
    pub fn fix(mut self, command: impl Into<String>) -> Finding {
        self.fix.push(command.into());
        self.root = true;
        self
    }

    pub fn keep(mut self, file: &str, line: impl Into<String>) -> Finding {
        self.keep.get_or_insert_with(|| Keep { file: file.into(), lines: Vec::new() }).lines.push(line.into());
        self
    }

    /// To be mended only if this is so.
    pub fn only_if(mut self, condition: impl Into<String>) -> Finding {
        self.only_if = Some(condition.into());
        self
    }

    /// Mended by this setting.
    pub fn set(self, key: &str, value: impl ToString) -> Finding {
        let value = value.to_string();
        let quoted = if value.contains(' ') { format!("\"{value}\"") } else { value.clone() };
        self.fix(format!("sysctl -w {key}={quoted}")).keep(SYSCTL_FILE, format!("{key} = {value}"))
    }

    /// Stays mended by this command whenever the interface appears, which for most is when it moves to its name:
    /// they are added as eth0.
    pub fn whenever(self, interface: &str, command: &str) -> Finding {
        let rule = format!("ACTION==\"add|move\", SUBSYSTEM==\"net\", KERNEL==\"{interface}\", RUN+=\"{command}\"");
        self.keep(UDEV_FILE, rule)
    }
}
