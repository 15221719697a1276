//! Reserves space and makes holes. A range of the file is one range in each datafile.

use crate::core::Operation;
use crate::file::{Opened, Shape};
use crate::{Error, OpenFile};
use futures_util::future::join_all;
use shoal_pattern::Distribution;
use shoal_proto::{Allocation, Handle, Op, Rights, Status, limits};

impl OpenFile {
    /// Reserve space, make a hole or zero in `offset .. offset + len`; see [`Allocation`] for the effect on
    /// the size.
    ///
    /// # Errors
    /// `NoSpace`, `FileTooBig`; `Invalid`: the range is empty.
    pub async fn allocate(&self, offset: u64, len: u64, mode: Allocation) -> Result<(), Error> {
        let file = &self.0;
        let o = file.client.begin("allocate", Some(file.handle));
        if len == 0 {
            return Err(o.error(Status::Invalid));
        }
        let end = offset.checked_add(len).filter(|&end| end <= limits::FILE_BYTES_MAX);
        let end = end.ok_or_else(|| o.error(Status::FileTooBig))?;
        let o = &o;
        let grows = matches!(mode, Allocation::Extend | Allocation::Zero);
        let fit = async |shape| if grows { file.room_to(o, shape, end).await } else { Ok(shape) };
        let work = async |shape| file.allocate_shaped(o, &shape, offset, end, mode).await;
        let result = file.with_shape(o, Rights::WRITE, fit, work).await;
        file.touched();
        result
    }
}

impl Opened {
    async fn allocate_shaped(
        &self,
        o: &Operation,
        shape: &Shape,
        offset: u64,
        end: u64,
        mode: Allocation,
    ) -> Result<(), Error> {
        let Some(layout) = &shape.layout else {
            // An allocation that keeps the size and lies beyond the first strip is no reason to lay a small
            // file out.
            let end = end.min(shape.template.stuffed_max());
            return match end.checked_sub(offset).filter(|&len| len > 0) {
                Some(len) => self.allocate_stream(o, shape, self.handle, (offset, len), mode).await,
                None => self.must_be_stuffed(o).await,
            };
        };
        let striping = layout.striping();
        let ranges = layout.datafiles.iter().zip(0..).filter_map(|(&stream, index)| {
            let from = striping.physical_size(index, offset);
            let len = striping.physical_size(index, end) - from;
            (len > 0).then(|| self.allocate_stream(o, shape, stream, (from, len), mode))
        });
        join_all(ranges).await.into_iter().collect()
    }

    /// Nothing is to be done to a file of one strip; but another client may have laid it out meanwhile.
    async fn must_be_stuffed(&self, o: &Operation) -> Result<(), Error> {
        self.refresh(o).await?;
        if self.shape().layout.is_some() { Err(o.error(Status::StaleLayout)) } else { Ok(()) }
    }

    async fn allocate_stream(
        &self,
        o: &Operation,
        shape: &Shape,
        stream: Handle,
        (from, len): (u64, u64),
        mode: Allocation,
    ) -> Result<(), Error> {
        let (generation, capability) = (shape.generation, self.capability());
        let op = Op::Allocate { stream, generation, capability, from, len, mode };
        let told = self.client.core.ask(o, stream.server(), vec![op]).await?;
        self.inode.written(stream.server(), told.loss);
        self.inode.written_in(shape);
        Ok(())
    }
}
