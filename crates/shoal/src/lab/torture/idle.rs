//! The check of an idle client. A file is removed while a program has it open in a mount, as with every
//! temporary file. The file's server is killed and starts again, and the program makes no call for some
//! leases. After that the program must be able to read, write and sync the file.
//!
//! The check has a file system of its own, in the folder of the torture: one server with a short lease, and
//! one mount.

use super::site::{Site, Wish};
use crate::commands::up::free_port;
use anyhow::{Context as _, Result, bail};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use std::time::{Duration, Instant};

/// The lease of its server, in seconds: a server begins anew within a part of it.
const LEASE_S: u64 = 2;
/// How long the program asks nothing: the server looks at its sessions every half lease.
pub const IDLE: Duration = Duration::from_secs(3 * LEASE_S);
/// Bytes of the file.
const LEN: usize = 300_000;
/// The check's name.
const NAME: &str = "a_file_removed_while_open_outlives_a_restart_of_its_server_while_its_program_is_idle";

/// Do it.
pub fn run(wish: &Wish, done: impl FnOnce(&str, Duration, Option<String>)) {
    let begun = Instant::now();
    let failed = idle_over_a_restart(wish).err();
    done(NAME, begun.elapsed(), failed.map(|error| format!("{error:#}")));
}

fn idle_over_a_restart(wish: &Wish) -> Result<()> {
    let mut site = site(wish, "idle", 1)?;
    let file = removed(&site.mountpoint(0).join("temporary"))?;
    site.kill_server(0);
    site.start_server(0)?;
    site.await_server(0)?;
    std::thread::sleep(IDLE);
    must_be_whole(&file)?;
    drop(file);
    site.end()
}

/// A file system of one server with a short lease, in a folder of its own.
pub fn site(wish: &Wish, name: &str, mounts: usize) -> Result<Site> {
    site_of(wish, name, 1, mounts)
}

/// The same of several servers.
pub fn site_of(wish: &Wish, name: &str, servers: usize, mounts: usize) -> Result<Site> {
    site_with(&Wish { lease_s: LEASE_S, ..wish.clone() }, name, servers, mounts)
}

/// The same with the lease that is wished for.
pub fn site_with(wish: &Wish, name: &str, servers: usize, mounts: usize) -> Result<Site> {
    let folder = wish.folder.join(name);
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let ports = (0..servers).map(|_| free_port()).collect::<Result<Vec<_>>>()?;
    let listen = ports.iter().map(|port| Ok(format!("tcp:{}", port.local_addr()?)));
    let listen = listen.collect::<Result<Vec<_>>>()?;
    drop(ports);
    let wish = Wish { folder, mounts, ..wish.clone() };
    Site::begin(&wish, &listen, None)
}

fn content() -> Vec<u8> {
    (0..LEN).map(|at| (at % 251) as u8).collect()
}

/// Make a file, and remove it while it is open.
fn removed(path: &Path) -> Result<File> {
    let words = || format!("at {}", path.display());
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(path).with_context(words)?;
    write_content(&file).with_context(words)?;
    std::fs::remove_file(path).with_context(words)?;
    Ok(file)
}

/// Write the contents that [`must_be_whole`] expects, durably.
pub fn write_content(file: &File) -> Result<()> {
    file.write_all_at(&content(), 0)?;
    Ok(file.sync_all()?)
}

/// The file has no name, and can be used as any other.
pub fn must_be_whole(file: &File) -> Result<()> {
    let links = file.metadata().context("fstat of the removed file after the idle time")?.nlink();
    if links != 0 {
        bail!("the removed file has {links} links");
    }
    file.write_all_at(b"more", LEN as u64).context("a write to the removed file after the idle time")?;
    file.sync_all().context("fsync of the removed file after the idle time")?;
    let mut found = vec![0; LEN];
    file.read_exact_at(&mut found, 0).context("a read of the removed file after the idle time")?;
    if found != content() {
        bail!("the removed file holds other bytes than were written");
    }
    Ok(())
}
