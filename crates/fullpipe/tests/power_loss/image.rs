//! The content of a block device, and what of it a loss of power leaves. Pure: it knows no file and no clock.

use std::collections::BTreeMap;
use std::sync::Arc;

use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// Bytes of a device's logical block, which it writes as a whole or not at all. As disks of today do, and file systems
/// take for granted: neither ext4's superblock of 1,024 bytes nor XFS's blocks of metadata survive being torn.
pub const BLOCK: usize = 4096;
/// The content of a block device. Copies share the pages that they have in common.
#[derive(Clone, Default)]
pub struct Image(BTreeMap<u64, Arc<[u8; BLOCK]>>);

impl Image {
    /// Reads bytes from an offset on. Bytes that were never written are zero.
    pub fn read(&self, mut offset: u64, mut to: &mut [u8]) {
        while !to.is_empty() {
            let (page, at) = (offset / BLOCK as u64, offset as usize % BLOCK);
            let (piece, rest) = to.split_at_mut((BLOCK - at).min(to.len()));
            match self.0.get(&page) {
                Some(bytes) => piece.copy_from_slice(&bytes[at..at + piece.len()]),
                None => piece.fill(0),
            }
            offset += piece.len() as u64;
            to = rest;
        }
    }

    /// Writes bytes from an offset on.
    pub fn write(&mut self, mut offset: u64, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (page, at) = (offset / BLOCK as u64, offset as usize % BLOCK);
            let (piece, rest) = bytes.split_at((BLOCK - at).min(bytes.len()));
            // Pages of zeros take no memory.
            if piece.iter().any(|byte| *byte != 0) || self.0.contains_key(&page) {
                let known = self.0.entry(page).or_insert_with(|| Arc::new([0; BLOCK]));
                Arc::make_mut(known)[at..at + piece.len()].copy_from_slice(piece);
            }
            offset += piece.len() as u64;
            bytes = rest;
        }
    }
}

/// A request that a device has completed, but for reads.
#[derive(Clone)]
pub enum Request {
    /// Bytes were written from an offset on; with `fua` (forced unit access) past the device's volatile cache.
    Write { offset: u64, bytes: Vec<u8>, fua: bool },
    /// The device wrote its volatile cache to stable storage.
    Flush,
}

/// What of the writes in its volatile cache a device still brings to stable storage when it loses power.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kept {
    /// None.
    Nothing,
    /// All up to one of them, in the order in which they were made.
    Prefix,
    /// Each with this probability, whatever the order.
    Each(f64),
    /// Each logical block of each with this probability: writes are torn.
    Blocks(f64),
}

/// What is on stable storage if the device held `before` at first, completed these requests, and then lost power
/// while it worked on `next`.
pub fn after_loss(before: &Image, done: &[Request], next: Option<&Request>, kept: Kept, seed: u64) -> Image {
    let mut rng = Pcg64::seed_from_u64(seed);
    let flushed = done.iter().rposition(|request| matches!(request, Request::Flush)).map_or(0, |at| at + 1);
    let mut image = before.clone();
    for request in &done[..flushed] {
        if let Request::Write { offset, bytes, .. } = request {
            image.write(*offset, bytes);
        }
    }
    let cached = &done[flushed..];
    let prefix = rng.random_range(0..=cached.len() + 1);
    for (i, request) in cached.iter().chain(next).enumerate() {
        let Request::Write { offset, bytes, fua } = request else { continue };
        // The one that was not completed is promised in no case.
        if *fua && i < cached.len() {
            image.write(*offset, bytes);
            continue;
        }
        match kept {
            Kept::Nothing => {}
            Kept::Prefix if i < prefix => image.write(*offset, bytes),
            Kept::Prefix => {}
            Kept::Each(chance) if rng.random_bool(chance) => image.write(*offset, bytes),
            Kept::Each(_) => {}
            Kept::Blocks(chance) => {
                for (i, piece) in bytes.chunks(BLOCK).enumerate() {
                    if rng.random_bool(chance) {
                        image.write(offset + (i * BLOCK) as u64, piece);
                    }
                }
            }
        }
    }
    image
}

/// Fails unless [`after_loss`] keeps what was flushed, loses what was not, and never brings an older write back over a
/// newer one.
pub fn check() {
    let write = |offset, byte: u8, fua| Request::Write { offset, bytes: vec![byte; 2 * BLOCK], fua };
    let at = |image: &Image, offset| {
        let mut byte = [0];
        image.read(offset, &mut byte);
        byte[0]
    };
    let (flushed, forced, cached) = (0, 64 << 10, 128 << 10);
    let done = [
        write(flushed, 1, false),
        Request::Flush,
        write(forced, 2, false),
        write(forced, 3, true),
        write(cached, 4, false),
        write(cached, 5, false),
    ];
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..64 {
        for kept in [Kept::Nothing, Kept::Prefix, Kept::Each(0.5), Kept::Blocks(0.5)] {
            let image = after_loss(&Image::default(), &done, Some(&write(flushed, 6, true)), kept, seed);
            assert!(matches!(at(&image, flushed), 1 | 6), "what was flushed is there, or what was being written");
            assert_eq!(at(&image, forced), 3, "what was forced is there, and nothing older");
            let (first, second) = (at(&image, cached), at(&image, cached + BLOCK as u64));
            assert!(kept != Kept::Nothing || (first, second) == (0, 0));
            assert!(matches!(kept, Kept::Blocks(_)) || first == second, "a write is torn");
            seen.insert((first, second));
        }
    }
    assert!([(0, 0), (4, 4), (5, 5), (4, 5), (0, 5)].iter().all(|pair| seen.contains(pair)), "{seen:?}");
    let mut bytes = vec![0; BLOCK];
    Pcg64::seed_from_u64(1).fill_bytes(&mut bytes);
    let mut image = Image::default();
    image.write(BLOCK as u64 - 100, &bytes);
    let mut back = vec![0; BLOCK];
    image.read(BLOCK as u64 - 100, &mut back);
    assert!(bytes == back, "a write over the border of two blocks");
}
