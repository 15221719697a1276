//! Contended names: decides whether the clients' results for one name are possible.
//!
//! A name is a register that holds nothing or an object. The history of all operations on it has the
//! moments of each call and return. It is linearizable if the operations can be put in one order that
//! respects those moments, and in which each operation gets the result that it returned. An operation whose
//! outcome is unknown may stand anywhere after its call, or not at all. The search is the method of Wing
//! and Gong (1993), with Lowe's memory of positions already seen (2017): a position is the set of
//! operations done and the register's value. An extended attribute that several clients set is such a
//! register too, with hashes of its values.

use std::collections::BTreeSet;

/// An operation on a name, and its answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seen {
    /// An object was made; its handle.
    Made(u64),
    /// An object may have been made; its handle was never received.
    MaybeMade,
    /// The name exists already (or the directory is not empty): nothing was changed.
    Occupied,
    /// The object took the name, whatever it led to before.
    Put(u64),
    /// The object may have taken the name.
    MaybePut(u64),
    /// The object may have taken the name, if that led to nothing.
    MaybeTook(u64),
    /// The name was removed.
    Removed,
    /// The name may have been removed.
    MaybeRemoved,
    /// The name leads to the object.
    Found(u64),
    /// There is no such name.
    Missing,
    /// Nothing was seen and nothing done.
    Nothing,
}

impl Seen {
    /// Whether its outcome is unknown.
    pub fn is_unknown(self) -> bool {
        matches!(self, Seen::MaybeMade | Seen::MaybePut(_) | Seen::MaybeTook(_) | Seen::MaybeRemoved)
    }

    /// Whether it changed the name, or may have.
    pub fn is_change(self) -> bool {
        self.is_unknown() || matches!(self, Seen::Made(_) | Seen::Put(_) | Seen::Removed)
    }
}

/// One operation of a history.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// The client.
    pub client: u16,
    /// The request, for the words of a violation.
    pub asked: &'static str,
    /// When it was called, in nanoseconds.
    pub called: u64,
    /// When it returned. Of no meaning where the outcome is unknown.
    pub returned: u64,
    /// The value that it saw.
    pub seen: Seen,
}

/// The object of a name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Value {
    Nothing,
    Object(u64),
    /// Made by the operation of that index, which never returned the handle.
    Untold(usize),
}

/// Most events of a history that run at once, directly or in a chain, and are judged.
pub const EVENTS_MAX: usize = 96;
/// Most operations without an answer in a judged history.
pub const UNKNOWN_MAX: usize = 24;
/// Most positions that are searched of one window.
pub const POSITIONS_MAX: usize = 200_000;

/// The verdict of a history.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It is possible.
    Linearizable,
    /// It is not, from these events on: no order of the earlier events allows their results.
    Impossible(Vec<Event>),
    /// It was not judged: it passes one of the bounds.
    TooLong,
}

/// Whether the history of one name, which led to nothing at first, is linearizable.
///
/// The history is cut into windows at *quiescent* moments, at which no answered operation is under way, so
/// its length does not matter. A cut passes on every value the name may have, each with the unanswered
/// operations spent for it.
pub fn judge(history: &[Event]) -> Verdict {
    judge_from(history, BTreeSet::from([(0_u32, Value::Nothing)]))
}

/// The same for a name that faults may have returned, at these moments, to an earlier object: from each of
/// them on it may first lead to any object that it ever led to. `keep_seen`: not to one that was gone when a
/// client saw the name before the fault, because a state that was seen is durable.
pub fn judge_over(history: &[Event], faults: &[u64], keep_seen: bool) -> Verdict {
    let moments: BTreeSet<u64> = faults.iter().copied().collect();
    let (mut begin, mut last) = (None, Verdict::Linearizable);
    for end in moments.into_iter().map(Some).chain([None]) {
        let span = between(history, begin, end);
        let positions = match begin {
            None => BTreeSet::from([(0, Value::Nothing)]),
            Some(begin) => left_by(history, begin, keep_seen),
        };
        match judge_from(&span, positions) {
            Verdict::Linearizable => {}
            Verdict::TooLong => last = Verdict::TooLong,
            impossible => return impossible,
        }
        begin = end;
    }
    last
}

