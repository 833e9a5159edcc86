//! The messages that the two ends exchange on the control connection.

use std::net::SocketAddr;

use fullpipe_path::{Buffer, DirectIo, Stripes, Transport};
use serde::{Deserialize, Serialize};

use crate::protocol::candidate::{Candidate, Change};
use crate::protocol::changes::Changes;
use crate::protocol::digest::Key;
use crate::protocol::file::{Extent, FileItem, Meta};
use crate::protocol::hello::Hello;
use crate::protocol::losses::Losses;
use crate::protocol::name::{Name, Named};
use crate::protocol::not_kept::NotKept;
use crate::protocol::sizing::{SenderStats, SizingEvent, SizingMode};
use crate::protocol::skipped::Skipped;

/// How the sender's reading of a file ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reading {
    /// The whole file was read, and it has not changed since the walk found it, or with [`Options::growing`] has only grown.
    Whole,
    /// Part of the file could not be read. The file has not changed, so the received part need not be sent again.
    Partly {
        /// Bytes of the file's blocks on the streams, including holes and blocks that could not be read.
        sent: u64,
    },
    /// The file was changed or removed meanwhile, so the received part is useless.
    Changed,
    /// The whole of a file was read whose size was not known ([`FileItem::UNKNOWN_SIZE`]).
    Ended {
        /// The file's size, in bytes.
        size: u64,
    },
}

impl Reading {
    /// Whether the file was read to its end, so that it may get its name.
    pub fn is_whole(self) -> bool {
        matches!(self, Reading::Whole | Reading::Ended { .. })
    }

    /// Whether nothing useful of the file is on the streams, because nothing of it was sent or it has changed.
    pub fn is_useless(self) -> bool {
        matches!(self, Reading::Partly { sent: 0 } | Reading::Changed)
    }
}

