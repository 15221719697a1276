//! Publication: bytes of the tail become objects.
//!
//! **A put without an answer may be done, also later.** Its condition holds once. So the next publication
//! makes the same put of a part again, and knows by the bytes whether it was done; of a name it knows which
//! puts were tried. Otherwise a file would be refused as another process's after an outage of the store.

use super::Body;
use super::parts::{Part, Parts};
use crate::calls::Put;
use crate::format::Named;
use crate::name_space::PATIENCE;
use crate::store::When;
use crate::{BESIDE_NAME_MAX, PART_BYTES_MAX, PART_BYTES_MIN, PARTS_MAX};
use bytes::Bytes;
use shoal_proto::Status;
use shoal_vfs::{Error, Result};

impl Body {
    /// Bring a short last part into memory, to go on with it. The caller has the turn.
    pub(super) async fn load_tail(&self, op: &'static str) -> Result<()> {
        let last = {
            let mut state = self.state.borrow_mut();
            if state.is_tail_loaded {
                return Ok(());
            }
            let last = state.parts.last().filter(|part| part.len < PART_BYTES_MIN as u64).cloned();
            state.is_tail_loaded = last.is_none();
            // No open replaces the state from now on.
            state.has_written |= last.is_some();
            last
        };
        let Some(part) = last else { return Ok(()) };
        let data = self.part(part.at, 0..part.len).await.map_err(|error| Error { op, ..error })?;
        let mut state = self.state.borrow_mut();
        state.parts.pop();
        (state.tail_at, state.published) = (part.at, data.len());
        (state.tail, state.tail_tag, state.is_tail_loaded) = (data.to_vec(), Some(part.tag), true);
        Ok(())
    }

    /// Publish all. The caller has the turn.
    pub(super) async fn publish(&self, op: &'static str) -> Result<()> {
        let published = self.publish_all(op).await;
        self.is_crowded(&self.state.borrow());
        published
    }

    async fn publish_all(&self, op: &'static str) -> Result<()> {
        if !self.state.borrow().is_dirty() {
            return Ok(());
        }
        self.remove_cut(op).await?;
        self.state.borrow_mut().is_name_put = false;
        let is_small = {
            let state = self.state.borrow();
            !state.named.has_parts && state.tail.len() <= BESIDE_NAME_MAX
        };
        if is_small {
            let content = Bytes::copy_from_slice(&self.state.borrow().tail);
            self.put_name(op, content, false).await?;
            let mut state = self.state.borrow_mut();
            state.published = state.tail.len();
            state.has_new_bytes = false;
            return Ok(());
        }
        let (has_parts, is_cut) = {
            let state = self.state.borrow();
            (state.named.has_parts, state.named.content != state.stored.content)
        };
        match (has_parts, is_cut) {
            (false, _) => self.spill(op).await?,
            // A part that follows must not lie over bytes that were cut.
            (true, true) => self.put_attributes(op).await?,
            (true, false) => {}
        }
        while self.state.borrow().has_new_bytes {
            self.put_part(op).await?;
        }
        if self.state.borrow().has_new_attributes {
            self.put_attributes(op).await?;
        }
        Ok(())
    }

    /// Put the object of its name, which has parts.
    async fn put_attributes(&self, op: &'static str) -> Result<()> {
        let content = self.state.borrow().named.content.clone();
        self.put_name(op, content, true).await
    }

    /// From now on it has parts; bytes beside the name stay there.
    async fn spill(&self, op: &'static str) -> Result<()> {
        let content = {
            let state = self.state.borrow();
            Bytes::copy_from_slice(&state.tail[..state.published.min(BESIDE_NAME_MAX)])
        };
        let beside = content.len();
        self.put_name(op, content, true).await?;
        let mut state = self.state.borrow_mut();
        state.tail = state.tail.split_off(beside);
        (state.tail_at, state.published, state.tail_tag) = (beside as u64, 0, None);
        state.has_new_bytes = !state.tail.is_empty();
        Ok(())
    }

