//! The token and the key of a standing server, in two files that only their owner may read.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rand::RngExt;

use crate::error::{TransferError, local};
use crate::secure::{Fingerprint, Identity};

/// What opens a standing server: its secret, and the fingerprint of its certificate.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// Shown to the server.
    pub secret: [u8; 32],
    /// Of its certificate.
    pub fingerprint: Fingerprint,
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

fn hex(bytes: &[u8]) -> String {
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

/// The private key, and the certificate.
fn key_file(token: &Path) -> PathBuf {
    let mut name = token.as_os_str().to_owned();
    name.push(".key");
    PathBuf::from(name)
}

/// Reads a server's token and key, or makes both; whether it has made them.
///
/// # Errors
/// A file cannot be read or made, or does not hold what it should.
pub fn load_or_make(file: &Path) -> Result<(Token, Identity, bool), TransferError> {
    let key = key_file(file);
    let what = |what: &str, file: &Path| local(format!("{what} {}", file.display()));
    let token = fs::read_to_string(file);
    if let Ok(text) = &token
        && let Err(e) = text.parse::<Token>()
    {
        return Err(TransferError::Usage(format!("{}: {e}; remove it to have a new one made", file.display())));
    }
    match (token, fs::read(&key)) {
        (Ok(text), Ok(bytes)) => {
            let token: Token = text.parse()?;
            let (key_der, certificate): (Vec<u8>, Vec<u8>) = postcard::from_bytes(&bytes).map_err(|_| damaged(&key))?;
            let identity = Identity { certificate, key: key_der };
            if identity.fingerprint() != token.fingerprint {
                return Err(TransferError::Usage(format!(
                    "{} and {} do not belong together; remove both to have new ones made",
                    file.display(),
                    key.display()
                )));
            }
            Ok((token, identity, false))
        }
        (Err(e), _) if e.kind() == io::ErrorKind::NotFound => {
            let identity = Identity::new()?;
            let token = Token { secret: rand::rng().random(), fingerprint: identity.fingerprint() };
            let bytes = postcard::to_allocvec(&(&identity.key, &identity.certificate)).unwrap_or_default();
            write(&key, &bytes).map_err(what("cannot write", &key))?;
            write(file, format!("{token}\n").as_bytes()).map_err(what("cannot write", file))?;
            Ok((token, identity, true))
        }
        (Err(e), _) => Err(what("cannot read", file)(e)),
        (_, Err(e)) => Err(what("cannot read", &key)(e)),
    }
}

/// Which of a server's two files others on this host may read, if any: whoever can has the server's rights.
#[must_use]
pub fn exposed(token: &Path) -> Option<PathBuf> {
    let others = |file: &PathBuf| fs::metadata(file).is_ok_and(|meta| meta.mode() & 0o004 != 0);
    [token.to_owned(), key_file(token)].into_iter().find(others)
}

fn damaged(file: &Path) -> TransferError {
    TransferError::Usage(format!("{} is damaged; remove it and its token to have new ones made", file.display()))
}

fn write(file: &Path, content: &[u8]) -> io::Result<()> {
    let mut to = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(file)?;
    // One that was there may have another.
    to.set_permissions(Permissions::from_mode(0o600))?;
    to.write_all(content)
}

#[cfg(test)]
mod tests {
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
    fn made_once() {
        let dir = tempfile::tempdir().unwrap();
        assert!(load_or_make(&dir.path().join("state/token")).is_err());
        let file = dir.path().join("token");
        let (token, identity, made) = load_or_make(&file).unwrap();
        let (again, same, anew) = load_or_make(&file).unwrap();
        assert_eq!((token, made, anew), (again, true, false));
        assert_eq!(identity.certificate, same.certificate);
        let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&file).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(exposed(&file), None);
        let key = key_file(&file);
        fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
        assert_eq!(exposed(&file), Some(key));
        fs::write(&file, "fp1-x").unwrap();
        assert!(load_or_make(&file).is_err());
    }
}
