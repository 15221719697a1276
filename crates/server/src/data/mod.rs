//! The data engine.

use bytes::Bytes;
use shoal_proto::{Handle, Status};
use shoal_store::{Collection, StreamInfo};

/// Bulk work: moved by the store before an operation's answer is known. Returned by a handler as
/// [`Halt::Bulk`](crate::ctx::Halt::Bulk); the executor awaits [`carry_out`] and runs the handler again, which finds the
/// result by [`Ctx::done`](crate::ctx::Ctx::done).
#[derive(Debug, PartialEq, Eq)]
pub struct Bulk {
    /// The stream.
    pub stream: Handle,
}

/// What bulk work came to.
#[derive(Clone, Debug)]
pub struct Done {
    /// The stream's facts after it.
    pub info: StreamInfo,
    /// Data read.
    pub data: Bytes,
    /// Where an append went.
    pub offset: u64,
}

/// Do bulk work.
pub async fn carry_out(_collection: Collection, _work: Bulk) -> Result<Done, Status> {
    Err(Status::NotSupported)
}
