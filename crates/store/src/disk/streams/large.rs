//! Large streams: the bytes of each are in a local file.
//!
//! After a write the row with the new size goes to the journal later. If the row is lost, the length of the
//! file counts: recovery takes the larger size. **Invariant: while no change is under way, the file holds no
//! bytes after the end of the stream**: after a failed write the file is truncated to that end.

use super::super::CollectionState;
use super::bulk::{Bulk, Done};
use crate::runs::{OFFSET_MAX, bytes_beyond, runs_end};
use crate::stream_row::{Home, StreamRow};
use crate::{StoreError, StreamInfo};
use bytes::{Bytes, BytesMut};
use futures_util::future::{join, join_all};
use shoal_env::{File, WallTime};
use shoal_pattern::ViewRun;
use shoal_proto::Handle;
use std::io;
use std::rc::Rc;

/// Most calls of one request under way at once.
const CALLS_MAX: usize = 16;

/// Bytes of space that a change took.
enum Taken {
    /// The stream takes so many, all its changes included.
    InAll(u64),
    /// So many more, as far as known: a hole that a write filled counts at the next sync.
    More(u64),
}

impl CollectionState {
    pub(crate) async fn read_file(
        self: &Rc<Self>,
        handle: Handle,
        row: &StreamRow,
        runs: &[ViewRun],
        len: usize,
    ) -> Result<Bytes, StoreError> {
        let file = self.file(handle, row).await?;
        let wanted: Vec<ViewRun> = runs
            .iter()
            .filter(|run| run.physical < row.size && run.len > 0)
            .map(|run| ViewRun { len: run.len.min(row.size - run.physical), ..*run })
            .collect();
        let error = |error: io::Error| StoreError::io(format!("reading stream {handle}"), &error);
        if let [run] = wanted.as_slice()
            && run.packed == 0
            && run.len == len as u64
        {
            let bytes = file.read_at(run.physical, len).await.map_err(error)?;
            if bytes.len() == len {
                return Ok(bytes);
            }
        }
        // Runs come in packed order. Bytes that none of them has (a hole, or after the end) are zeros.
        let mut out = BytesMut::with_capacity(len);
        // Which bytes are read together is decided by those that know all requests.
        for some in wanted.chunks(CALLS_MAX) {
            let reads = some.iter().map(|run| file.read_at(run.physical, run.len as usize));
            for (run, bytes) in some.iter().zip(join_all(reads).await) {
                let bytes = bytes.map_err(error)?;
                // The file may end before the stream does.
                let have = bytes.len().min(run.len as usize);
                put(&mut out, run.packed as usize, &bytes[..have]);
                self.copied(have);
            }
        }
        out.resize(len, 0);
        Ok(out.freeze())
    }

    /// Change the file, then the row; `Stale` when a new generation began meanwhile. `None`: the stream was
    /// cut meanwhile, and the file will be.
    pub(crate) async fn change_file(
        self: &Rc<Self>,
        handle: Handle,
        row: &StreamRow,
        bulk: &Bulk,
        at: WallTime,
    ) -> Result<Option<Done>, StoreError> {
        let file = self.file(handle, row).await?;
        let (offset, end, done) = match bulk {
            Bulk::Write { runs, data } => (0, runs_end(runs), write_pieces(&file, runs, data).await),
            Bulk::Append { data, .. } => {
                let end = row.size.checked_add(data.len() as u64).filter(|end| *end <= OFFSET_MAX);
                let end = end
                    .ok_or_else(|| StoreError::invalid("an append beyond the largest offset of a stream"))?;
                (row.size, end, file.write_at(row.size, vec![data.clone()]).await)
            }
            Bulk::Allocate { offset, len, extend } => {
                let done = if *len == 0 { Ok(()) } else { file.allocate(*offset, *len, *extend).await };
                (0, if *extend { offset + len } else { 0 }, done)
            }
            Bulk::Punch { offset, len } => {
                let len = offset.saturating_add(*len).min(row.size).saturating_sub(*offset);
                (0, 0, if len == 0 { Ok(()) } else { file.punch(*offset, len).await })
            }
        };
        self.files.changed(handle, &file);
        if let Err(error) = done {
            let error = StoreError::io(format!("writing stream {handle}"), &error);
            return Err(self.judge(error).await);
        }
        let taken = match bulk {
            Bulk::Allocate { .. } | Bulk::Punch { .. } => match file.space().await {
                Ok(space) => Taken::InAll(space),
                Err(_) => Taken::More(end.saturating_sub(row.size)),
            },
            Bulk::Write { runs, .. } => Taken::More(bytes_beyond(runs, row.size)),
            Bulk::Append { data, .. } => Taken::More(data.len() as u64),
        };
        let touched = self.touch(handle, row.generation, end, taken, at).await;
        // It is refused, or done once more at another place.
        if let (Bulk::Append { .. }, Err(StoreError::Stale { .. }) | Ok(None)) = (bulk, &touched) {
            self.take_back(handle, &file, (offset, end)).await?;
        }
        Ok(touched?.map(|info| (offset, info)))
    }

