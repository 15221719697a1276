//! The system interface: path walk, caches, distribution, transfers. A core without I/O, and its drivers.

mod client;
mod counters;
mod dir;
mod error;
mod file;
mod options;
mod words;

pub use client::Client;
pub use counters::ClientCounters;
pub use dir::DirStream;
pub use error::Error;
pub use file::OpenFile;
pub use options::Options;
pub use words::{RenameFlags, Statfs};
