//! The bounds of a machine, for people and for programs.

use crate::words;
use comfy_table::{CellAlignment, Table};
use serde_json::{Value, json};
use shoal_model::published::Compared;
use shoal_model::{Bound, Machine, Operation, Servers, Set, chapter4, short};

/// The numbers of clients that bounds are listed for.
const CLIENTS: [u32; 4] = [1, 4, 16, 64];

/// A number of clients; one may find its cores awake.
#[derive(Clone, Copy)]
struct Column {
    clients: u32,
    awake: bool,
}

impl Column {
    fn of(machine: &Machine) -> Vec<Column> {
        let is_known = machine.link.round_trip_awake_us.is_some();
        let awake = is_known.then_some(Column { clients: 1, awake: true });
        let (first, rest) = (Column { clients: CLIENTS[0], awake: false }, &CLIENTS[1..]);
        let rest = rest.iter().map(|&clients| Column { clients, awake: true });
        std::iter::once(first).chain(awake).chain(rest).collect()
    }

    fn title(self, is_first_awake: bool) -> String {
        match (self.clients, self.awake) {
            (1, true) if is_first_awake => "1, awake".to_owned(),
            (1, _) => "1 client".to_owned(),
            (n, _) => n.to_string(),
        }
    }
}

/// All bounds of one operation with one set.
struct Row {
    operation: Operation,
    set: Set,
    bounds: Vec<(Column, Bound)>,
}

/// A machine with so many servers, each with metadata and data.
pub struct Bounds<'a> {
    machine: &'a Machine,
    servers: u32,
    rows: Vec<Row>,
}

impl Bounds<'_> {
    /// Of all operations.
    pub fn of(machine: &Machine, servers: u32) -> Bounds<'_> {
        let bound = |operation: Operation, set, column: Column| {
            operation.bound(set, machine, column.clients, Servers::Both(servers), column.awake)
        };
        let mut rows = Vec::new();
        for &operation in Operation::all() {
            for &set in Set::all() {
                let bounds = Column::of(machine).into_iter().map(|c| (c, bound(operation, set, c))).collect();
                rows.push(Row { operation, set, bounds });
            }
        }
        Bounds { machine, servers, rows }
    }

    /// A row an operation and set, a column a number of clients.
    pub fn table(&self) -> Table {
        let columns = Column::of(self.machine);
        let mut header = vec!["operation".to_owned(), "set".to_owned()];
        header.extend(columns.iter().map(|column| column.title(true)));
        header.extend(["what binds 1".to_owned(), "what binds 64".to_owned()]);
        let mut table = words::table(&header.iter().map(String::as_str).collect::<Vec<_>>());
        left(&mut table, |at| at == 1 || at > columns.len() + 1);
        for row in &self.rows {
            let name = if row.set == Set::Baseline { row.operation.name() } else { "" };
            let mut cells = vec![name.to_owned(), row.set.word().to_owned()];
            cells.extend(row.bounds.iter().map(|(_, bound)| rate(row.operation, bound)));
            let ends = [row.bounds.first(), row.bounds.last()].into_iter().flatten();
            cells.extend(ends.map(|(_, b)| b.binds().map_or("–".to_owned(), |limit| limit.to_string())));
            table.add_row(cells);
        }
        table
    }

    /// The arithmetic of every bound.
    pub fn explain(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for row in &self.rows {
            for (column, bound) in &row.bounds {
                let (name, set) = (row.operation.name(), row.set.word());
                let clients = words::many(column.clients.into(), "client");
                let awake = if column.clients == 1 && column.awake { ", cores awake" } else { "" };
                lines.push(format!("{name}, {set}, {clients}{awake}: {}", rate(row.operation, bound)));
                lines.extend(bound.explain().into_iter().map(|line| format!("    {line}")));
            }
        }
        lines
    }

    /// Its subject.
    pub fn title(&self) -> String {
        format!(
            "estimated upper bounds, of all clients together; {}, metadata and data on each",
            words::many(self.servers.into(), "server")
        )
    }

    /// All of it.
    pub fn json(&self) -> Value {
        let one = |row: &Row, (column, bound): &(Column, Bound)| {
            let terms = bound.terms.iter().map(|term| {
                json!({ "limit": term.limit.word(), "per_s": term.per_s, "arithmetic": term.arithmetic })
            });
            json!({
                "operation": row.operation.word(),
                "set": row.set.word(),
                "clients": column.clients,
                "awake": column.awake,
                "per_s": bound.per_s(),
                "mb_per_s": row.operation.large_bytes().map(|bytes| bound.per_s() * bytes / 1e6),
                "binds": bound.binds().map(|limit| limit.word()),
                "terms": terms.collect::<Vec<_>>(),
            })
        };
        self.rows.iter().flat_map(|row| row.bounds.iter().map(move |bound| one(row, bound))).collect()
    }
}

/// Words to the left, as they are read.
fn left(table: &mut Table, is_words: impl Fn(usize) -> bool) {
    for (_, column) in table.column_iter_mut().enumerate().filter(|(at, _)| is_words(*at)) {
        column.set_cell_alignment(CellAlignment::Left);
    }
}

/// A number with two digits after the point, or in its short form.
fn number(value: f64) -> String {
    match value {
        v if !v.is_finite() => "not known".to_owned(),
        v if v < 1000.0 => format!("{v:.2}"),
        v => short(v),
    }
}

fn rate(operation: Operation, bound: &Bound) -> String {
    match operation.large_bytes() {
        Some(bytes) => format!("{} MB/s", short(bound.per_s() * bytes / 1e6)),
        None => format!("{}/s", short(bound.per_s())),
    }
}

