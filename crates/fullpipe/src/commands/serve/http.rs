//! Answers HTTP/1.1 requests that only read: GET and HEAD, one for each connection (RFC 9110, RFC 9112).
//!
//! A client has a few seconds and a few kilobytes, and there are few connections at once, so none of them can disturb the server.
//! When there are too many, the oldest one from the most crowded network is closed, not the newcomer.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fullpipe_net::callers::{Crowd, Network};
use serde_json::{Value, json};

/// Longest request, bytes.
const MAX_REQUEST: usize = 8 << 10;
/// Most fields in the header of a request.
const MAX_FIELDS: usize = 64;
/// Time in which a request must have come, and in which its answer must have gone.
const PATIENCE: Duration = Duration::from_secs(5);
/// Most connections at once.
const MAX_CONNECTIONS: usize = 16;
/// Most connections at once from one [`Network`]. This host itself may have more: a proxy may ask for many.
const MAX_CONNECTIONS_PER_NETWORK: usize = 4;
/// Most threads at once. Those of connections that were closed need a moment to end.
const MAX_THREADS: usize = 64;

/// What a client asks for.
pub struct Asked {
    /// Path, as it came.
    pub path: String,
    /// Names and values of the query, decoded, in their order.
    pub query: Vec<(String, String)>,
    /// Token of an `Authorization: Bearer` (RFC 6750).
    pub bearer: Option<String>,
    /// Address of the client.
    pub from: IpAddr,
}

/// A page: its media type and its text.
pub struct Page {
    /// Media type.
    pub media: &'static str,
    /// Content.
    pub text: String,
}

/// Why there is no page.
pub enum Problem {
    /// The request is wrong, and how.
    Wrong(String),
    /// It lacks a valid token.
    Unauthorized,
    /// There is no such page.
    Missing,
    /// A problem with a type of its own (RFC 9457, section 3.1.1).
    Typed {
        /// Status, as in the first line of the answer.
        status: &'static str,
        /// URI reference of the type: a full path.
        kind: &'static str,
        /// Name of the type, for people.
        title: &'static str,
        /// What happened this time, for people.
        detail: String,
        /// Further members, for programs.
        more: Vec<(&'static str, String)>,
    },
    /// Only GET and HEAD are answered.
    Method,
    /// Too many requests came, for this reason; a second later, one more may come.
    TooMany(String),
    /// This server lacks something.
    Internal(String),
}

/// Answers a request.
pub type Pages = Arc<dyn Fn(&Asked) -> Result<Page, Problem> + Send + Sync>;

impl Problem {
    /// Status, a field that goes with it, and the problem details.
    fn parts(self) -> (&'static str, &'static str, Value) {
        let (status, field, detail) = match self {
            Problem::Typed { status, kind, title, detail, more } => {
                let mut details = json!({"type": kind, "title": title, "status": code(status), "detail": detail});
                more.into_iter().for_each(|(name, value)| details[name] = value.into());
                return (status, "", details);
            }
            Problem::Wrong(why) => ("400 Bad Request", "", why),
            Problem::Unauthorized => (
                "401 Unauthorized",
                "WWW-Authenticate: Bearer\r\n",
                "give this server's token, as Authorization: Bearer TOKEN".to_owned(),
            ),
            Problem::Missing => ("404 Not Found", "", "there is no such page".to_owned()),
            Problem::Method => {
                ("405 Method Not Allowed", "Allow: GET, HEAD\r\n", "everything here can only be read".to_owned())
            }
            Problem::TooMany(why) => ("429 Too Many Requests", "Retry-After: 1\r\n", why),
            Problem::Internal(why) => ("500 Internal Server Error", "", why),
        };
        let title = status.split_once(' ').map_or("", |(_, title)| title);
        (status, field, json!({"title": title, "status": code(status), "detail": detail}))
    }
}

/// The code of a status.
fn code(status: &str) -> Option<u16> {
    status.split(' ').next().and_then(|code| code.parse().ok())
}

/// An address to listen on: ADDRESS:PORT, or a port, which is that of 127.0.0.1.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    let port = text.parse().map(|port: u16| SocketAddr::from(([127, 0, 0, 1], port)));
    port.or_else(|_| text.parse())
        .map_err(|_| "give a port, or an address of this host with a port, such as 192.0.2.1:9412".into())
}

