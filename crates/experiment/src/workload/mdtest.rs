//! mdtest with unique directories (`-u`), as the small-file paper runs version 1.7.4 (section IV.B.2): each process makes, *stats*
//! and removes directories in a directory of its own, then files, with all processes in step. Timed by Algorithm 2: the first
//! process's time alone, from behind the first barrier to behind the second. The paper's `-n` is 10.

use super::files::file_name;
use super::{DIRECTORY, Done, Process, Work};
use shoal_proto::Handle;

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

/// What is held from phase to phase.
#[derive(Default)]
pub struct Acting {
    dir: Option<Handle>,
}

impl Acting {
    pub(super) async fn run(&mut self, process: &Process, phase: usize) -> Done {
        if phase == 0 {
            self.dir = Some(process.own_directory().await?.0);
            return Ok(Work::default());
        }
        let Some(dir) = self.dir else { return Err("there is no directory".to_owned()) };
        for at in 0..process.files() {
            process.go_on()?;
            let (name, client) = (file_name(at)?, &process.client);
            match PHASES[phase] {
                "directory_creation" => drop(process.call(client.mkdir(dir, &name, DIRECTORY)).await?),
                "directory_stat" | "file_stat" => drop(process.call(client.lookup(dir, &name)).await?),
                "directory_removal" => process.call(client.rmdir(dir, &name)).await?,
                "file_creation" => process.create_close(dir, &name).await?,
                _ => process.remove(dir, &name).await?,
            }
        }
        Ok(Work::ops(process.files()))
    }
}
