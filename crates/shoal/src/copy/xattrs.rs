//! Extended attributes of copied objects, on either side.
//!
//! Those of `user.` are kept, and those of `trusted.` and `security.` by root, because only root may set
//! them. Others are not a file's own: access control lists are in `system.`, and a ShoalFS has none. An
//! attribute that the other side does not accept is an error, never left out.

use super::Meta;
use super::spot::Spot;
use anyhow::{Context as _, Result};
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use shoal_client::Client;
use shoal_proto::{Handle, Kind, Status};
use std::path::Path;

/// The kernel's most, of a list of names and of a value.
const BYTES_MAX: usize = 64 << 10;

/// Names and values.
pub type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

fn is_kept(name: &[u8]) -> bool {
    let is_roots = || [&b"trusted."[..], b"security."].iter().any(|prefix| name.starts_with(prefix));
    name.starts_with(b"user.") || (rustix::process::geteuid().is_root() && is_roots())
}

fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

impl Spot {
    /// The kept attributes of an object here.
    pub async fn xattrs(&self, meta: &Meta) -> Result<Xattrs> {
        let of = match self {
            Spot::Local(path) => of_local(path, meta.kind == Kind::Symlink),
            Spot::Shoal(remote) => of_remote(&remote.client, meta.handle.context("it has no handle")?).await,
        };
        of.context("cannot read its extended attributes")
    }
}

fn of_local(path: &Path, is_link: bool) -> Result<Xattrs> {
    let mut buf = vec![0; BYTES_MAX];
    let listed = match is_link {
        true => rustix::fs::llistxattr(path, &mut buf[..]),
        false => rustix::fs::listxattr(path, &mut buf[..]),
    };
    let list = match listed {
        Ok(len) => buf[..len].to_vec(),
        // This file system has no such attributes.
        Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let mut found = Vec::new();
    for name in list.split(|&byte| byte == 0).filter(|name| is_kept(name)) {
        let read = match is_link {
            true => rustix::fs::lgetxattr(path, name, &mut buf[..]),
            false => rustix::fs::getxattr(path, name, &mut buf[..]),
        };
        match read {
            Ok(len) => found.push((name.to_vec(), buf[..len].to_vec())),
            // Removed meanwhile.
            Err(Errno::NODATA) => {}
            Err(error) => return Err(error).with_context(|| shown(name)),
        }
    }
    Ok(found)
}

async fn of_remote(client: &Client, object: Handle) -> Result<Xattrs> {
    let mut found = Vec::new();
    for name in client.listxattr(object).await?.iter().filter(|name| is_kept(name)) {
        match client.getxattr(object, name).await {
            Ok(value) => found.push((name.to_vec(), value.to_vec())),
            // Removed meanwhile.
            Err(error) if error.status == Status::NoAttribute => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(found)
}

/// Set them on the object there; its other attributes stay.
pub fn set_local(path: &Path, is_link: bool, xattrs: &Xattrs) -> Result<()> {
    for (name, value) in xattrs {
        let set = match is_link {
            true => rustix::fs::lsetxattr(path, &name[..], value, XattrFlags::empty()),
            false => rustix::fs::setxattr(path, &name[..], value, XattrFlags::empty()),
        };
        set.with_context(|| format!("cannot set its extended attribute {}", shown(name)))?;
    }
    Ok(())
}

/// The same on a ShoalFS.
pub async fn set_remote(client: &Client, object: Handle, xattrs: &Xattrs) -> Result<()> {
    for (name, value) in xattrs {
        let set = client.setxattr(object, name, value, false, false).await;
        set.with_context(|| format!("cannot set its extended attribute {}", shown(name)))?;
    }
    Ok(())
}
