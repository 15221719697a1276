//! The client under every interface: [`Vfs`] for [`Client`], [`VfsFile`] for [`OpenFile`].
//!
//! Most methods call the client's method of the same name, and add no message. A read of a pattern adds the
//! zeros after the end of the file, which the client leaves out. `rmforked` removes the subfiles one by one
//! if the server is of an older version.

use crate::ops::StreamCounts;
use crate::{Client, DirStream, Error, NewFile, OpenFile, Options, Which};
use bytes::{Bytes, BytesMut};
use shoal_env::{Env, Instant};
use shoal_pattern::Pattern;
use shoal_proto::op::XattrName;
use shoal_proto::{
    Allocation, Attr, Handle, Kind, LockHolder, LockKind, LockOwner, LockRange, Name, Owner, Rights, Roles,
    SetAttr, Status,
};
use shoal_vfs::{
    Connect, ForkedFile, HeldLock, Listed, Listing, LockCall, Opened, RenameFlags, Space, Vfs, VfsFile,
    read_len,
};
use std::time::Duration;

impl Connect for Options {
    type Vfs = Client;

    fn under_a_kernel(&mut self, read_only: bool) {
        self.name_cache = Duration::ZERO;
        self.attr_cache = Duration::ZERO;
        self.read_only |= read_only;
    }

    async fn connect(self, env: Env) -> Result<Client, Error> {
        let client = Client::connect(env, self).await?;
        match client.getattr(Handle::ROOT).await {
            Ok(_) => Ok(client),
            Err(error) => {
                Client::close(&client).await;
                Err(error)
            }
        }
    }
}

impl Listing for DirStream {
    async fn next(&mut self, plus: bool) -> Result<Option<Listed>, Error> {
        let Some(entry) = DirStream::next(self, plus).await? else { return Ok(None) };
        Ok(Some(Listed { entry, asked_at: self.asked_at(), is_unknown: self.lacks().is_some() }))
    }

    fn seek(&mut self, place: u64) {
        DirStream::seek(self, place);
    }
}

/// The bytes of a pattern of so many, of which those after the end of the file were left out.
fn padded(read: Bytes, len: usize) -> Bytes {
    if read.len() == len {
        return read;
    }
    let mut whole = BytesMut::from(read);
    whole.resize(len, 0);
    whole.freeze()
}

impl VfsFile for OpenFile {
    type PageCounts = StreamCounts;

    fn handle(&self) -> Handle {
        OpenFile::handle(self)
    }

    fn rights(&self) -> Rights {
        OpenFile::rights(self)
    }

    fn again(&self) -> OpenFile {
        OpenFile::again(self)
    }

    fn read(&self, offset: u64, len: usize) -> impl Future<Output = Result<Bytes, Error>> {
        OpenFile::read(self, offset, len)
    }

    async fn read_pattern(&self, pattern: &Pattern) -> Result<Bytes, Error> {
        let len = read_len(pattern)?;
        Ok(padded(OpenFile::read_pattern(self, pattern).await?, len))
    }

    async fn read_pattern_sized(&self, pattern: &Pattern) -> Result<(Bytes, u64), Error> {
        let len = read_len(pattern)?;
        let (read, size) = OpenFile::read_pattern_sized(self, pattern).await?;
        Ok((padded(read, len), size))
    }

    fn write(&self, offset: u64, data: Bytes) -> impl Future<Output = Result<(), Error>> {
        OpenFile::write(self, offset, data)
    }

    fn write_pattern(&self, pattern: &Pattern, data: Bytes) -> impl Future<Output = Result<(), Error>> {
        OpenFile::write_pattern(self, pattern, data)
    }

    fn write_durable(&self, offset: u64, data: Bytes) -> impl Future<Output = Result<(), Error>> {
        OpenFile::write_durable(self, offset, data)
    }

    fn write_pages(&self, offset: u64, data: Bytes) -> impl Future<Output = Result<(), Error>> {
        OpenFile::write_pages(self, offset, data)
    }

