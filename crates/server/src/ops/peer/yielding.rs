//! yield: another server is short of space. What lingers here goes, the oldest first, for its data may lie there.

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
