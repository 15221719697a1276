//! map: return the cluster's map, as this server has it.

use crate::ops::{OpFacts, handler};
use crate::request::ctx::{Ctx, Stopped};
use shoal_proto::{Answer, ClusterMap};

/// The facts of `map`: a handler that reads the map in memory. All other facts have their defaults.
pub const FACTS: OpFacts = OpFacts::new(handler!(|ctx| Map { } => run(ctx)));

/// The map.
pub fn run(ctx: &Ctx<'_>) -> Result<Answer, Stopped> {
    Ok(Answer::Map { map: ClusterMap::clone(&ctx.identity.map) })
}
