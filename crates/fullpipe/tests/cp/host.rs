//! A far end: an sshd of the test's own, on a free port of loopback, with keys that live as long as it.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The program under test.
pub const FULLPIPE: &str = env!("CARGO_BIN_EXE_fullpipe");
/// No command of these tests takes longer, on whatever machine.
const LONGEST: Duration = Duration::from_secs(100);

/// An sshd and a folder for the files of a test; both go with it.
pub struct Host {
    dir: tempfile::TempDir,
    sshd: Child,
    /// What connects.
    pub ssh: String,
    /// That it listens on.
    pub port: u16,
}

fn sshd() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let known = std::env::split_paths(&path).chain(["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from));
    let mut found = known.map(|dir| dir.join("sshd")).filter(|file| file.is_file());
    found.next().unwrap_or_else(|| panic!("no sshd; run: apt-get install -y --no-install-recommends openssh-server"))
}

fn run(command: &mut Command) -> String {
    let out = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).trim().to_owned()
}

impl Host {
    /// Starts one.
    pub fn start() -> Host {
        Host::at(tempfile::tempdir().unwrap())
    }

    /// One whose files are in memory, where there is such a file system.
    pub fn in_memory() -> Host {
        Host::at(tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap())
    }

    fn at(dir: tempfile::TempDir) -> Host {
        let at = dir.path();
        // For tests in which an end runs as somebody without rights.
        fs::set_permissions(at, fs::Permissions::from_mode(0o755)).unwrap();
        for key in ["host_key", "id"] {
            run(Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(at.join(key)));
        }
        fs::copy(at.join("id.pub"), at.join("authorized_keys")).unwrap();
        for (folder, mode) in [("home", 0o755), ("run", 0o700), ("bin", 0o755)] {
            fs::create_dir(at.join(folder)).unwrap();
            fs::set_permissions(at.join(folder), fs::Permissions::from_mode(mode)).unwrap();
        }
        if nix::unistd::geteuid().is_root() {
            // Its privilege separation wants it.
            fs::create_dir_all("/run/sshd").unwrap();
        }
        let user = run(Command::new("id").arg("-un"));
        let config = at.join("sshd_config");
        for _ in 0..20 {
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let text = format!(
                "Port {port}\nListenAddress 127.0.0.1\nHostKey {0}/host_key\nAuthorizedKeysFile {0}/authorized_keys\n\
                 StrictModes no\nUsePAM no\nPidFile none\nPasswordAuthentication no\nPermitRootLogin yes\n\
                 KbdInteractiveAuthentication no\nMaxStartups 9\nLogLevel ERROR\nSubsystem sftp internal-sftp\n\
                 SetEnv HOME={0}/home XDG_RUNTIME_DIR={0}/run PATH={0}/bin:/usr/sbin:/usr/bin:/sbin:/bin\n",
                at.display()
            );
            fs::write(&config, text).unwrap();
            let log = File::create(at.join("sshd.log")).unwrap();
            let mut command = Command::new(sshd());
            command.args(["-D", "-e", "-f"]).arg(&config).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
            let mut sshd = command.spawn().unwrap();
            while sshd.try_wait().unwrap().is_none() {
                if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                    let ssh = client(at, &user, port);
                    let host = Host { dir, sshd, ssh, port };
                    fs::create_dir(host.file("")).unwrap();
                    return host;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            // Perhaps somebody else has taken the port meanwhile.
        }
        panic!("sshd does not start: {}", fs::read_to_string(at.join("sshd.log")).unwrap());
    }

    /// A file of the test.
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join("files").join(name)
    }

    /// The same file as the far end's.
    pub fn far(&self, name: &str) -> OsString {
        far(&self.file(name))
    }

    /// A copy with such words: with `push` from this end to the far one, else back. Both names are below [`Host::file`].
    pub fn copy(&self, push: bool, words: &str, from: &str, to: &str) -> Cp {
        let (here, there) = (|name: &str| self.file(name).into_os_string(), |name: &str| self.far(name));
        let mut cp = self.cp();
        cp.words(words);
        if push {
            cp.arg(here(from)).arg(there(to))
        } else {
            cp.arg(there(from)).arg(here(to))
        };
        cp
    }

    /// `fullpipe cp` over this host's ssh.
    pub fn cp(&self) -> Cp {
        let mut cp = Cp::new();
        cp.ssh(&self.ssh).far_program(Path::new(FULLPIPE));
        cp.home = Some(self.dir.path().to_owned());
        cp
    }

    /// `fullpipe cp` over this host's ssh, where no fullpipe has been installed. The home of logins is the folder `home`, and
    /// programs in the folder `bin` come before all others.
    pub fn bare_cp(&self) -> Cp {
        Cp { program: None, ..self.cp() }
    }

    /// The folder that is the home of those who copy.
    pub fn home(&self) -> &Path {
        self.dir.path()
    }

