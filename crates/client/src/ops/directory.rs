//! Requests a directory's attributes in the same message as a change of the directory.
//!
//! With every entry that is made or removed, a mount's kernel drops the directory's attributes, and
//! requests them before the next such change. So, if there is a listener, the client requests the
//! attributes in the same *group* as the change: a group is one atomic transaction, and a later operation
//! of it sees the changes of the earlier ones.
//!
//! **The attributes are used only if the directory's server alone makes the change.** A transaction over
//! several servers is committed after its group has answered, so the attributes in that answer are older
//! than the change, and they are not passed on. For a split directory the answer has the attributes of one
//! shard. For every other shard the client uses the attributes that it received last, while they are valid.

use crate::core::{Core, Operation, Told};
use crate::{Client, Error};
use shoal_env::Instant;
use shoal_proto::op::Answer;
use shoal_proto::{Attr, Handle, Op, ServerId};
use std::rc::Rc;

/// The listener: it receives the directory, the moment at which the change was requested, and the attributes
/// after the change, where they are known.
pub(crate) type Listener = Rc<dyn Fn(Handle, Instant, Option<&Attr>)>;

impl Client {
    /// Have the attributes of directories reported after each create, mknod, symlink and unlink by this
    /// client: the directory, the moment at which the change was requested, and the attributes. `None` where
    /// the change failed or took several servers: then all attributes reported before are out of date.
    /// Creations that are not exclusive report nothing.
    pub fn hear_directories(&self, listener: impl Fn(Handle, Instant, Option<&Attr>) + 'static) {
        self.core.cache.borrow_mut().listener = Some(Rc::new(listener));
    }
}

impl Core {
    /// Request a change of `dir`'s entries, and report the directory's attributes to the listener.
    pub(crate) async fn ask_in_directory(
        self: &Rc<Core>,
        o: &Operation,
        dir: Handle,
        change: Op,
    ) -> Result<Told, Error> {
        let listener = self.cache.borrow().listener.clone();
        let Some(listener) = listener else { return self.ask(o, dir.server(), vec![change]).await };
        let asked_at = self.world.now();
        if !self.switches().compound {
            let told = self.ask(o, dir.server(), vec![change]).await;
            listener(dir, asked_at, None);
            return told;
        }
        let mut told = self.ask(o, dir.server(), vec![change, Op::Getattr { object: dir }]).await;
        let attr = told.as_mut().ok().and_then(|told| after(dir, told.server, &mut told.answers));
        let attr = attr.and_then(|(server, attr)| self.whole(server, attr, asked_at));
        listener(dir, asked_at, attr.as_ref());
        told
    }

    /// The directory's attributes, from those that a server returned. If the directory is split, they include
    /// the recent attributes of its other shards; without those there are none.
    fn whole(&self, server: ServerId, attr: Attr, asked_at: Instant) -> Option<Attr> {
        if !attr.shards.is_split() {
            return Some(attr);
        }
        let mut split = self.split.borrow_mut();
        split.learn(attr.handle, &attr.shards, None);
        split.saw(server, &attr, asked_at);
        split.attr(attr.handle, self.world.now(), self.options.attr_cache)
    }
}

/// Take the directory's attributes out of the answers of a server, that of its shard; `None` if they are not
/// those after the change.
fn after(dir: Handle, server: ServerId, answers: &mut Vec<Answer>) -> Option<(ServerId, Attr)> {
    let last = answers.pop()?;
    let is_here = match answers.first()? {
        Answer::Made { attr, .. } => attr.handle.server() == server && attr.layout.is_none(),
        Answer::Attr { attr, .. } => attr.handle.server() == server && attr.layout.is_none(),
        Answer::Removed { handle, .. } => handle.server() == server,
        _ => false,
    };
    match last {
        Answer::Attr { attr, .. } if is_here && attr.handle == dir => Some((server, attr)),
        _ => None,
    }
}
