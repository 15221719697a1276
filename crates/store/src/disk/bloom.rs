//! A Bloom filter of the checkpointed table's keys. With it a create learns without a load from disk that a
//! name is free.
//!
//! The filter has blocks of one word (Putze, Sanders, Singler: *Cache-, Hash- and Space-Efficient Bloom
//! Filters*, 2007): one cache line a lookup. **Invariant: the keys of a table enter the filter before the
//! table's checkpoint begins** (asserted in `disk/row_layers.rs::checkpointed`). After a restart a background
//! task reads the present keys; until it has finished, the filter excludes no key. Removed keys stay in the
//! filter until the next start: a lookup of a removed key costs an unneeded load, and its result is correct.
//!
//! The tables in memory find their rows by the same hash, so that it is computed once for a lookup.

use std::array;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Bits of a key in its word.
const BITS: u32 = 4;
/// Words of a block: memory is allocated block by block, when a key falls into one.
const BLOCK_WORDS: usize = 512;

/// See the module. Its owner looks keys up; code that shares the [`Noted`] keys may add more.
pub(super) struct BloomFilter {
    noted: Arc<Noted>,
    /// All keys of the table are in it.
    pub complete: bool,
}

/// The added keys. **Bits are only set.** While another thread adds keys, a lookup may or may not find them;
/// it finds every key whose addition happened before the lookup.
pub(super) struct Noted {
    blocks: Box<[OnceLock<Box<[AtomicU64; BLOCK_WORDS]>>]>,
    blocks_taken: AtomicUsize,
    seed: u64,
}

impl BloomFilter {
    /// A filter of about `bytes` of memory (allocated only where keys fall).
    pub fn new(bytes: usize, seed: u64, complete: bool) -> BloomFilter {
        let blocks = (bytes / 8 / BLOCK_WORDS).next_power_of_two();
        let blocks = (0..blocks).map(|_| OnceLock::new()).collect();
        BloomFilter { noted: Arc::new(Noted { blocks, blocks_taken: AtomicUsize::new(0), seed }), complete }
    }

    /// The shared set to which keys are added.
    pub fn noted(&self) -> &Arc<Noted> {
        &self.noted
    }

    /// Bytes of memory its blocks take.
    pub fn bytes(&self) -> usize {
        self.noted.blocks_taken.load(Ordering::Relaxed) * BLOCK_WORDS * size_of::<AtomicU64>()
    }

    /// The hash by which a key is looked up in this filter and in the tables in memory.
    pub fn hash(&self, key: &[u8]) -> KeyHash {
        KeyHash(hash(self.noted.seed, key))
    }

    /// Surely no such key.
    pub fn absent(&self, hash: KeyHash) -> bool {
        self.complete && !self.noted.may_hold(hash)
    }
}

impl Noted {
    /// Add a key.
    pub fn insert(&self, key: &[u8]) {
        let (block, word, mask) = self.place(KeyHash(hash(self.seed, key)));
        let words = self.blocks[block].get_or_init(|| {
            self.blocks_taken.fetch_add(1, Ordering::Relaxed);
            Box::new(array::from_fn(|_| AtomicU64::new(0)))
        });
        words[word].fetch_or(mask, Ordering::Relaxed);
    }

    fn may_hold(&self, hash: KeyHash) -> bool {
        let (block, word, mask) = self.place(hash);
        self.blocks[block].get().is_some_and(|words| words[word].load(Ordering::Relaxed) & mask == mask)
    }

    fn place(&self, KeyHash(hash): KeyHash) -> (usize, usize, u64) {
        let at = (hash >> 24) as usize & (self.blocks.len() * BLOCK_WORDS - 1);
        let mask = (0..BITS).fold(0, |mask, i| mask | 1 << (hash >> (6 * i) & 63));
        (at / BLOCK_WORDS, at % BLOCK_WORDS, mask)
    }
}

/// A key's hash.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct KeyHash(u64);

impl KeyHash {
    /// All of it.
    pub fn bits(self) -> u64 {
        self.0
    }
}

/// Fast, and different with each start. Keys that collide cost unneeded loads, and longer searches in the
/// tables' indexes; an outsider cannot know which do.
fn hash(seed: u64, key: &[u8]) -> u64 {
    const ODD: u64 = 0x9E37_79B9_7F4A_7C15;
    let mix = |hash: u64, word: u64| {
        let wide = u128::from(hash ^ word) * u128::from(ODD);
        (wide as u64) ^ (wide >> 64) as u64
    };
    let (words, rest) = key.as_chunks::<8>();
    let mut hash = mix(seed, key.len() as u64 | 1 << 32);
    for word in words {
        hash = mix(hash.rotate_left(23), u64::from_le_bytes(*word));
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    mix(mix(hash.rotate_left(23), u64::from_le_bytes(last)), ODD)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_that_is_there_is_ever_called_absent_and_few_others_are_not() {
        let filter = BloomFilter::new(64 << 10, 7, true);
        let key = |n: u32| format!("D{n:08x}name").into_bytes();
        // By two threads: a checkpoint and the reading after a start may add keys at the same time.
        let noted = filter.noted();
        std::thread::scope(|scope| {
            for from in [0, 1] {
                scope.spawn(move || (from..40_000).step_by(2).for_each(|n| noted.insert(&key(n))));
            }
        });
        let absent = |n: u32| filter.absent(filter.hash(&key(n)));
        assert!((0..40_000).all(|n| !absent(n)));
        let mistaken = (40_000..80_000).filter(|n| !absent(*n)).count();
        assert!(mistaken < 4_000, "{mistaken} of 40,000 at 13 bits a key");
    }

    #[test]
    fn a_filter_takes_memory_where_keys_fell_and_no_more_than_it_was_given() {
        let filter = BloomFilter::new(64 << 10, 7, true);
        assert_eq!(filter.bytes(), 0);
        filter.noted().insert(b"one");
        assert_eq!(filter.bytes(), 4096);
        (0..1000_u32).for_each(|n| filter.noted().insert(&n.to_le_bytes()));
        assert_eq!(filter.bytes(), 64 << 10);
    }

    #[test]
    fn a_filter_that_is_not_complete_answers_nothing() {
        let filter = BloomFilter::new(64, 7, false);
        assert!(!filter.absent(filter.hash(b"anything")));
    }
}
