//! The costs of each operation in the baseline, the paper's set and ours: the table of docs/lab/COUNTS.md, as
//! counts.
//!
//! The operations work on a small file that lies on the server of its name; only large reads and writes move
//! 4 MiB of a file over all servers. There are `n` servers, each of which holds metadata and data; the client
//! knows only the directory. Messages are exact (`crates/shoal/tests/counts` asserts them, a test here
//! compares this file with the document). A client's successive waits follow the order of the steps: in the
//! baseline's create the metafile, all datafiles at once, the layout, the entry. Metadata is durable at
//! reply, each change by a sync; data is durable at fsync, so a write has no sync of its own.

use crate::counts::{Counts, Share};

/// Bytes of a small file.
pub const SMALL_BYTES: f64 = 8192.0;
/// Bytes of a large transfer: one call.
pub const LARGE_BYTES: f64 = 4.0 * 1024.0 * 1024.0;
/// Bytes of one message of a large transfer.
const CHUNK_BYTES: f64 = 256.0 * 1024.0;
/// Frames and fixed parts of a message, each way (docs/lab/COUNTS.md: a remove is 136 bytes on the wire).
const FRAME_BYTES: f64 = 70.0;
/// Of a create, further: the entry's name and owner to the server, attributes and capability back.
const CREATE_BYTES: (f64, f64) = (40.0, 100.0);
/// Beside the contents of a small file that goes in one message, and of one that comes.
const WRITE_BESIDE_BYTES: f64 = 121.0;
const READ_BESIDE_BYTES: f64 = 336.0;
/// An entry of a listing with its attributes.
const ENTRY_BYTES: f64 = 141.0;
/// Entries a buffer: 1,000 take two.
const ENTRIES_A_BUFFER: f64 = 500.0;
/// Objects of one message that makes or takes away a small file as a whole. The paper's augmented create:
/// metafile, datafile, distribution (section III.B); ours: entry, metafile, first strip.
const WHOLE_OBJECTS: f64 = 3.0;
/// Rows of a create, and of a change that removes, in the journal's group.
const CREATE_ROW_BYTES: f64 = 560.0;
const REMOVE_ROW_BYTES: f64 = 230.0;

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A file is made, and stays empty.
    Create,
    /// A file is made, 8 KiB are written, it is closed.
    CreateWriteClose,
    /// 8 KiB are written into an open file.
    Write,
    /// 8 KiB are read of an open file.
    Read,
    /// Attributes by name.
    Stat,
    /// A file of 8 KiB is opened, read, closed.
    OpenReadClose,
    /// A file is removed.
    Remove,
    /// One entry of a listing with attributes.
    ListEntry,
    /// 4 MiB are written, over all servers.
    LargeWrite,
    /// 4 MiB are read.
    LargeRead,
}

/// Which techniques are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Set {
    /// PVFS without techniques for small files.
    Baseline,
    /// The small-file paper's five.
    Paper,
    /// Ours.
    Ours,
}

impl Set {
    /// All sets.
    pub fn all() -> &'static [Set] {
        &[Set::Baseline, Set::Paper, Set::Ours]
    }

    /// In a word, as `--switches` takes it.
    pub fn word(self) -> &'static str {
        match self {
            Set::Baseline => "baseline",
            Set::Paper => "paper",
            Set::Ours => "ours",
        }
    }

    /// Operations that one sync may complete: every one has its own; the paper's marks of 1 and 8, where the
    /// ninth comes before the test; all that wait.
    pub fn per_sync(self) -> Option<u32> {
        match self {
            Set::Baseline => Some(1),
            Set::Paper => Some(9),
            Set::Ours => None,
        }
    }
}

