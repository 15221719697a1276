//! An open file and its capability. All open files of one [`Inode`] share the location of the file's data
//! and the loss ids of its writes.

use crate::core::Operation;
use crate::inodes::Inode;
use crate::ops::StreamCounts;
use crate::{Client, Error};
use shoal_proto::{
    Attr, Capability, ClientId, Generation, Handle, Layout, Op, Rights, Status, Template, Time,
};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

/// A capability is renewed so long before it expires: clocks differ, and messages take time.
const RENEW_BEFORE: Duration = Duration::from_secs(10);

/// An open file. Clones share it. It counts as held open until the last clone is dropped or closed: an unlink
/// by this client leaves it usable until then.
#[derive(Clone)]
pub struct OpenFile(pub(crate) Rc<Opened>);

/// A handle held open.
pub(crate) struct Hold {
    client: Client,
    object: Handle,
    /// Let go already.
    ended: bool,
}

impl Hold {
    pub(crate) fn new(client: Client, object: Handle) -> Hold {
        client.core.held.borrow_mut().hold(object);
        Hold { client, object, ended: false }
    }

    /// Let go; whether an orphan is to be released.
    fn let_go(&mut self) -> bool {
        !std::mem::replace(&mut self.ended, true) && self.client.core.held.borrow_mut().let_go(self.object)
    }
}

/// An open by name under way: the file that it will hold is not known yet.
pub(crate) struct Seek(Client);

impl Seek {
    pub(crate) fn new(client: &Client) -> Seek {
        client.core.held.borrow_mut().seek();
        Seek(client.clone())
    }
}

impl Drop for Seek {
    fn drop(&mut self) {
        let core = &self.0.core;
        let unheld = core.held.borrow_mut().sought();
        for object in unheld.into_iter().filter(|_| !core.is_closed()) {
            core.post_release(object);
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.let_go() && !self.client.core.is_closed() {
            let object = self.object;
            self.client.core.post_release(object);
        }
    }
}

/// Where a file's data is.
#[derive(Clone)]
pub(crate) struct Shape {
    pub(crate) generation: Generation,
    pub(crate) template: Template,
    /// `None`: stuffed.
    pub(crate) layout: Option<Rc<Layout>>,
}

impl Shape {
    pub(crate) fn of(attr: &Attr) -> Shape {
        Shape {
            generation: attr.generation,
            template: attr.template,
            layout: attr.layout.clone().map(Rc::new),
        }
    }
}

/// The state that the clones of an [`OpenFile`] share.
pub(crate) struct Opened {
    hold: RefCell<Hold>,
    pub(crate) client: Client,
    pub(crate) handle: Handle,
    rights: Rights,
    capability: Cell<Option<Capability>>,
    /// Shared with all open files of the inode in this client.
    pub(crate) inode: Rc<Inode>,
    /// At its open the kernel has to forget the pages of the file, and has not used it yet.
    forgets_pages: Cell<bool>,
    /// The kernel's pages are read through it.
    reads_pages: Cell<bool>,
    /// Its number among those that locked; 0: it never did.
    pub(crate) locker: Cell<u64>,
    /// The newest loss of the inode that was reported through this open file, or before it was opened.
    seen: Cell<u64>,
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.post_locks_back();
        if self.forgets_pages.get() {
            self.client.core.with_pages(|pages| pages.not_forgotten(self.handle));
        }
        if self.reads_pages.get() {
            self.client.core.with_pages(|pages| pages.reader(self.handle, false));
        }
        self.client.core.inodes.borrow_mut().closed(&self.inode);
    }
}

impl OpenFile {
    /// A file just opened.
    pub(crate) fn new(
        client: Client,
        attr: &Attr,
        rights: Rights,
        capability: Option<Capability>,
    ) -> OpenFile {
        OpenFile::held(Hold::new(client, attr.handle), attr, rights, capability)
    }

