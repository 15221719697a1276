//! The one door to the world.
//!
//! Everything that can differ between two runs of ShoalFS enters here: time, randomness, tasks, sockets, files, and the
//! moment spent polling before sleep. There are two worlds behind the door. [`real`] is tokio's current-thread runtime
//! (one shard, one thread at a time) with a small pool of threads for blocking file work. [`sim`] is an executor of our own under
//! virtual time, with links that have latency and bandwidth and disks that lose and tear unsynced writes at a power cut;
//! one seed gives one run, exactly.
//!
//! **Invariant: no runtime's type appears above this crate.** Code above holds an [`Env`] and awaits plain futures.
//! **Invariant: above this crate nothing reads a clock, draws a random number, or opens a file or socket by itself.** Two
//! quiet ways to break that: iterating over a `HashMap` (its order differs from run to run: use a `BTreeMap`), and
//! `futures_util::select!` (it draws its order from a generator of its own: use `select_biased!`).
//!
//! An [`Env`] belongs to its world (it is neither `Send` nor `Sync`), and a world is on one thread at a time: a server is one
//! world that owns one shard.

mod address;
mod clock;
mod counters;
mod door;
mod file;
pub mod local;
pub mod mutant;
mod open_files;
pub mod point;
pub mod real;
pub mod sim;
mod stream;
mod work;

pub use address::Address;
pub use clock::{Instant, WallTime};
pub use counters::{CounterSnapshot, Counters};
pub use door::{Door, Env, Task};
pub use file::{AlignedBuf, DirEntry, DiskSpace, File, FileDoor, FileImpl, OpenOptions};
pub use open_files::raise_open_files;
pub use stream::{Listener, ListenerImpl, Reader, ReaderImpl, Stream, Writer, WriterImpl};
pub use work::Work;
