//! Contended names: all clients make, remove, replace and look them up at once; each is a register.

use super::{End, OWNER, Worker, name};
use crate::ledger::Slot;
use crate::register::{Event, Seen};
use shoal_proto::{Handle, Name, Rights, Status};

/// Contended names of files in each directory.
const HOT_FILES: u64 = 2;
/// Contended names of directories in each of them.
const HOT_DIRS: u64 = 1;

impl Worker {
    pub(super) fn hot_name(&mut self) -> String {
        format!("hot{}", self.rng.below(HOT_FILES))
    }

    /// Something is about to be done to a contended name; its place in the history.
    pub(super) fn note(&self, slot: &Slot, asked: &'static str, maybe: Seen) -> usize {
        let now = self.now();
        let event = Event { client: self.id, asked, called: now, returned: now, seen: maybe };
        let mut registers = self.shared.registers.borrow_mut();
        let history = registers.entry(slot.clone()).or_default();
        history.push(event);
        history.len() - 1
    }

    /// How it ended; `None`: unknown.
    pub(super) fn noted(&self, slot: &Slot, event: usize, seen: Option<Seen>) {
        let Some(seen) = seen else { return };
        let mut registers = self.shared.registers.borrow_mut();
        if let Some(event) = registers.get_mut(slot).and_then(|history| history.get_mut(event)) {
            event.returned = self.now();
            event.seen = seen;
        }
    }

    /// The object of a contended name. A client that caches names for a while may see an earlier one.
    fn saw(&self, slot: &Slot, called: u64, seen: Option<Seen>) {
        let Some(seen) = seen else { return };
        let believed = matches!(seen, Seen::Found(_)).then_some(self.shared.cache.as_nanos() as u64);
        let called = called.saturating_sub(believed.unwrap_or(0));
        let event = Event { client: self.id, asked: "lookup", called, returned: self.now(), seen };
        self.shared.registers.borrow_mut().entry(slot.clone()).or_default().push(event);
    }

    pub(super) async fn hot_file(&mut self) {
        let slot = (self.directory().0, self.hot_name());
        let (dir, leaf) = (Handle(slot.0), name(&slot.1));
        match self.rng.below(6) {
            0..2 => self.hot_create(&slot, dir, &leaf).await,
            2 => self.hot_open(&slot, dir, &leaf).await,
            3 => self.hot_unlink(&slot, dir, &leaf).await,
            4 => self.hot_path(&slot).await,
            _ => {
                self.look(&slot).await;
            }
        }
    }

    /// Of several exclusive creates one wins.
    async fn hot_create(&self, slot: &Slot, dir: Handle, leaf: &Name) {
        let event = self.note(slot, "create", Seen::MaybeMade);
        let made = self.client.create(dir, leaf, OWNER, true, Rights::WRITE, None);
        let words = format!("create {slot:?} exclusively");
        let seen = match self.run("create", &words, &[Status::Exists], made).await {
            End::Done((attr, ..)) => Some(Seen::Made(attr.handle.0)),
            End::Refused(Status::Exists) => Some(Seen::Occupied),
            End::Refused(_) => Some(Seen::Nothing),
            End::Unknown(_) => None,
        };
        self.noted(slot, event, seen);
    }

    /// Open or make: the result shows which.
    async fn hot_open(&self, slot: &Slot, dir: Handle, leaf: &Name) {
        let event = self.note(slot, "open", Seen::MaybeMade);
        let made = self.client.create(dir, leaf, OWNER, false, Rights::WRITE, None);
        let words = format!("open or create {slot:?}");
        let seen = match self.run("create", &words, &[], made).await {
            End::Done((attr, true, _)) => Some(Seen::Made(attr.handle.0)),
            End::Done((attr, false, _)) => Some(Seen::Found(attr.handle.0)),
            End::Refused(_) => Some(Seen::Nothing),
            End::Unknown(error) => {
                if [Status::NotFound, Status::Stale, Status::Exists].contains(&error.status) {
                    self.wrong(&words, error.status);
                }
                None
            }
        };
        self.noted(slot, event, seen);
    }

