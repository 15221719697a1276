//! Batches: one call reads many whole files, or makes many files with their contents.
//!
//! ```text
//!   entries ── rounds of at most 4,096 entries and 256 MiB ── the walk of each directory of a round, once
//!           ── Tree::read_many, Tree::create_many ── a result for each entry, in its place
//! ```
//! The client of a ShoalFS packs the files of a round that lie on one server into messages, each of at most
//! 128 files and 1 MiB. Other file systems handle one file after the other. **Each entry has a result of its
//! own**: an entry that fails does not affect the other entries. The call itself fails only if no entry was
//! tried, and then leaves all entries as they were. When the deadline of the call has passed, the entries
//! that are not done have the result `ETIMEDOUT`.
//!
//! A file is read whole or not at all. If entries failed, the thread's last error is the error of the first
//! failed entry.

use crate::call::{Failure, Res, bytes, checked, failure, note, on, slice};
use crate::connect::FileSystemId;
use crate::session::{Call, owner, quoted};
use crate::table::Kind::FileSystem;
use bytes::Bytes;
use libc::{c_char, c_int};
use shoal_proto::{Handle, Kind, Name, Rights, Status};
use shoal_vfs::NewFile;
use std::collections::BTreeMap;

/// Entries of one call, at most.
pub const ENTRIES_MAX: usize = 1 << 20;
/// Entries of a round, and bytes of their buffers: one that is longer makes a round of its own.
const ROUND_ENTRIES_MAX: usize = 4096;
const ROUND_BYTES_MAX: usize = 256 << 20;

/// A file to be read whole (`shoal_read_entry`).
#[repr(C)]
pub struct CReadEntry {
    path: *const c_char,
    buffer: *mut u8,
    len: usize,
    size: u64,
    done: i64,
    error: c_int,
}

/// A file to be made with its contents (`shoal_create_entry`).
#[repr(C)]
pub struct CCreateEntry {
    path: *const c_char,
    data: *const u8,
    len: usize,
    done: i64,
    error: c_int,
}

/// The results of a call's entries.
trait Entry {
    fn path(&self) -> *const c_char;
    /// The length of its buffer, if it has one.
    fn room(&self) -> Res<usize>;
    fn end(&mut self, done: Result<i64, c_int>);
}

impl Entry for CReadEntry {
    fn path(&self) -> *const c_char {
        self.path
    }

    fn room(&self) -> Res<usize> {
        checked(self.buffer, self.len)
    }

    fn end(&mut self, done: Result<i64, c_int>) {
        (self.done, self.error) = done.map_or_else(|number| (-1, number), |done| (done, 0));
    }
}

impl Entry for CCreateEntry {
    fn path(&self) -> *const c_char {
        self.path
    }

    fn room(&self) -> Res<usize> {
        checked(self.data, self.len)
    }

    fn end(&mut self, done: Result<i64, c_int>) {
        (self.done, self.error) = done.map_or_else(|number| (-1, number), |done| (done, 0));
    }
}

/// The entries of a call.
///
/// # Safety
/// `entries` is null or has `count` items that no other thread uses, for `'a`.
unsafe fn entries<'a, E>(entries: *mut E, count: usize) -> Res<&'a mut [E]> {
    if count > ENTRIES_MAX {
        let words = format!("a batch of {count} entries: one call takes {ENTRIES_MAX} at most");
        return Err(failure(libc::EINVAL, words));
    }
    if checked(entries, count)? == 0 {
        return Ok(&mut []);
    }
    // SAFETY: as the caller promises; not null, and not too long.
    Ok(unsafe { std::slice::from_raw_parts_mut(entries, count) })
}

/// The directories of a batch's paths: those that many share are walked once.
#[derive(Default)]
struct Directories(BTreeMap<Vec<u8>, Res<Handle>>);

