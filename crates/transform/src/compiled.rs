//! Containers and composed directories as trait objects, compiled with this crate in development builds.
//!
//! There, code of generic types is shared by all crates that come after one which uses it. Without this each
//! program and each program of tests would compile all of it anew. (Release builds share none.)

use crate::{Composed, Container};
use shoal_vfs::AnyVfs;

/// Both of them, with all that they can do.
pub fn compiled(containers: Container<AnyVfs>, composed: Composed<AnyVfs>) -> [AnyVfs; 2] {
    [AnyVfs::of(containers), AnyVfs::of(composed)]
}