    fn append(&self, data: Bytes) -> impl Future<Output = Result<u64, Error>> {
        OpenFile::append(self, data)
    }

    fn fsync(&self) -> impl Future<Output = Result<(), Error>> {
        OpenFile::fsync(self)
    }

    fn drop_cache(&self) -> impl Future<Output = Result<(), Error>> {
        OpenFile::drop_cache(self)
    }

    fn allocate(&self, offset: u64, len: u64, mode: Allocation) -> impl Future<Output = Result<(), Error>> {
        OpenFile::allocate(self, offset, len, mode)
    }

    fn close(self) -> impl Future<Output = Result<(), Error>> {
        OpenFile::close(self)
    }

    async fn hold_alone(&self) -> Result<bool, Error> {
        // Each open file is an owner of its own; its locks go with it.
        let owner = LockOwner(self.0.client.core.world.random_u64());
        let (range, kind) = (LockRange::ALL, LockKind::Exclusive);
        OpenFile::lock(self, &LockCall { owner, range, kind, wait: false, pid: 0 }).await
    }

    fn lock(&self, call: &LockCall) -> impl Future<Output = Result<bool, Error>> {
        OpenFile::lock(self, call)
    }

    fn unlock(&self, owner: LockOwner, range: LockRange) -> impl Future<Output = Result<(), Error>> {
        OpenFile::unlock(self, owner, range)
    }

    async fn lock_holder(&self, call: &LockCall) -> Result<Option<HeldLock>, Error> {
        let holder = OpenFile::lock_holder(self, call).await?;
        let own = self.client_id();
        Ok(holder.map(|LockHolder { client, range, kind, pid, .. }| HeldLock {
            range,
            kind,
            pid: if client == own { pid } else { 0 },
        }))
    }

    fn has_locks(&self, owner: LockOwner) -> bool {
        OpenFile::has_locks(self, owner)
    }

    fn reads_pages(&self) {
        OpenFile::reads_pages(self);
    }

    fn keeps_pages(&self, counts: &StreamCounts) -> bool {
        OpenFile::keeps_pages(self, counts)
    }

    fn has_forgotten_pages(&self) {
        OpenFile::has_forgotten_pages(self);
    }
}

impl Vfs for Client {
    type File = OpenFile;
    type Listing = DirStream;
    const HAS_LOCKS: bool = true;

    fn lookup(&self, dir: Handle, name: &Name) -> impl Future<Output = Result<Attr, Error>> {
        Client::lookup(self, dir, name)
    }

    fn getattr(&self, object: Handle) -> impl Future<Output = Result<Attr, Error>> {
        Client::getattr(self, object)
    }

    fn setattr(&self, object: Handle, set: SetAttr) -> impl Future<Output = Result<Attr, Error>> {
        Client::setattr(self, object, set)
    }

    fn truncate(
        &self,
        object: Handle,
        size: u64,
        kill_privileges: bool,
    ) -> impl Future<Output = Result<Attr, Error>> {
        Client::truncate(self, object, size, kill_privileges)
    }

    fn readlink(&self, object: Handle) -> impl Future<Output = Result<Bytes, Error>> {
        Client::readlink(self, object)
    }

    fn create(
        &self,
        dir: Handle,
        name: &Name,
        owner: Owner,
        exclusive: bool,
        rights: Rights,
    ) -> impl Future<Output = Result<(Attr, bool, OpenFile), Error>> {
        Client::create(self, dir, name, owner, exclusive, rights, None)
    }

    fn create_write(
        &self,
        dir: Handle,
        name: &Name,
        owner: Owner,
        data: Bytes,
    ) -> impl Future<Output = Result<Attr, Error>> {
        Client::create_write(self, dir, name, owner, data, None)
    }

    fn mknod(
        &self,
        dir: Handle,
        name: &Name,
        owner: Owner,
        kind: Kind,
        device: u64,
    ) -> impl Future<Output = Result<Attr, Error>> {
        Client::mknod(self, dir, name, owner, kind, device)
    }

