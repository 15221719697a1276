//! `shoal key add`, `export` and `revoke`: mount keys with names, while the file system runs.
//!
//! The secret of a mount key is derived from the servers' key. So `add` and `export` compute it where the
//! cluster's folder has `key.server`, write it to a file (`key.NAME` beside `key`), and send no secret. The
//! servers receive only the name, the id and the limits of the key.
//!
//! Each server that answers receives the change, and passes it on to the others. A server that does not
//! answer accepts a revoked key until it has met a server that knows of the change. So `revoke` names the
//! servers that did not answer, and fails. `add` only names them.

use crate::address::{CommandTarget, ShoalAddress};
use crate::cli::{AddKey, ExportKey, RevokeKey};
use crate::cluster_file::{ClusterFile, CollectionEntry, random};
use crate::secret::{FileSystem, KeyFile};
use crate::{connect, out};
use anyhow::{Context as _, Result, anyhow, bail};
use futures_util::future::join_all;
use serde_json::{Value, json};
use shoal_client::{Client, Error};
use shoal_env::Address;
use shoal_proto::{ClusterMap, KeyLimits, Keys, MountKey, MountKeyId, ServerId, Status, limits};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Files beside `key` that are no keys with names.
const RESERVED: &[&str] = &["server", "admin", "former", "new"];

/// A file system of a cluster, and what its servers' machine knows of its keys.
struct Owned<'a> {
    cluster: &'a ClusterFile,
    collection: &'a CollectionEntry,
    keys: Keys,
}

impl Owned<'_> {
    fn of<'a>(cluster: &'a ClusterFile, file_system: Option<&str>) -> Result<Owned<'a>> {
        let (collection, keys) = (cluster.find(file_system)?, cluster.keys()?);
        if keys.is_shared() {
            bail!(
                "one key has all roles here, so each client could make every other key: `shoal key split` first"
            );
        }
        Ok(Owned { cluster, collection, keys })
    }

    fn file(&self, key: &MountKey) -> Result<KeyFile> {
        let secret = self.keys.named(&self.collection.fs_id()?, key.id);
        let (name, id) = (self.collection.name.clone(), self.collection.id.clone());
        Ok(KeyFile::named(key, &secret, FileSystem { name, id, collection: self.collection.number }))
    }

    /// Where the file of a key is written.
    fn path(&self, name: &str, chosen: Option<&PathBuf>) -> Result<PathBuf> {
        let beside = || self.cluster.path(&self.cluster.key).with_file_name(format!("key.{name}"));
        let path = chosen.cloned().unwrap_or_else(beside);
        if path.symlink_metadata().is_ok() {
            bail!("{} exists already: remove it, or name another file with --out", path.display());
        }
        Ok(path)
    }
}

/// The place of a file system of a cluster.
pub(super) fn place(cluster: &ClusterFile, name: &str) -> Result<CommandTarget> {
    let servers = cluster.server.iter().map(|server| server.addresses()).collect::<Result<Vec<_>>>()?;
    let servers = servers.into_iter().flatten().filter(|at| !matches!(at, Address::Local(_))).collect();
    let address = ShoalAddress { servers, name: name.to_owned(), path: "/".to_owned() };
    Ok(CommandTarget { address, key: cluster.path(&cluster.key) })
}

/// A name that keys may have.
fn check(key: &MountKey) -> Result<()> {
    if RESERVED.contains(&key.name.0.as_str()) || key.check().is_err() {
        bail!(
            "`{}` cannot be a key's name: it is 1 to {} letters, digits, `.`, `_` and `-`, begins with no dot, and is none of {}, {}",
            key.name.0.escape_debug(),
            limits::KEY_NAME_BYTES_MAX,
            MountKey::FIRST_NAME,
            RESERVED.join(", ")
        );
    }
    Ok(())
}

/// `shoal key add`.
pub fn add(args: &AddKey) -> Result<ExitCode> {
    let cluster = ClusterFile::load(&args.of.config)?;
    let mut limits = KeyLimits::default();
    limits.set(KeyLimits::READ_ONLY, args.read_only);
    limits.set(KeyLimits::SQUASH_ROOT, args.squash_root);
    let id = MountKeyId(u64::from_le_bytes(random::<8>()?) | 1);
    let key = MountKey { id, name: args.of.name.as_str().into(), limits, revoked: false };
    check(&key)?;
    let owned = Owned::of(&cluster, args.of.file_system.as_deref())?;
    let path = owned.path(&args.of.name, args.of.out.as_ref())?;
    let told = tell(&place(&cluster, &owned.collection.name)?, vec![key.clone()])?;
    let name = &key.name;
    owned.file(&key)?.save(&path).with_context(|| {
        format!("the servers know key `{name}`, and its file could not be written: `shoal key export {name}`")
    })?;
    show(&key, &path, args.of.json, &told.silent)
}

