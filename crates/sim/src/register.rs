//! Contended names: is what the clients saw of one name possible at all?
//!
//! A name is a register that holds nothing or an object. The history of all operations on it, each with the moments of its
//! call and its return, is linearizable if they can be put in one order that respects those moments and in which each saw
//! what it said. An operation whose outcome is unknown may stand anywhere behind its call, or not at all. The search is that
//! of Wing and Gong (1993) with Lowe's memory of positions already seen (2017): a position is the set of operations done
//! and the register's value.

use std::collections::BTreeSet;

/// What was done to a name, and what was said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seen {
    /// An object was made; its handle.
    Made(u64),
    /// An object may have been made; the handle was never told.
    MaybeMade,
    /// The name exists already (or the directory is not empty): nothing was changed.
    Occupied,
    /// The object took the name, whatever it led to before.
    Put(u64),
    /// The object may have taken the name.
    MaybePut(u64),
    /// The name was removed.
    Removed,
    /// The name may have been removed.
    MaybeRemoved,
    /// The name leads to the object.
    Found(u64),
    /// There is no such name.
    Missing,
}

impl Seen {
    fn is_unknown(self) -> bool {
        matches!(self, Seen::MaybeMade | Seen::MaybePut(_) | Seen::MaybeRemoved)
    }
}

/// One operation of a history.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// Who.
    pub client: u16,
    /// What was asked for, for the words of a violation.
    pub asked: &'static str,
    /// When it was called, in nanoseconds.
    pub called: u64,
    /// When it returned. Of no meaning where the outcome is unknown.
    pub returned: u64,
    /// What it saw.
    pub seen: Seen,
}

/// What a name leads to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Value {
    Nothing,
    Object(u64),
    /// Made by the operation of that index, which never told the handle.
    Untold(usize),
}

/// Longest history that is judged.
pub const EVENTS_MAX: usize = 128;

/// Whether the history of one name, which led to nothing at first, is linearizable.
///
/// # Panics
/// When it is longer than [`EVENTS_MAX`].
pub fn is_linearizable(history: &[Event]) -> bool {
    assert!(history.len() <= EVENTS_MAX, "a history of {} events is too long to be judged", history.len());
    let mut events = history.to_vec();
    events.sort_by_key(|event| event.called);
    let known = events.iter().enumerate().filter(|(_, event)| !event.seen.is_unknown());
    let must: u128 = known.map(|(index, _)| 1 << index).sum();
    let mut seen = BTreeSet::new();
    let mut open = vec![(0_u128, Value::Nothing)];
    while let Some((done, value)) = open.pop() {
        if done & must == must {
            return true;
        }
        if !seen.insert((done, value)) {
            continue;
        }
        // Nothing that is called after another has returned stands before it.
        let waits = |index: &usize| done & (1 << index) == 0;
        let pending = (0..events.len()).filter(waits);
        let first_return = pending.clone().filter(|&index| must & (1 << index) != 0);
        let horizon = first_return.map(|index| events[index].returned).min().unwrap_or(u64::MAX);
        for index in pending.filter(|&index| events[index].called <= horizon) {
            if let Some(next) = after(value, events[index].seen, index) {
                open.push((done | 1 << index, next));
            }
        }
    }
    false
}

/// The value behind an operation, if it can have seen what it did.
fn after(value: Value, seen: Seen, index: usize) -> Option<Value> {
    let empty = value == Value::Nothing;
    match seen {
        Seen::Made(handle) => empty.then_some(Value::Object(handle)),
        Seen::MaybeMade => empty.then_some(Value::Untold(index)),
        Seen::Occupied => (!empty).then_some(value),
        Seen::Put(handle) | Seen::MaybePut(handle) => Some(Value::Object(handle)),
        Seen::Removed | Seen::MaybeRemoved => (!empty).then_some(Value::Nothing),
        Seen::Missing => empty.then_some(value),
        Seen::Found(handle) => match value {
            Value::Object(present) => (present == handle).then_some(value),
            Value::Untold(_) => Some(Value::Object(handle)),
            Value::Nothing => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(called: u64, returned: u64, seen: Seen) -> Event {
        Event { client: 0, asked: "", called, returned, seen }
    }

    #[test]
    fn what_one_client_does_in_order_is_possible() {
        let history = [
            event(0, 1, Seen::Missing),
            event(2, 3, Seen::Made(7)),
            event(4, 5, Seen::Found(7)),
            event(6, 7, Seen::Occupied),
            event(8, 9, Seen::Put(8)),
            event(10, 11, Seen::Removed),
            event(12, 13, Seen::Missing),
        ];
        assert!(is_linearizable(&history));
    }

    #[test]
    fn two_who_both_make_the_name_are_impossible() {
        assert!(!is_linearizable(&[event(0, 10, Seen::Made(1)), event(0, 10, Seen::Made(2))]));
        let between = event(0, 10, Seen::Removed);
        assert!(is_linearizable(&[event(0, 10, Seen::Made(1)), event(0, 10, Seen::Made(2)), between]));
    }

    #[test]
    fn a_name_seen_gone_after_it_was_acknowledged_is_impossible() {
        assert!(!is_linearizable(&[event(0, 1, Seen::Made(1)), event(2, 3, Seen::Missing)]));
        // At the same time it may be.
        assert!(is_linearizable(&[event(0, 5, Seen::Made(1)), event(2, 3, Seen::Missing)]));
    }

    #[test]
    fn an_unknown_outcome_may_be_late_or_never() {
        let maybe = event(0, 0, Seen::MaybeMade);
        assert!(is_linearizable(&[maybe, event(5, 6, Seen::Missing), event(7, 8, Seen::Found(3))]));
        assert!(is_linearizable(&[maybe, event(5, 6, Seen::Missing), event(7, 8, Seen::Missing)]));
        let found = |at, handle| event(at, at + 1, Seen::Found(handle));
        assert!(!is_linearizable(&[maybe, found(5, 3), found(7, 4)]));
    }
}
