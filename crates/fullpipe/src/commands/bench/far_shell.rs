//! A shell at the other host, over ssh, that makes the folder for the data there, and removes it at its own end, whatever ends it.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use fullpipe_path::{ExitClass, text};
use fullpipe_transfer::connection::endpoint::{NAME_UNKNOWN, command_to_try};

use super::programs::FILE;
use crate::failure::{Failure, Result};
use crate::format::quoted;

/// Time between two looks for an interruption.
const LOOK: Duration = Duration::from_millis(50);
/// Time that the shell has to remove its folder and to end.
const END: Duration = Duration::from_secs(30);
/// Prints the SHA-256 of the file `$1`, where there is a program for that.
pub const DIGEST: &str = "sha256sum <\"$1\" 2>/dev/null || shasum -a 256 <\"$1\"";
/// Removes the folder `$d`, in which a program that was ended may still write for a moment.
const REMOVE: &str = "cd /; for i in 1 2 3 4 5; do rm -rf \"$d\" && break; sleep 1; done";

/// The shell. It ends when this is dropped.
pub struct FarShell {
    /// The host, as ssh takes it.
    pub host: String,
    /// The command that tries the connection.
    try_it: String,
    /// The folder for the data, once there is one.
    pub folder: String,
    ssh: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    errors: Receiver<String>,
    /// Begins the line that ends an answer.
    mark: String,
    interrupted: Arc<AtomicBool>,
}

/// The digest that [`DIGEST`] prints.
pub fn digest(printed: &str) -> Option<String> {
    let word = printed.split_whitespace().next()?;
    (word.len() == 64 && word.bytes().all(|byte| byte.is_ascii_hexdigit())).then(|| word.to_owned())
}

impl FarShell {
    /// Connects. Waits until the shell answers.
    ///
    /// # Errors
    /// ssh's, in its own words.
    pub fn start(ssh_words: &[String], host: &str, interrupted: &Arc<AtomicBool>) -> Result<FarShell> {
        let mut command = Command::new("sh");
        // An interruption on the terminal reaches all programs there. This one is to remove the folder first.
        command.args(["-c", "trap '' INT; exec \"$@\"", "sh"]).args(ssh_words).args([host, "exec sh"]);
        let started = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut ssh = started.map_err(|e| Failure::new(ExitClass::Missing, format!("cannot run ssh: {e}")))?;
        let (input, lines, errors) = (ssh.stdin.take(), lines(ssh.stdout.take()), lines(ssh.stderr.take()));
        let mark = format!("{:032x}", rand::random::<u128>());
        let words: Vec<_> = ssh_words.iter().map(std::ffi::OsString::from).collect();
        let try_it = command_to_try(&words, host, " true");
        let (host, folder, interrupted) = (host.to_owned(), String::new(), interrupted.clone());
        let mut shell = FarShell { host, try_it, folder, ssh, input, lines, errors, mark, interrupted };
        shell.ask(":")?;
        Ok(shell)
    }

