//! Room on the disk of a store: how much is free, how much is needed, and when an operator has to do something.
//!
//! ```text
//!   the disk  ├─ rows, bytes ─┼─ journal ─┼──────────────── free ─────────────────┤
//!                                         ├─ reserve ─┼─ journal to come ─┼─ rest ─┤
//!                                         ├──────────── needed ───────────┤
//! ```
//! The *reserve* is for removals and recovery: a change that would leave less is refused with `ENOSPC` (the store's admission). The
//! *journal to come* is what brings a new store's journal to its least size, and [`SEGMENTS_AHEAD`] more: they are filled
//! while a checkpoint makes older ones free. **A server with less than both is not well**: it refuses what is new, or soon will.
//! The least useful disk is the one that a new store leaves with just as much.

use crate::shard::Shard;
use shoal_store::{CollectionConfig, Space};
use std::rc::Rc;

/// Segments of a journal where the disk has room: the one that is written to, and those kept ready.
const SEGMENTS_MIN: u64 = 1 + CollectionConfig::SEGMENTS_READY as u64;
/// Segments that a journal may take beyond those before a checkpoint frees one.
const SEGMENTS_AHEAD: u64 = 2;

/// Room on the disk of one store, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// In all.
    pub total: u64,
    /// Free, or made free as soon as it is wanted.
    pub free: u64,
    /// That only removals and recovery get.
    pub reserve: u64,
    /// That has to be free.
    pub needed: u64,
    /// That a disk must have for a new store to be of use.
    pub least: u64,
}

impl Room {
    /// Of a shard whose store has this space.
    pub fn of(shard: &Rc<Shard>, space: &Space) -> Room {
        // Removed files that are kept for a while give way.
        Room::new(space, shard.lingering.bytes())
    }

    fn new(space: &Space, gives_way: u64) -> Room {
        let ahead = SEGMENTS_MIN.saturating_sub(space.segments) + SEGMENTS_AHEAD;
        let with_segments = |count: u64| space.reserve.saturating_add(count.saturating_mul(space.segment));
        Room {
            total: space.total,
            free: space.free.saturating_add(gives_way).min(space.total),
            reserve: space.reserve,
            needed: with_segments(ahead),
            least: with_segments(SEGMENTS_MIN + SEGMENTS_AHEAD),
        }
    }

    /// Why the server is not well, with the figures and the remedy; `None`: there is room.
    pub fn words(&self) -> Option<String> {
        if self.free >= self.needed {
            return None;
        }
        let Room { total, free, reserve, needed, least } = *self;
        let follows = if free <= reserve {
            "new files and data are refused; reading and removing go on"
        } else {
            "new files and data are refused soon"
        };
        let remedy = if total < least {
            format!(
                "the disk has {} in all, and a store needs {}: move the folder to a larger disk",
                mib(total),
                mib_up(least)
            )
        } else {
            "remove files, or move the folder to a larger disk".to_owned()
        };
        Some(format!(
            "{} free on its disk, {} needed ({} for removals and recovery, {} for the journal): {follows}; {remedy}",
            mib(free),
            mib_up(needed),
            mib_up(reserve),
            mib_up(needed - reserve)
        ))
    }
}

/// At least so much is there.
fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

/// So much does.
fn mib_up(bytes: u64) -> String {
    format!("{} MiB", bytes.div_ceil(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_store::{Identity, ModuleKind};

    const MIB: u64 = 1 << 20;

    fn space(total: u64, free: u64, segments: u64) -> Space {
        let config = CollectionConfig::new("unused", ModuleKind::Disk, Identity::default());
        let (reserve, segment) = (config.reserve_bytes, config.segment_bytes);
        let available = free.saturating_sub(reserve);
        Space { total, available, free, reserve, segment, segments, ..Space::default() }
    }

    #[test]
    fn a_new_store_on_the_least_useful_disk_has_room_and_on_a_smaller_one_not() {
        let least = Room::new(&space(0, 0, 0), 0).least;
        assert_eq!(least, 288 * MIB);
        let segment = space(0, 0, 0).segment;
        for segments in 0..=SEGMENTS_MIN {
            let left = least - segments * segment;
            assert_eq!(Room::new(&space(least, left, segments), 0).words(), None, "{segments}");
            let words = Room::new(&space(least - 1, left - 1, segments), 0).words().unwrap();
            assert!(words.contains("has 287 MiB in all, and a store needs 288 MiB"), "{words}");
        }
    }

    #[test]
    fn a_disk_that_gets_full_is_said_before_changes_are_refused_and_when_they_are() {
        let of = |free: u64, gives_way: u64| Room::new(&space(1 << 40, free, 7), gives_way).words();
        assert_eq!(of(192 * MIB, 0), None);
        let soon = of(192 * MIB - 1, 0).unwrap();
        for words in
            ["191 MiB free", "192 MiB needed", "128 MiB for removals", "64 MiB for the journal", "soon"]
        {
            assert!(soon.contains(words), "{soon}");
        }
        let full = of(128 * MIB, 0).unwrap();
        assert!(full.contains("are refused; reading and removing go on; remove files"), "{full}");
        // Removed files that programs may still read go when their space is wanted.
        assert_eq!(of(100 * MIB, 92 * MIB), None);
        // What keeps nothing on a disk has no reserve and no journal.
        assert_eq!(Room::new(&Space::default(), 0).words(), None);
    }
}
