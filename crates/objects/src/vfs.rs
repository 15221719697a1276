//! [`Objects`]: how a file system over an object store is reached, and its calls.

use crate::calls::{Calls, Requests};
use crate::file::ObjectFile;
use crate::format::{Id, KeySpace, Named, Place};
use crate::listing::ObjectListing;
use crate::name_space::{PATIENCE, Version};
use crate::nodes::Nodes;
use crate::store::Reaches;
use bytes::Bytes;
use shoal_env::local::{Notify, Permit};
use shoal_env::{Env, Instant};
use shoal_proto::op::XattrName;
use shoal_proto::{Attr, Handle, Kind, Name, Owner, Rights, SetAttr, Status, Time};
use shoal_vfs::{Connect, Error, Opened, OpenedOf, RenameFlags, Result, Space, Vfs, VfsFile as _};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

/// Time for each call, by default.
const TIMEOUT: Duration = Duration::from_secs(60);
/// An object store has no size. This one is shown.
const SPACE_BYTES: u64 = 1 << 60;
/// Bytes of a link's target, at most.
const TARGET_BYTES_MAX: usize = 4095;
/// Bytes of the prefix of all keys, at most: a key has at most 1,024, of which a name takes up to 800.
const PREFIX_BYTES_MAX: usize = 200;

/// How a file system over an object store is reached.
pub struct ObjectsOptions {
    /// The bucket.
    pub store: Box<dyn Reaches>,
    /// All keys begin with it and `/`; may be empty.
    pub prefix: String,
    /// Refuse all changes.
    pub read_only: bool,
    /// Time for each request with its repeats.
    pub timeout: Duration,
}

impl ObjectsOptions {
    /// A file system at a prefix, with what is usual.
    pub fn new(store: impl Reaches + 'static, prefix: impl Into<String>) -> ObjectsOptions {
        ObjectsOptions { store: Box::new(store), prefix: prefix.into(), read_only: false, timeout: TIMEOUT }
    }
}

/// A file system over an object store. See the crate's page. Clones share it.
#[derive(Clone)]
pub struct Objects(pub(crate) Rc<Shared>);

type Listener = Rc<dyn Fn(Handle)>;

/// The state that the clones share.
pub(crate) struct Shared {
    pub(crate) env: Env,
    pub(crate) calls: Calls,
    pub(crate) keys: KeySpace,
    pub(crate) nodes: RefCell<Nodes>,
    pub(crate) removals: RefCell<Option<Listener>>,
    /// Closes in the background.
    pending: Cell<u64>,
    ended: Notify,
    /// Bytes of open files in memory.
    buffered: Cell<usize>,
}

impl Connect for ObjectsOptions {
    type Vfs = Objects;

    fn under_a_kernel(&mut self, read_only: bool) {
        self.read_only |= read_only;
    }

    async fn connect(self, env: Env) -> Result<Objects> {
        let refused = |words: String| Error::new(Status::Invalid, "connect").because(words);
        let prefix = prefix_of(&self.prefix).map_err(refused)?;
        let store = self.store.reach(&env).map_err(refused)?;
        let objects = Objects(Rc::new(Shared {
            calls: Calls::new(env.clone(), store, self.timeout, self.read_only),
            keys: KeySpace(prefix),
            nodes: RefCell::new(Nodes::new()),
            removals: RefCell::default(),
            pending: Cell::new(0),
            ended: Notify::default(),
            buffered: Cell::new(0),
            env,
        }));
        objects.0.root(self.read_only).await?;
        Ok(objects)
    }
}

/// A prefix of keys.
fn prefix_of(text: &str) -> std::result::Result<String, String> {
    let text = text.trim_matches('/');
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    if text.len() > PREFIX_BYTES_MAX {
        return Err(format!("the prefix `{text}` has over {PREFIX_BYTES_MAX} bytes: name a shorter one"));
    }
    if !text.chars().all(is_plain)
        || text.split('/').any(|part| !text.is_empty() && matches!(part, "" | "." | ".."))
    {
        return Err(format!(
            "the prefix `{text}` is to have letters, digits, `-`, `_`, `.` and single `/` only"
        ));
    }
    Ok(if text.is_empty() { String::new() } else { format!("{text}/") })
}

impl Shared {
    pub(crate) fn now(&self) -> Time {
        Time(self.env.wall().0)
    }

