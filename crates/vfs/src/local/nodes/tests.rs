//! Tests of the nodes that stay known, and of the ways to find them.

use super::*;
use shoal_env::{HostFiles, real};
use std::path::PathBuf;
use std::sync::Arc;

/// A directory of the host, and its known objects.
struct Tree {
    room: tempfile::TempDir,
    host: Arc<dyn HostFiles>,
    nodes: Nodes,
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a name")
}

impl Tree {
    fn new(idle_max: usize, kept_max: usize) -> Tree {
        let room = tempfile::tempdir().expect("a directory");
        let host = real::run("nodes", |env| async move { env.host().expect("a real host") });
        let root = host.root(room.path()).expect("its node");
        let facts = host.facts(&root).expect("its facts");
        let nodes = Nodes::new(root, &facts, (idle_max, kept_max));
        Tree { room, host, nodes }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.room.path().join(path)
    }

    /// An object is made by another program, and seen in a known directory.
    fn make(&mut self, dir: Handle, path: &str, is_dir: bool) -> Handle {
        match is_dir {
            true => std::fs::create_dir(self.path(path)).expect("a directory"),
            false => std::fs::write(self.path(path), "").expect("a file"),
        }
        self.see(dir, path)
    }

    fn see(&mut self, dir: Handle, path: &str) -> Handle {
        let (parent, last) = path.rsplit_once('/').unwrap_or((".", path));
        let parent = self.host.root(&self.path(parent)).expect("its directory");
        let (node, facts) = self.host.lookup(&parent, last.as_bytes()).expect("it is there");
        self.nodes.saw(&facts, (dir, &name(last)), Some(node))
    }

    /// Whether an object is found, and is the right one.
    fn finds(&mut self, object: Handle) -> bool {
        let Some(way) = self.nodes.way(object) else { return false };
        let Ok((node, found)) = way.walk(&*self.host) else { return false };
        let facts = self.host.facts(&node).expect("its facts");
        self.nodes.found(found);
        self.nodes.handle_of(&facts) == Some(object)
    }

    fn descriptors(&self) -> usize {
        self.nodes.known.values().filter(|node| node.descriptor.is_some()).count() - 1
    }
}

#[test]
fn nodes_not_in_use_leave_in_the_order_of_their_last_use() {
    let mut tree = Tree::new(3, 100);
    let files: Vec<Handle> = (0..3).map(|n| tree.make(Handle::ROOT, &format!("f{n}"), false)).collect();
    assert!(tree.finds(files[0]), "it is used");
    let last = tree.make(Handle::ROOT, "last", false);
    let found: Vec<bool> = files.iter().map(|file| tree.finds(*file)).collect();
    assert_eq!(found, [true, false, true]);
    assert!(tree.finds(last) && tree.nodes.known.len() == 4 && tree.nodes.by_key.len() == 4);
}

#[test]
fn a_node_in_use_stays_with_all_directories_above_it() {
    let mut tree = Tree::new(1, 0);
    let mut dirs = Vec::new();
    let (mut at, mut path) = (Handle::ROOT, String::new());
    for n in 0..4usize {
        path = if n == 0 { "d0".to_owned() } else { format!("{path}/d{n}") };
        at = tree.make(at, &path, true);
        tree.nodes.referred(at);
        dirs.push(at);
        // The mount forgets a directory while it still refers to one in it.
        if let Some(former) = n.checked_sub(1) {
            tree.nodes.forgotten(dirs[former], 1);
        }
    }
    assert_eq!(tree.descriptors(), 0);
    assert!(dirs.iter().all(|dir| tree.finds(*dir)));
    tree.nodes.idle_max = 0;
    tree.nodes.forgotten(at, 1);
    assert_eq!(tree.nodes.known.len(), 1, "nothing but the root is in use");
    assert!(tree.nodes.by_key.len() == 1 && tree.nodes.idle.is_empty() && tree.nodes.kept.is_empty());
}

#[test]
fn descriptors_beyond_the_limit_are_closed_and_their_objects_found_by_name() {
    let mut tree = Tree::new(100, 2);
    let files: Vec<Handle> = (0..5).map(|n| tree.make(Handle::ROOT, &format!("f{n}"), false)).collect();
    for file in &files {
        assert!(tree.finds(*file));
        assert_eq!(tree.descriptors(), 2);
    }
    std::fs::remove_file(tree.path("f0")).expect("removed by another program");
    assert!(!tree.finds(files[0]));
    std::fs::rename(tree.path("f1"), tree.path("f0")).expect("moved by another program");
    assert!(!tree.finds(files[0]) && !tree.finds(files[1]));
    assert_eq!(tree.see(Handle::ROOT, "f0"), files[1]);
    assert!(tree.finds(files[1]));
}

#[test]
fn an_object_that_lost_its_name_is_held_as_long_as_it_is_in_use() {
    let mut tree = Tree::new(100, 0);
    let (kept, idle) = (tree.make(Handle::ROOT, "kept", false), tree.make(Handle::ROOT, "idle", false));
    tree.nodes.referred(kept);
    for (object, text) in [(kept, "kept"), (idle, "idle")] {
        let root = tree.host.root(tree.room.path()).expect("the root");
        let (node, _) = tree.host.lookup(&root, text.as_bytes()).expect("it is there");
        tree.host.unlink(&root, text.as_bytes()).expect("removed");
        tree.nodes.lost_name(object, (Handle::ROOT, &name(text)), node, true);
    }
    assert!(tree.finds(kept) && !tree.finds(idle));
    assert_eq!((tree.descriptors(), tree.nodes.known.len()), (1, 2));
    tree.nodes.forgotten(kept, 1);
    assert_eq!((tree.descriptors(), tree.nodes.known.len()), (0, 1));
}

#[test]
fn directories_that_seem_to_lie_in_each_other_are_not_searched_without_end() {
    let mut tree = Tree::new(100, 0);
    let a = tree.make(Handle::ROOT, "a", true);
    let b = tree.make(a, "a/b", true);
    // Another program turns them round between two calls.
    std::fs::rename(tree.path("a/b"), tree.path("b")).expect("moved");
    std::fs::rename(tree.path("a"), tree.path("b/a")).expect("moved");
    assert_eq!(tree.see(b, "b/a"), a);
    assert!(!tree.finds(a) && !tree.finds(b));
    assert_eq!(tree.see(Handle::ROOT, "b"), b);
    assert!(tree.finds(a) && tree.finds(b));
}

#[test]
fn references_are_counted_also_of_objects_that_are_not_known() {
    let mut tree = Tree::new(100, 100);
    let file = tree.make(Handle::ROOT, "f", false);
    tree.nodes.referred(file);
    tree.nodes.referred(Handle(7 << 40));
    assert_eq!(tree.nodes.references(), 2);
    tree.nodes.forgotten(file, 1);
    tree.nodes.forgotten(Handle(7 << 40), 1);
    assert_eq!(tree.nodes.references(), 0);
}
