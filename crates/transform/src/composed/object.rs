//! One object of a composed directory, made from the records of all writers.
//!
//! Records of several writers are found in any order. So each fact of an object is a register with the stamp
//! of its newest change: a record that is applied twice or late changes nothing. The kind of an object and
//! the target of a symbolic link never change: both come from the oldest record that made the object. Each
//! range of bytes has a stamp as well; newer bytes replace older bytes. A change of size is a **cut**: it
//! removes the older bytes after the new size; newer bytes stay.

use super::format::{Changed, Made, Stamp, clock_of};
use bytes::Bytes;
use shoal_proto::{Kind, Name};
use std::collections::BTreeMap;

/// A value, and when it was set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Register<T> {
    pub(super) stamp: Stamp,
    pub(super) value: T,
}

impl<T> Register<T> {
    /// Set it, unless it was set later.
    pub fn set(&mut self, stamp: Stamp, value: T) {
        if stamp >= self.stamp {
            *self = Register { stamp, value };
        }
    }
}

/// No block: zeros.
pub const NOWHERE: u64 = u64::MAX;

/// Bytes in a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stored {
    /// How many.
    pub len: u64,
    /// When they were written.
    pub stamp: Stamp,
    /// The block, or [`NOWHERE`].
    pub place: u64,
    /// Where in the block.
    pub at: u32,
}

impl Stored {
    fn part(self, from: u64, len: u64) -> Stored {
        let at = if self.place == NOWHERE { 0 } else { self.at + from as u32 };
        Stored { len, at, ..self }
    }
}

/// How an object was made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Origin {
    /// When.
    pub stamp: Stamp,
    /// Its kind.
    pub kind: Kind,
    /// The device that it is.
    pub rdev: u64,
    /// The target of a link.
    pub target: Bytes,
}

/// An object. See the module.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Object {
    /// How it was made; of several records the oldest.
    pub origin: Option<Origin>,
    pub(super) mode: Register<u32>,
    pub(super) uid: Register<u32>,
    pub(super) gid: Register<u32>,
    pub(super) atime: Register<i64>,
    pub(super) mtime: Register<i64>,
    pub(super) ctime: Register<i64>,
    pub(super) xattrs: BTreeMap<Bytes, Register<Option<Bytes>>>,
    /// Bytes, by offset; they do not overlap.
    pub(super) stored: BTreeMap<u64, Stored>,
    /// Cuts, by stamp; each is smaller than the later ones.
    pub(super) cuts: Vec<(Stamp, u64)>,
    /// Sizes that were reached, by stamp; each is larger than the later ones.
    pub(super) sizes: Vec<(Stamp, u64)>,
    /// The newest change of bytes or size.
    pub(super) written: Stamp,
    /// Names that lead to it.
    pub(super) links: Vec<(u64, Name)>,
    /// Of a directory: the newest name that ever led to it.
    pub(super) last: Register<Option<(u64, Name)>>,
}

fn time(stamp: Stamp) -> i64 {
    i64::try_from(clock_of(stamp)).unwrap_or(i64::MAX)
}

impl Object {
    /// Its kind, if its making was found.
    pub fn kind(&self) -> Option<Kind> {
        self.origin.as_ref().map(|origin| origin.kind)
    }

    fn may_be_directory(&self) -> bool {
        self.kind().is_none_or(|kind| kind == Kind::Directory)
    }

    /// A name led to it from then on, whether or not that was known to be over when it was found.
    pub(super) fn named(&mut self, stamp: Stamp, link: &(u64, Name)) {
        if self.may_be_directory() {
            self.last.set(stamp, Some(link.clone()));
        }
    }

    pub(super) fn made(&mut self, stamp: Stamp, made: &Made) {
        if self.origin.as_ref().is_none_or(|origin| stamp < origin.stamp) {
            let Made { kind, rdev, ref target, .. } = *made;
            self.origin = Some(Origin { stamp, kind, rdev, target: target.clone() });
        }
        if !self.may_be_directory() {
            self.last = Register::default();
        }
        self.mode.set(stamp, made.mode);
        self.uid.set(stamp, made.uid);
        self.gid.set(stamp, made.gid);
        for register in [&mut self.atime, &mut self.mtime, &mut self.ctime] {
            register.set(stamp, time(stamp));
        }
    }

