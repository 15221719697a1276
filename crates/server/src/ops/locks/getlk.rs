//! getlk: return the first lock that conflicts with a given lock; take none.

use crate::file_locks::table::{Locker, Wanted};
use crate::file_locks::{self, client_of};
use crate::ops::{OpFacts, direct};
use crate::shard::Shard;
use shoal_proto::{Answer, Status};
use std::rc::Rc;
use std::time::Duration;

/// How long it waits for the locks of before a restart.
const WAIT: Duration = Duration::from_secs(5);

/// The facts of `getlk`: direct. For a client with a named mount key, the reply translates the client's own
/// id to the id that it states.
pub const FACTS: OpFacts = OpFacts::new(direct!(|shard, asker| Getlk { object, owner, range, kind } => {
    let by = Locker { client: client_of(asker)?, owner };
    let mut answer = run(shard, &Wanted { file: object, by, range, kind, pid: 0, call: 0 }).await?;
    if let Answer::Holder { holder: Some(holder) } = &mut answer
        && holder.client == by.client
        && let Some(session) = shard.sessions.of_client(by.client).first()
    {
        // It knows itself by the id that it states.
        holder.client = session.stated.get();
    }
    Ok(answer)
}));

/// Look.
///
/// # Errors
/// `Stale`: the file is gone; `Invalid`; `Unavailable`: clients still claim their locks.
pub async fn run(shard: &Rc<Shard>, wanted: &Wanted) -> Result<Answer, Status> {
    let holder = file_locks::holder(shard, wanted, shard.env.now() + WAIT).await?;
    Ok(Answer::Holder { holder })
}
