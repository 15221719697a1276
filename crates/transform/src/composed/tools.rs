//! Tools for composed directories: what they hold, damage, and the space of what was removed.
//!
//! **Compaction** writes what lives in blocks of ended writers anew, into blocks of its own, with the old
//! stamps, so a record that is found twice changes nothing. Then it publishes a list of the extents that it
//! took, with one rename: from there on they do not count. Only after that they are given back: their blocks
//! become holes, that is made durable, and their claims are removed. A kill before the rename leaves the old
//! blocks in force, and one after it leaves space that the next compaction gives back.

use super::format::{Changed, HEADER_BYTES, Made, Op, Record, Records};
use super::lanes::Extent;
use super::object::{NOWHERE, Object};
use super::scan::names_in;
use super::{Composed, Shared, names_of};
use crate::writer_id::WriterId;
use bytes::Bytes;
use shoal_proto::{Allocation, Handle, Status};
use shoal_vfs::{Error, RenameFlags, Result, Vfs, VfsFile};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// A list of retired extents is not longer.
const RETIRED_BYTES_MAX: usize = 64 << 20;

/// A block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Block {
    /// Its physical file.
    pub file: u16,
    /// Its number there.
    pub number: u64,
    /// Whose it is.
    pub writer: WriterId,
    /// Its number among that writer's.
    pub sequence: u64,
    /// Bytes of records.
    pub used: u64,
    /// Bytes of files that live.
    pub live: u64,
}

/// What is in a directory.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Facts {
    /// Files with a name.
    pub files: u64,
    /// Directories with a name, and the root.
    pub directories: u64,
    /// Bytes of files that live.
    pub live: u64,
    /// Bytes that blocks hold.
    pub used: u64,
    /// Claims.
    pub claims: u64,
    /// Writers that have not ended.
    pub writers: u64,
}

/// What a compaction did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Compacted {
    /// Extents that were given back.
    pub extents: u64,
    /// Their blocks' bytes.
    pub given_back: u64,
    /// Bytes of records that were written anew.
    pub moved: u64,
}

/// All blocks that hold something, in the order of their places; `each` receives progress: extents done, of
/// all.
///
/// # Errors
/// Errors of the file system below.
pub async fn map<B: Vfs>(composed: &Composed<B>, mut each: impl FnMut(u64, u64)) -> Result<Vec<Block>> {
    let shared = &composed.0;
    shared.refresh().await?;
    let live = shared.live_by_place(|_| true);
    let claims = shared.claims().await?;
    let (mut blocks, all) = (Vec::new(), claims.extents.len() as u64);
    for (n, extent) in claims.extents.iter().enumerate() {
        each(n as u64, all);
        for place in shared.block_places(*extent) {
            let bytes = shared.blocks.raw(place, 0, shared.settings.block as usize).await?;
            let Some(header) = shared.blocks.header(place, &bytes)? else { continue };
            let mut records = Records::new(&bytes, HEADER_BYTES);
            records.by_ref().for_each(drop);
            let (file, number) = super::lanes::split(place);
            blocks.push(Block {
                file,
                number,
                writer: header.writer,
                sequence: header.sequence,
                used: records.position() as u64,
                live: live.get(&place).copied().unwrap_or(0),
            });
        }
    }
    each(all, all);
    blocks.sort_by_key(|block| (block.file, block.number));
    Ok(blocks)
}

/// What is in a directory. Each block is looked at.
///
/// # Errors
/// Errors of the file system below.
pub async fn facts<B: Vfs>(composed: &Composed<B>) -> Result<Facts> {
    let blocks = map(composed, |_, _| {}).await?;
    let claims = composed.0.claims().await?;
    let names = composed.0.names.borrow();
    let mut facts = Facts {
        used: blocks.iter().map(|block| block.used).sum(),
        claims: claims.extents.len() as u64,
        writers: claims.writers.len() as u64,
        ..Facts::default()
    };
    for (number, object) in &names.objects {
        if names.has_name(*number) && object.origin.is_some() {
            match object.kind() {
                Some(shoal_proto::Kind::Directory) => facts.directories += 1,
                _ => facts.files += 1,
            }
            facts.live += object.space();
        }
    }
    Ok(facts)
}

