//! Notes of which commit the program is, and how it is built: `shoal paper` writes both beside its figures.
//!
//! Without git, or outside of this repository, the commit is unknown: nothing fails.

use std::path::Path;
use std::process::Command;

/// The sources of the program, from the repository's folder.
const SOURCES: &[&str] = &["crates", "lab", "Cargo.toml", "Cargo.lock"];

fn main() {
    let of = |name: &str| std::env::var(name).unwrap_or_default();
    let folder = of("CARGO_MANIFEST_DIR") + "/../..";
    println!("cargo:rustc-env=SHOAL_COMMIT={}", commit(&folder));
    println!("cargo:rustc-env=SHOAL_BUILD={}", build(&of("OUT_DIR"), &of("CARGO_ENCODED_RUSTFLAGS")));
    for source in SOURCES {
        println!("cargo:rerun-if-changed={folder}/{source}");
    }
    // Every commit and every checkout writes there.
    if let Some(log) = git(&folder, &["rev-parse", "--git-path", "logs/HEAD"]) {
        let log = Path::new(&folder).join(log);
        if log.exists() {
            println!("cargo:rerun-if-changed={}", log.display());
        }
    }
}

/// The output of git; `None` where it fails.
fn git(folder: &str, words: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(folder).args(words).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

fn commit(folder: &str) -> String {
    let known = || {
        let top = git(folder, &["rev-parse", "--show-toplevel"])?;
        let is_ours = Path::new(&top).canonicalize().ok()? == Path::new(folder).canonicalize().ok()?;
        let commit = is_ours.then(|| git(folder, &["rev-parse", "--short=12", "HEAD"]))??;
        let changed = git(folder, &[&["status", "--porcelain", "--"], SOURCES].concat())?;
        let mark = if changed.is_empty() { "" } else { " with changes" };
        Some(format!("commit {commit}{mark}"))
    };
    known().unwrap_or_else(|| "unknown commit".to_owned())
}

/// The profile's name, which is that of the folder four above what a build script writes to; and whether a
/// profile laid it out.
fn build(out: &str, flags: &str) -> String {
    let folder = Path::new(out).ancestors().nth(3).and_then(Path::file_name);
    let profile = folder.map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let is_profiled = flags.contains("profile-use");
    if is_profiled { format!("{profile}, profiled") } else { format!("{profile}, plain") }
}
