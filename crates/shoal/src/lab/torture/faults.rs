//! Rounds: a load, faults at random moments, then the [check](super::check).
//!
//! In every round servers are killed with SIGKILL: one server, one server twice (the second time while it
//! recovers), or all servers. A second fault may be under way at the kill: a stopped server, a full disk, the
//! death of a mount or a client, or a server that is asked to stop. The second fault begins before the kill.
//! It ends after the killed servers were started and before they are ready. There is one exception: a mount
//! that died while all servers were killed is mounted again when they are ready.

use super::check::Check;
use super::crew::Hand;
use super::disk::Disk;
use super::gang::Gang;
use super::hand::{Act, Said};
use super::ledger::Ledger;
use super::load::{self, Draws};
use super::report::{Report, Violation};
use super::site::Site;
use anyhow::{Result, bail};
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

/// How often a wait checks whether to end.
const GLANCE: Duration = Duration::from_millis(50);
/// After so many violations it is enough.
const VIOLATIONS_MAX: usize = 100;

/// How servers are killed.
#[derive(Clone, Copy, Debug)]
enum Kill {
    One,
    Twice,
    All,
}

/// The concurrent event.
#[derive(Clone, Copy, Debug)]
enum Beside {
    Nothing,
    Stopped(usize),
    Full,
    DeadMount(usize),
    DeadClient(usize),
    Asked(usize),
}

/// The rounds.
pub struct Rounds<'a> {
    /// The file system.
    pub site: &'a mut Site,
    /// Its small disk, of the last server.
    pub disk: Option<&'a Disk>,
    /// How many rounds.
    pub rounds: usize,
    /// How long the load runs in each.
    pub span: Duration,
    /// How long an operation may take.
    pub patience: Duration,
    /// Clients on each way.
    pub clients: usize,
    /// Draws all.
    pub seed: u64,
}

