//! The datagrams of plain UDP, as bytes.
//!
//! All begin with a word of eight bytes in network order: the kind (4 bits), a tag of the stream (16 bits), and a number (44 bits).
//! The tag is made from the session's token, so a stranger who can forge addresses has to guess it.

use fullpipe_path::record::udp::UdpCounts;

/// Bytes that each datagram with data has of fullpipe's own.
pub const HEADER_BYTES: usize = 16;
/// Bytes of a cookie.
pub const COOKIE_BYTES: usize = 16;
/// Bytes of a report.
pub const REPORT_BYTES: usize = 64;
/// The largest number that a datagram can carry.
pub const MAX_NUMBER: u64 = (1 << 44) - 1;

const WORD_BYTES: usize = 8;

/// What a datagram is.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Kind {
    Call = 1,
    Cookie = 2,
    Data = 3,
    End = 4,
    Report = 5,
}

/// A datagram of a stream that is open or being opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Datagram {
    /// From the server: what a caller is to show.
    Cookie([u8; COOKIE_BYTES]),
    /// Data.
    Data {
        /// Number of the datagram in its stream, from 0.
        seq: u64,
        /// When it was sent, ns of the sender's clock.
        sent_ns: u64,
    },
    /// From the sender: all data have been sent.
    End {
        /// Number of datagrams with data.
        sent: u64,
    },
    /// From the receiver: what has arrived.
    Report {
        /// Number of the report, from 0. A report that arrives late is older than what is known.
        number: u64,
        /// Bytes of payload that have arrived.
        bytes: u64,
        /// What the receiver has counted.
        counts: UdpCounts,
    },
}

fn word(kind: Kind, tag: u16, number: u64) -> [u8; WORD_BYTES] {
    ((kind as u64) << 60 | u64::from(tag) << 44 | number & MAX_NUMBER).to_be_bytes()
}

/// The eight bytes at `at`, as a number.
fn number_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|word| u64::from_be_bytes(*word))
}

/// Writes the header of a datagram with data to its beginning.
pub fn write_data(to: &mut [u8; HEADER_BYTES], tag: u16, seq: u64, sent_ns: u64) {
    to[..WORD_BYTES].copy_from_slice(&word(Kind::Data, tag, seq));
    to[WORD_BYTES..].copy_from_slice(&sent_ns.to_be_bytes());
}

/// The datagram that says how many datagrams have been sent.
#[must_use]
pub fn end(tag: u16, sent: u64) -> [u8; WORD_BYTES] {
    word(Kind::End, tag, sent)
}

/// The datagram that tells the sender what has arrived.
#[must_use]
pub fn report(tag: u16, number: u64, bytes: u64, counts: &UdpCounts) -> [u8; REPORT_BYTES] {
    let mut datagram = [0; REPORT_BYTES];
    datagram[..WORD_BYTES].copy_from_slice(&word(Kind::Report, tag, number));
    let fields = [
        bytes,
        counts.datagrams,
        counts.datagrams_received,
        counts.datagrams_lost,
        counts.datagrams_out_of_order,
        counts.datagrams_duplicate,
        counts.jitter_ns,
    ];
    for (to, value) in datagram[WORD_BYTES..].chunks_exact_mut(WORD_BYTES).zip(fields) {
        to.copy_from_slice(&value.to_be_bytes());
    }
    datagram
}

/// The datagram with which a server asks a caller to show a cookie.
#[must_use]
pub fn cookie(tag: u16, cookie: &[u8; COOKIE_BYTES]) -> Vec<u8> {
    [&word(Kind::Cookie, tag, 0)[..], cookie].concat()
}

/// The datagram with which a stream is called, with the cookie if the server has sent one. It has `datagram_bytes`, if that is
/// enough for it: a path that does not carry such datagrams shows at once.
#[must_use]
pub fn call(preamble: &[u8], cookie: Option<&[u8; COOKIE_BYTES]>, datagram_bytes: usize) -> Vec<u8> {
    let cookie = cookie.unwrap_or(&[0; COOKIE_BYTES]);
    let mut datagram = [&word(Kind::Call, 0, 0)[..], preamble, cookie].concat();
    datagram.resize(datagram.len().max(datagram_bytes), 0);
    datagram
}

