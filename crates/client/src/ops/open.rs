//! Open a file: check on its server that it is there, and get a capability.

use super::{attr_among, capability_among, count_among};
use crate::core::{Core, Operation};
use crate::pages::may_stay;
use crate::{Client, Error, OpenFile};
use futures_util::future::{join_all, try_join};
use shoal_proto::{Attr, ChangeCount, Handle, Kind, Name, Op, Rights, Status};
use shoal_vfs::Opened;
use std::rc::Rc;
use std::time::Duration;

/// Change counts of streams, requested after an open of their file began.
#[derive(Default, Debug)]
pub struct StreamCounts(Vec<(Handle, ChangeCount)>);

impl StreamCounts {
    pub(crate) fn of(&self, stream: Handle) -> Option<ChangeCount> {
        self.0.iter().find(|(known, _)| *known == stream).map(|(_, count)| *count)
    }
}

/// An open waits no longer to learn whether pages may stay.
const COUNTS_WAIT: Duration = Duration::from_secs(1);

impl Client {
    /// Open a file; asks its server always. The handle counts as held until the last clone of the file is
    /// gone.
    ///
    /// # Errors
    /// `Stale`: the file is gone; `IsDirectory`.
    pub async fn open(&self, object: Handle, rights: Rights) -> Result<OpenFile, Error> {
        Ok(self.open_sized(object, rights).await?.0)
    }

    /// Whether a file is open here.
    pub fn has_open(&self, object: Handle) -> bool {
        self.core.held.borrow().holds(object)
    }

    /// Open the file that a name leads to; its attributes as its metafile's server has them. One message
    /// where the file is on the server of the directory (with `compound = off`: two). Where the file is gone
    /// when it is opened, the name is looked up again: another file may have replaced it.
    ///
    /// # Errors
    /// As [`Client::lookup`] and [`Client::open`]; `Loop`: the name is a symbolic link.
    pub async fn open_name(&self, dir: Handle, name: &Name, rights: Rights) -> Result<OpenFile, Error> {
        let o = self.core.begin("open", Some(dir));
        if self.core.switches().compound {
            let _seek = crate::file::Seek::new(self);
            let lookup = Op::Lookup { dir, path: vec![name.clone()].into() };
            let open = Op::Open { object: Handle::CURRENT, rights };
            let told = self.core.ask_group(&o, dir.server(), vec![lookup, open], Vec::new(), 0).await?;
            match (told.status, attr_among(&told.answers)) {
                (Status::Ok, Some(attr)) if attr.kind == Kind::File => {
                    return Ok(OpenFile::new(self.clone(), &attr, rights, capability_among(&told.answers)));
                }
                (status, _) if told.answers.is_empty() || status == Status::ReadOnly => {
                    return Err(o.error(status).from(dir.server()));
                }
                _ => {}
            }
        }
        loop {
            let looked = self.core.lookup_path(&o, dir, std::slice::from_ref(name)).await?;
            match looked.kind {
                Kind::Symlink => return Err(o.error(Status::Loop).of(looked.handle)),
                Kind::Directory => return Err(o.error(Status::IsDirectory).of(looked.handle)),
                _ => {}
            }
            match self.open_unmerged(&o, looked.handle, rights).await {
                Err(error) if error.status == Status::Stale => self.core.back_off(&o, error).await?,
                opened => return Ok(opened?.1),
            }
        }
    }

    /// As [`Client::open`], with the size, where the file's server alone knows it; and whether the file has a
    /// name. One without is opened only if this client has it open.
    ///
    /// # Errors
    /// As [`Client::open`].
    pub async fn open_sized(
        &self,
        object: Handle,
        rights: Rights,
    ) -> Result<(OpenFile, Option<u64>, bool), Error> {
        let o = self.begin("open", Some(object));
        let (attr, file) = self.open_unmerged(&o, object, rights).await?;
        Ok((file, attr.layout.is_none().then_some(attr.size), attr.nlink > 0))
    }

    /// Open again a file that is open here, though another client may have removed it.
    ///
    /// # Errors
    /// `Stale`: it is gone.
    pub async fn open_held(&self, object: Handle, rights: Rights) -> Result<OpenFile, Error> {
        let o = self.begin("open", Some(object));
        self.core.hold_again(&o, object.server(), &[object]).await?;
        Ok(self.open_unmerged(&o, object, rights).await?.1)
    }

