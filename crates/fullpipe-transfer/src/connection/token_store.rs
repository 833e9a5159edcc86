//! A server's tokens: what each one permits, and when it expires.
//!
//! A running server checks clients with [`Tokens`]. The command line uses [`list`], [`add`] and [`revoke`]. These replace
//! the store atomically, under a lock, and a running server notices the new store ([`Tokens::refresh`]).

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fullpipe_net::Denial;
use fullpipe_net::wire::ProofKey;
use rand::RngExt;
use serde::{Deserialize, Serialize};

use crate::connection::tls::{Fingerprint, Identity};
use crate::connection::token::{self, Exposed, Token};
use crate::error::TransferError;

/// Name of the token that `fullpipe serve` makes at its first start and keeps in the token file.
pub const FIRST: &str = "default";
/// Version number of the store's format.
const VERSION: u32 = 1;
/// Maximum length of a token's name, in bytes.
const MAX_NAME_BYTES: usize = 64;

/// The operations that a token permits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rights {
    /// Copy in both directions.
    #[default]
    ReadWrite,
    /// Copy from the server and list its files.
    ReadOnly,
    /// Copy to the server.
    WriteOnly,
}

impl Rights {
    /// Whether the token permits copying from the server.
    pub fn may_read(self) -> bool {
        self != Rights::WriteOnly
    }

    /// Whether the token permits copying to the server.
    pub fn may_write(self) -> bool {
        self != Rights::ReadOnly
    }
}

impl std::fmt::Display for Rights {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Rights::ReadWrite => "read-write",
            Rights::ReadOnly => "read-only",
            Rights::WriteOnly => "write-only",
        })
    }
}

/// A token's name, rights, folder and expiry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The token's name, which the log shows: letters, digits and `-_.@` ([`check_name`]).
    pub name: String,
    /// The operations that the token permits.
    pub rights: Rights,
    /// The only folder that the token gives access to, as an absolute path without links. `None` means everything that
    /// the server serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<PathBuf>,
    /// When the token expires, as Unix time in seconds. `None` means never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_unix_s: Option<u64>,
}

impl Grant {
    /// Whether the token has expired at the time `now`.
    pub fn has_expired(&self, now: SystemTime) -> bool {
        let now = now.duration_since(UNIX_EPOCH).map_or(Duration::ZERO, |since| since);
        self.expires_unix_s.is_some_and(|end| now >= Duration::from_secs(end))
    }
}

/// Why a server refuses a client's token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// None of this server's tokens has the client's secret. The token may have been revoked.
    #[error("the token is not this server's")]
    Unknown,
    /// The token has expired. Only clients that know the token's secret receive this answer.
    #[error("the token '{0}' has expired")]
    Expired(String),
}

impl From<Refusal> for Denial {
    fn from(refusal: Refusal) -> Denial {
        let advice = match refusal {
            Refusal::Unknown => {
                "it is mistyped, revoked, or for another server: ask this one's operator for a new token"
            }
            Refusal::Expired(_) => "ask its operator for a new one",
        };
        Denial::new(refusal.to_string(), advice)
    }
}

/// One token as the store records it.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Entry {
    #[serde(flatten)]
    grant: Grant,
    /// The hash of the token's secret ([`token::verifier`]).
    #[serde(with = "hex")]
    verifier: [u8; 32],
}

/// The content of the store file, in JSON.
#[derive(Debug, Serialize, Deserialize)]
struct Stored {
    version: u32,
    /// Fingerprint of the server's certificate. Each token carries the same fingerprint.
    #[serde(with = "hex")]
    fingerprint: Fingerprint,
    tokens: Vec<Entry>,
}

/// Serializes 32 bytes as 64 hexadecimal digits.
mod hex {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(bytes: &[u8; 32], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&crate::connection::token::hex(bytes))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<[u8; 32], D::Error> {
        let text = String::deserialize(from)?;
        blake3::Hash::from_hex(text).map(|hash| *hash.as_bytes()).map_err(D::Error::custom)
    }
}

/// Identifies one version of a file by device, inode, size in bytes, and ctime in nanoseconds. `None` stands for a
/// missing file.
type Stamp = Option<(u64, u64, u64, i128)>;

