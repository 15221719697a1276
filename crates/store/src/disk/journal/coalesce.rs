//! Decides which changes share a sync (Carns et al., *Small-File Access in Parallel File Systems*, III.C;
//! OrangeFS `dbpf-sync.c`).
//!
//! Here an *operation* is a strong batch: the changes of one group of a request (operations that succeed or
//! fail together), with one place in the journal. A group counts as one operation, even if it holds several
//! operations of the protocol: a sync makes all of a group durable or nothing. Each group of a compound
//! counts, because each has its own record, status and retry.
//!
//! ```text
//!   applied ─▶ scheduling queue ─▶ written
//!     fewer than `low` operations scheduled  ─▶ sync: completes this operation and the coalescing queue
//!     `high` in the coalescing queue         ─▶ the same sync
//!     otherwise                              ─▶ coalescing queue
//! ```
//! The number in the coalescing queue is compared with `high` before an operation enters the queue. With
//! `high` 8 the ninth operation finds eight in the queue and syncs: one sync completes up to nine operations.
//! With `low` 1 no timer is needed, because the last operation of the scheduling queue always syncs.
//!
//! A failed operation changes nothing and has no record. If the policy is *pipelined*, or all earlier strong
//! records are durable, it completes at once. Otherwise it counts in the queue and completes with the
//! operations before it.
//!
//! In the modes in which metadata is not durable at reply, an operation completes before its sync. The marks
//! `low` and `high` then decide when the sync after the reply happens.
//!
//! With *per-op* each operation has a sync of its own, one after the other, as in PVFS without coalescing.
//! *Pipelined* is the journal's natural behaviour: the next sync covers all operations that arrived during
//! the last sync. A group of the journal also waits for further operations if that pays
//! ([`AdaptiveDelay`]).
//!
//! A record gets its place in a group of the journal (the records of one write) when it is applied, so such a
//! group holds no more than the operations of one sync: `high` + 1. With `low` above 1 it is not known at
//! that time whether an operation will sync. So with `low` above 1 each operation has a journal group of its
//! own. A group without a sync is written to the page cache. One later sync makes all these groups durable.

use shoal_proto::Coalescing;
use std::time::Duration;

/// Buckets of syncs by the operations each completed: 1, 2, to 4, to 8, to 16, to 32, to 64, more.
pub(crate) const SHARED_BUCKETS: usize = 8;

/// The two queues, as numbers; their members are in the journal's groups.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    policy: Coalescing,
    /// Operations applied and not yet taken to be written.
    scheduled: u64,
    /// Operations written whose sync is postponed.
    coalescing: u64,
    /// The maximum of `scheduled`.
    pub scheduled_max: u64,
    /// The maximum of `coalescing`.
    pub coalescing_max: u64,
    /// Operations in all, failed ones too.
    pub operations: u64,
}

impl Queues {
    pub fn new(policy: Coalescing) -> Queues {
        Queues { policy, ..Queues::default() }
    }

    /// Change the policy. The caller syncs the postponed operations.
    pub fn follow(&mut self, policy: Coalescing) {
        self.policy = policy;
    }

    pub fn scheduled(&self) -> u64 {
        self.scheduled
    }

    /// Operations that one group of the journal may hold.
    pub fn group_ops_max(&self) -> u32 {
        match self.policy {
            Coalescing::Pipelined => u32::MAX,
            Coalescing::PerOp => 1,
            Coalescing::Watermark { low: 0 | 1, high: 0 } => u32::MAX,
            Coalescing::Watermark { low: 0 | 1, high } => u32::from(high) + 1,
            Coalescing::Watermark { .. } => 1,
        }
    }

    /// Whether a sync must have ended before the next operation is written.
    pub fn one_by_one(&self) -> bool {
        self.policy != Coalescing::Pipelined
    }

    /// Whether operations that completed without a sync are synced after their replies.
    pub fn syncs_after_reply(&self) -> bool {
        matches!(self.policy, Coalescing::Watermark { .. })
    }

    /// An operation enters the scheduling queue.
    pub fn enter(&mut self) {
        self.operations += 1;
        self.scheduled += 1;
        self.scheduled_max = self.scheduled_max.max(self.scheduled);
    }

