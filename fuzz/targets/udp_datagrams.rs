//! Datagrams of plain UDP: what is read comes back as it was written, and belongs to the stream whose tag it has.
#![no_main]

use fullpipe_fuzz::{mutant_of_bytes, replay};
use fullpipe_net::stream::udp::datagram::{
    self, COOKIE_BYTES, Datagram, HEADER_BYTES, MAX_NUMBER, REPORT_BYTES, parse, parse_call,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| replay(data, mutant_of_bytes, run));

/// The input: two bytes of a tag, then a datagram.
fn run(data: &[u8]) {
    let Some((tag, bytes)) = data.split_first_chunk::<2>() else { return };
    let tag = u16::from_be_bytes(*tag);
    if let Some((preamble, cookie)) = parse_call::<20>(bytes) {
        let again = datagram::call(preamble, Some(cookie), 0);
        assert!(bytes.starts_with(&again) && datagram::cookie(tag, cookie).len() < bytes.len());
    }
    let Some(parsed) = parse(bytes, tag) else { return };
    assert_eq!(parse(bytes, tag ^ 1), None);
    let again = match parsed {
        Datagram::Cookie(cookie) => {
            let again = datagram::cookie(tag, &cookie);
            assert_eq!(again[again.len() - COOKIE_BYTES..], bytes[8..8 + COOKIE_BYTES]);
            again
        }
        Datagram::Data { seq, sent_ns } => {
            assert!(seq <= MAX_NUMBER && bytes.len() >= HEADER_BYTES);
            let mut again = [0; HEADER_BYTES];
            datagram::write_data(&mut again, tag, seq, sent_ns);
            again.to_vec()
        }
        Datagram::End { sent } => datagram::end(tag, sent).to_vec(),
        Datagram::Report { number, bytes: arrived, counts } => {
            assert!(number <= MAX_NUMBER && bytes.len() >= REPORT_BYTES);
            datagram::report(tag, number, arrived, &counts).to_vec()
        }
    };
    assert_eq!(parse(&again, tag), Some(parsed));
}
