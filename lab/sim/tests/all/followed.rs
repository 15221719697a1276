//! Directories of a ShoalFS with a layout that its clients follow. They pass the conformance suite of all
//! file systems, and they cause no additional message for ordinary files beside them.

use bytes::Bytes;
use shoal_client::Client;
use shoal_env::Env;
use shoal_proto::{Attr, Dist, Handle, Kind, Name, Owner, Rights, Status, Template};
use shoal_sim::{Cluster, ClusterConfig};
use shoal_transform::followed::beneath::Beneath;
use shoal_transform::{Followed, FollowedFile};
use shoal_vfs::conformance::{Promises, check};
use shoal_vfs::{Error, Listing, LockCall, LockKind, LockOwner, LockRange, RenameFlags, Vfs, VfsFile};
use std::future::Future;
use std::time::Duration;

const STRIP: u64 = 1 << 20;
pub(super) const CONTAINER: Template = Template { dist: Dist::Container { strip: STRIP }, width: 0 };
pub(super) const COMPOSED: Template = Template { dist: Dist::Composed { strip: STRIP }, width: 0 };
pub(super) const DIR: Owner = Owner { mode: 0o755, uid: 0, gid: 0 };
pub(super) const FILE: Owner = Owner { mode: 0o644, uid: 0, gid: 0 };
pub(super) const BOTH: Rights = Rights::READ.union(Rights::WRITE);

pub(super) fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

/// A cluster that serves, and clients of it.
pub(super) fn with_clients<T: 'static, F: Future<Output = T> + 'static>(
    servers: u16,
    clients: usize,
    work: impl FnOnce(Env, Vec<Client>) -> F + 'static,
) -> T {
    let config = ClusterConfig { servers, clients: 1, ..ClusterConfig::default() };
    let cluster = Cluster::new(u64::from(servers), &config);
    with_clients_of(&cluster, clients, work)
}

/// Clients of a cluster, once that serves.
pub(super) fn with_clients_of<T: 'static, F: Future<Output = T> + 'static>(
    cluster: &Cluster,
    clients: usize,
    work: impl FnOnce(Env, Vec<Client>) -> F + 'static,
) -> T {
    let until = cluster.world.now() + Duration::from_secs(10);
    assert!(cluster.world.run_until_true(until, || cluster.is_ready()), "{:?}", cluster.failures());
    let options = cluster.options();
    cluster.complete_client(0, |env| async move {
        let mut all = Vec::new();
        for _ in 0..clients {
            let mut options = options.clone();
            // As under a mount: nothing is kept beside the kernel.
            (options.name_cache, options.attr_cache) = (Duration::ZERO, Duration::ZERO);
            all.push(Client::connect(env.clone(), options).await.unwrap());
        }
        work(env, all).await
    })
}

/// A directory with a layout.
pub(super) async fn laid(client: &Client, text: &str, template: Template) -> Attr {
    let dir = Vfs::mkdir(client, Handle::ROOT, &name(text), DIR).await.unwrap();
    client.setlayout(dir.handle, template).await.unwrap();
    dir
}

pub(super) async fn write<V: Vfs>(vfs: &V, dir: Handle, text: &str, data: &'static [u8]) -> Attr {
    let (attr, _, file) = vfs.create(dir, &name(text), FILE, true, BOTH).await.unwrap();
    file.write(0, Bytes::from_static(data)).await.unwrap();
    file.close().await.unwrap();
    attr
}

pub(super) async fn read<V: Vfs>(vfs: &V, dir: Handle, text: &str) -> Bytes {
    let file = vfs.open_name(dir, &name(text), Rights::READ).await.unwrap();
    let data = file.read(0, 1 << 16).await.unwrap();
    file.close().await.unwrap();
    data
}

pub(super) async fn names<V: Vfs>(vfs: &V, dir: Handle) -> Vec<String> {
    let (mut listing, mut names) = (vfs.opendir(dir, Duration::ZERO), Vec::new());
    while let Some(listed) = listing.next(true).await.unwrap() {
        names.push(String::from_utf8_lossy(listed.entry.name.as_bytes()).into_owned());
    }
    names.sort();
    names
}

pub(super) fn fails<T: std::fmt::Debug>(done: Result<T, Error>, status: Status) -> String {
    let error = done.expect_err("it fails");
    assert_eq!(error.status, status, "{error}");
    error.words
}

