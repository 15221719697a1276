//! Open files of a [`Local`].
//!
//! An open has one descriptor of the host, which its clones and [`VfsFile::again`] share. The host reports
//! a lost write once through a descriptor. So the reports are counted for the descriptor, and each open
//! file returns the reports that came since it last returned one.

use super::{Local, attributes};
use crate::{Error, Result, VfsFile, error};
use bytes::Bytes;
use shoal_env::{HostFacts, HostFile, HostFiles};
use shoal_pattern::Pattern;
use shoal_proto::{Allocation, Handle, Rights, Status};
use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;

/// `fallocate(2)`'s flags.
const KEEP_SIZE: u32 = 1;
const PUNCH_HOLE: u32 = 2;
const ZERO_RANGE: u32 = 16;

/// The pool makes longer reads: copying them would hold the thread too long.
const CACHED_BYTES_MAX: usize = 128 << 10;
/// The pool makes reads of more regions, for the same reason.
const CACHED_REGIONS_MAX: u64 = 64;

/// See the module. Clones share it.
#[derive(Clone)]
pub struct LocalFile(Rc<Open>);

struct Open {
    shared: Rc<Shared>,
    /// Its number among all of this file system.
    number: u64,
    /// Lost writes that it has reported.
    reported: Cell<u64>,
}

struct Shared {
    local: Local,
    handle: Handle,
    rights: Rights,
    file: HostFile,
    facts: HostFacts,
    lost: RefCell<Lost>,
}

/// Reports of lost writes: how many, and the last.
#[derive(Default)]
struct Lost {
    count: u64,
    last: Option<Error>,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.shared.local.nodes().closed(self.shared.handle, self.number);
    }
}

impl LocalFile {
    pub(super) fn new(
        local: &Local,
        handle: Handle,
        rights: Rights,
        file: HostFile,
        facts: &HostFacts,
    ) -> LocalFile {
        let local = local.clone();
        let lost = RefCell::default();
        LocalFile::of(Rc::new(Shared { local, handle, rights, file, facts: *facts, lost }))
    }

    fn of(shared: Rc<Shared>) -> LocalFile {
        let local = &shared.local;
        let number = local.0.files_opened.get();
        local.0.files_opened.set(number + 1);
        local.nodes().opened(shared.handle, &shared.facts, number, shared.rights, shared.file.clone());
        let reported = Cell::new(shared.lost.borrow().count);
        LocalFile(Rc::new(Open { shared, number, reported }))
    }

    /// A call of the host for this file, if it was opened for it.
    async fn run<T: Send + 'static>(
        &self,
        op: &'static str,
        needed: Rights,
        work: impl FnOnce(&dyn HostFiles, &HostFile) -> io::Result<T> + Send + 'static,
    ) -> Result<T> {
        let shared = &self.0.shared;
        if !shared.rights.contains(needed) {
            let words = "the file was not opened for it";
            return Err(Error::new(Status::BadCapability, op).of(shared.handle).because(words));
        }
        let file = shared.file.clone();
        shared.local.run(op, shared.handle, move |host| work(host, &file)).await
    }

    /// Bytes that the host has in memory: a copy is cheaper than another thread.
    fn cached(&self, offset: u64, len: usize) -> Option<Bytes> {
        let shared = &self.0.shared;
        if len > CACHED_BYTES_MAX || !shared.rights.contains(Rights::READ) || shared.local.is_closed() {
            return None;
        }
        let mut data = vec![0; len];
        let read = shared.local.0.host.read_now(&shared.file, offset, &mut data).ok()??;
        data.truncate(read);
        Some(data.into())
    }

    /// The same for a few regions, all of which the host has in memory.
    fn cached_regions(&self, pattern: &Pattern, len: usize) -> Option<Bytes> {
        let shared = &self.0.shared;
        let is_small = len <= CACHED_BYTES_MAX && pattern.regions_max() <= CACHED_REGIONS_MAX;
        if !is_small || !shared.rights.contains(Rights::READ) || shared.local.is_closed() {
            return None;
        }
        let mut packed = vec![0; len];
        let mut rest = &mut packed[..];
        for region in pattern.regions() {
            let (now, after) = rest.split_at_mut(region.len as usize);
            let read = shared.local.0.host.read_now(&shared.file, region.offset as u64, now).ok()??;
            // At an end of the file the pool looks again.
            if (read as u64) < region.len {
                return None;
            }
            rest = after;
        }
        Some(packed.into())
    }

    async fn put(&self, offset: u64, data: Bytes, durable: bool) -> Result<()> {
        self.run("write", Rights::WRITE, move |host, file| host.write(file, offset, &data, durable)).await
    }
}

/// Refuse a pattern that reaches before the file.
fn check(pattern: &Pattern) -> Result<()> {
    pattern.bounds().map_or(Ok(()), |(from, _)| error::offset(from).map(drop))
}

impl VfsFile for LocalFile {
    type PageCounts = ();

    fn handle(&self) -> Handle {
        self.0.shared.handle
    }

    fn rights(&self) -> Rights {
        self.0.shared.rights
    }

