//! The segments of the journal: which there are, what lives in each, which are free.
//!
//! A segment is a prewritten file. It is *free*, then *taken* (groups are written to it), then *sealed*, and free again
//! when three things hold: the rows of its records are checkpointed, none of its contents is the home of a stream (the
//! record that ended that is durable), and nobody reads from it.

use super::super::table::live::Place;
use crate::Lsn;
use shoal_env::mutant::{self, Mutant};
use shoal_env::{AlignedBuf, Env, File, OpenOptions};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Free segments kept; the files of more are removed.
pub(crate) const FREE_MAX: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Taken by number before its file is ready; groups for it wait in memory.
    Unprepared,
    /// Prewritten, nothing in it lives.
    Free,
    /// Groups are written to it.
    Taken,
    /// Full, or left behind at a restart.
    Sealed,
}

pub(crate) struct Segment {
    pub state: State,
    pub generation: u64,
    /// The newest record in it.
    pub last: Lsn,
    /// Bytes of contents that are homes of streams, or were until a record that is not durable yet.
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

/// Somebody reads a content: the segment stays as it is.
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

/// A content that is not a home any more once the record at `lsn` is durable.
struct Release {
    lsn: Lsn,
    place: Place,
    len: u64,
}

pub(crate) struct Segments {
    dir: PathBuf,
    pub map: BTreeMap<u64, Segment>,
    generation: u64,
    number_next: u64,
    releases: VecDeque<Release>,
}

/// The file of a segment.
pub(crate) fn file_name(number: u64) -> String {
    format!("{number:08x}.seg")
}

/// The segment a file holds.
pub(crate) fn number_of(name: &str) -> Option<u64> {
    let hex = name.strip_suffix(".seg")?;
    u64::from_str_radix(hex, 16).ok().filter(|number| file_name(*number) == name)
}

impl Segments {
    /// None yet; generations go on behind `generation`.
    pub fn new(dir: PathBuf, generation: u64) -> Segments {
        Segments { dir, map: BTreeMap::new(), generation, number_next: 1, releases: VecDeque::new() }
    }

    /// A segment that is there.
    pub fn add(&mut self, number: u64, state: State, generation: u64, last: Lsn, live: u64) {
        let files = SegmentFiles::new(self.dir.join(file_name(number)));
        self.number_next = self.number_next.max(number + 1);
        self.map.insert(number, Segment { state, generation, last, live, cleaning: false, files });
    }

    /// A number for a new segment.
    pub fn number(&mut self) -> u64 {
        let number = self.number_next;
        self.number_next += 1;
        number
    }

    /// Where a segment's file is, or will be.
    pub fn path(&self, number: u64) -> PathBuf {
        self.dir.join(file_name(number))
    }

    /// Make the free segments durable as they were found, their names too. A server that was killed may have left one in the
    /// page cache alone: prepared in part, or with a group that was cut. What is written over it with its own durability
    /// would go with it at a power cut.
    pub async fn sync_free(&self, env: &Env) -> io::Result<()> {
        for segment in self.map.values().filter(|segment| segment.state == State::Free) {
            segment.files.plain(env).await?.sync().await?;
        }
        env.sync_dir(&self.dir).await
    }

    /// Free segments.
    pub fn ready(&self) -> usize {
        self.map.values().filter(|segment| segment.state == State::Free).count()
    }

    /// Take a free segment with a new generation, or, if none is ready, the number of one to be prepared.
    pub fn take(&mut self) -> (u64, u64) {
        self.generation += 1;
        let free = self.map.iter_mut().find(|(_, segment)| segment.state == State::Free);
        if let Some((number, segment)) = free {
            segment.state = State::Taken;
            segment.generation = self.generation;
            segment.last = Lsn(0);
            return (*number, self.generation);
        }
        let number = self.number();
        self.add(number, State::Unprepared, self.generation, Lsn(0), 0);
        (number, self.generation)
    }

