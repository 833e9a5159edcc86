//! Trees: made from a plan, changed, looked at.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::sys::stat::{UtimensatFlags, utimensat};
use nix::sys::time::TimeSpec;
use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64;

use crate::plan::{Change, Kind, Node};

/// What is under a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    File { digest: [u8; 32], size: u64, mode: u32, mtime: (i64, i64) },
    Folder { mode: u32, mtime: (i64, i64) },
    Link { target: PathBuf, mtime: (i64, i64) },
    Other,
}

/// A tree as it is: names below its top.
pub type Tree = BTreeMap<Vec<u8>, Seen>;

pub fn at(top: &Path, name: &[u8]) -> PathBuf {
    if name.is_empty() { top.to_owned() } else { top.join(OsStr::from_bytes(name)) }
}

fn dress(path: &Path, node: &Node) {
    if !matches!(node.kind, Kind::Link(_)) {
        fs::set_permissions(path, fs::Permissions::from_mode(node.mode)).unwrap();
    }
    let changed = TimeSpec::new(node.mtime_s, i64::from(node.mtime_ns));
    utimensat(nix::fcntl::AT_FDCWD, path, &TimeSpec::UTIME_OMIT, &changed, UtimensatFlags::NoFollowSymlink).unwrap();
}

/// Random bytes, the same for the same number.
fn fill(file: &File, number: u64, mut from: u64, mut len: u64) {
    let mut rng = Pcg64::seed_from_u64(number);
    let mut bytes = vec![0; 1 << 20];
    while len > 0 {
        let piece = &mut bytes[..len.min(1 << 20) as usize];
        rng.fill_bytes(piece);
        file.write_all_at(piece, from).unwrap();
        from += piece.len() as u64;
        len -= piece.len() as u64;
    }
}

/// Makes a tree.
pub fn make(top: &Path, nodes: &[Node], seed: u64) {
    fs::create_dir_all(top).unwrap();
    for (i, node) in nodes.iter().enumerate() {
        let path = at(top, &node.name);
        let number = seed << 16 | i as u64;
        match &node.kind {
            Kind::Data(size) => fill(&File::create(&path).unwrap(), number, 0, *size),
            Kind::Sparse(size, parts) => {
                let file = File::create(&path).unwrap();
                file.set_len(*size).unwrap();
                parts.iter().for_each(|(from, len)| fill(&file, number, *from, *len));
            }
            Kind::Folder => fs::create_dir_all(&path).unwrap(),
            Kind::Link(target) => std::os::unix::fs::symlink(target, &path).unwrap(),
        }
    }
    // What is in a folder changes its time.
    nodes.iter().rev().for_each(|node| dress(&at(top, &node.name), node));
}

/// Changes a file in one step, so that whoever reads it sees it before or after, or that it has changed.
pub fn change(top: &Path, node: &Node, how: Change, number: u64) {
    let path = at(top, &node.name);
    let mut rng = Pcg64::seed_from_u64(number);
    let mut bytes = vec![0; rng.random_range(1..4096)];
    rng.fill_bytes(&mut bytes);
    // An earlier change may have removed it.
    let Ok(old) = fs::metadata(&path) else { return };
    let part = |part: f64| (old.len() as f64 * part) as u64;
    let open = || File::options().write(true).open(&path).unwrap();
    match how {
        Change::Overwrite(from) => {
            bytes.truncate((old.len() - part(from)) as usize);
            open().write_all_at(&bytes, part(from)).unwrap();
        }
        Change::Append => File::options().append(true).open(&path).unwrap().write_all(&bytes).unwrap(),
        Change::Truncate(to) => open().set_len(part(to)).unwrap(),
        Change::Replace => {
            let other = top.parent().unwrap().join("other");
            fs::write(&other, &bytes).unwrap();
            fs::rename(&other, &path).unwrap();
        }
        Change::Remove => fs::remove_file(&path).unwrap(),
    }
}

/// What is under one name; none if it is gone meanwhile.
pub fn look_at(path: &Path) -> Option<Seen> {
    let stat = fs::symlink_metadata(path).ok()?;
    let (mode, mtime) = (stat.mode() & 0o7777, (stat.mtime(), stat.mtime_nsec()));
    if stat.is_dir() {
        return Some(Seen::Folder { mode, mtime });
    }
    if stat.is_symlink() {
        return Some(Seen::Link { target: fs::read_link(path).ok()?, mtime });
    }
    if !stat.is_file() {
        return Some(Seen::Other);
    }
    let mut file = File::open(path).ok()?;
    // Of the file that was opened, not of one that has taken its name since.
    let stat = file.metadata().ok()?;
    let (mode, mtime) = (stat.mode() & 0o7777, (stat.mtime(), stat.mtime_nsec()));
    let mut hasher = blake3::Hasher::new();
    let mut bytes = vec![0; 1 << 20];
    let mut size = 0;
    loop {
        match file.read(&mut bytes).ok()? {
            0 => break,
            n => {
                hasher.update(&bytes[..n]);
                size += n as u64;
            }
        }
    }
    Some(Seen::File { digest: *hasher.finalize().as_bytes(), size, mode, mtime })
}

/// Whether a file was written to in place and is not whole: in its folder it has the name of a partial file, too.
pub fn is_unfinished(path: &Path) -> bool {
    let Ok(stat) = fs::symlink_metadata(path) else { return false };
    let is_same = |entry: &fs::DirEntry| entry.metadata().is_ok_and(|other| other.ino() == stat.ino());
    let is_partial = |entry: &fs::DirEntry| {
        let name = entry.file_name();
        name.as_bytes().starts_with(b".fullpipe.") && name.as_bytes().ends_with(b".partial")
    };
    stat.is_file()
        && stat.nlink() > 1
        && fs::read_dir(path.parent().unwrap())
            .into_iter()
            .flatten()
            .flatten()
            .any(|entry| is_partial(&entry) && is_same(&entry))
}

/// All of a tree, its top under the empty name.
pub fn look(top: &Path) -> Tree {
    fn below(top: &Path, name: &[u8], tree: &mut Tree) {
        let path = at(top, name);
        let Some(seen) = look_at(&path) else { return };
        let is_folder = matches!(seen, Seen::Folder { .. });
        tree.insert(name.to_vec(), seen);
        if !is_folder {
            return;
        }
        for entry in fs::read_dir(&path).into_iter().flatten().flatten() {
            let mut inner = name.to_vec();
            if !inner.is_empty() {
                inner.push(b'/');
            }
            inner.extend_from_slice(entry.file_name().as_bytes());
            below(top, &inner, tree);
        }
    }
    let mut tree = Tree::new();
    below(top, b"", &mut tree);
    tree
}
