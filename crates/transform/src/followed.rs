//! A file system that follows the layouts `container` and `composed` of directories.
//!
//! `shoal layout set DIR container` makes a directory one of containers, and `composed` a composed one. The
//! template of the directory ([`Dist::Container`](shoal_proto::Dist), [`Dist::Composed`](shoal_proto::Dist))
//! shows the layout to every client. A client *follows* the layout: below such a directory [`Followed`]
//! shows the names and files of the layout, and everywhere else it shows the file system below, unchanged.
//!
//! ```text
//!   on the servers                          seen
//!   runs/                                   runs/
//!   ├── notes.txt                           ├── notes.txt                 outside: passed through
//!   └── ckpt/       template container      └── ckpt/                     the root of a domain
//!       ├── .shoal/                             └── step-1                in it: a file
//!       └── step-1/ w.… h.0/ …
//! ```
//! A **domain** is a directory with such a layout, and all in it. It is opened at its first use
//! ([`domain`]), as the file system of its layout over the directory ([`beneath`]). The handles of objects
//! in a domain are marked ([`handles`]). The root of the domain keeps its handle of the file system below,
//! because it also has a name outside of the domain.
//!
//! **Outside of domains nothing is added**: no message, no allocation. If a handle has no mark and is not in
//! the table of roots, the call goes straight to the file system below.
//!
//! **A root is known before anything in it is used.** [`Followed`] looks at the attributes of each directory
//! that it returns. A directory with such a template is entered in the table of roots. If its parent
//! directory has such a template too, it is not a root, but lies in the domain of the highest of these
//! directories. A client may have looked at a directory before the directory got its layout. Then the client
//! follows the layout when it looks again, at the latest after the time for which it keeps attributes.
//!
//! **The number of open domains is bounded** ([`slots`]). Domains that nothing uses are closed, the least
//! recently used one first, and are opened again when they are needed. A composed directory is also closed
//! when nothing has used it for a few seconds: this ends its log, so other processes may remove the
//! directory. While a domain is being closed, no other instance of it is opened. The close is complete when
//! all bytes are durable. A close that fails is tried again.
//!
//! A rename or a link over the border of a domain is refused with `EXDEV`, as between file systems.

pub mod beneath;
mod border;
mod domain;
mod file;
mod handles;
mod listing;
mod many;
mod name_space;
mod removal;
mod slots;

pub use file::{FollowedFile, Inside};
pub use listing::FollowedListing;

use crate::composed::Wishes;
use crate::limits::FOLLOWED_ROOTS_MAX;
use domain::{Domain, Layout, Root};
use handles::{Handles, is_inside};
use lru::LruCache;
use shoal_env::Env;
use shoal_proto::{Attr, Dist, Handle, Name, Status, limits};
use shoal_vfs::{Connect, Error, Result, Vfs};
use slots::Slot;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// How a file system whose layouts are followed is reached.
#[derive(Clone, Debug)]
pub struct FollowedOptions<C> {
    /// The file system below.
    pub over: C,
    /// How composed directories are used. Their blocks and physical files are those that they were made with.
    pub wishes: Wishes,
}

impl<C: Connect> Connect for FollowedOptions<C> {
    type Vfs = Followed<C::Vfs>;

    fn under_a_kernel(&mut self, read_only: bool) {
        self.over.under_a_kernel(read_only);
        self.wishes.read_only |= read_only;
    }

    async fn connect(self, env: Env) -> Result<Followed<C::Vfs>> {
        let over = self.over.connect(env.clone()).await?;
        Ok(Followed::wishing(env, over, self.wishes))
    }
}

/// A file system whose layouts are followed. See the module.
#[derive(Clone)]
pub struct Followed<B: Vfs>(pub(crate) Rc<Shared<B>>);

/// Where an object in a directory with a layout lies below.
#[derive(Clone, Debug)]
pub struct LaidObject {
    /// The directory with the layout, as the file system below has it.
    pub root: Attr,
    /// Among containers: the directory of the container, or the directory itself. In a composed directory an
    /// object has no object of its own.
    pub below: Option<Handle>,
}

/// The state that the clones share.
pub(crate) struct Shared<B: Vfs> {
    env: Env,
    over: B,
    wishes: Wishes,
    roots: RefCell<BTreeMap<Handle, Root>>,
    handles: Rc<RefCell<Handles>>,
    slots: RefCell<LruCache<Handle, Rc<Slot<B>>>>,
    /// A task looks for domains that nothing uses.
    looks_for_idle: Cell<bool>,
}

impl<B: Vfs> Followed<B> {
    /// The file system `over`, whose layouts are followed.
    pub fn new(env: Env, over: B) -> Followed<B> {
        Followed::wishing(env, over, Wishes::default())
    }

    fn wishing(env: Env, over: B, wishes: Wishes) -> Followed<B> {
        let shared = Shared {
            env,
            over,
            wishes,
            roots: RefCell::default(),
            handles: Rc::default(),
            slots: RefCell::new(LruCache::unbounded()),
            looks_for_idle: Cell::new(false),
        };
        let followed = Followed(Rc::new(shared));
        let weak = Rc::downgrade(&followed.0);
        followed.0.over.hear_removals(move |object| {
            if let Some(shared) = weak.upgrade() {
                shared.is_removed(object);
            }
        });
        followed
    }

    /// The file system below.
    pub fn over(&self) -> &B {
        &self.0.over
    }

