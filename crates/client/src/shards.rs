//! Split directories: finds the server whose shard has a name.
//!
//! A client learns of a split by a redirection ([`Status::Split`](shoal_proto::Status::Split)) or by the
//! directory's attributes. A directory splits once and stays split, so a known split is valid as long as the
//! directory exists; the directory's own server reports its removal.
//!
//! **The attributes of a split directory are merged here.** The link count is the sum over the shards of
//! their subdirectories, plus 2. The times of modification and of change are the latest of all shards. All
//! other attributes come from the directory's own server. For the mount, the attributes of each shard are
//! kept for the attribute cache time. So a new answer from one shard is enough to compute the directory's
//! attributes.

use lru::LruCache;
use shoal_env::Instant;
use shoal_proto::{Attr, Handle, Name, PlaceKey, ServerId, Shards};
use std::collections::BTreeMap;
use std::time::Duration;

/// Directories remembered.
const DIRECTORIES_MAX: usize = 4096;

struct Known {
    shards: Shards,
    /// Each shard's attributes, and when they were requested.
    attrs: BTreeMap<ServerId, (Attr, Instant)>,
}

/// See the module's page.
pub(crate) struct SplitDirectories {
    key: Option<PlaceKey>,
    known: LruCache<Handle, Known>,
}

impl Default for SplitDirectories {
    fn default() -> SplitDirectories {
        SplitDirectories { key: None, known: LruCache::unbounded() }
    }
}

impl SplitDirectories {
    /// A directory is split, or, by its own server's answer, whole.
    pub(crate) fn learn(&mut self, dir: Handle, shards: &Shards, key: Option<PlaceKey>) {
        self.key = key.or(self.key);
        if !shards.is_split() {
            self.forget(dir);
            return;
        }
        if self.known.get(&dir).is_none_or(|known| known.shards != *shards) {
            self.known.put(dir, Known { shards: shards.clone(), attrs: BTreeMap::new() });
            if self.known.len() > DIRECTORIES_MAX {
                self.known.pop_lru();
            }
        }
    }

    /// The known split of a directory is wrong.
    pub(crate) fn forget(&mut self, dir: Handle) {
        self.known.pop(&dir);
    }

    /// The shards of a directory, if it is known to be split.
    pub(crate) fn of(&mut self, dir: Handle) -> Option<Shards> {
        self.known.get(&dir).map(|known| known.shards.clone())
    }

    /// The server to be asked about an entry.
    pub(crate) fn server_of(&mut self, dir: Handle, name: &Name) -> ServerId {
        let Some(key) = self.key else { return dir.server() };
        let shards = self.known.get(&dir).map(|known| &known.shards);
        shards.and_then(|shards| shards.server_of(key.place_of(name.as_bytes()))).unwrap_or(dir.server())
    }

    /// A shard's answer with its attributes.
    pub(crate) fn saw(&mut self, server: ServerId, attr: &Attr, asked_at: Instant) {
        if let Some(known) = self.known.get_mut(&attr.handle) {
            known.attrs.insert(server, (attr.clone(), asked_at));
        }
    }

    /// This client changes something in a shard, or, without one, in the directory.
    pub(crate) fn changes(&mut self, dir: Handle, shard: Option<ServerId>) {
        let Some(known) = self.known.get_mut(&dir) else { return };
        match shard {
            Some(shard) => drop(known.attrs.remove(&shard)),
            None => known.attrs.clear(),
        }
    }

    /// The directory's attributes, if those of all its shards were received recently.
    pub(crate) fn attr(&self, dir: Handle, now: Instant, believed: Duration) -> Option<Attr> {
        let known = self.known.peek(&dir)?;
        let of = |server: &ServerId| {
            let (attr, at) = known.attrs.get(server)?;
            (now.since(*at) < believed).then_some(attr)
        };
        let home = of(&dir.server())?.clone();
        let others: Option<Vec<&Attr>> =
            known.shards.servers().iter().filter(|server| **server != dir.server()).map(of).collect();
        Some(merge(home, others?))
    }
}

/// The attributes of a directory, of those of its own server and of its other shards.
pub(crate) fn merge<'a>(home: Attr, others: impl IntoIterator<Item = &'a Attr>) -> Attr {
    others.into_iter().fold(home, |attr, other| Attr {
        nlink: attr.nlink.saturating_add(other.nlink.saturating_sub(2)),
        mtime: attr.mtime.max(other.mtime),
        ctime: attr.ctime.max(other.ctime),
        ..attr
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::file_attr;
    use shoal_proto::{Kind, Time};

    const DIR: Handle = Handle::new(ServerId(1), 7);

    fn shard(nlink: u32, changed: i64) -> Attr {
        let (kind, at) = (Kind::Directory, Time(changed));
        Attr { kind, nlink, mtime: at, ctime: at, ..file_attr(DIR) }
    }

    #[test]
    fn counts_are_added_and_the_latest_change_counts() {
        let merged = merge(shard(4, 10), [&shard(2, 30), &shard(3, 20)]);
        assert_eq!((merged.nlink, merged.mtime, merged.ctime), (5, Time(30), Time(30)));
    }

    #[test]
    fn a_directory_is_known_by_all_its_shards_told_lately_or_not_at_all() {
        let (mut split, believed) = (SplitDirectories::default(), Duration::from_nanos(100));
        let shards = Shards::over([ServerId(0), ServerId(1)]);
        split.learn(DIR, &shards, Some(PlaceKey::new([1; 32])));
        split.saw(ServerId(1), &shard(2, 5), Instant(0));
        assert_eq!(split.attr(DIR, Instant(1), believed), None);
        split.saw(ServerId(0), &shard(3, 6), Instant(50));
        assert_eq!(split.attr(DIR, Instant(60), believed).map(|attr| attr.nlink), Some(3));
        assert_eq!(split.attr(DIR, Instant(110), believed), None, "one of them is too old");
        split.saw(ServerId(1), &shard(2, 7), Instant(110));
        split.changes(DIR, Some(ServerId(0)));
        assert_eq!(split.attr(DIR, Instant(120), believed), None, "one of them was changed");
    }

    #[test]
    fn a_name_is_asked_of_its_shard_only_when_both_shards_and_key_are_known() {
        let mut split = SplitDirectories::default();
        let (shards, key) = (Shards::over((0..4).map(ServerId)), PlaceKey::new([1; 32]));
        let right = |text: &String| shards.server_of(key.place_of(text.as_bytes())).unwrap();
        let mut texts = (0..100).map(|n| format!("f{n}"));
        let text = texts.find(|text| right(text) != DIR.server()).unwrap();
        let (name, right) = (Name::new(text.as_bytes()).unwrap(), right(&text));
        split.learn(DIR, &shards, None);
        assert_eq!(split.server_of(DIR, &name), DIR.server());
        split.learn(DIR, &shards, Some(key));
        assert_eq!(split.server_of(DIR, &name), right);
        split.forget(DIR);
        assert_eq!(split.server_of(DIR, &name), DIR.server());
    }
}
