//! The actions, targets and times of all faults of a run, drawn before the run and entered as events of the
//! simulation.
//!
//! ```text
//!   a fault:  its time ──▶ report possible losses to the checks ──▶ begin the fault ── wait
//!             ──▶ end the fault (start the server, repair the connection, free the disk)
//! ```
//! **Invariant: a fault reports possible losses to the checks before they can happen** ([`Told`]; tests:
//! `a_failing_sync_is_told_when_it_fails_and_again_with_the_servers_end`, `some_seeds_are_stood`). Without a
//! report the checks would take a permitted loss for a broken promise. A report of more losses than are
//! possible would hide broken promises.

use super::{Fault, Faults, Operators};
use crate::cluster::{Cluster, Server};
use crate::rng::Rng;
use shoal_env::Instant;
use shoal_env::crash_point::{self, CrashPoint};
use shoal_env::sim::{Config, Link, MachineId, World};
use shoal_proto::Switches;
use shoal_store::SyncModes;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

/// Seconds that servers' clocks may be apart for good.
const CLOCKS_APART_S_MAX: i64 = 600;

/// The time of a message from server to server, about.
const ONE_WAY: Duration = Duration::from_micros(25);

/// A server is silent for more than a client's time limit (30 s), by so much more at most, and for less than
/// a lease.
const SILENCE: (Duration, Duration) = (Duration::from_secs(31), Duration::from_secs(12));

/// The events that the checks must know, reported before they are done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Told {
    /// This server loses its memory.
    Kill(u16),
    /// This server's machine loses its memory and unsynced changes.
    PowerCut(u16),
    /// The disk of this server loses the changes that it is asked to sync, or the server its writes since
    /// then.
    SyncFails(u16),
    /// A disk may say that it is full.
    DiskFull,
    /// This server does not run for so long.
    Pause(u16, Duration),
}

/// Starts the next life of a client.
type Restart = Rc<dyn Fn(&World, u16)>;

/// The facts that the faults of a run need.
pub(crate) struct Plan<'a> {
    pub cluster: &'a Cluster,
    pub hardware: &'a Config,
    pub clients: u16,
    /// Which techniques the file system uses.
    pub switches: Switches,
    /// Faults begin within this span from now.
    pub span: Duration,
    /// Starts a client's next life.
    pub restart_client: Restart,
    /// The file system's sync modes at a moment.
    pub modes: Rc<dyn Fn() -> SyncModes>,
    /// Faults that are stories of their own.
    pub operators: Rc<Operators>,
    /// Called before something is done that the checks must know of.
    pub tell: Rc<dyn Fn(Told)>,
}

/// One fault, drawn.
pub(super) struct Draw<'a> {
    pub(super) plan: &'a Plan<'a>,
    pub(super) at: Instant,
    pub(super) lasts: Duration,
    pub(super) server: u16,
    other: MachineId,
    other_words: String,
    pub(super) rng: Rng,
}

impl Plan<'_> {
    /// Plan all; returns the description of each, in order of time.
    pub fn all(&self, seed: u64, faults: &Faults) -> Vec<String> {
        let mut rng = Rng::new(seed, 1);
        let mut planned = Vec::new();
        for (fault, count) in faults.iter() {
            for _ in 0..count {
                let draw = self.draw(&mut rng);
                planned.push((draw.at, draw.plan(fault)));
            }
        }
        planned.sort();
        planned.into_iter().map(|(at, words)| format!("{:>12} ns: {words}", at.0)).collect()
    }

    fn draw(&self, rng: &mut Rng) -> Draw<'_> {
        let world = &self.cluster.world;
        let at = world.now() + Duration::from_micros(20_000 + rng.below(self.span.as_micros() as u64));
        let lasts = Duration::from_millis(50 + rng.below(2_000));
        let server = rng.below(u64::from(self.cluster.server_count())) as u16;
        // Another machine: a client's, or another server's if there is one.
        let servers = u64::from(self.cluster.server_count());
        let (other, other_words) = if servers > 1 && rng.below(3) == 0 {
            let id = (u64::from(server) + 1 + rng.below(servers - 1)) % servers;
            (self.cluster.server(id as u16).machine, format!("server {id}"))
        } else {
            let id = rng.below(u64::from(self.clients)) as u16;
            (self.cluster.client_machine(id), format!("client {id}"))
        };
        Draw { plan: self, at, lasts, server, other, other_words, rng: Rng::new(rng.next_u64(), 0) }
    }
}

