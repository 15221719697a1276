//! Compares transfers by patterns with single calls and with contiguous transfers: the figures of Galley.
//!
//! C clients share one file, and each has a part of it in one of the [`PartShape`]s: the shapes of Galley's
//! figure 2, and also nested patterns, lists, columns of a matrix and blocks of a cube. A part is moved in
//! three ways in turn, round by round:
//!
//! ```text
//!   structured   one call for the whole part
//!   single       one call for each record, up to a maximum number of records
//!   contiguous   one call for as many bytes, side by side in the file
//! ```
//! The structured rate as a share of the contiguous rate shows the price of small records. As a multiple of
//! the single rate it shows the gain of the interface. Two measures explain both: the processor time for a
//! record, and the numbers of the servers' requests and of their calls to the disk's files. A server that
//! visits a block once makes as many calls as there are blocks, however many clients share them.
//!
//! Source: Nieuwejaar and Kotz, "Performance of the Galley Parallel File System", sections 4.2 to 4.4.

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

use crate::demands::DemandVerdict;
use crate::interval::Interval;
use crate::report::plain_table;
use crate::spread::Spread;
use shoal_model::short;

/// The most bytes of the file.
pub const PATTERNED_BYTES_MAX: u64 = 16 << 30;
/// The most records of a list: a list holds each of them in the request.
pub const LISTED_MAX: u64 = 1024;
/// Demands, as shares of the contiguous rate: bytes of a record, reads, writes.
const OF_CONTIGUOUS: [(u64, f64, f64); 2] = [(64, 0.30, 0.20), (512, 0.70, 0.60)];
/// The gain over single calls with records of 64 bytes.
const OF_SINGLE: f64 = 100.0;
/// Of a matrix of 8-byte numbers a column over single reads, and of a cube a block in rows of 512 bytes, as a
/// share of the contiguous rate.
const COLUMN_OF_SINGLE: (u64, f64) = (8, 50.0);
const BLOCK_OF_CONTIGUOUS: (u64, f64) = (512, 0.60);
/// Processor time of the servers for a record of 64 bytes, nanoseconds: read, written.
const SERVER_NS: (f64, f64) = (300.0, 400.0);

/// How the clients' parts lie in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PartShape {
    /// Every client has all of it.
    Broadcast,
    /// Each client has one region, in records.
    Partitioned,
    /// Record after record, the clients in turn.
    Interleaved,
    /// A tile of a matrix for each client: rows of records, in strips of columns.
    Nested,
    /// Records at places without a rule.
    List,
    /// A column of a square matrix for each client: one record of every row.
    Column,
    /// A block of a cube for each client: half of each row, three quarters of a plane's rows, and a share of
    /// three quarters of the planes. A row has two records.
    Block,
}

impl PartShape {
    /// All of them.
    pub const ALL: [PartShape; 7] = [
        PartShape::Broadcast,
        PartShape::Partitioned,
        PartShape::Interleaved,
        PartShape::Nested,
        PartShape::List,
        PartShape::Column,
        PartShape::Block,
    ];

    /// Its name in tables and words.
    pub fn name(self) -> &'static str {
        match self {
            PartShape::Broadcast => "broadcast",
            PartShape::Partitioned => "partitioned",
            PartShape::Interleaved => "interleaved",
            PartShape::Nested => "nested",
            PartShape::List => "list",
            PartShape::Column => "column",
            PartShape::Block => "block",
        }
    }

    /// Whether clients may write in it at once: disjoint parts.
    pub fn is_written(self) -> bool {
        self != PartShape::Broadcast
    }
}

/// The options of a measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PatternsOptions {
    /// Clients at once.
    pub clients: usize,
    /// Bytes of the file.
    pub total: u64,
    /// Bytes of a record, each size.
    pub records: Vec<u64>,
    /// Shapes.
    pub shapes: Vec<PartShape>,
    /// Single calls of a client, at most.
    pub calls: u64,
    /// Rounds; medians are shown.
    pub rounds: usize,
}

