//! Applies a batch of changes. The batch is staged first, so that an invalid batch changes nothing. Then it
//! is encoded into the present group of the journal (the records of one write), and entered into the active
//! table.

use super::CollectionState;
use super::journal::group::{self, RecordWriter};
use super::streams::after::{Afterwards, Cuts};
use crate::stream_row::{Home, LOG_ROW, StreamRow, stream_key};
use crate::{Changes, Loaded, Lookup, Lsn, StoreError, StreamChange, Strength};
use bytes::Bytes;
use shoal_env::Work;
use shoal_proto::Handle;
use std::rc::Rc;

/// Longest key of a row (LMDB's limit).
pub(crate) const KEY_MAX: usize = 511;
/// First bytes of the rows that hold the intent of a cut.
pub(crate) const INTENT_PREFIX: &[u8] = b"\0i";

/// The key of the intent to cut a stream's file.
pub(crate) fn intent_key(handle: Handle) -> Bytes {
    let mut key = INTENT_PREFIX.to_vec();
    key.extend_from_slice(&handle.key_bytes());
    key.into()
}

/// The new state of a stream after a batch.
struct Staged {
    handle: Handle,
    before: Option<StreamRow>,
    after: Option<StreamRow>,
    /// The content that will live in the log.
    content: Option<Bytes>,
    /// The file is to be cut to this size.
    cut: Option<u64>,
}

/// Properties of a batch that the store makes itself.
#[derive(Clone, Copy, Default)]
pub(super) struct Manner {
    /// A task waits for the batch although it is weak.
    pub urgent: bool,
}

impl CollectionState {
    /// The row of a stream, if it is in memory.
    pub(super) fn stream_row(&self, handle: Handle, loaded: &Loaded) -> Result<Option<StreamRow>, NotLoaded> {
        match self.rows.borrow().lookup(&stream_key(handle), loaded) {
            Lookup::Found(row) => Ok(Some(StreamRow::decode(&row.value).map_err(NotLoaded::Damaged)?)),
            Lookup::Absent(_) => Ok(None),
            Lookup::Unknown => Err(NotLoaded::Unknown),
        }
    }

    pub(super) fn apply(self: &Rc<Self>, changes: Changes, loaded: &Loaded) -> Result<Lsn, StoreError> {
        self.apply_with(changes, loaded, Manner::default())
    }

    pub(super) fn apply_with(
        self: &Rc<Self>,
        changes: Changes,
        loaded: &Loaded,
        manner: Manner,
    ) -> Result<Lsn, StoreError> {
        self.health()?;
        if changes.is_empty() {
            return Ok(self.journal.borrow().applied);
        }
        check_rows(&changes)?;
        let mut staged: Vec<Staged> = Vec::with_capacity(changes.streams.len());
        for (handle, change) in changes.streams {
            self.stage(&mut staged, handle, change, loaded)?;
        }
        self.commit(changes.rows, staged, changes.strength, manner)
    }

    /// Replace a stream's row by another of the same content (a new home, a done cut, a size).
    pub(super) fn commit_row(
        self: &Rc<Self>,
        handle: Handle,
        before: StreamRow,
        after: StreamRow,
        content: Option<Bytes>,
        strength: Strength,
        manner: Manner,
    ) -> Result<Lsn, StoreError> {
        self.health()?;
        let staged = Staged { handle, before: Some(before), after: Some(after), content, cut: None };
        self.commit(Vec::new(), vec![staged], strength, manner)
    }

    fn stage(
        &self,
        staged: &mut Vec<Staged>,
        handle: Handle,
        change: StreamChange,
        loaded: &Loaded,
    ) -> Result<(), StoreError> {
        let at = match staged.iter().position(|staged| staged.handle == handle) {
            Some(at) => at,
            None => {
                let before = match self.stream_row(handle, loaded) {
                    Ok(before) => before,
                    // A handle is never used twice: the maker of a stream need not load that there is none.
                    Err(NotLoaded::Unknown) if matches!(change, StreamChange::Create { .. }) => None,
                    Err(error) => return Err(error.into_store(handle)),
                };
                let after = before.clone();
                staged.push(Staged { handle, before, after, content: None, cut: None });
                staged.len() - 1
            }
        };
        staged[at].change(change)
    }

