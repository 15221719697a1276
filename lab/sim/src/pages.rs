//! A run with mounts whose kernels keep pages over opens. Several clients, each with a small model of a
//! kernel's page cache, write, read, truncate and append to a few files, all at once.
//!
//! ```text
//!   mount 0:  open ─ read page 3 ─ write page 7 ─ …       after each round, when no operation is under way:
//!   mount 1:  append ─ open ─ read page 7 ─ …             open; pages that stay equal the servers' bytes
//!   servers:  killed, or their power cut, and started again
//! ```
//! As in a kernel, a page is locked while it is filled or written, and an invalidation waits for the pages.
//! **Equal counts mean equal bytes**: if an open begins when all writes have returned, and pages stay over
//! it, they equal the bytes that a client without pages reads.

use crate::cluster::{Cluster, ClusterConfig, connect};
use crate::rng::Rng;
use crate::run::RunReport;
use bytes::Bytes;
use futures_util::future::{LocalBoxFuture, join_all};
use shoal_client::{Client, Error, OpenFile};
use shoal_env::local::Semaphore;
use shoal_env::{Env, Instant};
use shoal_proto::op::Owner;
use shoal_proto::{Allocation, Handle, Name, Rights};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

const OWNER: Owner = Owner { mode: 0o644, uid: 1000, gid: 100 };
/// How long servers may take to begin.
const BEGIN_MAX: Duration = Duration::from_secs(40);
/// How long the story may take.
const STORY_MAX: Duration = Duration::from_secs(3_600);
const MOUNTS: usize = 3;
const FILES: usize = 4;
const ROUNDS: u64 = 60;
/// Things that are under way at once, at most.
const AT_ONCE: u64 = 5;
/// A kernel's page.
const PAGE: u64 = 4_096;
/// Pages of a file: over several servers.
const PAGES: u64 = 40;
/// Bytes of a whole file, and more.
const WHOLE: usize = 1 << 20;

/// A file as one kernel has it.
struct Cached {
    handle: Handle,
    file: RefCell<Option<OpenFile>>,
    pages: RefCell<BTreeMap<u64, Bytes>>,
    locks: Vec<Semaphore>,
}

/// A client, and its kernel's pages.
struct Mount {
    client: Client,
    files: Vec<Cached>,
}

impl Cached {
    fn new(handle: Handle) -> Cached {
        let locks = (0..PAGES).map(|_| Semaphore::new(1)).collect();
        Cached { handle, file: RefCell::default(), pages: RefCell::default(), locks }
    }

    /// The kernel's contents of a page from here on; none of one that it had to drop.
    async fn forget(&self) {
        for (page, lock) in (0..).zip(&self.locks) {
            let _locked = lock.acquire(1).await;
            self.pages.borrow_mut().remove(&page);
        }
    }
}

/// Something that a mount does to a file. Where it fails, it may be done, in part, or not.
#[derive(Clone, Copy, Debug)]
enum Deed {
    Open,
    Read { page: u64 },
    Write { from: u64, len: u64 },
    Direct { from: u64, len: u64 },
    Append { len: u64 },
    Truncate { size: u64 },
    Punch { from: u64, len: u64 },
    Stat,
    Touch,
}

impl Deed {
    fn drawn(rng: &mut Rng) -> Deed {
        let page = rng.below(PAGES);
        let from = page * PAGE + rng.below(4) / 3 * rng.below(PAGE);
        let len = [100, PAGE, 2 * PAGE, 20_000][rng.below(4) as usize].min(PAGES * PAGE - from);
        match rng.below(20) {
            0..=3 => Deed::Open,
            4..=10 => Deed::Read { page },
            11..=14 => Deed::Write { from, len },
            15 => Deed::Direct { from, len },
            16 => Deed::Append { len },
            17 if rng.below(3) == 0 => Deed::Truncate { size: from },
            17 => Deed::Punch { from, len },
            18 => Deed::Stat,
            _ => Deed::Touch,
        }
    }
}

impl Mount {
    async fn begin(env: &Env, options: shoal_client::Options, files: &[Handle]) -> Result<Mount, Error> {
        let client = connect(env, options).await?;
        client.keep_pages(|_| {});
        Ok(Mount { client, files: files.iter().map(|&handle| Cached::new(handle)).collect() })
    }

    /// Open a file, as a kernel does; whether its pages stay.
    async fn open(&self, cached: &Cached) -> Result<bool, Error> {
        let opened = self.client.open_pages(cached.handle, Rights::READ | Rights::WRITE).await?;
        let stay = opened.file.keeps_pages(&opened.counts);
        if !stay {
            cached.forget().await;
        }
        let before = cached.file.replace(Some(opened.file));
        if let Some(before) = before {
            before.close().await?;
        }
        Ok(stay)
    }

    async fn opened(&self, cached: &Cached) -> Result<OpenFile, Error> {
        if cached.file.borrow().is_none() {
            self.open(cached).await?;
        }
        let file = cached.file.borrow().clone();
        file.ok_or_else(|| Error::new(shoal_proto::Status::Io, "open"))
    }

