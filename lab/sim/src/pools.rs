//! Checks the datafiles that were made ahead of need, at the end of a run. Each is in the pool for which it
//! was made, or belongs to one file, or is used up. None is assigned twice, and none has leaked.

use crate::check::{Tree, rows};
use shoal_client::{Client, Error};
use shoal_proto::{Handle, ServerId};
use shoal_server::keys::{self, Table};
use shoal_server::precreated;
use shoal_server::rows::{Batch, Grant, Pool, Range, RowValue as _};
use std::collections::{BTreeMap, BTreeSet};

fn handles(range: &Range) -> impl Iterator<Item = Handle> + use<> {
    let first = range.first;
    (0..u64::from(range.count)).map(move |step| Handle(first.0 + step))
}

/// The rows of a table, decoded, by the server they name.
async fn by_server<T: shoal_server::rows::RowValue>(
    client: &Client,
    server: ServerId,
    table: Table,
    wrong: &mut Vec<String>,
) -> Result<BTreeMap<ServerId, T>, Error> {
    let mut found = BTreeMap::new();
    for (key, row) in rows(client, server, table).await? {
        match (keys::parse_server(&key), T::from_row(&row)) {
            (Some(of), Ok(row)) => _ = found.insert(of, row),
            _ => wrong.push(format!("server {server} holds a row that is none: {key:x?}")),
        }
    }
    Ok(found)
}

/// Hold pools and batches against each other and the files.
///
/// # Errors
/// When a server does not answer.
pub(crate) async fn check(client: &Client, servers: u16, tree: &Tree) -> Result<Vec<String>, Error> {
    let mut wrong = Vec::new();
    let (mut pools, mut grants) = (BTreeMap::new(), BTreeMap::new());
    for server in (0..servers).map(ServerId) {
        for (of, pool) in by_server::<Pool>(client, server, Table::Pool, &mut wrong).await? {
            pools.insert((server, of), pool);
        }
        for (asker, grant) in by_server::<Grant>(client, server, Table::Grant, &mut wrong).await? {
            grants.insert((server, asker), grant);
        }
    }
    let mut pooled: BTreeMap<Handle, ServerId> = BTreeMap::new();
    for ((server, _), pool) in &pools {
        for datafile in pool.ranges.iter().flat_map(handles) {
            if let Some(other) = pooled.insert(datafile, *server) {
                wrong.push(format!("datafile {datafile} is in the pools of servers {server} and {other}"));
            }
        }
    }
    let mut listed: BTreeMap<Handle, u64> = BTreeMap::new();
    for (object, attr) in &tree.objects {
        for &datafile in attr.layout.iter().flat_map(|layout| layout.datafiles.iter()) {
            if let Some(other) = listed.insert(datafile, *object) {
                wrong.push(format!("datafile {datafile} is one of {object:#x} and of {other:#x}"));
            }
            if let Some(pool) = pooled.get(&datafile) {
                wrong.push(format!("datafile {datafile} of {object:#x} is in the pool of server {pool}"));
            }
        }
    }
    let is_ahead = |((at, asker), grant): &(&(ServerId, ServerId), &Grant)| {
        let pool = pools.get(&(*asker, *at));
        pool.is_some_and(|pool| pool.id == grant.pool && pool.sequence < grant.sequence)
    };
    let asked_again: BTreeSet<Handle> =
        grants.iter().filter(is_ahead).flat_map(|(_, grant)| handles(&grant.range)).collect();
    for server in (0..servers).map(ServerId) {
        let mut untouched = BTreeSet::new();
        for (key, row) in rows(client, server, Table::Batch).await? {
            let (Some(first), Ok(batch)) = (keys::parse_handle(&key), Batch::from_row(&row)) else {
                wrong.push(format!("server {server} holds a batch that is none: {key:x?}"));
                continue;
            };
            let range = Range { first, count: batch.count };
            for datafile in handles(&range).filter(|datafile| batch.has_untouched(*datafile)) {
                untouched.insert(datafile);
                let is_pooled = pooled.get(&datafile) == Some(&batch.pool);
                let is_listed =
                    listed.get(&datafile).is_some_and(|file| Handle(*file).server() == batch.pool);
                if !(is_pooled || is_listed || asked_again.contains(&datafile)) {
                    wrong.push(format!("datafile {datafile} has leaked: made for server {}", batch.pool));
                }
            }
        }
        let named: BTreeSet<Handle> = rows(client, server, Table::Datafile)
            .await?
            .iter()
            .filter_map(|(key, _)| keys::parse_handle(key))
            .collect();
        for datafile in untouched.intersection(&named) {
            wrong.push(format!(
                "datafile {datafile} is used, and its batch of {} does not say so",
                precreated::first_of(*datafile)
            ));
        }
        for (datafile, pool) in pooled.iter().filter(|(datafile, _)| datafile.server() == server) {
            if !untouched.contains(datafile) {
                wrong.push(format!("datafile {datafile} in the pool of server {pool} is used up"));
            }
        }
        for (datafile, file) in listed.iter().filter(|(datafile, _)| datafile.server() == server) {
            if datafile.0 != *file && !untouched.contains(datafile) && !named.contains(datafile) {
                wrong.push(format!("datafile {datafile} of {file:#x} is not there"));
            }
        }
    }
    Ok(wrong)
}
