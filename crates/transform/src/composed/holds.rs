//! Names that are removed, renamed or replaced are held against changes by other processes.
//!
//! ```text
//!   1. hold the names: a marker each           if another process has one, give all back, wait, begin again
//!   2. read the records published since        the old name may be gone: `NotFound`
//!   3. log the change, publish it, remove the markers
//! ```
//! So of two renames or removals of one name only one finds it, and a name that one process gives to a file
//! is not taken away by another one that has not seen this. A rename holds both of its names. None is waited
//! for while another one is held, so no two processes wait for each other.
//!
//! **A name that this process has logged, and not published, is held already**: the next change of it needs
//! no marker, and its marker is given back when that is published.
//!
//! A file that another process makes by the new name of a rename, and has not closed, may stay unpublished
//! for hours. The rename does not wait for it: its record is the newer one.
//!
//! With `names=own` no name is held.

use super::log::Log;
use super::marks::{Mark, Marker, Number, TRIES_MAX, Tried};
use super::{Shared, names_of};
use shoal_env::{Env, Instant};
use shoal_proto::{Handle, Name, Status};
use shoal_vfs::{Error, Result, Vfs};
use std::rc::Rc;
use std::time::Duration;

/// The change of a name by another process is waited for so long: with `buffer=block` it is published after
/// five seconds.
const WAITED_MAX: Duration = Duration::from_secs(10);
/// Between two looks, at first and at most.
const PAUSE_MIN: Duration = Duration::from_micros(100);
const PAUSE_MAX: Duration = Duration::from_millis(10);
/// After so long it is looked whether the other process runs.
const DEAD_AFTER: Duration = Duration::from_millis(1);
/// A name whose object is not published after so long belongs to an open file.
const UNPUBLISHED_AFTER: Duration = Duration::from_millis(20);

/// A call that waits for names.
pub(super) struct Waiting {
    env: Env,
    since: Instant,
    pause: Duration,
}

impl Waiting {
    pub(super) fn new(env: &Env) -> Waiting {
        Waiting { env: env.clone(), since: env.now(), pause: PAUSE_MIN }
    }

    /// The span since the wait began.
    pub(super) fn began(&self) -> Duration {
        Duration::from_nanos(self.env.now().0.saturating_sub(self.since.0))
    }

    /// # Errors
    /// `Busy`: it has lasted too long.
    pub(super) async fn pause(&mut self, mark: &Name) -> Result<()> {
        if self.began() >= WAITED_MAX {
            let words = format!(
                "another process changes this name, and does not end: `names/{mark}` in the directory below begins with its \
                 number, and `claims/w.NUMBER` names it"
            );
            return Err(Error::new(Status::Busy, "change").because(words));
        }
        self.env.sleep(self.pause).await;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        Ok(())
    }
}

/// The result of a try to hold one name.
enum Hold<B: Vfs> {
    Own(Marker<B>),
    /// Its holder is not waited for.
    Without,
    /// Another process changes it.
    Busy,
}

impl<B: Vfs> Log<B> {
    /// A name is held until what was logged is published.
    pub(super) fn holds_mark(&self, mark: Mark<B>) {
        self.marks.borrow_mut().push(mark);
    }

    /// Whether a name is held so.
    pub(super) fn awaits_mark(&self, mark: &Name) -> bool {
        self.marks.borrow().iter().any(|held| held.name == *mark)
    }

    /// Take a name that is held so, unless it is being given back.
    pub(super) fn take_mark(&self, mark: &Name) -> Option<Mark<B>> {
        if self.leaving.borrow().as_ref() == Some(mark) {
            return None;
        }
        let mut marks = self.marks.borrow_mut();
        let at = marks.iter().rposition(|held| held.name == *mark)?;
        Some(marks.remove(at))
    }
}

impl<B: Vfs> Shared<B> {
    /// All names that were logged are published: give their markers back.
    /// One by one: the call may be given up.
    pub(super) async fn give_marks_back(&self) {
        let log = &self.log;
        loop {
            let Some(name) = log.marks.borrow().last().map(|mark| mark.name.clone()) else { return };
            log.leaving.replace(Some(name.clone()));
            let is_gone = self.give_back(&name).await;
            log.leaving.replace(None);
            let given = {
                let mut marks = log.marks.borrow_mut();
                let at = marks.iter().rposition(|mark| mark.name == name);
                at.map(|at| marks.remove(at))
            };
            match given.and_then(|mark| mark.token) {
                Some(token) if is_gone => self.tokens.borrow_mut().push(token),
                Some(token) => self.discard(token).await,
                None => {}
            }
        }
    }

    /// The number of a marker of a name that is changed.
    pub(super) fn draw_change(&self) -> Number {
        Number::of_change(self.env.random_u64())
    }

    /// Hold names, each with the number of its marker. This process changes no names meanwhile.
    ///
    /// # Errors
    /// The first that occurs; `Ok(Err(mark))`: another process holds this one, and none is held.
    pub(super) async fn hold_names(
        self: &Rc<Self>,
        names: &[(Handle, &Name, Number)],
        waiting: &Waiting,
    ) -> Result<std::result::Result<Vec<Marker<B>>, Name>> {
        let mut held = Vec::new();
        if !self.marks_names() {
            return Ok(Ok(held));
        }
        self.hold().await?;
        let mut marks = Vec::new();
        for (dir, name, number) in names {
            marks.push((names_of::mark(dir.0, name)?, *number));
        }
        // In one order: of two calls that need the same names one gets them.
        marks.sort_by(|one, other| one.0.cmp(&other.0));
        for (mark, number) in marks {
            match self.hold_name(&mark, number, waiting).await {
                Ok(Hold::Own(marker)) => held.push(marker),
                Ok(Hold::Without) => {}
                Ok(Hold::Busy) => {
                    self.not_logged(held).await;
                    return Ok(Err(mark));
                }
                Err(error) => {
                    self.not_logged(held).await;
                    return Err(error);
                }
            }
        }
        Ok(Ok(held))
    }

    async fn hold_name(self: &Rc<Self>, mark: &Name, number: Number, waiting: &Waiting) -> Result<Hold<B>> {
        for _ in 0..TRIES_MAX {
            if let Some(marker) = self.take_mark(mark) {
                return Ok(Hold::Own(marker));
            }
            if self.log.awaits_mark(mark) {
                // It is being given back.
                self.publish().await?;
            }
            match self.try_mark(mark, number).await? {
                Tried::Own(marker) => return Ok(Hold::Own(marker)),
                Tried::Unpublished | Tried::Gone => {}
                Tried::Of(by, other) => {
                    if waiting.began() >= DEAD_AFTER && self.take_from_dead(mark, by).await {
                        continue;
                    }
                    if let Some(object) = other.object()
                        && waiting.began() >= UNPUBLISHED_AFTER
                    {
                        self.refresh().await?;
                        if !self.is_known(object) {
                            return Ok(Hold::Without);
                        }
                    }
                    return Ok(Hold::Busy);
                }
            }
        }
        Ok(Hold::Busy)
    }
}
