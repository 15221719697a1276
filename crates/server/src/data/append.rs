//! Appends. A server chooses the place of each append, so that two writers never get the same bytes.
//!
//! A stuffed file ends where its stream ends, so the store does the append. For a laid-out file the
//! metafile's server does one append at a time. It requests the facts of the datafiles and computes the
//! file's end from them. It writes the data at this end: its own share through the store, the other shares
//! through their servers. The answer leaves when all shares are written; then the next append has its
//! *turn* (the right to append to the file).
//!
//! **An operation that begins a generation of a laid-out file (a truncation, explicit times, a fence) takes a
//! turn, too** ([`Turns`]). Otherwise a share could be written and its server could still answer that the
//! generation is old, because a request is sent again if its connection breaks. If the file also became
//! longer meanwhile, the append could not see that its bytes are already in the file. It would write them
//! again at the new end, and they would be in the file twice.
//!
//! A repair begins a generation without a turn. A share that is refused for that reason is written again at
//! the same place. **The whole append is never repeated after a part of its bytes was written.** If its
//! shares cannot be completed at their places, the append fails.

use super::Engine;
use super::work::status_of;
use bytes::{Bytes, BytesMut};
use futures_util::future::{LocalBoxFuture, join_all};
use shoal_env::local::{Permit, Semaphore};
use shoal_env::{Instant, WallTime};
use shoal_pattern::{Distribution, Pattern, View, Window};
use shoal_proto::{
    Answer, Capability, Generation, Handle, Layout, Op, Rights, ServerId, Share, Status, StreamFacts,
    Transfer, limits,
};
use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

/// Generations that may begin while one append is written.
const TRIES_MAX: usize = 8;
/// How long the shares of an append may take from the first byte on, all tries together: its place is the
/// file's end until then.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// The data engine's requests to other servers.
pub trait Peers {
    /// Run one operation on another server, as a group of its own; gives its answer and bulk data, until
    /// `deadline`.
    fn ask(
        &self,
        server: ServerId,
        op: Op,
        bulk: Bytes,
        deadline: Instant,
    ) -> LocalBoxFuture<'static, Result<(Answer, Bytes), Status>>;
}

/// Turns to append to a laid-out file, or to begin a generation of it, by file: in order of request.
#[derive(Clone, Default)]
pub struct Turns(Rc<RefCell<HashMap<Handle, Semaphore>>>);

impl Turns {
    /// Wait for a turn.
    pub async fn take(&self, file: Handle) -> Turn {
        let permit = self.of(file).acquire(1).await;
        Turn { turns: self.clone(), file, permit: Some(permit) }
    }

    /// Take a turn if no group has it or waits for it.
    pub fn try_take(&self, file: Handle) -> Option<Turn> {
        let permit = self.of(file).try_acquire(1)?;
        Some(Turn { turns: self.clone(), file, permit: Some(permit) })
    }

    fn of(&self, file: Handle) -> Semaphore {
        self.0.borrow_mut().entry(file).or_insert_with(|| Semaphore::new(1)).clone()
    }
}

/// A file's turn; dropped, it is the next one's.
pub struct Turn {
    turns: Turns,
    /// The file.
    pub file: Handle,
    permit: Option<Permit>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        drop(self.permit.take());
        // Files without turns are dropped.
        self.turns.0.borrow_mut().retain(|_, turn| turn.free() == 0);
    }
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the turn of {}", self.file)
    }
}

/// The place of an append to a laid-out file: no other append gets it while this is held.
pub(super) struct Place {
    _turn: Turn,
    end: u64,
    /// Of the file, after the append.
    size: u64,
    generation: Generation,
    pattern: Pattern,
}

/// Wait for the turn of a laid-out file, and find where `len` bytes go.
pub(super) async fn place(
    engine: &Engine,
    file: Handle,
    layout: &Layout,
    generation: Generation,
    len: u64,
    deadline: Instant,
) -> Result<Place, Status> {
    let taking = engine.env.deadline(deadline, engine.turns.take(file));
    let turn = taking.await.map_err(|_| Status::TimedOut)?;
    let (end, generation) = end_of(engine, layout, generation, deadline).await?;
    let size = end.checked_add(len).filter(|&s| s <= limits::FILE_BYTES_MAX).ok_or(Status::FileTooBig)?;
    let offset = i64::try_from(end).map_err(|_| Status::FileTooBig)?;
    let pattern = Pattern::contiguous(offset, len).map_err(|_| Status::FileTooBig)?;
    Ok(Place { _turn: turn, end, size, generation, pattern })
}

