//! Appends: a server's operation, so that two writers never get the same bytes (design §4.5).
//!
//! In a stuffed file the end is the stream's own and the append is the store's. In a laid-out file the metafile's server
//! takes appends one at a time: it asks the datafiles for their facts, takes the end they imply, and writes the data
//! there, its own share by the store and the others' through their servers, before the next append's turn. The answer
//! leaves when all shares are written.

use super::Engine;
use super::work::status_of;
use bytes::{Bytes, BytesMut};
use futures_util::future::{LocalBoxFuture, join_all};
use shoal_env::WallTime;
use shoal_env::local::Semaphore;
use shoal_pattern::{Distribution, Pattern, View, Window};
use shoal_proto::{
    Answer, Capability, Generation, Handle, Layout, Op, Rights, ServerId, Share, Status, StreamFacts,
    Transfer, limits,
};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// What the data engine asks of other servers.
pub trait Peers {
    /// Run one operation on another server, as a group of its own; gives its answer and bulk data.
    fn ask(
        &self,
        server: ServerId,
        op: Op,
        bulk: Bytes,
    ) -> LocalBoxFuture<'static, Result<(Answer, Bytes), Status>>;
}

/// Whose turn it is to append, by file.
#[derive(Clone, Default)]
pub struct Turns(Rc<RefCell<HashMap<Handle, Semaphore>>>);

impl Turns {
    async fn take(&self, file: Handle) -> shoal_env::local::Permit {
        let turn = self.0.borrow_mut().entry(file).or_insert_with(|| Semaphore::new(1)).clone();
        turn.acquire(1).await
    }

    /// Forget files that nobody appends to.
    fn tidy(&self) {
        self.0.borrow_mut().retain(|_, turn| turn.free() == 0);
    }
}

/// Append to a laid-out file; returns where the data went, and the size after it.
pub(super) async fn over_layout(
    engine: &Engine,
    file: Handle,
    layout: &Layout,
    data: Bytes,
    at: WallTime,
) -> Result<(u64, u64), Status> {
    let turn = engine.appends.take(file).await;
    let result = append_in_turn(engine, file, layout, data, at).await;
    drop(turn);
    engine.appends.tidy();
    result
}

async fn append_in_turn(
    engine: &Engine,
    file: Handle,
    layout: &Layout,
    data: Bytes,
    at: WallTime,
) -> Result<(u64, u64), Status> {
    let facts = join_all(layout.datafiles.iter().map(|&stream| facts_of(engine, stream))).await;
    let striping = layout.striping();
    let (mut end, mut generation) = (0, Generation::default());
    for (index, facts) in facts.into_iter().enumerate() {
        let facts = facts?;
        end = end.max(striping.logical_end(index as u32, facts.size));
        generation = generation.max(facts.generation);
    }
    let size = end
        .checked_add(data.len() as u64)
        .filter(|&s| s <= limits::FILE_BYTES_MAX)
        .ok_or(Status::FileTooBig)?;
    let offset = i64::try_from(end).map_err(|_| Status::FileTooBig)?;
    let pattern = Pattern::contiguous(offset, data.len() as u64).map_err(|_| Status::FileTooBig)?;
    let expires_at = engine.identity.capability_expiry(shoal_proto::Time(at.0));
    let identity = &engine.identity;
    let capability = Capability::sign(&identity.key, identity.collection, file, Rights::WRITE, expires_at);
    let shares = layout.datafiles.iter().enumerate().map(|(index, &stream)| {
        let share = Share { dist: layout.dist, width: layout.datafiles.len() as u16, index: index as u16 };
        let transfer = Transfer {
            stream,
            generation,
            capability: Some(capability),
            pattern: pattern.clone(),
            window_from: 0,
            window_len: data.len() as u64,
            share,
        };
        write_share(engine, transfer, &data, at)
    });
    for result in join_all(shares).await {
        result?;
    }
    Ok((end, size))
}

async fn facts_of(engine: &Engine, stream: Handle) -> Result<StreamFacts, Status> {
    if stream.server() != engine.identity.id {
        let asked = engine.peers.ask(stream.server(), Op::Streamstat { stream }, Bytes::new());
        return match asked.await? {
            (Answer::Facts { facts }, _) => Ok(facts),
            _ => Err(Status::BadMessage),
        };
    }
    let mut loaded = shoal_store::Loaded::default();
    loop {
        if let Ok(found) = engine.collection.stream(stream, &loaded) {
            let (info, _) = found.ok_or(Status::Stale)?;
            return Ok(crate::inode::facts_of(&info));
        }
        let needs = shoal_store::Needs {
            keys: vec![engine.collection.stream_key(stream)],
            ..shoal_store::Needs::default()
        };
        loaded = engine.collection.load(needs, loaded).await.map_err(status_of)?;
    }
}

/// Write one stream's share of contiguous data.
async fn write_share(engine: &Engine, transfer: Transfer, data: &Bytes, at: WallTime) -> Result<(), Status> {
    let striping = transfer.share.striping();
    let window = Window::new(0, transfer.window_len);
    let index = u32::from(transfer.share.index);
    let view = View::new(&transfer.pattern, window, &striping, index).map_err(|_| Status::Invalid)?;
    let mut dense = BytesMut::new();
    for run in view {
        dense.extend_from_slice(&data[run.packed as usize..(run.packed + run.len) as usize]);
    }
    if dense.is_empty() {
        return Ok(());
    }
    let dense = dense.freeze();
    shoal_env::Counters::add(&engine.env.counters().copied_bytes, dense.len() as u64);
    if transfer.stream.server() == engine.identity.id {
        super::work::admit(engine, dense.len() as u64).await?;
        let runs = super::share_of(&transfer)?.runs;
        let stream = transfer.stream;
        let written = engine.collection.write(stream, transfer.generation.0, runs, dense, at).await;
        return written.map(drop).map_err(status_of);
    }
    let (server, len) = (transfer.stream.server(), dense.len() as u32);
    engine.peers.ask(server, Op::Write { transfer, len }, dense).await.map(drop)
}
