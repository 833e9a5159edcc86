//! A server's key and its first token, and how files that hold secrets are read and written.
//!
//! A server keeps its state in four files, named after its token file FILE:
//!
//! - `FILE` holds the token that `fullpipe serve` makes at its first start.
//! - `FILE.key` holds the private key and the certificate.
//! - `FILE.store` holds the tokens that `fullpipe token new` makes ([`crate::connection::token_store`]).
//! - `FILE.lock` is empty. A process locks it while it changes one of the other files.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use rand::RngExt;

use crate::connection::tls::{Fingerprint, Identity};
use crate::error::{TransferError, local};

/// Number of bytes read at most from a token file, key file or token store.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// A token: the secret with which a client identifies itself, and the fingerprint by which it recognises the server.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// The secret that the client shows to the server: 32 random bytes.
    pub secret: [u8; 32],
    /// The fingerprint of the server's certificate.
    pub fingerprint: Fingerprint,
}

impl Token {
    /// Makes a token with a new random secret, for the server whose certificate has this fingerprint.
    pub fn new(fingerprint: Fingerprint) -> Token {
        Token { secret: rand::rng().random(), fingerprint }
    }

    /// The key with which a client proves that it may measure ([`fullpipe_net::wire::proof`]).
    pub fn proof_key(&self) -> fullpipe_net::wire::ProofKey {
        proof_key(&verifier(&self.secret))
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

/// The hash of a token's secret that a server stores in place of the secret. A plain hash suffices because the secret is
/// 32 random bytes.
pub(crate) fn verifier(secret: &[u8]) -> [u8; 32] {
    blake3::derive_key("fullpipe 2026-11 verifier of a token", secret)
}

/// Derives the key with which a client proves that it may measure. Both ends can compute the verifier it derives from.
pub(crate) fn proof_key(verifier: &[u8; 32]) -> fullpipe_net::wire::ProofKey {
    fullpipe_net::wire::ProofKey(blake3::derive_key("fullpipe 2026-11 proof that a client may measure", verifier))
}

/// Writes bytes as lowercase hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

impl std::fmt::Display for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "fp1-{}-{}", hex(&self.secret), hex(&self.fingerprint))
    }
}

impl std::str::FromStr for Token {
    type Err = TransferError;

    fn from_str(text: &str) -> Result<Token, TransferError> {
        let wrong = || {
            TransferError::Usage(
                "not a valid token: a token has the form fp1-...-...; copy it from the file that 'fullpipe serve' names".into(),
            )
        };
        let bytes = |part: &str| -> Option<[u8; 32]> {
            let hash = blake3::Hash::from_hex(part).ok()?;
            Some(*hash.as_bytes())
        };
        let mut parts = text.trim().strip_prefix("fp1-").ok_or_else(wrong)?.splitn(2, '-');
        let secret = parts.next().and_then(bytes).ok_or_else(wrong)?;
        let fingerprint = parts.next().and_then(bytes).ok_or_else(wrong)?;
        Ok(Token { secret, fingerprint })
    }
}

/// The path of a token file with a suffix appended.
fn beside(token: &Path, suffix: &str) -> PathBuf {
    let mut name = token.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// The path of the file with the server's private key and certificate, given the server's token file.
pub(crate) fn key_file(token: &Path) -> PathBuf {
    beside(token, ".key")
}

/// Whether there is a server's private key beside a token file.
#[must_use]
pub fn has_identity(token: &Path) -> bool {
    key_file(token).symlink_metadata().is_ok()
}

/// The path of the server's token store, given the server's token file.
pub fn store_file(token: &Path) -> PathBuf {
    beside(token, ".store")
}

/// A permission that lets other users of this host read or replace secret files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exposed {
    /// Other users may read the file.
    File {
        /// The file.
        file: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// Other users may replace the files in this folder.
    Folder {
        /// The folder.
        folder: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
}

impl std::fmt::Display for Exposed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let who = |anyone: bool| if anyone { "ANYONE on this host" } else { "its group" };
        match self {
            Exposed::File { file, mode } => {
                let (who, file) = (who(mode & 0o004 != 0), file.display());
                write!(f, "{file} can be read by {who} (mode {mode:04o}): chmod 600 {file}")
            }
            Exposed::Folder { folder, mode } => {
                let (who, folder) = (who(mode & 0o002 != 0), folder.display());
                write!(
                    f,
                    "{folder} can be written by {who} (mode {mode:04o}), who can replace the token files in it: \
                     chmod go-w {folder}"
                )
            }
        }
    }
}

/// The folder of a secret file, if other users may replace files in it. They may if they can write to the folder and it
/// is not sticky.
pub(crate) fn exposed_folder(file: &Path) -> Option<Exposed> {
    let folder = folder_of(file).to_owned();
    let mode = fs::metadata(&folder).ok()?.mode() & 0o7777;
    (mode & 0o022 != 0 && mode & 0o1000 == 0).then_some(Exposed::Folder { folder, mode })
}

