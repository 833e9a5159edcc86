//! The UDP socket beside the streams: datagrams with the kernel's receive timestamps, and packet trains.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::time::{SystemTime, UNIX_EPOCH};

use fullpipe_net::sys;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt, sockopt};
use nix::sys::time::TimeSpec;

use super::datagram::{Datagram, HEAD, Keys};

/// Most bytes that one call with UDP_SEGMENT sends: one IP datagram (net/ipv4/udp.c).
const MAX_SEGMENTED_BYTES: usize = 65_000;
/// Most datagrams that one call with UDP_SEGMENT sends (`UDP_MAX_SEGMENTS`, include/linux/udp.h; 128 since Linux 6.9).
const MAX_SEGMENTS: usize = 64;
/// Time between two groups of a spread train, nanoseconds.
const GROUP_NS: u64 = 25_000;
/// Least number of groups of a spread train, even if they are then closer together. A group has at least one packet.
const MIN_GROUPS: u64 = 8;
/// Bytes of IPv4 and UDP headers. IPv6's header is 20 bytes longer.
const HEADER_BYTES: usize = 28;

/// A datagram that has arrived.
pub(super) struct ReceivedDatagram {
    /// The content.
    pub datagram: Datagram,
    /// When the kernel received it, by `CLOCK_REALTIME`, nanoseconds.
    pub stamp_ns: u64,
    /// How long it waited in the socket, nanoseconds.
    pub waited_ns: u64,
}

/// The socket, and the other end's address as far as it is known.
pub(crate) struct Udp {
    socket: UdpSocket,
    /// Where datagrams are sent. Once known, it does not change, wherever further datagrams come from.
    peer: Option<SocketAddr>,
    /// The only host whose datagrams are read as long as `peer` is not known: the one at the other end of the streams.
    host: Option<IpAddr>,
    keys: Keys,
    buffer: Vec<u8>,
}

fn real_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64)
}

impl Udp {
    /// Opens a socket that timestamps what it receives.
    pub fn bind(at: IpAddr, port: u16) -> io::Result<UdpSocket> {
        let socket = UdpSocket::bind(SocketAddr::new(at, port))?;
        socket.set_nonblocking(true)?;
        // Without timestamps, the time of the read serves.
        let _ = setsockopt(&socket, sockopt::ReceiveTimestampns, &true);
        // A train of 1,024 packets of 9,000 bytes must fit.
        let _ = socket2::SockRef::from(&socket).set_recv_buffer_size(16 << 20);
        let _ = socket2::SockRef::from(&socket).set_send_buffer_size(4 << 20);
        Ok(socket)
    }

    /// Takes a socket, and the peer's address if it is known. Without one, all datagrams are dropped until
    /// [`Udp::hear_only`] is called.
    pub(super) fn new(socket: UdpSocket, peer: Option<SocketAddr>, keys: Keys) -> Udp {
        Udp { socket, peer, host: None, keys, buffer: vec![0; 65_536] }
    }

    /// Accepts datagrams of this host only. The port of its first authentic datagram becomes the peer's.
    pub(crate) fn hear_only(&mut self, host: IpAddr) {
        self.host = Some(host.to_canonical());
    }

    /// Whether it is known where to send to.
    pub(super) fn knows_peer(&self) -> bool {
        self.peer.is_some()
    }

