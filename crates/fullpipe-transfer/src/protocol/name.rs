//! Names of files below a transfer's root, and the names of a transfer's own files.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

pub use fullpipe_path::text::{one_line, printable};
use serde::{Deserialize, Serialize};

/// Maximum length of a relative name, in bytes: the kernel's `PATH_MAX` less the terminating zero.
const MAX_NAME_BYTES: usize = 4095;

/// Maximum length of a component, in bytes: the kernel's `NAME_MAX`.
const MAX_PART_BYTES: usize = 255;

/// A name below the transfer's root: components joined by `/`, none of them empty, `.` or `..`. A name is bytes, not text,
/// because Linux prescribes no encoding. Deserializing a name from the network checks it.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Vec<u8>", into = "Vec<u8>")]
pub struct Name(Vec<u8>);

/// A file that a display may name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Named {
    /// It begins to be sent, or got its name here.
    Copied(Name),
    /// It stays as it is at the destination: it is newer there, and of another size.
    Newer(Name),
    /// It was deleted at the destination.
    Deleted(Name),
}

/// Why something is not a [`Name`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The name is empty or too long.
    #[error("a name of {0} bytes; at most {most} can be copied", most = MAX_NAME_BYTES)]
    Length(usize),
    /// The name has an empty or too long component, `.`, `..`, or a zero byte.
    #[error(
        "a name may not have '.', '..', nothing or more than {MAX_PART_BYTES} bytes between its slashes, nor a zero byte"
    )]
    Component,
}

/// Prefix of the names of a transfer's own files at the destination.
const SCRATCH: &[u8] = b".fullpipe.";

const KINDS: [&str; 3] = ["journal", "partial", "next"];

/// Makes the name of one of a transfer's own files from a number and a kind.
pub(crate) fn scratch(number: u64, kind: &'static str) -> PathBuf {
    debug_assert!(KINDS.contains(&kind));
    PathBuf::from(format!(".fullpipe.{number:016x}.{kind}"))
}

/// Whether a component is the name of a transfer's own file. Such files are neither sent nor received.
pub(crate) fn is_scratch(part: &[u8]) -> bool {
    let Some((number, kind)) = part.strip_prefix(SCRATCH).and_then(|rest| rest.split_at_checked(16)) else {
        return false;
    };
    let kind = kind.strip_prefix(b".").unwrap_or_default();
    number.iter().all(u8::is_ascii_hexdigit) && KINDS.iter().any(|known| known.as_bytes() == kind)
}

/// Returns the number in a journal's name, or `None` if the component is not a journal's name.
pub(crate) fn journal_number(part: &[u8]) -> Option<u64> {
    number_of(part, b".journal")
}

/// Returns the number in a partial file's name, or `None` if the name is not a partial file's.
pub(crate) fn partial_number(name: &Path) -> Option<u64> {
    number_of(name.as_os_str().as_bytes(), b".partial")
}

fn number_of(part: &[u8], kind: &[u8]) -> Option<u64> {
    let number = part.strip_prefix(SCRATCH)?.strip_suffix(kind).filter(|number| number.len() == 16)?;
    u64::from_str_radix(std::str::from_utf8(number).ok()?, 16).ok()
}

impl TryFrom<Vec<u8>> for Name {
    type Error = NameError;

    fn try_from(bytes: Vec<u8>) -> Result<Name, NameError> {
        if bytes.is_empty() || bytes.len() > MAX_NAME_BYTES {
            return Err(NameError::Length(bytes.len()));
        }
        let fine = |part: &[u8]| {
            !part.is_empty() && part.len() <= MAX_PART_BYTES && part != b"." && part != b".." && !part.contains(&0)
        };
        if bytes.split(|b| *b == b'/').all(fine) { Ok(Name(bytes)) } else { Err(NameError::Component) }
    }
}

impl From<Name> for Vec<u8> {
    fn from(name: Name) -> Vec<u8> {
        name.0
    }
}

