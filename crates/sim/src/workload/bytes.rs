//! Bytes written: ranges and patterns, over the borders of strips; appends; sizes; holes; and all of it made durable.

use super::{End, Held, OPEN_MAX, Worker};
use crate::contents::{Act, Length, filled};
use crate::ledger::{Object, ObjectId};
use bytes::Bytes;
use shoal_pattern::Pattern;
use shoal_proto::{Allocation, Kind, Rights, Roles, Status};

const GONE: [Status; 2] = [Status::Stale, Status::NotFound];
/// Places to begin at, near to where something changes: sectors, eager messages, strips.
const PLACES: [u64; 9] = [0, 100, 1000, 4_000, 16_380, 65_500, 65_536, 131_000, 196_000];
/// Lengths of records: tiny and odd ones, whole blocks, those that are no longer eager, more than a strip.
const LENGTHS: [u64; 10] = [1, 47, 512, 1_500, 4_096, 9_001, 16_384, 20_000, 47_008, 90_000];
/// No file becomes longer.
const FILE_MAX: u64 = 500_000;

impl Worker {
    /// A file to write to: an own one, one held open, or a shared one.
    pub(super) fn target(&mut self, shared: bool) -> Option<ObjectId> {
        let records = self.shared.scene.records.clone();
        match self.rng.below(5) {
            0..2 if shared => self.rng.pick(&records).copied(),
            2 => {
                let held: Vec<ObjectId> = self.held.iter().map(|held| held.object).collect();
                let held: Vec<ObjectId> = held.into_iter().filter(|object| self.is_own(*object)).collect();
                self.rng.pick(&held).copied()
            }
            _ => self.own(is_own_file).map(|(_, object)| object),
        }
    }

    fn is_own(&self, object: ObjectId) -> bool {
        let shared = &self.shared.scene;
        !shared.records.contains(&object) && !shared.logs.contains(&object)
    }

    /// Hold the file open: as it is open already, or anew.
    pub(super) async fn opened(&mut self, object: ObjectId) -> Option<usize> {
        let known = self.held.iter().position(|held| held.object == object);
        if let Some(at) = known.filter(|_| self.rng.below(4) > 0) {
            return Some(at);
        }
        self.open_anew(object).await
    }

    /// Open the file once more.
    pub(super) async fn open_anew(&mut self, object: ObjectId) -> Option<usize> {
        let known = self.held.iter().position(|held| held.object == object);
        let handle = self.handle(object);
        let cuts = self.shared.cuts.get();
        let words = format!("open {handle}");
        let client = self.client.clone();
        let opening = client.open(handle, Rights::READ | Rights::WRITE);
        let file = match self.run("open", &words, &GONE, opening).await {
            End::Done(file) => file,
            // One without a name is opened anew only while its holder's session lasts.
            End::Refused(status) if known.is_none() => {
                self.wrong(&words, status);
                return None;
            }
            End::Refused(_) | End::Unknown(_) => return None,
        };
        if self.held.len() >= OPEN_MAX {
            let at = self.rng.below(self.held.len() as u64) as usize;
            let held = self.held.swap_remove(at);
            self.let_go(held).await;
        }
        self.shared.opens.set(self.shared.opens.get() + 1);
        // A loss of before, which nobody was told of yet, is told through this one too; also one of what was written when the
        // file was made.
        let written = self.with_contents(object, |contents| contents.first_cuts_of(self.id));
        let cuts = *self.settled.entry(object).or_insert(written.map_or(cuts, |first| first.min(cuts)));
        self.held.push(Held { object, file, open: self.shared.opens.get(), cuts });
        Some(self.held.len() - 1)
    }

    pub(super) async fn let_go(&self, held: Held) {
        let words = format!("close {}", held.file.handle());
        drop(self.run("close", &words, &[], held.file.close()).await);
    }

    pub(super) fn act(&mut self, kind: &'static str) -> Act {
        let (called, cuts, tag) = (self.now(), self.shared.cuts.get(), self.rng.next_u64() | 1);
        Act { kind, client: self.id, scope: self.scope, called, cuts, tag, base: Some(0), ..Act::default() }
    }

