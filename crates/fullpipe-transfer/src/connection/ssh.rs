//! Runs the user's ssh: asks for its configuration, starts far ends, and opens data streams to them.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use fullpipe_net::socket;
use fullpipe_net::stream::DataStream;
use fullpipe_net::stream::tcp::TcpDataStream;
use fullpipe_net::tcp_info::TcpInfo;
use fullpipe_path::{Transport, text};
use nix::sys::signal::{SigHandler, Signal, signal};

use crate::connection::deploy::{Program, Request};
use crate::connection::endpoint::{FarProgram, NAME_UNKNOWN, SshEndpoint};
use crate::connection::join;
use crate::connection::login::Login;
use crate::connection::stop::{self, Stop};
use crate::error::{self, TransferError, system};
use crate::protocol::hello;
use crate::protocol::message::Connect;
use crate::threads::{lock, thread};

/// Timeout for ssh to connect if ssh's configuration sets none, in seconds.
pub(super) const SSH_CONNECTS_S: u32 = 30;

/// Maximum number of ssh's error lines that are kept.
const MAX_ERROR_LINES: usize = 100;
/// Maximum length of one of ssh's error lines, in bytes.
const MAX_ERROR_LINE_BYTES: u64 = 4096;
/// Most bytes that login scripts may print before the far end's first word.
const MAX_LOGIN_BYTES: usize = 64 << 10;

/// Most ssh connections that log in at the same time. sshd begins to refuse some at ten (sshd_config(5), MaxStartups).
pub(crate) const MAX_LOGINS: u16 = 8;
/// What is wrong with a far end that says something else first.
pub(super) const NO_GREETING: &str = "what it sends is not fullpipe's greeting";
/// Attempts to open one data stream. A refusal for too many logins lasts a moment.
const ATTEMPTS: u32 = 3;
/// Time before the second attempt; before the third, it is twice as long.
const PAUSE: Duration = Duration::from_millis(500);

/// The user's ssh, with its configuration for a host.
pub(crate) struct Ssh {
    endpoint: SshEndpoint,
    /// The configuration as `ssh -G` prints it; empty if the program is another one that has no `-G`.
    configured: String,
    /// The program that the far host looks for; `None` if the user has named one there.
    program: Option<Program>,
}

/// What a far end is started for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum FarTask {
    /// A session: the far end of a copy.
    Session,
    /// To relay bytes to this port of a session.
    Relay(u16),
    /// To serve measurements.
    Measurements,
}

/// What a far host says first.
pub(super) enum FirstWord {
    /// The far end runs.
    Ready,
    /// The host has no fullpipe of this version, and takes one.
    Wanted(Request),
    /// Too much else, so that it is no far end.
    Other,
}

impl Ssh {
    /// Asks ssh for its configuration.
    pub(super) fn configured(endpoint: &SshEndpoint, stop: &Stop) -> Result<Ssh, TransferError> {
        if endpoint.host.starts_with('-') {
            return Err(TransferError::Usage(format!("'{}' is not a host", endpoint.host)));
        }
        std::thread::scope(|scope| {
            // Reading the program and its hash takes as long as asking ssh.
            let read = match &endpoint.program {
                FarProgram::Named(_) => None,
                FarProgram::Found { file, .. } => Some((file, scope.spawn(|| Program::read(file.as_deref())))),
            };
            let configured = ask_configuration(endpoint, stop);
            let program = match read.map(|(file, read)| (file, read.join())) {
                Some((_, Ok(Ok(program)))) => Some(program),
                Some((Some(_), Ok(Err(error)))) => return Err(error),
                // One that cannot be read is of no use to another host, which may have one of its own.
                _ => None,
            };
            Ok(Ssh { endpoint: endpoint.clone(), configured, program })
        })
    }

    /// The ssh program and its own options.
    pub(super) fn words(&self) -> &[std::ffi::OsString] {
        &self.endpoint.ssh
    }

    /// Whether the far host may ask for the program.
    pub(super) fn sends(&self) -> bool {
        matches!(self.endpoint.program, FarProgram::Found { send: true, .. })
    }

