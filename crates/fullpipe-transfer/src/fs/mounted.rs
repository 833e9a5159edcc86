//! What kind of file system an open file or folder is on.

use std::os::fd::{AsFd, AsRawFd};

use nix::sys::statfs;

/// Type of the file system, as `/proc/self/mountinfo` has it; `None` without `/proc` (`proc_pid_fdinfo(5)`, `mnt_id`;
/// `proc_pid_mountinfo(5)`).
pub fn file_system_type(file: impl AsFd) -> Option<String> {
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_fd().as_raw_fd())).ok()?;
    let id = info.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim().to_owned();
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let line = mounts.lines().find(|line| line.split(' ').next() == Some(&id))?;
    line.split_once(" - ")?.1.split(' ').next().map(str::to_owned)
}

/// Whether the file system sets owner and times of a symbolic link's target in place of the link's, as sshfs does: it sends a
/// SETSTAT of SFTP (draft-ietf-secsh-filexfer-02, section 6.9), for which OpenSSH's server follows links. Where `/proc` cannot be
/// read, as in a confined server, any program behind FUSE may be that.
pub fn follows_links(file: impl AsFd) -> bool {
    statfs::fstatfs(&file).is_ok_and(|fs| fs.filesystem_type() == statfs::FUSE_SUPER_MAGIC)
        && file_system_type(file).is_none_or(|kind| kind == "fuse.sshfs")
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn the_type_is_that_of_the_mount() {
        let proc = File::open("/proc").unwrap();
        assert_eq!(file_system_type(&proc).as_deref(), Some("proc"));
        assert!(!follows_links(&proc));
    }
}
