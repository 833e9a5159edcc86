//! Flags of rsync and scp that `cp` does not have, and what to use instead. The command line's own guess would be of a flag that
//! happens to look alike.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Flags with the same meaning, and what to do instead.
const INSTEAD: [(&[&str], &str); 37] = [
    (
        &["-z", "-C", "--compress", "--zc", "--zl"],
        "nothing is compressed; compress before the copy: zstd -c x | fullpipe cp - host:x.zst",
    ),
    (
        &["--partial", "--partial-dir", "--append", "--append-verify"],
        "leave it out: an interrupted copy always resumes, and a file gets its name when it is whole",
    ),
    (
        &["--progress", "--info", "--stats", "--out-format", "--debug"],
        "leave it out: progress is shown on a terminal; --json and -v tell more",
    ),
    (&["--human-readable"], "leave it out: sizes always have units"),
    (
        &["-t", "--times", "--perms", "-E", "--executability", "--links", "-W", "--whole-file", "-S", "--sparse"],
        "leave it out: that is always so",
    ),
    (
        &["--owner", "-g", "--group", "--numeric-ids"],
        "leave it out: where the receiver is root, owners and groups are kept, as numbers",
    ),
    (&["-o"], "leave rsync's out: where the receiver is root, owners are kept; for scp's, use --ssh \"ssh -o ...\""),
    (&["-l"], "leave rsync's out: links are always kept; for scp's, use --bwlimit RATE, such as 10mbit"),
    (&["-3"], "use --via ssh, which sends the data through this host"),
    (&["-4", "-6"], "use --ssh \"ssh -4\" or --ssh \"ssh -6\", which are for ssh's own connection"),
    (&["-D", "--devices", "--specials"], "leave it out: devices and FIFOs are never copied"),
    (&["--no-o", "--no-g", "--no-group"], "use --no-owner, which is for owners and groups"),
    (
        &["--no-p", "--no-perms", "--no-t", "--no-times"],
        "use --chmod to say what permissions to have; times are always kept",
    ),
    (&["-d", "--dirs"], "use --files-from to copy folders without their content"),
    (&["-R", "--relative"], "use --files-from: the folders on the way to each listed name are made"),
    (&["-e", "--rsh"], "use --ssh COMMAND"),
    (&["--rsync-path"], "use --far-program PROGRAM"),
    (
        &["--timeout", "--contimeout"],
        "use --stall TIME, such as 30s, after which it connects again; with --retries 0 it ends",
    ),
    (
        &["--delete-after", "--delete-during", "--delete-before", "--delete-delay", "--del"],
        "use --delete, which deletes once everything has arrived",
    ),
    (&["--delete-excluded"], "what is excluded is never deleted; use --delete"),
    (&["-f", "--filter"], "use --include, --exclude or --exclude-from"),
    (&["--mkpath"], "end DST with a slash: then its folders are made"),
    (&["--archive"], "use -a, or --recursive: permissions, times and links are always kept"),
    (&["--size-only"], "use --quick-check, which compares sizes and times, or -c, which compares contents"),
    (
        &["--existing", "--ignore-existing"],
        "nothing here is like it; --dry-run -v names what would be copied, and --files-from copies a part of that",
    ),
    (
        &["-b", "--backup", "--backup-dir", "--suffix", "--link-dest", "--copy-dest", "--compare-dest"],
        "no older files are kept; keep snapshots at the destination",
    ),
    (&["-y", "--fuzzy", "--no-whole-file", "--no-W"], "files are sent whole, over all streams"),
    (&["--itemize-changes"], "use -v to name what is copied"),
    (&["--password-file"], "use --token-file FILE"),
    (&["-B", "-F"], "use --ssh \"ssh -o ...\" for options of ssh"),
    (&["--list-only"], "use ssh HOST ls to list files"),
    (&["--copy-links"], "use -L, which copies what links point to"),
    (
        &["--safe-links", "--copy-unsafe-links", "--munge-links", "-k", "--copy-dirlinks", "-K", "--keep-dirlinks"],
        "links are copied as links, and none below DST is followed; -L copies what they point to",
    ),
    (&["-m", "--prune-empty-dirs"], "empty folders are copied, too; --files-from copies only what it lists"),
    (&["-O", "--omit-dir-times"], "leave it out: times of folders are always kept"),
    (&["--temp-dir"], "a file comes under a hidden name beside its own; --inplace writes into the one that is there"),
    (
        &["--transfers", "--checkers", "--multi-thread-streams"],
        "leave it out: the number of streams is chosen; -n sets it",
    ),
];

