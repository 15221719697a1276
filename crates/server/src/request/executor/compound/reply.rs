//! The reply to a compound. It collects the replies of the groups (a *group* is a list of operations
//! committed together), the target of durability that the whole reply waits for, and the copy that is kept
//! for a retry.
//!
//! ```text
//!   end of a group ─▶ encoded reply ─┬─▶ collected: [group][group]…, bulk data beside them
//!                                    │               target of the reply: the latest target of its groups
//!                                    └─▶ kept by (session, slot, group), in the batch of the group's changes
//! ```
//! **Invariant: the reply of a group that changed something is never refused for its size**: replies of
//! groups that only read leave room for it.

use super::{Compound, Seen};
use crate::counters::add;
use crate::meta::keys;
use crate::meta::rows::{Kept, RowValue};
use crate::ops;
use crate::request::reply_gate::{self, Target};
use bytes::Bytes;
use shoal_env::Work;
use shoal_env::mutant::{self, Mutant};
use shoal_proto::codec::{Codec, Writer};
use shoal_proto::message::Loss;
use shoal_proto::{Answer, Blob, GroupReply, Status, limits};
use shoal_store::{Changes, Lsn, Needs, Strength, View};

/// Encoded answer of an operation that writes outside the batch, at most.
const WRITE_ANSWER_BYTES_MAX: usize = 128;

/// The answer to a compound as it is collected: groups already encoded, with bulk data apart.
#[derive(Default)]
pub struct Collected {
    /// Encoded [`GroupReply`]s.
    pub groups: Writer,
    /// How many.
    pub count: usize,
    /// Bulk data.
    pub bulk: Vec<Bytes>,
    bulk_bytes: usize,
    /// The target that the reply waits for.
    pub target: Target,
    /// The loss id of the changes, if they were made before a start of this server.
    pub loss: Option<Loss>,
    /// A kill of this server would lose the changes; or the reply says whether one did.
    pub with_start: bool,
    /// The newest change that was made.
    pub made: Lsn,
    /// A loss id is needed however durable that is: bytes are outside the records, or other replies are
    /// compared with this one.
    pub is_compared: bool,
}

impl Compound {
    /// The kept reply of the present group.
    pub(super) fn kept(&self) -> Result<Option<(Bytes, Option<Loss>, Seen)>, Needs> {
        let Some((session, slot_use)) = &self.place else { return Ok(None) };
        let key = keys::kept(session.id, slot_use.slot, self.at as u8);
        let excuse = |lsn| self.shard.deferred.of(lsn, self.asker.client);
        let mut view = View::new(&self.shard.collection, &self.loaded);
        if self.is_of_attributes() {
            view = view.excusing(&excuse);
        }
        let Ok(row) = view.get(&key) else { return Err(view.into_needs()) };
        let kept = row.and_then(|row| Kept::from_row(&row).ok());
        let seen = Seen::of(&view, Lsn(0));
        Ok(kept.filter(|k| k.sequence == slot_use.sequence).map(|k| (k.reply.0, k.loss, seen)))
    }

    /// Add the row that keeps this group's reply for a retry (and remove those of the slot's former compound
    /// that it does not overwrite).
    pub(crate) fn keep_reply(
        &mut self,
        changes: &mut Changes,
        answers: &[Answer],
        bulk: &[Bytes],
    ) -> Result<(), Status> {
        if self.place.is_none() {
            return Ok(());
        }
        if !bulk.is_empty() {
            return Err(Status::NotSupported);
        }
        let reply = encode_reply(Status::Ok, answers);
        if reply.len() > limits::KEPT_REPLY_BYTES_MAX {
            return Err(Status::OverLimit);
        }
        self.keep(changes, reply);
        Ok(())
    }

    /// Keep the failure of work that was done outside the batch: some of its bytes may be there, so a retry
    /// must not repeat it.
    pub(super) fn keep_failure(&mut self, status: Status, answers: &[Answer]) {
        let reply = encode_reply(status, answers);
        let mut changes = Changes { strength: Strength::Weak, ..Changes::default() };
        self.keep(&mut changes, reply);
        if changes.is_empty() {
            return;
        }
        // A store that takes no change any more answers nothing but that, until it is started again.
        if let Ok(lsn) = self.shard.collection.apply_over(changes, &self.loaded) {
            self.depend(Lsn(0), Some((lsn, Strength::Weak)));
        }
    }

