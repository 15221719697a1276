//! `shoal container check`: of one container, or of a directory with all containers below it.

use super::below::{Found, Mounted, Place};
use crate::cli::One;
use crate::{out, words};
use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use shoal_proto::{Handle, Kind, Status};
use shoal_transform::container::tools;
use shoal_transform::federation::Federation;
use shoal_vfs::{Listing, Vfs};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// The findings.
#[derive(Default)]
struct Checked {
    /// Of the names, and of the bin: at the root.
    names: Option<Federation>,
    containers: u64,
    /// Files that are no containers.
    plain: u64,
    /// With the path of the file, where a directory was checked.
    damage: Vec<String>,
    /// Paths that were not checked, and why.
    unchecked: Vec<String>,
}

/// See the module.
pub fn check(args: &One) -> Result<ExitCode> {
    let (path, bar) = (args.path.clone(), progress(args.json));
    let shown = bar.clone();
    let checked = Place::find(&args.path).and_then(|place| {
        place.with(async move |container, found| {
            let mut checked = Checked::default();
            if found.kind != Kind::Directory {
                checked.damage = tools::check(container, found.object).await?;
                return Ok((checked, false));
            }
            checked.at_root(container, found, &path).await;
            checked.below(container, found.object, &path, &shown).await;
            Ok((checked, true))
        })
    });
    bar.finish_and_clear();
    match checked {
        Ok((checked, true)) => checked.print_directory(args),
        Ok((checked, false)) => checked.print_one(args),
        Err(error) => {
            eprintln!("shoal: cannot check {}: {error:#}", args.path.display());
            Ok(ExitCode::from(2))
        }
    }
}

/// Shown if standard error is a terminal.
fn progress(json: bool) -> ProgressBar {
    if json {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {human_pos} containers, {per_sec}: {wide_msg}")
    {
        bar.set_style(style);
    }
    bar
}

impl Checked {
    /// Facts of the root alone: names on several backends, and leftovers.
    async fn at_root(&mut self, container: &Mounted, found: &Found, path: &Path) {
        if found.name.is_some() {
            return;
        }
        let names = async {
            let mut names = found.below.check_names().await?;
            names.leftovers.extend(tools::leftovers(container).await?);
            anyhow::Ok(names)
        };
        match names.await {
            Ok(mut names) => {
                self.damage.append(&mut names.damage);
                self.names = Some(names);
            }
            Err(error) => self.unchecked.push(format!("the names in {}: {error:#}", path.display())),
        }
    }

    /// All containers below a directory.
    async fn below(&mut self, container: &Mounted, dir: Handle, path: &Path, bar: &ProgressBar) {
        let mut todo = vec![(dir, path.to_owned())];
        while let Some((dir, path)) = todo.pop() {
            let mut listing = container.opendir(dir, Duration::from_secs(1));
            loop {
                let entry = match listing.next(false).await {
                    Ok(Some(listed)) => listed.entry,
                    Ok(None) => break,
                    Err(error) => {
                        // Also one that is gone: it may be there, and only not be known any more.
                        self.unchecked.push(format!("{}: {error}", path.display()));
                        break;
                    }
                };
                let here = path.join(&*String::from_utf8_lossy(entry.name.as_bytes()));
                match entry.kind {
                    Kind::Directory => todo.push((entry.handle, here)),
                    Kind::File => self.file(container, entry.handle, &here, bar).await,
                    _ => {}
                }
            }
        }
    }

    async fn file(&mut self, container: &Mounted, object: Handle, path: &Path, bar: &ProgressBar) {
        bar.set_message(path.display().to_string());
        bar.inc(1);
        let damage = async {
            let is_one = tools::is_container(container, object).await?;
            if is_one { tools::check(container, object).await.map(Some) } else { Ok(None) }
        };
        match damage.await {
            Ok(Some(damage)) => {
                self.containers += 1;
                self.damage.extend(damage.iter().map(|words| format!("{}: {words}", path.display())));
            }
            Ok(None) => self.plain += 1,
            Err(error) if error.status == Status::NotFound => {}
            Err(error) => self.unchecked.push(format!("{}: {error}", path.display())),
        }
    }

    /// 1: damage; 2: a part was not checked.
    fn status(&self) -> ExitCode {
        match (self.damage.is_empty(), self.unchecked.is_empty()) {
            (false, _) => ExitCode::from(1),
            (true, false) => ExitCode::from(2),
            (true, true) => ExitCode::SUCCESS,
        }
    }

    fn print_one(&self, args: &One) -> Result<ExitCode> {
        match args.json {
            true => out::json(&json!({ "damage": self.damage }))?,
            false if self.damage.is_empty() => out::line(format!("{} is whole", args.path.display()))?,
            false => self.damage.iter().try_for_each(out::line)?,
        }
        Ok(self.status())
    }

    fn print_directory(&self, args: &One) -> Result<ExitCode> {
        let none = Federation::default();
        let names = self.names.as_ref().unwrap_or(&none);
        if args.json {
            let backends =
                names.entries.iter().map(|(dir, entries)| json!({ "dir": dir, "entries": entries }));
            out::json(&json!({ "backends": backends.collect::<Vec<_>>(), "metalinks": names.metalinks,
                               "leftovers": names.leftovers, "damage": self.damage,
                               "containers": self.containers, "plain": self.plain,
                               "unchecked": self.unchecked }))?;
            return Ok(self.status());
        }
        for (dir, entries) in &names.entries {
            out::line(format!("{:>12} entries  {dir}", words::count(*entries)))?;
        }
        if names.entries.len() > 1 {
            out::line(format!("{:>12} metalinks", words::count(names.metalinks)))?;
        }
        names.leftovers.iter().try_for_each(|words| out::line(format!("left over: {words}")))?;
        if self.plain > 0 {
            out::line(format!("{} plain files, which are no containers", words::count(self.plain)))?;
        }
        self.damage.iter().try_for_each(out::line)?;
        self.unchecked.iter().try_for_each(|words| out::line(format!("not checked: {words}")))?;
        if self.damage.is_empty() && self.unchecked.is_empty() {
            let (dir, count) = (args.path.display(), words::count(self.containers));
            let names = if self.names.is_some() {
                format!("the names in {dir} are whole, and ")
            } else {
                String::new()
            };
            out::line(format!("{names}{count} containers in {dir} are whole"))?;
        }
        Ok(self.status())
    }
}
