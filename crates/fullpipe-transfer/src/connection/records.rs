//! Encrypts data streams in records with AEGIS-128X (RFC 10032), under keys from a TLS 1.3 handshake.
//!
//! A data stream begins with a TLS 1.3 handshake, which authenticates the far end and agrees on secrets. If both
//! processors have AES instructions, the two ends then use these records instead of TLS's own record layer. They
//! negotiate this, and the cipher, with ALPN (RFC 7301), which the handshake authenticates. They derive one key per
//! direction with TLS's exporter (RFC 8446, section 7.5), as DTLS-SRTP does (RFC 5764). AEGIS takes a fraction of the
//! time of AES-GCM. The sender encrypts straight from the buffer that the file was read into, and the receiver decrypts
//! straight into the buffer that it writes to the file; rustls would copy the data twice at each end.
//!
//! A record consists of the length of its content (4 bytes, little endian), the encrypted content, and a tag of 128 bits
//! that covers both. Its nonce is its sequence number in its direction, so an attacker cannot reorder, replay or drop
//! records unnoticed. An empty record ends a direction. A connection that ends without an empty record was cut off.

use std::io::{self, Read, Write};
use std::ops::Range;

use aegis::aegis128x2::Aegis128X2;
use aegis::aegis128x4::Aegis128X4;
use fullpipe_net::stream::DataStream;
use rustls::Connection;

/// Label under which TLS's exporter derives the keys. The exporter's context is the cipher's name.
const EXPORTER_LABEL: &[u8] = b"EXPERIMENTAL-fullpipe-records";
/// Length of a key, in bytes.
const KEY_BYTES: usize = 16;
/// Length of a nonce, in bytes.
const NONCE_BYTES: usize = 16;
/// Length of a record's head, in bytes. The head holds the length of the record's content.
const HEAD_BYTES: usize = 4;
/// Length of a record's tag, in bytes.
const TAG_BYTES: usize = 16;
/// Maximum length of a record's content, in bytes, as in TLS. The receiver can use nothing of a record before all of it
/// has arrived, so longer records would delay data on a slow path.
const MAX_CONTENT_BYTES: usize = 16 << 10;
/// Content encrypted per write to the socket, in bytes.
const BATCH_BYTES: usize = 256 << 10;
/// Size of the buffer that receives from the socket, in bytes.
const RECEIVE_BUFFER_BYTES: usize = 256 << 10;

/// Maximum length of an encrypted TLS record's payload, in bytes (RFC 8446, section 5.2).
const MAX_TLS_RECORD_BYTES: u16 = (16 << 10) + 256;

/// Encrypts `content` into `to`, which has the same length. Returns the tag, which covers `head` and the content.
type Seal =
    fn(key: &[u8; KEY_BYTES], nonce: &[u8; NONCE_BYTES], head: &[u8], content: &[u8], to: &mut [u8]) -> [u8; TAG_BYTES];
