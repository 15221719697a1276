//! Listing a directory, in batches.
//!
//! With `readdirplus = off` the attributes are asked for one by one, as a program does that lists and then stats. With
//! `compound = off` a batch's entries come without any, and then one request a server asks for those of many objects: the
//! paper's *listattr*.
//!
//! Else readdirplus costs one message a batch for the entries whose objects live beside them, one a server and batch for the
//! others, and one a data server and batch for the facts of striped files: never one an entry (design §4.2). Contents of small
//! files come in the same reply, if they are asked for; those that live elsewhere by one more message a server and batch.
//!
//! **A split directory's shards are listed one after the other**, in the order of their ranges: that is the order of a whole
//! directory, so a listing that was begun before the split goes on behind the place it had come to.

use super::many::Which;
use crate::core::{Core, Operation};
use crate::{Client, Error};
use bytes::Bytes;
use futures_util::future::join_all;
use shoal_env::mutant::{self, Mutant};
use shoal_proto::op::Answer;
use shoal_proto::{
    Attr, Blob, Entry, GroupReply, Handle, Kind, Op, Place, ServerId, Shards, Status, StreamFacts, limits,
};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Bytes of entries in one batch: some 1,000 names, or some 200 with attributes.
const BATCH_BYTES: u32 = 64 << 10;
/// The same with contents: some 60 files of 8 KiB.
const BATCH_DATA_BYTES: u32 = 512 << 10;
const _: () =
    assert!(BATCH_BYTES < BATCH_DATA_BYTES && BATCH_DATA_BYTES as usize <= limits::READDIR_BYTES_MAX);

impl Client {
    /// List a directory from its start; `.` and `..` are not in it.
    pub fn opendir(&self, dir: Handle) -> DirStream {
        DirStream {
            client: self.clone(),
            dir,
            batch: Vec::new(),
            next: 0,
            plus: false,
            data_max: 0,
            data: Vec::new(),
            after: None,
            shard: 0,
            end: false,
        }
    }
}

/// A listing of a directory. It keeps its place over splits and changes: an entry that is there all the time is given
/// exactly once.
pub struct DirStream {
    client: Client,
    dir: Handle,
    batch: Vec<Entry>,
    next: usize,
    /// Whether the batch has its attributes.
    plus: bool,
    /// Contents of files of at most so many bytes are wanted; 0: none.
    data_max: usize,
    /// Contents of the batch's files, if they are wanted.
    data: Vec<Option<Bytes>>,
    /// Where the batch behind this one begins.
    after: Option<Place>,
    /// In a split directory: shards before this one are listed.
    shard: usize,
    end: bool,
}

impl DirStream {
    /// The next entry; `None` at the end. With `plus` it has its attributes, merged; an entry without them is gone
    /// meanwhile.
    ///
    /// # Errors
    /// `NotDirectory`; `Stale`: the directory is gone.
    pub async fn next(&mut self, plus: bool) -> Result<Option<Entry>, Error> {
        while self.next >= self.batch.len() {
            if self.end {
                return Ok(None);
            }
            self.fetch(plus).await?;
        }
        if plus && !self.plus {
            self.complete().await?;
        }
        let entry = self.batch.get(self.next).cloned();
        self.next += 1;
        Ok(entry)
    }

    /// List with the contents of files of at most `bytes_max` bytes, and so with attributes.
    pub fn with_data(mut self, bytes_max: usize) -> DirStream {
        self.data_max = bytes_max;
        self
    }

