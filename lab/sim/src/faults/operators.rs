//! Faults with several steps: an operator does one step after the other, while clients work.
//!
//! ```text
//!   clients:   first half of their work ── wait for all operators ──▶ second half
//!   operator:  begins ── long preparation ── is ready ──▶ makes the fault ── undoes the fault ── is done
//! ```
//! Clients wait half-way, so a fault that needs minutes of preparation also happens while clients work.

use shoal_env::local::Notify;
use std::cell::Cell;

/// How far the operators of a run are.
#[derive(Default)]
pub(crate) struct Operators {
    unready: Cell<u32>,
    undone: Cell<u32>,
    ready: Notify,
    keep_modes: Cell<u32>,
}

impl Operators {
    /// One more, before the run.
    pub fn begin(&self) {
        self.unready.set(self.unready.get() + 1);
        self.undone.set(self.undone.get() + 1);
    }

    /// The clients need not wait for this one any more.
    pub fn is_ready(&self) {
        self.unready.set(self.unready.get() - 1);
        if self.unready.get() == 0 {
            self.ready.wake_all();
        }
    }

    /// One has come to its end.
    pub fn end(&self) {
        self.undone.set(self.undone.get() - 1);
    }

    /// Whether all have.
    pub fn are_done(&self) -> bool {
        self.undone.get() == 0
    }

    /// From now on (or not any more) the sync modes are not to be changed.
    pub fn keep_modes(&self, on: bool) {
        let count = self.keep_modes.get();
        self.keep_modes.set(if on { count + 1 } else { count - 1 });
    }

    /// Whether the sync modes may be changed.
    pub fn may_change_modes(&self) -> bool {
        self.keep_modes.get() == 0
    }

    /// A client waits half-way.
    pub async fn wait(&self) {
        while self.unready.get() > 0 {
            self.ready.wait().await;
        }
    }
}
