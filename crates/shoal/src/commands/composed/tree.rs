//! Copies a tree from one file system to another. Both may be of any kind.
//!
//! Kinds, bytes, modes, times, targets of links and extended attributes of `user.` are kept, and owners where
//! that is allowed. A destination without extended attributes gets none. An object that cannot be copied is
//! named, and the copy of the others continues. A directory that cannot be listed ends the copy. Hard links
//! become files of their own. Times of directories are set at the end, because each copy into a directory
//! changes its times.
//!
//! **A directory under way is held in both file systems.** A file system keeps only so many objects that
//! nothing holds, and a tree may have more (test:
//! `a_tree_of_more_objects_than_a_file_system_keeps_is_packed_and_extracted_whole`).

use anyhow::Result;
use indicatif::ProgressBar;
use shoal_proto::{Attr, Handle, Kind, Name, Owner, Rights, SetAttr, Status};
use shoal_vfs::{Listing, Vfs, VfsFile};
use std::time::Duration;

/// Bytes copied at once.
const COPY_BYTES: usize = 1 << 20;

/// The objects that were copied.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Copied {
    pub(super) files: u64,
    pub(super) directories: u64,
    /// Links, FIFOs, sockets and devices.
    pub(super) others: u64,
    pub(super) bytes: u64,
    /// Objects that could not be copied.
    pub(super) failed: u64,
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
}

/// Copy all that is in a directory into another one.
pub(super) async fn copy<A: Vfs, B: Vfs>(
    from: &A,
    from_dir: Handle,
    to: &B,
    to_dir: Handle,
    bar: &ProgressBar,
) -> Result<Copied> {
    let mut copied = Copied::default();
    let (source, target) = (Held::new(from, from_dir), Held::new(to, to_dir));
    let mut todo = vec![Folder { source, target, path: String::new(), attr: None }];
    let mut folders = Vec::new();
    while let Some(folder) = todo.pop() {
        let mut listing = from.opendir(folder.source.object, Duration::from_secs(10));
        while let Some(listed) = listing.next(true).await? {
            let name = listed.entry.name;
            let path = format!("{}{}", folder.path, String::from_utf8_lossy(name.as_bytes()));
            let attr = match listed.entry.attr {
                Some(attr) => Ok(attr),
                None => from.getattr(listed.entry.handle).await,
            };
            let made = match attr {
                Ok(attr) => {
                    let made = one(from, &attr, to, folder.target.object, &name, &mut copied).await;
                    made.map(|made| (attr, made))
                }
                Err(error) => Err(error),
            };
            bar.inc_length(1);
            bar.inc(1);
            match made {
                Ok((attr, made)) if attr.kind == Kind::Directory => {
                    let (source, target) = (Held::new(from, attr.handle), Held::new(to, made));
                    let (path, attr) = (format!("{path}/"), Some(attr));
                    todo.push(Folder { source, target, path, attr });
                }
                Ok(_) => {}
                Err(error) => {
                    copied.failed += 1;
                    eprintln!("shoal: {path}: {error}");
                }
            }
        }
        folders.push(folder);
    }
    for folder in folders.iter().rev() {
        if let Some(attr) = &folder.attr {
            keep(from, attr, to, folder.target.object).await?;
        }
    }
    Ok(copied)
}

/// Copy one object; a directory is only made.
async fn one<A: Vfs, B: Vfs>(
    from: &A,
    attr: &Attr,
    to: &B,
    dir: Handle,
    name: &Name,
    copied: &mut Copied,
) -> shoal_vfs::Result<Handle> {
    let owner = Owner { mode: attr.mode & 0o7777, uid: attr.uid, gid: attr.gid };
    let made = match attr.kind {
        Kind::Directory => {
            copied.directories += 1;
            let open = Owner { mode: owner.mode | 0o700, ..owner };
            return match to.mkdir(dir, name, open).await {
                Err(error) if error.status == Status::Exists => Ok(to.lookup(dir, name).await?.handle),
                made => Ok(made?.handle),
            };
        }
        Kind::File => {
            let source = from.open(attr.handle, Rights::READ).await?;
            let (made, _, target) = to.create(dir, name, owner, true, Rights::READ | Rights::WRITE).await?;
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
            if to.getattr(made.handle).await?.size < at {
                to.truncate(made.handle, at, false).await?;
            }
            copied.files += 1;
            copied.bytes += at;
            keep(from, attr, to, made.handle).await?;
            source.close().await?;
            target.close().await?;
            return Ok(made.handle);
        }
        Kind::Symlink => {
            let target = from.readlink(attr.handle).await?;
            to.symlink(dir, name, owner, &target).await?.handle
        }
        kind => to.mknod(dir, name, owner, kind, attr.rdev).await?.handle,
    };
    copied.others += 1;
    keep(from, attr, to, made).await?;
    Ok(made)
}

/// Attributes of the source.
async fn keep<A: Vfs, B: Vfs>(from: &A, attr: &Attr, to: &B, made: Handle) -> shoal_vfs::Result<()> {
    if matches!(attr.kind, Kind::File | Kind::Directory) {
        let named = match from.listxattr(attr.handle).await {
            Err(error) if error.status == Status::NotSupported => Vec::new(),
            named => named?,
        };
        for name in named.iter().filter(|name| name.starts_with(b"user.")) {
            let value = from.getxattr(attr.handle, name).await?;
            match to.setxattr(made, name, &value, false, false).await {
                Err(error) if error.status == Status::NotSupported => {}
                set => set?,
            }
        }
    }
    let has_mode = attr.kind != Kind::Symlink;
    let set = SetAttr {
        mode: has_mode.then_some(attr.mode & 0o7777),
        atime: Some(attr.atime),
        mtime: Some(attr.mtime),
        ..SetAttr::default()
    };
    to.setattr(made, set).await.map(drop)
}

#[cfg(test)]
mod tests;
