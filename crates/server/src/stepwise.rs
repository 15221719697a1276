//! Operations that clients began step by step (`compound = off`). Durable rows record unfinished operations.
//! [`sweep`], which runs every half lease, ends them.
//!
//! ```text
//!   A: server of the metafile   B: server of the directory   j: server of a datafile
//!
//!   create                                             remove
//!   A  metafile, row New{client, dir, name}            B  entry gone, row Unnamed{client} under a ticket
//!   j  datafiles, rows New{client, metafile}           A  metafile gone, datafiles with rows (New, or Reap)
//!   A  layout                                          j  datafiles gone
//!   B  entry
//! ```
//! No step informs the servers of earlier steps: that would take messages that PVFS does not send. So each
//! server asks now and then, with many questions in one message, and removes a row when its question is
//! answered: *the entry exists* (A asks B), *the metafile lists the datafile* (j asks A), *the object is
//! gone* (B asks A).
//!
//! **When the client of a row has no session here any more, this server ends the operation.** It removes an
//! object that was not entered into its directory, but only when the directory's server has promised, durably
//! (row Void), never to enter it: the client may still have sessions at other servers. In the same way a
//! metafile without a layout is removed before its datafiles are. If a name was removed and its link is still
//! counted, a transaction reduces the count and ends the ticket. So a file exists whole or not at all, and
//! each link counts once.
//!
//! A request that renames or links an object has found it by a name. So it also ends the object's row New
//! ([`crate::txn::actions`]), under the lock of the inode. Therefore an object is not removed if its name
//! changes while the server of the old name is asked.

use crate::data::status_of;
use crate::meta::keys::{self, Table};
use crate::meta::rows::{New, RowValue, Unnamed, Void};
use crate::request::executor::{Asker, run_own};
use crate::shard::{Shard, apply_own};
use bytes::Bytes;
use futures_util::future::join_all;
use shoal_env::crash_point;
use shoal_proto::{Answer, ClientId, Group, GroupReply, Handle, Op, ServerId, Status, Vouched, limits};
use shoal_store::{Changes, Strength, look};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

/// Rows of one scan.
const BATCH: usize = 256;
/// How long one question may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Looks in a row after which a client without a session here counts as gone.
const LOOKS: u32 = 3;

/// Look once at all rows. `absent` counts the looks at which a client was not here.
pub async fn sweep(shard: &Rc<Shard>, absent: &mut BTreeMap<ClientId, u32>) -> Result<(), Status> {
    if shard.identity().map.switches.compound {
        return Ok(());
    }
    let away = Away::default();
    places(shard, &away).await?;
    links(shard, &away).await?;
    voids(shard, absent).await
}

/// Servers that could not be reached in this look: they are asked nothing more until the next one.
type Away = RefCell<BTreeSet<ServerId>>;

/// A question about a row, and the action by its answer.
struct Question {
    row: Bytes,
    object: Handle,
    server: ServerId,
    op: Op,
}

/// An object that was made and may not have its name.
async fn places(shard: &Rc<Shard>, away: &Away) -> Result<(), Status> {
    let mut questions = Vec::new();
    for (key, value) in rows(shard, Table::New).await? {
        let (Some(object), Ok(new)) = (keys::parse_handle(&key), New::from_row(&value)) else { continue };
        let refuse = !shard.sessions.has_client(new.client);
        let (server, place) = (new.place.server(), new.place);
        let op = match new.name {
            Some(name) => Op::Vouchentry { dir: place, name, object, client: new.client, refuse },
            None => Op::Vouchdata { owner: place, datafile: object, refuse },
        };
        questions.push(Question { row: key, object, server, op });
    }
    let (mut stand, mut never) = (Vec::new(), Vec::new());
    for (question, reply) in asked(shard, questions, away).await {
        match reply.map(|reply| reply.answers.0.into_iter().next()) {
            Some(Some(Answer::Vouched { vouched: Vouched::Stands })) => stand.push(question.row),
            Some(Some(Answer::Vouched { vouched: Vouched::Never })) => never.push(question.object),
            _ => {}
        }
    }
    remove(shard, stand).await?;
    if never.is_empty() {
        return Ok(());
    }
    shard.env.crash_point(crash_point::UNFINISHED_ASKED, 0);
    own(shard, never.into_iter().map(|object| Op::Discard { object }).collect()).await;
    shard.env.crash_point(crash_point::UNFINISHED_DISCARDED, 0);
    Ok(())
}

