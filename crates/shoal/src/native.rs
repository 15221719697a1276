//! The native client as a target of benchmarks: one worker is one thread with a client of its own.
//!
//! A worker's methods block; the client is asynchronous and bound to its thread. So each worker has a world of its own, on
//! its thread, entered for each call: no hop between threads is part of what is measured.

use crate::address::Place;
use crate::connect;
use anyhow::{Context as _, Result, anyhow};
use bytes::Bytes;
use shoal_bench::{FileId, Listing, OpenMode, Stat, Target, Worker};
use shoal_client::{Client, OpenFile, Options};
use shoal_env::{Env, real};
use shoal_proto::{Handle, Kind, Name, Rights};
use std::collections::BTreeMap;

/// A file system by the native client.
pub struct Native {
    name: String,
    place: Place,
}

impl Native {
    /// The place, called `name` in tables.
    pub fn new(name: &str, place: Place) -> Native {
        Native { name: name.to_owned(), place }
    }

    /// From the words of [`Target::process_spec`].
    pub fn from_spec(spec: &str) -> Result<Native> {
        let (address, key) = spec
            .strip_prefix("native:")
            .and_then(|rest| rest.split_once('\n'))
            .with_context(|| format!("`{spec}` is no target of a worker"))?;
        Ok(Native::new("native", Place { address: address.parse()?, key: key.into() }))
    }
}

impl Target for Native {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn worker(&self, index: usize) -> Result<Box<dyn Worker>> {
        let options = connect::options(&self.place)?;
        let runtime = real::Runtime::new(&format!("bench-{index}"));
        let begin = Session::begin(runtime.env(), options, self.place.address.path.clone());
        let session = runtime.block_on(begin)?;
        Ok(Box::new(NativeWorker { session, runtime }))
    }

    fn process_spec(&self) -> Option<String> {
        let key = std::path::absolute(&self.place.key).ok()?;
        // Another process finds it by the address alone.
        self.place.address.to_string().parse::<crate::address::ShoalAddress>().ok()?;
        Some(format!("native:{}\n{}", self.place.address, key.to_str()?))
    }
}

struct NativeWorker {
    session: Session,
    runtime: real::Runtime,
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

    fn readdir_stat(&mut self, dir: &str) -> Result<Listing> {
        self.runtime.block_on(self.session.list(dir, false))
    }

    fn readdir_plus(&mut self, dir: &str) -> Result<Option<Listing>> {
        self.runtime.block_on(self.session.list(dir, true)).map(Some)
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

/// What lives on the worker's thread. A directory that was used stays resolved, as a program's open directory would.
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
        let root = client.walk(root.as_bytes(), true).await?.handle;
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
        let attr = self.client.lookup(dir, &name).await?;
        Ok(Stat { size: attr.size, is_dir: attr.kind == Kind::Directory })
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
    async fn list(&mut self, dir: &str, plus: bool) -> Result<Listing> {
        let dir = self.dir(dir).await?;
        let mut stream = self.client.opendir(dir);
        let mut listing = Listing::default();
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
