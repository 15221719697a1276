//! The table of the allowed costs of operations. `docs/lab/COUNTS.md` has the measured figures, the planned
//! ones, and the reasons.
//!
//! The bounds are close: an extra message, sync or system call breaks them, and so does another copy of the
//! data.

use crate::cost::Most;

/// Messages, messages between servers, syncs, system calls for sockets, bytes on the wire, bytes copied.
const fn most(name: &'static str, of: [f64; 6]) -> Most {
    let [messages, peers, syncs, socket_calls, wire_bytes, copied_bytes] = of;
    Most { name, messages, peers, syncs, socket_calls, wire_bytes, copied_bytes }
}

/// A small file and its name, and an open file: the same, however many servers there are.
const ANYWHERE: [Most; 9] = [
    most("create", [1.0, 0.0, 1.0, 4.0, 320.0, 800.0]),
    most("create, write 8 KiB, close", [1.0, 0.0, 1.0, 4.0, 8_650.0, 17_500.0]),
    most("stat, with its lookup", [1.0, 0.0, 0.0, 4.0, 300.0, 300.0]),
    most("lookup, read 8 KiB, close", [1.0, 0.0, 0.0, 4.0, 8_750.0, 600.0]),
    most("rename within a directory", [1.0, 0.0, 1.0, 4.0, 200.0, 600.0]),
    most("remove", [1.0, 0.0, 1.0, 4.0, 200.0, 400.0]),
    most("write 8 KiB, open file", [1.0, 0.0, 0.0, 4.0, 8_500.0, 17_000.0]),
    most("read 8 KiB, open file", [1.0, 0.0, 0.0, 4.0, 8_500.0, 250.0]),
    most("write 8 KiB and fsync", [2.0, 0.0, 1.0, 8.0, 8_650.0, 17_100.0]),
];

/// Directories on the server of their parent: the same.
const DIRECTORIES: [Most; 2] = [
    most("mkdir on its parent's server", [1.0, 0.0, 1.0, 4.0, 300.0, 700.0]),
    most("rmdir on its parent's server", [1.0, 0.0, 1.0, 4.0, 200.0, 400.0]),
];

/// The rest over four servers.
const OVER_FOUR: [Most; 12] = [
    most("mkdir elsewhere", [1.0, 2.0, 3.0, 12.0, 650.0, 1_350.0]),
    most("rmdir elsewhere", [1.0, 2.0, 3.0, 12.0, 420.0, 760.0]),
    most("list 1,000 entries with attributes", [2.0, 0.0, 0.0, 16.0, 145_000.0, 220_000.0]),
    most("stat by path, 3 directories elsewhere", [4.0, 0.0, 0.0, 16.0, 800.0, 650.0]),
    most("link to an object elsewhere", [1.0, 3.0, 3.0, 16.0, 800.0, 1_500.0]),
    most("stat, object elsewhere", [2.0, 0.0, 0.0, 8.0, 420.0, 350.0]),
    most("lookup, read 8 KiB, elsewhere", [2.0, 0.0, 0.0, 8.0, 8_800.0, 600.0]),
    most("remove a link to elsewhere", [1.0, 2.0, 3.0, 12.0, 450.0, 900.0]),
    most("create, write 1 MiB, close", [11.0, 0.0, 2.0, 100.0, 1_052_000.0, 320_000.0]),
    most("stat, over all servers", [5.0, 0.0, 0.0, 20.0, 1_000.0, 750.0]),
    most("read 1 MiB, over all servers", [4.0, 0.0, 0.0, 100.0, 1_052_000.0, 1_320_000.0]),
    most("remove, over all servers", [1.0, 3.0, 4.0, 16.0, 520.0, 1_100.0]),
];

/// The rest on one server.
const ON_ONE: [Most; 10] = [
    most("list 1,000 entries with attributes", [2.0, 0.0, 0.0, 16.0, 145_000.0, 220_000.0]),
    most("stat by path, 3 directories elsewhere", [1.0, 0.0, 0.0, 4.0, 350.0, 350.0]),
    most("link to an object elsewhere", [1.0, 0.0, 1.0, 4.0, 300.0, 700.0]),
    most("stat, object elsewhere", [1.0, 0.0, 0.0, 4.0, 300.0, 300.0]),
    most("lookup, read 8 KiB, elsewhere", [1.0, 0.0, 0.0, 4.0, 8_750.0, 600.0]),
    most("remove a link to elsewhere", [1.0, 0.0, 1.0, 4.0, 200.0, 500.0]),
    most("create, write 1 MiB, close", [8.0, 0.0, 2.0, 100.0, 1_052_000.0, 320_000.0]),
    most("stat, over all servers", [2.0, 0.0, 0.0, 8.0, 480.0, 400.0]),
    most("read 1 MiB, over all servers", [1.0, 0.0, 0.0, 100.0, 1_052_000.0, 1_320_000.0]),
    most("remove, over all servers", [1.0, 0.0, 1.0, 4.0, 200.0, 400.0]),
];

/// Over four servers.
pub fn four() -> Vec<Most> {
    [&ANYWHERE[..], &DIRECTORIES, &OVER_FOUR].concat()
}

/// On one server.
pub fn one() -> Vec<Most> {
    [&ANYWHERE[..], &DIRECTORIES, &ON_ONE].concat()
}
