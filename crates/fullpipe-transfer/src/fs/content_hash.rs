//! Hashes the content of a file, by which `--checksum` decides whether the destination has it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes that are read at a time.
const PIECE: usize = 256 << 10;

/// Hashes a file's content (BLAKE3). Calls `read` with the number of bytes after each piece.
///
/// # Errors
/// Those of the file system.
pub(crate) fn of(file: &File, read: &mut dyn FnMut(u64)) -> io::Result<[u8; 32]> {
    let (mut hasher, mut piece, mut at) = (blake3::Hasher::new(), vec![0; PIECE], 0);
    loop {
        match file.read_at(&mut piece, at) {
            Ok(0) => return Ok(*hasher.finalize().as_bytes()),
            Ok(n) => {
                hasher.update(&piece[..n]);
                at += n as u64;
                read(n as u64);
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}
