//! Hands each client to a process of its own, and answers the requests of that process.
//!
//! Tokens, places and limits stay here. A process that is killed, or that crashes, disconnects its own client and nobody
//! else.

use std::io;
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fullpipe_net::serve::{Event, NoPlace, PendingClient, Purpose};
use fullpipe_net::serve_measurement::MeasurementPolicy;
use fullpipe_net::shared_port::{Expectation, SharedPort};
use fullpipe_net::wire::is_proof;
use fullpipe_net::{Admitted, AnonymousLimits, Denial, MeasurementId, NetError};
use fullpipe_path::ExitClass;
use fullpipe_path::transport::MAX_MEASURED_STREAMS;
use fullpipe_transfer::protocol::message::Task;
use fullpipe_transfer::resolve::Base;
use nix::sys::signal::Signal;

use super::channel::{self, Answer, Ask, Copied, CopyOptions, Failed, Job, Work, send_job};
use super::clients::Clients;
use super::log::{Copy, Told, log};
use super::metrics::{Kind, Metrics, Present, Way};
use super::token_access::TokenAccess;

/// Longest time that a process may take to end after its client has been served.
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);

/// What serves every client.
pub struct Parent {
    /// The options of measurements.
    pub measure: MeasurementPolicy,
    /// The options of copies, and the folder; none without --root.
    pub copies: Option<(CopyOptions, Base)>,
    /// The tokens; none if clients need none.
    pub access: Option<TokenAccess>,
    /// The limits of clients without a token; none if they have none.
    pub limits: Option<AnonymousLimits>,
    /// The server's own port, if data streams come there.
    pub shared: Option<SharedPort>,
    /// The present clients, for the log.
    pub clients: Clients,
    /// The form of the log.
    pub told: Told,
    /// Where clients are counted.
    pub metrics: Metrics,
}

/// One client, as this process knows it.
struct Served<'a> {
    peer: &'a str,
    guest: &'a PendingClient,
    /// A duplicate of the client's connection, with which the limits can end it.
    control: TcpStream,
    admitted: Option<Admitted>,
    /// This end of the channel for data streams, if they come to the server's own port.
    streams: Option<UnixStream>,
    /// The streams that the client's session expects there.
    expected: Option<Expectation>,
    /// Whether the client has shown or proved a token here. The other process is not believed.
    has_token: bool,
    copy: Copy<'a>,
    /// Counts the client as long as it is served.
    present: Option<Present>,
    /// Whether it has found all places taken.
    was_busy: bool,
}

impl Parent {
    /// Serves one connection to its end.
    ///
    /// # Errors
    /// The client's; the client has been told, if it could be.
    pub fn serve(&self, socket: TcpStream, peer: &str, guest: &PendingClient, measured: bool) -> Result<(), NetError> {
        let system = |what| move |source| NetError::System { what, source };
        let (work, folder) = match &self.copies {
            Some((options, base)) if !measured => (Work::Copy(options.clone()), Some(base.as_fd())),
            _ => (Work::Measure(self.measure.clone()), None),
        };
        // All that can fail comes before the process starts: from there on, nothing returns before `end` has waited for it.
        let control = socket.try_clone().map_err(system("doubling a descriptor"))?;
        let streams =
            self.shared.as_ref().map(|_| UnixStream::pair()).transpose().map_err(system("opening a channel"))?;
        let (mut channel, mut child) = start().map_err(system("starting a process for a client"))?;
        let job = Job { peer: peer.to_owned(), work, shares_port: streams.is_some() };
        let (streams, theirs) = streams.unzip();
        let fds: Vec<_> = [socket.as_fd()].into_iter().chain(folder).chain(theirs.as_ref().map(AsFd::as_fd)).collect();
        let sent = send_job(&mut channel, &job, &fds);
        drop(theirs);
        // From here on only the other process holds the connection, which ends with it.
        drop(socket);
        let mut served = Served {
            peer,
            guest,
            control,
            admitted: None,
            streams,
            expected: None,
            has_token: false,
            copy: Copy::new(peer),
            present: None,
            was_busy: false,
        };
        let done = sent.and_then(|()| self.answer(&mut channel, &mut served));
        drop(channel);
        let ended = end(&mut child);
        match (done, ended) {
            (Ok(Ok(())), _) => Ok(()),
            (Ok(Err(Failed { why, class })), _) => {
                Err(NetError::Served { why, class: ExitClass::from_code(class.into()).unwrap_or(ExitClass::Peer) })
            }
            (Err(_), Ok(status)) => Err(NetError::Other(format!("{}: this client alone is affected", crash(status)))),
            (Err(_), Err(source)) => Err(system("waiting for a client's process")(source)),
        }
    }

