//! The library is initialised before all others: a program may inherit a virtual standard output, which must
//! be in its place before the C++ library looks. Functions that a dependency exports to C are hidden: they
//! would take the place of the program's own of the same name.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,initfirst");
    println!("cargo:rustc-cdylib-link-arg=-Wl,--exclude-libs,ALL");
}
