//! Galley's calls of several clients on one file. A client reads the bytes that another client has written,
//! and none that it has cut. Further tests count the messages of opens and reads.

use crate::cluster::{Cluster, STRIP};
use crate::cost::Meter;
use bytes::Bytes;
use shoal_client::Client;
use shoal_env::{Env, real};
use shoal_galley::{Errno, FileId, ForkId, Galley};
use shoal_proto::op::Owner;
use shoal_proto::{Handle, Name, Rights};
use shoal_store::ModuleKind;
use std::time::Duration;

const DIR: Owner = Owner { mode: 0o755, uid: 0, gid: 0 };

struct User {
    client: Client,
    galley: Galley<Client>,
    file: FileId,
}

impl User {
    /// A client that keeps attributes for so long.
    async fn new(env: &Env, cluster: &Cluster, attr_cache: Duration) -> User {
        let mut options = cluster.client();
        options.attr_cache = attr_cache;
        let client = Client::connect(env.clone(), options).await.unwrap();
        let galley = Galley::gfs_init(env.clone(), client.clone());
        User { client, galley, file: FileId(u32::MAX) }
    }

    async fn fork(&mut self, name: &[u8]) -> ForkId {
        self.file = self.galley.gfs_open_file(b"f").await.unwrap();
        self.galley.gfs_open_fork(self.file, 0, name).await.unwrap()
    }
}

/// Much longer than a test.
const LONG: Duration = Duration::from_secs(600);

async fn two(env: &Env, cluster: &Cluster) -> (User, User) {
    let users = (User::new(env, cluster, LONG).await, User::new(env, cluster, LONG).await);
    users.0.galley.gfs_create_file(b"f", None, 2, DIR).await.unwrap();
    let file = users.0.galley.gfs_open_file(b"f").await.unwrap();
    users.0.galley.gfs_all_create(file, b"a").await.unwrap();
    users
}

#[test]
fn a_finished_write_of_another_client_is_read_whatever_was_known_of_the_forks_size() {
    let cluster = Cluster::start(2, ModuleKind::Memory);
    real::run("client", async |env| {
        let (mut writer, mut reader) = two(&env, &cluster).await;
        let (to, from) = (writer.fork(b"a").await, reader.fork(b"a").await);
        let mut read = [0; 16];
        assert_eq!(reader.galley.gfs_read(from, &mut read[..], 0, 16).await, Ok(0));
        for round in 1..9_u8 {
            let at = u64::from(round - 1) * 2;
            writer.galley.gfs_write(to, &[round; 2][..], at, 2).await.unwrap();
            assert_eq!(reader.galley.gfs_read(from, &mut read[..], 0, 16).await, Ok(at + 2));
            assert_eq!(read[at as usize..at as usize + 2], [round; 2]);
        }
        writer.client.close().await;
        reader.client.close().await;
    });
}

#[test]
fn after_another_clients_truncation_what_was_cut_is_not_counted() {
    let cluster = Cluster::start(2, ModuleKind::Memory);
    real::run("client", async |env| {
        let (mut writer, mut reader) = two(&env, &cluster).await;
        let (to, from) = (writer.fork(b"a").await, reader.fork(b"a").await);
        writer.galley.gfs_write(to, &[7; 64][..], 0, 64).await.unwrap();
        let mut read = [0; 64];
        assert_eq!(reader.galley.gfs_read(from, &mut read[..], 0, 64).await, Ok(64));
        let fork = writer.client.walk(b"/f/0/a", true).await.unwrap().handle;
        writer.client.truncate(fork, 8, false).await.unwrap();
        let mut read = [1; 64];
        assert_eq!(reader.galley.gfs_read(from, &mut read[..], 0, 64).await, Ok(8));
        assert_eq!((read[..8].to_vec(), read[8..].to_vec()), (vec![7; 8], vec![1; 56]));
        writer.client.close().await;
        reader.client.close().await;
    });
}

