//! The reasons for which a compound may have to wait, and how each wait ends.

use super::compound::Compound;
use super::{discard, end, pieces, pull};
use crate::counters::add;
use crate::data;
use crate::data::Work;
use crate::data::pools;
use crate::data::precreated::Touch;
use crate::net::session::{Running, Waiter};
use crate::ops::{self, RunAs};
use crate::request::ctx::{Fact, FactKey, Facts};
use crate::shard::Shard;
use crate::txn::{self, Plan};
use futures_util::future::{Either, select};
use shoal_env::local::NotifyWait;
use shoal_proto::{Answer, Durability, Handle, Op, ServerId, Status};
use shoal_store::{Ask, DataSync, Needs};
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

/// Handles drawn from a peer at once.
const DRAW_COUNT: u16 = 64;
/// Longest pause before a transaction that met another's lock is tried again.
const BACKOFF_MAX: Duration = Duration::from_millis(64);
/// How long a holder of the rename lock waits for a fact.
const FACT_TIMEOUT_HOLDING: Duration = Duration::from_millis(500);

/// The reason for which a compound waits.
pub enum Wait {
    /// Rows.
    Load(Needs),
    /// Another transaction's lock.
    Locked(NotifyWait),
    /// A fact of another server.
    Fact(FactKey),
    /// Handles.
    Draw(ServerId),
    /// Datafiles in a server's pool.
    Pool(pools::Shortage),
    /// A datafile made ahead of need is to be there.
    Touch(Box<Touch>),
    /// Bulk data to be moved.
    Bulk(Box<data::Bulk>),
    /// A turn of a laid-out file.
    Turn(Handle),
    /// Space.
    Admit(Ask),
    /// An operation that is no handler's.
    Direct,
    /// The collection's one rename lock, before the plan is made again under it.
    RenameLock,
    /// A planned transaction over servers: its local locks are taken.
    Transaction(Box<Plan>),
    /// A transaction met another's lock and gave up its own.
    Backoff,
    /// The ends of the transactions that were committed before this start.
    Found,
    /// No client waits for it any more.
    Discarded,
}

/// Run a compound to its end.
pub async fn drive(mut compound: Compound, wait: Wait) {
    if pass_all(&mut compound, wait).await {
        end(compound);
    } else {
        discard(compound);
    }
}

/// Pass all waits; `false`: it was discarded.
pub(super) async fn pass_all(compound: &mut Compound, first: Wait) -> bool {
    let mut wait = first;
    loop {
        if matches!(wait, Wait::Discarded) {
            return false;
        }
        if let Err(status) = pass(compound, wait).await {
            compound.own = None;
            compound.end_group(Err(status), Vec::new(), Vec::new());
        }
        match compound.go() {
            None => return true,
            Some(next) => wait = next,
        }
    }
}

/// A request that waits for others keeps no room of the journal: what it waits for may need that room (the
/// refill of a pool, a prepare, a share of an append that another server writes for this one while this one
/// does so for it). It asks again before it runs; after bulk data was moved it is not refused. One that
/// holds locks or a turn keeps it: it must not wait for room while it holds them.
fn lend_no_room(compound: &mut Compound) {
    if compound.own.is_none() && compound.facts.turns.is_empty() {
        compound.admission = None;
    }
}

/// Pass one wait; an error is the group's end.
async fn pass(compound: &mut Compound, wait: Wait) -> Result<(), Status> {
    let shard = compound.shard.clone();
    match wait {
        Wait::Load(_) | Wait::Touch(_) => {}
        // Its records ask for room of their own, and its end is the group's.
        Wait::Transaction(_) => compound.admission = None,
        _ => lend_no_room(compound),
    }
    match wait {
        Wait::Load(needs) => {
            add(&shard.counters.loads, 1);
            let loaded = std::mem::take(&mut compound.loaded);
            let loading = shard.collection.load(needs, loaded);
            compound.loaded = loading.await.map_err(data::status_of)?;
            Ok(())
        }
        Wait::Locked(released) => {
            add(&shard.counters.lock_waits, 1);
            if compound.own.is_some() {
                // No request waits while it holds locks.
                return backoff(compound, Status::Busy).await;
            }
            within(compound, released).await.ok_or(Status::Busy)
        }
        Wait::Fact(key) => fact(compound, key).await,
        Wait::Found => {
            txn::wait_found(&shard, compound.deadline).await;
            compound.waited_for_found = true;
            Ok(())
        }
        Wait::Draw(server) => draw(compound, server).await,
        Wait::Pool(shortage) => {
            let waiting = pools::wait(&shard, shortage, compound.deadline);
            within(compound, waiting).await.ok_or(Status::Busy)?
        }
        Wait::Touch(touch) => compound.touch(&touch).await,
        Wait::Bulk(bulk) => self::bulk(compound, *bulk).await,
        Wait::Turn(file) => turn(compound, file).await,
        Wait::Admit(ask) => {
            let admitting = data::admit_with(&shard.env, &shard.collection, &shard.lingering, ask);
            // Its bytes are there: it is not given up any more.
            let admitted = match compound.facts.resume.is_some() {
                true => admitting.await,
                false => within(compound, admitting).await.ok_or(Status::TimedOut)?,
            };
            compound.admission = Some(admitted?);
            Ok(())
        }
        Wait::Direct => {
            let [op] = compound.ops() else { return Err(Status::NotSupported) };
            let RunAs::Direct(run) = ops::of(op).run else { return Err(Status::NotSupported) };
            let answer = run(&shard, compound.asker, op.clone()).await?;
            compound.end_group(Ok(()), vec![answer], Vec::new());
            Ok(())
        }
        Wait::RenameLock => {
            in_transaction(compound, true);
            let taken = txn::take_rename_lock(&shard, compound.deadline).await;
            in_transaction(compound, false);
            compound.facts = Facts { tried: compound.tries > 0, ..Facts::default() };
            match taken {
                Ok(undecided) => compound.own = Some(undecided),
                Err(status) if txn::is_passing(status) => backoff(compound, status).await?,
                Err(status) => return Err(status),
            }
            Ok(())
        }
        Wait::Transaction(plan) => {
            in_transaction(compound, true);
            let end = txn::carry_out(compound, *plan).await;
            in_transaction(compound, false);
            match end {
                txn::End::Done => Ok(()),
                txn::End::Failed(status) => Err(status),
                txn::End::Again(status) => backoff(compound, status).await,
            }
        }
        Wait::Backoff => backoff(compound, Status::Busy).await,
        Wait::Discarded => Ok(()),
    }
}

