//! A thread in our world: it has the session, and what waits for a file system is done here.
//!
//! **While a thread waits, others use the session** ([`Call::away`]). So what a call continues with may have
//! changed meanwhile:
//!
//! - A descriptor may be closed, and its number used again. A call keeps the description that it uses
//!   ([`Call::holding`]), as a kernel does.
//! - Calls that move one position, or list one directory by one description, take turns ([`Call::in_turn`]);
//!   so do long appends to one file ([`Call::appending`]).
//! - An object may be moved or removed while another thread opens it. The open looks again
//!   ([`Call::present`]). A move keeps the session to its end, as the paths of records change with it.

use super::moves::Since;
use super::{Open, Session, close_own, exit, number, rights};
use crate::calls::children::abandoned;
use crate::config;
use crate::guard::{PATIENCE, Res};
use crate::record::{self, Record};
use crate::route::{Spot, host_path};
use crate::table;
use libc::c_int;
use shoal_env::local::{Permit, Semaphore};
use shoal_proto::{Attr, Handle, Kind, Rights, Status};
use shoal_world::{Found, Inside, Shown, Tree, TreeFile, Walk, WalkOpen};
use std::ops::{Deref, DerefMut};
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Walks of one path, each of which met a move by another thread.
const WALKS_MAX: usize = 100;
/// Closes at once.
pub(super) const CLOSES_MAX: u64 = 1 << 16;
/// Short appends to one file at once.
const APPENDS_MAX: u64 = 1 << 16;

/// See the module.
pub struct Call<'a>(pub Inside<'a, Session>);

/// A description that a call uses ([`Call::holding`]).
pub struct Held {
    /// The record of its open.
    pub record: &'static Record,
    index: usize,
}

impl Deref for Call<'_> {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.0
    }
}

impl DerefMut for Call<'_> {
    fn deref_mut(&mut self) -> &mut Session {
        &mut self.0
    }
}