fn stamp(file: &Path) -> Stamp {
    let meta = std::fs::metadata(file).ok()?;
    let changed = i128::from(meta.ctime()) * 1_000_000_000 + i128::from(meta.ctime_nsec());
    Some((meta.dev(), meta.ino(), meta.len(), changed))
}

/// A server's state as read from its files.
struct State {
    identity: Identity,
    entries: Vec<Entry>,
    exposed: Vec<Exposed>,
}

/// Reads a server's files; returns `None` if neither the token file nor the store exists.
fn read(file: &Path) -> Result<Option<State>, TransferError> {
    let (store, key) = (token::store_file(file), token::key_file(file));
    let (first, stored) = (token::read_secret(file)?, token::read_secret(&store)?);
    if first.is_none() && stored.is_none() {
        return Ok(None);
    }
    let token = first.as_ref().map(|first| String::from_utf8_lossy(&first.content).parse::<Token>()).transpose();
    let token = token
        .map_err(|e| TransferError::Usage(format!("{}: {e}; remove it to have a new one made", file.display())))?;
    let Some((identity, exposed)) = token::read_identity(file)? else {
        return Err(TransferError::Usage(format!(
            "{} is missing, and the tokens in {} are useless without it; restore it, or remove them to have new ones made",
            key.display(),
            if first.is_some() { file.display() } else { store.display() }
        )));
    };
    let exposed = exposed.into_iter().chain(token::exposed_folder(file)).collect();
    let mut state = State { identity, entries: Vec::new(), exposed };
    let check = |file: &Path, fingerprint: Fingerprint| {
        if fingerprint == state.identity.fingerprint() {
            return Ok(());
        }
        let (file, key) = (file.display(), key.display());
        let why = "do not belong together; remove both to have new ones made";
        Err(TransferError::Usage(format!("{file} and {key} {why}")))
    };
    if let Some((first, token)) = first.zip(token) {
        check(file, token.fingerprint)?;
        let grant = Grant { name: FIRST.to_owned(), rights: Rights::ReadWrite, folder: None, expires_unix_s: None };
        state.entries.push(Entry { grant, verifier: token::verifier(&token.secret) });
        state.exposed.extend(first.exposed);
    }
    if let Some(stored) = stored {
        let damaged = |why: String| TransferError::Usage(format!("{} is not a token store: {why}", store.display()));
        let content: Stored = serde_json::from_slice(&stored.content).map_err(|e| damaged(e.to_string()))?;
        if content.version != VERSION {
            return Err(damaged(format!(
                "its format is version {}, but this program reads version {VERSION}",
                content.version
            )));
        }
        check(&store, content.fingerprint)?;
        for entry in &content.tokens {
            check_name(&entry.grant.name).map_err(|e| damaged(e.to_string()))?;
        }
        state.entries.extend(content.tokens);
        state.exposed.extend(stored.exposed);
    }
    Ok(Some(state))
}

/// The tokens of a running server.
pub struct Tokens {
    file: PathBuf,
    fingerprint: Fingerprint,
    /// Guards the tokens and file stamps of the last read. A thread holds it only while it compares, copies or replaces
    /// them, never during file access.
    read: RwLock<Snapshot>,
}

/// The tokens of the last successful read, and the file versions of the last attempt that the system did not fail.
struct Snapshot {
    entries: Vec<Entry>,
    exposed: Vec<Exposed>,
    /// Versions of the token file, the store and the key file, taken before the last attempt to read them that the system
    /// did not fail.
    stamps: [Stamp; 3],
    /// Whether the system failed to read the files at the last try: the next caller tries again.
    unread: bool,
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tokens({})", self.file.display())
    }
}