    /// A file has so many bytes in memory now, and `before` until now. Of all files together.
    pub(crate) fn buffers(&self, before: &Cell<usize>, now: usize) -> usize {
        let all = (self.buffered.get() + now).saturating_sub(before.replace(now));
        self.buffered.set(all);
        all
    }

    /// A name's object for one put.
    pub(crate) fn object(&self, named: &Named) -> Bytes {
        named.encode(Id::draw(&self.env))
    }

    /// Do it in the background; [`Vfs::close`] waits for it.
    pub(crate) fn in_background(
        self: &Rc<Self>,
        name: &'static str,
        work: impl Future<Output = ()> + 'static,
    ) {
        let shared = self.clone();
        self.pending.set(self.pending.get() + 1);
        self.env.spawn(name, async move {
            work.await;
            shared.pending.set(shared.pending.get() - 1);
            shared.ended.wake_all();
        });
    }

    async fn background_ended(&self) {
        loop {
            let ended = self.ended.wait();
            if self.pending.get() == 0 {
                return;
            }
            ended.await;
        }
    }

    /// The turns of files that are open here, in the order of their ids: none of them is published meanwhile.
    pub(crate) async fn turns_of(&self, mut ids: Vec<Id>) -> Vec<Permit> {
        ids.sort_unstable();
        ids.dedup();
        let mut turns = Vec::new();
        for id in ids {
            let body = {
                let nodes = self.nodes.borrow();
                nodes.known(id).and_then(|handle| nodes.body(handle))
            };
            if let Some(body) = body {
                turns.push(body.turn.acquire(1).await);
            }
        }
        turns
    }
}

impl Objects {
    /// Requests to the store so far.
    pub fn requests(&self) -> Requests {
        self.0.calls.counts()
    }

    async fn found(
        &self,
        op: &'static str,
        dir: Handle,
        name: &Name,
    ) -> Result<(Named, Version, Place, u64)> {
        let (place, asked) = (self.0.place(op, dir, name)?, self.0.moment());
        let found = self.0.find(op, Some(&place)).await?;
        let (named, tag) = found.ok_or_else(|| Error::new(Status::NotFound, op).of(dir))?;
        Ok((named, tag, place, asked))
    }

    /// The object of a handle, at its place.
    async fn named(&self, op: &'static str, object: Handle) -> Result<(Named, Version)> {
        let place = self.0.place_of(op, object)?;
        let found = self.0.find(op, place.as_ref()).await?;
        let found = found.filter(|(named, _)| self.0.is_it(object, named));
        found.ok_or_else(|| Error::new(Status::Stale, op).of(object))
    }
}

/// Only files have bytes of their own.
fn is_file(op: &'static str, object: Handle, kind: Kind) -> Result<()> {
    let status = match kind {
        Kind::File => return Ok(()),
        Kind::Directory => Status::IsDirectory,
        Kind::Symlink => Status::Loop,
        _ => Status::Invalid,
    };
    Err(Error::new(status, op).of(object))
}

fn no_attributes<T>(object: Handle) -> Result<T> {
    let words = "extended attributes are not kept over an object store";
    Err(Error::new(Status::NotSupported, "xattr").of(object).because(words))
}

impl Vfs for Objects {
    type File = ObjectFile;
    type Listing = ObjectListing;

    const HEARS_REFERENCES: bool = true;

    fn outlives_its_process(&self) -> bool {
        false
    }

    async fn lookup(&self, dir: Handle, name: &Name) -> Result<Attr> {
        let (named, _, place, asked) = self.found("lookup", dir, name).await?;
        self.0.seen("lookup", &named, Some(&place), asked).await
    }

    async fn getattr(&self, object: Handle) -> Result<Attr> {
        self.0.getattr(object).await
    }

    async fn setattr(&self, object: Handle, set: SetAttr) -> Result<Attr> {
        self.0.setattr(object, set).await
    }

    async fn truncate(&self, object: Handle, size: u64, kill_privileges: bool) -> Result<Attr> {
        let file = self.open_held(object, Rights::WRITE).await?;
        file.body().set_len(size).await?;
        if kill_privileges {
            let set = SetAttr { kill_privileges, ..SetAttr::default() };
            file.body().set_attributes(&set).await?;
        }
        let attr = file.attr();
        file.close().await?;
        Ok(attr)
    }

