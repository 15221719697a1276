//! A worker process of `shoal bench preload`: it makes calls of the C library, or of the native client, and
//! prints the seconds that they took.

use crate::copy::owner;
use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use shoal_env::real::Runtime;
use shoal_proto::{Handle, Name, Rights};
use shoal_vfs::Connect as _;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::time::Instant;

/// Bytes of a small file, and of a read.
pub const BYTES: usize = 4096;

/// The work of one process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Work {
    /// Open, read and close one file, so many times.
    Opens(PathBuf, u64),
    /// Read the beginning of one open file, so many times.
    Reads(PathBuf, u64),
    /// Start so many processes, each after the one before.
    Starts(u64),
    /// Calls on all files of a directory, by each of so many threads.
    Files(PathBuf, Call, Share),
    /// Make so many files in the root of a ShoalFS, by a native client.
    Fill(String, PathBuf, u64),
    /// Calls as of [`Work::Files`] by as many native clients, each with a thread of its own.
    Native(String, PathBuf, Call, Share),
}

/// The call on a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Call {
    /// Its attributes, by its name.
    Stat,
    /// Open, read and close it.
    Read,
}

/// How many of each.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Share {
    /// Files.
    pub files: u64,
    /// Threads, or clients; each takes all files.
    pub threads: usize,
}

/// The name of a file.
fn name_of(number: u64) -> String {
    format!("f{number}")
}

/// The process's work.
pub fn main() -> Result<()> {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).context("cannot read the job")?;
    let work: Work =
        serde_json::from_str(&line).context("this is no job: `shoal bench preload` starts it")?;
    let seconds = match work {
        Work::Opens(file, calls) => timed(calls, || read_whole(&file))?,
        Work::Reads(path, calls) => {
            let (file, mut into) = (File::open(&path)?, [0; BYTES]);
            timed(calls, || Ok(file.read_exact_at(&mut into, 0)?))?
        }
        Work::Starts(count) => timed(count, start)?,
        Work::Files(dir, call, share) => at_once(share, || by_library(&dir, call))?,
        Work::Fill(address, key, files) => {
            fill(&address, &key, files)?;
            0.0
        }
        Work::Native(address, key, call, share) => at_once(share, || by_client(&address, &key, call))?,
    };
    crate::out::line(format!("{seconds:.9}"))
}

/// Seconds of so many calls; the first one, before them, opens what is opened once.
fn timed(calls: u64, mut call: impl FnMut() -> Result<()>) -> Result<f64> {
    call()?;
    let begun = Instant::now();
    (0..calls).try_for_each(|_| call())?;
    Ok(begun.elapsed().as_secs_f64())
}

fn read_whole(path: &Path) -> Result<()> {
    let mut into = [0; BYTES];
    Ok(File::open(path)?.read_exact_at(&mut into, 0)?)
}

fn start() -> Result<()> {
    let status = Command::new("true").stdin(Stdio::null()).status().context("cannot start `true`")?;
    if !status.success() {
        bail!("`true` ended with {status}");
    }
    Ok(())
}

/// One call on the file of a number.
type OnFile = Box<dyn FnMut(u64) -> Result<()>>;

/// Calls of the C library on a directory's files.
fn by_library(dir: &Path, call: Call) -> Result<OnFile> {
    let dir = dir.to_owned();
    Ok(Box::new(move |number| {
        let path = dir.join(name_of(number));
        match call {
            Call::Stat => std::fs::metadata(&path).map(|_| ())?,
            Call::Read => read_whole(&path)?,
        }
        Ok(())
    }))
}

fn named(number: u64) -> Result<Name> {
    Name::new(name_of(number).as_bytes()).map_err(|_| anyhow::anyhow!("{} is no name", name_of(number)))
}

fn fill(address: &str, key: &Path, files: u64) -> Result<()> {
    let runtime = Runtime::new("fill");
    runtime.block_on(async {
        let vfs = shoal_world::client(address, key)?.connect(runtime.env()).await?;
        for number in 0..files {
            let rights = Rights::READ | Rights::WRITE;
            let (_, _, file) =
                vfs.create(Handle::ROOT, &named(number)?, owner(0o644), true, rights, None).await?;
            file.write(0, Bytes::from_static(&[7; BYTES])).await?;
            file.close().await?;
        }
        vfs.close().await;
        Ok(())
    })
}

/// Calls of a native client on the files of a ShoalFS's root.
fn by_client(address: &str, key: &Path, call: Call) -> Result<OnFile> {
    let runtime = Runtime::new("client");
    let vfs = runtime.block_on(shoal_world::client(address, key)?.connect(runtime.env()))?;
    Ok(Box::new(move |number| {
        let name = named(number)?;
        runtime.block_on(async {
            if call == Call::Stat {
                return Ok(vfs.lookup(Handle::ROOT, &name).await.map(|_| ())?);
            }
            let file = vfs.open_name(Handle::ROOT, &name, Rights::READ).await?;
            let data = file.read(0, BYTES).await?;
            if data.len() != BYTES {
                bail!("{} bytes were read, not {BYTES}", data.len());
            }
            Ok(file.close().await?)
        })
    }))
}

/// Seconds of the slowest of all threads for its calls on all files, from the moment at which all were ready.
fn at_once(share: Share, make: impl Fn() -> Result<OnFile> + Sync) -> Result<f64> {
    let (barrier, make) = (&Barrier::new(share.threads), &make);
    let one = move |thread: u64| -> Result<f64> {
        let ready = make().and_then(|mut call| call(0).map(|()| call));
        // All wait, also where one has failed.
        barrier.wait();
        let (mut call, begun) = (ready?, Instant::now());
        // Each begins at a file of its own.
        let first = share.files * thread / share.threads as u64;
        (0..share.files).try_for_each(|number| call((first + number) % share.files))?;
        Ok(begun.elapsed().as_secs_f64())
    };
    std::thread::scope(|scope| {
        let running: Vec<_> =
            (0..share.threads as u64).map(|thread| scope.spawn(move || one(thread))).collect();
        let mut slowest = 0_f64;
        for thread in running {
            let seconds = thread.join().map_err(|_| anyhow::anyhow!("a thread has panicked"))??;
            slowest = slowest.max(seconds);
        }
        Ok(slowest)
    })
}
