//! Exclusive creation of names: of several processes that make the same name, only one succeeds.
//!
//! ```text
//!   1. make the marker of the name             if it exists, another process makes the name: `Exists`
//!   2. read the records published since        if the name is there, remove the marker: `Exists`
//!   3. log the name, publish it, remove the marker
//! ```
//!
//! If two processes make the same name, only one of them can make the marker. The second process may make
//! the marker after the first has removed it. But the first process published the name before that, so step
//! 2 of the second process finds the name. A marker holds the number of the object that is being made: an
//! open without `O_EXCL` that meets the marker uses the same object.
//!
//! **A call that is given up leaves no marker.** Its future may be dropped at any of these steps. Then a
//! task looks for the marker, and removes it if it names the object of that call. The task waits for its
//! turn among the calls that change names, because a retry of the call may use the same marker.
//!
//! **A marker is a symbolic link to `ID.OBJECT`**, which appears whole. In a file system of one machine it is
//! a hard link of a *token*, a file of the writer with the same bytes, once the writer makes more than a few
//! names. A token is used again and again, so a marker takes no new inode: ext4 looks at each inode that was
//! freed in the last minute before it takes one, so a million markers made and removed would cost the square
//! of their number. A token's bytes have a checksum with the marker's name: the bytes of a token that holds
//! another name meanwhile are not believed.

use super::changes::Key;
use super::{Shared, names_of};
use crate::writer_id::WriterId;
use bytes::Bytes;
use shoal_env::mutant::{self, Mutant};
use shoal_proto::{Handle, Kind, Name, Rights, Status};
use shoal_vfs::{Error, Result, Vfs, VfsFile};
use std::collections::BTreeSet;
use std::rc::Rc;

/// Tries to make a marker that others make and give back.
const TRIES_MAX: u32 = 100;
/// So many names are marked by symbolic links before a writer makes a token: most writers make no more.
const UNTIL_TOKEN: u64 = 4;
/// Tokens of a writer: names that it makes at the same time, or has not published.
const TOKENS_MAX: u64 = 16;
/// Bytes of a token that are read.
const TOKEN_READ: usize = 128;

/// A file whose links are markers.
pub(super) struct Token<F> {
    handle: Handle,
    name: Name,
    file: F,
}

/// A marker that is there until what was logged is published.
pub(super) struct Mark<B: Vfs> {
    pub(super) name: Name,
    pub(super) token: Option<Token<B::File>>,
}

/// The holder of a marker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum MarkedBy {
    /// This writer makes the name, as this object.
    Writer(WriterId, u64),
    /// It was given back.
    Nobody,
    /// It is no marker.
    Foreign,
}

/// A marker that a call has made, or tries to make.
pub(super) struct Marker<B: Vfs> {
    shared: Rc<Shared<B>>,
    name: Name,
    /// The object that the call makes.
    object: u64,
    token: Option<Token<B::File>>,
    /// It is given back, or with what is published next; or it is another's.
    is_settled: bool,
}

impl<B: Vfs> Drop for Marker<B> {
    fn drop(&mut self) {
        // Only a token that no late link can reach is used again.
        let token = self.token.take();
        if self.is_settled {
            self.shared.tokens.borrow_mut().extend(token);
            return;
        }
        let (shared, name, object) = (self.shared.clone(), self.name.clone(), self.object);
        self.shared.env.spawn("give a name's marker back", async move {
            let _turn = shared.naming.acquire(1).await;
            // It goes when the name is published that a retry has logged.
            if !shared.log.awaits_mark(&name) {
                let own = MarkedBy::Writer(shared.log.id.get(), object);
                if shared.marked_by(&name).await.is_ok_and(|by| by == own) {
                    shared.give_back(&name).await;
                }
            }
            if let Some(token) = token {
                shared.discard(token).await;
            }
        });
    }
}

/// The state of a name that is to be made.
pub(super) enum Claimed<B: Vfs> {
    /// The name is free, and this process's until it is published; `None`: nothing holds it.
    Own(Option<Marker<B>>),
    /// The name leads to an object already.
    Taken(u64),
    /// Another process is making it, as this object.
    Making(u64),
}

