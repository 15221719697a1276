//! Tests of transactions whose coordinator's store was given up (declared lost). They end in the same way
//! on all servers, however often a repair is interrupted.

use super::{decision, foreseen};
use crate::Problem;
use crate::aside::Aside;
use crate::mend::{Offer, Site, mend};
use crate::rounds::{Checker, Mending};
use crate::tables::{Tables, Undecided, Wrong};
use indicatif::ProgressBar;
use shoal_client::{Client, Options, RenameFlags};
use shoal_env::Env;
use shoal_proto::{
    Action, ClusterMap, CollectionId, Decision, Handle, Name, Owner, Roles, SecretKey, ServerId, ServerInfo,
    StoreId, Template, Time, TxId,
};
use shoal_server::rows::{RowValue as _, Tx, TxState};
use shoal_server::{CollectionSetup, ServerConfig, ServerHandle, Settings, keys, serve};
use shoal_store::{Changes, Collection, CollectionConfig, Identity, ModuleKind};
use std::collections::BTreeMap;
use std::time::Duration;

const KEY: SecretKey = SecretKey::new([7; 32]);
const OWNER: Owner = Owner { mode: 0o755, uid: 0, gid: 0 };
const PAUSES: [Duration; 2] = [Duration::from_millis(30); 2];
/// The time of change that each transaction sets.
const TOUCHED: Time = Time(77);
/// Transactions of each kind.
const OF_EACH: usize = 3;

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

/// The known state of a transaction with two participants.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Kind {
    /// Both have it prepared.
    AllPrepared,
    /// One has, and the other was not reached.
    OnePrepared,
    /// One has carried it out.
    OneCarriedOut,
}

const KINDS: [Kind; 3] = [Kind::AllPrepared, Kind::OnePrepared, Kind::OneCarriedOut];

/// One transaction: it touches a file on server 0 and one on server 2.
struct Begun {
    kind: Kind,
    tx: TxId,
    files: [Handle; 2],
}

/// Three servers in this thread; the store of the one in the middle was given up.
struct Scene {
    env: Env,
    map: ClusterMap,
    stores: Vec<Collection>,
    servers: Vec<Option<ServerHandle>>,
    begun: Vec<Begun>,
    /// On the root directory, prepared on server 0 alone.
    on_root: TxId,
}

impl Scene {
    async fn new(env: &Env) -> Scene {
        let info = |id: u16| {
            let address = format!("local:undecided-{id}");
            ServerInfo::new(ServerId(id), vec![address.into()], Roles::all())
        };
        let mut servers: Vec<ServerInfo> = (0..3).map(info).collect();
        servers[1].store = StoreId(5);
        servers[1].renew(StoreId(6), false).unwrap();
        let map = ClusterMap {
            fs_id: [5; 16],
            name: "undecided".into(),
            collection: CollectionId(1),
            epoch: 1,
            template: Template::default(),
            switches: shoal_proto::Switches::default(),
            servers: servers.into(),
            keys: Vec::new().into(),
        };
        let lost = |n: u64| TxId(Handle::new(ServerId(1), 5000 + n).0);
        let (stores, servers, begun, on_root) = (Vec::new(), Vec::new(), Vec::new(), lost(0));
        let mut scene = Scene { env: env.clone(), map, stores, servers, begun, on_root };
        for id in 0..3 {
            let identity = Identity { fs: scene.map.fs_id, collection: 1, server: id };
            let config = CollectionConfig::new("/nowhere", ModuleKind::Memory, identity);
            scene.stores.push(shoal_store::open(env.clone(), config).await.unwrap());
            scene.servers.push(None);
        }
        for id in 0..3 {
            scene.start(id).await;
        }
        let client = scene.client().await;
        let far = scene.directory_on(&client, 2).await;
        for n in 0..OF_EACH * KINDS.len() {
            let mut files = [Handle::ROOT, far];
            for dir in &mut files {
                let text = name(&format!("file{n}"));
                *dir =
                    client.create_write(*dir, &text, OWNER, Default::default(), None).await.unwrap().handle;
            }
            scene.begun.push(Begun { kind: KINDS[n % KINDS.len()], tx: lost(1 + n as u64), files });
        }
        client.close().await;
        scene.plant().await;
        scene
    }

