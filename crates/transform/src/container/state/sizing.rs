//! Changes of a container's size. Each is published before its call returns.
//!
//! A truncation names how far it found each log, and cuts no other byte. **Of a log that may get bytes late
//! it cuts all** ([`Found::ALL`]): no later write is appended to such a log. So while this process has such a
//! log a truncation is recorded also where the size that is known is the wanted one, or a smaller one (test:
//! `a_truncation_to_the_size_that_is_known_cuts_what_a_write_brings_late`).
//!
//! A record waits for the writer's turn, and a sync that had it may have failed in that log: then the change
//! is repeated with another writer.

use super::{State, TURNS, Writer};
use crate::container::{attributes, names};
use crate::limits::{CUT_LOGS_MAX, FOLDERS, LOADS_AT_ONCE};
use crate::record::{Cut, Found};
use crate::writer_id::WriterId;
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use shoal_proto::{Owner, Status, Time};
use shoal_vfs::{Error, Result, Vfs};
use std::rc::Rc;

impl<B: Vfs> State<B> {
    /// Whether a truncation to this size has nothing to do.
    pub(in crate::container) fn has_size(&self, size: u64) -> bool {
        self.size() == size && !self.expects_late_bytes()
    }

    /// Whether logs may get bytes late, also beyond the size that is known.
    fn expects_late_bytes(&self) -> bool {
        !self.broken.borrow().is_empty()
    }

    /// Set the size. `writer` gives the writer of the open file. It is called with all turns: a write that
    /// was waited for may have failed in the log of the one before.
    pub(in crate::container) async fn truncate(
        &self,
        writer: impl AsyncFn() -> Result<Rc<Writer<B>>>,
        size: u64,
    ) -> Result<()> {
        let _all = self.turns.acquire(TURNS).await;
        loop {
            let writer = writer().await?;
            self.reload().await?;
            if self.has_size(size) {
                return Ok(());
            }
            let is_set = match size > self.size() && !self.expects_late_bytes() {
                true => self.extend(&writer, size).await?,
                false => self.cut(&writer, size).await?,
            };
            if is_set {
                return self.was_sized(&writer).await;
            }
        }
    }

    /// Make it at least so long. It cuts no byte, also none of another process that was not known here.
    /// `writer`: as of [`truncate`](State::truncate).
    pub(in crate::container) async fn extend_to(
        &self,
        writer: impl AsyncFn() -> Result<Rc<Writer<B>>>,
        end: u64,
    ) -> Result<()> {
        let _all = self.turns.acquire(TURNS).await;
        loop {
            let writer = writer().await?;
            self.reload().await?;
            if self.size() >= end {
                return Ok(());
            }
            if self.extend(&writer, end).await? {
                return self.was_sized(&writer).await;
            }
        }
    }

    /// `false`: the writer takes no more records.
    async fn extend(&self, writer: &Writer<B>, end: u64) -> Result<bool> {
        let _own = self.turn(&writer.turn).await?;
        if writer.is_broken() {
            return Ok(false);
        }
        let stamp = self.clock.draw(&self.shared.env);
        writer.extend(end, stamp).await?;
        self.index.borrow_mut().ends_at_least(end, stamp);
        Ok(true)
    }

    /// Its size was set with this writer.
    async fn was_sized(&self, writer: &Writer<B>) -> Result<()> {
        if !self.shared.outlives_its_process() {
            writer.sync(self).await?;
        }
        self.wrote_at.set(Some(Time(self.shared.env.wall().0)));
        Ok(())
    }

    /// `false`: the writer takes no more records.
    async fn cut(&self, writer: &Writer<B>, size: u64) -> Result<bool> {
        let _own = self.turn(&writer.turn).await?;
        if writer.is_broken() {
            return Ok(false);
        }
        let stamp = self.clock.draw(&self.shared.env);
        let (over, number) = (&self.shared.over, self.read_at.borrow().as_ref().map_or(0, |seen| seen.cuts));
        let logs = self.found().await?;
        if logs.len() > CUT_LOGS_MAX {
            let words = format!(
                "it has {} logs, more than a truncation can name: `shoal container compact`",
                logs.len()
            );
            return Err(Error::new(Status::OverLimit, "truncate").of(self.object).because(words));
        }
        // From here on no dropping that does not know of it is believed.
        let owner = Owner { mode: 0o644, uid: 0, gid: 0 };
        let owner = attributes::owner_of(over, self.object).await.unwrap_or(owner);
        match self.shared.put(self.object, &names::cut(writer.id, number)?, owner, Bytes::new()).await {
            // Of a cut whose record failed.
            Err(error) if error.status == Status::Exists => {}
            named => named?,
        }
        writer.cut(Cut { size, stamp, logs }).await?;
        self.read_at.replace(None);
        self.reload().await?;
        Ok(true)
    }

    /// How far each log is found.
    async fn found(&self) -> Result<Vec<Found>> {
        let ids: Vec<WriterId> = self.index.borrow().logs().to_vec();
        let found = ids.into_iter().map(|id| async move {
            let (data, index) = match self.own_lengths(id) {
                Some(lengths) => lengths,
                None => match self.lengths(id).await {
                    // Its writer made its name and nothing else yet.
                    Err(error) if error.status == Status::NotFound => (0, 0),
                    lengths => lengths?,
                },
            };
            Ok::<_, Error>(Found { id, data, index })
        });
        stream::iter(found).buffered(LOADS_AT_ONCE).try_collect().await
    }

    /// How far a log of this process is found: all of it where no later write is appended to it.
    fn own_lengths(&self, id: WriterId) -> Option<(u64, u64)> {
        if self.broken.borrow().contains(&id) {
            return Some((Found::ALL, Found::ALL));
        }
        self.writers.borrow().iter().find(|writer| writer.id == id).map(|writer| writer.lengths())
    }

    /// Bytes of another's logs.
    async fn lengths(&self, id: WriterId) -> Result<(u64, u64)> {
        let over = &self.shared.over;
        let folder = over.lookup(self.object, &names::folder(id.folder(FOLDERS))?).await?.handle;
        let data = over.lookup(folder, &names::data(id)?).await?.size;
        let index = over.lookup(folder, &names::index(id)?).await?.size;
        Ok((data, index))
    }
}
