//! The cost of an operation: differences of counts on a quiet file system, by operation.
//!
//! *Quiet* means that no count of a server or client changed for three turns of 20 ms. An operation causes
//! work after its answer: the ends of transactions, reaped datafiles, sizes that follow their data. A
//! measurement ends when the file system is quiet, so this work belongs to the cost of the operation.

use crate::cluster::Cluster;
use shoal_client::{Client, ClientCounters};
use shoal_env::{CounterSnapshot, Env};
use std::collections::BTreeMap;
use std::time::Duration;

/// A turn in which nothing may be counted, and how many of them make quiet. Together longer than the delay of
/// a store's background work (20 ms).
const TURN: Duration = Duration::from_millis(20);
const QUIET_TURNS: u32 = 3;

/// The counts of the whole file system, and of one client of it.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Total {
    pub client: ClientCounters,
    pub client_env: CounterSnapshot,
    pub servers: Vec<CounterSnapshot>,
    pub requests: u64,
    pub peer_messages: u64,
    /// Among them those by which servers report to each other how far their stores are durable: no operation
    /// costs them.
    pub remembers: u64,
    pub groups: u64,
    pub group_syncs: u64,
    pub journal_bytes: u64,
    pub reruns: u64,
}

/// The measuring client.
pub struct Meter<'a> {
    pub env: &'a Env,
    pub cluster: &'a Cluster,
    pub client: &'a Client,
}

impl Meter<'_> {
    async fn total(&self) -> Total {
        let mut total = Total {
            client: self.client.counters(),
            client_env: self.env.counters().snapshot(),
            ..Total::default()
        };
        for server in self.cluster.counts().await {
            total.servers.push(server.env);
            total.requests += server.shard.requests;
            total.peer_messages += server.shard.peer_messages;
            total.remembers += server.shard.ops.get("remember").copied().unwrap_or(0);
            total.reruns += server.shard.reruns;
            total.groups += server.store.groups;
            total.group_syncs += server.store.group_syncs;
            total.journal_bytes += server.store.journal_bytes;
        }
        total
    }

    /// The counts when nothing is under way any more.
    pub async fn quiet(&self) -> Total {
        let (mut last, mut turns) = (self.total().await, 0);
        while turns < QUIET_TURNS {
            self.env.sleep(TURN).await;
            let now = self.total().await;
            turns = if now == last { turns + 1 } else { 0 };
            last = now;
        }
        last
    }

    /// The costs of `body`, which does `count` operations.
    pub async fn cost(&self, name: &'static str, count: usize, body: impl Future<Output = ()>) -> Cost {
        let before = self.quiet().await;
        body.await;
        Cost::between(name, count, &before, &self.quiet().await)
    }
}

/// Costs of one operation, on all machines together: means over the operations of a measurement.
#[derive(Debug)]
pub struct Cost {
    pub name: &'static str,
    /// Messages of the client (a message and its reply are one), and by their names.
    pub messages: f64,
    pub by_name: BTreeMap<&'static str, u64>,
    /// Messages between servers.
    pub peers: f64,
    /// Groups of the journal, and syncs of all kinds.
    pub groups: f64,
    pub syncs: f64,
    /// System calls for sockets (client's and servers'), and for files (servers'; an `O_DSYNC` write is one,
    /// `fdatasync` is among the syncs).
    pub socket_calls: f64,
    pub file_calls: f64,
    /// Bytes written to sockets, by the client and the servers.
    pub wire_bytes: f64,
    pub journal_bytes: f64,
    /// Bytes copied above the kernel, by the client and the servers.
    pub copied_client: f64,
    pub copied_servers: f64,
    /// Times a handler ran again.
    pub reruns: f64,
}

/// Work that may fall into a measurement from before it: a sync, or a message's four calls, for a few of
/// sixteen operations (a group of background rows, a lease kept alive). One more for each operation is still
/// found.
const BACKGROUND: f64 = 0.25;

/// One row of the table: the highest allowed costs of an operation, its messages exactly.
#[derive(Clone, Copy)]
pub struct Most {
    pub name: &'static str,
    pub messages: f64,
    pub peers: f64,
    pub syncs: f64,
    pub socket_calls: f64,
    pub wire_bytes: f64,
    pub copied_bytes: f64,
}

