//! Sessions: every change exactly once.
//!
//! A change carries (session, slot, sequence). **The slot is looked up before anything else.** If a group
//! changes something, the batch of its changes also has a row that keeps the group's reply. So the store has
//! both or neither. Bulk data is the exception: the server writes it before that batch, so a crash can leave
//! the data without the reply. The retry then writes the data again.
//!
//! ```text
//!   sequence of the slot      what it means                      what happens
//!   the next one              a new compound                     it runs
//!   the present one, running  a retry (the connection was lost)  its reply goes to the retry too
//!   the present one, ended    a retry                            groups with a kept reply are answered from it, others run
//!   any other                                                    BadSequence, nothing runs
//! ```
//! After a restart a slot continues with the sequence of its newest kept reply. A compound that changed
//! nothing left no kept reply, although it used a sequence. So the first sequence after a restart may be any
//! higher number.
//!
//! A session ends when its client has sent nothing for a lease and none of its requests is running;
//! [`lease`](crate::net::lease) lists the other reasons. **A new connection first discards the requests of
//! the old connection that the server has not yet executed.** A transaction over several servers continues
//! once it has begun. A retry then waits for the reply of that transaction.
//!
//! Sessions of peers have no slots and no rows: a server sends its peers only requests that may be repeated
//! ([`crate::net::peers`]). But two executions of one write must not overlap. So a peer's new connection,
//! too, first discards the requests under way on the peer's old connection.

use crate::meta::keys;
use crate::meta::openers::Openers;
use crate::meta::rows::{Kept, RowValue};
use crate::net::connection::Line;
use bytes::Bytes;
use shoal_env::Instant;
use shoal_env::local::{Notify, Semaphore};
use shoal_proto::{ClientId, MountKeyId, ServerId, SessionId, Slot, SlotUse, Status};
use shoal_store::{Collection, StoreError, look};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

/// Where a compound's reply goes.
#[derive(Clone)]
pub struct Waiter {
    /// The connection.
    pub line: Rc<Line>,
    /// The request's tag.
    pub tag: u64,
    /// Bytes of its bulk data: its part of the connection's credit.
    pub bulk_bytes: usize,
    /// Bytes of data it may be answered with.
    pub wanted_bytes: usize,
    /// When it came.
    pub arrived: Instant,
}

impl Waiter {
    /// Whether it waits no longer: its connection is gone, or its client left the request.
    pub fn is_gone(&self) -> bool {
        self.line.is_dead() || self.line.is_left(self.tag)
    }
}

/// A compound under way.
#[derive(Default)]
pub struct Running {
    /// The waiters for its reply; a retry joins.
    pub waiters: RefCell<Vec<Waiter>>,
    /// A transaction over servers is under way: it continues whatever becomes of the connection.
    pub in_transaction: Cell<bool>,
}

impl Running {
    /// A compound that one request waits for.
    pub fn of(waiter: Waiter) -> Rc<Running> {
        Rc::new(Running { waiters: RefCell::new(vec![waiter]), in_transaction: Cell::new(false) })
    }

    /// Whether all that waited are gone.
    pub fn is_abandoned(&self) -> bool {
        let waiters = self.waiters.borrow();
        !waiters.is_empty() && waiters.iter().all(Waiter::is_gone)
    }
}

#[derive(Default)]
struct SlotState {
    /// The newest sequence run.
    sequence: u64,
    /// `sequence` comes from the kept rows: a higher one may have run without a change.
    recovered: bool,
    /// Groups that may have kept rows.
    kept_groups: u16,
    running: Option<Rc<Running>>,
}

/// A slot's answer to a request.
pub enum Claim {
    /// Run it.
    Run {
        /// Groups may have kept replies of this sequence.
        retry: bool,
        /// Groups of the slot's former compound that may have kept rows.
        kept_groups: u16,
    },
    /// It runs already: the reply comes when it ends.
    Joined,
    /// Out of sequence.
    Refused(Status),
}

/// One session.
pub struct Session {
    /// Its id.
    pub id: SessionId,
    /// The client.
    pub client: ClientId,
    /// Set for a peer server's session.
    pub peer: Option<ServerId>,
    /// Slots.
    pub slots: u16,
    states: RefCell<Vec<SlotState>>,
    /// Whether the slots' sequences are known (after a restart: only once its client is back).
    known: Cell<bool>,
    /// The session is older than this run of the server.
    is_recovered: bool,
    /// The key of its client, by which alone it is continued; none: a peer's, or begun in a version before 7
    /// and not continued with a key since.
    pub client_key: Cell<Option<[u8; 32]>>,
    /// The mount key of its client; none: an administrator's, or not known since a restart.
    pub key: Cell<Option<MountKeyId>>,
    /// The id that its client states: of a mount key with a name, not the one that it has here.
    pub stated: Cell<ClientId>,
    /// That key was revoked, and the end of this session has begun.
    pub is_revoked: Cell<bool>,
    /// Its present connection.
    pub line: RefCell<Option<Rc<Line>>>,
    /// When its client last sent a message.
    pub heard: Cell<Instant>,
    /// Changes under way without a slot: a peer's writes.
    slotless: Rc<Cell<usize>>,
    /// One connection at a time takes it over.
    pub turn: Semaphore,
    quiet: Notify,
}

