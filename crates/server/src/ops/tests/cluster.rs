//! Servers without a network: a miniature executor over stores in memory. Facts that a handler asks for are
//! fetched; a plan over servers is prepared and carried out on each, exactly as the protocol says, but
//! nothing runs concurrently.

mod words;

use super::forgetful::Forgetful;
use crate::data::Turns;
use crate::data::change_counts::ChangeCounts;
use crate::data::pools::{Pools, Sizes};
use crate::data::precreated;
use crate::meta::keys;
use crate::meta::placement::Rotation;
use crate::meta::rows::{Batch, Pool, Range, RowValue};
use crate::net::session::Sessions;
use crate::ops;
use crate::request::ctx::{Ctx, Fact, FactKey, Facts, Outcome, Stopped, Surroundings};
use crate::request::locks::Locks;
use crate::shard::Identity;
use crate::txn::actions;
use bytes::Bytes;
use futures_util::FutureExt;
use shoal_proto::{
    Action, Answer, ClientId, ClusterMap, CollectionId, Handle, Name, Op, Owner, Roles, SecretKey, ServerId,
    ServerInfo, Status, Template, Time, TxId,
};
use shoal_store::{Collection, CollectionConfig, Loaded, LoadedRange, ModuleKind, View};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

pub const ALL: Roles = Roles::all();
pub const OWNER: Owner = Owner { mode: 0o755, uid: 1000, gid: 100 };

pub struct Server {
    pub store: Collection,
    pub identity: Identity,
    pub locks: Locks,
    pub pools: Pools,
    pub sessions: Sessions,
    changes: ChangeCounts,
    drawn: Cell<u64>,
}

impl Server {
    fn surroundings(&self) -> Surroundings<'_> {
        Surroundings {
            identity: &self.identity,
            locks: &self.locks,
            pools: &self.pools,
            sessions: &self.sessions,
            counts: &self.changes,
        }
    }
}

pub struct Cluster {
    pub servers: Vec<Server>,
    pub client: Cell<ClientId>,
    /// Loads and facts fetched by the last run.
    pub loads: Cell<usize>,
    pub facts: RefCell<Vec<FactKey>>,
    turns: Turns,
    /// Where the next directory goes; `None`: where its turn is.
    place: Cell<Option<ServerId>>,
    rotation: Rotation,
    clock: Cell<i64>,
    transactions: Cell<u64>,
}

/// A transaction that is prepared everywhere: it commits.
pub struct Begun {
    pub tx: TxId,
    /// The actions to carry out on each server, the coordinator first.
    pub parts: Vec<(ServerId, Vec<Action>)>,
}

fn wants_rename_lock(outcome: &Outcome) -> bool {
    outcome.local.iter().chain(outcome.remote.values().flatten()).any(|a| *a == (Action::RenameLock {}))
}

pub fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

/// All rows of a store that begin so.
fn scanned(store: &Collection, prefix: &[u8]) -> Vec<(Bytes, Bytes)> {
    let prefix = Bytes::copy_from_slice(prefix);
    let all = LoadedRange { prefix: prefix.clone(), after: None, last: None, rows: Vec::new() };
    let loaded = Loaded { ranges: vec![all], ..Loaded::default() };
    store.scan(&prefix, None, usize::MAX, &loaded).unwrap().rows
}

fn store() -> Collection {
    let config = CollectionConfig::new("unused", ModuleKind::Memory, shoal_store::Identity::default());
    let inner = shoal_env::real::run("store", |env| async move { shoal_store::open(env, config).await });
    Rc::new(Forgetful(inner.unwrap()))
}

