//! Drops the bytes of a file that the servers have in memory, for measurements that begin with a cold
//! cache.
//!
//! Only durable data is dropped, so callers make the file durable (fsync) first. A client keeps no data of
//! open files. The kernel of a mount also keeps pages; the measured programs drop these pages themselves
//! (`posix_fadvise`).

use crate::{Error, OpenFile};
use futures_util::future::join_all;
use shoal_proto::message::VERSION_OF_CACHES_AND_FILES;
use shoal_proto::{Handle, Op, Status};
use std::collections::BTreeSet;

impl OpenFile {
    /// Drop what the servers have of the file in memory and on their disks too: their engines' blocks, and
    /// their kernels' pages. One message a stream, all at once.
    ///
    /// # Errors
    /// `NotSupported`: a server is of an older version, and keeps what it has; errors of the servers.
    pub async fn drop_cache(&self) -> Result<(), Error> {
        let opened = &self.0;
        let core = &opened.client.core;
        let o = core.begin("drop the cache", Some(opened.handle));
        let shape = opened.shape();
        let datafiles = shape.layout.iter().flat_map(|layout| layout.datafiles.iter().copied());
        let streams: BTreeSet<Handle> = [opened.handle].into_iter().chain(datafiles).collect();
        let all = streams.into_iter().map(async |stream| {
            let server = stream.server();
            if core.version_of(server) < VERSION_OF_CACHES_AND_FILES {
                let words = "a server of an older version cannot drop its caches";
                return Err(o.error(Status::NotSupported).from(server).because(words));
            }
            match core.ask(&o, server, vec![Op::Dropcache { stream }]).await {
                // The metafile of a file that is laid out has no stream where its server holds no data.
                Err(error) if error.status == Status::Stale && stream == opened.handle => Ok(()),
                done => done.map(drop),
            }
        });
        join_all(all).await.into_iter().collect()
    }
}