    /// No more groups are gathered for a segment.
    pub fn seal(&mut self, number: u64, last: Lsn) {
        if let Some(segment) = self.map.get_mut(&number) {
            segment.last = last;
            if segment.state == State::Taken {
                segment.state = State::Sealed;
            }
        }
    }

    /// A segment whose file is ready now.
    pub fn prepared(&mut self, number: u64) {
        match self.map.get_mut(&number) {
            // Groups may have filled it already while it was prepared.
            Some(segment) if segment.state == State::Unprepared => {
                segment.state = if segment.last == Lsn(0) { State::Taken } else { State::Sealed };
            }
            Some(_) => {}
            None => self.add(number, State::Free, 0, Lsn(0), 0),
        }
    }

    /// A segment that groups wait for and whose file is not ready.
    pub fn wanted(&self) -> Option<u64> {
        self.map.iter().find(|(_, segment)| segment.state == State::Unprepared).map(|(number, _)| *number)
    }

    /// A content begins to live.
    pub fn settle(&mut self, (number, _): Place, len: u64) {
        if let Some(segment) = self.map.get_mut(&number) {
            segment.live += len;
        }
    }

    /// A content ends to live when the record at `lsn` is durable.
    pub fn release(&mut self, lsn: Lsn, place: Place, len: u64) {
        self.releases.push_back(Release { lsn, place, len });
    }

    /// Records up to here are durable. Whether a sealed segment is poorer by that.
    pub fn durable(&mut self, durable: Lsn) -> bool {
        let mut poorer = false;
        while let Some(release) = self.releases.front() {
            if release.lsn > durable {
                break;
            }
            let (number, generation) = release.place;
            if let Some(segment) = self.map.get_mut(&number)
                && segment.generation == generation
            {
                segment.live = segment.live.saturating_sub(release.len);
                poorer |= segment.state == State::Sealed;
            }
            self.releases.pop_front();
        }
        poorer
    }

    /// Read from a segment, if it is still of that generation.
    pub fn reading(&self, (number, generation): Place) -> Option<Reading> {
        let segment = self.map.get(&number).filter(|segment| segment.generation == generation)?;
        Some(Reading::new(&segment.files))
    }

    /// Free what does not live any more. Whether anything was freed, and the files that are too many.
    pub fn recycle(&mut self, checkpointed: Lsn) -> (bool, Vec<PathBuf>) {
        let mut freed = false;
        for segment in self.map.values_mut() {
            let early = mutant::is(Mutant::ReuseEarly);
            let (unused, checkpointed) =
                (segment.live == 0 || early && segment.live < 65_536, segment.last <= checkpointed || early);
            let dead = unused && checkpointed && segment.files.readers.get() == 0;
            if segment.state == State::Sealed && dead && !segment.cleaning {
                segment.state = State::Free;
                freed = true;
            }
        }
        let free: Vec<u64> =
            self.map.iter().filter(|(_, s)| s.state == State::Free).map(|(number, _)| *number).collect();
        let surplus = free.into_iter().skip(FREE_MAX).rev();
        let surplus = surplus
            .filter_map(|number| self.map.remove(&number))
            .map(|segment| segment.files.path.clone())
            .collect();
        (freed, surplus)
    }

    /// A sealed, checkpointed segment less than half alive.
    pub fn to_clean(&self, checkpointed: Lsn, segment_bytes: u64) -> Option<Place> {
        let poor = |segment: &Segment| {
            segment.state == State::Sealed
                && !segment.cleaning
                && segment.last <= checkpointed
                && segment.live > 0
                && segment.live * 2 < segment_bytes
        };
        self.map.iter().find(|(_, segment)| poor(segment)).map(|(number, s)| (*number, s.generation))
    }
}

/// Make and prewrite a segment's file, durably: groups then change neither its length nor where it lies. Behind each part
/// but the last comes `between`, with the file. Past the page cache, where that can be: groups are written past it too, and
/// would have to have each page thrown out of it first.
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
