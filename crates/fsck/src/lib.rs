//! The check of a file system while it runs, and its repair: is every object where it belongs?
//!
//! ```text
//!   all servers ─▶ collect ─▶ tables ─▶ check ─▶ problems ─▶ mend ─▶ rounds ─▶ servers
//!                                         │         │                  └▶ aside: rows that a repair removes
//!                                         │         └▶ cause: what a store that was given up explains
//!                                         └▶ undecided: transactions without a coordinator
//! ```
//! [`collect`] reads all rows of all servers into [`tables`]. [`check`] is a plain function from tables to a
//! set of [`problem`]s. [`mend`] gives the repair of a problem, [`rounds`] carries it out, and [`report`]
//! gives the result.
//!
//! One *look* reads the tables of the servers at slightly different times, so the objects of a running
//! operation look wrong. **A suspected problem counts only if further looks, some time later, find exactly
//! the same problem**, numbers included: no operation stays in the middle of the same change so long, and
//! handles are never used twice.

pub mod aside;
pub mod cause;
pub mod check;
pub mod collect;
pub mod mend;
pub mod pools;
pub mod problem;
pub mod report;
pub mod rounds;
pub mod subfiles;
pub mod tables;
#[cfg(test)]
mod tests;
pub mod undecided;

pub use problem::Problem;
pub use tables::Tables;
