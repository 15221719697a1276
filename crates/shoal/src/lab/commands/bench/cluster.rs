//! A throwaway file system for a benchmark. Its servers are threads of one process. Its folder is removed at
//! the end.
//!
//! ```text
//!   start     shoal up                      clients connect through Unix sockets
//!   embedded  shoal up --mount              the mount's client connects through queues within the process
//!   remote    shoal init, serve, mount      servers in one process, mount in another process, over TCP
//! ```

use super::running::{Running, this_program};
use crate::address::CommandTarget;
use anyhow::{Context as _, Result, bail};
use shoal_bench::counts::{cpu_us_of, disk_bytes_of};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A folder that is removed at the end.
pub struct Scratch(PathBuf);

impl Scratch {
    /// A new one in `base`, or in the temporary folder.
    pub fn new(base: Option<&Path>) -> Result<Scratch> {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let name = format!("shoal-bench.{}-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let path = base.map_or_else(std::env::temp_dir, Path::to_path_buf).join(name);
        std::fs::create_dir(&path).with_context(|| format!("cannot make the folder {}", path.display()))?;
        Ok(Scratch(path.canonicalize()?))
    }

    /// Where.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// A folder in it.
    pub fn folder(&self, name: &str) -> Result<PathBuf> {
        let path = self.0.join(name);
        std::fs::create_dir(&path).with_context(|| format!("cannot make the folder {}", path.display()))?;
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A file system that runs. Its mount goes before its servers, and these before the folder.
pub struct Cluster {
    mount: Option<Running>,
    servers: Running,
    folder: Scratch,
}

impl Cluster {
    /// Make it and start it; `words`: further words of `shoal up`.
    pub fn start(base: Option<&Path>, servers: u16, words: &[&str]) -> Result<Cluster> {
        Cluster::start_with(&this_program()?, base, servers, words)
    }

    /// The same by another version of this program.
    pub fn start_with(program: &Path, base: Option<&Path>, servers: u16, words: &[&str]) -> Result<Cluster> {
        Cluster::up(program, Scratch::new(base)?, servers, words)
    }

    /// The same with a mount in the servers' process.
    pub fn embedded(program: &Path, base: Option<&Path>, servers: u16, words: &[&str]) -> Result<Cluster> {
        let folder = Scratch::new(base)?;
        let at = text(&folder.folder(MOUNT)?)?;
        let mount = ["--mount", at.as_str()];
        Cluster::up(program, folder, servers, &[&mount, words].concat())
    }

    fn up(program: &Path, folder: Scratch, servers: u16, words: &[&str]) -> Result<Cluster> {
        let (data, count) = (text(&folder.path().join(DATA))?, servers.to_string());
        let up = ["up", &data, "--json", "--servers", &count];
        let servers = Running::start(program, &[&up, words].concat()).context("the servers did not start")?;
        Ok(Cluster { mount: None, servers, folder })
    }

    /// Stop the servers, do something with the folder of their data, and start them again.
    pub fn between_starts(self, work: impl FnOnce(&Path) -> Result<()>) -> Result<Cluster> {
        let data = self.data();
        let Cluster { mount, servers, folder } = self;
        servers.stop()?;
        work(&data)?;
        let up = Running::start(&this_program()?, &["up", &text(&data)?, "--json"]);
        Ok(Cluster { mount, servers: up.context("the servers did not start again")?, folder })
    }

    /// The same with servers that are reached by TCP alone, and a mount in a process of its own; `words`: of
    /// `shoal init`, `mount`: of `shoal mount`.
    pub fn remote(base: Option<&Path>, servers: u16, words: &[&str], mount: &[&str]) -> Result<Cluster> {
        let folder = Scratch::new(base)?;
        let data = folder.path().join(DATA);
        let config = text(&data)?;
        let addresses = addresses(&data, servers)?;
        let servers = addresses.iter().flat_map(|address| ["--server", address.as_str()]);
        let init: Vec<&str> =
            ["init", &config].into_iter().chain(servers).chain(words.iter().copied()).collect();
        let program = this_program()?;
        let made = Command::new(&program).args(&init).output().context("cannot start `shoal init`")?;
        if !made.status.success() {
            bail!("cannot make a file system: {}", String::from_utf8_lossy(&made.stderr).trim());
        }
        let servers = Running::start(&program, &["serve", "--config", &config]);
        let servers = servers.context("the servers did not start")?;
        let mut cluster = Cluster { mount: None, servers, folder };
        cluster.mount(mount)?;
        Ok(cluster)
    }

    /// Mount it in a process of its own, which is given; `words`: of `shoal mount`.
    pub fn mount(&mut self, words: &[&str]) -> Result<u32> {
        let (place, at) = (self.place()?, text(&self.folder.folder(MOUNT)?)?);
        let (address, key) = (place.address.to_string(), text(&place.key)?);
        let words = [&["mount", &address, &at, "--key", &key], words].concat();
        let mount =
            self.mount.insert(Running::start(&this_program()?, &words).context("the mount did not start")?);
        Ok(mount.pid())
    }

    /// End that mount.
    pub fn unmount(&mut self) -> Result<()> {
        self.mount.take().map_or(Ok(()), Running::stop)
    }

    /// How clients find it.
    pub fn place(&self) -> Result<CommandTarget> {
        CommandTarget::find(&self.data().to_string_lossy(), None)
    }

    /// The folder of its data.
    pub fn data(&self) -> PathBuf {
        self.folder.path().join(DATA)
    }

    /// Where it is mounted, if it is.
    pub fn mountpoint(&self) -> PathBuf {
        self.folder.path().join(MOUNT)
    }

    /// Its processes: the servers', and the mount's if that is another.
    pub fn pids(&self) -> Vec<u32> {
        std::iter::once(&self.servers).chain(&self.mount).map(Running::pid).collect()
    }

    /// Wait until its servers are at rest, and the disk is: they make their journals' files after their
    /// start, and a disk is busy for a while with written or discarded (`discard`) blocks. Those that never
    /// are, are not waited for.
    pub fn rest(&self) {
        self.servers_rest();
        let until = Instant::now() + DISK_REST_MAX;
        let mut quiet = 0;
        while quiet < REST_LOOKS && Instant::now() < until {
            match is_smooth(self.folder.path()) {
                Ok(true) => quiet += 1,
                Ok(false) => quiet = 0,
                // Disks that cannot be observed are not waited for.
                Err(_) => return,
            }
        }
    }

    fn servers_rest(&self) {
        let until = Instant::now() + REST_MAX;
        let work = || self.pids().iter().map(|&pid| (cpu_us_of(pid), disk_bytes_of(pid))).collect::<Vec<_>>();
        let (mut last, mut quiet) = (work(), 0);
        while quiet < REST_LOOKS && Instant::now() < until {
            std::thread::sleep(REST_LOOK);
            let now = work();
            let is_quiet = |((cpu, bytes), (cpu_last, bytes_last)): (&(u64, u64), &(u64, u64))| {
                Duration::from_micros(cpu.saturating_sub(*cpu_last)) < REST_LOOK / 20 && bytes == bytes_last
            };
            quiet = if now.iter().zip(&last).all(is_quiet) { quiet + 1 } else { 0 };
            last = now;
        }
    }

    /// Stop it, and see that it ends well.
    pub fn stop(mut self) -> Result<()> {
        self.unmount()?;
        // The folder stays until its servers have ended.
        let Cluster { servers, folder: _folder, .. } = self;
        servers.stop()
    }
}

/// Looks at what servers do.
const REST_LOOK: Duration = Duration::from_millis(50);
/// So many one after the other see nothing.
const REST_LOOKS: u32 = 2;
/// And no more than so long.
const REST_MAX: Duration = Duration::from_secs(10);
/// For the disk.
const DISK_REST_MAX: Duration = Duration::from_secs(3);
/// Of a disk at rest the longest of some small durable writes takes no more than so many times the middle
/// one.
const SMOOTH_TIMES: u32 = 10;

/// Whether small durable writes all take about as long.
fn is_smooth(folder: &Path) -> std::io::Result<bool> {
    let path = folder.join("rest");
    let file = std::fs::File::create(&path)?;
    let (begun, mut all) = (Instant::now(), Vec::new());
    while begun.elapsed() < REST_LOOK {
        let asked = Instant::now();
        file.write_at(&[1; 4096], 0)?;
        file.sync_data()?;
        all.push(asked.elapsed());
    }
    std::fs::remove_file(&path)?;
    // The first one makes the file longer.
    let later = &mut all[1..];
    later.sort();
    let (middle, longest) = (later.get(later.len() / 2), later.last());
    Ok(longest.zip(middle).is_none_or(|(longest, middle)| *longest <= *middle * SMOOTH_TIMES))
}

/// Folders within a cluster's.
const DATA: &str = "data";
const MOUNT: &str = "mnt";

fn text(path: &Path) -> Result<String> {
    Ok(path.to_str().with_context(|| format!("the path {} is not UTF-8", path.display()))?.to_owned())
}

/// Each server's address, and its folder below `data`.
fn addresses(data: &Path, servers: u16) -> Result<Vec<String>> {
    // All ports are held until all are chosen.
    let ports = (0..servers).map(|_| crate::commands::up::free_port()).collect::<Result<Vec<_>>>()?;
    let address = |(id, port): (usize, &std::net::TcpListener)| {
        Ok(format!("tcp:{}={}", port.local_addr()?, text(&data.join(format!("server-{id}")))?))
    };
    ports.iter().enumerate().map(address).collect()
}
