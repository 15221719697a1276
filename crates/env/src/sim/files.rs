//! The simulated file calls. Each call takes its time on the disk, and takes effect at the end of that
//! time.

use super::core::{Core, Event};
use super::disk::{DiskState, Fate, Transfer};
use super::door::Place;
use super::image::{Op, PAGE};
use super::names::ROOT;
use super::trace::Kind;
use crate::{AlignedBuf, Counters, DirEntry, DiskSpace, File, FileDoor, FileImpl, OpenOptions};
use bytes::Bytes;
use futures_channel::oneshot;
use futures_util::future::LocalBoxFuture;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

fn stopped() -> io::Error {
    io::Error::other("the process was stopped during a file call")
}

/// Bytes that are copied between the program and the page cache.
#[derive(Clone, Copy)]
enum Copied {
    Nothing,
    /// Into the cache.
    Written(u64),
    /// Out of it.
    Read(u64),
}

impl Copied {
    fn ns(self, files: &SimFiles) -> u64 {
        match self {
            Copied::Nothing => 0,
            Copied::Written(bytes) => files.with_disk(|disk| disk.cache(0, bytes)),
            Copied::Read(bytes) => files.with_disk(|disk| disk.cache_read(0, bytes)),
        }
    }
}

/// The thread that makes a call, if cores are shared, and the bytes it copies.
#[derive(Clone, Copy)]
enum Way {
    /// The process, within its turn.
    Here(Copied),
    /// Another thread of it.
    Thread(Copied),
}

/// Most bytes that a process copies by itself: the real environment's limits (`real::inline`,
/// `real::file`).
const WRITE_HERE_MAX: u64 = 64 << 10;
const READ_HERE_MAX: u64 = 1 << 20;

/// One process's way to its machine's disk.
#[derive(Clone)]
pub(super) struct SimFiles {
    pub(super) core: Rc<Core>,
    pub(super) place: Place,
    pub(super) counters: Arc<Counters>,
}

impl SimFiles {
    fn with_disk<T>(&self, look: impl FnOnce(&mut DiskState) -> T) -> T {
        look(&mut self.core.machines.borrow_mut()[self.place.machine].disk)
    }

    /// Begin a call now: it ends at `until`, and has its `effect` then.
    fn call<T: 'static>(
        &self,
        size: u64,
        way: Way,
        until: impl FnOnce(&mut DiskState, u64) -> u64 + 'static,
        effect: impl FnOnce(&mut DiskState, Fate) -> io::Result<T> + 'static,
    ) -> LocalBoxFuture<'static, io::Result<T>> {
        let Place { process, incarnation, machine } = self.place;
        if !self.core.lives(process, incarnation) {
            return Box::pin(async { Err(stopped()) });
        }
        let now = self.core.now();
        self.core.trace.add(now, process, Kind::Disk, size);
        let (send, receive) = oneshot::channel();
        let call = self.with_disk(|disk| {
            let effect = move |disk: &mut DiskState, fate| {
                let result = effect(disk, fate);
                Box::new(move || drop(send.send(result))) as Box<dyn FnOnce()>
            };
            disk.begin(process, incarnation, Box::new(effect))
        });
        let end = move |core: &Rc<Core>| {
            let answer = core.machines.borrow_mut()[machine].disk.end(call);
            if let Some(answer) = answer {
                answer();
            }
        };
        let device = move |core: &Rc<Core>| {
            let at = until(&mut core.machines.borrow_mut()[machine].disk, core.now());
            core.schedule(at, Event::Call(Box::new(end)));
        };
        match way {
            _ if !self.core.shares_cores(process) => device(&self.core),
            Way::Here(copied) => {
                let copied_ns = copied.ns(self);
                self.core.charge(process, copied_ns);
                let at = self.core.moment(process);
                self.core.schedule(at, Event::Call(Box::new(device)));
            }
            Way::Thread(copied) => {
                let copied_ns = copied.ns(self);
                let cpu = self.core.processes.borrow()[process].cpu;
                let at = self.core.moment(process) + cpu.file_wait_ns;
                self.core.job(machine, at, cpu.file_ns + copied_ns, Box::new(device));
            }
        }
        Box::pin(async move { receive.await.unwrap_or_else(|_| Err(stopped())) })
    }

    /// A call about names, lengths or holes. In flight at a stop it is done or not done.
    fn small_call<T: 'static>(
        &self,
        effect: impl FnOnce(&mut DiskState) -> io::Result<T> + 'static,
    ) -> LocalBoxFuture<'static, io::Result<T>> {
        Counters::add(&self.counters.file_calls, 1);
        let until = |disk: &mut DiskState, now| now + disk.config.call_ns;
        self.call(0, Way::Thread(Copied::Nothing), until, move |disk, fate| {
            if fate != Fate::Done && disk.rng.below(2) == 0 {
                return Err(stopped());
            }
            effect(disk)
        })
    }

    fn sync_call(
        &self,
        inode: u64,
        bytes: u64,
        effect: impl FnOnce(&mut DiskState) -> io::Result<()> + 'static,
    ) -> LocalBoxFuture<'static, io::Result<()>> {
        Counters::add(&self.counters.syncs, 1);
        let until = move |disk: &mut DiskState, now| {
            disk.written_back(bytes);
            disk.durable(now, inode, 0, bytes, false)
        };
        self.call(bytes, Way::Thread(Copied::Nothing), until, |disk, fate| {
            if fate == Fate::Done { effect(disk) } else { Err(stopped()) }
        })
    }
}