    fn again(&self) -> LocalFile {
        LocalFile::of(self.0.shared.clone())
    }

    async fn read(&self, offset: u64, len: usize) -> Result<Bytes> {
        if let Some(data) = self.cached(offset, len) {
            return Ok(data);
        }
        let work = move |host: &dyn HostFiles, file: &HostFile| {
            let mut data = vec![0; len];
            let read = host.read(file, offset, &mut data)?;
            data.truncate(read);
            Ok(data.into())
        };
        self.run("read", Rights::READ, work).await
    }

    async fn write(&self, offset: u64, data: Bytes) -> Result<()> {
        self.put(offset, data, false).await
    }

    async fn append(&self, data: Bytes) -> Result<u64> {
        self.run("append", Rights::WRITE, move |host, file| host.append(file, &data)).await
    }

    async fn drop_cache(&self) -> Result<()> {
        self.run("drop the cache", Rights::empty(), |host, file| host.drop_pages(file)).await
    }

    async fn fsync(&self) -> Result<()> {
        let shared = &self.0.shared;
        let synced = self.run("fsync", Rights::empty(), |host, file| host.sync(file)).await;
        let mut lost = shared.lost.borrow_mut();
        match synced {
            // Whether something was lost is not known: the next one says it.
            Err(error) if error.status == Status::TimedOut || error.kernel.is_none() => return Err(error),
            Err(error) => {
                lost.count += 1;
                lost.last = Some(error);
            }
            Ok(()) => {}
        }
        if self.0.reported.replace(lost.count) == lost.count {
            return Ok(());
        }
        Err(lost.last.clone().unwrap_or_else(|| Error::new(Status::Io, "fsync").of(shared.handle)))
    }

    async fn hold_alone(&self) -> Result<bool> {
        self.run("lock", Rights::empty(), |host, file| host.lock(file)).await
    }

    async fn allocate(&self, offset: u64, len: u64, mode: Allocation) -> Result<()> {
        let mode = match mode {
            Allocation::Extend => 0,
            Allocation::KeepSize => KEEP_SIZE,
            Allocation::Punch => PUNCH_HOLE | KEEP_SIZE,
            Allocation::Zero => ZERO_RANGE,
            Allocation::ZeroKeepSize => ZERO_RANGE | KEEP_SIZE,
        };
        self.run("fallocate", Rights::WRITE, move |host, file| host.allocate(file, mode, offset, len)).await
    }

    async fn close(self) -> Result<()> {
        Ok(())
    }

    async fn read_pattern_sized(&self, pattern: &Pattern) -> Result<(Bytes, u64)> {
        check(pattern)?;
        let (len, end) = (error::read_len(pattern)?, pattern.bounds().map_or(0, |(_, end)| end as u64));
        let pattern = pattern.coalesce();
        if let Some(packed) = self.cached_regions(&pattern, len) {
            return Ok((packed, end));
        }
        let work = move |host: &dyn HostFiles, file: &HostFile| {
            let (mut packed, mut reached) = (vec![0; len], end);
            let mut rest = &mut packed[..];
            for region in pattern.regions() {
                let (now, after) = rest.split_at_mut(region.len as usize);
                let read = host.read(file, region.offset as u64, now)?;
                if (read as u64) < region.len {
                    // Where several reads met an end, the file may have grown between them.
                    reached = reached.min(region.offset as u64 + read as u64);
                }
                rest = after;
            }
            Ok((packed.into(), reached))
        };
        self.run("read", Rights::READ, work).await
    }

    async fn write_pattern(&self, pattern: &Pattern, data: Bytes) -> Result<()> {
        check(pattern)?;
        if pattern.len() != data.len() as u64 {
            return Err(error::unequal(pattern.len(), data.len()));
        }
        let pattern = pattern.clone();
        let work = move |host: &dyn HostFiles, file: &HostFile| {
            let mut rest = &data[..];
            for region in pattern.regions() {
                let (now, after) = rest.split_at(region.len as usize);
                host.write(file, region.offset as u64, now, false)?;
                rest = after;
            }
            Ok(())
        };
        self.run("write", Rights::WRITE, work).await
    }

    async fn write_durable(&self, offset: u64, data: Bytes) -> Result<()> {
        self.put(offset, data, true).await
    }
}

impl Local {
    /// Open a file; with its facts after that. If it was `found` by a name in the same call, its name may be
    /// another file's by now.
    pub(super) async fn open_file(
        &self,
        object: Handle,
        rights: Rights,
        found: bool,
    ) -> Result<(LocalFile, HostFacts)> {
        if rights.contains(Rights::WRITE) {
            self.check_writable("open", object)?;
        }
        let work = move |host: &dyn HostFiles, node: &shoal_env::HostNode| {
            let file = attributes::open(host, node, rights)?;
            let facts = host.facts(&file.node())?;
            Ok((file, facts))
        };
        let (file, facts) = self.at("open", object, work).await?;
        if facts.nlink == 0 && !found && !self.nodes().has_open(object) {
            return Err(Error::new(Status::Stale, "open").of(object));
        }
        Ok((LocalFile::new(self, object, rights, file, &facts), facts))
    }
}
