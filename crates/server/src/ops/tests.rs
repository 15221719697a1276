//! Tests of namespace operations over several servers, without a network.

mod cluster;
mod forgetful;
mod interleaved;
mod listing;
mod locking;
mod model;
mod namespace;
mod objects;
mod random;
mod rename;
mod splitting;
