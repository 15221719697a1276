//! Read many small files whole.

use super::attr_among;
use super::many::{Wanted, Which, all, singly};
use crate::core::ToldGroup;
use crate::transfer::whole;
use crate::{Client, Error};
use bytes::Bytes;
use shoal_proto::op::Answer;
use shoal_proto::{Attr, Generation, Handle, Kind, Op, Rights, Status};

/// A file's attributes and all of its contents; `None`: it is larger than was requested.
pub type Contents = (Attr, Option<Bytes>);

/// The result of one answer.
#[expect(clippy::large_enum_variant, reason = "one at a time, and nearly always the large one")]
enum Step {
    Done(Result<Contents, Error>),
    /// The object lives on another server than its entry.
    Elsewhere(Handle),
    /// It is more than one message can bring.
    Singly,
}

impl Client {
    /// Read files whole, those of at most `max` bytes: one message for as many as fit (128 files, 1 MiB) and
    /// server, one more for those whose entry and object are on different servers. A large or striped file is
    /// read by itself.
    ///
    /// ```no_run
    /// # async fn example(client: shoal_client::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use shoal_client::Which;
    /// use shoal_proto::Name;
    /// let dir = client.walk(b"/inbox", true).await?.handle;
    /// let which = [b"anna", b"bert"].map(|to| Name::new(to).map(|name| Which::Entry(dir, name)));
    /// for read in client.read_many(&which.into_iter().collect::<Result<Vec<_>, _>>()?, 16 << 10).await {
    ///     let (attr, text) = read?;
    ///     println!("{} of {} bytes", text.map_or(0, |text| text.len()), attr.size);
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn read_many(&self, which: &[Which], max: usize) -> Vec<Result<Contents, Error>> {
        self.read_each(which, &|_| max).await
    }

    /// The same, with a bound of its own for each; without one it is 0.
    pub async fn read_many_within(&self, which: &[Which], max: &[usize]) -> Vec<Result<Contents, Error>> {
        self.read_each(which, &|item| max.get(item).copied().unwrap_or(0)).await
    }

    async fn read_each(&self, which: &[Which], max: &dyn Fn(usize) -> usize) -> Vec<Result<Contents, Error>> {
        let mut results: Vec<Option<Result<Contents, Error>>> = which.iter().map(|_| None).collect();
        if self.is_compounding() {
            let items = (0..which.len()).map(|item| (item, which[item].clone())).collect();
            let elsewhere = self.read_groups(which, items, max, &mut results).await;
            self.read_groups(which, elsewhere, max, &mut results).await;
        }
        singly(&mut results, async |item: usize| {
            let read = match &which[item] {
                Which::Entry(dir, name) => self.read_small(*dir, name, max(item)).await,
                Which::Object(object) => self.read_object(*object, max(item)).await,
            };
            read.map_err(|error| which[item].named(error))
        })
        .await;
        all("read", results)
    }

    /// One round; returns the files to read from another server by handle.
    async fn read_groups(
        &self,
        which: &[Which],
        items: Vec<(usize, Which)>,
        max: &dyn Fn(usize) -> usize,
        results: &mut [Option<Result<Contents, Error>>],
    ) -> Vec<(usize, Which)> {
        // Without eager data in messages each file is a flow of its own.
        let wanted = items.iter().map(|(item, target)| {
            let server = self.core.home_of(target);
            let len = max(*item).clamp(1, self.core.eager_bytes(server).max(1));
            let (object, lookup) = match target {
                Which::Object(object) => (*object, None),
                Which::Entry(dir, name) => {
                    (Handle::CURRENT, Some(Op::Lookup { dir: *dir, path: vec![name.clone()].into() }))
                }
            };
            let read = [
                Op::Open { object, rights: Rights::READ },
                Op::Read { transfer: whole(Handle::CURRENT, Generation(0), None, len as u64) },
            ];
            let ops = lookup.into_iter().chain(read).collect();
            Wanted { reply_bytes: len, ..Wanted::plain(server, ops) }
        });
        let told = self.core.ask_groups("read", wanted.collect()).await;
        let mut elsewhere = Vec::new();
        for ((item, target), told) in items.iter().zip(told) {
            let server = self.core.home_of(target);
            let step = match told {
                Ok(told) => step(target, told, max(*item)),
                Err(error) => Step::Done(Err(error)),
            };
            match step {
                Step::Done(result) => {
                    let named = |error: Error| {
                        let error = if error.server.is_none() { error.from(server) } else { error };
                        which[*item].named(error)
                    };
                    results[*item] = Some(result.map_err(named));
                }
                Step::Elsewhere(object) => elsewhere.push((*item, Which::Object(object))),
                Step::Singly => {}
            }
        }
        elsewhere
    }

    /// All of an object.
    async fn read_object(&self, object: Handle, max: usize) -> Result<Contents, Error> {
        let o = self.core.begin("read", Some(object));
        let (attr, file) = self.open_of(&o, object, Rights::READ).await?;
        self.core.read_all(&o, file, attr, max).await
    }
}

fn step(target: &Which, told: ToldGroup, max: usize) -> Step {
    let fails = |status| Step::Done(Err(Error::new(status, "read")));
    let by_name = matches!(target, Which::Entry(..));
    match told.answers.first() {
        Some(Answer::Looked { kind: Kind::Directory, .. }) => return fails(Status::IsDirectory),
        Some(Answer::Looked { kind: Kind::Symlink, .. }) => return fails(Status::Loop),
        Some(Answer::Looked { handle, attr: None, .. }) => return Step::Elsewhere(*handle),
        Some(Answer::Made { attr, .. }) if attr.kind == Kind::Directory => return fails(Status::IsDirectory),
        None if by_name && told.status != Status::WrongServer && told.status != Status::Ok => {
            return fails(told.status);
        }
        _ => {}
    }
    match (told.answers.last(), attr_among(&told.answers)) {
        // The metafile's server holds only a part of a file over several datafiles.
        (Some(Answer::Data { len, facts }), Some(attr)) if attr.layout.is_none() => {
            if facts.size <= u64::from(*len) {
                Step::Done(Ok((attr, Some(told.bulk))))
            } else if facts.size > max as u64 {
                Step::Done(Ok((attr, None)))
            } else {
                Step::Singly
            }
        }
        _ => Step::Singly,
    }
}
