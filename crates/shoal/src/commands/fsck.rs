//! `shoal fsck`: checks that every object is where it belongs, and repairs damage if requested. The work is
//! done by [`shoal_fsck`].

use crate::address::CommandTarget;
use crate::cli::Fsck;
use crate::{connect, out};
use anyhow::{Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use shoal_fsck::aside::Aside;
use shoal_fsck::cause;
use shoal_fsck::report::Report;
use shoal_fsck::rounds::Checker;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Pauses before the further looks at the suspects of the first look.
const PAUSES: [Duration; 3] =
    [Duration::from_millis(200), Duration::from_millis(800), Duration::from_secs(3)];
/// A server that answers nothing for so long cannot be checked.
const PATIENCE: Duration = Duration::from_secs(10);

/// Check, and repair if requested. 0: clean or all repaired; 1: damage.
pub fn run(args: Fsck) -> Result<ExitCode> {
    let place = CommandTarget::find(&args.place, args.key.key.as_deref())?;
    if let Some(save) = &args.save {
        let folder = save.parent().filter(|folder| !folder.as_os_str().is_empty());
        if folder.is_some_and(|folder| !folder.is_dir()) || save.is_dir() {
            bail!("cannot keep rows in {}: give a file in a folder that exists", save.display());
        }
    }
    let bar = progress(args.quiet);
    let name = place.address.name.clone();
    let mut aside = Aside::new(args.save.clone().unwrap_or_else(|| save_file(&name)));
    let clean = connect::with_admin_within(&place, PATIENCE, |env, client| async move {
        let checker = Checker { env: &env, client: &client, bar: &bar, pauses: &PAUSES };
        let found = checker.find().await?;
        let mut mended = BTreeMap::new();
        let mut left = found.problems.clone();
        let has_lost = !cause::of_lost_stores(&found.problems, &client.map()).is_empty();
        if args.repair && !left.is_empty() && (!has_lost || args.lost_stores) {
            left = checker.repair(&found, &mut aside, &mut mended).await?;
        }
        bar.finish_and_clear();
        let report = Report { name: &name, client: &client, found: &found, mended: &mended, left: &left };
        if args.json {
            out::json(&report.json(&aside))?;
        } else {
            report.text(args.repair, args.lost_stores, &aside).into_iter().try_for_each(out::line)?;
        }
        Ok(left.is_empty())
    })?;
    Ok(if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Where rows go that are removed, if nothing else is said.
fn save_file(name: &str) -> PathBuf {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |span| span.as_secs());
    PathBuf::from(format!("fsck-{name}-{seconds}.jsonl"))
}

fn progress(quiet: bool) -> ProgressBar {
    if quiet {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}: {human_pos} rows, {per_sec}") {
        bar.set_style(style);
    }
    bar
}
