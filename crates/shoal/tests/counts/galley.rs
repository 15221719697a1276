//! Galley's calls: every shape moves the bytes that single reads and writes move, on forks and on a striped
//! file.

use crate::cluster::{Cluster, STRIP};
use crate::cost::Meter;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, TestRunner};
use shoal_client::Client;
use shoal_env::{Env, real};
use shoal_galley::{
    BLOCK_BYTES, Batch, BatchBody, Errno, ForkId, Galley, ListEntry, Memory, SharedBuffer, Stride,
};
use shoal_proto::op::Owner;
use shoal_proto::{Handle, Name, Rights, ServerId};
use shoal_store::ModuleKind;
use std::path::Path;

const DIR: Owner = Owner { mode: 0o755, uid: 0, gid: 0 };
/// Bytes of the buffers.
const ROOM: usize = 4096;

/// A transfer's shape, as its arguments.
#[derive(Clone, Debug)]
enum Call {
    Plain(u64, u64),
    Strided(u64, u64, i64, i64, u64),
    Nested(u64, u64, Vec<Stride>),
    Batched(Vec<Batch>),
    List(Vec<ListEntry>),
}

impl Call {
    /// Its single pieces, in order: place in the fork, place in memory, bytes. None: it is impossible.
    fn pieces(&self) -> Option<Vec<(u64, usize, usize)>> {
        let mut all = Vec::new();
        match self {
            Call::Plain(offset, size) => all.push((*offset as i64, 0, *size)),
            Call::Strided(offset, size, f_stride, m_stride, quant) => {
                for turn in 0..*quant as i64 {
                    all.push((*offset as i64 + turn * f_stride, turn * m_stride, *size));
                }
            }
            Call::Nested(offset, size, list) => nest(&mut all, *offset as i64, 0, *size, list),
            Call::Batched(vector) => batch(&mut all, 0, 0, vector),
            Call::List(list) => {
                all.extend(list.iter().map(|e| (e.file_offset as i64, e.memory_offset, e.size)));
            }
        }
        all.retain(|piece| piece.2 > 0);
        let piece = |(file, memory, size): (i64, i64, u64)| {
            let to = ORIGIN as i64 + memory;
            let fits = file >= 0 && to >= 0 && to as u64 + size <= ROOM as u64;
            fits.then_some((file as u64, to as usize, size as usize))
        };
        all.into_iter().map(piece).collect()
    }

    async fn read(&self, galley: &Galley<Client>, fork: ForkId, buf: &mut [u8]) -> Result<u64, Errno> {
        let buf = Memory::at(buf, ORIGIN);
        match self {
            Call::Plain(offset, size) => galley.gfs_read(fork, buf, *offset, *size).await,
            Call::Strided(offset, size, f, m, quant) => {
                galley.gfs_read_strided(fork, buf, *offset, *size, *f, *m, *quant).await
            }
            Call::Nested(offset, size, list) => galley.gfs_read_nested(fork, buf, *offset, *size, list).await,
            Call::Batched(vector) => galley.gfs_read_batched(fork, buf, vector).await,
            Call::List(list) => galley.gfs_read_listio(fork, buf, list).await,
        }
    }

    async fn write(&self, galley: &Galley<Client>, fork: ForkId, buf: &[u8]) -> Result<u64, Errno> {
        let buf = Memory::at(buf, ORIGIN);
        match self {
            Call::Plain(offset, size) => galley.gfs_write(fork, buf, *offset, *size).await,
            Call::Strided(offset, size, f, m, quant) => {
                galley.gfs_write_strided(fork, buf, *offset, *size, *f, *m, *quant).await
            }
            Call::Nested(offset, size, list) => {
                galley.gfs_write_nested(fork, buf, *offset, *size, list).await
            }
            Call::Batched(vector) => galley.gfs_write_batched(fork, buf, vector).await,
            Call::List(list) => galley.gfs_write_listio(fork, buf, list).await,
        }
    }

    fn begin_read(&self, on: &Background<'_>, fork: ForkId, buf: &SharedBuffer) -> Result<(), Errno> {
        let Background { galley, handle } = on;
        match self {
            Call::Plain(offset, size) => galley.gfs_nb_read(handle, fork, buf, *offset, *size),
            Call::Strided(offset, size, f, m, quant) => {
                galley.gfs_nb_read_strided(handle, fork, buf, *offset, *size, *f, *m, *quant)
            }
            Call::Nested(offset, size, list) => {
                galley.gfs_nb_read_nested(handle, fork, buf, *offset, *size, list)
            }
            Call::Batched(vector) => galley.gfs_nb_read_batched(handle, fork, buf, vector),
            Call::List(list) => galley.gfs_nb_read_listio(handle, fork, buf, list),
        }
    }

