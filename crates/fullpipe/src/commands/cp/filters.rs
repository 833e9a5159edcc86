//! The flags that say what is left out of a copy. The order of patterns matters, which derived arguments do not keep: so these are
//! read by hand.

use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use fullpipe_path::Size;
use fullpipe_transfer::protocol::message::{Filter, Rule};

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
        command
            .arg(size("max-size", "Leave out files larger than SIZE, such as 10MB"))
            .arg(size("min-size", "Leave out files smaller than SIZE"))
            .arg(
                Arg::new("one-file-system")
                    .long("one-file-system")
                    .short('x')
                    .action(ArgAction::SetTrue)
                    .help("Do not enter folders on which another file system is mounted")
                    .help_heading(HEADING),
            )
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
        self.given.is_empty() && self.min_size.is_none() && self.max_size.is_none() && !self.one_file_system
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
                "FILE" => {
                    rules.extend(lines(flag, Path::new(value))?.into_iter().map(|pattern| Rule { includes, pattern }))
                }
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

/// The patterns in a file; `-` is standard input.
fn lines(flag: &str, file: &Path) -> Result<Vec<String>> {
    let read =
        if file == Path::new("-") { std::io::read_to_string(std::io::stdin()) } else { std::fs::read_to_string(file) };
    let text = read.map_err(|e| Failure::usage(format!("--{flag} {}: {e}", PathBuf::from(file).display())))?;
    let is_rule = |line: &&str| !line.trim().is_empty() && !line.starts_with(['#', ';']);
    let lines: Vec<String> = text.lines().filter(is_rule).map(str::to_owned).collect();
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
