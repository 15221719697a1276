//! status: return the state and the counts of this server, as JSON.

use crate::data::room::Room;
use crate::data::status_of;
use crate::ops::admin::setsync;
use crate::ops::{OpFacts, direct};
use crate::shard::Shard;
use serde_json::{Map, Value, json};
use shoal_proto::{Answer, Blob, KeyLimits, MountKey, MountKeyId, Status};
use std::rc::Rc;

/// The facts of `status`: direct, because it asks the store for its space. The other values are in memory.
pub const FACTS: OpFacts = OpFacts::new(direct!(|shard, _| Status { } => run(shard).await));

/// The server's state.
///
/// # Errors
/// The store cannot report its space.
pub async fn run(shard: &Rc<Shard>) -> Result<Answer, Status> {
    let space = shard.collection.space().await.map_err(status_of)?;
    let room = Room::of(shard, &space);
    let identity = shard.identity();
    let counts = shard.counters.snapshot();
    let (deciding, finishing, prepared) = shard.book.counts();
    let (metadata, data) = setsync::words(shard.collection.sync_modes());
    let fs_id: String = identity.map.fs_id.iter().map(|b| format!("{b:02x}")).collect();
    let counters: Map<String, Value> =
        counts.rows().into_iter().map(|(name, n)| (name.to_owned(), n.into())).collect();
    let env: Map<String, Value> = shard
        .env
        .counters()
        .snapshot()
        .rows()
        .into_iter()
        .map(|(name, n)| (name.to_owned(), n.into()))
        .collect();
    let store = shard.collection.counters();
    let levels = shard.pools.levels();
    let pools: Map<String, Value> =
        levels.into_iter().map(|(peer, level)| (format!("of_server_{peer}"), level.into())).collect();
    let written = json!({
        "batches": store.batches,
        "journal_bytes": store.journal_bytes,
        "groups": store.groups,
        "group_syncs": store.group_syncs,
        "operations": store.operations,
        "queue_depth": store.queue_depth,
        "queue_depth_max": store.queue_depth_max,
        "queue_bytes": store.queue_bytes,
        "coalescing_depth_max": store.coalescing_depth_max,
        "operation_syncs": store.operation_syncs,
        "operations_synced": store.operations_synced,
        "operations_per_sync": store.operations_per_sync,
        "written_bytes": store.written_bytes,
        "prewritten_bytes": store.prewritten_bytes,
        "checkpoints": store.checkpoints,
        "checkpoint_bytes": store.checkpoint_bytes,
        "loads": store.loads,
        "table_rows": store.table_rows,
        "row_bytes": store.row_bytes,
        "content_bytes": store.content_bytes,
        "segments": store.segments,
        "cleaned_bytes": store.cleaned_bytes,
    });
    let json = json!({
        "server": identity.id.0,
        "file_system": identity.map.name.0,
        "fs_id": fs_id,
        "collection": identity.collection.0,
        "epoch": identity.map.epoch,
        "module": format!("{:?}", shard.collection.kind()).to_lowercase(),
        "health": shard.collection.health().err().map_or("well".to_owned(), |error| error.to_string()),
        "sync": {
            "metadata": metadata,
            "data": data,
            "coalescing": shard.collection.sync_modes().coalescing.to_string(),
        },
        "uptime_s": shard.env.now().since(shard.started).as_secs(),
        "space": { "total_bytes": space.total, "available_bytes": space.available, "disk": space.disk },
        "room": { "free_bytes": room.free, "needed_bytes": room.needed, "short": room.words() },
        "removed_and_kept": { "files": shard.lingering.objects(), "bytes": shard.lingering.bytes() },
        "data": {
            "requests_in_hand": shard.engine().sweep.requests(),
            "cached_bytes": shard.engine().sweep.cached_bytes(),
        },
        "sessions": shard.sessions.len(),
        "audit": shard.audit.status(),
        "mount_keys": mount_keys(shard),
        "transactions": {
            "deciding": deciding,
            "finishing": finishing,
            "prepared": prepared,
            "ended": shard.book.ended(),
            "locks_held_by": shard.locks.holders().len(),
        },
        "queues": { "requests_parked": shard.work.len(), "replies_gated": shard.gate.len() },
        "operations": counts.ops,
        "latency_us": {
            "p50": counts.latency_us(0.5),
            "p90": counts.latency_us(0.9),
            "p99": counts.latency_us(0.99),
            "p999": counts.latency_us(0.999),
        },
        "counters": counters,
        "pools": pools,
        "journal": {
            "applied": shard.collection.applied().0,
            "written": shard.collection.written().0,
            "durable": shard.collection.durable().0,
        },
        "store": written,
        "env": env,
    });
    Ok(Answer::Json { json: Blob(json.to_string().into()) })
}

/// The mount keys of the map, and the first mount key if the map does not contain it. For each key: id, name,
/// limits, whether it is revoked, fingerprint, number of sessions. A fingerprint shows whether two key files
/// contain the same key, and nothing else about the key.
fn mount_keys(shard: &Shard) -> Vec<Value> {
    let identity = shard.identity();
    let first = MountKey {
        id: MountKeyId::FIRST,
        name: MountKey::FIRST_NAME.into(),
        limits: KeyLimits::default(),
        revoked: false,
    };
    let is_unnamed = identity.map.mount_key(MountKeyId::FIRST).is_none();
    let sessions = shard.sessions.all();
    let all = is_unnamed.then_some(&first).into_iter().chain(identity.map.keys.iter());
    all.map(|key| {
        json!({
            "id": key.id.to_string(),
            "name": key.name.0,
            "read_only": key.limits.contains(KeyLimits::READ_ONLY),
            "squash_root": key.limits.contains(KeyLimits::SQUASH_ROOT),
            "revoked": key.revoked,
            "fingerprint": identity.keys.named(&identity.map.fs_id, key.id).fingerprint(),
            "sessions": sessions.iter().filter(|session| session.key.get() == Some(key.id)).count(),
        })
    })
    .collect()
}
