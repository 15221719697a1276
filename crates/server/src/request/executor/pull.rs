//! A long write: the server pulls the data by *grants* (requests for a part of the data), and writes the
//! data as it comes.
//!
//! ```text
//!   request ─▶ handler: Stopped::Bulk(Pull) ─▶ cut ─▶ room? ─▶ grant ─▶ given ─▶ written   some at once
//!                                               ▲       └── no room: waits until bytes were written
//!                                               └──────────────────────────────────┘
//!              handler again: reply Facts, when all is written
//! ```
//! **Room for a piece is reserved before it is granted** ([`Credits`]): data that a client gives is accepted
//! at once, and a client that gives nothing occupies no more than its credit, until its time limit. The time
//! limit counts from the last piece written.
//!
//! **If the connection of a long write is lost, no piece is written after the client's next connection is
//! accepted**: before that, each piece that came is written completely or dropped. The write counts as not
//! begun, so its retry starts from the beginning. A client that lets the time limit pass with a grant open
//! loses its connection.
//!
//! An error ends the write; some of its bytes may be written. The reply leaves when all granted data has
//! come, so that no data of the write comes after the reply. When the server ends, it closes the connection
//! and reads nothing more from it: its long writes end with `Unavailable`, and the client sends them again.
//!
//! [`Credits`]: crate::net::connection::Credits

use super::compound::Compound;
use super::wait::abandoned;
use crate::counters::add;
use crate::data::{Done, LongPart, PieceStep, PieceWalk, StreamPart, give_way, write_piece};
use crate::net::connection::{Grants, PieceRoom};
use crate::net::session::Waiter;
use crate::request::ctx::Resume;
use crate::shard::Shard;
use futures_util::future::{Either, LocalBoxFuture, pending, select};
use futures_util::stream::{FuturesUnordered, StreamExt};
use shoal_env::mutant::{self, Mutant};
use shoal_env::{Instant, Work as Cost};
use shoal_proto::{Durability, FrameKind, Handle, Status, limits};
use shoal_store::{DataSync, StreamInfo};
use std::cell::Cell;
use std::collections::VecDeque;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

/// The end of a piece's write.
type Written = Result<StreamInfo, Status>;

/// Whether something was granted.
enum Granted {
    /// It has no turn to walk to the next piece.
    NoTurn,
    /// A piece, or a step of the way to it: there may be room for a further one.
    Piece,
    /// Nothing: too many are under way, or there is no room, or all is granted.
    Nothing,
}

/// The end of one wait of a long write.
enum Came {
    /// A piece was written, or not.
    Written(Written),
    /// There may be something to grant or to write.
    News,
    /// Nothing within the time limit.
    Late,
    /// The client's connection is gone.
    Gone,
}

/// The reason why a long write ended before its end.
enum Broken {
    Failed(Status),
    Gone,
}

impl From<Status> for Broken {
    fn from(status: Status) -> Broken {
        Broken::Failed(status)
    }
}

/// A long write under way.
struct Pull {
    shard: Rc<Shard>,
    waiter: Waiter,
    stream: Handle,
    /// The stream after the newest piece.
    info: StreamInfo,
    limit: Duration,
    until: Instant,
    walk: PieceWalk,
    is_cut: bool,
    grants: Rc<Grants>,
    /// Granted pieces that did not come, and their room.
    awaited: VecDeque<(PieceRoom, StreamPart)>,
    writing: FuturesUnordered<LocalBoxFuture<'static, Written>>,
    /// A write of a piece was begun.
    has_begun: bool,
}

