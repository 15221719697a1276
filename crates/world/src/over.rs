//! Which file system lies over a directory of the host, and how it is reached.
//!
//! `shoal run` writes a list of [`Over`]s into an environment variable, and the library in the program reads
//! the list: one line for each directory, with tabs between the fields. **The choice of a transform is made
//! here, and nowhere else.**

use crate::{Tree, plant};
use anyhow::{Context as _, Result, anyhow, bail};
use shoal_client::Options;
use shoal_config::address::{CommandTarget, ShoalAddress};
use shoal_env::real::Runtime;
use shoal_transform::group::{Meeting, Named};
use shoal_transform::{
    ComposedOptions, ContainerOptions, ContainerSettings, FederationOptions, FollowedOptions, Wishes,
    federation,
};
use shoal_vfs::{Connect as _, LocalOptions};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

/// Descriptors that a local directory keeps open in a program that is not ours, at most.
const DESCRIPTORS_MAX: usize = 64;
/// Time for each request to a server.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The words for a file system over a directory.
pub const OFFERED: &str =
    "container, composed, plain, or an address (shoal://HOST:PORT/NAME, s3://BUCKET/PREFIX)";

/// The contents of a directory of the host, as programs see them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Shown {
    /// Its own files, passed through.
    Plain,
    /// Files that are containers in it, with the words of their settings (`index=parallel`).
    Container(String),
    /// Files that are containers in it and in other directories, with the words that name those
    /// (`backends=DIR2:DIR3`), or none: those that it knows; and of their settings.
    Federation(String),
    /// Files that share one physical file in it, with the words of its options (`block=4M,files=2`).
    Composed(String),
    /// Files that are containers in a bucket (`s3://BUCKET/PREFIX`), with the words of their settings.
    Bucket {
        /// The address.
        address: String,
        /// The settings.
        words: String,
    },
    /// A ShoalFS at an address, with a key file.
    Shoal {
        /// The address.
        address: String,
        /// The key file.
        key: PathBuf,
    },
}

/// The processes of one job, of which this is one, as its environment names them.
#[derive(Clone, Debug, Default)]
pub struct ProcessGroup {
    named: Option<Named>,
    says: Option<fn(&str)>,
}

impl ProcessGroup {
    /// From variables of the environment. `host`: the name of this machine.
    ///
    /// # Errors
    /// A value that is none.
    pub fn of_environment(
        variable: impl Fn(&str) -> Option<String>,
        host: Option<&str>,
    ) -> Result<ProcessGroup> {
        let named = Meeting::of_environment(variable, host);
        let of = |named| ProcessGroup { named, says: None };
        named.map(of).map_err(|why| anyhow!("the group of this process: {why}"))
    }

    /// The same, and this says in words that it failed.
    pub fn saying(self, says: fn(&str)) -> ProcessGroup {
        ProcessGroup { says: Some(says), ..self }
    }

    fn containers<C>(&self, over: C, settings: &ContainerSettings) -> ContainerOptions<C> {
        let options = ContainerOptions::new(over).with(settings, self.named.as_ref());
        // A process may end after any call, and nothing runs between two.
        ContainerOptions { says: self.says.unwrap_or(options.says), awaits_deletions: true, ..options }
    }
}

/// A directory, and the file system over it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Over {
    /// The directory, absolute and without symbolic links.
    pub dir: PathBuf,
    /// The same as the user gave it, absolute: programs use this name too.
    pub given: PathBuf,
    /// The contents.
    pub shown: Shown,
}

impl Over {
    /// Read `DIR=container[,backends=DIR2:DIR3][,index=DESIGN]`, `DIR=composed[,WISHES]`, `DIR=plain`,
    /// `DIR=s3://BUCKET/PREFIX[,index=DESIGN]` or `DIR=shoal://…`.
    ///
    /// # Errors
    /// The directory is missing, or no directory; the transform is unknown; there is no key.
    pub fn parse(text: &str, key: Option<&Path>) -> Result<Over> {
        let Some((dir, shown)) = text.split_once('=') else {
            bail!("`{text}` names no file system: write DIR={{{OFFERED}}}");
        };
        let dir = Path::new(dir);
        if !dir.is_absolute() {
            let absolute = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
            bail!(
                "`{}` is relative, and programs change their directory: write {}",
                dir.display(),
                absolute.display()
            );
        }
        let whole =
            dir.canonicalize().with_context(|| format!("{} cannot be used: make it first", dir.display()))?;
        if !whole.is_dir() {
            bail!("{} is not a directory: name one", dir.display());
        }
        if whole == Path::new("/") {
            bail!("a file system cannot lie over /: name a directory");
        }
        if [&whole, dir].iter().any(|path| path.to_str().is_none_or(|text| text.contains(['\t', '\n']))) {
            bail!("the path {} has a tab, a line's end or no valid text: name another", dir.display());
        }
        let shown = match shown_of(shown, key)? {
            Shown::Container(words) if federation::is_federated(&whole) => Shown::Federation(words),
            shown => shown,
        };
        Ok(Over { dir: whole, given: dir.to_owned(), shown })
    }

