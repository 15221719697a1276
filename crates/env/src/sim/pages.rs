//! The page cache: what is read from memory, and when a writer must wait for the disk.
//!
//! What was used longest ago goes first, in blocks of 256 KiB. Bytes written and not yet on the disk drain at the disk's rate; who
//! would make them more than may be waits until there is room, as Linux has it (`vm.dirty_ratio`).

use super::config::{Pages, span_ns};
use std::collections::BTreeMap;

/// Bytes of what is kept and let go together.
const BLOCK: u64 = 256 << 10;

/// The state of a machine's page cache.
pub(super) struct PageCache {
    config: Pages,
    /// When each block was used last, and the blocks by that.
    used: BTreeMap<(u64, u64), u64>,
    order: BTreeMap<u64, (u64, u64)>,
    clock: u64,
    dirty_bytes: u64,
    dirty_at: u64,
}

impl PageCache {
    pub(super) fn new(config: Pages) -> PageCache {
        PageCache {
            config,
            used: BTreeMap::new(),
            order: BTreeMap::new(),
            clock: 0,
            dirty_bytes: 0,
            dirty_at: 0,
        }
    }

    /// Use a range of a file: how many bytes of it were not there; afterwards they are.
    pub(super) fn touch(&mut self, inode: u64, offset: u64, len: u64) -> u64 {
        let end = offset.saturating_add(len);
        let mut missing = 0;
        for block in offset / BLOCK..end.div_ceil(BLOCK) {
            let (from, to) = (offset.max(block * BLOCK), end.min((block + 1) * BLOCK));
            self.clock += 1;
            match self.used.insert((inode, block), self.clock) {
                Some(before) => drop(self.order.remove(&before)),
                None => missing += to - from,
            }
            self.order.insert(self.clock, (inode, block));
        }
        while self.used.len() as u64 * BLOCK > self.config.bytes.max(BLOCK) {
            let Some((_, block)) = self.order.pop_first() else { break };
            self.used.remove(&block);
        }
        missing
    }

    /// How long a writer of so many bytes waits for room.
    pub(super) fn write_ns(&mut self, now: u64, bytes: u64, bytes_per_s: u64) -> u64 {
        let passed = u128::from(now.saturating_sub(self.dirty_at));
        let drained =
            (passed * u128::from(bytes_per_s) / 1_000_000_000).min(u128::from(self.dirty_bytes)) as u64;
        self.dirty_at = self.dirty_at.max(now);
        self.dirty_bytes = self.dirty_bytes - drained + bytes;
        if bytes_per_s == 0 {
            self.dirty_bytes = 0;
        }
        span_ns(self.dirty_bytes.saturating_sub(self.config.dirty_bytes), bytes_per_s)
    }

    /// So many bytes of what was written are on the disk now.
    pub(super) fn synced(&mut self, bytes: u64) {
        self.dirty_bytes = self.dirty_bytes.saturating_sub(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_longest_ago_goes_first() {
        let mut pages = PageCache::new(Pages { bytes: 4 * BLOCK, dirty_bytes: 0 });
        assert_eq!(pages.touch(1, 0, 3 * BLOCK), 3 * BLOCK);
        assert_eq!(pages.touch(1, 0, BLOCK), 0);
        assert_eq!(pages.touch(2, 0, 2 * BLOCK), 2 * BLOCK);
        assert_eq!(pages.touch(1, 0, BLOCK), 0, "it was used");
        assert_eq!(pages.touch(1, BLOCK, 10), 10, "it was not");
    }

    #[test]
    fn writers_wait_for_the_disk_once_memory_is_full_of_what_it_has_not_got() {
        let mut pages = PageCache::new(Pages { bytes: 1 << 30, dirty_bytes: 1_000_000 });
        let rate = 1_000_000;
        assert_eq!(pages.write_ns(0, 1_000_000, rate), 0);
        assert_eq!(pages.write_ns(0, 500_000, rate), 500_000_000);
        // That time later it is at the limit, and so is whatever comes.
        assert_eq!(pages.write_ns(500_000_000, 100_000, rate), 100_000_000);
        assert_eq!(pages.write_ns(60_000_000_000, 1_000_000, rate), 0);
        pages.synced(1_000_000);
        assert_eq!(pages.write_ns(60_000_000_000, 1_000_000, rate), 0);
    }
}
