//! Trees of files, and whether two are the same.

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Sets the mode of a file or folder.
pub fn mode(path: impl AsRef<Path>, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Bytes that differ from place to place, the same for the same seed.
pub fn bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut data = Vec::with_capacity(len + 8);
    while data.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        data.extend_from_slice(&state.to_le_bytes());
    }
    data.truncate(len);
    data
}

/// Makes a file, and the folders above it.
pub fn write(path: impl AsRef<Path>, content: impl AsRef<[u8]>) {
    let path = path.as_ref();
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

/// Gives a file or folder a time with nanoseconds.
pub fn date(path: impl AsRef<Path>, seconds: u64, nanos: u32) {
    let time = SystemTime::UNIX_EPOCH + Duration::new(seconds, nanos);
    File::open(path.as_ref()).unwrap().set_modified(time).unwrap();
}

/// What can be seen of something without opening it, and where its content is.
#[derive(Debug, PartialEq)]
struct Seen {
    kind: u32,
    mode: u32,
    owner: (u32, u32),
    mtime: (i64, i64),
    size: u64,
    link: Option<PathBuf>,
}

fn seen(path: &Path) -> Seen {
    let meta = fs::symlink_metadata(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    Seen {
        kind: meta.mode() & 0o170_000,
        mode: meta.mode() & 0o7777,
        owner: (meta.uid(), meta.gid()),
        mtime: (meta.mtime(), meta.mtime_nsec()),
        size: if meta.is_dir() { 0 } else { meta.len() },
        link: fs::read_link(path).ok(),
    }
}

fn list(top: &Path, below: &Path, to: &mut BTreeMap<PathBuf, Seen>) {
    let path = if below.as_os_str().is_empty() { top.to_owned() } else { top.join(below) };
    let one = seen(&path);
    let is_folder = fs::symlink_metadata(&path).unwrap().is_dir();
    to.insert(below.to_owned(), one);
    if is_folder {
        for entry in fs::read_dir(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display())) {
            list(top, &below.join(entry.unwrap().file_name()), to);
        }
    }
}

fn all(top: &Path) -> BTreeMap<PathBuf, Seen> {
    let mut found = BTreeMap::new();
    list(top, Path::new(""), &mut found);
    found
}

/// Two files have the same content.
pub fn same_content(a: &Path, b: &Path) {
    let open = |path: &Path| File::open(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let (mut left, mut right) = (open(a), open(b));
    let (mut one, mut other) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    let mut at = 0;
    loop {
        let n = left.read(&mut one).unwrap();
        if n == 0 {
            assert_eq!(right.read(&mut other).unwrap(), 0, "{} is longer than {}", b.display(), a.display());
            return;
        }
        right.read_exact(&mut other[..n]).unwrap_or_else(|e| panic!("{}, from {at} on: {e}", b.display()));
        assert!(one[..n] == other[..n], "{} differs from {} behind byte {at}", b.display(), a.display());
        at += n;
    }
}

/// Two files or trees are the same in all that is carried over: names, kinds, modes, owners, times to the
/// nanosecond, links, content; and nothing is there besides.
pub fn same(a: &Path, b: &Path) {
    let (left, right) = (all(a), all(b));
    let names = |tree: &BTreeMap<PathBuf, Seen>| tree.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&left), names(&right), "{} and {}", a.display(), b.display());
    for (name, one) in &left {
        assert_eq!(one, &right[name], "{name:?} of {} and {}", a.display(), b.display());
        if one.kind == 0o100_000 {
            let at = |top: &Path| if name.as_os_str().is_empty() { top.to_owned() } else { top.join(name) };
            same_content(&at(a), &at(b));
        }
    }
}

/// The same for what is in two folders: their own times are left as they come.
pub fn same_inside(a: &Path, b: &Path) {
    date(a, 7, 7);
    date(b, 7, 7);
    same(a, b);
}

/// Names of what transfers leave below a folder while they are under way.
pub fn leftovers(top: &Path) -> Vec<PathBuf> {
    let ours = |path: &PathBuf| path.file_name().is_some_and(|name| name.as_bytes().starts_with(b".fullpipe."));
    all(top).into_keys().filter(ours).collect()
}

/// Only these names are in a folder.
pub fn only(folder: &Path, names: &[&str]) {
    let mut found: Vec<_> = fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name()).collect();
    found.sort();
    assert_eq!(found, names, "{}", folder.display());
}