/// Look at each block, and say what is damaged, foreign or left over.
///
/// # Errors
/// Errors of the file system below.
pub async fn check<B: Vfs>(composed: &Composed<B>, mut each: impl FnMut(u64, u64)) -> Result<Vec<String>> {
    let shared = &composed.0;
    shared.refresh().await?;
    let claims = shared.claims().await?;
    let mut found = Vec::new();
    for name in &claims.foreign {
        found.push(format!(
            "claims/{name} is not of this program, or claims more than a file can be: move it away"
        ));
    }
    for name in names_in(&shared.over, shared.marks).await? {
        let at = shared.over.lookup(shared.marks, &name).await?;
        let target = shared.over.readlink(at.handle).await.unwrap_or_default();
        if names_of::marked(&target).is_none() {
            found.push(format!("names/{name} is not a marker of this program: move it away"));
        }
    }
    let mut places: BTreeMap<WriterId, BTreeMap<u64, u64>> = BTreeMap::new();
    let mut next: BTreeMap<u64, u64> = BTreeMap::new();
    let all = claims.extents.len() as u64;
    for (n, extent) in claims.extents.iter().enumerate() {
        each(n as u64, all);
        shared.check_extent(*extent, &mut found, &mut places, &mut next).await?;
    }
    each(all, all);
    let there: BTreeSet<u64> = places.values().flat_map(|blocks| blocks.values().copied()).collect();
    for (place, wanted) in next.iter().filter(|(_, wanted)| !there.contains(wanted)) {
        // The writer is about to write it, or was killed before it did.
        let writer = places.iter().find(|(_, blocks)| blocks.values().any(|at| at == place));
        let is_last =
            writer.and_then(|(_, blocks)| blocks.last_key_value()).is_some_and(|(_, at)| at == place);
        if !is_last {
            found.push(format!("{} is missing: its bytes are lost", words(*wanted)));
        }
    }
    for (writer, blocks) in &places {
        let count = blocks.last_key_value().map_or(0, |(last, _)| last + 1);
        for sequence in (0..count).filter(|sequence| !blocks.contains_key(sequence)) {
            let first = blocks.first_key_value().map_or(0, |(first, _)| *first);
            if sequence > first {
                found.push(format!("block {sequence} of writer {writer} is missing: its bytes are lost"));
            }
        }
    }
    for (object, path) in shared.paths() {
        let pieces = shared.names.borrow().objects.get(&object).map(|found| found.pieces(0, u64::MAX));
        for (at, stored) in pieces.unwrap_or_default() {
            let (from, len) = (stored.at as usize, stored.len as usize);
            let is_own = shared.log.buffered(stored.place, from, len).is_some();
            if !is_own && shared.blocks.bytes(stored.place, from, len).await?.is_none() {
                found.push(format!("{path}: {len} bytes at {at} are lost with {}", words(stored.place)));
            }
        }
    }
    Ok(found)
}

fn words(place: u64) -> String {
    let (file, block) = super::lanes::split(place);
    format!("block {block} of blocks.{file}")
}

impl<B: Vfs> Shared<B> {
    fn block_places(&self, extent: Extent) -> impl Iterator<Item = u64> + use<B> {
        (0..extent.len()).map(move |block| extent.place(block))
    }

    /// Live bytes of blocks.
    fn live_by_place(&self, wanted: impl Fn(u64) -> bool) -> BTreeMap<u64, u64> {
        let names = self.names.borrow();
        let mut live = BTreeMap::new();
        for (number, object) in names.objects.iter() {
            if names.has_name(*number) || self.is_open(*number) {
                for stored in
                    object.stored.values().filter(|stored| stored.place != NOWHERE && wanted(stored.place))
                {
                    *live.entry(stored.place).or_default() += stored.len;
                }
            }
        }
        live
    }

