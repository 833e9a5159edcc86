//! What of a tree is left out, by patterns.
//!
//! A pattern without a slash is for the last part of a name, wherever it is (`*.tmp`); one with a slash is for all of the
//! name below the source (`raw/**`, `*/scratch`); the source's own name may stand before it (`top/raw`). `*` and `?` match
//! no slash, `**` does, `[a-z]` and `{a,b}` are alternatives. With a folder goes all that is in it.

use std::path::Path;

use globset::{GlobMatcher, GlobSet, GlobSetBuilder};

use crate::error::TransferError;
use crate::source::glob;

/// Most bytes of all patterns: they may come from the network.
const MOST: usize = 16 << 10;

/// Patterns, ready to be used.
#[derive(Debug, Default)]
pub struct Exclude {
    names: GlobSet,
    paths: GlobSet,
    /// Names of sources, and what of them is left out.
    of: Vec<(String, GlobMatcher)>,
}

impl Exclude {
    /// Reads patterns, of 16 KiB together at most.
    ///
    /// # Errors
    /// One of them is no pattern, or they are too long.
    pub fn new(patterns: &[String]) -> Result<Exclude, TransferError> {
        let (mut names, mut paths, mut of) = (GlobSetBuilder::new(), GlobSetBuilder::new(), Vec::new());
        let wrong = |pattern: &str, why: &dyn std::fmt::Display| {
            TransferError::Usage(format!("--exclude '{}': {why}", crate::protocol::name::printable(pattern.as_bytes())))
        };
        if patterns.iter().map(|pattern| pattern.len() + 1).sum::<usize>() > MOST {
            return Err(TransferError::Usage(format!("--exclude: give at most {MOST} bytes of patterns")));
        }
        for pattern in patterns {
            if pattern.is_empty() {
                return Err(wrong(pattern, &"an empty pattern is no name's"));
            }
            // A slash at the end says that it is a folder, one at the start that it is right below the source.
            let whole = pattern.trim_end_matches('/');
            let whole = whole.strip_prefix("./").unwrap_or(whole);
            let glob = glob::glob(whole.strip_prefix('/').unwrap_or(whole)).map_err(|why| wrong(pattern, &why))?;
            if let Some((top, rest)) = whole.split_once('/')
                && !top.is_empty()
                && !glob::is_one(top.as_bytes())
            {
                let glob = glob::glob(rest).map_err(|why| wrong(pattern, &why))?;
                of.push((top.to_owned(), glob.compile_matcher()));
            }
            if whole.contains('/') {
                paths.add(glob)
            } else {
                names.add(glob)
            };
        }
        let build = |set: GlobSetBuilder| set.build().map_err(|e| wrong("", e.kind()));
        Ok(Exclude { names: build(names)?, paths: build(paths)?, of })
    }

    /// Whether a source that is called so is left out.
    #[must_use]
    pub fn leaves_out_source(&self, name: &Path) -> bool {
        !self.names.is_empty() && self.names.is_match(name)
    }

    /// Whether what has this name below its source is left out; `top` is the source's own name, if it has one there.
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
        // As others do, with the name of the source before it.
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
        for bad in ["", "[", "{a", &deep, &"x".repeat(MOST)] {
            assert!(Exclude::new(&[bad.to_owned()]).is_err(), "{bad}");
        }
        assert!(Exclude::new(&vec!["a".to_owned(); MOST]).is_err());
        let most = vec!["?".repeat(1000) + ".x"; 16];
        assert!(Exclude::new(&most).unwrap().leaves_out(Path::new(&("y".repeat(1000) + ".x")), None));
    }
}
