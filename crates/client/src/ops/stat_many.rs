//! Attributes of many objects.

use super::many::{Wanted, Which, all, singly};
use crate::cache::{Leads, Stamp};
use crate::{Client, Error};
use shoal_proto::op::Answer;
use shoal_proto::{Attr, Handle, Op, Status};

impl Client {
    /// Attributes of many objects, merged: one message per server for 128 of them; one more for those whose
    /// entry and object are on different servers, and one to each data server for the facts of striped files.
    ///
    /// ```no_run
    /// # async fn example(client: shoal_client::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use shoal_client::Which;
    /// use shoal_proto::Name;
    /// let dir = client.walk(b"/inbox", true).await?.handle;
    /// let which = [Which::Entry(dir, Name::new(b"anna")?), Which::Object(dir)];
    /// for attr in client.stat_many(&which).await {
    ///     println!("{:?}", attr.map(|attr| attr.size));
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn stat_many(&self, which: &[Which]) -> Vec<Result<Attr, Error>> {
        let mut results: Vec<Option<Result<Attr, Error>>> =
            which.iter().map(|which| self.believed(which).map(Ok)).collect();
        if self.is_compounding() {
            let asked = self.core.cache.borrow().stamp(self.core.world.now());
            let elsewhere = self.stat_entries(which, asked, &mut results).await;
            self.stat_objects(which, &elsewhere, &mut results).await;
            self.merge_results(asked, &mut results).await;
        }
        singly(&mut results, async |item: usize| {
            let attr = match &which[item] {
                Which::Entry(dir, name) => self.lookup(*dir, name).await,
                Which::Object(object) => self.getattr(*object).await,
            };
            attr.map_err(|error| which[item].named(error))
        })
        .await;
        all("getattr", results)
    }

    /// The cached facts of an item.
    fn believed(&self, which: &Which) -> Option<Attr> {
        let now = self.core.world.now();
        let mut cache = self.core.cache.borrow_mut();
        let object = match which {
            Which::Object(object) => *object,
            Which::Entry(dir, name) => match cache.name(*dir, name, now)? {
                Leads::To(handle, _) => handle,
                Leads::Nowhere => return None,
            },
        };
        cache.attr(object, now)
    }

    /// The first round; which items' objects live on other servers than their entries.
    async fn stat_entries(
        &self,
        which: &[Which],
        asked: Stamp,
        results: &mut [Option<Result<Attr, Error>>],
    ) -> Vec<(usize, Handle)> {
        let items: Vec<usize> = (0..which.len()).filter(|&item| results[item].is_none()).collect();
        let wanted = items.iter().map(|&item| {
            let op = match &which[item] {
                Which::Entry(dir, name) => Op::Lookup { dir: *dir, path: vec![name.clone()].into() },
                Which::Object(object) => Op::Getattr { object: *object },
            };
            Wanted::plain(self.core.home_of(&which[item]), vec![op])
        });
        let told = self.core.ask_groups("getattr", wanted.collect()).await;
        let mut elsewhere = Vec::new();
        for (&item, told) in items.iter().zip(told) {
            let server = self.core.home_of(&which[item]);
            let fails =
                |status: Status| Some(Err(which[item].named(Error::new(status, "getattr").from(server))));
            results[item] = match told {
                Err(error) => Some(Err(which[item].named(error))),
                Ok(told) if told.status == Status::WrongServer => None,
                Ok(told) if told.status != Status::Ok => {
                    if let (Which::Entry(dir, name), Status::NotFound) = (&which[item], told.status) {
                        self.core.cache.borrow_mut().put_name(*dir, name, Leads::Nowhere, asked);
                    }
                    fails(told.status)
                }
                Ok(told) => match told.answers.into_iter().next() {
                    Some(Answer::Attr { attr, .. }) => Some(Ok(attr)),
                    Some(Answer::Looked { handle, kind, attr, .. }) => {
                        if let Which::Entry(dir, name) = &which[item] {
                            let leads = Leads::To(handle, kind);
                            self.core.cache.borrow_mut().put_name(*dir, name, leads, asked);
                        }
                        if attr.is_none() {
                            elsewhere.push((item, handle));
                        }
                        attr.map(Ok)
                    }
                    _ => fails(Status::BadMessage),
                },
            };
        }
        elsewhere
    }

    /// The second round: objects by their handles. One that is gone meanwhile is left to be looked up anew.
    async fn stat_objects(
        &self,
        which: &[Which],
        elsewhere: &[(usize, Handle)],
        results: &mut [Option<Result<Attr, Error>>],
    ) {
        let wanted = elsewhere
            .iter()
            .map(|&(_, object)| Wanted::plain(object.server(), vec![Op::Getattr { object }]))
            .collect();
        for (&(item, _), told) in elsewhere.iter().zip(self.core.ask_groups("getattr", wanted).await) {
            results[item] = match told {
                Err(error) => Some(Err(which[item].named(error))),
                Ok(told) => match (told.status, told.answers.into_iter().next()) {
                    (Status::Ok, Some(Answer::Attr { attr, .. })) if attr.nlink > 0 => Some(Ok(attr)),
                    _ => None,
                },
            };
        }
    }

    /// Facts of striped files: one message a data server. Where that fails, those files are requested one by
    /// one.
    pub(super) async fn merge_results(&self, asked: Stamp, results: &mut [Option<Result<Attr, Error>>]) {
        let o = self.core.begin("getattr", None);
        let striped: Vec<&mut Attr> = results
            .iter_mut()
            .filter_map(|result| result.as_mut()?.as_mut().ok())
            .filter(|attr| is_in_parts(attr))
            .collect();
        if !striped.is_empty() && !self.core.merge_many(&o, striped).await.is_empty() {
            for result in results.iter_mut() {
                if matches!(result, Some(Ok(attr)) if is_in_parts(attr)) {
                    *result = None;
                }
            }
        }
        let mut cache = self.core.cache.borrow_mut();
        for attr in results.iter().filter_map(|result| result.as_ref()?.as_ref().ok()) {
            cache.put_attr(attr, asked);
        }
    }
}

/// A striped file, or a directory that is split: one server does not know all of its attributes.
fn is_in_parts(attr: &Attr) -> bool {
    attr.layout.is_some() || attr.shards.is_split()
}
