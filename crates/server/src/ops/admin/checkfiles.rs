//! checkfiles: which streams have lost the file that holds their bytes, for fsck.
//!
//! Rows say where a stream's bytes are. They do not show that a disk was given up, or that an operator
//! removed a file: reads of such a stream fail. Each file is opened, and nothing is read.

use crate::data::status_of;
use crate::ops::{OpFacts, direct};
use crate::shard::Shard;
use futures_util::future::join_all;
use shoal_proto::{Answer, Handle, Status};
use std::rc::Rc;

/// Its facts.
pub const FACTS: OpFacts =
    OpFacts::new(direct!(|shard, _| Checkfiles { streams } => run(shard, &streams).await));

/// Files that are looked for at once.
const AT_ONCE: usize = 16;

/// Those of the streams whose file is not there. A stream that is not there either is none of them.
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
