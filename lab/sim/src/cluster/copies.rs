//! Older copies of servers' folders.

use super::{Cluster, Server};
use shoal_env::sim::{ProcessId, SpareDisk, World};

impl Cluster {
    /// Handles of all servers that there are now.
    pub(crate) fn servers(&self) -> Vec<Server> {
        self.present().cloned().collect()
    }

    /// A process on a machine of its own, for an operator of the cluster.
    pub(crate) fn operator(&self) -> ProcessId {
        let name = format!("operator-{}", self.operators.get());
        self.operators.set(self.operators.get() + 1);
        self.world.process(&name, self.world.machine(&name))
    }

    /// How often a server was refused with an older copy of its folder.
    pub(crate) fn older_refused(&self) -> u64 {
        self.servers.iter().map(|server| server.plan.older_refused.get()).sum()
    }
}

impl Server {
    /// Whether it serves now.
    pub fn serves(&self, world: &World) -> bool {
        self.plan.serving.get() && world.is_alive(self.process)
    }

    /// A copy of the durable contents of its disk, and the last position in its journal that may be in it;
    /// `None` while it does not serve.
    pub fn copy(&self, world: &World) -> Option<(SpareDisk, u64)> {
        let shard = self.plan.shard.borrow().upgrade().filter(|_| self.serves(world))?;
        Some((world.copy_disk(self.machine), shard.collection.applied().0))
    }

    /// From its next start on it has the folder of the spare disk; its own folder is kept there. It is
    /// stopped.
    pub fn exchange_copy(&self, world: &World, spare: &mut SpareDisk) {
        world.exchange_disk(self.machine, spare);
        self.plan.older.set(!self.plan.older.get());
    }

    /// Whether it has an older copy of its folder.
    pub fn is_older(&self) -> bool {
        self.plan.older.get()
    }
}
