//! Moves and exchanges of names.
//!
//! ```text
//!   put FROM, the same with a claim: "moves to TO", if unchanged       one process moves it
//!   put m/ID, the new name, if it is a directory                       a hint ([`crate::directories`])
//!   put TO, the object, if absent or unchanged                         decides
//!   get the name of TO's directory                                     if it is gone, take the move back
//!   list a directory that was at TO                                    if it has entries, take the move back
//!   delete FROM; an exchange: put FROM, the other object
//! ```
//!
//! A process that reads FROM between the first and the last step looks at TO: if that leads to the object,
//! FROM does not any more. So at each moment the object has one name. A process that ends leaves FROM with
//! its claim: it leads where it did, or nowhere, and the next process that changes the name finishes the
//! step ([`Shared::settled`](crate::vfs::Shared)). An object says which name it had before, so that no
//! process takes its new name away while a claim is left at the old one, which would lead to it again. A move
//! that may not be decided in its lease gives up.

use crate::calls::Put;
use crate::directories::Leftover;
use crate::format::{Claim, Id, Named, Place};
use crate::name_space::{Begun, LEASE, PATIENCE, Version};
use crate::store::{Tag, When};
use crate::vfs::Shared;
use shoal_proto::limits::PATH_COMPONENTS_MAX;
use shoal_proto::{Handle, Kind, Name, Status};
use shoal_vfs::{Error, RenameFlags, Result};
use std::time::Duration;

const OP: &str = "rename";
/// Before a move is tried again, at most.
const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// Both names of a move, as they were found.
struct Move<'a> {
    from: &'a Place,
    to: &'a Place,
    moved: Named,
    moved_tag: Tag,
    target: Option<(Named, Tag)>,
    flags: RenameFlags,
}

