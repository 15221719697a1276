//! Looks up, makes, removes and moves names.
//!
//! **The kernel gets no negative entries**: for a name that leads nowhere the reply is an error. The kernel
//! would cache an entry without an inode for a while, and answer opens from it.
//!
//! **A file is created only if the name did not exist.** The kernel looks a name up, finds nothing, and
//! requests a creation; if another client was faster, an open of the existing file would bypass the kernel's
//! check of permissions. So every creation is exclusive. If the program did not request an exclusive
//! creation (`O_EXCL`) and the file exists, the reply is `ESTALE`: the kernel then looks the name up again,
//! checks, and opens the file.

use super::attempts::{Found, Refused, TRY_SPAN};
use super::data::rights_of;
use super::{Caller, Errno, Fs, Opening, Result};
use bytes::Bytes;
use shoal_proto::{Attr, Handle, Kind, Name, Owner, Rights};
use shoal_vfs::{RenameFlags, Vfs, VfsFile};
use std::time::Duration;

/// Permission bits of every symbolic link.
const SYMLINK_MODE: u32 = 0o777;

fn name(bytes: &[u8]) -> Result<Name> {
    Name::new(bytes).map_err(Errno::from)
}

/// The kind in `st_mode`'s type bits; none means a regular file.
fn kind_of(mode: u32) -> Result<Kind> {
    match mode & libc::S_IFMT {
        0 | libc::S_IFREG => Ok(Kind::File),
        libc::S_IFIFO => Ok(Kind::Fifo),
        libc::S_IFSOCK => Ok(Kind::Socket),
        libc::S_IFCHR => Ok(Kind::CharDevice),
        libc::S_IFBLK => Ok(Kind::BlockDevice),
        _ => Err(Errno::INVAL),
    }
}

fn owner(caller: Caller, mode: u32) -> Owner {
    Owner { mode: mode & 0o7777, uid: caller.uid, gid: caller.gid }
}

impl<V: Vfs> Fs<V> {
    /// The object of a name, looked up by this thread; and how long that is valid.
    pub async fn lookup(&self, thread: u32, dir: Handle, bytes: &[u8]) -> Result<(Attr, Duration)> {
        let asked_at = self.now();
        let is_doubted = |fs: &Fs<V>| fs.known().name_changed_since(dir, bytes, asked_at);
        let refused = self.attempts.second_try(thread, asked_at);
        let found = match refused.or_else(|| is_doubted(self).then_some(Refused::Open(libc::O_RDONLY))) {
            Some(tried) => {
                let found = self.lookup_again(refused.is_some(), tried, dir, bytes).await;
                found.inspect_err(|_| self.attempts.ended(thread))?
            }
            None => {
                let found = self.vfs.lookup(dir, &name(bytes)?).await;
                let attr = self.saw(self.heard(dir, found)?);
                if self.stat_ahead && self.at_once.ahead.missed(dir, self.now()) {
                    self.list_ahead(dir);
                }
                attr
            }
        };
        let believed = if is_doubted(self) { Duration::ZERO } else { self.cache() };
        Ok((found, believed))
    }

