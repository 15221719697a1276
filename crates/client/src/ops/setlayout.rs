//! Sets the layout of the new files of a directory, or of an empty file.

use crate::{Client, Error};
use shoal_proto::message::VERSION_OF_FOLLOWED_LAYOUTS;
use shoal_proto::{Handle, Name, Op, ServerId, Status, Template};

/// The name in the root of the directory for objects that a repair finds without a name.
pub const LOST_AND_FOUND: &[u8] = b"lost+found";
/// Why that directory gets no layout that clients follow.
pub const NOT_LOST_AND_FOUND: &str = "a repair puts objects without a name into /lost+found, and that layout would not \
                                      show them: name another directory";

impl Client {
    /// Set the template of a directory's new files, or of an empty file.
    ///
    /// # Errors
    /// `Invalid`: the file is not empty. Of a layout that clients follow: `NotEmpty`: the directory has
    /// entries; `NotPermitted`: it has such a layout, or is `/lost+found`; `NotSupported`: a server is of an
    /// older version, and could not read it. So every server must answer.
    pub async fn setlayout(&self, object: Handle, template: Template) -> Result<(), Error> {
        if template.dist.is_followed() {
            self.is_for_files(object).await?;
            self.all_follow(object).await?;
        }
        let o = self.begin("setlayout", Some(object));
        self.core.ask(&o, object.server(), vec![Op::Setlayout { object, template }]).await?;
        self.core.cache.borrow_mut().changed(object);
        self.core.inherited.borrow_mut().pop(&object);
        Ok(())
    }

    /// Whether a directory is for files of programs alone.
    async fn is_for_files(&self, object: Handle) -> Result<(), Error> {
        let fails = |status| Error::new(status, "setlayout").of(object);
        match self.lookup(Handle::ROOT, &Name::new(LOST_AND_FOUND).map_err(fails)?).await {
            Ok(found) if found.handle == object => {
                Err(fails(Status::NotPermitted).because(NOT_LOST_AND_FOUND))
            }
            Err(error) if error.status != Status::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Whether all servers know layouts that clients follow: new directories are made on each of them.
    async fn all_follow(&self, object: Handle) -> Result<(), Error> {
        let servers: Vec<ServerId> = self.map().servers.iter().map(|info| info.id).collect();
        for server in servers {
            self.ping(server).await?;
            if self.core.version_of(server) < VERSION_OF_FOLLOWED_LAYOUTS {
                let words =
                    "it is of an older version, which does not know this layout: update all servers first";
                let error = Error::new(Status::NotSupported, "setlayout").of(object);
                return Err(error.from(server).because(words));
            }
        }
        Ok(())
    }
}
