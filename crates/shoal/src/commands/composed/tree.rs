//! Copies a tree from one file system to another. Both may be of any kind.
//!
//! Kinds, bytes, modes, times, targets of links and extended attributes of `user.` are kept, and owners where
//! that is allowed. A destination without extended attributes gets none. An object that cannot be copied is
//! named, and the copy of the others continues. A directory that cannot be listed ends the copy. Hard links
//! become files of their own. Times of directories are set at the end, because each copy into a directory
//! changes its times.
//!
//! **A file has its name only when it is whole.** It is made by another name ([`aside`]) and then renamed,
//! unless the target makes files of its size whole ([`Target::whole_bytes_max`]). So a copy that was killed
//! can be repeated: a file of the same size and modification time is whole, and is skipped; another one is
//! replaced (test: `a_copy_that_was_killed_is_completed_and_what_is_equal_is_not_copied_again`).
//!
//! **A directory under way is held in both file systems.** A file system keeps only so many objects that
//! nothing holds, and a tree may have more (test:
//! `a_tree_of_more_objects_than_a_file_system_keeps_is_packed_and_extracted_whole`).

use anyhow::Result;
use bytes::Bytes;
use indicatif::ProgressBar;
use shoal_proto::{Attr, Handle, Kind, Name, Owner, Rights, SetAttr, Status};
use shoal_transform::Composed;
use shoal_vfs::{Error, Listing, Local, RenameFlags, Vfs, VfsFile};
use std::collections::BTreeSet;
use std::time::Duration;

/// Bytes copied at once.
const COPY_BYTES: usize = 1 << 20;
/// The name of a file that is not whole begins so.
const ASIDE: &[u8] = b".shoal-copy.";

/// The objects that were copied.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Copied {
    pub(super) files: u64,
    pub(super) directories: u64,
    /// Links, FIFOs, sockets and devices.
    pub(super) others: u64,
    pub(super) bytes: u64,
    /// Objects that were there already, and equal. Directories are not counted.
    pub(super) skipped: u64,
    /// Objects that could not be copied.
    pub(super) failed: u64,
}

/// A file system that is copied to.
pub(super) trait Target: Vfs {
    /// A new file of so many bytes is never there in part if [`Vfs::create_write`] makes it.
    fn whole_bytes_max(&self) -> usize {
        0
    }
}

impl Target for Local {}

impl<B: Vfs> Target for Composed<B> {
    fn whole_bytes_max(&self) -> usize {
        Composed::whole_bytes_max(self)
    }
}

/// An object that its file system keeps known until this is dropped.
struct Held<V: Vfs> {
    vfs: V,
    object: Handle,
}

impl<V: Vfs> Held<V> {
    fn new(vfs: &V, object: Handle) -> Held<V> {
        vfs.referred(object);
        Held { vfs: vfs.clone(), object }
    }
}

impl<V: Vfs> Drop for Held<V> {
    fn drop(&mut self) {
        self.vfs.forgotten(self.object, 1);
    }
}

/// A directory and its copy.
struct Folder<A: Vfs, B: Vfs> {
    source: Held<A>,
    target: Held<B>,
    /// The path of what is in it, from the root of the copy.
    path: String,
    /// The attributes that the copy gets at the end, unless it is the root.
    attr: Option<Attr>,
    /// The copy was there before.
    was_there: bool,
}

/// The name by which an object is made that is to have this name: the same one in each try, so a later copy
/// replaces what a killed one left.
fn aside(name: &Name) -> shoal_vfs::Result<Name> {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for byte in name.as_bytes() {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    }
    let text = [ASIDE, format!("{hash:016x}").as_bytes()].concat();
    Name::new(&text).map_err(|status| Error::new(status, "create"))
}

/// Whether a name is of a file that a killed copy left.
fn is_left_over(name: &Name) -> bool {
    let rest = name.as_bytes().strip_prefix(ASIDE);
    rest.is_some_and(|rest| rest.len() == 16 && rest.iter().all(u8::is_ascii_hexdigit))
}

