//! An outcome in words: rows for tables, CSV, Markdown.

use crate::file::{Experiment, Metric};
use crate::outcome::{Checked, ExperimentOutcome, FigureSeries, Point};
use crate::provenance::{NOT_RECORDED, Provenance, Size};
use crate::run::Mode;
use shoal_model::short;
use std::fmt::Write as _;

/// The columns of a table.
pub const COLUMNS: [&str; 7] = ["series", "", "ours", "bound", "of bound", "what binds", "published"];

const NONE: &str = "–";

/// The rows of the table.
pub fn rows(outcome: &ExperimentOutcome) -> Vec<[String; 7]> {
    outcome.curves.iter().flat_map(|curve| curve.points.iter().map(|point| row(curve, point))).collect()
}

fn row(curve: &FigureSeries, point: &Point) -> [String; 7] {
    let unit = curve.metric.unit();
    let told = |value: f64| told(value, curve.metric);
    let ours = point.ours.map_or(NONE.to_owned(), |spread| {
        let wanders = spread.max > spread.min;
        let range =
            if wanders { format!(" ({}–{})", told(spread.min), told(spread.max)) } else { String::new() };
        format!("{} {unit}{range}", told(spread.median))
    });
    let bound = point.bound.as_ref();
    [
        curve.name.clone(),
        point.x.to_string(),
        ours,
        bound.map_or(NONE.to_owned(), |bound| format!("{} {unit}", told(bound.value))),
        point.percent(curve.metric).map_or(NONE.to_owned(), |percent| format!("{percent:.0} %")),
        bound.map_or(NONE.to_owned(), |bound| bound.binds_words.clone()),
        point.published.map_or(NONE.to_owned(), |value| format!("{} {unit}", told(value))),
    ]
}

fn told(value: f64, metric: Metric) -> String {
    match metric {
        Metric::S if value < 10.0 => format!("{value:.3}"),
        Metric::Us => format!("{value:.0}"),
        _ => short(value),
    }
}

/// The run, in a line.
pub fn how(outcome: &ExperimentOutcome) -> String {
    let Some(mode) = outcome.mode else { return format!("computed for the machine {}", outcome.machine) };
    let scale = if outcome.scale == 1.0 {
        String::new()
    } else {
        format!(", {} of the paper's amount", outcome.scale)
    };
    let fewer = outcome.fewer.map_or(String::new(), |processes| format!(", {processes} processes"));
    let quick = if outcome.quick { ", a short run" } else { "" };
    let runs = match outcome.repeat {
        1 => "one run each".to_owned(),
        n => format!("the middle of {n} runs each"),
    };
    match mode {
        Mode::Real => format!("real servers on this machine{scale}{fewer}, {runs}{quick}"),
        Mode::Simulated => format!("simulated on {}{scale}{fewer}{quick}", outcome.machine),
    }
}

/// How the line of [`how`] begins in a document, for each kind of run.
pub(crate) const HOW: [(&str, &str); 3] =
    [("simulated", "Simulated on "), ("real", "Real servers on this machine"), ("computed", "Computed for ")];
/// How the line of [`of`] begins.
pub(crate) const OF: &str = "Of ";
/// The text before its amounts.
pub(crate) const SIZES: &str = "Run: ";

/// Of which program, when and where, and how much was run.
pub fn of(outcome: &ExperimentOutcome) -> String {
    let from = outcome.provenance.as_ref().map_or(NOT_RECORDED.to_owned(), Provenance::to_string);
    let sizes: Vec<String> = outcome.sizes.iter().map(Size::to_string).collect();
    match (sizes.as_slice(), outcome.mode) {
        ([], None) => format!("{OF}{from}."),
        ([], Some(_)) => format!("{OF}{from}. {SIZES}how much was not recorded."),
        (sizes, _) => format!("{OF}{from}. {SIZES}{}.", sizes.join(", ")),
    }
}

/// A check's verdict in a line.
pub fn verdict(checked: &Checked) -> String {
    let why = match (checked.verdict.is_failure(), checked.check.why.as_str()) {
        (true, why) if !why.is_empty() => format!(" ({why})"),
        _ => String::new(),
    };
    let (claim, kind) = (&checked.check.claim, checked.counts_as.word());
    format!("{claim} ({kind}): {}{why}", checked.verdict.words())
}

/// A line a point.
pub fn csv(outcome: &ExperimentOutcome) -> String {
    let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
    let number = |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.4}"));
    let mut text = "series,x,unit,ours,min,max,bound,percent_of_bound,binds,published\n".to_owned();
    for curve in &outcome.curves {
        for point in &curve.points {
            let bound = point.bound.as_ref();
            let cells = [
                quoted(&curve.name),
                quoted(&point.x.to_string()),
                quoted(curve.metric.unit()),
                number(point.ours.map(|spread| spread.median)),
                number(point.ours.map(|spread| spread.min)),
                number(point.ours.map(|spread| spread.max)),
                number(bound.map(|bound| bound.value)),
                number(point.percent(curve.metric)),
                bound.map_or(String::new(), |bound| bound.binds.clone()),
                number(point.published),
            ];
            text += &(cells.join(",") + "\n");
        }
    }
    text
}

