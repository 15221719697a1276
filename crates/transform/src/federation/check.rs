//! Check and recovery of a federation: leftovers of killed renames and creations.
//!
//! All directories are walked, from the first backend on. Folders and objects that no name leads to, and
//! names that lead nowhere, are leftovers. A rename under way has such folders, objects and names too, so
//! recovery is for times when no program uses the directory.

use super::Federated;
use super::handles::Object;
use super::links::absent;
use super::text::{self, LinkId};
use crate::container::is_folder_name;
use shoal_proto::{Handle, Kind, Name, Status};
use shoal_vfs::{Error, Listing, Result, Vfs};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Directories that are walked, at most.
const DIRECTORIES_MAX: usize = 1 << 24;

/// A federation as it was found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Federation {
    /// Entries of each backend: its directory, and files and containers.
    pub entries: Vec<(String, u64)>,
    /// Metalinks that lead to an object.
    pub metalinks: u64,
    /// Leftovers of killed steps, in words; harmless.
    pub leftovers: Vec<String>,
    /// Damage, in words.
    pub damage: Vec<String>,
    /// Leftovers that were removed.
    pub removed: u64,
    /// Files that had no name, and are `recovered-ID` in the root now.
    pub named: u64,
}

/// A leftover, and how it is put in order.
struct Leftover {
    backend: usize,
    dir: Handle,
    name: Name,
    remedy: Remedy,
    words: String,
}

/// How a leftover is put in order.
#[derive(Clone, Copy)]
enum Remedy {
    /// A file, or an empty folder, is removed.
    Unlink,
    Rmdir,
    /// A file of users gets a name.
    Name(LinkId),
}

#[derive(Default)]
struct Walk {
    federation: Federation,
    /// IDs of directories, and of objects that names lead to.
    dirs: BTreeSet<LinkId>,
    objects: BTreeMap<(usize, LinkId), u64>,
    leftovers: Vec<Leftover>,
    todo: Vec<(Handle, String)>,
}

/// Look at all names of all backends.
///
/// # Errors
/// Errors of the backends.
pub async fn check<V: Vfs>(federated: &Federated<V>) -> Result<Federation> {
    let walk = walk(federated).await?;
    let mut federation = walk.federation;
    federation.leftovers = walk.leftovers.into_iter().map(|leftover| leftover.words).collect();
    Ok(federation)
}

/// Remove what killed steps left. No program may use the directory.
///
/// # Errors
/// Errors of the backends.
pub async fn recover<V: Vfs>(federated: &Federated<V>) -> Result<Federation> {
    let walk = walk(federated).await?;
    let mut federation = walk.federation;
    for leftover in walk.leftovers {
        let (vfs, backend) = (federated.on(leftover.backend), leftover.backend);
        let done = match leftover.remedy {
            Remedy::Rmdir => vfs.rmdir(leftover.dir, &leftover.name).await,
            Remedy::Unlink => vfs.unlink(leftover.dir, &leftover.name).await,
            Remedy::Name(id) => {
                name_it(federated, backend, id).await?;
                federation.named += 1;
                continue;
            }
        };
        match done {
            Ok(()) => federation.removed += 1,
            Err(error) if error.status == Status::NotEmpty => {
                federation.damage.push(format!("{}: it is not empty, and stays", leftover.words));
            }
            Err(error) if error.status == Status::NotFound => {}
            Err(error) => return Err(federated.said(backend, error)),
        }
    }
    Ok(federation)
}

/// Give an object of a backend a name in the root.
async fn name_it<V: Vfs>(federated: &Federated<V>, backend: usize, id: LinkId) -> Result<()> {
    let text = format!("recovered-{id}");
    let name = Name::new(text.as_bytes()).map_err(|status| Error::new(status, "recover"))?;
    let place = federated.place(&name);
    let folder = federated.folder_made(place, Handle::ROOT).await?;
    federated.put_link(place, (folder, &name), federated.target(backend, id)).await
}

async fn walk<V: Vfs>(federated: &Federated<V>) -> Result<Walk> {
    let mut walk = Walk::default();
    let called = |number: usize| federated.0.backends[number].called.clone();
    walk.federation.entries = (0..federated.count()).map(|number| (called(number), 0)).collect();
    walk.todo.push((Handle::ROOT, String::new()));
    walk.dirs.insert(LinkId::ROOT);
    let mut walked = 0;
    while let Some((dir, path)) = walk.todo.pop() {
        walked += 1;
        if walked > DIRECTORIES_MAX {
            walk.federation
                .damage
                .push(format!("more than {DIRECTORIES_MAX} directories: the rest is not checked"));
            break;
        }
        walk.directory(federated, dir, &path).await?;
    }
    walk.unnamed(federated).await?;
    Ok(walk)
}

