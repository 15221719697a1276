//! The page cache: reads from memory, read ahead, and writers that wait for the disk.
//!
//! The least recently used blocks of 256 KiB are evicted first; the presence of each page is recorded.
//! Written bytes drain to the disk at its rate; a writer that would exceed the limit of dirty bytes waits
//! until there is room, as on Linux (`vm.dirty_ratio`).
//!
//! *Read ahead*: for a reader that continues where the last read of the file ended, the disk reads up to 128
//! KiB ahead (`VM_MAX_READAHEAD` on the papers' machines). If several readers read one file at different
//! places, their reads continue each other only by chance, so nothing is read ahead: a disk serves many
//! readers badly.

use super::config::{Pages, span_ns};
use super::image::PAGE;
use std::collections::BTreeMap;

/// Bytes that are evicted together: as many pages as a word has bits.
const BLOCK: u64 = 64 * PAGE;
/// Most bytes that are read ahead of a sequential reader.
const AHEAD: u64 = 128 << 10;

/// A block of a file.
type BlockKey = (u64, u64);

/// The present pages of a block, and its last use.
#[derive(Default)]
struct Block {
    pages: u64,
    used: u64,
}

/// A sequential reader of a file: its next offset, and the range read ahead of it.
#[derive(Default)]
struct Reader {
    next: u64,
    ahead: u64,
    /// Ranges under way: their ends, and their arrival.
    coming: Vec<(u64, u64, u64)>,
}

/// The state of a machine's page cache.
pub(super) struct PageCache {
    config: Pages,
    blocks: BTreeMap<BlockKey, Block>,
    order: BTreeMap<u64, BlockKey>,
    /// Pages present.
    pages: u64,
    clock: u64,
    readers: BTreeMap<u64, Reader>,
    dirty_bytes: u64,
    dirty_at: u64,
}

/// The bytes that a read needs from the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    /// Missing bytes of the range itself.
    pub(super) missing: u64,
    /// Start and length of the read ahead.
    pub(super) ahead: (u64, u64),
    /// Part of the range is under way.
    pub(super) is_coming: bool,
}

impl PageCache {
    pub(super) fn new(config: Pages) -> PageCache {
        PageCache {
            config,
            blocks: BTreeMap::new(),
            order: BTreeMap::new(),
            pages: 0,
            clock: 0,
            readers: BTreeMap::new(),
            dirty_bytes: 0,
            dirty_at: 0,
        }
    }

    /// Use a range of a file; returns how many bytes of it were missing, in whole pages; afterwards they
    /// are present.
    pub(super) fn touch(&mut self, inode: u64, offset: u64, len: u64) -> u64 {
        if len == 0 {
            return 0;
        }
        let (first, end) = (offset / PAGE, offset.saturating_add(len).div_ceil(PAGE));
        let mut missing = 0;
        for number in first / 64..end.div_ceil(64) {
            let (from, to) = (first.max(number * 64) % 64, (end - number * 64).min(64));
            let wanted = (u64::MAX >> (64 - (to - from))) << from;
            self.clock += 1;
            let block = self.blocks.entry((inode, number)).or_default();
            if block.used > 0 {
                self.order.remove(&block.used);
            }
            missing += u64::from((wanted & !block.pages).count_ones());
            block.pages |= wanted;
            block.used = self.clock;
            self.order.insert(self.clock, (inode, number));
        }
        self.pages += missing;
        while self.pages * PAGE > self.config.bytes.max(BLOCK) {
            let Some((_, key)) = self.order.pop_first() else { break };
            let gone = self.blocks.remove(&key).map_or(0, |block| block.pages.count_ones());
            self.pages -= u64::from(gone);
        }
        missing * PAGE
    }

    /// Read a range of a file of so many bytes.
    pub(super) fn read(&mut self, now: u64, inode: u64, offset: u64, len: u64, file_bytes: u64) -> Wanted {
        let end = offset.saturating_add(len);
        let missing = self.touch(inode, offset, len);
        let reader = self.readers.entry(inode).or_default();
        reader.coming.retain(|(_, _, at)| *at > now);
        let is_coming = reader.coming.iter().any(|(from, until, _)| offset < *until && end > *from);
        let goes_on = offset == reader.next;
        reader.next = end;
        if !goes_on {
            reader.ahead = end;
            return Wanted { missing, ahead: (end, 0), is_coming };
        }
        // The next part is requested when half of the last one is used up.
        let from = reader.ahead.max(end);
        if from - end > AHEAD / 2 {
            return Wanted { missing, ahead: (from, 0), is_coming };
        }
        let until = (end + AHEAD).min(file_bytes).max(from);
        reader.ahead = until;
        let bytes = self.touch(inode, from, until - from);
        Wanted { missing, ahead: (from, bytes), is_coming }
    }

