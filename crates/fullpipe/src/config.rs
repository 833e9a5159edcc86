//! The configuration files: flags of `cp` for hosts, by their names. What is typed, and the environment, count more.
//!
//! ```toml
//! [host."*.example.org"]
//! via = "ssh"
//! data-ports = "50000-51000"
//! ```

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use clap::Command;
use clap::parser::ValueSource;
use fullpipe_path::transport::UDT;
use fullpipe_transfer::connection::token;
use globset::{GlobBuilder, GlobMatcher};
use toml::{Table, Value};

use crate::failure::{Failure, Result, reason, toml_reason};
use crate::token_files;
use crate::xdg;

/// The file of the whole system. The user's counts more.
const SYSTEM: &str = "/etc/fullpipe/config.toml";
/// Largest file that is read, bytes.
const MAX_BYTES: u64 = 1 << 20;
/// The flags of `cp` that a file may set: those that belong to a host or to the path to it.
pub const FLAGS: [&str; 23] = [
    "via",
    "data-ports",
    "ssh",
    "port",
    "identity",
    "jump",
    "far-program",
    "far-binary",
    "no-deploy",
    "token-file",
    "insecure",
    "no-encrypt",
    "stall",
    "retries",
    "profile",
    "rate",
    "loss",
    "queue",
    "pacing",
    "transport",
    "streams",
    "cc",
    "buffer",
];
/// Flags that have an effect only on copies over ssh, and those that have one only on copies to or from a server.
pub const OVER_SSH: [&str; 9] =
    ["port", "identity", "jump", "ssh", "far-program", "far-binary", "no-deploy", "data-ports", "via"];
pub const WITH_SERVER: [&str; 2] = ["token-file", "insecure"];
/// The flags that name files, in which `~/` is the home folder.
const FILES: [&str; 4] = ["identity", "far-binary", "token-file", "profile"];

/// How a host is reached, which decides what has an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reached {
    /// Over ssh.
    OverSsh,
    /// As a server.
    AsServer,
}

impl Reached {
    /// Whether a flag has an effect on copies to such a host. A section may have flags for both kinds.
    fn takes(self, flag: &str) -> bool {
        let other: &[&str] = match self {
            Reached::OverSsh => &WITH_SERVER,
            Reached::AsServer => &OVER_SSH,
        };
        !other.contains(&flag)
    }
}

/// A flag, with its value or with any.
type Pattern = (&'static str, Option<&'static str>);

const OVER_UDT: Pattern = ("transport", Some(UDT));
const SIZED_BY_SOBAS: Pattern = ("buffer", Some("sobas"));

/// What `cp` refuses beside each other, besides the flags that its command line says exclude each other.
const EXCLUDING: [(Pattern, Pattern); 10] = [
    (OVER_UDT, ("via", Some("ssh"))),
    (OVER_UDT, ("via", Some("reverse"))),
    (OVER_UDT, ("profile", None)),
    (OVER_UDT, ("rate", None)),
    (OVER_UDT, ("loss", None)),
    (OVER_UDT, ("queue", None)),
    (OVER_UDT, ("cc", None)),
    (OVER_UDT, SIZED_BY_SOBAS),
    (SIZED_BY_SOBAS, ("pacing", None)),
    (SIZED_BY_SOBAS, ("steady", None)),
];

/// The sections of the configuration files, those that count more last.
pub struct Config {
    sections: Vec<Section>,
}

/// What a file says of the hosts with some names.
struct Section {
    file: PathBuf,
    /// Its pattern for names of hosts.
    pattern: String,
    hosts: GlobMatcher,
    flags: Table,
}

/// A flag that a file sets.
#[derive(Debug, Clone, PartialEq)]
pub struct Setting {
    /// Name of the flag, without dashes.
    pub flag: String,
    /// Its value. A flag without one has `true`.
    pub value: String,
    /// The file and the section that set it.
    pub from: String,
    /// The word for the command line; none if the flag is turned off.
    word: Option<String>,
}

