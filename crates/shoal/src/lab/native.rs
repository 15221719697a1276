//! The native client as a target of benchmarks: each worker is a thread with a client of its own.
//!
//! The methods of a worker block, but the client is asynchronous and bound to its thread. So each worker
//! thread has a *world* of its own (an event loop of `shoal_env` with its clock, sockets and files). Each
//! call of the worker runs this event loop until the client's answer is there. So the client adds no switch
//! between threads to the measured time.

use crate::address::CommandTarget;
use crate::connect;
use anyhow::{Context as _, Result, anyhow};
use bytes::Bytes;
use shoal_bench::{Batches, Counts, Edge, FileId, ListingResult, OpenMode, Stat, Target, Worker, counts};
use shoal_client::{Client, FileWrite, NewFile, OpenFile, Options, Which};
use shoal_env::{Env, real};
use shoal_proto::{Attr, Handle, Kind, Name, Rights};
use std::collections::BTreeMap;
use std::future::Future;
use std::time::{Duration, Instant};

/// A file system by the native client.
pub struct Native {
    name: String,
    place: CommandTarget,
    is_cached: bool,
    /// The servers' processes, where they are known.
    pids: Vec<u32>,
    /// Each operation is made to take so much longer, percent.
    planted: f64,
    /// The servers' counts are read before and after each phase.
    is_counted: bool,
}

impl Native {
    /// The place, called `name` in tables.
    pub fn new(name: &str, place: CommandTarget) -> Native {
        let name = name.to_owned();
        Native { name, place, is_cached: true, pids: Vec::new(), planted: 0.0, is_counted: true }
    }

    /// Names and attributes are requested each time.
    pub fn uncached(self) -> Native {
        Native { is_cached: false, ..self }
    }

    /// The servers run in these processes, whose processor time counts.
    pub fn served_by(self, pids: Vec<u32>) -> Native {
        Native { pids, ..self }
    }

    /// Each operation takes so much longer, percent: a slowdown that is known, for a comparison to find.
    pub fn planted(self, percent: f64) -> Native {
        Native { planted: percent, ..self }
    }

    /// Only times are reported. Reading the counts of all servers takes longer than a phase of some
    /// milliseconds.
    pub fn uncounted(self) -> Native {
        Native { is_counted: false, ..self }
    }

    /// From the words of [`Target::process_spec`].
    pub fn from_spec(spec: &str) -> Result<Native> {
        let (address, key) = spec
            .strip_prefix("native:")
            .and_then(|rest| rest.split_once('\n'))
            .with_context(|| format!("`{spec}` is no target of a worker"))?;
        Ok(Native::new("native", CommandTarget { address: address.parse()?, key: key.into() }))
    }
}

impl Target for Native {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn worker(&self, index: usize) -> Result<Box<dyn Worker>> {
        let mut options = connect::options(&self.place)?;
        if !self.is_cached {
            (options.name_cache, options.attr_cache) = (Duration::ZERO, Duration::ZERO);
        }
        let runtime = real::Runtime::new(&format!("bench-{index}"));
        let begin = Session::begin(runtime.env(), options, self.place.address.path.clone());
        let session = runtime.block_on(begin)?;
        Ok(Box::new(NativeWorker { session, runtime: Driver { runtime, planted: self.planted } }))
    }

    fn process_spec(&self) -> Option<String> {
        let key = std::path::absolute(&self.place.key).ok()?;
        // Another process finds it by the address alone.
        self.place.address.to_string().parse::<crate::address::ShoalAddress>().ok()?;
        Some(format!("native:{}\n{}", self.place.address, key.to_str()?))
    }

    fn counts(&self, edge: Edge) -> Result<Option<Counts>> {
        self.is_counted.then(|| counted(&self.place, &self.pids, edge)).transpose()
    }
}

/// Processor time of the servers' processes, and the bytes that they had written.
fn processes(pids: &[u32]) -> Counts {
    let sum = |of: fn(u32) -> u64| pids.iter().map(|&pid| of(pid)).sum();
    Counts {
        client_cpu_us: counts::cpu_us_here(),
        server_cpu_us: sum(counts::cpu_us_of),
        disk_bytes: sum(counts::disk_bytes_of),
        ..Counts::default()
    }
}

