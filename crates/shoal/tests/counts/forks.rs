//! Forked files: the changes that they allow and refuse, and the messages that operations on them cost.

use crate::cluster::Cluster;
use crate::cost::Meter;
use shoal_client::{Client, Error, RenameFlags};
use shoal_env::real;
use shoal_proto::op::{Op, Owner};
use shoal_proto::{
    Attr, Dist, Handle, Kind, Name, Rights, Roles, ServerId, Status, Switches, Template, limits,
};
use shoal_store::ModuleKind;
use shoal_vfs::ForkedFile;

const DIR: Owner = Owner { mode: 0o755, uid: 0, gid: 0 };
const FILE: Owner = Owner { mode: 0o644, uid: 0, gid: 0 };
const PLAIN: RenameFlags = RenameFlags { no_replace: false, exchange: false };

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

fn forked(subfiles: u16, servers: &[u16]) -> ForkedFile {
    let servers = servers.iter().copied().map(ServerId).collect();
    ForkedFile { subfiles, servers, replace: false }
}

fn fails<T: std::fmt::Debug>(done: Result<T, Error>, status: Status) {
    let failed = done.expect_err("it is refused");
    assert_eq!(failed.status, status, "{failed}");
}

async fn make(client: &Client, text: &str, file: &ForkedFile) -> Attr {
    client.mkforked(Handle::ROOT, &name(text), DIR, file).await.unwrap()
}

async fn subfile(client: &Client, file: Handle, number: usize) -> Handle {
    client.lookup(file, &name(&number.to_string())).await.unwrap().handle
}

async fn fork(client: &Client, dir: Handle, text: &str) -> Handle {
    client.mknod(dir, &name(text), FILE, Kind::File, 0).await.unwrap().handle
}

async fn names(client: &Client, dir: Handle) -> Vec<String> {
    let (mut listing, mut all) = (client.opendir(dir), Vec::new());
    while let Some(entry) = listing.next(false).await.unwrap() {
        all.push(String::from_utf8_lossy(entry.name.as_bytes()).into_owned());
    }
    all.sort();
    all
}

#[test]
fn a_forked_file_is_the_directory_of_its_subfiles_each_whole_on_its_server() {
    let cluster = Cluster::start(4, ModuleKind::Memory);
    real::run("client", async |env| {
        let client = &Client::connect(env.clone(), cluster.client()).await.unwrap();
        let file = make(client, "f", &forked(64, &[])).await;
        assert_eq!((file.template.dist, file.nlink), (Dist::Forked { subfiles: 64 }, 66));
        let mut each = [0; 4];
        for number in 0..64 {
            let subfile = client.lookup(file.handle, &name(&number.to_string())).await.unwrap();
            assert_eq!((subfile.template.dist, subfile.parent), (Dist::Fork, file.handle));
            each[usize::from(subfile.handle.server().0)] += 1;
        }
        assert_eq!(each, [16; 4], "all servers have as many");
        assert_eq!(names(client, file.handle).await.len(), 64);

        let chosen = make(client, "chosen", &forked(5, &[3, 1])).await;
        for number in 0..5 {
            let subfile = subfile(client, chosen.handle, number).await;
            assert_eq!(subfile.server(), ServerId([3, 1][number % 2]));
            let fork = fork(client, subfile, "a").await;
            assert_eq!(fork.server(), subfile.server(), "a fork is beside its entry");
            let opened = client.open(fork, Rights::READ | Rights::WRITE).await.unwrap();
            // Far past a strip: it is never laid out over other servers.
            opened.write(10 << 20, bytes::Bytes::from_static(b"far")).await.unwrap();
            let attr = client.getattr(fork).await.unwrap();
            assert_eq!((attr.size, attr.layout), ((10 << 20) + 3, None));
        }
        client.close().await;
    });
}

