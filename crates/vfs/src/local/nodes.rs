//! The known objects (*nodes*): their handles, and the data by which each is found again.
//!
//! A node has its identity, its newest known place (the handle of its directory, and its name there), and
//! perhaps a descriptor. It is **in use** while a kernel refers to it, while it is open, and while the place
//! of a known node is in it; so every known place leads up to the root. If there are too many nodes that are
//! not in use, those that were not used for the longest time are dropped. If there are too many descriptors,
//! those of nodes that can be found by their place are closed in the same order.
//!
//! **While a node is known, no other object gets its handle.** If the host uses an inode number again while
//! the former object's node is in use, that node keeps the handle (requests for it find that the object is
//! gone), and the new object gets another handle.

use super::way::{Found, Identity, Step, Way};
use lru::LruCache;
use shoal_env::{HostFacts, HostFile, HostNode};
use shoal_proto::{Handle, Name, Rights, limits};
use std::collections::{BTreeMap, HashMap};

/// The first handle that is no inode number.
const FIRST_OWN: u64 = 1 << 63;
/// Nodes kept that are not in use.
pub(super) const IDLE_MAX: usize = 64 * 1024;

struct Node {
    identity: Identity,
    is_dir: bool,
    place: Option<(Handle, Name)>,
    descriptor: Option<HostNode>,
    /// Answers of which a kernel has not forgotten the object yet.
    references: u64,
    /// Its open files, by number.
    files: BTreeMap<u64, (Rights, HostFile)>,
    /// Known nodes whose place is in it.
    children: u64,
}

impl Node {
    fn new(facts: &HostFacts) -> Node {
        let (place, descriptor, files) = (None, None, BTreeMap::new());
        let (identity, is_dir) = (Identity::of(facts), facts.is_dir());
        Node { identity, is_dir, place, descriptor, references: 0, files, children: 0 }
    }

    fn is_held(&self) -> bool {
        self.references > 0 || !self.files.is_empty()
    }

    fn is_in_use(&self) -> bool {
        self.is_held() || self.children > 0
    }

    fn at_hand(&self) -> Option<HostNode> {
        self.descriptor.clone().or_else(|| self.files.values().next().map(|(_, file)| file.node()))
    }
}

/// See the module.
pub(super) struct Nodes {
    known: BTreeMap<Handle, Node>,
    by_key: HashMap<(u64, u64), Handle>,
    root_dev: u64,
    next_own: u64,
    /// Answers that kernels have received and not forgotten, of all objects.
    references: i64,
    /// Those not in use; the last one used last.
    idle: LruCache<Handle, ()>,
    /// Those with descriptors that may be closed; the last one used last.
    kept: LruCache<Handle, ()>,
    idle_max: usize,
    kept_max: usize,
}

impl Nodes {
    pub(super) fn new(root: HostNode, facts: &HostFacts, (idle_max, kept_max): (usize, usize)) -> Nodes {
        let identity = Identity::of(facts);
        let node = Node { descriptor: Some(root), ..Node::new(facts) };
        Nodes {
            known: BTreeMap::from([(Handle::ROOT, node)]),
            by_key: HashMap::from([(identity.key(), Handle::ROOT)]),
            root_dev: facts.dev,
            next_own: FIRST_OWN,
            references: 0,
            idle: LruCache::unbounded(),
            kept: LruCache::unbounded(),
            idle_max,
            kept_max,
        }
    }

    /// How to get to an object, if it is known and can be found.
    pub(super) fn way(&mut self, object: Handle) -> Option<Way> {
        let (mut at, mut steps) = (object, Vec::new());
        loop {
            let node = self.known.get(&at)?;
            let _ = self.kept.get(&at);
            let _ = self.idle.get(&at);
            if let Some(from) = node.at_hand() {
                return Some(Way { from, steps });
            }
            let (parent, name) = node.place.clone()?;
            // Moves by other programs can leave two directories in each other.
            if steps.len() == limits::PATH_COMPONENTS_MAX {
                return None;
            }
            steps.push(Step { handle: at, name, identity: node.identity });
            at = parent;
        }
    }

    /// Objects were found on a way.
    pub(super) fn found(&mut self, found: Found) {
        for (handle, descriptor) in found {
            self.keep(handle, descriptor);
        }
    }