impl Cluster {
    /// Servers with these roles, and an empty root.
    pub fn new(roles: &[Roles]) -> Cluster {
        let servers: Vec<ServerInfo> =
            (0_u16..).zip(roles).map(|(id, &roles)| ServerInfo::new(ServerId(id), vec![], roles)).collect();
        let map = Rc::new(ClusterMap {
            fs_id: [7; 16],
            name: "test".into(),
            collection: CollectionId(1),
            epoch: 1,
            template: Template::default(),
            switches: shoal_proto::Switches::default(),
            servers: servers.into(),
            keys: Vec::new().into(),
        });
        let server = |id: u16| Server {
            store: store(),
            identity: Identity::new(ServerId(id), map.clone(), SecretKey::new([3; 32])),
            locks: Locks::default(),
            pools: Pools::new(Sizes::DEFAULT),
            sessions: Sessions::default(),
            changes: ChangeCounts::new(u64::from(id) << 40),
            drawn: Cell::new(100),
        };
        let servers = (0..roles.len() as u16).map(server).collect();
        let cluster = Cluster {
            servers,
            client: Cell::new(ClientId([1; 16])),
            loads: Cell::default(),
            facts: RefCell::default(),
            turns: Turns::default(),
            place: Cell::default(),
            rotation: Rotation::default(),
            clock: Cell::new(1_000),
            transactions: Cell::default(),
        };
        let root = crate::meta::inode::root(&OWNER, Template::default(), Time(1));
        let mut changes = shoal_store::Changes::default();
        changes.put(keys::inode(Handle::ROOT), root.to_row());
        cluster.servers[0].store.apply_over(changes, &Loaded::default()).unwrap();
        cluster
    }

    /// Change the switches of all servers.
    pub fn switch(&mut self, how: impl Fn(&mut shoal_proto::Switches)) {
        for server in &mut self.servers {
            let mut map = ClusterMap::clone(&server.identity.map);
            how(&mut map.switches);
            server.identity.map = Rc::new(map);
        }
    }

    /// The next moment: every run has one of its own.
    fn tick(&self) -> Time {
        self.clock.set(self.clock.get() + 1_000);
        Time(self.clock.get())
    }

    /// The moment of the last run.
    pub fn now(&self) -> Time {
        Time(self.clock.get())
    }

    fn server(&self, id: ServerId) -> &Server {
        &self.servers[usize::from(id.0)]
    }

    /// Run a group on a server.
    pub fn group(&self, server: ServerId, group: &[Op]) -> Result<Vec<Answer>, Stopped> {
        self.group_with(server, group, Bytes::new())
    }

    pub fn group_with(&self, server: ServerId, group: &[Op], bulk: Bytes) -> Result<Vec<Answer>, Stopped> {
        let (answers, begun) = self.begin(server, group, bulk)?;
        if let Some(begun) = begun {
            begun.parts.iter().for_each(|(server, actions)| self.finish(begun.tx, *server, actions));
            self.release_all(Some(begun.tx));
        }
        Ok(answers)
    }

    /// Run a group until it is done, or prepared everywhere if it is a transaction.
    pub fn begin(
        &self,
        server: ServerId,
        group: &[Op],
        bulk: Bytes,
    ) -> Result<(Vec<Answer>, Option<Begun>), Stopped> {
        let mut own = None;
        let begun = self.run(server, group, &bulk, &mut own);
        if !matches!(begun, Ok((_, Some(_)))) {
            self.release_all(own);
        }
        begun
    }