    /// Operations of one group are served, in order. Returns whether a sync follows.
    pub fn serve(&mut self, operations: u32) -> bool {
        let mut syncs = false;
        for _ in 0..operations {
            self.scheduled = self.scheduled.saturating_sub(1);
            if self.flushes() {
                syncs = true;
            } else {
                self.coalescing += 1;
                self.coalescing_max = self.coalescing_max.max(self.coalescing);
            }
        }
        if syncs {
            self.coalescing = 0;
        }
        syncs
    }

    /// Everything written was synced for another reason.
    pub fn synced(&mut self) {
        self.coalescing = 0;
    }

    fn flushes(&self) -> bool {
        match self.policy {
            Coalescing::PerOp | Coalescing::Pipelined => true,
            // Without a low mark the last of the queue would wait for ever.
            Coalescing::Watermark { low, high } => {
                self.scheduled < u64::from(low.max(1)) || (high > 0 && self.coalescing >= u64::from(high))
            }
        }
    }
}

/// Groups between two trials of waiting for one operation more: at first, and at most.
const TRIAL_MIN: u32 = 8;
const TRIAL_MAX: u32 = 512;
/// The longest wait.
const WAIT_MAX: Duration = Duration::from_micros(500);

/// For how many operations a group waits before it is written, and how long: learnt from earlier waits.
///
/// When clients, servers and kernel share the cores, changes come one by one, each just too late for the
/// previous one's sync; then nearly every one has a sync of its own, whose system calls and wake-ups take the
/// time that the next needs. So from time to time a group waits for one operation more than the last groups
/// had, for as long as a sync takes. If it came, the next groups wait for as many. If not, they wait for no
/// more than did come, and the next trial is later. So a single client waits once in 512 groups. Concurrent
/// clients begin to share their syncs, and continue to, because clients whose replies left together send
/// their next requests together.
#[derive(Debug)]
pub(crate) struct AdaptiveDelay {
    /// Operations a group waits for.
    wanted: u32,
    /// Groups until the next trial.
    until_trial: u32,
    /// Groups between two trials.
    between: u32,
    /// Mean time of a durable write.
    write: Duration,
}

impl Default for AdaptiveDelay {
    fn default() -> AdaptiveDelay {
        AdaptiveDelay { wanted: 1, until_trial: TRIAL_MIN, between: TRIAL_MIN, write: Duration::ZERO }
    }
}

impl AdaptiveDelay {
    /// How long a group of so many operations may wait, from the start of its wait; `None`: write it now.
    pub fn wait(&self, operations: u32) -> Option<Duration> {
        (operations < self.asked() && !self.write.is_zero()).then(|| self.write.min(WAIT_MAX))
    }

    /// A group of so many operations was taken to be written.
    pub fn taken(&mut self, operations: u32) {
        let asked = self.asked();
        if self.until_trial == 0 {
            self.between = if operations < asked { (self.between * 2).min(TRIAL_MAX) } else { TRIAL_MIN };
            self.until_trial = self.between;
        } else {
            self.until_trial -= 1;
        }
        // At most one more at a time: the operations of one message are no sign of more concurrent clients.
        self.wanted = operations.clamp(1, asked.max(self.wanted + 1));
    }

    /// A durable write took so long.
    pub fn wrote(&mut self, took: Duration) {
        self.write = if self.write.is_zero() { took } else { (self.write * 7 + took) / 8 };
    }

    fn asked(&self) -> u32 {
        self.wanted + u32::from(self.until_trial == 0)
    }
}