/// `shoal key export`.
pub fn export(args: &ExportKey) -> Result<ExitCode> {
    let cluster = ClusterFile::load(&args.of.config)?;
    let owned = Owned::of(&cluster, args.of.file_system.as_deref())?;
    let map = map_of(&place(&cluster, &owned.collection.name)?)?;
    let valid = map.keys.iter().find(|key| !key.revoked && key.name.0 == args.of.name);
    let key = valid.with_context(|| no_such_key(&args.of.name, &map))?;
    let path = owned.path(&args.of.name, args.of.out.as_ref())?;
    owned.file(key)?.save(&path)?;
    show(key, &path, args.of.json, &[])
}

fn show(key: &MountKey, path: &Path, as_json: bool, silent: &[u16]) -> Result<ExitCode> {
    if as_json {
        let (name, id) = (&key.name.0, key.id.to_string());
        let wrote = path.display().to_string();
        out::json_line(
            &json!({ "schema": 1, "name": name, "id": id, "wrote": wrote, "unreachable": silent }),
        )?;
        return Ok(ExitCode::SUCCESS);
    }
    out::line(format!("wrote {}", path.display()))?;
    if !silent.is_empty() {
        out::line(format!("  server {} did not answer, and learns of it from the others", list(silent)))?;
    }
    out::line(format!("  next: copy it to the clients (mode 0600): shoal mount … --key {}", path.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// `shoal key revoke`.
pub fn revoke(args: &RevokeKey) -> Result<ExitCode> {
    let place = CommandTarget::find(&args.place, args.key.key.as_deref())?;
    let map = map_of(&place)?;
    let first = MountKey {
        id: MountKeyId::FIRST,
        name: MountKey::FIRST_NAME.into(),
        limits: KeyLimits::default(),
        revoked: true,
    };
    let mut keys: Vec<MountKey> = map.keys.iter().filter(|key| key.name.0 == args.name).cloned().collect();
    if args.name == MountKey::FIRST_NAME {
        keys = vec![first];
    }
    if keys.is_empty() {
        bail!(no_such_key(&args.name, &map));
    }
    // Those that are revoked too: a server may have been away when they were.
    keys.iter_mut().for_each(|key| key.revoked = true);
    let told = tell(&place, keys)?;
    let silent = &told.silent;
    let names = valid_names(&told.map);
    if args.json {
        let (told, name) = (&told.told, &args.name);
        out::json_line(
            &json!({ "schema": 1, "revoked": name, "informed": told, "unreachable": silent, "left": names }),
        )?;
    } else {
        out::line(format!("key `{}` is revoked: its sessions end within 10 seconds", args.name))?;
        if names.is_empty() {
            out::line("  no mount key lets a client in any more: `shoal key add` makes one")?;
        }
        if !silent.is_empty() {
            let ids = list(silent);
            out::line(format!(
                "  server {ids} did not answer: it lets the key in until it has met another server; run this again once it answers"
            ))?;
        }
    }
    Ok(if silent.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Names of the keys that are let in.
fn valid_names(map: &ClusterMap) -> Vec<String> {
    let has_first = map.mount_key(MountKeyId::FIRST).is_none();
    let first = has_first.then(|| MountKey::FIRST_NAME.to_owned());
    first
        .into_iter()
        .chain(map.keys.iter().filter(|key| !key.revoked).map(|key| key.name.0.clone()))
        .collect()
}

fn no_such_key(name: &str, map: &ClusterMap) -> String {
    format!("there is no mount key `{}`: there is {}", name.escape_debug(), valid_names(map).join(", "))
}

/// The map with the keys that any server knows that answers.
pub(super) fn map_of(place: &CommandTarget) -> Result<ClusterMap> {
    connect::with_admin_within(place, connect::IMPATIENT, |_, client: Client| async move {
        let known = client.map();
        let asked = join_all(known.servers.iter().map(|info| client.map_of(info.id))).await;
        let maps = asked.into_iter().filter_map(Result::ok);
        Ok(maps.fold(ClusterMap::clone(&known), |map, told| map.succeeded_by(&told)))
    })
}

/// The servers that took a change of keys, and those that did not answer.
struct Informed {
    map: ClusterMap,
    told: Vec<u16>,
    silent: Vec<u16>,
}

/// Send the keys to all servers. The first that answers decides whether they may be as they are; the others
/// receive them at once.
fn tell(place: &CommandTarget, keys: Vec<MountKey>) -> Result<Informed> {
    connect::with_admin_within(place, connect::IMPATIENT, |_, client: Client| async move {
        let servers: Vec<ServerId> = client.map().servers.iter().map(|info| info.id).collect();
        let (mut told, mut silent, mut map) = (Vec::new(), Vec::new(), None);
        let mut left = servers.into_iter();
        for server in left.by_ref() {
            match tell_one(&client, server, &keys).await {
                Ok(known) => {
                    (map, told) = (Some(known), vec![server.0]);
                    break;
                }
                Err(error) if is_silence(&error) => silent.push(server.0),
                Err(error) => return Err(words(&error, &keys)),
            }
        }
        let map = map.context("no server answers")?;
        let tries = left.map(async |server| (server, tell_one(&client, server, &keys).await));
        for (server, tried) in join_all(tries).await {
            match tried {
                Ok(_) => told.push(server.0),
                Err(error) if is_silence(&error) => silent.push(server.0),
                Err(error) => return Err(words(&error, &keys)),
            }
        }
        Ok(Informed { map, told, silent })
    })
}

async fn tell_one(client: &Client, server: ServerId, keys: &[MountKey]) -> Result<ClusterMap, Error> {
    let mut map = ClusterMap::clone(&client.map());
    for key in keys {
        map = client.set_key(server, key.clone()).await?;
    }
    Ok(map)
}

fn is_silence(error: &Error) -> bool {
    matches!(error.status, Status::Unavailable | Status::TimedOut | Status::Silent)
}

/// The remedy where a server refused a key.
fn words(error: &Error, keys: &[MountKey]) -> anyhow::Error {
    let name = keys.first().map_or("", |key| key.name.0.as_str());
    match error.status {
        Status::Exists => {
            anyhow!("there is a mount key `{name}` already: choose another name, or revoke it first")
        }
        Status::OverLimit => anyhow!(
            "there are {} mount keys, revoked ones included, and there may be no more",
            limits::MOUNT_KEYS_MAX
        ),
        Status::NotSupported => anyhow!(
            "the servers have no keys of their own for this: stop them and run `shoal key split` (it gives servers and administrators \
             theirs), then add or revoke mount keys"
        ),
        Status::BadVersion => anyhow!(
            "another server cannot read named keys yet, and mounts of its version would be refused: update all servers and clients, \
             then add or revoke mount keys"
        ),
        _ => anyhow!(error.clone()),
    }
}

/// The mount keys of a file system for people, with their fingerprints: a line each.
pub(super) fn lines(map: &ClusterMap, keys: &Keys) -> Vec<String> {
    let all = map.keys.iter().map(|key| {
        let read_only = if key.limits.contains(KeyLimits::READ_ONLY) { "  read-only" } else { "" };
        let squashed = if key.limits.contains(KeyLimits::SQUASH_ROOT) { "  squash-root" } else { "" };
        let revoked = if key.revoked { "  REVOKED" } else { "" };
        let print = keys.named(&map.fs_id, key.id).fingerprint();
        format!("mount {:20} {print}{read_only}{squashed}{revoked}", key.name)
    });
    all.collect()
}

/// The same for programs.
pub(super) fn values(map: &ClusterMap, keys: &Keys) -> Vec<Value> {
    let all = map.keys.iter().map(|key| {
        json!({
            "file_system": map.name.0,
            "name": key.name.0,
            "id": key.id.to_string(),
            "read_only": key.limits.contains(KeyLimits::READ_ONLY),
            "squash_root": key.limits.contains(KeyLimits::SQUASH_ROOT),
            "revoked": key.revoked,
            "fingerprint": keys.named(&map.fs_id, key.id).fingerprint(),
        })
    });
    all.collect()
}

fn list(ids: &[u16]) -> String {
    ids.iter().map(u16::to_string).collect::<Vec<_>>().join(", ")
}
