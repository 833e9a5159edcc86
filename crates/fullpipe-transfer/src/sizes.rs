//! Sizes that both ends and several parts of one end must agree on.

use std::ops::RangeInclusive;

/// Sizes of a block that a user may ask for, bytes: 64 KiB to 64 MiB.
pub const BLOCKS: RangeInclusive<u32> = 64 << 10..=64 << 20;

/// Files up to this size travel whole, many together.
pub(crate) const SMALL: u64 = 1 << 20;

/// Most files in one offer.
pub(crate) const MAX_OFFERED_FILES: usize = 256;

/// Bytes of names and attributes after which an offer or a pack is closed. With one more file it still fits a frame.
pub(crate) const MAX_HEADER_BYTES: usize = 1 << 20;

/// Bytes of a block: what was asked for, or less where many streams would take too much memory.
pub fn block_size(asked: u32, streams: usize) -> u64 {
    // Each stream holds a pack, and two pieces of blocks: one comes while the other goes.
    const ALL: u64 = 64 << 20;
    let share = ALL / streams.max(1) as u64;
    // Whole pieces, so that each block starts where direct I/O can.
    u64::from(asked).min(share - share % PIECE as u64)
}

/// Bytes that are read or received, hashed, and written or sent at a time through the page cache, so that they stay in the
/// processor's cache.
pub(crate) const PIECE: usize = 256 << 10;

/// Blocks start at multiples of this where the file's data does, as direct I/O wants it.
pub const ALIGN: u64 = 4096;

/// Bytes of a huge page: x86-64, and Arm with small pages of 4 KiB. Where it is another number, there are none. One at a
/// time is as fast as several, and the processor's cache holds it.
pub const HUGE_PAGE: usize = 2 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_begin_where_direct_io_can() {
        for n in 1..=64 {
            let bytes = block_size(64 << 20, n);
            assert!(bytes.is_multiple_of(ALIGN) && (1 << 20..=64 << 20).contains(&bytes), "{n}: {bytes}");
            assert!(bytes * n as u64 > 48 << 20, "{n}: {bytes}");
        }
        assert_eq!((block_size(8 << 20, 8), block_size(64 << 10, 64)), (8 << 20, 64 << 10));
    }
}
