//! The counters of a shard. `shoal status --counters` prints them, and tests compare the numbers of messages
//! with them.

use shoal_proto::Op;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::Duration;

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counts of one shard since it was opened.
        pub struct Counters {
            $($(#[$doc])* pub $name: Cell<u64>,)*
            ops: Vec<Cell<u64>>,
            latency: [Cell<u64>; Counters::BUCKETS],
        }

        /// The counts at one moment.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct CounterSnapshot {
            $($(#[$doc])* pub $name: u64,)*
            /// Operations run for clients and peers, by name (each once, however often its handler ran
            /// again).
            pub ops: BTreeMap<&'static str, u64>,
            /// Requests by latency, from their arrival to the moment their reply was ready to leave: bucket
            /// *i* counts those below 2^i microseconds.
            pub latency: Vec<u64>,
        }

        impl Default for Counters {
            fn default() -> Counters {
                Counters {
                    $($name: Cell::new(0),)*
                    ops: Op::NAMES.iter().map(|_| Cell::new(0)).collect(),
                    latency: Default::default(),
                }
            }
        }

        impl Counters {
            /// Read all counts.
            pub fn snapshot(&self) -> CounterSnapshot {
                let ops = Op::NAMES.iter().zip(&self.ops).filter(|(_, n)| n.get() > 0);
                CounterSnapshot {
                    $($name: self.$name.get(),)*
                    ops: ops.map(|(&name, n)| (name, n.get())).collect(),
                    latency: self.latency.iter().map(Cell::get).collect(),
                }
            }
        }

        impl CounterSnapshot {
            /// Names and values of the plain counts, in order.
            pub fn rows(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }
        }
    };
}

counts! {
    /// Requests (compounds) received.
    requests,
    /// Replies sent.
    replies,
    /// Replies that waited until something was durable.
    sync_waits,
    /// Those of requests that changed nothing: their replies show changes that were not durable yet.
    shown_waits,
    /// Groups run to their end.
    groups,
    /// Groups answered from the kept replies.
    kept,
    /// Requests that had to leave the fast path (something was to be awaited).
    parked,
    /// Times a handler ran again.
    reruns,
    /// Loads of rows.
    loads,
    /// Facts asked of other servers.
    facts,
    /// Waits for another transaction's lock.
    lock_waits,
    /// Prepares sent to other servers.
    prepares,
    /// Transactions over servers committed, as coordinator.
    commits,
    /// Transactions over servers aborted, as coordinator.
    aborts,
    /// Prepares answered with success, as participant.
    prepared,
    /// Messages sent to other servers.
    peer_messages,
    /// Datafiles reaped on other servers.
    reaped,
    /// Messages by which they were.
    reap_messages,
    /// Batches of datafiles stored in the pools.
    pool_refills,
    /// Datafiles taken from the pools.
    pool_taken,
    /// Waits for a pool that had none.
    pool_waits,
    /// Datafiles that a start found lent and not taken, and retired.
    pool_retired,
    /// Directories of this server that were split.
    splits,
    /// Tries of that given up.
    splits_given_up,
    /// Blocks of streams read from the store for patterned requests.
    blocks_read,
    /// Blocks that the block cache had.
    block_hits,
    /// Blocks, or longer runs, written for requests in hand.
    blocks_written,
    /// Those in steps that wrote pieces of several requests at once.
    blocks_merged,
    /// Blocks whose old bytes were read first, for the gaps between the pieces.
    blocks_read_before,
    /// Pieces of long reads sent.
    pieces_sent,
    /// Parts of long writes granted.
    grants_sent,
    /// The most bytes that waited on one connection when a piece was sent.
    piece_bytes_waiting_max,
    /// Batches of datafiles made for other servers.
    batches_made,
    /// Sessions begun.
    sessions_begun,
    /// Sessions taken over by a new connection.
    sessions_resumed,
    /// Sessions whose lease ended.
    sessions_ended,
    /// Connections refused.
    refusals,
    /// Frames that a sealed connection's other end did not send: each ended its connection.
    forged_frames,
}

impl Counters {
    const BUCKETS: usize = 32;

    /// Count an operation.
    pub fn op(&self, op: &Op) {
        add(&self.ops[op.position()], 1);
    }

    /// Count a request's latency.
    pub fn latency(&self, span: Duration) {
        let us = u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
        let bucket = (64 - us.leading_zeros() as usize).min(Counters::BUCKETS - 1);
        add(&self.latency[bucket], 1);
    }
}

impl CounterSnapshot {
    /// The latency, in microseconds, below which `share` (0 to 1) of the requests were, to the next power of
    /// two.
    pub fn latency_us(&self, share: f64) -> u64 {
        let all: u64 = self.latency.iter().sum();
        let goal = (all as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (bucket, n) in self.latency.iter().enumerate() {
            seen += n;
            if seen >= goal && all > 0 {
                return 1 << bucket;
            }
        }
        0
    }
}

/// Add to a count.
pub fn add(count: &Cell<u64>, n: u64) {
    count.set(count.get() + n);
}