    /// Has the shell run something. Returns whether that succeeded, and what it printed.
    fn ask(&mut self, script: &str) -> Result<(bool, String)> {
        let text = format!("{{ {script}\n}} </dev/null\nprintf '\\n%s %s\\n' {} $?\n", self.mark);
        let written = self.input.as_mut().map(|input| input.write_all(text.as_bytes()).and_then(|()| input.flush()));
        if !matches!(written, Some(Ok(()))) {
            return Err(self.lost());
        }
        let mut printed = String::new();
        loop {
            match self.lines.recv_timeout(LOOK) {
                Ok(line) => match line.strip_prefix(&self.mark) {
                    Some(status) => return Ok((status.trim() == "0", printed)),
                    None => {
                        printed.push_str(&line);
                        printed.push('\n');
                    }
                },
                Err(RecvTimeoutError::Disconnected) => return Err(self.lost()),
                Err(RecvTimeoutError::Timeout) if self.interrupted.load(Ordering::SeqCst) => {
                    return Err(stopped());
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Why ssh has ended.
    fn lost(&mut self) -> Failure {
        let mut said = Vec::new();
        while let Ok(line) = self.errors.recv_timeout(Duration::from_millis(500)) {
            said.push(line);
        }
        let last = said.iter().map(|line| line.trim()).rfind(|line| !line.is_empty());
        let why = last.map_or_else(|| "the connection has ended".to_owned(), text::from_peer);
        let class = if why.contains(NAME_UNKNOWN) { ExitClass::Usage } else { ExitClass::Peer };
        Failure::new(class, format!("ssh {}: {why}; to try it, run: {}", self.host, self.try_it))
    }

    /// Makes a folder for the data below this one.
    ///
    /// # Errors
    /// It cannot be made there.
    pub fn make_folder(&mut self, below: &str) -> Result {
        let script = format!(
            "d=$(CDPATH= cd {} && f=$(mktemp -d fullpipe-bench-XXXXXX) && cd \"$f\" && pwd -P) 2>&1; s=$?; printf '%s\\n' \"$d\"\n\
             [ $s = 0 ] && trap '{REMOVE}' EXIT && trap 'exit 1' HUP TERM PIPE",
            quoted(below)
        );
        let (made, printed) = self.ask(&script)?;
        let last = printed.lines().rfind(|line| !line.is_empty()).unwrap_or_default();
        if !made || !last.starts_with('/') {
            let why = text::from_peer(last);
            let why =
                format!("{}: no folder can be made in {below} ({why}); give another one as HOST:FOLDER", self.host);
            return Err(Failure::new(ExitClass::Peer, why));
        }
        last.clone_into(&mut self.folder);
        Ok(())
    }

    /// Free space for the data, bytes, if the host tells.
    ///
    /// # Errors
    /// The connection has ended.
    pub fn free(&mut self) -> Result<Option<u64>> {
        let (_, printed) = self.ask("df -Pk \"$d\" | { read -r first; read -r a b c free rest; echo \"$free\"; }")?;
        Ok(number(&printed).and_then(|kib| kib.checked_mul(1024)))
    }

    /// Whether the host has a program.
    ///
    /// # Errors
    /// The connection has ended.
    pub fn has(&mut self, program: &str) -> Result<bool> {
        Ok(self.ask(&format!("command -v {} >/dev/null 2>&1", quoted(program)))?.0)
    }

    /// Fills the file there with random data. Returns their digest, if the host has a program for that.
    ///
    /// # Errors
    /// The data cannot be written.
    pub fn make_data(&mut self, bytes: u64) -> Result<Option<String>> {
        let script =
            format!("head -c {bytes} /dev/urandom >\"$d/{FILE}\" && {{ sync \"$d/{FILE}\" 2>/dev/null; true; }}");
        let (made, _) = self.ask(&script)?;
        let (size, digest) = self.look(true)?;
        if !made || size != bytes {
            let why = format!("{}: {bytes} bytes of random data cannot be written to {}", self.host, self.folder);
            return Err(Failure::new(ExitClass::Peer, why));
        }
        Ok(digest)
    }

    /// The size of the file there, bytes, and its digest if that is wanted and the host has a program for that.
    ///
    /// # Errors
    /// The connection has ended.
    pub fn look(&mut self, with_digest: bool) -> Result<(u64, Option<String>)> {
        let (_, size) = self.ask(&format!("wc -c <\"$d/{FILE}\""))?;
        let digest = if with_digest { digest(&self.ask(&format!("set -- \"$d/{FILE}\"; {DIGEST}"))?.1) } else { None };
        Ok((number(&size).unwrap_or(0), digest))
    }

    /// Removes the file there.
    ///
    /// # Errors
    /// The connection has ended.
    pub fn remove_data(&mut self) -> Result {
        self.ask(&format!("rm -rf \"$d/{FILE}\"")).map(drop)
    }

    /// Has the shell remove its folder, and waits for that.
    ///
    /// # Errors
    /// Text: the folder may still be there.
    pub fn end(mut self) -> Result<(), String> {
        let folder = std::mem::take(&mut self.folder);
        // The shell ends at the end of its input, after what it does now.
        self.input = None;
        let until = Instant::now() + END;
        while Instant::now() < until {
            match self.ssh.try_wait() {
                Ok(None) => std::thread::sleep(LOOK),
                Ok(Some(status)) if status.code() != Some(255) || folder.is_empty() => return Ok(()),
                _ => break,
            }
        }
        if folder.is_empty() {
            Ok(())
        } else {
            Err(format!("{}:{folder} may not have been removed; look there", self.host))
        }
    }
}

impl Drop for FarShell {
    fn drop(&mut self) {
        self.input = None;
        // What has ended needs no signal.
        let _ = self.ssh.kill();
        let _ = self.ssh.wait();
    }
}

/// The failure of a comparison that its user has interrupted.
pub fn stopped() -> Failure {
    Failure::new(ExitClass::Interrupted, "interrupted; what was written has been removed")
}

fn number(printed: &str) -> Option<u64> {
    printed.split_whitespace().last()?.parse().ok()
}

/// The lines that a program prints, as they come.
fn lines(from: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (tell, lines) = mpsc::channel();
    if let Some(from) = from {
        std::thread::spawn(move || {
            for line in BufReader::new(from).split(b'\n').map_while(std::result::Result::ok) {
                // Nobody may wait for it any more.
                let _ = tell.send(String::from_utf8_lossy(&line).into_owned());
            }
        });
    }
    lines
}
