//! The backends: their identities, and the numbered lists of backends, which are on the first backend.
//!
//! Each backend has an identity in a file of its own. So a disk that is not mounted, or another disk, is
//! not taken for the backend. A list names identities and directories, in order; lists are made and never
//! changed. **A list that a program gives must begin with the backends of the newest list**: it is either
//! the same list or a longer list.

use super::text::{self, LinkId, List};
use super::{Backend, Federated, handles::BACKENDS_MAX, links};
use crate::container::load_whole;
use shoal_env::Env;
use shoal_proto::{Handle, Name, Owner, Status};
use shoal_vfs::{Connect, Error, Listing, Local, LocalOptions, Result, Vfs};
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Lists of backends, at most.
const LISTS_MAX: usize = 1024;
/// A list that another program makes is looked for so often, with a pause each.
const TRIES_MAX: u32 = 20;
const PAUSE: Duration = Duration::from_millis(25);
/// Folders that users make entries in, and do not list.
const DROP_BOX: Owner = Owner { mode: 0o1733, uid: 0, gid: 0 };
const OPEN: Owner = Owner { mode: 0o755, uid: 0, gid: 0 };
const TEXT: Owner = Owner { mode: 0o644, uid: 0, gid: 0 };

/// How a federation of directories is reached.
#[derive(Clone, Debug)]
pub struct FederationOptions {
    /// The first backend, and how each one's host is called.
    pub over: LocalOptions,
    /// The others, in order; none: those of the newest list.
    pub backends: Vec<PathBuf>,
    /// A directory that is not the first of several is one by itself.
    pub may_be_alone: bool,
}

impl FederationOptions {
    /// A directory and its further backends.
    pub fn new(over: LocalOptions, backends: Vec<PathBuf>) -> FederationOptions {
        FederationOptions { over, backends, may_be_alone: false }
    }
}

/// Whether a directory is the first backend of a federation.
pub fn is_federated(dir: &Path) -> bool {
    dir.join(".shoal-federation").join("list.1").is_file()
}

impl Connect for FederationOptions {
    type Vfs = Federated<Local>;

    fn under_a_kernel(&mut self, read_only: bool) {
        self.over.under_a_kernel(read_only);
    }

    async fn connect(self, env: Env) -> Result<Federated<Local>> {
        let first = self.over.clone().connect(env.clone()).await?;
        let lists = self.lists(&env, &first).await?;
        if lists.is_empty() && self.may_be_alone && identity(&first).await?.is_none() {
            let called = self.over.dir.display().to_string();
            return Ok(Federated::new(env, vec![Backend::alone(first, called)], vec![vec![0]]));
        }
        if lists.is_empty() {
            let words = format!(
                "{} is not the first of several backends: name the others (`backends=DIR2:DIR3`)",
                self.over.dir.display()
            );
            return Err(Error::new(Status::Invalid, "connect").because(words));
        }
        self.open_all(env, first, &lists).await
    }
}

impl FederationOptions {
    async fn open(&self, env: &Env, path: &Path) -> Result<Local> {
        LocalOptions { dir: path.to_owned(), ..self.over.clone() }.connect(env.clone()).await
    }

    /// The lists, with a further one if further backends are given.
    async fn lists(&self, env: &Env, first: &Local) -> Result<Vec<List>> {
        let mut tries = 0;
        loop {
            tries += 1;
            let mut lists = read_lists(first).await?;
            if self.backends.is_empty() {
                return Ok(lists);
            }
            match self.compare(env, first, &mut lists).await {
                // Another program makes the list at this moment: then it is there soon.
                Err(error)
                    if tries < TRIES_MAX
                        && (error.status == Status::Exists
                            || error.status == Status::Invalid && lists.is_empty()) =>
                {
                    env.sleep(PAUSE).await;
                }
                compared => return compared.map(|()| lists),
            }
        }
    }

