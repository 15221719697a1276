//! `shoal umount`: end a mount, dead or alive.

use crate::address::MountNote;
use crate::cli::Umount;
use anyhow::{Context as _, Result};
use std::process::ExitCode;

/// Unmount; the process that serves the mount notices and ends it.
pub fn run(args: Umount) -> Result<ExitCode> {
    let at = &args.mountpoint;
    // While it is mounted; of a dead mount only what is above can be looked at.
    let path = crate::address::resolved(at)?;
    shoal_fuse::unmount(at, args.lazy).with_context(|| {
        let lazy = if args.lazy { "" } else { "; --lazy detaches it at once" };
        format!("cannot unmount {}{lazy}", at.display())
    })?;
    MountNote::remove(&path);
    Ok(ExitCode::SUCCESS)
}