    fn begin_write(&self, on: &Background<'_>, fork: ForkId, buf: &SharedBuffer) -> Result<(), Errno> {
        let Background { galley, handle } = on;
        match self {
            Call::Plain(offset, size) => galley.gfs_nb_write(handle, fork, buf, *offset, *size),
            Call::Strided(offset, size, f, m, quant) => {
                galley.gfs_nb_write_strided(handle, fork, buf, *offset, *size, *f, *m, *quant)
            }
            Call::Nested(offset, size, list) => {
                galley.gfs_nb_write_nested(handle, fork, buf, *offset, *size, list)
            }
            Call::Batched(vector) => galley.gfs_nb_write_batched(handle, fork, buf, vector),
            Call::List(list) => galley.gfs_nb_write_listio(handle, fork, buf, list),
        }
    }
}

struct Background<'a> {
    galley: &'a Galley<Client>,
    handle: shoal_galley::OperationHandle,
}

/// Where memory offsets count from.
const ORIGIN: usize = 1024;

/// The innermost level is the first, so the last turns slowest.
fn nest(all: &mut Vec<(i64, i64, u64)>, file: i64, memory: i64, size: u64, list: &[Stride]) {
    let Some((outer, inner)) = list.split_last() else {
        all.push((file, memory, size));
        return;
    };
    for turn in 0..outer.quant as i64 {
        nest(all, file + turn * outer.f_off, memory + turn * outer.m_off, size, inner);
    }
}

fn batch(all: &mut Vec<(i64, i64, u64)>, file: i64, memory: i64, vector: &[Batch]) {
    for node in vector {
        let file = if node.f_absolute { node.f_off } else { file + node.f_off };
        let memory = if node.m_absolute { node.m_off } else { memory + node.m_off };
        for turn in 0..node.quant as i64 {
            let (file, memory) = (file + turn * node.f_stride, memory + turn * node.m_stride);
            match &node.body {
                BatchBody::Size(size) => all.push((file, memory, *size)),
                BatchBody::SubVector(vector) => batch(all, file, memory, vector),
            }
        }
    }
}

fn batches() -> impl Strategy<Value = Vec<Batch>> {
    let node = |body: BoxedStrategy<BatchBody>| {
        let places = (0..200_i64, -50..200_i64, any::<bool>(), any::<bool>());
        let turns = (0..4_u64, -60..300_i64, -60..200_i64);
        (places, turns, body).prop_map(|((f_off, m_off, f_absolute, m_absolute), turns, body)| {
            let (quant, f_stride, m_stride) = turns;
            Batch { f_off, m_off, f_absolute, m_absolute, quant, f_stride, m_stride, body }
        })
    };
    let leaf = node((0..40_u64).prop_map(BatchBody::Size).boxed()).boxed();
    let tree = leaf.prop_recursive(2, 8, 3, move |inner| {
        node(prop::collection::vec(inner, 0..3).prop_map(BatchBody::SubVector).boxed()).boxed()
    });
    prop::collection::vec(tree, 0..4)
}

fn calls() -> impl Strategy<Value = Call> {
    let base = 0..3 * STRIP;
    let stride = (-200..400_i64, -100..100_i64, 0..4_u64).prop_map(|(f_off, m_off, quant)| Stride {
        f_off,
        m_off,
        quant,
    });
    let entry = (base.clone(), -100..1500_i64, 0..100_u64)
        .prop_map(|(file_offset, memory_offset, size)| ListEntry { file_offset, memory_offset, size });
    prop_oneof![
        (base.clone(), 0..2000_u64).prop_map(|(offset, size)| Call::Plain(offset, size)),
        (base.clone(), 0..50_u64, -100..40_000_i64, -30..60_i64, 0..12_u64)
            .prop_map(|(offset, size, f, m, quant)| Call::Strided(offset, size, f, m, quant)),
        (base, 0..30_u64, prop::collection::vec(stride, 0..4))
            .prop_map(|(offset, size, list)| Call::Nested(offset, size, list)),
        batches().prop_map(Call::Batched),
        prop::collection::vec(entry, 0..6).prop_map(Call::List),
    ]
}