/// The bucket of a sync that completed so many operations.
pub(crate) fn shared_bucket(operations: u64) -> usize {
    (u64::BITS - operations.saturating_sub(1).leading_zeros()).min(SHARED_BUCKETS as u32 - 1) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many operations each sync completes when `queued` are there at once and served one by one.
    fn syncs(policy: Coalescing, queued: u32) -> Vec<u32> {
        let mut queues = Queues::new(policy);
        (0..queued).for_each(|_| queues.enter());
        let (mut done, mut waiting) = (Vec::new(), 0);
        for _ in 0..queued {
            waiting += 1;
            if queues.serve(1) {
                done.push(std::mem::take(&mut waiting));
            }
        }
        assert_eq!((waiting, queues.scheduled()), (0, 0), "the last of the queue syncs");
        done
    }

    #[test]
    fn with_the_papers_marks_one_sync_completes_up_to_nine() {
        assert_eq!(syncs(Coalescing::PAPER, 1), [1]);
        assert_eq!(syncs(Coalescing::PAPER, 9), [9]);
        assert_eq!(syncs(Coalescing::PAPER, 20), [9, 9, 2]);
    }

    #[test]
    fn below_the_low_mark_each_operation_syncs_alone() {
        assert_eq!(syncs(Coalescing::Watermark { low: 3, high: 8 }, 5), [3, 1, 1]);
        assert_eq!(syncs(Coalescing::Watermark { low: 1, high: 0 }, 100), [100]);
        assert_eq!(syncs(Coalescing::Watermark { low: 0, high: 8 }, 3), [3], "a low mark of 0 is one of 1");
    }

    #[test]
    fn without_coalescing_each_operation_syncs_alone() {
        assert_eq!(syncs(Coalescing::PerOp, 3), [1, 1, 1]);
    }

    #[test]
    fn a_group_holds_what_one_sync_completes_so_both_cuts_agree() {
        for queued in 1..40 {
            let mut queues = Queues::new(Coalescing::PAPER);
            let most = queues.group_ops_max();
            (0..queued).for_each(|_| queues.enter());
            let mut groups = Vec::new();
            let mut left = queued;
            while left > 0 {
                let group = left.min(most);
                assert!(queues.serve(group), "a group that is full, or the last, syncs");
                groups.push(group);
                left -= group;
            }
            assert_eq!(groups, syncs(Coalescing::PAPER, queued));
        }
    }

    #[test]
    fn syncs_are_counted_by_the_power_of_two_that_holds_their_operations() {
        let buckets = [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (8, 3), (9, 4), (64, 6), (65, 7), (9000, 7)];
        for (operations, bucket) in buckets {
            assert_eq!(shared_bucket(operations), bucket, "{operations}");
        }
    }

    /// Runs `groups` groups; while a group waits, further operations arrive, up to `comes`. Returns how
    /// many groups waited in vain.
    fn vain(delay: &mut AdaptiveDelay, comes: u32, groups: u32) -> u32 {
        (0..groups)
            .filter(|_| {
                let mut operations = 1;
                while delay.wait(operations).is_some() && operations < comes {
                    operations += 1;
                }
                let vain = delay.wait(operations).is_some();
                delay.taken(operations);
                vain
            })
            .count() as u32
    }

    #[test]
    fn a_client_alone_waits_ever_more_seldom() {
        let mut delay = AdaptiveDelay::default();
        delay.wrote(Duration::from_micros(200));
        assert!(vain(&mut delay, 1, 2000) <= 10);
        assert_eq!(vain(&mut delay, 1, 5130), 10, "once in 512");
    }

    #[test]
    fn company_is_found_and_lost_again() {
        let mut delay = AdaptiveDelay::default();
        delay.wrote(Duration::from_micros(200));
        vain(&mut delay, 4, 200);
        assert_eq!((delay.wait(3).is_some(), delay.wanted), (true, 4));
        // The others stop: one wait in vain suffices.
        assert!(vain(&mut delay, 1, 100) <= 5);
        assert_eq!(delay.wanted, 1);
        // The next group does not wait for as many operations as one message had.
        delay.taken(64);
        assert!(delay.wanted <= 2);
    }

    #[test]
    fn nobody_waits_longer_than_a_sync_takes() {
        let mut delay = AdaptiveDelay::default();
        assert_eq!(delay.wait(0), None, "before anything is known");
        delay.wrote(Duration::from_micros(100));
        delay.wrote(Duration::from_micros(900));
        assert_eq!(delay.wait(0), Some(Duration::from_micros(200)));
        (0..20).for_each(|_| delay.wrote(Duration::from_millis(9)));
        assert_eq!(delay.wait(0), Some(WAIT_MAX));
    }
}
