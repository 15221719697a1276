//! A request under way, as its caller uses it: a future that yields the answer.

use super::{Core, Operation};
use crate::Error;
use crate::session::Answered;
use shoal_env::Work;
use shoal_env::local::Receiver;
use shoal_proto::message::Reply;
use shoal_proto::op::Answer;
use shoal_proto::{ServerId, Status};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A request whose answer is awaited until its deadline; the session answers by then. Dropping it before that
/// takes the request back.
pub(crate) struct Exchange<'a> {
    pub(super) core: &'a Core,
    pub(super) o: &'a Operation,
    pub(super) server: ServerId,
    /// `None`: answered.
    pub(super) tag: Option<u64>,
    pub(super) answer: Receiver<Result<Answered, Error>>,
}

impl Future for Exchange<'_> {
    type Output = Result<Answered, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Answered, Error>> {
        let Poll::Ready(answer) = Pin::new(&mut self.answer).poll(cx) else { return Poll::Pending };
        self.tag = None;
        let o = self.o;
        Poll::Ready(match answer {
            Some(result) => {
                if let Ok(answered) = &result {
                    self.core.world.work(Work::Entry, entries(&answered.reply));
                }
                result.map_err(|error| Error { object: o.object, ..error })
            }
            None => {
                Err(o.error(Status::Unavailable).from(self.server).because("the client was closed meanwhile"))
            }
        })
    }
}

impl Drop for Exchange<'_> {
    fn drop(&mut self) {
        if let Some(tag) = self.tag {
            let now = self.core.world.now();
            let more = self.core.with(self.server, |session| {
                session.abandon(tag, now);
                session.has_outgoing()
            });
            if more {
                self.core.world.outgoing(self.server);
            }
        }
    }
}

/// Entries of listings in a reply.
fn entries(reply: &Reply) -> u64 {
    let of = |answer: &Answer| match answer {
        Answer::Entries { entries, .. } => entries.len() as u64,
        _ => 0,
    };
    reply.groups.iter().flat_map(|group| group.answers.iter()).map(of).sum()
}