/// Copy all that is in a directory into another one.
pub(super) async fn copy<A: Vfs, B: Target>(
    from: &A,
    from_dir: Handle,
    to: &B,
    to_dir: Handle,
    bar: &ProgressBar,
) -> Result<Copied> {
    let mut copy = Copy { from, to, copied: Copied::default() };
    let (source, target) = (Held::new(from, from_dir), Held::new(to, to_dir));
    let mut todo = vec![Folder { source, target, path: String::new(), attr: None, was_there: true }];
    let mut folders = Vec::new();
    while let Some(folder) = todo.pop() {
        // A directory that is new has no names that could be in the way: none is looked for.
        let there = if folder.was_there { to.names(folder.target.object).await? } else { Vec::new() };
        let there: BTreeSet<Name> = there.into_iter().collect();
        let mut listing = from.opendir(folder.source.object, Duration::from_secs(10));
        while let Some(listed) = listing.next(true).await? {
            let name = listed.entry.name;
            if is_left_over(&name) {
                continue;
            }
            let path = format!("{}{}", folder.path, String::from_utf8_lossy(name.as_bytes()));
            let attr = match listed.entry.attr {
                Some(attr) => Ok(attr),
                None => from.getattr(listed.entry.handle).await,
            };
            let made = match attr {
                Ok(attr) => {
                    let spot = Spot { dir: folder.target.object, name: &name };
                    let made = copy.one(&attr, spot, there.contains(&name)).await;
                    made.map(|made| (attr, made))
                }
                Err(error) => Err(error),
            };
            bar.inc_length(1);
            bar.inc(1);
            match made {
                Ok((attr, Some((target, was_there)))) => {
                    let source = Held::new(from, attr.handle);
                    let (path, attr) = (format!("{path}/"), Some(attr));
                    todo.push(Folder { source, target, path, attr, was_there });
                }
                Ok(_) => {}
                Err(error) => {
                    copy.copied.failed += 1;
                    eprintln!("shoal: {path}: {error}");
                }
            }
        }
        folders.push(folder);
    }
    for folder in folders.iter().rev() {
        if let Some(attr) = &folder.attr {
            copy.keep(attr, folder.target.object).await?;
        }
    }
    Ok(copy.copied)
}

/// A name in a directory of the target.
#[derive(Clone, Copy)]
struct Spot<'a> {
    dir: Handle,
    name: &'a Name,
}

struct Copy<'a, A, B> {
    from: &'a A,
    to: &'a B,
    copied: Copied,
}

fn owner(attr: &Attr) -> Owner {
    Owner { mode: attr.mode & 0o7777, uid: attr.uid, gid: attr.gid }
}

/// An object is in the place of a directory, or a directory in that of another object.
fn in_the_way(there: &Attr) -> Error {
    let is_dir = there.kind == Kind::Directory;
    let status = if is_dir { Status::IsDirectory } else { Status::NotDirectory };
    let words = format!("a {} of this name is in the target: remove it first", there.kind.word());
    Error::new(status, "copy").of(there.handle).because(words)
}

