//! The end that the fuzzer plays.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

use fullpipe_transfer::protocol::chunk::{Chunk, Trailer};
use fullpipe_transfer::protocol::digest::{Key, Tagger};
use fullpipe_transfer::protocol::file::FileItem;
use fullpipe_transfer::protocol::frame::{self, FRAME_HEAD};
use fullpipe_transfer::protocol::hello::{Hello, Limits, MAGIC, PROTOCOL};
use fullpipe_transfer::protocol::message::{Message, Reading, Terms};
use fullpipe_transfer::protocol::preamble;

use crate::steps::{Script, Step};

/// Longest data of a chunk that is sent whole.
const MOST: u64 = 4 << 20;
/// A real end that does not read for so long is not waited for.
const PATIENCE: Duration = Duration::from_millis(300);

/// What a kernel like this one lets its sockets do.
pub fn limits() -> Limits {
    Limits { ccs: vec!["cubic".into(), "reno".into()], ..Limits::default() }
}

/// A right greeting.
pub fn hello() -> Message {
    Message::Hello(Hello { magic: MAGIC, protocol: PROTOCOL, program: "x".into(), limits: limits() })
}

/// Where streams go.
#[derive(Debug, Clone, Copy)]
pub struct Door {
    pub port: u16,
    pub token: [u8; 32],
}

impl Door {
    /// Calls there so many times.
    pub fn streams(&self, n: u16) -> Vec<TcpStream> {
        let one = |i: u16| {
            let mut stream = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], self.port))).ok()?;
            stream.write_all(&preamble::preamble(&self.token, i)).ok()?;
            Some(stream)
        };
        (0..n).filter_map(one).collect()
    }
}

/// Bytes of a version of a file that were sent with the right digest: where, and what; none where nothing but zeros.
type Parts = Vec<(u64, u64, Option<Vec<u8>>)>;

/// The end that the fuzzer plays.
pub struct Peer {
    control: Box<dyn Write + Send>,
    streams: Vec<Option<(TcpStream, Tagger)>>,
    key: Key,
    sent: Sent,
}

/// What has been sent with the right digests, by the file's version.
#[derive(Default)]
pub struct Sent {
    versions: BTreeMap<u64, (FileItem, Parts)>,
    /// Numbers that a version was sent under.
    ids: BTreeMap<u64, BTreeSet<u64>>,
    /// Sizes that files of unknown size were said to have in the end, with their numbers.
    sizes: BTreeSet<(u64, u64)>,
}

impl Peer {
    /// One that has been introduced. Digests and tags are made with the keys of `terms`; `sent` has been sent before.
    pub fn new(control: Box<dyn Write + Send>, streams: Vec<TcpStream>, terms: Option<Terms>, sent: Sent) -> Peer {
        for stream in &streams {
            let _ = stream.set_write_timeout(Some(PATIENCE));
        }
        let (key, tags) = terms.map_or((Key([0; Key::LEN]), Key([0; Key::LEN])), |terms| (terms.key, terms.tags));
        let streams = (0..).zip(streams).map(|(i, stream)| Some((stream, Tagger::new(tags, i)))).collect();
        Peer { control, streams, key, sent }
    }

    /// Plays a script, then closes everything; gives all that has been sent.
    pub fn play(mut self, script: Script) -> Sent {
        for step in script.steps {
            self.step(step);
        }
        // The control connection first: an end that loses a stream waits a second for the reason.
        drop(self.control);
        self.sent
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Say(message) => {
                if let Message::FileEnd { id, reading: Reading::Ended { size } } = message {
                    self.sent.sizes.insert((id, size));
                }
                let _ = frame::send(&mut *self.control, &message);
            }
            Step::Bytes(bytes) => {
                let _ = self.control.write_all(&bytes);
            }
            Step::Chunk { stream, chunk, data, right } => self.chunk(stream, &chunk, &data, right),
            Step::Spill { stream, bytes } => self.spill(stream, &bytes),
            Step::Close { stream } => {
                if let Some(stream) = self.at(stream) {
                    *stream = None;
                }
            }
            Step::Wait(ms) => std::thread::sleep(Duration::from_millis(u64::from(ms % 8))),
        }
    }

    fn at(&mut self, stream: u8) -> Option<&mut Option<(TcpStream, Tagger)>> {
        let n = self.streams.len().max(1);
        self.streams.get_mut(usize::from(stream) % n)
    }

    fn spill(&mut self, stream: u8, bytes: &[u8]) {
        let Some(slot) = self.at(stream) else { return };
        let written = slot.as_mut().is_some_and(|(stream, _)| stream.write_all(bytes).is_ok());
        if !written {
            *slot = None;
        }
    }

    fn chunk(&mut self, stream: u8, chunk: &Chunk, data: &[u8], right: bool) {
        let Ok(mut bytes) = frame::pack(chunk) else { return };
        let len = chunk.data_len().filter(|len| *len <= MOST);
        let content: Vec<u8> = match len {
            Some(len) if !data.is_empty() => data.iter().copied().cycle().take(len as usize).collect(),
            Some(len) => vec![0; len as usize],
            None => data.to_vec(),
        };
        let digest = match chunk {
            Chunk::Block { file, extent, hole: false, .. } => {
                let mut mac = self.key.block(file.key(), *extent);
                mac.update(&content);
                Some(mac.finish())
            }
            Chunk::Pack(_) => Some(self.key.pack(&content)),
            Chunk::Block { hole: true, .. } | Chunk::End => None,
        };
        let Some(Some((_, tagger))) = self.at(stream) else { return };
        let mut tag = tagger.next(&bytes[FRAME_HEAD..], digest.as_ref());
        tag[0] ^= u8::from(!right);
        if digest.is_some() {
            bytes.extend_from_slice(&content);
        }
        bytes.extend_from_slice(&Trailer(Some(tag)).pack());
        if right && len.is_some() {
            // Also where it may not have come whole: what has come can be explained by it.
            self.sent.remember(chunk, &content);
        }
        self.spill(stream, &bytes);
    }
}

