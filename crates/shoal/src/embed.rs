//! A mount in this process: the fuse crate's mount, and the note that lets other commands find its file
//! system.

use crate::address::{CommandTarget, MountNote, ShoalAddress};
use crate::cli::{MountOptions, Transform};
use crate::mount_options;
use crate::stop::Event;
use anyhow::{Context as _, Result, anyhow};
use shoal_client::Client;
use shoal_env::Address;
use shoal_fuse::{Mount, MountError, MountHandle};
use shoal_proto::ClusterMap;
use shoal_transform::{
    ComposedOptions, ContainerOptions, FederationOptions, Followed, FollowedOptions, Wishes, federation,
};
use shoal_vfs::{Connect, LocalOptions, Vfs};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How the directories of a ShoalFS are shown.
pub enum ShownAs {
    /// By their layouts.
    Usual,
    /// As they lie on the servers.
    Raw,
    /// All by one layout, that is none of theirs.
    Transformed(Transform),
}

/// A mount in use is waited for so long at a stop; then it is taken away from its users.
const STOP_GRACE: Duration = Duration::from_secs(3);

/// A mount that this process serves.
pub struct Embedded {
    handle: Box<dyn Mounted>,
    /// Dropped, it ends the thread that keeps the note.
    follow: Option<Sender<()>>,
}

/// A mount of any file system.
trait Mounted {
    fn mountpoint(&self) -> &Path;
    fn panicked(&self) -> Arc<OnceLock<String>>;
    fn stop(self: Box<Self>, grace: Duration) -> Result<(), MountError>;
}

impl<V: Vfs> Mounted for MountHandle<V> {
    fn mountpoint(&self) -> &Path {
        MountHandle::mountpoint(self)
    }

    fn panicked(&self) -> Arc<OnceLock<String>> {
        MountHandle::panicked(self)
    }

    fn stop(self: Box<Self>, grace: Duration) -> Result<(), MountError> {
        MountHandle::stop(*self, grace)
    }
}

/// The options of a mount, as the command line gives them.
fn customary(options: &MountOptions, name: String) -> shoal_fuse::MountOptions {
    let usual = shoal_fuse::MountOptions::default();
    shoal_fuse::MountOptions {
        name,
        cache: Duration::from_millis(options.attr_timeout),
        stat_ahead: !options.no_stat_ahead,
        local_locks: options.local_locks,
        direct: options.direct,
        threads: options.threads,
        allow_other: usual.allow_other || options.allow_other,
        ..usual
    }
}

/// How often the note of a mount is held against its map.
const NOTE_EVERY: Duration = Duration::from_secs(10);

/// Keep the note of a mount: where the servers are that other commands are to ask, as they move and more are
/// added.
fn follow_map(
    mut note: MountNote,
    at: PathBuf,
    mut address: ShoalAddress,
    map: impl Fn(Duration) -> Option<ClusterMap> + Send + 'static,
) -> std::io::Result<Sender<()>> {
    let (ends, end) = std::sync::mpsc::channel();
    let follow = move || {
        let (mut epoch, mut pause) = (None, Duration::ZERO);
        while end.recv_timeout(std::mem::replace(&mut pause, NOTE_EVERY)) == Err(RecvTimeoutError::Timeout) {
            let Some(map) = map(NOTE_EVERY).filter(|map| Some(map.epoch) != epoch) else { continue };
            let is_first = epoch.replace(map.epoch).is_none();
            let servers = map.servers.iter().flat_map(|info| info.addresses.iter());
            let servers: Vec<Address> =
                servers.filter_map(|at| at.0.parse().ok()).filter(Address::is_tcp).collect();
            // The given address is valid as long as one of its servers is there.
            let is_good = is_first && address.servers.iter().any(|server| servers.contains(server));
            if servers.is_empty() {
                continue;
            }
            note.servers = servers.iter().map(Address::to_string).collect();
            if !is_good {
                address.servers = servers;
                note.address = address.to_string();
            }
            if let Err(error) = note.leave(&at) {
                tracing::warn!(
                    "other commands may not find the file system mounted at {}: {error:#}",
                    at.display()
                );
            }
        }
    };
    std::thread::Builder::new().name("mount-note".into()).spawn(follow)?;
    Ok(ends)
}

