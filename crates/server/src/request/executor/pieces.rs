//! A long read: its data is sent in pieces, before the reply.
//!
//! ```text
//!   request ─▶ handler: Stopped::Bulk(Flow) ─▶ cut ─▶ room? ─▶ read ─▶ piece   some pieces at once
//!                                               ▲       └── no room: waits until bytes were sent
//!                                               └──────────────────────────┘
//!              handler again: reply Sent(upto)
//! ```
//! **A piece is read only when its connection has room for it** ([`Credits`]): if a client does not read, its
//! connection is full and its reads wait; the reads of other clients do not wait. The time limit of the
//! request counts from its last piece, and each piece renews the lease of the session.
//!
//! Each piece carries the stream's facts from before the first byte of the transfer was read. No piece leaves
//! before the changes that the request saw are as durable as its reply requires.
//!
//! [`Credits`]: crate::net::connection::Credits

use super::compound::Compound;
use super::wait::{abandoned, within};
use crate::counters::add;
use crate::data::{Done, LongPart, PieceStep, PieceWalk, Sweep, give_way};
use crate::meta::inode::facts_of;
use crate::net::connection::{Line, PieceRoom};
use crate::net::session::Waiter;
use crate::request::ctx::Resume;
use crate::request::reply_gate::Target;
use crate::shard::Shard;
use bytes::Bytes;
use futures_util::future::{Either, LocalBoxFuture, pending, select};
use futures_util::stream::{FuturesUnordered, StreamExt};
use shoal_env::local::oneshot;
use shoal_env::mutant::{self, Mutant};
use shoal_env::{Instant, Work as Cost};
use shoal_pattern::Window;
use shoal_proto::message::Piece;
use shoal_proto::{ChangeCount, FrameKind, Handle, Status, StreamFacts, limits};
use shoal_store::{Loaded, Lsn, StreamInfo};
use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

/// A piece that was read, the room that it has on its connection, and its place.
type Read = (PieceRoom, Window, Result<Vec<Bytes>, Status>);

/// Whether a piece was begun.
enum Begun {
    /// It has no turn to walk to the next one.
    NoTurn,
    /// One, or a step of the way to it: there may be room for a further one.
    Piece,
    /// None: too many are under way, or there is no room, or no piece.
    Nothing,
}

/// A long read under way.
struct Flow {
    shard: Rc<Shard>,
    waiter: Waiter,
    stream: Handle,
    generation: u64,
    facts: StreamFacts,
    /// Without a piece for so long it ends.
    limit: Duration,
    walk: PieceWalk,
    is_cut: bool,
    reading: FuturesUnordered<LocalBoxFuture<'static, Read>>,
}

/// Send a part of a stream by pieces, to the one connection that waits for it.
///
/// # Errors
/// `Poisoned`: the changes that it saw are not known to be kept. The end of the transfer itself is kept for
/// the handler.
pub(super) async fn send(
    compound: &mut Compound,
    stopped: &Resume,
    stream: Handle,
    part: LongPart,
    (info, count): (StreamInfo, ChangeCount),
) -> Result<(), Status> {
    seen_is_kept(compound, stopped.seen).await?;
    let waiter = {
        let mut waiters = compound.running.waiters.borrow_mut();
        let waiter = waiters.first_mut().ok_or(Status::Io)?;
        // Its pieces are held under the connection's credit from here on.
        let wanted = std::mem::take(&mut waiter.wanted_bytes);
        waiter.line.wanted_bytes.set(waiter.line.wanted_bytes.get().saturating_sub(wanted));
        waiter.clone()
    };
    let shard = compound.shard.clone();
    shard.credits.enter(&waiter.line);
    let mut flow = Flow {
        limit: compound.deadline.since(waiter.arrived),
        shard,
        waiter,
        stream,
        generation: info.generation,
        facts: facts_of(&info, count),
        walk: part.pieces(info.size),
        is_cut: false,
        reading: FuturesUnordered::new(),
    };
    let sent = flow.run(compound).await;
    compound.deadline = compound.deadline.max(flow.until());
    let done = sent.map(|upto| Done {
        info,
        data: Vec::new(),
        offset: 0,
        count,
        moves: Vec::new(),
        sent_upto: Some(upto),
    });
    compound.facts.done.insert((stopped.at, stream), done);
    Ok(())
}

/// Until the changes that a request saw are as durable as its reply requires.
async fn seen_is_kept(compound: &Compound, seen: Lsn) -> Result<(), Status> {
    let shard = &compound.shard;
    let seen = if mutant::is(Mutant::ReadEarly) { Lsn(0) } else { seen };
    let target = Target::of(shard.collection.sync_modes(), compound.durability, seen, None);
    if shard.gate.is_open(&shard.collection, target) {
        return Ok(());
    }
    let (open, opened) = oneshot();
    shard.gate.wait(&shard.collection, target, Box::new(move |is_well| open.send(is_well)));
    match within(compound, opened).await {
        Some(Some(true)) => Ok(()),
        Some(_) => Err(Status::Poisoned),
        None => Err(Status::TimedOut),
    }
}

