//! The limit of files that this process may hold open.
//!
//! A server holds a file for each large stream that it has used lately, and a socket for each client. A
//! benchmark of the small-file paper keeps every file of a worker open from create to close: four workers of
//! 12,000 files need 48,000 descriptors, far above the usual limit.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Allows this process at least `wanted` open files if that is in its power (the hard limit, or beyond it
/// with the privilege), and returns how many it may open now.
pub fn raise_open_files(wanted: u64) -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let soft = limit.current.unwrap_or(u64::MAX);
    if soft >= wanted {
        return soft;
    }
    let hard = limit.maximum.unwrap_or(u64::MAX);
    if setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: Some(hard.max(wanted)) }).is_ok()
    {
        return wanted;
    }
    let within = wanted.min(hard);
    match setrlimit(Resource::Nofile, Rlimit { current: Some(within), maximum: limit.maximum }) {
        Ok(()) => within,
        Err(_) => soft,
    }
}
