//! The bytes that a connection may hold for its long reads and long writes.
//!
//! A connection *holds* the bytes that wait to be sent, the pieces that are being read, and the pieces that
//! are granted and not written yet. A piece is read or granted only if the connection then holds no more than
//! its credit. **So a client that reads or sends nothing costs a bounded amount, and delays no other
//! client.** All connections share one budget of 192 MiB. Each connection may use an eighth of the remaining
//! budget, and always one piece, so the present connections cannot stop a further connection.

use super::Line;
use shoal_env::local::{Permit, Semaphore};
use shoal_proto::limits;
use std::cell::RefCell;
use std::rc::{Rc, Weak};

/// Bytes that all connections of a shard hold for pieces, but for the one that each of them may hold.
const BUDGET_BYTES: usize = 192 * 1024 * 1024;
/// The part of what is left of the budget that one connection may take.
const PART: usize = 8;

/// Transfers that walk to their next piece in one round of the thread. A walk over tiny records takes some
/// 100 µs, so a small operation that comes meanwhile waits for that and not for every transfer in hand.
const WALKS_MAX: u64 = 4;

/// The connections that hold something for long transfers, and turns to walk.
pub struct Credits {
    lines: RefCell<Vec<Weak<Line>>>,
    walks: Semaphore,
}

impl Default for Credits {
    fn default() -> Credits {
        Credits { lines: RefCell::default(), walks: Semaphore::new(WALKS_MAX) }
    }
}

impl Credits {
    /// A long read or a long write begins on a connection.
    pub fn enter(&self, line: &Rc<Line>) {
        let mut lines = self.lines.borrow_mut();
        lines.retain(|other| other.upgrade().is_some_and(|other| holds_something(&other)));
        if !lines.iter().any(|other| other.as_ptr() == Rc::as_ptr(line)) {
            lines.push(Rc::downgrade(line));
        }
    }

    /// The turn to walk to a piece, if one is free: kept until the thread was given to others.
    pub fn try_walk(&self) -> Option<Permit> {
        self.walks.try_acquire(1)
    }

    /// The same, waiting for one.
    pub async fn walk(&self) -> Permit {
        self.walks.acquire(1).await
    }

    /// Bytes that all of them hold.
    pub fn held_bytes(&self) -> usize {
        self.lines.borrow().iter().filter_map(Weak::upgrade).map(|line| line.held_bytes()).sum()
    }

    /// Bytes that a connection may hold now.
    pub fn of(&self, line: &Line) -> usize {
        let left = BUDGET_BYTES.saturating_sub(self.held_bytes());
        (line.held_bytes() + left / PART).min(limits::CREDIT_BYTES)
    }
}

fn holds_something(line: &Line) -> bool {
    !line.is_dead() && (line.flows() > 0 || line.held_bytes() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIECE: usize = limits::FLOW_CHUNK_BYTES;

    #[test]
    fn a_connection_holds_its_credit_and_a_thousand_of_them_no_more_than_the_budget_and_a_piece_each() {
        let credits = Credits::default();
        let lines: Vec<Rc<Line>> = (0..1000).map(|number| Line::new(format!("{number}"), 4)).collect();
        let mut rooms = Vec::new();
        for line in &lines {
            assert!(line.begin_long_read(1));
            credits.enter(line);
            while let Some(room) = line.room(PIECE, credits.of(line)) {
                rooms.push(room);
            }
            assert!((PIECE..=limits::CREDIT_BYTES).contains(&line.held_bytes()));
        }
        assert_eq!(lines[0].held_bytes(), limits::CREDIT_BYTES);
        assert!(credits.held_bytes() <= BUDGET_BYTES + lines.len() * PIECE);
        rooms.clear();
        assert_eq!(credits.held_bytes(), 0);
        lines.iter().for_each(|line| line.answered(1, 0, 0));
        credits.enter(&lines[0]);
        assert_eq!(credits.lines.borrow().len(), 1, "the others hold nothing");
    }

    #[test]
    fn room_that_is_given_back_is_there_again_once() {
        let line = Line::new("a".to_owned(), 4);
        let credit = 3 * PIECE;
        let room = || line.room(PIECE, credit);
        let (mut first, second) = (room().unwrap(), room().unwrap());
        let third = room().unwrap();
        assert!(room().is_none(), "all credit is held");
        first.shrink_to(100);
        assert_eq!(line.held_bytes(), 2 * PIECE + 100);
        drop(first);
        assert_eq!(line.held_bytes(), 2 * PIECE);
        let again = room().unwrap();
        assert!(room().is_none());
        drop((second, third, again));
        assert_eq!(line.held_bytes(), 0);
    }
}
