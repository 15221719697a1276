//! Small files of one process in one directory: the steps that several workloads share.

use super::{FILE, Process, Way, name, told};
use shoal_proto::{Handle, Kind, Name, Rights};
use shoal_vfs::{Listing as _, Vfs, VfsFile as _};
use std::time::Duration;

/// Attributes are waited for as long as a request may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(3600);

/// The names of files, in order.
pub fn file_name(at: u64) -> Result<Name, String> {
    name(format!("f{at:07}"))
}

/// A process's own directory below the root: made in its first phase, there for all others.
#[derive(Default)]
pub struct OwnDirectory(Option<(Handle, Name)>);

impl OwnDirectory {
    /// Make it.
    pub(super) async fn make<V: Vfs>(&mut self, process: &Process<V>) -> Result<Handle, String> {
        let (dir, name) = process.own_directory().await?;
        self.0 = Some((dir, name));
        Ok(dir)
    }

    /// Where it is, and its name.
    pub(super) fn made(&self) -> Result<(Handle, &Name), String> {
        let (dir, name) = self.0.as_ref().ok_or("there is no directory")?;
        Ok((*dir, name))
    }
}

impl<V: Vfs> Process<V> {
    /// Make a file and open it.
    pub(super) async fn create(&self, dir: Handle, name: &Name) -> Result<V::File, String> {
        self.go_on()?;
        let rights = Rights::READ | Rights::WRITE;
        let (_, _, file) = self.call(self.vfs.create(dir, name, FILE, true, rights)).await?;
        Ok(file)
    }

    /// Make a file, and close it.
    pub(super) async fn create_close(&self, dir: Handle, name: &Name) -> Result<(), String> {
        let file = self.create(dir, name).await?;
        self.call(file.close()).await
    }

    /// Remove a file.
    pub(super) async fn remove(&self, dir: Handle, name: &Name) -> Result<(), String> {
        self.go_on()?;
        self.call(self.vfs.unlink(dir, name)).await
    }

    /// List a directory and ask for the attributes of each entry by a call of its own.
    pub(super) async fn readdir_stat(
        &self,
        way: Way,
        dir: Handle,
        files: u64,
        bytes_each: u64,
    ) -> Result<(), String> {
        let mut stream = self.vfs.opendir(dir, PATIENCE);
        let (mut entries, mut bytes) = (0, 0);
        while let Some(listed) = stream.next(false).await.map_err(told)? {
            self.go_on()?;
            let attr = self.by(way, self.vfs.getattr(listed.entry.handle)).await?;
            entries += 1;
            bytes += if attr.kind == Kind::File { attr.size } else { 0 };
        }
        seen(entries, files, bytes, files * bytes_each)
    }

    /// Write all of a small file by one call.
    pub(super) async fn write_all(&self, file: &V::File, bytes: u64) -> Result<(), String> {
        self.go_on()?;
        self.call(file.write(0, self.data(bytes))).await
    }

    /// Read all of a small file by one call.
    pub(super) async fn read_all(&self, file: &V::File, bytes: u64) -> Result<(), String> {
        self.go_on()?;
        let data = self.call(file.read(0, bytes as usize)).await?;
        match data.len() as u64 == bytes {
            true => Ok(()),
            false => Err(format!("{} bytes were read, {bytes} written", data.len())),
        }
    }
}

/// A listing shows the files that were made.
pub fn seen(entries: u64, files: u64, bytes: u64, bytes_made: u64) -> Result<(), String> {
    match (entries, bytes) == (files, bytes_made) {
        true => Ok(()),
        false => Err(format!(
            "the directory lists {entries} entries of {bytes} bytes; {files} of {bytes_made} were made"
        )),
    }
}
