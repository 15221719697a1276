//! The executor: an event heap, ready tasks, and the current time.
//!
//! **Invariant: no part of the core stays borrowed while a future is polled or dropped, or a waker is
//! woken**: both run foreign code, which calls back into the core (asserted in `poll`).

use super::config::Config;
use super::cores::Runner;
use super::crash_points::CrashPoints;
use super::net::{NEVER, Net};
use super::process::{Machine, Process};
use super::rng::Rng;
use super::stream::Conn;
use super::timer::{TimerKey, Timers};
use super::trace::{Kind, Trace};
use futures_util::future::LocalBoxFuture;
use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// Stale timers are not swept below this many.
const STALE_KEPT: usize = 1024;

type Call = Box<dyn FnOnce(&Rc<Core>)>;

/// Something that happens at a moment.
pub(super) enum Event {
    /// A timer ends.
    Timer(TimerKey),
    /// A process may run again.
    Run(usize),
    /// Something reaches an end of a connection.
    Arrive(Rc<Conn>, usize),
    /// Rare events.
    Call(Call),
}

struct Entry {
    at: u64,
    seq: u64,
    event: Event,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        (self.at, self.seq) == (other.at, other.seq)
    }
}
impl Eq for Entry {}
impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Entry {
    fn cmp(&self, other: &Entry) -> std::cmp::Ordering {
        (self.at, self.seq).cmp(&(other.at, other.seq))
    }
}

/// A task: a slot and its generation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TaskKey {
    slot: u32,
    generation: u32,
}

/// The type of wakers is shared between threads, so the list of woken tasks is too; in a run only one
/// thread touches it.
#[derive(Default)]
struct Woken(Mutex<Vec<TaskKey>>);

struct TaskWaker {
    key: TaskKey,
    queued: AtomicBool,
    woken: Arc<Woken>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Relaxed) {
            self.woken.0.lock().unwrap_or_else(PoisonError::into_inner).push(self.key);
        }
    }
}

/// A task's future and how to wake it; out of its slot while it is polled.
struct Body {
    future: LocalBoxFuture<'static, ()>,
    waker: Waker,
    shared: Arc<TaskWaker>,
}

struct Task {
    body: Option<Body>,
    process: usize,
    /// The process ends when its last root ends.
    root: bool,
    cancelled: bool,
}

#[derive(Default)]
struct Tasks {
    slots: Vec<(u32, Option<Task>)>,
    free: Vec<u32>,
}

impl Tasks {
    fn get(&mut self, key: TaskKey) -> Option<&mut Task> {
        let (generation, task) = self.slots.get_mut(key.slot as usize)?;
        if *generation == key.generation { task.as_mut() } else { None }
    }

    fn take(&mut self, key: TaskKey) -> Option<Task> {
        let (generation, task) = self.slots.get_mut(key.slot as usize)?;
        if *generation != key.generation {
            return None;
        }
        *generation = generation.wrapping_add(1);
        self.free.push(key.slot);
        task.take()
    }
}

/// The result of a step.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Something ran.
    Ran,
    /// Nothing can happen before the limit.
    Limit,
    /// Nothing can ever happen without a call from outside.
    Idle,
}

/// The state of a world.
pub(super) struct Core {
    pub(super) config: Config,
    pub(super) seed: u64,
    /// Shared with what keeps the time of its changes.
    pub(super) ticks: Arc<AtomicU64>,
    seq: Cell<u64>,
    /// Steps done.
    pub(super) events: Cell<u64>,
    heap: RefCell<BinaryHeap<Reverse<Entry>>>,
    pub(super) timers: RefCell<Timers>,
    tasks: RefCell<Tasks>,
    woken: Arc<Woken>,
    /// Swapped with the list of woken tasks, to keep both allocations.
    spare: RefCell<Vec<TaskKey>>,
    runnable: RefCell<Vec<usize>>,
    order: RefCell<Rng>,
    pub(super) processes: RefCell<Vec<Process>>,
    pub(super) machines: RefCell<Vec<Machine>>,
    pub(super) net: RefCell<Net>,
    pub(super) trace: Trace,
    pub(super) points: CrashPoints,
}

impl Core {
    pub(super) fn new(seed: u64, config: Config) -> Rc<Core> {
        Rc::new(Core {
            seed,
            ticks: Arc::default(),
            seq: Cell::new(0),
            events: Cell::new(0),
            heap: RefCell::default(),
            timers: RefCell::default(),
            tasks: RefCell::default(),
            woken: Arc::default(),
            spare: RefCell::default(),
            runnable: RefCell::default(),
            order: RefCell::new(Rng::new(seed, 1)),
            processes: RefCell::default(),
            machines: RefCell::default(),
            net: RefCell::new(Net::new(Rng::new(seed, 2))),
            trace: Trace::new(config.timeline),
            points: CrashPoints::default(),
            config,
        })
    }

    pub(super) fn now(&self) -> u64 {
        self.ticks.load(Relaxed)
    }