impl PatternsOptions {
    /// Check them.
    ///
    /// # Errors
    /// Words for the option that cannot be.
    pub fn validate(&self) -> Result<()> {
        let PatternsOptions { clients, total, records, calls, rounds, shapes } = self;
        if *clients == 0 || *clients > crate::workload::WORKERS_MAX {
            bail!("clients are between 1 and {}, not {clients}", crate::workload::WORKERS_MAX);
        }
        if records.is_empty() || shapes.is_empty() || *rounds == 0 || *calls == 0 {
            bail!("nothing is to be measured: name a record, a shape, a round and a call");
        }
        if let Some(record) = records.iter().find(|record| !(1..=1 << 20).contains(*record)) {
            bail!("records have 1 byte to 1 MiB, not {record} bytes");
        }
        // So that a list meets every place once.
        let is_odd = |record: &&u64| !record.is_power_of_two();
        if let Some(record) = records.iter().find(is_odd).filter(|_| shapes.contains(&PartShape::List)) {
            bail!("records of a list are powers of two, not {record} bytes: name other --shapes");
        }
        let least = records.iter().max().unwrap_or(&1) * *clients as u64 * 4;
        if *total > PATTERNED_BYTES_MAX || *total < least {
            bail!("the file has between {least} and {PATTERNED_BYTES_MAX} bytes here, not {total}");
        }
        let is_flat = |record: &&u64| self.part_bytes(PartShape::Block, **record) == 0;
        if let Some(record) = records.iter().find(is_flat).filter(|_| shapes.contains(&PartShape::Block)) {
            bail!(
                "a cube of {total} bytes in records of {record} has no block for each of {clients} clients"
            );
        }
        Ok(())
    }

    /// Bytes of the file with records of this size: every client has as many, in rows of equal length.
    pub fn file_bytes(&self, record: u64) -> u64 {
        let turn = record * self.clients as u64 * 4;
        self.total / turn * turn
    }

    /// The cube of [`Shape::Block`], and a client's block of it.
    pub fn cube(&self, record: u64) -> Cube {
        let rows = self.file_bytes(record) / (2 * record);
        let plane_rows = rows.isqrt().max(1);
        let planes = rows / plane_rows;
        Cube { plane_rows, rows: plane_rows * 3 / 4, planes: planes * 3 / 4 / self.clients as u64 }
    }

    /// Bytes of one client's part.
    pub fn part_bytes(&self, shape: PartShape, record: u64) -> u64 {
        let all = self.file_bytes(record);
        match shape {
            PartShape::Broadcast => all,
            PartShape::List => (all / self.clients as u64).min(LISTED_MAX * record),
            PartShape::Column => (all / record).isqrt() * record,
            PartShape::Block => {
                let cube = self.cube(record);
                cube.rows * cube.planes * record
            }
            _ => all / self.clients as u64,
        }
    }
}

/// A cube whose rows have two records, and the block that one client has of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cube {
    /// Rows of a plane.
    pub plane_rows: u64,
    /// Of these the block has so many.
    pub rows: u64,
    /// Planes of the block.
    pub planes: u64,
}

/// One way of moving all parts, timed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Moved {
    /// Bytes of all clients.
    pub bytes: u64,
    /// Records of all clients.
    pub records: u64,
    /// Seconds until the last client was done.
    pub took_s: f64,
    /// Processor time of the clients, microseconds.
    pub client_cpu_us: u64,
    /// Processor time of the servers, microseconds.
    pub server_cpu_us: u64,
    /// Requests that the servers took.
    pub requests: u64,
    /// Reads of the servers' files, and their bytes.
    pub file_reads: u64,
    /// See `file_reads`.
    pub file_read_bytes: u64,
    /// Writes to the servers' files.
    pub file_writes: u64,
}

impl Moved {
    /// 10^6 bytes a second.
    pub fn mb_per_s(&self) -> f64 {
        self.bytes as f64 / 1e6 / self.took_s.max(1e-9)
    }

    fn server_ns(&self) -> f64 {
        self.server_cpu_us as f64 * 1e3 / self.records.max(1) as f64
    }

    fn client_ns(&self) -> f64 {
        self.client_cpu_us as f64 * 1e3 / self.records.max(1) as f64
    }
}

/// One shape with records of one size, in one direction: the rounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PatternRow {
    /// How the parts lie.
    pub shape: PartShape,
    /// Bytes of a record.
    pub record: u64,
    /// Written, or read.
    pub is_write: bool,
    /// One call for the whole part.
    pub structured: Vec<Moved>,
    /// One call a record.
    pub single: Vec<Moved>,
    /// The same bytes, side by side.
    pub contiguous: Vec<Moved>,
}

fn rates(rounds: &[Moved]) -> Vec<f64> {
    rounds.iter().map(Moved::mb_per_s).collect()
}

