//! The only access to the world.
//!
//! All that can differ between two runs of ShoalFS enters here: time, randomness, tasks, sockets, files,
//! and the polling before sleep. There are two worlds. [`real`] is tokio's current-thread runtime (one
//! shard, one thread at a time) with a small pool of threads for blocking file work. [`sim`] is an executor
//! of our own under virtual time, with links that have latency and bandwidth and disks that lose and tear
//! unsynced writes at a power cut; one seed gives exactly one run.
//!
//! **Invariant: no runtime's type appears above this crate.** Code above holds an [`Env`] and awaits plain
//! futures. **Invariant: above this crate nothing reads a clock, draws a random number, or opens a file or
//! socket by itself.** Two hidden ways to break that: iterating over a `HashMap` (its order differs from
//! run to run: use a `BTreeMap`), and `futures_util::select!` (it draws its order from a generator of its
//! own: use `select_biased!`).
//!
//! An [`Env`] belongs to its world (it is neither `Send` nor `Sync`), and a world is on one thread at a
//! time: a server is one world that owns one shard.

mod address;
mod clock;
mod counters;
pub mod crash_point;
mod door;
mod file;
mod host;
pub mod local;
pub mod mutant;
mod open_files;
pub mod real;
pub mod sim;
mod stream;
mod work;

pub use address::Address;
pub use clock::{Instant, WallTime};
pub use counters::{CounterSnapshot, Counters};
pub use door::{Door, Env, Task};
pub use file::{AlignedBuf, DirEntry, DiskSpace, File, FileDoor, FileImpl, OpenOptions};
pub use host::{
    HostAccess, HostEntry, HostFacts, HostFile, HostFiles, HostListing, HostNode, HostOwner, HostSpace,
};
pub use open_files::raise_open_files;
pub use stream::{Listener, ListenerImpl, Reader, ReaderImpl, Stream, Writer, WriterImpl};
pub use work::Work;
