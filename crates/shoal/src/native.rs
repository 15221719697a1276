//! The native client as a target of benchmarks: one worker is one thread with a client of its own.
//!
//! A worker's methods block; the client is asynchronous and bound to its thread. So each call is sent to the worker's
//! thread as a request and its answer waited for: the cost of two hops between threads is part of what is measured, and
//! is said so in `docs/PERFORMANCE.md`.

use crate::address::Place;
use crate::connect;
use anyhow::{Context as _, Result, anyhow, bail};
use bytes::Bytes;
use futures_channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures_util::StreamExt as _;
use shoal_bench::{FileId, Listing, OpenMode, Stat, Target, Worker};
use shoal_client::{Client, OpenFile, Options};
use shoal_env::{Env, real};
use shoal_proto::{Handle, Kind, Name, Rights};
use std::collections::BTreeMap;
use std::sync::mpsc;
use std::thread::JoinHandle;

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
        let root = self.place.address.path.clone();
        let (send, receive) = unbounded();
        let (ready, begun) = mpsc::channel();
        let thread = real::spawn_thread(&format!("bench-{index}"), move |env| async move {
            match Session::begin(env, options, root).await {
                Ok(session) => {
                    let _ = ready.send(Ok(()));
                    session.serve(receive).await;
                }
                Err(error) => {
                    let _ = ready.send(Err(error));
                }
            }
        });
        let thread = thread.context("cannot start a worker's thread")?;
        begun.recv().unwrap_or_else(|_| Err(anyhow!("the worker's thread ended")))?;
        Ok(Box::new(NativeWorker { send: Some(send), thread: Some(thread) }))
    }

    fn process_spec(&self) -> Option<String> {
        let key = std::path::absolute(&self.place.key).ok()?;
        // Another process finds it by the address alone.
        self.place.address.to_string().parse::<crate::address::ShoalAddress>().ok()?;
        Some(format!("native:{}\n{}", self.place.address, key.to_str()?))
    }
}

/// A call.
enum Call {
    Mkdir(String),
    Create(String),
    Open(String, OpenMode),
    Write(FileId, u64, Bytes),
    Read(FileId, u64, usize),
    Stat(String),
    List { dir: String, plus: bool },
    Fsync(FileId),
    Close(FileId),
    Remove(String),
    Rmdir(String),
}

/// Its answer.
enum Answer {
    Done,
    File(FileId),
    Data(Bytes),
    Stat(Stat),
    Listing(Listing),
}

type Sent = (Call, mpsc::SyncSender<Result<Answer>>);

struct NativeWorker {
    send: Option<UnboundedSender<Sent>>,
    thread: Option<JoinHandle<()>>,
}

impl NativeWorker {
    fn call(&self, call: Call) -> Result<Answer> {
        let (answer, answered) = mpsc::sync_channel(1);
        let sender = self.send.as_ref().context("the worker has ended")?;
        sender.unbounded_send((call, answer)).map_err(|_| anyhow!("the worker's thread ended"))?;
        answered.recv().map_err(|_| anyhow!("the worker's thread ended"))?
    }

    fn done(&self, call: Call) -> Result<()> {
        self.call(call).map(drop)
    }
}

