//! Locks of files: requests, waits, releases, and claims. To *claim* a lock is to state on a new connection
//! that the client has it.
//!
//! **A wait for a lock has no time limit.** The client repeats the request before each deadline, and its
//! place in the queue stays. A signal ends the wait: the client cancels it at the server. If the server
//! answers that it had granted the lock just before, the call succeeds.
//!
//! **A call that ends without the server's answer leaves no place in a queue and no lock.** It sends
//! requests that cancel its wait and release its lock; no caller waits for the answers to these requests.

use crate::core::{Core, Operation};
use crate::file::Opened;
use crate::locks::Standing;
use crate::session::QUIET;
use crate::{Error, OpenFile};
use futures_util::future::{Either, join_all, select};
use shoal_proto::op::Answer;
use shoal_proto::{
    Handle, LockClaim, LockHolder, LockOwner, LockRange, LockState, Op, ServerId, SessionId, Status, limits,
};
use shoal_vfs::LockCall;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

/// How long a server keeps a request that waits, at most.
const KEPT_MAX: Duration = Duration::from_secs(10);
/// The same, as a part of a client's time limit.
const KEPT_PART: u32 = 3;
/// How often a caller that waits is asked whether it was interrupted, and a request is repeated that no
/// server keeps.
const GLANCE: Duration = Duration::from_millis(100);
/// How long a client that ends waits for the servers that are to take its waits back.
const TAKEN_BACK_WITHIN: Duration = Duration::from_secs(3);

impl OpenFile {
    /// Lock a range of the file; see [`shoal_vfs::VfsFile::lock`]. `false`: another owner has it.
    ///
    /// # Errors
    /// `Deadlock`, `NoLocks`, `Interrupted`; `Stale`: the file is gone.
    pub async fn lock(&self, call: &LockCall) -> Result<bool, Error> {
        let (core, object) = (&self.0.client.core, self.0.handle);
        if !call.range.is_valid() {
            return Err(core.begin("lock", Some(object)).error(Status::Invalid));
        }
        if core.locks.borrow().is_lost(object, call.owner) {
            let words = "an earlier lock of this owner was lost; unlock it first";
            return Err(core.begin("lock", Some(object)).error(Status::NoLocks).because(words));
        }
        let mut taking = Taking::begin(&self.0, *call);
        let ended = taking.run().await;
        taking.is_known = ended.as_ref().err().is_none_or(|error| is_refusal(error.status));
        match ended {
            Ok(Ended::Granted) => {
                core.cache.borrow_mut().changed(object);
                Ok(true)
            }
            Ok(Ended::Refused) => Ok(false),
            Ok(Ended::TakenBack) => Err(taking.interrupted()),
            Err(error) => Err(error),
        }
    }

    /// Give a range back.
    ///
    /// # Errors
    /// `NoLocks`: the lock was lost, and is given up now. Others: its server does not answer. The lock is
    /// given back when it does.
    pub async fn unlock(&self, owner: LockOwner, range: LockRange) -> Result<(), Error> {
        let (core, object) = (&self.0.client.core, self.0.handle);
        let o = core.begin("unlock", Some(object));
        if !range.is_valid() {
            return Err(o.error(Status::Invalid));
        }
        let (is_held, was_lost) = core.locks.borrow_mut().unlocks(object, owner, range);
        if !is_held {
            return Ok(());
        }
        Giving { core, object, owner, range, is_answered: false }.run(&o).await?;
        match was_lost {
            true => Err(o.error(Status::NoLocks).because("the lock was lost before")),
            false => Ok(()),
        }
    }

    /// The first lock of another owner in the way of this one.
    ///
    /// # Errors
    /// `Stale`: the file is gone; errors of the server.
    pub async fn lock_holder(&self, call: &LockCall) -> Result<Option<LockHolder>, Error> {
        let (core, object) = (&self.0.client.core, self.0.handle);
        let o = core.begin("getlk", Some(object));
        let op = Op::Getlk { object, owner: call.owner, range: call.range, kind: call.kind };
        let told = core.ask(&o, object.server(), vec![op]).await?;
        match told.answers.first() {
            Some(Answer::Holder { holder }) => Ok(*holder),
            _ => Err(o.error(Status::BadMessage).from(object.server())),
        }
    }

    /// Whether an owner has, or asked for, locks of the file.
    pub fn has_locks(&self, owner: LockOwner) -> bool {
        self.0.client.core.locks.borrow().has(self.0.handle, owner)
    }
}

