//! Listing a directory, in batches.
//!
//! Readdirplus costs one message a batch for the entries whose objects live beside them, one a server and batch for the
//! others, and one a data server and batch for the facts of striped files: never one an entry (design §4.2).

use crate::core::{Core, Operation};
use crate::{Client, Error};
use futures_util::future::join_all;
use shoal_proto::op::Answer;
use shoal_proto::{Attr, Blob, Entry, GroupReply, Handle, Op, Place, ServerId, Status, StreamFacts, limits};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Bytes of entries in one batch: some 1,000 names, or some 200 with attributes.
const BATCH_BYTES: u32 = 64 << 10;
const _: () = assert!(BATCH_BYTES as usize <= limits::READDIR_BYTES_MAX);

impl Client {
    /// List a directory from its start; `.` and `..` are not in it.
    pub fn opendir(&self, dir: Handle) -> DirStream {
        DirStream {
            client: self.clone(),
            dir,
            batch: Vec::new(),
            next: 0,
            plus: false,
            after: None,
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
    /// Where the batch behind this one begins.
    after: Option<Place>,
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
        self.after = (place != 0).then(|| Place { hash: place, name: Blob::default() });
    }

    async fn fetch(&mut self, plus: bool) -> Result<(), Error> {
        let core = &self.client.core;
        let o = core.begin("readdir", Some(self.dir));
        let op = Op::Readdir { dir: self.dir, after: self.after.clone(), bytes_max: BATCH_BYTES, plus };
        let told = core.ask(&o, self.dir.server(), vec![op]).await?;
        let Some(Answer::Entries { entries, end }) = told.answers.into_iter().next() else {
            return Err(o
                .error(Status::BadMessage)
                .from(self.dir.server())
                .because("no entries in its answer"));
        };
        let Some(last) = entries.last() else {
            if !end {
                let words = "neither entries nor the end in its answer";
                return Err(o.error(Status::BadMessage).from(self.dir.server()).because(words));
            }
            self.end = true;
            return Ok(());
        };
        self.after = Some(Place { hash: last.place, name: last.name.as_bytes().into() });
        (self.batch, self.next, self.end, self.plus) = (entries.0, 0, end, false);
        if plus {
            self.complete().await?;
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
        let found = core.getattr_many(&o, &lacking).await?;
        for entry in &mut self.batch {
            if entry.attr.is_none() {
                entry.attr = found.get(&entry.handle).cloned();
            }
        }
        let attrs: Vec<&mut Attr> = self.batch.iter_mut().filter_map(|entry| entry.attr.as_mut()).collect();
        core.merge_many(&o, attrs).await?;
        let now = core.world.now();
        let mut cache = core.cache.borrow_mut();
        for attr in self.batch.iter().filter_map(|entry| entry.attr.as_ref()) {
            cache.put_attr(attr, asked, now);
        }
        self.plus = true;
        Ok(())
    }
}

impl Core {
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
    async fn merge_many(self: &Rc<Core>, o: &Operation, attrs: Vec<&mut Attr>) -> Result<(), Error> {
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
