//! Where tokens are kept: the server's files, and the token that a client shows.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use fullpipe_path::ExitClass;
use fullpipe_transfer::TransferError;
use fullpipe_transfer::connection::token::{self, Token};

use crate::failure::{Failure, Result};
use crate::output::errln;
use crate::xdg;

/// Environment variable that holds a client's token.
pub const VARIABLE: &str = "FULLPIPE_TOKEN";

/// The server's token file: the one given, or the default place.
pub fn server_file(given: Option<&Path>) -> Result<PathBuf> {
    if let Some(file) = given {
        return Ok(file.to_owned());
    }
    let why = "where to keep the token? HOME is not set; give --token-file FILE";
    let folder = xdg::state_folder().ok_or_else(|| Failure::new(ExitClass::Missing, why))?;
    // Its files are refused where others may write to them.
    let made = DirBuilder::new().recursive(true).mode(0o700).create(&folder);
    made.map_err(|e| TransferError::of_file(format!("cannot make folder {}", folder.display()), &e))?;
    Ok(folder.join("token"))
}

/// Whether the environment has a client's token.
pub fn is_in_environment() -> bool {
    std::env::var_os(VARIABLE).is_some()
}

/// A client's token, from `--token-file` or the environment; none if neither has one.
pub fn given(file: Option<&Path>, quiet: bool) -> Result<Option<Token>> {
    let Some(file) = file else {
        let Ok(text) = std::env::var(VARIABLE) else { return Ok(None) };
        return text.parse().map(Some).map_err(|e: TransferError| Failure::usage(format!("{VARIABLE}: {e}")));
    };
    let (token, exposed) = token::read_token(file).map_err(|e| Failure::usage(format!("--token-file: {e}")))?;
    for exposed in exposed.iter().filter(|_| !quiet) {
        errln!("warning: {exposed}");
    }
    Ok(Some(token))
}
