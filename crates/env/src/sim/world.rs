//! The control of a simulation: builds its machines and processes, runs them, and makes them fail.

use super::config::{self, Config, Cpu, Link};
use super::core::{Core, Event, Step};
use super::crash_points::CrashPointCounts;
use super::door;
use super::process::{Machine, Process};
use super::rng::Rng;
use super::trace::Kind;
use crate::crash_point::CrashPoint;
use crate::{Counters, Env, Instant};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::rc::Rc;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// A machine of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MachineId(pub(super) usize);

/// A process of a world. It keeps its id over crashes and restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId(usize);

/// Why a run returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The moment was reached, with events still to come.
    Deadline,
    /// The moment was reached, and nothing will ever happen again by itself.
    Idle,
}

/// A handle to a simulated world; cheap to clone. When the last one is dropped, all processes are.
#[derive(Clone)]
pub struct World {
    pub(super) core: Rc<Core>,
    /// Absent in the handle of a scheduled call: that one keeps nothing alive.
    _life: Option<Rc<Life>>,
}

struct Life(Rc<Core>);

impl Drop for Life {
    fn drop(&mut self) {
        let count = self.0.processes.borrow().len();
        for process in 0..count {
            self.0.crash_process(process);
        }
        self.0.drop_events();
        // A remaining handle to the world keeps none of its contents alive.
        self.0.machines.borrow_mut().iter_mut().for_each(|machine| machine.disk.wipe());
    }
}

impl World {
    /// An empty world. The same seed, config and program give the same run.
    pub fn new(seed: u64, config: Config) -> World {
        let core = Core::new(seed, config);
        World { _life: Some(Rc::new(Life(core.clone()))), core }
    }

    /// A handle for planned calls: it does not keep the world alive. An ordinary handle, within a fault
    /// that is never carried out, would keep all of the world in memory.
    pub fn for_plans(&self) -> World {
        World { core: self.core.clone(), _life: None }
    }

    /// The seed it was made from.
    pub fn seed(&self) -> u64 {
        self.core.seed
    }

    /// Add a machine, as the config describes machines.
    pub fn machine(&self, name: &str) -> MachineId {
        self.machine_like(name, self.core.config.machine)
    }

    /// Add a machine with its own config.
    pub fn machine_like(&self, name: &str, config: config::Machine) -> MachineId {
        let mut machines = self.core.machines.borrow_mut();
        let rng = Rng::new(self.core.seed, (1 << 32) + machines.len() as u64);
        machines.push(Machine::new(name, config, rng));
        MachineId(machines.len() - 1)
    }

    /// Give a machine a further disk, as fast as its first: all that will be below `path` is on it. Faults
    /// and space are of both together.
    ///
    /// # Errors
    /// A path that cannot be a directory there.
    pub fn further_disk(&self, machine: MachineId, path: impl AsRef<Path>) -> io::Result<()> {
        self.core.machines.borrow_mut()[machine.0].disk.add_device(path.as_ref())
    }

    /// Add a process to a machine; [`World::start`] brings it to life.
    pub fn process(&self, name: &str, machine: MachineId) -> ProcessId {
        let config = self.core.machines.borrow()[machine.0].config;
        let mut processes = self.core.processes.borrow_mut();
        processes.push(Process::new(name, machine.0, config.cpu, config.cores > 0));
        ProcessId(processes.len() - 1)
    }

    /// Run `body` as a root task of the process: of its present life, or, if it does not live, of a new
    /// one. The process ends when its last root task has; its other tasks are dropped then.
    pub fn start<F>(&self, process: ProcessId, body: impl FnOnce(Env) -> F)
    where
        F: Future<Output = ()> + 'static,
    {
        let incarnation = self.core.bring_up(process.0);
        self.core.trace.line(self.core.now(), || format!("{} starts", self.name(process)));
        let future = body(door::env(&self.core, process.0));
        self.core.spawn(process.0, incarnation, true, Box::pin(future));
    }

    /// [`World::start`], then run the world until `body` has ended; returns its value. Other processes run
    /// too.
    ///
    /// # Panics
    ///
    /// If it can never end (nothing is left to happen, or its process was stopped).
    pub fn complete<T, F>(&self, process: ProcessId, body: impl FnOnce(Env) -> F) -> T
    where
        T: 'static,
        F: Future<Output = T> + 'static,
    {
        let value = Rc::new(RefCell::new(None));
        let slot = value.clone();
        self.start(process, |env| {
            let future = body(env);
            async move {
                let done = future.await;
                slot.replace(Some(done));
            }
        });
        // The root task owns one of the two handles to the value: when it is gone, there will be no value.
        while value.borrow().is_none() && Rc::strong_count(&value) > 1 {
            if self.core.step(u64::MAX) != Step::Ran {
                break;
            }
        }
        let done = value.take();
        done.unwrap_or_else(|| {
            panic!("{} stands still at {:?} (seed {})", self.name(process), self.now(), self.core.seed)
        })
    }

