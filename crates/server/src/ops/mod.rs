//! One operation, one file, one name.
//!
//! Each file has a `run` that takes the context and the operation's fields, and returns the answer or why it stopped. All
//! obey the same rules: read first, change last; check in the order POSIX gives its errors; and where another server may
//! be concerned, plan [actions](crate::actions) and change nothing directly. What a group of operations did is visible to
//! its later operations only if it was a direct change, so an operation that plans actions is the last of its group that
//! looks at what it touched.

mod addserver;
mod allocate;
mod append;
pub(crate) mod batchcreate;
mod crdirent;
mod create;
mod createdata;
mod createmeta;
mod discard;
pub(crate) mod draw;
mod entry;
pub(crate) mod finish;
mod fsync;
mod getattr;
mod getxattr;
mod hold;
mod laydata;
mod link;
mod listxattr;
mod lookup;
mod make;
mod map;
mod mkdir;
mod mknod;
pub(crate) mod moveserver;
mod open;
pub(crate) mod outcome;
mod ping;
pub(crate) mod prepare;
mod read;
mod readdir;
mod readlink;
mod reap;
mod release;
pub(crate) mod remember;
mod removedata;
mod removemeta;
mod removexattr;
mod rename;
pub(crate) mod renew;
mod repair;
mod rmdir;
mod rmdirent;
mod rows;
mod setattr;
mod setlayout;
pub(crate) mod setmap;
pub(crate) mod setsync;
mod settle;
mod setxattr;
mod split;
pub(crate) mod statfs;
pub(crate) mod status;
mod streamstat;
mod symlink;
pub(crate) mod sync;
mod truncate;
mod unlink;
mod unstuff;
mod vouchdata;
mod vouchentry;
mod write;
pub(crate) mod yielding;

pub use make::FIRST_GENERATION;
pub use reap::run as reap;

use crate::ctx::{Ctx, Halt};
use shoal_proto::{Answer, Op, Status};

/// Run one operation of a group.
pub fn run(ctx: &mut Ctx<'_>, op: &Op) -> Result<Answer, Halt> {
    match op {
        Op::Lookup { dir, path } => lookup::run(ctx, *dir, path),
        Op::Getattr { object } => getattr::run(ctx, *object),
        Op::Setattr { object, set } => setattr::run(ctx, *object, set),
        Op::Create { dir, name, owner, exclusive, open, template } => {
            create::run(ctx, *dir, name, owner, *exclusive, *open, *template)
        }
        Op::Mknod { dir, name, owner, kind, rdev } => mknod::run(ctx, *dir, name, owner, *kind, *rdev),
        Op::Symlink { dir, name, owner, target } => symlink::run(ctx, *dir, name, owner, target),
        Op::Mkdir { dir, name, owner } => mkdir::run(ctx, *dir, name, owner),
        Op::Unlink { dir, name, held } => unlink::run(ctx, *dir, name, held),
        Op::Rmdir { dir, name } => rmdir::run(ctx, *dir, name),
        Op::Rename { from_dir, from_name, to_dir, to_name, no_replace, exchange, held } => {
            let (from, to) = ((*from_dir, from_name), (*to_dir, to_name));
            let asked = rename::Move {
                from,
                from_shard: from_dir.server(),
                to,
                no_replace: *no_replace,
                exchange: *exchange,
                held,
            };
            rename::run(ctx, asked)
        }
        Op::Link { object, dir, name } => link::run(ctx, *object, *dir, name),
        Op::Readlink { object } => readlink::run(ctx, *object),
        Op::Readdir { dir, after, bytes_max, plus, data_max, in_shard } => {
            let wanted = readdir::Wanted {
                bytes_max: *bytes_max,
                plus: *plus,
                data_max: *data_max,
                in_shard: *in_shard,
            };
            readdir::run(ctx, *dir, after.as_ref(), wanted)
        }
        Op::Getxattr { object, name } => getxattr::run(ctx, *object, name),
        Op::Setxattr { object, name, value, create, replace } => {
            setxattr::run(ctx, *object, name, value, *create, *replace)
        }
        Op::Listxattr { object } => listxattr::run(ctx, *object),
        Op::Removexattr { object, name } => removexattr::run(ctx, *object, name),
        Op::Open { object, rights } => open::run(ctx, *object, *rights),
        Op::Release { object } => release::run(ctx, *object),
        Op::Hold { objects } => hold::run(ctx, objects),
        Op::Entry { dir, name } => entry::run(ctx, *dir, name),

        // Data.
        Op::Setlayout { object, template } => setlayout::run(ctx, *object, *template),
        Op::Read { transfer } => read::run(ctx, transfer),
        Op::Write { transfer, len } => write::run(ctx, transfer, *len),
        Op::Append { object, capability, len } => append::run(ctx, *object, capability.as_ref(), *len),
        Op::Truncate { object, size, kill_privileges } => {
            truncate::run(ctx, *object, *size, *kill_privileges)
        }
        Op::Allocate { stream, generation, capability, from, len, mode } => {
            allocate::run(ctx, *stream, *generation, capability.as_ref(), *from, *len, *mode)
        }
        Op::Fsync { stream, generation } => fsync::run(ctx, *stream, *generation),
        Op::Streamstat { stream } => streamstat::run(ctx, *stream),
        Op::Unstuff { object } => unstuff::run(ctx, *object),
        Op::Reap { dead } => reap::run(ctx, dead),

        // Driven by the client.
        op if op.is_apart() && ctx.identity.map.switches.compound => Err(Status::NotSupported.into()),
        Op::Createmeta { dir, name, owner, open, template } => {
            createmeta::run(ctx, *dir, name, owner, *open, *template)
        }
        Op::Createdata { owner } => createdata::run(ctx, *owner),
        Op::Laydata { object, datafiles } => laydata::run(ctx, *object, datafiles),
        Op::Crdirent { dir, name, object, kind } => crdirent::run(ctx, *dir, name, *object, *kind),
        Op::Rmdirent { dir, name } => rmdirent::run(ctx, *dir, name),
        Op::Removemeta { object, held } => removemeta::run(ctx, *object, *held),
        Op::Removedata { owner, datafile } => removedata::run(ctx, *owner, *datafile),
        Op::Settle { object, ticket, held } => settle::run(ctx, *object, *ticket, *held),
        Op::Vouchentry { dir, name, object, client, refuse } => {
            vouchentry::run(ctx, *dir, name, *object, *client, *refuse)
        }
        Op::Vouchdata { owner, datafile, refuse } => vouchdata::run(ctx, *owner, *datafile, *refuse),
        Op::Discard { object } => discard::run(ctx, *object),
        Op::Split { dir, entries } => split::run(ctx, *dir, *entries),

        // Management.
        Op::Ping {} => ping::run(),
        Op::Map {} => map::run(ctx),
        Op::Addserver { addresses, roles } => addserver::run(ctx, addresses, *roles),
        Op::Rows { prefix, after, limit } => rows::run(ctx, prefix, after, *limit),
        Op::Repair { actions } => repair::run(ctx, actions),

        // Each a group of its own, run by the executor: see `executor::direct`.
        Op::Statfs {}
        | Op::Draw { .. }
        | Op::Batchcreate { .. }
        | Op::Prepare { .. }
        | Op::Finish { .. }
        | Op::Outcome { .. }
        | Op::Setmap { .. }
        | Op::Moveserver { .. }
        | Op::Renew { .. }
        | Op::Yield { .. }
        | Op::Remember { .. }
        | Op::Status {}
        | Op::Setsync { .. }
        | Op::Sync {} => Err(Status::NotSupported.into()),
    }
}

#[cfg(test)]
mod tests;
