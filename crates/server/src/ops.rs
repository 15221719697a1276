//! One operation, one file, one name.
//!
//! Each file has a `run` that takes the context and the operation's fields, and returns the answer or the
//! reason it stopped. All obey the same rules: read first, change last; check in the order POSIX gives its
//! errors; and where another server may be concerned, plan [actions](crate::txn::actions) and change nothing
//! directly. A group's changes are visible to its later operations only if they were direct changes, so an
//! operation that plans actions is the last of its group that looks at the objects it touched.

pub(crate) mod admin;
pub(crate) mod data;
pub(crate) mod namespace;
pub(crate) mod peer;
pub(crate) mod stepwise;

pub use data::reap::run as reap;
pub use namespace::make::FIRST_GENERATION;

use crate::request::ctx::{Ctx, Stopped};
use shoal_proto::{Answer, Op, Status};

/// Run one operation of a group.
pub fn run(ctx: &mut Ctx<'_>, op: &Op) -> Result<Answer, Stopped> {
    match op {
        Op::Lookup { dir, path } => namespace::lookup::run(ctx, *dir, path),
        Op::Getattr { object } => namespace::getattr::run(ctx, *object),
        Op::Setattr { object, set } => namespace::setattr::run(ctx, *object, set),
        Op::Create { dir, name, owner, exclusive, open, template } => {
            namespace::create::run(ctx, *dir, name, owner, *exclusive, *open, *template)
        }
        Op::Mknod { dir, name, owner, kind, rdev } => {
            namespace::mknod::run(ctx, *dir, name, owner, *kind, *rdev)
        }
        Op::Symlink { dir, name, owner, target } => namespace::symlink::run(ctx, *dir, name, owner, target),
        Op::Mkdir { dir, name, owner } => namespace::mkdir::run(ctx, *dir, name, owner),
        Op::Unlink { dir, name, held } => namespace::unlink::run(ctx, *dir, name, held),
        Op::Rmdir { dir, name } => namespace::rmdir::run(ctx, *dir, name),
        Op::Rename { from_dir, from_name, to_dir, to_name, no_replace, exchange, held } => {
            let (from, to) = ((*from_dir, from_name), (*to_dir, to_name));
            let asked = namespace::rename::Move {
                from,
                from_shard: from_dir.server(),
                to,
                no_replace: *no_replace,
                exchange: *exchange,
                held,
            };
            namespace::rename::run(ctx, asked)
        }
        Op::Link { object, dir, name } => namespace::link::run(ctx, *object, *dir, name),
        Op::Readlink { object } => namespace::readlink::run(ctx, *object),
        Op::Readdir { dir, after, bytes_max, plus, data_max, in_shard } => {
            let wanted = namespace::readdir::Wanted {
                bytes_max: *bytes_max,
                plus: *plus,
                data_max: *data_max,
                in_shard: *in_shard,
            };
            namespace::readdir::run(ctx, *dir, after.as_ref(), wanted)
        }
        Op::Getxattr { object, name } => namespace::getxattr::run(ctx, *object, name),
        Op::Setxattr { object, name, value, create, replace } => {
            namespace::setxattr::run(ctx, *object, name, value, *create, *replace)
        }
        Op::Listxattr { object } => namespace::listxattr::run(ctx, *object),
        Op::Removexattr { object, name } => namespace::removexattr::run(ctx, *object, name),
        Op::Open { object, rights } => namespace::open::run(ctx, *object, *rights),
        Op::Release { object } => namespace::release::run(ctx, *object),
        Op::Hold { objects } => namespace::hold::run(ctx, objects),
        Op::Entry { dir, name } => namespace::entry::run(ctx, *dir, name),

        // Data.
        Op::Setlayout { object, template } => data::setlayout::run(ctx, *object, *template),
        Op::Read { transfer } => data::read::run(ctx, transfer),
        Op::Write { transfer, len } => data::write::run(ctx, transfer, *len),
        Op::Append { object, capability, len } => data::append::run(ctx, *object, capability.as_ref(), *len),
        Op::Truncate { object, size, kill_privileges } => {
            data::truncate::run(ctx, *object, *size, *kill_privileges)
        }
        Op::Allocate { stream, generation, capability, from, len, mode } => {
            data::allocate::run(ctx, *stream, *generation, capability.as_ref(), *from, *len, *mode)
        }
        Op::Fsync { stream, generation } => data::fsync::run(ctx, *stream, *generation),
        Op::Streamstat { stream } => data::streamstat::run(ctx, *stream),
        Op::Unstuff { object } => data::unstuff::run(ctx, *object),
        Op::Reap { dead } => data::reap::run(ctx, dead),

        // Driven by the client.
        op if op.is_stepwise() && ctx.identity.map.switches.compound => Err(Status::NotSupported.into()),
        Op::Createmeta { dir, name, owner, open, template } => {
            stepwise::createmeta::run(ctx, *dir, name, owner, *open, *template)
        }
        Op::Createdata { owner } => stepwise::createdata::run(ctx, *owner),
        Op::Laydata { object, datafiles } => stepwise::laydata::run(ctx, *object, datafiles),
        Op::Crdirent { dir, name, object, kind } => stepwise::crdirent::run(ctx, *dir, name, *object, *kind),
        Op::Rmdirent { dir, name } => stepwise::rmdirent::run(ctx, *dir, name),
        Op::Removemeta { object, held } => stepwise::removemeta::run(ctx, *object, *held),
        Op::Removedata { owner, datafile } => stepwise::removedata::run(ctx, *owner, *datafile),
        Op::Settle { object, ticket, held } => stepwise::settle::run(ctx, *object, *ticket, *held),
        Op::Vouchentry { dir, name, object, client, refuse } => {
            stepwise::vouchentry::run(ctx, *dir, name, *object, *client, *refuse)
        }
        Op::Vouchdata { owner, datafile, refuse } => {
            stepwise::vouchdata::run(ctx, *owner, *datafile, *refuse)
        }
        Op::Discard { object } => stepwise::discard::run(ctx, *object),
        Op::Split { dir, entries } => peer::split::run(ctx, *dir, *entries),

        // Management.
        Op::Ping {} => admin::ping::run(),
        Op::Map {} => admin::map::run(ctx),
        Op::Addserver { addresses, roles } => admin::addserver::run(ctx, addresses, *roles),
        Op::Rows { prefix, after, limit } => admin::rows::run(ctx, prefix, after, *limit),
        Op::Repair { actions } => admin::repair::run(ctx, actions),

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
