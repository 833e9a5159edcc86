//! The programs that are tried, and how each is run: as a user would type it, over the user's ssh.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::format::quoted;

/// The name of the file that is copied, at both ends.
pub const FILE: &str = "data";
/// The name of this program.
pub const FULLPIPE: &str = "fullpipe";
/// The name of the program that runs ssh with its options, in the folder for the data.
const WRAPPER: &str = "ssh";

/// What all programs need to know.
pub struct Ends {
    /// This program.
    pub me: PathBuf,
    /// ssh, with its options.
    pub ssh: Vec<String>,
    /// The options as scp takes them; none if ssh is another command.
    pub native: Option<Vec<String>>,
    /// The other host, as it was typed.
    pub host: String,
    /// The other host, as ssh takes it.
    pub ssh_host: String,
    /// Flags for `fullpipe cp`.
    pub cp: Vec<String>,
    /// Whether the copy goes to the other host.
    pub push: bool,
    /// The file at this host.
    pub here: PathBuf,
    /// The file at the other host.
    pub there: String,
}

/// A program to run.
pub struct Run {
    /// Its words.
    pub words: Vec<OsString>,
    /// The file from which it reads.
    pub input: Option<PathBuf>,
    /// The file to which it writes.
    pub output: Option<PathBuf>,
    /// The folder whose programs it finds before all others.
    pub path_first: Option<PathBuf>,
}

/// A program that copies.
pub struct Program {
    /// Its name in the results.
    pub name: &'static str,
    /// What this host must have.
    pub here: Option<&'static str>,
    /// What the other host must have.
    pub there: Option<&'static str>,
    /// Why it cannot be run, if it cannot.
    pub unfit: fn(&Ends) -> Option<&'static str>,
    /// How it is run.
    pub run: fn(&Ends) -> Run,
}

/// The programs, in the order in which they are tried.
pub const PROGRAMS: [Program; 9] = [
    Program { name: FULLPIPE, here: None, there: None, unfit: fits, run: fullpipe },
    Program { name: "rsync", here: Some("rsync"), there: Some("rsync"), unfit: fits, run: rsync },
    Program { name: "scp", here: Some("scp"), there: None, unfit: fits, run: scp },
    Program { name: "ssh-cat", here: None, there: None, unfit: fits, run: ssh_cat },
    Program { name: "rclone", here: Some("rclone"), there: None, unfit: old_rclone, run: rclone },
    Program { name: "syq", here: Some("syq"), there: Some("syq"), unfit: fits, run: syq },
    Program { name: "rcp", here: Some("rcp"), there: Some("rcpd"), unfit: other_rcp, run: rcp },
    Program { name: "mscp", here: Some("mscp"), there: None, unfit: needs_plain_ssh, run: mscp },
    Program { name: "bbcp", here: Some("bbcp"), there: Some("bbcp"), unfit: fits, run: bbcp },
];

impl Ends {
    /// Writes the program that runs ssh with its options, for those programs that take a program alone.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write_wrapper(&self, folder: &Path) -> std::io::Result<()> {
        let file = folder.join(WRAPPER);
        // A program that is named ssh would find itself.
        let ssh = find_here(&self.ssh[0]).map_or_else(|| self.ssh[0].clone(), |ssh| ssh.to_string_lossy().into_owned());
        let words: Vec<_> = std::iter::once(&ssh).chain(&self.ssh[1..]).map(|word| quoted(word)).collect();
        fs::write(&file, format!("#!/bin/sh\nexec {} \"$@\"\n", words.join(" ")))?;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o700))
    }

    /// ssh with its options, as a shell takes it.
    fn command(&self) -> String {
        self.ssh.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
    }

    /// ssh as a program alone.
    fn program(&self) -> OsString {
        match (&self.ssh[..], self.here.parent()) {
            ([_, _, ..], Some(folder)) => folder.join(WRAPPER).into(),
            _ => self.ssh[0].clone().into(),
        }
    }

    /// Source and destination, as scp takes them.
    fn paths(&self) -> [OsString; 2] {
        let far = format!("{}:{}", self.host, self.there).into();
        self.in_order(self.here.clone().into(), far)
    }

    fn in_order(&self, here: OsString, there: OsString) -> [OsString; 2] {
        if self.push { [here, there] } else { [there, here] }
    }

    /// A program with these words, and what follows them.
    fn run(&self, program: impl AsRef<OsStr>, words: &[&str], rest: impl IntoIterator<Item = OsString>) -> Run {
        let words = std::iter::once(program.as_ref().to_owned()).chain(words.iter().map(OsString::from)).chain(rest);
        Run { words: words.collect(), input: None, output: None, path_first: None }
    }
}

/// Where this host has a program, by its name.
pub fn find_here(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

fn fits(_: &Ends) -> Option<&'static str> {
    None
}

/// rclone can use the user's ssh from 1.64 on.
fn old_rclone(_: &Ends) -> Option<&'static str> {
    let flags = Command::new("rclone").args(["help", "flags"]).stdin(Stdio::null()).output();
    let has_ssh = flags.is_ok_and(|flags| String::from_utf8_lossy(&flags.stdout).contains("--sftp-ssh"));
    (!has_ssh).then_some("before 1.64 it cannot use ssh")
}

/// mscp has an ssh of its own.
fn needs_plain_ssh(ends: &Ends) -> Option<&'static str> {
    ends.native.is_none().then_some("it takes no other ssh")
}

