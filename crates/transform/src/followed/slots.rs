//! The domains that are open, and how they are closed.
//!
//! Each domain has a slot, and one task at a time opens or closes the domain in it. **A domain stays in its
//! slot until its close is done**: then all bytes that were written are in the directory below, and durable.
//! Calls that come during the close wait, and then open the domain anew. So an fsync through the new
//! instance covers what the former one wrote. If the close fails (a full disk), the domain stays in use with
//! its unwritten bytes, and the close is tried again later. A failed sync that no file has reported is kept
//! with the root for the next instance.

use super::domain::{Domain, Layout};
use super::{Followed, Shared};
use crate::composed::{OTHERS_MAX, OTHERS_PAUSE};
use crate::limits::DOMAINS_OPEN_MAX;
use shoal_env::local::{Permit, Semaphore};
use shoal_proto::{Handle, Status};
use shoal_vfs::{Error, Result, Vfs};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

/// A composed domain is closed when nothing used it for this long to twice as long.
const IDLE_SPAN: Duration = Duration::from_secs(2);

/// The place of a domain among those that are open.
pub(super) struct Slot<B: Vfs> {
    /// One opens or closes it.
    turn: Semaphore,
    domain: RefCell<Option<Rc<Domain<B>>>>,
    /// Since idle ones were looked for.
    is_used: Cell<bool>,
    is_closing: Cell<bool>,
    /// Its close failed, which is in the log.
    has_failed: Cell<bool>,
}

/// While it lives, a slot's domain is being closed, and no call can use it.
struct Closing<B: Vfs> {
    slot: Rc<Slot<B>>,
    _turn: Permit,
}

impl<B: Vfs> Drop for Closing<B> {
    fn drop(&mut self) {
        self.slot.is_closing.set(false);
    }
}

impl<B: Vfs> Slot<B> {
    fn new() -> Rc<Slot<B>> {
        Rc::new(Slot {
            turn: Semaphore::new(1),
            domain: RefCell::default(),
            is_used: Cell::new(true),
            is_closing: Cell::new(false),
            has_failed: Cell::new(false),
        })
    }

    /// The domain, if calls may use it.
    pub(super) fn open(&self) -> Option<Rc<Domain<B>>> {
        self.domain.borrow().clone().filter(|_| !self.is_closing.get())
    }

    pub(super) fn is_open(&self) -> bool {
        self.domain.borrow().is_some() && !self.is_closing.get()
    }

    fn is_composed(&self) -> bool {
        let is_one = |domain: &Rc<Domain<B>>| matches!(domain.layout, Layout::Composed(_));
        self.domain.borrow().as_ref().is_some_and(is_one)
    }

    /// Whether a call is in the domain. The slot has one reference itself.
    fn has_calls(&self) -> bool {
        self.domain.borrow().as_ref().is_some_and(|domain| Rc::strong_count(domain) > 1)
    }

    /// Whether a call is in it, or has it in hand. The table has one reference itself.
    fn is_in_use(self: &Rc<Self>) -> bool {
        Rc::strong_count(self) > 1 || self.has_calls()
    }

    /// Begin to close the domain, unless it is in use.
    fn begin_close(self: &Rc<Self>, turn: Permit) -> Option<Closing<B>> {
        if self.has_calls() {
            return None;
        }
        self.is_closing.set(true);
        Some(Closing { slot: self.clone(), _turn: turn })
    }
}

impl<B: Vfs> Followed<B> {
    /// The domain of a root, opened if it is not open.
    pub(super) async fn domain(&self, root: Handle) -> Result<Rc<Domain<B>>> {
        loop {
            let slot = self.0.slots.borrow_mut().get_or_insert(root, Slot::new).clone();
            slot.is_used.set(true);
            if let Some(domain) = slot.open() {
                return Ok(domain);
            }
            let _turn = slot.turn.acquire(1).await;
            if let Some(domain) = slot.open() {
                return Ok(domain);
            }
            // The table may have dropped it meanwhile.
            if !self.0.has_slot(root, &slot) {
                continue;
            }
            let facts = self.0.roots.borrow().get(&root).cloned();
            let opened = match facts {
                Some(facts) => Domain::open(&self.0, root, &facts).await,
                None => Err(Error::new(Status::Stale, "look up").of(root)),
            };
            let Ok(domain) = opened else {
                self.0.drop_slot(root, &slot);
                return opened;
            };
            slot.domain.replace(Some(domain.clone()));
            self.0.close_beyond(DOMAINS_OPEN_MAX);
            self.0.look_for_idle();
            return Ok(domain);
        }
    }

    /// Close the domain of a root, and then do some work before it can be opened again.
    ///
    /// # Errors
    /// `Busy`: other calls are in it. Errors of its close: then it stays open, and the work is not done.
    pub(super) async fn closed_during<T>(
        &self,
        root: Handle,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let until = self.0.env.now() + OTHERS_MAX;
        let slot = self.0.slots.borrow_mut().get_or_insert(root, Slot::new).clone();
        let closing = loop {
            let turn = slot.turn.acquire(1).await;
            if let Some(closing) = slot.begin_close(turn) {
                break closing;
            }
            if self.0.env.now() >= until {
                let words = "calls or open listings of this program are in it: end them first";
                return Err(Error::new(Status::Busy, "rmdir").because(words));
            }
            self.0.env.sleep(OTHERS_PAUSE).await;
        };
        let done = match self.0.end(root, &slot, true).await {
            Ok(()) => work.await,
            Err(error) => Err(error),
        };
        drop(closing);
        if !slot.is_open() {
            self.0.drop_slot(root, &slot);
        }
        done
    }

