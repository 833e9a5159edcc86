//! `fullpipe config`: shows what the configuration files set.

use clap::Command;
use serde_json::{Map, json};

use crate::config::{self, Config, FLAGS, Reached};
use crate::failure::Result;
use crate::output::outln;
use crate::token_files;

/// The arguments of `fullpipe config`.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Show the flags with which 'fullpipe cp' copies to and from a host, and what sets each
    Show(Show),
}

/// Show the flags with which 'fullpipe cp' copies to and from a host, and what sets each
#[derive(clap::Args)]
struct Show {
    /// Name of the host, as it is typed for a copy
    host: String,
    /// Print a JSON object on stdout
    #[arg(long)]
    json: bool,
}

/// Shows.
pub fn run(args: Args, cli: &Command) -> Result {
    let What::Show(Show { host, json }) = args.what;
    let host = config::host_name(&host).to_owned();
    let Some(cp) = cli.find_subcommand("cp") else { return Ok(()) };
    let settings = Config::read()?.settings(cp, &host, Vec::new(), None)?;
    // Says at once what a copy would refuse.
    for (place, reached) in [("b:", Reached::OverSsh), ("fullpipe://b/", Reached::AsServer)] {
        config::configured(cli, &["fullpipe", "cp", "a", place].map(Into::into), &host, reached)?;
    }
    let mut object = Map::new();
    for flag in FLAGS {
        let id = flag.replace('-', "_");
        let arg = cp.get_arguments().find(|arg| arg.get_id().as_str() == id);
        let default =
            arg.and_then(|arg| arg.get_default_values().first()).map(|value| value.to_string_lossy().into_owned());
        let set = settings.iter().find(|setting| setting.flag == flag);
        let (value, from) = match set {
            _ if flag == "token-file" && token_files::is_in_environment() => {
                (None, format!("the environment variable {}", token_files::VARIABLE))
            }
            Some(setting) => (Some(setting.value.clone()), setting.from.clone()),
            None => (default.filter(|value| value != "false"), "default".to_owned()),
        };
        if json {
            object.insert(flag.to_owned(), json!({ "value": value, "from": from }));
        } else {
            outln!("{flag:<12} {:<20} {from}", value.as_deref().unwrap_or("-"));
        }
    }
    if json {
        outln!("{}", json!(object));
    } else {
        let places: Vec<_> = config::files().iter().map(|file| file.display().to_string()).collect();
        outln!("\nFiles, the last one counts most: {}", places.join(", "));
    }
    Ok(())
}
