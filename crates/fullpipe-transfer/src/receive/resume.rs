//! Finds out which blocks of a partial file, which an earlier attempt left, are still good.

use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;

use nix::fcntl::OFlag;

use super::receiver::Receiver;
use crate::fs::ownership::{self, Trust};
use crate::fs::{publish, sparse};
use crate::protocol::file::{Extent, FileItem};
use crate::receive::journal::Block;
use crate::sizes::PIECE;

impl Receiver {
    /// The extents of a partial file that match the journal's digests, in order and without overlaps, at most `most`.
    pub(super) fn intact(&self, item: &FileItem, mut blocks: Vec<Block>, most: usize) -> io::Result<Vec<Extent>> {
        let name = self.names.final_name(&item.name)?;
        let folder = self.root.folder(name.parent().as_ref())?;
        if self.is_begun_beside(item, &folder, &name) {
            // Now, since on a full disk even the journal may need its room.
            publish::remove(&folder, &self.names.partial(&name))?;
            return Ok(Vec::new());
        }
        let linked = self.is_partial_in_place(&folder, &name);
        let opened = ownership::open_linked(folder, &self.names.partial(&name), OFlag::O_RDONLY, linked)?;
        let Trust::Trusted(file) = opened else {
            return Ok(Vec::new());
        };
        blocks.sort_by_key(|(extent, _)| extent.offset);
        let mut good: Vec<Extent> = Vec::new();
        let holes = sparse::extents(&file, item.size)?;
        let is_hole = |hole: &Extent| {
            let behind = holes.partition_point(|(e, _)| e.offset <= hole.offset);
            let around = behind.checked_sub(1).map(|at| &holes[at]);
            around.is_some_and(|(e, is)| *is && hole.end() <= e.end())
        };
        let mut buffer = vec![0; PIECE];
        for (extent, digest) in blocks {
            let behind = good.last().and_then(Extent::end).unwrap_or(0);
            if good.len() == most
                || extent.offset < behind
                || extent.end().is_none_or(|end| end > item.size)
                || self.session.is_over()
            {
                continue;
            }
            if digest.is_none() && !is_hole(&extent) {
                // Another version of the file was written there since.
                continue;
            }
            if let Some(digest) = digest {
                let mut mac = self.key.block(item.key(), extent);
                let (mut at, mut rest) = (extent.offset, extent.len);
                while rest > 0 {
                    let piece = &mut buffer[..PIECE.min(rest as usize)];
                    if file.read_exact_at(piece, at).is_err() {
                        break;
                    }
                    mac.update(piece);
                    at += piece.len() as u64;
                    rest -= piece.len() as u64;
                }
                self.session.moved(extent.len);
                if rest > 0 || mac.finish() != digest {
                    continue;
                }
            }
            self.counters.done_bytes.fetch_add(extent.len, Ordering::Relaxed);
            if self.options.verify {
                self.verifier.keep(item.key(), (extent, digest));
            }
            match good.last_mut().filter(|_| extent.offset == behind) {
                Some(last) => last.len += extent.len,
                None => good.push(extent),
            }
        }
        Ok(good)
    }
}