    async fn act(&self, file: usize, deed: Deed, tag: u64) -> Result<(), Error> {
        let cached = &self.files[file];
        let filled = |len: u64| Bytes::from(vec![tag as u8; len as usize]);
        match deed {
            Deed::Open => drop(self.open(cached).await?),
            Deed::Read { page } => {
                let file = self.opened(cached).await?;
                let _locked = cached.locks[page as usize].acquire(1).await;
                if !cached.pages.borrow().contains_key(&page) {
                    let mut bytes = file.read(page * PAGE, PAGE as usize).await?.to_vec();
                    bytes.resize(PAGE as usize, 0);
                    cached.pages.borrow_mut().insert(page, bytes.into());
                }
            }
            Deed::Write { from, len } => self.write(cached, from, filled(len)).await?,
            Deed::Direct { from, len } => {
                let file = self.opened(cached).await?;
                let written = file.write(from, filled(len)).await;
                self.take(cached, from, len).await;
                written?;
            }
            Deed::Append { len } => {
                let file = self.opened(cached).await?;
                if self.client.getattr(cached.handle).await?.size + len < PAGES * PAGE {
                    file.append(filled(len)).await?;
                    cached.forget().await;
                }
            }
            Deed::Truncate { size } => {
                let cut = self.client.truncate(cached.handle, size, false).await;
                self.client.spoil_pages(cached.handle);
                cached.forget().await;
                cut?;
            }
            Deed::Punch { from, len } => {
                let file = self.opened(cached).await?;
                let punched = file.allocate(from, len, Allocation::Punch).await;
                self.take(cached, from, len).await;
                punched?;
            }
            Deed::Stat => drop(self.client.getattr(cached.handle).await?),
            Deed::Touch => {
                let set = shoal_proto::SetAttr { mtime: Some(shoal_proto::Time(7)), ..Default::default() };
                self.client.setattr(cached.handle, set).await?;
            }
        }
        Ok(())
    }

    /// Through the pages: those it covers have its bytes first, and stay locked until the server has them
    /// too.
    async fn write(&self, cached: &Cached, from: u64, data: Bytes) -> Result<(), Error> {
        let file = self.opened(cached).await?;
        let end = from + data.len() as u64;
        let mut locked = Vec::new();
        for page in from / PAGE..end.div_ceil(PAGE) {
            locked.push(cached.locks[page as usize].acquire(1).await);
            let start = page * PAGE;
            let (first, last) = (from.max(start), end.min(start + PAGE));
            let own = &data[(first - from) as usize..(last - from) as usize];
            let mut pages = cached.pages.borrow_mut();
            if own.len() as u64 == PAGE {
                pages.insert(page, Bytes::copy_from_slice(own));
            } else if let Some(known) = pages.get_mut(&page) {
                let mut bytes = known.to_vec();
                bytes[(first - start) as usize..(last - start) as usize].copy_from_slice(own);
                *known = bytes.into();
            }
        }
        file.has_forgotten_pages();
        file.write_pages(from, data).await
    }

    /// The kernel gives up the pages of a range.
    async fn take(&self, cached: &Cached, from: u64, len: u64) {
        for page in from / PAGE..(from + len).div_ceil(PAGE) {
            let _locked = cached.locks[page as usize].acquire(1).await;
            cached.pages.borrow_mut().remove(&page);
        }
    }

    /// At rest: pages that stay over an open are the current ones.
    async fn check(&self, file: usize, whole: &[u8]) -> Result<Option<u64>, Error> {
        let cached = &self.files[file];
        if !self.open(cached).await? {
            return Ok(None);
        }
        let pages = cached.pages.borrow();
        let is_wrong = |(page, bytes): &(&u64, &Bytes)| {
            let (start, end) = ((**page * PAGE) as usize, ((**page + 1) * PAGE) as usize);
            let there = whole.get(start.min(whole.len())..end.min(whole.len())).unwrap_or_default();
            bytes[..there.len()] != *there
        };
        match pages.iter().find(is_wrong) {
            None => Ok(Some(pages.len() as u64)),
            Some((page, bytes)) => {
                let start = (page * PAGE) as usize;
                let at = (0..).zip(bytes.iter()).find(|(n, byte)| whole.get(start + n) != Some(*byte));
                let (n, byte) = at.unwrap_or((0, &0));
                let words = format!(
                    "a page stayed over an open at byte {}: expected {:?}, found {byte}",
                    start + n,
                    whole.get(start + n)
                );
                Err(Error::new(shoal_proto::Status::Io, "open").because(words))
            }
        }
    }
}

/// The outcome of the story.
#[derive(Default)]
struct Story {
    has_begun: Cell<bool>,
    ended: RefCell<Option<Result<(), String>>>,
    /// Pages that stayed over opens at rest.
    stayed: Cell<u64>,
}

