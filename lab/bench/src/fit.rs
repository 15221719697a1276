//! Describes this machine as a [`Machine`]: probes measure its values. `shoal bounds` writes it as a file.
//!
//! The probes measure in rounds:
//!
//! * round trips of plain echo on idle and on awake cores, with 1, 4, 16 and 64 outstanding messages of 64
//!   bytes and 8 KiB;
//! * a stream of bytes;
//! * syncs, by method, size and number of writers;
//! * the disk, the cache and memory.
//!
//! Values are medians over the rounds. There are two exceptions. Processor time is kept twice: the least
//! of the rounds, for bounds (`[cpu]`), and the median, for simulations (`[usual]`). The disk's write rate
//! is the best of the medians of several methods and numbers of writers.
//!
//! The echo with 64 outstanding messages gives the processor time of a message: one value for the client,
//! one for the server. The crate `shoal` measures the cost of an *operation* with real servers and clients
//! ([`OperationCosts`]). This module subtracts the cost of the message from it.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use shoal_model::Machine;
use shoal_model::machine::{Cpu, Disk, Echo as EchoRow, Link, Memory, Nodes, Side, Sync};

use crate::awake::Awake;
use crate::counts;
use crate::probe::Home;
use crate::probe::disk::{DiskProbe, DiskRates};
use crate::probe::layout::{Connection, Echo, Layout, Servers};
use crate::probe::stream::{self, StreamRates};
use crate::probe::sync::{SyncFiles, SyncMethod};
use crate::spread::Spread;
use crate::team::process::WorkerCommand;

/// Requests outstanding, each of a client of its own.
pub const OUTSTANDING: [usize; 4] = [1, 4, 16, 64];
/// Sizes of requests; replies are small.
pub const MESSAGE_BYTES: [usize; 2] = [64, 8192];
/// A reply.
const REPLY_BYTES: usize = 64;
/// Where a message's processor time is measured: enough to keep both sides busy.
const BUSY: usize = 64;
/// Sizes that are made durable at once.
const SYNC_BYTES: [usize; 3] = [4096, 65_536, 1 << 20];
/// Bytes copied to measure memory; far more than caches hold.
const COPY_BYTES: usize = 64 << 20;

/// How to measure.
#[derive(Clone, Debug)]
pub struct FitOptions {
    /// A folder on the disk that is meant; nothing stays there.
    pub folder: PathBuf,
    /// The command that runs [`echo_server_main`](crate::probe::layout::echo_server_main).
    pub echo: WorkerCommand,
    /// Servers.
    pub servers: usize,
    /// Each single measurement takes so long.
    pub duration: Duration,
    /// Bytes of the file that the disk is measured with.
    pub disk_bytes: u64,
}

/// Processor time of one side for one operation, message included, microseconds; entries without.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OperationCosts {
    /// An operation that only looks.
    pub look_us: f64,
    /// The cheapest that changes something.
    pub change_us: f64,
    /// An entry of a listing.
    pub entry_us: f64,
    /// The additional cost of the cheapest change where it goes into a journal.
    pub record_us: f64,
    /// An operation that only looks, one client alone.
    pub alone_us: f64,
    /// 10^6 bytes of large files sent, and received, servers' memory being where they are kept.
    pub megabyte_us: (f64, f64),
    /// 10^6 bytes received by a server that puts them into its disk's cache; 0 for a client.
    pub megabyte_cached_us: f64,
    /// Writes to files for these that other threads made, in the round of `megabyte_cached_us`; those that
    /// the serving thread made itself are not among them.
    pub megabyte_calls: f64,
}

/// Costs of both sides, of one kind: the least of the rounds, or the usual ones.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Costs {
    /// The client's.
    pub client: OperationCosts,
    /// The servers'.
    pub server: OperationCosts,
    /// How long one client alone waits for an operation that only looks, microseconds.
    pub alone_us: f64,
    /// How often a server's thread went to sleep, an operation, when many asked.
    pub server_sleeps: f64,
    /// A durable write of a page that another thread makes, microseconds of processor time.
    pub file_us: f64,
    /// How long one waits, alone.
    pub file_alone_us: f64,
}

