//! The root of a prefix: seen, or made in a store that has shown that it honours conditions, and that it
//! removes objects.

use crate::calls::Put;
use crate::format::{Id, Named};
use crate::store::{Tag, When};
use crate::vfs::Shared;
use bytes::Bytes;
use shoal_proto::{Kind, Owner, Status};
use shoal_vfs::{Error, Result};

impl Shared {
    /// See the root, or make it. Before that the store must show that it honours conditions, and removes.
    pub(crate) async fn root(&self, read_only: bool) -> Result<()> {
        let op = "connect";
        if let Some((named, _)) = self.find(op, None).await? {
            self.nodes.borrow_mut().saw(&named, None, 0);
            return Ok(());
        }
        let key = self.keys.root();
        if read_only {
            let words = format!(
                "{}/{key} does not exist, so no files are there: name another bucket or prefix",
                self.calls.called()
            );
            return Err(Error::new(Status::NotFound, op).because(words));
        }
        let owner = Owner { mode: 0o755, uid: 0, gid: 0 };
        let named = Named { id: Id::ROOT, ..Named::new(Kind::Directory, Id::ROOT, owner, self.now()) };
        self.try_store(op).await?;
        match self.calls.put(op, &key, self.object(&named), When::Absent).await? {
            Put::Done(_) => Ok(()),
            // Another process made it meanwhile.
            Put::Refused if self.find(op, None).await?.is_some() => Ok(()),
            Put::Refused => {
                let words = format!(
                    "{}/{key} cannot be made, and is not there: use another store, or set AWS_ENDPOINT_URL to the \
                     address of one",
                    self.calls.called()
                );
                Err(Error::new(Status::Io, op).because(words))
            }
        }
    }

    /// Try on an object of its own whether the store honours conditions, and removes it. A process that ends
    /// meanwhile leaves no root, and so the next one tries again.
    async fn try_store(&self, op: &'static str) -> Result<()> {
        let key = self.keys.trial(Id::draw(&self.env));
        let tried = self.conditions_of(op, &key).await;
        let removed = self.calls.delete(op, &key).await;
        let wrong = tried?;
        removed?;
        let Some(wrong) = wrong else { return self.is_removed(op, &key).await };
        let words = format!(
            "{} {wrong}: two processes could take one name; use a store, or a version of it, that honours \
             conditions of puts (If-None-Match, If-Match)",
            self.calls.called()
        );
        Err(Error::new(Status::NotSupported, op).because(words))
    }

    /// An object that was removed is not there any more.
    async fn is_removed(&self, op: &'static str, key: &str) -> Result<()> {
        if self.calls.get(op, key, 1).await?.is_none() {
            return Ok(());
        }
        let words = format!(
            "{}/{key} is there after its removal: use a store, or a version of it, that removes objects",
            self.calls.called()
        );
        Err(Error::new(Status::NotSupported, op).because(words))
    }

    /// The fault of the store with conditional puts of an object that is not there.
    async fn conditions_of(&self, op: &'static str, key: &str) -> Result<Option<&'static str>> {
        let bytes = |turn: u8| Bytes::from(format!("the store is tried: {turn}\n"));
        let put = async |turn, when| self.calls.put(op, key, bytes(turn), when).await;
        let Put::Done(tag) = put(0, When::Absent).await? else {
            return Ok(Some("refuses to make an object that is not there"));
        };
        let no_version = When::Is(Tag("\"0123456789abcdef0123456789abcdef\"".to_owned()));
        for when in [When::Absent, no_version] {
            if let Put::Done(_) = put(1, when).await? {
                return Ok(Some("ignores conditions of puts"));
            }
        }
        let Put::Done(_) = put(2, When::Is(tag.clone())).await? else {
            return Ok(Some("refuses a put on the version that it named"));
        };
        let is_ignored = matches!(put(3, When::Is(tag)).await?, Put::Done(_));
        Ok(is_ignored.then_some("ignores conditions of puts"))
    }
}
