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
//! **A name that is removed or renamed is held by a marker as well** ([`holds`](super::holds)). So a marker's
//! number says whether an open without `O_EXCL` may share the object:
//!
//! ```text
//!   OBJECT                  a file, or an object that has a name already: the open uses it
//!   OBJECT with bit 63 set  an object that is no file: an odd number, so that it differs from the next line
//!   even, with bit 63 set   the name is being removed or renamed: the open waits
//! ```
//! Programs of before these marks take each number for one of the first line: a process of theirs that opens
//! such a name at the same time makes a file of its own.
//!
//! **A marker is a symbolic link to `ID.OBJECT`**, which appears whole. In a file system of one machine it is
//! a hard link of a *token*, a file of the writer with the same bytes, once the writer makes more than a few
//! names. A token is used again and again, so a marker takes no new inode: ext4 looks at each inode that was
//! freed in the last minute before it takes one, so a million markers made and removed would cost the square
//! of their number. A token's bytes have a checksum with the marker's name: the bytes of a token that holds
//! another name meanwhile are not believed.

use super::change::Unpublished;
use super::changes::Key;
use super::holds::Waiting;
use super::{Shared, fails, names_of};
use crate::writer_id::WriterId;
use bytes::Bytes;
use shoal_env::mutant::{self, Mutant};
use shoal_proto::{Handle, Kind, Name, Rights, Status};
use shoal_vfs::{Error, Result, Vfs, VfsFile};
use std::rc::Rc;
use std::time::Duration;

/// Tries to make a marker that others make and give back.
pub(super) const TRIES_MAX: u32 = 100;
/// An open waits so long for a directory or a link of its name to be published, and then says what it is.
const OTHER_KIND_MAX: Duration = Duration::from_millis(100);
/// Set in the number of a marker whose object no other process may make.
const RESERVED: u64 = 1 << 63;
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

/// The number of a marker: see the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Number(pub(super) u64);

impl Number {
    /// The name is given to this object. Directories of earlier programs may have even numbers: an open
    /// waits for those.
    pub(super) fn of(object: u64, kind: Kind) -> Number {
        Number(if kind == Kind::File { object } else { object | RESERVED })
    }

    /// The name is removed, or given to another object; random bits.
    pub(super) fn of_change(random: u64) -> Number {
        Number((random | RESERVED) & !1)
    }

    /// An open of the name without `O_EXCL` may make the object.
    fn is_shared(self) -> bool {
        self.0 & RESERVED == 0
    }

    /// The object that the name is given to.
    pub(super) fn object(self) -> Option<u64> {
        (self.is_shared() || self.0 & 1 == 1).then_some(self.0 & !RESERVED)
    }
}

/// The holder of a marker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum MarkedBy {
    /// This writer makes or changes the name.
    Writer(WriterId, Number),
    /// It was given back.
    Nobody,
    /// It is no marker.
    Foreign,
}

/// A marker that a call has made, or tries to make.
pub(super) struct Marker<B: Vfs> {
    shared: Rc<Shared<B>>,
    name: Name,
    number: Number,
    token: Option<Token<B::File>>,
    /// Its name was logged before this call, and is not published: the marker stays until it is.
    is_logged: bool,
    /// It is given back, or with what is published next; or it is another's.
    is_settled: bool,
}

/// The result of one try to make a marker.
pub(super) enum Tried<B: Vfs> {
    Own(Marker<B>),
    /// It is of this process's, for a change that is not published yet.
    Unpublished,
    /// It was given back.
    Gone,
    /// Another process has it.
    Of(WriterId, Number),
}

