//! A relay of TCP connections between the command and its server: what is damaged here passes every
//! checksum of TCP.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// What is to be done to connections.
#[derive(Default)]
struct State {
    /// Bytes to flip: on the control connection or not, on the way back or not.
    flips: Vec<(bool, bool)>,
    held: bool,
    /// Both ends of each connection that is open, by number.
    open: BTreeMap<u64, [TcpStream; 2]>,
    /// Number of the next connection.
    next: u64,
}

/// A relay.
#[derive(Clone)]
pub struct Relay {
    state: Arc<(Mutex<State>, Condvar)>,
    seed: u64,
}

impl Relay {
    /// Relays these ports of this host to the same of another; the first is the control connections'.
    pub fn start(ports: std::ops::Range<u16>, to: [u8; 4], seed: u64) -> Relay {
        let relay = Relay { state: Arc::default(), seed };
        let control = ports.start;
        for port in ports {
            let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
            let relay = relay.clone();
            let work = move || {
                for near in listener.incoming().map_while(Result::ok) {
                    let relay = relay.clone();
                    std::thread::spawn(move || {
                        let far = TcpStream::connect_timeout(&SocketAddr::from((to, port)), Duration::from_secs(20));
                        // Without a far end the near one is let go.
                        if let Ok(far) = far {
                            relay.join(near, far, port == control);
                        }
                    });
                }
            };
            std::thread::Builder::new().stack_size(128 << 10).spawn(work).unwrap();
        }
        relay
    }

    fn join(&self, near: TcpStream, far: TcpStream, control: bool) {
        let number = {
            let mut state = self.state.0.lock().unwrap();
            let number = state.next;
            state.next += 1;
            state.open.insert(number, [near.try_clone().unwrap(), far.try_clone().unwrap()]);
            number
        };
        let forward = (near.try_clone().unwrap(), far.try_clone().unwrap());
        let relay = self.clone();
        let forward = std::thread::spawn(move || relay.pass(forward.0, forward.1, control, false));
        self.pass(far, near, control, true);
        forward.join().unwrap();
        // Strangers may call hundreds of times, and descriptors are few.
        self.state.0.lock().unwrap().open.remove(&number);
    }

    fn pass(&self, mut from: TcpStream, mut to: TcpStream, control: bool, back: bool) {
        let mut bytes = vec![0; 64 << 10];
        let mut rng = Pcg64::seed_from_u64(self.seed);
        loop {
            let n = match from.read(&mut bytes) {
                Ok(0) => {
                    let _ = to.shutdown(Shutdown::Write);
                    return;
                }
                Ok(n) => n,
                Err(_) => break,
            };
            let mut state = self.state.0.lock().unwrap();
            while state.held {
                state = self.state.1.wait(state).unwrap();
            }
            if let Some(at) = state.flips.iter().position(|flip| *flip == (control, back)) {
                state.flips.remove(at);
                bytes[rng.random_range(0..n)] ^= 1 << rng.random_range(0..8);
            }
            drop(state);
            if to.write_all(&bytes[..n]).is_err() {
                break;
            }
        }
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    }

    /// Flips a bit of what comes next on the control connection or on a stream.
    pub fn flip(&self, control: bool, back: bool) {
        self.state.0.lock().unwrap().flips.push((control, back));
    }

    /// Reads nothing any more, or again.
    pub fn hold(&self, held: bool) {
        self.state.0.lock().unwrap().held = held;
        self.state.1.notify_all();
    }

    /// Breaks every connection.
    pub fn reset(&self) {
        for socket in std::mem::take(&mut self.state.0.lock().unwrap().open).into_values().flatten() {
            let _ = socket2::SockRef::from(&socket).set_linger(Some(Duration::ZERO));
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}
