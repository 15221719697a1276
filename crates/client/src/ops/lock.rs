//! Locks of files: asked for, waited for, given back, and claimed on a new connection.
//!
//! **A wait for a lock has no time limit.** The client asks again before each deadline, and its place in the
//! queue stays. A signal ends the wait: the server is informed, and answers whether the lock was granted just
//! before, in which case the call has it.

use crate::core::{Core, Operation};
use crate::file::Opened;
use crate::locks::Standing;
use crate::{Error, OpenFile};
use futures_util::future::{Either, select};
use shoal_proto::op::Answer;
use shoal_proto::{
    Handle, LockClaim, LockHolder, LockOwner, LockRange, LockState, Op, ServerId, Status, limits,
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
        let (via, number) = (self.0.locker(), core.locks.borrow_mut().next_call());
        let state = self.0.locked(call, number).await;
        match &state {
            Ok(true) => core.cache.borrow_mut().changed(object),
            Ok(false) => {}
            Err(error) if is_known(error.status) => {}
            // It may be granted all the same.
            Err(_) => {
                core.locks.borrow_mut().unsure(object, call.owner, via);
                core.post_lock_op("unwait", self.0.unwait(call, number));
                if !core.locks.borrow().holds(object, call.owner) {
                    core.post_lock_op("unlock", Op::Unlock { object, owner: call.owner, range: call.range });
                }
            }
        }
        state
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
        core.give_back(&o, object, owner, range).await?;
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

/// Whether a server has said that the lock was not taken, or was never asked.
fn is_known(status: Status) -> bool {
    matches!(
        status,
        Status::Deadlock | Status::NoLocks | Status::Stale | Status::Invalid | Status::WrongServer
    ) || matches!(status, Status::Silent | Status::Interrupted)
}

impl Opened {
    fn unwait(&self, call: &LockCall, number: u64) -> Op {
        let LockCall { owner, range, kind, .. } = *call;
        Op::Unwait { object: self.handle, owner, range, kind, call: number }
    }

    async fn locked(&self, call: &LockCall, number: u64) -> Result<bool, Error> {
        let core = &self.client.core;
        loop {
            let may_park = core.locks.borrow_mut().park();
            let asked = self.ask_for(call, number, may_park).await;
            core.locks.borrow_mut().unpark();
            match asked? {
                LockState::Granted => return Ok(true),
                LockState::Refused => return Ok(false),
                LockState::Queued if may_park => {}
                LockState::Queued => {
                    core.pause(GLANCE).await;
                    if core.was_interrupted() {
                        return self.wait_no_longer(call, number).await;
                    }
                }
            }
        }
    }

    /// Ask once, for a part of the wait.
    async fn ask_for(&self, call: &LockCall, number: u64, may_park: bool) -> Result<LockState, Error> {
        let (core, object) = (&self.client.core, self.handle);
        let LockCall { owner, range, kind, pid, wait } = *call;
        let kept = if may_park { KEPT_MAX.min(core.options.timeout / KEPT_PART) } else { Duration::ZERO };
        let wait_ms = u32::try_from(kept.as_millis()).unwrap_or(limits::LOCK_WAIT_MS_MAX);
        let op = Op::Lock { object, owner, range, kind, pid, call: number, wait, wait_ms };
        let session_before = core.session_with(object.server());
        // Each has the time of a call of its own.
        let asking = core.until(core.world.now() + core.options.timeout, async {
            let o = core.begin("lock", Some(object));
            let told = core.ask(&o, object.server(), vec![op]).await?;
            match told.answers.first() {
                Some(&Answer::Locked { state }) => Ok(state),
                _ => Err(o.error(Status::BadMessage).from(object.server())),
            }
        });
        let mut asking = pin!(asking);
        let state = loop {
            match select(asking.as_mut(), pin!(core.pause(GLANCE))).await {
                Either::Left((state, _)) => break state?,
                Either::Right(_) if call.wait && core.was_interrupted() => {
                    let granted = self.wait_no_longer(call, number).await?;
                    break if granted { LockState::Granted } else { LockState::Refused };
                }
                Either::Right(_) => {}
            }
        };
        if state == LockState::Granted {
            let session = core.session_with(object.server());
            return match session {
                Some(session) if session_before.is_none_or(|before| before == session) => {
                    let claim = LockClaim { object, owner, range, kind, pid };
                    core.locks.borrow_mut().granted(&claim, session, self.locker());
                    Ok(LockState::Granted)
                }
                // It may be a lock of a session that is over: the same call asks again.
                _ => Ok(LockState::Queued),
            };
        }
        Ok(state)
    }

    /// A signal came: whether the lock was granted before.
    async fn wait_no_longer(&self, call: &LockCall, number: u64) -> Result<bool, Error> {
        let (core, object) = (&self.client.core, self.handle);
        let op = self.unwait(call, number);
        let deadline = core.world.now() + core.options.timeout;
        let told = core
            .until(deadline, async {
                let o = core.begin("unwait", Some(object));
                core.ask(&o, object.server(), vec![op]).await
            })
            .await?;
        match told.answers.first() {
            Some(Answer::Locked { state: LockState::Granted }) => Ok(true),
            _ => {
                Err(Error::new(Status::Interrupted, "lock").of(object).because("while it waited for a lock"))
            }
        }
    }

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
        for owner in owners {
            let o = core.begin("unlock", Some(object));
            // It is given back when its server answers.
            let _ = core.give_back(&o, object, owner, LockRange::ALL).await;
        }
    }

    /// The same without waiting.
    pub(crate) fn post_locks_back(&self) {
        let (core, object) = (&self.client.core, self.handle);
        let via = self.locker.replace(0);
        let owners = if via == 0 { Vec::new() } else { core.locks.borrow_mut().closed(object, via) };
        for owner in owners.into_iter().filter(|_| !core.is_closed()) {
            core.post_lock_op("unlock", Op::Unlock { object, owner, range: LockRange::ALL });
        }
    }
}

impl Core {
    async fn give_back(
        self: &Rc<Core>,
        o: &Operation,
        object: Handle,
        owner: LockOwner,
        range: LockRange,
    ) -> Result<(), Error> {
        let op = Op::Unlock { object, owner, range };
        let told = self.ask(o, object.server(), vec![op.clone()]).await;
        told.map(drop).inspect_err(|_| self.post_lock_op("unlock", op))
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
