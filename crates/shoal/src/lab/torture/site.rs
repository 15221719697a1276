//! The file system under torture: each server and each mount a process of its own, in a throwaway folder.
//!
//! ```text
//!   FOLDER/cluster.toml, key        as `shoal init` writes them
//!   FOLDER/server-N/                data of a server; the last one's may be a small disk of its own (`disk.img`)
//!   FOLDER/mnt-N                    mounts
//!   FOLDER/log/                     what the processes said
//!   FOLDER/ledger/                  what was intended and acknowledged
//! ```

use super::hand::Spec;
use crate::bytes_size::ByteSize;
use crate::cluster_file::{ClusterFile, CollectionEntry, Role, ServerEntry};
use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Bytes of a strip: small, so that files of some hundred kilobytes lie over all servers.
pub const STRIP: u64 = 64 << 10;
/// Name of the file system.
const NAME: &str = "torture";
/// The line of a process when it is ready.
const READY: &str = "· ready: ";
/// A process is ready within this time, and ends within it.
const PATIENCE: Duration = Duration::from_secs(60);

/// The setting.
#[derive(Clone, Debug)]
pub struct Wish {
    /// Where.
    pub folder: PathBuf,
    /// How many mounts.
    pub mounts: usize,
    /// Seconds after which an operation that no server answers fails.
    pub timeout_s: u64,
    /// Seconds without a message after which a session ends.
    pub lease_s: u64,
}

/// A process that is restarted repeatedly.
struct Part {
    name: String,
    args: Vec<String>,
    log: PathBuf,
    child: Option<Child>,
    /// Where in the log its present life begins.
    since: u64,
}

/// See the module.
pub struct Site {
    /// Address of the file system.
    pub address: String,
    wish: Wish,
    key: PathBuf,
    servers: Vec<Part>,
    mounts: Vec<Part>,
}

impl Site {
    /// Write the cluster file and start all. `last`: a folder for the last server's data.
    pub fn begin(wish: &Wish, listen: &[String], last: Option<PathBuf>) -> Result<Site> {
        let folder = &wish.folder;
        for name in ["log", "ledger"] {
            std::fs::create_dir_all(folder.join(name))
                .with_context(|| format!("cannot make {}/{name}", folder.display()))?;
        }
        let server = |(id, at): (usize, &String)| ServerEntry {
            moved: 0,
            listen: vec![at.clone()],
            roles: vec![Role::Metadata, Role::Data],
            folder: match &last {
                Some(folder) if id + 1 == listen.len() => folder.clone(),
                _ => format!("server-{id}").into(),
            },
            streams: Vec::new(),
            audit: None,
            audit_bytes_max: None,
        };
        let mut cluster = ClusterFile {
            key: "key".into(),
            server_key: None,
            mac: None,
            server: listen.iter().enumerate().map(server).collect(),
            collection: vec![CollectionEntry { strip: ByteSize(STRIP), ..CollectionEntry::new(NAME, 1)? }],
            base: folder.clone(),
        };
        cluster.check()?;
        let key = cluster.path(&cluster.key);
        cluster.draw_keys()?;
        cluster.save()?;
        let hosts: Vec<&str> = listen.iter().map(|at| at.trim_start_matches("tcp:")).collect();
        let address = format!("shoal://{}/{NAME}", hosts.join(","));
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let part = |name: String, args: Vec<String>| Part {
            log: folder.join("log").join(format!("{name}.log")),
            name,
            args,
            child: None,
            since: 0,
        };
        let servers = (0..listen.len()).map(|id| {
            let (id_text, lease) = (id.to_string(), wish.lease_s.to_string());
            let args = ["serve", "--config", &text(folder), "--server", &id_text, "--lease", &lease];
            let args = args.map(String::from);
            part(format!("server-{id}"), args.to_vec())
        });
        let timeout = wish.timeout_s.to_string();
        let mounts = (0..wish.mounts).map(|id| {
            let at = text(&folder.join(format!("mnt-{id}")));
            let args =
                ["mount", &address, &at, "--key", &text(&key), "--timeout", &timeout].map(String::from);
            part(format!("mnt-{id}"), args.to_vec())
        });
        let (servers, mounts) = (servers.collect(), mounts.collect());
        let mut site = Site { address, wish: wish.clone(), key, servers, mounts };
        for id in 0..site.servers.len() {
            site.start_server(id)?;
        }
        for id in 0..site.servers.len() {
            site.await_server(id)?;
        }
        for id in 0..wish.mounts {
            site.start_mount(id)?;
        }
        Ok(site)
    }

