//! The grants of one long write, and the bytes that its client sent for them.
//!
//! A grant names packed bytes of the write's pattern. The client answers the grants of a write in their
//! order. To each grant it sends exactly those of the named bytes that belong to the stream; anything else
//! ends the connection. **Room for a grant's bytes is reserved before the grant is sent**, so the bytes are
//! accepted as soon as they arrive.

use bytes::Bytes;
use shoal_env::local::Notify;
use shoal_pattern::Window;
use shoal_proto::message::{Give, Grant};
use std::cell::RefCell;
use std::collections::VecDeque;

/// See the module's page.
#[derive(Default)]
pub struct Grants {
    /// Granted and not given yet, with the bytes that the stream has of each.
    open: RefCell<VecDeque<(Window, u64)>>,
    /// Given and not taken yet.
    given: RefCell<VecDeque<Bytes>>,
    came: Notify,
}

impl Grants {
    /// Packed bytes are granted, of which the stream has so many.
    pub fn grant(&self, window: Window, bytes: u64) -> Grant {
        self.open.borrow_mut().push_back((window, bytes));
        Grant { from: window.from, len: window.len }
    }

    /// The client gave something.
    ///
    /// # Errors
    /// It was not granted, or is not the next one, in words.
    pub fn give(&self, give: Give, bulk: Bytes) -> Result<(), &'static str> {
        let mut open = self.open.borrow_mut();
        let Some(&(window, bytes)) = open.front() else { return Err("it was not granted") };
        if (window.from, window.len) != (give.from, give.len) {
            return Err("it is not what was granted next");
        }
        if bulk.len() as u64 != bytes {
            return Err("it has another number of bytes than was granted");
        }
        open.pop_front();
        self.given.borrow_mut().push_back(bulk);
        self.came.wake_all();
        Ok(())
    }

    /// The next bytes that were given.
    pub fn take(&self) -> Option<Bytes> {
        self.given.borrow_mut().pop_front()
    }

    /// Whether the client still has to give something.
    pub fn is_open(&self) -> bool {
        !self.open.borrow().is_empty()
    }

    /// Woken when something is given.
    pub fn came(&self) -> &Notify {
        &self.came
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_granted_comes_twice_or_has_another_length_is_refused() {
        let grants = Grants::default();
        let give = |from, len, bytes: usize| grants.give(Give { from, len }, vec![1; bytes].into());
        assert!(give(0, 10, 10).unwrap_err().contains("not granted"));
        grants.grant(Window::new(0, 10), 10);
        // Of the second the stream has a part.
        grants.grant(Window::new(10, 30), 20);
        for (from, len) in [(10, 30), (0, 11), (1, 10), (0, u64::MAX)] {
            assert!(give(from, len, 10).unwrap_err().contains("next"), "{from} {len}");
        }
        assert!(give(0, 10, 9).unwrap_err().contains("another number of bytes"));
        give(0, 10, 10).unwrap();
        assert!(give(0, 10, 10).is_err(), "it came before");
        assert!(grants.is_open());
        give(10, 30, 20).unwrap();
        assert!(!grants.is_open());
        assert_eq!(
            [grants.take(), grants.take(), grants.take()].map(|b| b.map(|b| b.len())),
            [Some(10), Some(20), None]
        );
    }
}
