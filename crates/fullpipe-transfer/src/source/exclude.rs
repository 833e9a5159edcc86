//! Excludes files and folders of a source by patterns.
//!
//! A pattern without a slash matches the last component of a name, at any depth (`*.tmp`). A pattern with a slash matches
//! the whole name below the source (`raw/**`, `*/scratch`), which the source's own name may precede (`top/raw`). A slash or
//! `./` at the beginning counts as one, so `./raw` matches directly below the source only. `*` and `?` do not match a slash;
//! `**` does. `[a-z]` and `{a,b}` are alternatives. Excluding a folder excludes all of its
//! content.

use std::path::Path;

use globset::{GlobMatcher, GlobSet, GlobSetBuilder};

use crate::error::TransferError;
use crate::source::glob;

/// Maximum total length of all patterns, in bytes. The limit is needed because patterns may come from the network.
const MAX_PATTERN_BYTES: usize = 16 << 10;

/// Compiled exclude patterns.
#[derive(Debug, Default)]
pub struct Exclude {
    /// Patterns for the last component of a name.
    names: GlobSet,
    /// Patterns for the whole name below the source.
    paths: GlobSet,
    /// Patterns that begin with a source's name: that name, and the pattern for names below the source.
    of: Vec<(String, GlobMatcher)>,
}

impl Exclude {
    /// Compiles patterns. Their total length may be at most 16 KiB.
    ///
    /// # Errors
    /// A pattern is invalid, or the patterns are too long.
    pub fn new(patterns: &[String]) -> Result<Exclude, TransferError> {
        let (mut names, mut paths, mut of) = (GlobSetBuilder::new(), GlobSetBuilder::new(), Vec::new());
        let wrong = |pattern: &str, why: &dyn std::fmt::Display| {
            TransferError::Usage(format!("--exclude '{}': {why}", crate::protocol::name::printable(pattern.as_bytes())))
        };
        if patterns.iter().map(|pattern| pattern.len() + 1).sum::<usize>() > MAX_PATTERN_BYTES {
            return Err(TransferError::Usage(format!("--exclude: give at most {MAX_PATTERN_BYTES} bytes of patterns")));
        }
        for pattern in patterns {
            if pattern.is_empty() {
                return Err(wrong(pattern, &"the pattern is empty; remove it"));
            }
            let whole = plain(pattern);
            if whole.is_empty() {
                return Err(wrong(pattern, &"it matches no name below a source"));
            }
            // A slash in a pattern, also at the beginning, ties it to the source.
            let is_anchored = whole.contains('/') || ["/", "./"].iter().any(|start| pattern.starts_with(start));
            let glob = glob::glob(&whole).map_err(|why| wrong(pattern, &why))?;
            if let Some((top, rest)) = whole.split_once('/')
                && !pattern.starts_with('/')
                && !glob::is_one(top.as_bytes())
            {
                let glob = glob::glob(rest).map_err(|why| wrong(pattern, &why))?;
                of.push((top.to_owned(), glob.compile_matcher()));
            }
            if is_anchored {
                paths.add(glob)
            } else {
                names.add(glob)
            };
        }
        let build = |set: GlobSetBuilder| set.build().map_err(|e| wrong("", e.kind()));
        Ok(Exclude { names: build(names)?, paths: build(paths)?, of })
    }

    /// Whether a source with this name is excluded.
    #[must_use]
    pub fn leaves_out_source(&self, name: &Path) -> bool {
        !self.names.is_empty() && self.names.is_match(name)
    }

    /// Whether the entry `below` a source is excluded. `top` is the source's own name, if the source keeps its name at the
    /// destination.
    #[must_use]
    pub fn leaves_out(&self, below: &Path, top: Option<&Path>) -> bool {
        let last = || below.file_name().is_some_and(|name| self.names.is_match(name));
        let of_top = |(name, rest): &(String, GlobMatcher)| {
            top.is_some_and(|top| top == Path::new(name)) && rest.is_match(below)
        };
        (!self.paths.is_empty() && self.paths.is_match(below))
            || (!self.names.is_empty() && last())
            || self.of.iter().any(of_top)
    }
}

/// A pattern without what changes nothing: components that are empty or `.`, and slashes at either end.
fn plain(pattern: &str) -> String {
    pattern.split('/').filter(|part| !matches!(*part, "" | ".")).collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, out, stays) in [
            ("*.tmp", &["a.tmp", "x/y/a.tmp", ".tmp"][..], &["a.tmp.gz", "tmp", "a.tmp/b"][..]),
            ("raw", &["raw", "x/raw"], &["raw2", "raw/x"]),
            ("raw/", &["raw", "x/raw"], &["raw2"]),
            ("/raw", &["raw"], &["x/raw"]),
            ("./raw", &["raw"], &["x/raw", "raw/x"]),
            ("././/raw/", &["raw"], &["x/raw"]),
            ("/./*.tmp", &["a.tmp"], &["x/a.tmp"]),
            ("x/./raw//y", &["x/raw/y"], &["x/raw", "raw/y"]),
            ("raw/**", &["raw/a", "raw/a/b"], &["raw", "x/raw/a"]),
            ("*/scratch", &["x/scratch"], &["scratch", "x/y/scratch"]),
            ("**/scratch", &["scratch", "x/y/scratch"], &["x/scratch2"]),
            ("run[0-9].{log,err}", &["run1.log", "x/run2.err"], &["run.log", "run1.out"]),
        ] {
            let exclude = Exclude::new(&[pattern.to_owned()]).unwrap();
            for name in out {
                assert!(exclude.leaves_out(Path::new(name), None), "{pattern}: {name}");
            }
            for name in stays {
                assert!(!exclude.leaves_out(Path::new(name), None), "{pattern}: {name}");
            }
        }
        // As in rsync, the source's name may precede the pattern.
        let exclude = Exclude::new(&["./top/raw".to_owned()]).unwrap();
        assert!(exclude.leaves_out(Path::new("raw"), Some(Path::new("top"))));
        assert!(!exclude.leaves_out(Path::new("raw"), Some(Path::new("other"))));
        for all in ["raw/**", "raw/*"] {
            assert!(
                Exclude::new(&[all.to_owned()]).unwrap().leaves_out(Path::new("scratch"), Some(Path::new("raw"))),
                "{all}"
            );
        }
        for below in ["*/scratch", "raw/", "/raw/scratch"] {
            let exclude = Exclude::new(&[below.to_owned()]).unwrap();
            assert!(!exclude.leaves_out(Path::new("scratch"), Some(Path::new("raw"))), "{below}");
        }
        assert!(!Exclude::default().leaves_out(Path::new("a"), None));
        let deep = "{".repeat(2000) + "a" + &"}".repeat(2000);
        for bad in ["", "/", "./", ".", "[", "{a", &deep, &"x".repeat(MAX_PATTERN_BYTES)] {
            assert!(Exclude::new(&[bad.to_owned()]).is_err(), "{bad}");
        }
        assert!(Exclude::new(&vec!["a".to_owned(); MAX_PATTERN_BYTES]).is_err());
        let most = vec!["?".repeat(1000) + ".x"; 16];
        assert!(Exclude::new(&most).unwrap().leaves_out(Path::new(&("y".repeat(1000) + ".x")), None));
    }
}
