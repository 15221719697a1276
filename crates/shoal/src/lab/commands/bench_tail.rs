//! `shoal bench tail`: measures the slowest durable creates while the store works in the background.
//!
//! A server with small segments and tables runs in a thread of its own, so that within seconds there are
//! hundreds of checkpoints and segments to clean; the clients share another thread. Most files are removed
//! soon after they are made, so few remain in each segment, and their contents are moved. Only the creates
//! are timed.

use crate::cluster_file::CollectionEntry;
use crate::lab::cli::BenchTail;
use crate::lab::commands::bench::held::{self, Figure, Kept, Run};
use crate::{cluster_file, out};
use anyhow::{Context as _, Result, anyhow};
use bytes::Bytes;
use futures_channel::oneshot;
use futures_util::future::try_join_all;
use serde_json::json;
use shoal_bench::{Quantiles, SyncProbe, TailReport};
use shoal_client::{Client, Options};
use shoal_env::{Address, Env, real};
use shoal_model::{Operation, Set};
use shoal_proto::{ClusterMap, CollectionId, Handle, Name, Roles, SecretKey, ServerId, ServerInfo, Text};
use shoal_server::{CollectionSetup, ServerConfig, Settings, serve};
use shoal_store::{CollectionConfig, Identity, ModuleKind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The only server.
const SERVER: ServerId = ServerId(0);
/// A client removes a file when it has made so many more.
const LIVES: u64 = 64;
/// The probe runs alone for so long before.
const ALONE: Duration = Duration::from_secs(2);

/// Measure.
pub fn run(args: BenchTail) -> Result<ExitCode> {
    let kept = Kept::read()?;
    let scratch = Scratch::make(&args.folder)?;
    let alone = SyncProbe::start(&scratch.0)?;
    std::thread::sleep(ALONE);
    let probe_alone = alone.finish()?;
    let setup = Setup::new(&args, &scratch.0)?;
    let (stop, stopped) = oneshot::channel();
    let (begun, begin) = std::sync::mpsc::channel();
    let server = setup.clone();
    let server = real::spawn_migratable("tail-server", move |env| server.serve(env, stopped, begun))
        .context("cannot start the server's thread")?;
    let measured = match begin.recv() {
        Ok(()) => measure(&args, &setup, &scratch.0),
        // It says why below.
        Err(_) => Err(anyhow!("the server did not begin")),
    };
    drop(stop);
    server.join().map_err(|_| anyhow!("the server panicked: this is a bug"))??;
    let (changes, probe, per_s, background) = measured?;
    let workload = format!(
        "{} clients create files of {} for {} s and remove all but {} %; segments of {}, tables of {} rows",
        args.clients, args.size, args.seconds, args.keep, args.segment, args.rows
    );
    let report = TailReport { workload, per_s, changes, probe, probe_alone, background };
    // Of its changes about half are creates, which cost more than the removes.
    let run = Run { servers: 1, clients: args.clients, is_durable: true };
    let create = Figure::of("changes", per_s, Operation::CreateWriteClose, Set::Ours, run);
    let held = kept.hold(vec![create]);
    if args.json {
        out::json(&json!({ "report": report, "bounds": held }))?;
        return Ok(ExitCode::SUCCESS);
    }
    out::bytes(report.to_table().as_bytes())?;
    held::tell(&held, args.held.explain)?;
    Ok(ExitCode::SUCCESS)
}

/// A folder that is removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn make(folder: &Path) -> Result<Scratch> {
        let path = folder.join(format!("shoal-tail-{}", std::process::id()));
        std::fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Scratch(std::path::absolute(path)?))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The parameters shared by server and clients.
#[derive(Clone)]
struct Setup {
    map: ClusterMap,
    key: SecretKey,
    store: CollectionConfig,
    address: Address,
}

impl Setup {
    fn new(args: &BenchTail, folder: &Path) -> Result<Setup> {
        let entry = CollectionEntry::new("tail", 1)?;
        // A Unix socket's path is short; a stream within the process has a name.
        let address = Address::Local("bench-tail".into());
        let server = ServerInfo::new(SERVER, vec![Text(address.to_string())], Roles::METADATA | Roles::DATA);
        let map = ClusterMap {
            fs_id: entry.fs_id()?,
            name: Text(entry.name.clone()),
            collection: CollectionId(1),
            epoch: 1,
            template: entry.template()?,
            switches: entry.switches.0,
            servers: vec![server].into(),
            keys: Vec::new().into(),
        };
        let identity = Identity { fs: map.fs_id, collection: 1, server: SERVER.0 };
        let store = CollectionConfig {
            segment_bytes: args.segment.0,
            table_rows_max: args.rows,
            ..CollectionConfig::new(folder.join("store"), ModuleKind::Disk, identity)
        };
        Ok(Setup { map, key: SecretKey::new(cluster_file::random()?), store, address })
    }

