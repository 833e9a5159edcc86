//! Sends this program to a far host that has none of its version.
//!
//! The far host runs a script (`far.sh`) that looks for the program, asks for it over ssh's output if there is none, and
//! receives it over ssh's input. So ssh logs in once, and a host that has the program answers as if there were no script.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use fullpipe_path::text;
use sha2::{Digest, Sha256};

use crate::error::TransferError;
use crate::protocol::hello::PROTOCOL;

/// The script, with its comments and line breaks.
const SCRIPT: &str = include_str!("far.sh");
/// The first word of the line by which the script asks for the program.
const WANTED: &str = "fullpipe-wanted ";
/// The first word of the line by which the client answers.
const COMES: &str = "fullpipe-comes";
/// Digits of the program's hash in its name.
const NAME_HASH_DIGITS: usize = 16;

/// The machines that programs for Linux are built for: their number in the program's head (elf(5), `e_machine`), and their
/// name (uname(2)).
const MACHINES: [(u16, &str); 5] = [(62, "x86_64"), (183, "aarch64"), (243, "riscv64"), (21, "ppc64le"), (22, "s390x")];

/// A program that can be sent, and its name at the far host.
pub(super) struct Program {
    content: Vec<u8>,
    /// SHA-256 of the content, hexadecimal.
    hash: String,
    machine: &'static str,
    name: String,
}

impl Program {
    /// Reads a program; without a file, the one that runs.
    pub(super) fn read(file: Option<&Path>) -> Result<Program, TransferError> {
        let path = file.map_or_else(|| PathBuf::from("/proc/self/exe"), Path::to_owned);
        let what = || format!("cannot read the program for the far host, {}", path.display());
        let mut content = Vec::new();
        let read = File::open(&path).and_then(|mut file| file.read_to_end(&mut content));
        read.map_err(|source| match source.kind() {
            ErrorKind::NotFound => TransferError::Usage(format!("{}: there is no such file", what())),
            _ => TransferError::Local { what: what(), source },
        })?;
        let machine = machine(&content).ok_or_else(|| {
            TransferError::Usage(format!(
                "{} is no program for Linux; give a fullpipe with --far-binary",
                path.display()
            ))
        })?;
        let hash: String = Sha256::digest(&content).iter().map(|byte| format!("{byte:02x}")).collect();
        let name = format!("fullpipe-{}-{machine}-{}", env!("CARGO_PKG_VERSION"), &hash[..NAME_HASH_DIGITS]);
        Ok(Program { content, hash, machine, name })
    }

    /// Returns the words of the command that becomes the far end. With `may_receive`, the far host may ask for the program.
    pub(super) fn command(&self, may_receive: bool) -> String {
        let lines = SCRIPT.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        let script: Vec<_> = lines.collect();
        let receive = if may_receive { "yes" } else { "no" };
        format!("sh -c '{}' fullpipe {} {PROTOCOL} {receive}", script.join(" "), self.name)
    }

    /// Returns what the far host's line asks for; `None` if it is another line.
    pub(super) fn wanted(&self, line: &[u8]) -> Option<Request> {
        let line = std::str::from_utf8(line).ok()?.strip_suffix('\n')?.strip_prefix(WANTED)?;
        let mut words = line.strip_prefix(&self.name)?.strip_prefix(' ')?.splitn(2, ' ').map(text::from_peer);
        Some(Request { system: words.next()?, machine: words.next()? })
    }

    /// Returns the answer that comes before the program, and the program.
    pub(super) fn answer(&self) -> (String, &[u8]) {
        (format!("\n{COMES} {} {}\n", self.content.len(), self.hash), &self.content)
    }

    /// Frees the memory of the content, which is not sent any more.
    pub(super) fn forget_content(&mut self) {
        self.content = Vec::new();
    }