#[test]
fn what_a_forked_file_does_not_allow_is_refused_with_the_documented_number() {
    let cluster = Cluster::start(3, ModuleKind::Memory);
    real::run("client", async |env| {
        let client = &Client::connect(env.clone(), cluster.client()).await.unwrap();
        let root = Handle::ROOT;
        // Subfiles on all servers, so that each refusal comes from the directory's server and from another.
        let file = make(client, "f", &forked(6, &[])).await.handle;
        let (zero, one) = (subfile(client, file, 0).await, subfile(client, file, 1).await);
        let outside = client.mkdir(root, &name("d"), DIR).await.unwrap().handle;
        let (a, plain) = (fork(client, zero, "a").await, fork(client, outside, "plain").await);

        // In the file itself nothing is made, moved or removed.
        fails(client.mkdir(file, &name("6"), DIR).await, Status::NotPermitted);
        fails(client.mknod(file, &name("x"), FILE, Kind::File, 0).await, Status::NotPermitted);
        fails(
            client.create(file, &name("x"), FILE, true, Rights::WRITE, None).await.map(drop),
            Status::NotPermitted,
        );
        fails(client.symlink(file, &name("x"), FILE, b"y").await, Status::NotPermitted);
        fails(client.rmdir(file, &name("0")).await, Status::NotPermitted);
        fails(client.rename(file, &name("1"), file, &name("7"), PLAIN).await, Status::NotPermitted);
        for dir in [root, outside] {
            fails(client.rename(file, &name("1"), dir, &name("1"), PLAIN).await, Status::NotPermitted);
            fails(client.rename(root, &name("d"), file, &name("d"), PLAIN).await, Status::NotPermitted);
        }
        // A subfile has forks only, and they stay.
        fails(client.mkdir(zero, &name("x"), DIR).await, Status::NotPermitted);
        fails(client.symlink(zero, &name("x"), FILE, b"y").await, Status::NotPermitted);
        fails(client.mknod(zero, &name("x"), FILE, Kind::Fifo, 0).await, Status::NotPermitted);
        for dir in [root, outside, one] {
            fails(client.rename(zero, &name("a"), dir, &name("a"), PLAIN).await, Status::CrossDevice);
            fails(client.link(a, dir, &name("again")).await, Status::CrossDevice);
        }
        fails(client.rename(outside, &name("plain"), zero, &name("b"), PLAIN).await, Status::CrossDevice);
        fails(client.link(plain, zero, &name("b")).await, Status::CrossDevice);
        fails(client.setlayout(file, Template::default()).await, Status::NotPermitted);
        fails(client.setlayout(zero, Template::default()).await, Status::NotPermitted);
        let wish = Template { dist: Dist::Fork, width: 1 };
        fails(client.setlayout(outside, wish).await, Status::Invalid);
        // The allowed changes.
        client.rename(zero, &name("a"), zero, &name("b"), PLAIN).await.unwrap();
        client.rename(root, &name("f"), outside, &name("moved"), PLAIN).await.unwrap();
        assert_eq!(names(client, zero).await, ["b"]);
        client.unlink(zero, &name("b")).await.unwrap();
        for number in 0..6 {
            client.rmdir(file, &name(&number.to_string())).await.unwrap();
        }
        client.rmdir(outside, &name("moved")).await.unwrap();
        client.close().await;
    });
}

/// The kind of a directory in the table of the rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Where {
    Forked,
    Subfile,
    Outside,
}

/// The rule of a move.
fn of_move(from: (Where, Handle), to: (Where, Handle)) -> Result<(), Status> {
    match (from.0, to.0) {
        (Where::Forked, _) | (_, Where::Forked) => Err(Status::NotPermitted),
        (Where::Outside, Where::Outside) => Ok(()),
        _ if from.1 == to.1 => Ok(()),
        _ => Err(Status::CrossDevice),
    }
}