    /// The object of a name, after its former object was gone: a file is opened with the lookup, before it
    /// can be replaced again. In a mount that caches nothing, after a look too: there the kernel looks at a
    /// file before each open, and does not give the purpose of the look. The name of such a file is doubted
    /// for a while if the refusal was this thread's.
    async fn lookup_again(&self, is_own: bool, refused: Refused, dir: Handle, bytes: &[u8]) -> Result<Attr> {
        let (asked_at, name) = (self.now(), name(bytes)?);
        let rights = match refused {
            Refused::Open(flags) => Some(rights_of(flags)),
            Refused::Look => self.cache().is_zero().then_some(Rights::READ),
        };
        if let Some(rights) = rights
            && let Ok(file) = self.vfs.open_name(dir, &name, rights).await
        {
            if is_own {
                self.known().doubt_name(dir, bytes, self.now() + TRY_SPAN);
            }
            let object = file.handle();
            let attr = self.saw(self.heard(object, self.vfs.getattr(object).await)?);
            self.attempts.found(Found { asked_at, attr: attr.clone(), file: Some(file) }, self.now());
            let (env, attempts) = (self.env.clone(), self.attempts.clone());
            self.env.spawn("second try", async move {
                env.sleep(TRY_SPAN).await;
                attempts.forget_old(env.now());
            });
            return Ok(attr);
        }
        // A directory on the way, a link, or an error that the lookup says again.
        let attr = self.saw(self.heard(dir, self.vfs.lookup(dir, &name).await)?);
        if attr.kind == Kind::File {
            self.attempts.found(Found { asked_at, attr: attr.clone(), file: None }, self.now());
        }
        Ok(attr)
    }

    /// Target of a symbolic link.
    pub async fn readlink(&self, object: Handle) -> Result<Bytes> {
        self.heard(object, self.vfs.readlink(object).await)
    }

    /// Make a regular file and open it with `open(2)`'s flags.
    pub async fn create(
        &self,
        caller: Caller,
        dir: Handle,
        bytes: &[u8],
        mode: u32,
        flags: i32,
    ) -> Result<(Attr, Opening)> {
        let (name, rights) = (name(bytes)?, rights_of(flags));
        let made = self.vfs.create(dir, &name, owner(caller, mode), true, rights).await;
        self.name_changed(dir, bytes);
        let (attr, _, file) = made.map_err(|error| match Errno::from(error) {
            Errno(libc::EEXIST) if flags & libc::O_EXCL == 0 => Errno::STALE,
            errno => errno,
        })?;
        self.made(&attr);
        self.vfs.made_without_pages(attr.handle);
        let opening = self.opened(file, flags, false);
        Ok((self.saw(attr), opening))
    }

    /// Make a FIFO, socket, device, or a regular file without opening it. `device`: as `makedev(3)` gives it.
    pub async fn mknod(
        &self,
        caller: Caller,
        dir: Handle,
        bytes: &[u8],
        mode: u32,
        device: u64,
    ) -> Result<Attr> {
        let (name, kind) = (name(bytes)?, kind_of(mode)?);
        let device = if matches!(kind, Kind::CharDevice | Kind::BlockDevice) { device } else { 0 };
        let made = self.vfs.mknod(dir, &name, owner(caller, mode), kind, device).await;
        self.name_changed(dir, bytes);
        let attr = made?;
        self.made(&attr);
        Ok(self.saw(attr))
    }

    /// Make a directory.
    pub async fn mkdir(&self, caller: Caller, dir: Handle, bytes: &[u8], mode: u32) -> Result<Attr> {
        let made = self.vfs.mkdir(dir, &name(bytes)?, owner(caller, mode)).await;
        self.name_changed(dir, bytes);
        self.directory_changed(dir);
        let attr = made?;
        self.made(&attr);
        Ok(self.saw(attr))
    }

    /// Make a symbolic link.
    pub async fn symlink(&self, caller: Caller, dir: Handle, bytes: &[u8], target: &[u8]) -> Result<Attr> {
        let made = self.vfs.symlink(dir, &name(bytes)?, owner(caller, SYMLINK_MODE), target).await;
        self.name_changed(dir, bytes);
        let attr = made?;
        self.made(&attr);
        Ok(self.saw(attr))
    }

    /// A further name of a file.
    pub async fn link(&self, object: Handle, dir: Handle, bytes: &[u8]) -> Result<Attr> {
        let linked = self.vfs.link(object, dir, &name(bytes)?).await;
        self.name_changed(dir, bytes);
        self.directory_changed(dir);
        // Also where it failed: it may have been made, and an object that is gone is not kept.
        self.changed(object);
        let attr = linked?;
        Ok(self.saw(attr))
    }

