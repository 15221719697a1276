//! Machines and processes: their start, their stop, and their crash.

use super::config::{self, Cpu};
use super::core::{Core, TaskKey};
use super::cores::Cores;
use super::disk::DiskState;
use super::host::Tree;
use super::rng::Rng;
use super::trace::Kind;
use crate::Counters;
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

/// A machine: one disk, one wall clock, one network card.
pub(super) struct Machine {
    pub(super) name: String,
    pub(super) config: config::Machine,
    pub(super) disk: DiskState,
    /// Users' files.
    pub(super) host: Arc<Mutex<Tree>>,
    pub(super) cores: Cores,
    pub(super) boot_id: [u8; 16],
    /// How far its wall clock is from the true one, in nanoseconds.
    pub(super) wall_offset_ns: i64,
    rng: Rng,
}

impl Machine {
    pub(super) fn new(name: &str, config: config::Machine, mut rng: Rng) -> Machine {
        let disk = DiskState::new(config.disk, Rng::new(rng.next(), 3));
        let mut machine = Machine {
            name: name.to_owned(),
            config,
            disk,
            host: Arc::default(),
            cores: Cores::new(config.cores),
            boot_id: [0; 16],
            wall_offset_ns: 0,
            rng,
        };
        machine.rng.fill(&mut machine.boot_id);
        machine
    }
}

/// A process. After a crash and a start it is its next incarnation.
pub(super) struct Process {
    pub(super) name: String,
    pub(super) machine: usize,
    pub(super) cpu: Cpu,
    pub(super) incarnation: u64,
    pub(super) alive: bool,
    pub(super) tasks: BTreeSet<TaskKey>,
    pub(super) roots: usize,
    pub(super) ready: VecDeque<TaskKey>,
    /// It is among the runnable, or an event will put it there.
    pub(super) queued: bool,
    pub(super) busy_until: u64,
    pub(super) paused_until: u64,
    /// It takes turns with the other processes of its machine (see `cores`).
    pub(super) shares_cores: bool,
    /// It has a core, and its turn is scheduled.
    pub(super) on_core: bool,
    /// Start of its slice.
    pub(super) slice_began: u64,
    pub(super) counters: Arc<Counters>,
    pub(super) rng: Rng,
}

impl Process {
    pub(super) fn new(name: &str, machine: usize, cpu: Cpu, shares_cores: bool) -> Process {
        Process {
            name: name.to_owned(),
            machine,
            cpu,
            incarnation: 0,
            alive: false,
            tasks: BTreeSet::new(),
            roots: 0,
            ready: VecDeque::new(),
            queued: false,
            busy_until: 0,
            paused_until: 0,
            shares_cores,
            on_core: false,
            slice_began: 0,
            counters: Arc::default(),
            rng: Rng::new(0, 0),
        }
    }

    pub(super) fn lives(&self, incarnation: u64) -> bool {
        self.alive && self.incarnation == incarnation
    }
}

impl Core {
    /// Begin the next incarnation, if the process does not live; returns its number.
    pub(super) fn bring_up(&self, process: usize) -> u64 {
        let mut processes = self.processes.borrow_mut();
        let state = &mut processes[process];
        if !state.alive {
            state.alive = true;
            state.incarnation += 1;
            state.busy_until = self.now();
            state.paused_until = 0;
            // A turn scheduled for the former incarnation may lie far ahead; at worst there is one turn too
            // many.
            state.queued = false;
            state.counters = Arc::default();
            state.rng = Rng::new(self.seed ^ state.incarnation.rotate_left(32), process as u64 + 16);
        }
        state.incarnation
    }

    /// Whether this incarnation of the process still lives.
    pub(super) fn lives(&self, process: usize, incarnation: u64) -> bool {
        self.processes.borrow()[process].lives(incarnation)
    }

    /// The process ended by itself: tasks are dropped first, so sockets close normally.
    pub(super) fn end_process(self: &Rc<Core>, process: usize) {
        self.trace.line(self.now(), || format!("{} ends", self.processes.borrow()[process].name));
        // Twice: a task's drop may spawn another.
        for _ in 0..2 {
            let keys = std::mem::take(&mut self.processes.borrow_mut()[process].tasks);
            drop(self.take_tasks(keys));
        }
        self.lay_to_rest(process);
    }

    /// `kill -9`.
    pub(super) fn crash_process(self: &Rc<Core>, process: usize) {
        if !self.processes.borrow()[process].alive {
            return;
        }
        self.trace.add(self.now(), process, Kind::Fault, 1);
        self.trace.line(self.now(), || format!("{} crashes", self.processes.borrow()[process].name));
        self.stopped_between(process);
        let incarnation = self.processes.borrow()[process].incarnation;
        // Dead before its tasks are dropped: their effects do not reach the world.
        self.reset_all_of(process, incarnation);
        self.lay_to_rest(process);
        let keys = std::mem::take(&mut self.processes.borrow_mut()[process].tasks);
        drop(self.take_tasks(keys));
    }

    fn lay_to_rest(&self, process: usize) {
        let (machine, incarnation) = {
            let mut processes = self.processes.borrow_mut();
            let state = &mut processes[process];
            state.alive = false;
            state.roots = 0;
            state.ready.clear();
            (state.machine, state.incarnation)
        };
        self.machines.borrow_mut()[machine].disk.process_ended(process, incarnation);
    }

    /// The machine loses its power: every process crashes, then the disk loses unsynced changes.
    pub(super) fn cut_power(self: &Rc<Core>, machine: usize) {
        let here: Vec<usize> = {
            let processes = self.processes.borrow();
            (0..processes.len()).filter(|p| processes[*p].machine == machine).collect()
        };
        self.trace.add(self.now(), machine, Kind::Fault, 2);
        self.trace.line(self.now(), || format!("{} loses power", self.machines.borrow()[machine].name));
        self.machines.borrow_mut()[machine].disk.stop_for_power_cut();
        for process in here {
            self.crash_process(process);
        }
        let mut machines = self.machines.borrow_mut();
        let state = &mut machines[machine];
        state.disk.lose_power(self.now());
        state.host.lock().unwrap_or_else(PoisonError::into_inner).lose_power();
        let mut boot_id = [0; 16];
        state.rng.fill(&mut boot_id);
        state.boot_id = boot_id;
    }

    /// The process gets no processor until `until`.
    pub(super) fn pause_process(&self, process: usize, until: u64) {
        self.trace.add(self.now(), process, Kind::Fault, 3);
        let mut processes = self.processes.borrow_mut();
        let state = &mut processes[process];
        state.paused_until = state.paused_until.max(until);
        // If its turn is already scheduled, the turn finds it paused and is scheduled again.
    }

    /// Charge a socket's call to a process, and its bytes at so much each.
    pub(super) fn charge_socket(&self, process: usize, bytes: usize, byte_ps: impl Fn(&Cpu) -> u64) {
        let mut processes = self.processes.borrow_mut();
        let state = &mut processes[process];
        let bytes_ns = (bytes as u64).saturating_mul(byte_ps(&state.cpu)) / 1000;
        state.busy_until = state.busy_until.max(self.now()) + state.cpu.socket_ns + bytes_ns;
    }
}