/// The folder that contains a file.
fn folder_of(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A secret file's content, and whether other users may read the file.
#[derive(Debug)]
pub(crate) struct Secret {
    pub(crate) content: Vec<u8>,
    pub(crate) exposed: Option<Exposed>,
}

/// Reads a server's file that holds secrets; returns `None` if the file does not exist. It checks the open file, not the path,
/// so nobody can replace the file between the check and the use.
///
/// # Errors
/// It is no regular file, another user owns it, other users may write to it, or it cannot be read.
pub(crate) fn read_secret(file: &Path) -> Result<Option<Secret>, TransferError> {
    // A FIFO may stand in the file's place. Opening it must not wait for whoever opens its other end.
    read_checked(file, libc::O_NONBLOCK, |meta| {
        // A folder cannot be read, which the reading says.
        if meta.is_file() || meta.is_dir() {
            return Ok(());
        }
        let why = "is no regular file; put the server's own file back in its place";
        Err(TransferError::Usage(format!("{} {why}", file.display())))
    })
}

/// Reads a client's file with a token, which may also be a pipe, such as a shell's `<(...)`.
fn read_secret_or_pipe(file: &Path) -> Result<Option<Secret>, TransferError> {
    read_checked(file, 0, |_| Ok(()))
}

fn read_checked(
    file: &Path,
    how: i32,
    check: impl FnOnce(&fs::Metadata) -> Result<(), TransferError>,
) -> Result<Option<Secret>, TransferError> {
    let failed = |e| local(format!("cannot read {}", file.display()))(e);
    let open = match OpenOptions::new().read(true).custom_flags(how).open(file) {
        Ok(open) => open,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(failed(e)),
    };
    let meta = open.metadata().map_err(failed)?;
    check(&meta)?;
    check_own(file, &meta)?;
    let mode = meta.mode() & 0o7777;
    let mut content = Vec::new();
    open.take(MAX_FILE_BYTES).read_to_end(&mut content).map_err(failed)?;
    let exposed = (meta.is_file() && mode & 0o044 != 0).then(|| Exposed::File { file: file.to_owned(), mode });
    Ok(Some(Secret { content, exposed }))
}

/// Refuses a file that another user may have written. Files of root are accepted, since root can change any file anyway.
///
/// # Errors
/// Another user owns it, or others may write to it.
pub fn check_own(file: &Path, meta: &fs::Metadata) -> Result<(), TransferError> {
    let (shown, me) = (file.display(), nix::unistd::geteuid().as_raw());
    if meta.uid() != me && meta.uid() != 0 {
        return Err(TransferError::Usage(format!(
            "{shown} belongs to user {}, who controls its content, and this process runs as user {me}: run it as that \
             user, or use a file that user {me} owns, with mode 600",
            meta.uid()
        )));
    }
    // A pipe, such as a shell's <(...), has no other writers.
    if meta.is_file() && meta.mode() & 0o022 != 0 {
        let who = if meta.mode() & 0o002 != 0 { "anyone on this host" } else { "its group" };
        return Err(TransferError::Usage(format!(
            "{shown} can be written by {who} (mode {:04o}), who can change its content: check it, then run chmod 600 {shown}",
            meta.mode() & 0o7777
        )));
    }
    Ok(())
}

/// Writes a file that holds secrets, with mode 600. It replaces an existing file atomically: after a crash, either the
/// old or the new file is complete.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn write_secret(file: &Path, content: &[u8]) -> Result<(), TransferError> {
    let fresh = beside(file, ".new");
    let write = || -> io::Result<()> {
        // A process that was killed may have left this file. No other process writes it now, because the caller has the lock.
        match fs::remove_file(&fresh) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let mut to = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh)?;
        to.write_all(content)?;
        to.sync_all()?;
        fs::rename(&fresh, file)?;
        File::open(folder_of(file))?.sync_all()
    };
    write().map_err(|e| {
        // An incomplete file is useless.
        let _ = fs::remove_file(&fresh);
        TransferError::of_file(format!("cannot write {}", file.display()), &e)
    })
}

/// Locks a server's state files until the returned value is dropped.
///
/// The lock guards `FILE`, `FILE.key` and `FILE.store` against changes by other processes. Readers need no lock, because
/// each file is replaced atomically.
///
/// # Errors
/// The lock file cannot be made, or another user may have made it.
pub(crate) fn lock(token: &Path) -> Result<Flock<File>, TransferError> {
    let file = beside(token, ".lock");
    let failed = |e: io::Error| TransferError::of_file(format!("cannot lock {}", file.display()), &e);
    let how = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(&file);
    let open = how.map_err(|e| TransferError::of_file(format!("cannot make {}", file.display()), &e))?;
    check_own(&file, &open.metadata().map_err(failed)?)?;
    Flock::lock(open, FlockArg::LockExclusive).map_err(|(_, e)| failed(e.into()))
}