fn conforms(servers: u16, template: Template, promises: Promises) {
    with_clients(servers, 1, async move |env, mut clients| {
        let client = clients.pop().unwrap();
        let followed = Followed::new(env, client.clone());
        laid(&client, "laid", template).await;
        let root = followed.lookup(Handle::ROOT, &name("laid")).await.unwrap();
        check(&Beneath::new(followed, root.handle), promises).await;
    });
}

const OF_CONTAINERS: Promises =
    Promises { links: false, counted_directories: false, many: 120, ..Promises::ALL };
const OF_COMPOSED: Promises = Promises { many: 150, ..Promises::ALL };

#[test]
fn a_directory_of_containers_of_one_server_conforms() {
    conforms(1, CONTAINER, OF_CONTAINERS);
}

#[test]
fn a_directory_of_containers_of_four_servers_conforms() {
    conforms(4, CONTAINER, OF_CONTAINERS);
}

#[test]
fn a_composed_directory_of_one_server_conforms() {
    conforms(1, COMPOSED, OF_COMPOSED);
}

#[test]
fn a_composed_directory_of_four_servers_conforms() {
    conforms(4, COMPOSED, OF_COMPOSED);
}

#[test]
fn the_file_system_around_such_directories_conforms() {
    with_clients(4, 1, async |env, mut clients| {
        let client = clients.pop().unwrap();
        laid(&client, "containers", CONTAINER).await;
        laid(&client, "composed", COMPOSED).await;
        let followed = Followed::new(env, client);
        // Both are known and open while the suite runs beside them.
        for text in ["containers", "composed"] {
            let root = followed.lookup(Handle::ROOT, &name(text)).await.unwrap();
            write(&followed, root.handle, "file", b"bytes").await;
        }
        check(&followed, Promises { many: 300, ..Promises::ALL }).await;
    });
}

#[test]
fn a_layout_is_set_on_an_empty_directory_and_stays() {
    with_clients(4, 1, async |_, mut clients| {
        let client = clients.pop().unwrap();
        for template in [CONTAINER, COMPOSED] {
            fails(client.setlayout(Handle::ROOT, template).await, Status::Invalid);
            let text = format!("{:?}", template.dist);
            let full = Vfs::mkdir(&client, Handle::ROOT, &name(&text), DIR).await.unwrap();
            let file = write(&client, full.handle, "file", b"bytes").await;
            fails(client.setlayout(file.handle, template).await, Status::NotDirectory);
            fails(client.setlayout(full.handle, template).await, Status::NotEmpty);
            Vfs::unlink(&client, full.handle, &name("file")).await.unwrap();
            client.setlayout(full.handle, template).await.unwrap();
            let set = Vfs::getattr(&client, full.handle).await.unwrap();
            assert_eq!(set.template, template);
            for other in [Template::default(), CONTAINER, COMPOSED] {
                fails(client.setlayout(full.handle, other).await, Status::NotPermitted);
            }
            // Directories below have it too, and files are striped.
            let below = Vfs::mkdir(&client, full.handle, &name("below"), DIR).await.unwrap();
            assert_eq!(below.template, template);
            let file = write(&client, full.handle, "raw", b"bytes").await;
            assert_eq!(file.template.dist, Dist::SimpleStripe { strip: STRIP });
        }
    });
}

#[test]
fn the_directory_of_lost_objects_gets_no_layout_that_clients_follow() {
    with_clients(4, 1, async |_, mut clients| {
        let client = clients.pop().unwrap();
        let lost = Vfs::mkdir(&client, Handle::ROOT, &name("lost+found"), DIR).await.unwrap();
        for template in [CONTAINER, COMPOSED] {
            let words = fails(client.setlayout(lost.handle, template).await, Status::NotPermitted);
            assert!(words.contains("/lost+found") && words.contains("another directory"), "{words}");
        }
        assert!(!Vfs::getattr(&client, lost.handle).await.unwrap().template.dist.is_followed());
        // Elsewhere the name means nothing, and stripes move no object.
        client.setlayout(lost.handle, Template::default()).await.unwrap();
        let dir = Vfs::mkdir(&client, Handle::ROOT, &name("dir"), DIR).await.unwrap();
        let other = Vfs::mkdir(&client, dir.handle, &name("lost+found"), DIR).await.unwrap();
        client.setlayout(other.handle, CONTAINER).await.unwrap();
    });
}