impl Cost {
    fn between(name: &'static str, count: usize, before: &Total, after: &Total) -> Cost {
        let servers: Vec<CounterSnapshot> =
            after.servers.iter().zip(&before.servers).map(|(after, before)| after.since(before)).collect();
        let client = after.client_env.since(&before.client_env);
        let mean = |n: u64| n as f64 / count as f64;
        let of = |field: fn(&CounterSnapshot) -> u64| mean(servers.iter().map(field).sum());
        let sent = |n: u64, name: &str| n - before.client.messages.get(name).unwrap_or(&0);
        let by_name: BTreeMap<&'static str, u64> = after
            .client
            .messages
            .iter()
            .map(|(name, n)| (*name, sent(*n, name)))
            .filter(|(_, n)| *n > 0)
            .collect();
        let remembers = after.remembers - before.remembers;
        let peers = after.peer_messages - before.peer_messages - remembers;
        let messages: u64 = by_name.values().sum();
        assert_eq!(
            messages + peers,
            after.requests - before.requests - remembers,
            "{name}: sent is received"
        );
        Cost {
            name,
            messages: mean(messages),
            by_name,
            peers: mean(peers),
            groups: mean(after.groups - before.groups),
            syncs: of(|c| c.syncs),
            socket_calls: of(|c| c.socket_reads + c.socket_writes)
                + mean(client.socket_reads + client.socket_writes),
            file_calls: of(|c| c.file_reads + c.file_writes + c.file_calls),
            wire_bytes: of(|c| c.socket_write_bytes) + mean(client.socket_write_bytes),
            journal_bytes: mean(after.journal_bytes - before.journal_bytes),
            copied_client: mean(after.client.copied_bytes - before.client.copied_bytes),
            copied_servers: of(|c| c.copied_bytes),
            reruns: mean(after.reruns - before.reruns),
        }
    }

    /// The mean cost of single operations.
    pub fn mean(name: &'static str, costs: &[Cost]) -> Cost {
        let of = |field: fn(&Cost) -> f64| costs.iter().map(field).sum::<f64>() / costs.len() as f64;
        let mut by_name = BTreeMap::new();
        for (name, n) in costs.iter().flat_map(|cost| &cost.by_name) {
            *by_name.entry(*name).or_default() += n;
        }
        Cost {
            name,
            messages: of(|c| c.messages),
            by_name,
            peers: of(|c| c.peers),
            groups: of(|c| c.groups),
            syncs: of(|c| c.syncs),
            socket_calls: of(|c| c.socket_calls),
            file_calls: of(|c| c.file_calls),
            wire_bytes: of(|c| c.wire_bytes),
            journal_bytes: of(|c| c.journal_bytes),
            copied_client: of(|c| c.copied_client),
            copied_servers: of(|c| c.copied_servers),
            reruns: of(|c| c.reruns),
        }
    }

    /// Hold it against its row of the table.
    ///
    /// # Errors
    /// The counts that are too high, in words.
    pub fn within(&self, most: &Most) -> Result<(), String> {
        if self.messages.to_bits() != most.messages.to_bits() {
            return Err(format!("messages: {} are right: {self:#?}", most.messages));
        }
        let held = [
            ("messages between servers", self.peers, most.peers),
            ("syncs", self.syncs, most.syncs + BACKGROUND),
            ("system calls for sockets", self.socket_calls, most.socket_calls + 4.0 * BACKGROUND),
            ("bytes on the wire", self.wire_bytes, most.wire_bytes),
            ("bytes copied", self.copied_client + self.copied_servers, most.copied_bytes),
        ];
        match held.into_iter().find(|(_, n, most)| n > most) {
            Some((what, n, most)) => Err(format!("{what}: {n}, at most {most} are right: {self:#?}")),
            None => Ok(()),
        }
    }

    /// One row of `docs/lab/COUNTS.md`.
    pub fn row(&self) -> String {
        format!(
            "| {} | {} | {} | {:.2} | {:.2} | {:.1} | {:.1} | {:.0} | {:.0} | {:.0} | {:.0} | {:.2} |",
            self.name,
            self.messages,
            self.peers,
            self.groups,
            self.syncs,
            self.socket_calls,
            self.file_calls,
            self.wire_bytes,
            self.journal_bytes,
            self.copied_client,
            self.copied_servers,
            self.reruns,
        )
    }
}
