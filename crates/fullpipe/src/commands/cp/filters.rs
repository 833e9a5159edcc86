//! The flags that say what of the sources is copied, and what is left out. The order of patterns matters, which derived arguments do not keep: so these are
//! read by hand.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Arg, ArgAction, ArgGroup, ArgMatches, Command, value_parser};
use fullpipe_path::Size;
use fullpipe_transfer::protocol::message::{Filter, Rule};
use fullpipe_transfer::source::name_list::NameList;

use crate::failure::{Failure, Result};

/// The heading of these flags in the help text.
const HEADING: &str = "What is left out";

/// A flag with patterns: its name, the name of its value, whether the patterns include, and its help.
const FLAGS: [(&str, &str, bool, &str); 4] = [
    (
        "exclude",
        "GLOB",
        false,
        "Exclude files and folders whose name or path below the source matches GLOB, such as '*.tmp' or 'raw/**'; may be \
         repeated",
    ),
    (
        "include",
        "GLOB",
        true,
        "Copy what matches GLOB, whatever later patterns exclude: of all patterns, the first that matches decides",
    ),
    (
        "exclude-from",
        "FILE",
        false,
        "Exclude what the lines of FILE match; empty lines and those that begin with # or ; do not count",
    ),
    ("include-from", "FILE", true, "Copy what the lines of FILE match"),
];

/// What the command line leaves out.
#[derive(Debug, Clone, Default)]
pub struct Filters {
    /// The flags with patterns, in the order in which they were given: the flag's number, and its value.
    given: Vec<(usize, String)>,
    min_size: Option<Size>,
    max_size: Option<Size>,
    one_file_system: bool,
    files_from: Option<PathBuf>,
    from0: bool,
}

impl clap::Args for Filters {
    fn augment_args(command: Command) -> Command {
        let command = FLAGS.iter().fold(command, |command, (flag, value, _, help)| {
            let arg = Arg::new(*flag).long(*flag).value_name(*value).action(ArgAction::Append);
            command.arg(arg.value_parser(value_parser!(String)).help(*help).help_heading(HEADING))
        });
        let size = |flag: &'static str, help: &'static str| {
            Arg::new(flag)
                .long(flag)
                .value_name("SIZE")
                .value_parser(value_parser!(Size))
                .help(help)
                .help_heading(HEADING)
        };
        let switch = |flag: &'static str, short: char, help: &'static str| {
            Arg::new(flag).long(flag).short(short).action(ArgAction::SetTrue).help(help).help_heading(HEADING)
        };
        let files_from = "Copy only what FILE lists: names below the one source, each on a line; '-' is standard input. Listed \
                          folders are copied without their content, unless -r is given";
        command
            .arg(
                Arg::new("files-from")
                    .long("files-from")
                    .value_name("FILE")
                    .value_parser(value_parser!(PathBuf))
                    .help(files_from)
                    .help_heading(HEADING),
            )
            .arg(
                switch(
                    "from0",
                    '0',
                    "In the files of --files-from, --exclude-from and --include-from, names end with a zero byte",
                )
                .requires("files"),
            )
            .group(ArgGroup::new("files").args(["files-from", "exclude-from", "include-from"]).multiple(true))
            .arg(size("max-size", "Leave out files larger than SIZE, such as 10MB"))
            .arg(size("min-size", "Leave out files smaller than SIZE"))
            .arg(switch("one-file-system", 'x', "Do not enter folders on which another file system is mounted"))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Filters::augment_args(command)
    }
}