/// An open file.
struct SimFile {
    files: SimFiles,
    inode: u64,
    options: OpenOptions,
    boots: u64,
}

impl SimFile {
    fn check_range(&self, offset: u64, len: u64) -> io::Result<()> {
        let align = AlignedBuf::ALIGN as u64;
        if self.options.direct && !(offset.is_multiple_of(align) && len.is_multiple_of(align)) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("a direct write of {len} bytes at {offset} is not aligned to {align}"),
            ));
        }
        self.check_length(offset.saturating_add(len))
    }

    fn check_length(&self, len: u64) -> io::Result<()> {
        i64::try_from(len).map(|_| ()).map_err(|_| io::ErrorKind::InvalidInput.into())
    }

    fn write(&self, offset: u64, pieces: Vec<Bytes>) -> LocalBoxFuture<'static, io::Result<()>> {
        let op = Op::Write { offset, pieces };
        let (bytes, inode, OpenOptions { direct, dsync, .. }) = (op.bytes(), self.inode, self.options);
        Counters::add(&self.files.counters.file_writes, 1);
        Counters::add(&self.files.counters.file_write_bytes, bytes);
        Counters::add(&self.files.counters.syncs, u64::from(dsync));
        if let Err(error) = self.check_range(offset, bytes) {
            return Box::pin(async { Err(error) });
        }
        let is_charged = self.files.core.shares_cores(self.files.place.process);
        let until = move |disk: &mut DiskState, now| {
            let config = disk.config;
            if !direct && !dsync {
                let waits_ns = disk.room_ns(now, inode, offset, bytes);
                return if is_charged { now + waits_ns } else { disk.cache(now, bytes) };
            }
            if dsync {
                return disk.durable(now, inode, offset, bytes, true);
            }
            let (bytes_per_s, latency_ns) = (config.write_bytes_per_s, config.write_ns);
            disk.device(now, &Transfer { inode, offset, bytes, bytes_per_s, latency_ns, follows: false })
        };
        let way = match direct || dsync {
            false if bytes <= WRITE_HERE_MAX => Way::Here(Copied::Written(bytes)),
            false => Way::Thread(Copied::Written(bytes)),
            true => Way::Thread(Copied::Nothing),
        };
        let is_inline = matches!(way, Way::Here(_));
        Counters::add(&self.files.counters.file_writes_inline, u64::from(is_inline));
        self.files.call(bytes, way, until, move |disk, fate| disk.write(inode, op, dsync, fate))
    }

    fn change(&self, op: Op) -> LocalBoxFuture<'static, io::Result<()>> {
        let inode = self.inode;
        self.files.small_call(move |disk| disk.apply(inode, op).map(|_| ()))
    }
}

