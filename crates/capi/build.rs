//! Sets the name of the library and the versions of its symbols.
//!
//! **The number in the soname** grows with each incompatible change of the interface: programs must then be
//! built again. **Each function has the version of the interface in which it came**, `SHOAL_1.0`: a program
//! that needs a newer library does not start with an older one, and says which version it needs. A function
//! that is added later gets a new version, which inherits the former version.
//!
//! rustc writes a version script for each cdylib: it names all exported functions, and no version. LLVM's
//! linker, which rustc uses on x86-64, takes a second script, and GNU's linker does not. So this program
//! first links a library of two lines with a second script. If that fails, the functions have no version,
//! and the build says so.

use std::path::Path;
use std::process::{Command, Stdio};

/// The versions, from the first one on.
const VERSIONS: &str = "SHOAL_1.0 { };\n";
/// The smallest library that has what ours has.
const PROBE: &str = "#[unsafe(no_mangle)] pub extern \"C\" fn probe() {}\n\
                     core::arch::global_asm!(\".symver probe,probe@@@SHOAL_1.0\");\n";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-check-cfg=cfg(symbol_versions)");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libshoal.so.1");
    // Functions that a dependency exports to C are not the library's.
    println!("cargo:rustc-cdylib-link-arg=-Wl,--exclude-libs,ALL");
    let out = std::env::var("OUT_DIR").expect("cargo sets it");
    let script = Path::new(&out).join("versions.map");
    std::fs::write(&script, VERSIONS).expect("cargo made its directory");
    let option = format!("-Wl,--version-script={}", script.display());
    if takes_versions(Path::new(&out), &option) {
        println!("cargo:rustc-cfg=symbol_versions");
        println!("cargo:rustc-cdylib-link-arg={option}");
    } else {
        println!("cargo:warning=the linker takes no second version script: the functions have no versions");
    }
}

/// Whether the linker of this build takes the script.
fn takes_versions(out: &Path, option: &str) -> bool {
    let source = out.join("probe.rs");
    std::fs::write(&source, PROBE).expect("cargo made its directory");
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let mut command = Command::new(variable("RUSTC").unwrap_or_else(|| "rustc".to_owned()));
    command.args(["--edition", "2024", "--crate-name", "probe", "--crate-type", "cdylib"]);
    command.args(variable("TARGET").map(|target| format!("--target={target}")));
    command.args(variable("RUSTC_LINKER").map(|linker| format!("-Clinker={linker}")));
    let flags = variable("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    command.args(flags.split('\x1f').filter(|flag| !flag.is_empty()));
    command.arg(format!("-Clink-arg={option}")).arg(source).arg("--out-dir").arg(out);
    let done = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    done.is_ok_and(|status| status.success())
}
