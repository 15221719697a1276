//! Make many files, empty or with their contents.

use super::many::{Wanted, all, of_entry, singly};
use super::small::written_attr;
use super::{attr_among, many};
use crate::core::ToldGroup;
use crate::transfer::whole;
use crate::{Client, Error};
use shoal_env::Instant;
use shoal_proto::{Attr, Generation, Handle, Name, Op, Owner, Placement, Rights, Status, Template};
use shoal_vfs::NewFile;

impl Client {
    /// Make new files, each empty or with its contents: one message for as many as fit (128 files, 1 MiB of
    /// contents) and server. The attributes of each, or why it was not made; one that exists (`Exists`)
    /// leaves the others as they are.
    ///
    /// Durable as [`Client::create_write`]: the reply waits until files and eager contents are.
    ///
    /// ```no_run
    /// # async fn example(client: shoal_client::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use shoal_client::NewFile;
    /// use shoal_proto::{Name, Owner};
    /// let dir = client.walk(b"/inbox", true).await?.handle;
    /// let letters = ["anna", "bert"].map(|to| (to, format!("Dear {to}")));
    /// let files = letters.iter().map(|(to, text)| -> Result<NewFile, shoal_proto::Status> {
    ///     Ok(NewFile { dir, name: Name::new(to.as_bytes())?, data: text.clone().into() })
    /// });
    /// let owner = Owner { mode: 0o644, uid: 1000, gid: 1000 };
    /// for made in client.create_many(files.collect::<Result<_, _>>()?, owner, None).await {
    ///     println!("{} bytes", made?.size);
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn create_many(
        &self,
        files: Vec<NewFile>,
        owner: Owner,
        template: Option<Template>,
    ) -> Vec<Result<Attr, Error>> {
        let mut results: Vec<Option<Result<Attr, Error>>> = files.iter().map(|_| None).collect();
        if self.is_compounding() && self.map().switches.placement == Placement::Colocated {
            self.create_groups(&files, owner, template, &mut results).await;
        }
        singly(&mut results, async |item: usize| {
            let NewFile { dir, name, data } = &files[item];
            let made = self.create_write(*dir, name, owner, data.clone(), template).await;
            made.map_err(|error| of_entry(error, *dir, name))
        })
        .await;
        all("create", results)
    }

    /// Those that one message can make.
    async fn create_groups(
        &self,
        files: &[NewFile],
        owner: Owner,
        template: Option<Template>,
        results: &mut [Option<Result<Attr, Error>>],
    ) {
        let stuffed_max = template.unwrap_or(self.map().template).stuffed_max();
        let began = self.core.world.now();
        let (mut items, mut wanted) = (Vec::new(), Vec::new());
        for (item, file) in files.iter().enumerate() {
            let server = self.core.home_of_entry(file.dir, &file.name);
            let len = file.data.len();
            if len <= self.core.eager_bytes(server) && len as u64 <= stuffed_max {
                items.push(item);
                wanted.push(many::Wanted { server, ..creation(file, owner, template) });
            }
        }
        for (&item, told) in items.iter().zip(self.core.ask_groups("create", wanted).await) {
            let NewFile { dir, name, .. } = &files[item];
            self.core.cache.borrow_mut().changed_name(*dir, name);
            results[item] = match told {
                Ok(told) => match told.status {
                    Status::Ok => Some(self.made_of(*dir, name, &told, began).await),
                    // The directory's own template is smaller than the contents, or its files are requested
                    // elsewhere.
                    Status::StaleLayout | Status::WrongServer => None,
                    status => {
                        let error = Error::new(status, "create").from(dir.server());
                        Some(Err(of_entry(error, *dir, name)))
                    }
                },
                Err(error) => Some(Err(of_entry(error, *dir, name))),
            };
        }
        self.changed_directories(items.iter().map(|&item| files[item].dir));
    }

    async fn made_of(
        &self,
        dir: Handle,
        name: &Name,
        told: &ToldGroup,
        began: Instant,
    ) -> Result<Attr, Error> {
        let mut o = self.core.begin("create", Some(dir));
        o.began = began;
        let Some(attr) = attr_among(&told.answers) else {
            return Err(of_entry(o.error(Status::BadMessage).from(dir.server()), dir, name));
        };
        self.core.made(&o, dir, name, written_attr(attr, &told.answers)).await
    }
}

fn creation(file: &NewFile, owner: Owner, template: Option<Template>) -> Wanted {
    let len = file.data.len() as u32;
    let open = if len > 0 { Rights::WRITE } else { Rights::empty() };
    let mut ops =
        vec![Op::Create { dir: file.dir, name: file.name.clone(), owner, exclusive: true, open, template }];
    if len > 0 {
        let transfer = whole(Handle::CURRENT, Generation(0), None, u64::from(len));
        ops.push(Op::Write { transfer, len });
    }
    Wanted { bulk: file.data.clone(), ..Wanted::plain(file.dir.server(), ops) }
}
