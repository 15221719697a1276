//! draw: reserve handles of this server for another server. No handle is given twice; handles that the
//! other server does not use are lost.

use crate::ops::{OpFacts, direct};
use crate::request::executor::own_handle;
use crate::shard::Shard;
use shoal_proto::{Answer, Status, limits};
use std::rc::Rc;

/// The facts of `draw`: direct, because more handles may have to be reserved durably first.
pub const FACTS: OpFacts = OpFacts::new(direct!(|shard, _| Draw { count } => run(shard, count).await));

/// Draw some.
///
/// # Errors
/// `OverLimit`; or when the store fails.
pub async fn run(shard: &Rc<Shard>, count: u16) -> Result<Answer, Status> {
    if usize::from(count) > limits::HANDLES_MAX {
        return Err(Status::OverLimit);
    }
    let mut handles = Vec::with_capacity(usize::from(count));
    for _ in 0..count {
        handles.push(own_handle(shard).await?);
    }
    Ok(Answer::Handles { handles: handles.into() })
}
