//! Locks of files, which clients hold against each other: POSIX record locks, locks of open files, `flock`.
//! They are held in memory, at the server of the metafile. [`table`] decides; this file connects the table
//! with clients, leases and restarts.
//!
//! ```text
//!   lock ─▶ wait until recovery has ended, and row `h client` is durable
//!        ─▶ table ─┬─ granted ─▶ reply
//!                  └─ queued ──▶ reply when granted, or at the time limit:
//!                                then the client asks again, and keeps its place
//! ```
//! **A lock ends with its client's last session here**, so a killed client's locks end with its lease.
//!
//! **After a restart only a client that had locks claims them** ([RFC 8881 §8.4.2]'s rule): a durable row
//! says that a client has locks here ([`rows`]). To *claim* its locks, a client states on a new connection
//! that it has them. Until all clients with such rows have claimed their locks, or a lease has passed, no new
//! lock is granted to any client. A client that has not claimed its locks by then loses its sessions and its
//! locks.
//!
//! **Before a lost exclusive lock goes to another owner, the file begins a new generation** on all servers of
//! its data ([`crate::ops`]' `fence`), so that no write that was sent under the lost lock is executed later.
//! Until the new generation has begun everywhere, the bytes of the lock stay locked, although no client has
//! it. A stuffed file needs no new generation: its only server has ended the session.
//!
//! [RFC 8881 §8.4.2]: https://www.rfc-editor.org/rfc/rfc8881#section-8.4.2

pub mod calls;
pub(crate) mod rows;
pub mod table;
#[cfg(test)]
mod tests;

use crate::data::status_of;
use crate::meta::keys::{self, Table};
use crate::meta::rows::{Inode, RowValue};
use crate::net::lease;
use crate::request::executor::{Asker, run_own};
use crate::shard::Shard;
use bytes::Bytes;
use calls::Calls;
use rows::Row;
use shoal_env::Instant;
use shoal_env::local::{Notify, Semaphore, Sender, oneshot};
use shoal_proto::{ClientId, Group, Handle, Kind, LockClaim, LockHolder, LockState, Op, Status, limits};
use shoal_store::{StoreError, look};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;
use table::{LockTable, Outcome, Wanted};

/// How long one try to begin a generation may take.
const FENCE_TIMEOUT: Duration = Duration::from_secs(10);
/// Between two tries.
const FENCE_PAUSE: Duration = Duration::from_secs(1);
/// How often per lease it is looked for clients with locks that are silent.
const LOOKS_A_LEASE: u32 = 12;
/// Files of which it is remembered that they have begun a generation since a restart.
const FENCED_MAX: usize = 65_536;

/// The locks of one shard. See the module's page.
pub struct FileLocks {
    table: RefCell<LockTable>,
    /// Requests that wait for an answer, by the number of the wait.
    parked: RefCell<BTreeMap<u64, Vec<Sender<()>>>>,
    rows: RefCell<BTreeMap<ClientId, Row>>,
    row_moved: Notify,
    /// Clients that lost locks, once for each file that has not begun its generation.
    unfenced: RefCell<Vec<ClientId>>,
    /// Clients that had locks before this start, and have not claimed all of them.
    claimants: RefCell<BTreeSet<ClientId>>,
    recovered: Notify,
    /// Locks were lost with the last run; it is not known of which files.
    fences_all: Cell<bool>,
    fenced: RefCell<BTreeSet<Handle>>,
    /// One file begins a generation at a time.
    fencing: Semaphore,
    stopping: Cell<bool>,
    calls: Calls,
}

impl Default for FileLocks {
    fn default() -> FileLocks {
        FileLocks {
            table: RefCell::new(LockTable::new(limits::CLIENT_LOCKS_MAX)),
            parked: RefCell::default(),
            rows: RefCell::default(),
            row_moved: Notify::default(),
            unfenced: RefCell::default(),
            claimants: RefCell::default(),
            recovered: Notify::default(),
            fences_all: Cell::default(),
            fenced: RefCell::default(),
            fencing: Semaphore::new(1),
            stopping: Cell::default(),
            calls: Calls::default(),
        }
    }
}

impl FileLocks {
    /// Ranges that are held, and requests that wait.
    pub fn totals(&self) -> (usize, usize) {
        self.table.borrow().totals()
    }

