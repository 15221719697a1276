//! A file system: objects, and names that lead to them.

use crate::{Error, ForkedFile, Listed, NewFile, Opened, RenameFlags, Result, Space, VfsFile, many, path};
use bytes::Bytes;
use shoal_env::{Env, Instant};
use shoal_proto::op::XattrName;
use shoal_proto::{Attr, Dist, Handle, Kind, Name, Owner, Rights, SetAttr, Status};
use std::time::Duration;

/// How a file system is reached. It is sent to the thread on which the file system then lives.
#[allow(async_fn_in_trait, reason = "a file system never leaves its thread")]
pub trait Connect: Send + 'static {
    /// The file system.
    type Vfs: Vfs;

    /// Under a mount the kernel keeps names and attributes: the file system is to keep none beside.
    /// `read_only`: nothing will be changed.
    fn under_a_kernel(&mut self, read_only: bool);

    /// Reach it. Its root has been seen when this returns.
    ///
    /// # Errors
    /// Why it cannot be reached, and what to do.
    async fn connect(self, env: Env) -> Result<Self::Vfs>;
}

/// A listing of a directory under way; `.` and `..` are not in it.
#[allow(async_fn_in_trait, reason = "a file system never leaves its thread")]
pub trait Listing: 'static {
    /// The next entry; `None` at the end. With `plus` it has its attributes, unless it is gone meanwhile, or
    /// [`Listed::is_unknown`].
    ///
    /// An entry that is there from the beginning of a listing to its end comes exactly once, whatever else is
    /// made and removed; others at most once.
    ///
    /// # Errors
    /// `NotDirectory`; `Stale`: the directory is gone.
    async fn next(&mut self, plus: bool) -> Result<Option<Listed>>;

    /// Continue after a place.
    fn seek(&mut self, place: u64);
}

