//! `mpi-md-more` (thesis, section 6.2): all processes create files in one directory, and then resize each
//! file. Each process has files of its own, named by its rank and a number.

use super::{Done, PhaseWork, Process, name};
use shoal_proto::Handle;
use shoal_vfs::{Vfs, VfsFile as _};

/// The phases.
pub const PHASES: &[&str] = &["prepare", "prepare_find", "create", "resize"];
/// The size that files are resized to.
const RESIZED_BYTES: u64 = 1000;

/// The state held from phase to phase.
#[derive(Default)]
pub struct Acting {
    dir: Option<Handle>,
    files: Vec<Handle>,
}

impl Acting {
    pub(super) async fn run<V: Vfs>(&mut self, process: &Process<V>, phase: usize) -> Done {
        match (PHASES[phase], self.dir) {
            ("prepare", _) => process.make_shared().await.map(|()| PhaseWork::default()),
            ("prepare_find", _) => {
                self.dir = Some(process.shared().await?);
                Ok(PhaseWork::default())
            }
            ("create", Some(dir)) => {
                for at in 0..process.files() {
                    let file = process.create(dir, &name(format!("{}.{at}", process.index))?).await?;
                    self.files.push(file.handle());
                    process.call(file.close()).await?;
                }
                Ok(PhaseWork::ops(process.files()))
            }
            _ => {
                for file in &self.files {
                    process.go_on()?;
                    process.call(process.vfs.truncate(*file, RESIZED_BYTES, false)).await?;
                }
                Ok(PhaseWork::ops(process.files()))
            }
        }
    }
}