    /// Publish the next bytes of the tail as a part.
    async fn put_part(&self, op: &'static str) -> Result<()> {
        if self.put_unsure(op).await? {
            return Ok(());
        }
        let (key, data, when) = {
            let state = self.state.borrow();
            if state.tail_tag.is_none() && !state.tail.is_empty() && state.parts.len() >= PARTS_MAX {
                return Err(self.has_many_parts(op));
            }
            let len = state.tail.len().min(PART_BYTES_MAX);
            let key = self.shared.keys.part(state.named.id, state.tail_at);
            let when = state.tail_tag.clone().map_or(When::Absent, When::Is);
            (key, Bytes::copy_from_slice(&state.tail[..len]), when)
        };
        if data.is_empty() {
            {
                let mut state = self.state.borrow_mut();
                let state = &mut *state;
                if state.tail_tag.take().is_some() {
                    state.cut.push_back(state.tail_at);
                }
                state.has_new_bytes = false;
            }
            return self.remove_cut(op).await;
        }
        self.state.borrow_mut().unsure = Some((data.clone(), when.clone()));
        let put = self.shared.calls.put(op, &key, data.clone(), when.clone()).await?;
        let put = self.follows(op, &key, &when, put).await?;
        self.did_put(op, &data, put)
    }

    /// A new part was put. It does not stay where the one before it, or the content before the first one, is
    /// another one by now, as another process cut the file. (A part that is put again has its version as the
    /// condition.)
    async fn follows(&self, op: &'static str, key: &str, when: &When, put: Put) -> Result<Put> {
        let (Put::Done(_), When::Absent) = (&put, when) else { return Ok(put) };
        let (id, before, is_sure) = {
            let state = self.state.borrow();
            (state.named.id, state.parts.last().cloned(), state.is_name_put || state.is_unlinked)
        };
        let follows = match before {
            Some(before) => {
                let before_key = self.shared.keys.part(id, before.at);
                let now = self.shared.calls.get_range(op, &before_key, 0..1).await?;
                now.is_some_and(|now| now.tag == before.tag)
            }
            None => {
                is_sure || self.name_now(op).await?.is_some_and(|now| self.state.borrow().may_be_own(&now))
            }
        };
        if follows {
            return Ok(put);
        }
        self.shared.calls.delete(op, key).await?;
        match self.name_now(op).await? {
            Some(_) => Ok(Put::Refused),
            None => Err(self.is_elsewhere(op)),
        }
    }

    /// The object of its name as it is in the store, if that still names this file.
    async fn name_now(&self, op: &'static str) -> Result<Option<Named>> {
        let place = self.shared.place_of(op, self.handle)?;
        let found = self.shared.find(op, place.as_ref()).await?;
        Ok(found.map(|(named, _)| named).filter(|named| self.shared.is_it(self.handle, named)))
    }

    /// Make the last put of a part again, if its result is not known; whether it was.
    pub(super) async fn put_unsure(&self, op: &'static str) -> Result<bool> {
        let (key, unsure) = {
            let state = self.state.borrow();
            (self.shared.keys.part(state.named.id, state.tail_at), state.unsure.clone())
        };
        let Some((data, when)) = unsure else { return Ok(false) };
        let put = self.shared.calls.put_again(op, &key, data.clone(), when.clone()).await?;
        let put = self.follows(op, &key, &when, put).await?;
        self.did_put(op, &data, put).map(|()| true)
    }