/// One message on the control connection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Message {
    /// The first message of both ends.
    Hello(Hello),
    /// Client: the transfer that it asks for.
    Setup(Box<Setup>),
    /// Far end: refuses the transfer.
    Refused {
        /// The reason, for a person to read.
        why: String,
        /// Whether a later attempt may succeed.
        retry: bool,
        /// The exit code of the error's class ([`fullpipe_path::ExitClass`]), so that an error has the same code whichever
        /// end finds it.
        class: u8,
    },
    /// Either end: asks for a [`Message::Pong`].
    Ping {
        /// The number that the answer repeats.
        n: u64,
    },
    /// Answers a [`Message::Ping`].
    Pong {
        /// The number of the ping.
        n: u64,
    },
    /// Client: how to send, decided once the round-trip time is known.
    Connect(Box<Connect>),
    /// Far end: where to connect the streams. It answers [`Setup::probably`], and a [`Connect`] that differs from it.
    Ready {
        /// Port, of TCP or of UDP as the transport needs; [`fullpipe_net::shared_port::SAME_PORT`] for that of the control
        /// connection.
        port: u16,
        /// The session's token, which each stream must show.
        token: [u8; 32],
        /// The streams' certificate (DER), empty if they are not encrypted.
        certificate: Vec<u8>,
        /// The receiver's terms, if the far end receives.
        terms: Option<Terms>,
        /// UDP port for probes, 0 if there is none.
        udp: u16,
    },
    /// Sender: offers the files that are next.
    Offer(Vec<FileItem>),
    /// Receiver: which parts of the offered files to send, in the order of the offer.
    Want(Vec<Want>),
    /// Sender: a folder.
    Folder {
        /// The folder's name below the root.
        name: Name,
        /// The metadata to set once the folder's content is complete.
        meta: Meta,
    },
    /// Sender: a symbolic link.
    Link {
        /// The link's name below the root.
        name: Name,
        /// The path that the link points at.
        target: Vec<u8>,
        /// Time of the link's last change (ctime): seconds since 1970, and nanoseconds.
        changed: (i64, u32),
        /// The link's owner and times.
        meta: Meta,
    },
    /// Sender: a file that is a hard link to one that it has announced before.
    HardLink {
        /// The file.
        item: FileItem,
        /// The first name of the same file.
        to: Name,
    },
    /// Sender: it sends nothing more of a file.
    FileEnd {
        /// Its number.
        id: u64,
        /// How reading the file ended.
        reading: Reading,
    },
    /// Receiver: a large file has its final name, or was given up.
    FileDone {
        /// Its number.
        id: u64,
    },
    /// Receiver: a file cannot be written, so the sender need not send the rest.
    Unwanted {
        /// Its number.
        id: u64,
    },
    /// Receiver: its progress.
    Progress {
        /// Bytes written, including holes and bytes that were already there.
        bytes: u64,
        /// Number of files with their final names.
        files: u64,
        /// Bytes of content received over the streams.
        come: u64,
        /// Part of `come` that belongs to incomplete blocks, in bytes.
        partial: u64,
        /// A counter that grows with other work, such as checking existing files and setting folders' times.
        moved: u64,
        /// The time spent so far, by kind of work.
        times: Times,
    },
    /// Sender: the totals of its walk so far.
    Totals {
        /// Total size of the files, in bytes.
        bytes: u64,
        /// Number of files.
        files: u64,
        /// Whether the walk is complete.
        all: bool,
    },
    /// Sender: what it could not send of files that it sent. It comes before [`Message::AllSent`], and only if there is
    /// anything.
    NotKept(Box<NotKept>),
    /// Sender: it has sent everything. Contains the entries that it could not read.
    AllSent(Skipped),
    /// Receiver: all files have their final names. This is the last message of a successful transfer.
    AllDone(Summary),
    /// Either end: its report for the transfer's record.
    Report {
        /// The report ([`fullpipe_net::wire::Report`]) as JSON. Only the first of several messages has it; it is empty if
        /// there is no report.
        end: String,
        /// Packed samples of TCP_INFO.
        samples: Vec<u8>,
        /// Whether this is the last report message.
        last: bool,
    },
    /// Either end: the transfer failed.
    Failed {
        /// The reason, for a person to read.
        why: String,
        /// Whether another attempt may succeed.
        retry: bool,
        /// The exit code of the error's class, as in [`Message::Refused`].
        class: u8,
    },
    /// Client: asks what there is to send. The far end answers with [`Message::Candidates`], with totals once a second, and at the
    /// end with the entries that it cannot read.
    Count,
    /// Receiver: the maximum sending rate of all streams together.
    Pace {
        /// The rate in bit/s of payload. `None` means no limit.
        bps: Option<u64>,
    },
    /// Receiver: how many streams may send from now on. The number only grows.
    Streams {
        /// The number of streams.
        sending: u16,
    },
    /// Receiver: asks the sender to restart slow start in all streams.
    SlowStart,
    /// Receiver: asks the sender to change the congestion control of all streams to BBR, which bears random losses.
    BearLosses,
    /// Sender: statistics of its streams, sent if there are no UDP probes to carry them.
    SenderStats(SenderStats),
    /// Receiver: an event of its controller, for the record.
    Sized(SizingEvent),
    /// Sender: the losses of the network, sent before its last message.
    Losses(Losses),
    /// Client, after its greeting: the secret of its token. Empty over ssh, which has already authenticated the client.
    Secret(Vec<u8>),
    /// Receiver: everything has arrived. It asks for the names in the folders of the sources, to delete what it has besides.
    List,
    /// Sender: names in a folder of the sources.
    Listing(Listing),
    /// Sender: that was all. Contains what it could not read; then the receiver deletes no more.
    Listed(Skipped),
    /// Receiver: what it has deleted, or would delete ([`Task::Compare`]).
    Deleted(Vec<Name>),
    /// Sender: it could not read all of a file and leaves out blocks from now on, so nobody may wait for them.
    GivenUp {
        /// The file's number.
        id: u64,
    },
    /// Client over ssh, before its greeting: the other end of the transfer is a third host, not this client.
    ThirdParty(Box<ThirdParty>),
    /// Client over ssh: open a port for the streams, which may come from another end or not at all, and tell it
    /// ([`Message::Ready`]).
    Listen(Box<Connect>),
    /// Client over ssh: find out whether the port of another end can be reached: of another far end, or of the client.
    Reach(Box<Reach>),
    /// Far end: how it has reached the other one, or why it cannot. It answers [`Message::Reach`]; the reason may also answer
    /// [`Message::Dial`].
    Reached(Result<Reached, String>),
    /// Client over ssh, in place of [`Message::Connect`]: connect the streams to that port.
    Dial(Box<Dial>),
    /// Sender, to a client between two far ends: what only the sender knows of the progress.
    SenderProgress {
        /// Bytes of content that it has sent.
        sent: u64,
        /// The time spent so far, by kind of work.
        times: Times,
        /// Names of files since the last message, if the client asked for names.
        names: Vec<Named>,
    },
    /// Client, before [`Message::Connect`] or [`Message::Count`]: a part of the list to which [`Sources::listed`] limits a copy,
    /// names each with a zero byte behind it.
    Names(Vec<u8>),
    /// Receiver, with [`Options::remove_sources`]: files and links that are complete and on disk, each with the number of the
    /// version that was copied ([`FileItem::key`], [`link_key`](crate::protocol::file::link_key)).
    Complete(Vec<(Name, u64)>),
    /// Sender, with [`Options::remove_sources`], before its last message: what it has removed.
    Removed(Removed),
    /// Server, in place of [`Message::Refused`]: its streams are to come over TCP alone.
    TcpOnly,
    /// Server, in place of [`Message::Refused`]: none of its data ports is free now.
    PortsTaken {
        /// The first of them.
        first: u16,
        /// The last of them.
        last: u16,
    },
    /// Far end that serves measurements, after its greeting: where, and to whom.
    Measures {
        /// The port of its host on which it listens.
        port: u16,
        /// The key by which a client proves that it may measure.
        key: [u8; 32],
    },
    /// Client of a far end that serves measurements: check that end's host for such a path.
    Check {
        /// Round-trip time, nanoseconds.
        rtt_ns: u64,
        /// Rate that should be reached, bit/s.
        rate_bps: u64,
    },
    /// Far end, to [`Message::Check`]: what was found, as JSON.
    Checked(String),
    /// A part of what a copy would find. Client, for [`Task::Compare`]; far end, for [`Message::Count`]. An empty part is a sign
    /// of life.
    Candidates(Vec<Candidate>),
    /// Far end, for [`Task::Compare`]: what would become of the next candidates, in their order. An empty part is a sign of life.
    Compared(Vec<Change>),
    /// Far end, instead of [`Message::Ready`]: it cannot send as [`Setup::probably`] says, and waits for a [`Message::Connect`].
    NotReady,
    /// Receiver, if it keeps links that are the same ([`Options::keeps_same`]): a symbolic link that it has made.
    Linked(Name),
}

