//! What each client does: random operations on names of its own and on contended ones, each held against the ledger at once.

use crate::ledger::{FileId, Ledger, Slot};
use crate::register::{Event, Seen};
use crate::rng::Rng;
use shoal_client::{Client, Error, RenameFlags};
use shoal_env::Env;
use shoal_proto::op::Owner;
use shoal_proto::{Handle, Name, Rights, Status};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// Who makes everything.
pub(crate) const OWNER: Owner = Owner { mode: 0o755, uid: 1000, gid: 100 };
/// Directories all clients share; they stay.
pub(crate) const DIRECTORIES: usize = 4;
/// Contended names of files in each of them.
const HOT_FILES: u64 = 2;
/// Contended names of directories in each of them.
const HOT_DIRS: u64 = 1;
/// Directories that are moved about, into each other too.
pub(crate) const WANDERERS: usize = 5;
/// Beyond an operation's own timeout: what it may take to notice.
const LATE: Duration = Duration::from_secs(2);

/// What all clients of a run share.
pub(crate) struct Shared {
    /// Tells the timeline.
    pub teller: Env,
    pub directories: Vec<Handle>,
    pub wanderers: Vec<Handle>,
    pub timeout: Duration,
    /// Power cuts begun.
    pub cuts: Cell<u64>,
    pub done: Cell<usize>,
    pub totals: RefCell<Totals>,
    pub registers: RefCell<BTreeMap<Slot, Vec<Event>>>,
    pub ledgers: RefCell<Vec<Ledger>>,
    pub violations: RefCell<Vec<String>>,
}

/// Counts of a run.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(crate) struct Totals {
    pub operations: u64,
    pub acknowledged: u64,
    pub refused: u64,
    pub unknown: u64,
}

impl Shared {
    fn violation(&self, words: String) {
        self.teller.note(|| format!("VIOLATION: {words}"));
        self.violations.borrow_mut().push(words);
    }
}

/// How an operation ended, for the ledger.
enum End<T> {
    Done(T),
    /// For certain nothing was changed.
    Refused(Status),
    Unknown(Error),
}

/// One client at work.
pub(crate) struct Worker {
    pub id: u16,
    pub env: Env,
    pub client: Client,
    pub shared: Rc<Shared>,
    pub rng: Rng,
    pub ledger: Ledger,
    pub names: u64,
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("the workload's names are valid")
}

impl Worker {
    /// Do so many operations.
    pub async fn work(mut self, operations: u64) {
        for _ in 0..operations {
            let pause = self.rng.below(4_000);
            self.env.sleep(Duration::from_micros(pause)).await;
            self.one().await;
        }
        self.shared.ledgers.borrow_mut().push(self.ledger);
        self.shared.done.set(self.shared.done.get() + 1);
    }

    async fn one(&mut self) {
        match self.rng.below(100) {
            0..18 => self.create().await,
            18..28 => self.overwrite(false).await,
            28..38 => self.overwrite(true).await,
            38..48 => self.read().await,
            48..56 => self.unlink().await,
            56..66 => self.rename().await,
            66..70 => self.lookup_gone().await,
            70..82 => self.hot_file().await,
            82..94 => self.hot_directory().await,
            _ => self.wander().await,
        }
    }

    /// Await an operation; see that it ended in time; tell how. `refusals` are the statuses that say for certain that nothing
    /// was changed.
    async fn run<T>(
        &self,
        words: &str,
        refusals: &[Status],
        operation: impl Future<Output = Result<T, Error>>,
    ) -> End<T> {
        let called = self.env.now();
        self.env.note(|| format!("{words} …"));
        let ended = operation.await;
        self.env.note(|| match &ended {
            Ok(_) => format!("{words}: done"),
            Err(error) => format!("{words}: {error}"),
        });
        let took = self.env.now().since(called);
        if took > self.shared.timeout + LATE {
            self.shared.violation(format!("client {}: {words} took {took:?}", self.id));
        }
        let mut totals = self.shared.totals.borrow_mut();
        totals.operations += 1;
        match ended {
            Ok(value) => {
                totals.acknowledged += 1;
                End::Done(value)
            }
            Err(error) if refusals.contains(&error.status) => {
                totals.refused += 1;
                End::Refused(error.status)
            }
            Err(error) => {
                totals.unknown += 1;
                End::Unknown(error)
            }
        }
    }

    fn wrong(&self, words: &str, status: Status) {
        let now = self.env.now().0;
        self.shared.violation(format!("client {} at {now} ns: {words}: {status:?}", self.id));
    }

    fn directory(&mut self) -> Handle {
        let directories = &self.shared.directories;
        directories[self.rng.below(directories.len() as u64) as usize]
    }

    fn fresh_name(&mut self) -> String {
        self.names += 1;
        format!("c{}-{}", self.id, self.names)
    }

    fn live(&mut self) -> Option<(Slot, FileId)> {
        let slots: Vec<(&Slot, &FileId)> = self.ledger.live.iter().collect();
        self.rng.pick(&slots).map(|(slot, file)| ((*slot).clone(), **file))
    }

