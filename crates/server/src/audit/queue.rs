//! The bounded queue of the lines that wait to be written, and the counts of lines written and lost.
//!
//! Each line has a number. The oldest line is tried until it is written, so the file keeps the order of the
//! events. If the queue is full, a new line is lost and counted.

use super::rate::Rate;
use bytes::Bytes;
use shoal_env::Instant;
use std::collections::VecDeque;
use std::time::Duration;

/// Lines that wait, at most, and their bytes.
const LINES_MAX: usize = 4096;
const BYTES_MAX: usize = 1 << 20;
/// Bytes of one write, at most; one line at least.
pub(super) const WRITE_BYTES_MAX: usize = 60 << 10;

/// The kinds of events: each that others can cause at will has a rate of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// The server's own, and changes by administrators: without a limit.
    Server,
    /// Connections with the admin key, and their ends.
    Admin,
    /// Maps of other servers.
    Map,
    /// Refusals.
    Refusal,
    /// Connections and sessions, and their ends.
    Connection,
    /// Operations that manage and only read: `fsck` makes thousands.
    Look,
}

/// The kinds that have a rate: lines at once, and then one in so many milliseconds.
const RATES: [(Kind, u32, u64); 5] = [
    (Kind::Admin, 64, 10_000),
    (Kind::Map, 64, 10_000),
    (Kind::Refusal, 64, 1_000),
    (Kind::Connection, 512, 100),
    (Kind::Look, 16, 10_000),
];

impl Kind {
    /// The name in the log.
    pub(super) fn words(self) -> &'static str {
        match self {
            Kind::Server => "server",
            Kind::Admin => "admin_connections",
            Kind::Map => "maps",
            Kind::Refusal => "refusals",
            Kind::Connection => "connections",
            Kind::Look => "reads",
        }
    }

    /// Whether only holders of the admin key or the servers' key cause it (or of the first mount key, where
    /// that manages), and it has to stay whatever others do.
    pub(super) fn is_of_administrators(self) -> bool {
        matches!(self, Kind::Server | Kind::Admin | Kind::Map)
    }
}

/// A line that was noted, by its number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Noted(u64);

/// See the module.
pub(super) struct Queue {
    /// Each since when it waits.
    lines: VecDeque<(Instant, Vec<u8>)>,
    bytes: usize,
    /// The number of the next line.
    next: u64,
    /// All lines before this one were written, or tried once.
    tried: u64,
    rates: Vec<(Kind, Rate)>,
    /// Lines that no line reports as lost yet.
    lost_unsaid: u64,
    /// Lines written.
    pub(super) written: u64,
    /// Lines lost.
    pub(super) lost: u64,
}

impl Queue {
    /// An empty one.
    pub(super) fn new() -> Queue {
        let rate =
            |&(kind, burst, ms): &(Kind, u32, u64)| (kind, Rate::new(burst, Duration::from_millis(ms)));
        Queue {
            lines: VecDeque::new(),
            bytes: 0,
            next: 0,
            tried: 0,
            rates: RATES.iter().map(rate).collect(),
            lost_unsaid: 0,
            written: 0,
            lost: 0,
        }
    }

    /// Whether a line of this kind is to be written.
    pub(super) fn takes(&mut self, kind: Kind, now: Instant) -> bool {
        self.rates.iter_mut().find(|(of, _)| *of == kind).is_none_or(|(_, rate)| rate.takes(now))
    }

    /// Whether lines were left out and no line says so yet.
    pub(super) fn has_left_out(&self) -> bool {
        self.rates.iter().any(|(_, rate)| rate.has_left_out())
    }

    /// How many of each kind were left out, as far as that may be said now.
    pub(super) fn left_out(&mut self, now: Instant, is_end: bool) -> Vec<(Kind, u64)> {
        let due = |(kind, rate): &mut (Kind, Rate)| Some((*kind, rate.due_count(now, is_end)?));
        self.rates.iter_mut().filter_map(due).collect()
    }

    /// A line comes last, if there is room.
    pub(super) fn enter(&mut self, line: Vec<u8>, now: Instant) -> Noted {
        if self.lines.len() >= LINES_MAX || self.bytes + line.len() > BYTES_MAX {
            self.lost += 1;
            self.lost_unsaid += 1;
            // Its reply waits for no write.
            return Noted(0);
        }
        self.bytes += line.len();
        self.lines.push_back((now, line));
        self.next += 1;
        Noted(self.next - 1)
    }