impl Shared {
    /// Move a name.
    pub(crate) async fn rename(
        &self,
        from: (Handle, &Name),
        to: (Handle, &Name),
        flags: RenameFlags,
    ) -> Result<()> {
        let (from, to) = (self.place(OP, from.0, from.1)?, self.place(OP, to.0, to.1)?);
        let (mut pause, key, begun) = (PAUSE_MIN, self.keys.name(&from), self.env.now());
        loop {
            self.calls.may_repeat(OP, &key, begun, PATIENCE)?;
            let found = self.settled(OP, Some(&from)).await?;
            let (moved, moved_tag) = found.ok_or_else(|| Error::new(Status::NotFound, OP))?;
            if from == to {
                return if flags.no_replace { Err(Error::new(Status::Exists, OP)) } else { Ok(()) };
            }
            let target = self.settled(OP, Some(&to)).await?;
            let m = Move { from: &from, to: &to, moved, moved_tag, target, flags };
            self.check(&m).await?;
            let mut goes_on = self.leaves(OP, &from, &m.moved, &m.moved_tag).await?;
            if let Some((target, tag)) = &m.target {
                goes_on &= self.leaves(OP, &to, target, tag).await?;
            }
            if goes_on && self.step(m).await? {
                return Ok(());
            }
            // Two that claim each other's names must not do so again in step.
            self.env.sleep(pause.mul_f64((self.env.random_u64() % 1024) as f64 / 1024.0)).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    async fn check(&self, m: &Move<'_>) -> Result<()> {
        let refused = |status| Err(Error::new(status, OP));
        // In one directory nothing gets another way to the root.
        let is_near = m.from.dir == m.to.dir;
        if !is_near && self.is_within(m.to.dir, &m.moved).await? {
            return refused(Status::Invalid);
        }
        let Some((target, _)) = &m.target else {
            return if m.flags.exchange { refused(Status::NotFound) } else { Ok(()) };
        };
        if m.flags.no_replace {
            return refused(Status::Exists);
        }
        if m.flags.exchange {
            let is_below = !is_near && self.is_within(m.from.dir, target).await?;
            return if is_below { refused(Status::Invalid) } else { Ok(()) };
        }
        match (m.moved.kind == Kind::Directory, target.kind == Kind::Directory) {
            (true, false) => refused(Status::NotDirectory),
            (false, true) => refused(Status::IsDirectory),
            (true, true) if self.left_in(OP, target.id).await?.is_none() => refused(Status::NotEmpty),
            _ => Ok(()),
        }
    }

    /// Whether a directory is `above`, or lies below it. The store says so: other processes may have moved
    /// the directories on the way since this one saw them.
    async fn is_within(&self, mut dir: Id, above: &Named) -> Result<bool> {
        if above.kind != Kind::Directory {
            return Ok(false);
        }
        for _ in 0..PATH_COMPONENTS_MAX {
            if dir == above.id || dir == Id::ROOT {
                return Ok(dir == above.id);
            }
            let Some(place) = self.place_now(OP, dir).await? else {
                let words =
                    "another process moved or removed a directory above the new name: look that up again";
                return Err(Error::new(Status::Stale, OP).because(words));
            };
            dir = place.dir;
        }
        let words = format!(
            "{}: the directories above lead to each other: `shoal container check` names them",
            self.calls.called()
        );
        Err(Error::new(Status::Io, OP).because(words))
    }

    /// One try; whether it was done. Otherwise one of the names changed meanwhile.
    async fn step(&self, m: Move<'_>) -> Result<bool> {
        // Not while this process publishes one of them.
        let mut ids = vec![m.moved.id];
        ids.extend(m.target.as_ref().map(|(target, _)| target.id));
        let _turns = self.turns_of(ids).await;
        let begun = self.begin();
        let (from_key, to_key) = (self.keys.name(m.from), self.keys.name(m.to));
        let swap = m.target.as_ref().map(|(target, _)| target).filter(|_| m.flags.exchange);
        let replaced = m.target.as_ref().map(|(target, _)| target).filter(|_| !m.flags.exchange);
        let gone = replaced.filter(|target| target.has_parts).map(|target| target.id);
        let claim = Claim {
            token: Id::draw(&self.env),
            to: m.to.clone(),
            replaced: gone,
            swap: swap.map(|swap| Box::new(Named { moved_from: None, ..swap.clone() })),
        };
        let claimed = Named { claim: Some(claim), ..m.moved.clone() };
        let put = self.calls.put(OP, &from_key, self.object(&claimed), When::Is(m.moved_tag.clone())).await?;
        let Put::Done(claim_tag) = put else { return Ok(false) };
        let (half, others) = (begun.0 + LEASE / 2, swap.map(|swap| (swap, m.from)));
        for (named, place) in std::iter::once((&m.moved, m.to)).chain(others) {
            self.says_where(OP, named, place, half).await;
        }
        let moved = Named { ctime: self.now(), moved_from: Some(m.from.clone()), ..m.moved.clone() };
        let when = m.target.as_ref().map_or(When::Absent, |(_, tag)| When::Is(tag.clone()));
        let put = match self.lease(begun) {
            Some(until) => self.calls.put_until(OP, &to_key, self.object(&moved), when, until).await?,
            None => Put::Refused,
        };
        let (put, tag) = match put {
            Put::Done(tag) => (Some(Some(tag.clone())), Some(tag)),
            // The answer may be lost, and attributes changed since: it stays there while the claim is left.
            Put::Refused => (self.version_of(OP, m.to, moved.id).await?, None),
        };
        let Some(to_tag) = put else {
            self.calls.put(OP, &from_key, self.object(&m.moved), When::Is(claim_tag)).await?;
            return Ok(false);
        };
        if m.target.is_none() && !self.is_there(OP, m.to.dir).await? {
            return self.take_back(&m, to_tag, claim_tag, begun).await;
        }
        let mut left = Vec::new();
        if let Some(target) = replaced.filter(|target| target.kind == Kind::Directory) {
            // An entry that was made meanwhile keeps it, as in a removal.
            match self.left_in(OP, target.id).await? {
                Some(found) => left = found,
                None => return self.give_back(&m, target, &claimed, claim_tag).await,
            }
        }
        self.moved(&m, &moved, tag);
        match swap {
            Some(swap) => {
                let swap = Named { moved_from: None, ..swap.clone() };
                let put = self.calls.put(OP, &from_key, self.object(&swap), When::Is(claim_tag)).await;
                self.swapped(&m, &swap, put);
            }
            None => self.cleared(&m, begun, left).await,
        }
        Ok(true)
    }

    /// The object was moved into a directory that another process removed meanwhile. It gets its old name
    /// again, before it loses the new one, to which nothing leads. A process that removes the old directory
    /// waits for that ([`Shared::left_in`]), unless it took this one for one that ended.
    async fn take_back(&self, m: &Move<'_>, to_tag: Version, claim_tag: Tag, begun: Begun) -> Result<bool> {
        let from_key = self.keys.name(m.from);
        let mut put = self.calls.put(OP, &from_key, self.object(&m.moved), When::Is(claim_tag)).await?;
        // Another process took the move for done.
        if put == Put::Refused && self.settled(OP, Some(m.from)).await?.is_none() {
            put = self.calls.put(OP, &from_key, self.object(&m.moved), When::Absent).await?;
        }
        let tag = match put {
            Put::Done(tag) => Some(tag),
            // The answer may be lost, and attributes changed since.
            Put::Refused if self.version_of(OP, m.from, m.moved.id).await?.is_some() => None,
            Put::Refused => return Err(self.cut_off(m.to, "its old name is another object's")),
        };
        if !self.is_there(OP, m.from.dir).await? {
            return Err(self.cut_off(m.to, "its old directory and its new one were removed"));
        }
        // It has a name: no process may take it for a file whose parts are to be removed.
        if let Some(to_tag) = to_tag
            && let Some(_ended) = self.end(OP, m.to, Id::ROOT, to_tag).await?
        {
            self.clear(OP, m.to, begun).await;
        }
        self.version_is(&m.moved, tag);
        let words = "another process removed its new directory: look that up again";
        Err(Error::new(Status::Stale, OP).because(words))
    }

    /// An entry was made in the directory that the move replaced. That gets its name again, and the object
    /// its old one: by one put, while the claim says that it moves. The claim is put anew first, so that no
    /// process takes the move for done meanwhile.
    async fn give_back(&self, m: &Move<'_>, target: &Named, claimed: &Named, claim_tag: Tag) -> Result<bool> {
        let (from_key, to_key, begun) = (self.keys.name(m.from), self.keys.name(m.to), self.env.now());
        let mut put = self.calls.put(OP, &from_key, self.object(claimed), When::Is(claim_tag)).await?;
        // Another process did that already.
        if put == Put::Refused && self.settled(OP, Some(m.from)).await?.is_none() {
            put = self.calls.put(OP, &from_key, self.object(claimed), When::Absent).await?;
        }
        let why = "another process made an entry in the directory that was there";
        let Put::Done(claim_tag) = put else { return Err(self.cut_off(m.to, why)) };
        if !self.is_there(OP, m.from.dir).await? {
            return Err(self.cut_off(m.to, why));
        }
        let until = begun + (PATIENCE - LEASE);
        let mut is_given = false;
        // Its attributes may be changed meanwhile, by a process that found it there.
        while !is_given && self.env.now() < until {
            let Some(Some(tag)) = self.version_of(OP, m.to, m.moved.id).await? else { break };
            let put = self.calls.put_until(OP, &to_key, self.object(target), When::Is(tag), until).await?;
            is_given = matches!(put, Put::Done(_));
        }
        if !is_given {
            return Err(self.cut_off(m.to, why));
        }
        self.says_where(OP, &m.moved, m.from, until).await;
        self.calls.put(OP, &from_key, self.object(&m.moved), When::Is(claim_tag)).await?;
        Err(Error::new(Status::NotEmpty, OP))
    }

    /// An object at a place could not get its name again.
    fn cut_off(&self, place: &Place, why: &str) -> Error {
        let words = format!(
            "other processes changed {}/{} during its move, and it could not be taken back: {why}; `shoal container \
             check` names the object without a name",
            self.calls.called(),
            self.keys.name(place)
        );
        Error::new(Status::Busy, OP).because(words)
    }

    /// A file that is open here has its name as before, in this version.
    fn version_is(&self, named: &Named, tag: Version) {
        let nodes = self.nodes.borrow();
        if let Some(body) = nodes.known(named.id).and_then(|handle| nodes.body(handle)) {
            body.has_version(named, tag);
        }
    }

    /// The object has its new name.
    fn moved(&self, m: &Move<'_>, moved: &Named, tag: Version) {
        let now = self.now();
        let mut nodes = self.nodes.borrow_mut();
        nodes.changed(m.from.dir, now);
        nodes.changed(m.to.dir, now);
        let handle = nodes.moves(moved, m.to);
        if let Some(body) = nodes.body(handle) {
            body.has_version(moved, tag);
        }
    }

    /// The other object of an exchange has its name. It leads there already where the put failed: the claim
    /// says so.
    fn swapped(&self, m: &Move<'_>, swap: &Named, put: Result<Put>) {
        let mut nodes = self.nodes.borrow_mut();
        let handle = nodes.moves(swap, m.from);
        match (put, nodes.body(handle)) {
            (Ok(Put::Done(tag)), Some(body)) => body.has_version(swap, Some(tag)),
            (Err(error), _) => tracing::debug!("an exchange is left for the next change to finish: {error}"),
            _ => {}
        }
    }

    /// The old name goes, and a file or an empty directory that was replaced.
    async fn cleared(&self, m: &Move<'_>, begun: Begun, left: Vec<Leftover>) {
        let is_marked = match &m.target {
            Some((target, _)) => self.lost_name(OP, target).await,
            None => true,
        };
        if is_marked {
            self.clear(OP, m.from, begun).await;
        }
        if let Some((target, _)) = &m.target
            && target.kind == Kind::Directory
        {
            self.sweep(OP, target.id, left).await;
        }
    }
}