/// A client's request for a transfer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Setup {
    /// The direction, and the files.
    pub task: Task,
    /// The options for files.
    pub options: Options,
    /// How the client expects to send. If the far end's kernel allows it, the far end can accept streams one round trip
    /// earlier.
    pub probably: Option<Connect>,
}

/// The direction of a transfer, and its files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Task {
    /// The client sends to this target.
    Push(Target),
    /// The far end sends these sources.
    Pull(Sources),
    /// Nothing is copied. The client measures the path, and with [`Message::Count`] asks for the sources' total size.
    Look(Sources),
    /// Nothing is copied or deleted. The client measures the path, with [`Message::Candidates`] asks what a copy to this target
    /// would do with each, and with [`Message::Listing`] what it would delete.
    Compare(Target),
}

/// Names in a folder of the sources.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listing {
    /// The folder's name below the root; `None` for the root itself, if only the content of the source is copied.
    pub folder: Option<Name>,
    /// Names of files, folders and links in it, each one component.
    pub names: Vec<Vec<u8>>,
    /// Whether these were the last ones of this folder.
    pub last: bool,
}

/// What a receiver may delete: what its folders have and those of the sources do not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deletion {
    /// What is left out of the copy, and so is not deleted either.
    pub filter: Filter,
    /// Most files and folders to delete.
    pub most: Option<u64>,
}

/// The sources of a transfer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sources {
    /// The sources' paths as the user typed them.
    pub paths: Vec<Vec<u8>>,
    /// What is left out.
    pub filter: Filter,
    /// Whether the paths may be patterns ([`crate::source::glob`]).
    pub patterns: bool,
    /// Whether the copy is limited to a list of names ([`Message::Names`]) below the one source.
    pub listed: bool,
}

/// What is left out of the sources ([`crate::source::exclude`]).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filter {
    /// Patterns of entries. The first that matches decides.
    pub rules: Vec<Rule>,
    /// Smaller files are left out, bytes.
    pub min_size: Option<u64>,
    /// Larger files are left out, bytes.
    pub max_size: Option<u64>,
    /// Whether folders on which other file systems are mounted are copied without their content.
    pub one_file_system: bool,
}

/// A pattern, and whether what it matches is copied or left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// Whether it is copied.
    pub includes: bool,
    /// The pattern.
    pub pattern: String,
}

