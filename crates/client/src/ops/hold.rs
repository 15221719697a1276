//! Reports the files that are open at this client to the servers that keep the files.

use crate::core::{Core, Operation};
use shoal_proto::op::Answer;
use shoal_proto::{Handle, Op, ServerId, limits};
use std::rc::Rc;
use std::time::Duration;

impl Core {
    /// Report to `server` which of its files are open here, each once per `share`. A failed report is sent
    /// again at the next look.
    pub(crate) async fn say_what_is_open(self: &Rc<Core>, server: ServerId, share: Duration) {
        let due = self.held.borrow().due(server, self.world.now(), share);
        for some in due.chunks(limits::HELD_MAX) {
            let o = self.begin("hold", some.first().copied());
            if self.hold_again(&o, server, some).await.is_err() {
                return;
            }
        }
    }

    /// A file was opened by `by`. Only the file's own server keeps it when another client removes it: another
    /// server does not inform it, so this client does, before its open returns. A failed report is sent again
    /// at the next look.
    pub(crate) async fn opened_by(self: &Rc<Core>, o: &Operation, by: ServerId, object: Handle) {
        if by != object.server() {
            let _ = self.hold_again(o, object.server(), &[object]).await;
        }
    }

    /// An object lost its last name, and its server keeps it for this client: if it is not held here, it is
    /// released. No caller waits for that: the release is sent until the server has answered.
    fn keep_or_release(&self, object: Handle) {
        let unheld = self.held.borrow_mut().orphaned(object);
        // From now on the session with its server is kept alive; it may have no connection.
        self.world.outgoing(object.server());
        if unheld {
            self.post_release(object);
        }
    }

    /// A change was answered after its caller stopped waiting. This client must still release the objects
    /// that the server keeps for it since then.
    pub(crate) fn answered_nobody(&self, answers: &[Answer]) {
        for answer in answers {
            match answer {
                Answer::Holding { removed } => {
                    removed.iter().for_each(|&object| self.keep_or_release(object));
                }
                Answer::Removed { handle, orphaned: true, .. } => self.keep_or_release(*handle),
                _ => {}
            }
        }
    }

    /// Say that these are open; those that have no name any more are orphans of this client from then on.
    pub(crate) async fn hold_again(
        self: &Rc<Core>,
        o: &Operation,
        server: ServerId,
        objects: &[Handle],
    ) -> Result<(), crate::Error> {
        let asked = self.world.now();
        let told = self.ask(o, server, vec![Op::Hold { objects: objects.to_vec().into() }]).await?;
        self.held.borrow_mut().told(objects, asked);
        for answer in &told.answers {
            let Answer::Holding { removed } = answer else { continue };
            removed.iter().for_each(|&object| self.keep_or_release(object));
        }
        Ok(())
    }
}
