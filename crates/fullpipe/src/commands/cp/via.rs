//! What carries the data of a copy: UDP or TCP, and over ssh, ssh connections where TCP does not get through.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fullpipe_path::{Classified, ExitClass, Protocol, Transport};
use fullpipe_transfer::TransferError;
use fullpipe_transfer::client::Way;
use fullpipe_transfer::connection::endpoint::{Endpoint, SshEndpoint, Via};
use fullpipe_transfer::connection::token;
use serde::{Deserialize, Serialize};

use super::transport::TransportArgs;
use crate::xdg;

/// The value of `--via`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Wanted {
    /// TCP if it gets through, in whatever direction, else ssh.
    Auto,
    /// TCP to the far host only.
    Tcp,
    /// TCP from the far host to this one only.
    Reverse,
    /// ssh only.
    Ssh,
}

impl Wanted {
    /// What it means for a copy between two other hosts, when a configuration file may have set it and `typed` was typed: that
    /// a host connects to this one says nothing of the two.
    pub fn between_hosts(self, typed: Wanted) -> Wanted {
        if self == Wanted::Reverse && typed != Wanted::Reverse { Wanted::Auto } else { self }
    }
}

/// How long a host's closed port is remembered: firewalls change.
const REMEMBERED: Duration = Duration::from_secs(7 * 24 * 3600);
/// Largest file that is read, bytes.
const MAX_BYTES: u64 = 1 << 20;

/// The choice for one copy.
pub struct Choice {
    wanted: Wanted,
    /// Where closed ports are remembered; `None` without a home.
    memory: Option<PathBuf>,
    /// The name under which the far end is remembered; empty if TCP is the only way there.
    key: String,
    /// The name under which it is remembered that UDP does not get through to the far end.
    udp_key: String,
    /// Whether this copy has found that TCP does not get through.
    found: bool,
    /// Whether this copy has found that TCP gets through from the far end alone.
    found_reverse: bool,
    /// Whether this copy has found that UDP does not get through.
    found_no_udp: bool,
}

impl Choice {
    /// Chooses for a far end, by the flags and by what earlier copies have found. If UDP did not get through before, tells `how`.
    /// With `--transport udt`, data never go through ssh, and TCP's ports are of no interest.
    pub fn new(
        wanted: Wanted,
        how: &mut TransportArgs,
        endpoint: &mut Endpoint,
        way: &Way,
    ) -> (Choice, Option<String>) {
        let memory = xdg::state_folder().map(|folder| folder.join("closed-ports.json"));
        let udp_key = udp_key(endpoint);
        let mut choice = Choice {
            wanted,
            memory,
            key: String::new(),
            udp_key,
            found: false,
            found_reverse: false,
            found_no_udp: false,
        };
        if how.is_udt() {
            choice.wanted = Wanted::Tcp;
            return (choice, None);
        }
        // A file that is not trusted tells nothing. Of a far end over ssh, it is reported below.
        how.udp_is_closed = choice.remembers(&choice.udp_key, SystemTime::now()).unwrap_or(false);
        // Two other hosts are never connected over UDT.
        how.udp_is_closed |= matches!(way, Way::ThirdParty(..));
        let Endpoint::Ssh(ssh) = endpoint else { return (choice, None) };
        let source = match way {
            Way::ThirdParty(source, ..) => Some(&**source),
            _ => None,
        };
        choice.key = source.into_iter().map(|source| key(source) + " > ").collect::<String>() + &key(ssh);
        let mut note = None;
        let straight = if source.is_some() { Via::Tcp } else { Via::Either };
        ssh.via = match wanted {
            Wanted::Tcp => Via::Tcp,
            Wanted::Reverse => Via::Reverse,
            Wanted::Ssh => Via::Ssh,
            Wanted::Auto if choice.remembers(&reverse_key(&choice.key), SystemTime::now()) == Ok(true) => {
                note = Some(format!(
                    "copying over connections from {}, as it had no open data port before; --via tcp tries it",
                    ssh.host
                ));
                Via::Reverse
            }
            Wanted::Auto => match choice.remembers(&choice.key, SystemTime::now()) {
                Ok(true) => {
                    note = Some(match source {
                        None => format!(
                            "copying through ssh, as {} had no open data port before; --via tcp tries it",
                            ssh.host
                        ),
                        Some(source) => format!(
                            "copying through this host, as {} and {} could not connect to each other before; --via tcp tries it",
                            source.host, ssh.host
                        ),
                    });
                    Via::Ssh
                }
                Ok(false) => straight,
                Err(why) => {
                    note = Some(why);
                    straight
                }
            },
        };
        how.udp_is_closed |= ssh.via == Via::Reverse;
        (choice, note)
    }