    /// An object was seen at a place. Its handle.
    pub(super) fn saw(
        &mut self,
        facts: &HostFacts,
        place: (Handle, &Name),
        descriptor: Option<HostNode>,
    ) -> Handle {
        let identity = Identity::of(facts);
        let handle = self.handle_of(facts).unwrap_or_else(|| self.add(facts));
        if let Some(node) = self.known.get_mut(&handle) {
            node.identity = identity;
        }
        self.move_to(handle, Some(place));
        if let Some(descriptor) = descriptor {
            self.keep(handle, descriptor);
        }
        self.settle(handle);
        handle
    }

    fn add(&mut self, facts: &HostFacts) -> Handle {
        let identity = Identity::of(facts);
        if let Some(former) = self.by_key.remove(&identity.key()) {
            self.drop_if_idle(former);
        }
        let handle = self.handle_for(&identity);
        self.known.insert(handle, Node::new(facts));
        self.by_key.insert(identity.key(), handle);
        handle
    }

    /// The handle of a known object of these facts. As long as there is a descriptor of it, its number is no
    /// other object's; a birth may change where the host copies a file before its first change (overlays).
    pub(super) fn handle_of(&self, facts: &HostFacts) -> Option<Handle> {
        let identity = Identity::of(facts);
        let handle = *self.by_key.get(&identity.key())?;
        let node = self.known.get(&handle)?;
        (node.identity == identity || node.at_hand().is_some()).then_some(handle)
    }

    /// The handle of the directory that holds an object, as last seen.
    pub(super) fn parent_of(&self, object: Handle) -> Option<Handle> {
        self.known.get(&object)?.place.as_ref().map(|(parent, _)| *parent)
    }

    fn handle_for(&mut self, identity: &Identity) -> Handle {
        let number = Handle(identity.ino);
        let is_usable = identity.dev == self.root_dev
            && (1..FIRST_OWN).contains(&identity.ino)
            && number != Handle::ROOT
            && !self.known.contains_key(&number);
        if is_usable {
            return number;
        }
        self.next_own += 1;
        Handle(self.next_own - 1)
    }

    fn keep(&mut self, handle: Handle, descriptor: HostNode) {
        if let Some(node) = self.known.get_mut(&handle)
            && handle != Handle::ROOT
        {
            node.descriptor = Some(descriptor);
            self.settle(handle);
        }
    }

    fn move_to(&mut self, handle: Handle, place: Option<(Handle, &Name)>) {
        if handle == Handle::ROOT {
            return;
        }
        let place = place.filter(|(dir, _)| self.known.contains_key(dir) && *dir != handle);
        let Some(node) = self.known.get_mut(&handle) else { return };
        let is_same = match (&node.place, place) {
            (Some((dir, name)), Some((new_dir, new_name))) => *dir == new_dir && name == new_name,
            (None, None) => true,
            _ => false,
        };
        if is_same {
            return;
        }
        let former = node.place.take().map(|(dir, _)| dir);
        node.place = place.map(|(dir, name)| (dir, name.clone()));
        if let Some((dir, _)) = place {
            self.count_child(dir, true);
        }
        if let Some(dir) = former {
            self.count_child(dir, false);
        }
    }

    fn count_child(&mut self, dir: Handle, is_new: bool) {
        if let Some(node) = self.known.get_mut(&dir) {
            node.children = if is_new { node.children + 1 } else { node.children.saturating_sub(1) };
            self.settle(dir);
        }
    }

    /// Put a node where its state says it belongs, as the one used last; more than are kept leave.
    fn settle(&mut self, handle: Handle) {
        if handle == Handle::ROOT {
            return;
        }
        let Some(node) = self.known.get(&handle) else { return };
        if node.is_in_use() {
            self.idle.pop(&handle);
        } else {
            self.idle.push(handle, ());
        }
        // Without a place its descriptor is the only way to it.
        if node.descriptor.is_some() && (node.place.is_some() || !node.is_held()) {
            self.kept.push(handle, ());
        } else {
            self.kept.pop(&handle);
        }
        while self.kept.len() > self.kept_max
            && let Some((oldest, ())) = self.kept.pop_lru()
        {
            self.let_go(oldest);
        }
        while self.idle.len() > self.idle_max
            && let Some((oldest, ())) = self.idle.pop_lru()
        {
            self.drop_if_idle(oldest);
        }
    }

