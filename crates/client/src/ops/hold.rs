//! What is open here, said to the server that keeps it.

use crate::core::Core;
use shoal_env::Instant;
use shoal_proto::op::Answer;
use shoal_proto::{Handle, Op, ServerId, limits};
use std::rc::Rc;
use std::time::Duration;

impl Core {
    /// Say to `server` which of its files are open here, of each once in `share`. What fails is said again at the next look.
    pub(crate) async fn say_what_is_open(self: &Rc<Core>, server: ServerId, share: Duration) {
        let due = self.held.borrow().due(server, self.world.now(), share);
        for some in due.chunks(limits::HELD_MAX) {
            if self.hold_again(server, some, self.deadline()).await.is_err() {
                return;
            }
        }
    }

    /// Say that these are open; those that have no name any more are orphans of this client from then on.
    pub(crate) async fn hold_again(
        self: &Rc<Core>,
        server: ServerId,
        objects: &[Handle],
        deadline: Instant,
    ) -> Result<(), crate::Error> {
        let o = self.begin("hold", objects.first().copied()).until(deadline);
        let asked = self.world.now();
        let told = self.ask(&o, server, vec![Op::Hold { objects: objects.to_vec().into() }]).await?;
        self.held.borrow_mut().told(objects, asked);
        for answer in &told.answers {
            let Answer::Holding { removed } = answer else { continue };
            for &object in removed.iter() {
                self.orphaned(&o, object).await?;
            }
        }
        Ok(())
    }
}
