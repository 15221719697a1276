//! map: the cluster's map, as this server knows it.

use crate::ctx::{Ctx, Halt};
use shoal_proto::{Answer, ClusterMap};

/// The map.
pub fn run(ctx: &Ctx<'_>) -> Result<Answer, Halt> {
    Ok(Answer::Map { map: ClusterMap::clone(&ctx.identity.map) })
}