    /// The files, with a path of each.
    fn paths(&self) -> Vec<(u64, String)> {
        let names = self.names.borrow();
        let mut paths = Vec::new();
        for (number, object) in names.objects.iter().filter(|(_, object)| !object.stored.is_empty()) {
            let (mut parts, mut at, mut steps) = (Vec::new(), object.links.first(), 0);
            if at.is_none() {
                continue;
            }
            while let Some((dir, name)) = at.filter(|_| steps < 4096) {
                parts.push(name.to_string());
                at =
                    names.objects.get(dir).filter(|_| *dir != Handle::ROOT.0).and_then(|up| up.links.first());
                steps += 1;
            }
            parts.reverse();
            paths.push((*number, parts.join("/")));
        }
        paths
    }

    async fn check_extent(
        &self,
        extent: Extent,
        found: &mut Vec<String>,
        places: &mut BTreeMap<WriterId, BTreeMap<u64, u64>>,
        next: &mut BTreeMap<u64, u64>,
    ) -> Result<()> {
        let mut extent_is = None;
        for place in self.block_places(extent) {
            let bytes = self.blocks.raw(place, 0, self.settings.block as usize).await?;
            let header = match self.blocks.header(place, &bytes) {
                Ok(header) => header,
                Err(error) => {
                    found.push(format!("{}: {}", words(place), error.words));
                    continue;
                }
            };
            let Some(header) = header else {
                if bytes.iter().any(|byte| *byte != 0) {
                    found.push(format!(
                        "{} is no block of this directory: overwritten, or of another directory with the same file",
                        words(place)
                    ));
                }
                continue;
            };
            if self.retired.borrow().contains(&(extent, header.writer)) {
                continue;
            }
            if *extent_is.get_or_insert(header.writer) != header.writer {
                found.push(format!("{} is another writer's than the blocks beside it", words(place)));
                continue;
            }
            if let Some(other) = places.entry(header.writer).or_default().insert(header.sequence, place) {
                found.push(format!("{} and {} have one number", words(place), words(other)));
            }
            let mut records = Records::new(&bytes, HEADER_BYTES);
            for (record, _) in records.by_ref() {
                if let Op::Next(at) = record.op {
                    next.insert(place, at);
                }
            }
            if records.is_torn() {
                let at = records.position();
                found.push(format!("{} is torn at byte {at}: what followed there is lost", words(place)));
            }
        }
        Ok(())
    }

    /// The extents that a compaction took.
    pub(super) async fn retired(&self, epoch: u64) -> Result<BTreeSet<(Extent, WriterId)>> {
        if epoch == 0 {
            return Ok(BTreeSet::new());
        }
        let name = names_of::name(&format!("r.{epoch}"))?;
        let file = self.over.open_name(self.claims, &name, shoal_proto::Rights::READ).await?;
        let bytes = file.read(0, RETIRED_BYTES_MAX).await?;
        file.close().await?;
        let damaged = || {
            let remedy = "restore it from a copy, or, if all bytes are to count again, remove it";
            super::scan::damaged(&format!("its list `claims/{name}`"), remedy)
        };
        let text = std::str::from_utf8(&bytes).map_err(|_| damaged())?;
        let body = text.strip_suffix("end\n").ok_or_else(damaged)?;
        let parse = |line: &str| {
            let (extent, writer) = line.split_once(' ')?;
            let extent = Extent::parse(extent.as_bytes(), self.settings.files, self.settings.block)?;
            Some((extent, WriterId::parse(writer)?))
        };
        body.lines().map(|line| parse(line).ok_or_else(damaged)).collect()
    }
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
    match lock.lock().await {
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
    let done = shared.compact(&mut each).await;
    lock.close().await?;
    done
}

impl<B: Vfs> Shared<B> {
    async fn compact(self: &Rc<Self>, each: &mut impl FnMut(u64, u64)) -> Result<Compacted> {
        let mut done = Compacted::default();
        // What a killed one left is given back first.
        let claims = self.claims().await?;
        let left: Vec<(Extent, WriterId)> = self.retired(claims.epoch).await?.into_iter().collect();
        self.give_back_extents(&left, &mut done).await?;
        self.read_anew().await?;
        let claims = self.claims().await?;
        let known = self.known.borrow().clone();
        let mut taken = Vec::new();
        for extent in claims.extents.iter().filter(|extent| !self.log.own.borrow().contains(extent)) {
            let by = match known.get(extent).and_then(|known| known.writer) {
                Some(writer) => Some(writer),
                None => self.claimant(*extent).await?,
            };
            if let Some(writer) = by.filter(|writer| !claims.writers.contains(writer)) {
                taken.push((*extent, writer));
            }
        }
        if taken.is_empty() {
            return Ok(done);
        }
        let before = self.known_bytes();
        let is_all = taken.len() == claims.extents.len();
        self.move_live(&taken, is_all, each).await?;
        done.moved = self.known_bytes().saturating_sub(before);
        self.sync().await?;
        let epoch = claims.epoch + 1;
        let mut text = String::new();
        taken.iter().for_each(|(extent, writer)| text += &format!("{} {writer}\n", extent.name()));
        text += "end\n";
        let aside = names_of::name(&format!("t.{}", WriterId::draw(&self.env)))?;
        self.write_aside(self.claims, &aside, Bytes::from(text.into_bytes())).await?;
        let name = names_of::name(&format!("r.{epoch}"))?;
        let flags = RenameFlags { no_replace: true, exchange: false };
        self.over.rename(self.claims, &aside, self.claims, &name, flags).await?;
        self.over.fsync_directory(self.claims).await?;
        self.give_back_extents(&taken, &mut done).await?;
        self.read_anew().await?;
        for old in 1..epoch {
            let old = names_of::name(&format!("r.{old}"))?;
            if let Err(error) = self.over.unlink(self.claims, &old).await
                && error.status != Status::NotFound
            {
                return Err(error);
            }
        }
        Ok(done)
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
            target => target?,
        };
        Ok(std::str::from_utf8(&target).ok().and_then(WriterId::parse))
    }

