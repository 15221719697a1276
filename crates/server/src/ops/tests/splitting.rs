//! Tests of directories that split: the entries that a split moves, the entries that stay, and the
//! properties of a split directory.

use super::cluster::{ALL, Cluster, OWNER, name};
use crate::meta::keys::{self, Table};
use crate::meta::rows::{Dirent, Inode, RowValue};
use crate::request::ctx::{FactKey, Stopped};
use shoal_proto::{
    Action, Answer, Handle, Held, Kind, Op, Place, Rights, Roles, ServerId, SetAttr, Shards, Status, Time,
};
use std::collections::BTreeSet;

const ROOT: Handle = Handle::ROOT;
const HOME: ServerId = ServerId(1);

/// Four servers, of which the last holds no metadata, and a directory of server 1 with `files` files and a
/// subdirectory.
fn cluster(files: usize) -> (Cluster, Handle) {
    let mut cluster = Cluster::new(&[ALL, ALL, ALL, Roles::DATA]);
    cluster.switch(|switches| switches.split_entries = 8);
    let (_, dir) = cluster.mkdir_on(HOME.0, ROOT);
    (0..files).for_each(|n| drop(cluster.create(dir.handle, &format!("f{n}")).unwrap()));
    cluster.mkdir(dir.handle, "sub").unwrap();
    (cluster, dir.handle)
}

fn names(cluster: &Cluster, dir: Handle) -> BTreeSet<String> {
    cluster.list(dir).into_iter().map(|entry| entry.name.to_string()).collect()
}

/// A name of a range that a server other than `not` holds.
fn of_shard(cluster: &Cluster, shards: &Shards, server: ServerId, stem: &str) -> String {
    let place = |text: &String| cluster.servers[0].identity.place_of(text.as_bytes());
    (0..500).map(|n| format!("{stem}{n}")).find(|text| shards.server_of(place(text)) == Some(server)).unwrap()
}

#[test]
fn a_split_moves_entries_to_their_ranges_and_no_object() {
    let (cluster, dir) = cluster(40);
    let (before, attr) = (cluster.list(dir), cluster.attr(dir).unwrap());
    let objects: BTreeSet<Handle> = before.iter().map(|entry| entry.handle).collect();
    let shards = cluster.split(dir);
    assert_eq!(shards.servers(), [ServerId(0), ServerId(1), ServerId(2)], "those that hold metadata");
    cluster.check_shards();
    let after = cluster.list(dir);
    let of = |list: &[shoal_proto::Entry]| -> Vec<_> {
        list.iter().map(|e| (e.name.clone(), e.handle, e.kind, e.place)).collect()
    };
    assert_eq!(of(&before), of(&after));
    assert_eq!(objects, after.iter().map(|entry| entry.handle).collect());
    let split = cluster.attr(dir).unwrap();
    assert_eq!(split.shards, shards);
    assert_eq!((split.nlink, split.mtime, split.mode), (attr.nlink, attr.mtime, attr.mode));
    assert_eq!((split.parent, split.nlink), (ROOT, 3));
    assert_eq!(cluster.split(dir), shards, "once");
    assert!(cluster.servers.iter().all(|server| server.locks.is_empty()));
}

#[test]
fn who_asks_the_wrong_shard_is_told_the_shards_and_changes_nothing() {
    let (cluster, dir) = cluster(20);
    let shards = cluster.split(dir);
    let here = of_shard(&cluster, &shards, ServerId(0), "here");
    let (dir_name, held) = (name(&here), Held::default());
    let ops = [
        Op::Create {
            dir,
            name: dir_name.clone(),
            owner: OWNER,
            exclusive: true,
            open: Rights::READ,
            template: None,
        },
        Op::Mkdir { dir, name: dir_name.clone(), owner: OWNER },
        Op::Lookup { dir, path: vec![dir_name.clone()].into() },
        Op::Unlink { dir, name: dir_name.clone(), held },
        Op::Rmdir { dir, name: dir_name.clone() },
    ];
    for server in [HOME, ServerId(2)] {
        for op in &ops {
            let told = cluster.group(server, std::slice::from_ref(op));
            assert_eq!(told, Err(Stopped::Split(Box::new((dir, shards.clone())))), "{op:?}");
        }
    }
    let listing =
        Op::Readdir { dir, after: None, bytes_max: 4096, plus: false, data_max: 0, in_shard: false };
    assert!(
        matches!(cluster.group(HOME, &[listing]), Err(Stopped::Split(_))),
        "it would take a part for all"
    );
    assert_eq!(cluster.op(ServerId(0), ops[0].clone()).map(drop), Ok(()));
    assert_eq!(cluster.op(ServerId(3), ops[0].clone()), Err(Status::WrongServer), "there is no shard");
}

