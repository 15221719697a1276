//! Inodes as this client uses them: the location of a file's data, and the changes that are not known to be
//! durable.
//!
//! A change of the size or of attributes counts as a write of the file, and a change of an entry as a write
//! of its directory. A change that a reply already reports as durable ([`Loss::is_nothing`]) is not noted.
//!
//! All open files of one inode in a client share one [`Inode`]. So an fsync through any of them covers the
//! writes through all of them, and it goes to every server that holds some of their bytes.
//!
//! ```text
//!   open file ─┐                 ┌─ shape: generation, layout
//!   open file ─┼─▶ Inode ────────┤
//!   open file ─┘                 └─ losses: by server, the loss id of the oldest write without an fsync;
//!                                           the number of losses found, and the number reported
//! ```
//! **An error is reported once to each open file** (as Linux's `errseq_t` does): each loss that is found gets
//! the next number, and each open file remembers the newest number that it has reported. An open file made
//! after the first report of a loss does not report it; one made before does.
//!
//! **The losses of an inode outlive its last close** until an fsync has covered its writes and every loss
//! was reported. At most [`CLOSED_MAX`] closed inodes are remembered for this. For inodes that were closed
//! earlier, only the servers' loss ids are kept (a server's loss id changes when it has lost its memory). A
//! sync of the whole file system ([`Inodes::compare_all`]) then still finds that changes may be lost.

use crate::file::Shape;
use lru::LruCache;
use shoal_env::mutant::{self, Mutant};
use shoal_proto::message::Loss;
use shoal_proto::{Attr, Generation, Handle, Layout, ServerId};
use std::cell::{Ref, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Closed inodes with writes that no fsync covered, remembered at most.
const CLOSED_MAX: usize = 65_536;

/// Writes to one server that no fsync covered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Unsynced {
    server: ServerId,
    /// The id of the changes that would be lost with any of them.
    loss: Loss,
    /// The number of the newest of them.
    newest: u64,
    /// The number of the newest of them that a kill of the server would take.
    newest_unkept: u64,
}

/// An inode's writes that are not known to be durable.
#[derive(Default, Debug)]
pub(crate) struct Losses {
    unsynced: Vec<Unsynced>,
    /// Loss ids requested from servers ahead of an append. Those of writes may say more: a write that asked
    /// to be held in memory only is lost by a kill, an append of the same file is not.
    asked: Vec<(ServerId, Loss)>,
    /// Writes acknowledged so far.
    writes: u64,
    /// The layout that writes were made in which no fsync covered, and the number of the newest of them.
    wrote_in: Option<(Rc<Layout>, u64)>,
    /// Losses found so far.
    found: u64,
    /// The newest of them that an fsync has reported.
    reported: u64,
    /// The newest of them that a sync of the whole file system has reported.
    found_by_all: u64,
}

/// The unsynced writes of a moment, for a sync to compare with.
#[derive(Default, Debug)]
pub(crate) struct Before {
    unsynced: Vec<Unsynced>,
    writes: u64,
}

impl Before {
    fn loss_of(&self, server: ServerId) -> Option<Loss> {
        self.unsynced.iter().find(|unsynced| unsynced.server == server).map(|unsynced| unsynced.loss)
    }
}

impl Losses {
    /// A write was acknowledged by `server`, which named this loss id then.
    fn written(&mut self, server: ServerId, loss: Loss) {
        self.note(server, loss, |known| (known, loss));
    }

    /// A write was acknowledged that `server` did after it had named this loss id.
    fn written_since(&mut self, server: ServerId, loss: Loss) {
        self.note(server, loss, |known| (loss, known));
    }

