//! Actions of transactions: what each locks, when it is valid, what it changes.

use crate::ctx::{Ctx, Halt};
use crate::locks::Mode;
use crate::shard::Identity;
use bytes::Bytes;
use shoal_proto::Action;

/// The keys an action locks on its server.
pub fn locks(_identity: &Identity, _action: &Action) -> Vec<(Bytes, Mode)> {
    Vec::new()
}

/// Validate an action against the present state (prepare), changing nothing: `Changed` if the plan's facts are old.
pub fn validate(_ctx: &Ctx<'_>, _action: &Action) -> Result<(), Halt> {
    Ok(())
}

/// Validate and carry out an action.
pub fn apply(_ctx: &mut Ctx<'_>, _action: &Action) -> Result<(), Halt> {
    Ok(())
}
