//! The server: it listens, and serves many clients at once, each in a thread of its own.

use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};

use crate::admission::{Admission, LogLimit, Places};
pub use crate::admission::{NoPlace, PendingClient, Purpose};
use crate::error::{NetError, system};
use crate::one_client::OneClient;
use crate::preamble_listener::BACKLOG;
use crate::preface::{self, Preface};
use crate::session::ANSWER;
use crate::shared_port::{self, SharedPort};
use crate::wire::Request;

/// What a server is started with.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// Address and port of control connections.
    pub bind: SocketAddr,
    /// Most clients of each [`Purpose`] that are served at once; more are refused.
    pub max_clients: usize,
    /// Whether the server ends after one client: one copy, or one measurement with all its connections.
    pub once: bool,
}

/// Serves one connection of a client. The flag tells whether the client's first byte is that of a measurement. The preface
/// has been read already.
pub type Serve = Arc<dyn Fn(TcpStream, &str, &PendingClient, bool) -> Result<(), NetError> + Send + Sync>;

/// An event at a server, for its log.
#[derive(Debug)]
pub enum Event<'a> {
    /// A client's run begins.
    Begin {
        /// The client's address.
        peer: &'a str,
        /// The run that the client has asked for.
        request: &'a Request,
    },
    /// A connection has ended.
    End {
        /// The client's address.
        peer: &'a str,
        /// Its result.
        result: Result<(), NetError>,
        /// Whether the client wanted to be measured.
        measured: bool,
        /// Whether the log has room for it: strangers must not fill the log.
        logged: bool,
    },
}

/// A listening server.
pub struct Server {
    listener: TcpListener,
    places: Places,
    /// The one client of [`ServeOptions::once`].
    one: Option<OneClient>,
    admission: Admission,
    check: Option<preface::Check>,
    shared: Option<SharedPort>,
}

impl Server {
    /// Starts to listen.
    ///
    /// # Errors
    /// The port is in use, or this user may not use it.
    pub fn bind(options: ServeOptions) -> Result<Server, NetError> {
        let listen = || -> io::Result<TcpListener> {
            let socket = Socket::new(Domain::for_address(options.bind), Type::STREAM, Some(Protocol::TCP))?;
            socket.set_reuse_address(true)?;
            if options.bind.is_ipv6() {
                // The server answers IPv4 and IPv6.
                socket.set_only_v6(false)?;
            }
            socket.bind(&options.bind.into())?;
            socket.listen(BACKLOG)?;
            Ok(socket.into())
        };
        let listener = listen().map_err(|source| NetError::Listen { address: options.bind.to_string(), source })?;
        let one = options.once.then(OneClient::new).transpose().map_err(system("opening an eventfd"))?;
        if one.is_some() {
            // A caller that is gone before it is accepted must not keep the server from its end.
            listener.set_nonblocking(true).map_err(system("listening without waiting"))?;
        }
        let (places, admission) = (Places::new(options.max_clients, one.clone()), Admission::default());
        Ok(Server { listener, places, one, admission, check: None, shared: None })
    }

    /// Sets the check of prefaces. Strangers cannot crowd out a client whose preface passes it.
    #[must_use]
    pub fn with_check(mut self, check: preface::Check) -> Server {
        self.check = Some(check);
        self
    }

    /// Lets data streams come to the server's own port. What is returned knows which ones are expected.
    pub fn share_port(&mut self) -> SharedPort {
        self.shared.insert(SharedPort::new(self.admission.clone())).clone()
    }

