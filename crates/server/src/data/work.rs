//! Bulk work: operations of the store that do not run inside a handler.

use super::Peers;
use super::append::{self, Place};
use super::hand::Sweep;
use super::long_part::LongPart;
use super::part::StreamPart;
use crate::data::change_counts::ChangeCounts;
use crate::meta::inode::facts_of;
use crate::meta::lingering::Lingering;
use crate::shard::Identity;
use bytes::Bytes;
use shoal_env::{Env, Instant, WallTime};
use shoal_proto::{Allocation, Answer, ChangeCount, Handle, Move, Status, StreamFacts};
use shoal_store::{Admission, Ask, Collection, StoreError, StreamInfo};
use std::rc::Rc;

/// Work on one stream. Returned by a handler as [`Stopped::Bulk`](crate::request::ctx::Stopped::Bulk).
#[derive(Debug, PartialEq, Eq)]
pub struct Bulk {
    /// The stream (an append: the metafile).
    pub stream: Handle,
    /// The work.
    pub work: Work,
}

/// See [`Bulk`].
#[derive(Debug, PartialEq, Eq)]
pub enum Work {
    /// Read a part of the stream, densely.
    Read {
        /// The part.
        part: Box<StreamPart>,
        /// The stream when the request was looked at: its bytes are those of that moment or later.
        info: StreamInfo,
        /// Its change count then.
        count: ChangeCount,
    },
    /// Send a part of any length by pieces.
    Flow {
        /// The part.
        part: Box<LongPart>,
        /// As of [`Work::Read`].
        info: StreamInfo,
        /// As of [`Work::Read`].
        count: ChangeCount,
    },
    /// Write a part of any length from data that its client is asked for, piece by piece.
    Pull {
        /// The part.
        part: Box<LongPart>,
        /// The stream when the request was looked at: it must have that generation.
        info: StreamInfo,
    },
    /// Write a part of the stream from dense data.
    Write {
        /// Generation the stream must have.
        generation: u64,
        /// The part.
        part: Box<StreamPart>,
        /// Its bytes.
        data: Bytes,
    },
    /// Append to a file, wherever its end is: in one stream, or over a layout.
    Append {
        /// The file's layout; `None`: this stream is the file.
        layout: Option<Box<shoal_proto::Layout>>,
        /// Generation the streams must have.
        generation: u64,
        /// Where it may end at most, in one stream: others may append between its admission and its turn.
        end_max: u64,
        /// The data.
        data: Bytes,
    },
    /// Reserve space, make a hole, or zero.
    Allocate {
        /// Generation the stream must have.
        generation: u64,
        /// First byte.
        from: u64,
        /// Bytes.
        len: u64,
        /// Which of them.
        mode: Allocation,
    },
    /// Make the stream durable, and everything applied before.
    Fsync,
    /// Drop the stream's blocks, and the kernel's pages of its file.
    DropCache,
}

/// The result of bulk work.
#[derive(Clone, Debug)]
pub struct Done {
    /// The stream's facts after it.
    pub info: StreamInfo,
    /// Data read: these buffers, one after the other.
    pub data: Vec<Bytes>,
    /// Where an append went.
    pub offset: u64,
    /// The stream's change count: of a read, as of before its first byte, with `info` of that moment.
    pub count: ChangeCount,
    /// The effect of a change on it.
    pub moves: Vec<Move>,
    /// The data was sent by pieces, up to this packed byte.
    pub sent_upto: Option<u64>,
}

impl Done {
    /// The stream's facts after it.
    pub fn facts(&self) -> StreamFacts {
        facts_of(&self.info, self.count)
    }

    /// The answer to a change.
    pub fn answer(self) -> Answer {
        Answer::Facts { facts: self.facts(), moves: self.moves.into() }
    }
}

/// Pause between two looks for space that removed files give back, and how many of them may find none.
const LOOK_FOR_SPACE: std::time::Duration = std::time::Duration::from_millis(100);
const LOOKS_FOR_SPACE: u32 = 20;

/// The resources of bulk work.
#[derive(Clone)]
pub struct Engine {
    /// How far the streams' bytes have changed.
    pub changes: ChangeCounts,
    /// The world.
    pub env: Env,
    /// The store.
    pub collection: Collection,
    /// The requests in hand.
    pub sweep: Sweep,
    /// The id of this server.
    pub identity: Rc<Identity>,
    /// Other data servers, for appends to laid-out files.
    pub peers: Rc<dyn Peers>,
    /// Appends to laid-out files, and operations that begin a generation of them: one at a time per file.
    pub turns: super::append::Turns,
    /// The objects that may be removed when there is no space.
    pub lingering: Rc<Lingering>,
}