/// One step of a program: which fork, a write or a read, blocking or not.
type Step = (usize, bool, bool, Call);

fn noise(seed: usize) -> Vec<u8> {
    (0..ROOM).map(|at| (at * 31 + seed * 17 + at / 7) as u8 | 1).collect()
}

async fn run(galley: &Galley<Client>, forks: &[ForkId], program: &[Step]) -> Result<(), TestCaseError> {
    let mut model: Vec<Vec<u8>> = vec![Vec::new(); forks.len()];
    for (number, (fork, is_write, is_blocking, call)) in program.iter().enumerate() {
        let (id, model) = (forks[fork % forks.len()], &mut model[fork % forks.len()]);
        let on = Background { galley, handle: galley.gfs_new_handle() };
        let Some(pieces) = call.pieces() else {
            let mut buf = noise(number);
            let done = match is_write {
                true => call.write(galley, id, &buf).await,
                false => call.read(galley, id, &mut buf).await,
            };
            prop_assert_eq!(done, Err(Errno::Invalid), "{:?}", call);
            continue;
        };
        let mut expected = 0;
        if *is_write {
            let buf = noise(number);
            let moved = if *is_blocking {
                call.write(galley, id, &buf).await
            } else {
                let shared = SharedBuffer::at(buf.clone(), ORIGIN);
                call.begin_write(&on, id, &shared).unwrap();
                prop_assert_eq!(call.begin_write(&on, id, &shared), Err(Errno::Busy));
                galley.gfs_wait(&on.handle).await
            };
            for (file, memory, size) in pieces {
                let end = file as usize + size;
                if model.len() < end {
                    model.resize(end, 0);
                }
                model[file as usize..end].copy_from_slice(&buf[memory..memory + size]);
                expected += size as u64;
            }
            prop_assert_eq!(moved, Ok(expected), "{:?}", call);
        } else {
            let (mut buf, mut there) = (noise(number), noise(number));
            let moved = if *is_blocking {
                call.read(galley, id, &mut buf).await
            } else {
                let shared = SharedBuffer::at(buf.clone(), ORIGIN);
                call.begin_read(&on, id, &shared).unwrap();
                let moved = galley.gfs_wait(&on.handle).await;
                buf = shared.to_vec();
                moved
            };
            for (file, memory, size) in pieces {
                let from = (file as usize).min(model.len());
                let end = (file as usize + size).min(model.len());
                there[memory..memory + (end - from)].copy_from_slice(&model[from..end]);
                expected += (end - from) as u64;
            }
            prop_assert_eq!(moved, Ok(expected), "{:?}", call);
            prop_assert!(buf == there, "{:?}", call);
        }
    }
    Ok(())
}

async fn begin(env: &Env, cluster: &Cluster) -> (Client, Galley<Client>) {
    let client = Client::connect(env.clone(), cluster.client()).await.unwrap();
    (client.clone(), Galley::gfs_init(env.clone(), client))
}

#[test]
fn every_call_moves_the_bytes_that_single_reads_and_writes_move() {
    for servers in [1, 3] {
        let cluster = Cluster::start(servers, ModuleKind::Memory);
        real::run("client", async |env| {
            let (client, galley) = begin(&env, &cluster).await;
            galley.gfs_create_file(b"f", None, 2, DIR).await.unwrap();
            let file = galley.gfs_open_file(b"f").await.unwrap();
            let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::default() });
            let steps = prop::collection::vec((0..3_usize, any::<bool>(), any::<bool>(), calls()), 1..24);
            for round in 0..60 {
                let program = steps.new_tree(&mut runner).unwrap().current();
                let fork = format!("fork {round}");
                galley.gfs_all_create(file, fork.as_bytes()).await.unwrap();
                let mut forks = galley.gfs_all_open(file, fork.as_bytes()).await.unwrap();
                let linear = format!("linear {round}");
                let name = Name::new(linear.as_bytes()).unwrap();
                client.create(Handle::ROOT, &name, DIR, true, Rights::WRITE, None).await.unwrap();
                forks.push(galley.open_linear(linear.as_bytes()).await.unwrap());
                run(&galley, &forks, &program).await.unwrap_or_else(|why| panic!("{why}\n{program:#?}"));
                galley.gfs_all_close(&forks).await.unwrap();
                galley.gfs_all_delete(file, fork.as_bytes()).await.unwrap();
            }
            galley.gfs_close_file(file).unwrap();
            galley.gfs_delete_file(b"f").await.unwrap();
            client.close().await;
        });
    }
}

