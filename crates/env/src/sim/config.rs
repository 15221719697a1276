//! The simulated hardware. All numbers are integers, so that every machine computes the same run.

use crate::{WallTime, Work};

/// A simulated world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Between two machines, unless [`World::set_link`](super::World::set_link) sets another.
    pub network: Link,
    /// Within one machine.
    pub loopback: Link,
    /// Every machine, unless changed.
    pub machine: Machine,
    /// Most bytes written to a stream and not yet read, each way.
    pub stream_window: usize,
    /// A stream's bytes travel in segments of at most this many.
    pub segment: usize,
    /// How long a connection attempt through a partition lasts, in nanoseconds.
    pub connect_ns_max: u64,
    /// Losses of a machine's network card when many machines send to it.
    pub congestion: Congestion,
    /// Lines kept of the readable timeline; 0 keeps none.
    pub timeline: usize,
    /// The wall clock at the beginning.
    pub wall_start: WallTime,
}

/// The way between two machines, in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// One way, in nanoseconds.
    pub latency_ns: u64,
    /// Up to this much more, drawn for each segment, in nanoseconds.
    pub jitter_ns: u64,
    /// Bits per second; 0 is unlimited.
    pub bits_per_s: u64,
    /// Segments lost, of a million: each arrives later by `retransmit_ns`, and later segments wait for it.
    pub loss_ppm: u32,
    /// The delay of a lost segment, in nanoseconds.
    pub retransmit_ns: u64,
    /// Segments, of a million, that reset their connection instead.
    pub reset_ppm: u32,
}

/// Receiver congestion: with more than `free_senders` at once, each further one costs this part of the
/// bandwidth. None by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Congestion {
    /// Machines that may send at once at no cost.
    pub free_senders: u32,
    /// The cost of each further one, of a million.
    pub loss_ppm: u32,
    /// The greatest loss, of a million.
    pub loss_ppm_max: u32,
}

/// A machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Its processors.
    pub cpu: Cpu,
    /// Its disk.
    pub disk: Disk,
    /// Cores that its processes share; 0: one for each, and the effects of a turn leave at its beginning.
    pub cores: u32,
    /// Time before an idle core runs its next work, in nanoseconds.
    pub idle_ns: u64,
    /// Time a process keeps its core while others wait for one, in nanoseconds.
    pub slice_ns: u64,
    /// Bits per second through its network card, each way, for all links to other machines together; 0 is
    /// unlimited.
    pub nic_bits_per_s: u64,
}

/// The costs of computing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// Each poll of a task, in nanoseconds. Zero lets a task that yields for ever stop time.
    pub poll_ns: u64,
    /// Each read or write of a socket, in nanoseconds.
    pub socket_ns: u64,
    /// Each closure given to `offload`, in nanoseconds; it runs in parallel to the process.
    pub offload_ns: u64,
    /// The following costs count only if cores are shared: switching to a process that slept, in
    /// nanoseconds.
    pub wake_ns: u64,
    /// A process without work goes to sleep, in nanoseconds: its core is not free before.
    pub sleep_ns: u64,
    /// Each byte written to a socket, in picoseconds.
    pub sent_byte_ps: u64,
    /// Each byte read from one.
    pub received_byte_ps: u64,
    /// A call of a file by another thread of the process, without its bytes, in nanoseconds.
    pub file_ns: u64,
    /// Time before such a call, or a closure given to `offload`, begins: its thread wakes, in nanoseconds.
    pub file_wait_ns: u64,
    /// Work that code reports, in nanoseconds each, in the order of [`Work::ALL`].
    pub work_ns: [u64; Work::ALL.len()],
}

/// A disk with a volatile cache. Transfers queue; latencies overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disk {
    /// Space in bytes.
    pub capacity: u64,
    /// A call that changes or looks up names, lengths, holes, in nanoseconds.
    pub call_ns: u64,
    /// A read or write of the page cache, in nanoseconds.
    pub cache_ns: u64,
    /// Bytes per second into and out of the page cache; 0 is unlimited.
    pub cache_bytes_per_s: u64,
    /// Bytes per second out of it, if different; 0: the same.
    pub cache_read_bytes_per_s: u64,
    /// Latency of a read from the device, in nanoseconds.
    pub read_ns: u64,
    /// Bytes per second read from the device; 0 is unlimited.
    pub read_bytes_per_s: u64,
    /// Latency of a direct write to the device's own cache, in nanoseconds.
    pub write_ns: u64,
    /// Bytes per second written to the device; 0 is unlimited.
    pub write_bytes_per_s: u64,
    /// Latency of a sync, or of a write that is durable on return, in nanoseconds.
    pub sync_ns: u64,
    /// Two transfers or syncs begin at least this far apart, in nanoseconds: the device's rate.
    pub gap_ns: u64,
    /// The unit that a power cut writes whole or not at all, in bytes; a power of two, at most a page of
    /// 4096.
    pub sector: u64,
    /// Costs of syncs by their bytes; `None`: by the numbers above, and the arm.
    pub syncs: Option<Syncs>,
    /// A disk that turns; `None`: no seeks.
    pub arm: Option<Arm>,
    /// The page cache; `None`: it has room for everything, and nothing is ever written back.
    pub pages: Option<Pages>,
    /// No power cut will come, so durable contents are not kept separately: half the memory, and less work.
    pub is_never_cut: bool,
}

