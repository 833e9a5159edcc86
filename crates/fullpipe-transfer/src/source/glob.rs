//! Expands patterns in the names of sources. The local shell cannot expand patterns for the far end, because it does not
//! know the files there.
//!
//! `*` and `?` match neither a slash nor a leading dot. `[a-z]` and `{a,b}` are alternatives (`glob(7)`).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use globset::{Glob, GlobBuilder, GlobMatcher};
use nix::dir::Dir;
use nix::fcntl::OFlag;

use crate::error::{self, TransferError};
use crate::fs::at;
use crate::fs::root::Root;
use crate::protocol::name::{is_scratch, printable};
use crate::protocol::skipped::SkippedEntry;

/// Maximum number of opening braces in a pattern. Each may deepen a recursion, and patterns may come from the network.
const DEEPEST: usize = 8;
/// Maximum length of a pattern, in bytes.
const LONGEST: usize = 16 << 10;
/// Maximum number of names that a transfer's patterns may expand to. All of them are held in memory.
pub(crate) const MOST_NAMES: usize = 1 << 16;

/// What `**` beside other characters of a component stands for: a part of a name, or one, some folders, and another. globset
/// gives `**` its meaning only where it is a whole component.
const ACROSS: &str = "{*,*/**/*}";

/// Replaces each `**` that is not a whole component by [`ACROSS`]. Returns the pattern and the number of replacements.
fn across(pattern: &str) -> (String, usize) {
    let chars: Vec<char> = pattern.chars().collect();
    let (mut out, mut replaced, mut braces, mut i) = (String::new(), 0, 0usize, 0);
    let mut before = None;
    while let Some(&c) = chars.get(i) {
        let len = match c {
            '\\' => 2,
            '[' => class_len(&chars[i..]),
            '*' => chars[i..].iter().take_while(|c| **c == '*').count(),
            _ => 1,
        };
        let part = &chars[i..chars.len().min(i + len)];
        i += len;
        match c {
            '{' => braces += 1,
            '}' => braces = braces.saturating_sub(1),
            _ => {}
        }
        let after = chars.get(i).copied();
        let begins = matches!(before, None | Some('/'));
        let ends = matches!(after, None | Some('/'));
        let begins_choice = braces > 0 && matches!(before, Some('{' | ','));
        let ends_choice = braces > 0 && matches!(after, Some('}' | ','));
        let is_whole = len == 2 && (begins && (ends || ends_choice) || begins_choice && ends);
        if c == '*' && len > 1 && !is_whole {
            out.push_str(ACROSS);
            replaced += 1;
        } else {
            out.extend(part);
        }
        before = part.last().copied();
    }
    (out, replaced)
}

/// Number of characters of the class that a pattern begins with: `[a-z]`, `[!]x]`. All of it if the class has no end.
fn class_len(pattern: &[char]) -> usize {
    let first = if matches!(pattern.get(1), Some('!' | '^')) { 2 } else { 1 };
    // A bracket right at the beginning is one of the class's characters.
    let end = pattern.iter().skip(first + 1).position(|c| *c == ']');
    end.map_or(pattern.len(), |end| first + 1 + end + 1)
}

/// Whether a pattern without slashes matches names with slashes, as `a**b` does.
pub(crate) fn matches_slashes(pattern: &str) -> bool {
    across(pattern).1 > 0
}

/// Compiles a pattern. `*` and `?` do not match a slash; `**` does.
///
/// # Errors
/// The reason why the pattern is invalid.
pub(crate) fn glob(pattern: &str) -> Result<Glob, String> {
    if pattern.len() > LONGEST {
        return Err(format!("give at most {LONGEST} bytes"));
    }
    if pattern.matches('{').count() > DEEPEST {
        return Err(format!("give at most {DEEPEST} alternatives in braces"));
    }
    let (pattern, replaced) = across(pattern);
    if replaced > DEEPEST {
        return Err(format!("give at most {DEEPEST} times '**' beside other characters"));
    }
    GlobBuilder::new(&pattern).literal_separator(true).build().map_err(|e| e.kind().to_string())
}

/// Whether a name may be a pattern. A name that is not valid UTF-8 is never a pattern.
#[must_use]
pub fn is_one(name: &[u8]) -> bool {
    name.iter().any(|b| b"*?[{".contains(b)) && std::str::from_utf8(name).is_ok()
}