async fn entries<V: Vfs>(federated: &Federated<V>, backend: usize, dir: Handle) -> Result<Vec<(Name, Kind)>> {
    let mut listing = federated.on(backend).opendir(dir, Duration::from_secs(1));
    let mut all = Vec::new();
    while let Some(listed) = listing.next(false).await.map_err(|error| federated.said(backend, error))? {
        all.push((listed.entry.name, listed.entry.kind));
    }
    Ok(all)
}

impl Walk {
    async fn directory<V: Vfs>(&mut self, federated: &Federated<V>, dir: Handle, path: &str) -> Result<()> {
        self.dirs.extend(federated.id_of(dir).await?);
        let mut parts = vec![(0, dir)];
        parts.extend(federated.folders(dir).await?);
        let mut seen: BTreeMap<Name, usize> = BTreeMap::new();
        for (backend, folder) in parts {
            for (name, _) in entries(federated, backend, folder).await? {
                if name == text::leaving() && backend == 0 {
                    let words = format!("{path}/: a removal of it was killed");
                    self.leftovers.push(Leftover { backend, dir, name, remedy: Remedy::Unlink, words });
                    continue;
                }
                if federated.is_own(dir, &name) {
                    continue;
                }
                let here = format!("{path}/{}", String::from_utf8_lossy(name.as_bytes()));
                if let Some(other) = self.entry(federated, (backend, folder), (dir, &name), &here).await?
                    && let Some(first) = seen.insert(name, other)
                {
                    let called = |number: usize| &federated.0.backends[number].called;
                    let words = format!(
                        "{here} lies on {} and on {}: only one of the two is seen; move the other one to another name",
                        called(first),
                        called(other)
                    );
                    self.federation.damage.push(words);
                }
            }
        }
        Ok(())
    }

    /// An entry of a backend. Its backend, if it is seen.
    async fn entry<V: Vfs>(
        &mut self,
        federated: &Federated<V>,
        (backend, folder): (usize, Handle),
        (dir, name): (Handle, &Name),
        here: &str,
    ) -> Result<Option<usize>> {
        let Some(attr) = absent(federated.on(backend).lookup(folder, name).await)? else { return Ok(None) };
        if let Some(target) = federated.read_link(backend, &attr).await? {
            let Some(linked) = federated.follow(target, false).await? else {
                let words =
                    format!("{here}: a metalink on {} leads nowhere", federated.0.backends[backend].called);
                self.leftovers.push(Leftover {
                    backend,
                    dir: folder,
                    name: name.clone(),
                    remedy: Remedy::Unlink,
                    words,
                });
                return Ok(None);
            };
            self.federation.metalinks += 1;
            let last = linked.hops.len() - 1;
            for (at, hop) in linked.hops.iter().enumerate() {
                let names = self.objects.entry(*hop).or_default();
                *names += u64::from(at == last);
                if at == last && *names == 2 {
                    let words = format!(
                        "{here}: another name leads to the same file; remove neither, and move one \
                                         of them again to end a rename that was killed"
                    );
                    self.federation.damage.push(words);
                }
            }
            if linked.object.shape == super::handles::Shape::Item {
                self.folders(federated, linked.object, federated.is_bin(dir)).await?;
            }
            self.federation.entries[linked.object.backend].1 += 1;
            return Ok(Some(backend));
        }
        let shape = match attr.kind {
            Kind::Directory => federated.shape(backend, dir, &attr).await?,
            _ => Some(super::handles::Shape::Plain),
        };
        match shape {
            // It keeps the name of a directory.
            None => {
                if absent(federated.first().lookup(dir, name).await)?.is_none() {
                    let words = format!(
                        "{here}: {} keeps the name of a directory that is gone",
                        federated.0.backends[backend].called
                    );
                    self.leftovers.push(Leftover {
                        backend,
                        dir: folder,
                        name: name.clone(),
                        remedy: Remedy::Rmdir,
                        words,
                    });
                }
                return Ok(None);
            }
            Some(super::handles::Shape::Directory) => {
                federated.saw_at_root(dir, name, &attr);
                self.todo.push((attr.handle, here.to_owned()));
            }
            Some(super::handles::Shape::Item) => {
                let shape = super::handles::Shape::Item;
                let item = Object { backend, handle: attr.handle, shape };
                self.folders(federated, item, federated.is_bin(dir)).await?;
                self.federation.entries[backend].1 += 1;
            }
            Some(super::handles::Shape::Plain) => self.federation.entries[backend].1 += 1,
        }
        Ok(Some(backend))
    }