    /// Refuse directories of which one lies in the other.
    ///
    /// # Errors
    /// Which.
    pub fn apart(all: &[Over]) -> Result<()> {
        for (at, one) in all.iter().enumerate() {
            for other in &all[at + 1..] {
                if one.dir.starts_with(&other.dir) || other.dir.starts_with(&one.dir) {
                    bail!(
                        "{} and {} lie in each other: name directories apart",
                        one.dir.display(),
                        other.dir.display()
                    );
                }
            }
        }
        Ok(())
    }

    /// The line of an environment variable.
    pub fn to_line(&self) -> String {
        let (word, key) = match &self.shown {
            Shown::Plain => ("plain", ""),
            Shown::Container(words) => ("container", &words[..]),
            Shown::Federation(words) => ("federation", &words[..]),
            Shown::Composed(wishes) => ("composed", &wishes[..]),
            Shown::Bucket { address, words } => (&address[..], &words[..]),
            Shown::Shoal { address, key } => (&address[..], key.to_str().unwrap_or("")),
        };
        format!("{}\t{}\t{word}\t{key}\n", self.dir.display(), self.given.display())
    }

    /// Read a line; `None`: it is not one of ours.
    pub fn from_line(line: &str) -> Option<Over> {
        let mut fields = line.split('\t');
        let (dir, given, word) = (fields.next()?, fields.next()?, fields.next()?);
        let shown = match word {
            "plain" => Shown::Plain,
            "container" => Shown::Container(fields.next()?.to_owned()),
            "federation" => Shown::Federation(fields.next()?.to_owned()),
            "composed" => Shown::Composed(fields.next()?.to_owned()),
            address if address.starts_with("s3://") => {
                Shown::Bucket { address: address.to_owned(), words: fields.next()?.to_owned() }
            }
            address => Shown::Shoal { address: address.to_owned(), key: fields.next()?.into() },
        };
        dir.starts_with('/').then(|| Over { dir: dir.into(), given: given.into(), shown })
    }

    /// Reach the file system. `group`: the processes that open containers together.
    ///
    /// # Errors
    /// Why it cannot be reached.
    pub fn plant(&self, runtime: &Rc<Runtime>, group: &ProcessGroup) -> Result<Rc<dyn Tree>> {
        let local = LocalOptions {
            inline: true,
            descriptors: Some(DESCRIPTORS_MAX),
            ..LocalOptions::new(self.dir.clone())
        };
        Ok(match &self.shown {
            Shown::Plain => plant(runtime, local)?,
            Shown::Container(words) => {
                let settings = settings_of(words)?;
                plant(runtime, group.containers(local, &settings))?
            }
            Shown::Federation(words) => {
                let settings = settings_of(words)?;
                let over = FederationOptions::new(local, settings.backends.clone());
                plant(runtime, group.containers(over, &settings))?
            }
            Shown::Bucket { address, words } => plant_bucket(runtime, group, address, words)?,
            Shown::Composed(words) => {
                let wishes = Wishes { publishes_writes: true, ..wishes_of(words)? };
                plant(runtime, ComposedOptions { over: local, wishes })?
            }
            Shown::Shoal { address, key } => {
                // A process may end without closing anything.
                let wishes = Wishes { publishes_writes: true, ..Wishes::default() };
                plant(runtime, FollowedOptions { over: client(address, key)?, wishes })?
            }
        })
    }

    /// Whether written bytes outlive the process that did not close their file.
    pub fn outlives_its_process(&self) -> bool {
        !matches!(self.shown, Shown::Bucket { .. })
    }

    /// Whether one process sees at once what another one writes through a file that both have open.
    pub fn is_seen_at_once(&self) -> bool {
        matches!(self.shown, Shown::Plain | Shown::Shoal { .. })
    }
}

