//! The clients that make the load. Each is a thread of this process that drives a [hand](super::hand) (a
//! client process) and keeps the ledger of its changes. The clients continue through every fault. A failure
//! that a fault excuses (the death of a client's own mount or process, a full disk) is recorded as in doubt
//! or refused; any other failure is a violation.

use super::crew::{Hand, Trouble};
use super::errno::ENOSPC;
use super::hand::{Act, Said, Spec};
use super::ledger::Ledger;
use super::load::{self, Draws};
use super::report::Violation;
use anyhow::{Result, bail};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Between two looks at a flag.
const GLANCE: Duration = Duration::from_millis(5);
/// After a refusal for lack of space.
const REFUSED_PAUSE: Duration = Duration::from_millis(20);
/// After something wrong.
const WRONG_PAUSE: Duration = Duration::from_secs(1);
/// More that is wrong is not written down.
const VIOLATIONS_MAX: usize = 50;

/// The state that all clients share with their leader.
struct Common {
    /// Odd: rest. It only grows.
    phase: AtomicU64,
    quit: AtomicBool,
    /// A disk is, or was just now, full.
    full: AtomicBool,
    mounts: Vec<MountState>,
    round: AtomicUsize,
    violations: Mutex<Vec<Violation>>,
    patience: Duration,
}

#[derive(Default)]
struct MountState {
    down: AtomicBool,
    deaths: AtomicU64,
}

/// One client.
struct Member {
    spec: Spec,
    /// The mount it uses.
    mount: Option<usize>,
    ledger: Mutex<Ledger>,
    /// The phase in which it came to rest.
    rests_in: AtomicU64,
    /// Its process is to be killed in the middle of an act.
    kill: AtomicBool,
    acknowledged: AtomicU64,
    refused: AtomicU64,
    in_doubt: AtomicU64,
    longest_us: AtomicU64,
}