/// The values of the machine's file.
pub fn machine(machine: &Machine) -> Table {
    let mut table = words::table(&[machine.name.as_str(), ""]);
    let mut row = |what: &str, value: Option<String>| {
        if let Some(value) = value {
            table.add_row([what.to_owned(), value]);
        }
    };
    let us = |us: f64| {
        if us < 1000.0 { format!("{} µs", short(us)) } else { format!("{} ms", short(us / 1000.0)) }
    };
    let mb = |rate: f64| format!("{} MB/s", short(rate));
    let (link, disk, nodes) = (&machine.link, &machine.disk, &machine.nodes);
    row("round trip, one client", Some(us(link.round_trip_us)));
    row("  cores awake", link.round_trip_awake_us.map(us));
    for echo in &link.echo {
        let what =
            format!("round trips, {} outstanding, {} bytes: idle, awake", echo.outstanding, echo.bytes);
        row(&what, Some(format!("{}/s, {}/s", short(echo.idle_per_s), short(echo.awake_per_s))));
    }
    row("link", Some(mb(link.bandwidth_mb_per_s)));
    row("  its medium", link.medium_mb_per_s.map(mb));
    for sync in &machine.sync {
        let (method, writers) = (&sync.method, words::many(sync.writers.into(), "writer"));
        let what = format!("{method} of {} bytes, {writers}", words::count(sync.bytes));
        row(&what, Some(format!("{}, {}/s", us(sync.sync_us), short(sync.sync_per_s))));
    }
    row("disk access, on average", disk.seek_average_us.map(|seek| us(seek + disk.rotation_us / 2.0)));
    row("  at worst", disk.seek_max_us.map(|seek| us(seek + disk.rotation_us)));
    row("  next to the last", disk.seek_track_us.map(|seek| us(seek + disk.rotation_us / 2.0)));
    row("disk, read", disk.read_mb_per_s.map(mb));
    row("disk, written", disk.write_mb_per_s.map(mb));
    row("cache, read", disk.cache_read_mb_per_s.map(mb));
    row("cache, written", disk.cache_write_mb_per_s.map(mb));
    row("memory copied", machine.memory.copy_mb_per_s.map(mb));
    for (name, side) in [("client", &machine.cpu.client), ("server", &machine.cpu.server)] {
        for (what, value) in [
            ("a message", side.message_us),
            ("an operation", side.operation_us),
            ("a change, further", side.change_us),
            ("an entry listed", side.entry_us),
            ("a megabyte", side.megabyte_us),
        ] {
            row(&format!("CPU of a {name}, {what}"), (value > 0.0).then(|| us(value)));
        }
    }
    let place = if nodes.one_machine { ", shared by clients and servers" } else { " a computer" };
    row("cores", Some(format!("{}{place}", nodes.cores)));
    table
}

/// Published numbers next to ours; nothing for unpublished ones.
pub fn published(all: &[Compared]) -> Option<Table> {
    let mut table = words::table(&["published", "there", "here", "unit", "", "from"]);
    left(&mut table, |at| at > 2);
    for one in all {
        let is_so = match (one.computed, one.agrees(), &one.published.slip) {
            (true, true, Some(_)) => "a slip there".to_owned(),
            (true, true, None) => "the same".to_owned(),
            (true, false, _) => "ANOTHER".to_owned(),
            (false, true, _) => format!("{:.0} % of the bound", one.published.value / one.here * 100.0),
            (false, false, _) => "ABOVE THE BOUND".to_owned(),
        };
        let here = if one.here < 1000.0 { format!("{:.2}", one.here) } else { short(one.here) };
        let there = one.published.value.to_string();
        table.add_row([
            one.title.clone(),
            there,
            here,
            one.unit.to_owned(),
            is_so,
            one.published.from.clone(),
        ]);
    }
    (!all.is_empty()).then_some(table)
}

/// Slips of the published numbers, and the arithmetic of ours.
pub fn explain_published(all: &[Compared]) -> Vec<String> {
    let slip = |one: &Compared| one.published.slip.as_ref().map(|slip| format!("    the slip: {slip}"));
    all.iter()
        .flat_map(|one| {
            std::iter::once(format!("{}: {} = {}", one.title, short(one.here), one.arithmetic))
                .chain(slip(one))
        })
        .collect()
}

/// The same for programs.
pub fn published_json(all: &[Compared]) -> Value {
    let one = |one: &Compared| {
        json!({
            "case": one.published.case,
            "title": one.title,
            "unit": one.unit,
            "published": one.published.value,
            "corrected": one.published.corrected,
            "slip": one.published.slip,
            "from": one.published.from,
            "here": one.here,
            "arithmetic": one.arithmetic,
            "computed": one.computed,
            "agrees": one.agrees(),
        })
    };
    all.iter().map(one).collect()
}

/// Every number of chapter 4, for any machine.
pub fn chapter4_json(machine: &Machine) -> Value {
    let one = |number: &chapter4::Number| {
        let (value, arithmetic) = number.of(machine);
        json!({ "name": number.name, "title": number.title, "unit": number.unit, "value": value, "arithmetic": arithmetic })
    };
    chapter4::NUMBERS.iter().map(one).collect()
}

/// The same for people.
pub fn chapter4(machine: &Machine) -> Table {
    let mut table = words::table(&["as in chapter 4 of the thesis", "", "unit"]);
    left(&mut table, |at| at == 2);
    for one in chapter4::NUMBERS {
        let (value, _) = one.of(machine);
        table.add_row([one.title.to_owned(), number(value), one.unit.to_owned()]);
    }
    table
}