    /// Make holes of extents, and remove their claims.
    async fn give_back_extents(&self, taken: &[(Extent, WriterId)], done: &mut Compacted) -> Result<()> {
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
            let (file, len) = (self.blocks.file(extent.file)?, u64::from(extent.len()) * block);
            let offset = extent.first() * block;
            match file.allocate(offset, len, Allocation::Punch).await {
                Err(error) if error.status == Status::NotSupported => {
                    for n in 0..u64::from(extent.len()) {
                        let at = offset + n * block;
                        if !file.read(at, 1).await?.is_empty() {
                            file.write(at, Bytes::from_static(&[0; HEADER_BYTES])).await?;
                        }
                    }
                }
                punched => punched?,
            }
        }
        for file in self.blocks.files() {
            file.fsync().await?;
        }
        for extent in &mine {
            if let Some(name) = extent.claim() {
                self.over.unlink(self.claims, &name).await?;
            }
            done.extents += 1;
            done.given_back += u64::from(extent.len()) * block;
        }
        Ok(())
    }

    /// Write what lives in these extents anew, with its stamps. All facts are written: those that stand in
    /// blocks that stay are found twice, which changes nothing.
    async fn move_live(
        self: &Rc<Self>,
        taken: &[(Extent, WriterId)],
        is_all: bool,
        each: &mut impl FnMut(u64, u64),
    ) -> Result<()> {
        let taken: BTreeSet<Extent> = taken.iter().map(|(extent, _)| *extent).collect();
        let names = self.names.borrow().clone();
        let all = names.objects.len() as u64;
        for (n, (number, object)) in names.objects.iter().enumerate() {
            if n % 256 == 0 {
                each(n as u64, all);
            }
            if names.has_name(*number) || *number == Handle::ROOT.0 {
                self.move_object(*number, object, &taken).await?;
            }
        }
        for (dir, entries) in names.dirs.iter().filter(|(dir, _)| !is_all || names.has_name(**dir)) {
            // If no other record is left, none needs to be kept from coming back.
            for (name, leads) in entries.names.iter().filter(|(_, leads)| !is_all || leads.object != 0) {
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
        if let Some((dir, name)) = object.links.first() {
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
            // Of one object, the oldest creation counts, and for the name the newest: this is no newer than both.
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
                let bytes = self.blocks.bytes(stored.place, stored.at as usize, stored.len as usize).await?;
                let bytes = bytes.ok_or_else(|| super::name_space::lost_block(stored.place))?;
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
}
