//! Seats (processes of a workload) under virtual time: the same workload code over `shoal_sim`'s simulated
//! machines.

use crate::seat::{Calls, Plan, Seat, Took, take};
use crate::setting::{Setting, Storage};
use futures_util::future::LocalBoxFuture;
use shoal_model::Machine;
use shoal_model::machine::Disk;
use shoal_sim::machine::{self, Manner, Simulated};
use std::rc::Rc;
use std::time::Duration;

/// Run a plan on a simulated machine; a seed gives one run.
///
/// # Errors
/// The unsupported setting, in words. A failure within a process is in its [`Took`].
pub fn run(plan: &Plan, machine: &Machine, seed: u64) -> Result<Vec<Took>, String> {
    let setting = &plan.setting;
    let machine = hardware(machine, setting);
    let simulated = Simulated {
        machine: &machine,
        servers: setting.servers,
        metadata_only: setting.metadata_only,
        client_nodes: setting.clients,
        processes: setting.process_count(),
        switches: setting.techniques()?,
        sync_modes: setting.sync_modes(),
        module: setting.module.kind(),
        strip: setting.strip_bytes,
        seed,
    };
    let cache = Duration::from_millis(setting.client_cache_ms);
    let manner = Manner { name_cache: cache, attr_cache: cache, ..Manner::uncached() };
    let plan = Rc::new(plan.clone());
    let body = move |seat: machine::Seat| {
        let plan = plan.clone();
        async move {
            let seat = Rc::new(seat);
            let meets = seat.clone();
            let meet = Rc::new(move || {
                let seat = meets.clone();
                Box::pin(async move { seat.meet().await.0 }) as LocalBoxFuture<'static, u64>
            });
            let (env, vfs) = (seat.env.clone(), Ok(seat.client.clone()));
            let (index, of) = (seat.index, seat.of);
            take(Seat { env, vfs, index, of, meet, calls: Calls::Forwarded(seat) }, &plan).await
        }
    };
    let told = simulated.run_told(&manner, body).map_err(|error| error.to_string())?;
    Ok(told.values)
}

/// The machine with a setting's memory, and without a disk where its files lie in memory.
fn hardware(machine: &Machine, setting: &Setting) -> Machine {
    let mut machine = machine.clone();
    if setting.memory_bytes > 0 {
        machine.memory.bytes = Some(setting.memory_bytes);
    }
    if setting.storage == Storage::Tmpfs {
        machine.disk = Disk {
            cache_read_mb_per_s: machine.disk.cache_read_mb_per_s,
            cache_write_mb_per_s: machine.disk.cache_write_mb_per_s,
            ..Disk::default()
        };
        for sync in &mut machine.sync {
            (sync.sync_us, sync.sync_per_s) = (MEMORY_SYNC_US, 1e6 / MEMORY_SYNC_US);
        }
    }
    machine
}

/// A sync of a file system in memory: a system call that finds nothing to do.
const MEMORY_SYNC_US: f64 = 1.0;
