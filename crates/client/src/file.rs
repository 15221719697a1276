//! An open file: its capability, where its data is, and what its writes depend on.

use crate::core::Operation;
use crate::{Client, Error};
use shoal_proto::{
    Attr, Capability, Generation, Handle, Layout, Op, Rights, ServerId, Status, Template, Time,
};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// A capability is renewed so long before it expires: clocks differ, and messages take time.
const RENEW_BEFORE: Duration = Duration::from_secs(10);

/// An open file. Clones share it. It counts as held open until the last clone is dropped or closed: an unlink by this
/// client leaves it usable until then.
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

impl Drop for Hold {
    fn drop(&mut self) {
        if self.let_go() && !self.client.core.is_closed() {
            let object = self.object;
            self.client.core.post(object.server(), "release", vec![Op::Release { object }]);
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
    fn of(attr: &Attr) -> Shape {
        Shape {
            generation: attr.generation,
            template: attr.template,
            layout: attr.layout.clone().map(Rc::new),
        }
    }
}

/// What the clones of an [`OpenFile`] share.
pub(crate) struct Opened {
    hold: RefCell<Hold>,
    pub(crate) client: Client,
    pub(crate) handle: Handle,
    rights: Rights,
    capability: Cell<Option<Capability>>,
    shape: RefCell<Shape>,
    /// By server: the loss id that came with the writes since the last fsync.
    losses: RefCell<BTreeMap<ServerId, u64>>,
    /// A write may be lost: the next fsync says so.
    lost: Cell<bool>,
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
        OpenFile(Rc::new(Opened {
            client: hold.client.clone(),
            hold: RefCell::new(hold),
            handle: attr.handle,
            rights,
            capability: Cell::new(capability),
            shape: RefCell::new(Shape::of(attr)),
            losses: RefCell::default(),
            lost: Cell::new(false),
        }))
    }

    /// The file.
    pub fn handle(&self) -> Handle {
        self.0.handle
    }

    /// What it was opened for.
    pub fn rights(&self) -> Rights {
        self.0.rights
    }

    /// Close: with the last clone, an orphan is released. Dropping does the same without waiting.
    ///
    /// # Errors
    /// When an orphan's server does not answer; it is then removed when the session's lease ends.
    pub async fn close(self) -> Result<(), Error> {
        // Bytes on their way keep clones of their own.
        let Ok(opened) = Rc::try_unwrap(self.0) else { return Ok(()) };
        let object = opened.handle;
        if opened.hold.borrow_mut().let_go() {
            let core = &opened.client.core;
            let o = core.begin("release", Some(object));
            core.ask(&o, object.server(), vec![Op::Release { object }]).await?;
        }
        Ok(())
    }
}

impl Opened {
    pub(crate) fn shape(&self) -> Shape {
        self.shape.borrow().clone()
    }

    pub(crate) fn capability(&self) -> Option<Capability> {
        self.capability.get()
    }

    /// The file was laid out.
    pub(crate) fn laid(&self, layout: Layout) {
        let mut shape = self.shape.borrow_mut();
        shape.generation = layout.generation;
        shape.layout = Some(Rc::new(layout));
    }

    /// Fetch where the data is now.
    pub(crate) async fn refresh(&self, o: &Operation) -> Result<(), Error> {
        let core = &self.client.core;
        core.cache.borrow_mut().changed(self.handle);
        let attr = core.getattr_raw(o, self.handle).await?;
        *self.shape.borrow_mut() = Shape::of(&attr);
        Ok(())
    }

    /// Get a new capability.
    async fn renew(&self, o: &Operation) -> Result<(), Error> {
        let core = &self.client.core;
        let op = Op::Open { object: self.handle, rights: self.rights };
        let told = core.ask(o, self.handle.server(), vec![op]).await?;
        self.capability.set(crate::ops::capability_among(&told.answers));
        Ok(())
    }

    fn expires_soon(&self) -> bool {
        let soon = Time(self.client.core.wall().0.saturating_add(RENEW_BEFORE.as_nanos() as i64));
        self.capability.get().is_some_and(|capability| capability.expires_at <= soon)
    }

    /// Do `work` with the file's present shape and a capability that is good; again with new ones when a server says that
    /// they are old.
    ///
    /// What was done before that is done again: a write that was not acknowledged may be done twice.
    pub(crate) async fn with_shape<T>(
        &self,
        o: &Operation,
        needs: Rights,
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
            match work(self.shape()).await {
                Err(error) if error.status == Status::StaleLayout => {
                    stale += 1;
                    if stale > 1 {
                        self.client.core.back_off(o, error).await?;
                    }
                    self.refresh(o).await?;
                }
                Err(error) if error.status == Status::BadCapability && !renewed => {
                    renewed = true;
                    self.renew(o).await?;
                }
                other => return other,
            }
        }
    }

    /// A write was acknowledged by `server`.
    pub(crate) fn written(&self, server: ServerId, loss: u64) {
        let before = *self.losses.borrow_mut().entry(server).or_insert(loss);
        if before != loss {
            self.lost.set(true);
            self.losses.borrow_mut().insert(server, loss);
        }
    }

    /// Whether a loss id of the server is noted since the last sync.
    pub(crate) fn knows_loss(&self, server: ServerId) -> bool {
        self.losses.borrow().contains_key(&server)
    }

    /// The loss ids of the writes so far, for a sync to compare with; writes from now on are the next sync's.
    pub(crate) fn take_losses(&self) -> BTreeMap<ServerId, u64> {
        self.losses.take()
    }

    /// The sync failed: the next one compares again.
    pub(crate) fn put_back_losses(&self, before: BTreeMap<ServerId, u64>) {
        for (server, loss) in before {
            let later = self.losses.borrow().get(&server).copied();
            match later {
                Some(later) if later != loss => self.lost.set(true),
                Some(_) => {}
                None => drop(self.losses.borrow_mut().insert(server, loss)),
            }
        }
    }

    /// A write may be lost.
    pub(crate) fn note_lost(&self) {
        self.lost.set(true);
    }

    /// Whether a write may be lost; said once.
    pub(crate) fn take_lost(&self) -> bool {
        self.lost.replace(false)
    }

    /// Attributes and size are new.
    pub(crate) fn touched(&self) {
        self.client.core.cache.borrow_mut().changed(self.handle);
    }
}
