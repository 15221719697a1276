//! Reads one batch of a listing. A batch costs one message. It costs a further message if a shard has no
//! more entries, or if the server replies that the directory was split.

use super::attributes::Lacks;
use crate::cache::Stamp;
use crate::{Client, Error};
use bytes::Bytes;
use shoal_env::Instant;
use shoal_env::mutant::{self, Mutant};
use shoal_proto::op::Answer;
use shoal_proto::{Attr, Blob, Entry, Handle, Op, Place, ServerId, Shards, Status, limits};
use std::collections::BTreeMap;

/// Bytes of entries in the first batch: some 1,000 names, or some 350 with attributes. A caller that reads a
/// name or two pays for no more.
pub(super) const BATCH_BYTES: u32 = 64 << 10;
/// Bytes of entries in the later batches: more entries share the fixed costs of a batch. A server makes one
/// in a few milliseconds, in which it does nothing else.
pub(super) const BATCH_BYTES_ON: u32 = 128 << 10;
/// The same with contents: some 60 files of 8 KiB.
const BATCH_DATA_BYTES: u32 = 512 << 10;
const _: () =
    assert!(BATCH_BYTES_ON <= BATCH_DATA_BYTES && BATCH_DATA_BYTES as usize <= limits::READDIR_BYTES_MAX);

/// Where a batch begins.
#[derive(Clone, Default)]
pub(super) struct Begin {
    /// After this place.
    pub(super) after: Option<Place>,
    /// In a split directory: shards before this one are listed.
    shard: usize,
    /// Its entries alone are wanted.
    is_only: bool,
}

impl Begin {
    /// After all entries of a place; 0 is the start.
    pub(super) fn behind(place: u64) -> Begin {
        let after = (place != 0).then(|| Place { hash: place, name: Blob::default() });
        Begin { after, ..Begin::default() }
    }

    /// At the start of a shard of a split directory, whose entries alone are wanted.
    pub(super) fn only(shard: usize) -> Begin {
        Begin { shard, is_only: true, ..Begin::default() }
    }
}

/// The request.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    /// Attributes, as far as they come along.
    pub(super) plus: bool,
    /// Contents of files of at most so many bytes; 0: none.
    pub(super) data_max: usize,
    /// Bytes of entries, where no contents are wanted.
    pub(super) bytes_max: u32,
    /// The deadline of the caller that waits for it.
    pub(super) deadline: Instant,
}

/// See the module's page.
pub(super) struct Batch {
    pub(super) entries: Vec<Entry>,
    /// Contents of the files, as far as they came along.
    pub(super) data: Vec<Option<Bytes>>,
    /// Entries that have no attributes although they are there.
    pub(super) lacks: Lacks,
    /// Of those, the attributes on their own servers.
    pub(super) unmerged: BTreeMap<Handle, Attr>,
    /// Where the next one begins; `None` at the end.
    pub(super) then: Option<Begin>,
    /// When it was requested, by the clock and by the cache's stamp.
    pub(super) asked: Stamp,
    /// It has all attributes there are, or all contents.
    pub(super) has: Has,
}

/// The parts of a batch that are there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Has {
    /// The parts that came along.
    Entries,
    Attributes,
    Contents,
}

impl Batch {
    /// One without entries, before all others.
    pub(super) fn none(client: &Client, then: Begin) -> Batch {
        let asked = client.core.cache.borrow().stamp(client.core.world.now());
        let (entries, data, lacks) = (Vec::new(), Vec::new(), Lacks::new());
        let (unmerged, then) = (BTreeMap::new(), Some(then));
        Batch { entries, data, lacks, unmerged, then, asked, has: Has::Contents }
    }

    /// Ask for one. It has entries, or is the last.
    pub(super) async fn ask(
        client: Client,
        dir: Handle,
        mut begin: Begin,
        wanted: Wanted,
    ) -> Result<Batch, Error> {
        let core = &client.core;
        let mut o = core.begin("readdir", Some(dir));
        o.deadline = wanted.deadline;
        loop {
            let asked = core.cache.borrow().stamp(core.world.now());
            let switches = core.switches();
            let shards = core.split.borrow_mut().of(dir);
            let (server, last_shard) = match &shards {
                None => (dir.server(), true),
                Some(shards) => {
                    let (servers, place) =
                        (listed(shards), begin.after.as_ref().map_or(0, |after| after.hash));
                    begin.shard = begin.shard.max(shards.index_of(place)).min(servers.len() - 1);
                    (servers[begin.shard], begin.is_only || begin.shard + 1 == servers.len())
                }
            };
            let plus_along = wanted.plus && switches.readdirplus && switches.compound;
            let data_along = match plus_along {
                true => wanted.data_max.min(core.eager_bytes(server)) as u32,
                false => 0,
            };
            let bytes_max = if data_along > 0 { BATCH_DATA_BYTES } else { wanted.bytes_max };
            let op = Op::Readdir {
                dir,
                after: begin.after.clone(),
                bytes_max,
                plus: plus_along,
                data_max: data_along,
                in_shard: shards.is_some(),
            };
            let reply_bytes = if data_along > 0 { u64::from(bytes_max) } else { 0 };
            let told = match core.ask_group(&o, server, vec![op], Vec::new(), reply_bytes).await? {
                // It was split since. Entries listed before keep their places: continue in that order.
                told if told.status == Status::Split && shards.is_none() => {
                    let Some(Answer::Split { dir, shards, key }) = told.answers.last() else {
                        return Err(o
                            .error(Status::BadMessage)
                            .from(server)
                            .because("no shards in its answer"));
                    };
                    core.split.borrow_mut().learn(*dir, shards, Some(*key));
                    continue;
                }
                // No such shard: the directory is gone, as its own server will say.
                told if told.status == Status::WrongServer && shards.is_some() => {
                    core.getattr_raw(&o, dir).await?;
                    return Err(o.error(Status::Stale).from(server));
                }
                told if told.status != Status::Ok => return Err(o.error(told.status).from(server)),
                told => told,
            };
            let mut bulk = told.bulk;
            let Some(Answer::Entries { entries, end, contents }) = told.answers.into_iter().next() else {
                return Err(o.error(Status::BadMessage).from(server).because("no entries in its answer"));
            };
            begin.shard += usize::from(end && !last_shard);
            let end = end && last_shard;
            if let Some(last) = entries.last() {
                begin.after = Some(Place { hash: last.place, name: last.name.as_bytes().into() });
            } else if !end {
                if last_shard {
                    let words = "neither entries nor the end in its answer";
                    return Err(o.error(Status::BadMessage).from(server).because(words));
                }
                continue;
            }
            let mut data = Vec::with_capacity(contents.len());
            for len in contents.0 {
                let len = len.map(|len| len as usize);
                if len.is_some_and(|len| len > bulk.len()) {
                    let words = "fewer contents than it tells in its answer";
                    return Err(o.error(Status::BadMessage).from(server).because(words));
                }
                data.push(len.map(|len| bulk.split_to(len)));
            }
            let then = (!end).then_some(begin);
            let (entries, lacks, unmerged) = (entries.0, Lacks::new(), BTreeMap::new());
            return Ok(Batch { entries, data, lacks, unmerged, then, asked, has: Has::Entries });
        }
    }
}

/// The shards that a listing goes through, in order.
fn listed(shards: &Shards) -> &[ServerId] {
    match shards.servers() {
        [but_last @ .., _] if mutant::is(Mutant::SkipInListing) => but_last,
        all => all,
    }
}
