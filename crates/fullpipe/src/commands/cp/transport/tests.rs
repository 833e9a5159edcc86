//! What is chosen between hosts and over paths.

use clap::Parser;

use super::*;

#[derive(Parser)]
struct Words {
    #[command(flatten)]
    how: TransportArgs,
}

/// What is chosen between two equal hosts whose kernels have these congestion controls and grant these buffers.
fn chosen(rtt_s: f64, ccs: &[&str], limits: &Limits) -> Chosen {
    let limits = Limits { ccs: ccs.iter().map(|&cc| cc.to_owned()).collect(), ..limits.clone() };
    let between =
        Between { rtt_s, via: Via::Tcp, relayed: false, mtu: Some(9000), sender: limits.clone(), receiver: limits };
    Words::parse_from(["cp"]).how.choose(&between).map_err(|e| e.to_string()).unwrap()
}

#[test]
fn a_sender_without_cubic_is_told_how_to_allow_it() {
    let why = |ccs: &[&str]| chosen(1e-4, ccs, &Limits::default()).why.concat();
    let text = why(&["reno", "bbr", "$(reboot)"]);
    assert!(
        text.ends_with("as root there: sysctl -w net.ipv4.tcp_allowed_congestion_control=\"reno bbr cubic\""),
        "{text}"
    );
    assert!(!why(&["reno", "cubic"]).contains("sysctl"));
}

#[test]
fn nothing_is_adjusted_behind_a_relay() {
    let limits = Limits { send: 1 << 30, receive: 1 << 30, ccs: vec!["cubic".to_owned()], ..Limits::default() };
    let mut between =
        Between { rtt_s: 0.127, via: Via::Tcp, relayed: false, mtu: None, sender: limits.clone(), receiver: limits };
    let how = Words::parse_from(["cp"]).how;
    assert!(how.choose(&between).map_err(|e| e.to_string()).unwrap().sizing.is_some());
    between.relayed = true;
    let chosen = how.choose(&between).map_err(|e| e.to_string()).unwrap();
    assert!(chosen.sizing.is_none());
    assert!(chosen.why.iter().any(|why| why.contains("a relay")), "{:?}", chosen.why);
}

#[test]
fn a_limit_of_the_rate_stays_one_and_leaves_the_rest_to_the_copy() {
    let stock = Limits {
        send: 212_992,
        receive: 212_992,
        tuned_send: 4 << 20,
        tuned_receive: 6 << 20,
        ccs: vec!["cubic".to_owned(), "bbr".to_owned()],
        ..Limits::default()
    };
    let (sender, receiver) = (stock.clone(), stock);
    let between = Between { rtt_s: 0.0916, via: Via::Tcp, relayed: false, mtu: Some(1500), sender, receiver };
    let choose = |words: &str| {
        let how = Words::parse_from(std::iter::once("cp").chain(words.split_whitespace())).how;
        let chosen = how.choose(&between).map_err(|e| e.to_string()).unwrap();
        let assumed = how.assumed_bps(&chosen);
        (chosen.sizing, chosen.transport.pacing, chosen.transport.streams, assumed)
    };
    let (all, none, most, path) = choose("");
    assert_eq!((all, none, path), (Some(SizingMode::All), None, 10_000_000_000));
    let (sizing, pacing, streams, assumed) = choose("--bwlimit 300mbit");
    assert_eq!((sizing, pacing, assumed), (Some(SizingMode::All), Some(Rate(300_000_000)), 300_000_000));
    assert!(streams < most / 4, "{streams} streams for 300 Mb/s, {most} without a limit");
    assert_eq!(choose("--bwlimit 100gbit").3, path);
    for words in ["--bwlimit 10mbit", "--bwlimit 300mbit --steady", "--bwlimit 300mbit --buffer auto"] {
        assert_eq!(choose(words).0, None, "{words}");
    }
    assert_eq!(choose("--bwlimit 10mbit --buffer sobas").0, Some(SizingMode::All));
}

