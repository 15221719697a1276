//! The setting of a file system, as far as its bounds need it: servers, their processes, the kind of
//! connection, and the changes that are durable when they are answered.

use crate::address::CommandTarget;
use crate::connect;
use anyhow::Result;
use rustix::net::sockopt::socket_peercred;
use shoal_bench::WorkerCommand;
use shoal_bench::beside::TargetSetting;
use shoal_bench::probe::layout::{Connection, Layout, Servers};
use shoal_env::Address;
use std::collections::BTreeSet;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Every server's addresses.
fn addresses(place: &CommandTarget) -> Result<Vec<Vec<Address>>> {
    connect::with_client_within(place, connect::IMPATIENT, |_, client| async move {
        let map = client.map();
        let of = |texts: &[shoal_proto::Text]| texts.iter().filter_map(|text| text.0.parse().ok()).collect();
        Ok(map.servers.iter().map(|info| of(&info.addresses)).collect())
    })
}

/// The process of a server's socket on this machine.
fn pid(addresses: &[Address]) -> Option<u32> {
    let path = addresses.iter().find_map(|a| if let Address::Unix(path) = a { Some(path) } else { None })?;
    let stream = UnixStream::connect(path).ok()?;
    u32::try_from(socket_peercred(&stream).ok()?.pid.as_raw_nonzero().get()).ok()
}

/// The servers' processes; none where a server is not to be seen from here.
pub fn pids(place: &CommandTarget) -> Result<Vec<u32>> {
    let found: Option<BTreeSet<u32>> = addresses(place)?.iter().map(|server| pid(server)).collect();
    Ok(found.unwrap_or_default().into_iter().collect())
}

/// The setting of a native target; `folder`: on its servers' disk.
pub fn of(place: &CommandTarget, folder: Option<&Path>) -> Result<TargetSetting> {
    let servers = addresses(place)?;
    let pids = pids(place)?;
    let is_near =
        |server: &Vec<Address>| server.iter().any(|a| matches!(a, Address::Unix(path) if path.exists()));
    let status = connect::with_client_within(place, connect::IMPATIENT, |_, client| async move {
        let text = client.status(client.map().servers[0].id).await?;
        Ok(serde_json::from_str::<serde_json::Value>(&text)?)
    })?;
    let is_kept = status["module"] == "disk";
    let connection = if servers.iter().all(is_near) { Connection::Unix } else { Connection::Tcp };
    let place = if pids.len() == 1 { Servers::Threads } else { Servers::Processes };
    Ok(TargetSetting {
        layout: Layout { clients: 1, servers: servers.len(), place, connection },
        echo: WorkerCommand::this_program(&["bench-echo"])?,
        folder: folder.map(Path::to_path_buf),
        metadata_durable: is_kept && status["sync"]["metadata"] == "reply",
        data_durable: is_kept && status["sync"]["data"] == "reply",
        way: None,
    })
}
