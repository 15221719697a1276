//! Removes a composed directory without names: it contains only the files that its format keeps for itself.
//!
//! ```text
//!   claims/ 0.0.0 0.1.0    ── retired, blocks erased, claims removed ──>   claims/ r.N
//!   claims/ r.N            ── moved away ──>  t.claims/ r.N     a writer's file or claim in it: moved back
//!   t.claims/              ── removed ──>     blocks.0 merged names/ …  ── removed ──>  the settings, last
//! ```
//! **Only the process that holds the lock of the settings file removes the directory.** Its last step is the
//! removal of the settings. So it never touches a directory that another process makes composed again: those
//! settings are a new file.
//!
//! **The extents are freed as a compaction frees them** ([`compact`](super::compact)): first a list says
//! that their records do not count any more, then their blocks become holes, then their claims are removed.
//! So no removed record counts again. If another writer claims such an extent later, a process that still
//! has the directory open reads the records of this writer.
//!
//! **The rename of the folder of claims decides between the removal and a new writer.** A writer makes its
//! file in the folder, and then checks that the folder still has its name. The removal takes the name away,
//! and then looks into the folder. So at least one of them sees the other. If the removal finds the file of
//! a writer, it gives the folder its name back, and the directory stays, without names. If the writer finds
//! that the name is gone, it tries again for about half a second, and is then refused.
//!
//! **After a killed removal** the next open gives the folder of claims its name back, as long as the list is
//! in the folder: until then nothing is lost. The list is removed last. After that the directory cannot be
//! opened, and only another removal finishes it.

use super::compact::RETIRED_AT_ONCE;
use super::names_of::{self, BLOCKS};
use super::tools::Compacted;
use super::{Composed, Wishes, recorded};
use shoal_env::Env;
use shoal_proto::op::Entry;
use shoal_proto::{Handle, Kind, Name, Rights, Status};
use shoal_vfs::{Error, Listing, RenameFlags, Result, Vfs, VfsFile};
use std::time::Duration;

/// Others that have the directory open are waited for so long: a mount leaves one that it does not use after
/// a few seconds.
pub(crate) const OTHERS_MAX: Duration = Duration::from_secs(10);
/// Between two looks at them.
pub(crate) const OTHERS_PAUSE: Duration = Duration::from_millis(200);

fn refused(words: &str) -> Error {
    Error::new(Status::NotEmpty, "rmdir").because(words)
}

fn gone_is_fine(removed: Result<()>) -> Result<()> {
    match removed {
        Err(error) if matches!(error.status, Status::NotFound | Status::Stale) => Ok(()),
        removed => removed,
    }
}

async fn entries<B: Vfs>(over: &B, dir: Handle) -> Result<Vec<Entry>> {
    let (mut listing, mut entries) = (over.opendir(dir, Duration::ZERO), Vec::new());
    while let Some(listed) = listing.next(false).await? {
        entries.push(listed.entry);
    }
    Ok(entries)
}

fn find<'a>(entries: &'a [Entry], name: &str) -> Option<&'a Entry> {
    entries.iter().find(|entry| entry.name.as_bytes() == name.as_bytes())
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

    /// Give all extents back, once no writer is left that has not ended. Nothing but the list of them stays
    /// among the claims; its name. `at_once`: extents that one list has, at most.
    async fn give_all_back(&self, at_once: usize) -> Result<Name> {
        let shared = &self.0;
        let until = shared.env.now() + OTHERS_MAX;
        let mut is_compact = false;
        let claims = loop {
            let mut claims = shared.claims().await?;
            shared.bury(&mut claims).await;
            if claims.writers.is_empty() {
                if claims.extents.len() <= at_once || is_compact {
                    break claims;
                }
                // One list takes all: before it, their number is made smaller.
                is_compact = true;
                shared.compact_all(at_once, &mut |_, _| {}).await?;
                shared.end_log().await?;
                continue;
            }
            if shared.env.now() >= until {
                return Err(refused(
                    "another process has it open: end that one, or wait until it is not used there",
                ));
            }
            shared.env.sleep(OTHERS_PAUSE).await;
        };
        if let Some(foreign) = claims.foreign.first() {
            return Err(foreign_entry(foreign, "in its folder `claims`"));
        }
        if self.has_names().await? {
            return Err(Error::new(Status::NotEmpty, "rmdir"));
        }
        let mut taken = Vec::with_capacity(claims.extents.len());
        for extent in claims.extents.iter().copied() {
            match shared.claimant(extent).await? {
                Some(writer) => taken.push((extent, writer)),
                None => {
                    let name = names_of::name(&extent.name())?;
                    return Err(foreign_entry(&name, "in its folder `claims`"));
                }
            }
        }
        let epoch = claims.next_epoch()?;
        shared.retire(&taken, epoch).await?;
        shared.give_back_extents(&taken, &mut Compacted::default()).await?;
        let list = names_of::retired(epoch)?;
        for name in shared.over.names(shared.claims).await? {
            let bytes = name.as_bytes();
            let is_old = bytes.starts_with(names_of::RETIRED.as_bytes()) && name != list;
            if is_old || bytes.starts_with(b"t.") || bytes == names_of::SHARED.as_bytes() {
                gone_is_fine(shared.over.unlink(shared.claims, &name).await)?;
            }
        }
        Ok(list)
    }
}

