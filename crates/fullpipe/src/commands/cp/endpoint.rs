//! Where SRC and DST are: on this host, over ssh, on a server, or at the far end of an emulated path.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use fullpipe_path::{Host, LabPath, Path};
use fullpipe_transfer::client::Way;
use fullpipe_transfer::connection::endpoint::{Endpoint, FarProgram, SshEndpoint, Via};
use fullpipe_transfer::connection::token::Token;
use fullpipe_transfer::protocol::message::{Deletion, Sources, Target};
use fullpipe_transfer::resolve::{is_within, last, transfer};

use super::args::{Args, SEED};
use super::via::Wanted;
use crate::config::{self, Reached};
use crate::failure::{Failure, Result};
use crate::over_ssh::{self, SSH};
use crate::ports;

/// Schemes of other tools, refused with a hint. Any other word before `://` is a host: `host://path` is `host:/path` with a
/// slash too many.
const FOREIGN_SCHEMES: [&str; 9] = ["ssh", "scp", "sftp", "rsync", "http", "https", "ftp", "gsiftp", "file"];

/// Most letters in which a scheme may differ from `fullpipe` and count as that, misspelt.
const MAX_WRONG_LETTERS: usize = 2;

/// Whether a word is `fullpipe` but for letter case and at most two letters that are wrong, missing or too many.
fn is_misspelt(scheme: &str) -> bool {
    // The edit distance (Levenshtein 1966), row by row: `row[j]` is that of what was read to the first j letters.
    let right = "fullpipe";
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, typed) in scheme.to_lowercase().chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, letter) in right.chars().enumerate() {
            let replaced = diagonal + usize::from(letter != typed);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[right.len()] <= MAX_WRONG_LETTERS
}

/// A source or destination, as typed.
#[derive(Debug, Clone, PartialEq)]
pub enum Place {
    /// A path on this host.
    Local(Vec<u8>),
    /// Standard input as a source, standard output as the destination.
    Standard,
    /// A host that ssh reaches, and a path there.
    Ssh(String, Vec<u8>),
    /// A server: its host, its port, and a path there.
    Server(String, u16, Vec<u8>),
    /// An emulated path, and a folder that its far end writes to.
    Lab(Box<LabPath>, Vec<u8>),
}

/// Reads a source or destination. As with scp, a colon before any slash ends the name of a host; `./a:b` is a local file.
pub fn parse(typed: &OsStr) -> Result<Place> {
    let bytes = typed.as_bytes();
    if bytes.is_empty() {
        return Err(Failure::usage("one of the paths is empty; give the name of a file or folder"));
    }
    if bytes == b"-" {
        return Ok(Place::Standard);
    }
    let text = typed.to_string_lossy();
    if let Some(rest) = text.strip_prefix("fullpipe://") {
        let (place, path) = rest.split_once('/').unwrap_or((rest, ""));
        if !place.starts_with('[') && place.matches(':').count() > 1 {
            return Err(Failure::usage(format!(
                "{text}: write an IPv6 address in brackets, such as fullpipe://[::1]:7412/"
            )));
        }
        let host: fullpipe_path::Host = place.parse().map_err(|e: fullpipe_path::PathError| Failure::usage(e))?;
        let start = "fullpipe://".len() + place.len();
        let path = if path.is_empty() { b"/".to_vec() } else { bytes[start.min(bytes.len())..].to_vec() };
        return Ok(Place::Server(host.name, host.port, path));
    }
    if text.starts_with("lab:") {
        // Values of keys may have colons (cross=udp:400mbit): the folder begins at the first colon that leaves a valid path.
        let colons = (4..bytes.len()).filter(|&at| bytes[at] == b':');
        let mut paths: Vec<_> = colons.map(|at| (at, String::from_utf8_lossy(&bytes[..at]).parse::<Path>())).collect();
        // If none leaves a valid path, the last colon before a folder gives the most useful error.
        let valid = paths.iter().position(|(_, path)| path.is_ok());
        let before_folder = || paths.iter().rposition(|(at, _)| bytes[at + 1..].starts_with(b"/"));
        let found = valid.or_else(before_folder).or_else(|| paths.len().checked_sub(1));
        let Some(found) = found.filter(|_| text.parse::<Path>().is_err()) else {
            return Err(Failure::usage(if text.contains('=') {
                format!("{text}: add the folder to copy to, such as {text}:/tmp/")
            } else {
                format!("{text}: 'lab:' is the testbed; for a host of that name, write USER@{text}")
            }));
        };
        let (at, path) = paths.swap_remove(found);
        return match path? {
            Path::Lab(lab) => Ok(Place::Lab(lab, bytes[at + 1..].to_vec())),
            Path::Host(_) => {
                Err(Failure::usage(format!("{text} is not an emulated path; write lab:rtt=91.6ms,rate=10gbit:/PATH")))
            }
        };
    }
    if let Some((scheme, _)) = text.split_once("://").filter(|(scheme, _)| FOREIGN_SCHEMES.contains(scheme)) {
        let known = "write HOST:PATH (over ssh) or fullpipe://HOST:PORT/PATH (a server)";
        return Err(Failure::usage(format!("{text}: fullpipe does not speak {scheme}; {known}")));
    }
    if let Some((scheme, _)) = text.split_once("://").filter(|(scheme, _)| is_misspelt(scheme)) {
        return Err(Failure::usage(format!(
            "{text}: write a server as fullpipe://HOST:PORT/PATH; a host that is named '{scheme}' is {scheme}:/PATH"
        )));
    }
    // An IPv6 address has colons of its own, and stands in brackets.
    let start = bytes.iter().position(|b| *b == b']').filter(|_| text.starts_with('[') || text.contains("@["));
    let colon = bytes.iter().skip(start.unwrap_or(0)).position(|b| *b == b':').map(|at| at + start.unwrap_or(0));
    let slash = bytes.iter().position(|b| *b == b'/');
    match colon {
        Some(0) => Err(Failure::usage(format!("{text}: the name of a host is missing before the colon"))),
        Some(at) if slash.is_none_or(|slash| at < slash) => {
            let host = std::str::from_utf8(&bytes[..at])
                .map_err(|_| Failure::usage(format!("{text}: the name of the host is not UTF-8")))?;
            Ok(Place::Ssh(host.replace(['[', ']'], ""), bytes[at + 1..].to_vec()))
        }
        _ => Ok(Place::Local(bytes.to_vec())),
    }
}