impl Name {
    /// Returns the name's bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the name as a path.
    pub fn path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.0))
    }

    /// Returns the name without its last component; `None` if it has only one.
    pub fn parent(&self) -> Option<Name> {
        self.above().map(|above| Name(above.to_vec()))
    }

    /// Returns the bytes of [`Name::parent`].
    pub fn above(&self) -> Option<&[u8]> {
        self.0.iter().rposition(|b| *b == b'/').map(|at| &self.0[..at])
    }

    /// Returns the first component.
    pub fn first(&self) -> &[u8] {
        self.0.split(|b| *b == b'/').next().unwrap_or(&self.0)
    }

    /// Returns the last component.
    pub fn last(&self) -> &[u8] {
        self.0.rsplit(|b| *b == b'/').next().unwrap_or(&self.0)
    }

    /// Returns the name with a component appended.
    ///
    /// # Errors
    /// The component is not valid, or the result is too long.
    pub fn join(&self, part: &[u8]) -> Result<Name, NameError> {
        let mut bytes = Vec::with_capacity(self.0.len() + 1 + part.len());
        bytes.extend_from_slice(&self.0);
        bytes.push(b'/');
        bytes.extend_from_slice(part);
        Name::try_from(bytes)
    }

    /// Returns the name with its first component replaced.
    ///
    /// # Errors
    /// The result is too long or not a valid name.
    pub fn with_first(&self, first: &[u8]) -> Result<Name, NameError> {
        let rest = self.0.iter().position(|b| *b == b'/').map_or(&[][..], |at| &self.0[at..]);
        Name::try_from([first, rest].concat())
    }

    /// Returns a number that identifies the name: a hash, equal in every run.
    pub fn key(&self) -> u64 {
        number(&blake3::hash(&self.0))
    }
}

/// Shortens a hash to 64 bits.
pub(crate) fn number(hash: &blake3::Hash) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&hash.as_bytes()[..8]);
    u64::from_le_bytes(number)
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&printable(&self.0))
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Result<Name, NameError> {
        Name::try_from(text.as_bytes().to_vec())
    }

    #[test]
    fn only_names_below_the_root() {
        for bad in ["", "/etc", "a//b", "a/../b", "..", ".", "a/", "a/.", "a\0b", &"x".repeat(256)] {
            assert!(name(bad).is_err(), "{bad:?}");
        }
        let longest = "x".repeat(255);
        for good in ["a", "a/b", "...", "..a/b..", &longest, "new\nline", "\u{fe}"] {
            assert!(name(good).is_ok(), "{good:?}");
        }
        // The check holds for what comes from the network too.
        let sent = postcard::to_allocvec(&b"a/../../etc/passwd".to_vec()).unwrap();
        assert!(postcard::from_bytes::<Name>(&sent).is_err());
    }

    #[test]
    fn a_transfers_own_files_are_known() {
        for kind in KINDS {
            assert!(is_scratch(scratch(7, kind).as_os_str().as_bytes()), "{kind}");
        }
        assert_eq!(journal_number(scratch(7, "journal").as_os_str().as_bytes()), Some(7));
        assert_eq!(journal_number(scratch(7, "partial").as_os_str().as_bytes()), None);
        for other in [".fullpipe.", ".fullpipe.0123456789abcdef.toml", ".fullpipe.01234567.journal", "a.journal"] {
            assert!(!is_scratch(other.as_bytes()), "{other}");
        }
    }

    #[test]
    fn parts() {
        let n = name("a/b/c").unwrap();
        assert_eq!((n.parent().unwrap(), n.last()), (name("a/b").unwrap(), &b"c"[..]));
        assert_eq!(n.first(), b"a");
        assert_eq!(n.with_first(b"x").unwrap(), name("x/b/c").unwrap());
        assert_eq!(name("a").unwrap().with_first(b"x").unwrap(), name("x").unwrap());
        assert_eq!(name("a").unwrap().parent(), None);
        assert!(n.join(b"..").is_err());
        assert_eq!(printable(b"a\nb"), "$'a\\nb'");
        assert_eq!(printable(b"$'a\\nb'"), "$'$\\'a\\\\nb\\''");
        assert_eq!(one_line(b"left: $'a\\nb': gone"), "left: $'a\\nb': gone");
        assert_eq!(printable("grün".as_bytes()), "grün");
    }
}
