//! What the two ends say to each other on the control connection.

use fullpipe_path::Transport;
use serde::{Deserialize, Serialize};

use crate::protocol::digest::Key;
use crate::protocol::file::{Extent, FileItem, Meta};
use crate::protocol::hello::Hello;
use crate::protocol::losses::Losses;
use crate::protocol::name::Name;
use crate::protocol::sizing::{SenderStats, SizingEvent, SizingMode};
use crate::protocol::skipped::Skipped;

/// How a file was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reading {
    /// All of it, and it is what it was when it was found.
    Whole,
    /// Not all of it. It has not changed: what has come need not be sent again.
    Partly {
        /// Bytes of its blocks, holes included, that are on the streams, whether they could be read or not.
        sent: u64,
    },
    /// It is another by now, or gone: what has come of it is of no use.
    Changed,
}

impl Reading {
    /// Whether nothing more is to come, of what is worth anything.
    pub fn is_all(self) -> bool {
        matches!(self, Reading::Partly { sent: 0 } | Reading::Changed)
    }
}

/// One message on the control connection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Message {
    /// Both ends, first.
    Hello(Hello),
    /// Client: what it wants.
    Setup(Box<Setup>),
    /// Far end: no, and why.
    Refused {
        /// For a person.
        why: String,
        /// Whether it may go better later.
        again: bool,
        /// [`fullpipe_path::ExitClass`]: the same mistake is the same code, whichever end finds it.
        class: u8,
    },
    /// Either end: are you there?
    Ping {
        /// Comes back.
        n: u64,
    },
    /// The answer.
    Pong {
        /// From the question.
        n: u64,
    },
    /// Client: how to send, now that the round-trip time is known.
    Connect(Box<Connect>),
    /// Far end: connect the streams here. It answers [`Setup::probably`], and a [`Connect`] that is another.
    Ready {
        /// TCP port.
        port: u16,
        /// To be shown on each.
        token: [u8; 32],
        /// Certificate of the streams (DER), if they are encrypted.
        certificate: Vec<u8>,
        /// If the far end receives.
        terms: Option<Terms>,
        /// UDP port for probes, 0 if there is none.
        udp: u16,
    },
    /// Sender: these are next.
    Offer(Vec<FileItem>),
    /// Receiver: of these, in the order of the offer, this is wanted.
    Want(Vec<Want>),
    /// Sender: a folder.
    Folder {
        /// Below the root.
        name: Name,
        /// To be set when all is in it.
        meta: Meta,
    },
    /// Sender: a symbolic link.
    Link {
        /// Below the root.
        name: Name,
        /// What it contains.
        target: Vec<u8>,
        /// Owner and times.
        meta: Meta,
    },
    /// Sender: all of a file has been sent, or never will be.
    FileEnd {
        /// Its number.
        id: u64,
        /// How that went.
        reading: Reading,
    },
    /// Receiver: a file of blocks has taken its name, or was given up.
    FileDone {
        /// Its number.
        id: u64,
    },
    /// Receiver: a file cannot be written, and no more of it need be sent.
    Unwanted {
        /// Its number.
        id: u64,
    },
    /// Receiver: so much has been written.
    Progress {
        /// Bytes, holes and what was there included.
        bytes: u64,
        /// Files under their names.
        files: u64,
        /// Bytes of content that have come over the streams.
        come: u64,
        /// Of these, those of blocks that are not whole yet.
        partial: u64,
        /// Grows with whatever else gets on: checking what was there, giving folders their times.
        moved: u64,
        /// Where the time went so far.
        times: Times,
    },
    /// Sender: so much there is, as far as it has looked.
    Totals {
        /// Bytes.
        bytes: u64,
        /// Files.
        files: u64,
        /// It has looked everywhere.
        all: bool,
    },
    /// Sender: nothing more comes; what it could not read.
    AllSent(Skipped),
    /// Receiver: all has its name; what it could not write. The last word.
    AllDone(Summary),
    /// An end's view, for the record.
    Report {
        /// [`fullpipe_net::wire::Report`] as JSON; in the first of several, where there is one.
        end: String,
        /// Packed samples of TCP_INFO.
        samples: Vec<u8>,
        /// The sender's last word.
        last: bool,
    },
    /// Either end: it is over, and why.
    Failed {
        /// For a person.
        why: String,
        /// Whether it may go better the next time.
        again: bool,
        /// As in [`Message::Refused`].
        class: u8,
    },
    /// Client that only looks: how much is there to be sent? Totals come each second, and with the last of them
    /// what cannot be read.
    Count,
    /// Receiver: send no faster than this, bit/s of payload, all streams together.
    Pace {
        /// None: as fast as it likes.
        bps: Option<u64>,
    },
    /// Receiver: slow start is to begin once more, in all streams.
    SlowStart,
    /// Sender: what its streams say, where no probe asks for it.
    SenderStats(SenderStats),
    /// Receiver: what its controller has decided.
    Sized(SizingEvent),
    /// Sender: what the network has lost. Before its last word.
    Losses(Losses),
    /// Client, behind its greeting: the secret of a standing server; empty over ssh, which has let it in already.
    Secret(Vec<u8>),
}