/// One component of a source's name: a literal name, or a pattern that matches names without slashes.
#[derive(Debug)]
pub(crate) struct Part {
    name: Vec<u8>,
    pattern: Option<GlobMatcher>,
}

impl Part {
    /// Makes a component that matches only this name.
    pub(crate) fn exactly(name: &[u8]) -> Part {
        Part { name: name.to_vec(), pattern: None }
    }

    /// Makes a component that matches this name literally and, if it is a pattern, the names that the pattern matches.
    ///
    /// # Errors
    /// The reason why the pattern is invalid.
    pub(crate) fn new(name: &[u8]) -> Result<Part, String> {
        let text = std::str::from_utf8(name).ok().filter(|_| is_one(name));
        let pattern = text.map(glob).transpose()?.map(|glob| glob.compile_matcher());
        Ok(Part { name: name.to_vec(), pattern })
    }

    /// Whether the component matches a name.
    pub(crate) fn is_match(&self, name: &[u8]) -> bool {
        let hidden = name.starts_with(b".") && !self.name.starts_with(b".");
        let matched = |pattern: &GlobMatcher| !hidden && pattern.is_match(Path::new(OsStr::from_bytes(name)));
        name == self.name || self.pattern.as_ref().is_some_and(matched)
    }

    /// Returns the names in a folder that the component matches, sorted.
    fn names_in(&self, folder: &Root) -> std::io::Result<Vec<Vec<u8>>> {
        if self.pattern.is_none() {
            return at::look(folder, at::part(&self.name)).map(|_| vec![self.name.clone()]);
        }
        let fd = folder.open_at(Path::new("."), OFlag::O_RDONLY | OFlag::O_DIRECTORY, 0)?;
        let mut names = Vec::new();
        for entry in Dir::from_fd(fd)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." && !is_scratch(name) && self.is_match(name) {
                names.push(name.to_vec());
            }
        }
        names.sort_unstable();
        Ok(names)
    }
}

