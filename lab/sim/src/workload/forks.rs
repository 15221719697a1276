//! Forked files. Each client has several *lanes* (tasks that work at the same time); one further lane works
//! on forks alone.
//!
//! ```text
//!   shared files:  /dir0/forked0 ── subfiles 0, 1, …   stay; all clients make, use and delete forks in them
//!   own files:     /dir2/c3.20-7 ── subfiles 0, 1, …   one lane makes, renames and removes these files
//! ```
//! A fork is a name and an object of the ledger as a file is, so all families of operations that stay
//! within a directory use the same functions. There are two differences: all bytes of a fork are on the
//! server of its subfile, and a name does not leave its subfile.
//!
//! **A seed draws forks or not ([`are_drawn`]), and the other lanes draw the same in both cases.** So the
//! runs of seeds without forks are unchanged.

mod remove;

use super::names::{NO_REPLACE, REPLACE};
use super::{End, LANE, OWNER, Worker, name};
use crate::ledger::{KnownObject, ObjectId, Slot};
use shoal_client::{Error, ForkedFile, RenameFlags};
use shoal_proto::{Attr, Dist, Durability, Handle, Kind, Roles, ServerId, Status, Switches};

/// The lane of forks.
pub(crate) const FORKS_LANE: u16 = 20;

const GONE: [Status; 2] = [Status::Stale, Status::NotFound];
/// Subfiles of a forked file, at most.
const SUBFILES_MAX: u64 = 8;
/// Own forked files of a lane, at most.
const OWN_MAX: usize = 3;

/// Operations on forks and forked files.
#[derive(Clone, Copy)]
enum Act {
    Create,
    Delete,
    Rename,
    Write,
    Append,
    Truncate,
    Allocate,
    Sync,
    Read,
    Stat,
    Gone,
    Attributes,
    Contended,
    Held,
    Descriptors,
    InUse,
    List,
    Offered,
    Refused,
    MakeFile,
    RenameFile,
    RemoveFile,
}

/// Each of them and how often it is drawn.
const ACTS: [(Act, u64); 22] = [
    (Act::Create, 14),
    (Act::Delete, 6),
    (Act::Rename, 5),
    (Act::Write, 12),
    (Act::Append, 4),
    (Act::Truncate, 3),
    (Act::Allocate, 5),
    (Act::Sync, 5),
    (Act::Read, 10),
    (Act::Stat, 3),
    (Act::Gone, 2),
    (Act::Attributes, 2),
    (Act::Contended, 9),
    (Act::Held, 4),
    (Act::Descriptors, 2),
    (Act::List, 2),
    (Act::Offered, 4),
    (Act::Refused, 3),
    (Act::MakeFile, 7),
    (Act::RenameFile, 2),
    (Act::RemoveFile, 5),
    (Act::InUse, 3),
];

/// Whether a seed's run has forked files: every fifth, where its techniques allow them.
pub(crate) fn are_drawn(seed: u64, forced: Option<bool>, switches: Switches) -> bool {
    forced.unwrap_or(seed % 5 == 4) && switches.stuffing && switches.compound
}

/// A forked file, its name, and its subfiles in their order.
#[derive(Clone)]
pub(crate) struct Forked {
    pub slot: Slot,
    pub object: ObjectId,
    pub subfiles: Vec<Handle>,
}

impl Worker {
    /// Whether this is a lane of forks.
    pub(super) fn is_of_forks(&self) -> bool {
        self.id / LANE == FORKS_LANE
    }