impl<B: Vfs> Shared<B> {
    /// Claim a name for a new object. This process changes no names meanwhile.
    pub(super) async fn claim_name(
        self: &Rc<Self>,
        dir: u64,
        name: &Name,
        object: u64,
    ) -> Result<Claimed<B>> {
        let known = || self.names.borrow().find(dir, name);
        if let Some(taken) = known() {
            return Ok(Claimed::Taken(taken));
        }
        if self.own_names || mutant::is(Mutant::NameWithoutMarker) {
            return Ok(Claimed::Own(None));
        }
        self.hold().await?;
        let mark = names_of::mark(dir, name)?;
        let key = Key::of_name(dir, name);
        let own = MarkedBy::Writer(self.log.id.get(), object);
        for _ in 0..TRIES_MAX {
            let token = self.token_for(object, &mark).await;
            let mut marker =
                Marker { shared: self.clone(), name: mark.clone(), object, token, is_settled: false };
            match self.make_marker(&marker).await {
                Ok(()) => {}
                Err(error) if error.status == Status::Exists => match self.marked_by(&mark).await? {
                    // The reply to this writer's own try was lost.
                    by if by == own => {}
                    // This writer made the name and lost it: it is free when that is published.
                    MarkedBy::Writer(by, _) if by == self.log.id.get() && self.log.awaits_mark(&mark) => {
                        marker.is_settled = true;
                        self.publish().await?;
                    }
                    MarkedBy::Writer(_, making) => {
                        marker.is_settled = true;
                        self.refresh().await?;
                        return Ok(known().map_or(Claimed::Making(making), Claimed::Taken));
                    }
                    MarkedBy::Nobody => marker.is_settled = true,
                    MarkedBy::Foreign => {
                        marker.is_settled = true;
                        return Err(foreign(&mark));
                    }
                },
                Err(error) => return Err(error),
            }
            if marker.is_settled {
                continue;
            }
            let fresh = self.look_surely(key).await;
            if let Some(taken) = known() {
                self.not_logged(Some(marker)).await;
                return Ok(Claimed::Taken(taken));
            }
            if let Err(error) = fresh {
                self.not_logged(Some(marker)).await;
                return Err(error);
            }
            return Ok(Claimed::Own(Some(marker)));
        }
        Err(Error::new(Status::Busy, "create").because("others make and remove it all the time"))
    }

    async fn make_marker(&self, marker: &Marker<B>) -> Result<()> {
        if let Some(token) = &marker.token {
            match self.over.link(token.handle, self.marks, &marker.name).await {
                // Without an answer the link may be made later: the token is not used again.
                Err(error) if matches!(error.status, Status::Exists | Status::TimedOut) => return Err(error),
                // Too many links, or none at all: a symbolic link does as well.
                Err(error) => tracing::debug!("a marker is no link: {error}"),
                Ok(_) => return Ok(()),
            }
        }
        let target = format!("{}.{:x}", self.log.id.get(), marker.object);
        self.over.symlink(self.marks, &marker.name, self.owner, target.as_bytes()).await.map(drop)
    }

    /// A token with the bytes of a marker, if this writer uses them and has one free.
    async fn token_for(&self, object: u64, mark: &Name) -> Option<Token<B::File>> {
        if !self.links_marks() {
            return None;
        }
        self.marked.set(self.marked.get() + 1);
        let free = self.tokens.borrow_mut().pop();
        let token = match free {
            Some(token) => token,
            None if self.marked.get() <= UNTIL_TOKEN || self.tokens_made.get() >= TOKENS_MAX => return None,
            None => {
                let name = names_of::token(self.log.id.get(), self.marked.get()).ok()?;
                let rights = Rights::READ | Rights::WRITE;
                let (attr, _, file) =
                    self.over.create(self.marks, &name, self.owner, true, rights).await.ok()?;
                self.tokens_made.set(self.tokens_made.get() + 1);
                Token { handle: attr.handle, name, file }
            }
        };
        let bytes = names_of::token_bytes(self.log.id.get(), object, mark);
        if let Err(error) = token.file.write(0, Bytes::from(bytes)).await {
            tracing::debug!("a marker is no link: {error}");
            // A write without an answer may be done later: nothing is marked by this token.
            self.discard(token).await;
            return None;
        }
        Some(token)
    }

