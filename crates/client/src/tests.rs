//! Tests of the whole client: a core driven by hand against a cluster in memory, and the driver against a
//! fake server with a real listener.

mod data;
mod links;
mod listing;
mod locks;
mod long_reads;
mod losses;
mod many;
mod names;
mod retries;
mod seals;
mod silent;