/// Run the story once; broken promises are in the report. Of every four seeds, one has no faults, one kills
/// servers, and two cut their power.
pub fn pages_over_opens(seed: u64, #[cfg(feature = "mutants")] mutant: Option<crate::Mutant>) -> RunReport {
    #[cfg(feature = "mutants")]
    shoal_env::mutant::choose(mutant);
    let config = ClusterConfig { clients: 1, ..ClusterConfig::default() };
    let cluster = Cluster::new(seed, &config);
    let mut report = RunReport { seed, switches: config.switches, ..RunReport::default() };
    match tell(&cluster, seed) {
        Ok(stayed) => report.acknowledged = stayed,
        Err(words) => report.violations.push(words),
    }
    report.violations.extend(cluster.failures());
    report.trace_hash = cluster.world.trace_hash();
    report.took = cluster.world.now().since(Instant(0));
    report
}

fn tell(cluster: &Cluster, seed: u64) -> Result<u64, String> {
    let world = &cluster.world;
    if !world.run_until_true(world.now() + BEGIN_MAX, || cluster.is_ready()) {
        return Err(format!("the servers did not begin within {BEGIN_MAX:?}"));
    }
    let story = Rc::new(Story::default());
    let (told, options) = (story.clone(), cluster.options());
    cluster.start_client(0, move |env| async move {
        let outcome = rounds(&env, options, seed, &told).await;
        told.ended.replace(Some(outcome.map_err(|error| error.to_string())));
    });
    let mut rng = Rng::new(seed, 77);
    let end = world.now() + STORY_MAX;
    while story.ended.borrow().is_none() && world.now() < end {
        let pause = Duration::from_millis(50 + rng.below(2_000));
        world.run_until_true(world.now() + pause, || story.ended.borrow().is_some());
        if !seed.is_multiple_of(4) && story.has_begun.get() && cluster.is_ready() {
            let server = cluster.server(rng.below(u64::from(cluster.server_count())) as u16);
            server.keep_stopped();
            match seed % 4 {
                1 => world.crash(server.process),
                _ => world.power_cut(server.machine),
            }
            server.start(world);
        }
    }
    let ended = story.ended.borrow_mut().take();
    ended.ok_or("the clients did not come to their end")??;
    Ok(story.stayed.get())
}

async fn rounds(env: &Env, options: shoal_client::Options, seed: u64, story: &Story) -> Result<(), Error> {
    let judge = connect(env, options.clone()).await?;
    let mut files = Vec::new();
    for n in 0..FILES {
        let name = Name::new(format!("pages{n}").as_bytes()).expect("it is valid");
        files.push(judge.create(Handle::ROOT, &name, OWNER, true, Rights::WRITE, None).await?.0.handle);
    }
    let mut mounts = Vec::new();
    for _ in 0..MOUNTS {
        mounts.push(Mount::begin(env, options.clone(), &files).await?);
    }
    story.has_begun.set(true);
    let mut rng = Rng::new(seed, 78);
    for round in 0..ROUNDS {
        // Most at one file: acts elsewhere disturb no client.
        let file = rng.below(FILES as u64) as usize;
        let mut under_way: Vec<LocalBoxFuture<'_, Result<(), Error>>> = Vec::new();
        for n in 0..1 + rng.below(AT_ONCE) {
            let (mount, deed) = (&mounts[rng.below(MOUNTS as u64) as usize], Deed::drawn(&mut rng));
            env.note(|| format!("round {round}: {deed:?} of file {file}"));
            under_way.push(Box::pin(mount.act(file, deed, 1 + (round * AT_ONCE + n) % 255)));
        }
        if join_all(under_way).await.iter().any(Result::is_err) {
            // An act that has failed for its client may still be done.
            env.sleep(Duration::from_secs(40)).await;
        }
        let judged = judge.open(files[file], Rights::READ).await;
        let whole = match judged {
            Ok(opened) => opened.read(0, WHOLE).await,
            Err(error) => Err(error),
        };
        // A server that is away: the next round decides.
        let Ok(whole) = whole else { continue };
        for (n, mount) in mounts.iter().enumerate() {
            let checked = mount.check(file, &whole).await;
            match checked {
                Ok(stayed) => story.stayed.set(story.stayed.get() + stayed.unwrap_or(0)),
                Err(error) if error.words.is_empty() => {}
                Err(error) if error.words.starts_with("a page stayed") => {
                    let words = format!("mount {n}, file {}, round {round}: {}", files[file], error.words);
                    return Err(error.because(words));
                }
                Err(_) => {}
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_stay_over_an_open_are_what_the_servers_have_whatever_is_under_way_and_whoever_dies() {
        let mut stayed = 0;
        for seed in 1..=16 {
            let report = pages_over_opens(
                seed,
                #[cfg(feature = "mutants")]
                None,
            );
            assert!(report.violations.is_empty(), "seed {seed}: {:?}", report.violations);
            stayed += report.acknowledged;
        }
        assert!(stayed > 200, "only {stayed} pages stayed: the story tells nothing");
    }
}