/// Move bulk data: given up at the deadline, or with the last of those that wait, before its first byte is
/// written, and not after it.
async fn bulk(compound: &mut Compound, bulk: data::Bulk) -> Result<(), Status> {
    let shard = compound.shard.clone();
    let stopped = compound.stopped.take().ok_or(Status::Io)?;
    if let Work::Flow { part, info, count } = bulk.work {
        return pieces::send(compound, &stopped, bulk.stream, *part, (info, count)).await;
    }
    if let Work::Pull { part, info } = bulk.work {
        return pull::receive(compound, stopped, bulk.stream, *part, info).await;
    }
    let (at, stream) = ((stopped.at, bulk.stream), bulk.stream);
    let writes = compound.ops().get(stopped.at).is_some_and(Op::changes);
    let makes_durable = durable_beside(compound, &bulk)?;
    let engine = shard.engine();
    let beginning = data::begin(&engine, bulk, compound.deadline);
    let done = match within(compound, beginning).await.ok_or(Status::TimedOut)? {
        Err(status) => Err(status),
        Ok(begun) => {
            if writes {
                compound.facts.resume = Some(stopped);
                let is_synced = makes_durable || shard.collection.sync_modes().data == DataSync::AtReply;
                compound.collected.is_compared |= !is_synced;
            }
            let outlives = begun.outlives_connection();
            if outlives {
                in_transaction(compound, true);
            }
            let mut done = data::carry_out(engine, begun).await;
            if makes_durable && done.is_ok() {
                let synced = shard.collection.fsync(stream).await;
                done = synced.map_err(data::status_of).and(done);
            }
            if outlives {
                in_transaction(compound, false);
            }
            done
        }
    };
    compound.facts.done.insert(at, done);
    Ok(())
}

/// Whether data moved outside the handlers has to be made durable after that, because the request asks for
/// it.
fn durable_beside(compound: &Compound, bulk: &data::Bulk) -> Result<bool, Status> {
    let asks = compound.durability == Durability::Durable;
    match &bulk.work {
        Work::Read { .. } | Work::Flow { .. } | Work::Pull { .. } | Work::Fsync | Work::DropCache => {
            Ok(false)
        }
        // Only the other servers' own fsyncs make their writes for it durable: its client requests those.
        Work::Append { layout: Some(_), .. } if asks => Err(Status::NotSupported),
        Work::Write { .. } | Work::Append { .. } | Work::Allocate { .. } => Ok(asks),
    }
}

fn in_transaction(compound: &Compound, is: bool) {
    compound.running.in_transaction.set(is);
    if let Some((session, _)) = &compound.place {
        session.note_transaction();
    }
}

/// Await something, but not past the deadline, nor when all that waited are gone.
pub(super) async fn within<T>(compound: &Compound, future: impl Future<Output = T>) -> Option<T> {
    let timed = compound.shard.env.deadline(compound.deadline, future);
    let abandoned = abandoned(compound.running.clone(), compound.asker.own);
    match select(std::pin::pin!(timed), std::pin::pin!(abandoned)).await {
        Either::Left((value, _)) => value.ok(),
        Either::Right(_) => None,
    }
}

/// Until no client waits for a compound any more.
pub(super) async fn abandoned(running: Rc<Running>, own: bool) {
    loop {
        let next = {
            let waiters = running.waiters.borrow();
            let waits = |w: &Waiter| (w.line.died().wait(), w.line.left().wait());
            waiters.iter().find(|w| !w.is_gone()).map(waits)
        };
        match next {
            Some((died, left)) => drop(select(died, left).await),
            None if own => std::future::pending().await,
            None => return,
        }
    }
}