impl Operation {
    /// All operations.
    pub fn all() -> &'static [Operation] {
        use Operation::*;
        &[
            Create,
            CreateWriteClose,
            Write,
            Read,
            Stat,
            OpenReadClose,
            Remove,
            ListEntry,
            LargeWrite,
            LargeRead,
        ]
    }

    /// In a word, for programs and files.
    pub fn word(self) -> &'static str {
        match self {
            Operation::Create => "create",
            Operation::CreateWriteClose => "create_write_close",
            Operation::Write => "write",
            Operation::Read => "read",
            Operation::Stat => "stat",
            Operation::OpenReadClose => "open_read_close",
            Operation::Remove => "remove",
            Operation::ListEntry => "list_entry",
            Operation::LargeWrite => "large_write",
            Operation::LargeRead => "large_read",
        }
    }

    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Create => "create",
            Operation::CreateWriteClose => "create, write 8 KiB, close",
            Operation::Write => "write 8 KiB",
            Operation::Read => "read 8 KiB",
            Operation::Stat => "stat",
            Operation::OpenReadClose => "open, read 8 KiB, close",
            Operation::Remove => "remove",
            Operation::ListEntry => "list, an entry",
            Operation::LargeWrite => "write by 4 MiB, no sync",
            Operation::LargeRead => "read by 4 MiB",
        }
    }

    /// Bytes that one moves, where the rate is in bytes.
    pub fn large_bytes(self) -> Option<f64> {
        matches!(self, Operation::LargeWrite | Operation::LargeRead).then_some(LARGE_BYTES)
    }

    /// The cost of one, with `n` servers.
    pub fn counts(self, set: Set, n: u32) -> Counts {
        let n = f64::from(n.max(1));
        let steps = match self {
            Operation::Create => create(set, n),
            Operation::CreateWriteClose => create_write_close(set, n),
            Operation::Write => write(set),
            Operation::Read => read(set),
            Operation::Stat => stat(set, n),
            Operation::OpenReadClose => open_read_close(set),
            Operation::Remove => remove(set, n),
            Operation::ListEntry => return list_entry(set, n),
            Operation::LargeWrite => large(set, n, LARGE_BYTES, true),
            Operation::LargeRead => large(set, n, LARGE_BYTES, false),
        };
        counted(&steps)
    }

    /// The cost of a transfer of so many bytes in one call, with `n` servers.
    pub fn transfer(set: Set, n: u32, bytes: f64, is_write: bool) -> Counts {
        counted(&large(set, f64::from(n.max(1)), bytes, is_write))
    }
}

/// Messages that go out together, and are waited for together.
#[derive(Clone, Copy, Default)]
struct Step {
    metadata: f64,
    data: f64,
    changes: bool,
    /// Objects and entries that each message makes, alters or takes away.
    objects: f64,
    /// It takes them away.
    removes: bool,
    /// Rows in the journal, for each message.
    row_bytes: f64,
    /// Beside the frames, of all messages together.
    bytes_out: f64,
    bytes_in: f64,
    read_bytes: f64,
    buffered_bytes: f64,
}

fn ask(metadata: f64, data: f64) -> Step {
    Step { metadata, data, ..Step::default() }
}

fn change(metadata: f64, data: f64, row_bytes: f64) -> Step {
    Step { metadata, data, changes: true, objects: 1.0, row_bytes, ..Step::default() }
}

fn counted(steps: &[Step]) -> Counts {
    let mut counts = Counts { calls: 1.0, ..Counts::default() };
    for step in steps {
        counts.round_trips += 1.0;
        counts.waited_syncs += f64::from(u8::from(step.changes));
        let removals = if step.removes { step.objects } else { 0.0 };
        counts.waited_objects += step.objects;
        counts.waited_removals += removals;
        let messages = step.metadata + step.data;
        for (share, own) in [(&mut counts.metadata, step.metadata), (&mut counts.data, step.data)] {
            let part = own / messages;
            let changes = if step.changes { own } else { 0.0 };
            share.messages += own;
            share.operations += own;
            share.changes += changes;
            share.objects += own * step.objects;
            share.removals += own * removals;
            share.syncs += changes;
            share.bytes_out += own * FRAME_BYTES + part * step.bytes_out;
            share.bytes_in += own * FRAME_BYTES + part * step.bytes_in;
            share.read_bytes += part * step.read_bytes;
            share.write_bytes += own * step.row_bytes;
            share.buffered_bytes += part * step.buffered_bytes;
        }
    }
    counts
}

fn create(set: Set, n: f64) -> Vec<Step> {
    let (bytes_out, bytes_in) = CREATE_BYTES;
    let whole = Step { bytes_out, bytes_in, ..change(1.0, 0.0, CREATE_ROW_BYTES) };
    // The rows are those of one create, in as many parts as there are steps.
    let part = |messages, data| change(messages, data, CREATE_ROW_BYTES / 4.0);
    match set {
        // The metafile, its datafiles, its layout, its entry.
        Set::Baseline => {
            vec![part(1.0, 0.0), part(0.0, n), part(1.0, 0.0), Step { bytes_out, bytes_in, ..part(1.0, 0.0) }]
        }
        // The augmented create, the entry.
        Set::Paper => {
            let half = change(1.0, 0.0, CREATE_ROW_BYTES / 2.0);
            vec![Step { objects: WHOLE_OBJECTS, ..half }, Step { bytes_out, bytes_in, ..half }]
        }
        Set::Ours => vec![Step { objects: WHOLE_OBJECTS, ..whole }],
    }
}