    /// The rows that the lost coordinator has left, while no server runs.
    async fn plant(&mut self) {
        for id in [0, 2] {
            self.kill(id);
        }
        for Begun { kind, tx, files } in &self.begun {
            self.prepared(0, *tx, files[0]);
            if *kind != Kind::OnePrepared {
                self.prepared(2, *tx, files[1]);
            }
        }
        self.prepared(0, self.on_root, Handle::ROOT);
        for id in [0, 2] {
            self.start(id).await;
        }
        let client = self.client().await;
        for Begun { tx, .. } in self.begun.iter().filter(|begun| begun.kind == Kind::OneCarriedOut) {
            client.finish(ServerId(0), *tx, Decision::Commit).await.unwrap();
            assert!(self.has(0, &keys::ended(*tx)), "it remembers what it has carried out");
        }
        client.close().await;
    }

    fn prepared(&self, server: u16, tx: TxId, object: Handle) {
        let actions = vec![Action::Touch { object, time: TOUCHED }];
        let participants = vec![ServerId(0), ServerId(2)];
        let mut changes = Changes::default();
        changes.put(keys::tx(tx), Tx { state: TxState::Prepared { actions, participants } }.to_row());
        self.stores[usize::from(server)].apply(changes).unwrap();
    }

    fn has(&self, server: usize, key: &[u8]) -> bool {
        let rows = self.stores[server].scan(key, None, 1, &Default::default()).unwrap().rows;
        !rows.is_empty()
    }