#[test]
fn what_is_made_in_a_shard_is_colocated_with_it_and_takes_one_server() {
    let (cluster, dir) = cluster(20);
    let shards = cluster.split(dir);
    for &server in shards.servers() {
        let file = cluster.create(dir, &of_shard(&cluster, &shards, server, "new")).unwrap();
        assert_eq!(file.handle.server(), server);
        assert!(cluster.facts.borrow().is_empty());
    }
    cluster.check_shards();
}

#[test]
fn a_listing_begun_before_the_split_goes_on_behind_it_without_a_gap_or_a_repetition() {
    let (cluster, dir) = cluster(60);
    let all: Vec<_> = {
        let mut all = cluster.list(dir);
        all.sort_by_key(|entry| entry.place);
        all
    };
    let op = Op::Readdir { dir, after: None, bytes_max: 800, plus: false, data_max: 0, in_shard: false };
    let Ok(Answer::Entries { entries: first, end: false, .. }) = cluster.op(HOME, op) else { panic!() };
    let shards = cluster.split(dir);
    let mut seen: Vec<_> = first.iter().map(|entry| entry.handle).collect();
    let last = first.last().unwrap();
    let after = Some(Place { hash: last.place, name: last.name.as_bytes().into() });
    for &server in &shards.servers()[shards.index_of(last.place)..] {
        let op = Op::Readdir {
            dir,
            after: after.clone(),
            bytes_max: 1 << 19,
            plus: false,
            data_max: 0,
            in_shard: true,
        };
        let Ok(Answer::Entries { entries, end: true, .. }) = cluster.op(server, op) else { panic!() };
        seen.extend(entries.iter().map(|entry| entry.handle));
    }
    assert_eq!(seen, all.iter().map(|entry| entry.handle).collect::<Vec<_>>());
}

#[test]
fn mode_owner_and_explicit_times_are_alike_on_all_shards_and_new_files_inherit_there() {
    let (cluster, dir) = cluster(20);
    let shards = cluster.split(dir);
    let set = SetAttr { mode: Some(0o2750), gid: Some(77), mtime: Some(Time(5)), ..SetAttr::default() };
    let attr = cluster.setattr(dir, set).unwrap();
    assert_eq!((attr.mode, attr.gid, attr.mtime, attr.ctime), (0o2750, 77, Time(5), cluster.now()));
    for &server in shards.servers() {
        let shard = cluster.attr_at(server, dir).unwrap();
        assert_eq!((shard.mode, shard.gid, shard.mtime, shard.ctime), (0o2750, 77, Time(5), attr.ctime));
        let file = cluster.create(dir, &of_shard(&cluster, &shards, server, "new")).unwrap();
        assert_eq!(file.gid, 77, "a set-group-id directory's");
    }
    let template = shoal_proto::Template { dist: shoal_proto::Dist::Basic, width: 1 };
    cluster.op(HOME, Op::Setlayout { object: dir, template }).unwrap();
    for &server in shards.servers() {
        assert_eq!(cluster.attr_at(server, dir).unwrap().template, template);
    }
}

#[test]
fn a_split_directory_is_removed_only_when_all_its_shards_are_empty() {
    let (cluster, dir) = cluster(12);
    let at = cluster.list(ROOT).into_iter().find(|entry| entry.handle == dir).unwrap().name.to_string();
    let shards = cluster.split(dir);
    let all = names(&cluster, dir);
    cluster.rmdir(dir, "sub").unwrap();
    for file in all.iter().filter(|file| *file != "sub") {
        assert_eq!(cluster.rmdir(ROOT, &at), Err(Status::NotEmpty), "{file} is there");
        cluster.unlink(dir, file).unwrap();
    }
    cluster.rmdir(ROOT, &at).unwrap();
    assert_eq!(cluster.attr(dir), Err(Status::Stale));
    assert_eq!(cluster.rows(Table::Inode).len(), 1, "no shard stays");
    for &server in shards.servers() {
        let gone = if server == HOME { Status::Stale } else { Status::WrongServer };
        let op = Op::Mkdir { dir, name: name(&of_shard(&cluster, &shards, server, "x")), owner: OWNER };
        assert_eq!(cluster.group(server, &[op]), Err(Stopped::Status(gone)));
    }
}

