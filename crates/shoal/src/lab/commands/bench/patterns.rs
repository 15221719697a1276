//! `shoal bench patterns`: compares structured requests of several clients on one file with single calls
//! and with contiguous transfers.
//!
//! Each client is a thread with an event loop of its own. Each turn is prepared first (its data and its list
//! of calls are made), then all clients begin at once. In the first round the bytes that were read are
//! compared after the clock has stopped (unless the store keeps no data: module `null`). The byte at each
//! offset of the file is a function of the offset. So every way of writing leaves the same file, and every
//! read can be checked.

use super::cluster::Cluster;
use crate::address::CommandTarget;
use crate::lab::cli::{BenchPatterns, PatternShape};
use crate::lab::native;
use crate::{connect, out};
use anyhow::{Context as _, Result, anyhow, bail};
use bytes::Bytes;
use clap::ValueEnum as _;
use serde_json::{Value, json};
use shoal_bench::patterns::{Moved, PartShape, PatternRow};
use shoal_bench::{PatternsOptions, PatternsReport, Progress, counts};
use shoal_client::{Client, OpenFile};
use shoal_env::real;
use shoal_pattern::{Level, Pattern, Region};
use shoal_proto::{Name, Rights};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// The file.
const FILE: &str = "patterns";
/// Bytes of a contiguous call that fills the file.
const FILL_BYTES: u64 = 4 << 20;

/// Measure.
pub fn run(args: BenchPatterns) -> Result<ExitCode> {
    let options = options(&args)?;
    options.validate()?;
    let report = measure(&args, &options)?;
    let verdicts = report.verdicts();
    if args.own.tell.json {
        out::json(&json!({ "report": report, "verdicts": verdicts }))?;
        return Ok(ExitCode::SUCCESS);
    }
    out::bytes(report.to_table().as_bytes())?;
    super::say(&verdicts)?;
    Ok(ExitCode::SUCCESS)
}

fn options(args: &BenchPatterns) -> Result<PatternsOptions> {
    let shapes = match args.shapes.as_slice() {
        [] => PartShape::ALL.to_vec(),
        some => some.iter().map(|shape| shape_of(*shape)).collect(),
    };
    if args.quick {
        let records = vec![64, 4096];
        return Ok(PatternsOptions { clients: 4, total: 8 << 20, records, shapes, calls: 50, rounds: 1 });
    }
    let records = args.records.iter().map(|size| size.0).collect();
    let BenchPatterns { clients, total, calls, repeat, .. } = args;
    Ok(PatternsOptions { clients: *clients, total: total.0, records, shapes, calls: *calls, rounds: *repeat })
}

fn shape_of(shape: PatternShape) -> PartShape {
    match shape {
        PatternShape::Broadcast => PartShape::Broadcast,
        PatternShape::Partitioned => PartShape::Partitioned,
        PatternShape::Interleaved => PartShape::Interleaved,
        PatternShape::Column => PartShape::Column,
        PatternShape::Block => PartShape::Block,
        PatternShape::Nested => PartShape::Nested,
        PatternShape::List => PartShape::List,
    }
}

fn measure(args: &BenchPatterns, options: &PatternsOptions) -> Result<PatternsReport> {
    let module = args.module.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned());
    let cluster = Cluster::start(args.own.folder.as_deref(), args.servers, &["--module", &module])?;
    let place = cluster.place()?;
    let crew = Crew::start(&place, options.clients, cluster.pids())?;
    // The module `null` keeps nothing.
    let is_checked = module != "null";
    let mut draw = super::draw(&args.own.tell);
    let directions = |shape: &PartShape| if shape.is_written() { 2 } else { 1 };
    let steps = options.shapes.iter().map(directions).sum::<u64>() * options.records.len() as u64;
    draw(Progress::Begin { steps: steps * options.rounds as u64 });
    let (mut rows, mut step) = (Vec::new(), 0);
    for &record in &options.records {
        crew.fill(options.file_bytes(record))?;
        for &shape in &options.shapes {
            for is_write in [true, false] {
                if is_write && !shape.is_written() {
                    continue;
                }
                let empty = Vec::new;
                let mut row = PatternRow {
                    shape,
                    record,
                    is_write,
                    structured: empty(),
                    single: empty(),
                    contiguous: empty(),
                };
                for round in 1..=options.rounds {
                    let what = format!("{} by {record}", shape.name());
                    draw(Progress::Step { step, what, repetition: round });
                    step += 1;
                    let is_checked = is_checked && round == 1;
                    let turn = |way| crew.turn(&Turn { options, shape, record, is_write, is_checked, way });
                    row.structured.push(turn(Way::Structured)?);
                    row.contiguous.push(turn(Way::Contiguous)?);
                    row.single.push(turn(Way::Single)?);
                }
                rows.push(row);
            }
        }
    }
    draw(Progress::End);
    drop(crew);
    cluster.stop()?;
    Ok(PatternsReport { options: options.clone(), rows })
}