    /// Changes the far end's path to ssh if this error shows that TCP does not get through. `moved` says whether anything had moved
    /// before, over TCP: then that is not remembered. Returns what to tell the user.
    pub fn fall_back(&mut self, error: &TransferError, endpoint: &mut Endpoint, moved: bool) -> Option<String> {
        let (Endpoint::Ssh(ssh), Some((to, why)), Wanted::Auto) = (endpoint, error.no_data_path(), self.wanted) else {
            return None;
        };
        if ssh.via == Via::Ssh {
            return None;
        }
        ssh.via = Via::Ssh;
        let said = match error {
            TransferError::NoDirectPath { from, to, why } => {
                format!("{from} and {to} cannot connect to each other for the data ({why}); copying through this host")
            }
            TransferError::NoReversePath { peer, why } => {
                format!("{peer} cannot connect to this host for the data ({why}); copying through ssh")
            }
            _ => format!("cannot connect to {to} for the data ({why}); copying through ssh"),
        };
        // Ports that are in use now may be free for the next copy.
        let is_closed = !moved && !matches!(error, TransferError::PortsTaken { .. });
        (self.found, self.found_reverse) = (is_closed, false);
        Some(said)
    }

    /// Keeps to the far end's connections to here, which a first attempt has found to be the only ones.
    pub fn keep_reverse(&mut self, how: &mut TransportArgs, endpoint: &mut Endpoint) {
        if let Endpoint::Ssh(ssh) = endpoint {
            (ssh.via, how.udp_is_closed, self.found_reverse) = (Via::Reverse, true, true);
        }
    }

    /// Changes the copy to TCP if an attempt over UDT has failed, and the flags leave the choice. `moved` says whether anything
    /// had moved: then only an error that shows that UDP does not get through counts, which is also remembered. Returns what to
    /// tell the user.
    pub fn leave_udp(&mut self, error: &TransferError, how: &mut TransportArgs, moved: bool) -> Option<String> {
        if !how.may_choose_udt() || how.udp_is_closed {
            return None;
        }
        let note = match error {
            TransferError::NoUdp { to, within } => {
                self.found_no_udp = true;
                format!("no answer over UDP from {to} within {} s; copying over TCP", within.as_secs_f64())
            }
            TransferError::TcpOnly(peer) => {
                self.found_no_udp = true;
                format!("{peer} takes data over TCP alone; copying over TCP")
            }
            // A disk is no better over TCP.
            error if moved || error.class() == ExitClass::Record => return None,
            error => format!("the copy failed over UDT: {error}; copying over TCP"),
        };
        how.udp_is_closed = true;
        Some(note)
    }

