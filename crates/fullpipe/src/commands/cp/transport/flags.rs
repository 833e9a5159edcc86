//! The flags that say how a copy is sent, and what contradicts itself among them.

use std::path::PathBuf;

use fullpipe_path::transport::{UDP, UDT};
use fullpipe_path::{Buffer, Dscp, Probability, Protocol, Rate, Size, Transport, TransportError};
use fullpipe_profile::Profile;
use fullpipe_transfer::protocol::sizing::SizingMode;

use crate::failure::{Failure, Result};
use crate::shipped_profile::text_of;

/// Heading of these flags in the help text, and of the flags of `cp` that belong to them.
pub const HEADING: &str = "How data is sent (by default chosen from a profile)";

/// The flags that say how to send.
#[derive(clap::Args, Clone)]
#[group(skip)]
pub struct TransportArgs {
    /// Send over TCP, over UDT, which brings its own congestion control and needs UDP to the far host, or over UDT only where
    /// the profile says that it is faster and UDP gets through (auto)
    #[arg(long, default_value = "auto", value_name = "auto|tcp|udt", help_heading = HEADING)]
    pub(super) transport: ProtocolChoice,
    /// Whether a copy over UDP to the far host has failed, as where a firewall drops it, so that `auto` means TCP.
    #[arg(skip)]
    pub udp_is_closed: bool,
    /// Use this congestion control of the sender's kernel, such as bbr [default: from the profile]
    #[arg(long, value_name = "NAME", help_heading = HEADING)]
    pub(super) cc: Option<String>,
    /// Send over this many parallel streams, 1 to 64 [default: from the profile]
    #[arg(long, short = 'n', help_heading = HEADING)]
    pub(super) streams: Option<u16>,
    /// Set each stream's socket buffers to SIZE, leave them to the kernel's autotuning (auto), or let window and pacing follow
    /// the path during the copy (sobas) [default: sobas, but below 0.5 ms from the profile]
    #[arg(long, value_name = "SIZE|auto|sobas", help_heading = HEADING)]
    pub(super) buffer: Option<Sizing>,
    /// With --buffer sobas: control window, pacing or both, these and slow start (restart), these and the congestion control
    /// (all), or only the window, by the published law (paper) [default: all]
    #[arg(long, value_name = "all|restart|both|window|pacing|paper", value_parser = law, help_heading = HEADING)]
    pub(super) sobas: Option<SizingMode>,
    /// Send to the end as chosen at the start, and adjust nothing to what the path shows
    #[arg(long, help_heading = HEADING)]
    pub steady: bool,
    /// Send no faster than this over all streams together, such as 9.9gbit; TCP spaces the packets evenly
    #[arg(long, value_name = "RATE", visible_alias = "bwlimit", help_heading = HEADING)]
    pub(super) pacing: Option<Rate>,
    /// Mark the packets of the data connections with this class of service, such as CS1, LE or AF11, at both ends; not over ssh,
    /// which marks its own
    #[arg(long, value_name = "DSCP", help_heading = HEADING)]
    pub(super) dscp: Option<Dscp>,
    /// Choose from this profile [default: the one that comes with fullpipe]
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    pub profile: Option<PathBuf>,
    /// Choose for a path of this capacity, such as 10gbit
    #[arg(long, help_heading = HEADING)]
    pub(super) rate: Option<Rate>,
    /// Choose for a path with this random loss, such as 1e-5 or 0.001%
    #[arg(long, value_name = "PROBABILITY", help_heading = HEADING)]
    pub(super) loss: Option<Probability>,
    /// Choose for a path whose bottleneck has a queue of this size, such as 16MB
    #[arg(long, value_name = "SIZE", requires = "rate", help_heading = HEADING)]
    pub(super) queue: Option<Size>,
}

/// The value of `--transport`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum ProtocolChoice {
    /// UDT where the profile says that it is faster and it can be used, else TCP.
    Auto,
    /// This one.
    Only(Protocol),
}

impl std::str::FromStr for ProtocolChoice {
    type Err = String;
    fn from_str(text: &str) -> std::result::Result<ProtocolChoice, String> {
        if text == "auto" {
            return Ok(ProtocolChoice::Auto);
        }
        match text.parse() {
            Ok(Protocol::Udp) => {
                Err("plain UDP loses data, so a copy cannot use it; choose auto, tcp or udt".to_owned())
            }
            Ok(protocol) => Ok(ProtocolChoice::Only(protocol)),
            Err(_) => Err(format!("'{text}' is no transport; choose auto, tcp or udt")),
        }
    }
}

/// How the socket buffers get their size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Sizing {
    /// A size that stays, or the kernel's autotuning.
    Fixed(Buffer),
    /// SOBAS: the controller of window and pacing.
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

const LAWS: [SizingMode; 6] =
    [SizingMode::All, SizingMode::Restart, SizingMode::Both, SizingMode::Window, SizingMode::Pacing, SizingMode::Paper];

/// The name of a law on the command line and in records.
pub fn law_name(law: SizingMode) -> &'static str {
    match law {
        SizingMode::All => "all",
        SizingMode::Restart => "restart",
        SizingMode::Both => "both",
        SizingMode::Window => "window",
        SizingMode::Pacing => "pacing",
        SizingMode::Paper => "paper",
    }
}