    /// Change the table, and answer those whose waits that ended.
    fn change<T>(&self, change: impl FnOnce(&mut LockTable, &mut Vec<u64>) -> T) -> T {
        let mut granted = Vec::new();
        let done = change(&mut self.table.borrow_mut(), &mut granted);
        granted.into_iter().for_each(|ticket| self.wake(ticket));
        done
    }

    fn wake(&self, ticket: u64) {
        let waiting = self.parked.borrow_mut().remove(&ticket).unwrap_or_default();
        waiting.into_iter().for_each(|waiting| waiting.send(()));
    }

    /// The server stops: requests that wait are answered now.
    pub(crate) fn stop(&self) {
        self.stopping.set(true);
        let all = self.parked.take().into_values().flatten();
        all.for_each(|waiting| waiting.send(()));
        self.recovered.wake_all();
    }

    fn has_recovered(&self) -> bool {
        self.claimants.borrow().is_empty()
    }
}

/// The client that asks: servers lock nothing.
pub(crate) fn client_of(asker: Asker) -> Result<ClientId, Status> {
    if asker.peer.is_some() || asker.own { Err(Status::Forbidden) } else { Ok(asker.client) }
}

/// Refuse what is no range of a file of this server.
pub(crate) fn check(shard: &Shard, wanted: &Wanted) -> Result<(), Status> {
    match wanted.file.server() == shard.id() {
        false => Err(Status::WrongServer),
        true if !wanted.range.is_valid() => Err(Status::Invalid),
        true => Ok(()),
    }
}

async fn inode(shard: &Shard, file: Handle) -> Result<Inode, Status> {
    let key = keys::inode(file);
    let (row, _) = look(&shard.collection, |view| view.get(&key)).await.map_err(status_of)?;
    let row = row.ok_or(Status::Stale)?;
    let inode = Inode::from_row(&row).map_err(|_| Status::Io)?;
    if inode.kind == Kind::File { Ok(inode) } else { Err(Status::Invalid) }
}

/// Lock, or wait for it until `deadline`.
///
/// # Errors
/// `Stale`: the file is gone; `Invalid`: it is no file; `Deadlock`, `NoLocks`; `Unavailable`: clients still
/// claim what they had before a restart.
pub(crate) async fn lock(
    shard: &Rc<Shard>,
    wanted: Wanted,
    wait: bool,
    deadline: Instant,
) -> Result<LockState, Status> {
    check(shard, &wanted)?;
    let request = shard.file_locks.calls.begin(&wanted);
    if let Err(status) = inode(shard, wanted.file).await {
        if status == Status::Stale {
            // The file is gone: the place that the call had goes, too.
            unwait(shard, &wanted);
        }
        return Err(status);
    }
    if !has_recovered_by(shard, deadline).await {
        return if wait { Ok(LockState::Queued) } else { Err(Status::Unavailable) };
    }
    if shard.file_locks.fences_all.get() && !shard.file_locks.fenced.borrow().contains(&wanted.file) {
        fence(shard, wanted.file).await?;
        let mut fenced = shard.file_locks.fenced.borrow_mut();
        if fenced.len() >= FENCED_MAX {
            fenced.clear();
        }
        fenced.insert(wanted.file);
    }
    // From here on nothing is awaited: the row is there when the lock is granted.
    rows::keep(shard, wanted.by.client).await?;
    // It may have ended meanwhile, and its locks with it.
    if !shard.sessions.has_client(wanted.by.client) {
        return Err(Status::NoSession);
    }
    if request.is_taken_back() {
        return Ok(LockState::Refused);
    }
    match shard.file_locks.change(|table, granted| table.ask(&wanted, wait, granted)) {
        Outcome::Granted => Ok(LockState::Granted),
        Outcome::Refused => Ok(LockState::Refused),
        Outcome::Deadlock => Err(Status::Deadlock),
        Outcome::NoLocks => Err(Status::NoLocks),
        Outcome::Queued(ticket) => Ok(park(shard, &wanted, ticket, deadline).await),
    }
}

