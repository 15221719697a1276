//! A file system below that holds writes of some lengths. The test decides whether a held write is done, or
//! ends with `TimedOut` and is done later, as the thread of a call that was given up does it.

use bytes::Bytes;
use futures_util::future::join_all;
use shoal_env::local::Notify;
use shoal_env::{Env, Instant};
use shoal_pattern::Pattern;
use shoal_proto::op::XattrName;
use shoal_proto::{Allocation, Attr, Handle, Kind, Name, Owner, Rights, SetAttr, Status};
use shoal_vfs::{
    AnyFile, AnyListing, AnyVfs, Error, Opened, OpenedOf, RenameFlags, Result, Space, Vfs, VfsFile,
};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

/// How a held write ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// Not yet.
    None,
    Done,
    TimedOut,
}

#[derive(Clone)]
pub(super) struct Late {
    env: Env,
    over: AnyVfs,
    held: Rc<Held>,
}

struct Held {
    lengths: Cell<fn(usize) -> bool>,
    end: Cell<End>,
    changed: Notify,
    /// Writes that came, and are not done.
    writes: RefCell<Vec<(AnyFile, u64, Bytes)>>,
    /// The time limit of a request.
    limit: Cell<Duration>,
}

#[derive(Clone)]
pub(super) struct LateFile {
    over: AnyFile,
    held: Rc<Held>,
}

impl Late {
    pub(super) fn new(env: &Env, over: AnyVfs) -> Late {
        let held = Held {
            lengths: Cell::new(|_| false),
            end: Cell::new(End::None),
            changed: Notify::default(),
            writes: RefCell::default(),
            limit: Cell::new(Duration::from_secs(60)),
        };
        Late { env: env.clone(), over, held: Rc::new(held) }
    }

    /// Hold the writes of these lengths from now on.
    pub(super) fn hold(&self, lengths: fn(usize) -> bool) {
        self.held.end.set(End::None);
        self.held.lengths.set(lengths);
    }

    pub(super) fn limit(&self, limit: Duration) {
        self.held.limit.set(limit);
    }

    /// Wait until a write is held.
    pub(super) async fn arrived(&self) {
        while self.held.writes.borrow().is_empty() {
            self.held.changed.wait().await;
        }
    }

    fn end(&self, end: End) {
        self.held.lengths.set(|_| false);
        self.held.end.set(end);
        self.held.changed.wake_all();
    }

    /// The held writes are done, and later ones are not held.
    pub(super) fn let_go(&self) {
        self.held.writes.take();
        self.end(End::Done);
    }

    /// The held writes end with `TimedOut`, and later ones are not held.
    pub(super) fn time_out(&self) {
        self.end(End::TimedOut);
    }

    /// Do the writes that ended with `TimedOut`, or were given up.
    pub(super) async fn land(&self) {
        let writes = self.held.writes.take();
        assert!(!writes.is_empty(), "no write was held");
        let landed = writes.iter().map(|(file, at, data)| file.write(*at, data.clone()));
        join_all(landed).await.into_iter().collect::<Result<()>>().unwrap();
    }

    fn file(&self, over: AnyFile) -> LateFile {
        LateFile { over, held: self.held.clone() }
    }
}

impl VfsFile for LateFile {
    type PageCounts = ();

    fn handle(&self) -> Handle {
        self.over.handle()
    }

    fn rights(&self) -> Rights {
        self.over.rights()
    }

    fn again(&self) -> LateFile {
        LateFile { over: self.over.again(), held: self.held.clone() }
    }

    async fn read(&self, offset: u64, len: usize) -> Result<Bytes> {
        self.over.read(offset, len).await
    }

    async fn read_pattern_sized(&self, pattern: &Pattern) -> Result<(Bytes, u64)> {
        self.over.read_pattern_sized(pattern).await
    }

    async fn write(&self, offset: u64, data: Bytes) -> Result<()> {
        let held = &self.held;
        if held.lengths.get()(data.len()) {
            held.writes.borrow_mut().push((self.over.clone(), offset, data.clone()));
            held.changed.wake_all();
            while held.end.get() == End::None {
                held.changed.wait().await;
            }
            if held.end.get() == End::TimedOut {
                return Err(Error::new(Status::TimedOut, "write"));
            }
        }
        self.over.write(offset, data).await
    }

    async fn append(&self, data: Bytes) -> Result<u64> {
        self.over.append(data).await
    }

    async fn fsync(&self) -> Result<()> {
        self.over.fsync().await
    }

