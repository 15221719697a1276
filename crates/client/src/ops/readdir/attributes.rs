//! Attributes of many objects: one request a server.

use crate::Error;
use crate::core::{Core, Operation};
use futures_util::future::join_all;
use shoal_proto::op::Answer;
use shoal_proto::{Attr, GroupReply, Handle, Op, ServerId, Status, StreamFacts, limits};
use std::collections::BTreeMap;
use std::rc::Rc;

impl Core {
    /// Attributes of many objects, merged: each by itself. What is gone is left out.
    pub(super) async fn getattr_each(
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
    pub(super) async fn getattr_many(
        self: &Rc<Core>,
        o: &Operation,
        objects: &[Handle],
    ) -> Result<BTreeMap<Handle, Attr>, Error> {
        let mut found = BTreeMap::new();
        for (object, answer) in self.ask_each(o, objects, |object| Op::Getattr { object }).await? {
            let attr = match answer {
                Ok(Answer::Attr { attr, .. }) => attr,
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
    pub(in crate::ops) async fn merge_many(
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
                Ok(Answer::Facts { facts, .. }) => Some((stream, facts)),
                _ => None,
            })
            .collect();
        for attr in attrs {
            let Some(layout) = &attr.layout else { continue };
            let own: Option<Vec<StreamFacts>> =
                layout.datafiles.iter().map(|s| facts.get(s).copied()).collect();
            *attr = match own {
                Some(own) if crate::ops::getattr::fit(&own, attr.generation) => {
                    crate::ops::getattr::merge(attr.clone(), &own)
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