impl Args {
    /// The real host of the destination, or of the sources if the destination is here, as typed, without the name of a user.
    pub fn host(&self) -> Option<(String, Reached)> {
        let (to, from) = self.paths.split_last()?;
        host_name(to).or_else(|| from.iter().find_map(host_name))
    }

    /// The real host of the sources of a copy between two hosts, as typed, without the name of a user.
    pub fn source_host(&self) -> Option<(String, Reached)> {
        let (to, from) = self.paths.split_last()?;
        host_name(to).and_then(|_| from.iter().find_map(host_name))
    }
}

/// The real host of a source or destination, without the name of a user, and how it is reached.
fn host_name(path: &OsString) -> Option<(String, Reached)> {
    match parse(path).ok()? {
        Place::Ssh(host, _) => {
            let name = host.rsplit_once('@').map_or(&host[..], |(_, name)| name);
            Some((name.to_owned(), Reached::OverSsh))
        }
        Place::Server(host, _, _) => Some((host, Reached::AsServer)),
        Place::Local(_) | Place::Standard | Place::Lab(..) => None,
    }
}

/// Finds the far end and the direction of a copy.
pub fn order(args: &Args, from: &[Place], to: &Place) -> Result<(Endpoint, Way)> {
    let from = &listed(args, from)?[..];
    let locals: Option<Vec<Vec<u8>>> =
        from.iter().map(|p| if let Place::Local(p) = p { Some(p.clone()) } else { None }).collect();
    let filter = args.filters.read()?;
    let changes = args.changes()?;
    let given = |paths: Vec<Vec<u8>>, patterns: bool| {
        let listed = args.filters.has_list();
        Sources { paths, filter: filter.clone(), patterns: patterns && !listed, listed }
    };
    let target = |path: &[u8], sources: &[Vec<u8>]| Target {
        path: path.to_vec(),
        folder: !args.no_target_directory && (path.ends_with(b"/") || path.ends_with(b"/.") || sources.len() > 1),
        exact: args.no_target_directory,
        file: false,
        content: sources.iter().any(|source| last(source).is_none()),
        delete: args.delete.then(|| Deletion { filter: filter.clone(), most: args.max_delete }),
        changes: changes.clone(),
        transfer: 0,
        process: 0,
    };
    if args.no_target_directory && from.len() > 1 {
        return Err(Failure::usage(
            "-T takes one source, of which DST is the new name; leave out -T, or the other sources",
        ));
    }
    let is_content = |place: &Place| matches!(place, Place::Local(p) | Place::Ssh(_, p) | Place::Server(_, _, p) if last(p).is_none());
    if args.delete && from.len() > 1 && from.iter().any(is_content) {
        return Err(Failure::usage(
            "--delete makes a folder like one source; give the content of one folder (SRC/.), or folders without '/.'",
        ));
    }
    match (locals, to) {
        (Some(_), Place::Local(_)) => Err(Failure::usage(
            "source and destination are both on this host; use cp, or name another host as HOST:PATH",
        )),
        (Some(sources), to) => {
            let is_folder = |source: &Vec<u8>| std::path::Path::new(OsStr::from_bytes(source)).is_dir();
            if !args.recursive && !args.filters.has_list() && sources.iter().all(is_folder) {
                let one = fullpipe_transfer::protocol::name::printable(&sources[0]);
                return Err(Failure::usage(format!("{one} is a folder; copy it with -r")));
            }
            let (endpoint, path, name) = far(args, to)?;
            let absolute: Vec<Vec<u8>> = sources.iter().map(|s| absolute(s)).collect();
            let mut target = target(&path, &sources);
            target.transfer = transfer(&name, &absolute, &path, args.xattrs, args.acls);
            Ok((endpoint, way(true, given(sources, false), target)))
        }
        (None, Place::Local(path)) => {
            let (endpoint, sources, name) = sources(args, from)?;
            let mut target = target(path, &sources);
            target.transfer = transfer(&name, &sources, &absolute(path), args.xattrs, args.acls);
            // A pattern may match several files, which need a folder.
            let patterns = target.folder || std::path::Path::new(OsStr::from_bytes(path)).is_dir();
            Ok((endpoint, way(false, given(sources, patterns), target)))
        }
        (None, _) => {
            let through_server = || {
                Failure::usage(
                    "a copy between two other hosts goes over ssh at both (HOST:PATH HOST:PATH); for a server's files, start the \
                     copy on one of the two hosts",
                )
            };
            if from.iter().chain([to]).any(|place| matches!(place, Place::Server(..))) {
                return Err(through_server());
            }
            let (source, sources, from) = sources(args.source.as_deref().unwrap_or(args), from)?;
            let (endpoint, path, to) = far(args, to)?;
            let (Endpoint::Ssh(source), Endpoint::Ssh(_)) = (source, &endpoint) else { return Err(through_server()) };
            check_third_party(args)?;
            // What patterns leave out may be the destination.
            if from == to
                && args.recursive
                && args.filters.is_empty()
                && let Some(source) = sources.iter().find(|source| is_within(&path, source))
            {
                let [path, source] = [&path, source].map(|path| fullpipe_transfer::protocol::name::printable(path));
                let why = format!("{to}:{path} is within {from}:{source}, which would be copied into itself");
                return Err(Failure::usage(format!("{why}; choose another DST, or leave it out with --exclude")));
            }
            let mut target = target(&path, &sources);
            target.transfer = transfer(&format!("{from} {to}"), &sources, &path, args.xattrs, args.acls);
            target.process = rand::random();
            let sources = given(sources, target.folder);
            Ok((endpoint, Way::ThirdParty(Box::new(source), sources, target)))
        }
    }
}