/// What a client wants.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Setup {
    /// Which way.
    pub task: Task,
    /// How files are treated.
    pub options: Options,
    /// How it will be sent, unless the far end's kernel does not allow it: then its streams can be let in a
    /// round trip earlier.
    pub probably: Option<Connect>,
}

/// Which way, and what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Task {
    /// The client sends.
    Push(Target),
    /// The far end sends these.
    Pull(Sources),
    /// Nothing: the client only wants to know how it would go, and with [`Message::Count`] how much these are.
    Look(Sources),
}

/// What is copied.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sources {
    /// As typed.
    pub paths: Vec<Vec<u8>>,
    /// What is left out: patterns as [`crate::source::exclude`] reads them.
    pub exclude: Vec<String>,
    /// Names may be patterns, as [`crate::source::glob`] reads them.
    pub patterns: bool,
}

/// Where files go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// As typed.
    pub path: Vec<u8>,
    /// Whether it can only be a folder: it ends with a slash, or several things go there.
    pub folder: bool,
    /// The content of a folder goes there, not the folder itself.
    pub content: bool,
    /// Names a transfer, the same each time that the command is repeated.
    pub transfer: u64,
    /// Names the process that repeats it after a lost connection.
    pub process: u64,
}

/// Where the time of an end's streams went, nanoseconds summed over them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Times {
    /// Reading or writing files.
    pub disk: u64,
    /// Hashing.
    pub hash: u64,
    /// In the network's calls: waiting, copying, encrypting.
    pub net: u64,
}

/// How files are treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// Folders too.
    pub recursive: bool,
    /// Follow symbolic links below the sources too.
    pub dereference: bool,
    /// To disk before a file takes its name.
    pub fsync: bool,
    /// Set the setuid, setgid and sticky bits of the sources too.
    pub special: bool,
    /// Read each file back from storage once it has its name, and compare it with what the sender read.
    pub verify: bool,
    /// Extended attributes too.
    pub xattrs: bool,
    /// Encrypt the streams.
    pub encrypt: bool,
    /// When to bypass the page cache.
    pub direct: Direct,
    /// Largest block, bytes.
    pub block: u32,
    /// Leave alone what is there with the same size and time, and what is newer there.
    pub update: bool,
    /// Between samples of TCP_INFO, nanoseconds; 0 for none.
    pub sample_ns: u64,
    /// With nothing moving for so long the transfer has failed.
    pub stall_ns: u64,
    /// Window and pacing are set while it runs, by this law.
    pub sobas: Option<SizingMode>,
}

/// When to bypass the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Direct {
    /// Large files on file systems on disks.
    Auto,
    /// Wherever it can be.
    On,
    /// Never.
    Off,
}

/// How to send.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Connect {
    /// Congestion control, streams, buffer, pacing.
    pub transport: Transport,
    /// Round-trip time as the client saw it, nanoseconds.
    pub rtt_ns: u64,
    /// If the client receives.
    pub terms: Option<Terms>,
    /// The port that the client would like the streams to go to, so that it need not wait to be told; zero
    /// for any.
    pub port: u16,
}

/// What a receiving end asks of the sending one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// An earlier attempt has left something: files must be offered before they are sent.
    pub offer: bool,
    /// Key of the digests ([`Key::block`]), which lasts as long as the journal.
    pub key: Key,
    /// Key of the tags of this attempt's chunks ([`Tagger`](crate::protocol::digest::Tagger)).
    pub tags: Key,
}

/// What of an offered file is to be sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Want {
    /// All.
    All,
    /// Nothing: it is there.
    Nothing,
    /// All but these.
    But(Vec<Extent>),
}

/// How it went at the receiver.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Summary {
    /// Files under their names.
    pub files: u64,
    /// Of these, those that were there already.
    pub present: u64,
    /// Bytes of content that came over the network.
    pub bytes: u64,
    /// What could not be written.
    pub skipped: Skipped,
    /// Copies of other commands into the same folder that were begun, and neither ended nor go on now.
    pub unfinished: u64,
    /// Files under the transfer's own names that are not the receiving user's, and why they did not count.
    pub distrusted: Vec<String>,
    /// What was read back from storage, where that was asked for.
    pub verified: Verified,
}

/// Files that were read back from storage and are what the sender read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Verified {
    /// How many.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Time in which files were being read back, nanoseconds.
    pub busy_ns: u64,
    /// Of it, the time after all else was done: how much longer the transfer took, nanoseconds.
    pub after_ns: u64,
}