    fn mkdir(&self, dir: Handle, name: &Name, owner: Owner) -> impl Future<Output = Result<Attr, Error>> {
        Client::mkdir(self, dir, name, owner)
    }

    fn mkforked(
        &self,
        dir: Handle,
        name: &Name,
        owner: Owner,
        forked: &ForkedFile,
    ) -> impl Future<Output = Result<Attr, Error>> {
        Client::mkforked(self, dir, name, owner, forked)
    }

    fn symlink(
        &self,
        dir: Handle,
        name: &Name,
        owner: Owner,
        target: &[u8],
    ) -> impl Future<Output = Result<Attr, Error>> {
        Client::symlink(self, dir, name, owner, target)
    }

    fn link(&self, object: Handle, dir: Handle, name: &Name) -> impl Future<Output = Result<Attr, Error>> {
        Client::link(self, object, dir, name)
    }

    fn unlink(&self, dir: Handle, name: &Name) -> impl Future<Output = Result<(), Error>> {
        Client::unlink(self, dir, name)
    }

    fn make_many(
        &self,
        entries: &[(Handle, Name)],
        owner: Owner,
    ) -> impl Future<Output = Vec<Result<Attr, Error>>> {
        let file =
            |(dir, name): &(Handle, Name)| NewFile { dir: *dir, name: name.clone(), data: Bytes::new() };
        Client::create_many(self, entries.iter().map(file).collect(), owner, None)
    }

    fn create_many(
        &self,
        files: Vec<NewFile>,
        owner: Owner,
    ) -> impl Future<Output = Vec<Result<Attr, Error>>> {
        Client::create_many(self, files, owner, None)
    }

    async fn read_many(
        &self,
        entries: &[(Handle, Name, usize)],
    ) -> Vec<Result<(Attr, Option<Bytes>), Error>> {
        let which: Vec<Which> =
            entries.iter().map(|(dir, name, _)| Which::Entry(*dir, name.clone())).collect();
        let max: Vec<usize> = entries.iter().map(|(_, _, max)| *max).collect();
        Client::read_many_within(self, &which, &max).await
    }

    fn unlink_many(&self, entries: &[(Handle, Name)]) -> impl Future<Output = Vec<Result<(), Error>>> {
        Client::remove_many(self, entries)
    }

    fn open_many(
        &self,
        entries: &[(Handle, Name)],
        rights: Rights,
    ) -> impl Future<Output = Vec<Result<OpenFile, Error>>> {
        Client::open_many(self, entries, rights)
    }

    fn close_many(&self, files: Vec<OpenFile>) -> impl Future<Output = Vec<Result<(), Error>>> {
        Client::close_many(self, files)
    }

    fn subfile_servers(&self) -> usize {
        self.map().with_roles(Roles::METADATA | Roles::DATA).count()
    }

    fn rmdir(&self, dir: Handle, name: &Name) -> impl Future<Output = Result<(), Error>> {
        Client::rmdir(self, dir, name)
    }

    async fn rmforked(&self, dir: Handle, name: &Name, file: Handle) -> Result<(), Error> {
        match Client::rmforked(self, dir, name, file).await {
            Err(error) if error.status == Status::NotSupported => {
                shoal_vfs::rmforked_singly(self, dir, name, file).await
            }
            done => done,
        }
    }

    fn rename(
        &self,
        from: Handle,
        from_name: &Name,
        to: Handle,
        to_name: &Name,
        flags: RenameFlags,
    ) -> impl Future<Output = Result<(), Error>> {
        Client::rename(self, from, from_name, to, to_name, flags)
    }

    fn open(&self, object: Handle, rights: Rights) -> impl Future<Output = Result<OpenFile, Error>> {
        Client::open(self, object, rights)
    }

    async fn open_past_pages(
        &self,
        object: Handle,
        rights: Rights,
    ) -> Result<Opened<OpenFile, StreamCounts>, Error> {
        let (file, size, has_name) = self.open_sized(object, rights).await?;
        Ok(Opened { file, size, has_name, counts: StreamCounts::default() })
    }