/// The one host of the sources, their paths there, and the host's name as part of a copy's identity.
fn sources(args: &Args, from: &[Place]) -> Result<(Endpoint, Vec<Vec<u8>>, String)> {
    let mut sources = Vec::new();
    let mut first: Option<(Endpoint, String)> = None;
    for place in from {
        let (endpoint, path, name) = far(args, place)?;
        if first.as_ref().is_some_and(|(_, known)| *known != name) {
            return Err(Failure::usage("the sources are on different hosts; copy from one host at a time"));
        }
        sources.push(path);
        first.get_or_insert((endpoint, name));
    }
    let (endpoint, name) = first.ok_or_else(|| Failure::usage("give SRC... DST"))?;
    Ok((endpoint, sources, name))
}

/// Refuses flags for which one end of the copy must be on this host.
fn check_third_party(args: &Args) -> Result<()> {
    if args.record.is_some() {
        return Err(Failure::usage(
            "--record needs an end of the copy on this host, whose kernel it records; start the copy on one of the two hosts",
        ));
    }
    if args.how.is_udt() {
        return Err(Failure::usage(
            "--transport udt needs an end of the copy on this host; start the copy on one of the two hosts, or copy over TCP",
        ));
    }
    let flags = [("--files-from", args.filters.has_list()), ("--remove-source-files", args.remove_source_files)];
    if let Some((flag, _)) = flags.iter().find(|(_, given)| *given) {
        return Err(Failure::usage(format!(
            "{flag} needs an end of the copy on this host; start the copy on one of the two hosts"
        )));
    }
    Ok(())
}

