//! Loss lists of UDT: both lists hold the packets that a set holds, and a NAK says what was put into it.
#![no_main]

use std::collections::BTreeSet;

use fullpipe_fuzz::{mutant_of_bytes, replay};
use fullpipe_udt::loss_report::{self, LossReport};
use fullpipe_udt::receiver_loss_list::ReceiverLossList;
use fullpipe_udt::sender_loss_list::SenderLossList;
use fullpipe_udt::seq::{expand, first_index};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| replay(data, mutant_of_bytes, run));

/// Steps that are played, at most.
const MOST: usize = 2_000;

/// The input: four bytes of a first sequence number, then steps of four bytes: what, where (two), how many.
fn run(data: &[u8]) {
    let Some((isn, steps)) = data.split_first_chunk::<4>() else { return };
    let base = first_index(u32::from_be_bytes(*isn));
    let (mut sender, mut receiver) = (SenderLossList::default(), ReceiverLossList::default());
    let (mut to_send, mut missing, mut end) = (BTreeSet::new(), BTreeSet::new(), base);
    for (i, step) in steps.as_chunks::<4>().0.iter().take(MOST).enumerate() {
        let at = base + u64::from(u16::from_be_bytes([step[1], step[2]]));
        let count = u64::from(step[3]);
        match step[0] % 6 {
            0 => {
                let new = (at..at + count).filter(|index| to_send.insert(*index)).count();
                assert_eq!(sender.insert(at..at + count), new as u64);
            }
            1 => {
                sender.remove_below(at);
                to_send.retain(|index| *index >= at);
            }
            2 => {
                // As a sender takes what it sends again.
                let taken = sender.first().map(|range| range.start..range.end.min(range.start + count + 1));
                if let Some(range) = taken {
                    sender.remove_below(range.end);
                    range.for_each(|index| assert!(to_send.remove(&index)));
                }
            }
            3 => {
                let start = end + u64::from(step[1]) + 1;
                end = start + count;
                receiver.push(start..end);
                missing.extend(start..end);
            }
            4 => assert_eq!(receiver.remove(at), missing.remove(&at)),
            _ => report(&mut receiver, i as u64 * 1_000_000, usize::from(step[3]), &missing),
        }
        assert_eq!(sender.first().map(|range| range.start), to_send.first().copied());
        assert_eq!(sender.packets(), to_send.len() as u64);
        assert_eq!((receiver.first(), receiver.packets()), (missing.first().copied(), missing.len() as u64));
    }
}

/// Writes a NAK and reads it again: all that it names is missing.
fn report(list: &mut ReceiverLossList, now_ns: u64, max_words: usize, missing: &BTreeSet<u64>) {
    let mut ranges = Vec::new();
    list.due(now_ns, 5_000_000, 64, &mut ranges);
    let mut body = Vec::new();
    let written = loss_report::append(ranges.iter().cloned(), max_words, &mut body);
    assert!(body.len() <= max_words * 4);
    let Some(read) = LossReport::new(&body) else { return assert_eq!(written, 0) };
    let near = ranges.last().map_or(0, |range| range.end);
    let read: Vec<_> = read.ranges().map(|(first, last)| expand(first, near)..expand(last, near) + 1).collect();
    assert_eq!(read, ranges[..written]);
    assert!(read.into_iter().flatten().all(|index| missing.contains(&index)));
}