    /// One write more; `in_order`: of the loss id that is known and its own, the older and the newer.
    fn note(&mut self, server: ServerId, loss: Loss, in_order: impl Fn(Loss) -> (Loss, Loss)) {
        if loss.is_nothing() {
            return;
        }
        self.writes += 1;
        // A request made before a loss tells nothing about writes after it.
        self.asked.retain(|&(of, asked)| of != server || !asked.is_lost(loss));
        let newest = self.writes;
        let unkept = if loss.start == 0 { 0 } else { newest };
        match self.unsynced.iter_mut().find(|unsynced| unsynced.server == server) {
            Some(unsynced) => {
                let (older, newer) = in_order(unsynced.loss);
                let is_lost = older.is_lost(newer);
                self.found += u64::from(is_lost);
                let loss = if is_lost { newer } else { older.and(newer) };
                let newest_unkept = unsynced.newest_unkept.max(unkept);
                *unsynced = Unsynced { server, loss, newest, newest_unkept };
            }
            None => self.unsynced.push(Unsynced { server, loss, newest, newest_unkept: unkept }),
        }
    }

    /// A write was acknowledged that was made in this layout.
    fn written_in(&mut self, layout: &Rc<Layout>) {
        self.writes += 1;
        self.wrote_in = Some((layout.clone(), self.writes));
    }

    /// The file is laid out so now. A layout stays as long as its file, unless a power cut, or in mode
    /// *never* a kill, takes it back: bytes that were written in it are then in no file.
    fn is_laid_out(&mut self, layout: Option<&Layout>) {
        let is_other = |(wrote_in, _): &mut (Rc<Layout>, u64)| {
            layout.is_none_or(|layout| layout.datafiles.0 != wrote_in.datafiles.0)
        };
        if self.wrote_in.take_if(is_other).is_some() {
            self.found += 1;
        }
    }

    /// All datafiles were synced, and the metafile's server knew their generation.
    fn covered_by_fsync(&mut self, before: &Before) {
        self.wrote_in.take_if(|(_, newest)| *newest <= before.writes);
        self.covered(before, |_| true);
    }

    fn before(&self) -> Before {
        Before { unsynced: self.unsynced.clone(), writes: self.writes }
    }

    /// A sync of `server` came back with this loss id.
    fn compare(&mut self, before: &Before, server: ServerId, loss: Loss) {
        if !before.loss_of(server).is_some_and(|known| known.is_lost(loss)) {
            return;
        }
        let unsynced = self.unsynced.iter_mut().find(|unsynced| unsynced.server == server);
        // Another sync, or a later write, may have found the loss already.
        if let Some(unsynced) = unsynced.filter(|unsynced| unsynced.loss.is_lost(loss)) {
            unsynced.loss = Loss { start: if unsynced.loss.start == 0 { 0 } else { loss.start }, ..loss };
            self.found += 1;
        }
    }

    /// Everything written before a sync began is durable on the servers that `is_synced` names, or known to
    /// be lost.
    fn covered(&mut self, before: &Before, is_synced: impl Fn(ServerId) -> bool) {
        self.unsynced.retain(|unsynced| unsynced.newest > before.writes || !is_synced(unsynced.server));
        // A kill loses none of the later writes, if that is kept.
        let is_kept =
            |unsynced: &&mut Unsynced| unsynced.newest_unkept <= before.writes && is_synced(unsynced.server);
        self.unsynced.iter_mut().filter(is_kept).for_each(|unsynced| unsynced.loss.start = 0);
        self.asked.retain(|&(server, _)| !is_synced(server));
    }

    /// The id of the changes that a share of an append, requested now, would be lost with, if that is known.
    fn loss_of(&self, server: ServerId) -> Option<Loss> {
        let asked = self.asked.iter().find(|(of, _)| *of == server).map(|&(_, loss)| loss);
        let written =
            self.unsynced.iter().find(|unsynced| unsynced.server == server).map(|unsynced| unsynced.loss);
        asked.or(written.filter(|loss| loss.start == 0))
    }

    /// A sync of all servers came back with these loss ids.
    fn synced(&mut self, before: &Before, synced: &BTreeMap<ServerId, Loss>) {
        synced.iter().for_each(|(&server, &loss)| self.compare(before, server, loss));
        self.covered(before, |server| synced.contains_key(&server));
    }