/// Reads the value of `--sobas`.
fn law(text: &str) -> std::result::Result<SizingMode, String> {
    let found = LAWS.into_iter().find(|law| law_name(*law) == text);
    found.ok_or_else(|| "give all, restart, both, window, pacing or paper".into())
}

impl TransportArgs {
    /// These flags as words of a command line.
    pub fn passed_on(&self) -> Vec<(&'static str, String)> {
        let mut words = Vec::new();
        let mut add = |flag, value: Option<String>| words.extend(value.map(|value| (flag, value)));
        let only = match self.transport {
            ProtocolChoice::Auto => None,
            ProtocolChoice::Only(protocol) => Some(protocol.to_string()),
        };
        add("--transport", only);
        add("--cc", self.cc.clone());
        add("--streams", self.streams.map(|n| n.to_string()));
        add("--buffer", self.buffer.map(|b| b.to_string()));
        add("--pacing", self.pacing.map(|p| p.to_string()));
        add("--dscp", self.dscp.map(|dscp| dscp.to_string()));
        add(
            "--sobas",
            (self.buffer == Some(Sizing::Sobas)).then(|| law_name(self.sobas.unwrap_or(SizingMode::All)).to_owned()),
        );
        add("--profile", self.profile.as_ref().map(|file| file.display().to_string()));
        add("--rate", self.rate.map(|rate| rate.to_string()));
        add("--loss", self.loss.map(|loss| loss.to_string()));
        add("--queue", self.queue.map(|queue| queue.to_string()));
        words
    }

    /// These flags for a path with this random loss.
    pub fn with_loss(&self, loss: Probability) -> TransportArgs {
        TransportArgs { loss: Some(loss), ..self.clone() }
    }

    /// Checks the profile and the flags, before anything connects.
    ///
    /// # Errors
    /// The profile cannot be read, or flags contradict each other.
    pub fn check(&self) -> Result {
        if self.profile.is_some() {
            let (text, name) = text_of(self.profile.as_deref())?;
            Profile::parse(&text, name)?.entries(|_| true)?;
        }
        if self.is_udt() {
            self.check_udt()?;
        } else if self.cc.as_deref() == Some(UDT) {
            return Err(Failure::usage(
                "udt is no congestion control of TCP; give --transport udt instead of --cc udt",
            ));
        } else if self.cc.as_deref() == Some(UDP) {
            return Err(Failure::usage(
                "udp is no congestion control of TCP, and plain UDP cannot carry a copy; leave out --cc",
            ));
        }
        if self.sobas.is_some() && self.buffer != Some(Sizing::Sobas) {
            return Err(Failure::usage(
                "--sobas has an effect only with --buffer sobas; add that, or leave --sobas out",
            ));
        }
        if self.buffer == Some(Sizing::Sobas) && self.steady {
            return Err(Failure::usage("--buffer sobas adjusts what --steady keeps; leave out one of them"));
        }
        Ok(())
    }

    /// Refuses flags that are for TCP.
    fn check_udt(&self) -> Result {
        let chooses_tcp = [
            ("--profile", self.profile.is_some()),
            ("--rate", self.rate.is_some()),
            ("--loss", self.loss.is_some()),
            ("--queue", self.queue.is_some()),
        ];
        let why = if self.cc.is_some() {
            "--cc is for TCP, and --transport udt brings its own; leave one of them out".to_owned()
        } else if self.buffer == Some(Sizing::Sobas) {
            "--buffer sobas is for TCP; with --transport udt, give a size, or leave --buffer out".to_owned()
        } else if let Some((flag, _)) = chooses_tcp.iter().find(|(_, given)| *given) {
            let instead = if *flag == "--rate" { "; --pacing is the rate to send at" } else { "" };
            format!(
                "{flag} is for choosing between transports, and --transport udt is one{instead}; leave one of them out: \
                 without --transport, the profile chooses between TCP and UDT"
            )
        } else {
            return Ok(());
        };
        Err(Failure::usage(why))
    }

    /// Whether the data go over UDT, whatever the path.
    pub fn is_udt(&self) -> bool {
        self.transport == ProtocolChoice::Only(Protocol::Udt)
    }

    /// Whether the profile decides between TCP and UDT. A flag that says how to send means TCP, unless `--transport` says
    /// otherwise: over UDT, `--pacing` is no limit but the rate to keep.
    pub fn may_choose_udt(&self) -> bool {
        self.transport == ProtocolChoice::Auto && !self.overrides_profile()
    }

    /// The rate that `--bwlimit` allows all streams together, bit/s.
    pub fn limit_bps(&self) -> Option<f64> {
        self.pacing.map(|rate| rate.0 as f64)
    }

    /// The transport over UDT, if the data go over that whatever the path.
    pub fn udt(&self) -> Option<Transport> {
        let buffer = match self.buffer {
            Some(Sizing::Fixed(buffer)) => buffer,
            Some(Sizing::Sobas) | None => Buffer::Auto,
        };
        let streams = self.streams.unwrap_or(1);
        self.is_udt().then(|| Transport {
            cc: UDT.into(),
            streams,
            buffer,
            pacing: self.pacing,
            dscp: self.dscp,
            mss: None,
        })
    }

    /// Whether a flag says how to send, so that the profile no longer decides alone.
    pub(super) fn overrides_profile(&self) -> bool {
        self.cc.is_some() || self.streams.is_some() || self.buffer.is_some() || self.pacing.is_some()
    }
}
