//! Listing a directory, in batches.
//!
//! With `readdirplus = off` attributes are requested one by one, as by a program that lists and then stats.
//! With `compound = off` a batch's entries come without attributes. Then the client sends each server one
//! request for the attributes of many objects: the paper's *listattr*.
//!
//! Otherwise readdirplus never costs one message an entry. Each batch costs one message for the entries and
//! the objects on the directory's server. It costs one further message for each other server with objects
//! of the batch, and one for each data server that has facts of striped files. If contents of small files
//! are requested, they come in the same reply; contents on other servers cost one more message for each of
//! these servers in each batch.
//!
//! **A split directory's shards are listed one after the other**, in the order of their ranges. A directory
//! that is not split is listed in the same order, so a listing that began before the split continues after
//! the place that it had reached.
//!
//! **A caller that continues to read gets read-ahead** (decision 0001). From the second batch on, the
//! client requests the next batch as soon as a batch has arrived. So the server makes the next batch while
//! the caller uses the present one:
//!
//! ```text
//!   client   ask 1 ░░░ use 1, ask 2 ░░░ ask 3, use 2 ── ask 4, use 3 ── ask 5, use 4 ──
//!   server        make 1          make 2       make 3         make 4         make 5
//! ```
//! One batch is at hand and one is ahead, never more: a shard's next batch begins where its last batch
//! ended, so it cannot be requested before that batch has come. If a caller leaves a listing after the
//! first batch, the listing has cost one message. If the caller leaves it later, at most one message was
//! not needed. At the end of the directory nothing is requested.
//!
//! *A caller that used a batch for longer than 40 ms ([`SLOW`]) gets no read-ahead, and small batches*: in a
//! large batch, attributes would become old before the caller uses them.
//!
//! **A batch ahead is a request without a task**: it is sent when it is made, and holds its answer. A caller
//! that drops the listing, or seeks in it, cancels the request. If the request fails, no error is reported
//! yet: the batch is requested again when the caller reaches its place.

mod attributes;
mod batch;
mod unordered;

use super::many::Which;
use crate::core::Core;
use crate::{Client, Error};
use attributes::Lacks;
use batch::{BATCH_BYTES, BATCH_BYTES_ON, Batch, Begin, Has, Wanted};
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{LocalBoxFuture, MaybeDone, maybe_done};
use shoal_env::Instant;
use shoal_proto::{Attr, Durability, Entry, Handle, Kind, Status};
use std::collections::BTreeSet;
use std::pin::Pin;
use std::time::Duration;
pub use unordered::UnorderedDirStream;

/// For a caller that took longer over a batch, the next one, if it is not there yet, is small, and none is
/// requested ahead: attributes, usually valid for 100 ms, would be too old when they are returned.
const SLOW: Duration = Duration::from_millis(40);

type Ahead = MaybeDone<LocalBoxFuture<'static, Result<Batch, Error>>>;

impl Client {
    /// List a directory from its start; `.` and `..` are not in it.
    pub fn opendir(&self, dir: Handle) -> DirStream {
        DirStream {
            client: self.clone(),
            dir,
            data_max: 0,
            batch: Batch::none(self, Begin::default()),
            next: 0,
            turns: 0,
            bytes_max: BATCH_BYTES,
            given_at: None,
            ahead: None,
            patience: None,
        }
    }
}

/// A listing of a directory. It keeps its place over splits and changes: an entry that is there all the time
/// is given exactly once.
pub struct DirStream {
    client: Client,
    dir: Handle,
    /// Contents of files of at most so many bytes are wanted; 0: none.
    data_max: usize,
    /// The one at hand.
    batch: Batch,
    /// Its entries before this one were given.
    next: usize,
    /// Batches since the start or the last seek.
    turns: u64,
    /// Bytes of the next one's entries.
    bytes_max: u32,
    /// When its first entry could be given; `None`: there was none yet.
    given_at: Option<Instant>,
    /// The one after it.
    ahead: Option<Ahead>,
    /// How long attributes are waited for; `None`: to the time limit, and a listing that lacks some fails.
    patience: Option<Duration>,
}

impl DirStream {
    /// The same listing, from there.
    fn from(mut self, begin: Begin) -> DirStream {
        self.batch = Batch::none(&self.client, begin);
        self
    }

    /// Entries whose attributes do not come within `patience` are given without them, and
    /// [`DirStream::lacks`] says why: a server that does not answer has no other effect on the listing of a
    /// directory on other servers.
    pub fn attributes_within(mut self, patience: Duration) -> DirStream {
        self.patience = Some(patience);
        self
    }

    /// Why the entry given last has no attributes, or no contents, although it is there.
    pub fn lacks(&self) -> Option<&Error> {
        self.batch.lacks.get(&self.last()?.handle)
    }

