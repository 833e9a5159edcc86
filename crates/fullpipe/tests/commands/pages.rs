//! Completions and manual pages, as a shell and `man` take them.

use std::fs;
use std::process::Command;

use crate::common::{error, fullpipe, fullpipe_args};

#[test]
fn bash_completes_a_flag() {
    let made = fullpipe("completions bash");
    assert_eq!(error(&made), (0, String::new()));
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("fullpipe");
    fs::write(&script, made.stdout).unwrap();
    let ask = r#"source "$0"; COMP_WORDS=(fullpipe cp --stre); COMP_CWORD=2; _fullpipe fullpipe --stre cp; echo "${COMPREPLY[@]}""#;
    let found = Command::new("bash").arg("-c").arg(ask).arg(&script).output().unwrap();
    assert_eq!(String::from_utf8(found.stdout).unwrap().trim(), "--streams");
    let ask = r#"source "$0"; COMP_WORDS=(fullpipe ana); COMP_CWORD=1; _fullpipe fullpipe ana fullpipe; echo "${COMPREPLY[@]}""#;
    let found = Command::new("bash").arg("-c").arg(ask).arg(&script).output().unwrap();
    assert_eq!(String::from_utf8(found.stdout).unwrap().trim(), "analyze", "the Python part's verbs, too");
    assert_eq!(error(&fullpipe("completions csh")).0, 2);
}

#[test]
fn every_verb_has_a_page() {
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("share/man1");
    let at = pages.to_str().unwrap();
    assert_eq!(error(&fullpipe_args(&["man", at])), (0, String::new()));
    let text = |page: &str| fs::read_to_string(pages.join(page)).unwrap();
    assert!(text("fullpipe.1").contains("Exit codes"));
    for verb in ["measure", "cp", "serve", "token-new", "lab-run", "select", "doctor"] {
        let flags = String::from_utf8(fullpipe(&format!("{} --help", verb.replace('-', " "))).stdout).unwrap();
        let page = text(&format!("fullpipe-{verb}.1"));
        let told = flags.lines().filter(|line| line.trim_start().starts_with('-'));
        let mut names = 0;
        for flag in told.filter_map(|line| line.split_whitespace().find(|word| word.starts_with("--"))) {
            // Without the value, as of `--probe[=<TIME>]`.
            let name = flag.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').next().unwrap();
            names += 1;
            assert!(page.contains(&name.replace('-', "\\-")), "{verb}: {name}");
        }
        assert!(names > 3, "{verb}: {flags}");
    }
    for verb in ["campaign", "analyze", "report"] {
        assert!(text(&format!("fullpipe-{verb}.1")).contains(&format!("fullpipe {verb} \\-\\-help")), "{verb}");
    }
    // Hidden: nobody types it.
    assert!(!pages.join("fullpipe-far.1").exists());
    let (code, said) = error(&fullpipe("man /proc/nowhere"));
    assert_eq!((code, said.lines().count()), (5, 1), "{said}");
}

/// `-h` fits a screen; `--help` has everything, under headings.
#[test]
fn the_short_help_of_cp_has_what_most_copies_need() {
    let help = |flag: &str| String::from_utf8(fullpipe(&format!("cp {flag}")).stdout).unwrap();
    let (short, long) = (help("-h"), help("--help"));
    let flags = |text: &str| text.lines().filter(|line| line.trim_start().starts_with('-')).count();
    assert!((12..=20).contains(&flags(&short)) && flags(&long) > 40, "{short}");
    for flag in ["--recursive", "--update", "--delete", "--exclude", "--dry-run", "--pacing"] {
        assert!(short.contains(flag) && long.contains(flag), "{flag}: {short}");
    }
    assert!(!short.contains("--sobas") && short.contains("fullpipe cp --help"), "{short}");
    assert!(long.contains("What is left out:") && long.contains("Examples:"), "{long}");
}
