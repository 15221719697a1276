//! Attributes, merged over a file's datafiles.
//!
//! The metadata server knows its own stream only. For a file over several datafiles the client requests the
//! facts of all other streams at once, as PVFS does; a stuffed file needs no such request. If facts have a
//! newer generation than the attributes, the file was truncated or unstuffed in between: both are requested
//! again.
//!
//! The attributes of a split directory are requested from all its shards. If the client knows the shards,
//! it sends all these requests at once.

use super::{attr_among, count_among};
use crate::core::{Core, Operation};
use crate::shards::merge as merge_shards;
use crate::{Client, Error};
use futures_util::future::{join, join_all};
use shoal_pattern::Distribution;
use shoal_proto::op::Answer;
use shoal_proto::{Attr, Generation, Handle, Layout, Op, ServerId, Shards, Status, StreamFacts};
use std::rc::Rc;

/// Times that attributes and facts are asked again because they did not fit each other; then they are taken
/// as they are.
const FITTING_TRIES_MAX: usize = 5;

impl Client {
    /// Attributes, merged over all datafiles.
    ///
    /// # Errors
    /// `Stale`: the object is gone.
    pub async fn getattr(&self, object: Handle) -> Result<Attr, Error> {
        let o = self.core.begin("getattr", Some(object));
        self.core.getattr(&o, object).await
    }
}

impl Core {
    /// Attributes, from the cache or from the server.
    pub(crate) async fn getattr(self: &Rc<Core>, o: &Operation, object: Handle) -> Result<Attr, Error> {
        let believed = self.cache.borrow_mut().attr(object, self.world.now());
        if let Some(attr) = believed {
            self.counters.borrow_mut().attr_hits += 1;
            return Ok(attr);
        }
        self.getattr_anew(o, object).await
    }

    /// Attributes, from the server.
    pub(crate) async fn getattr_anew(self: &Rc<Core>, o: &Operation, object: Handle) -> Result<Attr, Error> {
        self.counters.borrow_mut().attr_misses += 1;
        let asked = self.cache.borrow().stamp(self.world.now());
        let shards = self.split.borrow_mut().of(object);
        if let Some(shards) = shards {
            let attr = Box::pin(self.getattr_split(o, object, &shards)).await?;
            self.cache.borrow_mut().put_attr(&attr, asked);
            return Ok(attr);
        }
        let guess = self.cache.borrow().attr_once(object).and_then(|attr| attr.layout.clone());
        let at_once = match guess {
            Some(layout) => Box::pin(self.getattr_striped(o, object, &layout)).await?,
            None => None,
        };
        let attr = match at_once {
            Some(attr) => attr,
            None => {
                let attr = self.getattr_raw(o, object).await?;
                self.merged(o, attr).await?
            }
        };
        self.cache.borrow_mut().put_attr(&attr, asked);
        Ok(attr)
    }

    /// Attributes as the metafile's server has them.
    pub(crate) async fn getattr_raw(self: &Rc<Core>, o: &Operation, object: Handle) -> Result<Attr, Error> {
        self.getattr_at(o, object, object.server()).await
    }

    /// Attributes as a server has them: of a split directory those of its shard.
    async fn getattr_at(
        self: &Rc<Core>,
        o: &Operation,
        object: Handle,
        server: ServerId,
    ) -> Result<Attr, Error> {
        let asked_at = self.world.now();
        let told = self.ask(o, server, vec![Op::Getattr { object }]).await?;
        let attr = attr_among(&told.answers)
            .filter(|attr| attr.handle == object)
            .ok_or_else(|| o.error(Status::BadMessage).from(server).because("no attributes in its answer"))?;
        self.notice_count(object, object, count_among(&told.answers));
        if attr.shards.is_split() {
            let mut split = self.split.borrow_mut();
            split.learn(object, &attr.shards, None);
            split.saw(server, &attr, asked_at);
        }
        Ok(attr)
    }

    /// Attributes and facts in one round, of a file whose layout is presumed known; `None` if it has changed.
    async fn getattr_striped(
        self: &Rc<Core>,
        o: &Operation,
        object: Handle,
        layout: &Layout,
    ) -> Result<Option<Attr>, Error> {
        // Its own stream is the first datafile, unless it was made with datafiles apart.
        let own = usize::from(self.switches().compound && layout.datafiles.first() == Some(&object));
        let mut groups = vec![vec![Op::Getattr { object }]];
        groups.extend((0..own).map(|_| vec![Op::Streamstat { stream: object }]));
        let others = layout.datafiles.iter().skip(own).map(|&stream| self.streamstat(o, stream));
        let (told, others) = join(self.ask_many(o, object.server(), groups), join_all(others)).await;
        let mut answers = told?.into_iter().flat_map(|group| group.answers.0);
        let Some(Answer::Attr { attr, count }) = answers.next() else { return Ok(None) };
        let first = answers.map(|answer| match answer {
            Answer::Facts { facts, .. } => Some(facts),
            _ => None,
        });
        let all: Option<Vec<StreamFacts>> = first.chain(others.into_iter().map(Result::ok)).collect();
        let Some(facts) = all.filter(|facts| facts.len() == layout.datafiles.len()) else { return Ok(None) };
        self.notice_count(object, object, count);
        self.notice_facts(object, layout, &facts);
        let same = attr.layout.as_ref().is_some_and(|now| now.datafiles == layout.datafiles);
        Ok((same && fit(&facts, attr.generation)).then(|| merge(attr, &facts)))
    }