    fn commit(
        self: &Rc<Self>,
        rows: Vec<(Bytes, Option<Bytes>)>,
        mut staged: Vec<Staged>,
        strength: Strength,
        manner: Manner,
    ) -> Result<Lsn, StoreError> {
        let intents: Vec<(Bytes, Bytes)> = {
            let cuts = self.cuts.borrow();
            staged.iter().filter_map(|staged| staged.intent(&cuts)).collect()
        };
        let contents: usize = staged.iter().filter_map(|s| s.content.as_ref()).map(Bytes::len).sum();
        let encoded: Vec<Option<Bytes>> = staged.iter().map(Staged::encode_early).collect();
        let lens = rows.iter().map(|(key, value)| (key.len(), value.as_ref().map_or(0, Bytes::len)));
        let stream_lens = staged.iter().zip(&encoded).map(|(staged, early)| {
            let later = if staged.content.is_some() { LOG_ROW } else { 0 };
            (9, early.as_ref().map_or(later, Bytes::len))
        });
        let intent_lens = intents.iter().map(|(key, value)| (key.len(), value.len()));
        let len = group::record_len(contents, lens.chain(stream_lens).chain(intent_lens));

        self.copied(len);
        self.env.work(Work::Record, 1);
        let strong = strength == Strength::Strong;
        let deferred = strength == Strength::Deferred;
        let urgent = manner.urgent || strong || deferred;
        let mut journal = self.journal.borrow_mut();
        let room = journal.reserve(len, urgent, strong)?;
        let (lsn, place) = (room.lsn, (room.segment, room.generation));
        let mut content_at = room.offset + group::CONTENTS_AT as u64;
        let mut record = RecordWriter::new(room.record, contents);
        let mut moved = Vec::new();
        for staged in &mut staged {
            if let Some(content) = staged.content.take() {
                record.bytes(&content);
                staged.live_at(place, content_at, &content);
                moved.push((content_at, content.clone()));
                content_at += content.len() as u64;
            }
        }
        record.rows(rows.len() + staged.len() + intents.len());
        let mut table = self.rows.borrow_mut();
        let strong = (strong || deferred).then_some(lsn);
        for (key, value) in rows {
            record.row(&key, value.as_deref());
            table.put(key, value, strong);
        }
        for (staged, early) in staged.iter().zip(encoded) {
            let key = Bytes::copy_from_slice(&stream_key(staged.handle));
            let value = early.or_else(|| staged.after.as_ref().map(StreamRow::encode));
            record.row(&key, value.as_deref());
            table.put(key, value, strong);
        }
        for (key, value) in intents {
            record.row(&key, Some(&value));
            table.put(key, Some(value), strong);
        }
        drop(table);
        journal.filled(len);
        if deferred {
            journal.defer();
        }
        for (_, content) in &moved {
            journal.segments.settle(place, content.len() as u64);
        }
        for staged in &staged {
            if let Some((old, len)) = staged.left() {
                journal.segments.release(lsn, old, len);
            }
        }
        drop(journal);
        self.contents.borrow_mut().pin(lsn, place, moved);
        self.afterwards(lsn, staged);
        self.freeze_if_due();
        if deferred {
            self.deferred.wake_all();
        }
        if urgent {
            self.work.wake_all();
        } else {
            self.flush_soon();
        }
        Ok(lsn)
    }

    /// Work outside of the batch that follows it.
    fn afterwards(self: &Rc<Self>, lsn: Lsn, staged: Vec<Staged>) {
        for staged in staged {
            self.weak.borrow_mut().remove(&staged.handle);
            let before = staged.before.filter(|row| row.home == Home::File).map(|row| row.folder);
            let is_file = staged.after.as_ref().is_some_and(|row| row.home == Home::File);
            if let (Some(folder), false) = (before, is_file) {
                self.follow(staged.handle, lsn, Afterwards::Unlink(folder));
            } else if let (Some(cut), true) = (staged.cut, is_file) {
                self.follow(staged.handle, lsn, Afterwards::Cut(cut));
            }
        }
    }
}

fn check_rows(changes: &Changes) -> Result<(), StoreError> {
    for (key, _) in &changes.rows {
        if key.is_empty() || key.len() > KEY_MAX {
            return Err(StoreError::invalid(format!("a row's key of {} bytes", key.len())));
        }
    }
    Ok(())
}

/// Why a stream's row is not available.
pub(super) enum NotLoaded {
    Unknown,
    Damaged(StoreError),
}

