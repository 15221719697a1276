//! Tests of every rule of rename, on one server and over several servers.

use super::cluster::{ALL, Cluster};
use crate::meta::keys::Table;
use crate::request::ctx::FactKey;
use shoal_proto::{Answer, Attr, Handle, Held, Kind, Op, ServerId, Status};

const ROOT: Handle = Handle::ROOT;

/// On one server and on three: two directories, each on the server of its turn.
fn clusters() -> Vec<(Cluster, Handle, Handle)> {
    let one = Cluster::new(&[ALL]);
    let (a, b) = (one.mkdir(ROOT, "a").unwrap().handle, one.mkdir(ROOT, "b").unwrap().handle);
    let three = Cluster::new(&[ALL, ALL, ALL]);
    let (_, c) = three.mkdir_on(1, ROOT);
    let (_, d) = three.mkdir_on(2, ROOT);
    vec![(one, a, b), (three, c.handle, d.handle)]
}

fn done() -> Result<Answer, Status> {
    Ok(Answer::Done {})
}

fn removed(attr: &Attr, orphaned: bool) -> Result<Answer, Status> {
    Ok(Answer::Removed { handle: attr.handle, kind: attr.kind, orphaned })
}

#[test]
fn a_file_moves_and_its_and_its_directories_times_tell_it() {
    for (cluster, a, b) in clusters() {
        let file = cluster.create(a, "f").unwrap();
        assert_eq!(cluster.rename((a, "f"), (b, "g")), done());
        let now = cluster.now();
        let moved = cluster.attr(file.handle).unwrap();
        assert_eq!(moved, Attr { ctime: now, ..file.clone() });
        for dir in [a, b] {
            let dir = cluster.attr(dir).unwrap();
            assert_eq!((dir.mtime, dir.ctime, dir.nlink), (now, now, 2));
        }
        assert_eq!(cluster.find(a, "f"), Err(Status::NotFound));
        assert_eq!(cluster.find(b, "g"), Ok(file.handle));
        // And within one directory.
        assert_eq!(cluster.rename((b, "g"), (b, "h")), done());
        assert_eq!(cluster.attr(file.handle).unwrap().ctime, cluster.now());
        assert_eq!(cluster.list(b).len(), 1);
    }
}

#[test]
fn what_is_not_there_is_not_moved() {
    for (cluster, a, b) in clusters() {
        assert_eq!(cluster.rename((a, "f"), (b, "g")), Err(Status::NotFound));
        let file = cluster.create(a, "f").unwrap();
        assert_eq!(cluster.rename((file.handle, "x"), (b, "g")), Err(Status::NotDirectory));
        cluster.mkdir(ROOT, "gone").unwrap();
        let gone = cluster.find(ROOT, "gone").unwrap();
        cluster.rmdir(ROOT, "gone").unwrap();
        assert_eq!(cluster.rename((gone, "x"), (b, "g")), Err(Status::Stale));
        assert_eq!(cluster.rename((a, "f"), (gone, "g")), Err(Status::Stale));
    }
}

#[test]
fn a_replaced_file_loses_a_name() {
    for (cluster, a, b) in clusters() {
        let (file, old) = (cluster.create(a, "f").unwrap(), cluster.create(b, "g").unwrap());
        cluster.link(old.handle, a, "other").unwrap();
        assert_eq!(cluster.rename((a, "f"), (b, "g")), removed(&old, false));
        let left = cluster.attr(old.handle).unwrap();
        assert_eq!((left.nlink, left.ctime), (1, cluster.now()));
        assert_eq!(cluster.find(b, "g"), Ok(file.handle));
        assert_eq!(cluster.rename((b, "g"), (a, "other")), removed(&old, false));
        assert_eq!(cluster.attr(old.handle), Err(Status::Stale));
    }
}

#[test]
fn a_replaced_file_that_is_held_open_stays_as_an_orphan() {
    for (cluster, a, b) in clusters() {
        let (_, old) = (cluster.create(a, "f").unwrap(), cluster.create(b, "g").unwrap());
        let held = Held { handles: vec![old.handle].into(), any: false };
        let answer = cluster.rename_with((a, "f"), (b, "g"), false, false, held);
        assert_eq!(answer, removed(&old, true));
        assert_eq!(cluster.attr(old.handle).unwrap().nlink, 0);
        assert_eq!(cluster.rows(Table::Orphan).len(), 1);
        cluster.op(old.handle.server(), Op::Release { object: old.handle }).unwrap();
        assert_eq!(cluster.attr(old.handle), Err(Status::Stale));
    }
}