impl<A: Vfs, B: Target> Copy<'_, A, B> {
    /// Copy one object. A directory is only made; it is returned, and whether it was there.
    async fn one(
        &mut self,
        attr: &Attr,
        spot: Spot<'_>,
        is_there: bool,
    ) -> shoal_vfs::Result<Option<(Held<B>, bool)>> {
        if attr.kind == Kind::Directory {
            self.copied.directories += 1;
            return self.directory(attr, spot).await.map(Some);
        }
        let there = match is_there {
            true => self.look(spot).await?,
            false => None,
        };
        if let Some(there) = &there {
            if there.kind == Kind::Directory {
                return Err(in_the_way(there));
            }
            if self.is_equal(attr, there).await? {
                self.copied.skipped += 1;
                if attr.kind == Kind::File && (there.mode ^ attr.mode) & 0o7777 != 0 {
                    self.set(attr, there.handle).await?;
                }
                return Ok(None);
            }
        }
        match attr.kind {
            Kind::File => {
                self.copied.bytes += self.file(attr, spot, there.is_some()).await?;
                self.copied.files += 1;
            }
            _ => {
                self.other(attr, spot, there.is_some()).await?;
                self.copied.others += 1;
            }
        }
        Ok(None)
    }

    async fn look(&self, spot: Spot<'_>) -> shoal_vfs::Result<Option<Attr>> {
        match self.to.lookup(spot.dir, spot.name).await {
            Err(error) if error.status == Status::NotFound => Ok(None),
            found => found.map(Some),
        }
    }

    async fn is_equal(&self, attr: &Attr, there: &Attr) -> shoal_vfs::Result<bool> {
        Ok(match attr.kind {
            kind if kind != there.kind => false,
            Kind::File => (attr.size, attr.mtime) == (there.size, there.mtime),
            Kind::Symlink => self.from.readlink(attr.handle).await? == self.to.readlink(there.handle).await?,
            _ => attr.rdev == there.rdev,
        })
    }

    async fn directory(&self, attr: &Attr, spot: Spot<'_>) -> shoal_vfs::Result<(Held<B>, bool)> {
        // While it is filled its owner may write into it, whatever its mode will be.
        let open = Owner { mode: attr.mode & 0o7777 | 0o700, ..owner(attr) };
        match self.to.mkdir(spot.dir, spot.name, open).await {
            Err(error) if error.status == Status::Exists => {}
            made => return Ok((Held::new(self.to, made?.handle), false)),
        }
        let there = self.to.lookup(spot.dir, spot.name).await?;
        if there.kind != Kind::Directory {
            return Err(in_the_way(&there));
        }
        let held = Held::new(self.to, there.handle);
        if there.mode & 0o700 != 0o700 {
            let mode = Some(there.mode & 0o7777 | 0o700);
            self.to.setattr(there.handle, SetAttr { mode, ..SetAttr::default() }).await?;
        }
        Ok((held, true))
    }

    /// Copy a file. Its bytes.
    async fn file(&self, attr: &Attr, spot: Spot<'_>, is_there: bool) -> shoal_vfs::Result<u64> {
        let source = self.from.open(attr.handle, Rights::READ).await?;
        let whole = self.to.whole_bytes_max();
        if !is_there && attr.size <= whole as u64 {
            let data = source.read(0, whole + 1).await?;
            // Zeros may be a hole.
            let is_whole = data.len() <= whole && (data.is_empty() || data.iter().any(|byte| *byte != 0));
            if is_whole && self.make_whole(attr, spot, &data).await? {
                source.close().await?;
                return Ok(data.len() as u64);
            }
        }
        let name = aside(spot.name)?;
        let rights = Rights::READ | Rights::WRITE;
        let (made, target) = match self.to.create(spot.dir, &name, owner(attr), true, rights).await {
            Err(error) if error.status == Status::Exists => {
                self.to.unlink(spot.dir, &name).await?;
                let (made, _, target) = self.to.create(spot.dir, &name, owner(attr), true, rights).await?;
                (made.handle, target)
            }
            made => made.map(|(made, _, target)| (made.handle, target))?,
        };
        let _held = Held::new(self.to, made);
        let filled = self.fill(attr, source, made, target).await;
        self.give_name(filled, &name, spot).await
    }

    /// Make a file with all its bytes, unless it is there.
    async fn make_whole(&self, attr: &Attr, spot: Spot<'_>, data: &Bytes) -> shoal_vfs::Result<bool> {
        match self.to.create_write(spot.dir, spot.name, owner(attr), data.clone()).await {
            Err(error) if error.status == Status::Exists => Ok(false),
            made => self.keep(attr, made?.handle).await.map(|()| true),
        }
    }

    /// Copy the bytes and attributes of a file. How many bytes.
    async fn fill(
        &self,
        attr: &Attr,
        source: A::File,
        made: Handle,
        target: B::File,
    ) -> shoal_vfs::Result<u64> {
        let mut at = 0;
        loop {
            let bytes = source.read(at, COPY_BYTES).await?;
            if bytes.is_empty() {
                break;
            }
            let len = bytes.len() as u64;
            // Zeros at the end of what was read may be a hole.
            if bytes.iter().any(|byte| *byte != 0) {
                target.write(at, bytes).await?;
            }
            at += len;
        }
        if self.to.getattr(made).await?.size < at {
            self.to.truncate(made, at, false).await?;
        }
        source.close().await?;
        self.keep(attr, made).await?;
        target.close().await?;
        Ok(at)
    }

    /// Copy an object that is neither a file nor a directory.
    async fn other(&self, attr: &Attr, spot: Spot<'_>, is_there: bool) -> shoal_vfs::Result<()> {
        if !is_there {
            match self.make_other(attr, spot.dir, spot.name).await {
                Err(error) if error.status == Status::Exists => {}
                made => return self.keep(attr, made?).await,
            }
        }
        let name = aside(spot.name)?;
        let made = match self.make_other(attr, spot.dir, &name).await {
            Err(error) if error.status == Status::Exists => {
                self.to.unlink(spot.dir, &name).await?;
                self.make_other(attr, spot.dir, &name).await?
            }
            made => made?,
        };
        let kept = self.keep(attr, made).await;
        self.give_name(kept, &name, spot).await
    }

    async fn make_other(&self, attr: &Attr, dir: Handle, name: &Name) -> shoal_vfs::Result<Handle> {
        let made = match attr.kind {
            Kind::Symlink => {
                let target = self.from.readlink(attr.handle).await?;
                self.to.symlink(dir, name, owner(attr), &target).await?
            }
            kind => self.to.mknod(dir, name, owner(attr), kind, attr.rdev).await?,
        };
        Ok(made.handle)
    }

    /// Give what was made aside its name, or remove it if that failed.
    async fn give_name<T>(
        &self,
        made: shoal_vfs::Result<T>,
        aside: &Name,
        spot: Spot<'_>,
    ) -> shoal_vfs::Result<T> {
        let Spot { dir, name } = spot;
        let done = match made {
            Ok(made) => self.to.rename(dir, aside, dir, name, RenameFlags::default()).await.map(|()| made),
            failed => failed,
        };
        if done.is_err() {
            drop(self.to.unlink(dir, aside).await);
        }
        done
    }

    /// Extended attributes of the source, its mode and its times. The times are last: an object that has them
    /// has all.
    async fn keep(&self, attr: &Attr, made: Handle) -> shoal_vfs::Result<()> {
        if matches!(attr.kind, Kind::File | Kind::Directory) {
            let named = match self.from.listxattr(attr.handle).await {
                Err(error) if error.status == Status::NotSupported => Vec::new(),
                named => named?,
            };
            for name in named.iter().filter(|name| name.starts_with(b"user.")) {
                let value = self.from.getxattr(attr.handle, name).await?;
                match self.to.setxattr(made, name, &value, false, false).await {
                    Err(error) if error.status == Status::NotSupported => {}
                    set => set?,
                }
            }
        }
        self.set(attr, made).await
    }

    async fn set(&self, attr: &Attr, made: Handle) -> shoal_vfs::Result<()> {
        let has_mode = attr.kind != Kind::Symlink;
        let set = SetAttr {
            mode: has_mode.then_some(attr.mode & 0o7777),
            atime: Some(attr.atime),
            mtime: Some(attr.mtime),
            ..SetAttr::default()
        };
        self.to.setattr(made, set).await.map(drop)
    }
}

#[cfg(test)]
mod tests;
