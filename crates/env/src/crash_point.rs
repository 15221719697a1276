//! Crash points: the steps of activities that must survive a stop at any moment.
//!
//! Code reports each step by [`Env::crash_point`](crate::Env::crash_point), with its activity (a
//! transaction by its id, a checkpoint, a start …). On real machines the report has no effect. The
//! simulator counts how often each step was reached, and how often a process was stopped *after this step
//! and before the next step*. It can also stop a process exactly there. So a long random test reports each
//! gap between two steps in which no process was ever stopped, and a test can assert that there is no such
//! gap.

/// A step of an activity. The activity waits between it and the next one: a stop can fall there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CrashPoint {
    /// The activity.
    pub activity: &'static str,
    /// The step.
    pub step: &'static str,
    /// The last step of its activity: no stop can fall between it and a next one.
    pub last: bool,
}

macro_rules! points {
    ($($activity:literal { $($(#[$doc:meta])* $name:ident $step:literal $($last:ident)?,)* })*) => {
        $($($(#[$doc])* pub const $name: CrashPoint =
            CrashPoint { activity: $activity, step: $step, last: points!(@ $($last)?) };)*)*
        /// All of them, in the order of their activities.
        pub const ALL: &[CrashPoint] = &[$($($name,)*)*];
    };
    (@ last) => { true };
    (@) => { false };
}

points! {
    "coordinator" {
        /// The participants are asked to prepare.
        COORDINATOR_ASKS "asks",
        /// The commit record is applied, and not durable yet.
        COORDINATOR_DECIDES "decides",
        /// The commit record is durable.
        COORDINATOR_DECIDED "decided",
        /// The record's removal is applied.
        COORDINATOR_FORGETS "forgets" last,
        /// It is given up; the participants are notified.
        COORDINATOR_GIVES_UP "gives up",
        /// They were notified.
        COORDINATOR_GAVE_UP "gave up" last,
        /// A start found its commit record.
        COORDINATOR_FOUND "found by a start",
    }
    "participant" {
        /// The row is applied, and not durable yet.
        PARTICIPANT_WRITES "writes",
        /// The row is durable.
        PARTICIPANT_PREPARED "prepared",
        /// It got no decision and asks the coordinator.
        PARTICIPANT_IN_DOUBT "in doubt",
        /// The actions are applied, and not durable yet.
        PARTICIPANT_COMMITS "commits",
        /// The actions are durable.
        PARTICIPANT_COMMITTED "committed" last,
        /// The row's removal is applied.
        PARTICIPANT_ABORTS "aborts" last,
        /// It refused to prepare.
        PARTICIPANT_REFUSES "refuses" last,
        /// A start found its row.
        PARTICIPANT_FOUND "found by a start",
    }
    "journal" {
        /// A group is on its way to the disk.
        JOURNAL_WRITES "writes a group",
        /// It is written.
        JOURNAL_WROTE "wrote a group" last,
    }
    "journal's sync" {
        /// Segments written to the page cache are synced.
        JOURNAL_SYNCS "syncs",
        /// They are.
        JOURNAL_SYNCED "synced" last,
    }
    "rotation" {
        /// The first group of a segment is on its way.
        ROTATION_BEGINS "first group on its way",
        /// It is written.
        ROTATION_DONE "first group written" last,
    }
    "segment" {
        /// A segment's file is made and prewritten.
        SEGMENT_PREWRITES "prewrites",
        /// It is ready.
        SEGMENT_READY "ready" last,
    }
    "checkpoint" {
        /// It is written to the tables.
        CHECKPOINT_WRITES "writes",
        /// A part of its rows is in the tables, and another is to come.
        CHECKPOINT_PART "applied a part",
        /// It is in the tables.
        CHECKPOINT_DONE "done" last,
    }
    "cleaning" {
        /// Contents of a poor segment are copied.
        CLEANING_COPIES "copies",
        /// They are; the records are not durable yet.
        CLEANING_COPIED "copied",
        /// They are durable.
        CLEANING_DONE "done" last,
    }
    "cut" {
        /// The intent is applied, and not durable yet.
        CUT_INTENDED "intended",
        /// The intent is durable.
        CUT_DURABLE "intent durable",
        /// The file is cut and synced.
        CUT_FILE "file cut",
        /// The completed cut is recorded.
        CUT_DONE "done" last,
    }
    "unlink" {
        /// A record that is not durable yet moves the stream out of its file.
        UNLINK_WAITS "waits",
        /// The record is durable; the file still exists.
        UNLINK_BEGINS "begins",
        /// The file is gone.
        UNLINK_DONE "done" last,
    }
    "move" {
        /// A stream's content is copied to a file.
        MOVE_COPIES "copies",
        /// The record is applied, and not written yet.
        MOVE_RECORDS "records",
        /// It is written, or the move was given up.
        MOVE_DONE "done" last,
    }
    "start" {
        /// The folder is locked and its identity known.
        START_BEGINS "begins",
        /// The checkpointed tables are open.
        START_TABLES "tables open",
        /// The journal is replayed.
        START_REPLAYED "replayed",
        /// Cuts that were intended are done.
        START_CUTS "cuts redone",
        /// Files agree with their rows.
        START_FILES "files settled",
        /// Transactions continue.
        START_TRANSACTIONS "transactions found",
        /// Sessions are known.
        START_SESSIONS "sessions found",
        /// The handles that the pools had lent are retired.
        START_POOLS "pools found" last,
    }
    "split" {
        /// The other servers are asked whether they are reachable.
        SPLIT_ASKS "asks",
        /// The directory is locked; its shards are prepared.
        SPLIT_FREEZES "freezes",
        /// The entries that moved are gone from its own server, durably; the shards are finishing.
        SPLIT_DECIDED "decided",
        /// All shards are there, or it was given up.
        SPLIT_DONE "done" last,
    }
    "reaper" {
        /// A server is asked to remove datafiles.
        REAPER_ASKS "asks",
        /// The rows' removal is applied.
        REAPER_DONE "done" last,
    }
    "pool" {
        /// The next batch is requested.
        POOL_ASKS "asks",
        /// The batch has arrived, and is not stored.
        POOL_HEARS "hears",
        /// The batch is stored, and not durable yet.
        POOL_STORES "stores",
        /// It is durable.
        POOL_FILLED "filled" last,
    }
    "pool's loan" {
        /// Some are to be lent.
        POOL_LENDS "lends",
        /// They are, durably.
        POOL_LENT "lent" last,
    }
    "batch" {
        /// It is applied, and not durable yet.
        BATCH_WRITES "writes",
        /// It is durable; the reply is not sent yet.
        BATCH_MADE "made" last,
    }
    "unfinished" {
        /// The server knows which of them are in their place, and those rows are gone.
        UNFINISHED_ASKED "asked",
        /// Objects that will never be in their place are removed.
        UNFINISHED_DISCARDED "discarded" last,
        /// Links of removed entries are counted.
        UNFINISHED_SETTLED "settled" last,
    }
    "session's end" {
        /// No message came for the time of the lease.
        LEASE_ENDS "ends",
        /// Objects that its client held open are gone.
        LEASE_RELEASED "released",
        /// Its rows' removal is applied.
        LEASE_FORGOTTEN "forgotten" last,
    }
}
