//! The contents of one file: the cached image, the durable image, and the changes that are not synced yet.
//!
//! ```text
//!   write ──> cached image ──────────────┐ read
//!         └─> unsynced [op 7, op 8, op 9] ── sync of ≤ 8 ──> durable image
//!                                └── power cut: each kept, lost or torn ──> durable image, then the cache
//! ```
//!
//! An image is a sparse map of pages. A sync of all changes makes both images share the changed pages, unless
//! a sync failed before. A page is stored without the zeros at its end: a journal's block with one small
//! record is nearly all zeros, and a simulated cluster writes millions of such blocks.

use super::rng::Rng;
use bytes::{Bytes, BytesMut};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

/// Bytes of a page, and the unit of space.
pub(super) const PAGE: u64 = 4096;

/// The bytes of a page, without the zeros at its end.
type Page = Rc<[u8]>;
/// Zeros at a page's end are removed in units of this many bytes.
const STEP: usize = 64;

/// A change of contents.
#[derive(Clone)]
pub(super) enum Op {
    Write { offset: u64, pieces: Vec<Bytes> },
    Truncate { len: u64 },
    Punch { offset: u64, len: u64 },
    Allocate { offset: u64, len: u64, extend: bool },
}

impl Op {
    /// Bytes it carries.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Op::Write { pieces, .. } => pieces.iter().map(|piece| piece.len() as u64).sum(),
            _ => 0,
        }
    }

    /// The range it may touch.
    fn range(&self) -> (u64, u64) {
        match self {
            Op::Write { offset, .. } => (*offset, offset.saturating_add(self.bytes())),
            Op::Truncate { len } => (*len, u64::MAX),
            Op::Punch { offset, len } | Op::Allocate { offset, len, .. } => {
                (*offset, offset.saturating_add(*len))
            }
        }
    }
}

/// A length and the pages that are not holes.
#[derive(Clone, Default)]
pub(super) struct Image {
    pub(super) len: u64,
    pages: BTreeMap<u64, Page>,
}

impl Image {
    pub(super) fn pages(&self) -> u64 {
        self.pages.len() as u64
    }

    fn change(&mut self, number: u64, change: impl FnOnce(&mut [u8; PAGE as usize])) {
        let mut whole = [0; PAGE as usize];
        if let Some(page) = self.pages.get(&number) {
            whole[..page.len()].copy_from_slice(page);
        }
        change(&mut whole);
        self.pages.insert(number, page_of(&whole));
    }

    pub(super) fn read(&self, offset: u64, len: usize) -> Bytes {
        let end = offset.saturating_add(len as u64).min(self.len);
        let mut out = BytesMut::zeroed(usize::try_from(end.saturating_sub(offset)).unwrap_or(0));
        if out.is_empty() {
            return Bytes::new();
        }
        for (number, page) in self.pages.range(offset / PAGE..=(end - 1) / PAGE) {
            let start = number * PAGE;
            let (from, to) = (offset.max(start), end.min(start + page.len() as u64));
            if from < to {
                out[(from - offset) as usize..(to - offset) as usize]
                    .copy_from_slice(&page[(from - start) as usize..(to - start) as usize]);
            }
        }
        out.freeze()
    }

    /// Apply a change. A write is divided at each multiple of `unit` bytes of the file; `keep` is called with
    /// the number of the unit, and only the units for which it returns true are written.
    fn apply(&mut self, op: &Op, unit: u64, mut keep: impl FnMut(u64) -> bool) {
        match op {
            Op::Write { offset, pieces } => {
                let mut at = *offset;
                for piece in pieces {
                    self.write(at, piece, unit, &mut keep);
                    at += piece.len() as u64;
                }
            }
            Op::Truncate { len } => self.truncate(*len),
            Op::Punch { offset, len } => self.zero(*offset, offset.saturating_add(*len).min(self.len)),
            Op::Allocate { offset, len, extend } => self.allocate(*offset, *len, *extend),
        }
    }

