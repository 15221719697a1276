//! The cost of each hot operation, measured alone and compared with its row of the table.

use crate::cluster::{Cluster, STRIP};
use crate::cost::{Cost, Meter, Most};
use crate::table::{four, one};
use bytes::Bytes;
use futures_util::future::join_all;
use shoal_client::{Client, RenameFlags};
use shoal_env::real;
use shoal_proto::op::Owner;
use shoal_proto::{Handle, Name, Rights};
use shoal_store::ModuleKind;

/// Operations of one measurement.
const N: usize = 16;
/// Bytes of a small file.
const SMALL: usize = 8 << 10;
/// Bytes of a file over all servers: four strips on each of four.
const LARGE: usize = 1 << 20;
/// Entries of the directory that is listed.
const ENTRIES: usize = 1000;
/// Creates at once where many are needed.
const CREATES_AT_ONCE: usize = 50;

const OWNER: Owner = Owner { mode: 0o644, uid: 0, gid: 0 };
const DIR: Owner = Owner { mode: 0o755, uid: 0, gid: 0 };

fn name(prefix: &str, n: usize) -> Name {
    Name::new(format!("{prefix}{n}").as_bytes()).unwrap()
}

fn bytes(len: usize) -> Bytes {
    Bytes::from(vec![7; len])
}

/// Measurements of one file system, in order.
struct Run<'a> {
    meter: Meter<'a>,
    dir: Handle,
    costs: Vec<Cost>,
}

