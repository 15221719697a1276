//! lock: lock a range of a file, or wait for it.
//!
//! The server delays the reply to a request that waits, until the lock is granted or the time in the
//! request is over. If the time is over, the client sends the request again, and keeps its place in the
//! queue. A repeated request finds the place or the lock of the first request.

use crate::file_locks::table::{Locker, Wanted};
use crate::file_locks::{self, client_of};
use crate::ops::{OpFacts, direct};
use crate::request::executor::Asker;
use crate::shard::Shard;
use shoal_proto::{Answer, Status, limits};
use std::rc::Rc;
use std::time::Duration;

/// The facts of `lock`: direct, because it may wait for the lock until the time in the request is over.
pub const FACTS: OpFacts =
    OpFacts::new(direct!(|shard, asker| Lock { object, owner, range, kind, pid, call, wait, wait_ms } => {
        let by = Locker { client: client_of(asker)?, owner };
        let wanted = Wanted { file: object, by, range, kind, pid, call };
        run(shard, asker, wanted, wait, wait_ms).await
    }));

/// Lock.
///
/// # Errors
/// `Stale`: the file is gone; `Invalid`: it is no file, or the range has no byte; `Deadlock`, `NoLocks`.
pub async fn run(
    shard: &Rc<Shard>,
    asker: Asker,
    wanted: Wanted,
    wait: bool,
    wait_ms: u32,
) -> Result<Answer, Status> {
    client_of(asker)?;
    let span = Duration::from_millis(u64::from(wait_ms.min(limits::LOCK_WAIT_MS_MAX)));
    let state = file_locks::lock(shard, wanted, wait, shard.env.now() + span).await?;
    Ok(Answer::Locked { state })
}
