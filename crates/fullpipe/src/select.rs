//! `fullpipe select`.

use crate::Result;

/// Command line.
#[derive(clap::Args)]
pub struct Args {}

/// Chooses.
pub fn run(_args: Args) -> Result {
    Ok(())
}
