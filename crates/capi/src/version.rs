//! The versions of the exported functions. So far all functions have the version `SHOAL_1.0`.
//!
//! The assembler gives a symbol its version in the module that defines it; `build.rs` has the versions, and
//! sets `symbol_versions` where the linker takes them. `@@@` leaves no second symbol without a version, which
//! GNU's linker would refuse in the static library. `abi.txt` lists functions, versions and sizes.

/// The functions of a module, all of version 1.0.
macro_rules! since_1_0 {
    ($($name:ident),* $(,)?) => {$(
        #[cfg(symbol_versions)]
        core::arch::global_asm!(concat!(
            ".symver ", stringify!($name), ",", stringify!($name), "@@@SHOAL_1.0"
        ));
    )*};
}

pub(crate) use since_1_0;
