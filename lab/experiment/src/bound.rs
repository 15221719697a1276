//! The estimated upper bound of a phase. The phase gives the counts (messages, bytes, syncs), the setting
//! gives the machine and its servers.
//!
//! If the crate `model` has the operation, its counts are used, for the set of techniques that is nearest to
//! the switches. This is our set if compounds are on. Otherwise it is the paper's set if the technique that
//! matters to the operation is on, and else the baseline. Reads and writes of blocks are counted here: one
//! message for each server, or one for each 256 KiB of a large block. A rendezvous with each server comes
//! first if the switches allow no eager data.
//!
//! **Only resources that a setting waits for are in its bound**: without syncs (`memory`, `null`, tmpfs,
//! another sync mode) neither syncs nor the disk's accesses are in it.
//!
//! **Data larger than the servers' memory** moves at the disks' rate, except the part that memory keeps. When
//! a phase of writes ends, bytes of up to 40 % of memory may still be unwritten. In a phase of reads, as many
//! bytes as memory holds need no disk. Clients do not wait for each transfer of the disk, because it writes
//! back later and reads ahead.

use crate::file::Metric;
use crate::outcome::BoundHere;
use crate::setting::{Module, Setting, Storage};
use crate::workload::Workload;
use shoal_model::bound::{Access, Caching};
use shoal_model::machine::Disk;
use shoal_model::{Bound, Counts, Figure, Machine, Operation, Servers, Set, Share, chapter4};
use shoal_proto::{Coalescing, Switches};
use std::sync::OnceLock;

/// The words of the possible limits.
pub const LIMITS: &[&str] = &[
    "round_trip",
    "sync",
    "disk_access",
    "transfer",
    "processing",
    "messages",
    "client_link",
    "server_link",
    "syncs",
    "disk",
    "client_cpu",
    "server_cpu",
    "cpu",
];

/// Bytes of one message of a large transfer.
const CHUNK_BYTES: u64 = 256 << 10;
/// Bytes of a small message, each way.
const FRAME_BYTES: f64 = 70.0;

/// The figure of chapter 4 with this number.
pub fn chapter4_figure(machine: &Machine, number: &str) -> Option<Figure> {
    chapter4::figures(machine).into_iter().find(|figure| figure.number == number)
}

/// The names of its curves.
pub fn chapter4_curves(number: &str) -> Vec<String> {
    static FIGURES: OnceLock<Vec<Figure>> = OnceLock::new();
    let all =
        || Machine::named("thesis-cluster").map(|machine| chapter4::figures(&machine)).unwrap_or_default();
    let figure = FIGURES.get_or_init(all).iter().find(|figure| figure.number == number);
    figure.map_or(Vec::new(), |figure| figure.curves.iter().map(|curve| curve.name.clone()).collect())
}

/// The set that an operation's messages are those of.
fn set_of(operation: Operation, switches: &Switches) -> Set {
    let is_papers = match operation {
        Operation::Create => switches.precreate || switches.stuffing,
        Operation::ListEntry => switches.readdirplus,
        _ => switches.stuffing,
    };
    match (switches.compound, is_papers) {
        (true, _) => Set::Ours,
        (false, true) => Set::Paper,
        (false, false) => Set::Baseline,
    }
}

/// Operations that one sync may complete.
fn per_sync(switches: &Switches) -> Option<u32> {
    match switches.coalescing {
        Coalescing::PerOp => Some(1),
        Coalescing::Watermark { high: 0, .. } | Coalescing::Pipelined => None,
        // The test comes before the count.
        Coalescing::Watermark { high, .. } => Some(u32::from(high) + 1),
    }
}

/// A block written or read: the share of the data servers.
fn block(setting: &Setting, switches: &Switches, bytes: u64, is_write: bool) -> Counts {
    let data_servers = u64::from(setting.servers - setting.metadata_only);
    let parts = bytes.div_ceil(setting.strip_bytes).clamp(1, data_servers);
    let is_eager = bytes.div_ceil(parts) <= u64::from(switches.eager_bytes);
    let flow = if is_eager { parts } else { parts.max(bytes.div_ceil(CHUNK_BYTES)) };
    // A rendezvous with each server first, where the techniques have it so.
    let rendezvous = if switches.eager_bytes == 0 { parts } else { 0 };
    let messages = (flow + rendezvous) as f64;
    let (out, back) = if is_write { (bytes as f64, 0.0) } else { (0.0, bytes as f64) };
    let data = Share {
        messages,
        operations: messages,
        bytes_out: out + messages * FRAME_BYTES,
        bytes_in: back + messages * FRAME_BYTES,
        read_bytes: back,
        buffered_bytes: out,
        ..Share::default()
    };
    let round_trips = if rendezvous > 0 { 2.0 } else { 1.0 };
    Counts { calls: 1.0, round_trips, data, ..Counts::default() }
}

