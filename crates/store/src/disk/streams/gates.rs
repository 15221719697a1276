//! Gates: a queue for each stream, which admits operations to the stream's bytes in the order of their
//! requests. Reads and writes are admitted together. An append and a truncation are admitted alone, and so is
//! a change of the stream's *home* (the journal, a row, or a local file).
//!
//! An operation takes its place in the queue when [`Gates::request`] is called, and not when its future is
//! first polled. So a truncation that a handler requested comes before every later data operation. A gate
//! exists only while an operation holds it or waits for it.

use futures_channel::oneshot;
use shoal_proto::Handle;
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

#[derive(Clone, Default)]
pub(crate) struct Gates(Rc<RefCell<HashMap<Handle, Gate>>>);

#[derive(Default)]
struct Gate {
    shared: usize,
    alone: bool,
    waiting: VecDeque<(bool, oneshot::Sender<Pass>)>,
}

impl Gate {
    fn admits(&self, alone: bool) -> bool {
        !self.alone && (!alone || self.shared == 0)
    }

    fn enter(&mut self, alone: bool) {
        if alone { self.alone = true } else { self.shared += 1 }
    }
}

/// Held during an access to the bytes.
pub(crate) struct Pass {
    gates: Gates,
    handle: Handle,
    alone: bool,
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.gates.leave(self.handle, self.alone);
    }
}

/// A place in the queue of a gate.
pub(crate) enum Turn {
    Now(Pass),
    Later(oneshot::Receiver<Pass>),
}

impl Turn {
    pub async fn pass(self) -> Option<Pass> {
        match self {
            Turn::Now(pass) => Some(pass),
            // The sender is dropped only together with all gates.
            Turn::Later(turn) => turn.await.ok(),
        }
    }
}

impl Gates {
    /// Request to pass, with others or alone.
    pub fn request(&self, handle: Handle, alone: bool) -> Turn {
        let mut gates = self.0.borrow_mut();
        let gate = gates.entry(handle).or_default();
        if gate.waiting.is_empty() && gate.admits(alone) {
            gate.enter(alone);
            return Turn::Now(Pass { gates: self.clone(), handle, alone });
        }
        let (send, receive) = oneshot::channel();
        gate.waiting.push_back((alone, send));
        Turn::Later(receive)
    }

    fn leave(&self, handle: Handle, alone: bool) {
        {
            let mut gates = self.0.borrow_mut();
            let Some(gate) = gates.get_mut(&handle) else { return };
            if alone { gate.alone = false } else { gate.shared -= 1 }
        }
        // Passes without a taker come back here when dropped: so no borrow is held over `send`.
        while let Some((pass, turn)) = self.next(handle) {
            drop(turn.send(pass));
        }
    }

    fn next(&self, handle: Handle) -> Option<(Pass, oneshot::Sender<Pass>)> {
        let mut gates = self.0.borrow_mut();
        let gate = gates.get_mut(&handle)?;
        let alone = match gate.waiting.front() {
            Some((alone, _)) => *alone,
            None => {
                if gate.shared == 0 && !gate.alone {
                    gates.remove(&handle);
                }
                return None;
            }
        };
        if !gate.admits(alone) {
            return None;
        }
        gate.enter(alone);
        let (_, turn) = gate.waiting.pop_front()?;
        Some((Pass { gates: self.clone(), handle, alone }, turn))
    }

    /// Gates in use.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.0.borrow().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn now(turn: &mut Option<Turn>) -> Option<Pass> {
        match turn.take() {
            Some(Turn::Now(pass)) => Some(pass),
            Some(Turn::Later(mut receive)) => match (&mut receive).now_or_never() {
                Some(pass) => pass.ok(),
                None => {
                    *turn = Some(Turn::Later(receive));
                    None
                }
            },
            None => None,
        }
    }

    #[test]
    fn passes_are_given_in_order_of_asking() {
        let (gates, h) = (Gates::default(), Handle(1));
        let mut first = Some(gates.request(h, false));
        let mut second = Some(gates.request(h, false));
        let mut alone = Some(gates.request(h, true));
        let mut third = Some(gates.request(h, false));
        let (a, b) = (now(&mut first).unwrap(), now(&mut second).unwrap());
        assert!(now(&mut alone).is_none() && now(&mut third).is_none());
        drop(a);
        assert!(now(&mut alone).is_none());
        drop(b);
        let c = now(&mut alone).unwrap();
        assert!(now(&mut third).is_none(), "after the earlier requests");
        drop(c);
        drop(now(&mut third).unwrap());
        assert_eq!(gates.len(), 0);
    }

    #[test]
    fn who_gives_up_waiting_blocks_nobody() {
        let (gates, h) = (Gates::default(), Handle(1));
        let held = gates.request(h, true);
        let given_up = gates.request(h, true);
        let mut last = Some(gates.request(h, false));
        drop(given_up);
        drop(held);
        assert!(now(&mut last).is_some());
        assert_eq!(gates.len(), 0);
    }
}