/// The end of a mount by another hand is an event.
fn watch(ended: impl Future<Output = ()> + Send + 'static, events: &Sender<Event>) -> Result<()> {
    let events = events.clone();
    let watch = move || {
        shoal_env::real::run("mount-end", |_| ended);
        let _ = events.send(Event::Unmounted);
    };
    std::thread::Builder::new().name("mount-end".into()).spawn(watch).context("cannot watch the mount")?;
    Ok(())
}

/// Neither of a directory and its mount point may lie in the other: a call would wait for itself.
fn apart(dir: &Path, at: &Path) -> Result<()> {
    let whole = std::fs::canonicalize(dir).with_context(|| format!("cannot mount {}", dir.display()))?;
    let point = std::path::absolute(at)?;
    let point = std::fs::canonicalize(&point).unwrap_or(point);
    if point.starts_with(&whole) || whole.starts_with(&point) {
        return Err(anyhow!(
            "cannot mount {} at {}: one lies in the other, so the mount would wait for itself; mount it elsewhere",
            dir.display(),
            at.display()
        ));
    }
    Ok(())
}

impl Embedded {
    /// Mount a place; its end by another hand is an event.
    pub fn start(
        place: &CommandTarget,
        shown: ShownAs,
        at: &Path,
        options: &MountOptions,
        events: &Sender<Event>,
    ) -> Result<Embedded> {
        if place.address.path != "/" {
            return Err(anyhow!(
                "only a whole file system is mounted: leave out `{}` of the address",
                place.address.path
            ));
        }
        let mut how = customary(options, place.address.to_string());
        let said = mount_options::apply(&options.mount_options, &mut how)?;
        let mut client = crate::connect::options(place)?;
        client.timeout = said.timeout.unwrap_or(options.limit.span());
        let transform = match shown {
            ShownAs::Usual => {
                let from = FollowedOptions { over: client, wishes: Wishes::default() };
                let map = |followed: &Followed<Client>| ClusterMap::clone(&followed.over().map());
                return Embedded::placed(place, from, at, &how, events, map);
            }
            ShownAs::Raw => {
                let map = |client: &Client| ClusterMap::clone(&client.map());
                return Embedded::placed(place, client, at, &how, events, map);
            }
            ShownAs::Transformed(transform) => transform,
        };
        match transform {
            Transform::Container(settings) if !settings.backends.is_empty() => Err(anyhow!(
                "`backends` spreads containers over directories, and a ShoalFS spreads its files itself: leave \
                     it out"
            )),
            Transform::Container(settings) => {
                let name = place.address.to_string();
                let containers = ContainerOptions::new(client).with(&settings, None);
                Embedded::over(containers, &name, at, &how, events)
            }
            Transform::Composed(wishes) => {
                let name = place.address.to_string();
                Embedded::over(ComposedOptions { over: client, wishes }, &name, at, &how, events)
            }
        }
    }

    /// Mount a place, and leave a note of where its servers are, by which other commands find it. `map`: the
    /// servers, as its file system knows them.
    fn placed<C: Connect>(
        place: &CommandTarget,
        from: C,
        at: &Path,
        how: &shoal_fuse::MountOptions,
        events: &Sender<Event>,
        map: impl Fn(&C::Vfs) -> ClusterMap + Clone + Send + 'static,
    ) -> Result<Embedded> {
        let handle = Mount::start(from, at, how).map_err(|error| {
            let remedy = match error {
                MountError::Client(_) => "; is it served (`shoal up`, `shoal serve`)?",
                _ => "",
            };
            let words = format!("cannot mount {} at {}{remedy}", place.address, at.display());
            anyhow::Error::new(error).context(words)
        })?;
        let note = MountNote {
            address: place.address.to_string(),
            key: std::path::absolute(&place.key)?,
            pid: std::process::id(),
            servers: Vec::new(),
        };
        note.leave(handle.mountpoint())?;
        let ask = handle.asker();
        let map = move |most| ask(most, map.clone());
        let follow = follow_map(note, handle.mountpoint().to_path_buf(), place.address.clone(), map);
        watch(handle.ended(), events)?;
        let follow = follow.context("cannot keep the mount's note")?;
        Ok(Embedded { handle: Box::new(handle), follow: Some(follow) })
    }