fn middle(rounds: &[Moved], of: impl Fn(&Moved) -> f64) -> f64 {
    Spread::of(&rounds.iter().map(of).collect::<Vec<_>>()).map_or(0.0, |spread| spread.median)
}

impl PatternRow {
    /// The structured rate as a part of the contiguous one.
    pub fn of_contiguous(&self) -> Option<Interval> {
        Interval::of_ratio(&rates(&self.structured), &rates(&self.contiguous))
    }

    /// How many times the rate of single calls.
    pub fn of_single(&self) -> Option<Interval> {
        Interval::of_ratio(&rates(&self.structured), &rates(&self.single))
    }

    fn direction(&self) -> &'static str {
        if self.is_write { "write" } else { "read" }
    }
}

/// All rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PatternsReport {
    /// The options of the measurement.
    pub options: PatternsOptions,
    /// The rows, in the order in which they were measured.
    pub rows: Vec<PatternRow>,
}

impl PatternsReport {
    /// As a table for people.
    pub fn to_table(&self) -> String {
        let header = [
            "pattern",
            "record",
            "",
            "MB/s",
            "of contiguous",
            "of single calls",
            "requests",
            "file reads",
            "file writes",
            "server ns a record",
            "client ns a record",
        ];
        let mut table = plain_table(header.map(str::to_owned).to_vec());
        for row in &self.rows {
            let count = |of: fn(&Moved) -> u64| short(middle(&row.structured, |moved| of(moved) as f64));
            let ratio = |ratio: Option<Interval>| ratio.map_or(String::new(), |ratio| ratio.as_ratio());
            table.add_row(vec![
                row.shape.name().to_owned(),
                row.record.to_string(),
                row.direction().to_owned(),
                short(middle(&row.structured, Moved::mb_per_s)),
                ratio(row.of_contiguous()),
                ratio(row.of_single()),
                count(|moved| moved.requests),
                count(|moved| moved.file_reads),
                count(|moved| moved.file_writes),
                short(middle(&row.structured, Moved::server_ns)),
                short(middle(&row.structured, Moved::client_ns)),
            ]);
        }
        format!("{table}\n")
    }

