//! What a server and the process that serves one client say to each other.
//!
//! The server hands over the client's connection and its folder as descriptors (`unix(7)`, SCM_RIGHTS), then only answers: it
//! believes nothing of what the other process says but what its own state allows.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use fullpipe_net::Denial;
use fullpipe_net::serve::MeasurementPolicy;
use fullpipe_net::wire::Request;
use fullpipe_transfer::Skipped;
use fullpipe_transfer::connection::tls::Identity;
use fullpipe_transfer::connection::token_store::Grant;
use fullpipe_transfer::protocol::message::{Summary, Task};
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};
use serde::{Deserialize, Serialize};

/// Most descriptors that are handed over: the connection and the folder.
const MAX_FDS: usize = 2;
/// Longest message, bytes: the names of all sources of a client are in one, and take up to four times as much here.
const MAX_MESSAGE: u32 = 64 << 20;

/// What the process is to do, and for whom.
#[derive(Serialize, Deserialize)]
pub struct Job {
    /// The client's address.
    pub peer: String,
    /// The work.
    pub work: Work,
}

/// What a client begins as.
#[derive(Serialize, Deserialize)]
pub enum Work {
    /// One that wants to be measured.
    Measure(MeasurementPolicy),
    /// One that wants to copy.
    Copy(CopyOptions),
}

/// How copies are served.
#[derive(Clone, Serialize, Deserialize)]
pub struct CopyOptions {
    /// Path of the folder that comes as a descriptor, absolute and without links.
    pub path: std::path::PathBuf,
    /// Certificate and key; none where nothing is encrypted.
    pub identity: Option<Identity>,
    /// First and last port for the streams; 0 and 0 let the kernel choose.
    pub data_ports: (u16, u16),
    /// Whether clients may ask for streams that are not encrypted.
    pub plain_streams: bool,
    /// Whether clients may bring setuid, setgid and sticky bits.
    pub special_bits: bool,
    /// Longest time in which nothing moves.
    pub stall: std::time::Duration,
}

/// What the process asks or tells.
#[derive(Serialize, Deserialize)]
pub enum Ask {
    /// What does this secret grant?
    Grant(Vec<u8>),
    /// May a client that has shown what it must have this now?
    Admit(Task),
    /// Is this a proof of a token for this nonce?
    Prove {
        /// Nonce that the client was given.
        nonce: [u8; 32],
        /// The client's proof.
        mac: [u8; 32],
    },
    /// May a client be measured now?
    LetIn,
    /// A file at the destination does not count as this transfer's: `NAME: WHY`. Nothing is answered.
    Distrusts(String),
    /// A run begins. Nothing is answered.
    Begins(Request),
    /// The client has been served. Nothing is answered, and the process ends.
    Done(Result<Option<Copied>, Failed>),
}

/// How a copy went.
#[derive(Serialize, Deserialize)]
pub struct Copied {
    /// At the receiver.
    pub summary: Summary,
    /// What the sender could not read.
    pub skipped: Skipped,
}

/// Why a client could not be served.
#[derive(Serialize, Deserialize)]
pub struct Failed {
    /// For a person.
    pub why: String,
    /// [`fullpipe_path::ExitClass`].
    pub class: u8,
}

/// The server's answer.
#[derive(Serialize, Deserialize)]
pub enum Answer {
    /// To [`Ask::Grant`].
    Granted(Option<Grant>),
    /// Yes.
    Yes,
    /// No, and why.
    No(Denial),
    /// All places are taken; so many there are.
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
    // Memory is taken as it comes: a length alone costs nothing.
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
