//! `shoal bench page`: the current figures of docs/lab/PERFORMANCE.md, from a file of results.
//!
//! One file has the figures of one program on one machine: commit, day, build and machine at its head, then
//! the runs, each with its command and its verdicts or checks, as `--json` of a benchmark prints them. The
//! page has a rendering of it between two marks; **a test holds that the two are equal**, so no figure of the
//! page is edited by hand.
//!
//! ```text
//!   benchmarks --json ──► verdicts, checks ──► results file ──► the page, between its marks
//! ```

use crate::lab::cli::BenchPage;
use crate::lab::commands::paper::origin;
use crate::out;
use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::json;
use shoal_bench::demands::DemandVerdict;
use shoal_bench::techniques::Check;
use shoal_experiment::Provenance;
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

/// The marks between which the page has the figures.
const MARKS: [&str; 2] = ["<!-- begin: shoal bench page -->", "<!-- end: shoal bench page -->"];

/// The results of one program on one machine.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Results {
    commit: String,
    date: String,
    build: String,
    host: String,
    /// A restriction that readers must know; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    note: String,
    run: Vec<Run>,
}

/// One run of a benchmark.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Run {
    command: String,
    figure: Vec<Figure>,
}

/// A figure; with a demand if one was made.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Figure {
    /// Its name, or the demand.
    demand: String,
    measured: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    is_met: Option<bool>,
}

/// The part of a benchmark's output with --json that is taken.
#[derive(Deserialize)]
struct Output {
    #[serde(default)]
    verdicts: Vec<DemandVerdict>,
    #[serde(default)]
    checks: Vec<Check>,
}

impl From<DemandVerdict> for Figure {
    fn from(DemandVerdict { demand, measured, is_met }: DemandVerdict) -> Figure {
        Figure { demand, measured, is_met: Some(is_met) }
    }
}

impl From<Check> for Figure {
    fn from(Check { what, ratio, wanted, holds }: Check) -> Figure {
        let (demand, measured) = (format!("{what}: ≥ {wanted:.2} ×"), format!("{ratio:.2} ×"));
        Figure { demand, measured, is_met: Some(holds) }
    }
}

/// With runs: write the results of this program; always: render them into the page.
pub fn run(args: BenchPage) -> Result<ExitCode> {
    if !args.runs.is_empty() {
        let results = measured(&args.runs)?;
        write(&args.results, &toml::to_string(&results).context("the results cannot be written as TOML")?)?;
    }
    let results = read(&args.results)?;
    let page = text(&args.page)?;
    write(&args.page, &renewed(&page, &results).with_context(|| args.page.display().to_string())?)?;
    let (page, from) = (args.page.display().to_string(), args.results.display().to_string());
    match args.json {
        true => out::json_line(&json!({ "page": page, "results": from, "commit": results.commit }))?,
        false => out::line(format!("{page}: the figures of {from}"))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The results of this program, now and here, of outputs that are named `COMMAND=FILE`.
fn measured(runs: &[String]) -> Result<Results> {
    let Provenance { commit, date, build, host } = origin::here();
    let run = runs.iter().map(|named| {
        let Some((command, file)) = named.rsplit_once('=') else {
            bail!("`{named}` is no run: write COMMAND=FILE, the file being the output of the command with --json");
        };
        let Output { verdicts, checks } = serde_json::from_str(&text(Path::new(file))?)
            .with_context(|| format!("{file} is not the output of a benchmark with --json"))?;
        if verdicts.is_empty() && checks.is_empty() {
            bail!("{file} has neither verdicts nor checks: use native, mount, sweep, directory, stored or techniques");
        }
        let figure = verdicts.into_iter().map(Figure::from).chain(checks.into_iter().map(Figure::from));
        Ok(Run { command: command.to_owned(), figure: figure.collect() })
    });
    Ok(Results { commit, date, build, host, note: String::new(), run: run.collect::<Result<_>>()? })
}

fn read(path: &Path) -> Result<Results> {
    toml::from_str(&text(path)?).with_context(|| format!("{} has no results", path.display()))
}

fn text(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// The page with the rendering of these results between its marks.
fn renewed(page: &str, results: &Results) -> Result<String> {
    let [begin, end] = MARKS;
    let parts = page.split_once(begin).and_then(|(head, rest)| Some((head, rest.split_once(end)?.1)));
    let (head, tail) =
        parts.with_context(|| format!("the page has no place for figures: {begin} and {end}"))?;
    Ok(format!("{head}{begin}\n{}{end}{tail}", results.rendered()))
}

impl Results {
    fn rendered(&self) -> String {
        let Results { commit, date, build, host, note, run } = self;
        let figures = || run.iter().flat_map(|run| &run.figure).filter_map(|figure| figure.is_met);
        let (met, all) = (figures().filter(|is_met| *is_met).count(), figures().count());
        let mut text = format!("**{commit}**, {date}, build {build}, on {host}.");
        for more in [note.as_str(), &format!("{met} of {all} demands are met.")] {
            if !more.is_empty() {
                let _ = write!(text, " {more}");
            }
        }
        text.push('\n');
        for Run { command, figure } in run {
            let _ = write!(
                text,
                "\n`{command}`\n\n| figure, and the demand on it | measured | demand |\n|---|---|---|\n"
            );
            for Figure { demand, measured, is_met } in figure {
                let verdict = match is_met {
                    Some(true) => "met",
                    Some(false) => "**not met**",
                    None => "",
                };
                let _ = writeln!(text, "| {demand} | {measured} | {verdict} |");
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_the_figures_of_its_results() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/lab");
        let (page, results) = (text(&docs.join("PERFORMANCE.md")), read(&docs.join("results/current.toml")));
        let page = page.unwrap();
        let remedy = "run: shoal bench page docs/lab/results/current.toml docs/lab/PERFORMANCE.md";
        assert!(renewed(&page, &results.unwrap()).unwrap() == page, "the page has other figures; {remedy}");
    }

    #[test]
    fn a_run_becomes_results_of_this_program_and_a_page_without_marks_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let verdict = r#"{"schema": 1, "runs": [], "verdicts": [{"demand": "a ≥ 2", "measured": "1", "is_met": false}]}"#;
        std::fs::write(at("native.json"), verdict).unwrap();
        let named = format!("shoal bench native --repeat=5={}", at("native.json").display());
        std::fs::write(at("page.md"), format!("head\n{}\nold\n{}\ntail\n", MARKS[0], MARKS[1])).unwrap();
        let args = || BenchPage {
            results: at("r.toml"),
            page: at("page.md"),
            runs: vec![named.clone()],
            json: false,
        };
        run(args()).unwrap();
        let page = std::fs::read_to_string(at("page.md")).unwrap();
        assert!(page.starts_with("head\n") && page.ends_with("\ntail\n") && !page.contains("old"), "{page}");
        for words in ["`shoal bench native --repeat=5`", "| a ≥ 2 | 1 | **not met** |", "0 of 1 demands"] {
            assert!(page.contains(words), "`{words}` is missing: {page}");
        }
        assert!(page.contains(&origin::here().commit), "{page}");
        std::fs::write(at("page.md"), "head\n").unwrap();
        assert!(run(args()).unwrap_err().chain().any(|error| error.to_string().contains("no place")));
        assert!(measured(&["native.json".to_owned()]).is_err());
        std::fs::write(at("io.json"), "{}").unwrap();
        let named = format!("shoal bench io={}", at("io.json").display());
        assert!(measured(&[named]).err().unwrap().to_string().contains("neither verdicts nor checks"));
    }
}
