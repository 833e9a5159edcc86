//! The process that serves one client. What goes wrong in it affects that client alone.
//!
//! The process is confined to the server's folder (Landlock), cannot connect over TCP, has a limit on its memory, and keeps few
//! capabilities if it runs as root. From the server it has only the client's connection, the folder, the channel on its
//! standard input, and with `--data-ports same` one through which its data streams come.

use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Mutex, PoisonError};

use fullpipe_net::shared_port::SharedStreams;
use fullpipe_net::wire::Request;
use fullpipe_net::{Denial, MeasurementId, NetError};
use fullpipe_path::{Classified, ExitClass};
use fullpipe_transfer::TransferError;
use fullpipe_transfer::connection::token_store::Grant;
use fullpipe_transfer::protocol::message::Task;
use fullpipe_transfer::resolve::{Base, Realm};
use fullpipe_transfer::server::{self, ServerOptions};
use fullpipe_transfer::transfer::Outcome;
use landlock::{
    ABI, Access, AccessFs, AccessNet, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetStatus,
    Scope,
};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_name};

use super::channel::{self, Answer, Ask, Copied, CopyOptions, Failed, Job, Work, receive_job};
use crate::failure::{Failure, Result};

/// Limit on the memory of the process besides code and mapped files, bytes. A copy takes 8 to 34 MB.
const MAX_DATA: u64 = 4 << 30;
/// Files and folders outside the served one that the process may read, to describe kernel and interfaces.
const READABLE: [&str; 4] = ["/proc", "/sys", "/etc/os-release", "/usr/lib/os-release"];

/// Serves the client whose connection comes over standard input.
pub fn run() -> Result {
    let failed = |e: io::Error| Failure::new(ExitClass::Usage, format!("only 'fullpipe serve' starts this: {e}"));
    // Descriptors that the server inherited must not reach a client's process.
    // SAFETY: takes plain integers; this process has opened nothing but its standard streams yet (close_range(2)).
    unsafe { libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, 0u32) };
    let mut server = UnixStream::from(io::stdin().as_fd().try_clone_to_owned().map_err(failed)?);
    // The hangup signal asks the server to read its tokens again. It may be sent to all processes of a service or terminal,
    // and must end no transfer. Threads that start later inherit this.
    let lacks = |what: &'static str| move |e: io::Error| Failure::new(ExitClass::Missing, format!("{what}: {e}"));
    SigSet::from(Signal::SIGHUP).thread_block().map_err(|e| lacks("cannot block the hangup signal")(e.into()))?;
    // The kernel names a process after the link that it was started by, "exe". Only people read the name.
    let _ = set_name(c"fullpipe");
    let (Job { peer, work, shares_port }, fds) = receive_job(&mut server).map_err(failed)?;
    let mut fds = fds.into_iter();
    let missing = || failed(io::ErrorKind::InvalidInput.into());
    let socket = TcpStream::from(fds.next().ok_or_else(missing)?);
    let folder = if matches!(work, Work::Copy(_)) { fds.next() } else { None };
    let streams = if shares_port { Some(UnixStream::from(fds.next().ok_or_else(missing)?)) } else { None };
    limit();
    let ports = match &work {
        Work::Measure(options) => options.data_ports,
        Work::Copy(options) => options.data_ports,
    };
    drop_capabilities(ports).map_err(lacks("cannot give up capabilities"))?;
    // The server tells its operator once where this kernel has no Landlock.
    confine(folder.as_ref().map(AsFd::as_fd)).map_err(|e| Failure::new(ExitClass::Missing, e))?;
    let access = ParentAccess::new(server, streams).map_err(failed)?;
    let done = match work {
        Work::Measure(options) => {
            let measured = fullpipe_net::serve_measurement::measure(socket, &peer, &options, &access);
            measured.map(|()| None).map_err(|e| Failed { why: e.in_log(), class: e.class() as u8 })
        }
        Work::Copy(options) => copy(socket, &peer, options, folder.ok_or_else(missing)?, &access),
    };
    access.tell(&Ask::Done(done));
    Ok(())
}

