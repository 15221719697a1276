//! Random programs of Galley's calls, and the model that they are compared with: one array of bytes for each
//! fork.
//!
//! ```text
//!   alone    calls of any shape on forks and on a striped file ── each equal to its single reads and
//!            writes, in order; without waiting, up to four are under way, as long as none touches bytes of
//!            another
//!   shared   several clients of one fork, each in records of its own ── each reads its own bytes, none of
//!            the others' and none that never were there
//! ```
//! A seed makes the same programs again.

mod calls;
mod shared;

pub use shared::run_shared;

use calls::{Background, Call, Pieces, calls};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use shoal_client::Client;
use shoal_galley::{Errno, ForkId, Galley, OperationHandle, SharedBuffer};
use shoal_proto::{Handle, Name, Owner, Rights};
use std::fmt::Debug;

/// Owner of the files.
pub const DIR: Owner = Owner { mode: 0o755, uid: 0, gid: 0 };
/// Bytes of the buffers.
const ROOM: usize = 4096;
/// Where memory offsets count from.
const ORIGIN: usize = 1024;
/// Operations without waiting under way at once.
const UNDER_WAY_MAX: usize = 4;
/// One step of a program.
#[derive(Clone, Debug)]
pub struct Step {
    fork: usize,
    is_write: bool,
    is_blocking: bool,
    call: Call,
}

fn steps(strip: u64) -> impl Strategy<Value = Vec<Step>> {
    let step = (0..3_usize, any::<bool>(), any::<bool>(), calls(strip));
    let step =
        step.prop_map(|(fork, is_write, is_blocking, call)| Step { fork, is_write, is_blocking, call });
    prop::collection::vec(step, 1..24)
}

/// Programs in their order, from a seed.
pub struct Programs {
    runner: TestRunner,
    strip: u64,
    made: u64,
}

impl Programs {
    /// Striped files have strips of `strip` bytes.
    pub fn new(seed: u64, strip: u64) -> Programs {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        let config = Config { failure_persistence: None, ..Config::default() };
        Programs { runner: TestRunner::new_with_rng(config, rng), strip, made: 0 }
    }

    fn next<T: Debug>(&mut self, of: impl Strategy<Value = T>) -> T {
        self.made += 1;
        of.new_tree(&mut self.runner).unwrap().current()
    }
}

/// Bytes without a zero.
fn noise(seed: usize) -> Vec<u8> {
    (0..ROOM).map(|at| (at * 31 + seed * 17 + at / 7) as u8 | 1).collect()
}

fn end_of(pieces: &Pieces) -> u64 {
    pieces.iter().map(|&(file, _, size)| file + size as u64).max().unwrap_or(0)
}

/// An operation that is not waited for yet.
struct UnderWay {
    fork: usize,
    is_write: bool,
    pieces: Pieces,
    handle: OperationHandle,
    buf: SharedBuffer,
    moved: u64,
    /// The buffer after a read.
    after: Vec<u8>,
    call: Call,
}

#[derive(Default)]
struct Model {
    bytes: Vec<u8>,
    /// Bytes that the fork has whatever becomes of the operations under way.
    settled: u64,
}

impl Model {
    fn write(&mut self, pieces: &Pieces, from: &[u8]) -> u64 {
        for &(file, memory, size) in pieces {
            let end = file as usize + size;
            if self.bytes.len() < end {
                self.bytes.resize(end, 0);
            }
            self.bytes[file as usize..end].copy_from_slice(&from[memory..memory + size]);
        }
        pieces.iter().map(|piece| piece.2 as u64).sum()
    }

    fn read(&self, pieces: &Pieces, to: &mut [u8]) -> u64 {
        let mut moved = 0;
        for &(file, memory, size) in pieces {
            let from = (file as usize).min(self.bytes.len());
            let end = (file as usize + size).min(self.bytes.len());
            to[memory..memory + (end - from)].copy_from_slice(&self.bytes[from..end]);
            moved += (end - from) as u64;
        }
        moved
    }
}

/// Whether the result of one depends on the order of the two, of one fork.
fn conflict(settled: u64, one: (bool, &Pieces), other: (bool, &Pieces)) -> bool {
    if !one.0 && !other.0 {
        return false;
    }
    let overlaps = one.1.iter().any(|&(file, _, size)| {
        let end = file + size as u64;
        other.1.iter().any(|&(at, _, len)| file < at + len as u64 && at < end)
    });
    // A read after the end beside a write that moves it.
    let is_at_end = one.0 != other.0 && end_of(one.1) > settled && end_of(other.1) > settled;
    overlaps || is_at_end
}

fn same<T: PartialEq + Debug>(found: T, expected: T, of: &impl Debug) -> Result<(), String> {
    if found == expected { Ok(()) } else { Err(format!("{found:?}, not {expected:?}: {of:?}")) }
}

struct Run<'a> {
    galley: &'a Galley<Client>,
    forks: &'a [ForkId],
    models: Vec<Model>,
    under_way: Vec<UnderWay>,
}