/// Bulk work that may be carried out: its space is admitted, and an append to a laid-out file has its turn
/// and its place. Nothing is written yet.
pub struct Begun {
    bulk: Bulk,
    place: Option<Place>,
}

impl Begun {
    /// Whether it continues while its client's next connection is already accepted: other servers have a part
    /// in it, and its place is given to no other request.
    pub fn outlives_connection(&self) -> bool {
        self.place.is_some()
    }
}

/// Wait for the conditions of bulk work before its first byte is written. Dropped, nothing of it was done.
///
/// # Errors
/// `NoSpace`; of an append to a laid-out file its servers' error until `deadline`.
pub async fn begin(engine: &Engine, bulk: Bulk, deadline: Instant) -> Result<Begun, Status> {
    let place = match &bulk.work {
        Work::Append { layout: Some(layout), generation, data, .. } => {
            let generation = shoal_proto::Generation(*generation);
            Some(append::place(engine, bulk.stream, layout, generation, data.len() as u64, deadline).await?)
        }
        Work::Write { data, .. } | Work::Append { layout: None, data, .. } => {
            admit(engine, bulk.stream, data.len() as u64).await?;
            None
        }
        Work::Allocate { mode: Allocation::Punch, .. }
        | Work::Read { .. }
        | Work::Flow { .. }
        | Work::Pull { .. }
        | Work::Fsync
        | Work::DropCache => None,
        Work::Allocate { len, .. } => {
            admit(engine, bulk.stream, *len).await?;
            None
        }
    };
    Ok(Begun { bulk, place })
}

/// Do bulk work that was begun. The time of a write is the moment of this call.
///
/// # Errors
/// As the store and, of an append to a laid-out file, the other servers answer.
pub async fn carry_out(engine: Engine, begun: Begun) -> Result<Done, Status> {
    let Begun { bulk: Bulk { stream, work }, place } = begun;
    let at = engine.env.wall();
    let store = &engine.collection;
    let nothing = StreamInfo { generation: 0, size: 0, space: 0, written_at: None, small: false };
    let count = engine.changes.of(stream);
    let unchanged = |info, data| Done { info, data, offset: 0, count, moves: Vec::new(), sent_upto: None };
    match work {
        Work::Read { part, info, count } => {
            let data = engine.sweep.read(stream, info.generation, *part).await?;
            Ok(Done { count, ..unchanged(info, data) })
        }
        // The executor moves it: it has the connection.
        Work::Flow { .. } | Work::Pull { .. } => Err(Status::NotSupported),
        Work::Write { generation, part, data } => {
            let writing = engine.sweep.write(stream, generation, *part, data, at);
            changed(&engine, stream, async { Ok((0, writing.await?)) }).await
        }
        Work::Append { layout: None, generation, end_max, data } => {
            let appending = async {
                let _alone = engine.sweep.alone(stream).await;
                store.append(stream, generation, end_max, data, at).await.map_err(status_of)
            };
            changed(&engine, stream, appending).await
        }
        Work::Append { layout: Some(layout), data, .. } => {
            let place = place.ok_or(Status::Io)?;
            let (offset, size) = append::at_place(&engine, stream, &layout, place, data, at).await?;
            Ok(Done { offset, ..unchanged(StreamInfo { size, ..nothing }, Vec::new()) })
        }
        Work::Allocate { generation, from, len, mode } => {
            let allocating = async {
                let _alone = engine.sweep.alone(stream).await;
                let allocated = allocate(store, stream, generation, from, len, mode, at).await;
                Ok((0, allocated.map_err(status_of)?))
            };
            changed(&engine, stream, allocating).await
        }
        Work::Fsync => {
            fsync(store, stream).await.map_err(status_of)?;
            Ok(unchanged(nothing, Vec::new()))
        }
        Work::DropCache => {
            engine.sweep.drop_blocks(stream);
            store.drop_pages(stream).await.map_err(status_of)?;
            Ok(unchanged(nothing, Vec::new()))
        }
    }
}

/// Write one piece of a long write, if there is space. The time of the write is the moment of this call.
///
/// # Errors
/// As the store answers; `NoSpace`: nothing of the piece was written.
pub async fn write_piece(
    engine: Engine,
    stream: Handle,
    generation: u64,
    part: StreamPart,
    data: Bytes,
) -> Result<StreamInfo, Status> {
    admit(&engine, stream, data.len() as u64).await?;
    let at = engine.env.wall();
    engine.sweep.write(stream, generation, part, data, at).await
}