    /// Undo an append, because a new generation began, or a cut, while its bytes were written. The stream
    /// may have grown over them: then they become zeros. The caller is still alone at the gate, so no one
    /// else has written there.
    async fn take_back(
        self: &Rc<Self>,
        handle: Handle,
        file: &File,
        (from, to): (u64, u64),
    ) -> Result<(), StoreError> {
        let punched = async {
            file.punch(from, to - from).await?;
            // Else a power cut could undo the punch and keep the bytes.
            file.sync().await
        };
        let punched = punched.await;
        self.files.changed(handle, file);
        punched.map_err(|error| {
            let error = StoreError::io(format!("undoing an append to stream {handle}"), &error);
            self.poison(&error);
            error
        })
    }

    /// A write of `generation` reached to `end`.
    async fn touch(
        self: &Rc<Self>,
        handle: Handle,
        generation: u64,
        end: u64,
        taken: Taken,
        at: WallTime,
    ) -> Result<Option<StreamInfo>, StoreError> {
        let (mut row, _) = self.wait_row(handle).await?;
        if row.generation != generation {
            return Err(StoreError::Stale { current: row.generation });
        }
        if row.home != Home::File {
            // A put came while the file was written: it comes after this write and replaces all of it.
            return Ok(Some(row.info()));
        }
        if self.cuts.borrow().wait_for(handle) {
            // The cut comes after this write at the gate and would remove its bytes, not its size.
            return Ok(None);
        }
        row.space = match taken {
            Taken::InAll(space) => space,
            // Another write may have reached there meanwhile.
            Taken::More(bytes) => row.space + bytes.min(end.saturating_sub(row.size)),
        };
        row.size = row.size.max(end);
        row.written_at = row.written_at.max(Some(at));
        self.put_weak(handle, &row);
        Ok(Some(row.info()))
    }

    /// Cut the bytes in the file after the stream's end.
    pub(crate) async fn trim(self: &Rc<Self>, handle: Handle) -> Result<(), StoreError> {
        let Some(_alone) = self.gates.request(handle, true).pass().await else { return Ok(()) };
        let row = match self.wait_row(handle).await {
            Ok((row, _)) if row.home == Home::File => row,
            Ok(_) | Err(StoreError::NoStream) => return Ok(()),
            Err(error) => return Err(error),
        };
        let file = self.file(handle, &row).await?;
        let trim = async {
            if file.len().await? > row.size {
                file.truncate(row.size).await?;
            }
            Ok(())
        };
        let trimmed = trim.await;
        self.files.changed(handle, &file);
        trimmed.map_err(|error: io::Error| StoreError::io(format!("trimming stream {handle}"), &error))
    }