    /// The put of these bytes at the beginning of the tail was answered. The tail may have changed since.
    fn did_put(&self, op: &'static str, data: &Bytes, put: Put) -> Result<()> {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        // A refused one is compared again at the next publication: an earlier try may be done since.
        let Put::Done(tag) = put else { return Err(self.other_writer(op)) };
        state.unsure = None;
        state.modified = Some(self.shared.now());
        let is_as_now = state.tail.starts_with(data);
        if data.len() < PART_BYTES_MIN || !is_as_now {
            (state.tail_tag, state.published) = (Some(tag), data.len().min(state.tail.len()));
            state.has_new_bytes = !is_as_now || data.len() < state.tail.len();
            return Ok(());
        }
        let (at, len) = (state.tail_at, data.len() as u64);
        state.parts.push(Part { at, len, tag });
        // Its room is given back, too.
        state.tail = state.tail.split_off(data.len());
        (state.tail_at, state.published, state.tail_tag) = (at + len, 0, None);
        state.has_new_bytes = !state.tail.is_empty();
        Ok(())
    }

    /// A longer table would be refused by all that read it.
    fn has_many_parts(&self, op: &'static str) -> Error {
        let words = format!(
            "it has {PARTS_MAX} parts, the most that a file may have: its last bytes are not published; sync less \
             often, or write a further file"
        );
        self.refused(op, Status::FileTooBig, &words)
    }

    fn other_writer(&self, op: &'static str) -> Error {
        let words = "another process writes this file: over an object store a file has one writer; use containers \
                     (`container`), in which each process writes its own";
        self.refused(op, Status::Busy, words)
    }

    fn is_elsewhere(&self, op: &'static str) -> Error {
        self.refused(op, Status::Stale, "another process moved or removed it: look its name up again")
    }

    /// Put the object of its name. Attributes that another process set meanwhile stay.
    async fn put_name(&self, op: &'static str, content: Bytes, has_parts: bool) -> Result<()> {
        let begun = self.shared.env.now();
        loop {
            let (named, tag, had_parts) = {
                let state = self.state.borrow();
                let named = Named { content: content.clone(), has_parts, ..state.named.clone() };
                (named, state.tag.clone(), state.named.has_parts)
            };
            if self.is_unlinked() {
                // Its bytes go with its last close; parts that it gets are named for those that clean up.
                if has_parts && !had_parts {
                    self.shared.mark_going(op, named.id).await?;
                }
                self.state.borrow_mut().named = named;
                break;
            }
            let place = self.shared.place_of(op, self.handle)?;
            let key = self.shared.key(place.as_ref());
            self.shared.calls.may_repeat(op, &key, begun, PATIENCE)?;
            let put = match tag {
                Some(tag) => {
                    self.state.borrow_mut().tries(has_parts, &content);
                    self.shared.calls.put(op, &key, self.shared.object(&named), When::Is(tag)).await?
                }
                None => Put::Refused,
            };
            if let Put::Done(tag) = put {
                let mut state = self.state.borrow_mut();
                (state.stored, state.named, state.tag) = (named.clone(), named, Some(tag));
                state.tried.clear();
                state.is_name_put = true;
                break;
            }
            let now = self.shared.settled(op, place.as_ref()).await?;
            let Some((now, tag)) = now.filter(|(now, _)| self.shared.is_it(self.handle, now)) else {
                return Err(self.is_elsewhere(op));
            };
            if !self.state.borrow_mut().has_version(&now, Some(tag)) {
                return Err(self.other_writer(op));
            }
        }
        self.state.borrow_mut().has_new_attributes = false;
        Ok(())
    }

    /// Remove the parts that were cut, the last one first, so that those that stay follow each other.
    async fn remove_cut(&self, op: &'static str) -> Result<()> {
        loop {
            let (id, at) = {
                let state = self.state.borrow();
                (state.named.id, state.cut.front().copied())
            };
            let Some(at) = at else { return Ok(()) };
            self.shared.calls.delete(op, &self.shared.keys.part(id, at)).await?;
            self.state.borrow_mut().cut.pop_front();
        }
    }