/// Remove all that a composed directory without names keeps in `over`, which then is empty.
///
/// # Errors
/// `NotEmpty`: it has names, or entries of other programs, or another process has it open; errors of the file
/// system below.
pub(crate) async fn dissolve<B: Vfs>(env: &Env, over: &B) -> Result<()> {
    // Without settings nothing in it is a composed directory's.
    let Some(alone) = alone(env, over).await? else { return Ok(()) };
    let dissolved = dissolve_alone(env, over).await;
    drop(alone.close().await);
    dissolved
}

async fn dissolve_alone<B: Vfs>(env: &Env, over: &B) -> Result<()> {
    recorded(over).await?;
    put_back_alone(over).await?;
    let all = entries(over, Handle::ROOT).await?;
    if let Some(foreign) = all.iter().find(|entry| !is_own(entry)) {
        return Err(foreign_entry(&foreign.name, "in it"));
    }
    if let Some(marks) = find(&all, names_of::MARKS)
        && let Some(other) =
            entries(over, marks.handle).await?.iter().find(|entry| entry.kind == Kind::Directory)
    {
        return Err(foreign_entry(&other.name, "in its folder `names`"));
    }
    if let Some(claims) = find(&all, names_of::CLAIMS) {
        let composed = Composed::open(env.clone(), over.clone(), &Wishes::default()).await?;
        composed.0.check_writable()?;
        let list = composed.give_all_back(RETIRED_AT_ONCE).await?;
        decide(over, claims.handle, &list).await?;
    }
    if let Some(leaving) = find(&entries(over, Handle::ROOT).await?, names_of::LEAVING) {
        remove_claims(env, over, leaving.handle).await?;
    }
    remove_rest(over).await
}

/// Take the lock of the settings: its holder alone compacts or removes the directory. `None`: it has none.
async fn alone<B: Vfs>(env: &Env, over: &B) -> Result<Option<B::File>> {
    let (name, until) = (names_of::name(names_of::SETTINGS)?, env.now() + OTHERS_MAX);
    loop {
        let file = match over.open_name(Handle::ROOT, &name, Rights::READ | Rights::WRITE).await {
            Err(error) if matches!(error.status, Status::NotFound | Status::Stale) => return Ok(None),
            file => file?,
        };
        let is_held = match file.hold_alone().await {
            Err(error) if error.status == Status::NotSupported => {
                let words =
                    "the file system below has no locks, so it cannot be known which processes use it";
                return Err(error.because(words));
            }
            held => held?,
        };
        // Its last holder may have removed it meanwhile.
        let all = entries(over, Handle::ROOT).await?;
        let there = find(&all, names_of::SETTINGS).map(|entry| entry.handle);
        if is_held && there == Some(file.handle()) {
            return Ok(Some(file));
        }
        file.close().await?;
        if env.now() >= until {
            return Err(refused("another process compacts or removes it: try again"));
        }
        env.sleep(OTHERS_PAUSE).await;
    }
}

/// If a removal is under way, wait for it; if one was killed, undo it. Where it was beyond that, the folder
/// of claims is missing.
///
/// # Errors
/// `NotEmpty`: a removal takes long. `NotSupported`: the file system below has no locks.
pub(super) async fn put_back<B: Vfs>(env: &Env, over: &B) -> Result<()> {
    if find(&entries(over, Handle::ROOT).await?, names_of::LEAVING).is_none() {
        return Ok(());
    }
    let Some(alone) = alone(env, over).await? else { return Ok(()) };
    let put = put_back_alone(over).await;
    drop(alone.close().await);
    put
}

/// Undo a removal that was killed, if nothing is lost yet.
async fn put_back_alone<B: Vfs>(over: &B) -> Result<()> {
    let Some(leaving) =
        find(&entries(over, Handle::ROOT).await?, names_of::LEAVING).map(|entry| entry.handle)
    else {
        return Ok(());
    };
    let has_list = |name: &Name| name.as_bytes().starts_with(names_of::RETIRED.as_bytes());
    match over.names(leaving).await?.iter().any(has_list) {
        true => move_claims(over, names_of::LEAVING, names_of::CLAIMS).await,
        false => Ok(()),
    }
}

