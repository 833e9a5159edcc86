//! A block device of the guest's kernel with a volatile write cache, served by this program (NBD, network block
//! device): it records each write and flush, from which what a loss of power at any instant leaves is made.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::libc;

use crate::image::{BLOCK, Image, Kept, Request, after_loss};

/// Bytes of a device: XFS wants at least 300 MB.
pub const SIZE: u64 = 512 << 20;
/// Requests of ioctl(2) to the kernel's side (`linux/nbd.h`).
mod ioctl {
    pub const SET_SOCK: u64 = 0xab00;
    pub const SET_BLKSIZE: u64 = 0xab01;
    pub const DO_IT: u64 = 0xab03;
    pub const CLEAR_SOCK: u64 = 0xab04;
    pub const SET_SIZE_BLOCKS: u64 = 0xab07;
    pub const DISCONNECT: u64 = 0xab08;
    pub const SET_FLAGS: u64 = 0xab0a;
    /// There are flags, flushes and forced unit access.
    pub const FLAGS: u64 = 1 | 1 << 2 | 1 << 3;
}

/// First bytes of a request, and of the reply to one.
const REQUEST: u32 = 0x2560_9513;
const REPLY: u32 = 0x6744_6698;
/// In a request's type: forced unit access.
const FUA: u32 = 1 << 16;

/// How fast a device is, in virtual time.
#[derive(Debug, Clone, Copy)]
pub struct Speed {
    /// Time of a flush or of a forced write.
    pub flush: Duration,
    /// Bytes per second of writes.
    pub write: u64,
}

/// What a device holds, and what it was asked for.
#[derive(Default)]
struct State {
    now: Image,
    /// Each request, and when it was completed.
    log: Vec<(Instant, Request)>,
}

/// A device that the kernel has attached.
pub struct Device {
    state: Arc<Mutex<State>>,
    before: Image,
    node: File,
    /// Its special file.
    pub path: PathBuf,
    threads: Vec<JoinHandle<()>>,
}

fn control(node: &File, request: u64, value: u64) {
    // SAFETY: these requests take an integer, no pointer.
    let result = unsafe { libc::ioctl(node.as_raw_fd(), request as _, value) };
    assert!(result >= 0, "ioctl {request:#x} of a block device: {}", std::io::Error::last_os_error());
}

/// Waits in the kernel until the device is detached; serves its requests meanwhile.
fn run(node: &File) {
    // SAFETY: the request takes no argument.
    unsafe { libc::ioctl(node.as_raw_fd(), ioctl::DO_IT as _, 0) };
}

impl Device {
    /// Attaches a device that holds this. Of one number there may be one at a time.
    pub fn attach(number: usize, image: Image, speed: Speed) -> Device {
        let path = PathBuf::from(format!("/dev/nbd{number}"));
        // The kernel mounts nothing that somebody has open for writing.
        let node = File::open(&path).unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        for (request, value) in [
            (ioctl::SET_BLKSIZE, BLOCK as u64),
            (ioctl::SET_SIZE_BLOCKS, SIZE / BLOCK as u64),
            (ioctl::SET_FLAGS, ioctl::FLAGS),
            (ioctl::SET_SOCK, theirs.as_raw_fd() as u64),
        ] {
            control(&node, request, value);
        }
        let state = Arc::new(Mutex::new(State { now: image.clone(), log: Vec::new() }));
        let (serving, kernel) = (state.clone(), node.try_clone().unwrap());
        let spawn = |name: &str, work: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new().name(name.into()).spawn(work).unwrap()
        };
        let threads = vec![
            spawn("device", Box::new(move || serve(ours, &serving, speed))),
            spawn("device-kernel", Box::new(move || run(&kernel))),
        ];
        drop(theirs);
        // It has its size from the moment at which the kernel serves it.
        let size = format!("/sys/block/nbd{number}/size");
        while std::fs::read_to_string(&size).unwrap().trim() != (SIZE / 512).to_string() {
            std::thread::sleep(Duration::from_millis(1));
        }
        Device { state, before: image, node, path, threads }
    }

    /// How many requests it has completed.
    pub fn completed(&self) -> usize {
        self.state.lock().unwrap().log.len()
    }

    /// How many requests it had completed at an instant.
    pub fn completed_at(&self, at: Instant) -> usize {
        self.state.lock().unwrap().log.partition_point(|(when, _)| *when <= at)
    }

    /// Detaches it. Returns what it holds.
    pub fn detach(self) -> Off {
        control(&self.node, ioctl::DISCONNECT, 0);
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
        control(&self.node, ioctl::CLEAR_SOCK, 0);
        let State { now, log } = std::mem::take(&mut *self.state.lock().unwrap());
        Off { before: self.before, now, log: log.into_iter().map(|(_, request)| request).collect() }
    }
}

/// A device that is switched off.
pub struct Off {
    before: Image,
    log: Vec<Request>,
    /// All that was ever written to it, as if it had written its cache to stable storage.
    pub now: Image,
}

impl Off {
    /// What is on stable storage if power is lost after this many requests.
    pub fn after_loss(&self, requests: usize, kept: Kept, seed: u64) -> Image {
        after_loss(&self.before, &self.log[..requests], self.log.get(requests), kept, seed)
    }
}

/// Serves the kernel's requests, one after the other, until it disconnects.
fn serve(mut socket: UnixStream, state: &Mutex<State>, speed: Speed) {
    let mut head = [0; 28];
    let word = |head: &[u8; 28], at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    while socket.read_exact(&mut head).is_ok() {
        assert_eq!(word(&head, 0), REQUEST, "the kernel's side of a block device is out of step");
        let (kind, length) = (word(&head, 4), word(&head, 24) as usize);
        let offset = u64::from(word(&head, 16)) << 32 | u64::from(word(&head, 20));
        let mut reply = [&REPLY.to_be_bytes()[..], &[0; 4], &head[8..16]].concat();
        let mut time = Duration::ZERO;
        let request = match kind & 0xffff {
            0 => {
                let from = reply.len();
                reply.resize(from + length, 0);
                state.lock().unwrap().now.read(offset, &mut reply[from..]);
                None
            }
            1 => {
                let mut bytes = vec![0; length];
                socket.read_exact(&mut bytes).unwrap();
                let fua = kind & FUA != 0;
                time += Duration::from_secs_f64(length as f64 / speed.write as f64);
                time += if fua { speed.flush } else { Duration::ZERO };
                Some(Request::Write { offset, bytes, fua })
            }
            2 => return,
            3 => {
                time += speed.flush;
                Some(Request::Flush)
            }
            other => panic!("the kernel asks for what this device does not do: {other}"),
        };
        if !time.is_zero() {
            std::thread::sleep(time);
        }
        if let Some(request) = request {
            let mut state = state.lock().unwrap();
            if let Request::Write { offset, bytes, .. } = &request {
                state.now.write(*offset, bytes);
            }
            state.log.push((Instant::now(), request));
        }
        if socket.write_all(&reply).is_err() {
            return;
        }
    }
}
