//! Remove many entries.

use super::many::{Wanted, all, of_entry, singly};
use crate::{Client, Error};
use shoal_proto::{Handle, Name, Op, Status};

impl Client {
    /// Remove entries that are no directories: one message for 128 of them and server. A file held open here
    /// lives on until its last close.
    ///
    /// ```no_run
    /// # async fn example(client: shoal_client::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use shoal_proto::Name;
    /// let dir = client.walk(b"/inbox", true).await?.handle;
    /// let gone = client.remove_many(&[(dir, Name::new(b"anna")?), (dir, Name::new(b"bert")?)]).await;
    /// println!("{} removed", gone.iter().filter(|gone| gone.is_ok()).count());
    /// # Ok(()) }
    /// ```
    pub async fn remove_many(&self, entries: &[(Handle, Name)]) -> Vec<Result<(), Error>> {
        let mut results: Vec<Option<Result<(), Error>>> = entries.iter().map(|_| None).collect();
        if self.is_compounding() {
            self.remove_groups(entries, &mut results).await;
        }
        singly(&mut results, async |item: usize| {
            let (dir, name) = &entries[item];
            self.unlink(*dir, name).await.map_err(|error| of_entry(error, *dir, name))
        })
        .await;
        all("unlink", results)
    }

    async fn remove_groups(&self, entries: &[(Handle, Name)], results: &mut [Option<Result<(), Error>>]) {
        let held = self.core.held.borrow().to_tell();
        let wanted = entries.iter().map(|(dir, name)| {
            let op = Op::Unlink { dir: *dir, name: name.clone(), held: held.clone() };
            Wanted::plain(self.core.home_of_entry(*dir, name), vec![op])
        });
        let told = self.core.ask_groups("unlink", wanted.collect()).await;
        for ((place, (dir, name)), told) in results.iter_mut().zip(entries).zip(told) {
            self.core.cache.borrow_mut().changed_name(*dir, name);
            let removed = match told {
                Ok(told) => match told.status {
                    Status::WrongServer => continue,
                    Status::Ok => {
                        let o = self.core.begin("unlink", Some(*dir));
                        self.removed(&o, &told.answers).await
                    }
                    status => Err(Error::new(status, "unlink").from(self.core.home_of_entry(*dir, name))),
                },
                Err(error) => Err(error),
            };
            *place = Some(removed.map_err(|error| of_entry(error, *dir, name)));
        }
        self.changed_directories(entries.iter().map(|(dir, _)| *dir));
    }
}
