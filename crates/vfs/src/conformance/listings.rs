//! Listings.

use super::{BOTH, DIR_OWNER, Ground, OWNER, name};
use crate::{Listing, Vfs};
use shoal_proto::{Entry, Handle, Kind, Status};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// For attributes.
const PATIENCE: Duration = Duration::from_secs(10);

impl<V: Vfs> Ground<'_, V> {
    /// The next entries of a listing, at most so many.
    async fn next(&self, listing: &mut V::Listing, plus: bool, most: usize) -> Vec<Entry> {
        let mut entries = Vec::new();
        while entries.len() < most
            && let Some(listed) = self.ok(listing.next(plus).await)
        {
            entries.push(listed.entry);
        }
        entries
    }

    async fn all(&self, dir: Handle, plus: bool) -> Vec<Entry> {
        self.next(&mut self.vfs.opendir(dir, PATIENCE), plus, usize::MAX).await
    }

    async fn make(&self, texts: impl Iterator<Item = String>) {
        for text in texts {
            self.ok(self.vfs.create(self.dir, &name(&text), OWNER, true, BOTH).await);
        }
    }
}

fn text(entry: &Entry) -> String {
    String::from_utf8_lossy(entry.name.as_bytes()).into_owned()
}

pub(super) async fn every_entry_comes_once_with_its_attributes<V: Vfs>(ground: &Ground<'_, V>) {
    ground.make((0..ground.promises.many).map(|n| format!("file {n}"))).await;
    ground.directory("directory").await;
    ground.ok(ground.vfs.symlink(ground.dir, &name("link"), OWNER, b"x").await);
    for plus in [false, true] {
        let entries = ground.all(ground.dir, plus).await;
        let by_name: BTreeMap<String, &Entry> = entries.iter().map(|entry| (text(entry), entry)).collect();
        assert_eq!((entries.len(), by_name.len()), (ground.promises.many + 2, ground.promises.many + 2));
        let places: BTreeSet<u64> = entries.iter().map(|entry| entry.place).collect();
        assert!(places.len() == entries.len() && places.first() >= Some(&3), "each has a place of its own");
        for (text, kind) in [("file 7", Kind::File), ("directory", Kind::Directory), ("link", Kind::Symlink)]
        {
            let (entry, attr) = (by_name[text], ground.look(text).await);
            assert_eq!((entry.handle, entry.kind, attr.kind), (attr.handle, kind, kind));
            if plus {
                assert_eq!(entry.attr.as_ref(), Some(&attr));
            }
        }
        assert!(plus || entries.iter().all(|entry| entry.attr.is_none()), "only if they are asked for");
        let names = ground.ok(ground.vfs.names(ground.dir).await);
        let listed: BTreeSet<_> = entries.iter().map(|entry| entry.name.as_bytes()).collect();
        assert_eq!(names.len(), listed.len());
        assert_eq!(names.iter().map(|name| name.as_bytes()).collect::<BTreeSet<_>>(), listed);
    }
}

pub(super) async fn an_empty_directory_has_no_entries<V: Vfs>(ground: &Ground<'_, V>) {
    assert!(ground.all(ground.dir, true).await.is_empty());
    ground.file("file").await;
    assert_eq!(ground.all(ground.dir, true).await.len(), 1);
    ground.ok(ground.vfs.unlink(ground.dir, &name("file")).await);
    assert!(ground.all(ground.dir, false).await.is_empty());
}

pub(super) async fn a_listing_goes_on_over_changes<V: Vfs>(ground: &Ground<'_, V>) {
    ground.make((0..ground.promises.many).map(|n| format!("stays {n}"))).await;
    ground.make((0..ground.promises.many).map(|n| format!("goes {n}"))).await;
    let mut listing = ground.vfs.opendir(ground.dir, PATIENCE);
    let (mut seen, mut round) = (Vec::new(), 0);
    loop {
        let entries = ground.next(&mut listing, true, 500).await;
        if entries.is_empty() {
            break;
        }
        seen.extend(entries.iter().map(text));
        for n in (round * 400..(round + 1) * 400).filter(|n| *n < ground.promises.many) {
            ground.ok(ground.vfs.unlink(ground.dir, &name(&format!("goes {n}"))).await);
        }
        ground.make((0..100).map(|n| format!("comes {round} {n}"))).await;
        round += 1;
    }
    let once: BTreeSet<&String> = seen.iter().collect();
    assert_eq!(once.len(), seen.len(), "no entry comes twice");
    let stayed = seen.iter().filter(|text| text.starts_with("stays")).count();
    assert_eq!(stayed, ground.promises.many, "each that was there all the time comes");
}

pub(super) async fn a_listing_continues_after_a_place<V: Vfs>(ground: &Ground<'_, V>) {
    ground.make((0..ground.promises.many).map(|n| format!("{n}"))).await;
    let entries = ground.all(ground.dir, false).await;
    for begins_anew in [false, true] {
        let mut listing = ground.vfs.opendir(ground.dir, PATIENCE);
        for at in [0, 1, ground.promises.many / 2, ground.promises.many - 1, 17] {
            if begins_anew {
                listing = ground.vfs.opendir(ground.dir, PATIENCE);
            }
            listing.seek(entries[at].place);
            let rest = ground.next(&mut listing, false, 700).await;
            let wanted = &entries[at + 1..(at + 701).min(ground.promises.many)];
            assert_eq!(rest, wanted, "after entry {at}");
        }
    }
}

pub(super) async fn only_directories_are_listed<V: Vfs>(ground: &Ground<'_, V>) {
    let (file, _open) = ground.file("file").await;
    let listed = ground.vfs.opendir(file.handle, PATIENCE).next(true).await;
    ground.fails(listed.map(|listed| listed.map(|listed| listed.entry)), Status::NotDirectory);
    ground.fails(ground.vfs.names(file.handle).await, Status::NotDirectory);
    let gone = ground.ok(ground.vfs.mkdir(ground.dir, &name("gone"), DIR_OWNER).await).handle;
    ground.ok(ground.vfs.rmdir(ground.dir, &name("gone")).await);
    let listed = ground.vfs.opendir(gone, PATIENCE).next(true).await;
    ground.fails(listed.map(|listed| listed.map(|listed| listed.entry)), Status::Stale);
    ground.fails(ground.vfs.names(gone).await, Status::Stale);
}
