//! Loads rows from disk that handlers did not find in memory, on another thread than the shard's, for many
//! requests at a time.
//!
//! One closure reads in one transaction for all requests that come in one turn of the event loop. A few
//! closures run at once, so that a page that must come from the disk delays only the requests of its
//! closure. If a checkpoint ends during a load, the load is repeated.

use super::CollectionState;
use super::apply::NotLoaded;
use super::table::Fetched;
use crate::stream_row::{Home, StreamRow, stream_key, stream_of_key};
use crate::{Changes, Loaded, LoadedRange, Lookup, Needs, RangeNeed, StoreError};
use bytes::Bytes;
use futures_channel::oneshot;
use shoal_proto::Handle;
use std::collections::VecDeque;
use std::rc::Rc;

/// Most closures that read at once.
const LOADERS_MAX: usize = 4;
/// Approximate rows read by one closure: no other request joins one that needs so many.
const LOADER_ROWS_MAX: usize = 4096;
/// Fewest rows of a range fetched at once: after many removed rows, a scan for one row must not fetch them
/// one by one.
const RANGE_ROWS_MIN: usize = 256;
/// Most rows of a range read at once.
const RANGE_ROWS_MAX: usize = 4096;

type Answer = oneshot::Sender<Result<Fetched, StoreError>>;

/// A request that waits for a closure.
struct Waiting {
    keys: Vec<Bytes>,
    ranges: Vec<RangeNeed>,
    answer: Answer,
}

impl Waiting {
    /// Most rows that it will have read, without those that lead to several.
    fn rows(&self) -> usize {
        let of_range = |need: &RangeNeed| need.limit * if need.follow.is_some() { 2 } else { 1 };
        self.keys.len() + self.ranges.iter().map(of_range).sum::<usize>()
    }
}

/// Requests that wait for a closure.
#[derive(Default)]
pub(super) struct Loads {
    waiting: VecDeque<Waiting>,
    running: usize,
}

impl Loads {
    /// The requests of one closure, in order; none: no request waits.
    fn next(&mut self) -> Vec<Waiting> {
        let mut rows = 0;
        let fits = |waiting: &&Waiting| {
            let has_room = rows < LOADER_ROWS_MAX;
            rows += waiting.rows();
            has_room
        };
        let count = self.waiting.iter().take_while(fits).count();
        self.waiting.drain(..count).collect()
    }
}

impl CollectionState {
    async fn fetch(self: &Rc<Self>, keys: Vec<Bytes>, ranges: Vec<RangeNeed>) -> Result<Fetched, StoreError> {
        let (send, receive) = oneshot::channel();
        let start = {
            let mut loads = self.loads.borrow_mut();
            loads.waiting.push_back(Waiting { keys, ranges, answer: send });
            let start = loads.running < LOADERS_MAX && (loads.running == 0 || loads.waiting.len() == 1);
            loads.running += usize::from(start);
            start
        };
        if start {
            let collection = self.clone();
            self.env.spawn("store load", async move { collection.run_loads().await });
        }
        receive.await.unwrap_or_else(|_| Err(StoreError::invalid("the store was closed")))
    }

    async fn run_loads(self: Rc<Self>) {
        loop {
            let together = self.loads.borrow_mut().next();
            if together.is_empty() {
                self.loads.borrow_mut().running -= 1;
                return;
            }
            let (mut keys, mut ranges, mut answers) = (Vec::new(), Vec::new(), Vec::new());
            for waiting in together {
                answers.push((waiting.keys.len(), waiting.ranges.len(), waiting.answer));
                keys.extend(waiting.keys);
                ranges.extend(waiting.ranges);
            }
            self.counters.borrow_mut().loads += keys.len() as u64;
            match self.table.fetch(keys, ranges).await {
                Ok(fetched) => {
                    let followed = fetched.ranges.iter().map(|range| range.followed.len() as u64);
                    self.counters.borrow_mut().loads += followed.sum::<u64>();
                    let (mut values, mut ranges) = (fetched.values.into_iter(), fetched.ranges.into_iter());
                    for (keys, range_count, answer) in answers {
                        let values = values.by_ref().take(keys).collect();
                        let ranges = ranges.by_ref().take(range_count).collect();
                        // The request may have been cancelled.
                        drop(answer.send(Ok(Fetched { values, ranges })));
                    }
                }
                Err(error) => {
                    for (_, _, answer) in answers {
                        drop(answer.send(Err(error.clone())));
                    }
                }
            }
        }
    }