fn copy(
    socket: TcpStream,
    peer: &str,
    options: CopyOptions,
    folder: OwnedFd,
    access: &ParentAccess,
) -> std::result::Result<Option<Copied>, Failed> {
    let failed = |e: TransferError| Failed { why: e.in_log(), class: e.class() as u8 };
    let lost = |source| failed(NetError::Lost { peer: peer.to_owned(), doing: "greeting", source }.into());
    let listen = socket.local_addr().map_err(lost)?;
    let far = ServerOptions {
        realm: Realm::Below(Base::received(folder, options.path)),
        listen,
        ports: options.data_ports,
        plain_streams: options.plain_streams,
        special_bits: options.special_bits,
        most_streams: fullpipe_path::transport::MAX_STREAMS,
        relays: false,
        stall: options.stall,
        client: None,
    };
    let done = server::serve_socket(socket, peer, options.identity.as_ref(), &far, access);
    let copied = |done: Outcome| Copied {
        summary: done.summary,
        skipped: done.skipped,
        sent: done.losses.map(|losses| losses.all),
    };
    done.map(|done| done.map(copied)).map_err(failed)
}

/// Limits the memory and core dumps of this process, so that a flaw cannot exhaust the machine.
fn limit() {
    // Root could raise a hard limit that is lower already.
    let most = getrlimit(Resource::RLIMIT_DATA).map_or(MAX_DATA, |(_, hard)| hard.min(MAX_DATA));
    let _ = setrlimit(Resource::RLIMIT_DATA, most, most);
    let _ = setrlimit(Resource::RLIMIT_CORE, 0, 0);
}

/// Gives up the capabilities that serving a client does not need (`capabilities(7)`); root has them all, other users none.
/// What is kept lets root's server write anywhere below its folder, keep owners and permissions, and use congestion controls
/// that are not every user's (tcp(7), `tcp_allowed_congestion_control`). Capabilities are a thread's own: no other thread
/// may run yet.
fn drop_capabilities(data_ports: (u16, u16)) -> io::Result<()> {
    let files = CapabilitySet::CHOWN | CapabilitySet::DAC_OVERRIDE | CapabilitySet::FOWNER | CapabilitySet::FSETID;
    let mut needed = files | CapabilitySet::NET_ADMIN;
    if (1..1024).contains(&data_ports.0) {
        needed |= CapabilitySet::NET_BIND_SERVICE;
    }
    let had = capabilities(None)?;
    let kept = CapabilitySets {
        effective: had.effective & needed,
        permitted: had.permitted & needed,
        inheritable: CapabilitySet::empty(),
    };
    Ok(set_capabilities(None, kept)?)
}

/// Lets this process open files only below the folder, and connect to nobody (Landlock, Linux 5.13 and later; connections from
/// 6.7 on; signals from 6.12 on). Says how much of that the kernel does.
fn confine(folder: Option<BorrowedFd<'_>>) -> std::result::Result<RulesetStatus, landlock::RulesetError> {
    let abi = ABI::V6;
    let mut rules = Ruleset::default()
        .handle_access(AccessFs::from_all(abi))?
        .handle_access(AccessNet::ConnectTcp)?
        .scope(Scope::AbstractUnixSocket | Scope::Signal)?
        .create()?;
    if let Some(folder) = folder {
        rules = rules.add_rule(PathBeneath::new(folder, AccessFs::from_all(abi)))?;
    }
    for path in READABLE.map(Path::new) {
        // One that is not there need not be read.
        if let Ok(fd) = PathFd::new(path) {
            let is_folder = path.is_dir();
            let read =
                if is_folder { AccessFs::from_read(abi) & !AccessFs::Execute } else { AccessFs::ReadFile.into() };
            rules = rules.add_rule(PathBeneath::new(fd, read))?;
        }
    }
    Ok(rules.restrict_self()?.ruleset)
}

/// What this kernel lacks to confine a process as far as [`confine`] asks, for a warning; tried on a thread that ends.
pub fn confinement_gap() -> Option<&'static str> {
    let tried = std::thread::spawn(|| confine(None).ok()).join();
    gap(tried.ok().flatten().unwrap_or(RulesetStatus::NotEnforced))
}

fn gap(status: RulesetStatus) -> Option<&'static str> {
    match status {
        RulesetStatus::FullyEnforced => None,
        RulesetStatus::PartiallyEnforced => Some(
            "this kernel's Landlock is older than Linux 6.12: a flaw that a client finds cannot open files outside --root, \
             but can signal this user's other processes; before Linux 6.7 it can also call other hosts (TCP), and before 6.2 \
             truncate files",
        ),
        RulesetStatus::NotEnforced => Some(
            "this kernel has no Landlock: a flaw that a client finds is not confined to --root (Linux 5.13 and later \
             have it)",
        ),
    }
}

/// Access control by the parent process: the server's own, which holds the tokens and counts the clients.
struct ParentAccess {
    /// The channel and the answers. Locked while one request is sent and answered; nothing else is done meanwhile.
    line: Mutex<(UnixStream, Receiver<Answer>)>,
    /// The channel for the streams that come to the server's own port, if they come there.
    streams: Option<UnixStream>,
}