    /// The next entry and, of a file that is small enough, all it contains; `None` at the end. Only of a listing made
    /// `with_data`; else there are no contents.
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
        let content = self.next.checked_sub(1).and_then(|at| self.data.get(at)).cloned().flatten();
        Ok(entry.map(|entry| (entry, content)))
    }

    /// Go on behind the entry of that `place`; 0 is the start, anew. Within the batch at hand it costs nothing.
    pub fn seek(&mut self, place: u64) {
        let known = self.batch.iter().rposition(|entry| entry.place == place);
        if let (Some(at), true) = (known, place != 0) {
            self.next = at + 1;
            return;
        }
        self.batch.clear();
        self.next = 0;
        self.end = false;
        self.shard = 0;
        self.after = (place != 0).then(|| Place { hash: place, name: Blob::default() });
    }

    async fn fetch(&mut self, plus: bool) -> Result<(), Error> {
        let core = &self.client.core;
        let o = core.begin("readdir", Some(self.dir));
        let switches = core.switches();
        let shards = core.split.borrow_mut().of(self.dir);
        let (server, last_shard) = match &shards {
            None => (self.dir.server(), true),
            Some(shards) => {
                let (servers, place) = (listed(shards), self.after.as_ref().map_or(0, |after| after.hash));
                self.shard = self.shard.max(shards.index_of(place)).min(servers.len() - 1);
                (servers[self.shard], self.shard + 1 == servers.len())
            }
        };
        let plus_along = plus && switches.readdirplus && switches.compound;
        let data_along = match plus_along {
            true => self.data_max.min(core.eager_bytes(server)) as u32,
            false => 0,
        };
        let bytes_max = if data_along > 0 { BATCH_DATA_BYTES } else { BATCH_BYTES };
        let op = Op::Readdir {
            dir: self.dir,
            after: self.after.clone(),
            bytes_max,
            plus: plus_along,
            data_max: data_along,
            in_shard: shards.is_some(),
        };
        let reply_bytes = if data_along > 0 { u64::from(bytes_max) } else { 0 };
        let told = match core.ask_group(&o, server, vec![op], Vec::new(), reply_bytes).await? {
            // It was split since. What was listed before keeps its place: go on in its order.
            told if told.status == Status::Split && shards.is_none() => {
                let Some(Answer::Split { dir, shards, key }) = told.answers.last() else {
                    return Err(o.error(Status::BadMessage).from(server).because("no shards in its answer"));
                };
                core.split.borrow_mut().learn(*dir, shards, Some(*key));
                return Ok(());
            }
            // No such shard: the directory is gone, as its own server will say.
            told if told.status == Status::WrongServer && shards.is_some() => {
                core.getattr_raw(&o, self.dir).await?;
                return Err(o.error(Status::Stale).from(server));
            }
            told if told.status != Status::Ok => return Err(o.error(told.status).from(server)),
            told => told,
        };
        let mut bulk = told.bulk;
        let Some(Answer::Entries { entries, end, contents }) = told.answers.into_iter().next() else {
            return Err(o.error(Status::BadMessage).from(server).because("no entries in its answer"));
        };
        if end && !last_shard {
            self.shard += 1;
        }
        let end = end && last_shard;
        let Some(last) = entries.last() else {
            if !end && last_shard {
                let words = "neither entries nor the end in its answer";
                return Err(o.error(Status::BadMessage).from(server).because(words));
            }
            self.end = end;
            return Ok(());
        };
        self.after = Some(Place { hash: last.place, name: last.name.as_bytes().into() });
        (self.batch, self.next, self.end, self.plus) = (entries.0, 0, end, false);
        self.data.clear();
        for len in contents.0 {
            let len = len.map(|len| len as usize);
            if len.is_some_and(|len| len > bulk.len()) {
                let words = "fewer contents than it tells in its answer";
                return Err(o.error(Status::BadMessage).from(server).because(words));
            }
            self.data.push(len.map(|len| bulk.split_to(len)));
        }
        if plus {
            self.complete().await?;
        }
        if plus && self.data_max > 0 {
            self.complete_data().await?;
        }
        Ok(())
    }

    /// Read the small files whose contents did not come along.
    async fn complete_data(&mut self) -> Result<(), Error> {
        self.data.resize(self.batch.len(), None);
        let is_small = |entry: &Entry| {
            entry.attr.as_ref().is_some_and(|a| a.kind == Kind::File && a.size <= self.data_max as u64)
        };
        let lacking: Vec<usize> = (0..self.batch.len())
            .filter(|&at| self.data[at].is_none() && is_small(&self.batch[at]))
            .collect();
        let which: Vec<Which> = lacking.iter().map(|&at| Which::Object(self.batch[at].handle)).collect();
        for (at, read) in lacking.into_iter().zip(self.client.read_many(&which, self.data_max).await) {
            match read {
                Ok((_, content)) => self.data[at] = content,
                // Removed meanwhile.
                Err(error) if error.status == Status::Stale => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Fetch the attributes that the batch lacks.
    async fn complete(&mut self) -> Result<(), Error> {
        let core = &self.client.core;
        let o = core.begin("readdir", Some(self.dir));
        let asked = core.cache.borrow().stamp();
        // A file may have several names here.
        let lacking: BTreeSet<Handle> =
            self.batch.iter().filter(|e| e.attr.is_none()).map(|e| e.handle).collect();
        let lacking: Vec<Handle> = lacking.into_iter().collect();
        let found = match core.switches().readdirplus {
            true => core.getattr_many(&o, &lacking).await?,
            false => core.getattr_each(&o, &lacking).await?,
        };
        for entry in &mut self.batch {
            if entry.attr.is_none() {
                entry.attr = found.get(&entry.handle).cloned();
            }
        }
        if core.switches().readdirplus {
            let attrs = self.batch.iter_mut().filter_map(|entry| entry.attr.as_mut()).collect();
            core.merge_many(&o, attrs).await?;
        }
        let now = core.world.now();
        let mut cache = core.cache.borrow_mut();
        for attr in self.batch.iter().filter_map(|entry| entry.attr.as_ref()) {
            cache.put_attr(attr, asked, now);
        }
        self.plus = true;
        Ok(())
    }
}

/// The shards that a listing goes through, in order.
fn listed(shards: &Shards) -> &[ServerId] {
    match shards.servers() {
        [but_last @ .., _] if mutant::is(Mutant::SkipInListing) => but_last,
        all => all,
    }
}

impl Core {
    /// Attributes of many objects, merged: each by itself. What is gone is left out.
    async fn getattr_each(
        self: &Rc<Core>,
        o: &Operation,
        objects: &[Handle],
    ) -> Result<BTreeMap<Handle, Attr>, Error> {
        let mut found = BTreeMap::new();
        for &object in objects {
            match self.getattr_anew(o, object).await {
                Ok(attr) => drop(found.insert(object, attr)),
                Err(error) if error.status == Status::Stale => {}
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    /// Attributes of many objects, unmerged: one request a server. What is gone is left out.
    async fn getattr_many(
        self: &Rc<Core>,
        o: &Operation,
        objects: &[Handle],
    ) -> Result<BTreeMap<Handle, Attr>, Error> {
        let mut found = BTreeMap::new();
        for (object, answer) in self.ask_each(o, objects, |object| Op::Getattr { object }).await? {
            let attr = match answer {
                Ok(Answer::Attr { attr }) => attr,
                Err(Status::Stale | Status::NotFound) => continue,
                // It is there, and a transaction is in the way: this one by itself.
                Ok(_) | Err(_) => match self.getattr_raw(o, object).await {
                    Err(error) if error.status == Status::Stale => continue,
                    other => other?,
                },
            };
            found.insert(object, attr);
        }
        Ok(found)
    }

    /// Merge the datafiles' facts into many attributes: one request a server.
    pub(super) async fn merge_many(
        self: &Rc<Core>,
        o: &Operation,
        attrs: Vec<&mut Attr>,
    ) -> Result<(), Error> {
        let (split, attrs): (Vec<&mut Attr>, Vec<&mut Attr>) =
            attrs.into_iter().partition(|attr| attr.shards.is_split());
        for attr in split {
            *attr = match self.merged(o, attr.clone()).await {
                Err(error) if error.status == Status::Stale => continue,
                other => other?,
            };
        }
        let streams: Vec<Handle> = attrs
            .iter()
            .filter_map(|a| a.layout.as_ref())
            .flat_map(|l| l.datafiles.iter().copied())
            .collect();
        if streams.is_empty() {
            return Ok(());
        }
        let facts: BTreeMap<Handle, StreamFacts> = self
            .ask_each(o, &streams, |stream| Op::Streamstat { stream })
            .await?
            .into_iter()
            .filter_map(|(stream, answer)| match answer {
                Ok(Answer::Facts { facts }) => Some((stream, facts)),
                _ => None,
            })
            .collect();
        for attr in attrs {
            let Some(layout) = &attr.layout else { continue };
            let own: Option<Vec<StreamFacts>> =
                layout.datafiles.iter().map(|s| facts.get(s).copied()).collect();
            *attr = match own {
                Some(own) if super::getattr::fit(&own, attr.generation) => {
                    super::getattr::merge(attr.clone(), &own)
                }
                // It is being truncated, unstuffed or removed: this one by itself.
                _ => match self.getattr_anew(o, attr.handle).await {
                    Err(error) if error.status == Status::Stale => continue,
                    other => other?,
                },
            };
        }
        Ok(())
    }

    /// Ask one thing of each object at its server, many in one request, all servers at once.
    async fn ask_each(
        self: &Rc<Core>,
        o: &Operation,
        objects: &[Handle],
        op: impl Fn(Handle) -> Op,
    ) -> Result<Vec<(Handle, Result<Answer, Status>)>, Error> {
        let mut by_server: BTreeMap<ServerId, Vec<Handle>> = BTreeMap::new();
        for &object in objects {
            by_server.entry(object.server()).or_default().push(object);
        }
        let requests = by_server
            .iter()
            .flat_map(|(&server, all)| all.chunks(limits::GROUPS_MAX).map(move |some| (server, some)));
        let asked = requests.map(|(server, some)| {
            let groups = some.iter().map(|&object| vec![op(object)]).collect();
            async move { (some, self.ask_many(o, server, groups).await) }
        });
        let mut answers = Vec::with_capacity(objects.len());
        for (some, replies) in join_all(asked).await {
            let first = |reply: GroupReply| match reply.status {
                Status::Ok => reply.answers.0.into_iter().next().ok_or(Status::BadMessage),
                status => Err(status),
            };
            answers.extend(some.iter().zip(replies?).map(|(&object, reply)| (object, first(reply))));
        }
        Ok(answers)
    }
}
