//! Records of encrypted data streams: AEGIS-128X (RFC 10032) under keys that TLS 1.3 has agreed on.
//!
//! A data stream begins with a TLS 1.3 handshake, which authenticates the far end and agrees on secrets. If both
//! processors have AES instructions, the two ends then leave TLS's own record layer and continue with these records.
//! They agree to do so, and on the cipher, by ALPN (RFC 7301), which the handshake authenticates, and derive a key for
//! each direction with TLS's exporter (RFC 8446, section 7.5), as DTLS-SRTP does (RFC 5764). AEGIS takes a fraction of
//! the time of AES-GCM, and a record is encrypted from the memory that the file was read into and decrypted to where it
//! is written from, while rustls copies it twice at each end.
//!
//! A record is the length of its content (4 bytes, little endian), the encrypted content, and a tag of 128 bits that
//! covers both. Its nonce is its number in its direction, so records cannot be exchanged, repeated or dropped. An empty
//! record ends a direction; a connection that ends without one was cut off.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::os::fd::AsRawFd;

use aegis::aegis128x2::Aegis128X2;
use aegis::aegis128x4::Aegis128X4;
use nix::sys::socket::{MsgFlags, recv};
use rustls::Connection;

/// Label of the keys for TLS's exporter; the context is the cipher's name.
const LABEL: &[u8] = b"EXPERIMENTAL-fullpipe-records";
/// Bytes of a key.
const KEY: usize = 16;
/// Bytes of a nonce.
const NONCE: usize = 16;
/// Bytes of a record's length.
const HEAD: usize = 4;
/// Bytes of a record's tag.
const TAG: usize = 16;
/// Most bytes of a record's content, as in TLS. A longer record would arrive late on a slow path, and nothing of it
/// counts before it is whole.
const CONTENT: usize = 16 << 10;
/// Bytes of content that are encrypted before they are given to the socket.
const BATCH: usize = 256 << 10;
/// Bytes that are taken from the socket at a time.
const RAW: usize = 256 << 10;

/// Most bytes of an encrypted TLS record (RFC 8446, section 5.2).
const TLS_RECORD: u16 = (16 << 10) + 256;

