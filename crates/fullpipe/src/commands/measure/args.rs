//! The command line of `fullpipe measure`.

use std::path::PathBuf;
use std::time::Duration;

use fullpipe_net::LocalEnd;
use fullpipe_path::{Buffer, Dscp, Protocol, Rate, Size, Time};

use super::storage;
use crate::over_ssh::SshArgs;

const EXAMPLES: &str = "\
Examples:
  fullpipe measure host --cc bbr --streams 4 --duration 30s   to a host that runs 'fullpipe serve'
  fullpipe measure ssh:host                                   over ssh; nothing needs to be installed or to run on host
  fullpipe measure host --interval 1s --omit 5s               a line each second; the rate without the ramp-up
  fullpipe measure host --transport udt --buffer 256MB
  fullpipe measure host --transport udp --pacing 100mbit      loss and jitter of datagrams at this rate
  fullpipe measure lab:rtt=91.6ms,rate=10gbit --buffer 256MB --out runs/
  fullpipe measure lab:rtt=91.6ms,rate=10gbit,disk=1GB/s --size 1GB --streams 4   from disk to disk
  fullpipe measure disk:/scratch --threads 1-16 --block 1MiB,8MiB --size 10GB
  fullpipe measure lab:rtt=91.6ms,rate=10gbit,mount=nfs+nconnect:4 --threads 1-16   NFS over an emulated path
  fullpipe measure mount:/mnt/far --threads 1-16 --direct on,off   a file system mounted by NFS or FUSE";

/// The arguments of `fullpipe measure`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// HOST or HOST:PORT that runs 'fullpipe serve', ssh:HOST (which starts that server there), an emulated path
    /// lab:rtt=45.6ms,rate=10gbit,..., a TOML file with its keys, disk:FOLDER for storage, or mount:FOLDER for storage that is
    /// mounted over a network or by FUSE
    pub(super) path: String,
    /// Send over this transport; udt has its own congestion control, or with --pacing a fixed rate; udp sends datagrams at the rate
    /// of --pacing, and counts losses and jitter [default: tcp]
    #[arg(long, value_name = "tcp|udt|udp")]
    pub(super) transport: Option<Protocol>,
    /// Use this congestion control of TCP, under its kernel name [default: cubic, or the system's own where this user cannot use it]
    #[arg(long, value_name = "NAME")]
    pub(super) cc: Option<String>,
    /// Send over this many parallel streams, 1 to 256, over UDT and between disks 1 to 64 [default: 1]
    #[arg(long, short = 'n')]
    pub(super) streams: Option<u16>,
    /// Set each stream's socket buffers at both ends to SIZE, such as 256MB, or leave them to the kernel's autotuning (auto); over udt,
    /// its own buffers, which auto makes as large as the path needs
    /// [default: auto]
    #[arg(long, value_name = "SIZE|auto")]
    pub(super) buffer: Option<Buffer>,
    /// Send no faster than this, all streams together, such as 9.9gbit [default: unpaced]
    #[arg(long, value_name = "RATE")]
    pub(super) pacing: Option<Rate>,
    /// Mark the packets of both ends with this class of service, a name such as CS1, LE, AF11 or EF, or a number, 0 to 63
    #[arg(long, value_name = "DSCP")]
    pub(super) dscp: Option<Dscp>,
    /// Let segments of TCP have at most this many bytes, TCP's options included, 88 to 32767 [default: what the path's MTU allows]
    #[arg(long, value_name = "BYTES")]
    pub(super) mss: Option<u16>,
    /// With --transport udp, send datagrams with this much payload, 16 to 65507 [default: what fills the path's packets]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(16..=65507))]
    pub(super) datagram_size: Option<u16>,
    /// Connect from this address of this host, through this network interface or both, such as 192.0.2.7%eth0 or %eth0
    #[arg(long, value_name = "ADDRESS%DEVICE")]
    pub(super) bind: Option<LocalEnd>,
    /// Send this much over all streams, such as 1GB; for storage [default: 1GB], and between disks, the size of the file
    #[arg(long, conflicts_with = "duration")]
    pub(super) size: Option<Size>,
    /// Send for this long, or until Ctrl-C (unlimited) [default: 10s, unless --size is given]
    #[arg(long, value_name = "TIME|unlimited", value_parser = fullpipe_path::transport::duration)]
    pub(super) duration: Option<Time>,
    /// Leave out the beginning, in which the rate still grows, of a second rate; without --size, the run lasts this much longer
    #[arg(long, value_name = "TIME")]
    pub(super) omit: Option<Time>,
    /// Receive instead of sending
    #[arg(long)]
    pub(super) reverse: bool,
    /// Ask the server for an answer this often before the run and beside it, for the latency under load [default of TIME: 100ms]
    #[arg(long, value_name = "TIME", num_args = 0..=1, default_missing_value = "100ms", require_equals = true)]
    #[arg(conflicts_with = "bidir")]
    pub(super) probe: Option<Time>,
    /// Send and receive at once: two results, and two records that say so
    #[arg(long, conflicts_with = "reverse")]
    pub(super) bidir: bool,
    /// Print a line for each interval, such as 1s; in the testbed, once the run is over
    #[arg(long, short = 'i', value_name = "TIME")]
    pub(super) interval: Option<Time>,
    /// Measure this many times, in the testbed with a seed of its own each time; a server that fails is tried again the next time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) repeat: Option<u32>,
    /// With --repeat, begin a measurement this often, such as 1h [default: one after the other]
    #[arg(long, value_name = "TIME", requires = "repeat")]
    pub(super) every: Option<Time>,
    /// Seed the streams' start times and, in the testbed, every random number [default: 1]
    #[arg(long)]
    pub(super) seed: Option<u64>,
    /// Sample TCP_INFO, or UDT's statistics, this often, at least 10ms apart; --interval must be a multiple of it [default: the largest
    /// part of --interval up to 100ms, or up to 1s if --duration is unlimited]
    #[arg(long, value_name = "TIME")]
    pub(super) sample: Option<Time>,
    /// Write the record into folder DIR, or to FILE if it ends in .ndjson
    #[arg(long, value_name = "DIR|FILE")]
    pub(super) out: Option<PathBuf>,
    /// Print the whole record as NDJSON on stdout; with --interval, a line for each interval before it, as it ends
    #[arg(long)]
    pub(super) json: bool,
    /// Print the result as iperf3 does with -J, with intervals of 1s or --interval; fields that fullpipe does not know are left out
    #[arg(long, conflicts_with_all = ["json", "bidir"])]
    pub(super) iperf3_json: bool,
    /// Print a table as CSV on stdout: a row for each interval of 1s or --interval as it ends, then one for the whole run
    #[arg(long, conflicts_with_all = ["json", "iperf3_json"])]
    pub(super) csv: bool,
    /// Show each stream's rate, retransmissions, round-trip time and window on the terminal, redrawn every 1s or --interval
    #[arg(long, conflicts_with = "quiet")]
    pub(super) watch: bool,
    /// Print only errors
    #[arg(long)]
    pub(super) quiet: bool,
    /// Give up when nothing has moved for this long [default: 60s]
    #[arg(long, value_name = "TIME")]
    pub(super) stall: Option<Time>,
    /// Read the server's token from this file [default: the token in the environment variable FULLPIPE_TOKEN]
    #[arg(long, value_name = "FILE")]
    pub(super) token_file: Option<PathBuf>,
    #[command(flatten)]
    pub(super) over_ssh: SshArgs,
    /// In the testbed, give up after this much real time [default: 1h]
    #[arg(long, value_name = "TIME")]
    pub(super) limit: Option<Time>,
    /// In the testbed, set the memory of the guest, such as 2GB [default: what the path needs]
    #[arg(long, value_name = "SIZE")]
    pub(super) memory: Option<Size>,
    /// The emulated path on whose behalf this process runs inside the guest
    #[arg(long, hide = true)]
    pub(super) guest: Option<String>,
    #[command(flatten)]
    pub(super) storage: storage::StorageArgs,
}

