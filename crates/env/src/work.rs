//! Work that code reports, so that a simulated processor is charged for it.
//!
//! On a real machine computing takes its own time, and [`Env::work`](crate::Env::work) does nothing. A
//! simulated processor knows only the costs of task turns, socket calls and file calls. Code reports its
//! other work here, in units for which the files of machines state costs (`[cpu.client]`, `[cpu.server]`).
//! The report changes only the simulated time.

/// A kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// A request and its reply: encoding and decoding, on both sides.
    Message,
    /// A client begins a call of its program.
    Call,
    /// A server executes an operation.
    Operation,
    /// The additional cost of an operation that changes something.
    Change,
    /// The additional cost of a change that goes into a journal.
    Record,
    /// An object or entry that a change makes, alters or removes, in any number of messages: metafile,
    /// datafile, layout, entry.
    Object,
    /// The additional cost of removing one.
    Removal,
    /// An entry of a listing, encoded or decoded.
    Entry,
    /// 1,024 bytes of a file that are kept in memory, without their transfer.
    Keep,
}

impl Work {
    /// All of them, in the order of their costs.
    pub const ALL: [Work; 9] = [
        Work::Message,
        Work::Call,
        Work::Operation,
        Work::Change,
        Work::Record,
        Work::Object,
        Work::Removal,
        Work::Entry,
        Work::Keep,
    ];
}