fn create_write_close(set: Set, n: f64) -> Vec<Step> {
    let mut steps = create(set, n);
    match set {
        Set::Baseline | Set::Paper => steps.extend(write(set)),
        Set::Ours => {
            // By itself a write is not waited for at the disk; with the create it is in the journal's record.
            let row = CREATE_ROW_BYTES + SMALL_BYTES;
            steps[0] = Step { row_bytes: row, buffered_bytes: 0.0, ..written(steps[0]) };
        }
    }
    steps
}

fn written(step: Step) -> Step {
    Step { bytes_out: SMALL_BYTES + WRITE_BESIDE_BYTES, buffered_bytes: SMALL_BYTES, ..step }
}

fn write(set: Set) -> Vec<Step> {
    match set {
        // A rendezvous before the data.
        Set::Baseline => vec![ask(0.0, 1.0), written(ask(0.0, 1.0))],
        Set::Paper | Set::Ours => vec![written(ask(0.0, 1.0))],
    }
}

fn read(set: Set) -> Vec<Step> {
    match set {
        Set::Baseline => vec![ask(0.0, 1.0), fetched(ask(0.0, 1.0))],
        Set::Paper | Set::Ours => vec![fetched(ask(0.0, 1.0))],
    }
}

fn fetched(step: Step) -> Step {
    Step { bytes_in: SMALL_BYTES + READ_BESIDE_BYTES, read_bytes: SMALL_BYTES, ..step }
}

fn stat(set: Set, n: f64) -> Vec<Step> {
    let attributes = Step { bytes_in: CREATE_BYTES.1, ..ask(1.0, 0.0) };
    match set {
        Set::Baseline => vec![attributes, ask(0.0, n)],
        Set::Paper | Set::Ours => vec![attributes],
    }
}

fn open_read_close(set: Set) -> Vec<Step> {
    let mut steps = vec![ask(1.0, 0.0), ask(1.0, 0.0)];
    match set {
        Set::Baseline | Set::Paper => steps.extend(read(set)),
        Set::Ours => steps = vec![fetched(ask(1.0, 0.0))],
    }
    steps
}

fn remove(set: Set, n: f64) -> Vec<Step> {
    let gone = |metadata, data, parts: f64| Step {
        removes: true,
        ..change(metadata, data, REMOVE_ROW_BYTES / parts)
    };
    match set {
        // The entry, the metafile, its datafiles.
        Set::Baseline => vec![gone(1.0, 0.0, 3.0), gone(1.0, 0.0, 3.0), gone(0.0, n, 3.0)],
        Set::Paper => vec![gone(1.0, 0.0, 3.0), gone(1.0, 0.0, 3.0), gone(0.0, 1.0, 3.0)],
        Set::Ours => vec![Step { objects: WHOLE_OBJECTS, ..gone(1.0, 0.0, 1.0) }],
    }
}

fn list_entry(set: Set, n: f64) -> Counts {
    let buffer = 1.0 / ENTRIES_A_BUFFER;
    // The buffer's own; for each entry its attributes, then sizes of its datafiles; a question to each server
    // a buffer.
    let (round_trips, metadata, data) = match set {
        Set::Baseline => (buffer + 2.0, buffer + 1.0, n),
        Set::Paper => (2.0 * buffer, buffer * (1.0 + n), 0.0),
        Set::Ours => (buffer, buffer, 0.0),
    };
    let share = |messages: f64, entries: f64| Share {
        messages,
        operations: messages,
        entries,
        bytes_out: messages * FRAME_BYTES,
        bytes_in: messages * FRAME_BYTES + entries * ENTRY_BYTES,
        ..Share::default()
    };
    Counts {
        calls: buffer,
        round_trips,
        metadata: share(metadata, 1.0),
        data: share(data, 0.0),
        ..Counts::default()
    }
}