    /// Do what is noted to a file's bytes.
    pub(super) async fn alter(
        &self,
        kind: &'static str,
        object: ObjectId,
        act: usize,
        operation: impl Future<Output = Result<(), shoal_client::Error>>,
    ) {
        let words = format!("{kind} of {}", self.handle(object));
        match self.run(kind, &words, &GONE, operation).await {
            End::Done(()) => self.with_contents(object, |contents| contents.done(act, self.now())),
            End::Refused(status) => {
                // A write of many messages may have been done in part before the disk was full.
                if status != Status::NoSpace {
                    self.wrong(&words, status);
                }
            }
            End::Unknown(_) => {}
        }
    }

    pub(super) async fn write(&mut self) {
        let Some(object) = self.target(true) else { return };
        let Some(at) = self.opened(object).await else { return };
        self.write_held(at).await;
    }

    /// Write through this open file.
    pub(super) async fn write_held(&mut self, at: usize) {
        let (object, file) = (self.held[at].object, self.held[at].file.clone());
        let from = PLACES[self.rng.below(9) as usize] + self.rng.below(300);
        let len = LENGTHS[self.rng.below(10) as usize];
        let pattern = if self.rng.below(4) == 0 {
            let (rec_size, quantity) = (1 + len % 5_000, 2 + self.rng.below(6));
            let stride = rec_size + self.rng.below(30_000);
            Pattern::strided(from as i64, rec_size, stride as i64, quantity)
        } else {
            Pattern::contiguous(from as i64, len)
        };
        let pattern = pattern.expect("the workload's patterns are valid");
        let mut act = self.act("write");
        let mut data = Vec::with_capacity(pattern.len() as usize);
        for region in pattern.regions() {
            let from = region.offset.unsigned_abs();
            data.extend(filled(act.tag, from, region.len as usize));
            act.ranges.push(from..from + region.len);
        }
        let end = act.ranges.iter().map(|range| range.end).max().unwrap_or(0);
        act.length = Length::Reaches(end);
        let act = self.with_contents(object, |contents| contents.begin(act));
        self.alter("write", object, act, file.write_pattern(&pattern, data.into())).await;
    }

    pub(super) async fn append(&mut self) {
        let logs = self.shared.scene.logs.clone();
        let object = if self.rng.below(2) == 0 { self.rng.pick(&logs).copied() } else { self.target(true) };
        let Some(object) = object else { return };
        let Some(at) = self.opened(object).await else { return };
        let file = self.held[at].file.clone();
        let len = LENGTHS[self.rng.below(9) as usize];
        if self.with_contents(object, |contents| contents.reach()) + len > FILE_MAX {
            return;
        }
        let mut act = self.act("append");
        (act.base, act.len) = (None, len);
        let data = Bytes::from(filled(act.tag, 0, len as usize));
        let act = self.with_contents(object, |contents| contents.begin(act));
        let words = format!("append of {len} bytes to {}", file.handle());
        let kills = self.shared.kills.get();
        match self.run("append", &words, &GONE, file.append(data)).await {
            End::Done(offset) => {
                let (now, cuts) = (self.now(), self.shared.cuts.get());
                self.env.note(|| format!("{words} at {offset}"));
                let twice = kills != self.shared.kills.get() && self.may_be_twice(object, offset, len);
                let placed = self.with_contents(object, |c| c.appended(act, offset, now, cuts, twice));
                if let Err(wrong) = placed {
                    self.violation(&words, wrong);
                }
            }
            End::Refused(Status::NoSpace) | End::Unknown(_) => {}
            End::Refused(status) => self.wrong(&words, status),
        }
    }