    pub(super) async fn load(
        self: &Rc<Self>,
        needs: Needs,
        mut loaded: Loaded,
    ) -> Result<Loaded, StoreError> {
        let Needs { mut keys, ranges, contents } = needs;
        let ranges: Vec<RangeNeed> = ranges
            .into_iter()
            .map(|need| RangeNeed { limit: need.limit.clamp(RANGE_ROWS_MIN, RANGE_ROWS_MAX), ..need })
            .collect();
        loop {
            let epoch = self.rows.borrow().epoch;
            if loaded.epoch != epoch {
                // Rows of an older view: the handler requests again those it still needs.
                loaded.rows.clear();
                loaded.ranges.clear();
                loaded.epoch = epoch;
            }
            keys.extend(contents.iter().filter_map(|handle| self.unknown_row(*handle, &loaded)));
            if keys.is_empty() && ranges.is_empty() {
                break;
            }
            let fetched = self.fetch(keys.clone(), ranges.clone()).await?;
            if self.rows.borrow().epoch == epoch {
                let streams: Vec<Handle> = keys.iter().filter_map(|key| stream_of_key(key)).collect();
                self.enter(&mut loaded, keys, ranges, fetched);
                self.refuse_damaged(&streams, &loaded)?;
                break;
            }
        }
        for handle in contents {
            self.load_content(handle, &mut loaded).await?;
        }
        Ok(loaded)
    }

    /// A row that cannot be decoded would be requested without end: return the error to the request.
    fn refuse_damaged(&self, streams: &[Handle], loaded: &Loaded) -> Result<(), StoreError> {
        streams.iter().try_for_each(|handle| match self.stream_row(*handle, loaded) {
            Err(NotLoaded::Damaged(error)) => Err(error),
            _ => Ok(()),
        })
    }

    fn unknown_row(&self, handle: Handle, loaded: &Loaded) -> Option<Bytes> {
        let key = stream_key(handle);
        let lookup = self.rows.borrow().lookup(&key, loaded);
        (lookup == Lookup::Unknown).then(|| Bytes::copy_from_slice(&key))
    }

    /// Keep the fetched rows. Rows of a range stay with the request: a long listing would evict everything
    /// else from the cache.
    fn enter(&self, loaded: &mut Loaded, keys: Vec<Bytes>, ranges: Vec<RangeNeed>, fetched: Fetched) {
        let mut rows = self.rows.borrow_mut();
        for (key, value) in keys.into_iter().zip(fetched.values) {
            rows.enter(&key, value.as_ref());
            loaded.rows.insert(key, value);
        }
        for (RangeNeed { prefix, after, .. }, found) in ranges.into_iter().zip(fetched.ranges) {
            let last = found.rows.last().map(|(key, _)| key.clone()).filter(|_| !found.complete);
            loaded.rows.extend(found.followed);
            loaded.ranges.push(LoadedRange { prefix, after, last, rows: found.rows });
        }
    }

    async fn load_content(self: &Rc<Self>, handle: Handle, loaded: &mut Loaded) -> Result<(), StoreError> {
        // A row that is unknown again (a checkpoint ended), gone or elsewhere: the handler notices and
        // requests it again.
        let Ok(Some(row)) = self.stream_row(handle, loaded) else { return Ok(()) };
        if let Home::Log { .. } = row.home {
            let content = self.read_log(&row).await?;
            loaded.contents.insert(handle, (identity(&row), content));
        }
        Ok(())
    }

    /// The content of a small stream, if it is in memory.
    pub(super) fn small_content(&self, handle: Handle, loaded: &Loaded) -> Option<Bytes> {
        let row = self.stream_row(handle, loaded).ok()?;
        let Some(row) = row else { return Some(Bytes::new()) };
        match row.home {
            Home::Tiny => Some(row.tiny),
            Home::File => Some(Bytes::new()),
            Home::Log { .. } => {
                let (of, content) =
                    loaded.contents.get(&handle).map_or((None, None), |(of, c)| (Some(of), Some(c)));
                let cached = self.cached_content(&row);
                cached.or_else(|| {
                    content.filter(|_| of == Some(&identity(&row))).map(|c| valid(&row, c.clone()))
                })
            }
        }
    }