    async fn readlink(&self, object: Handle) -> Result<Bytes> {
        let (named, _) = self.named("readlink", object).await?;
        match named.kind {
            Kind::Symlink => Ok(named.content),
            _ => Err(Error::new(Status::Invalid, "readlink").of(object)),
        }
    }

    async fn create(
        &self,
        dir: Handle,
        name: &Name,
        owner: Owner,
        exclusive: bool,
        rights: Rights,
    ) -> Result<(Attr, bool, ObjectFile)> {
        let op = "create";
        let (place, begun) = (self.0.place(op, dir, name)?, self.0.env.now());
        loop {
            self.0.calls.may_repeat(op, &self.0.key(Some(&place)), begun, PATIENCE)?;
            let mut named = self.0.new_named(Kind::File, dir, owner);
            match self.make_named(op, dir, name, &mut named).await {
                Ok((handle, tag)) => {
                    let file = self.open_new(handle, named, tag, rights);
                    return Ok((file.attr(), true, file));
                }
                Err(error) if error.status == Status::Exists && !exclusive => {}
                Err(error) => return Err(error),
            }
            match self.open_name(dir, name, rights).await {
                Ok(file) => return Ok((self.getattr(file.handle()).await?, false, file)),
                // Removed meanwhile.
                Err(error) if error.status == Status::NotFound => {}
                Err(error) => return Err(error),
            }
        }
    }

    async fn create_write(&self, dir: Handle, name: &Name, owner: Owner, data: Bytes) -> Result<Attr> {
        if data.len() > crate::BESIDE_NAME_MAX {
            let (_, _, file) = self.create(dir, name, owner, true, Rights::WRITE).await?;
            file.write(0, data).await?;
            let attr = file.attr();
            file.close().await?;
            return Ok(attr);
        }
        // One put makes the file with its bytes.
        let mut named = Named { content: data, ..self.0.new_named(Kind::File, dir, owner) };
        let (handle, tag) = self.make_named("create", dir, name, &mut named).await?;
        Ok(self.open_new(handle, named, tag, Rights::WRITE).attr())
    }

    async fn mknod(&self, dir: Handle, name: &Name, owner: Owner, kind: Kind, device: u64) -> Result<Attr> {
        let op = "mknod";
        if matches!(kind, Kind::Directory | Kind::Symlink) {
            return Err(Error::new(Status::Invalid, op).of(dir));
        }
        let asked = self.0.moment();
        let mut named = Named { rdev: device, ..self.0.new_named(kind, dir, owner) };
        self.make_named(op, dir, name, &mut named).await?;
        let place = self.0.place(op, dir, name)?;
        self.0.seen(op, &named, Some(&place), asked).await
    }

    async fn mkdir(&self, dir: Handle, name: &Name, owner: Owner) -> Result<Attr> {
        let asked = self.0.moment();
        let mut named = self.0.new_named(Kind::Directory, dir, owner);
        self.make_named("mkdir", dir, name, &mut named).await?;
        let place = self.0.place("mkdir", dir, name)?;
        self.0.seen("mkdir", &named, Some(&place), asked).await
    }

    async fn symlink(&self, dir: Handle, name: &Name, owner: Owner, target: &[u8]) -> Result<Attr> {
        let op = "symlink";
        if target.len() > TARGET_BYTES_MAX {
            return Err(Error::new(Status::NameTooLong, op).of(dir));
        }
        let owner = Owner { mode: 0o777, ..owner };
        let (content, asked) = (Bytes::copy_from_slice(target), self.0.moment());
        let mut named = Named { content, ..self.0.new_named(Kind::Symlink, dir, owner) };
        self.make_named(op, dir, name, &mut named).await?;
        let place = self.0.place(op, dir, name)?;
        self.0.seen(op, &named, Some(&place), asked).await
    }

    async fn link(&self, object: Handle, _: Handle, _: &Name) -> Result<Attr> {
        let words = "an object has one name over an object store: hard links are not offered";
        Err(Error::new(Status::NotPermitted, "link").of(object).because(words))
    }

    async fn unlink(&self, dir: Handle, name: &Name) -> Result<()> {
        self.0.unlink(dir, name).await
    }

    async fn rmdir(&self, dir: Handle, name: &Name) -> Result<()> {
        self.0.rmdir(dir, name).await
    }

    async fn rename(
        &self,
        from: Handle,
        from_name: &Name,
        to: Handle,
        to_name: &Name,
        flags: RenameFlags,
    ) -> Result<()> {
        self.0.rename((from, from_name), (to, to_name), flags).await
    }