/// The sources of a copy. One with `--files-from` stands for its content, since listed names are below it.
fn listed(args: &Args, from: &[Place]) -> Result<Vec<Place>> {
    if !args.filters.has_list() {
        return Ok(from.to_vec());
    }
    let [source] = from else {
        return Err(Failure::usage("--files-from lists names below one source; give one source folder"));
    };
    if let Place::Local(path) = source
        && std::fs::metadata(OsStr::from_bytes(path)).is_ok_and(|meta| !meta.is_dir())
    {
        let shown = fullpipe_transfer::protocol::name::printable(path);
        return Err(Failure::usage(format!("{shown} is not a folder; --files-from lists names below a folder")));
    }
    let mut source = source.clone();
    if let Place::Local(path) | Place::Ssh(_, path) | Place::Server(_, _, path) = &mut source
        && last(path).is_some()
    {
        path.extend_from_slice(b"/.");
    }
    Ok(vec![source])
}

fn absolute(source: &[u8]) -> Vec<u8> {
    let path = std::path::absolute(OsStr::from_bytes(source));
    let path = path.map_or_else(|_| source.to_vec(), |p| OsString::from(p).as_bytes().to_vec());
    // `absolute` drops the dot of 'folder/.', which names the folder's content instead of the folder.
    if last(source).is_none() { [&path[..], b"/."].concat() } else { path }
}

