//! Requests of administrators and tools, to one server or to all servers.

use crate::core::Operation;
use crate::{Client, Error, Options};
use bytes::Bytes;
use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt as _};
use shoal_env::{Address, Env};
use shoal_proto::message::{Loss, VERSION_OF_CACHES_AND_FILES};
use shoal_proto::op::{Answer, Row};
use shoal_proto::{
    Action, ClusterMap, Decision, Handle, Layout, MountKey, Op, Roles, ServerId, Status, StoreId, Text, TxId,
    limits,
};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

/// Files whose layouts a sync of all requests at once.
const LAYOUTS_AT_ONCE: usize = 16;

/// The results of a request to all servers, each by itself.
#[derive(Default, Debug)]
pub struct OfServers {
    /// These have done it.
    pub done: Vec<ServerId>,
    /// Why the others have not, or did not answer.
    pub failed: Vec<Error>,
}

impl OfServers {
    fn add(&mut self, told: Result<ServerId, Error>) {
        match told {
            Ok(server) => self.done.push(server),
            Err(error) => self.failed.push(error),
        }
    }

    fn into_result(self) -> Result<(), Error> {
        self.failed.into_iter().next().map_or(Ok(()), Err)
    }
}

impl Client {
    /// The time of the way to a server and back.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn ping(&self, server: ServerId) -> Result<Duration, Error> {
        let o = self.core.begin("ping", None);
        let begin = self.core.world.now();
        self.core.ask(&o, server, vec![Op::Ping {}]).await?;
        Ok(self.core.world.now().since(begin))
    }

    /// State and counts of a server, as JSON.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn status(&self, server: ServerId) -> Result<String, Error> {
        let o = self.core.begin("status", None);
        let told = self.core.ask(&o, server, vec![Op::Status {}]).await?;
        match told.answers.first() {
            Some(Answer::Json { json }) => Ok(String::from_utf8_lossy(json).into_owned()),
            _ => Err(unfit(&o, server)),
        }
    }

    /// Rows of a server's store that begin with `prefix`, after the key `after`; returns whether these are
    /// the last.
    ///
    /// # Errors
    /// When the server does not answer.
    pub async fn rows(
        &self,
        server: ServerId,
        prefix: &[u8],
        after: &[u8],
        limit: u32,
    ) -> Result<(Vec<Row>, bool), Error> {
        let o = self.core.begin("rows", None);
        let op = Op::Rows { prefix: prefix.into(), after: after.into(), limit };
        let told = self.core.ask(&o, server, vec![op]).await?;
        match told.answers.into_iter().next() {
            Some(Answer::Rows { rows, end }) => Ok((rows.0, end)),
            _ => Err(unfit(&o, server)),
        }
    }

    /// Those of a server's streams whose bytes were in a file that is not there any more; none, where the
    /// server is of an older version and cannot say.
    ///
    /// # Errors
    /// When the server does not answer.
    pub async fn lost_files(&self, server: ServerId, streams: &[Handle]) -> Result<Vec<Handle>, Error> {
        let o = self.core.begin("checkfiles", None);
        let mut lost = Vec::new();
        for some in streams.chunks(limits::HANDLES_MAX) {
            if self.core.version_of(server) < VERSION_OF_CACHES_AND_FILES {
                return Ok(Vec::new());
            }
            let op = Op::Checkfiles { streams: some.to_vec().into() };
            match self.core.ask(&o, server, vec![op]).await?.answers.into_iter().next() {
                Some(Answer::Handles { handles }) => lost.extend(handles.0),
                _ => return Err(unfit(&o, server)),
            }
        }
        Ok(lost)
    }

    /// Carry out repairs on a server, as one local transaction.
    ///
    /// # Errors
    /// When one of them does not match the server's rows: then none is done.
    pub async fn repair(&self, server: ServerId, actions: Vec<Action>) -> Result<(), Error> {
        let o = self.core.begin("repair", None);
        if actions.len() > limits::ACTIONS_MAX {
            return Err(o.error(Status::OverLimit).because("repair in several steps"));
        }
        self.core.ask(&o, server, vec![Op::Repair { actions: actions.into() }]).await?;
        Ok(())
    }

    /// End a transaction prepared on a server by a coordinator that is not in the file system (abort only),
    /// or whose store was given up (repair).
    ///
    /// # Errors
    /// As the server answers: `Forbidden` if there is such a coordinator.
    pub async fn finish(&self, server: ServerId, tx: TxId, decision: Decision) -> Result<(), Error> {
        let o = self.core.begin("finish", None);
        self.core.ask(&o, server, vec![Op::Finish { tx, decision }]).await?;
        Ok(())
    }

    /// Tell a server that the stores of other servers were given up, and `map` names their successors.
    ///
    /// # Errors
    /// `Conflict` if the server knows another successor of one of them; or when it does not answer.
    pub async fn renew(&self, server: ServerId, lost: &[ServerId], map: &ClusterMap) -> Result<(), Error> {
        let o = self.core.begin("renew", None);
        let op = Op::Renew { servers: lost.to_vec().into(), map: map.clone() };
        self.core.ask(&o, server, vec![op]).await?;
        Ok(())
    }

    /// Add a server to the running file system; the new map.
    ///
    /// # Errors
    /// As server 0 answers.
    pub async fn add_server(&self, addresses: Vec<String>, roles: Roles) -> Result<Rc<ClusterMap>, Error> {
        let o = self.core.begin("addserver", None);
        let addresses: Vec<Text> = addresses.into_iter().map(Text).collect();
        let server = ServerId(0);
        let op = Op::Addserver { addresses: addresses.into(), roles };
        match self.core.ask(&o, server, vec![op]).await?.answers.into_iter().next() {
            Some(Answer::Map { map }) => self.core.install_map(map),
            _ => self.core.fetch_map(&o, server).await?,
        }
        Ok(self.map())
    }

    /// Tell a server that another one, or it itself, is at these addresses from now on; `moved`: how often
    /// they were changed then. The map in which that stands.
    ///
    /// # Errors
    /// `Conflict`: the server knows a later change. `Exists`: another server is at one of them. Or it does
    /// not answer.
    pub async fn move_server(
        &self,
        told: ServerId,
        server: ServerId,
        addresses: &[String],
        moved: u32,
    ) -> Result<ClusterMap, Error> {
        let o = self.core.begin("moveserver", None);
        let addresses: Vec<Text> = addresses.iter().cloned().map(Text).collect();
        let op = Op::Moveserver { server, addresses: addresses.into(), moved };
        match self.core.ask(&o, told, vec![op]).await?.answers.into_iter().next() {
            Some(Answer::Map { map }) => {
                self.core.install_map(map.clone());
                Ok(map)
            }
            _ => Err(unfit(&o, told)),
        }
    }

    /// Tell a server of a mount key: that it is let in from now on, or that it is revoked. The map in which
    /// that stands.
    ///
    /// # Errors
    /// As the server answers; or it does not.
    pub async fn set_key(&self, told: ServerId, key: MountKey) -> Result<ClusterMap, Error> {
        let o = self.core.begin("setkey", None);
        match self.core.ask(&o, told, vec![Op::Setkey { key }]).await?.answers.into_iter().next() {
            Some(Answer::Map { map }) => {
                self.core.install_map(map.clone());
                Ok(map)
            }
            _ => Err(unfit(&o, told)),
        }
    }

    /// A server's map.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn map_of(&self, server: ServerId) -> Result<ClusterMap, Error> {
        let o = self.core.begin("map", None);
        match self.core.ask(&o, server, vec![Op::Map {}]).await?.answers.into_iter().next() {
            Some(Answer::Map { map }) => Ok(map),
            _ => Err(unfit(&o, server)),
        }
    }

    /// Which server of the file system listens at an address, and from which store it is served. Nothing is
    /// begun there.
    ///
    /// # Errors
    /// `Unavailable`: no process listens there. Otherwise the listener is no server of the file system; the
    /// text says why.
    pub async fn who_listens(
        env: &Env,
        options: &Options,
        address: &Address,
    ) -> Result<(ServerId, StoreId), Error> {
        crate::driver::who_listens(env, options, address).await
    }

    /// Change the sync modes of all servers: words as `shoal sync` takes them; an empty one leaves as is.
    ///
    /// # Errors
    /// `Invalid`: an unknown mode; or as a server answers (the others may have changed).
    pub async fn set_sync(&self, metadata: &str, data: &str, coalescing: &str) -> Result<(), Error> {
        self.set_sync_each(metadata, data, coalescing).await.into_result()
    }

    /// The same, on each server by itself: one that does not answer keeps no other from it.
    pub async fn set_sync_each(&self, metadata: &str, data: &str, coalescing: &str) -> OfServers {
        let op = Op::Setsync { metadata: metadata.into(), data: data.into(), coalescing: coalescing.into() };
        let o = self.core.begin("setsync", None);
        let mut of = OfServers::default();
        let told = self.each_server(&o, &op).await;
        told.into_iter().for_each(|told| of.add(told.map(|(server, _)| server)));
        of
    }

    /// Request the same of each server, also of those that the answers' newer map adds: each server and the
    /// loss id of its answer.
    async fn each_server(&self, o: &Operation, op: &Op) -> Vec<Result<(ServerId, Loss), Error>> {
        let (mut asked, mut told) = (BTreeSet::new(), Vec::new());
        loop {
            let map = self.map();
            let new: Vec<ServerId> =
                map.servers.iter().map(|info| info.id).filter(|server| asked.insert(*server)).collect();
            if new.is_empty() {
                return told;
            }
            let all = new.into_iter().map(|server| async move {
                self.core.ask(o, server, vec![op.clone()]).await.map(|told| (server, told.loss))
            });
            told.extend(join_all(all).await);
            let answered = told.iter().filter_map(|told| told.as_ref().ok()).map(|&(server, _)| server);
            if let Err(error) = self.core.newest_map(o, answered.collect()).await {
                told.push(Err(error));
                return told;
            }
        }
    }

    /// Make all changes so far durable on all servers, by any client: names, attributes and bytes.
    ///
    /// # Errors
    /// As a server answers. `Io`: earlier writes of this client that no fsync covered may be lost; reported
    /// once.
    pub async fn sync_all(&self) -> Result<(), Error> {
        self.sync_each().await.into_result()
    }

    /// The same, on each server by itself: one that does not answer keeps no other from it. An `Io` without a
    /// server: something that this client wrote may be lost, as by [`Client::sync_all`].
    pub async fn sync_each(&self) -> OfServers {
        let o = self.core.begin("sync", None);
        let before = self.core.inodes.borrow().all_before();
        let (mut synced, mut of) = (BTreeMap::new(), OfServers::default());
        for told in self.each_server(&o, &Op::Sync {}).await {
            of.add(told.map(|(server, loss)| {
                synced.insert(server, loss);
                server
            }));
        }
        let found = self.layouts(&o, before.laid_out().filter(|file| synced.contains_key(&file.server())));
        let found = found.await.unwrap_or_else(|error| {
            of.failed.push(error);
            BTreeMap::new()
        });
        let mut inodes = self.core.inodes.borrow_mut();
        inodes.compare_layouts(&before, &found);
        inodes.compare_all(&before, &synced);
        if of.failed.is_empty() && inodes.report_by_all() {
            of.failed.push(o.error(Status::Io).because(
                "a server lost its memory since this client wrote to it; what no fsync had covered may be gone",
            ));
        }
        of
    }

    /// The present layouts of these files; those that are gone are left out.
    async fn layouts(
        &self,
        o: &Operation,
        files: impl Iterator<Item = Handle>,
    ) -> Result<BTreeMap<Handle, Option<Rc<Layout>>>, Error> {
        let asked = files.map(|file| async move {
            match self.core.getattr_raw(o, file).await {
                Ok(attr) => Ok(Some((file, attr.layout.map(Rc::new)))),
                Err(error) if [Status::Stale, Status::NotFound].contains(&error.status) => Ok(None),
                Err(error) => Err(error),
            }
        });
        let found = stream::iter(asked).buffer_unordered(LAYOUTS_AT_ONCE).collect::<Vec<_>>().await;
        found.into_iter().filter_map(Result::transpose).collect()
    }

    /// Any operation as it is, to a server; returns the answer and its data.
    ///
    /// # Errors
    /// As the server answers.
    pub async fn request(&self, server: ServerId, op: Op, bulk: Bytes) -> Result<(Answer, Bytes), Error> {
        let o = self.core.begin(op.name(), None);
        if bulk.len() > limits::BULK_BYTES_MAX {
            return Err(o.error(Status::OverLimit));
        }
        let bulk = if bulk.is_empty() { Vec::new() } else { vec![bulk] };
        let told = self.core.ask_with(&o, server, vec![op], bulk, 0).await?;
        let answer = told.answers.into_iter().next().ok_or_else(|| unfit(&o, server))?;
        Ok((answer, told.bulk))
    }
}

fn unfit(o: &Operation, server: ServerId) -> Error {
    o.error(Status::BadMessage).from(server).because("its answer does not fit the question")
}
