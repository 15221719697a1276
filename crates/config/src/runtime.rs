//! The user's runtime folder: notes for commands about the mounts of this machine.
//!
//! The folder is `$XDG_RUNTIME_DIR/shoal`. Without that variable it is `/run/shoal` for root, and
//! `shoal-UID` in the folder for temporary files for other users. In the folder for temporary files another
//! user may already have made a link or a folder of that name, so that notes are written or read elsewhere.
//! **So the folder is used only if it belongs to this user and others cannot write to it.**

use anyhow::{Context as _, Result, bail};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// Where it is; it may be missing.
pub fn folder() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR").filter(|value| !value.is_empty()) {
        Some(folder) => PathBuf::from(folder).join("shoal"),
        None if rustix::process::geteuid().is_root() => PathBuf::from("/run/shoal"),
        None => std::env::temp_dir().join(format!("shoal-{}", rustix::process::geteuid().as_raw())),
    }
}

/// Make it if it is missing, for its user alone.
///
/// # Errors
/// As [`check`]; or it cannot be made.
pub fn make(folder: &Path) -> Result<()> {
    if let Some(above) = folder.parent() {
        std::fs::create_dir_all(above).with_context(|| format!("cannot make {}", above.display()))?;
    }
    match std::fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(error).with_context(|| format!("cannot make {}", folder.display()))
        }
        _ => check(folder),
    }
}

/// Whether it can be trusted; one that is missing can. No link is followed.
///
/// # Errors
/// It is a link, no folder, another user's, or others may write there.
pub fn check(folder: &Path) -> Result<()> {
    let meta = match std::fs::symlink_metadata(folder) {
        Ok(meta) => meta,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).with_context(|| format!("cannot look at {}", folder.display())),
    };
    let user = rustix::process::geteuid().as_raw();
    let wrong = match &meta {
        meta if meta.is_symlink() => "it is a symbolic link".to_owned(),
        meta if !meta.is_dir() => "it is no folder".to_owned(),
        meta if meta.uid() != user => format!("it belongs to user {}, and you are user {user}", meta.uid()),
        meta if meta.permissions().mode() & 0o022 != 0 => "others may write there".to_owned(),
        _ => return Ok(()),
    };
    bail!(
        "the runtime folder {} is not used, because {wrong}: remove it, or set XDG_RUNTIME_DIR to a folder of yours",
        folder.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_folder_that_somebody_else_could_have_laid_there_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().join("new/shoal");
        check(&own).unwrap();
        make(&own).unwrap();
        make(&own).unwrap();
        assert_eq!(std::fs::metadata(&own).unwrap().permissions().mode() & 0o777, 0o700);

        let refused = |folder: &Path, word: &str| {
            for error in [make(folder).unwrap_err(), check(folder).unwrap_err()] {
                let words = format!("{error:#}");
                assert!(words.contains(word) && words.contains("XDG_RUNTIME_DIR"), "{words}");
            }
        };
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&own, &link).unwrap();
        refused(&link, "symbolic link");
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        refused(&file, "no folder");
        let open = dir.path().join("open");
        std::fs::create_dir(&open).unwrap();
        std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
        refused(&open, "others may write");
        if rustix::process::geteuid().is_root() {
            let theirs = dir.path().join("theirs");
            std::fs::create_dir(&theirs).unwrap();
            std::os::unix::fs::chown(&theirs, Some(12_345), None).unwrap();
            refused(&theirs, "belongs to user 12345");
        }
    }
}
