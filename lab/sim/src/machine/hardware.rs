//! The simulated hardware from a machine's file.
//!
//! ```text
//!   [link]  round trip ÷ 2, bandwidth of each node's card, congestion   ─▶ Link, Congestion, nic_bits_per_s
//!   [nodes] cores, idle_us, slice_us                                    ─▶ cores that processes share
//!   [usual.*], or [cpu.*]: message, operation, change, record,          ─▶ Cpu: sockets, work, turns
//!           entry, content, wake …
//!   [disk]  seeks, rotation, rates; [memory] bytes                      ─▶ Arm, rates, Pages
//!   [[sync]] by bytes and writers                                       ─▶ Syncs: latency and gap by bytes
//! ```
//! * The simulator counts in integers; numbers are converted here, once, before anything runs.
//! * If all processes share one computer there is no network: a message costs its calls to sockets, and the
//!   wake-up of an idle core. If the file has no value for the wake-up (`nodes.idle_us`), the rest of its
//!   round trip is latency.
//! * A sync whose time is in the file takes that time; any other sync is an access of the disk's arm. If
//!   several writers were measured, their total rate gives the interval between the starts of syncs.
//! * Values missing in the file cost nothing, as in the bounds.

use crate::machine::{Simulated, SimulatedError};
use shoal_env::Work;
use shoal_env::sim::{Arm, Config, Congestion, Cpu, Disk, Link, Machine, Pages, SyncCost, Syncs};
use shoal_model::machine::{Side, Sync};

/// A turn of a task, without its work, in nanoseconds: never zero, or a task that yields could stop time.
const TURN_NS: u64 = 10;
/// One way through the kernel of one computer, in nanoseconds.
const LOOPBACK_NS: u64 = 100;
/// Bytes that a Unix socket holds (`net.core.wmem_default`).
const SOCKET_BYTES: usize = 212_992;
/// Bytes that a TCP connection has under way at most (`net.ipv4.tcp_wmem` where the papers' machines ran): a
/// client's data to several servers at once leaves its card in turn.
const TCP_BYTES: usize = 128 << 10;
/// Of the memory so much may wait for the disk, percent (`vm.dirty_ratio` where the papers' machines ran).
const DIRTY_PERCENT: u64 = 40;
/// A thread keeps its core so long where the file does not say, in nanoseconds.
const SLICE_NS: u64 = 3_000_000;

/// The simulated hardware of a cluster.
#[derive(Clone, Debug)]
pub struct Hardware {
    /// Links and the other shared parts.
    pub world: Config,
    /// A computer with a server.
    pub server: Machine,
    /// A computer with a client.
    pub client: Machine,
    /// A server's processor time.
    pub server_cpu: Cpu,
    /// A client's processor time.
    pub client_cpu: Cpu,
    /// From an application's process to its client and back, in nanoseconds.
    pub forwarding_ns: u64,
}

impl Hardware {
    /// Of a cluster.
    ///
    /// # Errors
    /// When the machine's file has values that cannot be simulated.
    pub fn of(of: &Simulated<'_>) -> Result<Hardware, SimulatedError> {
        let machine = of.machine;
        if machine.nodes.cores == 0 {
            let why = "nodes.cores is 0: write how many a computer has".to_owned();
            return Err(SimulatedError::Machine { machine: machine.name.clone(), why });
        }
        let usual = machine.usual_cpu();
        let (server_cpu, client_cpu) = (cpu(&usual.server, false), cpu(&usual.client, true));
        let computer = |cpu| Machine {
            cpu,
            disk: disk(machine),
            cores: machine.nodes.cores,
            idle_ns: machine.nodes.idle_us.map_or(0, ns),
            slice_ns: machine.nodes.slice_us.map_or(SLICE_NS, ns),
            nic_bits_per_s: (machine.link.bandwidth_mb_per_s * 8e6) as u64,
        };
        let world = Config {
            network: link(machine),
            loopback: link(machine),
            stream_window: if machine.nodes.one_machine { SOCKET_BYTES } else { TCP_BYTES },
            congestion: congestion(machine),
            ..Config::default()
        };
        let forwarding_ns = machine.forwarding.as_ref().map_or(0, |forwarding| ns(forwarding.round_trip_us));
        let (server, client) = (computer(server_cpu), computer(client_cpu));
        Ok(Hardware { world, server, client, server_cpu, client_cpu, forwarding_ns })
    }
}

/// Microseconds as nanoseconds.
pub(super) fn ns(us: f64) -> u64 {
    (us * 1000.0).round() as u64
}

/// The way between two computers; its bandwidth is that of their cards.
fn link(machine: &shoal_model::Machine) -> Link {
    let (link, cpu) = (&machine.link, machine.usual_cpu());
    let latency_ns = match (machine.nodes.one_machine, machine.nodes.idle_us) {
        (false, _) => ns(link.round_trip_us / 2.0),
        (true, Some(_)) => LOOPBACK_NS,
        (true, None) => {
            let trip_us = link.round_trip_awake_us.unwrap_or(link.round_trip_us);
            LOOPBACK_NS.max(ns((trip_us - cpu.client.message_us - cpu.server.message_us).max(0.0) / 2.0))
        }
    };
    Link { latency_ns, jitter_ns: 0, bits_per_s: 0, ..Link::default() }
}