/// Encrypts `content` into memory of the same length, and gives the tag of that and of `head`.
type Seal = fn(key: &[u8; KEY], nonce: &[u8; NONCE], head: &[u8], content: &[u8], to: &mut [u8]) -> [u8; TAG];
/// A record: its head, its encrypted content, its tag.
type Parts<'a> = (&'a [u8], &'a [u8], &'a [u8; TAG]);
/// Decrypts a record into memory of its content's length; none if it is not what was encrypted, and then leaves zeros.
type Open = fn(key: &[u8; KEY], nonce: &[u8; NONCE], record: Parts<'_>, to: &mut [u8]) -> Option<()>;

/// A cipher for records.
struct Cipher {
    /// Name by which the ends agree on it (ALPN). Its last number is to be raised when records change.
    name: &'static [u8],
    seal: Seal,
    open: Open,
}

/// The fastest where AES instructions have 512 bits (54 GB/s where AEGIS-128X2 has 17 and AES-128-GCM 9 to 14).
const X4: Cipher = Cipher {
    name: b"fullpipe-aegis128x4-1",
    seal: |key, nonce, head, content, to| {
        let mut encryptor = Aegis128X4::<TAG>::new(key, nonce).encryptor(head);
        encryptor.update(content, to);
        encryptor.finalize()
    },
    open: |key, nonce, (head, body, tag), to| {
        let aegis = Aegis128X4::<TAG>::new(key, nonce);
        let mut decryptor = aegis.decryptor(head, to);
        decryptor.update(body).ok()?;
        decryptor.finalize(tag).ok().map(drop)
    },
};
/// The fastest where AES instructions have 128 or 256 bits.
const X2: Cipher = Cipher {
    name: b"fullpipe-aegis128x2-1",
    seal: |key, nonce, head, content, to| {
        let mut encryptor = Aegis128X2::<TAG>::new(key, nonce).encryptor(head);
        encryptor.update(content, to);
        encryptor.finalize()
    },
    open: |key, nonce, (head, body, tag), to| {
        let aegis = Aegis128X2::<TAG>::new(key, nonce);
        let mut decryptor = aegis.decryptor(head, to);
        decryptor.update(body).ok()?;
        decryptor.finalize(tag).ok().map(drop)
    },
};

/// Ciphers that are fast on this processor, the best first. Without AES instructions there are none: AEGIS is then
/// slower than what TLS has.
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

/// Names of the protocols that a data stream's ends can agree on (ALPN), the best first.
pub(super) fn protocols() -> Vec<Vec<u8>> {
    ciphers().iter().map(|cipher| cipher.name.to_vec()).collect()
}

/// Gives the two directions of a connection that has shaken hands, if both ends want these records.
///
/// # Errors
/// TLS exports no keys.
pub(super) fn begin(connection: &Connection) -> Result<Option<(Sealer, Opener)>, rustls::Error> {
    let Some(name) = connection.alpn_protocol() else { return Ok(None) };
    let Some(cipher) = ciphers().iter().find(|cipher| cipher.name == name) else { return Ok(None) };
    let keys = connection.export_keying_material([0; 2 * KEY], LABEL, Some(name))?;
    let (mut of_client, mut of_server) = ([0; KEY], [0; KEY]);
    of_client.copy_from_slice(&keys[..KEY]);
    of_server.copy_from_slice(&keys[KEY..]);
    Ok(Some(match connection {
        Connection::Client(_) => (Sealer::new(cipher, of_client), Opener::new(cipher, of_server)),
        Connection::Server(_) => (Sealer::new(cipher, of_server), Opener::new(cipher, of_client)),
    }))
}

/// What one direction's records are encrypted with.
struct Keys {
    cipher: &'static Cipher,
    key: [u8; KEY],
    /// Records before the next one.
    records: u64,
}

impl Keys {
    /// The next record's nonce, which no other record has.
    fn nonce(&mut self) -> io::Result<[u8; NONCE]> {
        let mut nonce = [0; NONCE];
        nonce[..8].copy_from_slice(&self.records.to_le_bytes());
        self.records = self.records.checked_add(1).ok_or_else(|| io::Error::other("a stream of 2^64 records"))?;
        Ok(nonce)
    }
}

/// The direction that is sent.
pub(super) struct Sealer {
    keys: Keys,
    wire: Vec<u8>,
}

impl Sealer {
    fn new(cipher: &'static Cipher, key: [u8; KEY]) -> Sealer {
        Sealer { keys: Keys { cipher, key, records: 0 }, wire: Vec::new() }
    }

    /// Encrypts some of `from` and writes it; gives how many bytes.
    pub(super) fn write(&mut self, to: &mut impl Write, from: &[u8]) -> io::Result<usize> {
        let from = &from[..from.len().min(BATCH)];
        let records = from.len().div_ceil(CONTENT);
        let len = from.len() + records * (HEAD + TAG);
        if self.wire.len() < len {
            self.wire.resize(len, 0);
        }
        let mut rest = &mut self.wire[..len];
        for content in from.chunks(CONTENT) {
            let (record, behind) = rest.split_at_mut(HEAD + content.len() + TAG);
            seal(&mut self.keys, content, record)?;
            rest = behind;
        }
        to.write_all(&self.wire[..len])?;
        Ok(from.len())
    }

    /// Writes the record that ends this direction.
    pub(super) fn end(&mut self, to: &mut impl Write) -> io::Result<()> {
        let mut record = [0; HEAD + TAG];
        seal(&mut self.keys, &[], &mut record)?;
        to.write_all(&record)
    }
}

/// Makes the next record, which has the length of its content, a head and a tag.
fn seal(keys: &mut Keys, content: &[u8], record: &mut [u8]) -> io::Result<()> {
    let (head, rest) = record.split_at_mut(HEAD);
    let (body, tag) = rest.split_at_mut(content.len());
    head.copy_from_slice(&(content.len() as u32).to_le_bytes());
    let nonce = keys.nonce()?;
    tag.copy_from_slice(&(keys.cipher.seal)(&keys.key, &nonce, head, content, body));
    Ok(())
}

/// The direction that is received.
pub(super) struct Opener {
    keys: Keys,
    raw: Vec<u8>,
    /// Of `raw`, what has come and was not decrypted yet.
    come: Range<usize>,
    plain: Vec<u8>,
    /// Of `plain`, what was decrypted and not read yet.
    unread: Range<usize>,
    ended: bool,
    /// What was taken from the socket last did not complete a record.
    short: bool,
}

impl Opener {
    fn new(cipher: &'static Cipher, key: [u8; KEY]) -> Opener {
        let keys = Keys { cipher, key, records: 0 };
        Opener { keys, raw: vec![0; RAW], come: 0..0, plain: Vec::new(), unread: 0..0, ended: false, short: false }
    }

    /// Reads some bytes; none only at the end. Records that fit into `to` are decrypted into it.
    ///
    /// # Errors
    /// The connection's; `InvalidData` if something was changed on the way, and `UnexpectedEof` if it was cut off.
    pub(super) fn read(&mut self, from: &TcpStream, to: &mut [u8]) -> io::Result<usize> {
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
                self.fetch(from, missing)?;
                continue;
            }
            let len = self.content_len()?;
            let rest = to.len() - done;
            if len <= rest {
                let came = self.come.start;
                let record = &self.raw[came..came + HEAD + len + TAG];
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
                    self.plain.resize(CONTENT, 0);
                }
                let came = self.come.start;
                let record = &self.raw[came..came + HEAD + len + TAG];
                open(&mut self.keys, record, &mut self.plain[..len])?;
                self.come.start += record.len();
                to.copy_from_slice(&self.plain[..rest]);
                self.unread = rest..len;
                return Ok(rest);
            }
        }
        Ok(done)
    }

    /// Length of the next record's content, whose head has come.
    fn content_len(&self) -> io::Result<usize> {
        let mut head = [0; HEAD];
        head.copy_from_slice(&self.raw[self.come.start..self.come.start + HEAD]);
        let len = u32::from_le_bytes(head) as usize;
        if len > CONTENT { Err(changed()) } else { Ok(len) }
    }

    /// Bytes that have to come before the next record can be decrypted, at least.
    fn missing(&self) -> io::Result<usize> {
        let have = self.come.len();
        if have < HEAD {
            return Ok(HEAD + TAG - have);
        }
        Ok((HEAD + self.content_len()? + TAG).saturating_sub(have))
    }

    /// Takes from the socket what it has, at least one byte. `missing` bytes complete the next record.
    fn fetch(&mut self, from: &TcpStream, missing: usize) -> io::Result<()> {
        // A record has to be in one piece; of the next one there is only its beginning.
        self.raw.copy_within(self.come.clone(), 0);
        self.come = 0..self.come.len();
        let end = self.come.end;
        // Where the network is slower than this end, it would otherwise read each packet by itself.
        let n = if self.short {
            recv(from.as_raw_fd(), &mut self.raw[end..end + missing], MsgFlags::MSG_WAITALL)?
        } else {
            recv(from.as_raw_fd(), &mut self.raw[end..], MsgFlags::empty())?
        };
        if n == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.short = n < missing;
        self.come.end += n;
        Ok(())
    }
}