    /// Of the entry given last, if it has no attributes because the server of a datafile or of a shard does
    /// not answer: those that the entry's own server has. Size, space and times are not the whole file's, the
    /// count of links not the whole directory's.
    pub fn unmerged(&self) -> Option<&Attr> {
        self.batch.unmerged.get(&self.last()?.handle)
    }

    fn last(&self) -> Option<&Entry> {
        self.batch.entries.get(self.next.checked_sub(1)?)
    }

    /// The next entry; `None` at the end. With `plus` it has its attributes, merged; an entry without them is
    /// gone meanwhile, but for those that [`DirStream::lacks`] tells of.
    ///
    /// # Errors
    /// `NotDirectory`; `Stale`: the directory is gone.
    pub async fn next(&mut self, plus: bool) -> Result<Option<Entry>, Error> {
        let mut deadline = None;
        let mut by = |core: &Core| *deadline.get_or_insert_with(|| core.deadline());
        while self.next >= self.batch.entries.len() {
            let Some(begin) = self.batch.then.clone() else { return Ok(None) };
            let deadline = by(&self.client.core);
            self.turn(begin, plus, deadline).await?;
        }
        if plus && self.batch.has < Has::Attributes {
            let deadline = by(&self.client.core);
            self.complete(deadline).await?;
        }
        if plus && self.data_max > 0 && self.batch.has < Has::Contents {
            self.complete_data().await?;
        }
        let entry = self.batch.entries.get(self.next).cloned();
        self.next += 1;
        Ok(entry)
    }

    /// All entries of the batch at hand that were not given yet, or of the next one; none at the end.
    async fn next_batch(&mut self, plus: bool) -> Result<Vec<Entry>, Error> {
        let Some(first) = self.next(plus).await? else { return Ok(Vec::new()) };
        let mut entries = Vec::with_capacity(1 + self.batch.entries.len() - self.next);
        entries.push(first);
        // Returned entries are kept nowhere: such a listing supports no seek.
        entries.extend(self.batch.entries.drain(..).skip(self.next));
        self.next = 0;
        Ok(entries)
    }

    /// When the entry given last, and its attributes, were requested.
    pub fn asked_at(&self) -> Instant {
        self.batch.asked.at
    }

    /// List with the contents of files of at most `bytes_max` bytes, and so with attributes.
    pub fn with_data(mut self, bytes_max: usize) -> DirStream {
        self.data_max = bytes_max;
        self
    }

    /// The next entry and, of a file that is small enough, all it contains; `None` at the end. Only of a
    /// listing made `with_data`; else there are no contents.
    ///
    /// ```no_run
    /// # async fn example(client: shoal_client::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let dir = client.walk(b"/inbox", true).await?.handle;
    /// let mut listing = client.opendir(dir).with_data(16 << 10);
    /// while let Some((entry, content)) = listing.next_with_data().await? {
    ///     println!("{}: {} bytes", entry.name, content.map_or(0, |content| content.len()));
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As `next`, and those of reading a file.
    pub async fn next_with_data(&mut self) -> Result<Option<(Entry, Option<Bytes>)>, Error> {
        let entry = self.next(true).await?;
        let content = self.next.checked_sub(1).and_then(|at| self.batch.data.get(at)).cloned().flatten();
        Ok(entry.map(|entry| (entry, content)))
    }

    /// Continue after the entry of that `place`; 0 restarts from the beginning. Within the batch at hand this
    /// is free.
    pub fn seek(&mut self, place: u64) {
        let known = self.batch.entries.iter().rposition(|entry| entry.place == place);
        if let (Some(at), true) = (known, place != 0) {
            self.next = at + 1;
            return;
        }
        self.batch = Batch::none(&self.client, Begin::behind(place));
        self.next = 0;
        self.turns = 0;
        self.given_at = None;
        self.ahead = None;
    }

    /// Go on to the next batch.
    async fn turn(&mut self, begin: Begin, plus: bool, deadline: Instant) -> Result<(), Error> {
        let called = self.client.core.world.now();
        let used_in = self.given_at.map(|at| called.since(at));
        let is_slow = used_in.is_some_and(|used| used > SLOW);
        self.bytes_max = match self.turns {
            0 => BATCH_BYTES,
            _ if is_slow => BATCH_BYTES,
            // A caller that reads on at all wants more than a glance.
            _ => BATCH_BYTES_ON,
        };
        let ahead = match &mut self.ahead {
            None => None,
            Some(ahead) => {
                let mut ahead = Pin::new(ahead);
                ahead.as_mut().await;
                ahead.take_output()
            }
        };
        self.ahead = None;
        let batch = match ahead {
            Some(Ok(batch)) => batch,
            Some(Err(error)) if self.client.core.world.now() >= deadline => return Err(error),
            Some(Err(_)) | None => self.ask(begin, plus, deadline).await?,
        };
        let now = self.client.core.world.now();
        (self.batch, self.next, self.given_at) = (batch, 0, Some(now));
        self.turns += 1;
        if let Some(begin) = self.batch.then.clone()
            && self.turns > 1
            && !is_slow
        {
            let mut ahead = maybe_done(self.ask(begin, plus, self.client.core.deadline()));
            // The first look sends it.
            let _ = (&mut ahead).now_or_never();
            self.ahead = Some(ahead);
        }
        Ok(())
    }

