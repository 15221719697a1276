//! The environment: the only access of ShoalFS to the machine and the network.
//!
//! All that can differ between two runs of ShoalFS enters here: time, randomness, tasks, sockets, files,
//! and the polling before sleep. A *world* is an event loop with its tasks, its clock, its sockets and its
//! files. There are two kinds of worlds. [`real`] is tokio's current-thread runtime (one shard, one thread
//! at a time) with a small pool of threads for blocking file work. [`sim`] is an executor of our own under
//! virtual time. Its links have latency and bandwidth; its disks lose and tear unsynced writes at a power
//! cut. One seed gives exactly one run.
//!
//! **Invariant: no runtime's type appears above this crate.** Code above holds an [`Env`] and awaits plain
//! futures. **Invariant: above this crate nothing reads a clock, draws a random number, or opens a file or
//! socket by itself.** Two constructs break this invariant without being seen. The order of a `HashMap`
//! differs from run to run: iterate over a `BTreeMap`. `futures_util::select!` draws its order from a
//! random generator of its own: use `select_biased!`.
//!
//! An [`Env`] is the handle to a world, and stays in it (it is neither `Send` nor `Sync`). One thread at a
//! time runs a world. A server is one world that owns one shard.

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
