//! Room on the disk of a store: the free space, the needed space, and the warning that an operator must
//! act.
//!
//! ```text
//!   the disk  ├─ rows, bytes ─┼─ journal ─┼──────────────── free ─────────────────┤
//!                                         ├─ reserve ─┼─ journal to come ─┼─ rest ─┤
//!                                         ├──────────── needed ───────────┤
//! ```
//! The *reserve* is for removals and recovery: a change that would leave less is refused with `ENOSPC` (the
//! store's admission). The *journal to come* is the segments that the journal still needs to reach its least
//! size, and [`SEGMENTS_AHEAD`] further segments, which are filled while a checkpoint frees older segments.
//! **A server is not well if its free space is less than reserve and journal to come together**: it refuses
//! new files and data, or soon will. The smallest useful disk holds the reserve, the least journal of a new
//! store, and [`SEGMENTS_AHEAD`] segments more.

use crate::shard::Shard;
use shoal_store::{CollectionConfig, Space};
use std::path::PathBuf;
use std::rc::Rc;

/// Segments of a journal where the disk has room: the one in use, and those kept ready.
const SEGMENTS_MIN: u64 = 1 + CollectionConfig::SEGMENTS_READY as u64;
/// Segments that a journal may take beyond those before a checkpoint frees one.
const SEGMENTS_AHEAD: u64 = 2;

/// Room on the disk of one store, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Room {
    /// The store's folder; `None`: nothing is kept on a disk.
    pub folder: Option<PathBuf>,
    /// Size of the disk.
    pub total: u64,
    /// Free, or freed as soon as it is wanted.
    pub free: u64,
    /// Kept for removals and recovery.
    pub reserve: u64,
    /// Must be free.
    pub needed: u64,
    /// Size of the least useful disk for a new store.
    pub least: u64,
    /// The disk refused a file although it has free bytes.
    pub stuck: bool,
}

impl Room {
    /// Room of a shard whose store has this space.
    pub fn of(shard: &Rc<Shard>, space: &Space) -> Room {
        let folder = shard.collection.folder().map(PathBuf::from);
        // Removed files that are kept for a while give way.
        Room { folder, ..Room::new(space, shard.lingering.bytes()) }
    }

    fn new(space: &Space, gives_way: u64) -> Room {
        let ahead = SEGMENTS_MIN.saturating_sub(space.segments) + SEGMENTS_AHEAD;
        let with_segments = |count: u64| space.reserve.saturating_add(count.saturating_mul(space.segment));
        Room {
            folder: None,
            total: space.total,
            free: space.free.saturating_add(gives_way).min(space.total),
            reserve: space.reserve,
            needed: with_segments(ahead),
            least: with_segments(SEGMENTS_MIN + SEGMENTS_AHEAD),
            stuck: space.stuck,
        }
    }

    /// Why the server is not well: the folder, the figures and the remedy. `None`: there is room.
    pub fn words(&self) -> Option<String> {
        let Room { total, free, reserve, needed, least, .. } = *self;
        let is_full = self.stuck || (total > 0 && free <= reserve);
        if free >= needed && !is_full {
            return None;
        }
        let follows = match is_full {
            true => "new files and data are refused; reading and removing go on",
            false => "new files and data are refused soon",
        };
        let Some(folder) = &self.folder else {
            return Some(format!("{} free in its memory: {follows}; remove files", mib(free)));
        };
        let (folder, free_mib, needed_mib) = (folder.display(), mib(free), mib_up(needed));
        if free >= needed {
            return Some(format!(
                "the disk of {folder} refuses new files with {free_mib} free: {follows}; see whether it has free inodes \
                 (df -i), and remove files there"
            ));
        }
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
            "{free_mib} free on the disk of {folder}, {needed_mib} needed ({} for removals and recovery, {} for the \
             journal): {follows}; {remedy}",
            mib_up(reserve),
            mib_up(needed - reserve)
        ))
    }
}

/// Rounded down.
fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

/// Rounded up.
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

    fn room(space: &Space, gives_way: u64) -> Room {
        Room { folder: Some("/srv/shoal/demo".into()), ..Room::new(space, gives_way) }
    }

    #[test]
    fn a_new_store_on_the_least_useful_disk_has_room_and_on_a_smaller_one_not() {
        let least = room(&space(0, 0, 0), 0).least;
        assert_eq!(least, 288 * MIB);
        let segment = space(0, 0, 0).segment;
        for segments in 0..=SEGMENTS_MIN {
            let left = least - segments * segment;
            assert_eq!(room(&space(least, left, segments), 0).words(), None, "{segments}");
            let words = room(&space(least - 1, left - 1, segments), 0).words().unwrap();
            for word in ["/srv/shoal/demo", "has 287 MiB in all, and a store needs 288 MiB"] {
                assert!(words.contains(word), "`{word}` is missing: {words}");
            }
        }
    }

    #[test]
    fn a_disk_that_gets_full_is_said_before_changes_are_refused_and_when_they_are() {
        let of = |free: u64, gives_way: u64| room(&space(1 << 40, free, 7), gives_way).words();
        assert_eq!(of(192 * MIB, 0), None);
        let soon = of(192 * MIB - 1, 0).unwrap();
        for words in [
            "191 MiB free on the disk of /srv/shoal/demo",
            "192 MiB needed",
            "128 MiB for removals",
            "64 MiB for the journal",
            "are refused soon",
        ] {
            assert!(soon.contains(words), "`{words}` is missing: {soon}");
        }
        let full = of(128 * MIB, 0).unwrap();
        assert!(full.contains("are refused; reading and removing go on; remove files"), "{full}");
        // Removed files that programs may still read go when their space is wanted.
        assert_eq!(of(100 * MIB, 92 * MIB), None);
    }

    #[test]
    fn a_disk_that_refuses_files_although_bytes_are_free_is_said() {
        let words = room(&Space { stuck: true, ..space(1 << 40, 1 << 39, 7) }, 0).words().unwrap();
        for word in ["/srv/shoal/demo", "524288 MiB free", "are refused;", "df -i"] {
            assert!(words.contains(word), "`{word}` is missing: {words}");
        }
    }

    #[test]
    fn a_store_in_memory_has_no_reserve_and_no_journal_and_is_said_when_it_is_full() {
        let of =
            |total, free| Room::new(&Space { total, available: free, free, ..Space::default() }, 0).words();
        assert_eq!(of(100 * MIB, 1), None);
        assert!(
            of(100 * MIB, 0).unwrap().contains("0 MiB free in its memory: new files and data are refused;")
        );
        // The module `null` has no size at all.
        assert_eq!(of(0, 0), None);
    }
}
