//! A connection as a stream of bytes, plain or encrypted.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};

use fullpipe_net::stream::tcp::TcpDataStream;
use fullpipe_net::stream::{DataStream, StreamHandle};
use fullpipe_net::tcp_info::TcpInfo;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection};

use super::records::{self, Handshake, Opener, Sealer};
use super::tls;
use crate::error::TransferError;

/// The protection of a stream: none, or TLS with this end's role and configuration.
#[derive(Clone)]
pub enum Protection {
    /// No encryption.
    None,
    /// TLS. This end is the client.
    Client(Arc<ClientConfig>),
    /// TLS. This end is the server.
    Server(Arc<ServerConfig>),
}

impl Protection {
    /// The protection of data streams to a far end called `peer`, whose certificate (DER) came over the control connection; it
    /// is empty if the streams are not encrypted.
    ///
    /// # Errors
    /// The streams are to be encrypted, and there is no certificate.
    pub(crate) fn of_data(peer: &str, encrypt: bool, certificate: &[u8]) -> Result<Protection, TransferError> {
        match (encrypt, certificate.is_empty()) {
            (true, false) => Ok(Protection::Client(tls::data_client(*blake3::hash(certificate).as_bytes())?)),
            (false, _) => Ok(Protection::None),
            (true, true) => {
                let why = "it offers no encryption; use --no-encrypt to copy without".to_owned();
                Err(TransferError::Trust { peer: peer.to_owned(), why })
            }
        }
    }

    /// Protects a stream, after a TLS handshake if it is to be encrypted.
    ///
    /// # Errors
    /// Those of the connection; `InvalidData` if the other end cannot prove its identity.
    pub fn wrap<S: DataStream>(&self, mut inner: S) -> io::Result<Stream<S>> {
        let mut connection: Connection = match self {
            Protection::None => return Ok(Stream::Plain(inner)),
            Protection::Client(config) => {
                let name = ServerName::try_from("fullpipe").map_err(io::Error::other)?;
                ClientConnection::new(config.clone(), name).map_err(io::Error::other)?.into()
            }
            Protection::Server(config) => ServerConnection::new(config.clone()).map_err(io::Error::other)?.into(),
        };
        let mut handshake = Handshake::new(&mut inner);
        while connection.is_handshaking() {
            connection.complete_io(&mut handshake)?;
        }
        while connection.wants_write() {
            connection.write_tls(&mut handshake)?;
        }
        handshake.flush()?;
        let records = records::begin(&connection).map_err(io::Error::other)?;
        if let Some((sealer, opener)) = records {
            return Ok(Stream::Records(Box::new(Records { sealer, opener, inner })));
        }
        Ok(Stream::Tls(Box::new(Tls { connection, inner, raw: vec![0; RAW], unread: 0..0 })))
    }
}

/// A connection, plain or encrypted. `S` carries its bytes: any transport for data, and TCP for control connections.
pub enum Stream<S = Box<dyn DataStream>> {
    /// Plain.
    Plain(S),
    /// Encrypted by TLS.
    Tls(Box<Tls<S>>),
    /// Encrypted in fullpipe's own records after a TLS handshake.
    Records(Box<Records<S>>),
}

/// A connection that is encrypted in fullpipe's own records.
pub struct Records<S> {
    sealer: Sealer,
    opener: Opener,
    inner: S,
}

impl<S: DataStream> Read for Records<S> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        self.opener.read(&mut self.inner, to)
    }
}

impl<S: DataStream> Write for Records<S> {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.sealer.write(&mut self.inner, from)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Size of the buffer that receives encrypted data, in bytes.
const RAW: usize = 128 << 10;

/// A connection that TLS encrypts.
pub struct Tls<S> {
    connection: Connection,
    inner: S,
    raw: Vec<u8>,
    /// Of `raw`, what rustls has not taken yet.
    unread: Range<usize>,
}

impl<S: DataStream> Tls<S> {
    /// Writes the records that rustls has made.
    fn send(&mut self) -> io::Result<()> {
        while self.connection.wants_write() {
            self.connection.write_tls(&mut self.inner)?;
        }
        Ok(())
    }
}

impl<S: DataStream> Read for Tls<S> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.connection.reader().read(to) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                other => return other,
            }
            if self.unread.is_empty() {
                let n = self.inner.read(&mut self.raw)?;
                if n == 0 {
                    return Ok(0);
                }
                self.unread = 0..n;
            }
            let mut rest = &self.raw[self.unread.clone()];
            let taken = self.connection.read_tls(&mut rest)?;
            self.unread.start += taken;
            self.connection.process_new_packets().map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
        }
    }
}

impl<S: DataStream> Write for Tls<S> {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        let n = self.connection.writer().write(from)?;
        self.send()?;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.send()?;
        self.inner.flush()
    }
}

/// The streams as other threads see them, to observe them and to set their options.
pub(crate) fn handles(streams: &[Stream]) -> Vec<Arc<dyn StreamHandle>> {
    streams.iter().map(Stream::handle).collect()
}