/// Receive a part of a stream by pieces, from the one connection whose client waits for it.
///
/// # Errors
/// `BadMessage`: another long write of the connection has its tag. The end of the transfer itself is kept for
/// the handler.
pub(super) async fn receive(
    compound: &mut Compound,
    stopped: Resume,
    stream: Handle,
    part: LongPart,
    info: StreamInfo,
) -> Result<(), Status> {
    let shard = compound.shard.clone();
    let waiter = compound.running.waiters.borrow().iter().find(|waiter| !waiter.is_gone()).cloned();
    // Without one the write is discarded.
    let Some(waiter) = waiter else { return Ok(()) };
    let grants = waiter.line.begin_long_write(waiter.tag).ok_or(Status::BadMessage)?;
    shard.credits.enter(&waiter.line);
    let engine = shard.engine();
    let changing = engine.changes.begin(stream);
    let limit = compound.deadline.since(waiter.arrived);
    let mut pull = Pull {
        limit,
        until: shard.env.now() + limit,
        shard: shard.clone(),
        waiter,
        stream,
        info,
        walk: part.pieces(u64::MAX),
        is_cut: false,
        grants,
        awaited: VecDeque::new(),
        writing: FuturesUnordered::new(),
        has_begun: false,
    };
    let pulled = pull.run(compound).await;
    let pulled = pull.settle(compound, pulled).await;
    pull.waiter.line.end_long_write(pull.waiter.tag);
    let moves = changing.end();
    let result = match pulled {
        Ok(()) => Ok(()),
        Err(Broken::Failed(status)) => Err(status),
        Err(Broken::Gone) => return Ok(()),
    };
    compound.deadline = compound.deadline.max(pull.until);
    let at = (stopped.at, stream);
    let makes_durable = compound.durability == Durability::Durable;
    if pull.has_begun {
        compound.facts.resume = Some(stopped);
        let is_synced = makes_durable || shard.collection.sync_modes().data == DataSync::AtReply;
        compound.collected.is_compared |= !is_synced;
    }
    let (info, count) = (pull.info, moves[1].to);
    let done = Done { info, data: Vec::new(), offset: 0, count, moves: moves.into(), sent_upto: None };
    let mut done = result.map(|()| done);
    if makes_durable && done.is_ok() {
        let synced = shard.collection.fsync(stream).await;
        done = synced.map_err(crate::data::status_of).and(done);
    }
    compound.facts.done.insert(at, done);
    Ok(())
}

impl Pull {
    /// Pull and write all pieces.
    async fn run(&mut self, compound: &Compound) -> Result<(), Broken> {
        let turn = Cell::new(None);
        let shard = self.shard.clone();
        loop {
            // Before the looks: what comes from then on is not overlooked.
            let drained = self.waiter.line.drained().wait();
            let came = self.grants.came().wait();
            self.begin_writes();
            if self.gives_no_more() && !(self.is_cut && self.awaited.is_empty()) {
                return Err(Broken::Failed(Status::Unavailable));
            }
            let mut walk = turn.take().or_else(|| shard.credits.try_walk());
            let granted = match (self.is_cut, &walk) {
                (true, _) => Granted::Nothing,
                (false, None) => Granted::NoTurn,
                (false, Some(_)) => self.grant_one()?,
            };
            if !matches!(granted, Granted::Piece) {
                walk = None;
            }
            let is_over = self.writing.is_empty() || mutant::is(Mutant::PulledEarly);
            if self.is_cut && self.awaited.is_empty() && is_over {
                return Ok(());
            }
            let may_grant = !self.is_cut;
            let (turn, credits) = (&turn, &shard.credits);
            let news = async move {
                let again = async move {
                    match granted {
                        Granted::NoTurn => turn.set(Some(credits.walk().await)),
                        Granted::Piece => give_way().await,
                        Granted::Nothing if may_grant => drained.await,
                        Granted::Nothing => pending().await,
                    }
                };
                select(pin!(again), came).await;
            };
            let came = self.next(compound, news).await;
            drop(walk);
            match came {
                Came::Written(written) => {
                    // More writes than there is room for: those that wait for room look before this one.
                    if self.waiter.line.flows() > limits::FLOW_CHUNKS_MAX {
                        give_way().await;
                    }
                    self.info = written?;
                    self.until = self.shard.env.now() + self.limit;
                    if let Some(session) = self.waiter.line.session.borrow().upgrade() {
                        session.heard.set(session.heard.get().max(self.shard.env.now()));
                    }
                }
                Came::News => {}
                Came::Late => return Err(Broken::Failed(Status::TimedOut)),
                Came::Gone => return Err(Broken::Gone),
            }
        }
    }

