//! `-` as SRC or DST: standard input or standard output.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use fullpipe_path::ExitClass;
use fullpipe_transfer::TransferError;
use fullpipe_transfer::client::Way;
use fullpipe_transfer::connection::endpoint::Endpoint;
use fullpipe_transfer::protocol::changes::Changes;
use fullpipe_transfer::protocol::message::{Sources, Target};
use fullpipe_transfer::protocol::name::Name;
use fullpipe_transfer::receive::Output;
use fullpipe_transfer::resolve::{last, transfer};
use fullpipe_transfer::send::input::Input;

use super::args::Args;
use super::endpoint::{Place, far};
use crate::closed;
use crate::failure::{Failure, Result};

/// Finds the far end and the direction of a copy from standard input or to standard output; `None` if this is another copy.
///
/// # Errors
/// There is more than one source, or a flag that makes no sense with `-`.
pub fn order(args: &Args, from: &[Place], to: &Place) -> Result<Option<(Endpoint, Way)>> {
    let is = |place: &Place| *place == Place::Standard;
    if !is(to) && !from.iter().any(is) {
        return Ok(None);
    }
    let [source] = from else {
        return Err(Failure::usage("'-' (standard input or output) is one file; give one source and one destination"));
    };
    let place = if is(source) { to } else { source };
    if !matches!(place, Place::Ssh(..) | Place::Server(..)) {
        let why = "'-' is standard input or output; the other one of SRC and DST must be a file of another host, \
                   HOST:PATH or fullpipe://HOST:PORT/PATH";
        return Err(Failure::usage(why));
    }
    check(args, is(to))?;
    let (endpoint, path, host) = far(args, place)?;
    for (is_closed, class, name) in [
        (is(to) && closed::stdout(), ExitClass::Record, "standard output is closed, so the file has nowhere to go"),
        (is(source) && closed::stdin(), ExitClass::Usage, "standard input is closed, so there is nothing to copy"),
    ] {
        if is_closed {
            return Err(Failure::new(class, format!("{name}; open it, or name a file")));
        }
    }
    let copy = |fd: BorrowedFd<'_>| fd.try_clone_to_owned().map(File::from);
    let failed = |source| TransferError::Local { what: "cannot use standard input or output".into(), source };
    if is(to) {
        let output = Output::new(copy(std::io::stdout().as_fd()).map_err(failed)?);
        let sources = Sources { paths: vec![path], ..Sources::default() };
        return Ok(Some((endpoint, Way::PullOutput(sources, Arc::new(output)))));
    }
    let name = last(&path).filter(|_| !path.ends_with(b"/")).and_then(|name| Name::try_from(name.to_vec()).ok());
    let name =
        name.ok_or_else(|| Failure::usage("standard input has no name; give the name of the new file as DST"))?;
    let target = Target {
        transfer: transfer(&host, &[b"-".to_vec()], &path, false, false),
        path,
        folder: false,
        // A folder of this name is none to copy into.
        exact: true,
        file: true,
        content: false,
        delete: None,
        changes: Changes::default(),
        process: rand::random(),
    };
    let input = copy(std::io::stdin().as_fd()).map_err(failed)?;
    if input.metadata().is_ok_and(|it| it.is_dir()) {
        return Err(Failure::usage("standard input is a folder; name it as SRC, with -r"));
    }
    let input = Input::new(input, name);
    Ok(Some((endpoint, Way::PushInput(Arc::new(input), target))))
}

/// Refuses flags that make no sense with `-`. `output` says whether it is standard output.
fn check(args: &Args, output: bool) -> Result {
    for (flag, given) in [
        ("-r", args.recursive),
        ("-u", args.update),
        ("--quick-check", args.quick_check),
        ("-c", args.checksum),
        ("-H", args.hard_links),
        ("--inplace", args.inplace),
        ("--remove-source-files", args.remove_source_files),
        ("-p", args.preserve),
        ("--chmod", args.chmod.is_some()),
        ("--chown", args.chown.is_some()),
        ("--exclude, --files-from and the like", !args.filters.is_empty()),
        ("--xattrs", args.xattrs),
        ("--acls", args.acls),
        ("--fsync", output && args.fsync),
        ("--verify", output && args.verify),
        ("--dry-run", !output && args.dry_run),
    ] {
        if given {
            let why = "'-' (standard input or output) is one file that comes once and has no attributes";
            return Err(Failure::usage(format!("{flag} is not possible here: {why}; leave out {flag}")));
        }
    }
    // With --dry-run no file goes there.
    let output = output && !args.dry_run;
    for (flag, given) in [("-v", args.verbose), ("--json", args.json), ("--explain", args.explain)] {
        if given && output {
            let why = "prints to standard output, where the file goes";
            return Err(Failure::usage(format!("{flag} {why}; leave out {flag}, or name a file as DST")));
        }
    }
    Ok(())
}
