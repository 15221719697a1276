//! Operations that change bytes: writes of ranges and patterns over the borders of strips, appends, changes
//! of size, holes, and syncs.

use super::descriptors::is_loss;
use super::{End, LANE, LANES_MAX, OPEN_MAX, Opened, Worker};
use crate::contents::{Act, Length, Syncer, filled};
use crate::ledger::{KnownObject, ObjectId};
use crate::losses::Held;
use bytes::Bytes;
use shoal_client::OpenFile;
use shoal_pattern::Pattern;
use shoal_proto::{Allocation, Durability, Kind, Rights, Status};

const GONE: [Status; 2] = [Status::Stale, Status::NotFound];
/// Places to begin at, near to where something changes: sectors, eager messages, strips.
const PLACES: [u64; 9] = [0, 100, 1000, 4_000, 16_380, 65_500, 65_536, 131_000, 196_000];
/// Lengths of records: tiny and odd ones, whole blocks, those that are no longer eager, more than a strip.
const LENGTHS: [u64; 10] = [1, 47, 512, 1_500, 4_096, 9_001, 16_384, 20_000, 47_008, 90_000];
/// No file becomes longer.
pub(super) const FILE_MAX: u64 = 500_000;

/// An append that is noted and not requested yet.
pub(super) struct Append {
    object: ObjectId,
    file: OpenFile,
    /// As of the open file.
    by: Syncer,
    act: usize,
    asks: Durability,
    data: Bytes,
}

impl Worker {
    /// A file to write to: an own one, one held open, or a shared one.
    pub(super) fn target(&mut self, shared: bool) -> Option<ObjectId> {
        let records = self.shared.scene.records_of(self.is_of_forks());
        match self.rng.below(5) {
            0..2 if shared => self.rng.pick(&records).copied(),
            3 => self.neighbours(),
            2 => {
                let held: Vec<ObjectId> = self.held.iter().map(|held| held.object).collect();
                let held: Vec<ObjectId> = held.into_iter().filter(|object| self.is_own(*object)).collect();
                self.rng.pick(&held).copied()
            }
            _ => self.own(is_own_file).map(|(_, object)| object),
        }
    }

    /// A file of another lane of this client.
    fn neighbours(&mut self) -> Option<ObjectId> {
        let ledger = self.shared.ledger.borrow();
        let lanes = (0..LANES_MAX).map(|lane| self.client_number() + lane * LANE);
        let mut files: Vec<ObjectId> = lanes
            .filter(|lane| *lane != self.id)
            .flat_map(|lane| ledger.live(lane))
            .map(|(_, object)| object)
            .filter(|object| ledger.objects[*object].handle != 0 && is_own_file(&ledger.objects[*object]))
            .collect();
        files.dedup();
        self.rng.pick(&files).copied()
    }

    fn is_own(&self, object: ObjectId) -> bool {
        !self.shared.scene.is_shared(object)
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
        let (handle, open, asks) = (self.handle(object), self.now(), self.asks);
        let words = format!("open {handle}");
        let client = self.client.clone();
        self.count_open(object, true);
        let opening = client.open(handle, Rights::READ | Rights::WRITE);
        let file = match self.run("open", &words, &GONE, opening).await {
            End::Done(file) => file,
            End::Refused(status) => {
                self.count_open(object, false);
                // One without a name is opened anew only while its holder's session lasts.
                if known.is_none() {
                    self.wrong_if_named(&words, object, status);
                }
                return None;
            }
            End::Unknown(_) => {
                self.count_open(object, false);
                return None;
            }
        };
        if self.held.len() >= OPEN_MAX {
            let at = self.rng.below(self.held.len() as u64) as usize;
            let held = self.held.swap_remove(at);
            self.let_go(held).await;
        }
        let opened = self.now();
        self.held.push(Opened { object, file, open, opened, asks });
        Some(self.held.len() - 1)
    }