    /// Answers until the client has been served, and counts it. A process that ends without a word has failed.
    fn answer(&self, channel: &mut UnixStream, served: &mut Served<'_>) -> io::Result<Result<(), Failed>> {
        let done = self.answer_all(channel, served);
        if let Err(error) = &done {
            self.count(served, Err(&Failed { why: error.to_string(), class: ExitClass::Peer as u8 }));
        }
        done
    }

    /// Counts a client that has been served, or not.
    fn count(&self, served: &mut Served<'_>, done: Result<Option<&Copied>, &Failed>) {
        match served.present.take() {
            Some(present) => present.ends(done),
            None if done.is_err() && !served.was_busy => self.metrics.unserved(),
            None => {}
        }
    }

    /// Answers all requests.
    fn answer_all(&self, channel: &mut UnixStream, served: &mut Served<'_>) -> io::Result<Result<(), Failed>> {
        loop {
            let answer = match channel::receive(channel)? {
                Ask::Done(done) => {
                    self.count(served, done.as_ref().map(Option::as_ref));
                    return Ok(done.map(|copied| {
                        if let Some(copied) = copied {
                            served.copy.ends(&copied, self.told);
                        }
                    }));
                }
                Ask::Begins(request) => {
                    served.guest.note_known();
                    let token = self.clients.served(served.peer);
                    served.present = Some(self.metrics.begins(Kind::Measurement, Way::of(request.direction)));
                    log(&Event::Begin { peer: served.peer, request: &request }, token.as_deref(), self.told);
                    continue;
                }
                Ask::Distrusts(file) => {
                    served.copy.distrusts(&file, self.told);
                    continue;
                }
                Ask::Grant(secret) => self.grant(&secret, served),
                Ask::Prove { nonce, mac } => self.prove(&nonce, &mac, served),
                Ask::LetIn(_) | Ask::Admit(_) | Ask::Streams(_) if self.access.is_some() && !served.has_token => {
                    Answer::No("no token was shown".to_owned().into())
                }
                Ask::LetIn(id) => self.let_in(channel, served, id),
                Ask::Streams(preambles) => self.expect(preambles, served),
                Ask::Admit(task) => match admit(served.guest, &task) {
                    Ok(()) => {
                        served.guest.note_known();
                        self.clients.served(served.peer);
                        served.copy.begins(&task, self.told);
                        served.present = match task {
                            Task::Push(_) => Some(self.metrics.begins(Kind::Copy, Way::Received)),
                            Task::Pull(_) => Some(self.metrics.begins(Kind::Copy, Way::Sent)),
                            Task::Look(_) | Task::Compare(_) => None,
                        };
                        Answer::Yes
                    }
                    Err(why) => no_place(why),
                },
            };
            if matches!(answer, Answer::Busy(_)) {
                self.metrics.busy();
                served.was_busy = true;
            }
            channel::send(channel, &answer)?;
        }
    }

    fn grant(&self, secret: &[u8], served: &mut Served<'_>) -> Answer {
        let Some(access) = &self.access else { return Answer::Granted(None) };
        access.refresh();
        match access.tokens.check(secret, SystemTime::now()) {
            Ok(grant) => {
                self.clients.holds(served.peer, &grant.name);
                served.copy.holds(&grant.name);
                served.has_token = true;
                served.guest.note_known();
                Answer::Granted(Some(grant))
            }
            Err(refusal) => Answer::No(refusal.into()),
        }
    }

    fn prove(&self, nonce: &[u8; 32], mac: &[u8; 32], served: &mut Served<'_>) -> Answer {
        let Some(access) = &self.access else { return Answer::Yes };
        access.refresh();
        match access.tokens.prove(SystemTime::now(), |key| is_proof(key, nonce, mac)) {
            Ok(grant) => {
                self.clients.holds(served.peer, &grant.name);
                served.has_token = true;
                served.guest.note_known();
                served.guest.prove();
                Answer::Yes
            }
            Err(refusal) => Answer::No(refusal.into()),
        }
    }

