//! Writes the lines of a group (operations committed together) to the audit log. Each management operation
//! has a line. A group that is refused because the connection's key gives no right to its operations has
//! one line.
//!
//! Management operations on a server's connection have lines too, unless they only read. Another program that
//! has the servers' key could send them.

use super::{Asker, Compound};
use crate::ops;
use shoal_proto::codec::{Codec, Reader};
use shoal_proto::{Op, Status};

impl Compound {
    /// The present group has ended so.
    pub(super) fn note_end(&mut self, status: Status) {
        self.note(|| status, false);
    }

    /// The present group is answered by the kept reply of its first run.
    pub(super) fn note_kept(&mut self, reply: &[u8]) {
        self.note(|| Status::decode(&mut Reader::new(reply)).unwrap_or(Status::Io), true);
    }

    fn note(&mut self, status: impl Fn() -> Status, is_again: bool) {
        let Asker { client, peer, own, .. } = self.asker;
        if !self.shard.audit.is_on() || own {
            return;
        }
        let is_noted = |op: &Op| match peer {
            Some(_) => op.is_management() && !ops::of(op).only_looks,
            None => op.is_management() || op.is_peers(),
        };
        // A refusal of a server here is no question of its key.
        let is_refused = !self.is_permitted;
        let has_line = if is_refused { peer.is_none() } else { self.ops().iter().any(is_noted) };
        if !has_line {
            return;
        }
        let line = self.running.waiters.borrow().first().map(|waiter| waiter.line.clone());
        let Some(line) = line else { return };
        let audit = &self.shard.audit;
        if is_refused {
            return audit.refused_operations(&self.shard, &line, client, self.ops(), status());
        }
        let noted = self.ops().iter().filter(|op| is_noted(op));
        let noted = noted
            .filter_map(|op| audit.managed(&self.shard, &line, self.asker, op, status(), is_again))
            .max();
        self.noted = self.noted.max(noted);
    }
}
