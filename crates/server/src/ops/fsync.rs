//! fsync: make a stream, its size and all metadata before it durable.

use crate::ctx::{Ctx, Halt};
use crate::data::{Bulk, Work};
use shoal_proto::{Answer, Handle};

/// Make it durable. The reply's loss id tells the client whether anything it wrote before may be lost.
pub fn run(ctx: &mut Ctx<'_>, stream: Handle) -> Result<Answer, Halt> {
    let stream = ctx.object(stream)?;
    match ctx.done(stream) {
        Some(done) => {
            done?;
            Ok(Answer::Synced {})
        }
        None => Err(Halt::Bulk(Box::new(Bulk { stream, work: Work::Fsync }))),
    }
}