    fn write(&mut self, offset: u64, bytes: &[u8], unit: u64, keep: &mut impl FnMut(u64) -> bool) {
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let room = (unit - at % unit).min(PAGE - at % PAGE) as usize;
            let part = room.min(bytes.len() - done);
            let within = (at % PAGE) as usize;
            if keep(at / unit) {
                let (number, bytes) = (at / PAGE, &bytes[done..done + part]);
                match part == PAGE as usize {
                    true => drop(self.pages.insert(number, page_of(bytes))),
                    false => self.change(number, |page| page[within..within + part].copy_from_slice(bytes)),
                }
                self.len = self.len.max(at + part as u64);
            }
            done += part;
        }
    }

    fn truncate(&mut self, len: u64) {
        if len < self.len {
            let whole = len.div_ceil(PAGE);
            self.pages.split_off(&whole);
            self.zero(len, whole * PAGE);
        }
        self.len = len;
    }

    /// Make `from..to` zeros; whole pages become holes.
    fn zero(&mut self, from: u64, to: u64) {
        if from >= to {
            return;
        }
        let touched: Vec<u64> =
            self.pages.range(from / PAGE..=(to - 1) / PAGE).map(|(page, _)| *page).collect();
        for page in touched {
            let start = page * PAGE;
            let (a, b) = (from.max(start) - start, to.min(start + PAGE) - start);
            // The tail of the last page is beyond the length, and invisible.
            let whole = a == 0 && (b == PAGE || start + b >= self.len);
            if whole {
                self.pages.remove(&page);
            } else {
                self.change(page, |page| page[a as usize..b as usize].fill(0));
            }
        }
    }

    fn allocate(&mut self, offset: u64, len: u64, extend: bool) {
        let end = offset.saturating_add(len);
        if len > 0 {
            let zeros = page_of(&[0; PAGE as usize]);
            for page in offset / PAGE..=(end - 1) / PAGE {
                self.pages.entry(page).or_insert_with(|| zeros.clone());
            }
        }
        if extend {
            self.len = self.len.max(end);
        }
    }

    /// An upper bound of the pages that a change adds.
    pub(super) fn pages_added(&self, op: &Op) -> u64 {
        let (from, to) = match op {
            Op::Write { .. } | Op::Allocate { .. } => op.range(),
            Op::Truncate { .. } | Op::Punch { .. } => return 0,
        };
        if from >= to {
            return 0;
        }
        let (first, last) = (from / PAGE, (to - 1) / PAGE);
        (last - first + 1) - self.pages.range(first..=last).count() as u64
    }
}

thread_local! {
    static ONE_BYTE_PAGES: [Page; 256] = std::array::from_fn(|byte| Rc::from(vec![byte as u8; PAGE as usize]));
    static ZEROS: Page = Rc::from([]);
}

/// A page with these bytes, without the zeros at its end. Pages that consist of one repeated byte are shared:
/// segments are prewritten with zeros, and benchmarks write the same byte repeatedly.
fn page_of(bytes: &[u8]) -> Page {
    // Compared in slices of 64 bytes and not byte by byte, for speed: a segment has many pages.
    let held =
        bytes.chunks(STEP).rposition(|step| *step != [0; STEP][..step.len()]).map_or(0, |at| (at + 1) * STEP);
    if held == 0 {
        return ZEROS.with(Rc::clone);
    }
    if bytes[0] == bytes[bytes.len() - 1] {
        let shared = ONE_BYTE_PAGES.with(|pages| pages[usize::from(bytes[0])].clone());
        if *shared == *bytes {
            return shared;
        }
    }
    Rc::from(&bytes[..held])
}

/// The fate of an unsynced write at a power cut.
enum Lot {
    Kept,
    Lost,
    Torn,
}

/// See the module.
#[derive(Clone, Default)]
pub(super) struct FileImage {
    pub(super) cached: Image,
    durable: Image,
    unsynced: VecDeque<(u64, Op)>,
    next_op: u64,
    /// Bytes of changes that are not in `unsynced` (see `apply`) and not synced yet.
    loose_bytes: u64,
    /// A failed sync left changes in the cache that will never be durable: pages are no longer shared.
    lost_some: bool,
    /// Pages in the page cache. `None`: all pages, because the machine has not lost power.
    warm: Option<BTreeSet<u64>>,
}

impl FileImage {
    /// Apply a change to the cached image; returns its number. Without `keeps` the change is not kept in
    /// `unsynced`: the disk is configured to have no power cuts.
    pub(super) fn apply(&mut self, op: Op, keeps: bool) -> u64 {
        self.cached.apply(&op, PAGE, |_| true);
        self.note_warm(op.range().0, op.bytes());
        if !keeps {
            self.loose_bytes += op.bytes();
            return self.next_op;
        }
        self.unsynced.push_back((self.next_op, op));
        self.next_op += 1;
        self.next_op - 1
    }

    /// The number of the next change. All changes with lower numbers have been applied to the cached image.
    pub(super) fn made(&self) -> u64 {
        self.next_op
    }

    /// Bytes that a sync would have to write.
    pub(super) fn unsynced_bytes(&self) -> u64 {
        self.loose_bytes + self.unsynced.iter().map(|(_, op)| op.bytes()).sum::<u64>()
    }