/// rcp is also the name of a part of rsh, and on some systems another name of scp.
fn other_rcp(ends: &Ends) -> Option<&'static str> {
    let version = Command::new("rcp").arg("--protocol-version").stdin(Stdio::null()).output();
    let is_meant = version.is_ok_and(|version| version.status.success() && version.stdout.starts_with(b"{"));
    let local = ["localhost", "127.0.0.1", "[::1]"].contains(&ends.host.to_lowercase().as_str());
    match (is_meant, local) {
        (false, _) => Some("not the one of rcp-tools"),
        (true, true) => Some("it copies to this host's own names without ssh"),
        (true, false) => None,
    }
}

fn fullpipe(ends: &Ends) -> Run {
    let cp = ends.cp.iter().map(OsString::from);
    ends.run(&ends.me, &["cp", "--quiet"], cp.chain(ends.paths()))
}

fn rsync(ends: &Ends) -> Run {
    ends.run("rsync", &["-t", "-e", &ends.command()], ends.paths())
}

fn scp(ends: &Ends) -> Run {
    ends.run("scp", &["-q", "-S"], [ends.program()].into_iter().chain(ends.paths()))
}

fn ssh_cat(ends: &Ends) -> Run {
    let there = quoted(&ends.there);
    let cat = if ends.push { format!("cat >{there}") } else { format!("cat {there}") };
    let words = ends.ssh.iter().chain([&ends.ssh_host, &cat]).map(OsString::from).collect();
    let (input, output) = if ends.push { (Some(&ends.here), None) } else { (None, Some(&ends.here)) };
    Run { words, input: input.cloned(), output: output.cloned(), path_first: None }
}

fn rclone(ends: &Ends) -> Run {
    let ssh = ends.ssh.iter().chain([&ends.ssh_host]).map(|word| comma_quoted(word)).collect::<Vec<_>>().join(" ");
    let far = format!(":sftp:{}", ends.there).into();
    ends.run("rclone", &["--config=", "--sftp-ssh", &ssh, "copyto"], ends.in_order(ends.here.clone().into(), far))
}

/// A word of a list as rclone reads it: in the way of CSV, with spaces for commas.
fn comma_quoted(word: &str) -> String {
    if word.is_empty() || word.contains([' ', '"', '\n', '\r']) {
        format!("\"{}\"", word.replace('"', "\"\""))
    } else {
        word.to_owned()
    }
}

fn syq(ends: &Ends) -> Run {
    let (command, there) = (ends.command(), Path::new(&ends.there));
    let folder = |file: &Path| file.parent().unwrap_or(Path::new("/")).as_os_str().to_owned();
    let (source, way, into) = if ends.push {
        (ends.here.as_os_str(), "--to", folder(there))
    } else {
        (there.as_os_str(), "--from", folder(&ends.here))
    };
    let words = [source.to_owned(), way.into(), ends.host.clone().into(), "--into".into(), into];
    // Without --no-bootstrap it would download a program to the other host.
    ends.run("syq", &["cp", "--quiet", "--no-bootstrap", "--rsh", &command], words)
}

fn rcp(ends: &Ends) -> Run {
    // It runs the ssh that it finds, and takes no other.
    let path_first = ends.here.parent().map(Path::to_owned);
    Run { path_first, ..ends.run("rcp", &[], ends.paths()) }
}

fn mscp(ends: &Ends) -> Run {
    let native = ends.native.iter().flatten().map(OsString::from);
    ends.run("mscp", &["-q"], native.chain(ends.paths()))
}

fn bbcp(ends: &Ends) -> Run {
    // It replaces %I by the option for a key, %U by the user and %H by the host.
    let start = format!("{} -x -a %I -l %U %H bbcp", ends.command());
    ends.run("bbcp", &["-f", if ends.push { "-T" } else { "-S" }, &start], ends.paths())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(push: bool) -> Ends {
        Ends {
            me: "/bin/fullpipe".into(),
            ssh: ["ssh", "-F", "my config", "-p", "7"].map(str::to_owned).into(),
            native: None,
            host: "me@[::1]".to_owned(),
            ssh_host: "me@::1".to_owned(),
            cp: vec!["-P".to_owned(), "7".to_owned()],
            push,
            here: "/here/data".into(),
            there: "/there/data".to_owned(),
        }
    }

    #[test]
    fn words_as_a_user_types_them() {
        let words = |name: &str, push| {
            let program = PROGRAMS.iter().find(|program| program.name == name).unwrap();
            let run = (program.run)(&ends(push));
            let words: Vec<_> = run.words.iter().map(|word| word.to_str().unwrap().to_owned()).collect();
            words.join("|")
        };
        assert_eq!(words("fullpipe", true), "/bin/fullpipe|cp|--quiet|-P|7|/here/data|me@[::1]:/there/data");
        assert_eq!(words("rsync", false), "rsync|-t|-e|ssh -F 'my config' -p 7|me@[::1]:/there/data|/here/data");
        assert_eq!(words("scp", true), "scp|-q|-S|/here/ssh|/here/data|me@[::1]:/there/data");
        assert_eq!(words("ssh-cat", true), "ssh|-F|my config|-p|7|me@::1|cat >/there/data");
        assert_eq!(
            words("syq", false),
            "syq|cp|--quiet|--no-bootstrap|--rsh|ssh -F 'my config' -p 7|/there/data|--from|me@[::1]|--into|/here"
        );
        assert_eq!(
            words("rclone", true),
            "rclone|--config=|--sftp-ssh|ssh -F \"my config\" -p 7 me@::1|copyto|/here/data|:sftp:/there/data"
        );
        assert_eq!(words("rcp", true), "rcp|/here/data|me@[::1]:/there/data");
    }

    #[test]
    fn a_list_of_rclone() {
        for (word, expected) in [("ssh", "ssh"), ("a b", "\"a b\""), ("a\"b", "\"a\"\"b\""), ("", "\"\"")] {
            assert_eq!(comma_quoted(word), expected);
        }
    }
}