    fn report_by_all(&mut self) -> bool {
        let before = std::mem::replace(&mut self.found_by_all, self.found);
        self.found > before
    }

    /// The writes so far, if some of them need a layout.
    fn writes_in(&self) -> Option<u64> {
        self.wrote_in.as_ref().map(|_| self.writes)
    }

    fn is_settled(&self) -> bool {
        self.unsynced.is_empty() && self.wrote_in.is_none() && self.found == self.reported
    }
}

/// An inode that is open in this client.
pub(crate) struct Inode {
    pub(crate) handle: Handle,
    shape: RefCell<Shape>,
    losses: RefCell<Losses>,
}

impl Inode {
    pub(crate) fn shape(&self) -> Shape {
        self.shape.borrow().clone()
    }

    /// Attributes came: they may tell of a newer generation.
    pub(crate) fn learn(&self, attr: &Attr) {
        if attr.generation >= self.shape.borrow().generation {
            self.take(Shape::of(attr));
        }
    }

    fn take(&self, shape: Shape) {
        self.losses.borrow_mut().is_laid_out(shape.layout.as_deref());
        *self.shape.borrow_mut() = shape;
    }

    /// Attributes came that were requested when the shape was `before`. Unless a newer shape came meanwhile
    /// they hold, also with an older generation: a power cut may take a layout back that this client has seen
    /// in a weak sync mode.
    pub(crate) fn learn_since(&self, before: &Shape, attr: &Attr) {
        if self.shape.borrow().generation == before.generation {
            self.take(Shape::of(attr));
        } else {
            self.learn(attr);
        }
    }

    /// The file was laid out.
    pub(crate) fn laid(&self, layout: Layout) {
        let mut shape = self.shape.borrow_mut();
        if layout.generation >= shape.generation {
            self.losses.borrow_mut().is_laid_out(Some(&layout));
            shape.generation = layout.generation;
            shape.layout = Some(Rc::new(layout));
        }
    }

    /// A write was acknowledged that was made in this shape of the file.
    pub(crate) fn written_in(&self, shape: &Shape) {
        if let Some(layout) = &shape.layout {
            self.losses.borrow_mut().written_in(layout);
        }
    }

    /// A write was acknowledged by `server`.
    pub(crate) fn written(&self, server: ServerId, loss: Loss) {
        self.losses.borrow_mut().written(server, loss);
    }

    /// A write was acknowledged that `server` did after it had named this loss id.
    pub(crate) fn written_since(&self, server: ServerId, loss: Loss) {
        self.losses.borrow_mut().written_since(server, loss);
    }

    /// The id of the changes that a share of an append, requested now, would be lost with, if that is known
    /// since the last sync.
    pub(crate) fn loss_of(&self, server: ServerId) -> Option<Loss> {
        self.losses().loss_of(server)
    }

    /// The server was asked for its loss id, for a share of an append.
    pub(crate) fn asked(&self, server: ServerId, loss: Loss) {
        let asked = &mut self.losses.borrow_mut().asked;
        asked.retain(|&(of, _)| of != server);
        asked.push((server, loss));
    }

    /// The writes that a sync that begins now covers.
    pub(crate) fn before(&self) -> Before {
        self.losses().before()
    }

    /// A sync of `server` came back with this loss id.
    pub(crate) fn compare(&self, before: &Before, server: ServerId, loss: Loss) {
        self.losses.borrow_mut().compare(before, server, loss);
    }

    /// All servers were synced.
    pub(crate) fn covered(&self, before: &Before) {
        self.losses.borrow_mut().covered_by_fsync(before);
    }

    /// The losses that count as reported for a new open file: all that were reported through any.
    pub(crate) fn reported(&self) -> u64 {
        self.losses().reported
    }

