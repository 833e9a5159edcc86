//! The channel between a server and the process that serves one client: its messages and their format.
//!
//! The server hands over the client's connection and its folder as descriptors (`unix(7)`, SCM_RIGHTS), then only answers
//! requests. It trusts a request only as far as its own state allows.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use fullpipe_net::serve_measurement::MeasurementPolicy;
use fullpipe_net::wire::Request;
use fullpipe_net::{Denial, MeasurementId};
use fullpipe_transfer::connection::tls::Identity;
use fullpipe_transfer::connection::token_store::Grant;
use fullpipe_transfer::protocol::message::{Summary, Task};
use fullpipe_transfer::{Sent, Skipped};
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};
use serde::{Deserialize, Serialize};

/// Largest number of descriptors handed over: the connection, the folder, and the channel for data streams.
const MAX_FDS: usize = 3;
/// Longest message, bytes. One message has the names of all sources of a client, up to four times as long here.
const MAX_MESSAGE: u32 = 64 << 20;

/// The work for a process, and the client it is for.
#[derive(Serialize, Deserialize)]
pub struct Job {
    /// The client's address.
    pub peer: String,
    /// The work.
    pub work: Work,
    /// Whether the data streams come to the server's own port. Then the last descriptor is the channel through which they come.
    pub shares_port: bool,
}

/// The kind of work.
#[derive(Serialize, Deserialize)]
pub enum Work {
    /// Measure with a client.
    Measure(MeasurementPolicy),
    /// Copy for a client.
    Copy(CopyOptions),
}

/// The options of copies.
#[derive(Clone, Serialize, Deserialize)]
pub struct CopyOptions {
    /// Path of the folder that comes as a descriptor, absolute and without links.
    pub path: std::path::PathBuf,
    /// Certificate and key; none with --insecure.
    pub identity: Option<Identity>,
    /// First and last port for the streams; 0 and 0 let the kernel choose.
    pub data_ports: (u16, u16),
    /// Whether clients may ask for streams that are not encrypted.
    pub plain_streams: bool,
    /// Whether clients may set setuid, setgid and sticky bits.
    pub special_bits: bool,
    /// Longest time in which nothing moves.
    pub stall: std::time::Duration,
}

/// A request or a report of the process.
#[derive(Serialize, Deserialize)]
pub enum Ask {
    /// Asks what this secret grants.
    Grant(Vec<u8>),
    /// Asks whether a client with valid credentials may do this task now.
    Admit(Task),
    /// Asks whether this proves a token for this nonce.
    Prove {
        /// Nonce that the client was given.
        nonce: [u8; 32],
        /// The client's proof.
        mac: [u8; 32],
    },
    /// Asks whether a client may measure now, with the number of its measurement if that takes several connections.
    LetIn(Option<MeasurementId>),
    /// Asks for the streams with these preambles, which are to come to the server's own port.
    Streams(Vec<Vec<u8>>),
    /// Reports a file at the destination that is not trusted as this copy's own, as `NAME: WHY`. There is no answer.
    Distrusts(String),
    /// Reports that a run begins. There is no answer.
    Begins(Request),
    /// Reports that the client has been served. There is no answer, and the process ends.
    Done(Result<Option<Copied>, Failed>),
}

/// The result of a copy.
#[derive(Serialize, Deserialize)]
pub struct Copied {
    /// The receiver's counts.
    pub summary: Summary,
    /// What the sender could not read.
    pub skipped: Skipped,
    /// Segments, as the sending end counted them, if it did.
    pub sent: Option<Sent>,
}

/// Why a client could not be served.
#[derive(Serialize, Deserialize)]
pub struct Failed {
    /// Reason, for people.
    pub why: String,
    /// Class of the failure, a [`fullpipe_path::ExitClass`].
    pub class: u8,
}

/// The server's answer.
#[derive(Serialize, Deserialize)]
pub enum Answer {
    /// What a secret grants, for [`Ask::Grant`].
    Granted(Option<Grant>),
    /// Yes.
    Yes,
    /// No, and why.
    No(Denial),
    /// All places are taken; this many clients are served at once.
    Busy(usize),
}

/// Sends a message: its length, and JSON.
///
/// # Errors
/// The channel's; the message is too long.
pub fn send(channel: &mut UnixStream, message: &impl Serialize) -> io::Result<()> {
    let content = serde_json::to_vec(message)?;
    let len = u32::try_from(content.len()).ok().filter(|len| *len <= MAX_MESSAGE);
    let len = len.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "a message over its limit"))?;
    channel.write_all(&[&len.to_le_bytes()[..], &content].concat())
}

/// Receives a message.
///
/// # Errors
/// The channel's; what came is no message.
pub fn receive<T: for<'de> Deserialize<'de>>(channel: &mut UnixStream) -> io::Result<T> {
    let mut len = [0; 4];
    channel.read_exact(&mut len)?;
    let len = u32::from_le_bytes(len);
    if len > MAX_MESSAGE {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a message over its limit"));
    }
    // Memory grows with what arrives, so that a large length alone costs nothing.
    let mut content = Vec::new();
    channel.take(u64::from(len)).read_to_end(&mut content)?;
    Ok(serde_json::from_slice(&content)?)
}

/// Sends a job and the descriptors that belong to it.
///
/// # Errors
/// The channel's.
pub fn send_job(channel: &mut UnixStream, job: &Job, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let fds: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
    sendmsg::<()>(
        channel.as_raw_fd(),
        &[IoSlice::new(&[0])],
        &[ControlMessage::ScmRights(&fds)],
        MsgFlags::MSG_NOSIGNAL,
        None,
    )?;
    send(channel, job)
}

/// Receives a job and its descriptors.
///
/// # Errors
/// The channel's.
pub fn receive_job(channel: &mut UnixStream) -> io::Result<(Job, Vec<OwnedFd>)> {
    let mut space = nix::cmsg_space!([RawFd; MAX_FDS]);
    let mut byte = [0];
    let mut parts = [IoSliceMut::new(&mut byte)];
    let received = recvmsg::<()>(channel.as_raw_fd(), &mut parts, Some(&mut space), MsgFlags::MSG_CMSG_CLOEXEC)?;
    let mut fds = Vec::new();
    for message in received.cmsgs()? {
        if let ControlMessageOwned::ScmRights(raw) = message {
            // SAFETY: the kernel has just made these descriptors for this process, and nobody else knows them (unix(7)).
            fds.extend(raw.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
        }
    }
    Ok((receive(channel)?, fds))
}

/// The denial of a busy server. The places may be taken by the other connections of the client's own measurement.
pub fn busy_for(measurement: Option<MeasurementId>, denial: Denial) -> Denial {
    const ADVICE: &str = "--bidir and --probe take two of its places at once: try again later, or measure without them";
    if measurement.is_some() { Denial::new(denial.why, ADVICE) } else { denial }
}
