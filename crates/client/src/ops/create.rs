//! Make a regular file and open it, in one message.

use super::stepwise::NewFile;
use super::{attr_among, capability_among};
use crate::core::{Core, Operation, Told};
use crate::{Client, Error, OpenFile};
use shoal_proto::op::Answer;
use shoal_proto::{Attr, Handle, Kind, Name, Op, Owner, Rights, Status, Template};
use std::rc::Rc;

impl Client {
    /// Make a regular file and open it with `rights`; without `exclusive`, an existing one is opened. The
    /// attributes, whether it was made, and the open file.
    ///
    /// # Errors
    /// `Exists` (exclusive), `IsDirectory`, `NotDirectory`, `Stale`, `NoSpace`; `Loop`: the name is a
    /// symbolic link.
    pub async fn create(
        &self,
        dir: Handle,
        name: &Name,
        owner: Owner,
        exclusive: bool,
        rights: Rights,
        template: Option<Template>,
    ) -> Result<(Attr, bool, OpenFile), Error> {
        let o = self.begin("create", Some(dir));
        if !self.core.switches().compound {
            let file = NewFile { owner, rights, template };
            return Box::pin(self.create_apart(&o, dir, name, exclusive, file)).await;
        }
        let op = Op::Create { dir, name: name.clone(), owner, exclusive, open: rights, template };
        loop {
            // The existing file may be removed before the answer says which file it is.
            let _seek = (!exclusive).then(|| crate::file::Seek::new(self));
            let told = match exclusive {
                true => self.core.ask_in_directory(&o, dir, op.clone()).await,
                // The answer may be only a redirect, with no answers after it.
                false => self.core.ask(&o, dir.server(), vec![op.clone()]).await,
            };
            let elsewhere = match told {
                Ok(told) => match told.answers.first() {
                    Some(Answer::Made { created, .. }) => {
                        let created = *created;
                        match self.created(&o, dir, name, created, rights, &told).await {
                            // It was there, and was removed before all of it was seen: it is made after all.
                            Err(error) if !created && is_gone(&error) => {
                                self.core.back_off(&o, error).await?;
                                continue;
                            }
                            ended => return ended,
                        }
                    }
                    // The name leads to an object of another server.
                    Some(Answer::Looked { handle, kind: Kind::Symlink, .. }) => {
                        return Err(is_link(&o, *handle));
                    }
                    Some(Answer::Looked { handle, .. }) => *handle,
                    _ => return Err(o.error(Status::BadMessage).from(dir.server())),
                },
                Err(error) if error.status == Status::Exists && !exclusive => {
                    match Box::pin(self.core.lookup_path(&o, dir, std::slice::from_ref(name))).await {
                        Ok(attr) => attr.handle,
                        Err(error) if is_gone(&error) => {
                            self.core.back_off(&o, error).await?;
                            continue;
                        }
                        Err(error) => return Err(error),
                    }
                }
                Err(error) => return Err(error),
            };
            match Box::pin(self.open_of(&o, elsewhere, rights)).await {
                Ok((attr, file)) => return Ok((attr, false, file)),
                // Removed between the two: it is made after all.
                Err(error) if is_gone(&error) => {
                    self.core.back_off(&o, error).await?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn created(
        &self,
        o: &Operation,
        dir: Handle,
        name: &Name,
        created: bool,
        rights: Rights,
        told: &Told,
    ) -> Result<(Attr, bool, OpenFile), Error> {
        let Some(attr) = attr_among(&told.answers) else {
            return Err(o.error(Status::BadMessage).from(dir.server()));
        };
        if attr.kind == Kind::Symlink {
            return Err(is_link(o, attr.handle));
        }
        let file = OpenFile::new(self.clone(), &attr, rights, capability_among(&told.answers));
        self.core.opened_by(o, told.server, attr.handle).await;
        if created {
            self.core.cache.borrow_mut().changed_name(dir, name);
            self.core.made_empty(o, dir, name, &attr);
            return Ok((attr, created, file));
        }
        let attr = self.core.made(o, dir, name, attr).await?;
        Ok((attr, created, file))
    }
}

fn is_link(o: &Operation, object: Handle) -> Error {
    o.error(Status::Loop).of(object).because("the name is a symbolic link")
}

fn is_gone(error: &Error) -> bool {
    matches!(error.status, Status::Stale | Status::NotFound)
}

impl Core {
    /// An object lost its last name on the server; if it is not held here, it is released.
    pub(crate) async fn orphaned(self: &Rc<Core>, o: &Operation, object: Handle) -> Result<(), Error> {
        let unheld = self.held.borrow_mut().orphaned(object);
        // From now on the session with its server is kept alive; it may have no connection.
        self.world.outgoing(object.server());
        if unheld {
            self.ask(o, object.server(), vec![Op::Release { object }]).await?;
        }
        Ok(())
    }
}
