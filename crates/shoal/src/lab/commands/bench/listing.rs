//! A process that lists one directory with attributes, and reports the time and its memory. It does nothing
//! else, so the listing alone takes this memory.
//!
//! The directory to list comes on standard input, and the result goes to standard output. Both are one line
//! of JSON.

use super::running::this_program;
use crate::address::CommandTarget;
use crate::connect;
use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};
use shoal_bench::crowd::{ListingTime, peak_bytes};
use shoal_bench::{Directory, Target as _};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

/// The directory to list.
#[derive(Debug, Serialize, Deserialize)]
pub enum Wanted {
    /// By the native client: the address with the directory's path, and the key.
    Natively(String, PathBuf),
    /// As any program does: a directory in another.
    Mounted(PathBuf, String),
}

/// List in a process of its own.
pub fn list(wanted: &Wanted) -> Result<ListingTime> {
    let mut child = Command::new(this_program()?)
        .arg("bench-list")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start a process that lists")?;
    let input = child.stdin.take().context("its input is no pipe")?;
    serde_json::to_writer(input, wanted)?;
    let output = child.wait_with_output()?;
    if !output.status.success() {
        bail!("the process that lists failed; its output is above");
    }
    serde_json::from_slice(&output.stdout).context("the process that lists returned no result")
}

/// The work of such a process.
pub fn main() -> Result<ExitCode> {
    let wanted = serde_json::from_reader(std::io::stdin().lock())
        .context("a process that lists is started by a measurement, not by hand")?;
    let (begun, entries, by_server) = match wanted {
        Wanted::Natively(address, key) => natively(&CommandTarget { address: address.parse()?, key })?,
        Wanted::Mounted(root, dir) => {
            let mut worker = Directory::new("mounted", root).worker(0)?;
            let begun = Instant::now();
            (begun, worker.readdir_stat(&dir)?.entries, Vec::new())
        }
    };
    let took_s = begun.elapsed().as_secs_f64();
    let peak_bytes = peak_bytes(std::process::id()).unwrap_or(0);
    let listed = ListingTime { entries, took_s, peak_bytes, by_server };
    writeln!(std::io::stdout(), "{}", serde_json::to_string(&listed)?)?;
    Ok(ExitCode::SUCCESS)
}

fn natively(place: &CommandTarget) -> Result<(Instant, u64, Vec<u64>)> {
    connect::with_client(place, |_, client| async move {
        let attr = client.walk(place.address.path.as_bytes(), true).await?;
        let mut by_server = vec![0; client.map().servers.len()];
        let begun = Instant::now();
        let mut stream = client.opendir_unordered(attr.handle, true).await?;
        while let Some(entry) = stream.next().await? {
            if entry.attr.is_none() {
                bail!("an entry has no attributes: it is gone, but was not removed");
            }
            // Its shard, which is not where its object is if it is older than the split.
            let server = attr.shards.server_of(entry.place).unwrap_or(attr.handle.server());
            if let Some(count) = by_server.get_mut(usize::from(server.0)) {
                *count += 1;
            }
        }
        Ok((begun, by_server.iter().sum(), by_server))
    })
}
