//! Look-ups of existing and missing names, in order and at random: a benchmark that the thesis on the
//! persistency layer of PVFS2 proposes in chapter 9 ("a benchmark looking up existing and non-existing
//! file system objects, randomly or subsequent").
//!
//! Each process makes its files in a directory of its own, in batches where the switches allow that, and
//! looks names up in it. The random order is fixed by the process's number.

use super::files::{OwnDirectory, file_name};
use super::{Done, FILE, PhaseWork, Process, name, told};
use shoal_proto::{Handle, Name, Status};
use shoal_vfs::Vfs;

/// The phases.
pub const PHASES: &[&str] =
    &["prepare", "existing_in_order", "existing_random", "absent_in_order", "absent_random"];
/// Files made by one call.
const BATCH: u64 = 128;

pub(super) async fn run<V: Vfs>(process: &Process<V>, phase: usize, own: &mut OwnDirectory) -> Done {
    if phase == 0 {
        let dir = own.make(process).await?;
        return prepare(process, dir).await.map(|()| PhaseWork::default());
    }
    let (dir, _) = own.made()?;
    let phase = PHASES[phase];
    let (is_random, is_there) = (phase.ends_with("random"), phase.starts_with("existing"));
    let mut draw = Draw(u64::from(process.index) + 1);
    for at in 0..process.setting.lookups {
        process.go_on()?;
        let which = if is_random { draw.next() } else { at } % process.files().max(1);
        let name = if is_there { file_name(which)? } else { absent(which)? };
        match process.vfs.lookup(dir, &name).await {
            Ok(_) if is_there => {}
            Ok(_) => return Err("a name is there that was never made".to_owned()),
            Err(error) if !is_there && error.status == Status::NotFound => {}
            Err(error) => return Err(told(error)),
        }
    }
    Ok(PhaseWork::ops(process.setting.lookups))
}

fn absent(at: u64) -> Result<Name, String> {
    name(format!("g{at:07}"))
}

async fn prepare<V: Vfs>(process: &Process<V>, dir: Handle) -> Result<(), String> {
    let files = process.files();
    for first in (0..files).step_by(BATCH as usize) {
        process.go_on()?;
        let batch = first..(first + BATCH).min(files);
        let new = |at| Ok((dir, file_name(at)?));
        let batch = batch.map(new).collect::<Result<Vec<_>, String>>()?;
        for made in process.vfs.make_many(&batch, FILE).await {
            made.map_err(told)?;
        }
    }
    Ok(())
}

/// A fixed order that looks like none: a linear congruential generator's upper bits.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }
}