impl Session {
    /// A session; `known`: it is new, so no kept reply is to be found in the store.
    pub fn new(
        id: SessionId,
        client: ClientId,
        peer: Option<ServerId>,
        slots: u16,
        known: bool,
        now: Instant,
    ) -> Session {
        Session {
            id,
            client,
            peer,
            slots,
            states: RefCell::default(),
            known: Cell::new(known),
            is_recovered: !known,
            client_key: Cell::default(),
            key: Cell::default(),
            stated: Cell::new(client),
            is_revoked: Cell::default(),
            line: RefCell::default(),
            heard: Cell::new(now),
            slotless: Rc::default(),
            turn: Semaphore::new(1),
            quiet: Notify::default(),
        }
    }

    /// The same, begun by the client of that key.
    pub fn of_key(self, client_key: Option<[u8; 32]>) -> Session {
        Session { client_key: Cell::new(client_key), ..self }
    }

    /// The same for the next connection of a peer: changes under way on the former ones count as its own, so
    /// that however many connections came in between, the newest waits for all of them.
    pub fn succeeding(self, former: &Session) -> Session {
        Session { slotless: former.slotless.clone(), quiet: former.quiet.clone(), ..self }
    }

    /// Claim a slot for a compound of `groups` groups: before anything else is done with the request.
    pub fn claim(&self, slot_use: SlotUse, groups: usize, running: &Rc<Running>) -> Claim {
        let SlotUse { slot, sequence } = slot_use;
        if slot.0 >= self.slots || sequence == 0 {
            return Claim::Refused(Status::BadSequence);
        }
        let mut states = self.states.borrow_mut();
        let at = usize::from(slot.0);
        if states.len() <= at {
            // Sequences found at a restart are in the list already; the others count from the first use.
            let recovered = self.is_recovered;
            states.resize_with(at + 1, || SlotState { recovered, ..SlotState::default() });
        }
        let state = &mut states[at];
        if let Some(under_way) = &state.running {
            if sequence != state.sequence {
                return Claim::Refused(Status::BadSequence);
            }
            under_way.waiters.borrow_mut().append(&mut running.waiters.borrow_mut());
            return Claim::Joined;
        }
        let is_next = if state.recovered {
            sequence > state.sequence
        } else {
            sequence.checked_sub(1) == Some(state.sequence)
        };
        if !is_next && sequence != state.sequence {
            return Claim::Refused(Status::BadSequence);
        }
        let kept_groups = state.kept_groups;
        if is_next {
            state.sequence = sequence;
            state.recovered = false;
        }
        state.kept_groups = kept_groups.max(groups as u16);
        state.running = Some(running.clone());
        Claim::Run { retry: !is_next, kept_groups }
    }

    /// The slot's compound ended (or was discarded).
    pub fn free(&self, slot: Slot) {
        if let Some(state) = self.states.borrow_mut().get_mut(usize::from(slot.0)) {
            state.running = None;
        }
        self.quiet.wake_all();
    }

    /// The kept rows of the slot's former compound beyond `groups` were removed.
    pub fn trimmed(&self, slot: Slot, groups: usize) {
        if let Some(state) = self.states.borrow_mut().get_mut(usize::from(slot.0)) {
            state.kept_groups = groups as u16;
        }
    }

    /// A compound of this session became a transaction; taking the session over does not wait for it.
    pub fn note_transaction(&self) {
        self.quiet.wake_all();
    }

    /// A change without a slot is under way until the guard is dropped.
    pub fn begin_slotless(self: &Rc<Session>) -> Slotless {
        self.slotless.set(self.slotless.get() + 1);
        Slotless(self.clone())
    }

    /// Whether it has a connection.
    pub fn is_connected(&self) -> bool {
        self.line.borrow().as_ref().is_some_and(|line| !line.is_dead())
    }

    /// Whether it was begun in this run of the server, and no change was ever asked of it.
    pub fn is_unused(&self) -> bool {
        !self.is_recovered && self.states.borrow().is_empty()
    }