/// Append at a place; returns where the data went, and the size after it. It ends within [`WRITE_TIMEOUT`].
pub(super) async fn at_place(
    engine: &Engine,
    file: Handle,
    layout: &Layout,
    place: Place,
    data: Bytes,
    at: WallTime,
) -> Result<(u64, u64), Status> {
    let Place { _turn, end, size, mut generation, pattern } = place;
    let deadline = engine.env.now() + WRITE_TIMEOUT;
    let append = Append { engine, file, layout, pattern, data, at, deadline };
    let mut shares = vec![Err(Status::StaleLayout); layout.datafiles.len()];
    for _ in 0..TRIES_MAX {
        append.write(generation, &mut shares).await;
        match next(end, &shares) {
            Next::Done => return Ok((end, size)),
            Next::Failed(why) => return Err(why),
            // A generation began meanwhile. The file's present end shows the consequence.
            Next::Newer(reached) => match end_of(engine, layout, generation, deadline).await {
                // Nothing was cut: the other shares are written where they belong.
                Ok((now, newer)) if now == reached => generation = newer,
                // All of it was cut: it was never there.
                Ok((now, _)) if now <= end => return Err(Status::StaleLayout),
                _ => return Err(Status::Io),
            },
        }
    }
    Err(Status::Io)
}

/// The result of the shares of an append.
#[derive(PartialEq, Eq, Debug)]
enum Next {
    Done,
    /// Some were refused for their generation; those that were written reach to here.
    Newer(u64),
    Failed(Status),
}

/// Once a share is written, a retry of the whole append would find it at the end of the file and append after
/// it. So errors that a client retries by itself are returned only while no share is written.
fn next(from: u64, shares: &[Result<u64, Status>]) -> Next {
    let Some(why) = shares.iter().find_map(|share| share.err()) else { return Next::Done };
    let written = shares.iter().filter_map(|share| share.ok()).max().unwrap_or(0);
    let of_generation = |share: &Result<u64, Status>| matches!(share, Ok(_) | Err(Status::StaleLayout));
    if shares.iter().all(of_generation) {
        return if written == 0 { Next::Failed(Status::StaleLayout) } else { Next::Newer(from + written) };
    }
    // Refused, so certainly not written; and errors that clients retry.
    let again =
        [Status::StaleLayout, Status::BadCapability, Status::Busy, Status::Changed, Status::WrongServer];
    let is_refused = |why: &Status| again.contains(why) || *why == Status::NoSpace;
    let is_written = |share: &Result<u64, Status>| share.map_or_else(|why| !is_refused(&why), |len| len > 0);
    let is_tried_again = again.contains(&why) || why == Status::Unavailable;
    match is_tried_again && shares.iter().any(is_written) {
        true => Next::Failed(Status::Io),
        false => Next::Failed(why),
    }
}

/// Where the file ends, and its newest generation.
async fn end_of(
    engine: &Engine,
    layout: &Layout,
    generation: Generation,
    deadline: Instant,
) -> Result<(u64, Generation), Status> {
    let facts = join_all(layout.datafiles.iter().map(|&stream| facts_of(engine, stream, deadline))).await;
    let striping = layout.striping();
    // Untouched datafiles report none.
    let (mut end, mut generation) = (0, generation);
    for (index, facts) in facts.into_iter().enumerate() {
        let facts = facts?;
        end = end.max(striping.logical_end(index as u32, facts.size));
        generation = generation.max(facts.generation);
    }
    Ok((end, generation))
}

/// An append that has its place.
struct Append<'a> {
    engine: &'a Engine,
    file: Handle,
    layout: &'a Layout,
    pattern: Pattern,
    data: Bytes,
    at: WallTime,
    deadline: Instant,
}

