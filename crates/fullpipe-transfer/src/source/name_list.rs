//! The list of names below a source to which a copy is limited (`--files-from`).
//!
//! Names are cleaned by text alone, as by rsync: slashes in front and empty or `.` components are dropped, and `..` goes up, but
//! never above the source. The walk refuses symbolic links on the way to a name, so that none leads out of the source either.

use std::cmp::Ordering;

use crate::error::TransferError;
use crate::protocol::name::printable;

/// Maximum length of a list, in bytes. The limit is needed because a list may come from the network.
const MAX_LIST_BYTES: usize = 128 << 20;

/// Bytes of names after which a part of a list is handed on, so that it fits a frame.
const MAX_PART_BYTES: usize = 1 << 20;

/// Names below a source.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NameList {
    /// The names, each with a zero byte behind it. That of the source itself is empty.
    bytes: Vec<u8>,
}

impl NameList {
    /// Makes a list of names as the user gave them, in any order. What the list has twice is copied once.
    ///
    /// # Errors
    /// The list is too long, or a name has a zero byte.
    pub fn new<'a>(given: impl IntoIterator<Item = &'a [u8]>) -> Result<NameList, TransferError> {
        let mut names: Vec<Vec<u8>> = Vec::new();
        for name in given {
            if name.contains(&0) {
                let why = "a name has a zero byte; if the list has zeros between its names, add --from0";
                return Err(TransferError::Usage(format!("--files-from: {}: {why}", printable(name))));
            }
            names.push(clean(name));
        }
        // A folder stands right before all that is in it, so that the walk enters each folder once.
        names.sort_unstable_by(|a, b| by_component(a, b));
        names.dedup();
        let mut list = NameList::default();
        for name in names {
            list.add(&name)?;
            list.add(&[0])?;
        }
        Ok(list)
    }

    /// Adds a part of another end's list.
    ///
    /// # Errors
    /// The list is too long.
    pub(crate) fn add(&mut self, part: &[u8]) -> Result<(), TransferError> {
        if self.bytes.len() + part.len() > MAX_LIST_BYTES {
            let most = MAX_LIST_BYTES >> 20;
            return Err(TransferError::Usage(format!(
                "--files-from: the names are longer than {most} MiB; copy them with several lists"
            )));
        }
        self.bytes.extend_from_slice(part);
        Ok(())
    }

    /// The list in parts that fit a frame each.
    pub(crate) fn parts(&self) -> impl Iterator<Item = &[u8]> {
        self.bytes.chunks(MAX_PART_BYTES)
    }

    /// The names, in order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &[u8]> {
        let end = self.bytes.iter().rposition(|byte| *byte == 0);
        let names = end.map(|end| self.bytes[..end].split(|byte| *byte == 0));
        names.into_iter().flatten()
    }
}

/// A name without what changes nothing, and without `..`.
fn clean(name: &[u8]) -> Vec<u8> {
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in name.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join(&b'/')
}

/// The order of names by their components.
fn by_component(a: &[u8], b: &[u8]) -> Ordering {
    a.split(|byte| *byte == b'/').cmp(b.split(|byte| *byte == b'/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(names: &[&str]) -> Vec<String> {
        let list = NameList::new(names.iter().map(|name| name.as_bytes())).unwrap();
        list.names().map(|name| String::from_utf8(name.to_vec()).unwrap()).collect()
    }

    #[test]
    fn names_are_cleaned_sorted_and_given_once() {
        assert_eq!(list(&[]), [""; 0]);
        assert_eq!(list(&["b", "/b", "./b/", "a//c/", "a"]), ["a", "a/c", "b"]);
        // None leads out of the source.
        assert_eq!(list(&["../x", "a/../../y", "/../../etc/passwd"]), ["etc/passwd", "x", "y"]);
        // The source itself comes first.
        assert_eq!(list(&["x", "a/.."]), ["", "x"]);
        // A folder stands right before what is in it, although '-' sorts before '/'.
        assert_eq!(list(&["a/b", "a-b", "a"]), ["a", "a/b", "a-b"]);
        assert!(NameList::new([&b"a\0b"[..]]).is_err());
    }

    #[test]
    fn a_list_arrives_in_parts() {
        let names: Vec<String> = (0..300_000).map(|n| format!("{n:07}")).collect();
        let list = NameList::new(names.iter().map(String::as_bytes)).unwrap();
        assert!(list.parts().count() > 2);
        let mut there = NameList::default();
        list.parts().for_each(|part| there.add(part).unwrap());
        assert_eq!(there, list);
        assert_eq!(there.names().count(), names.len());
        assert!((0..200).any(|_| there.add(&[1; 1 << 20]).is_err()));
    }
}