    async fn create(&mut self) {
        let dir = self.directory();
        self.create_in(dir, false).await;
    }

    /// A new file of its own, written. The directory may vanish meanwhile, if it is a contended one.
    async fn create_in(&mut self, dir: Handle, may_vanish: bool) {
        let len = [100, 1500, 5_000, 40_000, 200_000][self.rng.below(5) as usize];
        let slot = (dir.0, self.fresh_name());
        let file = self.ledger.file(len, self.rng.next_u64());
        let (version, content) = self.ledger.files[file].next_version();
        let cuts = self.shared.cuts.get();
        let words = format!("create {slot:?}");
        let leaf = name(&slot.1);
        let made = self.client.create_write(dir, &leaf, OWNER, content, None);
        match self.run(&words, &[], made).await {
            End::Done(attr) => {
                self.ledger.files[file].handle = attr.handle.0;
                self.ledger.files[file].acknowledged(version, cuts);
                self.ledger.made(slot, file);
            }
            End::Refused(status) => self.wrong(&words, status),
            End::Unknown(error) => {
                let vanished = [Status::Stale, Status::NotFound].contains(&error.status);
                if vanished && !may_vanish || error.status == Status::Exists {
                    self.wrong(&words, error.status);
                }
                self.ledger.unknown(words, vec![(slot, None, Some(file))]);
            }
        }
    }

    /// Write all of an own file anew, and sync it or not.
    async fn overwrite(&mut self, sync: bool) {
        let Some((slot, file)) = self.live() else { return };
        let object = Handle(self.ledger.files[file].handle);
        let (version, content) = self.ledger.files[file].next_version();
        let cuts = self.shared.cuts.get();
        let words = format!("write {slot:?}, {object}");
        let (client, written) = (self.client.clone(), Cell::new(false));
        let both = Rights::READ | Rights::WRITE;
        let write = async {
            let opened = client.open(object, both).await?;
            opened.write(0, content).await?;
            written.set(true);
            if sync {
                opened.fsync().await?;
            }
            opened.close().await
        };
        let ended = self.run(&words, &[Status::Stale, Status::NotFound], write).await;
        if written.get() {
            self.ledger.files[file].acknowledged(version, cuts);
        }
        match ended {
            End::Done(()) if sync => self.ledger.files[file].synced(version),
            End::Refused(status) => self.wrong(&words, status),
            _ => {}
        }
    }

    async fn read(&mut self) {
        let Some((slot, file)) = self.live() else { return };
        let (dir, leaf) = (Handle(slot.0), name(&slot.1));
        let words = format!("read {slot:?}");
        let client = self.client.clone();
        let read = client.read_small(dir, &leaf, 1 << 20);
        match self.run(&words, &[Status::Stale, Status::NotFound], read).await {
            End::Done((attr, content)) => {
                let facts = &self.ledger.files[file];
                let content = content.unwrap_or_default();
                if attr.handle.0 != facts.handle {
                    self.shared.violation(format!("{words}: {} instead of {:#x}", attr.handle, facts.handle));
                } else if let Err(why) = facts.judge(&content, self.shared.cuts.get()) {
                    self.shared.violation(format!("{words} at {} ns: {why}", self.env.now().0));
                }
            }
            End::Refused(status) => self.wrong(&words, status),
            End::Unknown(_) => {}
        }
    }

    async fn unlink(&mut self) {
        let Some((slot, file)) = self.live() else { return };
        let words = format!("unlink {slot:?}");
        let (client, leaf) = (self.client.clone(), name(&slot.1));
        let unlink = client.unlink(Handle(slot.0), &leaf);
        match self.run(&words, &[Status::Stale, Status::NotFound], unlink).await {
            End::Done(()) => drop(self.ledger.removed(&slot)),
            End::Refused(status) => self.wrong(&words, status),
            End::Unknown(_) => self.ledger.unknown(words, vec![(slot, Some(file), None)]),
        }
    }

    /// Move an own file to another own name, or onto a contended one.
    async fn rename(&mut self) {
        let Some((from, file)) = self.live() else { return };
        let dir = self.directory();
        let onto_hot = self.rng.below(3) == 0;
        let leaf = if onto_hot { self.hot_name() } else { self.fresh_name() };
        let to = (dir.0, leaf);
        let words = format!("rename {from:?} {to:?}");
        let client = self.client.clone();
        let (from_name, to_name) = (name(&from.1), name(&to.1));
        let flags = RenameFlags::default();
        let rename = client.rename(Handle(from.0), &from_name, dir, &to_name, flags);
        let called = self.env.now().0;
        let ended = self.run(&words, &[Status::Stale, Status::NotFound], rename).await;
        let handle = self.ledger.files[file].handle;
        let seen = match ended {
            End::Refused(status) => return self.wrong(&words, status),
            End::Done(()) => {
                self.ledger.removed(&from);
                if !onto_hot {
                    self.ledger.made(to.clone(), file);
                }
                Seen::Put(handle)
            }
            End::Unknown(_) => {
                let mut slots = vec![(from, Some(file), None)];
                if !onto_hot {
                    slots.push((to.clone(), None, Some(file)));
                }
                self.ledger.unknown(words, slots);
                Seen::MaybePut(handle)
            }
        };
        if onto_hot {
            self.note(to, "rename", called, Some(seen));
        }
    }