    /// Remove an entry that is no directory.
    pub async fn unlink(&self, dir: Handle, bytes: &[u8]) -> Result<()> {
        let removed = self.vfs.unlink(dir, &name(bytes)?).await;
        self.name_taken(dir, bytes);
        Ok(removed?)
    }

    /// Remove an empty directory.
    pub async fn rmdir(&self, dir: Handle, bytes: &[u8]) -> Result<()> {
        let removed = self.vfs.rmdir(dir, &name(bytes)?).await;
        self.name_taken(dir, bytes);
        self.directories_changed();
        Ok(removed?)
    }

    /// Move an entry. `flags`: those of `renameat2(2)`.
    pub async fn rename(&self, from: (Handle, &[u8]), to: (Handle, &[u8]), flags: u32) -> Result<()> {
        let flags = rename_flags(flags)?;
        let renamed = self.vfs.rename(from.0, &name(from.1)?, to.0, &name(to.1)?, flags).await;
        self.name_taken(from.0, from.1);
        self.name_taken(to.0, to.1);
        self.directories_changed();
        Ok(renamed?)
    }

    /// A name leads elsewhere, or perhaps. Recorded before the kernel gets the answer: it requests no listing
    /// of a directory while it changes names in it.
    fn name_changed(&self, dir: Handle, bytes: &[u8]) {
        self.known().name_changed(dir, bytes, self.now());
    }

    /// A name was removed from its object, or perhaps.
    fn name_taken(&self, dir: Handle, bytes: &[u8]) {
        self.known().name_taken(dir, bytes, self.now());
    }

    /// The directory that an entry led to was changed too, and only the server knows which it is.
    fn directories_changed(&self) {
        self.at_once.directories.some_changed(self.now());
    }

    /// A new object has no extended attributes.
    fn made(&self, attr: &Attr) {
        let mut known = self.known();
        let mark = known.xattr_mark();
        known.saw_bare(attr.handle, mark, self.now());
    }
}

fn rename_flags(flags: u32) -> Result<RenameFlags> {
    let (no_replace, exchange) = (flags & libc::RENAME_NOREPLACE != 0, flags & libc::RENAME_EXCHANGE != 0);
    let others = flags & !(libc::RENAME_NOREPLACE | libc::RENAME_EXCHANGE);
    if others != 0 || (no_replace && exchange) {
        return Err(Errno::INVAL);
    }
    Ok(RenameFlags { no_replace, exchange })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rename_that_is_not_offered_is_refused() {
        assert_eq!(rename_flags(0), Ok(RenameFlags::default()));
        assert!(rename_flags(libc::RENAME_NOREPLACE).unwrap().no_replace);
        assert!(rename_flags(libc::RENAME_EXCHANGE).unwrap().exchange);
        assert_eq!(rename_flags(libc::RENAME_WHITEOUT), Err(Errno::INVAL));
        assert_eq!(rename_flags(libc::RENAME_NOREPLACE | libc::RENAME_EXCHANGE), Err(Errno::INVAL));
    }

    #[test]
    fn only_kinds_that_mknod_makes_are_made() {
        assert_eq!(kind_of(0o644), Ok(Kind::File));
        for kind in [Kind::File, Kind::Fifo, Kind::Socket, Kind::CharDevice, Kind::BlockDevice] {
            assert_eq!(kind_of(kind.mode_bits() | 0o644), Ok(kind));
        }
        assert_eq!(kind_of(Kind::Directory.mode_bits()), Err(Errno::INVAL));
    }

    #[test]
    fn names_the_wire_does_not_take_are_refused_with_their_number() {
        assert_eq!(name(&[b'x'; 256]).unwrap_err(), Errno(libc::ENAMETOOLONG));
        assert_eq!(name(b"a/b").unwrap_err(), Errno::INVAL);
        assert!(name(b"\xff\xfe").is_ok());
    }
}
