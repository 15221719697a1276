//! Phases that are measured on real clusters, too, so that a simulated machine can be compared with the real
//! one. Each process has files of its own and makes one call after the other; all processes begin each phase
//! together.
//!
//! ```text
//!   create, stat, remove      empty files, one message for each call
//!   write, read               some KiB in files that stay open
//!   large write, large read   a file for each process, block by block
//! ```
//! The calls are those that the native client's benchmarks make; names and attributes are requested each
//! time.

use crate::machine::{Manner, Seat, Simulated, SimulatedError, Told};
use bytes::Bytes;
use shoal_client::{Client, Error};
use shoal_env::Instant;
use shoal_proto::op::Owner;
use shoal_proto::{Handle, Name, Rights};

const OWNER: Owner = Owner { mode: 0o755, uid: 1000, gid: 100 };

/// The measured phases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Empty files are made.
    Create,
    /// Their attributes are requested by name.
    Stat,
    /// They are removed.
    Remove,
    /// Small files are written, open before.
    Write,
    /// And read.
    Read,
    /// A large file is written, block by block.
    LargeWrite,
    /// And read.
    LargeRead,
}

impl Phase {
    /// All of them, in their order.
    pub const ALL: [Phase; 7] = [
        Phase::Create,
        Phase::Stat,
        Phase::Remove,
        Phase::Write,
        Phase::Read,
        Phase::LargeWrite,
        Phase::LargeRead,
    ];

    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Create => "create",
            Phase::Stat => "stat",
            Phase::Remove => "remove",
            Phase::Write => "small write",
            Phase::Read => "small read",
            Phase::LargeWrite => "large write",
            Phase::LargeRead => "large read",
        }
    }
}

/// How much is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkExtent {
    /// Files of each process.
    pub files: u32,
    /// Bytes of a small one.
    pub small_bytes: usize,
    /// Bytes of a large one; a multiple of the block. 0: none is written.
    pub large_bytes: u64,
    /// Bytes of a block of it.
    pub block_bytes: usize,
}

/// A phase of one process: from when to when, and operations (of large files 10^6 bytes).
#[derive(Clone, Copy, Debug, PartialEq)]
struct Timing {
    phase: Phase,
    begun: Instant,
    ended: Instant,
    done: f64,
}

/// A phase of all: operations (of large files 10^6 bytes) a second, from the first one's beginning to the
/// last one's end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Which.
    pub phase: Phase,
    /// The rate.
    pub per_s: f64,
}

/// All phases on a simulated cluster, and the facts of the run.
///
/// # Errors
/// See [`SimulatedError`]. An operation that fails fails the run.
pub fn run(of: &Simulated<'_>, extent: WorkExtent) -> Result<(Vec<Rate>, Told<()>), SimulatedError> {
    let told = of.run_told(&Manner::uncached(), move |seat| one(seat, extent))?;
    let mut timings = Vec::new();
    for one in told.values {
        timings.push(one.map_err(SimulatedError::Operation)?);
    }
    let rate = |phase: Phase| {
        let of_phase: Vec<&Timing> =
            timings.iter().flatten().filter(|timing| timing.phase == phase).collect();
        let begun = of_phase.iter().map(|timing| timing.begun).min()?;
        let ended = of_phase.iter().map(|timing| timing.ended).max()?;
        let done: f64 = of_phase.iter().map(|timing| timing.done).sum();
        Some(Rate { phase, per_s: done / ended.since(begun).as_secs_f64() })
    };
    let rates = Phase::ALL.into_iter().filter_map(rate).collect();
    let told = Told { values: Vec::new(), trace_hash: told.trace_hash, took: told.took, events: told.events };
    Ok((rates, told))
}

/// One process.
async fn one(seat: Seat, extent: WorkExtent) -> Result<Vec<Timing>, String> {
    let done = phases(&seat, extent).await;
    done.map_err(|error| format!("process {}: {error}", seat.index))
}

