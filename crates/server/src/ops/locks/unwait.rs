//! unwait: end the wait of a call for a lock, because a signal ended the call. The answer says whether the
//! call has the lock, which may have been granted just before.

use crate::file_locks::table::{Locker, Wanted};
use crate::file_locks::{self, client_of};
use crate::ops::{OpFacts, direct};
use crate::shard::Shard;
use shoal_proto::{Answer, Status};

/// The facts of `unwait`: direct. The id of the call selects the wait that ends.
pub const FACTS: OpFacts =
    OpFacts::new(direct!(|shard, asker| Unwait { object, owner, range, kind, call } => {
        let by = Locker { client: client_of(asker)?, owner };
        run(shard, &Wanted { file: object, by, range, kind, pid: 0, call })
    }));

/// Leave the queue.
///
/// # Errors
/// `Invalid`: the range has no byte; `WrongServer`.
pub fn run(shard: &Shard, wanted: &Wanted) -> Result<Answer, Status> {
    file_locks::check(shard, wanted)?;
    Ok(Answer::Locked { state: file_locks::unwait(shard, wanted) })
}
