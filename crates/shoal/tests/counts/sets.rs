//! The table of messages in `docs/lab/COUNTS.md`, exactly: for the baseline, the paper's set and ours, over
//! 1, 4 and 8 data servers. (Only a listing by the paper's set may cost less than its cell.) In addition the
//! costs of our set for files that are not small, or whose metafile is on another server than their name.
//!
//! *n* is the number of data servers. A request and its reply are one message. Messages between servers are
//! not counted. The client knows the directory's handle, and the properties that new files take from it.

use crate::cluster::Cluster;
use bytes::Bytes;
use shoal_client::{Client, FileWrite, RenameFlags, Which};
use shoal_env::real;
use shoal_proto::op::Owner;
use shoal_proto::{Attr, Handle, Name, Rights, ServerId, Status, Switches};
use shoal_store::ModuleKind;
use std::time::Duration;

const SMALL: usize = 8 << 10;
const LARGE: usize = 1 << 20;
const ENTRIES: u64 = 20;
const OWNER: Owner = Owner { mode: 0o644, uid: 0, gid: 0 };
const DIR: Owner = Owner { mode: 0o755, uid: 0, gid: 0 };

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

fn bytes(len: usize) -> Bytes {
    Bytes::from(vec![7; len])
}

/// A client, a directory, and the counts.
struct Bench {
    client: Client,
    dir: Handle,
    is_compound: bool,
}

impl Bench {
    /// Messages of the client for `body`.
    async fn messages<T>(&self, body: impl Future<Output = T>) -> (u64, T) {
        let sent = || self.client.counters().messages.values().sum::<u64>();
        let before = sent();
        let value = body.await;
        (sent() - before, value)
    }

    async fn create(&self, name: &Name) -> Attr {
        let made = self.client.create(self.dir, name, OWNER, true, Rights::WRITE, None).await;
        let (attr, created, file) = made.unwrap();
        assert!(created);
        file.close().await.unwrap();
        attr
    }

    /// Create, write, close: in one where the client has a verb for it.
    async fn create_write(&self, name: &Name) {
        if self.is_compound {
            self.client.create_write(self.dir, name, OWNER, bytes(SMALL), None).await.unwrap();
            return;
        }
        let made = self.client.create(self.dir, name, OWNER, true, Rights::WRITE, None).await;
        let (_, _, file) = made.unwrap();
        file.write(0, bytes(SMALL)).await.unwrap();
        file.close().await.unwrap();
    }

    async fn read(&self, name: &Name) {
        if self.is_compound {
            let (_, data) = self.client.read_small(self.dir, name, SMALL).await.unwrap();
            assert_eq!(data.unwrap().len(), SMALL);
            return;
        }
        let file = self.client.open_name(self.dir, name, Rights::READ).await.unwrap();
        assert_eq!(file.read(0, SMALL).await.unwrap().len(), SMALL);
        file.close().await.unwrap();
    }

    async fn stat(&self, name: &Name) -> Attr {
        self.client.lookup(self.dir, name).await.unwrap()
    }

    async fn list(&self, dir: Handle) -> u64 {
        let (mut listing, mut entries) = (self.client.opendir(dir), 0);
        while let Some(entry) = listing.next(true).await.unwrap() {
            assert!(entry.attr.is_some());
            entries += 1;
        }
        entries
    }

    /// A file whose metafile is on the server of its name, as `placement = spread` makes some, and one whose
    /// is elsewhere, if there is one.
    async fn near_and_far(&self, servers: u64) -> (Name, Option<Name>) {
        let (mut near, mut far) = (None, None);
        for n in 0..200 {
            let one = name(&format!("placed{n}"));
            self.create_write(&one).await;
            let is_near = self.stat(&one).await.handle.server() == self.dir.server();
            (if is_near { &mut near } else { &mut far }).get_or_insert(one);
            if near.is_some() && (far.is_some() || servers == 1 || self.is_compound) {
                break;
            }
        }
        (near.unwrap(), far)
    }
}

