//! Runs random operations on a cluster of one or three servers and on a simple model of the namespace. Both
//! must give the same answers and the same tree. After that the servers may have no other inodes, orphans and
//! entries than the model, and no locks.

use super::cluster::{ALL, Cluster};
use super::model::{How, Model, Node, ROOT};
use crate::meta::keys::Table;
use proptest::prelude::*;
use shoal_proto::{Answer, Handle, Held, Kind, Op, Roles, Status};
use std::collections::BTreeMap;

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// A step names a directory by an index into the directories that exist at that moment, modulo their number.
#[derive(Clone, Debug)]
enum Step {
    Make(usize, usize, Kind),
    Unlink(usize, usize, bool),
    Rmdir(usize, usize),
    Link((usize, usize), (usize, usize)),
    Rename((usize, usize), (usize, usize), How),
    Release(usize),
    Split(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let place = || (0..12_usize, 0..NAMES.len());
    let kind = prop_oneof![
        4 => Just(Kind::Directory),
        3 => Just(Kind::File),
        1 => Just(Kind::Symlink),
        1 => Just(Kind::Fifo),
    ];
    let how = prop_oneof![Just(How::Plain), Just(How::Held), Just(How::NoReplace), Just(How::Exchange)];
    let step = prop_oneof![
        6 => (place(), kind).prop_map(|((dir, name), kind)| Step::Make(dir, name, kind)),
        2 => (place(), any::<bool>()).prop_map(|((dir, name), held)| Step::Unlink(dir, name, held)),
        2 => place().prop_map(|(dir, name)| Step::Rmdir(dir, name)),
        2 => (place(), place()).prop_map(|(from, to)| Step::Link(from, to)),
        6 => (place(), place(), how).prop_map(|(from, to, how)| Step::Rename(from, to, how)),
        1 => (0..4_usize).prop_map(Step::Release),
        1 => (0..12_usize).prop_map(Step::Split),
    ];
    proptest::collection::vec(step, 1..80)
}

struct Both {
    cluster: Cluster,
    model: Model,
    handles: BTreeMap<Node, Handle>,
}

impl Both {
    fn new(roles: &[Roles]) -> Both {
        let handles = BTreeMap::from([(ROOT, Handle::ROOT)]);
        Both { cluster: Cluster::new(roles), model: Model::new(), handles }
    }

    fn place(&self, (dir, name): (usize, usize)) -> (Node, Handle, &'static str) {
        let dirs = self.model.dirs();
        let node = dirs[dir % dirs.len()];
        (node, self.handles[&node], NAMES[name])
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Make(dir, name, kind) => self.make((dir, name), kind),
            Step::Unlink(dir, name, held) => {
                let (node, dir, name) = self.place((dir, name));
                let expected = self.model.unlink(node, name, held);
                let done = self.cluster.unlink_held(dir, name, Held { any: held, ..Held::default() });
                assert_eq!(done.map(drop), expected);
            }
            Step::Rmdir(dir, name) => {
                let (node, dir, name) = self.place((dir, name));
                assert_eq!(self.cluster.rmdir(dir, name).map(drop), self.model.rmdir(node, name));
            }
            Step::Link(from, to) => {
                let ((from, _, old), (node, dir, name)) = (self.place(from), self.place(to));
                let Ok(object) = self.model.find(from, old) else { return };
                let linked = self.cluster.link(self.handles[&object], dir, name).map(drop);
                assert_eq!(linked, self.model.link(object, node, name));
            }
            Step::Rename(from, to, how) => self.rename(self.place(from), self.place(to), how),
            Step::Split(dir) => {
                let (_, dir, _) = self.place((dir, 0));
                let whole = self.cluster.servers[0].identity.splits_at().is_none();
                if !whole {
                    self.cluster.split(dir);
                }
            }
            Step::Release(at) => {
                let orphans = self.model.orphans();
                let Some(&node) = orphans.get(at) else { return };
                let object = self.handles[&node];
                self.cluster.op(object.server(), Op::Release { object }).unwrap();
                self.model.objects.remove(&node);
            }
        }
    }

