//! Reads the rows that the check needs from all servers at once, in batches, and
//! which streams lost their local file.

use super::tables::{READ, STREAM_TABLE, Tables};
use anyhow::{Context as _, Result};
use shoal_client::Client;
use shoal_proto::{Handle, ServerId};
use shoal_server::keys;

/// Rows requested at once.
const BATCH: u32 = 4096;

/// One look at the whole file system. `progress` receives the number of rows that were read since its last
/// call.
///
/// # Errors
/// When a server does not answer: then nothing can be said.
pub async fn look(client: &Client, progress: &dyn Fn(u64)) -> Result<Tables> {
    let map = client.map();
    let each = map.servers.iter().map(|info| look_at(client, info.id, progress));
    let mut all = Tables::default();
    for tables in futures_util::future::join_all(each).await {
        all.join(tables?);
    }
    Ok(all)
}

async fn look_at(client: &Client, server: ServerId, progress: &dyn Fn(u64)) -> Result<Tables> {
    let mut tables = Tables::default();
    for table in READ {
        let mut after = Vec::new();
        loop {
            let asked = client.rows(server, &[table], &after, BATCH).await;
            let (rows, end) = asked.with_context(|| format!("cannot read the rows of server {server}"))?;
            for row in &rows {
                tables.take(server, &row.key, &row.value);
            }
            if table == STREAM_TABLE {
                let streams: Vec<Handle> =
                    rows.iter().filter_map(|row| keys::parse_handle(&row.key)).collect();
                let lost = client.lost_files(server, &streams).await;
                tables
                    .lost_files
                    .extend(lost.with_context(|| format!("cannot look for the files of server {server}"))?);
            }
            progress(rows.len() as u64);
            match rows.last() {
                Some(last) if !end => after = last.key.to_vec(),
                _ => break,
            }
        }
    }
    Ok(tables)
}
