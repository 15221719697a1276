//! Writes or reads a whole small file with one message: the paper's augmented create, and the read that
//! corresponds to it.

use super::{attr_among, capability_among};
use crate::core::{Core, Operation, ToldGroup};
use crate::transfer::whole;
use crate::{Client, Error, OpenFile};
use bytes::Bytes;
use shoal_env::Instant;
use shoal_proto::op::Answer;
use shoal_proto::{Attr, Generation, Handle, Kind, Name, Op, Owner, Placement, Rights, Status, Template};
use std::rc::Rc;

impl Client {
    /// Make a new file with these contents: one message if they are small (within `eager_bytes` and the first
    /// strip).
    ///
    /// # Errors
    /// `Exists`; as [`Client::create`] and [`OpenFile::write`] (a large file may then be there in part).
    pub async fn create_write(
        &self,
        dir: Handle,
        name: &Name,
        owner: Owner,
        data: Bytes,
        template: Option<Template>,
    ) -> Result<Attr, Error> {
        let stuffed_max = template.unwrap_or(self.map().template).stuffed_max();
        let eager = self.core.eager_bytes(dir.server());
        if !self.core.makes_in_one()
            || data.is_empty()
            || data.len() > eager
            || data.len() as u64 > stuffed_max
        {
            let deadline = self.core.deadline();
            return Box::pin(self.create_then_write(dir, name, owner, data, template, deadline)).await;
        }
        let o = self.begin("create", Some(dir));
        let len = data.len() as u32;
        let create =
            Op::Create { dir, name: name.clone(), owner, exclusive: true, open: Rights::WRITE, template };
        let write = Op::Write { transfer: whole(Handle::CURRENT, Generation(0), None, u64::from(len)), len };
        let told = self.core.ask_with(&o, dir.server(), vec![create, write], vec![data.clone()], 0).await;
        self.core.cache.borrow_mut().changed_name(dir, name);
        let answers = match told {
            Ok(told) => told.answers,
            // The directory's own template is smaller than the data, or lays files out otherwise.
            Err(error) if error.status == Status::StaleLayout => {
                return Box::pin(self.create_then_write(dir, name, owner, data, template, o.deadline)).await;
            }
            Err(error) => return Err(error),
        };
        let Some(attr) = attr_among(&answers) else {
            return Err(o.error(Status::BadMessage).from(dir.server()));
        };
        self.core.made(&o, dir, name, written_attr(attr, &answers)).await
    }

    async fn create_then_write(
        &self,
        dir: Handle,
        name: &Name,
        owner: Owner,
        data: Bytes,
        template: Option<Template>,
        deadline: Instant,
    ) -> Result<Attr, Error> {
        let made = async {
            let (attr, _, file) = self.create(dir, name, owner, true, Rights::WRITE, template).await?;
            if data.is_empty() {
                return Ok(attr);
            }
            file.write(0, data).await?;
            file.close().await?;
            self.getattr(attr.handle).await
        };
        self.core.until(deadline, made).await
    }

    /// Look a file up and read all of it: one message if it is small and colocated with its entry, two if it
    /// lives on another server. `None`: it is larger than `max` bytes.
    ///
    /// # Errors
    /// As [`Client::lookup`] and [`OpenFile::read`].
    pub async fn read_small(
        &self,
        dir: Handle,
        name: &Name,
        max: usize,
    ) -> Result<(Attr, Option<Bytes>), Error> {
        let o = self.begin("read", Some(dir));
        if !self.core.switches().compound {
            let handle = self.core.lookup_path(&o, dir, std::slice::from_ref(name)).await?.handle;
            let (attr, file) = self.open_unmerged(&o, handle, Rights::READ).await?;
            return Box::pin(self.core.read_all(&o, file, attr, max)).await;
        }
        let asked = max.clamp(1, self.core.eager_bytes(dir.server()).max(1)) as u64;
        let path = vec![name.clone()].into();
        let ops = vec![
            Op::Lookup { dir, path },
            Op::Open { object: Handle::CURRENT, rights: Rights::READ },
            Op::Read { transfer: whole(Handle::CURRENT, Generation(0), None, asked) },
        ];
        let told = self.core.ask_group(&o, dir.server(), ops, Vec::new(), asked).await?;
        let (handle, attr) = match told.answers.first() {
            Some(Answer::Looked { kind: Kind::Directory, .. }) => return Err(o.error(Status::IsDirectory)),
            Some(Answer::Looked { kind: Kind::Symlink, .. }) => return Err(o.error(Status::Loop)),
            Some(Answer::Looked { handle, attr, .. }) => (*handle, attr.clone()),
            _ if told.status != Status::Ok => return Err(o.error(told.status).from(dir.server())),
            _ => return Err(o.error(Status::BadMessage).from(dir.server())),
        };
        let (told, attr) = match handle.server() == told.server {
            true => (told, attr),
            false => (Box::pin(self.core.open_read(&o, handle, asked)).await?, None),
        };
        let attr = attr_among(&told.answers).or(attr);
        match (told.answers.last(), attr) {
            // The metafile's server holds only a part of a file over several datafiles.
            (Some(Answer::Data { len, facts }), Some(attr))
                if attr.layout.is_none() && told.bulk.len() == *len as usize =>
            {
                if facts.size <= u64::from(*len) {
                    return Ok((self.core.merged(&o, attr).await?, Some(told.bulk)));
                }
                if facts.size > max as u64 {
                    return Ok((self.core.merged(&o, attr).await?, None));
                }
                let file = OpenFile::new(self.clone(), &attr, Rights::READ, capability_among(&told.answers));
                Box::pin(self.core.read_all(&o, file, attr, max)).await
            }
            // It lives over several datafiles.
            _ => {
                let (attr, file) = Box::pin(self.open_of(&o, handle, Rights::READ)).await?;
                Box::pin(self.core.read_all(&o, file, attr, max)).await
            }
        }
    }
}

impl Core {
    /// Whether a new file and its first bytes are made by one message to the server of its directory.
    fn makes_in_one(&self) -> bool {
        let switches = self.switches();
        switches.compound && switches.stuffing && switches.placement == Placement::Colocated
    }

    /// Open an object and read its first bytes, in one message.
    async fn open_read(self: &Rc<Core>, o: &Operation, object: Handle, len: u64) -> Result<ToldGroup, Error> {
        let ops = vec![
            Op::Open { object, rights: Rights::READ },
            Op::Read { transfer: whole(Handle::CURRENT, Generation(0), None, len) },
        ];
        self.ask_group(o, object.server(), ops, Vec::new(), len).await
    }

    pub(super) async fn read_all(
        self: &Rc<Core>,
        o: &Operation,
        file: OpenFile,
        attr: Attr,
        max: usize,
    ) -> Result<(Attr, Option<Bytes>), Error> {
        let attr = self.merged(o, attr).await?;
        if attr.size > max as u64 {
            return Ok((attr, None));
        }
        let read = async {
            let data = file.read(0, max).await?;
            file.close().await?;
            Ok::<_, Error>((attr, Some(data)))
        };
        self.until(o.deadline, read).await
    }
}

/// Attributes after a write of the same group, with the stream's facts from the write's answer.
pub(super) fn written_attr(attr: Attr, answers: &[Answer]) -> Attr {
    let Some(Answer::Facts { facts, .. }) = answers.last() else { return attr };
    let mtime = facts.written_at.unwrap_or(attr.mtime);
    Attr { size: facts.size, space: facts.space, mtime, ctime: attr.ctime.max(mtime), ..attr }
}
