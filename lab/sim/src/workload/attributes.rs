//! Operations on attributes. A client changes attributes and extended attributes of its own objects. All
//! clients change one extended attribute (`user.hot`) of shared files.

use super::{End, Worker};
use crate::contents::{ATTRIBUTES, Act};
use crate::facts::{Look, RunFacts};
use crate::ledger::{ObjectId, Slot};
use crate::losses::{Held, Stamp};
use crate::register::{Event, Seen};
use shoal_proto::{Kind, SetAttr, Status, Time};

const NAMES: [&str; 3] = ["user.a", "user.bb", "user.a-longer-name-of-an-attribute"];

impl Worker {
    pub(super) async fn attributes(&mut self) {
        // The times of a forked file change with the removal of its subfiles.
        let is_of_forks = self.is_of_forks();
        let fits = |kind| kind == Kind::File || kind == Kind::Directory && !is_of_forks;
        let Some((_, object)) = self.own(|object| fits(object.kind) && !object.is_public) else { return };
        match self.rng.below(6) {
            0 => self.chmod(object).await,
            1 => self.chown(object).await,
            2 => self.set_times(object).await,
            3 => self.setxattr(object).await,
            4 => self.removexattr(object).await,
            _ => self.getxattrs(object).await,
        }
    }

    fn with_facts<T>(&self, object: ObjectId, f: impl FnOnce(&mut RunFacts) -> T) -> T {
        f(self.shared.ledger.borrow_mut().facts(object, false))
    }

    /// A change that was requested after these faults, and that is held as `held`, was acknowledged.
    fn facts_changed(&self, object: ObjectId, (stamp, held): (&Stamp, Held)) {
        let (held, now) = (held.min(self.held_attributes()), self.now());
        self.with_facts(object, |facts| facts.changed(stamp, held, self.client_number(), now));
        self.note_attributes(object, (stamp, held));
    }

    /// This client's fsyncs of the object report a loss of that change.
    fn note_attributes(&self, object: ObjectId, (stamp, held): (&Stamp, Held)) {
        let (client, scope, now) = (self.id, self.scope, self.now());
        let act = Act {
            kind: ATTRIBUTES,
            client,
            scope,
            called: now,
            stamp: stamp.clone(),
            held,
            noted: held,
            returned: Some(now),
            ..Act::default()
        };
        self.with_contents(object, |contents| contents.begin(act));
    }

    /// Attributes that were requested from the server then were returned: returned attributes are durable.
    pub(super) fn attributes_seen(&self, object: ObjectId, called: u64, was_durable: bool) {
        let mut ledger = self.shared.ledger.borrow_mut();
        if was_durable && self.sees_durable() && ledger.objects[object].facts.ended_before(called) {
            ledger.facts(object, true);
        }
    }

    /// Request it, and end its notes.
    async fn set(&self, object: ObjectId, set: SetAttr, ended: impl Fn(&mut RunFacts, bool, u64)) {
        let (handle, called) = (self.handle(object), self.now());
        let words = format!("setattr of {handle}: {set:?}");
        let gone = [Status::Stale, Status::NotFound];
        let (stamp, held) = (self.shared.now(), self.held_attributes());
        match self.run("setattr", &words, &gone, self.client.setattr(handle, set)).await {
            End::Done(attr) => {
                self.with_facts(object, |facts| ended(facts, true, called));
                self.facts_changed(object, (&stamp, held));
                self.judge_attr(&words, object, called, &attr);
            }
            End::Refused(status) => {
                self.with_facts(object, |facts| ended(facts, false, called));
                self.wrong_of(&words, object, status);
            }
            End::Unknown(_) => self.note_attributes(object, (&stamp, held)),
        }
    }

    async fn chmod(&mut self, object: ObjectId) {
        let mode = 0o600 | self.rng.below(0o100) as u32;
        self.chmod_to(object, mode).await;
    }

    /// Give it this mode.
    pub(super) async fn chmod_to(&self, object: ObjectId, mode: u32) {
        self.with_facts(object, |facts| facts.mode.begin(mode));
        let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
        self.set(object, set, |facts, done, _| if done { facts.mode.done() } else { facts.mode.refused() })
            .await;
    }

