//! Standard input as the source of a copy.
//!
//! Nobody knows the size before the end, and nothing can be read twice. So no other attempt can go on after this one.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::error::TransferError;
use crate::protocol::file::{Extent, FileItem, Meta};
use crate::protocol::name::Name;
use crate::threads::lock;

/// Longest time from the first byte of a block until the block is sent, however short it is then.
const MAX_BLOCK_TIME: Duration = Duration::from_secs(1);
/// How often a thread that waits for input looks whether input is still wanted, ms.
const POLL_MS: u16 = 100;
/// How often the receiver hears of this end while nothing is sent: no input comes, or a file is hashed for `--checksum`.
pub(super) const TOTALS_INTERVAL: Duration = Duration::from_secs(1);
/// Bytes that a pipe may hold, if the kernel grants that: fewer switches between its two ends.
const PIPE_BYTES: i32 = 1 << 20;

/// Standard input, as the source of a copy.
#[derive(Debug)]
pub struct Input {
    /// Guards the input and how much of it was read. Held while a block is read, which may take any time.
    reader: Mutex<Reader>,
    /// What the receiver is told of it.
    pub(super) item: FileItem,
    /// Whether anything was read, so that another attempt would lack it.
    begun: AtomicBool,
    /// Whether all of it was read.
    all_read: AtomicBool,
    /// Whether the receiver cannot write what comes.
    unwanted: AtomicBool,
}

#[derive(Debug)]
struct Reader {
    file: File,
    /// Number of bytes that were read.
    offset: u64,
    /// Whether nothing more is to be read.
    ended: bool,
    /// When the receiver was last told of this end.
    told: Instant,
}

/// What a stream finds in the input.
pub(super) enum Next {
    /// So many bytes.
    Block(Extent),
    /// So many bytes, the last ones.
    Last(Extent),
    /// Nothing more.
    Nothing,
    /// An error.
    Failed(io::Error),
}

impl Input {
    /// Makes a source of an open file, under the name that messages use.
    #[must_use]
    pub fn new(file: File, name: Name) -> Input {
        // This fails for what is no pipe.
        let _ = nix::fcntl::fcntl(&file, nix::fcntl::FcntlArg::F_SETPIPE_SZ(PIPE_BYTES));
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let now = (now.as_secs() as i64, now.subsec_nanos());
        let meta = Meta { mode: 0o666, uid: 0, gid: 0, mtime: now, xattrs: Vec::new() };
        let size = FileItem::UNKNOWN_SIZE;
        let item = FileItem { name, size, sparse: false, changed: now, content: None, meta };
        let reader = Reader { file, offset: 0, ended: false, told: Instant::now() };
        Input {
            reader: Mutex::new(reader),
            item,
            begun: AtomicBool::new(false),
            all_read: AtomicBool::new(false),
            unwanted: AtomicBool::new(false),
        }
    }

    /// Whether anything was read. Then another attempt would lack what this one has read.
    #[must_use]
    pub fn is_begun(&self) -> bool {
        self.begun.load(Ordering::SeqCst)
    }

    /// Whether all of it was read. Then the receiver may have all, and have given it its name.
    #[must_use]
    pub fn is_all_read(&self) -> bool {
        self.all_read.load(Ordering::SeqCst)
    }

    /// Notes that the receiver cannot write what comes.
    pub(super) fn give_up(&self) {
        self.unwanted.store(true, Ordering::SeqCst);
    }

    /// Reads the next block into `to`. While it waits for input, it calls `wait` ten times a second, with whether it is time to
    /// tell the receiver of this end, and returns its error.
    pub(super) fn next(
        &self,
        to: &mut [u8],
        wait: &dyn Fn(bool) -> Result<(), TransferError>,
    ) -> Result<Next, TransferError> {
        let mut reader = lock(&self.reader);
        if reader.ended {
            return Ok(Next::Nothing);
        }
        let (mut len, mut first) = (0, None);
        let ended = loop {
            if len == to.len() || first.is_some_and(|first: Instant| first.elapsed() >= MAX_BLOCK_TIME) {
                break false;
            }
            let is_time = reader.told.elapsed() >= TOTALS_INTERVAL;
            if is_time {
                reader.told = Instant::now();
            }
            wait(is_time)?;
            if self.unwanted.load(Ordering::SeqCst) {
                reader.ended = true;
                return Ok(Next::Nothing);
            }
            let mut fds = [PollFd::new(reader.file.as_fd(), PollFlags::POLLIN)];
            if matches!(poll(&mut fds, PollTimeout::from(POLL_MS)), Ok(0) | Err(Errno::EINTR)) {
                continue;
            }
            self.begun.store(true, Ordering::SeqCst);
            match reader.file.read(&mut to[len..]) {
                Ok(0) => break true,
                Ok(n) => {
                    len += n;
                    first.get_or_insert_with(Instant::now);
                }
                Err(e) if matches!(e.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {}
                Err(e) => {
                    reader.ended = true;
                    return Ok(Next::Failed(e));
                }
            }
        };
        let block = Extent { offset: reader.offset, len: len as u64 };
        reader.offset += block.len;
        reader.ended = ended;
        self.all_read.store(ended, Ordering::SeqCst);
        Ok(if ended { Next::Last(block) } else { Next::Block(block) })
    }
}