    /// The current time.
    pub fn now(&self) -> Instant {
        Instant(self.core.now())
    }

    /// Run all events up to and at `deadline`; then it is `deadline`.
    pub fn run_until(&self, deadline: Instant) -> Ended {
        loop {
            let step = self.core.step(deadline.0);
            if step != Step::Ran {
                self.core.pass_to(deadline.0);
                return if step == Step::Idle { Ended::Idle } else { Ended::Deadline };
            }
        }
    }

    /// [`World::run_until`] so much later than now.
    pub fn run_for(&self, span: Duration) -> Ended {
        self.run_until(self.now() + span)
    }

    /// Run until `holds` returns true, checked after every step; returns whether it did by `deadline`.
    pub fn run_until_true(&self, deadline: Instant, mut holds: impl FnMut() -> bool) -> bool {
        while !holds() {
            if self.core.step(deadline.0) != Step::Ran {
                self.core.pass_to(deadline.0);
                return holds();
            }
        }
        true
    }

    /// Call `then` at a moment: a planned fault.
    pub fn at(&self, moment: Instant, then: impl FnOnce(&World) + 'static) {
        let call = move |core: &Rc<Core>| then(&World { core: core.clone(), _life: None });
        self.core.schedule(moment.0, Event::Call(Box::new(call)));
    }

