//! The map of a forked file: the bytes of each fork on each server.

use super::{COLOURS, MARGIN, PICTURE, escape};
use crate::bytes_size::human;
use crate::cli::Map;
use crate::{out, subfiles as lacking, words};
use anyhow::{Context as _, Result};
use serde_json::json;
use shoal_client::Client;
use shoal_proto::{Attr, Handle, Name};
use std::fmt::Write as _;
use std::process::ExitCode;

/// A subfile, and its forks by name.
pub struct Subfile {
    name: String,
    handle: Handle,
    forks: Vec<(String, u64)>,
}

impl Subfile {
    fn bytes(&self) -> u64 {
        self.forks.iter().map(|(_, size)| *size).sum()
    }
}

fn shown(name: &Name) -> String {
    String::from_utf8_lossy(name.as_bytes()).into_owned()
}

/// The subfiles of a forked file; nothing for another object.
pub async fn of(client: &Client, attr: &Attr) -> Result<Option<Vec<Subfile>>> {
    if lacking::count(attr).is_none() {
        return Ok(None);
    }
    let (mut listing, mut all) = (client.opendir(attr.handle), Vec::new());
    while let Some(entry) = listing.next(false).await? {
        let mut forks = Vec::new();
        let mut inside = client.opendir(entry.handle);
        while let Some(fork) = inside.next(true).await? {
            forks.push((shown(&fork.name), fork.attr.map_or(0, |attr| attr.size)));
        }
        forks.sort();
        all.push(Subfile { name: shown(&entry.name), handle: entry.handle, forks });
    }
    all.sort_by_key(|subfile| subfile.name.parse::<u16>().unwrap_or(u16::MAX));
    Ok(Some(all))
}

/// Show them.
pub fn run(args: &Map, attr: &Attr, subfiles: &[Subfile]) -> Result<ExitCode> {
    if let Some(path) = &args.svg {
        let picture = svg(&args.place, attr, subfiles);
        std::fs::write(path, picture).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let names = subfiles.iter().map(|subfile| subfile.name.as_bytes());
    let missing = lacking::missing_among(lacking::count(attr).unwrap_or(0), names);
    if args.json {
        let mut value = words::dist_json(&attr.template.dist);
        value["name"] = args.place.as_str().into();
        value["handle"] = attr.handle.to_string().into();
        let fork = |(name, size): &(String, u64)| json!({ "name": name, "bytes": size });
        let subfile = |subfile: &Subfile| {
            json!({
                "name": subfile.name,
                "server": subfile.handle.server().0,
                "object": subfile.handle.to_string(),
                "bytes": subfile.bytes(),
                "forks": subfile.forks.iter().map(fork).collect::<Vec<_>>(),
            })
        };
        value["missing"] = missing.into();
        value["parts"] = subfiles.iter().map(subfile).collect();
        out::json(&value)?;
        return Ok(ExitCode::SUCCESS);
    }
    out::line(&args.place)?;
    out::line(heading(attr, subfiles))?;
    if let Some(words) = lacking::words(&missing) {
        out::line(format!(" {words}"))?;
    }
    for subfile in subfiles {
        let (name, server) = (&subfile.name, subfile.handle.server().to_string());
        out::line(format!(" subfile {name:<4} server {server:<4} {}", human(subfile.bytes())))?;
        for (fork, size) in &subfile.forks {
            out::line(format!("   {:>10}  {fork}", human(*size).to_string()))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn heading(attr: &Attr, subfiles: &[Subfile]) -> String {
    let bytes = human(subfiles.iter().map(Subfile::bytes).sum());
    let forks: usize = subfiles.iter().map(|subfile| subfile.forks.len()).sum();
    format!("{bytes}  {}, {forks} forks", words::template(&attr.template))
}

/// A row for each subfile, its forks from left to right.
fn svg(name: &str, attr: &Attr, subfiles: &[Subfile]) -> String {
    let ((width, row), (left, top)) = (PICTURE, MARGIN);
    let (full, height) = (left + width + 20.0, top + row * subfiles.len() as f64 + 20.0);
    let title = escape(&format!("{name} · {}", heading(attr, subfiles)));
    let mut svg = String::new();
    let _ = writeln!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {full} {height}\" font-family=\"sans-serif\" \
         font-size=\"13\">\n<title>{title}</title>\n<rect width=\"{full}\" height=\"{height}\" fill=\"white\"/>\n\
         <text x=\"12\" y=\"28\" font-size=\"16\">{title}</text>"
    );
    let most = subfiles.iter().map(Subfile::bytes).max().unwrap_or(0).max(1) as f64;
    for (at, subfile) in subfiles.iter().enumerate() {
        let (y, mut x) = (top + row * at as f64, left);
        let _ = writeln!(
            svg,
            "<text x=\"12\" y=\"{:.1}\">{}: server {}</text>\n<rect x=\"{left}\" y=\"{y:.1}\" width=\"{width}\" \
             height=\"{:.1}\" fill=\"#f0f2f4\"/>",
            y + row * 0.65,
            escape(&subfile.name),
            subfile.handle.server(),
            row - 4.0,
        );
        for (number, (fork, size)) in subfile.forks.iter().enumerate() {
            let wide = *size as f64 / most * width;
            let _ = writeln!(
                svg,
                "<rect x=\"{x:.2}\" y=\"{y:.1}\" width=\"{wide:.2}\" height=\"{:.1}\" fill=\"{}\"><title>{}, {}\
                 </title></rect>",
                row - 4.0,
                COLOURS[number % COLOURS.len()],
                escape(fork),
                human(*size),
            );
            x += wide;
        }
    }
    svg.push_str("</svg>\n");
    svg
}
