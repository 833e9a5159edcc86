//! What SRC and DST name.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use fullpipe_path::{ExitClass, Host, LabPath, Path};
use fullpipe_transfer::client::Way;
use fullpipe_transfer::connection::endpoint::Endpoint;
use fullpipe_transfer::connection::token::Token;
use fullpipe_transfer::protocol::message::Target;
use fullpipe_transfer::resolve::{last, transfer};

use crate::Result;
use crate::failure::Failure;

/// What other tools have before `://`. (`host://path` is one of ours, with a slash too many.)
const SCHEMES: [&str; 9] = ["ssh", "scp", "sftp", "rsync", "http", "https", "ftp", "gsiftp", "file"];

/// A place as typed.
#[derive(Debug, Clone, PartialEq)]
pub enum Place {
    /// On this host.
    Local(Vec<u8>),
    /// Over ssh: host, path.
    Ssh(String, Vec<u8>),
    /// A standing server: host, port, path.
    Server(String, u16, Vec<u8>),
    /// The far end of an emulated path.
    Lab(Box<LabPath>, Vec<u8>),
}

/// How ssh is called.
pub struct Ssh {
    pub ssh: Vec<OsString>,
    pub program: String,
    pub ports: Option<String>,
}

fn usage(why: impl std::fmt::Display) -> Failure {
    Failure::new(ExitClass::Usage, why)
}

/// Reads a place. As with scp, a colon before any slash makes it another host's; `./a:b` is a local file.
pub fn parse(typed: &OsStr) -> Result<Place> {
    let bytes = typed.as_bytes();
    if bytes.is_empty() {
        return Err(usage("an empty name is no file"));
    }
    let text = typed.to_string_lossy();
    if let Some(rest) = text.strip_prefix("fullpipe://") {
        let (place, path) = rest.split_once('/').unwrap_or((rest, ""));
        if !place.starts_with('[') && place.matches(':').count() > 1 {
            return Err(usage(format!(
                "{text}: an address of IPv6 stands in brackets, such as fullpipe://[::1]:7412/"
            )));
        }
        let host: fullpipe_path::Host = place.parse().map_err(|e: fullpipe_path::PathError| usage(e))?;
        let start = "fullpipe://".len() + place.len();
        let path = if path.is_empty() { b"/".to_vec() } else { bytes[start.min(bytes.len())..].to_vec() };
        return Ok(Place::Server(host.name, host.port, path));
    }
    if text.starts_with("lab:") {
        // The keys' own values may have colons (cross=udp:400mbit): the folder begins at the first that leaves a path.
        let colons = (4..bytes.len()).filter(|&at| bytes[at] == b':');
        let mut paths = colons.map(|at| (at, String::from_utf8_lossy(&bytes[..at]).parse::<Path>()));
        let Some(mut found) = paths.next().filter(|_| text.parse::<Path>().is_err()) else {
            return Err(usage(format!("{text}: name the folder too, such as {text}:/tmp/")));
        };
        // Where none does, the last that is followed by a folder says best why not.
        for next in paths.filter(|(at, _)| bytes[at + 1..].starts_with(b"/")) {
            if found.1.is_ok() {
                break;
            }
            found = next;
        }
        let (at, path) = found;
        return match path? {
            Path::Lab(lab) => Ok(Place::Lab(lab, bytes[at + 1..].to_vec())),
            Path::Host(_) => Err(usage(format!("{text} is no emulated path"))),
        };
    }
    if let Some((scheme, _)) = text.split_once("://").filter(|(scheme, _)| SCHEMES.contains(scheme)) {
        let known = "write HOST:PATH (over ssh), or fullpipe://HOST:PORT/PATH (a standing server)";
        return Err(usage(format!("{text}: '{scheme}' is not known here; {known}")));
    }
    // An address of IPv6 has colons of its own, and stands in brackets.
    let start = bytes.iter().position(|b| *b == b']').filter(|_| text.starts_with('[') || text.contains("@["));
    let colon = bytes.iter().skip(start.unwrap_or(0)).position(|b| *b == b':').map(|at| at + start.unwrap_or(0));
    let slash = bytes.iter().position(|b| *b == b'/');
    match colon {
        Some(0) => Err(usage(format!("{text}: a host is missing before the colon"))),
        Some(at) if slash.is_none_or(|slash| at < slash) => {
            let host =
                std::str::from_utf8(&bytes[..at]).map_err(|_| usage(format!("{text}: not the name of a host")))?;
            Ok(Place::Ssh(host.replace(['[', ']'], ""), bytes[at + 1..].to_vec()))
        }
        _ => Ok(Place::Local(bytes.to_vec())),
    }
}