/// Links of names that were taken away.
async fn links(shard: &Rc<Shard>, away: &Away) -> Result<(), Status> {
    let mut questions = Vec::new();
    let mut clients = BTreeMap::new();
    for (key, value) in rows(shard, Table::Unnamed).await? {
        let (Some((object, ticket)), Ok(row)) = (keys::parse_unnamed(&key), Unnamed::from_row(&value)) else {
            continue;
        };
        clients.insert(key.clone(), (ticket, row.client));
        questions.push(Question { row: key, object, server: object.server(), op: Op::Getattr { object } });
    }
    let (mut done, mut settle) = (Vec::new(), Vec::new());
    for (question, reply) in asked(shard, questions, away).await {
        let Some(reply) = reply else { continue };
        let counted = match (reply.status, reply.answers.0.first()) {
            (Status::Stale, _) => true,
            (Status::Ok, Some(Answer::Attr { attr, .. })) => attr.nlink == 0,
            _ => continue,
        };
        match clients.get(&question.row) {
            _ if counted => done.push(question.row),
            Some(&(ticket, client)) if !shard.sessions.has_client(client) => {
                settle.push(Op::Settle { object: question.object, ticket, held: false });
            }
            _ => {}
        }
    }
    remove(shard, done).await?;
    own(shard, settle).await;
    shard.env.crash_point(crash_point::UNFINISHED_SETTLED, 0);
    Ok(())
}

/// The row of an object that may never be entered is dropped when any client that could try is gone.
async fn voids(shard: &Rc<Shard>, absent: &mut BTreeMap<ClientId, u32>) -> Result<(), Status> {
    let (mut seen, mut gone) = (BTreeMap::new(), Vec::new());
    for (key, value) in rows(shard, Table::Void).await? {
        let Ok(Void { client }) = Void::from_row(&value) else { continue };
        if shard.sessions.has_client(client) {
            continue;
        }
        let looks = absent.get(&client).copied().unwrap_or(0) + 1;
        seen.insert(client, looks);
        if looks >= LOOKS {
            gone.push(key);
        }
    }
    *absent = seen;
    remove(shard, gone).await
}

/// Ask all, many by one message, all servers at once; no reply from a server that cannot be reached. It is
/// asked nothing more in this look, so that a caller that waits for the end of it waits for one question at
/// most.
async fn asked(
    shard: &Rc<Shard>,
    questions: Vec<Question>,
    away: &Away,
) -> Vec<(Question, Option<GroupReply>)> {
    let mut by_server: BTreeMap<ServerId, Vec<Question>> = BTreeMap::new();
    for question in questions {
        by_server.entry(question.server).or_default().push(question);
    }
    let each = by_server.into_iter().map(|(server, questions)| async move {
        let mut answered = Vec::with_capacity(questions.len());
        let mut questions = questions.into_iter().peekable();
        while questions.peek().is_some() && !away.borrow().contains(&server) {
            let some: Vec<Question> = questions.by_ref().take(limits::GROUPS_MAX).collect();
            let ops = some.iter().map(|question| question.op.clone()).collect();
            let replies = ask(shard, server, ops).await;
            if matches!(replies, Err(Status::Unavailable | Status::TimedOut)) {
                away.borrow_mut().insert(server);
            }
            let mut replies = replies.unwrap_or_default().into_iter();
            answered.extend(some.into_iter().map(|question| (question, replies.next())));
        }
        answered.extend(questions.map(|question| (question, None)));
        answered
    });
    join_all(each).await.into_iter().flatten().collect()
}

async fn ask(shard: &Rc<Shard>, server: ServerId, ops: Vec<Op>) -> Result<Vec<GroupReply>, Status> {
    if server == shard.id() {
        return Ok(own(shard, ops).await);
    }
    let deadline = shard.env.now() + TIMEOUT;
    let asked = shard.peers.call_all(server, ops, Bytes::new(), deadline).await;
    if let Err(status) = &asked {
        tracing::debug!(%server, %status, "could not be asked what became of files being made");
    }
    asked.map(|(replies, _)| replies)
}

/// Run operations of this server's own, a group each.
async fn own(shard: &Rc<Shard>, ops: Vec<Op>) -> Vec<GroupReply> {
    let asker = Asker::own(ClientId::default());
    let mut replies = Vec::with_capacity(ops.len());
    for some in ops.chunks(limits::GROUPS_MAX) {
        let groups: Vec<Group> = some.iter().map(|op| Group { ops: vec![op.clone()].into() }).collect();
        replies.extend(run_own(shard, asker, groups, TIMEOUT).await);
    }
    replies
}

async fn rows(shard: &Rc<Shard>, table: Table) -> Result<Vec<(Bytes, Bytes)>, Status> {
    let (prefix, mut found, mut after) = (keys::table(table), Vec::new(), None::<Bytes>);
    loop {
        let looked = look(&shard.collection, |view| view.scan(&prefix, after.as_deref(), BATCH)).await;
        let (scan, seen) = looked.map_err(status_of)?;
        // A message: the changes that it depends on are durable before it leaves.
        crate::txn::durable(&shard.collection, seen).await.map_err(status_of)?;
        found.extend(scan.rows);
        match scan.resume {
            Some(key) => after = Some(key),
            None => return Ok(found),
        }
    }
}

async fn remove(shard: &Rc<Shard>, keys: Vec<Bytes>) -> Result<(), Status> {
    for some in keys.chunks(BATCH) {
        let mut changes = Changes { strength: Strength::Weak, ..Changes::default() };
        some.iter().for_each(|key| changes.remove(key.clone()));
        apply_own(&shard.collection, changes).await.map(drop).map_err(status_of)?;
    }
    Ok(())
}