/// The cost of a thread's sleeping and waking.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sleeping {
    /// Before an idle core runs a thread.
    idle_us: f64,
    /// Going to sleep, of each side.
    sleep_us: f64,
    /// Being switched to, of a server.
    wake_us: f64,
}

impl Sleeping {
    /// Most of an operation is no sleeping.
    const PART_MAX: f64 = 0.4;

    /// One client alone waits for both sides' processor time, and for an idle core on each. Where it waits
    /// for less than both spend, the rest is spent when no client waits: going to sleep. The additional cost
    /// of servers for a single client is sleeping and waking too, in proportion to how much more often they
    /// do so.
    fn of(costs: &Costs) -> Sleeping {
        let (client_us, server_us) = (costs.client.look_us, costs.server.alone_us);
        let waits_us = costs.alone_us - client_us - server_us;
        let most_us = Sleeping::PART_MAX * client_us.min(server_us);
        let sleep_us = (-waits_us / 2.0).clamp(0.0, most_us);
        let seldom = (1.0 - costs.server_sleeps).clamp(0.2, 1.0);
        let both_us = (costs.server.alone_us - costs.server.look_us).max(0.0) / seldom;
        let wake_us = (both_us - sleep_us).clamp(0.0, Sleeping::PART_MAX * server_us);
        Sleeping { idle_us: (waits_us / 2.0).max(0.0), sleep_us, wake_us }
    }
}

/// All samples of one echo.
struct EchoSamples {
    outstanding: usize,
    bytes: usize,
    idle: Vec<(f64, f64)>,
    awake: Vec<(f64, f64)>,
}

/// All samples of one kind of sync.
struct SyncSamples {
    method: SyncMethod,
    writers: usize,
    bytes: usize,
    samples: Vec<(f64, f64)>,
    /// Processor time of each.
    cpu_us: Vec<f64>,
}

/// The machine, while it is measured.
pub struct Fit {
    options: FitOptions,
    /// Sockets' paths must be short, so they are not on the disk that is meant.
    sockets: Home,
    _home: Home,
    disk: DiskProbe,
    sync_files: SyncFiles,
    echoes: Vec<EchoSamples>,
    syncs: Vec<SyncSamples>,
    disks: Vec<DiskRates>,
    streams: Vec<StreamRates>,
    copies: Vec<f64>,
    /// Processor time of a message: client's, server's.
    messages: Vec<(f64, f64)>,
    /// Rounds measured.
    rounds: usize,
}

impl Fit {
    /// Makes the files the measurements need.
    pub fn new(options: FitOptions) -> Result<Fit> {
        let home = Home::new(&options.folder)?;
        let writers = [1, options.servers];
        let sync_files = SyncFiles::new(&home.0, options.servers.max(1))?;
        let disk = DiskProbe::new(&home.0, options.disk_bytes)?;
        let pairs =
            MESSAGE_BYTES.iter().flat_map(|&bytes| OUTSTANDING.map(|outstanding| (outstanding, bytes)));
        let echoes = pairs
            .map(|(outstanding, bytes)| EchoSamples {
                outstanding,
                bytes,
                idle: Vec::new(),
                awake: Vec::new(),
            })
            .collect();
        let mut syncs = Vec::new();
        // Journals' way first: the machine's first entry is the way of the servers.
        for method in [SyncMethod::DirectDsync, SyncMethod::AppendFdatasync] {
            for &writers in writers.iter().take(if options.servers > 1 { 2 } else { 1 }) {
                for bytes in SYNC_BYTES {
                    syncs.push(SyncSamples {
                        method,
                        writers,
                        bytes,
                        samples: Vec::new(),
                        cpu_us: Vec::new(),
                    });
                }
            }
        }
        Ok(Fit {
            options,
            sockets: Home::new(&std::env::temp_dir())?,
            _home: home,
            disk,
            sync_files,
            echoes,
            syncs,
            disks: Vec::new(),
            streams: Vec::new(),
            copies: Vec::new(),
            messages: Vec::new(),
            rounds: 0,
        })
    }