/// Whether a server has said that the lock was not taken.
fn is_refusal(status: Status) -> bool {
    matches!(
        status,
        Status::Deadlock | Status::NoLocks | Status::Stale | Status::Invalid | Status::WrongServer
    )
}

/// How a call for a lock ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ended {
    Granted,
    Refused,
    /// A signal came, and the server has taken it out of the queue.
    TakenBack,
}

/// A call for a lock under way. **Unless its end is known when this is dropped, all that it may have is given
/// back**: its caller may wait no longer at any moment.
struct Taking<'a> {
    opened: &'a Opened,
    call: LockCall,
    number: u64,
    via: u64,
    /// Batches that were written to the server before it.
    written_before: u64,
    is_known: bool,
}

/// A range that is given back. Unless its server answers before this is dropped, it is given back by a
/// request that no caller waits for.
struct Giving<'a> {
    core: &'a Rc<Core>,
    object: Handle,
    owner: LockOwner,
    range: LockRange,
    is_answered: bool,
}

impl Giving<'_> {
    async fn run(mut self, o: &Operation) -> Result<(), Error> {
        let op = Op::Unlock { object: self.object, owner: self.owner, range: self.range };
        let told = self.core.ask(o, self.object.server(), vec![op]).await;
        self.is_answered = told.is_ok();
        told.map(drop)
    }
}

impl Drop for Giving<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.core.post_unlock(self.object, self.owner, self.range);
        }
    }
}

/// A grant is sure only if this is the same after it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Basis {
    session: Option<SessionId>,
    /// How often the owner gave something back.
    given_back: Option<u32>,
}

/// A request that its server may keep.
struct Parked<'a> {
    core: &'a Core,
    may_park: bool,
}

impl<'a> Parked<'a> {
    fn begin(core: &'a Core) -> Parked<'a> {
        Parked { core, may_park: core.locks.borrow_mut().park() }
    }
}

impl Drop for Parked<'_> {
    fn drop(&mut self) {
        self.core.locks.borrow_mut().unpark();
    }
}

impl Drop for Taking<'_> {
    fn drop(&mut self) {
        let (core, object, owner) = (&self.opened.client.core, self.opened.handle, self.call.owner);
        core.locks.borrow_mut().ends(self.number, object, owner);
        let was_sent = core.written_to(object.server()) != self.written_before;
        if self.is_known || !was_sent || core.is_closed() {
            return;
        }
        core.locks.borrow_mut().unsure(object, owner, self.via);
        core.post_lock_op("unwait", self.unwait());
        core.post_unlock(object, owner, self.call.range);
    }
}

