//! Inputs on disk: seeds, and inputs that made a decoder fail.

use crate::Target;
use std::io;
use std::path::{Path, PathBuf};

/// The folder of this package, where `corpus/` and `crashes/` are.
pub fn home() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The target's seeds, and the inputs of its folder in the order of their names.
///
/// # Errors
/// When the folder is there and cannot be read.
pub fn of(target: &Target, home: &Path) -> io::Result<Vec<Vec<u8>>> {
    let mut inputs = (target.seeds)();
    let dir = home.join("corpus").join(target.name);
    if !dir.is_dir() {
        return Ok(inputs);
    }
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(&dir)? {
        paths.push(entry?.path());
    }
    paths.sort();
    for path in paths {
        inputs.push(std::fs::read(path)?);
    }
    Ok(inputs)
}

/// Keeps an input that broke the target; where.
///
/// # Errors
/// When it cannot be written.
pub fn keep_crash(target: &str, input: &[u8], home: &Path) -> io::Result<PathBuf> {
    let dir = home.join("crashes");
    std::fs::create_dir_all(&dir)?;
    let path = dir.join(format!("{target}-{:08x}", crc32c::crc32c(input)));
    std::fs::write(&path, input)?;
    Ok(path)
}

/// Writes the target's seeds to its folder, where they stay as they are today: the seeds of a later version
/// are added.
///
/// # Errors
/// When they cannot be written.
pub fn write(target: &Target, home: &Path) -> io::Result<()> {
    let dir = home.join("corpus").join(target.name);
    std::fs::create_dir_all(&dir)?;
    for seed in (target.seeds)() {
        std::fs::write(dir.join(format!("seed-{:08x}", crc32c::crc32c(&seed))), &seed)?;
    }
    Ok(())
}