async fn park(shard: &Rc<Shard>, wanted: &Wanted, ticket: u64, deadline: Instant) -> LockState {
    let locks = &shard.file_locks;
    if shard.env.now() < deadline && !locks.stopping.get() {
        let (send, granted) = oneshot();
        locks.parked.borrow_mut().entry(ticket).or_default().push(send);
        if shard.env.deadline(deadline, granted).await.is_err() {
            locks.parked.borrow_mut().remove(&ticket);
        }
    }
    let table = locks.table.borrow();
    match table.is_queued(wanted.file, ticket) {
        true => LockState::Queued,
        false if table.holds(wanted) => LockState::Granted,
        // Its call was ended by another request.
        false => LockState::Refused,
    }
}

async fn has_recovered_by(shard: &Rc<Shard>, deadline: Instant) -> bool {
    let locks = &shard.file_locks;
    loop {
        let recovered = locks.recovered.wait();
        if locks.has_recovered() {
            return true;
        }
        if locks.stopping.get() || shard.env.deadline(deadline, recovered).await.is_err() {
            return false;
        }
    }
}

/// Give a range back.
pub(crate) fn unlock(shard: &Shard, wanted: &Wanted) {
    shard.file_locks.change(|table, granted| table.unlock(wanted.file, wanted.by, wanted.range, granted));
}

/// A call waits no longer.
pub(crate) fn unwait(shard: &Shard, wanted: &Wanted) -> LockState {
    // The request of the call that may be parked is answered too.
    let parked = shard.file_locks.table.borrow().ticket(wanted);
    let holds = shard.file_locks.change(|table, granted| table.unwait(wanted, granted));
    parked.into_iter().for_each(|ticket| shard.file_locks.wake(ticket));
    shard.file_locks.calls.take_back(wanted);
    if holds { LockState::Granted } else { LockState::Refused }
}

/// The first lock in the way, once all locks of before a restart are known.
///
/// # Errors
/// `Stale`, `Invalid`; `Unavailable`: they are not known in time.
pub(crate) async fn holder(
    shard: &Rc<Shard>,
    wanted: &Wanted,
    deadline: Instant,
) -> Result<Option<LockHolder>, Status> {
    check(shard, wanted)?;
    inode(shard, wanted.file).await?;
    match has_recovered_by(shard, deadline).await {
        true => Ok(shard.file_locks.table.borrow().holder(wanted)),
        false => Err(Status::Unavailable),
    }
}

/// A client states the locks that it has; the places of those that it has not.
pub(crate) fn claim(shard: &Shard, client: ClientId, claims: &[LockClaim], last: bool) -> Vec<u16> {
    let locks = &shard.file_locks;
    let may_claim = locks.claimants.borrow().contains(&client);
    let mut table = locks.table.borrow_mut();
    let mut refused = Vec::new();
    for (claim, at) in claims.iter().zip(0..) {
        let LockClaim { object: file, owner, range, kind, pid } = *claim;
        let by = table::Locker { client, owner };
        let wanted = Wanted { file, by, range, kind, pid, call: 0 };
        let is_valid = check(shard, &wanted).is_ok();
        if !is_valid || !(table.holds(&wanted) || (may_claim && table.claim(&wanted))) {
            refused.push(at);
        }
    }
    drop(table);
    if last && locks.claimants.borrow_mut().remove(&client) && locks.has_recovered() {
        locks.recovered.wake_all();
    }
    refused
}

/// Find the clients that had locks before this start. Sessions are known already.
///
/// # Errors
/// When the store fails.
pub(crate) async fn open(shard: &Rc<Shard>) -> Result<(), StoreError> {
    let locks = &shard.file_locks;
    let (prefix, mut after) = (keys::table(Table::Locker), None::<Bytes>);
    loop {
        let (scan, _) =
            look(&shard.collection, |view| view.scan(&prefix, after.as_deref(), rows::BATCH)).await?;
        for (key, _) in &scan.rows {
            let client = keys::parse_locker(key)
                .ok_or_else(|| StoreError::Damaged("the key of a client that has locks".into()))?;
            locks.rows.borrow_mut().insert(client, Row::Kept);
            match shard.sessions.has_client(client) {
                true => drop(locks.claimants.borrow_mut().insert(client)),
                // Its lease had ended: it cannot claim.
                false => locks.fences_all.set(true),
            }
        }
        match scan.resume {
            Some(key) => after = Some(key),
            None => return Ok(()),
        }
    }
}

