//! The cluster's map as this client knows it, and how it is replaced by a newer one.
//!
//! The client fetches the map in four cases:
//!
//! * at its first connection;
//! * when a reply carries a greater epoch than the known map: in the background;
//! * when an operation needs a server that is not in the known map: before the operation continues;
//! * when a server cannot be reached, because it may have moved: from the other servers in turn.
//!
//! **A map of another file system is never accepted, and a known part of the map is never replaced by an
//! older version of that part.**
//!
//! **If an operation names a server that is not in the map, it fails with `Stale` only if no reply carried
//! a greater epoch.** Otherwise the server may exist, and the operation waits for the newer map until its
//! deadline.

use crate::Error;
use crate::core::{Core, Operation};
use crate::refusal::is_refusal;
use crate::session::{Asked, Waiter};
use futures_util::FutureExt;
use futures_util::future::{LocalBoxFuture, Shared, WeakShared};
use shoal_env::Instant;
use shoal_env::local::Notify;
use shoal_env::mutant::{self, Mutant};
use shoal_proto::op::Answer;
use shoal_proto::{ClusterMap, Durability, Group, Op, ServerId, Status};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

/// A server that is not in the map is looked for in a newer one for this long at most, and the next time
/// after as long a pause.
const LOOK: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(1));

/// A look for a newer map: why there will be none.
type Look = LocalBoxFuture<'static, Option<Error>>;

/// See the module's page.
pub(crate) struct KnownMap {
    present: RefCell<Rc<ClusterMap>>,
    /// A newer one is requested in the background.
    asked: Cell<bool>,
    /// The fetch of a newer map that is under way, if a caller still waits for it.
    looking: RefCell<Option<WeakShared<Look>>>,
    /// When the last one ended.
    looked_at: Cell<Option<Instant>>,
    /// The greatest epoch that a reply had.
    heard: Cell<u32>,
    /// Which of the others is asked next where one is not reached.
    turn: Cell<usize>,
    /// Woken when a newer one was taken.
    pub(crate) changed: Notify,
}

impl KnownMap {
    /// Begin with this one.
    pub(crate) fn new(map: ClusterMap) -> KnownMap {
        KnownMap {
            present: RefCell::new(Rc::new(map)),
            asked: Cell::new(false),
            looking: RefCell::default(),
            looked_at: Cell::new(None),
            heard: Cell::default(),
            turn: Cell::default(),
            changed: Notify::default(),
        }
    }

    /// The requested map came, or will not come: it may be requested again.
    pub(crate) fn answered(&self) {
        self.asked.set(false);
    }
}

impl Core {
    pub(crate) fn map(&self) -> Rc<ClusterMap> {
        self.map.present.borrow().clone()
    }

    /// Accept the newer parts of a map of this file system.
    pub(crate) fn install_map(&self, map: ClusterMap) {
        let present = self.map();
        if map.fs_id != self.options.fs_id || map.collection != self.options.collection {
            return;
        }
        let next = match present.servers.is_empty() {
            true => map,
            // A client assigns no epochs: it accepts any map that is newer than those that servers gave.
            false => ClusterMap { epoch: present.epoch.max(map.epoch), ..present.succeeded_by(&map) },
        };
        if next != *present {
            *self.map.present.borrow_mut() = Rc::new(next);
            self.map.changed.wake_all();
        }
    }

    /// A server reported its map's epoch: a newer map is fetched in the background.
    pub(crate) fn note_epoch(&self, server: ServerId, epoch: u32) {
        let map = self.map();
        self.map.heard.set(self.map.heard.get().max(epoch));
        // With no servers in it, it is being fetched for the first time.
        if epoch > map.epoch && !map.servers.is_empty() && !self.map.asked.replace(true) {
            self.ask_map(server, self.options.timeout);
        }
    }

    /// A server was not reached where the map has it: one of the others is asked for a newer map in the
    /// background, and another one the next time.
    pub(crate) fn ask_others_for_map(&self, unreached: ServerId) {
        let others = self.map().servers.len().saturating_sub(1);
        if others == 0 || mutant::is(Mutant::StayAtAddress) || self.map.asked.replace(true) {
            return;
        }
        let turn = self.map.turn.get();
        self.map.turn.set(turn.wrapping_add(1));
        let next = (usize::from(unreached.0) + 1 + turn % others) % (others + 1);
        self.ask_map(ServerId(next as u16), LOOK.0);
    }

