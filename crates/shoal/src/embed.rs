//! A mount in this process: the fuse crate's mount, and the note that lets other commands find its file system.

use crate::address::{MountNote, Place};
use crate::cli::MountOptions;
use crate::mount_options;
use crate::stop::Event;
use anyhow::{Context as _, Result, anyhow};
use shoal_fuse::{Mount, MountError, MountHandle};
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::time::Duration;

/// A mount in use is waited for so long at a stop; then it is taken away from its users.
const STOP_GRACE: Duration = Duration::from_secs(3);

/// A mount that this process serves.
pub struct Embedded {
    handle: MountHandle,
}

impl Embedded {
    /// Mount a place; its end by another hand is an event.
    pub fn start(
        place: &Place,
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
        let mut how = shoal_fuse::MountOptions {
            name: place.address.to_string(),
            cache: Duration::from_millis(options.attr_timeout),
            stat_ahead: !options.no_stat_ahead,
            direct: options.direct,
            threads: options.threads,
            ..shoal_fuse::MountOptions::default()
        };
        how.allow_other |= options.allow_other;
        let said = mount_options::apply(&options.mount_options, &mut how)?;
        let mut client = crate::connect::options(place)?;
        client.timeout = said.timeout.unwrap_or(Duration::from_secs(options.timeout.max(1)));
        let handle = Mount::start(client, at, &how).map_err(|error| {
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
        };
        note.leave(handle.mountpoint())?;
        let (ended, events) = (handle.ended(), events.clone());
        std::thread::Builder::new()
            .name("mount-end".into())
            .spawn(move || {
                shoal_env::real::run("mount-end", |_| ended);
                let _ = events.send(Event::Unmounted);
            })
            .context("cannot watch the mount")?;
        Ok(Embedded { handle })
    }

    /// Where.
    pub fn mountpoint(&self) -> PathBuf {
        self.handle.mountpoint().to_path_buf()
    }

    /// Unmount.
    pub fn stop(self) -> Result<()> {
        let at = self.mountpoint();
        MountNote::remove(&at);
        self.handle.stop(STOP_GRACE).with_context(|| format!("cannot unmount {}", at.display()))
    }
}
