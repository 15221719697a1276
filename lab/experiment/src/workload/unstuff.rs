//! The cost of growing beyond the first strip: the small-file paper instruments it and finds "a one-time cost
//! of approximately 4.1 ms" (section IV.A.1).
//!
//! Each process makes files. It writes three blocks to each file. The first block lies within the first
//! strip. The second block lies right after the strip, so the file is laid out over all data servers before
//! the write. The third block follows the second and needs no layout. The cost is the difference between
//! the times of the second and the third block.

use super::files::file_name;
use super::{Done, PhaseWork, Process};
use shoal_vfs::{Vfs, VfsFile};

/// The phases.
pub const PHASES: &[&str] = &["prepare", "write_within", "write_beyond", "write_beyond_again"];

/// The state held from phase to phase.
pub struct Acting<F> {
    files: Vec<F>,
}

impl<F> Default for Acting<F> {
    fn default() -> Acting<F> {
        Acting { files: Vec::new() }
    }
}

impl<F: VfsFile> Acting<F> {
    pub(super) async fn run<V: Vfs<File = F>>(&mut self, process: &Process<V>, phase: usize) -> Done {
        let files = process.files();
        let (strip, block) = (process.setting.strip_bytes, process.setting.block_bytes);
        let offset = match PHASES[phase] {
            "prepare" => {
                let (dir, _) = process.own_directory().await?;
                for at in 0..files {
                    self.files.push(process.create(dir, &file_name(at)?).await?);
                }
                return Ok(PhaseWork::default());
            }
            "write_within" => 0,
            "write_beyond" => strip,
            _ => strip + block,
        };
        for file in &self.files {
            process.block(file, offset, true).await?;
        }
        Ok(PhaseWork::moved(files, files * block))
    }
}