    /// Frees the memory of the program, which is not sent any more.
    pub(super) fn forget_content(&mut self) {
        if let Some(program) = &mut self.program {
            program.forget_content();
        }
    }

    /// The program that the far host looks for.
    pub(super) fn program(&self) -> Option<&Program> {
        self.program.as_ref()
    }

    /// The host to which ssh connects, by its configuration; `None` if ssh did not tell.
    pub(super) fn host_name(&self) -> Option<&str> {
        self.configured.lines().find_map(|line| line.strip_prefix("hostname "))
    }

    /// Whether another host or a program makes ssh's connection, so that this host may not know the far host's name.
    pub(super) fn is_proxied(&self) -> bool {
        self.configured.lines().any(|line| line.starts_with("proxyjump ") || line.starts_with("proxycommand "))
    }

    /// Whether later connections may use the first one's login (ssh_config(5), ControlPath).
    fn is_shared(&self) -> bool {
        self.configured.lines().any(|line| line.starts_with("controlpath ")) && !self.has("controlpath none")
    }

    fn has(&self, line: &str) -> bool {
        self.configured.lines().any(|other| other == line)
    }

    /// Returns the command that starts a far end; `options` are for ssh. With `sends`, the far host may ask for the program.
    fn command(&self, options: &[&str], sends: bool, task: FarTask) -> Command {
        let mut command = Command::new(ssh_program(&self.endpoint));
        command.args(self.endpoint.ssh.iter().skip(1)).args(options);
        if self.has("connecttimeout none") && !self.is_proxied() {
            // Without a limit, ssh waits for a host that does not answer as long as the kernel retries: two minutes. Through
            // a jump host, the limit would also apply to the time in which a person types a password there.
            command.args(["-o", &format!("ConnectTimeout={SSH_CONNECTS_S}")]);
        }
        command.arg(&self.endpoint.host).arg("--");
        match (&self.program, &self.endpoint.program) {
            (Some(program), _) => command.arg(program.command(sends)),
            (None, FarProgram::Named(name)) => command.arg(name).arg("far"),
            (None, FarProgram::Found { .. }) => command.args(["fullpipe", "far"]),
        };
        let ports = self.endpoint.ports.map(|(first, last)| format!("--data-ports={first}-{last}"));
        match task {
            FarTask::Session => command.args(ports),
            FarTask::Relay(port) => command.args(["--relay", &port.to_string()]),
            FarTask::Measurements => command.arg("--measure").args(ports),
        };
        command
    }

    /// Starts the far end. Returns before ssh has connected. The last of the results is the far end's output.
    pub(super) fn start(
        &self,
        task: FarTask,
        stop: &Stop,
    ) -> Result<(SshProcess, SshInput, UnixStream), TransferError> {
        let mut command = self.command(&[], self.sends(), task);
        // Unlike a pipe, a socket can be shut down at this end while other processes still hold its other end.
        let pair = || {
            let (ours, theirs) = UnixStream::pair().map_err(system("making a pair of sockets"))?;
            lock(&stop.ends).push(ours.try_clone().map_err(system("doubling a descriptor"))?);
            Ok::<_, TransferError>((ours, OwnedFd::from(theirs)))
        };
        let ((input, its_input), (output, its_output)) = (pair()?, pair()?);
        command.stdin(its_input).stdout(its_output);
        let anyone = is_anyone_there();
        if !anyone {
            // With a process group of its own, all processes that ssh starts can be killed with it. On a terminal the group
            // would be a background job, which may not ask for a password.
            command.process_group(0);
        }
        if matches!(task, FarTask::Measurements) {
            // On a terminal, Ctrl-C ends a measurement and leaves its result. So it must not end ssh, too, which keeps to this
            // (clientloop.c, `client_loop`).
            // SAFETY: between fork and exec only an async-signal-safe system call is made, and no handler is set.
            unsafe { command.pre_exec(|| Ok(signal(Signal::SIGINT, SigHandler::SigIgn).map(drop)?)) };
        }
        if self.has("batchmode yes") || !anyone {
            *lock(&stop.awaited) = Some(Instant::now() + Duration::from_secs(SSH_CONNECTS_S.into()));
        }
        Ok((SshProcess::start(command, stop)?, SshInput(input), output))
    }
}

