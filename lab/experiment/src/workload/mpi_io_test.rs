//! `mpi-io-test` (thesis, section 6.1): all processes write one shared file in blocks, wait for each other,
//! and read it again.
//!
//! ```text
//!   position = i · processes · block + rank · block        i = 0 … iterations - 1, one call a block
//! ```
//!
//! Nothing is synced while it writes. The file has `total_bytes`, a whole number of such rounds.

use super::{Done, FILE, PhaseWork, Process, name, told};
use shoal_proto::{Handle, Rights};
use shoal_vfs::{Vfs, VfsFile};

/// The phases.
pub const PHASES: &[&str] = &["prepare", "prepare_open", "write", "read"];

/// The state held from phase to phase.
pub struct Acting<F> {
    file: Option<F>,
}

impl<F> Default for Acting<F> {
    fn default() -> Acting<F> {
        Acting { file: None }
    }
}

impl<F: VfsFile> Acting<F> {
    pub(super) async fn run<V: Vfs<File = F>>(&mut self, process: &Process<V>, phase: usize) -> Done {
        match (PHASES[phase], &self.file) {
            ("prepare", _) => {
                if process.index == 0 {
                    let name = name("shared".to_owned())?;
                    let made = process.vfs.create(Handle::ROOT, &name, FILE, true, Rights::WRITE).await;
                    made.map_err(told)?.2.close().await.map_err(told)?;
                }
                Ok(PhaseWork::default())
            }
            ("prepare_open", _) => {
                let (name, rights) = (name("shared".to_owned())?, Rights::READ | Rights::WRITE);
                let file = process.vfs.open_name(Handle::ROOT, &name, rights).await.map_err(told)?;
                self.file = Some(file);
                Ok(PhaseWork::default())
            }
            (phase, Some(file)) => process.blocks(file, phase == "write").await,
            (_, None) => Err("there is no file".to_owned()),
        }
    }
}

impl<V: Vfs> Process<V> {
    /// The blocks of this process, each by a call.
    async fn blocks(&self, file: &V::File, is_write: bool) -> Done {
        let block = self.setting.block_bytes;
        let (index, of) = (u64::from(self.index), u64::from(self.of));
        let rounds = self.setting.total_bytes / (block * of);
        for round in 0..rounds {
            self.block(file, (round * of + index) * block, is_write).await?;
        }
        Ok(PhaseWork::moved(rounds, rounds * block))
    }

    /// One block at a place.
    pub(super) async fn block(&self, file: &V::File, offset: u64, is_write: bool) -> Result<(), String> {
        self.go_on()?;
        let block = self.setting.block_bytes;
        if is_write {
            return self.call(file.write(offset, self.data(block))).await;
        }
        let data = self.call(file.read(offset, block as usize)).await?;
        match data.len() as u64 == block {
            true => Ok(()),
            false => Err(format!("{} bytes were read at {offset}, asked for were {block}", data.len())),
        }
    }
}