impl Run<'_> {
    fn client(&self) -> &Client {
        self.meter.client
    }

    async fn each(&mut self, what: &'static str, body: impl AsyncFn(&Client, usize)) {
        let client = self.meter.client.clone();
        let cost = self.meter.cost(what, N, async {
            for n in 0..N {
                body(&client, n).await;
            }
        });
        let cost = cost.await;
        self.costs.push(cost);
    }

    /// A new directory that does not live on the server of `dir`, where there is another.
    async fn elsewhere(&self, dir: Handle) -> (Handle, Name) {
        let servers = self.client().map().servers.len();
        for n in 0.. {
            let name = name("elsewhere", n);
            let attr = self.client().mkdir(dir, &name, DIR).await.unwrap();
            if servers == 1 || attr.handle.server() != dir.server() {
                return (attr.handle, name);
            }
        }
        unreachable!("names do not end")
    }

    async fn small_files(&mut self) {
        let (dir, data) = (self.dir, bytes(SMALL));
        self.each("create", async |client, n| {
            let (_, created, file) =
                client.create(dir, &name("f", n), OWNER, true, Rights::WRITE, None).await.unwrap();
            assert!(created);
            file.close().await.unwrap();
        })
        .await;
        self.each("create, write 8 KiB, close", async |client, n| {
            client.create_write(dir, &name("w", n), OWNER, data.clone(), None).await.unwrap();
        })
        .await;
        self.each("stat, with its lookup", async |client, n| {
            assert_eq!(client.lookup(dir, &name("w", n)).await.unwrap().size, SMALL as u64);
        })
        .await;
        self.each("lookup, read 8 KiB, close", async |client, n| {
            let (_, read) = client.read_small(dir, &name("w", n), SMALL).await.unwrap();
            assert_eq!(read.unwrap().len(), SMALL);
        })
        .await;
        self.each("rename within a directory", async |client, n| {
            client.rename(dir, &name("w", n), dir, &name("r", n), RenameFlags::default()).await.unwrap();
        })
        .await;
        self.each("remove", async |client, n| client.unlink(dir, &name("r", n)).await.unwrap()).await;
    }

    async fn open_file(&mut self) {
        let (client, data) = (self.client().clone(), bytes(SMALL));
        let rights = Rights::READ | Rights::WRITE;
        let (_, _, file) =
            client.create(self.dir, &name("open", 0), OWNER, true, rights, None).await.unwrap();
        file.write(0, data.clone()).await.unwrap();
        self.each("write 8 KiB, open file", async |_, _| file.write(0, data.clone()).await.unwrap()).await;
        self.each("read 8 KiB, open file", async |_, _| {
            assert_eq!(file.read(0, SMALL).await.unwrap().len(), SMALL);
        })
        .await;
        self.each("write 8 KiB and fsync", async |_, _| {
            file.write(0, data.clone()).await.unwrap();
            file.fsync().await.unwrap();
        })
        .await;
    }

    /// New directories below `dir`, each with its cost: those that were placed on the server of `dir`, and
    /// the others. The next turn is not known, so each is measured by itself.
    async fn places(&self, dir: Handle) -> [Vec<(Name, Cost)>; 2] {
        let (client, servers) = (self.client(), self.client().map().servers.len());
        // All servers' handles are drawn then.
        for n in 0..2 * servers {
            client.mkdir(dir, &name("first", n), DIR).await.unwrap();
        }
        let (mut here, mut elsewhere) = (Vec::new(), Vec::new());
        for n in 0..N / 2 * servers {
            let (name, mut made) = (name("d", n), None);
            let mkdir = async { made = Some(client.mkdir(dir, &name, DIR).await.unwrap().handle) };
            let cost = self.meter.cost("mkdir", 1, mkdir).await;
            let is_here = made.is_some_and(|made| made.server() == dir.server());
            if is_here { here.push((name, cost)) } else { elsewhere.push((name, cost)) }
        }
        [here, elsewhere]
    }

    async fn directories(&mut self) {
        let dir = self.dir;
        let places = self.places(dir).await;
        for (made, [mkdir, rmdir]) in places.into_iter().zip([
            ["mkdir on its parent's server", "rmdir on its parent's server"],
            ["mkdir elsewhere", "rmdir elsewhere"],
        ]) {
            if made.is_empty() {
                continue;
            }
            let (names, costs): (Vec<Name>, Vec<Cost>) = made.into_iter().unzip();
            self.costs.push(Cost::mean(mkdir, &costs));
            let remove = async {
                for name in &names {
                    self.client().rmdir(dir, name).await.unwrap();
                }
            };
            let cost = self.meter.cost(rmdir, names.len(), remove).await;
            self.costs.push(cost);
        }
        let client = self.client().clone();
        let full = client.mkdir(dir, &name("full", 0), DIR).await.unwrap().handle;
        let (client, fill) = (&client, 0..ENTRIES / CREATES_AT_ONCE);
        for turn in fill {
            let creates = (0..CREATES_AT_ONCE).map(|n| async move {
                let name = name("entry", turn * CREATES_AT_ONCE + n);
                client.create_write(full, &name, OWNER, bytes(100), None).await.unwrap();
            });
            join_all(creates).await;
        }
        let list = async {
            let (mut stream, mut entries) = (client.opendir(full), 0);
            while let Some(entry) = stream.next(true).await.unwrap() {
                assert_eq!(entry.attr.unwrap().size, 100);
                entries += 1;
            }
            assert_eq!(entries, ENTRIES);
        };
        let cost = self.meter.cost("list 1,000 entries with attributes", 1, list).await;
        self.costs.push(cost);
    }

    async fn paths(&mut self) {
        // Three directories, each on another server than the one above it.
        let client = self.client().clone();
        let (mut dir, mut path) = (client.walk(b"/", true).await.unwrap().handle, String::new());
        for _ in 0..3 {
            let (next, step) = self.elsewhere(dir).await;
            dir = next;
            path = format!("{path}/{}", String::from_utf8_lossy(step.as_bytes()));
        }
        drop(client.create_write(dir, &name("deep", 0), OWNER, bytes(SMALL), None).await.unwrap());
        let path = format!("{path}/deep0");
        self.each("stat by path, 3 directories elsewhere", async |client, _| {
            assert_eq!(client.walk(path.as_bytes(), true).await.unwrap().size, SMALL as u64);
        })
        .await;
    }

    async fn other_servers(&mut self) {
        let (client, dir) = (self.client().clone(), self.dir);
        let (other, _) = self.elsewhere(dir).await;
        let made = client.create_write(other, &name("object", 0), OWNER, bytes(SMALL), None).await.unwrap();
        self.each("link to an object elsewhere", async |client, n| {
            drop(client.link(made.handle, dir, &name("link", n)).await.unwrap());
        })
        .await;
        self.each("stat, object elsewhere", async |client, n| {
            assert_eq!(client.lookup(dir, &name("link", n)).await.unwrap().handle, made.handle);
        })
        .await;
        self.each("lookup, read 8 KiB, elsewhere", async |client, n| {
            let (_, read) = client.read_small(dir, &name("link", n), SMALL).await.unwrap();
            assert_eq!(read.unwrap().len(), SMALL);
        })
        .await;
        self.each("remove a link to elsewhere", async |client, n| {
            client.unlink(dir, &name("link", n)).await.unwrap();
        })
        .await;
    }

    async fn striped(&mut self) {
        let (dir, data) = (self.dir, bytes(LARGE));
        assert!(LARGE as u64 > STRIP);
        self.each("create, write 1 MiB, close", async |client, n| {
            client.create_write(dir, &name("s", n), OWNER, data.clone(), None).await.unwrap();
        })
        .await;
        self.each("stat, over all servers", async |client, n| {
            assert_eq!(client.lookup(dir, &name("s", n)).await.unwrap().size, LARGE as u64);
        })
        .await;
        let client = self.client().clone();
        let file =
            client.open(client.lookup(dir, &name("s", 0)).await.unwrap().handle, Rights::READ).await.unwrap();
        self.each("read 1 MiB, over all servers", async |_, _| {
            assert_eq!(file.read(0, LARGE).await.unwrap().len(), LARGE);
        })
        .await;
        file.close().await.unwrap();
        self.each("remove, over all servers", async |client, n| {
            client.unlink(dir, &name("s", n)).await.unwrap();
        })
        .await;
    }

    async fn all(mut self) -> Vec<Cost> {
        self.small_files().await;
        self.open_file().await;
        self.directories().await;
        self.paths().await;
        self.other_servers().await;
        self.striped().await;
        self.costs
    }
}

