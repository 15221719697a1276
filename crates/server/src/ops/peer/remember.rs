//! remember: keep the position up to which a peer's store is durable. See [`crate::membership::stores`].

use crate::membership::stores;
use crate::ops::{OpFacts, direct};
use crate::shard::Shard;
use shoal_proto::{Answer, Peer, ServerId, Status};
use std::rc::Rc;

/// The facts of `remember`: direct. Only a peer may send it: the position is that of the sender's own store.
pub const FACTS: OpFacts = OpFacts::new(direct!(|shard, asker| Remember { position } => {
    run(shard, asker.must_be_peer()?, position).await
}));

/// Keep it.
///
/// A position below the known one is outdated and changes nothing: this message may have waited for a
/// connection, whose handshake stated a later one. An older copy of a store is found by its handshakes
/// ([`stores::meet`]).
///
/// # Errors
/// The error of this server's own store.
pub async fn run(shard: &Rc<Shard>, server: ServerId, position: u64) -> Result<Answer, Status> {
    let store = shard.identity().map.server(server).map(|info| info.store).unwrap_or_default();
    let kept = stores::remember(shard, Peer { server, store, position }).await;
    match kept {
        Err(unmet) if unmet.status != Status::OtherStore => Err(unmet.status),
        _ => Ok(Answer::Done {}),
    }
}
