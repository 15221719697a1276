//! `shoal key`: the keys of a cluster by role, in its files. Servers read them at their start, so they must
//! be stopped while a key is replaced.

use crate::cli::{Keys, OneCluster, Rotate};
use crate::cluster_file::ClusterFile;
use crate::out;
use crate::secret::KeyFile;
use anyhow::{Context as _, Result, bail};
use rustix::fs::FlockOperation;
use serde_json::json;
use shoal_config::server_key::ServerKeyFile;
use shoal_env::{Address, Env, real};
use shoal_proto::SecretKey;
use std::fs::File;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// A server that listens answers within this time.
const LISTENS_WITHIN: Duration = Duration::from_millis(500);

/// Run it.
pub fn run(command: Keys) -> Result<ExitCode> {
    match command {
        Keys::List(args) => list(&args),
        Keys::Split(args) => split(&args),
        Keys::Rotate(args) => rotate(&args),
    }
}

fn list(args: &OneCluster) -> Result<ExitCode> {
    let cluster = ClusterFile::load(&args.config)?;
    let keys = cluster.keys()?;
    let prints = [("mount", &keys.mount), ("server", &keys.server), ("place", &keys.place)];
    if args.json {
        let prints: serde_json::Map<_, _> =
            prints.iter().map(|(role, key)| ((*role).to_owned(), json!(fingerprint(key)))).collect();
        out::json_line(&json!({ "schema": 1, "keys": prints, "roles_apart": !keys.is_shared() }))?;
        return Ok(ExitCode::SUCCESS);
    }
    for (role, key) in prints {
        out::line(format!("{role:8} {}", fingerprint(key)))?;
    }
    if keys.is_shared() {
        out::line(
            "one key has all roles: a client can do what servers can; `shoal key split` separates them",
        )?;
    }
    Ok(ExitCode::SUCCESS)
}

fn split(args: &OneCluster) -> Result<ExitCode> {
    let mut cluster = ClusterFile::load(&args.config)?;
    let _held = stopped(&cluster)?;
    if let Some(path) = &cluster.server_key {
        bail!(
            "the servers have a key of their own already ({}); `shoal key rotate --server` replaces it",
            cluster.path(path).display()
        );
    }
    let keys = cluster.keys()?;
    let beside = cluster.server_key_beside();
    let path = cluster.path(&beside);
    // One from a split that was interrupted has the right place key, and no server has used it.
    ServerKeyFile::split_from(&keys.mount)?.save(&path)?;
    cluster.server_key = Some(beside);
    cluster.save_to(&ClusterFile::path_of(&args.config))?;
    say(args, &path, "copy cluster.toml and key.server to each server's machine, and start the servers")
}

fn rotate(args: &Rotate) -> Result<ExitCode> {
    let cluster = ClusterFile::load(&args.cluster.config)?;
    let _held = stopped(&cluster)?;
    let keys = cluster.keys()?;
    let Some(server_key) = &cluster.server_key else {
        bail!(
            "names are placed by the one key this cluster has, so it cannot be replaced: `shoal key split` first"
        );
    };
    if args.server {
        let path = cluster.path(server_key);
        keep_former(&path)?;
        ServerKeyFile::split_from(&keys.place)?.save(&path)?;
        return say(&args.cluster, &path, "copy key.server to each server's machine, and start the servers");
    }
    let path = cluster.path(&cluster.key);
    keep_former(&path)?;
    KeyFile::draw(&cluster)?.save(&path)?;
    say(
        &args.cluster,
        &path,
        "copy `key` to each server's machine, start the servers, then copy it to the clients",
    )
}

/// The file that is to be replaced stays under another name.
fn keep_former(path: &Path) -> Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(".former");
    let text = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    crate::secret::write_whole(Path::new(&name), &text, 0o600)
}

fn say(args: &OneCluster, wrote: &Path, next: &str) -> Result<ExitCode> {
    if args.json {
        out::json_line(&json!({ "schema": 1, "wrote": wrote.display().to_string() }))?;
    } else {
        out::line(format!("wrote {}", wrote.display()))?;
        out::line(format!("  next: {next}"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The beginning of a hash: it shows whether two keys are equal, and nothing else of them.
fn fingerprint(key: &SecretKey) -> String {
    key.mac("fingerprint", &[])[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Hold the cluster file while no server runs, as far as this machine can see.
fn stopped(cluster: &ClusterFile) -> Result<Vec<File>> {
    let mut held = vec![cluster.lock()?];
    let lock = cluster.base.join("lock");
    if let Ok(up) = File::open(&lock) {
        if rustix::fs::flock(&up, FlockOperation::NonBlockingLockExclusive).is_err() {
            bail!("`shoal up` runs in {}: stop it first (Ctrl-C, or kill -TERM)", cluster.base.display());
        }
        held.push(up);
    }
    let listens = cluster.server.iter().flat_map(|server| &server.listen);
    let addresses: Vec<Address> = listens.filter_map(|text| text.parse().ok()).collect();
    let listening = real::run("key", move |env| async move { first_listening(&env, &addresses).await });
    match listening {
        Some(address) => {
            bail!("a server listens at {address}: stop all servers first (kill -TERM), then run this again")
        }
        None => Ok(held),
    }
}

async fn first_listening(env: &Env, addresses: &[Address]) -> Option<Address> {
    let asks = addresses.iter().map(|address| async move {
        let until = env.now() + LISTENS_WITHIN;
        env.deadline(until, env.connect(address))
            .await
            .is_ok_and(|reached| reached.is_ok())
            .then(|| address.clone())
    });
    futures_util::future::join_all(asks).await.into_iter().flatten().next()
}
