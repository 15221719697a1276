//! Tests of servers, by messages that are made by hand ([`raw`]). All tests are one program, so that a build
//! links only once.

mod appends;
mod audit;
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
mod seals;
mod sessions;
mod silence;
mod splits;
mod stepwise;
mod stores;
mod transactions;
