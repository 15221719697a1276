//! The walk of a path, as a kernel does it.
//!
//! The file system lies at a path of the host, its *prefix*. A symbolic link with an absolute target names
//! a path of the host: if that path is below the prefix, the walk continues at the root; otherwise it
//! leaves the file system. A `..` at the root leaves it too. The host then resolves the rest of the path.

use shoal_proto::{Attr, Handle, Kind, Name, Rights, Status};
use shoal_vfs::{Error, Result, Vfs};

/// Symbolic links on one path, at most.
const LINKS_MAX: usize = 40;
/// Bytes of a path, at most, with all that links add.
const PATH_BYTES_MAX: usize = 64 * 1024;

/// An object that a path led to.
#[derive(Clone, Debug)]
pub struct Found {
    /// Its attributes.
    pub attr: Attr,
    /// Its directory and its name there; `None` for the root, and where the path ended in `.` or `..`.
    pub place: Option<(Handle, Name)>,
    /// The path from the root, without links, `.` and `..`, with a `/` before each name. Empty for the root.
    pub path: Vec<u8>,
}

/// Where a path leads.
#[derive(Clone, Debug)]
pub enum Walk {
    /// To an object.
    Object(Box<Found>),
    /// To no object, in a directory that is there.
    Missing {
        /// The directory.
        dir: Handle,
        /// The name in it.
        name: Name,
        /// The path, as in [`Found`].
        path: Vec<u8>,
        /// The path ends in `/`: only a directory can be made there.
        must_be_dir: bool,
    },
    /// Out of the file system: to this path of the host.
    Outside(Vec<u8>),
}

/// Where a path led that is to be opened.
pub(crate) enum Reached<F> {
    /// To a file, which was opened with the last look; its path, as in [`Found`].
    File(F, Vec<u8>),
    /// To no such file: an object of another kind, or none.
    Walk(Walk),
}

fn parts(path: &[u8]) -> impl DoubleEndedIterator<Item = Vec<u8>> {
    path.split(|byte| *byte == b'/').filter(|part| !part.is_empty()).map(<[u8]>::to_vec)
}

fn failed(status: Status) -> Error {
    Error::new(status, "look up")
}

/// The part of a host's path below a prefix.
fn below<'a>(prefix: &[u8], path: &'a [u8]) -> Option<&'a [u8]> {
    path.strip_prefix(prefix).filter(|rest| rest.first().is_none_or(|byte| *byte == b'/'))
}

/// The way so far: the objects on it, below the root. The root's attributes are requested only if the path
/// ends there.
#[derive(Default)]
struct Way {
    at: Vec<(Attr, Vec<u8>)>,
}

impl Way {
    fn handle(&self) -> Handle {
        self.at.last().map_or(Handle::ROOT, |(attr, _)| attr.handle)
    }

    fn path(&self) -> Vec<u8> {
        let names = self.at.iter().flat_map(|(_, name)| [&b"/"[..], name]);
        names.collect::<Vec<_>>().concat()
    }
}

/// See the module. `path` is below `prefix`; with `follow` a link at its end is followed.
pub(crate) async fn walk<V: Vfs>(vfs: &V, prefix: &[u8], path: &[u8], follow: bool) -> Result<Walk> {
    match walk_to(vfs, prefix, path, follow, None).await? {
        Reached::Walk(walk) => Ok(walk),
        Reached::File(..) => Err(failed(Status::Invalid)),
    }
}

/// The same. With `opens` a file at the end is opened by its name, in one request where the file system can
/// do so. Another refusal than that there is no such name is that of the calls one by one.
pub(crate) async fn walk_to<V: Vfs>(
    vfs: &V,
    prefix: &[u8],
    path: &[u8],
    follow: bool,
    opens: Option<Rights>,
) -> Result<Reached<V::File>> {
    let mut todo: Vec<Vec<u8>> = parts(path).rev().collect();
    let mut must_be_dir = path.len() > 1 && path.ends_with(b"/");
    let mut way = Way::default();
    let (mut links, mut has_name) = (0, false);
    while let Some(part) = todo.pop() {
        has_name = false;
        if part == b"." || part == b".." {
            if way.at.last().is_some_and(|(attr, _)| attr.kind != Kind::Directory) {
                return Err(failed(Status::NotDirectory));
            }
            if part == b".." {
                if way.at.is_empty() {
                    let mut out = [prefix, b"/.."].concat();
                    todo.iter().rev().for_each(|part| out.extend([b"/", &part[..]].concat()));
                    return Ok(Reached::Walk(Walk::Outside(out)));
                }
                way.at.pop();
            }
            continue;
        }
        let dir = way.handle();
        let name = Name::new(&part).map_err(|status| failed(status).of(dir))?;
        let is_last = todo.is_empty();
        let full = |way: &Way| [&way.path()[..], b"/", &part].concat();
        let missing = |way: &Way| Walk::Missing { dir, name: name.clone(), path: full(way), must_be_dir };
        if let Some(rights) = opens.filter(|_| is_last && !must_be_dir) {
            match vfs.open_name(dir, &name, rights).await {
                Ok(file) => return Ok(Reached::File(file, full(&way))),
                Err(error) if error.status == Status::NotFound => return Ok(Reached::Walk(missing(&way))),
                Err(_) => {}
            }
        }
        let attr = match vfs.lookup(dir, &name).await {
            Err(error) if error.status == Status::NotFound && is_last => {
                return Ok(Reached::Walk(missing(&way)));
            }
            found => found?,
        };
        if attr.kind != Kind::Symlink || (is_last && !follow && !must_be_dir) {
            has_name = true;
            way.at.push((attr, part));
            continue;
        }
        links += 1;
        let target = vfs.readlink(attr.handle).await?;
        if links > LINKS_MAX || todo.iter().map(Vec::len).sum::<usize>() + target.len() > PATH_BYTES_MAX {
            return Err(failed(Status::Loop).of(attr.handle));
        }
        must_be_dir |= is_last && target.ends_with(b"/");
        let target = match (target.first(), below(prefix, &target)) {
            (Some(b'/'), None) => {
                let mut out = target.to_vec();
                todo.iter().rev().for_each(|part| out.extend([b"/", &part[..]].concat()));
                return Ok(Reached::Walk(Walk::Outside(out)));
            }
            (Some(b'/'), Some(inside)) => {
                way.at.clear();
                inside.to_vec()
            }
            _ => target.to_vec(),
        };
        todo.extend(parts(&target).rev());
    }
    let path = way.path();
    let (attr, name) = match way.at.pop() {
        Some(last) => last,
        None => (vfs.getattr(Handle::ROOT).await?, Vec::new()),
    };
    if must_be_dir && attr.kind != Kind::Directory {
        return Err(failed(Status::NotDirectory).of(attr.handle));
    }
    let place = match has_name {
        true => Some((way.handle(), Name::new(&name).map_err(failed)?)),
        false => None,
    };
    Ok(Reached::Walk(Walk::Object(Box::new(Found { attr, place, path }))))
}