    /// An open file more of an object in this client, or one less.
    fn count_open(&self, object: ObjectId, is_more: bool) {
        let (mut opens, now) = (self.shared.opens.borrow_mut(), self.now());
        let (count, since) = opens.entry((self.client_number(), object)).or_default();
        *since = if *count == 0 { now } else { *since };
        *count = if is_more { *count + 1 } else { *count - 1 };
    }

    /// Whether any lane of the client has a file open.
    pub(super) fn is_open_here(&self, object: ObjectId) -> bool {
        self.shared.opens.borrow().get(&(self.client_number(), object)).is_some_and(|(count, _)| *count > 0)
    }

    pub(super) async fn let_go(&self, held: Opened) -> bool {
        let words = format!("close {}", held.file.handle());
        let end = self.run("close", &words, &[], held.file.close()).await;
        self.count_open(held.object, false);
        let (now, closed) = (self.now(), (self.scope, held.object));
        self.shared.closed.borrow_mut().insert(closed, now);
        matches!(end, End::Done(()))
    }

    /// An act on bytes is about to be done by a client that requests this.
    pub(super) fn act(&mut self, kind: &'static str, asks: Durability) -> Act {
        let (called, stamp, tag) = (self.now(), self.shared.now(), self.rng.next_u64() | 1);
        let held = if kind == "append" { self.held_append(asks) } else { self.held_data(asks) };
        let (client, scope) = (self.id, self.scope);
        let noted = self.told_lost(kind, asks);
        Act { kind, client, scope, called, stamp, held, noted, tag, base: Some(0), ..Act::default() }
    }

    /// The changes with this request that an fsync may take for lost.
    pub(super) fn told_lost(&self, kind: &str, asks: Durability) -> Held {
        let weakest = |asks| self.held_data(asks).min(self.held_metadata_of(asks)).min(Held::Kernel);
        match asks {
            // Before an append the client notes the possible losses of other servers, as the modes say.
            _ if kind == "append" => weakest(asks).min(weakest(Durability::Usual)),
            Durability::Durable => Held::Disk,
            _ => weakest(asks),
        }
    }

    /// The faults that take an append with this request: over several servers it is durable or as the modes
    /// say.
    fn held_append(&self, asks: Durability) -> Held {
        match asks {
            Durability::Durable => Held::Disk,
            _ => self.held_data(asks).min(self.held_data(Durability::Usual)),
        }
    }

    /// Do the noted act to a file's bytes.
    pub(super) async fn alter(
        &self,
        kind: &'static str,
        object: ObjectId,
        act: usize,
        held: impl Fn() -> Held,
        operation: impl Future<Output = Result<(), shoal_client::Error>>,
    ) -> bool {
        let words = format!("{kind} of {}", self.handle(object));
        match self.run(kind, &words, &GONE, operation).await {
            End::Done(()) => {
                self.with_contents(object, |contents| contents.done(act, self.now(), held()));
                return true;
            }
            End::Refused(status) => {
                // A write of many messages may have been done in part before the disk was full.
                if status == Status::NoSpace {
                    self.with_contents(object, |contents| contents.is_held(act, held()));
                } else {
                    self.wrong_if_mine(&words, object, status);
                }
            }
            End::Unknown(_) => self.with_contents(object, |contents| contents.is_held(act, held())),
        }
        false
    }

    /// A refusal that cannot be: a file that this client alone removes and holds open is there until its last
    /// close.
    pub(super) fn wrong_if_mine(&self, words: &str, object: ObjectId, status: Status) {
        if !self.with_object(object, |object| object.is_public) {
            self.wrong_of(words, object, status);
        }
    }

    pub(super) async fn write(&mut self) {
        let Some(object) = self.target(true) else { return };
        let Some(at) = self.opened(object).await else { return };
        self.write_held(at).await;
    }

