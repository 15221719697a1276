//! Adds servers while the other servers serve.

use super::{Cluster, Server, address};
use shoal_proto::{ClusterMap, Roles, ServerId, ServerInfo, Text};
use shoal_store::SyncModes;
use std::cell::RefCell;
use std::rc::Rc;

/// The cluster file, as it grows. Clones are handles of the same.
#[derive(Clone)]
pub(crate) struct Growth(Rc<RefCell<ClusterMap>>);

impl Growth {
    pub(super) fn new(map: ClusterMap) -> Growth {
        Growth(Rc::new(RefCell::new(map)))
    }

    /// How many servers there are.
    pub fn count(&self) -> u16 {
        self.0.borrow().servers.len() as u16
    }

    /// Where a server is to listen.
    pub fn address(&self, id: u16) -> String {
        address(id, false).to_string()
    }

    /// The running file system has this server: from now on it is in the cluster file, which it has too. Its
    /// folder is made with the sync modes that the file system has.
    pub fn enter(&self, added: &Server, modes: SyncModes) {
        let mut map = self.0.borrow_mut();
        let id = added.id();
        map.servers.push(ServerInfo::new(ServerId(id), vec![Text(self.address(id))], Roles::all()));
        map.epoch += 1;
        added.plan.map.replace(map.clone());
        added.plan.sync_modes.set(SyncModes { coalescing: added.plan.sync_modes.get().coalescing, ..modes });
    }
}

impl Cluster {
    pub(super) fn present(&self) -> impl Iterator<Item = &Server> {
        self.servers.iter().take(usize::from(self.server_count()))
    }

    /// The cluster file.
    pub(crate) fn growth(&self) -> Growth {
        self.growth.clone()
    }

    /// The next server that is to be added.
    pub(crate) fn next_spare(&self) -> Option<Server> {
        let id = self.server_count() + self.taken.get();
        let spare = self.servers.get(usize::from(id))?;
        self.taken.set(self.taken.get() + 1);
        Some(spare.clone())
    }
}
