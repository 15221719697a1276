//! The estimated upper bound of an operation on a machine: the least of the rates that each resource allows.
//!
//! ```text
//!   waiting      clients ÷ (round trips × trip + syncs × sync + accesses × access + transfer + processing)
//!   messages     echo's rate with as many outstanding ÷ messages
//!   client link  client nodes × bandwidth ÷ bytes              server link  bandwidth ÷ bytes at one server
//!   syncs        syncs a second × operations a sync ÷ syncs    disk         1 ÷ (accesses × access + bytes ÷ transfer)
//!   client CPU   client nodes × cores ÷ time                   server CPU   threads ÷ time at one server
//! ```
//!
//! If clients and servers share one computer, the term of the client CPU is replaced by `cores ÷ (client's
//! time + servers' time)`. The formulas assume that clients wait for each answer, with one operation each;
//! that a transfer takes as long as its slowest stage, because stages overlap; that all servers have the same
//! load; and that a server which holds a share of an operation has that share of its cost. All of this
//! favours the machine, so a rate that exceeds its bound shows a mistake in the counts or in the machine.

mod limit;
mod setting;
mod term;
#[cfg(test)]
mod tests;

use crate::counts::{Counts, Share};
use crate::machine::{Machine, Side};
use crate::words::{many, plain, short, time};
pub use limit::Limit;
pub use setting::{Access, Caching, Servers, Setting};
pub use term::{Bound, Part, Term, waiting};

impl Bound {
    /// Of an operation on a machine.
    pub fn of(counts: &Counts, machine: &Machine, setting: &Setting) -> Bound {
        let sum = Sum { counts, machine, setting };
        let all = [
            sum.waiting(),
            sum.messages(),
            sum.client_link(),
            sum.server_link(),
            sum.syncs(),
            sum.disk(),
            sum.client_cpu(),
            sum.server_cpu(),
            sum.shared_cpu(),
        ];
        Bound::least_of(all.into_iter().flatten())
    }

    /// The arithmetic, a line a term, the one that binds first.
    pub fn explain(&self) -> Vec<String> {
        let line = |t: &Term| format!("{:<22} {:>8}/s = {}", t.limit, short(t.per_s), t.arithmetic);
        self.terms.iter().map(line).collect()
    }
}

/// The operands of all terms.
struct Sum<'a> {
    counts: &'a Counts,
    machine: &'a Machine,
    setting: &'a Setting,
}

const MEGA: f64 = 1e6;

fn bytes_each_way(share: &Share) -> f64 {
    share.bytes_out + share.bytes_in
}

/// Processor time that servers spend, microseconds.
fn server_us(side: &Side, share: &Share) -> f64 {
    side.message_us * share.messages
        + side.operation_us * share.operations
        + (side.change_us + side.record_us) * share.changes
        + side.object_us * share.objects
        + side.removal_us * share.removals
        + side.entry_us * share.entries
        + side.megabyte_us * bytes_each_way(share) / MEGA
}

/// The same of clients: to them an operation is a call, however many servers have a part in it.
fn client_us(side: &Side, counts: &Counts) -> f64 {
    let all = counts.servers();
    let changes = if all.changes > 0.0 { counts.calls } else { 0.0 };
    // A client that waits for each answer sleeps meanwhile.
    let sleeps_us = (side.wake_us + side.sleep_us) * counts.round_trips;
    server_us(side, &Share { operations: counts.calls, changes, ..all }) + sleeps_us
}