    async fn allocate(&self, offset: u64, len: u64, mode: Allocation) -> Result<()> {
        self.over.allocate(offset, len, mode).await
    }

    async fn close(self) -> Result<()> {
        self.over.close().await
    }
}

impl Vfs for Late {
    type File = LateFile;
    type Listing = AnyListing;

    async fn lookup(&self, dir: Handle, name: &Name) -> Result<Attr> {
        self.over.lookup(dir, name).await
    }

    async fn getattr(&self, object: Handle) -> Result<Attr> {
        self.over.getattr(object).await
    }

    async fn setattr(&self, object: Handle, set: SetAttr) -> Result<Attr> {
        self.over.setattr(object, set).await
    }

    async fn truncate(&self, object: Handle, size: u64, kill_privileges: bool) -> Result<Attr> {
        self.over.truncate(object, size, kill_privileges).await
    }

    async fn readlink(&self, object: Handle) -> Result<Bytes> {
        self.over.readlink(object).await
    }

    async fn create(
        &self,
        dir: Handle,
        name: &Name,
        owner: Owner,
        exclusive: bool,
        rights: Rights,
    ) -> Result<(Attr, bool, LateFile)> {
        let (attr, is_new, file) = self.over.create(dir, name, owner, exclusive, rights).await?;
        Ok((attr, is_new, self.file(file)))
    }

    async fn mknod(&self, dir: Handle, name: &Name, owner: Owner, kind: Kind, device: u64) -> Result<Attr> {
        self.over.mknod(dir, name, owner, kind, device).await
    }

    async fn mkdir(&self, dir: Handle, name: &Name, owner: Owner) -> Result<Attr> {
        self.over.mkdir(dir, name, owner).await
    }

    async fn symlink(&self, dir: Handle, name: &Name, owner: Owner, target: &[u8]) -> Result<Attr> {
        self.over.symlink(dir, name, owner, target).await
    }

    async fn link(&self, object: Handle, dir: Handle, name: &Name) -> Result<Attr> {
        self.over.link(object, dir, name).await
    }

    async fn unlink(&self, dir: Handle, name: &Name) -> Result<()> {
        self.over.unlink(dir, name).await
    }

    async fn rmdir(&self, dir: Handle, name: &Name) -> Result<()> {
        self.over.rmdir(dir, name).await
    }

    async fn rename(
        &self,
        from: Handle,
        from_name: &Name,
        to: Handle,
        to_name: &Name,
        flags: RenameFlags,
    ) -> Result<()> {
        self.over.rename(from, from_name, to, to_name, flags).await
    }

    async fn open_past_pages(&self, object: Handle, rights: Rights) -> Result<OpenedOf<Late>> {
        let Opened { file, size, has_name, counts } = self.over.open_past_pages(object, rights).await?;
        Ok(Opened { file: self.file(file), size, has_name, counts })
    }

    fn has_open(&self, object: Handle) -> bool {
        self.over.has_open(object)
    }

    fn opendir(&self, dir: Handle, patience: Duration) -> AnyListing {
        self.over.opendir(dir, patience)
    }

    async fn getxattr(&self, object: Handle, name: &[u8]) -> Result<Bytes> {
        self.over.getxattr(object, name).await
    }

    async fn setxattr(
        &self,
        object: Handle,
        name: &[u8],
        value: &[u8],
        create: bool,
        replace: bool,
    ) -> Result<()> {
        self.over.setxattr(object, name, value, create, replace).await
    }

    async fn listxattr(&self, object: Handle) -> Result<Vec<XattrName>> {
        self.over.listxattr(object).await
    }

    async fn removexattr(&self, object: Handle, name: &[u8]) -> Result<()> {
        self.over.removexattr(object, name).await
    }

    async fn fsync_directory(&self, dir: Handle) -> Result<()> {
        self.over.fsync_directory(dir).await
    }

    async fn sync_all(&self) -> Result<()> {
        self.over.sync_all().await
    }

    async fn statfs(&self) -> Result<Space> {
        self.over.statfs().await
    }

    async fn close(&self) {
        self.over.close().await;
    }

    fn deadline(&self) -> Instant {
        self.env.now() + self.held.limit.get()
    }

    fn call<F: Future<Output = ()> + Unpin + 'static>(
        &self,
        thread: u32,
        work: F,
    ) -> impl Future<Output = ()> + use<F> + 'static {
        self.over.call(thread, work)
    }
}
