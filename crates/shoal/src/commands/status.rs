//! `shoal status`: shows the state and the rates of the servers, and with `--counters` all their counters.
//!
//! A rate is the difference of two samples of the servers' counts, divided by the time between them: half a
//! second, or the interval of `--watch`.

use crate::address::CommandTarget;
use crate::bytes_size::human;
use crate::cli::Status;
use crate::words::Unserved;
use crate::{connect, out, words};
use anyhow::Result;
use serde_json::{Map, Value, json};
use shoal_client::Client;
use shoal_env::Env;
use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::Duration;

/// Between the two samples where nothing else is said.
const MOMENT: Duration = Duration::from_millis(500);
/// The shortest and longest time between two tables.
const WATCH_SECONDS: (f64, f64) = (0.1, 86_400.0);

/// One server's answer: its counts as JSON, or why there are none.
type Sample = Result<Value, Unserved>;

/// Show it, once or repeatedly.
pub fn run(args: Status) -> Result<ExitCode> {
    let place = CommandTarget::find(&args.place, args.key.key.as_deref())?;
    let well =
        connect::with_client_within(&place, connect::IMPATIENT, |env, client| watch(env, client, &args))?;
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn watch(env: Env, client: Client, args: &Status) -> Result<bool> {
    let pause = args.watch.map(|s| Duration::from_secs_f64(s.clamp(WATCH_SECONDS.0, WATCH_SECONDS.1)));
    let mut before = sample(&client, &[]).await;
    loop {
        let begin = env.now();
        env.sleep(pause.unwrap_or(MOMENT)).await;
        // A server that gave no answer is not waited for a second time, unless this continues.
        let known = if pause.is_none() { &before[..] } else { &[] };
        let now = sample(&client, known).await;
        let span = env.now().since(begin).as_secs_f64();
        if pause.is_some() && !args.json && std::io::stdout().is_terminal() {
            out::bytes(b"\x1b[H\x1b[J")?;
        }
        let well = show(&client, args, &before, &now, span)?;
        if pause.is_none() {
            return Ok(well);
        }
        before = now;
    }
}

/// One answer of each server, all asked at once; those without one in `known` are not asked again.
async fn sample(client: &Client, known: &[Sample]) -> Vec<Sample> {
    let map = client.map();
    let asked = map.servers.iter().enumerate().map(|(at, info)| async move {
        if let Some(Err(error)) = known.get(at) {
            return Err(error.clone());
        }
        let text = client.status(info.id).await.map_err(|error| Unserved::of(&error))?;
        serde_json::from_str(&text)
            .map_err(|error| Unserved::Refuses(format!("its status is not JSON: {error}")))
    });
    futures_util::future::join_all(asked).await
}

fn show(client: &Client, args: &Status, before: &[Sample], now: &[Sample], span: f64) -> Result<bool> {
    let (degraded, short, unaudited) = (degraded(now), short_of_room(now), unaudited(now));
    let well = degraded.is_empty() && short.is_empty() && unaudited.is_empty();
    if args.json {
        out::json_line(&as_json(client, before, now, span, well))?;
        return Ok(well);
    }
    let map = client.map();
    out::line(format!(
        "file system  {}   {}   {}",
        map.name,
        words::many(map.servers.len() as u64, "server"),
        match (degraded.as_slice(), well) {
            (_, true) => "healthy".to_owned(),
            ([], false) => words::alarm("NOT WELL"),
            (_, false) => words::alarm("DEGRADED"),
        },
    ))?;
    if let Some(space) = Space::of(now) {
        out::line(space.words())?;
    }
    sync_modes(now).iter().try_for_each(out::line)?;
    if let Some(line) = mount_keys(now) {
        out::line(line)?;
    }
    out::line(words::plain(&rates_table(before, now, span)))?;
    for (id, sample) in now.iter().enumerate() {
        if let Err(error) = sample {
            out::line(format!("{}: server {id} {error}", words::alarm("DEGRADED")))?;
        } else if let Some(reason) = unwell(sample) {
            out::line(format!("{}: server {id} is NOT WELL: {reason}", words::alarm("DEGRADED")))?;
        }
    }
    for (id, short) in short.into_iter().chain(unaudited) {
        out::line(format!("{}: server {id}: {short}", words::alarm("NOT WELL")))?;
    }
    if args.counters {
        out::line("")?;
        out::line(words::plain(&counters_table(now)))?;
    }
    Ok(well)
}

/// Why a server that answers is not well.
fn unwell(sample: &Sample) -> Option<&str> {
    let health = &sample.as_ref().ok()?["health"];
    (health != "well").then(|| health.as_str().unwrap_or("it says nothing of its health"))
}

/// Space of the servers' disks. A disk that several servers share counts once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
struct Space {
    disks: u64,
    total: u64,
    available: u64,
}

impl Space {
    /// By what those servers say that answer; `None` if none does.
    fn of(now: &[Sample]) -> Option<Space> {
        let mut known: BTreeMap<(u64, usize), (u64, u64)> = BTreeMap::new();
        for (id, value) in now.iter().enumerate().filter_map(|(id, sample)| Some((id, sample.as_ref().ok()?)))
        {
            let of = |name: &str| value["space"][name].as_u64().unwrap_or(0);
            // A server that names no disk has one of its own.
            let disk = of("disk");
            let (total, available) = known.entry((disk, if disk == 0 { id } else { 0 })).or_default();
            *total = of("total_bytes").max(*total);
            *available = of("available_bytes").max(*available);
        }
        let add = |sum: Space, &(total, available): &(u64, u64)| Space {
            disks: sum.disks + 1,
            total: sum.total.saturating_add(total),
            available: sum.available.saturating_add(available),
        };
        (!known.is_empty()).then(|| known.values().fold(Space::default(), add))
    }

    fn used(&self) -> u64 {
        self.total.saturating_sub(self.available)
    }

    fn words(&self) -> String {
        format!(
            "space        {} used of {} on {}   {} free",
            human(self.used()),
            human(self.total),
            words::many(self.disks, "disk"),
            human(self.available)
        )
    }
}

/// The servers whose disks have no room for anything new: each keeps a reserve free, out of which removals
/// are written.
fn full(now: &[Sample]) -> Vec<usize> {
    let is_full = |sample: &Sample| {
        sample.as_ref().is_ok_and(|value| {
            let of = |name: &str| value["space"][name].as_u64();
            of("available_bytes") == Some(0) && of("total_bytes") > Some(0)
        })
    };
    (0..now.len()).filter(|&id| is_full(&now[id])).collect()
}

/// When changes are durable: a line for each mode that servers have.
fn sync_modes(now: &[Sample]) -> Vec<String> {
    let mut servers: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (id, value) in now.iter().enumerate().filter_map(|(id, sample)| Some((id, sample.as_ref().ok()?))) {
        let word = |name: &str| value["sync"][name].as_str().unwrap_or("?").to_owned();
        let modes = format!("metadata at {}, data at {}", word("metadata"), word("data"));
        servers.entry(modes.replace("at never", "never")).or_default().push(id.to_string());
    }
    let is_one = servers.len() == 1;
    let line = |(modes, ids): (&String, &Vec<String>)| {
        let of = if is_one { String::new() } else { format!(" (servers {})", ids.join(", ")) };
        format!("durable      {modes}{of}")
    };
    servers.iter().map(line).collect()
}

/// The mount keys, if there are others than the first one, as the server with the newest map knows them.
fn mount_keys(now: &[Sample]) -> Option<String> {
    let newest = now.iter().flatten().max_by_key(|value| value["epoch"].as_u64())?;
    let keys = newest["mount_keys"].as_array()?;
    let is_set = |key: &Value, word: &str| key[word].as_bool().unwrap_or(false);
    if !keys.iter().any(|key| is_set(key, "revoked") || key["name"] != "first") {
        return None;
    }
    let words = |key: &Value| {
        let text = |word: &str| key[word].as_str().unwrap_or("?").to_owned();
        let read_only = if is_set(key, "read_only") { ", read-only" } else { "" };
        let squashed = if is_set(key, "squash_root") { ", squash-root" } else { "" };
        let revoked = if is_set(key, "revoked") { ", REVOKED" } else { "" };
        format!("{} ({}{read_only}{squashed}{revoked})", text("name"), text("fingerprint"))
    };
    Some(format!("mount keys   {}", keys.iter().map(words).collect::<Vec<_>>().join(", ")))
}

fn rates_table(before: &[Sample], now: &[Sample], span: f64) -> comfy_table::Table {
    let header =
        ["server", "ops/s", "create", "read", "write", "msgs/s", "syncs/s", "p50", "sessions", "queue"];
    let mut table = words::table(&header);
    for (id, now) in now.iter().enumerate() {
        let Ok(now) = now else {
            table.add_row([id.to_string(), words::alarm("none")]);
            continue;
        };
        let before = before.get(id).and_then(|b| b.as_ref().ok());
        let per_second = |path: &[&str], own: f64| {
            let then = before.map_or(0.0, |b| number(b, path));
            words::rate(((number(now, path) - then - own) / span).max(0.0))
        };
        let others =
            |v: &Value| v["operations"].as_object().map_or(0.0, sum) - number(v, &["operations", "status"]);
        let ops = (others(now) - before.map_or(0.0, others)) / span;
        let queue = number(now, &["queues", "requests_parked"]) + number(now, &["queues", "replies_gated"]);
        // This command's own session and the question of its second sample do not count.
        table.add_row([
            id.to_string(),
            words::rate(ops.max(0.0)),
            per_second(&["operations", "create"], 0.0),
            per_second(&["operations", "read"], 0.0),
            per_second(&["operations", "write"], 0.0),
            per_second(&["counters", "requests"], 1.0),
            per_second(&["env", "syncs"], 0.0),
            format!("≤{}", words::span_us(number(now, &["latency_us", "p50"]))),
            (number(now, &["sessions"]) - 1.0).max(0.0).to_string(),
            queue.to_string(),
        ]);
    }
    table
}

/// The counters of a server that `--counters` prints, in this order.
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

fn as_json(client: &Client, before: &[Sample], now: &[Sample], span: f64, well: bool) -> Value {
    let servers: Vec<Value> = now
        .iter()
        .enumerate()
        .map(|(id, now)| match now {
            Err(error) => json!({ "server": id, "error": error.why() }),
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
        "full": full(now),
        "short_of_room": short_of_room(now).into_iter().map(|(id, _)| id).collect::<Vec<_>>(),
        "unaudited": unaudited(now).into_iter().map(|(id, _)| id).collect::<Vec<_>>(),
        "seconds": span,
        "space": Space::of(now).map(|space| json!({
            "disks": space.disks,
            "total_bytes": space.total,
            "used_bytes": space.used(),
            "available_bytes": space.available,
        })),
        "servers": servers,
    })
}

/// The servers whose disks have too little room, and the figures and the remedy in words.
fn short_of_room(now: &[Sample]) -> Vec<(usize, &str)> {
    fn words((id, sample): (usize, &Sample)) -> Option<(usize, &str)> {
        Some((id, sample.as_ref().ok()?["room"]["short"].as_str()?))
    }
    now.iter().enumerate().filter_map(words).collect()
}

/// The servers whose audit logs cannot be written, and the reason and the remedy in words.
fn unaudited(now: &[Sample]) -> Vec<(usize, &str)> {
    fn words((id, sample): (usize, &Sample)) -> Option<(usize, &str)> {
        Some((id, sample.as_ref().ok()?["audit"]["problem"].as_str()?))
    }
    now.iter().enumerate().filter_map(words).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    fn server(disk: u64, total: u64, available: u64) -> Sample {
        Ok(json!({
            "space": { "total_bytes": total, "available_bytes": available, "disk": disk },
            "health": "well",
            "sync": { "metadata": "reply", "data": "fsync" },
            "sessions": 12_345,
            "latency_us": { "p50": 131_072 },
            "operations": { "create": 9_999_999.0, "status": 2.0 },
            "counters": { "requests": 123_456_789.0 },
            "env": { "syncs": 123_456_789.0 },
            "queues": { "requests_parked": 10_000, "replies_gated": 10_000 },
        }))
    }

    #[test]
    fn a_disk_that_servers_share_counts_once_and_one_without_a_name_is_a_servers_own() {
        let now = [
            server(5, 100, 40),
            server(5, 100, 39),
            Err(Unserved::Silent("away".into())),
            server(0, 10, 1),
            server(0, 10, 1),
        ];
        assert_eq!(Space::of(&now), Some(Space { disks: 3, total: 120, available: 42 }));
        assert_eq!(Space::of(&[Err(Unserved::Silent("away".into()))]), None);
    }

    #[test]
    fn servers_without_room_are_named() {
        let now = [
            server(5, 100, 0),
            Err(Unserved::Silent("away".into())),
            server(6, 100, 1),
            server(0, 0, 0),
            server(7, 9, 0),
        ];
        assert_eq!(full(&now), [0, 4]);
    }

    #[test]
    fn the_table_fits_80_columns_whatever_the_servers_count() {
        let now = [server(5, u64::MAX, 40), Err(Unserved::Silent("away".into()))];
        let text =
            words::plain(&rates_table(&[server(5, 1, 1), Err(Unserved::Silent("away".into()))], &now, 1.0));
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{} columns: {line}", line.chars().count());
        }
        let space = Space { disks: 10_000, total: 1 << 60, available: 1 << 59 };
        assert!(space.words().chars().count() <= 80, "{}", space.words());
    }

    #[test]
    fn the_question_itself_is_counted_nowhere() {
        let count = |status: f64, requests: f64| -> Sample {
            Ok(json!({
                "operations": { "create": 5.0, "status": status },
                "counters": { "requests": requests },
                "sessions": 1,
            }))
        };
        let table = rates_table(&[count(1.0, 10.0)], &[count(2.0, 11.0)], 1.0);
        let text = words::plain(&table);
        let row: Vec<&str> = text.lines().last().unwrap().split_whitespace().collect();
        assert_eq!(row, ["0", "0", "0", "0", "0", "0", "0", "≤0", "µs", "0", "0"]);
    }
}
