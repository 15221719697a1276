//! `shoal layout`: shows or sets how files are laid out over the servers. The layout of a directory is that
//! of its new files. The layout of a file can be set while the file is empty. An empty directory can become a
//! forked file. It can also get the layout `container` or `composed`, which all mounts and clients then
//! follow.

use crate::address::CommandTarget;
use crate::bytes_size::ByteSize;
use crate::cli::{Layout, LayoutKind};
use crate::cluster_file::{DistributionName, template};
use crate::laid::{self, Laid};
use crate::{connect, copy, out, subfiles, words};
use anyhow::{Context as _, Result, bail};
use serde_json::json;
use shoal_client::{Client, LOST_AND_FOUND, NOT_LOST_AND_FOUND};
use shoal_env::Env;
use shoal_proto::op::Owner;
use shoal_proto::{Attr, Dist, Handle, Kind, Rights, ServerId, Status, Template};
use shoal_transform::followed::beneath::Beneath;
use shoal_transform::{Composed, Followed, Wishes};
use shoal_vfs::{ForkedFile, Vfs};
use std::process::ExitCode;

/// The layout to set.
struct Wish {
    layout: LayoutKind,
    distribution: Option<DistributionName>,
    strip: Option<ByteSize>,
    width: Option<u16>,
}

/// Show or set.
pub fn run(args: Layout) -> Result<ExitCode> {
    match args {
        Layout::Get { place: text, key, json } => {
            let place = CommandTarget::find(&text, key.key.as_deref())?;
            let path = place.address.path.clone();
            let get = |env, client: Client| async move {
                let found = laid::find(&Followed::new(env, client.clone()), path.as_bytes(), true).await?;
                let missing = subfiles::missing(&client, &found.attr).await?;
                Ok((found, missing))
            };
            let (found, missing) =
                connect::with_client(&place, get).with_context(|| format!("cannot look at {text}"))?;
            match &found.laid {
                Some(laid) => show_laid(&text, &found.attr, laid, json)?,
                None => show(&text, &found.attr, &missing, json)?,
            }
        }
        Layout::Set {
            place: text,
            layout: LayoutKind::Forked,
            subfiles,
            on,
            distribution,
            strip,
            width,
            key,
            json,
        } => {
            if distribution.is_some() || strip.is_some() || width.is_some() {
                bail!("a forked file has no strips: leave out --distribution, --strip and --width");
            }
            let Some(subfiles) = subfiles else { bail!("a forked file needs --subfiles: 1 to 512") };
            let servers = on.into_iter().map(ServerId).collect();
            let wish = ForkedFile { subfiles, servers, replace: false };
            let place = CommandTarget::find(&text, key.key.as_deref())?;
            let path = place.address.path.clone();
            let make = |_, client| async move { make_forked(client, &path, wish).await };
            let attr = connect::with_client(&place, make)
                .with_context(|| format!("cannot make the forked file {text}"))?;
            show(&text, &attr, &[], json)?;
        }
        Layout::Set { place: text, layout, subfiles, on, distribution, strip, width, key, json } => {
            if subfiles.is_some() || !on.is_empty() {
                bail!("--subfiles and --on are for `forked`: shoal layout set {text} forked --subfiles N");
            }
            let follows = layout != LayoutKind::Striped;
            if distribution.is_none() && strip.is_none() && width.is_none() && !follows {
                bail!("nothing to set: give --distribution, --strip or --width");
            }
            if distribution.is_some() && follows {
                bail!("the files below such a directory are striped: leave out --distribution");
            }
            let wish = Wish { layout, distribution, strip, width };
            let place = CommandTarget::find(&text, key.key.as_deref())?;
            let path = place.address.path.clone();
            let set = |env, client| async move { set(env, client, &path, wish).await };
            let attr = connect::with_client(&place, set)
                .with_context(|| format!("cannot set the layout of {text}"))?;
            show(&text, &attr, &[], json)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

impl Wish {
    /// The requested values over the present ones.
    fn over(&self, there: &Template) -> Result<Template> {
        let (name, strip) = match there.dist {
            Dist::Basic => (DistributionName::Basic, Template::STRIP_DEFAULT),
            Dist::SimpleStripe { strip } => (DistributionName::SimpleStripe, strip),
            Dist::Fork | Dist::Forked { .. } => bail!("the layout of a forked file is fixed"),
            Dist::Container { .. } | Dist::Composed { .. } => {
                let layout = words::dist_json(&there.dist)["distribution"].clone();
                bail!(
                    "it has the layout {layout}, or lies in a directory that has it, and that layout is fixed: make \
                     another directory, and copy its files there"
                )
            }
        };
        if self.layout != LayoutKind::Striped {
            let strip = self.strip.unwrap_or(ByteSize(strip));
            let template =
                template(DistributionName::SimpleStripe, strip, self.width.unwrap_or(there.width))?;
            let dist = match self.layout {
                LayoutKind::Container => Dist::Container { strip: strip.0 },
                _ => Dist::Composed { strip: strip.0 },
            };
            return Ok(Template { dist, ..template });
        }
        let distribution = match (self.distribution, self.strip) {
            (Some(DistributionName::Basic), Some(_)) => bail!("`basic` has no strips: leave out --strip"),
            (Some(distribution), _) => distribution,
            // A request that names a strip requires strips.
            (None, Some(_)) => DistributionName::SimpleStripe,
            (None, None) => name,
        };
        template(distribution, self.strip.unwrap_or(ByteSize(strip)), self.width.unwrap_or(there.width))
    }
}

async fn set(env: Env, client: Client, path: &str, wish: Wish) -> Result<Attr> {
    let attr = match client.walk(path.as_bytes(), true).await {
        Ok(attr) => attr,
        Err(error) if error.status == Status::NotFound && wish.layout == LayoutKind::Striped => {
            return make(&client, path, wish).await;
        }
        Err(error) if error.status == Status::NotFound => {
            // A directory that is missing is made with it.
            let (dir, name) = client.walk_parent(path.as_bytes()).await?;
            if wish.layout != LayoutKind::Striped && dir == Handle::ROOT && name.as_bytes() == LOST_AND_FOUND
            {
                bail!("{NOT_LOST_AND_FOUND}");
            }
            // Before anything is made in a directory whose objects are its layout's.
            wish.over(&client.getattr(dir).await?.template)?;
            client.mkdir(dir, &name, copy::owner(0o755)).await?
        }
        Err(error) => return Err(error.into()),
    };
    if wish.layout != LayoutKind::Striped {
        return follow(env, &client, path, &attr, &wish).await;
    }
    match attr.kind {
        Kind::Directory => {}
        Kind::File if attr.size == 0 && attr.layout.is_none() => {}
        Kind::File => {
            bail!("the file is laid out already ({} bytes): copy it to a file with the new layout", attr.size)
        }
        kind => bail!("it is a {}: only files and directories have a layout", kind.word()),
    }
    client.setlayout(attr.handle, wish.over(&attr.template)?).await?;
    Ok(client.walk(path.as_bytes(), true).await?)
}

/// A layout that clients follow, of an empty directory.
async fn follow(env: Env, client: &Client, path: &str, attr: &Attr, wish: &Wish) -> Result<Attr> {
    match attr.kind {
        Kind::Directory if attr.handle == Handle::ROOT => {
            bail!("the root of a file system keeps its layout: make a directory in it, and name that one")
        }
        Kind::Directory => {}
        kind => bail!("it is a {}: name a directory that is empty, or is not there", kind.word()),
    }
    match client.setlayout(attr.handle, wish.over(&attr.template)?).await {
        Err(error) if error.status == Status::NotEmpty => bail!(
            "the directory has entries: name one that is empty, or is not there, and copy them into it afterwards"
        ),
        set => set?,
    }
    if wish.layout == LayoutKind::Composed {
        // Those that may only read find it made.
        let beneath = Beneath::new(client.clone(), attr.handle);
        Vfs::close(&Composed::open(env, beneath, &Wishes::default()).await?).await;
    }
    Ok(client.walk(path.as_bytes(), true).await?)
}

/// A forked file, new or in place of an empty directory with that one's owner and mode.
async fn make_forked(client: Client, path: &str, mut wish: ForkedFile) -> Result<Attr> {
    let mut of = copy::owner(0o755);
    match client.walk(path.as_bytes(), true).await {
        Ok(attr) if attr.template.dist.is_of_forks() => bail!("it is, or is in, a forked file already"),
        Ok(attr) if attr.template.dist.is_followed() => bail!("{}", not_in(&attr.template.dist)),
        Ok(attr) if attr.kind == Kind::Directory => {
            of = Owner { mode: attr.mode, uid: attr.uid, gid: attr.gid };
            wish.replace = true;
        }
        Ok(attr) => bail!("it is a {}: name a directory that is empty, or is not there", attr.kind.word()),
        Err(error) if error.status == Status::NotFound => {}
        Err(error) => return Err(error.into()),
    }
    let (dir, name) = client.walk_parent(path.as_bytes()).await?;
    let parent = client.getattr(dir).await?;
    if parent.template.dist.is_followed() {
        bail!("{}", not_in(&parent.template.dist));
    }
    match client.mkforked(dir, &name, of, &wish).await {
        Err(error) if error.status == Status::NotEmpty => {
            bail!(
                "the directory has entries: make a forked file of another name, and copy them into its subfiles"
            )
        }
        made => Ok(made?),
    }
}

/// A forked file is an object of the servers: in such a directory it would lie among those of its layout.
fn not_in(dist: &Dist) -> String {
    let layout = words::dist_json(dist)["distribution"].clone();
    format!(
        "it has the layout {layout}, or lies in a directory that has it, where no forked file can be: name another \
         directory"
    )
}

/// A file that is missing is made with it.
async fn make(client: &Client, path: &str, wish: Wish) -> Result<Attr> {
    let (dir, name) = client.walk_parent(path.as_bytes()).await?;
    let template = wish.over(&client.getattr(dir).await?.template)?;
    let made = client.create(dir, &name, copy::owner(0o644), true, Rights::WRITE, Some(template)).await?;
    made.2.close().await?;
    Ok(made.0)
}

/// Show an object in a directory whose layout clients follow.
fn show_laid(text: &str, attr: &Attr, laid: &Laid, as_json: bool) -> Result<()> {
    if as_json {
        let mut value = laid.json();
        value["name"] = text.into();
        value["kind"] = attr.kind.word().into();
        value["width"] = laid.template_json()["width"].clone();
        return out::json_line(&value);
    }
    out::line(format!("{text}: {}", laid.layout(attr.kind)))
}

/// Show it, with the subfiles that it lacks.
fn show(text: &str, attr: &Attr, missing: &[u16], as_json: bool) -> Result<()> {
    if as_json {
        let mut value = words::dist_json(&attr.layout.as_ref().map_or(attr.template.dist, |l| l.dist));
        value["name"] = text.into();
        value["kind"] = attr.kind.word().into();
        value["width"] = attr.template.width.into();
        value["stuffed"] = (attr.kind == Kind::File).then_some(attr.layout.is_none()).into();
        value["datafiles"] = attr
            .layout
            .as_ref()
            .map(|l| l.datafiles.iter().map(|h| json!(h.to_string())).collect::<Vec<_>>())
            .into();
        value["shards"] = words::shards_json(attr);
        if subfiles::count(attr).is_some() {
            value["missing"] = missing.into();
        }
        return out::json_line(&value);
    }
    match (attr.kind, &attr.layout) {
        (Kind::Directory, _) if attr.template.dist.is_of_forks() => {
            out::line(format!("{text}: {}", words::template(&attr.template)))?;
            subfiles::words(missing).map_or(Ok(()), |words| out::line(format!("{text}: {words}")))
        }
        (Kind::File, None) if attr.template.dist.is_of_forks() => {
            out::line(format!("{text}: a fork, whole on server {}", attr.handle.server()))
        }
        (Kind::Directory, _) if attr.template.dist.is_followed() => {
            out::line(format!("{text}: its files are {}", words::template(&attr.template)))
        }
        (Kind::Directory, _) => {
            out::line(format!("{text}: new files are {}", words::template(&attr.template)))?;
            words::shards(attr).map_or(Ok(()), |shards| out::line(format!("{text}: {shards}")))
        }
        (Kind::File, Some(layout)) => {
            let is = Template { dist: layout.dist, width: layout.datafiles.len() as u16 };
            out::line(format!("{text}: {}", words::template(&is)))
        }
        (Kind::File, None) => {
            out::line(format!("{text}: stuffed; when it grows, {}", words::template(&attr.template)))
        }
        (kind, _) => out::line(format!("{text}: a {} has no layout", kind.word())),
    }
}
