//! `shoal fsck`: is every object where it belongs? See [`crate::fsck`] for how.

use crate::address::Place;
use crate::cli::Fsck;
use crate::fsck::mend::{Site, mend, server_of};
use crate::fsck::{Problem, Tables, check, collect};
use crate::{connect, out, words};
use anyhow::{Context as _, Result};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use shoal_client::Client;
use shoal_env::Env;
use shoal_proto::{Handle, Name, Owner, Status, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::time::Duration;

/// Pauses before the further looks at what the first look suspects.
const PAUSES: [Duration; 3] =
    [Duration::from_millis(200), Duration::from_millis(800), Duration::from_secs(3)];
/// How many of them between two rounds of mending: what is looked at then was wrong before, or lies beside it.
const PAUSES_OF_ROUNDS: usize = 2;
/// A server that answers nothing for so long cannot be checked.
const PATIENCE: Duration = Duration::from_secs(10);
/// Rounds of mending, at most: each mends what the one before uncovered.
const ROUNDS_MAX: usize = 8;

/// What a check found.
struct Found {
    tables: Tables,
    problems: BTreeSet<Problem>,
}

/// What became of a problem.
enum Mending {
    Mended,
    NotOffered,
    Failed(String),
}

/// Check, and mend if asked to. 0: clean or all mended; 1: damage.
pub fn run(args: Fsck) -> Result<ExitCode> {
    let place = Place::find(&args.place, args.key.key.as_deref())?;
    let bar = progress(args.quiet);
    let name = place.address.name.clone();
    let clean = connect::with_client_within(&place, PATIENCE, |env, client| async move {
        let found = find(&env, &client, &bar, &PAUSES).await?;
        let mut mended = BTreeMap::new();
        let mut left = found.problems.clone();
        if args.repair && !left.is_empty() {
            left = repair(&env, &client, &bar, &found, &mut mended).await?;
        }
        bar.finish_and_clear();
        report(&args, &name, &client, &found, &mended, &left)?;
        Ok(left.is_empty())
    })?;
    Ok(if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
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

/// Look; look again at what seems wrong; what all looks saw alike is wrong.
async fn find(env: &Env, client: &Client, bar: &ProgressBar, pauses: &[Duration]) -> Result<Found> {
    bar.set_message("reading");
    let progress = |rows| bar.inc(rows);
    let mut tables = collect::look(client, &progress).await?;
    let mut problems = check::check(&tables);
    for &pause in pauses {
        if problems.is_empty() {
            break;
        }
        bar.set_message(format!("looking again at {}", words::many(problems.len() as u64, "suspicion")));
        env.sleep(pause).await;
        tables = collect::look(client, &progress).await?;
        problems = problems.intersection(&check::check(&tables)).cloned().collect();
    }
    Ok(Found { tables, problems })
}

/// Mend in rounds; what is left.
async fn repair(
    env: &Env,
    client: &Client,
    bar: &ProgressBar,
    found: &Found,
    mended: &mut BTreeMap<Problem, Mending>,
) -> Result<BTreeSet<Problem>> {
    let lost_and_found = lost_and_found(client).await?;
    let (mut tables, mut problems) = (found.tables.clone(), found.problems.clone());
    for _ in 0..ROUNDS_MAX {
        let site = Site { lost_and_found, template: client.map().template, now: Time(env.wall().0) };
        let mut progressed = false;
        for problem in &problems {
            let outcome = mend_one(client, problem, &tables, &site).await;
            progressed |= matches!(outcome, Mending::Mended);
            mended.insert(problem.clone(), outcome);
        }
        if !progressed {
            break;
        }
        let next = find(env, client, bar, &PAUSES[..PAUSES_OF_ROUNDS]).await?;
        (tables, problems) = (next.tables, next.problems);
        if problems.is_empty() {
            break;
        }
    }
    Ok(problems)
}

async fn mend_one(client: &Client, problem: &Problem, tables: &Tables, site: &Site) -> Mending {
    let Some(actions) = mend(problem, tables, site) else { return Mending::NotOffered };
    for action in actions {
        if let Err(error) = client.repair(server_of(&action), vec![action]).await {
            return Mending::Failed(error.to_string());
        }
    }
    Mending::Mended
}

async fn lost_and_found(client: &Client) -> Result<Handle> {
    let name = Name::new(b"lost+found").map_err(|status| anyhow::anyhow!(status))?;
    let looked = client.lookup(Handle::ROOT, &name).await;
    let made = match looked {
        Err(error) if error.status == Status::NotFound => {
            let owner = Owner {
                mode: 0o700,
                uid: rustix::process::geteuid().as_raw(),
                gid: rustix::process::getegid().as_raw(),
            };
            client.mkdir(Handle::ROOT, &name, owner).await
        }
        looked => looked,
    };
    Ok(made.context("cannot make /lost+found")?.handle)
}

fn report(
    args: &Fsck,
    name: &str,
    client: &Client,
    found: &Found,
    mended: &BTreeMap<Problem, Mending>,
    left: &BTreeSet<Problem>,
) -> Result<()> {
    let all: BTreeSet<&Problem> = found.problems.iter().chain(mended.keys()).chain(left).collect();
    let tables = &found.tables;
    if args.json {
        let problems: Vec<Value> = all
            .iter()
            .map(|problem| {
                json!({
                    "problem": problem.word(),
                    "words": problem.to_string(),
                    "mended": !left.contains(*problem),
                    "mending": mended.get(*problem).map(mending_words),
                })
            })
            .collect();
        return out::json(&json!({
            "file_system": name,
            "servers": client.map().servers.len(),
            "objects": tables.objects.len(),
            "entries": tables.entries.len(),
            "datafiles": tables.datafiles.len(),
            "streams": tables.streams.len(),
            "orphans": tables.orphans.len(),
            "to_reap": tables.reaps.len(),
            "clean": left.is_empty(),
            "problems": problems,
        }));
    }
    for problem in &all {
        let mending = match (mended.get(*problem), left.contains(*problem)) {
            (Some(_), false) => "  [mended]".to_owned(),
            (Some(mending), true) => format!("  [{}]", mending_words(mending)),
            (None, _) => String::new(),
        };
        out::line(format!("{problem}{mending}"))?;
    }
    let count = |n: usize, what: &str| words::many(n as u64, what);
    let verdict = match (all.len(), left.len()) {
        (0, _) => "clean".to_owned(),
        (n, 0) => format!("{} mended", count(n, "problem")),
        (_, n) if args.repair => format!("{} left", count(n, "problem")),
        (_, n) => format!("{}; --repair mends what can be mended", count(n, "problem")),
    };
    out::line(format!(
        "{name}: {}, {}, {} on {}: {verdict}",
        count(tables.objects.len(), "object"),
        match tables.entries.len() {
            1 => "1 entry".to_owned(),
            n => format!("{} entries", words::count(n as u64)),
        },
        count(tables.datafiles.len(), "datafile"),
        count(client.map().servers.len(), "server"),
    ))
}

fn mending_words(mending: &Mending) -> String {
    match mending {
        Mending::Mended => "mended".to_owned(),
        Mending::NotOffered => "not mended: no safe repair is known".to_owned(),
        Mending::Failed(error) => format!("not mended: {error}"),
    }
}
