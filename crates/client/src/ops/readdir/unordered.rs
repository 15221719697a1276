//! Lists all shards of a directory at once, for callers that take the entries in any order.
//!
//! A listing in order has one server at work at a time, and is no faster than that server. Without an order
//! each shard is a listing of its own, with its own batch ahead. The client takes the next batch from any
//! shard whose batch has arrived:
//!
//! ```text
//!   shard 0   make ── make ── make ──          every entry is in one shard,
//!   shard 1   make ─── make ── make ─    ─▶    so it is given once, as in order
//!   client    use 0, use 1, use 0, use 1
//! ```
//! A directory that is not split, or that is split while it is listed, is listed in order.
//!
//! **The number of shards at once is bounded** ([`SHARDS_AT_ONCE`]): each has a batch at hand and one ahead,
//! so a listing takes a bounded part of the client's memory, however many servers there are. The next shard
//! begins when one ends.

use super::{Begin, DirStream};
use crate::{Client, Error};
use futures_util::StreamExt;
use futures_util::future::LocalBoxFuture;
use futures_util::stream::FuturesUnordered;
use shoal_proto::{Entry, Handle};
use std::ops::Range;

/// Shards of one directory that are listed at once, at most. With two batches each a listing takes some 2
/// MiB, and a client has use for no more servers at a time.
const SHARDS_AT_ONCE: usize = 8;

/// A shard's listing, with its next entries.
type Turn = LocalBoxFuture<'static, (DirStream, Result<Vec<Entry>, Error>)>;

impl Client {
    /// List a directory from its start, in any order; `.` and `..` are not in it. With `plus` the entries
    /// have their attributes, as by [`DirStream::next`].
    ///
    /// # Errors
    /// `Stale`: the directory is gone.
    pub async fn opendir_unordered(&self, dir: Handle, plus: bool) -> Result<UnorderedDirStream, Error> {
        // Its attributes tell whether it is split.
        self.getattr(dir).await?;
        let shards = self.core.split.borrow_mut().of(dir);
        let count = shards.map_or(1, |shards| shards.servers().len());
        Ok(UnorderedDirStream {
            client: self.clone(),
            dir,
            count,
            waiting: 0..count,
            turns: FuturesUnordered::new(),
            entries: Vec::new().into_iter(),
            plus,
        })
    }
}

/// See [`Client::opendir_unordered`].
pub struct UnorderedDirStream {
    client: Client,
    dir: Handle,
    /// Shards, as it was begun; 1: it is whole.
    count: usize,
    /// Those of them that are still to begin.
    waiting: Range<usize>,
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
            self.begin();
            let Some((stream, entries)) = self.turns.next().await else { return Ok(None) };
            let entries = entries?;
            if !entries.is_empty() {
                self.turns.push(turn(stream, self.plus));
            }
            self.entries = entries.into_iter();
        }
    }

    /// Let shards begin, as many as may be listed at once.
    fn begin(&mut self) {
        while self.turns.len() < SHARDS_AT_ONCE
            && let Some(shard) = self.waiting.next()
        {
            let listing = self.client.opendir(self.dir);
            let listing = if self.count == 1 { listing } else { listing.from(Begin::only(shard)) };
            self.turns.push(turn(listing, self.plus));
        }
    }
}

fn turn(mut stream: DirStream, plus: bool) -> Turn {
    Box::pin(async move {
        let entries = stream.next_batch(plus).await;
        (stream, entries)
    })
}
