//! A finding about one limit of a host, and the path that hosts are checked for.

use serde::{Deserialize, Serialize};

use crate::format;

/// File for sysctl settings that should survive a reboot (`sysctl.d(5)`).
pub const SYSCTL_FILE: &str = "/etc/sysctl.d/90-fullpipe.conf";
/// File that names the modules to load at boot (`modules-load.d(5)`).
pub const MODULES_FILE: &str = "/etc/modules-load.d/fullpipe.conf";
/// File for commands that set up an interface when it appears (`udev(7)`).
const UDEV_FILE: &str = "/etc/udev/rules.d/90-fullpipe.rules";
/// Largest window of TCP, bytes: 16 bits, shifted by at most 14 (RFC 7323, 2.3).
pub const MAX_WINDOW: f64 = 65_535.0 * 16_384.0;
/// Rate from which the guidance for data transfer nodes applies, bit/s.
pub const FAST: f64 = 10e9;

/// The path that a host is checked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Yardstick {
    /// Round-trip time, seconds.
    pub rtt_s: f64,
    /// Rate that should be reached, bit/s.
    pub rate_bps: f64,
    /// Whether the user named the rate or the path. If not, the rate is only that of the fastest link.
    pub asked: bool,
    /// Congestion controls, the fastest first, each with the rate expected on that path, bit/s.
    pub ranking: Vec<(String, f64)>,
}

impl Yardstick {
    /// Bandwidth-delay product, bytes.
    pub fn bdp(&self) -> f64 {
        self.rate_bps * self.rtt_s / 8.0
    }

    /// Rate of one stream with a window of this many bytes, bit/s: one window per round trip (Prasad, Jain and Dovrolis,
    /// 2003, section 2).
    pub fn through(&self, window: f64) -> f64 {
        window * 8.0 / self.rtt_s.max(1e-9)
    }

    /// Window that one stream needs, bytes: one BDP, but no more than TCP allows.
    pub fn window(&self) -> f64 {
        self.bdp().min(MAX_WINDOW)
    }

    /// Size to set buffers to, bytes: two BDP, as a receiver gives half to bookkeeping, rounded up to a power of two. For
    /// 10 Gb/s over 100 ms that is 256 MiB, as fasterdata.es.net recommends. It is at least 64 MiB and at most `max`.
    pub fn target(&self, max: u64) -> u64 {
        let two = (2.0 * self.bdp()).min(max as f64) as u64;
        two.next_power_of_two().max(64 << 20).min(max)
    }

    /// A rate in relation to the goal: `about 17.04 Mb/s of 10.00 Gb/s over 100 ms`.
    pub fn says(&self, bps: f64) -> String {
        let (rtt, rate) = (format::ms(self.rtt_s * 1e3), format::rate(self.rate_bps));
        format!("about {} of {rate} over {rtt} ms", format::rate(bps))
    }
}

/// Whether a limit costs anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It costs rate, time or processor.
    Costs,
    /// It could not be read, or its effect is not known.
    Unknown,
    /// It is fine.
    Ok,
}

/// One limit of the host, and what to do about it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Name of the limit: a sysctl, or an interface and one of its properties.
    pub subject: String,
    /// Whether it costs anything.
    pub state: State,
    /// Value that was read.
    pub read: Option<String>,
    /// What it costs, why it is fine, or why nothing is known.
    pub words: String,
    /// Rate that it leaves, about, bit/s, if that can be computed and is too low.
    pub leaves_bps: Option<f64>,
    /// Command that shows what could not be read.
    pub see: Option<String>,
    /// Commands that fix it until the next boot.
    pub fix: Vec<String>,
    /// Whether these commands need root.
    pub root: bool,
    /// Condition under which the commands may be typed; without it they do harm.
    pub only_if: Option<String>,
    /// Lines that keep it fixed after a reboot.
    pub keep: Option<Keep>,
    /// Lines of another file without which those of `keep` fail.
    pub also_keep: Option<Keep>,
}