    /// Attributes of a directory, of all its shards.
    async fn getattr_split(
        self: &Rc<Core>,
        o: &Operation,
        dir: Handle,
        shards: &Shards,
    ) -> Result<Attr, Error> {
        let others = self.getattr_shards(o, dir, shards);
        match join(self.getattr_raw(o, dir), others).await {
            (Ok(home), Ok(others)) if home.shards == *shards => Ok(merge_shards(home, &others)),
            (Ok(home), _) => self.merged(o, home).await,
            (Err(error), _) => Err(error),
        }
    }

    /// Attributes of the shards of a directory on other servers than its own.
    async fn getattr_shards(
        self: &Rc<Core>,
        o: &Operation,
        dir: Handle,
        shards: &Shards,
    ) -> Result<Vec<Attr>, Error> {
        let others = shards.servers().iter().filter(|&&server| server != dir.server());
        let asked = others.map(|&server| self.getattr_at(o, dir, server));
        join_all(asked).await.into_iter().collect()
    }

    /// A directory's attributes with those of its other shards merged in.
    async fn merged_shards(self: &Rc<Core>, o: &Operation, home: Attr) -> Result<Attr, Error> {
        let mut home = home;
        while home.shards.is_split() {
            self.split.borrow_mut().learn(home.handle, &home.shards, None);
            match self.getattr_shards(o, home.handle, &home.shards).await {
                Ok(others) => return Ok(merge_shards(home, &others)),
                // Removed since its own server was asked.
                Err(error) if matches!(error.status, Status::WrongServer | Status::Stale) => {
                    self.split.borrow_mut().forget(home.handle);
                    self.back_off(o, error).await?;
                    home = self.getattr_raw(o, home.handle).await?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(home)
    }

    /// Attributes with the facts of all datafiles, or shards, merged in. Of a stuffed file, and a directory
    /// that is whole, nothing is to be asked.
    pub(crate) async fn merged(self: &Rc<Core>, o: &Operation, attr: Attr) -> Result<Attr, Error> {
        if attr.shards.is_split() {
            return Box::pin(self.merged_shards(o, attr)).await;
        }
        match attr.layout {
            Some(_) => Box::pin(self.merged_facts(o, attr)).await,
            None => Ok(attr),
        }
    }

    async fn merged_facts(self: &Rc<Core>, o: &Operation, attr: Attr) -> Result<Attr, Error> {
        let mut attr = attr;
        let mut tries = 0;
        loop {
            let Some(layout) = attr.layout.clone() else { return Ok(attr) };
            let facts = self.facts(o, &layout).await?;
            self.notice_facts(attr.handle, &layout, &facts);
            tries += 1;
            if fit(&facts, attr.generation) || tries == FITTING_TRIES_MAX {
                return Ok(merge(attr, &facts));
            }
            if tries > 1 {
                self.back_off(o, o.error(Status::StaleLayout)).await?;
            }
            attr = self.getattr_raw(o, attr.handle).await?;
        }
    }

    /// Facts of all datafiles, in order.
    pub(crate) async fn facts(
        self: &Rc<Core>,
        o: &Operation,
        layout: &Layout,
    ) -> Result<Vec<StreamFacts>, Error> {
        let all = layout.datafiles.iter().map(|&stream| self.streamstat(o, stream));
        join_all(all).await.into_iter().collect()
    }

    /// Facts of a file's datafiles came: they may tell of changes by others.
    fn notice_facts(&self, object: Handle, layout: &Layout, facts: &[StreamFacts]) {
        for (&stream, facts) in layout.datafiles.iter().zip(facts) {
            self.notice_count(object, stream, facts.count);
        }
    }

    /// Facts of one stream.
    pub(crate) async fn streamstat(
        self: &Rc<Core>,
        o: &Operation,
        stream: Handle,
    ) -> Result<StreamFacts, Error> {
        let told = self.ask(o, stream.server(), vec![Op::Streamstat { stream }]).await?;
        match told.answers.first() {
            Some(Answer::Facts { facts, .. }) => Ok(*facts),
            _ => Err(o.error(Status::BadMessage).from(stream.server()).because("no facts in its answer")),
        }
    }

    /// Keep attributes that a change answered with, and give them out merged.
    pub(crate) async fn changed_to(self: &Rc<Core>, o: &Operation, attr: Attr) -> Result<Attr, Error> {
        self.cache.borrow_mut().changed(attr.handle);
        // A change of size or times may have begun a generation.
        self.inodes.borrow().learn(&attr);
        let asked = self.cache.borrow().stamp(o.began);
        let attr = self.merged(o, attr).await?;
        self.cache.borrow_mut().put_attr(&attr, asked);
        Ok(attr)
    }
}

pub(super) fn fit(facts: &[StreamFacts], generation: Generation) -> bool {
    facts.iter().all(|facts| facts.generation <= generation)
}

/// The logical size that the datafiles' facts imply.
pub(crate) fn logical_size(layout: &Layout, facts: &[StreamFacts]) -> u64 {
    let striping = layout.striping();
    let ends = facts.iter().zip(0..).map(|(facts, index)| striping.logical_end(index, facts.size));
    ends.max().unwrap_or(0)
}

pub(super) fn merge(attr: Attr, facts: &[StreamFacts]) -> Attr {
    let Some(layout) = &attr.layout else { return attr };
    let written_at = facts.iter().filter_map(|facts| facts.written_at).max();
    Attr {
        size: logical_size(layout, facts),
        space: facts.iter().fold(0, |sum: u64, facts| sum.saturating_add(facts.space)),
        mtime: written_at.unwrap_or(attr.mtime),
        ctime: written_at.map_or(attr.ctime, |at| at.max(attr.ctime)),
        ..attr
    }
}
