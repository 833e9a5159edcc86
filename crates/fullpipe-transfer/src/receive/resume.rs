//! Resuming: how much of what earlier attempts left is still good.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::Ordering;

use nix::fcntl::OFlag;
use nix::sys::stat::Mode;

use super::receiver::{PIECE, Receiver};
use crate::error::TransferError;
use crate::fs::metadata::{self, Special};
use crate::fs::ownership::{self, Trust};
use crate::fs::sparse;
use crate::limits::SMALL;
use crate::protocol::file::{Extent, FileItem};
use crate::protocol::message::Want;
use crate::receive::journal::{Block, Record};
use crate::threads::lock;

/// Seconds by which a file's ctime may lie before the time of its change: the kernel stamps with its last timer tick, and
/// file systems keep whole seconds (ext4 with inodes of 128 bytes) or even ones (FAT).
const CTIME_GRAIN_S: i64 = 2;

/// Whether a file with this ctime was certainly last changed before an instant. Both are seconds since 1970.
fn changed_before(ctime_s: i64, instant_s: i64) -> bool {
    ctime_s + CTIME_GRAIN_S < instant_s
}

impl Receiver {
    /// Decides which bytes of an offered file the sender must send. The answer lists at most `room` extents that are
    /// here already, and `room` shrinks by their number.
    pub(super) fn want(&self, item: &FileItem, room: &mut usize) -> Result<Want, TransferError> {
        let key = item.key();
        let update = self.options.update;
        let (done, since) = {
            let resume = lock(&self.resume);
            // After a crash of the machine, a file that was written shortly before may have its size and time but not its
            // content.
            (resume.done.get(key), resume.rebooted.then_some(resume.started))
        };
        let (done, synced) = (done.is_some(), done == Some(true));
        let there = || -> io::Result<bool> {
            let name = self.named(&item.name)?;
            let file = self.root.open_at(name.path(), OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK, 0)?;
            let file = File::from(file);
            let now = file.metadata()?;
            // With --update, a file that is newer here stays.
            if update && now.is_file() && metadata::mtime(&now) > item.meta.mtime {
                return Ok(true);
            }
            let same = metadata::unchanged(&file, item.size, item.meta.mtime)?;
            let sure = done || since.is_none_or(|(since, _)| changed_before(now.ctime(), since));
            let special = Special::of_file(self.options.special);
            let mode = special.mode(&item.meta, now.mode());
            // A file with several names may be another file of this user that somebody else linked here.
            if same && sure && update && now.nlink() == 1 && now.mode() & 0o7777 != mode {
                // If this user may not set them, they stay as they are.
                let _ = if now.uid() == nix::unistd::geteuid().as_raw() {
                    metadata::dress(&file, &item.meta, special, false, None)
                } else if now.uid() == item.meta.uid {
                    // Its owner may have put it here with content of its own. So it keeps its group, and gets no setuid or
                    // setgid bit that it does not have.
                    let mode = Mode::from_bits_truncate(mode & (0o777 | now.mode()));
                    nix::sys::stat::fchmod(&file, mode).map_err(io::Error::from)
                } else {
                    Ok(())
                };
            }
            // Nobody knows whether a file that --update found here is on disk.
            if same && sure && self.options.fsync && !synced {
                file.sync_all()?;
                nix::unistd::fsync(self.root.folder(name.parent().as_ref())?)?;
                if done {
                    lock(&self.journal).add(&Record::Done { file: key, synced: true })?;
                }
            }
            Ok(same && sure)
        };
        if (done || update) && there().unwrap_or(false) {
            let mut summary = lock(&self.summary);
            summary.files += 1;
            summary.present += 1;
            self.counters.done_files.fetch_add(1, Ordering::Relaxed);
            self.counters.done_bytes.fetch_add(item.size, Ordering::Relaxed);
            return Ok(Want::Nothing);
        }
        // Handed out once: if two sources bring the same file, only one continues the partial file.
        let blocks = lock(&self.resume).blocks.remove(&key);
        let Some(blocks) = blocks.filter(|_| item.size > SMALL) else { return Ok(Want::All) };
        let have = self.intact(item, blocks, *room).unwrap_or_default();
        *room -= have.len();
        let total: u64 = have.iter().map(|extent| extent.len).sum();
        if total == 0 {
            return Ok(Want::All);
        }
        self.large.keep(key, have.clone());
        if total < item.size {
            return Ok(Want::But(have));
        }
        // All of the content is here; only the final name is missing.
        match self.open(item) {
            Ok(large) => match self.name(&large.file, &large.folder, &large.partial, &large.name, &item.meta) {
                Ok(()) => self.large_named(&large)?,
                Err(e) => self.leave(item.name.bytes(), &e)?,
            },
            Err(e) => self.leave(item.name.bytes(), &e)?,
        }
        Ok(Want::Nothing)
    }

    /// The extents of a partial file that match the journal's digests, in order and without overlaps, at most `most`.
    pub(super) fn intact(&self, item: &FileItem, mut blocks: Vec<Block>, most: usize) -> io::Result<Vec<Extent>> {
        let name = self.named(&item.name)?;
        let folder = self.root.folder(name.parent().as_ref())?;
        let Trust::Trusted(file) = ownership::open(folder, &self.partial(&name), OFlag::O_RDONLY)? else {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ctime_that_was_rounded_down_is_not_before() {
        // Changed at 101.9 s, kept as 100 by a file system of even seconds; the journal was begun at 101.5 s.
        assert!(!changed_before(100, 101));
        assert!(!changed_before(101, 101) && changed_before(98, 101));
    }
}