    pub(super) async fn one_of_forks(&mut self) {
        let mut at = self.rng.below(ACTS.iter().map(|(_, weight)| weight).sum());
        let drawn = ACTS.iter().find(|(_, weight)| {
            let is_it = at < *weight;
            at = at.saturating_sub(*weight);
            is_it
        });
        let Some(&(act, _)) = drawn else { return };
        if matches!(act, Act::Contended) {
            self.ask_for(Durability::Usual);
        }
        match act {
            Act::Create => self.create_fork().await,
            Act::Delete => self.delete_fork().await,
            Act::Rename => self.rename_fork().await,
            Act::Write => self.write().await,
            Act::Append => self.append().await,
            Act::Truncate => self.truncate().await,
            Act::Allocate => self.allocate().await,
            Act::Sync => self.sync().await,
            Act::Read => self.read().await,
            Act::Stat => self.stat().await,
            Act::Gone => self.look_up_gone().await,
            Act::Attributes => self.attributes().await,
            Act::Contended => self.hot_file().await,
            Act::Held => self.remove_held().await,
            Act::Descriptors => self.descriptors().await,
            Act::InUse => self.in_use().await,
            Act::List => self.list().await,
            Act::Offered => self.offered().await,
            Act::Refused => self.refused().await,
            Act::MakeFile => self.make_forked().await,
            Act::RenameFile => self.rename_forked().await,
            Act::RemoveFile => self.remove_forked().await,
        }
    }

    /// A subfile that stays.
    pub(super) fn subfile(&mut self) -> Handle {
        let files = &self.shared.scene.forked;
        let file = &files[self.rng.below(files.len() as u64) as usize];
        file.subfiles[self.rng.below(file.subfiles.len() as u64) as usize]
    }

    /// Own forked files, as they are known: of the lane's earlier lives, too.
    fn own_forked(&self) -> Vec<Forked> {
        self.shared.forked.borrow().get(&self.id).cloned().unwrap_or_default()
    }

    async fn create_fork(&mut self) {
        let own: Vec<Handle> = self.own_forked().into_iter().flat_map(|file| file.subfiles).collect();
        match own.is_empty() || self.rng.below(3) > 0 {
            true => {
                let dir = self.subfile();
                self.create_in(dir, false).await;
            }
            // A fault may have taken the file.
            false => {
                let dir = own[self.rng.below(own.len() as u64) as usize];
                self.create_in(dir, true).await;
            }
        }
    }

    async fn delete_fork(&mut self) {
        let Some((slot, object)) = self.own(is_fork) else { return };
        self.unlink_name(&slot, object).await;
    }

    /// To another name of its subfile, or over another own fork of it.
    async fn rename_fork(&mut self) {
        let Some((from, object)) = self.own(is_fork) else { return };
        let live = self.shared.ledger.borrow().live(self.id);
        let beside: Vec<(Slot, ObjectId)> =
            live.into_iter().filter(|(slot, other)| slot.0 == from.0 && *other != object).collect();
        let other = if self.rng.below(2) == 0 { self.rng.pick(&beside).cloned() } else { None };
        let (to, replaced) = match other {
            Some((to, replaced)) if self.with_object(replaced, |object| is_fork(object)) => {
                (to, Some(replaced))
            }
            _ => ((from.0, self.fresh_name()), None),
        };
        let flags = if replaced.is_none() && self.rng.below(2) == 0 { NO_REPLACE } else { REPLACE };
        let changes = vec![(from.clone(), None), (to.clone(), Some(object))];
        let is_done = self.rename_own(&from, &to, flags, changes, &[]).await;
        if let Some(replaced) = replaced.filter(|_| is_done) {
            self.lost_name(replaced);
        }
    }

