//! A small disk for one server, to be filled: a file system in a file, on a loop device.

use anyhow::{Context as _, Result, bail};
use rustix::fs::FallocateFlags;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Bytes of the disk: room for the journal, and the reserve that a server keeps.
const BYTES: u64 = 768 << 20;
/// The bytes taken at once, at first and at last.
const PIECES: (u64, u64) = (64 << 20, 4096);

/// See the module. It is taken away when this is dropped.
pub struct Disk {
    at: PathBuf,
    ballast: PathBuf,
}

impl Disk {
    /// Make and mount one at `folder`/disk.
    ///
    /// # Errors
    /// When this is not root, or there are no loop devices or no `mkfs.ext4`: then there is no such torture.
    pub fn new(folder: &Path) -> Result<Disk> {
        if !rustix::process::geteuid().is_root() {
            bail!("only root can mount a disk");
        }
        let (image, at) = (folder.join("disk.img"), folder.join("disk"));
        std::fs::create_dir(&at).with_context(|| format!("cannot make {}", at.display()))?;
        File::create_new(&image)?.set_len(BYTES)?;
        let [image, place] = [&image, &at].map(|path| path.to_string_lossy().into_owned());
        command("mkfs.ext4", &["-q", "-F", "-m", "0", &image])?;
        command("mount", &["-o", "loop", &image, &place])?;
        Ok(Disk { ballast: at.join("ballast"), at })
    }

    /// Folder for a server's data.
    pub fn folder(&self) -> PathBuf {
        self.at.join("server")
    }

    /// Take all that is free.
    pub fn fill(&self) -> Result<()> {
        let file = File::create(&self.ballast).context("cannot write to the small disk")?;
        let (mut piece, mut end) = (PIECES.0, 0);
        while piece >= PIECES.1 {
            match rustix::fs::fallocate(&file, FallocateFlags::empty(), end, piece) {
                Ok(()) => end += piece,
                Err(rustix::io::Errno::NOSPC) => piece /= 2,
                Err(error) => return Err(error).context("cannot fill the small disk"),
            }
        }
        Ok(())
    }

    /// Give it back.
    pub fn free(&self) -> Result<()> {
        std::fs::remove_file(&self.ballast).context("cannot free the small disk")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let at = self.at.to_string_lossy().into_owned();
        if let Err(error) = command("umount", &[&at]) {
            tracing::warn!("{error:#}");
        }
    }
}

fn command(program: &str, args: &[&str]) -> Result<()> {
    let done = Command::new(program).args(args).output().with_context(|| format!("cannot run {program}"))?;
    if !done.status.success() {
        bail!("{program}: {}", String::from_utf8_lossy(&done.stderr).trim());
    }
    Ok(())
}
