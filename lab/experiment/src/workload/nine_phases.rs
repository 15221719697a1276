//! The nine phases of the small-file paper's microbenchmark (section IV.A): each process (1) makes a
//! directory of its own, (2) creates N files, (3) reads the directory and *stats* each file, (4) writes M
//! bytes to each file, (5) reads them, (6) reads the directory and *stats* each file again, (7) closes each
//! file, (8) removes each file, (9) removes the directory. Files stay open from create to close. The time of
//! a phase follows the paper's Algorithm 1: the longest time that any process needed (`seat.rs`). Only real
//! runs report the wall-clock time instead, because their processes may outnumber the cores (`run.rs`). The
//! paper's N is 12,000, its M 8 KiB.

use super::files::{OwnDirectory, file_name};
use super::{Done, PhaseWork, Process, Way};
use shoal_proto::Handle;
use shoal_vfs::{Vfs, VfsFile};

/// The phases.
pub const PHASES: &[&str] = &[
    "mkdir",
    "create",
    "readdir_stat_empty",
    "write",
    "read",
    "readdir_stat_written",
    "close",
    "remove",
    "rmdir",
];

/// The state held from phase to phase.
pub struct Acting<F> {
    dir: OwnDirectory,
    files: Vec<F>,
}

impl<F> Default for Acting<F> {
    fn default() -> Acting<F> {
        Acting { dir: OwnDirectory::default(), files: Vec::new() }
    }
}

impl<F: VfsFile> Acting<F> {
    pub(super) async fn run<V: Vfs<File = F>>(&mut self, process: &Process<V>, phase: usize) -> Done {
        let (files, bytes) = (process.files(), process.setting.file_bytes);
        if phase == 0 {
            self.dir.make(process).await?;
            return Ok(PhaseWork::ops(1));
        }
        let (dir, own) = self.dir.made()?;
        match PHASES[phase] {
            "create" => {
                for at in 0..files {
                    self.files.push(process.create(dir, &file_name(at)?).await?);
                }
            }
            "readdir_stat_empty" => process.readdir_stat(Way::Usual, dir, files, 0).await?,
            "readdir_stat_written" => process.readdir_stat(Way::Usual, dir, files, bytes).await?,
            "write" => {
                for file in &self.files {
                    process.write_all(file, bytes).await?;
                }
                return Ok(PhaseWork::moved(files, files * bytes));
            }
            "read" => {
                for file in &self.files {
                    process.read_all(file, bytes).await?;
                }
                return Ok(PhaseWork::moved(files, files * bytes));
            }
            "close" => {
                for file in self.files.drain(..) {
                    process.call(file.close()).await?;
                }
            }
            "remove" => {
                for at in 0..files {
                    process.remove(dir, &file_name(at)?).await?;
                }
            }
            _ => {
                process.call(process.vfs.rmdir(Handle::ROOT, own)).await?;
                return Ok(PhaseWork::ops(1));
            }
        }
        Ok(PhaseWork::ops(files))
    }
}
