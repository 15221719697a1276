//! Operations that are no handlers: they await a peer or the journal, which no group may, so each is a group
//! of its own and none takes a slot. All are idempotent by their contents.

use super::Asker;
use crate::membership::stores;
use crate::ops;
use crate::shard::Shard;
use shoal_proto::{Answer, Decision, Op, Status, TxId};
use std::rc::Rc;

/// Whether an operation is one of these.
pub fn is_direct(op: &Op) -> bool {
    matches!(
        op,
        Op::Statfs {}
            | Op::Draw { .. }
            | Op::Batchcreate { .. }
            | Op::Prepare { .. }
            | Op::Finish { .. }
            | Op::Outcome { .. }
            | Op::Setmap { .. }
            | Op::Moveserver { .. }
            | Op::Renew { .. }
            | Op::Yield { .. }
            | Op::Remember { .. }
            | Op::Status {}
            | Op::Setsync { .. }
            | Op::Sync {}
    )
}

/// Run one.
///
/// # Errors
/// As the operation says.
pub async fn run(shard: &Rc<Shard>, asker: Asker, op: Op) -> Result<Answer, Status> {
    match op {
        Op::Statfs {} => ops::admin::statfs::run(shard).await,
        Op::Draw { count } => ops::peer::draw::run(shard, count).await,
        Op::Batchcreate { pool, sequence, count } => {
            let peer = asker.peer.ok_or(Status::Forbidden)?;
            ops::peer::batchcreate::run(shard, peer, pool, sequence, count).await
        }
        Op::Prepare { tx, actions, participants } => {
            coordinated_by(asker, tx)?;
            ops::peer::prepare::run(shard, tx, actions.0, participants.0).await
        }
        Op::Finish { tx, decision } => {
            may_finish(shard, asker, tx, decision)?;
            ops::peer::finish::run(shard, tx, decision).await
        }
        Op::Outcome { tx } => ops::peer::outcome::run(shard, tx),
        Op::Setmap { map } => ops::admin::setmap::run(shard, map).await,
        Op::Moveserver { server, addresses, moved } => {
            ops::admin::moveserver::run(shard, server, addresses, moved).await
        }
        Op::Renew { servers, map } => ops::admin::renew::run(shard, &servers, map).await,
        Op::Yield { bytes } => Ok(Box::pin(ops::peer::yielding::run(shard, bytes)).await),
        Op::Remember { position } => {
            let server = asker.peer.ok_or(Status::Forbidden)?;
            ops::peer::remember::run(shard, server, position).await
        }
        Op::Status {} => ops::admin::status::run(shard).await,
        Op::Setsync { metadata, data, coalescing } => {
            ops::admin::setsync::run(shard, &metadata.0, &data.0, &coalescing.0).await
        }
        Op::Sync {} => ops::admin::sync::run(shard).await,
        _ => Err(Status::NotSupported),
    }
}

/// Only a transaction's coordinator prepares and finishes it.
fn coordinated_by(asker: Asker, tx: TxId) -> Result<(), Status> {
    if asker.peer == Some(tx.coordinator()) { Ok(()) } else { Err(Status::Forbidden) }
}

/// Its coordinator finishes a transaction; or a repair does, where it has no coordinator any more. If the map
/// has no such server, no commit can have been recorded: the prepared transaction is aborted, as is any
/// transaction that its coordinator does not know. If the coordinator's store was given up, the repair
/// decides by the state of all participants.
fn may_finish(shard: &Shard, asker: Asker, tx: TxId, decision: Decision) -> Result<(), Status> {
    let is_repair = asker.peer.is_none();
    if is_repair && decision == Decision::Abort && is_of_nobody(shard, tx) {
        return Ok(());
    }
    if is_repair && stores::is_of_lost_store(&shard.identity(), tx) {
        return Ok(());
    }
    coordinated_by(asker, tx)
}

/// Whether a repair may end a transaction: it has no coordinator any more.
pub fn is_ended_by_repair(shard: &Shard, tx: TxId) -> bool {
    is_of_nobody(shard, tx) || stores::is_of_lost_store(&shard.identity(), tx)
}

/// Whether a transaction's coordinator is no server of the file system.
fn is_of_nobody(shard: &Shard, tx: TxId) -> bool {
    shard.identity().map.server(tx.coordinator()).is_none()
}
