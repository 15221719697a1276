//! Measures a file call that a thread of a pool makes for the thread of a server: a durable write, like a
//! write of the journal.
//!
//! ```text
//!   client ── asks ──▶ thread that serves ── hands over ──▶ thread of the pool ── O_DIRECT|O_DSYNC ──▶ disk
//!          ◀─ answers ─                   ◀──── wakes ─────
//! ```
//! The processor time of a call is measured with several calls at once. Its waiting time is the difference
//! between two waits of a single client: the wait for a durable answer and the wait for a plain answer.
//! Between two such writes the disk has become idle, and so have the cores of all three threads; a loop of
//! writes alone would not include that.

use crate::lab::commands::bench::cluster::Scratch;
use anyhow::{Context as _, Result, anyhow};
use shoal_bench::{Spread, counts};
use shoal_env::{Address, AlignedBuf, Env, File, OpenOptions, real};
use std::io::{IoSlice, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Bytes of the file whose writes another thread makes.
const FILE_BYTES: u64 = 4 << 20;
/// Writes at once.
const FILE_CALLS: u64 = 4;
/// A request, and a reply.
const MESSAGE_BYTES: usize = 64;
/// The first byte of a request for something durable, and for nothing.
const DURABLE: u8 = 1;
const PLAIN: u8 = 0;

/// Its cost.
pub struct FileCall {
    /// Processor time of each, microseconds.
    pub cpu_us: f64,
    /// How long a client waits for it, alone.
    pub alone_us: f64,
}

impl FileCall {
    /// Both, for so long each.
    pub fn measure(folder: &Path, span: Duration) -> Result<FileCall> {
        let scratch = Scratch::new(Some(folder))?;
        let path = scratch.path().join("file");
        let words = "cannot write a file to measure calls with";
        std::fs::write(&path, vec![1; FILE_BYTES as usize]).context(words)?;
        // As journals are: its blocks are on the disk.
        std::fs::File::open(&path).and_then(|file| file.sync_all()).context(words)?;
        let cpu_us = on_a_runtime(path.clone(), |_, file| calls(file, span))?;
        Ok(FileCall { cpu_us, alone_us: asked(path, span)? })
    }
}

/// Run `body` on a runtime of its own, with the file.
fn on_a_runtime<T, F: Future<Output = Result<T>>>(
    path: PathBuf,
    body: impl FnOnce(Env, File) -> F,
) -> Result<T> {
    let runtime = real::Runtime::new("bounds");
    let env = runtime.env();
    runtime.block_on(async move {
        let options = OpenOptions { direct: true, dsync: true, ..OpenOptions::default() };
        let file = env.open(&path, options).await?;
        body(env, file).await
    })
}

/// A page, made durable.
async fn write(file: &File, call: u64) -> Result<()> {
    let at = call * AlignedBuf::ALIGN as u64 % FILE_BYTES;
    Ok(file.write_aligned(at, AlignedBuf::zeroed(AlignedBuf::ALIGN)).await.1?)
}

/// Some at once, repeatedly: processor time of a call.
async fn calls(file: File, span: Duration) -> Result<f64> {
    let (begun, used_us, mut done) = (Instant::now(), counts::cpu_us_here(), 0_u64);
    while begun.elapsed() < span || done == 0 {
        let all = (done..done + FILE_CALLS).map(|call| write(&file, call));
        futures_util::future::try_join_all(all).await?;
        done += FILE_CALLS;
    }
    Ok((counts::cpu_us_here() - used_us) as f64 / done as f64)
}

/// The additional wait of a client for a durable answer.
fn asked(path: PathBuf, span: Duration) -> Result<f64> {
    // Sockets' paths are short, whatever folder is meant.
    let scratch = Scratch::new(None)?;
    let socket = scratch.path().join("socket");
    let (tell, listens) = mpsc::channel();
    let at = socket.clone();
    let server = std::thread::spawn(move || on_a_runtime(path, |env, file| served(env, file, at, tell)));
    if listens.recv().is_ok() {
        let mut line = UnixStream::connect(&socket).context("cannot ask for a durable write")?;
        let (plain, durable) = (trips_us(&mut line, PLAIN, span)?, trips_us(&mut line, DURABLE, span)?);
        drop(line);
        joined(server)?;
        return Ok((durable - plain).max(0.0));
    }
    joined(server)?;
    Err(anyhow!("the thread that writes durably ended before it began"))
}

fn joined(server: std::thread::JoinHandle<Result<()>>) -> Result<()> {
    server.join().unwrap_or_else(|_| Err(anyhow!("the thread that writes durably panicked")))
}

/// The thread that serves, until its only client is gone.
async fn served(env: Env, file: File, at: PathBuf, tell: mpsc::Sender<()>) -> Result<()> {
    let mut listener = env.listen(&Address::Unix(at)).await?;
    let _ = tell.send(());
    let mut client = listener.accept().await?;
    let (mut request, mut got, mut call) = ([0; MESSAGE_BYTES], 0, 0);
    loop {
        got += match client.reader.read(&mut request[got..]).await? {
            0 => return Ok(()),
            n => n,
        };
        if got < MESSAGE_BYTES {
            continue;
        }
        if request[0] == DURABLE {
            write(&file, call).await?;
            call += 1;
        }
        client.writer.write_all(&mut [IoSlice::new(&request)]).await?;
        got = 0;
    }
}

/// The middle one of the round trips of so long.
fn trips_us(line: &mut UnixStream, what: u8, span: Duration) -> Result<f64> {
    let (mut message, begun, mut all_us) = ([what; MESSAGE_BYTES], Instant::now(), Vec::new());
    while begun.elapsed() < span || all_us.is_empty() {
        let asked = Instant::now();
        line.write_all(&message)?;
        line.read_exact(&mut message)?;
        all_us.push(asked.elapsed().as_secs_f64() * 1e6);
    }
    Ok(Spread::of(&all_us).context("nothing was answered")?.median)
}