/// The earlier objects of a name that a fault may have left.
fn left_by(history: &[Event], fault: u64, keep_seen: bool) -> BTreeSet<(u32, Value)> {
    let before = history.iter().enumerate().filter(|(_, event)| event.called < fault);
    let values = before.clone().filter_map(|(at, event)| {
        let value = match event.seen {
            Seen::Made(handle) | Seen::Put(handle) | Seen::MaybePut(handle) => Value::Object(handle),
            Seen::MaybeTook(handle) | Seen::Found(handle) => Value::Object(handle),
            Seen::MaybeMade => Value::Untold(EARLIER + at),
            Seen::Removed | Seen::MaybeRemoved | Seen::Missing => Value::Nothing,
            Seen::Occupied | Seen::Nothing => return None,
        };
        Some((value, (!event.seen.is_unknown()).then_some(event.returned)))
    });
    let had_gone = |value: Value, since: Option<u64>| {
        let saw_another = |event: &Event| match event.seen {
            Seen::Found(handle) => value != Value::Object(handle),
            Seen::Missing => value != Value::Nothing,
            _ => false,
        };
        let later = |event: &Event| since.is_some_and(|since| event.called > since) && event.returned < fault;
        keep_seen && before.clone().any(|(_, event)| later(event) && saw_another(event))
    };
    // Before all of it the name led to nothing.
    let all = std::iter::once((Value::Nothing, Some(0))).chain(values);
    all.filter(|(value, since)| !had_gone(*value, *since)).map(|(value, _)| (0, value)).collect()
}

/// An object made by an operation without an answer from before a fault: no index of those after it.
const EARLIER: usize = 1 << 32;

/// The operations between two faults: one that a fault met has an unknown outcome, on both sides of it.
fn between(history: &[Event], begin: Option<u64>, end: Option<u64>) -> Vec<Event> {
    let within = |event: &Event| {
        let is_before = end.is_some_and(|end| event.called >= end);
        let is_behind = begin.is_some_and(|begin| !event.seen.is_unknown() && event.returned <= begin);
        let is_met =
            begin.is_some_and(|begin| event.called <= begin) || end.is_some_and(|end| event.returned >= end);
        let seen = match event.seen {
            _ if is_before || is_behind => return None,
            seen if !is_met || seen.is_unknown() => seen,
            Seen::Made(handle) | Seen::Put(handle) => Seen::MaybePut(handle),
            Seen::Removed => Seen::MaybeRemoved,
            _ => return None,
        };
        Some(Event { seen, ..*event })
    };
    history.iter().filter_map(within).collect()
}

/// The same of a name that led to any of these at first.
fn judge_from(history: &[Event], mut positions: BTreeSet<(u32, Value)>) -> Verdict {
    let (mut unknown, mut known): (Vec<Event>, Vec<Event>) =
        history.iter().partition(|event| event.seen.is_unknown());
    unknown.sort_by_key(|event| event.called);
    known.sort_by_key(|event| event.called);
    if unknown.len() > UNKNOWN_MAX {
        return Verdict::TooLong;
    }
    for window in windows(&known) {
        match behind(&positions, window, &unknown) {
            None => return Verdict::TooLong,
            Some(after) if after.is_empty() => return Verdict::Impossible(window.to_vec()),
            Some(after) => positions = after,
        }
    }
    Verdict::Linearizable
}

/// Cut at every moment at which all that was called has returned.
fn windows(known: &[Event]) -> Vec<&[Event]> {
    let (mut windows, mut from, mut until) = (Vec::new(), 0, 0);
    for (index, event) in known.iter().enumerate() {
        if index > from && event.called > until {
            windows.push(&known[from..index]);
            from = index;
        }
        until = until.max(event.returned);
    }
    if from < known.len() {
        windows.push(&known[from..]);
    }
    windows
}

/// All positions after a window that can be reached from those before it; `None`: there is too much to
/// search.
fn behind(
    before: &BTreeSet<(u32, Value)>,
    window: &[Event],
    unknown: &[Event],
) -> Option<BTreeSet<(u32, Value)>> {
    if window.len() > EVENTS_MAX {
        return None;
    }
    let all = (1_u128 << window.len()) - 1;
    let mut behind = BTreeSet::new();
    let mut seen = BTreeSet::new();
    let mut open: Vec<(u128, u32, Value)> = before.iter().map(|&(spent, value)| (0, spent, value)).collect();
    while let Some((done, spent, value)) = open.pop() {
        if !seen.insert((done, spent, value)) {
            continue;
        }
        if seen.len() > POSITIONS_MAX {
            return None;
        }
        if done == all {
            behind.insert((spent, value));
            continue;
        }
        // Nothing that is called after another has returned stands before it.
        let waits = |index: &usize| done & (1 << index) == 0;
        let pending = (0..window.len()).filter(waits);
        let horizon = pending.clone().map(|index| window[index].returned).min().unwrap_or(u64::MAX);
        for index in pending.filter(|&index| window[index].called <= horizon) {
            if let Some(next) = after(value, window[index].seen, 0) {
                open.push((done | 1 << index, spent, next));
            }
        }
        for (index, event) in unknown.iter().enumerate() {
            if spent & (1 << index) == 0
                && event.called <= horizon
                && let Some(next) = after(value, event.seen, index)
            {
                open.push((done, spent | 1 << index, next));
            }
        }
    }
    Some(behind)
}