impl Append<'_> {
    /// Write those shares that are not yet: each becomes the end of its bytes within the data (0: it has
    /// none), or why it was not written.
    async fn write(&self, generation: Generation, shares: &mut [Result<u64, Status>]) {
        let identity = &self.engine.identity;
        let expires_at = identity.capability_expiry(shoal_proto::Time(self.at.0));
        let (key, rights) = (&identity.keys.server, Rights::WRITE);
        let capability = Capability::sign(key, identity.collection, self.file, rights, expires_at);
        let width = self.layout.datafiles.len() as u16;
        let missing = shares.iter_mut().enumerate().filter(|(_, share)| share.is_err());
        let writes = missing.map(|(index, share)| {
            let transfer = Transfer {
                stream: self.layout.datafiles[index],
                generation,
                capability: Some(capability),
                pattern: self.pattern.clone(),
                window_from: 0,
                window_len: self.data.len() as u64,
                share: Share { dist: self.layout.dist, width, index: index as u16 },
            };
            async move { *share = self.write_share(transfer).await }
        });
        join_all(writes).await;
    }

    /// Write one stream's share of contiguous data; where its bytes end within the data, 0 if it has none.
    async fn write_share(&self, transfer: Transfer) -> Result<u64, Status> {
        let Append { engine, data, at, deadline, .. } = self;
        let striping = transfer.share.striping();
        let window = Window::new(0, transfer.window_len);
        let index = u32::from(transfer.share.index);
        let view = View::new(&transfer.pattern, window, &striping, index).map_err(|_| Status::Invalid)?;
        let (mut dense, mut end) = (BytesMut::new(), 0);
        for run in view {
            end = run.packed + run.len;
            dense.extend_from_slice(&data[run.packed as usize..end as usize]);
        }
        if dense.is_empty() {
            return Ok(0);
        }
        let dense = dense.freeze();
        shoal_env::Counters::add(&engine.env.counters().copied_bytes, dense.len() as u64);
        if transfer.stream.server() == engine.identity.id {
            let admitting = super::work::admit(engine, transfer.stream, dense.len() as u64);
            engine.env.deadline(*deadline, admitting).await.map_err(|_| Status::TimedOut)??;
            let part = super::StreamPart::of(&transfer)?;
            let stream = transfer.stream;
            let changing = engine.changes.begin(stream);
            let written = engine.sweep.write(stream, transfer.generation.0, part, dense, *at).await;
            changing.end();
            return written.map(|_| end);
        }
        let (server, len) = (transfer.stream.server(), dense.len() as u32);
        engine.peers.ask(server, Op::Write { transfer, len }, dense, *deadline).await.map(|_| end)
    }
}

async fn facts_of(engine: &Engine, stream: Handle, deadline: Instant) -> Result<StreamFacts, Status> {
    if stream.server() != engine.identity.id {
        let asked = engine.peers.ask(stream.server(), Op::Streamstat { stream }, Bytes::new(), deadline);
        return match asked.await? {
            (Answer::Facts { facts, .. }, _) => Ok(facts),
            _ => Err(Status::BadMessage),
        };
    }
    let looking = shoal_store::look(&engine.collection, |view| view.stream(stream));
    let (found, _) = looking.await.map_err(status_of)?;
    let info = found.ok_or(Status::Stale)?;
    Ok(crate::meta::inode::facts_of(&info, engine.changes.of(stream)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_append_of_which_a_share_is_written_is_not_left_to_be_tried_again() {
        let stale = Err(Status::StaleLayout);
        assert_eq!(next(100, &[Ok(10), Ok(0)]), Next::Done);
        assert_eq!(next(100, &[stale, Ok(0)]), Next::Failed(Status::StaleLayout));
        assert_eq!(next(100, &[stale, Ok(10), Ok(7)]), Next::Newer(110));
        for again in [Status::BadCapability, Status::Busy, Status::Unavailable] {
            assert_eq!(next(100, &[Err(again), Ok(10)]), Next::Failed(Status::Io), "{again}");
            assert_eq!(next(100, &[stale, Err(again), Ok(10)]), Next::Failed(Status::Io), "{again}");
        }
        // The client can handle a refusal before anything is written. A share without an answer is no reason
        // to hide the refusals of others.
        assert_eq!(next(100, &[Err(Status::BadCapability), Ok(0)]), Next::Failed(Status::BadCapability));
        assert_eq!(next(100, &[Err(Status::NoSpace), Ok(10)]), Next::Failed(Status::NoSpace));
        assert_eq!(next(100, &[Err(Status::TimedOut), Ok(10)]), Next::Failed(Status::TimedOut));
    }
}
