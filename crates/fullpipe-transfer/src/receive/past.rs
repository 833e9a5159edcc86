//! What earlier attempts have left, and how much of it is good.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;

use nix::fcntl::OFlag;

use super::{PIECE, Receiver};
use crate::error::TransferError;
use crate::files::{self, Root};
use crate::item::{Extent, FileItem};
use crate::journal::Version;
use crate::proto::Want;
use crate::send::SMALL;
use crate::session::lock;

impl Receiver {
    pub(super) fn want(&self, item: &FileItem) -> Result<Want, TransferError> {
        let key = Version { name: &item.name, size: item.size, mtime: item.meta.mtime }.key();
        let there = || -> io::Result<bool> {
            let name = self.named(&item.name)?;
            let file = self.root.open_at(name.path(), OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK, 0)?;
            files::unchanged(&File::from(file), item.size, item.meta.mtime)
        };
        if (self.options.update || self.past.done.contains(&key)) && there().unwrap_or(false) {
            let mut summary = lock(&self.summary);
            summary.files += 1;
            summary.skipped += 1;
            self.counters.done_files.fetch_add(1, Ordering::Relaxed);
            self.counters.done_bytes.fetch_add(item.size, Ordering::Relaxed);
            return Ok(Want::Nothing);
        }
        let Some(blocks) = self.past.blocks.get(&key).filter(|_| item.size > SMALL) else { return Ok(Want::All) };
        let have = self.intact(item, blocks).unwrap_or_default();
        let total: u64 = have.iter().map(|extent| extent.len).sum();
        if total == 0 || total > item.size {
            return Ok(Want::All);
        }
        self.counters.done_bytes.fetch_add(total, Ordering::Relaxed);
        lock(&self.kept).insert(key, total);
        if total < item.size {
            return Ok(Want::But(have));
        }
        // Only the name was missing.
        match self.open(item) {
            Ok(large) => match self.name(&large.file, &large.folder, &large.partial, &large.name, &item.meta) {
                Ok(()) => self.done(item)?,
                Err(e) => self.leave(item.name.bytes(), &e)?,
            },
            Err(e) => self.leave(item.name.bytes(), &e)?,
        }
        Ok(Want::Nothing)
    }

    /// Those blocks of a partial file that are what the journal says, in order, without overlaps.
    pub(super) fn intact(&self, item: &FileItem, blocks: &[(Extent, Option<[u8; 32]>)]) -> io::Result<Vec<Extent>> {
        let name = self.named(&item.name)?;
        let folder = self.root.folder(name.parent().as_ref())?;
        let how = OFlag::O_RDONLY | OFlag::O_NOFOLLOW;
        let file = File::from(Root::from_fd(folder).open_at(&self.partial(&name), how, 0)?);
        let mut blocks = blocks.to_vec();
        blocks.sort_by_key(|(extent, _)| extent.offset);
        let mut good: Vec<Extent> = Vec::new();
        let mut buffer = vec![0; PIECE];
        for (extent, digest) in blocks {
            let behind = good.last().and_then(Extent::end).unwrap_or(0);
            if extent.offset < behind || extent.end().is_none_or(|end| end > item.size) || self.session.is_over() {
                continue;
            }
            if let Some(digest) = digest {
                let mut hasher = blake3::Hasher::new();
                let (mut at, mut rest) = (extent.offset, extent.len);
                while rest > 0 {
                    let piece = &mut buffer[..PIECE.min(rest as usize)];
                    if file.read_exact_at(piece, at).is_err() {
                        break;
                    }
                    hasher.update(piece);
                    at += piece.len() as u64;
                    rest -= piece.len() as u64;
                }
                self.session.moved(extent.len);
                if rest > 0 || hasher.finalize() != blake3::Hash::from_bytes(digest) {
                    continue;
                }
            }
            good.push(extent);
        }
        Ok(good)
    }
}
