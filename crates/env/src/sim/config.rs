//! What the simulated hardware is like. All numbers are integers, so that every machine computes the same run.

use crate::WallTime;

/// A simulated world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Between two machines, unless [`World::set_link`](super::World::set_link) says otherwise.
    pub network: Link,
    /// Within one machine.
    pub loopback: Link,
    /// Every machine, unless changed.
    pub machine: Machine,
    /// Bytes written to a stream and not yet read, at most, each way.
    pub stream_window: usize,
    /// A stream's bytes travel in segments of at most this many.
    pub segment: usize,
    /// How long connecting through a partition tries, in nanoseconds.
    pub connect_ns_max: u64,
    /// Lines of the readable timeline that are kept; 0 keeps none.
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
    /// Segments lost, of a million: each comes later by `retransmit_ns`, and what is behind it waits.
    pub loss_ppm: u32,
    /// What a lost segment costs, in nanoseconds.
    pub retransmit_ns: u64,
    /// Segments, of a million, that reset their connection instead.
    pub reset_ppm: u32,
}

/// A machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Its processors.
    pub cpu: Cpu,
    /// Its disk.
    pub disk: Disk,
    /// Bits per second through its network card, each way, for all links to other machines together; 0 is unlimited.
    pub nic_bits_per_s: u64,
}

/// What computing costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// Each poll of a task, in nanoseconds. Zero lets a task that yields for ever stop time.
    pub poll_ns: u64,
    /// Each read or write of a socket, in nanoseconds.
    pub socket_ns: u64,
    /// Each closure given to `offload`, in nanoseconds; it runs beside the process.
    pub offload_ns: u64,
}

/// A disk with a volatile cache before it. Transfers queue; latencies overlap.
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
    /// What a power cut writes whole or not at all, in bytes; a power of two, at most a page of 4096.
    pub sector: u64,
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
        Cpu { poll_ns: 200, socket_ns: 500, offload_ns: 20_000 }
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
            read_ns: 80_000,
            read_bytes_per_s: 2_000_000_000,
            write_ns: 30_000,
            write_bytes_per_s: 1_000_000_000,
            sync_ns: 120_000,
            gap_ns: 5_000,
            sector: 512,
        }
    }
}

impl Default for Machine {
    fn default() -> Machine {
        Machine { cpu: Cpu::default(), disk: Disk::default(), nic_bits_per_s: 10_000_000_000 }
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