/// A flag, without dashes, and whether the command line has it.
type Given = (&'static str, bool);

/// Refuses flags that are for another kind of far end, as they would have no effect.
pub fn fits(args: &Args, place: &Place) -> Result<()> {
    // In the order of the names.
    let over_ssh = [
        args.port.is_some(),
        args.identity.is_some(),
        args.jump.is_some(),
        args.ssh != SSH,
        args.far_program.is_some(),
        args.far_binary.is_some(),
        args.no_deploy,
        args.data_ports.is_some(),
        args.via != Wanted::Auto,
    ];
    let ssh: Vec<Given> = config::OVER_SSH.into_iter().zip(over_ssh).collect();
    let server: Vec<Given> = config::WITH_SERVER.into_iter().zip([args.token_file.is_some(), args.insecure]).collect();
    let lab = [("memory", args.memory.is_some()), ("seed", args.seed != SEED && args.guest.is_none())];
    let kinds: [(bool, &str, &[Given]); 3] = [
        (matches!(place, Place::Ssh(..)), "over ssh (HOST:PATH)", &ssh),
        (matches!(place, Place::Server(..)), "to or from a server (fullpipe://)", &server),
        (matches!(place, Place::Lab(..)), "into the testbed (lab:)", &lab),
    ];
    for (_, kind, flags) in kinds.iter().filter(|(fits, ..)| !fits) {
        if let Some((flag, _)) = flags.iter().find(|(_, given)| *given) {
            let more = match (*flag, place) {
                ("port", Place::Server(..)) => "; give a server's port in its name: fullpipe://HOST:PORT/",
                _ => "",
            };
            return Err(Failure::usage(format!("--{flag} has an effect only on copies {kind}{more}")));
        }
    }
    Ok(())
}

/// The far end of a place, the path there, and the name of the far end as part of a copy's identity.
pub fn far(args: &Args, place: &Place) -> Result<(Endpoint, Vec<u8>, String)> {
    match place {
        Place::Ssh(host, path) => {
            fits(args, place)?;
            let ssh = ssh_command(args)?;
            let ports = args.data_ports.as_deref().map(|text| ports::data_ports(Some(text))).transpose()?;
            let program = match &args.far_program {
                Some(name) => FarProgram::Named(name.clone()),
                None => FarProgram::Found { send: !args.no_deploy && !args.dry_run, file: args.far_binary.clone() },
            };
            let ssh = SshEndpoint { host: host.clone(), ssh, program, ports, via: Via::Tcp };
            Ok((Endpoint::Ssh(ssh), path.clone(), host.clone()))
        }
        Place::Server(host, port, path) => {
            fits(args, place)?;
            let token = token(args)?;
            let name = Host { name: host.clone(), port: *port }.to_string();
            Ok((Endpoint::Server { host: host.clone(), port: *port, token }, path.clone(), name))
        }
        Place::Lab(..) => {
            Err(Failure::usage("a lab: path can only be the destination; copy into the testbed, not out of it"))
        }
        Place::Standard => {
            Err(Failure::usage("'-' (standard input or output) is one file; give one source and one destination"))
        }
        Place::Local(path) => {
            let path = String::from_utf8_lossy(path).into_owned();
            Err(Failure::usage(format!("{path} is on this host, other sources are not; copy from one host at a time")))
        }
    }
}

/// The token for a server; none with `--insecure`.
fn token(args: &Args) -> Result<Option<Token>> {
    if args.insecure {
        return Ok(None);
    }
    crate::token_files::given(args.token_file.as_deref(), args.quiet)?.map(Some).ok_or_else(|| {
        Failure::usage(
            "the server needs a token; give --token-file FILE or set FULLPIPE_TOKEN ('fullpipe serve --root' says which \
             file holds it), or give --insecure if the server runs with it too; without --root it serves no files",
        )
    })
}

/// The command that connects to a host, with its options.
fn ssh_command(args: &Args) -> Result<Vec<OsString>> {
    let port = args.port.map(|port| OsString::from(port.to_string()));
    let identity = args.identity.as_ref().map(|file| file.as_os_str());
    over_ssh::ssh_command(&args.ssh, [port.as_deref(), identity, args.jump.as_ref().map(OsStr::new)])
}

/// A direction with its sources and target. The target gets a random number that tells this process from others.
fn way(push: bool, sources: Sources, mut target: Target) -> Way {
    target.process = rand::random();
    if push { Way::Push(sources, target) } else { Way::Pull(sources, target) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places() {
        let parse = |text: &str| parse(OsStr::new(text));
        assert_eq!(parse("a/b:c").ok(), Some(Place::Local(b"a/b:c".to_vec())));
        assert_eq!(parse("-").ok(), Some(Place::Standard));
        assert_eq!(parse("./-").ok(), Some(Place::Local(b"./-".to_vec())));
        assert_eq!(parse("./b:c").ok(), Some(Place::Local(b"./b:c".to_vec())));
        assert_eq!(parse("me@host:/x").ok(), Some(Place::Ssh("me@host".into(), b"/x".to_vec())));
        assert_eq!(parse("me@[::1]:/x").ok(), Some(Place::Ssh("me@::1".into(), b"/x".to_vec())));
        assert_eq!(parse("[fe80::1]:").ok(), Some(Place::Ssh("fe80::1".into(), vec![])));
        assert_eq!(parse("./[a]:b").ok(), Some(Place::Local(b"./[a]:b".to_vec())));
        assert_eq!(parse("nas://data").ok(), Some(Place::Ssh("nas".into(), b"//data".to_vec())));
        assert_eq!(parse("host:").ok(), Some(Place::Ssh("host".into(), vec![])));
        assert_eq!(parse("fullpipe://h:7000/in/").ok(), Some(Place::Server("h".into(), 7000, b"/in/".to_vec())));
        assert_eq!(
            parse("fullpipe://h").ok(),
            Some(Place::Server("h".into(), fullpipe_path::host::DEFAULT_PORT, b"/".to_vec()))
        );
        assert!(matches!(parse("lab:rtt=1ms,rate=1gbit:/out/"), Ok(Place::Lab(_, p)) if p == b"/out/"));
        let crossed = parse("lab:rtt=1ms,rate=1gbit,cross=tcp:4x64KB:/out:1/");
        assert!(matches!(&crossed, Ok(Place::Lab(lab, p)) if p == b"/out:1/" && lab.cross.is_some()));
        let hosts = parse("lab:rtt=1ms,rate=1gbit,host=stock+rmem_max:16MiB+user:user:out/");
        assert!(matches!(&hosts, Ok(Place::Lab(lab, p)) if p == b"out/" && lab.host_a.rmem_max == 16 << 20));
        for bad in [
            "",
            ":x",
            "lab:rtt=1ms,rate=1gbit",
            "lab:rtt=1ms:/x",
            "lab:rtt=1ms,rate=1gbit,cross=udp:1mbit",
            "fullpipe://h:99999/x",
            "fullpipe://::1:7603/x",
            "ssh://h/x",
            "sftp://me@h/x",
            "fulpipe://h/x",
            "fullpip://h/x",
            "Fullpipe://h/x",
            "fullppie://h:7/x",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        let why = parse("lab:/data/").unwrap_err().to_string();
        assert!(why.contains("for a host of that name, write USER@lab:/data/"), "{why}");
        let why = parse("lab:rtt=1ms,cross=udp:1mbit:/x").unwrap_err();
        assert!(why.to_string().contains("rate"), "{why}");
    }
}
