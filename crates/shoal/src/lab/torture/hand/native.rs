//! A hand (a client process of the torture) that uses the native client. The client runs in an event loop
//! of its own, which runs during each act.

use super::{Act, Client, Kept, Outcome, Refusal, Said, Seen, content};
use crate::address::CommandTarget;
use crate::connect;
use anyhow::Result;
use shoal_client::{Error, OpenFile, RenameFlags};
use shoal_env::real;
use shoal_proto::{Attr, Kind, Rights, Status};
use std::path::PathBuf;
use std::time::Duration;

/// Between two tries to connect.
const AGAIN: Duration = Duration::from_millis(20);

/// See the module.
pub struct Native {
    session: Session,
    runtime: real::Runtime,
}

struct Session {
    client: shoal_client::Client,
    written: Kept<OpenFile>,
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        Refusal { errno: error.errno(), words: error.to_string() }
    }
}

impl Native {
    /// Connect. A client refuses at once where no server listens; a hand tries again for as long as an
    /// operation may take, because all servers may be down when it begins.
    pub fn begin(address: &str, key: PathBuf, timeout_s: u64) -> Result<Native> {
        let place = CommandTarget { address: address.parse()?, key };
        let timeout = Duration::from_secs(timeout_s);
        let options = shoal_client::Options { timeout, ..connect::options(&place)? };
        let runtime = real::Runtime::new("hand");
        let env = runtime.env();
        let until = env.now() + timeout;
        let client = loop {
            match runtime.block_on(connect::client(env.clone(), &place, options.clone())) {
                Err(error) if env.now() < until && is_away(&error) => runtime.block_on(env.sleep(AGAIN)),
                client => break client?,
            }
        };
        Ok(Native { session: Session { client, written: Kept::new() }, runtime })
    }
}

/// Whether no server answered.
fn is_away(error: &anyhow::Error) -> bool {
    let status = error.downcast_ref::<Error>().map(|error| error.status);
    matches!(status, Some(Status::Unavailable | Status::TimedOut))
}

impl Client for Native {
    fn act(&mut self, act: &Act) -> Outcome {
        self.runtime.block_on(self.session.act(act))
    }
}

fn seen(attr: &Attr) -> Seen {
    Seen {
        ino: attr.handle.0,
        nlink: u64::from(attr.nlink),
        size: attr.size,
        is_dir: attr.kind == Kind::Directory,
    }
}

impl Session {
    async fn act(&mut self, act: &Act) -> Outcome {
        let client = self.client.clone();
        let said = match act {
            Act::Create { path } => {
                let (owner, rights) = (crate::copy::owner(0o644), Rights::READ | Rights::WRITE);
                let (attr, _, file) = client.create_at(path.as_bytes(), owner, true, rights, None).await?;
                file.close().await?;
                Said::Made(attr.handle.0)
            }
            Act::Mkdir { path } => {
                Said::Made(client.mkdir_at(path.as_bytes(), crate::copy::owner(0o755)).await?.handle.0)
            }
            Act::Rmdir { path } => {
                client.rmdir_at(path.as_bytes()).await?;
                Said::Done
            }
            Act::Unlink { path } => {
                self.forget(path).await?;
                client.unlink_at(path.as_bytes()).await?;
                Said::Done
            }
            Act::Rename { from, to } => {
                self.forget(from).await?;
                self.forget(to).await?;
                client.rename_at(from.as_bytes(), to.as_bytes(), RenameFlags::default()).await?;
                Said::Done
            }
            Act::Link { from, to } => {
                client.link_at(from.as_bytes(), to.as_bytes()).await?;
                Said::Done
            }
            Act::Truncate { path, size } => {
                let object = client.walk(path.as_bytes(), true).await?.handle;
                client.truncate(object, *size, false).await?;
                Said::Done
            }
            Act::Write { path, offset, len, seed, sync } => {
                let file = self.open(path).await?;
                file.write(*offset, content(*seed, *len).into()).await?;
                if *sync {
                    file.fsync().await?;
                }
                Said::Done
            }
            Act::Append { path, len, seed } => {
                self.open(path).await?.append(content(*seed, *len).into()).await?;
                Said::Done
            }
            Act::Read { path } => {
                let file = client.open_at(path.as_bytes(), Rights::READ).await?;
                let size = usize::try_from(file.size().await?).unwrap_or(usize::MAX);
                let bytes = file.read(0, size).await?;
                let seen = seen(&client.getattr(file.handle()).await?);
                file.close().await?;
                return Ok((Said::Bytes { len: bytes.len(), seen }, bytes.to_vec()));
            }
            Act::Look { path } => {
                // Not `walk`: that may use a cached negative entry for a moment.
                let (dir, name) = client.walk_parent(path.as_bytes()).await?;
                Said::Seen(seen(&client.lookup(dir, &name).await?))
            }
            Act::List { path } => {
                let dir = client.walk(path.as_bytes(), true).await?.handle;
                let mut stream = client.opendir(dir);
                let mut entries = Vec::new();
                while let Some(entry) = stream.next(false).await? {
                    let name = String::from_utf8_lossy(entry.name.as_bytes()).into_owned();
                    entries.push((name, entry.handle.0, entry.kind == Kind::Directory));
                }
                Said::Entries(entries)
            }
            Act::Many(_) => Said::Done,
        };
        Ok((said, Vec::new()))
    }

    async fn open(&mut self, path: &str) -> Result<OpenFile, Error> {
        if let Some(file) = self.written.get(path) {
            return Ok(file.clone());
        }
        let file = self.client.open_at(path.as_bytes(), Rights::READ | Rights::WRITE).await?;
        if let Some(oldest) = self.written.keep(path, file.clone()) {
            oldest.close().await?;
        }
        Ok(file)
    }

    async fn forget(&mut self, path: &str) -> Result<(), Error> {
        for file in self.written.forget(path) {
            file.close().await?;
        }
        Ok(())
    }
}