/// The clock of a process: where its phases begin and end.
struct Watch<'a> {
    seat: &'a Seat,
    timings: Vec<Timing>,
}

impl Watch<'_> {
    async fn begin(&self) -> Instant {
        self.seat.together.wait().await;
        self.seat.env.now()
    }

    async fn end(&mut self, phase: Phase, begun: Instant, done: f64) {
        let ended = self.seat.env.now();
        self.timings.push(Timing { phase, begun, ended, done });
        self.seat.together.wait().await;
    }
}

async fn phases(seat: &Seat, extent: WorkExtent) -> Result<Vec<Timing>, Error> {
    let client = &seat.client;
    let made = client.mkdir(Handle::ROOT, &name(&format!("p{}", seat.index)), OWNER).await?;
    let mut watch = Watch { seat, timings: Vec::new() };
    empty(client, made.handle, extent, &mut watch).await?;
    small(client, made.handle, extent, &mut watch).await?;
    if extent.large_bytes > 0 {
        large(client, made.handle, extent, &mut watch).await?;
    }
    Ok(watch.timings)
}

fn name(text: &str) -> Name {
    // The names written here are short and have no slash.
    Name::new(text.as_bytes()).unwrap_or_else(|_| unreachable!("`{text}` is a name"))
}

fn file(number: u32) -> Name {
    name(&format!("f{number:07}"))
}

async fn empty(client: &Client, dir: Handle, extent: WorkExtent, watch: &mut Watch<'_>) -> Result<(), Error> {
    let files = f64::from(extent.files);
    let begun = watch.begin().await;
    for number in 0..extent.files {
        client.create_write(dir, &file(number), OWNER, Bytes::new(), None).await?;
    }
    watch.end(Phase::Create, begun, files).await;
    let begun = watch.begin().await;
    for number in 0..extent.files {
        client.lookup(dir, &file(number)).await?;
    }
    watch.end(Phase::Stat, begun, files).await;
    let begun = watch.begin().await;
    for number in 0..extent.files {
        client.unlink(dir, &file(number)).await?;
    }
    watch.end(Phase::Remove, begun, files).await;
    Ok(())
}

async fn small(client: &Client, dir: Handle, extent: WorkExtent, watch: &mut Watch<'_>) -> Result<(), Error> {
    let data = Bytes::from(vec![7; extent.small_bytes]);
    let mut open = Vec::new();
    for number in 0..extent.files {
        open.push(
            client.create(dir, &file(number), OWNER, true, Rights::READ | Rights::WRITE, None).await?.2,
        );
    }
    let begun = watch.begin().await;
    for file in &open {
        file.write(0, data.clone()).await?;
    }
    watch.end(Phase::Write, begun, f64::from(extent.files)).await;
    let begun = watch.begin().await;
    for file in &open {
        file.read(0, extent.small_bytes).await?;
    }
    watch.end(Phase::Read, begun, f64::from(extent.files)).await;
    Ok(())
}

async fn large(client: &Client, dir: Handle, extent: WorkExtent, watch: &mut Watch<'_>) -> Result<(), Error> {
    let data = Bytes::from(vec![7; extent.block_bytes]);
    let blocks = extent.large_bytes / extent.block_bytes.max(1) as u64;
    let megabytes = (blocks * extent.block_bytes as u64) as f64 / 1e6;
    let file = client.create(dir, &name("large"), OWNER, true, Rights::READ | Rights::WRITE, None).await?.2;
    let begun = watch.begin().await;
    for block in 0..blocks {
        file.write(block * extent.block_bytes as u64, data.clone()).await?;
    }
    watch.end(Phase::LargeWrite, begun, megabytes).await;
    let begun = watch.begin().await;
    for block in 0..blocks {
        file.read(block * extent.block_bytes as u64, extent.block_bytes).await?;
    }
    watch.end(Phase::LargeRead, begun, megabytes).await;
    Ok(())
}
