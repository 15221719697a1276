//! Metalinks: small files that lead to an object on another backend. Each is written whole before it gets
//! its name. A look-up follows it to the object.

use super::handles::{Object, Shape};
use super::text::{self, LinkId, METALINK_BYTES, Target};
use super::{Federated, Shared};
use crate::container::{is_folder_name, load_whole};
use bytes::Bytes;
use shoal_proto::{Attr, Handle, Kind, Name, Owner, Rights, Status};
use shoal_vfs::{Error, RenameFlags, Result, Vfs, VfsFile};

/// Metalinks from a name to its object, at most.
pub(super) const HOPS_MAX: usize = 16;
/// Metalinks are read by all that see their names.
const READABLE: Owner = Owner { mode: 0o644, uid: 0, gid: 0 };

/// `None`: it is not there.
pub(super) fn absent<T>(found: Result<T>) -> Result<Option<T>> {
    match found {
        Err(error) if error.status == Status::NotFound => Ok(None),
        found => found.map(Some),
    }
}

/// Move an entry of a backend to a name that nothing has.
pub(super) async fn rename_new<V: Vfs>(vfs: &V, from: (Handle, &Name), to: (Handle, &Name)) -> Result<()> {
    let no_replace = RenameFlags { no_replace: true, exchange: false };
    match vfs.rename(from.0, from.1, to.0, to.1, no_replace).await {
        // NFS has no such rename.
        Err(error) if matches!(error.status, Status::Invalid | Status::NotSupported) => {
            match absent(vfs.lookup(to.0, to.1).await)? {
                Some(_) => Err(Error::new(Status::Exists, "rename").of(to.0)),
                None => vfs.rename(from.0, from.1, to.0, to.1, RenameFlags::default()).await,
            }
        }
        renamed => renamed,
    }
}

/// Write a small file aside, and give it its name, which nothing may have.
pub(super) async fn put<V: Vfs>(
    vfs: &V,
    aside: (Handle, &Name),
    to: (Handle, &Name),
    owner: Owner,
    text: String,
) -> Result<()> {
    let named = async {
        write(vfs, aside, owner, text).await?;
        rename_new(vfs, aside, to).await
    };
    let named = named.await;
    if named.is_err() {
        // It may be made all the same, or not at all.
        let _ = vfs.unlink(aside.0, aside.1).await;
    }
    named
}

async fn write<V: Vfs>(vfs: &V, at: (Handle, &Name), owner: Owner, text: String) -> Result<()> {
    let (_, _, file) = vfs.create(at.0, at.1, owner, true, Rights::READ | Rights::WRITE).await?;
    file.write(0, Bytes::from(text)).await?;
    file.fsync().await?;
    file.close().await
}

/// An object that metalinks lead to.
#[derive(Clone, Debug)]
pub(super) struct Linked {
    pub(super) object: Object,
    pub(super) attr: Attr,
    /// The metalinks on the way, and the object itself: where each lies.
    pub(super) hops: Vec<(usize, LinkId)>,
}

impl<V: Vfs> Shared<V> {
    fn backend_of(&self, id: LinkId) -> Option<usize> {
        self.backends.iter().position(|backend| backend.id == id)
    }
}

impl<V: Vfs> Federated<V> {
    pub(super) fn objects_of(&self, backend: usize) -> Handle {
        self.0.backends[backend].objects.get()
    }

    pub(super) fn target(&self, backend: usize, id: LinkId) -> Target {
        Target { backend: self.0.backends[backend].id, id }
    }

    /// The target of a file, if it is a metalink.
    pub(super) async fn read_link(&self, backend: usize, attr: &Attr) -> Result<Option<Target>> {
        if attr.kind != Kind::File || attr.size != METALINK_BYTES {
            return Ok(None);
        }
        let read = load_whole(self.on(backend), attr.handle, METALINK_BYTES).await;
        let bytes = read.map_err(|error| self.said(backend, error))?;
        Ok(text::read_metalink(&bytes))
    }

    /// Follow a metalink. `None`: it leads nowhere.
    pub(super) async fn follow(&self, mut target: Target, inner: bool) -> Result<Option<Linked>> {
        let mut hops = Vec::new();
        while hops.len() < HOPS_MAX {
            let Some(backend) = self.0.backend_of(target.backend) else {
                let words = format!(
                    "a metalink leads to the backend {}, which no list names: restore the lists of the first \
                     backend (`.shoal-federation/list.N`)",
                    target.backend
                );
                return Err(Error::new(Status::Io, "lookup").because(words));
            };
            hops.push((backend, target.id));
            let found = self.on(backend).lookup(self.objects_of(backend), &target.id.name()?).await;
            let Some(attr) = absent(found).map_err(|error| self.said(backend, error))? else {
                return Ok(None);
            };
            match self.read_link(backend, &attr).await? {
                Some(next) => target = next,
                None => {
                    let is_item = attr.kind == Kind::Directory && !inner;
                    let shape = if is_item { Shape::Item } else { Shape::Plain };
                    let object = Object { backend, handle: attr.handle, shape };
                    return Ok(Some(Linked { object, attr, hops }));
                }
            }
        }
        let words = format!("more than {HOPS_MAX} metalinks lead to it");
        Err(Error::new(Status::Loop, "lookup").because(words))
    }

    /// Write a metalink under a name that nothing has.
    pub(super) async fn put_link(&self, backend: usize, at: (Handle, &Name), target: Target) -> Result<()> {
        let aside = LinkId::draw(&self.0.env).name()?;
        let aside = (self.objects_of(backend), &aside);
        put(self.on(backend), aside, at, READABLE, text::metalink(target)).await
    }

    /// Write a metalink among the objects.
    pub(super) async fn put_aside(&self, backend: usize, id: LinkId, target: Target) -> Result<()> {
        let at = (self.objects_of(backend), &id.name()?);
        self.made_own(backend);
        write(self.on(backend), at, READABLE, text::metalink(target)).await
    }

    /// A new metalink's object, gone again.
    pub(super) async fn drop_aside(&self, backend: usize, id: LinkId) -> Result<()> {
        self.on(backend).unlink(self.objects_of(backend), &id.name()?).await
    }

    /// An entry of an item, or of a directory in one: its folders may lie elsewhere.
    pub(super) async fn inner(
        &self,
        object: Object,
        name: &Name,
        attr: Attr,
    ) -> Result<Option<(Object, Attr)>> {
        if object.shape == Shape::Item
            && is_folder_name(name)
            && let Some(target) = self.read_link(object.backend, &attr).await?
        {
            let followed = self.follow(target, true).await?;
            return Ok(followed.map(|linked| (linked.object, linked.attr)));
        }
        Ok(Some((Federated::<V>::plain(object.backend, &attr), attr)))
    }
}