    /// How many lines were lost that no line reports, if there is room for that line.
    pub(super) fn lost_to_report(&mut self) -> Option<u64> {
        let has_room = self.lines.len() < LINES_MAX && self.bytes + super::line::LINE_BYTES_MAX <= BYTES_MAX;
        (self.lost_unsaid > 0 && has_room).then(|| std::mem::take(&mut self.lost_unsaid))
    }

    /// Whether lines were lost that no line reports yet.
    pub(super) fn has_lost_unsaid(&self) -> bool {
        self.lost_unsaid > 0
    }

    /// How long the first has waited.
    pub(super) fn waited(&self, now: Instant) -> Duration {
        self.lines.front().map_or(Duration::ZERO, |(since, _)| now.since(*since))
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.lines.len()
    }

    /// The first lines, as many as one write to a file of at most so many bytes takes, and their number.
    pub(super) fn first(&self, bytes_max: u64) -> (Bytes, usize) {
        let most = WRITE_BYTES_MAX.min(usize::try_from(bytes_max).unwrap_or(usize::MAX));
        let (mut lines, mut count) = (Vec::new(), 0);
        for (_, line) in &self.lines {
            if count > 0 && lines.len() + line.len() > most {
                break;
            }
            lines.extend_from_slice(line);
            count += 1;
        }
        (lines.into(), count)
    }

    /// A write of the first `count` lines has ended.
    pub(super) fn tried(&mut self, count: usize, is_written: bool) {
        let first = self.next - self.lines.len() as u64;
        self.tried = self.tried.max(first + count as u64);
        if is_written {
            let bytes: usize = self.lines.drain(..count).map(|(_, line)| line.len()).sum();
            self.bytes -= bytes;
            self.written += count as u64;
        }
    }

    /// Whether a write of that line has ended, well or not.
    pub(super) fn is_tried(&self, noted: Noted) -> bool {
        noted.0 < self.tried
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_loses_the_newest_lines_and_counts_them_and_says_so_once_when_there_is_room() {
        let (mut queue, at) = (Queue::new(), |seconds: u64| Instant(seconds * 1_000_000_000));
        assert_eq!(queue.waited(at(9)), Duration::ZERO);
        for n in 0..LINES_MAX + 10 {
            queue.enter(format!("{n}\n").into_bytes(), at(7 + n as u64));
        }
        // Whether its write has failed or does not end.
        assert_eq!((queue.waited(at(20)), queue.has_lost_unsaid()), (Duration::from_secs(13), true));
        assert_eq!((queue.len(), queue.lost, queue.lost_to_report()), (LINES_MAX, 10, None));
        let (lines, count) = queue.first(u64::MAX);
        assert!(lines.starts_with(b"0\n1\n2\n") && lines.len() <= WRITE_BYTES_MAX && count > 0);
        assert_eq!(queue.first(5), (b"0\n1\n"[..].into(), 2), "no write is longer than its file may be");
        // A write that failed changes nothing but that it was tried.
        let next = queue.next;
        queue.tried(count, false);
        assert_eq!((queue.len(), queue.first(u64::MAX).1), (LINES_MAX, count));
        assert!(queue.is_tried(Noted(count as u64 - 1)) && !queue.is_tried(Noted(next)));
        queue.tried(count, true);
        assert_eq!((queue.len(), queue.written), (LINES_MAX - count, count as u64));
        assert_eq!((queue.lost_to_report(), queue.lost_to_report()), (Some(10), None));
        assert!(!queue.has_lost_unsaid());
        while queue.len() > 0 {
            let (_, count) = queue.first(u64::MAX);
            queue.tried(count, true);
        }
        assert_eq!((queue.bytes, queue.written), (0, LINES_MAX as u64));
        // Its bytes have a bound too.
        for _ in 0..LINES_MAX {
            queue.enter(vec![b'x'; 16 << 10], at(9));
        }
        assert!(queue.bytes <= BYTES_MAX && queue.lost > 10);
    }

    #[test]
    fn strangers_use_up_the_rate_of_their_kind_only_and_an_administrators_change_has_none() {
        let (mut queue, now) = (Queue::new(), Instant(1_000_000_000));
        let takes = |queue: &mut Queue, kind| (0..10_000).filter(|_| queue.takes(kind, now)).count();
        assert_eq!(takes(&mut queue, Kind::Refusal), 64);
        assert_eq!(takes(&mut queue, Kind::Connection), 512);
        assert_eq!(takes(&mut queue, Kind::Server), 10_000);
        assert!(queue.left_out(now, false).is_empty());
        assert!(queue.has_left_out());
        let all = queue.left_out(now, true);
        assert_eq!(all, [(Kind::Refusal, 9_936), (Kind::Connection, 9_488)]);
        assert!(!queue.has_left_out());
    }
}
