//! A server that starts with an older copy of its folder.
//!
//! The promise (SEMANTICS §3): a start with a copy is refused if any server that the starting server asks
//! remembers a later position. So this fault waits until one of those servers remembers a later position
//! than the copy has, and puts the copy in place only while such a server runs and answers. **Then every
//! start must be refused**; with the newest folder, nothing is missing.

use super::operators::Operators;
use super::plan::{Draw, Told, stop};
use crate::cluster::{Growth, Server, connect};
use shoal_client::{Client, Options};
use shoal_env::sim::{SpareDisk, World};
use shoal_env::{Env, Instant};
use shoal_proto::ServerId;
use shoal_server::stores;
use std::rc::Rc;
use std::time::Duration;

/// Other faults have ended so long after the last one began: a silence takes the longest.
const OTHERS_END: Duration = Duration::from_secs(50);
/// Servers report their positions to each other once a minute, and keep one a minute.
const REMEMBERED_AFTER: Duration = Duration::from_secs(61);
/// A story waits no longer for others to remember more: a server that does not continue has nothing more to
/// be remembered.
const REMEMBERED_MAX: Duration = Duration::from_secs(200);
/// Between two looks.
const AGAIN: Duration = Duration::from_secs(5);

impl Draw<'_> {
    /// Its server must see that the folder is an older copy.
    pub(super) fn older_copy(&mut self) -> String {
        let cluster = self.plan.cluster;
        if cluster.server_count() < 2 {
            return String::new();
        }
        let world = &cluster.world;
        let (starts, wait_us) = (1 + self.rng.below(3) as u32, self.plan.span.as_micros() as u64 / 2);
        let story = Story {
            target: self.target(),
            all: cluster.servers(),
            growth: cluster.growth(),
            options: cluster.options(),
            operators: self.plan.operators.clone(),
            tell: self.plan.tell.clone(),
            calm: world.now() + self.plan.span + OTHERS_END,
            wait: Duration::from_micros(self.rng.below(wait_us.max(1))),
            lasts: self.lasts,
            starts,
        };
        let words = format!(
            "the folder of server {} is copied; once others remember more, the server is killed, and starts {starts} times with \
             the copy within {:?}",
            self.server, self.lasts
        );
        let operator = cluster.operator();
        self.plan.operators.begin();
        self.begin(&words, move |world| {
            let within = world.for_plans();
            world.start(operator, |env| async move { story.run(&env, &within).await });
        });
        words
    }
}

/// See the module.
struct Story {
    target: Server,
    all: Vec<Server>,
    growth: Growth,
    options: Options,
    operators: Rc<Operators>,
    tell: Rc<dyn Fn(Told)>,
    /// No other fault begins or lasts from then on, but stops at steps.
    calm: Instant,
    /// Between the beginning of the clients' second half and the copy's.
    wait: Duration,
    lasts: Duration,
    starts: u32,
}

impl Story {
    async fn run(self, env: &Env, world: &World) {
        let found = self.prepare(env, world).await;
        self.operators.is_ready();
        if let Some((mut copy, position, client)) = found {
            env.sleep(self.wait).await;
            if self.comes_to_be_refused(env, world, &client, position).await {
                self.serve_from(env, world, &mut copy).await;
            }
            client.close().await;
        }
        self.operators.end();
    }

    /// A copy, the last position that may be in it, and a client that has seen that others remember more.
    async fn prepare(&self, env: &Env, world: &World) -> Option<(SpareDisk, u64, Client)> {
        let (copy, position) = self.copy(env, world).await?;
        let first = self.calm.max(env.now() + REMEMBERED_AFTER);
        env.sleep(first.since(env.now())).await;
        let client = connect(env, self.options.clone()).await.ok()?;
        let until = env.now() + REMEMBERED_MAX;
        while self.who_remembers(&client, position).await.is_empty() {
            if env.now() > until {
                env.note(|| {
                    format!("no server remembers more of server {} than {position}", self.target.id())
                });
                client.close().await;
                return None;
            }
            env.sleep(AGAIN).await;
        }
        Some((copy, position, client))
    }

    async fn copy(&self, env: &Env, world: &World) -> Option<(SpareDisk, u64)> {
        while env.now() < self.calm {
            if self.target.holds() == self.target.id()
                && let Some(copy) = self.target.copy(world)
            {
                return Some(copy);
            }
            env.sleep(Duration::from_millis(20)).await;
        }
        None
    }

    /// The servers that it asks when it begins, however many of those that were added meanwhile are in its
    /// map.
    fn asked(&self) -> Vec<u16> {
        let (id, now) = (ServerId(self.target.id()), usize::from(self.growth.count()));
        let is_asked = |other: &u16| {
            (self.all.len()..=now).all(|count| stores::fellows(count, id).contains(&ServerId(*other)))
        };
        self.all.iter().map(Server::id).filter(is_asked).collect()
    }

    /// Those of them that remember a later position of this one.
    async fn who_remembers(&self, client: &Client, position: u64) -> Vec<u16> {
        let key = stores::key_of(ServerId(self.target.id()));
        let mut found = Vec::new();
        for other in self.asked() {
            let Ok((rows, _)) = client.rows(ServerId(other), &key, &[], 1).await else { continue };
            let row = rows.first().filter(|row| row.key[..] == key[..]);
            let known = row.and_then(|row| stores::remembered(&row.value));
            if known.is_some_and(|(_, known)| known > position) {
                found.push(other);
            }
        }
        found
    }

    /// Wait until no other server has an older copy, and one of those that remember more serves at this
    /// moment.
    async fn comes_to_be_refused(&self, env: &Env, world: &World, client: &Client, position: u64) -> bool {
        let until = env.now() + REMEMBERED_MAX;
        while env.now() < until {
            let refuse = self.who_remembers(client, position).await;
            let is_free = !self.all.iter().any(Server::is_older);
            let serves = |id: &u16| self.all.iter().any(|server| server.id() == *id && server.serves(world));
            if is_free && refuse.iter().any(serves) {
                env.note(|| {
                    format!("servers {refuse:?} remember more of server {} than {position}", self.target.id())
                });
                return true;
            }
            env.sleep(Duration::from_millis(100)).await;
        }
        false
    }

    async fn serve_from(&self, env: &Env, world: &World, copy: &mut SpareDisk) {
        let (target, id) = (&self.target, self.target.id());
        world.log(format!(
            "fault: server {id} is killed, and has an older copy of its folder for {:?}",
            self.lasts
        ));
        stop(world, target, false, &*self.tell);
        target.exchange_copy(world, copy);
        for _ in 0..self.starts {
            if !world.is_alive(target.process) {
                target.start(world);
            }
            env.sleep(self.lasts / self.starts).await;
        }
        world.log(format!("fault: server {id} has its newest folder again"));
        if world.is_alive(target.process) {
            stop(world, target, false, &*self.tell);
        }
        target.exchange_copy(world, copy);
        target.start(world);
    }
}
