//! The end of sessions. A session ends when:
//!
//! - its client was silent for a lease and no request of it runs ([`run`]; for clients with locks also
//!   [`crate::file_locks`], which looks more often);
//! - its client had locks before a restart of this server and did not claim them within a lease;
//! - its mount key was revoked ([`crate::net::revoked`]);
//! - its client begins a further session and has too many.
//!
//! If the client has no other session here, its file locks end, and the removed files that it held open are
//! removed, in bounded batches. Then the session's kept replies are removed, in bounded batches, and its row
//! last. So if the server crashes in between, the row is still there, and the session ends again after the
//! next start.
//!
//! An orphan (a removed file that a client has open) names a client, not a session. Every half lease,
//! [`run`] looks for orphans of clients without any session here, and removes the orphans that two
//! consecutive looks have found. The same task ends the stepwise changes of absent clients
//! ([`stepwise::sweep`]).

use crate::counters::add;
use crate::data::status_of;
use crate::file_locks;
use crate::meta::keys::{self, Table};
use crate::net::session::Session;
use crate::request::executor::{Asker, run_own};
use crate::shard::{Shard, apply_own};
use crate::stepwise;
use bytes::Bytes;
use shoal_env::crash_point;
use shoal_proto::message::Refusal;
use shoal_proto::{ClientId, FrameKind, Group, Handle, Op, Status};
use shoal_store::{Changes, Strength, look};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

/// Rows of one batch.
const BATCH: usize = 256;
/// Orphans removed by one compound.
const RELEASES: usize = 64;
/// How long one such compound may take.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(60);

/// The task of a shard that ends sessions.
pub async fn run(shard: Rc<Shard>) {
    let (mut strangers, mut absent) = (BTreeSet::new(), BTreeMap::new());
    loop {
        shard.env.sleep(shard.settings.lease / 2).await;
        let now = shard.env.now();
        for session in shard.sessions.all() {
            let silent = now.since(session.heard.get());
            if silent > shard.settings.lease && !session.is_running() {
                end_session(&shard, &session).await;
            }
        }
        match clients_of_orphans(&shard).await {
            Ok(clients) => {
                let now_strangers: BTreeSet<ClientId> =
                    clients.into_iter().filter(|client| !shard.sessions.has_client(*client)).collect();
                for client in now_strangers.intersection(&strangers) {
                    release_all(&shard, *client).await;
                }
                strangers = now_strangers;
            }
            Err(status) => tracing::warn!(%status, "orphans could not be listed"),
        }
        if let Err(status) = stepwise::sweep(&shard, &mut absent).await {
            tracing::warn!(%status, "what clients began could not be looked at");
        }
    }
}

/// End one session.
pub async fn end_session(shard: &Rc<Shard>, session: &Rc<Session>) {
    shard.env.crash_point(crash_point::LEASE_ENDS, session.id.0);
    shard.sessions.remove(session.id);
    add(&shard.counters.sessions_ended, 1);
    shard.audit.session_ended(shard, session);
    if let Some(line) = session.line.take() {
        let words = "nothing was heard for the time of the lease";
        // One that took nothing for so long does not take this: its bytes are not held for it.
        let takes_nothing = line.out_bytes() > 0;
        line.send(FrameKind::Refusal, 0, &Refusal { status: Status::NoSession, words: words.into() }, &[]);
        if takes_nothing { line.end() } else { line.close() }
    }
    if !shard.sessions.has_client(session.client) {
        file_locks::end_client(shard, session.client);
        release_all(shard, session.client).await;
    }
    shard.env.crash_point(crash_point::LEASE_RELEASED, session.id.0);
    if let Err(status) = forget_rows(shard, session).await {
        // The row is still there: the next start ends the session again.
        tracing::warn!(session = %session.id, %status, "a session's rows could not all be removed");
    }
    shard.env.crash_point(crash_point::LEASE_FORGOTTEN, session.id.0);
}

async fn forget_rows(shard: &Rc<Shard>, session: &Session) -> Result<(), Status> {
    let prefix = keys::kept_of(session.id);
    loop {
        let (scan, _) =
            look(&shard.collection, |view| view.scan(&prefix, None, BATCH)).await.map_err(status_of)?;
        if scan.rows.is_empty() && scan.resume.is_none() {
            break;
        }
        remove(shard, scan.rows.into_iter().map(|(key, _)| key).collect()).await?;
    }
    remove(shard, vec![keys::session(session.id)]).await
}

async fn remove(shard: &Rc<Shard>, keys: Vec<Bytes>) -> Result<(), Status> {
    let mut changes = Changes { strength: Strength::Weak, ..Changes::default() };
    keys.into_iter().for_each(|key| changes.remove(key));
    apply_own(&shard.collection, changes).await.map(drop).map_err(status_of)
}

/// All clients that orphans are kept for.
async fn clients_of_orphans(shard: &Rc<Shard>) -> Result<BTreeSet<ClientId>, Status> {
    let mut clients = BTreeSet::new();
    each_orphan(shard, |_, client| {
        clients.insert(client);
    })
    .await?;
    Ok(clients)
}

/// Remove objects that were kept only because this client held them open.
async fn release_all(shard: &Rc<Shard>, client: ClientId) {
    let mut handles = Vec::new();
    let listed = each_orphan(shard, |handle, owner| {
        if owner == client {
            handles.push(handle);
        }
    })
    .await;
    if let Err(status) = listed {
        tracing::warn!(%status, "orphans could not be listed");
    }
    let asker = Asker::own(client);
    for some in handles.chunks(RELEASES) {
        let groups: Vec<Group> =
            some.iter().map(|&object| Group { ops: vec![Op::Release { object }].into() }).collect();
        let replies = run_own(shard, asker, groups, RELEASE_TIMEOUT).await;
        for (handle, reply) in some.iter().zip(replies) {
            if !matches!(reply.status, Status::Ok | Status::Stale) {
                tracing::warn!(%handle, status = %reply.status, "an orphan could not be removed");
            }
        }
    }
}

async fn each_orphan(shard: &Rc<Shard>, mut each: impl FnMut(Handle, ClientId)) -> Result<(), Status> {
    let prefix = keys::table(Table::Orphan);
    let mut after: Option<Bytes> = None;
    loop {
        let looked = look(&shard.collection, |view| view.scan(&prefix, after.as_deref(), BATCH)).await;
        let (scan, _) = looked.map_err(status_of)?;
        for (key, _) in &scan.rows {
            match keys::parse_orphan(key) {
                Some((handle, client)) if client != ClientId::ANYONE => each(handle, client),
                _ => {}
            }
        }
        match scan.resume {
            Some(key) => after = Some(key),
            None => return Ok(()),
        }
    }
}