/// Stop a server with its process, or with its machine's power. One whose disk failed a sync since it was
/// started loses with its memory also later writes: only its stop reports the moment of its end.
pub(super) fn stop(world: &World, target: &Server, power: bool, tell: &dyn Fn(Told)) {
    target.keep_stopped();
    let has_failed = world.take_failed_syncs(target.machine) > 0;
    if power {
        tell(Told::PowerCut(target.id()));
        if target.holds() != target.id() {
            tell(Told::PowerCut(target.holds()));
        }
        return world.power_cut(target.machine);
    }
    if has_failed {
        tell(Told::SyncFails(target.id()));
    }
    tell(Told::Kill(target.id()));
    world.crash(target.process);
}

fn exchange_folders(world: &World, both: &[Server; 2], tell: &dyn Fn(Told)) {
    both.iter().for_each(|server| stop(world, server, false, tell));
    both[0].exchange_folders(&both[1], world);
    both.iter().for_each(|server| server.start(world));
}

/// Two faults may fall together: the first restart counts.
pub(super) fn restarts(target: Server) -> impl FnOnce(&World) + 'static {
    move |world| {
        if !world.is_alive(target.process) {
            target.start(world);
        }
    }
}

impl Draw<'_> {
    pub(super) fn target(&self) -> Server {
        self.plan.cluster.server(self.server).clone()
    }

    /// Do something at the fault's moment, and log it in the timeline.
    pub(super) fn begin(&self, words: &str, then: impl FnOnce(&World) + 'static) {
        let words = format!("fault: {words}");
        self.plan.cluster.world.at(self.at, move |world| {
            world.log(words);
            then(world);
        });
    }

    fn end(&self, then: impl FnOnce(&World) + 'static) {
        self.plan.cluster.world.at(self.at + self.lasts, then);
    }

    fn restart(&self) {
        self.end(restarts(self.target()));
    }

    fn plan(mut self, fault: Fault) -> String {
        match fault {
            Fault::Crash => self.crash(),
            Fault::PowerCut => self.power_cut(),
            Fault::Pause => self.pause(),
            Fault::Partition => self.partition(),
            Fault::Reset => self.reset(),
            Fault::HalfOpen => self.half_open(),
            Fault::Slow => self.slow(),
            Fault::FullDisk => self.full_disk(),
            Fault::FailingSync => self.failing_sync(),
            Fault::ClockJump => self.clock_jump(),
            Fault::StopAt => self.stop_at(),
            Fault::ClientCrash => self.client_crash(),
            Fault::LostFolder => self.lost_folder(),
            Fault::SwappedFolders => self.swapped_folders(),
            Fault::Silence => self.silence(),
            Fault::OlderCopy => self.older_copy(),
            Fault::AddServer => self.add_server(),
        }
    }

    fn crash(&self) -> String {
        let (target, tell) = (self.target(), self.plan.tell.clone());
        let words = format!("server {} is killed for {:?}", self.server, self.lasts);
        self.begin(&words, move |world| {
            stop(world, &target, false, &*tell);
        });
        self.restart();
        words
    }

    fn power_cut(&self) -> String {
        let (target, tell) = (self.target(), self.plan.tell.clone());
        let words = format!("server {} loses its power for {:?}", self.server, self.lasts);
        self.begin(&words, move |world| {
            stop(world, &target, true, &*tell);
        });
        self.restart();
        words
    }

    fn pause(&self) -> String {
        let (process, server, lasts) = (self.target().process, self.server, self.lasts);
        let (words, tell) = (format!("server {server} is paused for {lasts:?}"), self.plan.tell.clone());
        self.begin(&words, move |world| {
            if world.is_alive(process) {
                tell(Told::Pause(server, lasts));
                world.pause(process, lasts);
            }
        });
        words
    }

    fn silence(&mut self) -> String {
        self.lasts = SILENCE.0 + Duration::from_millis(self.rng.below(SILENCE.1.as_millis() as u64));
        self.pause()
    }

    fn partition(&self) -> String {
        let (machine, other) = (self.target().machine, self.other);
        let (server, whom) = (self.server, &self.other_words);
        let words = format!("server {server} and {whom} do not reach each other for {:?}", self.lasts);
        self.begin(&words, move |world| world.partition(machine, other, true));
        self.end(move |world| world.partition(machine, other, false));
        words
    }

    fn reset(&self) -> String {
        let (machine, other) = (self.target().machine, self.other);
        let words = format!("the connections between server {} and {} break", self.server, self.other_words);
        self.begin(&words, move |world| world.reset(machine, other));
        words
    }

    fn half_open(&mut self) -> String {
        let (mut near, mut far) = (self.target().machine, self.other);
        let mut who = [format!("server {}", self.server), self.other_words.clone()];
        if self.rng.below(2) == 0 {
            std::mem::swap(&mut near, &mut far);
            who.reverse();
        }
        let (lasts, until) = (self.lasts, self.at + self.lasts);
        let words =
            format!("{} forgets its connections to {}, which learns it {lasts:?} later", who[0], who[1]);
        self.begin(&words, move |world| world.half_open(near, far, until));
        words
    }

    /// All links of the server's machine.
    fn slow(&mut self) -> String {
        let usual = self.plan.hardware.network;
        let link = Link {
            latency_ns: usual.latency_ns + self.rng.below(20_000_000),
            jitter_ns: self.rng.below(50_000_000),
            loss_ppm: self.rng.below(50_000) as u32,
            retransmit_ns: 200_000_000,
            reset_ppm: self.rng.below(5_000) as u32,
            ..usual
        };
        let words = format!(
            "server {} is {}–{} ms away for {:?}, {} of a million segments are lost, {} break a connection",
            self.server,
            link.latency_ns / 1_000_000,
            (link.latency_ns + link.jitter_ns) / 1_000_000,
            self.lasts,
            link.loss_ppm,
            link.reset_ppm
        );
        let (machine, others) = (self.target().machine, self.plan.cluster.machines());
        let set = move |world: &World, link: Link| {
            others.iter().filter(|other| **other != machine).for_each(|o| world.set_link(machine, *o, link));
        };
        let unset = set.clone();
        self.begin(&words, move |world| set(world, link));
        self.end(move |world| unset(world, usual));
        words
    }

    fn full_disk(&mut self) -> String {
        let machine = self.target().machine;
        let (usual, left) = (self.plan.hardware.machine.disk, self.rng.below(1 << 20));
        let words = format!("server {} has {left} bytes of disk left for {:?}", self.server, self.lasts);
        let tell = self.plan.tell.clone();
        self.begin(&words, move |world| {
            tell(Told::DiskFull);
            let (total, available) = world.disk_space(machine);
            let mut disk = usual;
            disk.capacity = total.min(total - available + left);
            world.set_disk(machine, disk);
        });
        self.end(move |world| world.set_disk(machine, usual));
        words
    }

    /// Once, or for good; then the server's supervisor starts it again, with a healthy disk.
    fn failing_sync(&mut self) -> String {
        let (target, lasts) = (self.target(), self.lasts);
        let count = [1, 1, u64::MAX][self.rng.below(3) as usize];
        let how = if count == 1 { "one sync fails" } else { "every sync fails" };
        let words = format!("{how} at server {}; it is started again {lasts:?} later", self.server);
        let tell = self.plan.tell.clone();
        self.begin(&words, move |world| {
            // The changes that it covered may be lost when it fails, and that may be much later.
            let id = target.id();
            world.on_failed_sync(target.machine, move || tell(Told::SyncFails(id)));
            world.fail_syncs(target.machine, count);
        });
        let (target, tell) = (self.target(), self.plan.tell.clone());
        self.end(move |world| {
            world.fail_syncs(target.machine, 0);
            stop(world, &target, false, &*tell);
            target.start(world);
        });
        words
    }

    /// Killed or without power, at the moment of a step or a little later.
    fn stop_at(&mut self) -> String {
        let steps: Vec<CrashPoint> = crash_point::ALL.iter().copied().filter(|point| !point.last).collect();
        let Some(&picked) = self.rng.pick(&steps) else { return String::new() };
        // Only clients that work step by step leave something unfinished, and seldom.
        let is_stepwise = !self.plan.switches.compound && self.rng.below(4) == 0;
        let step = if is_stepwise { crash_point::UNFINISHED_ASKED } else { picked };
        let power = self.rng.below(2) == 0;
        let passes = [0, 0, 1, 4][self.rng.below(4) as usize];
        let delay = Duration::from_micros(self.rng.below(2) * self.rng.below(200));
        let how = if power { "loses its power" } else { "is killed" };
        let words_of = |id: u16| format!("server {id} {how} when its {} {}", step.activity, step.step);
        let words = words_of(self.server);
        let (lasts, is_sprung) = (self.lasts, Rc::new(Cell::new(false)));
        let spring = |target: Server| {
            let (sprung, is_sprung) = (words_of(target.id()), is_sprung.clone());
            let (tell, all) = (self.plan.tell.clone(), self.plan.cluster.servers());
            move |world: &World| {
                // A server that may refuse an older copy is there as long as there is one.
                let refuses = all.iter().any(|other| other.is_older() && other.id() != target.id());
                if refuses || !world.is_alive(target.process) || is_sprung.replace(true) {
                    return;
                }
                world.log(format!("fault: {sprung}"));
                stop(world, &target, power, &*tell);
                world.at(world.now() + lasts, restarts(target));
            }
        };
        // Some steps are come to only where another stop was before.
        let (before, delay_before) = match step {
            crash_point::COORDINATOR_FOUND => {
                (Some((self.target(), crash_point::COORDINATOR_DECIDED)), Duration::ZERO)
            }
            crash_point::PARTICIPANT_FOUND => {
                (Some((self.target(), crash_point::PARTICIPANT_PREPARED)), Duration::ZERO)
            }
            crash_point::PARTICIPANT_IN_DOUBT => {
                let id = (self.server + 1) % self.plan.cluster.server_count();
                (Some((self.plan.cluster.server(id).clone(), crash_point::COORDINATOR_ASKS)), 2 * ONE_WAY)
            }
            _ if step.activity == "start" => {
                (Some((self.target(), crash_point::JOURNAL_WRITES)), Duration::ZERO)
            }
            _ => (None, Duration::ZERO),
        };
        // A directory splits once, when it has its first entries. Little is unfinished, so any server that
        // has some is stopped.
        let is_rare = ["split", "unfinished"].contains(&step.activity);
        let at = if is_rare { Instant(self.at.0 / 8) } else { self.at };
        let passes = if is_rare || before.is_some() { 0 } else { passes };
        let targets = match step.activity {
            "unfinished" => (0..self.plan.cluster.server_count()).collect(),
            _ => vec![self.server],
        };
        let targets = targets.into_iter().map(|id| self.plan.cluster.server(id).clone());
        let traps: Vec<_> = targets.map(|target| (target.process, spring(target))).collect();
        let tell = self.plan.tell.clone();
        self.plan.cluster.world.at(at, move |world| {
            for (process, spring) in traps {
                world.trap(process, step, passes, delay, spring);
            }
            let Some((first, at)) = before else { return };
            world.trap(first.process, at, 0, delay_before, move |world| {
                world.log(format!(
                    "fault: {} is killed at {}: {}",
                    world.name(first.process),
                    at.activity,
                    at.step
                ));
                stop(world, &first, false, &*tell);
                world.at(world.now() + lasts, restarts(first));
            });
        });
        words
    }

    fn client_crash(&mut self) -> String {
        let id = self.rng.below(u64::from(self.plan.clients)) as u16;
        let (process, lasts) = (self.plan.cluster.client_process(id), self.lasts);
        let words = format!("client {id} is killed, and starts again {lasts:?} later");
        let restart = self.plan.restart_client.clone();
        self.begin(&words, move |world| {
            // A client that has done all its work is none any more.
            if world.is_alive(process) {
                world.crash(process);
                world.at(world.now() + lasts, move |world| restart(world, id));
            }
        });
        words
    }

    /// An empty folder is where the disk was: the server must not serve from it.
    fn lost_folder(&self) -> String {
        let (target, tell, lasts) = (self.target(), self.plan.tell.clone(), self.lasts);
        let words = format!("server {} is killed, and starts without its disk for {lasts:?}", self.server);
        self.begin(&words, move |world| {
            stop(world, &target, false, &*tell);
            target.unmount();
            target.start(world);
        });
        let (target, tell) = (self.target(), self.plan.tell.clone());
        self.end(move |world| {
            target.mount();
            if world.is_alive(target.process) {
                stop(world, &target, false, &*tell);
            }
            target.start(world);
        });
        words
    }

    /// Each of the two servers must see that the folder is another's, and leave it as it is.
    fn swapped_folders(&mut self) -> String {
        let servers = u64::from(self.plan.cluster.server_count());
        if servers < 2 {
            return String::new();
        }
        let id = (u64::from(self.server) + 1 + self.rng.below(servers - 1)) % servers;
        let both = [self.target(), self.plan.cluster.server(id as u16).clone()];
        let (tell, lasts) = (self.plan.tell.clone(), self.lasts);
        let words = format!(
            "servers {} and {id} are killed, and start with each other's folder for {lasts:?}",
            self.server
        );
        self.begin(&words, move |world| {
            if both.iter().any(|server| server.holds() != server.id()) {
                return;
            }
            exchange_folders(world, &both, &*tell);
            world.at(world.now() + lasts, move |world| exchange_folders(world, &both, &*tell));
        });
        words
    }

    fn clock_jump(&mut self) -> String {
        let (mut machine, mut who) = (self.target().machine, format!("server {}", self.server));
        if self.rng.below(3) == 0 {
            (machine, who) = (self.other, self.other_words.clone());
        }
        let seconds = [1, 40, 600, 86_400][self.rng.below(4) as usize];
        let back = self.rng.below(2) == 0;
        let ns = if back { -seconds } else { seconds } * 1_000_000_000;
        let way = if back { "back" } else { "forward" };
        let mut words = format!("the wall clock of {who} jumps {seconds} s {way}");
        // Servers whose clocks are apart for good reject each other's capabilities: the clocks are set right.
        if seconds > CLOCKS_APART_S_MAX {
            words.push_str(&format!(" for {:?}", self.lasts));
            self.end(move |world| world.jump_wall(machine, -ns));
        }
        self.begin(&words, move |world| world.jump_wall(machine, ns));
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::ClusterConfig;
    use shoal_client::Client;
    use shoal_proto::{Handle, Name, Owner};
    use std::cell::RefCell;

    /// The reports of one failing sync, with the moments, and when the fault began; with or without a client
    /// at work.
    fn told_of_a_failing_sync(works: bool) -> (u64, Vec<(u64, Told)>) {
        let config = ClusterConfig { servers: 1, clients: 1, ..ClusterConfig::default() };
        let cluster = Cluster::new(1, &config);
        let world = &cluster.world;
        assert!(world.run_until_true(world.now() + Duration::from_secs(10), || cluster.is_ready()));
        world.run_for(Duration::from_secs(5));
        let told = Rc::new(RefCell::new(Vec::new()));
        let (tell, clock) = (told.clone(), world.for_plans());
        let plan = Plan {
            cluster: &cluster,
            hardware: &config.world,
            clients: 1,
            switches: Switches::OURS,
            span: Duration::from_millis(1),
            restart_client: Rc::new(|_, _| ()),
            modes: Rc::new(SyncModes::default),
            operators: Rc::default(),
            tell: Rc::new(move |what| tell.borrow_mut().push((clock.now().0, what))),
        };
        let words = plan.all(4, &Faults::of(&[(Fault::FailingSync, 1)])).remove(0);
        let began: u64 = words.trim().split(' ').next().unwrap().parse().unwrap();
        if works {
            world.run_until_true(Instant(began + 1_000_000), || false);
            let options = cluster.options();
            let made = cluster.complete_client(0, |env| async move {
                let client = Client::connect(env, options).await?;
                let owner = Owner { mode: 0o644, uid: 0, gid: 0 };
                client.mkdir(Handle::ROOT, &Name::new(b"made").unwrap(), owner).await
            });
            assert!(made.is_err() || told.borrow().len() >= 3, "the sync fails: {made:?}");
        }
        world.run_for(Duration::from_secs(5));
        (began, told.take())
    }

    #[test]
    fn a_failing_sync_is_told_when_it_fails_and_again_with_the_servers_end() {
        let (began, told) = told_of_a_failing_sync(true);
        let [fails @ .., (lost_at, Told::SyncFails(0)), (killed_at, Told::Kill(0))] = &told[..] else {
            panic!("{told:?}");
        };
        let first =
            fails.first().filter(|(at, what)| *what == Told::SyncFails(0) && began < *at && at < killed_at);
        assert!(first.is_some(), "{began}: {told:?}");
        assert_eq!(lost_at, killed_at, "what was written behind it is lost with the server's memory");
        // A sync that was not requested has lost nothing.
        let (_, told) = told_of_a_failing_sync(false);
        assert!(matches!(told[..], [(_, Told::Kill(0))]), "{told:?}");
    }
}