/// The name of a host in what is typed: without user, port, path, `fullpipe://` and `ssh:`.
pub fn host_name(typed: &str) -> &str {
    let rest = typed.strip_prefix("fullpipe://").or_else(|| typed.strip_prefix("ssh:")).unwrap_or(typed);
    let rest = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
    match rest.strip_prefix('[') {
        Some(address) => address.split(']').next().unwrap_or(address),
        // Several colons are those of an IPv6 address.
        None if rest.matches(':').count() == 1 => rest.split(':').next().unwrap_or(rest),
        None => rest.split('/').next().unwrap_or(rest),
    }
}

/// The places of the files, the one that counts more last.
pub fn files() -> Vec<PathBuf> {
    let user = xdg::config_folder().map(|folder| folder.join("config.toml"));
    [PathBuf::from(SYSTEM)].into_iter().chain(user).collect()
}

impl Config {
    /// Reads the files that exist.
    ///
    /// # Errors
    /// One cannot be read, can be written by others, or says what it may not.
    pub fn read() -> Result<Config> {
        let mut sections = Vec::new();
        for file in files() {
            if let Some(text) = text_of(&file)? {
                sections.extend(sections_of(&file, &text)?);
            }
        }
        Ok(Config { sections })
    }

    /// The flags of `cp` for a host, each once, beside those that are typed; only those that have an effect, if it is known how the
    /// host is reached. In a file, the longest pattern counts; a flag is left out if another one that excludes it counts more, and
    /// what is typed counts most.
    ///
    /// # Errors
    /// A section sets flags that exclude each other.
    pub fn settings(
        &self,
        cp: &Command,
        host: &str,
        typed: Vec<Setting>,
        reached: Option<Reached>,
    ) -> Result<Vec<Setting>> {
        let typed_count = typed.len();
        let mut settings = typed;
        for section in self.sections.iter().filter(|section| section.hosts.is_match(host)).rev() {
            let known = settings.len();
            for (flag, value) in section.flags.iter().filter(|(flag, _)| reached.is_none_or(|how| how.takes(flag))) {
                let setting = section.setting(flag, value);
                match settings.iter().position(|other| other.flag == *flag || other.excludes(cp, &setting)) {
                    None => settings.push(setting),
                    Some(other) if other < known => {}
                    Some(other) => {
                        let why = format!("sets '{flag}' and '{}', which exclude each other", settings[other].flag);
                        return Err(Failure::usage(format!("{} {why}", setting.from)));
                    }
                }
            }
        }
        Ok(settings.split_off(typed_count))
    }
}

impl Setting {
    /// The value as it is given to `cp`, empty for a flag without one; none if the flag is turned off.
    pub fn given(&self) -> Option<&str> {
        self.word.as_deref().map(|word| word.split_once('=').map_or("", |(_, value)| value))
    }

    /// A flag that is typed.
    fn typed(flag: &str, value: String) -> Setting {
        Setting { flag: flag.to_owned(), value, from: String::new(), word: Some(String::new()) }
    }

    /// Whether `cp` refuses this flag beside another one.
    fn excludes(&self, cp: &Command, other: &Setting) -> bool {
        if self.word.is_none() || other.word.is_none() {
            return false;
        }
        let conflicts = |one: &Setting, other: &Setting| {
            let arg = cp.get_arguments().find(|arg| arg.get_id().as_str() == one.id());
            arg.is_some_and(|arg| cp.get_arg_conflicts_with(arg).iter().any(|arg| arg.get_id().as_str() == other.id()))
        };
        let is = |setting: &Setting, (flag, value): Pattern| {
            setting.flag == flag && value.is_none_or(|value| setting.value == value)
        };
        conflicts(self, other)
            || conflicts(other, self)
            || EXCLUDING.iter().any(|(a, b)| is(self, *a) && is(other, *b) || is(self, *b) && is(other, *a))
    }

    /// Name of the flag within the program.
    fn id(&self) -> String {
        self.flag.replace('-', "_")
    }
}

