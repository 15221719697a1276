//! Open many files by their names, and close many.

use super::many::{Wanted, all, of_entry, singly};
use super::{attr_among, capability_among};
use crate::core::ToldGroup;
use crate::{Client, Error, OpenFile};
use shoal_proto::{Handle, Kind, Name, Op, Rights, Status};

impl Client {
    /// Open the files that names lead to: one message for 128 of them and server, where a file is on the
    /// server of its directory. Others are opened one by one, as by [`Client::open_name`].
    ///
    /// ```no_run
    /// # async fn example(client: shoal_client::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use shoal_proto::{Name, Rights};
    /// let dir = client.walk(b"/inbox", true).await?.handle;
    /// let names = [(dir, Name::new(b"anna")?), (dir, Name::new(b"bert")?)];
    /// for opened in client.open_many(&names, Rights::READ).await {
    ///     println!("{} bytes", opened?.read(0, 100).await?.len());
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn open_many(
        &self,
        entries: &[(Handle, Name)],
        rights: Rights,
    ) -> Vec<Result<OpenFile, Error>> {
        let mut results: Vec<Option<Result<OpenFile, Error>>> = entries.iter().map(|_| None).collect();
        if self.is_compounding() {
            self.open_groups(entries, rights, &mut results).await;
        }
        singly(&mut results, async |item: usize| {
            let (dir, name) = &entries[item];
            self.open_name(*dir, name, rights).await.map_err(|error| of_entry(error, *dir, name))
        })
        .await;
        all("open", results)
    }

    async fn open_groups(
        &self,
        entries: &[(Handle, Name)],
        rights: Rights,
        results: &mut [Option<Result<OpenFile, Error>>],
    ) {
        let _seek = crate::file::Seek::new(self);
        let wanted = entries.iter().map(|(dir, name)| {
            let lookup = Op::Lookup { dir: *dir, path: vec![name.clone()].into() };
            let open = Op::Open { object: Handle::CURRENT, rights };
            Wanted::plain(self.core.home_of_entry(*dir, name), vec![lookup, open])
        });
        let told = self.core.ask_groups("open", wanted.collect()).await;
        for ((place, (dir, name)), told) in results.iter_mut().zip(entries).zip(told) {
            let opened = told.and_then(|told| self.opened_of(told, rights));
            *place = opened.transpose().map(|opened| opened.map_err(|error| of_entry(error, *dir, name)));
        }
    }

    /// The file of a group's answers; `None`: it is opened by itself.
    fn opened_of(&self, told: ToldGroup, rights: Rights) -> Result<Option<OpenFile>, Error> {
        match (told.status, attr_among(&told.answers)) {
            (Status::Ok, Some(attr)) if attr.kind == Kind::File => {
                let capability = capability_among(&told.answers);
                Ok(Some(OpenFile::new(self.clone(), &attr, rights, capability)))
            }
            (Status::WrongServer, _) => Ok(None),
            (status, _) if told.answers.is_empty() || status == Status::ReadOnly => {
                Err(Error::new(status, "open").from(told.server))
            }
            _ => Ok(None),
        }
    }

    /// Close files. Those that were removed are released: one message for 128 of them and server.
    pub async fn close_many(&self, files: Vec<OpenFile>) -> Vec<Result<(), Error>> {
        let (mut orphans, mut closed) = (Vec::new(), Vec::with_capacity(files.len()));
        for file in files {
            if let Some(orphan) = file.let_go().await {
                orphans.push((closed.len(), orphan));
            }
            closed.push(Ok(()));
        }
        if !self.is_compounding() {
            for (item, object) in orphans {
                closed[item] = self.release(object).await;
            }
            return closed;
        }
        let release =
            |&(_, object): &(usize, Handle)| Wanted::plain(object.server(), vec![Op::Release { object }]);
        let told = self.core.ask_groups("release", orphans.iter().map(release).collect()).await;
        for ((item, object), told) in orphans.into_iter().zip(told) {
            let released = told.and_then(|told| match told.status {
                Status::Ok => Ok(()),
                status => Err(Error::new(status, "release").of(object).from(told.server)),
            });
            closed[item] = released.inspect_err(|_| self.core.post_release(object));
        }
        closed
    }
}