impl Args {
    /// The first flag that was given and has no meaning for storage, or with `in_lab` for storage in the testbed.
    pub(super) fn given_for_paths(&self, in_lab: bool) -> Option<&'static str> {
        let flags = [
            (self.transport.is_some(), "--transport"),
            (self.cc.is_some(), "--cc"),
            (self.streams.is_some(), "--streams"),
            (self.buffer.is_some(), "--buffer"),
            (self.pacing.is_some(), "--pacing"),
            (self.dscp.is_some(), "--dscp"),
            (self.mss.is_some(), "--mss"),
            (self.datagram_size.is_some(), "--datagram-size"),
            (self.bind.is_some(), "--bind"),
            (self.duration.is_some(), "--duration"),
            (self.omit.is_some(), "--omit"),
            (self.reverse, "--reverse"),
            (self.bidir, "--bidir"),
            (self.probe.is_some(), "--probe"),
            (self.interval.is_some(), "--interval"),
            (self.repeat.is_some(), "--repeat"),
            (self.iperf3_json, "--iperf3-json"),
            (self.csv, "--csv"),
            (self.watch, "--watch"),
            (self.seed.is_some() && !in_lab, "--seed"),
            (self.sample.is_some(), "--sample"),
            (self.stall.is_some(), "--stall"),
            (self.token_file.is_some(), "--token-file"),
            (self.limit.is_some() && !in_lab, "--limit"),
            (self.memory.is_some() && !in_lab, "--memory"),
            (self.guest.is_some(), "--guest"),
        ];
        flags.into_iter().find_map(|(given, flag)| given.then_some(flag)).or_else(|| self.over_ssh.given())
    }

    /// The first flag that was given and has no effect over ssh.
    pub(super) fn given_without_ssh(&self) -> Option<&'static str> {
        let flags = [
            (self.token_file.is_some(), "--token-file"),
            (self.limit.is_some(), "--limit"),
            (self.memory.is_some(), "--memory"),
        ];
        flags.into_iter().find_map(|(given, flag)| given.then_some(flag))
    }

    /// The flags that paths and storage share.
    pub(super) fn common(&self) -> storage::Common {
        storage::Common { size: self.size, out: self.out.clone(), json: self.json, quiet: self.quiet }
    }

    /// Length of the intervals that are printed or shown, if any are.
    pub(super) fn every(&self) -> Option<Time> {
        self.interval.or((self.csv || self.watch).then_some(Time(1_000_000_000)))
    }

    /// Whether what is printed is for programs.
    pub(super) fn prints_data(&self) -> bool {
        self.json || self.iperf3_json || self.csv
    }

    /// Most real time that a guest may take.
    pub(super) fn limit(&self) -> Duration {
        self.limit.unwrap_or(Time(3_600_000_000_000)).duration()
    }

    /// The beginning to leave out, if it is longer than nothing.
    pub(super) fn omit(&self) -> Option<Time> {
        self.omit.filter(|omit| *omit > Time(0))
    }

    /// What the name of a record has after the run's own: what the run leaves open, and the record tells.
    pub(super) fn beside(&self) -> String {
        let omit = self.omit().map_or_else(String::new, |omit| format!("-omit{omit}"));
        let probe = self.probe.map_or_else(String::new, |every| format!("-probe{every}"));
        omit + &probe
    }

    pub(super) fn stall(&self) -> Time {
        self.stall.unwrap_or(Time(60_000_000_000))
    }
}