impl Rounds<'_> {
    /// Do them. `ledgers`: the folder for the ledgers.
    pub fn run(
        &mut self,
        ledgers: &Path,
        report: &mut Report,
        end: &dyn Fn() -> Result<()>,
        tell: &dyn Fn(&str),
    ) -> Result<()> {
        let ways = self.site.ways();
        let names: Vec<String> = (0..self.clients * ways.len()).map(|client| format!("w{client}")).collect();
        self.prepare(&names)?;
        let books = names.iter().map(|name| Ledger::new(ledgers, name)).collect::<Result<Vec<_>>>()?;
        let gang = Gang::new(&ways, self.clients, books, self.seed, self.patience)?;
        let mut draws = Draws::new(self.seed);
        for round in 1..=self.rounds {
            end()?;
            let before = gang.counts().0;
            let words = self.round(&gang, round, &mut draws, report, end);
            report.rounds = round;
            (report.acknowledged, report.refused, report.in_doubt) = gang.counts();
            report.longest_wait_seconds = gang.longest().as_secs_f64();
            report.violations.extend(gang.violations());
            let words = words?;
            gang.rest()?;
            let check = Check { site: self.site, gang: &gang, round, patience: self.patience };
            let (looked_at, wrong) = check.run()?;
            report.looked_at += looked_at;
            report.violations.extend(wrong);
            let ended = self.site.ended().into_iter();
            report
                .violations
                .extend(ended.map(|words| violation(round, format!("it ended by itself: {words}"))));
            tell(&format!(
                "round {round} of {}: {words}; {} acknowledged, {looked_at} looked at, {} wrong so far",
                self.rounds,
                gang.counts().0 - before,
                report.violations.len(),
            ));
            if report.violations.len() >= VIOLATIONS_MAX {
                bail!("so much is wrong that the torture ends here");
            }
        }
        Ok(())
    }

    /// The directories of the load.
    fn prepare(&self, names: &[String]) -> Result<()> {
        let mut hand = Hand::start(&self.site.native())?;
        hand.ready()?;
        let own = names.iter().map(|name| load::own(name));
        let all = [load::ROOT.to_owned()].into_iter().chain((0..load::SHARED).map(load::shared)).chain(own);
        for path in all {
            match hand.ask(&Act::Mkdir { path }, self.patience) {
                Ok((Said::Made(_), _)) => {}
                other => bail!("cannot begin: {:?}", other.map(|(said, _)| said)),
            }
        }
        Ok(())
    }

    /// Load and faults; returns the events, in words.
    fn round(
        &mut self,
        gang: &Gang,
        round: usize,
        draws: &mut Draws,
        report: &mut Report,
        end: &dyn Fn() -> Result<()>,
    ) -> Result<String> {
        let kill = [Kill::One, Kill::One, Kill::Twice, Kill::All][draws.below(4)];
        let victims: BTreeSet<usize> = match kill {
            Kill::All => (0..self.site.servers()).collect(),
            Kill::One | Kill::Twice => [draws.below(self.site.servers())].into(),
        };
        let beside = self.beside(gang, round, draws);
        // The moments lie anywhere in the span, and the second kill anywhere in a start.
        let mut moment = |most: Duration| most.mul_f64(draws.below(1000) as f64 / 1000.0);
        let [early, late, down, again] =
            [self.span / 2, self.span / 2, Duration::from_secs(1), Duration::from_millis(400)]
                .map(&mut moment);
        gang.go(round);
        self.pause(early, end)?;
        self.begin(gang, beside, report)?;
        self.pause(late, end)?;
        for server in &victims {
            self.site.kill_server(*server);
            count(report, "servers killed");
        }
        self.pause(down, end)?;
        self.start(&victims)?;
        if let Kill::Twice = kill {
            self.pause(again, end)?;
            for server in &victims {
                self.site.kill_server(*server);
                count(report, "servers killed");
            }
            self.start(&victims)?;
        }
        self.pause(again, end)?;
        // A mount begins with any server that answers; where none does, it refuses.
        let late = matches!((kill, beside), (Kill::All, Beside::DeadMount(_)));
        if !late {
            self.end(gang, beside)?;
        }
        for server in &victims {
            self.ready(*server, beside, report)?;
        }
        if late {
            self.end(gang, beside)?;
        }
        for waits in gang.await_progress() {
            let words = format!(
                "client {waits} had nothing acknowledged for {} s after the restart",
                self.patience.as_secs()
            );
            report.violations.push(violation(round, words));
        }
        Ok(format!("{kill:?} of servers {victims:?} killed, beside it {beside:?}"))
    }

    /// Each kind in turn, if it is possible; its target is drawn.
    fn beside(&self, gang: &Gang, round: usize, draws: &mut Draws) -> Beside {
        let natives = gang.natives();
        match round % 6 {
            1 => Beside::Stopped(draws.below(self.site.servers())),
            2 if self.site.mounts() > 0 => Beside::DeadMount(draws.below(self.site.mounts())),
            3 if self.disk.is_some() => Beside::Full,
            4 if !natives.is_empty() => Beside::DeadClient(natives[draws.below(natives.len())]),
            5 => Beside::Asked(draws.below(self.site.servers())),
            _ => Beside::Nothing,
        }
    }

    fn begin(&mut self, gang: &Gang, beside: Beside, report: &mut Report) -> Result<()> {
        match beside {
            Beside::Nothing => {}
            Beside::Stopped(server) => {
                self.site.signal_server(server, Signal::STOP);
                count(report, "servers stopped for a while (SIGSTOP)");
            }
            Beside::Full => {
                gang.excuse_full();
                if let Some(disk) = self.disk {
                    disk.fill()?;
                }
                count(report, "disks filled");
            }
            Beside::DeadMount(mount) => {
                gang.mount_dies(mount);
                self.site.kill_mount(mount);
                count(report, "mounts killed");
            }
            Beside::DeadClient(client) => {
                gang.kill_client(client);
                count(report, "clients killed");
            }
            Beside::Asked(server) => {
                self.site.stop_server(server)?;
                count(report, "servers asked to stop");
            }
        }
        Ok(())
    }

    fn end(&mut self, gang: &Gang, beside: Beside) -> Result<()> {
        match beside {
            Beside::Nothing | Beside::DeadClient(_) => {}
            Beside::Stopped(server) => self.site.signal_server(server, Signal::CONT),
            Beside::Full => {
                if let Some(disk) = self.disk {
                    disk.free()?;
                }
            }
            Beside::DeadMount(mount) => {
                self.site.start_mount(mount)?;
                gang.mount_lives(mount);
            }
            Beside::Asked(server) => {
                self.site.start_server(server)?;
                self.site.await_server(server)?;
            }
        }
        Ok(())
    }

    fn start(&mut self, servers: &BTreeSet<usize>) -> Result<()> {
        servers.iter().try_for_each(|server| self.site.start_server(*server))
    }

    /// A server may refuse to start on a disk that is full to the last byte; then it starts when there is
    /// room.
    fn ready(&mut self, server: usize, beside: Beside, report: &mut Report) -> Result<()> {
        let ready = self.site.await_server(server);
        if ready.is_ok() || !matches!(beside, Beside::Full) {
            return ready;
        }
        count(report, "starts refused on a full disk");
        self.site.start_server(server)?;
        self.site.await_server(server)
    }

    fn pause(&self, span: Duration, end: &dyn Fn() -> Result<()>) -> Result<()> {
        let begun = Instant::now();
        while begun.elapsed() < span {
            end()?;
            std::thread::sleep(GLANCE.min(span));
        }
        Ok(())
    }
}

fn count(report: &mut Report, fault: &str) {
    *report.faults.entry(fault.to_owned()).or_insert(0) += 1;
}

fn violation(round: usize, words: String) -> Violation {
    Violation { when: format!("round {round}"), words, ledger: None }
}