/// Reads a client's token from a file. Also returns how other users can read or replace that file.
///
/// # Errors
/// The file cannot be read, another user may have written it, or it holds no token.
pub fn read_token(file: &Path) -> Result<(Token, Vec<Exposed>), TransferError> {
    let missing = || {
        let remedy = "check the name, or copy the token from the server's operator into it";
        TransferError::Usage(format!("cannot read {}: no such file; {remedy}", file.display()))
    };
    let Secret { content, exposed } = read_secret_or_pipe(file)?.ok_or_else(missing)?;
    let token = String::from_utf8_lossy(&content).parse();
    let token = token.map_err(|e| TransferError::Usage(format!("{}: {e}", file.display())))?;
    Ok((token, exposed.into_iter().chain(exposed_folder(file)).collect()))
}

/// Reads the first line of a file that holds a secret, without the space around it. Also returns how other users can read or
/// replace that file.
///
/// # Errors
/// The file cannot be read, or another user may have written it.
pub fn read_first_line(file: &Path) -> Result<(String, Vec<Exposed>), TransferError> {
    let missing = || TransferError::Usage(format!("cannot read {}: no such file; check the name", file.display()));
    let Secret { content, exposed } = read_secret_or_pipe(file)?.ok_or_else(missing)?;
    let line = String::from_utf8_lossy(&content).lines().next().unwrap_or_default().trim().to_owned();
    Ok((line, exposed.into_iter().chain(exposed_folder(file)).collect()))
}

/// Reads a server's certificate and key from its key file; returns `None` if the key file does not exist.
///
/// # Errors
/// The file cannot be read, another user may have written it, or it is damaged.
pub(crate) fn read_identity(token: &Path) -> Result<Option<(Identity, Option<Exposed>)>, TransferError> {
    let file = key_file(token);
    let Some(Secret { content, exposed }) = read_secret(&file)? else { return Ok(None) };
    let damaged = |_| {
        let why = "is damaged; remove it, its token file and its store to have new ones made";
        TransferError::Usage(format!("{} {why}", file.display()))
    };
    let (key, certificate): (Vec<u8>, Vec<u8>) = postcard::from_bytes(&content).map_err(damaged)?;
    Ok(Some((Identity { certificate, key }, exposed)))
}

/// Reads a server's certificate and key, or makes them if there is no key file. The caller must hold the [`lock`].
///
/// # Errors
/// Those of [`read_identity`], or the key file cannot be written.
pub(crate) fn identity_or_new(token: &Path) -> Result<Identity, TransferError> {
    if let Some((identity, _)) = read_identity(token)? {
        return Ok(identity);
    }
    let identity = Identity::new()?;
    let bytes = postcard::to_allocvec(&(&identity.key, &identity.certificate)).unwrap_or_default();
    write_secret(&key_file(token), &bytes)?;
    Ok(identity)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_fifo_in_the_place_of_a_servers_file_is_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token.store");
        nix::unistd::mkfifo(&file, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let why = read_secret(&file).unwrap_err().to_string();
        assert!(why.contains("is no regular file"), "{why}");
    }

    #[test]
    fn tokens() {
        let token = Token { secret: [1; 32], fingerprint: [0xab; 32] };
        assert_eq!(token.to_string().parse::<Token>().unwrap(), token);
        for bad in ["", "fp1-", "fp1-00-00", "fp2-x", &token.to_string()[..50]] {
            assert!(bad.parse::<Token>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_secret_file_is_its_owners() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("secret");
        assert!(read_secret(&file).unwrap().is_none());
        write_secret(&file, b"x").unwrap();
        let mode = |mode| fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        for (bits, exposed) in [(0o600, false), (0o400, false), (0o640, true), (0o604, true), (0o610, false)] {
            mode(bits);
            let read = read_secret(&file).unwrap().unwrap();
            assert_eq!((read.content.as_slice(), read.exposed.is_some()), (&b"x"[..], exposed), "{bits:o}");
        }
        for bits in [0o620, 0o602, 0o666] {
            mode(bits);
            assert!(read_secret(&file).is_err(), "{bits:o}");
        }
        // The new file has mode 600, whatever mode the old one had.
        write_secret(&file, b"y").unwrap();
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        if nix::unistd::geteuid().is_root() {
            std::os::unix::fs::chown(&file, Some(12345), None).unwrap();
            let why = read_secret(&file).unwrap_err().to_string();
            assert!(why.contains("belongs to user 12345"), "{why}");
        }
    }
}