    /// Returns the address on which the server listens.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until the process is killed. With [`ServeOptions::once`], it returns when all connections of the first client that
    /// was admitted have ended; other clients are refused meanwhile. Nothing that a client does can end it earlier. `log` is
    /// called for every connection that ends, whether or not the end is to be logged, except those of the client of `once`, and
    /// of a connection for which no thread could be started.
    ///
    /// # Errors
    /// With `once`, serving that client failed, or the server cannot wait for it.
    pub fn run(&self, serve: &Serve, log: impl Fn(&Event<'_>) + Send + Sync + Clone + 'static) -> Result<(), NetError> {
        let limit = Arc::new(Mutex::new(LogLimit::new(Instant::now())));
        let end = move |log: &dyn Fn(&Event<'_>), guest: Option<&PendingClient>, peer: &str, measured, result| {
            let is_known = guest.is_some_and(PendingClient::is_known);
            let logged = is_known || limit.lock().unwrap_or_else(PoisonError::into_inner).allows(Instant::now());
            log(&Event::End { peer, result, measured, logged });
        };
        loop {
            if let Some(one) = &self.one
                && let Some(result) = one.wait(&self.listener).map_err(system("waiting for a client"))?
            {
                return result;
            }
            let (stream, address) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(error) => {
                    // A client that is gone already harms nobody. Where descriptors are lacking, a stranger gives its own
                    // back, in a thread that has to get there first.
                    if error.kind() != io::ErrorKind::ConnectionAborted {
                        self.admission.make_room();
                        std::thread::sleep(Duration::from_millis(10));
                    }
                    continue;
                }
            };
            // A socket for both families shows an IPv4 client with an IPv4-mapped IPv6 address.
            let peer = SocketAddr::new(address.ip().to_canonical(), address.port()).to_string();
            let guest = match self.admission.enter(address.ip().to_canonical(), &stream, &self.places) {
                Ok(guest) => guest,
                Err(why) => {
                    end(&log, None, &peer, false, Err(NetError::Other(why)));
                    continue;
                }
            };
            let (check, shared, one) = (self.check.clone(), self.shared.clone(), self.one.clone());
            let (serve, log, end) = (serve.clone(), log.clone(), end.clone());
            // Without a thread, the connection closes; nothing else can be done.
            let _ = std::thread::Builder::new().stack_size(256 << 10).spawn(move || {
                let known = (check.as_ref(), shared.as_ref());
                let Some((measured, result)) = hand_over(stream, &peer, known, &guest, &serve) else { return };
                match one.filter(|_| guest.is_the_one()) {
                    Some(one) => one.note(result),
                    None => end(&log, Some(&guest), &peer, measured, guest.explain(result)),
                }
            });
        }
    }
}

/// Serves a connection; returns whether its client wanted to be measured, and the result. A measurement begins with a
/// message, whose first byte is zero ([`crate::wire`]); nothing else begins with zero. A preface may come first. Returns `None` for a
/// data stream that has been handed to its session.
fn hand_over(
    mut stream: TcpStream,
    peer: &str,
    (check, shared): (Option<&preface::Check>, Option<&SharedPort>),
    guest: &PendingClient,
    serve: &Serve,
) -> Option<(bool, Result<(), NetError>)> {
    let first = stream.set_read_timeout(Some(ANSWER)).and_then(|()| first_byte(&mut stream, check, guest));
    match (first, shared) {
        (Ok(Some(shared_port::MARK)), Some(shared)) => {
            let why = || NetError::Other("no session expects this data stream".to_owned());
            shared.hand_over(stream).err().map(|_| (false, Err(why())))
        }
        // To serve a client takes a process, which a connection that has been ended already does not get.
        (Ok(Some(first)), _) if !guest.is_ended() => Some((first == 0, serve(stream, peer, guest, first == 0))),
        (Ok(_), _) => Some((false, Ok(()))),
        (Err(source), _) => Some((false, Err(NetError::Lost { peer: peer.into(), doing: "greeting", source }))),
    }
}