/// What to say of a flag that `cp` does not have; `None` if it is not known from elsewhere.
fn instead(flag: &str) -> Option<&'static str> {
    INSTEAD.iter().find(|(flags, _)| flags.contains(&flag)).map(|(_, instead)| *instead)
}

/// The words that are clusters of letters, such as `-avP`, of which the last is `last`. The letters before it are of flags without
/// a value, so that the next word is the last one's value.
fn clusters(words: &[String], last: char) -> impl Iterator<Item = &String> {
    let cp = <super::Args as clap::Args>::augment_args(clap::Command::new("cp"));
    let switches = cp.get_arguments().filter(|arg| !arg.get_action().takes_values());
    let letters: Vec<char> = switches.filter_map(clap::Arg::get_short_and_visible_aliases).flatten().collect();
    words.iter().take_while(|word| *word != "--").filter(move |word| {
        let rest = word.strip_prefix('-').and_then(|letters| letters.strip_suffix(last));
        rest.is_some_and(|rest| !rest.is_empty() && rest.chars().all(|letter| letters.contains(&letter)))
    })
}

/// What is wrong with a command line that can be read, but in which a flag of another program has taken a source for its value.
/// `words` are those behind `cp`.
pub fn misread(words: &[String]) -> Option<String> {
    // `-ai` asks rsync to list changes.
    let word = clusters(words, 'i').next()?;
    let rest = word.trim_end_matches('i');
    Some(format!(
        "-i is ssh's key here: write {rest} without i, and -v to name what is copied; for a key, write {rest} -i FILE"
    ))
}

/// What is wrong with a command line, if the cause is a flag of another program. `words` are those behind `cp`.
pub fn wrong(error: &clap::Error, words: &[String]) -> Option<String> {
    match error.kind() {
        ErrorKind::UnknownArgument => {
            let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg) else { return None };
            let name = flag.split('=').next().unwrap_or(flag);
            Some(format!("'fullpipe cp' has no {name}: {}", instead(name)?))
        }
        // `-avh` asks rsync for sizes with units.
        ErrorKind::DisplayHelp if !words.iter().any(|word| word == "-h" || word == "--help") => {
            let is_cluster = |word: &&String| word.len() > 2 && word.starts_with('-') && !word.starts_with("--");
            let word = words.iter().find(|word| is_cluster(word) && word.ends_with('h'))?;
            Some(format!("-h is help here: write {word} without h, as sizes always have units"))
        }
        // `-avP` and `-avn` of rsync take no value.
        ErrorKind::ValueValidation => {
            let text = |kind| match error.get(kind) {
                Some(ContextValue::String(text)) => Some(text),
                _ => None,
            };
            let flag = text(ContextKind::InvalidArg)?.split(' ').next()?;
            let (letter, is_here, instead) = match flag {
                "--port" => ('P', "ssh's port", "leave P out, as copies always resume and show progress on a terminal"),
                "--streams" => ('n', "the number of streams", "to copy nothing, use --dry-run"),
                _ => return None,
            };
            let alone = format!("-{letter}");
            clusters(words, letter).next().or_else(|| words.iter().find(|word| **word == alone))?;
            let value = text(ContextKind::InvalidValue)?;
            Some(format!("-{letter} is {is_here} here, and '{value}' is none: {instead}"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_are_of_letters_without_values() {
        let found = |words: &str, last| {
            let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
            clusters(&words, last).cloned().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(found("-avi x -ri -i -xi --ai ai -Pi -ii -avh", 'i'), "-avi -ri -xi");
        assert_eq!(found("-aP -- -rP", 'P'), "-aP");
    }

    #[test]
    fn each_flag_is_named_once_and_no_advice_is_about_a_flag_that_cp_has() {
        let cp = <super::super::Args as clap::Args>::augment_args(clap::Command::new("cp"));
        let mut known = std::collections::HashSet::new();
        for flag in INSTEAD.iter().flat_map(|(flags, _)| flags.iter()) {
            assert!(known.insert(flag), "{flag}");
            let is_of_cp = cp.get_arguments().any(|arg| {
                let long = arg.get_long().map(|long| format!("--{long}"));
                let shorts = arg.get_short_and_visible_aliases().unwrap_or_default();
                long.as_deref() == Some(*flag) || shorts.iter().any(|short| format!("-{short}") == **flag)
            });
            assert!(!is_of_cp, "{flag}");
        }
    }
}