    /// Call `then` a while after a process has reached a point once more than `passes` times: a fault in
    /// the gap after it.
    pub fn trap(
        &self,
        process: ProcessId,
        point: CrashPoint,
        passes: u32,
        delay: Duration,
        then: impl FnOnce(&World) + 'static,
    ) {
        let call = move |core: &Rc<Core>| then(&World { core: core.clone(), _life: None });
        let delay_ns = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX / 4);
        self.core.set_trap(process.0, point, passes, delay_ns, Box::new(call));
    }

    /// The reached crash points, and the stops after each.
    pub fn points(&self) -> BTreeMap<CrashPoint, CrashPointCounts> {
        self.core.points.met()
    }

    /// `kill -9`: tasks vanish, peers see a reset after the link's latency, file calls in flight are done,
    /// not done, or (writes) done in part. Written bytes stay, durable or not; locks are free; the boot id
    /// stays.
    pub fn crash(&self, process: ProcessId) {
        self.core.crash_process(process.0);
    }

    /// All processes of the machine crash, its disk loses unsynced changes (see [`sim`](crate::sim)), and
    /// its boot id changes. [`World::start`] processes again at any time.
    pub fn power_cut(&self, machine: MachineId) {
        self.core.cut_power(machine.0);
    }

    /// From now on an address belongs to this machine: listeners at all its addresses are reached there.
    pub fn set_address(&self, machine: MachineId, ip: IpAddr) {
        self.core.net.borrow_mut().addresses.insert(ip, machine.0);
    }

    /// From now on a host's name is resolved to these addresses.
    pub fn set_name(&self, host: &str, found: &[IpAddr]) {
        self.core.net.borrow_mut().names.insert(host.to_owned(), found.to_vec());
    }

    /// Whether name servers answer: lookups while they do not are never answered.
    pub fn set_names_answered(&self, on: bool) {
        self.core.net.borrow_mut().is_nameless = !on;
    }

    /// Cut (or heal) the way between two machines: messages are held, and arrive after it is healed.
    pub fn partition(&self, a: MachineId, b: MachineId, on: bool) {
        self.core.set_partition(a.0, b.0, on);
    }

    /// Break every connection between two machines, as a middlebox does: data in flight is lost, and both
    /// ends learn it after the link's latency.
    pub fn reset(&self, a: MachineId, b: MachineId) {
        self.core.reset_between(a.0, b.0, None);
    }

    /// `a` has forgotten every connection to `b`, and `b` learns it only at `until`: all it sends up to
    /// then is lost.
    pub fn half_open(&self, a: MachineId, b: MachineId, until: Instant) {
        self.core.reset_between(a.0, b.0, Some(until.0));
    }

    /// Set the link between two machines, both ways; for messages sent from now on.
    pub fn set_link(&self, a: MachineId, b: MachineId, link: Link) {
        self.core.set_link(a.0, b.0, link);
    }

    /// Set a machine's disk, for calls from now on. A capacity below the used space makes it full.
    pub fn set_disk(&self, machine: MachineId, disk: config::Disk) {
        self.core.machines.borrow_mut()[machine.0].disk.config = disk;
    }

    /// Exchange the contents of the disks of two machines, all of whose processes are stopped. Unsynced
    /// changes move too, and so does the boot id, which says whether they were lost.
    pub fn exchange_disks(&self, a: MachineId, b: MachineId) {
        let mut machines = self.core.machines.borrow_mut();
        let (first, second) = (a.0.min(b.0), a.0.max(b.0));
        if let (head, [last, ..]) = machines.split_at_mut(second)
            && let Some(first) = head.get_mut(first)
        {
            first.disk.exchange(&mut last.disk);
            std::mem::swap(&mut first.boot_id, &mut last.boot_id);
        }
    }

    /// Set the costs of computing for a process.
    pub fn set_cpu(&self, process: ProcessId, cpu: Cpu) {
        self.core.processes.borrow_mut()[process.0].cpu = cpu;
    }

    /// (total, available) bytes of a machine's disk.
    pub fn disk_space(&self, machine: MachineId) -> (u64, u64) {
        self.core.machines.borrow()[machine.0].disk.space()
    }

    /// The next `count` syncs (and durable writes) of the machine fail with `EIO`; the writes they covered
    /// are never durable.
    pub fn fail_syncs(&self, machine: MachineId, count: u64) {
        self.core.machines.borrow_mut()[machine.0].disk.failing_syncs = count;
    }

    /// The machine loses writes of every file of its users: the next sync through each descriptor that is
    /// open reports it.
    pub fn lose_host_writes(&self, machine: MachineId) {
        let host = self.core.machines.borrow()[machine.0].host.clone();
        host.lock().unwrap_or_else(PoisonError::into_inner).lose_writes();
    }

    /// Call `tell` whenever a sync of the machine fails, before anything is lost. It must not touch the
    /// world.
    pub fn on_failed_sync(&self, machine: MachineId, tell: impl Fn() + 'static) {
        self.core.machines.borrow_mut()[machine.0].disk.on_failed_sync = Some(Rc::new(tell));
    }

    /// How many syncs of the machine have failed since the last call.
    pub fn take_failed_syncs(&self, machine: MachineId) -> u64 {
        std::mem::take(&mut self.core.machines.borrow_mut()[machine.0].disk.failed_syncs)
    }

    /// Set the machine's wall clock forward or back. The monotonic clock does not move.
    pub fn jump_wall(&self, machine: MachineId, ns: i64) {
        let mut machines = self.core.machines.borrow_mut();
        let offset = &mut machines[machine.0].wall_offset_ns;
        *offset = offset.saturating_add(ns);
    }

    /// The process gets no processor for a span, as if stopped or swapped out; its sockets and files live on.
    pub fn pause(&self, process: ProcessId, span: Duration) {
        self.core.pause_process(process.0, (self.now() + span).0);
    }

    /// Whether the process lives.
    pub fn is_alive(&self, process: ProcessId) -> bool {
        self.core.processes.borrow()[process.0].alive
    }

    /// Tasks of the process.
    pub fn tasks(&self, process: ProcessId) -> usize {
        self.core.processes.borrow()[process.0].tasks.len()
    }

    /// The counts of the process's present (or last) incarnation.
    pub fn counters(&self, process: ProcessId) -> Arc<Counters> {
        self.core.processes.borrow()[process.0].counters.clone()
    }

    /// The process's name.
    pub fn name(&self, process: ProcessId) -> String {
        self.core.processes.borrow()[process.0].name.clone()
    }

    /// The machine a process is on.
    pub fn machine_of(&self, process: ProcessId) -> MachineId {
        MachineId(self.core.processes.borrow()[process.0].machine)
    }

    /// Events so far: turns of tasks, and events of the heap.
    pub fn events(&self) -> u64 {
        self.core.events.get()
    }

    /// A hash over everything that happened up to now.
    pub fn trace_hash(&self) -> u64 {
        self.core.trace.hash()
    }

    /// Add a line to the timeline. The hash covers it, too.
    pub fn log(&self, text: impl Into<String>) {
        let text = text.into();
        for part in text.as_bytes().chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.core.trace.add(self.core.now(), 0, Kind::Note, u64::from_le_bytes(word));
        }
        self.core.trace.line(self.core.now(), || text);
    }

    /// The last lines of the timeline (see [`Config::timeline`]).
    pub fn timeline(&self) -> Vec<(Instant, String)> {
        self.core.trace.lines()
    }
}
