//! `shoal umount`: ends a mount, even if its process no longer runs.

use crate::address::MountNote;
use crate::cli::Umount;
use anyhow::Result;
use shoal_fuse::MountError;
use std::process::ExitCode;

/// Unmount; the process that serves the mount notices and ends it.
pub fn run(args: Umount) -> Result<ExitCode> {
    let at = &args.mountpoint;
    // While it is mounted; for a dead mount only the folders above it can be looked at.
    let path = crate::address::resolved(at)?;
    shoal_fuse::unmount(at, args.lazy).map_err(|error| {
        let busy = matches!(error, MountError::Busy(_));
        let remedy = if busy { "; or --lazy detaches it at once" } else { "" };
        anyhow::anyhow!("cannot unmount {}: {error}{remedy}", at.display())
    })?;
    MountNote::remove(&path);
    Ok(ExitCode::SUCCESS)
}
