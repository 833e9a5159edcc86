//! A server's key and its first token, and how files that hold secrets are read and written.
//!
//! A server's state is named after its token file FILE: `FILE` holds the token that `fullpipe serve` makes at its first
//! start, `FILE.key` the private key and certificate, `FILE.store` the tokens that `fullpipe token new` makes
//! ([`crate::connection::token_store`]), `FILE.lock` is locked by whoever changes one of them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use rand::RngExt;

use crate::connection::tls::{Fingerprint, Identity};
use crate::error::{TransferError, local};

/// Longest token file, key or store that is read, bytes.
const FILE_MAX: u64 = 4 << 20;

/// What opens a standing server: its secret, and the fingerprint of its certificate.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// Shown to the server.
    pub secret: [u8; 32],
    /// Of its certificate.
    pub fingerprint: Fingerprint,
}

impl Token {
    /// Draws a new secret for the server with this certificate.
    pub fn new(fingerprint: Fingerprint) -> Token {
        Token { secret: rand::rng().random(), fingerprint }
    }

    /// Key for the proof that a client may measure ([`fullpipe_net::wire::proof`]).
    pub fn proof_key(&self) -> fullpipe_net::wire::ProofKey {
        proof_key(&verifier(&self.secret))
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

/// What a server keeps of a token's secret (32 bytes, drawn at random, so that a plain hash suffices).
pub(crate) fn verifier(secret: &[u8]) -> [u8; 32] {
    blake3::derive_key("fullpipe 2026-11 verifier of a token", secret)
}

/// Key for the proof that a client may measure, from the verifier that both ends can compute.
pub(crate) fn proof_key(verifier: &[u8; 32]) -> fullpipe_net::wire::ProofKey {
    fullpipe_net::wire::ProofKey(blake3::derive_key("fullpipe 2026-11 proof that a client may measure", verifier))
}

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
                "this is no token: one has the form fp1-...-..., as in the file that 'fullpipe serve' names".into(),
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

/// FILE with something behind its name.
fn beside(token: &Path, suffix: &str) -> PathBuf {
    let mut name = token.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// The private key and the certificate of the server with this token file.
pub(crate) fn key_file(token: &Path) -> PathBuf {
    beside(token, ".key")
}

/// The token store of the server with this token file.
pub fn store_file(token: &Path) -> PathBuf {
    beside(token, ".store")
}

/// A way in which other users of this host can get at secret files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exposed {
    /// Others may read the file.
    File {
        /// The file.
        file: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// Others may replace the files in this folder.
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

/// The folder of a secret file, if others may replace files in it: they may write to it, and it is not sticky.
pub(crate) fn exposed_folder(file: &Path) -> Option<Exposed> {
    let folder = folder_of(file).to_owned();
    let mode = fs::metadata(&folder).ok()?.mode() & 0o7777;
    (mode & 0o022 != 0 && mode & 0o1000 == 0).then_some(Exposed::Folder { folder, mode })
}

/// The folder that a file is in.
fn folder_of(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A secret file's content, and whether others may read it.
#[derive(Debug)]
pub(crate) struct Secret {
    pub(crate) content: Vec<u8>,
    pub(crate) exposed: Option<Exposed>,
}

/// Reads a file that holds secrets, none if it does not exist. The checks are made on the open file, so that it cannot be
/// exchanged between check and use.
///
/// # Errors
/// Another user owns it, others may write it, or it cannot be read.
pub(crate) fn read_secret(file: &Path) -> Result<Option<Secret>, TransferError> {
    let failed = |e| local(format!("cannot read {}", file.display()))(e);
    let open = match File::open(file) {
        Ok(open) => open,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(failed(e)),
    };
    let meta = open.metadata().map_err(failed)?;
    check_own(file, &meta)?;
    let mode = meta.mode() & 0o7777;
    let mut content = Vec::new();
    open.take(FILE_MAX).read_to_end(&mut content).map_err(failed)?;
    let exposed = (meta.is_file() && mode & 0o044 != 0).then(|| Exposed::File { file: file.to_owned(), mode });
    Ok(Some(Secret { content, exposed }))
}

/// Refuses a file that another user may have written. Root's are fine: root may do anything in any case.
fn check_own(file: &Path, meta: &fs::Metadata) -> Result<(), TransferError> {
    let (shown, me) = (file.display(), nix::unistd::geteuid().as_raw());
    if meta.uid() != me && meta.uid() != 0 {
        return Err(TransferError::Usage(format!(
            "{shown} belongs to user {}, who may have put anything into it, and this process runs as user {me}: run it \
             as that user, or use a file of this user's own, with mode 600",
            meta.uid()
        )));
    }
    // A pipe, as of a shell's <(...), has no other writers.
    if meta.is_file() && meta.mode() & 0o022 != 0 {
        let who = if meta.mode() & 0o002 != 0 { "anyone on this host" } else { "its group" };
        return Err(TransferError::Usage(format!(
            "{shown} can be written by {who} (mode {:04o}), so it may hold anything: look at it, then chmod 600 {shown}",
            meta.mode() & 0o7777
        )));
    }
    Ok(())
}

/// Writes a file that holds secrets, for its owner alone. It replaces what has its name in one step; after a crash the
/// old or the new one is there whole.
///
/// # Errors
/// The file system's.
pub(crate) fn write_secret(file: &Path, content: &[u8]) -> Result<(), TransferError> {
    let fresh = beside(file, ".new");
    let write = || -> io::Result<()> {
        // Left by a process that was killed; the lock keeps others from writing one now.
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
        // What of it was written is of no use.
        let _ = fs::remove_file(&fresh);
        TransferError::of_file(format!("cannot write {}", file.display()), &e)
    })
}

/// Locks a server's state against others who would change it, until dropped. Who only reads it needs no lock: each file is
/// replaced in one step.
///
/// # Errors
/// The lock file cannot be made, or is another user's.
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

/// Reads a client's token from a file, and how others can get at that file.
///
/// # Errors
/// It cannot be read, may be somebody else's, or holds no token.
pub fn read_token(file: &Path) -> Result<(Token, Vec<Exposed>), TransferError> {
    let missing = || local(format!("cannot read {}", file.display()))(io::Error::from_raw_os_error(libc::ENOENT));
    let Secret { content, exposed } = read_secret(file)?.ok_or_else(missing)?;
    let token = String::from_utf8_lossy(&content).parse();
    let token = token.map_err(|e| TransferError::Usage(format!("{}: {e}", file.display())))?;
    Ok((token, exposed.into_iter().chain(exposed_folder(file)).collect()))
}

/// A server's certificate and key from its key file; none if there is none.
///
/// # Errors
/// The file cannot be read, may be somebody else's, or is damaged.
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

/// A server's certificate and key, made where there are none. The caller holds the lock.
///
/// # Errors
/// As with [`read_identity`], or it cannot be written.
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
        // What replaces it is its owner's alone, whatever it was.
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
