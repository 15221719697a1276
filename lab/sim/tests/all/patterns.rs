//! Patterned transfers on a simulated cluster: equal to a naive loop of single calls, whatever the pattern,
//! and each block visited about once, whatever the number of clients.

use bytes::Bytes;
use futures_util::future::join_all;
use serde_json::Value;
use shoal_client::{Client, OpenFile};
use shoal_pattern::{Level, Pairing, Pattern, Region};
use shoal_proto::op::Owner;
use shoal_proto::{Allocation, Handle, Name, Rights, ServerId};
use shoal_sim::{Cluster, ClusterConfig};
use std::time::Duration;

/// Packed bytes of a pattern: one message a server, within which the order of overlapping records holds.
const BYTES_MAX: u64 = 200_000;
const OWNER: Owner = Owner { mode: 0o644, uid: 0, gid: 0 };

fn cluster(seed: u64, servers: u16) -> Cluster {
    let config = ClusterConfig { servers, clients: 1, ..ClusterConfig::default() };
    let cluster = Cluster::new(seed, &config);
    let until = cluster.world.now() + Duration::from_secs(10);
    assert!(cluster.world.run_until_true(until, || cluster.is_ready()), "{:?}", cluster.failures());
    cluster
}

/// Numbers from a seed.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    /// A pattern of any form within the first `reach` bytes: strides in both directions, overlaps, lists,
    /// columns.
    fn pattern(&mut self, reach: u64) -> Pattern {
        let record = 1 + [self.below(9), self.below(200), self.below(5000)][self.below(3) as usize];
        let from = self.below(reach / 2);
        let room = reach - from - record;
        match self.below(6) {
            0 => Pattern::contiguous(from as i64, 1 + self.below(room.min(BYTES_MAX))).unwrap(),
            1 | 2 => {
                let stride = 1 + self.below(8 * record + 300);
                let quantity = 1 + self.below((room / stride).min(BYTES_MAX / record).clamp(1, 3000));
                match self.below(3) {
                    0 => {
                        let last = from + stride * (quantity - 1);
                        Pattern::strided(last as i64, record, -(stride as i64), quantity).unwrap()
                    }
                    _ => Pattern::strided(from as i64, record, stride as i64, quantity).unwrap(),
                }
            }
            3 | 4 => {
                // Rows and columns, in either order.
                let columns = 1 + self.below((BYTES_MAX / record).min(12));
                let rows = 1 + self.below((BYTES_MAX / record / columns).clamp(1, 40));
                let column = record + self.below(500);
                let row = (columns * column + self.below(3000)).min(room / rows).max(1);
                let across = Level { stride: column as i64, quantity: columns };
                let down = Level { stride: row as i64, quantity: rows };
                let levels = if self.below(2) == 0 { vec![across, down] } else { vec![down, across] };
                let begin = from.min(reach.saturating_sub(columns * column + rows * row + record));
                Pattern::nested(begin as i64, record, levels).unwrap()
            }
            _ => {
                let regions =
                    (0..1 + self.below(40)).map(|_| Region::new(self.below(reach - 5001) as i64, record));
                Pattern::list(regions.collect()).unwrap()
            }
        }
    }

    /// So many regions of at most `len` bytes within the first `reach`.
    fn list(&mut self, regions: u64, reach: u64, len: u64) -> Pattern {
        let region = |_| Region::new(self.below(reach - len) as i64, 1 + self.below(len));
        Pattern::list((0..regions).map(region).collect()).unwrap()
    }

    /// A pattern of which servers hold more than a reply may carry: such a one again and again, moved a
    /// little.
    fn long_pattern(&mut self, reach: u64) -> Pattern {
        let record = 1 + self.below(reach / 3);
        let rows = 2 + 1_200_000 / record;
        let (across, down) = (self.below(3), self.below(2) * self.below(reach / 3 / rows + 1));
        let levels = vec![
            Level { stride: (record / 2) as i64, quantity: 1 + across },
            Level { stride: down as i64, quantity: rows.div_ceil(1 + across) },
        ];
        Pattern::nested(self.below(50) as i64, record, levels).unwrap()
    }

    fn bytes(&mut self, len: u64) -> Vec<u8> {
        (0..len).map(|_| 1 + self.below(255) as u8).collect()
    }
}