    /// By path: a walk may use a cached negative entry, an open never does.
    async fn hot_path(&mut self, slot: &Slot) {
        let Some(path) = self.path_of(slot) else { return };
        let (called, client) = (self.now(), self.client.clone());
        if self.rng.below(2) == 0 {
            let walked = client.walk(path.as_bytes(), false);
            let seen = match self.run("walk", &format!("walk {path}"), &[Status::NotFound], walked).await {
                End::Done(attr) => Some(Seen::Found(attr.handle.0)),
                End::Refused(_) if self.shared.cache.is_zero() => Some(Seen::Missing),
                End::Refused(_) | End::Unknown(_) => None,
            };
            return self.saw(slot, called, seen);
        }
        let opened = client.open_at(path.as_bytes(), Rights::READ);
        let seen = match self.run("open", &format!("open {path}"), &[Status::NotFound], opened).await {
            End::Done(file) => Some(Seen::Found(file.handle().0)),
            End::Refused(Status::NotFound) => Some(Seen::Missing),
            // Its object is gone meanwhile.
            End::Refused(_) | End::Unknown(_) => None,
        };
        self.saw(slot, called, seen);
    }

    async fn hot_unlink(&self, slot: &Slot, dir: Handle, leaf: &Name) {
        let event = self.note(slot, "unlink", Seen::MaybeRemoved);
        let removed = self.client.unlink(dir, leaf);
        let words = format!("unlink {slot:?}");
        let seen = match self.run("unlink", &words, &[Status::NotFound], removed).await {
            End::Done(()) => Some(Seen::Removed),
            End::Refused(Status::NotFound) => Some(Seen::Missing),
            End::Refused(_) => Some(Seen::Nothing),
            End::Unknown(_) => None,
        };
        self.noted(slot, event, seen);
    }

    async fn look(&self, slot: &Slot) -> Option<Seen> {
        let (dir, leaf, called) = (Handle(slot.0), name(&slot.1), self.now());
        let found = self.client.lookup(dir, &leaf);
        let seen = match self.run("lookup", &format!("look up {slot:?}"), &[Status::NotFound], found).await {
            End::Done(attr) => Some(Seen::Found(attr.handle.0)),
            End::Refused(_) => Some(Seen::Missing),
            End::Unknown(_) => None,
        };
        self.saw(slot, called, seen);
        seen
    }

    pub(super) async fn hot_directory(&mut self) {
        let slot = (self.directory().0, format!("sub{}", self.rng.below(HOT_DIRS)));
        match self.rng.below(4) {
            0 => self.hot_mkdir(&slot).await,
            1 => self.hot_rmdir(&slot).await,
            _ => {
                if let Some(Seen::Found(sub)) = self.look(&slot).await {
                    self.create_in(Handle(sub), true).await;
                }
            }
        }
    }

    async fn hot_mkdir(&self, slot: &Slot) {
        let event = self.note(slot, "mkdir", Seen::MaybeMade);
        let leaf = name(&slot.1);
        let made = self.client.mkdir(Handle(slot.0), &leaf, OWNER);
        let seen = match self.run("mkdir", &format!("mkdir {slot:?}"), &[Status::Exists], made).await {
            End::Done(attr) => Some(Seen::Made(attr.handle.0)),
            End::Refused(Status::Exists) => Some(Seen::Occupied),
            End::Refused(_) => Some(Seen::Nothing),
            End::Unknown(_) => None,
        };
        self.noted(slot, event, seen);
    }

    /// A directory with an entry stays; one that was removed gets none.
    async fn hot_rmdir(&self, slot: &Slot) {
        let event = self.note(slot, "rmdir", Seen::MaybeRemoved);
        let leaf = name(&slot.1);
        let refusals = [Status::NotFound, Status::NotEmpty];
        let removed = self.client.rmdir(Handle(slot.0), &leaf);
        let seen = match self.run("rmdir", &format!("rmdir {slot:?}"), &refusals, removed).await {
            End::Done(()) => Some(Seen::Removed),
            End::Refused(Status::NotEmpty) => Some(Seen::Occupied),
            End::Refused(Status::NotFound) => Some(Seen::Missing),
            End::Refused(_) => Some(Seen::Nothing),
            End::Unknown(_) => None,
        };
        self.noted(slot, event, seen);
    }
}
