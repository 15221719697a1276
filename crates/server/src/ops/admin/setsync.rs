//! setsync: change the sync modes of this server's part of the file system, and the rule by which changes
//! share a sync.

use crate::data::status_of;
use crate::ops::{OpFacts, direct, when};
use crate::shard::Shard;
use serde_json::json;
use shoal_proto::{Answer, Status};
use shoal_store::{DataSync, MetadataSync, SyncModes, settle};
use std::rc::Rc;

/// The facts of `setsync`: direct. The audit log gets the two sync modes and the rule of coalescing.
pub const FACTS: OpFacts = OpFacts {
    object: when!(Setsync { metadata, data, coalescing } => json!({
        "metadata": metadata.0,
        "data": data.0,
        "coalescing": coalescing.0,
    })),
    ..OpFacts::new(direct!(|shard, _| Setsync { metadata, data, coalescing } => {
        run(shard, &metadata.0, &data.0, &coalescing.0).await
    }))
};

/// Set new modes: metadata `reply`, `fsync` or `never`; data `reply` or `fsync`; coalescing `per-op`,
/// `watermark:LOW:HIGH` or `pipelined`; empty leaves as is. Changes acknowledged under the old modes are
/// durable before.
///
/// # Errors
/// `Invalid`: another word.
pub async fn run(shard: &Rc<Shard>, metadata: &str, data: &str, coalescing: &str) -> Result<Answer, Status> {
    let present = shard.collection.sync_modes();
    let modes = SyncModes {
        metadata: match metadata {
            "" => present.metadata,
            "reply" => MetadataSync::AtReply,
            "fsync" => MetadataSync::AtFsync,
            "never" => MetadataSync::Never,
            _ => return Err(Status::Invalid),
        },
        data: match data {
            "" => present.data,
            "reply" => DataSync::AtReply,
            "fsync" => DataSync::AtFsync,
            _ => return Err(Status::Invalid),
        },
        coalescing: match coalescing {
            "" => present.coalescing,
            words => words.parse().map_err(|_| Status::Invalid)?,
        },
    };
    settle(&shard.collection).await.map_err(status_of)?;
    shard.collection.set_sync_modes(modes).await.map_err(status_of)?;
    // Replies under the new modes may wait for changes made meanwhile under the old ones.
    settle(&shard.collection).await.map_err(status_of)?;
    Ok(Answer::Done {})
}

/// The words of the modes.
pub fn words(modes: SyncModes) -> (&'static str, &'static str) {
    let metadata = match modes.metadata {
        MetadataSync::AtReply => "reply",
        MetadataSync::AtFsync => "fsync",
        MetadataSync::Never => "never",
    };
    let data = match modes.data {
        DataSync::AtFsync => "fsync",
        DataSync::AtReply => "reply",
    };
    (metadata, data)
}