impl Call<'_> {
    /// Do `work`, for whose waits other threads have the session.
    pub fn away<T>(&mut self, work: impl FnOnce() -> shoal_vfs::Result<T>) -> Res<T> {
        self.0.away(work).map_err(|error| number(&error))
    }

    /// Do `work` on a file system, for whose waits other threads have the session.
    pub fn on<T>(&mut self, mount: usize, work: impl FnOnce(&dyn Tree) -> shoal_vfs::Result<T>) -> Res<T> {
        let tree = self.tree(mount)?;
        self.away(|| work(&*tree))
    }

    /// Walk a path.
    pub fn walk(&mut self, spot: &Spot, follow: bool) -> Res<Walk> {
        let prefix = host_path(&Spot::new(spot.mount, Vec::new()));
        let walk =
            self.by_path(spot, |call, path| call.on(spot.mount, |tree| tree.walk(&prefix, path, follow)))?;
        let Walk::Object(mut found) = walk else { return Ok(walk) };
        if found.attr.kind == Kind::File && self.see(spot.mount, found.attr.handle.0)? {
            found.attr = self.on(spot.mount, |tree| tree.getattr(found.attr.handle))?;
        }
        Ok(Walk::Object(found))
    }

    /// Walk a path while no other thread uses the session.
    pub fn walk_here(&mut self, spot: &Spot) -> Res<Walk> {
        let prefix = host_path(&Spot::new(spot.mount, Vec::new()));
        self.by_path(spot, |call, path| {
            call.tree(spot.mount)?.walk(&prefix, path, false).map_err(|error| number(&error))
        })
    }

    /// Walk a path whose file is to be opened.
    pub fn walk_open(&mut self, spot: &Spot, follow: bool, rights: Rights) -> Res<WalkOpen> {
        let prefix = host_path(&Spot::new(spot.mount, Vec::new()));
        self.by_path(spot, |call, path| {
            call.on(spot.mount, |tree| tree.walk_open(&prefix, path, follow, rights))
        })
    }

    /// Do `walk` with a path; again, if the directory at which it begins was moved meanwhile, also to and
    /// fro.
    fn by_path<T>(&mut self, spot: &Spot, mut walk: impl FnMut(&mut Self, &[u8]) -> Res<T>) -> Res<T> {
        let (mut path, mut began) = (spot.path.clone(), spot.base.map_or(0, |base| base.began));
        for _ in 0..WALKS_MAX {
            let walked = walk(self, &path);
            let Some(now) = self.path_now(spot)? else { return walked };
            if now == path && self.moves.since(began, spot.mount, &path).paths.is_empty() {
                return walked;
            }
            (path, began) = (now, self.moves_so_far());
        }
        Err(libc::ESTALE)
    }

    /// The path of a spot that begins at a descriptor's directory.
    fn path_now(&mut self, spot: &Spot) -> Res<Option<Vec<u8>>> {
        let Some(base) = spot.base else { return Ok(None) };
        let record = self.open(base.fd).map(|open| open.record);
        // Closed by another thread meanwhile: the path of before.
        let is_it = |record: &&Record| std::ptr::from_ref(*record).addr() == base.record;
        let Some(record) = record.ok().filter(is_it) else { return Ok(None) };
        if record.state.load(Ordering::Relaxed) != 0 {
            return Err(libc::ENOENT);
        }
        Ok(Some([&record.path()[..], &spot.path[base.len..]].concat()))
    }

    /// The object of a path; a path that leaves the file system is `EXDEV`.
    pub fn find(&mut self, spot: &Spot, follow: bool) -> Res<Found> {
        match self.walk(spot, follow)? {
            Walk::Object(found) => Ok(*found),
            Walk::Missing { .. } => Err(libc::ENOENT),
            Walk::Outside(_) => Err(libc::EXDEV),
        }
    }

    /// Where one process sees another's writes only at an open: open the file of descriptions through which
    /// another process has written since. Whether there was one.
    fn see(&mut self, mount: usize, handle: u64) -> Res<bool> {
        let over = config::get().and_then(|config| config.overs.get(mount));
        if over.is_none_or(|over| over.is_seen_at_once()) {
            return Ok(false);
        }
        let mut is_new = false;
        for open in self.opens.iter_mut().flatten() {
            let record = open.record;
            let is_it = record.mount as usize == mount && record.handle.load(Ordering::Relaxed) == handle;
            let writes = record.writes.load(Ordering::Acquire);
            is_new |= is_it && writes != open.seen;
            if is_it {
                open.seen = writes;
            }
        }
        if is_new {
            // One without a name is not found any more: then this process sees its own writes. Not away: no
            // other thread may read before it is opened.
            let opened = self.tree(mount)?.open(Handle(handle), Rights::READ);
            let _ = opened.map(|file| file.close());
        }
        Ok(is_new)
    }

    /// A lock was taken: from now on this process sees all that others wrote before.
    pub fn locked(&mut self, held: &Held) -> Res<()> {
        if held.record.kind == record::DIRECTORY {
            return Ok(());
        }
        let file = self.file(held)?;
        self.away(|| file.refresh())
    }

    /// An append is about to be done: where the file system does not look for the present end by itself, this
    /// process reads what others wrote before.
    pub fn appends(&mut self, held: &Held) {
        let over = config::get().and_then(|config| config.overs.get(held.record.mount as usize));
        let knows_end = |shown: &Shown| matches!(shown, Shown::Plain | Shown::Composed(_));
        if over.is_some_and(|over| !knows_end(&over.shown)) {
            // If it cannot be read, the bytes go to the end that is known.
            let _ = self.locked(held);
        }
    }

    /// Do `work` with the description of a descriptor, which stays meanwhile, although another thread closes
    /// the descriptor: then it is closed at the end.
    pub fn holding<T>(&mut self, fd: c_int, work: impl FnOnce(&mut Self, &Held) -> Res<T>) -> Res<T> {
        let held = self.use_of(fd)?;
        let done = work(self, &held);
        self.unuse(held);
        done
    }

    /// The description that a call holds.
    pub fn held(&mut self, held: &Held) -> Res<&mut Open> {
        self.opens.get_mut(held.index).and_then(Option::as_mut).ok_or(libc::EBADF)
    }

    /// Do `work` while no other call of this process moves the description's position, or lists it.
    pub fn in_turn<T>(&mut self, held: &Held, work: impl FnOnce(&mut Self) -> Res<T>) -> Res<T> {
        let turn = self.held(held)?.turn.clone();
        let _turn = self.permit(&turn, 1)?;
        work(self)
    }

    /// Do `work`, an append. A long one, of several pieces, is alone among those of this process to its file.
    pub fn appending<T>(
        &mut self,
        held: &Held,
        is_long: bool,
        work: impl FnOnce(&mut Self) -> Res<T>,
    ) -> Res<T> {
        let key = (held.record.mount as usize, held.record.handle.load(Ordering::Relaxed));
        let (turn, calls) = self.appends.entry(key).or_insert_with(|| (Semaphore::new(APPENDS_MAX), 0));
        *calls += 1;
        let turn = turn.clone();
        let count = if is_long { APPENDS_MAX } else { 1 };
        let done = self.permit(&turn, count).and_then(|_turn| work(self));
        if let Some((_, calls)) = self.appends.get_mut(&key) {
            *calls -= 1;
            if *calls == 0 {
                self.appends.remove(&key);
            }
        }
        done
    }

    fn permit(&mut self, turn: &Semaphore, count: u64) -> Res<Permit> {
        self.permit_within(turn, count, PATIENCE)
    }

    fn permit_within(&mut self, turn: &Semaphore, count: u64, patience: Duration) -> Res<Permit> {
        if let Some(permit) = turn.try_acquire(count) {
            return Ok(permit);
        }
        let runtime = self.runtime.clone();
        let env = runtime.env();
        let wait = || runtime.block_on(env.deadline(env.now() + patience, turn.acquire(count)));
        self.0.away(wait).map_err(|_| libc::ETIMEDOUT)
    }

    /// The file of a description, opened here if it was not yet, or if another process has written through
    /// it.
    pub fn file(&mut self, held: &Held) -> Res<Rc<dyn TreeFile>> {
        let record = held.record;
        if record.kind == record::DIRECTORY {
            return Err(libc::EISDIR);
        }
        let mount = record.mount as usize;
        if let Some(file) = self.held(held)?.file.clone() {
            self.see(mount, record.handle.load(Ordering::Relaxed))?;
            return Ok(file);
        }
        let is_it =
            |attr: &Attr| attr.handle.0 == record.handle.load(Ordering::Relaxed) && attr.kind == Kind::File;
        let object = self.find_record(held, is_it)?;
        let file = self.on(mount, |tree| tree.open(object, rights(record.flags())))?;
        // Another thread may have opened it meanwhile: one file is all descriptors'.
        Ok(self.held(held)?.file.get_or_insert(file).clone())
    }

    /// This process has written to a file.
    pub fn wrote(&mut self, held: &Held) {
        let before = held.record.writes.fetch_add(1, Ordering::AcqRel);
        if let Ok(open) = self.held(held)
            && before == open.seen
        {
            open.seen = before.wrapping_add(1);
        }
    }

    /// A file has changed. If the process is at its end, and the change would end with it, publish it:
    /// another thread's publication may have been before.
    pub fn publish_late(&mut self, held: &Held, file: &dyn TreeFile) -> Res<()> {
        match exit::is_exiting() && exit::ends_here(held.record.mount as usize) {
            true => self.away(|| file.fsync()),
            false => Ok(()),
        }
    }

    /// A write is done, and the file is not used any more: close it if the process is at its end.
    pub fn publish_at_end(&mut self) {
        if exit::is_exiting() {
            self.publish();
        }
    }

    /// The attributes of a descriptor's object.
    pub fn attributes(&mut self, fd: c_int) -> Res<(usize, Attr)> {
        self.holding(fd, |session, held| session.attributes_of(held))
    }

    /// The attributes of a description's object.
    pub fn attributes_of(&mut self, held: &Held) -> Res<(usize, Attr)> {
        let mount = held.record.mount as usize;
        let handle = self.handle_of(held);
        let attr = handle.and_then(|handle| self.on(mount, |tree| tree.getattr(handle)));
        let is_dir = held.record.kind == record::DIRECTORY;
        match (attr, &mut self.held(held)?.attr) {
            (Ok(attr), known) => {
                *known = is_dir.then(|| attr.clone());
                Ok((mount, attr))
            }
            (Err(libc::ESTALE | libc::ENOENT), Some(known)) => {
                Ok((mount, Attr { nlink: 0, ..known.clone() }))
            }
            (Err(number), _) => Err(number),
        }
    }

    /// The object of a descriptor, known to the file system here.
    pub fn handle(&mut self, fd: c_int) -> Res<Handle> {
        self.holding(fd, |session, held| session.handle_of(held))
    }

    /// The object of a description, known to the file system here.
    pub fn handle_of(&mut self, held: &Held) -> Res<Handle> {
        let record = held.record;
        let handle = Handle(record.handle.load(Ordering::Relaxed));
        if record.kind == record::FILE {
            return Ok(self.file(held)?.handle());
        }
        let mount = record.mount as usize;
        if record.state.load(Ordering::Relaxed) != 0 {
            // Its number may be another object's by now.
            return Err(libc::ESTALE);
        }
        if self.on(mount, |tree| tree.getattr(handle)).is_ok() {
            return Ok(handle);
        }
        self.find_record(held, |attr| attr.handle == handle)
    }

    /// The object at the path of a record; `ESTALE` if another one is there.
    fn find_record(&mut self, held: &Held, is_it: impl Fn(&Attr) -> bool) -> Res<Handle> {
        let mount = held.record.mount as usize;
        for _ in 0..WALKS_MAX {
            let (path, began) = (held.record.path(), self.moves_so_far());
            let found = self.find(&Spot::new(mount, path.clone()), false);
            let is_touched = !self.moves.since(began, mount, &path).paths.is_empty();
            match found {
                Ok(found) if is_it(&found.attr) => return Ok(found.attr.handle),
                // Another thread has moved it meanwhile.
                _ if is_touched || held.record.path() != path => {}
                _ => break,
            }
        }
        Err(libc::ESTALE)
    }

    /// Moves and removals by this process so far.
    pub fn moves_so_far(&self) -> u64 {
        self.moves.count()
    }

    /// The path at which an object is that an open found at `path`, after the first `began` moves of this
    /// process, and whether it is there. If it was removed meanwhile, the path is that of before.
    pub fn present(
        &mut self,
        mount: usize,
        object: Handle,
        path: Vec<u8>,
        began: u64,
    ) -> Res<(Vec<u8>, bool)> {
        let Since { paths: candidates, is_complete } = self.moves.since(began, mount, &path);
        if candidates.is_empty() {
            return Ok((path, true));
        }
        let prefix = host_path(&Spot::new(mount, Vec::new()));
        // Not away: no path changes meanwhile.
        let tree = self.tree(mount)?;
        for candidate in candidates {
            match tree.walk(&prefix, &candidate, false) {
                Ok(Walk::Object(found)) if found.attr.handle == object => return Ok((candidate, true)),
                Ok(_) => {}
                Err(error) if matches!(error.status, Status::NotFound | Status::NotDirectory) => {}
                Err(error) => return Err(number(&error)),
            }
        }
        // A move that is not kept any more may have taken it along.
        Ok((path, !is_complete))
    }

    /// A descriptor is gone. With its last one the description's file is closed.
    pub fn unrefer(&mut self, fd: c_int) -> Res<()> {
        // Before the descriptor is gone: an exit of another thread looks at both.
        let _closing = exit::Closing::new();
        match table::take(fd) {
            Some(index) => self.release(index),
            None => Ok(()),
        }
    }

    /// A virtual descriptor's number is now one of another description, or the kernel's.
    pub fn replace(&mut self, fd: c_int, index: Option<usize>) -> Res<()> {
        let _closing = exit::Closing::new();
        let former = table::index(fd);
        match index {
            Some(index) => self.refer(fd, index)?,
            None => {
                table::is_kernels(fd);
                table::changed_owner();
            }
        }
        // As with a kernel, an error of its file is not reported.
        let _ = former.map_or(Ok(()), |former| self.release(former));
        Ok(())
    }

    /// Take off the descriptors whose close did not get a turn.
    pub fn take_abandoned(&mut self) {
        for index in abandoned() {
            let _ = self.release(index);
        }
    }

    /// A new description that got no descriptor.
    pub fn give_up(&mut self, index: usize) {
        // It has written nothing.
        let _ = self.end(index);
    }

    /// A description has one descriptor less; with the last one its file is closed.
    fn release(&mut self, index: usize) -> Res<()> {
        let Some(Some(open)) = self.opens.get_mut(index) else { return Ok(()) };
        open.references = open.references.saturating_sub(1);
        let (references, uses) = (open.references, open.uses);
        self.unlock_served(index, references == 0);
        let Some(Some(open)) = self.opens.get(index) else { return Ok(()) };
        let key = (open.record.mount as usize, open.record.handle.load(Ordering::Relaxed));
        let closed = match (references, uses) {
            (0, 0) => self.end(index),
            (0, _) => self.flush(index),
            _ => Ok(()),
        };
        self.release_locks(key);
        self.release_served(key);
        closed
    }

    /// A call uses a description, without the session, until [`Call::unuse`].
    pub fn use_of(&mut self, fd: c_int) -> Res<Held> {
        let index = self.index(fd)?;
        let open = self.opens.get_mut(index).and_then(Option::as_mut).ok_or(libc::EBADF)?;
        open.uses += 1;
        Ok(Held { index, record: open.record })
    }

    /// A call uses a description no more. If its last descriptor was closed meanwhile, the close has
    /// returned: as with a kernel, what fails now is not reported.
    pub fn unuse(&mut self, held: Held) {
        let index = held.index;
        let Some(Some(open)) = self.opens.get_mut(index) else { return };
        open.uses -= 1;
        if open.uses == 0 && open.references == 0 {
            let _ = self.end(index);
        }
    }

    /// The last descriptor of a description was closed that another thread's call uses: where its bytes would
    /// end with the process, they are published now.
    fn flush(&mut self, index: usize) -> Res<()> {
        let Some(Some(open)) = self.opens.get(index) else { return Ok(()) };
        let mount = open.record.mount as usize;
        match open.file.clone() {
            Some(file) if exit::ends_here(mount) => self.publishing(mount, || file.fsync()),
            _ => Ok(()),
        }
    }

    /// Do `work`, which closes or syncs a file. An exit waits for it where the bytes would end with the
    /// process.
    fn publishing(&mut self, mount: usize, work: impl FnOnce() -> shoal_vfs::Result<()>) -> Res<()> {
        let closes = exit::ends_here(mount).then(|| self.closes.clone());
        let _turn = closes.and_then(|closes| closes.try_acquire(1));
        self.away(work)
    }

    /// Close a description.
    fn end(&mut self, index: usize) -> Res<()> {
        let Some(Some(open)) = self.opens.get(index) else { return Ok(()) };
        let record = open.record;
        // Other descriptions of the file show the bytes of another process, too.
        let _ = self.see(record.mount as usize, record.handle.load(Ordering::Relaxed));
        let Some(open) = self.opens.get_mut(index).and_then(Option::take) else { return Ok(()) };
        let Open { file, flock, listing, .. } = open;
        drop(listing);
        flock.into_iter().for_each(close_own);
        let mount = record.mount as usize;
        let closed = file.map_or(Ok(()), |file| self.publishing(mount, || file.close()));
        self.records.release(record);
        closed
    }

    /// Wait until the closes that publish a file have ended: the process ends, or another program begins.
    pub fn wait_for_closes(&mut self, patience: Duration) -> Res<()> {
        let closes = self.closes.clone();
        self.permit_within(&closes, CLOSES_MAX, patience).map(drop)
    }
}
