//! How new files are to be laid out.

use crate::{Client, Error};
use shoal_proto::message::VERSION_OF_FOLLOWED_LAYOUTS;
use shoal_proto::{Handle, Op, ServerId, Status, Template};

impl Client {
    /// Set the template of a directory's new files, or of an empty file.
    ///
    /// # Errors
    /// `Invalid`: the file is not empty. Of a layout that clients follow: `NotEmpty`: the directory has
    /// entries; `NotPermitted`: it has such a layout; `NotSupported`: a server is of an older version, and
    /// could not read it. So every server must answer.
    pub async fn setlayout(&self, object: Handle, template: Template) -> Result<(), Error> {
        if template.dist.is_followed() {
            self.all_follow(object).await?;
        }
        let o = self.begin("setlayout", Some(object));
        self.core.ask(&o, object.server(), vec![Op::Setlayout { object, template }]).await?;
        self.core.cache.borrow_mut().changed(object);
        self.core.inherited.borrow_mut().pop(&object);
        Ok(())
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