    /// A new forked file with all its subfiles, each on its server; sometimes in place of an empty directory.
    async fn make_forked(&mut self) {
        if self.own_forked().len() >= OWN_MAX {
            return;
        }
        let dirs = self.shared.scene.directories.clone();
        let dir = dirs[self.rng.below(dirs.len() as u64) as usize];
        let slot = (dir.0, self.fresh_name());
        let drawn = self.draw_forked();
        let replace = self.rng.below(4) == 0 && self.make_directory(&slot).await;
        let forked = ForkedFile { replace, ..drawn };
        let object = self.new_object(Kind::Directory);
        let (words, stamp) = (format!("mkforked {slot:?} {forked:?}"), self.shared.now());
        let (client, leaf) = (self.client.clone(), name(&slot.1));
        let made = client.mkforked(dir, &leaf, OWNER, &forked);
        let changes = vec![(slot.clone(), Some(object))];
        // The directory that it replaces may be lost.
        let refusals = [Status::NotFound, Status::Stale];
        match self.change("mkforked", &words, &refusals, changes, made).await {
            End::Done(attr) => {
                self.made(object, attr.handle, &stamp);
                self.with_object(object, |object| object.contents.made(attr.handle.server().0, 0, 0));
                self.check_forked(&words, &attr, &forked);
                self.look_at_subfiles(Forked { slot, object, subfiles: Vec::new() }, &attr, &forked).await;
            }
            End::Refused(status) => self.wrong_name(&words, &[&slot], status),
            End::Unknown(_) => {}
        }
    }

    fn draw_forked(&mut self) -> ForkedFile {
        let subfiles = 1 + self.rng.below(SUBFILES_MAX);
        let able: Vec<ServerId> = self.client.map().with_roles(Roles::METADATA | Roles::DATA).collect();
        let named = if self.rng.below(2) == 0 { 0 } else { self.rng.below(subfiles + 1) };
        let servers = (0..named).filter_map(|_| self.rng.pick(&able).copied()).collect();
        ForkedFile { subfiles: subfiles as u16, servers, replace: false }
    }

    async fn make_directory(&mut self, slot: &Slot) -> bool {
        let (object, stamp) = (self.new_object(Kind::Directory), self.shared.now());
        let (client, leaf) = (self.client.clone(), name(&slot.1));
        let (words, made) = (format!("mkdir {slot:?}"), client.mkdir(Handle(slot.0), &leaf, OWNER));
        match self.change("mkdir", &words, &[], vec![(slot.clone(), Some(object))], made).await {
            End::Done(attr) => {
                self.made(object, attr.handle, &stamp);
                true
            }
            End::Refused(_) | End::Unknown(_) => false,
        }
    }

    fn check_forked(&self, words: &str, attr: &Attr, forked: &ForkedFile) {
        let subfiles = forked.subfiles;
        if attr.template.dist != (Dist::Forked { subfiles }) || attr.nlink != 2 + u32::from(subfiles) {
            let found = (attr.template.dist, attr.nlink);
            self.violation(
                words,
                format!("expected {subfiles} subfiles and a link for each, found {found:?}"),
            );
        }
    }

    /// All subfiles of a new file are there, each on its server.
    async fn look_at_subfiles(&mut self, mut file: Forked, made: &Attr, forked: &ForkedFile) {
        for index in 0..forked.subfiles {
            let words = format!("look up subfile {index} of {}", made.handle);
            let (client, leaf) = (self.client.clone(), name(&index.to_string()));
            match self.run("lookup", &words, &GONE, client.lookup(made.handle, &leaf)).await {
                End::Done(subfile) => {
                    self.check_subfile(&words, &subfile, made.handle, place(forked, index));
                    file.subfiles.push(subfile.handle);
                }
                End::Refused(status) => return self.wrong_of(&words, file.object, status),
                End::Unknown(_) => return,
            }
        }
        let subfiles = file.subfiles.iter().map(|subfile| subfile.0);
        self.shared.ledger.borrow_mut().unsplit.extend(subfiles);
        self.shared.forked.borrow_mut().entry(self.id).or_default().push(file);
    }

    fn check_subfile(&self, words: &str, found: &Attr, file: Handle, at: Option<ServerId>) {
        let is_there = at.is_none_or(|server| found.handle.server() == server);
        if !is_there || found.template.dist != Dist::Fork || found.parent != file {
            let (found, dist, parent) = (found.handle, found.template.dist, found.parent);
            self.violation(
                words,
                format!("expected a subfile of {file} on {at:?}, found {found}, {dist:?} in {parent}"),
            );
        }
    }

