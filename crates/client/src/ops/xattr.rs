//! Extended attributes.

use crate::core::Operation;
use crate::{Client, Error};
use bytes::Bytes;
use shoal_proto::op::{Answer, XattrName};
use shoal_proto::{Blob, Handle, Op, Status, limits};

fn checked(o: &Operation, name: &[u8]) -> Result<XattrName, Error> {
    match name.len() {
        1..=limits::XATTR_NAME_BYTES_MAX => Ok(Blob(Bytes::copy_from_slice(name))),
        _ => Err(o.error(Status::OutOfRange).because("the name of an extended attribute has 1 to 255 bytes")),
    }
}

impl Client {
    /// Value of an extended attribute.
    ///
    /// # Errors
    /// `NoAttribute`.
    pub async fn getxattr(&self, object: Handle, name: &[u8]) -> Result<Bytes, Error> {
        let o = self.begin("getxattr", Some(object));
        let name = checked(&o, name)?;
        let told = self.core.ask(&o, object.server(), vec![Op::Getxattr { object, name }]).await?;
        match told.answers.into_iter().next() {
            Some(Answer::Bytes { bytes }) => Ok(bytes.0),
            _ => Err(o.error(Status::BadMessage).from(object.server()).because("no value in its answer")),
        }
    }

    /// Set an extended attribute. `create`: fail if it exists; `replace`: fail if it does not.
    ///
    /// # Errors
    /// `Exists`, `NoAttribute`, `TooBig` (over 64 KiB), `NoSpace`.
    pub async fn setxattr(
        &self,
        object: Handle,
        name: &[u8],
        value: &[u8],
        create: bool,
        replace: bool,
    ) -> Result<(), Error> {
        let o = self.begin("setxattr", Some(object));
        let name = checked(&o, name)?;
        if value.len() > limits::XATTR_VALUE_BYTES_MAX {
            return Err(o.error(Status::TooBig));
        }
        let value = Blob(Bytes::copy_from_slice(value));
        let op = Op::Setxattr { object, name, value, create, replace };
        let told = self.core.ask(&o, object.server(), vec![op]).await?;
        self.core.changed_attributes(&o, object, &told);
        Ok(())
    }

    /// Names of the extended attributes.
    ///
    /// # Errors
    /// `Stale`: the object is gone.
    pub async fn listxattr(&self, object: Handle) -> Result<Vec<XattrName>, Error> {
        let o = self.begin("listxattr", Some(object));
        let told = self.core.ask(&o, object.server(), vec![Op::Listxattr { object }]).await?;
        // The names come as `listxattr(2)` gives them, each ended by a NUL.
        match told.answers.into_iter().next() {
            Some(Answer::Bytes { bytes }) => {
                let names = bytes.0.split(|&byte| byte == 0).filter(|name| !name.is_empty());
                Ok(names.map(|name| Blob(bytes.0.slice_ref(name))).collect())
            }
            _ => Err(o.error(Status::BadMessage).from(object.server()).because("no names in its answer")),
        }
    }

    /// Remove an extended attribute.
    ///
    /// # Errors
    /// `NoAttribute`.
    pub async fn removexattr(&self, object: Handle, name: &[u8]) -> Result<(), Error> {
        let o = self.begin("removexattr", Some(object));
        let name = checked(&o, name)?;
        let told = self.core.ask(&o, object.server(), vec![Op::Removexattr { object, name }]).await?;
        self.core.changed_attributes(&o, object, &told);
        Ok(())
    }
}