#[test]
fn a_read_beside_a_write_counts_no_byte_that_never_was_in_the_file() {
    const ROUNDS: u64 = 300;
    let cluster = Cluster::start(2, ModuleKind::Memory);
    real::run("client", async |env| {
        let (mut writer, mut reader) = two(&env, &cluster).await;
        let _ = (writer.fork(b"a").await, reader.fork(b"a").await);
        for is_striped in [false, true] {
            let mut seen = 0;
            for round in 0..ROUNDS {
                let name = format!("n {is_striped} {round}");
                let (to, from) = if is_striped {
                    let root = Name::new(name.as_bytes()).unwrap();
                    let (_, _, file) = writer
                        .client
                        .create(Handle::ROOT, &root, DIR, true, Rights::WRITE, None)
                        .await
                        .unwrap();
                    // Two strips on two servers, the first of them empty.
                    file.write(STRIP, Bytes::from_static(b"x")).await.unwrap();
                    writer.client.truncate(file.handle(), 0, false).await.unwrap();
                    let to = writer.galley.open_linear(name.as_bytes()).await.unwrap();
                    (to, reader.galley.open_linear(name.as_bytes()).await.unwrap())
                } else {
                    writer.galley.gfs_create_fork(writer.file, 0, name.as_bytes()).await.unwrap();
                    let to = writer.galley.gfs_open_fork(writer.file, 0, name.as_bytes()).await.unwrap();
                    let from = reader.galley.gfs_open_fork(reader.file, 0, name.as_bytes()).await.unwrap();
                    (to, from)
                };
                // One write after the other: what lies in between was never a hole.
                let write = async {
                    writer.galley.gfs_write(to, &[9; 8][..], 0, 8).await.unwrap();
                    let ones = vec![9; STRIP as usize];
                    writer.galley.gfs_write(to, &ones[..], 8, STRIP).await.unwrap();
                };
                let mut read = vec![0; 2 * STRIP as usize];
                let look = async {
                    for _ in 0..round % 4 {
                        let mut byte = [0];
                        reader.galley.gfs_read(from, &mut byte[..], 0, 1).await.unwrap();
                    }
                    reader.galley.gfs_read(from, &mut read[..], 0, 2 * STRIP).await.unwrap()
                };
                let (_, moved) = futures_util::future::join(write, look).await;
                let zeros = read[..moved as usize].iter().filter(|&&byte| byte == 0).count();
                assert!(zeros == 0 || is_striped && zeros > 8, "{zeros} of {moved} in round {round}");
                assert_eq!(read.first().copied().unwrap_or(9) == 0, moved == 0, "round {round}");
                seen += u64::from(moved > 0 && moved < STRIP + 8);
                writer.galley.gfs_close_fork(to).await.unwrap();
                reader.galley.gfs_close_fork(from).await.unwrap();
            }
            println!("{seen} reads saw a part, striped: {is_striped}");
        }
        writer.client.close().await;
        reader.client.close().await;
    });
}

#[test]
fn a_fork_belongs_to_the_owner_of_its_file_and_has_its_mode() {
    let cluster = Cluster::start(2, ModuleKind::Memory);
    real::run("client", async |env| {
        let user = User::new(&env, &cluster, Duration::ZERO).await;
        let owner = Owner { mode: 0o750, uid: 1000, gid: 100 };
        user.galley.gfs_create_file(b"f", None, 2, owner).await.unwrap();
        let file = user.galley.gfs_open_file(b"f").await.unwrap();
        user.galley.gfs_create_fork(file, 0, b"one").await.unwrap();
        user.galley.gfs_all_create(file, b"all").await.unwrap();
        for fork in ["f/0/one", "f/0/all", "f/1/all"] {
            let attr = user.client.walk(fork.as_bytes(), true).await.unwrap();
            assert_eq!((attr.mode & 0o7777, attr.uid, attr.gid), (0o640, 1000, 100), "{fork}");
        }
        user.client.close().await;
    });
}

