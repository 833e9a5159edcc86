//! Decides what the sender must send of each file that it offers: nothing of a file that is here already, the missing blocks
//! of one that an earlier attempt began (`resume.rs`), or else all of it. A file that is sent replaces the one here when it
//! gets its name (`naming.rs`).

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::Ordering;

use nix::fcntl::OFlag;
use nix::sys::stat::Mode;

use super::journal::Record;
use super::receiver::Receiver;
use crate::error::{TransferError, is_gone};
use crate::fs::content_hash;
use crate::fs::metadata::{self, Attributes, Special};
use crate::protocol::file::FileItem;
use crate::protocol::message::{Message, Want};
use crate::sizes::SMALL;
use crate::threads::lock;

/// Most extents in the answer to one offer. A longer answer would not fit a frame.
const MAX_ANSWERED_EXTENTS: usize = 1 << 17;
/// Seconds by which a file's ctime may lie before the time of its change: the kernel stamps with its last timer tick, and
/// file systems keep whole seconds (ext4 with inodes of 128 bytes) or even ones (FAT).
const CTIME_GRAIN_S: i64 = 2;

/// Whether a file with this ctime was certainly last changed before an instant. Both are seconds since 1970.
fn changed_before(ctime_s: i64, instant_s: i64) -> bool {
    ctime_s + CTIME_GRAIN_S < instant_s
}

/// Whether a file is to be sent although this error came of looking for it: nothing stands there, or something else than a file, or
/// writing to it will fail with the reason.
fn may_be_sent(error: &io::Error) -> bool {
    is_gone(error)
        || error.kind() == io::ErrorKind::PermissionDenied
        || matches!(error.raw_os_error(), None | Some(libc::ENXIO | libc::ENODEV | libc::ENAMETOOLONG | libc::EXDEV))
}

/// What the journal says about an offered file.
#[derive(Clone, Copy)]
struct Journaled {
    /// Whether the file is on disk; `None` if no earlier attempt gave it its name.
    on_disk: Option<bool>,
    /// If the machine was restarted since: when the journal was made, seconds since 1970. A file that was changed later may
    /// lack content.
    suspect_since_s: Option<i64>,
}

impl Receiver {
    /// Tells the sender what it must send of the files in an offer.
    pub(super) fn answer(&self, offer: &[FileItem]) -> Result<(), TransferError> {
        let mut room = MAX_ANSWERED_EXTENTS;
        let wants = offer.iter().map(|item| self.want(item, &mut room)).collect::<Result<Vec<_>, _>>()?;
        self.session.send(&Message::Want(wants))
    }

    /// Decides which bytes of an offered file the sender must send. The answer lists at most `room` extents that are
    /// here already, and `room` shrinks by their number.
    fn want(&self, item: &FileItem, room: &mut usize) -> Result<Want, TransferError> {
        let key = item.key();
        let journaled = {
            let resume = lock(&self.resume);
            // After a crash of the machine, a file that was written shortly before may have its size and time but not its
            // content.
            Journaled { on_disk: resume.done.get(key), suspect_since_s: resume.rebooted.then_some(resume.started.0) }
        };
        let stays = match journaled.on_disk.is_some() || self.options.keeps_same() {
            true => self.stays(item, journaled),
            false => Ok(None),
        };
        if let Err(e) = &stays
            && !may_be_sent(e)
        {
            // What stands there may be newer.
            self.skip(item.name.bytes(), e)?;
            return Ok(Want::Nothing);
        }
        if let Ok(Some((want, is_same))) = stays {
            // With --verify, what was here before this attempt is not read back, so its source stays.
            if is_same && !self.options.verify {
                self.complete(&item.name, key)?;
            }
            let mut summary = lock(&self.summary);
            summary.files += 1;
            summary.present += 1;
            if want == Want::Newer {
                summary.newer += 1;
                self.counters.kept(&item.name);
            }
            self.counters.done_files.fetch_add(1, Ordering::Relaxed);
            self.counters.done_bytes.fetch_add(item.size, Ordering::Relaxed);
            return Ok(want);
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
            Ok(large) => match self.give_name(large.target.file(), &large.folder, &large.partial, &large.name, item) {
                Ok(()) => self.large_named(&large)?,
                Err(e) => self.skip(item.name.bytes(), &e)?,
            },
            Err(e) => self.skip(item.name.bytes(), &e)?,
        }
        Ok(Want::Nothing)
    }

