//! reap: remove datafiles whose file is gone. Asked by the file's metadata server until it is answered; idempotent.

use crate::ctx::{Ctx, Halt};
use crate::keys;
use crate::rows::Datafile;
use shoal_proto::{Answer, Handle};
use shoal_store::StreamChange;

/// Remove those of the datafiles that exist and belong to `owner`.
pub fn run(ctx: &mut Ctx<'_>, owner: Handle, datafiles: &[Handle]) -> Result<Answer, Halt> {
    for &datafile in datafiles {
        let key = keys::datafile(datafile);
        if ctx.row::<Datafile>(&key)?.is_some_and(|row| row.owner == owner) {
            ctx.must_be_unlocked(&key)?;
            ctx.remove(key)?;
            ctx.change_stream(datafile, StreamChange::Remove)?;
        }
    }
    Ok(Answer::Done {})
}