/// A forked file, a subfile of it and an ordinary directory on each of three servers; the names in each:
/// two that can be moved. In an ordinary directory a directory and a forked file are among them.
async fn places(client: &Client) -> Vec<(Where, Handle, Vec<&'static str>)> {
    let mut all = Vec::new();
    for number in 0.. {
        let made = make(client, &format!("f{number}"), &forked(6, &[0, 1, 2])).await.handle;
        let is_new = !all
            .iter()
            .any(|(of, dir, _): &(Where, Handle, _)| *of == Where::Forked && dir.server() == made.server());
        if is_new {
            all.push((Where::Forked, made, vec!["1", "2"]));
            let server = usize::from(made.server().0);
            let subfile = subfile(client, made, server).await;
            assert_eq!(subfile.server(), made.server());
            for name in ["a", "b"] {
                fork(client, subfile, name).await;
            }
            all.push((Where::Subfile, subfile, vec!["a", "b"]));
        }
        if all.len() == 6 {
            break;
        }
    }
    while all.len() < 9 {
        let leaf = name(&format!("d{}-{}", all.len(), all.last().map_or(0, |(_, dir, _)| dir.0)));
        let made = client.mkdir(Handle::ROOT, &leaf, DIR).await.unwrap().handle;
        let beside =
            |(of, dir, _): &(Where, Handle, _)| *of == Where::Outside && dir.server() == made.server();
        if all.iter().any(beside) {
            client.rmdir(Handle::ROOT, &leaf).await.unwrap();
            continue;
        }
        fork(client, made, "plain").await;
        client.mkdir(made, &name("dir"), DIR).await.unwrap();
        client.mkforked(made, &name("forked"), DIR, &forked(2, &[])).await.unwrap();
        all.push((Where::Outside, made, vec!["plain", "dir", "forked"]));
    }
    all
}

#[test]
fn the_rules_of_moves_links_and_new_objects_hold_whichever_servers_they_are_on() {
    let cluster = Cluster::start(3, ModuleKind::Memory);
    real::run("client", async |env| {
        let client = &Client::connect(env.clone(), cluster.client()).await.unwrap();
        let places = places(client).await;
        let status = |done: Result<(), Error>| done.map_err(|error| error.status);
        let exchange = RenameFlags { exchange: true, ..PLAIN };
        let (x, kept) = (name("x"), RenameFlags { no_replace: true, ..PLAIN });
        for (from, from_dir, moved) in &places {
            for (to, to_dir, there) in &places {
                let rule = of_move((*from, *from_dir), (*to, *to_dir));
                for leaf in moved {
                    let words = format!("{leaf} of {from:?} {from_dir} to {to:?} {to_dir}");
                    let leaf = name(leaf);
                    for flags in [PLAIN, kept] {
                        let done = client.rename(*from_dir, &leaf, *to_dir, &x, flags).await;
                        assert_eq!(status(done), rule, "{words}, {flags:?}");
                        if rule.is_ok() {
                            client.rename(*to_dir, &x, *from_dir, &leaf, PLAIN).await.unwrap();
                        }
                    }
                    let other = name(there.last().unwrap());
                    for _ in 0..2 {
                        let done = client.rename(*from_dir, &leaf, *to_dir, &other, exchange).await;
                        assert_eq!(status(done), rule, "{words}, exchanged");
                    }
                }
                for leaf in moved {
                    let object = client.lookup(*from_dir, &name(leaf)).await.unwrap();
                    let rule = match (*from, *to) {
                        (_, Where::Forked) => Err(Status::NotPermitted),
                        _ if object.kind == Kind::Directory => Err(Status::NotPermitted),
                        (Where::Outside, Where::Outside) => Ok(()),
                        _ => Err(Status::CrossDevice),
                    };
                    let done = client.link(object.handle, *to_dir, &x).await.map(drop);
                    assert_eq!(status(done), rule, "link of {leaf} of {from:?} in {to:?} {to_dir}");
                    if rule.is_ok() {
                        client.unlink(*to_dir, &x).await.unwrap();
                    }
                }
            }
        }
        for (of, dir, there) in &places {
            let (dir, rights) = (*dir, Rights::WRITE);
            let of_file = if *of == Where::Forked { Err(Status::NotPermitted) } else { Ok(()) };
            let of_others = if *of == Where::Outside { Ok(()) } else { Err(Status::NotPermitted) };
            let made = client.mknod(dir, &x, FILE, Kind::File, 0).await.map(drop);
            assert_eq!(status(made), of_file, "mknod in {of:?}");
            let made = client.create(dir, &name("y"), FILE, true, rights, None).await.map(drop);
            assert_eq!(status(made), of_file, "create in {of:?}");
            for (at, kind) in [(&name("s"), Kind::Socket), (&name("p"), Kind::Fifo)] {
                let made = client.mknod(dir, at, FILE, kind, 0).await.map(drop);
                assert_eq!(status(made), of_others, "{kind:?} in {of:?}");
            }
            let made = client.symlink(dir, &name("l"), FILE, b"to").await.map(drop);
            assert_eq!(status(made), of_others, "symlink in {of:?}");
            let made = client.mkdir(dir, &name("n"), DIR).await.map(drop);
            assert_eq!(status(made), of_others, "mkdir in {of:?}");
            let mut expected: Vec<&str> = there.clone();
            match of {
                Where::Forked => expected = vec!["0", "1", "2", "3", "4", "5"],
                Where::Subfile => expected.extend(["x", "y"]),
                Where::Outside => expected.extend(["x", "y", "s", "p", "l", "n"]),
            }
            expected.sort_unstable();
            assert_eq!(names(client, dir).await, expected, "{of:?}");
        }
        client.close().await;
    });
}

