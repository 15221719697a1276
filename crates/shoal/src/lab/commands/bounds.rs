//! `shoal bounds`: the measures of a machine, and the bound of every operation on it.
//!
//! The machine is measured ([`measure`]) or taken from a file ([`shelf`]); the arithmetic is
//! [`shoal_model`]'s.

mod hold;
mod measure;
pub mod shelf;
mod tables;
mod validate;

use crate::lab::cli::Bounds;
use crate::{out, words};
use anyhow::{Context as _, Result};
use serde_json::json;
use shoal_bench::progress::{self, Progress};
use shoal_model::{Machine, chapter4, compare};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Measure or take a machine, and report its bounds.
pub fn run(args: Bounds) -> Result<ExitCode> {
    if args.list {
        return list(args.json);
    }
    if let Some(folder) = &args.validate {
        return validate::run(&args, folder);
    }
    if args.hold {
        return hold::run(&args);
    }
    let (machine, kept) = match &args.machine {
        Some(words) => (shelf::take(words)?, None),
        None => {
            // First: a measurement that cannot be kept is not begun.
            let place = shelf::place(args.out.as_deref())?;
            let machine = measure::machine(&args)?;
            shelf::keep(&machine, &measure::remark(), &place)?;
            (machine, Some(place))
        }
    };
    let figures =
        args.curves.as_deref().map(|folder| curves(&machine, folder)).transpose()?.unwrap_or_default();
    match args.json {
        true => tell_json(&args, &machine, kept.as_deref(), &figures)?,
        false => tell(&args, &machine, kept.as_deref(), &figures)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The output of progress.
fn draw(args: &Bounds) -> Box<dyn FnMut(Progress)> {
    if args.quiet { Box::new(|_| {}) } else { Box::new(progress::bar()) }
}

fn list(json: bool) -> Result<ExitCode> {
    let all = shelf::all()?;
    if json {
        out::json(&all)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = words::table(&["machine", "", ""]);
    for column in table.column_iter_mut() {
        column.set_cell_alignment(comfy_table::CellAlignment::Left);
    }
    for one in &all {
        table.add_row(["name", "title", "place"].map(|key| one[key].as_str().unwrap_or("").to_owned()));
    }
    out::line(words::plain(&table))?;
    Ok(ExitCode::SUCCESS)
}

fn servers(args: &Bounds, machine: &Machine) -> u32 {
    args.servers.unwrap_or(machine.nodes.data_servers)
}

fn tell(args: &Bounds, machine: &Machine, kept: Option<&Path>, figures: &[PathBuf]) -> Result<()> {
    out::line(format!("{}\nsource: {}\n", machine.title, machine.source))?;
    out::line(words::plain(&tables::machine(machine)))?;
    out::line("")?;
    let bounds = tables::Bounds::of(machine, servers(args, machine));
    out::line(format!("{}\n{}", bounds.title(), words::plain(&bounds.table())))?;
    if args.explain {
        bounds.explain().iter().try_for_each(out::line)?;
    }
    out::line(format!("\n{}", words::plain(&tables::chapter4(machine))))?;
    let compared = compare(machine);
    if let Some(table) = tables::published(&compared) {
        out::line(format!("\n{}", words::plain(&table)))?;
        if args.explain {
            tables::explain_published(&compared).iter().try_for_each(out::line)?;
        }
    }
    if let Some(path) = kept {
        let again = match &args.out {
            None => shelf::THIS.to_owned(),
            // Without a slash it would be taken for a name.
            Some(path) if path.components().count() == 1 => format!("./{}", path.display()),
            Some(path) => path.display().to_string(),
        };
        out::line(format!(
            "\nkept: {} (again, without measuring: shoal bounds --machine {again})",
            path.display()
        ))?;
    }
    figures.iter().try_for_each(|path| out::line(format!("written: {}", path.display())))
}

fn tell_json(args: &Bounds, machine: &Machine, kept: Option<&Path>, figures: &[PathBuf]) -> Result<()> {
    let servers = servers(args, machine);
    out::json(&json!({
        "machine": machine,
        "servers": servers,
        "bounds": tables::Bounds::of(machine, servers).json(),
        "chapter4": tables::chapter4_json(machine),
        "published": tables::published_json(&compare(machine)),
        "kept": kept,
        "figures": figures,
    }))
}

/// Figures 4.1 to 4.6, two files each.
fn curves(machine: &Machine, folder: &Path) -> Result<Vec<PathBuf>> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let mut written = Vec::new();
    for figure in chapter4::figures(machine) {
        let svg = shoal_bench::plot::svg(&figure)?;
        for (end, text) in [("csv", figure.to_csv()), ("svg", svg)] {
            let path = folder.join(format!("figure-{}.{end}", figure.number));
            std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
            written.push(path);
        }
    }
    Ok(written)
}