/// The task of a shard: ends the time for claims, and removes rows.
pub(crate) async fn run(shard: Rc<Shard>) {
    let lease = shard.settings.lease;
    if !has_recovered_by(&shard, shard.env.now() + lease).await {
        give_up_claims(&shard).await;
    }
    let mut forgotten_at = shard.env.now();
    loop {
        // Where no client has locks there is little to look for.
        let looks = if shard.file_locks.rows.borrow().is_empty() { 2 } else { LOOKS_A_LEASE };
        shard.env.sleep(lease / looks).await;
        end_late(&shard).await;
        if shard.env.now().since(forgotten_at) >= lease / 2 {
            rows::forget(&shard, |_| true).await;
            forgotten_at = shard.env.now();
        }
    }
}

/// End the sessions of clients that have locks and have been silent for a lease: others wait for them.
async fn end_late(shard: &Rc<Shard>) {
    let now = shard.env.now();
    let clients: Vec<ClientId> = shard.file_locks.rows.borrow().keys().copied().collect();
    let has_locks = |client: &ClientId| shard.file_locks.table.borrow().has(*client);
    for client in clients.into_iter().filter(has_locks) {
        for session in shard.sessions.of_client(client) {
            if now.since(session.heard.get()) > shard.settings.lease && !session.is_running() {
                lease::end_session(shard, &session).await;
            }
        }
    }
}

/// Clients that have not claimed by now have lost their locks, and may not go on as if they had them.
async fn give_up_claims(shard: &Rc<Shard>) {
    let locks = &shard.file_locks;
    let late: Vec<ClientId> = locks.claimants.borrow().iter().copied().collect();
    for client in late {
        // It may claim at this very moment.
        if !locks.claimants.borrow().contains(&client) {
            continue;
        }
        tracing::warn!("a client that had locks has not come back within its lease: they are lost");
        locks.fences_all.set(true);
        for session in shard.sessions.of_client(client) {
            lease::end_session(shard, &session).await;
        }
        locks.claimants.borrow_mut().remove(&client);
    }
    locks.recovered.wake_all();
}

/// A client's last session has ended: its locks are gone.
pub(crate) fn end_client(shard: &Rc<Shard>, client: ClientId) {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&shard.env.random_u64().to_le_bytes());
    id[8..].copy_from_slice(&shard.env.random_u64().to_le_bytes());
    let ghost = ClientId(id);
    let locks = &shard.file_locks;
    if locks.claimants.borrow().contains(&client) {
        // The files that it had locked are not known.
        locks.fences_all.set(true);
    }
    if locks.claimants.borrow_mut().remove(&client) && locks.has_recovered() {
        locks.recovered.wake_all();
    }
    for file in locks.change(|table, granted| table.disown(client, ghost, granted)) {
        let own = shard.clone();
        locks.unfenced.borrow_mut().push(client);
        shard.tasks.spawn(&shard.env, "fence", async move {
            while let Err(status) = fence(&own, file).await {
                tracing::warn!(%file, %status, "a lock was lost, and its file stays locked until its data's servers answer");
                own.env.sleep(FENCE_PAUSE).await;
            }
            let mut unfenced = own.file_locks.unfenced.borrow_mut();
            if let Some(at) = unfenced.iter().position(|other| *other == client) {
                unfenced.swap_remove(at);
            }
            drop(unfenced);
            own.file_locks.change(|table, granted| table.end(ghost, file, granted));
        });
    }
}

/// Begin a generation of a file over several servers.
async fn fence(shard: &Rc<Shard>, file: Handle) -> Result<(), Status> {
    let _one = shard.file_locks.fencing.acquire(1).await;
    match inode(shard, file).await {
        Ok(inode) if inode.layout.is_some() => {}
        // Gone, or all on this server.
        Ok(_) | Err(Status::Stale | Status::Invalid) => return Ok(()),
        Err(status) => return Err(status),
    }
    let asker = Asker::own(ClientId::ANYONE);
    let group = Group { ops: vec![Op::Fence { object: file }].into() };
    let replies = run_own(shard, asker, vec![group], FENCE_TIMEOUT).await;
    match replies.first().map_or(Status::Io, |reply| reply.status) {
        Status::Ok | Status::Stale => Ok(()),
        status => Err(status),
    }
}
