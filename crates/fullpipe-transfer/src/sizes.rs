//! Sizes that both ends and several parts of one end must agree on.

use std::ops::RangeInclusive;

/// Sizes of a block that a user may ask for, bytes: 64 KiB to 64 MiB.
pub const BLOCKS: RangeInclusive<u32> = 64 << 10..=64 << 20;

/// Files up to this size travel whole, many together.
pub(crate) const SMALL: u64 = 1 << 20;

/// Bytes of a block: what was asked for, or less where many streams would take too much memory.
pub fn block_size(asked: u32, streams: usize) -> u64 {
    // Each stream holds a pack, and two pieces of blocks: one comes while the other goes.
    const ALL: u64 = 64 << 20;
    u64::from(asked).min(ALL / streams.max(1) as u64)
}

/// Bytes that are read or received, hashed, and written or sent at a time through the page cache, so that they stay in the
/// processor's cache.
pub(crate) const PIECE: usize = 256 << 10;

/// Blocks start at multiples of this where the file's data does, as direct I/O wants it.
pub const ALIGN: u64 = 4096;

/// Bytes of a huge page: x86-64, and Arm with small pages of 4 KiB. Where it is another number, there are none. One at a
/// time is as fast as several, and the processor's cache holds it.
pub const HUGE_PAGE: usize = 2 << 20;
