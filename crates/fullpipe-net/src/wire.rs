//! The protocol of the control connection between the two ends of a measurement.
//!
//! A frame is one byte with its kind, four bytes with its length (little endian), and its content: JSON for a [`Message`],
//! packed numbers for samples. Nothing is believed: lengths are bounded, and content that does not parse ends the session
//! with an error.

use std::io::{self, Read, Write};

use fullpipe_path::record::EndInfo;
use fullpipe_path::record::udp::UdpCounts;
use fullpipe_path::{Direction, Time, Transport, Workload};
use serde::{Deserialize, Serialize};

use crate::one_client::MeasurementId;
use crate::sample::Sample;

/// Version of this protocol. Both ends must have the same.
pub const PROTOCOL: u32 = 8;
/// First word of a greeting.
pub const MAGIC: &str = "fullpipe";
/// Longest content of a frame, bytes. A request has a few hundred bytes, a batch of samples 256 KB.
const FRAME_MAX: u32 = 1 << 20;
/// Length of a data stream's preamble, bytes: the session's token (16), the stream's number (2), and 2 zeros.
pub const PREAMBLE: usize = 20;

/// Key with which a client proves that it holds a token. Both ends compute it from the token's secret.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ProofKey(pub [u8; 32]);

impl std::fmt::Debug for ProofKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ProofKey")
    }
}

/// Makes the proof that a client holds a token: BLAKE3's keyed hash of the server's nonce. The connection is not encrypted,
/// so the secret itself is not sent, and the proof is valid for this nonce only.
pub fn proof(key: &ProofKey, nonce: &[u8; 32]) -> blake3::Hash {
    blake3::keyed_hash(&key.0, nonce)
}

/// Whether a client's proof was made with this key for this nonce. It takes the same time wherever they differ.
pub fn is_proof(key: &ProofKey, nonce: &[u8; 32], mac: &[u8; 32]) -> bool {
    proof(key, nonce) == *mac
}

/// A message of the protocol.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Message {
    /// From both ends: the greeting, which comes first.
    Hello {
        /// [`MAGIC`].
        magic: String,
        /// [`PROTOCOL`].
        protocol: u32,
        /// Version of fullpipe.
        program: String,
        /// From a server that measures for holders of its token only: 32 random bytes for the [`proof`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        nonce: Option<[u8; 32]>,
        /// From a client whose measurement takes several connections: the number that they share.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        measurement: Option<MeasurementId>,
    },
    /// From the client, after its greeting, if the server's greeting had a nonce.
    Proof {
        /// [`proof`] of the nonce.
        mac: [u8; 32],
    },
    /// From the server: it refuses. The connection ends.
    Refused {
        /// The reason, for a person.
        why: String,
        /// If it may not use the congestion control that was asked for: the one that it may, its system's own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usable_cc: Option<String>,
    },
    /// From the client: the run that it wants.
    Request(Request),
    /// From the server: the port for the streams.
    Ready {
        /// TCP or UDP port, as the transport needs; [`crate::shared_port::SAME_PORT`] for that of this connection.
        port: u16,
        /// Token that each stream must show.
        token: [u8; 16],
    },
    /// From the server: all streams are connected.
    Joined,
    /// From the client: the question what the server's clock shows. From the server: the answer.
    Clock {
        /// `CLOCK_MONOTONIC` of the server, ns; 0 in the question.
        ns: u64,
    },
    /// From the client: the start of the run's clock.
    Begin {
        /// Start of the run's clock on the server's `CLOCK_MONOTONIC`, ns.
        zero_ns: u64,
        /// Round-trip time that the client has measured, ns.
        rtt_ns: u64,
        /// Longest time without progress before the run has failed for the client, ns. The server's own may be shorter.
        stall_ns: u64,
    },
    /// From the receiving end: all data has arrived, or the run ends for another reason.
    Finished,
    /// From a client that sends: the run is to end now, before its time or size.
    Stop,
    /// From the server, after the run: its report. Batches of samples follow, then [`Message::End`].
    Report(Box<Report>),
    /// From the server: its report is complete.
    End,
    /// From either end: the run failed there.
    Failed {
        /// The reason, for a person.
        why: String,
        /// Whether nothing moved for too long. Else that end failed, or its limits ended the run.
        is_stall: bool,
    },
}

/// A run that a client asks for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// How to send.
    pub transport: Transport,
    /// What to send.
    pub workload: Workload,
    /// Direction of the data, from the client's point of view.
    pub direction: Direction,
    /// Seed of the streams' start times.
    pub seed: u64,
    /// Time between samples.
    pub sample: Time,
}

/// The report of one end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Description of the host.
    pub end: EndInfo,
    /// What each stream received; empty on the sending side.
    pub received: Vec<Received>,
    /// Bytes of the data that had arrived when this end read the first; 0 on the sending side, and for a copy.
    #[serde(default)]
    pub early_bytes: u64,
    /// Processor time that the process used during the run, s.
    pub cpu_s: f64,
    /// Length of the run on this host's clock, s.
    pub seconds: f64,
}

/// What one stream received.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Received {
    /// Bytes that the application read.
    pub bytes: u64,
    /// Arrival of the first byte on the run's clock, ns.
    pub first_ns: u64,
    /// Arrival of the last byte on the run's clock, ns.
    pub last_ns: u64,
    /// What became of the datagrams, over plain UDP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub udp: Option<UdpCounts>,
}

/// A frame, parsed.
#[derive(Debug)]
pub enum Frame {
    /// A message.
    Message(Box<Message>),
    /// A batch of samples.
    Samples(Vec<Sample>),
}

fn bad(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.into())
}

/// Writes a message.
///
/// # Errors
/// The connection fails.
pub fn send(to: &mut impl Write, message: &Message) -> io::Result<()> {
    let json = serde_json::to_vec(message)?;
    frame(to, 0, &json)
}

/// Writes samples in batches.
///
/// # Errors
/// The connection fails.
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
/// The connection fails, or the bytes are not a frame (`InvalidData`).
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
/// See [`receive`]; the frame may also be a batch of samples.
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
        let message = Message::Begin { zero_ns: 7, rtt_ns: 45_600_000, stall_ns: 3 };
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