    /// How many servers there are.
    pub fn servers(&self) -> usize {
        self.servers.len()
    }

    /// How many mounts there are.
    pub fn mounts(&self) -> usize {
        self.mounts.len()
    }

    /// Every way to the file system: the mounts, and the native client.
    pub fn ways(&self) -> Vec<Spec> {
        let mounts = (0..self.mounts.len()).map(|id| Spec::Mount(self.mountpoint(id)));
        mounts.chain([self.native()]).collect()
    }

    /// The native client.
    pub fn native(&self) -> Spec {
        Spec::Native { address: self.address.clone(), key: self.key.clone(), timeout_s: self.wish.timeout_s }
    }

    /// Where it is mounted.
    pub fn mountpoint(&self, id: usize) -> PathBuf {
        self.wish.folder.join(format!("mnt-{id}"))
    }

    /// Start a server that is not running.
    pub fn start_server(&mut self, id: usize) -> Result<()> {
        self.servers[id].start()
    }

    /// The same once with further words on its command line.
    pub fn start_server_with(&mut self, id: usize, words: &[&str]) -> Result<()> {
        let usual = self.servers[id].args.clone();
        self.servers[id].args.extend(words.iter().map(|word| (*word).to_owned()));
        let started = self.servers[id].start();
        self.servers[id].args = usual;
        started
    }

    /// Wait until a server that is refused has ended; returns its output.
    pub fn await_end(&mut self, id: usize) -> Result<String> {
        self.servers[id].await_end()
    }

    /// Where a server keeps the file system.
    pub fn server_folder(&self, id: usize) -> PathBuf {
        self.wish.folder.join(format!("server-{id}")).join(NAME)
    }

    /// Wait until a server is ready; it is so at once, if it is.
    pub fn await_server(&mut self, id: usize) -> Result<()> {
        self.servers[id].await_ready()
    }

    /// SIGKILL a server, and see it gone.
    pub fn kill_server(&mut self, id: usize) {
        self.servers[id].kill();
    }

    /// SIGSTOP or SIGCONT a server, if it runs.
    pub fn signal_server(&self, id: usize, signal: Signal) {
        self.servers[id].signal(signal);
    }

    /// SIGTERM a server; it ends with status 0.
    pub fn stop_server(&mut self, id: usize) -> Result<()> {
        self.servers[id].stop()
    }

    /// Mount where nothing is mounted, or a dead mount lies.
    pub fn start_mount(&mut self, id: usize) -> Result<()> {
        self.mounts[id].start()?;
        self.mounts[id].await_ready()
    }

    /// SIGKILL a mount.
    pub fn kill_mount(&mut self, id: usize) {
        self.mounts[id].kill();
    }

    /// The processes that ended without a request.
    pub fn ended(&mut self) -> Vec<String> {
        let parts = self.servers.iter_mut().chain(&mut self.mounts);
        parts.filter_map(|part| part.ended().map(|words| format!("{}: {words}", part.name))).collect()
    }

    /// A command of this program on this file system: whether it succeeded, and its output.
    pub fn command(&self, args: &[&str]) -> Result<(ExitStatus, String)> {
        let program = std::env::current_exe().context("cannot find this program to start it again")?;
        let key = std::path::absolute(&self.key)?;
        // Files that a command leaves, such as the rows that a repair removed, stay in the folder.
        let done = Command::new(program)
            .args(args)
            .args(["--key", &key.to_string_lossy()])
            .current_dir(&self.wish.folder)
            .output()
            .context("cannot start a command")?;
        let words =
            format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
        Ok((done.status, words))
    }