#[test]
fn no_number_of_subfiles_is_one_on_each_server_or_each_of_the_list() {
    let cluster = Cluster::start(3, ModuleKind::Memory);
    real::run("client", async |env| {
        let user = User::new(&env, &cluster, Duration::ZERO).await;
        let some = [shoal_proto::ServerId(2), shoal_proto::ServerId(0)];
        for (name, list, count) in [("all", None, 3), ("list", Some(&some[..]), 2)] {
            user.galley.gfs_create_file(name.as_bytes(), list, 0, DIR).await.unwrap();
            let file = user.galley.gfs_open_file(name.as_bytes()).await.unwrap();
            assert_eq!(user.galley.subfiles(file), Ok(count));
        }
        let none = user.galley.gfs_create_file(b"none", Some(&[]), 0, DIR).await;
        assert_eq!(none, Err(Errno::Invalid));
        user.client.close().await;
    });
}

#[test]
fn opens_of_all_forks_that_are_given_up_leave_no_ids() {
    let cluster = Cluster::start(2, ModuleKind::Memory);
    real::run("client", async |env| {
        let (user, other) = two(&env, &cluster).await;
        let file = user.galley.gfs_open_file(b"f").await.unwrap();
        // The ids between two opens that are open forks.
        let open_between = async |first: u32, end: u32| {
            let mut open = 0;
            for id in first..end {
                open += u32::from(user.galley.gfs_close_fork(ForkId(id)).await.is_ok());
            }
            open
        };
        let mut first = 0;
        for after in 0..40 {
            let open = std::pin::pin!(user.galley.gfs_all_open(file, b"a"));
            // Given up at some moment of it.
            let _ = env.deadline(env.now() + Duration::from_micros(after * 25), open).await;
            let next = user.galley.gfs_open_fork(file, 0, b"a").await.unwrap();
            let left = open_between(first, next.0).await;
            assert!(left == 0 || left == 2, "{left} of 2 forks were left open");
            user.galley.gfs_close_fork(next).await.unwrap();
            first = next.0 + 1;
        }
        // One of the forks is gone: none stays open.
        user.galley.gfs_delete_fork(file, 1, b"a").await.unwrap();
        assert_eq!(user.galley.gfs_all_open(file, b"a").await, Err(Errno::NoEntry));
        let next = user.galley.gfs_open_fork(file, 0, b"a").await.unwrap();
        assert_eq!(open_between(first, next.0).await, 0);
        user.client.close().await;
        other.client.close().await;
    });
}

#[test]
fn an_open_in_all_subfiles_is_one_message_a_server_and_the_first_read_of_a_fork_one() {
    let cluster = Cluster::start(4, ModuleKind::Memory);
    real::run("client", async |env| {
        let user = User::new(&env, &cluster, Duration::ZERO).await;
        let galley = &user.galley;
        galley.gfs_create_file(b"f", None, 16, DIR).await.unwrap();
        let file = galley.gfs_open_file(b"f").await.unwrap();
        galley.gfs_all_create(file, b"a").await.unwrap();
        user.client.sync_all().await.unwrap();
        let meter = Meter { env: &env, cluster: &cluster, client: &user.client };
        let mut forks = Vec::new();
        let cost =
            meter.cost("all_open", 1, async { forks = galley.gfs_all_open(file, b"a").await.unwrap() });
        assert_eq!((cost.await.messages, forks.len()), (4.0, 16));
        galley.gfs_write(forks[5], &[3; 100][..], 0, 100).await.unwrap();
        galley.gfs_all_close(&forks).await.unwrap();
        for is_inside in [true, false] {
            let fork = galley.gfs_open_fork(file, 5, b"a").await.unwrap();
            let cost = meter.cost("read_strided", 1, async {
                let mut read = [0; 100];
                let stride = if is_inside { 10 } else { 50 };
                let moved = galley.gfs_read_strided(fork, &mut read[..], 0, 5, stride, 5, 10).await;
                assert_eq!(moved, Ok(if is_inside { 50 } else { 10 }));
            });
            assert_eq!(cost.await.messages, 1.0);
            galley.gfs_close_fork(fork).await.unwrap();
        }
        // Closes are sent of deleted forks only.
        let forks = galley.gfs_all_open(file, b"a").await.unwrap();
        let cost = meter.cost("all_delete", 1, async { galley.gfs_all_delete(file, b"a").await.unwrap() });
        assert_eq!(cost.await.messages, 4.0);
        let cost = meter.cost("all_close", 1, async { galley.gfs_all_close(&forks).await.unwrap() });
        assert_eq!(cost.await.messages, 4.0);
        user.client.close().await;
    });
}