    /// Write through this open file.
    pub(super) async fn write_held(&mut self, at: usize) {
        let Opened { object, ref file, asks, .. } = self.held[at];
        let file = file.clone();
        let from = PLACES[self.rng.below(9) as usize] + self.rng.below(300);
        let len = LENGTHS[self.rng.below(10) as usize];
        let pattern = if self.rng.below(4) == 0 {
            let (rec_size, quantity) = (1 + len % 5_000, 2 + self.rng.below(6));
            let gap = self.rng.below(30_000);
            // Tiny records lie close together, many of them in a block.
            let (quantity, gap) = if rec_size < 64 { (quantity * 24, gap % 200) } else { (quantity, gap) };
            Pattern::strided(from as i64, rec_size, (rec_size + gap) as i64, quantity)
        } else {
            Pattern::contiguous(from as i64, len)
        };
        let pattern = pattern.expect("the workload's patterns are valid");
        let mut act = self.act("write", asks);
        let mut data = Vec::with_capacity(pattern.len() as usize);
        for region in pattern.regions() {
            let from = region.offset.unsigned_abs();
            data.extend(filled(act.tag, from, region.len as usize));
            act.ranges.push(from..from + region.len);
        }
        let end = act.ranges.iter().map(|range| range.end).max().unwrap_or(0);
        act.length = Length::Reaches(end);
        let act = self.with_contents(object, |contents| contents.begin(act));
        let held = || self.held_data(asks);
        self.alter("write", object, act, held, file.write_pattern(&pattern, data.into())).await;
    }

    pub(super) async fn append(&mut self) {
        let logs = self.shared.scene.logs_of(self.is_of_forks());
        let object = if self.rng.below(2) == 0 { self.rng.pick(&logs).copied() } else { self.target(true) };
        let Some(object) = object else { return };
        let Some(at) = self.opened(object).await else { return };
        let Some(append) = self.draw_append(at) else { return };
        self.append_as(append).await;
    }

    /// An append to an open file; none, if that is long.
    pub(super) fn draw_append(&mut self, at: usize) -> Option<Append> {
        let Opened { object, ref file, open, opened, asks } = self.held[at];
        let (file, by) = (file.clone(), Syncer { scope: self.scope, open, opened });
        let len = LENGTHS[self.rng.below(9) as usize];
        if self.with_contents(object, |contents| contents.reach()) + len > FILE_MAX {
            return None;
        }
        let mut act = self.act("append", asks);
        (act.base, act.len) = (None, len);
        let data = Bytes::from(filled(act.tag, 0, len as usize));
        let act = self.with_contents(object, |contents| contents.begin(act));
        Some(Append { object, file, by, act, asks, data })
    }

    /// Do it.
    pub(super) async fn append_as(&self, append: Append) {
        let Append { object, file, by, act, asks, data } = append;
        let called = self.now();
        let len = data.len() as u64;
        let words = format!("append of {len} bytes to {}", file.handle());
        let before = self.shared.now();
        match self.run("append", &words, &GONE, file.append(data)).await {
            End::Done(offset) => {
                let (now, stamp, held) = (self.now(), self.shared.now(), self.held_append(asks));
                self.env.note(|| format!("{words} at {offset}"));
                let was_killed = self.with_contents(object, |contents| contents.was_killed(&before, &stamp));
                let twice = was_killed && self.may_be_twice(object, offset, len);
                let end = (now, &stamp, held);
                let placed = self.with_contents(object, |c| c.appended(act, offset, end, twice));
                if let Err(wrong) = placed {
                    self.violation(&words, wrong);
                }
            }
            End::Unknown(error) => {
                self.with_contents(object, |contents| contents.is_held(act, self.held_append(asks)));
                let (stamp, reach) = (self.shared.now(), self.with_contents(object, |c| c.reach()));
                let was_killed = self.with_contents(object, |contents| contents.was_killed(&before, &stamp));
                if was_killed && self.may_be_twice(object, reach, len) {
                    self.with_contents(object, |contents| contents.may_be_twice(act));
                }
                // A durable one ends with an fsync, which covers the append itself; that is not acknowledged.
                if is_loss(&error) {
                    self.told_of_loss(&words, object, by, called);
                }
            }
            End::Refused(Status::NoSpace) => {}
            End::Refused(status) => self.wrong_if_mine(&words, object, status),
        }
    }