/// A file system. Cheap to clone; a clone is the same file system. See the crate's page.
#[allow(async_fn_in_trait, reason = "a file system never leaves its thread")]
pub trait Vfs: Clone + 'static {
    /// Its open files.
    type File: VfsFile;
    /// Its listings.
    type Listing: Listing;

    /// Whether it counts the references of a kernel to all objects ([`Vfs::referred`], [`Vfs::forgotten`]).
    const HEARS_REFERENCES: bool = false;

    /// Whether it has locks that hold over all its clients ([`VfsFile::lock`]). Otherwise a kernel keeps its
    /// own, which hold within one mount.
    const HAS_LOCKS: bool = false;

    /// Whether bytes for which a write returned outlive the process, in the order of the writes over all its
    /// files. Otherwise only those do that a sync, a flush or a close published, and each file by itself.
    fn outlives_its_process(&self) -> bool {
        true
    }

    /// The object of a name in a directory. A symbolic link is not followed.
    ///
    /// # Errors
    /// `NotFound`, `NotDirectory`; `Stale`: the directory is gone.
    async fn lookup(&self, dir: Handle, name: &Name) -> Result<Attr>;

    /// Attributes of an object; also of one without a name that is open.
    ///
    /// # Errors
    /// `Stale`: it is gone.
    async fn getattr(&self, object: Handle) -> Result<Attr>;

    /// Change attributes; the attributes after.
    ///
    /// # Errors
    /// `Stale`, `NotPermitted`, `ReadOnly`.
    async fn setattr(&self, object: Handle, set: SetAttr) -> Result<Attr>;

    /// Set a file's size. `kill_privileges`: clear set-user-id and set-group-id too.
    ///
    /// # Errors
    /// `Stale`, `IsDirectory`, `FileTooBig`, `NoSpace`.
    async fn truncate(&self, object: Handle, size: u64, kill_privileges: bool) -> Result<Attr>;

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// `Invalid`: it is no link; `Stale`.
    async fn readlink(&self, object: Handle) -> Result<Bytes>;

    /// Make a regular file and open it; without `exclusive`, an existing one is opened. The attributes,
    /// whether it was made, and the open file.
    ///
    /// # Errors
    /// `Exists` (exclusive), `IsDirectory`, `NotDirectory`, `Stale`, `NoSpace`; `Loop`: the name is a
    /// symbolic link.
    async fn create(
        &self,
        dir: Handle,
        name: &Name,
        owner: Owner,
        exclusive: bool,
        rights: Rights,
    ) -> Result<(Attr, bool, Self::File)>;

    /// Make a file that must not exist, with these contents.
    ///
    /// # Errors
    /// As [`Vfs::create`] and [`VfsFile::write`]; after an error the file may be there, in part.
    async fn create_write(&self, dir: Handle, name: &Name, owner: Owner, data: Bytes) -> Result<Attr> {
        let (attr, _, file) = self.create(dir, name, owner, true, Rights::WRITE).await?;
        if !data.is_empty() {
            file.write(0, data).await?;
        }
        file.close().await?;
        Ok(attr)
    }

    /// Make a file without opening it, a FIFO, a socket or a device.
    ///
    /// # Errors
    /// As [`Vfs::create`].
    async fn mknod(&self, dir: Handle, name: &Name, owner: Owner, kind: Kind, device: u64) -> Result<Attr>;

    /// Make a directory.
    ///
    /// # Errors
    /// As [`Vfs::create`].
    async fn mkdir(&self, dir: Handle, name: &Name, owner: Owner) -> Result<Attr>;

    /// Make a forked file: a directory whose entries are its subfiles, all of them at once or none.
    ///
    /// # Errors
    /// As [`Vfs::create`]; `Invalid`: the number of subfiles, or a server; `NotSupported`.
    async fn mkforked(&self, dir: Handle, _: &Name, _: Owner, _: &ForkedFile) -> Result<Attr> {
        let words = "this file system has no forked files: use one of ShoalFS's own";
        Err(Error::new(Status::NotSupported, "mkforked").of(dir).because(words))
    }

    /// Make a symbolic link.
    ///
    /// # Errors
    /// As [`Vfs::create`]; `NameTooLong`: the target.
    async fn symlink(&self, dir: Handle, name: &Name, owner: Owner, target: &[u8]) -> Result<Attr>;

    /// A further name of a file.
    ///
    /// # Errors
    /// `NotPermitted`: a directory; `TooManyLinks`; as [`Vfs::create`].
    async fn link(&self, object: Handle, dir: Handle, name: &Name) -> Result<Attr>;

    /// Remove an entry that is no directory.
    ///
    /// # Errors
    /// `NotFound`, `IsDirectory`, `Stale`.
    async fn unlink(&self, dir: Handle, name: &Name) -> Result<()>;

    /// Make many files without opening them; of each its attributes, or why it was not made.
    async fn make_many(&self, entries: &[(Handle, Name)], owner: Owner) -> Vec<Result<Attr>> {
        let mut made = Vec::with_capacity(entries.len());
        for (dir, name) in entries {
            made.push(self.mknod(*dir, name, owner, Kind::File, 0).await);
        }
        made
    }

    /// Make many files that must not exist, with their contents; of each its attributes, or why it was not
    /// made ([`Vfs::create_write`]). The size in them may be that of before its contents.
    async fn create_many(&self, files: Vec<NewFile>, owner: Owner) -> Vec<Result<Attr>> {
        many::create(self, files, owner).await
    }

    /// Read many files whole: of each name its attributes and contents, or why it was not read. A file of
    /// more bytes than stand beside its name has no contents. A symbolic link is not followed (`Loop`).
    async fn read_many(&self, entries: &[(Handle, Name, usize)]) -> Vec<Result<(Attr, Option<Bytes>)>> {
        many::read(self, entries).await
    }

    /// Remove many entries that are no directories; of each whether it was.
    async fn unlink_many(&self, entries: &[(Handle, Name)]) -> Vec<Result<()>> {
        let mut removed = Vec::with_capacity(entries.len());
        for (dir, name) in entries {
            removed.push(self.unlink(*dir, name).await);
        }
        removed
    }

    /// Open the files that many names lead to; of each the open file, or why it was not opened.
    async fn open_many(&self, entries: &[(Handle, Name)], rights: Rights) -> Vec<Result<Self::File>> {
        let mut opened = Vec::with_capacity(entries.len());
        for (dir, name) in entries {
            opened.push(self.open_name(*dir, name, rights).await);
        }
        opened
    }

    /// Close many files; of each the errors of its close.
    async fn close_many(&self, files: Vec<Self::File>) -> Vec<Result<()>> {
        let mut closed = Vec::with_capacity(files.len());
        for file in files {
            closed.push(file.close().await);
        }
        closed
    }

    /// Servers that can hold a subfile of a forked file.
    fn subfile_servers(&self) -> usize {
        0
    }

    /// Remove an empty directory.
    ///
    /// # Errors
    /// `NotFound`, `NotDirectory`, `NotEmpty`, `Stale`.
    async fn rmdir(&self, dir: Handle, name: &Name) -> Result<()>;

    /// Remove a forked file that has no forks, with all its subfiles; `file`: the file that the name must
    /// lead to. By default one by one: a fork that is made in it meanwhile leaves it without some of its
    /// subfiles.
    ///
    /// # Errors
    /// `NotFound`: the name does not lead to it; `Invalid`: it is no forked file; `NotEmpty`: a subfile has
    /// forks.
    async fn rmforked(&self, dir: Handle, name: &Name, file: Handle) -> Result<()> {
        rmforked_singly(self, dir, name, file).await
    }

    /// Move an entry; by default it replaces its target.
    ///
    /// # Errors
    /// `NotFound`, `NotEmpty`, `IsDirectory`, `NotDirectory`; `Exists` (no replace); `Invalid`: a directory
    /// into itself.
    async fn rename(
        &self,
        from: Handle,
        from_name: &Name,
        to: Handle,
        to_name: &Name,
        flags: RenameFlags,
    ) -> Result<()>;

    /// Open a file. An open sees all writes that returned before it, as far as the file system promises.
    ///
    /// # Errors
    /// `Stale`: it is gone; `IsDirectory`.
    async fn open(&self, object: Handle, rights: Rights) -> Result<Self::File> {
        Ok(self.open_past_pages(object, rights).await?.file)
    }

    /// Open a file for use past a kernel's pages.
    ///
    /// # Errors
    /// As [`Vfs::open`].
    async fn open_past_pages(&self, object: Handle, rights: Rights) -> Result<OpenedOf<Self>>;

    /// Open a file for use through a kernel's pages; with the facts that decide whether those stay.
    ///
    /// # Errors
    /// As [`Vfs::open`].
    async fn open_pages(&self, object: Handle, rights: Rights) -> Result<OpenedOf<Self>> {
        self.open_past_pages(object, rights).await
    }

    /// Open again a file that is open here, though it was removed.
    ///
    /// # Errors
    /// `Stale`: it is gone.
    async fn open_held(&self, object: Handle, rights: Rights) -> Result<Self::File> {
        self.open(object, rights).await
    }

    /// Open the file that a name leads to at that moment.
    ///
    /// # Errors
    /// As [`Vfs::lookup`] and [`Vfs::open`]; `Loop`: the name is a symbolic link.
    async fn open_name(&self, dir: Handle, name: &Name, rights: Rights) -> Result<Self::File> {
        let attr = self.lookup(dir, name).await?;
        if attr.kind == Kind::Symlink {
            return Err(Error::new(Status::Loop, "open").of(attr.handle));
        }
        self.open(attr.handle, rights).await
    }

    /// Whether a file is open here.
    fn has_open(&self, object: Handle) -> bool;

    /// List a directory from its start. Attributes that do not come within `patience` are left out.
    fn opendir(&self, dir: Handle, patience: Duration) -> Self::Listing;

    /// The names in a directory, in any order, without their attributes: one that has very many takes as much
    /// memory.
    ///
    /// # Errors
    /// As [`Listing::next`].
    async fn names(&self, dir: Handle) -> Result<Vec<Name>> {
        let (mut listing, mut names) = (self.opendir(dir, Duration::ZERO), Vec::new());
        while let Some(listed) = listing.next(false).await? {
            names.push(listed.entry.name);
        }
        Ok(names)
    }

    /// The value of an extended attribute.
    ///
    /// # Errors
    /// `NoAttribute`, `NotSupported`, `Stale`.
    async fn getxattr(&self, object: Handle, name: &[u8]) -> Result<Bytes>;

    /// Set an extended attribute. `create`: it must be new; `replace`: it must be there.
    ///
    /// # Errors
    /// `Exists`, `NoAttribute`, `NoSpace`, `TooBig`, `NotSupported`, `Stale`.
    async fn setxattr(
        &self,
        object: Handle,
        name: &[u8],
        value: &[u8],
        create: bool,
        replace: bool,
    ) -> Result<()>;

    /// The names of an object's extended attributes.
    ///
    /// # Errors
    /// `NotSupported`, `Stale`.
    async fn listxattr(&self, object: Handle) -> Result<Vec<XattrName>>;

    /// Remove an extended attribute.
    ///
    /// # Errors
    /// `NoAttribute`, `NotSupported`, `Stale`.
    async fn removexattr(&self, object: Handle, name: &[u8]) -> Result<()>;

    /// Make a directory durable: its entries, its attributes, and the objects that were made with its
    /// entries.
    ///
    /// # Errors
    /// `Stale`; `Io`: some of it was lost.
    async fn fsync_directory(&self, dir: Handle) -> Result<()>;

    /// Make everything durable.
    ///
    /// # Errors
    /// The first that occurs; the rest is tried all the same.
    async fn sync_all(&self) -> Result<()>;

    /// Its space.
    ///
    /// # Errors
    /// Errors of the file system.
    async fn statfs(&self) -> Result<Space>;

    /// Whether only processes of this machine use it, and each sees at once what another one wrote; `None`:
    /// the file system has a rule of its own for that.
    ///
    /// # Errors
    /// Errors of the file system.
    async fn is_of_this_machine(&self) -> Result<Option<bool>> {
        Ok(None)
    }

    /// End: what was written stays; nothing can be called any more.
    async fn close(&self);

    /// The deadline of a request made now.
    fn deadline(&self) -> Instant;

    /// Do `work` as one call of a program, which began now: all requests in it end by one time limit.
    /// `thread`: the program's, for [`Vfs::hear_interrupts`]; 0 for a call that cannot be interrupted.
    fn call<F: Future<Output = ()> + Unpin + 'static>(
        &self,
        thread: u32,
        work: F,
    ) -> impl Future<Output = ()> + use<Self, F> + 'static;

    /// Do `work`, all of whose requests to servers end by `deadline` at the latest, each with an error that
    /// names its server. Where a file system has no servers nothing ends `work`.
    fn until<F: Future + Unpin>(&self, _deadline: Instant, work: F) -> impl Future<Output = F::Output> {
        work
    }

    /// The place of new entries of a name, where names lie on several backends: a rename between names of one
    /// place is one rename there.
    fn place_of(&self, _name: &Name) -> u32 {
        0
    }

    /// Whether a listing's attributes cost less than asking for each.
    fn lists_attributes(&self) -> bool {
        true
    }

    /// Whether it pays to list a directory ahead of lookups in it.
    fn lists_ahead(&self) -> bool {
        false
    }

    /// Have calls interrupted: `is_interrupted` is asked about the threads of calls that wait long.
    fn hear_interrupts(&self, _is_interrupted: impl Fn(u32) -> bool + 'static) {}

    /// Have the attributes of directories reported after changes of their entries by this file system's
    /// callers: the directory, the moment at which the change was requested, and the attributes, if they are
    /// known.
    fn hear_directories(&self, _listener: impl Fn(Handle, Instant, Option<&Attr>) + 'static) {}

    /// Have objects reported that lost a name by a call here.
    fn hear_removals(&self, _listener: impl Fn(Handle) + 'static) {}

    /// Keep account of the pages that a kernel has of files; those that others change are reported.
    fn keep_pages(&self, _listener: impl Fn(Handle) + 'static) {}

    /// A file was just made: a kernel has no pages of it.
    fn made_without_pages(&self, _object: Handle) {}

    /// A kernel's pages of a file are not valid any more.
    fn spoil_pages(&self, _object: Handle) {}

    /// Whether it counts the kernel's references to this object. Always so where it counts those to all.
    fn counts_references(_object: Handle) -> bool {
        Self::HEARS_REFERENCES
    }

    /// A kernel received this object once more in answer to a name ([`Vfs::counts_references`]).
    fn referred(&self, _object: Handle) {}

    /// A kernel has forgotten so many of those answers.
    fn forgotten(&self, _object: Handle, _answers: u64) {}

    /// The object of a path from the root, symbolic links on the way followed; the last one with
    /// `follow_last`.
    ///
    /// # Errors
    /// As [`Vfs::lookup`]; `Loop`: too many links.
    async fn walk_path(&self, path: &[u8], follow_last: bool) -> Result<Attr> {
        path::walk(self, path, follow_last, false).await
    }

    /// The same of a path that must stay in the file system: a `..` at the root does not lead to the root.
    ///
    /// # Errors
    /// As [`Vfs::walk_path`]; `CrossDevice`: the path, or a link on it, leads out by `..`.
    async fn walk_inside(&self, path: &[u8], follow_last: bool) -> Result<Attr> {
        path::walk(self, path, follow_last, true).await
    }
}

/// A file that was opened, of a file system.
pub type OpenedOf<V> = Opened<<V as Vfs>::File, <<V as Vfs>::File as VfsFile>::PageCounts>;

/// Remove the empty subfiles of a forked file, and the file, one by one: [`Vfs::rmforked`] where nothing can
/// do it at once.
///
/// # Errors
/// As there.
pub async fn rmforked_singly<V: Vfs>(vfs: &V, dir: Handle, name: &Name, file: Handle) -> Result<()> {
    let refused = |status| Err(Error::new(status, "rmforked").of(file));
    let found = vfs.lookup(dir, name).await?;
    if found.handle != file {
        return refused(Status::NotFound);
    }
    if !matches!(found.template.dist, Dist::Forked { .. }) {
        return refused(Status::Invalid);
    }
    let (mut listing, mut subfiles) = (vfs.opendir(file, Duration::ZERO), Vec::new());
    while let Some(listed) = listing.next(false).await? {
        subfiles.push(listed.entry.name);
    }
    for subfile in subfiles {
        match vfs.rmdir(file, &subfile).await {
            // A subfile with forks may not be removed alone.
            Err(error) if error.status == Status::NotPermitted => return refused(Status::NotEmpty),
            removed => removed?,
        }
    }
    vfs.rmdir(dir, name).await
}