    fn pick_own_forked(&mut self) -> Option<Forked> {
        let own = self.own_forked();
        let file = self.rng.pick(&own).cloned()?;
        let live = self.shared.ledger.borrow().live(self.id);
        live.contains(&(file.slot.clone(), file.object)).then_some(file)
    }

    async fn rename_forked(&mut self) {
        let Some(file) = self.pick_own_forked() else { return };
        let dirs = self.shared.scene.directories.clone();
        let to = (dirs[self.rng.below(dirs.len() as u64) as usize].0, self.fresh_name());
        let changes = vec![(file.slot.clone(), None), (to.clone(), Some(file.object))];
        if self.rename_own(&file.slot, &to, REPLACE, changes, &[]).await {
            let mut forked = self.shared.forked.borrow_mut();
            let mut own = forked.entry(self.id).or_default().iter_mut();
            if let Some(known) = own.find(|known| known.object == file.object) {
                known.slot = to;
            }
        }
    }

    /// Operations that a forked file does not allow.
    async fn refused(&mut self) {
        let files = self.shared.scene.forked.clone();
        let Some(file) = self.rng.pick(&files) else { return };
        let (client, leaf) = (self.client.clone(), name(&self.fresh_name()));
        let (handle, subfile) = (self.handle(file.object), file.subfiles[0]);
        let beside = self.shared.scene.directories[0];
        let none = RenameFlags::default();
        match self.rng.below(5) {
            0 => {
                self.refuses("mkdir in a subfile", Status::NotPermitted, client.mkdir(subfile, &leaf, OWNER))
                    .await
            }
            1 => {
                self.refuses(
                    "mkdir in a forked file",
                    Status::NotPermitted,
                    client.mkdir(handle, &leaf, OWNER),
                )
                .await
            }
            2 => {
                let zero = name("0");
                let moved = client.rename(handle, &zero, beside, &leaf, none);
                self.refuses("rename of a subfile", Status::NotPermitted, moved).await;
            }
            3 => {
                let Some((slot, object)) = self.own(is_fork) else { return };
                let fork = name(&slot.1);
                let moved = client.rename(Handle(slot.0), &fork, beside, &leaf, none);
                self.refuses_of(object, "rename of a fork out of its subfile", moved).await;
            }
            _ => {
                let Some((_, object)) = self.own(is_fork) else { return };
                let linked = client.link(self.handle(object), beside, &leaf);
                self.refuses_of(object, "link of a fork", linked).await;
            }
        }
    }

    async fn refuses_of<T>(
        &self,
        object: ObjectId,
        words: &str,
        asked: impl Future<Output = Result<T, Error>>,
    ) {
        let words = format!("{words}: {}", self.handle(object));
        self.refuses(&words, Status::CrossDevice, asked).await;
    }

    async fn refuses<T>(&self, words: &str, status: Status, asked: impl Future<Output = Result<T, Error>>) {
        let refusals = [status, Status::Stale, Status::NotFound];
        if let End::Done(_) = self.run("refused", words, &refusals, asked).await {
            self.violation(words, format!("expected {status:?}, found it done"));
        }
    }
}

fn is_fork(object: &KnownObject) -> bool {
    object.kind == Kind::File && !object.is_public
}

/// The server of a subfile, where the servers are named; they have turns.
pub(super) fn place(forked: &ForkedFile, index: u16) -> Option<ServerId> {
    let count = forked.servers.len();
    (count > 0).then(|| forked.servers[usize::from(index) % count])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forks_are_drawn_by_some_seeds_where_the_techniques_allow_them() {
        let drawn = |switches| (0..100).filter(|seed| are_drawn(*seed, None, switches)).count();
        assert_eq!((drawn(Switches::OURS), drawn(Switches::BASELINE)), (20, 0));
        assert!(are_drawn(1, Some(true), Switches::OURS) && !are_drawn(4, Some(false), Switches::OURS));
        assert!(!are_drawn(1, Some(true), Switches::BASELINE));
    }
}