    /// Let time pass up to `until` without an event (the caller has checked that there is none).
    pub(super) fn pass_to(&self, until: u64) {
        // The end of time is no moment: nothing could be added to it.
        if until < NEVER {
            self.ticks.store(self.now().max(until), Relaxed);
        }
    }

    pub(super) fn schedule(&self, at: u64, event: Event) {
        let seq = self.seq.get();
        self.seq.set(seq + 1);
        self.heap.borrow_mut().push(Reverse(Entry { at: at.max(self.now()), seq, event }));
    }

    pub(super) fn set_timer(&self, at: u64, waker: Waker) -> TimerKey {
        let key = self.timers.borrow_mut().set(waker);
        self.schedule(at, Event::Timer(key));
        key
    }

    pub(super) fn drop_timer(&self, key: TimerKey) {
        let waker = self.timers.borrow_mut().take(key);
        if waker.is_none() {
            return;
        }
        let mut timers = self.timers.borrow_mut();
        timers.stale += 1;
        let mut heap = self.heap.borrow_mut();
        if timers.stale > STALE_KEPT && timers.stale > heap.len() / 2 {
            heap.retain(|Reverse(entry)| !matches!(entry.event, Event::Timer(key) if !timers.is_set(key)));
            timers.stale = 0;
        }
    }

    /// The end of the world: pending events do not happen.
    pub(super) fn drop_events(&self) {
        let events = self.heap.take();
        drop(events);
        self.drop_traps();
    }

    /// Add a task to a process; `None` if the process does not live in that incarnation.
    pub(super) fn spawn(
        &self,
        process: usize,
        incarnation: u64,
        root: bool,
        future: LocalBoxFuture<'static, ()>,
    ) -> Option<TaskKey> {
        let mut processes = self.processes.borrow_mut();
        let lives = processes[process].lives(incarnation);
        if !lives {
            drop(processes);
            drop(future);
            return None;
        }
        let mut tasks = self.tasks.borrow_mut();
        let slot = tasks.free.pop().unwrap_or_else(|| {
            tasks.slots.push((0, None));
            (tasks.slots.len() - 1) as u32
        });
        let key = TaskKey { slot, generation: tasks.slots[slot as usize].0 };
        let shared = Arc::new(TaskWaker { key, queued: AtomicBool::new(false), woken: self.woken.clone() });
        let body = Body { future, waker: Waker::from(shared.clone()), shared: shared.clone() };
        tasks.slots[slot as usize].1 = Some(Task { body: Some(body), process, root, cancelled: false });
        processes[process].tasks.insert(key);
        processes[process].roots += usize::from(root);
        shared.wake_by_ref();
        Some(key)
    }

    /// End a task at its next turn.
    pub(super) fn cancel(&self, key: TaskKey) {
        if let Some(task) = self.tasks.borrow_mut().get(key) {
            task.cancelled = true;
            if let Some(body) = &task.body {
                body.shared.wake_by_ref();
            }
        }
    }

    /// Take tasks out of the world; the caller must drop the result with nothing borrowed.
    pub(super) fn take_tasks(&self, keys: BTreeSet<TaskKey>) -> impl Drop + use<> {
        let mut tasks = self.tasks.borrow_mut();
        let taken: Vec<Task> = keys.into_iter().filter_map(|key| tasks.take(key)).collect();
        taken
    }

    /// Let the process have a turn, when it is neither busy nor paused.
    pub(super) fn make_runnable(&self, process: usize) {
        let mut processes = self.processes.borrow_mut();
        let state = &mut processes[process];
        if state.queued || state.ready.is_empty() {
            return;
        }
        state.queued = true;
        if state.shares_cores {
            let (machine, on_core) = (state.machine, state.on_core);
            drop(processes);
            // On a core its next turn is already scheduled.
            if !on_core {
                self.want_core(machine, Runner::Process(process));
            }
            return;
        }
        let at = state.busy_until.max(state.paused_until);
        drop(processes);
        if at <= self.now() {
            self.runnable.borrow_mut().push(process);
        } else {
            self.schedule(at, Event::Run(process));
        }
    }

    fn hand_out_wakes(&self) {
        let mut woken = self.spare.take();
        std::mem::swap(&mut woken, &mut *self.woken.0.lock().unwrap_or_else(PoisonError::into_inner));
        for key in woken.drain(..) {
            let process = self.tasks.borrow_mut().get(key).map(|task| task.process);
            if let Some(process) = process {
                self.processes.borrow_mut()[process].ready.push_back(key);
                self.make_runnable(process);
            }
        }
        self.spare.replace(woken);
    }

    /// Execute one event, unless it lies beyond `limit`.
    pub(super) fn step(self: &Rc<Core>, limit: u64) -> Step {
        self.hand_out_wakes();
        self.events.set(self.events.get() + 1);
        let next = {
            let mut runnable = self.runnable.borrow_mut();
            match runnable.len() {
                0 => None,
                1 => runnable.pop(),
                len => Some(runnable.swap_remove(self.order.borrow_mut().index(len))),
            }
        };
        if let Some(process) = next {
            self.run_one(process);
            return Step::Ran;
        }
        self.next_event(limit)
    }

