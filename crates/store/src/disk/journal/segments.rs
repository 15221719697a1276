//! The segments of the journal: their states, their live bytes, and the list of free segments.
//!
//! A segment is a prewritten file. It is *free*, then *taken* (records are written to it), then *sealed*,
//! and free again when three things hold: the rows of its records are checkpointed, none of its contents
//! belongs to a stream any more (the records that replaced these contents are durable), and no operation
//! reads from it.
//!
//! **No lookup walks over all segments**: at 1 TB of small files there are 32,768 segments, and each change
//! needs the number of free segments. [`Kinds`] lists the segments of each kind; every change of a segment
//! updates it.

use super::super::table::live::Place;
use crate::Lsn;
use shoal_env::mutant::{self, Mutant};
use shoal_env::{AlignedBuf, Env, File, OpenOptions};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Free segments kept; the files of further ones are removed.
pub(crate) const FREE_MAX: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Taken by number before its file is ready; groups for it wait in memory.
    Unprepared,
    /// Prewritten, nothing in it lives.
    Free,
    /// Groups are written to it.
    Taken,
    /// Full, or the last one before a restart.
    Sealed,
}

pub(crate) struct Segment {
    pub state: State,
    pub generation: u64,
    /// The newest record in it.
    pub last: Lsn,
    /// Bytes of contents that are homes of streams, or that ceased to be by a record that is not durable
    /// yet.
    pub live: u64,
    pub cleaning: bool,
    pub files: Rc<SegmentFiles>,
}

/// A segment's two descriptors, opened when first needed, and its readers.
pub(crate) struct SegmentFiles {
    pub path: PathBuf,
    direct: RefCell<Option<File>>,
    plain: RefCell<Option<File>>,
    readers: Cell<usize>,
}

impl SegmentFiles {
    fn new(path: PathBuf) -> Rc<SegmentFiles> {
        Rc::new(SegmentFiles {
            path,
            direct: RefCell::default(),
            plain: RefCell::default(),
            readers: Cell::new(0),
        })
    }

    /// For groups that are durable when written.
    pub async fn direct(&self, env: &Env) -> io::Result<File> {
        let options = OpenOptions { direct: true, dsync: true, ..OpenOptions::default() };
        SegmentFiles::open(&self.direct, env, &self.path, options).await
    }

    /// For reading, and for groups that a later sync makes durable.
    pub async fn plain(&self, env: &Env) -> io::Result<File> {
        SegmentFiles::open(&self.plain, env, &self.path, OpenOptions::default()).await
    }

    async fn open(
        slot: &RefCell<Option<File>>,
        env: &Env,
        path: &Path,
        options: OpenOptions,
    ) -> io::Result<File> {
        if let Some(file) = slot.borrow().as_ref() {
            return Ok(file.clone());
        }
        let file = env.open(path, options).await?;
        Ok(slot.borrow_mut().get_or_insert(file).clone())
    }
}

/// A content is being read: the segment is not reused.
pub(crate) struct Reading(pub Rc<SegmentFiles>);

impl Reading {
    fn new(files: &Rc<SegmentFiles>) -> Reading {
        files.readers.set(files.readers.get() + 1);
        Reading(files.clone())
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.0.readers.set(self.0.readers.get() - 1);
    }
}

/// A content that is no home any more once the record at `lsn` is durable.
struct Release {
    lsn: Lsn,
    place: Place,
    len: u64,
}

/// Numbers of the segments with pending work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Kinds {
    unprepared: BTreeSet<u64>,
    free: BTreeSet<u64>,
    /// Sealed, and nothing lives in it: free as soon as its rows are checkpointed and its readers done.
    dead: BTreeSet<u64>,
    /// Sealed, and less than half alive.
    poor: BTreeSet<u64>,
}

impl Kinds {
    fn enter(&mut self, number: u64, segment: &Segment, segment_bytes: u64) {
        match segment.state {
            State::Unprepared => self.unprepared.insert(number),
            State::Free => self.free.insert(number),
            State::Sealed if segment.live == 0 => self.dead.insert(number),
            State::Sealed if segment.live.saturating_mul(2) < segment_bytes => self.poor.insert(number),
            State::Sealed | State::Taken => false,
        };
    }

