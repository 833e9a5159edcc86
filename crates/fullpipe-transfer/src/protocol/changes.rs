//! What a copy changes of the attributes of its files: owner, group and permissions (`--chown`, `--chmod`).

use serde::{Deserialize, Serialize};

use crate::protocol::file::Meta;

/// Most rules for permissions.
const MAX_RULES: usize = 64;
/// The bits of execution.
const EXECUTE: u32 = 0o111;

/// What a copy changes of its files.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changes {
    /// Whether files keep their owners and groups, if the receiver may set them.
    pub no_owner: bool,
    /// The user who gets everything: a name of the receiving host, or a number.
    pub owner: Option<String>,
    /// The group that gets everything: a name of the receiving host, or a number.
    pub group: Option<String>,
    /// Rules for permissions, each applied to the result of the ones before.
    pub modes: Vec<ModeRule>,
}

/// A rule for permissions, as `chmod(1)` takes them: `(mode & keep) | set`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModeRule {
    /// Whether it applies to folders.
    folders: bool,
    /// Whether it applies to files.
    files: bool,
    /// The bits that stay as they are.
    keep: u32,
    /// The bits that are set.
    set: u32,
    /// The bits that are set in folders, and in files that somebody may execute (`X`).
    set_if_executable: u32,
}

impl ModeRule {
    /// The permissions that a file or folder gets.
    #[must_use]
    pub fn apply(&self, mode: u32, is_folder: bool) -> u32 {
        if !(if is_folder { self.folders } else { self.files }) {
            return mode;
        }
        let executable = if is_folder || mode & EXECUTE != 0 { self.set_if_executable } else { 0 };
        (mode & self.keep) | self.set | executable
    }
}

/// Reads rules as rsync's `--chmod` takes them: `D755,F644`, `g+w,o-rwx`, `Du=rwx,go=rX`.
///
/// # Errors
/// What is wrong with them.
pub fn mode_rules(text: &str) -> Result<Vec<ModeRule>, String> {
    let rules: Vec<ModeRule> = text.split(',').map(mode_rule).collect::<Result<_, _>>()?;
    if rules.len() > MAX_RULES { Err(format!("give at most {MAX_RULES} rules")) } else { Ok(rules) }
}

fn mode_rule(text: &str) -> Result<ModeRule, String> {
    let wrong = || format!("'{text}' is no rule such as g+w, o-rwx, u=rwX, F644 or D755");
    let (folders, files, rest) = match text.as_bytes() {
        [b'D', ..] => (true, false, &text[1..]),
        [b'F', ..] => (false, true, &text[1..]),
        _ => (true, true, text),
    };
    if !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()) {
        let mode = u32::from_str_radix(rest, 8).ok().filter(|mode| *mode <= 0o7777).ok_or_else(wrong)?;
        return Ok(ModeRule { folders, files, keep: 0, set: mode, set_if_executable: 0 });
    }
    let at = rest.find(['+', '-', '=']).ok_or_else(wrong)?;
    let (who, how, what) = (&rest[..at], rest.as_bytes()[at], &rest[at + 1..]);
    let mut classes = 0;
    for class in who.chars() {
        classes |= match class {
            'u' => 0o4700,
            'g' => 0o2070,
            'o' => 0o1007,
            'a' => 0o7777,
            _ => return Err(wrong()),
        };
    }
    let classes = if who.is_empty() { 0o7777 } else { classes };
    let (mut bits, mut executable) = (0, 0);
    for bit in what.chars() {
        match bit {
            'r' => bits |= 0o444 & classes,
            'w' => bits |= 0o222 & classes,
            'x' => bits |= EXECUTE & classes,
            'X' => executable |= EXECUTE & classes,
            's' => bits |= 0o6000 & classes,
            't' => bits |= 0o1000,
            _ => return Err(wrong()),
        }
    }
    let (keep, set, set_if_executable) = match how {
        b'+' => (!0, bits, executable),
        b'-' => (!(bits | executable), 0, 0),
        _ => (!classes, bits, executable),
    };
    Ok(ModeRule { folders, files, keep, set, set_if_executable })
}

/// The number of a user or group that `chown(2)` leaves as it is.
const UNCHANGED: u32 = u32::MAX;

/// Changes with the numbers of users and groups of this host.
#[derive(Debug, Clone, Default)]
pub(crate) struct Resolved {
    /// Whether files get the user and group of new files of the receiver.
    pub(crate) no_owner: bool,
    pub(crate) owner: Option<u32>,
    pub(crate) group: Option<u32>,
    pub(crate) modes: Vec<ModeRule>,
}

impl Resolved {
    /// Changes what is set of a file or folder. `is_folder` is `None` for a symbolic link, which has no permissions.
    pub(crate) fn apply(&self, meta: &mut Meta, is_folder: Option<bool>) {
        if self.no_owner {
            (meta.uid, meta.gid) = (UNCHANGED, UNCHANGED);
            if is_folder == Some(false) {
                // A file of another owner than its source's gets none of the source's rights.
                meta.mode &= 0o1777;
            }
        }
        meta.uid = self.owner.unwrap_or(meta.uid);
        meta.gid = self.group.unwrap_or(meta.gid);
        if let Some(is_folder) = is_folder {
            meta.mode = self.modes.iter().fold(meta.mode, |mode, rule| rule.apply(mode, is_folder));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_those_of_chmod() {
        for (rules, before, file, folder) in [
            ("644", 0o755, 0o644, 0o644),
            ("D755,F644", 0o700, 0o644, 0o755),
            ("g+w", 0o644, 0o664, 0o664),
            ("o-rwx", 0o777, 0o770, 0o770),
            ("go=rX", 0o600, 0o644, 0o655),
            ("go=rX", 0o700, 0o755, 0o755),
            ("u=rwX,go=", 0o444, 0o600, 0o700),
            ("a+X", 0o644, 0o644, 0o755),
            ("+x", 0o600, 0o711, 0o711),
            ("Dg+s,F-x", 0o755, 0o644, 0o2755),
            ("ug=rw,o=", 0o777, 0o660, 0o660),
        ] {
            let parsed = mode_rules(rules).unwrap();
            let apply = |is_folder| parsed.iter().fold(before, |mode, rule: &ModeRule| rule.apply(mode, is_folder));
            assert_eq!((apply(false), apply(true)), (file, folder), "{rules}: {:o} {:o}", apply(false), apply(true));
        }
        for bad in ["", "x", "u+q", "888", "77777", "D", "z+r", "644,,", &"+x,".repeat(100)] {
            assert!(mode_rules(bad).is_err(), "{bad}");
        }
    }
}