/// How a part is moved.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Structured,
    Contiguous,
    Single,
}

/// All clients move their parts.
struct Turn<'a> {
    options: &'a PatternsOptions,
    shape: PartShape,
    record: u64,
    is_write: bool,
    is_checked: bool,
    way: Way,
}

/// The calls of one client in a turn.
struct Job {
    calls: Vec<Pattern>,
    is_write: bool,
    is_checked: bool,
}

impl Turn<'_> {
    fn job(&self, client: usize) -> Result<Job> {
        let Turn { options, shape, record, is_write, is_checked, way } = *self;
        let part = part(options, shape, record, client)?;
        let calls = match way {
            Way::Structured => vec![part],
            Way::Contiguous => {
                let from = if shape.is_written() { part.len() * client as u64 } else { 0 };
                vec![Pattern::contiguous(from as i64, part.len())?]
            }
            Way::Single => {
                let count = (part.len() / record).min(options.calls);
                // Spread over the whole part.
                let each = part.len() / record / count;
                let calls = (0..count).map(|call| part.slice(call * each * record, record));
                calls.collect()
            }
        };
        Ok(Job { calls, is_write, is_checked })
    }
}

/// The part of one client.
fn part(options: &PatternsOptions, shape: PartShape, record: u64, client: usize) -> Result<Pattern> {
    let (clients, client) = (options.clients as u64, client as u64);
    let bytes = options.part_bytes(shape, record);
    let count = bytes / record;
    let (row, stride) = (record * clients, (record * clients) as i64);
    let pattern = match shape {
        PartShape::Broadcast => Pattern::strided(0, record, record as i64, count)?,
        PartShape::Partitioned => Pattern::strided((client * bytes) as i64, record, record as i64, count)?,
        PartShape::Interleaved => Pattern::strided((client * record) as i64, record, stride, count)?,
        // A matrix of four records of each client a row: column by column, against the file's order.
        PartShape::Nested => {
            let levels =
                vec![Level { stride: 4 * stride, quantity: count / 4 }, Level { stride, quantity: 4 }];
            Pattern::nested((client * record) as i64, record, levels)?
        }
        PartShape::Column => {
            // Columns apart from each other, as far as there are so many.
            let columns = bytes / record;
            let column = client * (columns / clients).max(1) % columns;
            Pattern::strided((column * record) as i64, record, bytes as i64, columns)?
        }
        PartShape::Block => {
            let cube = options.cube(record);
            let (row, plane) = (2 * record, 2 * record * cube.plane_rows);
            let levels = vec![
                Level { stride: row as i64, quantity: cube.rows },
                Level { stride: plane as i64, quantity: cube.planes },
            ];
            Pattern::nested((client * cube.planes * plane) as i64, record, levels)?
        }
        PartShape::List => {
            // A step that shares no factor with a power of two meets every place once.
            let places = options.file_bytes(record) / row;
            let regions = (0..count).map(|at| {
                let place = (at * 7919 + client * 31) % places;
                Region::new((place * row + client * record) as i64, record)
            });
            Pattern::list(regions.collect())?
        }
    };
    Ok(pattern)
}

/// The byte at an offset of the file.
fn byte_at(offset: u64) -> u8 {
    let word = (offset >> 3).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (word >> ((offset & 7) * 8)) as u8
}

/// The bytes of a pattern.
fn bytes_of(pattern: &Pattern) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(pattern.len() as usize);
    for region in pattern.regions() {
        let from = region.offset as u64;
        bytes.extend((from..from + region.len).map(byte_at));
    }
    bytes
}

/// The order to a client's thread.
enum Order {
    Prepare(Box<Job>),
    Go,
}