    fn next_event(self: &Rc<Core>, limit: u64) -> Step {
        let entry = {
            let mut heap = self.heap.borrow_mut();
            match heap.peek() {
                None => return Step::Idle,
                Some(Reverse(entry)) if entry.at > limit => return Step::Limit,
                Some(_) => heap.pop().map(|Reverse(entry)| entry),
            }
        };
        let Some(Entry { at, event, .. }) = entry else { return Step::Idle };
        if let Event::Timer(key) = event {
            let waker = self.timers.borrow_mut().take(key);
            match waker {
                Some(waker) => {
                    self.ticks.store(at, Relaxed);
                    waker.wake();
                }
                // A deadline without a waiter: not even time passes for it.
                None => {
                    let mut timers = self.timers.borrow_mut();
                    timers.stale = timers.stale.saturating_sub(1);
                }
            }
            return Step::Ran;
        }
        self.ticks.store(at, Relaxed);
        match event {
            Event::Timer(_) => {}
            Event::Run(process) if self.shares_cores(process) => self.turn_on_core(process),
            Event::Run(process) => {
                self.processes.borrow_mut()[process].queued = false;
                self.make_runnable(process);
            }
            Event::Arrive(conn, end) => conn.arrive(self, end),
            Event::Call(call) => call(self),
        }
        Step::Ran
    }

    /// One task of the process, drawn from those ready, has its turn.
    fn run_one(self: &Rc<Core>, process: usize) {
        let now = self.now();
        let key = {
            let mut processes = self.processes.borrow_mut();
            let state = &mut processes[process];
            state.queued = false;
            if state.ready.is_empty() || state.paused_until.max(state.busy_until) > now {
                None
            } else {
                let len = state.ready.len();
                let at = if len == 1 { 0 } else { self.order.borrow_mut().index(len) };
                state.busy_until = now + state.cpu.poll_ns;
                state.ready.swap_remove_back(at)
            }
        };
        if let Some(key) = key {
            self.trace.add(now, process, Kind::Poll, u64::from(key.slot));
            self.poll(process, key);
        }
        self.make_runnable(process);
    }

    /// The first of the process's ready tasks has its turn, on the core that the process has.
    pub(super) fn run_next(self: &Rc<Core>, process: usize) {
        let now = self.now();
        let key = {
            let mut processes = self.processes.borrow_mut();
            let state = &mut processes[process];
            state.queued = false;
            state.busy_until = now + state.cpu.poll_ns;
            state.ready.pop_front()
        };
        if let Some(key) = key {
            self.trace.add(now, process, Kind::Poll, u64::from(key.slot));
            self.poll(process, key);
        }
    }

    /// Whether no part of the core is borrowed.
    fn is_unborrowed(&self) -> bool {
        self.heap.try_borrow_mut().is_ok()
            && self.timers.try_borrow_mut().is_ok()
            && self.tasks.try_borrow_mut().is_ok()
            && self.spare.try_borrow_mut().is_ok()
            && self.runnable.try_borrow_mut().is_ok()
            && self.order.try_borrow_mut().is_ok()
            && self.processes.try_borrow_mut().is_ok()
            && self.machines.try_borrow_mut().is_ok()
            && self.net.try_borrow_mut().is_ok()
    }

    fn poll(self: &Rc<Core>, process: usize, key: TaskKey) {
        let body = match self.tasks.borrow_mut().get(key) {
            Some(task) if !task.cancelled => task.body.take(),
            Some(_) => None,
            None => return,
        };
        let Some(mut body) = body else { return self.end_task(process, key) };
        body.shared.queued.store(false, Relaxed);
        debug_assert!(self.is_unborrowed(), "a future may call back into the core");
        let mut cx = Context::from_waker(&body.waker);
        let polled = catch_unwind(AssertUnwindSafe(|| body.future.as_mut().poll(&mut cx)));
        let polled = polled.unwrap_or_else(|panic| {
            let name = self.processes.borrow()[process].name.clone();
            eprintln!("simulation: seed {}, {} ns, process {name}: a task panicked", self.seed, self.now());
            resume_unwind(panic)
        });
        let mut back = Some(body);
        if polled == Poll::Pending
            && let Some(task) = self.tasks.borrow_mut().get(key)
        {
            task.body = back.take();
        }
        // A task that is not put back has ended, or its process was crashed from within.
        let ended = back.is_some();
        drop(back);
        if ended {
            self.end_task(process, key);
        }
    }

    fn end_task(self: &Rc<Core>, process: usize, key: TaskKey) {
        let task = self.tasks.borrow_mut().take(key);
        let Some(task) = task else { return };
        let last_root = {
            let mut processes = self.processes.borrow_mut();
            let state = &mut processes[process];
            state.tasks.remove(&key);
            state.roots -= usize::from(task.root);
            task.root && state.roots == 0
        };
        drop(task);
        if last_root {
            self.end_process(process);
        }
    }
}