fn large(set: Set, n: f64, bytes: f64, is_write: bool) -> Vec<Step> {
    let messages = (bytes / CHUNK_BYTES).ceil().max(1.0);
    let (out, back) = if is_write { (bytes, 0.0) } else { (0.0, bytes) };
    let flow =
        Step { bytes_out: out, bytes_in: back, read_bytes: back, buffered_bytes: out, ..ask(0.0, messages) };
    match set {
        // A rendezvous with each server that has a part.
        Set::Baseline => vec![ask(0.0, n.min(messages)), flow],
        Set::Paper | Set::Ours => vec![flow],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Operations, and how their rows begin in the document's tables.
    const ROWS: [(Operation, &str); 5] = [
        (Operation::Create, "| create |"),
        (Operation::CreateWriteClose, "| create, write 8 KiB, close |"),
        (Operation::Stat, "| stat, with its lookup |"),
        (Operation::OpenReadClose, "| lookup, read 8 KiB, close |"),
        (Operation::Remove, "| remove |"),
    ];

    /// The document's words of a cell, for a number of servers.
    fn said(cell: &str, n: u32) -> f64 {
        let cell = cell.trim().trim_matches('*');
        match cell.split_once(" + ") {
            Some(("n", more)) => f64::from(n) + more.parse::<f64>().expect("a number"),
            _ => cell.parse().expect("a number"),
        }
    }

    #[test]
    fn messages_are_those_of_the_document() {
        let document = include_str!("../../../docs/lab/COUNTS.md");
        let table = document.split("## The baseline, the paper's set, and ours").nth(1).expect("its part");
        for (operation, begin) in ROWS {
            let line = table.lines().find(|line| line.starts_with(begin)).expect(begin);
            let cells: Vec<&str> = line.split('|').skip(2).collect();
            for (set, cell) in Set::all().iter().zip(cells) {
                for n in [1, 4, 8] {
                    let counts = operation.counts(*set, n).servers();
                    assert_eq!(counts.messages, said(cell, n), "{operation:?}, {set:?}, {n} servers");
                }
            }
        }
    }

    #[test]
    fn bytes_on_the_wire_and_syncs_are_those_of_the_document() {
        let document = include_str!("../../../docs/lab/COUNTS.md");
        for (operation, begin) in ROWS {
            let line = document.lines().find(|line| line.starts_with(begin)).expect(begin);
            let cells: Vec<f64> = line
                .split('|')
                .skip(5)
                .filter_map(|cell| cell.trim().replace(',', "").parse().ok())
                .collect();
            let counts = operation.counts(Set::Ours, 4);
            let all = counts.servers();
            assert_eq!((all.syncs, counts.waited_syncs), (cells[0], cells[0]), "{line}");
            let wire = all.bytes_out + all.bytes_in;
            assert!(
                (wire / cells[3] - 1.0).abs() < 0.05,
                "{operation:?}: {wire} bytes, the document has {}",
                cells[3]
            );
        }
    }

    #[test]
    fn steps_that_are_waited_for_are_those_of_the_sets() {
        let trips = |operation: Operation| {
            Set::all().iter().map(|s| operation.counts(*s, 4).round_trips).collect::<Vec<_>>()
        };
        assert_eq!(trips(Operation::Create), [4.0, 2.0, 1.0]);
        assert_eq!(trips(Operation::CreateWriteClose), [6.0, 3.0, 1.0]);
        assert_eq!(trips(Operation::Stat), [2.0, 1.0, 1.0]);
        assert_eq!(trips(Operation::OpenReadClose), [4.0, 3.0, 1.0]);
        assert_eq!(trips(Operation::Remove), [3.0, 3.0, 1.0]);
    }

    #[test]
    fn a_listing_of_a_thousand_entries_takes_two_messages_of_ours() {
        let counts = Operation::ListEntry.counts(Set::Ours, 4).servers();
        assert_eq!((1000.0 * counts.messages, counts.entries), (2.0, 1.0));
        let baseline = Operation::ListEntry.counts(Set::Baseline, 4).servers();
        assert_eq!(1000.0 * baseline.messages, 5002.0);
    }

    #[test]
    fn large_transfers_move_their_bytes_once() {
        for set in Set::all() {
            let (write, read) = (
                Operation::LargeWrite.counts(*set, 4).servers(),
                Operation::LargeRead.counts(*set, 4).servers(),
            );
            assert_eq!((write.buffered_bytes, write.read_bytes), (LARGE_BYTES, 0.0));
            assert_eq!((read.buffered_bytes, read.read_bytes), (0.0, LARGE_BYTES));
            assert!(write.bytes_out > LARGE_BYTES && write.bytes_out < 1.001 * LARGE_BYTES);
        }
    }
}