/// One client's thread.
struct Hand {
    orders: Sender<Order>,
    /// Ready, then done: the moment; then checked.
    replies: Receiver<Result<Instant>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// The clients.
struct Crew {
    hands: Vec<Hand>,
    place: CommandTarget,
    pids: Vec<u32>,
}

impl Drop for Crew {
    fn drop(&mut self) {
        for hand in self.hands.drain(..) {
            drop(hand.orders);
            if let Some(thread) = hand.thread {
                let _ = thread.join();
            }
        }
    }
}

impl Crew {
    fn start(place: &CommandTarget, clients: usize, pids: Vec<u32>) -> Result<Crew> {
        let made = Arc::new(Mutex::new(()));
        let mut hands = Vec::new();
        for client in 0..clients {
            let (orders, taken) = channel();
            let (tell, replies) = channel();
            let (place, made) = (place.clone(), made.clone());
            let work = move || {
                let told = hand(client, &place, &made, &taken, &tell);
                if let Err(error) = told {
                    let _ = tell.send(Err(error));
                }
            };
            let thread = std::thread::Builder::new().name(format!("bench-{client}")).spawn(work);
            let thread = Some(thread.context("cannot start a client's thread")?);
            hands.push(Hand { orders, replies, thread });
        }
        for hand in &hands {
            hand.reply()?;
        }
        Ok(Crew { hands, place: place.clone(), pids })
    }

    /// Write the first bytes of the file.
    fn fill(&self, len: u64) -> Result<()> {
        let clients = self.hands.len() as u64;
        for (hand, client) in self.hands.iter().zip(0..) {
            let starts = (0..len.div_ceil(FILL_BYTES)).filter(|at| at % clients == client);
            let calls = starts.map(|at| {
                let from = at * FILL_BYTES;
                Pattern::contiguous(from as i64, FILL_BYTES.min(len - from))
            });
            let calls = calls.collect::<Result<Vec<_>, _>>()?;
            hand.prepare(Job { calls, is_write: true, is_checked: false })?;
        }
        self.go().map(drop)
    }

    fn turn(&self, turn: &Turn<'_>) -> Result<Moved> {
        let (mut bytes, mut records) = (0, 0);
        for (client, hand) in self.hands.iter().enumerate() {
            let job = turn.job(client)?;
            bytes += job.calls.iter().map(Pattern::len).sum::<u64>();
            records += job.calls.iter().map(|call| call.len() / turn.record).sum::<u64>();
            hand.prepare(job)?;
        }
        // Processor time of this process has no share of the preparation.
        let before = Counted::now(&self.place, &self.pids)?;
        let (took_s, cpu) = self.go()?;
        let behind = Counted::now(&self.place, &self.pids)?;
        Ok(Moved {
            bytes,
            records,
            took_s,
            client_cpu_us: cpu,
            server_cpu_us: behind.server_cpu_us.saturating_sub(before.server_cpu_us),
            requests: behind.requests.saturating_sub(before.requests),
            file_reads: behind.file_reads.saturating_sub(before.file_reads),
            file_read_bytes: behind.file_read_bytes.saturating_sub(before.file_read_bytes),
            file_writes: behind.file_writes.saturating_sub(before.file_writes),
        })
    }

    /// All at once; the seconds until the last one is done, and the clients' processor time.
    fn go(&self) -> Result<(f64, u64)> {
        self.hands.iter().try_for_each(|hand| hand.reply().map(drop))?;
        let (begun, cpu) = (Instant::now(), counts::cpu_us_here());
        self.hands.iter().try_for_each(|hand| hand.order(Order::Go))?;
        let mut last = begun;
        for hand in &self.hands {
            last = last.max(hand.reply()?);
        }
        let cpu = counts::cpu_us_here().saturating_sub(cpu);
        self.hands.iter().try_for_each(|hand| hand.order(Order::Go))?;
        self.hands.iter().try_for_each(|hand| hand.reply().map(drop))?;
        Ok(((last - begun).as_secs_f64(), cpu))
    }
}

/// Counts at one moment.
struct Counted {
    server_cpu_us: u64,
    requests: u64,
    file_reads: u64,
    file_read_bytes: u64,
    file_writes: u64,
}

impl Counted {
    fn now(place: &CommandTarget, pids: &[u32]) -> Result<Counted> {
        let all = connect::with_client(place, |_, client| async move { native::statuses(&client).await })?;
        let of = |group: &str, name: &str| -> u64 {
            all.iter().filter_map(|one: &Value| one[group][name].as_u64()).sum()
        };
        Ok(Counted {
            server_cpu_us: pids.iter().map(|&pid| counts::cpu_us_of(pid)).sum(),
            requests: of("counters", "requests"),
            file_reads: of("env", "file_reads"),
            file_read_bytes: of("env", "file_read_bytes"),
            file_writes: of("env", "file_writes"),
        })
    }
}

impl Hand {
    fn order(&self, order: Order) -> Result<()> {
        self.orders.send(order).map_err(|_| anyhow!("a client's thread ended"))
    }

