//! A report as a table. Each phase has a row for each target, with its median, its spread, the ratio to the
//! reference and mdtest's figure. Targets are rows and not columns, so that five targets still fit a
//! terminal.

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{Cell, CellAlignment, ContentArrangement, Table};

use crate::report::{Report, TargetSummary, Unit};
use crate::spread::Spread;
use shoal_model::short;

const NOTHING: &str = "–";

/// In a terminal the table fits its width where `arrangement` says so; elsewhere it is as wide as it must be.
pub(super) fn render(report: &Report, arrangement: ContentArrangement) -> String {
    let mut text = format!(
        "{}: {}; {}; {} repetition{}, medians\n",
        report.workload.name(),
        report.workload.describe(),
        report.team,
        report.repetitions,
        if report.repetitions == 1 { "" } else { "s" }
    );
    text.push_str(&phases(report).set_content_arrangement(arrangement.clone()).to_string());
    text.push('\n');
    for target in &report.targets {
        text.push_str(&held(target, arrangement.clone()));
    }
    if let Some(machine) = &report.machine {
        text.push_str(&machine.to_table());
    }
    text
}

/// Phases next to their bounds; nothing where none was requested.
pub(super) fn held(target: &TargetSummary, arrangement: ContentArrangement) -> String {
    let Some(layout) = target.layout.filter(|_| !target.held.is_empty()) else { return String::new() };
    let header = [&target.name, "measured", "bound", "percent", "what binds", "µs of CPU", "messages"];
    let mut table = plain_table(header.map(str::to_owned).to_vec());
    for one in &target.held {
        let mut row = vec![Cell::new(&one.phase)];
        row.extend(one.held.cells().map(right));
        let counted = |n: f64, text: String| right(if n > 0.0 { text } else { NOTHING.to_owned() });
        row.push(counted(one.cpu_us, format!("{:.1}", one.cpu_us)));
        row.push(counted(one.cost.round_trips, format!("{:.2}", one.cost.round_trips)));
        table.add_row(row);
    }
    format!("beside echo: {layout}\n{}\n", table.set_content_arrangement(arrangement))
}

/// The arithmetic of every bound.
pub(super) fn explain(report: &Report) -> String {
    let mut text = String::new();
    for (target, one) in report.targets.iter().flat_map(|t| t.held.iter().map(move |one| (t, one))) {
        text.push_str(&format!("{}, {}: measured {}/s\n", target.name, one.phase, short(one.held.measured)));
        if one.cost.syncs > 0.0 {
            text.push_str(&format!("    groups of {} bytes\n", one.group_bytes));
        }
        for line in one.held.explain() {
            text.push_str(&format!("    {line}\n"));
        }
    }
    text
}

fn phases(report: &Report) -> Table {
    let compared = report.targets.len() > 1;
    let mut header = vec!["phase".to_owned()];
    if compared {
        header.push("target".to_owned());
        header.push(format!("to {}", report.reference));
    }
    header.extend(["rate", "smallest – largest", "by mdtest's clock"].map(str::to_owned));
    let mut table = plain_table(header);
    let names =
        report.targets.first().map_or(Vec::new(), |target| target.phases.iter().map(|p| &p.phase).collect());
    for (index, name) in names.into_iter().enumerate() {
        for (place, target) in report.targets.iter().enumerate() {
            // The name stands once, before the first of its rows.
            let mut row = vec![Cell::new(if place == 0 { name } else { "" })];
            let Some(phase) = target.phases.get(index) else { continue };
            if compared {
                row.push(Cell::new(&target.name));
                row.push(right(phase.ratio.map_or(NOTHING.to_owned(), |ratio| format!("{ratio:.2} ×"))));
            }
            row.push(right(median(phase.rate, phase.unit)));
            row.push(right(extremes(phase.rate)));
            row.push(right(median(phase.rate_rank0, phase.unit)));
            table.add_row(row);
        }
    }
    table
}

fn right(text: String) -> Cell {
    Cell::new(text).set_alignment(CellAlignment::Right)
}

fn extremes(rate: Option<Spread>) -> String {
    match rate {
        Some(rate) if rate.min < rate.max => format!("{} – {}", short(rate.min), short(rate.max)),
        _ => String::new(),
    }
}

fn median(rate: Option<Spread>, unit: Unit) -> String {
    rate.map_or(NOTHING.to_owned(), |rate| with_unit(rate.median, unit))
}

fn with_unit(value: f64, unit: Unit) -> String {
    match unit {
        Unit::OpsPerSecond => format!("{}/s", short(value)),
        Unit::MegabytesPerSecond => format!("{} MB/s", short(value)),
    }
}

/// An empty table in the house's look, as wide as the terminal allows.
pub(crate) fn plain_table(header: Vec<String>) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(header);
    table
}