/// A profile of UDT with these mean rates, Gb/s, alone and at a given rate, and of CUBIC with that one, at 91.6 ms.
fn profile(udt: f64, paced: f64, cubic: f64) -> tempfile::NamedTempFile {
    let entry = |transport: &str, gbps: f64| {
        format!(
            r#"{{"path":0,"workload":0,"transport":{{{transport},"streams":1,"buffer":"1GB"}},"rtt_ms":[91.6],"n":[1],
                "mean_bps":[{}],"sd_bps":[null]}}"#,
            gbps * 1e9
        )
    };
    let entries = [
        entry(r#""cc":"udt""#, udt),
        entry(r#""cc":"udt","pacing":"9.9gbit""#, paced),
        entry(r#""cc":"cubic""#, cubic),
    ];
    let text = format!(
        r#"{{"kind":"profile","version":2,"confidence":0.95,"workloads":[{{"duration":"10s"}}],
            "paths":[{{"rate_bps":1e10,"queue_bdp":1.0,"mtu":9000,"loss":0.0}}],"entries":[{}]}}"#,
        entries.join(",")
    );
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, text).unwrap();
    file
}

#[test]
fn udt_is_chosen_where_it_is_faster_and_can_be_used() {
    let file = profile(5.0, 9.5, 2.0);
    let tuned = Limits {
        send: 1 << 30,
        receive: 1 << 30,
        udp_receive: UDP_BUFFER.0,
        ccs: vec!["cubic".to_owned()],
        ..Limits::default()
    };
    let path = Between {
        rtt_s: 0.0916,
        via: Via::Tcp,
        relayed: false,
        mtu: Some(9000),
        sender: tuned.clone(),
        receiver: tuned.clone(),
    };
    let with = |file: &tempfile::NamedTempFile, words: &str, between: &Between| {
        let profile = ["cp", "--profile", file.path().to_str().unwrap()];
        let how = Words::parse_from(profile.into_iter().chain(words.split_whitespace())).how;
        let chosen = how.choose(between).map_err(|e| e.to_string()).unwrap();
        (how.spare(&chosen, between, None), chosen)
    };
    let (spare, chosen) = with(&file, "", &path);
    let Transport { cc, streams, buffer, pacing, dscp: _, mss: _ } = chosen.transport;
    // Not at the given rate, and with buffers for what the path holds, twice.
    assert_eq!((cc.as_str(), streams, pacing, spare), ("udt", 1, None, 0));
    assert_eq!((buffer, chosen.sizing), (Buffer::Bytes(Size(229_000_000)), None));
    assert_eq!((chosen.expected_bps, chosen.lacking), (Some(5e9), None));
    assert!(chosen.why[0].contains("5.000 Gb/s expected, and 2.000 Gb/s over TCP"), "{:?}", chosen.why);
    let dscp = |words| with(&file, words, &path).1.transport.dscp.map(|dscp| dscp.to_string());
    let marked = ["--dscp LE", "--dscp LE --transport udt", "--dscp LE --transport tcp", ""].map(dscp);
    assert_eq!(marked, [Some("LE".into()), Some("LE".into()), Some("LE".into()), None]);
    // What asks for something else, or is in the way.
    for words in ["--transport tcp", "-n 2", "--cc cubic", "--pacing 1gbit", "--buffer sobas", "--buffer 4MB"] {
        let (_, chosen) = with(&file, words, &path);
        assert!(chosen.transport.cc == "cubic" && chosen.lacking.is_none(), "{words}: {:?}", chosen.why);
    }
    let little = Limits { udp_receive: 212_992, ..tuned };
    for (between, says) in [
        (Between { relayed: true, ..path.clone() }, "carries no UDP"),
        (Between { receiver: little, ..path.clone() }, "hold only 212.992KB"),
    ] {
        let (_, chosen) = with(&file, "", &between);
        assert_eq!(chosen.transport.cc, "cubic");
        assert!(chosen.lacking.unwrap().contains(says), "{:?}", chosen.why);
    }
    let mut how = Words::parse_from(["cp", "--profile", file.path().to_str().unwrap()]).how;
    how.udp_is_closed = true;
    let chosen = how.choose(&path).map_err(|e| e.to_string()).unwrap();
    assert_eq!(chosen.transport.cc, "cubic");
    assert!(chosen.lacking.unwrap().ends_with("a copy over UDP failed before; --transport udt tries it"));
    // Little more is not worth it, and nothing is said.
    let (_, chosen) = with(&profile(2.1, 9.5, 2.0), "", &path);
    assert!(chosen.transport.cc == "cubic" && chosen.lacking.is_none(), "{:?}", chosen.why);
}

