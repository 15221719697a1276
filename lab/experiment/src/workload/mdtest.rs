//! mdtest with unique directories (`-u`), as the small-file paper runs version 1.7.4 (section IV.B.2): each
//! process makes, *stats* and removes directories in a directory of its own, then files, with all processes
//! in step. The time is measured by Algorithm 2: only the time of the first process counts, from the end of
//! the first barrier to the end of the second barrier. The paper's `-n` is 10.

use super::files::{OwnDirectory, file_name};
use super::{DIRECTORY, Done, PhaseWork, Process};
use shoal_vfs::Vfs;

/// The phases.
pub const PHASES: &[&str] = &[
    "prepare",
    "directory_creation",
    "directory_stat",
    "directory_removal",
    "file_creation",
    "file_stat",
    "file_removal",
];

pub(super) async fn run<V: Vfs>(process: &Process<V>, phase: usize, own: &mut OwnDirectory) -> Done {
    if phase == 0 {
        own.make(process).await?;
        return Ok(PhaseWork::default());
    }
    let (dir, _) = own.made()?;
    for at in 0..process.files() {
        process.go_on()?;
        let (name, vfs) = (file_name(at)?, &process.vfs);
        match PHASES[phase] {
            "directory_creation" => drop(process.call(vfs.mkdir(dir, &name, DIRECTORY)).await?),
            "directory_stat" | "file_stat" => drop(process.call(vfs.lookup(dir, &name)).await?),
            "directory_removal" => process.call(vfs.rmdir(dir, &name)).await?,
            "file_creation" => process.create_close(dir, &name).await?,
            _ => process.remove(dir, &name).await?,
        }
    }
    Ok(PhaseWork::ops(process.files()))
}
