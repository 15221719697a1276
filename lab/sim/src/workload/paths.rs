//! Operations by path. One message carries several components; paths may lead through symbolic links.

use super::{End, Worker};
use crate::ledger::Slot;
use shoal_proto::{Kind, Rights, Status};

const GONE: [Status; 2] = [Status::Stale, Status::NotFound];

impl Worker {
    /// The path of a name in a directory that stays.
    pub(super) fn path_of(&self, slot: &Slot) -> Option<String> {
        let scene = &self.shared.scene;
        let index = scene.directories.iter().position(|dir| dir.0 == slot.0)?;
        Some(format!("/{}/{}", scene.directory_name(index), slot.1))
    }

    fn slot_of(&self, path: &[u8]) -> Option<Slot> {
        let path = std::str::from_utf8(path).ok()?;
        let (dir, leaf) = path.strip_prefix('/')?.split_once('/')?;
        let scene = &self.shared.scene;
        let index = (0..scene.directories.len()).find(|index| scene.directory_name(*index) == dir)?;
        Some((scene.directories[index].0, leaf.to_owned()))
    }

    pub(super) async fn path(&mut self) {
        let Some((slot, object)) = self.own(|_| true) else { return };
        let Some(path) = self.path_of(&slot) else { return };
        let kind = self.with_object(object, |object| object.kind);
        match kind {
            Kind::Symlink => self.follow(&path, object).await,
            Kind::File if self.rng.below(2) == 0 => self.open_path(&path, &slot).await,
            _ => self.walk(&path, &slot).await,
        }
    }

    async fn walk(&self, path: &str, slot: &Slot) {
        let (words, called) = (format!("walk {path}"), self.now());
        match self.run("walk", &words, &GONE, self.client.walk(path.as_bytes(), false)).await {
            End::Done(attr) => drop(self.led_to(&words, slot, called, attr.handle)),
            End::Refused(status) => self.wrong_name(&words, &[slot], status),
            End::Unknown(_) => {}
        }
    }

    async fn open_path(&self, path: &str, slot: &Slot) {
        let (words, called) = (format!("open {path}"), self.now());
        match self.run("open", &words, &GONE, self.client.open_at(path.as_bytes(), Rights::READ)).await {
            End::Done(file) => drop(self.led_to(&words, slot, called, file.handle())),
            End::Refused(status) => self.wrong_name(&words, &[slot], status),
            End::Unknown(_) => {}
        }
    }

    /// A chain of links may lead anywhere.
    fn may_be_link(&self, slot: &Slot) -> bool {
        let (ledger, now) = (self.shared.ledger.borrow(), self.now());
        let mut possible = ledger.possible(slot, now, now).into_iter().flatten();
        possible.any(|object| ledger.objects[object].kind == Kind::Symlink)
    }

    /// A link says where it leads, and leads there.
    async fn follow(&self, path: &str, object: usize) {
        let (handle, target) = (self.handle(object), self.with_object(object, |o| o.target.clone()));
        let words = format!("readlink {handle}");
        match self.run("readlink", &words, &GONE, self.client.readlink(handle)).await {
            End::Done(found) if found == target => {}
            End::Done(found) => {
                self.violation(&words, format!("expected {} bytes, found {}", target.len(), found.len()));
            }
            End::Refused(status) => self.wrong_of(&words, object, status),
            End::Unknown(_) => {}
        }
        let Some(slot) = self.slot_of(&target).filter(|slot| !self.may_be_link(slot)) else { return };
        let (words, called) = (format!("walk {path}, a link to {slot:?}"), self.now());
        match self.run("walk", &words, &GONE, self.client.walk(path.as_bytes(), true)).await {
            End::Done(attr) => drop(self.led_to(&words, &slot, called, attr.handle)),
            End::Refused(status) => {
                // The link's own name may be lost, too.
                let ledger = self.shared.ledger.borrow();
                let mut names = [Some(slot), self.slot_of(path.as_bytes())].into_iter().flatten();
                let is_there =
                    |name: Slot| ledger.possible(&name, called, self.now()).iter().all(Option::is_some);
                if names.all(is_there) {
                    drop(ledger);
                    self.wrong(&words, status);
                }
            }
            End::Unknown(_) => {}
        }
    }
}
