//! A file that is made with all its bytes. They are logged beside its name, in one block: other processes
//! find the file whole, or not at all, and so do all processes after a kill (test:
//! `a_small_file_that_is_made_with_its_bytes_is_published_with_all_of_them_or_not_at_all`).
//!
//! The bytes come before the name: a block of which a kill left only the begin has no name of a file
//! without its bytes.

use super::format::{DATA_HEAD, Made, Op, Record};
use super::marks::{Claimed, Number};
use super::{Composed, Shared, fails};
use bytes::Bytes;
use shoal_proto::{Attr, Handle, Kind, Name, Owner, Rights, Status};
use shoal_vfs::{Result, Vfs, VfsFile};
use std::rc::Rc;

/// A file is not more than this part of a block: a block ends where the next file does not fit.
const BLOCK_PART: usize = 8;

impl<B: Vfs> Composed<B> {
    /// A file of so many bytes is made whole by [`Vfs::create_write`]. A longer one has its name first.
    pub fn whole_bytes_max(&self) -> usize {
        self.0.settings.block as usize / BLOCK_PART
    }

    pub(super) async fn create_with(
        &self,
        dir: Handle,
        name: &Name,
        owner: Owner,
        data: Bytes,
    ) -> Result<Attr> {
        if data.is_empty() || data.len() > self.whole_bytes_max() {
            let (attr, _, file) = self.create(dir, name, owner, true, Rights::WRITE).await?;
            if !data.is_empty() {
                file.write(0, data).await?;
            }
            file.close().await?;
            return Ok(attr);
        }
        let shared = &self.0;
        shared.check_writable()?;
        let _turn = shared.naming.acquire(1).await;
        shared.look_if_known(dir, name).await?;
        shared.directory(dir, "create")?;
        let made = shared.made(dir, name, owner, Kind::File)?;
        let object = shared.draw_object(Kind::File);
        let number = Number::of(object, Kind::File);
        let marked = match shared.claim_name(dir.0, name, number, false).await? {
            Claimed::Own(marked) => marked,
            _ => return Err(fails(Status::Exists, "create", dir)),
        };
        if let Err(error) = shared.log_whole(object, made, &data).await {
            shared.not_logged(marked).await;
            return Err(error);
        }
        shared.logged(marked);
        shared.publish_change().await?;
        shared.attr(Handle(object), "create")
    }
}

impl<B: Vfs> Shared<B> {
    /// Log a file's bytes and its making, in one block.
    async fn log_whole(self: &Rc<Self>, object: u64, made: Made, data: &[u8]) -> Result<()> {
        let _turn = self.log.turn.acquire(1).await;
        let making = Op::Create(made);
        // Stamps are of one length.
        let len = Record { stamp: 0, object, op: making.clone() }.encode(&[]).len();
        self.room(DATA_HEAD + data.len() + len).await?;
        self.check_directories(&making)?;
        // Nothing waits from here on, so both go to the physical file by one write.
        let stamp = self.draw_stamp();
        let bytes = Record { stamp, object, op: Op::Data { offset: 0, len: data.len() as u64 } };
        self.push(&bytes, &bytes.encode(data))?;
        let making = Record { stamp, object, op: making };
        self.push(&making, &making.encode(&[]))?;
        self.begin_timer();
        Ok(())
    }
}
