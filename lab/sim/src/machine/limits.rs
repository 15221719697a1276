//! The limits of the size of a simulated cluster, in one place.
//!
//! docs/lab/BOUNDS.md gives the time and memory of a simulation. The limits admit the largest machine of
//! the papers: 16,384 processes on 64 client nodes and 32 servers.

use crate::machine::{Simulated, SimulatedError};

/// Servers.
pub const SERVERS_MAX: u16 = 256;
/// Client nodes.
pub const CLIENT_NODES_MAX: u16 = 4096;
/// Application processes.
pub const PROCESSES_MAX: u32 = 65_536;
/// Bytes of a strip.
pub const STRIP_BYTES_MAX: u64 = 1 << 30;

/// Refuse a setting that makes no sense, or is too large.
pub(super) fn check(of: &Simulated<'_>) -> Result<(), SimulatedError> {
    let within = |what, value: u64, least: u64, most: u64| match (least..=most).contains(&value) {
        true => Ok(()),
        false => Err(SimulatedError::Shape { what, value, remedy: format!("write {least} to {most}") }),
    };
    within("servers", of.servers.into(), 1, SERVERS_MAX.into())?;
    within("metadata_only", of.metadata_only.into(), 0, u64::from(of.servers) - 1)?;
    within("client_nodes", of.client_nodes.into(), 1, CLIENT_NODES_MAX.into())?;
    within("processes", of.processes.into(), of.client_nodes.into(), PROCESSES_MAX.into())?;
    within("strip", of.strip, 1, STRIP_BYTES_MAX)
}