    /// Remembers what a successful copy over a transport has found.
    pub fn remember(&self, endpoint: &Endpoint, transport: &Transport) {
        let Some(memory) = &self.memory else { return };
        let is_over_udp = transport.protocol() == Protocol::Udt;
        let via = endpoint.via();
        let is_over_tcp = !is_over_udp && matches!(via, Via::Tcp | Via::Either);
        // Each name, and whether it is closed, if this copy has found it out.
        let udp = (&self.udp_key, self.found_no_udp, self.found_no_udp || is_over_udp);
        let is_asked = is_over_tcp && self.wanted == Wanted::Tcp || via == Via::Reverse;
        let is_tcp_known = !self.key.is_empty() && (self.found || is_asked);
        let tcp = (&self.key, via == Via::Ssh, is_tcp_known);
        let is_reverse_known = is_tcp_known && (self.found_reverse || via != Via::Reverse);
        let reverse = (&reverse_key(&self.key), via == Via::Reverse, is_reverse_known);
        // A file that is not trusted is replaced.
        let before = read(memory).unwrap_or_default();
        let (mut closed, now) = (before.clone(), SystemTime::now());
        for (key, is_closed, is_known) in [udp, tcp, reverse] {
            match (is_known, is_closed) {
                (true, true) => drop(closed.hosts.insert(hashed(key), unix_s(now))),
                (true, false) => drop(closed.hosts.remove(&hashed(key))),
                (false, _) => {}
            }
        }
        if closed == before {
            return;
        }
        // Files of older versions have names instead of hashes.
        let is_hash = |key: &str| blake3::Hash::from_hex(key).is_ok();
        closed.hosts.retain(|key, since_unix_s| is_hash(key) && is_recent(*since_unix_s, now));
        // Without a memory the next copy waits for 3 s, and works.
        let _ = write(memory, &closed);
    }

    fn remembers(&self, key: &str, now: SystemTime) -> Result<bool, String> {
        let Some(memory) = &self.memory else { return Ok(false) };
        let closed = read(memory)?;
        Ok(closed.hosts.get(&hashed(key)).is_some_and(|since_unix_s| is_recent(*since_unix_s, now)))
    }
}

/// The far ends whose data port did not answer, over TCP or over UDP, and those that connect to here, as the file has them.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
struct Closed {
    /// When that was found last, seconds since 1970, by the hash of the far end's name ([`hashed`]).
    hosts: BTreeMap<String, u64>,
}

/// What to tell the user of a copy whose data go over connections from the far end, as this host cannot connect to it.
pub fn reversed(error: &TransferError) -> String {
    let (to, why) = error.no_data_path().unwrap_or_default();
    format!("cannot connect to {to} for the data ({why}); the far host connects to this one")
}

/// What tells one far end from another: the host, ssh's command with its port, and the ports that were asked for.
fn key(ssh: &SshEndpoint) -> String {
    let words = ssh.ssh.iter().map(|word| word.to_string_lossy());
    let command: Vec<_> = words.collect();
    let ports = ssh.ports.map_or("any".to_owned(), |(first, last)| format!("{first}-{last}"));
    format!("{} {ports} {}", ssh.host, command.join(" "))
}

/// The same for far ends that connect to here.
fn reverse_key(key: &str) -> String {
    format!("reverse {key}")
}

/// The hash of a far end's name, which is what the file has of it: ssh's command may have a password.
fn hashed(key: &str) -> String {
    blake3::hash(key.as_bytes()).to_hex().to_string()
}

/// The same for UDP, to servers, too.
fn udp_key(endpoint: &Endpoint) -> String {
    match endpoint {
        Endpoint::Ssh(ssh) => format!("udp {}", key(ssh)),
        Endpoint::Server { host, port, .. } => format!("udp fullpipe://{host}:{port}"),
    }
}

fn unix_s(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn is_recent(since_unix_s: u64, now: SystemTime) -> bool {
    unix_s(now).checked_sub(since_unix_s).is_some_and(|age_s| age_s < REMEMBERED.as_secs())
}

/// Reads the file. It is empty if it does not exist or is damaged.
///
/// # Errors
/// Another user may have written it.
fn read(path: &Path) -> Result<Closed, String> {
    let Ok(file) = File::options().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path) else {
        return Ok(Closed::default());
    };
    let ignored = |why: String| format!("ignored {}: {why}", path.display());
    let meta = file.metadata().map_err(|error| ignored(error.to_string()))?;
    if !meta.is_file() || meta.nlink() != 1 {
        return Err(ignored("it is no file with a single name; remove it".to_owned()));
    }
    token::check_own(path, &meta).map_err(|error| ignored(error.to_string()))?;
    let mut text = Vec::new();
    let read = file.take(MAX_BYTES).read_to_end(&mut text);
    Ok(read.ok().and_then(|_| serde_json::from_slice(&text).ok()).unwrap_or_default())
}

