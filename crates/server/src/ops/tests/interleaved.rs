//! Tests of transactions that overlap. They begin in any order, their parts are carried out in any order, and
//! other operations run in between. An operation that meets a lock gives up. At the end the namespace must be
//! a tree, every count must be right, and no lock may be left. A run that ends in another way would show a
//! fact of a plan that no lock covers.

use super::cluster::{ALL, Begun, Cluster, OWNER, name};
use crate::meta::keys::{self, Table};
use crate::meta::rows::{Dirent, Inode, RowValue};
use crate::request::ctx::Stopped;
use bytes::Bytes;
use proptest::prelude::*;
use shoal_proto::{Handle, Held, Kind, Op, Roles, Status};
use std::collections::BTreeMap;

const NAMES: [&str; 3] = ["a", "b", "c"];

#[derive(Clone, Debug)]
enum Step {
    /// Run, or begin, an operation: which, from and to where.
    Run(u8, (usize, usize), (usize, usize)),
    /// Carry out the next part of a transaction.
    Finish(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let place = || (0..8_usize, 0..NAMES.len());
    let run = (0..10_u8, place(), place()).prop_map(|(which, from, to)| Step::Run(which, from, to));
    let step = prop_oneof![3 => run, 2 => (0..8_usize).prop_map(Step::Finish)];
    proptest::collection::vec(step, 1..100)
}

fn inodes(cluster: &Cluster) -> BTreeMap<Handle, Inode> {
    let rows = cluster.rows(Table::Inode).into_iter();
    rows.map(|(key, row)| (keys::parse_handle(&key).unwrap(), Inode::from_row(&row).unwrap())).collect()
}

fn operation(cluster: &Cluster, which: u8, from: (usize, usize), to: (usize, usize)) -> Op {
    let all = inodes(cluster);
    let dirs: Vec<Handle> = all.iter().filter(|(_, i)| i.kind == Kind::Directory).map(|(h, _)| *h).collect();
    let files: Vec<Handle> = all.iter().filter(|(_, i)| i.kind != Kind::Directory).map(|(h, _)| *h).collect();
    let (dir, dir_to) = (dirs[from.0 % dirs.len()], dirs[to.0 % dirs.len()]);
    let (from_name, to_name) = (name(NAMES[from.1]), name(NAMES[to.1]));
    let held = Held { any: which == 9, ..Held::default() };
    match which {
        0 | 1 => Op::Mkdir { dir, name: from_name, owner: OWNER },
        2 => Op::Mknod { dir, name: from_name, owner: OWNER, kind: Kind::File, rdev: 0 },
        3 => Op::Unlink { dir, name: from_name, held },
        4 => Op::Rmdir { dir, name: from_name },
        5 if !files.is_empty() => {
            Op::Link { object: files[from.0 % files.len()], dir: dir_to, name: to_name }
        }
        _ => {
            let (exchange, no_replace) = (which == 8, false);
            Op::Rename { from_dir: dir, from_name, to_dir: dir_to, to_name, no_replace, exchange, held }
        }
    }
}

fn server_of(op: &Op) -> shoal_proto::ServerId {
    match op {
        Op::Rename { to_dir: dir, .. }
        | Op::Mkdir { dir, .. }
        | Op::Mknod { dir, .. }
        | Op::Unlink { dir, .. }
        | Op::Rmdir { dir, .. }
        | Op::Link { dir, .. } => dir.server(),
        other => panic!("{other:?}"),
    }
}

fn finish_next(cluster: &Cluster, pending: &mut Vec<Begun>, at: usize) {
    if pending.is_empty() {
        return;
    }
    let at = at % pending.len();
    let begun = &mut pending[at];
    let (server, actions) = begun.parts.remove(0);
    cluster.finish(begun.tx, server, &actions);
    if begun.parts.is_empty() {
        let tx = pending.remove(at).tx;
        cluster.servers.iter().for_each(|server| server.locks.release(tx));
    }
}

fn check(cluster: &Cluster) {
    let all = inodes(cluster);
    let mut names: BTreeMap<Handle, Vec<Handle>> = BTreeMap::new();
    let mut subdirs: BTreeMap<Handle, u32> = BTreeMap::new();
    for (key, row) in cluster.rows(Table::Entry) {
        let (dir, _, _) = keys::parse_entry(&key).unwrap();
        let entry = Dirent::from_row(&row).unwrap();
        assert_eq!(all[&dir].kind, Kind::Directory);
        assert_eq!(all[&entry.handle].kind, entry.kind);
        names.entry(entry.handle).or_default().push(dir);
        *subdirs.entry(dir).or_default() += u32::from(entry.kind == Kind::Directory);
    }
    let orphans: Vec<Handle> =
        cluster.rows(Table::Orphan).iter().map(|(key, _)| keys::parse_orphan(key).unwrap().0).collect();
    for (handle, inode) in &all {
        let names = names.remove(handle).unwrap_or_default();
        if inode.kind != Kind::Directory {
            assert_eq!(inode.nlink as usize, names.len(), "{handle}");
            assert_eq!(inode.nlink == 0, orphans.contains(handle));
            continue;
        }
        assert_eq!(inode.nlink, 2 + subdirs.get(handle).copied().unwrap_or_default(), "{handle}");
        if *handle != Handle::ROOT {
            assert_eq!(names, [inode.parent], "{handle}");
        }
        let mut at = *handle;
        for _ in 0..all.len() {
            at = all[&at].parent;
        }
        assert_eq!(at, Handle::ROOT, "{handle} lies in a loop");
    }
    assert!(cluster.servers.iter().all(|server| server.locks.is_empty()));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn overlapping_transactions_leave_a_tree_with_right_counts(steps in steps()) {
        let cluster = Cluster::new(&[ALL, Roles::METADATA, ALL]);
        let mut pending = Vec::new();
        for step in &steps {
            match *step {
                Step::Finish(at) => finish_next(&cluster, &mut pending, at),
                Step::Run(which, from, to) => {
                    let op = operation(&cluster, which, from, to);
                    match cluster.begin(server_of(&op), &[op], Bytes::new()) {
                        Ok((_, begun)) => pending.extend(begun),
                        Err(Stopped::Locked(_) | Stopped::Status(_)) => {}
                        Err(halt) => panic!("{halt:?}"),
                    }
                }
            }
        }
        while !pending.is_empty() {
            finish_next(&cluster, &mut pending, 0);
        }
        check(&cluster);
    }
}

#[test]
fn a_plan_that_meets_a_prepared_one_leaves_no_lock_behind() {
    let cluster = Cluster::new(&[ALL, ALL]);
    let (text, dir) = cluster.mkdir_on(1, Handle::ROOT);
    let rmdir = [Op::Rmdir { dir: Handle::ROOT, name: name(&text) }];
    let (_, begun) = cluster.begin(Handle::ROOT.server(), &rmdir, Bytes::new()).unwrap();
    let into = Op::Mknod { dir: dir.handle, name: name("x"), owner: OWNER, kind: Kind::Fifo, rdev: 0 };
    assert!(matches!(cluster.group(dir.handle.server(), &[into]), Err(Stopped::Locked(_))));
    assert!(matches!(cluster.group(Handle::ROOT.server(), &rmdir), Err(Stopped::Locked(_))));
    let mut pending = vec![begun.unwrap()];
    while !pending.is_empty() {
        finish_next(&cluster, &mut pending, 0);
    }
    assert_eq!(cluster.attr(dir.handle), Err(Status::Stale));
    check(&cluster);
}

#[test]
fn two_moves_that_would_make_a_loop_together_are_not_both_begun() {
    let cluster = Cluster::new(&[ALL, ALL, ALL]);
    let (a_text, a) = cluster.mkdir_on(1, Handle::ROOT);
    let (b_text, b) = cluster.mkdir_on(2, Handle::ROOT);
    let (_, in_a) = cluster.mkdir_on(2, a.handle);
    let (_, in_b) = cluster.mkdir_on(1, b.handle);
    // Each alone is right, and they share no object that is changed.
    let into = |from: &str, to_dir: Handle| Op::Rename {
        from_dir: Handle::ROOT,
        from_name: name(from),
        to_dir,
        to_name: name("moved"),
        no_replace: false,
        exchange: false,
        held: Held::default(),
    };
    let first = into(&a_text, in_b.handle);
    let (_, begun) = cluster.begin(in_b.handle.server(), &[first], Bytes::new()).unwrap();
    let second = into(&b_text, in_a.handle);
    assert!(matches!(
        cluster.group(in_a.handle.server(), std::slice::from_ref(&second)),
        Err(Stopped::Locked(_))
    ));
    let mut pending = vec![begun.unwrap()];
    while !pending.is_empty() {
        finish_next(&cluster, &mut pending, 0);
    }
    assert_eq!(cluster.group(in_a.handle.server(), &[second]), Err(Status::Invalid.into()));
    check(&cluster);
}