    async fn lookup_gone(&mut self) {
        let Some(slot) = self.rng.pick(&self.ledger.gone).cloned() else { return };
        let words = format!("look up removed {slot:?}");
        let (client, leaf) = (self.client.clone(), name(&slot.1));
        let lookup = client.lookup(Handle(slot.0), &leaf);
        if let End::Done(attr) = self.run(&words, &[Status::NotFound, Status::Stale], lookup).await {
            self.shared.violation(format!("{words}: it leads to {}", attr.handle));
        }
    }

    fn hot_name(&mut self) -> String {
        format!("hot{}", self.rng.below(HOT_FILES))
    }

    fn note(&self, slot: Slot, asked: &'static str, called: u64, seen: Option<Seen>) {
        let Some(seen) = seen else { return };
        let event = Event { client: self.id, asked, called, returned: self.env.now().0, seen };
        self.shared.registers.borrow_mut().entry(slot).or_default().push(event);
    }

    async fn hot_file(&mut self) {
        let dir = self.directory();
        let leaf = self.hot_name();
        let (slot, leaf) = ((dir.0, leaf.clone()), name(&leaf));
        let (client, called) = (self.client.clone(), self.env.now().0);
        let which = self.rng.below(3);
        let seen = match which {
            0 => {
                let made = client.create(dir, &leaf, OWNER, true, Rights::WRITE, None);
                match self.run("create a contended name", &[Status::Exists], made).await {
                    End::Done((attr, ..)) => Some(Seen::Made(attr.handle.0)),
                    End::Refused(_) => Some(Seen::Occupied),
                    End::Unknown(_) => Some(Seen::MaybeMade),
                }
            }
            1 => {
                let removed = client.unlink(dir, &leaf);
                match self.run("unlink a contended name", &[Status::NotFound], removed).await {
                    End::Done(()) => Some(Seen::Removed),
                    End::Refused(_) => Some(Seen::Missing),
                    End::Unknown(_) => Some(Seen::MaybeRemoved),
                }
            }
            _ => self.look(dir, &leaf).await,
        };
        self.note(slot, ["create", "unlink", "lookup"][which as usize], called, seen);
    }

    async fn look(&self, dir: Handle, leaf: &Name) -> Option<Seen> {
        let found = self.client.lookup(dir, leaf);
        match self.run("look up a contended name", &[Status::NotFound], found).await {
            End::Done(attr) => Some(Seen::Found(attr.handle.0)),
            End::Refused(_) => Some(Seen::Missing),
            End::Unknown(_) => None,
        }
    }

    async fn hot_directory(&mut self) {
        let dir = self.directory();
        let leaf = format!("sub{}", self.rng.below(HOT_DIRS));
        let (slot, leaf) = ((dir.0, leaf.clone()), name(&leaf));
        let (client, called) = (self.client.clone(), self.env.now().0);
        match self.rng.below(4) {
            0 => {
                let made = client.mkdir(dir, &leaf, OWNER);
                let seen = match self.run("mkdir of a contended name", &[Status::Exists], made).await {
                    End::Done(attr) => Seen::Made(attr.handle.0),
                    End::Refused(_) => Seen::Occupied,
                    End::Unknown(_) => Seen::MaybeMade,
                };
                self.note(slot, "mkdir", called, Some(seen));
            }
            1 => {
                let refusals = [Status::NotFound, Status::NotEmpty];
                let removed = client.rmdir(dir, &leaf);
                let seen = match self.run("rmdir of a contended name", &refusals, removed).await {
                    End::Done(()) => Seen::Removed,
                    End::Refused(Status::NotEmpty) => Seen::Occupied,
                    End::Refused(_) => Seen::Missing,
                    End::Unknown(_) => Seen::MaybeRemoved,
                };
                self.note(slot, "rmdir", called, Some(seen));
            }
            _ => {
                let seen = self.look(dir, &leaf).await;
                self.note(slot, "lookup", called, seen);
                if let Some(Seen::Found(sub)) = seen {
                    self.create_in(Handle(sub), true).await;
                }
            }
        }
    }

    /// Move a wandering directory from where it is to some other place: into another, into one of its own, or nowhere.
    async fn wander(&mut self) {
        let which = self.rng.below(WANDERERS as u64) as usize;
        let (object, leaf) = (self.shared.wanderers[which], name(&format!("wander{which}")));
        let to = match self.rng.below(4) {
            0 => self.directory(),
            _ => self.shared.wanderers[self.rng.below(WANDERERS as u64) as usize],
        };
        let client = self.client.clone();
        let End::Done(attr) = self.run("where is a wandering directory", &[], client.getattr(object)).await
        else {
            return;
        };
        let flags = RenameFlags::default();
        let moved = client.rename(attr.parent, &leaf, to, &leaf, flags);
        let refusals = [Status::NotFound, Status::Invalid, Status::NotEmpty];
        drop(self.run("move a wandering directory", &refusals, moved).await);
    }
}