fn with(switches: Switches, servers: u64, body: impl AsyncFnOnce(Bench)) {
    with_second(switches, servers, async |bench, _| body(bench).await);
}

/// The same with a second client, which is not counted.
fn with_second(switches: Switches, servers: u64, body: impl AsyncFnOnce(Bench, Client)) {
    let cluster = Cluster::start_with(servers as u16, ModuleKind::Memory, switches);
    real::run("client", async |env| {
        let mut options = cluster.client();
        // The properties that new files take from their directory are known; names are always looked up.
        options.attr_cache = Duration::from_secs(600);
        let client = Client::connect(env.clone(), options).await.unwrap();
        let root = client.walk(b"/", true).await.unwrap().handle;
        let dir = client.mkdir(root, &name("dir"), DIR).await.unwrap().handle;
        client.sync_all().await.unwrap();
        let bench = Bench { client: client.clone(), dir, is_compound: switches.compound };
        bench.create(&name("first")).await;
        let second = Client::connect(env.clone(), cluster.client()).await.unwrap();
        body(bench, second.clone()).await;
        second.close().await;
        client.close().await;
    });
}

/// The table's cells for `n` data servers: create; create, write, close; stat; lookup, read, close; remove.
fn table(set: &str, n: u64) -> [u64; 5] {
    match set {
        "baseline" => [n + 3, n + 5, n + 1, 4, n + 2],
        "paper" => [2, 3, 1, 3, 3],
        _ => [1, 1, 1, 1, 1],
    }
}

#[test]
fn the_table_of_messages_holds_for_the_baseline_the_papers_set_and_ours() {
    for (set, switches) in Switches::NAMED {
        for n in [1, 4, 8] {
            with(switches, n, async |bench| {
                let create = bench.messages(bench.create(&name("c"))).await.0;
                let write = bench.messages(bench.create_write(&name("w"))).await.0;
                let (near, far) = bench.near_and_far(n).await;
                let (stat, attr) = bench.messages(bench.stat(&near)).await;
                assert_eq!(attr.size, SMALL as u64);
                let read = bench.messages(bench.read(&near)).await.0;
                let remove = bench.messages(bench.client.unlink(bench.dir, &near)).await.0;
                println!("| {set}, n = {n} | {create} | {write} | {stat} | {read} | {remove} |");
                assert_eq!([create, write, stat, read, remove], table(set, n), "{set} over {n}");
                if let Some(far) = far {
                    // A metafile elsewhere is asked by itself, by handle.
                    let (messages, attr) = bench.messages(bench.stat(&far)).await;
                    assert_eq!((messages, attr.size), (stat + 1, SMALL as u64), "{set} over {n}");
                    assert_eq!(bench.messages(bench.read(&far)).await.0, read, "{set} over {n}");
                    let removed = bench.messages(bench.client.unlink(bench.dir, &far)).await.0;
                    assert_eq!(removed, remove, "{set} over {n}");
                }
            });
        }
    }
}

#[test]
fn a_listing_with_attributes_costs_what_the_table_says() {
    for (set, switches) in Switches::NAMED {
        for n in [1, 4, 8] {
            with(switches, n, async |bench| {
                for at in 1..ENTRIES {
                    bench.create(&name(&format!("e{at}"))).await;
                }
                let (messages, listed) = bench.messages(bench.list(bench.dir)).await;
                println!("| {set}, n = {n} | {messages} for {listed} entries |");
                assert_eq!(listed, ENTRIES);
                match set {
                    "baseline" => assert_eq!(messages, 1 + ENTRIES * (n + 1)),
                    // The names, and then one question a server: no stuffed file has anything on a second
                    // one.
                    "paper" => assert!((2..=1 + n).contains(&messages), "{messages} over {n}"),
                    _ => assert_eq!(messages, 1),
                }
            });
        }
    }
}