    async fn serve(
        self,
        env: Env,
        stopped: oneshot::Receiver<()>,
        begun: std::sync::mpsc::Sender<()>,
    ) -> Result<()> {
        let store = shoal_store::open(env.clone(), self.store).await?;
        let setup = CollectionSetup {
            store,
            map: self.map,
            keys: Some(self.key.into()),
            root: crate::copy::owner(0o755),
        };
        let config = ServerConfig {
            id: SERVER,
            listen: vec![self.address],
            collections: vec![setup],
            settings: Settings::default(),
            polling: Duration::ZERO,
            audit: None,
        };
        let server = serve(env, config).await?;
        let _ = begun.send(());
        let _ = stopped.await;
        Ok(server.stop().await?)
    }

    fn options(&self) -> Options {
        Options::new(vec![self.address.clone()], self.key.clone(), self.map.fs_id, self.map.collection)
    }
}

type Measured = (Quantiles, Quantiles, f64, Vec<(String, u64)>);

fn measure(args: &BenchTail, setup: &Setup, folder: &Path) -> Result<Measured> {
    let size =
        usize::try_from(args.size.0).context("the size is larger than this machine's memory can be")?;
    let data = Bytes::from(vec![7; size]);
    real::run("tail-clients", |env| async move {
        let connect = (0..args.clients.max(1)).map(|_| Client::connect(env.clone(), setup.options()));
        let clients = try_join_all(connect).await?;
        let root = clients[0].walk(b"/", true).await?.handle;
        let before = background(&clients[0]).await?;
        let probe = SyncProbe::start(folder)?;
        let begun = Instant::now();
        let end = begun + Duration::from_secs(args.seconds);
        let work = clients
            .iter()
            .enumerate()
            .map(|(at, client)| Worker { client, root, at, data: data.clone(), keep: args.keep, end }.work());
        let latencies = try_join_all(work).await;
        let elapsed = begun.elapsed().as_secs_f64();
        let probe = probe.finish()?;
        let latencies: Vec<f64> = latencies?.concat();
        let mut after = background(&clients[0]).await?;
        for ((_, now), (_, then)) in after.iter_mut().zip(&before) {
            *now = now.saturating_sub(*then);
        }
        for client in &clients {
            client.close().await;
        }
        let per_s = latencies.len() as f64 / elapsed;
        Ok((Quantiles::of(latencies), probe, per_s, after))
    })
}

struct Worker<'a> {
    client: &'a Client,
    root: Handle,
    at: usize,
    data: Bytes,
    keep: u64,
    end: Instant,
}

impl Worker<'_> {
    /// Create until the end; gives each create's microseconds.
    async fn work(self) -> Result<Vec<f64>> {
        let owner = crate::copy::owner(0o755);
        let name = format!("client-{}", self.at);
        let dir = self.client.mkdir(self.root, &name_of(&name)?, owner).await?.handle;
        let owner = crate::copy::owner(0o644);
        let (mut times_us, mut made) = (Vec::new(), 0_u64);
        loop {
            let begun = Instant::now();
            if begun >= self.end {
                return Ok(times_us);
            }
            let name = name_of(&format!("{made}"))?;
            self.client.create_write(dir, &name, owner, self.data.clone(), None).await?;
            times_us.push(begun.elapsed().as_secs_f64() * 1e6);
            if let Some(old) = made.checked_sub(LIVES)
                && old.wrapping_mul(61) % 100 >= self.keep
            {
                self.client.unlink(dir, &name_of(&format!("{old}"))?).await?;
            }
            made += 1;
        }
    }
}

fn name_of(text: &str) -> Result<Name> {
    Name::new(text.as_bytes()).map_err(|status| anyhow!(status))
}

/// The work that the server's store reports.
async fn background(client: &Client) -> Result<Vec<(String, u64)>> {
    let status: serde_json::Value = serde_json::from_str(&client.status(SERVER).await?)?;
    let store = status["store"].as_object().context("the server says nothing of its store")?;
    let wanted = [
        "checkpoints",
        "checkpoint_bytes",
        "group_syncs",
        "journal_bytes",
        "written_bytes",
        "prewritten_bytes",
        "cleaned_bytes",
    ];
    let count = |name: &&str| Some(((*name).to_owned(), store.get(*name)?.as_u64()?));
    Ok(wanted.iter().filter_map(count).collect())
}