impl Section {
    fn setting(&self, flag: &str, value: &Value) -> Setting {
        let word = match value {
            Value::Boolean(false) => None,
            Value::Boolean(true) => Some(format!("--{flag}")),
            _ => {
                let value = text_of_value(value);
                let home = std::env::var("HOME").ok().filter(|_| FILES.contains(&flag));
                let path = home.zip(value.strip_prefix("~/")).map(|(home, rest)| format!("{home}/{rest}"));
                Some(format!("--{flag}={}", path.unwrap_or(value)))
            }
        };
        let value = text_of_value(value);
        let from = format!("{}, [host.\"{}\"]", self.file.display(), self.pattern);
        Setting { flag: flag.to_owned(), value, from, word }
    }
}

/// A value as it is typed.
fn text_of_value(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The text of a file, if there is one.
fn text_of(file: &Path) -> Result<Option<String>> {
    let fail = |why: String| Failure::usage(format!("cannot read {}: {why}", file.display()));
    let opened = match File::options().read(true).custom_flags(libc::O_NONBLOCK).open(file) {
        Ok(opened) => opened,
        // Another user's home may be closed to this one, as after 'su'.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR | libc::EACCES)) => {
            return Ok(None);
        }
        Err(error) => return Err(fail(error.to_string())),
    };
    let meta = opened.metadata().map_err(|error| fail(error.to_string()))?;
    if !meta.is_file() || meta.len() > MAX_BYTES {
        return Err(fail(format!("it is no file of at most {MAX_BYTES} bytes")));
    }
    // It names programs that run.
    token::check_own(file, &meta)?;
    let mut text = String::new();
    opened.take(MAX_BYTES).read_to_string(&mut text).map_err(|error| fail(error.to_string()))?;
    Ok(Some(text))
}

/// The sections of a file, the longest pattern last.
fn sections_of(file: &Path, text: &str) -> Result<Vec<Section>> {
    let wrong = |why: String| Failure::usage(format!("{}: {why}", file.display()));
    let table: Table = text.parse().map_err(|error: toml::de::Error| wrong(toml_reason(text, &error)))?;
    let mut sections = Vec::new();
    for (key, value) in table {
        let Value::Table(hosts) = value else {
            return Err(wrong(format!("'{key}' is in no section; write [host.\"NAME\"] above it")));
        };
        if key != "host" {
            return Err(wrong(format!(
                "there is no section [{key}]; write [host.\"NAME\"], where NAME may be a pattern"
            )));
        }
        for (pattern, flags) in hosts {
            let section = format!("[host.\"{pattern}\"]");
            let Value::Table(flags) = flags else {
                return Err(wrong(format!("'{pattern}' is no section; write {section}")));
            };
            for (flag, value) in &flags {
                if !FLAGS.contains(&flag.as_str()) {
                    let known = FLAGS.join(", ");
                    let hint = if flag == "bwlimit" { "; it is called pacing here" } else { "" };
                    return Err(wrong(format!("{section} sets '{flag}', which is none of {known}{hint}")));
                }
                if !matches!(value, Value::String(_) | Value::Integer(_) | Value::Float(_) | Value::Boolean(_)) {
                    return Err(wrong(format!("{section}: give '{flag}' a text, a number, true or false")));
                }
            }
            let hosts = GlobBuilder::new(&pattern).case_insensitive(true).build();
            let hosts = hosts.map_err(|error| wrong(format!("{section}: {error}")))?.compile_matcher();
            sections.push(Section { file: file.to_owned(), pattern, hosts, flags });
        }
    }
    sections.sort_by_key(|section| section.pattern.len());
    Ok(sections)
}