    async fn chown(&mut self, object: ObjectId) {
        let (uid, gid) = (self.rng.below(3000) as u32, self.rng.below(3000) as u32);
        self.with_facts(object, |facts| facts.owner.begin((uid, gid)));
        let set = SetAttr { uid: Some(uid), gid: Some(gid), ..SetAttr::default() };
        self.set(object, set, |facts, done, _| if done { facts.owner.done() } else { facts.owner.refused() })
            .await;
    }

    async fn set_times(&mut self, object: ObjectId) {
        let (atime, mtime) = (self.rng.below(1 << 60) as i64, self.rng.below(1 << 60) as i64);
        self.with_facts(object, |facts| {
            facts.atime.begin(Some(atime));
            facts.mtime.begin(Some((mtime, 0)));
        });
        let set = SetAttr { atime: Some(Time(atime)), mtime: Some(Time(mtime)), ..SetAttr::default() };
        self.set(object, set, |facts, done, now| {
            facts.mtime.refused();
            if done {
                facts.atime.done();
                facts.mtime.begin(Some((mtime, now)));
                facts.mtime.done();
            } else {
                facts.atime.refused();
            }
        })
        .await;
    }

    async fn setxattr(&mut self, object: ObjectId) {
        let xattr = NAMES[self.rng.below(3) as usize].as_bytes();
        let len = [0, 5, 300, 4_000, 60_000][self.rng.below(5) as usize];
        let value = crate::contents::filled(self.rng.next_u64() | 1, 0, len);
        let (create, replace) = [(false, false), (true, false), (false, true)][self.rng.below(3) as usize];
        let handle = self.handle(object);
        let words = format!(
            "setxattr of {handle}: {} create {create} replace {replace}",
            String::from_utf8_lossy(xattr)
        );
        self.with_facts(object, |facts| facts.xattr(xattr).begin(Some(value.clone())));
        let (client, refusals) = (self.client.clone(), [Status::Exists, Status::NoAttribute]);
        let set = client.setxattr(handle, xattr, &value, create, replace);
        let (stamp, held) = (self.shared.now(), self.held_attributes());
        let end = self.run("setxattr", &words, &refusals, set).await;
        let is_done = matches!(end, End::Done(()));
        let judged = self.with_facts(object, |facts| match end {
            End::Done(()) => {
                facts.xattr(xattr).done();
                Ok(())
            }
            End::Refused(status) => {
                let fact = facts.xattr(xattr);
                fact.refused();
                let excuse = if status == Status::Exists { create } else { replace };
                let was_there = fact.judge("", &None, Look::LAST).is_err();
                let right = excuse && (status == Status::NoAttribute) != was_there;
                // With an earlier change of unknown outcome either may be.
                let open = fact.is_open();
                if right || open || status == Status::NoSpace { Ok(()) } else { Err(status) }
            }
            End::Unknown(_) => Ok(()),
        });
        if is_done {
            self.facts_changed(object, (&stamp, held));
        }
        if let Err(status) = judged {
            self.violation(&words, format!("expected it done, found {status:?}"));
        }
    }

    async fn removexattr(&mut self, object: ObjectId) {
        let xattr = NAMES[self.rng.below(3) as usize].as_bytes();
        let handle = self.handle(object);
        let words = format!("removexattr of {handle}: {}", String::from_utf8_lossy(xattr));
        self.with_facts(object, |facts| facts.xattr(xattr).begin(None));
        let client = self.client.clone();
        let (stamp, held) = (self.shared.now(), self.held_attributes());
        let end =
            self.run("removexattr", &words, &[Status::NoAttribute], client.removexattr(handle, xattr)).await;
        let is_done = matches!(end, End::Done(()));
        let judged = self.with_facts(object, |facts| {
            let fact = facts.xattr(xattr);
            let was_there = fact.known().is_some();
            match end {
                End::Done(()) => fact.done(),
                End::Refused(_) => fact.refused(),
                End::Unknown(_) => return Ok(()),
            }
            let agrees = was_there == matches!(end, End::Done(()));
            if agrees || fact.is_open() { Ok(()) } else { Err(was_there) }
        });
        if is_done {
            self.facts_changed(object, (&stamp, held));
        }
        if let Err(was_there) = judged {
            self.violation(&words, format!("expected that it was there: {was_there}, found otherwise"));
        }
    }