    /// Hold the given backends against the newest list; make a further list if there are more.
    async fn compare(&self, env: &Env, first: &Local, lists: &mut Vec<List>) -> Result<()> {
        let mut given = vec![(identity(first).await?, self.over.dir.clone())];
        let mut opened = vec![first.clone()];
        for path in &self.backends {
            let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
            let vfs = self.open(env, &path).await?;
            given.push((identity(&vfs).await?, path));
            opened.push(vfs);
        }
        check_given(&given, lists.last())?;
        // The first one is where it was given, wherever its list says.
        let is_known = lists.last().is_some_and(|newest| {
            newest.len() == given.len()
                && newest.iter().zip(&given).skip(1).all(|((_, path), (_, given))| Path::new(path) == given)
        });
        if is_known {
            return Ok(());
        }
        if self.over.read_only {
            let words = "the list of backends is a new one, and the mount is for reading only: leave it out";
            return Err(Error::new(Status::ReadOnly, "connect").because(words));
        }
        let was_used = lists.is_empty() && has_entries(first).await?;
        let mut list = List::new();
        for ((id, path), vfs) in given.iter().zip(&opened) {
            let id = match id {
                Some(id) => *id,
                None => make_backend(env, vfs).await?,
            };
            list.push((id, path.to_string_lossy().into_owned()));
        }
        if was_used {
            // Its files are where they are.
            let alone = vec![list[0].clone()];
            write_list(env, first, 1, &alone).await?;
            lists.push(alone);
        }
        write_list(env, first, lists.len() + 1, &list).await?;
        lists.push(list);
        Ok(())
    }

    async fn open_all(&self, env: Env, first: Local, lists: &[List]) -> Result<Federated<Local>> {
        let mut all: List = Vec::new();
        for (id, path) in lists.iter().flatten() {
            match all.iter_mut().find(|(known, _)| known == id) {
                // A later list says where it is now.
                Some(known) => known.1.clone_from(path),
                None => all.push((*id, path.clone())),
            }
        }
        let place = |id: &LinkId| all.iter().position(|(known, _)| known == id).unwrap_or(0);
        let by_place = lists.iter().map(|list| list.iter().map(|(id, _)| place(id)).collect()).collect();
        if all.len() > BACKENDS_MAX {
            let words = format!("{} backends, and {BACKENDS_MAX} are the most", all.len());
            return Err(Error::new(Status::OverLimit, "connect").because(words));
        }
        let mut backends = Vec::new();
        for (number, (id, path)) in all.iter().enumerate() {
            let vfs = match number {
                0 => first.clone(),
                _ => self.open(&env, Path::new(path)).await.map_err(|error| {
                    let words = format!(
                        "backend {} of {} ({path}) cannot be reached: {}. Mount the disk that holds it; if it \
                         moved, give all backends in order, with its new directory",
                        number + 1,
                        all.len(),
                        error.words
                    );
                    error.because(words)
                })?,
            };
            let found = identity(&vfs).await?;
            if found != Some(*id) {
                return Err(foreign(number, path, *id, found));
            }
            let called = if number == 0 { self.over.dir.display().to_string() } else { path.clone() };
            let none = Handle(0);
            let (dirs, objects) = (Cell::new(none), Cell::new(none));
            let (entries_made, entries_durable) = (Cell::new(0), Cell::new(0));
            let backend = Backend { vfs, called, id: *id, dirs, objects, entries_made, entries_durable };
            backend.open_folders().await?;
            backends.push(backend);
        }
        let federated = Federated::new(env, backends, by_place);
        federated.0.own.set(own_folder(federated.first()).await?);
        Ok(federated)
    }
}

/// A directory that is not the backend that a list names.
fn foreign(number: usize, path: &str, id: LinkId, found: Option<LinkId>) -> Error {
    let found = found.map_or("no identity".to_owned(), |found| format!("the identity {found}"));
    let words = format!(
        "{path} is not backend {} of the list: it has {found}, and the list says {id}. Mount the disk that holds \
         it, or give all backends in the order of the list; nothing was changed",
        number + 1
    );
    Error::new(Status::Invalid, "connect").because(words)
}

