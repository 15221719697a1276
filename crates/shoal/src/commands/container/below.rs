//! The place of a container: below a directory, or in a bucket; and its file system there.

use anyhow::{Context as _, Result, anyhow};
use shoal_env::real;
use shoal_proto::{Handle, Kind, Name};
use shoal_transform::container::tools::{Allowed, Recovered};
use shoal_transform::federation::{self, Federation};
use shoal_transform::{Container, ContainerOptions, Federated, FederationOptions};
use shoal_vfs::{Connect, Local, LocalOptions, Vfs};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Do work with the containers of a path, and the object that it leads to. The work is compiled for each kind
/// of file system below.
macro_rules! with_below {
    ($path:expr, async move |$container:ident, $found:ident| $work:block) => {
        with_below!(@ $path, [move], $container, $found, $work)
    };
    ($path:expr, async |$container:ident, $found:ident| $work:block) => {
        with_below!(@ $path, [], $container, $found, $work)
    };
    (@ $path:expr, [$($by:ident)?], $container:ident, $found:ident, $work:block) => {
        match $crate::commands::container::below::Place::find($path) {
            Ok($crate::commands::container::below::Place::Directory(place)) => {
                place.with(async $($by)? |$container, $found| $work)
            }
            #[cfg(feature = "s3")]
            Ok($crate::commands::container::below::Place::Bucket(place)) => {
                place.with(async $($by)? |$container, $found| $work)
            }
            Err(error) => Err(error),
        }
    };
}

/// Containers, over one directory or several.
type Mounted = Container<Federated<Local>>;

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
    Directory(InDirectory),
    /// In a bucket.
    #[cfg(feature = "s3")]
    Bucket(InBucket),
}

impl Place {
    /// Find the place of a path, or of an address `s3://BUCKET/PREFIX/PATH`.
    ///
    /// # Errors
    /// It leads nowhere, or to no containers.
    pub fn find(path: &Path) -> Result<Place> {
        match path.to_str() {
            #[cfg(feature = "s3")]
            Some(text) if text.starts_with("s3://") => InBucket::find(text).map(Place::Bucket),
            #[cfg(not(feature = "s3"))]
            Some(text) if text.starts_with("s3://") => Err(anyhow!("this program was built without S3")),
            _ => InDirectory::find(path).map(Place::Directory),
        }
    }
}

/// A path below a directory of containers.
pub struct InDirectory {
    root: PathBuf,
    path: PathBuf,
}

impl InDirectory {
    fn find(path: &Path) -> Result<InDirectory> {
        let whole = whole(path).with_context(|| format!("cannot look at {}", path.display()))?;
        let root = whole.ancestors().find(|above| above.join(".shoal").is_dir()).ok_or_else(|| {
            anyhow!(
                "no directory above {} has containers (a `.shoal` folder): give a path in the directory below the mount, \
                 not in the mount",
                path.display()
            )
        })?;
        let inner = whole.strip_prefix(root).context("a path lies below its ancestor")?;
        Ok(InDirectory { path: inner.to_owned(), root: root.to_owned() })
    }

    /// With its containers, and the object of the path.
    pub fn with<T: Send + 'static>(
        self,
        work: impl AsyncFnOnce(&Mounted, &Found) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        real::run("container", move |env| async move {
            let over = FederationOptions::new(LocalOptions::new(&self.root), Vec::new());
            let options = ContainerOptions::new(FederationOptions { may_be_alone: true, ..over });
            let container = options.connect(env).await?;
            let found = Found::walk(&container, &self.path).await?;
            let done = work(&container, &found).await;
            container.close().await;
            done
        })
    }
}

/// A path in a bucket.
#[cfg(feature = "s3")]
pub struct InBucket(shoal_objects::s3::S3Place);

#[cfg(feature = "s3")]
impl InBucket {
    fn find(text: &str) -> Result<InBucket> {
        let place = shoal_objects::s3::S3Place::parse(text).context("it is no bucket")?;
        place.map(InBucket).map_err(|why| anyhow!(why))
    }

    /// With its containers, and the object of the path.
    pub fn with<T: Send + 'static>(
        self,
        work: impl AsyncFnOnce(&Container<shoal_objects::Objects>, &Found) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        use shoal_objects::{ObjectsOptions, s3::S3};
        real::run("container", move |env| async move {
            let (root, path) = self.0.find(&env).await.map_err(|why| anyhow!(why))?;
            let over = ObjectsOptions::new(S3::new(root.bucket), root.prefix);
            let container = ContainerOptions::new(over).connect(env).await?;
            let found = Found::walk(&container, Path::new(&path)).await?;
            let done = work(&container, &found).await;
            container.close().await;
            done
        })
    }
}

/// The object of a path.
pub struct Found {
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
    async fn walk<B: Vfs>(container: &Container<B>, path: &Path) -> Result<Found> {
        let mut found = Found { dir: Handle::ROOT, name: None, object: Handle::ROOT, kind: Kind::Directory };
        for part in path.components() {
            let name = Name::new(part.as_os_str().as_bytes())?;
            let attr = container.lookup(found.object, &name).await?;
            found = Found { dir: found.object, name: Some(name), object: attr.handle, kind: attr.kind };
        }
        Ok(found)
    }
}

/// The names below containers.
pub trait Names {
    /// Look at them all.
    async fn check_names(&self) -> Result<Federation>;

    /// Put in order what killed programs left.
    async fn recover_names(&self, allowed: Allowed, recovered: &mut Recovered) -> Result<()>;
}

impl Names for Federated<Local> {
    async fn check_names(&self) -> Result<Federation> {
        Ok(federation::check(self).await?)
    }

    async fn recover_names(&self, allowed: Allowed, recovered: &mut Recovered) -> Result<()> {
        // A rename under way looks like one that was killed.
        if allowed.ended && self.backends().0.len() > 1 {
            let found = federation::recover(self).await?;
            recovered.deleted += found.removed;
            recovered.named = found.named;
        }
        Ok(())
    }
}

#[cfg(feature = "s3")]
impl Names for shoal_objects::Objects {
    async fn check_names(&self) -> Result<Federation> {
        let checked = self.check().await?;
        let entries = vec![(self.called(), checked.names)];
        Ok(Federation {
            entries,
            leftovers: checked.leftovers,
            damage: checked.damage,
            ..Federation::default()
        })
    }

    async fn recover_names(&self, allowed: Allowed, recovered: &mut Recovered) -> Result<()> {
        let repaired = self.recover(allowed.ended).await?;
        recovered.deleted += repaired.removed;
        recovered.kept += repaired.kept;
        Ok(())
    }
}
