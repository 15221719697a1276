//! Sends the result of an operation as the reply to the kernel.

use super::convert::{attributes, dot_attributes, ino, kind, no_attributes};
use super::locks;
use crate::fs::{Errno, Fs, Opening, Result};
use bytes::Bytes;
use fuser::{
    FileHandle, FopenFlags, Generation, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLock, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr,
};
use shoal_proto::{Attr, limits};
use shoal_vfs::{HeldLock, Vfs};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

/// The same for all objects: a handle is never used for a second object.
const GENERATION: Generation = Generation(0);
/// The unit of `statfs`, in bytes.
const STATFS_BLOCK: u32 = 4096;
/// Bytes that each further object is estimated to need: `statfs` divides the available bytes by this.
const OBJECT_ROOM: u64 = 4096;

pub(super) fn failed(errno: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(errno.0)
}

/// How the kernel is to treat an open file.
fn open_flags(opening: Opening) -> FopenFlags {
    let direct = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
    let mut flags = if opening.direct { direct } else { FopenFlags::empty() };
    // Without this flag the kernel drops its cached pages of the file.
    flags.set(FopenFlags::FOPEN_KEEP_CACHE, opening.pages_stay);
    flags
}

pub(super) fn empty(result: Result<()>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(failed(errno)),
    }
}

/// The lock that conflicts with the requested lock, if there is one.
pub(super) fn holder(result: Result<Option<HeldLock>>, reply: ReplyLock) {
    match result {
        Ok(Some(HeldLock { range, kind, pid })) => {
            let (first, last) = locks::range(range);
            reply.locked(first, last, locks::kind(kind), pid);
        }
        Ok(None) => reply.locked(0, 0, libc::F_UNLCK, 0),
        Err(errno) => reply.error(failed(errno)),
    }
}

/// The object that a name leads to, and how long that is valid.
pub(super) fn entry(result: Result<(Attr, Duration)>, reply: ReplyEntry) {
    match result {
        Ok((attr, believed)) => reply.entry(&believed, &attributes(&attr), GENERATION),
        Err(errno) => reply.error(failed(errno)),
    }
}

/// As [`entry`]. It also adds one reference of the kernel to the object's count.
pub(super) fn found<V: Vfs>(fs: &Fs<V>, result: Result<(Attr, Duration)>, reply: ReplyEntry) {
    entry(result.inspect(|(attr, _)| fs.vfs().referred(attr.handle)), reply);
}

/// An entry that was just made.
pub(super) fn made<V: Vfs>(fs: &Fs<V>, result: Result<Attr>, reply: ReplyEntry) {
    found(fs, result.map(|attr| (attr, fs.cache())), reply);
}

pub(super) fn attr(result: Result<(Attr, Duration)>, reply: ReplyAttr) {
    match result {
        Ok((attr, believed)) => reply.attr(&believed, &attributes(&attr)),
        Err(errno) => reply.error(failed(errno)),
    }
}

pub(super) fn data(result: Result<Bytes>, reply: ReplyData) {
    match result {
        Ok(data) => reply.data(&data),
        Err(errno) => reply.error(failed(errno)),
    }
}

pub(super) fn opened(result: Result<Opening>, reply: ReplyOpen) {
    match result {
        Ok(opening) => reply.opened(FileHandle(opening.fh), open_flags(opening)),
        Err(errno) => reply.error(failed(errno)),
    }
}

pub(super) fn opened_dir(result: Result<u64>, reply: ReplyOpen) {
    match result {
        Ok(fh) => reply.opened(FileHandle(fh), FopenFlags::empty()),
        Err(errno) => reply.error(failed(errno)),
    }
}

pub(super) fn created<V: Vfs>(fs: &Fs<V>, result: Result<(Attr, Opening)>, reply: ReplyCreate) {
    match result {
        Ok((attr, opening)) => {
            fs.vfs().referred(attr.handle);
            let attr = attributes(&attr);
            reply.created(&fs.cache(), &attr, GENERATION, FileHandle(opening.fh), open_flags(opening));
        }
        Err(errno) => reply.error(failed(errno)),
    }
}

pub(super) fn written(result: Result<()>, len: usize, reply: ReplyWrite) {
    match (result, u32::try_from(len)) {
        (Ok(()), Ok(len)) => reply.written(len),
        (Ok(()), Err(_)) => reply.error(failed(Errno::IO)),
        (Err(errno), _) => reply.error(failed(errno)),
    }
}

/// A value for a buffer of `size` bytes; 0 asks for the value's own size.
pub(super) fn xattr(result: Result<Bytes>, size: u32, reply: ReplyXattr) {
    let result = result.and_then(|value| match u32::try_from(value.len()) {
        Ok(len) if size == 0 || len <= size => Ok((value, len)),
        _ => Err(Errno::RANGE),
    });
    match result {
        Ok((_, len)) if size == 0 => reply.size(len),
        Ok((value, _)) => reply.data(&value),
        Err(errno) => reply.error(failed(errno)),
    }
}

pub(super) fn statfs(result: Result<(u64, u64, u64)>, reply: ReplyStatfs) {
    match result {
        Ok((total, available, objects)) => {
            let unit = u64::from(STATFS_BLOCK);
            let (blocks, free, room) = (total / unit, available / unit, available / OBJECT_ROOM);
            let names_max = limits::NAME_BYTES_MAX as u32;
            let files = objects.saturating_add(room);
            reply.statfs(blocks, free, free, files, room, STATFS_BLOCK, names_max, STATFS_BLOCK);
        }
        Err(errno) => reply.error(failed(errno)),
    }
}

pub(super) async fn readdir<V: Vfs>(fs: &Fs<V>, fh: u64, offset: u64, mut reply: ReplyDirectory) {
    let listed = fs.readdir(fh, offset, false, |entry, _| {
        reply.add(ino(entry.handle), entry.offset, kind(entry.kind), OsStr::from_bytes(&entry.name))
    });
    match listed.await {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(failed(errno)),
    }
}

pub(super) async fn readdirplus<V: Vfs>(fs: &Fs<V>, fh: u64, offset: u64, mut reply: ReplyDirectoryPlus) {
    let listed = fs.readdir(fh, offset, true, |entry, believed| {
        let attr = match &entry.attr {
            Some((attr, _)) => attributes(attr),
            None if entry.is_unknown => no_attributes(entry.handle, entry.kind),
            None => dot_attributes(entry.handle),
        };
        let name = OsStr::from_bytes(&entry.name);
        reply.add(ino(entry.handle), entry.offset, name, &believed, &attr, GENERATION)
    });
    match listed.await {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(failed(errno)),
    }
}