#[test]
fn a_file_is_made_opened_and_deleted_and_what_is_wrong_has_its_code() {
    let cluster = Cluster::start(2, ModuleKind::Memory);
    real::run("client", async |env| {
        let (client, galley) = begin(&env, &cluster).await;
        let both = [ServerId(1), ServerId(0)];
        galley.gfs_create_file(b"f", Some(&both), 2, DIR).await.unwrap();
        assert_eq!(galley.gfs_create_file(b"f", None, 2, DIR).await, Err(Errno::Exists));
        assert_eq!(galley.gfs_create_file(b"g", None, 5000, DIR).await, Err(Errno::Invalid));
        assert_eq!(galley.gfs_create_file(b"g", Some(&[ServerId(7)]), 1, DIR).await, Err(Errno::Invalid));
        assert_eq!(galley.gfs_create_file(b"g", Some(&both), 3, DIR).await, Err(Errno::Invalid));
        assert_eq!(galley.gfs_create_file(&[b'x'; 256], None, 1, DIR).await, Err(Errno::NameTooLong));
        assert_eq!(galley.gfs_open_file(b"g").await, Err(Errno::NoEntry));

        let file = galley.gfs_open_file(b"f").await.unwrap();
        assert_eq!(galley.subfiles(file), Ok(2));
        assert_eq!(galley.gfs_open_fork(file, 0, b"a").await, Err(Errno::NoEntry));
        galley.gfs_create_fork(file, 0, b"a").await.unwrap();
        assert_eq!(galley.gfs_create_fork(file, 0, b"a").await, Err(Errno::Exists));
        assert_eq!(galley.gfs_create_fork(file, 2, b"a").await, Err(Errno::Invalid));
        assert_eq!(galley.gfs_create_fork(file, 0, b"a/b").await, Err(Errno::Invalid));
        assert_eq!(galley.gfs_create_fork(file, 0, &[b'x'; 256]).await, Err(Errno::NameTooLong));
        galley.gfs_create_fork(file, 0, &[b'x'; 255]).await.unwrap();
        assert!(galley.gfs_errno().is_some_and(|(code, _)| code == Errno::NameTooLong));

        let fork = galley.gfs_open_fork(file, 0, b"a").await.unwrap();
        galley.gfs_extend_fork(fork, 1 << 20).await.unwrap();
        let block = vec![5; BLOCK_BYTES as usize];
        assert_eq!(galley.gfs_write_block(fork, &block[..], 2).await, Ok(BLOCK_BYTES));
        let mut read = vec![0; BLOCK_BYTES as usize];
        assert_eq!(galley.gfs_read_block(fork, &mut read[..], 2).await, Ok(BLOCK_BYTES));
        assert!(read == block);
        assert_eq!(galley.gfs_read_block(fork, &mut read[..], 3).await, Ok(0), "after the end");
        assert_eq!(galley.gfs_read_block(fork, &mut read[..], u64::MAX).await, Err(Errno::Invalid));
        let far = i64::MAX as u64 - 4;
        assert_eq!(galley.gfs_read(fork, &mut read[..], far, 8).await, Err(Errno::Invalid));
        assert_eq!(galley.gfs_write(fork, &block[..8], 0, 9).await, Err(Errno::Invalid), "the buffer ends");
        assert_eq!(galley.gfs_read_strided(fork, &mut read[..], 0, 8, -8, 8, 2).await, Err(Errno::Invalid));
        galley.gfs_flush_fork(fork).await.unwrap();
        galley.gfs_flush_subfile(file, 0).await.unwrap();
        galley.gfs_flush_disk().await.unwrap();

        let handle = galley.gfs_new_handle();
        assert_eq!(galley.gfs_wait(&handle).await, Err(Errno::Invalid), "no operation");
        assert_eq!(galley.gfs_test(&handle), Err(Errno::Invalid));
        let buf = SharedBuffer::new(vec![0; 8]);
        galley.gfs_nb_read(&handle, fork, &buf, 2 * BLOCK_BYTES, 8).unwrap();
        assert_eq!(galley.gfs_nb_read(&handle, fork, &buf, 0, 8), Err(Errno::Busy));
        while !galley.gfs_test(&handle).unwrap() {
            env.sleep(std::time::Duration::from_millis(1)).await;
        }
        assert_eq!(galley.gfs_nb_read(&handle, fork, &buf, 0, 8), Err(Errno::Busy), "it was not waited for");
        assert_eq!((galley.gfs_wait(&handle).await, buf.to_vec()), (Ok(8), vec![5; 8]));
        galley.gfs_nb_read(&handle, fork, &buf, 0, 8).unwrap();
        galley.gfs_wait(&handle).await.unwrap();

        // A deleted fork lives until its last close here.
        galley.gfs_delete_fork(file, 0, b"a").await.unwrap();
        assert_eq!(galley.gfs_read(fork, &mut read[..], 2 * BLOCK_BYTES, 8).await, Ok(8));
        galley.gfs_close_fork(fork).await.unwrap();
        assert_eq!(galley.gfs_read(fork, &mut read[..], 0, 8).await, Err(Errno::BadFile));
        assert_eq!(galley.gfs_close_fork(fork).await, Err(Errno::BadFile));
        assert_eq!(galley.gfs_all_open(file, b"nowhere").await, Err(Errno::NoEntry));
        galley.gfs_close_file(file).unwrap();
        assert_eq!(galley.gfs_create_fork(file, 0, b"b").await, Err(Errno::BadFile));
        galley.gfs_delete_file(b"f").await.unwrap();
        assert_eq!(galley.gfs_delete_file(b"f").await, Err(Errno::NoEntry));
        client.close().await;
    });
}