impl FileImpl for SimFile {
    fn read_at(&self, offset: u64, len: usize) -> LocalBoxFuture<'static, io::Result<Bytes>> {
        let (inode, direct, counters) = (self.inode, self.options.direct, self.files.counters.clone());
        Counters::add(&counters.file_reads, 1);
        let now = self.files.core.now();
        let (there, wanted) = self.files.with_disk(|disk| {
            let there =
                disk.file(inode).map_or(0, |file| file.cached.len.saturating_sub(offset).min(len as u64));
            (there, if direct { None } else { disk.wanted(now, inode, offset, len as u64) })
        });
        let is_cached = wanted.is_some_and(|wanted| wanted.missing == 0 && !wanted.is_coming);
        let is_charged = self.files.core.shares_cores(self.files.place.process);
        let until = move |disk: &mut DiskState, now| {
            let config = disk.config;
            let Some(wanted) = wanted else {
                let (bytes_per_s, latency_ns) = (config.read_bytes_per_s, config.read_ns);
                let bytes = there;
                let transfer = Transfer { inode, offset, bytes, bytes_per_s, latency_ns, follows: false };
                return disk.device(now, &transfer);
            };
            let at = disk.fetched(now, inode, offset, there, wanted);
            if is_cached && !is_charged { disk.cache(now, there) } else { at }
        };
        let way = match is_cached && there <= READ_HERE_MAX {
            true => Way::Here(Copied::Read(there)),
            false if direct => Way::Thread(Copied::Nothing),
            false => Way::Thread(Copied::Read(there)),
        };
        let read = self.files.call(len as u64, way, until, move |disk, fate| {
            if fate == Fate::Done { Ok(disk.file(inode)?.cached.read(offset, len)) } else { Err(stopped()) }
        });
        Box::pin(async move {
            let bytes = read.await?;
            Counters::add(&counters.file_read_bytes, bytes.len() as u64);
            Ok(bytes)
        })
    }

    fn write_at(&self, offset: u64, pieces: Vec<Bytes>) -> LocalBoxFuture<'static, io::Result<()>> {
        self.write(offset, pieces)
    }

    fn write_aligned(
        &self,
        offset: u64,
        buf: AlignedBuf,
    ) -> LocalBoxFuture<'static, (AlignedBuf, io::Result<()>)> {
        let done = self.write(offset, vec![Bytes::copy_from_slice(&buf)]);
        Box::pin(async move {
            let done = done.await;
            (buf, done)
        })
    }

    fn sync(&self) -> LocalBoxFuture<'static, io::Result<()>> {
        let inode = self.inode;
        let look = |disk: &mut DiskState| disk.file(inode).map_or((0, 0), |f| (f.made(), f.unsynced_bytes()));
        let (made, bytes) = self.files.with_disk(look);
        self.files.sync_call(inode, bytes, move |disk| disk.sync(inode, made))
    }

    fn drop_pages(&self) -> LocalBoxFuture<'static, io::Result<()>> {
        let inode = self.inode;
        self.files.small_call(move |disk| {
            disk.drop_pages(inode);
            Ok(())
        })
    }

    fn truncate(&self, len: u64) -> LocalBoxFuture<'static, io::Result<()>> {
        if let Err(error) = self.check_length(len) {
            return Box::pin(async { Err(error) });
        }
        self.change(Op::Truncate { len })
    }

    fn allocate(&self, offset: u64, len: u64, extend: bool) -> LocalBoxFuture<'static, io::Result<()>> {
        if let Err(error) = self.check_length(offset.saturating_add(len)) {
            return Box::pin(async { Err(error) });
        }
        self.change(Op::Allocate { offset, len, extend })
    }

    fn punch(&self, offset: u64, len: u64) -> LocalBoxFuture<'static, io::Result<()>> {
        self.change(Op::Punch { offset, len })
    }

    fn len(&self) -> LocalBoxFuture<'static, io::Result<u64>> {
        let len = self.files.with_disk(|disk| disk.file(self.inode).map(|file| file.cached.len));
        Box::pin(async move { len })
    }

    fn space(&self) -> LocalBoxFuture<'static, io::Result<u64>> {
        let pages = self.files.with_disk(|disk| disk.file(self.inode).map(|file| file.cached.pages()));
        Box::pin(async move { Ok(pages? * PAGE) })
    }

    fn is_direct(&self) -> bool {
        self.options.direct
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        let (inode, boots) = (self.inode, self.boots);
        self.files.with_disk(|disk| {
            if disk.boots == boots {
                disk.let_go(inode);
            }
        });
    }
}

