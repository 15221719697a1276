//! Checks a running file system, and repairs it: every object must be where it belongs.
//!
//! ```text
//!   all servers ─▶ collect ─▶ tables ─▶ check ─▶ problems ─▶ mend ─▶ rounds ─▶ servers
//!                                         │         │                  └▶ aside: copies of removed rows
//!                                         │         └▶ cause: problems that a lost store explains
//!                                         └▶ undecided: transactions that lost their coordinator
//! ```
//! [`collect`] reads all rows of all servers into [`tables`]. [`check`] is a plain function from tables to
//! a set of [`problem`]s. [`mend`] chooses the repair of a problem, [`rounds`] carries the repair out, and
//! [`report`] describes the result.
//!
//! A *look* is one reading of all tables. It reads the servers at slightly different times, so the objects
//! of a running operation look wrong. **A suspected problem counts only if further looks, some time later,
//! find exactly the same problem**, with the same handles and counts. The pauses between looks are longer
//! than any operation takes for one change, and handles are never used twice. So the problem of a running
//! operation disappears, and a problem that stays the same is real.

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
