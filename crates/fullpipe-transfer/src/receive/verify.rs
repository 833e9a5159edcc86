//! What the receiver does about verification: which files it verifies, and what becomes of one that differs.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;

use nix::fcntl::OFlag;
use nix::sys::stat::Mode;

use super::large::LargeFile;
use super::receiver::Receiver;
use super::verifier::{Check, Expected, Found, PIECE, read_back, small_digest};
use crate::error::{TransferError, why};
use crate::fs::direct_io::Aligned;
use crate::fs::{at, metadata, publish};
use crate::protocol::file::{FileItem, Meta};
use crate::protocol::name::Name;
use crate::protocol::skipped::SkippedEntry;
use crate::telemetry::counters::timed;
use crate::threads::lock;

/// What became of a file that differs from what was sent.
enum Withdrawn {
    /// It is a partial file again, whose good blocks the next attempt uses.
    Kept,
    /// It was removed.
    Removed,
}

impl Receiver {
    /// Called when a small file has its name: it is done, or has to be verified first.
    pub(super) fn small_named(&self, item: &FileItem, content: &[u8]) -> Result<(), TransferError> {
        if !self.options.verify {
            return self.done(item);
        }
        let digest = timed(&self.counters.hash_ns, || small_digest(&self.key, item.key(), content));
        match self.names.final_name(&item.name) {
            Ok(name) => self.to_verify((item, item.size), &name, Expected::Whole(digest)),
            Err(e) => return self.skip(item.name.bytes(), &e),
        }
        Ok(())
    }

    /// Called when a large file has its name: it is done, or has to be verified first.
    pub(super) fn large_named(&self, large: &LargeFile) -> Result<(), TransferError> {
        if !self.options.verify {
            return self.done(&large.item);
        }
        let blocks = large.take_blocks();
        self.to_verify((&large.item, large.size()), &large.name, Expected::Blocks(blocks));
        Ok(())
    }

    /// Queues a file with its size, bytes, to be verified.
    fn to_verify(&self, (item, size): (&FileItem, u64), name: &Name, expected: Expected) {
        // Extended attributes are not compared, and could take much memory.
        let meta = Meta { xattrs: Vec::new(), ..item.meta };
        let item = FileItem { name: item.name.clone(), meta, ..*item };
        self.verifier.add(Check { item, size, name: name.clone(), expected }, &self.session);
    }

    /// Verifies one file after the other until the transfer is over.
    pub(super) fn verify_all(&self) {
        let mut memory = Aligned::new(PIECE);
        while let Some(check) = self.verifier.next(&self.session) {
            let result = self.verify(&check, &mut memory);
            self.verifier.finished();
            self.check(result.and_then(|()| self.part_over(false)));
        }
    }

    /// Verifies one file. A file that differs loses its name and is skipped.
    fn verify(&self, check: &Check, memory: &mut Aligned) -> Result<(), TransferError> {
        let item = &check.item;
        let mut found = || -> io::Result<Found> {
            let how = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
            let file = File::from(self.root.open_at(check.name.path(), how, 0)?);
            // What came from standard input has the time at which it was written.
            let mtime = if item.has_size() { item.meta.mtime } else { metadata::mtime(&file.metadata()?) };
            if !file.metadata()?.is_file() || !metadata::unchanged(&file, check.size, mtime)? {
                return Ok(Found::Changed);
            }
            let read = |bytes| self.session.moved(bytes);
            let found = read_back(&file, (item.key(), check.size), &check.expected, &self.key, memory, &read)?;
            // Another user may have put another file under the name meanwhile.
            let named = self.root.open_at(check.name.path(), OFlag::O_PATH | OFlag::O_NOFOLLOW, 0);
            let named = named.and_then(|named| File::from(named).metadata());
            let opened = file.metadata()?;
            let same = named.is_ok_and(|named| (named.dev(), named.ino()) == (opened.dev(), opened.ino()));
            Ok(if matches!(found, Found::Same) && !same { Found::Changed } else { found })
        };
        let text = match found() {
            Ok(Found::Same) => {
                self.verifier.verified(check.size);
                return self.done(item);
            }
            Ok(Found::Changed) => "another program changed or replaced it before it could be verified".to_owned(),
            Ok(Found::Differs { blocks, of, first, error }) => {
                let what = match error {
                    Some(error) => format!("it cannot be read back from storage ({error})"),
                    None => "read back from storage, it is not what was sent".to_owned(),
                };
                let lost = match self.withdraw(check) {
                    Ok(Withdrawn::Kept) => {
                        "it has lost its name, and the same command sends again what differs".to_owned()
                    }
                    Ok(Withdrawn::Removed) => "it was removed, and the same command sends it again".to_owned(),
                    Err(e) => format!("it is WRONG under its name, which cannot be taken away ({})", why(&e)),
                };
                format!("{what}: {blocks} of {of} blocks differ, the first at byte {first}; {lost}")
            }
            Err(e) => format!("it cannot be read back to be verified: {}", why(&e)),
        };
        lock(&self.summary).skipped.add(SkippedEntry::new(item.name.bytes(), text));
        Ok(())
    }

    /// Takes the name from a file that is not what was sent. A large one becomes a partial file again, so that the next
    /// attempt can use its good blocks; but one that is not this user's alone is removed. Root may have given it away, or
    /// another user may have put it there: whoever has it open for writing could change it after the next check.
    fn withdraw(&self, check: &Check) -> io::Result<Withdrawn> {
        let folder = self.parent(&check.name)?;
        let name = at::part(check.name.last());
        match check.expected {
            Expected::Blocks(_) if check.item.has_size() => {
                let how = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
                let file = self.root.open_at(check.name.path(), how, 0)?;
                let stat = nix::sys::stat::fstat(&file)?;
                if stat.st_uid != nix::unistd::geteuid().as_raw() || stat.st_nlink != 1 {
                    publish::remove(&folder, name)?;
                    lock(&self.journal).forget(check.item.key());
                    return Ok(Withdrawn::Removed);
                }
                // A damaged file must not be read as if it were whole.
                nix::sys::stat::fchmod(&file, Mode::S_IRUSR | Mode::S_IWUSR)?;
                publish::rename(&folder, name, &self.names.partial(&check.name)).map(|()| Withdrawn::Kept)
            }
            // No later attempt could go on with what came from standard input.
            Expected::Whole(_) | Expected::Blocks(_) => publish::remove(&folder, name).map(|()| Withdrawn::Removed),
        }
    }
}