#[test]
fn a_client_that_may_only_read_opens_forks_and_reads_them() {
    let cluster = Cluster::start(2, ModuleKind::Memory);
    real::run("client", async |env| {
        let (mut writer, other) = two(&env, &cluster).await;
        let to = writer.fork(b"a").await;
        writer.galley.gfs_write(to, &b"words"[..], 0, 5).await.unwrap();
        let mut options = cluster.client();
        options.read_only = true;
        let client = Client::connect(env.clone(), options).await.unwrap();
        let galley = Galley::gfs_init(env.clone(), client.clone());
        let file = galley.gfs_open_file(b"f").await.unwrap();
        let one = galley.gfs_open_fork(file, 0, b"a").await.unwrap();
        let meter = Meter { env: &env, cluster: &cluster, client: &client };
        let mut all = Vec::new();
        let cost = meter.cost("all_open", 1, async { all = galley.gfs_all_open(file, b"a").await.unwrap() });
        assert_eq!(cost.await.messages, 2.0, "one a server");
        let linear = galley.open_linear(b"f/0/a").await.unwrap();
        for fork in [one, all[0], linear] {
            let mut read = [0; 9];
            assert_eq!(galley.gfs_read(fork, &mut read[..], 0, 9).await, Ok(5));
            assert_eq!(&read[..5], b"words");
            assert_eq!(galley.gfs_write(fork, &read[..1], 0, 1).await, Err(Errno::Access));
        }
        for client in [client, writer.client, other.client] {
            client.close().await;
        }
    });
}

#[test]
fn a_flush_of_the_disk_passes_files_and_forks_that_were_deleted() {
    let cluster = Cluster::start(2, ModuleKind::Memory);
    real::run("client", async |env| {
        let (mut user, mut other) = two(&env, &cluster).await;
        let (fork, _) = (user.fork(b"a").await, other.fork(b"a").await);
        user.galley.gfs_write(fork, &[1; 10][..], 0, 10).await.unwrap();
        other.galley.gfs_delete_fork(other.file, 0, b"a").await.unwrap();
        user.galley.gfs_flush_disk().await.unwrap();
        other.galley.gfs_delete_file(b"f").await.unwrap();
        user.galley.gfs_flush_disk().await.unwrap();
        assert_eq!(user.galley.gfs_flush_subfile(user.file, 0).await, Err(Errno::NoEntry));
        user.client.close().await;
        other.client.close().await;
    });
}

#[test]
fn an_extension_of_a_fork_reserves_space_and_leaves_its_size() {
    let cluster = Cluster::start(1, ModuleKind::Disk);
    real::run("client", async |env| {
        let user = User::new(&env, &cluster, Duration::ZERO).await;
        user.galley.gfs_create_file(b"f", None, 1, DIR).await.unwrap();
        let file = user.galley.gfs_open_file(b"f").await.unwrap();
        user.galley.gfs_create_fork(file, 0, b"a").await.unwrap();
        let fork = user.galley.gfs_open_fork(file, 0, b"a").await.unwrap();
        user.galley.gfs_write(fork, &[1; 10][..], 0, 10).await.unwrap();
        user.galley.gfs_extend_fork(fork, 0).await.unwrap();
        user.galley.gfs_extend_fork(fork, 1 << 20).await.unwrap();
        let attr = user.client.walk(b"f/0/a", true).await.unwrap();
        assert_eq!(attr.size, 10);
        assert!(attr.space >= 1 << 20, "{}", attr.space);
        let mut read = [0; 20];
        assert_eq!(user.galley.gfs_read(fork, &mut read[..], 0, 20).await, Ok(10));
        assert_eq!(user.galley.gfs_extend_fork(ForkId(9), 0).await, Err(Errno::BadFile));
        user.client.close().await;
    });
}
