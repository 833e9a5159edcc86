//! Shares the rate of `--bwlimit` among the streams that have something to send. The kernel paces each by itself, and the share of one
//! that waits for work, or has ended, would be lost.

use std::sync::Arc;
use std::time::Duration;

use fullpipe_net::stream::StreamHandle;

use crate::connection::session::Session;
use crate::connection::stream::{is_busy, tcp_info};
use crate::error::TransferError;
use crate::threads::thread;

/// Time between two looks at the streams.
const LOOK: Duration = Duration::from_millis(50);
/// Looks in a row at which a stream must have had nothing to send before its share goes to others: the next block may be on its way
/// from the disk.
const IDLE_LOOKS: u32 = 3;

/// Starts to share a rate, bit/s, in a thread that ends with the session.
///
/// # Errors
/// The thread cannot be started.
pub(crate) fn start(
    session: &Arc<Session>,
    streams: Vec<Arc<dyn StreamHandle>>,
    bps: u64,
) -> Result<(), TransferError> {
    if streams.len() < 2 {
        return Ok(());
    }
    let session = session.clone();
    thread("pacing", move || {
        let mut shares = Shares::new(streams.len());
        while !session.is_over() {
            std::thread::sleep(LOOK);
            // One that does not tell counts as busy.
            let busy = streams.iter().map(|stream| tcp_info(&**stream).is_none_or(|info| is_busy(&info)));
            let Some(busy) = shares.see(busy) else { continue };
            for stream in &streams {
                // This fails only for a connection that is over.
                let _ = stream.set_pacing(Some(bps / 8 / busy as u64));
            }
        }
    })
}

/// Among how many streams the rate is shared. Pure.
struct Shares {
    /// Looks since each stream last had something to send.
    idle: Vec<u32>,
    among: usize,
}

impl Shares {
    fn new(streams: usize) -> Shares {
        Shares { idle: vec![0; streams], among: streams }
    }

    /// Takes in which streams have something to send. Returns among how many to share, if that changes.
    fn see(&mut self, busy: impl Iterator<Item = bool>) -> Option<usize> {
        for (idle, busy) in self.idle.iter_mut().zip(busy) {
            *idle = if busy { 0 } else { idle.saturating_add(1) };
        }
        let among = self.idle.iter().filter(|idle| **idle < IDLE_LOOKS).count().max(1);
        (std::mem::replace(&mut self.among, among) != among).then_some(among)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_had_nothing_for_a_while_leaves_its_share() {
        let mut shares = Shares::new(3);
        let looks = [[true, true, true], [true, false, true], [true, false, true], [true, false, true]];
        assert_eq!(looks.map(|busy| shares.see(busy.into_iter())), [None, None, None, Some(2)]);
        assert_eq!(shares.see([true; 3].into_iter()), Some(3), "at once");
        // A block comes late.
        assert_eq!([false, false, true].map(|busy| shares.see([busy, true, true].into_iter())), [None; 3]);
        assert_eq!([false; 4].map(|busy| shares.see([busy; 3].into_iter())), [None, None, Some(1), None]);
    }
}
