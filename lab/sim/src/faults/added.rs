//! Adds a server while clients work, as `shoal add-server` does, and then starts it.
//!
//! The request to server 0 is repeated until the map of server 0 has the new server; a repeated request
//! does not add the server a second time. The new server starts a while later, with the newest cluster
//! file, and may be killed soon after.

use super::operators::Operators;
use super::plan::{Draw, Told, restarts, stop};
use crate::cluster::{Growth, Server, connect};
use shoal_client::{Error, Options};
use shoal_env::Env;
use shoal_env::sim::World;
use shoal_proto::{Roles, ServerId};
use shoal_store::SyncModes;
use std::rc::Rc;
use std::time::Duration;

/// Between two tries, and two looks whether the one before is done.
const AGAIN: Duration = Duration::from_millis(200);

impl Draw<'_> {
    /// Objects made from then on are to reach it too.
    pub(super) fn add_server(&mut self) -> String {
        let cluster = self.plan.cluster;
        let Some(added) = cluster.next_spare() else { return String::new() };
        let story = Story {
            added,
            growth: cluster.growth(),
            options: cluster.options(),
            operators: self.plan.operators.clone(),
            tell: self.plan.tell.clone(),
            modes: self.plan.modes.clone(),
            starts_after: Duration::from_millis(
                [0, self.rng.below(50), self.rng.below(1_000)][self.rng.below(3) as usize],
            ),
            stop: (self.rng.below(2) == 0).then(|| Stop {
                after: Duration::from_micros(self.rng.below(self.plan.span.as_micros() as u64)),
                lasts: self.lasts,
                power: self.rng.below(2) == 0,
            }),
        };
        let mut words =
            format!("server {} is added, and starts {:?} later", story.added.id(), story.starts_after);
        if let Some(Stop { after, lasts, power }) = &story.stop {
            let how = if *power { "loses its power" } else { "is killed" };
            words.push_str(&format!("; it {how} {after:?} after that for {lasts:?}"));
        }
        let operator = cluster.operator();
        self.plan.operators.begin();
        self.begin(&words, move |world| {
            let within = world.for_plans();
            world.start(operator, |env| async move { story.run(&env, &within).await });
        });
        words
    }
}

struct Stop {
    after: Duration,
    lasts: Duration,
    power: bool,
}

/// See the module.
struct Story {
    added: Server,
    growth: Growth,
    options: Options,
    operators: Rc<Operators>,
    tell: Rc<dyn Fn(Told)>,
    modes: Rc<dyn Fn() -> SyncModes>,
    starts_after: Duration,
    stop: Option<Stop>,
}

impl Story {
    async fn run(self, env: &Env, world: &World) {
        // Ids are given in order.
        while self.growth.count() != self.added.id() {
            env.sleep(AGAIN).await;
        }
        // A change of the modes names the present servers.
        self.operators.keep_modes(true);
        while let Err(error) = self.add(env).await {
            env.note(|| format!("server {} is not added: {error}", self.added.id()));
            env.sleep(AGAIN).await;
        }
        self.growth.enter(&self.added, (self.modes)());
        env.sleep(self.starts_after).await;
        world.log(format!("fault: server {} begins", self.added.id()));
        self.added.start(world);
        // The second half of the clients' work uses it.
        while !self.added.serves(world) {
            env.sleep(AGAIN).await;
        }
        self.operators.keep_modes(false);
        self.operators.is_ready();
        if let Some(Stop { after, lasts, power }) = self.stop {
            env.sleep(after).await;
            world.log(format!("fault: server {} is stopped", self.added.id()));
            stop(world, &self.added, power, &*self.tell);
            env.sleep(lasts).await;
            restarts(self.added)(world);
        }
        self.operators.end();
    }

    async fn add(&self, env: &Env) -> Result<(), Error> {
        let client = connect(env, self.options.clone()).await?;
        let id = usize::from(self.added.id());
        let is_there = client.map().server(ServerId(self.added.id())).is_some();
        let added = match is_there {
            true => Ok(()),
            false => client.add_server(vec![self.growth.address(id as u16)], Roles::all()).await.map(drop),
        };
        client.close().await;
        added
    }
}
