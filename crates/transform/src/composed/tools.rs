//! Tools for composed directories: list the blocks, count the contents, compact, and find damage.

use super::format::{HEADER_BYTES, Op, Records};
use super::lanes::Extent;
use super::marks::MarkedBy;
use super::object::NOWHERE;
use super::{Composed, Shared, names_of};
use crate::writer_id::WriterId;
use shoal_proto::{Handle, Name};
use shoal_vfs::{Result, Vfs, VfsFile};
use std::collections::{BTreeMap, BTreeSet};

pub use super::compact::compact;

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

/// The contents of a directory.
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

/// The results of a compaction.
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

/// The contents of a directory. Each block is read.
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
    for name in shared.over.names(shared.marks).await? {
        if names_of::token_of(&name).is_none() && shared.marked_by(&name).await? == MarkedBy::Foreign {
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
        // A damaged header may have any number: the gaps count, not the blocks in them.
        for (before, after) in blocks.keys().zip(blocks.keys().skip(1)) {
            match (before + 1, after - 1) {
                (first, last) if first > last => {}
                (one, last) if one == last => {
                    found.push(format!("block {one} of writer {writer} is missing: its bytes are lost"));
                }
                (first, last) => found.push(format!(
                    "blocks {first} to {last} of writer {writer} are missing: their bytes are lost"
                )),
            }
        }
    }
    let reached = shared.reached();
    found.extend(shared.unreached(&reached));
    for (object, path) in shared.paths(&reached) {
        let pieces = shared.names.borrow().objects.get(&object).map(|found| found.pieces(0, u64::MAX));
        for (at, stored) in pieces.unwrap_or_default() {
            if shared.bytes_of(stored).await?.is_none() {
                let len = stored.len;
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
        (0..extent.blocks()).map(move |block| extent.place(block))
    }

    /// Live bytes of blocks.
    pub(super) fn live_by_place(&self, wanted: impl Fn(u64) -> bool) -> BTreeMap<u64, u64> {
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

    /// The objects to which a path leads from the root.
    fn reached(&self) -> BTreeSet<u64> {
        let names = self.names.borrow();
        let (mut reached, mut rest) = (BTreeSet::from([Handle::ROOT.0]), vec![Handle::ROOT.0]);
        while let Some(dir) = rest.pop() {
            let entries = names.dirs.get(&dir).into_iter().flat_map(|entries| entries.names.values());
            let inner = entries.map(|leads| leads.object).filter(|object| *object != 0);
            rest.extend(inner.filter(|object| reached.insert(*object)));
        }
        reached
    }

    /// Names that no path from the root reaches, in words.
    fn unreached(&self, reached: &BTreeSet<u64>) -> Vec<String> {
        let names = self.names.borrow();
        let cut_off = names.objects.iter().filter(|(number, _)| !reached.contains(number));
        let words = |(dir, name): &(u64, Name)| {
            format!(
                "no path from the root reaches `{name}` of directory {dir:x}: processes moved directories into each \
                 other, or removed one, at the same time: restore it from a copy"
            )
        };
        cut_off.filter_map(|(_, object)| object.links.first()).map(words).collect()
    }

    /// The files, with a path of each.
    fn paths(&self, reached: &BTreeSet<u64>) -> Vec<(u64, String)> {
        let names = self.names.borrow();
        let mut paths = Vec::new();
        for (number, object) in names.objects.iter().filter(|(_, object)| !object.stored.is_empty()) {
            let (mut parts, mut at, mut steps) = (Vec::new(), object.links.first(), 0);
            // Where directories lie in each other no path has an end.
            if at.is_none() || !reached.contains(number) {
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
        let name = names_of::retired(epoch)?;
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