    fn keep(&mut self, changes: &mut Changes, reply: Vec<u8>) {
        let Some((session, slot_use)) = &self.place else { return };
        let modes = reply_gate::modes_for(self.shard.collection.sync_modes(), self.durability);
        let with_start = reply_gate::is_lost_by_a_kill(modes, Some(changes.strength));
        // Bytes that were synced before this record are as durable as it is.
        let lies_beside = !self.facts.done.is_empty() && self.collected.is_compared;
        let loss = lies_beside.then(|| self.shard.loss(with_start));
        let kept = Kept { sequence: slot_use.sequence, reply: Blob(reply.into()), loss };
        changes.put(keys::kept(session.id, slot_use.slot, self.at as u8), kept.to_row());
        let groups = self.groups.len();
        if usize::from(self.kept_groups) > groups {
            for group in groups..usize::from(self.kept_groups) {
                changes.remove(keys::kept(session.id, slot_use.slot, group as u8));
            }
            session.trimmed(slot_use.slot, groups);
            self.kept_groups = 0;
        }
    }

    /// The target that the reply waits for.
    pub(crate) fn depend(&mut self, seen: Lsn, made: Option<(Lsn, Strength)>) {
        let modes = self.shard.collection.sync_modes();
        let seen = if mutant::is(Mutant::ReadEarly) { Lsn(0) } else { seen };
        let target = Target::of(modes, self.durability, seen, made);
        self.collected.target = self.collected.target.and(target);
        self.collected.with_start |= reply_gate::is_lost_by_a_kill(
            reply_gate::modes_for(modes, self.durability),
            made.map(|(_, strength)| strength),
        );
        self.collected.made = self.collected.made.max(made.map_or(Lsn(0), |(lsn, _)| lsn));
    }

    /// The reply shows the asker's own deferred changes, up to this one.
    pub(super) fn show_own(&mut self, own: Lsn) {
        let modes = reply_gate::modes_for(self.shard.collection.sync_modes(), self.durability);
        self.collected.target = self.collected.target.and(Target::of_deferred(modes, own));
    }

    /// The present group has ended.
    pub(crate) fn end_group(&mut self, result: Result<(), Status>, answers: Vec<Answer>, bulk: Vec<Bytes>) {
        self.note_end(result.err().unwrap_or(Status::Ok));
        let asks = self.ops().iter().any(|op| ops::of(op).makes_durable);
        self.collected.with_start |= asks;
        self.collected.is_compared |= asks || !self.changes();
        let bulk_bytes: usize = bulk.iter().map(Bytes::len).sum();
        let entries = |answer: &Answer| match answer {
            Answer::Entries { entries, .. } => entries.len() as u64,
            _ => 0,
        };
        self.shard.env.work(Work::Entry, answers.iter().map(entries).sum());
        let reply = encode_reply(result.err().unwrap_or(Status::Ok), &answers);
        // Room is kept for the replies of groups that change something: those are never refused after the
        // fact.
        let kept_room = (limits::KEPT_REPLY_BYTES_MAX + 8) * self.groups.len();
        let fits = (reply.len() <= limits::KEPT_REPLY_BYTES_MAX
            || self.collected.groups.len() + reply.len() + kept_room <= limits::BODY_BYTES_MAX - 64)
            && self.collected.bulk_bytes + bulk_bytes <= limits::BULK_BYTES_MAX;
        if fits {
            self.collected.bulk_bytes += bulk_bytes;
            self.collect(reply, bulk);
        } else {
            self.collect(encode_reply(Status::OverLimit, &[]), Vec::new());
        }
        add(&self.shard.counters.groups, 1);
        self.next_group();
    }

    pub(super) fn collect(&mut self, reply: Vec<u8>, bulk: Vec<Bytes>) {
        if self.collected.count == 0 {
            // The first, mostly the only one: its buffer is the one to collect in.
            self.collected.groups = Writer::from_vec(reply);
        } else {
            self.copied(reply.len());
            self.collected.groups.put_raw(&reply);
        }
        self.collected.count += 1;
        self.collected.bulk.extend(bulk);
    }
}

/// Whether the reply of a write after these answers can be kept.
pub(super) fn has_room_to_keep(before: &[Answer]) -> bool {
    before.is_empty()
        || encode_reply(Status::Ok, before).len() + WRITE_ANSWER_BYTES_MAX <= limits::KEPT_REPLY_BYTES_MAX
}

/// Encode a group's reply.
pub fn encode_reply(status: Status, answers: &[Answer]) -> Vec<u8> {
    let mut w = Writer::with_capacity(192);
    status.encode(&mut w);
    w.put_list(answers);
    w.into_vec()
}

/// Decode the replies of a compound (for those the server asked itself).
pub fn decode_replies(collected: &Collected) -> Vec<GroupReply> {
    let mut r = shoal_proto::codec::Reader::new(collected.groups.as_slice());
    (0..collected.count).map_while(|_| GroupReply::decode(&mut r).ok()).collect()
}