/// Reads a stream's TCP_INFO. Returns `None` if the stream is not TCP, or the kernel refuses.
pub(crate) fn tcp_info(stream: &dyn StreamHandle) -> Option<TcpInfo> {
    stream.observe().ok()?.tcp_info
}

/// Whether a stream has bytes on their way, or that wait for it. What ends a stream does not count: two packets, the end itself and
/// the connection's. At the end of a copy spare streams send only that, and would take shares of the rate from those that still move data.
pub(crate) fn is_busy(info: &TcpInfo) -> bool {
    let more_than = |field, n| info.get(field).is_some_and(|now| now > n);
    more_than("unacked", 2) || more_than("notsent_bytes", 0)
}

impl Stream<TcpDataStream> {
    /// Splits the stream into a half that reads and a half that writes, for two threads.
    ///
    /// # Errors
    /// The descriptor cannot be duplicated.
    pub fn split(self) -> io::Result<(Box<dyn Read + Send>, Box<dyn Write + Send>)> {
        match self {
            Stream::Plain(socket) => Ok((Box::new(socket.socket().try_clone()?), Box::new(socket))),
            Stream::Tls(stream) => {
                let Tls { connection, inner: socket, raw, unread } = *stream;
                let conn = Arc::new(Mutex::new(connection));
                let reader = TlsReader { conn: conn.clone(), sock: socket.socket().try_clone()?, raw, unread };
                Ok((Box::new(reader), Box::new(TlsWriter { conn, socket })))
            }
            Stream::Records(stream) => {
                let Records { sealer, opener, inner: socket } = *stream;
                let incoming = TcpDataStream::new(socket.socket().try_clone()?);
                Ok((Box::new(RecordsReader { opener, socket: incoming }), Box::new(RecordsWriter { sealer, socket })))
            }
        }
    }
}

impl<S: DataStream> Read for Stream<S> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.read(to),
            Stream::Tls(stream) => stream.read(to),
            Stream::Records(stream) => stream.read(to),
        }
    }
}

impl<S: DataStream> Write for Stream<S> {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.write(from),
            Stream::Tls(stream) => stream.write(from),
            Stream::Records(stream) => stream.write(from),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Plain(stream) => stream.flush(),
            Stream::Tls(stream) => stream.flush(),
            Stream::Records(stream) => stream.flush(),
        }
    }
}

impl<S: DataStream> DataStream for Stream<S> {
    fn handle(&self) -> Arc<dyn StreamHandle> {
        match self {
            Stream::Plain(stream) => stream.handle(),
            Stream::Tls(stream) => stream.inner.handle(),
            Stream::Records(stream) => stream.inner.handle(),
        }
    }

    fn read_full(&mut self, to: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.read_full(to),
            // What has come is decrypted first.
            Stream::Tls(stream) => stream.read(to),
            Stream::Records(stream) => stream.opener.read_full(&mut stream.inner, to),
        }
    }

    fn sends_files(&self) -> bool {
        matches!(self, Stream::Plain(stream) if stream.sends_files())
    }

    fn send_file(&mut self, file: BorrowedFd<'_>, offset: u64, most: usize) -> io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.send_file(file, offset, most),
            Stream::Tls(_) | Stream::Records(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Ends the sending direction, with the end mark of the stream's encryption if there is one.
    fn finish(&mut self) -> io::Result<()> {
        match self {
            Stream::Plain(stream) => stream.finish(),
            Stream::Tls(stream) => {
                stream.connection.send_close_notify();
                stream.send()?;
                stream.inner.finish()
            }
            Stream::Records(stream) => {
                stream.sealer.end(&mut stream.inner)?;
                stream.inner.finish()
            }
        }
    }
}

/// The half of [`Tls`] that reads.
struct TlsReader {
    /// Guards the TLS state that both halves share. Neither half holds the lock while it waits for the socket, so each can
    /// proceed without the other.
    conn: Arc<Mutex<Connection>>,
    sock: TcpStream,
    raw: Vec<u8>,
    /// Of `raw`, what rustls has not taken yet.
    unread: Range<usize>,
}

fn poisoned<T>(_: T) -> io::Error {
    io::Error::other("another thread of this connection failed")
}

impl Read for TlsReader {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        loop {
            // rustls accepts no more data until its decrypted data has been read.
            match self.conn.lock().map_err(poisoned)?.reader().read(to) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                other => return other,
            }
            if self.unread.is_empty() {
                self.unread = 0..self.sock.read(&mut self.raw)?;
            }
            let mut conn = self.conn.lock().map_err(poisoned)?;
            if self.unread.is_empty() {
                conn.read_tls(&mut io::empty())?;
                return Ok(0);
            }
            self.unread.start += conn.read_tls(&mut &self.raw[self.unread.clone()])?;
            conn.process_new_packets().map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
        }
    }
}