    fn prepare(&self, job: Job) -> Result<()> {
        self.order(Order::Prepare(Box::new(job)))
    }

    fn reply(&self) -> Result<Instant> {
        self.replies.recv().map_err(|_| anyhow!("a client's thread ended"))?
    }
}

/// The work of a client's thread.
fn hand(
    client: usize,
    place: &CommandTarget,
    made: &Mutex<()>,
    orders: &Receiver<Order>,
    tell: &Sender<Result<Instant>>,
) -> Result<()> {
    let runtime = real::Runtime::new(&format!("bench-{client}"));
    let options = connect::options(place)?;
    let path = place.address.path.clone();
    let (connected, file) = {
        // One makes the file, the others open it.
        let _one = made.lock().map_err(|_| anyhow!("a client panicked"))?;
        runtime.block_on(async {
            let connected = Client::connect(runtime.env(), options).await?;
            let file = open(&connected, path.as_bytes()).await?;
            Ok::<_, anyhow::Error>((connected, file))
        })?
    };
    let say = |moment: Instant| tell.send(Ok(moment)).map_err(|_| anyhow!("the measurement ended"));
    say(Instant::now())?;
    while let Ok(Order::Prepare(job)) = orders.recv() {
        let data: Vec<Bytes> = match job.is_write {
            true => job.calls.iter().map(|call| Bytes::from(bytes_of(call))).collect(),
            false => Vec::new(),
        };
        say(Instant::now())?;
        let Ok(Order::Go) = orders.recv() else { break };
        let read = runtime.block_on(work(&file, &job, data))?;
        say(Instant::now())?;
        let Ok(Order::Go) = orders.recv() else { break };
        if job.is_checked {
            check(&job, &read)?;
        }
        say(Instant::now())?;
    }
    runtime.block_on(async {
        file.close().await?;
        connected.close().await;
        Ok(())
    })
}

async fn open(client: &Client, root: &[u8]) -> Result<OpenFile> {
    let dir = client.walk(root, true).await?.handle;
    let name = Name::new(FILE.as_bytes()).map_err(|status| anyhow!(status))?;
    let (rights, owner) = (Rights::READ | Rights::WRITE, crate::copy::owner(0o644));
    Ok(client.create(dir, &name, owner, false, rights, None).await?.2)
}

async fn work(file: &OpenFile, job: &Job, data: Vec<Bytes>) -> Result<Vec<Bytes>> {
    if job.is_write {
        for (call, data) in job.calls.iter().zip(data) {
            file.write_pattern(call, data).await?;
        }
        return Ok(Vec::new());
    }
    let mut read = Vec::new();
    for call in &job.calls {
        let bytes = file.read_pattern(call).await?;
        if bytes.len() as u64 != call.len() {
            bail!("{} bytes were read of {call}", bytes.len());
        }
        if job.is_checked {
            read.push(bytes);
        }
    }
    Ok(read)
}

/// The bytes read are those that were written.
fn check(job: &Job, read: &[Bytes]) -> Result<()> {
    for (call, bytes) in job.calls.iter().zip(read) {
        if bytes_of(call) != bytes[..] {
            bail!("{call} reads back other bytes than were written");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_parts_of_all_clients_share_the_file_without_overlap() {
        let options = PatternsOptions {
            clients: 4,
            total: 1 << 18,
            records: vec![64],
            shapes: PartShape::ALL.to_vec(),
            calls: 5,
            rounds: 1,
        };
        for shape in PartShape::ALL.into_iter().filter(|shape| shape.is_written()) {
            let mut records = BTreeSet::new();
            for client in 0..4 {
                let part = part(&options, shape, 64, client).unwrap();
                assert_eq!(part.len(), options.part_bytes(shape, 64), "{shape:?}");
                for region in part.coalesce().regions() {
                    for offset in (region.offset..region.offset + region.len as i64).step_by(64) {
                        assert!(offset >= 0 && (offset as u64) < options.file_bytes(64));
                        assert!(records.insert(offset), "{shape:?} twice at {offset}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_bytes_of_a_pattern_are_those_of_its_offsets() {
        let pattern = Pattern::strided(3, 2, 10, 2).unwrap();
        assert_eq!(bytes_of(&pattern), [byte_at(3), byte_at(4), byte_at(13), byte_at(14)]);
    }
}