    /// Steps of a round.
    pub fn steps(&self) -> u64 {
        (self.echoes.len() + self.syncs.len() + 3) as u64
    }

    /// Measures everything once; `tell` receives the next step.
    pub fn round(&mut self, tell: &mut dyn FnMut(String)) -> Result<()> {
        let duration = self.options.duration;
        for outstanding in OUTSTANDING {
            let layout = Layout {
                clients: outstanding,
                servers: self.options.servers,
                place: Servers::Threads,
                connection: Connection::Unix,
            };
            let echo = Echo::start(layout, &self.options.echo, &self.sockets.0)?;
            for samples in self.echoes.iter_mut().filter(|s| s.outstanding == outstanding) {
                tell(format!("round trips, {} outstanding, {} bytes", samples.outstanding, samples.bytes));
                // Half the time each.
                let (client, server) = (counts::cpu_us_here(), echo.cpu_us());
                let idle = echo.measure(samples.bytes, REPLY_BYTES, duration / 2)?;
                let used = (counts::cpu_us_here() - client, echo.cpu_us().saturating_sub(server));
                samples.idle.push((idle.median_us, idle.per_s));
                if samples.outstanding == BUSY && samples.bytes == MESSAGE_BYTES[0] {
                    let each = |us: u64| us as f64 / idle.round_trips.max(1) as f64;
                    self.messages.push((each(used.0), each(used.1)));
                }
                let keeping = Awake::all();
                let awake = echo.measure(samples.bytes, REPLY_BYTES, duration / 2)?;
                drop(keeping);
                samples.awake.push((awake.median_us, awake.per_s));
            }
        }
        for sync in &mut self.syncs {
            tell(format!("{} of {} bytes, {} at once", sync.method, sync.bytes, sync.writers));
            let used_us = counts::cpu_us_here();
            let sample = self.sync_files.measure(sync.method, sync.writers, sync.bytes, duration / 2)?;
            let used_us = counts::cpu_us_here() - used_us;
            let each_us = |per_s: f64| used_us as f64 / (per_s * duration.as_secs_f64() / 2.0).max(1.0);
            sync.cpu_us.extend(sample.map(|sample| each_us(sample.per_s)));
            sync.samples.extend(sample.map(|sample| (sample.median_us, sample.per_s)));
        }
        tell("disk".to_owned());
        self.disks.push(self.disk.measure(duration / 2)?);
        tell("stream".to_owned());
        self.streams.push(stream::measure(duration)?);
        tell("memory".to_owned());
        self.copies.push(copy());
        self.rounds += 1;
        Ok(())
    }

