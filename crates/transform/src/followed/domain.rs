//! An open domain: the file system over a directory with a layout, and the handles by which its objects are
//! known outside of it.

use super::beneath::Beneath;
use super::handles::Handles;
use super::{Followed, Shared};
use crate::composed::Composed;
use crate::container::Container;
use shoal_proto::{Attr, Dist, Handle, Name};
use shoal_vfs::{AnyVfs, Error, Result, Vfs};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::{Rc, Weak};

/// A directory with a layout, and all in it.
pub struct Domain<B: Vfs> {
    /// The file system below.
    pub(super) over: B,
    pub(super) root: Handle,
    pub(super) layout: Layout,
    /// The objects below on which the locks of files lie, by the file; as long as a file open here uses one.
    pub(super) locks: RefCell<HashMap<Handle, Weak<B::File>>>,
    /// The handles outside of the process's objects.
    pub(super) handles: Rc<RefCell<Handles>>,
}

/// The file system of a domain.
pub(super) enum Layout {
    Container(Container<AnyVfs>),
    Composed(Composed<AnyVfs>),
}

/// Do the same in each kind of [`Layout`].
macro_rules! in_layout {
    ($of:expr, $vfs:ident => $work:expr) => {
        match &$of.layout {
            $crate::followed::domain::Layout::Container($vfs) => $work,
            $crate::followed::domain::Layout::Composed($vfs) => $work,
        }
    };
}
pub(super) use in_layout;

/// The word of a layout.
pub(super) fn word(dist: Dist) -> &'static str {
    match dist {
        Dist::Container { .. } => "container",
        Dist::Composed { .. } => "composed",
        _ => "striped",
    }
}

/// The facts of a root outside.
#[derive(Clone, Debug)]
pub(super) struct Root {
    pub(super) dist: Dist,
    /// The name that last led to it.
    pub(super) name: Option<Name>,
    /// A sync failed at the end of its last instance, and no file has reported it.
    pub(super) has_lost: bool,
}

impl Root {
    pub(super) fn new(dist: Dist, name: Option<Name>) -> Root {
        Root { dist, name, has_lost: false }
    }

    /// For errors.
    pub(super) fn words(&self, root: Handle) -> String {
        let layout = word(self.dist);
        match &self.name {
            Some(name) => format!("the directory `{name}` ({root}, layout {layout})"),
            None => format!("the directory {root} (layout {layout})"),
        }
    }
}

impl<B: Vfs> Domain<B> {
    /// Open a directory with a layout.
    pub(super) async fn open(shared: &Shared<B>, root: Handle, facts: &Root) -> Result<Rc<Domain<B>>> {
        let (env, beneath) = (shared.env.clone(), AnyVfs::of(Beneath::new(shared.over.clone(), root)));
        let opened = match facts.dist {
            Dist::Composed { .. } => Composed::open(env, beneath, &shared.wishes).await.map(Layout::Composed),
            _ => Container::checked(env, beneath).await.map(Layout::Container),
        };
        if let Ok(Layout::Container(vfs)) = &opened {
            vfs.is_used(shared.wishes.publishes_writes).await;
        }
        let layout = opened.map_err(|error| {
            let words = match error.words.is_empty() {
                true => facts.words(root),
                false => format!("{}: {}", facts.words(root), error.words),
            };
            Error { words, ..error }
        })?;
        if let Layout::Composed(vfs) = &layout
            && facts.has_lost
        {
            vfs.has_lost();
        }
        let (over, handles) = (shared.over.clone(), shared.handles.clone());
        Ok(Rc::new(Domain { over, root, layout, locks: RefCell::default(), handles }))
    }

    /// End it: what was written stays. With `goes_on` the process goes on, and an fsync through the next
    /// instance is to cover what was written through this one.
    ///
    /// # Errors
    /// Something is not written, or not durable: it can be used further, and ended again.
    pub(super) async fn end(&self, goes_on: bool) -> Result<()> {
        match &self.layout {
            Layout::Container(vfs) => {
                if goes_on {
                    vfs.sync_idle().await?;
                }
                vfs.close().await;
                Ok(())
            }
            Layout::Composed(vfs) => vfs.end().await,
        }
    }

    /// Whether a sync failed, and no file has reported it.
    pub(super) fn has_lost(&self) -> bool {
        matches!(&self.layout, Layout::Composed(vfs) if vfs.is_loss_unseen())
    }

    /// Make all durable that this process wrote in it.
    pub(super) async fn sync(&self) -> Result<()> {
        in_layout!(self, vfs => vfs.sync_all().await)
    }
}

impl<B: Vfs> Followed<B> {
    /// Attributes of an object in a domain, as they are seen outside.
    pub(super) fn outside(&self, domain: &Domain<B>, mut attr: Attr) -> Attr {
        if attr.parent != Handle::default() {
            attr.parent = self.handle(domain, attr.parent);
        }
        attr.handle = self.handle(domain, attr.handle);
        attr
    }
}