/// The parts of a record: head, encrypted content, tag.
type Parts<'a> = (&'a [u8], &'a [u8], &'a [u8; TAG_BYTES]);
/// Decrypts a record into `to`, which has the length of the record's content. Returns `None` and fills `to` with zeros if
/// the tag does not match.
type Open = fn(key: &[u8; KEY_BYTES], nonce: &[u8; NONCE_BYTES], record: Parts<'_>, to: &mut [u8]) -> Option<()>;

/// A cipher for records.
struct Cipher {
    /// Name by which the two ends negotiate the cipher (ALPN). Raise its last number when the format of records changes.
    name: &'static [u8],
    seal: Seal,
    open: Open,
}

/// AEGIS-128X4, the fastest cipher on processors with 512-bit AES instructions: 54 GB/s, compared with 17 GB/s for
/// AEGIS-128X2 and 9 to 14 GB/s for AES-128-GCM.
const X4: Cipher = Cipher {
    name: b"fullpipe-aegis128x4-1",
    seal: |key, nonce, head, content, to| {
        let mut encryptor = Aegis128X4::<TAG_BYTES>::new(key, nonce).encryptor(head);
        encryptor.update(content, to);
        encryptor.finalize()
    },
    open: |key, nonce, (head, body, tag), to| {
        let aegis = Aegis128X4::<TAG_BYTES>::new(key, nonce);
        let mut decryptor = aegis.decryptor(head, to);
        decryptor.update(body).ok()?;
        decryptor.finalize(tag).ok().map(drop)
    },
};
/// AEGIS-128X2, the fastest cipher on processors with 128-bit or 256-bit AES instructions.
const X2: Cipher = Cipher {
    name: b"fullpipe-aegis128x2-1",
    seal: |key, nonce, head, content, to| {
        let mut encryptor = Aegis128X2::<TAG_BYTES>::new(key, nonce).encryptor(head);
        encryptor.update(content, to);
        encryptor.finalize()
    },
    open: |key, nonce, (head, body, tag), to| {
        let aegis = Aegis128X2::<TAG_BYTES>::new(key, nonce);
        let mut decryptor = aegis.decryptor(head, to);
        decryptor.update(body).ok()?;
        decryptor.finalize(tag).ok().map(drop)
    },
};

/// The ciphers that are fast on this processor, the fastest first. Without AES instructions the list is empty, because
/// AEGIS is then slower than TLS's own ciphers.
fn ciphers() -> &'static [Cipher] {
    #[cfg(target_arch = "x86_64")]
    let (aes, wide) = (
        std::arch::is_x86_feature_detected!("aes"),
        std::arch::is_x86_feature_detected!("avx512f") && std::arch::is_x86_feature_detected!("vaes"),
    );
    #[cfg(target_arch = "aarch64")]
    let (aes, wide) = (std::arch::is_aarch64_feature_detected!("aes"), false);
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let (aes, wide) = (false, false);
    match (aes, wide) {
        (true, true) => &[X4, X2],
        (true, false) => &[X2],
        (false, _) => &[],
    }
}

/// The ALPN protocol names that this end offers for a data stream, the fastest cipher first.
pub(super) fn protocols() -> Vec<Vec<u8>> {
    ciphers().iter().map(|cipher| cipher.name.to_vec()).collect()
}

/// Begins records on a connection whose handshake is complete. Returns `None` if the two ends have not agreed on these
/// records.
///
/// # Errors
/// TLS cannot export keys.
pub(super) fn begin(connection: &Connection) -> Result<Option<(Sealer, Opener)>, rustls::Error> {
    let Some(name) = connection.alpn_protocol() else { return Ok(None) };
    let Some(cipher) = ciphers().iter().find(|cipher| cipher.name == name) else { return Ok(None) };
    let keys = connection.export_keying_material([0; 2 * KEY_BYTES], EXPORTER_LABEL, Some(name))?;
    let (mut of_client, mut of_server) = ([0; KEY_BYTES], [0; KEY_BYTES]);
    of_client.copy_from_slice(&keys[..KEY_BYTES]);
    of_server.copy_from_slice(&keys[KEY_BYTES..]);
    Ok(Some(match connection {
        Connection::Client(_) => (Sealer::new(cipher, of_client), Opener::new(cipher, of_server)),
        Connection::Server(_) => (Sealer::new(cipher, of_server), Opener::new(cipher, of_client)),
    }))
}

/// The cipher, key and record count of one direction.
struct Keys {
    cipher: &'static Cipher,
    key: [u8; KEY_BYTES],
    /// Number of records encrypted or decrypted so far, which is the next record's nonce.
    records: u64,
}

impl Keys {
    /// Returns the next record's nonce. No nonce is used twice under one key.
    fn nonce(&mut self) -> io::Result<[u8; NONCE_BYTES]> {
        let mut nonce = [0; NONCE_BYTES];
        nonce[..8].copy_from_slice(&self.records.to_le_bytes());
        self.records = self.records.checked_add(1).ok_or_else(|| {
            io::Error::other("the stream has reached the limit of 2^64 records; start a new transfer")
        })?;
        Ok(nonce)
    }
}

/// Encrypts and sends one direction of a connection.
pub(super) struct Sealer {
    keys: Keys,
    /// Encrypted records on their way to the socket. The buffer is kept for reuse.
    wire: Vec<u8>,
}

