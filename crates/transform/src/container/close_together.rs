//! Closes of a file by all members of a group (processes that open files together). One member makes a
//! flattened index of all logs that the group wrote.
//!
//! ```text
//!   step of the members                                    messages
//!   all: close, and find the length of its index log       all-gather of answers
//!   each: read its index log, if all logs are short        gather
//!   one member: make the flattened index                   broadcast of the answer
//! ```
//!
//! From PLFS (its index flatten). Without a group the last writer that closes opens and reads all N index
//! logs in one process. Here each member opens and reads its own, at the same time. Readers then open one
//! file. A reader uses the flattened index for a log only while the log has the length that the index states
//! ([`flat`]): if a writer continues, its log is read.

use super::load::{self, Known};
use super::names::Contents;
use super::pieces::{Inbox, Outbox};
use super::state::State;
use super::{Container, ContainerFile, IndexDesign, flat};
use crate::group::{Group, collect, share, share_first};
use crate::index::LogFacts;
use crate::limits::{FLAT_BYTES_MAX, FLATTEN_LOG_BYTES_MAX};
use bytes::Bytes;
use shoal_proto::Status;
use shoal_vfs::{Error, Result, Vfs, VfsFile as _};

/// The word for an index log that is not to be flattened.
const NEVER: u64 = u64::MAX;

impl<B: Vfs> Container<B> {
    /// Close a file by all members of a group, each its own, and flatten the index if each member's index log
    /// has at most 64 KiB. Returns how many logs the flattened index covers. 0: none was made, so readers
    /// need longer.
    ///
    /// # Errors
    /// Those of a close, of any member, in all of them; `TimedOut`, `Io`: a member ended, or was silent. All
    /// that a member's own close published stays.
    pub async fn close_together<G: Group>(&self, file: ContainerFile<B>, group: &G) -> Result<usize> {
        let (state, writer) = (file.state(), file.writer_id());
        let closed = state.without_merging(file.close()).await;
        let own = writer.and_then(|id| Some((id, Some(state.closed(id)?))));
        let len = match (own, self.0.design) {
            (_, IndexDesign::Original) => NEVER,
            (Some((_, Some(dropping))), _) => dropping.index,
            _ => 0,
        };
        let lens = share(group, closed.map(|()| Bytes::copy_from_slice(&len.to_le_bytes()))).await??;
        if !is_short(&lens)? {
            return Ok(0);
        }
        let part = read(&state, own).await.map(|logs| Outbox::new(logs).next_part(usize::MAX));
        let parts = collect(group, part).await?;
        let made = match group.rank() {
            0 => Some(merge(&state, parts).await),
            _ => None,
        };
        let made = share_first(group, made).await??;
        let count = <[u8; 8]>::try_from(&made[..]).map_err(|_| no_message())?;
        Ok(u64::from_le_bytes(count) as usize)
    }
}

fn no_message() -> Error {
    Error::new(Status::BadMessage, "close").because("a member sent a message that is none")
}

/// Whether all index logs are short, and together not more than a flattened index has.
fn is_short(lens: &[Bytes]) -> Result<bool> {
    let mut sum = 0u64;
    for len in lens {
        let len = u64::from_le_bytes(<[u8; 8]>::try_from(&len[..]).map_err(|_| no_message())?);
        if len > FLATTEN_LOG_BYTES_MAX {
            return Ok(false);
        }
        sum += len;
    }
    Ok((1..=FLAT_BYTES_MAX / 2).contains(&sum))
}

/// A member's own log.
async fn read<B: Vfs>(state: &State<B>, own: Option<Known>) -> Result<Vec<LogFacts>> {
    let mut contents = Contents::default();
    contents.writers.extend(own);
    load::some(&state.shared, state.object, &contents, own.into_iter().collect()).await
}

/// Make the flattened index. How many logs it covers.
async fn merge<B: Vfs>(state: &State<B>, parts: Result<Vec<Bytes>>) -> Result<Bytes> {
    let mut inbox = Inbox::default();
    for part in parts? {
        inbox.take(&part).map_err(|_| no_message())?;
    }
    let made = flat::flatten_with(state, inbox.into_logs()).await;
    // Without it readers take longer, and the files are closed.
    let count = made.inspect_err(|error| tracing::debug!("an index was not flattened: {error}")).unwrap_or(0);
    state.flattened.set(state.index.borrow().logs().len());
    Ok(Bytes::copy_from_slice(&(count as u64).to_le_bytes()))
}
