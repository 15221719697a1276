//! The simulated environment (a [`World`]): machines, processes, links and disks in one thread under
//! virtual time.
//!
//! All that can differ between two runs enters through [`Env`](crate::Env); here it comes from a seed. A
//! [`World`] has an event heap ordered by (nanosecond, sequence), a set of processes each with its ready
//! tasks, and integer models of links, disks and processors. When no task can run, time jumps to the next
//! event: an idle hour costs nothing.
//!
//! **Invariant: one seed, one run.** The seed decides which ready task runs next (with shared cores they run
//! in the order of their wake-ups); nothing iterates over a hash table, reads a real clock, or depends on an
//! address in memory. [`World::trace_hash`] covers every poll, message and disk call, so two runs that differ
//! anywhere have different hashes (test: `one_seed_gives_one_run_and_another_seed_another`).
//!
//! *Processor*: a poll costs its process a fixed time, and so does a call to a socket; a process runs one
//! task at a time. By default a machine has one core for each process. If it has a number of `cores`, its
//! processes share them, and the effects of a process leave when their cost is spent (`cores`).
//!
//! *Network*: a stream's bytes leave through the sender's card, the link, and the receiver's card, each
//! with a bandwidth and a queue of earlier bytes, and arrive after the link's latency (plus jitter) in
//! order. Loss has the effects it has under TCP: a delay, also for all later bytes; or a reset. A partition
//! holds everything until it heals. Addresses are global: a listener's machine decides which link leads to
//! it.
//!
//! *Disk*: one for each machine, of one or more devices. A write lands in the cache; a sync of a file makes
//! its earlier writes durable. At a power cut every unsynced write is, independently, kept, lost, or torn by
//! sectors. Changes of names (create, rename, remove, make a directory) form one ordered list; syncing a
//! directory makes its own changes durable; of the rest a power cut keeps a *prefix*, as a journalling file
//! system does. A failed sync loses the writes it covered for good, as Linux does: a later successful sync
//! does not restore them.
//!
//! A *crash* is `kill -9`: tasks vanish, peers see a reset after the link's latency, calls in flight are
//! done, not done, or (writes) done in part; all written bytes stay. A *power cut* crashes every process of
//! the machine and then the disk.

mod arm;
mod config;
mod connect;
mod core;
mod cores;
mod crash_points;
mod disk;
mod door;
mod files;
mod host;
mod image;
mod names;
mod net;
mod pages;
mod process;
mod rng;
mod spare;
mod stream;
mod timer;
mod trace;
mod world;

pub use config::{Arm, Config, Congestion, Cpu, Disk, Link, Machine, Pages, SyncCost, Syncs};
pub use crash_points::CrashPointCounts;
pub(crate) use host::SimDescriptor;
pub use spare::SpareDisk;
pub use world::{Ended, MachineId, ProcessId, World};