impl Sealer {
    fn new(cipher: &'static Cipher, key: [u8; KEY_BYTES]) -> Sealer {
        Sealer { keys: Keys { cipher, key, records: 0 }, wire: Vec::new() }
    }

    /// Encrypts and writes the first bytes of `from`, at most [`BATCH_BYTES`]. Returns how many bytes of `from` it wrote.
    pub(super) fn write(&mut self, to: &mut impl Write, from: &[u8]) -> io::Result<usize> {
        let from = &from[..from.len().min(BATCH_BYTES)];
        let records = from.len().div_ceil(MAX_CONTENT_BYTES);
        let len = from.len() + records * (HEAD_BYTES + TAG_BYTES);
        if self.wire.len() < len {
            self.wire.resize(len, 0);
        }
        let mut rest = &mut self.wire[..len];
        for content in from.chunks(MAX_CONTENT_BYTES) {
            let (record, behind) = rest.split_at_mut(HEAD_BYTES + content.len() + TAG_BYTES);
            seal(&mut self.keys, content, record)?;
            rest = behind;
        }
        to.write_all(&self.wire[..len])?;
        Ok(from.len())
    }

    /// Writes the record that ends this direction.
    pub(super) fn end(&mut self, to: &mut impl Write) -> io::Result<()> {
        let mut record = [0; HEAD_BYTES + TAG_BYTES];
        seal(&mut self.keys, &[], &mut record)?;
        to.write_all(&record)
    }
}

/// Encrypts `content` as the next record into `record`, which has room for exactly the head, the content and the tag.
fn seal(keys: &mut Keys, content: &[u8], record: &mut [u8]) -> io::Result<()> {
    let (head, rest) = record.split_at_mut(HEAD_BYTES);
    let (body, tag) = rest.split_at_mut(content.len());
    head.copy_from_slice(&(content.len() as u32).to_le_bytes());
    let nonce = keys.nonce()?;
    tag.copy_from_slice(&(keys.cipher.seal)(&keys.key, &nonce, head, content, body));
    Ok(())
}

/// Receives and decrypts one direction of a connection.
pub(super) struct Opener {
    keys: Keys,
    /// Bytes from the socket.
    raw: Vec<u8>,
    /// The part of `raw` that has arrived and is not decrypted yet.
    come: Range<usize>,
    /// The content of one record that did not fit into the caller's buffer.
    plain: Vec<u8>,
    /// The part of `plain` that the caller has not read yet.
    unread: Range<usize>,
    /// Whether the empty record that ends this direction has arrived.
    ended: bool,
    /// Whether the last receive from the socket returned too few bytes to complete a record.
    short: bool,
}

impl Opener {
    fn new(cipher: &'static Cipher, key: [u8; KEY_BYTES]) -> Opener {
        let keys = Keys { cipher, key, records: 0 };
        Opener {
            keys,
            raw: vec![0; RECEIVE_BUFFER_BYTES],
            come: 0..0,
            plain: Vec::new(),
            unread: 0..0,
            ended: false,
            short: false,
        }
    }

    /// Reads and decrypts bytes into `to`. Returns their number, which is 0 only at the end of the direction or if `to` is
    /// empty. Records that fit into `to` are decrypted straight into it.
    ///
    /// # Errors
    /// Those of the connection; `InvalidData` if a record was changed on the way; `UnexpectedEof` if the connection was
    /// cut off.
    pub(super) fn read(&mut self, from: &mut impl DataStream, to: &mut [u8]) -> io::Result<usize> {
        self.read_at_least(from, to, 0)
    }

    /// Reads as [`Opener::read`] does. Where the network is slower than this end, one receive waits for all that the content
    /// of `to` must still bring, not for one record. It may return before `to` is full.
    pub(super) fn read_full(&mut self, from: &mut impl DataStream, to: &mut [u8]) -> io::Result<usize> {
        // In how many records it comes is not known.
        self.read_at_least(from, to, HEAD_BYTES + to.len() + TAG_BYTES)
    }

