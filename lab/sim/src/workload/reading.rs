//! Reads of the client's own files, of other clients' files and of shared files, by open file and by name;
//! and reads of attributes.

use super::{End, Worker, name};
use crate::contents::Read;
use crate::facts::Look;
use crate::ledger::{ObjectId, Slot};
use bytes::Bytes;
use shoal_pattern::{Level, Pattern};
use shoal_proto::{Attr, Handle, Kind, Status};

const GONE: [Status; 2] = [Status::Stale, Status::NotFound];
/// A whole file is read by name.
const WHOLE_MAX: usize = 1 << 20;
/// More than several servers answer without pieces.
const LONG_READ_BYTES: u64 = 600_000;

impl Worker {
    pub(super) async fn read(&mut self) {
        match self.rng.below(4) {
            0 => {
                let Some((slot, _)) = self.own(|object| object.kind == Kind::File) else { return };
                self.read_whole(&slot).await;
            }
            1 => {
                let all = self.shared.ledger.borrow().all_live();
                let Some((slot, object)) = self.rng.pick(&all).cloned() else { return };
                if self.with_object(object, |object| object.kind == Kind::File) {
                    self.read_whole(&slot).await;
                }
            }
            _ => {
                let logs = self.shared.scene.logs_of(self.is_of_forks());
                let log = self.rng.below(4) == 0;
                let object = if log { self.rng.pick(&logs).copied() } else { self.target(true) };
                let Some(object) = object else { return };
                self.read_range(object).await;
            }
        }
    }

    /// All of a file, by its name, of any owner.
    async fn read_whole(&mut self, slot: &Slot) {
        let (dir, leaf) = (Handle(slot.0), name(&slot.1));
        let words = format!("read {slot:?}");
        let called = self.now();
        let client = self.client.clone();
        let read = client.read_small(dir, &leaf, WHOLE_MAX);
        match self.run("read", &words, &GONE, read).await {
            End::Done((attr, content)) => {
                let Some(object) = self.led_to(&words, slot, called, attr.handle) else { return };
                if let Some(content) = content {
                    self.judge_read(&words, object, called, (0, WHOLE_MAX as u64), &content);
                }
            }
            End::Refused(status) => {
                // Its owner may have removed the name; and its first object may be gone when it is opened.
                let possible = self.shared.ledger.borrow().possible(slot, called, self.now());
                if possible.iter().all(|object| object.is_some() && *object == possible[0]) {
                    self.wrong(&words, status);
                }
            }
            End::Unknown(_) => {}
        }
    }

    /// The object that a name led to, if it may have.
    pub(super) fn led_to(&self, words: &str, slot: &Slot, called: u64, handle: Handle) -> Option<ObjectId> {
        let believed = self.shared.cache.as_nanos() as u64;
        let ledger = self.shared.ledger.borrow();
        let possible = ledger.possible(slot, called.saturating_sub(believed), self.now());
        let led_to = |object: &Option<ObjectId>| {
            object.filter(|object| [0, handle.0].contains(&ledger.objects[*object].handle))
        };
        let found = possible.iter().find_map(led_to);
        if found.is_none() {
            let handles: Vec<Option<u64>> =
                possible.iter().map(|object| object.map(|object| ledger.objects[object].handle)).collect();
            self.violation(words, format!("expected one of {handles:x?}, found {:#x}", handle.0));
        }
        found
    }

    async fn read_range(&mut self, object: ObjectId) {
        let Some(at) = self.opened(object).await else { return };
        let file = self.held[at].file.clone();
        let end = self.with_contents(object, |contents| contents.reach()) + 100;
        let (from, called) = (self.rng.below(end), self.now());
        let len = 1 + self.rng.below(end - from);
        let words = format!("read {from}–{} of {}", from + len, file.handle());
        if self.rng.below(4) == 0 {
            return self.read_records(object, at, from).await;
        }
        match self.run("read", &words, &GONE, file.read(from, len as usize)).await {
            End::Done(content) => self.judge_read(&words, object, called, (from, len), &content),
            End::Refused(status) => self.wrong_if_mine(&words, object, status),
            End::Unknown(_) => {}
        }
    }