    fn run(
        &self,
        server: ServerId,
        group: &[Op],
        bulk: &Bytes,
        own: &mut Option<TxId>,
    ) -> Result<(Vec<Answer>, Option<Begun>), Stopped> {
        let now = self.tick();
        self.loads.set(0);
        self.facts.borrow_mut().clear();
        let (mut facts, mut loaded) = (Facts::default(), Loaded::default());
        facts.drawn.insert(server, vec![self.draw(server)]);
        let makes = group.iter().filter(|op| matches!(op, Op::Mkdir { .. }));
        facts.places = makes.map(|_| self.next_place(server)).collect();
        let here = self.server(server);
        loop {
            let view = View::new(&here.store, &loaded);
            let mut ctx = Ctx::new(view, here.surroundings(), &facts, now)
                .for_client(self.client.get(), bulk.clone())
                .in_transaction(*own);
            let run = run_all(&mut ctx, group).and_then(|answers| Ok((answers, ctx.finish()?)));
            match run {
                Ok((answers, outcome)) if outcome.local.is_empty() && outcome.remote.is_empty() => {
                    here.store.apply_over(outcome.changes, &loaded).unwrap();
                    return Ok((answers, None));
                }
                Ok((_, outcome)) if own.is_none() && wants_rename_lock(&outcome) => {
                    let tx = *own.insert(self.transaction(server));
                    self.prepare(tx, actions::RENAME_LOCK_SERVER, &[Action::RenameLock {}])?;
                    facts.known.clear();
                }
                Ok((answers, outcome)) => {
                    let tx = *own.get_or_insert_with(|| self.transaction(server));
                    match self.prepare_all(server, tx, outcome) {
                        // As the executor: the plan is made again, knowing more.
                        Err(Stopped::Status(Status::Changed)) if !facts.tried => {
                            self.release_all(own.take());
                            facts.known.clear();
                            facts.tried = true;
                        }
                        begun => return Ok((answers, Some(begun?))),
                    }
                }
                Err(Stopped::Miss) => {
                    self.loads.set(self.loads.get() + 1);
                    assert!(self.loads.get() < 500, "a handler misses without end");
                    let needs = ctx.into_needs();
                    loaded = here.store.load(needs, loaded).now_or_never().unwrap().unwrap();
                }
                Err(Stopped::Fact(key)) => {
                    self.facts.borrow_mut().push(key.clone());
                    let fact = self.fact(&key)?;
                    facts.known.insert(key, fact);
                }
                Err(Stopped::Draw(of)) => facts.drawn.entry(of).or_default().push(self.draw(of)),
                Err(Stopped::Pool(of, _)) => self.fill_pool(server, of),
                Err(Stopped::Turn(file)) => facts.turns.extend(self.turns.try_take(file)),
                Err(halt) => return Err(halt),
            }
        }
    }

    /// A batch of one server's datafiles for another's pool, all lent.
    fn fill_pool(&self, server: ServerId, of: ServerId) {
        let (here, there) = (self.server(server), self.server(of));
        let drawn = there.drawn.get().next_multiple_of(precreated::BLOCK);
        there.drawn.set(drawn + precreated::BLOCK);
        let (first, count) = (Handle::new(of, drawn), 10);
        let mut made = shoal_store::Changes::default();
        made.put(keys::batch(first), Batch::new(server, count).to_row());
        there.store.apply_over(made, &Loaded::default()).unwrap();
        let mut pool = Pool::new(1 + drawn);
        pool.add(1, Range { first, count });
        pool.lend(u64::MAX);
        let mut stored = shoal_store::Changes::default();
        stored.put(keys::pool(of), pool.to_row());
        here.store.apply_over(stored, &Loaded::default()).unwrap();
        here.pools.is_now(of, &pool, pool.lent);
    }

    fn next_place(&self, server: ServerId) -> ServerId {
        let in_turn = || self.rotation.next(&self.server(server).identity, |_| false, || 0);
        self.place.get().unwrap_or_else(in_turn)
    }

    fn draw(&self, server: ServerId) -> Handle {
        let drawn = &self.server(server).drawn;
        drawn.set(drawn.get() + 1);
        Handle::new(server, drawn.get())
    }

    pub fn transaction(&self, coordinator: ServerId) -> TxId {
        self.transactions.set(self.transactions.get() + 1);
        TxId(Handle::new(coordinator, (1 << 40) + self.transactions.get()).0)
    }

    /// The coordinator's part first, as it decides.
    fn prepare_all(&self, server: ServerId, tx: TxId, outcome: Outcome) -> Result<Begun, Stopped> {
        assert!(outcome.changes.is_empty());
        let mut parts = vec![(server, outcome.local)];
        parts.extend(outcome.remote);
        for (server, actions) in &parts {
            self.prepare(tx, *server, actions)?;
        }
        Ok(Begun { tx, parts })
    }

    fn release_all(&self, own: Option<TxId>) {
        if let Some(tx) = own {
            self.servers.iter().for_each(|server| server.locks.release(tx));
        }
    }

    /// Lock and validate on one server, over the wire's encoding.
    pub fn prepare(&self, tx: TxId, server: ServerId, actions: &[Action]) -> Result<(), Stopped> {
        let here = self.server(server);
        let keys: Vec<_> = actions.iter().flat_map(|a| actions::locks(&here.identity, a)).collect();
        if !here.locks.take(tx, &keys) {
            return Err(Stopped::Locked(keys.first().map(|(key, _)| key.clone()).unwrap_or_default()));
        }
        for action in actions {
            assert_eq!(actions::server_of(action), server, "{action:?} is another server's");
        }
        self.on(server, tx, |ctx| actions.iter().try_for_each(|action| actions::validate(ctx, action)))
    }