    /// Reads as [`Opener::read`] does, of a stream that is known to bring `expected` bytes more than have been decrypted.
    fn read_at_least(&mut self, from: &mut impl DataStream, to: &mut [u8], expected: usize) -> io::Result<usize> {
        if to.is_empty() {
            return Ok(0);
        }
        if !self.unread.is_empty() {
            let n = to.len().min(self.unread.len());
            to[..n].copy_from_slice(&self.plain[self.unread.start..self.unread.start + n]);
            self.unread.start += n;
            return Ok(n);
        }
        let mut done = 0;
        while !self.ended {
            let missing = self.missing()?;
            if missing > 0 {
                if done > 0 {
                    break;
                }
                self.fetch(from, missing, expected.saturating_sub(self.come.len()))?;
                continue;
            }
            let len = self.content_len()?;
            let rest = to.len() - done;
            if len <= rest {
                let came = self.come.start;
                let record = &self.raw[came..came + HEAD_BYTES + len + TAG_BYTES];
                open(&mut self.keys, record, &mut to[done..done + len])?;
                self.come.start += record.len();
                self.ended = len == 0;
                done += len;
                if done == to.len() {
                    break;
                }
            } else if done > 0 {
                break;
            } else {
                if self.plain.is_empty() {
                    self.plain.resize(MAX_CONTENT_BYTES, 0);
                }
                let came = self.come.start;
                let record = &self.raw[came..came + HEAD_BYTES + len + TAG_BYTES];
                open(&mut self.keys, record, &mut self.plain[..len])?;
                self.come.start += record.len();
                to.copy_from_slice(&self.plain[..rest]);
                self.unread = rest..len;
                return Ok(rest);
            }
        }
        Ok(done)
    }

    /// Length of the next record's content, in bytes. The record's head must have arrived.
    fn content_len(&self) -> io::Result<usize> {
        let mut head = [0; HEAD_BYTES];
        head.copy_from_slice(&self.raw[self.come.start..self.come.start + HEAD_BYTES]);
        let len = u32::from_le_bytes(head) as usize;
        if len > MAX_CONTENT_BYTES { Err(changed()) } else { Ok(len) }
    }

    /// Minimum number of bytes that must still arrive before the next record can be decrypted.
    fn missing(&self) -> io::Result<usize> {
        let have = self.come.len();
        if have < HEAD_BYTES {
            return Ok(HEAD_BYTES + TAG_BYTES - have);
        }
        Ok((HEAD_BYTES + self.content_len()? + TAG_BYTES).saturating_sub(have))
    }

    /// Receives the bytes that have arrived; waits until there is at least one. `missing` is the number of bytes that
    /// complete the next record, `expected` the number of those that are sure to come.
    fn fetch(&mut self, from: &mut impl DataStream, missing: usize, expected: usize) -> io::Result<()> {
        // A record must be contiguous in `raw`, so an incomplete record moves to the front, where the rest of it fits.
        self.raw.copy_within(self.come.clone(), 0);
        self.come = 0..self.come.len();
        let end = self.come.end;
        // If the network is slower than this end, each receive would otherwise return a single packet. So after a short
        // receive, this waits for the rest of the record, or for all that is sure to come.
        let n = if self.short {
            let most = self.raw.len() - end;
            from.read_full(&mut self.raw[end..end + missing.max(expected).min(most)])?
        } else {
            from.read(&mut self.raw[end..])?
        };
        if n == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.short = n < missing;
        self.come.end += n;
        Ok(())
    }
}

/// Decrypts `record` into `to`, which has the length of the record's content.
fn open(keys: &mut Keys, record: &[u8], to: &mut [u8]) -> io::Result<()> {
    let (head, rest) = record.split_at(HEAD_BYTES);
    let (body, shown) = rest.split_at(to.len());
    let mut tag = [0; TAG_BYTES];
    tag.copy_from_slice(shown);
    let nonce = keys.nonce()?;
    (keys.cipher.open)(&keys.key, &nonce, (head, body, &tag), to).ok_or_else(changed)
}

