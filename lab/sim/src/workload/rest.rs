//! Idle clients: in some seeds every third client does nothing for several leases in the middle of its work,
//! while it holds files open, one of them without a name. No caller waits for an answer meanwhile, so only
//! the client's background work keeps its sessions alive, over the crashes that fall into that time. **Each
//! file that such a client holds can be used afterwards**, unless a fault of the run may end sessions.
//!
//! In the seeds with idle clients, files in use get further names and lose them, too
//! ([`in_use`](super::in_use)).

use super::{End, Worker};
use crate::faults::{Fault, Faults};
use crate::ledger::{KnownObject, ObjectId};
use shoal_client::OpenFile;
use shoal_proto::{Kind, Status};
use std::time::Duration;

const GONE: [Status; 2] = [Status::Stale, Status::NotFound];
/// Of so many seeds one has clients that rest, and of so many clients one rests.
const OF_SEEDS: u64 = 7;
const OF_CLIENTS: u16 = 3;
/// Leases of a rest.
const LEASES: u32 = 3;
/// Faults in which no message of a client may reach a server for a lease: its sessions may end.
const SILENT: [Fault; 10] = [
    Fault::Pause,
    Fault::Partition,
    Fault::HalfOpen,
    Fault::Slow,
    Fault::ClockJump,
    Fault::LostFolder,
    Fault::SwappedFolders,
    Fault::Silence,
    Fault::OlderCopy,
    Fault::FullDisk,
];

/// How the clients of a run rest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rest {
    lasts: Duration,
    /// No fault ends a session.
    keeps_sessions: bool,
}

impl Rest {
    /// As the seed draws it; `None`: no client rests.
    pub fn drawn(seed: u64, lease: Duration, faults: &Faults) -> Option<Rest> {
        let keeps_sessions = SILENT.iter().all(|fault| faults.count(*fault) == 0);
        (seed % OF_SEEDS == 4).then_some(Rest { lasts: lease * LEASES, keeps_sessions })
    }
}

impl Worker {
    /// In the middle of the work, if this client is one that rests.
    pub(super) async fn rest(&mut self) {
        let Some(rest) = self.shared.rest.filter(|_| self.client_number() % OF_CLIENTS == 1) else { return };
        let removed = self.remove_and_hold().await;
        self.env.note(|| format!("client {} rests", self.id));
        self.env.sleep(rest.lasts).await;
        if let Some((object, file)) = removed {
            self.use_after_rest(rest, object, &file).await;
            drop(file);
            self.close_removed(object).await;
        }
    }

    /// An own file that has lost its last name, open.
    async fn remove_and_hold(&mut self) -> Option<(ObjectId, OpenFile)> {
        let (slot, object) =
            self.own(|object: &KnownObject| object.kind == Kind::File && !object.is_public)?;
        let at = self.opened(object).await?;
        let file = self.held[at].file.clone();
        let is_removed = self.unlink_name(&slot, object).await;
        (is_removed && self.shared.ledger.borrow().links(object) == Some(0)).then_some((object, file))
    }

    /// All of its bytes are there, and it can be synced.
    async fn use_after_rest(&mut self, rest: Rest, object: ObjectId, file: &OpenFile) {
        let words = format!("read {} removed, after a rest", file.handle());
        let (len, called) = (self.with_contents(object, |contents| contents.reach()) + 10, self.now());
        match self.run("read", &words, &GONE, file.read(0, len as usize)).await {
            End::Done(content) => self.judge_read(&words, object, called, (0, len), &content),
            End::Refused(status) if rest.keeps_sessions => self.wrong_of(&words, object, status),
            End::Refused(_) | End::Unknown(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_seeds_rest_and_of_those_with_crashes_alone_files_must_stay() {
        let lease = Duration::from_secs(1);
        let drawn = |seed| Rest::drawn(seed, lease, &Faults::drawn(seed));
        let resting: Vec<Rest> = (0..7000).filter_map(drawn).collect();
        assert_eq!(resting.len(), 1000);
        assert!(resting.iter().any(|rest| rest.keeps_sessions) && resting.iter().any(|r| !r.keeps_sessions));
        let crash = Faults::of(&[(Fault::Crash, 2)]);
        assert!(Rest::drawn(4, lease, &crash).is_some_and(|rest| rest.keeps_sessions));
        assert!(Rest::drawn(5, lease, &crash).is_none());
    }
}