/// Adds what the files set for a host to a command line of `cp` that has been found right. What is typed, what excludes it,
/// and the environment count more.
///
/// # Errors
/// A file is wrong, or sets a value that `cp` does not take.
pub fn configured(cli: &Command, words: &[OsString], host: &str, reached: Reached) -> Result<Vec<OsString>> {
    let Some(cp) = cli.find_subcommand("cp") else { return Ok(words.to_vec()) };
    let parse = |words: &[OsString]| cli.clone().try_get_matches_from(words);
    let matches = parse(words).map_err(Failure::usage)?;
    let Some(("cp", matches)) = matches.subcommand() else { return Ok(words.to_vec()) };
    let ids = cp.get_arguments().map(|arg| arg.get_id().as_str());
    let typed = ids.filter(|id| matches.value_source(id) == Some(ValueSource::CommandLine)).map(|id| {
        let value = matches.try_get_raw(id).ok().flatten().and_then(|mut values| values.next());
        Setting::typed(&id.replace('_', "-"), value.map_or_else(String::new, |value| value.to_string_lossy().into()))
    });
    let environment = token_files::is_in_environment().then(|| Setting::typed("token-file", String::new()));
    let settings = Config::read()?.settings(cp, host, typed.chain(environment).collect(), Some(reached))?;
    if settings.is_empty() {
        return Ok(words.to_vec());
    }
    let mut added = Vec::new();
    for setting in &settings {
        let Some(word) = &setting.word else { continue };
        let alone = [&words[..1], &["cp".into(), "a".into(), "b:".into(), word.into()]].concat();
        if let Err(error) = parse(&alone)
            && error.kind() != clap::error::ErrorKind::MissingRequiredArgument
        {
            return Err(Failure::usage(format!("{}: {}", setting.from, reason(&error))));
        }
        added.push(OsString::from(word));
    }
    let all = [&words[..2], &added, &words[2..]].concat();
    parse(&all)
        .map_err(|error| Failure::usage(format!("{} (with what the configuration sets for {host})", reason(&error))))?;
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_the_same_name_however_it_is_typed() {
        for typed in
            ["far", "me@far", "me@far:", "far:dir/x", "fullpipe://far", "fullpipe://far:7412/x", "far/", "ssh:me@far"]
        {
            assert_eq!(host_name(typed), "far", "{typed}");
        }
        assert_eq!((host_name("fullpipe://[::1]:7412/x"), host_name("fe80::1%eth0")), ("::1", "fe80::1%eth0"));
    }

    fn config(text: &str) -> Result<Config> {
        Ok(Config { sections: sections_of(Path::new("/c.toml"), text)? })
    }

    fn values(config: &Config, host: &str) -> Vec<(String, String)> {
        config
            .settings(&Command::new("cp"), host, Vec::new(), None)
            .unwrap_or_else(|failure| panic!("{failure}"))
            .into_iter()
            .map(|setting| (setting.flag, setting.value))
            .collect()
    }

    #[test]
    fn the_longest_pattern_counts() {
        let text = "[host.\"*.example.org\"]\nvia = \"ssh\"\nport = 2222\n[host.\"*\"]\nvia = \"tcp\"\nno-deploy = true\n\
                    [host.\"a.example.org\"]\nno-deploy = false";
        let config = config(text).unwrap_or_else(|failure| panic!("{failure}"));
        let pair = |flag: &str, value: &str| (flag.to_owned(), value.to_owned());
        let mut found = values(&config, "A.example.ORG");
        found.sort();
        assert_eq!(found, [pair("no-deploy", "false"), pair("port", "2222"), pair("via", "ssh")]);
        let mut found = values(&config, "elsewhere");
        found.sort();
        assert_eq!(found, [pair("no-deploy", "true"), pair("via", "tcp")]);
        let settings = config
            .settings(&Command::new("cp"), "a.example.org", Vec::new(), None)
            .unwrap_or_else(|failure| panic!("{failure}"));
        let deploy = settings.into_iter().find(|setting| setting.flag == "no-deploy");
        assert_eq!(deploy.and_then(|setting| setting.word), None);
    }

    #[test]
    fn what_a_file_may_not_say_is_named() {
        for (text, part) in [
            ("via = \"ssh\"", "'via' is in no section"),
            ("[hosts.a]\nvia = \"ssh\"", "no section [hosts]"),
            ("[host]\na = 1", "'a' is no section"),
            ("[host.a]\nverbose = true", "[host.\"a\"] sets 'verbose'"),
            ("[host.a]\nport = [1]", "give 'port' a text"),
            ("[host.\"[\"]\nport = 1", "[host.\"[\"]"),
            ("[host.a]\n\nport = ", "line 3"),
        ] {
            let failure = config(text).err().unwrap_or_else(|| panic!("{text}"));
            assert!(failure.to_string().contains(part), "{failure}");
        }
    }
}
