//! Operations on further names of own files, and on objects that are no regular files.

use super::{End, OWNER, Worker, name};
use crate::ledger::{KnownObject, ObjectId, Slot};
use crate::register::Seen;
use shoal_client::Error;
use shoal_proto::{Attr, Durability, Handle, Kind, Status};

const REFUSALS: [Status; 3] = [Status::Stale, Status::NotFound, Status::Exists];

impl Worker {
    pub(super) async fn link(&mut self) {
        if self.rng.below(5) == 0 {
            return self.link_to_hot().await;
        }
        let is_file = |object: &KnownObject| object.kind != Kind::Directory && !object.is_public;
        let Some((_, object)) = self.own(is_file) else { return };
        let slot = (self.directory().0, self.fresh_name());
        self.link_as(object, slot).await;
    }

    /// Give an own file this name, too.
    pub(super) async fn link_as(&self, object: ObjectId, slot: Slot) {
        let handle = self.handle(object);
        let words = format!("link {handle} as {slot:?}");
        let (client, leaf) = (self.client.clone(), name(&slot.1));
        let linked = client.link(handle, Handle(slot.0), &leaf);
        match self.change("link", &words, &REFUSALS, vec![(slot, Some(object))], linked).await {
            End::Done(attr) => self.judge_links(&words, object, &attr),
            End::Refused(status) => self.wrong_of(&words, object, status),
            End::Unknown(_) => {}
        }
    }

    /// Whether the count of links is right. A client may know an older one for its cache time if others
    /// remove names.
    pub(super) fn judge_links(&self, words: &str, object: ObjectId, attr: &Attr) {
        if self.with_object(object, |object| object.offered_at.is_some()) {
            return;
        }
        let links = self.shared.ledger.borrow().links(object);
        if let Some(links) = links.filter(|links| *links != attr.nlink) {
            self.violation(words, format!("expected {links} links, found {}", attr.nlink));
        }
    }

    /// Give an own file a contended name too, if that is free.
    async fn link_to_hot(&mut self) {
        let Some((_, object)) = self.own(|object| object.kind == Kind::File) else { return };
        self.ask_for(Durability::Usual);
        let slot = (self.directory().0, self.hot_name());
        // Its own names stay; only their number is not known any more.
        self.make_public(object).await;
        let handle = self.handle(object);
        let words = format!("link {handle} as {slot:?}");
        let event = self.note(&slot, "link", Seen::MaybeTook(handle.0));
        let (client, leaf) = (self.client.clone(), name(&slot.1));
        let linked = client.link(handle, Handle(slot.0), &leaf);
        let seen = match self.run("link", &words, &REFUSALS, linked).await {
            End::Done(_) => Some(Seen::Made(handle.0)),
            End::Refused(Status::Exists) => Some(Seen::Occupied),
            End::Refused(status) => {
                self.wrong_of(&words, object, status);
                Some(Seen::Nothing)
            }
            End::Unknown(_) => None,
        };
        self.noted(&slot, event, seen);
    }

    pub(super) async fn special(&mut self) {
        let slot = (self.directory().0, self.fresh_name());
        let (client, dir, leaf) = (self.client.clone(), Handle(slot.0), name(&slot.1));
        match self.rng.below(3) {
            0 => {
                let target = self.link_target();
                let made = client.symlink(dir, &leaf, OWNER, &target);
                let object = self.make("symlink", slot, Kind::Symlink, made).await;
                self.with_object(object, |object| object.target = target);
            }
            1 => {
                let kind = [Kind::Fifo, Kind::Socket, Kind::CharDevice][self.rng.below(3) as usize];
                let rdev = if kind == Kind::CharDevice { 0x103 } else { 0 };
                self.make("mknod", slot, kind, client.mknod(dir, &leaf, OWNER, kind, rdev)).await;
            }
            _ => {
                self.make("mkdir", slot, Kind::Directory, client.mkdir(dir, &leaf, OWNER)).await;
            }
        }
    }

    /// Where a new symbolic link leads: to an own name by its whole path, or nowhere, short or long.
    fn link_target(&mut self) -> Vec<u8> {
        let own = self.own(|object| object.kind == Kind::File).and_then(|(slot, _)| self.path_of(&slot));
        match (self.rng.below(3), own) {
            (0, _) | (_, None) => vec![b'x'; 1 + self.rng.below(3000) as usize],
            (_, Some(path)) => path.into_bytes(),
        }
    }

    async fn make(
        &self,
        verb: &'static str,
        slot: Slot,
        kind: Kind,
        made: impl Future<Output = Result<Attr, Error>>,
    ) -> ObjectId {
        let (object, stamp) = (self.new_object(kind), self.shared.now());
        let words = format!("{verb} {slot:?}");
        match self.change(verb, &words, &REFUSALS, vec![(slot, Some(object))], made).await {
            End::Done(attr) => {
                self.made(object, attr.handle, &stamp);
                // Links have modes of their own.
                self.with_object(object, |object| object.facts.mode = crate::facts::Fact::new(attr.mode));
            }
            End::Refused(status) => self.wrong_of(&words, object, status),
            End::Unknown(_) => {}
        }
        object
    }
}