#[test]
fn a_forked_file_that_cannot_be_is_refused_and_leaves_nothing() {
    let cluster = Cluster::start(2, ModuleKind::Memory);
    real::run("client", async |env| {
        let client = &Client::connect(env.clone(), cluster.client()).await.unwrap();
        let root = Handle::ROOT;
        let none = limits::SUBFILES_MAX as u16 + 1;
        for file in
            [forked(0, &[]), forked(5000, &[]), forked(none, &[]), forked(4, &[9]), forked(1, &[0, 1])]
        {
            fails(client.mkforked(root, &name("f"), DIR, &file).await, Status::Invalid);
        }
        assert!(names(client, root).await.is_empty());
        make(client, "most", &forked(limits::SUBFILES_MAX as u16, &[])).await;
        fails(client.mkforked(root, &name("most"), DIR, &forked(1, &[])).await, Status::Exists);

        // It replaces an empty directory, and no other.
        let replacing = ForkedFile { replace: true, ..forked(2, &[]) };
        let old = client.mkdir(root, &name("d"), DIR).await.unwrap().handle;
        fork(client, old, "x").await;
        fails(client.mkforked(root, &name("d"), DIR, &replacing).await, Status::NotEmpty);
        client.unlink(old, &name("x")).await.unwrap();
        let made = client.mkforked(root, &name("d"), DIR, &replacing).await.unwrap();
        assert_eq!(client.lookup(root, &name("d")).await.unwrap().handle, made.handle);
        assert_eq!(names(client, made.handle).await, ["0", "1"]);
        client.close().await;
    });
}

#[test]
fn a_subfile_is_on_a_server_of_metadata_and_data_and_another_one_is_refused_by_client_and_server() {
    let both = Roles::METADATA | Roles::DATA;
    let roles = [both, Roles::METADATA, both, Roles::DATA];
    let cluster = Cluster::start_as(&roles, ModuleKind::Memory, Switches::default());
    real::run("client", async |env| {
        let client = &Client::connect(env.clone(), cluster.client()).await.unwrap();
        let (root, leaf) = (Handle::ROOT, name("f"));
        for server in [1, 3] {
            let refused = client.mkforked(root, &leaf, DIR, &forked(2, &[0, server])).await.unwrap_err();
            assert_eq!(refused.status, Status::Invalid);
            assert!(refused.to_string().contains("both metadata and data"), "{refused}");
            // A client that does not look itself.
            let servers = vec![ServerId(0), ServerId(server)].into();
            let op = Op::Mkforked {
                dir: root,
                name: leaf.clone(),
                owner: DIR,
                subfiles: 2,
                servers,
                replace: false,
            };
            fails(client.request(ServerId(0), op, bytes::Bytes::new()).await, Status::Invalid);
        }
        assert!(names(client, root).await.is_empty());
        let file = make(client, "f", &forked(5, &[])).await.handle;
        for number in 0..5 {
            let server = subfile(client, file, number).await.server();
            assert!([ServerId(0), ServerId(2)].contains(&server), "{server}");
        }
        client.close().await;
    });
}

