//! Compaction: frees the space of removed and overwritten data in the composed store.
//!
//! 1. Compaction copies the live records from the blocks of writers that have ended into blocks of its own.
//!    A copy keeps the stamp of its record, so a reader that finds both versions of a record gets the same
//!    result.
//! 2. It publishes a list of the old extents with one rename. From then on readers ignore these extents.
//! 3. Only then it frees the extents: it replaces their blocks by holes, syncs, and removes their *claims*
//!    (the entry by which a writer reserved an extent).
//!
//! While another writer runs, removed directories are copied too: that writer may have made a name in one of
//! them that is not published yet, and the name restores the directory.
//!
//! If compaction is killed before the rename, the old blocks stay valid. If it is killed after the rename,
//! the next compaction frees the remaining space.

use super::format::{Changed, DATA_HEAD, Made, Op, Record, Stamp};
use super::lanes::Extent;
use super::object::{NOWHERE, Object};
use super::tools::Compacted;
use super::{Composed, Shared, names_of};
use crate::writer_id::WriterId;
use bytes::Bytes;
use shoal_proto::{Allocation, Kind, Status};
use shoal_vfs::{Error, RenameFlags, Result, Vfs, VfsFile};
use std::collections::BTreeSet;
use std::rc::Rc;

/// Extents that one list of retired ones has, at most: a longer list would not be read.
pub(super) const RETIRED_AT_ONCE: usize = 1_000_000;
/// Bytes that are made zero at once where the file system below has no holes.
const ERASED_AT_ONCE: u64 = 1 << 20;

/// The records that a compaction keeps beside those of objects with names.
#[derive(Clone, Copy, PartialEq, Eq)]
enum KeptRecords {
    /// None: no other record is left, so none needs to be kept from coming back.
    Live,
    /// Removals of names: blocks that stay may have older records of these names.
    Removals,
    /// Removed directories too: a running writer may have made a name in one that is not published yet.
    Unpublished,
}

/// Give back the space of what was removed and overwritten. Blocks of running writers stay.
///
/// # Errors
/// Errors of the file system below; then nothing was taken, or the next one finishes it.
pub async fn compact<B: Vfs>(composed: &Composed<B>, mut each: impl FnMut(u64, u64)) -> Result<Compacted> {
    let shared = &composed.0;
    shared.check_writable()?;
    let settings = names_of::name(names_of::SETTINGS)?;
    let rights = shoal_proto::Rights::READ | shoal_proto::Rights::WRITE;
    let lock = shared.over.open_name(shared.root, &settings, rights).await?;
    match lock.hold_alone().await {
        Ok(true) => {}
        Ok(false) => {
            let words = "another process compacts it, or begins to use it: try again";
            return Err(Error::new(Status::Busy, "compact").because(words));
        }
        Err(error) if error.status == Status::NotSupported => {
            let words = "the file system below has no locks, so it cannot be known which writers run";
            return Err(error.because(words));
        }
        Err(error) => return Err(error),
    }
    let done = shared.compact_all(RETIRED_AT_ONCE, &mut each).await;
    lock.close().await?;
    done
}

/// Make zeros of a range, as a hole if the file system below has holes. Whole blocks become zeros, not only
/// their headers: a reader of the next writer's block would find the old records right after the new ones.
async fn erase<F: VfsFile>(file: &F, offset: u64, len: u64) -> Result<()> {
    match file.allocate(offset, len, Allocation::Punch).await {
        Err(error) if error.status == Status::NotSupported => {}
        punched => return punched,
    }
    let (mut at, end) = (offset, offset + len);
    while at < end {
        let part = file.read(at, ERASED_AT_ONCE.min(end - at) as usize).await?;
        if part.is_empty() {
            break;
        }
        if part.iter().any(|byte| *byte != 0) {
            file.write(at, Bytes::from(vec![0; part.len()])).await?;
        }
        at += part.len() as u64;
    }
    Ok(())
}