impl Run<'_> {
    async fn drain(&mut self) -> Result<(), String> {
        // Their order is another one than that in which they began.
        while let Some(one) = self.under_way.pop() {
            same(self.galley.gfs_wait(&one.handle).await, Ok(one.moved), &one.call)?;
            if !one.is_write {
                same(one.buf.to_vec() == one.after, true, &one.call)?;
            }
        }
        self.models.iter_mut().for_each(|model| model.settled = model.bytes.len() as u64);
        Ok(())
    }

    async fn step(&mut self, number: usize, step: &Step) -> Result<(), String> {
        let Step { fork, is_write, is_blocking, call } = step;
        let fork = fork % self.forks.len();
        let id = self.forks[fork];
        let mut buf = noise(number);
        let handle = self.galley.gfs_new_handle();
        let on = Background { galley: self.galley, handle: &handle };
        let Some(pieces) = call.pieces() else {
            let shared = SharedBuffer::at(buf.clone(), ORIGIN);
            let done = match (is_write, is_blocking) {
                (true, true) => call.write(self.galley, id, &buf).await.map(drop),
                (false, true) => call.read(self.galley, id, &mut buf).await.map(drop),
                (true, false) => call.begin_write(&on, id, &shared),
                (false, false) => call.begin_read(&on, id, &shared),
            };
            return same(done, Err(Errno::Invalid), call);
        };
        let settled = self.models[fork].settled;
        let is_in_the_way = |one: &UnderWay| {
            one.fork == fork && conflict(settled, (*is_write, &pieces), (one.is_write, &one.pieces))
        };
        if self.under_way.len() == UNDER_WAY_MAX || self.under_way.iter().any(is_in_the_way) {
            self.drain().await?;
        }
        let model = &mut self.models[fork];
        let mut after = buf.clone();
        let moved = if *is_write { model.write(&pieces, &buf) } else { model.read(&pieces, &mut after) };
        match (is_write, is_blocking) {
            (true, true) => return same(call.write(self.galley, id, &buf).await, Ok(moved), call),
            (false, true) => {
                same(call.read(self.galley, id, &mut buf).await, Ok(moved), call)?;
                return same(buf == after, true, call);
            }
            _ => {}
        }
        let shared = SharedBuffer::at(buf, ORIGIN);
        let begin =
            || if *is_write { call.begin_write(&on, id, &shared) } else { call.begin_read(&on, id, &shared) };
        same(begin(), Ok(()), call)?;
        same(begin(), Err(Errno::Busy), call)?;
        let (is_write, call) = (*is_write, call.clone());
        self.under_way.push(UnderWay { fork, is_write, pieces, handle, buf: shared, moved, after, call });
        Ok(())
    }
}

/// Do a program; then all forks are as the model has them.
async fn run(galley: &Galley<Client>, forks: &[ForkId], program: &[Step]) -> Result<(), String> {
    let models = forks.iter().map(|_| Model::default()).collect();
    let mut run = Run { galley, forks, models, under_way: Vec::new() };
    for (number, step) in program.iter().enumerate() {
        run.step(number, step).await?;
    }
    run.drain().await?;
    for (&id, model) in forks.iter().zip(&run.models) {
        let mut whole = vec![1; model.bytes.len() + 9];
        let len = whole.len() as u64;
        same(galley.gfs_read(id, &mut whole[..], 0, len).await, Ok(len - 9), &"the whole fork")?;
        same(whole[..model.bytes.len()] == model.bytes, true, &"the whole fork")?;
    }
    Ok(())
}

/// An ordinary file, for the same calls.
async fn linear(client: &Client, name: &str) {
    let name = Name::new(name.as_bytes()).unwrap();
    client.create(Handle::ROOT, &name, DIR, true, Rights::WRITE, None).await.unwrap();
}

/// Do so many programs of one client, on two forks and a striped file.
///
/// # Errors
/// The first difference, and its program.
pub async fn run_alone(
    client: &Client,
    galley: &Galley<Client>,
    programs: &mut Programs,
    count: usize,
) -> Result<(), String> {
    galley.gfs_create_file(b"alone", None, 2, DIR).await.unwrap();
    let file = galley.gfs_open_file(b"alone").await.unwrap();
    for _ in 0..count {
        let program = programs.next(steps(programs.strip));
        let fork = format!("fork {}", programs.made);
        galley.gfs_all_create(file, fork.as_bytes()).await.unwrap();
        let mut forks = galley.gfs_all_open(file, fork.as_bytes()).await.unwrap();
        linear(client, "linear").await;
        forks.push(galley.open_linear(b"linear").await.unwrap());
        run(galley, &forks, &program).await.map_err(|why| format!("{why}\n{program:#?}"))?;
        galley.gfs_all_close(&forks).await.unwrap();
        galley.gfs_all_delete(file, fork.as_bytes()).await.unwrap();
        client.unlink(Handle::ROOT, &Name::new(b"linear").unwrap()).await.unwrap();
    }
    galley.gfs_close_file(file).unwrap();
    galley.gfs_delete_file(b"alone").await.unwrap();
    Ok(())
}