    /// Parts that another process put, and that lie after the new end, are cut, too: otherwise they would lie
    /// after a gap. (Where bytes of the tail stay, their put is refused as long as such parts are there.)
    ///
    /// **None is removed unless the bytes before the new end are still those of this process**: the part in
    /// which it lies has the version that is known, or else the object of the name has the content that is
    /// (test: `a_cut_in_the_name_that_is_refused_has_removed_nothing`).
    async fn cut_others(&self, op: &'static str, size: u64) -> Result<()> {
        let (id, may_have, is_in_name) = {
            let state = self.state.borrow();
            let is_in_name = size <= state.named.content.len() as u64 && !state.is_unlinked;
            (state.named.id, state.named.has_parts && size <= state.tail_at, is_in_name)
        };
        if !may_have {
            return Ok(());
        }
        if is_in_name {
            // No part vouches for it, and the put of the name comes too late to refuse.
            let now = self.name_now(op).await?.ok_or_else(|| self.is_elsewhere(op))?;
            if !self.state.borrow().may_be_own(&now) {
                return Err(self.other_writer(op));
            }
        }
        let there = Parts::all(&self.shared, op, id).await?;
        let mut state = self.state.borrow_mut();
        let is_there = |part: &Part| there.iter().any(|(at, tag)| (*at, tag) == (part.at, &part.tag));
        if !state.parts.iter().rev().take_while(|part| part.at + part.len >= size).all(|part| {
            // One that is removed whole may be another one by now.
            part.at >= size || is_there(part)
        }) {
            return Err(self.other_writer(op));
        }
        let is_own = |at: u64| {
            (at == state.tail_at && state.tail_tag.is_some())
                || state.parts.binary_search_by_key(&at, |part| part.at).is_ok()
        };
        let others: Vec<u64> =
            there.iter().map(|(at, _)| *at).filter(|at| *at >= size && !is_own(*at)).collect();
        state.cut.extend(others);
        Ok(())
    }

    /// Cut it; a crash leaves a beginning of what was there. The caller has the turn, and loaded the tail.
    pub(super) async fn cut(&self, size: u64) -> Result<()> {
        let op = "truncate";
        self.remove_cut(op).await?;
        self.state.borrow_mut().is_name_put = false;
        self.put_unsure(op).await?;
        self.cut_others(op, size).await?;
        if size >= self.state.borrow().tail_at {
            let mut state = self.state.borrow_mut();
            state.cut.make_contiguous().sort_unstable_by(|one, other| other.cmp(one));
            let len = (size - state.tail_at) as usize;
            if len < state.tail.len() {
                state.tail.truncate(len);
                state.published = state.published.min(len);
                state.has_new_bytes = true;
            }
            return Ok(());
        }
        {
            // It has none of them any more, also where this is given up before they are removed.
            let mut state = self.state.borrow_mut();
            let state = &mut *state;
            if state.tail_tag.take().is_some() {
                state.cut.push_back(state.tail_at);
            }
            state.tail.clear();
            while let Some(part) = state.parts.pop_if(|part| part.at >= size) {
                state.cut.push_back(part.at);
                state.tail_at = part.at;
            }
            state.cut.make_contiguous().sort_unstable_by(|one, other| other.cmp(one));
            (state.published, state.has_new_bytes) = (0, !state.cut.is_empty());
        }
        self.remove_cut(op).await?;
        let last = self.state.borrow().parts.last().cloned();
        if let Some(part) = last.filter(|part| part.at + part.len > size) {
            let kept = self.part(part.at, 0..size - part.at).await?;
            let mut state = self.state.borrow_mut();
            state.parts.pop();
            (state.tail_at, state.tail, state.tail_tag) = (part.at, kept.to_vec(), Some(part.tag));
            state.has_new_bytes = true;
        }
        let mut state = self.state.borrow_mut();
        if size < state.named.content.len() as u64 {
            state.named.content = state.named.content.slice(..size as usize);
            (state.tail_at, state.has_new_attributes) = (size, true);
        }
        Ok(())
    }
}