/// The value after an operation, if its result is possible.
fn after(value: Value, seen: Seen, index: usize) -> Option<Value> {
    let empty = value == Value::Nothing;
    match seen {
        Seen::Made(handle) => empty.then_some(Value::Object(handle)),
        Seen::MaybeMade => empty.then_some(Value::Untold(index)),
        Seen::MaybeTook(handle) => empty.then_some(Value::Object(handle)),
        Seen::Occupied => (!empty).then_some(value),
        Seen::Put(handle) | Seen::MaybePut(handle) => Some(Value::Object(handle)),
        Seen::Removed | Seen::MaybeRemoved => (!empty).then_some(Value::Nothing),
        Seen::Nothing => Some(value),
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

    fn is_linearizable(history: &[Event]) -> bool {
        judge(history) == Verdict::Linearizable
    }

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

    #[test]
    fn a_long_history_is_judged_window_by_window_and_an_early_fault_is_found() {
        let mut history = vec![event(0, 0, Seen::MaybeMade)];
        for round in 1..1000 {
            let at = round * 10;
            history.push(event(at, at + 5, Seen::Put(round)));
            history.push(event(at + 3, at + 8, Seen::Found(round)));
        }
        assert!(is_linearizable(&history));
        history.push(event(15_000, 15_001, Seen::Found(999)));
        assert!(is_linearizable(&history));
        history.push(event(5_009, 5_009, Seen::Found(7)));
        let Verdict::Impossible(window) = judge(&history) else { panic!("a value came back") };
        assert_eq!(window.len(), 1);
        let unanswered = (0..=UNKNOWN_MAX as u64).map(|at| event(at, 0, Seen::MaybeMade));
        assert_eq!(judge(&unanswered.collect::<Vec<_>>()), Verdict::TooLong);
    }

    #[test]
    fn a_name_taken_by_one_who_may_not_replace_led_to_nothing() {
        let maybe = event(2, 0, Seen::MaybeTook(5));
        assert!(!is_linearizable(&[event(0, 1, Seen::Made(1)), maybe, event(7, 8, Seen::Found(5))]));
        assert!(is_linearizable(&[event(0, 1, Seen::Missing), maybe, event(7, 8, Seen::Found(5))]));
    }

    #[test]
    fn what_a_fault_may_have_taken_back_leads_to_something_of_before_and_then_one_order_holds_again() {
        let (made, removed) = (event(0, 1, Seen::Made(7)), event(2, 3, Seen::Removed));
        let found = |at, handle| event(at, at + 1, Seen::Found(handle));
        let over =
            |history: &[Event], faults: &[u64]| judge_over(history, faults, false) == Verdict::Linearizable;
        assert!(over(&[made, removed, found(20, 7)], &[10]), "the removal was lost");
        assert!(over(&[made, event(20, 21, Seen::Missing)], &[10]), "the making was lost");
        assert!(!over(&[made, removed, found(5, 7)], &[10]), "not before the fault");
        assert!(!over(&[made, found(20, 7), event(22, 23, Seen::Missing)], &[10]), "nor behind it");
        assert!(!over(&[made, found(20, 8)], &[10]), "nobody made that");
        assert!(over(&[made, event(9, 12, Seen::Removed), found(20, 7), found(30, 7)], &[10]));
        assert!(over(
            &[made, event(9, 12, Seen::Removed), found(20, 7), event(30, 31, Seen::Missing)],
            &[10]
        ));
        assert!(over(&[event(2, 0, Seen::MaybeMade), found(20, 9), found(30, 9)], &[10]));
    }

    #[test]
    fn what_somebody_saw_before_a_fault_is_not_taken_back_by_it_where_what_is_seen_is_durable() {
        let found = |at, handle| event(at, at + 1, Seen::Found(handle));
        let (one, two) = (event(0, 1, Seen::Put(1)), event(2, 3, Seen::Put(2)));
        let over = |history: &[Event]| judge_over(history, &[10], true) == Verdict::Linearizable;
        assert!(over(&[one, two, found(20, 1)]), "nobody saw the second");
        assert!(!over(&[one, two, found(5, 2), found(20, 1)]));
        assert!(over(&[one, two, found(5, 2), event(7, 8, Seen::Put(3)), found(20, 2)]));
        assert!(!over(&[one, found(5, 1), event(20, 21, Seen::Missing)]), "nor what was before all of it");
        assert!(over(&[one, event(2, 0, Seen::MaybePut(2)), found(5, 1), found(20, 2)]), "it came late");
        assert!(over(&[one, event(2, 6, Seen::Put(2)), found(4, 1), found(20, 2)]));
        let removed = event(2, 3, Seen::Removed);
        assert!(over(&[one, removed, event(20, 21, Seen::Missing)]) && over(&[one, removed, found(20, 1)]));
        assert!(!over(&[one, removed, event(5, 6, Seen::Missing), found(20, 1)]));
    }
}