/// The file as one client knows it.
#[derive(Default)]
struct Model(Vec<u8>);

impl Model {
    fn write(&mut self, pattern: &Pattern, data: &[u8]) {
        let mut data = data.iter();
        for region in pattern.regions() {
            for (at, byte) in (region.offset as usize..).zip(data.by_ref().take(region.len as usize)) {
                if self.0.len() <= at {
                    self.0.resize(at + 1, 0);
                }
                self.0[at] = *byte;
            }
        }
    }

    /// As [`OpenFile::read_pattern`] promises.
    fn read(&self, pattern: &Pattern) -> Vec<u8> {
        let (mut bytes, mut len) = (Vec::new(), 0);
        for region in pattern.regions() {
            for at in region.offset as usize..region.offset as usize + region.len as usize {
                bytes.push(self.0.get(at).copied().unwrap_or(0));
                if at < self.0.len() {
                    len = bytes.len();
                }
            }
        }
        bytes.truncate(len);
        bytes
    }
}

async fn make(client: &Client, name: &str) -> OpenFile {
    let name = Name::new(name.as_bytes()).unwrap();
    let rights = Rights::READ | Rights::WRITE;
    client.create(Handle::ROOT, &name, OWNER, true, rights, None).await.unwrap().2
}

async fn open(client: &Client, file: Handle) -> OpenFile {
    client.open(file, Rights::READ | Rights::WRITE).await.unwrap()
}