impl<B: Vfs> Shared<B> {
    /// Compact it in as many rounds as it needs, each of so many extents at most.
    pub(super) async fn compact_all(
        self: &Rc<Self>,
        at_once: usize,
        each: &mut impl FnMut(u64, u64),
    ) -> Result<Compacted> {
        let mut all = Compacted::default();
        loop {
            let (done, is_last) = self.compact(at_once, each).await?;
            all.extents += done.extents;
            all.given_back += done.given_back;
            all.moved += done.moved;
            if is_last {
                return Ok(all);
            }
        }
    }

    /// One round; whether it took all extents that there are to take.
    async fn compact(
        self: &Rc<Self>,
        at_once: usize,
        each: &mut impl FnMut(u64, u64),
    ) -> Result<(Compacted, bool)> {
        let mut done = Compacted::default();
        // First the extents that a killed compaction left are given back.
        let claims = self.claims().await?;
        let left: Vec<(Extent, WriterId)> = self.retired(claims.epoch).await?.into_iter().collect();
        self.give_back_extents(&left, &mut done).await?;
        self.read_anew().await?;
        let claims = self.claims().await?;
        let known = self.known.borrow().clone();
        let mut taken = Vec::new();
        for extent in claims.extents.iter().filter(|extent| !self.log.own.borrow().contains_key(extent)) {
            let by = match known.get(extent).and_then(|known| known.writer) {
                Some(writer) => Some(writer),
                None => self.claimant(*extent).await?,
            };
            if let Some(writer) = by
                && self.has_ended(writer, &claims).await?
            {
                taken.push((*extent, writer));
            }
        }
        if taken.is_empty() {
            return Ok((done, true));
        }
        let is_last = taken.len() <= at_once;
        taken.truncate(at_once);
        // They have ended: what is read now is all that they wrote.
        self.refresh().await?;
        let (before, epoch) = (self.known_bytes(), claims.next_epoch()?);
        let own = self.log.id.get();
        let others_run = claims.writers.iter().any(|writer| *writer != own);
        let kept = match (others_run, taken.len() == claims.extents.len()) {
            (true, _) => KeptRecords::Unpublished,
            (false, true) => KeptRecords::Live,
            (false, false) => KeptRecords::Removals,
        };
        self.move_live(&taken, kept, each).await?;
        done.moved = self.known_bytes().saturating_sub(before);
        self.sync().await?;
        self.retire(&taken, epoch).await?;
        self.give_back_extents(&taken, &mut done).await?;
        self.read_anew().await?;
        for old in self.over.names(self.claims).await? {
            let number = std::str::from_utf8(old.as_bytes()).ok().and_then(names_of::epoch);
            if number.is_none_or(|number| number >= epoch) {
                continue;
            }
            if let Err(error) = self.over.unlink(self.claims, &old).await
                && error.status != Status::NotFound
            {
                return Err(error);
            }
        }
        Ok((done, is_last))
    }

    fn known_bytes(&self) -> u64 {
        let (begun, ..) = self.log.counts.get();
        begun * u64::from(self.settings.block)
    }

    /// The writer in a claim.
    pub(super) async fn claimant(&self, extent: Extent) -> Result<Option<WriterId>> {
        let Some(name) = extent.claim() else { return Ok(None) };
        let found = self.over.lookup(self.claims, &name).await?;
        let target = match self.over.readlink(found.handle).await {
            // It is no link: not of this program.
            Err(error) if error.status == Status::Invalid => return Ok(None),
            // It was given back since it was looked up.
            Err(error) if error.status == Status::Stale => {
                return Err(Error::new(Status::NotFound, "readlink").of(found.handle));
            }
            target => target?,
        };
        Ok(std::str::from_utf8(&target).ok().and_then(WriterId::parse))
    }

