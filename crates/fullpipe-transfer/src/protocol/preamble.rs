//! The preamble: the first bytes of a data stream, by which the end that accepts it recognizes it.

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
