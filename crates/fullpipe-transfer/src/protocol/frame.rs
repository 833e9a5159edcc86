//! Frames: how every message and every chunk header is packed for a connection.
//!
//! A frame is the length of its content, a checksum of the content, and the content as postcard encodes it. The checksum
//! finds data that a machine damaged past TCP's own checksum; it does not protect against attackers, which TLS does. A reader
//! limits the length and takes memory only as data arrive, and anything that does not parse is an error.

use std::io::{self, Read, Write};

use serde::{Deserialize, Serialize};

/// Maximum length of a frame's content, in bytes.
const FRAME_MAX: u32 = 4 << 20;

/// Maximum length of a frame's content before the peer has authenticated itself, in bytes.
pub(crate) const GREETING_MAX: u32 = 64 << 10;

/// Length of a frame's head (length and checksum), in bytes.
pub const FRAME_HEAD: usize = 12;

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
/// The value does not fit into a frame.
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
/// Those of the connection.
pub fn send<T: Serialize>(to: &mut (impl Write + ?Sized), value: &T) -> io::Result<()> {
    to.write_all(&pack(value)?)?;
    to.flush()
}

/// Reads a value from a frame.
///
/// # Errors
/// Those of the connection; `InvalidData` if the received bytes are damaged or not a frame.
pub fn receive<T: for<'de> Deserialize<'de>>(from: &mut (impl Read + ?Sized)) -> io::Result<T> {
    receive_within(from, FRAME_MAX)
}

/// Reads a value from a frame of at most `most` bytes. The limit bounds memory, since the parsed value may take many
/// times as much as the frame.
///
/// # Errors
/// Those of [`receive`].
pub fn receive_within<T: for<'de> Deserialize<'de>>(from: &mut (impl Read + ?Sized), most: u32) -> io::Result<T> {
    parse(&frame(from, most)?)
}

/// Reads a value from a frame, and returns it with its packed form.
///
/// # Errors
/// Those of [`receive`].
pub fn receive_packed<T: for<'de> Deserialize<'de>>(from: &mut (impl Read + ?Sized)) -> io::Result<(T, Vec<u8>)> {
    let content = frame(from, FRAME_MAX)?;
    Ok((parse(&content)?, content))
}

/// Reads a frame of at most `most` bytes, and returns its content.
fn frame(from: &mut (impl Read + ?Sized), most: u32) -> io::Result<Vec<u8>> {
    let mut head = [0; FRAME_HEAD];
    from.read_exact(&mut head)?;
    let len = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
    if len > most {
        return Err(bad("not a frame of fullpipe's protocol"));
    }
    // Memory grows with the received bytes, so a false length alone costs nothing.
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

/// Reads a frame and discards it.
///
/// # Errors
/// Those of the connection; `InvalidData` if the received bytes are not a frame.
pub(crate) fn skip(from: &mut (impl Read + ?Sized)) -> io::Result<()> {
    let mut head = [0; FRAME_HEAD];
    from.read_exact(&mut head)?;
    let len = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
    if len > FRAME_MAX {
        return Err(bad("not a frame of fullpipe's protocol"));
    }
    io::copy(&mut from.take(u64::from(len)), &mut io::sink()).map(drop)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::protocol::chunk::{Chunk, Trailer};
    use crate::protocol::digest;
    use crate::protocol::file::{Extent, FileItem, Meta};
    use crate::protocol::message::Message;
    use crate::protocol::name::Name;
    use crate::protocol::skipped::{Skipped, SkippedEntry};

    fn item(name: &str) -> FileItem {
        let meta = Meta { mode: 0o644, uid: 0, gid: 0, mtime: (1, 2), xattrs: vec![] };
        FileItem {
            name: Name::try_from(name.as_bytes().to_vec()).unwrap(),
            size: 5,
            sparse: false,
            changed: (2, 3),
            content: None,
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

    #[test]
    fn however_long_the_names_they_fit_a_frame() {
        let mut all = Skipped::default();
        for _ in 0..5000 {
            all.add(SkippedEntry::for_good(vec![b'n'; 4096], "its path is too long"));
        }
        assert_eq!((all.total, all.for_good, all.to_do()), (5000, 5000, 0));
        assert!(all.named.len() > 100);
        let both = all.clone().with(&all);
        assert!(pack(&Message::AllSent(both)).is_ok());
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
