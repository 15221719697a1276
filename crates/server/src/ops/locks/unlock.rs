//! unlock: release all locks that an owner has within a range of a file.

use crate::file_locks::table::{Locker, Wanted};
use crate::file_locks::{self, client_of};
use crate::ops::{OpFacts, direct};
use crate::shard::Shard;
use shoal_proto::{Answer, LockKind, Status};

/// The facts of `unlock`: direct. `run` uses neither the kind of the lock nor the ids of process and call.
pub const FACTS: OpFacts = OpFacts::new(direct!(|shard, asker| Unlock { object, owner, range } => {
    let by = Locker { client: client_of(asker)?, owner };
    run(shard, &Wanted { file: object, by, range, kind: LockKind::Shared, pid: 0, call: 0 })
}));

/// Unlock.
///
/// # Errors
/// `Invalid`: the range has no byte; `WrongServer`.
pub fn run(shard: &Shard, wanted: &Wanted) -> Result<Answer, Status> {
    file_locks::check(shard, wanted)?;
    file_locks::unlock(shard, wanted);
    Ok(Answer::Done {})
}
