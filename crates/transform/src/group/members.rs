//! The members of a group, after they have met. Each call goes through member 0.
//!
//! **Each wait has a deadline**, and member 0 reports each failure to all others. Member 0 waits for the
//! time limit of the group. The other members wait for twice that time and a second, because member 0 may
//! wait for a silent member before it reports that member. Within this time all members know that a call has
//! failed, and why.

use super::Group;
use super::frames::{MESSAGE_BYTES_MAX, MemberLink, Said, check_len};
use super::meeting::{FAREWELL_MAX, Meeting, MeetingPlace, farewell_all, join, wait_for_all};
use bytes::Bytes;
use futures_util::future::try_join_all;
use shoal_env::{Env, Instant};
use shoal_proto::Status;
use shoal_vfs::{Error, Result, Vfs};
use std::cell::RefCell;
use std::io;
use std::time::Duration;

/// Threads or processes that met in a container: see [`Container::meet`](crate::Container::meet).
pub struct Members {
    env: Env,
    rank: usize,
    size: usize,
    patience: Duration,
    /// Of member 0: links to all others, by rank; of the others: to member 0. `None` while a call is under
    /// way, and after one that failed.
    links: RefCell<Option<Vec<MemberLink>>>,
}

impl Members {
    /// Meet in a directory.
    pub(crate) async fn meet<V: Vfs>(
        env: &Env,
        at: MeetingPlace<'_, V>,
        meeting: &Meeting,
    ) -> Result<Members> {
        meeting.name()?;
        let links = match meeting.rank {
            0 if meeting.size == 1 => Vec::new(),
            0 => wait_for_all(env, &at, meeting).await?,
            _ => vec![join(env, &at, meeting).await?],
        };
        let Meeting { rank, size, patience, .. } = *meeting;
        Ok(Members { env: env.clone(), rank, size, patience, links: RefCell::new(Some(links)) })
    }

    /// The same, with another deadline for each wait from here on.
    pub fn patient(self, patience: Duration) -> Members {
        Members { patience, ..self }
    }

    /// Do it with all links; after a failure there are none any more.
    async fn with<T>(&self, work: impl AsyncFnOnce(&mut [MemberLink]) -> Result<T>) -> Result<T> {
        let mut links = self.links.borrow_mut().take().ok_or_else(|| {
            let words = "a call of the group failed before, or is under way: meet again";
            Error::new(Status::Io, "group").because(words)
        })?;
        let done = work(&mut links).await;
        match &done {
            Ok(_) => drop(self.links.replace(Some(links))),
            Err(error) => farewell_all(&self.env, links.iter_mut(), error).await,
        }
        done
    }

    fn until(&self) -> Instant {
        let now = self.env.now() + self.patience;
        if self.rank == 0 { now } else { now + self.patience + FAREWELL_MAX }
    }

    fn ended(&self, rank: usize, error: &io::Error) -> Error {
        let words = match error.kind() {
            io::ErrorKind::UnexpectedEof => format!("member {rank} of {} ended", self.size),
            _ => format!("the connection to member {rank} of {} failed: {error}", self.size),
        };
        Error::new(Status::Io, "group").because(words)
    }

    fn is_silent(&self, rank: usize) -> Error {
        let words = format!("member {rank} of {} did not answer within {:?}", self.size, self.patience);
        Error::new(Status::TimedOut, "group").because(words)
    }

    async fn receive(&self, link: &mut MemberLink) -> Result<Bytes> {
        let rank = link.rank;
        let received = self.env.deadline(self.until(), link.receive(MESSAGE_BYTES_MAX)).await;
        received.map_err(|_| self.is_silent(rank))?.map_err(|error| self.ended(rank, &error))?
    }

    async fn send(&self, link: &mut MemberLink, bytes: Bytes) -> Result<()> {
        check_len(bytes.len())?;
        let rank = link.rank;
        let sent = self.env.deadline(self.until(), link.send(&Said::Bytes(bytes))).await;
        match sent.map_err(|_| self.is_silent(rank))? {
            Ok(()) => Ok(()),
            // Its failure may have come before it closed.
            Err(error) => {
                let said = self.env.deadline(self.env.now() + FAREWELL_MAX, link.receive(0)).await;
                match said {
                    Ok(Ok(Err(said))) => Err(said),
                    _ => Err(self.ended(rank, &error)),
                }
            }
        }
    }
}

impl Group for Members {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    async fn gather(&self, bytes: Bytes) -> Result<Vec<Bytes>> {
        self.with(async |links| {
            if self.rank != 0 {
                self.send(&mut links[0], bytes).await?;
                return Ok(Vec::new());
            }
            let others = try_join_all(links.iter_mut().map(|link| self.receive(link))).await?;
            Ok([vec![bytes], others].concat())
        })
        .await
    }

    async fn broadcast(&self, bytes: Bytes) -> Result<Bytes> {
        self.with(async |links| {
            if self.rank != 0 {
                return self.receive(&mut links[0]).await;
            }
            check_len(bytes.len())?;
            try_join_all(links.iter_mut().map(|link| self.send(link, bytes.clone()))).await?;
            Ok(bytes)
        })
        .await
    }
}
