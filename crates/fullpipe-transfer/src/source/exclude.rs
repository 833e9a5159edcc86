//! Leaves files and folders of a source out, by patterns and sizes.
//!
//! A pattern without a slash matches the last component of a name, at any depth (`*.tmp`). A pattern with a slash matches
//! the whole name below the source (`raw/**`, `*/scratch`), which the source's own name may precede (`top/raw`, `/top/raw`). A
//! slash or `./` at the beginning counts as one, so `./raw` matches directly below the source only. A pattern that ends with a slash
//! matches folders only. `*` and `?` do not match a slash; `**` does. `raw/***` is `raw/` and `raw/**`. `[a-z]` and `{a,b}` are
//! alternatives. Of all patterns the first that matches decides, as in rsync. Excluding a folder excludes all of its content.

use std::path::Path;

use globset::{GlobMatcher, GlobSet, GlobSetBuilder};

use crate::error::TransferError;
use crate::protocol::message::{Filter, Rule};
use crate::source::glob;

/// Maximum total length of all patterns, in bytes. The limit is needed because patterns may come from the network.
const MAX_PATTERN_BYTES: usize = 16 << 10;

/// Patterns that are matched together, and the number of each among all rules.
#[derive(Debug, Default)]
struct Set {
    patterns: GlobSet,
    numbers: Vec<usize>,
}

impl Set {
    /// Calls `each` with the number of every rule whose pattern matches.
    fn each(&self, name: &Path, mut each: impl FnMut(usize)) {
        if !self.numbers.is_empty() {
            self.patterns.matches(name).into_iter().for_each(|i| each(self.numbers[i]));
        }
    }
}

/// Patterns of a set that is not complete.
struct SetBuilder {
    patterns: GlobSetBuilder,
    numbers: Vec<usize>,
}

impl SetBuilder {
    fn new() -> SetBuilder {
        SetBuilder { patterns: GlobSetBuilder::new(), numbers: Vec::new() }
    }
}

/// What else a rule says besides its pattern.
#[derive(Debug, Clone, Copy)]
struct Meaning {
    includes: bool,
    folders_only: bool,
}

/// Compiled rules that leave entries of a source out.
#[derive(Debug, Default)]
pub struct Exclude {
    /// Patterns for the last component of a name.
    names: Set,
    /// Patterns for the whole name below the source.
    paths: Set,
    /// Patterns that begin with a source's name: the rule's number, that name, and the pattern for names below the source.
    of: Vec<(usize, String, GlobMatcher)>,
    rules: Vec<Meaning>,
    /// Sizes of files that are not left out, bytes.
    sizes: Option<std::ops::RangeInclusive<u64>>,
    /// Whether folders on which other file systems are mounted are left empty.
    pub(crate) one_file_system: bool,
}

/// The rules that a rule stands for: `FOLDER/***` is the folder and all in it (rsync(1), "PATTERN MATCHING RULES").
fn whole_folder(rule: &Rule) -> Vec<Rule> {
    let of = |pattern: String| Rule { pattern, ..rule.clone() };
    match rule.pattern.strip_suffix("/***") {
        Some(folder) if !plain(folder).is_empty() => {
            vec![of(format!("{folder}/")), of(format!("{folder}/**"))]
        }
        _ => vec![rule.clone()],
    }
}