/// The given backends are those of the newest list, in order, and perhaps further ones after them.
fn check_given(given: &[(Option<LinkId>, PathBuf)], newest: Option<&List>) -> Result<()> {
    let ids: Vec<LinkId> = given.iter().filter_map(|(id, _)| *id).collect();
    let is_twice = ids.iter().enumerate().any(|(at, id)| ids[..at].contains(id));
    let paths: Vec<&PathBuf> = given.iter().map(|(_, path)| path).collect();
    if is_twice || paths.iter().enumerate().any(|(at, path)| paths[..at].contains(path)) {
        let words = "a backend is given twice: name each one once, and the first one as the directory";
        return Err(Error::new(Status::Invalid, "connect").because(words));
    }
    let Some(newest) = newest else {
        // A backend of another federation has names that this one does not know.
        return match given.iter().find(|(id, _)| id.is_some()) {
            Some((_, path)) => {
                let words = format!(
                    "{} is a backend of a federation already: name its first backend as the directory, or an empty \
                     directory here. If a program was killed while it made the list, remove `.shoal-federation` \
                     there, if its folders `dirs` and `objects` are empty",
                    path.display()
                );
                Err(Error::new(Status::Invalid, "connect").because(words))
            }
            None => Ok(()),
        };
    };
    for (number, (id, path)) in newest.iter().enumerate() {
        match given.get(number) {
            Some((Some(found), _)) if found == id => {}
            Some((found, given)) => {
                return Err(foreign(number, &given.to_string_lossy(), *id, *found));
            }
            None => {
                let words = format!(
                    "the list of backends lacks backend {} ({path}): files lie there. Give all backends of the \
                     list, or none: then the newest list counts",
                    number + 1
                );
                return Err(Error::new(Status::Invalid, "connect").because(words));
            }
        }
    }
    match given[newest.len()..].iter().find(|(id, _)| id.is_some()) {
        Some((_, path)) => {
            let words =
                format!("{} is a backend of another federation: name an empty directory", path.display());
            Err(Error::new(Status::Invalid, "connect").because(words))
        }
        None => Ok(()),
    }
}

async fn own_folder<V: Vfs>(vfs: &V) -> Result<Option<Handle>> {
    links::absent(vfs.lookup(Handle::ROOT, &text::federation()).await)
        .map(|found| found.map(|attr| attr.handle))
}

/// A backend's identity; `None`: it has none yet.
async fn identity<V: Vfs>(vfs: &V) -> Result<Option<LinkId>> {
    let Some(own) = own_folder(vfs).await? else { return Ok(None) };
    let Some(file) = links::absent(vfs.lookup(own, &text::backend()).await)? else { return Ok(None) };
    let words = "the identity in `.shoal-federation/backend` is damaged: restore the file from a copy";
    let bytes = load_whole(vfs, file.handle, file.size.min(text::LIST_BYTES_MAX)).await?;
    text::read_backend_id(&bytes).map(Some).ok_or_else(|| Error::new(Status::Io, "connect").because(words))
}

/// Whether there is anything in the root.
async fn has_entries<V: Vfs>(vfs: &V) -> Result<bool> {
    let mut listing = vfs.opendir(Handle::ROOT, Duration::from_secs(1));
    while let Some(listed) = listing.next(false).await? {
        if listed.entry.name != text::federation() {
            return Ok(true);
        }
    }
    Ok(false)
}

async fn folder_in<V: Vfs>(vfs: &V, dir: Handle, name: &Name, owner: Owner) -> Result<Handle> {
    match vfs.mkdir(dir, name, owner).await {
        Err(error) if error.status == Status::Exists => Ok(vfs.lookup(dir, name).await?.handle),
        made => Ok(made?.handle),
    }
}

/// Make a directory a backend.
async fn make_backend<V: Vfs>(env: &Env, vfs: &V) -> Result<LinkId> {
    let own = folder_in(vfs, Handle::ROOT, &text::federation(), OPEN).await?;
    folder_in(vfs, own, &text::dirs(), DROP_BOX).await?;
    let objects = folder_in(vfs, own, &text::objects(), DROP_BOX).await?;
    let id = LinkId::draw(env);
    let aside = LinkId::draw(env).name()?;
    match links::put(vfs, (objects, &aside), (own, &text::backend()), TEXT, text::backend_id(id)).await {
        // Another program was first.
        Err(error) if error.status == Status::Exists => {
            return identity(vfs).await?.ok_or_else(|| Error::new(Status::Exists, "connect"));
        }
        put => put?,
    }
    vfs.fsync_directory(own).await?;
    vfs.fsync_directory(Handle::ROOT).await?;
    Ok(id)
}

