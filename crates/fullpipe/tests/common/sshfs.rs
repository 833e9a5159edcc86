//! A folder that is mounted by sshfs.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where Debian and Fedora have the other end of sshfs.
const SFTP_SERVERS: [&str; 2] = ["/usr/lib/openssh/sftp-server", "/usr/libexec/openssh/sftp-server"];

/// A folder that is mounted at another by sshfs, without a network between them.
pub struct Sshfs {
    pub dir: tempfile::TempDir,
}

impl Sshfs {
    /// `None` if FUSE or sshfs is not here.
    pub fn mount(options: &[&str]) -> Option<Sshfs> {
        let dir = tempfile::tempdir().unwrap();
        let server = SFTP_SERVERS.into_iter().find(|file| Path::new(file).exists());
        let is_root = nix::unistd::geteuid().is_root();
        let (Some(server), true, true) = (server, is_root, Path::new("/dev/fuse").exists()) else {
            eprintln!("not tested: needs root, /dev/fuse and sftp-server");
            return None;
        };
        let ssh = dir.path().join("ssh");
        fs::write(&ssh, format!("#!/bin/sh\nexec {server}\n")).unwrap();
        fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755)).unwrap();
        let mount = Sshfs { dir };
        for folder in [mount.far(), mount.at()] {
            fs::create_dir(folder).unwrap();
        }
        let done = Command::new("sshfs")
            .arg(format!("far:{}", mount.far().display()))
            .arg(mount.at())
            .args(["-o", &format!("ssh_command={}", ssh.display())])
            .args(options)
            .status();
        match done {
            Ok(status) => assert!(status.success(), "sshfs cannot mount"),
            Err(error) => {
                eprintln!("not tested: sshfs: {error}");
                return None;
            }
        }
        Some(mount)
    }

    pub fn far(&self) -> PathBuf {
        self.dir.path().join("far")
    }

    pub fn at(&self) -> PathBuf {
        self.dir.path().join("at")
    }
}

impl Drop for Sshfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.at()).stderr(Stdio::null()).status();
    }
}