/// Decrypts a record.
fn open(keys: &mut Keys, record: &[u8], to: &mut [u8]) -> io::Result<()> {
    let (head, rest) = record.split_at(HEAD);
    let (body, shown) = rest.split_at(to.len());
    let mut tag = [0; TAG];
    tag.copy_from_slice(shown);
    let nonce = keys.nonce()?;
    (keys.cipher.open)(&keys.key, &nonce, (head, body, &tag), to).ok_or_else(changed)
}

fn changed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a record was changed on the way")
}

/// A socket during the handshake, of which no more is read than the next TLS record: what follows the handshake is no
/// TLS.
pub(super) struct Handshake<'a> {
    socket: &'a TcpStream,
    record: Vec<u8>,
    read: usize,
}

impl Handshake<'_> {
    pub(super) fn new(socket: &TcpStream) -> Handshake<'_> {
        Handshake { socket, record: Vec::new(), read: 0 }
    }
}

impl Read for Handshake<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if self.read == self.record.len() {
            // Type, version and length (RFC 8446, section 5.1).
            let mut head = [0; 5];
            let mut socket = self.socket;
            socket.read_exact(&mut head)?;
            let len = u16::from_be_bytes([head[3], head[4]]);
            // What is no TLS, rustls recognises by its head: nothing more of it is waited for.
            let is_tls = (20..=24).contains(&head[0]) && head[1] == 3 && len <= TLS_RECORD;
            self.record.clear();
            self.record.extend_from_slice(&head);
            socket.take(if is_tls { u64::from(len) } else { 0 }).read_to_end(&mut self.record)?;
            self.read = 0;
        }
        let mut rest = &self.record[self.read..];
        let n = rest.read(to)?;
        self.read += n;
        Ok(n)
    }
}

impl Write for Handshake<'_> {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.socket.write(from)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    const PARTS: [usize; 7] = [16 << 10, 300_000, 100, 1, 40_000, (16 << 10) + 1, 3];

    fn data() -> Vec<u8> {
        (0..PARTS.iter().sum::<usize>()).map(|i| (i * 7) as u8).collect()
    }

    /// All records of [`data`], and that of the end, each by itself.
    fn wire(cipher: &'static Cipher) -> Vec<Vec<u8>> {
        let (mut sealer, mut wire) = (Sealer::new(cipher, [1; KEY]), Vec::new());
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
            let len = u32::from_le_bytes(rest[..HEAD].try_into().unwrap()) as usize;
            let (record, behind) = rest.split_at(HEAD + len + TAG);
            records.push(record.to_vec());
            rest = behind;
        }
        records
    }

    /// What is read of these bytes in pieces of a size, and how that ends.
    fn read(cipher: &'static Cipher, wire: &[u8], piece: usize) -> (Vec<u8>, io::Result<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut to = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let from = listener.accept().unwrap().0;
        std::thread::scope(|scope| {
            // An end that has seen damage reads no further.
            scope.spawn(move || drop(to.write_all(wire)));
            let (mut opener, mut got, mut buffer) = (Opener::new(cipher, [1; KEY]), Vec::new(), vec![0; piece]);
            let result = loop {
                match opener.read(&from, &mut buffer) {
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
                let mut nonce = [0; NONCE];
                nonce[..8].copy_from_slice(&(number as u64).to_le_bytes());
                let (head, rest) = record.split_at(HEAD);
                let (body, tag) = rest.split_at(rest.len() - TAG);
                let tag = tag.try_into().unwrap();
                let decrypted = if cipher.name == X2.name {
                    Aegis128X2::<TAG>::new(&[1; KEY], &nonce).decrypt(body, tag, head)
                } else {
                    Aegis128X4::<TAG>::new(&[1; KEY], &nonce).decrypt(body, tag, head)
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
                ("a bit of the content", with(&|r| r[3][HEAD + 5] ^= 1)),
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