impl Sent {
    fn remember(&mut self, chunk: &Chunk, content: &[u8]) {
        let mut add = |file: &FileItem, offset, len, bytes: Option<Vec<u8>>| {
            self.versions.entry(file.key()).or_insert_with(|| (file.clone(), Vec::new())).1.push((offset, len, bytes));
        };
        match chunk {
            Chunk::End => {}
            Chunk::Block { id, file, extent, hole } => {
                self.ids.entry(file.key()).or_default().insert(*id);
                add(file, extent.offset, extent.len, (!hole).then(|| content.to_vec()));
            }
            Chunk::Pack(files) => {
                let mut rest = content;
                for file in files {
                    let (mine, behind) = rest.split_at(file.size as usize);
                    rest = behind;
                    add(file, 0, file.size, Some(mine.to_vec()));
                }
            }
        }
    }

    /// Every file is all of one version of it, as it was sent. Links that lead to elsewhere below the root are followed, so
    /// only the last part of its name tells which it is.
    ///
    /// # Panics
    /// One is not.
    pub fn explain(&self, files: &BTreeMap<PathBuf, Vec<u8>>) {
        for (name, content) in files {
            let versions = self.versions.values().filter(|(file, _)| file.name.path().file_name() == name.file_name());
            let size = content.len() as u64;
            let is_said = |file: &FileItem| {
                self.ids.get(&file.key()).is_some_and(|ids| ids.iter().any(|id| self.sizes.contains(&(*id, size))))
            };
            let is_size = |file: &FileItem| if file.has_size() { file.size == size } else { is_said(file) };
            let mut right = versions.filter(|(file, parts)| is_size(file) && is_of(content, parts));
            assert!(right.next().is_some(), "{}: {} bytes that were never sent so", name.display(), content.len());
        }
    }
}

impl Sent {
    /// What was printed is the beginning of one version of a file, as it was sent.
    ///
    /// # Panics
    /// It is not.
    pub fn explain_printed(&self, content: &[u8]) {
        let mut right = self.versions.values().filter(|(_, parts)| is_of(content, parts));
        assert!(content.is_empty() || right.next().is_some(), "{} bytes that were never sent so", content.len());
    }
}

/// Whether each byte is one that was sent.
fn is_of(content: &[u8], parts: &Parts) -> bool {
    let mut fine = vec![false; content.len()];
    for (offset, len, bytes) in parts {
        for i in 0..*len as usize {
            let at = *offset as usize + i;
            if let Some(fine) = fine.get_mut(at) {
                *fine |= content[at] == bytes.as_ref().map_or(0, |bytes| bytes[i]);
            }
        }
    }
    fine.into_iter().all(|fine| fine)
}

/// Reads what a real end says until it has said all, and gives its messages one by one.
pub fn hear(mut from: impl Read + Send + 'static) -> std::sync::mpsc::Receiver<Message> {
    let (give, messages) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        while let Ok(message) = frame::receive::<Message>(&mut from) {
            // Whoever listens no more still lets it be said.
            let _ = give.send(message);
        }
    });
    messages
}

/// Reads a stream to its end.
///
/// # Panics
/// What is outside the root is in it.
pub fn drain(mut from: impl Read + Send + 'static) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        let (mut all, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
        while let Ok(n @ 1..) = from.read(&mut buffer) {
            all.extend_from_slice(&buffer[..n]);
        }
        let secret = crate::world::SECRET;
        assert!(!all.windows(secret.len()).any(|part| part == secret), "a stream tells what is outside the root");
    })
}