/// The error for a record whose tag or length is wrong.
fn changed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a record was changed on the way")
}

/// A stream during the TLS handshake. It reads exactly one TLS record at a time, because the bytes after the handshake
/// are not TLS and must stay in the stream.
pub(super) struct Handshake<'a, S> {
    stream: &'a mut S,
    record: Vec<u8>,
    read: usize,
}

impl<S: DataStream> Handshake<'_, S> {
    pub(super) fn new(stream: &mut S) -> Handshake<'_, S> {
        Handshake { stream, record: Vec::new(), read: 0 }
    }
}

impl<S: DataStream> Read for Handshake<'_, S> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if self.read == self.record.len() {
            // Type, version and length (RFC 8446, section 5.1).
            let mut head = [0; 5];
            self.stream.read_exact(&mut head)?;
            let len = u16::from_be_bytes([head[3], head[4]]);
            // rustls recognises by the head that data is not TLS. So this reads nothing more, which might never come.
            let is_tls = (20..=24).contains(&head[0]) && head[1] == 3 && len <= MAX_TLS_RECORD_BYTES;
            self.record.clear();
            self.record.extend_from_slice(&head);
            let rest = if is_tls { u64::from(len) } else { 0 };
            Read::by_ref(self.stream).take(rest).read_to_end(&mut self.record)?;
            self.read = 0;
        }
        let mut rest = &self.record[self.read..];
        let n = rest.read(to)?;
        self.read += n;
        Ok(n)
    }
}

