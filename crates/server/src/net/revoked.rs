//! Ends the sessions of a mount key that was revoked.
//!
//! As soon as this server's map says that a key is revoked, no request under the key begins and no new
//! connection with the key is accepted. Each existing connection with the key gets a refusal with the reason,
//! and this server reads nothing more from the connection. A second later the connection is closed as if it
//! had been lost, and messages that still wait on it are dropped. Then the session ends, with its locks and
//! the removed files that it had open. If a transaction of the session is still under way, the lease ends the
//! session instead.

use crate::net::connection::Refused;
use crate::net::lease::end_session;
use crate::net::session::Session;
use crate::shard::Shard;
use shoal_proto::FrameKind;
use shoal_proto::message::Refusal;
use std::rc::Rc;
use std::time::Duration;

/// For the requests under way, and the refusal, to leave.
const GRACE: Duration = Duration::from_secs(1);
/// For the requests under way to end. The lease ends the sessions of those that do not.
const QUIET_WITHIN: Duration = Duration::from_secs(5);

/// The task of a shard that ends them. Each end is a task of its own: one that waits for other servers does
/// not hold back the end of the next key.
pub async fn run(shard: Rc<Shard>) {
    loop {
        let changed = shard.keys_changed.wait();
        for session in refuse_all(&shard) {
            let own = shard.clone();
            shard.tasks.spawn(&shard.env, "end a revoked session", async move {
                own.env.sleep(GRACE).await;
                end(&own, &session).await;
            });
        }
        changed.await;
    }
}

/// Refuse all connections of revoked keys; their sessions, once each.
fn refuse_all(shard: &Shard) -> Vec<Rc<Session>> {
    let map = shard.identity().map.clone();
    let key_of = |session: &Session| session.key.get().and_then(|id| map.mount_key(id));
    let mut revoked = Vec::new();
    for session in shard.sessions.all() {
        let Some(key) = key_of(&session).filter(|key| key.revoked) else { continue };
        if session.is_revoked.replace(true) {
            continue;
        }
        if let Some(line) = session.line.borrow().as_ref() {
            let Refused { status, words, .. } = Refused::revoked(key);
            line.send(FrameKind::Refusal, 0, &Refusal { status, words: words.into() }, &[]);
            line.close();
        }
        revoked.push(session);
    }
    revoked
}

async fn end(shard: &Rc<Shard>, session: &Rc<Session>) {
    let until = shard.env.now() + QUIET_WITHIN;
    let is_quiet = shard.env.deadline(until, session.discard()).await.is_ok();
    // A transaction that has begun goes on; nothing else of the session does.
    if is_quiet && !session.is_running() {
        end_session(shard, session).await;
    }
}
