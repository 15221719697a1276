//! The removal of a composed directory that has no names: nothing but its own files are left in it.
//!
//! **The removal of the folder of claims decides.** A writer makes a file there before all else, so once the
//! folder is gone none can begin; and while a writer has not ended, its file keeps the folder. Claims that
//! were listed before are removed first: if a writer begins meanwhile, the folder stays, and the directory is
//! an empty one that goes on.
//!
//! A removal that was killed after that is continued by the next one.

use super::names_of::{self, BLOCKS};
use super::scan::names_in;
use super::{Composed, Wishes, recorded};
use shoal_env::Env;
use shoal_proto::{Handle, Kind, Name, Status};
use shoal_vfs::{Error, Listing, Result, Vfs};
use std::time::Duration;

/// Others that have the directory open are waited for so long: a mount leaves one that it does not use after
/// a few seconds.
const OTHERS_MAX: Duration = Duration::from_secs(10);
const OTHERS_PAUSE: Duration = Duration::from_millis(200);

fn refused(words: &str) -> Error {
    Error::new(Status::NotEmpty, "rmdir").because(words)
}

fn gone_is_fine(removed: Result<()>) -> Result<()> {
    match removed {
        Err(error) if matches!(error.status, Status::NotFound | Status::Stale) => Ok(()),
        removed => removed,
    }
}

impl<B: Vfs> Composed<B> {
    /// Whether it has names.
    async fn has_names(&self) -> Result<bool> {
        self.refreshed().await?;
        let mut listing = self.opendir(Handle::ROOT, Duration::ZERO);
        Ok(listing.next(false).await?.is_some())
    }

    /// Whether its removal may begin: it has no names, and no file that was removed is open here.
    ///
    /// # Errors
    /// `NotEmpty`: it may not.
    pub(crate) async fn is_empty(&self) -> Result<()> {
        if self.has_names().await? {
            return Err(Error::new(Status::NotEmpty, "rmdir"));
        }
        match self.0.opens.borrow().is_empty() {
            true => Ok(()),
            false => Err(refused("a file in it that was removed is still open: close it first")),
        }
    }
}

/// Remove all that a composed directory without names keeps in `over`, which then is empty.
///
/// # Errors
/// `NotEmpty`: it has names, or another process has it open; errors of the file system below.
pub(crate) async fn dissolve<B: Vfs>(env: &Env, over: &B) -> Result<()> {
    let folder = match over.lookup(Handle::ROOT, &names_of::name(names_of::CLAIMS)?).await {
        Err(error) if error.status == Status::NotFound => None,
        found => Some(found?.handle),
    };
    if let Some(folder) = folder {
        if recorded(over).await?.is_some() {
            let wishes = Wishes { read_only: true, ..Wishes::default() };
            let composed = Composed::open(env.clone(), over.clone(), &wishes).await?;
            let claims = claims_without_writers(env, &composed, folder).await?;
            if composed.has_names().await? {
                return Err(Error::new(Status::NotEmpty, "rmdir"));
            }
            for name in claims {
                gone_is_fine(over.unlink(folder, &name).await)?;
            }
        }
        gone_is_fine(over.rmdir(Handle::ROOT, &names_of::name(names_of::CLAIMS)?).await)?;
    }
    remove_rest(over).await
}

/// The names in the folder of claims, once no writer is among them that has not ended.
async fn claims_without_writers<B: Vfs>(
    env: &Env,
    composed: &Composed<B>,
    folder: Handle,
) -> Result<Vec<Name>> {
    let until = env.now() + OTHERS_MAX;
    loop {
        let names = names_in(&composed.0.over, folder).await?;
        let mut claims = composed.0.claims().await?;
        composed.0.bury(&mut claims).await;
        if claims.writers.is_empty() {
            return Ok(names);
        }
        if env.now() >= until {
            return Err(refused(
                "another process has it open: end that one, or wait until it is not used there",
            ));
        }
        env.sleep(OTHERS_PAUSE).await;
    }
}

/// Remove the other files of a composed directory, its settings last.
async fn remove_rest<B: Vfs>(over: &B) -> Result<()> {
    let (mut listing, mut entries) = (over.opendir(Handle::ROOT, Duration::ZERO), Vec::new());
    while let Some(listed) = listing.next(false).await? {
        entries.push(listed.entry);
    }
    let settings = names_of::name(names_of::SETTINGS)?;
    for entry in entries.iter().filter(|entry| entry.name != settings) {
        match entry.kind {
            Kind::Directory if entry.name.as_bytes() == names_of::MARKS.as_bytes() => {
                for mark in names_in(over, entry.handle).await? {
                    gone_is_fine(over.unlink(entry.handle, &mark).await)?;
                }
                gone_is_fine(over.rmdir(Handle::ROOT, &entry.name).await)?;
            }
            Kind::Directory => {}
            _ if is_own(&entry.name) => gone_is_fine(over.unlink(Handle::ROOT, &entry.name).await)?,
            _ => {}
        }
    }
    gone_is_fine(over.unlink(Handle::ROOT, &settings).await)
}

/// Whether a composed directory makes files of such names.
fn is_own(name: &Name) -> bool {
    let bytes = name.as_bytes();
    let whole = [names_of::MERGED, names_of::CHANGES];
    let begins = [BLOCKS, "t."];
    whole.iter().any(|own| bytes == own.as_bytes())
        || begins.iter().any(|own| bytes.starts_with(own.as_bytes()))
}
