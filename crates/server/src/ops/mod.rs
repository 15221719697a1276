//! One operation, one file, one name.
//!
//! Each file has a `run` that takes the context and the operation's fields, and returns the answer or why it stopped. All
//! obey the same rules: read first, change last; check in the order POSIX gives its errors; and where another server may
//! be concerned, plan [actions](crate::actions) and change nothing directly. What a group of operations did is visible to
//! its later operations only if it was a direct change, so an operation that plans actions is the last of its group that
//! looks at what it touched.

mod allocate;
mod append;
mod fsync;
mod read;
mod reap;
mod setlayout;
mod streamstat;
mod truncate;
mod unstuff;
mod write;

use crate::ctx::{Ctx, Halt};
use shoal_proto::{Answer, Op, Status};

/// Run one operation of a group.
pub fn run(ctx: &mut Ctx<'_>, op: &Op) -> Result<Answer, Halt> {
    match op {
        Op::Lookup { .. }
        | Op::Getattr { .. }
        | Op::Setattr { .. }
        | Op::Create { .. }
        | Op::Mknod { .. }
        | Op::Symlink { .. }
        | Op::Mkdir { .. }
        | Op::Unlink { .. }
        | Op::Rmdir { .. }
        | Op::Rename { .. }
        | Op::Link { .. }
        | Op::Readlink { .. }
        | Op::Readdir { .. }
        | Op::Getxattr { .. }
        | Op::Setxattr { .. }
        | Op::Listxattr { .. }
        | Op::Removexattr { .. }
        | Op::Open { .. }
        | Op::Release { .. }
        | Op::Statfs {}
        | Op::Entry { .. } => Err(Status::NotSupported.into()),

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
        Op::Fsync { stream } => fsync::run(ctx, *stream),
        Op::Streamstat { stream } => streamstat::run(ctx, *stream),
        Op::Unstuff { object } => unstuff::run(ctx, *object),
        Op::Reap { owner, datafiles } => reap::run(ctx, *owner, datafiles),

        // The runtime answers these itself; none is part of a group's transaction.
        Op::Draw { .. }
        | Op::Prepare { .. }
        | Op::Finish { .. }
        | Op::Outcome { .. }
        | Op::Ping {}
        | Op::Map {}
        | Op::Setmap { .. }
        | Op::Addserver { .. }
        | Op::Status {}
        | Op::Rows { .. }
        | Op::Repair { .. }
        | Op::Setsync { .. }
        | Op::Sync {} => Err(Status::NotSupported.into()),
    }
}