/// Release all locks and wait a random moment, longer each time; the group is then planned anew from fresh
/// facts. `why` is its end when no time is left.
async fn backoff(compound: &mut Compound, why: Status) -> Result<(), Status> {
    compound.own = None;
    compound.admission = None;
    let done = std::mem::take(&mut compound.facts.done);
    compound.facts = Facts { done, tried: true, ..Facts::default() };
    compound.tries += 1;
    let longest = Duration::from_millis(1 << compound.tries.min(6)).min(BACKOFF_MAX);
    let env = &compound.shard.env;
    let nanos = env.random_u64() % u64::try_from(longest.as_nanos()).unwrap_or(1).max(1);
    if env.now() + Duration::from_nanos(nanos) >= compound.deadline {
        return Err(why);
    }
    let pause = env.sleep(Duration::from_nanos(nanos));
    // Whether it was discarded meanwhile, `go` looks.
    within(compound, pause).await;
    Ok(())
}

/// No request waits for a turn while it holds another, or locks.
async fn turn(compound: &mut Compound, file: Handle) -> Result<(), Status> {
    let turns = compound.shard.engine().turns;
    let taken = match turns.try_take(file) {
        Some(turn) => turn,
        None if compound.own.is_some() || !compound.facts.turns.is_empty() => {
            return backoff(compound, Status::Busy).await;
        }
        None => within(compound, turns.take(file)).await.ok_or(Status::Busy)?,
    };
    compound.facts.turns.push(taken);
    Ok(())
}

async fn draw(compound: &mut Compound, server: ServerId) -> Result<(), Status> {
    let shard = compound.shard.clone();
    let handle = if server == shard.id() {
        own_handle(&shard).await?
    } else {
        match shard.peers.drawn(server) {
            Some(handle) => handle,
            None => {
                let asked = shard.peers.call(server, Op::Draw { count: DRAW_COUNT }, compound.deadline);
                let answer = within(compound, asked).await.ok_or(Status::TimedOut)??;
                let Answer::Handles { handles } = answer else { return Err(Status::BadMessage) };
                shard.peers.keep_drawn(server, handles.0);
                shard.peers.drawn(server).ok_or(Status::Unavailable)?
            }
        }
    };
    compound.facts.drawn.entry(server).or_default().push(handle);
    Ok(())
}

/// A handle of this server, waiting for a reservation if none is ready.
///
/// # Errors
/// When the store fails.
pub async fn own_handle(shard: &Rc<Shard>) -> Result<Handle, Status> {
    loop {
        if let Some(handle) = shard.handles.take() {
            return Ok(handle);
        }
        shard.handles.grow(&shard.collection).await.map_err(data::status_of)?;
    }
}

/// Ask another server for a fact. An error of the object is the fact; an unreachable server is not.
async fn fact(compound: &mut Compound, key: FactKey) -> Result<(), Status> {
    let shard = compound.shard.clone();
    add(&shard.counters.facts, 1);
    let holding = compound.own.is_some();
    let deadline = match holding {
        true => compound.deadline.min(shard.env.now() + FACT_TIMEOUT_HOLDING),
        false => compound.deadline,
    };
    let (server, op) = match &key {
        FactKey::Attr(object) => (object.server(), Op::Getattr { object: *object }),
        FactKey::Entry(server, dir, name) => (*server, Op::Entry { dir: *dir, name: name.clone() }),
        FactKey::Stream(stream) => (stream.server(), Op::Streamstat { stream: *stream }),
    };
    // The facts that the walk of a move rests on must not be lost: the lock may have been passed on before
    // they were durable.
    let answer = match holding {
        true => within(compound, shard.peers.call_durably(server, op, deadline)).await,
        false => within(compound, shard.peers.call(server, op, deadline)).await,
    };
    let answer = answer.ok_or(Status::TimedOut)?;
    let asked_for = key.clone();
    let fact = match answer {
        Err(Status::Busy | Status::TimedOut) if holding => {
            return backoff(compound, Status::Busy).await;
        }
        Err(status @ (Status::Busy | Status::TimedOut | Status::Unavailable | Status::Poisoned)) => {
            return Err(status);
        }
        answer => match key {
            FactKey::Attr(_) => Fact::Attr(answer.and_then(|a| match a {
                Answer::Attr { attr, .. } => Ok(attr),
                _ => Err(Status::BadMessage),
            })),
            FactKey::Entry(server, dir, _) => match answer {
                Ok(Answer::Fact { entry }) => Fact::Entry(Ok(entry)),
                Ok(Answer::Split { shards, .. }) => Fact::Shards(shards),
                Ok(_) => Fact::Entry(Err(Status::BadMessage)),
                // A shard that is gone, and the directory with it.
                Err(Status::WrongServer) if server != dir.server() => Fact::Entry(Err(Status::Stale)),
                Err(status) => Fact::Entry(Err(status)),
            },
            FactKey::Stream(_) => Fact::Stream(answer.and_then(|a| match a {
                Answer::Facts { facts, .. } => Ok(facts),
                _ => Err(Status::BadMessage),
            })),
        },
    };
    compound.facts.known.insert(asked_for, fact);
    Ok(())
}
