//! The real binary, run as a person runs it.
#![allow(dead_code, clippy::panic, clippy::unwrap_used, reason = "each test uses its part, and may panic")]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// No folder: so that the user's own configuration files change no test.
pub const NO_CONFIG: &str = "/nonexistent";

/// Runs `fullpipe` with words separated by spaces.
pub fn fullpipe(words: &str) -> Output {
    fullpipe_args(&words.split_whitespace().collect::<Vec<_>>())
}

/// Runs `fullpipe`.
pub fn fullpipe_args(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fullpipe"));
    command.args(args).env("XDG_CONFIG_HOME", NO_CONFIG).stdin(Stdio::null()).output().unwrap()
}

/// Its only line on stderr, and its exit code.
pub fn error(output: &Output) -> (i32, String) {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!text.contains("panicked at"), "{text}");
    (output.status.code().unwrap_or(-1), text)
}

/// Lines of stdout as JSON.
pub fn json_lines(output: &Output) -> Vec<serde_json::Value> {
    let (code, text) = error(output);
    assert_eq!(code, 0, "{text}");
    String::from_utf8_lossy(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A record without what names real time and the host.
pub fn without_real(mut lines: Vec<serde_json::Value>) -> Vec<serde_json::Value> {
    for line in &mut lines {
        line.as_object_mut().unwrap().remove("real");
    }
    lines
}

/// `fullpipe serve` on loopback, ended when dropped.
pub struct Server {
    child: Child,
    /// HOST:PORT.
    pub address: String,
    /// The first line of its log.
    pub listening: serde_json::Value,
    log: Arc<Mutex<Vec<serde_json::Value>>>,
}

impl Server {
    /// Starts one on a port that the kernel chooses.
    pub fn start(flags: &str) -> Server {
        Server::run(Command::new(env!("CARGO_BIN_EXE_fullpipe")), flags)
    }

    /// Starts one as an ordinary user would, without what the kernel lets an administrator of networks do; needs root.
    pub fn start_without_capabilities(flags: &str) -> Server {
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set=-net_admin", "--inh-caps=-net_admin", env!("CARGO_BIN_EXE_fullpipe")]);
        Server::run(command, flags)
    }

    fn run(mut program: Command, flags: &str) -> Server {
        let mut child = program
            .args(["serve", "--port", "0", "--json"])
            .args(if flags.contains("--bind") { &[][..] } else { &["--bind", "127.0.0.1"][..] })
            .args(flags.split_whitespace())
            .env("XDG_CONFIG_HOME", NO_CONFIG)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first: serde_json::Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        let address = first["address"].as_str().unwrap().to_owned();
        // It must not fill the pipe.
        let log: Arc<Mutex<Vec<serde_json::Value>>> = Arc::default();
        let kept = log.clone();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                kept.lock().unwrap().push(serde_json::from_str(&line).unwrap());
            }
        });
        Server { child, address, listening: first, log }
    }

    /// Its log, once so many clients have gone.
    pub fn log(&self, clients: usize) -> Vec<serde_json::Value> {
        self.log_with("end", clients)
    }

    /// Its log, once it has so many lines of a kind.
    pub fn log_with(&self, kind: &str, count: usize) -> Vec<serde_json::Value> {
        for _ in 0..500 {
            let log = self.log.lock().unwrap().clone();
            if log.iter().filter(|line| line["kind"] == kind).count() >= count {
                return log;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("fewer than {count} times {kind}: {:?}", self.log.lock().unwrap());
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it still runs.
    pub fn alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