/// From places to an endpoint and a way.
pub fn order(args: &super::Args, from: &[Place], to: &Place) -> Result<(Endpoint, Way)> {
    let locals: Option<Vec<Vec<u8>>> =
        from.iter().map(|p| if let Place::Local(p) = p { Some(p.clone()) } else { None }).collect();
    let target = |path: &[u8], sources: &[Vec<u8>]| Target {
        path: path.to_vec(),
        folder: path.ends_with(b"/") || path.ends_with(b"/.") || sources.len() > 1,
        content: sources.iter().any(|source| last(source).is_none()),
        transfer: 0,
        process: 0,
    };
    match (locals, to) {
        (Some(_), Place::Local(_)) => {
            Err(usage("both ends are this host; cp is the tool for that. Name another as HOST:PATH"))
        }
        (Some(sources), to) => {
            let is_folder = |source: &Vec<u8>| std::path::Path::new(OsStr::from_bytes(source)).is_dir();
            if !args.recursive && sources.iter().all(is_folder) {
                let one = fullpipe_transfer::protocol::name::printable(&sources[0]);
                return Err(usage(format!("{one} is a folder; copy it with -r")));
            }
            let (endpoint, path, name) = far(args, to)?;
            let absolute: Vec<Vec<u8>> = sources.iter().map(|s| absolute(s)).collect();
            let mut target = target(&path, &sources);
            target.transfer = transfer(&name, &absolute, &path, args.xattrs);
            Ok((endpoint, super::way(true, sources, &args.exclude, false, target)))
        }
        (None, Place::Local(path)) => {
            let mut sources = Vec::new();
            let mut first: Option<(Endpoint, String)> = None;
            for place in from {
                let (endpoint, path, name) = far(args, place)?;
                if first.as_ref().is_some_and(|(_, known)| *known != name) {
                    return Err(usage("the sources are on different hosts; copy from one at a time"));
                }
                sources.push(path);
                first.get_or_insert((endpoint, name));
            }
            let Some((endpoint, name)) = first else { return Err(usage("give SRC... DST")) };
            let mut target = target(path, &sources);
            target.transfer = transfer(&name, &sources, &absolute(path), args.xattrs);
            // A pattern may stand for many.
            let patterns = target.folder || std::path::Path::new(OsStr::from_bytes(path)).is_dir();
            Ok((endpoint, super::way(false, sources, &args.exclude, patterns, target)))
        }
        (None, _) => {
            let local = "start the copy on one of the others, or name a file here as ./NAME if there is a colon in it";
            Err(usage(format!("one end must be this host; {local}")))
        }
    }
}

fn absolute(source: &[u8]) -> Vec<u8> {
    let path = std::path::absolute(OsStr::from_bytes(source));
    let path = path.map_or_else(|_| source.to_vec(), |p| OsString::from(p).as_bytes().to_vec());
    // The dot of 'folder/.' is gone, by which the folder's content is another source than the folder.
    if last(source).is_none() { [&path[..], b"/."].concat() } else { path }
}

/// A flag, and whether it was given.
type Given = (&'static str, bool);

/// Refuses flags that are for another kind of far end: they would do nothing.
pub fn fits(args: &super::Args, place: &Place) -> Result<()> {
    let ssh = [
        ("--port", args.port.is_some()),
        ("--identity", args.identity.is_some()),
        ("--ssh", args.ssh != super::SSH),
        ("--far-program", args.far_program != super::FAR_PROGRAM),
        ("--data-ports", args.data_ports.is_some()),
    ];
    let server = [("--token-file", args.token_file.is_some()), ("--insecure", args.insecure)];
    let lab = [("--memory", args.memory.is_some()), ("--seed", args.seed != super::SEED && args.guest.is_none())];
    let kinds: [(bool, &str, &[Given]); 3] = [
        (matches!(place, Place::Ssh(..)), "over ssh (HOST:PATH)", &ssh),
        (matches!(place, Place::Server(..)), "to or from a standing server (fullpipe://)", &server),
        (matches!(place, Place::Lab(..)), "into the testbed (lab:)", &lab),
    ];
    for (_, kind, flags) in kinds.iter().filter(|(fits, ..)| !fits) {
        if let Some((flag, _)) = flags.iter().find(|(_, given)| *given) {
            let more = match (*flag, place) {
                ("--port", Place::Server(..)) => "; a server's port is in its name: fullpipe://HOST:PORT/",
                _ => "",
            };
            return Err(usage(format!("{flag} is for copies {kind}{more}")));
        }
    }
    Ok(())
}

fn far(args: &super::Args, place: &Place) -> Result<(Endpoint, Vec<u8>, String)> {
    match place {
        Place::Ssh(host, path) => {
            fits(args, place)?;
            let Ssh { ssh, program, ports } = args.try_into()?;
            Ok((Endpoint::Ssh { host: host.clone(), ssh, program, ports }, path.clone(), host.clone()))
        }
        Place::Server(host, port, path) => {
            fits(args, place)?;
            let token = token(args)?;
            let name = Host { name: host.clone(), port: *port }.to_string();
            Ok((Endpoint::Server { host: host.clone(), port: *port, token }, path.clone(), name))
        }
        Place::Lab(..) => Err(usage("a lab: path can only be the destination")),
        Place::Local(path) => {
            let path = String::from_utf8_lossy(path).into_owned();
            Err(usage(format!("{path} is on this host, others of the sources are not; copy from one host at a time")))
        }
    }
}

fn token(args: &super::Args) -> Result<Option<Token>> {
    if args.insecure {
        return Ok(None);
    }
    crate::token::given(args.token_file.as_deref(), args.quiet)?.map(Some).ok_or_else(|| {
        usage(
            "a standing server wants its token: --token-file FILE, or FULLPIPE_TOKEN in the environment \
             ('fullpipe serve --root' names the file that holds it); --insecure does without, if the server does",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places() {
        let parse = |text: &str| parse(OsStr::new(text));
        assert_eq!(parse("a/b:c").ok(), Some(Place::Local(b"a/b:c".to_vec())));
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
            Some(Place::Server("h".into(), fullpipe_path::path::DEFAULT_PORT, b"/".to_vec()))
        );
        assert!(matches!(parse("lab:rtt=1ms,rate=1gbit:/out/"), Ok(Place::Lab(_, p)) if p == b"/out/"));
        let crossed = parse("lab:rtt=1ms,rate=1gbit,cross=tcp:4x64KB:/out:1/");
        assert!(matches!(&crossed, Ok(Place::Lab(lab, p)) if p == b"/out:1/" && lab.cross.is_some()));
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
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        let why = parse("lab:rtt=1ms,cross=udp:1mbit:/x").unwrap_err();
        assert!(why.to_string().contains("rate"), "{why}");
    }
}
