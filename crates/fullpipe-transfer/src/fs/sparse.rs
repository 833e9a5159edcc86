//! Finds and makes holes in files, and recognises file systems in memory.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};

use nix::errno::Errno;
use nix::fcntl::FallocateFlags;
use nix::sys::statfs::{self, FsType};

use crate::protocol::file::Extent;

/// Splits the first `size` bytes of a file into data and holes (`lseek(2)`, SEEK_DATA). The flag of each extent is true
/// for a hole. If the file system does not report holes, everything counts as data.
///
/// # Errors
/// Those of the file system.
pub fn extents(file: &File, size: u64) -> io::Result<Vec<(Extent, bool)>> {
    let whole = vec![(Extent { offset: 0, len: size }, false)];
    if file.metadata()?.blocks().saturating_mul(512) >= size {
        return Ok(whole);
    }
    let seek = |from: u64, what: libc::c_int| -> io::Result<Option<u64>> {
        // SAFETY: takes a valid descriptor and plain integers.
        let at = unsafe { libc::lseek(file.as_raw_fd(), from as libc::off_t, what) };
        match u64::try_from(at) {
            Ok(at) => Ok(Some(at)),
            Err(_) => match io::Error::last_os_error() {
                e if e.raw_os_error() == Some(libc::ENXIO) => Ok(None),
                e => Err(e),
            },
        }
    };
    let mut list = Vec::new();
    let mut at = 0;
    while at < size {
        let data = match seek(at, libc::SEEK_DATA) {
            Ok(data) => data.unwrap_or(size).min(size),
            Err(_) if list.is_empty() => return Ok(whole),
            Err(e) => return Err(e),
        };
        if data > at {
            list.push((Extent { offset: at, len: data - at }, true));
        }
        if data < size {
            let end = seek(data, libc::SEEK_HOLE)?.unwrap_or(size).min(size);
            list.push((Extent { offset: data, len: end.saturating_sub(data) }, false));
            at = end;
        } else {
            at = size;
        }
    }
    Ok(list)
}

/// Bytes that are cleared at once where the file system cannot make holes.
const CLEARED: usize = 64 << 10;

/// Sets a range of a file to zeros, as a hole if the file system supports holes and the file is not to be `dense`. Calls `moved`
/// after each piece where it has to write zeros.
///
/// # Errors
/// Those of the file system.
pub fn clear(file: &File, extent: Extent, dense: bool, moved: &mut dyn FnMut(u64)) -> io::Result<()> {
    let kind = if dense { FallocateFlags::FALLOC_FL_ZERO_RANGE } else { FallocateFlags::FALLOC_FL_PUNCH_HOLE };
    let how = kind | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    match nix::fcntl::fallocate(file, how, extent.offset as i64, extent.len as i64) {
        Err(Errno::EOPNOTSUPP) => {}
        done => return Ok(done?),
    }
    let (zeros, mut there) = ([0; CLEARED], [0; CLEARED]);
    let (mut at, mut rest) = (extent.offset, extent.len);
    while rest > 0 {
        let len = CLEARED.min(rest as usize);
        // Most of it was never written. Reading that is faster, and leaves it a hole where the file system has some.
        let mut is_clear = || file.read_exact_at(&mut there[..len], at).is_ok() && there[..len] == zeros[..len];
        if dense || !is_clear() {
            file.write_all_at(&zeros[..len], at)?;
        }
        moved(len as u64);
        at += len as u64;
        rest -= len as u64;
    }
    Ok(())
}

/// Bytes that are left out together if all of them are zero: a page, and a block of most file systems.
const BLOCK: usize = 4096;