    /// Whether a loss was found that an open file has not reported; from now on it has.
    pub(crate) fn report(&self, seen: &mut u64) -> bool {
        let mut losses = self.losses.borrow_mut();
        let is_new = losses.found > *seen;
        if is_new {
            *seen = losses.found;
            losses.reported = losses.found;
        }
        is_new
    }

    fn losses(&self) -> Ref<'_, Losses> {
        self.losses.borrow()
    }
}

/// The writes that a sync of all servers covers.
pub(crate) struct AllBefore {
    inodes: Vec<(Handle, Before)>,
    forgotten: Before,
    /// Files that were written in a layout, and the number of the newest write then.
    laid_out: Vec<(Handle, u64)>,
}

impl AllBefore {
    /// The files whose layout the writes need.
    pub(crate) fn laid_out(&self) -> impl Iterator<Item = Handle> {
        self.laid_out.iter().map(|&(handle, _)| handle)
    }
}

/// See the module's page.
pub(crate) struct Inodes {
    open: BTreeMap<Handle, Rc<Inode>>,
    /// Closed, and not settled.
    closed: LruCache<Handle, Losses>,
    closed_max: usize,
    /// Of all inodes that are remembered no more.
    forgotten: Losses,
}

impl Default for Inodes {
    fn default() -> Inodes {
        Inodes {
            open: BTreeMap::new(),
            closed: LruCache::unbounded(),
            closed_max: CLOSED_MAX,
            forgotten: Losses::default(),
        }
    }
}

impl Inodes {
    /// The inode of a file that is being opened.
    pub(crate) fn opened(&mut self, attr: &Attr) -> Rc<Inode> {
        let handle = attr.handle;
        if let Some(inode) = self.open.get(&handle).filter(|_| !mutant::is(Mutant::FsyncOwnDescriptor)) {
            inode.learn(attr);
            return inode.clone();
        }
        let (shape, mut losses) = (Shape::of(attr), self.closed.pop(&handle).unwrap_or_default());
        losses.is_laid_out(shape.layout.as_deref());
        let inode = Rc::new(Inode { handle, shape: RefCell::new(shape), losses: RefCell::new(losses) });
        self.open.insert(handle, inode.clone());
        inode
    }

    /// An open file of the inode is closed.
    pub(crate) fn closed(&mut self, inode: &Rc<Inode>) {
        let is_known = self.open.get(&inode.handle).is_some_and(|known| Rc::ptr_eq(known, inode));
        // One is the closing file's, one is the table's.
        if !is_known || Rc::strong_count(inode) > 2 {
            return;
        }
        self.open.remove(&inode.handle);
        self.keep(inode.handle, inode.losses.take());
    }

    fn keep(&mut self, handle: Handle, mut losses: Losses) {
        // Writes that were durable as they were answered need no fsync: only open files look for their
        // layout.
        if losses.unsynced.is_empty() {
            losses.wrote_in = None;
        }
        if losses.is_settled() {
            return;
        }
        self.closed.put(handle, losses);
        if self.closed.len() > self.closed_max
            && let Some((_, oldest)) = self.closed.pop_lru()
        {
            oldest
                .unsynced
                .iter()
                .for_each(|unsynced| self.forgotten.written(unsynced.server, unsynced.loss));
            self.forgotten.found += u64::from(oldest.found > oldest.found_by_all);
        }
    }

    /// Attributes of an inode came.
    pub(crate) fn learn(&self, attr: &Attr) {
        if let Some(inode) = self.open.get(&attr.handle) {
            inode.learn(attr);
        }
    }

    /// A change of an object was acknowledged by `server`: of a file through no open file of it, or of a
    /// directory.
    pub(crate) fn changed(&mut self, handle: Handle, server: ServerId, loss: Loss) {
        if loss.is_nothing() {
            return;
        }
        if let Some(inode) = self.open.get(&handle) {
            return inode.written(server, loss);
        }
        let mut losses = self.closed.pop(&handle).unwrap_or_default();
        losses.written(server, loss);
        self.keep(handle, losses);
    }