    /// Nothing of the write is under way after this: not here, and, unless its connection is gone, not there.
    async fn settle(&mut self, compound: &Compound, pulled: Result<(), Broken>) -> Result<(), Broken> {
        let Err(broken) = pulled else { return Ok(()) };
        let mut is_gone = matches!(broken, Broken::Gone);
        if is_gone && mutant::is(Mutant::GivenUpWrites) {
            self.write_later();
        }
        while !self.writing.is_empty() || (!is_gone && self.is_owed()) {
            if is_gone {
                self.writing.next().await;
                continue;
            }
            let came = self.grants.came().wait();
            if !self.is_owed() && self.writing.is_empty() {
                break;
            }
            match self.next(compound, came).await {
                Came::Written(_) | Came::News => {}
                Came::Late if !self.is_owed() => {
                    self.writing.next().await;
                }
                // A client that does not give what it was granted is of no further use.
                Came::Late => {
                    self.waiter.line.end();
                    is_gone = true;
                }
                Came::Gone => is_gone = true,
            }
        }
        self.awaited.clear();
        if is_gone { Err(Broken::Gone) } else { Err(broken) }
    }

    async fn next(&mut self, compound: &Compound, news: impl Future<Output = ()>) -> Came {
        let (writing, until) = (&mut self.writing, self.until);
        let written = async {
            match writing.is_empty() {
                true => pending().await,
                false => writing.next().await,
            }
        };
        let next = async {
            match select(pin!(written), pin!(news)).await {
                Either::Left((Some(written), _)) => Came::Written(written),
                Either::Left((None, _)) | Either::Right(_) => Came::News,
            }
        };
        let gone = abandoned(compound.running.clone(), false);
        let timed = self.shard.env.deadline(until, next);
        match select(pin!(timed), pin!(gone)).await {
            Either::Left((Ok(came), _)) => came,
            Either::Left((Err(_), _)) => Came::Late,
            Either::Right(_) => Came::Gone,
        }
    }

    /// The connection is being closed: nothing more is read from it.
    fn gives_no_more(&self) -> bool {
        self.waiter.line.is_closing()
    }

    /// Whether something that was granted will come.
    fn is_owed(&self) -> bool {
        self.grants.is_open() && !self.gives_no_more()
    }

    /// Begin to write the parts that came.
    fn begin_writes(&mut self) {
        while let Some(data) = self.grants.take() {
            let Some((room, part)) = self.awaited.pop_front() else { return };
            self.has_begun = true;
            self.shard.env.work(Cost::Message, 1);
            self.shard.env.work(Cost::Operation, 1);
            let (engine, stream) = (self.shard.engine(), self.stream);
            let generation = self.info.generation;
            self.writing.push(Box::pin(async move {
                if mutant::is(Mutant::GivenUpWrites) {
                    engine.env.sleep(Duration::from_millis(30)).await;
                }
                let written = write_piece(engine, stream, generation, part, data).await;
                drop(room);
                written
            }));
        }
    }

    /// Grant the next piece, or walk on to it.
    fn grant_one(&mut self) -> Result<Granted, Status> {
        let line = &self.waiter.line;
        let at_once = (limits::FLOW_CHUNKS_MAX / line.flows().max(1)).max(1);
        if self.awaited.len() + self.writing.len() >= at_once {
            return Ok(Granted::Nothing);
        }
        let room = line.room(limits::FLOW_CHUNK_BYTES, self.shard.credits.of(line));
        let Some(mut room) = room else { return Ok(Granted::Nothing) };
        let piece = match self.walk.step()? {
            PieceStep::Piece(piece) => piece,
            PieceStep::Nothing => return Ok(Granted::Piece),
            PieceStep::End => {
                self.is_cut = true;
                return Ok(Granted::Nothing);
            }
        };
        let bytes = piece.part.len();
        room.shrink_to(piece.bytes_in_hand());
        let grant = self.grants.grant(piece.window, bytes);
        line.send(FrameKind::Grant, self.waiter.tag, &grant, &[]);
        add(&self.shard.counters.grants_sent, 1);
        self.awaited.push_back((room, piece.part));
        Ok(Granted::Piece)
    }

    /// The planted bug: what came is written, and the next connection does not wait for that.
    fn write_later(&mut self) {
        let writing = std::mem::take(&mut self.writing);
        let env = self.shard.env.clone();
        let writing = async move {
            env.sleep(Duration::from_millis(300)).await;
            drop(writing.collect::<Vec<Written>>().await);
        };
        self.shard.work.spawn(&self.shard.env, "given up", writing);
    }
}
