//! addserver: add a server to a running file system.
//!
//! Only server 0 assigns server ids. It stores the new cluster map as a row and sends the map to all
//! servers. The reply leaves when the row is as durable as the sync mode requires. Every reply of every
//! server carries the epoch of its map; a client that sees a newer epoch fetches the map.

use crate::meta::keys;
use crate::ops::{OpFacts, handler, when};
use crate::request::ctx::{Ctx, Stopped};
use serde_json::json;
use shoal_env::Address;
use shoal_proto::codec::Codec;
use shoal_proto::{Answer, ClusterMap, Roles, ServerId, ServerInfo, Status, Text, limits};

/// The facts of `addserver`: a handler. It asks for journal space for a map of the largest number of servers.
/// The audit log gets the new server's addresses and roles.
pub const FACTS: OpFacts = OpFacts {
    journal_bytes: |_| 256 * limits::SERVERS_MAX as u64,
    object: when!(Addserver { addresses, roles } => json!({
        "addresses": addresses.iter().map(|at| at.0.as_str()).collect::<Vec<_>>(),
        "roles": roles.iter_names().map(|(name, _)| name.to_lowercase()).collect::<Vec<_>>(),
    })),
    ..OpFacts::new(handler!(|ctx| Addserver { addresses, roles } => run(ctx, addresses, *roles)))
};

/// Add a server with these addresses and roles; the answer is the new map.
///
/// # Errors
/// `WrongServer`: this is not server 0. `Invalid`: no address, one that cannot be read, or no role.
/// `OverLimit`: too many servers. `Exists`: a server listens there already.
pub fn run(ctx: &mut Ctx<'_>, addresses: &[Text], roles: Roles) -> Result<Answer, Stopped> {
    if ctx.identity.id != ServerId(0) {
        return Err(Stopped::Status(Status::WrongServer));
    }
    if addresses.is_empty() || roles.is_empty() || addresses.iter().any(|a| a.0.parse::<Address>().is_err()) {
        return Err(Stopped::Status(Status::Invalid));
    }
    let mut map = ClusterMap::clone(&ctx.identity.map);
    if map.servers.len() >= limits::SERVERS_MAX {
        return Err(Stopped::Status(Status::OverLimit));
    }
    if map.servers.iter().any(|s| s.addresses.iter().any(|known| addresses.contains(known))) {
        return Err(Stopped::Status(Status::Exists));
    }
    let id = ServerId(map.servers.len() as u16);
    map.servers.push(ServerInfo::new(id, addresses.to_vec(), roles));
    map.epoch += 1;
    ctx.put_raw(keys::config("map"), Some(map.to_bytes().into()))?;
    Ok(Answer::Map { map })
}