impl Directories {
    /// The directory and the name of a path.
    fn entry(&mut self, session: &mut Call<'_>, path: &[u8]) -> Res<(Handle, Name)> {
        let cut = path.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
        let (dir, name) = path.split_at(cut);
        match name {
            b"" if path.is_empty() => return Err(failure(libc::ENOENT, "the path is empty")),
            b"" | b"." | b".." => return Err(failure(libc::EISDIR, "the path leads to a directory")),
            _ => {}
        }
        let name = Name::new(name).map_err(|status| shoal_vfs::Error::new(status, "look up"))?;
        let known = self.0.entry(dir.to_vec()).or_insert_with(|| directory(session, dir));
        Ok((known.clone()?, name))
    }
}

fn directory(session: &mut Call<'_>, path: &[u8]) -> Res<Handle> {
    match session.walk_unnamed(path, true)? {
        shoal_world::Walk::Object(found) if found.attr.kind == Kind::Directory => Ok(found.attr.handle),
        shoal_world::Walk::Object(_) => Err(failure(libc::ENOTDIR, "a name on the path is no directory")),
        _ => Err(failure(libc::ENOENT, "a directory of the path is missing")),
    }
}

/// A batch under way.
struct Batch<'a, 'c, E> {
    session: &'a mut Call<'c>,
    entries: &'a mut [E],
    directories: Directories,
    succeeded: i64,
    failed: Option<(usize, Failure)>,
}

impl<E: Entry> Batch<'_, '_, E> {
    fn end(&mut self, item: usize, done: Res<i64>) {
        match done {
            Ok(done) => {
                self.succeeded += 1;
                self.entries[item].end(Ok(done));
            }
            Err(failure) => {
                self.entries[item].end(Err(failure.number()));
                if self.failed.as_ref().is_none_or(|(first, _)| item < *first) {
                    // SAFETY: the exported functions promise that it is null or a C string.
                    let path = unsafe { bytes(self.entries[item].path()) };
                    let of = path.map_or_else(
                        |_| format!("entry {item}"),
                        |path| format!("entry {item}, {}", quoted(path)),
                    );
                    self.failed = Some((item, failure.of(|| of)));
                }
            }
        }
    }

    /// Do all entries, round by round. `round` receives those whose arguments are right, with their places.
    fn run(mut self, function: &str, mut round: impl FnMut(&mut Self, Vec<(usize, Handle, Name)>)) -> i64 {
        let mut from = 0;
        while from < self.entries.len() {
            let (mut items, mut room, mut to) = (Vec::new(), 0_usize, from);
            while to < self.entries.len() && items.len() < ROUND_ENTRIES_MAX && room < ROUND_BYTES_MAX {
                match self.begin(to) {
                    Ok((len, ..)) if !items.is_empty() && room.saturating_add(len) > ROUND_BYTES_MAX => break,
                    Ok((len, dir, name)) => {
                        room = room.saturating_add(len);
                        items.push((to, dir, name));
                    }
                    Err(failure) => self.end(to, Err(failure)),
                }
                to += 1;
            }
            if !items.is_empty() {
                round(&mut self, items);
            }
            from = to;
        }
        if let Some((_, failure)) = &self.failed {
            note(function, failure);
        }
        self.succeeded
    }

    fn begin(&mut self, item: usize) -> Res<(usize, Handle, Name)> {
        let room = self.entries[item].room()?;
        // SAFETY: the exported functions promise that it is null or a C string.
        let path = unsafe { bytes(self.entries[item].path()) }?;
        if self.session.is_late() {
            return Err(failure(libc::ETIMEDOUT, "not tried: the call's deadline had passed"));
        }
        let (dir, name) = self.directories.entry(&mut *self.session, path)?;
        Ok((room, dir, name))
    }
}

impl Batch<'_, '_, CReadEntry> {
    /// The contents of a file are there.
    fn put(&mut self, item: usize, size: u64, data: Option<Bytes>) -> Res<i64> {
        let entry = &mut self.entries[item];
        entry.size = size;
        let Some(data) = data.filter(|data| data.len() <= entry.len) else {
            let words = format!("the file has {size} bytes and the buffer {}", entry.len);
            return Err(failure(libc::ERANGE, words));
        };
        entry.size = data.len() as u64;
        // SAFETY: the exported function promises that the buffer has `len` bytes; with none the pointer is
        // not used.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), entry.buffer, data.len()) };
        Ok(data.len() as i64)
    }

