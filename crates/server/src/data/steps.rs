//! One step of the sweep: it reads for its readers, and writes the pieces of its writers.
//!
//! If the readers need little of a block, only that part is read. Otherwise the whole block is read, and kept
//! in the cache. A block is not kept if one request reads all of it, if the stream changed during the read,
//! or if the block reaches beyond the stream's end.
//!
//! Writers' pieces are merged ([`pack`](super::pack)). Old bytes are read only where many pieces lie close
//! together with gaps between them. The extent is locked from the read of the old bytes to the write. A
//! truncation of a file with one stream does not take the sweep's lock. So the store reads the old bytes and
//! writes them back as one unit, and repeats both if a truncation came between. Otherwise bytes that were cut
//! would come back.

use super::extent::{BLOCK_BYTES, Extent};
use super::hand::{HandWork, RECORDS_A_TURN, SweepState, give_way};
use super::order::Taken;
use super::pack::{Cover, Merged, Pieces, Sources, WritePiece, is_dense};
use crate::counters::add;
use bytes::Bytes;
use shoal_env::mutant::{self, Mutant};
use shoal_env::{Counters as EnvCounters, WallTime};
use shoal_pattern::ViewRun;
use shoal_proto::Status;
use shoal_store::{Over, StreamInfo};
use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;

impl SweepState {
    fn copied(&self, bytes: usize) {
        EnvCounters::add(&self.env.counters().copied_bytes, bytes as u64);
    }

    /// Read the extents of a step, and cut what its readers want.
    pub(super) async fn read_step(self: &Rc<SweepState>, taken: &Taken, served: &mut Vec<(Extent, u64)>) {
        let stream = taken.whole().stream;
        let count = self.changes.of(stream);
        let read = self.sources(taken).await;
        let is_unchanged = count == self.changes.of(stream);
        let mut readers: Vec<(Extent, u64)> = Vec::new();
        for (extent, wanted) in &taken.extents {
            readers.extend(wanted.readers.iter().map(|id| (*extent, *id)));
            // Others came to the block while it was read. This step is not theirs where writers wait, too,
            // nor where the stream was cut meanwhile: they may have come after that.
            if is_unchanged && read.as_ref().is_ok_and(|(_, whole)| whole.contains(&extent.from)) {
                for id in self.order.late_readers(extent) {
                    self.begin(id, extent, served);
                    readers.push((*extent, id));
                }
            }
        }
        let sources = match read {
            Ok((sources, _)) => sources,
            Err(status) => {
                readers.iter().for_each(|(_, id)| self.fail(*id, status));
                return;
            }
        };
        let mut records = 0;
        for (extent, id) in readers {
            let took = self.requests.borrow_mut().get_mut(&id).map(|request| request.take(&extent, &sources));
            let (copied, cut) = took.unwrap_or_default();
            self.copied(copied);
            records += cut;
            if records > RECORDS_A_TURN {
                records = 0;
                give_way().await;
            }
        }
    }

    /// The bytes that the readers of a step want, and the offsets of the blocks that are whole in it.
    async fn sources(&self, taken: &Taken) -> Result<(Sources, BTreeSet<u64>), Status> {
        let (mut sources, mut whole) = (Sources::default(), BTreeSet::new());
        let Some((first, _)) = taken.extents.first() else { return Ok((sources, whole)) };
        if !first.is_block() {
            let (bytes, _) = self.read_run(first, first.from, first.len).await?;
            sources.push(first.from, bytes);
            whole.insert(first.from);
            return Ok((sources, whole));
        }
        let (mut dense, mut sparse): (Vec<(Extent, bool)>, Cover) = (Vec::new(), Vec::new());
        for (extent, wanted) in taken.extents.iter().filter(|(_, wanted)| !wanted.readers.is_empty()) {
            let count = self.changes.of(extent.stream);
            if let Some(bytes) = self.cache.borrow_mut().get(extent, count) {
                add(&self.counters.block_hits, 1);
                sources.push(extent.from, bytes);
                whole.insert(extent.from);
                continue;
            }
            match self.span(extent, &wanted.readers) {
                Some(_) if wanted.is_sparse() => sparse.extend(self.ranges(extent, &wanted.readers)),
                Some(span) if span.end - span.start < BLOCK_BYTES / 2 => sparse.push(span),
                _ => dense.push((*extent, !self.is_taken_whole(extent, &wanted.readers))),
            }
        }
        self.read_sparse(first, &sparse, &mut sources).await?;
        for side_by_side in dense.chunk_by(|(one, _), (next, _)| one.end() == next.from) {
            let (from, len) = (side_by_side[0].0.from, side_by_side.len() as u64 * BLOCK_BYTES);
            let keeps = side_by_side.iter().any(|(_, keeps)| *keeps);
            let bytes = self.read_blocks(first, from, len, keeps).await?;
            sources.push(from, bytes);
            whole.extend(side_by_side.iter().map(|(extent, _)| extent.from));
        }
        sources.sort();
        Ok((sources, whole))
    }

