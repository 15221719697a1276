//! Attributes of many objects, with one request to each server for up to 128 objects. An error of one server
//! fails only the objects of that server.

use crate::Error;
use crate::core::{Core, Operation};
use futures_util::future::join_all;
use shoal_proto::op::Answer;
use shoal_proto::{Attr, GroupReply, Handle, Op, ServerId, Status, StreamFacts, limits};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Existing objects whose attributes could not be fetched; and why.
pub(in crate::ops) type Lacks = BTreeMap<Handle, Error>;

/// The answer of an object's server; an error: there was none.
type Said = Result<Result<Answer, Status>, Error>;

impl Core {
    /// Attributes of many objects, merged: each by itself. Removed objects are left out.
    pub(super) async fn getattr_each(
        self: &Rc<Core>,
        o: &Operation,
        objects: &[Handle],
        lacks: &mut Lacks,
    ) -> BTreeMap<Handle, Attr> {
        let mut found = BTreeMap::new();
        for &object in objects {
            take(object, self.getattr_anew(o, object).await, &mut found, lacks);
        }
        found
    }

    /// Attributes of many objects, unmerged: one request per server. Removed objects are left out.
    pub(super) async fn getattr_many(
        self: &Rc<Core>,
        o: &Operation,
        objects: &[Handle],
        lacks: &mut Lacks,
    ) -> BTreeMap<Handle, Attr> {
        let mut found = BTreeMap::new();
        for (object, said) in self.ask_each(o, objects, |object| Op::Getattr { object }).await {
            let attr = match said {
                Ok(Ok(Answer::Attr { attr, .. })) => Ok(attr),
                Ok(Err(Status::Stale | Status::NotFound)) => continue,
                // It is there, and a transaction is in the way: this one by itself.
                Ok(Ok(_) | Err(_)) => self.getattr_raw(o, object).await,
                Err(error) => Err(error),
            };
            take(object, attr, &mut found, lacks);
        }
        found
    }

    /// Merge the datafiles' facts into many attributes: one request a server. Those that could not be merged
    /// are returned.
    pub(in crate::ops) async fn merge_many(self: &Rc<Core>, o: &Operation, attrs: Vec<&mut Attr>) -> Lacks {
        let mut lacks = Lacks::new();
        let (split, attrs): (Vec<&mut Attr>, Vec<&mut Attr>) =
            attrs.into_iter().partition(|attr| attr.shards.is_split());
        for attr in split {
            replace(attr, self.merged(o, attr.clone()).await, &mut lacks);
        }
        let streams: Vec<Handle> = attrs
            .iter()
            .filter_map(|a| a.layout.as_ref())
            .flat_map(|l| l.datafiles.iter().copied())
            .collect();
        if streams.is_empty() {
            return lacks;
        }
        let (mut facts, mut unheard) = (BTreeMap::<Handle, StreamFacts>::new(), Lacks::new());
        for (stream, said) in self.ask_each(o, &streams, |stream| Op::Streamstat { stream }).await {
            match said {
                Ok(Ok(Answer::Facts { facts: own, .. })) => drop(facts.insert(stream, own)),
                Ok(_) => {}
                Err(error) => drop(unheard.insert(stream, error)),
            }
        }
        for attr in attrs {
            let Some(layout) = &attr.layout else { continue };
            if let Some(error) = layout.datafiles.iter().find_map(|stream| unheard.get(stream)) {
                lacks.insert(attr.handle, error.clone());
                continue;
            }
            let own: Option<Vec<StreamFacts>> =
                layout.datafiles.iter().map(|s| facts.get(s).copied()).collect();
            match own {
                Some(own) if crate::ops::getattr::fit(&own, attr.generation) => {
                    *attr = crate::ops::getattr::merge(attr.clone(), &own);
                }
                // It is being truncated, unstuffed or removed: this one by itself.
                _ => replace(attr, self.getattr_anew(o, attr.handle).await, &mut lacks),
            }
        }
        lacks
    }

    /// Ask one thing of each object at its server, many in one request, all servers at once.
    async fn ask_each(
        self: &Rc<Core>,
        o: &Operation,
        objects: &[Handle],
        op: impl Fn(Handle) -> Op,
    ) -> Vec<(Handle, Said)> {
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
            match replies {
                Ok(replies) => {
                    answers
                        .extend(some.iter().zip(replies).map(|(&object, reply)| (object, Ok(first(reply)))));
                }
                Err(error) => answers.extend(some.iter().map(|&object| (object, Err(error.clone())))),
            }
        }
        answers
    }
}

/// The result for an object; a removed one is left out.
fn take(object: Handle, attr: Result<Attr, Error>, found: &mut BTreeMap<Handle, Attr>, lacks: &mut Lacks) {
    match attr {
        Ok(attr) => drop(found.insert(object, attr)),
        Err(error) if error.status == Status::Stale => {}
        Err(error) => drop(lacks.insert(object, error)),
    }
}

/// Newer attributes of an object; one that is gone keeps those it had.
fn replace(attr: &mut Attr, newer: Result<Attr, Error>, lacks: &mut Lacks) {
    match newer {
        Ok(newer) => *attr = newer,
        Err(error) if error.status == Status::Stale => {}
        Err(error) => drop(lacks.insert(attr.handle, error)),
    }
}