impl clap::FromArgMatches for Filters {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Filters, clap::Error> {
        let mut given: Vec<(usize, usize, String)> = Vec::new();
        for (number, (flag, ..)) in FLAGS.iter().enumerate() {
            let places = matches.indices_of(flag).into_iter().flatten();
            let values = matches.get_many::<String>(flag).into_iter().flatten();
            given.extend(places.zip(values).map(|(place, value)| (place, number, value.clone())));
        }
        given.sort_unstable();
        Ok(Filters {
            given: given.into_iter().map(|(_, number, value)| (number, value)).collect(),
            min_size: matches.get_one("min-size").copied(),
            max_size: matches.get_one("max-size").copied(),
            one_file_system: matches.get_flag("one-file-system"),
            files_from: matches.get_one("files-from").cloned(),
            from0: matches.get_flag("from0"),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Filters::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Filters {
    /// Whether nothing is left out.
    pub fn is_empty(&self) -> bool {
        self.given.is_empty()
            && self.min_size.is_none()
            && self.max_size.is_none()
            && !self.one_file_system
            && !self.has_list()
    }

    /// Whether the copy is limited to a list of names.
    pub fn has_list(&self) -> bool {
        self.files_from.is_some()
    }

    /// Reads the list of names to which the copy is limited, if it is.
    ///
    /// # Errors
    /// The list cannot be read or is too long.
    pub fn list(&self) -> Result<Option<Arc<NameList>>> {
        let Some(file) = &self.files_from else { return Ok(None) };
        let patterns_too = self.given.iter().any(|(number, value)| FLAGS[*number].1 == "FILE" && value == "-");
        if patterns_too && file == Path::new("-") {
            return Err(Failure::usage("standard input can be read once; give --files-from or the patterns as a file"));
        }
        let text = read("files-from", file)?;
        // As in rsync, lines may end as on Windows, and some are comments. What ends with a zero byte is a name.
        let is_comment = |name: &[u8]| !self.from0 && matches!(name.first(), Some(b'#' | b';'));
        let ends: &[u8] = if self.from0 { &[0] } else { b"\r\n" };
        let names = text.split(|byte| ends.contains(byte)).filter(|name| !name.is_empty() && !is_comment(name));
        Ok(Some(Arc::new(NameList::new(names)?)))
    }

    /// Reads the patterns, also those in files.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn read(&self) -> Result<Filter> {
        let mut rules = Vec::new();
        for (number, value) in &self.given {
            let (flag, value_name, includes, _) = FLAGS[*number];
            match value_name {
                "FILE" => rules.extend(
                    lines(flag, Path::new(value), self.from0)?.into_iter().map(|pattern| Rule { includes, pattern }),
                ),
                _ => rules.push(Rule { includes, pattern: value.clone() }),
            }
        }
        let (min_size, max_size) = (self.min_size.map(|size| size.0), self.max_size.map(|size| size.0));
        Ok(Filter { rules, min_size, max_size, one_file_system: self.one_file_system })
    }

    /// The same flags for another fullpipe, which may not see the files with patterns.
    ///
    /// # Errors
    /// Those of [`Filters::read`].
    pub fn passed_on(&self) -> Result<Vec<String>> {
        let filter = self.read()?;
        let rule = |rule: Rule| format!("--{}={}", if rule.includes { "include" } else { "exclude" }, rule.pattern);
        let mut words: Vec<String> = filter.rules.into_iter().map(rule).collect();
        words.extend(self.min_size.map(|size| format!("--min-size={size}")));
        words.extend(self.max_size.map(|size| format!("--max-size={size}")));
        words.extend(self.one_file_system.then(|| "--one-file-system".to_owned()));
        Ok(words)
    }
}

/// Reads the file of a flag; `-` is standard input.
fn read(flag: &str, file: &Path) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    let read = match file == Path::new("-") {
        true if crate::closed::stdin() => Err(std::io::Error::from_raw_os_error(libc::EBADF)),
        true => std::io::stdin().read_to_end(&mut text).map(drop),
        false => std::fs::read(file).map(|read| text = read),
    };
    read.map_err(|e| Failure::usage(format!("--{flag} {}: {e}", file.display())))?;
    Ok(text)
}

/// The patterns in a file, each on a line, or each with a zero byte behind it.
fn lines(flag: &str, file: &Path, from0: bool) -> Result<Vec<String>> {
    let text = String::from_utf8(read(flag, file)?);
    let text = text.map_err(|e| Failure::usage(format!("--{flag} {}: {e}", file.display())))?;
    let is_rule = |line: &&str| !line.trim().is_empty() && !line.starts_with(['#', ';']);
    // As in rsync, what ends with a zero byte is a pattern, whatever it begins with.
    let lines: Vec<&str> = if from0 {
        text.split('\0').filter(|line| !line.is_empty()).collect()
    } else {
        text.lines().filter(is_rule).collect()
    };
    let lines: Vec<String> = lines.into_iter().map(str::to_owned).collect();
    // As a pattern, such a line would match nothing that its writer means, and --delete would delete what it should protect.
    if let Some(line) = lines.iter().find(|line| line.starts_with("- ") || line.starts_with("+ ") || *line == "!") {
        return Err(Failure::usage(format!(
            "--{flag} {}: '{line}' is a rule of rsync's; write the pattern alone, and put what begins with '+' into another file \
             for --include-from",
            file.display()
        )));
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        filters: Filters,
    }

    #[test]
    fn each_pattern_before_a_zero_byte_counts() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("patterns");
        std::fs::write(&file, "#a\0;b\0 \0\0c\nd\0").unwrap();
        let read = |words: &str| {
            let line = format!("x {words} --exclude-from {}", file.display());
            let filters = Line::try_parse_from(line.split_whitespace()).unwrap_or_else(|e| panic!("{e}")).filters;
            let filter = filters.read().unwrap_or_else(|e| panic!("{e}"));
            filter.rules.into_iter().map(|rule| rule.pattern).collect::<Vec<_>>()
        };
        assert_eq!(read("-0"), ["#a", ";b", " ", "c\nd"]);
        std::fs::write(&file, "#a\n;b\n \n\nc\r\nd").unwrap();
        assert_eq!(read(""), ["c", "d"]);
    }

    #[test]
    fn patterns_keep_their_order() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("patterns");
        std::fs::write(&file, "# comment\n\n; another\nfrom-file\n b\n").unwrap();
        let line = format!(
            "x --include a --exclude b --exclude-from {} --include=c --exclude * -x --max-size 1KB",
            file.display()
        );
        let filters = Line::try_parse_from(line.split_whitespace()).unwrap_or_else(|e| panic!("{e}")).filters;
        let filter = filters.read().unwrap_or_else(|e| panic!("{e}"));
        let shown: Vec<String> = filter
            .rules
            .iter()
            .map(|rule| format!("{}{}", if rule.includes { '+' } else { '-' }, rule.pattern))
            .collect();
        assert_eq!(shown, ["+a", "-b", "-from-file", "- b", "+c", "-*"]);
        assert_eq!((filter.min_size, filter.max_size, filter.one_file_system), (None, Some(1000), true));
        let words = [vec!["x".to_owned()], filters.passed_on().unwrap_or_else(|e| panic!("{e}"))].concat();
        let again = Line::try_parse_from(words).unwrap_or_else(|e| panic!("{e}")).filters;
        assert_eq!(again.read().unwrap_or_else(|e| panic!("{e}")), filter);
        for line in ["- keep", "+ keep", "!"] {
            std::fs::write(&file, format!("a\n{line}\n")).unwrap();
            let why = filters.read().err().map(|e| e.to_string()).unwrap_or_default();
            assert!(why.contains(&format!("'{line}' is a rule of rsync's")), "{why}");
        }
        assert!(!filters.is_empty() && Filters::default().is_empty());
    }
}
