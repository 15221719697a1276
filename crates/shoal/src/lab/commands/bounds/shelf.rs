//! The place of a machine's file: in the program, in the user's data folder, or any path.
//!
//! ```text
//!   NAME       NAME.toml in the user's data folder (`this` for this machine), else in the program
//!   …/FILE     the file at this path
//! ```

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use shoal_model::{Machine, builtin};
use std::path::{Path, PathBuf};

/// The name of this machine's measurements.
pub const THIS: &str = "this";

/// The user's machines.
fn folder() -> Result<PathBuf> {
    let of = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let data = of("XDG_DATA_HOME").filter(|path| path.is_absolute());
    let data = data.or_else(|| Some(of("HOME")?.join(".local/share")));
    let data = data.context("neither XDG_DATA_HOME nor HOME is set: say where with --out FILE")?;
    Ok(data.join("shoal/machines"))
}

fn kept(name: &str) -> Result<PathBuf> {
    Ok(folder()?.join(format!("{name}.toml")))
}

/// The machine that is meant.
pub fn take(words: &str) -> Result<Machine> {
    let path = Path::new(words);
    if words.contains('/') || path.extension().is_some_and(|end| end == "toml") {
        return Ok(Machine::read(path)?);
    }
    if let Ok(kept) = kept(words)
        && kept.exists()
    {
        return Ok(Machine::read(&kept)?);
    }
    if words == THIS {
        bail!("this machine was not measured yet: run `shoal bounds` once (under a minute)");
    }
    Ok(Machine::named(words)?)
}

/// This machine, if it was measured.
pub fn measured() -> Result<Option<Machine>> {
    match kept(THIS) {
        Ok(path) if path.exists() => Ok(Some(Machine::read(&path)?)),
        _ => Ok(None),
    }
}

/// Where a machine is to be kept; its folder is made.
pub fn place(out: Option<&Path>) -> Result<PathBuf> {
    let path = out.map_or_else(|| kept(THIS), |path| Ok(path.to_path_buf()))?;
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    Ok(path)
}

/// Keep a machine there.
pub fn keep(machine: &Machine, remark: &str, path: &Path) -> Result<()> {
    let text = machine.to_text(remark).context("cannot write the machine")?;
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// All machines there are: name, title, where.
pub fn all() -> Result<Vec<Value>> {
    let of = |machine: &Machine, place: String| json!({ "name": machine.name, "title": machine.title, "place": place });
    let mut found = Vec::new();
    let entries =
        folder().ok().and_then(|folder| std::fs::read_dir(folder).ok()).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths.iter().filter(|path| path.extension().is_some_and(|end| end == "toml")) {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let place = path.display().to_string();
        found.push(match Machine::read(path) {
            Ok(machine) => json!({ "name": stem, "title": machine.title, "place": place }),
            Err(error) => json!({ "name": stem, "title": error.to_string(), "place": place }),
        });
    }
    for name in builtin() {
        found.push(of(&Machine::named(name)?, "comes with the program".to_owned()));
    }
    Ok(found)
}