    /// Make all durable that this process wrote in composed directories, also in those that are being closed.
    pub(super) async fn sync_domains(&self) -> Result<()> {
        let slots: Vec<_> = self.0.slots.borrow().iter().map(|(_, slot)| slot.clone()).collect();
        let mut synced = Ok(());
        for slot in slots.iter().filter(|slot| slot.is_composed()) {
            let _turn = if slot.is_closing.get() { Some(slot.turn.acquire(1).await) } else { None };
            let domain = slot.open();
            if let Some(domain) = domain {
                synced = synced.and(domain.sync().await);
            }
        }
        synced
    }

    /// End all domains: the program ends.
    pub(super) async fn end_domains(&self) {
        while let Some((root, slot)) = { self.0.slots.borrow_mut().pop_lru() } {
            let Ok(_turn) = self.0.env.deadline(self.deadline(), slot.turn.acquire(1)).await else {
                tracing::warn!("a directory with a layout of its own is not closed in time");
                continue;
            };
            if let Err(error) = self.0.end(root, &slot, false).await {
                tracing::error!("a directory with a layout of its own is not closed: {error}");
            }
        }
    }
}

impl<B: Vfs> Shared<B> {
    fn has_slot(&self, root: Handle, slot: &Rc<Slot<B>>) -> bool {
        self.slots.borrow().peek(&root).is_some_and(|there| Rc::ptr_eq(there, slot))
    }

    /// Take a slot without a domain out of the table, unless other tasks have it in hand.
    fn drop_slot(&self, root: Handle, slot: &Rc<Slot<B>>) {
        if Rc::strong_count(slot) <= 2 && self.has_slot(root, slot) {
            self.slots.borrow_mut().pop(&root);
        }
    }

    /// End the domain of a slot, in the slot's turn. If that fails it stays open.
    async fn end(&self, root: Handle, slot: &Slot<B>, goes_on: bool) -> Result<()> {
        let Some(domain) = slot.domain.borrow().clone() else { return Ok(()) };
        let ended = domain.end(goes_on).await;
        if let Some(facts) = self.roots.borrow_mut().get_mut(&root) {
            facts.has_lost = domain.has_lost();
        }
        match ended {
            // Nothing is left that could be ended.
            Err(error) if !matches!(error.status, Status::Stale | Status::NotFound) => Err(error),
            _ => {
                slot.domain.take();
                Ok(())
            }
        }
    }

    /// Close domains that nothing uses until so many are open, the one that was not used longest first.
    fn close_beyond(self: &Rc<Self>, most: usize) {
        let (open, idle) = {
            let slots = self.slots.borrow();
            let open = slots.iter().filter(|(_, slot)| slot.is_open()).count();
            let idle = slots.iter().rev().filter(|(_, slot)| slot.is_open() && !slot.is_in_use());
            (open, idle.map(|(root, _)| *root).take(open.saturating_sub(most)).collect::<Vec<_>>())
        };
        if open > most {
            idle.into_iter().for_each(|root| self.close_later(root));
        }
    }

    /// Close a domain in the background.
    fn close_later(self: &Rc<Self>, root: Handle) {
        let Some(slot) = self.slots.borrow().peek(&root).cloned() else { return };
        let Some(closing) = slot.turn.try_acquire(1).and_then(|turn| slot.begin_close(turn)) else { return };
        let shared = self.clone();
        self.env.spawn("close a layout", async move {
            let ended = shared.end(root, &slot, true).await;
            drop(closing);
            match ended {
                Ok(()) => shared.drop_slot(root, &slot),
                Err(error) if slot.has_failed.replace(true) => tracing::debug!("{error}"),
                Err(error) => {
                    tracing::warn!("the directory {root} is not closed, which is tried again: {error}");
                }
            }
        });
    }

    /// Close composed domains that nothing uses for a while.
    fn look_for_idle(self: &Rc<Self>) {
        if self.looks_for_idle.replace(true) {
            return;
        }
        let (weak, env) = (Rc::downgrade(self), self.env.clone());
        self.env.spawn("close layouts that are not used", async move {
            loop {
                env.sleep(IDLE_SPAN).await;
                let Some(shared) = weak.upgrade() else { return };
                let composed: Vec<Handle> = {
                    let slots = shared.slots.borrow();
                    let is_idle = |slot: &Rc<Slot<B>>| !slot.is_used.replace(false) && !slot.is_in_use();
                    let idle = slots.iter().filter(|(_, slot)| slot.is_composed() && is_idle(slot));
                    idle.map(|(root, _)| *root).collect()
                };
                composed.into_iter().for_each(|root| shared.close_later(root));
                if !shared.slots.borrow().iter().any(|(_, slot)| slot.is_composed()) {
                    shared.looks_for_idle.set(false);
                    return;
                }
            }
        });
    }
}
