//! Work: what code tells of itself so that a simulated processor can be charged for it.
//!
//! In the real world computing takes its time by itself, and [`Env::work`](crate::Env::work) is nothing. A simulated processor
//! knows only of turns of tasks, sockets and files; what lies between them is told here, in the units that machines' files
//! have costs for (`[cpu.client]`, `[cpu.server]`). Nothing but time ever depends on it.

/// A kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// A request and its reply: their making and taking apart, by whoever asks and by whoever answers.
    Message,
    /// A client begins a call of its program.
    Call,
    /// A server carries out an operation.
    Operation,
    /// What an operation costs more that changes something.
    Change,
    /// What a change costs more that goes into a journal.
    Record,
    /// An object or entry that a change makes, alters or takes away, whatever the messages: metafile, datafile, layout, entry.
    Object,
    /// What it costs more to take one away.
    Removal,
    /// An entry of a listing, made or taken apart.
    Entry,
    /// 1,024 bytes of a file that are kept in memory, beside their way there.
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
