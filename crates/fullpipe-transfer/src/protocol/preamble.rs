//! The preamble, the first bytes of a data stream. The accepting end recognises the stream by it.

/// Length of a stream's preamble, in bytes. Before TLS it holds the stream's number and tag; inside TLS it holds the
/// session's token and the stream's number.
pub const PREAMBLE: usize = 34;

/// Makes the first bytes of a stream, before TLS: the stream's number, and a tag that only a holder of the session's token
/// can make. The accepting end rejects strangers by the tag at the cost of one hash. An attacker who can read the path can
/// replay the tag, so inside TLS the stream shows the token itself. An unencrypted stream has the tag only, which does not
/// reveal the token.
#[must_use]
pub fn preamble(token: &[u8; 32], stream: u16) -> [u8; PREAMBLE] {
    let key = blake3::derive_key("fullpipe 2026 number of a data stream", token);
    let number = stream.to_le_bytes();
    let mut preamble = [0; PREAMBLE];
    preamble[..2].copy_from_slice(&number);
    preamble[2..].copy_from_slice(blake3::keyed_hash(&key, &number).as_bytes());
    preamble
}

/// Returns the stream's number if the preamble has the right tag, else `None`.
pub(crate) fn numbered(shown: &[u8; PREAMBLE], token: &[u8; 32]) -> Option<u16> {
    let stream = u16::from_le_bytes([shown[0], shown[1]]);
    let right = preamble(token, stream);
    // Compares all bytes, so that the time does not reveal how many of them are right.
    let differs = shown.iter().zip(right).fold(0, |all, (a, b)| all | (a ^ b));
    (differs == 0).then_some(stream)
}
