//! The registry of the operations. Each operation has one file, and one name in all places.
//!
//! Each operation's file states its [facts] as one constant `FACTS`, and has a function `run`. An operation
//! has one of two forms ([`RunAs`]). The `run` of a *handler* takes the context and the operation's fields,
//! and returns the answer or the reason why it stopped. The `run` of a *direct* operation may await; it takes
//! the shard in place of the context.
//!
//! A *group* is a list of operations that are committed together; a direct operation is a group of its own.
//! All handlers follow the same rules:
//!
//! - They read first and change last.
//! - They check in the order in which POSIX lists its errors.
//! - If another server may take part, they plan [actions](crate::txn::actions) and change nothing directly.
//!
//! Later operations of a group see the direct changes of earlier ones, and not their planned actions. So if
//! an operation plans an action on an object, no later operation of the group may read that object.

pub mod facts;
pub(crate) mod forks;
pub(crate) mod make;

pub(crate) mod namespace {
    //! Names, attributes and links: the operations of directories and inodes.

    pub(crate) mod create;
    pub(crate) mod entry;
    pub(crate) mod getattr;
    pub(crate) mod getxattr;
    pub(crate) mod hold;
    pub(crate) mod link;
    pub(crate) mod listxattr;
    pub(crate) mod lookup;
    pub(crate) mod mkdir;
    pub(crate) mod mkforked;
    pub(crate) mod mknod;
    pub(crate) mod open;
    pub(crate) mod readdir;
    pub(crate) mod readlink;
    pub(crate) mod release;
    pub(crate) mod removexattr;
    pub(crate) mod rename;
    pub(crate) mod rmdir;
    pub(crate) mod rmforked;
    pub(crate) mod setattr;
    pub(crate) mod setxattr;
    pub(crate) mod symlink;
    pub(crate) mod unlink;
}

pub(crate) mod data {
    //! Bytes of files: transfers, sizes, layouts, and the removal of their datafiles.
    //!
    //! They check rights and layouts here and leave the bytes to the [data engine](crate::data).

    pub(crate) mod allocate;
    pub(crate) mod append;
    pub(crate) mod dropcache;
    pub(crate) mod fsync;
    pub(crate) mod read;
    pub(crate) mod reap;
    pub(crate) mod setlayout;
    pub(crate) mod streamstat;
    pub(crate) mod truncate;
    pub(crate) mod unstuff;
    pub(crate) mod write;
}

pub(crate) mod locks {
    //! Requests for locks of files, and the fence of a file of which an exclusive lock was lost.
    //!
    //! All but the fence run outside the handlers, because they may wait. They change one row only, which
    //! says that a client has locks.

    pub(crate) mod fence;
    pub(crate) mod getlk;
    pub(crate) mod lock;
    pub(crate) mod reclaim;
    pub(crate) mod unlock;
    pub(crate) mod unwait;
}

pub(crate) mod stepwise {
    //! Creation and removal driven by the client, one message a step (`compound = off`).
    //!
    //! The steps leave rows that [`crate::stepwise`] finishes when their client is gone.

    pub(crate) mod crdirent;
    pub(crate) mod createdata;
    pub(crate) mod createmeta;
    pub(crate) mod discard;
    pub(crate) mod laydata;
    pub(crate) mod removedata;
    pub(crate) mod removemeta;
    pub(crate) mod rmdirent;
    pub(crate) mod settle;
    pub(crate) mod vouchdata;
    pub(crate) mod vouchentry;
}

pub(crate) mod peer {
    //! Requests of one server to another: transactions, precreated datafiles, splits, positions.
    //!
    //! Clients that send them are refused ([`crate::request::executor`]). Only a repair may send
    //! `finish`, for a transaction whose coordinator is lost.

    pub(crate) mod batchcreate;
    pub(crate) mod draw;
    pub(crate) mod finish;
    pub(crate) mod outcome;
    pub(crate) mod prepare;
    pub(crate) mod remember;
    pub(crate) mod split;
    pub(crate) mod r#yield;
}

pub(crate) mod admin {
    //! The operator's requests: the map, the state of a server, modes, repairs.
    //!
    //! They concern a server or the whole file system, not one file of it.

    pub(crate) mod addserver;
    pub(crate) mod checkfiles;
    pub(crate) mod map;
    pub(crate) mod moveserver;
    pub(crate) mod ping;
    pub(crate) mod renew;
    pub(crate) mod repair;
    pub(crate) mod rows;
    pub(crate) mod setkey;
    pub(crate) mod setmap;
    pub(crate) mod setsync;
    pub(crate) mod statfs;
    pub(crate) mod status;
    pub(crate) mod sync;
}

pub use data::reap::run as reap;
pub use facts::{Alters, OpFacts, RunAs};
pub(crate) use facts::{direct, handler, when};
pub use make::FIRST_GENERATION;

use crate::request::ctx::{Ctx, Stopped};
use shoal_proto::{Answer, Op, Status};

/// Run one operation of a group.
pub fn run(ctx: &mut Ctx<'_>, op: &Op) -> Result<Answer, Stopped> {
    let facts = of(op);
    match facts.run {
        RunAs::Handler(run) if !(facts.is_step && ctx.identity.map.switches.compound) => run(ctx, op),
        RunAs::Handler(_) | RunAs::Direct(_) => Err(Status::NotSupported.into()),
    }
}