    /// A stream's row, loaded if necessary; with everything loaded for it.
    pub(super) async fn wait_row(self: &Rc<Self>, handle: Handle) -> Result<(StreamRow, Loaded), StoreError> {
        let mut loaded = Loaded::default();
        loop {
            match self.stream_row(handle, &loaded) {
                Ok(Some(row)) => return Ok((row, loaded)),
                Ok(None) => return Err(StoreError::NoStream),
                Err(NotLoaded::Damaged(error)) => return Err(error),
                Err(NotLoaded::Unknown) => {}
            }
            let key = Bytes::copy_from_slice(&stream_key(handle));
            loaded = self.load(Needs { keys: vec![key], ..Needs::default() }, loaded).await?;
        }
    }

    /// The content of a small stream's row, loaded if necessary.
    pub(super) async fn content(self: &Rc<Self>, row: &StreamRow) -> Result<Bytes, StoreError> {
        match row.home {
            Home::Tiny => Ok(row.tiny.clone()),
            Home::Log { .. } => Ok(valid(row, self.read_log(row).await?)),
            Home::File => Err(StoreError::invalid("the content of a large stream")),
        }
    }

    fn cached_content(&self, row: &StreamRow) -> Option<Bytes> {
        let Home::Log { generation, offset, .. } = row.home else { return None };
        self.contents.borrow_mut().get((generation, offset)).map(|content| valid(row, content))
    }

    /// The stored bytes of a stream whose home is the log (also those that a cut made invalid).
    pub(super) async fn read_log(self: &Rc<Self>, row: &StreamRow) -> Result<Bytes, StoreError> {
        let Home::Log { segment, generation, offset, len, crc } = row.home else { return Ok(Bytes::new()) };
        if let Some(content) = self.contents.borrow_mut().get((generation, offset)) {
            return Ok(content);
        }
        let reading = self.journal.borrow().segments.reading((segment, generation));
        let damaged = |what: &str| StoreError::Damaged(format!("segment {segment} at {offset}: {what}"));
        let Some(reading) = reading else {
            return Err(damaged("a stream's content should be here, but the segment is another"));
        };
        let len = (len as usize).min(Changes::SMALL_MAX);
        let bytes = async { reading.0.plain(&self.env).await?.read_at(offset, len).await }.await;
        let bytes =
            bytes.map_err(|error| StoreError::io(format!("reading {}", reading.0.path.display()), &error))?;
        if bytes.len() != len || crc32c::crc32c(&bytes) != crc {
            return Err(damaged("the content's checksum is wrong"));
        }
        self.contents.borrow_mut().enter((generation, offset), bytes.clone());
        Ok(bytes)
    }
}

/// The identity of a content: its place. No place is ever used twice under one generation.
fn identity(row: &StreamRow) -> Bytes {
    let Home::Log { segment, generation, offset, .. } = row.home else { return Bytes::new() };
    [segment, generation, offset].into_iter().flat_map(u64::to_le_bytes).collect()
}

fn valid(row: &StreamRow, content: Bytes) -> Bytes {
    let len = content.len().min(row.valid as usize);
    content.slice(..len)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(keys: usize, limit: usize) -> Waiting {
        let need = RangeNeed { prefix: Bytes::new(), after: None, limit, follow: None };
        let ranges = if limit > 0 { vec![need] } else { Vec::new() };
        Waiting { keys: vec![Bytes::new(); keys], ranges, answer: oneshot::channel().0 }
    }

    fn batches(all: impl IntoIterator<Item = Waiting>) -> Vec<usize> {
        let mut loads = Loads { waiting: all.into_iter().collect(), running: 0 };
        std::iter::from_fn(|| Some(loads.next().len()).filter(|&count| count > 0)).collect()
    }

    #[test]
    fn requests_for_a_few_rows_are_read_together_and_those_for_many_alone() {
        assert_eq!(batches((0..100).map(|_| waiting(3, 0))), [100]);
        assert_eq!(batches((0..3).map(|_| waiting(0, LOADER_ROWS_MAX))), [1, 1, 1]);
        assert_eq!(batches((0..4).map(|_| waiting(0, LOADER_ROWS_MAX / 2))), [2, 2]);
        assert_eq!(batches([waiting(2 * LOADER_ROWS_MAX, 0), waiting(1, 0)]), [1, 1]);
        assert_eq!(batches([]), []);
    }
}