#[test]
fn a_fork_is_made_opened_and_removed_by_one_message_and_a_file_by_one_transaction() {
    let cluster = Cluster::start(4, ModuleKind::Memory);
    real::run("client", async |env| {
        let client = &Client::connect(env.clone(), cluster.client()).await.unwrap();
        cluster.filled(&env).await;
        client.sync_all().await.unwrap();
        let meter = Meter { env: &env, cluster: &cluster, client };
        // Warm: connections, and ranges of handles.
        let file = make(client, "warm", &forked(64, &[])).await.handle;
        let (zero, n) = (subfile(client, file, 0).await, 16);
        let cost = meter.cost("create a fork", n, async {
            for number in 0..n {
                fork(client, zero, &number.to_string()).await;
            }
        });
        let cost = cost.await;
        assert_eq!((cost.messages, cost.peers), (1.0, 0.0), "{cost:#?}");
        let cost = meter.cost("open a fork", n, async {
            for number in 0..n {
                let opened = client.open_name(zero, &name(&number.to_string()), Rights::READ).await.unwrap();
                opened.close().await.unwrap();
            }
        });
        let cost = cost.await;
        assert_eq!((cost.messages, cost.peers), (1.0, 0.0), "{cost:#?}");
        let cost = meter.cost("delete a fork", n, async {
            for number in 0..n {
                client.unlink(zero, &name(&number.to_string())).await.unwrap();
            }
        });
        let cost = cost.await;
        assert_eq!((cost.messages, cost.peers), (1.0, 0.0), "{cost:#?}");
        meter.quiet().await;
        let before = between_servers(&cluster).await;
        let cost = meter.cost("create a file of 64 subfiles", 1, async {
            make(client, "f", &forked(64, &[])).await;
        });
        let cost = cost.await;
        assert_eq!(cost.messages, 1.0, "{cost:#?}");
        let made = between_servers(&cluster).await;
        // The root's server decides, so the others prepare and finish, once each.
        let [prepared, finished, ..] = since(&before, &made);
        assert_eq!((prepared, finished), (vec![0, 1, 1, 1], vec![0, 1, 1, 1]), "{cost:#?}");
        assert!(cost.peers <= 12.0, "two draws of handles at most, from each of three: {cost:#?}");

        let file = client.lookup(Handle::ROOT, &name("f")).await.unwrap().handle;
        meter.quiet().await;
        let before = between_servers(&cluster).await;
        let cost = meter.cost("remove a file of 64 subfiles", 1, async {
            client.rmforked(Handle::ROOT, &name("f"), file).await.unwrap();
        });
        let cost = cost.await;
        assert_eq!(cost.messages, 1.0, "{cost:#?}");
        // The file's own server decides; it asks the root's for the entry.
        let all = [0, 1, 2, 3].map(|server| u64::from(ServerId(server) != file.server()));
        let asked = u64::from(file.server() != Handle::ROOT.server());
        let [prepared, finished, entries] = since(&before, &between_servers(&cluster).await);
        assert_eq!((prepared, finished), (all.to_vec(), all.to_vec()), "{cost:#?}");
        assert_eq!(entries.iter().sum::<u64>(), asked, "{cost:#?}");
        assert_eq!(cost.peers, 6.0 + asked as f64, "{cost:#?}");
        client.close().await;
    });
}

/// How many requests of these names each server has had.
async fn between_servers(cluster: &Cluster) -> [Vec<u64>; 3] {
    let counts = cluster.counts().await;
    ["prepare", "finish", "entry"]
        .map(|op| counts.iter().map(|of| of.shard.ops.get(op).copied().unwrap_or(0)).collect())
}

fn since(before: &[Vec<u64>; 3], now: &[Vec<u64>; 3]) -> [Vec<u64>; 3] {
    [0, 1, 2].map(|op| now[op].iter().zip(&before[op]).map(|(now, before)| now - before).collect())
}