#[test]
fn what_is_not_a_small_file_beside_its_name_costs_what_is_said() {
    for n in [1, 4, 8] {
        with(Switches::OURS, n, async |bench| {
            let (client, dir) = (&bench.client, bench.dir);
            let elsewhere = u64::from(n > 1);
            let mut other = dir;
            for at in 0..64 {
                if other.server() != dir.server() || n == 1 {
                    break;
                }
                let made = client.mkdir(dir, &name(&format!("d{at}")), DIR).await.unwrap();
                other = made.handle;
            }
            // A moved entry, and a hard link, whose objects stay where they are.
            client.create_write(other, &name("moved"), OWNER, bytes(SMALL), None).await.unwrap();
            let (old, moved) = (name("moved"), name("moved-here"));
            let renamed = client.rename(other, &old, dir, &moved, RenameFlags::default());
            assert_eq!(bench.messages(renamed).await.0, 1);
            let object = bench.stat(&moved).await.handle;
            let link = name("link");
            assert_eq!(bench.messages(client.link(object, dir, &link)).await.0, 1);
            for one in [&moved, &link] {
                assert_eq!(bench.messages(bench.stat(one)).await.0, 1 + elsewhere, "over {n}");
                assert_eq!(bench.messages(bench.read(one)).await.0, 1 + elsewhere, "over {n}");
                assert_eq!(bench.messages(client.unlink(dir, one)).await.0, 1, "over {n}");
            }
            // An unstuffed file: its attributes, and the facts of each datafile.
            let large = name("large");
            client.create_write(dir, &large, OWNER, bytes(LARGE), None).await.unwrap();
            assert_eq!(bench.messages(bench.stat(&large)).await.0, 1 + n, "over {n}");
            let file = client.open_name(dir, &large, Rights::READ).await.unwrap();
            let (messages, data) = bench.messages(file.read(0, SMALL)).await;
            assert_eq!((messages, data.unwrap().len()), (1, SMALL));
            file.close().await.unwrap();
            assert_eq!(bench.messages(client.unlink(dir, &large)).await.0, 1, "over {n}");
        });
    }
}

