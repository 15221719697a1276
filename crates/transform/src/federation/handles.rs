//! Handles of a federation: the backend's own handle, with the backend's number and the kind in bits 55 to
//! 62.
//!
//! ```text
//!   bit 63   62 61   60 … 55   54 … 0
//!   its own  kind    backend   its own          kind 0: a directory, with the first backend's handle
//! ```

use super::Federated;
use shoal_proto::{Attr, Handle, Kind, Status};
use shoal_vfs::{Error, Result, Vfs};

/// Backends, at most.
pub(super) const BACKENDS_MAX: usize = 64;
const BACKEND_SHIFT: u32 = 55;
const SHAPE_SHIFT: u32 = 61;
/// Bits that a backend's own handles must leave.
const TAKEN: u64 = 0xff << BACKEND_SHIFT;

/// The role of an object in the federation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Shape {
    /// A directory over all backends.
    Directory,
    /// A directory of one backend whose directories are spread: a container.
    Item,
    /// Any other object, of one backend.
    Plain,
}

/// An object of a backend.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Object {
    pub(super) backend: usize,
    pub(super) handle: Handle,
    pub(super) shape: Shape,
}

impl Object {
    /// The handle that stands for it.
    pub(super) fn handle(self) -> Result<Handle> {
        if self.handle.0 & TAKEN != 0 || self.backend >= BACKENDS_MAX {
            let words = "the file system of a backend has handles of more than 55 bits: use another one";
            return Err(Error::new(Status::NotSupported, "lookup").of(self.handle).because(words));
        }
        let bits = match self.shape {
            Shape::Directory => 0,
            Shape::Item => 1 << SHAPE_SHIFT | (self.backend as u64) << BACKEND_SHIFT,
            Shape::Plain => 2 << SHAPE_SHIFT | (self.backend as u64) << BACKEND_SHIFT,
        };
        Ok(Handle(self.handle.0 | bits))
    }

    /// Its attributes, as they are seen here.
    pub(super) fn seen(self, mut attr: Attr) -> Result<Attr> {
        attr.handle = self.handle()?;
        Ok(attr)
    }
}

impl<V: Vfs> Federated<V> {
    /// The object of a handle.
    pub(super) fn object(&self, handle: Handle, op: &'static str) -> Result<Object> {
        let shape = match handle.0 >> SHAPE_SHIFT & 3 {
            0 => return Ok(Object { backend: 0, handle, shape: Shape::Directory }),
            1 => Shape::Item,
            _ => Shape::Plain,
        };
        let backend = (handle.0 >> BACKEND_SHIFT) as usize % BACKENDS_MAX;
        if backend >= self.count() {
            return Err(Error::new(Status::Stale, op).of(handle));
        }
        Ok(Object { backend, handle: Handle(handle.0 & !TAKEN), shape })
    }

    /// An object of one backend: in a directory, or of an item.
    pub(super) fn plain(backend: usize, attr: &Attr) -> Object {
        Object { backend, handle: attr.handle, shape: Shape::Plain }
    }

    /// Whether an object below is a directory that is no item.
    pub(super) fn is_shared(&self, object: Object, kind: Kind) -> bool {
        object.shape == Shape::Directory && kind == Kind::Directory
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_of_more_than_their_bits_are_refused() {
        let object = |handle| Object { backend: 3, handle: Handle(handle), shape: Shape::Item };
        assert!(object(1 << 54 | 1 << 63).handle().is_ok());
        assert!(object(1 << 55).handle().is_err());
        assert!(object(1 << 62).handle().is_err());
    }
}
