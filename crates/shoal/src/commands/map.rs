//! `shoal map`: shows the server of each byte of a file, as a picture for the terminal, as JSON, or as SVG.
//!
//! The JSON and the SVG of a striped file are made by the same views that place the bytes: projections of the
//! whole file through its distribution.

mod forked;

use crate::address::CommandTarget;
use crate::bytes_size::human;
use crate::cli::Map;
use crate::laid::{self, Found};
use crate::{connect, out, words};
use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use shoal_client::Client;
use shoal_pattern::{Distribution as _, Pattern, View, ViewRun, Window};
use shoal_proto::{Attr, Handle, Kind, Share, Striping};
use shoal_transform::Followed;
use std::fmt::Write as _;
use std::process::ExitCode;

/// Blocks of the terminal's picture, at most: a row of it is no wider than 80 columns.
const BLOCKS_MAX: u64 = 28;
/// Runs listed by `--json` and drawn by `--svg`, at most, of each datafile.
const RUNS_MAX: usize = 4096;

/// One datafile's part.
struct Part {
    handle: Handle,
    bytes: u64,
    runs: Vec<ViewRun>,
    /// There are more runs than are listed.
    cut: bool,
}

/// Show it.
pub fn run(args: Map) -> Result<ExitCode> {
    let place = CommandTarget::find(&args.place, args.key.key.as_deref())?;
    let path = place.address.path.clone();
    let look = |env, client: Client| async move {
        let found = laid::find(&Followed::new(env, client.clone()), path.as_bytes(), true).await?;
        let forked = forked::of(&client, &found.attr).await?;
        Ok((found, forked))
    };
    let (Found { attr, laid }, forked) = connect::with_client_within(&place, args.limit.span(), look)
        .with_context(|| format!("cannot look at {}", args.place))?;
    if let Some(subfiles) = forked {
        return forked::run(&args, &attr, &subfiles);
    }
    if attr.kind != Kind::File {
        bail!("{} is a {}: only files are mapped", args.place, attr.kind.word());
    }
    if let Some(laid) = laid {
        bail!("{} is {}: {}", args.place, laid.layout(Kind::File), laid.remedy());
    }
    let (striping, handles) = of(&attr);
    let parts = parts(attr.size, striping, &handles)?;
    if let Some(path) = &args.svg {
        let svg = svg(&args.place, &attr, &parts);
        std::fs::write(path, svg).with_context(|| format!("cannot write {}", path.display()))?;
    }
    match args.json {
        true => out::json(&as_json(&args.place, &attr, &parts))?,
        false => show(&args.place, &attr, striping, &parts)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The distribution and the datafiles; of a stuffed file, itself.
fn of(attr: &Attr) -> (Striping, Vec<Handle>) {
    match &attr.layout {
        Some(layout) => (layout.striping(), layout.datafiles.0.clone()),
        None => (Share::WHOLE.striping(), vec![attr.handle]),
    }
}

fn parts(size: u64, striping: Striping, handles: &[Handle]) -> Result<Vec<Part>> {
    let mut parts = Vec::new();
    for (index, &handle) in (0_u32..).zip(handles) {
        let mut part =
            Part { handle, bytes: striping.physical_size(index, size), runs: Vec::new(), cut: false };
        if part.bytes > 0 {
            let whole = Pattern::contiguous(0, size).context("the file is too large for a picture")?;
            // The pattern is the whole file, so a run's packed position is its place in the file.
            let mut runs = View::new(&whole, Window::all(&whole), &striping, index)?;
            part.runs = runs.by_ref().take(RUNS_MAX).collect();
            part.cut = runs.next().is_some();
        }
        parts.push(part);
    }
    Ok(parts)
}

fn state(attr: &Attr) -> String {
    match &attr.layout {
        Some(layout) => {
            let width = layout.datafiles.len() as u16;
            words::template(&shoal_proto::Template { dist: layout.dist, width })
        }
        None => format!("stuffed: all of it beside its metafile on server {}", attr.handle.server()),
    }
}

/// Rows of servers, columns of blocks: where each part of the file lies.
fn show(name: &str, attr: &Attr, striping: Striping, parts: &[Part]) -> Result<()> {
    out::line(name)?;
    picture(attr, striping, parts).iter().try_for_each(out::line)
}

/// The lines of the picture.
fn picture(attr: &Attr, striping: Striping, parts: &[Part]) -> Vec<String> {
    let mut lines = vec![format!("{}  {}", human(attr.size), state(attr))];
    let strip = match striping.dist {
        shoal_proto::Dist::SimpleStripe { strip } if striping.width > 1 => strip,
        _ => attr.size.max(1),
    };
    let blocks = attr.size.div_ceil(strip);
    let shown = blocks.min(BLOCKS_MAX);
    for (index, part) in (0_u32..).zip(parts) {
        let own = |block: u64| striping.place_of(block * strip).object == index;
        let row: String = (0..shown).map(|block| if own(block) { '▇' } else { '·' }).collect();
        lines.push(format!(
            " server {:<4} {row}{}  {} in {}",
            part.handle.server(),
            if shown < blocks { "…" } else { "" },
            human(part.bytes),
            if part.handle == attr.handle { "its metafile".to_owned() } else { part.handle.to_string() },
        ));
    }
    if blocks > 1 {
        let cut = if shown < blocks { format!(", the first {shown} of {blocks}") } else { String::new() };
        lines.push(format!(" one block is a strip of {}{cut}; --svg FILE draws all", human(strip)));
    }
    lines
}

fn as_json(name: &str, attr: &Attr, parts: &[Part]) -> Value {
    let part = |part: &Part| {
        let run =
            |run: &ViewRun| json!({ "logical": run.packed, "physical": run.physical, "length": run.len });
        json!({
            "server": part.handle.server().0,
            "object": part.handle.to_string(),
            "bytes": part.bytes,
            "runs": part.runs.iter().map(run).collect::<Vec<_>>(),
            "more_runs": part.cut,
        })
    };
    let mut value = words::dist_json(&attr.layout.as_ref().map_or(attr.template.dist, |l| l.dist));
    value["name"] = name.into();
    value["handle"] = attr.handle.to_string().into();
    value["size"] = attr.size.into();
    value["stuffed"] = attr.layout.is_none().into();
    value["generation"] = attr.generation.0.into();
    value["parts"] = parts.iter().map(part).collect();
    value
}

/// Width of the picture's strip of bytes, and height of a row.
const PICTURE: (f64, f64) = (960.0, 28.0);
/// Where the rows begin: room for the servers' names and the heading.
const MARGIN: (f64, f64) = (110.0, 56.0);
/// One colour for each server; they repeat.
const COLOURS: [&str; 8] =
    ["#1b6ca8", "#e07a1f", "#2a9d5c", "#c0392b", "#7d5ba6", "#8c6d46", "#d16ba5", "#5f6b75"];

/// The file from left to right, a row for each server.
fn svg(name: &str, attr: &Attr, parts: &[Part]) -> String {
    let ((width, row), (left, top)) = (PICTURE, MARGIN);
    let height = top + row * parts.len() as f64 + 40.0;
    let full = left + width + 20.0;
    let mut svg = String::new();
    let title = escape(&format!("{name} · {} · {}", human(attr.size), state(attr)));
    let _ = writeln!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {full} {height}\" font-family=\"sans-serif\" \
         font-size=\"13\">\n<title>{title}</title>\n<rect width=\"{full}\" height=\"{height}\" fill=\"white\"/>\n\
         <text x=\"12\" y=\"28\" font-size=\"16\">{title}</text>"
    );
    let scale = width / attr.size.max(1) as f64;
    for (at, part) in parts.iter().enumerate() {
        let y = top + row * at as f64;
        let _ = writeln!(
            svg,
            "<text x=\"12\" y=\"{:.1}\">server {}</text>\n<rect x=\"{left}\" y=\"{y:.1}\" width=\"{width}\" \
             height=\"{:.1}\" fill=\"#f0f2f4\"/>",
            y + row * 0.65,
            part.handle.server(),
            row - 4.0,
        );
        for run in &part.runs {
            let _ = writeln!(
                svg,
                "<rect x=\"{:.2}\" y=\"{y:.1}\" width=\"{:.2}\" height=\"{:.1}\" fill=\"{}\"><title>bytes {} to {} \
                 of the file, at {} of object {}</title></rect>",
                left + run.packed as f64 * scale,
                (run.len as f64 * scale).max(0.3),
                row - 4.0,
                COLOURS[usize::from(part.handle.server().0) % COLOURS.len()],
                run.packed,
                run.packed + run.len,
                run.physical,
                part.handle,
            );
        }
    }
    let bottom = top + row * parts.len() as f64 + 18.0;
    let _ = writeln!(
        svg,
        "<text x=\"{left}\" y=\"{bottom:.1}\">0</text>\n<text x=\"{:.1}\" y=\"{bottom:.1}\" \
         text-anchor=\"end\">{}</text>",
        left + width,
        human(attr.size)
    );
    if parts.iter().any(|part| part.cut) {
        let _ = writeln!(
            svg,
            "<text x=\"12\" y=\"{:.1}\">the first {RUNS_MAX} pieces of each</text>",
            bottom + 16.0
        );
    }
    svg.push_str("</svg>\n");
    svg
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_proto::{Dist, Layout, Many, ServerId};

    #[test]
    fn the_parts_of_a_file_are_all_of_it() {
        let striping = Striping { dist: Dist::SimpleStripe { strip: 4096 }, width: 3 };
        let handles: Vec<Handle> = (0..3).map(|server| Handle::new(ServerId(server), 9)).collect();
        let size = 4096 * 7 + 5;
        let parts = parts(size, striping, &handles).unwrap();
        let bytes: Vec<u64> = parts.iter().map(|p| p.bytes).collect();
        assert_eq!(bytes, [4096 * 3, 4096 * 2 + 5, 4096 * 2]);
        for part in &parts {
            assert_eq!(part.runs.iter().map(|run| run.len).sum::<u64>(), part.bytes);
        }
    }

    #[test]
    fn the_picture_fits_80_columns_whatever_the_file_and_its_servers() {
        let striping = Striping { dist: Dist::SimpleStripe { strip: 65_536 }, width: 3 };
        let handles: Vec<Handle> =
            (0..3).map(|server| Handle::new(ServerId(65_533 + server), Handle::COUNTER_MAX - 1)).collect();
        let attr = Attr {
            size: 1 << 40,
            layout: Some(Layout {
                dist: striping.dist,
                datafiles: Many(handles.clone()),
                ..shoal_proto::samples::layout()
            }),
            ..shoal_proto::samples::attr()
        };
        let parts = parts(1 << 30, striping, &handles).unwrap();
        for line in picture(&attr, striping, &parts) {
            assert!(line.chars().count() <= 80, "{} columns: {line}", line.chars().count());
        }
    }

    #[test]
    fn names_cannot_break_the_picture() {
        assert_eq!(escape("<a&\"b\">"), "&lt;a&amp;&quot;b&quot;&gt;");
    }
}