    /// The folders of an item that lie elsewhere.
    async fn folders<V: Vfs>(
        &mut self,
        federated: &Federated<V>,
        item: Object,
        is_binned: bool,
    ) -> Result<()> {
        for (name, kind) in entries(federated, item.backend, item.handle).await? {
            if kind != Kind::File || !is_folder_name(&name) {
                continue;
            }
            let attr = federated.on(item.backend).lookup(item.handle, &name).await?;
            let Some(target) = federated.read_link(item.backend, &attr).await? else { continue };
            match federated.follow(target, true).await? {
                Some(linked) => {
                    self.federation.metalinks += 1;
                    for hop in linked.hops {
                        *self.objects.entry(hop).or_default() += 1;
                    }
                }
                // It is being removed, or that was killed.
                None if is_binned => {}
                None => {
                    let called = &federated.0.backends[item.backend].called;
                    let words =
                        format!("a folder of logs of a container on {called} is gone from its backend");
                    self.federation.damage.push(words);
                }
            }
        }
        Ok(())
    }

    /// The folders of containers that no name leads to are theirs.
    async fn unnamed_items<V: Vfs>(&mut self, federated: &Federated<V>) -> Result<()> {
        for backend in 0..federated.count() {
            let objects = federated.objects_of(backend);
            if objects == Handle(0) {
                continue;
            }
            for (name, kind) in entries(federated, backend, objects).await? {
                let id = std::str::from_utf8(name.as_bytes()).ok().and_then(LinkId::parse);
                if kind != Kind::Directory || id.is_none_or(|id| self.objects.contains_key(&(backend, id))) {
                    continue;
                }
                let Some(attr) = absent(federated.on(backend).lookup(objects, &name).await)? else {
                    continue;
                };
                if federated.is_item(backend, &attr).await? {
                    let shape = super::handles::Shape::Item;
                    self.folders(federated, Object { backend, handle: attr.handle, shape }, false).await?;
                }
            }
        }
        Ok(())
    }

    /// Folders and objects that nothing leads to.
    async fn unnamed<V: Vfs>(&mut self, federated: &Federated<V>) -> Result<()> {
        self.unnamed_items(federated).await?;
        for (number, backend) in federated.0.backends.iter().enumerate() {
            if backend.dirs.get() == Handle(0) {
                // A directory by itself.
                continue;
            }
            for (dir, kind) in [(backend.dirs.get(), "folder"), (backend.objects.get(), "object")] {
                for (name, _) in entries(federated, number, dir).await? {
                    let id = std::str::from_utf8(name.as_bytes()).ok().and_then(LinkId::parse);
                    let is_known = match (id, kind) {
                        (Some(id), "folder") => self.dirs.contains(&id),
                        (Some(id), _) => self.objects.contains_key(&(number, id)),
                        (None, _) => false,
                    };
                    if is_known {
                        continue;
                    }
                    let name_text = String::from_utf8_lossy(name.as_bytes()).into_owned();
                    let words = format!("no name leads to the {kind} {name_text} of {}", backend.called);
                    let remedy = self.remedy_of(federated, number, (dir, &name), (kind, id)).await?;
                    match remedy {
                        Some(remedy) => {
                            self.leftovers.push(Leftover { backend: number, dir, name, remedy, words });
                        }
                        None => self.federation.damage.push(words),
                    }
                }
            }
        }
        Ok(())
    }

    /// How a folder or an object that nothing leads to is put in order.
    async fn remedy_of<V: Vfs>(
        &self,
        federated: &Federated<V>,
        backend: usize,
        (dir, name): (Handle, &Name),
        (kind, id): (&str, Option<LinkId>),
    ) -> Result<Option<Remedy>> {
        let Some(attr) = absent(federated.on(backend).lookup(dir, name).await)? else { return Ok(None) };
        if attr.kind == Kind::Directory {
            let is_file = kind == "object" && federated.is_item(backend, &attr).await?;
            return Ok(if is_file { id.map(Remedy::Name) } else { Some(Remedy::Rmdir) });
        }
        match self.is_small_text(federated, backend, dir, name).await? {
            true => Ok(Some(Remedy::Unlink)),
            false => Ok(id.filter(|_| kind == "object").map(Remedy::Name)),
        }
    }

    /// Whether a file is a metalink or another text of the federation, or the beginning of one.
    async fn is_small_text<V: Vfs>(
        &self,
        federated: &Federated<V>,
        backend: usize,
        dir: Handle,
        name: &Name,
    ) -> Result<bool> {
        let Some(attr) = absent(federated.on(backend).lookup(dir, name).await)? else { return Ok(false) };
        if attr.kind != Kind::File || attr.size > text::LIST_BYTES_MAX {
            return Ok(false);
        }
        let bytes = crate::container::load_whole(federated.on(backend), attr.handle, attr.size).await?;
        Ok(bytes.is_empty() || bytes.starts_with(b"shoal "))
    }
}