    /// The same, when it is held already.
    pub(crate) fn held(hold: Hold, attr: &Attr, rights: Rights, capability: Option<Capability>) -> OpenFile {
        hold.client.core.held.borrow_mut().opened(attr.handle, attr.nlink == 0);
        let inode = hold.client.core.inodes.borrow_mut().opened(attr);
        OpenFile(Rc::new(Opened {
            client: hold.client.clone(),
            hold: RefCell::new(hold),
            handle: attr.handle,
            rights,
            capability: Cell::new(capability),
            forgets_pages: Cell::new(false),
            reads_pages: Cell::new(false),
            locker: Cell::new(0),
            seen: Cell::new(inode.reported()),
            inode,
        }))
    }

    /// Another open of the same file with the same rights, which asks no server. An error is reported to each
    /// of the two.
    pub fn again(&self) -> OpenFile {
        let client = self.0.client.clone();
        let hold = RefCell::new(Hold::new(client.clone(), self.0.handle));
        client.core.held.borrow_mut().opened(self.0.handle, false);
        OpenFile(Rc::new(Opened {
            hold,
            client,
            handle: self.0.handle,
            rights: self.0.rights,
            capability: Cell::new(self.0.capability.get()),
            inode: self.0.inode.clone(),
            forgets_pages: Cell::new(false),
            reads_pages: Cell::new(false),
            locker: Cell::new(0),
            seen: Cell::new(self.0.inode.reported()),
        }))
    }

    /// The file.
    pub fn handle(&self) -> Handle {
        self.0.handle
    }

    /// The id of its client.
    pub(crate) fn client_id(&self) -> ClientId {
        self.0.client.core.id
    }

    /// The access that it was opened for.
    pub fn rights(&self) -> Rights {
        self.0.rights
    }

    /// The kernel's pages of the file are read through this open file, until it is closed.
    pub fn reads_pages(&self) {
        if !self.0.reads_pages.replace(true) {
            self.0.client.core.with_pages(|pages| pages.reader(self.0.handle, true));
        }
    }

    /// Whether the kernel's pages of the file stay valid over this open. `counts` are the change counts of
    /// its streams, read after the open began. Otherwise the kernel has to drop the pages. Called once, right
    /// before the kernel receives the file.
    pub fn keeps_pages(&self, counts: &StreamCounts) -> bool {
        let stay =
            self.0.client.core.with_pages(|pages| pages.opened(self.0.handle, |stream| counts.of(stream)));
        self.0.forgets_pages.set(stay == Some(false));
        stay == Some(true)
    }

    /// A program uses this open file. The kernel received it only after it had dropped the pages that it had
    /// to drop.
    pub fn has_forgotten_pages(&self) {
        self.0.has_forgotten_pages();
    }

    /// Close: with the last clone, an orphan is released. Dropping does the same without waiting.
    ///
    /// # Errors
    /// When an orphan's server does not answer; it is then removed when the session's lease ends.
    pub async fn close(self) -> Result<(), Error> {
        let client = self.0.client.clone();
        match self.let_go().await {
            Some(orphan) => client.release(orphan).await,
            None => Ok(()),
        }
    }

    /// Close without a release: with the last clone, the orphan that is to be released.
    pub(crate) async fn let_go(self) -> Option<Handle> {
        self.0.has_forgotten_pages();
        // Bytes on their way keep clones of their own.
        let opened = Rc::try_unwrap(self.0).ok()?;
        opened.give_locks_back().await;
        let is_orphan = opened.hold.borrow_mut().let_go();
        is_orphan.then_some(opened.handle)
    }
}

impl Client {
    /// Release an orphan; later, where its server does not answer.
    pub(crate) async fn release(&self, object: Handle) -> Result<(), Error> {
        let core = &self.core;
        let o = core.begin("release", Some(object));
        let released = core.ask(&o, object.server(), vec![Op::Release { object }]).await;
        released.map(drop).inspect_err(|_| core.post_release(object))
    }
}

impl Opened {
    pub(crate) fn shape(&self) -> Shape {
        self.inode.shape()
    }

    /// Its number among those that lock.
    pub(crate) fn locker(&self) -> u64 {
        if self.locker.get() == 0 {
            self.locker.set(self.client.core.locks.borrow_mut().next_open_file());
        }
        self.locker.get()
    }