#[test]
fn an_entry_moves_between_shards_and_directories_as_between_servers() {
    let (cluster, dir) = cluster(20);
    let shards = cluster.split(dir);
    let (_, other) = cluster.mkdir_on(2, ROOT);
    let from = of_shard(&cluster, &shards, ServerId(2), "f");
    let to = of_shard(&cluster, &shards, ServerId(0), "t");
    let file = match cluster.find(dir, &from) {
        Ok(file) => file,
        Err(_) => cluster.create(dir, &from).unwrap().handle,
    };
    cluster.rename((dir, &from), (dir, &to)).unwrap();
    assert_eq!(cluster.facts.borrow().as_slice(), [FactKey::Entry(ServerId(2), dir, name(&from))]);
    assert_eq!((cluster.find(dir, &from), cluster.find(dir, &to)), (Err(Status::NotFound), Ok(file)));
    cluster.rename((dir, &to), (other.handle, "out")).unwrap();
    cluster.rename((other.handle, "out"), (dir, &from)).unwrap();
    assert_eq!(cluster.find(dir, &from), Ok(file));
    // A directory with its subdirectory, too.
    let sub = cluster.find(dir, "sub").unwrap();
    cluster.rename((dir, "sub"), (other.handle, "sub")).unwrap();
    assert_eq!(cluster.attr(sub).unwrap().parent, other.handle);
    assert_eq!((cluster.attr(dir).unwrap().nlink, cluster.attr(other.handle).unwrap().nlink), (2, 3));
    assert_eq!(cluster.rename((ROOT, "none"), (dir, &to)), Err(Status::NotFound));
    cluster.check_shards();
}

#[test]
fn a_plan_made_before_the_split_is_refused_after_it() {
    let (cluster, dir) = cluster(20);
    let file = cluster.create(ROOT, "file").unwrap().handle;
    let shards = cluster.split(dir);
    let text = of_shard(&cluster, &shards, ServerId(0), "new");
    let (kind, time) = (Kind::File, Time(9));
    let put = |shard| Action::EntryPut {
        shard,
        dir,
        name: name(&text),
        handle: file,
        kind,
        expect: None,
        subdirs: 0,
        time,
    };
    let changed = Err(Stopped::Status(Status::Changed));
    assert_eq!(cluster.prepare(cluster.transaction(HOME), HOME, &[put(HOME)]), changed);
    let remove = Action::DirectoryRemove { shard: HOME, dir, split: false };
    for server in &cluster.servers {
        server.locks.holders().into_iter().for_each(|tx| server.locks.release(tx));
    }
    assert_eq!(cluster.prepare(cluster.transaction(HOME), HOME, &[remove]), changed);
}

#[test]
fn a_directory_that_a_transaction_works_in_is_split_when_that_is_over() {
    let (cluster, dir) = cluster(20);
    let file = cluster.create(ROOT, "file").unwrap().handle;
    let (kind, time, tx) = (Kind::File, Time(9), cluster.transaction(ServerId(0)));
    let put = Action::EntryPut {
        shard: HOME,
        dir,
        name: name("new"),
        handle: file,
        kind,
        expect: None,
        subdirs: 0,
        time,
    };
    cluster.prepare(tx, HOME, std::slice::from_ref(&put)).unwrap();
    let split = Op::Split { dir, entries: 100 };
    assert!(matches!(cluster.group(HOME, std::slice::from_ref(&split)), Err(Stopped::Locked(_))));
    cluster.finish(tx, HOME, &[put]);
    assert!(cluster.group(HOME, &[split]).is_ok());
    assert_eq!(cluster.find(dir, "new"), Ok(file));
    cluster.check_shards();
}

