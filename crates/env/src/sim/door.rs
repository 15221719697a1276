//! The `Door` of a simulated process: its access to the simulated clock, network and disk.

use super::connect;
use super::core::Core;
use super::files::SimFiles;
use super::host::SimHost;
use super::timer::Sleep;
use crate::crash_point::CrashPoint;
use crate::{
    Address, Counters, Door, Env, FileDoor, HostFiles, Instant, Listener, Stream, Task, WallTime, Work,
};
use futures_channel::oneshot;
use futures_util::future::LocalBoxFuture;
use std::io;
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// The actor: an incarnation of a process, and its machine.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) process: usize,
    pub(super) incarnation: u64,
    pub(super) machine: usize,
}

struct SimDoor {
    core: Rc<Core>,
    place: Place,
    counters: Arc<Counters>,
    files: SimFiles,
}

/// The environment of a process's present incarnation.
pub(super) fn env(core: &Rc<Core>, process: usize) -> Env {
    let (place, counters) = {
        let state = &core.processes.borrow()[process];
        let place = Place { process, incarnation: state.incarnation, machine: state.machine };
        (place, state.counters.clone())
    };
    let files = SimFiles { core: core.clone(), place, counters: counters.clone() };
    Env(Rc::new(SimDoor { core: core.clone(), place, counters, files }))
}

impl Door for SimDoor {
    fn now(&self) -> Instant {
        Instant(self.core.moment(self.place.process))
    }

    fn wall(&self) -> WallTime {
        let passed = i64::try_from(self.core.now()).unwrap_or(i64::MAX);
        let offset = self.core.machines.borrow()[self.place.machine].wall_offset_ns;
        WallTime(self.core.config.wall_start.0.saturating_add(passed).saturating_add(offset))
    }

    fn random(&self, buf: &mut [u8]) {
        self.core.processes.borrow_mut()[self.place.process].rng.fill(buf);
    }

    fn sleep_until(&self, until: Instant) -> LocalBoxFuture<'static, ()> {
        Box::pin(Sleep::new(self.core.clone(), until.0))
    }

    fn spawn(&self, _name: &'static str, future: LocalBoxFuture<'static, ()>) -> Task {
        let Place { process, incarnation, .. } = self.place;
        let key = self.core.spawn(process, incarnation, false, future);
        // A task may outlive its world in another owner; it must not keep the world alive.
        let core = Rc::downgrade(&self.core);
        Task(Box::new(move || {
            if let (Some(core), Some(key)) = (core.upgrade(), key) {
                core.cancel(key);
            }
        }))
    }

    fn work(&self, work: Work, count: u64) {
        self.core.charge_work(self.place.process, work, count);
    }

    fn offload(&self, work: Box<dyn FnOnce() + Send>) -> LocalBoxFuture<'static, ()> {
        Counters::add(&self.counters.offloads, 1);
        // As in the real world, a panic in the closure is the caller's error, not the end of the process.
        drop(catch_unwind(AssertUnwindSafe(work)));
        let Place { process, machine, .. } = self.place;
        let cpu = self.core.processes.borrow()[process].cpu;
        if self.core.shares_cores(process) {
            let (send, receive) = oneshot::channel();
            let finished = move |_: &Rc<Core>| {
                let _ = send.send(());
            };
            let at = self.core.moment(process) + cpu.file_wait_ns;
            self.core.job(machine, at, cpu.offload_ns, Box::new(finished));
            return Box::pin(async {
                let _ = receive.await;
            });
        }
        self.sleep_until(Instant(self.core.now() + cpu.offload_ns))
    }

    fn listen(&self, at: &Address) -> LocalBoxFuture<'static, io::Result<Listener>> {
        let listener = connect::listen(&self.core, self.place, at);
        Box::pin(async move { listener })
    }

    fn connect(&self, to: &Address) -> LocalBoxFuture<'static, io::Result<Stream>> {
        Box::pin(connect::connect(self.core.clone(), self.place, to.clone()))
    }

    fn resolve(&self, host: &str) -> LocalBoxFuture<'static, io::Result<Vec<IpAddr>>> {
        Box::pin(connect::resolve(self.core.clone(), host.to_owned()))
    }

    fn files(&self) -> &dyn FileDoor {
        &self.files
    }

    fn host(&self) -> io::Result<Arc<dyn HostFiles>> {
        let machine = &self.core.machines.borrow()[self.place.machine];
        let began = WallTime(self.core.config.wall_start.0.saturating_add(machine.wall_offset_ns));
        let (tree, ticks) = (machine.host.clone(), self.core.ticks.clone());
        Ok(Arc::new(SimHost { tree, ticks, began }))
    }

    fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// Virtual time needs no polling.
    fn set_polling(&self, _span: Duration) {}

    fn crash_point(&self, point: CrashPoint, which: u64) {
        let Place { process, incarnation, .. } = self.place;
        if self.core.lives(process, incarnation) {
            self.core.crash_point(process, point, which);
        }
    }

    fn note(&self, words: &dyn Fn() -> String) {
        self.core.trace.line(self.core.now(), || {
            format!("{}: {}", self.core.processes.borrow()[self.place.process].name, words())
        });
    }
}