async fn move_claims<B: Vfs>(over: &B, from: &str, to: &str) -> Result<()> {
    let flags = RenameFlags { no_replace: true, exchange: false };
    let (from, to) = (names_of::name(from)?, names_of::name(to)?);
    over.rename(Handle::ROOT, &from, Handle::ROOT, &to, flags).await
}

/// Move the folder of claims away, and back if a writer began meanwhile.
async fn decide<B: Vfs>(over: &B, claims: Handle, list: &Name) -> Result<()> {
    move_claims(over, names_of::CLAIMS, names_of::LEAVING).await?;
    let left = over.names(claims).await;
    if left.as_ref().is_ok_and(|left| left.iter().all(|name| name == list)) {
        return Ok(());
    }
    move_claims(over, names_of::LEAVING, names_of::CLAIMS).await?;
    left?;
    Err(refused("another process began to use it"))
}

/// Remove the folder of claims, the list last. Writers that come too late leave files in it for a moment.
async fn remove_claims<B: Vfs>(env: &Env, over: &B, folder: Handle) -> Result<()> {
    let until = env.now() + OTHERS_MAX;
    loop {
        let mut names = over.names(folder).await?;
        names.sort_by_key(|name| name.as_bytes().starts_with(names_of::RETIRED.as_bytes()));
        for name in names {
            gone_is_fine(over.unlink(folder, &name).await)?;
        }
        match over.rmdir(Handle::ROOT, &names_of::name(names_of::LEAVING)?).await {
            Err(error) if error.status == Status::NotEmpty && env.now() < until => {
                env.sleep(OTHERS_PAUSE).await;
            }
            removed => return gone_is_fine(removed),
        }
    }
}

/// Remove the other files of a composed directory, its settings last.
async fn remove_rest<B: Vfs>(over: &B) -> Result<()> {
    let settings = names_of::name(names_of::SETTINGS)?;
    let all = entries(over, Handle::ROOT).await?;
    for entry in all.iter().filter(|entry| entry.name != settings && is_own(entry)) {
        if entry.kind != Kind::Directory {
            gone_is_fine(over.unlink(Handle::ROOT, &entry.name).await)?;
            continue;
        }
        for mark in over.names(entry.handle).await? {
            gone_is_fine(over.unlink(entry.handle, &mark).await)?;
        }
        gone_is_fine(over.rmdir(Handle::ROOT, &entry.name).await)?;
    }
    gone_is_fine(over.unlink(Handle::ROOT, &settings).await)
}

/// Whether an entry is one that a composed directory makes.
fn is_own(entry: &Entry) -> bool {
    let bytes = entry.name.as_bytes();
    let is_one_of = |names: &[&str]| names.iter().any(|own| bytes == own.as_bytes());
    match entry.kind {
        Kind::Directory => is_one_of(&[names_of::CLAIMS, names_of::LEAVING, names_of::MARKS]),
        Kind::File => {
            is_one_of(&[names_of::SETTINGS, names_of::MERGED, names_of::CHANGES])
                || [BLOCKS, "t."].iter().any(|own| bytes.starts_with(own.as_bytes()))
        }
        _ => false,
    }
}

fn foreign_entry(name: &Name, place: &str) -> Error {
    refused(&format!(
        "`{name}` {place} is not of a composed directory: remove or move it by a mount with `--raw`"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ComposedOptions;
    use shoal_env::real;
    use shoal_proto::Owner;
    use shoal_vfs::{Connect, LocalOptions};

    #[test]
    fn a_directory_with_more_extents_than_one_list_has_is_removed_and_none_of_its_names_comes_back() {
        let dir = tempfile::tempdir().unwrap();
        real::run("test", move |env| async move {
            let open = async || {
                let over = LocalOptions::new(dir.path());
                ComposedOptions { over, wishes: Wishes::default() }.connect(env.clone()).await.unwrap()
            };
            let (owner, name) = (Owner { mode: 0o755, uid: 0, gid: 0 }, names_of::name("d").unwrap());
            for _ in 0..9 {
                let vfs = open().await;
                vfs.mkdir(Handle::ROOT, &name, owner).await.unwrap();
                vfs.rmdir(Handle::ROOT, &name).await.unwrap();
                vfs.close().await;
            }
            let vfs = open().await;
            let list = vfs.give_all_back(4).await.unwrap();
            assert_eq!(vfs.0.over.names(vfs.0.claims).await.unwrap(), [list]);
            assert!(!open().await.has_names().await.unwrap());
        });
    }
}
