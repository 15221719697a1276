//! Sixty-four files in one message.

use crate::cluster::Cluster;
use crate::cost::{Cost, Meter};
use bytes::Bytes;
use shoal_client::{Client, FileWrite, NewFile, Which};
use shoal_env::real;
use shoal_proto::op::Owner;
use shoal_proto::{Handle, Name};
use shoal_store::ModuleKind;
use shoal_vfs::Vfs;

/// Files in one call.
const MANY: usize = 64;
/// Bytes of each.
const SMALL: usize = 8 << 10;

const OWNER: Owner = Owner { mode: 0o644, uid: 0, gid: 0 };

fn names(prefix: &str) -> Vec<Name> {
    (0..MANY).map(|n| Name::new(format!("{prefix}{n}").as_bytes()).unwrap()).collect()
}

fn entries(dir: Handle, prefix: &str) -> Vec<Which> {
    names(prefix).into_iter().map(|name| Which::Entry(dir, name)).collect()
}

fn files(dir: Handle, prefix: &str, data: &Bytes) -> Vec<NewFile> {
    names(prefix).into_iter().map(|name| NewFile { dir, name, data: data.clone() }).collect()
}

/// Costs of one call for all files: messages exactly, syncs, system calls for sockets and bytes copied at
/// most.
fn assert(cost: &Cost, messages: f64, syncs: f64, calls: f64, copied: f64) {
    println!("{}", cost.row());
    assert_eq!((cost.messages, cost.peers), (messages, 0.0), "{cost:#?}");
    assert!(cost.syncs <= syncs && cost.groups <= syncs.max(1.0), "{cost:#?}");
    assert!(cost.socket_calls <= calls, "{cost:#?}");
    assert!(cost.copied_client + cost.copied_servers <= copied, "{cost:#?}");
}

#[test]
fn sixty_four_files_cost_one_message_and_their_changes_one_or_two_syncs() {
    let cluster = Cluster::start(1, ModuleKind::Disk);
    real::run("client", async |env| {
        let client = &Client::connect(env.clone(), cluster.client()).await.unwrap();
        let root = client.walk(b"/", true).await.unwrap().handle;
        client.sync_all().await.unwrap();
        let meter = Meter { env: &env, cluster: &cluster, client };
        let data = Bytes::from(vec![7; SMALL]);
        let bytes = (MANY * SMALL) as f64;

        let create = async {
            for made in client.create_many(files(root, "e", &Bytes::new()), OWNER, None).await {
                made.unwrap();
            }
        };
        assert(&meter.cost("create 64", 1, create).await, 1.0, 2.0, 8.0, 60_000.0);
        let create = async {
            for made in client.create_many(files(root, "f", &data), OWNER, None).await {
                made.unwrap();
            }
        };
        let cost = meter.cost("create and write 64 × 8 KiB", 1, create).await;
        assert(&cost, 1.0, 2.0, 64.0, 2.0 * bytes + 70_000.0);
        let stat = async {
            for attr in client.stat_many(&entries(root, "f")).await {
                assert_eq!(attr.unwrap().size, SMALL as u64);
            }
        };
        assert(&meter.cost("stat 64", 1, stat).await, 1.0, 0.0, 8.0, 30_000.0);
        let read = async {
            for read in client.read_many(&entries(root, "f"), SMALL).await {
                assert_eq!(read.unwrap().1.unwrap().len(), SMALL);
            }
        };
        assert(&meter.cost("read 64 × 8 KiB", 1, read).await, 1.0, 0.0, 64.0, bytes + 60_000.0);
        // 64 files with contents, of 65 to 128 entries: two batches of half a MiB.
        let list = async {
            let (mut listing, mut contents) = (client.opendir(root).with_data(SMALL), 0);
            while let Some((entry, content)) = listing.next_with_data().await.unwrap() {
                let empty = entry.name.as_bytes()[0] == b'e';
                assert_eq!(content.unwrap().len(), if empty { 0 } else { SMALL });
                contents += 1;
            }
            assert_eq!(contents, 2 * MANY);
        };
        let cost = meter.cost("list 128 with 64 × 8 KiB", 1, list).await;
        assert(&cost, 2.0, 0.0, 64.0, bytes + 90_000.0);
        let pieces = || {
            let piece = |which| FileWrite { which, offset: 0, data: data.clone() };
            entries(root, "f").into_iter().map(piece).collect::<Vec<FileWrite>>()
        };
        let write = async {
            for attr in client.write_many(pieces(), false).await {
                assert_eq!(attr.unwrap().size, SMALL as u64);
            }
        };
        let cost = meter.cost("write 64 × 8 KiB", 1, write).await;
        assert(&cost, 1.0, 2.0, 64.0, 2.0 * bytes + 70_000.0);
        let write = async {
            for attr in client.write_many(pieces(), true).await {
                assert_eq!(attr.unwrap().size, SMALL as u64);
            }
        };
        let cost = meter.cost("write 64 × 8 KiB, durable", 1, write).await;
        assert(&cost, 2.0, 2.0, 64.0, 2.0 * bytes + 70_000.0);
        let remove = async {
            let all: Vec<(Handle, Name)> = names("f").into_iter().map(|name| (root, name)).collect();
            assert!(client.remove_many(&all).await.iter().all(Result::is_ok));
        };
        assert(&meter.cost("remove 64", 1, remove).await, 1.0, 2.0, 8.0, 40_000.0);
        client.close().await;
    });
}

/// A batch of the C library, and of any other program over the waist.
#[test]
fn a_batch_through_the_waist_is_one_message_a_server() {
    for servers in [1, 4] {
        let cluster = Cluster::start(servers, ModuleKind::Memory);
        real::run("client", async |env| {
            let client = &Client::connect(env.clone(), cluster.client()).await.unwrap();
            let meter = Meter { env: &env, cluster: &cluster, client };
            let owner = Owner { mode: 0o755, uid: 0, gid: 0 };
            let mut dirs = Vec::new();
            for number in 0..64 {
                let name = Name::new(format!("d{number}").as_bytes()).unwrap();
                dirs.push(client.mkdir(Handle::ROOT, &name, owner).await.unwrap().handle);
            }
            let at: std::collections::BTreeSet<_> = dirs.iter().map(|dir| dir.server()).collect();
            assert_eq!(at.len(), usize::from(servers), "a directory on each server");
            let data = Bytes::from(vec![7; SMALL]);
            let of = |number: usize| dirs[number % dirs.len()];
            let new = |(number, name)| NewFile { dir: of(number), name, data: data.clone() };
            let new: Vec<NewFile> = names("f").into_iter().enumerate().map(new).collect();
            let create = async {
                for made in Vfs::create_many(client, new, OWNER).await {
                    assert_eq!(made.unwrap().size, SMALL as u64);
                }
            };
            let made = meter.cost("create many", 1, create).await;
            let which: Vec<(Handle, Name, usize)> =
                names("f").into_iter().enumerate().map(|(number, name)| (of(number), name, SMALL)).collect();
            let read = async {
                for read in Vfs::read_many(client, &which).await {
                    assert_eq!(read.unwrap().1.unwrap().len(), SMALL);
                }
            };
            let read = meter.cost("read many", 1, read).await;
            assert_eq!([made.messages, read.messages], [f64::from(servers); 2]);
            client.close().await;
        });
    }
}