/// Costs of syncs: of writes that are durable on return, and of syncs of files written before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Syncs {
    /// Of durable writes, by ascending bytes; unused entries repeat the last one.
    pub writes: [SyncCost; Syncs::SIZES],
    /// Of syncs, the same.
    pub syncs: [SyncCost; Syncs::SIZES],
}

impl Syncs {
    /// Most sizes with a known cost.
    pub const SIZES: usize = 4;
}

/// The cost of one sync.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SyncCost {
    /// Bytes made durable.
    pub bytes: u64,
    /// How long it takes, in nanoseconds.
    pub latency_ns: u64,
    /// The next one begins no earlier than so much later, in nanoseconds: the device's rate.
    pub gap_ns: u64,
}

/// An arm and platters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arm {
    /// To the next track, or to the bytes after the last access, in nanoseconds.
    pub track_ns: u64,
    /// To the middle place, in nanoseconds.
    pub average_ns: u64,
    /// From edge to edge, in nanoseconds.
    pub max_ns: u64,
    /// One turn, in nanoseconds; 0 if seeks include it.
    pub turn_ns: u64,
}

/// The page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pages {
    /// Bytes it holds.
    pub bytes: u64,
    /// Most bytes written and not yet on the disk: a writer above that waits for the disk.
    pub dirty_bytes: u64,
}

impl Default for Link {
    /// A switched 10 Gb/s network.
    fn default() -> Link {
        Link {
            latency_ns: 20_000,
            jitter_ns: 2_000,
            bits_per_s: 10_000_000_000,
            loss_ppm: 0,
            retransmit_ns: 200_000_000,
            reset_ppm: 0,
        }
    }
}

impl Default for Cpu {
    fn default() -> Cpu {
        Cpu {
            poll_ns: 200,
            socket_ns: 500,
            offload_ns: 20_000,
            wake_ns: 0,
            sleep_ns: 0,
            sent_byte_ps: 0,
            received_byte_ps: 0,
            file_ns: 0,
            file_wait_ns: 0,
            work_ns: [0; Work::ALL.len()],
        }
    }
}

impl Default for Disk {
    /// A solid-state disk as measured in the cloud.
    fn default() -> Disk {
        Disk {
            capacity: 1 << 40,
            call_ns: 5_000,
            cache_ns: 1_000,
            cache_bytes_per_s: 8_000_000_000,
            cache_read_bytes_per_s: 0,
            read_ns: 80_000,
            read_bytes_per_s: 2_000_000_000,
            write_ns: 30_000,
            write_bytes_per_s: 1_000_000_000,
            sync_ns: 120_000,
            gap_ns: 5_000,
            sector: 512,
            syncs: None,
            arm: None,
            pages: None,
            is_never_cut: false,
        }
    }
}

impl Default for Machine {
    fn default() -> Machine {
        Machine {
            cpu: Cpu::default(),
            disk: Disk::default(),
            cores: 0,
            idle_ns: 0,
            slice_ns: 3_000_000,
            nic_bits_per_s: 10_000_000_000,
        }
    }
}

impl Default for Config {
    fn default() -> Config {
        let loopback =
            Link { latency_ns: 5_000, jitter_ns: 500, bits_per_s: 40_000_000_000, ..Link::default() };
        Config {
            network: Link::default(),
            loopback,
            machine: Machine::default(),
            stream_window: 1 << 20,
            segment: 64 << 10,
            connect_ns_max: 127_000_000_000,
            congestion: Congestion::default(),
            timeline: 0,
            wall_start: WallTime(1_767_225_600_000_000_000),
        }
    }
}

/// Nanoseconds that `bytes` take at a rate in bytes per second; none at rate 0.
pub(super) fn span_ns(bytes: u64, bytes_per_s: u64) -> u64 {
    if bytes_per_s == 0 {
        return 0;
    }
    let ns = u128::from(bytes) * 1_000_000_000 / u128::from(bytes_per_s);
    u64::try_from(ns).unwrap_or(u64::MAX / 4)
}

/// Nanoseconds that `bytes` take at a rate in bits per second; none at rate 0.
pub(super) fn wire_ns(bytes: u64, bits_per_s: u64) -> u64 {
    span_ns(bytes.saturating_mul(8), bits_per_s)
}
