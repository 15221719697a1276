//! The driver over `env`: one task for the alarm, and one task for each server in use.
//!
//! A server's task waits until a request is queued, then connects and shakes hands. After that it reads and
//! writes concurrently. The writer sends all that is queued (up to the limits of a batch) by one vectored
//! write. The reader reads a whole buffer and completes every reply in it. So one system call serves many
//! messages.
//!
//! When the connection is lost, the task connects again, with growing pauses, while one of these holds:
//!
//! - a caller waits for an answer (the core sends the requests under way again);
//! - the server is silent: the task tries until it answers;
//! - a file of the server is open here: without a session the server would remove such a file once its last
//!   name is gone.

mod handshake;
mod link;

use crate::core::Core;
use crate::world::World;
use crate::{Error, Options};
use handshake::Established;
pub(crate) use handshake::who_listens;
use shoal_env::local::Notify;
use shoal_env::{Address, Env, Instant, WallTime, Work};
use shoal_proto::seal::PrivateKey;
use shoal_proto::{ClientId, ClusterMap, ServerId, Status};
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

/// The state that the core and the driver's tasks share.
struct Shared {
    env: Env,
    core: OnceCell<Weak<Core>>,
    /// The client's key: its sessions are continued by it alone.
    key: Rc<PrivateKey>,
    links: RefCell<BTreeMap<ServerId, Signals>>,
    alarm: Cell<Option<Instant>>,
    alarm_set: Notify,
}

/// Signals a link that there is work.
#[derive(Clone)]
struct Signals {
    wake: Notify,
    /// It is to leave its connection.
    leave: Notify,
}

/// The world as `env` shows it.
struct EnvWorld(Rc<Shared>);

impl World for EnvWorld {
    fn now(&self) -> Instant {
        self.0.env.now()
    }

    fn wall(&self) -> WallTime {
        self.0.env.wall()
    }

    fn random_u64(&self) -> u64 {
        self.0.env.random_u64()
    }

    fn work(&self, work: Work, count: u64) {
        self.0.env.work(work, count);
    }

    fn outgoing(&self, server: ServerId) {
        let known = self.0.links.borrow().get(&server).cloned();
        match known {
            Some(Signals { wake, .. }) => wake.wake_all(),
            None => open_link(&self.0, server, None, Notify::default()),
        }
    }

    fn silent(&self, server: ServerId) {
        if let Some(Signals { leave, .. }) = self.0.links.borrow().get(&server) {
            leave.wake_all();
        }
        self.outgoing(server);
    }

    fn wake_at(&self, at: Instant) {
        if self.0.alarm.get().is_none_or(|set| at < set) {
            self.0.alarm.set(Some(at));
            self.0.alarm_set.wake_all();
        }
    }
}

/// Begin the task that talks to `server`.
fn open_link(shared: &Rc<Shared>, server: ServerId, established: Option<Established>, leave: Notify) {
    let Some(core) = shared.core.get().and_then(Weak::upgrade).filter(|core| !core.is_closed()) else {
        return;
    };
    let wake = Notify::default();
    shared.links.borrow_mut().insert(server, Signals { wake: wake.clone(), leave: leave.clone() });
    let lease = Cell::default();
    let (env, key) = (shared.env.clone(), shared.key.clone());
    let link = link::Link { env, core, server, key, wake, leave, lease };
    drop(shared.env.spawn("client link", link.run(established)));
}

/// Ring the core's alarm when it is to ring.
async fn ring(shared: Rc<Shared>) {
    loop {
        let set = shared.alarm_set.wait();
        match shared.alarm.get() {
            None => set.await,
            Some(at) if at > shared.env.now() => {
                futures_util::future::select(set, shared.env.sleep_until(at)).await;
            }
            Some(_) => {
                let Some(core) = shared.core.get().and_then(Weak::upgrade) else { return };
                if core.is_closed() {
                    return;
                }
                // Cleared first: the woken task may set it anew.
                shared.alarm.set(None);
                let next = core.tick(shared.env.now());
                if let Some(next) = next {
                    shared.alarm.set(Some(shared.alarm.get().map_or(next, |set| set.min(next))));
                }
            }
        }
    }
}

/// Whether the map has an address of `server` that costs less than `address`, which the first connection went
/// to.
fn is_nearer_known(map: &ClusterMap, server: ServerId, address: &Address) -> bool {
    let Some(info) = map.server(server) else { return false };
    let mut all: Vec<Address> = info.addresses.iter().filter_map(|text| text.0.parse().ok()).collect();
    all.push(address.clone());
    handshake::nearest_first(&mut all);
    all.first().is_some_and(|first| handshake::distance(first) < handshake::distance(address))
}

/// Connect to any server of `options.map_from`, and fetch the map.
pub(crate) async fn connect(env: Env, options: Options) -> Result<Rc<Core>, Error> {
    env.set_polling(options.polling);
    let mut id = [0; 16];
    env.random(&mut id);
    let id = ClientId(id);
    let key = Rc::new(handshake::drawn(&env));
    let first = handshake::first_of(&env, &options, (id, &*key));
    let (server, first) = match env.deadline(env.now() + options.timeout, first).await {
        Ok(first) => first?,
        Err(_) => {
            let words = format!("no server answered within {:?}", options.timeout);
            return Err(Error::new(Status::TimedOut, "connect").because(words));
        }
    };
    let shared = Rc::new(Shared {
        env: env.clone(),
        core: OnceCell::new(),
        key: key.clone(),
        links: RefCell::default(),
        alarm: Cell::new(None),
        alarm_set: Notify::default(),
    });
    let map = ClusterMap {
        fs_id: options.fs_id,
        name: "".into(),
        collection: options.collection,
        epoch: 0,
        template: shoal_proto::Template::default(),
        switches: shoal_proto::Switches::default(),
        servers: Vec::new().into(),
        keys: Vec::new().into(),
    };
    let core = Core::new(Box::new(EnvWorld(shared.clone())), options, id, map);
    if shared.core.set(Rc::downgrade(&core)).is_err() {
        return Err(Error::new(Status::Invalid, "connect"));
    }
    drop(env.spawn("client alarm", ring(shared.clone())));
    let (leave, address) = (Notify::default(), first.address.clone());
    open_link(&shared, server, Some(first), leave.clone());
    let o = core.begin("connect", None);
    match core.fetch_map(&o, server).await {
        Ok(()) => {
            if is_nearer_known(&core.map(), server, &address) {
                leave.wake_all();
            }
            Ok(core)
        }
        Err(error) => {
            core.close();
            Err(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_proto::{CollectionId, Roles, ServerInfo, Template};

    #[test]
    fn the_first_connection_is_left_only_for_one_that_costs_less() {
        let addresses = vec!["tcp:127.0.0.1:6000".into(), "unix:/run/shoal".into()];
        let info = ServerInfo::new(ServerId(0), addresses, Roles::all());
        let map = ClusterMap {
            fs_id: [0; 16],
            name: "".into(),
            collection: CollectionId(1),
            epoch: 1,
            template: Template::default(),
            switches: shoal_proto::Switches::default(),
            servers: vec![info].into(),
            keys: Vec::new().into(),
        };
        let nearer = |server, from: &str| is_nearer_known(&map, ServerId(server), &from.parse().unwrap());
        assert!(nearer(0, "tcp:127.0.0.1:6000"));
        assert!(!nearer(0, "unix:/run/shoal"));
        assert!(!nearer(0, "local:a"));
        assert!(!nearer(1, "tcp:127.0.0.1:6000"), "it is not in the map");
    }
}