    /// The machine, from medians over the rounds; removes the files.
    pub fn machine(self, title: String, least: &Costs, usual: &Costs) -> Result<Machine> {
        let echo: Vec<EchoRow> = self.echoes.iter().filter_map(echo_row).collect();
        let alone = echo.first().context("no round trip was measured")?;
        let stream = |of: fn(&StreamRates) -> f64| median(self.streams.iter().map(of)).unwrap_or(0.0);
        let bandwidth = stream(|s| s.mb_per_s);
        let stream = (stream(|s| s.sender_us), stream(|s| s.receiver_us));
        let messages = |of: fn(&(f64, f64)) -> f64| self.messages.iter().map(of);
        let least_us = |of| messages(of).reduce(f64::min).unwrap_or(0.0);
        let usual_us = |of| median(messages(of)).unwrap_or(0.0);
        let (least_us, usual_us) =
            ((least_us(|m| m.0), least_us(|m| m.1)), (usual_us(|m| m.0), usual_us(|m| m.1)));
        let link = Link {
            round_trip_us: alone.idle_us,
            round_trip_awake_us: Some(alone.awake_us),
            bandwidth_mb_per_s: tidy(bandwidth),
            medium_mb_per_s: None,
            congestion: None,
            echo,
        };
        let disk = disk(&self.disks, direct_mb_per_s(&self.syncs));
        let sync: Vec<Sync> = self.syncs.iter().filter_map(sync_row).collect();
        let writes = Writes {
            cached_us: disk.cache_write_mb_per_s.map_or(0.0, |rate| 1e6 / rate),
            page_us: sync.first().map_or(0.0, |page| (page.sync_us - page.cpu_us).max(0.0)),
        };
        let servers = self.options.servers as u32;
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
        Ok(Machine {
            name: "this".to_owned(),
            title,
            source: format!(
                "measured by `shoal bounds`: {} round{}, medians",
                self.rounds,
                if self.rounds == 1 { "" } else { "s" }
            ),
            nodes: Nodes {
                client_nodes: Some(1),
                metadata_servers: servers,
                data_servers: servers,
                servers_have_both: true,
                one_machine: true,
                cores,
                server_threads: 1,
                client_threads: None,
                idle_us: Some(tidy(Sleeping::of(usual).idle_us)),
                slice_us: None,
            },
            link,
            forwarding: None,
            disk,
            memory: Memory {
                bytes: memory_bytes(),
                copy_mb_per_s: median(self.copies.iter().copied()).map(tidy),
            },
            cpu: cpu(least_us, stream, least, &writes),
            usual: Some(cpu(usual_us, stream, usual, &writes)),
            sync,
            published: Vec::new(),
        })
    }
}

/// The time of a disk's writes by themselves, microseconds.
struct Writes {
    /// 10^6 bytes copied into its cache.
    cached_us: f64,
    /// A page made durable, without processor time.
    page_us: f64,
}

/// Both sides, from a message's processor time, that of a stream's 10^6 bytes, the costs of operations, and
/// the time of the disk's writes.
fn cpu(message_us: (f64, f64), megabyte_us: (f64, f64), costs: &Costs, disk: &Writes) -> Cpu {
    let sleeping = Sleeping::of(costs);
    let served_us = costs.server_sleeps * (sleeping.sleep_us + sleeping.wake_us);
    Cpu {
        client: Side {
            sleep_us: tidy(sleeping.sleep_us),
            ..side(message_us.0, megabyte_us.0, &costs.client, sleeping.sleep_us)
        },
        server: Side {
            sleep_us: tidy(sleeping.sleep_us),
            wake_us: tidy(sleeping.wake_us),
            // The wait of a lone write in addition to its processor time and the disk's: threads that wake
            // up.
            file_wait_us: tidy(costs.file_alone_us - costs.file_us - disk.page_us),
            ..keeping(
                Side {
                    file_us: tidy(costs.file_us),
                    ..side(message_us.1, megabyte_us.1, &costs.server, served_us)
                },
                &costs.server,
                disk,
            )
        },
    }
}

/// Received bytes cost a server only their way, where they go into a disk's cache: the copy is the cache's,
/// and the calls are those of other threads (`file_us`), which a simulation charges one by one. The
/// additional time of memory is memory's: the first touch of each page.
fn keeping(side: Side, costs: &OperationCosts, disk: &Writes) -> Side {
    let all_us = side.megabyte_received_us;
    let others_us = disk.cached_us + costs.megabyte_calls * side.file_us;
    let received_us = (costs.megabyte_cached_us - others_us).clamp(0.0, all_us);
    Side { megabyte_received_us: tidy(received_us), megabyte_kept_us: tidy(all_us - received_us), ..side }
}

