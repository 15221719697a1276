//! batchcreate: make datafiles ahead of need, for the pool of the server that asks.
//!
//! For each server the newest batch is kept, with its number in that server's pool. **The same number again
//! returns the same batch**: a server that did not receive the reply asks again, so no datafile is lost. The
//! reply leaves when the batch is durable, in every sync mode.

use crate::counters::add;
use crate::data::precreated::BLOCK;
use crate::data::status_of;
use crate::meta::keys;
use crate::meta::rows::{Batch, Grant, Range, RowValue};
use crate::ops::facts::Cost;
use crate::ops::{OpFacts, direct};
use crate::shard::Shard;
use shoal_env::crash_point;
use shoal_env::mutant::{self, Mutant};
use shoal_proto::{Answer, Op, Roles, ServerId, Status, limits};
use shoal_store::{Ask, Changes, Loaded, look, settle};
use std::rc::Rc;

/// The facts of `batchcreate`: direct, because the batch must be durable before the reply leaves. Its cost is
/// one object for each datafile.
pub const FACTS: OpFacts = OpFacts {
    cost: |op, _| match op {
        Op::Batchcreate { count, .. } => Cost::of((*count).into()),
        _ => Cost::of(0),
    },
    ..OpFacts::new(direct!(|shard, asker| Batchcreate { pool, sequence, count } => {
        run(shard, asker.must_be_peer()?, pool, sequence, count).await
    }))
};

/// Bytes of journal that a batch takes at most.
const JOURNAL_BYTES: u64 = 1024;

/// Make a batch, or return the one that was made under this number.
///
/// # Errors
/// `OverLimit` for none or too many; `NotSupported` where no data is held; `Conflict` for a number that is
/// over; or when the store fails.
pub async fn run(
    shard: &Rc<Shard>,
    asker: ServerId,
    pool: u64,
    sequence: u64,
    count: u16,
) -> Result<Answer, Status> {
    if count == 0 || usize::from(count) > limits::BATCH_MAX {
        return Err(Status::OverLimit);
    }
    if !shard.identity().map.server(shard.id()).is_some_and(|own| own.roles.contains(Roles::DATA)) {
        return Err(Status::NotSupported);
    }
    loop {
        let ask = Ask { journal_bytes: JOURNAL_BYTES, stream_bytes: 0, stream: None, frees: false };
        let _admission = shard.collection.admit(ask).await.map_err(status_of)?;
        let key = keys::grant(asker);
        let (row, _) = look(&shard.collection, |view| view.get(&key)).await.map_err(status_of)?;
        // From here to the batch's end nothing else runs.
        let last = row.map(|row| Grant::from_row(&row)).transpose().map_err(|error| {
            tracing::error!(%asker, %error, "the row of the batch made last cannot be decoded");
            Status::Io
        })?;
        let range = match last {
            Some(last)
                if last.pool == pool && last.sequence == sequence && !mutant::is(Mutant::BatchAgain) =>
            {
                last.range
            }
            Some(last) if last.pool == pool && last.sequence > sequence => return Err(Status::Conflict),
            _ => {
                let Some(first) = shard.handles.take_block(BLOCK) else {
                    shard.handles.grow(&shard.collection).await.map_err(status_of)?;
                    continue;
                };
                let range = Range { first, count };
                make(shard, asker, Grant { pool, sequence, range: range.clone() })?;
                range
            }
        };
        shard.env.crash_point(crash_point::BATCH_WRITES, sequence);
        settle(&shard.collection).await.map_err(status_of)?;
        shard.env.crash_point(crash_point::BATCH_MADE, sequence);
        return Ok(Answer::Batch { first: range.first, count: range.count });
    }
}

fn make(shard: &Rc<Shard>, asker: ServerId, grant: Grant) -> Result<(), Status> {
    let Range { first, count } = grant.range;
    let mut changes = Changes::default();
    changes.put(keys::batch(first), Batch::new(asker, count).to_row());
    changes.put(keys::grant(asker), grant.to_row());
    shard.collection.apply_over(changes, &Loaded::default()).map_err(status_of)?;
    add(&shard.counters.batches_made, 1);
    Ok(())
}