#[test]
fn clients_see_the_files_of_each_other_and_remove_the_empty_directory() {
    for template in [CONTAINER, COMPOSED] {
        with_clients(4, 2, async move |env, clients| {
            let dir = laid(&clients[0], "laid", template).await;
            let [one, other] =
                [0, 1].map(|number: usize| Followed::new(env.clone(), clients[number].clone()));
            for followed in [&one, &other] {
                let root = followed.lookup(Handle::ROOT, &name("laid")).await.unwrap();
                assert_eq!((root.handle, root.kind), (dir.handle, Kind::Directory));
            }
            write(&one, dir.handle, "one", b"of one").await;
            write(&other, dir.handle, "other", b"of other").await;
            let sub = one.mkdir(dir.handle, &name("sub"), DIR).await.unwrap();
            write(&one, sub.handle, "deep", b"deep").await;
            for followed in [&one, &other] {
                assert_eq!(read(followed, dir.handle, "one").await, "of one");
                assert_eq!(read(followed, dir.handle, "other").await, "of other");
                assert_eq!(names(followed, dir.handle).await, ["one", "other", "sub"]);
            }
            let seen = other.lookup(dir.handle, &name("sub")).await.unwrap();
            assert_eq!(seen.parent, dir.handle);
            assert_eq!(read(&other, seen.handle, "deep").await, "deep");
            fails(other.rmdir(Handle::ROOT, &name("laid")).await, Status::NotEmpty);
            other.unlink(seen.handle, &name("deep")).await.unwrap();
            other.rmdir(dir.handle, &name("sub")).await.unwrap();
            other.unlink(dir.handle, &name("one")).await.unwrap();
            other.unlink(dir.handle, &name("other")).await.unwrap();
            assert!(names(&one, dir.handle).await.is_empty());
            one.rmdir(Handle::ROOT, &name("laid")).await.unwrap();
            fails(other.lookup(Handle::ROOT, &name("laid")).await, Status::NotFound);
            fails(other.lookup(dir.handle, &name("one")).await, Status::Stale);
            one.close().await;
            other.close().await;
        });
    }
}

#[test]
fn names_do_not_cross_the_border_of_such_a_directory() {
    with_clients(4, 1, async |env, mut clients| {
        let client = clients.pop().unwrap();
        let (containers, composed) =
            (laid(&client, "containers", CONTAINER).await, laid(&client, "composed", COMPOSED).await);
        let followed = Followed::new(env, client);
        for text in ["containers", "composed"] {
            followed.lookup(Handle::ROOT, &name(text)).await.unwrap();
        }
        let plain = write(&followed, Handle::ROOT, "plain", b"plain").await;
        let inside = write(&followed, containers.handle, "inside", b"inside").await;
        write(&followed, composed.handle, "inside", b"inside").await;
        let dirs = [Handle::ROOT, containers.handle, composed.handle];
        let own = ["plain", "inside", "inside"];
        for (from, text) in dirs.into_iter().zip(own) {
            for to in dirs.into_iter().filter(|to| *to != from) {
                for exchange in [false, true] {
                    let flags = RenameFlags { no_replace: false, exchange };
                    let (old, new) = (name(text), name(if exchange { "inside" } else { "moved" }));
                    fails(followed.rename(from, &old, to, &new, flags).await, Status::CrossDevice);
                }
            }
            followed.rename(from, &name(text), from, &name("moved"), RenameFlags::default()).await.unwrap();
            followed.rename(from, &name("moved"), from, &name(text), RenameFlags::default()).await.unwrap();
        }
        let further = name("further");
        fails(followed.link(plain.handle, containers.handle, &further).await, Status::CrossDevice);
        fails(followed.link(inside.handle, Handle::ROOT, &further).await, Status::CrossDevice);
        fails(followed.link(inside.handle, composed.handle, &further).await, Status::CrossDevice);
        // The directory itself has a name outside, and moves as any other.
        let (old, new) = (name("containers"), name("renamed"));
        followed.rename(Handle::ROOT, &old, Handle::ROOT, &new, RenameFlags::default()).await.unwrap();
        assert_eq!(read(&followed, containers.handle, "inside").await, "inside");
        // An empty one is replaced, though its layout keeps objects in it.
        followed.unlink(containers.handle, &name("inside")).await.unwrap();
        let dir = followed.mkdir(Handle::ROOT, &name("dir"), DIR).await.unwrap();
        followed
            .rename(Handle::ROOT, &name("dir"), Handle::ROOT, &new, RenameFlags::default())
            .await
            .unwrap();
        assert_eq!(followed.lookup(Handle::ROOT, &new).await.unwrap().handle, dir.handle);
    });
}

