//! Digests of data and tags of chunks. They verify that the data read, the data received and the data on disk are equal.
//!
//! A *digest* covers the bytes of a block, the file that they belong to, and their offset. The receiver keeps it in the
//! journal and checks the partial file against it when a transfer is resumed. A *tag* closes each chunk on a stream. It
//! covers the chunk's whole header (names, metadata, offsets, holes), the digest of its data, the number of the stream,
//! and the chunk's place in that stream. So nobody can change, reorder, repeat or drop chunks, or move them to
//! another stream, without being noticed, with or without encryption.
//!
//! Both are AEGISMAC-128X2 (RFC 10032) with 256 bits: on processors with AES instructions it takes at most half
//! the time of BLAKE3. It is a MAC, not a hash: with the key, one can make two blocks that have the same digest. The
//! receiver makes both keys at random and sends them to the sender over the control connection, which ssh or TLS encrypts even where the streams
//! are plain (not with `--insecure`). The digests' key lasts as long as the journal. The tags' key lasts one attempt,
//! so that chunks of an earlier attempt cannot be replayed.

use aegis::aegis128x2::Aegis128X2Mac;
use rand::RngExt;
use serde::{Deserialize, Serialize};

use crate::protocol::file::Extent;

/// Length of a digest and of a tag, in bytes.
pub const LEN: usize = 32;

/// The digest of a block's or a pack's data.
pub type Digest = [u8; LEN];

/// The tag of a chunk.
pub type Tag = [u8; LEN];

/// Size of the blocks that AEGISMAC-128X2 absorbs, in bytes. The head that precedes the data fills exactly one block, so
/// that the data stay aligned.
const RATE: usize = 64;

/// First authenticated byte of a block's digest. It differs for each purpose, so no digest or tag can pass for one of
/// another purpose.
const BLOCK: u8 = 1;
/// First authenticated byte of a pack's digest.
const PACK: u8 = 2;
/// First authenticated byte of a chunk's tag.
const CHUNK: u8 = 3;

/// A secret key of AEGISMAC-128X2, for digests or for tags.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key(pub [u8; Key::LEN]);

impl Key {
    /// Length of a key, in bytes.
    pub const LEN: usize = 16;

    /// Makes a random key.
    pub(crate) fn random() -> Key {
        Key(rand::rng().random())
    }

    /// Begins the digest of the block `extent` of a file. `file` is the file's [`crate::protocol::file::FileItem::key`].
    pub fn block(&self, file: u64, extent: Extent) -> Mac {
        let mut head = [0; RATE];
        head[0] = BLOCK;
        head[8..16].copy_from_slice(&file.to_le_bytes());
        head[16..24].copy_from_slice(&extent.offset.to_le_bytes());
        head[24..32].copy_from_slice(&extent.len.to_le_bytes());
        self.begin(&head)
    }

    /// Makes the digest of a pack's data. The digest does not cover the names of the files; the tag of the pack's chunk does.
    pub fn pack(&self, bytes: &[u8]) -> Digest {
        let mut head = [0; RATE];
        head[0] = PACK;
        let mut mac = self.begin(&head);
        mac.update(bytes);
        mac.finish()
    }

    fn begin(&self, head: &[u8; RATE]) -> Mac {
        let mut mac = Aegis128X2Mac::new(&self.0);
        mac.update(head);
        Mac(mac)
    }
}

/// Makes the tags of one stream's chunks in order. Each end has one per stream.
pub struct Tagger {
    key: Key,
    stream: u16,
    /// Number of chunks so far on this stream, including chunks without a tag.
    chunks: u64,
}

impl Tagger {
    /// Begins the tags of stream number `stream`. `key` is [`crate::protocol::message::Terms::tags`].
    pub fn new(key: Key, stream: u16) -> Tagger {
        Tagger { key, stream, chunks: 0 }
    }

    /// Counts the stream's next chunk, which has no tag.
    pub fn skip(&mut self) {
        self.chunks += 1;
    }

    /// Makes the tag of the stream's next chunk from its packed header and, if it has data, the digest of its data.
    pub fn next(&mut self, header: &[u8], data: Option<&Digest>) -> Tag {
        let mut head = [0; RATE];
        (head[0], head[1]) = (CHUNK, u8::from(data.is_some()));
        head[2..4].copy_from_slice(&self.stream.to_le_bytes());
        head[8..16].copy_from_slice(&self.chunks.to_le_bytes());
        head[32..].copy_from_slice(data.unwrap_or(&[0; LEN]));
        self.chunks += 1;
        let mut mac = self.key.begin(&head);
        mac.update(header);
        mac.finish()
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key")
    }
}

/// Computes a digest from bytes that arrive piece by piece.
pub struct Mac(Aegis128X2Mac<LEN>);

impl Mac {
    /// Adds the next bytes.
    pub fn update(&mut self, piece: &[u8]) {
        self.0.update(piece);
    }

