//! The C calls, a file for each family.
//!
//! A function finds out by [`route`](crate::route) or [`table`](crate::table) whether the call concerns a
//! file system of this library. Then it answers the call; otherwise it passes the call on to the C library.
//! Other names of the same call (with `64`, with `__…_chk`) are aliases: on 64-bit Linux they take the same
//! arguments.

pub mod changes;
pub mod children;
pub mod descriptors;
pub mod directories;
pub mod forks;
pub mod io;
pub mod later;
#[cfg(target_arch = "x86_64")]
pub mod lists;
pub mod locks;
pub mod mapping;
pub mod messages;
pub mod metadata;
pub mod names;
pub mod open;
pub mod owner;
pub mod places;
pub mod prints;
pub mod process;
pub mod program;
pub mod shells;
pub mod space;
pub mod spawn;
pub mod stdio;
pub mod temporary;
pub mod threads;
pub mod walks;
pub mod xattrs;

/// Export a function under further names of the C library.
macro_rules! also {
    ($($alias:ident = $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)?;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $alias($($arg: $ty),*) $(-> $ret)? {
            // SAFETY: the alias has the conditions of its name.
            unsafe { $name($($arg),*) }
        }
    )*};
}
pub(crate) use also;