    /// The name is that of a symbolic link, which leads to another file.
    fn follow(&mut self, item: usize) -> Res<i64> {
        // SAFETY: the exported function promises that it is null or a C string.
        let path = unsafe { bytes(self.entries[item].path) }?;
        let shoal_world::Walk::Object(found) = self.session.walk_unnamed(path, true)? else {
            return Err(crate::session::missing());
        };
        match found.attr.kind {
            Kind::File => {}
            Kind::Directory => return Err(failure(libc::EISDIR, "it is a directory")),
            _ => return Err(failure(libc::EINVAL, "it is no regular file")),
        }
        let room = self.entries[item].len;
        let (size, data) = self.session.on(|tree| {
            let file = tree.open(found.attr.handle, Rights::READ)?;
            let size = tree.getattr(found.attr.handle)?.size;
            let data = match usize::try_from(size) {
                Ok(size) if size <= room => Some(file.read(0, size)?),
                _ => None,
            };
            file.close()?;
            Ok((size, data))
        })?;
        self.put(item, size, data)
    }
}

/// Read many files whole: how many were. Each entry has its result. -1: none was tried.
///
/// # Safety
/// `reads` is null or has `count` entries; each path is null or a C string, and each buffer is null or has
/// `len` bytes, which do not overlap those of another.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shoal_read_many(fs: FileSystemId, reads: *mut CReadEntry, count: usize) -> i64 {
    on("shoal_read_many", FileSystem, fs.id, |session, _| {
        // SAFETY: as the caller promises.
        let entries = unsafe { entries(reads, count) }?;
        let tree = session.tree()?;
        entries.iter_mut().for_each(|entry| entry.size = 0);
        let directories = Directories::default();
        let batch = Batch { session, entries, directories, succeeded: 0, failed: None };
        Ok(batch.run("shoal_read_many", |batch, items| {
            let room = |item: usize| batch.entries[item].len;
            let wanted: Vec<_> =
                items.iter().map(|(item, dir, name)| (*dir, name.clone(), room(*item))).collect();
            let all = batch.session.away(|| tree.read_many(&wanted));
            for ((item, ..), read) in items.into_iter().zip(all) {
                let done = match read {
                    Ok((attr, data)) => batch.put(item, attr.size, data),
                    Err(error) if error.status == Status::Loop => batch.follow(item),
                    Err(error) => Err(error.into()),
                };
                batch.end(item, done);
            }
        }))
    })
}

/// Make many files, each with its contents; none may exist. How many were made. Each entry has its result.
/// -1: none was tried.
///
/// # Safety
/// `creates` is null or has `count` entries; each path is null or a C string, and each `data` is null or has
/// `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shoal_create_many(
    fs: FileSystemId,
    creates: *mut CCreateEntry,
    count: usize,
    mode: u32,
) -> i64 {
    on("shoal_create_many", FileSystem, fs.id, |session, _| {
        // SAFETY: as the caller promises.
        let entries = unsafe { entries(creates, count) }?;
        let tree = session.tree()?;
        let directories = Directories::default();
        let batch = Batch { session, entries, directories, succeeded: 0, failed: None };
        Ok(batch.run("shoal_create_many", |batch, items| {
            let file = |(item, dir, name): &(usize, Handle, Name)| {
                let entry = &batch.entries[*item];
                // SAFETY: as the caller promises; its length was checked.
                let data = unsafe { slice(entry.data, entry.len) }.unwrap_or_default();
                NewFile { dir: *dir, name: name.clone(), data: Bytes::copy_from_slice(data) }
            };
            let files: Vec<NewFile> = items.iter().map(file).collect();
            let all = batch.session.away(|| tree.create_many(files, owner(mode)));
            for ((item, ..), made) in items.into_iter().zip(all) {
                let len = batch.entries[item].len as i64;
                batch.end(item, made.map(|_| len).map_err(Into::into));
            }
        }))
    })
}

crate::version::since_1_0! {
    shoal_read_many, shoal_create_many,
}