    /// Whether one request reads all of a block in one piece. Such a block is not kept, as longer runs are
    /// not: no record of another request is likely to be in it, and the memory of each new block is cold.
    fn is_taken_whole(&self, extent: &Extent, readers: &[u64]) -> bool {
        let requests = self.requests.borrow();
        let [id] = readers else { return false };
        let is_whole = |cuts: &[ViewRun]| matches!(cuts, [only] if only.len == BLOCK_BYTES);
        requests.get(id).is_some_and(|request| is_whole(request.cuts(extent)))
    }

    /// From the first to the last byte of an extent that these requests read.
    fn span(&self, extent: &Extent, readers: &[u64]) -> Option<Range<u64>> {
        let requests = self.requests.borrow();
        let cuts = readers.iter().filter_map(|id| requests.get(id)).flat_map(|request| request.cuts(extent));
        cuts.map(|cut| cut.physical..cut.physical + cut.len)
            .reduce(|all, cut| all.start.min(cut.start)..all.end.max(cut.end))
    }

    /// The bytes of an extent that these requests read.
    fn ranges(&self, extent: &Extent, readers: &[u64]) -> Cover {
        let requests = self.requests.borrow();
        let cuts = readers.iter().filter_map(|id| requests.get(id)).flat_map(|request| request.cuts(extent));
        let pieces =
            cuts.map(|cut| WritePiece { at: cut.physical, source: 0, from: 0, len: cut.len as usize });
        Pieces { sources: Vec::new(), pieces: pieces.collect() }.cover()
    }

    async fn read_run(&self, of: &Extent, from: u64, len: u64) -> Result<(Bytes, StreamInfo), Status> {
        let run = ViewRun { physical: from, packed: 0, len };
        let read = self.collection.read(of.stream, of.generation, vec![run], len as usize).await;
        read.map_err(super::status_of)
    }

    async fn read_sparse(&self, of: &Extent, ranges: &Cover, sources: &mut Sources) -> Result<(), Status> {
        let mut len = 0;
        let run = |range: &Range<u64>| {
            let run = ViewRun { physical: range.start, packed: len, len: range.end - range.start };
            len += run.len;
            run
        };
        let runs: Vec<ViewRun> = ranges.iter().map(run).collect();
        if runs.is_empty() {
            return Ok(());
        }
        let reading = self.collection.read(of.stream, of.generation, runs.clone(), len as usize);
        let (bytes, _) = reading.await.map_err(super::status_of)?;
        for run in runs {
            sources.push(run.physical, bytes.slice(run.packed as usize..(run.packed + run.len) as usize));
        }
        Ok(())
    }