/// This end of ssh's standard input, which ends when this is dropped: closing the socket would not suffice, since [`Stop`] has it
/// open, too.
pub(super) struct SshInput(UnixStream);

impl SshInput {
    /// Another descriptor of it.
    pub(super) fn descriptor(&self) -> io::Result<OwnedFd> {
        self.0.try_clone().map(OwnedFd::from)
    }
}

impl Write for SshInput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Drop for SshInput {
    fn drop(&mut self) {
        let _ = self.0.shutdown(Shutdown::Write);
    }
}

/// The ssh program.
fn ssh_program(endpoint: &SshEndpoint) -> &OsStr {
    endpoint.ssh.first().map_or(OsStr::new("ssh"), |ssh| ssh.as_os_str())
}

/// Whether ssh can ask the user for input (ssh(1), SSH_ASKPASS). Then waiting for ssh has no time limit.
fn is_anyone_there() -> bool {
    let asks = ["SSH_ASKPASS", "DISPLAY", "WAYLAND_DISPLAY"];
    std::fs::File::open("/dev/tty").is_ok() || asks.iter().any(|name| std::env::var_os(name).is_some())
}

/// Returns ssh's configuration for a host, as `ssh -G` prints it; empty if `ssh` is another program that has no `-G`. A
/// command that ssh runs for it (ssh_config(5), Match exec) may hang until `stop` ends it.
fn ask_configuration(endpoint: &SshEndpoint, stop: &Stop) -> String {
    let Ok((mut output, theirs)) = UnixStream::pair() else { return String::new() };
    let mut command = Command::new(ssh_program(endpoint));
    command.args(endpoint.ssh.iter().skip(1)).arg("-G").arg(&endpoint.host);
    command.stdin(Stdio::null()).stdout(OwnedFd::from(theirs)).stderr(Stdio::null());
    let Ok(child) = command.spawn() else { return String::new() };
    drop(command);
    let child = Arc::new(Mutex::new(child));
    lock(&stop.children).push(child.clone());
    *lock(&stop.awaited) = Some(Instant::now());
    // The output fits into a socket's buffer, so it can be read after ssh has ended. Reading until the socket's end instead
    // would also wait for processes that ssh has started.
    let ended = loop {
        match lock(&child).try_wait() {
            Ok(None) => {}
            ended => break ended.ok().flatten(),
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    lock(&stop.children).retain(|other| !Arc::ptr_eq(other, &child));
    *lock(&stop.awaited) = None;
    let mut told = Vec::new();
    if ended.is_some_and(|status| status.success()) {
        // The shutdown ends the output here: other processes may still hold the socket's other end.
        let _ = output.shutdown(Shutdown::Both).and_then(|()| output.read_to_end(&mut told));
    }
    String::from_utf8_lossy(&told).into_owned()
}

/// A running ssh. It is ended when this is dropped.
pub(super) struct SshProcess {
    child: Arc<Mutex<Child>>,
    login: Login,
    /// Guards the last lines that ssh printed to its standard error. Held only while lines are added or read.
    errors: Arc<Mutex<VecDeque<String>>>,
}

impl SshProcess {
    /// Starts a command.
    fn start(mut command: Command, stop: &Stop) -> Result<SshProcess, TransferError> {
        let mut child = command.stderr(Stdio::piped()).spawn().map_err(|source| {
            let tool = command.get_program().to_string_lossy().into_owned();
            TransferError::NoTool { tool, source }
        })?;
        // The command holds the other ends of sockets as long as it exists.
        drop(command);
        let errors = child.stderr.take();
        let child = Arc::new(Mutex::new(child));
        let process = SshProcess { login: Login::of(&child), child, errors: Arc::default() };
        lock(&stop.children).push(process.child.clone());
        let said = process.errors.clone();
        thread("ssh", move || {
            let Some(errors) = errors else { return };
            let mut errors = BufReader::new(errors);
            let mut line = Vec::new();
            // Long lines are cut and old lines are dropped: the far end must not fill this end's memory.
            while errors.by_ref().take(MAX_ERROR_LINE_BYTES).read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
                let mut said = lock(&said);
                if said.len() == MAX_ERROR_LINES {
                    said.pop_front();
                }
                // The far host can make ssh print any text (ssh_config(5), Banner).
                said.push_back(text::from_peer(String::from_utf8_lossy(&line).trim_end()));
                line.clear();
            }
        })?;
        Ok(process)
    }

    /// Waits a second for ssh to end. Returns its exit status, which is the far end's, and the reason that it printed. Its
    /// last lines may come a little later than the end of its output.
    pub(super) fn ended(&self) -> (Option<ExitStatus>, String) {
        let mut status = None;
        for _ in 0..20 {
            std::thread::sleep(Duration::from_millis(50));
            status = lock(&self.child).try_wait().ok().flatten();
            if status.is_some() {
                break;
            }
        }
        // ssh's warnings, such as the one about a new host key, are not the reason.
        let is_reason =
            |line: &&String| !line.trim().is_empty() && !line.starts_with("Warning:") && !line.starts_with("** ");
        let errors = lock(&self.errors);
        let last = |is: &dyn Fn(&&String) -> bool| errors.iter().rev().find(is);
        // A program that does not know its arguments prints more behind its error.
        let reason = last(&|line| line.starts_with("error: "))
            // So does ssh where the ssh to a jump host has said why and ended.
            .or_else(|| last(&|line| line.contains(NAME_UNKNOWN)))
            .or_else(|| last(&|line| is_reason(line) && !line.contains(" by UNKNOWN port ")))
            .or_else(|| last(&is_reason));
        (status, reason.cloned().unwrap_or_default())
    }

    /// The far end has been heard.
    pub(super) fn has_logged_in(&self) {
        self.login.end();
    }

    /// TCP_INFO of ssh's connection to one of these addresses.
    pub(super) fn tcp_info(&self, to: &[IpAddr]) -> Option<TcpInfo> {
        let mut child = lock(&self.child);
        // The number of a process that has ended may be another's by now.
        matches!(child.try_wait(), Ok(None)).then(|| fullpipe_net::child::tcp_info(&child, to)).flatten()
    }

    /// Whether ssh has printed one of these words.
    fn has_said(&self, words: &[&str]) -> bool {
        lock(&self.errors).iter().any(|line| words.iter().any(|word| line.contains(word)))
    }

    /// Ends ssh at once.
    fn end(&self) {
        let mut child = lock(&self.child);
        stop::end(&mut child);
        let _ = child.wait();
    }
}

impl Drop for SshProcess {
    fn drop(&mut self) {
        // ssh ends by itself when its input ends, unless it is stuck.
        for _ in 0..50 {
            if !matches!(lock(&self.child).try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        self.end();
    }
}

/// Reads until the far host's first word, and drops what login scripts have printed before it.
pub(super) fn first_word(input: &mut (impl Read + ?Sized), program: Option<&Program>) -> io::Result<FirstWord> {
    let mut seen = Vec::new();
    let mut line = 0;
    let mut byte = [0];
    while seen.len() < MAX_LOGIN_BYTES {
        input.read_exact(&mut byte)?;
        seen.push(byte[0]);
        if seen.ends_with(hello::READY) {
            return Ok(FirstWord::Ready);
        }
        if byte == *b"\n" {
            if let Some(wanted) = program.and_then(|program| program.wanted(&seen[line..])) {
                return Ok(FirstWord::Wanted(wanted));
            }
            line = seen.len();
        }
    }
    Ok(FirstWord::Other)
}

/// The ssh connections that carry the data streams of a copy. They end when this is dropped.
#[derive(Default)]
pub(crate) struct DataConnections(Vec<SshProcess>);

impl Drop for DataConnections {
    fn drop(&mut self) {
        // What had to be sent has arrived, or is given up.
        self.0.iter().for_each(SshProcess::end);
    }
}

/// A port that the far end listens on, as data streams reach it: each through an ssh connection of its own.
pub(crate) struct SshPort<'a> {
    ssh: &'a Ssh,
    port: u16,
    agreed: &'a Connect,
    sends: bool,
    stop: &'a Stop,
    /// Guards the connections. Held while one is added.
    opened: Mutex<DataConnections>,
    /// Guards who may log in. Held while that is read or changed.
    logins: Mutex<Logins>,
    /// Wakes threads that wait to log in.
    free: Condvar,
}

/// Who may log in.
#[derive(Default)]
struct Logins {
    /// Number of connections that are logging in.
    under_way: u16,
    /// Whether connections use the first one's login, since one of their own was refused.
    shares: bool,
    /// Why a connection could not be opened. Then no other is tried: each refusal may count against the user.
    given_up: Option<String>,
}

impl<'a> SshPort<'a> {
    pub(crate) fn new(ssh: &'a Ssh, port: u16, agreed: &'a Connect, sends: bool, stop: &'a Stop) -> SshPort<'a> {
        let (opened, logins, free) = (Mutex::default(), Mutex::default(), Condvar::new());
        SshPort { ssh, port, agreed, sends, stop, opened, logins, free }
    }

    /// Opens one connection. It may be called from several threads at once.
    pub(crate) fn open(&self) -> Result<Box<dyn DataStream>, TransferError> {
        let mut logins = lock(&self.logins);
        while logins.under_way == MAX_LOGINS && logins.given_up.is_none() {
            logins = self.free.wait(logins).unwrap_or_else(PoisonError::into_inner);
        }
        logins.under_way += 1;
        drop(logins);
        let opened = self.log_in();
        let mut logins = lock(&self.logins);
        logins.under_way -= 1;
        if let Err(error) = &opened {
            logins.given_up.get_or_insert_with(|| error.to_string());
        }
        drop(logins);
        self.free.notify_all();
        let (process, socket) = opened?;
        lock(&self.opened).0.push(process);
        Ok(TcpDataStream::boxed(socket))
    }

    /// The connections, once all are open.
    pub(crate) fn into_connections(self) -> DataConnections {
        self.opened.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a connection, if need be in several attempts.
    fn log_in(&self) -> Result<(SshProcess, TcpStream), TransferError> {
        let mut attempt = 0;
        loop {
            let shares = {
                let logins = lock(&self.logins);
                if let Some(why) = &logins.given_up {
                    return Err(TransferError::Unreachable(why.clone()));
                }
                logins.shares
            };
            if self.stop.is_cut() {
                return Err(TransferError::Unreachable(
                    "the copy ended while its streams were being opened".to_owned(),
                ));
            }
            let refused = match self.attempt(if shares { SHARED_LOGIN } else { OWN_LOGIN })? {
                Ok(opened) => return Ok(opened),
                Err(refused) => refused,
            };
            attempt += 1;
            let is_last = refused.for_good || attempt == ATTEMPTS;
            if is_last && !shares && self.ssh.is_shared() {
                // Where a person has typed a password, nobody types it again.
                lock(&self.logins).shares = true;
                attempt = 0;
            } else if is_last {
                return Err(refused.error(&self.ssh.endpoint.host));
            } else {
                std::thread::sleep(PAUSE * attempt);
            }
        }
    }

    /// Starts ssh with such a login, and a far end that relays its bytes to the session's port.
    fn attempt(&self, login: &str) -> Result<Result<(SshProcess, TcpStream), Refused>, TransferError> {
        let (ours, theirs) =
            socket_pair(&self.agreed.transport, self.sends).map_err(system("connecting to this host"))?;
        // Nobody can be asked for a password by many connections at once, and forwarded ports belong to the first one.
        let mut options = vec!["-T", "-oBatchMode=yes", login, "-oClearAllForwardings=yes"];
        let limit = format!("-oConnectTimeout={SSH_CONNECTS_S}");
        if self.ssh.has("connecttimeout none") {
            options.push(&limit);
        }
        let mut command = self.ssh.command(&options, false, FarTask::Relay(self.port));
        lock(&self.stop.sockets).push(ours.try_clone().map_err(system("doubling a descriptor"))?);
        let theirs_too = theirs.try_clone().map_err(system("doubling a descriptor"))?;
        command.stdin(OwnedFd::from(theirs)).stdout(OwnedFd::from(theirs_too)).process_group(0);
        let process = SshProcess::start(command, self.stop)?;
        let asked = || {
            ours.set_read_timeout(Some(join::JOIN))?;
            // The far end of the copy has shown that the program is there.
            if !matches!(first_word(&mut &ours, None)?, FirstWord::Ready) {
                return Err(io::Error::new(io::ErrorKind::InvalidData, NO_GREETING));
            }
            Ok(())
        };
        let Err(error) = asked() else {
            process.has_logged_in();
            return Ok(Ok((process, ours)));
        };
        process.end();
        let (_, said) = process.ended();
        let for_good = process.has_said(&REFUSED_FOR_GOOD);
        let why = match error.kind() {
            _ if !said.is_empty() => said,
            io::ErrorKind::UnexpectedEof => "it closed the connection".to_owned(),
            _ => error::why(&error),
        };
        Ok(Err(Refused { why, for_good }))
    }
}

/// What ssh prints where another attempt would be refused, too.
const REFUSED_FOR_GOOD: [&str; 3] = ["Permission denied", "Too many authentication failures", "verification failed"];

/// Why an ssh connection for a data stream could not be opened.
struct Refused {
    why: String,
    /// Whether another attempt would be refused, too, and might count against the user.
    for_good: bool,
}

impl Refused {
    fn error(self, host: &str) -> TransferError {
        let advice = if self.for_good {
            "each logs in by itself and cannot ask for a password: use a key or an agent, or let them share a login \
             (ControlMaster auto and a ControlPath in ssh's configuration)"
        } else {
            "if the host limits new connections, open fewer with -n"
        };
        let why = self.why.trim_end_matches('.');
        TransferError::Unreachable(format!("cannot open an ssh connection to {host} for the data: {why}; {advice}"))
    }
}

/// Options of ssh for a connection with a TCP connection and a login of its own. Connections that share one are no faster
/// than one.
const OWN_LOGIN: &str = "-oControlPath=none";
/// Options of ssh for a connection that uses another one's login.
const SHARED_LOGIN: &str = "-oControlMaster=no";

/// Returns the two ends of a TCP connection within this host.
fn socket_pair(transport: &Transport, sends: bool) -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let ours = TcpStream::connect(listener.local_addr()?)?;
    // Another user of this host may call, too.
    let theirs = loop {
        let (theirs, from) = listener.accept()?;
        if from == ours.local_addr()? {
            break theirs;
        }
    };
    for (end, sends) in [(&ours, sends), (&theirs, false)] {
        // The end of a chunk must not wait for an acknowledgement (RFC 896).
        end.set_nodelay(true)?;
        socket::apply_to_accepted(end, transport, sends).map_err(io::Error::other)?;
    }
    Ok((ours, theirs))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::connection::endpoint::Via;

    /// A script around ssh is ended at once, but leaves ssh behind, which holds the other end of its input.
    #[test]
    fn no_thread_goes_on_writing_to_what_a_script_leaves_behind() {
        let ssh = ["sh", "-c", "setsid sh -c 'echo; exec sleep 20'; exit $?"].map(Into::into).to_vec();
        let program = FarProgram::Named("fullpipe".to_owned());
        let endpoint = SshEndpoint { host: "far".to_owned(), ssh, program, ports: None, via: Via::Tcp };
        let ssh = Ssh { endpoint, configured: String::new(), program: None };
        let stop = Stop::default();
        let (_process, mut input, mut output) = ssh.start(FarTask::Session, &stop).unwrap();
        output.read_exact(&mut [0]).unwrap();
        let (tell, told) = mpsc::channel();
        std::thread::spawn(move || {
            while input.write_all(&[0; 64 << 10]).is_ok() {}
            let _ = tell.send(());
        });
        stop.cut();
        assert!(told.recv_timeout(Duration::from_secs(10)).is_ok());
    }
}