impl<S: DataStream> Write for Handshake<'_, S> {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.stream.write(from)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use fullpipe_net::stream::tcp::TcpDataStream;

    use super::*;

    const PARTS: [usize; 7] = [16 << 10, 300_000, 100, 1, 40_000, (16 << 10) + 1, 3];

    fn data() -> Vec<u8> {
        (0..PARTS.iter().sum::<usize>()).map(|i| (i * 7) as u8).collect()
    }

    /// The records that carry [`data`], and the record that ends the direction.
    fn wire(cipher: &'static Cipher) -> Vec<Vec<u8>> {
        let (mut sealer, mut wire) = (Sealer::new(cipher, [1; KEY_BYTES]), Vec::new());
        let data = data();
        let mut rest = &data[..];
        for part in PARTS {
            let (mut now, behind) = rest.split_at(part);
            rest = behind;
            while !now.is_empty() {
                let n = sealer.write(&mut wire, now).unwrap();
                now = &now[n..];
            }
        }
        sealer.end(&mut wire).unwrap();
        let (mut records, mut rest) = (Vec::new(), &wire[..]);
        while !rest.is_empty() {
            let len = u32::from_le_bytes(rest[..HEAD_BYTES].try_into().unwrap()) as usize;
            let (record, behind) = rest.split_at(HEAD_BYTES + len + TAG_BYTES);
            records.push(record.to_vec());
            rest = behind;
        }
        records
    }

    /// Reads the bytes in `wire` in pieces of `piece` bytes. Returns the content that was read, and how reading ended.
    fn read(cipher: &'static Cipher, wire: &[u8], piece: usize) -> (Vec<u8>, io::Result<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut to = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut from = TcpDataStream::new(listener.accept().unwrap().0);
        std::thread::scope(|scope| {
            // An end that has detected damage stops reading, so writing may fail.
            scope.spawn(move || drop(to.write_all(wire)));
            let (mut opener, mut got, mut buffer) = (Opener::new(cipher, [1; KEY_BYTES]), Vec::new(), vec![0; piece]);
            let result = loop {
                match opener.read(&mut from, &mut buffer) {
                    Ok(0) => break Ok(()),
                    Ok(n) => got.extend_from_slice(&buffer[..n]),
                    Err(e) => break Err(e),
                }
            };
            drop(from);
            (got, result)
        })
    }

    #[test]
    fn reading_in_full_waits_for_nothing_behind_what_was_asked_for() {
        const ASKED: [usize; 4] = [100_000, 16 << 10, 300_000, 5];
        for cipher in [&X2, &X4] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let mut to = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            to.set_nodelay(true).unwrap();
            let mut from = TcpDataStream::new(listener.accept().unwrap().0);
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    let mut sealer = Sealer::new(cipher, [1; KEY_BYTES]);
                    for asked in ASKED {
                        let (mut wire, mut rest) = (Vec::new(), &vec![7; asked][..]);
                        while !rest.is_empty() {
                            let n = sealer.write(&mut wire, rest).unwrap();
                            rest = &rest[n..];
                        }
                        // As packets come over a slow network; what follows waits for an answer.
                        for packet in wire.chunks(1448) {
                            to.write_all(packet).unwrap();
                            std::thread::yield_now();
                        }
                        to.read_exact(&mut [0]).unwrap();
                    }
                });
                let mut opener = Opener::new(cipher, [1; KEY_BYTES]);
                from.handle().set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
                for asked in ASKED {
                    let (mut content, mut done) = (vec![0; asked], 0);
                    while done < asked {
                        done += opener.read_full(&mut from, &mut content[done..]).unwrap();
                    }
                    assert!(content.iter().all(|byte| *byte == 7), "{asked}");
                    from.write_all(&[1]).unwrap();
                }
            });
        }
    }

    #[test]
    fn what_was_written_is_read_in_pieces_of_any_size() {
        for cipher in [&X2, &X4] {
            let wire = wire(cipher).concat();
            for piece in [1 << 20, 256 << 10, 16 << 10, 1000, 777, 12] {
                let (got, result) = read(cipher, &wire, piece);
                result.unwrap();
                assert!(got == data(), "{piece}");
            }
        }
    }

    #[test]
    fn records_are_messages_of_their_ciphers() {
        for cipher in [&X2, &X4] {
            for (number, record) in wire(cipher).iter().enumerate() {
                let mut nonce = [0; NONCE_BYTES];
                nonce[..8].copy_from_slice(&(number as u64).to_le_bytes());
                let (head, rest) = record.split_at(HEAD_BYTES);
                let (body, tag) = rest.split_at(rest.len() - TAG_BYTES);
                let tag = tag.try_into().unwrap();
                let decrypted = if cipher.name == X2.name {
                    Aegis128X2::<TAG_BYTES>::new(&[1; KEY_BYTES], &nonce).decrypt(body, tag, head)
                } else {
                    Aegis128X4::<TAG_BYTES>::new(&[1; KEY_BYTES], &nonce).decrypt(body, tag, head)
                };
                assert!(decrypted.is_ok(), "{number}");
            }
        }
    }

    #[test]
    fn changed_exchanged_repeated_or_missing_records_are_noticed() {
        for cipher in [&X2, &X4] {
            let good = wire(cipher);
            let damaged = |records: &[Vec<u8>], what: &str, kind| {
                let (got, result) = read(cipher, &records.concat(), 256 << 10);
                assert_eq!(result.unwrap_err().kind(), kind, "{what}");
                assert!(data().starts_with(&got), "{what}: something else was read");
            };
            let with = |change: &dyn Fn(&mut Vec<Vec<u8>>)| {
                let mut records = good.clone();
                change(&mut records);
                records
            };
            let last = good.len() - 1;
            for (what, records) in [
                ("a bit of the content", with(&|r| r[3][HEAD_BYTES + 5] ^= 1)),
                ("a bit of the tag", with(&|r| *r[3].last_mut().unwrap() ^= 1)),
                ("a shorter length", with(&|r| r[3][1] ^= 0x40)),
                ("a length over the limit", with(&|r| r[3][3] = 1)),
                ("two exchanged", with(&|r| r.swap(3, 4))),
                ("one twice", with(&|r| r.insert(4, r[3].clone()))),
                ("one missing", with(&|r| drop(r.remove(3)))),
                ("the end too early", with(&|r| r.swap(3, last))),
            ] {
                damaged(&records, what, io::ErrorKind::InvalidData);
            }
            damaged(&good[..last], "no end", io::ErrorKind::UnexpectedEof);
            damaged(&good[..3], "cut off", io::ErrorKind::UnexpectedEof);
        }
    }
}