#[test]
fn while_a_split_is_prepared_nobody_reads_or_changes_the_directory_anywhere() {
    let (cluster, dir) = cluster(20);
    let (_, begun) = cluster.begin(HOME, &[Op::Split { dir, entries: 100 }], Default::default()).unwrap();
    let begun = begun.unwrap();
    let lookup = Op::Lookup { dir, path: vec![name("f1")].into() };
    for server in [ServerId(0), HOME, ServerId(2)] {
        assert!(matches!(cluster.group(server, std::slice::from_ref(&lookup)), Err(Stopped::Locked(_))));
    }
    // The home server decides first: until the others finish, requests redirected to them wait.
    cluster.finish(begun.tx, HOME, &begun.parts[0].1);
    for server in [ServerId(0), ServerId(2)] {
        assert!(matches!(cluster.group(server, std::slice::from_ref(&lookup)), Err(Stopped::Locked(_))));
    }
    for (server, actions) in &begun.parts[1..] {
        cluster.finish(begun.tx, *server, actions);
    }
    assert!(cluster.find(dir, "f1").is_ok());
}

#[test]
fn a_directory_splits_only_where_it_is_large_and_there_is_somewhere_to_go() {
    let (cluster, dir) = cluster(3);
    assert!(!cluster.split(dir).is_split(), "it is small");
    let mut alone = Cluster::new(&[ALL, Roles::DATA]);
    alone.switch(|switches| switches.split_entries = 1);
    alone.create(ROOT, "f").unwrap();
    let split = Op::Split { dir: ROOT, entries: 10 };
    assert_eq!(alone.op(ServerId(0), split.clone()), Err(Status::NotSupported), "one server holds metadata");
    let mut apart = Cluster::new(&[ALL, ALL]);
    apart.switch(|switches| *switches = "paper,split=1".parse().unwrap());
    assert_eq!(apart.op(ServerId(0), split), Err(Status::NotSupported), "clients enter names by themselves");
}

#[test]
fn the_root_splits_too_and_keeps_being_its_own_parent() {
    let mut cluster = Cluster::new(&[ALL, ALL]);
    cluster.switch(|switches| switches.split_entries = 4);
    (0..30).for_each(|n| drop(cluster.mkdir(ROOT, &format!("d{n}")).unwrap()));
    let shards = cluster.split(ROOT);
    let root = cluster.attr(ROOT).unwrap();
    assert_eq!((root.parent, root.nlink, root.shards), (ROOT, 32, shards));
    let (deep, onto) = (cluster.find(ROOT, "d3").unwrap(), cluster.find(ROOT, "d4").unwrap());
    cluster.rename((ROOT, "d3"), (onto, "in")).unwrap();
    assert_eq!(cluster.rename((ROOT, "d4"), (deep, "loop")), Err(Status::Invalid));
    cluster.check_shards();
}

#[test]
fn hard_links_and_files_held_open_are_the_same_in_a_split_directory() {
    let (cluster, dir) = cluster(20);
    let shards = cluster.split(dir);
    let file = cluster.find(dir, "f1").unwrap();
    let again = of_shard(&cluster, &shards, ServerId(2), "link");
    assert_eq!(cluster.link(file, dir, &again).unwrap().nlink, 2);
    cluster.unlink(dir, "f1").unwrap();
    let held = Held { handles: vec![file].into(), any: false };
    let Ok(Answer::Removed { orphaned: true, .. }) = cluster.unlink_held(dir, &again, held) else { panic!() };
    cluster.op(file.server(), Op::Release { object: file }).unwrap();
    assert_eq!(cluster.attr(file), Err(Status::Stale));
    cluster.check_shards();
}

#[test]
fn the_rows_of_a_shard_say_what_is_in_it() {
    let (cluster, dir) = cluster(30);
    let shards = cluster.split(dir);
    let mut all = 0;
    for &server in shards.servers() {
        let rows = cluster.rows_of(server, &keys::inode(dir));
        let inode = Inode::from_row(&rows[0].1).unwrap();
        assert_eq!(inode.parent, if server == HOME { ROOT } else { Handle::default() });
        assert_eq!(inode.shards, shards);
        all += inode.entries;
        for (_, row) in cluster.rows_of(server, &keys::entries(dir)) {
            let entry = Dirent::from_row(&row).unwrap();
            assert!(entry.kind == Kind::Directory || entry.handle.server() == HOME, "objects never move");
        }
    }
    assert_eq!(all, 31);
}
