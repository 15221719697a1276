//! The environment: the only access of ShoalFS to the machine and the network.
//!
//! All that can differ between two runs of ShoalFS enters here: time, randomness, tasks, sockets, host names
//! and files. The time for which an idle thread polls before it sleeps is also set here. A *world* is an
//! event loop with its tasks, its clock, its sockets and its files. There are two kinds of worlds. [`real`]
//! is tokio's current-thread runtime (one shard, one thread at a time) with a small pool of threads for
//! blocking file work. [`sim`] is an executor of our own under virtual time. Its links have latency and
//! bandwidth; its disks lose and tear unsynced writes at a power cut. One seed gives exactly one run.
//!
//! **Invariant: no runtime's type appears above this crate** (test: `no_runtime_is_known_above_env`). Code
//! above holds an [`Env`] and awaits plain futures. **Invariant: no crate that the simulator drives reads a
//! clock, draws a random number, or opens a file or socket by itself** (test:
//! `the_world_is_reached_through_env_alone`, which names these crates). LMDB opens its own file; the
//! simulator uses another table in its place. Two more constructs would break this invariant. The order of a
//! `HashMap` differs from run to run: iterate over a `BTreeMap`. `futures_util::select!` draws its order from
//! a random generator of its own: use `select_biased!` (test:
//! `nothing_above_env_depends_on_an_order_that_differs_from_run_to_run`).
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