    /// The demands on interleaved records, columns and blocks, each held against its row.
    pub fn verdicts(&self) -> Vec<DemandVerdict> {
        let mut all = Vec::new();
        for row in &self.rows {
            let (record, single) = COLUMN_OF_SINGLE;
            if let (PartShape::Column, false, Some(ratio)) = (row.shape, row.is_write, row.of_single())
                && row.record == record
            {
                all.push(DemandVerdict {
                    demand: format!("a column's reads of {record} bytes: ≥ {single:.0} × single calls"),
                    measured: ratio.as_ratio(),
                    is_met: ratio.value >= single,
                });
            }
            let (record, contiguous) = BLOCK_OF_CONTIGUOUS;
            if let (PartShape::Block, false, Some(ratio)) = (row.shape, row.is_write, row.of_contiguous())
                && row.record == record
            {
                let least = contiguous * 100.0;
                all.push(DemandVerdict {
                    demand: format!(
                        "a block's reads in rows of {record} bytes: ≥ {least:.0} % of contiguous"
                    ),
                    measured: ratio.as_ratio(),
                    is_met: ratio.value >= contiguous,
                });
            }
        }
        for row in self.rows.iter().filter(|row| row.shape == PartShape::Interleaved) {
            let what = format!("interleaved {}s of {} bytes", row.direction(), row.record);
            if let Some((_, reads, writes)) = OF_CONTIGUOUS.iter().find(|demand| demand.0 == row.record)
                && let Some(ratio) = row.of_contiguous()
            {
                let least = if row.is_write { *writes } else { *reads };
                all.push(DemandVerdict {
                    demand: format!("{what}: ≥ {:.0} % of contiguous", least * 100.0),
                    measured: ratio.as_ratio(),
                    is_met: ratio.value >= least,
                });
            }
            if row.record != 64 {
                continue;
            }
            if let Some(ratio) = row.of_single() {
                all.push(DemandVerdict {
                    demand: format!("{what}: ≥ {OF_SINGLE:.0} × single calls"),
                    measured: ratio.as_ratio(),
                    is_met: ratio.value >= OF_SINGLE,
                });
            }
            let most = if row.is_write { SERVER_NS.1 } else { SERVER_NS.0 };
            let took = middle(&row.structured, Moved::server_ns);
            all.push(DemandVerdict {
                demand: format!("{what}: ≤ {most:.0} ns of the servers' processors a record"),
                measured: format!("{} ns", short(took)),
                is_met: took <= most,
            });
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> PatternsOptions {
        PatternsOptions {
            clients: 4,
            total: 1 << 20,
            records: vec![64],
            shapes: PartShape::ALL.to_vec(),
            calls: 10,
            rounds: 1,
        }
    }

    fn moved(took_s: f64) -> Moved {
        Moved { bytes: 1 << 20, records: 16_384, took_s, server_cpu_us: 3277, ..Moved::default() }
    }

    #[test]
    fn every_client_has_as_many_whole_records() {
        let options = PatternsOptions { clients: 3, ..options() };
        let all = options.file_bytes(64);
        assert!(all <= options.total && all.is_multiple_of(3 * 64 * 4));
        assert_eq!(options.part_bytes(PartShape::Interleaved, 64) * 3, all);
        assert_eq!(options.part_bytes(PartShape::Broadcast, 64), all);
        assert_eq!(options.part_bytes(PartShape::List, 64), LISTED_MAX * 64);
    }

    #[test]
    fn records_have_any_size_but_in_lists() {
        let of = |record, shape| PatternsOptions { records: vec![record], shapes: vec![shape], ..options() };
        assert!(of(47_008, PartShape::Interleaved).validate().is_ok());
        let refused = |options: PatternsOptions| options.validate().unwrap_err().to_string();
        assert!(refused(of(47_008, PartShape::List)).contains("powers of two, not 47008 bytes"));
        for record in [0, (1 << 20) + 1] {
            assert!(refused(of(record, PartShape::Interleaved)).contains("1 byte to 1 MiB"));
        }
    }

    #[test]
    fn columns_and_blocks_lie_within_the_file() {
        let options = PatternsOptions { total: 2 << 30, clients: 1, ..options() };
        assert_eq!(options.part_bytes(PartShape::Column, 8), 16_384 * 8, "a number of each row");
        let options = PatternsOptions { total: 64 << 20, clients: 16, ..options };
        let cube = options.cube(512);
        assert!(cube.rows > 0 && cube.planes > 0, "{cube:?}");
        let last_row = (16 * cube.planes - 1) * cube.plane_rows + cube.rows - 1;
        assert!((last_row * 2 + 1) * 512 <= options.file_bytes(512), "{cube:?}");
        let all = options.part_bytes(PartShape::Block, 512) * 16;
        assert!((0.25..0.29).contains(&(all as f64 / options.file_bytes(512) as f64)), "{all}");
    }

    #[test]
    fn a_column_and_a_block_have_demands_of_their_own() {
        let row = |shape, record| PatternRow {
            shape,
            record,
            is_write: false,
            structured: vec![moved(1.0)],
            single: vec![moved(40.0)],
            contiguous: vec![moved(0.7)],
        };
        let rows = vec![row(PartShape::Column, 8), row(PartShape::Block, 512), row(PartShape::Block, 64)];
        let verdicts = PatternsReport { options: options(), rows }.verdicts();
        assert_eq!(verdicts.iter().map(|verdict| verdict.is_met).collect::<Vec<_>>(), [false, true]);
    }

    #[test]
    fn options_that_measure_nothing_are_refused() {
        assert!(options().validate().is_ok());
        let refused = [
            PatternsOptions { clients: 0, ..options() },
            PatternsOptions { records: vec![100], ..options() },
            PatternsOptions { records: Vec::new(), ..options() },
            PatternsOptions { total: 100, ..options() },
            PatternsOptions { clients: 16, total: 4096, ..options() },
            PatternsOptions { rounds: 0, ..options() },
        ];
        for options in refused {
            assert!(options.validate().is_err(), "{options:?}");
        }
    }

    #[test]
    fn small_records_are_held_against_contiguous_and_single_transfers() {
        let row = PatternRow {
            shape: PartShape::Interleaved,
            record: 64,
            is_write: false,
            structured: vec![moved(2.0)],
            single: vec![moved(300.0)],
            contiguous: vec![moved(1.0)],
        };
        let report = PatternsReport { options: options(), rows: vec![row] };
        let verdicts = report.verdicts();
        assert_eq!(verdicts.len(), 3);
        assert!(verdicts.iter().all(|verdict| verdict.is_met), "{verdicts:?}");
        assert!(report.to_table().contains("0.50 ×"), "{}", report.to_table());
    }
}