    fn leave(&mut self, number: u64) {
        for kind in [&mut self.unprepared, &mut self.free, &mut self.dead, &mut self.poor] {
            kind.remove(&number);
        }
    }
}

pub(crate) struct Segments {
    dir: PathBuf,
    segment_bytes: u64,
    map: BTreeMap<u64, Segment>,
    kinds: Kinds,
    /// Segments visited so far, for tests: the cost of an operation.
    looks: Cell<u64>,
    generation: u64,
    number_next: u64,
    releases: VecDeque<Release>,
}

/// The file of a segment.
pub(crate) fn file_name(number: u64) -> String {
    format!("{number:08x}.seg")
}

/// The number of the segment in a file.
pub(crate) fn number_of(name: &str) -> Option<u64> {
    let hex = name.strip_suffix(".seg")?;
    u64::from_str_radix(hex, 16).ok().filter(|number| file_name(*number) == name)
}

impl Segments {
    /// No segments, of `segment_bytes` each; generations continue from `generation`.
    pub fn new(dir: PathBuf, segment_bytes: u64, generation: u64) -> Segments {
        Segments {
            dir,
            segment_bytes,
            map: BTreeMap::new(),
            kinds: Kinds::default(),
            looks: Cell::new(0),
            generation,
            number_next: 1,
            releases: VecDeque::new(),
        }
    }

    /// A segment.
    pub fn get(&self, number: u64) -> Option<&Segment> {
        self.looks.set(self.looks.get() + 1);
        self.map.get(&number)
    }

    /// Change a segment, then update its kind.
    fn change<T>(&mut self, number: u64, change: impl FnOnce(&mut Segment) -> T) -> Option<T> {
        self.looks.set(self.looks.get() + 1);
        let segment = self.map.get_mut(&number)?;
        let changed = change(segment);
        self.kinds.leave(number);
        self.kinds.enter(number, segment, self.segment_bytes);
        Some(changed)
    }

    fn remove(&mut self, number: u64) -> Option<Segment> {
        self.kinds.leave(number);
        self.map.remove(&number)
    }

    /// All segments.
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Segments that are not free.
    pub fn used(&self) -> usize {
        self.map.len() - self.kinds.free.len()
    }

    /// The kinds as computed by a walk over all segments.
    #[cfg(test)]
    fn walked(&self) -> Kinds {
        let mut kinds = Kinds::default();
        self.map.iter().for_each(|(number, segment)| kinds.enter(*number, segment, self.segment_bytes));
        kinds
    }

    /// An existing segment.
    pub fn add(&mut self, number: u64, state: State, generation: u64, last: Lsn, live: u64) {
        let files = SegmentFiles::new(self.dir.join(file_name(number)));
        self.number_next = self.number_next.max(number + 1);
        self.kinds.leave(number);
        let segment = Segment { state, generation, last, live, cleaning: false, files };
        self.kinds.enter(number, &segment, self.segment_bytes);
        self.map.insert(number, segment);
    }

    /// A number for a new segment.
    pub fn number(&mut self) -> u64 {
        let number = self.number_next;
        self.number_next += 1;
        number
    }

    /// The path of a segment's file.
    pub fn path(&self, number: u64) -> PathBuf {
        self.dir.join(file_name(number))
    }

    /// Make the free segments durable as they were found, with their names. A killed server may have left
    /// one in the page cache alone: prepared in part, or with a group that was cut. A durable group written
    /// over it would be lost with it at a power cut.
    pub async fn sync_free(&self, env: &Env) -> io::Result<()> {
        for segment in self.kinds.free.iter().filter_map(|number| self.map.get(number)) {
            segment.files.plain(env).await?.sync().await?;
        }
        env.sync_dir(&self.dir).await
    }

    /// Free segments.
    pub fn ready(&self) -> usize {
        self.kinds.free.len()
    }