/// Bytes of the files under a folder, and how many of them a read without waiting finds in memory.
fn resident(folder: &Path) -> (usize, usize) {
    let (mut all, mut there) = (0, 0);
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            let within = resident(&entry.path());
            (all, there) = (all + within.0, there + within.1);
            continue;
        }
        let file = std::fs::File::open(entry.path()).unwrap();
        let len = file.metadata().unwrap().len();
        for at in (0..len).step_by(4096) {
            let mut page = [0; 4096];
            let bufs = &mut [std::io::IoSliceMut::new(&mut page)];
            let read = rustix::io::preadv2(&file, bufs, at, rustix::io::ReadWriteFlags::NOWAIT);
            there += read.unwrap_or(0);
        }
        all += len as usize;
    }
    (all, there)
}

#[test]
fn after_each_flush_the_next_read_comes_from_the_disk() {
    let cluster = Cluster::start(1, ModuleKind::Disk);
    real::run("client", async |env| {
        let (client, galley) = begin(&env, &cluster).await;
        galley.gfs_create_file(b"f", None, 1, DIR).await.unwrap();
        let file = galley.gfs_open_file(b"f").await.unwrap();
        galley.gfs_create_fork(file, 0, b"a").await.unwrap();
        let fork = galley.gfs_open_fork(file, 0, b"a").await.unwrap();
        let written: Vec<u8> = (0..1 << 20).map(|at: u32| (at / 4096 + at % 251) as u8).collect();
        galley.gfs_write(fork, &written[..], 0, 1 << 20).await.unwrap();
        // Half of each block: it is read whole, and kept.
        let wanted: Vec<u8> = written.chunks(16 << 10).flat_map(|chunk| &chunk[..8 << 10]).copied().collect();
        let read_from_files = async || {
            let before = cluster.counts().await[0].env.file_read_bytes;
            let mut read = vec![0; 512 << 10];
            galley.gfs_read_strided(fork, &mut read[..], 0, 8 << 10, 16 << 10, 8 << 10, 64).await.unwrap();
            assert!(read == wanted);
            cluster.counts().await[0].env.file_read_bytes - before
        };
        let streams = cluster.streams_of(ServerId(0));
        // On a file system in memory all pages stay.
        let has_disk = rustix::fs::statfs(&streams).unwrap().f_type != 0x0102_1994;
        for flush in ["fork", "subfile", "disk"] {
            read_from_files().await;
            assert_eq!(
                read_from_files().await,
                0,
                "the engine has the blocks before the flush of the {flush}"
            );
            assert_eq!(resident(&streams), (1 << 20, 1 << 20), "the kernel has the pages");
            match flush {
                "fork" => galley.gfs_flush_fork(fork).await.unwrap(),
                "subfile" => galley.gfs_flush_subfile(file, 0).await.unwrap(),
                _ => galley.gfs_flush_disk().await.unwrap(),
            }
            if has_disk {
                assert_eq!(resident(&streams), (1 << 20, 0), "after the flush of the {flush}");
            }
            assert!(read_from_files().await >= 1 << 20, "after the flush of the {flush}");
            let mut all = vec![0; 1 << 20];
            galley.gfs_read(fork, &mut all[..], 0, 1 << 20).await.unwrap();
            assert!(all == written);
        }
        client.close().await;
    });
}

