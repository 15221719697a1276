//! The lines of a group in the audit log: of operations that manage, and of those that were refused because
//! the connection's key gives no right to them.

use super::{Asker, Compound};
use shoal_proto::{Op, Status};

impl Compound {
    /// The present group of a client has ended so.
    pub(super) fn note_end(&mut self, status: Status) {
        let Asker { client, peer, own, .. } = self.asker;
        let is_noted = |op: &Op| op.is_management() || op.is_peers();
        if !self.shard.audit.is_on() {
            return;
        }
        if peer.is_some() || own || (self.is_permitted && !self.ops().iter().any(is_noted)) {
            return;
        }
        let line = self.running.waiters.borrow().first().map(|waiter| waiter.line.clone());
        let Some(line) = line else { return };
        let audit = &self.shard.audit;
        if !self.is_permitted {
            return audit.refused_operations(&self.shard, &line, client, self.ops(), status);
        }
        let noted = self.ops().iter().filter(|op| is_noted(op));
        let noted = noted.filter_map(|op| audit.managed(&self.shard, &line, client, op, status)).max();
        self.noted = self.noted.max(noted);
    }
}