    /// Take a free segment with a new generation, or, if none is ready, the number of one to be prepared.
    pub fn take(&mut self) -> (u64, u64) {
        self.generation += 1;
        let generation = self.generation;
        if let Some(&number) = self.kinds.free.first() {
            self.change(number, |segment| {
                debug_assert!(segment.state == State::Free);
                debug_assert!(segment.live == 0 || mutant::is(Mutant::ReuseEarly), "nothing in it lives");
                debug_assert!(segment.generation < generation, "generations only grow");
                segment.state = State::Taken;
                segment.generation = generation;
                segment.last = Lsn(0);
            });
            return (number, generation);
        }
        let number = self.number();
        self.add(number, State::Unprepared, self.generation, Lsn(0), 0);
        (number, self.generation)
    }

    /// No more groups gather for a segment.
    pub fn seal(&mut self, number: u64, last: Lsn) {
        self.change(number, |segment| {
            segment.last = last;
            if segment.state == State::Taken {
                segment.state = State::Sealed;
            }
        });
    }

    /// A segment's file is ready now.
    pub fn prepared(&mut self, number: u64) {
        let known = self.change(number, |segment| {
            if segment.state == State::Unprepared {
                // Groups may have filled it while it was prepared.
                segment.state = if segment.last == Lsn(0) { State::Taken } else { State::Sealed };
            }
        });
        if known.is_none() {
            self.add(number, State::Free, 0, Lsn(0), 0);
        }
    }

    /// A segment that groups wait for and whose file is not ready.
    pub fn wanted(&self) -> Option<u64> {
        self.kinds.unprepared.first().copied()
    }

    /// A content begins to live.
    pub fn settle(&mut self, (number, _): Place, len: u64) {
        self.change(number, |segment| segment.live += len);
    }

    /// A content is dead when the record at `lsn` is durable.
    pub fn release(&mut self, lsn: Lsn, place: Place, len: u64) {
        self.releases.push_back(Release { lsn, place, len });
    }

    /// Records up to here are durable. Returns whether a sealed segment has fewer live bytes now.
    pub fn durable(&mut self, durable: Lsn) -> bool {
        let mut poorer = false;
        while let Some(release) = self.releases.front() {
            if release.lsn > durable {
                break;
            }
            let ((number, generation), len) = (release.place, release.len);
            self.releases.pop_front();
            let sealed = self.change(number, |segment| {
                let is_same = segment.generation == generation;
                if is_same {
                    segment.live = segment.live.saturating_sub(len);
                }
                is_same && segment.state == State::Sealed
            });
            poorer |= sealed == Some(true);
        }
        poorer
    }

    /// Read from a segment, if it is still of that generation.
    pub fn reading(&self, (number, generation): Place) -> Option<Reading> {
        let segment = self.get(number).filter(|segment| segment.generation == generation)?;
        Some(Reading::new(&segment.files))
    }

    /// Free dead segments. Returns whether any was freed, and the surplus files: none while changes wait for
    /// room (`is_short`).
    pub fn recycle(&mut self, checkpointed: Lsn, is_short: bool) -> (bool, Vec<PathBuf>) {
        let early = mutant::is(Mutant::ReuseEarly);
        let candidates: Vec<u64> = match early {
            true => self.map.keys().copied().collect(),
            false => self.kinds.dead.iter().copied().collect(),
        };
        let mut freed = false;
        for number in candidates {
            let freed_now = self.change(number, |segment| {
                let unused = segment.live == 0 || early && segment.live < 65_536;
                let checkpointed = segment.last <= checkpointed || early;
                let dead = unused && checkpointed && segment.files.readers.get() == 0;
                let free = segment.state == State::Sealed && dead && !segment.cleaning;
                if free {
                    segment.state = State::Free;
                }
                free
            });
            freed |= freed_now == Some(true);
        }
        let surplus: Vec<u64> = {
            let kept = if is_short { usize::MAX } else { FREE_MAX };
            self.kinds.free.iter().copied().skip(kept).collect()
        };
        let surplus = surplus
            .into_iter()
            .rev()
            .filter_map(|number| self.remove(number))
            .map(|segment| segment.files.path.clone())
            .collect();
        (freed, surplus)
    }

    /// Mark a segment as being collected: it is not freed meanwhile, even if it is dead.
    pub fn set_cleaning(&mut self, (number, _): Place, cleaning: bool) {
        self.change(number, |segment| segment.cleaning = cleaning);
    }