impl Sum<'_> {
    fn term(limit: Limit, per_s: f64, arithmetic: String) -> Option<Term> {
        (per_s.is_finite()).then_some(Term { limit, per_s, arithmetic })
    }

    /// The busiest server's, or where all share one computer, all of it.
    fn at_a_server(&self, shared: bool, of: impl Fn(&Share) -> f64) -> f64 {
        if shared { of(&self.counts.servers()) } else { self.setting.servers.busiest(self.counts, of) }
    }

    fn client_nodes(&self) -> f64 {
        let nodes = &self.machine.nodes;
        if nodes.one_machine {
            return 1.0;
        }
        nodes.client_nodes.map_or(self.setting.clients, |most| most.min(self.setting.clients)).max(1).into()
    }

    /// A receiver's remaining bandwidth with so many senders.
    fn received_mb_per_s(&self, senders: f64) -> f64 {
        let link = &self.machine.link;
        let loss_percent = link.congestion.as_ref().map_or(0.0, |congestion| {
            let above = (senders - f64::from(congestion.free_senders)).max(0.0);
            (above * congestion.loss_percent).min(congestion.loss_percent_max)
        });
        link.bandwidth_mb_per_s * (1.0 - loss_percent / 100.0)
    }

    fn access_us(&self) -> Option<f64> {
        let disk = &self.machine.disk;
        let (seek_us, turns) = match self.setting.access {
            Access::Average => (disk.seek_average_us, 0.5),
            Access::Worst => (disk.seek_max_us, 1.0),
            Access::Track => (disk.seek_track_us, 0.5),
        };
        Some(seek_us? + turns * disk.rotation_us)
    }

    fn accesses(&self, reads: f64, writes: f64) -> f64 {
        match self.setting.caching {
            Caching::Nothing => reads + writes,
            Caching::Reads => writes,
            Caching::Everything => 0.0,
        }
    }

    /// Rates of reads and writes, 10^6 bytes a second: the disk's or the cache's.
    fn kept_mb_per_s(&self) -> (Option<f64>, Option<f64>) {
        let disk = &self.machine.disk;
        let read = match self.setting.caching {
            Caching::Nothing => disk.read_mb_per_s,
            Caching::Reads | Caching::Everything => disk.cache_read_mb_per_s,
        };
        let write = match self.setting.caching {
            Caching::Nothing | Caching::Reads => disk.write_mb_per_s,
            Caching::Everything => disk.cache_write_mb_per_s,
        };
        (read, write)
    }

    /// Time that the bytes of a share take where they are kept, microseconds.
    fn keeping_us(&self, share: &Share) -> f64 {
        let (read, write) = self.kept_mb_per_s();
        let us = |bytes: f64, rate: Option<f64>| rate.map_or(0.0, |rate| bytes / rate);
        let buffered = self.machine.disk.cache_write_mb_per_s;
        us(share.read_bytes, read) + us(share.write_bytes, write) + us(share.buffered_bytes, buffered)
    }

    /// One sync of the smallest size measured, and the addition of each byte above that; microseconds, of so
    /// many servers at once. `None`: not known.
    fn sync_us(&self, writers: f64) -> Option<(f64, f64)> {
        self.sync_fit(writers, |sync| sync.sync_us).or_else(|| Some((self.access_us()?, 0.0)))
    }

    /// Fits a line below all measurements by the first entry's method: from its smallest size on. A single
    /// writer waits no longer than one of several (where it was measured so, a disk was asleep between
    /// syncs): the best of as many writers or more counts.
    fn sync_fit(&self, writers: f64, us: impl Fn(&crate::machine::Sync) -> f64) -> Option<(f64, f64)> {
        let sync = &self.machine.sync;
        let method = &sync.first()?.method;
        let of_method = || sync.iter().filter(|s| s.method == *method);
        let most = of_method().map(|s| s.writers).filter(|&w| f64::from(w) <= writers).max();
        let crowd = most.or_else(|| of_method().map(|s| s.writers).min())?;
        let fit = |crowd: u32| {
            let rows = || of_method().filter(|s| s.writers == crowd);
            let least = rows().min_by_key(|s| s.bytes)?;
            let slope = |s: &crate::machine::Sync| (us(s) - us(least)) / (s.bytes - least.bytes) as f64;
            let slopes = rows().filter(|s| s.bytes > least.bytes).map(slope);
            Some((us(least), slopes.reduce(f64::min).unwrap_or(0.0).max(0.0)))
        };
        let crowds = of_method().map(|s| s.writers).filter(|&writers| writers >= crowd);
        crowds.filter_map(fit).min_by(|a, b| a.0.total_cmp(&b.0))
    }

    fn trip_us(&self) -> f64 {
        let link = &self.machine.link;
        link.round_trip_awake_us.filter(|_| self.setting.awake).unwrap_or(link.round_trip_us)
    }

    /// The slowest stage of the transfer of one operation that has the machine for itself.
    fn transfer(&self) -> Option<Part> {
        let all = self.counts.servers();
        let link = self.machine.link.bandwidth_mb_per_s;
        let one = self.machine.nodes.one_machine;
        let most = all.bytes_out.max(all.bytes_in);
        let (out, back) = (self.at_a_server(one, |s| s.bytes_out), self.at_a_server(one, |s| s.bytes_in));
        let kept_us = self.at_a_server(self.machine.disk.shared, |share| self.keeping_us(share));
        let stages = [
            ("the client's link", most / link),
            ("a server's link", out.max(back) / link),
            ("what keeps them", kept_us),
        ];
        let (name, us) = stages.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
        Some(Part { limit: Limit::Transfer, name: format!("bytes at {name}"), times: 1.0, each_us: us })
    }

    /// The work of both sides while no other client works; the messages' own part is in the round trip.
    fn processing_us(&self) -> f64 {
        let all = self.counts.servers();
        let waited = Share {
            operations: all.operations.min(self.counts.round_trips),
            changes: all.changes.min(self.counts.round_trips),
            objects: self.counts.waited_objects,
            removals: self.counts.waited_removals,
            entries: all.entries,
            ..Share::default()
        };
        let cpu = &self.machine.cpu;
        let client =
            client_us(&Side { message_us: 0.0, megabyte_us: 0.0, ..cpu.client.clone() }, self.counts);
        client + server_us(&cpu.server, &waited)
    }

    fn waiting(&self) -> Option<Term> {
        let counts = self.counts;
        let part = |limit, name: &str, times, each_us| Part { limit, name: name.to_owned(), times, each_us };
        let mut parts = vec![part(Limit::RoundTrip, "round trip", counts.round_trips, self.trip_us())];
        if counts.waited_syncs > 0.0
            && let Some((sync_us, _)) = self.sync_us(1.0)
        {
            // Its bytes are in the transfer.
            parts.push(part(Limit::Sync, "sync", counts.waited_syncs, sync_us));
        }
        if let Some(access_us) = self.access_us() {
            let times = self.accesses(counts.waited_reads, counts.waited_writes);
            parts.push(part(Limit::Access, "disk access", times, access_us));
        }
        parts.extend(self.transfer());
        parts.push(part(Limit::Processing, "processing", 1.0, self.processing_us()));
        let words = |part: &Part| {
            let each = format!("{} {}", part.name, time(part.each_us));
            if part.times == 1.0 { each } else { format!("{} × {each}", plain(part.times)) }
        };
        waiting(self.setting.clients.into(), parts, words).filter(|term| term.per_s.is_finite())
    }

    /// Echo's rates with so many outstanding: time of a small message, and the addition of each byte;
    /// microseconds.
    fn echo_us(&self) -> Option<(f64, f64)> {
        let rows = &self.machine.link.echo;
        let small = rows.iter().map(|echo| echo.bytes).min()?;
        let large = rows.iter().map(|echo| echo.bytes).max()?;
        let at = |bytes| self.echo_rate(bytes).map(|per_s| MEGA / per_s);
        let (small_us, large_us) = (at(small)?, at(large)?);
        let byte_us = if large > small { (large_us - small_us) / (large - small) as f64 } else { 0.0 };
        Some((small_us, byte_us.max(0.0)))
    }

    fn largest_echo(&self) -> f64 {
        self.machine.link.echo.iter().map(|echo| echo.bytes as f64).fold(0.0, f64::max)
    }

    /// Echo's rate with messages of so many bytes, interpolated between measured ones.
    fn echo_rate(&self, bytes: u64) -> Option<f64> {
        let alone = self.setting.clients == 1;
        let rate = |echo: &crate::machine::Echo| match (alone, self.setting.awake) {
            (true, false) => echo.idle_per_s,
            (true, true) => echo.awake_per_s,
            // With several there is always one that keeps the cores awake: the better figure.
            (false, _) => echo.idle_per_s.max(echo.awake_per_s),
        };
        let clients = f64::from(self.setting.clients);
        let mut known: Vec<(f64, f64)> = self
            .machine
            .link
            .echo
            .iter()
            .filter(|echo| echo.bytes == bytes)
            .map(|echo| (f64::from(echo.outstanding), rate(echo)))
            .collect();
        known.sort_by(|a, b| a.0.total_cmp(&b.0));
        let above = known.iter().find(|(outstanding, _)| *outstanding >= clients).or(known.last())?;
        let below = known.iter().rfind(|(outstanding, _)| *outstanding <= clients).unwrap_or(above);
        let part = if above.0 > below.0 { (clients - below.0) / (above.0 - below.0) } else { 0.0 };
        Some(below.1 + part.min(1.0) * (above.1 - below.1))
    }

    fn messages(&self) -> Option<Term> {
        let all = self.counts.servers();
        let (message_us, byte_us) = self.echo_us()?;
        // A message larger than an echo's is no echo: links bound it.
        let bytes = bytes_each_way(&all).min(all.messages * self.largest_echo());
        let us = all.messages * message_us + bytes * byte_us;
        let mut arithmetic = match all.messages == 1.0 {
            true => format!("echo {}/s", short(MEGA / message_us)),
            false => format!("echo {}/s ÷ {}", short(MEGA / message_us), many(all.messages, "message")),
        };
        if bytes * byte_us > 0.01 * us {
            arithmetic += &format!(", {} bytes slower", plain(bytes));
        }
        Sum::term(Limit::Messages, MEGA / us, arithmetic)
    }

    fn client_link(&self) -> Option<Term> {
        let all = self.counts.servers();
        let nodes = self.client_nodes();
        // A client receives from as many senders as there are data servers.
        let in_us = all.bytes_in / self.received_mb_per_s(self.setting.servers.data().into());
        let out_us = all.bytes_out / self.machine.link.bandwidth_mb_per_s;
        let (bytes, us) = if in_us > out_us { (all.bytes_in, in_us) } else { (all.bytes_out, out_us) };
        let arithmetic = format!("{} × {} MB/s ÷ {} bytes", plain(nodes), plain(bytes / us), plain(bytes));
        Sum::term(Limit::ClientLink, nodes * MEGA / us, arithmetic)
    }

    fn server_link(&self) -> Option<Term> {
        let one = self.machine.nodes.one_machine;
        let received = self.received_mb_per_s(self.client_nodes());
        let out = self.at_a_server(one, |share| share.bytes_out);
        let back = self.at_a_server(one, |share| share.bytes_in);
        let (out_us, back_us) = (out / received, back / self.machine.link.bandwidth_mb_per_s);
        let (bytes, us) = if out_us > back_us { (out, out_us) } else { (back, back_us) };
        let arithmetic = format!("{} MB/s ÷ {} bytes at a server", plain(bytes / us), plain(bytes));
        Sum::term(Limit::ServerLink, MEGA / us, arithmetic)
    }

    fn syncs(&self) -> Option<Term> {
        let (shared, group) = (self.machine.disk.shared, self.setting.group());
        let syncs = self.at_a_server(shared, |share| share.syncs);
        if syncs == 0.0 {
            return None;
        }
        let writers = self.setting.clients.min(self.setting.servers.count());
        let (sync_us, byte_us) = match shared {
            // The rate of durable writes of all of them together, on the one disk.
            true => {
                self.sync_fit(writers.into(), |sync| {
                    // Of more writers than there are, their part.
                    MEGA / sync.sync_per_s * (f64::from(sync.writers) / f64::from(writers.max(1))).max(1.0)
                })
                .or_else(|| self.sync_us(1.0))?
            }
            false => self.sync_us(1.0)?,
        };
        // A smaller one than was measured takes no less: nothing is known of it.
        let least = self.machine.sync.iter().map(|sync| sync.bytes).min().unwrap_or(0) as f64;
        let bytes = self.at_a_server(shared, |share| share.write_bytes) * group / syncs;
        let us = syncs / group * (sync_us + (bytes - least).max(0.0) * byte_us);
        let of = if shared { "of all servers" } else { "of a server" };
        let arithmetic = format!(
            "{} syncs/s {of} × {} a sync ÷ {}",
            short(MEGA / sync_us),
            many(group, "operation"),
            many(syncs, "sync")
        );
        Sum::term(Limit::Syncs, MEGA / us, arithmetic)
    }

    fn disk(&self) -> Option<Term> {
        let access_us = self.access_us().unwrap_or(0.0);
        let shared = self.machine.disk.shared;
        let accesses = self.at_a_server(shared, |share| self.accesses(share.reads, share.writes));
        let keeping_us = self.at_a_server(shared, |share| self.keeping_us(share));
        let together =
            |share: &Share| self.accesses(share.reads, share.writes) * access_us + self.keeping_us(share);
        let us = self.at_a_server(shared, together);
        let mut words = Vec::new();
        if accesses * access_us > 0.0 {
            words.push(format!("{} × disk access {}", plain(accesses), time(access_us)));
        }
        if keeping_us > 0.0 {
            words.push(format!("bytes {}", time(keeping_us)));
        }
        Sum::term(Limit::Disk, MEGA / us, format!("1 ÷ ({}) at a server", words.join(" + ")))
    }

    fn client_cpu(&self) -> Option<Term> {
        let nodes = &self.machine.nodes;
        if nodes.one_machine {
            return None;
        }
        let us = client_us(&self.machine.cpu.client, self.counts);
        let threads = nodes.client_threads.map_or(nodes.cores, |threads| threads.min(nodes.cores));
        let cores = self.client_nodes() * f64::from(threads);
        Sum::term(Limit::ClientCpu, cores * MEGA / us, format!("{} ÷ {}", many(cores, "core"), time(us)))
    }

    fn server_cpu(&self) -> Option<Term> {
        let us = self.at_a_server(false, |share| server_us(&self.machine.cpu.server, share));
        let threads = f64::from(self.machine.nodes.server_threads.min(self.machine.nodes.cores));
        Sum::term(
            Limit::ServerCpu,
            threads * MEGA / us,
            format!("{} ÷ {} at a server", many(threads, "thread"), time(us)),
        )
    }

    fn shared_cpu(&self) -> Option<Term> {
        if !self.machine.nodes.one_machine {
            return None;
        }
        let all = self.counts.servers();
        let cpu = &self.machine.cpu;
        let (client, server) = (client_us(&cpu.client, self.counts), server_us(&cpu.server, &all));
        let cores = f64::from(self.machine.nodes.cores);
        let arithmetic =
            format!("{} ÷ (client {} + server {})", many(cores, "core"), time(client), time(server));
        Sum::term(Limit::Cpu, cores * MEGA / (client + server), arithmetic)
    }
}