    fn open_pages(
        &self,
        object: Handle,
        rights: Rights,
    ) -> impl Future<Output = Result<Opened<OpenFile, StreamCounts>, Error>> {
        Client::open_pages(self, object, rights)
    }

    fn open_held(&self, object: Handle, rights: Rights) -> impl Future<Output = Result<OpenFile, Error>> {
        Client::open_held(self, object, rights)
    }

    fn open_name(
        &self,
        dir: Handle,
        name: &Name,
        rights: Rights,
    ) -> impl Future<Output = Result<OpenFile, Error>> {
        Client::open_name(self, dir, name, rights)
    }

    fn has_open(&self, object: Handle) -> bool {
        Client::has_open(self, object)
    }

    fn opendir(&self, dir: Handle, patience: Duration) -> DirStream {
        Client::opendir(self, dir).attributes_within(patience)
    }

    fn getxattr(&self, object: Handle, name: &[u8]) -> impl Future<Output = Result<Bytes, Error>> {
        Client::getxattr(self, object, name)
    }

    fn setxattr(
        &self,
        object: Handle,
        name: &[u8],
        value: &[u8],
        create: bool,
        replace: bool,
    ) -> impl Future<Output = Result<(), Error>> {
        Client::setxattr(self, object, name, value, create, replace)
    }

    fn listxattr(&self, object: Handle) -> impl Future<Output = Result<Vec<XattrName>, Error>> {
        Client::listxattr(self, object)
    }

    fn removexattr(&self, object: Handle, name: &[u8]) -> impl Future<Output = Result<(), Error>> {
        Client::removexattr(self, object, name)
    }

    fn fsync_directory(&self, dir: Handle) -> impl Future<Output = Result<(), Error>> {
        Client::fsync_directory(self, dir)
    }

    fn sync_all(&self) -> impl Future<Output = Result<(), Error>> {
        Client::sync_all(self)
    }

    fn statfs(&self) -> impl Future<Output = Result<Space, Error>> {
        Client::statfs(self)
    }

    fn close(&self) -> impl Future<Output = ()> {
        Client::close(self)
    }

    fn deadline(&self) -> Instant {
        Client::deadline(self)
    }

    fn call<F: Future<Output = ()> + Unpin + 'static>(
        &self,
        thread: u32,
        work: F,
    ) -> impl Future<Output = ()> + use<F> + 'static {
        Client::call(self, thread, work)
    }

    fn until<F: Future + Unpin>(&self, deadline: Instant, work: F) -> impl Future<Output = F::Output> {
        Client::until(self, deadline, work)
    }

    fn lists_attributes(&self) -> bool {
        self.map().switches.readdirplus
    }

    fn lists_ahead(&self) -> bool {
        self.map().switches.readdirplus
    }

    fn hear_interrupts(&self, is_interrupted: impl Fn(u32) -> bool + 'static) {
        Client::hear_interrupts(self, is_interrupted);
    }

    fn hear_directories(&self, listener: impl Fn(Handle, Instant, Option<&Attr>) + 'static) {
        Client::hear_directories(self, listener);
    }

    fn hear_removals(&self, listener: impl Fn(Handle) + 'static) {
        Client::hear_removals(self, listener);
    }

    fn keep_pages(&self, listener: impl Fn(Handle) + 'static) {
        Client::keep_pages(self, listener);
    }

    fn made_without_pages(&self, object: Handle) {
        Client::made_without_pages(self, object);
    }

    fn spoil_pages(&self, object: Handle) {
        Client::spoil_pages(self, object);
    }

    fn walk_path(&self, path: &[u8], follow_last: bool) -> impl Future<Output = Result<Attr, Error>> {
        Client::walk(self, path, follow_last)
    }

    fn walk_inside(&self, path: &[u8], follow_last: bool) -> impl Future<Output = Result<Attr, Error>> {
        Client::walk_inside(self, path, follow_last)
    }
}
