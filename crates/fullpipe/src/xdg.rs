//! The user's folders for configuration and state (XDG base directories).

use std::path::PathBuf;

/// The folder of the user's configuration of fullpipe; `None` without a home.
pub fn config_folder() -> Option<PathBuf> {
    folder("XDG_CONFIG_HOME", ".config")
}

/// The folder of what fullpipe keeps for this user; `None` without a home.
pub fn state_folder() -> Option<PathBuf> {
    folder("XDG_STATE_HOME", ".local/state")
}

/// What a variable names, or a folder below the home. A name that is not absolute counts as none.
fn folder(variable: &str, below_home: &str) -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = set(variable).or_else(|| Some(set("HOME")?.join(below_home)))?;
    Some(base.join("fullpipe"))
}
