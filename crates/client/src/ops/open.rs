//! Open a file: check on its server that it is there, and get a capability.

use super::{attr_among, capability_among};
use crate::core::Operation;
use crate::{Client, Error, OpenFile};
use shoal_proto::{Attr, Handle, Kind, Name, Op, Rights, Status};

impl Client {
    /// Open a file; asks its server always. The handle counts as held until the last clone of the file is gone.
    ///
    /// # Errors
    /// `Stale`: the file is gone; `IsDirectory`.
    pub async fn open(&self, object: Handle, rights: Rights) -> Result<OpenFile, Error> {
        Ok(self.open_sized(object, rights).await?.0)
    }

    /// Whether a file is open here.
    pub fn has_open(&self, object: Handle) -> bool {
        self.core.held.borrow().holds(object)
    }

    /// Open the file that a name leads to; its attributes as its metafile's server has them. One message where the file is
    /// on the server of the directory (with `compound = off`: two). Where the file is gone when it is opened, the name is
    /// looked up again: another file may have replaced it.
    ///
    /// # Errors
    /// As [`Client::lookup`] and [`Client::open`]; `Loop`: the name is a symbolic link.
    pub async fn open_name(&self, dir: Handle, name: &Name, rights: Rights) -> Result<OpenFile, Error> {
        let o = self.core.begin("open", Some(dir));
        if self.core.switches().compound {
            let _seek = crate::file::Seek::new(self);
            let lookup = Op::Lookup { dir, path: vec![name.clone()].into() };
            let open = Op::Open { object: Handle::CURRENT, rights };
            let told = self.core.ask_group(&o, dir.server(), vec![lookup, open], Vec::new(), 0).await?;
            match (told.status, attr_among(&told.answers)) {
                (Status::Ok, Some(attr)) if attr.kind == Kind::File => {
                    return Ok(OpenFile::new(self.clone(), &attr, rights, capability_among(&told.answers)));
                }
                (status, _) if told.answers.is_empty() => return Err(o.error(status).from(dir.server())),
                _ => {}
            }
        }
        loop {
            let looked = self.core.lookup_path(&o, dir, std::slice::from_ref(name)).await?;
            match looked.kind {
                Kind::Symlink => return Err(o.error(Status::Loop).of(looked.handle)),
                Kind::Directory => return Err(o.error(Status::IsDirectory).of(looked.handle)),
                _ => {}
            }
            match self.open_unmerged(&o, looked.handle, rights).await {
                Err(error) if error.status == Status::Stale => self.core.back_off(&o, error).await?,
                opened => return Ok(opened?.1),
            }
        }
    }

    /// As [`Client::open`], with the size, where the file's server alone knows it.
    ///
    /// # Errors
    /// As [`Client::open`].
    pub async fn open_sized(&self, object: Handle, rights: Rights) -> Result<(OpenFile, Option<u64>), Error> {
        let o = self.begin("open", Some(object));
        let (attr, file) = self.open_unmerged(&o, object, rights).await?;
        Ok((file, attr.layout.is_none().then_some(attr.size)))
    }

    /// Open a file, with its attributes, merged.
    pub(crate) async fn open_of(
        &self,
        o: &Operation,
        object: Handle,
        rights: Rights,
    ) -> Result<(Attr, OpenFile), Error> {
        let (attr, file) = self.open_unmerged(o, object, rights).await?;
        let attr = self.core.merged(o, attr).await?;
        Ok((attr, file))
    }

    /// Open a file, with its attributes as its metafile's server has them.
    pub(crate) async fn open_unmerged(
        &self,
        o: &Operation,
        object: Handle,
        rights: Rights,
    ) -> Result<(Attr, OpenFile), Error> {
        // Held before it is asked: an unlink under way meanwhile then knows of it.
        let hold = crate::file::Hold::new(self.clone(), object);
        let told = self.core.ask(o, object.server(), vec![Op::Open { object, rights }]).await;
        let told = told.inspect_err(|error| {
            if error.status == Status::Stale {
                self.core.cache.borrow_mut().gone(object);
            }
        })?;
        let attr = attr_among(&told.answers).filter(|attr| attr.handle == object);
        let attr = attr.ok_or_else(|| o.error(Status::BadMessage).from(object.server()))?;
        let file = OpenFile::held(hold, &attr, rights, capability_among(&told.answers));
        Ok((attr, file))
    }
}