/// See the module.
pub struct Gang {
    common: Arc<Common>,
    members: Vec<Arc<Member>>,
    threads: Vec<JoinHandle<()>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The state of a panicked thread is still valid.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Gang {
    /// Clients at rest: `each` of them on each way, the mounts being the first ways.
    pub fn new(
        ways: &[Spec],
        each: usize,
        ledgers: Vec<Ledger>,
        seed: u64,
        patience: Duration,
    ) -> Result<Gang> {
        let mounts = ways.iter().filter(|way| matches!(way, Spec::Mount(_))).count();
        let common = Arc::new(Common {
            phase: AtomicU64::new(1),
            quit: AtomicBool::new(false),
            full: AtomicBool::new(false),
            mounts: (0..mounts).map(|_| MountState::default()).collect(),
            round: AtomicUsize::new(0),
            violations: Mutex::default(),
            patience,
        });
        if ledgers.len() != each * ways.len() {
            bail!("{} ledgers for {} clients", ledgers.len(), each * ways.len());
        }
        let member = |(number, ledger): (usize, Ledger)| {
            let way = number % ways.len();
            Arc::new(Member {
                spec: ways[way].clone(),
                mount: (way < mounts).then_some(way),
                ledger: Mutex::new(ledger),
                rests_in: AtomicU64::new(0),
                kill: AtomicBool::new(false),
                acknowledged: AtomicU64::new(0),
                refused: AtomicU64::new(0),
                in_doubt: AtomicU64::new(0),
                longest_us: AtomicU64::new(0),
            })
        };
        let members: Vec<Arc<Member>> = ledgers.into_iter().enumerate().map(member).collect();
        let mut threads = Vec::new();
        for (number, member) in members.iter().enumerate() {
            let (common, member) = (common.clone(), member.clone());
            let draws = Draws::new(seed ^ (number as u64 + 1) << 32);
            let work = move || Worker { common: &common, member: &member, hand: None, draws }.work();
            threads.push(std::thread::Builder::new().name(format!("client-{number}")).spawn(work)?);
        }
        Ok(Gang { common, members, threads })
    }

    /// Work, in a round.
    pub fn go(&self, round: usize) {
        self.common.round.store(round, SeqCst);
        self.common.full.store(false, SeqCst);
        self.common.phase.fetch_add(1, SeqCst);
    }

    /// Finish the acts under way, and rest; a client that does not is a violation.
    pub fn rest(&self) -> Result<()> {
        let phase = self.common.phase.fetch_add(1, SeqCst) + 1;
        let begun = Instant::now();
        while self.members.iter().any(|member| member.rests_in.load(SeqCst) != phase) {
            if begun.elapsed() > 2 * self.common.patience {
                bail!("a client does not come to rest");
            }
            std::thread::sleep(GLANCE);
        }
        Ok(())
    }

    /// Until every client was acknowledged something more; those that were not, after the time they have.
    pub fn await_progress(&self) -> Vec<String> {
        let before: Vec<u64> = self.members.iter().map(|member| member.acknowledged.load(SeqCst)).collect();
        let begun = Instant::now();
        loop {
            let waits = self
                .members
                .iter()
                .zip(&before)
                .filter(|(m, before)| m.acknowledged.load(SeqCst) <= **before);
            let waits: Vec<String> = waits.map(|(member, _)| lock(&member.ledger).name.clone()).collect();
            if waits.is_empty() || begun.elapsed() > self.common.patience {
                return waits;
            }
            std::thread::sleep(GLANCE);
        }
    }

    /// A disk is full; until the end of the round.
    pub fn excuse_full(&self) {
        self.common.full.store(true, SeqCst);
    }

    /// A mount dies now.
    pub fn mount_dies(&self, mount: usize) {
        self.common.mounts[mount].down.store(true, SeqCst);
        self.common.mounts[mount].deaths.fetch_add(1, SeqCst);
    }

    /// It is there again.
    pub fn mount_lives(&self, mount: usize) {
        self.common.mounts[mount].down.store(false, SeqCst);
    }

    /// Kill a client's process in the middle of its next act.
    pub fn kill_client(&self, client: usize) {
        self.members[client].kill.store(true, SeqCst);
    }

    /// The native clients: a killed one leaves no mount that continues its act.
    pub fn natives(&self) -> Vec<usize> {
        (0..self.members.len()).filter(|member| self.members[*member].mount.is_none()).collect()
    }

    /// How many clients there are.
    pub fn clients(&self) -> usize {
        self.members.len()
    }

    /// A client's ledger; for a moment, or while it rests.
    pub fn ledger(&self, client: usize) -> MutexGuard<'_, Ledger> {
        lock(&self.members[client].ledger)
    }

    /// Acknowledged, refused, in doubt.
    pub fn counts(&self) -> (u64, u64, u64) {
        let sum =
            |of: fn(&Member) -> &AtomicU64| self.members.iter().map(|member| of(member).load(SeqCst)).sum();
        (sum(|member| &member.acknowledged), sum(|member| &member.refused), sum(|member| &member.in_doubt))
    }

    /// The longest that an act took.
    pub fn longest(&self) -> Duration {
        let all = self.members.iter().map(|member| member.longest_us.load(SeqCst));
        Duration::from_micros(all.max().unwrap_or(0))
    }

    /// The violations since the last call.
    pub fn violations(&self) -> Vec<Violation> {
        std::mem::take(&mut lock(&self.common.violations))
    }
}

impl Drop for Gang {
    fn drop(&mut self) {
        self.common.quit.store(true, SeqCst);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// One client's thread.
struct Worker<'a> {
    common: &'a Common,
    member: &'a Member,
    hand: Option<Hand>,
    draws: Draws,
}

impl Worker<'_> {
    fn work(mut self) {
        while !self.common.quit.load(SeqCst) {
            let phase = self.common.phase.load(SeqCst);
            if phase % 2 == 1 {
                self.member.rests_in.store(phase, SeqCst);
                std::thread::sleep(GLANCE);
            } else if self.is_down() {
                // The hand has descriptors of a dead mount.
                self.hand = None;
                std::thread::sleep(GLANCE);
            } else if let Err(error) = self.step() {
                self.wrong(format!("{error:#}"), None);
                std::thread::sleep(WRONG_PAUSE);
            }
        }
    }

