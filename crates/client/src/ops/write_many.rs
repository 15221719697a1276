//! Write to many files.

use super::attr_among;
use super::many::{Wanted, Which, all, singly};
use super::small::written_attr;
use crate::core::ToldGroup;
use crate::transfer::piece;
use crate::{Client, Error};
use bytes::Bytes;
use futures_util::future::join_all;
use shoal_proto::message::Loss;
use shoal_proto::op::Answer;
use shoal_proto::{Attr, Handle, Kind, Op, Rights, ServerId, Status, limits};
use std::collections::{BTreeMap, BTreeSet};

/// Bytes to be written to one file.
#[derive(Clone, Debug)]
pub struct FileWrite {
    /// The file.
    pub which: Which,
    /// Where in it.
    pub offset: u64,
    /// The bytes.
    pub data: Bytes,
}

/// A file written to, and with what the write would be lost (server, and its loss id).
struct Written(Attr, (ServerId, Loss));

/// The result of one answer.
#[expect(clippy::large_enum_variant, reason = "one at a time, and nearly always the large one")]
enum Step {
    Done(Result<Written, Error>),
    Elsewhere(Handle),
    Singly,
}

impl Client {
    /// Write a piece to each of many files that exist: one message for as many as fit (128 pieces, 1 MiB) and
    /// server, one more for those whose entry and object are on different servers. A piece that is larger
    /// than a message, or ends after the first strip, is written by itself. Returns the attributes after each
    /// write.
    ///
    /// Visible to all when this returns, as by `write(2)`. With `durable` it is also on disk, by one sync a
    /// server; an item whose data was lost between the two is `Io`.
    ///
    /// ```no_run
    /// # async fn example(client: shoal_client::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use shoal_client::{FileWrite, Which};
    /// use shoal_proto::Name;
    /// let dir = client.walk(b"/inbox", true).await?.handle;
    /// let which = Which::Entry(dir, Name::new(b"anna")?);
    /// let piece = FileWrite { which, offset: 0, data: "Dearest".into() };
    /// for written in client.write_many(vec![piece], true).await {
    ///     println!("{} bytes now", written?.size);
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn write_many(&self, pieces: Vec<FileWrite>, durable: bool) -> Vec<Result<Attr, Error>> {
        let began = self.core.world.now();
        let mut results: Vec<Option<Result<Written, Error>>> = pieces.iter().map(|_| None).collect();
        if self.is_compounding() {
            let items = (0..pieces.len()).map(|item| (item, pieces[item].which.clone())).collect();
            let elsewhere = self.write_groups(&pieces, items, &mut results).await;
            self.write_groups(&pieces, elsewhere, &mut results).await;
        }
        if durable {
            self.sync_written(&pieces, &mut results).await;
        }
        let in_groups: Vec<bool> = results.iter().map(Option::is_some).collect();
        let attrs =
            results.into_iter().map(|result| result.map(|result| result.map(|Written(attr, _)| attr)));
        let mut attrs: Vec<Option<Result<Attr, Error>>> = attrs.collect();
        let asked = self.core.cache.borrow().stamp(began);
        self.merge_results(asked, &mut attrs).await;
        singly(&mut attrs, async |item: usize| {
            let attr = match &pieces[item].which {
                // Written already: only the facts of its datafiles did not come.
                Which::Entry(dir, name) if in_groups[item] => self.lookup(*dir, name).await,
                Which::Object(object) if in_groups[item] => self.getattr(*object).await,
                _ => {
                    let one = self.write_one(&pieces[item], durable);
                    self.core.until(self.core.deadline(), one).await
                }
            };
            attr.map_err(|error| pieces[item].which.named(error))
        })
        .await;
        all("write", attrs)
    }