#[test]
fn what_was_measured_at_other_round_trip_times_is_not_chosen() {
    let file = profile(9.0, 9.5, 2.0);
    let text = std::fs::read_to_string(&file).unwrap();
    // All at 91.6 ms only; then UDT at 0.4 ms only, so that its rate says nothing of 91.6 ms.
    let local = text.replacen(r#""rtt_ms":[91.6]"#, r#""rtt_ms":[0.4]"#, 2);
    let limits = Limits {
        send: 1 << 30,
        receive: 1 << 30,
        udp_receive: UDP_BUFFER.0,
        ccs: vec!["cubic".to_owned()],
        ..Limits::default()
    };
    let between = |rtt_s: f64| Between {
        rtt_s,
        via: Via::Tcp,
        relayed: false,
        mtu: Some(9000),
        sender: limits.clone(),
        receiver: limits.clone(),
    };
    for (text, rtt_s, cc, says) in [
        (&text, 0.0916, "udt", None),
        (&text, 0.0458, "udt", Some("45.8 ms is outside the measured range; this is the rate at 91.6 ms")),
        (&local, 0.0916, "cubic", None),
        (&local, 0.183, "cubic", Some("183 ms is outside the measured range; this is the rate at 91.6 ms")),
    ] {
        std::fs::write(&file, text).unwrap();
        let how = Words::parse_from(["cp", "--profile", file.path().to_str().unwrap()]).how;
        let chosen = how.choose(&between(rtt_s)).map_err(|e| e.to_string()).unwrap();
        assert_eq!(chosen.transport.cc, cc, "{rtt_s}: {:?}", chosen.why);
        let said: Vec<&str> =
            chosen.why.iter().map(String::as_str).filter(|why| why.contains("outside the measured")).collect();
        assert_eq!(said, Vec::from_iter(says), "{rtt_s}");
    }
}

#[test]
fn a_copy_in_a_local_network_has_spare_streams_unless_a_flag_pins_them() {
    let limits = Limits { ccs: vec!["cubic".to_owned()], ..Limits::default() };
    let between =
        Between { rtt_s: 1e-4, via: Via::Tcp, relayed: false, mtu: None, sender: limits.clone(), receiver: limits };
    let spare = |words: &str, between: &Between, bytes| {
        let how = Words::parse_from(std::iter::once("cp").chain(words.split_whitespace())).how;
        let chosen = how.choose(between).map_err(|e| e.to_string()).unwrap();
        how.spare(&chosen, between, bytes)
    };
    for bytes in [None, Some(1 << 30)] {
        assert_eq!(spare("", &between, bytes), MOST_LOCAL_STREAMS - local_streams());
    }
    assert_eq!(spare("", &between, Some(100 << 20)), 0);
    for pins in ["-n 2", "--steady", "--buffer 4MB", "--pacing 1gbit", "--transport udt"] {
        assert_eq!(spare(pins, &between, None), 0, "{pins}");
    }
    assert_eq!(spare("", &Between { via: Via::Ssh, ..between }, None), 0);
}

/// Two hosts with the same limits, 91.6 ms apart.
fn far_apart(limits: Limits) -> Between {
    let (sender, receiver) = (limits.clone(), limits);
    Between { rtt_s: 0.0916, via: Via::Tcp, relayed: false, mtu: Some(9000), sender, receiver }
}

#[test]
fn a_buffer_that_is_not_granted_never_makes_windows_smaller() {
    let chosen = |asked: u64| {
        let between = far_apart(Limits {
            send: asked,
            receive: asked,
            tuned_send: 4 << 20,
            tuned_receive: 6 << 20,
            ccs: vec!["cubic".to_owned()],
            ..Limits::default()
        });
        let how = Words::parse_from(["cp", "--buffer", "8MB"]).how;
        how.choose(&between).map_err(|e| e.to_string()).unwrap()
    };
    let stock = chosen(212_992);
    assert_eq!(stock.transport.buffer, Buffer::Auto);
    let said =
        "the kernels grant 212.992KB of the 8MB asked for, less than the 2.726 MB of a stream that asks for nothing";
    assert!(stock.why.iter().any(|why| why.starts_with(said)), "{:?}", stock.why);
    assert_eq!(chosen(4_000_000).transport.buffer, Buffer::Bytes(Size(4_000_000)));
    assert_eq!(chosen(16_000_000).transport.buffer, Buffer::Bytes(Size(8_000_000)));
}

#[test]
fn more_streams_than_a_copy_has_are_not_chosen() {
    let file = profile(0.5, 0.5, 2.0);
    let text = std::fs::read_to_string(&file).unwrap();
    // Fastest over 128 streams, then over 4.
    let more = [(128, 9.0), (4, 7.0)].map(|(streams, gbps)| {
        format!(
            r#"{{"path":0,"workload":0,"transport":{{"cc":"cubic","streams":{streams},"buffer":"1GB"}},"rtt_ms":[91.6],"n":[1],
                "mean_bps":[{}],"sd_bps":[null]}},"#,
            gbps * 1e9
        )
    });
    std::fs::write(&file, text.replace(r#""entries":["#, &format!(r#""entries":[{}"#, more.concat()))).unwrap();
    let ccs = vec!["cubic".to_owned()];
    for (buffer, streams) in [(1 << 30, 4..=4), (4 << 20, 5..=MAX_STREAMS)] {
        let limits = Limits {
            send: buffer,
            receive: buffer,
            tuned_send: buffer,
            tuned_receive: buffer,
            ccs: ccs.clone(),
            ..Limits::default()
        };
        let between = far_apart(limits);
        let how = Words::parse_from(["cp", "--profile", file.path().to_str().unwrap()]).how;
        let chosen = how.choose(&between).map_err(|e| e.to_string()).unwrap();
        assert!(streams.contains(&chosen.transport.streams), "{}: {:?}", chosen.transport, chosen.why);
    }
}

#[test]
fn hosts_as_they_come_get_more_streams() {
    let stock =
        Limits { send: 212_992, receive: 212_992, tuned_send: 4 << 20, tuned_receive: 6 << 20, ..Limits::default() };
    let tuned = Limits { send: 1 << 30, receive: 1 << 30, ..stock.clone() };
    for (rtt_s, least, most) in [(0.0226, 8, 20), (0.0916, 30, 60), (0.183, 60, 64)] {
        let got = chosen(rtt_s, &["reno", "cubic"], &stock);
        let Transport { cc, streams, buffer, .. } = &got.transport;
        assert_eq!((cc.as_str(), *buffer), ("cubic", Buffer::Auto));
        assert!((least..=most).contains(streams), "{rtt_s}: {streams}");
        assert!(got.why.iter().any(|why| why.contains("let each have about 2.7")), "{:?}", got.why);
        assert!(got.lacking.is_some() && got.expected_bps > Some(2e9), "{:?}", got.expected_bps);
        // Where the kernels grant what the profile asks for, a transport of the profile is taken as it is.
        let other = chosen(rtt_s, &["reno", "cubic"], &tuned);
        assert!(other.why.iter().any(|why| why.contains("best in the profile")), "{:?}", other.why);
    }
    // A kernel that has told nothing.
    let silent = Limits { tuned_send: 0, ..stock };
    assert_eq!(chosen(0.0916, &["cubic"], &silent).transport.streams, FALLBACK_STREAMS);
}