    fn is_down(&self) -> bool {
        self.member.mount.is_some_and(|mount| self.common.mounts[mount].down.load(SeqCst))
    }

    fn deaths(&self) -> u64 {
        self.member.mount.map_or(0, |mount| self.common.mounts[mount].deaths.load(SeqCst))
    }

    fn step(&mut self) -> Result<()> {
        let deaths = self.deaths();
        let mut hand = match self.hand.take() {
            Some(hand) => hand,
            None => {
                let mut hand = Hand::start(&self.member.spec)?;
                hand.ready()?;
                hand
            }
        };
        let (entry, act) = {
            let mut ledger = lock(&self.member.ledger);
            let act = load::draw(&mut self.draws, &ledger);
            (ledger.intend(&act)?, act)
        };
        let killed = || self.member.kill.swap(false, SeqCst);
        let begun = Instant::now();
        let heard = hand.tell(&act).and_then(|()| hand.hear(self.common.patience, killed));
        let took = begun.elapsed();
        self.member.longest_us.fetch_max(took.as_micros() as u64, SeqCst);
        // Checked after the answer: an earlier death is known then.
        let excused = self.deaths() != deaths || self.is_down();
        let full = self.common.full.load(SeqCst);
        let mut ledger = lock(&self.member.ledger);
        let (words, wrong) = match heard {
            Ok((Said::Refused { errno: ENOSPC, words }, _)) if full => {
                ledger.refused(entry, &act, &words)?;
                drop(ledger);
                self.hand = Some(hand);
                self.member.refused.fetch_add(1, SeqCst);
                std::thread::sleep(REFUSED_PAUSE);
                return Ok(());
            }
            Ok((Said::Refused { errno, words }, _)) => {
                if !excused {
                    self.hand = Some(hand);
                }
                (format!("{words} ({errno})"), !excused)
            }
            Ok((said, bytes)) => {
                let made = if let Said::Made(ino) = said { Some(ino) } else { None };
                ledger.done(entry, &act, made)?;
                let wrong = match (&act, &said) {
                    (Act::Read { path }, Said::Bytes { seen, .. }) => ledger.judge_file(path, seen, &bytes),
                    _ => None,
                };
                let wrong = wrong
                    .map(|wrong| (format!("read under load: {}", wrong.words), ledger.place(wrong.entry)));
                drop(ledger);
                self.hand = Some(hand);
                self.member.acknowledged.fetch_add(1, SeqCst);
                if let Some((words, place)) = wrong {
                    self.wrong(words, Some(place));
                }
                return Ok(());
            }
            // Killed on purpose, or with its mount.
            Err(Trouble::Gone) => ("its process is gone".to_owned(), false),
            Err(Trouble::Silent(waited)) => (format!("no answer after {:.1} s", waited.as_secs_f64()), true),
        };
        ledger.in_doubt(entry, &act, &words)?;
        let place = ledger.place(entry);
        drop(ledger);
        self.member.in_doubt.fetch_add(1, SeqCst);
        if wrong {
            self.wrong(format!("{act:?} failed after {:.1} s: {words}", took.as_secs_f64()), Some(place));
            std::thread::sleep(WRONG_PAUSE);
        }
        Ok(())
    }

    fn wrong(&self, words: String, ledger: Option<String>) {
        let when = format!("round {}", self.common.round.load(SeqCst));
        let mut violations = lock(&self.common.violations);
        if violations.len() < VIOLATIONS_MAX {
            violations.push(Violation { when, words, ledger });
        }
    }
}
