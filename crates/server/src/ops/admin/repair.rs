//! repair: execute actions of a repair by fsck, as one local transaction.

use crate::ops::{OpFacts, handler, when};
use crate::request::ctx::{Ctx, Stopped};
use serde_json::json;
use shoal_proto::{Action, Answer};

/// The facts of `repair`: a handler. It asks for 2,048 bytes of journal for each action. The audit log gets
/// the names and the number of the actions.
pub const FACTS: OpFacts = OpFacts {
    journal_bytes: when!(Repair { actions } => 2048 * actions.len() as u64),
    object: when!(Repair { actions } => json!({
        "actions": actions.iter().map(Action::name).collect::<Vec<_>>(),
        "count": actions.len(),
    })),
    ..OpFacts::new(handler!(|ctx| Repair { actions } => run(ctx, actions)))
};

/// Plan the actions, all on this server.
///
/// # Errors
/// `NotSupported`: see [`Ctx::must_know_rows`].
pub fn run(ctx: &mut Ctx<'_>, actions: &[Action]) -> Result<Answer, Stopped> {
    ctx.must_know_rows()?;
    for action in actions {
        ctx.act(ctx.identity.id, action.clone());
    }
    Ok(Answer::Done {})
}