    /// As [`Client::open_sized`], for a mount; also returns the counts that decide whether the kernel's pages
    /// of the file stay valid ([`OpenFile::keeps_pages`]). The open does not wait for a server of some of its
    /// bytes that does not answer soon: then the pages are not kept.
    ///
    /// # Errors
    /// As [`Client::open`].
    pub async fn open_pages(
        &self,
        object: Handle,
        rights: Rights,
    ) -> Result<Opened<OpenFile, StreamCounts>, Error> {
        let o = self.begin("open", Some(object));
        let streams = self.core.with_pages(|pages| pages.streams(object)).unwrap_or_default();
        let opened = self.open_counted(&o, object, rights);
        let ((attr, count, file), mut counts) = match streams.as_slice() {
            [] => (opened.await?, Vec::new()),
            &[only] if only == object => (opened.await?, Vec::new()),
            several => {
                let counts = self.core.counts_soon(object, several);
                // An error of the open waits for no other server.
                Box::pin(try_join(opened, async { Ok(counts.await) })).await?
            }
        };
        counts.extend((count != ChangeCount::NONE).then_some((object, count)));
        if !may_stay(attr.layout.as_ref()) {
            counts.clear();
        }
        let size = attr.layout.is_none().then_some(attr.size);
        Ok(Opened { file, size, has_name: attr.nlink > 0, counts: StreamCounts(counts) })
    }

    /// Open a file, with its attributes, merged.
    pub(crate) async fn open_of(
        &self,
        o: &Operation,
        object: Handle,
        rights: Rights,
    ) -> Result<(Attr, OpenFile), Error> {
        let (attr, file) = self.open_unmerged(o, object, rights).await?;
        let attr = self.core.merged(o, attr).await?;
        Ok((attr, file))
    }

    /// Open a file, with its attributes as its metafile's server has them.
    pub(crate) async fn open_unmerged(
        &self,
        o: &Operation,
        object: Handle,
        rights: Rights,
    ) -> Result<(Attr, OpenFile), Error> {
        let (attr, _, file) = self.open_counted(o, object, rights).await?;
        Ok((attr, file))
    }

    /// The same, with the change count of its own stream.
    async fn open_counted(
        &self,
        o: &Operation,
        object: Handle,
        rights: Rights,
    ) -> Result<(Attr, ChangeCount, OpenFile), Error> {
        // Held before it is asked: an unlink under way meanwhile then knows of it.
        let hold = crate::file::Hold::new(self.clone(), object);
        let told = self.core.ask(o, object.server(), vec![Op::Open { object, rights }]).await;
        let told = told.inspect_err(|error| {
            if error.status == Status::Stale {
                self.core.cache.borrow_mut().gone(object);
            }
        })?;
        let attr = attr_among(&told.answers).filter(|attr| attr.handle == object);
        let attr = attr.ok_or_else(|| o.error(Status::BadMessage).from(object.server()))?;
        has_data(attr.kind).map_err(|status| o.error(status).of(object))?;
        let file = OpenFile::held(hold, &attr, rights, capability_among(&told.answers));
        Ok((attr, count_among(&told.answers), file))
    }
}

/// Whether objects of a kind have data to be opened.
fn has_data(kind: Kind) -> Result<(), Status> {
    match kind {
        Kind::File => Ok(()),
        Kind::Directory => Err(Status::IsDirectory),
        Kind::Symlink => Err(Status::Loop),
        _ => Err(Status::Invalid),
    }
}

impl Core {
    /// The change counts of a file's streams, except its own, from those servers that answer soon.
    async fn counts_soon(self: &Rc<Core>, object: Handle, streams: &[Handle]) -> Vec<(Handle, ChangeCount)> {
        let o = self.begin("open", Some(object));
        let deadline = o.deadline.min(self.world.now() + COUNTS_WAIT);
        let o = o.until(deadline);
        let others = streams.iter().filter(|stream| **stream != object);
        let asked = others.map(async |&stream| (stream, self.streamstat(&o, stream).await));
        let told = join_all(asked).await.into_iter();
        told.filter_map(|(stream, facts)| facts.ok().map(|facts| (stream, facts.count))).collect()
    }
}