fn congestion(machine: &shoal_model::Machine) -> Congestion {
    let Some(congestion) = &machine.link.congestion else { return Congestion::default() };
    Congestion {
        free_senders: congestion.free_senders,
        loss_ppm: (congestion.loss_percent * 1e4) as u32,
        loss_ppm_max: (congestion.loss_percent_max * 1e4) as u32,
    }
}

fn cpu(side: &Side, is_client: bool) -> Cpu {
    let mut work_ns = [0; Work::ALL.len()];
    let mut set = |work: Work, us: f64| work_ns[work as usize] = ns(us);
    set(Work::Message, (side.message_us - side.batched_us).max(0.0));
    set(if is_client { Work::Call } else { Work::Operation }, side.operation_us);
    set(Work::Change, side.change_us);
    set(Work::Record, side.record_us);
    set(Work::Object, side.object_us);
    set(Work::Removal, side.removal_us);
    set(Work::Entry, side.entry_us);
    set(Work::Keep, side.megabyte_kept_us * 1024.0 / 1e6);
    // Microseconds for 10^6 bytes are picoseconds for one.
    let bytes = |us: f64| if us > 0.0 { us } else { side.megabyte_us }.round() as u64;
    Cpu {
        poll_ns: TURN_NS,
        socket_ns: ns(side.batched_us / 2.0),
        offload_ns: ns(side.file_us),
        wake_ns: ns(side.wake_us),
        sleep_ns: ns(side.sleep_us),
        sent_byte_ps: bytes(side.megabyte_sent_us),
        received_byte_ps: bytes(side.megabyte_received_us),
        file_ns: ns(side.file_us),
        file_wait_ns: ns(side.file_wait_us),
        work_ns,
    }
}

fn disk(machine: &shoal_model::Machine) -> Disk {
    let (disk, usual) = (&machine.disk, Disk::default());
    let rate = |mb_per_s: Option<f64>| mb_per_s.map_or(0, |rate| (rate * 1e6) as u64);
    let access_ns = disk.seek_average_us.map_or(0, ns);
    let cache_bytes = disk.cache_bytes.or(machine.memory.bytes);
    Disk {
        call_ns: 0,
        cache_ns: 0,
        cache_bytes_per_s: rate(disk.cache_write_mb_per_s),
        cache_read_bytes_per_s: rate(disk.cache_read_mb_per_s),
        read_ns: access_ns,
        write_ns: access_ns,
        sync_ns: access_ns,
        gap_ns: 0,
        read_bytes_per_s: rate(disk.read_mb_per_s),
        write_bytes_per_s: rate(disk.write_mb_per_s),
        syncs: syncs(machine),
        arm: arm(machine),
        pages: cache_bytes.map(|bytes| Pages {
            bytes,
            dirty_bytes: (u128::from(bytes) * u128::from(DIRTY_PERCENT) / 100) as u64,
        }),
        is_never_cut: true,
        ..usual
    }
}

/// A disk that turns, or one of which only the accesses are known.
fn arm(machine: &shoal_model::Machine) -> Option<Arm> {
    let disk = &machine.disk;
    let average_us = disk.seek_average_us?;
    let turns = disk.rotation_us > 0.0 || machine.sync.is_empty();
    turns.then(|| Arm {
        track_ns: ns(disk.seek_track_us.unwrap_or(average_us)),
        average_ns: ns(average_us),
        max_ns: ns(disk.seek_max_us.unwrap_or(average_us)),
        turn_ns: ns(disk.rotation_us),
    })
}

/// The costs of syncs by their bytes: of the first method for durable writes, of the second, where there is
/// one, for syncs.
fn syncs(machine: &shoal_model::Machine) -> Option<Syncs> {
    let first = &machine.sync.first()?.method;
    let second = machine.sync.iter().map(|sync| &sync.method).find(|method| *method != first);
    let of =
        |method: &str| costs(machine, machine.sync.iter().filter(|sync| sync.method == method).collect());
    Some(Syncs { writes: of(first), syncs: of(second.unwrap_or(first)) })
}

fn costs(machine: &shoal_model::Machine, rows: Vec<&Sync>) -> [SyncCost; Syncs::SIZES] {
    let mut sizes: Vec<u64> = rows.iter().map(|sync| sync.bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let cost = |bytes: u64| {
        let here = || rows.iter().filter(|sync| sync.bytes == bytes);
        // Alone: the least of the measurements. Its processor time is that of the thread that makes the call.
        let latency_us = here().map(|sync| (sync.sync_us - sync.cpu_us).max(0.0)).fold(f64::MAX, f64::min);
        let each = |sync: &&Sync| {
            let disks = if machine.disk.shared { 1 } else { sync.writers.max(1) };
            f64::from(disks) * 1e6 / sync.sync_per_s
        };
        let gap_us = here().map(each).fold(f64::MAX, f64::min);
        SyncCost { bytes, latency_ns: ns(latency_us), gap_ns: ns(gap_us) }
    };
    let known: Vec<SyncCost> = sizes.into_iter().take(Syncs::SIZES).map(cost).collect();
    let last = known.last().copied().unwrap_or_default();
    std::array::from_fn(|at| known.get(at).copied().unwrap_or(last))
}
