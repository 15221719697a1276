//! The facts of an operation: the server's own knowledge of the operation. The protocol states the rest as
//! the operation's [terms](shoal_proto::op::Terms).
//!
//! Each operation's file states the facts of its operation as one constant `FACTS`; [`super::of`] finds
//! them. A fact that an operation does not state has the value that it has for most operations
//! ([`OpFacts::new`]).
//!
//! The *cost* of an operation is a number of objects and entries that it makes, alters or removes. It does
//! not depend on the number of messages. `create`, `mkdir`, `mkforked`, `unlink`, `rmdir` and the steps of
//! `compound = off` state this number. By default an operation that changes something counts as 1, even if it
//! changes more: `rename`, `link`, `mknod` and `symlink`, for example. An operation on a file's contents
//! states 0, because the store reports contents by their bytes. The cost is reported to the environment as
//! work; nothing else depends on it.
//!
//! PVFS keeps each object and each entry as records of Berkeley DB. The small-file paper's augmented create
//! "allocates a local metadata object and a local data object to hold the first strip of data, then fills in
//! the distribution function" (section III.B). These are three records, and the directory entry is a fourth.
//! Without stuffing, PVFS's create takes a datafile of each server out of a pool; these datafiles were made
//! earlier, in batches. The create of ShoalFS makes a file in one operation, with two or three objects: the
//! entry, the metafile and, with stuffing, the first strip.

use crate::request::ctx::{Ctx, Stopped};
use crate::request::executor::Asker;
use crate::shard::Shard;
use futures_util::future::LocalBoxFuture;
use serde_json::Value;
use shoal_proto::{Answer, ClusterMap, Op, Status};
use std::rc::Rc;

/// A handler: see [`Ctx`].
pub type Handler = fn(&mut Ctx<'_>, &Op) -> Result<Answer, Stopped>;
/// A function that awaits what no handler may.
pub type Direct = for<'a> fn(&'a Rc<Shard>, Asker, Op) -> LocalBoxFuture<'a, Result<Answer, Status>>;

/// How an operation is run.
#[derive(Clone, Copy)]
pub enum RunAs {
    /// By a handler, in its group.
    Handler(Handler),
    /// It awaits a peer or the journal, which no group may: it is a group of its own and takes no slot. It is
    /// idempotent by its contents.
    Direct(Direct),
}

/// The state that an operation changes, as far as its durability depends on that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Alters {
    /// Names, objects, sizes; or nothing.
    Other,
    /// Attributes alone: no name, no size, no data.
    Attributes,
    /// Bytes of a file: only as durable as the modes say of data.
    Data,
}

/// The cost of an operation in a database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cost {
    /// Objects and entries that it makes, alters or removes.
    pub objects: u64,
    /// Those that it removes.
    pub removals: u64,
}

impl Cost {
    /// So many objects and entries, none removed.
    pub const fn of(objects: u64) -> Cost {
        Cost { objects, removals: 0 }
    }

    /// So many objects and entries, all removed.
    pub const fn removed(objects: u64) -> Cost {
        Cost { objects, removals: objects }
    }
}

/// The facts of one operation.
pub struct OpFacts {
    /// How it is run.
    pub run: RunAs,
    /// It is a step of an operation that the client drives itself: refused if compounds are on.
    pub is_step: bool,
    /// The state that it changes.
    pub alters: Alters,
    /// It makes earlier changes durable.
    pub makes_durable: bool,
    /// Handles of this server that it nearly always takes.
    pub draws: usize,
    /// It makes a directory, whose server is known before it runs.
    pub makes_directory: bool,
    /// A full disk must not refuse it: it frees space, or only reads.
    pub frees: fn(&Op) -> bool,
    /// Bytes of the journal to ask for, beyond those of any operation.
    pub journal_bytes: fn(&Op) -> u64,
    /// Bytes of the request's bulk data that it takes.
    pub takes_bytes: fn(&Op) -> usize,
    /// Bytes of data that it may be answered with.
    pub gives_bytes: fn(&Op) -> usize,
    /// Its cost.
    pub cost: fn(&Op, &ClusterMap) -> Cost,
    /// Whether a repair may request it, although only peers do.
    pub is_repair: fn(&Shard, &Op) -> bool,
    /// It manages and changes nothing: the audit log has some of many.
    pub only_looks: bool,
    /// The fields that matter of one that manages, for the audit log.
    pub object: fn(&Op) -> Value,
}

impl OpFacts {
    /// The facts of most operations.
    pub const fn new(run: RunAs) -> OpFacts {
        OpFacts {
            run,
            is_step: false,
            alters: Alters::Other,
            makes_durable: false,
            draws: 0,
            makes_directory: false,
            frees: |op| !op.changes(),
            journal_bytes: |_| 0,
            takes_bytes: |_| 0,
            gives_bytes: |_| 0,
            cost: |op, _| Cost::of(u64::from(op.changes())),
            is_repair: |_, _| false,
            only_looks: false,
            object: |_| Value::Null,
        }
    }

    /// Whether it is no handler.
    pub fn is_direct(&self) -> bool {
        matches!(self.run, RunAs::Direct(_))
    }
}

/// A fact that depends on fields of the operation: `when!(Write { len, .. } => *len as usize)`.
macro_rules! when {
    ($op:ident { $($fields:tt)* } => $fact:expr) => {
        |op| match op {
            shoal_proto::Op::$op { $($fields)* } => $fact,
            _ => Default::default(),
        }
    };
}

/// The handler of an operation: `handler!(|ctx| Getattr { object } => run(ctx, *object))`.
macro_rules! handler {
    (|$ctx:pat_param| $op:ident { $($fields:tt)* } => $run:expr) => {
        $crate::ops::RunAs::Handler(|$ctx, op| match op {
            shoal_proto::Op::$op { $($fields)* } => $run,
            _ => Err(shoal_proto::Status::NotSupported.into()),
        })
    };
}

/// The same of an operation that is no handler: `direct!(|shard, asker| Sync {} => run(shard).await)`.
macro_rules! direct {
    (|$shard:pat_param, $asker:pat_param| $op:ident { $($fields:tt)* } => $run:expr) => {
        $crate::ops::RunAs::Direct(|$shard, $asker, op| {
            Box::pin(async move {
                match op {
                    shoal_proto::Op::$op { $($fields)* } => $run,
                    _ => Err(shoal_proto::Status::NotSupported),
                }
            })
        })
    };
}

pub(crate) use {direct, handler, when};