/// The message's part is subtracted, because the bound counts messages by themselves; so is the cost of an
/// operation's sleeping.
fn side(message_us: f64, megabyte_us: f64, costs: &OperationCosts, slept_us: f64) -> Side {
    Side {
        message_us: tidy(message_us),
        operation_us: tidy((costs.look_us - message_us - slept_us).max(0.0)),
        change_us: tidy((costs.change_us - costs.look_us).max(0.0)),
        entry_us: tidy(costs.entry_us),
        megabyte_us: tidy(megabyte_us),
        megabyte_sent_us: tidy(costs.megabyte_us.0),
        megabyte_received_us: tidy(costs.megabyte_us.1),
        // A plain echo does nothing but call sockets.
        batched_us: tidy(message_us),
        record_us: tidy(costs.record_us),
        ..Side::default()
    }
}

fn median(samples: impl Iterator<Item = f64>) -> Option<f64> {
    Spread::of(&samples.collect::<Vec<_>>()).map(|spread| spread.median)
}

/// Four digits: more are not known.
fn tidy(value: f64) -> f64 {
    if value <= 0.0 || !value.is_finite() {
        return 0.0;
    }
    let scale = 10_f64.powi(3 - value.log10().floor() as i32);
    (value * scale).round() / scale
}

/// Medians of both numbers.
fn medians(samples: &[(f64, f64)]) -> Option<(f64, f64)> {
    let of = |of: fn(&(f64, f64)) -> f64| median(samples.iter().map(of)).map(tidy);
    Some((of(|s| s.0)?, of(|s| s.1)?))
}

fn echo_row(samples: &EchoSamples) -> Option<EchoRow> {
    let ((idle_us, idle_per_s), (awake_us, awake_per_s)) =
        (medians(&samples.idle)?, medians(&samples.awake)?);
    let (outstanding, bytes) = (samples.outstanding as u32, samples.bytes as u64);
    Some(EchoRow { outstanding, bytes, idle_us, idle_per_s, awake_us, awake_per_s })
}

fn sync_row(samples: &SyncSamples) -> Option<Sync> {
    let (sync_us, sync_per_s) = medians(&samples.samples)?;
    let cpu_us = median(samples.cpu_us.iter().copied()).map_or(0.0, tidy);
    let method = match samples.method {
        SyncMethod::DirectDsync => "o_direct_o_dsync",
        SyncMethod::AppendFdatasync => "append_fdatasync",
    };
    let (bytes, writers) = (samples.bytes as u64, samples.writers as u32);
    Some(Sync { method: method.to_owned(), bytes, writers, sync_us, sync_per_s, cpu_us })
}

/// The best rate of large durable writes, by any method and number of writers, 10^6 bytes a second.
fn direct_mb_per_s(syncs: &[SyncSamples]) -> f64 {
    let rate = |sync: &SyncSamples| medians(&sync.samples).map(|(_, per_s)| per_s * sync.bytes as f64 / 1e6);
    syncs.iter().filter_map(rate).fold(0.0, f64::max)
}

/// The better of both ways to write counts.
fn disk(all: &[DiskRates], direct_mb_per_s: f64) -> Disk {
    let of = |of: fn(&DiskRates) -> Option<f64>| median(all.iter().filter_map(of)).map(tidy);
    Disk {
        shared: true,
        seek_average_us: of(|d| d.random_us.map(|us| us.0)),
        seek_max_us: of(|d| d.random_us.map(|us| us.1)),
        seek_track_us: of(|d| d.next_us),
        rotation_us: 0.0,
        read_mb_per_s: of(|d| d.read_mb_per_s),
        write_mb_per_s: of(|d| Some(d.write_mb_per_s)).map(|rate| rate.max(tidy(direct_mb_per_s))),
        cache_read_mb_per_s: of(|d| Some(d.cache_read_mb_per_s)),
        cache_write_mb_per_s: of(|d| Some(d.cache_write_mb_per_s)),
        cache_bytes: None,
    }
}

