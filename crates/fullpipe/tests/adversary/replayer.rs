//! Somebody who sees what goes over the path, and sends it again.

use std::io::{ErrorKind, Read};
use std::net::UdpSocket;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

use crate::common::{Server, fullpipe_args, json_lines};

/// Port of the data streams, and of the datagrams beside them.
const DATA_PORT: u16 = 7500;
/// A file of so many bytes takes longer than the controller needs to begin.
const SIZE: usize = 300 << 20;

/// A datagram of IPv4 and UDP: source port, destination port, payload.
fn datagram(packet: &[u8]) -> Option<(u16, u16, &[u8])> {
    const UDP: u8 = 17;
    let header = usize::from(packet.first()? & 15) * 4;
    let udp = packet.get(header..).filter(|_| packet[9] == UDP)?;
    let port = |at: usize| Some(u16::from_be_bytes([*udp.get(at)?, *udp.get(at + 1)?]));
    Some((port(0)?, port(2)?, udp.get(8..)?))
}

/// Sends each datagram to the data port once more from a socket of its own, until it is over; gives how many, and how
/// many have come back.
fn replay(over: &AtomicBool) -> (usize, usize) {
    const IPV4: u16 = 0x0800;
    let protocol = Protocol::from(i32::from(IPV4.to_be()));
    let mut seen = Socket::new(Domain::PACKET, Type::DGRAM, Some(protocol)).unwrap();
    seen.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let replayer = UdpSocket::bind("127.0.0.2:0").unwrap();
    replayer.set_nonblocking(true).unwrap();
    let own = replayer.local_addr().unwrap().port();
    let (mut sent, mut back, mut packet) = (0, 0, vec![0; 70_000]);
    while !over.load(Ordering::SeqCst) {
        let n = match seen.read(&mut packet) {
            Err(e) if e.kind() == ErrorKind::WouldBlock => 0,
            n => n.unwrap(),
        };
        if let Some((from, DATA_PORT, payload)) = datagram(&packet[..n])
            && from != own
        {
            sent += usize::from(replayer.send_to(payload, ("127.0.0.1", DATA_PORT)).is_ok());
        }
        while replayer.recv(&mut [0; 2000]).is_ok() {
            back += 1;
        }
    }
    (sent, back)
}

/// In a network namespace of its own, since it looks at all packets.
fn alone<R: Send>(what: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| {
        let inside = scope.spawn(|| {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
            assert!(Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap().success());
            what()
        });
        inside.join().unwrap()
    })
}

#[test]
fn what_is_sent_again_moves_no_datagrams() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, vec![7; SIZE]).unwrap();
    std::fs::create_dir(dir.path().join("root")).unwrap();
    alone(|| {
        let root = dir.path().join("root").display().to_string();
        let server = Server::start(&format!("--root {root} --insecure --data-ports {DATA_PORT}"));
        let url = format!("fullpipe://{}/", server.address);
        let over = AtomicBool::new(false);
        let (copied, (sent, back)) = std::thread::scope(|scope| {
            let replayer = scope.spawn(|| replay(&over));
            let words = ["cp", "--insecure", "--no-encrypt", "--json", "-n", "2", "--buffer"];
            let done = fullpipe_args(&[&words[..], &["sobas", file.to_str().unwrap(), &url]].concat());
            over.store(true, Ordering::SeqCst);
            (json_lines(&done), replayer.join().unwrap())
        });
        assert!(copied.iter().any(|line| line["what"] == "began" && line["udp"] == true), "no datagrams");
        assert_eq!(copied.last().unwrap()["bytes"], SIZE);
        assert!(sent > 1, "{sent} datagrams to send again");
        assert_eq!(back, 0, "datagrams for the client went to the replayer; it had sent {sent}");
    });
}