impl<'a> Taking<'a> {
    fn begin(opened: &'a Opened, call: LockCall) -> Taking<'a> {
        let (core, via, object) = (&opened.client.core, opened.locker(), opened.handle);
        let number = core.locks.borrow_mut().next_call();
        let written_before = core.written_to(object.server());
        let taking = Taking { opened, call, number, via, written_before, is_known: false };
        core.locks.borrow_mut().begins((number, taking.unwait()), object, call.owner);
        taking
    }

    fn unwait(&self) -> Op {
        let LockCall { owner, range, kind, .. } = self.call;
        Op::Unwait { object: self.opened.handle, owner, range, kind, call: self.number }
    }

    fn interrupted(&self) -> Error {
        Error::new(Status::Interrupted, "lock").of(self.opened.handle).because("while it waited for a lock")
    }

    async fn run(&self) -> Result<Ended, Error> {
        let core = &self.opened.client.core;
        loop {
            let parked = Parked::begin(core);
            let may_park = parked.may_park;
            let state = match self.ask(may_park).await? {
                Ok(state) => state,
                Err(ended) => return Ok(ended),
            };
            drop(parked);
            match state {
                LockState::Granted => return Ok(Ended::Granted),
                LockState::Refused => return Ok(Ended::Refused),
                LockState::Queued => {}
            }
            if !may_park {
                core.pause(GLANCE).await;
                if core.was_interrupted() {
                    return self.wait_no_longer(self.basis()).await;
                }
            }
        }
    }

    /// Ask once, for a part of the wait; or the end after a signal.
    async fn ask(&self, may_park: bool) -> Result<Result<LockState, Ended>, Error> {
        let (core, object) = (&self.opened.client.core, self.opened.handle);
        let LockCall { owner, range, kind, pid, wait } = self.call;
        let kept = if may_park { KEPT_MAX.min(core.options.timeout / KEPT_PART) } else { Duration::ZERO };
        let wait_ms = u32::try_from(kept.as_millis()).unwrap_or(limits::LOCK_WAIT_MS_MAX);
        let op = Op::Lock { object, owner, range, kind, pid, call: self.number, wait, wait_ms };
        let (before, asked_at) = (self.basis(), core.world.now());
        // Each has the time of a call of its own. A signal ends it here alone: the server is informed then.
        let asking = core.until_unheard(core.world.now() + core.options.timeout, async {
            let o = core.begin("lock", Some(object));
            let told = core.ask(&o, object.server(), vec![op]).await?;
            match told.answers.first() {
                Some(&Answer::Locked { state }) => Ok(state),
                _ => Err(o.error(Status::BadMessage).from(object.server())),
            }
        });
        let mut asking = pin!(asking);
        loop {
            match select(asking.as_mut(), pin!(core.pause(GLANCE))).await {
                Either::Left((Ok(LockState::Granted), _)) if self.granted(before) => {
                    return Ok(Ok(LockState::Granted));
                }
                // Of a session that is over, or given back meanwhile: the same call asks again.
                Either::Left((Ok(LockState::Granted), _)) => return Ok(Ok(LockState::Queued)),
                Either::Left((state, _)) => return Ok(Ok(state?)),
                // One that does not wait is answered at once by a server that answers.
                Either::Right(_)
                    if (wait || asked_at + QUIET <= core.world.now()) && core.was_interrupted() =>
                {
                    return self.wait_no_longer(before).await.map(Err);
                }
                Either::Right(_) => {}
            }
        }
    }

    fn basis(&self) -> Basis {
        let (core, object) = (&self.opened.client.core, self.opened.handle);
        let given_back = core.locks.borrow().given_back(object, self.call.owner);
        Basis { session: core.session_with(object.server()), given_back }
    }

    /// The server has granted it: whether the owner has it now.
    fn granted(&self, before: Basis) -> bool {
        let (core, object) = (&self.opened.client.core, self.opened.handle);
        let LockCall { owner, range, kind, pid, .. } = self.call;
        let now = self.basis();
        let is_same = before.session.is_none_or(|before| now.session == Some(before));
        let Some(session) = now.session.filter(|_| is_same && now.given_back == before.given_back) else {
            return false;
        };
        core.locks.borrow_mut().granted(&LockClaim { object, owner, range, kind, pid }, session, self.via);
        true
    }

    /// A signal came: whether the lock was granted before.
    async fn wait_no_longer(&self, before: Basis) -> Result<Ended, Error> {
        let (core, object) = (&self.opened.client.core, self.opened.handle);
        let op = self.unwait();
        // The program waits for its signal, also where the server does not answer.
        let deadline = core.world.now() + QUIET.min(core.options.timeout);
        let told = core.until_unheard(deadline, async {
            let o = core.begin("unwait", Some(object));
            core.ask(&o, object.server(), vec![op]).await
        });
        match told.await.as_ref().map(|told| told.answers.first()) {
            Ok(Some(Answer::Locked { state: LockState::Granted })) if self.granted(before) => {
                Ok(Ended::Granted)
            }
            Ok(Some(Answer::Locked { state: LockState::Refused })) => Ok(Ended::TakenBack),
            _ => Err(self.interrupted()),
        }
    }
}

impl Opened {
    /// Wait until reads and writes through this open file may rely on its locks.
    ///
    /// # Errors
    /// `Io`: one was lost, or its server does not answer for longer than its lease.
    pub(crate) async fn may_use_locks(&self, o: &Operation) -> Result<(), Error> {
        let via = self.locker.get();
        if via == 0 {
            return Ok(());
        }
        let (core, server) = (&self.client.core, self.handle.server());
        loop {
            let settled = core.locks.borrow().settled.wait();
            match core.locks.borrow().standing(self.handle, via) {
                Standing::Free => return Ok(()),
                Standing::Locked if core.has_lease(server) => return Ok(()),
                Standing::Lost => {
                    let words = "a lock of this file was lost: unlock it, or close the file";
                    return Err(o.error(Status::Io).from(server).because(words));
                }
                Standing::Locked | Standing::Claiming => {}
            }
            core.go_on(o)?;
            if core.world.now() >= o.deadline {
                let words = "the server of this file's lock did not answer for a lease";
                return Err(o.error(Status::Io).from(server).because(words));
            }
            select(pin!(settled), pin!(core.pause(GLANCE))).await;
        }
    }