impl FileDoor for SimFiles {
    fn open(&self, path: &Path, options: OpenOptions) -> LocalBoxFuture<'static, io::Result<File>> {
        let (path, files) = (path.to_owned(), self.clone());
        Counters::add(&self.counters.file_calls, 1);
        let until = |disk: &mut DiskState, now| now + disk.config.call_ns;
        self.call(0, Way::Thread(Copied::Nothing), until, move |disk, fate| {
            if fate != Fate::Done {
                // The file may have been made; the process that would hold its handle is gone.
                if disk.rng.below(2) == 0 {
                    disk.open(&path, options.create, options.exclusive)?;
                }
                return Err(stopped());
            }
            let inode = disk.open(&path, options.create, options.exclusive)?;
            disk.hold(inode);
            Ok(Rc::new(SimFile { files, inode, options, boots: disk.boots }) as File)
        })
    }

    fn remove(&self, path: &Path) -> LocalBoxFuture<'static, io::Result<()>> {
        let path = path.to_owned();
        self.small_call(move |disk| disk.remove(&path))
    }

    fn rename(&self, from: &Path, to: &Path) -> LocalBoxFuture<'static, io::Result<()>> {
        let (from, to) = (from.to_owned(), to.to_owned());
        self.small_call(move |disk| disk.rename(&from, &to))
    }

    fn create_dir(&self, path: &Path) -> LocalBoxFuture<'static, io::Result<()>> {
        let path = path.to_owned();
        self.small_call(move |disk| disk.create_dir(&path))
    }

    fn list(&self, path: &Path) -> LocalBoxFuture<'static, io::Result<Vec<DirEntry>>> {
        let path = path.to_owned();
        self.small_call(move |disk| disk.list(&path))
    }

    fn sync_dir(&self, path: &Path) -> LocalBoxFuture<'static, io::Result<()>> {
        let path = path.to_owned();
        self.sync_call(ROOT, 0, move |disk| {
            let dir = disk.find(&path)?;
            if disk.sync_fails() {
                return Err(rustix::io::Errno::IO.into());
            }
            disk.sync_names(dir);
            Ok(())
        })
    }

    fn sync_all(&self, _path: &Path) -> LocalBoxFuture<'static, io::Result<()>> {
        let changed = self.with_disk(|disk| disk.unsynced_files());
        let bytes = changed.iter().map(|file| file.bytes).sum();
        self.sync_call(ROOT, bytes, move |disk| disk.sync_all(&changed))
    }

    fn lock(&self, path: &Path) -> LocalBoxFuture<'static, io::Result<()>> {
        let (path, Place { process, incarnation, .. }) = (path.to_owned(), self.place);
        Counters::add(&self.counters.file_calls, 1);
        let until = |disk: &mut DiskState, now| now + disk.config.call_ns;
        self.call(0, Way::Thread(Copied::Nothing), until, move |disk, fate| {
            let inode = disk.open(&path, true, false)?;
            // A killed process holds no locks.
            if fate == Fate::Done { disk.lock(inode, process, incarnation) } else { Err(stopped()) }
        })
    }

    fn space(&self, _path: &Path) -> LocalBoxFuture<'static, io::Result<DiskSpace>> {
        let disk = self.place.machine as u64 + 1;
        self.small_call(move |state| {
            let (total, available) = state.space();
            Ok(DiskSpace { total, available, disk })
        })
    }

    fn boot_id(&self) -> [u8; 16] {
        self.core.machines.borrow()[self.place.machine].boot_id
    }

    fn native_path(&self, _path: &Path) -> Option<PathBuf> {
        None
    }
}