    /// The key that it lets in.
    pub fn key(&self) -> PathBuf {
        self.dir.path().join("id")
    }

    /// A script that the far end runs in place of the program.
    pub fn script(&self, name: &str, text: &str) -> PathBuf {
        let file = self.dir.path().join(name);
        // A descriptor open for writing in another thread's child would make it busy (ETXTBSY): a shell reads it.
        fs::write(&file, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        file
    }

    /// A far program that writes down its process id, and the file in which it does.
    pub fn known_by_id(&self) -> (PathBuf, PathBuf) {
        let ids = self.dir.path().join("ids");
        let text = format!("echo $$ >> {}\nexec {FULLPIPE} \"$@\"", ids.display());
        (self.script("known", &text), ids)
    }

    /// A far program without root's rights.
    pub fn unprivileged(&self) -> PathBuf {
        if !nix::unistd::geteuid().is_root() {
            return PathBuf::from(FULLPIPE);
        }
        // Nobody may not be able to reach the build's folder.
        let copy = self.dir.path().join("fullpipe");
        run(Command::new("cp").arg(FULLPIPE).arg(&copy));
        let text = format!("exec setpriv --reuid 65534 --regid 65534 --clear-groups {} \"$@\"", copy.display());
        self.script("unprivileged", &text)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.sshd.kill();
        let _ = self.sshd.wait();
    }
}

/// Writes ssh's own configuration, and gives the command.
fn client(at: &Path, user: &str, port: u16) -> String {
    let ssh = format!("ssh -F {}", at.join("ssh_config").display());
    let text = format!(
        "Host far jump localhost\n HostName 127.0.0.1\n Port {port}\n IdentityFile {0}/id\n\
         Host inner\n HostName node7.cluster.invalid\n ProxyCommand {ssh} -W 127.0.0.1:{port} jump\n IdentityFile {0}/id\n\
         Host unknown\n HostName 127.0.0.1\n Port {port}\n IdentityFile {0}/host_key\n\
         Host behind\n HostName 127.0.0.1\n Port {port}\n ProxyJump jump\n IdentityFile {0}/id\n\
         Host walled\n HostName 127.0.0.1\n Port {port}\n ProxyCommand false\n IdentityFile {0}/id\n\
         Host closed\n HostName 127.0.0.1\n Port 1\n\
         Host *\n User {user}\n IdentitiesOnly yes\n IdentityAgent none\n StrictHostKeyChecking no\n\
         UserKnownHostsFile /dev/null\n GlobalKnownHostsFile /dev/null\n BatchMode yes\n LogLevel ERROR\n \
         KexAlgorithms curve25519-sha256\n",
        at.display()
    );
    fs::write(at.join("ssh_config"), text).unwrap();
    ssh
}

/// A path at the far end.
pub fn far(path: &Path) -> OsString {
    let mut name = OsString::from("far:");
    name.push(path);
    name
}

/// `fullpipe cp` and its words.
#[derive(Default)]
pub struct Cp {
    ssh: Vec<OsString>,
    program: Option<PathBuf>,
    words: Vec<OsString>,
    within: Option<PathBuf>,
    home: Option<PathBuf>,
    stdin: Option<Stdio>,
    stdout: Option<Stdio>,
}

impl Cp {
    /// Without any.
    pub fn new() -> Cp {
        Cp::default()
    }

    /// One more.
    pub fn arg(&mut self, word: impl AsRef<OsStr>) -> &mut Cp {
        self.words.push(word.as_ref().to_owned());
        self
    }

    /// Some more.
    pub fn args(&mut self, words: &[impl AsRef<OsStr>]) -> &mut Cp {
        self.words.extend(words.iter().map(|word| word.as_ref().to_owned()));
        self
    }

    /// Some more, separated by spaces.
    pub fn words(&mut self, words: &str) -> &mut Cp {
        self.words.extend(words.split_whitespace().map(OsString::from));
        self
    }

    /// What connects.
    pub fn ssh(&mut self, command: &str) -> &mut Cp {
        self.ssh = vec!["--ssh".into(), command.into()];
        self
    }

    /// What runs at the far end.
    pub fn far_program(&mut self, program: &Path) -> &mut Cp {
        self.program = Some(program.to_owned());
        self
    }

    /// Leaves out what [`Host::cp`] says of the far end.
    pub fn without_flags(&mut self) -> &mut Cp {
        (self.ssh, self.program) = (Vec::new(), None);
        self
    }

    /// Runs in a folder.
    pub fn within(&mut self, dir: &Path) -> &mut Cp {
        self.within = Some(dir.to_owned());
        self
    }

    /// Its standard input comes from there.
    pub fn stdin(&mut self, from: impl Into<Stdio>) -> &mut Cp {
        self.stdin = Some(from.into());
        self
    }

    /// Its standard output goes there.
    pub fn stdout(&mut self, to: impl Into<Stdio>) -> &mut Cp {
        self.stdout = Some(to.into());
        self
    }

