//! Tests of the operations that must wait for a transaction under way, and of the operations that need not
//! wait.

use super::cluster::{ALL, Cluster, OWNER, name};
use crate::request::ctx::Stopped;
use shoal_proto::{
    Action, Answer, ClientId, Generation, Handle, Held, Kind, Op, ServerId, SetAttr, Status, Time,
};

const ROOT: Handle = Handle::ROOT;
const HERE: ServerId = ServerId(0);

fn create(dir: Handle, file: &str) -> Op {
    Op::Mknod { dir, name: name(file), owner: OWNER, kind: Kind::Fifo, rdev: 0 }
}

fn lookup(dir: Handle, file: &str) -> Op {
    Op::Lookup { dir, path: vec![name(file)].into() }
}

fn list(dir: Handle, plus: bool) -> Op {
    Op::Readdir { dir, after: None, bytes_max: 4096, plus, data_max: 0, in_shard: false }
}

/// A directory and a file in it, both on the only server.
fn world() -> (Cluster, Handle, Handle) {
    let cluster = Cluster::new(&[ALL]);
    let dir = cluster.mkdir(ROOT, "dir").unwrap().handle;
    let file = cluster.create(dir, "file").unwrap().handle;
    (cluster, dir, file)
}

fn halts(cluster: &Cluster, op: Op) -> bool {
    match cluster.group(HERE, &[op]) {
        Err(Stopped::Locked(_)) => true,
        Ok(_) => false,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_directory_that_is_being_removed_gets_no_entries() {
    let (cluster, dir, _) = world();
    cluster.unlink(dir, "file").unwrap();
    let tx = cluster.transaction(HERE);
    let actions = [Action::DirectoryRemove { shard: dir.server(), dir, split: false }];
    cluster.prepare(tx, HERE, &actions).unwrap();
    assert!(halts(&cluster, create(dir, "x")));
    assert!(halts(&cluster, list(dir, false)));
    assert!(halts(&cluster, Op::Getattr { object: dir }));
    cluster.finish(tx, HERE, &actions);
    assert_eq!(cluster.group(HERE, &[create(dir, "x")]), Err(Status::Stale.into()));
}

#[test]
fn the_size_of_a_stream_that_is_being_cut_is_told_when_it_is_cut() {
    let (cluster, _, file) = world();
    let facts = || match cluster.op(HERE, Op::Streamstat { stream: file }) {
        Ok(Answer::Facts { facts, .. }) => facts,
        other => panic!("{other:?}"),
    };
    let expect = facts().generation;
    let tx = cluster.transaction(HERE);
    let cut = Action::StreamAdvance {
        stream: file,
        owner: file,
        expect,
        generation: Generation(expect.0 + 1),
        size: Some(5),
        written_at: None,
    };
    cluster.prepare(tx, HERE, std::slice::from_ref(&cut)).unwrap();
    assert!(halts(&cluster, Op::Streamstat { stream: file }));
    cluster.finish(tx, HERE, &[cut]);
    assert_eq!(facts().size, 5);
}

#[test]
fn a_directory_that_gets_an_entry_takes_others_and_is_not_removed() {
    let (cluster, dir, file) = world();
    let tx = cluster.transaction(HERE);
    let (kind, time) = (Kind::File, Time(9));
    let put = Action::EntryPut {
        shard: dir.server(),
        dir,
        name: name("new"),
        handle: file,
        kind,
        expect: None,
        subdirs: 0,
        time,
    };
    cluster.prepare(tx, HERE, std::slice::from_ref(&put)).unwrap();
    assert!(!halts(&cluster, create(dir, "x")));
    assert!(!halts(&cluster, Op::Setattr { object: dir, set: SetAttr::default() }));
    assert!(halts(&cluster, lookup(dir, "new")));
    assert!(halts(&cluster, create(dir, "new")));
    for entry in ["file", "x"] {
        cluster.unlink(dir, entry).unwrap();
    }
    assert!(halts(&cluster, Op::Rmdir { dir: ROOT, name: name("dir") }));
    // Another transaction may put its own entry, and may not remove the directory.
    let other = cluster.transaction(HERE);
    let name = name("more");
    let more = Action::EntryPut {
        shard: dir.server(),
        dir,
        name,
        handle: file,
        kind,
        expect: None,
        subdirs: 0,
        time,
    };
    cluster.prepare(other, HERE, std::slice::from_ref(&more)).unwrap();
    let third = cluster.transaction(HERE);
    let removal = Action::DirectoryRemove { shard: dir.server(), dir, split: false };
    assert!(matches!(cluster.prepare(third, HERE, &[removal]), Err(Stopped::Locked(_))));
    cluster.finish(tx, HERE, &[put]);
    cluster.finish(other, HERE, &[more]);
    assert_eq!(cluster.list(dir).len(), 2);
    assert_eq!(cluster.attr(dir).unwrap().mtime, time);
}

#[test]
fn an_entry_that_is_being_removed_is_waited_for() {
    let (cluster, dir, file) = world();
    let tx = cluster.transaction(HERE);
    let action = Action::EntryRemove {
        shard: dir.server(),
        dir,
        name: name("file"),
        expect: file,
        subdirs: 0,
        time: Time(9),
    };
    cluster.prepare(tx, HERE, std::slice::from_ref(&action)).unwrap();
    let unlink = Op::Unlink { dir, name: name("file"), held: Held::default() };
    for op in [lookup(dir, "file"), list(dir, false), unlink] {
        assert!(halts(&cluster, op));
    }
    assert!(!halts(&cluster, Op::Getattr { object: file }));
    cluster.finish(tx, HERE, &[action]);
    assert_eq!(cluster.list(dir), []);
}

#[test]
fn an_object_that_is_being_changed_is_waited_for_but_does_not_stop_a_listing() {
    let (cluster, dir, file) = world();
    let tx = cluster.transaction(HERE);
    let action =
        Action::Links { object: file, delta: 1, time: Time(9), client: ClientId::default(), held: false };
    cluster.prepare(tx, HERE, std::slice::from_ref(&action)).unwrap();
    assert!(halts(&cluster, Op::Getattr { object: file }));
    assert!(halts(&cluster, Op::Setattr { object: file, set: SetAttr::default() }));
    assert!(!halts(&cluster, list(dir, true)));
    cluster.finish(tx, HERE, &[action]);
    assert_eq!(cluster.attr(file).unwrap().nlink, 2);
}

#[test]
fn a_plan_made_from_older_facts_is_refused_as_changed() {
    let (cluster, dir, file) = world();
    let (time, gone) = (Time(9), Handle::new(HERE, 4711));
    let (kind, name) = (Kind::File, name("file"));
    let other = ROOT;
    let changed = [
        Action::EntryPut {
            shard: dir.server(),
            dir,
            name: name.clone(),
            handle: file,
            kind,
            expect: None,
            subdirs: 0,
            time,
        },
        Action::EntryRemove { shard: dir.server(), dir, name: name.clone(), expect: other, subdirs: 0, time },
        Action::EntryRemove {
            shard: gone.server(),
            dir: gone,
            name: name.clone(),
            expect: other,
            subdirs: 0,
            time,
        },
        Action::EntryRemove { shard: file.server(), dir: file, name, expect: other, subdirs: 0, time },
        Action::Links { object: gone, delta: -1, time, client: ClientId::default(), held: false },
        Action::Links { object: dir, delta: 1, time, client: ClientId::default(), held: false },
        Action::Links { object: file, delta: -2, time, client: ClientId::default(), held: false },
        Action::Touch { object: gone, time },
        Action::Reparent { dir, expect: dir, parent: ROOT, time },
        Action::DirectoryRemove { shard: file.server(), dir: file, split: false },
        Action::DirectoryRemove { shard: gone.server(), dir: gone, split: false },
        Action::AttrSet { attr: cluster.attr(file).unwrap(), expect: shoal_proto::Generation(7) },
        Action::ObjectCreate { attr: cluster.attr(dir).unwrap() },
    ];
    for action in changed {
        let tx = cluster.transaction(HERE);
        assert_eq!(cluster.prepare(tx, HERE, std::slice::from_ref(&action)), Err(Status::Changed.into()));
        cluster.servers[0].locks.release(tx);
    }
    let full = cluster.prepare(
        cluster.transaction(HERE),
        HERE,
        &[Action::DirectoryRemove { shard: dir.server(), dir, split: false }],
    );
    assert_eq!(full, Err(Status::NotEmpty.into()));
}

#[test]
fn only_one_holds_the_rename_lock() {
    let (cluster, dir, _) = world();
    let sub = cluster.mkdir(dir, "sub").unwrap().handle;
    let tx = cluster.transaction(HERE);
    cluster.prepare(tx, HERE, &[Action::RenameLock {}]).unwrap();
    let rename = |from_dir: Handle, from: &str, to_dir: Handle, to: &str| Op::Rename {
        from_dir,
        from_name: name(from),
        to_dir,
        to_name: name(to),
        no_replace: false,
        exchange: false,
        held: Held::default(),
    };
    assert!(halts(&cluster, rename(dir, "sub", ROOT, "sub")));
    // Only moves of directories to other parents need it.
    assert!(!halts(&cluster, rename(dir, "file", ROOT, "file")));
    assert!(!halts(&cluster, rename(dir, "sub", dir, "sub2")));
    cluster.finish(tx, HERE, &[Action::RenameLock {}]);
    assert!(!halts(&cluster, rename(dir, "sub2", ROOT, "sub")));
    assert_eq!(cluster.attr(sub).unwrap().parent, ROOT);
}

#[test]
fn repairs_remove_objects_and_set_links_whatever_they_are() {
    let (cluster, _, file) = world();
    cluster.prepared(&[Action::LinksSet { object: file, nlink: 5 }]);
    assert_eq!(cluster.attr(file).unwrap().nlink, 5);
    cluster.prepared(&[Action::ObjectRemove { object: file }]);
    assert_eq!(cluster.attr(file), Err(Status::Stale));
    let (datafile, owner) = (Handle::new(HERE, 900), file);
    let generation = shoal_proto::Generation(3);
    cluster.prepared(&[Action::DatafileCreate { datafile, owner, generation }]);
    assert_eq!(cluster.rows(crate::meta::keys::Table::Datafile).len(), 1);
    cluster
        .prepared(&[Action::DatafileRemove { datafile, owner }, Action::DatafileRemove { datafile, owner }]);
    assert_eq!(cluster.rows(crate::meta::keys::Table::Datafile), []);
}