    /// Has a client's streams handed over that come to the server's own port.
    fn expect(&self, preambles: Vec<Vec<u8>>, served: &mut Served<'_>) -> Answer {
        let no = |why: &str| Answer::No(why.to_owned().into());
        let (Some(port), Some(line)) = (&self.shared, &served.streams) else { return no("it has no streams there") };
        if !served.guest.is_in() || preambles.len() > usize::from(MAX_MEASURED_STREAMS) {
            return no("it may not have so many streams now");
        }
        let from = served.control.peer_addr().map(|peer| peer.ip());
        let expected = from.and_then(|from| port.expect(from, preambles, line.try_clone()?));
        match expected {
            Ok(expected) => {
                served.expected = Some(expected);
                Answer::Yes
            }
            Err(error) => no(&error.to_string()),
        }
    }

    fn let_in(&self, channel: &UnixStream, served: &mut Served<'_>, id: Option<MeasurementId>) -> Answer {
        // Holders of a token have no limits.
        if let Some(limits) = self.limits.as_ref().filter(|_| self.access.is_none()) {
            let from = served.control.peer_addr().and_then(|from| Ok((from, channel.try_clone()?)));
            let admitted = from.map_err(|e| NetError::Other(e.to_string())).and_then(|(from, channel)| {
                // Without its channel the process ends, or is killed.
                limits.admit(from.ip(), &served.control, move || drop(channel.shutdown(Shutdown::Both)))
            });
            match admitted {
                Ok(admitted) => served.admitted = Some(admitted),
                Err(NetError::Denied(denial)) => {
                    self.metrics.busy();
                    served.was_busy = true;
                    return Answer::No(channel::busy_for(id, denial));
                }
                Err(error) => return Answer::No(error.to_string().into()),
            }
        }
        match served.guest.let_in(Purpose::Measurement, id) {
            Ok(()) => Answer::Yes,
            Err(why) => no_place(why),
        }
    }
}

/// Gives a client a place for its task. A client that only asks is not the one of `--once`.
fn admit(guest: &PendingClient, task: &Task) -> std::result::Result<(), NoPlace> {
    match task {
        Task::Push(_) | Task::Pull(_) => guest.let_in(Purpose::Other, None),
        Task::Look(_) | Task::Compare(_) => guest.let_in_to_ask(Purpose::Other),
    }
}

/// What a client is told that gets no place.
fn no_place(why: NoPlace) -> Answer {
    match why {
        NoPlace::Busy(most) => Answer::Busy(most),
        NoPlace::NotTheOne => Answer::No(Denial::new(
            "it serves one client (--once), and that is another one",
            "start another server, or one without --once",
        )),
    }
}

/// Starts a process of this very program, without this one's environment, and gives the channel to it.
fn start() -> io::Result<(UnixStream, Child)> {
    let (ours, theirs) = UnixStream::pair()?;
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0("fullpipe")
        .arg("serve-client")
        .env_clear()
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null());
    Ok((ours, command.spawn()?))
}

