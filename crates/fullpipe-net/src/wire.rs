//! What the two ends say to each other on the control connection.
//!
//! A frame is one byte of kind, four of length (little endian) and the content: JSON for a
//! [`Message`], packed numbers for samples. Nothing is believed: lengths are bounded, and whatever
//! does not parse ends the session with an error.

use std::io::{self, Read, Write};

use fullpipe_path::record::EndInfo;
use fullpipe_path::{Direction, Time, Transport, Workload};
use serde::{Deserialize, Serialize};

use crate::sample::Sample;

/// Version of this protocol; both ends must speak the same.
pub const PROTOCOL: u32 = 1;
/// First word of a conversation.
pub const MAGIC: &str = "fullpipe";
/// Longest frame. A request is a few hundred bytes, a batch of samples 256 KB.
const FRAME_MAX: u32 = 1 << 20;
/// What a data connection says first: the session's token, and which stream it is.
pub const PREAMBLE: usize = 20;

/// Key from which a client proves that it holds a token. Both ends compute it from the token's secret.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ProofKey(pub [u8; 32]);

impl std::fmt::Debug for ProofKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ProofKey")
    }
}

/// Proof that a client holds a token: BLAKE3's keyed hash of the server's nonce. This connection is not encrypted, so the
/// secret itself is not sent; the proof is good for this nonce only.
pub fn proof(key: &ProofKey, nonce: &[u8; 32]) -> blake3::Hash {
    blake3::keyed_hash(&key.0, nonce)
}

/// Whether a client's proof was made with this key for this nonce. Takes the same time wherever they differ.
pub fn is_proof(key: &ProofKey, nonce: &[u8; 32], mac: &[u8; 32]) -> bool {
    proof(key, nonce) == *mac
}

/// One message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Message {
    /// Both ends, first.
    Hello {
        /// [`MAGIC`].
        magic: String,
        /// [`PROTOCOL`].
        protocol: u32,
        /// Version of fullpipe.
        program: String,
        /// Server, if it measures for holders of its token only: 32 random bytes for this connection's [`proof`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        nonce: Option<[u8; 32]>,
    },
    /// Client, behind its greeting, if the server's had a nonce.
    Proof {
        /// [`proof`] of the nonce.
        mac: [u8; 32],
    },
    /// Server: no, and why. The connection ends.
    Refused {
        /// For a person to read.
        why: String,
    },
    /// Client: what to measure.
    Request(Request),
    /// Server: connect the streams here.
    Ready {
        /// TCP port.
        port: u16,
        /// To be shown on each.
        token: [u8; 16],
    },
    /// Server: all streams are connected.
    Joined,
    /// Client: what does your clock show? Server: this, nanoseconds.
    Clock {
        /// `CLOCK_MONOTONIC` of the server; 0 in the question.
        ns: u64,
    },
    /// Client: the run's clock starts at this instant of the server's clock.
    Begin {
        /// Nanoseconds of the server's `CLOCK_MONOTONIC`.
        zero_ns: u64,
        /// Round-trip time, as the client saw it.
        rtt_ns: u64,
    },
    /// The receiving end: all that was to come has come.
    Finished,
    /// Server, after the end: what it saw. Batches of samples follow, then `End`.
    Report(Report),
    /// Server: nothing more comes.
    End,
    /// Either end: the run failed here.
    Failed {
        /// For a person to read.
        why: String,
    },
}

/// What a client wants measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// How to send.
    pub transport: Transport,
    /// What to send.
    pub workload: Workload,
    /// Seen from the client.
    pub direction: Direction,
    /// Draws the starting instants.
    pub seed: u64,
    /// Between samples.
    pub sample: Time,
}

/// What one end saw.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The end.
    pub end: EndInfo,
    /// What each stream received; empty at the sending end.
    pub received: Vec<Received>,
    /// Processor seconds used by the process during the run.
    pub cpu_s: f64,
    /// Length of the run in real seconds, as this end saw it.
    pub seconds: f64,
}

/// What one stream received.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Received {
    /// Bytes that the application read.
    pub bytes: u64,
    /// First byte's arrival, nanoseconds on the run's clock.
    pub first_ns: u64,
    /// Last byte's arrival.
    pub last_ns: u64,
}

/// Content of a frame.
#[derive(Debug)]
pub enum Frame {
    /// JSON.
    Message(Box<Message>),
    /// A batch.
    Samples(Vec<Sample>),
}

fn bad(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.into())
}

/// Writes a message.
///
/// # Errors
/// The connection's.
pub fn send(to: &mut impl Write, message: &Message) -> io::Result<()> {
    let json = serde_json::to_vec(message)?;
    frame(to, 0, &json)
}

/// Writes samples, in batches.
///
/// # Errors
/// The connection's.
pub fn send_samples(to: &mut impl Write, samples: &[Sample]) -> io::Result<()> {
    for batch in samples.chunks(512) {
        let mut bytes = Vec::with_capacity(batch.len() * 300);
        for sample in batch {
            sample.pack(&mut bytes);
        }
        frame(to, 1, &bytes)?;
    }
    Ok(())
}

fn frame(to: &mut impl Write, kind: u8, content: &[u8]) -> io::Result<()> {
    let len = u32::try_from(content.len()).ok().filter(|len| *len <= FRAME_MAX);
    let len = len.ok_or_else(|| bad("a frame over its limit"))?;
    let mut bytes = Vec::with_capacity(content.len() + 5);
    bytes.push(kind);
    bytes.extend_from_slice(&len.to_le_bytes());
    bytes.extend_from_slice(content);
    to.write_all(&bytes)
}

/// Reads a frame.
///
/// # Errors
/// The connection's; `InvalidData` when what came is no frame.
pub fn receive(from: &mut impl Read) -> io::Result<Frame> {
    let mut head = [0; 5];
    from.read_exact(&mut head)?;
    let len = u32::from_le_bytes([head[1], head[2], head[3], head[4]]);
    if head[0] > 1 || len > FRAME_MAX {
        return Err(bad("not a frame of fullpipe's protocol"));
    }
    let mut content = vec![0; len as usize];
    from.read_exact(&mut content)?;
    if head[0] == 0 {
        return serde_json::from_slice(&content)
            .map(|message| Frame::Message(Box::new(message)))
            .map_err(|e| bad(e.to_string()));
    }
    let mut rest = content.as_slice();
    let mut samples = Vec::new();
    while !rest.is_empty() {
        samples.push(Sample::unpack(&mut rest).ok_or_else(|| bad("a damaged batch of samples"))?);
    }
    Ok(Frame::Samples(samples))
}

/// Reads a frame that must be a message.
///
/// # Errors
/// As [`receive`], or it is a batch of samples.
pub fn receive_message(from: &mut impl Read) -> io::Result<Message> {
    match receive(from)? {
        Frame::Message(message) => Ok(*message),
        Frame::Samples(_) => Err(bad("samples where a message was due")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        let message = Message::Begin { zero_ns: 7, rtt_ns: 45_600_000 };
        let mut bytes = Vec::new();
        send(&mut bytes, &message).unwrap();
        assert_eq!(receive_message(&mut bytes.as_slice()).unwrap(), message);
    }

    #[test]
    fn garbage_is_an_error() {
        for garbage in
            [&b"GET / HTTP/1.1\r\n\r\n"[..], b"\0\xff\xff\xff\xff", b"\0\x02\0\0\0{}", b"\x01\x01\0\0\0x", b""]
        {
            assert!(receive(&mut &garbage[..]).is_err());
        }
    }
}
