//! The place of a container: below a directory, or in a bucket; and its file system there.

use anyhow::{Context as _, Result, anyhow};
use shoal_env::{Env, real};
use shoal_proto::{Handle, Kind, Name};
use shoal_transform::container::tools::{Allowed, Recovered};
use shoal_transform::federation::{self, Federation};
use shoal_transform::{Container, Federated, FederationOptions};
use shoal_vfs::{AnyVfs, Connect as _, Local, LocalOptions, Vfs as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Containers, over a file system of any kind.
pub type Mounted = Container<AnyVfs>;

/// A path without symbolic links. Over several backends a container may have no name in the first.
fn whole(path: &Path) -> std::io::Result<PathBuf> {
    match std::fs::canonicalize(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else { return Err(error) };
            let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
            let dir = std::fs::canonicalize(dir)?;
            match dir.ancestors().any(federation::is_federated) {
                true => Ok(dir.join(name)),
                false => Err(error),
            }
        }
        whole => whole,
    }
}

/// Where the root of containers is, and the path from there.
pub enum Place {
    /// Below a directory.
    Directory { root: PathBuf, path: PathBuf },
    /// In a bucket: root and path are found in the store.
    #[cfg(feature = "s3")]
    Bucket(shoal_objects::s3::S3Place),
}

impl Place {
    /// Find the place of a path, or of an address `s3://BUCKET/PREFIX/PATH`.
    ///
    /// # Errors
    /// It leads nowhere, or to no containers.
    pub fn find(path: &Path) -> Result<Place> {
        match path.to_str().filter(|text| text.starts_with("s3://")) {
            Some(address) => in_bucket(address),
            None => in_directory(path),
        }
    }

    /// Do work with the containers and the object of the path.
    ///
    /// # Errors
    /// The file system below is not reached; the path leads nowhere; errors of the work.
    pub fn with<T: Send + 'static>(
        self,
        work: impl AsyncFnOnce(&Mounted, &Found) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        real::run("container", move |env| async move {
            let (below, path) = self.reach(&env).await?;
            let container = Container::checked(env, below.any()).await?;
            let found = Found::walk(&container, below, &path).await?;
            let done = work(&container, &found).await;
            container.close().await;
            done
        })
    }

    /// The file system below, and the path from its root.
    async fn reach(self, env: &Env) -> Result<(Below, PathBuf)> {
        match self {
            Place::Directory { root, path } => {
                let over = FederationOptions::new(LocalOptions::new(&root), Vec::new());
                let over = FederationOptions { may_be_alone: true, ..over };
                Ok((Below::Directories(over.connect(env.clone()).await?), path))
            }
            #[cfg(feature = "s3")]
            Place::Bucket(place) => {
                use shoal_objects::{ObjectsOptions, s3::S3};
                let (root, path) = place.find(env).await.map_err(|why| anyhow!(why))?;
                let over = ObjectsOptions::new(S3::new(root.bucket), root.prefix);
                Ok((Below::Bucket(over.connect(env.clone()).await?), path.into()))
            }
        }
    }
}

fn in_directory(path: &Path) -> Result<Place> {
    let whole = whole(path).with_context(|| format!("cannot look at {}", path.display()))?;
    let root = whole.ancestors().find(|above| above.join(".shoal").is_dir()).ok_or_else(|| {
        anyhow!(
            "no directory above {} has containers (a `.shoal` folder): give a path in the directory below the mount, \
             not in the mount",
            path.display()
        )
    })?;
    let inner = whole.strip_prefix(root).context("a path lies below its ancestor")?;
    Ok(Place::Directory { path: inner.to_owned(), root: root.to_owned() })
}

#[cfg(feature = "s3")]
fn in_bucket(address: &str) -> Result<Place> {
    let place = shoal_objects::s3::S3Place::parse(address).context("it is no bucket")?;
    place.map(Place::Bucket).map_err(|why| anyhow!(why))
}

#[cfg(not(feature = "s3"))]
fn in_bucket(address: &str) -> Result<Place> {
    Err(anyhow!(
        "this program was built without S3, and cannot look at {address}: build it with the feature `s3`"
    ))
}

/// The file system below containers. It has facts about its names that [`AnyVfs`] lacks.
pub enum Below {
    /// A directory, or several.
    Directories(Federated<Local>),
    /// A bucket.
    #[cfg(feature = "s3")]
    Bucket(shoal_objects::Objects),
}

impl Below {
    fn any(&self) -> AnyVfs {
        match self {
            Below::Directories(over) => AnyVfs::of(over.clone()),
            #[cfg(feature = "s3")]
            Below::Bucket(over) => AnyVfs::of(over.clone()),
        }
    }

    /// Check all names.
    ///
    /// # Errors
    /// Errors of the file system.
    pub async fn check_names(&self) -> Result<Federation> {
        match self {
            Below::Directories(over) => Ok(federation::check(over).await?),
            #[cfg(feature = "s3")]
            Below::Bucket(over) => {
                let checked = over.check().await?;
                let entries = vec![(over.called(), checked.names)];
                let (leftovers, damage) = (checked.leftovers, checked.damage);
                Ok(Federation { entries, leftovers, damage, ..Federation::default() })
            }
        }
    }

    /// Put in order the names that killed programs left, and add to `recovered`.
    ///
    /// # Errors
    /// Errors of the file system.
    pub async fn recover_names(&self, allowed: Allowed, recovered: &mut Recovered) -> Result<()> {
        match self {
            // A rename under way looks like one that was killed.
            Below::Directories(over) if allowed.ended && over.backends().0.len() > 1 => {
                let found = federation::recover(over).await?;
                recovered.deleted += found.removed;
                recovered.named = found.named;
            }
            Below::Directories(_) => {}
            #[cfg(feature = "s3")]
            Below::Bucket(over) => {
                let repaired = over.recover(allowed.ended).await?;
                recovered.deleted += repaired.removed;
                recovered.kept += repaired.kept;
            }
        }
        Ok(())
    }
}

/// The object of a path.
pub struct Found {
    /// The file system below the containers.
    pub below: Below,
    /// Its directory.
    pub dir: Handle,
    /// Its name; none: the root.
    pub name: Option<Name>,
    /// The object.
    pub object: Handle,
    /// Its kind.
    pub kind: Kind,
}

impl Found {
    async fn walk(container: &Mounted, below: Below, path: &Path) -> Result<Found> {
        let (mut dir, mut name, mut object, mut kind) = (Handle::ROOT, None, Handle::ROOT, Kind::Directory);
        for part in path.components() {
            let next = Name::new(part.as_os_str().as_bytes())?;
            let attr = container.lookup(object, &next).await?;
            (dir, name, object, kind) = (object, Some(next), attr.handle, attr.kind);
        }
        Ok(Found { below, dir, name, object, kind })
    }
}