/// The facts of an operation.
pub fn of(op: &Op) -> &'static OpFacts {
    match op {
        Op::Create { .. } => &namespace::create::FACTS,
        Op::Entry { .. } => &namespace::entry::FACTS,
        Op::Getattr { .. } => &namespace::getattr::FACTS,
        Op::Getxattr { .. } => &namespace::getxattr::FACTS,
        Op::Hold { .. } => &namespace::hold::FACTS,
        Op::Link { .. } => &namespace::link::FACTS,
        Op::Listxattr { .. } => &namespace::listxattr::FACTS,
        Op::Lookup { .. } => &namespace::lookup::FACTS,
        Op::Mkdir { .. } => &namespace::mkdir::FACTS,
        Op::Mkforked { .. } => &namespace::mkforked::FACTS,
        Op::Mknod { .. } => &namespace::mknod::FACTS,
        Op::Open { .. } => &namespace::open::FACTS,
        Op::Readdir { .. } => &namespace::readdir::FACTS,
        Op::Readlink { .. } => &namespace::readlink::FACTS,
        Op::Release { .. } => &namespace::release::FACTS,
        Op::Removexattr { .. } => &namespace::removexattr::FACTS,
        Op::Rename { .. } => &namespace::rename::FACTS,
        Op::Rmdir { .. } => &namespace::rmdir::FACTS,
        Op::Rmforked { .. } => &namespace::rmforked::FACTS,
        Op::Setattr { .. } => &namespace::setattr::FACTS,
        Op::Setxattr { .. } => &namespace::setxattr::FACTS,
        Op::Symlink { .. } => &namespace::symlink::FACTS,
        Op::Unlink { .. } => &namespace::unlink::FACTS,
        Op::Fence { .. } => &locks::fence::FACTS,
        Op::Getlk { .. } => &locks::getlk::FACTS,
        Op::Lock { .. } => &locks::lock::FACTS,
        Op::Reclaim { .. } => &locks::reclaim::FACTS,
        Op::Unlock { .. } => &locks::unlock::FACTS,
        Op::Unwait { .. } => &locks::unwait::FACTS,
        Op::Allocate { .. } => &data::allocate::FACTS,
        Op::Append { .. } => &data::append::FACTS,
        Op::Dropcache { .. } => &data::dropcache::FACTS,
        Op::Fsync { .. } => &data::fsync::FACTS,
        Op::Read { .. } => &data::read::FACTS,
        Op::Reap { .. } => &data::reap::FACTS,
        Op::Setlayout { .. } => &data::setlayout::FACTS,
        Op::Streamstat { .. } => &data::streamstat::FACTS,
        Op::Truncate { .. } => &data::truncate::FACTS,
        Op::Unstuff { .. } => &data::unstuff::FACTS,
        Op::Write { .. } => &data::write::FACTS,
        Op::Crdirent { .. } => &stepwise::crdirent::FACTS,
        Op::Createdata { .. } => &stepwise::createdata::FACTS,
        Op::Createmeta { .. } => &stepwise::createmeta::FACTS,
        Op::Discard { .. } => &stepwise::discard::FACTS,
        Op::Laydata { .. } => &stepwise::laydata::FACTS,
        Op::Removedata { .. } => &stepwise::removedata::FACTS,
        Op::Removemeta { .. } => &stepwise::removemeta::FACTS,
        Op::Rmdirent { .. } => &stepwise::rmdirent::FACTS,
        Op::Settle { .. } => &stepwise::settle::FACTS,
        Op::Vouchdata { .. } => &stepwise::vouchdata::FACTS,
        Op::Vouchentry { .. } => &stepwise::vouchentry::FACTS,
        Op::Batchcreate { .. } => &peer::batchcreate::FACTS,
        Op::Draw { .. } => &peer::draw::FACTS,
        Op::Finish { .. } => &peer::finish::FACTS,
        Op::Outcome { .. } => &peer::outcome::FACTS,
        Op::Prepare { .. } => &peer::prepare::FACTS,
        Op::Remember { .. } => &peer::remember::FACTS,
        Op::Split { .. } => &peer::split::FACTS,
        Op::Yield { .. } => &peer::r#yield::FACTS,
        Op::Addserver { .. } => &admin::addserver::FACTS,
        Op::Map { .. } => &admin::map::FACTS,
        Op::Moveserver { .. } => &admin::moveserver::FACTS,
        Op::Ping { .. } => &admin::ping::FACTS,
        Op::Renew { .. } => &admin::renew::FACTS,
        Op::Repair { .. } => &admin::repair::FACTS,
        Op::Rows { .. } => &admin::rows::FACTS,
        Op::Setkey { .. } => &admin::setkey::FACTS,
        Op::Setmap { .. } => &admin::setmap::FACTS,
        Op::Setsync { .. } => &admin::setsync::FACTS,
        Op::Statfs { .. } => &admin::statfs::FACTS,
        Op::Status { .. } => &admin::status::FACTS,
        Op::Checkfiles { .. } => &admin::checkfiles::FACTS,
        Op::Sync { .. } => &admin::sync::FACTS,
    }
}

#[cfg(test)]
mod tests;