impl Tokens {
    /// Reads a server's certificate, key and tokens. If the server has no token, it makes a first one with all rights.
    /// The third value is true if it made one.
    ///
    /// # Errors
    /// A file cannot be read or made, is damaged, or may have been written by another user.
    pub fn load_or_make(file: &Path) -> Result<(Tokens, Identity, bool), TransferError> {
        let mut stamps = stamps(file);
        let (state, made) = match read(file)? {
            Some(state) => (state, false),
            None => {
                let _locked = token::lock(file)?;
                // Another server or 'fullpipe token new' may have made a token before this process got the lock.
                let made = read(file)?.is_none();
                if made {
                    let token = Token::new(token::identity_or_new(file)?.fingerprint());
                    token::write_secret(file, format!("{token}\n").as_bytes())?;
                }
                stamps = self::stamps(file);
                let missing = || TransferError::Usage(format!("{} has vanished", file.display()));
                (read(file)?.ok_or_else(missing)?, made)
            }
        };
        let State { identity, entries, exposed } = state;
        let fingerprint = identity.fingerprint();
        let read = RwLock::new(Snapshot { entries, exposed, stamps, unread: false });
        Ok((Tokens { file: file.to_owned(), fingerprint, read }, identity, made))
    }

    fn snapshot(&self) -> std::sync::RwLockReadGuard<'_, Snapshot> {
        self.read.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the tokens again and returns their number. If that fails, the tokens of the last successful read stay valid.
    /// After an error of the system, such as a lack of descriptors, [`Tokens::refresh`] tries again, so that no revocation
    /// is missed.
    ///
    /// # Errors
    /// A file cannot be read, is damaged, or may have been written by another user. It also fails if the server's key has
    /// changed, because a running server cannot switch to another key.
    pub fn reload(&self) -> Result<usize, TransferError> {
        let stamps = stamps(&self.file);
        let state = read(&self.file);
        let mut snapshot = self.read.write().unwrap_or_else(PoisonError::into_inner);
        snapshot.unread = matches!(state, Err(TransferError::Local { .. }));
        if !snapshot.unread {
            // Also where the content is wrong: that is reported once, not for each client.
            snapshot.stamps = stamps;
        }
        let (entries, exposed) = match state? {
            Some(state) if state.identity.fingerprint() != self.fingerprint => {
                let key = token::key_file(&self.file);
                return Err(TransferError::Usage(format!(
                    "{} has changed; restart this server to use it",
                    key.display()
                )));
            }
            Some(state) => (state.entries, state.exposed),
            // The files were removed, so no token is valid any more.
            None => Default::default(),
        };
        (snapshot.entries, snapshot.exposed) = (entries, exposed);
        Ok(snapshot.entries.len())
    }

    /// Reads the tokens again if their files have changed, or if the last read failed. Returns `None` if nothing has
    /// changed, or if a read fails whose failure has been reported.
    pub fn refresh(&self) -> Option<Result<usize, TransferError>> {
        let now = stamps(&self.file);
        let unread = {
            let snapshot = self.snapshot();
            if now == snapshot.stamps && !snapshot.unread {
                return None;
            }
            snapshot.unread
        };
        let read = self.reload();
        let reported = unread && matches!(read, Err(TransferError::Local { .. }));
        (!reported).then_some(read)
    }

    /// Returns the grant of the token with this secret. The check takes the same time whichever token matches, and if
    /// none does.
    ///
    /// # Errors
    /// No token has this secret, or the token has expired.
    pub fn check(&self, secret: &[u8], now: SystemTime) -> Result<Grant, Refusal> {
        let shown = token::verifier(secret);
        self.find(now, |verifier| same(verifier, &shown))
    }

    /// Returns the grant of the token that a client has proven to have, without showing its secret. `is_proof` decides
    /// whether the client's proof was made with a given key; this function calls it with each token's key.
    ///
    /// # Errors
    /// Those of [`Tokens::check`].
    pub fn prove(&self, now: SystemTime, is_proof: impl Fn(&ProofKey) -> bool) -> Result<Grant, Refusal> {
        self.find(now, |verifier| is_proof(&token::proof_key(verifier)))
    }

    fn find(&self, now: SystemTime, is_it: impl Fn(&[u8; 32]) -> bool) -> Result<Grant, Refusal> {
        let snapshot = self.snapshot();
        let mut found = None;
        for entry in &snapshot.entries {
            if is_it(&entry.verifier) {
                found = Some(&entry.grant);
            }
        }
        match found {
            None => Err(Refusal::Unknown),
            Some(grant) if grant.has_expired(now) => Err(Refusal::Expired(grant.name.clone())),
            Some(grant) => Ok(grant.clone()),
        }
    }

