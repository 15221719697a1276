//! Reading, holes, and the end of the file.
//!
//! A datafile may end inside the range that is read. This is not the file's end if another datafile has a
//! later strip. So the client then requests the facts of the other datafiles, and the file's size is
//! the largest end that any datafile implies. Bytes before that end that no datafile has are a hole, and read
//! as zeros.
//!
//! **A read that also returns the file's size returns only bytes that were in the file at some time**
//! ([`Opened::extent`]), even if other writes enlarge the file at the same time. The facts in one answer all
//! belong to one moment. For a file of one stream, every read ends at the smallest end that any part of its
//! answer reported. For a file of several streams, each stream that ended before the file's size is asked
//! once more. If it has grown, the read is repeated once, up to the size that was found before; otherwise the
//! missing bytes are a hole. Reads that return no size return the missing bytes as zeros, without a further
//! message.

use super::in_order::{Ranges, in_order};
use super::{Plan, bounds, contiguous};
use crate::core::{Operation, Told};
use crate::file::{Opened, Shape};
use crate::ops::logical_size;
use crate::session::Brought;
use crate::{Error, OpenFile};
use bytes::Bytes;
use futures_util::future::join_all;
use shoal_pattern::{Distribution, Pattern, View, Window, share_len};
use shoal_proto::op::Answer;
use shoal_proto::{Handle, Op, Rights, Status, StreamFacts, limits};
use std::collections::BTreeMap;

/// Bytes that one stream of a striped file lacks, and that the end of another one puts inside the file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Holes {
    /// They are zeros, also where a write beside the read is bringing them.
    AsMet,
    /// Their streams are asked once more, and read again if they grew.
    AreSure,
}

/// The answer to one message, or a piece of it.
pub(super) struct Fetched {
    index: u32,
    window: Window,
    /// The first bytes of the share; those left out are beyond the stream's end, or zeros.
    bulk: Bytes,
    facts: StreamFacts,
    /// The stream ended inside the window.
    ended: bool,
}

impl OpenFile {
    /// Read `len` bytes at `offset`; fewer only at the end of the file.
    ///
    /// # Errors
    /// `Stale`: the file is gone; `FileTooBig`: beyond what a file can be.
    pub async fn read(&self, offset: u64, len: usize) -> Result<Bytes, Error> {
        let o = self.0.client.core.begin("read", Some(self.0.handle));
        let pattern = contiguous(&o, offset, len as u64)?;
        self.0.read(&o, &pattern).await
    }

    /// Read a pattern of the file, packed in its order. Bytes beyond the end of the file read as zeros, but
    /// those after the last byte that is inside it are left out.
    ///
    /// # Errors
    /// As [`OpenFile::read`]; `Invalid`: the pattern reaches before the start of the file.
    pub async fn read_pattern(&self, pattern: &Pattern) -> Result<Bytes, Error> {
        let o = self.0.client.core.begin("read", Some(self.0.handle));
        self.0.read(&o, pattern).await
    }

    /// The same, and how far the file reached at the moment of the read: at most to the pattern's end, where
    /// all of that is there. The bytes of the pattern before it were in the file, those after it were not.
    /// The answers to the read have it, and it costs no message, but for holes of a striped file: each of
    /// its streams that has one is asked once more.
    ///
    /// # Errors
    /// As [`OpenFile::read_pattern`].
    pub async fn read_pattern_sized(&self, pattern: &Pattern) -> Result<(Bytes, u64), Error> {
        let o = self.0.client.core.begin("read", Some(self.0.handle));
        self.0.read_sized(&o, pattern, Holes::AreSure).await
    }
}

impl Opened {
    async fn read(&self, o: &Operation, pattern: &Pattern) -> Result<Bytes, Error> {
        Ok(self.read_sized(o, pattern, Holes::AsMet).await?.0)
    }

    async fn read_sized(
        &self,
        o: &Operation,
        pattern: &Pattern,
        holes: Holes,
    ) -> Result<(Bytes, u64), Error> {
        let place = async |plan: &Plan<'_>, fetched: &[Fetched], len| assemble(plan, fetched, len);
        self.read_to(o, pattern, holes, place).await
    }