    /// End all, as one should: mounts, then servers, each with status 0 and nothing left mounted.
    pub fn end(mut self) -> Result<()> {
        for id in 0..self.mounts.len() {
            self.mounts[id].stop()?;
            let at = self.mountpoint(id);
            if is_mounted(&at) {
                bail!("{} is mounted still", at.display());
            }
        }
        for server in &mut self.servers {
            server.stop()?;
        }
        Ok(())
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        for part in self.mounts.iter_mut().chain(&mut self.servers) {
            part.kill();
        }
        for id in 0..self.mounts.len() {
            let at = self.mountpoint(id);
            if is_mounted(&at) {
                let _ = shoal_fuse::unmount(&at, true);
            }
        }
    }
}

fn is_mounted(at: &Path) -> bool {
    crate::address::mounts().is_ok_and(|mounts| mounts.iter().any(|mounted| mounted.mountpoint == at))
}

impl Part {
    /// Start it, if it does not run.
    fn start(&mut self) -> Result<()> {
        let ended = self.ended();
        if self.child.is_some() {
            return Ok(());
        }
        if let Some(words) = ended {
            bail!("{} ended by itself: {words}", self.name);
        }
        let log = OpenOptions::new().create(true).append(true).open(&self.log);
        let log = log.with_context(|| format!("cannot write {}", self.log.display()))?;
        self.since = log.metadata()?.len();
        let program = std::env::current_exe().context("cannot find this program to start it again")?;
        let child = Command::new(program)
            .args(&self.args)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {}", self.name))?;
        self.child = Some(child);
        Ok(())
    }

    fn said(&self) -> String {
        let read = || -> std::io::Result<String> {
            let mut text = Vec::new();
            let mut file = File::open(&self.log)?;
            file.seek(SeekFrom::Start(self.since))?;
            file.read_to_end(&mut text)?;
            Ok(String::from_utf8_lossy(&text).into_owned())
        };
        read().unwrap_or_default()
    }

    fn await_ready(&mut self) -> Result<()> {
        let begun = Instant::now();
        loop {
            // Before its output is read: the last lines are then included.
            let ended = self.ended();
            if self.said().contains(READY) {
                return Ok(());
            }
            if let Some(words) = ended {
                bail!("{} ended before it was ready: {words}", self.name);
            }
            if begun.elapsed() > PATIENCE {
                bail!(
                    "{} is not ready after {} s (its words: {})",
                    self.name,
                    PATIENCE.as_secs(),
                    self.log.display()
                );
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn await_end(&mut self) -> Result<String> {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            if self.ended().is_some() {
                return Ok(self.said());
            }
            if self.said().contains(READY) {
                bail!("{} serves, and had to be refused", self.name);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        bail!("{} has not ended after {} s", self.name, PATIENCE.as_secs())
    }

    /// The last words and the status of a process that ended by itself.
    fn ended(&mut self) -> Option<String> {
        let status = self.child.as_mut()?.try_wait().ok()??;
        self.child = None;
        let said = self.said();
        Some(format!("{status}, its last words: {}", said.lines().last().unwrap_or("none")))
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    fn signal(&self, signal: Signal) {
        if let Some(child) = &self.child {
            let _ = kill_process(Pid::from_child(child), signal);
        }
    }

    fn stop(&mut self) -> Result<()> {
        self.signal(Signal::TERM);
        let Some(mut child) = self.child.take() else { bail!("{} ended before it was asked to", self.name) };
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            if let Some(status) = child.try_wait()? {
                return match status.success() {
                    true => Ok(()),
                    false => bail!("{} was asked to stop and ended with {status}", self.name),
                };
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = child.kill();
        let _ = child.wait();
        bail!("{} did not stop within {} s", self.name, PATIENCE.as_secs())
    }
}