    /// What to answer if the file that is here under an offered file's name stays: an earlier attempt put it here
    /// (`journaled`), `--update` asks to keep files that are the same or newer, or `--checksum` those of the same content. Sets
    /// its permissions and syncs it, if the options ask for that. Returns also whether the file is the one that is offered, not
    /// only a newer one, nor the source itself.
    fn stays(&self, item: &FileItem, journaled: Journaled) -> io::Result<Option<(Want, bool)>> {
        let Journaled { on_disk, suspect_since_s } = journaled;
        let update = self.options.update;
        let name = self.names.final_name(&item.name)?;
        let open = |how| self.root.open_at(name.path(), how | OFlag::O_NOFOLLOW, 0).map(File::from);
        // Its content is opened only where that is needed: this user may be allowed to know the file, but not to read it.
        let entry = match open(OFlag::O_PATH) {
            // An earlier copy may have closed the file's folder.
            Err(e) if e.raw_os_error() == Some(libc::EACCES) => self.parent(&name).and_then(|_| open(OFlag::O_PATH))?,
            other => other?,
        };
        let now = entry.metadata()?;
        // `None`: this user may not read it, or another file has taken its place.
        let content = || match open(OFlag::O_RDONLY | OFlag::O_NONBLOCK) {
            Err(e) if matches!(e.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::WouldBlock) => Ok(None),
            Err(e) => Err(e),
            Ok(file) => {
                let opened = file.metadata()?;
                Ok(Some(file).filter(|_| (opened.dev(), opened.ino()) == (now.dev(), now.ino())))
            }
        };
        if self.options.inplace && now.nlink() > 1 && journaled.on_disk.is_some() {
            // No other content is to be written to it.
            self.use_in_place(now.dev(), now.ino());
        }
        // The source itself, on a file system that both ends see, is no copy of the source.
        let is_copy = !metadata::is_time(metadata::ctime(&now), item.changed);
        // What an interrupted copy has written to in place is newer than its source, and may have its size and time.
        if !self.options.checksum && now.nlink() > 1 && self.is_unfinished(&name, now.ino())? {
            return Ok(None);
        }
        // With --update, a file that is newer here stays.
        if update && !self.options.replace_newer && now.is_file() && metadata::mtime(&now) > item.meta.mtime {
            return Ok(Some((if now.len() == item.size { Want::Nothing } else { Want::Newer }, false)));
        }
        if !now.is_file() {
            return Ok(None);
        }
        let special = Special::of_file(self.options.special);
        let is_mine = now.uid() == nix::unistd::geteuid().as_raw();
        if self.options.checksum && on_disk.is_none() {
            let Some(file) = content()? else { return Ok(None) };
            let is_same = now.len() == item.size
                && item.content == Some(content_hash::of(&file, &mut |bytes| self.session.moved(bytes))?);
            if !is_same {
                return Ok(None);
            }
            if now.nlink() > 1 {
                self.unmark(self.root.folder(name.parent().as_ref())?, &name, now.ino())?;
            }
            // The content is ours to keep, and the rest is made the same, if this user may.
            if now.nlink() == 1 && is_mine {
                let _ = metadata::dress(&file, &item.meta, (special, Attributes::default()), false, None);
            }
            if self.options.fsync {
                file.sync_all()?;
                metadata::sync_folder(self.root.folder(name.parent().as_ref())?, &file)?;
            }
            return Ok(Some((Want::Nothing, is_copy)));
        }
        let sure = on_disk.is_some() || suspect_since_s.is_none_or(|since| changed_before(now.ctime(), since));
        if !metadata::unchanged(&entry, item.size, item.meta.mtime)? || !sure {
            return Ok(None);
        }
        let mode = special.mode(&item.meta, now.mode());
        // A file with several names may be another file of this user that somebody else linked here.
        let to_change =
            update && now.nlink() == 1 && now.mode() & 0o7777 != mode && (is_mine || now.uid() == item.meta.uid);
        let to_sync = self.options.fsync && on_disk != Some(true);
        let file = if to_change || to_sync { content()? } else { None };
        if is_mine && to_change && file.is_none() {
            // Sent anew, it gets the permissions with which it can be read.
            return Ok(None);
        }
        if let Some(file) = file.as_ref().filter(|_| to_change) {
            // If this user may not set them, they stay as they are.
            let _ = if is_mine {
                metadata::dress(file, &item.meta, (special, Attributes::default()), false, None).map(drop)
            } else {
                // Its owner may have put it here with content of its own. So it keeps its group, and gets no setuid or
                // setgid bit that it does not have.
                let mode = Mode::from_bits_truncate(mode & (0o777 | now.mode()));
                nix::sys::stat::fchmod(file, mode).map_err(io::Error::from)
            };
        }
        // A file that --update found here may not be on disk.
        if to_sync {
            let Some(file) = file else {
                // It stays, and so does its source.
                return Ok(if on_disk.is_some() { None } else { Some((Want::Nothing, false)) });
            };
            file.sync_all()?;
            metadata::sync_folder(self.root.folder(name.parent().as_ref())?, &file)?;
            if on_disk.is_some() {
                lock(&self.journal).add(&Record::Done { file: item.key(), synced: true })?;
            }
        }
        Ok(Some((Want::Nothing, is_copy)))
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
