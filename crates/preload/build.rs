//! The library is initialised before all others: a program may inherit a virtual standard output, which must
//! be in its place before the C++ library looks.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,initfirst");
}