impl ParentAccess {
    /// Listens to the server; the process ends when the server does.
    fn new(server: UnixStream, streams: Option<UnixStream>) -> io::Result<ParentAccess> {
        let mut hears = server.try_clone()?;
        let (answers, answered) = mpsc::channel();
        let listen = move || {
            while let Ok(answer) = channel::receive(&mut hears) {
                // The last one that asked has gone.
                if answers.send(answer).is_err() {
                    break;
                }
            }
            // Without the server nobody counts this client, and nobody can end it.
            std::process::exit(ExitClass::Peer as i32);
        };
        std::thread::Builder::new().name("server".into()).stack_size(256 << 10).spawn(listen)?;
        Ok(ParentAccess { line: Mutex::new((server, answered)), streams })
    }

    fn tell(&self, what: &Ask) {
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        // A server that is gone ends this process.
        let _ = channel::send(&mut line.0, what);
    }

    fn ask(&self, what: &Ask) -> Answer {
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        let asked = channel::send(&mut line.0, what);
        let answer = asked.ok().and_then(|()| line.1.recv().ok());
        answer.unwrap_or_else(|| Answer::No("the server has ended".to_owned().into()))
    }
}

impl server::AccessControl for ParentAccess {
    fn grant(&self, secret: &[u8]) -> std::result::Result<Option<Grant>, TransferError> {
        match self.ask(&Ask::Grant(secret.to_vec())) {
            Answer::Granted(grant) => Ok(grant),
            Answer::No(denial) => Err(TransferError::Denied(denial)),
            Answer::Yes | Answer::Busy(_) => Err(TransferError::Denied(no_answer())),
        }
    }

    fn admit(&self, task: &Task) -> std::result::Result<(), TransferError> {
        match self.ask(&Ask::Admit(task.clone())) {
            Answer::Yes => Ok(()),
            Answer::Busy(most) => Err(TransferError::Busied(most)),
            Answer::No(denial) => Err(TransferError::Denied(denial)),
            Answer::Granted(_) => Err(TransferError::Denied(no_answer())),
        }
    }

    fn distrusts(&self, file: &str) {
        self.tell(&Ask::Distrusts(file.to_owned()));
    }

    fn shared_port(&self) -> Option<&dyn SharedStreams> {
        self.streams.is_some().then_some(self)
    }
}

impl fullpipe_net::serve_measurement::Gatekeeper for ParentAccess {
    fn prove(&self, nonce: &[u8; 32], mac: &[u8; 32]) -> std::result::Result<(), Denial> {
        yes(self.ask(&Ask::Prove { nonce: *nonce, mac: *mac }))
    }

    fn let_in(&self, id: Option<MeasurementId>) -> std::result::Result<(), Denial> {
        let answer = self.ask(&Ask::LetIn(id));
        let is_busy = matches!(answer, Answer::Busy(_));
        yes(answer).map_err(|denial| if is_busy { channel::busy_for(id, denial) } else { denial })
    }

    fn begins(&self, request: &Request) {
        self.tell(&Ask::Begins(request.clone()));
    }

    fn shared_port(&self) -> Option<&dyn SharedStreams> {
        self.streams.is_some().then_some(self)
    }
}

impl SharedStreams for ParentAccess {
    fn expect(&self, preambles: Vec<Vec<u8>>) -> std::result::Result<UnixStream, Denial> {
        let line = self.streams.as_ref().and_then(|line| line.try_clone().ok()).ok_or_else(no_answer)?;
        yes(self.ask(&Ask::Streams(preambles))).map(|()| line)
    }
}

fn yes(answer: Answer) -> std::result::Result<(), Denial> {
    match answer {
        Answer::Yes => Ok(()),
        Answer::No(denial) => Err(denial),
        Answer::Busy(most) => Err(Denial::new(
            format!("it is busy (its --max-clients is {most})"),
            "try again later, or ask its operator to raise that",
        )),
        Answer::Granted(_) => Err(no_answer()),
    }
}

/// The server said something else than what was asked.
fn no_answer() -> Denial {
    "the server did not answer".to_owned().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_kernel_that_confines_wholly_gives_no_warning() {
        assert_eq!(gap(RulesetStatus::FullyEnforced), None);
        assert!(gap(RulesetStatus::PartiallyEnforced).unwrap().contains("6.12"));
        assert!(gap(RulesetStatus::NotEnforced).unwrap().contains("no Landlock"));
    }
}