    /// Where an object lies below; nothing for one outside of all directories with a layout.
    ///
    /// # Errors
    /// `Stale`: it is gone; errors of the file system below.
    pub async fn laid(&self, object: Handle) -> Result<Option<LaidObject>> {
        if !is_inside(object) {
            return Ok(None);
        }
        let (root, inner) = self.place(object).await?;
        let root = self.0.over.getattr(root).await?;
        let has_own = matches!(root.template.dist, Dist::Container { .. });
        Ok(Some(LaidObject { root, below: has_own.then_some(inner) }))
    }

    /// Domains that are open now.
    pub fn domains_open(&self) -> usize {
        self.0.slots.borrow().iter().filter(|(_, slot)| slot.is_open()).count()
    }

    /// Whether the entries of a directory are those of the file system below.
    fn is_outside(&self, dir: Handle) -> bool {
        !is_inside(dir) && !self.is_root(dir)
    }

    fn is_root(&self, dir: Handle) -> bool {
        let roots = self.0.roots.borrow();
        !roots.is_empty() && roots.contains_key(&dir)
    }

    /// Attributes from the file system below, as they are seen.
    async fn seen(&self, attr: Attr, name: Option<&Name>) -> Result<Attr> {
        match attr.template.dist.is_followed() {
            true => Box::pin(self.learn(attr, name)).await,
            false => Ok(attr),
        }
    }

    /// A directory with a layout that is followed was found: it is a root, or lies in a domain.
    async fn learn(&self, attr: Attr, name: Option<&Name>) -> Result<Attr> {
        if let Some(root) = self.0.roots.borrow_mut().get_mut(&attr.handle) {
            if name.is_some() {
                root.name = name.cloned();
            }
        } else if let Some((root, dist)) = self.above(&attr).await? {
            self.enter_root(root, Root::new(dist, None)).await?;
            let domain = self.domain(root).await?;
            return match &domain.layout {
                Layout::Container(vfs) => {
                    vfs.getattr(attr.handle).await.map(|seen| self.outside(&domain, seen))
                }
                Layout::Composed(_) => Err(Error::new(Status::NotFound, "look up").of(attr.handle)),
            };
        } else {
            let root = Root::new(attr.template.dist, name.cloned());
            self.enter_root(attr.handle, root).await?;
        }
        Ok(self.of_root(attr).await)
    }

    /// Attributes of a root. Its links do not count directories below, which are no directories of its users.
    async fn of_root(&self, mut attr: Attr) -> Attr {
        attr.nlink = attr.nlink.min(1);
        let slot = self.0.slots.borrow().peek(&attr.handle).cloned();
        let domain = slot.and_then(|slot| slot.open());
        if let Some(domain) = domain
            && let Layout::Composed(vfs) = &domain.layout
            && let Ok(inner) = vfs.getattr(Handle::ROOT).await
        {
            attr.mtime = attr.mtime.max(inner.mtime);
            attr.ctime = attr.ctime.max(inner.ctime);
        }
        attr
    }

    /// The highest directory above with a layout that is followed, if the next one above has one.
    async fn above(&self, attr: &Attr) -> Result<Option<(Handle, Dist)>> {
        let (mut at, mut found) = (attr.parent, None);
        for _ in 0..limits::PATH_COMPONENTS_MAX {
            if at == Handle::default() || at == attr.handle {
                break;
            }
            let above = self.0.over.getattr(at).await?;
            if !above.template.dist.is_followed() {
                break;
            }
            found = Some((at, above.template.dist));
            if above.parent == at {
                break;
            }
            at = above.parent;
        }
        Ok(found)
    }

    async fn enter_root(&self, root: Handle, facts: Root) -> Result<()> {
        if self.0.roots.borrow().len() >= FOLLOWED_ROOTS_MAX {
            self.forget_removed().await;
        }
        let mut roots = self.0.roots.borrow_mut();
        if roots.len() >= FOLLOWED_ROOTS_MAX {
            let words = format!(
                "{}: this process uses {FOLLOWED_ROOTS_MAX} directories with a layout of their own already, and no more: \
                 unmount and mount again",
                facts.words(root)
            );
            return Err(Error::new(Status::OverLimit, "look up").because(words));
        }
        roots.entry(root).or_insert(facts);
        Ok(())
    }

    /// Forget the roots that others removed.
    async fn forget_removed(&self) {
        let roots: Vec<Handle> = self.0.roots.borrow().keys().copied().collect();
        for root in roots {
            let found = self.0.over.getattr(root).await;
            if found.is_err_and(|error| error.status == Status::Stale) {
                self.0.is_removed(root);
            }
        }
    }

    /// The domain of a directory whose entries are not outside, and the directory in it.
    async fn enter(&self, dir: Handle) -> Result<(Rc<Domain<B>>, Handle)> {
        let (root, inner) = match is_inside(dir) {
            true => self.place(dir).await?,
            false => (dir, Handle::ROOT),
        };
        Ok((self.domain(root).await?, inner))
    }
}

impl<B: Vfs> Shared<B> {
    /// An object has lost a name. A directory has only one.
    fn is_removed(&self, object: Handle) {
        if self.roots.borrow().is_empty() || self.roots.borrow_mut().remove(&object).is_none() {
            return;
        }
        // Nothing is left that could be ended.
        self.slots.borrow_mut().pop(&object);
    }
}
