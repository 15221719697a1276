//! Which file system lies over a directory of the host, and how it is reached.
//!
//! `shoal run` writes a list of these into an environment variable, and the library in the program reads it:
//! one line each, of fields between tabs. **The choice of a transform is made here, and nowhere else.**

use crate::{Tree, plant};
use anyhow::{Context as _, Result, anyhow, bail};
use shoal_client::Options;
use shoal_config::address::{Place, ShoalAddress};
use shoal_env::real::Runtime;
use shoal_transform::{ComposedOptions, ContainerOptions, FederationOptions, Wishes, federation};
use shoal_vfs::{Connect as _, LocalOptions};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

/// Descriptors that a local directory keeps open in a program that is not ours, at most.
const DESCRIPTORS_MAX: usize = 64;
/// Time for each request to a server.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The words for a file system over a directory.
pub const OFFERED: &str = "container, composed, plain, or an address (shoal://HOST:PORT/NAME)";

/// The contents of a directory of the host, as programs see them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Shown {
    /// Its own files, passed through.
    Plain,
    /// Files that are containers in it.
    Container,
    /// Files that are containers in it and in other directories, with the words that name those
    /// (`backends=DIR2:DIR3`); none: those that it knows.
    Federation(String),
    /// Files that share one physical file in it, with the words of its options (`block=4M,files=2`).
    Composed(String),
    /// A ShoalFS at an address, with a key file.
    Shoal {
        /// The address.
        address: String,
        /// The key file.
        key: PathBuf,
    },
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
    /// Read `DIR=container[,backends=DIR2:DIR3]`, `DIR=composed[,WISHES]`, `DIR=plain` or `DIR=shoal://…`.
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
            Shown::Container if federation::is_federated(&whole) => Shown::Federation(String::new()),
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
            Shown::Container => ("container", ""),
            Shown::Federation(words) => ("federation", &words[..]),
            Shown::Composed(wishes) => ("composed", &wishes[..]),
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
            "container" => Shown::Container,
            "federation" => Shown::Federation(fields.next()?.to_owned()),
            "composed" => Shown::Composed(fields.next()?.to_owned()),
            address => Shown::Shoal { address: address.to_owned(), key: fields.next()?.into() },
        };
        dir.starts_with('/').then(|| Over { dir: dir.into(), given: given.into(), shown })
    }

    /// Reach the file system.
    ///
    /// # Errors
    /// Why it cannot be reached.
    pub fn plant(&self, runtime: &Rc<Runtime>) -> Result<Box<dyn Tree>> {
        let local = LocalOptions {
            inline: true,
            descriptors: Some(DESCRIPTORS_MAX),
            ..LocalOptions::new(self.dir.clone())
        };
        Ok(match &self.shown {
            Shown::Plain => plant(runtime, local)?,
            Shown::Container => plant(runtime, ContainerOptions { over: local })?,
            Shown::Federation(words) => {
                let backends = backends_of(words)?;
                plant(runtime, ContainerOptions { over: FederationOptions::new(local, backends) })?
            }
            Shown::Composed(words) => {
                let wishes = Wishes { publishes_writes: true, ..wishes_of(words)? };
                plant(runtime, ComposedOptions { over: local, wishes })?
            }
            Shown::Shoal { address, key } => plant(runtime, client(address, key)?)?,
        })
    }

    /// Whether one process sees at once what another one writes through a file that both have open.
    pub fn is_seen_at_once(&self) -> bool {
        !matches!(self.shown, Shown::Container | Shown::Federation(_) | Shown::Composed(_))
    }
}

fn shown_of(text: &str, key: Option<&Path>) -> Result<Shown> {
    match text {
        "plain" => Ok(Shown::Plain),
        "container" => Ok(Shown::Container),
        words if words.starts_with("container,") => {
            let words = words.trim_start_matches("container,");
            if words.contains(['\t', '\n']) {
                bail!("the name of a backend has a tab or a line's end: name another");
            }
            backends_of(words).map(|_| Shown::Federation(words.to_owned()))
        }
        address if address.starts_with("shoal://") => {
            let place = Place::find(address, key)?;
            if place.address.path != "/" {
                bail!("only a whole file system lies over a directory: leave out `{}`", place.address.path);
            }
            place.open_key()?;
            let key = place.key.canonicalize().with_context(|| format!("the key {}", place.key.display()))?;
            Ok(Shown::Shoal { address: place.address.to_string(), key })
        }
        words if words == "composed" || words.starts_with("composed,") => {
            let wishes = words.strip_prefix("composed").unwrap_or("").trim_start_matches(',');
            wishes_of(wishes).map(|_| Shown::Composed(wishes.to_owned()))
        }
        other => bail!("unknown transform `{other}`; there are: {OFFERED}"),
    }
}

/// The directories that `backends=DIR2:DIR3` names, besides the first one.
///
/// # Errors
/// Other words, or a relative path.
pub fn backends_of(words: &str) -> Result<Vec<PathBuf>> {
    federation::parse_backends(words).map_err(|why| anyhow!("container: {why}"))
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
    let place = Place { address: address.parse::<ShoalAddress>()?, key: key.to_owned() };
    let (key, file_system) = place.open_key()?;
    let servers = place.address.servers.clone();
    let options = Options::new(servers, key.secret()?, file_system.fs_id()?, file_system.collection());
    let options = Options { key_id: key.id()?, read_only: key.read_only, ..options };
    let mut options = Options { timeout: TIMEOUT, ..options };
    // Programs that work together are processes, each with a client: none may keep names of its own.
    options.under_a_kernel(false);
    Ok(options)
}
