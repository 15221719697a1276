//! Servers in the simulated world, asked by hand-made messages ([`raw`]). One program: a build of it is one
//! link.

mod appends;
mod bytes;
mod change_counts;
mod disk;
mod durability;
mod ended;
mod file_locks;
mod followed;
mod handshake;
mod long_reads;
mod long_writes;
mod management;
mod mount_keys;
mod patterns;
mod pools;
mod raw;
mod removed;
mod rename_lock;
mod roles;
mod sessions;
mod silence;
mod splits;
mod stepwise;
mod stores;
mod transactions;
