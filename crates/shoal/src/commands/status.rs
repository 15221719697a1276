//! `shoal status`: the servers' state and rates, and with `--counters` all they count.
//!
//! Rates are differences of two samples of the servers' counts, a moment apart.

use crate::address::Place;
use crate::bytes_size::human;
use crate::cli::Status;
use crate::{connect, out, words};
use anyhow::Result;
use serde_json::{Map, Value, json};
use shoal_client::{Client, Statfs};
use shoal_env::Env;
use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::Duration;

/// Between the two samples where nothing else is said.
const MOMENT: Duration = Duration::from_millis(500);
/// The shortest and longest time between two tables.
const WATCH_SECONDS: (f64, f64) = (0.1, 86_400.0);

/// One server's answer: its counts as JSON, or why there are none.
type Sample = Result<Value, String>;

/// Show it, once or again and again.
pub fn run(args: Status) -> Result<ExitCode> {
    let place = Place::find(&args.place, args.key.key.as_deref())?;
    let well =
        connect::with_client_within(&place, connect::IMPATIENT, |env, client| watch(env, client, &args))?;
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn watch(env: Env, client: Client, args: &Status) -> Result<bool> {
    let pause = args.watch.map(|s| Duration::from_secs_f64(s.clamp(WATCH_SECONDS.0, WATCH_SECONDS.1)));
    let mut before = sample(&client).await;
    loop {
        let begin = env.now();
        env.sleep(pause.unwrap_or(MOMENT)).await;
        let now = sample(&client).await;
        let span = env.now().since(begin).as_secs_f64();
        let space = client.statfs().await.ok();
        if pause.is_some() && !args.json && std::io::stdout().is_terminal() {
            out::bytes(b"\x1b[H\x1b[J")?;
        }
        let well = show(&client, args, &before, &now, span, space)?;
        if pause.is_none() {
            return Ok(well);
        }
        before = now;
    }
}

async fn sample(client: &Client) -> Vec<Sample> {
    let map = client.map();
    let asked = map.servers.iter().map(|info| async move {
        let text = client.status(info.id).await.map_err(|error| error.to_string())?;
        serde_json::from_str(&text).map_err(|error| format!("its status is not JSON: {error}"))
    });
    futures_util::future::join_all(asked).await
}

fn show(
    client: &Client,
    args: &Status,
    before: &[Sample],
    now: &[Sample],
    span: f64,
    space: Option<Statfs>,
) -> Result<bool> {
    let well = degraded(now).is_empty();
    if args.json {
        out::json_line(&as_json(client, before, now, span, space, well))?;
        return Ok(well);
    }
    let map = client.map();
    let space = space.map_or(String::new(), |s| {
        // Servers that do not count their objects say none.
        let objects =
            if s.objects > 0 { format!("{}   ", words::many(s.objects, "object")) } else { String::new() };
        format!("{objects}{} available   ", human(s.available))
    });
    out::line(format!(
        "file system  {}   {}   {space}{}",
        map.name,
        words::many(map.servers.len() as u64, "server"),
        if well { "healthy" } else { "DEGRADED" },
    ))?;
    out::line(words::plain(&rates_table(before, now, span)))?;
    for (id, sample) in now.iter().enumerate() {
        match sample {
            Err(error) => out::line(format!("DEGRADED: server {id} does not answer: {error}"))?,
            Ok(value) if value["health"] != "well" => {
                out::line(format!(
                    "DEGRADED: server {id} is not well: {}",
                    value["health"].as_str().unwrap_or("?")
                ))?;
            }
            Ok(_) => {}
        }
    }
    if args.counters {
        out::line("")?;
        out::line(words::plain(&counters_table(now)))?;
    }
    Ok(well)
}

fn rates_table(before: &[Sample], now: &[Sample], span: f64) -> comfy_table::Table {
    let header = [
        "server",
        "ops/s",
        "create",
        "read",
        "write",
        "messages/s",
        "syncs/s",
        "batch",
        "p50",
        "sessions",
        "queue",
        "sync mode",
    ];
    let mut table = words::table(&header);
    for (id, now) in now.iter().enumerate() {
        let Ok(now) = now else {
            table.add_row([id.to_string(), "no answer".to_owned()]);
            continue;
        };
        let before = before.get(id).and_then(|b| b.as_ref().ok());
        let per_second = |path: &[&str]| {
            let then = before.map_or(0.0, |b| number(b, path));
            words::rate(((number(now, path) - then) / span).max(0.0))
        };
        let all = |v: &Value| v["operations"].as_object().map_or(0.0, sum);
        let ops = (all(now) - before.map_or(0.0, all)) / span;
        let groups = number(now, &["store", "groups"]);
        let batch = if groups > 0.0 { number(now, &["store", "batches"]) / groups } else { 0.0 };
        let queue = number(now, &["queues", "requests_parked"]) + number(now, &["queues", "replies_gated"]);
        let word = |path: [&str; 2]| now[path[0]][path[1]].as_str().unwrap_or("?").to_owned();
        table.add_row([
            id.to_string(),
            words::rate(ops.max(0.0)),
            per_second(&["operations", "create"]),
            per_second(&["operations", "read"]),
            per_second(&["operations", "write"]),
            per_second(&["counters", "requests"]),
            per_second(&["env", "syncs"]),
            format!("{batch:.1}"),
            format!("≤{} µs", number(now, &["latency_us", "p50"])),
            number(now, &["sessions"]).to_string(),
            queue.to_string(),
            format!("{}/{}", word(["sync", "metadata"]), word(["sync", "data"])),
        ]);
    }
    table
}

/// What `--counters` prints of what a server counts, in this order.
const GROUPS: [&str; 9] =
    ["operations", "counters", "env", "store", "journal", "latency_us", "transactions", "queues", "pools"];

/// All counts: a row a name, a column a server.
fn counters_table(now: &[Sample]) -> comfy_table::Table {
    let mut header = vec!["count".to_owned()];
    header.extend((0..now.len()).map(|id| format!("server {id}")));
    header.push("all".to_owned());
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let mut table = words::table(&header);
    for group in GROUPS {
        let names: std::collections::BTreeSet<&String> =
            now.iter().flatten().filter_map(|v| v[group].as_object()).flat_map(Map::keys).collect();
        for name in names {
            let value = |sample: &Sample| sample.as_ref().map_or(Value::Null, |v| v[group][name].clone());
            let values: Vec<Value> = now.iter().map(value).collect();
            if values.iter().any(Value::is_array) {
                // How often what happened, by size: as it is.
                let mut row = vec![format!("{group}.{name}")];
                row.extend(values.iter().map(words::list));
                table.add_row(row);
                continue;
            }
            let values: Vec<f64> = values.iter().map(|value| value.as_f64().unwrap_or(0.0)).collect();
            let mut row = vec![format!("{group}.{name}")];
            row.extend(values.iter().map(|v| words::count(*v as u64)));
            let adds_up = !matches!(group, "latency_us" | "journal");
            row.push(if adds_up { words::count(values.iter().sum::<f64>() as u64) } else { String::new() });
            table.add_row(row);
        }
    }
    table
}

fn as_json(
    client: &Client,
    before: &[Sample],
    now: &[Sample],
    span: f64,
    space: Option<Statfs>,
    well: bool,
) -> Value {
    let servers: Vec<Value> = now
        .iter()
        .enumerate()
        .map(|(id, now)| match now {
            Err(error) => json!({ "server": id, "error": error }),
            Ok(now) => {
                let mut value = now.clone();
                let before = before.get(id).and_then(|b| b.as_ref().ok());
                value["rates"] = rates(before, now, span);
                value
            }
        })
        .collect();
    let map = client.map();
    json!({
        "file_system": map.name.0,
        "id": crate::cluster_file::hex(&map.fs_id),
        "epoch": map.epoch,
        "well": well,
        "degraded": degraded(now),
        "seconds": span,
        "space": space.map(|s| json!({
            "total_bytes": s.total, "available_bytes": s.available, "objects": s.objects,
        })),
        "servers": servers,
    })
}

/// The servers that do not serve as they should.
fn degraded(now: &[Sample]) -> Vec<usize> {
    let is_well = |sample: &Sample| sample.as_ref().is_ok_and(|value| value["health"] == "well");
    (0..now.len()).filter(|&id| !is_well(&now[id])).collect()
}

/// Operations a second, by name.
fn rates(before: Option<&Value>, now: &Value, span: f64) -> Value {
    let of = |(name, count): (&String, &Value)| {
        let then = before.map_or(0.0, |b| number(b, &["operations", name]));
        (name.clone(), json!((count.as_f64().unwrap_or(0.0) - then) / span))
    };
    now["operations"].as_object().map_or(Value::Null, |all| Value::Object(all.iter().map(of).collect()))
}

fn number(value: &Value, path: &[&str]) -> f64 {
    path.iter().fold(value, |value, word| &value[*word]).as_f64().unwrap_or(0.0)
}

fn sum(values: &Map<String, Value>) -> f64 {
    values.values().filter_map(Value::as_f64).sum()
}