/// The half of [`Tls`] that writes.
struct TlsWriter {
    /// Guards the TLS state that both halves share ([`TlsReader`]).
    conn: Arc<Mutex<Connection>>,
    socket: TcpDataStream,
}

impl Write for TlsWriter {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        let mut wire = Vec::new();
        let n = {
            let mut conn = self.conn.lock().map_err(poisoned)?;
            let n = conn.writer().write(from)?;
            while conn.wants_write() {
                conn.write_tls(&mut wire)?;
            }
            n
        };
        self.socket.write_all(&wire)?;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The half of [`Records`] that reads.
struct RecordsReader {
    opener: Opener,
    socket: TcpDataStream,
}

impl Read for RecordsReader {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        self.opener.read(&mut self.socket, to)
    }
}

/// The half of [`Records`] that writes.
struct RecordsWriter {
    sealer: Sealer,
    socket: TcpDataStream,
}

impl Write for RecordsWriter {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.sealer.write(&mut self.socket, from)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::connection::tls::{Fingerprint, Identity, client, data_client};

    type TcpLine = Stream<TcpDataStream>;

    fn pair(guard: impl FnOnce(&Identity) -> Protection) -> (io::Result<TcpLine>, io::Result<TcpLine>) {
        let identity = Identity::new().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let called = Protection::Server(identity.server().unwrap());
        let server = std::thread::spawn(move || called.wrap(TcpDataStream::new(listener.accept().unwrap().0)));
        let client = guard(&identity).wrap(TcpDataStream::new(TcpStream::connect(address).unwrap()));
        (client, server.join().unwrap())
    }

    #[test]
    fn what_ends_a_stream_is_no_work() {
        let busy = |unacked: u8, notsent: u8| {
            let mut info = [0; 248];
            (info[24], info[144]) = (unacked, notsent);
            is_busy(&TcpInfo::from_bytes(&info))
        };
        assert_eq!([(0, 0), (2, 0), (3, 0), (0, 1)].map(|(way, waits)| busy(way, waits)), [false, false, true, true]);
    }

    /// The same for messages, in TLS's records, and for data, in records of their own where the processor is for it.
    fn pairs() -> Vec<(TcpLine, TcpLine)> {
        let ends = [client as fn(Fingerprint) -> _, data_client].map(|client| {
            let (ours, theirs) = pair(|identity| Protection::Client(client(identity.fingerprint()).unwrap()));
            (ours.unwrap(), theirs.unwrap())
        });
        for (ours, theirs) in &ends {
            assert_eq!(matches!(ours, Stream::Records(_)), matches!(theirs, Stream::Records(_)));
        }
        assert!(matches!(ends[0].0, Stream::Tls(_)));
        assert_eq!(matches!(ends[1].0, Stream::Records(_)), !records::protocols().is_empty());
        ends.into()
    }

    #[test]
    fn both_halves_at_once() {
        for (ours, theirs) in pairs() {
            let (mut our_in, mut our_out) = ours.split().unwrap();
            let (mut their_in, mut their_out) = theirs.split().unwrap();
            // Both write more than a socket holds before either reads, unless reading goes on meanwhile.
            let data = vec![7; 20 << 20];
            std::thread::scope(|s| {
                s.spawn(|| our_out.write_all(&data).unwrap());
                s.spawn(|| their_out.write_all(&data).unwrap());
                let read = |from: &mut (dyn Read + Send)| {
                    let mut got = vec![0; data.len()];
                    from.read_exact(&mut got).unwrap();
                    assert!(got == data);
                };
                s.spawn(move || read(&mut *our_in));
                read(&mut *their_in);
            });
        }
    }

    #[test]
    fn records_of_any_length() {
        for (mut ours, mut theirs) in pairs() {
            // Full ones and short ones in one read of the socket.
            let parts = [16 << 10, 20_000, 100, 1, 40_000, 16 << 10, 3];
            let data: Vec<u8> = (0..parts.iter().sum::<usize>() * 20).map(|i| i as u8).collect();
            std::thread::scope(|s| {
                s.spawn(|| {
                    let mut rest = &data[..];
                    for part in parts.iter().cycle().take(parts.len() * 20) {
                        ours.write_all(&rest[..*part]).unwrap();
                        rest = &rest[*part..];
                    }
                    ours.finish().unwrap();
                });
                let mut got = vec![0; data.len()];
                std::thread::sleep(std::time::Duration::from_millis(100));
                got.chunks_mut(777).for_each(|part| theirs.read_exact(part).unwrap());
                assert!(got == data);
                assert_eq!(theirs.read(&mut got).unwrap(), 0);
            });
        }
    }

    #[test]
    fn another_certificate_is_not_trusted() {
        let (ours, _) = pair(|_| Protection::Client(client([0; 32]).unwrap()));
        assert_eq!(ours.err().unwrap().kind(), io::ErrorKind::InvalidData);
    }
}
