//! How large a simulated cluster may be, measured:
//! `machine NAME SERVERS CLIENT_NODES PROCESSES [SWITCHES [FILES]]`.
//!
//! Every process makes files of its own, stats and removes them, writes and reads small ones. The output: the
//! rates, the simulator's work for them, and its time.

use shoal_model::Machine;
use shoal_proto::Switches;
use shoal_sim::SyncModes;
use shoal_sim::machine::phases::{self, WorkExtent};
use shoal_sim::machine::{ModuleKind, Simulated};
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [name, servers, client_nodes, processes, rest @ ..] = words.as_slice() else {
        return Err("machine NAME SERVERS CLIENT_NODES PROCESSES [SWITCHES [FILES]]".into());
    };
    let switches = rest.first().map_or(Ok(Switches::default()), |words| words.parse::<Switches>())?;
    let files = rest.get(1).map_or(Ok(10), |files| files.parse())?;
    let machine = match Machine::named(name) {
        Ok(machine) => machine,
        Err(_) => Machine::read(std::path::Path::new(name))?,
    };
    let of = Simulated {
        machine: &machine,
        servers: servers.parse()?,
        metadata_only: 0,
        client_nodes: client_nodes.parse()?,
        processes: processes.parse()?,
        switches,
        sync_modes: SyncModes::default(),
        module: ModuleKind::Disk,
        strip: 1 << 20,
        seed: 1,
    };
    let begun = Instant::now();
    let extent = WorkExtent { files, small_bytes: 8192, large_bytes: 0, block_bytes: 1 << 20 };
    let (rates, told) = phases::run(&of, extent)?;
    let took = begun.elapsed();
    for rate in rates {
        println!("{:<12} {:>10.0}/s", rate.phase.name(), rate.per_s);
    }
    println!(
        "{} events, {:.1} virtual s, in {:.1} s: {:.0} thousand events/s; {} MB at most; run {:016x}",
        told.events,
        told.took.as_secs_f64(),
        took.as_secs_f64(),
        told.events as f64 / took.as_secs_f64() / 1e3,
        memory_bytes() / 1_000_000,
        told.trace_hash
    );
    Ok(())
}

/// The most memory this process had.
fn memory_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}
