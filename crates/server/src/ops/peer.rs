//! Requests of one server to another: transactions, precreated datafiles, splits, positions.
//!
//! Clients that send them are refused ([`crate::request::executor`]).

pub(crate) mod batchcreate;
pub(crate) mod draw;
pub(crate) mod finish;
pub(crate) mod outcome;
pub(crate) mod prepare;
pub(crate) mod remember;
pub(crate) mod split;
pub(crate) mod yielding;
