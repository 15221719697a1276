//! Finds the object of a path, also in a directory whose layout clients follow, for the commands that show
//! where bytes lie.
//!
//! In such a directory the servers have other objects than its users: a container is a directory of logs, and
//! the files of a composed directory have no objects of their own. So the object of a path is the one that
//! all clients see ([`Followed`]), and beside it the commands show what the servers have of it.

use crate::words;
use anyhow::Result;
use serde_json::{Value, json};
use shoal_client::Client;
use shoal_proto::{Attr, Dist, Kind, Name, Status};
use shoal_transform::{Followed, LaidObject};
use shoal_vfs::Vfs as _;

/// The first physical file of a composed directory; most have no other.
const BLOCKS: &[u8] = b"blocks.0";

/// The object of a path.
pub struct Found {
    /// Its attributes, as its users see them.
    pub attr: Attr,
    /// Of an object in a directory with a layout.
    pub laid: Option<Laid>,
}

/// The objects of the servers for an object in a directory with a layout.
pub struct Laid {
    object: LaidObject,
    /// The first physical file of a composed directory.
    blocks: Option<Attr>,
}

/// The object of a path; `follow_last`: if its last name is a symbolic link, the object that this leads to.
///
/// # Errors
/// Those of the walk.
pub async fn find(followed: &Followed<Client>, path: &[u8], follow_last: bool) -> Result<Found> {
    let client = followed.over();
    let is_laid = match client.walk_parent(path).await {
        Ok((dir, _)) => client.getattr(dir).await?.template.dist.is_followed(),
        // The root, or below a directory that only the users of a composed one see.
        Err(error) if is_elsewhere(error.status) || error.status == Status::Invalid => false,
        Err(error) => return Err(error.into()),
    };
    if !is_laid {
        match client.walk(path, follow_last).await {
            Ok(attr) if attr.kind != Kind::Directory || !attr.template.dist.is_followed() => {
                return Ok(Found { attr, laid: None });
            }
            Err(error) if !is_elsewhere(error.status) => return Err(error.into()),
            _ => {}
        }
    }
    let attr = followed.walk_path(path, follow_last).await?;
    let Some(object) = followed.laid(attr.handle).await? else { return Ok(Found { attr, laid: None }) };
    let blocks = match object.below {
        Some(_) => None,
        None => Some(client.lookup(object.root.handle, &Name::new(BLOCKS)?).await?),
    };
    Ok(Found { attr, laid: Some(Laid { object, blocks }) })
}

fn is_elsewhere(status: Status) -> bool {
    matches!(status, Status::NotFound | Status::NotDirectory)
}

impl Laid {
    /// The layout in words.
    pub fn layout(&self, kind: Kind) -> String {
        let files = words::template(&self.object.root.template);
        match (kind, self.object.root.template.dist) {
            (Kind::File, Dist::Container { .. }) => {
                format!("a container{}", files.trim_start_matches("containers"))
            }
            (Kind::File, _) => format!("{files}, of its directory {}", self.object.root.handle),
            (Kind::Directory, _) => format!("its files are {files}"),
            (kind, _) => format!("a {} has no layout", kind.word()),
        }
    }

    /// The objects of the servers in which its bytes are.
    pub fn place(&self, kind: Kind) -> String {
        match (self.object.below, &self.blocks) {
            (Some(below), _) if kind == Kind::File => {
                format!("in the logs below directory {below} (server {})", below.server())
            }
            (Some(below), _) => format!("{below} (server {}, inode {})", below.server(), below.0),
            (None, Some(blocks)) if kind == Kind::File => {
                let servers = match &blocks.layout {
                    None => format!("server {}", blocks.handle.server()),
                    Some(layout) => words::many(layout.datafiles.len() as u64, "datafile"),
                };
                format!(
                    "in blocks.0 of its directory, {} ({servers}), among those of other files",
                    blocks.handle
                )
            }
            _ => format!("none: it is a record in the directory {}", self.object.root.handle),
        }
    }

    /// The command that shows where the bytes of such a file lie.
    pub fn remedy(&self) -> &'static str {
        match self.object.below {
            Some(_) => {
                "mount the file system with `shoal mount … MNT --raw`, and run `shoal container map` of the file there"
            }
            None => {
                "mount the file system with `shoal mount … MNT --raw`, and run `shoal composed map` of the directory there"
            }
        }
    }

    /// The same as JSON.
    pub fn json(&self) -> Value {
        let mut value = words::dist_json(&self.object.root.template.dist);
        value["directory"] = self.object.root.handle.to_string().into();
        value["below"] = self.object.below.map(|below| below.to_string()).into();
        value["blocks"] = self.blocks.as_ref().map(|blocks| blocks.handle.to_string()).into();
        value
    }

    /// The layout of new files of its directory, as JSON.
    pub fn template_json(&self) -> Value {
        let mut value = words::dist_json(&self.object.root.template.dist);
        value["width"] = json!(self.object.root.template.width);
        value
    }
}