    /// The holder of a marker.
    pub(super) async fn marked_by(&self, mark: &Name) -> Result<MarkedBy> {
        let is_gone = |error: &Error| matches!(error.status, Status::NotFound | Status::Stale);
        let found = match self.over.lookup(self.marks, mark).await {
            Ok(found) => found,
            Err(error) if is_gone(&error) => return Ok(MarkedBy::Nobody),
            Err(error) => return Err(error),
        };
        let by = match found.kind {
            Kind::Symlink => self.over.readlink(found.handle).await,
            Kind::File => self.bytes_of_token(mark).await,
            _ => return Ok(MarkedBy::Foreign),
        };
        let by = match by {
            Ok(by) => by,
            Err(error) if is_gone(&error) => return Ok(MarkedBy::Nobody),
            Err(error) if error.status == Status::Invalid => return Ok(MarkedBy::Foreign),
            Err(error) => return Err(error),
        };
        let parsed = match found.kind {
            Kind::Symlink => names_of::marked(&by),
            _ if names_of::is_token(&by) => match names_of::token_marked(&by, mark) {
                // The token holds another name by now.
                None => return Ok(MarkedBy::Nobody),
                parsed => parsed,
            },
            _ => None,
        };
        Ok(parsed.map_or(MarkedBy::Foreign, |(writer, object)| MarkedBy::Writer(writer, object)))
    }

    async fn bytes_of_token(&self, mark: &Name) -> Result<Bytes> {
        let file = self.over.open_name(self.marks, mark, Rights::READ).await?;
        let bytes = file.read(0, TOKEN_READ).await?;
        file.close().await?;
        Ok(bytes)
    }

    /// Whether a marker is a link of a token of no running writer, without its own bytes: bytes of a token
    /// are never synced, so a power cut may leave a marker without them, or with those of the marker before.
    pub(super) async fn is_cut_short(&self, mark: &Name, tokens: &BTreeSet<u64>) -> Result<bool> {
        let found = match self.over.lookup(self.marks, mark).await {
            Err(error) if error.status == Status::NotFound => return Ok(false),
            found => found?,
        };
        if found.kind != Kind::File || tokens.contains(&found.handle.0) {
            return Ok(false);
        }
        let bytes = self.bytes_of_token(mark).await?;
        Ok(bytes.iter().all(|byte| *byte == 0) || names_of::is_token(&bytes))
    }

    /// The name was logged: its marker is given back when that is published.
    pub(super) fn logged(&self, marker: Option<Marker<B>>) {
        if let Some(mut marker) = marker {
            marker.is_settled = true;
            self.log.holds_mark(Mark { name: marker.name.clone(), token: marker.token.take() });
        }
    }

    /// The name was not logged.
    pub(super) async fn not_logged(&self, marker: Option<Marker<B>>) {
        if let Some(mut marker) = marker {
            marker.is_settled = self.give_back(&marker.name).await;
        }
    }

    /// Remove a marker, or a token; whether it is gone.
    pub(super) async fn give_back(&self, mark: &Name) -> bool {
        match self.over.unlink(self.marks, mark).await {
            Err(error) if error.status != Status::NotFound => {
                tracing::warn!("a name's marker is left: {error}");
                false
            }
            _ => true,
        }
    }

    /// The writer ends: no marker is a link of its tokens.
    pub(super) async fn remove_tokens(&self) {
        for token in self.tokens.take() {
            self.discard(token).await;
        }
    }

    /// Nothing is marked by a token any more.
    pub(super) async fn discard(&self, token: Token<B::File>) {
        self.tokens_made.set(self.tokens_made.get() - 1);
        self.give_back(&token.name).await;
    }
}

fn foreign(mark: &Name) -> Error {
    let words = format!("`names/{mark}` is not a marker of this program: move it away");
    Error::new(Status::Io, "create").because(words)
}
