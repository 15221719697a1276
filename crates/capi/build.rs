//! The soname of the library. Its number grows with each incompatible change of the interface: programs must
//! then be built again.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libshoal.so.0");
}