    fn make(&mut self, at: (usize, usize), kind: Kind) {
        let (node, dir, name) = self.place(at);
        let expected = self.model.make(node, name, kind);
        let made = match kind {
            Kind::Directory => self.cluster.mkdir(dir, name),
            Kind::File => self.cluster.create(dir, name),
            Kind::Symlink => self.cluster.symlink(dir, name, b"target"),
            kind => self.cluster.mknod(dir, name, kind, 0),
        };
        assert_eq!(made.as_ref().err(), expected.as_ref().err());
        if let (Ok(attr), Ok(node)) = (made, expected) {
            self.handles.insert(node, attr.handle);
        }
    }

    fn rename(&mut self, from: (Node, Handle, &str), to: (Node, Handle, &str), how: How) {
        let replaced = self.model.find(to.0, to.2).ok();
        let expected = self.model.rename((from.0, from.2), (to.0, to.2), how);
        let held = Held { any: how == How::Held, ..Held::default() };
        let (no_replace, exchange) = (how == How::NoReplace, how == How::Exchange);
        let done = self.cluster.rename_with((from.1, from.2), (to.1, to.2), no_replace, exchange, held);
        assert_eq!(done.as_ref().map(drop), expected.as_ref().map(drop), "{how:?}");
        if let Ok(Answer::Removed { handle, orphaned, .. }) = done {
            let node = replaced.unwrap();
            assert_eq!(handle, self.handles[&node]);
            assert_eq!(orphaned, self.model.objects.get(&node).is_some_and(|o| o.names == 0));
        }
    }

    /// Assert that the trees are equal, and that no server has further rows or locks.
    fn compare(&self) {
        for (&node, object) in &self.model.objects {
            let handle = self.handles[&node];
            let attr = self.cluster.attr(handle).unwrap();
            assert_eq!((attr.kind, attr.nlink), (object.kind, self.model.nlink(node)), "node {node}");
            if object.kind != Kind::Directory {
                continue;
            }
            assert_eq!(attr.parent, self.handles[&object.parent]);
            let listed: Vec<_> = self
                .cluster
                .list(handle)
                .into_iter()
                .map(|e| (e.name.to_string(), e.handle, e.kind))
                .collect();
            let entries = object.entries.iter();
            let expected: Vec<_> = entries
                .map(|(name, node)| (name.clone(), self.handles[node], self.model.objects[node].kind))
                .collect();
            assert_eq!(listed, expected);
        }
        self.cluster.check_shards();
        let shards = |node: &Node| self.cluster.attr(self.handles[node]).unwrap().shards.servers().len();
        let further: usize = self.model.objects.keys().map(|node| shards(node).max(1) - 1).sum();
        assert_eq!(self.cluster.rows(Table::Inode).len(), self.model.objects.len() + further);
        assert_eq!(self.cluster.rows(Table::Orphan).len(), self.model.orphans().len());
        let names: usize = self.model.objects.values().map(|o| o.entries.len()).sum();
        assert_eq!(self.cluster.rows(Table::Entry).len(), names);
        assert!(self.cluster.servers.iter().all(|server| server.locks.is_empty()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn the_namespace_is_the_naive_ones_on_one_server(steps in steps()) {
        let mut both = Both::new(&[ALL]);
        steps.iter().for_each(|step| both.step(step));
        both.compare();
    }

    #[test]
    fn the_namespace_is_the_naive_ones_over_three_servers(steps in steps()) {
        let mut both = Both::new(&[ALL, Roles::METADATA, ALL]);
        steps.iter().for_each(|step| both.step(step));
        both.compare();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn the_namespace_is_the_naive_ones_whatever_directories_are_split(steps in steps()) {
        let mut both = Both::new(&[ALL, Roles::METADATA, ALL]);
        both.cluster.switch(|switches| switches.split_entries = 1);
        steps.iter().for_each(|step| both.step(step));
        both.compare();
    }
}

#[test]
fn stale_handles_stay_stale() {
    let mut both = Both::new(&[ALL, ALL]);
    both.make((0, 0), Kind::Directory);
    let dir = both.handles[&1];
    both.cluster.rmdir(Handle::ROOT, "a").unwrap();
    both.cluster.mkdir(Handle::ROOT, "a").unwrap();
    assert_eq!(both.cluster.attr(dir), Err(Status::Stale));
}