    /// Whether a compound is under way.
    pub fn is_running(&self) -> bool {
        self.states.borrow().iter().any(|s| s.running.is_some())
    }

    /// Discard the old connection and wait until nothing of it is being executed but transactions.
    pub async fn discard(&self) {
        if let Some(old) = self.line.take() {
            old.end();
        }
        loop {
            let quiet = self.quiet.wait();
            let waits = |s: &SlotState| s.running.as_ref().is_some_and(|r| !r.in_transaction.get());
            if self.slotless.get() == 0 && !self.states.borrow().iter().any(waits) {
                return;
            }
            quiet.await;
        }
    }

    /// After a restart: find the slots' sequences in the kept rows.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn find_sequences(&self, collection: &Collection) -> Result<(), StoreError> {
        if self.known.get() {
            return Ok(());
        }
        let prefix = keys::kept_of(self.id);
        let mut after: Option<Bytes> = None;
        let mut found: BTreeMap<u16, (u64, u16)> = BTreeMap::new();
        loop {
            let (scan, _) = look(collection, |view| view.scan(&prefix, after.as_deref(), 512)).await?;
            for (key, value) in &scan.rows {
                let (Some((slot, group)), Ok(kept)) = (keys::parse_kept(key), Kept::from_row(value)) else {
                    return Err(StoreError::Damaged("a kept reply".into()));
                };
                let entry = found.entry(slot.0).or_default();
                *entry = (entry.0.max(kept.sequence), entry.1.max(u16::from(group) + 1));
            }
            match scan.resume {
                Some(key) => after = Some(key),
                None => break,
            }
        }
        let mut states = self.states.borrow_mut();
        let count = found.keys().next_back().map_or(0, |slot| usize::from(*slot) + 1);
        states.resize_with(count, || SlotState { recovered: true, ..SlotState::default() });
        for (slot, (sequence, kept_groups)) in found {
            states[usize::from(slot)] = SlotState { sequence, recovered: true, kept_groups, running: None };
        }
        self.known.set(true);
        Ok(())
    }
}

/// See [`Session::begin_slotless`].
pub struct Slotless(Rc<Session>);

impl Drop for Slotless {
    fn drop(&mut self) {
        self.0.slotless.set(self.0.slotless.get() - 1);
        self.0.quiet.wake_all();
    }
}

/// The sessions of one shard.
#[derive(Default)]
pub struct Sessions {
    by_id: RefCell<BTreeMap<SessionId, Rc<Session>>>,
    /// Sessions of each client that has any, peers' apart; at most [`limits::CLIENT_SESSIONS_MAX`] of each of
    /// its keys but for what a start finds.
    by_client: RefCell<HashMap<ClientId, Vec<SessionId>>>,
    /// Woken when one is added: the lease's task may sleep as long as there is none.
    pub added: Notify,
    /// Which files the clients may have open.
    pub openers: Openers,
}

impl Sessions {
    /// A session.
    pub fn get(&self, id: SessionId) -> Option<Rc<Session>> {
        self.by_id.borrow().get(&id).cloned()
    }

    /// Add one.
    pub fn add(&self, session: Rc<Session>) {
        if session.peer.is_none() {
            self.by_client.borrow_mut().entry(session.client).or_default().push(session.id);
        }
        self.by_id.borrow_mut().insert(session.id, session);
        self.added.wake_all();
    }

    /// Forget one.
    pub fn remove(&self, id: SessionId) {
        let Some(session) = self.by_id.borrow_mut().remove(&id) else { return };
        let mut by_client = self.by_client.borrow_mut();
        if let Some(ids) = by_client.get_mut(&session.client) {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                by_client.remove(&session.client);
            }
        }
    }

    /// A client's, the oldest first.
    pub fn of_client(&self, client: ClientId) -> Vec<Rc<Session>> {
        let by_client = self.by_client.borrow();
        let ids = by_client.get(&client).map_or(&[][..], Vec::as_slice);
        ids.iter().filter_map(|id| self.get(*id)).collect()
    }

    /// All.
    pub fn all(&self) -> Vec<Rc<Session>> {
        self.by_id.borrow().values().cloned().collect()
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.by_id.borrow().len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.by_id.borrow().is_empty()
    }

    /// Whether any other client has a session here.
    pub fn has_another_client(&self, client: ClientId) -> bool {
        let by_client = self.by_client.borrow();
        by_client.len() > usize::from(by_client.contains_key(&client))
    }

    /// Whether a client has a session here.
    pub fn has_client(&self, client: ClientId) -> bool {
        self.by_client.borrow().contains_key(&client)
    }
}
