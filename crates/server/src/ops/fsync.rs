//! fsync: make a stream, its size and all metadata before it durable.
//!
//! **What is gone cannot be synced**: the bytes that were written to it went with it, and the answer says so (`Stale`).

use crate::batches;
use crate::ctx::{Ctx, Halt};
use crate::data::{Bulk, Work};
use crate::keys;
use crate::rows::Datafile;
use shoal_proto::{Answer, Handle, Status};

/// Make it durable. The reply's loss id tells the client whether anything it wrote before may be lost.
///
/// # Errors
/// `Stale`: the object is gone.
pub fn run(ctx: &mut Ctx<'_>, stream: Handle) -> Result<Answer, Halt> {
    let stream = ctx.object(stream)?;
    match ctx.done(stream) {
        Some(done) => {
            done?;
            Ok(Answer::Synced {})
        }
        None => {
            must_exist(ctx, stream)?;
            Err(Halt::Bulk(Box::new(Bulk { stream, work: Work::Fsync })))
        }
    }
}

/// A stream, an object without one (a directory, a link), or a datafile that was never written.
fn must_exist(ctx: &Ctx<'_>, stream: Handle) -> Result<(), Halt> {
    let exists = ctx.stream(stream)?.is_some()
        || ctx.row::<Datafile>(&keys::datafile(stream))?.is_some()
        || batches::is_untouched(ctx, stream)?;
    match exists || ctx.get(&keys::inode(stream))?.is_some() {
        true => Ok(()),
        false => Err(Halt::Status(Status::Stale)),
    }
}