    /// By a pattern: each record is judged by itself, up to the end of the file.
    async fn read_records(&mut self, object: ObjectId, at: usize, from: u64) {
        let file = self.held[at].file.clone();
        if from.is_multiple_of(5) {
            return self.read_again_and_again(object, at, from).await;
        }
        let (rec_size, quantity) = (1 + self.rng.below(3_000), 2 + self.rng.below(6));
        let gap = self.rng.below(30_000);
        // Some are tiny and lie close together.
        let (rec_size, quantity, gap) = match rec_size % 8 {
            0 => (rec_size / 64 + 1, quantity * 8, gap % 1000),
            _ => (rec_size, quantity, gap),
        };
        let stride = rec_size + gap;
        let pattern = Pattern::strided(from as i64, rec_size, stride as i64, quantity);
        let pattern = pattern.expect("the workload's patterns are valid");
        let called = self.now();
        let words = format!("read {quantity} records of {rec_size} at {from}, {stride} of {}", file.handle());
        match self.run("read", &words, &GONE, file.read_pattern(&pattern)).await {
            End::Done(content) => {
                let mut rest = content;
                for region in pattern.regions() {
                    let own: Bytes = rest.split_to(rest.len().min(region.len as usize));
                    // After the end of the file the bytes of earlier records are zeros: only whole ones
                    // count.
                    if own.len() as u64 == region.len && !rest.is_empty() {
                        self.judge_read(&words, object, called, (region.offset as u64, region.len), &own);
                    }
                }
            }
            End::Refused(status) => self.wrong_if_mine(&words, object, status),
            End::Unknown(_) => {}
        }
    }

    /// One range so often that its servers answer by pieces; some of the times are judged.
    async fn read_again_and_again(&mut self, object: ObjectId, at: usize, from: u64) {
        let file = self.held[at].file.clone();
        let len = 1_000 + self.rng.below(50_000);
        let quantity = 2 + (LONG_READ_BYTES + self.rng.below(LONG_READ_BYTES)) / len;
        let again = Level { stride: 0, quantity };
        let pattern = Pattern::nested(from as i64, len, vec![again]);
        let pattern = pattern.expect("the workload's patterns are valid");
        let called = self.now();
        let words = format!("read {from}–{} of {} {quantity} times", from + len, file.handle());
        match self.run("read", &words, &GONE, file.read_pattern(&pattern)).await {
            End::Done(content) if !content.is_empty() => {
                // The last time ends with the file, if that ends in the range: what others have after it are
                // zeros.
                let inside = (content.len() as u64).saturating_sub((quantity - 1) * len);
                for time in [0, self.rng.below(quantity), quantity - 1] {
                    let begin = (time * len) as usize;
                    let own = content.slice(begin..).slice(..inside as usize);
                    self.judge_read(&words, object, called, (from, inside), &own);
                }
            }
            End::Refused(status) => self.wrong_if_mine(&words, object, status),
            End::Done(_) | End::Unknown(_) => {}
        }
    }

    pub(super) fn judge_read(
        &self,
        words: &str,
        object: ObjectId,
        called: u64,
        (from, len): (u64, u64),
        content: &[u8],
    ) {
        let (returned, now, client) = (self.now(), &self.shared.now(), self.id);
        let read = Read { client, called, returned, now, from, len, content };
        if let Err(wrong) = self.with_contents(object, |contents| contents.judge(&read)) {
            self.violation(words, wrong);
        }
    }

    /// Attributes of an own object.
    pub(super) async fn stat(&mut self) {
        let Some((_, object)) = self.own(|_| true) else { return };
        let (handle, called, is_durable) = (self.handle(object), self.now(), self.sees_durable());
        let words = format!("getattr {handle}");
        let client = self.client.clone();
        match self.run("getattr", &words, &GONE, client.getattr(handle)).await {
            End::Done(attr) => {
                self.judge_attr(&words, object, called, &attr);
                // It may be one that the client had cached.
                let asked = called.saturating_sub(self.shared.cache.as_nanos() as u64);
                self.attributes_seen(object, asked, is_durable);
            }
            End::Refused(status) if !self.with_object(object, |object| object.is_public) => {
                self.wrong_if_named(&words, object, status)
            }
            End::Refused(_) | End::Unknown(_) => {}
        }
    }

    pub(super) fn judge_attr(&self, words: &str, object: ObjectId, called: u64, attr: &Attr) {
        let (returned, now, client) = (self.now(), &self.shared.now(), self.id);
        self.shared.ledger.borrow_mut().facts(object, false);
        let believed_since = called.saturating_sub(self.shared.cache.as_nanos() as u64);
        let look = Look { client: self.client_number(), called, believed_since };
        let called = believed_since;
        let judged = self.with_object(object, |object| {
            let read = Read { client, called, returned, now, from: 0, len: 0, content: &[] };
            if object.kind == Kind::File {
                object.contents.learn(attr);
                object.contents.judge_size(attr.size, &read)?;
            }
            object.facts.judge(object.kind, attr, look, |since| object.contents.touched_since(since))
        });
        if let Err(wrong) = judged {
            self.violation(words, wrong);
        }
        if attr.kind != Kind::Directory {
            self.judge_links(words, object, attr);
        }
    }
}
