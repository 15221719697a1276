//! Forked files: what may be done in them, and what it costs.

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
        let cost = meter.cost("create a file of 64 subfiles", 1, async {
            make(client, "f", &forked(64, &[])).await;
        });
        let cost = cost.await;
        // Prepare, commit, and at most two draws of handles, to each of three servers.
        assert_eq!(cost.messages, 1.0, "{cost:#?}");
        assert!(cost.peers <= 12.0, "{cost:#?}");
        client.close().await;
    });
}
