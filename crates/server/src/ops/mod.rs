//! One operation, one file, one name.
//!
//! Each file has a `run` that takes the context and the operation's fields, and returns the answer or why it stopped. All
//! obey the same rules: read first, change last; check in the order POSIX gives its errors; and where another server may
//! be concerned, plan [actions](crate::actions) and change nothing directly. What a group of operations did is visible to
//! its later operations only if it was a direct change, so an operation that plans actions is the last of its group that
//! looks at what it touched.

use crate::ctx::{Ctx, Halt};
use shoal_proto::{Answer, Op, Status};

/// Run one operation of a group.
pub fn run(_ctx: &mut Ctx<'_>, op: &Op) -> Result<Answer, Halt> {
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
        Op::Setlayout { .. } => Err(Status::NotSupported.into()),
        Op::Read { .. } => Err(Status::NotSupported.into()),
        Op::Write { .. } => Err(Status::NotSupported.into()),
        Op::Append { .. } => Err(Status::NotSupported.into()),
        Op::Truncate { .. } => Err(Status::NotSupported.into()),
        Op::Allocate { .. } => Err(Status::NotSupported.into()),
        Op::Fsync { .. } => Err(Status::NotSupported.into()),
        Op::Streamstat { .. } => Err(Status::NotSupported.into()),
        Op::Unstuff { .. } => Err(Status::NotSupported.into()),
        Op::Reap { .. } => Err(Status::NotSupported.into()),

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