    /// Publish with one rename that the records in these extents do not count any more.
    pub(super) async fn retire(&self, taken: &[(Extent, WriterId)], epoch: u64) -> Result<()> {
        let mut text = String::new();
        taken.iter().for_each(|(extent, writer)| text += &format!("{} {writer}\n", extent.name()));
        text += "end\n";
        let aside = names_of::name(&format!("t.{}", WriterId::draw(&self.env)))?;
        self.write_aside(self.claims, &aside, Bytes::from(text.into_bytes())).await?;
        let flags = RenameFlags { no_replace: true, exchange: false };
        self.over.rename(self.claims, &aside, self.claims, &names_of::retired(epoch)?, flags).await?;
        self.over.fsync_directory(self.claims).await
    }

    /// Make zeros of all blocks of an extent.
    pub(super) async fn erase_extent(&self, extent: Extent) -> Result<()> {
        let block = u64::from(self.settings.block);
        let (offset, len) = (extent.first() * block, u64::from(extent.blocks()) * block);
        erase(self.blocks.file(extent.file)?, offset, len).await
    }

    /// Make holes of extents that were retired, and remove their claims.
    pub(super) async fn give_back_extents(
        &self,
        taken: &[(Extent, WriterId)],
        done: &mut Compacted,
    ) -> Result<()> {
        let mut mine = Vec::new();
        for (extent, writer) in taken {
            // One that was claimed again meanwhile is its new writer's.
            match self.claimant(*extent).await {
                Ok(Some(by)) if by == *writer => mine.push(*extent),
                Ok(_) => {}
                Err(error) if error.status == Status::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        let block = u64::from(self.settings.block);
        for extent in &mine {
            self.erase_extent(*extent).await?;
        }
        self.sync_blocks().await?;
        for extent in &mine {
            if let Some(name) = extent.claim() {
                self.over.unlink(self.claims, &name).await?;
            }
            done.extents += 1;
            done.given_back += u64::from(extent.blocks()) * block;
        }
        Ok(())
    }

    /// Write what lives in these extents anew, with its stamps. All facts are written: those that stand in
    /// blocks that stay are found twice, which changes nothing.
    async fn move_live(
        self: &Rc<Self>,
        taken: &[(Extent, WriterId)],
        kept: KeptRecords,
        each: &mut impl FnMut(u64, u64),
    ) -> Result<()> {
        let taken: BTreeSet<Extent> = taken.iter().map(|(extent, _)| *extent).collect();
        let names = self.names.borrow().clone();
        let all = names.objects.len() as u64;
        for (n, (number, object)) in names.objects.iter().enumerate() {
            if n % 256 == 0 {
                each(n as u64, all);
            }
            let is_fillable = kept == KeptRecords::Unpublished && object.kind() == Some(Kind::Directory);
            if names.has_name(*number) || is_fillable {
                self.move_object(*number, object, &taken).await?;
            }
        }
        let is_all = |live: bool| live || kept != KeptRecords::Live;
        for (dir, entries) in names.dirs.iter().filter(|(dir, _)| is_all(names.has_name(**dir))) {
            for (name, leads) in entries.names.iter().filter(|(_, leads)| is_all(leads.object != 0)) {
                let bind = super::format::Bind { dir: *dir, name: name.clone(), object: leads.object };
                self.replay(Record { stamp: leads.stamp, object: 0, op: Op::Bind(vec![bind]) }).await?;
            }
        }
        each(all, all);
        Ok(())
    }

    async fn move_object(
        self: &Rc<Self>,
        number: u64,
        object: &Object,
        taken: &BTreeSet<Extent>,
    ) -> Result<()> {
        let Some(origin) = &object.origin else { return Ok(()) };
        // A name that was taken from it stays taken: the newer record of that is kept too.
        if let Some((dir, name)) = object.links.first().or(object.last.value.as_ref()) {
            let made = Made {
                kind: origin.kind,
                mode: object.mode.value,
                uid: object.uid.value,
                gid: object.gid.value,
                rdev: origin.rdev,
                dir: *dir,
                name: name.clone(),
                target: origin.target.clone(),
            };
            // Of one object the oldest creation counts, and of its name the newest record: this is no newer
            // than both.
            self.replay(Record { stamp: origin.stamp, object: number, op: Op::Create(made) }).await?;
        }
        for (stamp, size) in &object.cuts {
            self.replay(Record { stamp: *stamp, object: number, op: Op::Size(*size) }).await?;
        }
        for (at, stored) in &object.stored {
            let is_taken = stored.place != NOWHERE && taken.contains(&Extent::of_place(stored.place).0);
            if stored.place == NOWHERE {
                let op = Op::Hole { offset: *at, len: stored.len };
                self.replay(Record { stamp: stored.stamp, object: number, op }).await?;
            } else if is_taken {
                let bytes = self
                    .bytes_of(*stored)
                    .await?
                    .ok_or_else(|| super::name_space::lost_block(stored.place))?;
                self.replay_data(number, *at, stored.stamp, bytes).await?;
            }
        }
        let stored = object.stored.iter().filter(|(_, stored)| stored.place != NOWHERE);
        let shown = stored.map(|(at, stored)| at + stored.len).max().unwrap_or(0);
        // A size that bytes do not show any more. It is the largest: the cut takes nothing.
        if let Some((stamp, size)) = object.sizes.first().filter(|(_, size)| *size > shown) {
            self.replay(Record { stamp: *stamp, object: number, op: Op::Size(*size) }).await?;
        }
        let register =
            |stamp: u128, changed: Changed| Record { stamp, object: number, op: Op::Attributes(changed) };
        let none = Changed::default();
        let mut records = vec![
            register(object.mode.stamp, Changed { mode: Some(object.mode.value), ..none }),
            register(object.uid.stamp, Changed { uid: Some(object.uid.value), ..none }),
            register(object.gid.stamp, Changed { gid: Some(object.gid.value), ..none }),
            register(object.atime.stamp, Changed { atime: Some(object.atime.value), ..none }),
            register(object.mtime.stamp, Changed { mtime: Some(object.mtime.value), ..none }),
            register(object.ctime.stamp, Changed { ctime: Some(object.ctime.value), ..none }),
        ];
        for (name, value) in &object.xattrs {
            let op = Op::Xattr(name.clone(), value.value.clone());
            records.push(Record { stamp: value.stamp, object: number, op });
        }
        for record in records {
            self.replay(record).await?;
        }
        Ok(())
    }

    /// Log a record again, with its own stamp.
    async fn replay(self: &Rc<Self>, record: Record) -> Result<()> {
        let _turn = self.log.turn.acquire(1).await;
        let bytes = record.encode(&[]);
        self.room(bytes.len()).await?;
        self.push(&record, &bytes)
    }

    /// Log bytes again, with their stamp.
    async fn replay_data(
        self: &Rc<Self>,
        object: u64,
        mut offset: u64,
        stamp: Stamp,
        mut data: Bytes,
    ) -> Result<()> {
        let _turn = self.log.turn.acquire(1).await;
        while !data.is_empty() {
            let free = self.free();
            if free < DATA_HEAD + data.len().min(512) {
                self.next_block().await?;
                continue;
            }
            let part = data.split_to(data.len().min(free - DATA_HEAD));
            let record = Record { stamp, object, op: Op::Data { offset, len: part.len() as u64 } };
            self.push(&record, &record.encode(&part))?;
            offset += part.len() as u64;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ComposedOptions, Wishes};
    use shoal_env::real;
    use shoal_proto::{Handle, Owner, Rights};
    use shoal_vfs::{AnyVfs, Connect, LocalOptions};
    use std::cell::{Cell, RefCell};

    /// A file of a file system without holes.
    #[derive(Clone, Default)]
    struct WithoutHoles(Rc<(RefCell<Vec<u8>>, Cell<usize>)>);

    impl VfsFile for WithoutHoles {
        type PageCounts = ();

        fn handle(&self) -> Handle {
            Handle::ROOT
        }

        fn rights(&self) -> Rights {
            Rights::READ | Rights::WRITE
        }

        fn again(&self) -> WithoutHoles {
            self.clone()
        }

        async fn read(&self, offset: u64, len: usize) -> Result<Bytes> {
            self.0.1.set(self.0.1.get().max(len));
            let bytes = self.0.0.borrow();
            let from = bytes.len().min(offset as usize);
            Ok(Bytes::copy_from_slice(&bytes[from..bytes.len().min(from + len)]))
        }

        async fn write(&self, offset: u64, data: Bytes) -> Result<()> {
            self.0.0.borrow_mut()[offset as usize..][..data.len()].copy_from_slice(&data);
            Ok(())
        }

        async fn append(&self, _: Bytes) -> Result<u64> {
            Err(Error::new(Status::NotSupported, "append"))
        }

        async fn fsync(&self) -> Result<()> {
            Ok(())
        }

        async fn allocate(&self, _: u64, _: u64, _: Allocation) -> Result<()> {
            Err(Error::new(Status::NotSupported, "fallocate"))
        }

        async fn close(self) -> Result<()> {
            Ok(())
        }
    }

    /// A list of retired extents has a million of them at most.
    #[test]
    fn a_compaction_in_several_rounds_keeps_all_contents_and_takes_all_extents() {
        let dir = tempfile::tempdir().unwrap();
        real::run("test", move |env| async move {
            let open = async || {
                let over = LocalOptions::new(dir.path());
                ComposedOptions { over, wishes: Wishes::default() }.connect(env.clone()).await.unwrap()
            };
            let name = |n: u8| names_of::name(&format!("{n}")).unwrap();
            let (owner, both) = (Owner { mode: 0o644, uid: 0, gid: 0 }, Rights::READ | Rights::WRITE);
            for n in 0..11 {
                let vfs = open().await;
                let (_, _, file) = vfs.create(Handle::ROOT, &name(n), owner, true, both).await.unwrap();
                file.write(0, Bytes::from(vec![n; 1000])).await.unwrap();
                file.close().await.unwrap();
                // Its making is in the block of the writer before.
                if n % 3 == 1 {
                    vfs.unlink(Handle::ROOT, &name(n - 1)).await.unwrap();
                }
                vfs.close().await;
            }
            let check = async |vfs: &Composed<AnyVfs>| {
                for n in 0..11 {
                    match vfs.open_name(Handle::ROOT, &name(n), Rights::READ).await {
                        Ok(file) => assert_eq!(file.read(0, 2000).await.unwrap(), vec![n; 1000]),
                        Err(error) => assert!(n % 3 == 0 && n < 10, "{n}: {error}"),
                    }
                }
            };
            let (reader, tool) = (open().await, open().await);
            let before = tool.0.claims().await.unwrap().extents;
            let done = tool.0.compact_all(2, &mut |_, _| {}).await.unwrap();
            assert_eq!((before.len(), done.extents), (11, 11));
            assert_eq!(tool.0.epoch.get(), 6);
            for vfs in [&tool, &reader, &open().await] {
                check(vfs).await;
            }
            tool.close().await;
            check(&open().await).await;
        });
    }

    #[test]
    fn nothing_of_an_erased_block_is_left_where_the_file_system_below_has_no_holes() {
        real::run("test", |_| async {
            const BLOCK: usize = 3 << 20;
            let file = WithoutHoles::default();
            // Another's blocks, two that are erased, the second of them not whole; the file ends there.
            *file.0.0.borrow_mut() = vec![7; 2 * BLOCK + 1_000_001];
            erase(&file, BLOCK as u64, 4 * BLOCK as u64).await.unwrap();
            let bytes = file.0.0.borrow();
            assert_eq!(bytes.len(), 2 * BLOCK + 1_000_001);
            assert!(bytes[..BLOCK].iter().all(|byte| *byte == 7));
            assert_eq!(bytes[BLOCK..].iter().position(|byte| *byte != 0), None);
            assert!(file.0.1.get() <= 1 << 20, "{} bytes at once", file.0.1.get());
        });
    }
}