/// Writes the whole content of a file that is new and empty. Blocks of zeros become holes if the file system supports holes, unless
/// the file is to be `dense`.
///
/// # Errors
/// Those of the file system.
pub fn write_new(file: &File, content: &[u8], dense: bool) -> io::Result<()> {
    if dense {
        return file.write_all_at(content, 0);
    }
    let is_zero = |block: &[u8]| block.first() == Some(&0) && block.iter().all(|byte| *byte == 0);
    let mut blocks = content.chunks(BLOCK).zip(0..).peekable();
    while let Some((block, number)) = blocks.next() {
        if block.len() == BLOCK && is_zero(block) {
            continue;
        }
        let begin = number * BLOCK;
        let mut end = begin + block.len();
        while let Some((more, _)) = blocks.next_if(|(next, _)| next.len() < BLOCK || !is_zero(next)) {
            end += more.len();
        }
        file.write_all_at(&content[begin..end], begin as u64)?;
    }
    // The last block may be a hole.
    if content.len().is_multiple_of(BLOCK) && content.rchunks(BLOCK).next().is_some_and(is_zero) {
        file.set_len(content.len() as u64)?;
    }
    Ok(())
}

/// Whether a file is on a file system in memory (`statfs(2)`), where direct I/O has no cache to bypass.
pub fn in_memory(file: &File) -> bool {
    const RAMFS: FsType = FsType(0x8584_58f6);
    statfs::fstatfs(file).is_ok_and(|fs| [statfs::TMPFS_MAGIC, RAMFS].contains(&fs.filesystem_type()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_zeros_become_holes() {
        let (zeros, ones) = (vec![0; BLOCK], vec![1; BLOCK]);
        for (parts, most_blocks) in [
            (vec![], 0),
            (vec![&zeros[..]], 0),
            (vec![&zeros, &zeros[..1]], 1),
            (vec![&ones, &zeros, &zeros], 1),
            (vec![&zeros, &ones, &ones, &zeros, &ones[..7]], 3),
            (vec![&ones, &zeros[..9]], 2),
        ] {
            let (file, content) = (tempfile::tempfile().unwrap(), parts.concat());
            write_new(&file, &content, false).unwrap();
            let mut read = vec![7; content.len()];
            file.read_exact_at(&mut read, 0).unwrap();
            assert!(read == content && file.metadata().unwrap().len() == content.len() as u64, "{parts:?}");
            assert!(file.metadata().unwrap().blocks() <= 8 * most_blocks, "{}", file.metadata().unwrap().blocks());
        }
    }

    #[test]
    fn what_is_cleared_is_zero_and_a_hole_unless_it_is_to_be_dense() {
        let size = 4 * CLEARED;
        for dense in [false, true] {
            let file = tempfile::tempfile().unwrap();
            file.write_all_at(&vec![1; size], 0).unwrap();
            let extent = Extent { offset: BLOCK as u64, len: (size - BLOCK) as u64 };
            let mut moved = 0;
            clear(&file, extent, dense, &mut |bytes| moved += bytes).unwrap();
            let mut read = vec![7; size];
            file.read_exact_at(&mut read, 0).unwrap();
            assert!(read[..BLOCK] == vec![1; BLOCK] && read[BLOCK..] == vec![0; size - BLOCK]);
            assert_eq!(file.metadata().unwrap().len(), size as u64);
            let blocks = file.metadata().unwrap().blocks() as usize * 512;
            assert!(if dense { blocks >= size } else { blocks < size }, "{dense}: {blocks}");
            assert!(moved == 0 || moved == extent.len, "{moved}");
        }
    }

    #[test]
    fn data_and_holes() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(100 << 20).unwrap();
        file.write_all_at(&[1; 4096], 50 << 20).unwrap();
        let list = extents(&file, 100 << 20).unwrap();
        assert_eq!(list.iter().map(|(e, _)| e.len).sum::<u64>(), 100 << 20);
        assert!(list.iter().any(|(e, hole)| !hole && e.offset <= 50 << 20 && e.offset + e.len > 50 << 20));
        let data: u64 = list.iter().filter(|(_, hole)| !hole).map(|(e, _)| e.len).sum();
        assert!(data < 10 << 20, "{data}");
    }
}
