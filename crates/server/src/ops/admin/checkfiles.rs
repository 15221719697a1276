//! checkfiles: report the streams whose file is missing, for fsck.
//!
//! A row names the local file that has the bytes of a stream. If a disk was lost or an operator removed the
//! file, reads of the stream fail, and the row does not show that. So the operation opens each file; it
//! reads nothing.

use crate::data::status_of;
use crate::ops::{OpFacts, direct, when};
use crate::shard::Shard;
use futures_util::future::join_all;
use serde_json::json;
use shoal_proto::{Answer, Handle, Status};
use std::rc::Rc;

/// The facts of `checkfiles`: direct, because it opens files. It changes nothing, so the audit log keeps only
/// some of many such requests, each with the number of streams.
pub const FACTS: OpFacts = OpFacts {
    only_looks: true,
    object: when!(Checkfiles { streams } => json!({ "streams": streams.len() })),
    ..OpFacts::new(direct!(|shard, _| Checkfiles { streams } => run(shard, &streams).await))
};

/// Files that are looked for at once.
const AT_ONCE: usize = 16;

/// Those of the streams whose file is missing. A handle without a stream is not among them.
///
/// # Errors
/// As the store answers.
pub async fn run(shard: &Rc<Shard>, streams: &[Handle]) -> Result<Answer, Status> {
    let mut lost = Vec::new();
    for some in streams.chunks(AT_ONCE) {
        let looked = join_all(some.iter().map(|&stream| shard.collection.has_lost_file(stream))).await;
        for (&stream, is_lost) in some.iter().zip(looked) {
            if is_lost.map_err(status_of)? {
                lost.push(stream);
            }
        }
    }
    Ok(Answer::Handles { handles: lost.into() })
}
