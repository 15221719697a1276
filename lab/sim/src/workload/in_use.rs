//! Several operations at once on one open file: appends, truncations, changes of names, new names and
//! attributes. So a broken connection, or a fault, meets operations that wait on the file's server for
//! their turn to append or for a lock.

use super::bytes::FILE_MAX;
use super::{End, Worker, name};
use crate::ledger::{KnownObject, ObjectId, Slot};
use futures_util::future::join_all;
use shoal_proto::{Handle, Kind, Status};
use std::pin::Pin;

const GONE: [Status; 2] = [Status::Stale, Status::NotFound];
/// A file of this length is laid out.
const LAID_OUT: u64 = 70_000;
/// Rounds of operations at once.
const ROUNDS_MAX: u64 = 4;

type Part<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

impl Worker {
    /// Of an own file, or a shared one that is never renamed.
    pub(super) async fn in_use(&mut self) {
        let is_file = |object: &KnownObject| object.kind == Kind::File && !object.is_public;
        let own = if self.rng.below(3) > 0 { self.own(is_file) } else { None };
        let records = self.shared.scene.records_of(self.is_of_forks());
        let object = own.as_ref().map(|(_, object)| *object).or_else(|| self.rng.pick(&records).copied());
        let Some(object) = object else { return };
        let mut slot = own.map(|(slot, _)| slot);
        for _ in 0..=self.rng.below(ROUNDS_MAX) {
            slot = self.round(object, slot).await;
        }
        let Some(at) = self.held.iter().position(|held| held.object == object) else { return };
        self.read_all(at).await;
    }

    /// Appends, and concurrent operations; returns where the name is then, if that is certain.
    async fn round(&mut self, object: ObjectId, slot: Option<Slot>) -> Option<Slot> {
        let at = self.opened(object).await?;
        let mut appends = Vec::new();
        for _ in 0..=self.rng.below(2) {
            appends.extend(self.draw_append(at));
        }
        let others = 1 + self.rng.below(2);
        let (mut cuts, mut modes, mut links) = (Vec::new(), Vec::new(), Vec::new());
        let mut moved = None;
        for _ in 0..others {
            match (self.rng.below(3), &slot) {
                (0, _) | (_, None) => {
                    let reach = self.with_contents(object, |contents| contents.reach());
                    // Mostly longer: an append that is done once more then goes after it.
                    let size = if self.rng.below(4) == 0 { LAID_OUT } else { reach.max(LAID_OUT) + 500 };
                    let size = size.min(FILE_MAX);
                    cuts.push((self.draw_truncation(object, size), size));
                }
                (1, Some(_)) if modes.is_empty() => modes.push(0o600 | self.rng.below(0o100) as u32),
                (_, Some(slot)) if moved.is_none() => {
                    // A fork does not leave its subfile.
                    let dir = if self.is_of_forks() { slot.0 } else { self.directory().0 };
                    moved = Some((slot.clone(), (dir, self.fresh_name())));
                }
                _ => {}
            }
        }
        // The count of links in the answer of a change of attributes is judged, too.
        let gets_name = self.shared.rest.is_some() && !self.is_of_forks() && modes.is_empty();
        if slot.is_some() && gets_name && self.rng.below(2) == 0 {
            links.push((self.directory().0, self.fresh_name()));
        }
        {
            let this = &*self;
            let mut parts: Vec<Part<'_>> = Vec::new();
            parts.extend(appends.into_iter().map(|append| Box::pin(this.append_as(append)) as Part<'_>));
            let cut = |(act, size)| Box::pin(this.truncate_as(object, act, size)) as Part<'_>;
            parts.extend(cuts.into_iter().map(cut));
            parts.extend(modes.into_iter().map(|mode| Box::pin(this.chmod_to(object, mode)) as Part<'_>));
            parts.extend(links.into_iter().map(|to| Box::pin(this.link_as(object, to)) as Part<'_>));
            if let Some((from, to)) = &moved {
                parts.push(Box::pin(this.move_to(object, from, to)));
            }
            join_all(parts).await;
        }
        let slot = moved.map_or(slot, |(_, to)| Some(to))?;
        let is_there = self.shared.ledger.borrow().live(self.id).contains(&(slot.clone(), object));
        is_there.then_some(slot)
    }

    async fn move_to(&self, object: ObjectId, from: &Slot, to: &Slot) {
        let changes = vec![(from.clone(), None), (to.clone(), Some(object))];
        let words = format!("rename {from:?} {to:?}, in use");
        let (from_name, to_name) = (name(&from.1), name(&to.1));
        let flags = shoal_client::RenameFlags::default();
        let renamed = self.client.rename(Handle(from.0), &from_name, Handle(to.0), &to_name, flags);
        if let End::Refused(status) = self.change("rename", &words, &GONE, changes, renamed).await {
            self.wrong_name(&words, &[from, to], status);
        }
    }

    /// All of a file that is held open.
    async fn read_all(&mut self, at: usize) {
        let (object, file) = (self.held[at].object, self.held[at].file.clone());
        let (len, called) = (self.with_contents(object, |contents| contents.reach()) + 10, self.now());
        let words = format!("read {} in use", file.handle());
        match self.run("read", &words, &GONE, file.read(0, len as usize)).await {
            End::Done(content) => self.judge_read(&words, object, called, (0, len), &content),
            End::Refused(status) => self.wrong_if_mine(&words, object, status),
            End::Unknown(_) => {}
        }
    }
}
