//! yield: another server is short of space. Lingering objects here are removed, the oldest first, because
//! their data may be there.

use crate::meta::lingering;
use crate::shard::Shard;
use shoal_env::Instant;
use shoal_proto::Answer;
use std::rc::Rc;

/// Remove it, until so many bytes are freed.
pub async fn run(shard: &Rc<Shard>, bytes: u64) -> Answer {
    let bytes = lingering::free(shard, bytes, Instant(u64::MAX)).await;
    Answer::Yielded { bytes }
}
