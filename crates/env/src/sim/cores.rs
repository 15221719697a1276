//! Simulated cores: they decide when a process runs and when it waits for a core. A *turn* is one poll of a
//! task of a process.
//!
//! A machine with `cores` of 0 has one core for each process, and a turn's effects leave at its beginning:
//! this is the default, for tests of correctness. With any other number processes take turns on the cores, as
//! threads do:
//!
//! ```text
//!   ready ──▶ waiting for a core ──▶ on a core: turn, turn, … ──▶ nothing ready: asleep
//!                  ▲                        │ its slice is over, and another process waits
//!                  └────────────────────────┘
//! ```
//! * A core serves one process at a time, in order of arrival. A process that has slept begins `wake_ns`
//!   later (processor time of the switch), and a further `idle_ns` later if the core was idle (the core must
//!   wake).
//! * **The effects of a turn leave when its cost so far is spent**: a message is sent at the process's own
//!   moment ([`Core::moment`]), not at the beginning of the turn. So a client that waits for a reply waits
//!   for processor time too.
//! * A *job* is work that another thread does for the process (a file call, or an offloaded closure): it
//!   needs a core too.

use super::core::{Core, Event};
use crate::Work;
use std::collections::VecDeque;
use std::rc::Rc;

/// The end of a job.
pub(super) type Then = Box<dyn FnOnce(&Rc<Core>)>;

/// A user of a core.
pub(super) enum Runner {
    /// A process, until nothing of it is ready.
    Process(usize),
    /// A call of so much processor time.
    Job(u64, Then),
}

/// The cores of a machine.
pub(super) struct Cores {
    free: u32,
    /// When one was free last.
    freed_at: u64,
    waiting: VecDeque<Runner>,
}

impl Cores {
    pub(super) fn new(cores: u32) -> Cores {
        Cores { free: cores, freed_at: u64::MAX, waiting: VecDeque::new() }
    }
}

impl Core {
    /// Whether the process shares its machine's cores.
    pub(super) fn shares_cores(&self, process: usize) -> bool {
        self.processes.borrow()[process].shares_cores
    }

    /// The process's own moment: now, and what its turn has cost so far.
    pub(super) fn moment(&self, process: usize) -> u64 {
        let state = &self.processes.borrow()[process];
        if state.shares_cores { self.now().max(state.busy_until) } else { self.now() }
    }

    /// Charge processor time to a process that shares cores.
    pub(super) fn charge(&self, process: usize, ns: u64) {
        let mut processes = self.processes.borrow_mut();
        let state = &mut processes[process];
        if state.shares_cores {
            state.busy_until = state.busy_until.max(self.now()) + ns;
        }
    }

    /// Charge work that code reported.
    pub(super) fn charge_work(&self, process: usize, work: Work, count: u64) {
        let each_ns = self.processes.borrow()[process].cpu.work_ns[work as usize];
        self.charge(process, each_ns.saturating_mul(count));
    }

    /// The runner has work: it takes a core, or waits for one.
    pub(super) fn want_core(&self, machine: usize, runner: Runner) {
        let mut machines = self.machines.borrow_mut();
        let cores = &mut machines[machine].cores;
        if cores.free == 0 {
            return cores.waiting.push_back(runner);
        }
        cores.free -= 1;
        // A core that was free for no time at all has not gone to sleep.
        let is_awake = cores.freed_at == self.now();
        let idle_ns = if is_awake { 0 } else { machines[machine].config.idle_ns };
        drop(machines);
        self.give_core(machine, runner, idle_ns);
    }

    /// It has a core now, and runs in `after_ns`.
    fn give_core(&self, machine: usize, runner: Runner, after_ns: u64) {
        let now = self.now();
        match runner {
            Runner::Process(process) => {
                let mut processes = self.processes.borrow_mut();
                let state = &mut processes[process];
                if state.on_core {
                    // A previous incarnation had asked for it, too.
                    drop(processes);
                    return self.release_core(machine);
                }
                state.on_core = true;
                state.slice_began = now;
                // Charges made while it had no core (a socket that was closed) come first.
                let wake_ns = state.cpu.wake_ns;
                state.busy_until = state.busy_until.max(now + after_ns) + wake_ns;
                let at = state.busy_until;
                drop(processes);
                self.schedule(at, Event::Run(process));
            }
            Runner::Job(span_ns, then) => {
                let end = move |core: &Rc<Core>| {
                    core.release_core(machine);
                    then(core);
                };
                self.schedule(now + after_ns + span_ns, Event::Call(Box::new(end)));
            }
        }
    }

    /// A core is free: the runner that has waited longest gets it.
    fn release_core(&self, machine: usize) {
        let next = {
            let cores = &mut self.machines.borrow_mut()[machine].cores;
            let next = cores.waiting.pop_front();
            if next.is_none() {
                cores.free += 1;
                cores.freed_at = self.now();
            }
            next
        };
        if let Some(next) = next {
            self.give_core(machine, next, 0);
        }
    }

    /// The scheduled turn of a process on a core.
    pub(super) fn turn_on_core(self: &Rc<Core>, process: usize) {
        let now = self.now();
        let (machine, is_ready, until, began) = {
            let state = &self.processes.borrow()[process];
            let until = state.busy_until.max(state.paused_until);
            (state.machine, !state.ready.is_empty(), until, state.slice_began)
        };
        if until > now {
            return self.schedule(until, Event::Run(process));
        }
        if !is_ready {
            self.leave_core(process);
            let sleeps_ns = self.processes.borrow()[process].cpu.sleep_ns;
            if sleeps_ns == 0 {
                return self.release_core(machine);
            }
            // Only a task that wakes it meanwhile waits for that, and the next one on its core.
            self.charge(process, sleeps_ns);
            let asleep = move |core: &Rc<Core>| core.release_core(machine);
            return self.schedule(now + sleeps_ns, Event::Call(Box::new(asleep)));
        }
        let (slice_ns, others_wait) = {
            let machine = &self.machines.borrow()[machine];
            (machine.config.slice_ns, !machine.cores.waiting.is_empty())
        };
        if others_wait && now - began >= slice_ns {
            self.leave_core(process);
            self.processes.borrow_mut()[process].queued = true;
            self.machines.borrow_mut()[machine].cores.waiting.push_back(Runner::Process(process));
            return self.release_core(machine);
        }
        self.run_next(process);
        let at = self.moment(process);
        self.schedule(at, Event::Run(process));
    }

    fn leave_core(&self, process: usize) {
        let mut processes = self.processes.borrow_mut();
        let state = &mut processes[process];
        state.on_core = false;
        state.queued = false;
    }

    /// Another thread of the process's machine computes for so long, from `at` on; then `then`.
    pub(super) fn job(&self, machine: usize, at: u64, span_ns: u64, then: Then) {
        let begin = move |core: &Rc<Core>| core.want_core(machine, Runner::Job(span_ns, then));
        self.schedule(at, Event::Call(Box::new(begin)));
    }
}