    pub(super) fn change(&mut self, stamp: Stamp, changed: &Changed) {
        fn set<T: Copy>(register: &mut Register<T>, stamp: Stamp, value: Option<T>) {
            if let Some(value) = value {
                register.set(stamp, value);
            }
        }
        set(&mut self.mode, stamp, changed.mode);
        set(&mut self.uid, stamp, changed.uid);
        set(&mut self.gid, stamp, changed.gid);
        set(&mut self.atime, stamp, changed.atime);
        set(&mut self.mtime, stamp, changed.mtime);
        self.ctime.set(stamp, changed.ctime.unwrap_or(time(stamp)));
    }

    /// Its attributes, or names, were changed.
    pub(super) fn touched(&mut self, stamp: Stamp) {
        self.ctime.set(stamp, time(stamp));
    }

    /// Its data, or entries, were changed.
    pub(super) fn modified(&mut self, stamp: Stamp) {
        self.mtime.set(stamp, time(stamp));
        self.touched(stamp);
    }

    /// The size that cuts newer than a stamp leave.
    fn limit(&self, stamp: Stamp) -> u64 {
        self.cuts.iter().find(|(cut, _)| *cut > stamp).map_or(u64::MAX, |(_, size)| *size)
    }

    /// Bytes were written, or became zeros. `grows`: the file reaches to their end at least.
    pub(super) fn put(&mut self, offset: u64, new: Stored, grows: bool) {
        let end = offset.saturating_add(new.len).min(self.limit(new.stamp));
        self.written = self.written.max(new.stamp);
        self.modified(new.stamp);
        if grows && end > 0 && new.len > 0 {
            self.reached(new.stamp, end);
        }
        if end <= offset {
            return;
        }
        let before = self.stored.range(..=offset).next_back().map(|(at, old)| (*at, at + old.len));
        let from = before.filter(|(_, old_end)| *old_end > offset).map_or(offset, |(at, _)| at);
        let olds: Vec<(u64, Stored)> = self.stored.range(from..end).map(|(at, old)| (*at, *old)).collect();
        let mut at = offset;
        for (old_at, old) in olds {
            let old_end = old_at + old.len;
            if old.stamp > new.stamp {
                if old_at > at {
                    self.stored.insert(at, new.part(at - offset, old_at - at));
                }
                at = at.max(old_end);
                continue;
            }
            self.stored.remove(&old_at);
            if old_at < offset {
                self.stored.insert(old_at, old.part(0, offset - old_at));
            }
            if old_end > end {
                self.stored.insert(end, old.part(end - old_at, old_end - end));
            }
        }
        if at < end {
            self.stored.insert(at, new.part(at - offset, end - at));
        }
    }

    /// The size was set.
    pub(super) fn cut(&mut self, stamp: Stamp, size: u64) {
        self.written = self.written.max(stamp);
        self.modified(stamp);
        let before = self.stored.range(..size).next_back().map(|(at, old)| (*at, at + old.len));
        let from = before.filter(|(_, end)| *end > size).map_or(size, |(at, _)| at);
        let beyond: Vec<(u64, Stored)> = self.stored.range(from..).map(|(at, old)| (*at, *old)).collect();
        for (at, old) in beyond.into_iter().filter(|(_, old)| old.stamp <= stamp) {
            self.stored.remove(&at);
            if at < size {
                self.stored.insert(at, old.part(0, size - at));
            }
        }
        for reached in self.sizes.iter_mut().filter(|(when, _)| *when < stamp) {
            reached.1 = reached.1.min(size);
        }
        let end = size.min(self.limit(stamp));
        self.reached(stamp, end);
        let at = self.cuts.partition_point(|(when, _)| *when < stamp);
        if self.cuts.get(at).is_none_or(|(_, later)| *later > size) {
            self.cuts.insert(at, (stamp, size));
            let mut n = 0;
            self.cuts.retain(|(_, old)| {
                n += 1;
                n > at || *old < size
            });
        }
    }

