//! Galley's calls of one client. A call of any shape moves the same bytes as single reads and writes, on
//! forks and on a striped file. Further tests make, open, delete and flush files.

use crate::cluster::{Cluster, STRIP};
use crate::cost::Meter;
use crate::galley_programs::{Programs, run_alone, run_shared};
use futures_util::future::join;
use shoal_client::{Client, RenameFlags};
use shoal_env::{Env, real};
use shoal_galley::{BLOCK_BYTES, Batch, BatchBody, Errno, Galley, ListEntry, SharedBuffer, Stride};
use shoal_proto::op::Owner;
use shoal_proto::{Handle, Name, ServerId};
use shoal_store::ModuleKind;
use std::path::Path;

const DIR: Owner = Owner { mode: 0o755, uid: 0, gid: 0 };
async fn begin(env: &Env, cluster: &Cluster) -> (Client, Galley<Client>) {
    let client = Client::connect(env.clone(), cluster.client()).await.unwrap();
    (client.clone(), Galley::gfs_init(env.clone(), client))
}

/// Programs of a usual run on real servers; the environment's `SHOAL_GALLEY_PROGRAMS` states another number.
const USUAL: u64 = 160;
/// Of one client, then of three, on one cluster.
const ON_ONE: (usize, usize) = (60, 20);

