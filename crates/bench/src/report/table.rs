//! A report as a table: a row a phase, and for each target its median, its spread, mdtest's figure and the ratio.

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{Cell, CellAlignment, ContentArrangement, Table};

use crate::report::{PhaseSummary, Report, Unit};
use crate::spread::{Spread, short};

const NOTHING: &str = "–";

/// In a terminal the table fits its width where `arrangement` says so; elsewhere it is as wide as it must be.
pub(super) fn render(report: &Report, arrangement: ContentArrangement) -> String {
    let mut text = format!(
        "{}: {}; {}; {} repetition{}, medians (smallest to largest)\n",
        report.workload.name(),
        report.workload.describe(),
        report.team,
        report.repetitions,
        if report.repetitions == 1 { "" } else { "s" }
    );
    text.push_str(&phases(report).set_content_arrangement(arrangement).to_string());
    text.push('\n');
    if let Some(machine) = &report.machine {
        text.push_str(&machine.to_table());
    }
    text
}

fn phases(report: &Report) -> Table {
    let compared = report.targets.len() > 1;
    let mut header = vec!["phase".to_owned()];
    for target in &report.targets {
        header.push(target.name.clone());
        header.push("mdtest's".to_owned());
        if compared {
            header.push(format!("to {}", report.reference));
        }
    }
    let mut table = plain_table(header);
    for (index, phase) in report.targets.iter().flat_map(|target| &target.phases).enumerate() {
        if index >= report.targets[0].phases.len() {
            break;
        }
        let mut row = vec![Cell::new(&phase.phase)];
        for target in &report.targets {
            row.extend(cells(&target.phases[index], compared));
        }
        table.add_row(row);
    }
    table
}

fn cells(phase: &PhaseSummary, compared: bool) -> Vec<Cell> {
    let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
    let mut cells = vec![right(spread(phase.rate, phase.unit)), right(median(phase.rate_rank0, phase.unit))];
    if compared {
        cells.push(right(phase.ratio.map_or(NOTHING.to_owned(), |ratio| format!("{ratio:.2} ×"))));
    }
    cells
}

fn spread(rate: Option<Spread>, unit: Unit) -> String {
    let Some(rate) = rate else { return NOTHING.to_owned() };
    let middle = with_unit(rate.median, unit);
    if rate.min == rate.max {
        return middle;
    }
    format!("{middle} ({} – {})", short(rate.min), short(rate.max))
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
