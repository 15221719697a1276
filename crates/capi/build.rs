//! The name by which programs ask for the library: its number changes when a program has to be built anew.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libshoal.so.0");
}
