//! Is every object where it belongs? Checked while the file system runs.
//!
//! [`collect`] reads all rows of all servers into [`tables`]; [`check`] is a plain function from tables to a set of
//! [`problem`]s; [`cause`] says what comes of a store that was given up; [`mend`]
//! says what repairs one, [`undecided`] how transactions are ended; [`rounds`] carries it out; [`aside`] keeps the rows that go. The tables of one look are not of one moment, so what a running
//! operation was in the midst of looks wrong. **A suspicion counts only if further looks, some time later, find the very
//! same**, numbers included: no operation stays in the midst of the same change so long, and handles are never used twice.

pub mod aside;
pub mod cause;
pub mod check;
pub mod collect;
pub mod mend;
pub mod pools;
pub mod problem;
pub mod rounds;
pub mod tables;
#[cfg(test)]
mod tests;
pub mod undecided;

pub use problem::Problem;
pub use tables::Tables;