/// Answers requests at an address until the process ends; returns the address.
///
/// # Errors
/// The address is in use, or not this host's; this user may not use the port; there is no thread.
pub fn listen(address: SocketAddr, pages: Pages) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(address)?;
    let address = listener.local_addr()?;
    let (connections, threads) = (Arc::<Mutex<Connections>>::default(), Arc::<AtomicUsize>::default());
    let accept = move || {
        loop {
            let accepted = listener.accept().and_then(|(stream, from)| Ok((stream.try_clone()?, stream, from)));
            let Ok((socket, stream, from)) = accepted else {
                // Descriptors may be lacking for a while.
                std::thread::sleep(Duration::from_millis(100));
                continue;
            };
            if threads.fetch_add(1, Ordering::Relaxed) >= MAX_THREADS {
                threads.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
            let number = lock(&connections).enter(from.ip(), socket);
            let (pages, present, running) = (pages.clone(), connections.clone(), threads.clone());
            let answer = move || {
                let _ = answer(stream, &pages);
                lock(&present).leave(number);
                running.fetch_sub(1, Ordering::Relaxed);
            };
            if std::thread::Builder::new().stack_size(256 << 10).spawn(answer).is_err() {
                lock(&connections).leave(number);
                threads.fetch_sub(1, Ordering::Relaxed);
            }
        }
    };
    std::thread::Builder::new().name("http".into()).stack_size(256 << 10).spawn(accept)?;
    Ok(address)
}

/// The open connections.
#[derive(Default)]
struct Connections {
    crowd: Crowd,
    sockets: BTreeMap<u64, (Network, TcpStream)>,
    last: u64,
}

impl Connections {
    /// Takes a connection in, and closes another one if there are too many. Returns its number.
    fn enter(&mut self, from: IpAddr, socket: TcpStream) -> u64 {
        self.last += 1;
        let (number, network) = (self.last, Network::from(from));
        self.crowd.insert(number, network);
        self.sockets.insert(number, (network, socket));
        let is_crowded = self.crowd.members_from(network) > MAX_CONNECTIONS_PER_NETWORK;
        let victim = if is_crowded && !from.to_canonical().is_loopback() {
            self.crowd.oldest_from(network)
        } else if self.crowd.len() > MAX_CONNECTIONS {
            self.crowd.victim(|_| false)
        } else {
            None
        };
        if let Some(socket) = victim.and_then(|victim| self.leave(victim)) {
            // The thread that waits for its request ends.
            let _ = socket.shutdown(Shutdown::Both);
        }
        number
    }

    /// Forgets a connection, and returns it if it was there.
    fn leave(&mut self, number: u64) -> Option<TcpStream> {
        let (network, socket) = self.sockets.remove(&number)?;
        self.crowd.remove(number, network);
        Some(socket)
    }
}

/// Takes the lock, which is held only to change the connections.
fn lock(connections: &Mutex<Connections>) -> MutexGuard<'_, Connections> {
    connections.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Answers the request of one connection. Problems are told as RFC 9457 says.
fn answer(mut stream: TcpStream, pages: &Pages) -> io::Result<()> {
    let request = request(&mut stream)?;
    let answer = match &request {
        None => Err(Problem::Wrong("this is no HTTP request that is understood here".to_owned())),
        Some((method, _)) if method != "GET" && method != "HEAD" => Err(Problem::Method),
        Some((_, asked)) => pages(asked),
    };
    let (status, field, page) = match answer {
        Ok(page) => ("200 OK", "", page),
        Err(problem) => {
            let (status, field, details) = problem.parts();
            (status, field, Page { media: "application/problem+json", text: details.to_string() })
        }
    };
    let mut whole = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{field}Cache-Control: no-store\r\n\
         Connection: close\r\n\r\n",
        page.media,
        page.text.len()
    );
    if request.is_none_or(|(method, _)| method != "HEAD") {
        whole.push_str(&page.text);
    }
    send(&mut stream, whole.as_bytes())
}

/// Sends an answer, all of it in time: a client that takes it in sips would keep its place.
fn send(stream: &mut TcpStream, mut rest: &[u8]) -> io::Result<()> {
    let until = Instant::now() + PATIENCE;
    while !rest.is_empty() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_write_timeout(Some(left))?;
        match stream.write(rest)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            sent => rest = &rest[sent..],
        }
    }
    Ok(())
}

