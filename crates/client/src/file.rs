//! An open file.

use crate::Error;
use bytes::Bytes;
use shoal_pattern::Pattern;
use shoal_proto::{Allocation, Handle, Status};
use std::rc::Rc;

/// An open file. Clones share it.
#[derive(Clone)]
pub struct OpenFile(Rc<Handle>);

macro_rules! verbs {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $ty:ty),*) -> $out:ty;)*) => {
        impl OpenFile { $(
            $(#[$doc])*
            pub async fn $name(&self $(, $arg: $ty)*) -> Result<$out, Error> {
                $(let _ = $arg;)*
                Err(Error::new(Status::NotSupported, stringify!($name)).of(*self.0))
            }
        )* }
    };
}

impl OpenFile {
    /// The file.
    pub fn handle(&self) -> Handle {
        *self.0
    }
    /// Close: releases an orphan when this was its last holder.
    pub async fn close(self) -> Result<(), Error> {
        Ok(())
    }
}

verbs! {
    /// Read; short only at the end of the file.
    read(offset: u64, len: usize) -> Bytes;
    /// Write all of it.
    write(offset: u64, data: Bytes) -> ();
    /// Read a pattern, packed.
    read_pattern(pattern: &Pattern) -> Bytes;
    /// Write a pattern, packed.
    write_pattern(pattern: &Pattern, data: Bytes) -> ();
    /// Append; the offset it got.
    append(data: Bytes) -> u64;
    /// Reserve space or make a hole in a logical range.
    allocate(offset: u64, len: u64, mode: Allocation) -> ();
    /// The size now.
    size() -> u64;
    /// Make all data durable.
    fsync() -> ();
}