/// The destination of a transfer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// The path as the user typed it.
    pub path: Vec<u8>,
    /// Whether the destination must be a folder, because its path ends with a slash or there are several sources.
    pub folder: bool,
    /// Whether the path is the name of the copy, also if a folder has that name.
    pub exact: bool,
    /// Whether the copy is a file, so that no folder may have its name.
    pub file: bool,
    /// Whether only the content of a source folder is copied, not the folder itself.
    pub content: bool,
    /// What may be deleted once everything has arrived. `None`: nothing.
    pub delete: Option<Deletion>,
    /// What the receiver changes of the files' attributes.
    pub changes: Changes,
    /// Identifies the transfer. It is equal each time that the same command runs.
    pub transfer: u64,
    /// Identifies the client's process, which may repeat the transfer after a lost connection.
    pub process: u64,
}

/// Time that one end's streams spent by kind of work, in nanoseconds, summed over the streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Times {
    /// Time for reading or writing files, in nanoseconds.
    pub disk: u64,
    /// Time for hashing, in nanoseconds.
    pub hash: u64,
    /// Time in network calls (waiting, copying and encrypting), in nanoseconds.
    pub net: u64,
}

/// The options of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// Copy folders.
    pub recursive: bool,
    /// Follow symbolic links below the sources.
    pub dereference: bool,
    /// Write each file to disk (`fsync(2)`) before it gets its final name.
    pub fsync: bool,
    /// Copy the setuid, setgid and sticky bits of the sources.
    pub special: bool,
    /// Read each finished file back from storage and compare it with the data that the sender read.
    pub verify: bool,
    /// Copy extended attributes.
    pub xattrs: bool,
    /// Copy access control lists.
    pub acls: bool,
    /// Keep hard links among the files of the copy.
    pub hard_links: bool,
    /// Remove each file and link of the sources once the receiver has it, complete and on disk.
    pub remove_sources: bool,
    /// Encrypt the streams.
    pub encrypt: bool,
    /// When to bypass the page cache.
    pub direct: DirectIo,
    /// Maximum size of a block, in bytes.
    pub block: u32,
    /// Skip a file if the destination has it with the same size and mtime, or with a newer mtime.
    pub update: bool,
    /// With `update`, do not skip a file because the destination has it with a newer mtime.
    pub replace_newer: bool,
    /// Skip a file if the destination has it with the same content.
    pub checksum: bool,
    /// Interval between samples of TCP_INFO, in nanoseconds; 0 for no samples.
    pub sample_ns: u64,
    /// Time without progress after which the transfer fails, in nanoseconds.
    pub stall_ns: u64,
    /// Write into a file that the destination has, not into another one that takes its place.
    pub inplace: bool,
    /// Copy what a file had when it was found, although it has grown since.
    pub growing: bool,
    /// Give files all of their blocks, also where the sources have holes.
    pub dense: bool,
    /// How large files are laid out on Lustre. `None`: as their sizes and the number of streams suggest.
    pub stripes: Option<Stripes>,
}

impl Options {
    /// Whether a file or link that the destination has stays if it is the same.
    pub fn keeps_same(&self) -> bool {
        self.update || self.checksum
    }
}

/// How the sender sends.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Connect {
    /// Congestion control, number of streams, buffers and pacing.
    pub transport: Transport,
    /// Number of streams to open besides. They do not send until SOBAS lets them, or without it until disks call for them.
    pub spare: u16,
    /// The law by which SOBAS sets window and pacing during the transfer. `None` turns SOBAS off.
    pub sizing: Option<SizingMode>,
    /// Rate of the path as the client assumes it, in bit/s. With SOBAS, the sender begins no faster.
    pub assumed_bps: u64,
    /// Round-trip time that the client measured, in nanoseconds.
    pub rtt_ns: u64,
    /// The receiver's terms, if the client receives.
    pub terms: Option<Terms>,
    /// The far end's port to which the client would like to connect the streams without waiting for an answer; 0 for any.
    pub port: u16,
    /// Whether the streams come from the far host itself, through relays, over ssh connections of their own.
    pub relays: bool,
}

impl Connect {
    /// Number of streams to open.
    #[must_use]
    pub fn opened(&self) -> u16 {
        self.transport.streams.saturating_add(self.spare)
    }

    /// The settings that the streams' sockets have from the handshake on, at the end that sends or at the one that receives.
    ///
    /// The paper's law of SOBAS begins with a small window. A buffer that is set before connecting offers all of it with the first
    /// acknowledgment (`tcp_select_initial_window`), and TCP takes no offer back, so the receiver begins with a tuned one.
    pub(crate) fn at_first(&self, sends: bool) -> Transport {
        let mut transport = self.transport.clone();
        if self.sizing == Some(SizingMode::Paper) && !sends {
            transport.buffer = Buffer::Auto;
        }
        transport
    }
}

