//! reclaim: claim locks again. A client that has a new connection states the locks that it has.
//!
//! If the server was not restarted, it still has these locks. After a restart the server gives the locks
//! again to clients for which a durable row says that they had locks. Until all of these clients have claimed
//! their locks, and at most for a lease, no new lock is granted ([`crate::file_locks`]).

use crate::file_locks::{self, client_of};
use crate::ops::{OpFacts, direct};
use crate::request::executor::Asker;
use crate::shard::Shard;
use shoal_proto::{Answer, LockClaim, Status};

/// The facts of `reclaim`: direct, as all requests for locks are. It needs no slot: a repeated claim finds
/// the lock.
pub const FACTS: OpFacts = OpFacts::new(direct!(|shard, asker| Reclaim { claims, last } => {
    run(shard, asker, &claims, last)
}));

/// Claim them; the answer names those that are lost.
///
/// # Errors
/// `Forbidden`: a server has no locks.
pub fn run(shard: &Shard, asker: Asker, claims: &[LockClaim], last: bool) -> Result<Answer, Status> {
    let refused = file_locks::claim(shard, client_of(asker)?, claims, last);
    Ok(Answer::Claimed { refused: refused.into() })
}