/// Operations in each second, a line a second and a column a series; `None` where no workload reports them.
pub fn seconds_csv(outcome: &ExperimentOutcome) -> Option<String> {
    let told: Vec<&FigureSeries> =
        outcome.curves.iter().filter(|curve| !curve.per_second.is_empty()).collect();
    let seconds = told.iter().map(|curve| curve.per_second.len()).max()?;
    let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
    let names: Vec<String> = told.iter().map(|curve| quoted(&curve.name)).collect();
    let mut text = format!("second,{}\n", names.join(","));
    for second in 0..seconds {
        let of = |curve: &&FigureSeries| curve.per_second.get(second).map_or(String::new(), u64::to_string);
        let cells: Vec<String> = told.iter().map(of).collect();
        let _ = writeln!(text, "{second},{}", cells.join(","));
    }
    Some(text)
}

/// One outcome for a document, with its picture.
pub fn markdown(experiment: &Experiment, outcome: &ExperimentOutcome, picture: Option<&str>) -> String {
    let mut text = format!("*{}.*\n\n{}\n\n", capital(&how(outcome)), of(outcome));
    let _ = writeln!(
        text,
        "| series | {} | ours | bound | of bound | what binds | published |",
        experiment.axis.label
    );
    text += "|---|---|---|---|---|---|---|\n";
    for row in rows(outcome) {
        let _ = writeln!(text, "| {} |", row.join(" | "));
    }
    text.push('\n');
    if let Some(picture) = picture {
        let _ = writeln!(text, "![{}]({picture})\n", experiment.title);
    }
    for checked in &outcome.checks {
        let _ = writeln!(text, "- {}", verdict(checked));
    }
    text
}

fn capital(words: &str) -> String {
    let mut chars = words.chars();
    chars.next().map_or(String::new(), |first| first.to_uppercase().chain(chars).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made;
    use crate::place::AxisPlace;
    use shoal_bench::Spread;

    fn outcome() -> ExperimentOutcome {
        let bound = made::bound(200.0, "syncs");
        let point = |x: f64, ours: Option<Spread>, published| Point {
            x: AxisPlace::Number(x),
            ours,
            bound: ours.map(|_| bound.clone()),
            published,
        };
        let curve = FigureSeries {
            name: "a \"b\"".into(),
            metric: Metric::PerS,
            points: vec![point(1.0, Spread::of(&[90.0, 100.0, 110.0]), None), point(14.0, None, Some(7.0))],
            per_second: vec![3, 4],
        };
        let whole = made::outcome("x", Mode::Real, vec![curve]);
        ExperimentOutcome { scale: 0.5, repeat: 3, seconds: 1.0, ..whole }
    }

    #[test]
    fn a_row_has_ours_beside_its_bound_and_what_was_published() {
        let rows = rows(&outcome());
        assert_eq!(rows[0].join("|"), "a \"b\"|1|100 /s (90.0–110)|200 /s|50 %|syncs|–");
        assert_eq!(rows[1].join("|"), "a \"b\"|14|–|–|–|–|7.00 /s");
    }

    #[test]
    fn a_line_of_text_has_every_number_once() {
        let csv = csv(&outcome());
        let lines: Vec<&str> = csv.lines().collect();
        assert_eq!(
            lines[1],
            "\"a \"\"b\"\"\",\"1\",\"/s\",100.0000,90.0000,110.0000,200.0000,50.0000,syncs,"
        );
        assert_eq!(lines[2], "\"a \"\"b\"\"\",\"14\",\"/s\",,,,,,,7.0000");
        assert_eq!(seconds_csv(&outcome()).expect("they are told"), "second,\"a \"\"b\"\"\"\n0,3\n1,4\n");
    }

    #[test]
    fn of_which_program_it_is_and_how_much_was_run_stands_below_or_that_it_does_not() {
        let mut outcome = outcome();
        assert_eq!(of(&outcome), format!("Of {NOT_RECORDED}. Run: how much was not recorded."));
        let word = |text: &str| text.to_owned();
        outcome.provenance = Some(Provenance {
            commit: word("commit 0123456789ab with changes"),
            date: word("2026-11-24"),
            build: word("release, plain"),
            host: word("2 cores of a Xeon, 24 GiB, Linux 6.18"),
        });
        outcome.sizes = vec![Size { key: word("files"), least: 1, most: 1, paper: Some((10, 10)) }];
        assert_eq!(
            of(&outcome),
            "Of commit 0123456789ab with changes; 2026-11-24; build `release, plain`; on 2 cores of a Xeon, 24 GiB, Linux 6.18. \
             Run: files a process 1 (the paper: 10)."
        );
        let text = serde_json::to_value(&outcome).expect("JSON");
        assert_eq!(text["provenance"]["date"], "2026-11-24");
        assert_eq!(text["sizes"][0]["paper"][0], 10);
    }

    #[test]
    fn how_it_was_run_is_said() {
        let mut outcome = outcome();
        assert_eq!(
            how(&outcome),
            "real servers on this machine, 0.5 of the paper's amount, the middle of 3 runs each"
        );
        (outcome.mode, outcome.scale, outcome.machine) = (Some(Mode::Simulated), 1.0, "bgp".into());
        assert_eq!(how(&outcome), "simulated on bgp");
        outcome.fewer = Some(512);
        assert_eq!(how(&outcome), "simulated on bgp, 512 processes");
    }
}