/// 10^6 bytes a second that one core copies.
fn copy() -> f64 {
    let from = vec![7_u8; COPY_BYTES];
    let mut to = vec![1_u8; COPY_BYTES];
    let begun = Instant::now();
    to.copy_from_slice(&from);
    std::hint::black_box(&to);
    COPY_BYTES as f64 / 1e6 / begun.elapsed().as_secs_f64()
}

/// All memory there is, where the kernel says so.
fn memory_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_keep_four_digits() {
        assert_eq!(
            [123_456.0, 1.234_56, 0.012_345_6, 0.0, f64::NAN].map(tidy),
            [123_500.0, 1.235, 0.012_35, 0.0, 0.0]
        );
    }

    #[test]
    fn an_operation_s_cost_is_what_it_takes_beside_its_message() {
        let costs =
            OperationCosts { look_us: 15.0, change_us: 40.0, entry_us: 2.0, ..OperationCosts::default() };
        let side = side(10.0, 100.0, &costs, 0.0);
        assert_eq!((side.message_us, side.operation_us, side.change_us), (10.0, 5.0, 25.0));
        // Noise never makes a cost negative.
        assert_eq!(super::side(20.0, 100.0, &costs, 0.0).operation_us, 0.0);
    }

    #[test]
    fn who_waits_longer_than_both_sides_compute_waits_for_idle_cores_and_who_waits_less_for_no_one_s_sleep() {
        let side = |look_us, alone_us| OperationCosts { look_us, alone_us, ..OperationCosts::default() };
        let costs = Costs { client: side(20.0, 20.0), server: side(14.0, 20.0), ..Costs::default() };
        let slow = Sleeping::of(&Costs { alone_us: 60.0, ..costs });
        assert_eq!((slow.idle_us, slow.sleep_us, slow.wake_us), (10.0, 0.0, 6.0));
        let fast = Sleeping::of(&Costs { alone_us: 30.0, ..costs });
        assert_eq!((fast.idle_us, fast.sleep_us, fast.wake_us), (0.0, 5.0, 1.0));
    }

    #[test]
    fn what_memory_takes_more_than_a_disk_s_cache_is_the_keeping_s() {
        let costs = OperationCosts { megabyte_cached_us: 900.0, ..OperationCosts::default() };
        let disk = Writes { cached_us: 300.0, page_us: 0.0 };
        let of = |received_us| Side { megabyte_received_us: received_us, ..Side::default() };
        let split = |received_us| {
            let side = keeping(of(received_us), &costs, &disk);
            (side.megabyte_received_us, side.megabyte_kept_us)
        };
        assert_eq!(split(1000.0), (600.0, 400.0));
        // Noise gives neither less than nothing.
        assert_eq!(split(500.0), (500.0, 0.0));
        // A simulation charges the calls of other threads by themselves.
        let called = OperationCosts { megabyte_calls: 4.0, ..costs };
        let side = keeping(Side { file_us: 50.0, ..of(1000.0) }, &called, &disk);
        assert_eq!((side.megabyte_received_us, side.megabyte_kept_us), (400.0, 600.0));
    }

    #[test]
    fn a_lone_write_waits_for_what_neither_cores_nor_disk_explain() {
        let disk = Writes { cached_us: 0.0, page_us: 36.0 };
        let wait = |file_alone_us| {
            let costs = Costs { file_us: 34.0, file_alone_us, ..Costs::default() };
            cpu((5.0, 4.0), (0.0, 0.0), &costs, &disk).server.file_wait_us
        };
        assert_eq!((wait(90.0), wait(60.0)), (20.0, 0.0));
    }

    #[test]
    fn what_a_disk_does_not_offer_is_not_known() {
        let rates = DiskRates { write_mb_per_s: 100.0, ..DiskRates::default() };
        let disk = disk(&[rates, rates], 50.0);
        assert_eq!(
            (disk.write_mb_per_s, disk.read_mb_per_s, disk.seek_average_us),
            (Some(100.0), None, None)
        );
    }

    #[test]
    fn memory_is_copied_at_some_rate() {
        assert!(copy() > 0.0);
    }
}