    async fn getxattrs(&mut self, object: ObjectId) {
        let handle = self.handle(object);
        let words = format!("listxattr of {handle}");
        let (client, called, is_durable) = (self.client.clone(), self.now(), self.sees_durable());
        let End::Done(names) = self.run("listxattr", &words, &[], client.listxattr(handle)).await else {
            return;
        };
        let names: Vec<Vec<u8>> = names.into_iter().map(|name| name.0.to_vec()).collect();
        if let Err(wrong) = self.with_facts(object, |facts| facts.judge_xattr_names(&names)) {
            self.violation(&words, wrong);
        }
        self.attributes_seen(object, called, is_durable);
        for xattr in names {
            let words = format!("getxattr of {handle}: {}", String::from_utf8_lossy(&xattr));
            let got = client.getxattr(handle, &xattr);
            let value = match self.run("getxattr", &words, &[Status::NoAttribute], got).await {
                End::Done(value) => Some(value.to_vec()),
                End::Refused(_) => None,
                End::Unknown(_) => continue,
            };
            if let Err(wrong) =
                self.with_facts(object, |facts| facts.xattr(&xattr).judge("value", &value, Look::LAST))
            {
                self.violation(&words, wrong);
            }
        }
    }

    /// An attribute that all clients set, make, remove and read: a register.
    pub(super) async fn hot_attribute(&mut self) {
        let records = &self.shared.scene.records;
        let object = records[self.rng.below(records.len() as u64) as usize];
        let handle = self.handle(object);
        let xattr = "user.hot";
        let slot: Slot = (handle.0, xattr.to_owned());
        let (client, word, called) = (self.client.clone(), self.rng.next_u64(), self.now());
        let words = format!("contended attribute of {handle}");
        let value = word.to_le_bytes();
        let refusals = [Status::Exists, Status::NoAttribute];
        let which = self.rng.below(5);
        let maybe = match which {
            0 => Seen::MaybePut(word),
            1 => Seen::MaybeTook(word),
            2 => Seen::MaybeRemoved,
            _ => Seen::Nothing,
        };
        let asked = ["setxattr", "setxattr", "removexattr", "getxattr", "getxattr"][which as usize];
        let event = {
            let event = Event { client: self.id, asked, called, returned: called, seen: maybe };
            let mut values = self.shared.values.borrow_mut();
            let history = values.entry(slot.clone()).or_default();
            history.push(event);
            history.len() - 1
        };
        let (stamp, held) = (self.shared.now(), self.held_attributes());
        let xattr = xattr.as_bytes();
        let end = match which {
            0 | 1 => {
                let set = client.setxattr(handle, xattr, &value, which == 1, false);
                match self.run("setxattr", &words, &refusals, set).await {
                    End::Done(()) if which == 1 => Some(Seen::Made(word)),
                    End::Done(()) => Some(Seen::Put(word)),
                    End::Refused(Status::Exists) => Some(Seen::Occupied),
                    End::Refused(_) => Some(Seen::Nothing),
                    End::Unknown(_) => None,
                }
            }
            2 => match self.run("removexattr", &words, &refusals, client.removexattr(handle, xattr)).await {
                End::Done(()) => Some(Seen::Removed),
                End::Refused(Status::NoAttribute) => Some(Seen::Missing),
                End::Refused(_) => Some(Seen::Nothing),
                End::Unknown(_) => None,
            },
            _ => match self.run("getxattr", &words, &refusals, client.getxattr(handle, xattr)).await {
                End::Done(got) => {
                    let got = got.as_ref().try_into().map_or(0, u64::from_le_bytes);
                    Some(Seen::Found(got))
                }
                End::Refused(_) => Some(Seen::Missing),
                End::Unknown(_) => None,
            },
        };
        if let Some(Seen::Made(_) | Seen::Put(_) | Seen::Removed) = end {
            self.note_attributes(object, (&stamp, held.min(self.held_attributes())));
        }
        let mut values = self.shared.values.borrow_mut();
        if let (Some(seen), Some(event)) = (end, values.get_mut(&slot).and_then(|h| h.get_mut(event))) {
            (event.seen, event.returned) = (seen, self.now());
        }
    }
}
