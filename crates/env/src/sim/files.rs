//! The file system's face: each call costs its time on the disk and takes effect at its end.

use super::core::{Core, Event};
use super::disk::{DiskState, Fate};
use super::door::Place;
use super::image::{Op, PAGE};
use super::trace::Kind;
use crate::{AlignedBuf, Counters, DirEntry, File, FileDoor, FileImpl, OpenOptions};
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

    /// Begin a call now: it ends when `until` says, and does `effect` then.
    fn call<T: 'static>(
        &self,
        size: u64,
        until: impl FnOnce(&mut DiskState, u64) -> u64,
        effect: impl FnOnce(&mut DiskState, Fate) -> io::Result<T> + 'static,
    ) -> LocalBoxFuture<'static, io::Result<T>> {
        let Place { process, incarnation, machine } = self.place;
        if !self.core.lives(process, incarnation) {
            return Box::pin(async { Err(stopped()) });
        }
        let now = self.core.now();
        self.core.trace.add(now, process, Kind::Disk, size);
        let (send, receive) = oneshot::channel();
        let (call, at) = self.with_disk(|disk| {
            let at = until(disk, now);
            let effect = move |disk: &mut DiskState, fate| {
                let result = effect(disk, fate);
                Box::new(move || drop(send.send(result))) as Box<dyn FnOnce()>
            };
            (disk.begin(process, incarnation, Box::new(effect)), at)
        });
        let end = move |core: &Rc<Core>| {
            let answer = core.machines.borrow_mut()[machine].disk.end(call);
            if let Some(answer) = answer {
                answer();
            }
        };
        self.core.schedule(at, Event::Call(Box::new(end)));
        Box::pin(async move { receive.await.unwrap_or_else(|_| Err(stopped())) })
    }

    /// A call about names, lengths or holes. In flight at a stop it is done or not done.
    fn small_call<T: 'static>(
        &self,
        effect: impl FnOnce(&mut DiskState) -> io::Result<T> + 'static,
    ) -> LocalBoxFuture<'static, io::Result<T>> {
        Counters::add(&self.counters.file_calls, 1);
        let until = |disk: &mut DiskState, now| now + disk.config.call_ns;
        self.call(0, until, move |disk, fate| {
            if fate != Fate::Done && disk.rng.below(2) == 0 {
                return Err(stopped());
            }
            effect(disk)
        })
    }

    fn sync_call(
        &self,
        bytes: u64,
        effect: impl FnOnce(&mut DiskState) -> io::Result<()> + 'static,
    ) -> LocalBoxFuture<'static, io::Result<()>> {
        Counters::add(&self.counters.syncs, 1);
        let until = move |disk: &mut DiskState, now| {
            let config = disk.config;
            disk.device(now, bytes, config.write_bytes_per_s, config.sync_ns)
        };
        self.call(bytes, until, |disk, fate| if fate == Fate::Done { effect(disk) } else { Err(stopped()) })
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
        let until = move |disk: &mut DiskState, now| {
            let config = disk.config;
            if !direct && !dsync {
                return disk.cache(now, bytes);
            }
            let latency_ns = if dsync { config.sync_ns } else { config.write_ns };
            disk.device(now, bytes, config.write_bytes_per_s, latency_ns)
        };
        self.files.call(bytes, until, move |disk, fate| disk.write(inode, op, dsync, fate))
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
        let until = move |disk: &mut DiskState, now| {
            let config = disk.config;
            let there =
                disk.file(inode).map_or(0, |file| file.cached.len.saturating_sub(offset).min(len as u64));
            let cached = !direct && disk.file(inode).is_ok_and(|file| file.warm_up(offset, len as u64));
            if cached {
                disk.cache(now, there)
            } else {
                disk.device(now, there, config.read_bytes_per_s, config.read_ns)
            }
        };
        let read = self.files.call(len as u64, until, move |disk, fate| {
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
        self.files.sync_call(bytes, move |disk| disk.sync(inode, made))
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
        self.call(0, until, move |disk, fate| {
            if fate != Fate::Done {
                // The file may have been made; nobody is left to hold a handle.
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
        self.sync_call(0, move |disk| {
            let dir = disk.find(&path)?;
            if disk.sync_fails() {
                return Err(rustix::io::Errno::IO.into());
            }
            disk.sync_names(dir);
            Ok(())
        })
    }

    fn lock(&self, path: &Path) -> LocalBoxFuture<'static, io::Result<()>> {
        let (path, Place { process, incarnation, .. }) = (path.to_owned(), self.place);
        Counters::add(&self.counters.file_calls, 1);
        let until = |disk: &mut DiskState, now| now + disk.config.call_ns;
        self.call(0, until, move |disk, fate| {
            let inode = disk.open(&path, true, false)?;
            // A killed process holds nothing.
            if fate == Fate::Done { disk.lock(inode, process, incarnation) } else { Err(stopped()) }
        })
    }

    fn space(&self, _path: &Path) -> LocalBoxFuture<'static, io::Result<(u64, u64)>> {
        self.small_call(|disk| Ok(disk.space()))
    }

    fn boot_id(&self) -> [u8; 16] {
        self.core.machines.borrow()[self.place.machine].boot_id
    }

    fn native_path(&self, _path: &Path) -> Option<PathBuf> {
        None
    }
}
