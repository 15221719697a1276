//! reap: remove datafiles whose files are gone, and datafiles made ahead of need that no file will have. The
//! metadata server of the files repeats the request until it gets an answer; the operation is idempotent.

use crate::data::precreated;
use crate::meta::keys;
use crate::meta::rows::Datafile;
use crate::ops::{OpFacts, handler};
use crate::request::ctx::{Ctx, Stopped};
use shoal_proto::{Answer, Dead, Handle};
use shoal_store::StreamChange;

/// The facts of `reap`: a handler that needs no slot, because it is idempotent.
pub const FACTS: OpFacts = OpFacts::new(handler!(|ctx| Reap { dead } => run(ctx, dead)));

/// Remove those of the datafiles that are there and belong to their owner.
///
/// An untouched one is used up, if it was made for the owner's server: a write still on its way finds
/// nothing. A datafile that a start retired from a server's pool may have been touched, if that server lost
/// the record of the file that had it.
pub fn run(ctx: &mut Ctx<'_>, dead: &[Dead]) -> Result<Answer, Stopped> {
    let mut untouched = Vec::new();
    for &Dead { datafile, owner } in dead {
        let key = keys::datafile(datafile);
        let is_owner = |row: &Datafile| {
            let of_pool = owner == Handle::pool_of(owner.server()) && row.owner.server() == owner.server();
            row.owner == owner || of_pool
        };
        match ctx.row::<Datafile>(&key)? {
            Some(row) if is_owner(&row) => {
                ctx.must_be_unlocked(&key)?;
                ctx.remove(key)?;
                ctx.change_stream(datafile, StreamChange::Remove)?;
            }
            Some(_) => {}
            None if precreated::is_for(ctx, datafile, owner)? => {
                ctx.must_be_unlocked(&key)?;
                untouched.push(datafile);
            }
            None => {}
        }
    }
    precreated::use_up(ctx, &untouched)?;
    Ok(Answer::Done {})
}
