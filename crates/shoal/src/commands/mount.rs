//! `shoal mount`: a mount served by this process, or by one in the background.

use crate::address::{CommandTarget, log_path};
use crate::cli::Mount;
use crate::embed::{Embedded, ShownAs};
use crate::log_file::{self, LogFile};
use crate::stop::Event;
use crate::words::Unserved;
use crate::{connect, out};
use crate::{mount_options, stop};
use anyhow::{Context as _, Result, bail};
use futures_util::future::join_all;
use serde_json::{Value, json};
use shoal_proto::ServerInfo;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc::{Sender, channel};

/// Mount, and serve until stopped or unmounted.
pub fn run(args: Mount) -> Result<ExitCode> {
    if args.background {
        return in_background(&args);
    }
    let (events, happened) = channel();
    stop::watch(events.clone())?;
    let (name, mount) = start(&args, &events)?;
    let at = mount.mountpoint();
    match args.json {
        true => {
            out::tell_json(&json!({ "ready": true, "address": name, "mountpoint": at.to_string_lossy() }))
        }
        false => out::tell(format!(
            "shoal {} · ready: {name} mounted at {}",
            env!("CARGO_PKG_VERSION"),
            at.display()
        )),
    }
    // Any event (a signal, an umount) is the end.
    let _ = happened.recv();
    mount.stop()?;
    Ok(ExitCode::SUCCESS)
}

/// The mount, and the name of what is mounted.
fn start(args: &Mount, events: &Sender<Event>) -> Result<(String, Embedded)> {
    let at = args.mountpoint();
    if let Some(dir) = &args.over {
        if args.places.len() > 1 {
            bail!("give either an address or --over DIR, and the mount point: not `{}` too", args.places[0]);
        }
        if args.raw {
            bail!("--raw is for a ShoalFS: a directory has no layout of its own; leave it out");
        }
        if let Some(address) = dir.to_str().filter(|text| text.starts_with("s3://")) {
            let mount = Embedded::bucket(address, args.transform.clone(), at, &args.options, events)?;
            return Ok((address.to_owned(), mount));
        }
        let mount = Embedded::local(dir, args.transform.clone(), at, &args.options, events)?;
        return Ok((dir.display().to_string(), mount));
    }
    let [address, _] = &args.places[..] else {
        bail!(
            "give the address of the file system and the mount point: `shoal mount shoal://HOST:PORT/NAME {}`",
            at.display()
        );
    };
    let said = mount_options::apply(&args.options.mount_options, &mut shoal_fuse::MountOptions::default())?;
    let place = CommandTarget::find(address, said.key.as_deref().or(args.key.key.as_deref()))?;
    let shown = match (&args.transform, args.raw) {
        (Some(transform), _) => ShownAs::Transformed(transform.clone()),
        (None, true) => ShownAs::Raw,
        (None, false) => ShownAs::Usual,
    };
    let mount = Embedded::start(&place, shown, at, &args.options, events)?;
    let watched = place.clone();
    let look = std::thread::Builder::new().name("servers".into()).spawn(move || say_degraded(&watched));
    look.context("cannot start a thread that asks the servers")?;
    Ok((place.address.to_string(), mount))
}

/// Report once which servers do not serve, and why: calls for their objects fail. The mount does not wait for
/// this.
fn say_degraded(place: &CommandTarget) {
    let asked = connect::with_client_within(place, connect::IMPATIENT, |_, client| async move {
        let map = client.map();
        let ask = |info: &ServerInfo| {
            let (client, id) = (client.clone(), info.id);
            async move { client.ping(id).await.err().map(|error| (id, Unserved::of(&error))) }
        };
        Ok(join_all(map.servers.iter().map(ask)).await)
    });
    // One that cannot reach any server reports that with the first operation.
    for (id, error) in asked.into_iter().flatten().flatten() {
        eprintln!("shoal: DEGRADED: server {id} {error}");
    }
}

/// The same program again, without `--background`; its first line says that it is ready.
fn in_background(args: &Mount) -> Result<ExitCode> {
    let log = log_path(args.mountpoint())?;
    let said = LogFile::at(&log).open()?;
    let before = said.metadata().map_or(0, |meta| meta.len());
    let program = std::env::current_exe().context("cannot find this program to start it again")?;
    let own: Vec<_> = std::env::args_os().skip(1).filter(|arg| arg != "--background").collect();
    let mut child = Command::new(program)
        .args(own)
        .env_remove(stop::ENDS_WITH_INPUT)
        .env(log_file::FILE, &log)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(said)
        .process_group(0)
        .spawn()
        .context("cannot start the mount in the background")?;
    let mut line = String::new();
    if let Some(told) = child.stdout.take() {
        BufReader::new(told).read_line(&mut line).context("the mount in the background says nothing")?;
    }
    if line.is_empty() {
        let _ = child.wait();
        let all = std::fs::read(&log).unwrap_or_default();
        let said = all.get(usize::try_from(before).unwrap_or(usize::MAX)..).unwrap_or(&all);
        let words = String::from_utf8_lossy(said).trim().trim_start_matches("shoal: ").to_owned();
        bail!("the mount in the background failed: {words} (its log is {})", log.display());
    }
    let (line, log) = (line.trim_end(), log.display().to_string());
    if args.json {
        let mut told: Value =
            serde_json::from_str(line).context("the output of the mount in the background is no JSON")?;
        (told["process"], told["messages"]) = (child.id().into(), log.into());
        out::json_line(&told)?;
        return Ok(ExitCode::SUCCESS);
    }
    out::line(format!("{line} · process {} · messages in {log}", child.id()))?;
    Ok(ExitCode::SUCCESS)
}
