//! `shoal container extract`: copies a container's bytes to a plain file.
//!
//! The file has its name when it is whole and durable: it is written beside its name, and then renamed. A
//! kill leaves `NAME.extract-PID`.

use super::COPY_BYTES;
use super::below::{Found, Mounted, Place};
use crate::bytes_size::human;
use crate::cli::Extract;
use crate::out;
use anyhow::{Context as _, Result, bail};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::json;
use shoal_proto::Rights;
use shoal_transform::container::tools;
use shoal_vfs::{Vfs, VfsFile};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// See the module.
pub fn extract(args: &Extract) -> Result<ExitCode> {
    let file = args.file.clone();
    let copied = Place::find(&args.path)?.with(async move |container, found| {
        let aside = Aside::new(&file)?;
        let copied = copy(container, found, &aside).await?;
        aside.name_it()?;
        Ok(copied)
    })?;
    match args.json {
        true => out::json(&json!({ "bytes": copied }))?,
        false => out::line(format!("{} copied to {}", human(copied), args.file.display()))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Copy all parts; the bytes. Holes stay holes.
async fn copy(container: &Mounted, found: &Found, aside: &Aside) -> Result<u64> {
    let from = container.open(found.object, Rights::READ).await?;
    let (mut parts, mut size) = (Vec::new(), 0);
    tools::map(container, found.object, |part| {
        size = part.logical + part.len;
        parts.extend(part.writer.map(|_| (part.logical, part.len)));
    })
    .await?;
    let failed = || format!("cannot write {}", aside.path.display());
    aside.file.set_len(size).with_context(failed)?;
    let mut copied = 0;
    for (mut at, mut len) in parts {
        while len > 0 {
            let bytes = from.read(at, COPY_BYTES.min(len as usize)).await?;
            if bytes.is_empty() {
                bail!("the container ends early, at byte {at}");
            }
            aside.file.write_all_at(&bytes, at).with_context(failed)?;
            (at, len) = (at + bytes.len() as u64, len - bytes.len() as u64);
            copied += bytes.len() as u64;
        }
    }
    aside.file.sync_all().with_context(failed)?;
    from.close().await?;
    Ok(copied)
}

/// The file that is written, beside its name. It is removed if it does not get the name.
struct Aside {
    file: File,
    path: PathBuf,
    named: PathBuf,
}

fn refuse(named: &Path) -> Result<()> {
    bail!("cannot make {}: it exists already; remove it, or name another file", named.display())
}

impl Aside {
    fn new(named: &Path) -> Result<Aside> {
        let Some(name) = named.file_name() else {
            bail!("cannot make {}: it is a directory; name a file in it", named.display());
        };
        if named.symlink_metadata().is_ok() {
            refuse(named)?;
        }
        let mut aside = name.to_owned();
        aside.push(format!(".extract-{}", std::process::id()));
        let path = named.with_file_name(aside);
        let made = File::create_new(&path);
        let file = made.with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Aside { file, path, named: named.to_owned() })
    }

    /// Give it its name.
    fn name_it(self) -> Result<()> {
        let renamed = renameat_with(CWD, &self.path, CWD, &self.named, RenameFlags::NOREPLACE);
        match renamed {
            Err(rustix::io::Errno::EXIST) => refuse(&self.named),
            // Not each file system has that rename.
            Err(_) if self.named.symlink_metadata().is_ok() => refuse(&self.named),
            Err(_) => std::fs::rename(&self.path, &self.named)
                .with_context(|| format!("cannot make {}", self.named.display())),
            Ok(()) => Ok(()),
        }
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        // Under its own name it is not there any more.
        let _ = std::fs::remove_file(&self.path);
    }
}