    /// Make the file's bytes durable, and its name if no sync has yet; then the space it takes on the disk
    /// is known exactly. The caller has passed the gate, so the file is the one of `row`.
    pub(crate) async fn sync_file(
        self: &Rc<Self>,
        handle: Handle,
        row: &StreamRow,
    ) -> Result<(), StoreError> {
        let file = self.file(handle, row).await?;
        let bytes = async {
            let synced = self.files.sync(handle, &file).await;
            synced.map_err(|error| StoreError::io(format!("syncing stream {handle}"), &error))
        };
        let name = async { if row.loose { self.files.sync_name(handle, row.folder).await } else { Ok(()) } };
        let synced = match join(bytes, name).await {
            (Ok(synced), Ok(())) => synced,
            (Err(error), _) | (_, Err(error)) => {
                self.poison(&error);
                return Err(error);
            }
        };
        if !synced && !row.loose {
            return Ok(());
        }
        let space = file.space().await;
        let (now, _) = self.wait_row(handle).await?;
        let known = StreamRow { space: space.unwrap_or(now.space), loose: false, ..now.clone() };
        if now.home == Home::File && known != now {
            self.put_weak(handle, &known);
        }
        Ok(())
    }

    /// Whether a failed call on a stream's file is returned (no space, too large) or poisons the store.
    pub(crate) async fn judge(self: &Rc<Self>, error: StoreError) -> StoreError {
        const ENOSPC: i32 = 28;
        const ANSWERS: [i32; 5] = [122, 27, 22, 95, 24]; // EDQUOT, EFBIG, EINVAL, EOPNOTSUPP, EMFILE
        match &error {
            StoreError::Io { errno: Some(ENOSPC), .. } => self.no_space(0).await,
            StoreError::Io { errno: Some(errno), .. } if ANSWERS.contains(errno) => error,
            StoreError::Io { .. } => {
                self.poison(&error);
                error
            }
            _ => error,
        }
    }
}

/// Put bytes at a place of a buffer that grows: at its end they are set once, and bytes that they leave out
/// before them are zeros.
fn put(out: &mut BytesMut, at: usize, bytes: &[u8]) {
    if out.len() < at {
        out.resize(at, 0);
    }
    let over = bytes.len().min(out.len() - at);
    out[at..at + over].copy_from_slice(&bytes[..over]);
    out.extend_from_slice(&bytes[over..]);
}

/// Write runs, those that touch by one call, a few calls at a time.
async fn write_pieces(file: &File, runs: &[ViewRun], data: &Bytes) -> io::Result<()> {
    let mut pieces: Vec<(u64, Vec<Bytes>)> = Vec::new();
    let mut end = u64::MAX;
    for run in runs.iter().filter(|run| run.len > 0) {
        let piece = data.slice(run.packed as usize..(run.packed + run.len) as usize);
        match pieces.last_mut() {
            Some((_, pieces)) if run.physical == end => pieces.push(piece),
            _ => pieces.push((run.physical, vec![piece])),
        }
        end = run.physical + run.len;
    }
    let overlap = overlaps(&pieces);
    let at_once = if overlap { 1 } else { CALLS_MAX };
    let mut pieces = pieces.into_iter().peekable();
    while pieces.peek().is_some() {
        let writes = pieces.by_ref().take(at_once).map(|(at, pieces)| file.write_at(at, pieces));
        // All of them end before an error is returned: none may still write when the file is trimmed.
        join_all(writes).await.into_iter().collect::<io::Result<()>>()?;
    }
    Ok(())
}

/// Runs that overlap are written in order, so that the later one wins.
fn overlaps(pieces: &[(u64, Vec<Bytes>)]) -> bool {
    let len = |pieces: &[Bytes]| pieces.iter().map(|piece| piece.len() as u64).sum::<u64>();
    let mut spans: Vec<(u64, u64)> = pieces.iter().map(|(at, pieces)| (*at, at + len(pieces))).collect();
    spans.sort_unstable();
    spans.windows(2).any(|pair| pair[0].1 > pair[1].0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_that_grows_has_the_later_bytes_and_zeros_where_there_are_none() {
        let mut out = BytesMut::new();
        for (at, bytes) in [(2, &b"abc"[..]), (5, b"de"), (9, b"f"), (3, b"xyzw"), (9, b"gh"), (0, b"")] {
            put(&mut out, at, bytes);
        }
        assert_eq!(&out[..], b"\0\0axyzw\0\0gh".split_at(0).1);
    }
}
