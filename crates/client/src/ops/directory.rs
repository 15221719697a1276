//! What a change did to its directory, asked for in the message that changes it.
//!
//! A mount's kernel forgets a directory's attributes with every entry that is made or removed in it, and asks for them
//! before the next. So, for whoever listens, the question rides behind the change in the same group: the group is one
//! atomic transaction and sees its own changes.
//!
//! **Only where the change is all on the directory's server.** A transaction over servers is carried out after its group
//! has answered, so the attributes in that answer are those before it: they are not told.

use crate::core::{Core, Operation, Told};
use crate::{Client, Error};
use shoal_env::Instant;
use shoal_proto::op::Answer;
use shoal_proto::{Attr, Handle, Op};
use std::rc::Rc;

/// Who listens: to the directory, when the change was asked for, and its attributes after it, where they are known.
pub(crate) type Listener = Rc<dyn Fn(Handle, Instant, Option<&Attr>)>;

impl Client {
    /// Have the attributes of directories told after each create, mknod, symlink and unlink by this client: the directory,
    /// the moment at which the change was asked for, and the attributes; `None` where the change failed or took several
    /// servers, so that nothing that was told before is true any more. Creations that are not exclusive tell nothing.
    pub fn hear_directories(&self, listener: impl Fn(Handle, Instant, Option<&Attr>) + 'static) {
        self.core.cache.borrow_mut().listener = Some(Rc::new(listener));
    }
}

impl Core {
    /// Ask for a change of `dir`'s entries, and tell who listens what became of the directory.
    pub(crate) async fn ask_in_directory(
        self: &Rc<Core>,
        o: &Operation,
        dir: Handle,
        change: Op,
    ) -> Result<Told, Error> {
        let listener = self.cache.borrow().listener.clone();
        let Some(listener) = listener else { return self.ask(o, dir.server(), vec![change]).await };
        let asked_at = self.world.now();
        let mut told = self.ask(o, dir.server(), vec![change, Op::Getattr { object: dir }]).await;
        let attr = told.as_mut().ok().and_then(|told| after(dir, &mut told.answers));
        listener(dir, asked_at, attr.as_ref());
        told
    }
}

/// Take the directory's attributes out of the answers; `None` if they are not those after the change.
fn after(dir: Handle, answers: &mut Vec<Answer>) -> Option<Attr> {
    let last = answers.pop()?;
    let is_here = match answers.first()? {
        Answer::Made { attr, .. } => attr.handle.server() == dir.server() && attr.layout.is_none(),
        Answer::Attr { attr } => attr.handle.server() == dir.server() && attr.layout.is_none(),
        Answer::Removed { handle, .. } => handle.server() == dir.server(),
        _ => false,
    };
    match last {
        Answer::Attr { attr } if is_here && attr.handle == dir => Some(attr),
        _ => None,
    }
}
