//! Tracks the calls for locks that have a request at this server, and the calls that a client has cancelled
//! ([`crate::ops`]' `unwait`).
//!
//! A request may wait in several places before it asks the table. **When a call is cancelled, its requests at
//! this server take no lock any more.** A request of the call may also arrive later, from a connection that
//! the client has given up. It takes no lock either, if the call is among the last 64 calls that were
//! cancelled.

use super::table::Wanted;
use shoal_proto::ClientId;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};

/// Calls that are remembered as taken back when no request of them is here any more.
const TAKEN_BACK_MAX: usize = 64;

type CallId = (ClientId, u64);

fn id_of(wanted: &Wanted) -> CallId {
    (wanted.by.client, wanted.call)
}

/// See the module's page.
#[derive(Default)]
pub struct Calls {
    here: RefCell<BTreeMap<CallId, CallHere>>,
    /// The last ones that were taken back.
    taken_back: RefCell<VecDeque<CallId>>,
}

#[derive(Default)]
struct CallHere {
    requests: u32,
    is_taken_back: bool,
}

/// A request of a call, until this is dropped.
pub struct RequestHere<'a> {
    calls: &'a Calls,
    call: CallId,
}

impl Calls {
    /// A request of a call is here.
    pub fn begin(&self, wanted: &Wanted) -> RequestHere<'_> {
        let call = id_of(wanted);
        let mut here = self.here.borrow_mut();
        let of_call = here.entry(call).or_default();
        of_call.requests += 1;
        of_call.is_taken_back |= self.taken_back.borrow().contains(&call);
        RequestHere { calls: self, call }
    }

    /// A call waits no longer.
    pub fn take_back(&self, wanted: &Wanted) {
        let call = id_of(wanted);
        if let Some(of_call) = self.here.borrow_mut().get_mut(&call) {
            of_call.is_taken_back = true;
        }
        let mut taken_back = self.taken_back.borrow_mut();
        if taken_back.contains(&call) {
            return;
        }
        if taken_back.len() >= TAKEN_BACK_MAX {
            taken_back.pop_front();
        }
        taken_back.push_back(call);
    }
}

impl RequestHere<'_> {
    /// Whether its call was taken back.
    pub fn is_taken_back(&self) -> bool {
        self.calls.here.borrow().get(&self.call).is_some_and(|of_call| of_call.is_taken_back)
    }
}

impl Drop for RequestHere<'_> {
    fn drop(&mut self) {
        let mut here = self.calls.here.borrow_mut();
        if let Some(of_call) = here.get_mut(&self.call) {
            of_call.requests -= 1;
            if of_call.requests == 0 {
                here.remove(&self.call);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::Locker;
    use super::*;
    use shoal_proto::{Handle, LockKind, LockOwner, LockRange};

    fn wanted(call: u64) -> Wanted {
        let by = Locker { client: ClientId([1; 16]), owner: LockOwner(1) };
        Wanted { file: Handle(9), by, range: LockRange::ALL, kind: LockKind::Exclusive, pid: 1, call }
    }

    #[test]
    fn calls_that_are_taken_back_while_their_requests_wait_are_all_remembered_however_many_they_are() {
        let calls = Calls::default();
        let waiting: Vec<_> = (0..1000).map(|call| calls.begin(&wanted(call))).collect();
        (0..1000).for_each(|call| calls.take_back(&wanted(call)));
        assert!(waiting.iter().all(RequestHere::is_taken_back));
        drop(waiting);
        assert!(calls.here.borrow().is_empty());
        assert!(calls.begin(&wanted(999)).is_taken_back(), "one that comes late");
        assert!(!calls.begin(&wanted(1001)).is_taken_back());
    }
}
