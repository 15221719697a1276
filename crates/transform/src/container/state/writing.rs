//! Writes to an open container: appends the bytes of a pattern to a writer's log.
//!
//! A patterned write is divided into stretches ([`crate::online`]). Each has a turn of the container's and
//! the writer's own, so an open or another write need not wait for the whole pattern. A writer whose log
//! failed takes no more bytes: the next stretch goes to another writer.

use super::{State, Writer};
use crate::limits::SINGLE_RECORDS_MAX;
use bytes::Bytes;
use shoal_pattern::{Pattern, Region};
use shoal_proto::{Status, Time};
use shoal_vfs::{Error, Result, Vfs};
use std::iter::Peekable;
use std::rc::Rc;

/// A write of a log that is under way. Unless it ends well its bytes may be there, or come late: writes after
/// it need an entry that is newer.
struct UnderWay<'a, B: Vfs>(&'a State<B>);

impl<B: Vfs> UnderWay<'_, B> {
    fn ended(self) {
        std::mem::forget(self);
    }
}

impl<B: Vfs> Drop for UnderWay<'_, B> {
    fn drop(&mut self) {
        self.0.unsure.set(self.0.clock.draw(&self.0.shared.env));
    }
}

impl<B: Vfs> State<B> {
    /// Write at a place. `writer` gives the writer of the open file.
    pub(in crate::container) async fn write(
        &self,
        writer: impl AsyncFn() -> Result<Rc<Writer<B>>>,
        logical: u64,
        data: Bytes,
    ) -> Result<()> {
        let region = self.region(logical, data.len())?;
        self.write_regions(writer, region.into_iter(), data).await
    }

    /// Append: the place is the file's end, and each append has its own.
    pub(in crate::container) async fn append(
        &self,
        writer: impl AsyncFn() -> Result<Rc<Writer<B>>>,
        data: Bytes,
    ) -> Result<u64> {
        let _one = self.turn(&self.appending).await?;
        loop {
            let writer = writer().await?;
            let _turn = self.turns.acquire(1).await;
            let _own = self.turn(&writer.turn).await?;
            if writer.is_broken() {
                continue;
            }
            let place = self.size().max(self.reserved.get());
            let mut regions = self.region(place, data.len())?.into_iter().peekable();
            // If this is given up, its bytes may come late: then no other append has their place. One that is
            // given up before brings none.
            self.reserved.set(place.saturating_add(data.len() as u64));
            let written = self.write_stretch(&writer, &mut regions, &mut data.clone()).await;
            self.reserved.set(place);
            return written.map(|()| place);
        }
    }

    /// Write packed bytes to the places of a pattern: an append to the data log for each stretch of regions
    /// under one entry, so two for a strided pattern.
    pub(in crate::container) async fn write_pattern(
        &self,
        writer: impl AsyncFn() -> Result<Rc<Writer<B>>>,
        pattern: &Pattern,
        data: Bytes,
    ) -> Result<()> {
        let invalid = |words: String| Error::new(Status::Invalid, "write").of(self.object).because(words);
        if pattern.len() != data.len() as u64 {
            let words = format!("the pattern has {} bytes and the data {}", pattern.len(), data.len());
            return Err(invalid(words));
        }
        // Refused before a byte is written.
        if let Some((first, _)) = pattern.bounds().filter(|(first, _)| *first < 0) {
            return Err(invalid(format!("the pattern reaches before the file, to {first}")));
        }
        self.write_regions(writer, pattern.coalesce().regions(), data).await
    }

    /// The region of a write; `None`: it has no bytes.
    fn region(&self, logical: u64, len: usize) -> Result<Option<Region>> {
        let end = logical.checked_add(len as u64).and_then(|end| i64::try_from(end).ok());
        end.ok_or_else(|| Error::new(Status::FileTooBig, "write").of(self.object))?;
        Ok((len > 0).then(|| Region::new(logical as i64, len as u64)))
    }

    /// The regions are as long as the data.
    async fn write_regions(
        &self,
        writer: impl AsyncFn() -> Result<Rc<Writer<B>>>,
        regions: impl Iterator<Item = Region>,
        mut data: Bytes,
    ) -> Result<()> {
        let mut regions = regions.peekable();
        while regions.peek().is_some() {
            let writer = writer().await?;
            let _turn = self.turns.acquire(1).await;
            let _own = self.turn(&writer.turn).await?;
            if !writer.is_broken() {
                self.write_stretch(&writer, &mut regions, &mut data).await?;
            }
        }
        Ok(())
    }

    /// Write the next regions that go under one entry, if there are any. The caller has a turn, and that of
    /// the writer, which is not broken.
    async fn write_stretch(
        &self,
        writer: &Writer<B>,
        regions: &mut Peekable<impl Iterator<Item = Region>>,
        data: &mut Bytes,
    ) -> Result<()> {
        if regions.peek().is_none() {
            return Ok(());
        }
        // An entry has one stamp: a write over newer bytes needs a newer one.
        let stretch = {
            let index = self.index.borrow();
            let singles_max = self.singles_max();
            if index.keeps_singly_more_than(singles_max) {
                return Err(self.is_too_irregular(singles_max));
            }
            let is_newer = |region: Region, stamp: u64| {
                stamp < self.unsure.get() || index.is_newer_within(region.offset as u64, region.len, stamp)
            };
            writer.stretch(regions, is_newer, || self.clock.draw(&self.shared.env))
        };
        let (begins, len) = (stretch.entry.is_some(), stretch.len);
        let bytes = data.split_to(len as usize);
        let under_way = UnderWay(self);
        let current = writer.append(&self.shared.over, stretch, bytes).await?;
        under_way.ended();
        let mut index = self.index.borrow_mut();
        let log = index.add_log(writer.id);
        index.wrote(log, current, begins, len);
        self.wrote_at.set(Some(Time(self.shared.env.wall().0)));
        Ok(())
    }

    /// Records that may be kept one by one before a write. A copy is bounded by the limit of an index that is
    /// read: otherwise a file that takes no more could not be compacted.
    fn singles_max(&self) -> u64 {
        if self.is_copy.get() { SINGLE_RECORDS_MAX } else { self.shared.record_limits.get().written_singly }
    }

    fn is_too_irregular(&self, singles_max: u64) -> Error {
        let remedy = match self.is_copy.get() {
            true => "copy the file to a directory without containers",
            false => {
                "`shoal container compact` joins those that touch; if that is not enough, copy the file to a \
                 directory without containers"
            }
        };
        let words = format!("the file has more than {singles_max} records that are not regular: {remedy}");
        Error::new(Status::OverLimit, "write").of(self.object).because(words)
    }
}
