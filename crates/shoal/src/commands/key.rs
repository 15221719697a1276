//! `shoal key`: shows and replaces the keys of a cluster. The keys are in files. Each role has a key of its
//! own, unless one key has all roles because it was never split. Servers read the files at their start, so
//! they must be stopped while a key is replaced. Mount keys with names are added and revoked while servers
//! run ([`named`]).

mod named;

use crate::cli::{Keys, OneCluster, Rotate};
use crate::cluster_file::ClusterFile;
use crate::out;
use crate::secret::KeyFile;
use anyhow::{Context as _, Result, bail};
use rustix::fs::FlockOperation;
use serde_json::json;
use shoal_config::admin_key::AdminKeyFile;
use shoal_config::server_key::ServerKeyFile;
use shoal_env::{Address, Env, real};
use shoal_proto::{ClusterMap, MountKeyId};
use std::fs::File;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// After a split.
const SPREAD: &str = "copy cluster.toml and key.server to each server's machine, start the servers, and keep key.admin for administrators";
/// A server that listens answers within this time.
const LISTENS_WITHIN: Duration = Duration::from_millis(500);

/// Run it.
pub fn run(command: Keys) -> Result<ExitCode> {
    match command {
        Keys::Add(args) => named::add(&args),
        Keys::Export(args) => named::export(&args),
        Keys::Revoke(args) => named::revoke(&args),
        Keys::List(args) => list(&args),
        Keys::Split(args) => split(&args),
        Keys::Rotate(args) => rotate(&args),
    }
}

fn list(args: &OneCluster) -> Result<ExitCode> {
    let cluster = ClusterFile::load(&args.config)?;
    let keys = cluster.keys()?;
    let admin = keys.admin.as_ref().unwrap_or(&keys.mount);
    let prints = [("mount", &keys.mount), ("admin", admin), ("server", &keys.server), ("place", &keys.place)];
    let apart = !keys.is_shared() && keys.admin.is_some();
    let maps: Vec<Result<ClusterMap>> = cluster
        .collection
        .iter()
        .map(|one| named::place(&cluster, &one.name).and_then(|place| named::map_of(&place)))
        .collect();
    let answers = maps.iter().all(Result::is_ok);
    if args.json {
        let named: Vec<_> = maps.iter().flatten().flat_map(|map| named::values(map, &keys)).collect();
        let prints: serde_json::Map<_, _> =
            prints.iter().map(|(role, key)| ((*role).to_owned(), json!(key.fingerprint()))).collect();
        out::json_line(
            &json!({ "schema": 1, "keys": prints, "roles_apart": apart, "mount_keys": named, "servers_answer": answers }),
        )?;
        return Ok(ExitCode::SUCCESS);
    }
    for (role, key) in prints {
        out::line(format!("{role:8} {}", key.fingerprint()))?;
    }
    for map in maps.iter().flatten() {
        named::lines(map, &keys).into_iter().try_for_each(out::line)?;
        if map.mount_key(MountKeyId::FIRST).is_some() {
            out::line(format!("the first mount key is revoked in file system `{}`", map.name))?;
        }
    }
    if !answers {
        out::line("mount keys with names: not known, as no server answers")?;
    }
    if keys.is_shared() {
        out::line(
            "one key has all roles: a client can do what servers can; `shoal key split` separates them",
        )?;
    } else if !apart {
        out::line("the mount key manages too: `shoal key split` draws an administrators' key")?;
    }
    Ok(ExitCode::SUCCESS)
}

fn split(args: &OneCluster) -> Result<ExitCode> {
    let mut cluster = ClusterFile::load(&args.config)?;
    let _held = stopped(&cluster)?;
    let keys = cluster.keys()?;
    let admin = cluster.path(&cluster.admin_key_beside());
    if let Some(path) = &cluster.server_key {
        let path = cluster.path(path);
        let servers = ServerKeyFile::load(&path)?;
        if keys.admin.is_some() && admin.exists() {
            bail!(
                "servers and administrators have keys of their own already ({}); `shoal key rotate --server` replaces the first, `--admin` the second",
                path.display()
            );
        }
        // A split that was interrupted had drawn it.
        let servers = if keys.admin.is_some() { servers } else { servers.with_new_admin_key()? };
        save_both(&servers, &path, &admin)?;
        return say(args, &[&path, &admin], SPREAD);
    }
    let beside = cluster.server_key_beside();
    let path = cluster.path(&beside);
    // One from a split that was interrupted has the right place key, and no server has used it.
    save_both(&ServerKeyFile::split_from(&keys.mount)?, &path, &admin)?;
    cluster.server_key = Some(beside);
    cluster.save_to(&ClusterFile::path_of(&args.config))?;
    say(args, &[&path, &admin], SPREAD)
}

/// The servers' file first: where both are, it decides.
fn save_both(servers: &ServerKeyFile, path: &Path, admin: &Path) -> Result<()> {
    servers.save(path)?;
    match servers.admin()? {
        Some(key) => AdminKeyFile::of(&key).save(admin),
        None => Ok(()),
    }
}

fn rotate(args: &Rotate) -> Result<ExitCode> {
    let cluster = ClusterFile::load(&args.cluster.config)?;
    let _held = stopped(&cluster)?;
    cluster.keys()?;
    let Some(server_key) = &cluster.server_key else {
        bail!(
            "names are placed by the one key this cluster has, so it cannot be replaced: `shoal key split` first"
        );
    };
    let servers = cluster.path(server_key);
    if args.server {
        keep_former(&servers)?;
        ServerKeyFile::load(&servers)?.with_new_server_key()?.save(&servers)?;
        return say(
            &args.cluster,
            &[&servers],
            "copy key.server to each server's machine, and start the servers",
        );
    }
    if args.admin {
        let admin = cluster.path(&cluster.admin_key_beside());
        if admin.exists() {
            keep_former(&admin)?;
        }
        save_both(&ServerKeyFile::load(&servers)?.with_new_admin_key()?, &servers, &admin)?;
        return say(
            &args.cluster,
            &[&servers, &admin],
            "copy key.server to each server's machine, start the servers, then copy key.admin to the administrators",
        );
    }
    let path = cluster.path(&cluster.key);
    keep_former(&path)?;
    KeyFile::draw(&cluster)?.save(&path)?;
    say(
        &args.cluster,
        &[&path],
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

fn say(args: &OneCluster, wrote: &[&Path], next: &str) -> Result<ExitCode> {
    if args.json {
        let wrote: Vec<String> = wrote.iter().map(|path| path.display().to_string()).collect();
        out::json_line(&json!({ "schema": 1, "wrote": wrote }))?;
    } else {
        wrote.iter().try_for_each(|path| out::line(format!("wrote {}", path.display())))?;
        out::line(format!("  next: {next}"))?;
    }
    Ok(ExitCode::SUCCESS)
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