#[test]
fn a_split_directory_costs_no_message_more_once_its_shards_are_known() {
    const SERVERS: u64 = 4;
    with_second(Switches { split_entries: 64, ..Switches::OURS }, SERVERS, async |bench, second| {
        let (client, dir) = (&bench.client, bench.dir);
        for at in 1..64 {
            bench.create(&name(&format!("old{at}"))).await;
        }
        while !second.getattr(dir).await.unwrap().shards.is_split() {}
        // The second client learns which names go where.
        for at in 1..64 {
            second.lookup(dir, &name(&format!("old{at}"))).await.unwrap();
        }
        let of = |server: u16, stem: &str| {
            let mut names = (0..1000).map(|n| name(&format!("{stem}{n}")));
            names.find(|one| second.server_of_entry(dir, one) == ServerId(server)).unwrap()
        };
        let others: Vec<u16> = (0..SERVERS as u16).filter(|server| *server != dir.server().0).collect();
        // A client that does not know the shards is redirected, and asks again: once.
        let stale = bench.messages(bench.create(&of(others[0], "stale"))).await.0;
        assert_eq!(stale, 2, "a stale map");
        for server in 0..SERVERS as u16 {
            let new = of(server, "new");
            let (create, made) = bench.messages(bench.create(&new)).await;
            assert_eq!((create, made.handle.server()), (1, ServerId(server)), "create");
            assert_eq!(bench.messages(bench.stat(&new)).await.0, 1, "stat");
            assert_eq!(bench.messages(client.unlink(dir, &new)).await.0, 1, "remove");
            let write = of(server, "written");
            assert_eq!(bench.messages(bench.create_write(&write)).await.0, 1, "create, write, close");
            assert_eq!(bench.messages(bench.read(&write)).await.0, 1, "lookup, read, close");
        }
        // An entry older than the split leads to another server's object.
        let old = (1..64).map(|at| name(&format!("old{at}")));
        let moved = old.clone().find(|old| second.server_of_entry(dir, old) != dir.server()).unwrap();
        let stayed = old.clone().find(|old| second.server_of_entry(dir, old) == dir.server()).unwrap();
        // Many of them: one message a shard, and one to home for the objects of moved entries.
        let which: Vec<Which> = old.clone().map(|old| Which::Entry(dir, old)).collect();
        let pieces =
            which.iter().map(|which| FileWrite { which: which.clone(), offset: 0, data: "old".into() });
        let (write_many, written) = bench.messages(client.write_many(pieces.collect(), false)).await;
        written.into_iter().for_each(|written| assert_eq!(written.unwrap().size, 3));
        let (read_many, read) = bench.messages(client.read_many(&which, 100)).await;
        read.into_iter().for_each(|read| assert_eq!(read.unwrap().1.as_deref(), Some(&b"old"[..])));
        let (stat_many, attrs) = bench.messages(client.stat_many(&which)).await;
        attrs.into_iter().for_each(|attr| assert_eq!(attr.unwrap().size, 3));
        assert_eq!([write_many, read_many, stat_many], [SERVERS + 1; 3], "many, old");
        for (one, elsewhere) in [(&moved, 1), (&stayed, 0)] {
            let (read, _) = bench.messages(client.read_small(dir, one, SMALL)).await;
            assert_eq!(read, 1 + elsewhere, "lookup, read, close, old");
            assert_eq!(bench.messages(bench.stat(one)).await.0, 1 + elsewhere, "stat, old");
            assert_eq!(bench.messages(client.unlink(dir, one)).await.0, 1, "remove, old");
        }
        let attributes = bench.messages(client.getattr(dir)).await.0;
        let (listed, entries) = bench.messages(bench.list(dir)).await;
        assert_eq!(entries, 64 - 2 + 1 + SERVERS);
        println!("| split directory | {stale} | {attributes} | {listed} for {entries} entries |");
        assert_eq!(attributes, SERVERS, "its attributes: one a shard");
        // Of each shard its buffer, and one question to home for the objects of its old entries.
        assert_eq!(listed, SERVERS + others.len() as u64);
        // A whole directory costs the same as before.
        let whole = client.mkdir(Handle::ROOT, &name("whole"), DIR).await.unwrap().handle;
        let file = name("f");
        let made = client.create(whole, &file, OWNER, true, Rights::WRITE, None);
        assert_eq!(bench.messages(made).await.0, 1);
    });
}

#[test]
fn a_file_that_could_not_be_entered_leaves_nothing_behind() {
    const SERVERS: u16 = 4;
    for switches in [Switches::BASELINE, Switches::PAPER] {
        with_second(switches, SERVERS.into(), async |bench, second| {
            let (client, file) = (&bench.client, name("f"));
            let gone = client.mkdir(bench.dir, &name("gone"), DIR).await.unwrap().handle;
            // The properties that new files take from it are known now, and so they are not requested again.
            let (.., open) = client.create(gone, &file, OWNER, true, Rights::WRITE, None).await.unwrap();
            open.close().await.unwrap();
            client.unlink(gone, &file).await.unwrap();
            let rows = async || {
                let mut rows = 0;
                for server in 0..SERVERS {
                    for table in [b"a", b"f", b"n"] {
                        rows += second.rows(ServerId(server), table, b"", 1000).await.unwrap().0.len();
                    }
                }
                rows
            };
            second.rmdir(bench.dir, &name("gone")).await.unwrap();
            // The first of all files, whose rows still say that it is being made.
            second.unlink(bench.dir, &name("first")).await.unwrap();
            let before = rows().await;
            let failed = client.create(gone, &file, OWNER, true, Rights::WRITE, None).await;
            assert_eq!(failed.map(drop).unwrap_err().status, Status::Stale);
            assert_eq!(rows().await, before);
        });
    }
}