/// Whether the shared file is larger than the memory of the servers that it is spread over.
fn spills(workload: &Workload, setting: &Setting, machine: &Machine) -> bool {
    let is_shared = matches!(workload, Workload::MpiIoTest {} | Workload::Pvfs2Bench {});
    let memory = machine.memory.bytes.unwrap_or(MEMORY_BYTES_OF_THEN);
    let is_kept = setting.module == Module::Disk && setting.storage == Storage::Disk;
    is_shared && is_kept && setting.total_bytes > memory * u64::from(setting.servers - setting.metadata_only)
}

/// Where a machine's file does not say how much memory a server has: that of the thesis's cluster, whose
/// files of up to 800 MByte are "nearly the available memory" (section 7.2.1).
const MEMORY_BYTES_OF_THEN: u64 = 1 << 30;

/// The disks' rate for a phase that moves more than memory keeps, bytes a second.
fn disks(phase: &str, setting: &Setting, machine: &Machine) -> Option<f64> {
    let data_servers = f64::from(setting.servers - setting.metadata_only);
    let memory = data_servers * machine.memory.bytes.unwrap_or(MEMORY_BYTES_OF_THEN) as f64;
    let (rate, kept) = match phase.starts_with("write") {
        true => (machine.disk.write_mb_per_s, memory * DIRTY_SHARE),
        false => (machine.disk.read_mb_per_s, memory),
    };
    let total = setting.total_bytes as f64;
    Some(rate? * 1e6 * data_servers * total / (total - kept))
}

/// Of the memory so much may wait for the disk: `vm.dirty_ratio` where the papers' machines ran, and the
/// simulator's.
const DIRTY_SHARE: f64 = 0.4;

/// The cost of one operation of a phase, with the operations that a sync completes.
fn counts(workload: &Workload, phase: &str, setting: &Setting) -> Option<Counts> {
    let switches = setting.techniques().ok()?;
    let n = u32::from(setting.servers);
    let of = |operation: Operation| operation.counts(set_of(operation, &switches), n);
    let read_or_write = |bytes, phase: &str| block(setting, &switches, bytes, phase.starts_with("write"));
    let create_delete = || {
        let (create, remove) = (of(Operation::Create), of(Operation::Remove));
        // Each is one operation: half of either.
        let half = |a: f64, b: f64| f64::midpoint(a, b);
        Counts { round_trips: half(create.round_trips, remove.round_trips), ..create }
    };
    match (workload, phase) {
        (Workload::NinePhases {}, "create") => Some(of(Operation::Create)),
        (Workload::NinePhases {}, "remove") => Some(of(Operation::Remove)),
        (Workload::NinePhases {}, "readdir_stat_empty" | "readdir_stat_written") => Some(of(Operation::Stat)),
        (Workload::NinePhases {}, "write" | "read") => Some(read_or_write(setting.file_bytes, phase)),
        (Workload::Mdtest {}, "file_creation") => Some(of(Operation::Create)),
        (Workload::Mdtest {}, "file_stat") => Some(of(Operation::Stat)),
        (Workload::Mdtest {}, "file_removal") => Some(of(Operation::Remove)),
        (Workload::MpiIoTest {}, "write" | "read") => Some(read_or_write(setting.block_bytes, phase)),
        (Workload::MpiMdMore {}, "create") => Some(of(Operation::Create)),
        (Workload::Pvfs2Bench {}, "create") => Some(of(Operation::Create)),
        (Workload::Pvfs2Bench {}, "delete") => Some(of(Operation::Remove)),
        (Workload::Pvfs2Bench {}, "create_delete") => Some(create_delete()),
        (Workload::Pvfs2Bench {}, "write" | "read") => Some(read_or_write(setting.block_bytes, phase)),
        (Workload::Ls {}, "ls" | "pvfs2_ls") => Some(of(Operation::Stat)),
        (Workload::Ls {}, "pvfs2_lsplus") => Some(of(Operation::ListEntry)),
        (Workload::Lookups {}, "existing_in_order" | "existing_random") => Some(of(Operation::Stat)),
        _ => None,
    }
}

/// The machine as a setting uses it.
pub fn machine_of(machine: &Machine, setting: &Setting) -> Machine {
    let mut machine = machine.clone();
    if setting.memory_bytes > 0 {
        machine.memory.bytes = Some(setting.memory_bytes);
    }
    machine.nodes.client_nodes = Some(setting.clients.into());
    if !setting.is_synced() {
        machine.sync.clear();
        let disk = &machine.disk;
        let kept = setting.module == Module::Disk && setting.storage == Storage::Disk;
        machine.disk = match kept {
            // The bytes to the page cache, and from it to the disk.
            true => Disk {
                seek_average_us: None,
                seek_max_us: None,
                seek_track_us: None,
                rotation_us: 0.0,
                ..disk.clone()
            },
            false => Disk::default(),
        };
    }
    machine
}