async fn read_lists<V: Vfs>(first: &V) -> Result<Vec<List>> {
    let mut lists = Vec::new();
    let Some(own) = own_folder(first).await? else { return Ok(lists) };
    while lists.len() < LISTS_MAX {
        let number = lists.len() + 1;
        let Some(file) = links::absent(first.lookup(own, &text::list(number)?).await)? else { break };
        let bytes = load_whole(first, file.handle, file.size.min(text::LIST_BYTES_MAX)).await?;
        let list = text::read_list(number, &bytes).ok_or_else(|| {
            let words = format!(
                "list {number} of the backends (`.shoal-federation/list.{number}`) is damaged: restore the file \
                 from a copy"
            );
            Error::new(Status::Io, "connect").because(words)
        })?;
        lists.push(list);
    }
    Ok(lists)
}

/// Write a list; another program that made one of this number meanwhile has it.
async fn write_list<V: Vfs>(env: &Env, first: &V, number: usize, list: &List) -> Result<()> {
    if number > LISTS_MAX || list.iter().any(|(_, path)| path.contains('\n')) {
        let words = "too many lists of backends, or a line's end in the name of a backend";
        return Err(Error::new(Status::Invalid, "connect").because(words));
    }
    let own = own_folder(first).await?.ok_or_else(|| Error::new(Status::NotFound, "connect"))?;
    let objects = first.lookup(own, &text::objects()).await?.handle;
    let aside = LinkId::draw(env).name()?;
    let text = text::list_text(number, list);
    let put = links::put(first, (objects, &aside), (own, &text::list(number)?), TEXT, text).await;
    put.map_err(|error| match error.status {
        Status::Exists => error.because("another program adds backends at this moment: try again"),
        _ => error,
    })?;
    first.fsync_directory(own).await
}

impl<V: Vfs> Backend<V> {
    /// A directory by itself.
    fn alone(vfs: V, called: String) -> Backend<V> {
        let (dirs, objects) = (Cell::new(Handle(0)), Cell::new(Handle(0)));
        let (entries_made, entries_durable) = (Cell::new(0), Cell::new(0));
        Backend { vfs, called, id: LinkId::ROOT, dirs, objects, entries_made, entries_durable }
    }

    /// Find its folders.
    pub(super) async fn open_folders(&self) -> Result<()> {
        let own = self.vfs.lookup(Handle::ROOT, &text::federation()).await?.handle;
        for (cell, name) in [(&self.dirs, text::dirs()), (&self.objects, text::objects())] {
            let found = self.vfs.lookup(own, &name).await?.handle;
            // While it is referred to, its number is no other object's.
            self.vfs.referred(found);
            let former = cell.replace(found);
            if former != Handle(0) {
                self.vfs.forgotten(former, 1);
            }
        }
        Ok(())
    }
}

impl<V: Vfs> Federated<V> {
    /// Find the backends' folders anew.
    pub(super) async fn reopen(&self) -> Result<()> {
        if self.count() == 1 {
            return Ok(());
        }
        for (number, backend) in self.0.backends.iter().enumerate() {
            backend.open_folders().await.map_err(|error| self.said(number, error))?;
        }
        self.0.own.set(own_folder(self.first()).await?);
        Ok(())
    }

    /// Refuse to go on where another program added a backend: names lie there that are not seen here.
    pub(super) async fn check_lists(&self, op: &'static str) -> Result<()> {
        let Some(own) = self.0.own.get() else { return Ok(()) };
        let known = self.0.lists.len();
        let further = links::absent(self.first().lookup(own, &text::list(known + 1)?).await);
        match further.map_err(|error| self.said(0, error))? {
            None => Ok(()),
            Some(_) => {
                let words = format!(
                    "the list of the backends of {} has changed (there is list {}, and list {known} is in use here): \
                     end this mount or program, and start it again",
                    self.0.backends[0].called,
                    known + 1
                );
                Err(Error::new(Status::Io, op).because(words))
            }
        }
    }

    /// The directories of all backends, and the number of lists.
    pub fn backends(&self) -> (Vec<&str>, usize) {
        (self.0.backends.iter().map(|backend| &backend.called[..]).collect(), self.0.lists.len())
    }
}
