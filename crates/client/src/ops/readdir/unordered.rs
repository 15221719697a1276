//! Listing all shards of a directory at once, for whoever takes the entries in any order.
//!
//! A listing in order has one server at work at a time, and what that one can do is its speed. Without an order each shard is a
//! listing of its own, with its own batch ahead; whichever has a batch gives it:
//!
//! ```text
//!   shard 0   make ── make ── make ──          every entry is in one shard,
//!   shard 1   make ─── make ── make ─    ─▶    so it is given once, as in order
//!   client    use 0, use 1, use 0, use 1
//! ```
//! A directory that is whole, or is split while it is listed, is listed in order.

use super::{Begin, DirStream};
use crate::{Client, Error};
use futures_util::StreamExt;
use futures_util::future::LocalBoxFuture;
use futures_util::stream::FuturesUnordered;
use shoal_proto::{Entry, Handle};

/// A shard's listing, with its next entries.
type Turn = LocalBoxFuture<'static, (DirStream, Result<Vec<Entry>, Error>)>;

impl Client {
    /// List a directory from its start, in any order; `.` and `..` are not in it. With `plus` the entries have their
    /// attributes, as by [`DirStream::next`].
    ///
    /// # Errors
    /// `Stale`: the directory is gone.
    pub async fn opendir_unordered(&self, dir: Handle, plus: bool) -> Result<UnorderedDirStream, Error> {
        // Its attributes tell whether it is split.
        self.getattr(dir).await?;
        let shards = self.core.split.borrow_mut().of(dir);
        let count = shards.map_or(1, |shards| shards.servers().len());
        let listing = |shard| match count {
            1 => self.opendir(dir),
            _ => self.opendir(dir).from(Begin::only(shard)),
        };
        let turns = (0..count).map(|shard| turn(listing(shard), plus)).collect();
        Ok(UnorderedDirStream { turns, entries: Vec::new().into_iter(), plus })
    }
}

/// See [`Client::opendir_unordered`].
pub struct UnorderedDirStream {
    turns: FuturesUnordered<Turn>,
    /// Of the batch at hand.
    entries: std::vec::IntoIter<Entry>,
    plus: bool,
}

impl UnorderedDirStream {
    /// The next entry; `None` at the end of all shards.
    ///
    /// # Errors
    /// As [`DirStream::next`].
    pub async fn next(&mut self) -> Result<Option<Entry>, Error> {
        loop {
            if let Some(entry) = self.entries.next() {
                return Ok(Some(entry));
            }
            let Some((stream, entries)) = self.turns.next().await else { return Ok(None) };
            let entries = entries?;
            if !entries.is_empty() {
                self.turns.push(turn(stream, self.plus));
            }
            self.entries = entries.into_iter();
        }
    }
}

fn turn(mut stream: DirStream, plus: bool) -> Turn {
    Box::pin(async move {
        let entries = stream.next_batch(plus).await;
        (stream, entries)
    })
}