    /// One round; returns the pieces to write at another server by handle.
    async fn write_groups(
        &self,
        pieces: &[FileWrite],
        items: Vec<(usize, Which)>,
        results: &mut [Option<Result<Written, Error>>],
    ) -> Vec<(usize, Which)> {
        let (mut fitting, mut wanted) = (Vec::new(), Vec::new());
        for (item, target) in items {
            let server = self.core.home_of(&target);
            let FileWrite { offset, data, .. } = &pieces[item];
            let is_small = !data.is_empty() && data.len() <= self.core.eager_bytes(server);
            if !is_small || *offset > limits::FILE_BYTES_MAX - data.len() as u64 {
                continue;
            }
            let (object, lookup) = match &target {
                Which::Object(object) => (*object, None),
                Which::Entry(dir, name) => {
                    (Handle::CURRENT, Some(Op::Lookup { dir: *dir, path: vec![name.clone()].into() }))
                }
            };
            let len = data.len() as u32;
            let write = [
                Op::Open { object, rights: Rights::WRITE },
                Op::Write { transfer: piece(*offset, u64::from(len)), len },
            ];
            let ops = lookup.into_iter().chain(write).collect();
            wanted.push(Wanted { bulk: data.clone(), ..Wanted::plain(server, ops) });
            fitting.push((item, target));
        }
        let told = self.core.ask_groups("write", wanted).await;
        let mut elsewhere = Vec::new();
        for ((item, target), told) in fitting.iter().zip(told) {
            let step = match told {
                Ok(told) => step(target, told.server, &told),
                Err(error) => Step::Done(Err(error)),
            };
            match step {
                Step::Done(result) => {
                    if let Ok(Written(attr, _)) = &result {
                        self.core.cache.borrow_mut().changed(attr.handle);
                    }
                    results[*item] = Some(result.map_err(|error| pieces[*item].which.named(error)));
                }
                Step::Elsewhere(object) => elsewhere.push((*item, Which::Object(object))),
                Step::Singly => {}
            }
        }
        elsewhere
    }

    async fn write_one(&self, piece: &FileWrite, durable: bool) -> Result<Attr, Error> {
        let object = match &piece.which {
            Which::Entry(dir, name) => self.lookup(*dir, name).await?.handle,
            Which::Object(object) => *object,
        };
        let file = self.open(object, Rights::WRITE).await?;
        file.write(piece.offset, piece.data.clone()).await?;
        if durable {
            file.fsync().await?;
        }
        file.close().await?;
        self.getattr(object).await
    }

    /// Make the writes durable: one sync per server. A write whose loss id is another than the sync's may be
    /// lost.
    async fn sync_written(&self, pieces: &[FileWrite], results: &mut [Option<Result<Written, Error>>]) {
        let written = results.iter().filter_map(|result| result.as_ref()?.as_ref().ok());
        let servers: BTreeSet<ServerId> = written.map(|Written(_, (server, _))| *server).collect();
        let synced = join_all(servers.into_iter().map(|server| async move {
            let o = self.core.begin("sync", None);
            (server, self.core.ask(&o, server, vec![Op::Sync {}]).await.map(|told| told.loss))
        }));
        let synced: BTreeMap<ServerId, Result<Loss, Error>> = synced.await.into_iter().collect();
        for (piece, result) in pieces.iter().zip(results.iter_mut()) {
            let Some(Ok(Written(_, (server, loss)))) = result else { continue };
            let error = match synced.get(server) {
                Some(Ok(now)) if !loss.is_lost(*now) => continue,
                Some(Ok(_)) => Error::new(Status::Io, "write")
                    .from(*server)
                    .because("the server lost it before it was synced"),
                Some(Err(error)) => error.clone(),
                None => Error::new(Status::Io, "write").from(*server),
            };
            *result = Some(Err(piece.which.named(error)));
        }
    }
}

fn step(target: &Which, server: ServerId, told: &ToldGroup) -> Step {
    let fails = |status| Step::Done(Err(Error::new(status, "write").from(server)));
    let by_name = matches!(target, Which::Entry(..));
    match told.answers.first() {
        Some(Answer::Looked { kind: Kind::Directory, .. }) => return fails(Status::IsDirectory),
        Some(Answer::Looked { kind: Kind::Symlink, .. }) => return fails(Status::Loop),
        Some(Answer::Looked { handle, attr: None, .. }) => return Step::Elsewhere(*handle),
        None if by_name && told.status != Status::WrongServer && told.status != Status::Ok => {
            return fails(told.status);
        }
        _ => {}
    }
    match (told.status, attr_among(&told.answers)) {
        (Status::Ok, Some(attr)) => {
            let attr = written_attr(attr, &told.answers);
            Step::Done(Ok(Written(attr, (server, told.loss))))
        }
        // It ends after the first strip, or more facts of the file are needed first.
        (Status::Ok | Status::StaleLayout | Status::WrongServer | Status::NotSupported, _) => Step::Singly,
        (status, _) => fails(status),
    }
}