    /// Mount a directory of a mounted file system.
    pub fn local(
        dir: &Path,
        transform: Option<Transform>,
        at: &Path,
        options: &MountOptions,
        events: &Sender<Event>,
    ) -> Result<Embedded> {
        let mut how = customary(options, dir.display().to_string());
        let said = mount_options::apply(&options.mount_options, &mut how)?;
        apart(dir, at)?;
        let mut local = LocalOptions::new(dir);
        local.timeout = said.timeout.unwrap_or(options.limit.span());
        let name = dir.display().to_string();
        match transform {
            None => Embedded::over(local, &name, at, &how, events),
            Some(Transform::Container(settings))
                if !settings.backends.is_empty() || federation::is_federated(dir) =>
            {
                let over = FederationOptions::new(local, settings.backends.clone());
                Embedded::over(ContainerOptions::new(over).with(&settings, None), &name, at, &how, events)
            }
            Some(Transform::Container(settings)) => {
                Embedded::over(ContainerOptions::new(local).with(&settings, None), &name, at, &how, events)
            }
            Some(Transform::Composed(wishes)) => {
                Embedded::over(ComposedOptions { over: local, wishes }, &name, at, &how, events)
            }
        }
    }

    /// Mount a bucket of an object store.
    #[cfg(feature = "s3")]
    pub fn bucket(
        address: &str,
        transform: Option<Transform>,
        at: &Path,
        options: &MountOptions,
        events: &Sender<Event>,
    ) -> Result<Embedded> {
        use shoal_objects::{ObjectsOptions, s3::S3, s3::S3Place};
        let place = S3Place::parse(address).context("it is no bucket")?.map_err(|why| anyhow!(why))?;
        let mut how = customary(options, place.to_string());
        let said = mount_options::apply(&options.mount_options, &mut how)?;
        let settings = match transform {
            Some(Transform::Container(settings)) if settings.backends.is_empty() => settings,
            Some(Transform::Container(_)) => {
                return Err(anyhow!("`backends` spreads containers over directories: leave it out"));
            }
            _ => {
                return Err(anyhow!(
                    "files over an object store grow at their end only, so a bucket is mounted as containers: add \
                     `--transform container`"
                ));
            }
        };
        let mut over = ObjectsOptions::new(S3::new(place.bucket.clone()), place.prefix.clone());
        over.timeout = said.timeout.unwrap_or(options.limit.span());
        Embedded::over(
            ContainerOptions::new(over).with(&settings, None),
            &place.to_string(),
            at,
            &how,
            events,
        )
    }

    /// Mount a bucket of an object store.
    #[cfg(not(feature = "s3"))]
    pub fn bucket(
        address: &str,
        _: Option<Transform>,
        _: &Path,
        _: &MountOptions,
        _: &Sender<Event>,
    ) -> Result<Embedded> {
        Err(anyhow!(
            "this program was built without S3, and cannot mount {address}: build it with the feature `s3`"
        ))
    }

    fn over<C: Connect>(
        from: C,
        name: &str,
        at: &Path,
        how: &shoal_fuse::MountOptions,
        events: &Sender<Event>,
    ) -> Result<Embedded> {
        let mounted = Mount::start(from, at, how);
        let handle = mounted.with_context(|| format!("cannot mount {name} at {}", at.display()))?;
        watch(handle.ended(), events)?;
        Ok(Embedded { handle: Box::new(handle), follow: None })
    }

    /// Where.
    pub fn mountpoint(&self) -> PathBuf {
        self.handle.mountpoint().to_path_buf()
    }

    /// Unmount.
    pub fn stop(self) -> Result<()> {
        let at = self.mountpoint();
        drop(self.follow);
        MountNote::remove(&at);
        let panicked = self.handle.panicked();
        self.handle.stop(STOP_GRACE).with_context(|| format!("cannot unmount {}", at.display()))?;
        match panicked.get() {
            None => Ok(()),
            Some(thread) => Err(anyhow!(
                "the mount at {} is dead ({thread}) by {}; this is a bug, and it can be mounted again",
                at.display(),
                crate::panics::last()
            )),
        }
    }
}
