//! Open a file: check on its server that it is there, and get a capability.

use super::{attr_among, capability_among};
use crate::core::Operation;
use crate::{Client, Error, OpenFile};
use shoal_proto::{Attr, Handle, Op, Rights, Status};

impl Client {
    /// Open a file; asks its server always. The handle counts as held until the last clone of the file is gone.
    ///
    /// # Errors
    /// `Stale`: the file is gone; `IsDirectory`.
    pub async fn open(&self, object: Handle, rights: Rights) -> Result<OpenFile, Error> {
        Ok(self.open_sized(object, rights).await?.0)
    }

    /// The same, with the size, where the file's server alone knows it.
    ///
    /// # Errors
    /// As [`Client::open`].
    pub async fn open_sized(&self, object: Handle, rights: Rights) -> Result<(OpenFile, Option<u64>), Error> {
        let o = self.core.begin("open", Some(object));
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

    async fn open_unmerged(
        &self,
        o: &Operation,
        object: Handle,
        rights: Rights,
    ) -> Result<(Attr, OpenFile), Error> {
        // Held before it is asked: an unlink under way meanwhile then knows of it.
        let hold = crate::file::Hold::new(self.clone(), object);
        let told = self.core.ask(o, object.server(), vec![Op::Open { object, rights }]).await?;
        let attr = attr_among(&told.answers).filter(|attr| attr.handle == object);
        let attr = attr.ok_or_else(|| o.error(Status::BadMessage).from(object.server()))?;
        let file = OpenFile::held(hold, &attr, rights, capability_among(&told.answers));
        Ok((attr, file))
    }
}
