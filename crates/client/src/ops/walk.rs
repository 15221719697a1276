//! The object that a path leads to.
//!
//! One message carries all names up to the next `..`, and its server resolves as many of them as it can. The
//! walk continues at the server of the object that was reached. The client follows symbolic links here. `..`
//! leads to the parent that a directory stores.

use super::lookup::Looked;
use crate::cache::Leads;
use crate::core::{Core, Operation};
use crate::{Client, Error};
use shoal_proto::{Attr, Handle, Kind, Name, Status, limits};
use std::collections::VecDeque;
use std::rc::Rc;

/// Symbolic links followed in one path, at most (Linux's number).
const LINKS_MAX: usize = 40;
/// Steps of one walk, at most: no server can make it endless.
const STEPS_MAX: usize = limits::PATH_COMPONENTS_MAX * (LINKS_MAX + 1);

enum Step {
    Down(Name),
    Up,
}

/// A walk under way.
struct Walk {
    at: Handle,
    /// Attributes of `at`, if the last answer had them.
    attr: Option<Attr>,
    steps: VecDeque<Step>,
    links: usize,
    /// A cached negative entry counts: for looking only, never for an open or a change.
    believes_absence: bool,
    /// A `..` at the root is refused, and does not lead to the root.
    stays_inside: bool,
}

impl Walk {
    /// One that begins at the root, for looking.
    fn begin(steps: VecDeque<Step>) -> Walk {
        let at = Handle::ROOT;
        Walk { at, attr: None, steps, links: 0, believes_absence: true, stays_inside: false }
    }
}

impl Client {
    /// The object that a path leads to, from the root. `follow_last`: if the last component is a symbolic
    /// link, follow it.
    ///
    /// # Errors
    /// `NotFound`, `NotDirectory`, `Loop`, `NameTooLong`.
    pub async fn walk(&self, path: &[u8], follow_last: bool) -> Result<Attr, Error> {
        let o = self.core.begin("lookup", None);
        self.core.walk(&o, path, follow_last, true).await.map_err(|error| with_path(error, path))
    }

    /// The same of a path that must stay in the file system.
    ///
    /// # Errors
    /// As [`Client::walk`]; `CrossDevice`: the path, or a link on it, leads out by `..`.
    pub async fn walk_inside(&self, path: &[u8], follow_last: bool) -> Result<Attr, Error> {
        let o = self.core.begin("lookup", None);
        let looks = |steps| Walk { stays_inside: true, ..Walk::begin(steps) };
        self.core.walk_by(&o, path, follow_last, &looks).await.map_err(|error| with_path(error, path))
    }

    /// The directory and the last name of a path, for the verbs that change entries.
    ///
    /// # Errors
    /// As [`Client::walk`]; `Invalid` for a path that ends in `..` or is the root.
    pub async fn walk_parent(&self, path: &[u8]) -> Result<(Handle, Name), Error> {
        let o = self.core.begin("lookup", None);
        self.core.walk_parent(&o, path).await.map_err(|error| with_path(error, path))
    }
}

fn with_path(error: Error, path: &[u8]) -> Error {
    if !error.words.is_empty() {
        return error;
    }
    let words = format!("the path is `{}`", String::from_utf8_lossy(path));
    error.because(words)
}

fn steps(o: &Operation, path: &[u8]) -> Result<VecDeque<Step>, Error> {
    if path.len() > limits::PATH_BYTES_MAX {
        return Err(o.error(Status::NameTooLong));
    }
    let parts = path.split(|&byte| byte == b'/').filter(|part| !part.is_empty() && *part != b".");
    parts
        .map(|part| match part {
            b".." => Ok(Step::Up),
            name => Name::new(name).map(Step::Down).map_err(|status| o.error(status)),
        })
        .collect()
}

impl Core {
    pub(crate) async fn walk(
        self: &Rc<Core>,
        o: &Operation,
        path: &[u8],
        follow_last: bool,
        believes_absence: bool,
    ) -> Result<Attr, Error> {
        self.walk_by(o, path, follow_last, &|steps| Walk { believes_absence, ..Walk::begin(steps) }).await
    }

    async fn walk_by(
        self: &Rc<Core>,
        o: &Operation,
        path: &[u8],
        follow_last: bool,
        begin: &dyn Fn(VecDeque<Step>) -> Walk,
    ) -> Result<Attr, Error> {
        // A slash after the last name asks for a directory, so a link is followed too.
        let follow_last = follow_last || path.ends_with(b"/");
        let mut gone = None;
        loop {
            let mut walk = begin(steps(o, path)?);
            self.walk_on(o, &mut walk, follow_last).await?;
            let error = match walk.attr.take() {
                Some(attr) => return self.merged(o, attr).await,
                None => match self.getattr(o, walk.at).await {
                    // Its last name is gone; it is kept for those that have it open.
                    Ok(attr) if attr.nlink == 0 => o.error(Status::Stale).of(walk.at),
                    Err(error) if error.status == Status::Stale => error,
                    other => return other,
                },
            };
            // A name was believed that another object has meanwhile: it is looked up anew, and a server that
            // leads there again is right.
            if gone.replace(walk.at) == Some(walk.at) {
                return Err(error);
            }
            self.cache.borrow_mut().gone(walk.at);
            self.back_off(o, error).await?;
        }
    }

