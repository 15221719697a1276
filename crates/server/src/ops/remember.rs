//! remember: how far a peer's store is durable. See [`crate::stores`].

use crate::shard::Shard;
use crate::stores;
use shoal_proto::{Answer, Peer, ServerId, Status};
use std::rc::Rc;

/// Keep it.
///
/// # Errors
/// `OtherStore`: more was durable once; else what this server's own store failed with.
pub async fn run(shard: &Rc<Shard>, server: ServerId, position: u64) -> Result<Answer, Status> {
    let store = shard.identity().map.server(server).map(|info| info.store).unwrap_or_default();
    let kept = stores::remember(shard, Peer { server, store, position }).await;
    kept.map(|()| Answer::Done {}).map_err(|unmet| {
        if unmet.status == Status::OtherStore {
            tracing::error!(%server, unmet.words, "a peer says less than it said before");
        }
        unmet.status
    })
}
