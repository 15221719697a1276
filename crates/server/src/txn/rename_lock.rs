//! The rename lock. It ensures that moves of directories to other directories form no loop, and that no
//! move waits for a coordinator that is down.
//!
//! ```text
//!   the lock's server   nothing ── Prepare [lock] ─▶ held ── Prepare [lock, …], its vote ─▶ in doubt,
//!                          ▲                          │ ▲                                   lock passed on
//!                          │   coordinator is silent  │ └── not held: Changed                  │ Finish
//!                          └──────────────────────────┴────────────────────────────────────────┘
//!   the coordinator     takes the lock ─▶ walks the new ancestors ─▶ all other participants prepare
//!                       ─▶ the lock's server votes ─▶ decides
//! ```
//! A move is a transaction that changes the parent of a directory (two parents, where two directories are
//! exchanged). It takes the lock and walks from the new parent to the root; if it meets the directory that
//! it moves, the move fails. The lock is held for the walk and until all other participants have prepared,
//! and no longer. So if a move's coordinator fails, or loses its disk, only moves that meet the same
//! directories wait:
//!
//! * **The lock's server votes last, and passes the lock on with its vote.** By then each directory that gets
//!   a new parent is locked on its server, exclusively. If that server is a participant, the lock is durable.
//!   If it is the coordinator, the directory cannot be read while the coordinator is down, and after its next
//!   start the move is committed or aborted.
//! * **Before its vote the lock's server takes the lock back by itself** when the coordinator does not
//!   answer, because no transaction is committed without this vote. If the vote is requested later, it is
//!   refused (`Changed`), because other moves may have taken the lock since the walk.
//! * **A walk ends at each directory that another transaction has locked** (`Busy`), and the rows that it
//!   reads are durable on their server, in every sync mode.
//!
//! # Why no loop forms
//!
//! Number the moves in the order in which they have taken the lock, without those that were aborted. Let
//! *G(i)* be the parents after the first *i* moves, where each move in doubt is resolved as commit or as
//! abort. *Claim: G(i) is a tree, for every such resolution.*
//!
//! *G(0)* is a tree. Let *G(i-1)* be one, for every resolution. When move *i* walks, the lock's server has
//! voted for each earlier move. So each directory that an earlier move changes is locked, or that move has
//! ended there. The walk has met no lock, so every parent that it has read is that of *G(i-1)* for **every**
//! resolution: a move that is in doubt at such a directory would have stopped the walk, and a move that ends
//! meanwhile has its locks on other directories. So the walk follows the path to the root in *G(i-1)*. Move
//! *i* only changes the parent of the directory *S* to *D*. A loop in *G(i)* would contain this new edge, so
//! *S* would lie on the path from *D* to the root in *G(i-1)*; the walk has found that it does not. For an
//! exchange of *A* and *B* the same holds for both paths: neither contains *A* or *B* (the one because the
//! walk has checked it, the other because it lies below the path), so both paths stay as they are. If move
//! *i* is aborted, *G(i)* is *G(i-1)*. ∎
//!
//! If a move needs only the lock's server and the lock is free, the move is done at once, without a
//! transaction: it takes the lock, walks and votes, and no other work of the server runs in between. A
//! prepare message that is delivered late does no harm: a server ends the requests of a peer's earlier
//! connection before it accepts the peer's next connection. So no lock is taken for a walk that is over.

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