/// Reads a call: the preamble, and the cookie, which is zero in the first call.
#[must_use]
pub fn parse_call<const N: usize>(bytes: &[u8]) -> Option<(&[u8; N], &[u8; COOKIE_BYTES])> {
    let body = bytes.strip_prefix(&word(Kind::Call, 0, 0))?;
    let (preamble, rest) = body.split_first_chunk()?;
    Some((preamble, rest.first_chunk()?))
}

/// Reads a datagram of the stream that has this tag; `None` for any other.
#[must_use]
pub fn parse(bytes: &[u8], tag: u16) -> Option<Datagram> {
    let word = number_at(bytes, 0)?;
    if (word >> 44) as u16 != tag {
        return None;
    }
    let number = word & MAX_NUMBER;
    let at = |index: usize| number_at(bytes, WORD_BYTES * index);
    const COOKIE: u64 = Kind::Cookie as u64;
    const DATA: u64 = Kind::Data as u64;
    const END: u64 = Kind::End as u64;
    const REPORT: u64 = Kind::Report as u64;
    match word >> 60 {
        COOKIE => bytes[WORD_BYTES..].first_chunk().map(|cookie| Datagram::Cookie(*cookie)),
        DATA => Some(Datagram::Data { seq: number, sent_ns: at(1)? }),
        END => Some(Datagram::End { sent: number }),
        REPORT => Some(Datagram::Report {
            number,
            bytes: at(1)?,
            counts: UdpCounts {
                datagrams: at(2)?,
                datagrams_received: at(3)?,
                datagrams_lost: at(4)?,
                datagrams_out_of_order: at(5)?,
                datagrams_duplicate: at(6)?,
                jitter_ns: at(7)?,
            },
        }),
        _ => None,
    }
}

/// The tag of the stream that has this preamble.
#[must_use]
pub fn tag(preamble: &[u8]) -> u16 {
    let hash = blake3::hash(preamble);
    u16::from_be_bytes([hash.as_bytes()[0], hash.as_bytes()[1]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_come_back_as_they_were_written() {
        let counts = UdpCounts {
            datagrams: 1,
            datagrams_received: 2,
            datagrams_lost: 3,
            datagrams_out_of_order: 4,
            datagrams_duplicate: 5,
            jitter_ns: u64::MAX,
        };
        let mut data = [0; HEADER_BYTES];
        write_data(&mut data, 7, MAX_NUMBER, 9);
        for (bytes, datagram) in [
            (data.to_vec(), Datagram::Data { seq: MAX_NUMBER, sent_ns: 9 }),
            (end(7, 8).to_vec(), Datagram::End { sent: 8 }),
            (report(7, 3, 4, &counts).to_vec(), Datagram::Report { number: 3, bytes: 4, counts }),
            (cookie(7, &[6; COOKIE_BYTES]), Datagram::Cookie([6; COOKIE_BYTES])),
        ] {
            assert_eq!(parse(&bytes, 7), Some(datagram));
            assert_eq!(parse(&bytes, 8), None, "another stream's");
            assert_eq!(parse(&bytes[..bytes.len() - 1], 7), None, "{datagram:?}, cut short");
        }
    }

    #[test]
    fn a_call_is_as_large_as_the_data_that_follow() {
        let bytes = call(&[5; 20], Some(&[6; COOKIE_BYTES]), 1_000);
        assert_eq!((bytes.len(), parse_call(&bytes)), (1_000, Some((&[5; 20], &[6; COOKIE_BYTES]))));
        let short = call(&[5; 20], None, 16);
        assert_eq!((short.len(), parse_call(&short)), (44, Some((&[5; 20], &[0; COOKIE_BYTES]))));
        assert_eq!(parse_call::<20>(&short[..43]), None);
        assert!(cookie(1, &[0; COOKIE_BYTES]).len() < short.len(), "an answer is never larger than its question");
    }
}
