//! Reduces one cost of a machine, to see whether the rate changes.
//!
//! A bound names the binding limit; this module checks that. If the cost of the binding limit is halved, the
//! rate rises; if another cost is halved, it stays. The same scaling shows how sensitive a prediction is to a
//! value that was fitted or guessed.

use crate::machine::phases::{self, Phase, WorkExtent};
use crate::machine::{Simulated, SimulatedError};
use shoal_model::Machine;
use shoal_model::machine::{Cpu, Side};

/// A cost that can be scaled.
#[derive(Clone, Copy)]
pub struct Parameter {
    /// Its name in machines' files, or the common part of it.
    pub name: &'static str,
    scale: fn(&mut Machine, f64),
}

/// Processor time of clients.
pub const CLIENT_CPU: Parameter =
    Parameter { name: "cpu.client", scale: |machine, factor| cpu(machine, factor, |cpu| &mut cpu.client) };
/// Processor time of servers.
pub const SERVER_CPU: Parameter =
    Parameter { name: "cpu.server", scale: |machine, factor| cpu(machine, factor, |cpu| &mut cpu.server) };
/// The round trip.
pub const ROUND_TRIP: Parameter = Parameter {
    name: "link.round_trip_us",
    scale: |machine, factor| {
        machine.link.round_trip_us *= factor;
        times(&mut machine.link.round_trip_awake_us, factor);
    },
};
/// The time of a byte on a link.
pub const LINK: Parameter = Parameter {
    name: "link.bandwidth_mb_per_s",
    scale: |machine, factor| machine.link.bandwidth_mb_per_s /= factor,
};
/// Syncs: how long one takes, and how far apart they begin.
pub const SYNC: Parameter = Parameter {
    name: "sync",
    scale: |machine, factor| {
        for sync in &mut machine.sync {
            sync.sync_us *= factor;
            sync.cpu_us *= factor;
            sync.sync_per_s /= factor;
        }
    },
};
/// Accesses of the disk.
pub const ACCESS: Parameter = Parameter {
    name: "disk.seek",
    scale: |machine, factor| {
        let disk = &mut machine.disk;
        disk.rotation_us *= factor;
        for seek in [&mut disk.seek_average_us, &mut disk.seek_max_us, &mut disk.seek_track_us] {
            times(seek, factor);
        }
    },
};
/// The time of a byte at the disk.
pub const TRANSFER: Parameter = Parameter {
    name: "disk.mb_per_s",
    scale: |machine, factor| {
        times(&mut machine.disk.read_mb_per_s, 1.0 / factor);
        times(&mut machine.disk.write_mb_per_s, 1.0 / factor);
    },
};
/// Copies to and from the page cache.
pub const CACHE: Parameter = Parameter {
    name: "disk.cache_mb_per_s",
    scale: |machine, factor| {
        times(&mut machine.disk.cache_read_mb_per_s, 1.0 / factor);
        times(&mut machine.disk.cache_write_mb_per_s, 1.0 / factor);
    },
};
/// The awaking of idle cores.
pub const IDLE: Parameter =
    Parameter { name: "nodes.idle_us", scale: |machine, factor| times(&mut machine.nodes.idle_us, factor) };

/// All of them.
pub const ALL: [Parameter; 9] =
    [CLIENT_CPU, SERVER_CPU, ROUND_TRIP, LINK, SYNC, ACCESS, TRANSFER, CACHE, IDLE];

fn times(value: &mut Option<f64>, factor: f64) {
    *value = value.map(|value| value * factor);
}

/// Of the least and of the usual.
fn cpu(machine: &mut Machine, factor: f64, of: fn(&mut Cpu) -> &mut Side) {
    [Some(&mut machine.cpu), machine.usual.as_mut()]
        .into_iter()
        .flatten()
        .for_each(|cpu| side(of(cpu), factor));
}

fn side(side: &mut Side, factor: f64) {
    // Listed one by one: a cost that is added later is not forgotten here.
    *side = Side {
        message_us: side.message_us * factor,
        operation_us: side.operation_us * factor,
        change_us: side.change_us * factor,
        entry_us: side.entry_us * factor,
        megabyte_us: side.megabyte_us * factor,
        megabyte_sent_us: side.megabyte_sent_us * factor,
        megabyte_received_us: side.megabyte_received_us * factor,
        megabyte_kept_us: side.megabyte_kept_us * factor,
        batched_us: side.batched_us * factor,
        wake_us: side.wake_us * factor,
        sleep_us: side.sleep_us * factor,
        record_us: side.record_us * factor,
        object_us: side.object_us * factor,
        removal_us: side.removal_us * factor,
        file_us: side.file_us * factor,
        file_wait_us: side.file_wait_us * factor,
    };
}

impl Parameter {
    /// The machine with this cost so many times as large.
    pub fn scaled(&self, machine: &Machine, factor: f64) -> Machine {
        let mut machine = machine.clone();
        (self.scale)(&mut machine, factor);
        machine
    }
}

/// The machine with half of one cost.
pub fn halved(machine: &Machine, parameter: Parameter) -> Machine {
    parameter.scaled(machine, 0.5)
}

/// How many times as fast a phase is where one cost is halved.
///
/// # Errors
/// When it cannot be simulated.
pub fn gain(
    of: &Simulated<'_>,
    extent: WorkExtent,
    phase: Phase,
    parameter: Parameter,
) -> Result<f64, SimulatedError> {
    let rate = |of: &Simulated<'_>| {
        let (rates, _) = phases::run(of, extent)?;
        Ok::<f64, SimulatedError>(
            rates.iter().find(|rate| rate.phase == phase).map_or(0.0, |rate| rate.per_s),
        )
    };
    let machine = halved(of.machine, parameter);
    Ok(rate(&Simulated { machine: &machine, ..of.clone() })? / rate(of)?)
}