/// Writes the file, readable by this user alone, and gives it its name when it is complete. Several copies may do so at once.
fn write(path: &Path, closed: &Closed) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    // It has mode 0600, and a name that nobody can guess.
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    serde_json::to_writer_pretty(&mut file, closed)?;
    file.write_all(b"\n")?;
    file.persist(path).map(|_| ()).map_err(|error| error.error)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use fullpipe_transfer::connection::endpoint::FarProgram;

    use super::*;

    /// What is remembered counts whole seconds, of which one may begin meanwhile.
    const A_SECOND: Duration = Duration::from_secs(1);

    fn far(host: &str, ports: Option<(u16, u16)>) -> Endpoint {
        let program = FarProgram::Named("fullpipe".to_owned());
        let ssh = vec!["ssh".into()];
        Endpoint::Ssh(SshEndpoint { host: host.to_owned(), ssh, program, ports, via: Via::Tcp })
    }

    fn transport(cc: &str) -> Transport {
        Transport {
            cc: cc.to_owned(),
            streams: 1,
            buffer: fullpipe_path::Buffer::Auto,
            pacing: None,
            dscp: None,
            mss: None,
        }
    }

    fn remembered(choice: &Choice, now: SystemTime) -> Result<bool, String> {
        choice.remembers(&choice.key, now)
    }

    fn choice(memory: &Path, endpoint: &Endpoint) -> Choice {
        let Endpoint::Ssh(ssh) = endpoint else { panic!("not over ssh") };
        let (memory, key, udp_key) = (Some(memory.to_owned()), key(ssh), udp_key(endpoint));
        Choice { wanted: Wanted::Auto, memory, key, udp_key, found: false, found_reverse: false, found_no_udp: false }
    }

    #[test]
    fn a_closed_port_is_remembered_for_a_week() {
        let dir = tempfile::tempdir().unwrap();
        let memory = dir.path().join("state/closed-ports.json");
        let mut endpoint = far("host", None);
        let mut first = choice(&memory, &endpoint);
        let now = SystemTime::now() + A_SECOND;
        assert_eq!(remembered(&first, now), Ok(false));
        assert_eq!(first.fall_back(&TransferError::Interrupted, &mut endpoint, false), None);
        let closed = TransferError::NoDataPort { to: "10.0.0.1:5".to_owned(), why: "no answer".to_owned() };
        let said = first.fall_back(&closed, &mut endpoint, false).unwrap();
        assert!(said.contains("10.0.0.1:5") && said.contains("no answer") && said.contains("through ssh"), "{said}");
        assert_eq!((endpoint.via(), first.fall_back(&closed, &mut endpoint, false)), (Via::Ssh, None));
        first.remember(&endpoint, &transport("cubic"));
        assert_eq!(remembered(&choice(&memory, &endpoint), now), Ok(true));
        assert_eq!(remembered(&choice(&memory, &endpoint), now + REMEMBERED), Ok(false));
        // With other ports or another name, all is open.
        for other in [far("host", Some((7000, 7001))), far("other", None)] {
            assert_eq!(remembered(&choice(&memory, &other), now), Ok(false));
        }
        // A copy over TCP that worked is the better knowledge.
        let tcp = Choice { wanted: Wanted::Tcp, ..choice(&memory, &endpoint) };
        tcp.remember(&far("host", None), &transport("cubic"));
        assert_eq!(remembered(&choice(&memory, &endpoint), now), Ok(false));
    }

    fn how(words: &[&str]) -> TransportArgs {
        #[derive(clap::Parser)]
        struct Words {
            #[command(flatten)]
            how: TransportArgs,
        }
        <Words as clap::Parser>::parse_from(["cp"].iter().chain(words)).how
    }

    #[test]
    fn connections_from_the_far_end_are_remembered_until_another_way_works() {
        let dir = tempfile::tempdir().unwrap();
        let memory = dir.path().join("closed-ports.json");
        let (mut endpoint, mut how, now) = (far("host", None), how(&[]), SystemTime::now() + A_SECOND);
        let reverses = |choice: &Choice| choice.remembers(&reverse_key(&choice.key), now);
        let mut first = choice(&memory, &endpoint);
        first.keep_reverse(&mut how, &mut endpoint);
        // UDT has the far end's port alone.
        assert!(endpoint.via() == Via::Reverse && how.udp_is_closed);
        first.remember(&endpoint, &transport("cubic"));
        let second = choice(&memory, &endpoint);
        assert_eq!((remembered(&second, now), reverses(&second)), (Ok(false), Ok(true)));
        // It works again, which is no news.
        second.remember(&endpoint, &transport("cubic"));
        assert_eq!(reverses(&second), Ok(true));
        // It fails, and ssh carries the data.
        let mut third = choice(&memory, &endpoint);
        let closed = TransferError::NoReversePath { peer: "host".to_owned(), why: "no answer".to_owned() };
        let said = third.fall_back(&closed, &mut endpoint, false).unwrap();
        assert_eq!(said, "host cannot connect to this host for the data (no answer); copying through ssh");
        third.remember(&endpoint, &transport("cubic"));
        assert_eq!((remembered(&third, now), reverses(&third)), (Ok(true), Ok(false)));
        // Asked for, it works: the next copy tries everything.
        let mut reversed = far("host", None);
        first.keep_reverse(&mut how, &mut reversed);
        Choice { wanted: Wanted::Reverse, ..choice(&memory, &reversed) }.remember(&reversed, &transport("cubic"));
        assert_eq!((remembered(&third, now), reverses(&third)), (Ok(false), Ok(false)));
        // The far end's port is open, too.
        first.remember(&reversed, &transport("cubic"));
        assert_eq!(reverses(&first), Ok(true));
        Choice { wanted: Wanted::Tcp, ..choice(&memory, &reversed) }.remember(&far("host", None), &transport("cubic"));
        assert_eq!(reverses(&first), Ok(false));
    }

    #[test]
    fn dropped_udp_is_remembered_beside_tcp() {
        let dir = tempfile::tempdir().unwrap();
        let memory = dir.path().join("closed-ports.json");
        let dropped = TransferError::NoUdp { to: "10.0.0.1:5".parse().unwrap(), within: Duration::from_secs(3) };
        let endpoint = far("host", None);
        for words in [&["--transport", "udt"][..], &["--transport", "tcp"], &["--pacing", "1gbit"]] {
            assert_eq!(choice(&memory, &endpoint).leave_udp(&dropped, &mut how(words), false), None, "{words:?}");
        }
        let refused = TransferError::TcpOnly("host".to_owned());
        let said = choice(&memory, &endpoint).leave_udp(&refused, &mut how(&[]), false).unwrap();
        assert_eq!(said, "host takes data over TCP alone; copying over TCP");
        let (mut first, mut auto) = (choice(&memory, &endpoint), how(&[]));
        assert_eq!(first.leave_udp(&TransferError::Stalled { seconds: 60.0 }, &mut auto, true), None);
        assert_eq!(first.leave_udp(&TransferError::Busy("x".to_owned()), &mut auto, false), None);
        let said = first.leave_udp(&dropped, &mut auto, true).unwrap();
        assert_eq!(said, "no answer over UDP from 10.0.0.1:5 within 3 s; copying over TCP");
        assert!(auto.udp_is_closed && first.leave_udp(&dropped, &mut auto, false).is_none());
        first.remember(&endpoint, &transport("cubic"));
        let (second, now) = (choice(&memory, &endpoint), SystemTime::now());
        assert_eq!(second.remembers(&second.udp_key, now), Ok(true));
        assert_eq!(second.remembers(&second.udp_key, now + REMEMBERED), Ok(false));
        assert_eq!(remembered(&second, now), Ok(false), "TCP's port is open");
        // A copy over UDT that worked is the better knowledge.
        second.remember(&endpoint, &transport("udt"));
        assert_eq!(second.remembers(&second.udp_key, now), Ok(false));
    }

    #[test]
    fn a_password_of_ssh_is_not_kept() {
        let dir = tempfile::tempdir().unwrap();
        let memory = dir.path().join("closed-ports.json");
        fs::write(&memory, "{\"hosts\":{\"host any ssh -o Pass=hunter1\":9999999999}}").unwrap();
        fs::set_permissions(&memory, fs::Permissions::from_mode(0o600)).unwrap();
        let mut endpoint = far("host", None);
        if let Endpoint::Ssh(ssh) = &mut endpoint {
            (ssh.ssh, ssh.via) = (vec!["ssh".into(), "-oPass=hunter2".into()], Via::Ssh);
        }
        let mut first = choice(&memory, &endpoint);
        (first.found, first.found_no_udp) = (true, true);
        first.remember(&endpoint, &transport("cubic"));
        assert_eq!(remembered(&first, SystemTime::now()), Ok(true));
        let text = fs::read_to_string(&memory).unwrap();
        assert!(!text.contains("hunter") && !text.contains("host any"), "{text}");
    }

    #[test]
    fn another_error_over_udt_is_answered_and_not_remembered() {
        #[derive(clap::Parser)]
        struct Words {
            #[command(flatten)]
            how: TransportArgs,
        }
        let mut how = <Words as clap::Parser>::parse_from(["cp"]).how;
        let dir = tempfile::tempdir().unwrap();
        let memory = dir.path().join("closed-ports.json");
        let endpoint = far("host", None);
        let mut first = choice(&memory, &endpoint);
        let taken = TransferError::PortsTaken { peer: "host".to_owned(), first: 7, last: 7 };
        let said = first.leave_udp(&taken, &mut how, false).unwrap();
        assert!(
            said.starts_with("the copy failed over UDT: host refused: its data ports 7 to 7 are all in use"),
            "{said}"
        );
        assert!(said.ends_with("; copying over TCP") && how.udp_is_closed, "{said}");
        first.remember(&endpoint, &transport("cubic"));
        assert_eq!(first.remembers(&first.udp_key, SystemTime::now()), Ok(false));
    }

    #[test]
    fn only_what_nobody_else_can_write_is_believed() {
        let dir = tempfile::tempdir().unwrap();
        let memory = dir.path().join("closed-ports.json");
        let endpoint = far("host", None);
        let mut first = choice(&memory, &endpoint);
        first.found = true;
        let mut through_ssh = endpoint.clone();
        if let Endpoint::Ssh(ssh) = &mut through_ssh {
            ssh.via = Via::Ssh;
        }
        first.remember(&through_ssh, &transport("cubic"));
        let mode = |mode| fs::set_permissions(&memory, fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(fs::metadata(&memory).unwrap().mode() & 0o777, 0o600);
        mode(0o620);
        assert!(remembered(&first, SystemTime::now()).is_err());
        mode(0o600);
        fs::hard_link(&memory, dir.path().join("second")).unwrap();
        assert!(remembered(&first, SystemTime::now()).is_err());
        fs::remove_file(&memory).unwrap();
        std::os::unix::fs::symlink("second", &memory).unwrap();
        assert_eq!(remembered(&first, SystemTime::now()), Ok(false));
        fs::remove_file(&memory).unwrap();
        for damaged in ["", "{", "[]", "{\"hosts\":{\"a\":-1}}"] {
            fs::write(&memory, damaged).unwrap();
            mode(0o600);
            assert_eq!(remembered(&first, SystemTime::now()), Ok(false), "{damaged}");
        }
    }
}