#[test]
fn two_names_of_one_object_are_left_alone() {
    for (cluster, a, b) in clusters() {
        let file = cluster.create(a, "f").unwrap().handle;
        let linked = cluster.link(file, b, "g").unwrap();
        for (from, to) in [((a, "f"), (b, "g")), ((a, "f"), (a, "f")), ((b, "g"), (a, "f"))] {
            assert_eq!(cluster.rename(from, to), done());
            assert_eq!(cluster.rename_with(from, to, false, true, Held::default()), done());
        }
        assert_eq!(cluster.attr(file), Ok(linked));
        assert_eq!((cluster.find(a, "f"), cluster.find(b, "g")), (Ok(file), Ok(file)));
        let refused = cluster.rename_with((a, "f"), (b, "g"), true, false, Held::default());
        assert_eq!(refused, Err(Status::Exists));
    }
}

#[test]
fn files_replace_files_and_directories_replace_empty_directories_only() {
    for (cluster, a, b) in clusters() {
        cluster.create(a, "file").unwrap();
        let dir = cluster.mkdir(a, "dir").unwrap();
        cluster.create(b, "file").unwrap();
        let full = cluster.mkdir(b, "full").unwrap();
        cluster.symlink(full.handle, "x", b"y").unwrap();
        let empty = cluster.mkdir(b, "empty").unwrap();
        assert_eq!(cluster.rename((a, "dir"), (b, "file")), Err(Status::NotDirectory));
        assert_eq!(cluster.rename((a, "file"), (b, "empty")), Err(Status::IsDirectory));
        assert_eq!(cluster.rename((a, "file"), (b, "full")), Err(Status::IsDirectory));
        assert_eq!(cluster.rename((a, "dir"), (b, "full")), Err(Status::NotEmpty));
        assert_eq!((cluster.attr(a).unwrap().nlink, cluster.attr(b).unwrap().nlink), (3, 4));
        assert_eq!(cluster.rename((a, "dir"), (b, "empty")), removed(&empty, false));
        assert_eq!((cluster.attr(a).unwrap().nlink, cluster.attr(b).unwrap().nlink), (2, 4));
        assert_eq!(cluster.attr(empty.handle), Err(Status::Stale));
        let moved = cluster.attr(dir.handle).unwrap();
        assert_eq!((moved.parent, moved.ctime), (b, cluster.now()));
        // Within one directory a parent loses one.
        let full_now = cluster.mkdir(b, "empty2").unwrap();
        assert_eq!(cluster.rename((b, "full"), (b, "empty2")), removed(&full_now, false));
        assert_eq!(cluster.attr(b).unwrap().nlink, 4);
    }
}

#[test]
fn no_replace_leaves_what_is_there() {
    for (cluster, a, b) in clusters() {
        cluster.create(a, "f").unwrap();
        cluster.mkdir(b, "g").unwrap();
        let no_replace = |to: (Handle, &str)| cluster.rename_with((a, "f"), to, true, false, Held::default());
        assert_eq!(no_replace((b, "g")), Err(Status::Exists));
        assert_eq!(no_replace((b, "h")), done());
        assert_eq!(no_replace((b, "h")), Err(Status::NotFound));
        let both = cluster.rename_with((b, "h"), (a, "f"), true, true, Held::default());
        assert_eq!(both, Err(Status::Invalid));
    }
}