/// Lines that keep a change after a reboot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keep {
    /// File that the lines belong into.
    pub file: String,
    /// The lines.
    pub lines: Vec<String>,
}

impl Finding {
    /// A finding about `subject`, of which `read` is the value; `words` say what it means.
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
            also_keep: None,
        }
    }

    /// A finding that nothing is to be done.
    pub fn ok(subject: &str, read: impl ToString, words: impl Into<String>) -> Finding {
        Finding::new(State::Ok, subject, read, words)
    }

    /// A finding that something costs throughput.
    pub fn costs(subject: &str, read: impl ToString, words: impl Into<String>) -> Finding {
        Finding::new(State::Costs, subject, read, words)
    }

    /// A finding about something that could not be read. `command` shows it.
    pub fn unseen(subject: &str, words: impl Into<String>, command: impl Into<String>) -> Finding {
        let mut finding = Finding::new(State::Unknown, subject, "", words);
        finding.read = None;
        finding.see = Some(command.into());
        finding
    }

    /// A finding that the RTT to the other host could not be measured.
    pub fn far_end(why: &str) -> Finding {
        let words = format!("could not measure the RTT: {why}");
        Finding::unseen("far end", words, "fullpipe serve")
    }

    /// A finding about a sysctl that could not be read.
    pub fn unseen_sysctl(key: &str) -> Finding {
        let why = "could not see it: this kernel lacks it, or a container hides it (then look on its host)";
        Finding::unseen(key, why, format!("sysctl {key}"))
    }

    /// Says that the setting is to be seen and set outside this network namespace.
    pub fn outside(&mut self) {
        const PLACE: &str = "outside this network namespace, on the host itself";
        match self.state {
            State::Unknown => {
                self.words = format!("could not see it: it is one for the whole kernel; look {PLACE}");
            }
            State::Costs => self.words += &format!("; it can be set only {PLACE}"),
            State::Ok => {}
        }
        self.fix.clear();
        self.keep = None;
        self.also_keep = None;
    }

    /// Adds the value that was read.
    pub fn having_read(mut self, read: impl ToString) -> Finding {
        self.read = Some(read.to_string());
        self
    }

    /// Adds the rate that the limit leaves, bit/s.
    pub fn leaves(mut self, bps: f64) -> Finding {
        self.leaves_bps = Some(bps);
        self
    }

    /// Adds a command that fixes it as root.
    pub fn fix(mut self, command: impl Into<String>) -> Finding {
        self.fix.push(command.into());
        self.root = true;
        self
    }

    /// Adds a line of a file that keeps the change after a reboot.
    pub fn keep(mut self, file: &str, line: impl Into<String>) -> Finding {
        self.keep.get_or_insert_with(|| Keep { file: file.into(), lines: Vec::new() }).lines.push(line.into());
        self
    }

    /// Adds a line of another file without which those of [`Finding::keep`] fail.
    pub fn also_keep(mut self, file: &str, line: impl Into<String>) -> Finding {
        self.also_keep.get_or_insert_with(|| Keep { file: file.into(), lines: Vec::new() }).lines.push(line.into());
        self
    }

    /// Adds a condition under which its commands may be typed.
    pub fn only_if(mut self, condition: impl Into<String>) -> Finding {
        self.only_if = Some(condition.into());
        self
    }

    /// Adds the commands and lines that set a sysctl.
    pub fn set(self, key: &str, value: impl ToString) -> Finding {
        let value = value.to_string();
        let quoted = if value.contains(' ') { format!("\"{value}\"") } else { value.clone() };
        self.fix(format!("sysctl -w {key}={quoted}")).keep(SYSCTL_FILE, format!("{key} = {value}"))
    }

    /// Adds a rule that runs this command whenever the interface appears. Most interfaces are added as eth0, and appear when
    /// they are renamed.
    pub fn whenever(self, interface: &str, command: &str) -> Finding {
        let rule = format!("ACTION==\"add|move\", SUBSYSTEM==\"net\", KERNEL==\"{interface}\", RUN+=\"{command}\"");
        self.keep(UDEV_FILE, rule)
    }
}