    /// Checks that the program can run at the far host.
    pub(super) fn check(&self, peer: &str, wanted: &Request) -> Result<(), TransferError> {
        let Request { system, machine } = wanted;
        if system == "Linux" && machine == self.machine {
            return Ok(());
        }
        let remedy = match &system[..] {
            "Linux" => {
                let version = env!("CARGO_PKG_VERSION");
                format!(
                    "name one for {machine} with --far-binary, such as that of fullpipe-{version}-{machine}-linux-static.tar.gz, \
                     which 'make dist' makes"
                )
            }
            _ => "fullpipe runs on Linux only".to_owned(),
        };
        Err(TransferError::Unreachable(format!(
            "{peer} has no fullpipe, and runs {system} on {machine}: this program is for Linux on {}; {remedy}",
            self.machine
        )))
    }

    /// The size for a person to read.
    pub(super) fn size(&self) -> String {
        format!("{:.1} MB", self.content.len() as f64 / 1e6)
    }
}

/// The system and machine of a far host that asks for the program (uname(1)).
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Request {
    system: String,
    machine: String,
}

/// The machine that a program is for; `None` if it is no program of a known machine.
fn machine(content: &[u8]) -> Option<&'static str> {
    let head = content.get(..20).filter(|head| head.starts_with(b"\x7fELF"))?;
    let number = [head[18], head[19]];
    // The sixth byte tells the order of bytes; s390x alone has the larger first.
    let number = if head[5] == 2 { u16::from_be_bytes(number) } else { u16::from_le_bytes(number) };
    MACHINES.iter().find(|(known, _)| *known == number).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn program() -> Program {
        Program::read(None).unwrap()
    }

    #[test]
    fn login_shells_read_the_script_alike() {
        let lines: String = SCRIPT.lines().filter(|line| !line.starts_with('#')).collect();
        assert!(!lines.contains(['\'', '!', '\\']), "{lines}");
        let command = program().command(false);
        let mut tried = 0;
        for shell in ["sh", "bash", "dash", "ksh", "zsh", "tcsh", "csh", "fish"] {
            let nowhere = tempfile::tempdir().unwrap();
            let mut run = Command::new(shell);
            run.arg("-c").arg(&command).env("HOME", nowhere.path()).env("PATH", "/usr/bin:/bin").stdin(Stdio::null());
            let Ok(out) = run.output() else { continue };
            let said = String::from_utf8_lossy(&out.stderr);
            assert_eq!((out.status.code(), said.trim()), (Some(127), "fullpipe is not there"), "{shell}");
            assert!(!nowhere.path().join(".cache/fullpipe").exists());
            tried += 1;
        }
        assert!(tried > 0);
    }

    #[test]
    fn only_its_own_line_asks_for_the_program() {
        let program = program();
        let line = format!("fullpipe-wanted {} Linux x86_64\n", program.name);
        let (system, machine) = ("Linux".to_owned(), "x86_64".to_owned());
        assert_eq!(program.wanted(line.as_bytes()), Some(Request { system, machine }));
        for other in
            [&line[..line.len() - 1], &line[1..], "fullpipe-wanted other Linux x86_64\n", "\n", "", "\u{fffd}\n"]
        {
            assert_eq!(program.wanted(other.as_bytes()), None, "{other}");
        }
        assert_eq!(program.wanted(b"\xff\n"), None);
    }

    #[test]
    fn the_head_of_a_program_tells_the_machine() {
        let head = |order: u8, number: [u8; 2]| {
            let mut head = vec![0; 64];
            head[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, order]);
            head[18..20].copy_from_slice(&number);
            machine(&head)
        };
        assert_eq!(head(1, [62, 0]), Some("x86_64"));
        assert_eq!(head(1, [183, 0]), Some("aarch64"));
        assert_eq!(head(2, [0, 22]), Some("s390x"));
        assert_eq!((head(1, [1, 1]), machine(b"#!/bin/sh"), machine(b"\x7fELF")), (None, None, None));
        assert_eq!(program().machine, std::env::consts::ARCH);
    }
}