    /// Read whole blocks. Those to keep are kept if nothing changed meanwhile and the stream has all of them.
    async fn read_blocks(&self, of: &Extent, from: u64, len: u64, keeps: bool) -> Result<Bytes, Status> {
        add(&self.counters.blocks_read, len / BLOCK_BYTES);
        let before = self.changes.of(of.stream);
        let (bytes, info) = self.read_run(of, from, len).await?;
        let inside = info.size.saturating_sub(from) / BLOCK_BYTES * BLOCK_BYTES;
        if keeps && before == self.changes.of(of.stream) && inside > 0 {
            let kept = bytes.slice(..inside.min(len) as usize);
            self.cache.borrow_mut().put(of.stream, from, kept, before);
        }
        Ok(bytes)
    }

    /// Write what the writers of a step bring.
    pub(super) async fn write_step(self: &Rc<SweepState>, taken: &Taken) {
        let whole = taken.whole();
        let ids: BTreeSet<u64> =
            taken.extents.iter().flat_map(|(_, wanted)| wanted.writers.clone()).collect();
        let (pieces, at) = self.pieces(taken, &ids);
        if pieces.pieces.is_empty() {
            return;
        }
        self.cache.borrow_mut().forget(&whole);
        let blocks = taken.extents.len() as u64;
        add(&self.counters.blocks_written, blocks);
        add(&self.counters.blocks_merged, if pieces.sources.len() > 1 { blocks } else { 0 });
        let written = self.write_pieces(&whole, pieces, at).await;
        let mut requests = self.requests.borrow_mut();
        for id in ids {
            let Some(request) = requests.get_mut(&id) else { continue };
            match &written {
                Ok(info) => request.info = Some(*info),
                Err(status) => {
                    request.failed.get_or_insert(*status);
                }
            }
        }
    }

    /// The pieces of the writers of a step, in order of arrival and each request's in packed order; and the
    /// newest of their times.
    fn pieces(&self, taken: &Taken, ids: &BTreeSet<u64>) -> (Pieces, WallTime) {
        let (mut all, mut newest) = (Pieces::default(), WallTime(i64::MIN));
        let requests = self.requests.borrow();
        for request in ids.iter().filter_map(|id| requests.get(id)) {
            let HandWork::Write(data, at) = &request.work else { continue };
            if request.failed.is_some() {
                continue;
            }
            let source = all.sources.len();
            all.sources.push(data.clone());
            newest = newest.max(*at);
            for cut in taken.extents.iter().flat_map(|(extent, _)| request.cuts(extent)) {
                let (from, len) = (cut.packed as usize, cut.len as usize);
                all.pieces.push(WritePiece { at: cut.physical, source, from, len });
            }
        }
        (all, newest)
    }

    async fn write_pieces(
        self: &Rc<Self>,
        of: &Extent,
        pieces: Pieces,
        at: WallTime,
    ) -> Result<StreamInfo, Status> {
        let cover = pieces.cover();
        let written = match is_dense(&cover) {
            true => {
                self.collection.write_over(of.stream, of.generation, self.over_old(of, pieces, cover), at)
            }
            false => {
                let Merged { runs, data, copied } = pieces.merged(&cover);
                self.copied(copied);
                self.collection.write(of.stream, of.generation, runs, data, at)
            }
        };
        written.await.map_err(super::status_of)
    }

    /// The pieces with the old bytes of the gaps between them. Of a small stream the pieces alone: a handler
    /// may replace its content meanwhile, and nothing is written back.
    fn over_old(self: &Rc<Self>, of: &Extent, pieces: Pieces, cover: Cover) -> Over {
        let span = cover.first().map_or(0, |first| first.start)..cover.last().map_or(0, |last| last.end);
        let (state, blocks, from) = (self.clone(), of.len.div_ceil(BLOCK_BYTES), span.start);
        let merge = move |old: Option<&[u8]>| {
            let merged = match old {
                Some(old) => {
                    add(&state.counters.blocks_read_before, blocks);
                    let forgotten = mutant::is(Mutant::MergedBlockForgets).then(|| vec![0; old.len()]);
                    pieces.over(forgotten.as_deref().unwrap_or(old), from, &cover)
                }
                None => pieces.merged(&cover),
            };
            state.copied(merged.copied);
            (merged.runs, merged.data)
        };
        Over { span, merge: Rc::new(merge) }
    }
}