/// The calls of a program on ordinary files.
async fn uses<V: Vfs>(vfs: &V, text: &str) {
    let dir = vfs.mkdir(Handle::ROOT, &name(text), DIR).await.unwrap();
    for file in ["a", "b"] {
        write(vfs, dir.handle, file, b"bytes").await;
        assert_eq!(read(vfs, dir.handle, file).await, "bytes");
    }
    let attr = vfs.lookup(dir.handle, &name("a")).await.unwrap();
    vfs.getattr(attr.handle).await.unwrap();
    vfs.getattr(dir.handle).await.unwrap();
    vfs.truncate(attr.handle, 2, false).await.unwrap();
    vfs.rename(dir.handle, &name("a"), dir.handle, &name("c"), RenameFlags::default()).await.unwrap();
    vfs.link(attr.handle, dir.handle, &name("d")).await.unwrap();
    vfs.setxattr(attr.handle, b"user.a", b"b", false, false).await.unwrap();
    vfs.getxattr(attr.handle, b"user.a").await.unwrap();
    assert_eq!(names(vfs, dir.handle).await, ["b", "c", "d"]);
    vfs.fsync_directory(dir.handle).await.unwrap();
    let entries = ["x", "y"].map(|file| (dir.handle, name(file)));
    vfs.make_many(&entries, FILE).await.into_iter().for_each(|made| drop(made.unwrap()));
    let opened = vfs.open_many(&entries, BOTH).await.into_iter().map(Result::unwrap).collect();
    vfs.close_many(opened).await.into_iter().for_each(Result::unwrap);
    vfs.unlink_many(&entries).await.into_iter().for_each(Result::unwrap);
    for file in ["b", "c", "d"] {
        vfs.unlink(dir.handle, &name(file)).await.unwrap();
    }
    vfs.rmdir(Handle::ROOT, &name(text)).await.unwrap();
}

#[test]
fn ordinary_files_cost_no_message_more_also_beside_open_domains() {
    let [plain, followed, beside] = [0, 1, 2].map(|way| {
        with_clients(4, 1, async move |env, mut clients| {
            let client = clients.pop().unwrap();
            let followed = Followed::new(env, client.clone());
            // Each is the same number of directories later, so the servers take the same turns.
            for (text, template) in [("containers", CONTAINER), ("composed", COMPOSED)] {
                let root = laid(&client, text, template).await;
                if way == 2 {
                    followed.lookup(Handle::ROOT, &name(text)).await.unwrap();
                    write(&followed, root.handle, "file", b"bytes").await;
                }
            }
            let before = client.counters().messages;
            match way {
                0 => uses(&client, "dir").await,
                _ => uses(&followed, "dir").await,
            }
            let mut after = client.counters().messages;
            for (word, count) in before {
                after.entry(word).and_modify(|all| *all -= count);
            }
            // Where the directory lies, and so whether its removal needs a second server, is the turn's.
            after.retain(|_, count| *count > 0);
            after
        })
    });
    assert!(plain.values().sum::<u64>() > 20, "{plain:?}");
    assert_eq!(plain, followed);
    let sum = |counts: &std::collections::BTreeMap<&str, u64>| counts.values().sum::<u64>();
    assert!(sum(&beside) <= sum(&plain) + 1, "{plain:?} and beside open domains {beside:?}");
}