    /// Whether a kill of a server under way may have an append done twice (SEMANTICS §4).
    fn may_be_twice(&self, object: ObjectId, offset: u64, len: u64) -> bool {
        let stuffed = self.stuffed(self.handle(object));
        let reach = self.with_contents(object, |contents| contents.reach()).max(offset + len);
        is_done_beside_its_record(stuffed > 0, stuffed, reach)
    }

    pub(super) async fn truncate(&mut self) {
        let Some(object) = self.target(true) else { return };
        let size = match self.rng.below(4) {
            0 => 0,
            _ => PLACES[self.rng.below(9) as usize] + self.rng.below(300),
        };
        let act = self.draw_truncation(object, size);
        self.truncate_as(object, act, size).await;
    }

    /// A truncation is about to be requested. It is a change of metadata.
    pub(super) fn draw_truncation(&mut self, object: ObjectId, size: u64) -> usize {
        let mut act = self.act("truncate", self.asks);
        (act.tag, act.length, act.held) = (0, Length::Becomes(size), self.held_metadata());
        self.with_contents(object, |contents| contents.begin(act))
    }

    /// Do it.
    pub(super) async fn truncate_as(&self, object: ObjectId, act: usize, size: u64) {
        let client = self.client.clone();
        let handle = self.handle(object);
        let truncate = async { client.truncate(handle, size, false).await.map(drop) };
        let words = format!("truncate of {handle} to {size}");
        match self.run("truncate", &words, &GONE, truncate).await {
            End::Done(()) => {
                let held = self.held_metadata();
                self.with_contents(object, |contents| contents.done(act, self.now(), held));
            }
            End::Refused(Status::NoSpace) | End::Unknown(_) => {
                self.with_contents(object, |contents| contents.is_held(act, self.held_metadata()));
            }
            End::Refused(status) => self.wrong_if_named(&words, object, status),
        }
    }

    pub(super) async fn allocate(&mut self) {
        let Some(object) = self.target(true) else { return };
        let Some(at) = self.opened(object).await else { return };
        let Opened { ref file, asks, .. } = self.held[at];
        let file = file.clone();
        let from = PLACES[self.rng.below(9) as usize] + self.rng.below(300);
        let len = LENGTHS[self.rng.below(9) as usize];
        let modes = [Allocation::Extend, Allocation::KeepSize, Allocation::Punch, Allocation::Zero];
        let mode = *self.rng.pick(&modes).unwrap_or(&Allocation::ZeroKeepSize);
        let mut act = self.act("allocate", asks);
        (act.tag, act.held) = (0, act.held.min(self.held_metadata()));
        if matches!(mode, Allocation::Extend | Allocation::Zero) {
            act.length = Length::Reaches(from + len);
        }
        if matches!(mode, Allocation::Punch | Allocation::Zero | Allocation::ZeroKeepSize) {
            act.ranges = std::iter::once(from..from + len).collect();
        }
        let act = self.with_contents(object, |contents| contents.begin(act));
        let held = || self.held_data(asks).min(self.held_metadata());
        self.alter("allocate", object, act, held, file.allocate(from, len, mode)).await;
    }

    /// Writes through an open file are durable, or the sync reports that they are not.
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
        let (words, called) = (format!("fsync of directory {dir}"), self.now());
        match self.run("fsyncdir", &words, &GONE, client.fsync_directory(dir)).await {
            End::Done(()) => self.shared.ledger.borrow_mut().synced(dir.0, called),
            End::Refused(status) => self.wrong(&words, status),
            End::Unknown(_) => {}
        }
    }
}

fn is_own_file(object: &KnownObject) -> bool {
    object.kind == Kind::File && !object.is_public
}

/// Whether the bytes of an append to a file that reaches so far are, or may be, elsewhere than in the record
/// with its answer: the file decides, not the append. A file that begins laid out counts however short it is,
/// and a stream larger than a small one is in a local file.
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
