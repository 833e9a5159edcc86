//! Numbers of users and groups by their names.

use nix::unistd::{Group, User};

use crate::error::TransferError;
use crate::protocol::changes::{Changes, Resolved};

/// Finds the numbers of the users and groups that a copy is to set. With `numbers_only`, names are refused: whether one exists
/// is nobody's business.
///
/// # Errors
/// A name is unknown, or this user may not give files away.
pub(crate) fn resolve(changes: &Changes, numbers_only: bool) -> Result<Resolved, TransferError> {
    let Changes { no_owner, owner, group, modes } = changes;
    if (owner.is_some() || group.is_some()) && !nix::unistd::geteuid().is_root() {
        return Err(TransferError::Usage("--chown: only root may set owners and groups at the destination".into()));
    }
    let number = |name: &str, find: &dyn Fn(&str) -> nix::Result<Option<u32>>, what: &str| {
        // The highest number would leave the owner as it is.
        if let Some(number) = name.parse().ok().filter(|number| *number != u32::MAX) {
            return Ok(number);
        }
        if numbers_only {
            return Err(TransferError::Usage(format!("--chown: a server takes numbers, not the name of a {what}")));
        }
        let shown = crate::protocol::name::printable(name.as_bytes());
        find(name)
            .ok()
            .flatten()
            .ok_or_else(|| TransferError::Usage(format!("--chown: no {what} {shown} at the destination")))
    };
    let user = |name: &str| Ok(User::from_name(name)?.map(|user| user.uid.as_raw()));
    let team = |name: &str| Ok(Group::from_name(name)?.map(|group| group.gid.as_raw()));
    Ok(Resolved {
        no_owner: *no_owner,
        owner: owner.as_deref().map(|name| number(name, &user, "user")).transpose()?,
        group: group.as_deref().map(|name| number(name, &team, "group")).transpose()?,
        modes: modes.clone(),
    })
}