    /// Returns the grants of all tokens.
    pub fn grants(&self) -> Vec<Grant> {
        self.snapshot().entries.iter().map(|entry| entry.grant.clone()).collect()
    }

    /// Returns how other users of this host can read or replace this server's secret files.
    pub fn exposed(&self) -> Vec<Exposed> {
        self.snapshot().exposed.clone()
    }
}

fn stamps(file: &Path) -> [Stamp; 3] {
    [stamp(file), stamp(&token::store_file(file)), stamp(&token::key_file(file))]
}

/// Compares two values in constant time, with blake3's comparison of hashes.
fn same(one: &[u8; 32], other: &[u8; 32]) -> bool {
    blake3::Hash::from_bytes(*one) == blake3::Hash::from_bytes(*other)
}

/// Refuses a token name that would be unclear in a log, and the reserved name [`FIRST`].
///
/// # Errors
/// The name is empty, too long or reserved, begins with '-', or has characters other than letters, digits and `-_.@`.
pub fn check_name(name: &str) -> Result<(), TransferError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '@');
    let fits = (1..=MAX_NAME_BYTES).contains(&name.len()) && name.chars().all(plain) && !name.starts_with('-');
    if fits && name != FIRST {
        return Ok(());
    }
    let why = if fits {
        "is the one in the token file; choose another name".to_owned()
    } else {
        format!("give 1 to {MAX_NAME_BYTES} letters, digits, '-', '_', '.' or '@', and no '-' first")
    };
    Err(TransferError::Usage(format!("a token called '{}': {why}", name.escape_default())))
}

/// Returns the grants of all tokens of the server with this token file.
///
/// # Errors
/// Neither the token file nor the store exists, or the server's files cannot be read.
pub fn list(file: &Path) -> Result<Vec<Grant>, TransferError> {
    let none = || TransferError::Usage(format!("there are no tokens: neither {} nor its store exists", file.display()));
    let state = read(file)?.ok_or_else(none)?;
    Ok(state.entries.into_iter().map(|entry| entry.grant).collect())
}

/// Returns how other users of this host can read or replace a server's secret files.
///
/// # Errors
/// The server's files cannot be read.
pub fn exposed(file: &Path) -> Result<Vec<Exposed>, TransferError> {
    Ok(read(file)?.map_or_else(Vec::new, |state| state.exposed))
}

/// Makes a token and adds it to the store. Without a name, the token gets a random one. If the server has no key, this
/// makes one. It calls `keep` with the token before it writes the store; if `keep` fails, no token is added.
///
/// # Errors
/// The name is taken or not allowed, the server's files cannot be read or written, or `keep` fails.
pub fn add(
    file: &Path,
    name: Option<&str>,
    grant: Grant,
    keep: impl FnOnce(&Token, &Grant) -> Result<(), TransferError>,
) -> Result<(Token, Grant), TransferError> {
    let _locked = token::lock(file)?;
    let entries = read(file)?.map_or_else(Vec::new, |state| state.entries);
    let taken = |name: &str| entries.iter().any(|entry| entry.grant.name == name);
    let name = match name {
        Some(name) => {
            check_name(name)?;
            if taken(name) {
                return Err(TransferError::Usage(format!("there is a token called '{name}' already; revoke it first")));
            }
            name.to_owned()
        }
        None => loop {
            let name = format!("token-{:06x}", rand::rng().random::<u32>() & 0xff_ffff);
            if !taken(&name) {
                break name;
            }
        },
    };
    let fingerprint = token::identity_or_new(file)?.fingerprint();
    let token = Token::new(fingerprint);
    let grant = Grant { name, ..grant };
    keep(&token, &grant)?;
    let added = Entry { grant: grant.clone(), verifier: token::verifier(&token.secret) };
    write(file, fingerprint, entries.into_iter().chain([added]))?;
    Ok((token, grant))
}

