//! Everything that is parsed of what another wrote: frames of a transfer and of a measurement, samples, a journal.
#![no_main]

use std::io::{Seek, SeekFrom, Write};

use fullpipe_fuzz::{mutant_of_bytes, replay};
use fullpipe_net::sample::Sample;
use fullpipe_net::wire;
use fullpipe_transfer::protocol::chunk::Chunk;
use fullpipe_transfer::protocol::frame;
use fullpipe_transfer::protocol::message::Message;
use fullpipe_transfer::protocol::name::Name;
use fullpipe_transfer::receive::journal::{Journal, Record};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| replay(data, mutant_of_bytes, run));

fn run(data: &[u8]) {
    let Some((kind, rest)) = data.split_first() else { return };
    match kind % 6 {
        0 => again::<Message>(rest),
        1 => again::<Chunk>(rest),
        2 => {
            let (kind, content) = rest.split_at(rest.len().min(1));
            let frame = [kind, &(content.len() as u32).to_le_bytes(), content].concat();
            let _ = wire::receive(&mut &frame[..]);
        }
        3 => {
            let mut from = rest;
            while Sample::unpack(&mut from).is_some() {}
        }
        4 => records(rest),
        _ => {
            if let Ok(name) = Name::try_from(rest.to_vec()) {
                let path = name.path().to_owned();
                assert!(path.is_relative() && !path.components().any(|part| part.as_os_str() == ".."), "{name}");
            }
        }
    }
}

/// What is read behind a right checksum is what would be written.
fn again<T: serde::Serialize + for<'de> serde::Deserialize<'de> + PartialEq + std::fmt::Debug>(bytes: &[u8]) {
    let Ok(value) = postcard::from_bytes::<T>(bytes) else { return };
    let Ok(frame) = frame::pack(&value) else { return };
    let back: T = frame::receive(&mut &frame[..]).expect("what was packed can be read");
    // But for numbers that are none, which equal nothing.
    assert_eq!(format!("{back:?}"), format!("{value:?}"));
}

/// A journal into which somebody has written: records behind right checksums, each with its length before it.
fn records(mut bytes: &[u8]) {
    let file = tempfile::tempfile().expect("a file");
    let again = || file.try_clone().expect("a descriptor");
    drop(Journal::open(again(), 3, 7).expect("a journal"));
    let mut end = again();
    end.seek(SeekFrom::End(0)).expect("its end");
    while let Some((len, rest)) = bytes.split_first() {
        let (content, behind) = rest.split_at(rest.len().min(usize::from(*len)));
        bytes = behind;
        let len = (content.len() as u32).to_le_bytes();
        let record = [&len[..], &crc32fast::hash(content).to_le_bytes(), content].concat();
        end.write_all(&record).expect("a record written");
    }
    let (mut journal, _) = Journal::open(again(), 3, 8).expect("a journal goes on");
    journal.add(&Record::Rebooted).and_then(|()| journal.flush()).expect("another record");
    journal.reader().and_then(|reader| reader.all(|_| ())).expect("what it has");
}
