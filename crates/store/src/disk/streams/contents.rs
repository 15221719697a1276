//! Contents of small streams in memory. Each content is found by its place in the journal, which it has
//! even before it is written there.
//!
//! A content is *pinned* until its journal record is written, because it can be read from nowhere else;
//! then it is cached, and the least recently used one is evicted first.

use super::super::table::live::Place;
use crate::Lsn;
use bytes::Bytes;
use lru::LruCache;
use std::collections::{HashMap, VecDeque};

/// (segment's generation, offset): never used twice.
type Key = (u64, u64);

pub(crate) struct Contents {
    pinned: HashMap<Key, Bytes>,
    pinned_bytes: usize,
    order: VecDeque<(Lsn, Key)>,
    cache: LruCache<Key, Bytes>,
    bytes: usize,
    bytes_max: usize,
}

impl Contents {
    pub fn new(bytes_max: usize) -> Contents {
        Contents {
            pinned: HashMap::new(),
            pinned_bytes: 0,
            order: VecDeque::new(),
            cache: LruCache::unbounded(),
            bytes: 0,
            bytes_max,
        }
    }

    /// Contents of the batch at `lsn`.
    pub fn pin(&mut self, lsn: Lsn, (_, generation): Place, contents: Vec<(u64, Bytes)>) {
        for (offset, content) in contents {
            self.pinned_bytes += content.len();
            if let Some(old) = self.pinned.insert((generation, offset), content) {
                self.pinned_bytes -= old.len();
            }
            self.order.push_back((lsn, (generation, offset)));
        }
    }

    /// Groups up to here are written.
    pub fn written(&mut self, written: Lsn) {
        while let Some((lsn, key)) = self.order.front().copied() {
            if lsn > written {
                return;
            }
            self.order.pop_front();
            if let Some(content) = self.pinned.remove(&key) {
                self.pinned_bytes -= content.len();
                self.enter(key, content);
            }
        }
    }

    pub fn enter(&mut self, key: Key, content: Bytes) {
        if content.len() > self.bytes_max {
            return;
        }
        self.bytes += content.len();
        if let Some(old) = self.cache.put(key, content) {
            self.bytes -= old.len();
        }
        while self.bytes > self.bytes_max {
            let Some((_, old)) = self.cache.pop_lru() else { return };
            self.bytes -= old.len();
        }
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        self.bytes + self.pinned_bytes
    }

    pub fn get(&mut self, key: Key) -> Option<Bytes> {
        self.pinned.get(&key).cloned().or_else(|| self.cache.get(&key).cloned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_written_is_never_evicted() {
        let mut contents = Contents::new(100);
        for n in 0..10 {
            contents.pin(Lsn(n), (1, 1), vec![(n * 4096, Bytes::from(vec![n as u8; 60]))]);
        }
        assert!((0..10).all(|n| contents.get((1, n * 4096)).is_some()));
        contents.written(Lsn(4));
        assert!(contents.get((1, 0)).is_none() && contents.get((1, 4 * 4096)).is_some());
        assert!((5..10).all(|n| contents.get((1, n * 4096)).is_some()));
        assert!(contents.bytes <= 100);
    }
}