    /// The changes of a directory that a sync of it that begins now covers. A directory has no open files
    /// here.
    pub(crate) fn directory_before(&self, dir: Handle) -> Before {
        self.closed.peek(&dir).map(Losses::before).unwrap_or_default()
    }

    /// A sync of a directory came back with these loss ids. Whether a loss was found that was not reported;
    /// from now on it was.
    pub(crate) fn directory_synced(
        &mut self,
        dir: Handle,
        before: &Before,
        synced: &BTreeMap<ServerId, Loss>,
    ) -> bool {
        let Some(mut losses) = self.closed.pop(&dir) else { return false };
        losses.synced(before, synced);
        let is_new = std::mem::replace(&mut losses.reported, losses.found) < losses.found;
        self.keep(dir, losses);
        is_new
    }

    /// The writes that a sync of all servers that begins now covers.
    pub(crate) fn all_before(&self) -> AllBefore {
        let open = self.open.iter().map(|(&handle, inode)| (handle, inode.before()));
        let closed = self.closed.iter().map(|(&handle, losses)| (handle, losses.before()));
        let inodes = open.chain(closed).filter(|(_, before)| !before.unsynced.is_empty()).collect();
        let open =
            self.open.iter().filter_map(|(&handle, inode)| Some((handle, inode.losses().writes_in()?)));
        let closed = self.closed.iter().filter_map(|(&handle, losses)| Some((handle, losses.writes_in()?)));
        AllBefore { inodes, forgotten: self.forgotten.before(), laid_out: open.chain(closed).collect() }
    }

    /// After a sync of all servers the files are laid out so. A layout that writes before it were made in is
    /// durable, or was taken back and they are lost.
    pub(crate) fn compare_layouts(
        &mut self,
        before: &AllBefore,
        found: &BTreeMap<Handle, Option<Rc<Layout>>>,
    ) {
        for (handle, writes) in &before.laid_out {
            let Some(layout) = found.get(handle) else { continue };
            let compare = |losses: &mut Losses| {
                losses.is_laid_out(layout.as_deref());
                losses.wrote_in.take_if(|(_, newest)| *newest <= *writes);
            };
            match (self.open.get(handle), self.closed.peek_mut(handle)) {
                (Some(inode), _) => compare(&mut inode.losses.borrow_mut()),
                (None, Some(losses)) => compare(losses),
                (None, None) => {}
            }
        }
    }

    /// A sync of all servers came back with these loss ids, of those that it reached.
    pub(crate) fn compare_all(&mut self, before: &AllBefore, synced: &BTreeMap<ServerId, Loss>) {
        for (handle, before) in &before.inodes {
            match (self.open.get(handle), self.closed.peek_mut(handle)) {
                (Some(inode), _) => inode.losses.borrow_mut().synced(before, synced),
                (None, Some(losses)) => losses.synced(before, synced),
                // Synced by itself meanwhile, and closed.
                (None, None) => {}
            }
        }
        self.forgotten.synced(&before.forgotten, synced);
        let settled = self.closed.iter().filter(|(_, losses)| losses.is_settled());
        let settled: Vec<Handle> = settled.map(|(&handle, _)| handle).collect();
        settled.iter().for_each(|handle| drop(self.closed.pop(handle)));
    }

    /// Whether a loss was found that no sync of all servers has reported; from now on one has.
    pub(crate) fn report_by_all(&mut self) -> bool {
        let mut lost = self.forgotten.report_by_all();
        for inode in self.open.values() {
            lost |= inode.losses.borrow_mut().report_by_all();
        }
        for (_, losses) in self.closed.iter_mut() {
            lost |= losses.report_by_all();
        }
        lost
    }
}

/// The generation that an fsync of the metafile states as known; 0: none, and nothing is compared.
pub(crate) fn generation_known(shape: &Shape) -> Generation {
    if mutant::is(Mutant::FsyncOwnDescriptor) { Generation(0) } else { shape.generation }
}

#[cfg(test)]
mod tests;