    /// Make all changes below `end` durable.
    pub(super) fn sync(&mut self, end: u64) {
        self.loose_bytes = 0;
        let all = !self.lost_some && self.unsynced.back().is_some_and(|(number, _)| *number < end);
        while self.unsynced.front().is_some_and(|(number, _)| *number < end) {
            let Some((_, op)) = self.unsynced.pop_front() else { break };
            if all { self.share(&op) } else { self.durable.apply(&op, PAGE, |_| true) }
        }
        if all {
            self.durable.len = self.cached.len;
        }
    }

    /// Make one change durable, though earlier ones may not be.
    pub(super) fn sync_one(&mut self, number: u64, bytes: u64) {
        self.loose_bytes = self.loose_bytes.saturating_sub(bytes);
        let Ok(at) = self.unsynced.binary_search_by_key(&number, |(n, _)| *n) else { return };
        if let Some((_, op)) = self.unsynced.remove(at) {
            self.durable.apply(&op, PAGE, |_| true);
        }
    }

    /// A sync failed: the changes below `end` are clean in the cache and will never be written.
    pub(super) fn lose(&mut self, end: u64) {
        self.lost_some = true;
        self.unsynced.retain(|(number, _)| *number >= end);
    }

    /// [`FileImage::lose`], for one change alone.
    pub(super) fn lose_one(&mut self, number: u64) {
        self.lost_some = true;
        self.unsynced.retain(|(n, _)| *n != number);
    }

    /// Make the durable image share the cached image's pages in the range of a change.
    fn share(&mut self, op: &Op) {
        let (from, to) = op.range();
        if from >= to {
            return;
        }
        let (first, last) = (from / PAGE, (to - 1) / PAGE);
        let stale: Vec<u64> = self.durable.pages.range(first..=last).map(|(page, _)| *page).collect();
        for page in stale.iter().filter(|page| !self.cached.pages.contains_key(page)) {
            self.durable.pages.remove(page);
        }
        for (page, content) in self.cached.pages.range(first..=last) {
            self.durable.pages.insert(*page, content.clone());
        }
    }

    /// Cut the power. Each unsynced change is kept or lost, independently of the others. A write can also be
    /// torn: then each of its sectors is kept or lost.
    pub(super) fn lose_power(&mut self, sector: u64, rng: &mut Rng) {
        for (_, op) in std::mem::take(&mut self.unsynced) {
            let tears = matches!(op, Op::Write { .. });
            match [Lot::Kept, Lot::Lost, Lot::Torn][rng.index(if tears { 3 } else { 2 })] {
                Lot::Kept => self.durable.apply(&op, PAGE, |_| true),
                Lot::Lost => {}
                Lot::Torn => {
                    // Two pieces may share a sector: make one random choice for each sector of the write.
                    let mut last = (u64::MAX, false);
                    self.durable.apply(&op, sector, |unit| {
                        if last.0 != unit {
                            last = (unit, rng.below(2) == 0);
                        }
                        last.1
                    });
                }
            }
        }
        self.cached = self.durable.clone();
        self.lost_some = false;
        self.warm = Some(BTreeSet::new());
    }

    /// A copy of the durable image, with an empty page cache.
    pub(super) fn durable_copy(&self) -> FileImage {
        FileImage {
            cached: self.durable.clone(),
            durable: self.durable.clone(),
            warm: Some(BTreeSet::new()),
            ..FileImage::default()
        }
    }

    /// Put a range into the page cache; returns whether it was there already.
    pub(super) fn warm_up(&mut self, offset: u64, len: u64) -> bool {
        let Some(warm) = &self.warm else { return true };
        let end = offset.saturating_add(len).min(self.cached.len);
        let cold = end > offset && (offset / PAGE..=(end - 1) / PAGE).any(|page| !warm.contains(&page));
        self.note_warm(offset, end.saturating_sub(offset));
        !cold
    }