    /// A sealed, checkpointed segment less than half alive, and none of `failed`.
    pub fn to_clean(&self, checkpointed: Lsn, failed: &BTreeSet<Place>) -> Option<Place> {
        let ripe = |number: &u64| {
            let segment = self.get(*number)?;
            let place = (*number, segment.generation);
            let ripe = !segment.cleaning && segment.last <= checkpointed && !failed.contains(&place);
            ripe.then_some(place)
        };
        self.kinds.poor.iter().find_map(ripe)
    }
}

/// Make and prewrite a segment's file, durably: then groups change neither its length nor its blocks.
/// `between` is called with the file after each part but the last. Writes bypass the page cache if
/// possible: groups bypass it too, and would have to evict each page first.
pub(crate) async fn prepare(
    env: &Env,
    path: &Path,
    bytes: u64,
    part_bytes: u64,
    between: impl AsyncFn(&File) -> io::Result<()>,
) -> io::Result<()> {
    let options = OpenOptions { create: true, direct: true, ..OpenOptions::default() };
    let file = env.open(path, options).await?;
    let mut zeros = AlignedBuf::zeroed(part_bytes.min(bytes) as usize);
    let mut at = 0;
    while at < bytes {
        let n = (bytes - at).min(part_bytes);
        zeros.set_len(n as usize);
        let (buf, written) = file.write_aligned(at, zeros).await;
        written?;
        zeros = buf;
        at += n;
        if at < bytes {
            between(&file).await?;
        }
    }
    file.sync().await?;
    env.sync_dir(path.parent().unwrap_or(Path::new("/"))).await
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: u64 = 1 << 20;

    fn segments(count: u64) -> Segments {
        let mut segments = Segments::new(PathBuf::from("journal"), BYTES, count);
        for number in 1..=count {
            segments.add(number, State::Sealed, number, Lsn(1), BYTES);
        }
        segments
    }

    /// Pseudo-random numbers.
    fn random(state: &mut u64, below: u64) -> u64 {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*state >> 33) % below
    }

    #[test]
    fn what_is_known_of_each_kind_is_what_a_walk_over_all_segments_finds() {
        for seed in 0..20 {
            let (mut segments, mut state, mut lsn) = (segments(8), seed, 1);
            let mut current = segments.take();
            for _ in 0..2000 {
                lsn += 1;
                let number = 1 + random(&mut state, segments.number_next);
                let place = (number, segments.map.get(&number).map_or(0, |s| s.generation));
                let len = random(&mut state, BYTES / 2);
                match random(&mut state, 8) {
                    0 => {
                        segments.seal(current.0, Lsn(lsn));
                        current = segments.take();
                    }
                    1 => segments.settle(current, len),
                    2 | 3 => segments.release(Lsn(lsn), place, len),
                    4 => drop(segments.durable(Lsn(lsn - random(&mut state, 20).min(lsn)))),
                    5 => drop(segments.recycle(Lsn(lsn - random(&mut state, 50).min(lsn)), false)),
                    6 => segments.set_cleaning(place, random(&mut state, 2) == 0),
                    _ => {
                        let number = segments.wanted().unwrap_or_else(|| segments.number());
                        segments.prepared(number);
                    }
                }
                assert_eq!(segments.kinds, segments.walked(), "seed {seed}");
                let free = segments.map.values().filter(|s| s.state == State::Free).count();
                assert_eq!((segments.ready(), segments.used()), (free, segments.map.len() - free));
            }
        }
    }

    #[test]
    fn what_a_change_or_a_checkpoint_asks_of_the_segments_does_not_grow_with_their_number() {
        let looks = |count| {
            let mut segments = segments(count);
            segments.prepared(count + 1);
            segments.prepared(count + 2);
            segments.looks.set(0);
            let place = segments.take();
            for lsn in 2..100 {
                assert!(segments.ready() > 0);
                segments.settle(place, 8192);
                segments.release(Lsn(lsn), (lsn, lsn), BYTES * 3 / 4);
                segments.durable(Lsn(lsn));
                let _ = (
                    segments.wanted(),
                    segments.to_clean(Lsn(1), &BTreeSet::new()),
                    segments.recycle(Lsn(1), false),
                    segments.used(),
                );
            }
            segments.looks.get()
        };
        assert_eq!(looks(200), looks(32_768));
    }
}
