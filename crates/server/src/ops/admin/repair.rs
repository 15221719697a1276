//! repair: repairs of fsck: actions executed as one local transaction.

use crate::request::ctx::{Ctx, Stopped};
use shoal_proto::{Action, Answer};

/// Plan the actions, all on this server.
pub fn run(ctx: &mut Ctx<'_>, actions: &[Action]) -> Result<Answer, Stopped> {
    for action in actions {
        ctx.act(ctx.identity.id, action.clone());
    }
    Ok(Answer::Done {})
}
