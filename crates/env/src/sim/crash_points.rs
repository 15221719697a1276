//! The simulator's record of [crash points](crate::crash_point): counts, stops counted in the gaps between
//! them, and traps.

use super::core::{Core, Event};
use crate::crash_point::CrashPoint;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// The action of a trap.
pub(super) type Sprung = Box<dyn FnOnce(&Rc<Core>)>;

struct Trap {
    process: usize,
    point: CrashPoint,
    /// Times that the point is passed before.
    passes: u32,
    delay_ns: u64,
    then: Sprung,
}

/// How often a step was reached, and how often a stop fell between it and the next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CrashPointCounts {
    /// Times it was reached.
    pub hits: u64,
    /// Times its process was stopped there.
    pub stops: u64,
}

/// See the module.
#[derive(Default)]
pub(super) struct CrashPoints {
    met: RefCell<BTreeMap<CrashPoint, CrashPointCounts>>,
    /// Activities under way: process, activity, which.
    open: RefCell<BTreeMap<(usize, &'static str, u64), CrashPoint>>,
    traps: RefCell<Vec<Trap>>,
}

impl CrashPoints {
    pub(super) fn met(&self) -> BTreeMap<CrashPoint, CrashPointCounts> {
        self.met.borrow().clone()
    }
}

impl Core {
    /// A process has reached a step.
    pub(super) fn crash_point(&self, process: usize, point: CrashPoint, which: u64) {
        let points = &self.points;
        points.met.borrow_mut().entry(point).or_default().hits += 1;
        let key = (process, point.activity, which);
        if point.last {
            points.open.borrow_mut().remove(&key);
        } else {
            points.open.borrow_mut().insert(key, point);
        }
        let mut traps = points.traps.borrow_mut();
        let Some(at) = traps.iter().position(|trap| trap.process == process && trap.point == point) else {
            return;
        };
        match traps[at].passes.checked_sub(1) {
            Some(left) => traps[at].passes = left,
            None => {
                let Trap { delay_ns, then, .. } = traps.remove(at);
                drop(traps);
                // After this turn of the task: its further effects at this moment may happen, or not.
                self.schedule(self.now() + delay_ns, Event::Call(then));
            }
        }
    }

    pub(super) fn set_trap(
        &self,
        process: usize,
        point: CrashPoint,
        passes: u32,
        delay_ns: u64,
        then: Sprung,
    ) {
        self.points.traps.borrow_mut().push(Trap { process, point, passes, delay_ns, then });
    }

    pub(super) fn drop_traps(&self) {
        let traps = self.points.traps.take();
        drop(traps);
    }

    /// A process is stopped: count its open steps.
    pub(super) fn stopped_between(&self, process: usize) {
        let mut open = self.points.open.borrow_mut();
        let mut met = self.points.met.borrow_mut();
        open.retain(|(of, ..), point| {
            if *of == process {
                met.entry(*point).or_default().stops += 1;
            }
            *of != process
        });
    }
}
