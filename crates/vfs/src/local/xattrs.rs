//! Extended attributes, as the host has them.

use super::Local;
use crate::Result;
use bytes::Bytes;
use shoal_proto::Handle;
use shoal_proto::op::XattrName;

/// `setxattr(2)`: it must be new.
const XATTR_CREATE: u32 = 1;
/// `setxattr(2)`: it must be there.
const XATTR_REPLACE: u32 = 2;

impl Local {
    pub(super) async fn attribute(&self, object: Handle, name: &[u8]) -> Result<Bytes> {
        let name = name.to_vec();
        Ok(self.at("getxattr", object, move |host, node| host.getxattr(node, &name)).await?.into())
    }

    pub(super) async fn set_attribute(
        &self,
        object: Handle,
        name: &[u8],
        value: &[u8],
        create: bool,
        replace: bool,
    ) -> Result<()> {
        self.check_writable("setxattr", object)?;
        let flags = (if create { XATTR_CREATE } else { 0 }) | (if replace { XATTR_REPLACE } else { 0 });
        let (name, value) = (name.to_vec(), value.to_vec());
        self.at("setxattr", object, move |host, node| host.setxattr(node, &name, &value, flags)).await
    }

    pub(super) async fn attribute_names(&self, object: Handle) -> Result<Vec<XattrName>> {
        let names = self.at("listxattr", object, |host, node| host.listxattr(node)).await?;
        Ok(names.iter().map(|name| XattrName::from(&name[..])).collect())
    }

    pub(super) async fn remove_attribute(&self, object: Handle, name: &[u8]) -> Result<()> {
        self.check_writable("removexattr", object)?;
        let name = name.to_vec();
        self.at("removexattr", object, move |host, node| host.removexattr(node, &name)).await
    }
}