    /// Whether a kill of a server under way may have an append done twice (SEMANTICS §4).
    fn may_be_twice(&self, object: ObjectId, offset: u64, len: u64) -> bool {
        let map = self.client.map();
        let server = self.handle(object).server();
        let holds_data = map.with_roles(Roles::DATA).any(|holder| holder == server);
        let reach = self.with_contents(object, |contents| contents.reach()).max(offset + len);
        is_done_beside_its_record(map.switches.stuffing && holds_data, map.template.stuffed_max(), reach)
    }

    pub(super) async fn truncate(&mut self) {
        let Some(object) = self.target(true) else { return };
        let size = match self.rng.below(4) {
            0 => 0,
            _ => PLACES[self.rng.below(9) as usize] + self.rng.below(300),
        };
        let mut act = self.act("truncate");
        (act.tag, act.length, act.durable) = (0, Length::Becomes(size), true);
        let act = self.with_contents(object, |contents| contents.begin(act));
        let client = self.client.clone();
        let handle = self.handle(object);
        let truncate = async { client.truncate(handle, size, false).await.map(drop) };
        self.alter("truncate", object, act, truncate).await;
    }

    pub(super) async fn allocate(&mut self) {
        let Some(object) = self.target(true) else { return };
        let Some(at) = self.opened(object).await else { return };
        let file = self.held[at].file.clone();
        let from = PLACES[self.rng.below(9) as usize] + self.rng.below(300);
        let len = LENGTHS[self.rng.below(9) as usize];
        let modes = [Allocation::Extend, Allocation::KeepSize, Allocation::Punch, Allocation::Zero];
        let mode = *self.rng.pick(&modes).unwrap_or(&Allocation::ZeroKeepSize);
        let mut act = self.act("allocate");
        act.tag = 0;
        if matches!(mode, Allocation::Extend | Allocation::Zero) {
            act.length = Length::Reaches(from + len);
        }
        if matches!(mode, Allocation::Punch | Allocation::Zero | Allocation::ZeroKeepSize) {
            act.ranges = std::iter::once(from..from + len).collect();
        }
        let act = self.with_contents(object, |contents| contents.begin(act));
        self.alter("allocate", object, act, file.allocate(from, len, mode)).await;
    }

    /// What was written through an open file is durable, or the sync says that it is not.
    pub(super) async fn sync(&mut self) {
        if self.rng.below(8) == 0 {
            return self.sync_directory().await;
        }
        if !self.held.is_empty() {
            let at = self.rng.below(self.held.len() as u64) as usize;
            self.sync_held(at).await;
        }
    }

    async fn sync_directory(&mut self) {
        let dir = self.directory();
        let client = self.client.clone();
        let words = format!("fsync of directory {dir}");
        if let End::Refused(status) = self.run("fsyncdir", &words, &GONE, client.fsync_directory(dir)).await {
            self.wrong(&words, status);
        }
    }
}

fn is_own_file(object: &Object) -> bool {
    object.kind == Kind::File && !object.is_public
}

/// Whether the bytes of an append to a file that reaches so far are, or may be, elsewhere than in the record with its answer:
/// what counts is the file, not the append. One that begins laid out is so however short it is, and what has more than a
/// small stream may have lies in files.
fn is_done_beside_its_record(begins_stuffed: bool, stuffed_max: u64, reach: u64) -> bool {
    const SMALL_MAX: u64 = 16 << 10;
    !begins_stuffed || reach > stuffed_max.min(SMALL_MAX)
}

#[cfg(test)]
mod tests {
    use super::is_done_beside_its_record;

    #[test]
    fn an_append_may_be_done_twice_when_its_file_is_laid_out_or_lies_in_a_file_however_short_it_is() {
        let strip = 64 << 10;
        assert!(!is_done_beside_its_record(true, strip, 9001), "in its record");
        assert!(!is_done_beside_its_record(true, strip, 16 << 10), "the last that is");
        assert!(is_done_beside_its_record(true, strip, 2 * 9001), "a short one behind what is in a file");
        assert!(is_done_beside_its_record(true, 4096, 9001), "laid out since it outgrew its strip");
        assert!(is_done_beside_its_record(false, strip, 560), "laid out from its start");
    }
}