/// Writes, reads, truncations, holes and appends in turn, each compared with the model.
/// Servers pull the data of the writes of every second seed.
fn equals_a_naive_loop(seed: u64, servers: u16, reach: u64, steps: usize) {
    let cluster = cluster(seed, servers);
    let mut options = cluster.options();
    if seed % 2 == 1 {
        options.unasked_bytes = 20_000;
    }
    cluster.complete_client(0, move |env| async move {
        let client = Client::connect(env, options).await.unwrap();
        let file = make(&client, "file").await;
        let mut draw = Draw(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let mut model = Model::default();
        for step in 0..steps {
            match draw.below(12) {
                0..=3 => {
                    let pattern = draw.pattern(reach);
                    let data = draw.bytes(pattern.len());
                    file.write_pattern(&pattern, data.clone().into()).await.unwrap();
                    model.write(&pattern, &data);
                }
                4 => {
                    let size = draw.below(reach);
                    client.truncate(file.handle(), size, false).await.unwrap();
                    model.0.resize(size as usize, 0);
                }
                5 => {
                    let (from, len) = (draw.below(reach), 1 + draw.below(reach / 4));
                    file.allocate(from, len, Allocation::Punch).await.unwrap();
                    let end = ((from + len) as usize).min(model.0.len());
                    model.0[(from as usize).min(end)..end].fill(0);
                }
                6 => {
                    let len = 1 + draw.below(9000);
                    let data = draw.bytes(len);
                    file.append(data.clone().into()).await.unwrap();
                    model.0.extend(data);
                }
                _ => {
                    let pattern = match draw.below(8) {
                        0 => draw.long_pattern(reach),
                        _ => draw.pattern(reach),
                    };
                    let read = file.read_pattern(&pattern).await.unwrap();
                    assert!(read[..] == model.read(&pattern), "seed {seed}, step {step}: {pattern}");
                }
            }
        }
        let whole = file.read(0, model.0.len() + 10).await.unwrap();
        assert!(whole[..] == model.0[..], "seed {seed}");
    });
}

#[test]
fn patterned_transfers_are_equal_to_a_naive_loop_on_small_and_large_files() {
    for (seed, servers) in (1..).zip([1, 2, 3, 4, 7, 16]) {
        equals_a_naive_loop(seed, servers, 20_000, 120);
        equals_a_naive_loop(100 + seed, servers, 700_000, 60);
    }
}

/// The counters of all servers, added up.
async fn counted(client: &Client, servers: u16, name: &str) -> u64 {
    let mut all = 0;
    for server in client.map().servers.iter().take(usize::from(servers)) {
        let told: Value = serde_json::from_str(&client.status(server.id).await.unwrap()).unwrap();
        all += told["counters"][name].as_u64().unwrap();
    }
    all
}

const PIECE: u64 = 256 << 10;

#[test]
fn a_strided_write_of_64_mib_over_4_servers_is_4_requests() {
    let (servers, record, records) = (4, 8192, 8192);
    let cluster = cluster(32, servers);
    let options = cluster.options();
    cluster.complete_client(0, move |env| async move {
        let client = Client::connect(env, options).await.unwrap();
        let file = make(&client, "file").await;
        let pattern = Pattern::strided(100, record, 2 * record as i64, records).unwrap();
        file.write(2 * record * records, Bytes::from_static(b"end")).await.unwrap();
        let data: Bytes = (0..pattern.len()).map(|at| (at / record * 7 + at % record) as u8).collect();
        let messages = || client.counters().messages.get("write").copied().unwrap_or(0);
        let (before, grants) = (messages(), counted(&client, servers, "grants_sent").await);
        file.write_pattern(&pattern, data.clone()).await.unwrap();
        assert_eq!(messages() - before, 4);
        let grants = counted(&client, servers, "grants_sent").await - grants;
        assert!(grants <= pattern.len() / PIECE + u64::from(servers), "{grants} grants");
        for at in [0, 1, 4095, records - 1] {
            let read = file.read(100 + 2 * record * at, record as usize).await.unwrap();
            let from = (record * at) as usize;
            assert!(read[..] == data[from..from + record as usize], "record {at}");
        }
        assert_eq!(counts(&client, servers).await.in_hand, 0);
    });
}

#[test]
fn a_write_whose_connections_are_lost_within_its_grants_is_done_and_right() {
    for (seed, servers) in [(51, 1), (52, 2), (53, 3)] {
        let cluster = cluster(seed, servers);
        let mut options = cluster.options();
        options.unasked_bytes = 20_000;
        let near = cluster.client_machine(0);
        let far: Vec<_> = (0..servers).map(|id| cluster.machine_of_server(ServerId(id)).unwrap()).collect();
        let world = cluster.world.clone();
        cluster.complete_client(0, move |env| async move {
            let client = Client::connect(env.clone(), options).await.unwrap();
            let file = make(&client, "file").await;
            let mut draw = Draw(seed);
            let len = 2_000_000;
            let mut model = Model::default();
            let whole = Pattern::contiguous(0, len).unwrap();
            let mut reconnects = 0;
            for round in 0..10 {
                let pattern = match round % 2 {
                    0 => whole.clone(),
                    _ => Pattern::strided(draw.below(9) as i64, 1000, 1500, len / 1500).unwrap(),
                };
                let data = draw.bytes(pattern.len());
                let before = client.counters().reconnects;
                let breaks = async {
                    for _ in 0..4 {
                        env.sleep(Duration::from_micros(300 + draw.below(8000))).await;
                        world.reset(far[draw.below(far.len() as u64) as usize], near);
                    }
                };
                let writing = file.write_pattern(&pattern, data.clone().into());
                let (written, ()) = futures_util::future::join(writing, breaks).await;
                written.unwrap();
                model.write(&pattern, &data);
                // A later write to the same place is not undone by what a lost connection brought.
                let later = Pattern::contiguous(draw.below(len - 5000) as i64, 5000).unwrap();
                let data = draw.bytes(5000);
                file.write_pattern(&later, data.clone().into()).await.unwrap();
                model.write(&later, &data);
                reconnects += client.counters().reconnects - before;
                let read = file.read(0, model.0.len()).await.unwrap();
                assert!(read[..] == model.0[..], "seed {seed}, round {round}: {pattern}");
            }
            assert!(reconnects > 0, "no connection was lost within a write");
            assert_eq!(counts(&client, servers).await.in_hand, 0);
        });
    }
}

#[test]
fn a_long_write_that_its_caller_gave_up_writes_nothing_over_a_later_one() {
    for (seed, pause_us) in [(61, 1000), (62, 3000), (63, 6000)] {
        let cluster = cluster(seed, 1);
        let mut options = cluster.options();
        options.unasked_bytes = 20_000;
        cluster.complete_client(0, move |env| async move {
            let client = Client::connect(env.clone(), options).await.unwrap();
            let file = make(&client, "file").await;
            let mut draw = Draw(seed);
            // The later one is where the first one has not come yet.
            let (first, later, at) = (draw.bytes(16_000_000), draw.bytes(500_000), 15_500_000);
            {
                let writing = std::pin::pin!(file.write(0, first.into()));
                let pause = std::pin::pin!(env.sleep(Duration::from_micros(pause_us)));
                let ended = futures_util::future::select(writing, pause).await;
                let is_under_way = matches!(ended, futures_util::future::Either::Right(_));
                assert!(is_under_way, "it was over after {pause_us} us");
            }
            file.write(at, later.clone().into()).await.unwrap();
            env.sleep(Duration::from_secs(40)).await;
            let read = file.read(at, later.len()).await.unwrap();
            assert!(read[..] == later[..], "seed {seed}: the first write is over the later one");
            assert_eq!(counts(&client, 1).await.in_hand, 0);
        });
    }
}

#[test]
fn a_strided_read_of_64_mib_over_4_servers_is_4_requests() {
    let (servers, record, records) = (4, 8192, 8192);
    let cluster = cluster(31, servers);
    let options = cluster.options();
    cluster.complete_client(0, move |env| async move {
        let client = Client::connect(env, options).await.unwrap();
        let file = make(&client, "file").await;
        let pattern = Pattern::strided(100, record, 2 * record as i64, records).unwrap();
        // Nearly all of it is a hole.
        file.write(2 * record * records, Bytes::from_static(b"end")).await.unwrap();
        let written = [0, 4000, records - 1];
        for at in written {
            file.write(100 + 2 * record * at, vec![at as u8 | 1; record as usize].into()).await.unwrap();
        }
        let messages = || client.counters().messages.get("read").copied().unwrap_or(0);
        let (before, pieces) = (messages(), counted(&client, servers, "pieces_sent").await);
        let read = file.read_pattern(&pattern).await.unwrap();
        assert_eq!(messages() - before, 4);
        let pieces = counted(&client, servers, "pieces_sent").await - pieces;
        assert!(pieces <= pattern.len() / PIECE + u64::from(servers), "{pieces} pieces");
        assert_eq!(read.len() as u64, 64 << 20);
        for (at, own) in (0..).zip(read.chunks(record as usize)) {
            let expected = if written.contains(&at) { at as u8 | 1 } else { 0 };
            assert!(own.iter().all(|byte| *byte == expected), "record {at}");
        }
    });
}

#[test]
fn a_read_whose_connections_are_lost_within_its_pieces_goes_on_and_is_right() {
    for (seed, servers) in [(41, 1), (42, 2), (43, 3)] {
        let cluster = cluster(seed, servers);
        let (options, near) = (cluster.options(), cluster.client_machine(0));
        let far: Vec<_> = (0..servers).map(|id| cluster.machine_of_server(ServerId(id)).unwrap()).collect();
        let world = cluster.world.clone();
        cluster.complete_client(0, move |env| async move {
            let client = Client::connect(env.clone(), options).await.unwrap();
            let file = make(&client, "file").await;
            let mut draw = Draw(seed);
            let len = 3_000_000;
            let mut model = Model::default();
            let whole = Pattern::contiguous(0, len).unwrap();
            let data = draw.bytes(len);
            file.write(0, data.clone().into()).await.unwrap();
            model.write(&whole, &data);
            let mut reconnects = 0;
            for round in 0..12 {
                let pattern = match round % 3 {
                    0 => whole.clone(),
                    1 => Pattern::strided(draw.below(9) as i64, 1000, 1500, len / 1500).unwrap(),
                    _ => draw.long_pattern(len),
                };
                let before = client.counters().reconnects;
                let breaks = async {
                    for _ in 0..6 {
                        env.sleep(Duration::from_micros(300 + draw.below(8000))).await;
                        world.reset(far[draw.below(far.len() as u64) as usize], near);
                    }
                };
                let (read, ()) = futures_util::future::join(file.read_pattern(&pattern), breaks).await;
                assert!(read.unwrap()[..] == model.read(&pattern), "seed {seed}, round {round}: {pattern}");
                reconnects += client.counters().reconnects - before;
            }
            assert!(reconnects > 0, "no connection was lost within a read");
            assert_eq!(counts(&client, servers).await.in_hand, 0);
        });
    }
}

/// Every client has its records; all write them at once, then all read another's.
fn interleaved(seed: u64, servers: u16, clients: u64, record: u64, each: u64) -> Counts {
    let cluster = cluster(seed, servers);
    let options = cluster.options();
    cluster.complete_client(0, move |env| async move {
        let first = Client::connect(env.clone(), options.clone()).await.unwrap();
        let file = make(&first, "file").await;
        let of = |client: u64| {
            let (from, stride) = ((client * record) as i64, (clients * record) as i64);
            Pattern::strided(from, record, stride, each).unwrap()
        };
        let byte = |client: u64, at: u64| (client * 31 + at / record * 7 + at % record) as u8 | 1;
        let data = |client: u64| (0..record * each).map(|at| byte(client, at)).collect::<Vec<u8>>();
        let connected = join_all((0..clients).map(|_| Client::connect(env.clone(), options.clone()))).await;
        let connected: Vec<Client> = connected.into_iter().map(Result::unwrap).collect();
        let files = join_all(connected.iter().map(|client| open(client, file.handle()))).await;
        // The file is laid out before.
        let all = clients * record * each;
        file.write(all, Bytes::from_static(b"end")).await.unwrap();
        let before = counts(&first, servers).await;
        let writes = files.iter().zip(0..).map(async |(file, client)| {
            file.write_pattern(&of(client), data(client).into()).await.unwrap();
        });
        join_all(writes).await;
        let written = counts(&first, servers).await;
        let reads = files.iter().zip(0..).map(async |(file, client)| {
            let client = (client + 1) % clients;
            let read = file.read_pattern(&of(client)).await.unwrap();
            assert!(read[..] == data(client), "seed {seed}, client {client}");
        });
        join_all(reads).await;
        let read = counts(&first, servers).await;
        Counts {
            writes: written.writes - before.writes,
            reads_before_writes: written.reads_before_writes - before.reads_before_writes,
            blocks_read: read.blocks_read - written.blocks_read,
            read_bytes: read.read_bytes - written.read_bytes,
            ..read
        }
    })
}

#[derive(Clone, Copy, Debug)]
struct Counts {
    writes: u64,
    reads_before_writes: u64,
    blocks_read: u64,
    read_bytes: u64,
    in_hand: u64,
    cached: u64,
}

async fn counts(client: &Client, servers: u16) -> Counts {
    let mut all =
        Counts { writes: 0, reads_before_writes: 0, blocks_read: 0, read_bytes: 0, in_hand: 0, cached: 0 };
    for server in client.map().servers.iter().take(usize::from(servers)) {
        let told: Value = serde_json::from_str(&client.status(server.id).await.unwrap()).unwrap();
        let of = |group: &str, name: &str| told[group][name].as_u64().unwrap();
        all.writes += of("counters", "blocks_written");
        all.reads_before_writes += of("counters", "blocks_read_before");
        all.blocks_read += of("counters", "blocks_read");
        all.read_bytes += of("env", "file_read_bytes");
        all.in_hand += of("data", "requests_in_hand");
        all.cached += of("data", "cached_bytes");
    }
    all
}

const BLOCK: u64 = 32 * 1024;

#[test]
fn interleaved_writers_write_each_block_about_once_and_interleaved_readers_read_it_once() {
    let (clients, record, each) = (16, 64, 8192);
    let counts = interleaved(5, 4, clients, record, each);
    let blocks = clients * record * each / BLOCK;
    assert!(counts.writes * 10 <= blocks * 11, "{counts:?} of {blocks} blocks");
    assert!(counts.reads_before_writes * 20 <= blocks, "{counts:?} of {blocks} blocks");
    assert!(counts.blocks_read * 100 <= blocks * 105, "{counts:?} of {blocks} blocks");
    assert!(counts.read_bytes * 100 <= blocks * BLOCK * 105, "{counts:?} of {blocks} blocks");
    assert_eq!(counts.in_hand, 0);
}

#[test]
fn a_block_that_one_request_reads_whole_is_not_kept_and_one_of_records_is() {
    let cluster = cluster(6, 2);
    let options = cluster.options();
    cluster.complete_client(0, move |env| async move {
        let client = Client::connect(env, options).await.unwrap();
        let file = make(&client, "file").await;
        file.write(0, vec![7; 1 << 20].into()).await.unwrap();
        let read = async |pattern: &Pattern| {
            let bytes = file.read_pattern(pattern).await.unwrap();
            assert!(bytes.iter().all(|byte| *byte == 7) && bytes.len() as u64 == pattern.len());
            counts(&client, 2).await
        };
        let before = counts(&client, 2).await;
        assert_eq!(before.cached, 0);
        for block in 0..8 {
            let after = read(&Pattern::contiguous(block * BLOCK as i64, BLOCK).unwrap()).await;
            assert_eq!((after.cached, after.blocks_read - before.blocks_read), (0, block as u64 + 1));
        }
        let records = Pattern::strided(0, 1000, 1500, 4 * BLOCK / 1500).unwrap();
        let kept = read(&records).await;
        assert!(kept.cached >= 3 * BLOCK, "{kept:?}");
        // Kept blocks serve whole reads, too.
        let again = read(&Pattern::contiguous(0, BLOCK).unwrap()).await;
        assert_eq!((again.blocks_read, again.read_bytes), (kept.blocks_read, kept.read_bytes));
        client.close().await;
    });
}

#[test]
fn disjoint_records_of_several_clients_are_all_there_whatever_their_size() {
    for (seed, (record, each)) in (20..).zip([(1, 3000), (7, 4001), (1000, 300), (5000, 60), (40_000, 9)]) {
        for servers in [1, 3] {
            interleaved(seed, servers, 5, record, each);
        }
    }
}

#[test]
fn an_overlapping_pattern_leaves_the_later_packed_bytes() {
    let cluster = cluster(9, 2);
    let options = cluster.options();
    cluster.complete_client(0, |env| async move {
        let client = Client::connect(env, options).await.unwrap();
        let file = make(&client, "file").await;
        let mut draw = Draw(99);
        let scattered = (0..4096_u64).map(|n| Region::new((n.wrapping_mul(2_654_435_761) % 5000) as i64, 65));
        let patterns = [
            // Records of 50,000 bytes every 1,000: blocks have pieces of many of them.
            Pattern::strided(10, 50_000, 1000, 5),
            // More than a message to one server, and more than its credit.
            Pattern::list(scattered.collect()),
            Pattern::strided(500_000, 1 << 20, 0, 4),
            Pattern::strided(900_000, 3 << 20, -70_000, 3),
        ];
        let mut model = Model::default();
        for pattern in patterns.map(Result::unwrap) {
            let data = draw.bytes(pattern.len());
            file.write_pattern(&pattern, data.clone().into()).await.unwrap();
            model.write(&pattern, &data);
            let read = file.read(0, model.0.len()).await.unwrap();
            assert!(read[..] == model.0[..], "{pattern}");
        }
    });
}

#[test]
fn a_list_of_any_length_is_one_call_that_is_cut_into_few_requests() {
    let (regions, servers) = (10_000_u64, 4_u16);
    let cluster = cluster(31, servers);
    let options = cluster.options();
    cluster.complete_client(0, move |env| async move {
        let client = Client::connect(env, options).await.unwrap();
        let file = make(&client, "file").await;
        let (mut draw, mut model) = (Draw(31), Model::default());
        let messages = || client.counters().messages.get("read").copied().unwrap_or(0);
        for round in 0..4 {
            // The first round leaves the file in its first strip; the last one writes and reads megabytes.
            let (reach, len) = [(50_000, 3), (9_000_000, 40), (9_000_000, 700), (900_000, 90)][round];
            let list = draw.list(regions, reach, len);
            let data = draw.bytes(list.len());
            file.write_pattern(&list, data.clone().into()).await.unwrap();
            model.write(&list, &data);
            let whole = Pattern::contiguous(0, reach + len).unwrap();
            assert!(file.read_pattern(&whole).await.unwrap() == model.read(&whole), "round {round}");

            let other = draw.list(regions, reach, len);
            let before = messages();
            let read = file.read_pattern(&other).await.unwrap();
            // Three parts, each one request a server.
            assert_eq!(messages() - before, if round == 0 { 3 } else { 12 }, "round {round}");
            assert!(read == model.read(&other), "round {round}");
            let memory = Pattern::contiguous(0, other.len()).unwrap();
            let mut into = vec![0; other.len() as usize];
            let pairing = Pairing::new(&other, &memory).unwrap();
            let got = file.read_paired(&pairing, &mut into).await.unwrap() as usize;
            assert!(into[..got] == model.read(&other), "round {round}");
        }
    });
}

#[test]
fn memory_need_not_be_packed() {
    let cluster = cluster(11, 3);
    let options = cluster.options();
    cluster.complete_client(0, |env| async move {
        let client = Client::connect(env, options).await.unwrap();
        let file = make(&client, "file").await;
        let mut draw = Draw(77);
        let memory = draw.bytes(400_000);
        let there = Pattern::strided(30, 100, 3000, 900).unwrap();
        // Backwards in memory, with records of another length.
        let here = Pattern::strided(399_000, 300, -1000, 300).unwrap();
        let pairing = Pairing::new(&there, &here).unwrap();
        file.write_paired(&pairing, &memory.clone().into()).await.unwrap();
        let at =
            |region: Region| &memory[region.offset as usize..region.offset as usize + region.len as usize];
        let packed: Vec<u8> = here.regions().flat_map(at).copied().collect();
        assert!(file.read_pattern(&there).await.unwrap()[..] == packed[..]);
        let mut back = vec![0; memory.len()];
        assert_eq!(file.read_paired(&pairing, &mut back).await.unwrap(), 90_000);
        let mut expected = vec![0; memory.len()];
        for region in here.regions() {
            let range = region.offset as usize..region.offset as usize + region.len as usize;
            expected[range.clone()].copy_from_slice(&memory[range]);
        }
        assert!(back == expected);
        // The end of the file: the rest of the memory stays.
        client.truncate(file.handle(), 30 + 600 * 3000, false).await.unwrap();
        let mut back = vec![9; memory.len()];
        assert_eq!(file.read_paired(&pairing, &mut back).await.unwrap(), 60_000);
        assert_eq!((back[399_000], back[399_000 - 250 * 1000]), (memory[399_000], 9));
        let outside = Pattern::contiguous(350_000, 90_000).unwrap();
        let refused = file.read_paired(&Pairing::new(&there, &outside).unwrap(), &mut back).await;
        assert!(refused.is_err_and(|error| error.to_string().contains("outside of 400000 bytes")));
    });
}

#[test]
fn cached_blocks_do_not_outlive_a_truncation_a_hole_an_append_or_a_write() {
    let cluster = cluster(12, 1);
    let options = cluster.options();
    cluster.complete_client(0, |env| async move {
        let client = Client::connect(env, options).await.unwrap();
        let file = make(&client, "file").await;
        let records = Pattern::strided(0, 64, 128, 4096).unwrap();
        let mut model = Model(vec![7; 600_000]);
        file.write(0, model.0.clone().into()).await.unwrap();
        for round in 0..6 {
            // The blocks are in the cache after this.
            assert!(file.read_pattern(&records).await.unwrap()[..] == model.read(&records), "round {round}");
            match round {
                0 => {
                    client.truncate(file.handle(), 100_000, false).await.unwrap();
                    client.truncate(file.handle(), 600_000, false).await.unwrap();
                    model.0[100_000..].fill(0);
                }
                1 => {
                    file.allocate(10_000, 50_000, Allocation::Punch).await.unwrap();
                    model.0[10_000..60_000].fill(0);
                }
                2 => {
                    client.truncate(file.handle(), 200_000, false).await.unwrap();
                    file.append(vec![8; 300_000].into()).await.unwrap();
                    model.0.truncate(200_000);
                    model.0.resize(500_000, 8);
                }
                3 => {
                    file.write(64, vec![5; 200].into()).await.unwrap();
                    model.0[64..264].fill(5);
                }
                _ => {
                    let data = vec![round as u8; records.len() as usize];
                    file.write_pattern(&records, data.clone().into()).await.unwrap();
                    model.write(&records, &data);
                }
            }
        }
    });
}