/// Every server's own report.
pub async fn statuses(client: &Client) -> Result<Vec<serde_json::Value>> {
    let mut all = Vec::new();
    for server in client.map().servers.iter() {
        all.push(serde_json::from_str(&client.status(server.id).await?)?);
    }
    Ok(all)
}

/// The counts of all servers.
pub fn served(place: &CommandTarget) -> Result<Counts> {
    let all = connect::with_client(place, |_, client| async move { statuses(&client).await })?;
    let of = |group: &str, name: &str| all.iter().filter_map(|one| one[group][name].as_u64()).sum();
    Ok(Counts {
        requests: of("counters", "requests"),
        groups: of("store", "groups"),
        journal_bytes: of("store", "journal_bytes"),
        syncs: of("env", "syncs"),
        disk_bytes: of("env", "file_write_bytes"),
        // The simulation charges no call for a write that a serving thread makes itself.
        thread_writes: of("env", "file_writes").saturating_sub(of("env", "file_writes_inline")),
        ..Counts::default()
    })
}

/// The counts of the servers of a place and of the processes of a run, at the edge of a phase.
pub fn counted(place: &CommandTarget, pids: &[u32], edge: Edge) -> Result<Counts> {
    let (served, processes) = match edge {
        Edge::Before => {
            let served = served(place)?;
            (served, processes(pids))
        }
        Edge::Behind => {
            let processes = processes(pids);
            (served(place)?, processes)
        }
    };
    let disk_bytes = if pids.is_empty() { served.disk_bytes } else { processes.disk_bytes };
    Ok(Counts { disk_bytes, ..served.and(&processes) })
}

struct NativeWorker {
    session: Session,
    runtime: Driver,
}

/// The worker's world, and the added time of its operations, percent.
struct Driver {
    runtime: real::Runtime,
    planted: f64,
}

impl Driver {
    fn block_on<T>(&self, operation: impl Future<Output = T>) -> T {
        if self.planted <= 0.0 {
            return self.runtime.block_on(operation);
        }
        let begun = Instant::now();
        let value = self.runtime.block_on(operation);
        let until = begun + begun.elapsed().mul_f64(1.0 + self.planted / 100.0);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        value
    }
}

impl Drop for NativeWorker {
    fn drop(&mut self) {
        self.session.files.clear();
        self.runtime.block_on(self.session.client.close());
    }
}

impl Worker for NativeWorker {
    fn mkdir(&mut self, path: &str) -> Result<()> {
        self.runtime.block_on(self.session.mkdir(path))
    }

    fn create(&mut self, path: &str) -> Result<FileId> {
        self.runtime.block_on(self.session.create(path))
    }

    fn open(&mut self, path: &str, mode: OpenMode) -> Result<FileId> {
        self.runtime.block_on(self.session.open(path, mode))
    }

    fn write(&mut self, file: FileId, offset: u64, data: &[u8]) -> Result<()> {
        let file = self.session.file(file)?;
        Ok(self.runtime.block_on(file.write(offset, Bytes::copy_from_slice(data)))?)
    }

    fn read(&mut self, file: FileId, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let file = self.session.file(file)?;
        let data = self.runtime.block_on(file.read(offset, buf.len()))?;
        let space = buf.get_mut(..data.len()).context("more was read than asked for")?;
        space.copy_from_slice(&data);
        Ok(data.len())
    }

    fn stat(&mut self, path: &str) -> Result<Stat> {
        self.runtime.block_on(self.session.stat(path))
    }

    fn readdir_stat(&mut self, dir: &str) -> Result<ListingResult> {
        self.runtime.block_on(self.session.list(dir, false))
    }

    fn readdir_plus(&mut self, dir: &str) -> Result<Option<ListingResult>> {
        self.runtime.block_on(self.session.list(dir, true)).map(Some)
    }

    fn put(&mut self, path: &str, data: &[u8]) -> Result<()> {
        self.runtime.block_on(self.session.put(path, Bytes::copy_from_slice(data)))
    }

    fn get(&mut self, path: &str, buf: &mut [u8]) -> Result<usize> {
        let data = self.runtime.block_on(self.session.get(path, buf.len()))?;
        let space = buf.get_mut(..data.len()).context("more was read than asked for")?;
        space.copy_from_slice(&data);
        Ok(data.len())
    }

    fn list(&mut self, dir: &str, tell: &mut dyn FnMut(&str)) -> Result<()> {
        self.runtime.block_on(self.session.names(dir, tell))
    }

