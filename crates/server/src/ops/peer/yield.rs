//! yield: remove lingering objects (removed files that clients may have open) of this server, the oldest
//! first. A server that is short of space sends this request, because data of these objects may be on its
//! disk.

use crate::meta::lingering;
use crate::ops::{OpFacts, direct};
use crate::shard::Shard;
use shoal_env::Instant;
use shoal_proto::Answer;
use std::rc::Rc;

/// The facts of `yield`: direct, because it waits for the removals. It is idempotent and takes no slot.
pub const FACTS: OpFacts = OpFacts::new(direct!(|shard, _| Yield { bytes } => Ok(run(shard, bytes).await)));

/// Remove it, until so many bytes are freed.
pub async fn run(shard: &Rc<Shard>, bytes: u64) -> Answer {
    let bytes = lingering::free(shard, bytes, Instant(u64::MAX)).await;
    Answer::Yielded { bytes }
}