    /// A stamp for a zero that only makes the file longer: no bytes that are there, or that a writer has not
    /// published yet, are older, except those that a cut which is known has taken.
    pub(super) fn oldest(&self) -> Option<Stamp> {
        let origin = self.origin.as_ref()?.stamp;
        let cut = self.cuts.last().map_or(0, |(stamp, _)| *stamp);
        origin.max(cut).checked_add(1)
    }

    fn reached(&mut self, stamp: Stamp, end: u64) {
        if self.sizes.iter().any(|(when, size)| *when >= stamp && *size >= end) {
            return;
        }
        self.sizes.retain(|(when, size)| *when > stamp || *size > end);
        let at = self.sizes.partition_point(|(when, _)| *when < stamp);
        self.sizes.insert(at, (stamp, end));
    }

    /// Bytes of the file.
    pub fn size(&self) -> u64 {
        self.sizes.iter().map(|(_, size)| *size).max().unwrap_or(0)
    }

    /// Bytes that blocks hold for it.
    pub fn space(&self) -> u64 {
        self.stored.values().filter(|stored| stored.place != NOWHERE).map(|stored| stored.len).sum()
    }

    /// Where the bytes of a range lie, in order; holes are left out.
    pub fn pieces(&self, offset: u64, len: u64) -> Vec<(u64, Stored)> {
        let end = offset.saturating_add(len).min(self.size());
        if end <= offset {
            return Vec::new();
        }
        let before = self.stored.range(..=offset).next_back().map(|(at, old)| (*at, at + old.len));
        let from = before.filter(|(_, old_end)| *old_end > offset).map_or(offset, |(at, _)| at);
        let cut = |(at, stored): (&u64, &Stored)| {
            let (first, last) = ((*at).max(offset), (at + stored.len).min(end));
            (first, stored.part(first - at, last - first))
        };
        let stored = self.stored.range(from..end).map(cut);
        stored.filter(|(_, stored)| stored.place != NOWHERE).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes and cuts in any order of discovery give what they give in the order of their stamps.
    #[test]
    fn the_order_in_which_records_are_found_does_not_matter() {
        let mut state = 7u64;
        let mut draw = |n: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % n
        };
        for _ in 0..3000 {
            let ops: Vec<(bool, u64, u64)> =
                (0..1 + draw(9)).map(|_| (draw(4) == 0, draw(40), 1 + draw(20))).collect();
            let mut bytes: Vec<Option<u128>> = Vec::new();
            for (n, (is_cut, at, len)) in ops.iter().enumerate() {
                match is_cut {
                    true => bytes.resize(*at as usize, None),
                    false => {
                        bytes.resize(bytes.len().max((at + len) as usize), None);
                        bytes[*at as usize..(at + len) as usize].fill(Some(n as u128 + 1));
                    }
                }
            }
            let mut order: Vec<usize> = (0..ops.len()).collect();
            for n in (1..order.len()).rev() {
                order.swap(n, draw(n as u64 + 1) as usize);
            }
            // Some records are found twice.
            order.extend(order.clone().into_iter().take(draw(3) as usize));
            let mut object = Object::default();
            for n in order {
                let (stamp, (is_cut, at, len)) = (n as u128 + 1, ops[n]);
                match is_cut {
                    true => object.cut(stamp, at),
                    false => object.put(at, Stored { len, stamp, place: n as u64, at: 0 }, true),
                }
            }
            assert_eq!(object.size(), bytes.len() as u64, "{ops:?}");
            let mut found = vec![None; bytes.len()];
            for (at, stored) in object.pieces(0, 1000) {
                assert_eq!(u64::from(stored.at) + ops[stored.place as usize].1, at);
                found[at as usize..(at + stored.len) as usize].fill(Some(stored.stamp));
            }
            assert_eq!(found, bytes, "{ops:?}");
        }
    }
}
