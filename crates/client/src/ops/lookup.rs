//! The object that a name leads to.

use crate::cache::Leads;
use crate::core::{Core, Operation};
use crate::{Client, Error};
use shoal_env::mutant::{self, Mutant};
use shoal_proto::op::Answer;
use shoal_proto::{Attr, Handle, Kind, Name, Op, ServerId, Status};
use std::rc::Rc;

/// The object that a lookup reached.
pub(crate) struct Looked {
    pub(crate) resolved: usize,
    pub(crate) handle: Handle,
    pub(crate) kind: Kind,
    pub(crate) attr: Option<Attr>,
}

impl Client {
    /// The object that a name leads to, with its attributes, merged. A negative entry of the cache never
    /// answers it: the mount's opens come here.
    ///
    /// # Errors
    /// `NotFound`; `NotDirectory`; `Stale`: the directory is gone.
    pub async fn lookup(&self, dir: Handle, name: &Name) -> Result<Attr, Error> {
        let o = self.core.begin("lookup", Some(dir));
        self.core.lookup(&o, dir, name).await
    }
}

impl Client {
    /// The server that holds an entry's place, as far as is known here: the directory's own, or in a
    /// directory that is known to be split the shard's.
    pub fn server_of_entry(&self, dir: Handle, name: &Name) -> ServerId {
        self.core.split.borrow_mut().server_of(dir, name)
    }
}

impl Core {
    /// The object that a name leads to: from the cache, or from the server.
    pub(crate) async fn lookup(
        self: &Rc<Core>,
        o: &Operation,
        dir: Handle,
        name: &Name,
    ) -> Result<Attr, Error> {
        let believed = self.cache.borrow_mut().name(dir, name, self.world.now());
        if mutant::is(Mutant::NegativeEntry) && believed == Some(Leads::Nowhere) {
            return Err(o.error(Status::NotFound));
        }
        if let Some(Leads::To(handle, _)) = believed {
            self.counters.borrow_mut().name_hits += 1;
            match Box::pin(self.getattr(o, handle)).await {
                Err(error) if matches!(error.status, Status::Stale | Status::NotFound) => {}
                // It has lost its last name, and is kept for those that have it open.
                Ok(attr) if attr.nlink == 0 => {}
                other => return other,
            }
        }
        self.lookup_anew(o, dir, name).await
    }

    /// The object that a name leads to, from the server.
    pub(crate) async fn lookup_anew(
        self: &Rc<Core>,
        o: &Operation,
        dir: Handle,
        name: &Name,
    ) -> Result<Attr, Error> {
        let mut gone = None;
        loop {
            let asked = self.cache.borrow().stamp(self.world.now());
            let looked = self.lookup_path(o, dir, std::slice::from_ref(name)).await?;
            let attr = match looked.attr {
                Some(attr) => self.merged(o, attr).await?,
                // The entry's object lives on another server. Gone meanwhile, it may have been replaced, and
                // then the name was there all the time: only the same answer twice says that there is
                // nothing.
                None => match Box::pin(self.getattr_named(o, looked.handle)).await {
                    Err(error) if error.status == Status::Stale && gone == Some(looked.handle) => {
                        return Err(Error { status: Status::NotFound, ..error });
                    }
                    Err(error) if error.status == Status::Stale => {
                        gone = Some(looked.handle);
                        continue;
                    }
                    other => other?,
                },
            };
            self.cache.borrow_mut().put_attr(&attr, asked);
            return Ok(attr);
        }
    }

    /// Attributes of the object that a name led to a moment ago: an object without a name counts as gone,
    /// even if a client has it open.
    async fn getattr_named(self: &Rc<Core>, o: &Operation, object: Handle) -> Result<Attr, Error> {
        match self.getattr_anew(o, object).await {
            Ok(attr) if attr.nlink == 0 => Err(o.error(Status::Stale).of(object)),
            other => other,
        }
    }

    /// Walk `path` from `dir` as far as its server can.
    pub(crate) async fn lookup_path(
        self: &Rc<Core>,
        o: &Operation,
        dir: Handle,
        path: &[Name],
    ) -> Result<Looked, Error> {
        self.counters.borrow_mut().name_misses += 1;
        let asked = self.cache.borrow().stamp(self.world.now());
        let told = self.ask(o, dir.server(), vec![Op::Lookup { dir, path: path.to_vec().into() }]).await;
        let keep = |leads| {
            if let [name] = path {
                self.cache.borrow_mut().put_name(dir, name, leads, asked);
            }
        };
        let told = told.inspect_err(|error| {
            if error.status == Status::NotFound {
                keep(Leads::Nowhere);
            }
        })?;
        let Some(Answer::Looked { resolved, handle, kind, attr }) = told.answers.into_iter().next() else {
            return Err(o.error(Status::BadMessage).from(dir.server()).because("no object in its answer"));
        };
        let resolved = usize::from(resolved);
        if resolved > path.len() {
            return Err(o
                .error(Status::BadMessage)
                .from(dir.server())
                .because("it resolved more than was asked"));
        }
        if let Some(attr) = attr.as_ref().filter(|attr| attr.shards.is_split()) {
            self.split.borrow_mut().learn(handle, &attr.shards, None);
        }
        if resolved == path.len() {
            keep(Leads::To(handle, kind));
        }
        Ok(Looked { resolved, handle, kind, attr })
    }
}
