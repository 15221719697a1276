//! A crowd: clients that each want a great many tiny records of one file at the same moment.
//!
//! The server keeps their requests as patterns, expands a burst at a time and sends pieces within one budget
//! for all connections, so its memory does not grow with the records wanted. With `SHOAL_CROWD=1`: 1,000
//! connections and a million records each, and the times of another client's `stat` (`--nocapture` shows
//! them, no test judges them).

use crate::program::*;
use futures_util::future::join_all;
use shoal_client::{Client, Options};
use shoal_env::{Env, raise_open_files, real};
use shoal_pattern::Pattern;
use shoal_proto::op::Owner;
use shoal_proto::{Handle, Name, Rights};
use std::time::Duration;

const OWNER: Owner = Owner { mode: 0o755, uid: 0, gid: 0 };
/// Bytes of the server's block cache, as it is set by default.
const CACHE_BYTES: u64 = 32 << 20;
/// `stat`s of the other client.
const STATS: usize = 1000;

/// Connections, records of each, and the bytes by which the server may grow beside its cache.
fn sizes() -> (usize, u64, u64) {
    match std::env::var_os("SHOAL_CROWD") {
        Some(_) => (1000, 1_000_000, 512 << 20),
        None => (200, 50_000, 128 << 20),
    }
}

/// A line of the kernel's account of a process, in bytes.
fn memory(of: &Serving, line: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/status", of.child.id())).unwrap();
    let value = text.lines().find_map(|found| found.strip_prefix(line)?.strip_prefix(':'));
    value.and_then(|kib| kib.split_whitespace().next()?.parse::<u64>().ok()).unwrap() << 10
}

/// One connection: every second byte of the file.
async fn member(env: Env, options: Options, file: Handle, records: u64) {
    let client = Client::connect(env, options).await.unwrap();
    let file = client.open(file, Rights::READ).await.unwrap();
    let pattern = Pattern::strided(0, 1, 2, records).unwrap();
    let bytes = file.read_pattern(&pattern).await.unwrap();
    assert!(bytes.len() as u64 == records && bytes.iter().all(|byte| *byte == 7));
    drop(bytes);
    file.close().await.unwrap();
    client.close().await;
}

/// The times of another client's `stat`s, one after the other.
async fn stats(env: &Env, options: Options, file: Handle) -> Vec<Duration> {
    let options = Options { attr_cache: Duration::ZERO, ..options };
    let client = Client::connect(env.clone(), options).await.unwrap();
    let mut times = Vec::new();
    for _ in 0..STATS {
        let began = env.now();
        client.getattr(file).await.unwrap();
        times.push(env.now().since(began));
    }
    client.close().await;
    times.sort_unstable();
    times
}

#[test]
fn a_thousand_connections_that_want_tiny_records_do_not_fill_the_servers_memory() {
    let (connections, records, growth_max) = sizes();
    raise_open_files(4 * connections as u64);
    let home = Home::new();
    let up = Serving::start(&["up", &home.text("data")]);
    // A transfer of this crowd may take long on a machine that does something else, too.
    let options =
        Options { timeout: Duration::from_secs(600), ..options(up.server(), &home.path("data/key")) };
    let before = memory(&up, "VmRSS");
    let times = real::run("clients", |env| async move {
        let client = Client::connect(env.clone(), options.clone()).await.unwrap();
        let name = Name::new(b"f").unwrap();
        let made = client.create(Handle::ROOT, &name, OWNER, true, Rights::WRITE, None).await.unwrap();
        let (file, open) = (made.0.handle, made.2);
        open.write(0, vec![7; 2 * records as usize].into()).await.unwrap();
        open.close().await.unwrap();
        let members: Vec<_> =
            (0..connections).map(|_| member(env.clone(), options.clone(), file, records)).collect();
        // From a thread of its own: the others' records are put together in this one.
        let other = std::thread::spawn(move || {
            real::run("other", |env| async move { stats(&env, options, file).await })
        });
        join_all(members).await;
        client.close().await;
        other.join().unwrap()
    });
    let grown = memory(&up, "VmHWM").saturating_sub(before);
    println!(
        "{connections} connections, {records} records each: the server grew by {} MiB; stat p50 {:?}, p99 {:?}",
        grown >> 20,
        times[STATS / 2],
        times[STATS * 99 / 100]
    );
    assert!(grown <= CACHE_BYTES + growth_max, "the server grew by {} MiB", grown >> 20);
    up.stop();
}