/// Measure everything and hold it against the table.
fn measure(servers: u16, module: ModuleKind, table: &[Most]) -> Vec<Cost> {
    let cluster = Cluster::start(servers, module);
    let costs = real::run("client", async |env| {
        let client = Client::connect(env.clone(), cluster.client()).await.unwrap();
        cluster.filled(&env).await;
        let root = client.walk(b"/", true).await.unwrap().handle;
        let dir = client.mkdir(root, &name("dir", 0), DIR).await.unwrap().handle;
        let meter = Meter { env: &env, cluster: &cluster, client: &client };
        // Every server is connected, and its start work is done.
        client.sync_all().await.unwrap();
        let costs = Run { meter, dir, costs: Vec::new() }.all().await;
        client.close().await;
        costs
    });
    for cost in &costs {
        println!("{} {:?}", cost.row(), cost.by_name);
    }
    assert_eq!(
        costs.iter().map(|c| c.name).collect::<Vec<_>>(),
        table.iter().map(|m| m.name).collect::<Vec<_>>()
    );
    costs
}

/// Runs in one of which each operation has to cost as in the table.
const RUNS_MAX: usize = 3;

/// Hold all operations against a table. Syncs and messages of the servers' own, which a slow machine lets
/// fall into a measurement, are no operation's: one that costs too much is measured again.
fn hold(servers: u16, module: ModuleKind, table: &[Most]) {
    let mut wrong: Vec<Option<String>> = vec![Some(String::new()); table.len()];
    for _ in 0..RUNS_MAX {
        let costs = measure(servers, module, table);
        for ((cost, most), wrong) in costs.iter().zip(table).zip(&mut wrong) {
            let is_kept = module == ModuleKind::Disk;
            assert!(is_kept || (cost.groups, cost.file_calls) == (0.0, 0.0), "{cost:#?}");
            *wrong = wrong.take().and_then(|_| cost.within(most).err());
        }
        if wrong.iter().all(Option::is_none) {
            return;
        }
    }
    panic!("{}", wrong.into_iter().flatten().collect::<Vec<_>>().join("\n"));
}

#[test]
fn every_operation_costs_what_the_table_says_over_four_servers() {
    hold(4, ModuleKind::Disk, &four());
}

#[test]
fn every_operation_costs_what_the_table_says_on_one_server() {
    let table = one();
    assert!(table.iter().all(|most| most.peers == 0.0));
    hold(1, ModuleKind::Disk, &table);
}

#[test]
fn where_nothing_is_kept_the_messages_are_the_same_and_nothing_is_synced() {
    // Its copies are its own: contents live in chunks.
    let table =
        four().iter().map(|most| Most { syncs: 0.0, copied_bytes: f64::MAX, ..*most }).collect::<Vec<_>>();
    hold(4, ModuleKind::Memory, &table);
}
