//! Patterned transfers of a container over a ShoalFS: the messages are those of its logs, not of its records.

use crate::cluster::Cluster;
use bytes::Bytes;
use shoal_client::Client;
use shoal_env::real;
use shoal_pattern::Pattern;
use shoal_proto::op::Owner;
use shoal_proto::{Handle, Name, Rights};
use shoal_store::ModuleKind;
use shoal_transform::Container;
use shoal_vfs::{AnyVfs, Vfs, VfsFile};

const OWNER: Owner = Owner { mode: 0o644, uid: 0, gid: 0 };
const RECORD: usize = 64;
/// Of each write: all logs stay within their first strips.
const RECORDS: u64 = 200;

/// Messages of the client for `body`, and its result.
async fn messages<T>(client: &Client, body: impl Future<Output = T>) -> (u64, T) {
    let sent = || client.counters().messages.values().sum::<u64>();
    let before = sent();
    let value = body.await;
    (sent() - before, value)
}

/// Every `each`-th record from `first` on.
fn records(first: u64, each: u64, count: u64) -> Pattern {
    let record = RECORD as u64;
    Pattern::strided((first * record) as i64, record, (each * record) as i64, count).unwrap()
}

fn bytes_of(record: u64) -> [u8; RECORD] {
    std::array::from_fn(|at| (record as usize * 7 + at) as u8)
}

/// The packed bytes of [`records`].
fn data(first: u64, each: u64, count: u64) -> Bytes {
    (0..count).flat_map(|turn| bytes_of(first + turn * each)).collect::<Vec<u8>>().into()
}

#[test]
fn a_strided_transfer_of_a_container_costs_messages_by_logs_and_not_by_records() {
    let cluster = Cluster::start(1, ModuleKind::Memory);
    real::run("client", async |env| {
        let client = Client::connect(env.clone(), cluster.client()).await.unwrap();
        let mount = Container::new(env.clone(), AnyVfs::of(client.clone()));
        let called = Name::new(b"file").unwrap();
        let both = Rights::READ | Rights::WRITE;
        let (_, _, first) = mount.create(Handle::ROOT, &called, OWNER, true, both).await.unwrap();
        let second = first.again();
        // The first write of each makes its log.
        for (file, from) in [(&first, 0), (&second, 1)] {
            file.write_pattern(&records(from, 2, RECORDS), data(from, 2, RECORDS)).await.unwrap();
        }
        // Not where the last ones ended: those entries do not hold.
        for (file, from) in [(&first, 2 * RECORDS + 4), (&second, 2 * RECORDS + 5)] {
            let pattern = records(from, 2, RECORDS);
            let write = file.write_pattern(&pattern, data(from, 2, RECORDS));
            let (sent, written) = messages(&client, write).await;
            written.unwrap();
            assert_eq!(sent, 4, "two entries, and the bytes of each");
        }
        for (each, count) in [(3, 130), (7, 50), (41, 9)] {
            let (sent, read) = messages(&client, first.read_pattern(&records(0, each, count))).await;
            assert!(read.unwrap() == data(0, each, count), "each {each}th record");
            assert_eq!(sent, 2, "one for each log, each {each}th record");
        }
        second.close().await.unwrap();
        first.close().await.unwrap();
        mount.close().await;
        client.close().await;
    });
}