    /// Read, and have the parts put together by `place`: the first so many packed bytes. With the result, how
    /// far the file reached.
    pub(super) async fn read_to<T: Default>(
        &self,
        o: &Operation,
        pattern: &Pattern,
        holes: Holes,
        place: impl AsyncFn(&Plan<'_>, &[Fetched], u64) -> Result<T, Error>,
    ) -> Result<(T, u64), Error> {
        self.has_forgotten_pages();
        let Some((from, _)) = bounds(o, pattern)? else { return Ok((T::default(), 0)) };
        let work = async |shape: Shape| {
            let mut window = Window::all(pattern);
            // A stuffed file holds nothing beyond its first strip: one byte there is enough to learn that it
            // still is.
            if shape.layout.is_none() && pattern.is_contiguous() {
                window.len = window.len.min(shape.template.stuffed_max().saturating_sub(from).max(1));
                if window.len < pattern.len() {
                    // Pages after the first strip depend on streams that the file does not have yet.
                    self.client.core.with_pages(|pages| pages.spoil(self.handle));
                }
            }
            self.read_shaped(o, &shape, (pattern, window, holes), &place).await
        };
        self.with_shape(o, Rights::READ, async |shape| Ok(shape), work).await
    }

    async fn read_shaped<T>(
        &self,
        o: &Operation,
        shape: &Shape,
        (pattern, window, holes): (&Pattern, Window, Holes),
        place: &impl AsyncFn(&Plan<'_>, &[Fetched], u64) -> Result<T, Error>,
    ) -> Result<(T, u64), Error> {
        let plan = Plan::new(self, o, shape, pattern, window);
        let fetched = self.fetch(&plan, window).await?;
        // A transfer may take longer than the time limit, which counts from its last piece.
        let o = &o.renewed(self.client.core.world.now());
        let plan = Plan { o, ..plan };
        if window.len == pattern.len() && !fetched.iter().any(|part| part.ended) {
            let end = pattern.bounds().map_or(0, |(_, end)| end);
            let whole = place(&plan, &fetched, pattern.len()).await?;
            return Ok((whole, u64::try_from(end).unwrap_or(0)));
        }
        let (size, is_sure) = self.extent(o, shape, &plan, (&fetched, holes)).await?;
        let fetched = if is_sure { fetched } else { self.fetch(&plan, window).await? };
        Ok((place(&plan, &fetched, len_within(pattern, size)).await?, size))
    }

    /// One round of requests, or one after another where a list is too long for one: the parts that came.
    async fn fetch(&self, plan: &Plan<'_>, window: Window) -> Result<Vec<Fetched>, Error> {
        let mut fetched = Vec::new();
        for window in plan.pattern.requests(window) {
            if fetched.is_empty() {
                fetched = self.fetch_request(&Plan { window, ..*plan }).await?;
                continue;
            }
            let o = &plan.o.for_part(self.client.core.world.now());
            self.may_use_locks(o).await?;
            fetched.extend(self.fetch_request(&Plan { o, window, ..*plan }).await?);
        }
        Ok(fetched)
    }

    /// One request a server for the window of a plan.
    async fn fetch_request(&self, plan: &Plan<'_>) -> Result<Vec<Fetched>, Error> {
        let parts = plan.each_whole(async |index: u32, stream: Handle| {
            let op = Op::Read { transfer: plan.transfer(index, stream, plan.window) };
            // Of a longer share its server holds no more than the connection's credit.
            let share = plan.share_bytes(index)?;
            let want = if share > limits::FLOW_CHUNK_BYTES as u64 { 0 } else { share };
            let told = plan.core.ask_with(plan.o, stream.server(), vec![op], Vec::new(), want).await?;
            let parts = fetched(plan, index, told)?;
            parts.iter().for_each(|part| self.filled(stream, &part.facts));
            Ok(parts)
        });
        Ok(parts.await?.into_iter().flatten().collect())
    }

    /// How far the file reached when these parts were read, and whether all that they lack before that was a
    /// hole of the file. Where that is not sure, it is of parts that are read from now on.
    async fn extent(
        &self,
        o: &Operation,
        shape: &Shape,
        plan: &Plan<'_>,
        (fetched, holes): (&[Fetched], Holes),
    ) -> Result<(u64, bool), Error> {
        if plan.datafiles.len() < 2 {
            let ends = fetched.iter().filter(|part| part.ended).map(|part| part.facts.size);
            let whole = fetched.iter().map(|part| part.facts.size).min();
            let end = ends.min().or(whole).unwrap_or(0);
            return Ok((plan.striping.logical_end(0, end), true));
        }
        let size = self.size_by(o, shape, fetched).await?;
        if holes == Holes::AsMet {
            return Ok((size, true));
        }
        let mut holed: BTreeMap<u32, u64> = BTreeMap::new();
        for part in fetched.iter().filter(|part| part.ended && part.lacks_before(plan, size)) {
            let end = holed.entry(part.index).or_insert(part.facts.size);
            *end = part.facts.size.min(*end);
        }
        let again = holed.into_iter().map(|(index, end)| async move {
            let facts = self.client.core.streamstat(o, plan.datafile(index)?).await?;
            if facts.generation > shape.generation {
                return Err(o.error(Status::StaleLayout));
            }
            Ok(facts.size == end)
        });
        let again: Vec<bool> = join_all(again).await.into_iter().collect::<Result<_, Error>>()?;
        Ok((size, again.into_iter().all(|is_same| is_same)))
    }

    /// A part was read: the kernel's pages are filled with it, where there is a mount.
    fn filled(&self, stream: Handle, facts: &StreamFacts) {
        let (object, count) = (self.handle, facts.count);
        self.client.core.note_pages(object, |pages| pages.filled(object, stream, count));
    }

    /// The file's size, from the facts that came with the data and those of the other datafiles.
    async fn size_by(&self, o: &Operation, shape: &Shape, fetched: &[Fetched]) -> Result<u64, Error> {
        let known = |index: usize| {
            let own = fetched.iter().filter(|part| part.index as usize == index).map(|part| part.facts);
            own.max_by_key(|facts| facts.size)
        };
        let Some(layout) = &shape.layout else {
            return Ok(known(0).map_or(0, |facts| facts.size));
        };
        let all = layout.datafiles.iter().enumerate().map(|(index, &stream)| async move {
            match known(index) {
                Some(facts) => Ok(facts),
                None => self.client.core.streamstat(o, stream).await,
            }
        });
        let facts: Vec<StreamFacts> = join_all(all).await.into_iter().collect::<Result<_, Error>>()?;
        if facts.iter().any(|facts| facts.generation > shape.generation) {
            return Err(o.error(Status::StaleLayout));
        }
        Ok(logical_size(layout, &facts))
    }
}

/// The parts of one server's answer: its pieces, which lie side by side, then the data of the reply itself or
/// what is after the stream's end.
fn fetched(plan: &Plan<'_>, index: u32, told: Told) -> Result<Vec<Fetched>, Error> {
    let bad = |words: String| plan.o.error(Status::BadMessage).from(told.server).because(words);
    let mut upto = 0;
    let mut parts = Vec::with_capacity(told.pieces.len() + 1);
    for Brought { from, len, facts, bulk } in told.pieces {
        if from != upto {
            return Err(bad(format!("packed bytes {upto} to {from} are in no piece")));
        }
        parts.push(fetched_part(plan, index, (from, len), (facts, bulk)).map_err(bad)?);
        upto += len;
    }
    let rest = plan.window.len - upto;
    match told.answers.first() {
        Some(&Answer::Data { len, facts }) if told.bulk.len() as u64 == u64::from(len) => {
            parts.push(fetched_part(plan, index, (upto, rest), (facts, told.bulk)).map_err(bad)?);
        }
        Some(&Answer::Sent { upto: sent, facts }) if sent == upto && told.bulk.is_empty() => {
            if rest > 0 {
                parts.push(fetched_part(plan, index, (upto, rest), (facts, Bytes::new())).map_err(bad)?);
            }
        }
        Some(&Answer::Sent { upto: sent, .. }) => {
            return Err(bad(format!("pieces up to {sent} were sent, and up to {upto} came")));
        }
        _ => return Err(bad("no data in its answer".to_owned())),
    }
    Ok(parts)
}

/// The part of an answer for packed bytes of the transfer, if it can be that.
fn fetched_part(
    plan: &Plan<'_>,
    index: u32,
    (from, len): (u64, u64),
    (facts, bulk): (StreamFacts, Bytes),
) -> Result<Fetched, String> {
    let window = Window::new(plan.window.from + from, len);
    let view = plan.view(index, window).map_err(|error| error.words)?;
    let share = match plan.is_after_end(index, window, facts.size) {
        true => Share { bytes: 0, needed: 0, ended: !view.is_empty() },
        false => match plan.whole_share(index, window, facts.size) {
            Some(bytes) => Share { bytes, needed: bytes, ended: false },
            None => Share::of(view, facts.size),
        },
    };
    let got = bulk.len() as u64;
    if got > share.bytes || got < share.needed {
        return Err(format!("{got} bytes, where {} to {} were expected", share.needed, share.bytes));
    }
    Ok(Fetched { index, window, bulk, facts, ended: share.ended })
}

impl Plan<'_> {
    /// Whether nothing of a window is inside a stream of this size: known without a walk.
    fn is_after_end(&self, index: u32, window: Window, size: u64) -> bool {
        let first = self.pattern.window_bounds(window.from, window.len).map(|(first, _)| first);
        let first = first.and_then(|first| u64::try_from(first).ok());
        first.is_some_and(|first| self.striping.physical_size(index, first) >= size)
    }

    /// The bytes of a share, if a stream of this size has all of them: known without a walk.
    fn whole_share(&self, index: u32, window: Window, size: u64) -> Option<u64> {
        let (_, end) = self.pattern.window_bounds(window.from, window.len)?;
        let end = self.striping.physical_size(index, u64::try_from(end).ok()?);
        if end > size {
            return None;
        }
        share_len(self.pattern, window, &self.striping, index).ok().flatten()
    }
}

/// The part of a share that a stream of a given size holds.
struct Share {
    /// Bytes of the share.
    bytes: u64,
    /// Those up to the last that the stream has.
    needed: u64,
    /// The stream ended before the share did.
    ended: bool,
}

impl Share {
    fn of(view: View<'_>, size: u64) -> Share {
        let mut share = Share { bytes: 0, needed: 0, ended: false };
        for run in view {
            let have = size.saturating_sub(run.physical).min(run.len);
            if have > 0 {
                share.needed = share.bytes + have;
            }
            share.ended |= have < run.len;
            share.bytes += run.len;
        }
        share
    }
}

/// Packed bytes of a pattern up to the last one that is inside a file of `size` bytes.
fn len_within(pattern: &Pattern, size: u64) -> u64 {
    let size = i64::try_from(size).unwrap_or(i64::MAX);
    let (mut packed, mut len) = (0, 0);
    for region in pattern.regions() {
        if region.offset < size {
            len = packed + region.len.min(size.abs_diff(region.offset));
        }
        packed += region.len;
    }
    len
}

/// Put the parts together: the first `len` packed bytes.
fn assemble(plan: &Plan<'_>, fetched: &[Fetched], len: u64) -> Result<Bytes, Error> {
    let len = usize::try_from(len).map_err(|_| plan.o.error(Status::OverLimit))?;
    if let [only] = fetched
        && let Some(bytes) = as_it_came(plan, only, len)?
    {
        return Ok(bytes);
    }
    let parts = fetched.iter().map(|part| part.ranges(plan)).collect::<Result<_, _>>()?;
    plan.core.copied(len);
    Ok(in_order(parts, len))
}

impl Fetched {
    /// Whether the file has bytes of this part's share, if it has `size` bytes, that its stream had not.
    fn lacks_before(&self, plan: &Plan<'_>, size: u64) -> bool {
        let (has, reaches) = (self.facts.size, plan.striping.physical_size(self.index, size));
        reaches > has
            && plan
                .view(self.index, self.window)
                .is_ok_and(|mut runs| runs.any(|run| run.physical < reaches && run.physical + run.len > has))
    }

    /// Bytes that came.
    pub(super) fn len(&self) -> u64 {
        self.bulk.len() as u64
    }

    /// Its packed ranges: the position of each, and those of its bytes that came.
    pub(super) fn ranges<'a>(&'a self, plan: &'a Plan<'_>) -> Result<Ranges<'a>, Error> {
        let ranges = plan.view(self.index, self.window)?.packed();
        Ok(Ranges::new(ranges, self.window.from, &self.bulk))
    }
}

/// One answer that holds everything, in packed order, needs no copy.
fn as_it_came(plan: &Plan<'_>, only: &Fetched, len: usize) -> Result<Option<Bytes>, Error> {
    let mut ranges = plan.view(only.index, only.window)?.packed();
    let one = ranges.next().is_some_and(|range| range.start == 0 && only.window.from == 0)
        && ranges.next().is_none();
    Ok((one && len <= only.bulk.len()).then(|| only.bulk.slice(..len)))
}
