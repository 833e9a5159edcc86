//! A network of a test's own, behind a firewall.

use std::process::Command;

/// Runs a test in a network namespace with such a table of nftables. It needs root and nftables; without them it says so and
/// does nothing.
pub fn behind(table: &str, test: impl FnOnce() + Send) {
    if !nix::unistd::geteuid().is_root() || Command::new("nft").arg("--version").output().is_err() {
        return eprintln!("skipped: it needs root and nftables");
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
            for (program, words) in [("ip", &["link", "set", "lo", "up"][..]), ("nft", &[table])] {
                assert!(Command::new(program).args(words).status().unwrap().success(), "{program} {words:?}");
            }
            test();
        });
    });
}