    async fn start(&mut self, server: u16) {
        loop {
            let config = ServerConfig {
                id: ServerId(server),
                listen: vec![self.map.servers[usize::from(server)].addresses[0].0.parse().unwrap()],
                collections: vec![CollectionSetup {
                    store: self.stores[usize::from(server)].clone(),
                    map: self.map.clone(),
                    keys: Some(KEY.into()),
                    root: OWNER,
                }],
                settings: Settings { lease: Duration::from_millis(900), ..Settings::default() },
                polling: Duration::ZERO,
                audit: None,
            };
            match serve(self.env.clone(), config).await {
                Ok(handle) => {
                    self.servers[usize::from(server)] = Some(handle);
                    return;
                }
                // The listener of one that was just stopped goes with its task's next turn.
                Err(shoal_server::ServeError::Listen(..)) => self.env.sleep(Duration::from_millis(1)).await,
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn kill(&mut self, server: usize) {
        self.servers[server].take().unwrap().abandon();
    }

    async fn client(&self) -> Client {
        let addresses = self.map.servers.iter().map(|info| info.addresses[0].0.parse().unwrap()).collect();
        let mut options = Options::new(addresses, KEY, self.map.fs_id, self.map.collection);
        (options.name_cache, options.attr_cache) = (Duration::ZERO, Duration::ZERO);
        options.timeout = Duration::from_millis(700);
        Client::connect(self.env.clone(), options).await.unwrap()
    }

    async fn directory_on(&self, client: &Client, server: u16) -> Handle {
        for n in 0.. {
            let made = client.mkdir(Handle::ROOT, &name(&format!("d{n}")), OWNER).await;
            match made {
                Ok(attr) if attr.handle.server() == ServerId(server) => return attr.handle,
                _ => {}
            }
        }
        unreachable!()
    }

    /// Every file is touched, or not, as its kind says, on both servers alike; nothing is locked, and
    /// directories move.
    async fn is_ended(&self) {
        let client = self.client().await;
        for Begun { kind, files, .. } in &self.begun {
            for file in files {
                let is_touched = client.getattr(*file).await.unwrap().ctime == TOUCHED;
                assert_eq!(is_touched, *kind != Kind::OnePrepared, "{kind:?}: {file}");
            }
        }
        assert_ne!(client.getattr(Handle::ROOT).await.unwrap().ctime, TOUCHED);
        for server in [0, 2] {
            assert!(self.servers[server].as_ref().unwrap().shards()[0].locks.is_empty(), "server {server}");
        }
        let (to, moved) = (self.directory_on(&client, 2).await, name("moved"));
        client.mkdir(Handle::ROOT, &moved, OWNER).await.unwrap();
        client.rename(Handle::ROOT, &moved, to, &moved, RenameFlags::default()).await.unwrap();
        client.close().await;
    }
}

async fn an_interrupted_repair(env: Env) {
    let mut scene = Scene::new(&env).await;
    let (client, bar) = (scene.client().await, ProgressBar::hidden());
    let checker = Checker { env: &env, client: &client, bar: &bar, pauses: &PAUSES };
    let found = checker.find().await.unwrap();
    let site = Site::of(&scene.map, OWNER, Time(0));
    for begun in &scene.begun {
        let of_it = |problem: &&Problem| matches!(problem, Problem::Undecided { tx, .. } if *tx == begun.tx);
        let said: Vec<String> =
            found.problems.iter().filter(of_it).map(|p| foreseen(p, &found.tables, &site).unwrap()).collect();
        let (count, deed) = match begun.kind {
            Kind::AllPrepared => (2, "--lost-stores carries it out: its coordinator is lost, and all"),
            Kind::OnePrepared => (1, "--lost-stores aborts it"),
            Kind::OneCarriedOut => (1, "--lost-stores carries it out: its coordinator is lost, and another"),
        };
        assert!(
            said.len() == count && said.iter().all(|words| words.contains(deed)),
            "{:?}: {said:?}",
            begun.kind
        );
    }
    // One server is not reached any more when the repair has begun.
    scene.kill(2);
    let folder = tempfile::tempdir().unwrap();
    let mut aside = Aside::new(folder.path().join("rows"));
    let mut mended = BTreeMap::new();
    let interrupted = checker.repair(&found, &mut aside, &mut mended).await;
    assert!(interrupted.is_err(), "{interrupted:?}");
    let done = mended.values().filter(|mending| matches!(mending, Mending::Mended(_))).count();
    assert_eq!(done, 2 * OF_EACH + 1, "what is on server 0: {mended:?}");
    assert!(mended.keys().all(|problem| problem.word() == "undecided"), "nothing else was begun: {mended:?}");
    scene.start(2).await;
    let found = checker.find().await.unwrap();
    assert!(!found.problems.is_empty(), "the rest is in doubt still");
    let left = checker.repair(&found, &mut aside, &mut mended).await.unwrap();
    assert!(left.is_empty(), "{left:?}");
    assert!(checker.find().await.unwrap().problems.is_empty());
    client.close().await;
    scene.is_ended().await;
    // The commit need not be remembered any more.
    while scene.has(0, b"e") || scene.has(2, b"e") {
        env.sleep(Duration::from_millis(10)).await;
    }
}

#[test]
fn what_a_lost_coordinator_began_ends_alike_on_all_servers_though_the_repair_is_interrupted() {
    shoal_env::real::run("test", |env| async move {
        let until = env.now() + Duration::from_secs(60);
        env.deadline(until, an_interrupted_repair(env.clone())).await.expect("the test hangs");
    });
}

/// Which server has what of a transaction: prepared (with which participants), or carried out.
fn decided(prepared: &[(u16, &[u16])], ended: &[u16]) -> Decision {
    let tx = TxId(Handle::new(ServerId(9), 5).0);
    let mut tables = Tables::default();
    for (server, participants) in prepared {
        let participants = participants.iter().map(|id| ServerId(*id)).collect();
        let row = Undecided { participants, objects: Default::default() };
        tables.prepared.insert((ServerId(*server), tx), row);
    }
    // Another transaction of the same servers decides nothing.
    tables.ended.insert((ServerId(0), TxId(tx.0 + 1)));
    tables.ended.extend(ended.iter().map(|server| (ServerId(*server), tx)));
    decision(tx, &tables).0
}

#[test]
fn what_a_lost_coordinator_began_is_carried_out_where_any_has_or_all_can_and_aborted_otherwise() {
    let all: &[u16] = &[0, 1];
    assert_eq!(decided(&[(0, all), (1, all)], &[]), Decision::Commit);
    assert_eq!(decided(&[(0, &[0])], &[]), Decision::Commit, "the only one");
    assert_eq!(decided(&[(1, all)], &[0]), Decision::Commit);
    assert_eq!(decided(&[(1, all)], &[]), Decision::Abort, "server 0 was not reached, or has aborted");
    assert_eq!(decided(&[(0, &[]), (1, all)], &[]), Decision::Abort, "server 0 has the rename lock alone");
    assert_eq!(decided(&[(0, &[])], &[]), Decision::Abort, "more was to come");
}

#[test]
fn nothing_of_a_lost_coordinator_is_ended_while_a_row_that_may_decide_it_is_damaged() {
    let tx = TxId(Handle::new(ServerId(1), 5).0);
    let site = Site {
        lost_and_found: Handle::ROOT,
        template: Template::default(),
        owner: OWNER,
        servers: [ServerId(0), ServerId(1), ServerId(2)].into(),
        renewed: [(ServerId(1), 1000)].into(),
        now: Time(1),
    };
    let mut tables = Tables::default();
    let participants = vec![ServerId(0), ServerId(2)];
    let row = Undecided { participants, objects: Default::default() };
    tables.prepared.insert((ServerId(0), tx), row);
    let problem = Problem::Undecided { server: ServerId(0), tx, objects: Vec::new() };
    assert!(matches!(mend(&problem, &tables, &site), Offer::Mend(..)));
    tables.wrong.insert(Wrong {
        server: ServerId(2),
        key: keys::ended(tx).to_vec(),
        why: "cut short".into(),
    });
    assert!(matches!(mend(&problem, &tables, &site), Offer::Leave(_)));
}
