//! Operations that are no handlers: they await what no group may await (a peer, the journal), so each is a group of its
//! own and none takes a slot. All are idempotent by what they say.

use super::Asker;
use crate::ops;
use crate::shard::Shard;
use shoal_proto::{Answer, Op, Status, TxId};
use std::rc::Rc;

/// Whether an operation is one of these.
pub fn is_direct(op: &Op) -> bool {
    matches!(
        op,
        Op::Statfs {}
            | Op::Draw { .. }
            | Op::Prepare { .. }
            | Op::Finish { .. }
            | Op::Outcome { .. }
            | Op::Setmap { .. }
            | Op::Status {}
            | Op::Setsync { .. }
            | Op::Sync {}
    )
}

/// Run one.
///
/// # Errors
/// What it says.
pub async fn run(shard: &Rc<Shard>, asker: Asker, op: Op) -> Result<Answer, Status> {
    match op {
        Op::Statfs {} => ops::statfs::run(shard).await,
        Op::Draw { count } => ops::draw::run(shard, count).await,
        Op::Prepare { tx, actions } => {
            coordinated_by(asker, tx)?;
            ops::prepare::run(shard, tx, actions.0).await
        }
        Op::Finish { tx, decision } => {
            coordinated_by(asker, tx)?;
            ops::finish::run(shard, tx, decision).await
        }
        Op::Outcome { tx } => ops::outcome::run(shard, tx),
        Op::Setmap { map } => ops::setmap::run(shard, map).await,
        Op::Status {} => ops::status::run(shard).await,
        Op::Setsync { metadata, data } => ops::setsync::run(shard, &metadata.0, &data.0).await,
        Op::Sync {} => ops::sync::run(shard).await,
        _ => Err(Status::NotSupported),
    }
}

/// Only a transaction's coordinator prepares and finishes it.
fn coordinated_by(asker: Asker, tx: TxId) -> Result<(), Status> {
    if asker.peer == Some(tx.coordinator()) { Ok(()) } else { Err(Status::Forbidden) }
}