impl Drop for NativeWorker {
    fn drop(&mut self) {
        drop(self.send.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// An answer of another kind cannot be: the call decides it.
fn unfit<T>() -> Result<T> {
    bail!("the answer does not fit the call")
}

impl Worker for NativeWorker {
    fn mkdir(&mut self, path: &str) -> Result<()> {
        self.done(Call::Mkdir(path.to_owned()))
    }

    fn create(&mut self, path: &str) -> Result<FileId> {
        if let Answer::File(file) = self.call(Call::Create(path.to_owned()))? { Ok(file) } else { unfit() }
    }

    fn open(&mut self, path: &str, mode: OpenMode) -> Result<FileId> {
        if let Answer::File(file) = self.call(Call::Open(path.to_owned(), mode))? {
            Ok(file)
        } else {
            unfit()
        }
    }

    fn write(&mut self, file: FileId, offset: u64, data: &[u8]) -> Result<()> {
        self.done(Call::Write(file, offset, Bytes::copy_from_slice(data)))
    }

    fn read(&mut self, file: FileId, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let Answer::Data(data) = self.call(Call::Read(file, offset, buf.len()))? else { return unfit() };
        let space = buf.get_mut(..data.len()).context("more was read than asked for")?;
        space.copy_from_slice(&data);
        Ok(data.len())
    }

    fn stat(&mut self, path: &str) -> Result<Stat> {
        if let Answer::Stat(stat) = self.call(Call::Stat(path.to_owned()))? { Ok(stat) } else { unfit() }
    }

    fn readdir_stat(&mut self, dir: &str) -> Result<Listing> {
        let call = Call::List { dir: dir.to_owned(), plus: false };
        if let Answer::Listing(listing) = self.call(call)? { Ok(listing) } else { unfit() }
    }

    fn readdir_plus(&mut self, dir: &str) -> Result<Option<Listing>> {
        let call = Call::List { dir: dir.to_owned(), plus: true };
        if let Answer::Listing(listing) = self.call(call)? { Ok(Some(listing)) } else { unfit() }
    }

    fn fsync(&mut self, file: FileId) -> Result<()> {
        self.done(Call::Fsync(file))
    }

    fn close(&mut self, file: FileId) -> Result<()> {
        self.done(Call::Close(file))
    }

    fn remove(&mut self, path: &str) -> Result<()> {
        self.done(Call::Remove(path.to_owned()))
    }

    fn rmdir(&mut self, path: &str) -> Result<()> {
        self.done(Call::Rmdir(path.to_owned()))
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

    async fn serve(mut self, mut calls: UnboundedReceiver<Sent>) {
        while let Some((call, answer)) = calls.next().await {
            let _ = answer.send(self.run(call).await);
        }
        self.files.clear();
        self.client.close().await;
    }

    async fn run(&mut self, call: Call) -> Result<Answer> {
        match call {
            Call::Mkdir(path) => {
                let (dir, name) = self.place(&path).await?;
                let made = self.client.mkdir(dir, &name, crate::copy::owner(0o755)).await?;
                self.dirs.insert(path, made.handle);
                Ok(Answer::Done)
            }
            Call::Create(path) => {
                let (dir, name) = self.place(&path).await?;
                let (rights, owner) = (Rights::READ | Rights::WRITE, crate::copy::owner(0o644));
                let made = self.client.create(dir, &name, owner, true, rights, None).await?;
                Ok(self.keep(made.2))
            }
            Call::Open(path, mode) => {
                let (dir, name) = self.place(&path).await?;
                let handle = self.client.lookup(dir, &name).await?.handle;
                let rights = if mode.write { Rights::READ | Rights::WRITE } else { Rights::READ };
                Ok(self.keep(self.client.open(handle, rights).await?))
            }
            Call::Write(file, offset, data) => {
                self.file(file)?.write(offset, data).await?;
                Ok(Answer::Done)
            }
            Call::Read(file, offset, len) => Ok(Answer::Data(self.file(file)?.read(offset, len).await?)),
            Call::Stat(path) => {
                let (dir, name) = self.place(&path).await?;
                let attr = self.client.lookup(dir, &name).await?;
                Ok(Answer::Stat(Stat { size: attr.size, is_dir: attr.kind == Kind::Directory }))
            }
            Call::List { dir, plus } => self.list(&dir, plus).await.map(Answer::Listing),
            Call::Fsync(file) => {
                self.file(file)?.fsync().await?;
                Ok(Answer::Done)
            }
            Call::Close(file) => {
                let file = self.files.remove(&file.0).context("no such open file")?;
                file.close().await?;
                Ok(Answer::Done)
            }
            Call::Remove(path) => {
                let (dir, name) = self.place(&path).await?;
                self.client.unlink(dir, &name).await?;
                Ok(Answer::Done)
            }
            Call::Rmdir(path) => {
                let (dir, name) = self.place(&path).await?;
                self.client.rmdir(dir, &name).await?;
                self.dirs.remove(&path);
                Ok(Answer::Done)
            }
        }
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

    fn keep(&mut self, file: OpenFile) -> Answer {
        self.next += 1;
        self.files.insert(self.next, file);
        Answer::File(FileId(self.next))
    }

    fn file(&self, file: FileId) -> Result<&OpenFile> {
        self.files.get(&file.0).context("no such open file")
    }
}
