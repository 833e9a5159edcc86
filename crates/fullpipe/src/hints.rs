//! What a user may have meant by a path or a host that is none.

use std::path::Path as FilePath;

use fullpipe_net::NetError;
use fullpipe_path::{Classified, Path, PathError};

use crate::failure::{Failure, Result};

/// Reads a path. Where the text names a folder of this host instead, `storage` says in the error what to do: it gets the folder.
///
/// # Errors
/// The text is not a path.
pub fn path(text: &str, storage: impl Fn(&str) -> String) -> Result<Path> {
    let storage_of = text.strip_prefix("disk:").or_else(|| text.strip_prefix("mount:"));
    text.parse().map_err(|error: PathError| match (&error, storage_of) {
        (PathError::Host(_), Some(folder)) => Failure::usage(format!("'{text}' is not a host: {}", storage(folder))),
        (PathError::Host(_), None) if FilePath::new(text).is_dir() => {
            Failure::usage(format!("'{text}' is not a host but a folder: {}", storage(text)))
        }
        _ => error.into(),
    })
}

/// The error of a host that could not be asked. If no server runs there, ssh can start one. If its name does not resolve, it may be
/// a folder, for which `storage` is as for [`path`], or a name that only ssh knows.
pub fn of_host(error: NetError, storage: impl Fn(&str) -> String) -> Failure {
    if let NetError::Connect { .. } = &error {
        return Failure::new(error.class(), format!("{error} With ssh:HOST in the host's place, one is started there"));
    }
    let NetError::Resolve { host, .. } = &error else { return error.into() };
    if FilePath::new(host).is_dir() {
        return Failure::new(error.class(), format!("{error}; for the folder '{host}', {}", storage(host)));
    }
    // An alias is rarely a full name, and an address never one.
    if host.contains(['.', ':']) {
        return error.into();
    }
    Failure::new(error.class(), format!("{error}: write a name of ssh's configuration as ssh:NAME"))
}
