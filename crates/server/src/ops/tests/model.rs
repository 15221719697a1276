//! A naive namespace: nodes in a vector, names in maps, POSIX's rules written down as directly as can be.

use shoal_proto::{Kind, Status};
use std::collections::BTreeMap;

pub type Node = usize;
pub const ROOT: Node = 0;

pub struct Object {
    pub kind: Kind,
    pub names: u32,
    pub entries: BTreeMap<String, Node>,
    pub parent: Node,
    pub held: bool,
}

#[derive(Default)]
pub struct Model {
    pub objects: BTreeMap<Node, Object>,
    next: Node,
}

type Done<T> = Result<T, Status>;

impl Model {
    pub fn new() -> Model {
        let mut model = Model::default();
        model.object(Kind::Directory, ROOT);
        model
    }

    fn object(&mut self, kind: Kind, parent: Node) -> Node {
        let node = self.next;
        self.next += 1;
        let object = Object { kind, names: 1, entries: BTreeMap::new(), parent, held: false };
        self.objects.insert(node, object);
        node
    }

    pub fn is_dir(&self, node: Node) -> bool {
        self.objects[&node].kind == Kind::Directory
    }

    pub fn dirs(&self) -> Vec<Node> {
        self.objects.keys().copied().filter(|&node| self.is_dir(node)).collect()
    }

    /// Links as `stat` shows them.
    pub fn nlink(&self, node: Node) -> u32 {
        let object = &self.objects[&node];
        match object.kind {
            Kind::Directory => 2 + object.entries.values().filter(|&&e| self.is_dir(e)).count() as u32,
            _ => object.names,
        }
    }

    pub fn find(&self, dir: Node, name: &str) -> Done<Node> {
        self.objects[&dir].entries.get(name).copied().ok_or(Status::NotFound)
    }

    fn enter(&mut self, dir: Node, name: &str, node: Node) {
        self.objects.get_mut(&dir).unwrap().entries.insert(name.into(), node);
    }

    fn leave(&mut self, dir: Node, name: &str) {
        self.objects.get_mut(&dir).unwrap().entries.remove(name);
    }

    fn lose_name(&mut self, node: Node, held: bool) {
        let object = self.objects.get_mut(&node).unwrap();
        object.names -= 1;
        object.held = held;
        if object.names == 0 && !held {
            self.objects.remove(&node);
        }
    }

    pub fn make(&mut self, dir: Node, name: &str, kind: Kind) -> Done<Node> {
        if self.find(dir, name).is_ok() {
            return Err(Status::Exists);
        }
        let node = self.object(kind, dir);
        self.enter(dir, name, node);
        Ok(node)
    }

    pub fn unlink(&mut self, dir: Node, name: &str, held: bool) -> Done<()> {
        let node = self.find(dir, name)?;
        if self.is_dir(node) {
            return Err(Status::IsDirectory);
        }
        self.leave(dir, name);
        self.lose_name(node, held);
        Ok(())
    }

    pub fn rmdir(&mut self, dir: Node, name: &str) -> Done<()> {
        let node = self.find(dir, name)?;
        if !self.is_dir(node) {
            return Err(Status::NotDirectory);
        }
        if !self.objects[&node].entries.is_empty() {
            return Err(Status::NotEmpty);
        }
        self.leave(dir, name);
        self.objects.remove(&node);
        Ok(())
    }

    pub fn link(&mut self, node: Node, dir: Node, name: &str) -> Done<()> {
        if self.find(dir, name).is_ok() {
            return Err(Status::Exists);
        }
        if self.is_dir(node) {
            return Err(Status::NotPermitted);
        }
        self.objects.get_mut(&node).unwrap().names += 1;
        self.enter(dir, name, node);
        Ok(())
    }

    fn lies_in(&self, mut node: Node, ancestor: Node) -> bool {
        while node != ancestor && node != ROOT {
            node = self.objects[&node].parent;
        }
        node == ancestor
    }

    pub fn rename(&mut self, from: (Node, &str), to: (Node, &str), how: How) -> Done<()> {
        let moved = self.find(from.0, from.1)?;
        let found = self.find(to.0, to.1).ok();
        if how == How::Exchange && found.is_none() {
            return Err(Status::NotFound);
        }
        if how == How::NoReplace && found.is_some() {
            return Err(Status::Exists);
        }
        if found == Some(moved) {
            return Ok(());
        }
        if self.is_dir(moved) && self.lies_in(to.0, moved) {
            return Err(Status::Invalid);
        }
        if let (How::Exchange, Some(found)) = (how, found) {
            if self.is_dir(found) && self.lies_in(from.0, found) {
                return Err(Status::Invalid);
            }
            self.enter(from.0, from.1, found);
            self.objects.get_mut(&found).unwrap().parent = from.0;
        } else {
            if let Some(found) = found {
                match (self.is_dir(moved), self.is_dir(found)) {
                    (true, false) => return Err(Status::NotDirectory),
                    (false, true) => return Err(Status::IsDirectory),
                    (true, true) => self.rmdir(to.0, to.1)?,
                    (false, false) => self.unlink(to.0, to.1, how == How::Held)?,
                }
            }
            self.leave(from.0, from.1);
        }
        self.enter(to.0, to.1, moved);
        self.objects.get_mut(&moved).unwrap().parent = to.0;
        Ok(())
    }

    pub fn orphans(&self) -> Vec<Node> {
        self.objects.iter().filter(|(_, o)| o.names == 0).map(|(&node, _)| node).collect()
    }
}

/// How to rename.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    Plain,
    /// And the client holds everything open.
    Held,
    NoReplace,
    Exchange,
}