    /// Starts it.
    pub fn start(&mut self) -> Running {
        let mut command = Command::new(FULLPIPE);
        command.arg("cp").args(&self.ssh);
        if let Some(program) = &self.program {
            command.arg("--far-program").arg(program);
        }
        command.args(&self.words).stdin(self.stdin.take().unwrap_or_else(Stdio::null)).stderr(Stdio::piped());
        command.stdout(self.stdout.take().unwrap_or_else(Stdio::piped));
        command.envs(self.home.iter().map(|home| ("HOME", home))).env_remove("XDG_STATE_HOME");
        command.env_remove("XDG_CONFIG_HOME");
        if let Some(dir) = &self.within {
            command.current_dir(dir);
        }
        let mut child = command.spawn().unwrap();
        let (out, err) = (Some(collect(child.stdout.take())), Some(collect(child.stderr.take())));
        Running { child, out, err, began: Instant::now() }
    }

    /// Runs it to its end.
    pub fn run(&mut self) -> Done {
        self.start().wait()
    }

    /// Runs it; it must succeed.
    pub fn ok(&mut self) -> Done {
        let done = self.run();
        assert_eq!(done.code(), 0, "{:?}: {}", self.words, done.err);
        done
    }

    /// Runs it; it must fail with a code and, besides what was left, one line that says this.
    pub fn fails(&mut self, code: i32, part: &str) -> Done {
        let done = self.run();
        assert!(done.err.contains(part), "{:?}: '{part}' expected: {}", self.words, done.err);
        assert_eq!(done.code(), code, "{:?}: {}", self.words, done.err);
        assert_eq!(done.err.lines().filter(|line| line.starts_with("error: ")).count(), 1, "{}", done.err);
        done
    }

    /// The same where nothing could be done at all: that one line is all.
    pub fn fails_at_once(&mut self, code: i32, part: &str) -> Done {
        let done = self.fails(code, part);
        assert_eq!(done.err.trim_end().lines().count(), 1, "{}", done.err);
        assert_eq!(done.out, "");
        done
    }
}

fn collect(from: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut from) = from {
            from.read_to_end(&mut bytes).unwrap();
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn text(collected: &mut Option<std::thread::JoinHandle<String>>) -> String {
    collected.take().map_or_else(String::new, |thread| thread.join().unwrap())
}

/// A command that runs; killed when dropped.
pub struct Running {
    child: Child,
    out: Option<std::thread::JoinHandle<String>>,
    err: Option<std::thread::JoinHandle<String>>,
    began: Instant,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Running {
    /// kill -9.
    pub fn kill(self) {
        drop(self);
    }

    /// Another signal.
    pub fn signal(&self, signal: nix::sys::signal::Signal) {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    /// Waits for its end, not for ever.
    pub fn wait(mut self) -> Done {
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if self.began.elapsed() > LONGEST {
                self.child.kill().unwrap();
                panic!("it hangs: {}", text(&mut self.err));
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let done = Done { status, out: text(&mut self.out), err: text(&mut self.err) };
        assert!(!done.err.contains("panicked at"), "{}", done.err);
        done
    }
}

/// How a command ended.
#[derive(Debug)]
pub struct Done {
    status: ExitStatus,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Done {
    /// Its exit code; -1 after a signal.
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or(-1)
    }

    /// What `--json` printed, all of it JSON.
    pub fn json(&self) -> Vec<serde_json::Value> {
        self.out.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"))).collect()
    }

    /// A number of its last line.
    pub fn number(&self, key: &str) -> u64 {
        let last = self.json().pop().unwrap_or_else(|| panic!("no line: {}", self.err));
        assert_eq!(last["kind"], "done", "{last}");
        last[key].as_u64().unwrap_or_else(|| panic!("no {key} in {last}"))
    }
}

/// Waits until something is so.
pub fn until(what: &str, mut is: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is() {
        assert!(began.elapsed() < Duration::from_secs(30), "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Bytes of the journals in a folder: it grows with every block that is finished.
pub fn journalled(folder: &Path) -> u64 {
    let ours = |name: &OsStr| name.as_bytes().starts_with(b".fullpipe.") && name.as_bytes().ends_with(b".journal");
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter(|e| ours(&e.file_name())).filter_map(|e| e.metadata().ok()).map(|m| m.len()).sum()
}

/// Whether a process has a signal ignored (proc(5), `SigIgn`); `process` is its id, or `self`.
pub fn ignores(process: &str, signal: nix::sys::signal::Signal) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap() >> (signal as u32 - 1) & 1 == 1
}

/// Runs something as root in a mount namespace of its own; tells where that is not possible.
pub fn in_mount_namespace(run: impl FnOnce() + Send) {
    use nix::mount::{MsFlags, mount};
    if !nix::unistd::geteuid().is_root() {
        return eprintln!("skipped: it needs root");
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).unwrap();
            mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>).unwrap();
            run();
        });
    });
}