fn shown_of(text: &str, key: Option<&Path>) -> Result<Shown> {
    match text {
        "plain" => Ok(Shown::Plain),
        words if words == "container" || words.starts_with("container,") => {
            let words = words.strip_prefix("container").unwrap_or("").trim_start_matches(',');
            if words.contains(['\t', '\n']) {
                bail!("the name of a backend has a tab or a line's end: name another");
            }
            let is_alone = settings_of(words)?.backends.is_empty();
            let (one, several) = (Shown::Container, Shown::Federation);
            Ok(if is_alone { one(words.to_owned()) } else { several(words.to_owned()) })
        }
        address if address.starts_with("shoal://") => {
            let place = CommandTarget::find(address, key)?;
            if place.address.path != "/" {
                bail!("only a whole file system lies over a directory: leave out `{}`", place.address.path);
            }
            place.open_key()?;
            let key = place.key.canonicalize().with_context(|| format!("the key {}", place.key.display()))?;
            Ok(Shown::Shoal { address: place.address.to_string(), key })
        }
        address if address.starts_with("s3://") => bucket_of(address),
        words if words == "composed" || words.starts_with("composed,") => {
            let wishes = words.strip_prefix("composed").unwrap_or("").trim_start_matches(',');
            wishes_of(wishes).map(|_| Shown::Composed(wishes.to_owned()))
        }
        other => bail!("unknown transform `{other}`; there are: {OFFERED}"),
    }
}

/// A bucket's containers: `s3://BUCKET/PREFIX[,SETTINGS]`.
#[cfg(feature = "s3")]
fn bucket_of(text: &str) -> Result<Shown> {
    let (address, words) = text.split_once(',').unwrap_or((text, ""));
    let place = in_bucket(address)?;
    if !settings_of(words)?.backends.is_empty() {
        bail!("`backends` spreads containers over directories, and a bucket needs none: leave it out");
    }
    if [address, words].iter().any(|text| text.contains(['\t', '\n'])) {
        bail!("`{text}` has a tab or a line's end: leave it out");
    }
    Ok(Shown::Bucket { address: place.to_string(), words: words.to_owned() })
}

#[cfg(feature = "s3")]
fn in_bucket(address: &str) -> Result<shoal_objects::s3::S3Place> {
    let place = shoal_objects::s3::S3Place::parse(address);
    place
        .with_context(|| format!("`{address}` is no bucket: write s3://BUCKET/PREFIX"))?
        .map_err(|why| anyhow!(why))
}

#[cfg(feature = "s3")]
fn plant_bucket(
    runtime: &Rc<Runtime>,
    group: &ProcessGroup,
    address: &str,
    words: &str,
) -> Result<Rc<dyn Tree>> {
    use shoal_objects::{ObjectsOptions, s3::S3};
    let (place, settings) = (in_bucket(address)?, settings_of(words)?);
    let over = ObjectsOptions::new(S3::new(place.bucket), place.prefix);
    Ok(plant(runtime, group.containers(over, &settings))?)
}

#[cfg(not(feature = "s3"))]
fn bucket_of(text: &str) -> Result<Shown> {
    bail!("this program was built without S3, and cannot use `{text}`: build it with the feature `s3`");
}

#[cfg(not(feature = "s3"))]
fn plant_bucket(_: &Rc<Runtime>, _: &ProcessGroup, address: &str, _: &str) -> Result<Rc<dyn Tree>> {
    bail!("this library was built without S3, and cannot use `{address}`: build it with the feature `s3`");
}

/// The settings of containers in these words.
///
/// # Errors
/// Other words, or a relative path.
pub fn settings_of(words: &str) -> Result<ContainerSettings> {
    ContainerSettings::parse(words).map_err(|why| anyhow!("container: {why}"))
}

fn wishes_of(words: &str) -> Result<Wishes> {
    let wishes = Wishes::parse(words).map_err(|why| anyhow!("composed: {why}"))?;
    if wishes.buffers_blocks {
        bail!(
            "`buffer=block` is for a mount: a program that ends gives its library no moment to write what is buffered; \
             leave it out"
        );
    }
    Ok(wishes)
}

/// How a program that has no kernel between itself and a ShoalFS reaches it.
///
/// # Errors
/// The address is none, or the key cannot be read.
pub fn client(address: &str, key: &Path) -> Result<Options> {
    let place = CommandTarget { address: address.parse::<ShoalAddress>()?, key: key.to_owned() };
    let (key, file_system) = place.open_key()?;
    let servers = place.address.servers.clone();
    let options = Options::new(servers, key.secret()?, file_system.fs_id()?, file_system.collection());
    let options = Options { key_id: key.id()?, read_only: key.read_only, ..options };
    let mut options = Options { timeout: TIMEOUT, ..options };
    // Programs that work together are processes, each with a client: none may keep names of its own.
    options.under_a_kernel(false);
    Ok(options)
}