/// Expands a pattern to the sorted names that it matches, at most `most`, followed by the folders that could not be read.
/// It opens folders with `open`.
///
/// # Errors
/// The pattern is invalid, matches nothing, or matches more than `most` names.
pub(crate) fn expand(
    pattern: &[u8],
    most: usize,
    open: &dyn Fn(&[u8]) -> std::io::Result<Root>,
) -> Result<Vec<Result<Vec<u8>, SkippedEntry>>, TransferError> {
    let wrong = |why: &str| TransferError::Usage(format!("{}: {why}", printable(pattern)));
    // The components before the first pattern are a folder's literal name, including the trailing slash.
    let parts = pattern.split_inclusive(|b| *b == b'/');
    let fixed = parts.take_while(|part| !is_one(part)).map(<[u8]>::len).sum();
    let (mut found, mut unreadable) = (vec![pattern[..fixed].to_vec()], Vec::new());
    for part in pattern[fixed..].split_inclusive(|b| *b == b'/').filter(|part| *part != b"/") {
        let (name, slash) = part.strip_suffix(b"/").map_or((part, &b""[..]), |name| (name, b"/"));
        let whole = |folder: &[u8], name: &[u8]| [folder, name, slash].concat();
        let part =
            Part::new(name).map_err(|why| wrong(&format!("nothing there is called so, and as a pattern: {why}")))?;
        let mut next = Vec::new();
        for folder in found {
            match open(&folder).and_then(|root| part.names_in(&root)) {
                // A pattern with a trailing slash matches folders only.
                Ok(names) => next.extend(
                    names.iter().map(|name| whole(&folder, name)).filter(|path| slash.is_empty() || open(path).is_ok()),
                ),
                // Nothing matches below a non-folder, a dangling link, or a link that leads out of the root.
                Err(e)
                    if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR | libc::ELOOP | libc::EXDEV)) => {}
                Err(e) => unreadable
                    .push(SkippedEntry::new(folder.strip_suffix(b"/").unwrap_or(&folder), error::unreadable(&e))),
            }
            if next.len() > most {
                return Err(wrong(&format!("patterns stand for more than {MOST_NAMES} names; copy a folder with -r")));
            }
        }
        found = next;
    }
    if let (true, Some(entry)) = (found.is_empty(), unreadable.first()) {
        return Err(wrong(&format!("nothing there is called so, as far as that can be seen: {entry}")));
    }
    if found.is_empty() {
        return Err(wrong("nothing there is called so"));
    }
    // The prefix `./` keeps a matched name that begins with `~` from meaning the home directory.
    let plain = |path: Vec<u8>| if fixed == 0 && path.starts_with(b"~") { [b"./", &path[..]].concat() } else { path };
    Ok(found.into_iter().map(plain).map(Ok).chain(unreadable.into_iter().map(Err)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::root::Within;

    #[test]
    fn two_stars_match_slashes_wherever_they_stand() {
        for (pattern, matched, other) in [
            (
                "raw/**.tmp",
                &["raw/x.tmp", "raw/sub/x.tmp", "raw/a/b/.tmp", "raw/.tmp"][..],
                &["raw/x", "raw.tmp", "x/raw/x.tmp"][..],
            ),
            ("raw**/x", &["raw/x", "raw1/x", "raw1/a/b/x"], &["rawx", "rax/x"]),
            ("a/b**c/d", &["a/bc/d", "a/b1/2c/d", "a/b/x/c/d"], &["a/b/d", "a/bc/x/d"]),
            ("x/**y**/z", &["x/y/z", "x/a/yb/c/z"], &["x/z"]),
            ("raw/**", &["raw/a", "raw/a/b"], &["raw"]),
            ("**/x", &["x", "a/b/x"], &["a/xx"]),
            ("a/**/b", &["a/b", "a/x/y/b"], &["ab"]),
            ("raw/{**.tmp,*.log}", &["raw/a/b.tmp", "raw/a.log"], &["raw/a/b.log"]),
            ("{a/**,b}", &["a/x/y", "b"], &["a"]),
            ("a[**]b**c", &["a*b/c", "a*b1/2c"], &["aab/c", "a*b"]),
            ("a[]**]b**c", &["a]b/c"], &["a/b/c"]),
            ("a\\**b", &["a*b", "a*xb"], &["a*x/b"]),
        ] {
            let glob = glob(pattern).unwrap().compile_matcher();
            for name in matched {
                assert!(glob.is_match(name), "{pattern}: {name}");
            }
            for name in other {
                assert!(!glob.is_match(name), "{pattern}: {name}");
            }
        }
        assert!(glob(&"a**".repeat(DEEPEST + 1)).is_err());
        assert!(matches_slashes("a**b") && !matches_slashes("**") && !matches_slashes("a*b*"));
    }

    #[test]
    fn what_patterns_stand_for() {
        let dir = tempfile::tempdir().unwrap();
        for name in
            ["a/1.h5", "a/2.h5", "a/.3.h5", "a/x", "b/1.h5", "b/.fullpipe.0123456789abcdef.partial", "f.h5", "~x"]
        {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        let open = |path: &[u8]| Root::open(&dir.path().join(OsStr::from_bytes(path)), Within::Anywhere);
        let found = |pattern: &str| -> Result<String, String> {
            let found = expand(pattern.as_bytes(), 3, &open).map_err(|e| e.to_string())?;
            let shown =
                |name: &Result<Vec<u8>, SkippedEntry>| name.as_ref().map_or_else(ToString::to_string, |n| printable(n));
            Ok(found.iter().map(shown).collect::<Vec<_>>().join(" "))
        };
        for (pattern, names) in [
            ("*.h5", "f.h5"),
            ("a/*.h5", "a/1.h5 a/2.h5"),
            ("./a//*.h5", "./a//1.h5 ./a//2.h5"),
            ("a/.*.h5", "a/.3.h5"),
            ("*/1.h5", "a/1.h5 b/1.h5"),
            ("*/2.h5", "a/2.h5"),
            ("[ab]/?.h5", "a/1.h5 a/2.h5 b/1.h5"),
            ("?/", "a/ b/"),
            ("*/", "a/ b/"),
            ("{a,f.h5}", "a f.h5"),
            ("b/*", "b/1.h5"),
            ("~*", "./~x"),
        ] {
            assert_eq!(found(pattern).as_deref(), Ok(names), "{pattern}");
        }
        let (deep, long) = ("{".repeat(2000) + "a" + &"}".repeat(2000), "*".repeat(LONGEST + 1));
        for none in ["*.x", "c/*", "f.h5/*", "*/no", "[", "{a/b}", "*/*", &deep, &long] {
            assert!(found(none).is_err(), "{none}");
        }
        assert!(Part::new(b"*").unwrap().is_match(b"\xff") && !is_one(b"\xff*"));
    }
}