    pub(crate) async fn walk_parent(
        self: &Rc<Core>,
        o: &Operation,
        path: &[u8],
    ) -> Result<(Handle, Name), Error> {
        let mut steps = steps(o, path)?;
        let Some(Step::Down(name)) = steps.pop_back() else {
            return Err(o.error(Status::Invalid));
        };
        let mut walk = Walk { believes_absence: false, ..Walk::begin(steps) };
        self.walk_on(o, &mut walk, true).await?;
        Ok((walk.at, name))
    }

    async fn walk_on(
        self: &Rc<Core>,
        o: &Operation,
        walk: &mut Walk,
        follow_last: bool,
    ) -> Result<(), Error> {
        for _ in 0..STEPS_MAX {
            match walk.steps.front() {
                None => return Ok(()),
                Some(Step::Up) if walk.stays_inside && walk.at == Handle::ROOT => {
                    return Err(shoal_vfs::leads_out());
                }
                Some(Step::Up) => {
                    let attr = self.getattr(o, walk.at).await?;
                    if attr.kind != Kind::Directory {
                        return Err(o.error(Status::NotDirectory));
                    }
                    walk.steps.pop_front();
                    (walk.at, walk.attr) = (attr.parent, None);
                }
                Some(Step::Down(name)) => {
                    let name = name.clone();
                    if !self.step_believed(o, walk, &name)? {
                        self.step_asking(o, walk, follow_last).await?;
                    }
                }
            }
        }
        Err(o.error(Status::Loop))
    }

    /// One step by the cache, if it knows the way and nothing is to be followed.
    fn step_believed(&self, o: &Operation, walk: &mut Walk, name: &Name) -> Result<bool, Error> {
        let believed = self.cache.borrow_mut().name(walk.at, name, self.world.now());
        let last = walk.steps.len() == 1;
        match believed {
            Some(Leads::Nowhere) if walk.believes_absence => Err(o.error(Status::NotFound)),
            Some(Leads::To(handle, kind)) if kind == Kind::Directory || (last && kind != Kind::Symlink) => {
                self.counters.borrow_mut().name_hits += 1;
                walk.steps.pop_front();
                (walk.at, walk.attr) = (handle, None);
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    async fn step_asking(
        self: &Rc<Core>,
        o: &Operation,
        walk: &mut Walk,
        follow_last: bool,
    ) -> Result<(), Error> {
        let names: Vec<Name> = walk
            .steps
            .iter()
            .map_while(|step| match step {
                Step::Down(name) => Some(name.clone()),
                Step::Up => None,
            })
            .collect();
        let Looked { resolved, handle, kind, attr } = self.lookup_path(o, walk.at, &names).await?;
        if resolved == 0 {
            let words = "it resolved nothing and did not say why";
            return Err(o.error(Status::BadMessage).from(walk.at.server()).because(words));
        }
        let from = walk.at;
        walk.steps.drain(..resolved);
        (walk.at, walk.attr) = (handle, attr);
        let more = !walk.steps.is_empty();
        match kind {
            Kind::Symlink if more || follow_last => {
                self.follow(o, walk, from, names.get(..resolved - 1).unwrap_or_default()).await
            }
            Kind::Directory => Ok(()),
            _ if more => Err(o.error(Status::NotDirectory)),
            _ => Ok(()),
        }
    }

    /// Follow the symbolic link reached, which lies in the directory that `before` leads to from `from`.
    async fn follow(
        self: &Rc<Core>,
        o: &Operation,
        walk: &mut Walk,
        from: Handle,
        before: &[Name],
    ) -> Result<(), Error> {
        walk.links += 1;
        if walk.links > LINKS_MAX {
            return Err(o.error(Status::Loop));
        }
        let target = self.readlink(o, walk.at).await?;
        let mut all = steps(o, &target)?;
        all.append(&mut walk.steps);
        walk.steps = all;
        walk.attr = None;
        walk.at = match target.first() {
            None => return Err(o.error(Status::NotFound)),
            Some(b'/') => Handle::ROOT,
            Some(_) if before.is_empty() => from,
            Some(_) => {
                let dir = self.lookup_path(o, from, before).await?;
                if dir.resolved < before.len() || dir.kind != Kind::Directory {
                    return Err(o.error(Status::Changed).because("the path changed during the walk"));
                }
                dir.handle
            }
        };
        Ok(())
    }
}