/// The bound of a phase, in the unit of a metric; `None` where its costs were not counted.
pub fn of(
    workload: &Workload,
    phase: &str,
    metric: Metric,
    setting: &Setting,
    machine: &Machine,
) -> Option<BoundHere> {
    let machine = machine_of(machine, setting);
    let spills = spills(workload, setting, &machine);
    let counts = counts(workload, phase, setting)?;
    let switches = setting.techniques().ok()?;
    let processes = setting.process_count();
    let data = u32::from(setting.servers - setting.metadata_only);
    let servers = match setting.metadata_only {
        0 => Servers::Both(data),
        _ => Servers::Split { metadata: setting.servers.into(), data },
    };
    let caching = match setting.is_synced() && !spills {
        true => Caching::Reads,
        false => Caching::Everything,
    };
    let setting_of = shoal_model::Setting {
        servers,
        // A journal is written in order: at best the disk's head goes from one track to the next.
        access: Access::Track,
        caching,
        per_sync: per_sync(&switches),
        ..shoal_model::Setting::of(&machine, processes)
    };
    let bound = Bound::of(&counts, &machine, &setting_of);
    let term = bound.terms.first()?;
    let value = match metric {
        Metric::PerS => term.per_s,
        Metric::MbPerS => term.per_s * bytes_of(workload, setting) as f64 / 1e6,
        Metric::S => (0..processes).map(|index| setting.files_of(index)).sum::<u64>() as f64 / term.per_s,
        Metric::Us => f64::from(processes) * 1e6 / term.per_s,
    };
    let disks = if spills { disks(phase, setting, &machine).map(|rate| rate / 1e6) } else { None };
    if let Some(mb_per_s) = disks.filter(|rate| metric == Metric::MbPerS && *rate < value) {
        return Some(BoundHere {
            value: mb_per_s,
            binds: "disk".to_owned(),
            binds_words: "disks".to_owned(),
            arithmetic: format!("{mb_per_s:.1} MB/s: the disks', but for what memory keeps"),
        });
    }
    Some(BoundHere {
        value,
        binds: term.limit.word().to_owned(),
        binds_words: term.limit.to_string(),
        arithmetic: term.arithmetic.clone(),
    })
}

/// Bytes that one operation moves.
fn bytes_of(workload: &Workload, setting: &Setting) -> u64 {
    match workload {
        Workload::NinePhases {} => setting.file_bytes,
        _ => setting.block_bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(switches: &str) -> Setting {
        Setting { servers: 8, clients: 14, switches: switches.to_owned(), ..Setting::default() }
    }

    fn create(setting: &Setting) -> BoundHere {
        let machine = Machine::named("pvfs-linux").expect("it is there");
        of(&Workload::NinePhases {}, "create", Metric::PerS, setting, &machine).expect("it is counted")
    }

    #[test]
    fn each_technique_raises_the_bound_of_creates() {
        let of = |words: &str| create(&setting(words)).value;
        assert!(of("baseline") < of("baseline,precreate=on"));
        assert!(of("baseline,precreate=on,stuffing=on") < of("paper"));
        assert!(of("paper") < of("ours"));
    }

    #[test]
    fn without_syncs_no_sync_binds() {
        assert!(create(&setting("paper")).binds.starts_with("sync"));
        for unsynced in [
            Setting { module: Module::Memory, ..setting("paper") },
            Setting { storage: Storage::Tmpfs, ..setting("paper") },
            Setting { metadata_sync: crate::setting::Metadata::Never, ..setting("paper") },
        ] {
            let bound = create(&unsynced);
            assert!(!bound.binds.starts_with("sync") && bound.binds != "disk", "{bound:?}");
        }
    }

    #[test]
    fn the_words_of_limits_are_the_model_s() {
        for words in ["syncs", "client_cpu"] {
            assert!(LIMITS.contains(&words));
        }
        assert_eq!(LIMITS.len(), 13);
        assert_eq!(chapter4_curves("4.1").len(), 5);
        assert!(chapter4_curves("4.9").is_empty());
    }

    #[test]
    fn eager_blocks_take_one_round_trip_and_large_ones_a_message_a_chunk() {
        let switches: Switches = "paper".parse().expect("a set");
        let small = block(&setting("paper"), &switches, 8192, true);
        assert_eq!((small.round_trips, small.data.messages), (1.0, 1.0));
        let baseline = block(&setting("baseline"), &Switches::BASELINE, 8192, true);
        assert_eq!((baseline.round_trips, baseline.data.messages), (2.0, 2.0));
        let large = block(&setting("paper"), &switches, 4 << 20, false);
        assert_eq!(large.data.messages, 16.0);
    }
}