/// Change bytes of a stream, in the store and not by a batch. Gives where they went.
async fn changed(
    engine: &Engine,
    stream: Handle,
    change: impl Future<Output = Result<(u64, StreamInfo), Status>>,
) -> Result<Done, Status> {
    let changing = engine.changes.begin(stream);
    let changed = change.await;
    let moves = changing.end();
    let (offset, info) = changed?;
    Ok(Done { info, data: Vec::new(), offset, count: moves[1].to, moves: moves.into(), sent_upto: None })
}

/// Ask for the space of data before it is written: `NoSpace` is an answer, not an accident.
pub(super) async fn admit(engine: &Engine, stream: Handle, bytes: u64) -> Result<(), Status> {
    let ask = Ask { journal_bytes: 512, stream_bytes: bytes, stream: Some(stream), frees: false };
    admit_with(&engine.env, &engine.collection, &engine.lingering, ask).await.map(drop)
}

/// Ask for space. Where there is none, removed files that are still kept for those that have them open go
/// first.
///
/// # Errors
/// As the store answers; `NoSpace` when nothing was left to be removed.
pub async fn admit_with(
    env: &Env,
    store: &Collection,
    lingering: &Lingering,
    ask: Ask,
) -> Result<Admission, Status> {
    let (mut removed, mut looks) = (false, 0);
    loop {
        match store.admit(ask).await.map_err(status_of) {
            // A removal never waits for removals.
            Err(Status::NoSpace) if !ask.frees => {
                if lingering.make_room(bytes_of(&ask)).await {
                    (removed, looks) = (true, 0);
                }
                if !removed || looks == LOOKS_FOR_SPACE {
                    return Err(Status::NoSpace);
                }
                // The store, and the other servers' reapers, give the space back in the background.
                looks += 1;
                env.sleep(LOOK_FOR_SPACE).await;
            }
            admitted => return admitted,
        }
    }
}

fn bytes_of(ask: &Ask) -> u64 {
    ask.journal_bytes.saturating_add(ask.stream_bytes)
}

async fn allocate(
    store: &Collection,
    stream: Handle,
    generation: u64,
    from: u64,
    len: u64,
    mode: Allocation,
    at: WallTime,
) -> Result<StreamInfo, StoreError> {
    match mode {
        Allocation::Extend => store.allocate(stream, generation, from, len, true, at).await,
        Allocation::KeepSize => store.allocate(stream, generation, from, len, false, at).await,
        Allocation::Punch => store.punch(stream, generation, from, len, at).await,
        Allocation::Zero | Allocation::ZeroKeepSize => {
            store.punch(stream, generation, from, len, at).await?;
            store.allocate(stream, generation, from, len, mode == Allocation::Zero, at).await
        }
    }
}

/// Make a stream durable; an object without one (a directory, a link) is durable when its rows are.
async fn fsync(store: &Collection, stream: Handle) -> Result<(), StoreError> {
    match store.fsync(stream).await {
        Ok(_) => Ok(()),
        Err(StoreError::NoStream) => sync_rows(store).await,
        Err(error) => Err(error),
    }
}

/// Make every row applied so far durable.
pub async fn sync_rows(store: &Collection) -> Result<(), StoreError> {
    let goal = store.applied();
    if store.durable() >= goal {
        // The changes not applied yet are facts of streams, not acknowledged rows.
        return store.health();
    }
    store.push_durable();
    loop {
        store.health()?;
        if store.durable() >= goal {
            return Ok(());
        }
        store.durables().wait(goal.0).await;
    }
}

/// The store's errors, as a client sees them; internal details are only logged.
pub fn status_of(error: StoreError) -> Status {
    const ENOSPC: i32 = 28;
    const EDQUOT: i32 = 122;
    const EFBIG: i32 = 27;
    match error {
        StoreError::NoSpace { .. } => Status::NoSpace,
        StoreError::Io { errno: Some(ENOSPC | EDQUOT), .. } => Status::NoSpace,
        StoreError::Io { errno: Some(EFBIG), .. } => Status::FileTooBig,
        StoreError::Poisoned(_) => Status::Poisoned,
        StoreError::Stale { .. } => Status::StaleLayout,
        StoreError::NoStream => Status::Stale,
        StoreError::Damaged(_)
        | StoreError::Refused(_)
        | StoreError::Missing(_)
        | StoreError::DiskMissing(_)
        | StoreError::Foreign(_)
        | StoreError::Io { .. } => {
            tracing::error!(%error, "the store failed");
            Status::Io
        }
    }
}