/// Returns the first byte after the preface, if there is one, and leaves the byte in the connection. Returns `None` if the
/// connection has ended.
fn first_byte(stream: &mut TcpStream, check: Option<&preface::Check>, guest: &PendingClient) -> io::Result<Option<u8>> {
    let mut first = [0];
    let mut peek = |stream: &TcpStream| stream.peek(&mut first).map(|n| (n > 0).then_some(first[0]));
    match peek(stream)? {
        Some(preface::MARK) => {}
        other => return Ok(other),
    }
    let mut preface = [0; preface::LEN];
    stream.read_exact(&mut preface)?;
    if check.is_some_and(|check| check(&Preface::from_bytes(&preface))) {
        guest.prove();
    }
    peek(stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_the_server_has_ended_is_not_served() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (admission, places) = (Admission::default(), Places::new(1, None));
        let call = || {
            let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            io::Write::write_all(&mut client, b"x").unwrap();
            let (stream, from) = listener.accept().unwrap();
            let guest = admission.enter(from.ip(), &stream, &places).unwrap();
            stream.peek(&mut [0]).unwrap();
            (client, stream, guest)
        };
        let serve: Serve = Arc::new(|_, _: &str, _: &PendingClient, _| Err(NetError::Other("served".to_owned())));
        let [ended, waits] = [call(), call()];
        assert!(admission.make_room());
        let served = |(_client, stream, guest): (TcpStream, TcpStream, PendingClient)| {
            hand_over(stream, "peer", (None, None), &guest, &serve).unwrap().1
        };
        assert!(served(ended).is_ok());
        assert!(served(waits).is_err());
    }

    /// Whoever keeps something for each connection is told of each end, also when strangers fill the log.
    #[test]
    fn the_end_of_every_connection_is_told() {
        let bind = ([127, 0, 0, 1], 0).into();
        let server = Server::bind(ServeOptions { bind, max_clients: 1, once: true }).unwrap();
        let address = server.address().unwrap();
        let ends = Arc::new(Mutex::new(Vec::new()));
        let (told, counted) = (ends.clone(), ends.clone());
        let call = move || {
            for _ in 0..60 {
                io::Write::write_all(&mut TcpStream::connect(address).unwrap(), b"x").unwrap();
            }
            while counted.lock().unwrap().len() < 60 {
                std::thread::sleep(Duration::from_millis(1));
            }
            // The server ends after the first client that comes in.
            io::Write::write_all(&mut TcpStream::connect(address).unwrap(), b"in").unwrap();
        };
        let calls = std::thread::spawn(call);
        let serve: Serve = Arc::new(|mut stream: TcpStream, _: &str, guest: &PendingClient, _| {
            let mut sent = Vec::new();
            stream.read_to_end(&mut sent).unwrap();
            if sent == b"in" {
                guest.let_in(Purpose::Other, None).unwrap();
            }
            Err(NetError::Other("refused".to_owned()))
        });
        let log = move |event: &Event<'_>| {
            if let Event::End { logged, .. } = event {
                told.lock().unwrap().push(*logged);
            }
        };
        assert!(server.run(&serve, log).is_err());
        calls.join().unwrap();
        let ends = ends.lock().unwrap();
        assert_eq!(ends.len(), 60);
        assert!(ends[0] && !ends.iter().all(|logged| *logged), "{ends:?}");
    }

    #[test]
    fn the_ends_of_clients_that_are_let_in_and_begin_nothing_do_not_fill_the_log() {
        let bind = ([127, 0, 0, 1], 0).into();
        let server = Server::bind(ServeOptions { bind, max_clients: 100, once: false }).unwrap();
        let address = server.address().unwrap();
        let (send, ends) = std::sync::mpsc::channel();
        let serve: Serve = Arc::new(|mut stream: TcpStream, _: &str, guest: &PendingClient, _| {
            let mut first = [0];
            stream.read_exact(&mut first).unwrap();
            guest.let_in(Purpose::Other, None).unwrap();
            if first == *b"k" {
                guest.note_known();
            }
            Ok(())
        });
        let log = move |event: &Event<'_>| {
            if let Event::End { logged, .. } = event {
                let _ = send.send(*logged);
            }
        };
        // It serves until the test's process ends.
        std::thread::spawn(move || server.run(&serve, log));
        let logged = |says: &[u8]| {
            io::Write::write_all(&mut TcpStream::connect(address).unwrap(), says).unwrap();
            ends.recv_timeout(Duration::from_secs(10)).unwrap()
        };
        let begun = Instant::now();
        let count = (0..200).filter(|_| logged(b"s")).count();
        let seconds = begun.elapsed().as_secs() as usize + 2;
        assert!(count < 200.min(20 * seconds + 1), "{count} in {seconds} s");
        assert!((0..50).all(|_| logged(b"k")));
    }
}
