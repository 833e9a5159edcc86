//! Buffers that size themselves, from end to end.

use crate::host::Host;
use crate::tree::{bytes, same_content, write};

/// Long enough for the controller to decide before it is over.
const SIZE: usize = 300 << 20;

/// Without BBR slow start cannot begin again.
fn has_bbr() -> bool {
    let known = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap();
    known.split_whitespace().any(|cc| cc == "bbr")
}

/// The controller sits at the receiving end: at the far one when pushing, at this one when pulling. Either way
/// this end's output tells what it decides.
#[test]
fn what_the_controller_decides_is_told() {
    let host = Host::start();
    let (file, copy) = (host.file("data"), host.file("copy"));
    write(&file, bytes(SIZE, 1));
    for law in ["all", "paper"] {
        let ways: [(std::ffi::OsString, _); 2] =
            [(file.clone().into(), host.far("copy")), (host.far("data"), copy.clone().into())];
        for (from, to) in ways {
            let done = host.cp().words("--json -n 2 --buffer sobas --sobas").arg(law).arg(from).arg(to).ok();
            same_content(&file, &copy);
            std::fs::remove_file(&copy).unwrap();
            let lines = done.out.lines().map(|line| serde_json::from_str(line).unwrap());
            let lines: Vec<serde_json::Value> = lines.collect();
            let told = |what: &str| {
                let told = lines.iter().filter(|line| line["kind"] == "sobas" && line["what"] == what);
                told.cloned().collect::<Vec<_>>()
            };
            let [began] = &told("began")[..] else { panic!("{law}: {}", done.out) };
            let law = if law == "all" && !has_bbr() { "both" } else { law };
            assert_eq!((began["law"].as_str(), began["udp"].as_bool()), (Some(law), Some(true)), "{began}");
            let decided = told("decided");
            assert!(!decided.is_empty(), "{law}: {}", done.out);
            for line in &decided {
                assert!(line["state"].is_string() && line["why"].is_string(), "{line}");
                assert!(line["rtt_ns"].as_u64() > Some(0) && line["window"].as_u64() > Some(0), "{line}");
            }
            assert_eq!(lines.last().unwrap()["bytes"], SIZE);
        }
    }
}