    /// Waits until a datagram has arrived, at most `ns` nanoseconds.
    pub fn wait(&self, ns: u64) {
        // The next receive reports the error too. The sleep limits how often.
        if sys::wait_readable([self.socket.as_fd()], ns).is_err() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    /// The next datagram of the other end, if one has arrived.
    pub(super) fn next(&mut self) -> Option<ReceivedDatagram> {
        // Other datagrams are dropped; the limit lets this end even if they never stop.
        for _ in 0..4096 {
            let mut space = nix::cmsg_space!(TimeSpec);
            let mut pieces = [IoSliceMut::new(&mut self.buffer)];
            let flags = MsgFlags::MSG_DONTWAIT;
            let got = match recvmsg::<SockaddrStorage>(self.socket.as_raw_fd(), &mut pieces, Some(&mut space), flags) {
                Ok(got) => got,
                // ECONNREFUSED answers an earlier datagram that this end sent.
                Err(nix::errno::Errno::ECONNREFUSED | nix::errno::Errno::EINTR) => continue,
                Err(_) => return None,
            };
            let now = real_ns();
            let stamp = got.cmsgs().ok().and_then(|mut all| {
                all.find_map(|c| match c {
                    ControlMessageOwned::ScmTimestampns(t) => {
                        Some(t.tv_sec() as u64 * 1_000_000_000 + t.tv_nsec() as u64)
                    }
                    _ => None,
                })
            });
            let from = got.address.as_ref().and_then(address);
            let len = got.bytes;
            let Some(from) = from.filter(|from| self.may_come(*from)) else { continue };
            let Some(datagram) = self.keys.open(&self.buffer[..len]) else { continue };
            self.peer.get_or_insert(from);
            let stamp_ns = stamp.unwrap_or(now);
            return Some(ReceivedDatagram { datagram, stamp_ns, waited_ns: now.saturating_sub(stamp_ns) });
        }
        None
    }

    /// Whether a datagram from an address is read. A server with several addresses may answer from another one than the
    /// client called. So if the peer was known from the start, only a datagram's hash and number decide.
    fn may_come(&self, from: SocketAddr) -> bool {
        match self.host {
            Some(host) => from.ip().to_canonical() == host,
            None => self.peer.is_some(),
        }
    }

    /// Bytes of IP and UDP headers.
    fn headers(&self) -> usize {
        let old = self.peer.is_none_or(|peer| peer.ip().to_canonical().is_ipv4());
        HEADER_BYTES + if old { 0 } else { 20 }
    }

    /// Sends a datagram in an IP packet of `packet` bytes. One that cannot be sent counts as lost on the way.
    pub(super) fn send(&self, datagram: &Datagram, packet: u32) {
        let Some(peer) = self.peer else { return };
        let bytes = self.keys.seal(datagram, (packet as usize).saturating_sub(self.headers()));
        let _ = self.socket.send_to(&bytes, peer);
    }

    /// Sends packets evenly over `over_ns`. Returns how many were sent, and the time from the first to the last if each had
    /// left alone. They leave in groups, because threads cannot sleep more exactly than that.
    pub fn spread(&self, id: u32, packets: u16, packet: u32, over_ns: u64) -> (u16, u64) {
        let groups = (over_ns / GROUP_NS).max(MIN_GROUPS).min(u64::from(packets.max(1))) as u16;
        let each = packets.div_ceil(groups).max(1);
        let Some(mut train) = self.make(id, packets, packet) else { return (0, 0) };
        let begin = sys::now_ns();
        let (mut sent, mut last, mut last_group) = (0u16, begin, 0);
        while sent < packets {
            sys::sleep_until(begin + over_ns * u64::from(sent) / u64::from(packets.max(1)));
            last = sys::now_ns();
            last_group = self.depart(&mut train, each.min(packets - sent)).0;
            if last_group == 0 {
                break;
            }
            sent += last_group;
        }
        // Counts every packet of the last group with the average time of the packets before.
        let before = sent.saturating_sub(last_group);
        let span = last.saturating_sub(begin);
        if before == 0 { (sent, 0) } else { (sent, span * u64::from(sent - 1) / u64::from(before)) }
    }

    /// Sends packets back to back. Returns how many were sent and how long it took.
    pub fn train(&self, id: u32, packets: u16, packet: u32) -> (u16, u64) {
        self.make(id, packets, packet).map_or((0, 0), |mut train| self.depart(&mut train, packets))
    }

    /// Prepares a train, so that little work is left between its packets.
    fn make(&self, id: u32, packets: u16, packet: u32) -> Option<Train> {
        let peer = self.peer?;
        let mut one = self.keys.seal(&Datagram::Packet { id }, (packet as usize).saturating_sub(self.headers()));
        let heads = (0..packets).map(|_| {
            self.keys.number(&mut one);
            let mut head = [0; HEAD];
            head.copy_from_slice(&one[..HEAD]);
            head
        });
        let heads: Vec<_> = heads.collect();
        let at_once = (MAX_SEGMENTED_BYTES / one.len()).clamp(1, MAX_SEGMENTS).min(usize::from(packets.max(1)));
        Some(Train { peer, packets: one.repeat(at_once), one: one.len(), heads, sent: 0 })
    }

    /// Sends the next `packets` packets of a train back to back. Returns how many were sent and how long it took.
    fn depart(&self, train: &mut Train, packets: u16) -> (u16, u64) {
        let segment =
            |size: usize| sys::set_int_option(self.socket.as_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, size as i32);
        let at_once = train.packets.len() / train.one;
        let cut = at_once > 1 && segment(train.one).is_ok();
        let begin = sys::now_ns();
        let (mut sent, mut rest) = (0, usize::from(packets));
        while rest > 0 {
            let now = if cut { at_once.min(rest) } else { 1 };
            // A full buffer ends the train: later packets would not be back to back.
            let to = train.peer;
            if self.socket.send_to(train.next(now), to).is_err() {
                break;
            }
            sent += now as u16;
            rest -= now;
        }
        let span = sys::now_ns().saturating_sub(begin);
        if cut {
            let _ = segment(0);
        }
        (sent, span)
    }
}

/// A packet train: packets of one size whose heads differ.
struct Train {
    peer: SocketAddr,
    /// Memory for the packets of one call.
    packets: Vec<u8>,
    /// Bytes of one packet.
    one: usize,
    /// The heads of all packets.
    heads: Vec<[u8; HEAD]>,
    /// Number of packets that were sent.
    sent: usize,
}

impl Train {
    /// The bytes of the next packets, at most as many as one call sends.
    fn next(&mut self, packets: usize) -> &[u8] {
        let heads = self.heads.get(self.sent..).unwrap_or_default();
        for (packet, head) in self.packets.chunks_exact_mut(self.one).zip(heads).take(packets) {
            packet[..HEAD].copy_from_slice(head);
        }
        self.sent += packets;
        &self.packets[..packets * self.one]
    }
}

fn address(from: &SockaddrStorage) -> Option<SocketAddr> {
    if let Some(v4) = from.as_sockaddr_in() {
        return Some(SocketAddr::V4((*v4).into()));
    }
    from.as_sockaddr_in6().map(|v6| SocketAddr::V6((*v6).into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Udp, Udp) {
        let here = IpAddr::from([127, 0, 0, 1]);
        let far = Udp::bind(here, 0).unwrap();
        let at = far.local_addr().unwrap();
        let client = Udp::new(Udp::bind(here, 0).unwrap(), Some(at), Keys::new(&[1; 32], true));
        let mut far = Udp::new(far, None, Keys::new(&[1; 32], false));
        far.hear_only(here);
        (client, far)
    }

    #[test]
    fn a_train_comes_whole_and_stamped() {
        let (mut client, mut far) = pair();
        client.send(&Datagram::Hello { mss: 0, packet: 0 }, 100);
        far.wait(1_000_000_000);
        assert_eq!(far.next().unwrap().datagram, Datagram::Hello { mss: 0, packet: 0 });
        for (packets, packet) in [(32, 1500), (100, 9000), (3, 100)] {
            assert_eq!(far.train(5, packets, packet).0, packets);
            let mut stamps = Vec::new();
            while stamps.len() < usize::from(packets) {
                client.wait(1_000_000_000);
                let came = client.next().unwrap();
                assert_eq!(came.datagram, Datagram::Packet { id: 5 });
                assert!(came.waited_ns < 10_000_000_000);
                stamps.push(came.stamp_ns);
            }
            assert!(client.next().is_none());
            assert!(stamps.is_sorted());
        }
    }

    #[test]
    fn strangers_are_not_heard() {
        let (mut client, mut far) = pair();
        let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
        let at = far.socket.local_addr().unwrap();
        for bytes in [&b""[..], b"hello", &[0; 1400]] {
            stranger.send_to(bytes, at).unwrap();
        }
        client.send(&Datagram::Packet { id: 1 }, 100);
        far.wait(1_000_000_000);
        let mut heard = 0;
        for _ in 0..10 {
            heard += usize::from(far.next().is_some());
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert_eq!(heard, 1);
        assert!(client.next().is_none());
    }

    /// Whoever sees a datagram on the path can send it again, from wherever it likes.
    #[test]
    fn a_replayer_is_not_heard_and_hears_nothing() {
        let (client, mut far) = pair();
        let at = far.socket.local_addr().unwrap();
        let datagrams: Vec<_> = (0..3).map(|n| client.keys.seal(&Datagram::Probe { n, sent_ns: 1 }, 72)).collect();
        let all = |far: &mut Udp| {
            far.wait(100_000_000);
            std::iter::from_fn(|| far.next()).map(|came| came.datagram).collect::<Vec<_>>()
        };
        // From another host first, before the client's own.
        let elsewhere = UdpSocket::bind("127.0.0.2:0").unwrap();
        elsewhere.send_to(&datagrams[0], at).unwrap();
        assert!(all(&mut far).is_empty() && far.peer.is_none());
        for datagram in &datagrams {
            client.socket.send_to(datagram, at).unwrap();
        }
        assert_eq!(all(&mut far).len(), 3);
        // From the host's other port: the same datagrams, and one that has not come yet.
        let replayer = UdpSocket::bind("127.0.0.1:0").unwrap();
        for datagram in &datagrams {
            replayer.send_to(datagram, at).unwrap();
        }
        assert!(all(&mut far).is_empty(), "replayed");
        replayer.send_to(&client.keys.seal(&Datagram::Probe { n: 3, sent_ns: 1 }, 72), at).unwrap();
        assert_eq!(all(&mut far).len(), 1);
        far.send(&Datagram::Packet { id: 1 }, 100);
        far.train(2, 3, 100);
        replayer.set_read_timeout(Some(std::time::Duration::from_millis(100))).unwrap();
        assert!(replayer.recv(&mut [0; 100]).is_err(), "an answer went to the replayer");
        let mut client = client;
        assert_eq!(all(&mut client).len(), 4, "answers go where the first datagram came from");
    }
}
