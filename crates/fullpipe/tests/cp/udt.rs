//! Copies whose data go over UDT.

use std::fs;

use crate::host::Host;
use crate::large::MIB;
use crate::tree::{bytes, leftovers, same, write};

/// A tree of large and small files.
fn a_tree(host: &Host) {
    write(host.file("tree/large"), bytes(20 * MIB, 1));
    write(host.file("tree/empty"), "");
    for i in 0..50 {
        write(host.file(&format!("tree/small/{i}")), bytes(i * 100, i as u64));
    }
}

#[test]
fn there_and_back() {
    let host = Host::start();
    a_tree(&host);
    for words in ["", "-n 4 --buffer 4MB", "--no-encrypt -n 2", "--pacing 400mbit --data-ports 50000-50015"] {
        for (push, from, to) in [(true, "tree", "there"), (false, "there", "back")] {
            let words = format!("-r -T --json --transport udt {words}");
            let done = host.copy(push, &words, from, to).ok();
            same(&host.file("tree"), &host.file(to));
            let lines = done.json();
            for line in [&lines[0], lines.last().unwrap()] {
                assert_eq!(line["transport"]["cc"], "udt", "{line}");
            }
        }
        assert!(leftovers(&host.file("")).is_empty());
        ["there", "back"].iter().for_each(|name| fs::remove_dir_all(host.file(name)).unwrap());
    }
}