    /// Close a node's descriptor. One without a place is not found any more.
    fn let_go(&mut self, handle: Handle) {
        let Some(node) = self.known.get_mut(&handle) else { return };
        node.descriptor = None;
        if node.place.is_none() {
            self.drop_if_idle(handle);
        }
    }

    fn drop_if_idle(&mut self, handle: Handle) {
        if handle == Handle::ROOT || self.known.get(&handle).is_none_or(Node::is_in_use) {
            return;
        }
        self.idle.pop(&handle);
        self.kept.pop(&handle);
        let Some(node) = self.known.remove(&handle) else { return };
        let key = node.identity.key();
        if self.by_key.get(&key) == Some(&handle) {
            self.by_key.remove(&key);
        }
        if let Some((dir, _)) = node.place {
            self.count_child(dir, false);
        }
    }

    /// A known object has this place now; others that were thought to be there are not.
    pub(super) fn moved(&mut self, handle: Handle, place: (Handle, &Name)) {
        self.move_to(handle, Some(place));
        self.settle(handle);
    }

    /// A known object lost the name of a place. One that is held, or has other names, stays by its
    /// descriptor.
    pub(super) fn lost_name(
        &mut self,
        handle: Handle,
        place: (Handle, &Name),
        descriptor: HostNode,
        is_last: bool,
    ) {
        let Some(node) = self.known.get_mut(&handle) else { return };
        if node.place.as_ref().is_some_and(|(dir, name)| (*dir, name) != place) {
            return;
        }
        node.descriptor = Some(descriptor);
        self.move_to(handle, None);
        self.settle(handle);
        if is_last {
            self.drop_if_idle(handle);
        }
    }

    /// A kernel received it once more.
    pub(super) fn referred(&mut self, handle: Handle) {
        self.references += 1;
        if let Some(node) = self.known.get_mut(&handle) {
            node.references += 1;
            self.settle(handle);
        }
    }

    /// A kernel has forgotten so many of its answers.
    pub(super) fn forgotten(&mut self, handle: Handle, answers: u64) {
        self.references = self.references.saturating_sub_unsigned(answers);
        let Some(node) = self.known.get_mut(&handle) else { return };
        node.references = node.references.saturating_sub(answers);
        let is_nowhere = node.place.is_none();
        self.settle(handle);
        if is_nowhere {
            self.drop_if_idle(handle);
        }
    }

    pub(super) fn references(&self) -> i64 {
        self.references
    }

    /// It was opened. The number of the file is new.
    pub(super) fn opened(
        &mut self,
        handle: Handle,
        facts: &HostFacts,
        number: u64,
        rights: Rights,
        file: HostFile,
    ) {
        let identity = Identity::of(facts);
        // It may have left meanwhile.
        let node = self.known.entry(handle).or_insert_with(|| Node::new(facts));
        node.files.insert(number, (rights, file));
        self.by_key.entry(identity.key()).or_insert(handle);
        self.settle(handle);
    }

    /// An open file of it was closed.
    pub(super) fn closed(&mut self, handle: Handle, number: u64) {
        let Some(node) = self.known.get_mut(&handle) else { return };
        node.files.remove(&number);
        let is_nowhere = node.place.is_none();
        self.settle(handle);
        if is_nowhere {
            self.drop_if_idle(handle);
        }
    }

    pub(super) fn has_open(&self, handle: Handle) -> bool {
        self.known.get(&handle).is_some_and(|node| !node.files.is_empty())
    }

    /// A file of it that is open for writing.
    pub(super) fn writer(&self, handle: Handle) -> Option<HostFile> {
        let mut files = self.known.get(&handle)?.files.values();
        files.find(|(rights, _)| rights.contains(Rights::WRITE)).map(|(_, file)| file.clone())
    }

    /// One known directory of each file system that is mounted below: the mount's own, mostly.
    pub(super) fn one_directory_per_mount(&self) -> Vec<Handle> {
        let mut by_dev = BTreeMap::new();
        for (handle, node) in self.known.iter().filter(|(_, node)| node.identity.dev != self.root_dev) {
            if node.is_dir {
                by_dev.entry(node.identity.dev).or_insert(*handle);
            }
        }
        by_dev.into_values().collect()
    }

    /// Forget all: their descriptors are closed.
    pub(super) fn clear(&mut self) {
        self.known.clear();
        self.by_key.clear();
        self.idle.clear();
        self.kept.clear();
    }
}

#[cfg(test)]
mod tests;