#[test]
fn a_directory_never_comes_to_lie_in_itself() {
    for (cluster, a, b) in clusters() {
        let c = cluster.mkdir(a, "c").unwrap().handle;
        let d = cluster.mkdir(c, "d").unwrap().handle;
        cluster.create(b, "file").unwrap();
        let a_name =
            cluster.list(ROOT).into_iter().find(|e| e.handle == a).map(|e| e.name.to_string()).unwrap();
        let a_name = a_name.as_str();
        for to in [(a, "x"), (c, "x"), (d, "x")] {
            assert_eq!(cluster.rename((ROOT, a_name), to), Err(Status::Invalid));
        }
        assert_eq!(cluster.rename((a, "c"), (d, "c")), Err(Status::Invalid));
        // Onto its own ancestors, which are not empty.
        assert_eq!(cluster.rename((a, "c"), (ROOT, a_name)), Err(Status::NotEmpty));
        assert_eq!(cluster.rename((c, "d"), (ROOT, a_name)), Err(Status::NotEmpty));
        let swap = |from: (Handle, &str), to: (Handle, &str)| {
            cluster.rename_with(from, to, false, true, Held::default())
        };
        assert_eq!(swap((a, "c"), (ROOT, a_name)), Err(Status::Invalid));
        assert_eq!(swap((ROOT, a_name), (c, "d")), Err(Status::Invalid));
        // To another branch it may go.
        assert_eq!(cluster.rename((c, "d"), (b, "d")), done());
        assert_eq!(cluster.rename((a, "c"), (d, "c")), done());
        assert_eq!(cluster.attr(c).unwrap().parent, d);
    }
}

#[test]
fn exchanged_entries_change_places_parents_and_counts() {
    for (cluster, a, b) in clusters() {
        let file = cluster.create(a, "f").unwrap();
        let dir = cluster.mkdir(b, "d").unwrap();
        cluster.create(dir.handle, "inside").unwrap();
        let swap = |from: (Handle, &str), to: (Handle, &str)| {
            cluster.rename_with(from, to, false, true, Held::default())
        };
        assert_eq!(swap((a, "f"), (b, "none")), Err(Status::NotFound));
        assert_eq!(swap((a, "none"), (b, "d")), Err(Status::NotFound));
        assert_eq!(swap((a, "f"), (b, "d")), done());
        let now = cluster.now();
        assert_eq!((cluster.attr(a).unwrap().nlink, cluster.attr(b).unwrap().nlink), (3, 2));
        assert_eq!((cluster.find(a, "f"), cluster.find(b, "d")), (Ok(dir.handle), Ok(file.handle)));
        let _ = now;
        assert_eq!(cluster.attr(dir.handle).unwrap().parent, a);
        let kinds: Vec<Kind> = [a, b].iter().flat_map(|&d| cluster.list(d)).map(|e| e.kind).collect();
        assert_eq!(kinds, [Kind::Directory, Kind::File]);
        // Two directories of different parents, neither empty.
        let other = cluster.mkdir(b, "o").unwrap();
        cluster.create(other.handle, "inside").unwrap();
        assert_eq!(swap((a, "f"), (b, "o")), done());
        assert_eq!((cluster.attr(a).unwrap().nlink, cluster.attr(b).unwrap().nlink), (3, 3));
        assert_eq!(
            (cluster.attr(dir.handle).unwrap().parent, cluster.attr(other.handle).unwrap().parent),
            (b, a)
        );
        assert_eq!(cluster.attr(other.handle).unwrap().ctime, cluster.now());
    }
}

#[test]
fn a_move_of_a_directory_walks_the_ancestors_of_other_servers_under_the_lock() {
    let cluster = Cluster::new(&[ALL, ALL]);
    // Everything that changes is on server 0; only an ancestor is not.
    let (_, above) = cluster.mkdir_on(1, ROOT);
    let (_, to) = cluster.mkdir_on(0, above.handle);
    let (text, moved) = cluster.mkdir_on(0, ROOT);
    assert_eq!(cluster.rename((ROOT, &text), (to.handle, "moved")), done());
    let walked = vec![FactKey::Attr(above.handle), FactKey::Attr(above.handle)];
    assert_eq!(*cluster.facts.borrow(), walked, "asked once to plan, and again under the lock");
    assert_eq!(cluster.attr(moved.handle).unwrap().parent, to.handle);
    assert!(cluster.servers[0].locks.is_empty());
    assert_eq!(cluster.rename((ROOT, "none"), (ROOT, "x")), Err(Status::NotFound));
    let op = Op::Rename {
        from_dir: ROOT,
        from_name: super::cluster::name("x"),
        to_dir: above.handle,
        to_name: super::cluster::name("x"),
        no_replace: false,
        exchange: false,
        held: Held::default(),
    };
    assert_eq!(cluster.op(ServerId(0), op), Err(Status::WrongServer));
}