#[test]
fn a_fork_in_each_subfile_is_one_message_a_server_and_a_strided_call_one_request() {
    let cluster = Cluster::start(4, ModuleKind::Memory);
    real::run("client", async |env| {
        let (client, galley) = begin(&env, &cluster).await;
        galley.gfs_create_file(b"f", None, 16, DIR).await.unwrap();
        let file = galley.gfs_open_file(b"f").await.unwrap();
        client.sync_all().await.unwrap();
        let meter = Meter { env: &env, cluster: &cluster, client: &client };
        for call in ["create_fork", "open_fork", "delete_fork"] {
            let cost = meter.cost(call, 1, async {
                match call {
                    "create_fork" => galley.gfs_create_fork(file, 1, b"one").await.unwrap(),
                    "open_fork" => {
                        let fork = galley.gfs_open_fork(file, 1, b"one").await.unwrap();
                        galley.gfs_close_fork(fork).await.unwrap();
                    }
                    _ => galley.gfs_delete_fork(file, 1, b"one").await.unwrap(),
                }
            });
            assert_eq!(cost.await.messages, 1.0, "{call}");
        }
        let cost = meter.cost("all_create", 1, async { galley.gfs_all_create(file, b"a").await.unwrap() });
        assert_eq!(cost.await.messages, 4.0);
        let fork = galley.gfs_open_fork(file, 3, b"a").await.unwrap();
        let records = vec![9; 64 * 100];
        let cost = meter.cost("write_strided", 1, async {
            galley.gfs_write_strided(fork, &records[..], 0, 64, 1000, 64, 100).await.unwrap();
        });
        assert_eq!(cost.await.messages, 1.0);
        let levels =
            [Stride { f_off: 1000, m_off: 64, quant: 10 }, Stride { f_off: 10_000, m_off: 640, quant: 10 }];
        let node = |quant, f_stride, m_stride, body| {
            let (f_off, m_off, f_absolute, m_absolute) = (0, 0, false, false);
            Batch { f_off, m_off, f_absolute, m_absolute, quant, f_stride, m_stride, body }
        };
        let inner = node(10, 1000, 64, BatchBody::Size(64));
        let vector = [node(10, 10_000, 640, BatchBody::SubVector(vec![inner]))];
        let place = |turn: u64| (turn * 1000, turn as i64 * 64);
        let list: Vec<ListEntry> = (0..100)
            .map(place)
            .map(|(file_offset, memory_offset)| ListEntry { file_offset, memory_offset, size: 64 })
            .collect();
        for call in ["nested", "batched", "listio"] {
            let mut read = vec![0; 64 * 100];
            let cost = meter.cost(call, 1, async {
                let moved = match call {
                    "nested" => galley.gfs_read_nested(fork, &mut read[..], 0, 64, &levels).await,
                    "batched" => galley.gfs_read_batched(fork, &mut read[..], &vector).await,
                    _ => galley.gfs_read_listio(fork, &mut read[..], &list).await,
                };
                assert_eq!(moved, Ok(6400));
            });
            assert_eq!(cost.await.messages, 1.0, "{call}");
            assert!(read == records, "{call}");
        }
        let mut read = vec![0; 64 * 100];
        let cost = meter.cost("read_strided", 1, async {
            galley.gfs_read_strided(fork, &mut read[..], 0, 64, 1000, 64, 100).await.unwrap();
        });
        assert_eq!(cost.await.messages, 1.0);
        assert!(read == records);
        galley.gfs_close_fork(fork).await.unwrap();
        let cost = meter.cost("all_delete", 1, async { galley.gfs_all_delete(file, b"a").await.unwrap() });
        assert_eq!(cost.await.messages, 4.0);
        client.close().await;
    });
}
