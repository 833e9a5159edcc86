//! `fullpipe select`: what it prints of a choice.

#![allow(clippy::unwrap_used, reason = "a test may panic; that is how it fails")]

use std::process::{Command, Output};

fn select(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_fullpipe")).arg("select").args(words).output().unwrap()
}

fn text(words: &[&str]) -> String {
    let done = select(words);
    assert!(done.status.success(), "{done:?}");
    String::from_utf8(done.stdout).unwrap()
}

const PATH: [&str; 3] = ["lab:rtt=91.6ms,rate=10gbit", "--loss", "0"];

#[test]
fn the_rate_says_over_what_it_is_and_a_size_has_its_own() {
    let long = text(&PATH);
    assert!(long.contains(" over 10s, start-up included\n"), "{long}");
    let short = text(&[&PATH[..], &["--size", "1GB"]].concat());
    let line = short.lines().nth(2).unwrap();
    assert!(line.starts_with("1GB         about ") && line.contains("larger part"), "{short}");
    let json: serde_json::Value =
        serde_json::from_str(&text(&[&PATH[..], &["--size", "1GB", "--json"]].concat())).unwrap();
    let (mean, rate) = (&json["choice"]["expected"]["mean_bps"], &json["for_size"]["rate_bps"]);
    // The testbed's share of that mean is 0.6 to 0.7.
    let share = rate.as_f64().unwrap() / mean.as_f64().unwrap();
    assert!((0.5..0.8).contains(&share), "{json}");
    assert_eq!(json["for_size"]["bytes"], 1_000_000_000);
}

#[test]
fn an_uncertain_choice_names_commands_that_measure_it() {
    let done = select(&["--rtt", "91.6ms", "--rate", "10gbit", "--certain", "95%"]);
    assert_eq!(done.status.code(), Some(1), "{done:?}");
    let text = String::from_utf8(done.stderr).unwrap();
    let line = text.lines().find(|line| line.contains("fullpipe measure")).unwrap();
    let (path, flags) =
        line.split_once("fullpipe measure ").unwrap().1.split_once("; done").unwrap().0.split_once(' ').unwrap();
    assert!(matches!(path.parse(), Ok(fullpipe_path::Path::Lab(_))), "{path}");
    assert!(flags.ends_with("--duration 10s --seed $seed --out runs"), "{flags}");
    assert!(text.contains("\n  fullpipe analyze runs\n"), "{text}");
}
