//! A large directory listed in the three manners of the small-file paper's table I.
//!
//! | manner | requests |
//! |---|---|
//! | `/bin/ls -al` | the entries, then each *by its name* (look-up, attributes), as the kernel does |
//! | `pvfs2-ls -al` | the entries, then the attributes of each by its handle |
//! | `pvfs2-lsplus -al` | the entries with their attributes (`readdirplus`) |
//!
//! `ls` goes through the kernel: its calls travel as the machine's file says (`[forwarding]`); the library's
//! utilities do not.

use super::files::{OwnDirectory, PATIENCE, file_name, seen};
use super::{Done, PhaseWork, Process, Way, told};
use shoal_proto::{Handle, Kind};
use shoal_vfs::{Listing as _, Vfs};

/// The phases.
pub const PHASES: &[&str] = &["prepare", "ls", "pvfs2_ls", "pvfs2_lsplus"];

pub(super) async fn run<V: Vfs>(process: &Process<V>, phase: usize, own: &mut OwnDirectory) -> Done {
    if phase == 0 {
        let dir = own.make(process).await?;
        for at in 0..process.files() {
            process.create_close(dir, &file_name(at)?).await?;
        }
        return Ok(PhaseWork::default());
    }
    let (dir, _) = own.made()?;
    let files = process.files();
    match PHASES[phase] {
        "ls" => by_name(process, dir).await?,
        "pvfs2_ls" => process.readdir_stat(Way::Library, dir, files, 0).await?,
        _ => plus(process, dir).await?,
    }
    Ok(PhaseWork::ops(files))
}

async fn by_name<V: Vfs>(process: &Process<V>, dir: Handle) -> Result<(), String> {
    let mut stream = process.vfs.opendir(dir, PATIENCE);
    let mut entries = 0;
    while let Some(listed) = stream.next(false).await.map_err(told)? {
        process.go_on()?;
        let found = process.call(process.vfs.lookup(dir, &listed.entry.name)).await?;
        process.call(process.vfs.getattr(found.handle)).await?;
        entries += 1;
    }
    seen(entries, process.files(), 0, 0)
}

async fn plus<V: Vfs>(process: &Process<V>, dir: Handle) -> Result<(), String> {
    let mut stream = process.vfs.opendir(dir, PATIENCE);
    let mut entries = 0;
    while let Some(listed) = stream.next(true).await.map_err(told)? {
        process.go_on()?;
        let entry = listed.entry;
        let attr = entry.attr.ok_or_else(|| format!("{} came without attributes", entry.handle))?;
        entries += u64::from(attr.kind == Kind::File);
    }
    seen(entries, process.files(), 0, 0)
}
