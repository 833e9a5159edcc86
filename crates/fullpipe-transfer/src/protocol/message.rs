//! What the two ends say to each other: messages on the control connection, chunks on the streams.
//!
//! Both are postcard inside frames that carry their length and a checksum. The checksum is not for safety
//! from people (TLS is), but from machines that damage data above TCP's own checksum. Nothing is believed:
//! lengths are bounded, and what does not parse ends the transfer with an error.

use std::io::{self, Read, Write};

use fullpipe_path::Transport;
use serde::{Deserialize, Serialize};

use crate::protocol::digest::{self, Key, Tag};
use crate::protocol::file::{Extent, FileItem, Meta, Name};
use crate::protocol::skipped::Leftovers;
use crate::sobas::{Law, Note, Seen};
use crate::source::walk::Sight;
use crate::telemetry::losses::Losses;

/// First word of a conversation.
pub const MAGIC: [u8; 8] = *b"fullpipe";
/// Version of this protocol; both ends must speak the same.
pub const PROTOCOL: u32 = 13;
/// Longest frame.
const FRAME_MAX: u32 = 4 << 20;
/// Longest frame of who has not shown yet that it may say anything.
pub(crate) const GREETING_MAX: u32 = 64 << 10;
/// Bytes of a frame before its content: length and checksum.
pub const FRAME_HEAD: usize = 12;
/// Most files in one pack.
pub const PACK_FILES: usize = 4096;

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
    AllSent(Leftovers),
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
    Seen(Seen),
    /// Receiver: what its controller has decided.
    Sized(Note),
    /// Sender: what the network has lost. Before its last word.
    Losses(Losses),
    /// Client, behind its greeting: the secret of a standing server; empty over ssh, which has let it in already.
    Secret(Vec<u8>),
}

/// Who speaks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`PROTOCOL`].
    pub protocol: u32,
    /// Version of fullpipe.
    pub program: String,
    /// What this end's kernel lets its sockets do.
    pub limits: Limits,
}

/// What a kernel lets this user's sockets do.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Limits {
    /// Congestion controls that can be set.
    pub ccs: Vec<String>,
    /// Largest send buffer that a socket may ask for, bytes.
    pub send: u64,
    /// Largest receive buffer likewise.
    pub receive: u64,
    /// Where the kernel's own tuning of send buffers stops, bytes.
    pub tuned_send: u64,
    /// Of receive buffers.
    pub tuned_receive: u64,
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
    pub sobas: Option<Law>,
}

impl Options {
    /// What of the sources is seen.
    pub(crate) fn sight(&self) -> Sight {
        Sight { recursive: self.recursive, dereference: self.dereference, xattrs: self.xattrs }
    }
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
    /// Key of the tags of this attempt's chunks ([`digest::Tagger`]).
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
    pub skipped: u64,
    /// Bytes of content that came over the network.
    pub bytes: u64,
    /// What could not be written.
    pub left: Leftovers,
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

/// Header of a chunk, in a frame. Data follow as announced, then a [`Trailer`], for holes and the end of a stream too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Chunk {
    /// Bytes of a large file.
    Block {
        /// Its number, the same in all of its blocks.
        id: u64,
        /// The file, in every block: so no stream waits for another.
        file: FileItem,
        /// Which bytes.
        extent: Extent,
        /// Nothing but zeros, not sent.
        hole: bool,
    },
    /// Many small files, whole, one after the other.
    Pack(Vec<FileItem>),
    /// Nothing more comes on this stream.
    End,
}

impl Chunk {
    /// Bytes of data that follow; none if they are more than can be.
    pub fn data_len(&self) -> Option<u64> {
        match self {
            Chunk::Block { hole: true, .. } | Chunk::End => Some(0),
            Chunk::Block { extent, .. } => Some(extent.len),
            Chunk::Pack(files) => files.iter().try_fold(0u64, |sum, file| sum.checked_add(file.size)),
        }
    }
}

