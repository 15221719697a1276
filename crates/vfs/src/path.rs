//! The walk of a path from the root, name by name, for file systems that cannot resolve a path at once.
//!
//! A `..` at the root leads to the root, as in a kernel, or is refused where the path must stay inside.

use crate::{Error, Result, Vfs};
use bytes::Bytes;
use shoal_proto::{Attr, Handle, Kind, Name, Status};

/// Symbolic links on one path, at most.
const LINKS_MAX: usize = 40;

fn components(path: &[u8]) -> Vec<Bytes> {
    path.split(|byte| *byte == b'/').filter(|part| !part.is_empty()).map(Bytes::copy_from_slice).collect()
}

/// The error of a path that must stay inside, and does not.
pub fn leads_out() -> Error {
    Error::new(Status::CrossDevice, "lookup").because("a `..` of the path leads out of the file system")
}

/// See [`Vfs::walk_path`], and with `inside` [`Vfs::walk_inside`].
pub(crate) async fn walk<V: Vfs>(vfs: &V, path: &[u8], follow_last: bool, inside: bool) -> Result<Attr> {
    let mut todo: Vec<Bytes> = components(path);
    todo.reverse();
    // Without the root: its attributes are requested only if the path ends there.
    let (mut at, mut links) = (Vec::<Attr>::new(), 0);
    while let Some(part) = todo.pop() {
        let here = at.last().map_or(Handle::ROOT, |attr| attr.handle);
        match &part[..] {
            b"." => continue,
            b".." if inside && at.is_empty() => return Err(leads_out()),
            b".." => {
                at.pop();
                continue;
            }
            _ => {}
        }
        let name = Name::new(&part).map_err(|status| Error::new(status, "lookup").of(here))?;
        let attr = vfs.lookup(here, &name).await?;
        if attr.kind != Kind::Symlink || (todo.is_empty() && !follow_last) {
            at.push(attr);
            continue;
        }
        links += 1;
        if links > LINKS_MAX {
            return Err(Error::new(Status::Loop, "lookup").of(attr.handle));
        }
        let target = vfs.readlink(attr.handle).await?;
        if target.first() == Some(&b'/') {
            at.clear();
        }
        todo.extend(components(&target).into_iter().rev());
    }
    match at.pop() {
        Some(attr) => Ok(attr),
        None => vfs.getattr(Handle::ROOT).await,
    }
}