impl NotLoaded {
    fn into_store(self, handle: Handle) -> StoreError {
        match self {
            NotLoaded::Unknown => {
                StoreError::invalid(format!("the row of stream {handle} was not loaded first"))
            }
            NotLoaded::Damaged(error) => error,
        }
    }
}

impl Staged {
    fn change(&mut self, change: StreamChange) -> Result<(), StoreError> {
        match change {
            StreamChange::Create { generation } => {
                self.content = None;
                self.cut = None;
                let before = self.after.as_ref();
                self.after = Some(before.map_or(StreamRow::empty(generation), |row| row.emptied(generation)));
            }
            StreamChange::Put { content, size, written_at } => self.put(content, size, written_at)?,
            StreamChange::Resize { generation, size, written_at } => {
                let row = self.after.as_mut().ok_or(StoreError::NoStream)?;
                if size == 0 {
                    // None of the old bytes is left: the stream begins again, in its row.
                    self.content = None;
                    self.cut = None;
                    *row = StreamRow { written_at, ..row.emptied(generation) };
                    return Ok(());
                }
                cut_content(row, size);
                if row.home == Home::File && size < row.size {
                    self.cut = Some(self.cut.map_or(size, |cut| cut.min(size)));
                }
                *row = StreamRow { generation, size, written_at, ..row.clone() };
            }
            StreamChange::Advance { generation } => {
                let row = self.after.as_mut().ok_or(StoreError::NoStream)?;
                row.generation = generation;
                row.written_at = None;
            }
            StreamChange::Remove => {
                if self.after.take().is_none() {
                    return Err(StoreError::NoStream);
                }
                self.content = None;
                self.cut = None;
            }
        }
        Ok(())
    }

    fn put(&mut self, content: Bytes, size: u64, at: shoal_env::WallTime) -> Result<(), StoreError> {
        let row = self.after.as_mut().ok_or(StoreError::NoStream)?;
        if content.len() > Changes::SMALL_MAX {
            return Err(StoreError::too_large(content.len()));
        }
        self.cut = None;
        let len = content.len();
        *row = StreamRow {
            size: size.max(len as u64),
            space: len as u64,
            written_at: Some(at),
            ..row.emptied(row.generation)
        };
        if len <= Home::TINY_MAX {
            row.tiny = content;
            self.content = None;
        } else {
            // Its place is known when the record is written.
            row.home = Home::Log { segment: 0, generation: 0, offset: 0, len: len as u32, crc: 0 };
            row.valid = len as u32;
            self.content = Some(content);
        }
        Ok(())
    }

    fn intent(&self, cuts: &Cuts) -> Option<(Bytes, Bytes)> {
        let row = self.after.as_ref().filter(|row| row.home == Home::File)?;
        let mut value = cuts.shortest(self.handle, self.cut?).to_le_bytes().to_vec();
        value.extend_from_slice(&row.generation.to_le_bytes());
        Some((intent_key(self.handle), value.into()))
    }

    /// The row, unless its content's place must be known first.
    fn encode_early(&self) -> Option<Bytes> {
        if self.content.is_some() { None } else { self.after.as_ref().map(StreamRow::encode) }
    }

    fn live_at(&mut self, place: (u64, u64), at: u64, content: &[u8]) {
        if let Some(row) = &mut self.after {
            let (segment, generation) = place;
            let (len, crc) = (content.len() as u32, crc32c::crc32c(content));
            row.home = Home::Log { segment, generation, offset: at, len, crc };
        }
    }

    /// The place in the log that is no longer the stream's home.
    fn left(&self) -> Option<((u64, u64), u64)> {
        let Some(Home::Log { segment, generation, offset, len, .. }) =
            self.before.as_ref().map(|row| &row.home)
        else {
            return None;
        };
        if let Some(Home::Log { segment: s, generation: g, offset: o, .. }) =
            self.after.as_ref().map(|row| &row.home)
            && (segment, generation, offset) == (s, g, o)
        {
            return None;
        }
        Some(((*segment, *generation), u64::from(*len)))
    }
}

/// Cut the small content at `size`.
fn cut_content(row: &mut StreamRow, size: u64) {
    match row.home {
        Home::Tiny => {
            let len = usize::try_from(size).unwrap_or(usize::MAX).min(row.tiny.len());
            row.tiny.truncate(len);
            row.space = len as u64;
        }
        Home::Log { .. } => row.valid = u32::try_from(size).unwrap_or(u32::MAX).min(row.valid),
        Home::File => {}
    }
}