    /// A batch, for a caller that waits until `deadline`.
    fn ask(
        &self,
        begin: Begin,
        plus: bool,
        deadline: Instant,
    ) -> LocalBoxFuture<'static, Result<Batch, Error>> {
        let wanted = Wanted { plus, data_max: self.data_max, bytes_max: self.bytes_max, deadline };
        Box::pin(Batch::ask(self.client.clone(), self.dir, begin, wanted))
    }

    /// Read the small files whose contents did not come along.
    async fn complete_data(&mut self) -> Result<(), Error> {
        let Batch { entries, data, lacks, .. } = &mut self.batch;
        data.resize(entries.len(), None);
        let is_small = |entry: &Entry| {
            entry.attr.as_ref().is_some_and(|a| a.kind == Kind::File && a.size <= self.data_max as u64)
        };
        let lacking: Vec<usize> =
            (0..entries.len()).filter(|&at| data[at].is_none() && is_small(&entries[at])).collect();
        let which: Vec<Which> = lacking.iter().map(|&at| Which::Object(entries[at].handle)).collect();
        for (at, read) in lacking.into_iter().zip(self.client.read_many(&which, self.data_max).await) {
            match read {
                Ok((_, content)) => data[at] = content,
                // Removed meanwhile.
                Err(error) if error.status == Status::Stale => {}
                Err(error) if self.patience.is_some() && error.is_silence() => {
                    lacks.insert(entries[at].handle, error);
                }
                Err(error) => return Err(error),
            }
        }
        self.batch.has = Has::Contents;
        self.given_at = Some(self.client.core.world.now());
        Ok(())
    }

    /// Fetch the attributes that the batch lacks.
    async fn complete(&mut self, deadline: Instant) -> Result<(), Error> {
        let core = &self.client.core;
        let o = core.begin("readdir", Some(self.dir));
        let now = core.world.now();
        let deadline = self.patience.map_or(deadline, |patience| deadline.min(now + patience));
        let o = o.until(deadline);
        // A silent server of inodes leaves the other half of the time for the datafiles on servers that
        // answer.
        let of_inodes = match self.patience {
            Some(_) => o.with(Durability::Usual).until(now + deadline.since(now) / 2),
            None => o.with(Durability::Usual),
        };
        let entries = &mut self.batch.entries;
        // A file may have several names here.
        let lacking: BTreeSet<Handle> =
            entries.iter().filter(|e| e.attr.is_none()).map(|e| e.handle).collect();
        let lacking: Vec<Handle> = lacking.into_iter().collect();
        let mut lacks = Lacks::new();
        if !lacking.is_empty() {
            let found = match core.switches().readdirplus {
                true => core.getattr_many(&of_inodes, &lacking, &mut lacks).await,
                false => core.getattr_each(&of_inodes, &lacking, &mut lacks).await,
            };
            for entry in entries.iter_mut().filter(|entry| entry.attr.is_none()) {
                entry.attr = found.get(&entry.handle).filter(|attr| attr.nlink > 0).cloned();
            }
        }
        if core.switches().readdirplus {
            let attrs = entries.iter_mut().filter_map(|entry| entry.attr.as_mut()).collect();
            lacks.append(&mut core.merge_many(&o, attrs).await);
        }
        if self.patience.is_none()
            && let Some((_, error)) = lacks.pop_first()
        {
            return Err(error);
        }
        for entry in entries.iter_mut().filter(|entry| lacks.contains_key(&entry.handle)) {
            self.batch.unmerged.extend(entry.attr.take().map(|attr| (entry.handle, attr)));
        }
        self.batch.lacks = lacks;
        // As old as the oldest of them: changed ones are not kept, and the others are valid no longer than if
        // they had been used at once.
        let asked = self.batch.asked;
        let mut cache = core.cache.borrow_mut();
        for attr in entries.iter().filter_map(|entry| entry.attr.as_ref()) {
            cache.put_attr(attr, asked);
        }
        self.batch.has = Has::Attributes;
        self.given_at = Some(core.world.now());
        Ok(())
    }
}
