//! What of a machine's file becomes what of the simulated hardware.
//!
//! The simulator counts in integers; so numbers are turned here, once, before anything runs.

use crate::machine::{Simulated, SimulatedError};
use shoal_env::sim::{Config, Cpu, Disk, Link, Machine};

/// The simulated hardware of a cluster.
#[derive(Clone, Debug)]
pub struct Hardware {
    /// Links and what else all share.
    pub world: Config,
    /// A computer with a server.
    pub server: Machine,
    /// A computer with a client.
    pub client: Machine,
    /// A server's processor time.
    pub server_cpu: Cpu,
    /// A client's processor time.
    pub client_cpu: Cpu,
}

impl Hardware {
    /// Of a cluster.
    ///
    /// # Errors
    /// When the machine's file says too little.
    pub fn of(of: &Simulated<'_>) -> Result<Hardware, SimulatedError> {
        let machine = of.machine;
        let trip_us = machine.link.round_trip_awake_us.unwrap_or(machine.link.round_trip_us);
        let bits_per_s = (machine.link.bandwidth_mb_per_s * 8e6) as u64;
        let link = Link { latency_ns: ns(trip_us / 2.0), jitter_ns: 0, bits_per_s: 0, ..Link::default() };
        let side = |side: &shoal_model::machine::Side| Cpu {
            socket_ns: ns(side.message_us / 2.0),
            ..Cpu::default()
        };
        let (server_cpu, client_cpu) = (side(&machine.cpu.server), side(&machine.cpu.client));
        let computer = |cpu| Machine { cpu, disk: disk(machine), nic_bits_per_s: bits_per_s };
        Ok(Hardware {
            world: Config { network: link, loopback: link, ..Config::default() },
            server: computer(server_cpu),
            client: computer(client_cpu),
            server_cpu,
            client_cpu,
        })
    }
}

fn disk(machine: &shoal_model::Machine) -> Disk {
    let usual = Disk::default();
    let rate = |mb_per_s: Option<f64>| mb_per_s.map_or(0, |rate| (rate * 1e6) as u64);
    let sync_us = machine.sync.first().map(|sync| sync.sync_us).or(machine.disk.seek_average_us);
    Disk {
        read_ns: machine.disk.seek_average_us.map_or(0, ns),
        write_ns: machine.disk.seek_average_us.map_or(0, ns),
        read_bytes_per_s: rate(machine.disk.read_mb_per_s),
        write_bytes_per_s: rate(machine.disk.write_mb_per_s),
        cache_bytes_per_s: rate(machine.disk.cache_write_mb_per_s),
        sync_ns: sync_us.map_or(usual.sync_ns, ns),
        gap_ns: machine.sync.first().map_or(0, |sync| ns(1e6 / sync.sync_per_s)),
        ..usual
    }
}

/// Microseconds as nanoseconds.
pub(super) fn ns(us: f64) -> u64 {
    (us * 1000.0).round() as u64
}
