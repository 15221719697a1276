//! `pvfs2-bench` (thesis, section 6.3): one call of the system interface over and over, with a rate for each
//! second.
//!
//! * create: names with ascending numbers; delete: descending, so that the youngest go first;
//! * create-delete: each file is created and deleted in turn;
//! * write, read: one file in successive blocks; write-read: each block is written and read again.

use super::files::file_name;
use super::{Done, FILE, PhaseWork, Process, name};
use shoal_proto::{Handle, Rights};
use shoal_vfs::{Vfs, VfsFile};

/// The phases.
pub const PHASES: &[&str] =
    &["prepare", "create", "delete", "create_delete", "prepare_file", "write", "read", "write_read"];
const SECOND_NS: u64 = 1_000_000_000;

/// The state held from phase to phase.
pub struct Acting<F> {
    dir: Option<Handle>,
    file: Option<F>,
}

/// Operations in each second.
struct Seconds<'a, V: Vfs> {
    process: &'a Process<V>,
    begun_ns: u64,
    work: PhaseWork,
}

impl<'a, V: Vfs> Seconds<'a, V> {
    fn new(process: &'a Process<V>) -> Seconds<'a, V> {
        Seconds { process, begun_ns: process.env.now().0, work: PhaseWork::default() }
    }

    /// One more is done.
    fn count(&mut self, bytes: u64) {
        let second = ((self.process.env.now().0 - self.begun_ns) / SECOND_NS) as usize;
        if self.work.per_second.len() <= second {
            self.work.per_second.resize(second + 1, 0);
        }
        self.work.per_second[second] += 1;
        self.work.ops += 1;
        self.work.bytes += bytes;
    }
}

impl<F> Default for Acting<F> {
    fn default() -> Acting<F> {
        Acting { dir: None, file: None }
    }
}

impl<F: VfsFile> Acting<F> {
    pub(super) async fn run<V: Vfs<File = F>>(&mut self, process: &Process<V>, phase: usize) -> Done {
        let phase = PHASES[phase];
        match (phase, self.dir, &self.file) {
            ("prepare", _, _) => {
                self.dir = Some(process.own_directory().await?.0);
                Ok(PhaseWork::default())
            }
            ("prepare_file", Some(dir), _) => {
                let (name, rights) = (name("data".to_owned())?, Rights::READ | Rights::WRITE);
                let made = process.call(process.vfs.create(dir, &name, FILE, true, rights)).await?;
                self.file = Some(made.2);
                Ok(PhaseWork::default())
            }
            ("create" | "delete" | "create_delete", Some(dir), _) => files(process, dir, phase).await,
            (_, _, Some(file)) => blocks(process, file, phase).await,
            _ => Err("there is no file".to_owned()),
        }
    }
}

async fn files<V: Vfs>(process: &Process<V>, dir: Handle, phase: &str) -> Done {
    let mut seconds = Seconds::new(process);
    let files = process.files();
    for at in 0..files {
        match phase {
            "create" => process.create_close(dir, &file_name(at)?).await?,
            "delete" => process.remove(dir, &file_name(files - 1 - at)?).await?,
            _ => {
                process.create_close(dir, &file_name(at)?).await?;
                seconds.count(0);
                process.remove(dir, &file_name(at)?).await?;
            }
        }
        seconds.count(0);
    }
    Ok(seconds.work)
}

async fn blocks<V: Vfs>(process: &Process<V>, file: &V::File, phase: &str) -> Done {
    let mut seconds = Seconds::new(process);
    let block = process.setting.block_bytes;
    let rounds = process.setting.total_bytes / (block * u64::from(process.of));
    for round in 0..rounds {
        if phase != "read" {
            process.block(file, round * block, true).await?;
            seconds.count(block);
        }
        if phase != "write" {
            process.block(file, round * block, false).await?;
            seconds.count(block);
        }
    }
    Ok(seconds.work)
}