/// Revokes the token with this name. Returns whether there was such a token.
///
/// # Errors
/// The server's files cannot be read or written.
pub fn revoke(file: &Path, name: &str) -> Result<bool, TransferError> {
    let _locked = token::lock(file)?;
    let Some(state) = read(file)? else { return Ok(false) };
    let before = state.entries.len();
    let left: Vec<Entry> = state.entries.into_iter().filter(|entry| entry.grant.name != name).collect();
    if left.len() == before {
        return Ok(false);
    }
    // An empty store stays: a server that finds neither a store nor a token file makes a first token with all rights.
    write(file, state.identity.fingerprint(), left.into_iter())?;
    if name == FIRST {
        let failed = |e: io::Error| TransferError::of_file(format!("cannot remove {}", file.display()), &e);
        std::fs::remove_file(file).or_else(missing_is_fine).map_err(failed)?;
    }
    Ok(true)
}

/// Ignores the error that a file does not exist.
fn missing_is_fine(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

/// Replaces the store. The token [`FIRST`] is left out, because it is in the token file.
fn write(file: &Path, fingerprint: Fingerprint, entries: impl Iterator<Item = Entry>) -> Result<(), TransferError> {
    let tokens = entries.filter(|entry| entry.grant.name != FIRST).collect();
    let stored = Stored { version: VERSION, fingerprint, tokens };
    let mut bytes = serde_json::to_vec_pretty(&stored)
        .map_err(|e| TransferError::Usage(format!("cannot write the token store: {e}")))?;
    bytes.push(b'\n');
    token::write_secret(&token::store_file(file), &bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn grant(rights: Rights, expires_unix_s: Option<u64>) -> Grant {
        Grant { name: String::new(), rights, folder: None, expires_unix_s }
    }

    fn at(unix_s: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(unix_s)
    }

    #[test]
    fn a_first_token_is_made_once() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Tokens::load_or_make(&dir.path().join("state/token")).is_err());
        let file = dir.path().join("token");
        let (tokens, identity, made) = Tokens::load_or_make(&file).unwrap();
        let (again, same, anew) = Tokens::load_or_make(&file).unwrap();
        assert_eq!((made, anew), (true, false));
        assert_eq!(identity.certificate, same.certificate);
        for name in ["token", "token.key"] {
            assert_eq!(fs::metadata(dir.path().join(name)).unwrap().permissions().mode() & 0o777, 0o600, "{name}");
        }
        let token: Token = fs::read_to_string(&file).unwrap().parse().unwrap();
        assert_eq!(again.check(&token.secret, at(0)).unwrap().name, FIRST);
        assert_eq!(tokens.check(&[0; 32], at(0)), Err(Refusal::Unknown));
        assert_eq!(tokens.check(&[], at(0)), Err(Refusal::Unknown));
        fs::write(&file, "fp1-x").unwrap();
        assert!(Tokens::load_or_make(&file).is_err());
    }

    #[test]
    fn tokens_come_and_go_while_a_server_runs() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        let (tokens, ..) = Tokens::load_or_make(&file).unwrap();
        assert!(tokens.refresh().is_none());
        let new = |name, expires| add(&file, name, grant(Rights::ReadOnly, expires), |_, _| Ok(())).unwrap().0;
        let (one, two) = (new(Some("one"), None), new(None, Some(100)));
        assert_eq!(tokens.check(&one.secret, at(0)), Err(Refusal::Unknown), "not read yet");
        assert_eq!(tokens.refresh().unwrap().unwrap(), 3);
        assert!(tokens.refresh().is_none());
        assert_eq!(tokens.check(&one.secret, at(0)).unwrap().rights, Rights::ReadOnly);
        assert!(tokens.check(&two.secret, at(99)).is_ok());
        assert!(matches!(tokens.check(&two.secret, at(100)), Err(Refusal::Expired(_))));
        // A proof opens it too, and only a proof with its key.
        let proven = |key: ProofKey| tokens.prove(at(0), |one| one.0 == key.0).map(|grant| grant.name);
        assert_eq!(proven(one.proof_key()).as_deref(), Ok("one"));
        assert_eq!(proven(Token::new(one.fingerprint).proof_key()), Err(Refusal::Unknown));
        // The store holds no secret.
        assert!(!fs::read_to_string(token::store_file(&file)).unwrap().contains(&token::hex(&one.secret)));
        // A damaged store changes nothing, and is told of once.
        let whole = fs::read(token::store_file(&file)).unwrap();
        fs::write(token::store_file(&file), "{").unwrap();
        assert!(tokens.refresh().unwrap().is_err() && tokens.refresh().is_none());
        assert!(tokens.check(&one.secret, at(0)).is_ok());
        fs::write(token::store_file(&file), whole).unwrap();
        assert!(revoke(&file, "one").unwrap() && !revoke(&file, "one").unwrap());
        assert!(revoke(&file, FIRST).unwrap());
        assert_eq!(tokens.refresh().unwrap().unwrap(), 1);
        assert_eq!(tokens.check(&one.secret, at(0)), Err(Refusal::Unknown));
        let left = list(&file).unwrap();
        assert!(left.len() == 1 && left[0].name.starts_with("token-"), "{left:?}");
        // With a store, and be it empty, no first token is made.
        assert!(revoke(&file, &left[0].name).unwrap());
        let (none, _, made) = Tokens::load_or_make(&file).unwrap();
        assert!(!made && none.grants().is_empty());
    }

    #[test]
    fn a_revocation_that_could_not_be_read_is_read_later() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        let (tokens, ..) = Tokens::load_or_make(&file).unwrap();
        let one = add(&file, Some("one"), grant(Rights::ReadWrite, None), |_, _| Ok(())).unwrap().0;
        assert_eq!(tokens.refresh().unwrap().unwrap(), 2);
        assert!(revoke(&file, "one").unwrap());
        // A folder cannot be read, as no file can be where descriptors are lacking.
        let (key, aside) = (token::key_file(&file), dir.path().join("aside"));
        fs::rename(&key, &aside).unwrap();
        fs::create_dir(&key).unwrap();
        assert!(matches!(tokens.refresh(), Some(Err(TransferError::Local { .. }))));
        assert!(tokens.refresh().is_none(), "it is reported once");
        assert!(tokens.check(&one.secret, at(0)).is_ok());
        fs::remove_dir(&key).unwrap();
        fs::rename(&aside, &key).unwrap();
        assert_eq!(tokens.refresh().unwrap().unwrap(), 1);
        assert_eq!(tokens.check(&one.secret, at(0)), Err(Refusal::Unknown));
        assert!(tokens.refresh().is_none());
    }

    #[test]
    fn a_revocation_counts_once_the_key_is_in_order_again() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        let (tokens, ..) = Tokens::load_or_make(&file).unwrap();
        let one = add(&file, Some("one"), grant(Rights::ReadWrite, None), |_, _| Ok(())).unwrap().0;
        assert_eq!(tokens.refresh().unwrap().unwrap(), 2);
        assert!(revoke(&file, "one").unwrap());
        let chmod = |mode| fs::set_permissions(token::key_file(&file), fs::Permissions::from_mode(mode)).unwrap();
        chmod(0o660);
        assert!(matches!(tokens.refresh(), Some(Err(TransferError::Usage(_)))));
        assert!(tokens.refresh().is_none(), "it is reported once");
        chmod(0o600);
        assert_eq!(tokens.refresh().unwrap().unwrap(), 1);
        assert_eq!(tokens.check(&one.secret, at(0)), Err(Refusal::Unknown));
    }

    #[test]
    fn names_are_plain_and_their_own() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        let new = |name: &str| add(&file, Some(name), grant(Rights::ReadWrite, None), |_, _| Ok(())).is_ok();
        assert!(new("alice@site-1.example"));
        for bad in ["alice@site-1.example", "", FIRST, "-x", "a b", "a\nb", "\u{202e}", &"x".repeat(65)] {
            assert!(!new(bad), "{bad}");
        }
        // What is not handed out does not exist.
        let refuse = |_: &Token, _: &Grant| Err(TransferError::Usage(String::new()));
        assert!(add(&file, Some("bob"), grant(Rights::ReadWrite, None), refuse).is_err());
        assert_eq!(list(&file).unwrap().len(), 1);
    }
}