/// Receives a request; returns its method, and what it asks for. `None` if what came is no request.
///
/// # Errors
/// The client is gone, or too slow.
fn request(stream: &mut TcpStream) -> io::Result<Option<(String, Asked)>> {
    let until = Instant::now() + PATIENCE;
    let from = stream.peer_addr()?.ip();
    let (mut bytes, mut part) = (Vec::new(), [0; 1024]);
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        let n = stream.read(&mut part)?;
        if n == 0 {
            return Ok(None);
        }
        bytes.extend_from_slice(&part[..n]);
        let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
        let mut request = httparse::Request::new(&mut fields);
        match request.parse(&bytes) {
            Ok(httparse::Status::Complete(_)) => {
                let (Some(method), Some(target)) = (request.method, request.path) else { return Ok(None) };
                let (path, query) = target.split_once('?').unwrap_or((target, ""));
                let query = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
                let mut named = request.headers.iter().filter(|field| field.name.eq_ignore_ascii_case("authorization"));
                let value = named.next().and_then(|field| std::str::from_utf8(field.value).ok());
                let bearer = value.and_then(|value| value.split_once(' '));
                let bearer = bearer.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
                let bearer = bearer.map(|(_, token)| token.trim().to_owned());
                return Ok(Some((method.to_owned(), Asked { path: path.to_owned(), query, bearer, from })));
            }
            Ok(httparse::Status::Partial) if bytes.len() < MAX_REQUEST => {}
            _ => return Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends what a client says, and returns all that comes back.
    fn ask(server: SocketAddr, says: &[u8]) -> String {
        let mut stream = TcpStream::connect(server).unwrap();
        stream.write_all(says).unwrap();
        let mut said = String::new();
        let _ = stream.read_to_string(&mut said);
        said
    }

    #[test]
    fn only_what_is_there_is_read() {
        let pages: Pages = Arc::new(|asked| match asked.path.as_str() {
            "/x" => Ok(Page { media: "text/plain", text: format!("{:?} {:?}", asked.query, asked.bearer) }),
            _ => Err(Problem::Missing),
        });
        let server = listen(([127, 0, 0, 1], 0).into(), pages).unwrap();
        let found = ask(server, b"GET /x?y=1%25&z HTTP/1.1\r\nauthorization: bearer t\r\n\r\n");
        let text = "[(\"y\", \"1%\"), (\"z\", \"\")] Some(\"t\")";
        assert!(found.starts_with("HTTP/1.1 200 OK\r\n") && found.ends_with(&format!("\r\n\r\n{text}")), "{found}");
        let head = ask(server, b"HEAD /x HTTP/1.1\r\nHost: h\r\n\r\n");
        assert!(head.contains("Content-Length: 7\r\n") && head.ends_with("\r\n\r\n"), "{head}");
        for (says, status) in [
            ("GET /y HTTP/1.1\r\n\r\n", "404"),
            ("POST /x HTTP/1.1\r\n\r\n", "405"),
            ("nonsense\r\n\r\n", "400"),
            ("GET /x SSH-2.0\r\n\r\n", "400"),
        ] {
            let said = ask(server, says.as_bytes());
            assert!(said.starts_with(&format!("HTTP/1.1 {status} ")), "{says}: {said}");
        }
        let long = [b"GET /x HTTP/1.1\r\nA: ".as_slice(), &[b'a'; MAX_REQUEST]].concat();
        let said = ask(server, &long);
        assert!(said.is_empty() || said.starts_with("HTTP/1.1 400 "), "{said}");
    }

    #[test]
    fn silent_connections_lock_nobody_out() {
        let pages: Pages = Arc::new(|_| Ok(Page { media: "text/plain", text: "hello".into() }));
        let server = listen(([127, 0, 0, 1], 0).into(), pages).unwrap();
        let mut silent: Vec<_> = (0..MAX_CONNECTIONS + 4).map(|_| TcpStream::connect(server).unwrap()).collect();
        assert!(ask(server, b"GET / HTTP/1.1\r\n\r\n").ends_with("hello"));
        // The first had to make room.
        let begun = Instant::now();
        let mut said = Vec::new();
        let _ = silent[0].read_to_end(&mut said);
        assert!(begun.elapsed() < PATIENCE - Duration::from_secs(1), "{:?}", begun.elapsed());
    }

    #[test]
    fn a_network_has_few_connections() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = || TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut all = Connections::default();
        let mut enter = |text: &str| all.enter(text.parse().unwrap(), socket());
        let other = enter("192.0.2.1");
        let numbers: Vec<u64> = (0..5).map(|n| enter(&format!("2001:db8::{n}"))).collect();
        let own: Vec<u64> = (0..8).map(|_| enter("127.0.0.1")).collect();
        let is_open = |all: &Connections, number: u64| all.sockets.contains_key(&number);
        assert!(!is_open(&all, numbers[0]) && numbers[1..].iter().all(|number| is_open(&all, *number)));
        assert!(is_open(&all, other) && own.iter().all(|number| is_open(&all, *number)));
        // All places are taken now, most of them by this host.
        for n in 2..10 {
            all.enter(format!("192.0.2.{n}").parse().unwrap(), socket());
        }
        assert!(is_open(&all, other) && !is_open(&all, own[0]) && is_open(&all, own[7]));
        assert_eq!((all.crowd.len(), all.sockets.len()), (MAX_CONNECTIONS, MAX_CONNECTIONS));
    }

    #[test]
    fn a_port_alone_is_for_this_host_alone() {
        assert_eq!(address("9412"), Ok(([127, 0, 0, 1], 9412).into()));
        assert_eq!(address("[::]:9412").map(|address| address.port()), Ok(9412));
        for text in ["", "host:1", "192.0.2.1", "70000"] {
            assert!(address(text).is_err(), "{text}");
        }
    }
}