#[test]
fn every_call_moves_the_bytes_that_single_reads_and_writes_move() {
    let asked = std::env::var("SHOAL_GALLEY_PROGRAMS").ok().and_then(|text| text.parse().ok());
    let (alone, shared) = ON_ONE;
    let clusters = asked.unwrap_or(USUAL).div_ceil((alone + shared) as u64);
    for (at, servers) in (0..clusters).zip([1, 4].into_iter().cycle()) {
        let cluster = Cluster::start(servers, ModuleKind::Memory);
        let seed = at / 2 * 8 + u64::from(servers);
        real::run("client", async |env| {
            let (client, galley) = begin(&env, &cluster).await;
            let mut programs = Programs::new(seed, STRIP);
            let done = run_alone(&client, &galley, &mut programs, alone).await;
            done.unwrap_or_else(|why| panic!("seed {seed}: {why}"));
            let clients = [begin(&env, &cluster).await, begin(&env, &cluster).await, (client, galley)];
            let done = run_shared(&clients, &mut programs, shared).await;
            done.unwrap_or_else(|why| panic!("seed {seed}: {why}"));
            for (client, _) in &clients {
                client.close().await;
            }
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

/// A file is whole, or is not there: never a file that cannot be opened.
async fn is_there(galley: &Galley<Client>, name: &[u8]) -> bool {
    match galley.gfs_open_file(name).await {
        Ok(file) => galley.gfs_close_file(file).map(|()| true).unwrap(),
        Err(Errno::NoEntry) => false,
        Err(other) => panic!("{other}: {:?}", galley.gfs_errno()),
    }
}

#[test]
fn a_file_in_which_forks_are_made_meanwhile_is_deleted_whole_or_stays_whole() {
    let cluster = Cluster::start(3, ModuleKind::Memory);
    real::run("client", async |env| {
        let (client, galley) = begin(&env, &cluster).await;
        let (maker, making) = begin(&env, &cluster).await;
        for round in 0..12 {
            galley.gfs_create_file(b"f", None, 12, DIR).await.unwrap();
            let file = making.gfs_open_file(b"f").await.unwrap();
            let make = async {
                for number in 0..24_u32 {
                    // The last subfile first: where they are removed one by one it is the last to go.
                    let subfile = 11 - number % 12;
                    let made = making.gfs_create_fork(file, subfile, format!("{number}").as_bytes()).await;
                    assert!(matches!(made, Ok(()) | Err(Errno::NoEntry)), "{made:?} in round {round}");
                }
            };
            let (deleted, ()) = join(galley.gfs_delete_file(b"f"), make).await;
            assert_eq!(deleted, Ok(()), "{:?}", galley.gfs_errno());
            assert!(!is_there(&galley, b"f").await);
            making.gfs_close_file(file).unwrap();
        }
        client.close().await;
        maker.close().await;
    });
}

#[test]
fn of_two_deletions_of_a_file_one_does_it_and_the_other_finds_no_file() {
    let cluster = Cluster::start(3, ModuleKind::Memory);
    real::run("client", async |env| {
        let (client, one) = begin(&env, &cluster).await;
        let (second, other) = begin(&env, &cluster).await;
        for round in 0..12 {
            one.gfs_create_file(b"f", None, 8, DIR).await.unwrap();
            let file = one.gfs_open_file(b"f").await.unwrap();
            for fork in 0..=round % 3 {
                one.gfs_all_create(file, format!("{fork}").as_bytes()).await.unwrap();
            }
            one.gfs_close_file(file).unwrap();
            let mut both: [_; 2] = join(one.gfs_delete_file(b"f"), other.gfs_delete_file(b"f")).await.into();
            both.sort_by_key(|done| done.is_err());
            assert_eq!(both, [Ok(()), Err(Errno::NoEntry)], "{:?} {:?}", one.gfs_errno(), other.gfs_errno());
            assert!(!is_there(&one, b"f").await);
        }
        client.close().await;
        second.close().await;
    });
}

#[test]
fn a_deletion_by_a_symbolic_link_is_refused_before_anything_is_touched() {
    let cluster = Cluster::start(2, ModuleKind::Memory);
    real::run("client", async |env| {
        let (client, galley) = begin(&env, &cluster).await;
        galley.gfs_create_file(b"f", None, 4, DIR).await.unwrap();
        let file = galley.gfs_open_file(b"f").await.unwrap();
        galley.gfs_all_create(file, b"a").await.unwrap();
        let name = |text: &str| Name::new(text.as_bytes()).unwrap();
        client.symlink(Handle::ROOT, &name("link"), DIR, b"f").await.unwrap();
        client.symlink(Handle::ROOT, &name("nowhere"), DIR, b"g").await.unwrap();
        for link in [&b"link"[..], b"/link", b"link/", b"nowhere"] {
            assert_eq!(galley.gfs_delete_file(link).await, Err(Errno::Invalid));
        }
        assert!(is_there(&galley, b"f").await && is_there(&galley, b"link").await);
        let forks = galley.gfs_all_open(file, b"a").await.unwrap();
        galley.gfs_all_close(&forks).await.unwrap();
        galley.gfs_close_file(file).unwrap();
        // A link on the way is followed.
        let dir = client.mkdir(Handle::ROOT, &name("d"), DIR).await.unwrap().handle;
        client.symlink(Handle::ROOT, &name("to-d"), DIR, b"d").await.unwrap();
        client.rename(Handle::ROOT, &name("f"), dir, &name("f"), RenameFlags::default()).await.unwrap();
        galley.gfs_delete_file(b"to-d/f").await.unwrap();
        assert!(!is_there(&galley, b"d/f").await);
        client.close().await;
    });
}

/// Bytes of the files under a folder, and how many of them are in the page cache.
///
/// `mincore` looks without a request: a read without waiting (`RWF_NOWAIT`) of a page that is absent begins
/// its transfer, and finds the page if the transfer ends soon enough.
fn resident(folder: &Path) -> (usize, usize) {
    let (mut all, mut there) = (0, 0);
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            let within = resident(&entry.path());
            (all, there) = (all + within.0, there + within.1);
            continue;
        }
        let file = std::fs::File::open(entry.path()).unwrap();
        let len = file.metadata().unwrap().len() as usize;
        if len > 0 {
            all += len;
            there += pages_in_memory(&file, len) * PAGE;
        }
    }
    (all, there)
}

/// Bytes of a page of the kernel's cache.
const PAGE: usize = 4096;

/// Pages of the first `len` bytes of a file that are in the page cache.
fn pages_in_memory(file: &std::fs::File, len: usize) -> usize {
    use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
    let mut pages = vec![0_u8; len.div_ceil(PAGE)];
    // SAFETY: the kernel chooses the address. Nothing reads or writes through the mapping, `mincore` writes
    // one byte a page into a vector of that length, and the mapping is removed before any other use of its
    // address.
    unsafe {
        let at = mmap(std::ptr::null_mut(), len, ProtFlags::empty(), MapFlags::SHARED, file, 0).unwrap();
        let status = libc::mincore(at, len, pages.as_mut_ptr());
        assert_eq!(status, 0, "mincore: {}", std::io::Error::last_os_error());
        munmap(at, len).unwrap();
    }
    pages.iter().filter(|page| **page & 1 == 1).count()
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
