//! The counters of a client: the costs of its operations, for tests, benchmarks and `shoal status`.

use std::collections::BTreeMap;

/// Counts by word. The words of operations are few and are looked up repeatedly: the most recent one comes
/// first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Tally(Vec<(&'static str, u64)>);

impl Tally {
    pub(crate) fn add(&mut self, word: &'static str) {
        match self.0.iter().position(|(known, _)| std::ptr::eq(*known, word)) {
            Some(at) => {
                self.0[at].1 += 1;
                self.0.swap(at, at / 2);
            }
            None => self.0.push((word, 1)),
        }
    }

    /// In order; a word that the compiler put in two places counts once.
    pub(crate) fn sorted(&self) -> BTreeMap<&'static str, u64> {
        let mut sorted = BTreeMap::new();
        for (word, count) in &self.0 {
            *sorted.entry(*word).or_default() += count;
        }
        sorted
    }
}

/// Counts since the client was made.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ClientCounters {
    /// Messages sent, by the operation that sent them; one sent again after a lost connection counts again.
    pub messages: BTreeMap<&'static str, u64>,
    /// Bytes of data sent.
    pub sent_bytes: u64,
    /// Bytes of data received.
    pub received_bytes: u64,
    /// Bytes copied from buffer to buffer: data assembled from several answers or gathered from many pieces,
    /// and the part of a frame that had come before it had room for all of it.
    pub copied_bytes: u64,
    /// Requests asked again after a status that says so.
    pub retries: u64,
    /// Connections made again.
    pub reconnects: u64,
    /// Lookups answered by the name cache.
    pub name_hits: u64,
    /// Lookups that asked a server.
    pub name_misses: u64,
    /// Attributes answered by the cache.
    pub attr_hits: u64,
    /// Attributes asked of a server.
    pub attr_misses: u64,
}

impl ClientCounters {
    /// All messages.
    pub fn messages_all(&self) -> u64 {
        self.messages.values().sum()
    }
}