    fn ask_map(&self, server: ServerId, patience: Duration) {
        self.enqueue(
            server,
            Asked {
                op: "map",
                groups: vec![Group { ops: vec![Op::Map {}].into() }],
                bulk: Vec::new(),
                reply_bytes: 0,
                deadline: self.world.now() + patience,
                durability: Durability::Usual,
                call: None,
                giver: None,
                waiter: Waiter::Map,
            },
        );
    }

    /// Fetch the map from `server`.
    pub(crate) async fn fetch_map(self: &Rc<Core>, o: &Operation, server: ServerId) -> Result<(), Error> {
        let groups = vec![Group { ops: vec![Op::Map {}].into() }];
        let answered = self.exchange(o, server, groups, Vec::new(), 0)?.await?;
        match answered.reply.groups.0.into_iter().next().and_then(|group| group.answers.0.into_iter().next())
        {
            Some(Answer::Map { map }) => {
                if map.fs_id != self.options.fs_id || map.collection != self.options.collection {
                    let words = format!("its map is of `{}`, another file system", map.name);
                    return Err(o.error(Status::BadCollection).from(server).because(words));
                }
                self.install_map(map);
                Ok(())
            }
            _ => Err(o.error(Status::BadMessage).from(server).because("no map in its answer")),
        }
    }

    /// Fetch the newest map that a reply named, of one of these servers.
    ///
    /// # Errors
    /// Why none of them gave it.
    pub(crate) async fn newest_map(
        self: &Rc<Core>,
        o: &Operation,
        servers: Vec<ServerId>,
    ) -> Result<(), Error> {
        let mut failed = None;
        for server in servers {
            if self.map.heard.get() <= self.map().epoch {
                return Ok(());
            }
            failed = self.fetch_map(o, server).await.err().or(failed);
        }
        match failed {
            Some(error) if self.map.heard.get() > self.map().epoch => Err(error),
            _ => Ok(()),
        }
    }

    /// Wait until a server is in the map: a moment if the map may be the newest, because a handle may name a
    /// server that never existed; the call's whole time if a server said that there is a newer one.
    ///
    /// # Errors
    /// `Stale`: the server is in no map that is known of. `TimedOut`: the newest map could not be fetched.
    /// Server 0 refuses this client for good; the call was interrupted.
    pub(crate) async fn find(self: &Rc<Core>, o: &Operation, server: ServerId) -> Result<(), Error> {
        loop {
            let changed = self.map.changed.wait();
            if !self.closed.get() {
                self.look_for_newer_map(o).await?;
            }
            if self.knows(server) {
                return Ok(());
            }
            let map = self.map();
            let words = format!("the map (epoch {}) has {} servers only", map.epoch, map.servers.len());
            if self.map.heard.get() <= map.epoch || self.closed.get() {
                return Err(o.error(Status::Stale).from(server).because(words));
            }
            self.go_on(o)?;
            let now = self.world.now();
            if now >= o.deadline {
                let words = format!("{words}, and a newer one was not received in the call's time");
                return Err(o.error(Status::TimedOut).from(server).because(words));
            }
            let _ = self.by((now + LOOK.1).min(o.deadline), changed).await;
        }
    }

    /// A caller met a server that is not in the map. The client asks server 0 for a newer map, because server
    /// 0 adds servers: by one message for all callers that meet unknown servers meanwhile, and seldom,
    /// because a handle may name a server that never existed. If server 0 cannot be asked, the present map
    /// counts.
    ///
    /// # Errors
    /// When server 0 refuses this client for good.
    async fn look_for_newer_map(self: &Rc<Core>, o: &Operation) -> Result<(), Error> {
        let under_way = self.map.looking.borrow().as_ref().and_then(WeakShared::upgrade);
        let looking: Shared<Look> = match under_way {
            Some(looking) => looking,
            None => {
                let now = self.world.now();
                if self.map.looked_at.get().is_some_and(|at| now < at + LOOK.1) {
                    return Ok(());
                }
                let core = self.clone();
                let look = async move {
                    let o = core.begin("map", None).until(now + LOOK.0);
                    let error = core.fetch_map(&o, ServerId(0)).await.err();
                    core.map.looked_at.set(Some(core.world.now()));
                    error.filter(|error| is_refusal(error.status))
                };
                let looking = look.boxed_local().shared();
                *self.map.looking.borrow_mut() = looking.downgrade();
                looking
            }
        };
        match self.by(o.deadline, looking).await.flatten() {
            Some(error) => Err(Error { op: o.op, object: o.object, ..error }),
            None => Ok(()),
        }
    }
}