    fn note_warm(&mut self, offset: u64, len: u64) {
        if let Some(warm) = &mut self.warm
            && len > 0
        {
            warm.extend(offset / PAGE..=(offset + len - 1) / PAGE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(offset: u64, len: usize, byte: u8) -> Op {
        Op::Write { offset, pieces: vec![Bytes::from(vec![byte; len])] }
    }

    #[test]
    fn a_torn_write_keeps_or_loses_whole_sectors_on_the_grid_of_the_file() {
        let mut torn = 0;
        for seed in 0..60 {
            let mut file = FileImage::default();
            file.apply(write(0, 8192, 1), true);
            file.sync(file.made());
            file.apply(
                Op::Write { offset: 100, pieces: vec![vec![2; 1000].into(), vec![2; 5000].into()] },
                true,
            );
            file.lose_power(512, &mut Rng::new(seed, 0));
            let bytes = file.cached.read(0, 10_000);
            assert_eq!(bytes.len(), 8192);
            let mut kept = 0;
            for (number, sector) in bytes.chunks(512).enumerate() {
                let written = |i: &usize| (100..6100).contains(&(number * 512 + i));
                let inside: Vec<u8> = (0..512).filter(written).map(|i| sector[i]).collect();
                assert!(inside.iter().all(|byte| *byte == 1) || inside.iter().all(|byte| *byte == 2));
                kept += usize::from(inside.first() == Some(&2));
            }
            torn += usize::from(kept > 0 && kept < 12);
        }
        assert!(torn > 5, "{torn}");
    }

    #[test]
    fn a_block_of_one_small_record_takes_little_more_than_the_record() {
        let mut file = FileImage::default();
        for block in 0..100 {
            let mut bytes = vec![0; PAGE as usize];
            bytes[..300].fill(block as u8 + 1);
            file.apply(Op::Write { offset: block * PAGE, pieces: vec![bytes.into()] }, false);
            file.apply(write(block * PAGE + 50, 10, 200), false);
        }
        let held: usize = file.cached.pages.values().map(|page| page.len()).sum();
        assert!(held <= 100 * 320, "{held} bytes are held");
        let read = file.cached.read(99 * PAGE, 8192);
        assert_eq!(
            (read.len(), read[49], read[50], read[299], read[300], read[4095]),
            (4096, 100, 200, 100, 0, 0)
        );
    }

    #[test]
    fn a_sync_covers_what_was_written_before_it_and_no_more() {
        for seed in 0..20 {
            let mut file = FileImage::default();
            file.apply(write(0, 100, 1), true);
            let end = file.made();
            file.apply(write(50, 100, 2), true);
            file.sync(end);
            file.lose_power(512, &mut Rng::new(seed, 0));
            let bytes = file.cached.read(0, 1000);
            assert!(bytes.len() == 100 || bytes.len() == 150);
            assert!(bytes[..50].iter().all(|byte| *byte == 1));
        }
    }

    fn random_op(rng: &mut Rng) -> Op {
        let (offset, len) = (rng.below(40_000), rng.below(12_000));
        match rng.below(6) {
            0 => Op::Truncate { len: offset },
            1 => Op::Punch { offset, len },
            2 => Op::Allocate { offset, len, extend: rng.below(2) == 0 },
            _ => write(offset, len as usize, rng.below(256) as u8),
        }
    }

    fn apply_naively(model: &mut Vec<u8>, op: &Op) {
        let grow = |model: &mut Vec<u8>, end: u64| {
            if model.len() < end as usize {
                model.resize(end as usize, 0);
            }
        };
        match op {
            Op::Truncate { len } => model.resize(*len as usize, 0),
            Op::Punch { offset, len } => {
                let end = ((offset + len) as usize).min(model.len());
                model[(*offset as usize).min(end)..end].fill(0);
            }
            Op::Allocate { offset, len, extend: true } => grow(model, offset + len),
            Op::Allocate { .. } => {}
            Op::Write { offset, pieces } => {
                let bytes = pieces.concat();
                if !bytes.is_empty() {
                    grow(model, offset + bytes.len() as u64);
                    model[*offset as usize..*offset as usize + bytes.len()].copy_from_slice(&bytes);
                }
            }
        }
    }

    #[test]
    fn random_changes_equal_a_plain_array_cached_and_after_sync_and_power_cut() {
        for seed in 0..150 {
            let mut rng = Rng::new(seed, 9);
            let (mut file, mut model) = (FileImage::default(), Vec::new());
            for _ in 0..40 {
                match rng.below(8) {
                    0 => file.sync(file.made()),
                    1 => file.sync(file.made() - rng.below(3).min(file.made())),
                    2 => {
                        file.sync(file.made());
                        file.lose_power(512, &mut rng);
                    }
                    _ => {
                        let op = random_op(&mut rng);
                        apply_naively(&mut model, &op);
                        file.apply(op, true);
                    }
                }
                assert!(file.cached.read(0, 1 << 20) == model, "seed {seed}");
            }
        }
    }

    #[test]
    fn a_shrink_that_was_synced_frees_and_does_not_come_back() {
        let mut file = FileImage::default();
        file.apply(write(0, 20_000, 3), true);
        file.sync(file.made());
        file.apply(Op::Truncate { len: 5000 }, true);
        file.sync(file.made());
        file.apply(Op::Truncate { len: 9000 }, true);
        file.sync(file.made());
        file.lose_power(512, &mut Rng::new(1, 0));
        assert_eq!(file.cached.pages(), 2);
        let bytes = file.cached.read(0, 20_000);
        assert_eq!(bytes.len(), 9000);
        assert!(bytes[..5000].iter().all(|byte| *byte == 3) && bytes[5000..].iter().all(|byte| *byte == 0));
    }
}
