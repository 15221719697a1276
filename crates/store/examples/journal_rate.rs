//! How many small creates a second the store commits: N concurrent creators, each applying batches of four
//! rows and waiting until they are durable, with and without 8 KiB of content.
//!
//! `cargo run --release -p shoal-store --example journal_rate -- [DIR] [CREATORS] [SECONDS]`

use shoal_env::{Env, WallTime, real};
use shoal_proto::{Handle, ServerId};
use shoal_store::{
    Ask, Changes, Collection, CollectionConfig, Identity, ModuleKind, StoreError, StreamChange, open,
};
use std::cell::Cell;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

fn main() {
    let mut args = std::env::args().skip(1);
    let dir = PathBuf::from(args.next().unwrap_or_else(|| "journal-rate".into()));
    let creators: u64 = args.next().and_then(|n| n.parse().ok()).unwrap_or(64);
    let seconds: u64 = args.next().and_then(|n| n.parse().ok()).unwrap_or(4);
    for content in [0, 8192] {
        let dir = dir.join(content.to_string());
        let measured = real::run("rate", |env| measure(env, dir, creators, seconds, content));
        if let Err(error) = measured {
            eprintln!("{error}");
        }
    }
}

async fn measure(
    env: Env,
    dir: PathBuf,
    creators: u64,
    seconds: u64,
    content: usize,
) -> Result<(), StoreError> {
    let config = CollectionConfig::new(dir, ModuleKind::Disk, Identity::default());
    let store = open(env.clone(), config).await?;
    let next = Rc::new(Cell::new(store.applied().0 * 1000));
    let stop = Rc::new(Cell::new(false));
    for _ in 0..creators {
        let (store, next, stop) = (store.clone(), next.clone(), stop.clone());
        env.spawn("creator", async move {
            while !stop.get() {
                next.set(next.get() + 1);
                if let Err(error) = create(&store, next.get(), content).await {
                    eprintln!("{error}");
                    return;
                }
            }
        });
    }
    let (before, began, cpu) = (store.counters(), env.now(), cpu_time());
    env.sleep(Duration::from_secs(seconds)).await;
    let (after, span) = (store.counters(), env.now().since(began).as_secs_f64());
    let cpu_us = (cpu_time() - cpu) * 1e6;
    stop.set(true);
    let batches = (after.batches - before.batches) as f64;
    println!(
        "{content:5} B, {creators} creators: {:.0} batches/s, {:.0} syncs/s, {:.1} batches a group, {:.1} us CPU a batch \
         (all threads), {} checkpoints",
        batches / span,
        (after.group_syncs - before.group_syncs) as f64 / span,
        batches / (after.groups - before.groups).max(1) as f64,
        cpu_us / batches,
        after.checkpoints - before.checkpoints,
    );
    store.close().await
}

async fn create(store: &Collection, n: u64, content: usize) -> Result<(), StoreError> {
    let ask = Ask { journal_bytes: 600 + content as u64, ..Ask::default() };
    let _admission = store.admit(ask).await?;
    let mut changes = Changes::default();
    let handle = Handle::new(ServerId(1), n);
    changes.put([b"A".as_slice(), &n.to_be_bytes()].concat(), vec![1; 96]);
    changes.put(
        [b"D", n.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes().as_slice(), b"name"].concat(),
        vec![2; 16],
    );
    changes.put([b"R", (n % 64).to_be_bytes().as_slice()].concat(), vec![3; 64]);
    changes.stream(handle, StreamChange::Create { generation: 1 });
    if content > 0 {
        let bytes = bytes::Bytes::from(vec![n as u8; content]);
        let size = content as u64;
        changes.stream(handle, StreamChange::Put { content: bytes, size, written_at: WallTime(1) });
    }
    let lsn = store.apply(changes)?;
    loop {
        let moved = store.progress().wait();
        store.health()?;
        if store.durable() >= lsn {
            return Ok(());
        }
        moved.await;
    }
}

/// Seconds of CPU of the whole process.
fn cpu_time() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let behind = stat.rsplit(')').next().unwrap_or_default();
    let ticks =
        |at: usize| behind.split_whitespace().nth(at).and_then(|n| n.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / 100.0
}