impl Exclude {
    /// Compiles rules. The total length of their patterns may be at most 16 KiB.
    ///
    /// # Errors
    /// A pattern is invalid, or the patterns are too long.
    pub fn new(filter: &Filter) -> Result<Exclude, TransferError> {
        let (mut names, mut paths, mut of, mut rules) = (SetBuilder::new(), SetBuilder::new(), Vec::new(), Vec::new());
        let wrong = |rule: &Rule, why: &dyn std::fmt::Display| {
            let flag = if rule.includes { "--include" } else { "--exclude" };
            TransferError::Usage(format!(
                "{flag} '{}': {why}",
                crate::protocol::name::printable(rule.pattern.as_bytes())
            ))
        };
        if filter.rules.iter().map(|rule| rule.pattern.len() + 1).sum::<usize>() > MAX_PATTERN_BYTES {
            return Err(TransferError::Usage(format!("--exclude: give at most {MAX_PATTERN_BYTES} bytes of patterns")));
        }
        for (number, rule) in filter.rules.iter().flat_map(whole_folder).enumerate() {
            let (rule, pattern) = (&rule, &rule.pattern);
            if pattern.is_empty() {
                return Err(wrong(rule, &"the pattern is empty; remove it"));
            }
            let whole = plain(pattern);
            if whole.is_empty() {
                return Err(wrong(rule, &"it matches no name below a source"));
            }
            // A slash in a pattern, also at the beginning, ties it to the source.
            let is_anchored = whole.contains('/') || ["/", "./"].iter().any(|start| pattern.starts_with(start));
            if whole.contains("[:") && whole.contains(":]") {
                return Err(wrong(
                    rule,
                    &"classes such as [:digit:] have no meaning here; write [0-9], [a-z] and the like",
                ));
            }
            if whole.contains("***") {
                return Err(wrong(
                    rule,
                    &"'***' may only be the last part of 'FOLDER/***', the folder and all in it; write '**'",
                ));
            }
            let glob = glob::glob(&whole).map_err(|why| wrong(rule, &why))?;
            if let Some((top, rest)) = whole.split_once('/')
                && !glob::is_one(top.as_bytes())
            {
                let glob = glob::glob(rest).map_err(|why| wrong(rule, &why))?;
                of.push((number, top.to_owned(), glob.compile_matcher()));
            }
            if !is_anchored && glob::matches_slashes(&whole) {
                let at_any_depth = glob::glob(&format!("**/{whole}")).map_err(|why| wrong(rule, &why))?;
                paths.patterns.add(at_any_depth);
                paths.numbers.push(number);
            }
            let set = if is_anchored { &mut paths } else { &mut names };
            set.patterns.add(glob);
            set.numbers.push(number);
            rules.push(Meaning { includes: rule.includes, folders_only: pattern.ends_with('/') });
        }
        let build = |set: SetBuilder| match set.patterns.build() {
            Ok(patterns) => Ok(Set { patterns, numbers: set.numbers }),
            Err(e) => Err(TransferError::Usage(format!("--exclude: {}", e.kind()))),
        };
        let sizes = filter.min_size.unwrap_or(0)..=filter.max_size.unwrap_or(u64::MAX);
        Ok(Exclude {
            names: build(names)?,
            paths: build(paths)?,
            of,
            rules,
            sizes: (filter.min_size.is_some() || filter.max_size.is_some()).then_some(sizes),
            one_file_system: filter.one_file_system,
        })
    }

    /// Whether a source with this name is excluded.
    #[must_use]
    pub fn leaves_out_source(&self, name: &Path, is_folder: bool) -> bool {
        let mut first = usize::MAX;
        self.names.each(name, |number| first = self.earlier(first, number, is_folder));
        self.excludes(first)
    }

    /// Whether the entry `below` a source is excluded. `top` is the source's own name, if the source keeps its name at the
    /// destination.
    #[must_use]
    pub fn leaves_out(&self, below: &Path, top: Option<&Path>, is_folder: bool) -> bool {
        let mut first = usize::MAX;
        self.paths.each(below, |number| first = self.earlier(first, number, is_folder));
        if let Some(name) = below.file_name() {
            self.names.each(Path::new(name), |number| first = self.earlier(first, number, is_folder));
        }
        for (number, name, rest) in &self.of {
            if top.is_some_and(|top| top == Path::new(name)) && rest.is_match(below) {
                first = self.earlier(first, *number, is_folder);
            }
        }
        self.excludes(first)
    }

    /// Whether the entry `below` a source is excluded, or a folder that it lies in, or the source itself.
    #[must_use]
    pub fn leaves_out_all(&self, below: &Path, top: Option<&Path>, is_folder: bool) -> bool {
        let is_whole = below.as_os_str().is_empty();
        let is_out =
            |part: &Path| !part.as_os_str().is_empty() && self.leaves_out(part, top, is_folder || part != below);
        top.is_some_and(|top| self.leaves_out_source(top, is_folder || !is_whole)) || below.ancestors().any(is_out)
    }

    /// Whether a file of this size is left out.
    #[must_use]
    pub fn leaves_out_size(&self, bytes: u64) -> bool {
        self.sizes.as_ref().is_some_and(|sizes| !sizes.contains(&bytes))
    }

    /// The earlier one of two rules, of which the second matches an entry's name.
    fn earlier(&self, first: usize, matching: usize, is_folder: bool) -> usize {
        let applies = self.rules.get(matching).is_some_and(|rule| is_folder || !rule.folders_only);
        if applies { first.min(matching) } else { first }
    }

    /// Whether the first rule that matches excludes; what no rule matches is copied.
    fn excludes(&self, first: usize) -> bool {
        self.rules.get(first).is_some_and(|rule| !rule.includes)
    }
}

