//! The block cache: recently read blocks of all streams, bounded in bytes.
//!
//! It serves requests that need the same block at different times: a block of interleaved records is read
//! once for all its readers. The least recently used blocks are evicted first. There is no read-ahead and
//! no delayed write: a write drops the block.
//!
//! **A block is valid while the stream has the same change count as when the block was read.** Each change
//! of a stream's bytes moves that count ([`change_counts`](super::change_counts)): writes, appends,
//! truncations, holes, a content that is replaced. So after a truncation no cached block is used, no matter
//! how the truncation was made. Only blocks that lie wholly inside the stream are kept, so no cached block
//! contains bytes after the stream's end.

use super::extent::{BLOCK_BYTES, Extent};
use bytes::Bytes;
use lru::LruCache;
use shoal_env::mutant::{self, Mutant};
use shoal_proto::{ChangeCount, Handle};
use std::collections::HashMap;

/// Blocks that were read by one call: they share a buffer, and leave together.
struct Kept {
    stream: Handle,
    from: u64,
    bytes: Bytes,
    count: ChangeCount,
}

/// See the module's page.
pub struct BlockCache {
    kept: LruCache<u64, Kept>,
    /// Which buffer holds a block.
    places: HashMap<(Handle, u64), u64>,
    bytes: u64,
    bytes_max: u64,
    next: u64,
}

impl BlockCache {
    /// A cache of at most so many bytes; 0: none.
    pub fn new(bytes_max: u64) -> BlockCache {
        BlockCache { kept: LruCache::unbounded(), places: HashMap::new(), bytes: 0, bytes_max, next: 0 }
    }

    /// Bytes that it holds.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// A block, if it is known and the stream's count is still `count`.
    pub fn get(&mut self, block: &Extent, count: ChangeCount) -> Option<Bytes> {
        let key = *self.places.get(&(block.stream, block.from))?;
        let kept = self.kept.get(&key)?;
        if kept.count != count && !mutant::is(Mutant::CachedBlockOutlives) {
            self.drop_kept(key);
            return None;
        }
        let at = (block.from - kept.from) as usize;
        Some(kept.bytes.slice(at..at + BLOCK_BYTES as usize))
    }

    /// Whole blocks that were read from `from` on while the stream's count was `count` all the time.
    pub fn put(&mut self, stream: Handle, from: u64, bytes: Bytes, count: ChangeCount) {
        let len = bytes.len() as u64;
        if len == 0 || len > self.bytes_max || !len.is_multiple_of(BLOCK_BYTES) {
            return;
        }
        while self.bytes + len > self.bytes_max {
            let Some((key, _)) = self.kept.peek_lru() else { break };
            let key = *key;
            self.drop_kept(key);
        }
        let key = self.next;
        self.next += 1;
        for at in (from..from + len).step_by(BLOCK_BYTES as usize) {
            self.places.insert((stream, at), key);
        }
        self.bytes += len;
        self.kept.put(key, Kept { stream, from, bytes, count });
    }

    /// Bytes of a stream are about to be written.
    pub fn forget(&mut self, extent: &Extent) {
        // An extent is no longer than a message.
        let first = extent.from / BLOCK_BYTES * BLOCK_BYTES;
        for at in (first..extent.end()).step_by(BLOCK_BYTES as usize) {
            if let Some(key) = self.places.get(&(extent.stream, at)).copied() {
                self.drop_kept(key);
            }
        }
    }

    /// Drop all blocks of a stream.
    pub fn drop_stream(&mut self, stream: Handle) {
        let of_it = self.kept.iter().filter(|(_, kept)| kept.stream == stream);
        let keys: Vec<u64> = of_it.map(|(key, _)| *key).collect();
        keys.into_iter().for_each(|key| self.drop_kept(key));
    }

    fn drop_kept(&mut self, key: u64) {
        let Some(kept) = self.kept.pop(&key) else { return };
        self.bytes -= kept.bytes.len() as u64;
        for at in (kept.from..kept.from + kept.bytes.len() as u64).step_by(BLOCK_BYTES as usize) {
            // A later read may have put the block elsewhere.
            if self.places.get(&(kept.stream, at)) == Some(&key) {
                self.places.remove(&(kept.stream, at));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(at: u64) -> Extent {
        Extent { disk: 0, stream: Handle(1), from: at * BLOCK_BYTES, len: BLOCK_BYTES, generation: 1 }
    }

    fn bytes(blocks: usize, byte: u8) -> Bytes {
        Bytes::from(vec![byte; blocks * BLOCK_BYTES as usize])
    }

    #[test]
    fn a_block_is_valid_under_the_count_that_it_was_read_under() {
        let mut cache = BlockCache::new(8 * BLOCK_BYTES);
        cache.put(Handle(1), 0, bytes(2, 7), ChangeCount(5));
        assert_eq!(cache.get(&block(1), ChangeCount(5)), Some(bytes(1, 7)));
        assert_eq!(cache.get(&block(2), ChangeCount(5)), None);
        assert_eq!(cache.get(&block(1), ChangeCount(6)), None);
        assert_eq!((cache.get(&block(0), ChangeCount(5)), cache.bytes()), (None, 0), "dropped for good");
    }

    #[test]
    fn what_was_used_longest_ago_goes_first_and_the_bytes_are_bounded() {
        let mut cache = BlockCache::new(3 * BLOCK_BYTES);
        let count = ChangeCount(5);
        for at in 0..3 {
            cache.put(Handle(1), at * BLOCK_BYTES, bytes(1, at as u8), count);
        }
        assert!(cache.get(&block(0), count).is_some());
        cache.put(Handle(1), 3 * BLOCK_BYTES, bytes(1, 3), count);
        assert_eq!(cache.bytes(), 3 * BLOCK_BYTES);
        assert!(cache.get(&block(1), count).is_none() && cache.get(&block(0), count).is_some());
        cache.put(Handle(1), 0, bytes(4, 9), count);
        assert!(cache.bytes() <= 3 * BLOCK_BYTES, "larger than all of it");
        cache.put(Handle(2), 5, bytes(1, 9).slice(1..), count);
        assert!(cache.get(&Extent { stream: Handle(2), ..block(0) }, count).is_none(), "no whole block");
    }

    #[test]
    fn a_stream_whose_cache_is_dropped_has_no_block_and_others_keep_theirs() {
        let mut cache = BlockCache::new(8 * BLOCK_BYTES);
        let count = ChangeCount(5);
        cache.put(Handle(1), 0, bytes(2, 1), count);
        cache.put(Handle(2), 0, bytes(1, 2), count);
        cache.put(Handle(1), 4 * BLOCK_BYTES, bytes(1, 3), count);
        cache.drop_stream(Handle(1));
        assert_eq!(cache.bytes(), BLOCK_BYTES);
        assert!([0, 1, 4].iter().all(|at| cache.get(&block(*at), count).is_none()));
        assert!(cache.get(&Extent { stream: Handle(2), ..block(0) }, count).is_some());
    }

    #[test]
    fn a_write_drops_the_blocks_that_it_touches() {
        let mut cache = BlockCache::new(8 * BLOCK_BYTES);
        let count = ChangeCount(5);
        for at in 0..4 {
            cache.put(Handle(1), at * BLOCK_BYTES, bytes(1, 1), count);
        }
        cache.forget(&Extent { from: BLOCK_BYTES + 5, len: BLOCK_BYTES, ..block(0) });
        let known: Vec<bool> = (0..4).map(|at| cache.get(&block(at), count).is_some()).collect();
        assert_eq!(known, [true, false, false, true]);
    }
}