/// Closes a chunk with its tag ([`digest::Tagger`]). It has none if the sender could not read all of the data: then the
/// data are filling, and the sender says on the control connection what was wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trailer(pub Option<Tag>);

impl Trailer {
    /// Bytes of a trailer.
    pub const LEN: usize = digest::LEN;
    /// Stands for no tag. No damage to a tag makes it this.
    const NONE: Tag = [0; Trailer::LEN];

    /// Packed.
    pub fn pack(&self) -> [u8; Trailer::LEN] {
        self.0.unwrap_or(Trailer::NONE)
    }

    /// Unpacked.
    pub fn unpack(bytes: [u8; Trailer::LEN]) -> Trailer {
        Trailer((bytes != Trailer::NONE).then_some(bytes))
    }
}

fn bad(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.into())
}

fn checksum(content: &[u8]) -> [u8; 8] {
    let mut sum = [0; 8];
    sum.copy_from_slice(&blake3::hash(content).as_bytes()[..8]);
    sum
}

/// Packs a value into a frame: length, checksum, content.
///
/// # Errors
/// It is too long.
pub fn pack<T: Serialize>(value: &T) -> io::Result<Vec<u8>> {
    let mut frame = postcard::to_extend(value, vec![0; FRAME_HEAD]).map_err(|e| bad(e.to_string()))?;
    let len = u32::try_from(frame.len() - FRAME_HEAD).ok().filter(|len| *len <= FRAME_MAX);
    let len = len.ok_or_else(|| bad("a frame over its limit"))?;
    let sum = checksum(&frame[FRAME_HEAD..]);
    frame[..4].copy_from_slice(&len.to_le_bytes());
    frame[4..FRAME_HEAD].copy_from_slice(&sum);
    Ok(frame)
}

/// Writes a value as a frame.
///
/// # Errors
/// The connection's.
pub fn send<T: Serialize>(to: &mut (impl Write + ?Sized), value: &T) -> io::Result<()> {
    to.write_all(&pack(value)?)?;
    to.flush()
}

/// Reads a value from a frame.
///
/// # Errors
/// The connection's; `InvalidData` when what came is damaged or no frame.
pub fn receive<T: for<'de> Deserialize<'de>>(from: &mut (impl Read + ?Sized)) -> io::Result<T> {
    receive_within(from, FRAME_MAX)
}

/// The same, of a frame of no more than so many bytes: what parses may take many times as much memory.
///
/// # Errors
/// As with [`receive`].
pub fn receive_within<T: for<'de> Deserialize<'de>>(from: &mut (impl Read + ?Sized), most: u32) -> io::Result<T> {
    parse(&frame(from, most)?)
}

/// Reads a chunk's header, and gives its packed form too, which its tag covers.
///
/// # Errors
/// As with [`receive`].
pub fn receive_header(from: &mut (impl Read + ?Sized)) -> io::Result<(Chunk, Vec<u8>)> {
    let content = frame(from, FRAME_MAX)?;
    Ok((parse(&content)?, content))
}

