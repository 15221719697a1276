//! A group: the processes or threads of one program that open files together.
//!
//! From PLFS (Bent et al., SC'09; its parallel index read): N readers of N writers open N² index logs,
//! because each reader opens all of them. The members of a group open each log once, and send its records to
//! each other.
//!
//! [`Group`] is a trait with only the calls that such an open needs, so an MPI program can implement it.
//! [`Members`] are threads or processes that meet at an address; member 0 publishes it in a file of the
//! container.
//!
//! **All members make the same calls, in the same order.** If a member fails, ends or is silent, the call
//! fails for all of them, with an error that names that member.

mod environment;
mod frames;
mod meeting;
mod members;
mod payload;

pub use environment::Named;
pub use meeting::{MEMBERS_MAX, Meeting};
pub use members::Members;

pub(crate) use meeting::MeetingPlace;
pub(crate) use payload::{collect, share, share_first};

use bytes::Bytes;
use shoal_vfs::Result;

/// The members that call together. See the module.
#[allow(async_fn_in_trait, reason = "a group never leaves its thread")]
pub trait Group {
    /// The number of this member, below the size.
    fn rank(&self) -> usize;

    /// Members.
    fn size(&self) -> usize;

    /// The bytes of all members, by rank, at member 0; nothing at the others.
    ///
    /// # Errors
    /// `TimedOut`, `Io`: another member ended, or was silent.
    async fn gather(&self, bytes: Bytes) -> Result<Vec<Bytes>>;

    /// The bytes of member 0, at all of them.
    ///
    /// # Errors
    /// As [`Group::gather`].
    async fn broadcast(&self, bytes: Bytes) -> Result<Bytes>;

    /// The bytes of all members, by rank, at all of them.
    ///
    /// # Errors
    /// As [`Group::gather`].
    async fn all_gather(&self, bytes: Bytes) -> Result<Vec<Bytes>> {
        let all = self.gather(bytes).await?;
        payload::split(&self.broadcast(payload::join(&all)).await?)
    }
}