    /// A range is under way, and arrives at that moment.
    pub(super) fn comes(&mut self, inode: u64, from: u64, bytes: u64, at: u64) {
        self.readers.entry(inode).or_default().coming.push((from, from + bytes, at));
    }

    /// When the part of a range that is under way arrives.
    pub(super) fn there_at(&self, inode: u64, offset: u64, len: u64) -> u64 {
        let coming = self.readers.get(&inode).map_or(&[][..], |reader| reader.coming.as_slice());
        let within = coming.iter().filter(|(from, until, _)| offset < *until && offset + len > *from);
        within.map(|(_, _, at)| *at).max().unwrap_or(0)
    }

    /// A file is gone: so are its pages, and its readers.
    pub(super) fn forget(&mut self, inode: u64) {
        self.readers.remove(&inode);
        let blocks: Vec<BlockKey> =
            self.blocks.range((inode, 0)..=(inode, u64::MAX)).map(|(key, _)| *key).collect();
        for key in blocks {
            let Some(block) = self.blocks.remove(&key) else { continue };
            self.order.remove(&block.used);
            self.pages -= u64::from(block.pages.count_ones());
        }
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

    /// So many written bytes are on the disk now.
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
        assert_eq!(pages.touch(1, BLOCK, 10), PAGE, "it was not");
    }

    #[test]
    fn a_page_that_was_read_brings_no_other() {
        let mut pages = PageCache::new(Pages { bytes: 1 << 30, dirty_bytes: 0 });
        assert_eq!(pages.touch(1, 0, 2 * PAGE), 2 * PAGE);
        assert_eq!(pages.touch(1, PAGE, 3 * PAGE), 2 * PAGE);
        assert_eq!(pages.touch(1, 62 * PAGE, 4 * PAGE), 4 * PAGE, "over the edge of a block");
        assert_eq!(pages.touch(1, 0, BLOCK), BLOCK - 6 * PAGE);
    }

    #[test]
    fn a_file_larger_than_memory_that_is_read_in_parts_is_read_whole_from_the_disk() {
        let mut pages = PageCache::new(Pages { bytes: 4 * BLOCK, dirty_bytes: 0 });
        let file = 32 * BLOCK;
        pages.touch(1, 0, file);
        let parts = file / (16 * PAGE);
        let mut read = 0;
        for part in 0..parts {
            let wanted = pages.read(0, 1, part * 16 * PAGE, 16 * PAGE, file);
            read += wanted.missing + wanted.ahead.1;
        }
        assert_eq!(read, file);
    }

    #[test]
    fn who_reads_in_order_finds_the_disk_ahead_and_who_jumps_does_not() {
        let mut pages = PageCache::new(Pages { bytes: 1 << 30, dirty_bytes: 0 });
        let (part, file) = (32 << 10, 1 << 30);
        let first = pages.read(0, 1, 0, part, file);
        assert_eq!(first, Wanted { missing: part, ahead: (part, AHEAD), is_coming: false });
        pages.comes(1, part, AHEAD, 1000);
        let second = pages.read(500, 1, part, part, file);
        assert_eq!((second.missing, second.ahead.1, second.is_coming), (0, 0, true));
        assert_eq!(pages.there_at(1, part, part), 1000);
        let far = pages.read(2000, 1, 1 << 29, part, file);
        assert_eq!(far, Wanted { missing: part, ahead: ((1 << 29) + part, 0), is_coming: false });
    }

    #[test]
    fn of_a_file_that_is_gone_nothing_is_kept() {
        let mut pages = PageCache::new(Pages { bytes: 1 << 30, dirty_bytes: 0 });
        for inode in 1..100 {
            pages.read(0, inode, 0, 2 * BLOCK, 4 * BLOCK);
            pages.forget(inode);
        }
        assert_eq!((pages.readers.len(), pages.blocks.len(), pages.order.len(), pages.pages), (0, 0, 0, 0));
    }

    #[test]
    fn writers_wait_for_the_disk_once_memory_is_full_of_what_it_has_not_got() {
        let mut pages = PageCache::new(Pages { bytes: 1 << 30, dirty_bytes: 1_000_000 });
        let rate = 1_000_000;
        assert_eq!(pages.write_ns(0, 1_000_000, rate), 0);
        assert_eq!(pages.write_ns(0, 500_000, rate), 500_000_000);
        // At that time it is at the limit, so the next write waits too.
        assert_eq!(pages.write_ns(500_000_000, 100_000, rate), 100_000_000);
        assert_eq!(pages.write_ns(60_000_000_000, 1_000_000, rate), 0);
        pages.synced(1_000_000);
        assert_eq!(pages.write_ns(60_000_000_000, 1_000_000, rate), 0);
    }
}