/// A client's word that it only introduces a far end to another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThirdParty {
    /// The other host, as the user typed it. It stands in messages of errors.
    pub peer: String,
    /// What the other host was asked for, if that one sends. It is not trusted to send nothing else.
    pub asked: Option<Sources>,
    /// Whether the sender tells the client the names of files.
    pub names: bool,
}

/// Where a far end may reach the port of another end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reach {
    /// The other end's addresses, as the client knows them.
    pub addresses: Vec<SocketAddr>,
    /// The other host's name. Its addresses may differ between networks. `None`: the other end is the client, and ssh knows
    /// the address from which it has connected.
    pub host: Option<String>,
    /// The port.
    pub port: u16,
    /// The transport whose streams are to lead there.
    pub transport: Transport,
    /// Time that the trial may take, in nanoseconds.
    pub within_ns: u64,
}

/// The path from a far end to the port of another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reached {
    /// The address that answered.
    pub to: SocketAddr,
    /// Round-trip time, in nanoseconds.
    pub rtt_ns: u64,
    /// Largest packet, in bytes, as far as the far end's kernel knows the path.
    pub mtu: Option<u32>,
}

/// Where a far end connects its streams.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Dial {
    /// How to send.
    pub connect: Connect,
    /// The other far end's address and port.
    pub to: SocketAddr,
    /// The token that each stream must show there.
    pub token: [u8; 32],
    /// The streams' certificate (DER), empty if they are not encrypted.
    pub certificate: Vec<u8>,
    /// The other far end's UDP port for probes, 0 if there is none.
    pub udp: u16,
}

/// The terms that the receiving end sets for the sending end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// Whether the sender must offer files before it sends them, because an earlier attempt left data.
    pub offer: bool,
    /// Key of the digests ([`Key::block`]). It is valid as long as the journal.
    pub key: Key,
    /// Key of the tags of chunks, valid for this attempt ([`Tagger`](crate::protocol::digest::Tagger)).
    pub tags: Key,
    /// Number in the name of the journal, which is in the folder of the destination; `None` if nothing is written to a folder, or
    /// under another name than the source's.
    pub journal: Option<u64>,
}

/// The parts of an offered file that the receiver wants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Want {
    /// The whole file.
    All,
    /// Nothing, because the receiver has the file.
    Nothing,
    /// Nothing, because the receiver has a newer file of another size.
    Newer,
    /// The whole file except these extents.
    But(Vec<Extent>),
}

/// The result of a transfer at the receiver.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Summary {
    /// Number of files with their final names.
    pub files: u64,
    /// Number of these files that were already there.
    pub present: u64,
    /// Number of those that were already there which are newer there and of another size.
    pub newer: u64,
    /// Bytes of content received over the network.
    pub bytes: u64,
    /// The entries that could not be written.
    pub skipped: Skipped,
    /// Number of unfinished copies by other commands into the same folder that are not running now.
    pub unfinished: u64,
    /// Files with the transfer's own names that the receiver did not trust, and why.
    pub distrusted: Vec<String>,
    /// The files that were read back from storage, if the client asked for that.
    pub verified: Verified,
    /// What could not be kept of files that were copied, at both ends.
    pub not_kept: Box<NotKept>,
    /// What was deleted. `None` if nothing was to be, or if something had not arrived.
    pub deleted: Option<Deleted>,
}

/// Files and folders that were deleted, or would be, because the sources have none of their names.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Deleted {
    /// Number of files and folders.
    pub entries: u64,
    /// Number of those that stayed because of [`Deletion::most`].
    pub over_limit: u64,
    /// Those that could not be deleted.
    pub failed: Skipped,
}

/// What a sender has removed of its sources ([`Options::remove_sources`]).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Removed {
    /// Number of files and links.
    pub files: u64,
    /// Those that the receiver has, but that could not be removed or have changed since.
    pub failed: Skipped,
}

/// Files that were read back from storage and match the data that the sender read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Verified {
    /// Number of files.
    pub files: u64,
    /// Total size of the files, in bytes.
    pub bytes: u64,
    /// Time during which files were read back, in nanoseconds.
    pub busy_ns: u64,
    /// Part of that time after all other work was done, which prolonged the transfer, in nanoseconds.
    pub after_ns: u64,
}