    /// Returns the digest of all added bytes.
    pub fn finish(self) -> Digest {
        self.0.finalize()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Digests must not depend on the processor, since the two ends, and later readers of a journal, may differ.
    #[test]
    fn digests_are_the_same_everywhere() {
        let hex = |tag: Digest| tag.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let bytes = |n: usize| (0..n).map(|i| i as u8).collect::<Vec<u8>>();
        // RFC 10032's test vector has a nonce.
        let (mut key, mut nonce) = ([0; Key::LEN], [0; 16]);
        (key[0], key[1], nonce[0], nonce[2]) = (0x10, 0x01, 0x10, 0x02);
        let mut mac = Aegis128X2Mac::<LEN>::new_with_nonce(&key, &nonce);
        mac.update(&bytes(35));
        assert_eq!(hex(mac.finalize()), "afcba3fc2d63c8d6c7f2d63f3ec8fbbbaf022e15ac120e78ffa7755abccd959c");
        // The aegis crate's implementation without C and assembly gives these too.
        let key = Key([0x10; Key::LEN]);
        assert_eq!(hex(key.pack(&bytes(1000))), "d77bd2a02993254d4ee29290afa2fc3143958303613ae8c649ca7272484b5e4d");
        let mut block = key.block(0x0102_0304_0506_0708, Extent { offset: 1 << 33, len: 1000 });
        block.update(&bytes(1000));
        let digest = block.finish();
        assert_eq!(hex(digest), "71338a24b4a4f5cd11f5f81da6f7470aee0f91307f96cf62bf083b79e531843b");
        let mut tagger = Tagger::new(key, 3);
        let _ = tagger.next(b"", None);
        assert_eq!(
            hex(tagger.next(b"header", Some(&digest))),
            "7a866d13f705b3c88fcdedaa20f76b7955725a7b7c18f8adb5d71eaafdf9ea2d"
        );
    }

    const WHOLE: Extent = Extent { offset: 0, len: 10_000 };

    fn digest(key: Key, file: u64, extent: Extent, bytes: &[u8]) -> Digest {
        let mut mac = key.block(file, extent);
        mac.update(bytes);
        mac.finish()
    }

    #[test]
    fn pieces_make_the_digest_of_the_whole() {
        let bytes: Vec<u8> = (0..10_000u32).map(|i| ((i * i) >> 3) as u8).collect();
        let key = Key([7; Key::LEN]);
        for piece in [1, 31, 64, 100, 4096, 10_000] {
            let mut mac = key.block(9, WHOLE);
            bytes.chunks(piece).for_each(|piece| mac.update(piece));
            assert_eq!(mac.finish(), digest(key, 9, WHOLE, &bytes), "{piece}");
        }
    }

    #[test]
    fn one_bit_one_byte_or_another_key_is_another_digest() {
        let bytes = vec![0; 1000];
        let key = Key([7; Key::LEN]);
        let right = key.pack(&bytes);
        for bit in 0..8 * bytes.len() {
            let mut other = bytes.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(key.pack(&other), right, "{bit}");
        }
        assert_ne!(key.pack(&bytes[1..]), right);
        assert_ne!(Key([8; Key::LEN]).pack(&bytes), right);
        assert_ne!(Key::random(), Key::random());
    }

    #[test]
    fn a_digest_is_of_one_place_of_one_file() {
        let (key, bytes) = (Key([7; Key::LEN]), [5; 100]);
        let here = Extent { offset: 0, len: 100 };
        let right = digest(key, 1, here, &bytes);
        assert_ne!(digest(key, 2, here, &bytes), right);
        assert_ne!(digest(key, 1, Extent { offset: 1, ..here }, &bytes), right);
        assert_ne!(digest(key, 1, Extent { len: 101, ..here }, &bytes), right);
        assert_ne!(key.pack(&bytes), right);
    }

    #[test]
    fn a_tag_is_of_one_chunk_at_one_place_of_one_stream() {
        let (key, data) = (Key([7; Key::LEN]), [5; LEN]);
        let mut stream = Tagger::new(key, 0);
        let right = stream.next(b"one", Some(&data));
        assert_ne!(stream.next(b"one", Some(&data)), right, "repeated");
        assert_eq!(Tagger::new(key, 0).next(b"one", Some(&data)), right);
        assert_ne!(Tagger::new(key, 1).next(b"one", Some(&data)), right, "another stream");
        assert_ne!(Tagger::new(key, 0).next(b"two", Some(&data)), right, "another header");
        assert_ne!(Tagger::new(key, 0).next(b"one", Some(&[6; LEN])), right, "other data");
        assert_ne!(Tagger::new(key, 0).next(b"one", None), right, "no data");
        assert_ne!(Tagger::new(key, 0).next(b"one", Some(&[0; LEN])), Tagger::new(key, 0).next(b"one", None));
    }
}