#[test]
fn more_directories_than_are_kept_open_all_work_and_idle_ones_are_closed() {
    with_clients(1, 1, async |env, mut clients| {
        let client = clients.pop().unwrap();
        let followed = Followed::new(env.clone(), client.clone());
        let mut roots = Vec::new();
        for number in 0..70 {
            let template = if number % 2 == 0 { CONTAINER } else { COMPOSED };
            let text = format!("laid-{number}");
            let root = laid(&client, &text, template).await;
            followed.lookup(Handle::ROOT, &name(&text)).await.unwrap();
            write(&followed, root.handle, "file", b"bytes").await;
            roots.push(root.handle);
        }
        assert!((1..=64).contains(&followed.domains_open()), "{} are open", followed.domains_open());
        for root in &roots {
            assert_eq!(read(&followed, *root, "file").await, "bytes");
        }
        // Those that are composed are left after a while, so that others may remove them.
        env.sleep(Duration::from_secs(5)).await;
        assert!(followed.domains_open() <= 35, "{} are open", followed.domains_open());
        for root in &roots {
            assert_eq!(read(&followed, *root, "file").await, "bytes");
        }
        followed.close().await;
    });
}

#[test]
fn a_broken_directory_is_named_in_the_error_and_all_else_works() {
    with_clients(1, 1, async |env, mut clients| {
        let client = clients.pop().unwrap();
        let broken = laid(&client, "broken", COMPOSED).await;
        let whole = laid(&client, "whole", COMPOSED).await;
        write(&client, broken.handle, ".shoal-composed", b"not settings").await;
        let followed = Followed::new(env, client);
        for text in ["broken", "whole"] {
            followed.lookup(Handle::ROOT, &name(text)).await.unwrap();
        }
        let error = followed.lookup(broken.handle, &name("file")).await.expect_err("it is broken");
        assert!(error.words.contains("`broken`") && error.words.contains("composed"), "{error}");
        write(&followed, whole.handle, "file", b"bytes").await;
        write(&followed, Handle::ROOT, "file", b"bytes").await;
        assert_eq!(names(&followed, Handle::ROOT).await, ["broken", "file", "whole"]);
    });
}

#[test]
fn a_client_that_knew_the_directory_before_its_layout_follows_after_its_next_look() {
    with_clients(4, 2, async |env, clients| {
        let dir = Vfs::mkdir(&clients[0], Handle::ROOT, &name("laid"), DIR).await.unwrap();
        let followed = Followed::new(env.clone(), clients[0].clone());
        followed.getattr(dir.handle).await.unwrap();
        clients[1].setlayout(dir.handle, CONTAINER).await.unwrap();
        followed.getattr(dir.handle).await.unwrap();
        write(&followed, dir.handle, "file", b"bytes").await;
        let raw = Vfs::lookup(&clients[1], dir.handle, &name("file")).await.unwrap();
        assert_eq!(raw.kind, Kind::Directory, "it is a container");
        // By a name below that it found without having seen the root, it follows too.
        let fresh = Followed::new(env.clone(), clients[1].clone());
        let seen = fresh.getattr(raw.handle).await.unwrap();
        assert_eq!((seen.kind, seen.size), (Kind::File, 5));
    });
}

#[test]
fn locks_of_files_there_hold_over_clients_and_show_what_was_written_before() {
    for template in [CONTAINER, COMPOSED] {
        with_clients(4, 2, async move |env, clients| {
            let dir = laid(&clients[0], "laid", template).await;
            let all = [0, 1].map(|number: usize| Followed::new(env.clone(), clients[number].clone()));
            let mut files: Vec<FollowedFile<Client>> = Vec::new();
            for (number, followed) in all.iter().enumerate() {
                followed.lookup(Handle::ROOT, &name("laid")).await.unwrap();
                let made = followed.create(dir.handle, &name("file"), FILE, number == 0, BOTH).await;
                files.push(made.unwrap().2);
            }
            let call = |owner| LockCall {
                owner: LockOwner(owner),
                range: LockRange::ALL,
                kind: LockKind::Exclusive,
                wait: false,
                pid: 1,
            };
            assert!(files[0].lock(&call(1)).await.unwrap());
            assert!(files[0].has_locks(LockOwner(1)) && !files[0].has_locks(LockOwner(2)));
            assert!(!files[1].lock(&call(2)).await.unwrap());
            let held = files[1].lock_holder(&call(2)).await.unwrap().expect("a holder");
            assert_eq!(held.range, LockRange::ALL);
            files[0].write(0, Bytes::from_static(b"under the lock")).await.unwrap();
            files[0].unlock(LockOwner(1), LockRange::ALL).await.unwrap();
            assert!(files[1].lock(&call(2)).await.unwrap());
            assert_eq!(files[1].read(0, 100).await.unwrap(), "under the lock");
            for file in files {
                file.close().await.unwrap();
            }
        });
    }
}