    async fn open_past_pages(&self, object: Handle, rights: Rights) -> Result<OpenedOf<Objects>> {
        let begun = self.0.env.now();
        let file = loop {
            let (body, asked) = (self.0.nodes.borrow().body(object), self.0.moment());
            if let Some(body) = body.filter(|body| body.is_unlinked() && body.is_open()) {
                break self.open_body(body, rights);
            }
            let (named, tag) = self.named("open", object).await?;
            is_file("open", object, named.kind)?;
            if let Some(file) = self.open_named(object, (named, tag), rights, asked).await? {
                break file;
            }
            let place = self.0.place_of("open", object)?;
            self.0.calls.may_repeat("open", &self.0.key(place.as_ref()), begun, PATIENCE)?;
        };
        let (size, has_name) = (Some(file.attr().size), !file.body().is_unlinked());
        Ok(Opened { file, size, has_name, counts: () })
    }

    async fn open_name(&self, dir: Handle, name: &Name, rights: Rights) -> Result<ObjectFile> {
        let begun = self.0.env.now();
        loop {
            let (named, tag, place, asked) = self.found("open", dir, name).await?;
            let handle = self.0.nodes.borrow_mut().saw(&named, Some(&place), asked);
            is_file("open", handle, named.kind)?;
            if let Some(file) = self.open_named(handle, (named, tag), rights, asked).await? {
                return Ok(file);
            }
            self.0.calls.may_repeat("open", &self.0.keys.name(&place), begun, PATIENCE)?;
        }
    }

    fn has_open(&self, object: Handle) -> bool {
        self.0.nodes.borrow().body(object).is_some_and(|body| body.is_open())
    }

    fn opendir(&self, dir: Handle, _patience: Duration) -> ObjectListing {
        ObjectListing::new(self, dir)
    }

    async fn names(&self, dir: Handle) -> Result<Vec<Name>> {
        let (mut listing, mut names) = (ObjectListing::new(self, dir), Vec::new());
        while let Some(name) = listing.next_name().await? {
            names.push(name);
        }
        Ok(names)
    }

    async fn getxattr(&self, object: Handle, _: &[u8]) -> Result<Bytes> {
        no_attributes(object)
    }

    async fn setxattr(&self, object: Handle, _: &[u8], _: &[u8], _: bool, _: bool) -> Result<()> {
        no_attributes(object)
    }

    async fn listxattr(&self, object: Handle) -> Result<Vec<XattrName>> {
        no_attributes(object)
    }

    async fn removexattr(&self, object: Handle, _: &[u8]) -> Result<()> {
        no_attributes(object)
    }

    /// Each change of a name is durable when it returns.
    async fn fsync_directory(&self, dir: Handle) -> Result<()> {
        self.0.directory("fsync", dir).map(drop)
    }

    async fn sync_all(&self) -> Result<()> {
        let bodies = self.0.nodes.borrow().bodies();
        let mut synced = Ok(());
        for body in bodies {
            synced = synced.and(body.sync().await);
        }
        self.0.background_ended().await;
        synced
    }

    async fn statfs(&self) -> Result<Space> {
        Ok(Space { total: SPACE_BYTES, available: SPACE_BYTES, objects: 0 })
    }

    async fn close(&self) {
        let deadline = self.deadline();
        match self.0.env.deadline(deadline, self.sync_all()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!("bytes of files that are open are not published: {error}"),
            Err(_) => tracing::warn!(
                "bytes of files that are open are perhaps not published: {} did not take them in time",
                self.called()
            ),
        }
        self.0.removals.take();
    }

    fn deadline(&self) -> Instant {
        self.0.calls.deadline()
    }

    fn call<F: Future<Output = ()> + Unpin + 'static>(
        &self,
        _thread: u32,
        work: F,
    ) -> impl Future<Output = ()> + use<F> + 'static {
        work
    }

    fn hear_removals(&self, listener: impl Fn(Handle) + 'static) {
        self.0.removals.replace(Some(Rc::new(listener)));
    }

    fn referred(&self, object: Handle) {
        self.0.nodes.borrow_mut().referred(object);
    }

    fn forgotten(&self, object: Handle, answers: u64) {
        self.0.nodes.borrow_mut().forgotten(object, answers);
    }
}
