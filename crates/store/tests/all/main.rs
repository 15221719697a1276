//! The storage modules: conformance, restarts, power cuts. All tests are one program, so that a build links
//! once.

mod common;
mod disk_coalescing;
mod disk_conforms;
mod disk_deferred;
mod disk_files;
mod disk_folders;
mod disk_memory;
mod disk_restarts;
mod disk_simulated;
mod disk_unsynced;
mod disk_whole;
mod nothing_kept;