#[test]
fn a_forked_file_is_removed_with_all_its_subfiles_or_not_at_all() {
    let cluster = Cluster::start(3, ModuleKind::Memory);
    real::run("client", async |env| {
        let client = &Client::connect(env.clone(), cluster.client()).await.unwrap();
        let root = Handle::ROOT;
        let most = limits::SUBFILES_MAX as u16;
        let outside = client.mkdir(root, &name("d"), DIR).await.unwrap().handle;
        for (at, servers) in [&[][..], &[0], &[1], &[2], &[2, 0]].into_iter().enumerate() {
            let file = make(client, "f", &forked(most, servers)).await.handle;
            // In the first subfile, and in the last one.
            for number in [0, usize::from(most) - 1] {
                let subfile = subfile(client, file, number).await;
                fork(client, subfile, "a").await;
                fails(client.rmforked(root, &name("f"), file).await, Status::NotEmpty);
                assert_eq!(names(client, file).await.len(), usize::from(most), "all subfiles are there");
                client.unlink(subfile, &name("a")).await.unwrap();
            }
            let last = subfile(client, file, usize::from(most) - 1).await;
            if at % 2 == 0 {
                client.rename(root, &name("f"), outside, &name("moved"), PLAIN).await.unwrap();
                fails(client.rmforked(root, &name("f"), file).await, Status::NotFound);
                client.rmforked(outside, &name("moved"), file).await.unwrap();
            } else {
                client.rmforked(root, &name("f"), file).await.unwrap();
            }
            fails(client.rmforked(root, &name("f"), file).await, Status::NotFound);
            fails(client.getattr(file).await, Status::Stale);
            fails(client.mknod(last, &name("b"), FILE, Kind::File, 0).await, Status::Stale);
            assert!(names(client, outside).await.is_empty());
            assert_eq!(names(client, root).await, ["d"]);
            assert_eq!(client.getattr(root).await.unwrap().nlink, 3);
        }
        client.close().await;
    });
}

#[test]
fn only_the_forked_file_that_is_meant_is_removed() {
    let cluster = Cluster::start(2, ModuleKind::Memory);
    real::run("client", async |env| {
        let client = &Client::connect(env.clone(), cluster.client()).await.unwrap();
        let root = Handle::ROOT;
        let outside = client.mkdir(root, &name("d"), DIR).await.unwrap().handle;
        let (file, other) = (make(client, "f", &forked(4, &[])).await.handle, name("g"));
        make(client, "g", &forked(2, &[])).await;
        let zero = subfile(client, file, 0).await;
        let a = fork(client, outside, "a").await;
        fails(client.rmforked(root, &other, file).await, Status::NotFound);
        fails(client.rmforked(outside, &name("f"), file).await, Status::NotFound);
        fails(client.rmforked(root, &name("d"), outside).await, Status::Invalid);
        fails(client.rmforked(file, &name("0"), zero).await, Status::Invalid);
        fails(client.rmforked(outside, &name("a"), a).await, Status::Invalid);
        assert_eq!(names(client, file).await, ["0", "1", "2", "3"]);
        // One that lost a subfile by `rmdir` can be removed, and so can one without any.
        client.rmdir(file, &name("2")).await.unwrap();
        client.rmforked(root, &name("f"), file).await.unwrap();
        let file = client.lookup(root, &other).await.unwrap().handle;
        for number in ["0", "1"] {
            client.rmdir(file, &name(number)).await.unwrap();
        }
        client.rmforked(root, &other, file).await.unwrap();
        assert_eq!(names(client, root).await, ["d"]);

        // As it is done where the server is of an older version.
        let file = make(client, "f", &forked(4, &[])).await.handle;
        let last = subfile(client, file, 3).await;
        fork(client, last, "a").await;
        let singly = async || shoal_vfs::rmforked_singly(client, root, &name("f"), file).await;
        fails(singly().await, Status::NotEmpty);
        client.unlink(last, &name("a")).await.unwrap();
        singly().await.unwrap();
        let ordinary = shoal_vfs::rmforked_singly(client, root, &name("d"), outside).await;
        fails(ordinary, Status::Invalid);
        assert_eq!(names(client, root).await, ["d"]);
        client.close().await;
    });
}