    /// Carry out the prepared actions: they cannot fail.
    pub fn finish(&self, tx: TxId, server: ServerId, actions: &[Action]) {
        self.on(server, tx, |ctx| actions.iter().try_for_each(|action| actions::apply(ctx, action)))
            .expect("what was prepared applies");
        self.server(server).locks.release(tx);
    }

    /// Prepare and carry out actions, wherever they belong.
    pub fn prepared(&self, all: &[Action]) {
        for action in all {
            let (tx, server) = (self.transaction(ServerId(0)), actions::server_of(action));
            self.prepare(tx, server, std::slice::from_ref(action)).unwrap();
            self.finish(tx, server, std::slice::from_ref(action));
        }
    }

    fn on(
        &self,
        server: ServerId,
        tx: TxId,
        work: impl Fn(&mut Ctx<'_>) -> Result<(), Stopped>,
    ) -> Result<(), Stopped> {
        let (here, facts, mut loaded) = (self.server(server), Facts::default(), Loaded::default());
        loop {
            let view = View::new(&here.store, &loaded);
            let mut ctx = Ctx::new(view, here.surroundings(), &facts, self.now()).in_transaction(Some(tx));
            match work(&mut ctx).and_then(|()| ctx.finish()) {
                Ok(outcome) => {
                    here.store.apply_over(outcome.changes, &loaded).unwrap();
                    return Ok(());
                }
                Err(Stopped::Miss) => {
                    loaded = here.store.load(ctx.into_needs(), loaded).now_or_never().unwrap().unwrap();
                }
                Err(halt) => return Err(halt),
            }
        }
    }

    fn fact(&self, key: &FactKey) -> Result<Fact, Stopped> {
        let (server, op) = match key {
            FactKey::Attr(object) => (object.server(), Op::Getattr { object: *object }),
            FactKey::Entry(server, dir, name) => (*server, Op::Entry { dir: *dir, name: name.clone() }),
            FactKey::Stream(stream) => (stream.server(), Op::Streamstat { stream: *stream }),
        };
        let answer = match self.peek(server, &op) {
            Ok(answer) => Ok(answer),
            Err(Stopped::Status(status)) => Err(status),
            Err(halt) => return Err(halt),
        };
        Ok(match key {
            FactKey::Attr(_) => Fact::Attr(answer.map(|answer| match answer {
                Answer::Attr { attr, .. } => attr,
                other => panic!("{other:?}"),
            })),
            FactKey::Entry(..) => match answer {
                Ok(Answer::Fact { entry }) => Fact::Entry(Ok(entry)),
                Ok(Answer::Split { shards, .. }) => Fact::Shards(shards),
                Ok(other) => panic!("{other:?}"),
                Err(status) => Fact::Entry(Err(status)),
            },
            FactKey::Stream(_) => Fact::Stream(answer.map(|answer| match answer {
                Answer::Facts { facts, .. } => facts,
                other => panic!("{other:?}"),
            })),
        })
    }

    /// Run a reading operation without counting.
    fn peek(&self, server: ServerId, op: &Op) -> Result<Answer, Stopped> {
        let answer = RefCell::new(None);
        self.on(server, TxId(u64::MAX), |ctx| {
            *answer.borrow_mut() = Some(ops::run(ctx, op)?);
            Ok(())
        })?;
        Ok(answer.into_inner().unwrap())
    }

    /// Rows of a table on all servers.
    pub fn rows(&self, table: keys::Table) -> Vec<(Bytes, Bytes)> {
        let prefix = keys::table(table);
        self.servers.iter().flat_map(|server| scanned(&server.store, &prefix)).collect()
    }
}

fn run_all(ctx: &mut Ctx<'_>, group: &[Op]) -> Result<Vec<Answer>, Stopped> {
    let mut answers = Vec::new();
    for (index, op) in group.iter().enumerate() {
        ctx.op_index = index;
        answers.push(ops::run(ctx, op)?);
    }
    Ok(answers)
}
