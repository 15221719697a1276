//! The rename lock: moves of directories to other directories form no loop, and none waits for a coordinator
//! that is away.
//!
//! ```text
//!   the lock's server     nothing ── Prepare [lock] ──▶ held ── Prepare [lock, …], its vote ──▶ in doubt, lock passed on
//!                            ▲                           │ ▲                                        │
//!                            │   its coordinator is away │ └── not held: Changed                    │ Finish
//!                            └───────────────────────────┴──────────────────────────────────────────┘
//!   the coordinator        takes the lock ─ walks the new ancestors ─ all others prepare ─ the lock's server votes ─ decides
//! ```
//! A move is a transaction that changes the parent of a directory (two parents, where two directories are
//! exchanged). It takes the lock, walks from the new parent to the root, and is given up if it meets the
//! directory that it moves. The lock is held for the walk and until all others have prepared, and no longer.
//! So a move whose coordinator dies, or loses its disk, stops the moves that it concerns and no others:
//!
//! * **The lock's server votes last, and passes the lock on with its vote.** By then each directory that the
//!   move gives another parent is locked on its server, exclusively: durably where that is a participant;
//!   where it is the coordinator itself, the directory cannot be read while the coordinator is away, and at
//!   its next start the move was decided or never will be.
//! * **Before its vote the lock's server takes the lock back by itself** when the coordinator does not
//!   answer, since nothing is committed without this vote. A vote that is asked for later is refused
//!   (`Changed`): it would rest on a walk that others have passed since.
//! * **A walk ends at each directory that another transaction has locked** (`Busy`), and the rows that it
//!   reads are durable on their server, in every sync mode.
//!
//! # Why no loop forms
//!
//! Number the moves in the order in which they have taken the lock, without those that were aborted. Let
//! *G(i)* be the parents after the first *i*, each of those in doubt resolved one way or the other. *Claim:
//! G(i) is a tree, for every such resolution.*
//!
//! *G(0)* is a tree. Let *G(i-1)* be one, for every resolution. When move *i* walks, each earlier move has
//! been voted for, so at each of its directories it is locked or has ended. The walk has met no lock, so
//! every parent that it has read is that of *G(i-1)* for **every** resolution: a move that is in doubt there
//! would have stopped it, and one that ends meanwhile had its locks on other directories. So the walk is the
//! way to the root in *G(i-1)*. Move *i* only changes the parent of the directory *S* to *D*. A loop in
//! *G(i)* would lead over that, so *S* would lie on the way from *D* to the root in *G(i-1)*; the walk has
//! found that it does not. For an exchange of *A* and *B* the same holds for both ways: neither leads over
//! *A* or *B* (over the one because the walk looked, over the other because it lies below), so both stay as
//! they are. If move *i* is aborted, *G(i)* is *G(i-1)*. ∎
//!
//! A move on the lock's server alone is done at once, without a transaction, if the lock is free: it is a
//! move that takes the lock, walks and votes in one moment. A message to prepare that is delivered late does
//! no harm: a server ends the requests of an earlier connection of its peer before it accepts the next one,
//! so no lock is taken for a walk that is over.

use super::Undecided;
use super::coordinator::PREPARE_TIMEOUT;
use crate::counters::add;
use crate::data::status_of;
use crate::shard::Shard;
use crate::txn::actions::RENAME_LOCK_SERVER;
use shoal_env::Instant;
use shoal_proto::{Action, Op, Status};
use std::rc::Rc;

/// Begin a transaction by taking the collection's rename lock.
///
/// # Errors
/// `Busy`: another holds it; or why it could not be requested.
pub async fn take_rename_lock(shard: &Rc<Shard>, deadline: Instant) -> Result<Undecided, Status> {
    let mut undecided = loop {
        match Undecided::begin(shard) {
            Some(undecided) => break undecided,
            None => shard.handles.grow(&shard.collection).await.map_err(status_of)?,
        }
    };
    let lock = Action::RenameLock {};
    if shard.id() == RENAME_LOCK_SERVER {
        return if undecided.take(&[lock]) { Ok(undecided) } else { Err(Status::Busy) };
    }
    undecided.ask(RENAME_LOCK_SERVER);
    add(&shard.counters.prepares, 1);
    let until = deadline.min(shard.env.now() + PREPARE_TIMEOUT);
    let prepare =
        Op::Prepare { tx: undecided.tx(), actions: vec![lock].into(), participants: Vec::new().into() };
    match shard.peers.call(RENAME_LOCK_SERVER, prepare, until).await {
        Ok(_) => Ok(undecided),
        Err(status) => {
            undecided.give_up().await;
            Err(status)
        }
    }
}