impl<B: Vfs> Drop for Marker<B> {
    fn drop(&mut self) {
        // Only a token that no late link can reach is used again.
        let token = self.token.take();
        if self.is_settled {
            self.shared.tokens.borrow_mut().extend(token);
            return;
        }
        if self.is_logged {
            self.shared.log.holds_mark(Mark { name: self.name.clone(), token });
            match self.shared.buffers_blocks {
                true => self.shared.begin_timer(),
                false => drop(Unpublished::new(&self.shared)),
            }
            return;
        }
        let (shared, name, number) = (self.shared.clone(), self.name.clone(), self.number);
        self.shared.env.spawn("give a name's marker back", async move {
            let _turn = shared.naming.acquire(1).await;
            // It goes when the name is published that a retry has logged.
            if !shared.log.awaits_mark(&name) {
                let own = MarkedBy::Writer(shared.log.id.get(), number);
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
    /// Claim a name for an object that it is given to. This process changes no names meanwhile. `is_open`: an
    /// object that another process makes by this name will do.
    pub(super) async fn claim_name(
        self: &Rc<Self>,
        dir: u64,
        name: &Name,
        number: Number,
        is_open: bool,
    ) -> Result<Claimed<B>> {
        let known = || self.names.borrow().find(dir, name);
        if let Some(taken) = known() {
            return Ok(Claimed::Taken(taken));
        }
        if !self.marks_names() {
            return Ok(Claimed::Own(None));
        }
        self.hold().await?;
        let mark = names_of::mark(dir, name)?;
        let key = Key::of_name(dir, name);
        let (mut waiting, mut tries) = (Waiting::new(&self.env), 0);
        while tries < TRIES_MAX {
            tries += 1;
            let marker = match self.try_mark(&mark, number).await? {
                Tried::Own(marker) => marker,
                Tried::Gone => continue,
                // This process made the name and lost it: it is free when that is published.
                Tried::Unpublished => {
                    self.publish().await?;
                    continue;
                }
                Tried::Of(by, making) => {
                    self.refresh().await?;
                    if let Some(taken) = known() {
                        return Ok(Claimed::Taken(taken));
                    }
                    let object = making.object();
                    if let Some(object) = object.filter(|object| making.is_shared() || self.is_known(*object))
                        && is_open
                    {
                        return Ok(Claimed::Making(object));
                    }
                    if self.take_from_dead(&mark, by).await {
                        continue;
                    }
                    match object {
                        Some(object) if !is_open => return Ok(Claimed::Making(object)),
                        Some(_) if waiting.began() >= OTHER_KIND_MAX => {
                            return Err(fails(Status::IsDirectory, "create", Handle(dir)));
                        }
                        _ => waiting.pause(&mark).await?,
                    }
                    tries = 0;
                    continue;
                }
            };
            let fresh = self.look_surely(&[key]).await;
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

    /// Whether names are marked at all.
    pub(super) fn marks_names(&self) -> bool {
        !self.own_names && !mutant::is(Mutant::NameWithoutMarker)
    }

    /// Try once to make a marker. This process changes no names meanwhile.
    pub(super) async fn try_mark(self: &Rc<Self>, mark: &Name, number: Number) -> Result<Tried<B>> {
        let token = self.token_for(number, mark).await;
        let (shared, name) = (self.clone(), mark.clone());
        let mut marker = Marker { shared, name, number, token, is_logged: false, is_settled: false };
        match self.make_marker(&marker).await {
            Ok(()) => return Ok(Tried::Own(marker)),
            Err(error) if error.status == Status::Exists => {}
            Err(error) => return Err(error),
        }
        let own = self.log.id.get();
        let tried = match self.marked_by(mark).await? {
            MarkedBy::Writer(by, _) if by == own && self.log.awaits_mark(mark) => Tried::Unpublished,
            // The reply to this writer's own try was lost.
            MarkedBy::Writer(by, other) if by == own && other == number => return Ok(Tried::Own(marker)),
            // A call that was given up has left it. Its task finds it gone.
            MarkedBy::Writer(by, other) if by == own && !other.is_shared() => {
                self.give_back(mark).await;
                Tried::Gone
            }
            MarkedBy::Writer(by, other) => Tried::Of(by, other),
            MarkedBy::Nobody => Tried::Gone,
            MarkedBy::Foreign => {
                marker.is_settled = true;
                return Err(foreign(mark));
            }
        };
        marker.is_settled = true;
        Ok(tried)
    }

    /// The marker of a name that this process has logged, and not published: the name is its own still. It
    /// is given back when what is logged next is published.
    pub(super) fn take_mark(self: &Rc<Self>, mark: &Name) -> Option<Marker<B>> {
        let Mark { name, token } = self.log.take_mark(mark)?;
        let (shared, number) = (self.clone(), Number::of_change(0));
        Some(Marker { shared, name, number, token, is_logged: true, is_settled: false })
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
        let target = format!("{}.{:x}", self.log.id.get(), marker.number.0);
        self.over.symlink(self.marks, &marker.name, self.owner, target.as_bytes()).await.map(drop)
    }

    /// A token with the bytes of a marker, if this writer uses them and has one free.
    async fn token_for(&self, number: Number, mark: &Name) -> Option<Token<B::File>> {
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
        let bytes = names_of::token_bytes(self.log.id.get(), number.0, mark);
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
        Ok(parsed.map_or(MarkedBy::Foreign, |(writer, number)| MarkedBy::Writer(writer, Number(number))))
    }

    pub(super) async fn bytes_of_token(&self, mark: &Name) -> Result<Bytes> {
        let file = self.over.open_name(self.marks, mark, Rights::READ).await?;
        let bytes = file.read(0, TOKEN_READ).await?;
        file.close().await?;
        Ok(bytes)
    }

    /// Names were logged: their markers are given back when that is published.
    pub(super) fn logged(&self, markers: impl IntoIterator<Item = Marker<B>>) {
        for mut marker in markers {
            marker.is_settled = true;
            self.log.holds_mark(Mark { name: marker.name.clone(), token: marker.token.take() });
        }
    }

    /// Names were not logged.
    pub(super) async fn not_logged(&self, markers: impl IntoIterator<Item = Marker<B>>) {
        for mut marker in markers {
            if !marker.is_logged {
                marker.is_settled = self.give_back(&marker.name).await;
            }
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