    pub(crate) fn capability(&self) -> Option<Capability> {
        self.capability.get()
    }

    /// The kernel uses the file: it has dropped the pages that it had to drop at the open.
    pub(crate) fn has_forgotten_pages(&self) {
        if self.forgets_pages.replace(false) {
            self.client.core.with_pages(|pages| pages.forgotten(self.handle));
        }
    }

    /// Fetch where the data is now.
    pub(crate) async fn refresh(&self, o: &Operation) -> Result<(), Error> {
        let core = &self.client.core;
        core.cache.borrow_mut().changed(self.handle);
        let before = self.shape();
        let attr = core.getattr_raw(o, self.handle).await?;
        self.inode.learn_since(&before, &attr);
        Ok(())
    }

    /// A stream of this shape is gone: whether that is because the file's data is elsewhere now.
    pub(crate) async fn has_moved(&self, o: &Operation, shape: &Shape) -> bool {
        let asked = shape.layout.is_some() && self.refresh(o).await.is_ok();
        let now = self.shape();
        asked && (now.generation, now.layout) != (shape.generation, shape.layout.clone())
    }

    /// Get a new capability.
    async fn renew(&self, o: &Operation) -> Result<(), Error> {
        let core = &self.client.core;
        let server = self.handle.server();
        let open = || vec![Op::Open { object: self.handle, rights: self.rights }];
        let told = match core.ask(o, server, open()).await {
            // Removed by another client, and kept for those that say that they have it open.
            Err(error) if error.status == Status::Stale => {
                core.hold_again(o, server, &[self.handle]).await?;
                core.ask(o, server, open()).await
            }
            told => told,
        }?;
        self.capability.set(crate::ops::capability_among(&told.answers));
        Ok(())
    }

    fn expires_soon(&self) -> bool {
        let soon = Time(self.client.core.wall().0.saturating_add(RENEW_BEFORE.as_nanos() as i64));
        self.capability.get().is_some_and(|capability| capability.expires_at <= soon)
    }

    /// Do `work` with a shape that `fit` makes of the file's present one, and a capability that is good;
    /// again with new ones when a server says that they are old.
    ///
    /// Operations that were done before that are done again: a write that was not acknowledged may be done
    /// twice.
    pub(crate) async fn with_shape<T>(
        &self,
        o: &Operation,
        needs: Rights,
        fit: impl AsyncFn(Shape) -> Result<Shape, Error>,
        work: impl AsyncFn(Shape) -> Result<T, Error>,
    ) -> Result<T, Error> {
        if !self.rights.contains(needs) {
            return Err(o.error(Status::BadCapability).because("the file is not open for that"));
        }
        let mut renewed = self.expires_soon();
        if renewed {
            self.renew(o).await?;
        }
        let mut stale = 0;
        loop {
            self.may_use_locks(o).await?;
            let mut shape = self.shape();
            let done = match fit(shape.clone()).await {
                Ok(fitting) => {
                    shape = fitting;
                    work(shape.clone()).await
                }
                Err(error) => Err(error),
            };
            match done {
                Err(error) if error.status == Status::StaleLayout => {
                    stale += 1;
                    if stale > 1 {
                        self.client.core.back_off(o, error).await?;
                    }
                    self.refresh(o).await?;
                }
                Err(error) if error.status == Status::Stale && self.has_moved(o, &shape).await => {}
                Err(error) if error.status == Status::BadCapability && !renewed => {
                    renewed = true;
                    self.renew(o).await?;
                }
                other => return other,
            }
        }
    }

    /// Whether the inode has a loss that was not reported through this open file; said once.
    pub(crate) fn report_loss(&self) -> bool {
        let mut seen = self.seen.get();
        let is_new = self.inode.report(&mut seen);
        self.seen.set(seen);
        is_new
    }

    /// Attributes and size are new.
    pub(crate) fn touched(&self) {
        self.client.core.cache.borrow_mut().changed(self.handle);
    }
}