    fn batches(&mut self) -> Option<&mut dyn Batches> {
        Some(self)
    }

    fn fsync(&mut self, file: FileId) -> Result<()> {
        let file = self.session.file(file)?;
        Ok(self.runtime.block_on(file.fsync())?)
    }

    fn close(&mut self, file: FileId) -> Result<()> {
        let file = self.session.files.remove(&file.0).context("no such open file")?;
        Ok(self.runtime.block_on(file.close())?)
    }

    fn remove(&mut self, path: &str) -> Result<()> {
        self.runtime.block_on(self.session.remove(path))
    }

    fn rmdir(&mut self, path: &str) -> Result<()> {
        self.runtime.block_on(self.session.rmdir(path))
    }
}

impl Batches for NativeWorker {
    fn create_many(&mut self, paths: &[String]) -> Result<()> {
        let session = &mut self.session;
        self.runtime.block_on(async {
            let mut files = Vec::with_capacity(paths.len());
            for path in paths {
                let (dir, name) = session.place(path).await?;
                files.push(NewFile { dir, name, data: Bytes::new() });
            }
            all(session.client.create_many(files, crate::copy::owner(0o644), None).await).map(drop)
        })
    }

    fn write_many(&mut self, paths: &[String], data: &mut dyn FnMut(usize) -> Vec<u8>) -> Result<()> {
        let session = &mut self.session;
        self.runtime.block_on(async {
            let which = session.entries(paths).await?.into_iter().enumerate();
            let pieces = which.map(|(item, which)| FileWrite { which, offset: 0, data: data(item).into() });
            all(session.client.write_many(pieces.collect(), false).await).map(drop)
        })
    }

    fn read_many(
        &mut self,
        paths: &[String],
        max: usize,
        tell: &mut dyn FnMut(usize, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let session = &mut self.session;
        self.runtime.block_on(async {
            let which = session.entries(paths).await?;
            for (item, read) in all(session.client.read_many(&which, max).await)?.into_iter().enumerate() {
                let (attr, data) = read;
                let words = || format!("{} has {} bytes, more than {max}", paths[item], attr.size);
                tell(item, &data.with_context(words)?)?;
            }
            Ok(())
        })
    }

    fn stat_many(&mut self, paths: &[String]) -> Result<Vec<Stat>> {
        let session = &mut self.session;
        self.runtime.block_on(async {
            let which = session.entries(paths).await?;
            Ok(all(session.client.stat_many(&which).await)?.iter().map(stat).collect())
        })
    }

    fn remove_many(&mut self, paths: &[String]) -> Result<()> {
        let session = &mut self.session;
        self.runtime.block_on(async {
            let mut entries = Vec::with_capacity(paths.len());
            for path in paths {
                entries.push(session.place(path).await?);
            }
            all(session.client.remove_many(&entries).await).map(drop)
        })
    }
}

/// All of them, or the error of the first that failed.
fn all<T>(results: Vec<Result<T, shoal_client::Error>>) -> Result<Vec<T>> {
    Ok(results.into_iter().collect::<Result<Vec<T>, _>>()?)
}

fn stat(attr: &Attr) -> Stat {
    Stat { size: attr.size, is_dir: attr.kind == Kind::Directory }
}

/// The state on the worker's thread. A directory that was used stays resolved, as a program's open directory
/// would.
struct Session {
    client: Client,
    root: Handle,
    dirs: BTreeMap<String, Handle>,
    files: BTreeMap<u64, OpenFile>,
    next: u64,
}

impl Session {
    async fn begin(env: Env, options: Options, root: String) -> Result<Session> {
        let client = Client::connect(env, options).await?;
        let attr = client.walk(root.as_bytes(), true).await?;
        if attr.template.dist.is_followed() {
            return Err(anyhow!(
                "{root} has a layout that clients follow, and this benchmark is of the client alone: mount the file \
                 system, and name a path there"
            ));
        }
        let root = attr.handle;
        Ok(Session { client, root, dirs: BTreeMap::new(), files: BTreeMap::new(), next: 0 })
    }

    async fn mkdir(&mut self, path: &str) -> Result<()> {
        let (dir, name) = self.place(path).await?;
        let made = self.client.mkdir(dir, &name, crate::copy::owner(0o755)).await?;
        self.dirs.insert(path.to_owned(), made.handle);
        Ok(())
    }