/// Waits for a process that has served its client, and kills it if it does not end.
fn end(child: &mut Child) -> io::Result<ExitStatus> {
    let until = std::time::Instant::now() + EXIT_TIMEOUT;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if std::time::Instant::now() > until {
            child.kill()?;
            return child.wait();
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// How a process ended before it was done.
fn crash(status: ExitStatus) -> String {
    match status.signal().map(Signal::try_from) {
        Some(Ok(signal)) => format!("its process was ended by {signal}"),
        _ => format!("its process ended too early ({status})"),
    }
}

/// The function with which a server serves each client in a process of its own.
pub fn serve(parent: Parent) -> fullpipe_net::serve::Serve {
    Arc::new(move |socket, peer, guest, measured| parent.serve(socket, peer, guest, measured))
}

#[cfg(test)]
mod tests {
    use fullpipe_net::wire::Request;
    use fullpipe_net::{ServeOptions, Server};
    use fullpipe_path::{Buffer, Direction, Size, Time, Transport, Workload};
    use fullpipe_transfer::connection::token::Token;
    use fullpipe_transfer::connection::token_store::Tokens;
    use fullpipe_transfer::protocol::message::Sources;

    use super::*;

    /// A process in which a client has found a flaw says that its client may come in.
    #[test]
    fn a_client_without_a_token_gets_no_place_whatever_its_process_says() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        let (tokens, ..) = Tokens::load_or_make(&file).unwrap();
        let token: Token = std::fs::read_to_string(&file).unwrap().trim().parse().unwrap();
        let told = Told { json: false, quiet: true };
        let access = Some(TokenAccess::new(dir.path().to_owned(), tokens, told));
        let parent = parent(access, told);
        let look = || Ask::Admit(Task::Look(Sources::default()));
        let serve = move |socket, peer: &str, guest: &PendingClient, _| {
            let (mut ours, mut theirs) = UnixStream::pair().unwrap();
            let wrong = Ask::Prove { nonce: [1; 32], mac: [2; 32] };
            let secret = Ask::Grant(token.secret.to_vec());
            for ask in [
                look(),
                Ask::LetIn(None),
                wrong,
                Ask::LetIn(None),
                secret,
                look(),
                Ask::LetIn(None),
                Ask::Done(Ok(None)),
            ] {
                channel::send(&mut theirs, &ask).unwrap();
            }
            let mut served = served(peer, guest, socket);
            assert!(parent.answer(&mut ours, &mut served).unwrap().is_ok());
            let said: Vec<Answer> = (0..7).map(|_| channel::receive(&mut theirs).unwrap()).collect();
            assert!(said[..4].iter().all(|answer| matches!(answer, Answer::No(_))));
            assert!(matches!(said[4..], [Answer::Granted(Some(_)), Answer::Yes, Answer::Yes]));
            Ok(())
        };
        call_once(Arc::new(serve));
    }

    /// Its client is not served any more, and no longer present.
    #[test]
    fn a_process_that_crashes_is_counted_as_failed() {
        let parent = parent(None, Told { json: false, quiet: true });
        let metrics = parent.metrics.clone();
        let serve = move |socket, peer: &str, guest: &PendingClient, _| {
            let (mut ours, mut theirs) = UnixStream::pair().unwrap();
            let (cc, buffer, workload) = ("cubic".into(), Buffer::Auto, Workload::Size(Size(1)));
            let transport = Transport { cc, streams: 1, buffer, pacing: None, dscp: None, mss: None };
            let (direction, sample) = (Direction::Send, Time(100_000_000));
            let request = Request { transport, workload, direction, seed: 1, sample };
            for ask in [Ask::LetIn(None), Ask::Begins(request)] {
                channel::send(&mut theirs, &ask).unwrap();
            }
            theirs.shutdown(Shutdown::Write).unwrap();
            assert!(parent.answer(&mut ours, &mut served(peer, guest, socket)).is_err());
            Ok(())
        };
        call_once(Arc::new(serve));
        let page = metrics.page().unwrap().text;
        let failed = "fullpipe_served_clients_total{kind=\"measurement\",direction=\"received\",outcome=\"failed\"} 1";
        assert!(page.contains(failed), "{page}");
        assert!(page.contains("fullpipe_present_clients{kind=\"measurement\"} 0"), "{page}");
    }

    fn parent(access: Option<TokenAccess>, told: Told) -> Parent {
        let measure = MeasurementPolicy {
            data_ports: (0, 0),
            stall: Duration::from_secs(1),
            check_memory: false,
            max_run: None,
            wants_proof: access.is_some(),
        };
        Parent {
            measure,
            copies: None,
            access,
            limits: None,
            shared: None,
            clients: Clients::default(),
            told,
            metrics: Metrics::new(),
        }
    }

    fn served<'a>(peer: &'a str, guest: &'a PendingClient, control: TcpStream) -> Served<'a> {
        Served {
            peer,
            guest,
            control,
            admitted: None,
            streams: None,
            expected: None,
            has_token: false,
            copy: Copy::new(peer),
            present: None,
            was_busy: false,
        }
    }

    /// Has one connection to a server served.
    fn call_once(serve: fullpipe_net::serve::Serve) {
        let bind = ([127, 0, 0, 1], 0).into();
        let server = Server::bind(ServeOptions { bind, max_clients: 1, once: true }).unwrap();
        let mut client = TcpStream::connect(server.address().unwrap()).unwrap();
        io::Write::write_all(&mut client, b"x").unwrap();
        server.run(&serve, |_| ()).unwrap();
    }
}