/// The next piece that was read, or `None` when `again` ends first.
async fn first_of(
    shard: &Shard,
    compound: &Compound,
    until: Instant,
    read: impl Future<Output = Option<Read>>,
    again: impl Future<Output = ()>,
) -> Result<Option<Read>, Status> {
    let goes_on = mutant::is(Mutant::PieceOfGivenUp);
    let gone = async {
        abandoned(compound.running.clone(), false).await;
        if goes_on {
            shard.env.sleep(Duration::from_millis(1)).await;
        }
    };
    let next = async {
        match select(pin!(read), pin!(again)).await {
            Either::Left((read, _)) => read,
            Either::Right(_) => None,
        }
    };
    let timed = shard.env.deadline(until, next);
    match select(pin!(timed), pin!(gone)).await {
        Either::Left((Ok(came), _)) => Ok(came),
        Either::Right(_) if goes_on => Ok(None),
        Either::Left((Err(_), _)) | Either::Right(_) => Err(Status::TimedOut),
    }
}

impl Flow {
    fn until(&self) -> Instant {
        self.shard.env.now() + self.limit
    }

    /// Send all pieces. Gives up to which packed byte.
    async fn run(&mut self, compound: &Compound) -> Result<u64, Status> {
        let mut until = self.until();
        let turn = Cell::new(None);
        let shard = self.shard.clone();
        loop {
            // Before the look for room: bytes that are written from then on are not overlooked.
            let drained = self.line().drained().wait();
            let mut walk = turn.take().or_else(|| shard.credits.try_walk());
            let begun = match (self.is_cut, &walk) {
                (true, _) => Begun::Nothing,
                (false, None) => Begun::NoTurn,
                (false, Some(_)) => self.begin_one()?,
            };
            if !matches!(begun, Begun::Piece) {
                walk = None;
            }
            if self.is_cut && self.reading.is_empty() {
                return Ok(self.walk.upto());
            }
            let (reading, may_begin) = (&mut self.reading, !self.is_cut);
            let read = async move {
                match reading.is_empty() {
                    true => pending().await,
                    false => reading.next().await,
                }
            };
            let (turn, credits) = (&turn, &shard.credits);
            let again = async move {
                match begun {
                    Begun::NoTurn => turn.set(Some(credits.walk().await)),
                    Begun::Piece => give_way().await,
                    Begun::Nothing if may_begin => drained.await,
                    Begun::Nothing => pending().await,
                }
            };
            let came = first_of(&self.shard, compound, until, read, again).await?;
            drop(walk);
            if let Some(read) = came {
                self.sent(read)?;
                until = self.until();
            }
        }
    }

    /// Begin to read the next piece, or walk on to it.
    fn begin_one(&mut self) -> Result<Begun, Status> {
        let line = self.line();
        let at_once = (limits::FLOW_CHUNKS_MAX / line.flows().max(1)).max(1);
        if self.reading.len() >= at_once {
            return Ok(Begun::Nothing);
        }
        let room = line.room(limits::FLOW_CHUNK_BYTES, self.shard.credits.of(&line));
        let Some(mut room) = room else { return Ok(Begun::Nothing) };
        let piece = match self.walk.step()? {
            PieceStep::Piece(piece) => piece,
            PieceStep::Nothing => return Ok(Begun::Piece),
            PieceStep::End => {
                self.is_cut = true;
                return Ok(Begun::Nothing);
            }
        };
        room.shrink_to(piece.bytes_in_hand());
        let (sweep, stream, generation) = (self.sweep(), self.stream, self.generation);
        self.reading.push(Box::pin(async move {
            let read = sweep.read(stream, generation, piece.part).await;
            (room, piece.window, read)
        }));
        Ok(Begun::Piece)
    }

    fn sweep(&self) -> Sweep {
        self.shard.engine().sweep
    }

    /// A piece was read: it waits to be written.
    fn sent(&self, (room, window, read): Read) -> Result<(), Status> {
        let (data, now) = (read?, self.shard.env.now());
        self.must_not_be_cut()?;
        let piece = Piece { from: window.from, len: window.len, facts: self.facts };
        self.line().send(FrameKind::Piece, self.waiter.tag, &piece, &data);
        drop(room);
        self.shard.env.work(Cost::Message, 1);
        self.shard.env.work(Cost::Operation, 1);
        let counters = &self.shard.counters;
        add(&counters.pieces_sent, 1);
        let waiting = self.line().out_bytes() as u64;
        counters.piece_bytes_waiting_max.set(counters.piece_bytes_waiting_max.get().max(waiting));
        if let Some(session) = self.waiter.line.session.borrow().upgrade() {
            session.heard.set(session.heard.get().max(now));
        }
        Ok(())
    }

    /// The stream was not cut below the size that the pieces state: after a truncation of a file of one
    /// stream, which begins no generation, its end would read as zeros that were never there.
    fn must_not_be_cut(&self) -> Result<(), Status> {
        match self.shard.collection.stream(self.stream, &Loaded::default()) {
            Ok(Some((now, _))) if now.size < self.facts.size => Err(Status::StaleLayout),
            _ => Ok(()),
        }
    }

    /// The connection that the request came on.
    fn line(&self) -> Rc<Line> {
        if mutant::is(Mutant::PieceOfGivenUp)
            && let Some(session) = self.waiter.line.session.borrow().upgrade()
            && let Some(present) = session.line.borrow().clone()
        {
            return present;
        }
        self.waiter.line.clone()
    }
}