    async fn create(&mut self, path: &str) -> Result<FileId> {
        let (dir, name) = self.place(path).await?;
        let (rights, owner) = (Rights::READ | Rights::WRITE, crate::copy::owner(0o644));
        let made = self.client.create(dir, &name, owner, true, rights, None).await?;
        Ok(self.keep(made.2))
    }

    async fn open(&mut self, path: &str, mode: OpenMode) -> Result<FileId> {
        let (dir, name) = self.place(path).await?;
        let handle = self.client.lookup(dir, &name).await?.handle;
        let rights = if mode.write { Rights::READ | Rights::WRITE } else { Rights::READ };
        Ok(self.keep(self.client.open(handle, rights).await?))
    }

    async fn stat(&mut self, path: &str) -> Result<Stat> {
        let (dir, name) = self.place(path).await?;
        Ok(stat(&self.client.lookup(dir, &name).await?))
    }

    async fn put(&mut self, path: &str, data: Bytes) -> Result<()> {
        let (dir, name) = self.place(path).await?;
        self.client.create_write(dir, &name, crate::copy::owner(0o644), data, None).await?;
        Ok(())
    }

    async fn get(&mut self, path: &str, max: usize) -> Result<Bytes> {
        let (dir, name) = self.place(path).await?;
        let (attr, data) = self.client.read_small(dir, &name, max).await?;
        data.with_context(|| format!("{path} has {} bytes, more than {max}", attr.size))
    }

    /// Names, listed with attributes.
    async fn names(&mut self, dir: &str, tell: &mut dyn FnMut(&str)) -> Result<()> {
        let dir = self.dir(dir).await?;
        let mut stream = self.client.opendir(dir);
        while let Some(entry) = stream.next(true).await? {
            tell(&String::from_utf8_lossy(entry.name.as_bytes()));
        }
        Ok(())
    }

    async fn remove(&mut self, path: &str) -> Result<()> {
        let (dir, name) = self.place(path).await?;
        Ok(self.client.unlink(dir, &name).await?)
    }

    async fn rmdir(&mut self, path: &str) -> Result<()> {
        let (dir, name) = self.place(path).await?;
        self.client.rmdir(dir, &name).await?;
        self.dirs.remove(path);
        Ok(())
    }

    /// Each entry by a message of its own, or (`plus`) with the entries.
    async fn list(&mut self, dir: &str, plus: bool) -> Result<ListingResult> {
        let dir = self.dir(dir).await?;
        let mut stream = self.client.opendir(dir);
        let mut listing = ListingResult::default();
        while let Some(entry) = stream.next(plus).await? {
            let attr = match entry.attr {
                Some(attr) if plus => attr,
                _ => self.client.getattr(entry.handle).await?,
            };
            listing.entries += 1;
            if attr.kind != Kind::Directory {
                listing.bytes += attr.size;
            }
        }
        Ok(listing)
    }

    async fn dir(&mut self, path: &str) -> Result<Handle> {
        if path.is_empty() {
            return Ok(self.root);
        }
        if let Some(&known) = self.dirs.get(path) {
            return Ok(known);
        }
        let mut at = self.root;
        for part in path.split('/') {
            let name = Name::new(part.as_bytes()).map_err(|status| anyhow!(status))?;
            at = self.client.lookup(at, &name).await?.handle;
        }
        self.dirs.insert(path.to_owned(), at);
        Ok(at)
    }

    async fn entries(&mut self, paths: &[String]) -> Result<Vec<Which>> {
        let mut all = Vec::with_capacity(paths.len());
        for path in paths {
            let (dir, name) = self.place(path).await?;
            all.push(Which::Entry(dir, name));
        }
        Ok(all)
    }

    async fn place(&mut self, path: &str) -> Result<(Handle, Name)> {
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        let name = Name::new(name.as_bytes()).map_err(|status| anyhow!(status))?;
        Ok((self.dir(dir).await?, name))
    }

    fn keep(&mut self, file: OpenFile) -> FileId {
        self.next += 1;
        self.files.insert(self.next, file);
        FileId(self.next)
    }

    fn file(&self, file: FileId) -> Result<&OpenFile> {
        self.files.get(&file.0).context("no such open file")
    }
}
