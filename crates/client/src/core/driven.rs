//! The core as its driver sees it: the bytes to write to each server, and the bytes received from it.

use super::Core;
use crate::session::{Outgoing, Session, Waiter};
use bytes::Bytes;
use shoal_env::Work;
use shoal_proto::message::{Attached, Grant, Piece, Reply};
use shoal_proto::op::Answer;
use shoal_proto::seal::Sealer;
use shoal_proto::{ServerId, SessionId, Status};

impl Core {
    /// Whether a connection to `server` is wanted: a caller waits, or the server keeps something for this
    /// client.
    pub(crate) fn is_wanted(&self, server: ServerId) -> bool {
        let waits = || self.with(server, |session| session.is_wanted(self.world.now()));
        !self.closed.get() && (waits() || self.held.borrow().keeps(server))
    }

    /// The session to ask for in the next attachment.
    pub(crate) fn attach_id(&self, server: ServerId) -> Option<SessionId> {
        self.with(server, Session::attach_id)
    }

    /// A connection stands, whose frames are sealed if there is a sealer.
    pub(crate) fn attached(
        &self,
        server: ServerId,
        attached: &Attached,
        version: u16,
        sealer: Option<Sealer>,
    ) {
        let again = self.with(server, |session| {
            session.attached(attached, version, self.options.slots, self.world.now());
            session.sealer = sealer;
            session.attachments > 1
        });
        let lost = self.locks.borrow_mut().attached(server, attached.session);
        self.locks_lost(lost);
        if again {
            self.counters.borrow_mut().reconnects += 1;
        }
        self.note_epoch(server, attached.map_epoch);
        self.world.outgoing(server);
    }

    /// The connection is gone, or could not be made.
    pub(crate) fn lost(&self, server: ServerId, words: &str) {
        self.map.answered();
        self.with(server, |session| session.lost(words));
    }

    /// The same, said by the server's machine: the server does not serve at the moment.
    pub(crate) fn not_serving(&self, server: ServerId, words: &str) {
        self.lost(server, words);
        self.with(server, |session| session.not_serving(self.world.now()));
    }

    /// Whether `server` let a whole time limit pass without a sign of life: it is to be found again.
    pub(crate) fn is_silent(&self, server: ServerId) -> bool {
        self.with(server, |session| session.is_silent())
    }

    /// The server does not know the session any more.
    pub(crate) fn session_lost(&self, server: ServerId) {
        self.with(server, Session::session_lost);
        let lost = self.locks.borrow_mut().session_lost(server);
        self.locks_lost(lost);
    }

    /// The server refuses for good.
    pub(crate) fn refused(&self, server: ServerId, status: Status, words: &str) {
        self.map.answered();
        self.with(server, |session| session.refused(status, words));
    }

    /// Put the bytes that are to be written to `server` now into `out`; returns whether there are any.
    pub(crate) fn take(&self, server: ServerId, out: &mut Outgoing) -> bool {
        let any = self.with(server, |session| session.take(self.world.now(), out));
        let (mut counters, mut messages) = (self.counters.borrow_mut(), self.messages.borrow_mut());
        for (op, bytes) in &out.ops {
            messages.add(op);
            counters.sent_bytes += bytes;
        }
        counters.sent_bytes += out.given;
        drop((counters, messages));
        self.copied(out.copied);
        any
    }

    /// A reply came.
    ///
    /// # Errors
    /// When the connection is of no further use.
    pub(crate) fn replied(
        &self,
        server: ServerId,
        tag: u64,
        reply: Reply,
        bulk: Bytes,
    ) -> Result<(), String> {
        self.counters.borrow_mut().received_bytes += bulk.len() as u64;
        let epoch = reply.map_epoch;
        let (waiter, more) = self.with(server, |session| {
            let waiter = session.replied(tag, reply, bulk);
            (waiter, session.has_outgoing())
        });
        if more {
            self.world.outgoing(server);
        }
        match waiter? {
            // A caller that has gone meanwhile needs no answer.
            Some((Waiter::Caller(waiter), answered)) => waiter.send(Ok(answered)),
            Some((Waiter::Map, answered)) => {
                self.map.answered();
                for answer in answered.reply.groups.0.into_iter().flat_map(|group| group.answers.0) {
                    if let Answer::Map { map } = answer {
                        self.install_map(map);
                    }
                }
                return Ok(());
            }
            Some((Waiter::Nobody, answered)) => {
                answered.reply.groups.iter().for_each(|group| self.answered_nobody(&group.answers));
            }
            None => {}
        }
        self.note_epoch(server, epoch);
        Ok(())
    }

    /// A piece of a long read came.
    ///
    /// # Errors
    /// When the connection is of no further use.
    pub(crate) fn brought(
        &self,
        server: ServerId,
        tag: u64,
        piece: Piece,
        bulk: Bytes,
    ) -> Result<(), String> {
        self.world.work(Work::Message, 1);
        self.counters.borrow_mut().received_bytes += bulk.len() as u64;
        let now = self.world.now();
        self.with(server, |session| session.piece(tag, piece, bulk, now))
    }

    /// A part of a long write was granted.
    ///
    /// # Errors
    /// When the connection is of no further use.
    pub(crate) fn granted(&self, server: ServerId, tag: u64, grant: Grant) -> Result<(), String> {
        self.world.work(Work::Message, 1);
        let now = self.world.now();
        self.with(server, |session| session.granted(tag, grant, now))?;
        self.world.outgoing(server);
        Ok(())
    }

    /// Whether an answer of `server` is expected.
    pub(crate) fn is_under_way(&self, server: ServerId) -> bool {
        self.with(server, |session| session.is_under_way())
    }

    /// Batches written to `server` so far, while it is attached.
    pub(crate) fn batches(&self, server: ServerId) -> Option<u64> {
        self.with(server, |session| session.is_up().then_some(session.batches))
    }

    /// Batches written to `server` so far: as long as it is the same, nothing was sent.
    pub(crate) fn written_to(&self, server: ServerId) -> u64 {
        self.with(server, |session| session.batches)
    }

    /// Nothing more is asked; the drivers end.
    pub(crate) fn close(&self) {
        self.closed.set(true);
        for server in (0..=u16::MAX).map(ServerId).take(self.sessions.borrow().len()) {
            let is_known = self.sessions.borrow().get(usize::from(server.0)).is_some_and(Option::is_some);
            if is_known {
                self.world.outgoing(server);
            }
        }
        self.world.wake_at(self.world.now());
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.get()
    }
}
