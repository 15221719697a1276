//! The mount: ShoalFS in the kernel's tree of names, by FUSE.
//!
//! ```text
//!   kernel ── /dev/fuse ──> event loops (fuser, n threads): decode, count, never wait
//!                               │  a boxed request with its reply        (adapter)
//!                               v
//!                           the client's world: a task for each request  (fs, over shoal_client)
//!                               │
//!                               └── the reply is written to /dev/fuse from here
//! ```
//!
//! A *world* is an event loop of `shoal_env` with its clock, sockets and files. The client's world is on one
//! thread at a time, so a queue hands every request to it. The event loop that queued a request runs the
//! client itself, unless another thread is doing so ([`run_woken`](shoal_env::real::run_woken)); later
//! input, from a socket, is handled by the client's own thread. Requests that [`AtOnce`](fs::AtOnce) can
//! answer are answered by the event loops themselves.
//!
//! * [`fs`]: the operations, without FUSE. They use handles and attributes, and return error numbers.
//! * [`adapter`]: FUSE's requests and replies, and nothing else.
//! * [`session`]: starts and ends a mount.
//! * [`mounts`]: the mount points of the machine.
//! * `attach`: makes and removes the mount of this process.
//!
//! **One mount has one client.** A file that is removed while it is open lives on because the client that
//! removes it reports its open files; two clients in one mount would not know of each other's open files.
//!
//! **An inode number is a handle.** A ShoalFS never uses a handle twice. So for its objects there is no
//! table of inodes and no count of references, and the kernel's `FORGET` costs no message. Other file
//! systems count the kernel's references (`Vfs::counts_references`): a local directory, and the objects in
//! directories with a layout of their own.
//!
//! The guarantees to programs are in `docs/reference/SEMANTICS.md`.

pub mod adapter;
mod attach;
mod counts;
mod forgetting;
pub mod fs;
mod interrupts;
pub mod mounts;
mod options;
pub mod session;
mod sync_all;

pub use counts::{RequestCounts, Verb};
pub use mounts::{clear_dead_mount, unmount};
pub use options::MountOptions;
pub use session::{Mount, MountError, MountHandle};
pub use sync_all::sync_all;