/// Reads a frame of at most `most` bytes, and gives its content.
fn frame(from: &mut (impl Read + ?Sized), most: u32) -> io::Result<Vec<u8>> {
    let mut head = [0; FRAME_HEAD];
    from.read_exact(&mut head)?;
    let len = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
    if len > most {
        return Err(bad("not a frame of fullpipe's protocol"));
    }
    // Memory is taken as it comes: a length alone costs nothing.
    let mut content = Vec::new();
    from.take(u64::from(len)).read_to_end(&mut content)?;
    if content.len() != len as usize {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    if checksum(&content) != head[4..] {
        return Err(bad("a damaged frame"));
    }
    Ok(content)
}

fn parse<T: for<'de> Deserialize<'de>>(content: &[u8]) -> io::Result<T> {
    let (value, rest) = postcard::take_from_bytes(content).map_err(|e| bad(e.to_string()))?;
    if rest.is_empty() { Ok(value) } else { Err(bad("a frame with something behind it")) }
}

/// Reads a frame, and keeps nothing of it.
///
/// # Errors
/// The connection's; `InvalidData` when what came is no frame.
pub(crate) fn skip(from: &mut (impl Read + ?Sized)) -> io::Result<()> {
    let mut head = [0; FRAME_HEAD];
    from.read_exact(&mut head)?;
    let len = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
    if len > FRAME_MAX {
        return Err(bad("not a frame of fullpipe's protocol"));
    }
    io::copy(&mut from.take(u64::from(len)), &mut io::sink()).map(drop)
}

/// Bytes of a stream's preamble: its number and its tag before TLS, the session's token and its number inside TLS.
pub const PREAMBLE: usize = 34;

/// The first bytes of a stream, before TLS: its number, and a tag that only the holder of the session's token can
/// make. Strangers are told apart by it at the cost of one hash. It is no proof to whoever can read the path, since it
/// can be sent again; inside TLS the stream shows the token itself. A stream that is not encrypted has this tag alone,
/// which does not give the token away.
#[must_use]
pub fn preamble(token: &[u8; 32], stream: u16) -> [u8; PREAMBLE] {
    let key = blake3::derive_key("fullpipe 2026 number of a data stream", token);
    let number = stream.to_le_bytes();
    let mut preamble = [0; PREAMBLE];
    preamble[..2].copy_from_slice(&number);
    preamble[2..].copy_from_slice(blake3::keyed_hash(&key, &number).as_bytes());
    preamble
}

/// The stream's number in a preamble with the right tag.
pub(crate) fn numbered(shown: &[u8; PREAMBLE], token: &[u8; 32]) -> Option<u16> {
    let stream = u16::from_le_bytes([shown[0], shown[1]]);
    let right = preamble(token, stream);
    // All of it is compared, so that the time does not tell how much of it is right.
    let differs = shown.iter().zip(right).fold(0, |all, (a, b)| all | (a ^ b));
    (differs == 0).then_some(stream)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn item(name: &str) -> FileItem {
        let meta = Meta { mode: 0o644, uid: 0, gid: 0, mtime: (1, 2), xattrs: vec![] };
        FileItem {
            name: Name::try_from(name.as_bytes().to_vec()).unwrap(),
            size: 5,
            sparse: false,
            changed: (2, 3),
            meta,
        }
    }

    #[test]
    fn there_and_back() {
        let chunk = Chunk::Block { id: 7, file: item("a/b"), extent: Extent { offset: 0, len: 5 }, hole: false };
        let bytes = pack(&chunk).unwrap();
        assert_eq!(receive::<Chunk>(&mut bytes.as_slice()).unwrap(), chunk);
        for trailer in [Trailer(Some([9; digest::LEN])), Trailer(None)] {
            assert_eq!(Trailer::unpack(trailer.pack()), trailer);
        }
    }

    #[test]
    fn a_flipped_bit_is_seen_wherever_it_is() {
        let whole = pack(&Message::Offer(vec![item("one"), item("two")])).unwrap();
        for at in 0..whole.len() * 8 {
            let mut bytes = whole.clone();
            bytes[at / 8] ^= 1 << (at % 8);
            assert!(receive::<Message>(&mut bytes.as_slice()).is_err(), "bit {at}");
        }
    }

    proptest! {
        #[test]
        fn anything_may_arrive(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = receive::<Message>(&mut bytes.as_slice());
            let _ = receive::<Chunk>(&mut bytes.as_slice());
            // Behind a right checksum too.
            let mut frame = (bytes.len() as u32).to_le_bytes().to_vec();
            frame.extend_from_slice(&checksum(&bytes));
            frame.extend_from_slice(&bytes);
            if let Ok(chunk) = receive::<Chunk>(&mut frame.as_slice()) {
                let _ = chunk.data_len();
            }
            let _ = receive::<Message>(&mut frame.as_slice());
        }
    }
}
