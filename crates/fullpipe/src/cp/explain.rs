//! How a transfer would go, before it does.

use std::path::Path as FilePath;

use fullpipe_path::Size;
use fullpipe_transfer::client::{self, Endpoint, Way};
use fullpipe_transfer::place::{self, Realm};
use fullpipe_transfer::proto::Options;
use fullpipe_transfer::walk::{self, Found, Sight};
use serde_json::json;

use super::transport::Chosen;
use crate::output::{errln, outln};
use crate::{Result, words};

/// How it will be sent, and why if that is wanted.
pub fn print(chosen: &Chosen, rtt_s: f64, why: bool) {
    outln!("round trip  {}", words::seconds(rtt_s));
    outln!("transport   {}", chosen.transport);
    if let Some(expected) = chosen.expected_bps {
        outln!("expected    {}", words::rate(expected));
    }
    for why in chosen.why.iter().filter(|_| why) {
        outln!("why         {why}");
    }
}

/// Looks at both ends, and moves nothing.
pub fn dry_run(args: &super::Args, endpoint: &Endpoint, way: &Way, options: Options) -> Result {
    let mut found = (0u64, 0u64);
    if let Way::Push(sources, _) = way {
        let here = Realm::User(std::env::current_dir().unwrap_or_else(|_| FilePath::new("/").to_owned()));
        let sight = Sight { recursive: options.recursive, dereference: options.dereference, xattrs: false };
        for source in sources {
            walk::walk(&place::place(&here, source)?, sight, &mut |one| {
                match one {
                    Found::File { item, .. } => found = (found.0 + 1, found.1 + item.size),
                    Found::Left { name, why } => errln!("left: {}: {why}", fullpipe_transfer::item::printable(&name)),
                    Found::Folder { .. } | Found::Link { .. } => {}
                }
                Ok(())
            })?;
        }
    }
    let looked = client::look(endpoint, options)?;
    let push = matches!(way, Way::Push(..));
    let (sender, receiver) = if push { (&looked.ours, &looked.theirs) } else { (&looked.theirs, &looked.ours) };
    let chosen = args.how.choose(looked.rtt_s, sender, receiver)?;
    let files = push.then_some(found);
    if args.json {
        outln!(
            "{}",
            json!({"kind": "dry_run", "files": files.map(|f| f.0), "bytes": files.map(|f| f.1), "rtt_s": looked.rtt_s,
                   "transport": chosen.transport, "expected_bps": chosen.expected_bps, "why": chosen.why})
        );
        return Ok(());
    }
    if let Some((files, bytes)) = files {
        outln!("would copy  {}, {}", words::count(files, "file", "files"), Size(bytes));
    }
    print(&chosen, looked.rtt_s, args.explain);
    if let (Some((_, bytes)), Some(expected)) = (files, chosen.expected_bps) {
        let seconds = bytes as f64 * 8.0 / expected.max(1.0) + client::start_rtts(options, looked.rtt_s) * looked.rtt_s;
        outln!("takes about {}", words::seconds(seconds));
    }
    Ok(())
}