/// A pattern without what changes nothing: components that are empty or `.`, and slashes at either end.
fn plain(pattern: &str) -> String {
    pattern.split('/').filter(|part| !matches!(*part, "" | ".")).collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exclude(patterns: &[&str]) -> Result<Exclude, TransferError> {
        let rule = |pattern: &&str| Rule { includes: false, pattern: (*pattern).to_owned() };
        Exclude::new(&Filter { rules: patterns.iter().map(rule).collect(), ..Filter::default() })
    }

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
            ("raw/***", &["raw", "raw/a", "raw/a/b"], &["raws", "x"]),
            ("x/raw/***", &["x/raw", "x/raw/a/b"], &["raw", "x/raws", "x"]),
            ("*/scratch", &["x/scratch"], &["scratch", "x/y/scratch"]),
            ("**/scratch", &["scratch", "x/y/scratch"], &["x/scratch2"]),
            ("raw/**.tmp", &["raw/x.tmp", "raw/sub/x.tmp"], &["raw/x", "sub/raw/x.tmp"]),
            ("raw**tmp", &["rawtmp", "raw/x.tmp", "x/raw/y/z.tmp"], &["raw/x", "xraw/x.tmp"]),
            ("run[0-9].{log,err}", &["run1.log", "x/run2.err"], &["run.log", "run1.out"]),
        ] {
            let exclude = self::exclude(&[pattern]).unwrap();
            for name in out {
                assert!(exclude.leaves_out(Path::new(name), None, true), "{pattern}: {name}");
            }
            for name in stays {
                assert!(!exclude.leaves_out(Path::new(name), None, true), "{pattern}: {name}");
            }
        }
        // As in rsync, the source's name may precede the pattern.
        for pattern in ["top/raw", "./top/raw", "/top/raw"] {
            let exclude = self::exclude(&[pattern]).unwrap();
            assert!(exclude.leaves_out(Path::new("raw"), Some(Path::new("top")), false), "{pattern}");
            assert!(exclude.leaves_out(Path::new("top/raw"), Some(Path::new("top")), false), "{pattern}");
            assert!(!exclude.leaves_out(Path::new("raw"), Some(Path::new("other")), false), "{pattern}");
            assert!(!exclude.leaves_out(Path::new("raw"), None, false), "{pattern}");
        }
        for all in ["raw/**", "raw/*"] {
            assert!(
                self::exclude(&[all]).unwrap().leaves_out(Path::new("scratch"), Some(Path::new("raw")), false),
                "{all}"
            );
        }
        for below in ["*/scratch", "raw/", "/*/scratch"] {
            let exclude = self::exclude(&[below]).unwrap();
            assert!(!exclude.leaves_out(Path::new("scratch"), Some(Path::new("raw")), true), "{below}");
        }
        assert!(!Exclude::default().leaves_out(Path::new("a"), None, false));
        let deep = "{".repeat(2000) + "a" + &"}".repeat(2000);
        for bad in
            ["", "/", "./", ".", "***", "/***", "a***", "a/***/b", "[", "{a", &deep, &"x".repeat(MAX_PATTERN_BYTES)]
        {
            assert!(self::exclude(&[bad]).is_err(), "{bad}");
        }
        assert!(self::exclude(&vec!["a"; MAX_PATTERN_BYTES]).is_err());
        let long = "?".repeat(1000) + ".x";
        let most = vec![long.as_str(); 16];
        assert!(self::exclude(&most).unwrap().leaves_out(Path::new(&("y".repeat(1000) + ".x")), None, false));
    }
    #[test]
    fn the_first_rule_that_matches_decides() {
        let rules = |text: &str| {
            let rule = |word: &str| Rule { includes: word.starts_with('+'), pattern: word[1..].to_owned() };
            let rules = text.split_whitespace().map(rule).collect();
            Exclude::new(&Filter { rules, ..Filter::default() }).unwrap()
        };
        for (text, name, is_folder, out) in [
            ("+*.h5 -*", "a.h5", false, false),
            ("+*.h5 -*", "a.txt", false, true),
            ("+*.h5 -*", "sub", true, true),
            ("+*/ +*.h5 -*", "sub", true, false),
            ("+*/ +*.h5 -*", "sub", false, true),
            ("+*/ +*.h5 -*", "sub/a.h5", false, false),
            ("-* +*.h5", "a.h5", false, true),
            ("+/raw/keep -/raw/*", "raw/keep", false, false),
            ("+/raw/keep -/raw/*", "raw/x", false, true),
            ("-raw/", "raw", false, false),
            ("+raw/*** -*", "raw", true, false),
            ("+raw/*** -*", "raw/a/b", false, false),
            ("+raw/*** -*", "other", true, true),
            ("+raw/*** -*", "raw", false, true),
            ("-raw/", "x/raw", true, true),
            ("+keep.tmp -*.tmp", "x/keep.tmp", false, false),
        ] {
            assert_eq!(rules(text).leaves_out(Path::new(name), None, is_folder), out, "{text}: {name}");
        }
        assert!(!rules("+top/*** -*").leaves_out_source(Path::new("top"), true));
        assert!(!rules("+top/*** -*").leaves_out(Path::new("x"), Some(Path::new("top")), false));
        assert!(!rules("+top -*").leaves_out_source(Path::new("top"), true));
        assert!(rules("+top -*").leaves_out_source(Path::new("other"), true));
        assert!(!rules("+top/x -*").leaves_out(Path::new("x"), Some(Path::new("top")), false));
    }

    #[test]
    fn sizes() {
        let filter = Filter { min_size: Some(10), max_size: Some(20), ..Filter::default() };
        let exclude = Exclude::new(&filter).unwrap();
        assert_eq!([9, 10, 20, 21].map(|size| exclude.leaves_out_size(size)), [true, false, false, true]);
        assert!(!Exclude::default().leaves_out_size(u64::MAX));
    }
}