    /// The open file is closed: what was locked through it is given back.
    pub(crate) async fn give_locks_back(&self) {
        let (core, object) = (&self.client.core, self.handle);
        let via = self.locker.replace(0);
        let owners = if via == 0 { Vec::new() } else { core.locks.borrow_mut().closed(object, via) };
        let giving = |owner| Giving { core, object, owner, range: LockRange::ALL, is_answered: false };
        // All of them from now on: the caller may wait no longer at any moment.
        let all: Vec<Giving<'_>> = owners.into_iter().map(giving).collect();
        for giving in all {
            let o = core.begin("unlock", Some(object));
            // It is given back when its server answers.
            let _ = giving.run(&o).await;
        }
    }

    /// The same without waiting.
    pub(crate) fn post_locks_back(&self) {
        let (core, object) = (&self.client.core, self.handle);
        let via = self.locker.replace(0);
        let owners = if via == 0 { Vec::new() } else { core.locks.borrow_mut().closed(object, via) };
        for owner in owners.into_iter().filter(|_| !core.is_closed()) {
            core.post_unlock(object, owner, LockRange::ALL);
        }
    }
}

impl Core {
    /// Give back what an owner is not known to hold of a range, by requests that no caller waits for.
    fn post_unlock(&self, object: Handle, owner: LockOwner, range: LockRange) {
        if self.is_closed() {
            return;
        }
        let rest = self.locks.borrow_mut().gives_back_rest(object, owner, range);
        for range in rest {
            self.post_lock_op("unlock", Op::Unlock { object, owner, range });
        }
    }

    /// The client ends: calls that wait for locks are taken back, so that none is granted after that.
    pub(crate) async fn take_waits_back(self: &Rc<Core>) {
        let all = self.locks.borrow().all_under_way();
        let deadline = self.world.now() + TAKEN_BACK_WITHIN;
        let taking = all.into_iter().map(async |op: Op| {
            let Op::Unwait { object, owner, range, .. } = op else { return };
            let o = self.begin("unwait", Some(object));
            // Where its server does not answer it goes with the session's lease.
            let Ok(told) = self.ask(&o, object.server(), vec![op]).await else { return };
            if let Some(Answer::Locked { state: LockState::Granted }) = told.answers.first() {
                let rest = self.locks.borrow_mut().gives_back_rest(object, owner, range);
                let unlock = |range| Op::Unlock { object, owner, range };
                for op in rest.into_iter().map(unlock) {
                    drop(self.ask(&o, object.server(), vec![op]).await);
                }
            }
        });
        self.until_unheard(deadline, join_all(taking)).await;
    }

    /// Files of `server` have lost locks: their pages are to be dropped.
    pub(crate) fn locks_lost(&self, files: Vec<Handle>) {
        for file in files {
            self.note_pages(file, |pages| {
                pages.spoil(file);
                true
            });
        }
    }

    /// On a new connection: claim the locks that this client has of `server`. Whether all were answered.
    pub(crate) async fn claim_locks(self: &Rc<Core>, server: ServerId) -> bool {
        let Some(claims) = self.locks.borrow().claims(server) else { return true };
        let mut chunks: Vec<&[LockClaim]> = claims.chunks(limits::LOCK_CLAIMS_MAX).collect();
        if chunks.is_empty() {
            chunks.push(&[]);
        }
        let (mut lost, count) = (Vec::new(), chunks.len());
        for (chunk, at) in chunks.into_iter().zip(1..) {
            // Some may have been given back meanwhile.
            let standing: Vec<LockClaim> = {
                let locks = self.locks.borrow();
                chunk.iter().copied().filter(|claim| locks.stands(claim)).collect()
            };
            let op = Op::Reclaim { claims: standing.clone().into(), last: at == count };
            let o = self.begin("reclaim", chunk.first().map(|claim| claim.object));
            let Ok(told) = self.ask(&o, server, vec![op]).await else { return false };
            let Some(Answer::Claimed { refused }) = told.answers.first() else { return false };
            for claim in refused.iter().filter_map(|at| standing.get(usize::from(*at))) {
                self.locks.borrow_mut().refused(claim);
                lost.push(claim.object);
            }
        }
        self.locks.borrow_mut().claimed(server);
        lost.dedup();
        self.locks_lost(lost);
        true
    }

    async fn pause(&self, span: Duration) {
        self.sleep_until(self.world.now() + span).await;
    }
}
